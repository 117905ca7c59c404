"""From a folder of prose and a folder of records to a paper: its outline, its parts, and pandoc and LaTeX behind it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from bwbench.base.errors import ConfigError, Problem, UnfitMachineError
from paper.program.claim import load_claims
from paper.program.claimed_cells import Records
from paper.program.pictures import Pictures
from paper.program.prose import ForLatex, ForMarkdown, Format, bare_numbers, render
from paper.program.quotes import Quotes

NAME = "paper"
_READ = "markdown+raw_tex+pipe_tables-implicit_figures"
PACKAGES = "texlive-latex-recommended latexmk lmodern pandoc"
_EPOCH = "1704067200"  # any fixed moment: a date of building would make every PDF differ
_LONGEST_S = 300.0
_LETTER_PT = 5.0  # so far beyond its column nobody sees text


class Section(BaseModel):
    """One file of prose.

    Attributes:
        file: below the folder of the paper.
        experiments: all of these need records, else the section is left out.
        any_of: at least one of these needs records.
        appendix: stands behind the bibliography.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    experiments: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    appendix: bool = False

    def lacks(self, there: frozenset[str]) -> list[str]:
        """Experiments without records that keep the section out; none where it can stand."""
        missing = [name for name in self.experiments if name not in there]
        if not missing and self.any_of and not set(self.any_of) & there:
            missing = list(self.any_of)
        return missing


class Outline(BaseModel):
    """The paper as a whole.

    Attributes:
        first_section: the number that the first section has.
        records: patterns of folders, relative to the paper's own, with records that are kept beside the results.
        names: what sentences and the table of decisions call an arm of the records; evidence keeps its label.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    subtitle: str = ""
    first_section: int = 1
    bibliography: str = "references.bib"
    claims: str = "claims.yaml"
    records: tuple[str, ...] = ()
    names: dict[str, str] = {}
    sections: tuple[Section, ...]


def load_outline(folder: Path) -> Outline:
    """The outline of the paper in ``folder``; raises ConfigError where it is not there or wrong."""
    path = folder / "outline.yaml"
    try:
        outline = Outline.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(Problem(f"not readable as the outline of a paper: {error}", str(path))) from None
    missing = [section.file for section in outline.sections if not (folder / section.file).is_file()]
    if missing:
        raise ConfigError(Problem(f"no such file: {', '.join(missing)}", str(path)))
    return outline


def records_of(outline: Outline, folder: Path, results: Path) -> Records:
    """The records of ``results``, and those that the outline of the paper in ``folder`` names beside them."""
    return Records(results, tuple(sorted(path for one in outline.records for path in folder.glob(one))))


def quotes_of(source: Path, results: Path) -> Quotes:
    """The claims of the paper in ``source`` with the records of ``results``, as prose may cite them."""
    outline = load_outline(source)
    return Quotes(load_claims(source / outline.claims), records_of(outline, source, results), outline.names)


@dataclass
class Paper:
    """What came of it.

    Attributes:
        paths: files written.
        left_out: one line for each section or picture that is not there, and why.
        too_large: what reaches beyond its column or page, in the words of TeX's log.
    """

    paths: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)


def build_paper(source: Path, results: Path, out: Path, *, strict: bool = False, with_pdf: bool = True) -> Paper:
    """Build ``paper.tex``, ``paper.pdf`` and ``paper.md`` with their figures into ``out``.

    Args:
        source: folder with outline.yaml, claims.yaml, the prose, the bibliography and template.tex.
        results: folder of records.
        strict: a section without records is an error.

    Raises ConfigError with everything that is wrong: claims that their numbers do not support, records that are
    missing, numbers that no claim stands for; UnfitMachineError where pandoc or LaTeX are missing or fail.
    """
    outline, paper, quotes = load_outline(source), Paper(), quotes_of(source, results)
    records = quotes.records
    sections = _sections(outline, records, paper, strict=strict)
    problems = [p for one in sections for p in bare_numbers(_source(source, one), str(source / one.file))]
    pictures = Pictures(records, out / "figures", outline.names)
    out.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(out / "figures", ignore_errors=True)
    for_latex, for_markdown = ForLatex(), ForMarkdown()
    latex = _text(source, sections, quotes, pictures, for_latex)
    markdown = _text(source, sections, quotes, pictures, for_markdown)
    quotes.judge_all()
    problems += [Problem(message, str(source / outline.claims)) for message in quotes.problems]
    if problems:
        raise ConfigError(problems)
    paper.left_out += pictures.skipped
    _write_markdown(outline, source, markdown, out, paper)
    _write_latex(outline, source, latex, for_latex, out, paper)
    _write_values(quotes, out, paper)
    if with_pdf:
        paper.paths.append(pdf(NAME, out))
        paper.too_large += too_large((out / f"{NAME}.log").read_text(encoding="utf-8", errors="replace"))
    return paper


def _sections(outline: Outline, records: Records, paper: Paper, *, strict: bool) -> list[Section]:
    kept = []
    for section in outline.sections:
        lacking = section.lacks(records.experiments)
        if not lacking:
            kept.append(section)
            continue
        line = f"section {section.file}: no records of {', '.join(lacking)}; make them with `make paper-results`"
        if strict:
            raise ConfigError(line)
        paper.left_out.append(line)
    return kept


def _source(folder: Path, section: Section) -> str:
    return (folder / section.file).read_text(encoding="utf-8")


class Text(NamedTuple):
    """The prose as Markdown for pandoc, with what stands behind the bibliography apart."""

    body: str
    appendix: str


def _text(source: Path, sections: list[Section], quotes: Quotes, pictures: Pictures, format: Format) -> Text:
    made = [(one.appendix, render(source, one.file, quotes, pictures, format).strip()) for one in sections]
    return Text(*("\n\n".join(text for behind, text in made if behind == which) + "\n" for which in (False, True)))


def _write_markdown(outline: Outline, source: Path, text: Text, out: Path, paper: Paper) -> None:
    bibliography = str((source / outline.bibliography).resolve())
    arguments = ["-f", _READ, "-t", "gfm", "--wrap=none", "--citeproc", f"--bibliography={bibliography}"]
    arguments += ["-M", "link-citations=false", "-M", "suppress-bibliography=false"]
    numbered = _numbered(text.body, outline.first_section)
    references = "\n\n# References\n\n::: {#refs}\n:::\n\n"
    body = pandoc(numbered + references + text.appendix, arguments, source)
    body = re.sub(r"</?div[^>]*>\n*", "", body)  # what citeproc wraps its entries in
    head = f"# {outline.title}\n\n" + (f"*{outline.subtitle}*\n\n" if outline.subtitle else "")
    path = out / f"{NAME}.md"
    path.write_text(head + re.sub(r"^(#+ )", r"#\1", body, flags=re.MULTILINE), encoding="utf-8")
    paper.paths.append(path)


def _write_latex(outline: Outline, source: Path, text: Text, format: ForLatex, out: Path, paper: Paper) -> None:
    template = source / "template.tex"
    if not template.is_file():
        raise ConfigError(Problem("no such file: the frame of the paper", str(template)))
    body, appendix = (_latex(part, source) for part in text)
    frame = template.read_text(encoding="utf-8")
    words = {"TITLE": outline.title, "SUBTITLE": outline.subtitle, "SECTION": str(outline.first_section - 1)}
    for name, value in words.items():
        frame = frame.replace(f"@{name}@", value)
    shutil.copyfile(source / outline.bibliography, out / "references.bib")
    for name, content in (
        ("macros", "\n".join(format.writer.macros) + "\n"), ("body", body), ("appendix", appendix), (NAME, frame),
    ):  # fmt: skip
        path = out / f"{name}.tex"
        path.write_text(content, encoding="utf-8")
        paper.paths.append(path)


def _latex(text: str, folder: Path) -> str:
    body = pandoc(text, ["-f", _READ, "-t", "latex", "--natbib", "--wrap=preserve"], folder)
    # A caption is prose, and so a paragraph of its own for pandoc: TeX wants it without the empty lines around.
    return re.sub(r"\\caption\{\s+", r"\\caption{", re.sub(r"\s+\\label\{fig:", r"\\label{fig:", body))


def _write_values(quotes: Quotes, out: Path, paper: Paper) -> None:
    """The value of every claim that was cited, with the ids of its cells: from a sentence back to records."""
    found = {name: vars(value) for name in sorted(quotes.used) if (value := quotes.value(name)) is not None}
    path = out / "claims.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    paper.paths.append(path)


def _numbered(text: str, first: int) -> str:
    """Headings with their numbers, as LaTeX gives them; those marked ``{-}`` have none."""
    counts = [first - 1, 0, 0]

    def number(match: re.Match[str]) -> str:
        level = len(match[1])
        if level > len(counts) or match[2].rstrip().endswith("{-}"):
            return match[0]
        counts[level - 1] += 1
        counts[level:] = [0] * (len(counts) - level)
        return f"{match[1]} {'.'.join(map(str, counts[:level]))} {match[2]}"

    return re.sub(r"^(#+) (.*)$", number, text, flags=re.MULTILINE)


def pandoc(text: str, arguments: Sequence[str], folder: Path) -> str:
    """``text`` through pandoc, run in ``folder``; raises UnfitMachineError where it is missing or refuses."""
    return _run(["pandoc", *arguments], folder, text)


def too_large(log: str) -> Iterator[str]:
    """What TeX's log says of text, tables and pictures that reach beyond their column or page by more than a letter."""
    for found in re.finditer(
        r"Overfull \\hbox \(([\d.]+)pt too wide\).*|Float too large for page by ([\d.]+)pt.*", log
    ):
        if float(found[1] or found[2]) > _LETTER_PT:
            yield found[0]


