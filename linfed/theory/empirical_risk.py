"""Empirical risk as a function of the representation, with exact heads, and its stationary points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_instance, check_numbers, check_shape
from linfed.data.samples import GivenSamples
from linfed.numerics.linalg import orthonormalize
from linfed.theory.fedrep.arguments import check_independent


class AtExactHeads(NamedTuple):
    """Empirical risk with exact heads, its gradient and the predictors, as `at_exact_heads` returns them.

    Parameters
    ----------
    risk : ndarray (trials,)
        Mean empirical risk over the clients.
    gradient : ndarray (trials,)
        Norm of the gradient with respect to an orthonormal basis of the span, relative to the norms of its terms.
    predictors : ndarray (trials, n, d)
        ``Q w_i``.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> found = lf.theory.at_exact_heads(data, problem.truth(0, [0]).B)
    >>> bool(abs(found.risk[0]) < 1e-12)  # no noise, and the true B: 0 up to rounding errors
    True
    """

    risk: Array
    gradient: Array
    predictors: Array


def at_exact_heads(data: GivenSamples, B: npt.ArrayLike) -> AtExactHeads:
    """Return the mean empirical risk with exact heads on the span of B, and its relative gradient.

    Parameters
    ----------
    data : GivenSamples
        Data with at least k samples per client.
    B : array_like (trials, d, k)
        Representations of full rank. Only their span matters. NaN entries, from diverged runs, give NaN.

    Returns
    -------
    AtExactHeads
        risk : ``(1/n) sum_i min_w (1/2m_i) ||X_i Q w - y_i||^2`` with Q an orthonormal basis of the span.
        gradient : ``||sum_i g_i w_i'||_F`` with ``g_i = A_i Q w_i - b_i``, the gradient with respect to Q, divided by
        ``sum_i ||b_i|| ||w_i||``.
        predictors : ``Q w_i``.

    Raises
    ------
    ValueError
        If shapes do not match, if a client has fewer than k samples, or if the columns of B are linearly dependent.

    Notes
    -----
    The fixed points of FedRep with exact heads are the stationary points of this risk. So are the fixed points of rank
    k of FLUTE at ``gamma1 = 2 gamma2``, whose heads are then exact.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
    >>> data = lf.FixedSamples(20).draw(problem)
    >>> B = problem.truth(0, [0]).B
    >>> found = lf.theory.at_exact_heads(data, B)
    >>> found.risk.round(5), found.gradient.round(3), found.predictors.shape
    (array([0.00388]), array([0.003]), (1, 5, 4))
    """
    check_instance("data", data, GivenSamples, "lf.GivenSamples")
    B = check_numbers("B", B, axes=2)
    check_shape("B", B, (data.n_trials or len(B), data.dim, B.shape[-1]), "(trials, d, k)")
    least = int(data.counts.min())
    if least < B.shape[-1]:
        raise ValueError(f"B has {B.shape[-1]} columns, but a client has only {least} samples and no unique head")
    check_independent("B", B[np.isfinite(B).all(axis=(-2, -1))])
    (A, b), Q = data.normal_equations(), orthonormalize(B)[:, None]
    AQ = A @ Q
    W = np.linalg.solve(Q.mT @ AQ, Q.mT @ b[..., None])
    predictors = (Q @ W)[..., 0]
    g = (AQ @ W)[..., 0] - b
    squares = (data.y**2).sum(axis=-1) / data.counts
    size = np.linalg.norm(b, axis=-1) * np.linalg.norm(W[..., 0], axis=-1)
    return AtExactHeads(
        risk=0.5 * (squares - np.vecdot(b, predictors)).mean(axis=-1),
        gradient=np.linalg.norm(g.mT @ W[..., 0], axis=(-2, -1)) / size.sum(axis=-1),
        predictors=predictors,
    )
