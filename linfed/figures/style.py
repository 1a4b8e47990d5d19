"""One style for all figures: sizes for a paper column, colours that the colour-blind can tell, markers for grey."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed.errors import suggestion
from linfed.statistics.quantiles import quantiles
from linfed.system.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

COLUMN_WIDTH = 3.35
"""Inches: one column of a two-column paper."""

PAGE_WIDTH = 6.9
"""Inches: both columns."""

STYLE: Mapping[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # TrueType, embedded: text stays text
}

Look: TypeAlias = tuple[str, str, Any]
"""Colour, marker and line."""

# Okabe and Ito's palette, ordered so that neighbours differ in lightness too.
LOOKS: Mapping[str, Look] = {
    "FedRep": ("#0072B2", "o", "-"),
    "10GD-GD": ("#E69F00", "s", "--"),
    "GD-GD": ("#CC79A7", "^", ":"),
    "FedAvg": ("#D55E00", "D", "-."),
    "LocalOnly": ("#000000", "v", (0, (5, 1))),
    "Oracle": ("#009E73", "x", (0, (1, 1))),
    "FedAvg + FT": ("#882255", "p", ":"),
    "FedAvg, K = 10": ("#882255", "h", "-."),
    "FedAvg, one layer": ("#E69F00", "<", ":"),
    "FedAvg, one layer, K = 10": ("#999999", ">", "--"),
    "FedPer": ("#56B4E9", "P", "--"),
    "PooledLeastSquares": ("#999999", "*", ":"),
    "FLUTE": ("#C1272D", "*", "-"),
    "FedRep (RI)": ("#56B4E9", "^", "--"),
}
"""Colour, marker and line of each method: the same in every figure."""

LABELS: Mapping[str, str] = {
    "LocalOnly": "Local only",
    "Oracle": "Oracle (B*)",
    "FedPer": "FedAvg, local heads (FedPer)",
    "PooledLeastSquares": "pooled least squares",
}
"""What a legend calls a method, where not by its name."""

_TURNS = (("#56B4E9", "d", "-"), *LOOKS.values(), ("#999999", "X", "-."))


@contextmanager
def style() -> Iterator[None]:
    """Return a context in which figures are drawn in this style; it leaves every other setting alone.

    The first figure of a process settles the backend, and with it whether figures show themselves: `rc_context` would
    undo that on leaving, as it restores all settings.
    """
    import matplotlib as mpl

    settings = cast("dict[str, Any]", mpl.rcParams)
    before = {name: settings[name] for name in STYLE}
    settings.update(STYLE)
    try:
        yield
    finally:
        settings.update(before)


def saved(figure: Figure, stem: str) -> list[Path]:
    """Write a figure as ``stem.png`` and ``stem.pdf``, by rename, and return the paths.

    Without the time of day: the same figure gives the same bytes.
    """
    paths = []
    for suffix, metadata in (("png", {}), ("pdf", {"CreationDate": None})):
        paths.append(Path(f"{stem}.{suffix}"))
        with replacing(paths[-1]) as file:
            figure.savefig(file, format=suffix, metadata=metadata)
    return paths


def look(method: str | Look, before: int = 0) -> dict[str, Any]:
    """Return the colour, marker and line style of a method, or of what is a look itself.

    Methods without a look take turns, after so many lines `before` them.
    """
    own = LOOKS.get(method) if isinstance(method, str) else method
    colour, marker, line = own or _TURNS[before % len(_TURNS)]
    return {"color": colour, "marker": marker, "linestyle": line}


def free_look(method: str, ax: Axes | None) -> dict[str, Any]:
    """Return a method's look, or where the axes have a line of this colour and marker, the next that is free."""
    import matplotlib.colors as mcolors

    lines = list(ax.lines) if ax is not None else []
    own, turns = look(method, len(lines)), [look("", turn) for turn in range(len(_TURNS))]
    taken = {(mcolors.to_hex(line.get_color()), line.get_marker()) for line in lines}
    colours = {colour for colour, _ in taken}
    if (mcolors.to_hex(own["color"]), own["marker"]) not in taken:
        return own

    def seen(each: dict[str, Any]) -> tuple[bool, bool]:
        colour = mcolors.to_hex(each["color"])
        return (colour, each["marker"]) in taken, colour in colours

    return min(turns, key=seen)


