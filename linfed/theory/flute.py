"""FLUTE's Theorems 5.1 and 5.5: the Theta recursion, the absorbing region, the entry time, the rate, and their judges.

The analysis (Appendix A) speaks of ``gamma1 = 2 gamma2 = 1/4``, equal steps, and the data gradient of factor 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Mask
from linfed.algorithms.base import State
from linfed.algorithms.flute import FLUTE
from linfed.errors import check_choice, check_integer, check_number
from linfed.numerics.linalg import spectral_norm
from linfed.problems import Truth
from linfed.simulation.loop import Round
from linfed.simulation.metrics import squared_errors
from linfed.statistics.findings import Finding, Hypothesis, judge_failures, judge_identity, quoted
from linfed.theory._laws import check_covariance

STEP_CONSTANTS = {"appendix": 288.0, "printed": 228.0}
"""Denominators of the step condition: Appendix A's ``Delta^2 / (36 lambda_1'^3)``, and what Theorem 5.1 prints."""

PROOF_CONSTANT = 400.0
"""The constant of Proposition A.12, in front of ``lambda_1'^2 sqrt(k) / (eta Delta^2)``."""

IDENTITY_TOLERANCE = 1e-10

_ENTERS = quoted("FLUTE paper, Proposition A.2", "will enter region R for some t [...] T_R")
_STAYS = quoted("FLUTE paper, proof of Theorem 5.5, step 2", "once Theta_t enters this region, it will stay in it")
_RATE = quoted("FLUTE paper, Theorem 5.5", "for all T_R < t <= T, with probability at least 1 - delta")


def flute_gap(spectrum: npt.ArrayLike, rank: int) -> Array:
    """Return ``Delta = 2 (lambda_k - lambda_{k+1})`` of singular values (..., r), descending; 0 beyond the r-th."""
    values = np.asarray(spectrum, dtype=float)
    rank = check_integer("rank", rank)
    if rank > values.shape[-1]:
        raise ValueError(f"rank = {rank} must be at most the number of singular values, {values.shape[-1]}")
    following = values[..., rank] if rank < values.shape[-1] else 0.0
    return np.asarray(2.0 * (values[..., rank - 1] - following))


def flute_step_limit(spectrum: npt.ArrayLike, rank: int, *, constant: str = "appendix") -> Array:
    """Return the largest step that Theorems 5.1 and 5.5 allow.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values ``lambda_1 >= lambda_2 >= ..`` of Phi.
    rank : int
        k.
    constant : "appendix" or "printed"
        ``Delta^2 / (288 lambda_1^3)``, which is the appendix's ``Delta^2 / (36 lambda_1'^3)`` with ``lambda' = 2
        lambda``, or ``Delta^2 / (228 lambda_1^3)`` as the main text prints it.

    Returns
    -------
    ndarray (...)

    Raises
    ------
    ValueError
        For an unknown constant, or a rank above r.

    Notes
    -----
    The two differ by a slip of digits; the proof has the smaller step.

    **Deviations**: the default follows the appendix.

    References
    ----------
    FLUTE paper, Theorem 5.1; Lemmas A.10 and A.11.
    """
    divisor = STEP_CONSTANTS[check_choice("constant", constant, STEP_CONSTANTS)]
    values = np.asarray(spectrum, dtype=float)
    return np.asarray(flute_gap(values, rank) ** 2 / (divisor * values[..., 0] ** 3))


def flute_rate(spectrum: npt.ArrayLike, rank: int, step_size: float) -> Array:
    """Return the factor ``1 - eta Delta / 16`` by which Theorem 5.5 bounds the error from round to round, (...)."""
    return np.asarray(1.0 - check_number("step_size", step_size, positive=True) * flute_gap(spectrum, rank) / 16.0)


def flute_local_rate(spectrum: npt.ArrayLike, rank: int, step_size: float) -> Array:
    """Return the factor by which the error falls in a round near the truncation, at population.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values of Phi.
    rank : int
        k.
    step_size : float
        eta, of both steps.

    Returns
    -------
    ndarray (...)
        ``max(1 - eta Delta / 2, |1 - 2 eta lambda_1|)``; below 1 iff ``eta < 1 / lambda_1`` and ``Delta > 0``. (With k
        = n = d there is no direction beyond the k-th, and the true factor is ``|1 - 2 eta lambda_k|`` at small steps.)

    Notes
    -----
    The recursion's derivative at ``Theta_k Theta_k' = 2 Lambda_k``, ``Theta_res = 0`` has the factors ``1 + (eta/2)
    (lambda_j' - lambda_p')`` for a row j of Theta_res beside a column p <= k, with ``lambda' = (2 lambda, -2 lambda)``,
    and ``1 - (eta/2) (lambda_p' + lambda_q')`` within Theta_k: the slowest is j = k + 1, p = k.

    **Deviations**: an addition; Theorem 5.5 has a factor eight times nearer to 1.

    References
    ----------
    FLUTE paper, equation (13).
    """
    values = np.asarray(spectrum, dtype=float)
    step_size = check_number("step_size", step_size, positive=True)
    slow, fast = 1.0 - step_size * flute_gap(values, rank) / 2.0, np.abs(1.0 - 2.0 * step_size * values[..., 0])
    return np.asarray(np.maximum(slow, fast))


