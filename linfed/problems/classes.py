"""Classification problem: Gaussian classes whose means lie in a subspace; each client holds some of the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Never

import numpy as np

from linfed._types import Array, Generator, Mask
from linfed._values import Configuration, check_fields, converted, optional
from linfed.checks import check_integer, is_several, short_repr
from linfed.numerics.linalg import RANK_TOLERANCE, orthonormalize
from linfed.numerics.streams import Seed, Stream, check_trials, generators
from linfed.problems.base import Truth, positive_length
from linfed.problems.designs import Design, Gaussian, as_design, is_gaussian


@dataclass(frozen=True, kw_only=True)
class ClassTruth(Truth):
    """Mixture of Gaussian classes with a common covariance, and the classes of each client; `B` spans the means.

    Parameters
    ----------
    B : ndarray (trials, d, r)
        Orthonormal basis of the span of the class means.
    means : ndarray (trials, c, r)
        The class means in that basis: x of class j is ``B means_j`` plus a vector drawn from `design`.
    holds : ndarray of bool (trials, n, c)
        The classes of each client, which has equally many samples of each of them.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.Classes(n_clients=20, n_classes=5, classes_per_client=2, dim=12)
    >>> truth = problem.truth(seed=0, trials=[0])
    >>> truth.means.shape, truth.holds.shape, truth.bayes().shape
    ((1, 5, 4), (1, 20, 5), (1, 20, 5, 5))
    """

    means: Array
    holds: Mask

    @property
    def scale(self) -> Array:
        """Root mean square length of the class means, (trials,)."""
        return np.sqrt(np.vecdot(self.means, self.means).mean(axis=-1))

    @property
    def discriminants(self) -> Array:
        """The directions ``A = Sigma^{-1} B`` on which the labels depend, (trials, d, r), for x of covariance Sigma."""
        assert self.B is not None
        if (variance := self.design.variance) is not None:
            return self.B / variance
        Sigma = np.asarray(self.design.covariance)
        return np.linalg.solve(np.diag(Sigma) if Sigma.ndim == 1 else Sigma, self.B)

    def reference(self, rank: int) -> Array:
        """Return an orthonormal basis of the span of the `discriminants`, for any `rank`: B for isotropic x."""
        rank = check_integer("rank", rank, maximum=self.dim)
        assert self.B is not None
        return self.B if self.design.variance is not None else orthonormalize(self.discriminants)

    def bayes(self) -> Array:
        """Return the softmax heads of the Bayes classifier at the `discriminants` A, (trials, n, c, r + 1).

        ``log P(j | x) = means_j'A'x - means_j'A'B means_j / 2`` up to a constant, for the client's classes; the bias of
        all other classes is -inf.
        """
        assert self.B is not None
        bias = -0.5 * np.vecdot(self.means, self.means @ (self.B.mT @ self.discriminants))[..., None]
        heads = np.concatenate([self.means, bias], axis=-1)
        each = np.broadcast_to(heads[:, None], (*self.holds.shape, heads.shape[-1])).copy()
        each[..., -1] = np.where(self.holds, each[..., -1], -np.inf)
        return each

    def draw(self, rngs: Sequence[Generator], holds: Mask, samples: int) -> tuple[Array, Array]:
        """Return samples (T, p, m, d) and labels (T, p, m) of clients with these classes (T, p, c).

        There is one generator per trial.
        """
        assert self.B is not None
        labels = dealt_labels(holds, samples)
        X = np.empty((*labels.shape, self.B.shape[1]))
        for t, rng in enumerate(rngs):
            self.design.fill(rng, X[t])
            X[t] += (self.means[t] @ self.B[t].T)[labels[t].astype(np.intp)]
        return X, labels

    def dense(self) -> Never:
        """Raise ValueError: there are no phi_i."""
        raise ValueError("dense() supports only regression; bayes() returns the heads of the Bayes classifier")

    def truncated(self, rank: int) -> Never:
        """Raise ValueError, as `dense` does."""
        self.dense()


def dealt_labels(holds: Mask, samples: int) -> Array:
    """Return labels (T, p, m) that cycle through each client's classes (T, p, c).

    Raises
    ------
    ValueError
        If a client has more classes than samples.
    """
    count = holds.sum(axis=-1, keepdims=True)
    if count.max() > samples:
        raise ValueError(f"n_samples = {samples} must be at least classes_per_client = {count.max()}")
    order = np.argsort(~holds, axis=-1, kind="stable")  # the client's classes first, in their order
    return np.take_along_axis(order, np.arange(samples) % count, axis=-1).astype(float)


@dataclass(frozen=True, kw_only=True)
class Classes(Configuration):
    """Classification problem: clients hold some of c Gaussian classes, whose means lie in a low-dimensional subspace.

    Parameters
    ----------
    n_clients, n_classes : int
        Numbers of clients n and of all classes c >= 2.
    classes_per_client : int or sequence of n int
        Number of classes c_i of each client, from 1 to c.
    dim : int
        Ambient dimension d.
    rank : int, optional
        Dimension r of the span of the class means; at most, and by default, ``min(d, c - 1)``. A representation of
        k < r columns is under-parameterised.
    separation : float, default 3.0
        Root mean square distance of the class means from their centre. Around its class mean x has standard deviation 1
        in every direction, unless `design` has a covariance.
    test_samples : int, default 100
        Number of held-out samples of each client, at least one of each of its classes, for the metrics `accuracy` and
        `test_loss`.
    design : Gaussian or "gaussian"
        Distribution of x about its class mean: ``lf.Gaussian(covariance=...)`` gives all classes one covariance.

    Raises
    ------
    ValueError
        If a size is out of range, or if `design` is not Gaussian, has a covariance for each client, or has a singular
        covariance. `simulate` also raises if a client has fewer samples than classes.

    Notes
    -----
    ``x = B* v_y + e`` with ``e ~ N(0, Sigma)``, where Sigma is the identity by default. ``B*`` is the Q factor of a
    standard Gaussian (d, r) matrix, and the c rows ``v_j`` are standard Gaussian in R^r, centred and scaled together to
    `separation`. The classes are balanced over clients: in random order, each client takes the classes that the fewest
    clients hold so far. A client's samples cycle through its classes. Given the client, the Bayes classifier is a
    softmax on ``B*'Sigma^{-1}x`` (`ClassTruth.bayes`), so the model is well specified for k >= r. The subspace distance
    is the distance from the span of ``Sigma^{-1}B*``.

    **Deviations**: an addition; the FLUTE paper's section 7.2 splits images by class in a similar way.

    References
    ----------
    FLUTE paper, section 7.2.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.Classes(n_clients=20, n_classes=5, classes_per_client=2, dim=20)
    >>> fedrep = lf.FedRep(rank=4, step_size=0.5, init="random", heads=lf.GradientHeads(steps=10))
    >>> result = lf.simulate(fedrep, problem, data=lf.FixedSamples(40), n_rounds=100)
    >>> bool(result.metrics["accuracy"][0, -1] > 0.9)
    True
    """

    n_clients: int
    n_classes: int
    classes_per_client: int | tuple[int, ...]
    dim: int
    rank: int | None = None
    separation: float = 3.0
    test_samples: int = 100
    design: Design = field(default_factory=Gaussian)

    def __post_init__(self) -> None:
        check_fields(
            self,
            n_clients=check_integer,
            n_classes=partial(check_integer, minimum=2),
            dim=check_integer,
            separation=positive_length,
            design=converted(_checked_design),
        )
        self.design.check_sizes(self.dim, self.n_clients)
        several = is_several(self.classes_per_client)
        counts = checked_classes_per_client(self.classes_per_client, self.n_clients if several else 1, self.n_classes)
        object.__setattr__(self, "classes_per_client", counts if several else counts[0])
        most = min(self.dim, self.n_classes - 1)
        check_fields(
            self,
            rank=optional(partial(check_integer, maximum=most)),
            test_samples=partial(check_integer, minimum=max(counts)),
        )

    @property
    def noise_std(self) -> float:
        """Standard deviation of label noise: 0, because the labels are classes."""
        return 0.0

    @property
    def truth_rank(self) -> None:
        """None: the ground truth has no regressors."""

    @property
    def subspace_rank(self) -> int:
        """Dimension r of the span of the class means."""
        return min(self.dim, self.n_classes - 1) if self.rank is None else self.rank

    def truth(self, seed: Seed, trials: Sequence[int]) -> ClassTruth:
        """Return the mixtures of the given trials, drawn from each trial's ``TRUTH`` stream."""
        r, c, n, trials = self.subspace_rank, self.n_classes, self.n_clients, check_trials(trials)
        B, means = np.empty((len(trials), self.dim, r)), np.empty((len(trials), c, r))
        holds = np.empty((len(trials), n, c), dtype=bool)
        taken = checked_classes_per_client(self.classes_per_client, n, c)
        for t, rng in enumerate(generators(seed, Stream.TRUTH, trials)):
            B[t] = orthonormalize(rng.standard_normal((self.dim, r)))
            v = rng.standard_normal((c, r))
            v -= v.mean(axis=0)
            means[t] = v * (self.separation / np.sqrt(np.vecdot(v, v).mean()))
            holds[t] = dealt_classes(rng, taken, c)
        return ClassTruth(B=B, means=means, holds=holds, design=self.design)

    def new_clients(self, truth: Truth, clients: int, seed: Seed, trials: Sequence[int]) -> Never:
        """Raise ValueError: `new_clients` supports only regression."""
        raise ValueError("new_clients() supports only regression: the risk of a classifier has no closed form")

    def floats_per_trial(self) -> int:
        """Return the number of floats in one trial's ground truth, without held-out samples."""
        return self.subspace_rank * (self.dim + self.n_classes) + self.n_clients * self.n_classes

    def held_out_floats(self, width: int) -> int:
        """Return the number of floats in one trial's held-out samples of `width` numbers, and in their logits."""
        return self.n_clients * self.test_samples * (width + 2 + 2 * self.n_classes)


