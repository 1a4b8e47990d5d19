"""Second-order state evolution of FedRep: median and 10-90 % band of the distance, without simulation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed.checks import check_array, check_bool, check_number
from linfed.numerics import trailing as last
from linfed.numerics.linalg import quiet, symmetric, symmetric_root
from linfed.system.memory import check_fits
from linfed.theory.fedrep.arguments import Clients, checked_steps, start_at, trial_count
from linfed.theory.fedrep.near_truth.any_heads import LocalMap
from linfed.theory.fedrep.rounds.round_moments import Round, RoundLaw, cholesky, mean_turn
from linfed.theory.fedrep.rounds.state_evolution import too_large
from linfed.theory.fedrep.wishart import fixed_factors

QUANTILES = (0.1, 0.5, 0.9)

DRAWS = 512
"""Smallest number of points that represent the distribution of a run."""

TOGETHER = 32
"""Number of trials that are computed together."""

ROUNDS = 64
"""Number of rounds whose quantiles are computed together."""

STATIONARY = (64, 256, 1024)
"""Numbers of rounds after which the stationary state is sought, one after the other."""

SETTLED = 0.01
"""Largest change of the mean log distance from one quarter of the rounds to the next in the stationary state."""

STARTED = 0.95
"""Largest share of the stability edge at which the mean square is a start for the stationary state."""

WIDEST = 1e-60
"""Smallest ratio of two draws' squared tangents at which lost digits are due to the step size, not to their spread."""

SMALLEST = 1e-150
"""Squared tangents of runs with noise below which squares of them leave the range of floating point."""

