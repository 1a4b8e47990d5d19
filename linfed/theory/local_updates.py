"""How fast FedAvg's local updates, and the own step of MAML and ANIL, turn B towards B* at population losses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_integer, check_number, check_shape, short_repr
from linfed.theory.fedrep.arguments import check_orthonormal, trial_count


def fedavg_contraction(W: npt.ArrayLike, *, step_size: float, local_steps: int) -> Array:
    r"""Return the matrix that a round of two-layer FedAvg applies to the part of B outside the true subspace.

    Parameters
    ----------
    W : array_like (n, k) or (trials, n, k)
        Heads ``w_i*`` of the ground truth ``phi_i = B* w_i*``, with B* orthonormal.
    step_size : float
        Local step size eta > 0.
    local_steps : int
        Number K of full-gradient steps in a round.

    Returns
    -------
    ndarray (k, k) or (trials, k, k)
        Contraction C in the coordinates of B*; `contracted_distance` applies it. The distance falls asymptotically by
        its spectral radius per round, exactly for heads of mean 0, and otherwise to leading order in ``step_size^2``.
        An eigenvalue of 1 belongs to a direction of B* that is not learned.

    Raises
    ------
    ValueError
        If shapes do not match or a value is out of range.

    Notes
    -----
    The losses are ``(1/2) ||B w - phi_i||^2``, all clients take part, and ``eta B'B = I``. Each local step multiplies
    the part ``E = (I - B* B*') B`` of B by ``I - eta w w'``, at the head w before the step. This is exact for every B.
    A round multiplies the server's E by the mean over clients of the K products.

    If B is near B*, ``B = B* O eta^{-1/2}`` with O orthogonal. The first local step takes the head from the server's
    head to ``eta B'phi_i = eta^{1/2} O'w_i*``, where the gradient vanishes, and the head stays there. This is exact for
    heads of mean 0; otherwise B moves, too, and the formula holds to leading order in eta^2. The server's head
    is the mean of these heads. In the coordinates of B*, this gives

    .. math::

        C = (I - \eta^2 \bar w \bar w^\top)\, \frac1n \sum_i (I - \eta^2 w_i^* w_i^{*\top})^{K-1}, \qquad
            \bar w = \frac1n \sum_i w_i^*

    For small eta, ``I - C`` is ``eta^2 ((K - 1) Gamma + wbar wbar')`` with ``Gamma = (1/n) sum_i w_i* w_i*'``. So K = 1
    learns one direction, and so do clients with equal heads; K > 1 learns at the rate of the smallest eigenvalue of
    Gamma. To first order in eta^2, and also far from B*, FedAvg with heads of mean 0 follows the course of `FedRep`
    with exact heads and step size ``(K - 1) eta^2``. The scale ``eta B'B = I`` attracts: for K = 2, heads of mean 0 and
    ``B'B = b^2 I``, the scale b changes by a positive multiple of ``1 - eta b^2``.

    **Deviations**: the source proves that the distance falls exponentially; this rate is derived here.

    References
    ----------
    Collins, Hassani, Mokhtari and Shakkottai 2022, "FedAvg with fine tuning: local updates lead to representation
    learning".

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> W = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> lf.theory.fedavg_contraction(W, step_size=0.1, local_steps=3).round(6)
    array([[0.9802, 0.    ],
           [0.    , 0.9802]])
    """
    heads = _heads(W)
    eta = check_number("step_size", step_size, positive=True)
    repeats = check_integer("local_steps", local_steps) - 1
    length = np.vecdot(heads, heads)
    # (I - eta^2 w w')^j = I - (1 - (1 - eta^2 |w|^2)^j) w w' / |w|^2
    lost = 1.0 - (1.0 - eta**2 * length) ** repeats
    share = np.divide(lost, length, out=np.zeros_like(length), where=length > 0)
    identity, mean = np.eye(heads.shape[-1]), heads.mean(axis=-2)
    inner = identity - (share[..., None] * heads).mT @ heads / heads.shape[-2]
    return np.asarray((identity - eta**2 * mean[..., :, None] * mean[..., None, :]) @ inner)


def meta_contraction(W: npt.ArrayLike, *, step_size: float, adaptation_step_size: float) -> Array:
    r"""Return the matrix that a round of ANIL or MAML applies to the part of B outside the true subspace.

    Parameters
    ----------
    W : array_like (n, k) or (trials, n, k)
        Heads ``w_i*`` of the ground truth, as in `fedavg_contraction`.
    step_size : float
        Step size beta > 0 of the server.
    adaptation_step_size : float
        Step size alpha > 0 of the clients' own step.

    Returns
    -------
    ndarray (k, k) or (trials, k, k)
        ``C = I - alpha beta Gamma`` with ``Gamma = (1/n) sum_i w_i* w_i*'``, for `contracted_distance`.

    Raises
    ------
    ValueError
        If shapes do not match or a value is out of range.

    Notes
    -----
    The losses are those of the population, all clients participate, ``alpha B'B = I``, and the server's head is 0. The
    own step then gives each client the head ``alpha B'phi_i``. If B is near B*, the gradient on this head is 0.
    Therefore the server's head stays at 0, and the own step of MAML does not change B. The derivatives of the own step
    multiply a gradient of 0. So the four variants (ANIL and MAML, each with and without second derivatives) have the
    same contraction: first-order ANIL multiplies the part outside by ``I - beta (1/n) sum_i w_i w_i'`` at the adapted
    heads.

    MAML needs a small mean of the heads, or a B near B*: otherwise its head grows, and it may not converge.

    **Deviations**: the source proves that the distance falls exponentially; this rate is derived here.

    References
    ----------
    Collins, Mokhtari, Oh and Shakkottai 2022, "MAML and ANIL provably learn representations".

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> lf.theory.meta_contraction(np.eye(2), step_size=0.1, adaptation_step_size=0.4)
    array([[0.98, 0.  ],
           [0.  , 0.98]])
    """
    heads = _heads(W)
    beta = check_number("step_size", step_size, positive=True)
    alpha = check_number("adaptation_step_size", adaptation_step_size, positive=True)
    return np.asarray(np.eye(heads.shape[-1]) - alpha * beta * heads.mT @ heads / heads.shape[-2])


def contracted_distance(
    B: npt.ArrayLike, B_star: npt.ArrayLike, contraction: npt.ArrayLike, rounds: npt.ArrayLike
) -> Array:
    """Return the subspace distance after some rounds, from an initial B and the contraction of a round.

    Parameters
    ----------
    B : array_like (d, k) or (trials, d, k)
        Initial representation; its columns need not be orthonormal.
    B_star : array_like (d, k) or (trials, d, k)
        True representation, orthonormal.
    contraction : array_like (k, k) or (trials, k, k)
        Contraction C of a round, as `fedavg_contraction` and `meta_contraction` return it.
    rounds : array_like of int (R,)
        Rounds, from 0.

    Returns
    -------
    ndarray (R,) or (trials, R)
        ``s/(1 + s^2)^{1/2}``, where s is the largest singular value of ``T C^t`` and ``T = (I - B* B*') B (B*'B)^{-1}``
        are the tangents of the principal angles of B.

    Raises
    ------
    ValueError
        If shapes or numbers of trials do not match, values are not finite, a round is negative, the columns of
        `B_star` are not orthonormal, or B*'B is singular.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> B, B_star = np.array([[0.6], [0.8]]), np.array([[1.0], [0.0]])
    >>> lf.theory.contracted_distance(B, B_star, [[0.5]], [0, 1, 10]).round(6)
    array([0.8     , 0.5547  , 0.001302])
    """
    shapes = [("d", "k"), ("trials", "d", "k")]
    B, given, B_star = check_array("B", B, shapes), B_star, check_array("B_star", B_star, shapes)
    C = check_array("contraction", contraction, [("k", "k"), ("trials", "k", "k")])
    check_shape("B", B, (*B.shape[:-2], *B_star.shape[-2:]), "(d, k) as B_star")
    k = B.shape[-1]
    check_shape("contraction", C, (*C.shape[:-2], k, k), "(k, k)")
    trial_count("B, B_star and contraction", B, B_star, C)
    check_orthonormal("B_star", B_star, given)
    times = check_array("rounds", rounds, [("R",)])
    if (times < 0).any() or (times % 1).any():
        raise ValueError(f"rounds = {short_repr(rounds)} must be integers of at least 0")
    inside = B_star.mT @ B
    try:
        tangents = np.linalg.solve(inside.mT, (B - B_star @ inside).mT).mT
    except np.linalg.LinAlgError:
        raise ValueError("B*'B is singular: a direction of B* is orthogonal to B") from None
    largest = [np.linalg.norm(tangents @ np.linalg.matrix_power(C, int(t)), 2, axis=(-2, -1)) for t in times]
    sizes = np.stack(largest, axis=-1)
    return np.asarray(sizes / np.sqrt(1.0 + sizes**2))


def _heads(W: npt.ArrayLike) -> Array:
    return check_array("W", W, [("n", "k"), ("trials", "n", "k")])
