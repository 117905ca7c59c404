"""Messages between processes: whole ones come out, in order, however the stream is cut; limits hold."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bwbench.base.messages import LineBuffer, MessageReader, encode, first_line

MESSAGES = [{"a": 1}, {"text": "line\nbreak", "none": None}, {}, {"long": "x" * 70_000}]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reads, writes = os.pipe()
    yield reads, writes
    for end in (reads, writes):
        try:
            os.close(end)
        except OSError:
            pass


def test_messages_are_taken_as_they_come(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    reader = MessageReader(reads)
    assert reader.ready() == [] and not reader.has_ended
    os.write(writes, b'{"a": 1}\n{"b": 2}\n{"c"')
    assert reader.ready(1.0) == [{"a": 1}, {"b": 2}]
    os.write(writes, b": 3}\n")
    os.close(writes)
    assert reader.ready(1.0) == [{"c": 3}]
    assert reader.ready(1.0) == [] and reader.has_ended


@given(st.lists(st.integers(0, 200), max_size=8))
def test_lines_come_out_whole_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = b"".join(map(encode, MESSAGES[:3])) + b"begun"
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    buffer = LineBuffer()
    lines = [line for begin, end in zip(edges, edges[1:], strict=False) for line in buffer.feed(stream[begin:end])]
    assert [line + b"\n" for line in lines] == [encode(message) for message in MESSAGES[:3]]


def test_a_line_without_an_end_fills_no_memory() -> None:
    buffer = LineBuffer(most_bytes=10)
    assert buffer.feed(b"x" * 11) == [] and buffer.has_dropped
    assert buffer.feed(b"\nshort\n") == [b"", b"short"]
    endless = LineBuffer(most_bytes=None)
    assert endless.feed(b"x" * 2_000_000) == [] and not endless.has_dropped


def test_what_is_no_object_is_passed_over(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b'nonsense\n[1, 2]\n\n\xff\xfe\n{"good": true}\n')
    assert MessageReader(pipe[0]).ready(1.0) == [{"good": True}]


@pytest.mark.parametrize("limit_s", [None, 5.0])
def test_one_message_at_a_time_over_sockets_blocking_or_not(limit_s: float | None) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(limit_s is None)
        reader = MessageReader(here.fileno())
        there.sendall(b"".join(map(encode, MESSAGES)))
        assert [reader.receive(limit_s) for _ in MESSAGES] == MESSAGES
        there.close()
        assert reader.receive(limit_s) is None and reader.has_ended


def test_waiting_has_an_end(pipe: tuple[int, int]) -> None:
    begun_s = time.monotonic()
    os.write(pipe[1], b'{"begun": ')
    with pytest.raises(TimeoutError, match="0.05 s"):
        MessageReader(pipe[0]).receive(0.05)
    with pytest.raises(TimeoutError):
        first_line(pipe[0], 0.05)
    assert time.monotonic() - begun_s < 5.0


def test_everything_that_is_there_is_more_than_one_read_brings(pipe: tuple[int, int]) -> None:
    for number in range(3):
        os.write(pipe[1], encode({"number": number, "filling": "x" * 20_000}))
    os.close(pipe[1])
    reader = MessageReader(pipe[0])
    assert [message["number"] for message in reader.all_ready(1.0)] == [0, 1, 2]
    assert reader.has_ended


def test_a_peer_that_closes_without_having_read_is_an_end() -> None:
    here, there = socket.socketpair()
    with here:
        here.sendall(b"unread")
        there.close()
        assert MessageReader(here.fileno()).receive(1.0) is None


def test_the_first_line_takes_not_a_byte_more(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"first\nrest")
    assert first_line(pipe[0]) == b"first\n"
    assert os.read(pipe[0], 10) == b"rest"
    os.write(pipe[1], b"x" * 20)
    assert first_line(pipe[0], 1.0, most_bytes=8) == b"x" * 8
    os.close(pipe[1])
    assert first_line(pipe[0]) == b"x" * 12
