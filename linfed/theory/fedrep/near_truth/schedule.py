"""FedRep's best step size in every round, and the resulting error under label noise.

Unless stated otherwise, heads are exact with length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``, and samples are fresh and
standard Gaussian. The state is the mean squared sine q of the k principal angles between B and B*, in a typical run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_inside, check_integer, check_noise_std, check_number
from linfed.theory.drawn_clients import set_share
from linfed.theory.fedrep.arguments import Clients, checked_isotropic_sizes, checked_steps

SMALLEST = 1e-150
"""Smallest initial sine, whose square does not underflow."""


def best_step_schedule(
    *,
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int | npt.ArrayLike,
    noise_std: float | npt.ArrayLike,
    n_rounds: int,
    delta: float,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    message_noise_std: float = 0.0,
) -> Array:
    """Return the step sizes for B that minimise a typical run's mean squared sine of the angles after every round.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round, for heads of length sqrt(k) with ``(1/n) sum_i w_i w_i' = I``.

    Parameters
    ----------
    dim, rank, n_clients : int
        d >= 2k, k and n >= k.
    n_samples : int or array_like (n,)
        m >= k + 2, equal for all clients, or one number for each client; m > k + 3 is recommended.
    noise_std : float or array_like (n,)
        Standard deviation of the label noise, in units of y, equal for all clients, or one for each client.
    n_rounds : int
        Number of rounds T >= 1.
    delta : float
        Root mean square sine of the initial principal angles, inside (0, 1) and at least 1e-150.
    participants : int, optional
        Number of participants p <= n in a round; all clients by default.
    weights : array_like (n,), optional
        The clients' weights as in `linfed.FedRep`; equal by default.
    message_noise_std : float
        Standard deviation s of noise on each entry of the mean message, as in `linfed.PrivateFedRep`.

    Returns
    -------
    ndarray (n_rounds,)
        Step sizes, accepted as `step_size` by `linfed.FedRep`.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    A round maps the mean squared sine q, with squared tangent ``r = q/(1-q)``, to (`mean_squared_sine`)::

        r+ = [(1 - eta a (1-q))^2 q + eta^2 (V + F q (1-q)^2)] / [(1-q)(1 + eta a q)^2],      a = mean_i omega_i c_i
        V  = (d-k) s^2 + mean_i (omega_i^2 c_i/(m_i p)) [(1-q)(k q (1-q) + D tau_i^2)
                                                         + ((m_i-k+1) k q (1-q) + D tau_i^2) tau_i^2/(m_i-k-1)]
        tau_i^2 = k q + sigma_i^2,   D = d - k - k q,   F = (n-p)/(p (n-1)) (k mean_i omega_i^2 c_i^2 - a^2)

    with ``c_i = 1 - k/m_i``. It is `one_round_means` for k equal angles. Its minimum over eta is at ::

        eta = a q / (a^2 q (1-q) + F q (1-q)^2 + V)

    If the clients are equal and all participate, this is ``c q/(c^2 q + c g q + v)`` near B*, with g of
    `one_round_factor` and ``v = (d-k) (s^2 + (c/(m p)) sigma^2 (1 + sigma^2/(m-k-1)))``. Noise on the message also
    changes the part of B inside B*. This is neglected: at q = 0.5 the measured q is 2 to 3 % larger (d = 20 to 50).
    Since r+ grows with q at every eta, the best step size for a round is also best for all later rounds. Without noise
    it converges to `best_step_size`. With noise it behaves as ``1/(c t)``, see `schedule_asymptote`.

    If clients differ, the heads must be unrelated to their numbers of samples, noise levels and weights:
    ``(1/n) sum_i w_i w_i' = I`` must also hold in each group of equal clients.

    The schedule requires knowledge of the length and isotropy of the true heads, of the noise and of the initial
    angles. For other heads no step size is the best one for all directions, see `refitted_heads_limit`.

    The step sizes are the best ones for a typical run, as in `mean_squared_sine`. With few participants and a far
    initialisation, smaller steps can have a smaller mean over runs. With 3 of 20 participants and ``delta = 0.9``, the
    schedule for ``delta = 0.98`` ends with a mean that is lower by a third. The medians are equal.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 100, "rank": 2, "n_clients": 50, "n_samples": 10, "noise_std": 1.0}
    >>> steps = lf.theory.best_step_schedule(**sizes, n_rounds=200, delta=0.5)
    >>> steps[[0, 9, 199]].round(3)
    array([0.576, 0.128, 0.006])
    >>> float(lf.theory.mean_squared_sine(steps, **sizes, n_rounds=200, delta=0.5)[-1].round(5))
    0.00142
    """
    law = _Law.checked(dim, rank, n_clients, n_samples, noise_std, participants, weights, message_noise_std)
    n_rounds = check_integer("n_rounds", n_rounds)
    q, steps = _start(delta), np.empty(n_rounds)
    for t in range(n_rounds):
        steps[t] = law.best(q)
        q = law.after(q, steps[t])
    return steps


def mean_squared_sine(
    step_size: float | npt.ArrayLike,
    *,
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int | npt.ArrayLike,
    noise_std: float | npt.ArrayLike,
    n_rounds: int,
    delta: float,
    participants: int | None = None,
    weights: npt.ArrayLike | None = None,
    message_noise_std: float = 0.0,
) -> Array:
    """Predict the mean squared sine of FedRep's k principal angles in a typical run, in every round, for given steps.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round, for heads of length sqrt(k) with ``(1/n) sum_i w_i w_i' = I``.

    Parameters
    ----------
    step_size : float or array_like (n_rounds,)
        Step size eta > 0 for B, one for all rounds or one per round.
    dim, rank, n_clients, n_samples, noise_std, n_rounds, delta, participants, weights, message_noise_std
        As in `best_step_schedule`; T >= 0.

    Returns
    -------
    ndarray (n_rounds + 1,)
        ``||(I - B*B*')B||_F^2 / k`` of a typical run, from the initial value on.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    This is the recursion of `best_step_schedule`, without fitted parameters. It equals `state_evolution` for k equal
    angles. The distance of a run, the sine of the largest angle, is `largest_sine` of this value once the angles are
    due to noise and no longer to the initial B.

    The mean of a round is applied in every round, without the spread of q over runs. Compared with 300 runs in 17
    settings, the result is within 3 % of their mean for ``delta <= 0.7`` and d of at least 4k. For ``delta = 0.9``, or
    d = 2k, the median is up to 31 % higher in the first rounds, and from 1 % lower to 13 % higher at the end. The mean
    then depends on rare slow runs: it is 2 to 2.4 times the result with 3 of 20 participants, and up to 5 times in
    single settings.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 200, "rank": 5, "n_clients": 400, "n_samples": 20, "noise_std": 0.1}
    >>> q = lf.theory.mean_squared_sine(0.5, **sizes, n_rounds=50, delta=0.9)
    >>> q.shape, round(float(q[-1] ** 0.5), 4), round(lf.theory.noise_floor(0.5, **sizes), 4)
    ((51,), 0.0088, 0.0088)
    """
    steps = checked_steps(step_size, n_rounds)
    law = _Law.checked(dim, rank, n_clients, n_samples, noise_std, participants, weights, message_noise_std)
    path = np.empty(len(steps) + 1)
    path[0] = _start(delta)
    for t, eta in enumerate(steps):
        path[t + 1] = law.after(path[t], eta)
    return path


def schedule_asymptote(
    *,
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int,
    noise_std: float,
    n_rounds: int,
    delta: float,
    participants: int | None = None,
) -> Array:
    """Return the mean squared tangent of the principal angles near B* with `best_step_schedule`, in closed form.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round, for heads of length sqrt(k) with ``(1/n) sum_i w_i w_i' = I``.

    Parameters
    ----------
    dim, rank, n_clients, n_samples, noise_std, n_rounds, delta, participants
        As in `best_step_schedule`, with ``noise_std > 0``.

    Returns
    -------
    ndarray (n_rounds + 1,)
        Mean squared tangents, from the initial value on.

    Raises
    ------
    ValueError
        If a value is out of range, or if `noise_std` is 0.

    Notes
    -----
    With ``u = v/(c^2 r)`` a round is ``u+ = u + 1 - L/(u + L)`` up to higher orders of r. Hence::

        r_t ~ (v/c^2) / (t + u_0 - L ln((t + u_0 + L)/(u_0 + L))),      v/c^2 = (d-k) sigma^2 (1 + h)/(c m p)
        L   = f + (1/(m p c)) [k (d-k+1) - k sigma^2 (1 + h) + ((m-k+1) + 2 (d-k)) k h + (d-k) sigma^2 h]

    with ``h = sigma^2/(m-k-1)``, without noise on messages. The initial angles count as u_0 rounds. L contains f and
    the noise that falls with the distance. It costs a logarithm of the number of rounds and has no effect on the limit,
    `refitted_heads_limit`.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 200, "rank": 5, "n_clients": 400, "n_samples": 20, "noise_std": 1.0}
    >>> lf.theory.schedule_asymptote(**sizes, n_rounds=200, delta=0.1)[[0, 200]].round(5)
    array([0.0101 , 0.00017])
    """
    d, k, n, m, p = checked_isotropic_sizes(dim, rank, n_clients, n_samples, participants)
    variance = check_number("noise_std", check_noise_std(noise_std), positive=True) ** 2
    n_rounds, c, f = check_integer("n_rounds", n_rounds), 1.0 - k / m, (k - 1) * set_share(n, p)
    share = variance / (m - k - 1)
    inner = k * (d - k + 1) - k * variance * (1 + share) + (m - k + 1 + 2 * (d - k)) * k * share
    L = f + (inner + (d - k) * variance * share) / (m * p * c)
    unit = (d - k) * variance * (1 + share) / (c * m * p)
    q = _start(delta)
    first, t = unit * (1 - q) / q, np.arange(n_rounds + 1.0)
    return np.asarray(unit / (first + t - L * np.log((first + t + L) / (first + L))))


def _start(delta: float) -> float:
    """Check delta and return the initial squared sine."""
    delta = check_inside("delta", delta)
    delta = check_number("delta", delta, minimum=SMALLEST)
    return delta * delta


@dataclass(frozen=True)
class _Law:
    """Mean of a round at k equal angles, by the formulas of `best_step_schedule`."""

    clients: Clients

    @classmethod
    def checked(
        cls,
        dim: int,
        rank: int,
        n_clients: int,
        n_samples: int | npt.ArrayLike,
        noise_std: float | npt.ArrayLike,
        participants: int | None,
        weights: npt.ArrayLike | None,
        message_noise_std: float,
    ) -> _Law:
        k = check_integer("rank", rank)
        n = check_integer("n_clients", n_clients, minimum=k)
        return cls(Clients.checked(n, k, dim, n_samples, noise_std, participants, weights, message_noise_std))

    @cached_property
    def pull(self) -> float:
        """``a = mean_i omega_i c_i``."""
        return float(np.mean(self.clients.weights * self.clients.fitted))

    @cached_property
    def spread(self) -> float:
        """F, due to client sampling."""
        clients = self.clients
        square = float(np.mean((clients.weights * clients.fitted) ** 2))
        return clients.share * (clients.rank * square - self.pull**2)

    def variance_ratio(self, q: float) -> float:
        """Return ``V/q``."""
        clients = self.clients
        k, m, variance = clients.rank, clients.counts, clients.variances
        spread = clients.dim - k - k * q
        left = k * q + variance
        share = k + variance / q if variance.any() else k  # left / q
        along = (1.0 - q) * (k * (1.0 - q) + spread * share)
        across = ((m - k + 1) * k * (1.0 - q) + spread * share) * left / clients.spare
        samples, added = float(np.mean(clients.gain * (along + across))), clients.message_variance
        return samples + (clients.dim - k) * added / q if added else samples

    def best(self, q: float) -> float:
        """Return the best step size at q."""
        inside = 1.0 - q
        return self.pull / (self.pull**2 * inside + self.spread * inside**2 + self.variance_ratio(q))

    def after(self, q: float, eta: float) -> float:
        """Return the squared sine after a round."""
        move, inside = eta * self.pull, 1.0 - q
        kept = (1.0 - move * inside) ** 2 + eta * eta * (self.variance_ratio(q) + self.spread * inside**2)
        outside, kept_inside = kept * q, inside * (1.0 + move * q) ** 2
        return outside / (outside + kept_inside)
