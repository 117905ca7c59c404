"""Two hundred malformed links and traces, made by rule: every field with values that it cannot have, and so on."""

from __future__ import annotations

import gzip
import lzma
import math
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

GOOD = {"bandwidth": "10 Mbit/s", "latency": "2 ms"}


class BadLink(NamedTuple):
    """A link, and what its message (or the key it is about) has to name."""

    link: Any
    names: str


class BadTrace(NamedTuple):
    """A file, how it is declared, the line that is to blame (None: the file), and what the message has to name."""

    content: bytes
    declared: dict[str, Any]
    line: int | None
    names: str


_RATES = ["10", 10, "10 Mbps", "10 MB/s", "-1 Mbit/s", "0 bit/s", "999 Tbit/s", "1 bit/s", "fast", True, ["1 Mbit/s"]]
_DELAYS = ["5", 5, "5 seconds", "-1 ms", "2 h", "soon", {"ms": 5}]
_SHARES = [-0.1, 1, 1.5, "100 %", "a lot", math.nan, math.inf, [0.1]]
_QUEUES = ["10 B", "lots", 100, "0 packets", "1.5 packets", "-1 bdp", "5000 bdp", "1e12 B", ["64 kB"]]
_BY_FIELD: dict[str, list[Any]] = {
    "bandwidth": _RATES,
    "up": _RATES[:6],
    "down": _RATES[5:],
    "latency": _DELAYS,
    "jitter": _DELAYS[1:5],
    "loss": _SHARES,
    "queue": _QUEUES,
    "jitter_distribution": ["gaussian", 3],
    "reorder": ["perhaps", 2],
    "medium": ["wifi", "sharde", None],
    "backend": ["tbf", "Relay"],
    "seed": [-1, 2**40, "x", 1.5],
    "wired": [3, ["a"], [-1]],
    "outages": ["at noon", [5], {"at": "1 s"}],
    "overrides": [[], {"a": {}}, {-1: {}}, {0: "slow"}],
    "tcp": ["cubic", 5],
    "trace": [5, [], {}, {"up": None}],
    "shaped": ["perhaps"],
}
_ON_AIR: dict[str, list[Any]] = {
    "standard": ["802.11b", "ax", 802.11],
    "efficiency": [0, 1.1, "half"],
    "aggregation": [0, 1000, 1.5, "many"],
    "fairness": ["equal", True],
}
_NESTED: list[tuple[dict[str, Any], str]] = [
    ({"loss": 0.01, "loss_burst": 0.5}, "0.5"),
    ({"loss": 0.01, "loss_burst": "long"}, "long"),
    ({"loss": 0.01, "loss_burst": 4, "loss_in_bad": 0}, "loss_in_bad"),
    ({"loss": 0.01, "loss_burst": 4, "loss_in_good": 1}, "loss_in_good"),
    ({"outages": [{"at": "-1 s", "duration": "1 s"}]}, "-1 s"),
    ({"outages": [{"at": "1 s"}]}, "duration"),
    ({"outages": [{"duration": "1 s"}]}, "at"),
    ({"outages": [{"at": "1 s", "duration": "0 s"}]}, "0 s"),
    ({"outages": [{"at": "1 s", "duration": "5 s", "every": "5 s"}]}, "5 s"),
    ({"outages": [{"at": "1 s", "duration": "5 s", "evry": "9 s"}]}, "evry"),
    ({"outages": [{"at": "1 s", "duration": "5 s", "nodes": 1}]}, "nodes"),
    ({"overrides": {1: {"bandwidth": "2"}}}, "2"),
    ({"overrides": {1: {"latncy": "2 ms"}}}, "latncy"),
    ({"overrides": {1: {"medium": "shared"}}}, "medium"),
    ({"overrides": {1: {"loss": 2}}}, "loss"),
    ({"overrides": {1: {"trace": {"file": ""}}}}, "file"),
    ({"tcp": {"congestion_control": "Cubic!"}}, "Cubic!"),
    ({"tcp": {"slow_start": False}}, "slow_start"),
    ({"tcp": {"receive_buffer": "1"}}, "1"),
    ({"tcp": {"rto_max": "0 s"}}, "0 s"),
]
_TRACES: list[tuple[Any, str]] = [
    ({"file": "x", "format": "pcap"}, "pcap"),
    ({"file": "x", "format": "csv"}, "measures"),
    ({"file": "x", "format": "wifi", "unit": "Mbit/s"}, "unit"),
    ({"file": "x", "measures": "goodput"}, "goodput"),
    ({"file": "x", "unit": "Mbps"}, "Mbps"),
    ({"file": "x", "start": "-1 s"}, "-1 s"),
    ({"file": "x", "start": 5}, "5"),
    ({"file": "x", "sha256": "abc"}, "sha256"),
    ({"file": 7}, "7"),
    ({"file": "x", "fromat": "wifi"}, "Did you mean 'format'?"),
    ({"file": ""}, "file"),
    ({"start": "1 s"}, "file"),
    ({"up": {"fil": "x"}}, "fil"),
    ({"upp": "x"}, "upp"),
]
_CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({}, "bandwidth"),
    ({"latency": "2 ms"}, "bandwidth"),
    ({"up": "1 Mbit/s"}, "down"),
    ({"down": "1 Mbit/s"}, "up"),
    ({**GOOD, "trace": "x"}, "bandwidth"),
    ({"up": "1 Mbit/s", "trace": "x"}, "up"),
    ({"trace": {"down": "x"}}, "up"),
    ({**GOOD, "reorder": True}, "jitter"),
    ({**GOOD, "jitter_distribution": "pareto"}, "jitter"),
    ({**GOOD, "loss_burst": 3}, "loss"),
    ({**GOOD, "loss_in_bad": 0.5}, "loss_burst"),
    ({**GOOD, "loss": 0.9, "loss_burst": 1.01, "loss_in_bad": 0.91}, "0.9"),
    ({**GOOD, "loss": 0.01, "loss_burst": 3, "overrides": {0: {"loss": 0.1}}}, "bursts"),
    ({**GOOD, "standard": "802.11ax"}, "standard"),
    ({**GOOD, "efficiency": 0.5}, "efficiency"),
    ({**GOOD, "wired": [0]}, "wired"),
    ({**GOOD, "fairness": "airtime"}, "fairness"),
    ({"medium": "shared", "up": "1 Mbit/s", "down": "2 Mbit/s"}, "bandwidth"),
    ({"medium": "shared", "trace": {"up": "x", "down": "y"}}, "trace"),
    ({"shaped": False, "bandwidth": "1 Mbit/s"}, "bandwidth"),
    ({"preset": "wifi-802.11z-good"}, "wifi-802.11z-good"),
    ({"preset": "dls", "loss": 0.1}, "dls"),
    ({"preset": 5}, "5"),
    ({"preset": "dsl", "medium": "shared"}, "bandwidth"),
    ({"preset": "/no/such/presets.yaml:x"}, "/no/such/presets.yaml"),
    ({"preset": "wifi-802.11ax-good", "bandwidth": "fast"}, "fast"),
]