def flute_bound(spectrum: npt.ArrayLike, rank: int, step_size: float, n_clients: int, rounds: npt.ArrayLike) -> Array:
    """Return Theorem 5.5's bound on the mean truncation error with constant 1.

    Parameters
    ----------
    spectrum : array_like (..., r)
        Singular values of Phi.
    rank, n_clients : int
        k and n.
    step_size : float
        eta.
    rounds : array_like (R,)
        t.

    Returns
    -------
    ndarray (..., R)
        ``lambda_1^2 sqrt(k) / (eta Delta^2 sqrt(n)) (1 - eta Delta / 16)^t``. The theorem's constant is not named; the
        proof arrives at ``4 * 400`` (`PROOF_CONSTANT`, and ``lambda_1' = 2 lambda_1`` squared) with t counted from the
        entry into the region R; counted from the start it is larger by ``(1 - eta Delta / 16)^(-T_R)``.

    References
    ----------
    FLUTE paper, Theorem 5.5; Proposition A.12.
    """
    values = np.asarray(spectrum, dtype=float)
    n, gap = check_integer("n_clients", n_clients), flute_gap(values, rank)
    step_size = check_number("step_size", step_size, positive=True)
    with np.errstate(divide="ignore"):  # without a gap the theorem says nothing
        scale = values[..., 0] ** 2 * np.sqrt(rank / n) / (step_size * gap**2)
    return np.asarray(scale[..., None] * flute_rate(values, rank, step_size)[..., None] ** np.asarray(rounds))


class Region(NamedTuple):
    """The three quantities of the region R, each (trials,), and the singular values that bound them.

    `largest` is ``sigma_1^2(Theta)``, `rest` is ``sigma_1^2(Theta_res)``, `smallest` is ``sigma_k^2(Theta_k)``.
    """

    largest: Array
    rest: Array
    smallest: Array


