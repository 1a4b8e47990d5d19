"""The clients' weights with which FedRep has the smallest error, for different noise, samples and heads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_number
from linfed.numerics.linalg import one_blas_thread, symmetric
from linfed.theory.fedrep.arguments import Clients
from linfed.theory.fedrep.near_truth.any_heads import SPANNED

ITERATIONS = 1000
"""Largest number of iterations of the fixed point."""

SMALLEST = 1e-12
"""Weight of clients whose best weight is not positive."""

CONVERGED = 1e-10
"""Relative change of the weights below which they have converged."""

FLAT = 1e-8
"""Relative change of the error in the last iteration below which weights that have not converged do not matter."""


def optimal_weights(
    W: npt.ArrayLike,
    *,
    dim: int,
    n_samples: int | npt.ArrayLike,
    noise_std: float | npt.ArrayLike,
    participants: int | None = None,
    error: float = 0.0,
) -> Array:
    r"""Return the weights of the clients' gradients that give FedRep the smallest error near B*.

    The result holds for exact heads, fresh standard Gaussian samples in every round, one local step on B, and QR after
    each round.

    Parameters
    ----------
    W : array_like (n, k) or (trials, n, k)
        True heads of all clients, in the coordinates of the orthonormal B*; they must span R^k.
    dim : int
        d >= 2k.
    n_samples : int or array_like (n,)
        m >= k + 2, equal for all clients, or one number for each client.
    noise_std : float or array_like (n,)
        Standard deviation of the label noise, in units of y, equal for all clients, or one for each client. It must be
        positive if `error` is 0.
    participants : int, optional
        Number of participants p <= n in a round; all clients by default. It matters only if `error` is positive.
    error : float
        Mean squared tangent q >= 0 of the k angles at which the weights are best; by default the limit of many rounds.

    Returns
    -------
    ndarray (n,), or (trials, n) if W has a trial axis
        Weights with mean 1, accepted as `weights` by `linfed.FedRep`.

    Raises
    ------
    ValueError
        If shapes do not match, a value is out of range, the heads do not span R^k, the noise is 0 at ``error = 0``, or
        the fixed point does not converge.

    Notes
    -----
    With weights omega_i of mean 1, ``c_i = 1 - k/m_i``, ``s_i = sigma_i^2/(m_i-k-1)`` and means over clients, a round
    at ``E D'D = q I`` contracts the tangents D by ``I - eta G`` and adds ``eta^2 V`` to ``E D'D``, with (up to
    ``eta^2 (n-p)/(p (n-1)) q G^2``, which adds a constant to the trace below)

    .. math::

        G &= \operatorname{mean}_i [\omega_i c_i w_i w_i^\top], \qquad
            V = \operatorname{mean}_i [\omega_i^2 (\alpha_i w_i w_i^\top + \beta_i I)] \\
        \alpha_i &= \tfrac{c_i}{p m_i} \Bigl[ (d-k) \sigma_i^2
            + q \|w_i\|^2 \bigl( d-k+1 + \tfrac{n-p}{n-1} (m_i-k) \bigr) \Bigr] \\
        \beta_i &= \tfrac{c_i}{p m_i} s_i \bigl[ (d-k) \sigma_i^2 + q \|w_i\|^2 (m_i-k+1 + 2(d-k)) \bigr]

    The weights minimise ``tr(G^{-1} V G^{-1})``, which does not depend on their scale. At q = 0 it is proportional to
    the error of FedRep after many rounds with the matrix step size ``G^{-1}/t``, or with averaged iterates of a small
    constant step size. They are a fixed point, with ``P = G^{-2}`` and ``S = (P V G^{-1} + G^{-1} V P)/2``:

    .. math::

        \omega_i = \frac{c_i \, w_i^\top S w_i}{\alpha_i \, w_i^\top P w_i + \beta_i \operatorname{tr} P}

    Special cases, up to scale:

    - ``omega_i = m_i/sigma_i^2`` for any heads, if ``s_i`` is small compared with the heads.
    - ``omega_i = m_i/(sigma_i^2 (1 + k s_i/||w_i||^2))`` if the heads are unrelated to m and sigma, with
      ``mean_i w_i w_i' = lambda I``. The second factor is due to the error of the heads.
    - ``omega_i = c_i/v_i`` for such heads of equal length at any q, with ``v_i = lambda alpha_i + beta_i``. If all
      clients participate, the best step size then gives ``1/q+ = 1/q + lambda^2 mean_i[c_i^2/v_i(q)]``: information
      adds over clients and rounds.

    For heads far from isotropic, the best weight of a client may be negative: its samples would add more error than
    information. It then has the weight 1e-12.

    At ``error = 0`` clients without noise would have infinite weight. Weights on few clients lower the stability edge
    (`stability_edge`): for a given step size, use the error at which the run settles.

    **Deviations**: derived here.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> heads = lf.SharedRepresentation(n_clients=40, dim=20, rank=2).truth(0, [0]).W[0]
    >>> counts, noise = np.tile([10, 40], 20), np.repeat([0.1, 0.3], 20)
    >>> weights = lf.theory.optimal_weights(heads, dim=20, n_samples=counts, noise_std=noise)
    >>> (weights[[0, 1, 20, 21]] / weights[0]).round(2)          # nearly m/sigma^2
    array([1.  , 4.01, 0.11, 0.44])
    """
    heads = check_array("W", W, [("n", "k"), ("trials", "n", "k")])
    n, k = heads.shape[-2:]
    clients = Clients.checked(n, k, dim, n_samples, noise_std, participants)
    q = check_number("error", error, minimum=0.0)
    if q == 0 and not clients.variances.all():
        raise ValueError(
            "noise_std must be positive for every client, or error must be positive: at error = 0 clients "
            "without noise would have infinite weight"
        )
    with one_blas_thread():
        found = [_of_heads(each, clients, q) for each in (heads if heads.ndim == 3 else heads[None])]
    return np.stack(found) if heads.ndim == 3 else found[0]


def _of_heads(W: Array, clients: Clients, q: float) -> Array:
    """Return the weights for the heads of one trial by the fixed point of `optimal_weights`."""
    (n, k), c, m, variance = W.shape, clients.fitted, clients.counts, clients.variances
    lengths, rows = q * np.vecdot(W, W), clients.dim - k
    factor, s = c / (clients.participants * m), variance / clients.spare
    chosen = clients.share * clients.participants * (m - k)
    along = factor * (rows * variance + lengths * (rows + 1 + chosen))
    across = factor * s * (rows * variance + lengths * (m - k + 1 + 2 * rows))
    values = np.linalg.eigvalsh(W.T @ W / n)
    if values[0] <= SPANNED * values[-1]:
        raise ValueError(f"W must span R^k, k = {k}: B is not learned along directions in which no client has a head")
    weights = np.full(n, 1.0) * c / (values.mean() * along + across)
    value = before = np.inf
    for _ in range(ITERATIONS):
        weights = weights / weights.mean()
        inverse = np.linalg.inv((W * (weights * c)[:, None]).T @ W / n)
        P = symmetric(inverse @ inverse)
        V = (W * (weights**2 * along)[:, None]).T @ W / n + np.mean(weights**2 * across) * np.eye(k)
        S = symmetric(P @ V @ inverse)
        new = c * np.vecdot(W @ S, W) / (along * np.vecdot(W @ P, W) + across * np.trace(P))
        new = np.maximum(new, 0.0)
        new = np.maximum(new / new.mean(), np.maximum(SMALLEST, 0.1 * weights))
        change, before, value = np.abs(new / weights - 1.0).max(), value, float(np.trace(inverse @ V @ inverse))
        if change < CONVERGED:
            return np.asarray(new)
        weights = np.sqrt(new * weights)
    if abs(before / value - 1.0) > FLAT:
        raise ValueError(f"W: the weights have not converged in {ITERATIONS} iterations")
    return np.asarray(weights / weights.mean())
