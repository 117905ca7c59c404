"""Models of shapes in experiment files: what they become, what is refused at its line, and what fits the memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.model_shapes import Layer, ModelShapes, to_json
from bwbench.experiment.config import real_size
from bwbench.experiment.config.cell_config import CellConfig
from bwbench.experiment.config.load import load_experiment
from bwbench.experiment.config.real_size import auto_shrink, memory_need, memory_words
from bwbench.records.cell_identity import identity, recorded_identity
from bwbench.results.analysis.cells import time_words

EXPERIMENT = """\
name: real
nodes: 4
link: {bandwidth: 1 Gbit/s, latency: 1 ms}
model: {shapes: resnet50}
batch_size: 8
compute: {step_time: 100 ms}
limit: {steps: 40}
algorithm: ring
"""
GB = 1e9


@pytest.fixture(autouse=True)
def machine_of_24_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_size, "machine_bytes", lambda: 24 * GB)


def config_of(folder: Path, text: str) -> CellConfig:
    path = folder / "real.yaml"
    path.write_text(text)
    return load_experiment(path).points[0].config


def refusal_of(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config_of(folder, text)
    return str(caught.value)


def test_it_has_no_data_and_ends_after_its_steps(tmp_path: Path) -> None:
    config = config_of(tmp_path, EXPERIMENT)
    assert config.dataset.source.name == "none" and config.target is None
    assert config.limit.samples == 40 * 8 * 4 == config.evaluate.every_samples
    assert config.model.to_json()["of"] == "resnet50"
    recorded = config.model_dump(mode="json", by_alias=True)
    assert "shrink" not in recorded and "steps" not in recorded["limit"]
    assert CellConfig.model_validate(recorded) == config and recorded_identity(recorded) == identity(config)


def test_a_device_that_encodes_faster_needs_as_much_more_time(tmp_path: Path) -> None:
    faster = EXPERIMENT.replace("100 ms}", "100 ms, vector_speed: 32}")
    config = config_of(tmp_path, faster + "shrink: 8\ndilation: 4\n")
    assert config.compute.vector_speed == 32.0
    recorded = config.model_dump(mode="json", by_alias=True)
    assert recorded["compute"]["vector_speed"] == 32.0 and recorded_identity(recorded) == identity(config)
    assert time_words([recorded]) == [
        "dilation 4", "shrink 8 (bytes divided by it)", "vectors 32 times as fast as this machine's"
    ]  # fmt: skip
    as_it_is = config_of(tmp_path, EXPERIMENT + "shrink: 8\ndilation: 4\n")
    assert "vector_speed" not in as_it_is.model_dump(mode="json", by_alias=True)["compute"]
    assert identity(as_it_is) != identity(config)
    found = refusal_of(tmp_path, faster + "shrink: 4\ndilation: 4\n")
    assert "real.yaml:6: compute.vector_speed: 32 times as fast" in found
    assert "here that is 16; write 16, or 'dilation: auto' or a larger shrink" in found
    alone = config_of(tmp_path, faster.replace("algorithm: ring", "algorithm: single") + "shrink: 8\ndilation: 4\n")
    assert alone.compute.vector_speed == 1.0


def test_steps_are_samples_for_any_model(tmp_path: Path) -> None:
    plain = EXPERIMENT.replace("{shapes: resnet50}", "mlp")
    steps, samples = config_of(tmp_path, plain), config_of(tmp_path, plain.replace("steps: 40", "samples: 1280"))
    assert steps == samples and identity(steps) == identity(samples)
    said = refusal_of(tmp_path, plain.replace("steps: 40", "steps: 40, samples: 1280"))
    assert "real.yaml:7: limit.steps and limit.samples both say when training ends; keep one" in said


def test_what_follows_from_the_length_of_training_follows_from_steps_alike(tmp_path: Path) -> None:
    plain = EXPERIMENT.replace("{shapes: resnet50}", "mlp") + "weight_average: tail\n"
    plain += "optimizer: {sgd: {lr: 0.1, decay: cosine}}\n"
    steps, samples = config_of(tmp_path, plain), config_of(tmp_path, plain.replace("steps: 40", "samples: 1280"))
    assert steps == samples and identity(steps) == identity(samples)
    both = (steps.optimizer.to_json()["decay_over"], steps.weight_average.to_json()["over"])
    assert both == ("1280 samples", "1280 samples")


REFUSED = [
    ("target: {accuracy: 0.9}\n", 9, "learns nothing, so that no accuracy is ever reached"),
    ("targets: [{accuracy: 0.8}, {accuracy: 0.9}]\n", 9, "learns nothing, so that no accuracy is ever reached"),
    ("dataset: digits\n", 9, "no data set is read; leave 'dataset' out"),
    ("dilation: 0.25\nshrink: 2\n", 10, "a dilation of 0.25 takes more off than that; use 0.5 or more"),
    ("shrink: 0.5\n", 9, "shrink"),
    ("shrink: much\n", 9, "write a number of 1 or more, such as 4, or 'auto'"),
    ("shrink: 3000\n", 9, "shrink it less"),
    ("mode: composed\n", 9, "there is no time to accuracy"),
    ("optimizer: adam\n", 9, "no optimizer has anything to do"),
    ("weight_average: tail\n", 9, "an average of its weights is nothing to look at"),
]


@pytest.mark.parametrize(("line", "number", "said"), REFUSED)
def test_what_makes_no_sense_is_refused_at_its_line(line: str, number: int, said: str, tmp_path: Path) -> None:
    found = refusal_of(tmp_path, EXPERIMENT + line)
    assert f"real.yaml:{number}: " in found and said in found


def test_an_optimizer_that_has_nothing_to_do_is_refused_for_a_node_alone_too(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("algorithm: ring", "algorithm: single") + "optimizer: adam\n"
    assert "real.yaml:9: model 'shapes' learns nothing, and no optimizer has anything" in refusal_of(tmp_path, text)


def test_muon_is_refused_with_what_to_write(tmp_path: Path) -> None:
    for algorithm, said in (
        ("local-sgd", "write 'optimizer: sgd' or 'adamw'"),
        ("muloco", "with 'diloco' in place of"),
    ):
        text = EXPERIMENT.replace("algorithm: ring", f"algorithm: {algorithm}") + "optimizer: muon\n"
        found = refusal_of(tmp_path, text)
        assert "real.yaml:9: model 'shapes' learns nothing, and a step of muon takes as long" in found and said in found


def test_options_of_an_optimizer_without_effect_are_said(tmp_path: Path) -> None:
    momentum = "optimizer: {sgd: {momentum: 0.9}}\n"
    path = tmp_path / "real.yaml"
    said = "'optimizer' has no effect: a model of shapes learns nothing"
    for algorithm, is_said in (("ring", True), ("single", True), ("local-sgd", False)):
        path.write_text(EXPERIMENT.replace("algorithm: ring", f"algorithm: {algorithm}") + momentum)
        assert any(text.startswith(said) for text in load_experiment(path).warnings) == is_said
    path.write_text(EXPERIMENT + "optimizer: sgd\n")
    assert not load_experiment(path).warnings


def test_other_nonsense_is_refused_at_its_line(tmp_path: Path) -> None:
    assert "real.yaml:4: there are no shapes of 'resnet51'. Known: vgg16, resnet50" in refusal_of(
        tmp_path, EXPERIMENT.replace("resnet50", "resnet51")
    )
    assert "declare what a step takes" in refusal_of(tmp_path, EXPERIMENT.replace("compute: {step_time: 100 ms}\n", ""))
    virtual = EXPERIMENT.replace("{step_time: 100 ms}", "{virtual: true}").replace(
        "{bandwidth: 1 Gbit/s, latency: 1 ms}", "unshaped"
    )
    assert "real.yaml:6: model 'shapes' learns nothing, and virtual nodes have no times" in refusal_of(
        tmp_path, virtual
    )
    learns = EXPERIMENT.replace("{shapes: resnet50}", "mlp") + "shrink: 2\n"
    assert "real.yaml:9: shrink: 2 divides parameters and the link's rates, and a model that learns" in refusal_of(
        tmp_path, learns
    )
    unshaped = EXPERIMENT.replace("{bandwidth: 1 Gbit/s, latency: 1 ms}", "unshaped") + "shrink: 2\n"
    assert "an unshaped link has no rate that could be divided" in refusal_of(tmp_path, unshaped)
    for key, text in (
        ("medium: shared", "on a shared air"),
        ("queue: fq_codel", "goes by packets, of which there are fewer then"),
        ("cross_traffic: video", "cross traffic would stay what it is"),
        ("loss: 0.001", "where frames are lost at random"),
        ("overrides: {1: {loss: 0.001}}", "where frames are lost at random"),
        ("handover: {loss: 0.5}", "where frames are lost at random"),
        ("jitter: 1 ms, jitter_kind: independent", "delays that are drawn for each frame"),
        ("queue: 10 packets", "the link and its queue would hold 5.0 frames at a time, and TCP needs 16"),
        ("overrides: {2: {queue: 20 kB}}", "node 2 and its queue would hold 6.6 frames at a time"),
        ("tcp: {send_buffer: 40 kB}", "tcp.send_buffer would hold 13.2 frames, and TCP needs 16"),
    ):
        found = refusal_of(tmp_path, EXPERIMENT.replace("latency: 1 ms", key) + "shrink: 2\n")
        assert "real.yaml:9: shrink: 2 divides the link's rates, and" in found and text in found
    device = EXPERIMENT.replace("step_time: 100 ms", "step_time: 100 ms, device: cuda")
    assert "real.yaml:6: model 'shapes' learns nothing and computes nothing, so that a cuda" in refusal_of(
        tmp_path, device
    )
    none = EXPERIMENT.replace("{shapes: resnet50}", "mlp") + "dataset: none\n"
    assert "choose another model or another data set" in refusal_of(tmp_path, none).lower()


def test_what_is_shrunk_may_run_faster_by_as_much_and_send_in_the_background(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("algorithm: ring", "algorithm: async") + "dilation: 0.25\n"
    assert "while its nodes compute" in refusal_of(tmp_path, text)
    config = config_of(tmp_path, text + "shrink: 4\n")
    made = config.link_as_made.dilated(config.dilation)
    assert made.bandwidth_bps == 1e9 and made.latency_s == pytest.approx(0.25e-3)


def test_what_powersgd_sends_does_not_follow_the_size(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("algorithm: ring", "algorithm: {name: every-step}\ncompression: powersgd") + "shrink: 4\n"
    assert "what powersgd sends does not follow the size; run it whole" in refusal_of(tmp_path, text)


def test_more_memory_than_there_is_is_refused_with_what_fits(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("resnet50", "bert-large").replace("nodes: 4", "nodes: 16")
    text = text.replace("algorithm: ring", "algorithm: decentralized")
    found = refusal_of(tmp_path, text)
    assert "real.yaml:2: nodes: 16 nodes of bert-large with decentralized need" in found
    assert "this machine has 21.6 GB" in found and "shrink: 4 ('auto' finds it)" in found
    assert "the shapes of resnet50" in found and "; 4 nodes;" in found
    config = config_of(tmp_path, text + "shrink: auto\n")
    assert config.shrink == 4.0
    assert memory_need(config, _shapes(config)).total_bytes <= 0.9 * 24 * GB


def test_gradients_that_nobody_looks_at_take_no_memory(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("resnet50", "bert-large").replace("nodes: 4", "nodes: 16")
    ring, ddp = (config_of(tmp_path, text.replace("ring", name) + "shrink: 4\n") for name in ("ring", "ddp"))
    assert memory_need(ring, _shapes(ring)).node_bytes < memory_need(ddp, _shapes(ddp)).node_bytes
    whole = config_of(tmp_path, text)  # 1.3 GB of gradients on each of 16 nodes
    assert memory_need(whole, _shapes(whole)).total_bytes < 16 * 4 * 336e6


def test_what_a_plan_says_of_memory_is_in_gigabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(tmp_path, EXPERIMENT)
    monkeypatch.setattr(real_size, "memory_of", lambda _: 8.19e9)  # which no float is a multiple of a billion of
    assert memory_words([config]) == "memory: up to 8.19 GB (4 nodes with every-step) of 24 GB"


def test_auto_leaves_alone_what_fits_and_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "real.yaml"
    path.write_text(EXPERIMENT.replace("algorithm: ring", "matrix: {algorithm: [ring, ddp]}") + "shrink: auto\n")
    experiment = load_experiment(path)
    assert [point.config.shrink for point in experiment.points] == [1.0, 1.0]
    (said,) = (note for note in experiment.notes if note.startswith("shrink: "))
    assert said == "shrink: auto is 1: the nodes fit into the 21.6 GB of memory that this machine has for them"
    config = experiment.points[0].config
    assert auto_shrink(config, _shapes(config), usable_bytes=1.0)[0] == real_size.MOST_SHRINK


def test_a_node_alone_is_whole(tmp_path: Path) -> None:
    assert config_of(tmp_path, EXPERIMENT.replace("ring", "single") + "shrink: 4\n").shrink == 1.0


def test_a_shrunk_link_has_the_share_of_the_rate_and_the_same_times(tmp_path: Path) -> None:
    config = config_of(tmp_path, EXPERIMENT + "shrink: 4\n")
    assert config.link.bandwidth_bps == 1e9 and config.link_as_made.bandwidth_bps == 2.5e8
    assert config.link_as_made.latency_s == config.link.latency_s
    assert identity(config) != identity(config_of(tmp_path, EXPERIMENT))


def test_what_limits_tcp_is_divided(tmp_path: Path) -> None:
    link = "{bandwidth: 1 Gbit/s, latency: 1 ms, queue: 200 packets, tcp: {receive_buffer: 1 MB, rto_max: 1 s}}"
    config = config_of(tmp_path, EXPERIMENT.replace("{bandwidth: 1 Gbit/s, latency: 1 ms}", link) + "shrink: 4\n")
    made = config.link_as_made
    assert made.tcp.receive_buffer_bytes == 250e3 and made.tcp.send_buffer_bytes is None and made.tcp.rto_max_s == 1.0
    assert made.base.queue_packets == 50


def test_a_line_between_sites_that_would_hold_a_few_frames_is_refused(tmp_path: Path) -> None:
    link = "{bandwidth: 1 Gbit/s, sites: {a: {bandwidth: 80 Mbit/s}, b: {bandwidth: 80 Mbit/s, queue: 50 kB}}}"
    found = refusal_of(tmp_path, EXPERIMENT.replace("{bandwidth: 1 Gbit/s, latency: 1 ms}", link) + "shrink: 4\n")
    assert "real.yaml:9: shrink: 4 divides the link's rates, and the way from a to b and its queue" in found
    assert "would hold 8.3 frames at a time, and TCP needs 16; shrink it less" in found


def test_a_link_that_cannot_be_shrunk_is_refused_whatever_dilation_is_asked(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("latency: 1 ms", "latency: 1 ms, loss: 0.01") + "shrink: 4\ndilation: auto\n"
    assert "real.yaml:9: shrink: 4 divides the link's rates, and where frames are lost" in refusal_of(tmp_path, text)


def test_between_sites_every_line_is_shrunk(tmp_path: Path) -> None:
    link = "{bandwidth: 1 Gbit/s, sites: {a: {bandwidth: 80 Mbit/s, latency: 5 ms, queue: 200 kB}, b: {up: 40 Mbit/s, "
    text = EXPERIMENT.replace("{bandwidth: 1 Gbit/s, latency: 1 ms}", link + "down: 60 Mbit/s}}}") + "shrink: 4\n"
    config = config_of(tmp_path, text)
    whole, made = config.link.site_network(4), config.link_as_made.site_network(4)
    assert whole is not None and made is not None
    assert made.latency_s == whole.latency_s
    assert [line.rate_bps * 4 for line in made.lines] == [line.rate_bps for line in whole.lines]
    queues = [line.queue_bytes for line in whole.lines]  # 64 kB is the least of those that are given as a time
    assert [line.queue_bytes * 4 for line in made.lines] == pytest.approx(queues, rel=0.03)
    regions = EXPERIMENT.replace("latency: 1 ms", "regions: [ohio, seoul]")
    halved = config_of(tmp_path, regions + "shrink: 2\n").link_as_made.site_network(4)
    known = config_of(tmp_path, regions).link.site_network(4)
    assert halved is not None and known is not None and halved.latency_s == known.latency_s
    assert [line.rate_bps * 2 for line in halved.lines] == [line.rate_bps for line in known.lines]


def test_shapes_of_ones_own_are_known_by_what_the_file_says(tmp_path: Path) -> None:
    model = ModelShapes("mine", (Layer("a", ((100, 100),), 1.0), Layer("b", ((10, 100),), 3.0)))
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(to_json(model)))
    text = EXPERIMENT.replace("resnet50", "mine.json")
    config = config_of(tmp_path, text)
    assert config.shapes == model and config.model.to_json()["of"] == str(file)
    before = identity(config)
    (tmp_path / "other").mkdir()
    file.rename(tmp_path / "other" / "renamed.json")
    assert identity(config_of(tmp_path, EXPERIMENT.replace("resnet50", "other/renamed.json"))) == before
    (tmp_path / "other" / "renamed.json").write_text("[]")
    found = refusal_of(tmp_path, EXPERIMENT.replace("resnet50", "other/renamed.json"))
    assert "real.yaml:4: " in found and "is no list of a model's shapes" in found
    with pytest.raises(ConfigError, match="there are no shapes of"):
        _ = config.shapes


def test_a_model_that_learns_may_have_an_option_that_names_a_file(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("not a list of shapes")
    (tmp_path / "mine.py").write_text(PLUGIN)
    text = EXPERIMENT.replace("{shapes: resnet50}", "{mine: {of: words.txt}}") + "plugins: [mine.py]\n"
    assert config_of(tmp_path, text).model.to_json()["of"] == "words.txt"


PLUGIN = """\
from bwbench.base.component import ComponentConfig
from bwbench.base.registry import MODELS
from bwbench.training.models.model import AbstractModel


class MineConfig(ComponentConfig):
    of: str = ""


class Mine(AbstractModel):
    Config = MineConfig
    name = "mine"

    def _build(self, spec):
        raise NotImplementedError


MODELS.register("mine", Mine, "a model")
"""


def _shapes(config: CellConfig) -> ModelShapes:
    model = config.shapes
    assert model is not None
    return model
