"""Shapes of models: the published ones to the last parameter, those in a file, and what dividing them keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.model_shapes import Layer, ModelShapes, read_shapes, to_json
from bwbench.base.published_models import PUBLISHED, published_model

# Parameters as published: torchvision's documentation of its weights (num_params), the files of weights on Hugging Face
# (safetensors metadata: bert-large-uncased 336M with both heads of the pre-training, gpt2 124M, gpt2-medium 355M,
# Llama-3.2-1B 1.24B). Multiply-adds in 1e9: torchvision's documentation (GFLOPS, which are multiply-adds there).
PARAMETERS = {
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "bert-base": 110_106_428,
    "bert-large": 336_226_108,
    "vit-b16": 86_567_656,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "llama-1b": 1_235_814_400,
}
GMAC = {"vgg16": 15.47, "resnet50": 4.09, "vit-b16": 17.56}
SMALL = ModelShapes("small", (Layer("a", ((8, 3), (8,)), 1.0), Layer("act", (), 1.0), Layer("b", ((4, 8),), 2.0)))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_its_number_of_parameters(name: str) -> None:
    assert published_model(name).num_parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", GMAC)
def test_a_published_model_computes_what_is_published(name: str) -> None:
    assert sum(layer.work for layer in published_model(name).layers) / 1e9 == pytest.approx(GMAC[name], rel=2e-3)


def test_three_quarters_of_vgg16_appear_in_the_first_hundredth_of_its_backward_pass() -> None:
    model = published_model("vgg16")
    ends = dict(zip((layer.name for layer in model.layers), model.backward_ends, strict=True))
    assert ends["fc6"] < 0.01 and ends["conv1_1"] == 1.0
    assert model.layers[13].num_parameters > 0.74 * model.num_parameters


def test_layers_end_in_the_order_of_a_backward_pass() -> None:
    assert SMALL.backward_ends == (1.0, 0.75, 0.5)
    assert SMALL.parameter_shapes == ((8, 3), (8,), (4, 8)) and SMALL.num_parameters == 64


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("factor", [2.0, 4.0, 8.0])
def test_a_shrunk_model_has_the_share_of_parameters_in_every_tensor(name: str, factor: float) -> None:
    whole, made = published_model(name), published_model(name).shrunk(factor)
    assert made.num_parameters == pytest.approx(whole.num_parameters / factor, rel=0.01)
    assert made.backward_ends == whole.backward_ends
    assert [len(shape) for shape in made.parameter_shapes] == [len(shape) for shape in whole.parameter_shapes]


def test_a_model_is_not_shrunk_to_something_else() -> None:
    with pytest.raises(ConfigError, match="small shrunk by 30 has .* shrink it less"):
        SMALL.shrunk(30)
    assert SMALL.shrunk(1) is SMALL


def test_a_file_says_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(to_json(SMALL)))
    model, digest = read_shapes(path)
    assert model == SMALL
    path.write_text(json.dumps(to_json(SMALL), indent=4) + "\n")
    assert read_shapes(path) == (SMALL, digest)  # it is what the file says that counts


LAYER = {"name": "a", "shapes": [[2, 3]], "backward": 1}
BAD = [
    ("[1, 2]", "is no list of a model's shapes"),
    ("{", ":1: is not JSON"),
    ({"bwbench_shapes": 2}, "this version reads 1"),
    ({"layers": []}, "layers: .* is no list of layers"),
    ({"layers": "a"}, "layers: 'a' is no list of layers"),
    ({"name": ""}, "name: '' is not the name of a model"),
    ({"layers": [7]}, r"layers\[0\]: 7 is not a layer"),
    ({"layers": [LAYER, {**LAYER, "shapes": [[2, 0]]}]}, r"layers\[1\].shapes\[0\]: \[2, 0\] is no shape"),
    ({"layers": [{**LAYER, "shapes": 3}]}, r"layers\[0\].shapes: 3 is not a list of shapes"),
    ({"layers": [{**LAYER, "backward": -1}]}, r"layers\[0\].backward: -1 is not a number of 0 or more"),
    ({"layers": [{**LAYER, "backward": 10**400}]}, r"backward: 10{70,}\.\.\. is not a number of 0 or more, at most 1e"),
    ({"layers": [{**LAYER, "backward": 1e308}] * 2}, r"layers\[0\].backward: 1e\+308 is not a number of 0 or more"),
    (
        {"layers": [{**LAYER, "shapes": [[10**3000, 10**3000]]}]},
        r"layers\[0\].shapes\[0\]: \[10+\.\.\. has more values",
    ),
    ({"layers": [{**LAYER, "shapes": [[10**12] * 1000]}]}, "has more values than a model may have, 1,000,000,000,000"),
    ({"layers": [{**LAYER, "shapes": [[10**12]]}] * 2}, "2,000,000,000,000 parameters are out of range"),
    ({"layers": [{**LAYER, "backward": True}]}, "is not a number of 0 or more"),
    ({"layers": [{**LAYER, "flops": 1}]}, r"layers\[0\]: unknown key 'flops'"),
    ({"layers": [{**LAYER, "name": 3}]}, r"layers\[0\].name: 3 is not text"),
    ({"layers": [{**LAYER, "backward": 0}]}, "'backward' is 0 for all of them"),
    ({"layers": [{**LAYER, "shapes": []}]}, "0 parameters are out of range"),
]


@pytest.mark.parametrize(("content", "said"), BAD)
def test_a_file_that_is_no_list_of_shapes_is_refused(content: object, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    if isinstance(content, dict):
        content = json.dumps({"bwbench_shapes": 1, "name": "m", "layers": [LAYER], **content})
    path.write_text(str(content))
    with pytest.raises(ConfigError, match=said) as caught:
        read_shapes(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        read_shapes(tmp_path / "nothing.json")


def test_numbers_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"bwbench_shapes": 1, "name": "m", "layers": [{"name": "a", "shapes": [[2]], "backward": NaN}]}')
    with pytest.raises(ConfigError, match="backward: NaN is not a number"):
        read_shapes(path)
