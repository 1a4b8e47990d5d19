"""Noise of the Gaussian mechanism for a given privacy level."""

from __future__ import annotations

import math

from linfed.checks import check_inside, check_integer, check_number


def gaussian_mechanism_noise(epsilon: float, delta: float, *, sensitivity: float, n_rounds: int = 1) -> float:
    r"""Return the smallest noise with which the Gaussian mechanism is (epsilon, delta)-differentially private.

    Parameters
    ----------
    epsilon, delta : float
        Privacy level, with epsilon >= 0 and delta inside (0, 1).
    sensitivity : float
        Delta_1 > 0, the largest change of the released vector or matrix in one round, in the Euclidean or Frobenius
        norm. For the mean of p messages of norm at most C it is ``2 C/p`` if one client is replaced by another. It is
        ``C/p`` if one message is added or removed and p is a public constant.
    n_rounds : int
        Number T >= 1 of releases. Each may depend on the earlier ones.

    Returns
    -------
    float
        Standard deviation of the noise on each entry in each round, proportional to `sensitivity`.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The mechanism with noise of standard deviation s is (epsilon, delta)-private if and only if, with
    ``a = sqrt(T) Delta_1/s`` and the standard normal distribution function Phi,

    .. math::

        \Phi\Bigl(\frac{a}{2} - \frac{\varepsilon}{a}\Bigr)
            - e^{\varepsilon} \Phi\Bigl(-\frac{a}{2} - \frac{\varepsilon}{a}\Bigr) \le \delta

    T adaptive rounds are at least as private as one round of sensitivity ``sqrt(T) Delta_1``, and no more private in
    the worst case: given the earlier releases, the privacy loss of a round is at worst Gaussian with mean ``a_1^2/2``
    and variance ``a_1^2``, where ``a_1 = Delta_1/s``, and these losses add up. An accountant is therefore not necessary
    without sampling of clients. With sampled clients the result stays valid, but does not use that sampling increases
    privacy.

    The guarantee is for whole clients (client level). It covers the released messages only: neither an initialisation
    from the clients' samples, nor parameters that were tuned on them, nor floating-point effects.

    References
    ----------
    Balle and Wang 2018, "Improving the Gaussian mechanism for differential privacy", Theorem 8; Dong, Roth and Su 2022,
    "Gaussian differential privacy", Corollary 3.3, for the composition.

    Examples
    --------
    >>> import linfed as lf
    >>> round(lf.theory.gaussian_mechanism_noise(1.0, 1e-6, sensitivity=1.0), 4)
    4.2247
    >>> round(lf.theory.gaussian_mechanism_noise(1.0, 1e-6, sensitivity=1.0, n_rounds=4), 4)
    8.4494
    """
    from scipy import optimize

    epsilon, delta = check_number("epsilon", epsilon, minimum=0.0), check_inside("delta", delta)
    sensitivity = check_number("sensitivity", sensitivity, positive=True)
    n_rounds = check_integer("n_rounds", n_rounds)
    low, high = -1.0, 1.0  # logarithms of a
    while _delta(math.exp(low), epsilon) > delta:
        low -= 1.0
    while _delta(math.exp(high), epsilon) < delta:
        high += 1.0
    root = optimize.brentq(lambda log_a: _delta(math.exp(log_a), epsilon) - delta, low, high, xtol=1e-14)
    return sensitivity * math.sqrt(n_rounds) / math.exp(root)


def _delta(a: float, epsilon: float) -> float:
    """Return the smallest delta of the Gaussian mechanism with sensitivity a and noise 1, increasing in a."""
    from scipy import special

    first, second = special.log_ndtr(0.5 * a - epsilon / a), epsilon + special.log_ndtr(-0.5 * a - epsilon / a)
    return float(math.exp(first) * -math.expm1(min(0.0, second - first)))
