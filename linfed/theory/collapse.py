"""Neural collapse: the minimum of a softmax classifier over free features and heads, and the least NC2 of a client."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed.errors import check_integer, check_number


def simplex_etf(classes: int, dim: int) -> Array:
    """Return a simplex equiangular tight frame: unit vectors, one for each class, as far apart as they can be.

    Parameters
    ----------
    classes : int
        c >= 2.
    dim : int
        k >= c - 1.

    Returns
    -------
    ndarray (c, k)
        Unit rows with cosines -1/(c-1), whose sum is zero, in the first c - 1 coordinates; any rotation of R^k gives
        another one.

    Raises
    ------
    ValueError
        For values out of range: in fewer than c - 1 dimensions there is none.

    Notes
    -----
    **Deviations**: the source has unit vectors as columns, and asks for k >= c.

    References
    ----------
    Liu, Shen and Yang 2024 (FLUTE), Definition B.1.

    Examples
    --------
    >>> import linfed as lf
    >>> H = lf.theory.simplex_etf(3, 4)
    >>> (H @ H.T).round(12)
    array([[ 1. , -0.5, -0.5],
           [-0.5,  1. , -0.5],
           [-0.5, -0.5,  1. ]])
    """
    classes, dim = check_integer("classes", classes, minimum=2), check_integer("dim", dim)
    if dim < classes - 1:
        raise ValueError(f"dim = {dim} must be at least classes - 1 = {classes - 1}, a simplex's dimension")
    # Helmert's contrasts: the columns are an orthonormal basis of what is orthogonal to (1, .., 1).
    column = np.arange(1.0, classes)
    contrasts = np.triu(np.ones((classes, classes - 1)))
    contrasts[np.arange(1, classes), np.arange(classes - 1)] = -column
    frame = np.zeros((classes, dim))
    frame[:, : classes - 1] = contrasts * np.sqrt(classes / (classes - 1.0) / (column * (column + 1.0)))
    return frame


@dataclass(frozen=True, kw_only=True)
class CollapsedMinimum:
    """What `collapsed_minimum` says of the minimum of cross-entropy over free features and heads.

    Parameters
    ----------
    loss : float
        Its value, with both penalties; ``log c`` where nothing is learned.
    logit_gap : float
        A sample's logit of its own class, less that of any other class; 0 where nothing is learned.
    feature_length, head_length : float
        Lengths of the features and of the heads; both are simplices, each head along its class's features.
    """

    loss: float
    logit_gap: float
    feature_length: float
    head_length: float


def collapsed_minimum(classes: int, *, feature_penalty: float, head_penalty: float) -> CollapsedMinimum:
    """Return the minimum of regularised cross-entropy over free features: neural collapse, in closed form.

    Parameters
    ----------
    classes : int
        c_i >= 2, the classes that the client holds, all with the same number of samples.
    feature_penalty : float
        lambda_1 > 0.
    head_penalty : float
        lambda_2 > 0.

    Returns
    -------
    CollapsedMinimum
        Of ``mean_j [CE(H z_j + b, y_j) + lambda_1 ||z_j||^2] + lambda_2 ||H||_F^2`` over features z_j, heads H and
        biases b, in k >= c_i - 1 dimensions.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    With ``c = c_i`` and ``t = 2 sqrt(lambda_1 lambda_2 / c)``, for ``c t < 1``::

        logit_gap = log((1 - (c-1) t) / t)           every wrong class has the probability t
        loss      = -log(1 - (c-1) t) + (c-1) t logit_gap
        lambda_1 feature_length^2 = c lambda_2 head_length^2 = t logit_gap (c-1)/2

    and all is 0, with the loss log c, for ``4 c lambda_1 lambda_2 >= 1``. Proof: by Jensen's inequality the features of
    a class are equal, Z (c, k). ``lambda_1 ||Z||^2/c + lambda_2 ||H||^2`` is at least ``t ||M||_*``, a nuclear norm, of
    the logits M = HZ', and factors in k >= rank M dimensions reach that. What is left is convex in (M, b), and so no
    larger at the mean over all renamings of the classes, nor without the columns' means, which change no cross-entropy:
    ``M = a (I - 11'/c)``, of rank c - 1, and b = 0. Convex in a, ``log(1 + (c-1) exp(-a)) + t (c-1) a`` is least at the
    gap. As cross-entropy is strictly convex in centred logits, and means of rows or columns add to the nuclear norm,
    there is no other M: all minima are these simplices, and their biases are all equal.

    *Classes that the client does not hold.* A softmax over them too makes every loss larger, by their share of its
    denominator. With their heads at zero, as their biases fall to minus infinity, it falls to the loss above: an
    infimum, which no b attains, so that local collapse is approached. Without biases the loss stays larger, and under
    weak penalties the other classes' heads do not vanish.

    **Deviations**: derived here, for k >= c_i - 1, where the source asks for at least as many dimensions as classes.

    The source takes Observation B.2, of cross-entropy, from Theorem 3.2 of Tirer and Bruna 2022, which is on the
    regularised squared loss; of cross-entropy it is Theorem 3.1 of Zhu et al. 2021, and what is above.

    It takes Observation B.3, that clients with some of the classes and shared features end at cosines -1/(c-1), from
    that theorem, which is on one classifier with all its classes. The objective (54) rules it out: a softmax's slopes
    add up to zero over the classes, so that where the gradient by H is zero, ``lambda_2 1'H`` is. Heads add up to zero,
    whatever the features, and the two heads of a client with two classes become opposite, as others vanish. It takes
    the penalty NC to have them otherwise.

    References
    ----------
    Liu, Shen and Yang 2024 (FLUTE), (54), Observations B.2 and B.3; Zhu et al. 2021, "A geometric analysis of neural
    collapse with unconstrained features", Theorem 3.1.

    Examples
    --------
    >>> import linfed as lf
    >>> found = lf.theory.collapsed_minimum(4, feature_penalty=0.01, head_penalty=0.01)
    >>> round(found.loss, 6), round(found.logit_gap, 6)
    (0.167701, 4.574711)
    """
    c = check_integer("classes", classes, minimum=2)
    features = check_number("feature_penalty", feature_penalty, positive=True)
    heads = check_number("head_penalty", head_penalty, positive=True)
    t = 2.0 * math.sqrt(features) * math.sqrt(heads) / math.sqrt(c)
    if c * t >= 1:
        return CollapsedMinimum(loss=math.log(c), logit_gap=0.0, feature_length=0.0, head_length=0.0)
    gap = math.log1p(-(c - 1) * t) - math.log(t)
    wrong = (c - 1) * t
    return CollapsedMinimum(
        loss=-math.log1p(-wrong) + wrong * gap,
        logit_gap=gap,
        feature_length=math.sqrt(0.5 * wrong * gap / features),
        head_length=math.sqrt(0.5 * wrong * gap / (c * heads)),
    )


def least_global_nc2(classes: int, held: int, dim: int) -> float:
    """Return the least Global NC2, and penalty NC, that the heads of a client can have.

    Parameters
    ----------
    classes : int
        c >= 2, all classes.
    held : int
        c_i, the client's, from 1 to c.
    dim : int
        k >= 1, the dimension of the features.

    Returns
    -------
    float
        0 for c_i = c and k >= c - 1.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The client's target T has the eigenvalues ``1/sqrt(c-1)``, c_i - 1 times, and ``(1 - c_i/c)/sqrt(c-1)``. With T_k
    its k largest the least value is ``sqrt((1 - ||T_k||)^2 + ||T||^2 - ||T_k||^2)``: the distance to the nearest
    positive semi-definite matrix of rank k and length 1. For k >= c_i it is ``1 - ||T||``, reached by heads of the
    client's classes with cosines -1/(c-1) and zeros for all others.

    **Deviations**: derived here; the source does not say that the metric has a floor.

    References
    ----------
    Liu, Shen and Yang 2024 (FLUTE), (49) and appendix C.2.
    """
    c, dim = check_integer("classes", classes, minimum=2), check_integer("dim", dim)
    own = check_integer("held", held, maximum=c)
    last = (1.0 - own / c) ** 2
    whole = (own - 1 + last) / (c - 1)
    kept = (min(dim, own - 1) + (last if dim >= own else 0.0)) / (c - 1)
    return math.hypot(1.0 - math.sqrt(kept), math.sqrt(whole - kept))
