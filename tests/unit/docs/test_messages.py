"""Every message of an error has its cause in docs/troubleshooting.md, and is found there by its words."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import load_experiment

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "docs" / "program"))
from error_messages import CAUSE, GAP, all_messages, files_under, messages, with_messages  # noqa: E402

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
GOOD = "name: a\nnodes: 2\nlink: {bandwidth: 10 Mbit/s}\nmodel: logistic\ndataset: digits\nalgorithm: ring\n"


def test_every_file_with_messages_has_a_cause() -> None:
    causes = [found[1].split() for found in CAUSE.finditer(PAGE)]
    placed = [file for files in files_under(causes) for file in files]
    assert sorted(placed) == sorted(all_messages()) and len(placed) > 120
    assert all(files for files in files_under(causes)), "a cause without messages"


def test_the_page_holds_every_message() -> None:
    shown = " ".join(with_messages(PAGE).split())
    missing = [text for texts in all_messages().values() for text in texts if text not in shown]
    assert missing == []


def test_a_cause_is_a_section_of_its_own() -> None:
    """Search leads to a heading: two causes below one would be one answer."""
    for section in re.split(r"^#+ .*$", PAGE, flags=re.M):
        assert len(CAUSE.findall(section)) <= 1


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("nodes: 2", "nodes: two"),
        GOOD.replace("name: a", "name: a/b"),
        GOOD.replace("algorithm: ring", "algorithm: rin"),
        GOOD.replace("nodes: 2", "nodes: 1"),
        GOOD + "hosts: 7\n",
        GOOD + "launcher: ssh\n",
        GOOD + "plugins: [nowhere.py]\n",
        GOOD + "nodes: 3\n",
        GOOD + "exclude: [{algorithm: ddp}]\n",
        "- a\n",
        "",
    ],
    ids=range(11),
)
def test_what_a_user_meets_is_among_them(tmp_path: Path, text: str) -> None:
    """The collector reads source; this asks it for messages that the program really gives."""
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_experiment(file)
    known = [
        re.compile(".*".join(re.escape(part) for part in known.split(GAP)), re.S)
        for texts in all_messages().values()
        for known in texts
    ]
    for problem in refused.value.problems:
        said = " ".join(problem.message.split())
        assert any(pattern.search(said) for pattern in known), said


def test_a_new_message_needs_a_cause() -> None:
    causes = [found[1].split() for found in CAUSE.finditer(PAGE)]
    with pytest.raises(ValueError, match="no cause for the messages of base/yaml_document.py"):
        files_under([[name for name in cause if name != "base/yaml_document.py"] for cause in causes])
    with pytest.raises(ValueError, match="nowhere.py has no messages"):
        files_under([*causes, ["nowhere.py"]])


def test_gaps_stand_for_what_is_put_in() -> None:
    texts = messages("experiment/config/hosts.py")
    assert any("is there twice; 'workers: 2' starts two ranks on one host" in text for text in texts)
    assert all("{" not in text or "{address" in text for text in texts)
