"""FedRep's best step in every round, and where label noise leaves it then.

Heads are exact, of length sqrt(k) with ``(1/n) sum_i w_i w_i' = I`` where nothing else is said; samples fresh standard
Gaussian. The state is one number: the mean squared sine q of the principal angles between B and B*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_integer, check_noise_std, check_number
from linfed.theory.fedrep.arguments import checked_isotropic_sizes, checked_steps, set_share


def best_step_schedule(
    *,
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int,
    noise_std: float,
    rounds: int,
    delta: float,
    participants: int | None = None,
) -> Array:
    """Return the steps on B that leave the least mean squared angle after every round.

    Parameters
    ----------
    dim, rank, n_clients, n_samples : int
        d >= 2k, k, n >= k and m >= k + 2; m > k + 3 is recommended.
    noise_std : float
        Standard deviation of the label noise, in units of y.
    rounds : int
        T >= 1.
    delta : float
        Root mean square sine of the principal angles of the start, inside (0, 1).
    participants : int, optional
        p <= n; all by default.

    Returns
    -------
    ndarray (rounds,)
        For the `step_size` of `linfed.FedRep`.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    A round takes the mean squared sine q, and the tangent's ``r = q/(1-q)``, to (`mean_squared_sine`)::

        r+ = [(1 - eta c (1-q))^2 q + eta^2 (V + c^2 f q (1-q)^2)] / [(1-q)(1 + eta c q)^2],      c = 1 - k/m
        V  = (c/(m p)) [(1-q)(k q (1-q) + D tau^2) + ((m-k+1) k q (1-q) + D tau^2) tau^2/(m-k-1)]
        tau^2 = k q + sigma^2,   D = d - k - k q,   f = (k-1)(n-p)/(p (n-1))

    which is `one_round_means` for k equal angles. Its minimum over eta is at::

        eta = c q / (c^2 q (1-q)(1 + f (1-q)) + V),      near B*   c q / (c^2 q (1+f) + c g q + v)

    with g of `one_round_factor` and ``v = (c/(m p)) (d-k) sigma^2 (1 + sigma^2/(m-k-1))``. As r+ grows with q at every
    eta, the step that is best for a round is best for all rounds that follow. Without noise it tends to
    `best_step_size`, under noise to ``1/(c t)``: then `schedule_asymptote`.

    The true heads' length and isotropy, the noise and the start must be known. For other heads no step size is the best
    for all directions: `refitted_heads_limit`.

    **Deviations**: an addition.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 100, "rank": 2, "n_clients": 50, "n_samples": 10, "noise_std": 1.0}
    >>> steps = lf.theory.best_step_schedule(**sizes, rounds=200, delta=0.5)
    >>> steps[[0, 9, 199]].round(3)
    array([0.576, 0.128, 0.006])
    >>> float(lf.theory.mean_squared_sine(steps, **sizes, rounds=200, delta=0.5)[-1].round(5))
    0.00142
    """
    law, rounds = (
        _Law.checked(dim, rank, n_clients, n_samples, noise_std, participants),
        check_integer("rounds", rounds),
    )
    q, steps = _start(delta), np.empty(rounds)
    for t in range(rounds):
        steps[t] = law.best(q)
        q = law.after(q, steps[t])
    return steps


def mean_squared_sine(
    step_size: float | npt.ArrayLike,
    *,
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int,
    noise_std: float,
    rounds: int,
    delta: float,
    participants: int | None = None,
) -> Array:
    """Return the mean squared sine of the principal angles in every round, the start first, for any step sizes.

    Parameters
    ----------
    step_size : float or array_like (rounds,)
        eta > 0, the step on B, or one for each round.
    dim, rank, n_clients, n_samples, noise_std, rounds, delta, participants
        As in `best_step_schedule`; T >= 0.

    Returns
    -------
    ndarray (rounds + 1,)
        ``E ||(I - B*B*')B||_F^2 / k``.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    The recursion of `best_step_schedule`, without a free parameter. It is `state_evolution` for k equal angles; the
    distance of a run, the sine of the largest, is `largest_sine` of it once noise has replaced the start.

    **Deviations**: an addition.
    """
    steps = checked_steps(step_size, rounds)
    law, path = _Law.checked(dim, rank, n_clients, n_samples, noise_std, participants), np.empty(len(steps) + 1)
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
    rounds: int,
    delta: float,
    participants: int | None = None,
) -> Array:
    """Return the mean squared tangent of the principal angles under `best_step_schedule`, in closed form near B*.

    Parameters
    ----------
    dim, rank, n_clients, n_samples, noise_std, rounds, delta, participants
        As in `best_step_schedule`, with noise.

    Returns
    -------
    ndarray (rounds + 1,)
        The start first.

    Raises
    ------
    ValueError
        For values out of range, or no noise.

    Notes
    -----
    With ``u = v/(c^2 r)`` a round is ``u+ = u + 1 - L/(u + L)`` up to higher orders of r, so that::

        r_t ~ (v/c^2) / (t + u_0 - L ln((t + u_0 + L)/(u_0 + L))),      v/c^2 = (d-k) sigma^2 (1 + s)/(c m p)
        L   = f + (1/(m p c)) [k (d-k+1) - k sigma^2 (1 + s) + ((m-k+1) + 2 (d-k)) k s + (d-k) sigma^2 s]

    and ``s = sigma^2/(m-k-1)``. The start counts as u_0 rounds; f and what stands in L, the noise that falls with the
    distance, cost a logarithm of the rounds and nothing in the limit, which is `refitted_heads_limit`.

    **Deviations**: an addition.
    """
    law, rounds = (
        _Law.checked(dim, rank, n_clients, n_samples, noise_std, participants),
        check_integer("rounds", rounds),
    )
    check_number("noise_std", noise_std, positive=True)
    d, k, m, p, c = law.dim, law.rank, law.n_samples, law.participants, law.c
    share = law.variance / (m - k - 1)
    inner = k * (d - k + 1) - k * law.variance * (1 + share) + (m - k + 1 + 2 * (d - k)) * k * share
    L = law.f + (inner + (d - k) * law.variance * share) / (m * p * c)
    unit = (d - k) * law.variance * (1 + share) / (c * m * p)
    q = _start(delta)
    first, t = unit * (1 - q) / q, np.arange(rounds + 1.0)
    return np.asarray(unit / (first + t - L * np.log((first + t + L) / (first + L))))


def _start(delta: float) -> float:
    """Return the start's squared sine."""
    if not 0.0 < check_number("delta", delta) < 1.0:
        raise ValueError(f"delta = {delta} must lie inside (0, 1)")
    return delta * delta


@dataclass(frozen=True)
class _Law:
    """One round's mean at k equal angles; formulas are those of `best_step_schedule`."""

    dim: int
    rank: int
    n_samples: int
    participants: int
    f: float
    variance: float

    @classmethod
    def checked(
        cls, dim: int, rank: int, n_clients: int, n_samples: int, noise_std: float, participants: int | None
    ) -> _Law:
        d, k, n, m, p = checked_isotropic_sizes(dim, rank, n_clients, n_samples, participants)
        return cls(d, k, m, p, (k - 1) * set_share(n, p), check_noise_std(noise_std) ** 2)

    @property
    def c(self) -> float:
        """``1 - k/m``."""
        return 1.0 - self.rank / self.n_samples

    def drawn(self, q: float) -> float:
        """Return ``V/q``."""
        k, m, spread = self.rank, self.n_samples, self.dim - self.rank - self.rank * q
        left = k * q + self.variance
        share = k + self.variance / q if self.variance else float(k)  # left over q
        along = (1.0 - q) * (k * (1.0 - q) + spread * share)
        across = ((m - k + 1) * k * (1.0 - q) + spread * share) * left / (m - k - 1)
        return self.c / (m * self.participants) * (along + across)

    def best(self, q: float) -> float:
        """Return the best step."""
        return self.c / (self.c**2 * (1.0 - q) * (1.0 + self.f * (1.0 - q)) + self.drawn(q))

    def after(self, q: float, eta: float) -> float:
        """Return the squared sine after a round."""
        move = eta * self.c
        kept = (1.0 - move * (1.0 - q)) ** 2 + eta * eta * self.drawn(q) + move * move * self.f * (1.0 - q) ** 2
        outside, inside = kept * q, (1.0 - q) * (1.0 + move * q) ** 2
        return outside / (outside + inside)
