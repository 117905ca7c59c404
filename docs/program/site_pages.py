"""What `make docs` adds to the pages below docs/: files that these lead to, names of the library, help of commands.

A hook of MkDocs. Pages are written for whoever reads them in the repository: their links lead to files that lie beside
them or anywhere else in it. In the site such a file becomes a page below ``repository/``, and a link leads there.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "program"))
from error_messages import CAUSE, with_messages  # noqa: E402

FOLDER = "repository"  # in the site, of what lies outside of docs/
# Pages of the repository that the site has whether or not a page leads to them: they stand in the navigation.
ALWAYS = ("CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "experiments/README.md", "benchmarks/README.md")
LANGUAGES = {".yaml": "yaml", ".yml": "yaml", ".py": "python", ".toml": "toml", ".csv": "text", ".tsv": "text"}

# Code is left alone. The target of a link or an image has no spaces in this repository.
_PARTS = re.compile(
    r"(?P<code>^(?P<fence>```+|~~~+).*?^(?P=fence)|^(?:    |\t).*?$|`[^`\n]*`)|\]\((?P<target>[^()\s]+)\)", re.M | re.S
)
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Pages for files outside of docs/: those of ALWAYS, and what these and the pages lead to."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()] + list(ALWAYS)
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        text = (ROOT / path).read_text(encoding="utf-8")
        if not path.startswith("docs/") or path.endswith(".ipynb"):
            files.append(_page_of(path, text, config))
        if not path.endswith(".md"):
            continue
        for found in _PARTS.finditer(text):
            target = found["target"]
            if target and not _ABSOLUTE.match(target) and not target.startswith("#"):
                led = _led_to(path, target.partition("#")[0])
                if led not in seen and (not led.startswith("docs/") or led.endswith(".ipynb")):
                    seen.add(led)
                    waiting.append(led)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Its links as they are in the site; comments that ask for what is generated are answered."""
    path = _path_of(page.file.src_uri)

    def placed(found: re.Match[str]) -> str:
        target = found["target"]
        if not target or _ABSOLUTE.match(target) or target.startswith("#"):
            return found[0]
        file, hash_, anchor = target.partition("#")
        there = posixpath.relpath(_uri_of(_led_to(path, file)), posixpath.dirname(page.file.src_uri) or ".")
        return f"]({there}{hash_}{anchor})"

    if path == "CHANGELOG.md":
        page.meta["search"] = {"boost": 0.2}  # it has every word once
    if path.endswith((".md", ".ipynb")):
        markdown = _PARTS.sub(placed, markdown)
    markdown = with_messages(markdown) if CAUSE.search(markdown) else markdown
    markdown = re.sub(r"^<!-- api: ([\w.]+) -->$", r"::: \1", markdown, flags=re.M)
    return re.sub(r"^<!-- help of every command -->$", lambda _: _help_of_commands(), markdown, flags=re.M)


def _led_to(path: str, target: str) -> str:
    """The file, from the root of the repository, that a link on ``path`` leads to; of a folder its README."""
    led = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if (ROOT / led).is_dir():
        led = posixpath.join(led, "README.md")
    if led.startswith("..") or not (ROOT / led).is_file():
        raise PluginError(f"{path}: the link to {target} leads to no file of the repository")
    return led


def _uri_of(path: str) -> str:
    """Where a file of the repository lies in the site's sources."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    return f"{FOLDER}/{path}" if path.endswith(".md") else f"{FOLDER}/{path}.md"


def _path_of(uri: str) -> str:
    """The file of the repository that a page is made from."""
    if not uri.startswith(f"{FOLDER}/"):
        return f"docs/{uri}" if (ROOT / "docs" / uri).is_file() else f"docs/{uri.removesuffix('.md')}.ipynb"
    path = uri.removeprefix(f"{FOLDER}/")
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def _page_of(path: str, text: str, config: MkDocsConfig) -> File:
    if path.endswith(".ipynb"):
        text = _notebook(text)
    elif not path.endswith(".md"):
        fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall(r"`+", text)), 3)
        text = f"# {path}\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
    return File.generated(config, _uri_of(path), content=text)


def _notebook(text: str) -> str:
    """Its cells as Markdown: words, code, and what came out of it."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"]).strip()
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = {kind: "".join(content) for kind, content in output.get("data", {}).items()}
            if "image/png" in data:
                parts.append(
                    f'<img alt="what the cell above draws" src="data:image/png;base64,{data["image/png"].strip()}">'
                )
            elif "text/html" in data:
                table = re.sub(r"<style.*?</style>|\n", "", data["text/html"], flags=re.S)
                parts.append(f"<div>{table}</div>")
            elif shown := data.get("text/plain") or "".join(output.get("text", [])):
                parts.append(f"```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _help_of_commands() -> str:
    """A heading and the words of ``--help`` for every command and sub-command."""
    from typer.main import get_command

    from bwbench.cli.main import app

    parts: list[str] = []

    def tell(command: Any, words: list[str], context: Any) -> None:
        own = command.make_context(words[-1], [], parent=context, resilient_parsing=True)
        inner = getattr(command, "list_commands", None)
        names = inner(own) if inner else []
        if words[1:] and not names:
            parts.append(f"## {' '.join(words)}\n\n```text\n{_plain_help(command, own)}\n```\n")
        for name in names:
            tell(command.get_command(own, name), [*words, name], own)

    tell(get_command(app), ["bwbench"], None)
    return "\n".join(parts)


def _plain_help(command: Any, context: Any) -> str:
    """What ``--help`` says, as text: the description, then a line for each argument and option."""
    lines = [context.get_usage() if hasattr(context, "get_usage") else "", "", (command.help or "").strip(), ""]
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:
            name = parameter.make_metavar(context) if _takes_context(parameter) else parameter.make_metavar()
            record = (name, getattr(parameter, "help", "") or "")
        lines.append(f"  {record[0]}\n      {record[1]}")
    return "\n".join(lines).rstrip()


def _takes_context(parameter: Any) -> bool:
    import inspect

    return "ctx" in inspect.signature(parameter.make_metavar).parameters