def bad_links() -> Iterator[BadLink]:
    """All of them, always the same and in the same order."""
    for field, values in _BY_FIELD.items():
        for value in values:
            yield BadLink({**GOOD, field: value}, field)
    for field, values in _ON_AIR.items():
        for value in values:
            yield BadLink({**GOOD, "medium": "shared", field: value}, field)
    for change, names in _NESTED:
        yield BadLink({**GOOD, **change}, names)
    for trace, names in _TRACES:
        yield BadLink({"latency": "2 ms", "trace": trace}, names)
    for link, names in _CONTRADICTIONS:
        yield BadLink(link, names)
    letters = random.Random(11)
    for field in [key for key in [*_BY_FIELD, *_ON_AIR] if len(key) > 3]:  # a letter less, a letter twice
        at = letters.randrange(1, len(field) - 1)
        slips = [field[:at] + field[at + 1 :], field[:at] + field[at] + field[at:]]
        yield BadLink({**GOOD, letters.choice(slips): "x"}, "Known: ")
    for link in ("10 Mbit/s", 5, None, [GOOD], True, math.nan):
        yield BadLink(link, "mapping")


def bad_traces() -> Iterator[BadTrace]:
    """Files of each format with one thing wrong, broken off files, and files that are no traces."""
    wifi = {"format": "wifi"}
    for line in ["x\t1", "1.0", "1.0\t2\t3", "1.0,2.5", "1.0\tfast", "1.0\t2,5", "\t5"]:
        yield BadTrace(f"0.0\t10\n{line}\n2.0\t10\n".encode(), wifi, 2, line.split("\t")[-1])
    for rate in ["-1", "nan", "inf", "-inf", "1e7", "1e999", "0x10", "1_0", "٣"]:
        yield BadTrace(f"0.0\t10\n1.0\t10\n2.0\t{rate}\n".encode(), wifi, 3, rate)
    for stamp in ["-1", "nan", "1e999", "12:30"]:
        yield BadTrace(f"{stamp}\t10\n1.0\t10\n".encode(), wifi, 1, stamp)
    for stamps in [
        "1\nx\n3\n",
        "1\n2.5\n3\n",
        "1\n-2\n3\n",
        "5\n3\n",
        "1\n1 2\n3\n",
        "1\n1_0\n",
        "1\n99999999999999999\n",
    ]:
        yield BadTrace(stamps.encode(), {"format": "mahimahi"}, 2, stamps.split("\n")[1])
    yield BadTrace(b"0\n0\n0\n", {}, None, "0 ms")
    yield BadTrace(b"1\n900000000000\n", {}, None, "days")
    csv = {"measures": "link"}
    headers = [
        ("0,10", "0,10"),
        ("time,rate_mbit_s", "time"),
        ("hour,rate_mbit_s", "hour"),
        ("time_s,rate", "rate"),
        ("time_s,rate_mbit", "rate_mbit"),
        ("time_s,MBPS", "MBPS"),
        ("time_s,up_mbps,down_mbps", "up_mbps, down_mbps"),
        ("time_s,", "column 2"),
    ]
    for header, names in headers:
        width = header.count(",")
        yield BadTrace(f"{header}\n0{',1' * width}\n1{',1' * width}\n".encode(), csv, 1, names)
    for line in ["1", "1,2,3", "x,2", "1,x", "1,-2", "1,nan", "1,", "1,1e9", '1,"2x"']:
        yield BadTrace(f"time_s,Mbit/s\n0,10\n{line}\n".encode(), csv, 3, line.split(",")[-1].strip('"'))
    yield BadTrace(b"time_s,Mbit/s\n0,10\n0,10\n", csv, 3, "time_s 0 does not rise")
    table = b"time_s,down_mbps,up_mbps\n0,1,1\n"
    yield BadTrace(table, {**csv, "column": "down_mbp"}, 1, "Did you mean 'down_mbps'?")
    yield BadTrace(table, {**csv, "column": "down_mbps", "unit": "kbit/s"}, 1, "kbit/s")
    yield BadTrace(table, {}, None, "measures")
    yield BadTrace(b"0\t1\n", {"unit": "Mbit/s"}, None, "unit")
    yield BadTrace(b"1\n2\n", {"column": "rate"}, None, "column")
    yield BadTrace(b"time_s,Mbit/s\n", csv, None, "no values")
    yield BadTrace(b"ms,Mbit/s\n0,5\n86400000000,5\n", csv, None, "days")
    yield from _no_traces(wifi)


