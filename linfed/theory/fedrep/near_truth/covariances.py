"""FedRep under covariances of x, common or per client: its mean gradient, where it is 0, and the local rate."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import (
    check_array,
    check_bool,
    check_integer,
    check_noise_std,
    check_shape,
    short_repr,
)
from linfed.numerics.linalg import distance_from, orthonormalize, qr_positive
from linfed.problems import Truth
from linfed.problems.designs import Design, is_gaussian
from linfed.theory._assumptions import check_truth
from linfed.theory.fedrep.arguments import check_independent

SMALLEST = 1e-12
"""Ratio of the smallest to the largest eigenvalue of the heads' Gram matrix below which the smallest counts as 0."""

SHARES = (0.1, 0.3, 0.6, 1.0)
"""Shares of the noise variance at which a stationary subspace is found, one from the other."""


class Options(TypedDict):
    """Sizes and options of FedRep that change its mean gradient."""

    n_samples: int
    disjoint_samples: bool
    whiten: Literal["own"] | Design | None


def mean_gradient(
    B: npt.ArrayLike,
    truth: Truth,
    *,
    n_samples: int,
    disjoint_samples: bool = False,
    whiten: Literal["own"] | Design | None = None,
) -> Array:
    r"""Return the mean of FedRep's gradient on B over fresh Gaussian samples, with exact heads.

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)
        Representation of full column rank, not necessarily orthonormal.
    truth : Truth
        Ground truth of any form, with one level of label noise for all clients, and with Gaussian x of any covariances,
        common or per client.
    n_samples : int
        Number m of samples per client, at least k + 2. With `disjoint_samples`, heads and gradient use
        ``m_1 = floor(m/2)`` samples each, which must be at least k + 2.
    disjoint_samples, whiten
        As in `FedRep`; ``"pooled"`` is not supported. In the limit of many clients it is a design with the mean
        covariance.

    Returns
    -------
    ndarray (trials, d, k)
        ``E (1/n) sum_i (1/m) X_i'(Z_i w_i - y_i) w_i'``, whitened as in `FedRep`.

    Raises
    ------
    ValueError
        If x is not Gaussian, sizes do not match, the columns of B are linearly dependent, the clients' noise levels
        differ, or there are too few samples: for ``"own"`` also below d + 2.

    Notes
    -----
    With ``a_i = (B'Sigma_i B)^{-1} B'Sigma_i phi_i``, ``e_i = phi_i - B a_i``, ``tau_i^2 = e_i'Sigma_i e_i + sigma^2``
    and ``C_i = B'Sigma_i B``, the mean over clients of

    .. math::

        -\bigl(1 - \tfrac{k}{m}\bigr) \Sigma_i e_i a_i^\top \quad \text{(same batch)}, \qquad
        -\Sigma_i e_i a_i^\top + \frac{\tau_i^2}{m_1 - k - 1} \Sigma_i B C_i^{-1} \quad \text{(split)}

    On the same batch this is 1 - k/m times the gradient of the population risk with the best heads. A matrix that does
    not depend on the samples multiplies both from the left. With the client's own samples the factors ``Sigma_i`` and
    1 - k/m are absent, and on the same batch ``(e_i'Sigma_i e_i)/(m-k-1) B C_i^{-1}`` is added. At B* of a
    well-specified truth only the second term of the split batch remains. Without whitening it leaves the span
    of B* unless the covariances keep the span.

    **Deviations**: derived for this project; docs/laws/anisotropy.md.

    Examples
    --------
    >>> import linfed as lf, numpy as np
    >>> design = lf.Gaussian(covariance=np.eye(6) + 0.5)
    >>> problem = lf.SharedRepresentation(n_clients=30, dim=6, rank=2, noise_std=1.0, design=design)
    >>> truth = problem.truth(seed=0, trials=[0])
    >>> same = lf.theory.mean_gradient(truth.B, truth, n_samples=20)
    >>> split = lf.theory.mean_gradient(truth.B, truth, n_samples=20, disjoint_samples=True)
    >>> bool(abs(same).max() < 1e-12 < 0.01 < abs(split - truth.B @ (truth.B.mT @ split)).max())
    True
    """
    check_truth(truth)
    Phi = truth.dense()
    trials, _, d = Phi.shape
    covariances = _dense(truth.design, d)
    basis = check_array("B", B, [("d", "k"), ("trials", "d", "k")])
    check_shape("B", basis, (*((trials,) if basis.ndim == 3 else ()), d, basis.shape[-1]), f"of d = {d} as truth has")
    check_independent("B", basis)
    k, sigma2 = basis.shape[-1], check_noise_std(truth.noise_std) ** 2
    m = _heads_samples(truth, (d, k), {"n_samples": n_samples, "disjoint_samples": disjoint_samples, "whiten": whiten})
    each = (basis if basis.ndim == 3 else basis[None])[:, None]  # (trials, 1, d, k)
    shaped = covariances @ each
    C = each.mT @ shaped
    a = np.linalg.solve(C, shaped.mT @ Phi[..., None])
    e = Phi[..., None] - each @ a
    missed = (e.mT @ (covariances @ e))[..., 0, 0]
    heads = np.linalg.inv(C)
    signal = e @ a.mT
    if whiten == "own":
        noise = missed + (sigma2 if disjoint_samples else 0.0)
        return np.asarray((-signal + (noise / (m - k - 1))[..., None, None] * (each @ heads)).mean(axis=1))
    if disjoint_samples:
        out = covariances @ -signal + ((missed + sigma2) / (m - k - 1))[..., None, None] * (shaped @ heads)
    else:
        out = -(1.0 - k / m) * (covariances @ signal)
    return np.asarray((_inverse(whiten, d) @ out).mean(axis=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class NearTruthDrift:
    """FedRep near B* under covariances of x, as predicted by `near_truth_drift`.

    Parameters
    ----------
    rates : ndarray (trials, k (d - k))
        Real parts of the eigenvalues of the mean step's derivative at B*, ascending: with a small step eta, tangents
        shrink by the factors ``1 - eta rates`` in a round. The noise of a split batch can make some negative.
    bias : ndarray (trials, d, k)
        Part of the mean gradient at B* outside of the span of B*.
    stationary : ndarray (trials, d, k)
        Orthonormal basis of the subspace near B* that the mean gradient does not change: where runs with small steps
        end. It is B* without a bias, and NaN where no such subspace was found.
    distance : ndarray (trials,)
        Distance of `stationary` from B*.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=30, dim=6, rank=2)
    >>> found = lf.theory.near_truth_drift(problem.truth(0, [0]), n_samples=20)
    >>> found.rates.shape, bool(found.distance[0] < 1e-12)
    ((1, 8), True)
    """

    rates: Array
    bias: Array
    stationary: Array
    distance: Array


def near_truth_drift(
    truth: Truth, *, n_samples: int, disjoint_samples: bool = False, whiten: Literal["own"] | Design | None = None
) -> NearTruthDrift:
    r"""Predict the rate of FedRep near B* and the point at which small steps end, for Gaussian x of any covariances.

    Parameters
    ----------
    truth : Truth
        Well-specified ground truth ``B* W*'`` whose heads span R^k, with the label noise and Gaussian x.
    n_samples, disjoint_samples, whiten
        As in `mean_gradient`.

    Returns
    -------
    NearTruthDrift

    Raises
    ------
    ValueError
        If the ground truth has a part outside of B*, or its heads do not span R^k, and as in `mean_gradient`,
        which also defines m_1.

    Warns
    -----
    RuntimeWarning
        If no stationary subspace is found near B* (the bias is too large), or the one that is found is unstable.

    Notes
    -----
    With tangents D, ``B = B* + B_perp D``, a step is ``D <- D - eta (J D + b)`` to first order. On the same batch b = 0
    and

    .. math::

        J D = \bigl(1 - \tfrac{k}{m}\bigr) \operatorname{mean}_i S_i D w_i w_i^\top, \qquad
        S_i = B_\perp^\top \Sigma_i B_\perp - A_i B^{\star\top} \Sigma_i B_\perp, \quad
        A_i = B_\perp^\top \Sigma_i B^\star C_i^{-1}

    so S_i is the Schur complement: the covariance of x outside of B* given x inside. On a split batch 1 - k/m is
    absent, ``b = s mean A_i`` with ``s = sigma^2/(m_1-k-1)``, and ``s (mean_i (S_i D C_i^{-1} - A_i D'A_i) - D)`` is
    added to J D. With whitening by the client's samples, or by the true covariances on a split batch, J D is
    ``D mean w_i w_i'`` and b = 0.

    `stationary` is a root of the exact mean gradient, not of its linearisation. The floor of a run with finite steps is
    not included.

    **Deviations**: derived for this project; docs/laws/anisotropy.md.

    Examples
    --------
    >>> import linfed as lf, numpy as np
    >>> design = lf.Gaussian(covariance=np.eye(6) + 0.5)
    >>> problem = lf.SharedRepresentation(n_clients=30, dim=6, rank=2, noise_std=0.3, design=design)
    >>> truth = problem.truth(seed=0, trials=[0])
    >>> found = lf.theory.near_truth_drift(truth, n_samples=20, disjoint_samples=True)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.05, disjoint_samples=True, init=lf.TrueSubspace())
    >>> result = lf.simulate(algorithm, lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=0.3, design=design),
    ...                      data=lf.FreshSamples(20), n_rounds=400)
    >>> bool(result.metrics["subspace_distance"][0, -1] > 0.5 * found.distance[0] > 0)
    True
    """
    check_truth(truth)
    if truth.S is not None or truth.B is None or truth.W is None:
        raise ValueError("truth must have the form B* w_i*: other ground truths have no tangents at B*")
    B_star, R = qr_positive(truth.B)
    W = truth.W @ R.mT
    trials, d, k = B_star.shape
    options: Options = {"n_samples": n_samples, "disjoint_samples": disjoint_samples, "whiten": whiten}
    m = _heads_samples(truth, (d, k), options)
    perp = np.linalg.svd(B_star)[0][..., k:]
    J = _derivative(truth, (B_star, perp, W), m, options)
    values = np.sort(np.linalg.eigvals(J).real, axis=-1)
    gram = np.linalg.eigvalsh(W.mT @ W)
    singular = np.flatnonzero(gram[:, 0] <= SMALLEST * gram[:, -1])
    if singular.size:
        raise ValueError(f"truth: the heads of trial {singular[0]} must span R^k, k = {k}")
    bias = perp @ (perp.mT @ mean_gradient(B_star, truth, **options))
    stationary = B_star.copy()
    for trial in range(trials):
        if np.abs(bias[trial]).max() > 1e-13 * np.abs(J[trial]).max(initial=0.0):
            one = replace(truth, B=truth.B[trial, None], W=truth.W[trial, None])
            start = np.linalg.solve(J[trial], -(perp[trial].T @ bias[trial]).ravel())
            stationary[trial] = _stationary(one, B_star[trial], perp[trial], start, options)
    known = np.asarray(np.isfinite(stationary).all(axis=(-2, -1)))
    distance = np.where(known, distance_from(B_star, np.where(known[:, None, None], stationary, B_star)), np.nan)
    return NearTruthDrift(rates=values, bias=bias, stationary=stationary, distance=distance)


def _derivative(truth: Truth, parts: tuple[Array, Array, Array], m: int, options: Options) -> Array:
    """Return J, (trials, k (d - k), k (d - k)), for tangents flattened row by row."""
    B_star, complement, heads = parts
    (trials, d, k), n = B_star.shape, heads.shape[1]
    gram = heads[..., None] * heads[..., None, :]
    if options["whiten"] == "own":
        J = np.einsum("ab,tcd->tacbd", np.eye(d - k), gram.mean(axis=1))
        return np.asarray(J.reshape(trials, k * (d - k), k * (d - k)))
    B, perp = B_star[:, None], complement[:, None]
    covariances, weights = _dense(truth.design, d), _inverse(options["whiten"], d)
    C = np.linalg.inv(B.mT @ covariances @ B)
    A = covariances @ B @ C
    S = perp.mT @ (weights @ (covariances - A @ (B.mT @ covariances))) @ perp
    share = 1.0 if options["disjoint_samples"] else 1.0 - k / m
    J = share * np.einsum("tnab,tncd->tacbd", np.broadcast_to(S, (trials, n, *S.shape[2:])), gram) / n
    if options["disjoint_samples"]:
        shape = (trials, max(weights.shape[0], A.shape[1]))
        S, A, C = (np.broadcast_to(part, (*shape, *part.shape[2:])) for part in (S, A, C))
        added = np.einsum("tnab,tncd->tacbd", S, C)
        added -= np.einsum("tnae,tnbc->tacbe", perp.mT @ (weights @ A), perp.mT @ A)
        inside = (B.mT @ (weights @ A)).mean(axis=1)
        added = added / shape[1] - np.einsum("ab,tdc->tacbd", np.eye(d - k), inside)
        J = J + check_noise_std(truth.noise_std) ** 2 / (m - k - 1) * added
    return np.asarray(J.reshape(trials, k * (d - k), k * (d - k)))


def _stationary(truth: Truth, B_star: Array, perp: Array, start: Array, options: Options) -> Array:
    """Return an orthonormal basis of the subspace near B* that contains its own mean gradient, or NaN."""
    from scipy.optimize import root

    def drift(D: Array, part: Truth) -> Array:
        tangents = D.reshape(perp.shape[1], -1)
        G = mean_gradient(B_star + perp @ tangents, part, **options)[0]
        return np.asarray((perp.T @ G - tangents @ (B_star.T @ G)).ravel())

    found = np.zeros_like(start)
    for share in SHARES:  # of the noise variance, to which the bias is proportional
        part = replace(truth, noise_std=truth.noise_std * np.sqrt(share))
        solved = root(drift, found if found.any() else share * start, args=(part,), tol=1e-12)
        if not solved.success and np.abs(solved.fun).max() > 1e-9 * np.abs(drift(np.zeros_like(start), part)).max():
            text = "no stationary subspace was found near B*: the bias is too large"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
            return np.full_like(B_star, np.nan)
        found = solved.x
    steps = 1e-5 * np.eye(len(found)) * max(1e-3, float(np.abs(found).max()))
    slopes = [(drift(found + step, truth) - drift(found - step, truth)) / (2.0 * step.max()) for step in steps]
    if np.linalg.eigvals(np.array(slopes)).real.min() <= 0:
        warnings.warn("the stationary subspace near B* is unstable", RuntimeWarning, stacklevel=3)
    return orthonormalize(B_star + perp @ found.reshape(perp.shape[1], -1))


def _dense(design: Design, d: int) -> Array:
    """Return the covariances of x, (n or 1, d, d), or raise if one is singular."""
    L = design.root_apply(np.eye(d)).mT
    covariances = (L if L.ndim == 3 else L[None]) @ (L if L.ndim == 3 else L[None]).mT
    values = np.linalg.eigvalsh(covariances)
    if np.any(values[:, 0] <= d * np.finfo(float).eps * values[:, -1]):
        raise ValueError(f"design = {short_repr(design)} must have a regular covariance")
    return np.asarray(covariances)


def _inverse(whiten: str | Design | None, d: int) -> Array:
    """Return the inverse covariances of a design, (n or 1, d, d); without a design the identity."""
    return np.asarray(np.linalg.inv(_dense(whiten, d)) if isinstance(whiten, Design) else np.eye(d)[None])


def _heads_samples(truth: Truth, sizes: tuple[int, int], options: Options) -> int:
    """Return the number of samples of the heads, for sizes (d, k), after checks."""
    d, k = sizes
    if not is_gaussian(replace(truth.design, covariance=None)):
        raise ValueError(f"truth has design = {short_repr(truth.design)}; the mean gradient requires Gaussian x")
    whiten = options["whiten"]
    if whiten is not None and not isinstance(whiten, Design) and not (isinstance(whiten, str) and whiten == "own"):
        raise ValueError(f"whiten = {short_repr(whiten)} must be None, 'own' or a design with the covariance")
    parts = 1 + check_bool("disjoint_samples", options["disjoint_samples"])
    least = parts * (max(k, d) if whiten == "own" else k) + 2 * parts
    m = check_integer("n_samples", options["n_samples"])
    if m < least:
        raise ValueError(f"n_samples = {m} must be at least {least} for {k} columns of B and d = {d}")
    return m // parts
