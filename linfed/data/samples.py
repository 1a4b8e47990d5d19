"""What clients see, as a user says it: fresh, fixed or given samples. Frozen, cheap, picklable configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import Configuration, check_fields, optional
from linfed.data.compressed import factor_of
from linfed.data.explicit import ExplicitBatch, normal_equations
from linfed.data.sources import Sizes, draw_fixed, everybody
from linfed.errors import check_array, check_bool, check_integer, check_shape, shown
from linfed.numerics.streams import Seed, check_seed
from linfed.problems import Problem, check_problem, n_classes
from linfed.system.memory import check_copy, check_fits

Samples: TypeAlias = "npt.ArrayLike | Sequence[npt.ArrayLike]"


@dataclass(frozen=True)
class FreshSamples(Configuration):
    """A new batch of samples for each participant and round (FedRep paper, Algorithm 2).

    Parameters
    ----------
    n_samples : int
        Samples m per participant and round.

    Notes
    -----
    Explicit rows cost p m d normals a round. For Gaussian x they need not be drawn: what a round sees of them is, with
    the same joint law (``engine=`` of `simulate`, docs/exact-law.md).

    **Deviations**: none.

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.FedRep(rank=2, step_size=0.5, init="random"), lf.SharedRepresentation(n_clients=1000, dim=50, rank=2)
    >>> lf.simulate(*run, data=lf.FreshSamples(n_samples=10**6), rounds=5).engine      # not 50 billion numbers
    'projected'
    """

    n_samples: int

    def __post_init__(self) -> None:
        check_fields(self, n_samples=check_integer)

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return how many numbers one trial's data hold at a time."""
        return sizes.participants * self.n_samples * (sizes.dim + sizes.features)


