"""What is true: the ground truths ``y_ij = x_ij' phi_i + noise`` and the families that generate them.

A truth is kept in factors, ``phi_i = B* w_i* + s_i*``, any part of which may be missing: an (n, d) array exists
only where the truth itself needs one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Generator
from linfed.designs import Design, Gaussian, as_design
from linfed.errors import check_array, check_integer, check_number, check_shape, shown
from linfed.linalg import orthonormalize, qr_positive
from linfed.streams import Seed, Stream, generators


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The truths of a chunk of trials, in factors.

    Parameters
    ----------
    B : ndarray (trials, d, r), optional
        Shared factor.
    W : ndarray (trials, n, r), optional
        Heads; given together with `B`.
    S : ndarray (trials, n, d), optional
        Full-dimensional part of each client.
    subspace : ndarray (trials, d, k), optional
        Reference for the subspace distance where it is not the span of `B`.
    noise_std : float
        Standard deviation of the label noise, in units of y.
    design : Design
        Law of x.
    """

    B: Array | None = None
    W: Array | None = None
    S: Array | None = None
    subspace: Array | None = None
    noise_std: float = 0.0
    design: Design = field(default_factory=Gaussian)

    @property
    def scale(self) -> Array:
        """Root mean square length of the phi_i for each trial, (trials,)."""
        if self.S is None:
            assert self.B is not None
            assert self.W is not None
            R = np.linalg.qr(self.B, mode="r")
            parts = self.W @ np.swapaxes(R, -1, -2)
        else:
            parts = self.dense()
        return np.asarray(np.sqrt(np.vecdot(parts, parts).mean(axis=-1)))

    def dense(self) -> Array:
        """Return all phi_i, (trials, n, d)."""
        low_rank = None if self.B is None or self.W is None else self.W @ np.swapaxes(self.B, -1, -2)
        if self.S is None:
            assert low_rank is not None
            return low_rank
        return self.S if low_rank is None else np.asarray(low_rank + self.S)

    def reference(self, rank: int) -> Array | None:
        """Return the orthonormal basis that a learned representation of `rank` columns is held against.

        It is the given `subspace` if there is one; else the span of B* if the truth's rank is at most `rank`;
        else the top left singular subspace ``U_rank`` of ``Phi = [phi_1 .. phi_n]``.

        Returns
        -------
        ndarray (trials, d, k) or None
            None where the truth has no shared part.
        """
        if self.subspace is not None:
            return orthonormalize(self.subspace)
        if self.B is None or self.W is None:
            return None
        if self.S is not None or self.B.shape[-1] <= rank:
            return orthonormalize(self.B)
        Q, R = qr_positive(self.B)
        coordinates = self.W @ np.swapaxes(R, -1, -2)
        _, vectors = np.linalg.eigh(np.swapaxes(coordinates, -1, -2) @ coordinates)
        return np.asarray(Q @ vectors[..., ::-1][..., :rank])


class Problem(Protocol):
    """A family of truths: sizes, noise, the law of x, and a truth for each trial."""

    @property
    def n_clients(self) -> int:
        """Number of clients n."""
        ...

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        ...

    @property
    def noise_std(self) -> float:
        """Standard deviation of the label noise."""
        ...

    @property
    def design(self) -> Design:
        """Law of x."""
        ...

    @property
    def subspace_rank(self) -> int | None:
        """Columns of the reference subspace; None if the truth has none."""
        ...

    @property
    def truth_rank(self) -> int | None:
        """Rank r of a truth kept as ``B* w_i*``; None for one with a full-dimensional part."""
        ...

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the truths of the given trials."""
        ...

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return truths of `clients` more clients beside those of `truth`, which are the given trials'."""
        ...

    def floats_per_trial(self) -> int:
        """Return how many numbers one trial's truth holds."""
        ...


def check_problem(problem: object) -> Problem:
    """Return `problem` if it is one."""
    if isinstance(problem, type) or not hasattr(problem, "truth"):
        raise TypeError(f"problem = {shown(problem)} must be a problem, e.g. lf.SharedRepresentation(...)")
    found: Problem = problem  # type: ignore[assignment]
    return found


