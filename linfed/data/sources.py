"""What clients see: where the batch of each round comes from.

The three public classes are configurations (frozen, cheap, picklable). `open` turns one of them, with a truth and the
run's seed, into a source: the thing that the loop asks for a round's batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Generator, Indices
from linfed.data.explicit import ExplicitBatch, LabelLaw
from linfed.data.rows import DrawnRows, Workspace
from linfed.errors import check_array, check_integer, check_shape, shown
from linfed.linalg import CACHE_VALUES, take_clients
from linfed.problems import Problem, Truth, check_problem
from linfed.streams import RoundStream, Seed, Stream, check_seed, generators


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes that a source needs to know.

    Parameters
    ----------
    n_clients, dim, participants, rounds : int
        Clients n, dimension d, participants p per round, rounds.
    features : int
        Numbers per sample beside its row: features of B and B*, labels, noise, residual and what is pulled back.
    """

    n_clients: int
    dim: int
    participants: int
    rounds: int
    features: int

    @property
    def gathered(self) -> int:
        """Clients whose fixed rows are copied each round: the participants, unless everybody takes part."""
        return self.participants if self.participants < self.n_clients else 0


class Source(ABC):
    """Gives the batch of each round, for all trials of a chunk."""

    @abstractmethod
    def round(self, active: Indices) -> ExplicitBatch:
        """Return the next round's batch for the participants (T, p); the one before it is void."""

    @abstractmethod
    def everyone(self) -> ExplicitBatch:
        """Return a batch of all clients for what is done after the last round; fresh data have it from own streams."""

    @abstractmethod
    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        """Yield (trial, X (c, m, d), y (c, m), counts (c,)) over blocks of the named clients, trial by trial."""


@dataclass(frozen=True)
class FreshSamples:
    """A new batch of samples for each participant and round (FedRep paper, Algorithm 2).

    Parameters
    ----------
    n_samples : int
        Samples m per participant and round.

    Notes
    -----
    Rows are drawn explicitly, at a cost of p m d normals a round.

    **Deviations**: none.
    """

    n_samples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_samples", check_integer("n_samples", self.n_samples))

    def open(self, truth: Truth, sizes: Sizes, seed: Seed, trials: Sequence[int]) -> Source:
        """Return the source of a chunk of trials."""
        return _FreshSource(self.n_samples, truth, sizes, seed, trials)

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return how many numbers one trial's data hold at a time."""
        return sizes.participants * self.n_samples * (sizes.dim + sizes.features)


@dataclass(frozen=True)
class FixedSamples:
    """One local data set per client, drawn once and seen in every round.

    Parameters
    ----------
    n_samples : int
        Samples m per client.

    Notes
    -----
    **Deviations**: none.
    """

    n_samples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_samples", check_integer("n_samples", self.n_samples))

    def open(self, truth: Truth, sizes: Sizes, seed: Seed, trials: Sequence[int]) -> Source:
        """Return the source of a chunk of trials, its data drawn."""
        X, y = self._drawn(truth, sizes.n_clients, sizes.dim, seed, trials)
        return _FixedSource(X, y, np.full(X.shape[:2], float(self.n_samples)))

    def draw(self, problem: Problem, *, trials: int = 1, seed: Seed = 0) -> GivenSamples:
        """Return the data sets that ``simulate(..., trials=trials, seed=seed)`` sees, as given samples.

        Parameters
        ----------
        problem : Problem
            What is true.
        trials : int
        seed : int or tuple of int

        Returns
        -------
        GivenSamples
            X (trials, n, m, d) and y (trials, n, m).
        """
        trials, seed = check_integer("trials", trials), check_seed(seed)
        truth = check_problem(problem).truth(seed, range(trials))
        return GivenSamples(*self._drawn(truth, problem.n_clients, problem.dim, seed, range(trials)))

    def _drawn(self, truth: Truth, n_clients: int, dim: int, seed: Seed, trials: Sequence[int]) -> tuple[Array, Array]:
        shape = (len(trials), n_clients, self.n_samples, dim)
        X, noise = np.empty(shape), np.empty(shape[:-1])
        for rng, rows in zip(generators(seed, Stream.X, trials), X, strict=True):
            truth.design.fill(rng, rows)
        for rng, values in zip(generators(seed, Stream.NOISE, trials), noise, strict=True):
            rng.standard_normal(out=values)
        noise *= truth.noise_std
        everyone = np.broadcast_to(np.arange(n_clients), shape[:2])
        law = LabelLaw(B=truth.B, W=truth.W, S=truth.S, noise=noise)
        return X, ExplicitBatch(X, law, active=everyone).y

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return how many numbers one trial's data hold at a time."""
        return (sizes.n_clients + sizes.gathered) * self.n_samples * (sizes.dim + sizes.features)


