"""FedRep without QR: growth of B under label noise, which decreases the effective step size."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_integer, check_noise_std, check_number
from linfed.numerics.linalg import symmetric
from linfed.theory.fedrep.arguments import Clients, checked_isotropic_sizes, start_at
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments, StateEvolution, means_of, too_large


@dataclass(frozen=True, kw_only=True, eq=False)
class UnnormalizedEvolution(StateEvolution):
    """Prediction of `unnormalized_evolution` for every round, from the initialisation on.

    Parameters
    ----------
    distance, N, Q : ndarray
        As in `StateEvolution`, for the Q factor of B.
    squared_length : ndarray (n_rounds + 1,)
        Mean of the squared singular values of B. If they are equal, the effective step size of a round is
        ``step_size / squared_length``.
    S : ndarray (n_rounds + 1, k, k)
        ``R R'`` of ``B = B_q R``. The effective step size of a round is the matrix ``step_size S^{-1}``.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=100, dim=50, rank=2).truth(0, [0]).W[0]
    >>> found = lf.theory.unnormalized_evolution(
    ...     heads, dim=50, n_samples=10, step_size=0.5, n_rounds=10, noise_std=1.0, delta=0.3)
    >>> found.squared_length.shape, bool(found.squared_length[-1] > found.squared_length[0])
    ((11,), True)
    """

    squared_length: Array
    S: Array


def unnormalized_evolution(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int,
    step_size: float,
    n_rounds: int,
    noise_std: float = 0.0,
    participants: int | None = None,
    delta: float | None = None,
    B0: npt.ArrayLike | None = None,
    B_star: npt.ArrayLike | None = None,
) -> UnnormalizedEvolution:
    """Predict the growth of B and the subspace distance of FedRep without normalisation of B.

    Parameters
    ----------
    W : array_like (n, k)
        True heads of all clients.
    dim, n_samples, step_size, n_rounds, noise_std, participants, delta
        As in `state_evolution`. The initial B has orthonormal columns.
    B0, B_star : array_like (d, k), optional
        Initial B and ground truth as orthonormal bases. Used instead of `delta`.

    Returns
    -------
    UnnormalizedEvolution

    Raises
    ------
    ValueError
        As in `state_evolution`.

    Notes
    -----
    The prediction describes ``lf.FedRep(..., orthonormalize=False)`` with exact heads. With ``B = B_q R`` and
    orthonormal B_q, a step eta on B is a step ``eta (R R')^{-1}`` on B_q: with ``S = R R'`` the heads in B_q's columns
    are multiplied by ``eta S^{-1}``. So a round is `one_round_means` with this matrix in place of the step size, and
    ``S+ = C S C'`` with ``C'C = N~'N~ + Q~``. The messages are orthogonal to B, so S never falls. B grows along long
    heads most, which slows these directions down most. The median and the band of runs are given by
    `second_order_evolution` with ``orthonormalize=False``.

    It was compared with 300 runs in 6 settings of heads with equal second moments in all directions. From
    ``n_samples = k + 4`` on, the squared length is at most 4 % below the mean of runs. At k + 3, with 12 clients and
    large noise, it is up to 12 % below. As in `state_evolution`, the distance is below the median of runs: by 8 % for
    100 clients and 50 dimensions, and by up to 24 % for 12 or 10 clients. `linfed.predict` gives the median around
    these means instead.

    **Deviations**: not in the paper. Algorithm 2 of the FedRep paper, as printed, has no QR.

    Examples
    --------
    >>> import linfed as lf
    >>> heads = lf.SharedRepresentation(n_clients=100, dim=50, rank=2, condition_number=1.0).truth(0, [0]).W[0]
    >>> found = lf.theory.unnormalized_evolution(
    ...     heads, dim=50, n_samples=10, step_size=0.5, n_rounds=200, noise_std=1.0, delta=0.3)
    >>> found.squared_length[[0, 200]].round(2).tolist()
    [1.0, 2.46]
    """
    heads = check_array("W", W, [("n", "k")])
    k, n_rounds = heads.shape[1], check_integer("n_rounds", n_rounds, minimum=0)
    step_size = check_number("step_size", step_size, positive=True)
    clients = Clients.checked(heads.shape[0], k, dim, n_samples, noise_std, participants, None)
    N, Q = start_at(delta, B0, B_star, dim=clients.dim, rank=k)
    if N.ndim == 3:
        raise ValueError(f"B0 and B_star are for {len(N)} trials; give one B0 and one B_star without a trial axis")
    path, S, moments = [(N, Q, np.eye(k))], np.eye(k), RoundMoments.of(heads, clients)
    for number in range(1, n_rounds + 1):
        L = np.full((k, k), np.nan)
        with np.errstate(over="ignore", invalid="ignore"), suppress(np.linalg.LinAlgError):
            N, Q = means_of(N, Q, moments, symmetric(np.asarray(step_size * np.linalg.inv(S))))
            L[:] = np.linalg.cholesky(N.T @ N + Q)
        if not np.isfinite(L).all():
            raise too_large(step_size, number)
        S = symmetric(L.T @ S @ L)
        N, Q = np.linalg.solve(L, N.T).T, np.linalg.solve(L, np.linalg.solve(L, Q).T)
        N, Q = np.asarray(N), symmetric(Q)
        path.append((N, Q, S))
    Ns, Qs, sizes = (np.array(one) for one in zip(*path, strict=True))
    distance = np.sqrt(np.clip(np.linalg.eigvalsh(Qs)[:, -1], 0.0, 1.0))
    lengths = np.trace(sizes, axis1=-2, axis2=-1) / k
    return UnnormalizedEvolution(distance=distance, N=Ns, Q=Qs, squared_length=lengths, S=sizes)


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
    """Return the growth rate C of B in FedRep without QR under label noise, in ``||B||^4 = 1 + C t`` after t rounds.

    Parameters
    ----------
    step_size, dim, rank, n_clients, n_samples, noise_std, participants
        As in `noise_floor`, with any step size.

    Returns
    -------
    float
        ``2 eta^2 c (d-k) sigma^2 (1 + sigma^2/(m-k-1)) / (p m)``, ``c = 1 - k/m``.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    This is the limit of `unnormalized_evolution` near B* for small step sizes, on fresh standard Gaussian samples, for
    heads of length sqrt(k) with ``(1/n) sum_i w_i w_i' = I``. There ``s+ = s + eta^2 v/s``, where v is the variance of
    the averaged message per column, hence ``s^2 = 1 + 2 eta^2 v t``. The effective step size ``eta/s`` decreases, and
    the noise floor falls as ``t^{-1/4}``. When B is at the floor, its distance adds a share of about ``c eta/(2 s)`` to
    v, so B initially grows faster than C.

    **Deviations**: not in the paper.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 200, "rank": 5, "n_clients": 400, "n_samples": 20}
    >>> round(lf.theory.norm_growth(0.5, **sizes, noise_std=1.0), 5)
    0.00979
    """
    step_size = check_number("step_size", step_size, positive=True)
    noise_std = check_noise_std(noise_std)
    dim, rank, _, n_samples, p = checked_isotropic_sizes(dim, rank, n_clients, n_samples, participants)
    variance = noise_std * noise_std
    growth = (1.0 - rank / n_samples) * (dim - rank) * variance * (1.0 + variance / (n_samples - rank - 1))
    return 2.0 * step_size**2 * growth / (p * n_samples)