def line_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a matplotlib line by their full names, or raise for one that it does not have."""
    from matplotlib.artist import ArtistInspector
    from matplotlib.cbook import normalize_kwargs
    from matplotlib.lines import Line2D

    options: dict[str, Any] = normalize_kwargs(dict(given), Line2D)
    known = ArtistInspector(Line2D).get_setters() if options else []
    for name in options:
        if name not in known:
            raise TypeError(f"plot() got {name!r}, which is no option of a matplotlib line{suggestion(name, known)}")
    return options


_NAMED: WeakKeyDictionary[Line2D, tuple[str, str, Sequence[Mapping[str, str]]]] = WeakKeyDictionary()
"""Of each line that was named here: its method, its label, and what it was run with."""


def tell_apart(ax: Axes, method: str, run_with: Sequence[Mapping[str, str]]) -> None:
    """Name the last line of the axes, and those of the same method again, by as much of `run_with` as it takes."""
    _NAMED[ax.lines[-1]] = method, str(ax.lines[-1].get_label()), run_with
    same = {line: _NAMED[line][2] for line in ax.lines if _NAMED.get(line, ())[:2] == (method, line.get_label())}
    names = dict.fromkeys(same, "")
    for group in range(len(run_with)):
        if len(set(names.values())) == len(names):
            break
        for key in run_with[group]:
            said = {line: each[group].get(key, "") for line, each in same.items()}
            if len(set(said.values())) > 1:
                names = {line: f"{name}, {key}={said[line]}" for line, name in names.items()}
    for line, name in names.items():
        text = f"{method} ({name[2:]})" if name else method
        line.set_label(text)
        _NAMED[line] = method, text, same[line]


def label(method: str) -> str:
    """Return what a legend calls a method."""
    return LABELS.get(method, method)


def draw_level(ax: Axes, value: float, text: str = "", *, below: bool = False, label: str = "_level") -> None:
    """Draw a thin horizontal line at a level that theory names: with a text at its right end, or a label."""
    ax.axhline(value, color="0.35", linewidth=0.7, linestyle=(0, (4, 2)), zorder=1.5, label=label)
    if text:
        ax.annotate(
            text,
            (0.99, value),
            xycoords=("axes fraction", "data"),
            xytext=(0, -2 if below else 2),
            textcoords="offset points",
            horizontalalignment="right",
            verticalalignment="top" if below else "bottom",
            fontsize=6,
            color="0.25",
        )


def draw_tuning(ax: Axes, tuning: npt.NDArray[np.void], method: str) -> None:
    """Draw a method's tuning curve and circle the chosen step; settings that diverged are left out.

    Parameters
    ----------
    ax : Axes
    tuning : structured array with columns step_size, score and chosen
    method : str
    """
    shape, fine = look(method), np.isfinite(tuning["score"])
    if not fine.any():
        return
    ax.plot(tuning["step_size"][fine], tuning["score"][fine], label=label(method), **shape)
    best = tuning[tuning["chosen"]]
    circle = {"linestyle": "none", "marker": "o", "markersize": 8, "fillstyle": "none", "color": shape["color"]}
    ax.plot(best["step_size"], best["score"], **circle)


def plain_ticks(ax: Axes) -> None:
    """Write the ticks of a short logarithmic vertical axis as plain numbers, three or four of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    low, high = ax.get_ylim()
    if high / low > 30:
        return
    ticks = (1.0, 2.0, 5.0) if high / low > 3 else (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    ax.yaxis.set_major_locator(LogLocator(subs=ticks, numticks=12))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())


def numbered_ticks(ax: Axes) -> None:
    """Write 0.2, 0.5, 2, 5 beside the powers of ten of a logarithmic vertical axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    ax.yaxis.set_minor_locator(LogLocator(subs=(0.2, 0.5)))
    for place in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        place(FuncFormatter(lambda value, _: f"{value:g}"))


def draw_curve(
    rounds: Array | Indices,
    values: Array,
    *,
    ax: Axes | None = None,
    label: str,
    ylabel: str,
    band: bool = True,
    method: str | Look | None = None,
    options: Mapping[str, Any] | None = None,
) -> Axes:
    """Draw the median over trials with a 10-90 % band, on a logarithmic axis.

    Parameters
    ----------
    rounds : ndarray (R,)
        Rounds, or what else lies along the horizontal axis.
    values : ndarray (trials, R)
        NaN where a trial has diverged.
    ax : Axes, optional
        A new figure by default.
    label, ylabel : str
        Of the line, and of the axis.
    band : bool
        Draw the band.
    method : str or tuple, optional
        Whose look to use, or a look itself; `label` by default.
    options : mapping, optional
        What matplotlib is told of the line, in the place of that look.
    """
    median, low, high = quantiles(values)
    lines = len(ax.lines) if ax is not None else 0
    shape = look(method or label, lines) | dict(options or {})
    with style():
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(COLUMN_WIDTH, 0.75 * COLUMN_WIDTH), layout="constrained")
            ax.set_xlabel("round")
            ax.set_ylabel(ylabel.replace("_", " "))
            if band and values.shape[0] > 1:
                ax.set_title(f"median and 10-90 % of {values.shape[0]} trials")
        every = max(1, len(rounds) // 8)
        shift = (3 * lines) % every  # markers of different methods do not cover each other
        finite = np.isfinite(median)
        (line,) = ax.plot(rounds[finite], median[finite], label=label, **{"markevery": (shift, every)} | shape)
        if band and values.shape[0] > 1:
            shown = np.isfinite(low)
            top = np.minimum(
                high[shown], values[np.isfinite(values)].max()
            )  # diverged trials have no place of their own
            ax.fill_between(rounds[shown], low[shown], top, color=line.get_color(), alpha=0.2, linewidth=0)
        if np.any(median[finite] > 0):
            ax.set_yscale("log")
    return ax


def draw_prediction(
    ax: Axes, rounds: Array | Indices, distance: Array, low: Array | None = None, high: Array | None = None
) -> None:
    """Draw what theory predicts as thin black lines: the median over trials, and of the ends of its band.

    Parameters
    ----------
    ax : Axes
    rounds : ndarray (R,)
    distance, low, high : ndarray (R,) or (trials, R)
    """
    for values, line in ((low, ":"), (high, ":"), (distance, "-")):
        if values is not None:
            told = line == "-" and "predicted" not in [each.get_label() for each in ax.lines]
            middle = np.median(np.atleast_2d(values), axis=0)
            text = "predicted" if told else "_predicted"
            ax.plot(rounds, middle, color="black", linewidth=0.7, linestyle=line, zorder=3, label=text)
