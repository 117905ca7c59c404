"""A paper fails to build rather than say what its records do not."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from fixtures_paper import CLAIMS, PROSE, ROOT, write_paper, write_records
from fixtures_records import Study, write_study

from bwbench.base.errors import ConfigError
from bwbench.results.analysis.results import load_results
from paper.program import build_paper
from paper.program.build import too_large
from paper.program.claimed_cells import Records
from paper.program.pictures import Pictures
from paper.program.prose import bare_numbers

needs_tex = pytest.mark.skipif(
    not (shutil.which("pandoc") and shutil.which("latexmk")), reason="needs pandoc and latexmk (docs/paper.md)"
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_records(tmp_path_factory.mktemp("results"))


def _fails(folder: Path, results: Path, claims: str = CLAIMS, prose: str = PROSE) -> str:
    with pytest.raises(ConfigError) as error:
        build_paper(write_paper(folder / "paper", claims, prose), results, folder / "out", with_pdf=False)
    return str(error.value)


@needs_tex
@pytest.mark.timeout(600)  # LaTeX twice three times, beside whatever else the machine does
def test_it_builds_both_ways_and_the_same_twice(tmp_path: Path, results: Path) -> None:
    source = write_paper(tmp_path / "paper")
    paper = build_paper(source, results, tmp_path / "out")
    pdf, text = (tmp_path / "out/paper.pdf").read_bytes(), (tmp_path / "out/paper.md").read_text()
    assert "## 3 Results" in text and "With 4 nodes" in text and "BAGUA" in text
    assert text.index("References") < text.index("Evidence") < text.index("time of ddp over that of ring-fp16")
    assert "<sup>e1</sup>" in text and "Which way." in text
    assert any("sections/b.md" in line and "make paper-results" in line for line in paper.left_out)
    macros, body = ((tmp_path / f"out/{name}.tex").read_text() for name in ("macros", "body"))
    assert r"\newcommand{\bwNodes}{4}" in macros and r"\bwNodes{}" in body and r"\citep" in body
    appendix = (tmp_path / "out/appendix.tex").read_text()
    assert r"\evidence{1}" in body and r"\evidencerow{1}" in appendix and "longtable" in appendix
    log = (tmp_path / "out/paper.log").read_text(errors="replace")
    assert not re.search(r"(Citation|Reference) .* undefined", log)
    shutil.rmtree(tmp_path / "out")
    build_paper(source, results, tmp_path / "out")
    assert (tmp_path / "out/paper.pdf").read_bytes() == pdf


def test_what_reaches_beyond_its_page_is_said() -> None:
    wide, high = "Overfull \\hbox (78.5pt too wide) in paragraph at lines 6--7", "Float too large for page by 23.4pt on"
    log = f"This is pdfTeX\n{wide}\n[]\nOverfull \\hbox (0.9pt too wide) in paragraph\nLaTeX Warning: {high} line 9.\n"
    assert list(too_large(log)) == [wide, f"{high} line 9."]


def test_a_direction_that_has_changed_fails(tmp_path: Path, results: Path) -> None:
    message = _fails(tmp_path, results, CLAIMS.replace("expect: above 1", "expect: below 1"))
    assert "claim 'fp16'" in message and "direction has changed" in message and "n = 3" in message


def test_a_comparison_without_a_declared_direction_is_no_bare_number(tmp_path: Path, results: Path) -> None:
    message = _fails(tmp_path, results, prose="# A\n\n{{ claim('fp16-words') }}\n")
    assert "direction is not declared" in message


def test_marks_need_the_table_that_they_lead_to(tmp_path: Path, results: Path) -> None:
    source = write_paper(tmp_path / "paper")
    (source / "sections/c.md").write_text("# Nothing\n")
    with pytest.raises(ConfigError, match="no section has their intervals"):
        build_paper(source, results, tmp_path / "out", with_pdf=False)


def test_a_number_needs_its_interval_somewhere(tmp_path: Path, results: Path) -> None:
    assert "without its interval" in _fails(tmp_path, results, prose="# A\n\n{{ num('fp16') }}\n")


def test_pictures_and_tables_of_another_target_stand_beside_those_of_the_cells_own(
    tmp_path: Path, results: Path
) -> None:
    prose = "# A\n\nIt is {{ claim('fp16') }} times as fast.\n"
    for caption, target in (("Their own.", ""), ("Lower.", ", target=0.70")):
        prose += f'\n{{{{ figure("bandwidth", "study", "{caption}"{target}) }}}}\n'
        prose += f'\nSee{{{{ see("bandwidth", "study"{target}) }}}}.\n\n{{{{ tables("times", "study"{target}) }}}}\n'
    prose += "\n# Notes\n\n{{ notes() }}\n"
    build_paper(write_paper(tmp_path / "paper", prose=prose), results, tmp_path / "out", with_pdf=False)
    text = (tmp_path / "out/paper.md").read_text()
    assert "**Figure 2.** Lower." in text and "(Figure 2)" in text
    said = text.partition("Notes")[2]
    assert said.count("Arms differ in more than one thing") == 1 and "**Figure 1, Figure 2.**" in said
    assert "**Figure 1.** ‡ First crossing" in said and "**Figure 2.** Unknown until run again" in said
    own, lower = (
        json.loads((tmp_path / f"out/figures/study_bandwidth{end}.json").read_text()) for end in ("", "_to-0.7")
    )
    assert own["table"] != lower["table"]


def test_pictures_call_arms_as_prose_does_and_no_two_alike(tmp_path: Path, results: Path) -> None:
    (one,) = (group for group in load_results(results) if group.experiment == "study" and "ring-fp16" in group.labels)
    names = {"study/ring-fp16": "the half ring", "ddp": "DDP", "single": "DDP"}
    called = Pictures(Records(results), tmp_path, names)._called(one)
    assert called["ring-fp16"] == "half ring" and called["ddp"] == "DDP" and called.get("single", "single") == "single"


def test_numbers_in_prose_and_unknown_claims_are_refused_together(tmp_path: Path, results: Path) -> None:
    message = _fails(tmp_path, results, prose="# A\n\nIt is 3.5 times as fast; {{ claim('nobody') }}.\n")
    assert "sections/a.md:3: the number 3.5" in message and "no claim 'nobody'" in message


def test_missing_records_of_a_claim_fail(tmp_path: Path, results: Path) -> None:
    claims = CLAIMS + "  gone: {kind: value, arm: top-k, over: ''}\n"
    message = _fails(tmp_path, results, claims)
    assert "claim 'gone': experiment study, arm top-k" in message and "make paper-results" in message


def test_strict_wants_every_section(tmp_path: Path, results: Path) -> None:
    with pytest.raises(ConfigError, match="no records of other"):
        build_paper(write_paper(tmp_path / "paper"), results, tmp_path / "out", strict=True)


def test_a_broken_template_is_named(tmp_path: Path, results: Path) -> None:
    assert "sections/a.md:3" in _fails(tmp_path, results, prose="# A\n\n{{ claim( }}\n")


def test_numbers_of_names_and_formulae_are_no_numbers_of_prose() -> None:
    text = "`top-k 1` of fp16 and resnet8, $2(N-1)$, [@li2020pytorch], {{ num('x1') }} {# 3 #}\nbut 4 here"
    assert [problem.line for problem in bare_numbers(text, "a.md")] == [2]


def test_the_prose_of_the_paper_has_no_bare_numbers() -> None:
    for path in sorted((ROOT / "paper/sections").glob("*.md")):
        assert not list(bare_numbers(path.read_text(), str(path)))


@needs_tex
def test_records_beside_the_results_stand_in_their_section_and_in_no_sum(tmp_path: Path, results: Path) -> None:
    arms = ("ring", "ring-fp16", "single")
    write_study(tmp_path / "beside", Study(name="steps", arms=arms, limit_s=1.0, target=None))
    claims = CLAIMS + "all:\n  cells: {kind: cells}\nsteps:\n"
    claims += "  ring: {kind: ratio, arm: ring, over: single, of: samples a second}\n"
    source = write_paper(tmp_path / "paper", claims, PROSE + "\n{{ num('cells') }} cells\n")
    prose = "# Steps\n\nThe ring {{ verdict('ring') }}.\n\n{{ rates('steps', 'single', 'How many.') }}\n"
    (source / "sections/b.md").write_text(prose)
    outline = (source / "outline.yaml").read_text().replace("other", "steps")
    (source / "outline.yaml").write_text(outline + "records: [../beside/st*]\n")
    paper = build_paper(source, results, tmp_path / "out", with_pdf=False)
    text = (tmp_path / "out/paper.md").read_text()
    assert not paper.left_out and f"{len(list(Path(results).glob('study/*/cell.json')))} cells" in text
    assert re.search(r"The ring makes [\d.]+ times as many samples a second as single<sup>", text)
    assert "samples a second of ring over those of single" in text and "times as many" in text


@needs_tex
def test_the_paper_builds_without_any_record(tmp_path: Path) -> None:
    paper = build_paper(ROOT / "paper", tmp_path / "nothing", tmp_path / "out", with_pdf=False)
    assert "Introduction" in (tmp_path / "out/paper.md").read_text()
    assert len(paper.left_out) > 5
