"""Scores of tuning curves, the choice of a setting by its score, and the extension of a grid beyond its edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed._values import Configuration, check_fields, positive, takes
from linfed.algorithms.parts.base import Algorithm
from linfed.checks import check_array, check_numbers, check_shape, is_real, short_repr
from linfed.simulation.metrics import METRICS
from linfed.tables.grid import at_path, changed

TIES_WITHIN = 0.01
"""Scores within this share of the best score count as ties; the smallest of the tied settings is chosen."""


def area(rounds: Indices, curve: Array) -> float:
    """Return the mean of log10 of a curve over its rounds, without the first."""
    logs = np.log10(np.maximum(curve, np.finfo(float).tiny))
    return float(logs[1:].mean()) if len(logs) > 1 else float(logs[0])


def final(rounds: Indices, curve: Array) -> float:
    """Return the last value of a curve."""
    return float(curve[-1])


SCORES: dict[str, Callable[[Indices, Array], float]] = {"area": area, "final": final}
"""Scores by name."""


def of_results(metric: object) -> bool:
    """Return whether a metric is a function of the whole result, which is measured once, at the end.

    Otherwise it is a name or a function of two arguments, state and truth, as in `simulate`.
    """
    return callable(metric) and not takes(metric, 2)


def check_made_small(metric: object) -> None:
    """Raise if a metric is a function with another signature, or if larger values of it are better.

    Diverged trials count as infinite, so tuning can only minimise.
    """
    if callable(metric) and not (takes(metric, 1) or takes(metric, 2)):
        raise TypeError(
            f"metric = {short_repr(metric)} must be a function of state and truth, as in simulate, or of the result"
        )
    if isinstance(metric, str) and metric in METRICS and METRICS[metric].is_share:
        raise ValueError(
            f"metric = {metric!r} must be a metric to minimise, but larger values are better; use 'test_loss', or a "
            f"function that returns 1 - np.nanmean(result.per_client({metric!r}), axis=1)"
        )


@dataclass(frozen=True)
class RoundsTo(Configuration):
    """Score for `tune`: the number of rounds that the curve needs to reach a level and keep it.

    Parameters
    ----------
    level : float
        The level, positive.

    Raises
    ------
    ValueError
        If `level` is not positive; when called also for a curve of a single round, or of another number of rounds.

    Notes
    -----
    The score is the round from which on the curve stays at or below the level. Between two recorded rounds, the
    logarithm of the curve is interpolated. If the last value is above the level, the score exceeds the number of
    rounds, and increases with this value.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.RoundsTo(0.1)([0, 1, 2], [1.0, 0.2, 0.05])
    1.5
    >>> lf.RoundsTo(0.1)([0, 1, 2, 3, 4], [1.0, 0.05, 0.2, 0.05, 0.05])
    2.5
    """

    level: float

    def __post_init__(self) -> None:
        check_fields(self, level=positive)

    def __call__(self, rounds: npt.ArrayLike, curve: npt.ArrayLike) -> float:
        """Return the score of a curve."""
        at = check_array("rounds", rounds, [("R",)])
        found = check_numbers("curve", curve)
        check_shape("curve", found, at.shape, "(R,) as rounds")
        if len(at) < 2:
            raise ValueError(
                "RoundsTo requires a metric that is recorded over rounds; a function of the result is measured only at "
                "the end"
            )
        values = np.nan_to_num(found, nan=np.inf, posinf=np.inf)
        logs = np.log10(np.maximum(values, 1e-300)) - math.log10(self.level)
        is_above = logs > 0
        if is_above[-1]:
            return float(at[-1] * (1.0 + logs[-1]))
        i = int(np.flatnonzero(is_above).max(initial=-1)) + 1
        return float(at[i] - (logs[i] / (logs[i] - logs[i - 1])) * (at[i] - at[i - 1])) if i else float(at[0])


def within(
    scores: Sequence[float] | Array, ties_within: float = TIES_WITHIN, *, logarithmic: bool = False
) -> list[int]:
    """Return the indices of the settings whose scores tie with the smallest score.

    Parameters
    ----------
    scores : array_like (settings,)
        Score of each setting. Smaller is better; NaN and infinity are never chosen.
    ties_within : float
        Scores within this share of the smallest one are ties.
    logarithmic : bool
        If True, the scores are log10 of the quantity to which `ties_within` is relative.

    Returns
    -------
    list of int
        Empty if no score is finite.
    """
    table = np.asarray(scores, dtype=float)
    found = table[table < np.inf]
    if not found.size:
        return []
    limit = tie_limit(float(found.min()), ties_within, logarithmic=logarithmic)
    return [int(index) for index in np.flatnonzero(table <= limit)]


def tie_limit(best: float, ties_within: float, *, logarithmic: bool = False) -> float:
    """Return the largest score that ties with the best one; the arguments are as in `within`."""
    slack = math.log10(1.0 + ties_within) if logarithmic else ties_within * abs(best)
    return best + slack if math.isfinite(best) else best


def quantile_curve(values: Array, quantile: float) -> Array:
    """Return the quantile over trials, (R,), of values (trials, R), in which NaN counts as infinite."""
    known = np.where(np.isnan(values), np.inf, values)
    return np.asarray(np.quantile(known, quantile, axis=0, method="inverted_cdf"))


def smallest(settings: Sequence[Mapping[str, Any]], ties: Sequence[int]) -> int:
    """Return the index of the smallest of the tied settings; their numeric fields are compared in order."""
    names = _numeric(settings)
    return min(ties, key=lambda index: ([settings[index][name] for name in names], index))


def at_grid_edge(settings: Sequence[Mapping[str, Any]], chosen: Sequence[int]) -> tuple[str, ...]:
    """Return the fields in which all chosen settings have the smallest value tried, or all have the largest."""
    edges = []
    for name in _numeric(settings):
        tried = {setting[name] for setting in settings}
        values = {settings[index][name] for index in chosen}
        if len(tried) > 1 and values in ({min(tried)}, {max(tried)}):
            edges.append(name)
    return tuple(edges)


def _numeric(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fields that are numbers in every setting."""
    return [name for name in settings[0] if all(is_real(setting[name]) for setting in settings)]