LINEAR = 1e-30
"""Squared tangents below which a round without noise is linear in T up to rounding error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SecondOrder:
    """Prediction of `second_order_evolution` for every round, from the initialisation on.

    In a prediction of `second_order_floor` the arrays have no axis of rounds.

    Parameters
    ----------
    distance : ndarray (n_rounds + 1,) or (trials, n_rounds + 1)
        Median over runs of the sine of the largest principal angle between B and B*.
    low, high : ndarray, as `distance`
        10 % and 90 % quantiles of the distance over runs.
    log_std : ndarray, as `distance`
        Standard deviation of the logarithm of the distance over runs.
    round_log_variance : ndarray (n_rounds,) or (trials, n_rounds)
        Variance that a single round adds to the logarithm of the largest squared tangent.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=100, dim=50, rank=2).truth(0, [0]).W[0]
    >>> setting = {"dim": 50, "n_samples": 20, "step_size": 0.5, "n_rounds": 5, "delta": 0.9}
    >>> predicted = lf.theory.second_order_evolution(heads, **setting)
    >>> low, median, high = predicted.low[-1], predicted.distance[-1], predicted.high[-1]
    >>> bool(low < median < high)
    True
    """

    distance: Array
    low: Array
    high: Array
    log_std: Array
    round_log_variance: Array


def second_order_evolution(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    step_size: float | npt.ArrayLike,
    n_rounds: int,
    noise_std: float | npt.ArrayLike = 0.0,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    delta: float | None = None,
    B0: npt.ArrayLike | None = None,
    B_star: npt.ArrayLike | None = None,
    message_noise_std: float = 0.0,
    orthonormalize: bool = True,
) -> SecondOrder:
    r"""Predict the median and the 10-90 % band of FedRep's subspace distance over runs, without fitted parameters.

    Parameters
    ----------
    W, dim, n_rounds, noise_std, participants, weights, B0, B_star, message_noise_std
        As in `state_evolution`.
    n_samples : int or array_like (n,)
        Fresh samples m >= k + 4 of each participant and round, equal for all clients, or one number for each client.
    step_size : float or array_like (n_rounds,)
        Step size eta > 0 for B, one for all rounds or one per round.
    delta : float, optional
        As in `state_evolution`, but below 1.
    orthonormalize : bool
        If False, B has no QR after a round, and its length grows; its initial columns are orthonormal. Not with noise
        on messages.

    Returns
    -------
    SecondOrder
        With a trial axis if W, B0 or B_star has one. The distribution is over runs with these heads and this initial B.

    Raises
    ------
    ValueError
        As in `state_evolution`. Also if m <= k + 3, since a round then has no fourth moments. Also if the initial B is
        at a right angle to B*, since its escape depends only on chance. Also from the round on in which runs without
        noise are spread over more decades than the recursion can represent, after 1,000 rounds or more.

    Notes
    -----
    In contrast to `state_evolution`, this prediction takes into account that runs fluctuate and that the distance is
    the largest of k fluctuating angles. The state is ``T = D'D`` with ``D = B_perp'B (B*'B)^{-1}``; its eigenvalues are
    the squared tangents. In the frame in which ``B*'B = G = (I + T)^{-1/2}`` and ``S = T^{1/2} G`` is the part of B
    outside the span of B*, the message of a client is

    .. math::

        \hat w_i &= a_i + \tau_i z_i, \quad a_i = G w_i, \quad s_i = S w_i, \quad \tau_i^2 = \|s_i\|^2 + \sigma^2,
            \quad z_i \text{ multivariate } t \\
        u_i &= x_i s_i - \tau_i \sqrt{x_i} \Bigl( h_i - \frac{s_i (s_i^\top h_i)}{\tau_i (\tau_i + \sigma)} \Bigr),
            \quad x_i \sim \chi^2_{m-k}

    with ``z_i = g_i/sqrt(chi^2_{m-k+1})`` and standard Gaussian g_i and h_i (k,), all independent, and a round is
    exactly

    .. math::

        T_+ &= N^{-\top} (E^\top E + Z^\top Z) N^{-1}, \quad N = G + S Y, \quad E = S - G Y,
            \quad Z^\top Z \sim \mathrm{Wishart}_k(d - 2k, \Phi) \\
        Y &= \frac{\eta}{p m} \sum_i u_i \hat w_i^\top, \quad
            \Phi = \Bigl( \frac{\eta}{p m} \Bigr)^2 \sum_i \tau_i^2 x_i \hat w_i \hat w_i^\top

    where the sums are over the p participants. Noise on the mean message, of standard deviation s on each entry, adds
    ``eta^2 s^2 I`` to the covariance of Y and to Phi; its part along B is neglected. The sums are treated as if Y, and
    the square root of Phi, were Gaussian. Their first and second moments are exact (with moments of the heads up to
    order eight, and the variance due to client sampling). At least 512 points represent the distribution of T. They
    follow ``T+ = L(T) K K' L(T)'``, where ``L L'`` is the mean map at the T of each point. K is lower triangular and
    represents the fluctuation in a round. It is the round above at the common centre of the points, relative to the
    mean map at this centre. The points are antithetic Gaussian values with covariance I. They are spread evenly along
    the direction that changes the largest angle of each point. No clients are simulated and all random numbers are
    fixed. The error due to the finite number of points is about 1 %.

    Without QR, each point also has ``M = B*'B (B*'B)'``. With ``H = G M^{-1} G`` a round is the one above with ``Y H``
    and ``H Phi H``, because heads in the columns of ``B = B_q R`` are ``R^{-1}`` times those in the columns of B_q, and
    ``R R' = H^{-1}``; and ``M+ = N H^{-1} N'``. So B grows along long heads most. In random settings of 2 to 150
    clients, with heads whose second moment has eigenvalues up to 64 apart, the median was within 5 % down to 1e-8 in 52
    of 53 within the limits of `linfed.predict`. From initial distances of 0.9 on, k >= 3 and large noise, the recursion
    may leave no digits and raises.

    *Accuracy.* The prediction was compared with 2,000 runs per design, in the worst round with a distance above 1e-8.
    In 36 random designs, d was 100 to 1000, k up to 8, p from 50 and m from k + 4. Initial distances were up to 0.97
    and step sizes up to 1.2 times the best one. In these designs the median was within 2 % (half of the designs: 0.4 %)
    and the 10 % quantile within 3 %. The 90 % quantile was within 3 %, except for 12 % with k = 8 from 0.97. In other
    settings:

    - At d = 20, k up to 5 and step sizes up to the best one, the errors of the median, the 10 % and the 90 % quantile
      were within 5 %, 7 % and 13 % if the spread of the logarithm was below 0.4.
    - With 5 to 20 participants, and up to 2.4 times the best step size (above the stability edge), the errors were
      within 4 %.
    - With heads of heavy tails (Student's t with 2.5 degrees of freedom) and the largest of these steps, the median
      was up to 5 % too high. In one such design the band was narrow: 34 % of the runs were below it and 16 % above.
    - In 278 settings of equal and of differing clients, d was 8 to 300, k up to 6 and n from 1, with all clients or
      some of them. In 254 of them the median was within 5 % and the 10 % and 90 % quantiles within 10 %. The others had
      a `round_log_variance` above 0.2, a `log_std` above 0.4, or few participants of many clients, of which single ones
      moved B far.
    - In 78 settings with noise on messages that moved a column of B by at most 0.3 in a round, d was 2 to 168, k up to
      5 and n from 2. The median was within 5 % and the quantiles within 10 % in all settings but one with a
      `round_log_variance` of at most 0.3 in which no single participant moved B far.
    - From initial distances of 0.99 on, the escape is slow and its time depends on chance. The errors were 3 to 10 %
      for the median and up to 40 % for the 90 % quantile.

    The moments cost O(n k^8/576) once, in blocks of clients: 0.1 s for 10^5 clients and k = 5. A round then costs
    512 small matrices, 1.5 ms for k = 2 and 5 ms for k = 5, independent of n, d and m. For a few hundred clients,
    some hundred runs with ``engine="chain"`` cost as little and are exact.

    **Deviations**: derived here; the papers do not have it.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=400, dim=200, rank=5).truth(0, [0]).W[0]
    >>> setting = {"dim": 200, "n_samples": 20, "step_size": 0.8, "n_rounds": 30, "delta": 0.9}
    >>> predicted = lf.theory.second_order_evolution(heads, **setting)
    >>> bool((predicted.low <= predicted.distance).all() and (predicted.distance <= predicted.high).all())
    True
    """
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    steps = checked_steps(step_size, n_rounds)
    n, k = heads.shape[-2:]
    sizes = (dim, n_samples, noise_std, participants, weights, message_noise_std)
    clients = _with_fourth_moments(Clients.checked(n, k, *sizes))
    if not check_bool("orthonormalize", orthonormalize) and clients.message_variance:
        raise ValueError("message_noise_std must be 0 for orthonormalize = False")
    N, Q = start_at(delta, B0, B_star, dim=clients.dim, rank=k)
    trials = trial_count("W, B0 and B_star", heads, N)
    every = trials or 1
    check_fits(6.0 * every * len(steps), f"quantiles of {every} trials in {n_rounds} rounds", "use fewer of them")
    with quiet():
        if not (np.linalg.svd(N, compute_uv=False)[..., -1] > 0).all():
            raise ValueError("the initial B is at a right angle to B*: delta must be below 1, and B_star'B0 regular")
        stacked = heads if heads.ndim == 3 else heads[None]
        if not stacked.any(axis=(-2, -1)).all():
            raise ValueError(f"W of shape {heads.shape} must not be 0 for all clients: B would learn no direction")
        a_round, turn = Round.of(stacked, clients)
        across = symmetric_root(
            turn.mT @ symmetric(np.asarray(np.linalg.solve(N.mT, np.linalg.solve(N.mT, Q).mT))) @ turn
        )
        L = np.asarray(np.linalg.qr(across, mode="r")).mT
        draws, whole = CholeskyChart.of(k).draws, max(len(L), len(stacked))
        L = np.broadcast_to(L, (whole, k, k))

        def start(some: Indices) -> tuple[Array, Array]:
            return np.repeat(L[some][..., None], draws, axis=-1), L[some]

        found = _in_parts(start, np.arange(whole), a_round, steps, orthonormalize)
    low, median, high, spread, kick = found if trials is not None else found[:, 0]
    return SecondOrder(distance=median, low=low, high=high, log_std=spread, round_log_variance=kick[..., 1:])


def second_order_floor(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    step_size: float,
    noise_std: float | npt.ArrayLike,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    message_noise_std: float = 0.0,
) -> SecondOrder:
    """Predict the stationary median and 10-90 % band of FedRep's subspace distance under noise on labels or messages.

    Parameters
    ----------
    W, dim, n_samples, noise_std, participants, weights, message_noise_std
        As in `second_order_evolution`.
    step_size : float
        Step size eta > 0 for B, below `stability_edge`.

    Returns
    -------
    SecondOrder
        Arrays () or (trials,) if W has a trial axis: the stationary values, which are all 0 without noise.

    Raises
    ------
    ValueError
        As in `second_order_evolution` and `near_truth_floor`.

    Notes
    -----
    It is the stationary state of `second_order_evolution`. Near the stability edge the mean square of
    `near_truth_floor` lies far above typical runs, because few runs far from B* dominate it; the median does not. The
    rounds start at Gaussian tangents with the mean square of `near_truth_floor`, at a step size of at most 0.95 times
    the edge. There are 64 rounds, then 256 and 1,024, until the logarithms of the median in the third and in the last
    quarter have means within 1 %. The values are means over the second half of the rounds, geometric for distances.

    **Deviations**: derived here; the papers do not have it.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=20, dim=20, rank=2).truth(0, [0]).W[0]
    >>> sizes = {"dim": 20, "n_samples": 8}
    >>> step = 0.98 * lf.theory.stability_edge(heads, **sizes)
    >>> X = lf.theory.near_truth_floor(heads, step_size=step, noise_std=0.03, **sizes)
    >>> predicted = lf.theory.second_order_floor(heads, step_size=step, noise_std=0.03, **sizes)
    >>> bool(predicted.low < predicted.distance < predicted.high)
    True
    >>> bool(predicted.distance < 0.8 * lf.theory.median_distance(X, dim=20))
    True
    """
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    step_size = check_number("step_size", step_size, positive=True)
    n, k = heads.shape[-2:]
    sizes = (dim, n_samples, noise_std, participants, weights, message_noise_std)
    clients = _with_fourth_moments(Clients.checked(n, k, *sizes))
    stacked = heads if heads.ndim == 3 else heads[None]
    found, left, chart = np.zeros((5, len(stacked))), np.arange(len(stacked)), CholeskyChart.of(k)
    with quiet():
        a_round, _ = Round.of(stacked, clients)
        X = np.stack([_mean_square(LocalMap.of(a_round.moments[trial]), step_size) for trial in range(len(stacked))])
        if not X.any():  # without noise, B stays at B*
            left = left[:0]
        elif (X.max(axis=(-2, -1)) < SMALLEST).any():
            raise _too_small(clients)
        factors = cholesky(X / (clients.dim - k)) if left.size else X

        def start(some: Indices) -> tuple[Array, Array]:
            wishart = fixed_factors(k, clients.dim - k, chart.draws)
            points = np.moveaxis(factors[some, None] @ wishart, 1, -1)
            return points, chart.middle(points)

        for rounds in STATIONARY:
            paths = _in_parts(start, left, a_round, (step_size,) * rounds)[..., rounds // 2 + 1 :]
            paths[:3] = np.log(paths[:3])
            values = paths.mean(axis=-1)
            quarters = [part.mean(axis=-1) for part in np.split(paths[1], 2, axis=-1)]
            done = (np.abs(quarters[1] - quarters[0]) < SETTLED) | (rounds == STATIONARY[-1])
            values[:3] = np.exp(values[:3])
            found[:, left[done]] = values[:, done]
            left = left[~done]
            if not left.size:
                break
    low, median, high, spread, kick = found if heads.ndim == 3 else found[:, 0]
    return SecondOrder(distance=median, low=low, high=high, log_std=spread, round_log_variance=kick)


def _with_fourth_moments(clients: Clients) -> Clients:
    """Return the clients, or raise if a round has no fourth moments."""
    if clients.counts.min() <= clients.rank + 3:
        raise ValueError(
            f"n_samples = {clients.counts.min():g} must be above rank + 3 = {clients.rank + 3}: otherwise a round has "
            "no fourth moments"
        )
    return clients


def _mean_square(near: LocalMap, step_size: float) -> Array:
    """Return the stationary mean square (k, k) at which the rounds of `second_order_floor` start."""
    floor = near.floor(step_size)  # raises at the edge
    return floor if step_size <= STARTED * near.edge() else near.floor(STARTED * near.edge())


def _in_parts(
    start: Callable[[Indices], tuple[Array, Array]],
    trials: Indices,
    a_round: Round,
    steps: Sequence[float],
    orthonormalize: bool = True,
) -> Array:
    """Compute quantiles, spread and kick of some trials in all rounds, (5, trials, n_rounds + 1).

    `start` returns the initial points of trials and their centre.
    """
    found = np.empty((5, len(trials), len(steps) + 1))
    for first in range(0, len(trials), TOGETHER):
        some = trials[first : first + TOGETHER]
        one = a_round if len(a_round.moments.pull) == 1 else a_round[some]
        found[:, first : first + TOGETHER] = _evolved(*start(some), one, steps, orthonormalize)
    return found


def _evolved(
    points: Array, middle: Array, a_round: Round, steps: Sequence[float], orthonormalize: bool = True
) -> Array:
    """Compute quantiles, spread and kick of all rounds, (5, trials, n_rounds + 1).

    The initial points (trials, k, k, draws) and their centre `middle` (trials, k, k) are lower triangular factors of T.
    """
    trials, k = points.shape[:2]
    chart, noisy = CholeskyChart.of(k), a_round.noisy
    settled = np.zeros(trials, dtype=bool) if noisy else (points == 0).all(axis=(1, 2, 3))
    if settled.all():  # at B*, without noise, nothing moves
        return np.zeros((5, trials, len(steps) + 1))
    points = np.where(settled[:, None, None, None], np.eye(k)[..., None], points)  # replaces settled trials
    middle = np.where(settled[:, None, None], np.eye(k), middle)
    units = np.ones(trials)  # of the tangents; without noise their squares would leave the range of floating point
    T, response = last.outer(points), np.zeros((trials, *chart.linear))
    centre = middle @ middle.mT
    M = None if orthonormalize else last.inverse(np.eye(k)[..., None] + T)
    squared, direction = _largest(T)
    found = Statistics(trials, len(steps) + 1, chart.draws)
    found.add_round(0, squared, squared, units)
    for t, (step, (values, mask)) in enumerate(zip(steps, chart.rounds(), strict=False), 1):
        if not noisy:
            largest = squared.max(axis=-1)
            unit = np.where(largest < LINEAR**2, np.sqrt(largest / LINEAR), 1.0)
            units, T, centre = units * unit, T / unit[:, None, None, None] ** 2, centre / unit[:, None, None] ** 2
        try:
            both, lengths, typical = np.concatenate([T, centre[..., None]], axis=-1), None, None
            if M is not None:
                typical = _typical(M, T, centre)
                lengths = np.concatenate([M, typical[..., None]], axis=-1)
            sent = last.cholesky(a_round.mean_map(both, step, lengths))
            sent, base = sent[..., :-1], sent[..., -1]
            image = np.einsum("tabn,tan->tbn", sent, direction)
            before = np.einsum("tan,tan->tn", image, image)
            gaussians = chart.spread(values, mask, squared, image, response)
            inverse = np.asarray(np.linalg.inv(base))
            law = a_round.law(centre, step, typical)
            relative = last.gram(law.next_factors(gaussians, inverse.mT))
            if M is not None:
                to_centre = last.times(sent, inverse[..., None])  # T+ of a point is that at the centre between these
                turn = last.times(law.turns(gaussians), last.transposed(to_centre))
                turn = last.times(last.transposed(last.inverse(to_centre)), turn)
                turn = last.times(turn, mean_turn(T, a_round.moments, step, M))
                M = last.symmetric(last.times(last.times(turn, M), last.transposed(turn)))
            points = last.times(sent, last.cholesky(relative))
        except np.linalg.LinAlgError:
            raise _no_digits(float(step), t, squared, a_round.moments.clients) from None
        moved = base @ chart.middle(last.times(inverse[..., None], points))
        centre = moved @ moved.mT
        entries = relative[:, chart.rows, chart.columns]
        response = (entries - entries.mean(axis=-1, keepdims=True)) @ gaussians.mT
        T = last.outer(points)
        previous, (squared, direction) = squared, _largest(T)
        if not found.add_round(t, squared, before, units):
            raise _no_digits(float(step), t, previous, a_round.moments.clients)
    statistics = found.filled()
    statistics[:, settled] = 0.0
    return statistics


def _typical(M: Array, T: Array, centre: Array) -> Array:
    """Return the M (trials, k, k) at the centre of T with the mean of ``M (I + T)``, similar to ``B'B``."""
    identity = np.eye(len(centre[0]))
    mean = last.times(M, identity[..., None] + T).mean(axis=-1)
    return symmetric(np.linalg.solve(identity + centre, mean.mT))


