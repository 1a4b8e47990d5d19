"""Equations of the shortcut draft and terms of its bound (22) over a run, and the judge of the bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from linfed._types import Array, Indices
from linfed.algorithms.parts.solvers import ClosedForm
from linfed.algorithms.representation.shortcut import FedRepShortcut
from linfed.checks import check_bool, check_instance, check_integer
from linfed.problems import Truth
from linfed.simulation.loop import Round
from linfed.statistics.findings import Finding, judge_identity
from linfed.theory._assumptions import check_truth
from linfed.theory.shortcut.bound import ShortcutRound
from linfed.theory.shortcut.identities import IDENTITY_TOLERANCE


@dataclass(frozen=True, kw_only=True, eq=False)
class ShortcutTrace:
    """Terms of the shortcut draft's bound (22) in the recorded rounds of a run.

    Parameters
    ----------
    rounds : ndarray of int (R,)
        Recorded rounds.
    distance : ndarray (trials, R)
        ``dist(B, B*)`` after the round.
    contraction, concentration, shortcut, noise : ndarray (trials, R)
        Terms of (22), each with the factor ``||R^{-1}||`` (`BoundTerms`).
    inverse : ndarray (trials, R)
        ``||R^{-1}||``.
    identity : ndarray (trials, R)
        Largest relative difference of the two sides of (19), (20) and (21).
    heads, printed, shortcuts : ndarray (trials, R), optional
        Largest relative difference for the equation (9), (16), (17); for (9) with the printed sign; and for (18).

    Notes
    -----
    Values are NaN after a trial has diverged.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=20, dim=8, rank=2, shortcut_norm=0.5)
    >>> algorithm = lf.FedRepShortcut(rank=2, step_size=0.1, solver=lf.ClosedForm(), ridge=1.0)
    >>> steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(20), n_rounds=5)
    >>> trace = lf.theory.shortcut_trace(steps, algorithm, problem.truth(0, range(1)))
    >>> bool((trace.identity < 1e-9).all()), bool((trace.concentration <= trace.bound).all())
    (True, True)
    """

    rounds: Indices
    distance: Array
    contraction: Array
    concentration: Array
    shortcut: Array
    noise: Array
    inverse: Array
    identity: Array
    heads: Array | None = None
    printed: Array | None = None
    shortcuts: Array | None = None

    @property
    def series(self) -> dict[str, Array]:
        """All recorded arrays by name, without the rounds."""
        return {name: values for name, values in vars(self).items() if name != "rounds" and values is not None}

    @property
    def bound(self) -> Array:
        """Right side of (22), (trials, R)."""
        return self.contraction + self.concentration + self.shortcut + self.noise


def shortcut_trace(
    steps: Iterable[Round], algorithm: FedRepShortcut, truth: Truth, *, every: int = 1, equations: bool = False
) -> ShortcutTrace:
    """Record the terms of the shortcut draft's bound (22) over a run.

    Parameters
    ----------
    steps : iterable of Round
        Rounds of the run, for example ``lf.iterate(algorithm, problem, ...)``, with at least one round after the
        initial state.
    algorithm : FedRepShortcut
        Algorithm of the run, with any solver, order and ridge, one representation step, and no refit.
    truth : Truth
        Ground truth of the trials.
    every : int
        Number of rounds between records.
    equations : bool
        If True, also record (9) and (16) to (18). They are about ``solver=lf.ClosedForm()``, in order "jacobi".

    Returns
    -------
    ShortcutTrace

    Raises
    ------
    TypeError
        If `algorithm` is not `FedRepShortcut`, or `truth` is not a ground truth.
    ValueError
        If the algorithm refits, if it has another solver than `equations` requires, if no round is recorded, or as in
        `ShortcutRound.of`.

    References
    ----------
    Shortcut draft, equations (9) to (22).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=20, dim=8, rank=2, shortcut_norm=0.5)
    >>> algorithm = lf.FedRepShortcut(rank=2, step_size=0.1, solver=lf.ClosedForm(), ridge=1.0)
    >>> steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(20), n_rounds=5)
    >>> trace = lf.theory.shortcut_trace(steps, algorithm, problem.truth(0, range(1)))
    >>> trace.bound.shape, bool((trace.distance <= trace.bound).all())
    ((1, 5), True)
    """
    check_instance("algorithm", algorithm, FedRepShortcut, "lf.FedRepShortcut(...)")
    check_truth(truth)
    if algorithm.refit:
        raise ValueError("algorithm has refit = True, so its last round does not change B; use refit = False")
    equations = check_bool("equations", equations)
    if equations and algorithm.solver != ClosedForm():
        raise ValueError(
            "equations = True requires solver = ClosedForm(), in order 'jacobi', but the algorithm has "
            f"{algorithm.solver}"
        )
    every = check_integer("every", every)
    rounds: list[int] = []
    columns: list[dict[str, Array]] = []
    for step in steps:
        if step.number == 0 or step.number % every:
            continue
        seen = ShortcutRound.of(step, algorithm, truth)
        gaps = [seen.split().gap, seen.split_outside().gap, seen.split_in_terms().gap]
        values = {**seen.bound()._asdict(), "identity": np.max(gaps, axis=0)}
        rounds.append(step.number)
        if equations:
            sides = {"heads": seen.head_update(), "printed": seen.head_update(sign="printed")}
            values |= {name: side.gap for name, side in {**sides, "shortcuts": seen.shortcut_equation()}.items()}
        columns.append({name: np.where(step.alive, value, np.nan) for name, value in values.items()})
    if not columns:
        raise ValueError(f"steps must contain at least one round that every = {every} records")
    return ShortcutTrace(
        rounds=np.array(rounds), **{name: np.stack([column[name] for column in columns], axis=1) for name in columns[0]}
    )


def judge_bound(distance: Array, bound: Array, **fields: Any) -> Finding:
    """Judge whether the deterministic inequality (22) holds in every recorded round of every trial.

    Parameters
    ----------
    distance, bound : ndarray (trials, R)
        ``dist(B, B*)`` and the right side of (22).
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`. The verdict is HOLDS or
        VIOLATED.

    Returns
    -------
    Finding
        Finding for the largest ratio of both sides, minus 1. VACUOUS if the sum of the terms never falls below 1, which
        the distance cannot exceed.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = distance / bound - 1.0
        excess = np.where(distance <= bound + 1e-14, np.minimum(excess, 0.0), excess)
        is_binding = bound < 1.0
    vacuous = "" if is_binding.any() else "the sum is nowhere below 1"
    return judge_identity(excess, tolerance=IDENTITY_TOLERANCE, **{"vacuous": vacuous} | fields)