@dataclass(frozen=True)
class FixedSamples(Configuration):
    """One local data set per client, drawn once and seen in every round.

    Parameters
    ----------
    n_samples : int
        Samples m per client.
    in_law : bool, optional
        True: the samples are never drawn, only triangular factors that have the law of theirs, at a cost that does not
        depend on m (Gaussian x, m > d, algorithms of quadratic losses, no method of moments). False: every sample is
        drawn. By default they are drawn unless a trial would have more than 2^28 numbers.

    Notes
    -----
    Where m > d, triangular factors of at most d + 1 rows may stand for the samples (``engine="compressed"``): those of
    the samples themselves, or of their law. Runs with one seed see the same samples if `in_law` is the same.

    **Deviations**: none.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=30, dim=10, rank=2, noise_std=0.5)
    >>> run = {"data": lf.FixedSamples(n_samples=40), "rounds": 20, "metrics": ["train_loss", "risk"]}
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, **run)
    >>> bool(result.metrics["train_loss"][0, -1] < 0.5 * 0.5**2 < result.metrics["risk"][0, -1])
    True
    """

    n_samples: int
    in_law: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self, n_samples=check_integer, in_law=optional(check_bool))

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

        Raises
        ------
        ValueError
            With ``in_law=True``.
        SizeError
            If the samples would not fit the memory.
        """
        if self.in_law:
            raise ValueError("in_law = True says that the samples are never drawn: leave it out to draw them")
        trials, seed = check_integer("trials", trials), check_seed(seed)
        sizes = (check_problem(problem).n_clients, self.n_samples, problem.dim)
        _check_given(trials, sizes, problem, "let simulate draw them, which holds some trials at a time")
        if n_classes(problem):
            raise ValueError("draw() is of numbers, and the problem is of classes: simulate draws them")
        truth = problem.truth(seed, range(trials))
        return GivenSamples(*draw_fixed(truth, sizes, seed, range(trials)))

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
    test : pair (X, y), optional
        Held-out samples of the same clients, in any of these forms: nobody learns from them, the metric `test_loss` is
        measured on them. Lists may hold empty arrays: a client without held-out samples is left out of the mean.

    Raises
    ------
    ValueError
        For shapes that do not fit, or values that are not finite numbers (nor are masked arrays, texts, dates and truth
        values).

    Notes
    -----
    Lists of arrays serve clients with different sample counts; they are kept as zero-padded rows. Counts that differ
    from trial to trial do not share one run: give each trial a `GivenSamples` of its own.

    **Deviations**: none.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> X = [np.random.default_rng(m).standard_normal((m, 4)) for m in (9, 12, 15)]
    >>> y = [rows @ [1.0, -1.0, 0.0, 0.5] for rows in X]
    >>> lf.GivenSamples(X, y)
    GivenSamples(X of shape (3, 15, 4), samples per client 9 to 15)
    >>> result = lf.simulate(lf.FedRep(rank=1, step_size=0.3), data=lf.GivenSamples(X, y), rounds=200)
    >>> bool(result.metrics["train_loss"][0, -1] < 1e-12)
    True
    """

    X: Array
    y: Array
    counts: Array
    test: GivenSamples | None = None
    _labels = "y"  # the argument's name, for messages

    def __init__(self, X: Samples, y: Samples, *, test: tuple[Samples, Samples] | None = None) -> None:
        self._hold(*_checked(type(self), X, y, "", some=False))
        if test is None:
            return
        if not isinstance(test, list | tuple) or len(test) != 2:
            raise ValueError(f"test = {shown(test)} must be a pair of arrays, (X, {self._labels})")
        self.test = some_samples(*test, prefix="test ", kind=type(self))
        self.test.check_sizes(self.n_clients, self.dim, "X has", prefix="test ")
        trials = [samples.X.shape[0] for samples in (self.test, self) if samples.X.ndim == 4]
        if len(set(trials)) > 1:
            raise ValueError(f"test X has arrays for {trials[0]} trials, and X for {trials[1]}; they must agree")

    def _hold(self, X: Array, y: Array, counts: Array) -> None:
        self.X, self.y, self.counts = X, y, counts
        for array in (X, y, counts):
            array.setflags(write=False)

    @classmethod
    def population(cls, problem: Problem, *, trials: int = 1, seed: Seed = 0) -> GivenSamples:
        """Return data sets of d samples each with exactly the moments of a problem's law: m -> infinity, no noise.

        Parameters
        ----------
        problem : Problem
            What is true.
        trials : int
        seed : int or tuple of int
            As in ``simulate(..., trials=trials, seed=seed)``: the truths are the same.

        Returns
        -------
        GivenSamples
            X (trials, n, d, d) with ``X_i'X_i/d`` the covariance of x, and ``y = X_i phi_i``: quadratic losses see the
            population. (The method of moments, of fourth order, does not.)

        Raises
        ------
        SizeError
            If the samples would not fit the memory.
        """
        trials, seed = check_integer("trials", trials), check_seed(seed)
        n, d = check_problem(problem).n_clients, problem.dim
        _check_given(trials, (n, d, d), problem, "a smaller dim")
        truth = problem.truth(seed, range(trials))
        rows = np.sqrt(d) * truth.design.shape_rows(np.eye(d))
        X = np.broadcast_to(rows, (trials, n, d, d))
        return cls(X, truth.dense() @ rows.T)

    def __repr__(self) -> str:
        held_out = "" if self.test is None else f", held-out samples per client {_range(self.test.counts)}"
        return f"{type(self).__name__}(X of shape {self.X.shape}, samples per client {_range(self.counts)}{held_out})"

    @property
    def n_trials(self) -> int | None:
        """Number of trials the data are given for; None if they serve any number."""
        own = int(self.X.shape[0]) if self.X.ndim == 4 else None
        return own if own is not None or self.test is None else self.test.n_trials

    @property
    def n_clients(self) -> int:
        """Number of clients n."""
        return int(self.X.shape[-3])

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        return int(self.X.shape[-1])

    def of_trials(self, trials: Sequence[int]) -> tuple[Array, Array, Array]:
        """Return X (T, n, m, d), y (T, n, m) and the counts (T, n) of some trials."""
        if self.X.ndim == 4:
            chosen = slice(trials.start, trials.stop, trials.step) if isinstance(trials, range) else list(trials)
            return self.X[chosen], self.y[chosen], np.broadcast_to(self.counts, self.X.shape[:2])[chosen]
        X, y, counts = (np.broadcast_to(array, (len(trials), *array.shape)) for array in (self.X, self.y, self.counts))
        return X, y, counts

    def check_sizes(self, n_clients: int | None, dim: int, having: str, *, prefix: str = "") -> None:
        """Raise unless the samples are of so many clients, of any number if None, and of this dimension."""
        if self.dim != dim or n_clients not in (None, self.n_clients):
            clients = "" if n_clients is None else f"n = {n_clients} clients of dimension "
            raise ValueError(f"{prefix}X has shape {self.X.shape}, expected {clients}d = {dim} as {having}")

    def normal_equations(self) -> tuple[Array, Array]:
        """Return ``A_i = X_i'X_i/m_i`` (..., n, d, d) and ``b_i = X_i'y_i/m_i`` (..., n, d), trials first if given."""
        return normal_equations(self.X, self.y, np.broadcast_to(self.counts, self.X.shape[:-2]))

    def compressed(self) -> GivenSamples:
        """Return at most d + 1 pseudo-samples per client, whose full-batch quadratic losses are the samples' own.

        Returns
        -------
        GivenSamples
            The triangular factors of ``[X_i, y_i]``, scaled to their own number of rows: the same ``A_i``, ``b_i`` and
            losses up to rounding, from one factorisation for many runs. The samples themselves where ``m <= d + 1``.
            Held-out samples stay.

        Raises
        ------
        ValueError
            For clients with different numbers of samples, which pseudo-samples would no longer tell apart.
        """
        m, q = float(self.counts[0]), self.dim + 1
        if np.any(self.counts != m):
            raise ValueError(f"clients have {_range(self.counts)} samples each; only equal counts can be compressed")
        if m <= q:
            return self
        if self.X.ndim == 3:
            R = factor_of(self.X, self.y)
        else:  # trial by trial: a factorisation copies its samples
            R = np.stack([factor_of(X, y) for X, y in zip(self.X, self.y, strict=True)])
        R *= np.sqrt(q / m)
        out = GivenSamples(R[..., :-1], R[..., -1])
        out.test = self.test
        return out

    @property
    def scale(self) -> Array:
        """Root mean square label, (trials,) or (1,): the size of what is to be fitted."""
        return np.sqrt(((self.y if self.y.ndim == 3 else self.y[None]) ** 2).sum(axis=(-2, -1)) / self.counts.sum())

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return how many numbers one trial's data hold at a time, beyond the given arrays."""
        m, held = int(self.X.shape[-2]), sizes.n_clients if self.X.ndim == 4 else 0
        return (sizes.gathered + held) * m * (sizes.dim + 1) + sizes.participants * m * sizes.features


