"""Default figure of a table, for experiments without ``plot``: one line for each method, in panels.

The lines are the methods: the values of a column ``method`` or ``label``, or the different algorithms. Columns with one
value for each name of a method distinguish nothing else. If there is only one method, the lines are the values of the
last column that varies. The first other column that varies makes the columns of panels, and the second makes the rows
of panels. Of each further column, only the rows with its first value are drawn. The caption lists the values that are
left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from linfed._names import axis_label
from linfed.cells.run import Run
from linfed.checks import check_instance, check_text, is_real
from linfed.claims.caveats import edge_note
from linfed.errors import SizeError
from linfed.figures.curves import draw_prediction
from linfed.figures.style import COLUMN_WIDTH, LOOKS, PAGE_WIDTH, Look, inches, line_style, shades
from linfed.plotting.captions import sizes
from linfed.plotting.panels import panels, plot_curves
from linfed.prediction import Prediction, predict
from linfed.search.tuning import Tuned
from linfed.tables.export import format_diverged, short_names, varying
from linfed.tables.grid import changed, checked_cells, fields_of
from linfed.tables.labeled_array import LabeledArray
from linfed.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = ("method", "label")
"""Names of columns whose values become the lines."""

MOST = {"line": 12, "column": 6, "row": 4}
"""Largest numbers of lines in a panel, columns of panels and rows of panels; more values are thinned out evenly."""

MOST_BANDS = 6
"""Largest number of lines in a panel with bands; more bands would cover each other."""

MOST_PREDICTIONS = 12
"""Largest number of runs with predicted curves; a prediction can take seconds."""

PREDICTED_TRIALS = 100
"""Number of trials that all predictions of a figure share; a prediction has at least 5 trials, the first of its run."""

Axis = tuple[str, list[str]]
"""Names of columns that vary together, joined to a text, and the text of their values for each row."""


def plot_runs(
    table: Table, cells: Sequence[Any], metric: str | None = None, *, width: float | str | None = None
) -> tuple[Figure, str]:
    """Plot the curves of a sweep with their predictions, and return the figure and its caption.

    Parameters
    ----------
    table : Table
        Table of the sweep.
    cells : sequence of cells
        The cells that filled the table. The columns named like their fields distinguish the rows.
    metric : str, optional
        Column to plot, with values along the rounds or another axis; by default the first one.
    width : float or {"column", "page"}, optional
        Width in inches, or of a column (3.35) or a page (6.9) of a paper with two columns. By default it depends on the
        number of panels.

    Returns
    -------
    figure : matplotlib Figure
        A line for each method (the median over trials, with the 10-90 % band), in a panel for each setting. The methods
        are the values of a column ``method`` of the table, or else the algorithms. Black lines are predictions
        (`lf.predict`) of the subspace distance; they are dashed if they have warnings.
    caption : str
        The quantities, the sizes, and the rows that are not drawn.

    Raises
    ------
    KeyError
        If the metric is not a column.
    ValueError
        If the column, or every column, has no values along one axis.

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.3), data=lf.FreshSamples(8), n_rounds=20, trials=6,
    ...              problem=lf.SharedRepresentation(n_clients=50, dim=10, rank=2, noise_std=0.1))
    >>> cells = lf.grid(run, **{"data.n_samples": (8, 16)})
    >>> figure, caption = lf.plot_runs(lf.sweep(cells), cells, width="column")
    >>> caption.partition("; ")[0]
    'Subspace distance against round: median and 10-90 % over trials'
    """
    check_instance("table", table, Table, "a lf.Table")
    found = default_figure(table, checked_cells(cells), metric=metric, width=width)
    if found is None:
        raise ValueError("table must have a column with values along one axis, such as the rounds")
    return found


def default_figure(
    table: Table, cells: Sequence[Any], *, metric: str | None = None, width: float | str | None = None
) -> tuple[Figure, str] | None:
    """Draw the figure of a table as `plot_runs` does; None if no column has values along an axis."""
    y = _metric(table) if metric is None else _checked_metric(table, metric)
    if y is None:
        return None
    curves = [row for row in table.rows if _along_an_axis(row, y)]
    x = next(iter(curves[0][y].axes))
    rows = [row for row in curves if x in row[y].axes]
    places, left_out = _places(rows, _fields_that_differ(cells))
    chosen: dict[tuple[str, ...], int] = {}
    for number, place in enumerate(places):
        if place is not None:
            chosen.setdefault(place, number)
    selection = Table(
        [{"=line": line, "=column": column, "=row": row, **rows[i]} for (line, column, row), i in chosen.items()]
    )
    figure, predicted = _draw(selection, x, y, [_run_of(rows[i], cells) for i in chosen.values()], width)
    more = len(places) - places.count(None) - len(chosen)
    left_out += [f"{more} further row{'s' * (more > 1)} with equal settings"] * (more > 0)
    left_out += [f"rows without {y} against {x}"] * (len(rows) < len(table))
    return figure, _caption(selection, x, y, left_out, predicted)


def _metric(table: Table) -> str | None:
    """Return the column to draw: the first along the rounds in all rows, or else the first along any axis."""
    found = [name for name in table.columns if any(_along_an_axis(row, name) for row in table.rows)]
    shared = [name for name in found if all(_along_an_axis(row, name) for row in table.rows)]
    return next((name for name in shared if table.axes(name) == ("trial", "round")), next(iter(shared or found), None))


def _checked_metric(table: Table, name: str) -> str:
    """Return the name of a column; raise if it is unknown or has no values along one axis."""
    if not any(_along_an_axis(row, check_text("metric", name)) for row in table.rows):
        raise ValueError(f"metric = {name!r} must have values along one axis, got the axes {table.axes(name)}")
    return name


def _along_an_axis(row: Mapping[str, Any], name: str) -> bool:
    return isinstance(row.get(name), LabeledArray) and row[name].trials and len(row[name].axes) == 1


# --- which row is drawn where ------------------------------------------------------------------------------------


def _fields_that_differ(cells: Sequence[Any]) -> list[str]:
    """Return the names of the fields in which the cells differ.

    Values come from the cells, because a row can have another value than its cell, e.g. of the engine.
    """
    fields = [dict(fields_of(cell)) for cell in cells]
    return varying(fields) if len(fields) > 1 else []


def _places(rows: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> tuple[list[Any], list[str]]:
    """Return the line, column and row of panels of each table row, None if it is not drawn, and the values left out."""
    names = [name for name in dict.fromkeys((*METHODS, *fields)) if len({repr(row.get(name)) for row in rows}) > 1]
    methods = next(([name] for name in METHODS if name in names), [])
    if methods:
        labels = [str(row.get(methods[0])) for row in rows]
        lines: list[str] | None = labels
        methods = [
            name
            for name in names
            if len({*zip(labels, [repr(row.get(name)) for row in rows], strict=True)}) == len({*labels})
        ]
    else:
        methods = [name for name in names if name.partition(".")[0] == "algorithm"]
        lines = _methods(rows, methods) if methods else None
    others = _axes(rows, [name for name in names if name not in methods])
    if lines is None:
        lines = others.pop()[1] if others else [_class(rows[0])] * len(rows)
    kept = [True] * len(rows)
    left_out = []
    parts = {"line": ("", lines)}
    for part, axis in zip(("column", "row"), others, strict=False):
        parts[part] = axis
    for part, (_, values) in parts.items():
        left_out += _leave(kept, values, MOST[part])
    for _, values in others[2:]:
        left_out += _leave(kept, values, 1)
    empty = [""] * len(rows)
    where = (parts["line"][1], parts.get("column", ("", empty))[1], parts.get("row", ("", empty))[1])
    return [place if keep else None for place, keep in zip(zip(*where, strict=True), kept, strict=True)], left_out


def _leave(kept: list[bool], values: Sequence[str], most: int) -> list[str]:
    """Set `kept` to False for rows whose value is not drawn, and return the values left out.

    At most `most` values are drawn, evenly spaced.
    """
    every = list(dict.fromkeys(values))
    if len(every) <= most:
        return []
    values_kept = (
        {every[i] for i in np.linspace(0, len(every) - 1, most).round().astype(int)} if most > 1 else {every[0]}
    )
    kept[:] = [keep and value in values_kept for keep, value in zip(kept, values, strict=True)]
    return [value for value in every if value not in values_kept]


def _axes(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Axis]:
    """Return the axes of a grid; columns that vary together make one axis."""
    short, together = short_names(rows), dict[tuple[int, ...], list[str]]()
    for name in names:
        values = [repr(row.get(name)) for row in rows]
        together.setdefault(tuple(map(values.index, values)), []).append(name)
    found = []
    for group in together.values():
        texts = [
            ", ".join(f"{short[name]} = {row[name]}" for name in group if row.get(name) is not None) for row in rows
        ]
        found.append((", ".join(short[name] for name in group), texts))
    return found


def _class(row: Mapping[str, Any]) -> str:
    """Return the class name of a row's algorithm; for a tuned algorithm, the class that is tuned."""
    return str(row.get("algorithm.base", row.get("algorithm", "all")))


