"""A truth of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import Configuration, check_fields, converted
from linfed.errors import check_array, check_noise_std, check_shape
from linfed.numerics.linalg import RANK_TOLERANCE
from linfed.numerics.streams import Seed
from linfed.problems.base import Truth, not_unique
from linfed.problems.designs import Design, Gaussian, as_design
from linfed.system.memory import check_copy


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenTruth(Configuration):
    """A truth of one's own: ``phi_i = B w_i + s_i``, or all ``phi_i`` at once.

    Parameters
    ----------
    B : array_like (d, r) or (trials, d, r), optional
        Shared factor of full column rank, orthonormal or not; with `Phi`, only the reference of the subspace distance.
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
        For parts that do not make regressors, shapes that do not agree, values that are not finite, or a B with
        linearly dependent columns, in any trial: a distance from its span would be arbitrary.

    Notes
    -----
    Without a leading axis every trial has the same truth. A learned B of k columns is held against the span of `B` (of
    more than k columns: against the top-k part of ``B W'``), or without `B` against the top-k left singular subspace of
    Phi, or the span of a Phi of lower rank; with `Phi` a `B` says which subspace to take instead. Without a unique
    top-k subspace (equal singular values k and k + 1, or regressors that are all 0) "subspace_distance" is absent.

    **Deviations**: none.
    """

    B: npt.ArrayLike | None = None
    W: npt.ArrayLike | None = None
    S: npt.ArrayLike | None = None
    Phi: npt.ArrayLike | None = None
    noise_std: float = 0.0
    design: Design = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        check_fields(self, noise_std=converted(check_noise_std), design=converted(as_design))
        axes = {"B": ("d", "r"), "W": ("n", "r"), "S": ("n", "d"), "Phi": ("n", "d")}
        for name, shape in axes.items():
            value = getattr(self, name)
            if value is not None:
                check_copy(name, value)
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
        if "B" in arrays:
            _check_full_rank(arrays["B"])

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
    def subspace_rank(self) -> int:
        """Columns of B; without it the rank of the regressors, the lowest over trials."""
        if self.B is not None:
            return int(np.asarray(self.B).shape[-1])
        return int((self._singular_values > RANK_TOLERANCE * self._singular_values[:, :1]).sum(axis=-1).min())

    @functools.cached_property
    def _singular_values(self) -> Array:
        """Those that `Truth.reference` rests on, of each given trial."""
        return self.truth(0, range(self.n_trials or 1)).singular_values()

    def no_reference(self, rank: int) -> str:
        """Return why there is no unique reference subspace of `rank` columns, or an empty string."""
        if self.B is not None and (self.Phi is not None or self.subspace_rank <= rank):
            return ""
        return not_unique(self._singular_values, rank)

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


def _check_full_rank(B: Array) -> None:
    """Raise for a B (.., d, r) with dependent columns; their lengths play no part, as in the span's QR."""
    lengths = np.abs(B).max(axis=-2, keepdims=True)
    ranks = np.linalg.matrix_rank(np.divide(B, lengths, out=np.zeros_like(B), where=lengths > 0))
    short = np.flatnonzero(ranks < B.shape[-1])
    if short.size:
        where = f" in trial {short[0]}" if B.ndim == 3 else ""
        raise ValueError(
            f"B of shape {B.shape} has rank {ranks.flat[short[0]]}{where}, expected {B.shape[-1]}, full column rank: "
            "leave out dependent columns, or give all regressors as Phi"
        )