Data = FreshSamples | FixedSamples | GivenSamples


def _check_given(trials: int, sizes: tuple[int, int, int], problem: Problem, way_out: str) -> None:
    """Raise unless given samples of these sizes (n, m, d), once drawn and once copied, fit the memory."""
    n, m, d = sizes
    check_fits(
        trials * (2.0 * n * m * (d + 1) + problem.floats_per_trial()),
        f"trials = {trials} of n = {n} clients with {m} samples of dimension {d} each",
        f"use fewer trials, clients or samples, or {way_out}",
    )


def some_samples(X: Samples, y: Samples, *, prefix: str = "", kind: type[GivenSamples] = GivenSamples) -> GivenSamples:
    """Return samples to measure a loss on, where some clients of a list may have none; they are not for training."""
    samples = kind.__new__(kind)
    samples._hold(*_checked(kind, X, y, prefix, some=True))
    return samples


def given_batch(samples: GivenSamples, trials: Sequence[int]) -> ExplicitBatch:
    """Return a batch of all clients' samples, for some trials."""
    X, y, counts = samples.of_trials(trials)
    return ExplicitBatch(X, y, active=everybody(*X.shape[:2]), counts=counts)


def _range(counts: Array) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _checked(kind: type[GivenSamples], X: Any, y: Any, prefix: str, *, some: bool) -> tuple[Array, Array, Array]:
    """Return rows, labels and counts (n,); with `some`, clients of a list may have no samples."""
    name = prefix + kind._labels
    if isinstance(X, list | tuple) and not _regular(X):
        if any(_axes(part) > 2 for part in X):
            raise ValueError(
                f"{prefix}X holds trials whose arrays have different sizes, where trials share one array "
                f"(trials, n, m, d): run each with a lf.{kind.__name__} of its own, or give all clients equal counts"
            )
        return _padded(X, y, prefix, name, some=some)
    check_copy(f"{prefix}X", X)
    rows = check_array(f"{prefix}X", X, [("n", "m", "d"), ("trials", "n", "m", "d")])
    labels = check_array(name, y, [("n", "m"), ("trials", "n", "m")])
    wanted = "(n, m)" if rows.ndim == 3 else "(trials, n, m)"
    check_shape(name, labels, rows.shape[:-1], f"{wanted} as {prefix}X has shape {rows.shape}")
    return rows, labels, np.full(rows.shape[-3], float(rows.shape[-2]))