class GivenSamples:
    """The user's own samples: one local data set per client.

    Parameters
    ----------
    X : array_like (n, m, d) or (trials, n, m, d), or a sequence of n arrays (m_i, d)
        Samples. Without a leading trial axis every trial sees the same data.
    y : array_like (n, m) or (trials, n, m), or a sequence of n arrays (m_i,)
        Labels.

    Raises
    ------
    ValueError
        For shapes that do not fit, or values that are not finite.

    Notes
    -----
    Lists of arrays serve clients with different sample counts; they are kept as zero-padded rows.

    **Deviations**: none.
    """

    X: Array
    y: Array
    counts: Array

    def __init__(self, X: npt.ArrayLike | Sequence[npt.ArrayLike], y: npt.ArrayLike | Sequence[npt.ArrayLike]) -> None:
        if isinstance(X, list | tuple) and not _regular(X):
            self.X, self.y, self.counts = _padded(X, y)
        else:
            self.X = check_array("X", X, [("n", "m", "d"), ("trials", "n", "m", "d")])
            wanted = "(n, m)" if self.X.ndim == 3 else "(trials, n, m)"
            self.y = check_array("y", y, [("n", "m"), ("trials", "n", "m")])
            check_shape("y", self.y, self.X.shape[:-1], f"{wanted} as X has shape {self.X.shape}")
            self.counts = np.full(self.X.shape[-3], float(self.X.shape[-2]))
        for array in (self.X, self.y, self.counts):
            array.setflags(write=False)

    def __repr__(self) -> str:
        return f"GivenSamples(X of shape {self.X.shape}, samples per client {_range(self.counts)})"

    @property
    def n_trials(self) -> int | None:
        """Number of trials the data are given for; None if they serve any number."""
        return int(self.X.shape[0]) if self.X.ndim == 4 else None

    @property
    def n_clients(self) -> int:
        """Number of clients n."""
        return int(self.X.shape[-3])

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        return int(self.X.shape[-1])

    def normal_equations(self) -> tuple[Array, Array]:
        """Return ``A_i = X_i'X_i/m_i`` (..., n, d, d) and ``b_i = X_i'y_i/m_i`` (..., n, d), trials first if given."""
        counts = np.broadcast_to(self.counts, self.X.shape[:-2])[..., None]
        A = np.swapaxes(self.X, -1, -2) @ self.X / counts[..., None]
        return A, (self.y[..., None, :] @ self.X)[..., 0, :] / counts

    @property
    def scale(self) -> Array:
        """Root mean square label, (trials,) or (1,): the size of what is to be fitted."""
        y = self.y if self.y.ndim == 3 else self.y[None]
        return np.asarray(np.sqrt((y**2).sum(axis=(-2, -1)) / self.counts.sum()))

    def open(self, truth: Truth | None, sizes: Sizes, seed: Seed, trials: Sequence[int]) -> Source:
        """Return the source of a chunk of trials; truth and seed play no part."""
        count = len(trials)
        if self.X.ndim == 4:
            X, y = self.X[list(trials)], self.y[list(trials)]
        else:
            X, y = (np.broadcast_to(array, (count, *array.shape)) for array in (self.X, self.y))
        return _FixedSource(X, y, np.broadcast_to(self.counts, X.shape[:2]))

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return how many numbers one trial's data hold at a time, beyond the given arrays."""
        m, held = int(self.X.shape[-2]), sizes.n_clients if self.X.ndim == 4 else 0
        return (sizes.gathered + held) * m * (sizes.dim + 1) + sizes.participants * m * sizes.features


