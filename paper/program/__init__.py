"""A paper from one source of prose: LaTeX, PDF and Markdown, whose every number comes from records or is declared."""

from paper.program.build import build_paper

__all__ = ["build_paper"]
