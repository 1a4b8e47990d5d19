"""What FLUTE's theorems speak of, recorded over a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.base import State
from linfed.algorithms.flute import FLUTE
from linfed.algorithms.step_size import one_step
from linfed.errors import check_integer
from linfed.problems import Truth
from linfed.simulation.loop import Round
from linfed.simulation.metrics import squared_errors
from linfed.theory._laws import check_covariance
from linfed.theory.flute.coordinates import ThetaCoordinates


@dataclass(frozen=True, kw_only=True)
class FluteTrace:
    """What the theorems speak of, round by round (the first column is the initial state).

    Parameters
    ----------
    rank, n_clients : int
        k and n.
    step_size : float
        eta.
    spectrum : ndarray (trials, max(d, n))
        Singular values of Phi, zero-padded.
    rounds : ndarray of int (R,)
        Recorded rounds.
    error : ndarray (trials, R)
        ``(1/n) sum_i ||B w_i - (Phi_k)_i||``; NaN from divergence on.
    inside : ndarray of bool (trials, R)
        Whether Theta lies in the region R.
    region : ndarray (trials, R, 3)
        Its three quantities (`Region`).
    entry : ndarray (trials,)
        T_R.
    identity : ndarray (trials, R)
        Largest entry of the recursion's two sides' difference over the largest entry of Theta; NaN where it was not
        evaluated.
    alive : ndarray of bool (trials, R)
        Whether a trial has not diverged.
    """

    rank: int
    n_clients: int
    step_size: float
    spectrum: Array
    rounds: Array
    error: Array
    inside: Mask
    region: Array
    entry: Array
    identity: Array
    alive: Mask

    @property
    def entered(self) -> Array:
        """First recorded round at which Theta lies in the region R, infinite where none is, (trials,)."""
        return np.where(self.inside.any(axis=1), self.rounds[self.inside.argmax(axis=1)], np.inf)

    @property
    def near(self) -> Mask:
        """Where the error lies between 1e-3 and 1e-8 of the first: near the truncation, yet above rounding.

        Nowhere if some trial has not three such rounds.
        """
        share = self.error / self.error[:, :1]
        found = np.asarray((share < 1e-3) & (share > 1e-8))
        return found & bool((found.sum(axis=1) > 2).all())


def flute_trace(
    steps: Iterable[Round], algorithm: FLUTE, truth: Truth, *, every: int = 1, identity: bool = True
) -> FluteTrace:
    """Return what FLUTE's theorems speak of, from a run round by round.

    Parameters
    ----------
    steps : iterable of Round
        E.g. ``lf.iterate(algorithm, problem, ...)``, from the initial state on.
    algorithm : FLUTE
        That ran.
    truth : Truth
        Of its trials.
    every : int
        Record every so many rounds, and the last.
    identity : bool
        Evaluate the Theta recursion in recorded rounds: it asks the batch for one more gradient, which engines
        "explicit" and "compressed" answer.

    Returns
    -------
    FluteTrace

    Raises
    ------
    ValueError
        For an algorithm at other weights or steps than those of the theorems, partial participation, a truth of
        other trials, or one whose x does not have the identity for covariance.

    References
    ----------
    FLUTE paper, equation (13) and Appendix A.2.
    """
    setting = (algorithm.gamma1, algorithm.gamma2, algorithm.step_ratio, algorithm.gradient_factor)
    if setting != (0.25, 0.125, 1.0, 1):
        raise ValueError(
            f"algorithm = {algorithm!r} must have gamma1 = 1/4, gamma2 = 1/8, equal steps and gradient_factor = 1: "
            "the theorems speak of these"
        )
    step_size = one_step(algorithm.step_size, "the theorems require")
    check_covariance(truth, "the recursion and its region require")
    every, k = check_integer("every", every), algorithm.rank
    coordinates, cut = ThetaCoordinates.of(truth), truth.truncated(algorithm.rank)
    columns: list[dict[str, Any]] = []
    rounds: list[int] = []

    def record(number: int, state: State, alive: Mask, difference: Array) -> None:
        region = coordinates.region(coordinates.theta(state))
        error = np.sqrt(squared_errors(state, cut)).mean(axis=-1)
        rounds.append(number)
        columns.append(
            {
                "error": np.where(alive, error, np.nan),
                "inside": coordinates.inside(region, k) & alive,
                "region": np.stack(region, axis=-1),
                "identity": difference,
                "alive": alive.copy(),
            }
        )

    steps = iter(steps)
    last = next(steps, None)
    if last is None or last.number:
        raise ValueError("steps must begin with the initial state, as those of lf.iterate do")
    assert last.before.W is not None
    _check_everyone(last.before.W.shape[:2], coordinates)
    entry = coordinates.entry_round(coordinates.theta(last.before), step_size)
    missing = np.full(len(entry), np.nan)
    record(0, last.before, np.ones(len(entry), dtype=bool), missing)
    for last in steps:
        _check_everyone(last.batch.active.shape, coordinates)
        if last.number % every == 0:
            difference = _identity_error(coordinates, last, step_size) if identity else missing
            record(last.number, last.after, last.alive, difference)
    if last.number % every:
        record(last.number, last.after, last.alive, missing)
    stacked = {name: np.stack([column[name] for column in columns], axis=1) for name in columns[0]}
    return FluteTrace(
        rank=k,
        n_clients=coordinates.Phi.shape[1],
        step_size=step_size,
        spectrum=coordinates.spectrum,
        rounds=np.array(rounds),
        error=stacked["error"],
        inside=np.asarray(stacked["inside"], dtype=bool),
        region=stacked["region"],
        entry=entry,
        identity=stacked["identity"],
        alive=np.asarray(stacked["alive"], dtype=bool),
    )


def _check_everyone(shape: tuple[int, ...], coordinates: ThetaCoordinates) -> None:
    """Raise unless a round has the trials and participants (trials, p) that the truth has trials and clients."""
    expected = coordinates.Phi.shape[:2]
    if shape != expected:
        raise ValueError(
            f"steps have {shape} trials and participants, expected {expected}: all clients of the truth's trials "
            "take part"
        )


def _identity_error(coordinates: ThetaCoordinates, step: Round, step_size: float) -> Array:
    """Return how far the two sides of the Theta recursion differ in a round, relative to Theta, (trials,)."""
    before, after = step.before, step.after
    assert before.B is not None
    assert before.W is not None
    messages = step.batch.gradient(before.W @ before.B.mT)
    theta = coordinates.theta(before)
    expected = coordinates.population_step(theta, step_size) + coordinates.remainder(before, messages, step_size)
    largest = np.abs(coordinates.theta(after) - expected).max(axis=(-2, -1))
    found = largest / np.maximum(np.abs(expected).max(axis=(-2, -1)), np.finfo(float).tiny)
    return np.where(step.alive, found, np.nan)
