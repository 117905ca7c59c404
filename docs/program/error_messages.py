"""Every message of an error, collected from the source: what docs/troubleshooting.md shows under its causes.

A message is what is handed to one of the classes of errors, or what a function returns that says why something is
refused or has ended (``-> str | None``). What is put in while the program runs stands as ``…``.

    python docs/program/error_messages.py [FILE...]     # those of these files of bwbench/, or all
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "bwbench"
GAP = "…"
# Whose message is meant for users: the errors of bwbench, and what a mistake in a file is wrapped in.
ERRORS = re.compile(
    r"\w*(Config|Machine|Link|Launch|Worker|Taken|Record|Records|Cell|Host|Handshake|Fetch|Composable|Undone|Digest)Error"
    r"|Problem|problem|_?add|_wrong|Finding|PydanticCustomError|BadParameter"
)
# Others that a log or the reason of a cell shows, where they come from a worker or from a training script.
INNER_ERRORS = re.compile(r"(Runtime|Timeout|FloatingPoint|Connection|ModuleNotFound|Value|Type)Error")
INNER = ("training/", "methods/")
CAUSE = re.compile(r"^<!-- messages: ([^>]+) -->$", re.M)
LEAST_WORDS = 3  # fewer are a part of a message, or none


def messages(file: str) -> list[str]:
    """Those of one file, in the order of its lines.

    Args:
        file: from the folder of the package, such as ``base/units.py``.
    """
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    found: dict[int, list[str]] = {}
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            for line, text in _of_scope(scope, file):
                text = re.sub(rf"({GAP}[ ,:;]*){{2,}}", f"{GAP} ", " ".join(text.split())).strip()
                if len(re.findall(r"[A-Za-z]{2,}", text)) >= LEAST_WORDS and " " in text:
                    found.setdefault(line, []).append(text)
    return list(dict.fromkeys(text for line in sorted(found) for text in found[line]))


@cache
def all_messages() -> dict[str, list[str]]:
    """Messages by file, of all files that have some."""
    files = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    return {file: texts for file in files if (texts := messages(file))}


def _of_scope(scope: ast.AST, file: str) -> Iterator[tuple[int, str]]:
    """Messages of a function's own lines, those of functions inside of it left out."""
    own = list(_own(scope))
    given: list[tuple[int, str, ast.expr]] = []  # messages are often begun before they are raised: line, name, value
    for node in own:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            given.append((node.lineno, node.targets[0].id, node.value))
    given.sort(key=lambda one: one[0])
    returns = getattr(scope, "returns", None)
    tells = returns is not None and ast.unparse(returns).strip("'\"") == "str | None"
    inner = file.startswith(INNER)
    for node in own:
        texts = {name: value for line, name, value in given if line < getattr(node, "lineno", 0)}  # the last before it
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if ERRORS.fullmatch(name) or (inner and INNER_ERRORS.fullmatch(name)):
                for argument in [*node.args, *(word.value for word in node.keywords)]:
                    if (text := _text(argument, texts)) is not None:
                        yield node.lineno, text
        elif isinstance(node, ast.Return) and tells and node.value is not None:
            for value in [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]:
                if (text := _text(value, texts)) is not None:
                    yield node.lineno, text


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        yield child
        yield from _own(child)


def _text(value: ast.expr, texts: dict[str, ast.expr], depth: int = 0) -> str | None:
    """The text that an expression is, with gaps; None where it is none."""
    if depth > 4:
        return None
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) else None
    if isinstance(value, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else _text(part.value, texts, depth + 1) or GAP  # type: ignore[attr-defined]
            for part in value.values
        )
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = _text(value.left, texts, depth + 1), _text(value.right, texts, depth + 1)
        return None if left is None and right is None else (left or GAP) + (right or GAP)
    if isinstance(value, ast.Name) and value.id in texts:
        given = texts[value.id]
        return _text(given, {**texts, value.id: ast.Constant(None)}, depth + 1)
    return None


def files_under(causes: list[list[str]]) -> list[list[str]]:
    """Which files with messages each cause stands for.

    Args:
        causes: files and folders (``cli/``) of each; a file belongs to the longest name that it begins with.

    Raises:
        ValueError: a file belongs to no cause, or a name has no messages.
    """
    names = {name: number for number, cause in enumerate(causes) for name in cause}
    found: list[list[str]] = [[] for _ in causes]
    used = set()
    for file in all_messages():
        name = max((name for name in names if file.startswith(name)), key=len, default=None)
        if name is None:
            raise ValueError(f"docs/troubleshooting.md: no cause for the messages of {file}; name it under one")
        used.add(name)
        found[names[name]].append(file)
    if unused := sorted(names.keys() - used):
        raise ValueError(f"docs/troubleshooting.md: {', '.join(unused)} has no messages (any more); take it out")
    return found


def with_messages(page: str) -> str:
    """The page, each comment ``<!-- messages: FILE… -->`` replaced by the messages of these files."""
    lists = iter(files_under([found[1].split() for found in CAUSE.finditer(page)]))
    return CAUSE.sub(lambda _: as_list(next(lists)), page)


def as_list(files: list[str]) -> str:
    """Their messages as a list in Markdown that is closed until somebody opens it, in lines that fit a screen."""
    texts = list(dict.fromkeys(text for file in files for text in all_messages()[file]))
    lines = [f'<details markdown="1"><summary>{len(texts)} message{"s" * (len(texts) != 1)}</summary>', ""]
    for text in texts:
        ticks = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
        pad = " " if len(ticks) > 1 else ""
        lines += textwrap.wrap(
            f"- {ticks}{pad}{text}{pad}{ticks}",
            118,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join([*lines, "", "</details>"])


if __name__ == "__main__":
    for name in sys.argv[1:] or all_messages():
        print(f"{name}\n" + "\n".join(f"    {text}" for text in messages(name)))
