"""The contract of a figure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.text import Text

from bwbench.results.analysis.results import Results
from bwbench.results.figures.frame import lay_out, said_elsewhere
from bwbench.results.figures.style import PAGE_IN, look, told_apart


class AbstractFigure(ABC):
    """One kind of picture. Made without arguments; holds no state.

    Attributes:
        name: as in the registry and in file names.
        compares: the settings that one picture spans besides arms and repeats, as flat names (``link.bandwidth``);
            every other setting that varies makes a picture for each of its values. Where a compared setting does not
            vary, ``applies`` says so.
        in_detail: whether it is drawn only where it is asked for, or all are (``bwbench plot --all``): the others
            answer what an experiment asks.
    """

    name: ClassVar[str]
    compares: ClassVar[frozenset[str]] = frozenset()
    in_detail: ClassVar[bool] = False

    @abstractmethod
    def applies(self, results: Results) -> str | None:
        """Why there is nothing to draw, as half a sentence; None where there is. One of the cells at least is done."""

    @abstractmethod
    def table(self, results: Results) -> pd.DataFrame:
        """The numbers that the picture shows, one row a mark; written beside it."""

    def why_not(self, results: Results) -> str | None:
        """Why there is nothing to draw of any cells; None where there is."""
        return self.applies(results) if results.done else "no cell is done"

    @abstractmethod
    def _draw(self, results: Results, width_in: float) -> Figure:
        """Draw; ``why_not`` has returned None, and ``style.look`` is in force."""

    def draw(self, results: Results, width_in: float = PAGE_IN, said: Collection[str] = ()) -> Figure:
        """The picture, ``width_in`` inches wide. Touches no global state of matplotlib.

        Args:
            said: notes, or how they begin (``†``), that stand elsewhere and not below this picture.
        """
        with look(), told_apart(results.roles), said_elsewhere(said):
            figure = self._draw(results, width_in)
            for text in figure.findobj(Text):
                if hasattr(text, "set_fontfeatures"):  # from matplotlib 3.11 on, which makes ligatures
                    text.set_fontfeatures(["-liga"])  # in a PDF they stand in a font of their own, which takes time
            lay_out(figure)
            figure.set_layout_engine(None)  # laid out for good: saving moves nothing, and draws once for each file
            return figure
