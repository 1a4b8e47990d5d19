"""Search for the smallest number of samples, clients, rounds or another size at which a run reaches a level."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from linfed._values import takes
from linfed.cells.smallest_size import SmallestSize
from linfed.checks import short_repr, suggestion
from linfed.search.levels import Level
from linfed.sweeps.sweep import sweep
from linfed.tables.grid import Cell, checked_cells
from linfed.tables.table import Table


def find_smallest(
    path: str,
    cells: Cell | Sequence[Cell],
    *,
    reaches: Level,
    share: float = 0.5,
    start: float | Callable[[Any], float] | None = None,
    lower: float | Callable[[Any], float] | None = None,
    upper: float | Callable[[Any], float] | None = None,
    resolution: float = 0.05,
    confidence: float = 0.95,
    batch: int = 8,
    trials: int = 64,
    budget: int | None = None,
    step_size: Callable[..., float] | None = None,
    predicted: bool = False,
    **sweep_options: Any,
) -> Table:
    """Find the smallest size at which a given share of the trials reaches a level, for each cell.

    Parameters
    ----------
    path : str
        The size to minimise: a dotted path to a numeric field of the cells, as in `lf.grid` (``"data.n_samples"``), or
        ``"round"``, for which a single run of all `trials` is enough; `start`, `lower`, `upper`, `budget` and, except
        for predictions, `batch` and `resolution` are then not used.
    cells : cell or sequence of cells
        The settings: `lf.Run` objects, or custom frozen dataclasses with a field ``trials`` and the one that `path`
        names.
    reaches : Level
        The level to reach: ``lf.below("subspace_distance", 0.1)`` or ``lf.above(..)``.
    share : float
        Share of the trials that must reach the level, between 0 and 1.
    start, lower, upper : float or callable, optional
        First size to try and the ends of the search range. Defaults: the cell's own size, 1 (for real-valued sizes
        ``start / 1024``) and ``1024 * start``. If a run is not possible at the default of `lower`, such as a number of
        samples for which `step_size` has no value, `lower` is the smallest size at which it is possible. A function of
        the cell sets a different value for each cell, such as ``lower=lambda run: run.algorithm.rank + 2``.
    resolution : float
        Target width of the confidence interval, relative to the size.
    confidence : float
        Confidence level of the interval.
    batch, trials, budget : int
        Trials in the first batch at a size, maximum trials per size, and maximum trials over all sizes (``16 * trials``
        by default).
    step_size : callable, optional
        The step size at each size: a function of any of the keywords ``dim``, ``rank``, ``n_clients``, ``n_samples``,
        ``participants`` and ``noise_std``, such as `lf.theory.best_step_size`, or of the cell. To tune the step size
        instead, give the cells an `lf.Tuned` algorithm.
    predicted : bool
        If True, also find the smallest size according to `lf.predict`, for the ground truths of the measured trials.
    **sweep_options
        ``store``, ``executor``, ``workers``, ``progress`` and the other options of `lf.sweep`. With a store, a later
        call with another level, share or budget reuses all runs.

    Returns
    -------
    Table
        One row per cell, with the columns

        - ``base.*``: the cell's fields;
        - the last part of `path`: the smallest size, NaN if censored; ``crossing``: the same, interpolated between
          integers;
        - ``low``, ``high``: the confidence interval; the smallest size is above ``low`` and at most ``high``;
        - ``censored``: "above" if the largest size tried does not reach the level, "below" if the smallest one does;
          one of ``low`` and ``high`` is then the bound. With ``stop_reason = "end"`` this size is `upper` or `lower`;
        - ``stop_reason``: "resolved" if the interval has its target width, else "trials", "budget" or "end" (of
          the range);
        - ``violations``: number of sizes that contradict monotonicity (see Notes);
        - ``total_trials``: trials over all sizes;
        - ``step_size`` and, if tuned, ``at_grid_edge``, both at the smallest size tried that reaches the level;
        - along ``tried`` (the sizes): ``count``, the number of trials, ``reached``, the number of these that reach the
          level, and ``shortfall``, the number of decades by which each trial misses it, at most 0 if it is reached;
        - ``replicates``: bootstrap replicates for `lf.fit_power_law`.

        With `predicted`, there are also

        - ``predicted``, ``predicted_crossing``, ``predicted_low``, ``predicted_high``, ``predicted_censored``: the same
          for predictions, each for the ground truth and initialisation of one trial;
        - ``predicted_trials``: the largest number of predicted trials at one size;
        - ``missing_prediction``: the reason why there is no prediction at the largest size predicted not to reach
          the level, else "".

    Raises
    ------
    TypeError, ValueError
        If `path` is not a field, a size is out of range, or an argument is invalid. Nothing has been run then.
    SweepError
        As in `lf.sweep`.

    Notes
    -----
    The share of successes is assumed to increase with the size. ``violations`` counts the sizes that fail with
    confidence although a smaller size succeeds with confidence. If it is not 0, the assumption does not hold: do
    not use the row's size and interval, which are not set to NaN.

    The search doubles or halves the size until it has a bracket, then bisects on a log scale. It then spends trials at
    both ends of the bracket, and beyond them, until binomial tails (Clopper-Pearson) exclude `share`. There are up to
    ``L = 1 + log2(trials/batch)`` looks, each with error ``(1 - confidence)/(2 L)``. Trial j has the same seed at all
    sizes (common random numbers). Errors are therefore correlated over sizes, and an error away from the threshold is
    also one at the threshold. In simulations at a nominal 95 %, the interval covered at least 97 %, both for identical
    trials at all sizes and for independent ones.

    Within the bracket, ``crossing`` interpolates the share-quantile of the shortfalls over trials, so it resolves a
    threshold between two integers even if the share jumps from 0 to 1. For ``"round"``, a trial counts from the first
    round in which it reaches the level.

    Predictions differ between trials because ground truths and initialisations do. The search over predictions follows
    the same rules as the search over runs. The prediction of trial j is for the ground truth and the initialisation of
    trial j of the runs. The interval accounts for random ground truths and initialisations. The number of trials is at
    most the number of measured ones. The search starts at the measured size and first changes it by the resolution;
    the result does not depend on where it starts.

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.Run(
    ...     algorithm=lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9)),
    ...     problem=lf.SharedRepresentation(n_clients=50, dim=20, rank=2),
    ...     data=lf.FreshSamples(n_samples=8),
    ...     n_rounds=40,
    ... )
    >>> table = lf.find_smallest("data.n_samples", run, reaches=lf.below("subspace_distance", 0.01), trials=16)
    >>> table["n_samples"], table["low"] < table["crossing"] <= table["high"]
    (4, True)
    """
    _check_options(sweep_options)
    options = locals()
    settings = {field.name: options[field.name] for field in dataclasses.fields(SmallestSize) if field.name != "base"}
    several = [cells] if hasattr(cells, "run") else cells
    return sweep(
        [SmallestSize(base=cell, **settings | _sizes_of(cell, settings)) for cell in checked_cells(several)],
        **sweep_options,
    )


def _sizes_of(cell: Cell, settings: dict[str, Any]) -> dict[str, Any]:
    """Return start, lower and upper for a cell, if they are functions of the cell."""
    found = {}
    for name in ("start", "lower", "upper"):
        if callable(settings[name]):
            if not takes(settings[name], 1):
                raise TypeError(f"{name} = {short_repr(settings[name])} must be a number or a function of the cell")
            found[name] = settings[name](cell)
    return found


def _check_options(options: dict[str, Any]) -> None:
    """Raise unless all options are arguments of `sweep`."""
    allowed = [name for name in inspect.signature(sweep).parameters if name != "cells"]
    for name in options:
        if name not in allowed:
            names = ", ".join(allowed)
            raise TypeError(
                f"find_smallest has no argument {name!r}{suggestion(name, allowed)}; lf.sweep allows {names}"
            )
