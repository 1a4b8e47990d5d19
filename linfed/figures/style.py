"""Style of all figures: sizes for a paper, colours for colour-blind readers, and markers for print in grey."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakKeyDictionary

import numpy as np

from linfed._package import __version__
from linfed.checks import check_choice, check_instance, check_number, check_text, suggestion
from linfed.system.files import named_file, replacing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

COLUMN_WIDTH = 3.35
"""Width of a column of a two-column paper, in inches."""

PAGE_WIDTH = 6.9
"""Width of both columns, in inches."""

WIDTHS: Mapping[str, float] = {"column": COLUMN_WIDTH, "page": PAGE_WIDTH}
"""Widths of figures by name."""

Look: TypeAlias = tuple[str, str, Any]
"""Colour, marker and line style."""

# Okabe and Ito's palette first. Methods of one figure also differ for readers who cannot tell red from green.
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
    "GeneralFLUTE": ("#C1272D", "X", "--"),
    "LGFedAvg": ("#80CDC1", "<", "--"),
    "FedRoD": ("#CAB2D6", "s", "-."),
    "PooledLeastSquares": ("#999999", "*", ":"),
    "FLUTE": ("#C1272D", "*", "-"),
    "FLUTE*": ("#7F0000", "P", "--"),
    "FLUTE, no NC": ("#FB6A4A", "X", ":"),
    "FLUTE*, no NC": ("#E7A0A0", "x", ":"),
    "FedRep*": ("#08306B", "d", "--"),
    "FedRep (RI)": ("#56B4E9", "^", "--"),
    "ridge": ("#8B4DEE", "s", "-."),
    "Algorithm 1": ("#8C510A", "D", "-."),
    "Algorithm 1, small": ("#C9A66B", "s", "-"),
    "(2)-(5)": ("#762A83", "X", "-"),
    "(2)-(5), gauss-seidel": ("#9970AB", "^", ":"),
    "joint ridge": ("#1B7837", "P", "-"),
    "FedProx": ("#F4A582", "s", "--"),
    "SCAFFOLD": ("#053061", "o", "-"),
    "FedVARP": ("#4393C3", "^", "-."),
    "ClusterFedVARP": ("#92C5DE", "v", ":"),
    "FedRolex": ("#C51B7D", "d", "--"),
    "FedSCAVAR": ("#2E4A0F", "P", (0, (5, 1))),
}
"""Look of each method, the same in every figure and unique."""

# Tol's muted palette, with two colours from other palettes; no method has one of these colours.
KINDS: Sequence[Look] = (
    ("#CC6677", "^", "-."),
    ("#44AA99", "s", "--"),
    ("#332288", "o", "-"),
    ("#999933", "D", ":"),
    ("#AA4499", "v", (0, (5, 1))),
    ("#88CCEE", "d", "-"),
    ("#117733", "P", (0, (1, 1))),
    ("#DDCC77", "X", "--"),
    ("#661100", "h", "-."),
    ("#6699CC", "p", ":"),
    ("#888888", "*", "--"),
)
"""Looks of unordered things other than methods, e.g. rules, terms or settings, in turn."""

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
    "axes.prop_cycle": f"cycler(color={[color for color, *_ in KINDS]})",
    "grid.color": "0.9",
    "grid.linewidth": 0.5,
    "figure.dpi": 150,  # on screens
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # TrueType, embedded: text stays text
    "svg.fonttype": "none",
}
"""Settings of matplotlib in linfed's style."""

SHADES = "viridis"
"""Colour map for ordered values, e.g. numbers of samples, used without its light end."""

LABELS: Mapping[str, str] = {
    "LocalOnly": "Local only",
    "Oracle": "Oracle (B*)",
    "FedPer": "FedAvg, local heads (FedPer)",
    "LGFedAvg": "LG-FedAvg",
    "GeneralFLUTE": "FLUTE, general",
    "PooledLeastSquares": "pooled least squares",
    "Algorithm 1, small": "Alg. 1, two step sizes",
}
"""Labels of methods in legends, if different from their names."""


def inches(width: object) -> float:
    """Return a width in inches, given as a number or as a name in `WIDTHS`."""
    if isinstance(width, str):
        return WIDTHS[check_choice("width", width, WIDTHS)]
    return check_number("width", width, positive=True)