def _checked_design(value: Design | str) -> Design:
    """Return a Gaussian design with a regular covariance, or raise."""
    design = as_design(value)
    if design.per_client:
        raise ValueError(f"design = {short_repr(design)} must have one covariance for all clients")
    if not is_gaussian(design):
        raise ValueError(f"design = {short_repr(design)} must be lf.Gaussian(...): classes are Gaussian")
    Sigma = np.asarray(1.0 if design.covariance is None else design.covariance)
    if Sigma.ndim == 2 and np.linalg.cond(Sigma) > 1.0 / RANK_TOLERANCE:
        raise ValueError(f"design = {short_repr(design)} must have a regular covariance: here it is singular")
    return design


def checked_classes_per_client(value: object, n_clients: int, most: int) -> tuple[int, ...]:
    """Return each client's number of classes, given one number for all or one each, or raise if above `most`."""
    if not is_several(value):
        return (check_integer("classes_per_client", value, maximum=most),) * n_clients
    if len(value) != n_clients:
        raise ValueError(
            f"classes_per_client has {len(value)} entries, expected an integer, or n_clients = {n_clients} of them"
        )
    return tuple(check_integer(f"classes_per_client[{i}]", one, maximum=most) for i, one in enumerate(value))


def dealt_classes(rng: Generator, taken: Sequence[int], classes: int) -> Mask:
    """Draw the classes of each client, (n, c): in random order, clients take the classes with the fewest holders."""
    holds, holders = np.zeros((len(taken), classes), dtype=bool), np.zeros(classes)
    for client, ties in zip(rng.permutation(len(taken)), rng.random(holds.shape), strict=True):
        chosen = np.lexsort((ties, holders))[: taken[client]]
        holds[client, chosen] = True
        holders[chosen] += 1
    return holds
