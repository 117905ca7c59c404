"""``bwbench init``: the experiment that it writes can be planned, and nothing is ever written over."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.base.examples import example_file, example_names
from bwbench.base.registry import DATASETS
from bwbench.cli.init.first_experiment import Answers, copied, text_of, write
from bwbench.cli.main import _run
from bwbench.experiment.config import load_experiment


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_without_a_word_it_has_defaults_that_can_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["init"]) == 0
    said = capsys.readouterr()
    assert said.out == "my_question.yaml\n"
    assert "bwbench run my_question.yaml" in said.err and "bwbench plot results/my_question" in said.err
    assert "data fetch" not in said.err
    experiment = load_experiment(Path("my_question.yaml"))
    first = experiment.points[1].config
    assert (first.nodes, first.link.bandwidth_bps, first.dataset.source.name) == (4, 10e6, "digits")
    assert _run(["plan", "my_question.yaml"]) == 0


def test_options_say_what_is_in_it() -> None:
    assert _run(["init", "experiment", "office", "--nodes", "3", "--link", "cable", "--model", "mlp"]) == 0
    config = load_experiment(Path("office.yaml")).points[1].config
    assert (config.nodes, config.model.name) == (3, "mlp")
    assert config.link.up_bps and config.link.up_bps != config.link.down_bps


def test_one_wifi_can_be_asked_for_and_the_file_says_how() -> None:
    assert _run(["init", "experiment", "wifi", "--medium", "shared"]) == 0
    assert load_experiment(Path("wifi.yaml")).points[1].config.link.medium == "shared"
    assert _run(["init", "experiment", "cables"]) == 0
    assert load_experiment(Path("cables.yaml")).points[1].config.link.medium == "switched"
    assert (
        "medium: switched}  # 'latency' is one way; 'medium: shared' is one WiFi\n" in Path("cables.yaml").read_text()
    )


def test_slow_motion_is_there_to_be_switched_on() -> None:
    assert _run(["init"]) == 0
    file = Path("my_question.yaml")
    assert not load_experiment(file).points[1].config.dilation > 1
    file.write_text(file.read_text().replace("# dilation: auto", "dilation: auto"))
    assert load_experiment(file).points[1].config.dilation >= 1


def test_data_that_are_not_here_are_named_with_the_command_that_brings_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BWBENCH_DATA", str(tmp_path / "nowhere"))
    assert _run(["init", "--data", "fashion-mnist", "--to", "here.yaml"]) == 0
    assert "bwbench data fetch fashion-mnist" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in DATASETS.names() if DATASETS.load(name).metrics])
def test_there_is_an_experiment_for_every_data_set(name: str) -> None:
    write(Path("x.yaml"), text_of("x", Answers(data=name), asking=False))


@pytest.mark.parametrize("link", ["1 Mbit/s", "wifi-802.11n-good", "starlink"])
def test_links_have_a_bandwidth_or_a_name(link: str) -> None:
    experiment = write(Path("x.yaml"), text_of("x", Answers(link=link), asking=False))
    assert experiment.points[1].config.link.shaped


def test_a_link_of_ones_own_and_odd_names_are_quoted() -> None:
    Path("mine, and yours.yaml").write_text("office: {link: {bandwidth: 3 Mbit/s}}\n")
    text = text_of("123", Answers(link="mine, and yours.yaml:office"), asking=False)
    experiment = write(Path("x.yaml"), text)
    assert experiment.name == "123"
    assert experiment.points[1].config.link.bandwidth_bps == 3e6


@pytest.mark.parametrize("name", example_names())
def test_examples_are_copied_under_a_name(name: str) -> None:
    assert _run(["init", "experiment", "mine", "--example", name]) == 0
    text = Path("mine.yaml").read_text()
    assert text == copied(name, "mine") != example_file(name).read_text()
    assert load_experiment(Path("mine.yaml")).name == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "251"], "'251' is not a number from 2 to 250"),
        (["--link", "cabel"], "Did you mean 'cable'?"),
        (["--link", "10"], "'10' has no unit"),
        (["--link", "10 Mbps"], "'Mbps' is not a unit of bandwidth"),
        (["--link", "cable", "--latency", "5 ms"], "the link 'cable' has its own"),
        (["--latency", "soon"], "'soon' is not a duration"),
        (["--medium", "wifi"], "'wifi' is neither 'switched' (a link for each node) nor 'shared' (one WiFi)"),
        (["--link", "cable", "--medium", "shared"], "--medium goes with a bandwidth; the link 'cable' has its own"),
        (["--data", "digit"], "Did you mean 'digits'?"),
        (["--model", "cnm"], "Did you mean 'cnn'?"),
        (["--model", "char-transformer"], "does language-modelling"),
        (["--example", "wifi"], "no example is called 'wifi'"),
        (["--example", "wifi_10mbps", "--nodes", "3"], "leave --nodes out"),
        (["experiment", "a/b"], "is no name for an experiment"),
        (["experiment", ".hidden"], "is no name for an experiment"),
        (["experiment", "x", "--to", "nowhere/x.yaml"], "there is no folder nowhere"),
        (["kodec", "x"], "Did you mean 'codec'?"),
        (["codec"], "it needs a name"),
        (["codec", "x", "--nodes", "3"], "--nodes is about an experiment"),
    ],
)
def test_mistakes_are_one_clear_error_and_leave_nothing(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["init", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and said in captured.err
    assert captured.out == "" and not list(Path().iterdir())


def test_what_is_there_is_never_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_question.yaml").write_text("mine")
    Path("dangling.yaml").symlink_to("nowhere")
    for arguments in ([], ["--to", "my_question.yaml"], ["experiment", "dangling"]):
        assert _run(["init", *arguments]) == 2
        assert "is there already, and is left as it is" in capsys.readouterr().err
    assert Path("my_question.yaml").read_text() == "mine" and not Path("nowhere").exists()
    with pytest.raises(ConfigError, match="there already"):  # made by somebody else in the meantime
        write(Path("my_question.yaml"), "name: x")
    assert Path("my_question.yaml").read_text() == "mine"


def test_on_a_terminal_it_asks_and_asks_again(tmp_path: Path) -> None:
    answers = ("nodes train", "3"), ("Their link", "cabel"), ("Their link", "cable"), ("Data set", ""), ("Model", "")
    code, said = on_a_terminal(["init"], tmp_path, *answers)
    assert code == 0, said
    assert "Did you mean 'cable'?" in said
    assert "one way?" not in said, "a link with a name has its own latency"
    assert load_experiment(tmp_path / "my_question.yaml").points[1].config.nodes == 3


def test_what_options_say_is_not_asked(tmp_path: Path) -> None:
    given = ["init", "--nodes", "2", "--data", "digits", "--model", "mlp"]
    code, said = on_a_terminal(given, tmp_path, ("Their link", "5 Mbit/s"), ("one way?", "20 ms"),
                               ("share one WiFi", "wifi"), ("share one WiFi", "shared"))  # fmt: skip
    assert code == 0, said
    assert "nodes train" not in said
    link = load_experiment(tmp_path / "my_question.yaml").points[1].config.link
    assert (link.bandwidth_bps, link.latency_s, link.medium) == (5e6, 0.02, "shared")
    code, said = on_a_terminal(["init", "experiment", "other", "--yes"], tmp_path)
    assert code == 0 and "nodes train" not in said


def test_ctrl_c_while_it_asks_leaves_nothing(tmp_path: Path) -> None:
    code, _ = on_a_terminal(["init"], tmp_path, ("nodes train", "3"), ("Their link", "\x03"))
    assert code == 130
    assert not list(tmp_path.iterdir())


def on_a_terminal(arguments: list[str], folder: Path, *answers: tuple[str, str]) -> tuple[int, str]:
    """Exit status of ``bwbench``, and all that it says, on a terminal of its own.

    Args:
        answers: a part of what it asks, and what is typed then; in this order.
    """
    ours, its = pty.openpty()
    # Its controlling terminal as well, so that Ctrl-C typed there is SIGINT to the process.
    command = ["setsid", "--ctty", sys.executable, "-m", "bwbench.cli.main", *arguments]
    said, answered = "", 0
    with subprocess.Popen(command, cwd=folder, stdin=its, stdout=its, stderr=its) as process, ended(process):
        os.close(its)
        for question, answer in [*answers, ("", "")]:
            while not question or question not in said[answered:]:
                try:
                    part = os.read(ours, 4096)
                except OSError:  # nobody holds the other end any more
                    break
                said += part.decode(errors="replace")
            if not question:
                break
            answered = len(said)
            # input() drops the KeyboardInterrupt of a Ctrl-C that comes before it reads (CPython: PyErr_Clear after it
            # has flushed stderr).
            until_it_sleeps(process.pid)
            os.write(ours, f"{answer}\n".encode())
        code = process.wait(60)
    os.close(ours)
    return code, said


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A test that fails, by its time limit as well, does not wait for what it has started."""
    try:
        yield
    finally:
        process.kill()  # nothing happens where it has ended


def until_it_sleeps(pid: int) -> None:
    """Return when a process waits for something: asleep in two looks, and no processor time between them.

    Raises TimeoutError where it has not come to that within ten seconds; of one that has ended there is nothing to see.
    """
    before = None
    for _ in range(200):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        now = words[0], words[11], words[12]  # state, user and system time
        if now[0] == "Z" or (now == before and now[0] == "S"):
            return
        before = now
        time.sleep(0.05)
    raise TimeoutError(f"process {pid} is still busy: {before}")