Data = FreshSamples | FixedSamples | GivenSamples


def _range(counts: Array) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _regular(X: Sequence[Any]) -> bool:
    """Return whether the parts stack into one array; a part that is ragged itself is left to the checks of lists."""
    try:
        return len({np.shape(part) for part in X}) == 1
    except ValueError:
        return False


def _padded(X: Sequence[Any], y: Any) -> tuple[Array, Array, Array]:
    """Return zero-padded rows (n, m, d), labels (n, m) and counts (n,) from lists of arrays."""
    if not isinstance(y, list | tuple | np.ndarray) or len(y) != len(X):
        raise ValueError(f"y must be a sequence of n = {len(X)} arrays (m_i,), as X is one of arrays (m_i, d)")
    if len(X) == 0:
        raise ValueError("X is an empty sequence; at least one client is needed")
    parts = [check_array(f"X[{i}]", part, [("m_i", "d")]) for i, part in enumerate(X)]
    labels = [check_array(f"y[{i}]", part, [("m_i",)]) for i, part in enumerate(y)]
    dim = parts[0].shape[1]
    for i, (part, label) in enumerate(zip(parts, labels, strict=True)):
        check_shape(f"X[{i}]", part, (part.shape[0], dim), "(m_i, d)")
        check_shape(f"y[{i}]", label, part.shape[:1], f"(m_i,) as X[{i}] has shape {part.shape}")
    counts = np.array([float(part.shape[0]) for part in parts])
    rows = np.zeros((len(parts), int(counts.max()), dim))
    values = np.zeros(rows.shape[:-1])
    for i, (part, label) in enumerate(zip(parts, labels, strict=True)):
        rows[i, : part.shape[0]], values[i, : label.shape[0]] = part, label
    return rows, values, counts


