"""Initial arrays and random numbers for algorithms and initialisations, without access to the ground truth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.algorithms.initial import Initial, InitialFactors, Initialization, Moments, as_factors, as_initial
from linfed.checks import check_returned
from linfed.data.explicit import ExplicitBatch
from linfed.data.samples import GivenSamples
from linfed.data.sources import Source
from linfed.errors import EngineError
from linfed.numerics.layers import shape_of_client
from linfed.numerics.streams import Stream, TrialRandom, generators
from linfed.problems import Truth
from linfed.simulation.job import Job, check_initialization, describe_initialization, missing_reference


class ResolvedStart:
    """Provider of an algorithm's initial arrays, sizes and random numbers, the `InitContext` of a run."""

    def __init__(self, job: Job, trials: range, truth: Truth | None, source: Source) -> None:
        self._job, self._chunk = job, (trials, truth, source)
        self.trials, self.n_clients, self.dim = len(trials), job.sizes.n_clients, job.sizes.dim
        counts = job.data.n_samples if not isinstance(job.data, GivenSamples) else job.data.of_trials(trials)[2]
        self.counts = np.broadcast_to(np.asarray(counts, dtype=float), (self.trials, self.n_clients))
        self.classes = job.sizes.classes
        self.rng = TrialRandom(generators(job.seed, Stream.ALGORITHM, trials))

    def zeros(self, clients: int, columns: int) -> Array:
        """Return heads or predictors that are all 0."""
        return np.zeros((self.trials, clients, *shape_of_client(columns, self.classes)))

    def representation(self, init: Initial | str | npt.ArrayLike, rank: int) -> Array:
        """Return the initial representation (trials, d, rank)."""
        found = as_initial(init)
        B = found.resolve(self._context(found, rank), rank)
        check_returned(f"{type(found).__name__}.resolve", "B", B, (self.trials, self.dim, rank), "(trials, d, k)")
        return B

    def factors(self, init: InitialFactors | tuple[npt.ArrayLike, npt.ArrayLike], rank: int) -> tuple[Array, Array]:
        """Return the initial B (trials, d, rank) and W (trials, n, rank)."""
        found = as_factors(init)
        both = found.resolve(self._context(found, rank), rank)
        name = f"{type(found).__name__}.resolve"
        if not isinstance(both, tuple) or len(both) != 2:
            raise TypeError(f"{name} returned {type(both).__name__}, expected a pair of arrays (B, W)")
        check_returned(name, "B", both[0], (self.trials, self.dim, rank), "(trials, d, k)")
        check_returned(name, "W", both[1], (self.trials, self.n_clients, rank), "(trials, n, k)")
        return both

    def _context(self, init: Initialization, rank: int) -> _InitializationContext:
        """Return the context of an initialisation, after checking it if the algorithm does not declare it."""
        job = self._job
        if init != job.algorithm.initialization:
            check_initialization(init, rank, job.algorithm, job.problem, job.data)
            if init.n_trials not in (None, job.trials):
                raise ValueError(
                    f"trials = {job.trials} must be {init.n_trials}: init has arrays for {init.n_trials} trials"
                )
            if init.needs_batch:
                raise ValueError(
                    f"{describe_initialization(init, job.algorithm)} requires a first batch, "
                    f"whose memory was not counted: let {type(job.algorithm).__name__}.initialization return it"
                )
        return _InitializationContext(job, *self._chunk, init)


class _InitializationContext:
    """Provider of the data that an initialisation needs (`linfed.algorithms.initial.InitialStart`)."""

    def __init__(self, job: Job, trials: range, truth: Truth | None, source: Source, init: Initialization) -> None:
        self._job, self._trials, self._truth, self._source, self._init = job, trials, truth, source, init
        self.trials, self.n_clients, self.dim = len(trials), job.sizes.n_clients, job.sizes.dim

    @property
    def _name(self) -> str:
        return describe_initialization(self._init, self._job.algorithm)

    def random(self) -> TrialRandom:
        """Return random generators at the beginning of the ``INIT`` streams."""
        return TrialRandom(generators(self._job.seed, Stream.INIT, self._trials))

    def batch(self) -> ExplicitBatch:
        """Return a batch of all clients with explicit samples."""
        if not self._init.needs_batch:
            raise ValueError(f"{self._name} requests a first batch: set {type(self._init).__name__}.needs_batch = True")
        with self._no_rows():
            return self._source.first(self.trials, self.n_clients)

    def rows(self, clients: int) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield the samples of the first `clients` clients, block by block."""
        with self._no_rows():
            return self._source.rows_for_moments(np.arange(clients))

    @contextmanager
    def _no_rows(self) -> Iterator[None]:
        """Name the initialisation in the error of an engine without samples."""
        try:
            yield
        except EngineError as error:
            if classes := self._job.sizes.classes:
                method = " (the method of moments)" if isinstance(self._init, Moments) else ""
                raise EngineError(
                    f"{self._name}{method} {error}, and there are {classes} classes: use init = 'random'"
                ) from None
            raise EngineError(
                f"{self._name} requires samples, {error}: use init = lf.AtDistance(delta) or 'random'"
            ) from None

    def true_subspace(self, rank: int) -> Array:
        """Return the ground-truth subspace (trials, d, rank)."""
        if self._truth is None:
            raise missing_reference(self._name)
        return checked_reference(self._name, self._truth, rank)

    def given(self, array: Array) -> Array:
        """Return a given array for each trial of the chunk."""
        if array.ndim == 3:
            return array[list(self._trials)]
        return np.broadcast_to(array, (self.trials, *array.shape)).copy()


def checked_reference(name: str, truth: Truth, rank: int) -> Array:
    """Return the reference subspace (trials, d, rank), or raise if regressors span fewer dimensions."""
    reference = truth.reference(rank)
    if reference.shape[-1] != rank:
        raise ValueError(f"{name} requires a reference subspace of rank {rank}, not {reference.shape[-1]}")
    spanned = int(reference.any(axis=-2).sum(axis=-1).min())
    if spanned < rank:
        raise ValueError(f"{name} requires a reference subspace of rank {rank}, but the regressors have rank {spanned}")
    return reference
