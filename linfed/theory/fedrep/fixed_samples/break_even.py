"""Smallest number of clients with which FedRep learns B* on fixed samples, or has a lower risk than a baseline."""

from __future__ import annotations

import functools
import math

import numpy as np

from linfed._types import Array
from linfed.checks import check_integer, check_noise_std, check_number
from linfed.theory.fedrep.arguments import checked_sizes
from linfed.theory.fedrep.fixed_samples.cavity import ClientDraws, typical_mean

DRAWS = 2048
"""Number of fixed draws of a client's samples."""

POINTS, SMALLEST, PAST = 16, 1e-3, 3.0
"""Number of points along the solutions; smallest kc relative to the noise variance; largest kc relative to the end of
the Gaussian solutions."""

SECANTS, TOLERANCE = 60, 1e-3
"""Largest number of secant steps for a solution, and the relative gap below which they have converged."""


def fixed_sample_edge(*, dim: int, rank: int, n_samples: int, noise_std: float) -> float:
    """Return the number of clients below which the equations of the empirical risk's minimum near B* have no solution.

    Parameters
    ----------
    dim, rank : int
        d >= 2k and k.
    n_samples : int
        Number m of samples per client.
    noise_std : float
        Standard deviation of the label noise, in units of y.

    Returns
    -------
    float
        At least k. Infinite at m <= k, and with label noise also at m = k + 1.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    The result holds for exact heads, one fixed data set of standard Gaussian samples per client, and true heads of
    length sqrt(k) with ``(1/n) sum_i w_i w_i' = I``. Without noise, the edge is at ``n (m - k) = (d - k) k``, with
    equal numbers of samples and unknowns. With noise, `fixed_sample_floor` has the equations, with ``C = c/(1 + c) I``
    and ``V = v I``. For each c, v solves ``c/(1 + c) = v p/j`` with ``j = tr J/k`` and ``p = tr P/k``, and then
    ``n = (d - k)/(v j)``. Along the solutions, in the order of c, n falls and then rises. The edge is its smallest
    value. The argument is heuristic: a cavity, or replica symmetric, argument for many clients.

    For d = 50 and k = 3, runs initialised by the method of moments start to have an advantage at 0.95 to 1.2 times this
    number of clients. The edge does not apply to runs that start at B*. At 0.6 times this number they still converge to
    sines of 0.4 to 0.65 (d = 40 and 160, noise 0.3 and 1). These minima are not solutions of the equations.

    **Deviations**: not in the paper.

    References
    ----------
    Golub and Van Loan 1980, for total least squares; Mezard and Montanari 2009, for the method.

    Examples
    --------
    >>> import linfed as lf
    >>> round(lf.theory.fixed_sample_edge(dim=50, rank=3, n_samples=10, noise_std=0.0), 1)
    20.1
    >>> round(lf.theory.fixed_sample_edge(dim=50, rank=3, n_samples=10, noise_std=1.0))
    73
    """
    return _least_n(math.inf, dim, rank, n_samples, noise_std)


def break_even_clients(baseline_risk: float, *, dim: int, rank: int, n_samples: int, noise_std: float) -> float:
    """Return the smallest number of clients with which FedRep on fixed samples has a lower mean risk than a baseline.

    Parameters
    ----------
    baseline_risk : float
        Mean risk of the baseline, including the noise, e.g. `local_mean_risk`.
    dim, rank, n_samples, noise_std
        As in `fixed_sample_edge`.

    Returns
    -------
    float
        At least `fixed_sample_edge`. Infinite if FedRep is never better: at m <= k, with label noise also at m = k + 1,
        and for a baseline with at most the risk of exact heads on the true B*.

    Raises
    ------
    ValueError
        If a value is out of range.

    Notes
    -----
    Assumptions as in `fixed_sample_edge`. Along its solutions, up to their end, the mean risk of the
    training clients grows as n falls. (It is the risk of `fixed_sample_floor`, the median over data sets of the mean
    over clients.) Either this risk reaches the risk of the baseline, or the solutions end first. In the second case the
    baseline is irrelevant, since B cannot be learned. At m <= k + 4 the additional risk due to the fit of B depends on
    single clients and is omitted.

    **Deviations**: the condition in the FedRep paper is ``log(n) + d/n << d``, which contains neither m, k nor the
    noise.

    References
    ----------
    FedRep paper, section 4.2, "When and whom does federation help?".

    Examples
    --------
    >>> import linfed as lf
    >>> sizes = {"dim": 50, "n_samples": 75, "noise_std": 1.0}
    >>> ridge = lf.theory.best_local_ridge(3**0.5, **sizes)
    >>> alone = float(lf.theory.local_mean_risk(3**0.5, ridge=ridge, **sizes))
    >>> round(lf.theory.break_even_clients(alone, rank=3, **sizes), 1)
    4.7
    """
    return _least_n(check_number("baseline_risk", baseline_risk, minimum=0.0), dim, rank, n_samples, noise_std)


