"""Any inventory and any trace: hosts and rates, or every problem in plain words; nothing raises, nothing hangs."""

from __future__ import annotations

import gzip
import lzma
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures_broken import ESCAPES, JUNK, replace_file
from fixtures_commands import bwbench

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.hosts import inventory
from bwbench.network.link.trace_file import load_trace
from bwbench.network.link.variation import Trace

MUTATIONS = 300  # of inventories, and as many of traces
INVENTORY = """hosts:
  - anna@192.168.1.10
  - {address: node-2.example.org, port: 2222, user: bert, interface: eth0, python: /opt/venv/bin/python}
  - address: "fe80::1"
    user: carla
    folder: /scratch/bwbench
    workers: 2
"""
WIFI = "".join(f"{second}.0\t{10 + second % 7}\n" for second in range(40)).encode()
TRACES = {
    "auto": WIFI,
    "wifi": WIFI,
    "mahimahi": b"".join(b"%d\n" % (3 * number) for number in range(200)),
    "csv": b"time_s,down_mbps,up_mbps\n" + b"".join(b"%d,%d,5\n" % (at, 10 + at % 9) for at in range(60)),
    "gz": gzip.compress(WIFI),
    "xz": lzma.compress(WIFI),
}


def broken(content: bytes, rng: random.Random) -> bytes:
    """Bytes, words, lines or the end exchanged."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    words = lines[at].replace(b"\t", b" ").split(b" ")
    words[rng.randrange(len(words))] = str(rng.choice([*JUNK, ESCAPES])).encode(errors="surrogatepass")
    ways: list[Callable[[], bytes]] = [
        lambda: content[: rng.randrange(len(content))],
        lambda: bytes(rng.randrange(256) if rng.random() < 0.02 else byte for byte in content),
        lambda: b"\n".join([*lines[:at], b"\t".join(words), *lines[at + 1 :]]),
        lambda: b"\n".join([*lines[:at], b" ".join(words), *lines[at + 1 :]]),
        lambda: b"\n".join([*lines[:at], lines[at] * 3, *lines[at + 1 :]]),
        lambda: b"\n".join(lines[:at] + lines[at + 1 :]),
        lambda: b"\n".join(rng.sample(lines, len(lines))),
        lambda: content.replace(b":", rng.choice([b"", b": &a", b"::", b": *a", b": !!python/name:os.system "])),
        lambda: bytes(rng.randrange(256) for _ in range(300)),
    ]
    return rng.choice(ways)()


def in_words(read: Callable[[], object], case: str) -> bool:
    """Whether it is refused, in one line a problem."""
    begun = time.process_time()
    try:
        read()
    except ConfigError as error:
        for problem in error.problems:
            assert 10 < len(str(problem)) < 7000, case
            assert "Traceback" not in str(problem), case
        return True
    except Exception as error:
        raise AssertionError(case) from error
    finally:
        assert time.process_time() - begun < 5, case
    return False


@pytest.mark.timeout(300)
def test_inventories(tmp_path: Path) -> None:
    rng, refused = random.Random(1), 0
    file, secret = tmp_path / "now" / "hosts.yaml", tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("TOPSECRET: [")
    for number in range(MUTATIONS):
        file.parent.mkdir()
        file.write_text(INVENTORY)
        replace_file(file, rng, secret) if number % 10 == 0 else file.write_bytes(broken(INVENTORY.encode(), rng))
        refused += in_words(lambda: inventory(file), f"mutation {number}: {_content(file)!r}")
        shutil.rmtree(file.parent)
    assert refused > MUTATIONS / 2


@pytest.mark.timeout(300)
def test_traces(tmp_path: Path) -> None:
    rng, refused = random.Random(2), 0
    file, secret = tmp_path / "now" / "trace", tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("TOPSECRET")
    for number in range(MUTATIONS):
        kind = sorted(TRACES)[number % len(TRACES)]
        declared = {"format": kind if kind in ("auto", "wifi", "mahimahi", "csv") else "auto"}
        declared |= {"measures": "link", "column": "down_mbps"} if kind == "csv" else {}
        file.parent.mkdir()
        file.write_bytes(broken(TRACES[kind], rng))
        if number % 10 == 0:
            replace_file(file, rng, secret)
        trace = Trace.model_validate({"file": str(file), **declared})
        refused += in_words(lambda trace=trace: load_trace(trace), f"mutation {number}, {kind}: {_content(file)!r}")
        shutil.rmtree(file.parent)
    assert refused > MUTATIONS / 4


@pytest.mark.parametrize("word", ["Trace", "trace"])
def test_commands_say_it_without_commanding_the_terminal(tmp_path: Path, word: str) -> None:
    file = tmp_path / f"{word}{ESCAPES}.tsv"
    file.write_text(f"0.0\t10\n1.0\t{ESCAPES}\n")
    done = bwbench("link", "show", "--trace", file)
    assert done.exit_code == 2
    assert done.err.startswith("error: ")
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(done.err)


def _content(file: Path) -> bytes:
    return file.read_bytes()[:2000] if file.is_file() and file.stat().st_size < 1 << 20 else b"(no file)"
