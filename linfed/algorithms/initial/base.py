"""Base classes of initialisations.

An initialisation computes its arrays in `resolve`, from the random numbers, samples and ground truth that the loop
provides (`InitialStart`). It also declares the requirements that engines and memory estimates depend on, so a new
initialisation is one class, here or in a user's module.
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
    """Sizes of a chunk of trials, known before the first round."""

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
    """Random numbers, samples and ground truth for `resolve`; the first axis of all arrays is the chunk's trials."""

    def random(self) -> TrialRandom:
        """Return random numbers for initialisations, from the beginning of each trial's stream."""
        ...

    def batch(self) -> ExplicitBatch:
        """Return a batch of all clients with explicit samples; requires ``needs_batch = True``.

        In addition to the methods of every batch it has `X` (trials, n, m, d) and `y` (trials, n, m), read-only; rows
        beyond a client's count are zero.

        With fixed or given data the batch is the whole data set. Fresh data are drawn from separate streams, which the
        method of moments also uses.
        """
        ...

    def rows(self, clients: int) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield the samples of `batch` in blocks of clients, at bounded memory; does not require `needs_batch`.

        Each block is (trial, X (c, m, d), y (c, m), counts (c,)). The blocks cover the first `clients` clients, trial
        by trial.
        """
        ...

    def true_subspace(self, rank: int) -> Array:
        """Return the subspace of the ground truth, orthonormal (trials, d, rank); requires ``needs_truth = True``."""
        ...

    def given(self, array: Array) -> Array:
        """Return an array (a, b) or (all trials, a, b) for the trials of the chunk, (trials, a, b)."""
        ...


class Initialization(ByValue, ABC):
    """Base class of `Initial` and `InitialFactors`: the requirements that are known before `resolve`."""

    needs_truth: ClassVar[bool] = False
    """Whether `resolve` uses the subspace of the ground truth."""

    needs_batch: ClassVar[bool] = False
    """Whether `resolve` uses a first batch, whose memory is then counted."""

    @property
    def n_trials(self) -> int | None:
        """Number of trials of the given arrays; None if any number is supported."""
        return None

    def independent(self) -> bool:
        """Return True if the columns of B are known to be linearly independent."""
        return True

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise if the initialisation does not fit a run.

        Parameters
        ----------
        rank, n_clients, dim : int
            Columns k, clients n, dimension d.
        samples : float
            Number of samples of all clients together, in a round with full participation.
        memory : float
            Memory of the machine in bytes.
        """

    def floats_per_trial(self, *, rank: int, n_clients: int, dim: int) -> int:
        """Return the number of floats that `resolve` stores per trial, in addition to its result and the batch."""
        return 0


class Initial(Initialization):
    """Base class of initialisations of the representation B, also for user-defined ones.

    Notes
    -----
    A subclass is a frozen dataclass that implements `resolve`. It sets ``needs_batch = True`` if `resolve` calls
    ``start.batch()``, and ``needs_truth = True`` if it uses the ground truth. It may override `check`,
    `floats_per_trial`, `n_trials` and `independent`.

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
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(n_samples=25), n_rounds=0)
    >>> bool(result.metrics["subspace_distance"][0, 0] < 1e-10)
    True
    """

    @abstractmethod
    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the initial representation (trials, d, rank)."""


class InitialFactors(Initialization):
    """Base class of joint initialisations of B and W, also for user-defined ones (see `Initial`).

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import linfed as lf
    >>> from linfed.algorithms.initial import InitialFactors
    >>> @dataclass(frozen=True)
    ... class IdentityFactors(InitialFactors):
    ...     def resolve(self, start, rank):
    ...         B = np.eye(start.dim, rank)
    ...         return np.stack([B] * start.trials), np.zeros((start.trials, start.n_clients, rank))
    >>> problem = lf.SharedRepresentation(n_clients=10, dim=5, rank=2)
    >>> algorithm = lf.FLUTE(rank=2, step_size=0.03, init=IdentityFactors())
    >>> lf.simulate(algorithm, problem, data=lf.FreshSamples(20), n_rounds=0).final.B[0, :2]
    array([[1., 0.],
           [0., 1.]])
    """

    @abstractmethod
    def resolve(self, start: InitialStart, rank: int) -> tuple[Array, Array]:
        """Return the initial B (trials, d, rank) and W (trials, n, rank)."""
