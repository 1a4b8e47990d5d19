"""How a result shows itself: in a figure, in a notebook, and to pandas and xarray."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from linfed.errors import DivergenceWarning, check_bool, check_choice, check_instance, shown
from linfed.figures import html as page
from linfed.figures import style as plotting
from linfed.simulation import labels
from linfed.simulation.status import LEFT_OUT, Status
from linfed.system.extras import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from linfed.simulation.results import Result

PREDICTED_TRIALS = 5
"""Trials whose truths and starts are behind a prediction that is drawn."""


def plotted(
    result: Result,
    metric: str,
    line_options: Mapping[str, Any],
    *,
    ax: Axes | None,
    label: str | None,
    band: bool,
    predicted: bool,
) -> Axes:
    """Draw a metric against rounds (`Result.plot`)."""
    from matplotlib.axes import Axes

    check_instance("ax", ax, (Axes, NoneType), "matplotlib Axes")
    for name, value in (("band", band), ("predicted", predicted)):
        check_bool(name, value)
    if metric not in result.metrics.absent:
        check_choice("metric", metric, list(result.metrics))
    check_choice("metric with predicted = True", metric, ["subspace_distance"] if predicted else [metric])
    values = result.metrics[metric]
    options = plotting.free_look(result.name, ax) | plotting.line_options(line_options)
    ax = plotting.draw_curve(
        result.rounds, values, ax=ax, label=label or result.name, band=band, ylabel=metric, options=options
    )
    if not label:
        plotting.tell_apart(ax, result.name, labels.differences(result, metric))
    if predicted:
        found = result.predict(trials=min(result.trials, PREDICTED_TRIALS))
        plotting.draw_prediction(ax, found.rounds, found.distance, found.low, found.high)
    return ax


def html(result: Result) -> str:
    """Return what was run, how it ended, and the first metric over rounds, as a part of a page."""
    said = [
        ("algorithm", labels.told(result.algorithm)),
        ("problem", labels.told(result.problem) if result.problem is not None else "no truth given"),
        ("data", labels.told(result.data)),
        ("run", f"{labels.length(result)}, {result.participants} clients a round, seed {shown(result.seed)}"),
        ("engine", f"{result.engine}, {result.seconds:.2f} s"),
        ("trials", labels.ended(result)),
    ]
    last = page.table(("at the end", "median", "10 %", "90 %"), labels.at_the_end(result)) if result.metrics else ""
    return page.beside(page.facts(said) + last, _figure(result))


def _figure(result: Result) -> str:
    """Return a figure of the first metric; nothing where there is no curve."""
    name = next(iter(result.metrics), "")
    at = page.points(len(result.rounds))
    values = result.metrics[name][:, at] if name else np.empty((0, 0))
    if len(at) < 2 or not np.isfinite(values).any():
        return ""

    def draw(ax: Axes) -> None:
        plotting.draw_curve(result.rounds[at], values, ax=ax, label=result.name, ylabel=name)
        margin = 0.04 * (result.rounds[-1] - result.rounds[0])
        ax.set_xlim(result.rounds[0] - margin, result.rounds[-1] + margin)  # also where all trials diverged
        ax.set(xlabel="round", ylabel=name.replace("_", " "))

    return page.figure(draw)


def to_records(result: Result) -> list[dict[str, Any]]:
    """Return a record for each trial, round and metric (`Result.to_records`)."""
    return [
        {"trial": trial, "round": int(round_), "metric": name, "value": float(value), "status": status.name}
        for name, values in result.metrics.items()
        for trial, (status, row) in enumerate(zip(result.status, values, strict=True))
        for round_, value in zip(result.rounds, row, strict=True)
    ]


def to_pandas(result: Result) -> Any:
    """Return a data frame (`Result.to_pandas`)."""
    pandas = optional("pandas", "tables", "to_pandas()")
    trials, rounds = result.trials, len(result.rounds)
    _warn_of_divergence(result)
    places = {
        "trial": np.repeat(np.arange(trials), rounds),
        "round": np.tile(result.rounds, trials),
        "status": np.repeat([status.name for status in result.status], rounds),
    }
    return pandas.DataFrame(places | {name: values.ravel() for name, values in result.metrics.items()})


def _warn_of_divergence(result: Result) -> None:
    """Warn the caller of a result's method if trials diverged."""
    lost = result.status.count(Status.DIVERGED)
    if lost:
        warnings.warn(f"{lost} of {result.trials} trials diverged: {LEFT_OUT}", DivergenceWarning, stacklevel=4)


def to_xarray(result: Result) -> Any:
    """Return a dataset (`Result.to_xarray`)."""
    xarray = optional("xarray", "tables", "to_xarray()")
    _warn_of_divergence(result)
    told = {"algorithm": labels.told(result.algorithm), "data": labels.told(result.data), "engine": result.engine}
    if result.problem is not None:
        told["problem"] = labels.told(result.problem)
    coordinates = {
        "trial": np.arange(result.trials),
        "round": result.rounds,
        "status": ("trial", [status.name for status in result.status]),
    }
    metrics = {name: (("trial", "round"), values) for name, values in result.metrics.items()}
    return xarray.Dataset(metrics, coords=coordinates, attrs=told)
