"""What clients see, as a user says it: fresh, fixed or given samples. Frozen, cheap, picklable configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import Configuration
from linfed.data.sources import Sizes, draw_fixed
from linfed.errors import check_array, check_bool, check_integer, check_shape, shown
from linfed.memory import check_fits
from linfed.problems import Problem, check_problem
from linfed.streams import Seed, check_seed


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
    """

    n_samples: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_samples", check_integer("n_samples", self.n_samples))

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
    """

    n_samples: int
    in_law: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_samples", check_integer("n_samples", self.n_samples))
        if self.in_law is not None:
            object.__setattr__(self, "in_law", check_bool("in_law", self.in_law))

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


def check_truthless(data: object) -> None:
    """Raise unless `data` can serve without a truth."""
    if not isinstance(data, GivenSamples):
        raise ValueError(f"data = {shown(data)} draws its labels from a truth: give problem=, or GivenSamples")
