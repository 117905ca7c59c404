from __future__ import annotations

import threading

import pytest

from bwbench.methods.collectives.transport import Meter, MeterReading


def test_codec_work_of_two_threads_counts_once_where_it_overlaps():
    reading = MeterReading(0, ((1.0, 3.0), (2.0, 4.0), (6.0, 7.0), (0.0, 1.5)))
    assert reading.codec_s_within(0.0, 10.0) == pytest.approx(5.0)
    assert reading.codec_s_within(3.5, 6.5) == pytest.approx(1.0)
    assert reading.codec_s_within(4.0, 6.0) == 0.0


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
