"""Jitter on a real interface, whose kernel cannot let a delay wander."""

from __future__ import annotations

import pytest

from bwbench.base.errors import ConfigError
from bwbench.cli.link.real_interface import of_a_kernel
from bwbench.network.interface.shaping_request import check_link
from bwbench.network.link import Link


@pytest.mark.parametrize(
    "asked", [{"bandwidth": "10 Mbit/s", "latency": "5 ms", "jitter": "1 ms"}, {"preset": "dsl"}, {"preset": "cable"}]
)
def test_a_jitter_of_no_kind_is_the_independent_one_and_that_is_said_once(
    asked: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    link = of_a_kernel(Link.model_validate(asked))
    assert link == Link.model_validate({**asked, "jitter_kind": "independent"})
    assert of_a_kernel(link) == link
    assert capsys.readouterr().err.split() == (
        "note: the jitter is independent: netem draws every frame's delay anew, and cannot let it wander".split()
    )
    check_link(link, netem=True)


def test_one_that_was_asked_to_wander_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"bandwidth": "10 Mbit/s", "jitter": "1 ms", "jitter_kind": "correlated"}
    link = of_a_kernel(Link.model_validate(asked))
    assert capsys.readouterr().err == ""
    with pytest.raises(ConfigError, match="add --jitter-kind independent"):
        check_link(link, netem=True)
