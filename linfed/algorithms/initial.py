"""Initial representations, and initial factors: what a run begins with.

Each says how it is made (`resolve`), from answers that only the loop can give (`InitialStart`): the truth's subspace, a
first batch. What engines and memory need to know of it is asked of it as well, so a new one is one class, here or in a
user's own module.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import ByValue
from linfed.data.explicit import ExplicitBatch
from linfed.errors import SizeError, check_array, check_choice, check_integer, check_number, shown
from linfed.numerics.linalg import orthonormalize, top_eigenvectors
from linfed.numerics.streams import TrialRandom

MOMENTS_WORK = 1e14
"""Operations of the method of moments, hours of them, beyond which it is out of reach."""


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
        if self.clients is not None:
            object.__setattr__(self, "clients", check_integer("clients", self.clients))

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


@dataclass(frozen=True)
class RandomSubspace(Initial):
    """The column space of a standard Gaussian (d, k) matrix: uniform over subspaces.

    Notes
    -----
    With one seed it is the Q factor of the B that `SmallRandom` draws: FedRep(RI) of FLUTE's figures.

    **Deviations**: FLUTE's experiments start FedRep(RI) at FLUTE's own Gaussian draw; here it is orthonormalised.
    """

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the Q factor of the Gaussian matrix."""
        return orthonormalize(start.random().standard_normal((start.dim, rank)))


@dataclass(frozen=True)
class AtDistance(Initial):
    """A subspace at a given distance from the truth's: all k principal angles have the sine `delta`.

    Parameters
    ----------
    delta : float, 0 <= delta <= 1
        Sine of every principal angle to the reference subspace; needs ``dim >= 2 rank`` and a truth.

    Notes
    -----
    ``B = sqrt(1 - delta^2) B* O + delta P`` with O a uniform rotation and P uniform among the orthonormal (d, k)
    matrices orthogonal to B*.

    **Deviations**: an addition, for experiments on rates.
    """

    delta: float

    needs_truth: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", check_number("delta", self.delta, minimum=0.0, maximum=1.0))

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise if there is no room beside the reference subspace."""
        if dim < 2 * rank:
            raise ValueError(f"init = {self!r} needs dim >= 2 rank; got dim = {dim}, rank = {rank}")

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return B at its distance from the truth's subspace."""
        rng, reference = start.random(), start.true_subspace(rank)
        random = rng.standard_normal((start.dim, rank))
        # Twice is enough: the second projection removes what rounding left of the first.
        for _ in range(2):
            random = orthonormalize(random - reference @ (np.swapaxes(reference, -1, -2) @ random))
        turn = orthonormalize(rng.standard_normal((rank, rank)))
        return math.sqrt(1.0 - self.delta**2) * (reference @ turn) + self.delta * random


@dataclass(frozen=True)
class TrueSubspace(Initial):
    """The truth's own subspace: ``B*``, or its top-k left singular subspace ``U_k`` where its rank is above k.

    Notes
    -----
    What `Oracle` uses; `Truth.reference` says what ``U_k`` is under a covariance of x.

    **Deviations**: an addition, a reference line.
    """

    needs_truth: ClassVar[bool] = True

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the truth's subspace."""
        return start.true_subspace(rank)


@dataclass(frozen=True)
class GivenSubspace(Initial):
    """A representation given as an array, used as it is (not orthonormalised).

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)

    Notes
    -----
    **Deviations**: an addition, to replay other implementations.
    """

    B: npt.ArrayLike

    def __post_init__(self) -> None:
        value = check_array("init", self.B, [("d", "k"), ("trials", "d", "k")])
        value.setflags(write=False)
        object.__setattr__(self, "B", value)

    @property
    def array(self) -> Array:
        """The array itself."""
        return np.asarray(self.B)

    @property
    def n_trials(self) -> int | None:
        """Number of trials that the array is given for; None if it serves any number."""
        return _trials_of(self.array)

    def independent(self) -> bool:
        """Return whether the columns are linearly independent."""
        return bool((np.linalg.matrix_rank(self.array) == self.array.shape[-1]).all())

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise for another shape."""
        if self.array.shape[-2:] != (dim, rank):
            raise ValueError(
                f"init has shape {self.array.shape}, expected (d, k) = ({dim}, {rank}), with or without a leading "
                "trial axis"
            )

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the array."""
        return start.given(self.array)


