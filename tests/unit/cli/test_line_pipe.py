"""What nodes print, on its way to our own output."""

from __future__ import annotations

import os
import time

import pytest

from bwbench.cli.link.line_pipe import LinePipe, Outlet


def test_a_reader_that_stands_still_is_waited_for_until_the_limit() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb", buffering=0) as stream:
        outlet = Outlet(stream)
        outlet.until_s = time.monotonic() + 0.3
        outlet.write(bytes(1 << 20))
        assert 0.0 <= time.monotonic() - outlet.until_s < 5.0
        os.close(read)
        outlet.until_s = None
        with pytest.raises(BrokenPipeError):
            outlet.write(b"x")


def test_all_of_it_arrives_where_somebody_reads() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader, os.fdopen(write, "wb") as stream:
        pipe = LinePipe(Outlet(stream), b"[0] ")
        os.write(pipe.write_fd, b"a" * 9_000 + b"\nno end")
        os.close(pipe.write_fd)
        assert pipe.pass_on()
        pipe.finish()
        stream.close()
        assert reader.read() == b"[0] " + b"a" * 9_000 + b"\n[0] no end\n"
