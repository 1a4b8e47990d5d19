"""What an initialisation is: how it is made (`resolve`), from answers that only the loop can give (`InitialStart`).

What engines and memory need to know of it is asked of it as well, so a new one is one class, here or in a user's own
module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Protocol

from linfed._types import Array
from linfed._values import ByValue
from linfed.data.explicit import ExplicitBatch
from linfed.numerics.streams import TrialRandom


class ChunkSizes(Protocol):
    """Sizes of a chunk of trials, which whoever is asked before the first round can tell."""

    @property
    def trials(self) -> int:
        """Number of trials in this chunk."""
        ...

    @property
    def n_clients(self) -> int:
        """Number of clients n."""
        ...

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        ...


class InitialStart(ChunkSizes, Protocol):
    """What an initialisation may ask; shapes have the trials of a chunk first."""

    def random(self) -> TrialRandom:
        """Return random numbers for initialisations, each trial's from the beginning of its own stream."""
        ...

    def batch(self) -> ExplicitBatch:
        """Return a batch of all clients, in explicit rows: for a class that says ``needs_batch = True``.

        Beside the questions of every batch it has `X` (trials, n, m, d) and `y` (trials, n, m), read-only; rows beyond
        a client's count are zero.

        Fixed and given data are seen as they are; fresh data are drawn from streams of their own, the rows that the
        method of moments sees.
        """
        ...

    def rows(self, clients: int) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield the rows of that batch at bounded memory: (trial, X (c, m, d), y (c, m), counts (c,)), in blocks.

        Trial by trial, over the first `clients` clients.
        """
        ...

    def true_subspace(self, rank: int) -> Array:
        """Return the truth's subspace, orthonormal (trials, d, rank): for a class that says ``needs_truth = True``."""
        ...

    def given(self, array: Array) -> Array:
        """Return an array (a, b), or (all trials, a, b), for each trial of the chunk, (trials, a, b)."""
        ...


class Initialisation(ByValue, ABC):
    """What is known of an initialisation before it is resolved; base of `Initial` and `InitialFactors`."""

    needs_truth: ClassVar[bool] = False
    """Whether it asks for the truth's subspace."""

    needs_batch: ClassVar[bool] = False
    """Whether it asks for a first batch, whose memory is then counted."""

    @property
    def n_trials(self) -> int | None:
        """Number of trials that it has arrays for; None if it serves any number."""
        return None

    def independent(self) -> bool:
        """Return whether the columns of B are known to be linearly independent."""
        return True

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise if it does not fit a run.

        Parameters
        ----------
        rank, n_clients, dim : int
            Columns k, clients n, dimension d.
        samples : float
            Samples of all clients together, in a round of everybody.
        memory : float
            Bytes of the machine's memory.
        """

    def floats_per_trial(self, *, rank: int, n_clients: int, dim: int) -> int:
        """Return how many numbers `resolve` holds for one trial at a time, beside its result and the batch."""
        return 0


class Initial(Initialisation):
    """How the representation B begins: base of those here, and of one's own.

    Notes
    -----
    A subclass is a frozen dataclass that writes `resolve`. One that asks for a first batch says ``needs_batch = True``,
    one that asks for the truth ``needs_truth = True``; what else a run must know of it, it may say by `check`,
    `floats_per_trial`, `n_trials` and `independent`.

    **Deviations**: none.

    Examples
    --------
    The top-k left singular vectors of the clients' least-squares regressors:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import linfed as lf
    >>> @dataclass(frozen=True)
    ... class OfRegressors(lf.Initial):
    ...     needs_batch = True
    ...
    ...     def resolve(self, start, rank):
    ...         theta = start.batch().least_squares()
    ...         return np.linalg.svd(theta.mT, full_matrices=False)[0][..., :rank]
    >>> problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=2)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.5, init=OfRegressors())
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(n_samples=25), rounds=0)
    >>> bool(result.metrics["subspace_distance"][0, 0] < 1e-10)
    True
    """

    @abstractmethod
    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the initial representation (trials, d, rank)."""


class InitialFactors(Initialisation):
    """How representation and heads begin together: base of those here, and of one's own (see `Initial`)."""

    @abstractmethod
    def resolve(self, start: InitialStart, rank: int) -> tuple[Array, Array]:
        """Return the initial B (trials, d, rank) and W (trials, n, rank)."""