@dataclass(frozen=True, kw_only=True)
class SharedRepresentation:
    """Clients whose regressors share one subspace: ``phi_i = B* w_i*``.

    Parameters
    ----------
    n_clients, dim, rank : int
        n clients, ambient dimension d, rank k <= d of the truth.
    noise_std : float, default 0.0
        Standard deviation of the label noise, in units of y (never the variance).
    head_norm : float, optional
        Length of every ``w_i*``; ``sqrt(rank)`` by default (Assumption 3).
    condition_number : float, optional
        ``kappa >= 1``: ratio of the largest to the smallest singular value of ``W*``. The singular values are then
        exactly geometric between the two, and every head still has length `head_norm`. By default the heads'
        directions are uniform, and kappa is what it comes to. Needs ``n_clients >= rank >= 2`` unless kappa is 1.
    design : Design or str, default "gaussian"
        Law of x.

    Raises
    ------
    ValueError
        For sizes below 1, rank above dim, a negative noise, or a condition number that these sizes do not allow.

    Notes
    -----
    ``B*`` is the Q factor of a standard Gaussian (d, k) matrix; ``w_i*`` a standard Gaussian vector scaled to length
    `head_norm`. A prescribed kappa is reached by alternating projections between the matrices with these singular
    values and those with rows of equal length, to 1e-12 (Tropp, Dhillon, Heath and Strohmer 2005).

    **Deviations**: none from the FedRep paper's normalisation; `condition_number` is an addition.

    References
    ----------
    FedRep paper, section 4, Assumptions 2 and 3, and section 5.1.
    """

    n_clients: int
    dim: int
    rank: int
    noise_std: float = 0.0
    head_norm: float | None = None
    condition_number: float | None = None
    design: Design = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        for name in ("n_clients", "dim", "rank"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name)))
        if self.rank > self.dim:
            raise ValueError(f"rank = {self.rank} must be at most dim = {self.dim}")
        object.__setattr__(self, "noise_std", check_number("noise_std", self.noise_std, minimum=0.0))
        object.__setattr__(self, "design", as_design(self.design))
        self.design.check_dim(self.dim)
        if self.head_norm is not None:
            object.__setattr__(self, "head_norm", check_number("head_norm", self.head_norm, positive=True))
        if self.condition_number is not None:
            kappa = check_number("condition_number", self.condition_number, minimum=1.0)
            if self.n_clients < self.rank:
                raise ValueError(
                    f"condition_number = {kappa:g} needs n_clients >= rank; got {self.n_clients} < {self.rank}"
                )
            if self.rank == 1 and kappa != 1.0:
                raise ValueError(f"condition_number = {kappa:g} must be 1 for rank = 1")
            object.__setattr__(self, "condition_number", kappa)

    @property
    def subspace_rank(self) -> int:
        """Columns of B*."""
        return self.rank

    @property
    def truth_rank(self) -> int:
        """Rank of the truth in factors ``B* w_i*``."""
        return self.rank

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the truths of the given trials, each from its own ``TRUTH`` stream."""
        B = np.empty((len(trials), self.dim, self.rank))
        W = np.empty((len(trials), self.n_clients, self.rank))
        for index, rng in enumerate(generators(seed, Stream.TRUTH, trials)):
            B[index] = orthonormalize(rng.standard_normal((self.dim, self.rank)))
            W[index] = self._norm * self._directions(rng)
        return Truth(B=B, W=W, noise_std=self.noise_std, design=self.design)

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return truths of clients that took no part: the same B*, heads from the same law.

        With a prescribed condition number the law is that of the training clients' heads given their second moment:
        rows of equal length with the Gram matrix of ``W*``.
        """
        assert truth.W is not None
        heads = []
        for rng, W in zip(generators(seed, Stream.NEW_TRUTH, trials), truth.W, strict=True):
            if self.condition_number is None:
                heads.append(self._norm * _unit_rows(rng, clients, self.rank))
            else:
                unit = _unit_rows(rng, max(clients, self.n_clients), self.rank)
                heads.append(self._norm * _with_moment_of(W, unit, self.condition_number)[:clients])
        return Truth(B=truth.B, W=np.stack(heads), noise_std=self.noise_std, design=self.design)

    @property
    def _norm(self) -> float:
        return math.sqrt(self.rank) if self.head_norm is None else self.head_norm

    def _directions(self, rng: Generator) -> Array:
        unit = _unit_rows(rng, self.n_clients, self.rank)
        return unit if self.condition_number is None else _with_condition(unit, self.condition_number)

    def floats_per_trial(self) -> int:
        """Return how many numbers one trial's truth holds."""
        return self.rank * (self.n_clients + self.dim)


