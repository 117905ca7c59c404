"""Pages lead to files and headings that are there; the README knows every command, that of the docs every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "configs/*.md", "examples/*.md", "experiments/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^(```.*?^```|    .*?$)", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings as they are linked to: lower case, words joined by hyphens, nothing else."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for target in LINK.findall(CODE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            dead.append(target)
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_fit_a_screen(page: Path) -> None:
    """Tables and lines with links excepted."""
    lines = page.read_text().splitlines()
    assert not [line for line in lines if len(line) > 120 and not line.lstrip().startswith("|") and "](" not in line]


def linked_from(page: Path) -> set[Path]:
    return {(page.parent / target.partition("#")[0]).resolve() for target in LINK.findall(page.read_text())}


def test_the_readme_names_every_command_and_leads_to_the_pages() -> None:
    from bwbench.cli.main import app

    assert ROOT / "docs" / "README.md" in linked_from(ROOT / "README.md")
    table = "".join(
        line for line in (ROOT / "README.md").read_text().splitlines(keepends=True) if line.startswith("| `")
    )
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert [name for name in commands if f"`{name}`" not in table] == []


def test_every_page_is_led_to_by_the_one_over_it() -> None:
    """Whoever looks at the repository finds all that the site has in its navigation."""
    docs = ROOT / "docs"
    for folder in (docs, docs / "tutorials", docs / "algorithms"):
        led = linked_from(folder / "README.md")
        assert {page.name for page in folder.glob("*.md") if page.resolve() not in led} - {"README.md"} == set()
