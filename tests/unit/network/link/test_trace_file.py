"""Trace files: three formats, what lies between their lines, and real traces against their published figures."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import statistics
from pathlib import Path

import pytest
from pydantic import ValidationError

from bwbench.base.errors import ConfigError
from bwbench.network.link.trace_file import load_trace, read_trace
from bwbench.network.link.variation import Trace

FRAMES = 1514 / 1448  # bytes of frames to a byte of TCP
PACKET_BITS = 1514 * 8


def write(tmp_path: Path, content: str | bytes, name: str = "trace") -> str:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def test_wifi_lines_are_goodput_from_stamp_to_stamp(tmp_path):
    file = write(tmp_path, "# recorded at home\n0.0\t10\n1.0\t20.5\n\n2.5\t0\n3.5\t4e1\n")
    found = read_trace(Trace(file=file))
    assert (found.format, found.measures, found.notes) == ("wifi", "tcp-goodput", ())
    assert list(found.rates.times_s) == [0, 1, 2.5, 3.5, 4.5]
    assert list(found.rates.rates_bps) == pytest.approx([10e6 * FRAMES, 20.5e6 * FRAMES, 0, 40e6 * FRAMES])


def test_wifi_lines_may_be_rates_of_the_link_itself(tmp_path):
    file = write(tmp_path, "0\t10\n1\t20\n")
    assert load_trace(Trace(file=file, measures="link")).mean_bps == 15e6


def test_stamps_that_do_not_rise_are_replaced_by_the_number_of_the_line(tmp_path):
    file = write(tmp_path, "0\t1\n1\t2\n5.2\t3\n5.2\t4\n4\t5\n5\t6\n")
    found = read_trace(Trace(file=file, format="wifi", measures="link"))
    assert list(found.rates.times_s) == [0, 1, 2, 3, 4, 5, 6]
    assert list(found.rates.rates_bps) == [1e6, 2e6, 3e6, 4e6, 5e6, 6e6]
    assert "do not always rise" in found.notes[0]


def test_one_missing_line_is_held_over_and_a_longer_gap_is_an_outage(tmp_path):
    file = write(tmp_path, "10\t1\n11\t2\n12\t3\n14.2\t4\n15.2\t5\n20\t6\n21\t7\n")
    found = read_trace(Trace(file=file, measures="link"))
    trace = found.rates
    assert [trace.rate_at(t) for t in (0, 1, 2, 4.1, 4.3, 5.3, 6.1, 6.3, 9.9, 10.1, 11.9)] == pytest.approx(
        [1e6, 2e6, 3e6, 3e6, 4e6, 5e6, 5e6, 0, 0, 6e6, 7e6]
    )
    assert found.notes == ("1 gap(s) without a measurement, 3.8 s in all, count as outages",)
    assert trace.duration_s == 12


def test_mahimahi_packets_leave_at_their_own_stamps(tmp_path):
    trace = load_trace(Trace(file=write(tmp_path, "2\n2\n5\n6\n10\n")))
    assert trace.duration_s == 0.010
    assert trace.mean_bps == pytest.approx(5 * PACKET_BITS / 0.010)
    start_s, leave_ms = 0.0, []
    for _ in range(7):
        start_s = trace.finish(start_s, PACKET_BITS)
        leave_ms.append(start_s * 1e3)
    assert leave_ms == pytest.approx([1.5, 2, 5, 6, 10, 11.5, 12])


def test_mahimahi_stamps_of_zero_close_the_round_before(tmp_path):
    trace = load_trace(Trace(file=write(tmp_path, "0\n3\n4\n")))
    assert trace.bits_between(0, 0.002) == 0
    assert trace.bits_between(0.003, 0.004) == pytest.approx(2 * PACKET_BITS)
    assert trace.duration_s == 0.004


def test_mahimahi_with_comments_reads_like_one_without(tmp_path):
    plain = load_trace(Trace(file=write(tmp_path, "1\n2\n4\n", "a")))
    commented = load_trace(Trace(file=write(tmp_path, "# packets\n1\r\n2\r\n\r\n4\r\n", "b"), format="mahimahi"))
    assert plain.times_s == commented.times_s and plain.rates_bps == commented.rates_bps


@pytest.mark.parametrize(
    ("header", "options", "bps"),
    [
        ("time_s,rate_mbit_s", {}, 8e6),
        ("seconds;Mbit/s", {}, 8e6),
        ("t_s\tthroughput (Mbps)", {}, 8e6),
        ("elapsed [s],down_kbps", {}, 8e3),
        ('"time_s","rx_bits_per_second"', {}, 8),
        ("timestamp_s,rx MB/s", {}, 64e6),
        ("time_s,KBps", {}, 64e3),
        ("time_s,rate", {"unit": "kB/s"}, 64e3),
        ("timeInSeconds,KilobytesPerSecond", {}, 64e3),
        ("elapsed time (secs),throughputMbps", {}, 8e6),
        ("zeit,rate", {"columns": "time_s,Mbit/s"}, 8e6),
        ("# none\n", {"columns": "time_s,megabits per second"}, 8e6),
        ("time_s,rate_mbit_s", {"unit": "Mbit/s"}, 8e6),
    ],
)
def test_csv_units_come_from_the_header_or_from_the_declaration(tmp_path, header, options, bps):
    mark = next((mark for mark in ";\t," if mark in header), ",")
    body = "".join(f"{t}{mark}{8000 if bps == 8 else 8}\n" for t in range(3))
    trace = load_trace(Trace(file=write(tmp_path, f"{header}\n{body}"), measures="link", **options))
    assert trace.mean_bps == pytest.approx(bps * (1000 if bps == 8 else 1))
    assert trace.duration_s == 3


def test_csv_of_camels_and_of_no_header_at_all(tmp_path):
    lines = "0,125000\n0.5,250000\n"
    named = write(tmp_path, f"timeInSeconds,BytesPerSecond\n{lines}")
    assert list(load_trace(Trace(file=named, measures="link")).rates_bps) == [1e6, 2e6]
    bare = write(tmp_path, lines)
    assert load_trace(Trace(file=bare, measures="link", columns="time_ms,B/s")).duration_s == 0.001
    refusals = {
        None: r"'0,125000' names no columns: say what they are, such as columns: 'time_s,bytes_per_s' \(--columns\)",
        "time_s": "does not name two columns",
        "time_s,rate": "no column says its unit of rate",
        "time,B/s": "column 'time' does not say its unit",
        "time_s,B/s,rtt_ms": "2 column",
    }
    for columns, message in refusals.items():
        with pytest.raises(ConfigError, match=message):
            load_trace(Trace(file=bare, measures="link", columns=columns))
    with pytest.raises(ConfigError, match="'columns' belongs to CSV traces"):
        load_trace(Trace(file=write(tmp_path, "0\t4\n1\t5\n"), columns="time_s,B/s"))


def test_csv_goodput_becomes_frames_and_milliseconds_seconds(tmp_path):
    file = write(tmp_path, "rtt_ms,time_ms,Mbit/s\n9,500,10\n9,1000,20\n")
    found = read_trace(Trace(file=file, measures="tcp-goodput"))
    assert found.format == "csv"
    assert found.rates.mean_bps == pytest.approx(15e6 * FRAMES)
    assert found.rates.duration_s == 1.0


def test_csv_column_chooses_among_several(tmp_path):
    file = write(tmp_path, "time_s,down_mbps,up_mbps\n0,10,1\n1,30,3\n")
    assert load_trace(Trace(file=file, measures="link", column="up_mbps")).mean_bps == 2e6
    with pytest.raises(ConfigError, match=r"more than one column may be the rate: down_mbps, up_mbps"):
        load_trace(Trace(file=file, measures="link"))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed_files_are_read_as_they_lie(tmp_path, compress):
    content = compress(b"0\t10\n1\t20\n")
    found = read_trace(Trace(file=write(tmp_path, content, "trace.packed")))
    assert found.rates.duration_s == 2
    assert found.sha256 == hashlib.sha256(content).hexdigest()


def test_start_begins_inside_the_trace_and_wraps(tmp_path):
    file = write(tmp_path, "0\t1\n1\t2\n2\t3\n")
    trace = load_trace(Trace(file=file, measures="link", start="1 s"))
    assert [trace.rate_at(t) for t in (0, 1, 2)] == [2e6, 3e6, 1e6]


def test_a_file_that_has_changed_is_not_the_one_that_was_planned(tmp_path):
    file = write(tmp_path, "0\t1\n1\t2\n")
    planned = Trace(file=file, sha256=read_trace(Trace(file=file)).sha256)
    assert load_trace(planned).duration_s == 2
    os.utime(file, ns=(1, 1))  # touched, not changed
    assert load_trace(planned).duration_s == 2
    write(tmp_path, "0\t1\n1\t3\n")
    with pytest.raises(ConfigError, match="has changed since it was planned"):
        load_trace(planned)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "csv"}, "has to say what it measures"),
        ({"format": "wifi", "unit": "Mbit/s"}, "'unit' belongs to 'format: csv'"),
        ({"format": "mahimahi", "column": "x"}, "'column' belongs to 'format: csv'"),
        ({"sha256": "123"}, "sha256"),
    ],
)
def test_declarations_that_contradict_themselves(given, message):
    with pytest.raises(ValidationError, match=message):
        Trace.model_validate({"file": "x", **given})


def real_traces(kind: str, pattern: str) -> list[Path]:
    folder = os.environ.get("BWBENCH_DATA")
    if not folder:
        pytest.skip("BWBENCH_DATA names no folder with real traces")
    files = sorted((Path(folder).expanduser() / "traces" / kind).glob(pattern))
    if not files:
        pytest.skip(f"there are no traces in {Path(folder) / 'traces' / kind}")
    return files


@pytest.mark.data
@pytest.mark.parametrize(  # means of means over the published files: one second a line, by its number
    ("place", "goodput_mbit_s"), [("cafe", 7.81), ("campus", 63.75), ("restr", 9.57), ("office", None)]
)
def test_wifi_traces_have_their_published_means(place, goodput_mbit_s):
    means = []
    for file in real_traces("wifi", f"wifi_{place}_*.txt"):
        found = read_trace(Trace(file=str(file)))
        lines = [float(line.split()[1]) for line in file.read_text().splitlines()]
        means.append(found.rates.mean_bps / FRAMES / 1e6)
        assert found.format == "wifi"
        assert found.rates.duration_s == pytest.approx(200, abs=0.1)
        assert means[-1] == pytest.approx(statistics.mean(lines), rel=0.01)
    if goodput_mbit_s is not None:
        assert statistics.mean(means) == pytest.approx(goodput_mbit_s, rel=0.01)


@pytest.mark.data
@pytest.mark.parametrize(  # seconds, and Mbit/s of packets of 1500 B
    ("name", "duration_s", "mbit_s"),
    [
        ("ATT-LTE-driving-2016.down", 120.0, 4.56),
        ("ATT-LTE-driving-2016.up", 120.0, 1.91),
        ("ATT-LTE-driving.down", 786.1, 5.17),
        ("ATT-LTE-driving.up", 1012.5, 0.83),
        ("TMobile-LTE-driving.down", 474.6, 12.77),
        ("TMobile-LTE-short.down", 140.0, 16.70),
        ("TMobile-LTE-short.up", 140.0, 13.32),
        ("TMobile-UMTS-driving.down", 928.4, 2.02),
        ("TMobile-UMTS-driving.up", 931.2, 0.94),
        ("Verizon-EVDO-driving.down", 1062.0, 0.52),
        ("Verizon-EVDO-driving.up", 1064.7, 0.84),
        ("Verizon-LTE-short.down", 140.0, 5.03),
        ("Verizon-LTE-short.up", 140.0, 5.95),
    ],
)
def test_cellular_traces_have_their_published_means(name, duration_s, mbit_s):
    file = real_traces("cellular", f"{name}*")[0]
    found = read_trace(Trace(file=str(file)))
    assert found.format == "mahimahi"
    assert found.rates.duration_s == pytest.approx(duration_s, abs=0.1)
    assert found.rates.mean_bps * 1500 / 1514 / 1e6 == pytest.approx(mbit_s, rel=0.01)
