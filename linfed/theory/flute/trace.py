"""Quantities of FLUTE's theorems, recorded over a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.parts.base import State
from linfed.algorithms.parts.step_size import one_step
from linfed.algorithms.representation.flute import FLUTE
from linfed.checks import check_bool, check_instance, check_integer, short_repr
from linfed.numerics.linalg import singular_values, spectral_norm
from linfed.problems import Truth
from linfed.simulation.loop import Round
from linfed.simulation.metrics import squared_errors
from linfed.theory._assumptions import check_covariance
from linfed.theory.flute.coordinates import ThetaCoordinates


@dataclass(frozen=True, kw_only=True, eq=False)
class FluteTrace:
    """Quantities of FLUTE's theorems in the recorded rounds of a run, where the first column is the initial state.

    Parameters
    ----------
    rank, n_clients : int
        Rank k of the model, and n.
    step_size : float
        Step size eta for B and heads.
    spectrum : ndarray (trials, max(d, n))
        Singular values of Phi, zero-padded.
    rounds : ndarray of int (R,)
        Recorded rounds.
    error : ndarray (trials, R)
        ``(1/n) sum_i ||B w_i - (Phi_k)_i||``; NaN after divergence.
    rms : ndarray (trials, R)
        ``sqrt((1/n) sum_i ||B w_i - (Phi_k)_i||^2)``, the root mean square over clients; NaN after divergence.
    inside : ndarray of bool (trials, R)
        True if Theta is in the region R.
    region : ndarray (trials, R, 3)
        The three quantities that define R: ``sigma_1^2`` of Theta and of Theta_res, and ``sigma_k^2`` of Theta_k.
    entry : ndarray (trials,)
        Predicted time of entry T_R.
    identity : ndarray (trials, R)
        Largest entry of the difference between the two sides of the recursion, divided by the largest entry of Theta.
        NaN if not evaluated.
    growth : ndarray (trials, R)
        Excess of `ThetaCoordinates.growth_bound` over ``sigma_k^2(Theta_k)``, divided by ``sigma_k^2(Theta_k)`` before
        the round; at most 0 if the bound holds. NaN if not evaluated, or if the bound is not positive.
    remainder : ndarray (trials, R)
        ``sigma_1(R)`` of the recursion's remainder R in the round; NaN if not evaluated.
    alive : ndarray of bool (trials, R)
        True for trials that have not diverged.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=20, dim=6, spectrum=[6, 5, 2])
    >>> algorithm = lf.FLUTE(rank=2, step_size=0.02)
    >>> steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(50), n_rounds=80, engine="explicit")
    >>> trace = lf.theory.flute_trace(steps, algorithm, problem.truth(0, [0]), every=20)
    >>> trace.entered, trace.inside[0]
    (array([60.]), array([False, False, False,  True,  True]))
    """

    rank: int
    n_clients: int
    step_size: float
    spectrum: Array
    rounds: Array
    error: Array
    rms: Array
    inside: Mask
    region: Array
    entry: Array
    identity: Array
    growth: Array
    remainder: Array
    alive: Mask

    @property
    def entered(self) -> Array:
        """First recorded round in which Theta is in the region R, (trials,); infinite if there is none."""
        return np.where(self.inside.any(axis=1), self.rounds[self.inside.argmax(axis=1)], np.inf)

    @property
    def near(self) -> Mask:
        """Mask of rounds near the truncation but above rounding, with errors of 1e-8 to 1e-3 of the initial error.

        False everywhere if a trial has fewer than three such rounds.
        """
        share = self.error / self.error[:, :1]
        found = np.asarray((share < 1e-3) & (share > 1e-8))
        return found & bool((found.sum(axis=1) > 2).all())


def flute_trace(
    steps: Iterable[Round], algorithm: FLUTE, truth: Truth, *, every: int = 1, identity: bool = True
) -> FluteTrace:
    """Record the quantities of FLUTE's theorems over a run.

    Parameters
    ----------
    steps : iterable of Round
        Rounds of the run from the initial state on, for example ``lf.iterate(algorithm, problem, ...)``.
    algorithm : FLUTE
        Algorithm of the run.
    truth : Truth
        Ground truth of the trials.
    every : int
        Number of rounds between records; the last round is always recorded.
    identity : bool
        If True, evaluate the Theta recursion and the bound of Lemma A.16 in recorded rounds. This requires another
        gradient from the batch, which the engines "explicit" and "compressed" support.

    Returns
    -------
    FluteTrace

    Raises
    ------
    TypeError
        If `algorithm` is not `FLUTE`, or `truth` is not a ground truth.
    ValueError
        If the algorithm has other weights or step sizes than the theorems, if participation is partial, if the ground
        truth is from other trials, or if the covariance of x is not the identity.

    References
    ----------
    FLUTE paper, equation (13), Appendix A.2 and Lemma A.16.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=20, dim=6, spectrum=[6, 5, 2])
    >>> algorithm = lf.FLUTE(rank=2, step_size=0.02)
    >>> steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(50), n_rounds=20, engine="explicit")
    >>> trace = lf.theory.flute_trace(steps, algorithm, problem.truth(0, [0]), every=10)
    >>> trace.rounds, bool((trace.identity[:, 1:] < 1e-10).all())
    (array([ 0, 10, 20]), True)
    """
    check_instance("algorithm", algorithm, FLUTE, "lf.FLUTE(...)")
    setting = (algorithm.gamma1, algorithm.gamma2, algorithm.step_ratio, algorithm.gradient_factor, algorithm.weights)
    if setting != (0.25, 0.125, 1.0, 1, "uniform"):
        raise ValueError(
            f"algorithm = {short_repr(algorithm)} must have gamma1 = 1/4, gamma2 = 1/8, equal step sizes, "
            "gradient_factor = 1 and weights = 'uniform' for the theorems"
        )
    identity = check_bool("identity", identity)
    step_size = one_step(algorithm.step_size, "the theorems require")
    check_covariance(truth, "the recursion and its region require")
    every, k = check_integer("every", every), algorithm.rank
    coordinates, cut = ThetaCoordinates.of(truth), truth.truncated(algorithm.rank)
    columns: list[dict[str, Any]] = []
    rounds: list[int] = []

    def record(number: int, state: State, alive: Mask, checked: tuple[Array, Array, Array]) -> None:
        region = coordinates.region(coordinates.theta(state))
        squared = np.where(alive[:, None], squared_errors(state, cut), np.nan)
        rounds.append(number)
        columns.append(
            {
                "error": np.sqrt(squared).mean(axis=-1),
                "rms": np.sqrt(squared.mean(axis=-1)),
                "inside": coordinates.inside(region, k) & alive,
                "region": np.stack(region, axis=-1),
                **dict(zip(("identity", "growth", "remainder"), checked, strict=True)),
                "alive": alive.copy(),
            }
        )

    steps = iter(steps)
    last = next(steps, None)
    if last is None or last.number:
        raise ValueError("steps must begin with the initial state, as lf.iterate does")
    assert last.before.W is not None
    _check_everyone(last.before.W.shape[:2], coordinates)
    entry = coordinates.entry_round(coordinates.theta(last.before), step_size)
    missing = (np.full(len(entry), np.nan),) * 3
    record(0, last.before, np.ones(len(entry), dtype=bool), missing)
    for last in steps:
        _check_everyone(last.batch.active.shape, coordinates)
        if last.number % every == 0:
            checked = _recursion_errors(coordinates, last, step_size) if identity else missing
            record(last.number, last.after, last.alive, checked)
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
        rms=stacked["rms"],
        inside=np.asarray(stacked["inside"], dtype=bool),
        region=stacked["region"],
        entry=entry,
        identity=stacked["identity"],
        growth=stacked["growth"],
        remainder=stacked["remainder"],
        alive=np.asarray(stacked["alive"], dtype=bool),
    )


def _check_everyone(shape: tuple[int, ...], coordinates: ThetaCoordinates) -> None:
    """Raise unless the shape (trials, p) of a round equals the trials and clients of the ground truth."""
    expected = coordinates.Phi.shape[:2]
    if shape != expected:
        raise ValueError(
            f"steps have {shape} trials and participants but must have {expected}: the theorems require full "
            "participation and the ground truth of the run"
        )


def _recursion_errors(coordinates: ThetaCoordinates, step: Round, step_size: float) -> tuple[Array, Array, Array]:
    """Return `FluteTrace.identity`, `FluteTrace.growth` and `FluteTrace.remainder` of a round, each (trials,)."""
    before, after = step.before, step.after
    assert before.B is not None
    assert before.W is not None
    messages = step.batch.gradient(before.W @ before.B.mT)
    theta, new = coordinates.theta(before), coordinates.theta(after)
    remainder = coordinates.remainder(before, messages, step_size)
    expected = coordinates.population_step(theta, step_size) + remainder
    largest = np.abs(new - expected).max(axis=(-2, -1))
    found = largest / np.maximum(np.abs(expected).max(axis=(-2, -1)), np.finfo(float).tiny)
    smallest, k = coordinates.region(theta).smallest, theta.shape[-1]
    bound = coordinates.growth_bound(theta, step_size, remainder)
    excess = (bound - singular_values(new[..., :k, :])[..., -1] ** 2) / np.maximum(smallest, 1e-300)
    columns = found, np.where(bound > 0.0, excess, np.nan), spectral_norm(remainder)
    return tuple(np.where(step.alive, column, np.nan) for column in columns)  # type: ignore[return-value]