def _least_n(baseline_risk: float, dim: int, rank: int, n_samples: int, noise_std: float) -> float:
    """Return the smallest n with a solution whose risk is at most the risk of the baseline."""
    from scipy import interpolate, optimize

    k, m = check_integer("rank", rank), check_integer("n_samples", n_samples)
    variance = check_noise_std(noise_std) ** 2
    d, _, _ = checked_sizes(dim, k, 1, max(m, k + 2), None)
    wanted, head_excess = 2.0 * baseline_risk - variance, k * variance / max(m - k - 1, 1)
    if m <= k or (m == k + 1 and variance > 0) or wanted <= head_excess:
        return math.inf
    if variance == 0:
        return max(float(k), (d - k) * k / (m - k))
    c, unknowns, excess = _solutions(k, d - k, m, variance)
    if wanted <= excess[0]:  # both risks are still of first order
        return (d - k) / float(unknowns[0]) * (float(excess[0]) - head_excess) / (wanted - head_excess)
    along = np.log(c)
    course = interpolate.CubicSpline(along, np.log(unknowns))
    last = float(along[-1])
    if wanted < excess[-1]:
        lacks = interpolate.CubicSpline(along, np.log(excess / wanted))
        last = float(optimize.brentq(lambda at: float(lacks(at)), float(along[0]), last))
    most = math.exp(float(course(np.linspace(along[0], last, 2000)).max()))
    return max(float(k), (d - k) / most)


@functools.lru_cache(maxsize=64)
def _solutions(k: int, rows: int, m: int, variance: float) -> tuple[Array, Array, Array]:
    """Return c, (d-k)/n and twice the risk of training clients along the solutions, to a point after their end."""
    nu, eye = m - k - 1, np.eye(k)
    high = PAST * math.sqrt(variance * (variance + nu)) / k
    clients = ClientDraws(math.sqrt(k) * eye[:1], n_samples=m, unknowns=1.0, variance=variance, draws=DRAWS)

    def of_solution(at: float, c: float) -> tuple[float, float]:
        """Return the difference between ``log v`` of the equations and `at`, and (d-k)/n."""
        j, p = (float(np.trace(part)) for part in clients.moments(math.exp(at) * eye, c / (1.0 + c) * eye))
        return math.log(c / (1.0 + c) * j / p) - at, math.exp(at) * j / k

    slope, excess, steps, found = -1.0, 0.0, 0.0, list[tuple[float, float, float]]()
    for c in np.geomspace(SMALLEST * variance / k, high, POINTS).tolist():
        u = variance + k * c
        gaussian = math.log(c / (u * (1.0 + u / nu) - k * c) / (1.0 + c))  # log v for Gaussian heads
        at = gaussian + excess + steps  # excess: log v minus its Gaussian value; steps: its last change
        gap, unknowns = of_solution(at, c)
        for _ in range(SECANTS):
            if abs(gap) < TOLERANCE:
                break
            new = at - max(-0.5, min(0.5, gap / slope))
            left, unknowns = of_solution(new, c)
            slope = min(-0.02, (left - gap) / (new - at))
            at, gap = new, left
        excess, steps = at - gaussian, at - gaussian - excess
        length = k * c / (1.0 + c)
        risk = length + (length + variance) * k / nu
        if m > k + 4:
            C = c / (1.0 + c) * eye
            errors, same = clients.training(clients.solve(math.exp(at) * eye, C), C)
            risk += typical_mean((errors - same)[None], max(k, round(rows / unknowns)))
        found.append((c, unknowns, risk))
        if unknowns < 0.8 * max(values[1] for values in found):
            break
    along, unknowns_along, risks = np.array(found).T
    return along, unknowns_along, np.maximum.accumulate(risks)
