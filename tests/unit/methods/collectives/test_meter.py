from __future__ import annotations

import threading
import time

import pytest

from bwbench.base import emulated_time
from bwbench.methods.collectives.transport import Meter, MeterReading


def test_codec_work_of_two_threads_counts_once_where_it_overlaps():
    reading = MeterReading(0, ((1.0, 3.0), (2.0, 4.0), (6.0, 7.0), (0.0, 1.5)))
    assert reading.codec_s_within(0.0, 10.0) == pytest.approx(5.0)
    assert reading.codec_s_within(3.5, 6.5) == pytest.approx(1.0)
    assert reading.codec_s_within(4.0, 6.0) == 0.0


def test_codec_work_on_what_is_shrunk_counts_as_that_on_the_whole(monkeypatch):
    now = {"s": 100.0, "computed_s": 0.0}

    def compute(seconds):
        now["s"] += seconds
        now["computed_s"] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now["s"])
    monkeypatch.setattr(time, "thread_time", lambda: now["computed_s"])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.update(s=now["s"] + seconds))
    emulated_time.dilate(1.0, work=4.0)
    try:
        emulated_time.catch_up()
        meter = Meter()
        compute(0.5)
        with meter.codec():
            compute(0.25)
        compute(0.5)
        emulated_time.catch_up()
    finally:
        emulated_time.dilate(1.0)
    assert meter.take().codec_intervals == ((100.5, 101.5),)
    assert now["s"] == 102.0


def test_bytes_from_several_threads():
    meter = Meter()

    def send():
        for _ in range(1000):
            meter.sent(3)
            with meter.codec():
                pass

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reading = meter.take()
    assert reading.payload_bytes == 12_000
    assert len(reading.codec_intervals) == 4000
    assert meter.take() == MeterReading(0, ())