def _unit_rows(rng: Generator, count: int, rank: int) -> Array:
    """Return independent uniform directions, (count, rank)."""
    rows = rng.standard_normal((count, rank))
    return np.asarray(rows / np.sqrt(np.vecdot(rows, rows))[:, None])


def _with_condition(unit: Array, kappa: float) -> Array:
    """Return unit rows near the given ones whose singular values are geometric with ratio kappa."""
    n, k = unit.shape
    spectrum = np.geomspace(kappa, 1.0, k) if k > 1 else np.ones(1)
    spectrum *= math.sqrt(n / float(np.sum(spectrum**2)))

    def shape(rows: Array) -> Array:
        U, _, Vt = np.linalg.svd(rows, full_matrices=False)
        return np.asarray((U * spectrum) @ Vt)

    return _alternated(unit, shape, kappa)


def _with_moment_of(W: Array, unit: Array, kappa: float) -> Array:
    """Return unit rows near the given ones whose mean outer product is, up to scale, that of the rows of W."""
    _, spectrum, Vt = np.linalg.svd(W, full_matrices=False)  # of W itself: its Gram matrix would square kappa
    root = (Vt.T * (spectrum * math.sqrt(len(unit)) / np.linalg.norm(spectrum))) @ Vt

    def shape(rows: Array) -> Array:
        U, _, Vt = np.linalg.svd(rows @ root, full_matrices=False)
        return np.asarray(U @ Vt @ root)  # the nearest matrix with this Gram matrix

    return _alternated(unit, shape, kappa)


