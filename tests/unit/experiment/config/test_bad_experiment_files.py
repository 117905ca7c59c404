"""Every mistake gets one message at its line, with the value and what is allowed; nothing else escapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import load_experiment

GOOD = """\
name: good
nodes: 4
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: mlp
dataset: digits
batch_size: 32
algorithm: every-step
compression: none
optimizer: {sgd: {lr: 0.05}}
evaluate: {every: 2000 samples}
target: {accuracy: 0.95}
limit: {samples: 200000}
matrix:
  link.bandwidth: [1 Mbit/s, 10 Mbit/s]
"""

# A line of GOOD (by its beginning) and what stands there instead; the line of the problem; words of its message.
REPLACED = [
    ("name: good", "nmae: good", 1, ["unknown key 'nmae'", "Did you mean 'name'?", "Known: name, nodes, link"]),
    ("name: good", "name: a/b", 1, ["'a/b'", "letters, digits"]),
    ("name: good", "name: ..", 1, ["'..'", "not beginning with '.'"]),
    ("name: good", "name: 2024", 1, ["2024", "quotes"]),
    ("name: good", "name: good\nvirtual: true", 2, ["unknown key 'virtual'", "Did you mean 'compute: {virtual: …}'?"]),
    ("nodes: 4", "nodes: 0", 2, ["nodes: 0", "1 or more"]),
    ("nodes: 4", "nodes: -1", 2, ["nodes: -1", "1 or more"]),
    ("nodes: 4", "nodes: 100000", 2, ["at most 256"]),
    ("nodes: 4", "nodes: 255", 2, ["255 is out of range", "1 to 254", "compute: {virtual: true}"]),
    ("nodes: 4", "nodes: 1", 2, ["1 node has no peers", "every-step", "algorithm: single"]),
    ("nodes: 4", "nodes: four", 2, ["'four' is not a whole number"]),
    ("nodes: 4", "nodes: true", 2, ["true is not a whole number"]),
    ("nodes: 4", "nodes: 2.5", 2, ["2.5 is not a whole number"]),
    ("nodes: 4", "nodes: '4'", 2, ["'4' is not a whole number"]),
    ("nodes: 4", "nodes: 10:30", 2, ["'10:30' is not a whole number"]),
    ("nodes: 4", "nodes: [4]", 2, ["[4] is not a whole number"]),
    ("nodes: 4", "nodes: 4\nnodes: 5", 3, ["key 'nodes' stands twice", "line 2"]),
    ("link:", "link: {bandwith: 10 Mbit/s}", 3, ["unknown key 'bandwith'", "Did you mean 'bandwidth'?", "latency"]),
    ("link:", "link: {bandwidth: 10}", 3, ["10 has no unit", "'10 Mbit/s'"]),
    ("link:", "link: {bandwidth: 10 Mbps}", 3, ["'Mbps'", "Did you mean 'Mbit/s'?", "kbit/s"]),
    ("link:", "link: {bandwidth: 10 ms}", 3, ["'ms' is not a unit of bandwidth", "Gbit/s"]),
    ("link:", "link: {bandwidth: 0 Mbit/s}", 3, ["'0 Mbit/s' is out of range", "1 kbit/s or more"]),
    ("link:", "link: {bandwidth: -5 Mbit/s}", 3, ["'-5 Mbit/s' is out of range"]),
    ("link:", "link: {bandwidth: 1e999 Mbit/s}", 3, ["1e999"]),
    ("link:", "link: {bandwidth: fast}", 3, ["'fast' is not a bandwidth", "10 Mbit/s"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, loss: 1.5}", 3, ["link.loss: 1.5 is out of range", "less than 1"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, loss: 150 %}", 3, ["'150 %' is out", "less than 1 (100 %)"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, loss: 5}", 3, ["link.loss: 5 is out of range", "write '5 %'"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, loss: .nan}", 3, ["link.loss", "out of range"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, latency: -1 ms}", 3, ["'-1 ms' is out of range"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, latency: 2 h}", 3, ["'2 h' is out of range", "1 min"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, queue: 10 B}", 3, ["queue", "1514"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, medium: sharde}", 3, ["'sharde'", "Did you mean 'shared'?", "switched"]),
    ("link:", "link: {bandwidth: 1 Mbit/s, medium: shared, backend: netem}", 3, ["netem cannot do", "relay"]),
    ("link:", "link: {preset: wifi-802.11nn}", 3, ["wifi-802.11nn", "Did you mean"]),
    ("link:", "link: 10 Mbit/s", 3, ["'10 Mbit/s' is not a mapping"]),
    ("model: mlp", "model: mpl", 4, ["unknown model 'mpl'", "Did you mean 'mlp'?", "Known: logistic"]),
    ("model: mlp", "model: char-transformer", 4, ["char-transformer", "language-modelling", "classification"]),
    ("model: mlp", "model: {mlp: {hiden: 3}}", 4, ["model 'mlp' has no option 'hiden'", "Did you mean 'hidden'?"]),
    ("model: mlp", "model: 3", 4, ["3 is not a model", "{name: NAME"]),
    ("model: mlp", "model: [mlp, cnn]", 4, ["is not a model", "belong under 'matrix:'"]),
    ("model: mlp", "", 1, ["'model' is missing"]),
    ("dataset:", "dataset: digts", 5, ["unknown dataset 'digts'", "Did you mean 'digits'?"]),
    ("dataset:", "dataset: {name: digits, partition: iid}", 5, ["unknown partition 'iid'", "iid-fixed"]),
    ("dataset:", "dataset: {name: digits, partition: {dirichlet: 0}}", 5, ["alpha: 0 is out of range"]),
    ("batch_size", "batch_size: 0", 6, ["batch_size: 0 is out of range"]),
    ("algorithm:", "algorithm: rng", 7, ["unknown algorithm 'rng'", "Did you mean 'ring'?", "every-step"]),
    ("algorithm:", "algorithm: fp16", 7, ["'fp16'. It is a compression: write it under 'compression:'. Known: "]),
    ("algorithm:", "algorithm: sgd", 7, ["'sgd'. It is an optimizer: write it under 'optimizer:'. Known: "]),
    ("algorithm:", "algorithm: {ddp: {bucket: 3}}", 7, ["algorithm.ddp.bucket: 3 has no unit", "'3 kB'"]),
    ("algorithm:", "algorithm: {local-sgd: {overlap: x}}", 7, ["overlap: 'x' is not a whole number; Allowed: auto"]),
    ("algorithm:", "algorithm: {every-step: {bukcet: 3 kB}}", 7, ["no option 'bukcet'", "Did you mean 'bucket'?"]),
    ("algorithm:", "collective: none", 7, ["every-step", "collective 'none'", "no-communication"]),
    ("algorithm:", "collective: rig", 7, ["unknown collective 'rig'", "Did you mean 'ring'?", "Known: auto, none"]),
    ("compression:", "compression: fp61", 8, ["unknown compression 'fp61'", "Did you mean 'fp16'?"]),
    ("compression:", "compression: {threshold: {value: -1}}", 8, ["-1 is out of range", "more than 0"]),
    (
        "compression:",
        "compression: {threshold: {error_feedback: off}}",
        8,
        ["'off' is not allowed", "true, false, update"],
    ),
    ("compression:", "compression: {sign: {error_feedback: {decay: 2}}}", 8, ["error_feedback.decay", "2 is out of"]),
    (
        "compression:",
        "compression: {sign: {error_feedback: {on: update}}}",
        8,
        ["error_feedback: 'on' is no key", "in, decay"],
    ),
    ("compression:", "compression: []", 8, ["empty list", "'none'"]),
    ("compression:", "compression: [none, fp16]", 8, ["'none' stands alone"]),
    ("compression:", "compression:\n  - fp16\n  - {threshold: {valeu: 1}}", 10, ["no option 'valeu'"]),
    ("compression:", "compression: [fp16, threshold]", 8, ["'threshold' cannot follow 'fp16'"]),
    (
        "compression:",
        "compression: threshold\ncollective: ring",
        9,
        ["ring", "threshold", "one of: all-gather, parameter-server, scatter-gather"],
    ),
    ("algorithm:", "collective: {hierarchical: {workers_per_host: 5}}", 7, ["workers_per_host is 5", "4 nodes"]),
    ("algorithm:", "collective: {hierarchical: {across: rign}}", 7, ["unknown collective 'rign'", "'ring'"]),
    ("algorithm:", "collective: {parameter-server: {server: 4}}", 7, ["server 4", "ranks 0 to 3"]),
    ("algorithm:", "collective: gossip-pair", 7, ["every-step", "some of the ranks only"]),
    ("algorithm:", "collective: {gossip-pair: {pairs: randm}}", 7, ["pairs: 'randm'", "shift-one", "random"]),
    ("algorithm:", "algorithm: {eager-diloco: {overlap: 3}}", 7, ["no option 'overlap'", "period"]),
    ("algorithm:", "algorithm: {eager-diloco: {period: 0}}", 7, ["period: 0", "1 or more"]),
    ("algorithm:", "algorithm: {noloco: {pull: 0}}", 7, ["pull: 0 is out of range"]),
    ("algorithm:", "algorithm: {noloco: {overlap: 51}}", 7, ["overlap 51 is out of range", "0 to 50"]),
    ("algorithm:", "algorithm: {sparta: {ratio: 1.5}}", 7, ["ratio: 1.5 is out of range"]),
    ("algorithm:", "algorithm: {des-loc: {first_moment: 0}}", 7, ["first_moment: 0", "1 or more"]),
    ("algorithm:", "algorithm: des-loc", 9, ["des-loc", "adam or adamw", "got 'sgd'"]),
    ("compression:", "compression: bf16\ncollective: torch", 9, ["torch", "bf16", "collective: auto"]),
    ("optimizer:", "optimizer: {sgd: {lr: fast}}", 9, ["optimizer.sgd.lr: 'fast' is not a number"]),
    ("optimizer:", "optimizer: {sgd: {lr: true}}", 9, ["true is not a number"]),
    ("optimizer:", "optimizer: {sgd: {lr: .inf}}", 9, ["not a finite number"]),
    ("optimizer:", "optimizer: {sdg: {lr: 1}}", 9, ["unknown optimizer 'sdg'", "Did you mean 'sgd'?"]),
    ("optimizer:", "optimizer: {tuned: lr.tsv}", 9, ["lr.tsv: no such file", "'bwbench tune ", "makes it"]),
    ("optimizer:", "optimizer: tuned", 9, ["the file is missing", "{tuned: FILE}"]),
    ("optimizer:", "optimizer: {tuned: 3}", 9, ["3 names no file", "{tuned: FILE}"]),
    ("optimizer:", "optimizer: {tuned: a.yaml, sgd: {}}", 9, ["'tuned' stands alone"]),
    ("optimizer:", "optimizer: {tuned: {file: a.yaml, optimiser: sgd}}", 9, ["Did you mean 'optimizer'?"]),
    ("optimizer:", "optimizer: {tuned: {file: a.yaml, optimizer: {sdg: {}}}}", 9, ["unknown optimizer 'sdg'"]),
    ("optimizer:", "optimizer: {tuned: {file: a.yaml, optimizer: {sgd: {lr: 1}}}}", 9, ["lr is what the table says"]),
    ("optimizer:", "optimizer: {sgd: {decay: cosin}}", 9, ["optimizer.sgd.decay: 'cosin'", "'cosine'?", "linear"]),
    ("optimizer:", "optimizer: {sgd: {decay_to: 0.1}}", 9, ["decay_to says nothing without a decay", "decay: cosine"]),
    ("optimizer:", "optimizer: {sgd: {decay: linear, decay_to: 1.5}}", 9, ["1.5 is out of range", "less than 1"]),
    ("optimizer:", "optimizer: {sgd: {decay: linear, decay_over: 9}}", 9, ["9 has no unit", "'9 samples'"]),
    (
        "optimizer:",
        "optimizer: {sgd: {decay: linear, decay_over: 9e3 samples}}",
        9,
        ["the rate is down after 9000 samples", "limit.samples goes on to 200000", "leave decay_over out"],
    ),
    (
        "optimizer:",
        "optimizer: {sgd: {decay: cosine, warmup: 3e5 samples}}",
        9,
        ["still rising until 300000 (warmup)", "shorter warmup"],
    ),
    ("optimizer:", "optimizer: {muon: {flat: true}}", 9, ["muon steps matrices", "leave 'flat' out"]),
    ("optimizer:", "optimizer: {muon: {coefficients: jordon}}", 9, ["Did you mean 'jordan'?", "muloco"]),
    ("optimizer:", "optimizer: {muon: {adamw_ratio: 0}}", 9, ["adamw_ratio: 0 is out of range", "more than 0"]),
    ("algorithm:", "algorithm: muloco", 9, ["'muloco'", "belongs to muon", "write 'optimizer: muon'", "got 'sgd'"]),
    ("evaluate:", "weight_average: emma", 10, ["unknown weight_average 'emma'", "'ema'?", "none, ema, tail"]),
    ("evaluate:", "weight_average: ema", 10, ["weight_average.horizon", "'horizon' is missing"]),
    ("evaluate:", "weight_average: {ema: 2000}", 10, ["horizon: 2000 has no unit", "'2000 samples'"]),
    ("evaluate:", "weight_average: {tail: {share: 0}}", 10, ["share: 0 is out of range", "more than 0"]),
    ("evaluate:", "weight_average: {tail: {counts: last}}", 10, ["counts: 'last'", "averaged, trained"]),
    ("evaluate:", "weight_average: {tail: {over: 1e6 samples}}", 10, ["begins after 800000 samples", "is 200000"]),
    ("evaluate:", "evaluate: {every: 2000}", 10, ["2000 has no unit", "'2000 samples'"]),
    ("evaluate:", "evaluate: {test: everytime}", 10, ["evaluate.test: 'everytime'", "arrivals", "always"]),
    ("evaluate:", "evaluate: {test: true}", 10, ["evaluate.test", "arrivals", "always"]),
    ("evaluate:", "evaluate: {evry: 2000 samples}", 10, ["unknown key 'evry'", "Did you mean 'every'?"]),
    ("evaluate:", "compute: {virtual: true}", 10, ["virtual nodes share one process", "write 'link: unshaped'"]),
    ("evaluate:", "dilation: fast", 10, ["dilation: 'fast' is not a number", "or 'auto'"]),
    ("evaluate:", "dilation: 0", 10, ["dilation: 0 is out of range", "or 'auto'"]),
    ("link:", "link: 10 Mbit/s", 3, ["link: '10 Mbit/s' is not a mapping", "{bandwidth: ", "link: unshaped"]),
    ("link:", "link: {congestion_control: bbr}", 3, ["unknown key", "Did you mean 'tcp: {congestion_control: …}'?"]),
    ("evaluate:", "compute: {virtual: 2}", 10, ["2 is not a boolean"]),
    ("evaluate:", "compute: {step_time: 100}", 10, ["100 has no unit", "'100 ms'"]),
    ("evaluate:", "compute: {step_time_s: 100 ms}", 10, ["unknown key 'step_time_s'", "Did you mean 'step_time'?"]),
    ("target:", "target: {acuracy: 0.95}", 11, ["no metric 'acuracy'", "Did you mean 'accuracy'?", "accuracy, loss"]),
    ("target:", "target: {f1: 0.95}", 11, ["'digits' has no metric 'f1'", "accuracy, loss"]),
    ("target:", "target: {accuracy: 95}", 11, ["accuracy 95 is out of range", "{accuracy: 0.95}"]),
    ("target:", "target: {accuracy: 0.9, loss: 1}", 11, ["names 2 metrics"]),
    ("target:", "target: 0.95", 11, ["0.95 is not a target", "{accuracy: 0.95}"]),
    ("target:", "target: {accuracy: yes}", 11, ["'yes' is not a number"]),
    ("target:", "target: {loss: 1}\ntargets: [{loss: 1}, {loss: 2}]", 12, ["'target' and 'targets' stand both"]),
    ("target:", "targets: [{accuracy: 0.9}]", 11, ["two or more", "target: {accuracy: 0.87}"]),
    ("target:", "targets: {accuracy: 0.9}", 11, ["is not a list of targets", "[{accuracy: 0.80}, {accuracy: 0.87}]"]),
    ("target:", "targets:\n- {loss: 1}\n- {loss: 2}\n- {loss: 1.0}", 14, ["targets.2: loss 1 stands twice"]),
    (
        "target:",
        "targets:\n- {accuracy: 0.9}\n- {accuracy: 95}",
        13,
        ["accuracy 95 is out of range", "{accuracy: 0.95}"],
    ),
    ("target:", "targets:\n- {accuracy: 0.9}\n- {acuracy: 0.95}", 13, ["no metric 'acuracy'", "Did you mean"]),
    ("target:", "targets:\n- {accuracy: 0.9}\n- {accuracy: yes}", 13, ["targets.1.accuracy: 'yes' is not a number"]),
    ("limit:", "limit: {samples: 2000 samples}", 12, ["'2000 samples' is not a whole number"]),
    ("limit:", "limit: {time: 10}", 12, ["10 has no unit"]),
    ("limit:", "stop: never", 12, ["'never' is not allowed", "target, limit"]),
    ("limit:", "repeats: 0", 12, ["repeats: 0 is out of range", "1 to"]),
    ("limit:", "seed: -1", 12, ["seed: -1 is out of range"]),
    ("limit:", "seed: one", 12, ["'one' is not a whole number"]),
    ("limit:", "hosts: [a, b, c, d]", 12, ["hosts", "launcher: ssh"]),
    ("limit:", "mode: compose", 12, ["'compose' is no mode", "Did you mean 'composed'?", "full"]),
    ("limit:", "mode: composed\nwhole: {share: 2}\nlimit:", 13, ["whole.share: 2 is out of range", "at most 1"]),
    ("limit:", "mode: composed\nwhole: {share: 10}\nlimit:", 13, ["whole.share: 10 is", "write '10 %'"]),
    (
        "limit:",
        "repeats: {until: 20}",
        12,
        ["repeats.until: 20 is", "more than 0 and at most 1 (100 %)", "write '20 %'"],
    ),
    ("limit:", "repeats: {until: 120 %}", 12, ["repeats.until: '120 %' is out of range", "at most 1 (100 %)"]),
    ("limit:", "repeats: {until: 1e99999999999999999999 %}", 12, ["repeats.until", "is not a number"]),
    ("limit:", "limit: 100", 12, ["limit: 100 is not a mapping", "Known keys: samples, time"]),
    ("limit:", "plugins: [nowhere.py]", 12, ["nowhere.py", "is not a file"]),
    ("limit:", "plugins: [3]", 12, ["3 is not the path"]),
    ("  link.bandwidth", "  link.bandwith: [1 Mbit/s]", 14, ["unknown key 'link.bandwith'", "'link.bandwidth'"]),
    ("  link.bandwidth", "  bandwidth: [1 Mbit/s]", 14, ["unknown key 'bandwidth'", "Known: nodes"]),
    ("  link.bandwidth", "  link.bandwidth: 1 Mbit/s", 14, ["is not a list", "link.bandwidth: [VALUE, …]"]),
    ("  link.bandwidth", "  link.bandwidth: []", 14, ["is not a list of values"]),
    ("  link.bandwidth", "  link.bandwidth:\n    - 1 Mbit/s\n    - 10", 16, ["10 has no unit"]),
    ("  link.bandwidth", "  optimizer.lr: [0.1, high]", 14, ["optimizer.sgd.lr: 'high' is not a number"]),
    ("  link.bandwidth", "  nodes.x: [1]", 14, ["'nodes' is a single value"]),
    ("  link.bandwidth", "  nodes, batch_size: [[4, 32], [2]]", 14, ["[2]", "2 values", "nodes, batch_size"]),
    ("  link.bandwidth", "  nodes: [2, 4]\n  nodes, batch_size: [[4, 32]]", 15, ["'nodes' stands in two axes"]),
    ("  link.bandwidth", "  - nodes", 13, ["not a mapping", "KEY: [VALUE, …]"]),
    ("matrix:", "exclude: [{link.bandwidth: 3 Mbit/s}]\nmatrix:", 13, ["matches no cell", "'1 Mbit/s', '10 Mbit/s'"]),
    ("matrix:", "exclude: [{link.latency: 1 ms}]\nmatrix:", 13, ["matches no cell", "no axis"]),
    ("matrix:", "exclude: [{linc.bandwidth: 1 ms}]\nmatrix:", 13, ["unknown key 'linc.bandwidth'"]),
    ("matrix:", "exclude: {link.bandwidth: 1 Mbit/s}\nmatrix:", 13, ["not a list"]),
    ("matrix:", "exclude: [bandwidth]\nmatrix:", 13, ["'bandwidth' is not a mapping"]),
    ("matrix:", "exclude: [{model: mlp}]\nmatrix:", 13, ["leaves no cell"]),
]


def replace(beginning: str, text: str) -> str:
    lines = GOOD.splitlines()
    index = next(i for i, line in enumerate(lines) if line.startswith(beginning))
    return "\n".join([*lines[:index], *([text] if text else []), *lines[index + 1 :]]) + "\n"


def problems_of(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("algorithm: async", ["depends on the link, and with it the accuracy"]),
        ("algorithm: {local-sgd: {overlap: auto}}", ["as soon as the link has brought it"]),
        ("algorithm: {every-step: {bucket: auto}}", ["give a size"]),
        ("algorithm: ring\nlimit: {time: 10 s}", ["limit.time", "limit samples"]),
        ("algorithm: ring\nlauncher: external", ["launcher 'external' cannot start"]),
    ],
)
def test_what_virtual_nodes_cannot_do_is_said_at_their_line(tmp_path: Path, lines: str, words: list[str]) -> None:
    path = tmp_path / "virtual.yaml"
    start = "name: virtual\nnodes: 4\nlink: unshaped\nmodel: mlp\ncompute: {virtual: true}\n"
    path.write_text(f"{start}{lines}\n")
    (problem,) = problems_of(path)
    assert problem.startswith(f"{path}:5: ") and all(word in problem for word in words), problem


def test_the_base_of_all_these_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    assert len(load_experiment(path).points) == 2


@pytest.mark.parametrize(("beginning", "text", "line", "words"), REPLACED, ids=[row[1] or row[0] for row in REPLACED])
def test_one_mistake_one_message_with_its_line(
    tmp_path: Path, beginning: str, text: str, line: int, words: list[str]
) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(replace(beginning, text))
    problems = problems_of(path)
    relevant = [problem for problem in problems if problem.startswith(f"{path}:{line}: ")]
    assert any(all(word in problem for word in words) for problem in relevant), problems
    if not text.startswith("nmae"):  # that one lacks a name as well
        assert len(problems) == 1, problems
    assert not any("Traceback" in problem or "\n" in problem for problem in problems)


SYNTAX = [
    ("", None, ["empty", "name, nodes, link and model"]),
    ("# only a comment\n", None, ["empty"]),
    ("just text\n", 1, ["'just text' is not a mapping"]),
    ("- a\n- b\n", 1, ["not a mapping"]),
    ("a: [1\nb: 2\n", 2, ["not valid YAML"]),
    ("a: b: c\n", 1, ["mapping values are not allowed", "quotes"]),
    ("name: x\n\tnodes: 4\n", 2, ["not valid YAML", "not tabs"]),
    ("name: x\n---\nname: y\n", 2, ["one experiment a file"]),
    ("name: *missing\n", 1, ["undefined alias"]),
    ("name: &a [*a]\n", 1, ["alias contain itself"]),
    ("name: x\x07\n", 1, ["U+0007"]),
    ("[" * 600, None, ["nested too deeply"]),
    ("name: !!python/object/apply:os.system [ls]\n", 1, ["tag", "not allowed"]),
    ("name: x\n? [a, b]\n: 1\n", 2, ["a list or a mapping cannot be a key"]),
    ("name: x\n<<: 3\n", 2, ["'<<' takes a mapping"]),
    ("name: " + "9" * 300_000, None, ["larger than"]),
    (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{n}: &{n} [{', '.join(f'*{o}' for _ in range(10))}]\n" for o, n in zip("abcdef", "bcdefg", strict=True)
        ),
        None,
        ["more than 100000 values"],
    ),
]


@pytest.mark.parametrize(("text", "line", "words"), SYNTAX, ids=[row[0][:20] for row in SYNTAX])
def test_what_is_no_experiment_at_all(tmp_path: Path, text: str, line: int | None, words: list[str]) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(text)
    problems = problems_of(path)
    place = f"{path}:{line}: " if line else str(path)
    assert any(place in problem and all(word in problem for word in words) for problem in problems), problems


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").write_text(GOOD)
    (tmp_path / "zeros.yaml").write_bytes(b"name: x\0\0\0")
    (tmp_path / "latin.yaml").write_bytes(b"name: x\nmodel: caf\xe9\n")
    (tmp_path / "utf16.yaml").write_text(GOOD, encoding="utf-16")
    for name, words in {
        "experment.yaml": ["no such file", "Did you mean", "experiment.yaml"],
        "nowhere/x.yaml": ["no such file", "no folder"],
        "": ["is a folder"],
        "zeros.yaml": ["not a text file", "NUL"],
        "latin.yaml": ["latin.yaml:2", "0xe9", "UTF-8"],
        "utf16.yaml": ["not a text file"],
        "a\0b.yaml": ["cannot be read"],
        "x" * 300 + ".yaml": ["cannot be read"],
    }.items():
        (problem,) = problems_of(tmp_path / name)
        assert all(word in problem for word in words), problem
    (problem,) = problems_of(Path("/dev/null"))
    assert "no regular file" in problem


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert load_experiment(path).name == "good"


def test_all_problems_of_a_file_at_once_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(
        GOOD.replace("nodes: 4", "nodes: 0")
        .replace("10 Mbit/s, l", "10, l")
        .replace("lr:", "rl:")
        .replace("  link.b", "  link.x")
    )
    problems = problems_of(path)
    assert [problem.split(":")[1] for problem in problems] == ["2", "3", "9", "14"], problems


def test_a_broken_value_is_said_even_where_the_matrix_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(GOOD.replace("{bandwidth: 10 Mbit/s, ", "{bandwidth: 10 Mbps, "))
    (problem,) = problems_of(path)
    assert f"{path}:3: " in problem and "Mbps" in problem


def test_a_link_without_a_bandwidth(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text("name: x\nnodes: 2\nmodel: mlp\nlink: {latency: 5 ms}\n")
    (problem,) = problems_of(path)
    assert f"{path}:4: " in problem and "needs a bandwidth" in problem and "link: unshaped" in problem
    path.write_text("name: x\n")
    assert [problem.split("'")[1] for problem in problems_of(path)] == ["nodes", "link", "model"]


OVERRIDES = [
    ("nodes", ["--set nodes", "KEY=VALUE"]),
    ("=4", ["KEY=VALUE"]),
    ("nodes=0", ["--set nodes=0: nodes: 0 is out of range"]),
    ("nods=2", ["unknown key 'nods'", "Did you mean 'nodes'?"]),
    ("link.bandwidth=5", ["--set link.bandwidth=5: ", "has no unit"]),
    ("link.bandwidth=[5 Mbit/s, 6]", ["6 has no unit"]),
    ("link.bandwith=5 Mbit/s", ["Did you mean 'link.bandwidth'?"]),
    ("optimizer.momentun=1", ["--set optimizer.momentun=1", "Did you mean 'momentum'?"]),
    ("optimizer.adam.lr=1", ["--set optimizer.adam.lr=1", "optimizer 'sgd' has no option 'adam'"]),
    ("model=[mlp", ["not valid YAML"]),
    ("target.accuracy=95", ["--set target.accuracy=95", "{accuracy: 0.95}"]),
    ("matrix.nodes=[1]", ["unknown key 'matrix.nodes'"]),
    ("nodes, batch_size=[[1, 2]]", ["no axis 'nodes, batch_size'"]),
    ("repeats=x", ["--set repeats=x", "whole number"]),
    ("name=a b", ["--set name=a b", "letters"]),
    ("matrix={x: [1]}", ["--set matrix", "unknown key 'x'"]),
    ("exclude=[{nodes: 3}]", ["--set exclude", "matches no cell"]),
]


@pytest.mark.parametrize(("override", "words"), OVERRIDES, ids=[row[0] for row in OVERRIDES])
def test_mistakes_on_the_command_line_name_it(tmp_path: Path, override: str, words: list[str]) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(GOOD)
    (problem,) = problems_of(path, override)
    assert problem.startswith(f"--set {override}: ") and all(word in problem for word in words), problem


def test_too_many_problems_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "exp.yaml"
    path.write_text(GOOD + "".join(f"key{i}: 1\n" for i in range(200)))
    problems = problems_of(path)
    assert len(problems) == 51 and "150 more" in problems[-1]


def test_too_many_cells_are_refused_before_they_are_made(tmp_path: Path) -> None:
    values = ", ".join(str(i) for i in range(1, 1001))
    path = tmp_path / "exp.yaml"
    path.write_text(GOOD + f"  batch_size: [{values}]\n  accumulate: [{values}]\n")
    assert any("2000000 cells" in problem for problem in problems_of(path))


def test_a_plugin_that_fails_is_said_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('on fire')\n")
    (tmp_path / "odd.py").write_text(
        "from bwbench.base.registry import COMPRESSIONS\nfrom bwbench.experiment.config import ComponentConfig\n\n\n"
        "class Odd:\n    Config = ComponentConfig\n\n\nCOMPRESSIONS.register('odd-test', Odd, 'no codec at all')\n"
    )
    path = tmp_path / "exp.yaml"
    path.write_text(GOOD + "plugins: [broken.py]\n")
    (problem,) = problems_of(path)
    assert f"{path}:15" in problem and "broken.py:1 failed on import" in problem and "on fire" in problem
    path.write_text(GOOD.replace("compression: none", "compression: odd-test") + "plugins:\n  - odd.py\n")
    assert any("base class" in problem or "cannot" in problem for problem in problems_of(path))