def edge_message(settings: Sequence[Mapping[str, Any]], name: str, value: Any) -> str:
    """Return the warning that the best value of a field is at the edge of its grid."""
    tried = sorted({setting[name] for setting in settings})
    end = "smallest" if value == tried[0] else "largest"
    listed = ", ".join(f"{float(one):g}" for one in tried)
    return (
        f"the best {name} = {float(value):g} is the {end} value of its grid [{listed}]: the optimum may lie outside; "
        "widen the grid, or tune with extend=True"
    )


def beyond(
    algorithm: Algorithm, settings: Sequence[Mapping[str, Any]], best: int, edges: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the new settings that the algorithm allows if the grid is extended by one value beyond each edge."""
    grid = {name: sorted({setting[name] for setting in settings}) for name in settings[0]}
    for name in edges:
        values = grid[name]
        end, before = (values[0], values[1]) if settings[best][name] == values[0] else (values[-1], values[-2])
        whole = isinstance(at_path(changed(algorithm, settings[best]), name), int)
        value = _next(end, before, whole=whole, geometric=values[0] > 0)
        if _allowed(algorithm, {**settings[best], name: value}):
            grid[name] = [*values, value]
    wider = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [setting for setting in wider if setting not in settings and _allowed(algorithm, setting)]


def _allowed(algorithm: Algorithm, setting: Mapping[str, Any]) -> bool:
    """Return whether the algorithm allows the values of a setting together."""
    try:
        changed(algorithm, setting)
    except ValueError:
        return False
    return True


def _next(end: Any, before: Any, *, whole: bool, geometric: bool) -> Any:
    """Return the value that follows `before` and `end` in a grid."""
    if whole:
        ratio, rest = divmod(int(end) ** 2, int(before)) if geometric else (0, 1)
        return int(2 * end - before) if rest or ratio == 0 else ratio
    return float(end) * (float(end) / float(before)) if geometric else float(2 * end - before)