def _alternated(unit: Array, shape: Callable[[Array], Array], kappa: float) -> Array:
    """Return unit rows that `shape` leaves as they are, by alternating projections."""
    rows = unit
    for _ in range(10_000):
        shaped = shape(rows)
        lengths = np.sqrt(np.vecdot(shaped, shaped))
        rows = np.asarray(shaped / lengths[:, None])
        if np.abs(lengths - 1.0).max() < 1e-12:
            return rows
    raise ValueError(
        f"condition_number = {kappa:g} with heads of equal length was not reached for n_clients = {len(unit)}, "
        f"rank = {unit.shape[1]}; more clients, or a smaller condition number, would do"
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenTruth:
    """A truth of one's own: ``phi_i = B w_i + s_i``, or all ``phi_i`` at once.

    Parameters
    ----------
    B : array_like (d, r) or (trials, d, r), optional
        Shared factor, orthonormal or not; with `Phi`, only the reference of the subspace distance.
    W : array_like (n, r) or (trials, n, r), optional
        Heads; goes with `B`.
    S : array_like (n, d) or (trials, n, d), optional
        Full-dimensional part of each client.
    Phi : array_like (n, d) or (trials, n, d), optional
        All regressors, row i = client i; excludes `W` and `S`.
    noise_std : float, default 0.0
        Standard deviation of the label noise, in units of y.
    design : Design or str, default "gaussian"
        Law of x.

    Raises
    ------
    ValueError
        For parts that do not make regressors, shapes that do not agree, or values that are not finite.

    Notes
    -----
    Without a leading axis every trial has the same truth. With `Phi` alone there is no reference subspace, so the
    subspace distance is absent: give ``B=`` for it.

    **Deviations**: none.
    """

    B: npt.ArrayLike | None = None
    W: npt.ArrayLike | None = None
    S: npt.ArrayLike | None = None
    Phi: npt.ArrayLike | None = None
    noise_std: float = 0.0
    design: Design = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_std", check_number("noise_std", self.noise_std, minimum=0.0))
        object.__setattr__(self, "design", as_design(self.design))
        axes = {"B": ("d", "r"), "W": ("n", "r"), "S": ("n", "d"), "Phi": ("n", "d")}
        for name, shape in axes.items():
            value = getattr(self, name)
            if value is not None:
                array = check_array(name, value, [shape, ("trials", *shape)])
                array.setflags(write=False)
                object.__setattr__(self, name, array)
        if self.Phi is not None and (self.W is not None or self.S is not None):
            raise ValueError("GivenTruth takes Phi (all regressors) or W and S (their parts), not both")
        if self.Phi is None and self.S is None and (self.B is None or self.W is None):
            raise ValueError("GivenTruth needs B and W, or S, or Phi: without one there are no regressors")
        if self.W is not None and self.B is None:
            raise ValueError("GivenTruth has W but no B; the regressors are B w_i")
        if self.S is not None and self.B is not None and self.W is None:
            raise ValueError("GivenTruth has B and S but no W; for a reference subspace beside all regressors use Phi=")
        self._check_sizes()
        self.design.check_dim(self.dim)

    def _arrays(self) -> dict[str, Array]:
        return {
            name: np.asarray(value) for name in ("B", "W", "S", "Phi") if (value := getattr(self, name)) is not None
        }

    def _check_sizes(self) -> None:
        arrays = self._arrays()
        n, d = self.n_clients, self.dim
        if "B" in arrays:
            columns = arrays["W"].shape[-1] if "W" in arrays else arrays["B"].shape[-1]
            check_shape("B", arrays["B"], (*arrays["B"].shape[:-2], d, columns), "(d, r)")
            if columns > d:
                raise ValueError(f"B has shape {arrays['B'].shape}: its rank {columns} must be at most d = {d}")
        for name in ("W", "S", "Phi"):
            if name in arrays and arrays[name].shape[-2] != n:
                raise ValueError(f"{name} has shape {arrays[name].shape}, expected n = {n} clients")
        leading = {array.shape[0] for array in arrays.values() if array.ndim == 3}
        if len(leading) > 1:
            raise ValueError(f"GivenTruth has arrays for {sorted(leading)} trials; they must agree")

    @property
    def n_trials(self) -> int | None:
        """Number of trials the arrays are given for; None if they serve any number."""
        return next((array.shape[0] for array in self._arrays().values() if array.ndim == 3), None)

    @property
    def n_clients(self) -> int:
        """Number of clients n."""
        arrays = self._arrays()
        return next(int(arrays[name].shape[-2]) for name in ("W", "S", "Phi") if name in arrays)

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        arrays = self._arrays()
        sizes = {"S": -1, "Phi": -1, "B": -2}
        return next(int(arrays[name].shape[axis]) for name, axis in sizes.items() if name in arrays)

    @property
    def subspace_rank(self) -> int | None:
        """Columns of B; None without it."""
        return None if self.B is None else np.asarray(self.B).shape[-1]

    @property
    def truth_rank(self) -> int | None:
        """Columns of B where the truth is ``B w_i``; None where it is not kept in such factors."""
        return self.subspace_rank if self.W is not None and self.S is None else None

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the given truth for each of the trials; the seed plays no part."""
        chosen = {
            name: array[list(trials)] if array.ndim == 3 else np.broadcast_to(array, (len(trials), *array.shape))
            for name, array in self._arrays().items()
        }
        if "Phi" in chosen:
            return Truth(S=chosen["Phi"], subspace=chosen.get("B"), noise_std=self.noise_std, design=self.design)
        return Truth(
            B=chosen.get("B"),
            W=chosen.get("W"),
            S=chosen.get("S"),
            noise_std=self.noise_std,
            design=self.design,
        )

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Truth:
        """Raise: a given truth says nothing of the clients it does not name."""
        raise ValueError(
            "a given truth says nothing of new clients: name theirs, e.g. problem=lf.GivenTruth(B=..., W=...)"
        )

    def floats_per_trial(self) -> int:
        """Return how many numbers one trial's truth holds."""
        return sum(array.shape[-1] * array.shape[-2] for array in self._arrays().values())
