"""A paper from one source of prose: LaTeX, PDF and Markdown, whose every number comes from records or is declared."""

from bwbench.report.paper.build import build_paper

__all__ = ["build_paper"]
