from __future__ import annotations

import json
import socket

import pytest

from bwbench.base.errors import WorkerError
from bwbench.training.loop import recorder as channel_module
from bwbench.training.loop.recorder import Channel


@pytest.fixture
def ends():
    parent, worker = socket.socketpair()
    yield parent, Channel(worker)
    parent.close()
    worker.close()


def lines(parent):
    return [json.loads(line) for line in parent.recv(65536).splitlines()]


def test_awaited_phases_wait_for_the_answer(ends):
    parent, channel = ends
    parent.sendall(b'{"ok":true}\n{"ok":')  # the second answer comes in two pieces
    channel.phase("training")
    parent.sendall(b"true}\n")
    channel.phase("drained")
    channel.phase("ready")  # nobody waits for this one
    assert [event["phase"] for event in lines(parent)] == ["training", "drained", "ready"]


def test_events_go_out_as_they_are_with_null_for_what_json_lacks(ends):
    parent, channel = ends
    channel.send({"event": "eval", "mean": {"loss": float("nan")}})
    assert lines(parent) == [{"event": "eval", "mean": {"loss": None}}]


def test_no_answer_is_an_error_within_the_limit(ends, monkeypatch):
    parent, _ = ends
    monkeypatch.setattr(channel_module, "ANSWER_LIMIT_S", 0.05)
    another, worker = socket.socketpair()
    with another, worker, pytest.raises(WorkerError, match="not answered"):
        Channel(worker).phase("training")


def test_a_refusal_and_a_closed_channel_are_errors(ends):
    parent, channel = ends
    parent.sendall(b'{"ok":false}\n')
    with pytest.raises(WorkerError, match="did not agree"):
        channel.phase("training")
    parent.shutdown(socket.SHUT_WR)
    with pytest.raises(WorkerError, match="closed"):
        channel.phase("drained")


def test_a_parent_that_is_gone_does_not_stop_training(ends):
    parent, channel = ends
    parent.close()
    channel.send({"event": "eval"})
    channel.send({"event": "eval"})


def test_without_a_parent_nothing_waits(monkeypatch):
    monkeypatch.delenv(channel_module.VARIABLE, raising=False)
    channel = Channel.from_environment()
    channel.phase("training")
    channel.send({"event": "end"})