def _methods(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Return the name of each row's algorithm, with the fields that distinguish it from others of its class."""
    found = [_class(row) for row in rows]
    fields = dict.fromkeys(name.removeprefix("algorithm.").removeprefix("base.") for name in names)
    for field_name in ("", *(field for field in fields if field not in ("algorithm", "base"))):
        values = [row["algorithm"] == "Tuned" if not field_name else _field(row, field_name) for row in rows]
        differ = [{repr(other) for other, name in zip(values, found, strict=True) if name == one} for one in found]
        for i, value in enumerate(values):
            if len(differ[i]) > 1 and value is not None:
                found[i] += f", {field_name} = {value}" if field_name else ", tuned" * value
    return found


def _field(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field of a row's algorithm; for a tuned algorithm, of the algorithm that is tuned."""
    return row.get(f"algorithm.base.{name}", row.get(f"algorithm.{name}"))


# --- predictions -------------------------------------------------------------------------------------------------


def _run_of(row: Mapping[str, Any], cells: Sequence[Any]) -> Run | None:
    """Return the run that filled a row, with the tuned values of its algorithm; None if no such run is found."""
    for cell in cells:
        if isinstance(cell, Run) and all(row.get(k) == v for k, v in fields_of(cell) if k not in ("trials", "engine")):
            tuned = cell.algorithm
            if not isinstance(tuned, Tuned):
                return cell
            names = list(tuned.grid if isinstance(tuned.grid, Mapping) else tuned.grid[0])
            if all(is_real(row.get(name)) for name in names):
                return dataclasses.replace(cell, algorithm=changed(tuned.base, {name: row[name] for name in names}))
    return None


def _predicted(run: Run | None, trials: int) -> Prediction | None:
    """Return the prediction of a run's first trials; None without a prediction of the subspace distance."""
    if run is None or isinstance(run.algorithm, Tuned):
        return None
    try:
        prediction = predict(
            run.algorithm,
            run.problem,
            data=run.data,
            n_rounds=run.n_rounds,
            participation=run.participation,
            trials=trials,
            seed=run.seed,
        )
        has_curve = prediction.distance.size > 0
    except (SizeError, TypeError, ValueError):
        return None
    return prediction if has_curve else None


# --- drawing -----------------------------------------------------------------------------------------------------


def _draw(
    table: Table, x: str, y: str, runs: Sequence[Run | None], wanted: float | str | None
) -> tuple[Figure, list[Prediction]]:
    """Draw the figure, and return it with the predictions in it."""
    lines, columns, rows = ([*dict.fromkeys(row[f"={part}"] for row in table.rows)] for part in MOST)
    looks, labels = _looks(table, lines), {line: _text(line) for line in lines}
    width = max(PAGE_WIDTH if len(columns) > 1 else 1.4 * COLUMN_WIDTH, 1.7 * len(columns) + 0.6)
    width = width if wanted is None else inches(wanted)
    band = len(lines) <= MOST_BANDS
    predictions: dict[int, Prediction] = {}
    if y == "subspace_distance" and x == "round" and len(runs) <= MOST_PREDICTIONS:
        for row, run in zip(table.rows, runs, strict=True):
            trials = min(len(row[y].values), max(5, PREDICTED_TRIALS // len(runs)))
            if (prediction := _predicted(run, trials)) is not None:
                predictions[id(row)] = prediction
    with panels(
        table,
        column="=column",
        row="=row",
        title=lambda value: fill(_text(value), max(1, int(13 * width / len(columns)))),
        width=width,
        height=0.75 + (2.2 if len(rows) == 1 else 1.8 * len(rows)),
        sharex="col",
        sharey=True,
    ) as sheet:
        for ax, part in sheet:
            plot_curves(ax, part, x, y, by="=line", labels=labels, looks=looks, band=band)
            for row in part.rows:
                if prediction := predictions.get(id(row)):
                    rounds = row[y].axes[x]
                    draw_prediction(ax, rounds, prediction.distance[:, rounds], uncertain=bool(prediction.warnings))
            if x == "round":
                ax.locator_params(axis="x", integer=True)
        _cut_off([ax for ax, _ in sheet], table, y)
        what = axis_label(y)
        sheet.label(x, *(f"{fill(_text(row), 28)}\n{what}" if row else what for row in rows))
        entries = len(lines) + len({bool(one.warnings) for one in predictions.values()})
        entry_width = 0.55 + 0.056 * max(map(len, lines))  # inches
        sheet.legend(ncols=max(1, min(entries, int(width / entry_width))))
    return sheet.figure, list(predictions.values())


def _looks(table: Table, lines: Sequence[str]) -> dict[str, str | Look]:
    """Return the look of each line.

    Lines for numbers have shades. The only line of a method has the look of the method. Other lines have the
    general looks in turn.
    """
    classes = {row["=line"]: _class(row) for row in table.rows}
    methods = {line: line if line in LOOKS else classes[line] for line in lines}
    if len(lines) > 1 and all(_is_number(line.rpartition(" = ")[2]) for line in lines):
        return dict(shades(lines))
    alone = [line for line in lines if methods[line] in LOOKS and [*methods.values()].count(methods[line]) == 1]
    turns = iter(range(len(lines)))
    return {
        line: LOOKS[methods[line]] if line in alone else tuple(line_style("", next(turns)).values()) for line in lines
    }


def _is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


def _cut_off(panels: Sequence[Axes], table: Table, y: str) -> None:
    """Limit the height of the panels if runs diverged, to 1000 times the largest initial median."""
    if any(np.any(row.get("diverged", False)) for row in table.rows):
        begin = max(float(np.nanmedian(row[y].values[:, 0])) for row in table.rows)
        if panels[0].get_ylim()[1] > 1e3 * begin:
            least = min(ax.dataLim.y0 for ax in panels)
            panels[0].set_ylim(0.7 * least if least > 0 else None, 1e3 * begin)


def _caption(table: Table, x: str, y: str, left_out: Sequence[str], predicted: Sequence[Prediction]) -> str:
    """Return the caption, with the sizes of the figure's rows."""
    lines = len({row["=line"] for row in table.rows})
    measure = "median and 10-90 %" if lines <= MOST_BANDS else "median"
    several = any(len(row[y].values) > 1 for row in table.rows)
    shown = f"{measure} over trials" if several else "one trial"
    parts = [f"{y.replace('_', ' ')} against {x}: {shown}".capitalize()]
    if predicted:
        most = max(len(one.distance) for one in predicted)
        every = all(len(row[y].values) <= most for row in table.rows)
        parts.append("black lines: predicted median" + ("" if every else f" of the first {most} trials"))
    if any(one.warnings for one in predicted):
        parts.append("dashed black lines: predictions with warnings (`lf.predict` returns them)")
    parts += [text for text in (format_diverged(table.rows), edge_note(table, by="=line")) if text]
    parts += [f"not drawn: {', '.join(left_out)}"] if left_out else []
    return f"{'; '.join(parts)}. {sizes(table)}".strip()


def _text(text: str) -> str:
    """Return a text in the form that matplotlib shows unchanged."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