@dataclass(frozen=True)
class ThetaCoordinates:
    """The coordinates of Appendix A.1, in which FLUTE at population is a symmetric low-rank approximation.

    Parameters
    ----------
    U : ndarray (trials, d, d)
    V : ndarray (trials, n, n)
        Full square singular bases of Phi (d, n).
    spectrum : ndarray (trials, max(d, n))
        Singular values of Phi, zero-padded.
    Phi : ndarray (trials, n, d)
        The regressors, row i = client i.

    Notes
    -----
    ``Theta = [U'B + V'W; U'B - V'W] / sqrt(2)``, both zero-padded to max(d, n) rows.
    """

    U: Array
    V: Array
    spectrum: Array
    Phi: Array

    @classmethod
    def of(cls, truth: Truth) -> ThetaCoordinates:
        """Return the coordinates of a truth."""
        Phi = truth.dense()
        U, values, Vt = np.linalg.svd(np.swapaxes(Phi, -1, -2), full_matrices=True)
        spectrum = np.zeros((len(Phi), max(Phi.shape[-2:])))
        spectrum[:, : values.shape[-1]] = values
        return cls(U, np.swapaxes(Vt, -1, -2), spectrum, Phi)

    def stacked(self, B: Array, W: Array) -> Array:
        """Return ``[U'B + V'W; U'B - V'W] / sqrt(2)``, (trials, 2 max(d, n), k), for B (.., d, k) and W (.., n, k)."""
        size = self.spectrum.shape[-1]
        parts = []
        for basis, factor in ((self.U, B), (self.V, W)):
            turned = np.zeros((*factor.shape[:-2], size, factor.shape[-1]))
            turned[..., : factor.shape[-2], :] = np.swapaxes(basis, -1, -2) @ factor
            parts.append(turned)
        return np.asarray(np.concatenate([parts[0] + parts[1], parts[0] - parts[1]], axis=-2) / np.sqrt(2.0))

    def theta(self, state: State) -> Array:
        """Return Theta of a state, (trials, 2 max(d, n), k)."""
        assert state.B is not None
        assert state.W is not None
        return self.stacked(state.B, state.W)

    def population_step(self, theta: Array, step_size: float) -> Array:
        """Return ``Theta + (eta/2) (Lbar Theta - Theta Theta'Theta)`` with ``Lbar = diag(2 Lambda, -2 Lambda)``."""
        signed = 2.0 * np.concatenate([self.spectrum, -self.spectrum], axis=-1)[..., None]
        return np.asarray(theta + 0.5 * step_size * (signed * theta - theta @ (np.swapaxes(theta, -1, -2) @ theta)))

    def remainder(self, state: State, messages: Array, step_size: float) -> Array:
        """Return the recursion's remainder R, what the samples differ by from the population.

        Parameters
        ----------
        state : State
            At the start of the round.
        messages : ndarray (trials, n, d)
            ``X_i'(X_i B w_i - y_i)/m``, as ``batch.gradient(B w_i)`` returns them.
        step_size : float
            eta.
        """
        assert state.B is not None
        assert state.W is not None
        D = messages - (state.W @ np.swapaxes(state.B, -1, -2) - self.Phi)
        return self.stacked(-step_size * np.swapaxes(D, -1, -2) @ state.W, -step_size * D @ state.B)

    def region(self, theta: Array) -> Region:
        """Return the three quantities of the region R for the Theta of some trials."""
        k = theta.shape[-1]
        smallest = np.linalg.svd(theta[..., :k, :], compute_uv=False)[..., -1]
        return Region(spectral_norm(theta) ** 2, spectral_norm(theta[..., k:, :]) ** 2, np.asarray(smallest**2))

    def inside(self, region: Region, rank: int) -> Mask:
        """Return which trials lie in R: ``sigma_1^2(Theta) <= 2 lambda_1'``, ``sigma_1^2(Theta_res) <= lambda_k' -
        Delta/2`` and ``sigma_k^2(Theta_k) >= Delta/4``; the bounds are met up to rounding.
        """  # noqa: D205
        gap = flute_gap(self.spectrum, rank)
        first, kth = 2.0 * self.spectrum[..., 0], 2.0 * self.spectrum[..., rank - 1]
        slack = 1.0 + 1e-12
        return np.asarray(
            (region.largest <= 2.0 * first * slack)
            & (region.rest <= (kth - gap / 2.0) * slack)
            & (region.smallest >= gap / 4.0 / slack)
        )

    def entry_round(self, theta: Array, step_size: float) -> Array:
        """Return T_R of equation (16) for the initial Theta of some trials, (trials,).

        ``max(0, ceil(log(Delta / (4 sigma_k^2(Theta_k))) / (2 log(1 + (eta/2)(lambda_k' - Delta/2)))))``.
        """
        k = theta.shape[-1]
        gap, kth = flute_gap(self.spectrum, k), 2.0 * self.spectrum[..., k - 1]
        growth = 2.0 * np.log1p(0.5 * step_size * (kth - gap / 2.0))
        with np.errstate(divide="ignore"):
            wanted = np.log(gap / (4.0 * self.region(theta).smallest)) / growth
        return np.maximum(0.0, np.ceil(wanted))


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
    check_covariance(truth, "the recursion and its region are")
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
    entry = coordinates.entry_round(coordinates.theta(last.before), algorithm.step_size)
    missing = np.full(len(entry), np.nan)
    record(0, last.before, np.ones(len(entry), dtype=bool), missing)
    for last in steps:
        _check_everyone(last.batch.active.shape, coordinates)
        if last.number % every == 0:
            difference = _identity_error(coordinates, last, algorithm.step_size) if identity else missing
            record(last.number, last.after, last.alive, difference)
    if last.number % every:
        record(last.number, last.after, last.alive, missing)
    stacked = {name: np.stack([column[name] for column in columns], axis=1) for name in columns[0]}
    return FluteTrace(
        rank=k,
        n_clients=coordinates.Phi.shape[1],
        step_size=algorithm.step_size,
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
    messages = step.batch.gradient(before.W @ np.swapaxes(before.B, -1, -2))
    theta = coordinates.theta(before)
    expected = coordinates.population_step(theta, step_size) + coordinates.remainder(before, messages, step_size)
    largest = np.abs(coordinates.theta(after) - expected).max(axis=(-2, -1))
    found = largest / np.maximum(np.abs(expected).max(axis=(-2, -1)), np.finfo(float).tiny)
    return np.where(step.alive, found, np.nan)


# --- judges --------------------------------------------------------------------------------------------------


def step_hypothesis(trace: FluteTrace, *, constant: str = "appendix") -> Hypothesis:
    """Return the step condition of the theorems, at the trial that is nearest to failing."""
    limit = float(np.min(flute_step_limit(trace.spectrum, trace.rank, constant=constant)))
    return Hypothesis(
        text=f"eta <= Delta^2 / ({STEP_CONSTANTS[constant]:g} lambda_1^3)", left=trace.step_size, right=limit
    )


def init_hypothesis(alpha: float, dim: int) -> Hypothesis:
    """Return Theorem 5.1's condition on the initial scale, ``alpha <= 1 / (10 d)``."""
    return Hypothesis(text="alpha <= 1 / (10 d)", left=alpha, right=1.0 / (10.0 * dim))


def judge_recursion(trace: FluteTrace, where: str) -> Finding:
    """Judge the Theta recursion: an identity, to 1e-10 in every evaluated round of every trial.

    It checks the step, its weights and the padding; not the truth, which cancels between the step and its remainder.
    """
    return judge_identity(
        trace.identity,
        tolerance=IDENTITY_TOLERANCE,
        text="The Theta recursion (13) is an identity",
        where=where,
        statistic="largest relative difference of its two sides",
        source="FLUTE paper, Appendix A.1, equation (13)",
    )


def judge_entry(trace: FluteTrace, where: str, *, allowed: float, hypotheses: Iterable[Hypothesis] = ()) -> Finding:
    """Judge Proposition A.2: the region R is entered by round T_R; runs that end before, outside of R, say nothing."""
    reached = trace.inside.any(axis=1)
    first = np.where(reached, trace.rounds[trace.inside.argmax(axis=1)], np.inf)
    # Between recorded rounds the entry is known up to the distance to the one before.
    due = np.array([trace.rounds[trace.rounds >= entry].min(initial=np.iinfo(int).max) for entry in trace.entry])
    return judge_failures(
        first > due,
        premise=reached | (due <= trace.rounds[-1]),
        text="Theta enters the region R by round T_R",
        where=where,
        source=_ENTERS,
        allowed=allowed,
        hypotheses=(step_hypothesis(trace), *hypotheses),
    )


def judge_staying(trace: FluteTrace, where: str, *, allowed: float, hypotheses: Iterable[Hypothesis] = ()) -> Finding:
    """Judge Lemmas A.6 to A.9: once entered, the region R is not left; of the trials that enter it."""
    entered = np.maximum.accumulate(trace.inside, axis=1)
    return judge_failures(
        (entered & ~trace.inside).any(axis=1),
        premise=entered.any(axis=1),
        text="Once entered, the region R is not left",
        where=where,
        source=_STAYS,
        allowed=allowed,
        hypotheses=(step_hypothesis(trace), *hypotheses),
    )


def bound_ratios(trace: FluteTrace, *, until: float = np.inf) -> Array:
    """Return for each trial the least constant with which Theorem 5.5's bound holds after T_R, (trials,).

    Parameters
    ----------
    trace : FluteTrace
    until : float
        Last round to be held against it: with m fixed the theorem covers a first phase only.

    Notes
    -----
    Errors that rounding alone would leave (1e-12 of the largest singular value) are within every bound.
    """
    bound = flute_bound(trace.spectrum, trace.rank, trace.step_size, trace.n_clients, trace.rounds)
    covered = (trace.rounds > trace.entry[:, None]) & (trace.rounds <= until)
    error = np.where(np.isnan(trace.error), np.inf, trace.error)
    covered &= error > 1e-12 * trace.spectrum[:, :1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(covered, error / bound, 0.0).max(axis=1))


def judge_rate(
    trace: FluteTrace,
    where: str,
    *,
    constant: float,
    allowed: float,
    until: float = np.inf,
    hypotheses: Iterable[Hypothesis] = (),
    note: str = "",
) -> Finding:
    """Judge Theorem 5.5 with a constant: the bound holds in every round after T_R, up to round `until`.

    Only trials count in which the bound falls below the error of predicting 0 in one of these rounds, or which exceed
    it (a diverged run exceeds every bound): no other could violate it. Where there is none it is VACUOUS.
    """
    bound = constant * flute_bound(trace.spectrum, trace.rank, trace.step_size, trace.n_clients, trace.rounds)
    covered = (trace.rounds > trace.entry[:, None]) & (trace.rounds <= until)
    trivial = trace.error[:, :1]  # the error of the small initial state: that of predicting 0
    says = (covered & (bound < trivial)).any(axis=1)
    failed = bound_ratios(trace, until=until) > constant
    return judge_failures(
        failed,
        premise=says | failed,
        text=f"The error stays below {constant:.3g} x the bound of Theorem 5.5 after T_R",
        where=where,
        source=_RATE,
        allowed=allowed,
        hypotheses=(step_hypothesis(trace), *hypotheses),
        vacuous="" if (says | failed).any() else "the bound is nowhere below the error of predicting 0",
        note=note,
    )