def _no_digits(step_size: float, number: int, squared: Array, clients: Clients) -> ValueError:
    """Return the error of a round, given the squared tangents (trials, draws) of the round before."""
    moved = squared.max(axis=-1) > np.finfo(float).tiny  # no start at B*
    if (np.any(clients.variances) or clients.message_variance) and (moved & (squared.min(axis=-1) < SMALLEST)).any():
        return _too_small(clients)
    if (squared.min(axis=-1) < WIDEST * squared.max(axis=-1)).any():
        return ValueError(
            f"n_rounds must be below {number}: from this round on the distances of runs are spread over more than "
            f"{-0.5 * np.log10(WIDEST):.0f} decades, which second order cannot predict"
        )
    return too_large(step_size, number)


def _too_small(clients: Clients) -> ValueError:
    """Return the error for noise that is neither 0 nor large enough."""
    variance = float(np.max(clients.variances))
    name = "noise_std" if variance else "message_noise_std"
    return ValueError(
        f"{name} = {np.sqrt(variance or clients.message_variance):.3g} is too small: at distances below "
        f"{np.sqrt(SMALLEST):.0g} second order has no correct digits; it must be 0 or larger"
    )


def _largest(T: Array) -> tuple[Array, Array]:
    """Return the largest squared tangent of each point (trials, draws) and its direction (trials, k, draws)."""
    squared, direction = last.largest_eigenpair(T)
    return np.maximum(squared, np.finfo(float).tiny), direction


