"""The method of moments: a spectral first estimate from the clients' samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, optional
from linfed.algorithms.initial.base import Initial, InitialStart
from linfed.errors import SizeError, check_integer
from linfed.numerics.linalg import top_eigenvectors

MOMENTS_WORK = 1e14
"""Operations of the method of moments, hours of them, beyond which it is out of reach."""


@dataclass(frozen=True, kw_only=True)
class Moments(Initial):
    """Method of moments: top-k eigenvectors of ``(1/n) sum_i (1/m) sum_j y_ij^2 x_ij x_ij'``.

    Parameters
    ----------
    clients : int, optional
        Use the first so many clients only; all by default.

    Notes
    -----
    Fresh data give it a batch of its own, from streams of their own; fixed or given data are used as they are. Cost
    O(n m d^2), streamed in blocks of clients.

    **Deviations**: the subset of clients is an addition.

    References
    ----------
    FedRep paper, Algorithm 2; Tripuraneni, Jin and Jordan 2021.
    """

    clients: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, clients=optional(check_integer))

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise for more clients than there are, or work or memory out of reach."""
        clients = n_clients if self.clients is None else self.clients
        if clients > n_clients:
            raise ValueError(f"clients = {clients} of the moments init must be at most n_clients = {n_clients}")
        work = samples * clients / n_clients * dim**2
        if work > MOMENTS_WORK or 24.0 * dim**2 > memory:
            raise SizeError(
                f"init = {self!r} needs every sample itself, about {work:.1g} operations a trial and a {dim} x {dim} "
                "matrix: take fewer clients, lf.Moments(clients=...), or start at lf.AtDistance(delta) or 'random'"
            )

    def floats_per_trial(self, *, rank: int, n_clients: int, dim: int) -> int:
        """Return the size of the moment matrix and its decomposition."""
        return 3 * dim**2

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the eigenvectors, from rows in blocks of clients at bounded memory."""
        clients = start.n_clients if self.clients is None else self.clients
        moment = np.zeros((start.trials, start.dim, start.dim))
        for trial, X, y, counts in start.rows(clients):
            weighted = ((y / np.sqrt(counts)[:, None])[..., None] * X).reshape(-1, start.dim)
            moment[trial] += weighted.T @ weighted
        return top_eigenvectors(moment / clients, rank)