class _FreshSource(Source):
    """Draws each round's rows: small rounds ahead in blocks, large ones when the first question reads them."""

    def __init__(
        self,
        n_samples: int,
        truth: Truth,
        sizes: Sizes,
        seed: Seed,
        trials: Sequence[int],
        streams: tuple[Stream, Stream] = (Stream.X, Stream.NOISE),
    ) -> None:
        self._m, self._truth, self._sizes, self._seed, self._trials = n_samples, truth, sizes, seed, trials
        design, rngs = truth.design, generators(seed, streams[0], trials)
        shape = (sizes.participants, n_samples, sizes.dim)
        self._workspace = Workspace()
        self._last: ExplicitBatch | None = None
        self._shape, self._rngs = (len(trials), *shape), rngs
        if np.prod(shape) * 2 <= CACHE_VALUES:
            self._ahead: RoundStream | None = RoundStream(rngs, shape, design.fill, sizes.rounds)
        else:
            self._ahead = None
        self._noise: RoundStream | None = None
        if truth.noise_std > 0:
            self._noise = RoundStream(generators(seed, streams[1], trials), shape[:2], self._fill_noise, sizes.rounds)

    def _fill_noise(self, rng: Generator, out: Array) -> None:
        rng.standard_normal(out=out)
        out *= self._truth.noise_std

    def round(self, active: Indices) -> ExplicitBatch:
        if self._last is not None:
            self._last.rows.finish()
        law = _restricted(self._truth, active, self._noise.next() if self._noise else None)
        X = self._ahead.next() if self._ahead else self._drawn()
        self._last = ExplicitBatch(X, law, active=active, workspace=self._workspace)
        return self._last

    def everyone(self) -> ExplicitBatch:
        n = self._sizes.n_clients
        sizes = replace(self._sizes, participants=n, rounds=1)
        streams = (Stream.FINISH_X, Stream.FINISH_NOISE)
        once = _FreshSource(self._m, self._truth, sizes, self._seed, self._trials, streams)
        return once.round(np.broadcast_to(np.arange(n), (self._shape[0], n)))

    def _drawn(self) -> DrawnRows:
        design, rngs = self._truth.design, self._rngs
        states = [rng.bit_generator.state for rng in rngs]

        def draw(trial: int, clients: slice, out: Array) -> None:
            design.fill(rngs[trial], out)

        def rewind() -> None:
            for rng, state in zip(rngs, states, strict=True):
                rng.bit_generator.state = state

        return DrawnRows(self._shape, draw, rewind, self._workspace)

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        truth, m, d = self._truth, self._m, self._sizes.dim
        size = max(1, CACHE_VALUES // (m * d))
        x_rngs = generators(self._seed, Stream.INIT_X, self._trials)
        noise_rngs = generators(self._seed, Stream.INIT_NOISE, self._trials)
        for trial, (x_rng, noise_rng) in enumerate(zip(x_rngs, noise_rngs, strict=True)):
            for start in range(0, len(clients), size):
                chosen = clients[None, start : start + size]
                X, noise = np.empty((1, chosen.shape[1], m, d)), np.empty((1, chosen.shape[1], m))
                truth.design.fill(x_rng, X[0])
                self._fill_noise(noise_rng, noise[0])
                one = slice(trial, trial + 1)
                law = _restricted(_of_trial(truth, one), chosen, noise)
                batch = ExplicitBatch(X, law, active=chosen)
                yield trial, X[0], batch.y[0], batch.counts[0]


class _FixedSource(Source):
    """Holds every client's rows, (T, n, m, d), and hands out the participants'."""

    def __init__(self, X: Array, y: Array, counts: Array) -> None:
        self._X, self._y, self._counts, self._workspace = X, y, counts, Workspace()

    def round(self, active: Indices) -> ExplicitBatch:
        X, y, counts = self._X, self._y, self._counts
        if active.shape[-1] < X.shape[1]:
            gathered = self._workspace.array("X", (*active.shape, *X.shape[2:]))
            for trial, chosen in enumerate(active):
                np.take(X[trial], chosen, axis=0, out=gathered[trial], mode="clip")
            X = gathered
            y, counts = take_clients(y, active), take_clients(counts, active)
        return ExplicitBatch(X, y, active=active, counts=counts, workspace=self._workspace)

    def everyone(self) -> ExplicitBatch:
        return self.round(np.broadcast_to(np.arange(self._X.shape[1]), self._X.shape[:2]))

    def rows_for_moments(self, clients: Indices) -> Iterator[tuple[int, Array, Array, Array]]:
        size = max(1, CACHE_VALUES // int(np.prod(self._X.shape[2:])))
        for trial in range(self._X.shape[0]):
            for start in range(0, len(clients), size):
                chosen = clients[start : start + size]
                yield trial, self._X[trial, chosen], self._y[trial, chosen], self._counts[trial, chosen]


def _restricted(truth: Truth, active: Indices, noise: Array | None) -> LabelLaw:
    """Return the label law of the participants (T, p)."""
    W, S = (None if part is None else take_clients(part, active) for part in (truth.W, truth.S))
    return LabelLaw(B=truth.B, W=W, S=S, noise=noise)


def _of_trial(truth: Truth, one: slice) -> Truth:
    B, W, S = (None if part is None else part[one] for part in (truth.B, truth.W, truth.S))
    return Truth(B=B, W=W, S=S, noise_std=truth.noise_std, design=truth.design)


def second_moment(source: Source, clients: Indices, trials: int, dim: int) -> Array:
    """Return ``(1/n) sum_i (1/m_i) sum_j y_ij^2 x_ij x_ij'`` over the named clients, (trials, d, d).

    Notes
    -----
    Streamed in blocks of clients at bounded memory; of fourth order in the samples, so always from explicit rows.

    References
    ----------
    FedRep paper, Algorithm 2, initialisation; Tripuraneni, Jin and Jordan 2021.
    """
    out = np.zeros((trials, dim, dim))
    for trial, X, y, counts in source.rows_for_moments(clients):
        weighted = ((y / np.sqrt(counts)[:, None])[..., None] * X).reshape(-1, dim)
        out[trial] += weighted.T @ weighted
    return out / len(clients)


def check_truthless(data: object) -> None:
    """Raise unless `data` can serve without a truth."""
    if not isinstance(data, GivenSamples):
        raise ValueError(f"data = {shown(data)} draws its labels from a truth: give problem=, or GivenSamples")