def style() -> AbstractContextManager[object]:
    """Draw figures in linfed's style: with colours for colour-blind readers, and in sizes for a paper.

    The call sets the style for all following figures. In a ``with`` statement, the style ends with the statement. All
    other settings of matplotlib stay as they are.

    Returns
    -------
    context manager
        Restores the settings at its end.

    Notes
    -----
    `Result.plot` and `panels` make figures in this style without it. A page of a two-column paper is 6.9 inches wide,
    a column 3.35. Matplotlib's `rc_context` is not used, because it restores all settings.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import linfed as lf
    >>> with lf.style():
    ...     figure, ax = plt.subplots(figsize=(3.35, 2.5), layout="constrained")
    ...     line = ax.semilogy([1, 0.1, 0.01])
    >>> ax.xaxis.label.get_size()
    8.0
    >>> plt.close(figure)
    """
    import matplotlib as mpl

    settings = cast("dict[str, Any]", mpl.rcParams)
    restoration = ExitStack()
    restoration.callback(settings.update, {name: settings[name] for name in STYLE})
    settings.update(STYLE)
    return restoration


def save_figure(
    figure: Figure | Axes, stem: str | os.PathLike[str], *, metadata: Mapping[str, str] | None = None
) -> list[Path]:
    """Write a figure to ``stem.png`` for a web page and to ``stem.pdf`` for a paper, atomically.

    Parameters
    ----------
    figure : Figure or Axes
        The matplotlib figure, or axes of it.
    stem : path
        Path without the suffix; a suffix ``.png`` or ``.pdf`` is removed; suffixes of other pictures are refused.
    metadata : mapping of str to str, optional
        Texts to store in both files: the fields ``Title``, ``Author``, ``Subject``, ``Keywords`` and ``Creator`` of a
        PDF file, and text of the same names in a PNG file. ``Creator`` is linfed with its version by default.

    Returns
    -------
    list of Path
        The paths of the two files.

    Notes
    -----
    The PNG file has 300 dots per inch. The PDF file embeds TrueType fonts, as journals require. The files contain no
    time of creation, so the same figure gives the same bytes.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import linfed as lf
    >>> table = lf.Table([{"m": 5, "error": lf.LabeledArray([[1.0, 0.1]], round=[0, 1])}])
    >>> with lf.panels(table, width="column") as sheet:
    ...     sheet.curves("round", "error", by="m")
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in lf.save_figure(sheet.figure, f"{folder}/error")]
    ['error.png', 'error.pdf']
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    whole: Any = getattr(figure, "figure", figure)
    check_instance("figure", whole, Figure, "a matplotlib Figure or Axes")
    check_instance("metadata", metadata, (Mapping, NoneType), "a mapping of texts")
    for field, text in (metadata or {}).items():
        check_text("a key of metadata", field)
        check_text(f"metadata[{field!r}]", text)
    suffix = named_file(stem, "", name="stem").suffix
    if suffix.lower()[1:] in {*whole.canvas.get_supported_filetypes()} - {"png", "pdf"}:
        raise ValueError(f"stem = {str(stem)!r} must not end with {suffix}: a .png and a .pdf file are written")
    name = os.fsdecode(stem)
    name = name.removesuffix(".png").removesuffix(".pdf")
    texts = {"Creator": f"linfed {__version__}", **(metadata or {})}
    paths, layout = [], whole.get_layout_engine()
    with style():
        try:
            for suffix, time in (("png", {}), ("pdf", {"CreationDate": None})):
                paths.append(Path(f"{name}.{suffix}"))
                with replacing(paths[-1]) as file:
                    whole.savefig(file, format=suffix, metadata={**texts, **time})
                with mpl.rc_context({"figure.autolayout": False, "figure.constrained_layout.use": False}):
                    whole.set_layout_engine(None)  # the second file has the layout of the first, without a further draw
        finally:
            if layout is not None:
                whole.set_layout_engine(layout)
    return paths


def line_style(method: str | Look, before: int = 0) -> dict[str, Any]:
    """Return the colour, marker and line style of a method or of a look.

    A method without a look gets one of `KINDS`, the one that follows `before` earlier lines.
    """
    look = LOOKS.get(method) if isinstance(method, str) else method
    colour, marker, line = look or KINDS[before % len(KINDS)]
    if not look:  # once all colours are in use, repeat them with other markers
        marker = KINDS[(before + before // len(KINDS)) % len(KINDS)][1]
    return {"color": colour, "marker": marker, "linestyle": line}


def shades(values: Iterable[Any]) -> dict[Any, Look]:
    """Return a look for each of some ordered values, from dark to light, with markers for print in grey."""
    import matplotlib as mpl
    import matplotlib.colors as mcolors

    found = list(dict.fromkeys(values))
    colours = mpl.colormaps[SHADES](np.linspace(0.0, 0.85, max(2, len(found))))
    markers = [marker for _, marker, _ in KINDS]
    return {
        value: (mcolors.to_hex(colour), markers[turn % len(markers)], "-")
        for turn, (value, colour) in enumerate(zip(found, colours, strict=False))
    }


def free_look(method: str, ax: Axes | None) -> dict[str, Any]:
    """Return the look of a method, or the next unused one if the axes already have a line of its colour and marker."""
    import matplotlib.colors as mcolors

    lines = list(ax.lines) if ax is not None else []
    default, turns = line_style(method, len(lines)), [line_style("", turn) for turn in range(len(KINDS) ** 2)]
    taken = {(mcolors.to_hex(line.get_color()), line.get_marker()) for line in lines}
    colours = {colour for colour, _ in taken}
    if (mcolors.to_hex(default["color"]), default["marker"]) not in taken:
        return default

    def seen(each: dict[str, Any]) -> tuple[bool, bool]:
        colour = mcolors.to_hex(each["color"])
        return (colour, each["marker"]) in taken, colour in colours

    return min(turns, key=seen)


def line_properties(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties of a matplotlib line by their full names; raise if a property is unknown."""
    from matplotlib.artist import ArtistInspector
    from matplotlib.cbook import normalize_kwargs
    from matplotlib.lines import Line2D

    options: dict[str, Any] = normalize_kwargs(dict(given), Line2D)
    setters = ArtistInspector(Line2D).get_setters() if options else []
    for name in options:
        if name not in setters:
            raise TypeError(f"{name!r} is not a property of a matplotlib line{suggestion(name, setters)}")
    return options


