"""Neural collapse: minimum of a softmax classifier over free features and heads, and smallest NC2 of a client."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed.checks import check_integer, check_number


def simplex_etf(classes: int, dim: int) -> Array:
    """Return a simplex equiangular tight frame, one unit vector per class with the largest possible distances.

    Parameters
    ----------
    classes : int
        Number of classes c >= 2.
    dim : int
        Dimension k >= c - 1.

    Returns
    -------
    ndarray (c, k)
        Unit rows with cosines -1/(c-1) and sum zero, in the first c - 1 coordinates. Every rotation of R^k gives
        another such frame.

    Raises
    ------
    ValueError
        If a value is out of range. There is no such frame in fewer than c - 1 dimensions.

    Notes
    -----
    **Deviations**: in the source, the unit vectors are columns and k >= c is required.

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
        raise ValueError(f"dim = {dim} must be at least classes - 1 = {classes - 1}, the dimension of a simplex")
    # Helmert's contrasts: the columns are an orthonormal basis of the complement of (1, .., 1).
    column = np.arange(1.0, classes)
    contrasts = np.triu(np.ones((classes, classes - 1)))
    contrasts[np.arange(1, classes), np.arange(classes - 1)] = -column
    frame = np.zeros((classes, dim))
    frame[:, : classes - 1] = contrasts * np.sqrt(classes / (classes - 1.0) / (column * (column + 1.0)))
    return frame


@dataclass(frozen=True, kw_only=True)
class CollapsedMinimum:
    """Minimum of cross-entropy over free features and heads, as computed by `collapsed_minimum`.

    Parameters
    ----------
    loss : float
        Value with both penalties; ``log c`` if all heads and features are 0.
    logit_gap : float
        Logit of the correct class minus the logit of any other class; 0 if all heads and features are 0.
    feature_length, head_length : float
        Lengths of the features and of the heads. Both form simplices, and each head is parallel to the features of its
        class.

    Examples
    --------
    >>> import linfed as lf
    >>> found = lf.theory.collapsed_minimum(4, feature_penalty=0.01, head_penalty=0.01)
    >>> round(found.feature_length, 3), round(found.head_length, 3)
    (2.62, 1.31)
    """

    loss: float
    logit_gap: float
    feature_length: float
    head_length: float


def collapsed_minimum(classes: int, *, feature_penalty: float, head_penalty: float) -> CollapsedMinimum:
    """Return the minimum of regularised cross-entropy over free features and heads (neural collapse), in closed form.

    Parameters
    ----------
    classes : int
        Number of classes c_i >= 2 of the client, with equal numbers of samples.
    feature_penalty : float
        Penalty lambda_1 > 0 on features.
    head_penalty : float
        Penalty lambda_2 > 0 on heads.

    Returns
    -------
    CollapsedMinimum
        Minimum of ``mean_j [CE(H z_j + b, y_j) + lambda_1 ||z_j||^2] + lambda_2 ||H||_F^2`` over features z_j, heads H
        and biases b, in k >= c_i - 1 dimensions.

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

    For ``4 c lambda_1 lambda_2 >= 1`` all quantities are 0, with loss log c.

    *Proof.* By Jensen's inequality the features of a class are equal, Z (c, k). The penalty
    ``lambda_1 ||Z||^2/c + lambda_2 ||H||^2`` is at least ``t ||M||_*``, the nuclear norm of the logits M = HZ'. Factors
    in k >= rank M dimensions attain this value. The remaining problem is convex in (M, b). Its value does not increase
    if (M, b) is averaged over all permutations of the classes, or if the column means, which do not affect
    cross-entropy, are removed. Hence ``M = a (I - 11'/c)``, of rank c - 1, and b = 0. The function
    ``log(1 + (c-1) exp(-a)) + t (c-1) a`` is convex in a, with its minimum at the gap. Cross-entropy is strictly convex
    in centred logits, and row or column means increase the nuclear norm, so M is unique. All minima are these
    simplices, with equal biases.

    *Classes that the client does not hold.* A softmax over additional classes increases the loss, by their share of its
    denominator. With zero heads for these classes, and biases tending to minus infinity, the loss falls to the value
    above. No b attains this infimum, so local collapse is only approached. Without biases the loss stays larger, and
    with weak penalties the heads of the other classes do not vanish.

    **Deviations**: derived here for k >= c_i - 1; the source requires at least as many dimensions as classes.

    The source derives Observation B.2, on cross-entropy, from Theorem 3.2 of Tirer and Bruna 2022, which is on the
    regularised squared loss. For cross-entropy it follows from Theorem 3.1 of Zhu et al. 2021 and from the proof above.

    The source derives Observation B.3 from the same theorem, which is on one classifier with all its classes. The
    observation states that clients with some of the classes and shared features converge to cosines -1/(c-1), with zero
    heads for the other classes. The objective (54) excludes this. The derivatives of a softmax add up to zero over the
    classes, so ``lambda_2 1'H`` is zero where the gradient with respect to H is zero. The heads of all classes
    therefore add up to zero for any features. As the biases of the other classes tend to minus infinity, their heads
    vanish, and the two heads of a client with two classes become opposite. Without biases they do not: their cosine is
    -0.72 to -0.86 with a third class, and penalties from 1e-5 to 0.05.

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
    """Return the smallest possible Global NC2, which is also the smallest penalty NC, of a client's heads.

    Parameters
    ----------
    classes : int
        Number c >= 2 of all classes.
    held : int
        Number c_i of classes of the client, from 1 to c.
    dim : int
        Dimension k >= 1 of the features.

    Returns
    -------
    float
        Smallest value; 0 for c_i = c and k >= c - 1.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The target T of the client has the eigenvalues ``1/sqrt(c-1)``, c_i - 1 times, and ``(1 - c_i/c)/sqrt(c-1)``. With
    T_k its k largest eigenvalues, the smallest value is ``sqrt((1 - ||T_k||)^2 + ||T||^2 - ||T_k||^2)``, the distance
    to the nearest positive semi-definite matrix of rank k and norm 1. For k >= c_i it is ``1 - ||T||``. It is attained
    by heads with cosines -1/(c-1) for the classes of the client and zeros for all others.

    **Deviations**: derived here; the source does not mention that the metric has a lower bound.

    References
    ----------
    Liu, Shen and Yang 2024 (FLUTE), (49) and appendix C.2.

    Examples
    --------
    >>> import linfed as lf
    >>> [round(lf.theory.least_global_nc2(10, held, 64), 3) for held in (2, 5, 10)]
    [0.573, 0.313, 0.0]
    """
    c, dim = check_integer("classes", classes, minimum=2), check_integer("dim", dim)
    per_client = check_integer("held", held, maximum=c)
    last = (1.0 - per_client / c) ** 2
    whole = (per_client - 1 + last) / (c - 1)
    kept = (min(dim, per_client - 1) + (last if dim >= per_client else 0.0)) / (c - 1)
    return math.hypot(1.0 - math.sqrt(kept), math.sqrt(whole - kept))