class Statistics:
    """Quantiles, spread and kick of the distance over the points, computed for several rounds together."""

    def __init__(self, trials: int, n_rounds: int, draws: int) -> None:
        self._statistics = np.empty((5, trials, n_rounds))
        self._units = np.empty((trials, n_rounds))
        self._tangents = np.empty((2, trials, min(n_rounds, ROUNDS), draws))
        self._first = self._count = 0

    def add_round(self, t: int, squared: Array, before: Array, units: Array) -> bool:
        """Add the largest squared tangents of round t, with and without its kick, and the unit of the tangents.

        Return True if all are finite. A unit below 1 requires squares that are negligible compared with 1.
        """
        self._tangents[:, :, t - self._first] = squared, squared / before
        self._units[:, t] = units
        self._count = t + 1 - self._first
        fine = bool(np.isfinite(self._tangents[:, :, self._count - 1]).all())
        if self._count == self._tangents.shape[2] and fine:
            self._flush()
        return fine

    def filled(self) -> Array:
        """Return the statistics of all rounds, (5, trials, n_rounds)."""
        self._flush()
        return self._statistics

    def _flush(self) -> None:
        squared, ratio = self._tangents[:, :, : self._count]
        if not self._count:
            return
        distance = np.sqrt(squared / (1.0 + squared))
        now = slice(self._first, self._first + self._count)
        out = self._statistics[:, :, now]
        out[:3] = np.quantile(distance, QUANTILES, axis=-1) * self._units[:, now]
        out[3], out[4] = np.log(distance).std(axis=-1), np.log(ratio).var(axis=-1)
        self._first, self._count = self._first + self._count, 0