_NAMED: WeakKeyDictionary[Line2D, tuple[str, str, Sequence[Mapping[str, str]]]] = WeakKeyDictionary()
"""For each line named by `tell_apart`: its method, its label, and the options of its run."""


def tell_apart(ax: Axes, method: str, run_with: Sequence[Mapping[str, str]]) -> None:
    """Label the last line of the axes, and relabel lines of the same method, with the options in which they differ.

    Parameters
    ----------
    ax : Axes
    method : str
        Method of the last line.
    run_with : sequence of mapping
        Options of its run in groups, the most important group first. A label uses no more groups than are needed to
        distinguish the lines.
    """
    _NAMED[ax.lines[-1]] = method, str(ax.lines[-1].get_label()), run_with
    same = {line: _NAMED[line][2] for line in ax.lines if _NAMED.get(line, ())[:2] == (method, line.get_label())}
    names = dict.fromkeys(same, "")
    for group in range(len(run_with)):
        if len(set(names.values())) == len(names):
            break
        for key in run_with[group]:
            option_values = {line: each[group].get(key, "") for line, each in same.items()}
            if len(set(option_values.values())) > 1:
                names = {line: f"{name}, {key}={option_values[line]}" for line, name in names.items()}
    for line, name in names.items():
        text = f"{method} ({name[2:]})" if name else method
        line.set_label(text)
        _NAMED[line] = method, text, same[line]


GREEK = "Delta|alpha|beta|delta|eta|gamma|kappa|lambda|phi|sigma|tau|theta"
SYMBOL = re.compile(
    rf"(?<![\w$\\'-])(?:({GREEK})_?([0-9a-z])?|([BCEKMTWdkmnpq]|dist(?=_))(\*)?(?:_(\w{{1,3}}))?)(?![\w'(.-])"
)
"""Mathematical symbol in a text: a Greek letter's name or one of the papers' letters, with a star or an index."""


