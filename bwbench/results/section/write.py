"""From groups of cells to the text of a section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from bwbench.base.errors import ConfigError
from bwbench.records import CellFolder
from bwbench.results.analysis.results import Results, by_experiment
from bwbench.results.section.content import Block, Part, Table
from bwbench.results.section.setup import setup_blocks
from bwbench.results.section.threats import left_out_blocks, link_blocks, threat_blocks
from bwbench.results.section.time_and_accuracy import accuracy_blocks, baseline_of, speedup_blocks, time_blocks
from bwbench.results.text import LatexWriter, MarkdownWriter, macro_name, phrase

Format = Literal["latex", "markdown"]


def write_section(results: Sequence[Results], format: Format) -> str:
    r"""The results section of all experiments in ``results``.

    Args:
        results: as ``load_results`` gives them, of one experiment or several.
        format: ``latex`` gives a fragment for ``\input`` that needs the packages booktabs and T1 fonts; its numbers
            are macros, defined at its top. ``markdown`` gives tables with pipes.

    Raises ConfigError where there is no cell. The same records give the same text.
    """
    if not any(group.folders for group in results):
        raise ConfigError("there is no cell to report; run an experiment first: `bwbench run FILE`")
    parts = list(section_parts(results))
    if format == "markdown":
        return _templates(MarkdownWriter()).get_template("section.md.j2").render(parts=parts)
    writer = LatexWriter()
    body = _templates(writer).get_template("section.tex.j2").render(parts=parts)
    return "\n".join(["% Numbers first: they may be quoted anywhere after \\input of this file.", *writer.macros, body])


def section_parts(results: Sequence[Results]) -> Iterator[Part]:
    """Headings, paragraphs and tables, experiment by experiment."""
    experiments = by_experiment(results)
    for experiment, groups in sorted(experiments.items()):
        folders = _folders(groups)
        yield Part(1, phrase(f"Results: {experiment}"), setup_blocks(groups, folders))
        baseline = baseline_of(groups)
        for group in groups:
            key = " ".join(part for part in (experiment if len(experiments) > 1 else "", group.label) if part)
            where = "" if len(groups) == 1 or not group.label else f" ({group.label.replace('_', ', ')})"
            yield from _part(f"Time to accuracy{where}", list(time_blocks(group, key)))
            if baseline is not None:
                called = group.labels.get(baseline, baseline)
                yield from _part(f"Speed-up over {called}{where}", list(speedup_blocks(group, key, baseline)))
            yield from _part(f"Final accuracy{where}", list(accuracy_blocks(group, key, baseline)))
        done = _folders(groups, done=True)
        yield from _part("Links asked for and achieved", list(link_blocks(done)))
        yield from _part("Cells left out", list(left_out_blocks(folders)))
        yield from _part("Threats to validity", list(threat_blocks(folders)))


def _part(title: str, blocks: list[Block]) -> Iterator[Part]:
    if blocks:
        yield Part(2, phrase(title), blocks)


def _folders(groups: Sequence[Results], *, done: bool = False) -> list[CellFolder]:
    """Each cell once: one node alone stands in several groups."""
    found = {folder.path: folder for group in groups for folder in (group.done if done else group.folders)}
    return [found[path] for path in sorted(found)]


def latex_table(block: Table, writer: LatexWriter, environment: str = "table") -> str:
    """One table as LaTeX; its numbers are macros of ``writer``."""
    return str(_templates(writer).get_template("table.tex.j2").module.table(block, environment))  # type: ignore[attr-defined]


def markdown_table(block: Table) -> str:
    """One table as Markdown, its caption before it."""
    return str(_templates(MarkdownWriter()).get_template("table.md.j2").module.table(block))  # type: ignore[attr-defined]


def _templates(writer: LatexWriter | MarkdownWriter) -> Environment:
    """Both formats escape in ``write``, which every phrase goes through: jinja's own escaping is for HTML."""
    environment = Environment(
        loader=PackageLoader("bwbench.results.section", "templates"),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"write": writer.write, "label": lambda text: macro_name(text, "tab:")}
    return environment
