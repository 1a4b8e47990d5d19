"""What the experiments share, whatever their paper: tuning tables and figures, panels and legends, notes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.figures.style import label
from linfed.study.run import Table, select, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HUGE = 1e9
"""Stands for the error of a diverged trial: worse than any other, yet finite, as intervals need it."""

# --- tuning --------------------------------------------------------------------------------------------------


def tuned(algorithm: lf.Algorithm, problem: Any, **options: Any) -> lf.Tuning:
    """Return what `lf.tune` finds, without its warning of an edge: the tables and notes say it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lf.EdgeWarning)
        return lf.tune(algorithm, problem, **options)


def tuning_arrays(tuning: lf.Tuning) -> dict[str, Any]:
    """Return what a cell keeps of its tuning: the scores, the best, and whether that lies at an edge of the grid."""
    return {"scores": tuning.scores, "best": np.array(tuning.best), "at_edge": np.array(bool(tuning.at_edge))}


def tuning_rows(keys: Mapping[str, Any], steps: Sequence[float], found: Mapping[str, Any]) -> Table:
    """Return the rows of a tuning table: a step size each, with its score, whether it was chosen, and at an edge.

    Parameters
    ----------
    keys : mapping
        Columns that are the same in all rows.
    steps : sequence of float
        The grid.
    found : mapping
        Holds what `tuning_arrays` returns.
    """
    chosen = np.arange(len(steps)) == int(found["best"])
    values = {"score": found["scores"], "chosen": chosen, "at_edge": chosen & bool(found["at_edge"])}
    return tidy(keys, {"step_size": steps}, values)


def tuning_figure(
    curves: Mapping[str, Mapping[str, Table]],
    *,
    height: float,
    ylabel: str,
    xlabel: str = "step size",
    **options: Any,
) -> Figure:
    """Return the tuning curves in a panel for each preset or setting, the chosen steps circled.

    Parameters
    ----------
    curves : mapping
        From a panel's title to its tuning tables, by method, in the order to draw them.
    height : float
        Inches.
    ylabel, xlabel : str
        What the score is, and in which units the steps are.
    **options
        Of `panels`.
    """
    from linfed.figures import style as plotting

    figure, axes = panels(list(curves), height, **options)
    with plotting.style():
        for ax, tables in zip(axes[0], curves.values(), strict=True):
            for name, table in tables.items():
                plotting.draw_tuning(ax, table, name)
            ax.set(xscale="log", yscale="log", xlabel=xlabel)
        axes[0, 0].set_ylabel(ylabel)
        legend(figure, axes[0], "90 % of the tuning trials lie below; circled: the chosen step")
    return figure


# --- figures -------------------------------------------------------------------------------------------------


def panels(titles: Sequence[str], height: float, *, rows: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Return a figure as wide as the page, and its axes (rows, titles): a column below each title."""
    import matplotlib.pyplot as plt

    from linfed.figures import style as plotting

    size = (plotting.PAGE_WIDTH, height)
    with plotting.style():
        figure, axes = plt.subplots(rows, len(titles), figsize=size, layout="constrained", squeeze=False, **options)
        for ax, title in zip(axes[0], titles, strict=True):
            ax.set_title(title)
    return figure, axes


def legend(figure: Figure, axes: Iterable[Axes], title: str) -> None:
    """Put one legend above a figure: the labels of all the axes in one line, each once."""
    found = [ax.get_legend_handles_labels() for ax in axes]
    handles = {text: handle for pair in found for handle, text in zip(*pair, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), title=title)


# --- notes ---------------------------------------------------------------------------------------------------


def edge_note(methods: Sequence[str]) -> str:
    """Return the note that the best step of these methods lies at the edge of the grid."""
    return f"the best step of {' and '.join(label(name) for name in methods)} lies at the edge of the grid"


def tuning_note(
    summary: Table, tuning: Table, methods: Sequence[str], lowest_tells: Mapping[str, str] | None = None
) -> str:
    """Return what a reader should know of a setting: diverged trials, best steps at the edge of their grid.

    Parameters
    ----------
    summary : structured array with columns method and diverged, a row per trial
    tuning : structured array with columns method and at_edge, steps ascending
    methods : sequence of str
    lowest_tells : mapping, optional
        What it tells of a method if its best step is the lowest of the grid.
    """
    notes = []
    for name in methods:
        lost = int(select(summary, method=name)["diverged"].sum())
        if lost:
            notes.append(f"{lost} trials of {label(name)} diverged at its best step")
        at_edge = select(tuning, method=name)["at_edge"]
        if at_edge.any():
            why = (lowest_tells or {}).get(name, "") if at_edge[0] else ""
            notes.append(edge_note([name]) + (f": {why}" if why else ""))
    return "; ".join(notes)