@dataclass(frozen=True)
class SmallRandom(InitialFactors):
    """Small Gaussian factors: all entries of B and W are independent N(0, alpha^2).

    Parameters
    ----------
    alpha : float, optional
        Standard deviation; ``1 / (10 d)`` by default.

    Notes
    -----
    **Deviations**: none.

    References
    ----------
    FLUTE paper, Algorithm 1, line 2; Theorem 5.1 and Appendix C.1 for alpha.
    """

    alpha: float | None = None

    def __post_init__(self) -> None:
        if self.alpha is not None:
            object.__setattr__(self, "alpha", check_number("alpha", self.alpha, positive=True))

    def resolve(self, start: InitialStart, rank: int) -> tuple[Array, Array]:
        """Return the factors; B comes first, so that it is what `RandomSubspace` draws."""
        rng, alpha = start.random(), 1.0 / (10.0 * start.dim) if self.alpha is None else self.alpha
        B, W = (rng.standard_normal((rows, rank)) for rows in (start.dim, start.n_clients))
        B *= alpha
        W *= alpha
        return B, W


@dataclass(frozen=True)
class GivenFactors(InitialFactors):
    """Representation and heads given as arrays.

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)
    W : array_like (n, k) or (trials, n, k)

    Notes
    -----
    **Deviations**: an addition, to replay other implementations and to go on from a state.
    """

    B: npt.ArrayLike
    W: npt.ArrayLike

    def __post_init__(self) -> None:
        for name, rows in (("B", "d"), ("W", "n")):
            value = check_array(f"init {name}", getattr(self, name), [(rows, "k"), ("trials", rows, "k")])
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        trials = {array.shape[0] for array in self.arrays if array.ndim == 3}
        if len(trials) > 1:
            raise ValueError(f"init has arrays for {sorted(trials)} trials; B and W must agree")

    @property
    def arrays(self) -> tuple[Array, Array]:
        """B and W."""
        return np.asarray(self.B), np.asarray(self.W)

    @property
    def n_trials(self) -> int | None:
        """Number of trials that the arrays are given for; None if they serve any number."""
        return _trials_of(*self.arrays)

    def check(self, *, rank: int, n_clients: int, dim: int, samples: float, memory: float) -> None:
        """Raise for other shapes."""
        for name, array, rows in zip(("B", "W"), self.arrays, (dim, n_clients), strict=True):
            if array.shape[-2:] != (rows, rank):
                raise ValueError(
                    f"init {name} has shape {array.shape}, expected ({rows}, {rank}), with or without a leading trial "
                    "axis"
                )

    def resolve(self, start: InitialStart, rank: int) -> tuple[Array, Array]:
        """Return the arrays."""
        B, W = self.arrays
        return start.given(B), start.given(W)


def _trials_of(*arrays: Array) -> int | None:
    return next((array.shape[0] for array in arrays if array.ndim == 3), None)


NAMED: dict[str, Initial] = {"moments": Moments(), "random": RandomSubspace()}


def as_initial(value: Initial | str | npt.ArrayLike) -> Initial:
    """Return an initial representation from itself, from its name, or from an array."""
    if isinstance(value, Initial):
        return value
    if isinstance(value, str):
        return NAMED[check_choice("init", value, NAMED)]
    if value is None or np.isscalar(value) or isinstance(value, InitialFactors | type):
        raise ValueError(f"init = {shown(value)} must be 'moments', 'random', lf.AtDistance(delta) or an array (d, k)")
    return GivenSubspace(value)


def as_factors(value: InitialFactors | tuple[npt.ArrayLike, npt.ArrayLike]) -> InitialFactors:
    """Return initial factors from themselves, or from a pair of arrays (B, W)."""
    if isinstance(value, InitialFactors):
        return value
    if (
        isinstance(value, tuple | list)
        and len(value) == 2
        and not any(part is None or np.isscalar(part) for part in value)
    ):
        return GivenFactors(*value)
    raise ValueError(f"init = {shown(value)} must be lf.SmallRandom(alpha) or a pair of arrays, (B, W)")
