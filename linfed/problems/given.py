"""Problem with a given ground truth."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed._values import ByValue, check_fields, converted
from linfed.checks import check_array, check_integer, check_noise_stds, check_shape, short_repr
from linfed.numerics.linalg import RANK_TOLERANCE, column_rank
from linfed.numerics.streams import Seed, check_trials
from linfed.problems.base import NO_CLOSED_FORM, Truth, not_unique
from linfed.problems.designs import Design, Gaussian, as_design
from linfed.system.memory import check_copy


@dataclass(frozen=True, kw_only=True)
class GivenTruth(ByValue):
    """Given ground truth: ``phi_i = B w_i + s_i``, or all ``phi_i`` as one array.

    Parameters
    ----------
    B : array_like (d, r) or (trials, d, r), optional
        Shared factor of full column rank, not necessarily orthonormal. With `Phi` it is only the reference subspace of
        the subspace distance.
    W : array_like (n, r) or (trials, n, r), optional
        Heads; requires `B`.
    S : array_like (n, d) or (trials, n, d), optional
        Full-dimensional part of each client.
    Phi : array_like (n, d) or (trials, n, d), optional
        All regressors, row i = client i; cannot be combined with `W` or `S`.
    noise_std : float or array_like (n,), default 0.0
        Standard deviation of the label noise, in units of y: one for all clients, or one for each client.
    design : Design or str, default "gaussian"
        Distribution of x.

    Raises
    ------
    ValueError
        If the parts do not determine the regressors, shapes do not agree, values are not finite, or the columns of B
        are linearly dependent in a trial.

    Notes
    -----
    Without a leading axis all trials share one ground truth. The reference subspace of a learned B with k columns is:

    - the span of `B`, if it has at most k columns or `Phi` is given;
    - the top-k left singular subspace of ``B W'``, if `B` has more than k columns;
    - without `B`, the top-k left singular subspace of Phi, or the span of Phi if its rank is lower.

    The last two hold for isotropic x; `Truth.reference` defines them for a covariance.

    If the top-k subspace is not unique (equal singular values k and k + 1, or all regressors 0), the metric
    "subspace_distance" is absent.

    Examples
    --------
    >>> import linfed as lf, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> problem = lf.GivenTruth(B=np.eye(6, 2), W=rng.standard_normal((15, 2)), noise_std=0.1)
    >>> problem.n_clients, problem.dim, problem.subspace_rank
    (15, 6, 2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(20), n_rounds=50)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 0.1)
    True
    """

    B: npt.ArrayLike | None = None
    W: npt.ArrayLike | None = None
    S: npt.ArrayLike | None = None
    Phi: npt.ArrayLike | None = None
    noise_std: float | Sequence[float] = 0.0
    design: Design = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        check_fields(self, design=converted(as_design))
        axes = {"B": ("d", "r"), "W": ("n", "r"), "S": ("n", "d"), "Phi": ("n", "d")}
        for name, shape in axes.items():
            value = getattr(self, name)
            if value is not None:
                check_copy(name, value)
                array = check_array(name, value, [shape, ("trials", *shape)])
                array.setflags(write=False)
                object.__setattr__(self, name, array)
        if self.Phi is not None and (self.W is not None or self.S is not None):
            raise ValueError("Phi cannot be combined with W or S, which are parts of Phi")
        if self.Phi is None and self.S is None and (self.B is None or self.W is None):
            raise ValueError("GivenTruth requires B and W, or S, or Phi")
        if self.W is not None and self.B is None:
            raise ValueError("W requires B: the regressors are B w_i")
        if self.S is not None and self.B is not None and self.W is None:
            raise ValueError("B with S requires W; for a reference subspace B and all regressors use Phi=")
        self._check_sizes()
        check_fields(self, noise_std=converted(partial(check_noise_stds, n_clients=self.n_clients)))
        self.design.check_sizes(self.dim, self.n_clients)

    def _arrays(self) -> dict[str, Array]:
        """Return the given arrays by name."""
        return {
            name: np.asarray(value) for name in ("B", "W", "S", "Phi") if (value := getattr(self, name)) is not None
        }

    def _check_sizes(self) -> None:
        """Raise if the shapes of the arrays do not agree."""
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
            raise ValueError(f"the arrays of GivenTruth must have equal numbers of trials, got {sorted(leading)}")
        if "B" in arrays:
            _check_full_rank(arrays["B"])

    @property
    def n_trials(self) -> int | None:
        """Number of trials of the arrays; None if they have no trial axis."""
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
        """Columns of B; without B the rank of the regressors (the minimum over trials)."""
        if self.B is not None:
            return int(np.asarray(self.B).shape[-1])
        return int((self._singular_values > RANK_TOLERANCE * self._singular_values[:, :1]).sum(axis=-1).min())

    @functools.cached_property
    def _singular_values(self) -> Array:
        """Singular values (trials, r) of `Truth.singular_values` for each given trial."""
        truth = self.truth(0, range(self.n_trials or 1))
        if self.design.per_client:  # only the rank is used
            truth = replace(truth, design=Gaussian())
        return truth.singular_values()

    def no_reference(self, rank: int) -> str:
        """Return the reason why no unique reference subspace of `rank` columns exists, or an empty string."""
        rank = check_integer("rank", rank)
        if self.B is not None and (self.Phi is not None or self.subspace_rank <= rank):
            return ""
        if self.design.per_client:
            return NO_CLOSED_FORM
        return not_unique(self._singular_values, rank)

    @property
    def truth_rank(self) -> int | None:
        """Columns of B if the ground truth is ``B w_i``, else None."""
        return self.subspace_rank if self.W is not None and self.S is None else None

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the given ground truth for each of the trials; `seed` is not used."""
        trials = check_trials(trials)
        if self.n_trials is not None and max(trials) >= self.n_trials:
            raise ValueError(f"trials = {short_repr(trials)} must be below {self.n_trials}, the number of its trials")
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
        """Raise ValueError: a given ground truth does not determine a distribution of new clients."""
        raise ValueError(
            "new_clients() of a run with lf.GivenTruth requires problem=, the ground truth of the new clients, "
            "e.g. problem=lf.GivenTruth(B=..., W=...)"
        )

    def floats_per_trial(self) -> int:
        """Return the number of floats in one trial's ground truth."""
        return sum(array.shape[-1] * array.shape[-2] for array in self._arrays().values())


def _check_full_rank(B: Array) -> None:
    """Raise if the columns of B (.., d, r) are linearly dependent; their lengths do not matter."""
    ranks = column_rank(B)
    short = np.flatnonzero(ranks < B.shape[-1])
    if short.size:
        where = f" in trial {short[0]}" if B.ndim == 3 else ""
        raise ValueError(
            f"B of shape {B.shape} has rank {ranks.flat[short[0]]}{where}, expected full column rank {B.shape[-1]}: "
            "omit dependent columns, or give all regressors as Phi"
        )
