"""Predict FedRep when the ground truth has more than k dimensions: the distance in every round, and the floor.

The part of the regressors that the model cannot express acts as noise that does not vanish. In the eigenbasis of
``(1/n) sum_i phi_i phi_i'`` every row of B is multiplied by its own matrix and driven by its own noise. The state
therefore consists of k x k covariances, one for each row. One more row stands for all directions outside the span of
the phi_i.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_integer, check_number
from linfed.numerics.linalg import TINY, quiet
from linfed.theory.fedrep.arguments import StepTooLargeError, checked_steps, start_bases, trial_count
from linfed.theory.fedrep.rounds.state_evolution import RoundSizes
from linfed.theory.fedrep.rounds.truth_rows import MedianDraws, Start, TruthRows

RANK_TOLERANCE = 1e-12
"""Smallest unexplained variance, relative to the clients' largest; below it the result is rounding error."""

LARGEST_CHANCE = 1e6
"""Upper limit for the length of xi; where its square exceeds 1e12, a Gram matrix has at most four digits left."""

NOTHING = 1e-12
"""Smallest singular value of ``U_k'B0`` that counts as positive."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UnderParameterizedEvolution:
    """Prediction of `under_parameterized_evolution` for every round, from the initialisation on.

    Parameters
    ----------
    distance : ndarray (n_rounds + 1,) or (trials, n_rounds + 1)
        Median over runs of the sine of the largest principal angle between B and ``U_k``, the top-k left singular
        subspace of ``Phi = [phi_1 .. phi_n]``.
    inside, outside : ndarray (n_rounds + 1,) or (trials, n_rounds + 1)
        Root mean square Frobenius norms of the part of B orthogonal to U_k, inside and outside the span of the phi_i.
    chance : ndarray (n_rounds + 1,) or (trials, n_rounds + 1)
        Root mean square Frobenius norm of the random factor xi, which multiplies the rows below U_k (see Notes). The
        prediction is of first order in xi, so this norm should be small.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.UnderParameterized(n_clients=200, dim=60, spectrum=[20, 18, 6, 5, 4]).truth(0, [0]).W[0]
    >>> predicted = lf.theory.under_parameterized_evolution(
    ...     heads, rank=2, dim=60, n_samples=10, step_size=0.2, n_rounds=4, delta=0.8)
    >>> predicted.distance.shape, bool(predicted.chance.max() < 0.2)
    ((5,), True)
    """

    distance: Array
    inside: Array
    outside: Array
    chance: Array


@dataclass(frozen=True, kw_only=True)
class UnderParameterizedFloor:
    """Stationary distance of B from U_k, as computed by `under_parameterized_floor`.

    Parameters
    ----------
    distance : float
        Median over runs of the sine of the largest principal angle to U_k.
    inside, outside : float
        Root mean square Frobenius norms of the part of B orthogonal to U_k, as tangents, inside and outside the span of
        the phi_i.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.UnderParameterized(n_clients=200, dim=60, spectrum=[20, 18, 6, 5, 4]).truth(0, [0]).W[0]
    >>> floor = lf.theory.under_parameterized_floor(heads, rank=2, dim=60, n_samples=10, step_size=0.02)
    >>> bool(floor.inside < floor.total), bool(floor.outside < floor.total)
    (True, True)
    """

    distance: float
    inside: float
    outside: float

    @property
    def total(self) -> float:
        """``sqrt(E ||U_perp'B||_F^2)``, with both parts."""
        return math.hypot(self.inside, self.outside)


def under_parameterized_evolution(
    V: npt.ArrayLike,
    *,
    rank: int,
    dim: int,
    n_samples: int,
    step_size: float | npt.ArrayLike,
    n_rounds: int,
    noise_std: float = 0.0,
    participants: int | None = None,
    delta: float | None = None,
    B0: npt.ArrayLike | None = None,
    U: npt.ArrayLike | None = None,
) -> UnderParameterizedEvolution:
    """Predict FedRep's median subspace distance in every round for a ground truth of rank r > k.

    The prediction describes ``lf.FedRep(rank, step_size)`` (exact heads, QR) on fresh standard Gaussian samples. The
    regressors are ``phi_i = U v_i``, for example those of `lf.UnderParameterized`. With a prescribed spectrum, gap or
    rank, V is its ``truth.W``. For a Gaussian Phi of full rank, V is Phi' itself, ``truth.S``, and U the identity.

    Parameters
    ----------
    V : array_like (n, r) or (trials, n, r)
        Coordinates of all clients' phi_i in an orthonormal basis U of r > k columns.
    rank : int
        Columns k of B.
    dim : int
        Ambient dimension d >= 2k, at least r.
    n_samples : int
        Fresh samples m >= k + 2 of each participant and round; m > k + 3 is recommended.
    step_size : float or array_like (n_rounds,)
        Step size eta > 0 for B, one for all rounds or one per round.
    n_rounds : int
        T >= 0.
    noise_std : float
        Standard deviation of the label noise, in units of y.
    participants : int, optional
        Number of participants p <= n in a round, drawn without replacement; all clients by default.
    delta : float, optional
        Sine, in [0, 1], of all k principal angles between the initial B and U_k. The initial B is uniform among these,
        as with ``init=lf.AtDistance(delta)``.
    B0, U : array_like (d, k) and (d, r), or with a leading trial axis, optional
        Initial B and the basis of V, both orthonormal. Used instead of `delta`.

    Returns
    -------
    UnderParameterizedEvolution
        With a trial axis if V, B0 or U has one.

    Raises
    ------
    ValueError
        If shapes do not match, if values are out of range, if r <= k or m <= k + 1, or if a basis is not orthonormal.
        If the eigenvalues k and k + 1 are equal. If the initial B is at a right angle to U_k (delta = 1). If no correct
        digits are left because the step size is too large or the initial B is too close to a right angle.

    Notes
    -----
    In the eigenbasis of ``mean_i v_i v_i' = diag(lambda)``, lambda is 0 for directions outside U. A round multiplies
    row q of B by ``I + eta c (lambda_q - K)`` with ``K = sum_q lambda_q E N_q'N_q`` and ``c = 1 - k/m``. It also adds
    noise. With ``a_i = N'v_i``, ``u_i = (I - N N')v_i``, ``tau_i^2 = v_i'(I - N N')v_i + sigma^2`` and means over
    clients, the covariance of this noise is::

        (eta^2/p) { (c/m) mean[((m-k+1) u_q^2 + tau^2 (1 - |N_q|^2)) (a a' + tau^2/(m-k-1) I)] - c^2 mean[u_q^2 a a'] }
        + eta^2 c^2 ((n-p)/(p (n-1))) { mean[u_q^2 a a'] - mean[u_q a] mean[u_q a]' }

    This covariance is exact for a given B (see `one_round_means` for the distribution of a client's message). Then all
    rows are divided by R, where ``R'R = sum_q E N_q'N_q``. The recursion tracks three quantities: the means of the rows
    that the initial B determines; the k x k matrix that has multiplied each row of a uniform initial B; and the
    covariance of the noise in every row. Products of u, a and tau within a client are evaluated at their means over B,
    and the rows of U_k at their own means. The random part of K in a run is shared by all rows. To first order it
    multiplies the rows below U_k by one common factor ``I + xi``. The covariance (k^2, k^2) of xi is tracked too::

        xi <- G+^{-1} A'G (xi A - eta X) - eta ((N_k'N_k)^{-1} - I) X,    A = I + eta c (lambda - K) on average over G,
        X = (1/p) sum_i (x_i/m) a_i w_i' - c K,  G = sum_{q>k} E N_q'N_q,  N_k the rows of U_k

    The median is taken over fixed Gaussian draws, of ``lambda_max`` of the rows below U_k relative to all rows. The
    draws are for the uniform frame of the initial B, the noise, xi, and a Wishart factor for the directions outside.
    The error of this median is below 1 %.

    *Accuracy.* The prediction was compared with simulations:

    - Medians of 1,000 runs over 40 rounds in six settings: the prediction is within 2 %. The settings had r = 4 to 20
      and r = d = 30, label noise, 40 of 200 clients, step sizes up to 0.6/lambda_1, and initial distances 0.7 to 0.9.
    - 500 runs in each of 24 random designs: the error in the worst round is 1.8 % in the median design and at most 5 %
      in 21 designs. In the other three (k = 5 to 8 with 10 to 37 participants) the prediction is 7 to 9 % too low.
      Sizes were d from 20 to 360, r from 6 to d, k to 8, m from 6 to 95, n from 41 to 174, and p from 10. Noise was 0
      to 0.5 and the initial distance 0.3 to 0.94. Step sizes went up to 1.3 times the best one for a ground truth whose
      eigenvalues after the k-th are 0.
    - The lengths inside and outside are within 3 %.
    - Medians of 40 runs over 60 rounds in 110 random designs, since xi enters only to first order: the worst round is
      within 8 % if `chance` stays below 0.35, and within 16 % up to 0.9. For larger `chance`, single rounds of the
      descent are off by a factor of up to 1.8 (`chance` 1.3) or 10 (`chance` 10^3). The final distances are mostly
      right. Sizes were d from 20 to 117, k to 4, m from 6 to 33 and n from 40 to 134, with full participation. The
      initial distance was 0.9, 0.97 or random.

    The cost is O(n r (r + k^2)) per round, in blocks of clients, plus a median over 1.5e5 Gaussian numbers.

    **Deviations**: derived here; neither paper has it.

    References
    ----------
    FedRep paper, Algorithm 2, on the ground truths of the FLUTE paper (section 3).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=200, dim=60, spectrum=[20, 18, 6, 5, 4])
    >>> predicted = lf.theory.under_parameterized_evolution(
    ...     problem.truth(0, [0]).W[0], rank=2, dim=60, n_samples=10, step_size=0.2, n_rounds=60, delta=0.8)
    >>> round(float(predicted.distance[-1]), 2)  # the labels have no noise
    0.04
    """
    points = check_array("V", V, [("n", "r"), ("trials", "n", "r")])
    setting = _checked(points, rank, dim, n_samples, noise_std, participants)
    steps = checked_steps(step_size, n_rounds)
    shapes = (setting.dim, rank), (setting.dim, points.shape[-1])
    given = start_bases(delta, B0, U, names=("B0", "U"), shapes=shapes)
    bases = () if isinstance(given, float) else given
    trials = trial_count("V, B0 and U", points, *bases)
    out = np.empty((4, trials or 1, len(steps) + 1))
    with quiet():
        for t in range(trials or 1):
            now = points[t] if points.ndim == 3 else points
            rows = _rows(now, rank, setting)
            if isinstance(given, float):
                start = Start.at_distance(rows, given, rank)
            else:
                start = Start.given(rows, *(array[t] if array.ndim == 3 else array for array in given))
            out[:, t] = _path(rows, start, setting, steps)
    median, inside, outside, chance = out if trials is not None else out[:, 0]
    return UnderParameterizedEvolution(distance=median, inside=inside, outside=outside, chance=chance)


def under_parameterized_floor(
    V: npt.ArrayLike,
    *,
    rank: int,
    dim: int,
    n_samples: int,
    step_size: float,
    noise_std: float = 0.0,
    participants: int | None = None,
) -> UnderParameterizedFloor:
    """Return the floor of FedRep's subspace distance for a ground truth of rank r > k and a small constant step size.

    Parameters
    ----------
    V : array_like (n, r)
        Coordinates of the clients' truths as in `under_parameterized_evolution`, without a trial axis.
    rank, dim, n_samples, noise_std, participants
        As in `under_parameterized_evolution`.
    step_size : float
        Step size eta > 0, below ``2/(c (lambda_1 - lambda_d))`` with ``c = 1 - k/m``. The smallest eigenvalue lambda_d
        is 0 if r < d.

    Returns
    -------
    UnderParameterizedFloor

    Raises
    ------
    ValueError
        As in `under_parameterized_evolution`. Also if `step_size` is not below its limit; then there is no floor.

    Notes
    -----
    Near U_k, a round multiplies entry p of row q > k by ``1 - eta c (lambda_p - lambda_q)``. It adds the noise of
    `under_parameterized_evolution` at U_k, with covariance ``eta^2 V_q`` (k, k). The stationary rows are therefore
    Gaussian with covariance::

        S_q[p, p'] = eta^2 V_q[p, p'] / (1 - (1 - eta c (lambda_p - lambda_q)) (1 - eta c (lambda_p' - lambda_q)))
        inside^2 + outside^2 = sum_q tr S_q

    to leading order in eta. There is a floor even *without label noise*:
    ``tau_i^2 = ||(I - U_k U_k')phi_i||^2 + sigma^2`` contains the part of phi_i that the model cannot express. The
    floor is proportional to sqrt(eta) and to gap^(-1/2).

    *Accuracy.* In six settings with 500 runs each (with and without label noise, r = 4 to d, p < n) the root mean
    square is within 1 % at eta lambda_1 = 0.04 to 0.08, and 0 to 4 % too low at 0.15 to 0.3.

    **Deviations**: derived here; the papers do not have it.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=200, dim=60, spectrum=[20, 18, 6, 5, 4])
    >>> V = problem.truth(0, [0]).W[0]
    >>> floors = [lf.theory.under_parameterized_floor(V, rank=2, dim=60, n_samples=10, step_size=eta).total
    ...           for eta in (0.02, 0.08)]
    >>> 1.9 < floors[1] / floors[0] < 2.2
    True
    """
    points = check_array("V", V, [("n", "r")])
    eta = check_number("step_size", step_size, positive=True)
    setting = _checked(points, rank, dim, n_samples, noise_std, participants)
    k, c = rank, 1.0 - rank / setting.n_samples
    rows = _rows(points, rank, setting)
    with quiet():
        noise = rows.noise(np.eye(len(rows.values), k), np.zeros((len(rows.values), k, k)), setting)[0][k:]
    top, rest = rows.values[:k], rows.values[k:]
    factors = 1.0 - eta * c * (top - rest[:, None])
    if factors.min() <= -1.0:
        raise ValueError(
            f"step_size = {eta:g} must be below 2/(c (lambda_1 - lambda_d)) = {2.0 / (c * (top[0] - rest[-1])):g}, "
            "c = 1 - k/m: at larger step sizes the mean square grows without bound and no floor exists"
        )
    S = np.zeros((len(rows.values), k, k))
    S[k:] = eta * eta * noise / (1.0 - factors[:, :, None] * factors[:, None, :])
    inside, outside = rows.lengths(S)
    distance = MedianDraws.of(rows, Start.none(rows, k)).median(np.eye(len(S), k), np.zeros_like(S), S)
    return UnderParameterizedFloor(distance=distance, inside=inside, outside=outside)


def _checked(V: Array, rank: int, dim: int, n_samples: int, noise_std: float, participants: int | None) -> RoundSizes:
    """Check the arguments and return the sizes of a round."""
    rank, (n, r) = check_integer("rank", rank), V.shape[-2:]
    if r <= rank:
        raise ValueError(f"V has r = {r} columns but must have more than rank = {rank}; otherwise use state_evolution")
    setting = RoundSizes.checked(np.empty((n, rank)), dim, n_samples, 1.0, noise_std, participants)
    if setting.dim < r:
        raise ValueError(f"dim = {dim} must be at least {r}, the number of columns of V")
    return setting


def _rows(V: Array, rank: int, setting: RoundSizes) -> TruthRows:
    """Return the clients in the eigenbasis, or raise if the part outside U_k is zero up to rounding error."""
    rows = TruthRows.of(V, rank, setting.dim)
    if max(rows.values[rank], setting.noise_std**2) <= RANK_TOLERANCE * rows.values[0]:
        raise ValueError(
            f"V has lambda_k+1 = {rows.values[rank]:g} of mean_i v_i v_i', zero up to rounding, and noise_std = "
            f"{setting.noise_std:g}: V must have rank above rank = {rank}; otherwise use state_evolution"
        )
    return rows


def _path(rows: TruthRows, start: Start, setting: RoundSizes, steps: Sequence[float]) -> Array:
    """Return median distance and root mean square lengths inside, outside and of xi, (4, n_rounds + 1)."""
    k, c = start.mean.shape[1], 1.0 - start.mean.shape[1] / setting.n_samples
    eye, moved = np.eye(k), np.tile(np.eye(k), (len(rows.values), 1, 1))
    mean, uniform = start.mean, start.second.any(axis=(1, 2))
    S, turn = np.zeros_like(moved), np.zeros((k, k, k, k))
    draws, out = MedianDraws.of(rows, start), []
    if len(steps) and np.linalg.svd(start.mean[:k], compute_uv=False)[-1] < NOTHING:
        raise ValueError("the initial B is at a right angle to U_k: delta must be below 1, and U_k'B0 regular")
    for number in range(len(steps) + 1):
        spread = moved.mT @ start.second @ moved + S
        second = spread + mean[:, :, None] * mean[:, None, :]
        chance, median = math.sqrt(max(np.einsum("abab->", turn), 0.0)), np.nan
        if chance < LARGEST_CHANCE:
            with contextlib.suppress(np.linalg.LinAlgError):
                median = draws.median(mean, moved, S, turn)
        out.append((median, *rows.lengths(second), chance))
        if number and not np.isfinite(out[-1]).all():
            raise _no_digits(steps, number)
        if number == len(steps):
            break
        eta = steps[number]
        noise, shared = rows.noise(mean, spread, setting)
        noise[:k] = 0.0
        kept = eye - eta * c * np.tensordot(rows.values, second, 1)
        step = kept + eta * c * rows.values[:, None, None] * eye
        top, mean = mean[:k], np.einsum("qi,qij->qj", mean, step)  # a product with B0 would amplify rounding
        moved[uniform] = moved[uniform] @ step[uniform]
        S = step.mT @ S @ step + eta * eta * noise
        grams = moved.mT @ start.second @ moved + S + mean[:, :, None] * mean[:, None, :]
        R = np.full((k, k), np.nan)
        with contextlib.suppress(np.linalg.LinAlgError):
            R = np.linalg.cholesky(np.tensordot(rows.counts, grams, 1)).T
        if not np.isfinite(R).all():
            raise _no_digits(steps, number + 1)
        before, after = (np.tensordot(rows.counts[k:], each[k:], 1) for each in (second, grams))
        weights = rows.counts[k:] * np.trace(second[k:], axis1=1, axis2=2)
        middle = kept + eta * c * (weights @ rows.values[k:]) / max(weights.sum(), TINY) * eye
        share = np.linalg.solve(after + TINY * eye, middle.T @ before)
        turn = _turned(turn, R @ share, middle @ np.linalg.inv(R))
        pushed = share + np.linalg.inv(top.T @ top) - eye
        inverse = np.linalg.inv(R)
        turn += eta * eta * _turned(shared, R @ pushed, inverse)
        mean, S = mean @ inverse, inverse.T @ S @ inverse
        moved[uniform] = moved[uniform] @ inverse
    return np.array(out).T


def _no_digits(steps: Sequence[float], number: int) -> ValueError:
    """Return the error raised if no correct digits are left in a round."""
    advice = "use a smaller step size, more samples or clients, or an initial B closer to U_k"
    return StepTooLargeError(steps[max(number - 1, 0)], number, "these clients, noise and initial B", advice)


def _turned(covariance: Array, left: Array, right: Array) -> Array:
    """Return the covariance of ``left X right`` from the covariance of X, (k, k, k, k) with the indices of X, X."""
    k, both = len(left), np.kron(left, right.T)
    return np.asarray(both @ covariance.reshape(k * k, k * k) @ both.T).reshape(k, k, k, k)