def _no_traces(wifi: dict[str, Any]) -> Iterator[BadTrace]:
    noise = random.Random(3)
    yield BadTrace(b"", {}, None, "empty")
    yield BadTrace(b" \n\n", {}, None, "empty")
    yield BadTrace(b"# recorded\n# nothing\n", wifi, None, "comments only")
    yield BadTrace(b"# recorded\n", {"format": "mahimahi"}, None, "comments only")
    yield BadTrace(b"0\t0\n1\t0\n", {}, None, "every rate is 0")
    yield BadTrace(b"0\t0.0001\n1\t0.0001\n", {}, None, "1 kbit/s")
    yield BadTrace(b"# hello\nhello world\n", {}, 2, "hello world")
    yield BadTrace(b"3.5\n4.5\n", {}, 1, "3.5")
    yield BadTrace(bytes(noise.randrange(256) for _ in range(5000)) + b"\0", {}, None, "NUL")
    yield BadTrace(b"0\t1\n1\t\xff\xfe\n", {}, 2, "0xff")
    yield BadTrace(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", {}, None, "NUL")
    yield BadTrace(b"PK\x03\x04\x14\0\x06\0", {}, None, "NUL")
    packed = gzip.compress(b"0\t1\n1\t2\n" * 500)
    yield BadTrace(packed[: len(packed) // 2], {}, None, "cut off")
    yield BadTrace(packed[:-6] + b"\0\0" + packed[-4:], {}, None, "damaged")
    packed = lzma.compress(b"".join(b"%d\n" % (3 * i + noise.randrange(3)) for i in range(5000)))
    yield BadTrace(packed[: len(packed) // 2], {}, None, "cut off")
    yield BadTrace(packed[:30] + bytes(len(packed) - 30), {}, None, "damaged")
    yield BadTrace(gzip.compress(bytes(40 * 1024**2)), {}, None, "larger than 32 MiB")