def _regular(X: Sequence[Any]) -> bool:
    """Return whether the parts stack into one array; a part that is ragged itself is left to the checks of lists."""
    try:
        return len({np.shape(part) for part in X}) == 1
    except ValueError:
        return False


def _axes(part: Any) -> int:
    """Return the number of axes of a part that may be ragged, as its first entries have them."""
    if isinstance(part, list | tuple):
        return 1 + (_axes(part[0]) if part else 0)
    return np.ndim(part)


def _padded(X: Sequence[Any], y: Any, prefix: str, name: str, *, some: bool) -> tuple[Array, Array, Array]:
    """Return zero-padded rows (n, m, d), labels (n, m) and counts (n,) from lists of arrays."""
    if not isinstance(y, list | tuple | np.ndarray) or len(y) != len(X):
        raise ValueError(f"{name} must be a sequence of n = {len(X)} arrays (m_i,), as X is one of arrays (m_i, d)")
    if len(X) == 0:
        raise ValueError(f"{prefix}X is an empty sequence; at least one client is needed")
    parts = [_part(f"{prefix}X[{i}]", part, ("m_i", "d"), some) for i, part in enumerate(X)]
    labels = [_part(f"{name}[{i}]", part, ("m_i",), some) for i, part in enumerate(y)]
    counts = np.array([float(part.shape[0]) for part in parts])
    if not counts.any():
        raise ValueError(f"{prefix}X holds no samples; at least one client needs some")
    dim = parts[int(counts.argmax())].shape[1] if some else parts[0].shape[1]
    for i, (part, label) in enumerate(zip(parts, labels, strict=True)):
        if part.ndim == 2:  # an empty list is of no dimension
            check_shape(f"{prefix}X[{i}]", part, (part.shape[0], dim), "(m_i, d)")
        check_shape(f"{name}[{i}]", label, part.shape[:1], f"(m_i,) as {prefix}X[{i}] has shape {part.shape}")
    rows = np.zeros((len(parts), int(counts.max()), dim))
    values = np.zeros(rows.shape[:-1])
    for i in map(int, np.flatnonzero(counts)):
        rows[i, : parts[i].shape[0]], values[i, : labels[i].shape[0]] = parts[i], labels[i]
    return rows, values, counts


def _part(name: str, value: Any, axes: tuple[str, ...], some: bool) -> Array:
    """Return one client's array; with `some` it may be empty."""
    if some and _axes(value) and len(value) == 0:
        return np.asarray(value, dtype=np.float64)
    return check_array(name, value, [axes])


def check_truthless(data: object) -> None:
    """Raise unless `data` can serve without a truth."""
    if not isinstance(data, GivenSamples):
        raise ValueError(f"data = {shown(data)} draws its labels from a truth: give problem=, or GivenSamples")