@dataclass(frozen=True)
class CholeskyChart:
    """Coordinates of lower triangular matrices, and the points that represent their distribution.

    Parameters
    ----------
    rows, columns : ndarray (K,)
        Position of each coordinate: ``2 log Y_ii`` on the diagonal, ``Y_ij`` below, row by row.
    diagonal : ndarray (k,)
        Indices of the coordinates on the diagonal.
    reverse : ndarray (draws,)
        Number of each point with its bits reversed.
    scores : ndarray (draws,)
        Normal scores, ascending, of variance 1.
    """

    rows: Indices
    columns: Indices
    diagonal: Indices
    reverse: Indices
    scores: Array

    @classmethod
    @functools.cache
    def of(cls, k: int) -> CholeskyChart:
        """Return the chart for k angles, with at least `DRAWS` points."""
        rows, columns = np.tril_indices(k)
        bits = (max(DRAWS, 4 * RoundLaw.values(k)) - 1).bit_length()
        reverse = np.array([int(f"{number:0{bits}b}"[::-1], 2) for number in range(2**bits)])
        scores = np.array([NormalDist().inv_cdf((number + 0.5) / 2**bits) for number in range(2**bits)])
        return cls(rows, columns, np.flatnonzero(rows == columns), reverse, scores / scores.std())

    @property
    def draws(self) -> int:
        """Number of points."""
        return len(self.reverse)

    @property
    def linear(self) -> tuple[int, int]:
        """Shape of the response of a kick to the Gaussian values."""
        return len(self.rows), RoundLaw.values(len(self.diagonal))

    def rounds(self) -> Iterator[tuple[Array, int]]:
        """Yield for each round fixed antithetic Gaussian values with covariance I, and a number for shuffling."""
        rng = np.random.default_rng(0)
        half = rng.standard_normal((self.draws // 2, self.linear[1]))
        half = half @ np.linalg.inv(np.linalg.cholesky(half.T @ half / len(half))).T
        values = np.concatenate([half, -half]).T
        while True:  # all rounds use one set of values, permuted
            draws, roles = rng.permutation(self.draws), rng.permutation(self.linear[1])
            yield np.take(values[roles], draws, axis=1), int(rng.integers(self.draws))

    def spread(self, values: Array, mask: int, squared: Array, image: Array, response: Array) -> Array:
        """Return the values (trials, .., draws), spread evenly along the direction that changes each largest angle.

        If the points are sorted by that angle, the pairs of rank and value fill the square evenly. Quantiles over few
        points are then close to quantiles over many.
        """
        twice = np.where(self.rows == self.columns, 1.0, 2.0)[:, None]
        along = response.mT @ (image[:, self.rows] * image[:, self.columns] * twice)
        along /= np.maximum(np.sqrt(np.einsum("tvn,tvn->tn", along, along)), np.finfo(float).tiny)[:, None]
        order, wanted = np.argsort(squared, axis=-1, kind="stable"), np.empty_like(squared)
        wanted[np.arange(len(order))[:, None], order] = self.scores[self.reverse ^ mask]
        return values + (wanted - np.einsum("tvn,vn->tn", along, values))[:, None] * along

    def matrices(self, coordinates: Array) -> Array:
        """Return Y (..., k, k) for coordinates (..., K)."""
        k = len(self.diagonal)
        Y = np.zeros((*coordinates.shape[:-1], k, k))
        Y[..., self.rows, self.columns] = coordinates
        Y[..., range(k), range(k)] = np.exp(0.5 * coordinates[..., self.diagonal])
        return Y

    def middle(self, Y: Array) -> Array:
        """Return the matrices (trials, k, k) at the mean coordinates of Y (trials, k, k, draws)."""
        return self.matrices(self.coordinates(Y).mean(axis=-1))

    def coordinates(self, Y: Array) -> Array:
        """Return the coordinates (trials, K, draws) of lower triangular matrices (trials, k, k, draws)."""
        entries = Y[:, self.rows, self.columns]
        entries[:, self.diagonal] = 2.0 * np.log(entries[:, self.diagonal])
        return entries
