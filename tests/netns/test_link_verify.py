"""``bwbench link verify`` on real namespaces."""

from __future__ import annotations

import json

import pytest

from tests.netns.link_command import verify

pytestmark = [pytest.mark.netns]


def test_json_holds_the_contract() -> None:
    result = verify("--json", bandwidth="10 Mbit/s", latency="2.5 ms", nodes="2", tolerance="0.5")
    content = json.loads(result.stdout)
    assert result.return_value == 0
    assert content["verdict"] == "ok"
    assert content["backend"] in ("relay", "netem")
    assert {(pair["src"], pair["dst"]) for pair in content["pairs"]} == {(0, 1), (1, 0)}
    for pair in content["pairs"]:
        assert pair["asked_bps"] == 10e6
        assert pair["asked_rtt_s"] == pytest.approx(0.005, abs=0.0005)
        assert pair["asked_goodput_bps"] == pytest.approx(9.72e6, rel=0.01)
        assert pair["achieved_goodput_bps"] > 0 and pair["achieved_rtt_s"] > 0
    assert content["applied"]["bandwidth_bps"] == 10e6


def test_the_table_names_the_back_end_and_why() -> None:
    result = verify(bandwidth="10 Mbit/s", nodes="2", backend="relay", tolerance="0.5")
    assert "relay: asked for" in result.stdout
    assert "asked" in result.stdout and "applied" in result.stdout and "achieved" in result.stdout
    assert "0 > 1" in result.stdout
    assert "measuring" in result.stderr and "measuring" not in result.stdout


def test_out_of_tolerance_is_exit_3_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWBENCH_RELAY_FAULT", "rate=0.1")
    result = verify("--json", bandwidth="10 Mbit/s", nodes="2", backend="relay")
    assert result.return_value == 3
    assert json.loads(result.stdout)["verdict"] == "out-of-tolerance"
    assert "node 0 to node 1: goodput is" in result.stderr
