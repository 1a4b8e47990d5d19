"""Problem in which every client has a representation of its own near a shared one, and some clients are outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from linfed._types import Generator
from linfed._values import check_fields, optional
from linfed.checks import check_bool, check_number
from linfed.numerics.rounding import rounded_share
from linfed.numerics.streams import Seed, Stream, generators
from linfed.problems.base import Truth, length, positive_length
from linfed.problems.shared import SharedRepresentation


@dataclass(frozen=True, kw_only=True)
class SimilarRepresentations(SharedRepresentation):
    """Problem whose clients have similar, not equal, representations: ``phi_i = A_i w_i*`` with A_i near B*.

    Parameters
    ----------
    n_clients, dim, rank, noise_std, head_norm, condition_number, heterogeneity, design
        As in `SharedRepresentation`.
    deviation : float, default 0.0
        Deviation h >= 0 of the representations: ``E ||(A_i - B*) w_i*||^2 = h^2 ||w_i*||^2``.
    outliers : float, default 0.0
        Share of clients whose regressors do not lie near the span of B*, from 0 to 1: the last
        ``floor(outliers n + 1/2)`` clients, which must be fewer than n. Above 0 it cannot be combined with
        `condition_number`.
    outlier_norm : float, optional
        Length R > 0 of an outlier's regressor; by default `head_norm`.
    colluding : bool, default False
        If True, all outliers of a trial have the same regressor.

    Raises
    ------
    ValueError
        If a value is out of range, options cannot be combined, or all clients would be outliers.

    Notes
    -----
    ``A_i = B* + h Delta_i``, where the entries of ``Delta_i`` are independent N(0, 1/d). The regressor of an outlier is
    uniformly distributed on the sphere of radius R. With ``L = head_norm`` let ``q = R / L``. B* and the heads ``w_i*``
    of the other clients are as in `SharedRepresentation`. In the ground truth the part ``s_i`` is ``h Delta_i w_i*``.
    For an outlier the head is 0, and ``s_i = phi_i``. If `deviation` and `outliers` are 0, there is no such part, and
    the ground truth is that of `SharedRepresentation`.

    A head has one representation, so only ``h Delta_i w_i*`` matters. It is N(0, h^2 ||w_i*||^2 / d I). Without
    outliers, and with heads of equal length, the regressors are therefore those of `SharedWithShortcuts` with
    ``shortcut_norm = h head_norm``.

    The reference subspace is the span of B*. Let ``e`` be the share of outliers, and ``C = E w w'`` as in
    `SharedRepresentation`. For outliers that do not collude and given B*, the second moment
    ``M = (1/n) sum_i phi_i phi_i'`` has the mean::

        E M = (1 - e) B* C B*' + ((1 - e) h^2 + e q^2) (L^2 / d) I

    Its top-k subspace is the span of B* if `heterogeneity` is positive, for every h and every e < 1. But algorithms
    learn the top-k subspace of M itself, which differs from it. With `heterogeneity` 1, the tangents of the difference
    form a (d - k, k) matrix with uncorrelated entries. To first order in 1/n their variance is::

        v = k^2 / (n d (1 - e)^2) [(1 - e) h^2 (1/k + h^2/d) + e q^4 / (d + 2)]

    The subspace distance of a converged run of FedRep is therefore about ``sqrt(v) (sqrt(d - k) + sqrt(k))``, even for
    many samples without label noise. The best heads at B* have the mean excess risk
    ``((1 - e) h^2 + e q^2) (1 - k/d) L^2 / 2`` for x of covariance I.

    New clients have the training clients' distribution. The last ``floor(outliers c + 1/2)`` of c new clients are
    outliers.

    **Deviations**: Tian, Gu and Feng require orthonormal ``A_i`` with ``||A_i A_i' - B*B*'|| <= h``, and their outliers
    are arbitrary. With ``rank=1, heterogeneity=0`` the clients are near one common regressor, as in Duan and Wang.
    There the deviations have equal lengths; here they are Gaussian.

    References
    ----------
    Y. Tian, Y. Gu, Y. Feng: Learning from similar linear representations: adaptivity, minimaxity, and robustness,
    Journal of Machine Learning Research 26(187), 2025. K. Chua, Q. Lei, J. D. Lee: How fine-tuning allows for effective
    meta-learning, NeurIPS 2021. Y. Duan, K. Wang: Adaptive and robust multi-task learning, Annals of Statistics 51(5),
    2023.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SimilarRepresentations(n_clients=40, dim=12, rank=2, deviation=0.3, outliers=0.1)
    >>> truth = problem.truth(seed=0, trials=[0])
    >>> truth.B.shape, truth.W.shape, truth.S.shape, problem.n_outliers
    ((1, 12, 2), (1, 40, 2), (1, 40, 12), 4)
    >>> import numpy as np
    >>> outside = truth.dense()[0] @ (np.eye(12) - truth.B[0] @ truth.B[0].T)
    >>> lengths = np.linalg.norm(outside, axis=1)
    >>> bool(lengths[:-4].max() < lengths[-4:].min())
    True
    """

    deviation: float = 0.0
    outliers: float = 0.0
    outlier_norm: float | None = None
    colluding: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, deviation=length, outliers=partial(check_number, minimum=0.0, maximum=1.0))
        check_fields(self, outlier_norm=optional(positive_length), colluding=check_bool)
        if self.outliers > 0 and self.condition_number is not None:
            raise ValueError(
                f"outliers = {self.outliers:g} cannot be combined with condition_number = {self.condition_number:g}"
            )
        if self.n_outliers == self.n_clients:
            raise ValueError(
                f"outliers = {self.outliers:g} would make all n_clients = {self.n_clients} clients outliers: "
                "it must be smaller"
            )

    @property
    def n_outliers(self) -> int:
        """Number of outliers, the last clients of each trial."""
        return self._count(self.n_clients)

    def _count(self, clients: int) -> int:
        return int(rounded_share(self.outliers, clients))

    @property
    def truth_rank(self) -> int | None:  # type: ignore[override]
        """Rank k of the ground truth with `deviation` and `outliers` 0, else None: it is full-dimensional."""
        return None if self.deviation or self.outliers else self.rank

    def truth(self, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of the given trials: `SharedRepresentation`, changed from a separate stream."""
        return self._changed(super().truth(seed, trials), generators(seed, Stream.SHORTCUT, trials))

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Truth:
        """Return the ground truths of new clients, with unchanged B* and the training clients' distribution."""
        shared = super().new_clients(truth, clients, seed, trials)
        return self._changed(shared, generators(seed, Stream.NEW_SHORTCUT, trials))

    def _changed(self, shared: Truth, rngs: Sequence[Generator]) -> Truth:
        """Return the ground truths with deviations of all clients, and with outliers, drawn from `rngs`."""
        if self.truth_rank is not None:
            return shared
        assert shared.W is not None
        W = shared.W
        S = np.stack([rng.standard_normal((W.shape[1], self.dim)) for rng in rngs])
        near = W.shape[1] - self._count(W.shape[1])
        S[:, :near] *= self.deviation / math.sqrt(self.dim) * np.sqrt(np.vecdot(W, W))[:, :near, None]
        far = S[:, near:]
        far *= (self.outlier_norm or self._norm) / np.sqrt(np.vecdot(far, far))[..., None]
        if self.colluding:
            far[:] = far[:, :1]
        W[:, near:] = 0.0
        return replace(shared, W=W, S=S, n_outliers=W.shape[1] - near)

    def floats_per_trial(self) -> int:
        """Return the number of floats in one trial's ground truth."""
        full = 0 if self.truth_rank is not None else self.n_clients * self.dim
        return super().floats_per_trial() + full
