"""Prose with claims in it becomes Markdown for pandoc: with macros for LaTeX, else with the numbers themselves.

Every number in it has to come from a claim.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from bwbench.base.errors import ConfigError, Problem
from bwbench.results.section.content import Table
from bwbench.results.section.write import latex_table, markdown_table
from bwbench.results.text import LatexWriter, MarkdownWriter, Phrase, Writer, macro_name, markdown, phrase
from paper.program.arms import arms_table
from paper.program.claim import COMPARISONS
from paper.program.crossings import STEM, draw_crossings
from paper.program.decision import Decision, decision_table, rates_table
from paper.program.evidence import Row, evidence_lines
from paper.program.pictures import Pictures
from paper.program.quotes import Quotes
from paper.program.ratios import ratios_table
from paper.program.spoken import name_of
from paper.program.studies import studies_table

# What may hold digits: expressions and statements of jinja, code, formulae, citations, addresses; digits of a name.
_NOT_PROSE = re.compile(
    r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}|```.*?```|`[^`]*`|\$[^$]*\$|\[@[^\]]*\]|@[\w:-]+|https?://\S+|<!--.*?-->",
    re.DOTALL,
)
_NUMBER = re.compile(r"(?<![\w.-])\d[\d.,]*")


class Format(ABC):
    """How numbers, pictures and tables stand in the Markdown that pandoc gets."""

    writer: Writer

    @abstractmethod
    def table(self, tables: list[str]) -> str:
        """Tables, as made by ``one_table``."""

    @abstractmethod
    def figure(self, stem: str, caption: str, *, wide: bool) -> str:
        """A picture with its caption, which is Markdown already."""

    @abstractmethod
    def reference(self, stem: str) -> str:
        """``Figure 3``."""

    @abstractmethod
    def table_reference(self, label: str) -> str:
        """``Table 3``, or what else a reader finds it by."""

    @abstractmethod
    def mark(self, number: int) -> str:
        """What stands behind a sentence: the row of its evidence."""

    @abstractmethod
    def evidence(self, rows: list[Row]) -> str:
        """The table of evidence."""


class _MacroWriter(LatexWriter):
    """Numbers as macros, words as Markdown: pandoc passes the first on and translates the second."""

    def write(self, text: Phrase) -> str:
        return "".join(markdown(piece) if isinstance(piece, str) else self._use(piece) for piece in text)


@dataclass
class ForLatex(Format):
    """Numbers are macros; pictures and tables are LaTeX that pandoc leaves alone."""

    writer: _MacroWriter = field(default_factory=lambda: _MacroWriter("bw"))
    captions: dict[str, str] = field(default_factory=dict)

    def table(self, tables: list[str]) -> str:
        """LaTeX blocks."""
        return "\n\n".join(_raw(table) for table in tables)

    def figure(self, stem: str, caption: str, *, wide: bool) -> str:
        """A float, as wide as a column or as the page. Its caption goes through pandoc too, apart."""
        environment = "figure*" if wide else "figure"
        lines = [f"\\begin{{{environment}}}[tbp]", "\\centering", f"\\includegraphics{{figures/{stem}.pdf}}"]
        label = f"\\label{{fig:{macro_name(stem, '')}}}"
        return "\n\n".join(
            [_raw("\n".join([*lines, "\\caption{"])), caption, _raw(f"{label}}}\n\\end{{{environment}}}")]
        )

    def reference(self, stem: str) -> str:
        """By its label."""
        return f"Figure\\ \\ref{{fig:{macro_name(stem, '')}}}"  # pandoc reads the first as a space that does not break

    def table_reference(self, label: str) -> str:
        """By its label."""
        return f"Table\\ \\ref{{{macro_name(label, 'tab:')}}}"

    def mark(self, number: int) -> str:
        """A link to the row, raised."""
        return f"\\evidence{{{number}}}"

    def evidence(self, rows: list[Row]) -> str:
        """A long table in small type, which pandoc translates."""
        lines = evidence_lines(rows, self.writer, "\\evidencerow{{{0}}}")
        # A long table stands in no page of two columns.
        begin = "\\makeatletter\\if@twocolumn\\onecolumn\\fi\\makeatother\n\\begingroup\\footnotesize"
        return "\n\n".join([_raw(begin), "\n".join(lines), _raw("\\endgroup")])

    @property
    def latex_writer(self) -> LatexWriter:
        """For tables, which are LaTeX throughout; it shares the macros."""
        writer = LatexWriter("bw")
        writer._texts = self.writer._texts
        return writer


@dataclass
class ForMarkdown(Format):
    """Numbers stand as they are; figures are numbered in the order of their mention."""

    writer: MarkdownWriter = field(default_factory=MarkdownWriter)
    _numbers: dict[str, int] = field(default_factory=dict)

    def table(self, tables: list[str]) -> str:
        """Tables with pipes."""
        return "\n\n".join(tables)

    def figure(self, stem: str, caption: str, *, wide: bool) -> str:
        """The picture, and its caption as a paragraph."""
        return f"![](figures/{stem}.png)\n\n**{self.reference(stem)}.** {caption}"

    def table_reference(self, label: str) -> str:
        """By its label: tables have no numbers there."""
        return f"the table of {label}"

    def mark(self, number: int) -> str:
        """Raised."""
        return f"^e{number}^"

    def evidence(self, rows: list[Row]) -> str:
        """A table with pipes."""
        return "\n".join(evidence_lines(rows, self.writer, "e{0}"))

    def reference(self, stem: str) -> str:
        """By its number."""
        return f"Figure {self._numbers.setdefault(stem, len(self._numbers) + 1)}"


def render(folder: Path, file: str, quotes: Quotes, pictures: Pictures, format: Format) -> str:
    """The prose of one file as Markdown for pandoc; problems go to ``quotes``.

    Prose may use ``claim``, ``num``, ``verdict``, ``have``, ``side``, ``above``, ``farthest``, ``crossings``,
    ``figure``, ``see``, ``tables``, ``table``, ``decision``, ``ratios``, ``grid``, ``rates``, ``arms``,
    ``studies``, ``notes`` and ``evidence``.
    Raises ConfigError where the template is broken.
    """
    environment = Environment(
        loader=FileSystemLoader(str(folder)), undefined=StrictUndefined, autoescape=False, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip

    def figure(
        name: str, experiment: str, caption: str, group: str = "", *, wide: bool = False, target: float | None = None
    ) -> str:
        stem = pictures.draw(name, experiment, group, wide=wide, target=target)
        return "" if stem is None else format.figure(stem, caption.strip(), wide=wide)

    def see_crossings() -> str:
        return f" ({format.reference(STEM)})"

    def see(name: str, experiment: str, group: str = "", *, wide: bool = False, target: float | None = None) -> str:
        stem = pictures.draw(name, experiment, group, wide=wide, target=target)
        return "" if stem is None else f" ({format.reference(stem)})"

    def tables(
        kind: str,
        experiment: str,
        group: str = "",
        baseline: str | None = None,
        *,
        wide: bool = True,
        target: float | None = None,
    ) -> str:
        return shown(pictures.tables(kind, experiment, group, baseline, target), "table*" if wide else "table")

    def shown(found: Iterable[Table], environment: str = "table*") -> str:
        if isinstance(format, ForLatex):
            return format.table([latex_table(one, format.latex_writer, environment) for one in found])
        return format.table([markdown_table(one) for one in found])

    def decision(label: str, caption: str, *names: str) -> str:
        there = [name for name in names if quotes.experiment_of(name) in quotes.records.experiments]
        rows = [
            Decision(quotes.claims[name], value, f" e{quotes.mark(name)}", quotes.is_host_bound(name))
            for name in there
            if (value := quotes.value(name)) is not None
        ]
        return shown([decision_table(label, caption, rows, quotes.records, quotes.names)]) if rows else ""

    def ratios(label: str, caption: str, links: list[str], *names: str) -> str:
        there = [name for name in names if quotes.experiment_of(name) in quotes.records.experiments]
        rows = [(quotes.pair(name), quotes.claims[name]) for name in there if quotes.value(name) is not None]
        found = ratios_table(label, caption, links, rows, quotes.records, quotes.bound)
        return shown([found]) if rows else ""

    def grid(label: str, caption: str, head: list[str], *rows: list[str]) -> str:
        cells = [[quotes.cell(name) for name in row] for row in rows]
        return shown([Table(label, phrase(caption), [phrase(name) for name in head], cells)], "table")

    def crossings(caption: str) -> str:
        found = quotes.crossings()
        arms = [name_of(one.claim.arm, one.claim.experiment, quotes.names) for one in found]
        methods = [re.sub(r"-\d+| with .*", "", arm.removeprefix("the ")) for arm in arms]
        return format.figure(draw_crossings(pictures.folder, found, methods), caption.strip(), wide=False)

    def rates(experiment: str, baseline: str, caption: str) -> str:
        cells = quotes.records.done(experiment)
        return shown(rates_table(f"rates-{experiment}", caption, cells, baseline), "table") if cells else ""

    def arms(experiment: str, caption: str) -> str:
        return shown(arms_table(f"arms-{experiment}", caption, quotes.records.done(experiment), quotes.names))

    def studies(caption: str, *names: str) -> str:
        return shown(studies_table("studies", caption, names, quotes.records))

    def notes() -> str:
        """A paragraph for those of the same pictures, behind their names."""
        return "\n\n".join(
            f"**{', '.join(map(format.reference, stems))}.** {format.writer.write(phrase(' '.join(said)))}"
            for stems, said in pictures.notes().items()
        )

    def marked(found: tuple[Phrase, int | None]) -> str:
        words, number = found
        return format.writer.write(words) + ("" if number is None else format.mark(number))

    def side(name: str) -> int:
        value = quotes.value(name)
        if name in quotes.claims and quotes.claims[name].kind not in COMPARISONS:
            quotes.problems.append(f"claim {name!r} compares nothing: it has no side")
        return 0 if value is None else value.side

    environment.globals |= {
        "claim": lambda name: marked(quotes.marked(name)),
        "num": lambda name: format.writer.write(quotes.bare(name)),
        "verdict": lambda name, interval=False, mark=True: marked(quotes.verdict(name, interval=interval, mark=mark)),
        "have": lambda *names: all(name in quotes.records.experiments for name in names),
        "side": side,
        "above": lambda: format.writer.write(quotes.above()),
        "farthest": lambda but="": format.writer.write(quotes.farthest(but)),
        "crossings": crossings,
        "see_crossings": see_crossings,
        "figure": figure,
        "see": see,
        "tables": tables,
        "table": format.table_reference,
        "decision": decision,
        "ratios": ratios,
        "grid": grid,
        "rates": rates,
        "arms": arms,
        "studies": studies,
        "notes": notes,
        "evidence": lambda: format.evidence(quotes.evidence()),
    }
    try:
        text = environment.get_template(file).render()
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise ConfigError(Problem(f"not a template that can be rendered: {error}", str(folder / file), line)) from None
    return re.sub(r"\n{3,}", "\n\n", text)


def _raw(latex: str) -> str:
    return f"```{{=latex}}\n{latex}\n```"


def bare_numbers(text: str, file: str) -> Iterator[Problem]:
    """A problem, with its line, for each number in the source of prose that no claim stands for."""
    prose = _NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in _NUMBER.finditer(prose):
        line = prose.count("\n", 0, match.start()) + 1
        message = (
            f"the number {match[0].rstrip('.,')} stands in prose; declare a claim and cite it: {{{{ num('NAME') }}}}"
        )
        yield Problem(message, file, line)
