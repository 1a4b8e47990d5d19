"""What B of the shortcut variant can learn at population, and which way its first step leads on samples."""

from __future__ import annotations

import numpy as np

from linfed._types import Array
from linfed.errors import check_integer
from linfed.numerics.linalg import orthonormalize, qr_positive, span_distance
from linfed.problems import Truth
from linfed.statistics.findings import Hypothesis
from linfed.theory._laws import check_gaussian, check_isotropic


def top_subspace_distance(truth: Truth, rank: int) -> Array:
    """Return how far span(B*) is from the top-k left singular subspace of ``Phi* = B* W*' + S*'``.

    Parameters
    ----------
    truth : Truth
        Of isotropic x.
    rank : int
        k.

    Returns
    -------
    ndarray (trials,)
        The subspace distance that the ridge leaves at population: its B follows Oja's rule (`ShortcutRound.oja`), which
        converges to that subspace where there is a gap after the k-th singular value.

    Raises
    ------
    ValueError
        For a truth without a shared part, or under a covariance of x that is not a multiple of the identity.

    Notes
    -----
    With ``M = (1/n) sum phi_i phi_i'`` it is 0 iff ``B*_perp'M B* = 0`` and ``lambda_min(B*'M B*) >
    lambda_max(B*_perp'M B*_perp)``. Where ``B*'S* = 0`` these are: the s_i* are uncorrelated with the w_i*, and
    `shortcut_spectrum_hypothesis`. Isotropic s_i* need less: they raise all eigenvalues alike, and any Gamma of full
    rank will do as n -> infinity.

    **Deviations**: an addition; the draft does not say what B converges to.

    References
    ----------
    Shortcut draft, problem (1).
    """
    if truth.B is None or truth.W is None:
        raise ValueError("truth has no shared part B* W*'")
    check_isotropic(truth, "the distance at population requires")
    top = truth.truncated(check_integer("rank", rank)).B
    assert top is not None
    return span_distance(orthonormalize(truth.B), top)


def shortcut_spectrum_hypothesis(truth: Truth) -> Hypothesis:
    """Return the condition under which shortcuts outside of span(B*) do not hide it.

    Parameters
    ----------
    truth : Truth
        With shared part and shortcuts, of isotropic x.

    Returns
    -------
    Hypothesis
        ``lambda_max((1/n) sum s_i* s_i*') <= lambda_min((1/n) sum w_i* w_i*')``, of the trial that is nearest to
        failing by their quotient; strictly for a unique top subspace.

    Raises
    ------
    ValueError
        For a truth without one of the parts, or under a covariance of x that is not a multiple of the identity.

    Notes
    -----
    Together with ``B*'S* = 0`` and ``sum s_i* w_i*' = 0`` it says that span(B*) is the top-k subspace of Phi*
    (`top_subspace_distance`); by itself it implies nothing exact, and without ``B*'S* = 0`` it is not necessary.

    **Deviations**: an addition of this project.

    References
    ----------
    Shortcut draft, problem (1).
    """
    if truth.B is None or truth.W is None or truth.S is None:
        raise ValueError("truth must have a shared part and shortcuts")
    check_isotropic(truth, "the condition requires")
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
    """Return the mean of B's first gradient under (2) to (4) outside of span(B): it drives B away from the truth.

    Parameters
    ----------
    truth : Truth
        Of standard Gaussian x.
    B : ndarray (trials, d, k)
        Orthonormal, independent of the samples.
    n_samples : int
        m, at least k + 2 (below, the gradient's variance is infinite).

    Returns
    -------
    ndarray (trials, d, k)
        ``((k + 1)/m) (I - B B') (1/n) sum phi_i phi_i' B``: minus Oja's gradient, to a factor.

    Raises
    ------
    ValueError
        For fewer samples than k + 2, B of another shape, or another law of x: a covariance, or signs for Gaussians,
        change the mean by its own size.

    Notes
    -----
    From ``w_i = s_i = 0`` client i's gradient is ``(1/m) X_i'Z_i w_i w_i'`` (`ShortcutRound.stall`), with ``w_i =
    B'phi_i + Z_i^+ u_i`` and ``u_i = X_i (I - B B')phi_i + xi_i`` independent of Z_i. Outside of span(B) two products
    have a mean: ``X_perp'P_Z u_i (B'phi_i)'`` gives k, ``X_perp'Z_i B'phi_i (Z_i^+ u_i)'`` gives 1, both times ``(I - B
    B')phi_i (B'phi_i)'/m``. Exact for x ~ N(0, I), any noise, any m >= k + 2, also below d. In later rounds the samples
    are no longer independent of B.

    **Deviations**: an addition.

    References
    ----------
    Shortcut draft, equations (2) to (4).
    """
    check_gaussian(truth, "the mean of the gradient requires")
    trials, d, k = B.shape
    if check_integer("n_samples", n_samples) < k + 2:
        raise ValueError(f"n_samples = {n_samples} must be at least k + 2 = {k + 2}")
    phi = truth.dense()
    if (trials, d) != (len(phi), phi.shape[-1]):
        raise ValueError(f"B has shape {B.shape}, expected ({len(phi)}, {phi.shape[-1]}, k) as the truth")
    moment = phi.mT @ (phi @ B) / phi.shape[1]
    return (k + 1.0) / n_samples * (moment - B @ (B.mT @ moment))
