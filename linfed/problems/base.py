"""Base classes of ground truths and of problems, the families that generate them.

A ground truth is stored in factors, ``phi_i = B* w_i* + s_i*``, whose parts are all optional. An (n, d) array is stored
only if the ground truth has a full-dimensional part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from linfed._types import Array, Indices, MaybeNone
from linfed._values import Check, EqualByValue
from linfed.checks import LARGEST_NOISE, check_instance, check_integer, check_number, short_repr
from linfed.numerics.linalg import RANK_TOLERANCE, orthonormalize, qr_positive
from linfed.numerics.streams import Seed, check_trials
from linfed.problems.designs import Design, Gaussian
from linfed.system.memory import check_fits

length: Check = partial(check_number, minimum=0.0, maximum=LARGEST_NOISE)
"""Check of a length in a ground truth, which has the limit of the noise: its powers must not overflow."""

positive_length: Check = partial(check_number, positive=True, maximum=LARGEST_NOISE)
"""The same for a length that must not be 0."""


@dataclass(frozen=True, kw_only=True)
class Truth(EqualByValue):
    """Ground truths of a chunk of trials, in factors: ``phi_i = B* w_i* + s_i*``.

    Parameters
    ----------
    B : ndarray (trials, d, r), optional
        Shared factor.
    W : ndarray (trials, n, r), optional
        Heads; requires `B`.
    S : ndarray (trials, n, d), optional
        Full-dimensional part of each client.
    subspace : ndarray (trials, d, k), optional
        Reference subspace for the subspace distance, if it is not the span of `B`.
    noise_std : float or sequence of float (n,)
        Standard deviation of the label noise, in units of y, for all clients or for each client.
    design : Design
        Distribution of x.
    n_outliers : int
        Number of planted outliers, the last clients.

    Raises
    ------
    ValueError
        If there is neither `B` nor `S`.

    Examples
    --------
    >>> import linfed as lf
    >>> truth = lf.SharedRepresentation(n_clients=10, dim=6, rank=2).truth(seed=0, trials=[0, 1, 2])
    >>> truth.B.shape, truth.W.shape, truth.dense().shape
    ((3, 6, 2), (3, 10, 2), (3, 10, 6))
    >>> truth.truncated(rank=1).B.shape
    (3, 6, 1)
    """

    B: Array | MaybeNone = None
    W: Array | MaybeNone = None
    S: Array | MaybeNone = None
    subspace: Array | MaybeNone = None
    noise_std: float | Sequence[float] = 0.0
    design: Design = field(default_factory=Gaussian)
    n_outliers: int = 0

    def __post_init__(self) -> None:
        if self.B is None and self.S is None:
            raise ValueError("Truth requires B and W, or S")

    def noise_levels(self, clients: Indices) -> float | Array:
        """Return `noise_std`, or the standard deviations (.., 1) of the given clients (..,) where they differ."""
        levels = np.asarray(self.noise_std, dtype=float)
        return levels[clients][..., None] if levels.ndim else float(levels)

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

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        part = self.S if self.B is None else self.B.mT
        assert part is not None
        return int(part.shape[-1])

    def reference(self, rank: int) -> Array:
        """Return an orthonormal basis of the reference subspace for a learned representation of `rank` columns.

        The reference is, in this order:

        - the given `subspace`;
        - the span of B*, if it has at most `rank` columns;
        - the subspace that gives the smallest risk with personal heads. For isotropic x this is the top left singular
          subspace ``U_rank`` of ``Phi = [phi_1 .. phi_n]``, or of the shared part ``B* W*'`` if there is one.

        Returns
        -------
        ndarray (trials, d, k)
            With fewer columns if the ground truth has fewer. In a trial in which Phi has a rank r below k, the columns
            after the r-th are zeros: the reference is the span of Phi. If singular values k and k + 1 are equal, the
            reference is not unique (`not_unique`).

        Raises
        ------
        ValueError
            If `rank` is not from 1 to d, or if the covariance of x differs between clients and the ground truth does
            not lie in `rank` dimensions.

        Notes
        -----
        Under a covariance ``L L'`` of x the risk of B with its best heads is ``(1/2n) ||(I - P) L'Phi||_F^2``, where P
        is the projector on span(L'B). The risk is smallest if span(L'B) is the top left singular subspace U of
        ``L'Phi``, at ``span(B) = L^{-T} U``. For x ~ N(0, L L') FedRep's mean step also vanishes there. For a singular
        covariance the inverse is the pseudo-inverse: the risk does not depend on the part of B in the null space, and
        the reference has no such part.
        """
        rank = check_integer("rank", rank, maximum=self.dim)
        if self.subspace is not None:
            return orthonormalize(self.subspace)
        if self.B is not None and self.W is not None and self.B.shape[-1] <= rank:
            return orthonormalize(self.B)
        top = _top_subspace(*self._shaped(), rank)
        if self.design.variance is not None:
            return top
        return np.where(top.any(axis=-2, keepdims=True), orthonormalize(self.design.root_solve(top)), 0.0)

    def _shaped(self) -> tuple[Array | None, Array]:
        """Return B and W with ``L'Phi = B W'`` (without B ``W'``) up to scale, for a covariance ``L L'`` of x."""
        basis, rows = self.B, self.W
        if basis is None or rows is None:
            assert self.S is not None
            basis, rows = None, self.S
        if self.design.variance is not None:
            return basis, rows
        if self.design.per_client:
            raise ValueError(f"truth has a covariance of x for each client: {NO_CLOSED_FORM}")
        if basis is None:
            return None, self.design.root_apply(rows.mT).mT
        return self.design.root_apply(basis), rows

    def singular_values(self) -> Array:
        """Return the singular values of ``L'Phi`` up to a common scale, (trials, r), largest first.

        ``L L'`` is the covariance of x, and Phi is the shared part ``B* W*'`` if there is one. `reference` belongs to
        the first k values, and is unique if values k and k + 1 differ.
        """
        return _left_singular(*self._shaped())[2]

    def orthonormal_heads(self) -> Array:
        """Return the heads ``W R'`` (trials, n, r) that belong to the Q factor of ``B = Q R``; requires B and W."""
        if self.B is None or self.W is None:
            raise ValueError("orthonormal_heads() requires a ground truth with factors B and W")
        return np.asarray(self.W @ qr_positive(self.B)[1].mT)

    def truncated(self, rank: int) -> Truth:
        """Return the best approximation of rank k, ``Phi_k = U_k U_k' Phi``: its `B` is U_k, its `W` is ``Phi'U_k``.

        It is best in Frobenius norm (Eckart and Young 1936), for any distribution of x. In other norms, and for the
        risk under a covariance, it is a reference but not a lower bound (`reference` has the best subspace for the
        risk). A `rank` that is not from 1 to d raises ValueError.
        """
        rank = check_integer("rank", rank, maximum=self.dim)
        if self.S is not None or self.B is None:
            Phi = self.dense()
            U = _top_subspace(None, Phi, rank)
            W = Phi @ U
        else:
            assert self.W is not None
            U = orthonormalize(self.B) if self.B.shape[-1] <= rank else _top_subspace(self.B, self.W, rank)
            W = self.W @ (np.swapaxes(self.B, -1, -2) @ U)
        return Truth(B=U, W=W, noise_std=self.noise_std, design=self.design)


NO_CLOSED_FORM = "the subspace of the smallest risk has no closed form if the covariance of x differs between clients"
"""Reason for an absent reference subspace."""


def not_unique(values: Array, rank: int) -> str:
    """Return the reason why singular values (trials, r) have no unique top subspace of `rank` columns, or "".

    Values equal to 0 are allowed: the subspace then has fewer columns (`Truth.reference`).
    """
    least = RANK_TOLERANCE * values[:, :1]
    zero = np.flatnonzero(values[:, 0] == 0)
    where = f" in trial {zero[0]}" if zero.size and len(values) > 1 else ""
    if zero.size:
        return f"all regressors are 0{where}: they have no subspace"
    if rank >= values.shape[-1]:
        return ""
    kth, following = values[:, rank - 1, None], values[:, rank, None]
    equal = np.flatnonzero((kth > least) & (kth - following <= least))
    where = f" in trial {equal[0]}" if equal.size and len(values) > 1 else ""
    if not equal.size:
        return ""
    return (
        f"singular values {rank} and {rank + 1} of the regressors are equal{where}: their best subspace of {rank} "
        "dimensions is not unique"
    )


def _top_subspace(B: Array | None, W: Array, rank: int) -> Array:
    """Return the top left singular vectors (trials, d, k) of ``B W'``, or of ``W'`` without B; k <= rank.

    Vectors whose singular value is 0 up to rounding errors are arbitrary, and are set to 0.
    """
    basis, U, values = _left_singular(B, W)
    kept = values > RANK_TOLERANCE * values[..., :1]
    U = np.where(kept[..., None, :rank], U[..., :rank], 0.0)
    return np.asarray(U if basis is None else basis @ U)


def _left_singular(B: Array | None, W: Array) -> tuple[Array | None, Array, Array]:
    """Return an orthonormal Q or None, U and s of ``B W' = Q U diag(s) V'``, or of ``W' = U diag(s) V'`` without B."""
    basis = None
    if B is not None:
        basis, R = qr_positive(B)
        W = W @ np.swapaxes(R, -1, -2)
    # The SVD of the triangular factor: a Gram matrix would square the condition number.
    triangle = np.asarray(np.linalg.qr(W, mode="r")) if W.shape[-2] > W.shape[-1] else W
    U, values, _ = np.linalg.svd(np.swapaxes(triangle, -1, -2), full_matrices=False)
    return basis, U, values


def check_new_clients(truth: object, clients: object, trials: object) -> tuple[Truth, int, Sequence[int]]:
    """Return the checked arguments of `Problem.new_clients`: the ground truth, the number of clients, the trials."""
    if not isinstance(truth, Truth):
        raise TypeError(f"truth = {short_repr(truth)} must be what problem.truth(seed, trials) returns")
    numbers, count = check_trials(trials), check_integer("clients", clients)
    parts = [part for part in (truth.B, truth.W, truth.S) if part is not None]
    if any(len(part) != len(numbers) for part in parts):
        raise ValueError(f"trials has {len(numbers)} numbers, but truth has {len(parts[0])} trials")
    width = max(part.shape[-1] for part in parts)
    check_fits(float(len(numbers)) * count * width, f"clients = {count} new clients", "use fewer clients")
    return truth, count, numbers


class Problem(Protocol):
    """Family of ground truths: sizes, noise, the distribution of x, and a ground truth for each trial.

    Notes
    -----
    A custom problem is any object with these attributes; it need not subclass this protocol. The ground truth of a
    trial must be a function of (seed, trial): `linfed.numerics.streams.generators` returns one generator per trial.
    Two further methods are optional. ``new_clients(truth, clients, seed, trials)`` returns the ground truths of
    `clients` new clients, given the ground truths `truth` of these trials, for `Result.new_clients`.
    ``no_reference(rank)`` returns an empty string if a unique reference subspace (`Truth.reference`) of `rank` columns
    exists, else the reason on one line; the metric "subspace_distance" is then absent for this reason.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import linfed as lf
    >>> from linfed.numerics.streams import Stream, generators
    >>> @dataclass(frozen=True, kw_only=True)
    ... class OneDirection:
    ...     n_clients: int
    ...     dim: int
    ...     noise_std: float = 0.0
    ...     design: lf.Design = lf.Rademacher()
    ...     subspace_rank = truth_rank = 1
    ...
    ...     def truth(self, seed, trials):
    ...         B = np.zeros((len(trials), self.dim, 1))
    ...         B[:, 0] = 1.0
    ...         rngs = generators(seed, Stream.TRUTH, trials)
    ...         W = np.stack([rng.exponential(size=(self.n_clients, 1)) for rng in rngs])
    ...         return lf.Truth(B=B, W=W, noise_std=self.noise_std, design=self.design)
    ...
    ...     def floats_per_trial(self):
    ...         return self.n_clients + self.dim
    >>> algorithm = lf.FedRep(rank=1, step_size=0.3)
    >>> result = lf.simulate(algorithm, OneDirection(n_clients=20, dim=9), data=lf.FreshSamples(5), n_rounds=100)
    >>> bool(result.metrics["subspace_distance"][0, -1] < 1e-6)
    True
    """

    @property
    def n_clients(self) -> int:
        """Number of clients n."""
        ...

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        ...

    @property
    def noise_std(self) -> float | Sequence[float]:
        """Standard deviation of the label noise, of all clients or of each client."""
        ...

    @property
    def design(self) -> Design:
        """Distribution of x."""
        ...

    @property
    def subspace_rank(self) -> int | None:
        """Largest number of columns of a reference subspace (`Truth.reference`); None if no reference exists."""
        ...

    @property
    def truth_rank(self) -> int | None:
        """Rank r of a ground truth stored as ``B* w_i*``; None for one with a full-dimensional part."""
        ...

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of the given trials."""
        ...

    def floats_per_trial(self) -> int:
        """Return the number of floats in one trial's ground truth."""
        ...


def n_classes(*sources: object) -> int:
    """Return the number of classes of a problem or of given samples; 0 for regression."""
    return max(int(getattr(source, "n_classes", 0)) for source in sources)


_ASKED = ("n_clients", "dim", "noise_std", "design", "subspace_rank", "truth_rank", "floats_per_trial")


def check_problem(problem: object) -> Problem:
    """Return `problem` if it has the attributes of a `Problem`, or raise."""
    if isinstance(problem, type) or not hasattr(problem, "truth"):
        raise TypeError(f"problem = {short_repr(problem)} must be a problem, e.g. lf.SharedRepresentation(...)")
    missing = [name for name in _ASKED if not hasattr(problem, name)]
    if missing:
        raise TypeError(
            f"problem = {short_repr(problem)} must have the attributes {', '.join(missing)}: see lf.Problem"
        )
    found: Problem = problem  # type: ignore[assignment]
    check_instance("problem.design", found.design, Design, "a distribution of x, e.g. lf.Gaussian()")
    return found
