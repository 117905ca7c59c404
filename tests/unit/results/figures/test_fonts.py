"""What of fonts is embedded in PDFs."""

from __future__ import annotations

from fontTools import subset
from matplotlib import font_manager

from bwbench.results.figures.album import _fonts_without_layout

_OF_LAYOUT = {"GDEF", "GPOS", "GSUB"}


def test_tables_of_layout_are_left_out_while_a_figure_is_written_and_by_nobody_else() -> None:
    path = font_manager.findfont("DejaVu Sans")
    with _fonts_without_layout(), subset.load_font(path, subset.Options()) as font:
        assert not _OF_LAYOUT & set(font.keys())
    with subset.load_font(path, subset.Options()) as font:
        assert set(font.keys()) >= _OF_LAYOUT
