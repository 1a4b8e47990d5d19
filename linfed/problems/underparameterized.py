"""Under-parameterised problem: regressors that do not fit into k dimensions, as in the FLUTE paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from linfed._types import Array, Generator
from linfed._values import Configuration, check_fields, converted, optional
from linfed.checks import check_array, check_integer, check_noise_stds, short_repr
from linfed.numerics.linalg import orthonormalize
from linfed.numerics.streams import Seed, Stream, check_trials, generators
from linfed.problems.base import NO_CLOSED_FORM, Truth, check_new_clients, not_unique, positive_length
from linfed.problems.designs import Design, Gaussian, as_design


@dataclass(frozen=True, kw_only=True)
class UnderParameterized(Configuration):
    """Problem whose regressors ``Phi = [phi_1, ..., phi_n] = U Lambda V'`` may exceed the rank of the learned model.

    Parameters
    ----------
    n_clients, dim : int
        Number of clients n, ambient dimension d.
    rank : int, optional
        Rank r of Phi; ``min(n, d)`` by default.
    spectrum : sequence of float, optional
        Singular values ``lambda_1 >= .. >= lambda_r > 0`` of Phi. By default the phi_i are Gaussian: N(0, I_d), or, if
        the rank is below ``min(n, d)``, standard Gaussian on a uniformly random subspace of r dimensions.
    gap : float, optional
        Gap ``Delta = 2 (lambda_k - lambda_{k+1}) > 0``, at most ``2 lambda_k``: the singular values after the k-th are
        multiplied by one factor that gives this gap. Requires `gap_after`.
    gap_after : int, optional
        Index k of the gap, below r.
    noise_std : float or array_like (n,), default 0.0
        Standard deviation of the label noise, in units of y (never the variance): one for all clients, or one for each
        client.
    design : Design or str, default "gaussian"
        Distribution of x.

    Raises
    ------
    ValueError
        If a size is below 1, the rank exceeds ``min(n, d)``, the spectrum increases, or the singular values do not
        allow the gap. For a Gaussian Phi the gap is checked when a ground truth is drawn.

    Notes
    -----
    With a spectrum or a gap, U and V are uniformly distributed. They are the Q factors of Gaussian (d, r) and (n, r)
    matrices, or the singular vectors of a Gaussian Phi, whose distribution is equal. The ground truth is then stored in
    factors, ``B* = U`` and ``W* = V Lambda``, for any n and d. New clients are Gaussian. Their covariance is I_d
    for a Gaussian Phi of full rank, ``B* B*'`` for one of lower rank, and ``U Lambda^2 U'/n`` with a spectrum or a gap.
    The reference subspace of a learned B with k columns is ``U_k`` for isotropic x (`Truth.reference` for other x).

    **Deviations**: `gap` is an addition. The paper draws V with M columns and d orthonormal rows (M >= d); here n is
    arbitrary.

    References
    ----------
    FLUTE paper, sections 3 and 7.1, Appendix C.1; Theorem 5.1 for the gap.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.UnderParameterized(n_clients=15, dim=10, spectrum=[20 / (i + 1) for i in range(1, 11)])
    >>> truth = problem.truth(seed=0, trials=[0])
    >>> truth.B.shape, truth.W.shape
    ((1, 10, 10), (1, 15, 10))
    """

    n_clients: int
    dim: int
    rank: int | None = None
    spectrum: Sequence[float] | None = None
    gap: float | None = None
    gap_after: int | None = None
    noise_std: float | Sequence[float] = 0.0
    design: Design = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        check_fields(self, n_clients=check_integer, dim=check_integer)
        levels = partial(check_noise_stds, n_clients=self.n_clients)
        check_fields(self, noise_std=converted(levels), design=converted(as_design), rank=optional(check_integer))
        self.design.check_sizes(self.dim, self.n_clients)
        most = min(self.n_clients, self.dim)
        if self.rank is not None and self.rank > most:
            raise ValueError(f"rank = {self.rank} must be at most min(n_clients, dim) = {most}")
        if self.spectrum is not None:
            values = check_array("spectrum", self.spectrum, [("r",)])
            if values.min() <= 0 or np.any(np.diff(values) > 0):
                raise ValueError(
                    f"spectrum = {short_repr(self.spectrum)} must contain positive numbers in descending order"
                )
            positive_length("spectrum[0]", values[0])
            if len(values) > most:
                raise ValueError(f"spectrum has {len(values)} values, expected at most min(n_clients, dim) = {most}")
            if self.rank is not None and self.rank != len(values):
                raise ValueError(f"rank = {self.rank}, but spectrum has {len(values)} values: omit rank")
            object.__setattr__(self, "spectrum", tuple(float(value) for value in values))
        if (self.gap is None) != (self.gap_after is None):
            raise ValueError(
                f"gap = {short_repr(self.gap)} and gap_after = {short_repr(self.gap_after)} must be given together"
            )
        if self.gap is not None:
            check_fields(self, gap=positive_length, gap_after=check_integer)
            assert self.gap_after is not None
            if self.gap_after >= self.truth_size:
                raise ValueError(
                    f"gap_after = {self.gap_after} must be below the rank {self.truth_size} of the ground truth"
                )
            if self.spectrum is not None:
                self._with_gap(np.asarray(self.spectrum))

    @property
    def truth_size(self) -> int:
        """Rank r of Phi."""
        if self.spectrum is not None:
            return len(self.spectrum)
        return min(self.n_clients, self.dim) if self.rank is None else self.rank

    @property
    def subspace_rank(self) -> int:
        """Rank of Phi, the largest k for which ``U_k`` exists."""
        return self.truth_size

    @property
    def truth_rank(self) -> int | None:
        """Rank of the ground truth in factors; None for a Gaussian Phi of full rank, which is stored as an array."""
        return self.truth_size if self._factored else None

    @property
    def _factored(self) -> bool:
        """Whether the ground truth is stored in factors."""
        shaped = self.spectrum is not None or self.gap is not None
        return shaped or self.truth_size < min(self.n_clients, self.dim)

    def no_reference(self, rank: int) -> str:
        """Return the reason why no unique reference subspace of `rank` columns exists, or an empty string."""
        rank = check_integer("rank", rank)
        if self.design.per_client:
            return "" if self._factored and self.truth_size <= rank else NO_CLOSED_FORM
        if self.spectrum is None or self.design.variance is None:
            return ""
        return not_unique(self._with_gap(np.asarray(self.spectrum))[None], rank)

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of the given trials, drawn from each trial's ``TRUTH`` stream."""
        factors = [self._draw(rng) for rng in generators(seed, Stream.TRUTH, check_trials(trials))]
        if not self._factored:
            return Truth(S=np.stack([S for S, _ in factors]), noise_std=self.noise_std, design=self.design)
        B, W = (np.stack(parts) for parts in zip(*factors, strict=True))
        return Truth(B=B, W=W, noise_std=self.noise_std, design=self.design)

    def _draw(self, rng: Generator) -> tuple[Array, Array]:
        """Return B (d, r) and W (n, r); for a ground truth without factors Phi' (n, d), twice."""
        n, d, r = self.n_clients, self.dim, self.truth_size
        if self.spectrum is not None:
            U = orthonormalize(rng.standard_normal((d, r)))
            return U, orthonormalize(rng.standard_normal((n, r))) * self._with_gap(np.asarray(self.spectrum))
        if r == min(n, d):
            Phi = rng.standard_normal((n, d))
            if self.gap is None:
                return Phi, Phi
            V, values, Ut = np.linalg.svd(Phi, full_matrices=False)
            return Ut.T, V * self._with_gap(values)
        B, W = orthonormalize(rng.standard_normal((d, r))), rng.standard_normal((n, r))
        if self.gap is None:
            return B, W
        V, values, Ut = np.linalg.svd(W, full_matrices=False)
        return B @ Ut.T, V * self._with_gap(values)

    def _with_gap(self, values: Array) -> Array:
        """Return the singular values after scaling for the gap, if one is given."""
        if self.gap is None or self.gap_after is None:
            return values
        k = self.gap_after
        following = values[k - 1] - self.gap / 2.0
        if following < 0:
            raise ValueError(f"gap = {self.gap:g} must be at most 2 lambda_k = {2 * values[k - 1]:g}, k = {k}")
        return np.concatenate([values[:k], values[k:] * (following / values[k])])

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of new clients: Gaussian, with the training clients' covariance."""
        truth, clients, trials = check_new_clients(truth, clients, trials)
        rngs = generators(seed, Stream.NEW_TRUTH, trials)
        if not self._factored:
            S = np.stack([rng.standard_normal((clients, self.dim)) for rng in rngs])
            return Truth(S=S, noise_std=self.noise_std, design=self.design)
        assert truth.W is not None
        W = np.stack([rng.standard_normal((clients, self.truth_size)) for rng in rngs])
        if self.spectrum is not None or self.gap is not None:  # the columns of W* are orthogonal
            W = W * (np.linalg.norm(truth.W, axis=-2, keepdims=True) / math.sqrt(self.n_clients))
        return Truth(B=truth.B, W=W, noise_std=self.noise_std, design=self.design)

    def floats_per_trial(self) -> int:
        """Return the number of floats in one trial's ground truth."""
        n, d = self.n_clients, self.dim
        return self.truth_size * (n + d) if self._factored else n * d
