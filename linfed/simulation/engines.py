"""Choice of the engine of a run: the cheapest exact representation of its data.

The choice depends on the algorithm, the ground truth and the distribution of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed.algorithms.initial import Moments, TruncatedAverages
from linfed.algorithms.parts.base import Algorithm, Requires, State, declares_requires, requires_of
from linfed.checks import check_choice
from linfed.data.chain import ChainSource
from linfed.data.class_sources import FixedClassSource, FreshClassSource, draw_fixed_classes
from linfed.data.compressed import (
    CompressedFixedSource,
    CompressedFreshSource,
    DrawnFixedRows,
    compressed,
    draw_factors,
)
from linfed.data.projected import KEPT_VALUES, ProjectedClassSource, ProjectedSource
from linfed.data.rows import FEW_CLIENTS, stores_columns
from linfed.data.samples import Data, FixedSamples, FreshSamples, GivenSamples, draws_factors
from linfed.data.sources import FixedSource, FreshSource, Sizes, Source, draw_fixed
from linfed.errors import EngineError
from linfed.numerics.layers import shape_of_client
from linfed.numerics.linalg import CACHE_VALUES, block_width
from linfed.numerics.streams import Seed, TrialRandom
from linfed.problems import Classes, ClassTruth, Problem, Truth
from linfed.problems.designs import is_gaussian

ENGINES = {
    "explicit": "all rows of X; supports any distribution of x and any algorithm",
    "compressed": "at most d + 1 pseudo-samples per client; requires m > d (with fixed samples of which only gradients "
    "are used, m > d/2), full-batch quadratic losses, and Gaussian x if samples are fresh",
    "projected": "at most k + 1 pseudo-samples per client, or with classes k numbers per sample, none of dimension d; "
    "requires fresh Gaussian samples, used at one B per round",
    "chain": "as projected, in a frame of r + 2k dimensions; requires low-rank ground truths and isotropic x; keeps B "
    "only up to a rotation",
}
"""Description of each engine, with its requirements."""


@dataclass(frozen=True, kw_only=True)
class EngineQuery:
    """Properties of a run that determine the choice of its engine."""

    algorithm: Algorithm
    problem: Problem | None
    data: Data
    sizes: Sizes

    @property
    def samples(self) -> int:
        """Largest number of samples of a client."""
        return int(np.max(self.data.counts if isinstance(self.data, GivenSamples) else self.data.n_samples))

    @property
    def truth_rank(self) -> int | None:
        """Rank of a ground truth of the form ``B* w_i*``; None for other ground truths."""
        rank: int | None = getattr(self.problem, "truth_rank", None)
        return rank


def obstacle(engine: str, setting: EngineQuery) -> str:
    """Return the reason why an engine does not support a run, or an empty string if it does."""
    requires, data, m, d = requires_of(setting.algorithm), setting.data, setting.samples, setting.sizes.dim
    classes = setting.sizes.classes > 0
    name = type(setting.algorithm).__name__
    in_law = isinstance(data, FixedSamples) and data.in_law is True
    if engine == "explicit":
        return "with in_law = True the samples are never drawn" if in_law else ""
    if classes and engine != "projected":
        return "it does not support classification"
    fresh, gaussian = isinstance(data, FreshSamples), _gaussian(setting)
    if setting.problem is not None and setting.problem.design.per_client and (fresh or in_law):
        return "the covariance of x differs between clients"
    if engine == "compressed":
        if isinstance(data, FreshSamples) and data.unequal:
            return "clients have different numbers of fresh samples"
        if requires > Requires.QUADRATIC:
            return f"{name} may use single samples"
        few = _most_uncompressed(setting)
        if m <= few:
            return f"compression saves nothing: m = {m} is at most {'d' if few == d else 'd / 2'} = {few:g}"
        if in_law and not gaussian:
            return "in_law = True requires Gaussian x"
        if isinstance(data, FixedSamples) and gaussian and draws_factors(data, setting.sizes.n_clients, d):
            init = setting.algorithm.initialization
            if isinstance(init, Moments | TruncatedAverages) or (init is not None and init.needs_batch):
                way_out = "use init = lf.AtDistance(delta) or 'random'"
                return f"init = {init!r} requires samples, which are not drawn: {way_out}"
        return "fresh samples can be compressed only for Gaussian x" if fresh and not gaussian else ""
    if not fresh:
        return "fixed samples are used at more than one B"
    if not gaussian:
        return "it requires Gaussian x"
    if requires > Requires.COORDINATES:
        return f"{name} uses more than the features at one B"
    rank, k = setting.truth_rank, setting.algorithm.learned_rank
    if isinstance(data, FreshSamples) and data.unequal and data.smallest <= k and not classes:
        return f"clients have different numbers of fresh samples, and one has at most rank = {k}"
    if engine == "projected":
        return f"{name} learns no shared B" if classes and not k else ""
    if rank is None:
        return "the ground truth must have the form B* w_i*"
    covariance = None if setting.problem is None else setting.problem.design.covariance
    if covariance is not None and np.ndim(covariance) > 0:
        return "x is not isotropic"
    init = setting.algorithm.initialization
    if init is not None and not init.independent() and getattr(setting.algorithm, "orthonormalize", False):
        return "the initial B may have dependent columns, and their replacement by QR would depend on the frame"
    if requires == Requires.COORDINATES:
        return f"{name} uses the entries of B, which it keeps only up to a rotation"
    if d < rank + 2 * k:
        return f"it requires d >= r + 2k = {rank + 2 * k}, but d = {d}"
    if setting.algorithm.finishes:
        return "it does not support the final step of the algorithm"
    return _other_coordinates(setting)


def _most_uncompressed(setting: EngineQuery) -> float:
    """Return the number of samples per client up to which compression saves nothing.

    This is d, or d/2 for algorithms that only use the gradients of fixed samples: their normal equations need one
    product of d^2 operations for each client, and the samples two products of m d.
    """
    drawn = isinstance(setting.data, FreshSamples) or (isinstance(setting.data, FixedSamples) and setting.data.in_law)
    half = requires_of(setting.algorithm) <= Requires.GRADIENTS and not drawn
    return setting.sizes.dim / 2 if half else setting.sizes.dim


def _other_coordinates(setting: EngineQuery) -> str:
    """Return the reason if a state has another array along the d coordinates than B, or an empty string."""
    state, d = setting.algorithm.initial_state(_Shapes(setting)), setting.sizes.dim
    arrays = state.arrays() if isinstance(state, State) else {}
    for name, array in arrays.items():
        if name != "B" and d in np.shape(array)[1 + (name in state.per_client) :]:
            shape = ", ".join(["trials", *map(str, np.shape(array)[1:])])
            return f"it rotates only B; the state also has {name} of shape ({shape}) along the d = {d} coordinates"
    return ""


class _Shapes:
    """Start of a single trial (`linfed.algorithms.parts.base.InitContext`), for the shapes of an initial state."""

    def __init__(self, setting: EngineQuery) -> None:
        sizes = setting.sizes
        self.trials, self.n_clients, self.dim, self.classes = 1, sizes.n_clients, sizes.dim, sizes.classes
        self.counts = np.full((1, sizes.n_clients), float(setting.samples))
        self.rng = TrialRandom([np.random.default_rng(0)])

    def zeros(self, clients: int, columns: int) -> Array:
        """Return heads or predictors that are all 0."""
        return np.zeros((1, clients, *shape_of_client(columns, self.classes)))

    def representation(self, init: object, rank: int) -> Array:
        """Return orthonormal columns."""
        return np.eye(self.dim, rank)[None]

    def factors(self, init: object, rank: int) -> tuple[Array, Array]:
        """Return orthonormal columns, and heads that are all 0."""
        return self.representation(init, rank), np.zeros((1, self.n_clients, rank))


def undeclared(engine: str, algorithm: object, problem: Problem | None, data: Data) -> str:
    """Return why a run draws every sample although another engine may support it, or an empty string."""
    if engine != "explicit" or not isinstance(algorithm, Algorithm) or declares_requires(algorithm):
        return ""
    design = getattr(problem, "design", None)
    if problem is None or design is None or not is_gaussian(design) or isinstance(data, GivenSamples):
        return ""
    if isinstance(data, FixedSamples) and data.n_samples <= problem.dim:
        return ""
    return f"{type(algorithm).__name__} declares no `requires`, so every sample is drawn (lf.Requires)"


def _gaussian(setting: EngineQuery) -> bool:
    return setting.problem is not None and is_gaussian(setting.problem.design)


def choose_engine(wanted: str, setting: EngineQuery) -> str:
    """Return the engine of a run: `wanted`, or for "auto" the cheapest one that keeps B itself.

    Raises
    ------
    EngineError
        If engine `wanted` does not support the run. The message gives the reason and the engines that do.
    """
    if check_choice("engine", wanted, ["auto", *ENGINES]) != "auto":
        reason = obstacle(wanted, setting)
        if reason:
            able = [repr(engine) for engine in ENGINES if not obstacle(engine, setting)]
            here = f"use 'auto', {', '.join(able)}" if able else "no other engine does"
            raise EngineError(f"engine = {wanted!r} does not support this run: {reason}; {here}")
        return wanted
    served = [engine for engine in ENGINES if engine != "chain" and not obstacle(engine, setting)]
    if not served:  # in_law = True
        raise EngineError(f"in_law = True does not support this run: {obstacle('compressed', setting)}")
    return min(served, key=lambda engine: _nanoseconds(engine, setting))


def _nanoseconds(engine: str, setting: EngineQuery) -> float:
    """Return an estimate of the run time of one trial, from measured costs of random numbers and of products."""
    sizes, m, k = setting.sizes, setting.samples, max(1, setting.algorithm.learned_rank)
    d, p, rank = sizes.dim, sizes.participants, setting.truth_rank
    rounds = max(1, sizes.n_rounds)
    messages = requires_of(setting.algorithm) == Requires.GRADIENTS
    # Cost per value of X in a round: features, labels and pull-back, or two products with one vector per client.
    product = 1.0 if messages else 0.4 * (2 * k + (rank or k))
    if sizes.classes and isinstance(setting.data, FreshSamples):  # without the logits, which cost the same
        if engine == "explicit":
            return rounds * p * m * d * (8.0 + 0.8 * k)
        return rounds * (p * m * (10.0 * k + 2.0 * sizes.classes) + d * k * (10.0 + k) + 60_000.0)
    if isinstance(setting.data, FreshSamples):
        if engine == "explicit":
            return rounds * p * m * (d * (8.0 + product) + 8.0 + 6.0 * k * k)
        if engine == "compressed":
            return rounds * (p * (d + 1) * (d * (9.0 + product) + 6.0 * k * k) + 20_000.0)
        outside = d if rank is None else min(rank, d)
        normals = (k * (k + 1) / 2 if m > k else m * (k + 1)) + outside
        each = 9.0 * normals + 20.0 * (k + 1) + 4.0 * k * k + 3.0 * outside * k
        return rounds * (p * each + d * k * (12.0 + 3.0 * (k + outside)) + 30_000.0)
    kept = m if engine == "explicit" else min(m, d + 1)
    fixed = isinstance(setting.data, FixedSamples)
    in_law = isinstance(setting.data, FixedSamples) and draws_factors(setting.data, sizes.n_clients, d)
    rows = d + 1 if in_law and _gaussian(setting) else m
    factored = 8.0 * sizes.n_clients * m * d  # explicit rows of fixed samples are drawn once
    if engine == "compressed":
        factored = sizes.n_clients * rows * d * (2.0 * d + 10.0)
    elif not fixed:
        factored = 0.0
    if messages:
        return factored + rounds * p * d * (0.5 * d if engine == "compressed" else m * product)
    return factored + rounds * p * kept * (d * product + 6.0 * k * k)


def open_source(
    engine: str, data: Data, truth: Truth | None, sizes: Sizes, columns: int, seed: Seed, trials: Sequence[int]
) -> Source:
    """Return the source of the batches of a chunk of trials."""
    if isinstance(data, GivenSamples):
        X, y, counts = data.of_trials(trials)
        if sizes.classes:
            return FixedClassSource(X, y, counts, sizes.classes)
        given = FixedSource(X, y, counts)
        return given if engine == "explicit" else compressed(given, X.shape, counts)
    assert truth is not None
    if isinstance(truth, ClassTruth):
        if isinstance(data, FixedSamples):
            return draw_fixed_classes(truth, data.n_samples, seed, trials)
        if engine == "projected":
            return ProjectedClassSource(data.counts, truth, sizes, columns, seed, trials)
        return FreshClassSource(data.counts, truth, sizes, seed, trials)
    if isinstance(data, FixedSamples):
        return _open_fixed(engine, data, truth, sizes, seed, trials)
    if engine == "explicit":
        return FreshSource(data.counts, truth, sizes, seed, trials)
    if engine == "compressed":
        assert isinstance(data.n_samples, int)
        return CompressedFreshSource(data.n_samples, truth, sizes, seed, trials)
    source = ChainSource if engine == "chain" else ProjectedSource
    return source(data.counts, truth, sizes, columns, seed, trials)


def _open_fixed(
    engine: str, data: FixedSamples, truth: Truth, sizes: Sizes, seed: Seed, trials: Sequence[int]
) -> Source:
    shape = (sizes.n_clients, data.n_samples, sizes.dim)
    counts = np.full((len(trials), sizes.n_clients), float(data.n_samples))
    if engine == "explicit":
        return FixedSource(*draw_fixed(truth, shape, seed, trials), counts)
    if is_gaussian(truth.design) and draws_factors(data, sizes.n_clients, sizes.dim):
        return CompressedFixedSource(*draw_factors(truth, shape, seed, trials), counts, None)
    return compressed(DrawnFixedRows(truth, shape, seed, trials), (len(trials), *shape), counts)


def floats_per_trial(engine: str, setting: EngineQuery) -> float:
    """Return the number of floats that one trial's data hold at a time, not counting given arrays."""
    sizes, m, d = setting.sizes, setting.samples, setting.sizes.dim
    k, rank, problem = setting.algorithm.learned_rank, setting.truth_rank, setting.problem
    if sizes.classes:
        width = d if engine == "explicit" else k
        held_out = problem.held_out_floats(width) if isinstance(problem, Classes) else 0
        if engine == "explicit":
            return setting.data.floats_per_trial(sizes) + held_out
        return sizes.participants * m * (k + sizes.features) + 8 * d * k + held_out
    if engine == "explicit":
        return setting.data.floats_per_trial(sizes) + _second_copy(setting, m)
    if engine == "compressed":
        rows, p = min(m, d + 1), sizes.participants
        if isinstance(setting.data, FreshSamples):
            return p * rows * (5 * d // 2 + sizes.features)
        # The pseudo-samples, the participants' copies, and the normal equations.
        held = (sizes.n_clients + sizes.gathered) * (rows * (d + 1) + d * (d + 1)) + p * rows * sizes.features
        return held + _second_copy(setting, rows)
    if engine == "chain":
        d = (rank or k) + 2 * k
    outside = d if rank is None else rank
    rows = k + 1 if m > k else m
    # Pseudo-samples are kept up to a limit; the normal equations of gradient heads are always kept.
    kept = min(sizes.participants * (2 * rows * k + 4 * rows + 4 * (k + outside)), 3 * KEPT_VALUES)
    return kept + sizes.participants * (k * k + k) + 8 * d * (2 * k + outside)


def _second_copy(setting: EngineQuery, rows: int) -> int:
    """Return the number of floats of a trial's second copy of fixed rows, if exact heads use it."""
    data, n, values = setting.data, setting.sizes.n_clients, rows * setting.sizes.dim
    shared = isinstance(data, GivenSamples) and data.X.ndim == 3  # one copy for all trials
    if isinstance(data, FreshSamples) or shared or not stores_columns(n, values, setting.algorithm.learned_rank):
        return 0
    return n * values


def rows_per_client(engine: str, setting: EngineQuery) -> int:
    """Return the largest number of rows or pseudo-samples of a client in a batch."""
    most = {"explicit": setting.samples, "compressed": setting.sizes.dim + 1}
    return min(setting.samples, most.get(engine, setting.algorithm.learned_rank + 1))


def block_floats(engine: str, setting: EngineQuery, moments: bool) -> float:
    """Return the number of floats in the blocks of rows that are held at a time, for any number of trials.

    The method of moments and the compression of drawn fixed samples read samples client by client and trial by trial. A
    block holds about `CACHE_VALUES` floats, or a client's rows if they are more, and there are two copies of it. Fresh
    rows that a round reads twice are drawn into the buffer of a block first, and then stored.
    """
    data, sizes, m = setting.data, setting.sizes, setting.samples
    drawn_twice = engine == "explicit" and isinstance(data, FreshSamples) and not sizes.classes
    clients = sizes.n_clients if setting.algorithm.finishes else sizes.participants
    buffer = float(block_width(clients, m * sizes.dim, FEW_CLIENTS)) * m * sizes.dim if drawn_twice else 0.0
    draws_samples = isinstance(data, FixedSamples) and not draws_factors(data, sizes.n_clients, sizes.dim)
    reads = moments or (engine == "compressed" and draws_samples)
    each = float(m) * (sizes.dim + 1)
    return buffer + (3.0 * max(each, min(each * sizes.n_clients, CACHE_VALUES)) if reads else 0.0)


def first_batch_floats(engine: str, setting: EngineQuery) -> float:
    """Return the number of floats in one trial's first batch, without the ones that the source holds."""
    sizes = setting.sizes
    is_stored = engine == "explicit" and not isinstance(setting.data, FreshSamples)
    return sizes.n_clients * setting.samples * ((0 if is_stored else sizes.dim) + sizes.features)
