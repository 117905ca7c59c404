"""Text that is written once and rendered as LaTeX and as Markdown: pieces, escapes, numbers."""

from bwbench.results.text.pieces import LatexWriter, MarkdownWriter, Number, Phrase, Writer, phrase

__all__ = ["LatexWriter", "MarkdownWriter", "Number", "Phrase", "Writer", "phrase"]
