"""The least size that serves: how many samples, clients or rounds a run needs to reach a level."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from linfed._values import takes
from linfed.cells.smallest_size import Least
from linfed.errors import shown, suggestion
from linfed.search.levels import Level
from linfed.sweeps.sweep import sweep
from linfed.tables.grid import Cell, checked_cells
from linfed.tables.table import Table


def least(
    path: str,
    cells: Cell | Sequence[Cell],
    *,
    reaches: Level,
    share: float = 0.5,
    start: float | Callable[[Any], float] | None = None,
    least: float | Callable[[Any], float] | None = None,
    most: float | Callable[[Any], float] | None = None,
    resolution: float = 0.05,
    confidence: float = 0.95,
    batch: int = 8,
    trials: int = 64,
    budget: int | None = None,
    step_size: Callable[..., float] | None = None,
    predicted: bool = False,
    **means: Any,
) -> Table:
    """Return the least size at which a share of the trials reaches a level, for each of the base cells.

    Parameters
    ----------
    path : str
        What is to be least: a dotted path to a field of the cells, as `lf.grid` takes them, whole numbers or real ones
        (``"data.n_samples"``); or ``"round"``, of which one run knows all.
    cells : cell or sequence of cells
        The settings: `lf.Run`, or frozen dataclasses of one's own with fields `path` and ``trials``.
    reaches : Level
        ``lf.below("subspace_distance", 0.1)`` or ``lf.above(..)``.
    share : float
        Which share of the trials is to reach it, between 0 and 1.
    start, least, most : float or callable, optional
        Where to begin, by default at the cell's own size; the ends of the range, by default 1 (of real numbers the
        start over 1024) and 1024 times the start. A function of the cell gives each cell its own, such as
        ``least=lambda run: run.algorithm.rank + 2``.
    resolution : float
        The wanted width of the interval, as a share of the size.
    confidence : float
        Of the interval.
    batch, trials, budget : int
        Trials of a first look at a size; most trials of one size; most of all sizes together (16 times `trials`).
    step_size : callable, optional
        The step at each size: a function of ``dim``, ``rank``, ``n_clients``, ``n_samples``, ``participants`` by
        keyword, such as `lf.theory.best_step_size`, or of the cell. (To tune it at each size, give the cells a
        `lf.Tuned` algorithm.)
    predicted : bool
        If True, find the smallest size that `lf.predict` gives as well, for the truths of the measured trials.
    **means
        ``store``, ``executor``, ``workers``, ``progress`` and so on, as in `lf.sweep`. A store keeps every run, so that
        another level, share or budget goes on from there.

    Returns
    -------
    Table
        A row for each cell. Its columns: the cell's fields after ``base.``; under the last part of `path` the least
        size; ``crossing``, the same between whole numbers; ``low`` and ``high``: it lies above the first, and at most
        at the second; ``censored``, "above" where `most` does not reach the level, "below" where `least` does, and
        then the size is NaN and one of ``low`` and ``high`` is the bound; ``stopped``, "resolved" where the interval
        is as narrow as wanted, else "trials", "budget", or "end" of the range; ``violations``; ``spent``, trials over
        all sizes; ``step_size`` and, of a tuned one, ``at_edge``, at the least size tried that serves; along
        ``tried``, the sizes, the ``count`` of trials and of those that ``reached`` the level, and each trial's
        ``margin``, decades above the level; ``replicates``, for `lf.fit`. With `predicted`: ``predicted``,
        ``predicted_crossing``, ``predicted_low``, ``predicted_high``, ``predicted_censored``, the same for the
        predictions, each of one trial's truth and start; ``predicted_trials``, the largest number of them at one size;
        ``missing``, the reason why there is no prediction at the largest size that is predicted not to serve, else "".

    Raises
    ------
    TypeError, ValueError
        For a path that is no field, sizes out of range or arguments that cannot be meant: before anything is run.
    SweepError
        As in `lf.sweep`.

    Notes
    -----
    The share of successes is assumed to grow with the size; ``violations`` counts the sizes that surely fall short
    although a smaller one surely serves, and where it is not 0 the answer is none.

    Sizes are doubled or halved up to a bracket, which is halved in the logarithm; then trials are spent at its two
    ends, and beyond them, until binomial tails (Clopper and Pearson) exclude the share, at every of up to
    ``L = 1 + log2(trials/batch)`` looks with error (1 - confidence)/(2 L). Trial j has one seed at all sizes (common
    random numbers), so that sizes share their luck and a mistake beyond the threshold is one at the threshold. In
    simulations at 95 % the interval covered in 97 % and more, whether trials are alike at all sizes or independent.

    Within the bracket the crossing is that of the margin's quantile over trials, interpolated: where a share jumps from
    0 to 1 between two sizes it still says where between. Of "round" a trial counts from when it first reaches it.

    Predictions differ between trials as their truths and starts do. The search by predictions has the same rules as
    the search by runs: trial j is predicted for the truth and the start that trial j of the runs had, and its interval
    is for the draw of truths and starts. It uses at most as many trials as were measured. It starts at the measured
    size, by steps of the resolution at first; where it starts does not change the result.

    **Deviations**: none.

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.Run(
    ...     algorithm=lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9)),
    ...     problem=lf.SharedRepresentation(n_clients=50, dim=20, rank=2),
    ...     data=lf.FreshSamples(n_samples=8),
    ...     rounds=40,
    ... )
    >>> table = lf.least("data.n_samples", run, reaches=lf.below("subspace_distance", 0.01), trials=16)
    >>> table["n_samples"], table["low"] < table["crossing"] <= table["high"]
    (4, True)
    """
    _check_options(means)
    options = locals()
    asked = {field.name: options[field.name] for field in dataclasses.fields(Least) if field.name != "base"}
    several = [cells] if hasattr(cells, "run") else cells
    return sweep([Least(base=cell, **asked | _own(cell, asked)) for cell in checked_cells(several)], **means)


def _own(cell: Cell, asked: dict[str, Any]) -> dict[str, Any]:
    """Return start, least and most for one cell, where they are functions of it."""
    found = {}
    for name in ("start", "least", "most"):
        if callable(asked[name]):
            if not takes(asked[name], 1):
                raise TypeError(f"{name} = {shown(asked[name])} must be a number, or a function of the cell")
            found[name] = asked[name](cell)
    return found


def _check_options(options: dict[str, Any]) -> None:
    """Raise unless `sweep` has all options."""
    allowed = [name for name in inspect.signature(sweep).parameters if name != "cells"]
    for name in options:
        if name not in allowed:
            known = ", ".join(allowed)
            raise TypeError(f"least has no argument {name!r}{suggestion(name, allowed)}; those of lf.sweep are {known}")