def pdf(name: str, folder: Path) -> Path:
    """The PDF of ``name``.tex in ``folder``, the same bytes from the same source. Raises UnfitMachineError."""
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "-silent", f"{name}.tex"]
    _run(command, folder, "", log=folder / f"{name}.log")
    return folder / f"{name}.pdf"


def _run(command: Sequence[str], folder: Path, text: str, log: Path | None = None) -> str:
    if shutil.which(command[0]) is None:
        install = f"apt-get install --no-install-recommends {PACKAGES}"
        raise UnfitMachineError(f"{command[0]} is not installed; on Debian and Ubuntu: {install}")
    environment = {
        "SOURCE_DATE_EPOCH": _EPOCH,
        **os.environ,
        "FORCE_SOURCE_DATE": "1",
        "TEXMFVAR": str(folder / ".texmf"),
    }
    try:
        done = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, env=environment,
                              timeout=_LONGEST_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UnfitMachineError(f"{command[0]} was not done after {_LONGEST_S:g} s, and was ended") from None
    if done.returncode != 0:
        said = log.read_text(encoding="utf-8", errors="replace") if log and log.is_file() else done.stderr
        lines = [line for line in said.splitlines() if line.startswith(("!", "l.", "Error"))] or said.splitlines()[-8:]
        raise UnfitMachineError(f"{command[0]} failed in {folder}:\n  " + "\n  ".join(lines[:8]))
    return done.stdout
