"""Predictions for B of the shortcut variant: its limit at population, and its first step on samples."""

from __future__ import annotations

import numpy as np

from linfed._types import Array
from linfed.checks import check_array, check_integer
from linfed.numerics.linalg import orthonormalize, qr_positive, span_distance
from linfed.problems import Truth
from linfed.statistics.findings import Hypothesis
from linfed.theory._assumptions import check_gaussian, check_isotropic
from linfed.theory.fedrep.arguments import check_orthonormal


def top_subspace_distance(truth: Truth, rank: int) -> Array:
    """Return the distance of span(B*) from the top-k left singular subspace of ``Phi* = B* W*' + S*'``.

    Parameters
    ----------
    truth : Truth
        Ground truth with isotropic x.
    rank : int
        Rank k of the model.

    Returns
    -------
    ndarray (trials,)
        Subspace distance to which the ridge variant converges at population. Its B follows Oja's rule
        (`ShortcutRound.oja`), which converges to that subspace if there is a gap after the k-th singular value.

    Raises
    ------
    ValueError
        If the ground truth has no shared part, or if the covariance of x is not a multiple of the identity.

    Notes
    -----
    With ``M = (1/n) sum phi_i phi_i'`` the distance is 0 if and only if ``B*_perp'M B* = 0`` and
    ``lambda_min(B*'M B*) > lambda_max(B*_perp'M B*_perp)``. If ``B*'S* = 0``, the first condition means that the s_i*
    are uncorrelated with the w_i*, and the second is `shortcut_spectrum_hypothesis`. Isotropic s_i* require less. They
    increase all eigenvalues equally, and any Gamma of full rank is sufficient as n -> infinity.

    **Deviations**: not in the draft, which does not state the limit of B.

    References
    ----------
    Shortcut draft, problem (1).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=50, dim=8, rank=2, shortcut_norm=0.5)
    >>> truth = problem.truth(0, range(1))
    >>> lf.theory.top_subspace_distance(truth, 2).round(3)
    array([0.084])
    """
    check_isotropic(truth, "the distance at population requires")
    if truth.B is None or truth.W is None:
        raise ValueError("truth must have a shared part B* W*'")
    top = truth.truncated(check_integer("rank", rank)).B
    assert top is not None
    return span_distance(orthonormalize(truth.B), top)


def shortcut_spectrum_hypothesis(truth: Truth) -> Hypothesis:
    """Return the condition under which span(B*) remains the top subspace in the presence of shortcuts outside it.

    Parameters
    ----------
    truth : Truth
        Ground truth with a shared part, shortcuts, and isotropic x.

    Returns
    -------
    Hypothesis
        ``lambda_max((1/n) sum s_i* s_i*') <= lambda_min((1/n) sum w_i* w_i*')``, evaluated at the trial with the
        largest quotient of the two sides. The inequality must be strict for a unique top subspace.

    Raises
    ------
    ValueError
        If one of the parts is missing, or if the covariance of x is not a multiple of the identity.

    Notes
    -----
    Together with ``B*'S* = 0`` and ``sum s_i* w_i*' = 0``, the condition implies that span(B*) is the top-k subspace of
    Phi* (`top_subspace_distance`). By itself it implies nothing exact, and without ``B*'S* = 0`` it is not necessary.

    **Deviations**: not in the draft.

    References
    ----------
    Shortcut draft, problem (1).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=50, dim=8, rank=2, shortcut_norm=0.5)
    >>> truth = problem.truth(0, range(1))
    >>> found = lf.theory.shortcut_spectrum_hypothesis(truth)
    >>> found.holds, round(found.left, 3), round(found.right, 3)
    (True, 0.052, 0.725)
    """
    check_isotropic(truth, "the condition requires")
    if truth.B is None or truth.W is None or truth.S is None:
        raise ValueError("truth must have a shared part and shortcuts")
    heads = truth.W @ qr_positive(truth.B)[1].mT  # B* W*' in orthonormal coordinates
    n = truth.S.shape[1]
    least = np.linalg.svd(heads, compute_uv=False)
    left = np.linalg.norm(truth.S, ord=2, axis=(-2, -1)) ** 2 / n
    right = least[..., -1] ** 2 / n if n >= heads.shape[-1] else np.zeros(len(left))
    nearest = int(np.argmax(left / np.maximum(right, np.finfo(float).tiny)))
    return Hypothesis(
        text="lambda_max(mean s_i* s_i*') <= lambda_min(Gamma)", left=float(left[nearest]), right=float(right[nearest])
    )


def shortcut_repulsion(truth: Truth, B: Array, n_samples: int) -> Array:
    """Return the mean of the first gradient of B outside span(B) in the shortcut variant, which moves B away from B*.

    Parameters
    ----------
    truth : Truth
        Ground truth with standard Gaussian x.
    B : ndarray (trials, d, k)
        Orthonormal initial B, independent of the samples.
    n_samples : int
        Number m >= k + 2 of samples per client (for fewer, the variance of the gradient is infinite).

    Returns
    -------
    ndarray (trials, d, k)
        ``((k + 1)/m) (I - B B') (1/n) sum phi_i phi_i' B``, a negative multiple of Oja's gradient.

    Raises
    ------
    ValueError
        If there are fewer than k + 2 samples, if the shape of B does not match or its columns are not orthonormal, or
        if x is not standard Gaussian. Another covariance, or random signs instead of Gaussians, would change the mean
        by an amount of its own size.

    Notes
    -----
    The gradient is that of the first round of (2) to (4). From ``w_i = s_i = 0``, the gradient of client i is
    ``(1/m) X_i'Z_i w_i w_i'`` (`ShortcutRound.stall`) with ``w_i = B'phi_i + Z_i^+ u_i``. Here
    ``u_i = X_i (I - B B')phi_i + xi_i`` is independent of Z_i. Two products have a nonzero mean outside span(B):
    ``X_perp'P_Z u_i (B'phi_i)'`` gives k and ``X_perp'Z_i B'phi_i (Z_i^+ u_i)'`` gives 1, both times
    ``(I - B B')phi_i (B'phi_i)'/m``. The result is exact for x ~ N(0, I), any noise and any m >= k + 2, even below d.
    In later rounds the samples are no longer independent of B.

    **Deviations**: not in the draft.

    References
    ----------
    Shortcut draft, equations (2) to (4).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedWithShortcuts(n_clients=50, dim=8, rank=2, shortcut_norm=0.5)
    >>> truth = problem.truth(0, range(1))
    >>> gradient = lf.theory.shortcut_repulsion(truth, truth.B, 20)
    >>> gradient.shape
    (1, 8, 2)
    """
    check_gaussian(truth, "the mean of the gradient requires")
    given, B = B, check_array("B", B, [("trials", "d", "k")])
    (trials, d, k), n_samples = B.shape, check_integer("n_samples", n_samples)
    if n_samples < k + 2:
        raise ValueError(f"n_samples = {n_samples} must be at least k + 2 = {k + 2}")
    phi = truth.dense()
    if (trials, d) != (len(phi), phi.shape[-1]):
        raise ValueError(f"B has shape {B.shape}; it must be ({len(phi)}, {phi.shape[-1]}, k) for this truth")
    check_orthonormal("B", B, given)
    moment = phi.mT @ (phi @ B) / phi.shape[1]
    return (k + 1.0) / n_samples * (moment - B @ (B.mT @ moment))
