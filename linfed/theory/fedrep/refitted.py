"""What heads that are refitted in every round cost in samples, beside heads that are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_array, check_integer, check_noise_std, check_number, shown


def refitted_heads_limit(
    samples: float,
    *,
    dim: int,
    rank: int,
    n_samples: int,
    noise_std: float,
    eigenvalues: npt.ArrayLike | None = None,
    scale: float | None = None,
) -> Array:
    """Return the mean squared tangents that FedRep tends to under falling steps, for any heads.

    Parameters
    ----------
    samples : float
        N > 0, all samples that were seen: ``p m t`` after t rounds.
    dim, rank, n_samples : int
        d > k, k and m >= k + 2 samples of a client and round, of which its head is made.
    noise_std : float
        Standard deviation of the label noise, in units of y.
    eigenvalues : array_like (k,), optional
        Those of ``(1/n) sum_i w_i w_i'``; 1 by default.
    scale : float, optional
        a > 0, of the steps ``a/((1 - k/m) t)``. By default each direction has its own best, 1 over its eigenvalue: by a
        matrix step, or by averaging the iterates of a small constant step.

    Returns
    -------
    ndarray (k,)
        Of B's column along each eigenvector. Infinite where ``a lambda <= 1/2``: there it falls more slowly than 1/N.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    Near B* a column along lambda contracts by ``1 - eta c lambda`` and is driven by noise of variance ``eta^2 c (d-k)
    sigma^2 (lambda + s)/(m p)``, ``s = sigma^2/(m-k-1)``, ``c = 1 - k/m``. Hence::

        (d-k) sigma^2/(c N) (lambda + s)/lambda^2                               at the best steps
        (d-k) sigma^2/(c N) (lambda + s) a^2/(2 a lambda - 1)                   at steps a/(c t)

    Whoever knows the heads has ``(d-k) sigma^2/(N lambda)`` (`known_heads_bound`). So heads fitted to the m samples of
    a round cost the factor ``(1 + s/lambda)/(1 - k/m)`` in samples: the share k/m, which a fit absorbs of the residual,
    and their own noise. It is the price of heads that forget, and not of the samples: heads that remember earlier
    rounds, by one gradient step in each (`linfed.GradientHeads`), come below it, while heads that are fitted more
    rarely cost more. It is for Gaussian x: of samples with a scale s_j each, as those of a t law, a fit absorbs
    ``E tr(H diag(s_j^2))/m > k/m``, H the projector on its features.

    **Deviations**: an addition.

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 100, "rank": 2, "n_samples": 8, "noise_std": 1.0}
    >>> limit = lf.theory.refitted_heads_limit(1e5, **sizes)
    >>> bound = lf.theory.known_heads_bound(1e5, dim=100, rank=2, noise_std=1.0)
    >>> (limit / bound).round(3)
    array([1.6, 1.6])
    """
    k = check_integer("rank", rank)
    m = check_integer("n_samples", n_samples, minimum=k + 2)
    bound = known_heads_bound(samples, dim=dim, rank=k, noise_std=noise_std, eigenvalues=eigenvalues)
    lam = _eigenvalues(eigenvalues, k)
    price = (1.0 + check_noise_std(noise_std) ** 2 / ((m - k - 1) * lam)) / (1.0 - k / m)
    if scale is None:
        return bound * price
    a = check_number("scale", scale, positive=True)
    with np.errstate(divide="ignore"):
        return np.where(a * lam > 0.5, bound * price * (a * lam) ** 2 / np.abs(2.0 * a * lam - 1.0), np.inf)


def known_heads_bound(
    samples: float, *, dim: int, rank: int, noise_std: float, eigenvalues: npt.ArrayLike | None = None
) -> Array:
    """Return the mean squared tangents of least squares for B with the true heads, many samples, standard Gaussian x.

    Parameters
    ----------
    samples, dim, rank, noise_std, eigenvalues
        As in `refitted_heads_limit`.

    Returns
    -------
    ndarray (k,)
        ``(d-k) sigma^2/(N lambda)``, of B's column along each eigenvector: the information bound where heads are known.

    Raises
    ------
    ValueError
        For values out of range.

    Notes
    -----
    **Deviations**: an addition.
    """
    k = check_integer("rank", rank)
    d = check_integer("dim", dim, minimum=k + 1)
    N = check_number("samples", samples, positive=True)
    return np.asarray((d - k) * check_noise_std(noise_std) ** 2 / (N * _eigenvalues(eigenvalues, k)))


def _eigenvalues(values: npt.ArrayLike | None, rank: int) -> Array:
    if values is None:
        return np.ones(rank)
    lam = check_array("eigenvalues", values, [("k",)])
    if len(lam) != rank or not (lam > 0).all():
        raise ValueError(f"eigenvalues = {shown(values)} must be {rank} positive numbers, as rank = {rank}")
    return lam
