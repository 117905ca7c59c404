"""The results section of any experiment, as LaTeX or as Markdown, in words that its numbers support."""

from bwbench.results.section.write import write_section

__all__ = ["write_section"]
