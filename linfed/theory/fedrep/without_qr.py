"""FedRep without QR: B grows under label noise, and its step anneals itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_array, check_integer, check_noise_std, check_number
from linfed.theory.fedrep.arguments import checked_isotropic_sizes, start_at
from linfed.theory.fedrep.state_evolution import StateEvolution, one_round_means


@dataclass(frozen=True, kw_only=True, eq=False)
class UnnormalisedEvolution(StateEvolution):
    """What `unnormalised_evolution` predicts, round by round, the start first.

    Parameters
    ----------
    distance, N, Q : ndarray
        As `StateEvolution`, of the Q factor of B.
    squared_length : ndarray (rounds + 1,)
        Mean of the squared singular values of B; the step of a round is worth ``step_size / squared_length``.
    """

    squared_length: Array


def unnormalised_evolution(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int,
    step_size: float,
    rounds: int,
    noise_std: float = 0.0,
    participants: int | None = None,
    delta: float | None = None,
    B0: npt.ArrayLike | None = None,
    B_star: npt.ArrayLike | None = None,
) -> UnnormalisedEvolution:
    """Predict how FedRep's B grows, and its subspace distance, where B is not normalised after a round.

    Parameters
    ----------
    W : array_like (n, k)
        True heads of all clients, whose second moment is near a multiple of I: otherwise B grows unevenly.
    dim, n_samples, step_size, rounds, noise_std, participants, delta
        As in `state_evolution`; B starts with orthonormal columns.
    B0, B_star : array_like (d, k), optional
        The start and the truth as orthonormal bases, in place of `delta`.

    Returns
    -------
    UnnormalisedEvolution

    Raises
    ------
    ValueError
        As `state_evolution`.

    Notes
    -----
    It describes ``lf.FedRep(..., orthonormalize=False)`` with exact heads. With ``B = B_q R``, B_q orthonormal, a step
    eta on B is one of ``eta (R R')^{-1}`` on B_q. For ``R R' = s I`` a round is `one_round_means` with ``eta/s``, and
    ``s+ = s tr(N~'N~ + Q~)/k``: the message is orthogonal to B, so that s never falls. The median and the band of runs
    are those of `second_order_evolution` with the steps ``step_size / squared_length``.

    **Deviations**: an addition; FedRep paper, Algorithm 2 as printed, has no QR.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=100, dim=50, rank=2, condition_number=1.0).truth(0, [0]).W[0]
    >>> found = lf.theory.unnormalised_evolution(
    ...     heads, dim=50, n_samples=10, step_size=0.5, rounds=200, noise_std=1.0, delta=0.3)
    >>> found.squared_length[[0, 200]].round(2).tolist()
    [1.0, 2.46]
    """
    heads = check_array("W", W, [("n", "k")])
    k, rounds = heads.shape[1], check_integer("rounds", rounds, minimum=0)
    step_size = check_number("step_size", step_size, positive=True)
    N, Q = start_at(delta, B0, B_star, dim=check_integer("dim", dim), rank=k)
    if N.ndim == 3:
        raise ValueError(f"B0 and B_star are for {len(N)} trials; one start is followed here")
    path, lengths = [(N, Q)], [1.0]
    for _ in range(rounds):
        N, Q = one_round_means(
            N,
            Q,
            heads,
            dim=dim,
            n_samples=n_samples,
            step_size=step_size / lengths[-1],
            noise_std=noise_std,
            participants=participants,
        )
        gram = N.T @ N + Q
        lengths.append(lengths[-1] * float(np.trace(gram)) / k)
        L = np.linalg.cholesky(gram)
        N, Q = np.linalg.solve(L, N.T).T, np.linalg.solve(L, np.linalg.solve(L, Q).T)
        N, Q = np.asarray(N), np.asarray(0.5 * (Q + Q.T))
        path.append((N, Q))
    Ns, Qs = (np.array(one) for one in zip(*path, strict=True))
    distance = np.sqrt(np.clip(np.linalg.eigvalsh(Qs)[:, -1], 0.0, 1.0))
    return UnnormalisedEvolution(distance=distance, N=Ns, Q=Qs, squared_length=np.array(lengths))


def norm_growth(
    step_size: float,
    *,
    dim: int,
    rank: int,
    n_clients: int,
    n_samples: int,
    noise_std: float,
    participants: int | None = None,
) -> float:
    """Return how fast B grows under label noise where nothing normalises it: C of ``||B||^4 = 1 + C t``.

    Parameters
    ----------
    step_size, dim, rank, n_clients, n_samples, noise_std, participants
        As in `noise_floor`; any step size.

    Returns
    -------
    float
        ``2 eta^2 c (d-k) sigma^2 (1 + sigma^2/(m-k-1)) / (p m)``, ``c = 1 - k/m``.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    The limit of `unnormalised_evolution` near B* and for small steps, for heads of length sqrt(k) with
    ``(1/n) sum_i w_i w_i' = I``: ``s+ = s + eta^2 v/s`` with v the variance of what participants send per column, hence
    ``s^2 = 1 + 2 eta^2 v t``. The step anneals itself, as ``eta/s``, and the noise floor goes on falling, as
    ``t^{-1/8}``. Where B stands at the floor, its distance adds a share of about ``c eta/(2 s)`` to v: at first B grows
    faster than C.

    **Deviations**: an addition.
    """
    step_size = check_number("step_size", step_size, positive=True)
    noise_std = check_noise_std(noise_std)
    dim, rank, _, n_samples, p = checked_isotropic_sizes(dim, rank, n_clients, n_samples, participants)
    variance = noise_std * noise_std
    drawn = (1.0 - rank / n_samples) * (dim - rank) * variance * (1.0 + variance / (n_samples - rank - 1))
    return 2.0 * step_size**2 * drawn / (p * n_samples)
