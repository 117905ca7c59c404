"""What of fonts is embedded in PDFs."""

from __future__ import annotations

from fontTools import subset

from bwbench.figures.save import _fonts_without_layout


def test_tables_of_layout_are_left_out_while_a_figure_is_written_and_by_nobody_else() -> None:
    before = list(subset.Options().drop_tables)
    with _fonts_without_layout():
        assert {"GDEF", "GPOS", "GSUB"} <= set(subset.Options().drop_tables)
    assert subset.Options().drop_tables == before
