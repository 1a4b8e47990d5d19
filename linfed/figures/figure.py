"""Matplotlib figure that keeps linfed's style after the style's context has ended."""

from __future__ import annotations

from typing import Any

from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure

from linfed.figures.style import style


class StyledFigure(Figure):
    """Matplotlib `Figure` that is drawn and saved in linfed's style.

    Notes
    -----
    Matplotlib reads some settings late: ticks take their sizes when they are first drawn, and a PDF its font type when
    it is saved. Both methods therefore run inside the style. PDF files embed TrueType fonts, as journals require.
    """

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure as `Figure.draw` does, in linfed's style."""
        with style():
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save the figure as `Figure.savefig` does, in linfed's style."""
        with style():
            super().savefig(fname, **options)
