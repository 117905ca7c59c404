"""``bwbench shapes`` writes a model down that no memory could hold, and says what is wrong with one that it cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bwbench.base.errors import EXIT_USER_INPUT
from bwbench.base.model_shapes import read_shapes
from bwbench.cli.main import _run

MODELS = """\
import torch
from torch import nn

print("a file may print")


def huge():
    return nn.Sequential(nn.Embedding(1_000_000, 8192), nn.Linear(8192, 8192, bias=False))


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, 4)

    def forward(self, inputs):
        return self.head(self.pool(self.conv(inputs)).flatten(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(16, 16, bias=False)  # registered in another order than it is used in
        self.qkv = nn.Linear(16, 48, bias=False)

    def forward(self, tokens):
        q, k, v = self.qkv(tokens).chunk(3, dim=-1)
        return self.projection(torch.bmm(torch.bmm(q, k.transpose(1, 2)), v))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attention = Attention()
        self.embedding = nn.Embedding(50, 16)
        self.torchs = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, tokens):
        inside = self.norm(self.attention(self.embedding(tokens)))
        inside, _ = self.torchs(inside, inside, inside, need_weights=False)
        return nn.functional.linear(inside, self.embedding.weight)


def nothing():
    return nn.ReLU()


def broken():
    raise RuntimeError("not today")


def talkative():
    print("before")
    raise ValueError("first line\\nsecond line\\n  third line")


class Sized(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)


def number():
    return 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MODELS)


def test_eight_billion_parameters_are_written_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["shapes", "mine.py:huge"]) == 0
    model, _ = read_shapes(Path("huge.json"))
    assert model.parameter_shapes == ((1_000_000, 8192), (8192, 8192))
    assert f"{model.num_parameters:,} parameters in 2 layers" in capsys.readouterr().err


def test_work_is_what_torch_counts() -> None:
    assert _run(["shapes", "mine.py:Pictures", "--input", "3,16,16", "--out", "pictures.json"]) == 0
    layers = json.loads(Path("pictures.json").read_text())["layers"]
    assert [(layer["name"], layer["shapes"]) for layer in layers] == [
        ("conv", [[8, 3, 3, 3], [8]]),
        ("head", [[4, 8], [4]]),
    ]
    assert [layer["backward"] for layer in layers] == [2 * 16 * 16 * 8 * 27, 2 * 8 * 4]


def test_a_parameter_that_two_layers_share_stands_once() -> None:
    assert _run(["shapes", "mine.py:Tied", "--tokens", "10"]) == 0
    model, _ = read_shapes(Path("Tied.json"))
    assert [(layer.name, layer.shapes) for layer in model.layers] == [("embedding", ((50, 16),)), ("head", ())]
    assert model.layers[1].work == 2 * 10 * 16 * 50


def test_what_is_done_between_layers_and_beside_them_stands_where_it_is_done() -> None:
    """Between two layers of a module, with a layer's weights in the model itself, and by torch in one piece."""
    assert _run(["shapes", "mine.py:Functional", "--tokens", "10"]) == 0
    model, _ = read_shapes(Path("Functional.json"))
    found = {(layer.name, layer.shapes): layer.work for layer in model.layers if not layer.name.startswith("torchs")}
    linear, between = 2 * 10 * 16, 2 * 2 * 10 * 10 * 16
    assert list(found.items()) == [
        (("embedding", ((50, 16),)), 0.0),
        (("attention.qkv", ((48, 16),)), linear * 48),
        (("attention", ()), between),
        (("attention.projection", ((16, 16),)), linear * 16),
        (("norm", ((16,), (16,))), 0.0),
        (("model", ()), linear * 50),
    ]
    torchs = [layer for layer in model.layers if layer.name.startswith("torchs")]
    assert sum(layer.work for layer in torchs) == linear * 64 + between
    assert sum(layer.num_parameters for layer in torchs) == 16 * 48 + 48 + 16 * 16 + 16
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        _made("Functional")(torch.zeros((1, 10), dtype=torch.int64, device="meta"))
    assert sum(layer.work for layer in model.layers) == counter.get_total_flops()


def _made(name: str) -> torch.nn.Module:
    """A model of the file, in training, where torch takes no short cut."""
    inside: dict[str, Any] = {}
    exec(compile(MODELS, "mine.py", "exec"), inside)
    with torch.device("meta"):
        model: torch.nn.Module = inside[name]()
    return model


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine.py"], "'mine.py' names no model; write it as my_model.py:Model"),
        (["mine.py:Model"], "mine.py has no 'Model'"),
        (["other.py:Model"], "is not a file"),
        (["mine.py:nothing"], "has no parameter that is trained"),
        (["mine.py:broken"], "cannot be made on the meta device: RuntimeError: not today"),
        (["mine.py:talkative"], "ValueError: first line second line   third line; write it as my_model.py:Model"),
        (["mine.py:Sized"], "missing 1 required positional argument: 'width'; write it as my_model.py:Model, where"),
        (["mine.py:Pictures", "--input", "\u00b2"], "--input '\u00b2' is no shape"),
        (["mine.py:Pictures", "--input", "1" * 5000], "is no shape; write it like 3,224,224"),
        (["mine.py:number"], "gives int, which is no torch module"),
        (["mine.py:Pictures", "--input", "4,16,16"], "does not take an input of (1, 4, 16, 16)"),
        (["mine.py:Pictures", "--input", "3x16"], "--input '3x16' is no shape; write it like 3,224,224"),
        (["mine.py:Tied", "--input", "3", "--tokens", "3"], "both say what the model takes"),
        (["mine.py:huge", "--out", "no/where.json"], "cannot be written"),
    ],
)
def test_what_cannot_be_written_down_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["shapes", *arguments]) == EXIT_USER_INPUT
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert not list(Path().glob("*.json"))
