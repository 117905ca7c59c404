"""A small paper about a study that no run has made, for tests."""

from __future__ import annotations

from pathlib import Path

from fixtures_records import Study, write_study

ROOT = Path(__file__).parents[1]

CLAIMS = """
given:
  confidence: {value: 95 %, source: docs/statistics.md}
study:
  defaults: {over: ddp, where: {link.bandwidth: 10 Mbit/s}}
  fp16: {kind: ratio, arm: ring-fp16, expect: above 1}
  fp16-words: {kind: ratio, arm: ring-fp16}
  loss: {kind: difference, arm: threshold, of: final}
  cross: {kind: crossover, arm: single, where: {link.bandwidth: null}}
  first: {kind: fastest, over: ""}
  time: {kind: value, arm: ddp, over: ""}
  hours: {kind: machine hours}
  rates: {kind: link error, part: most}
  nodes: {kind: config, key: nodes}
"""

PROSE = """# Results

With {{ num("nodes") }} nodes `ring-fp16` is {{ claim("fp16") }} times as fast as DDP, that is {{ num("fp16") }} times.
It {{ verdict("fp16-words") }}; the threshold {{ verdict("loss") }} [@gan2021bagua]. {{ num("confidence") }},
{{ num("hours") }}.

{{ figure("bandwidth", "study", "Time against bandwidth.") }}

{{ tables("times", "study") }}

{{ decision("decision", "Which way.", "first") }}
"""

EVIDENCE = "# Evidence\n\n{{ evidence() }}\n"


def write_records(root: Path, **settings: object) -> Path:
    """A quick study of four arms at two bandwidths."""
    usual = {"arms": ("ddp", "ring-fp16", "threshold", "single"), "bandwidths_mbps": (10.0, 100.0)}
    write_study(root, Study(**{**usual, "samples_scale": 1500.0, **settings}))  # type: ignore[arg-type]
    return root


def write_paper(folder: Path, claims: str = CLAIMS, prose: str = PROSE) -> Path:
    """Its source: two sections, the second about an experiment without records, and the evidence behind them."""
    (folder / "sections").mkdir(parents=True)
    sections = "[{file: sections/a.md, experiments: [study]}, {file: sections/b.md, experiments: [other]}, "
    sections += "{file: sections/c.md, appendix: true}]"
    (folder / "outline.yaml").write_text(f"title: A study\nfirst_section: 3\nsections: {sections}\n")
    (folder / "claims.yaml").write_text(claims)
    (folder / "sections/a.md").write_text(prose)
    (folder / "sections/b.md").write_text("# Other\n\n{{ claim('unheard-of') }}\n")
    (folder / "sections/c.md").write_text(EVIDENCE)
    for name in ("template.tex", "references.bib"):
        (folder / name).write_text((ROOT / "paper" / name).read_text())
    return folder
