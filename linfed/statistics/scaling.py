"""Scaling laws: exponents fitted to measurements, with intervals over trials."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

from linfed._types import Array
from linfed.errors import check_array, check_shape
from linfed.statistics.intervals import bootstrap_interval


def fit_exponent(x: npt.ArrayLike, values: npt.ArrayLike, *, paired: bool = True) -> tuple[float, float, float]:
    """Return the exponent a of ``median of values ~ x^a``, with a bootstrap interval over trials.

    Parameters
    ----------
    x : array_like (P,)
        Positive sizes, at least two different ones.
    values : array_like (trials, P)
        Positive measurements, a column for each size.
    paired : bool
        Whether a row is one trial at all sizes: trials that share a seed are resampled together, which is right for
        independent columns too. False resamples every column by itself.

    Returns
    -------
    estimate, low, high : float
        Slope of the least-squares line through ``(log x, log median)``; 95 % percentile bootstrap over trials.

    Raises
    ------
    ValueError
        For shapes that do not fit, or numbers that are not positive and finite.

    Notes
    -----
    **Deviations**: none.

    Examples
    --------
    >>> from linfed.statistics.scaling import fit_exponent
    >>> round(fit_exponent([1, 2, 4], [[1.0, 0.5, 0.25]] * 3)[0], 12)
    -1.0
    """
    sizes, table = check_array("x", x, [("P",)]), check_array("values", values, [("trials", "P")])
    check_shape("values", table, (len(table), len(sizes)), "(trials, P)")
    if len(table) < 2:
        raise ValueError(f"values has shape {table.shape}; an interval over trials needs two of them")
    for name, array in (("x", sizes), ("values", table)):
        if array.min() <= 0:
            raise ValueError(f"{name} holds {array.min():g}; only positive numbers have a logarithm")
    if len(np.unique(sizes)) < 2:
        raise ValueError(f"x = {sizes.tolist()} must hold at least two different sizes")
    logs = np.log(sizes)

    def slope(*columns: Array) -> float:
        return float(stats.linregress(logs, [np.log(np.median(column)) for column in columns]).slope)

    return (slope(*table.T), *bootstrap_interval(slope, list(table.T), paired=paired, resamples=500))
