"""Records with something wrong, made by rule out of good ones: a value, a byte, a file that is no file."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SECRET = "TOPSECRET"  # in a file that no record is; whoever follows a link to it shows it
ESCAPES = "\x1b]0;title\x07\x1b[31m\x9b2J\u202e\r\b"
JUNK = [
    None, True, -1, 0, 1, 2, 0.5, 2**63, -(2**63), 10**400, 1e308, -1e308, 5e-324, 1e100,
    "", "x", "0", "None", "nan", "10 Mbit/s", "0 bit/s", "unshaped", "done", "failed", "target", ESCAPES, "a\nb\tc",
    "../../out-of-here", "/tmp", "..", "a/b", "\0", "\ud800", "=1+1", "@x", "$\\input{x}$", "$\\frac{$", "a$b", "\\",
    "<script>", "{{7*7}}", "%n%s", "é" * 300, "\U0001f600", "k" * 5000,
    [], [[]], {}, {"name": 3}, {"name": ESCAPES}, [None, "a"], {"a": {"b": []}}, {"=": 0}, {"=": 10**9}, [{}] * 50,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(text: str, rng: random.Random) -> bytes:
    """A JSON document with one thing wrong: a value, a key, a byte, its end, or all of it."""
    how = rng.choice(["value"] * 6 + ["key", "other key", "byte", "end", "twice", "deep"])
    if how == "byte" and text:
        content = bytearray(text.encode())
        content[rng.randrange(len(content))] = rng.randrange(256)
        return bytes(content)
    if how == "end" and text:
        return text.encode()[: rng.randrange(len(text))]
    if how == "twice":
        return f"{text}\n{text}".encode()
    whole = json.loads(text)
    path = rng.choice(list(places(whole)) or [()])
    if not path or how == "deep":
        return ('{"a":' * 300 + text + "}" * 300).encode()
    inside = whole
    for key in path[:-1]:
        inside = inside[key]
    if how == "key":
        del inside[path[-1]]
    elif how == "other key" and isinstance(inside, dict):
        inside[str(rng.choice(JUNK))[:50]] = inside.pop(path[-1])
    else:
        inside[path[-1]] = rng.choice(JUNK)
    return json.dumps(whole).encode()


def break_lines(file: Path, rng: random.Random) -> None:
    """One line of a file of JSON lines changed, or left out, or there twice."""
    lines = file.read_bytes().splitlines()
    file.write_bytes(_with_a_broken_line(lines, rng))


def break_packed(file: Path, rng: random.Random) -> None:
    """The same inside of a published file."""
    try:
        text = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error):  # broken before
        text = b"{}"
    file.write_bytes(gzip.compress(_with_a_broken_line(text.splitlines(), rng), compresslevel=1))


def _with_a_broken_line(lines: list[bytes], rng: random.Random) -> bytes:
    lines = lines or [b"{}"]
    number, how = rng.randrange(len(lines)), rng.choice(["change"] * 8 + ["drop", "twice"])
    try:
        broken = [changed(lines[number].decode(), rng)]
    except (ValueError, RecursionError):  # broken before
        broken = [lines[number]]
    new = {"change": broken, "drop": [], "twice": [lines[number]] * 2}[how]
    return b"\n".join([*lines[:number], *new, *lines[number + 1 :], b""])


def break_document(file: Path, rng: random.Random) -> None:
    """A file of one JSON document, changed."""
    text = file.read_text(encoding="utf-8", errors="replace")
    try:
        file.write_bytes(changed(text, rng))
    except (ValueError, RecursionError):  # broken before
        file.write_bytes(text.encode()[: len(text) // 2])


def break_bytes(file: Path, rng: random.Random) -> None:
    """Any file: other bytes in it, or its end missing."""
    content = bytearray(file.read_bytes() or b"x")
    if rng.random() < 0.3:
        file.write_bytes(content[: rng.randrange(len(content))])
        return
    for _ in range(rng.randrange(1, 9)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    file.write_bytes(content)


def replace_file(path: Path, rng: random.Random, secret: Path) -> None:
    """Something else where a file was: a pipe, a device, a folder, a link, too much of it."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    makes: list[Callable[[], object]] = [
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to("/dev/tty"),
        lambda: path.symlink_to(secret),
        lambda: path.symlink_to(secret.parent),
        lambda: path.symlink_to("nowhere"),
        lambda: path.symlink_to(path.name),
        lambda: path.symlink_to("."),
        lambda: path.mkdir(),
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(b"[" * 200_000),
        lambda: path.write_text(ESCAPES),
        lambda: too_long(path),
        lambda: None,
    ]
    rng.choice(makes)()


def too_long(path: Path) -> None:
    """A document of more bytes than any has; it takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)


def break_one(file: Path, rng: random.Random, secret: Path) -> None:
    """A file of a result folder, in the way that fits it or, now and then, in any."""
    if rng.random() < 0.15 or not file.is_file() or file.stat().st_size > 1 << 24:
        replace_file(file, rng, secret)
    elif file.suffix == ".gz":
        rng.choice([break_packed] * 9 + [break_bytes])(file, rng)
    elif file.suffix == ".jsonl":
        break_lines(file, rng)
    elif file.suffix == ".json":
        break_document(file, rng)
    else:
        break_bytes(file, rng)