def with_symbols(text: str) -> str:
    r"""Return a text with its mathematical symbols in italics, as matplotlib's mathtext. Formulas in $ stay.

    >>> with_symbols("distance to B*, m_new = 5, eta_s, K = 10, n_clients")
    'distance to $B^*$, $m_{new}$ = 5, $\\eta_{s}$, $K$ = 10, n_clients'
    """

    def italic(found: re.Match[str]) -> str:
        greek, number, letter, star, index = found.groups()
        name = f"\\{greek}" if greek else "\\mathrm{dist}" if letter == "dist" else letter
        return f"${name}{'^*' if star else ''}{f'_{{{number or index}}}' if number or index else ''}$"

    parts = text.split("$")
    return "$".join(part if turn % 2 else SYMBOL.sub(italic, part) for turn, part in enumerate(parts))


THOUSAND = 1000.0


def format_texts(figure: Figure) -> None:
    """Write the symbols of a figure in italics (`with_symbols`), and long numbers on its axes as 10,000."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, ScalarFormatter

    for text in _texts(figure):
        text.set_text(with_symbols(text.get_text()))
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            ticks = axis.get_major_formatter()
            if isinstance(axis.get_major_locator(), FixedLocator):
                places = axis.get_majorticklocs().tolist()
                texts = [str(text) for text in ticks.format_ticks(places)]
                if any(with_symbols(text) != text for text in texts):
                    axis.set_ticks(places, [with_symbols(text) for text in texts])
            elif isinstance(ticks, ScalarFormatter) and max(map(abs, axis.get_view_interval())) >= THOUSAND:
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _texts(artist: Artist) -> Iterator[Text]:
    """Yield the texts of an artist, without the labels of ticks, whose creation is slow."""
    from matplotlib.axis import Axis
    from matplotlib.text import Text

    if isinstance(artist, Text):
        yield artist
    for part in [artist.label] if isinstance(artist, Axis) else artist.get_children():
        yield from _texts(part)


def label(method: str) -> str:
    """Return the label of a method in legends."""
    return LABELS.get(method, method)


def draw_level(ax: Axes, value: float, text: str = "", *, below: bool = False, label: str = "_level") -> None:
    """Draw a thin horizontal line at a predicted level, with a text at its right end or a label in the legend."""
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


MANTISSAS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Mantissas of the ticks of a logarithmic axis, from few ticks to many."""

LEAST_TICKS = 3
"""Minimum number of labelled ticks of a logarithmic axis."""


def plain_ticks(ax: Axes) -> None:
    """Add ticks with plain numbers to logarithmic axes that show fewer than three powers of ten.

    Axes with ticks that were set explicitly, and axes with a single point, stay as they are.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(float(end) for end in axis.get_view_interval())
        if axis.get_scale() != "log" or type(axis.get_major_locator()) is not LogLocator or not 0 < low < high < np.inf:
            continue
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        counts = [np.sum([(powers * one >= low) & (powers * one <= high) for one in each]) for each in MANTISSAS]
        if counts[0] >= LEAST_TICKS:
            continue
        enough = [each for each, count in zip(MANTISSAS, counts, strict=True) if count >= LEAST_TICKS]
        near = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], min_n_ticks=LEAST_TICKS)
        axis.set_major_locator(LogLocator(subs=enough[0], numticks=15) if enough else near)
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())


def same_scale(panels: Sequence[Axes]) -> None:
    """Give all panels the same vertical range, so that slopes are comparable; label ticks only in the first column."""
    ends = np.array([ax.get_ylim() for ax in panels])
    for ax in panels:
        ax.set_yscale(ax.get_yscale())  # makes the ticks independent of the other panels
        ax.set_ylim(ends.min(), ends.max())
        plain_ticks(ax)
        place = ax.get_subplotspec()
        ax.tick_params(labelleft=place is None or place.is_first_col())


def numbered_ticks(ax: Axes) -> None:
    """Label 0.2, 0.5, 2 and 5 as well as the powers of ten on a logarithmic vertical axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    ax.yaxis.set_minor_locator(LogLocator(subs=(0.2, 0.5)))
    for place in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        place(FuncFormatter(lambda value, _: f"{value:g}"))
