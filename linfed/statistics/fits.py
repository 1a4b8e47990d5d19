"""Fits of power laws: one exponent, or several jointly with offsets and censored points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_array, check_number, check_numbers, check_shape, short_repr
from linfed.statistics import formulas
from linfed.statistics.formulas import Columns, Formula, format_number, logarithm
from linfed.statistics.intervals import FEWEST, Measured, bootstrap_interval

RESAMPLES = 400
"""Number of bootstrap replicates of columns with trials."""

CENSORED_RESAMPLES = 100
"""Number of replicates if points are censored; each replicate then requires an optimisation."""

SMALLEST_SCATTER = 1e-4
"""Lower bound of the standard deviation, in the logarithm, in fits with censored points."""

ROUNDING = 1e-10
"""Largest rounding error of a logarithm; a left side such as m - k - 1 cancels digits."""

BELOW, ABOVE = -1, 1


class UndeterminedError(ValueError):
    """Raised if the points do not determine an exponent of a power law."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerLawFit:
    """Power law fitted by `fit_power_law`.

    Parameters
    ----------
    formula : str
        Formula of the power law.
    exponents : dict of str to (estimate, low, high)
        Free exponents with confidence intervals.
    constant : (estimate, low, high)
        Factor C before the product.
    fitted : ndarray (points,)
        Fitted values of the left side.
    residuals : ndarray (points,)
        Logarithm of measured divided by fitted values; NaN for censored points.
    spread : ndarray (points,)
        Standard deviation of each point's logarithm over trials; NaN if unknown.
    scatter : float
        Standard deviation of the residuals; 0 if the numbers of points and coefficients are equal.
    curvature : dict of str to (estimate, low, high)
        Change of each exponent if the base of its factor grows by a factor e; 0 for a power law. Like all intervals of
        the fit, the interval allows for rounding errors of `ROUNDING` in every logarithm. An exponent is absent
        if the points do not determine its curvature, e.g. if its factor has only two values.
    p_value : float
        Probability of residuals at least this large if the power law is true and only trials vary. NaN without trials,
        or if there are not more points than coefficients.
    reached, above, below : int
        Numbers of points that are known, censored above and censored below.
    smallest : int
        Number of known points whose left side is at most 1 while its sizes are whole numbers, e.g. m = k + 2 in
        ``m - k - 1``. No smaller size is possible there, so such points flatten the power law.
    over : {"trials", "residuals"}
        Source of the variation behind the intervals.
    confidence : float
        Confidence level of the intervals.

    Examples
    --------
    >>> import linfed as lf
    >>> fit = lf.fit_power_law("m ~ d^a", {"d": [10, 20, 40], "m": [5.0, 10.5, 20.0]})
    >>> round(fit.exponents["a"][0], 6), round(fit.max_factor, 3), fit.over
    (1.0, 1.033, 'residuals')
    """

    formula: str
    exponents: dict[str, Measured]
    constant: Measured
    fitted: Array
    residuals: Array
    spread: Array
    scatter: float
    curvature: dict[str, Measured]
    p_value: float
    reached: int
    above: int
    below: int
    smallest: int = 0
    over: str
    confidence: float

    @property
    def points(self) -> int:
        """Number of points, including censored points."""
        return len(self.fitted)

    @property
    def max_factor(self) -> float:
        """Largest factor between a measured and a fitted value."""
        return float(np.exp(np.nanmax(np.abs(self.residuals))))

    @property
    def curved(self) -> tuple[str, ...]:
        """Exponents whose curvature has an interval without 0; for a true power law a share 1 - `confidence` do."""
        return tuple(name for name, (_, low, high) in self.curvature.items() if low > 0 or high < 0)

    def __str__(self) -> str:
        law = (
            f"{self.formula}, constant {format_number(self.constant[0])} [{format_number(self.constant[1])}, "
            f"{format_number(self.constant[2])}]"
        )
        found = "".join(f", {k} = {v:.3f} [{low:.3f}, {high:.3f}]" for k, (v, low, high) in self.exponents.items())
        sides = ", ".join(f"{count} {side}" for side, count in (("above", self.above), ("below", self.below)) if count)
        reached = f"{self.reached} of {self.points} reached" + (f" ({sides})" if sides else "")
        if self.smallest:
            reached += f"; {self.smallest} at the smallest size (left side at most 1), which flattens the power law"
        bends = ", ".join(f"{k} by {self.curvature[k][0]:+.2f}" for k in self.curved)
        bent = f"; curvature: {bends}" if bends else "; no curvature detected" if self.curvature else ""
        lack = "" if np.isnan(self.p_value) else f", p = {self.p_value:.2g}"
        level = f"{100 * self.confidence:g} % over {self.over}"
        return f"{law}{found}; {reached}; within a factor {self.max_factor:.3f}{lack}{bent} ({level})"


def fit_power_law(
    formula: str,
    table: Any,
    *,
    censored: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> PowerLawFit:
    """Fit a power law with an offset, jointly in all its exponents.

    Parameters
    ----------
    formula : str
        Power law such as ``"m - k - 1 ~ n^a d^b k^c"``. The left side is an expression of columns. The right side is a
        product of expressions, each with a free exponent (a name), a number as exponent, or no exponent; ``/`` divides.
        A constant factor is always included. ``log``, ``sqrt`` and ``exp`` are supported:
        ``"m - k - 1 ~ n^-1 d^b log(n)^e"``. Names are columns, the last parts of their names, or the papers' letters
        n, m, d, k, p, kappa, sigma, eta, t.
    table : Table, or mapping of names to columns
        Table of `lf.find_smallest`; the fit then uses its smallest sizes, interpolated between whole numbers, their
        replicates over trials and the censored points. Or another table or mapping of columns of numbers, (points,).
        One column of the left side may be (points, trials); its median is fitted.
    censored : sequence of str, optional
        For each point "", "above" if the given value is only a lower bound, or "below" if it is only an upper bound.
        By default the column "censored" of the table, if it has one, as a table of `lf.find_smallest` does.
    confidence : float
        Confidence level of the intervals.

    Returns
    -------
    PowerLawFit

    Raises
    ------
    ValueError
        If the formula is invalid, a name is not a column, a side is not positive, or the points do not determine all
        exponents (`UndeterminedError`, a subclass).

    Notes
    -----
    The fit minimises least squares in the logarithm, with equal weights. With censored points it maximises the normal
    likelihood, in which a censored point contributes the probability of lying beyond its bound (Tobin 1958). Omitting
    censored points would bias every exponent towards the points that succeed.

    Intervals are percentiles of a bootstrap over trials, resampled together at all points. Their measured coverage at
    95 % is 0.94 to 0.97 with 10, 20 and 50 lognormal trials. They measure how well the trials determine the exponents
    of *this* power law; `residuals`, `p_value` and `curvature` measure whether a power law fits. Without trials,
    or with fewer than six, the intervals are Student's, from the residuals. They are so too for the smallest sizes of
    a share far from 1/2, which need more trials (36 for a share of 0.9) to have bounds.

    `p_value` belongs to the sum of squared residuals. If the power law is true, this sum is a weighted sum of chi^2,
    since trials vary more at some points than at others and may be shared between points. Its mean and variance follow
    from the covariance of the replicates' residuals, and its distribution is approximated by a scaled chi^2 with the
    same mean and variance (Box 1954). At a level of 5 % a true power law is rejected in 0 to 8 % of tables, measured
    with 10, 20 and 50 trials, 5 to 25 points, and spreads that are equal or tenfold apart, for independent and for
    shared trials.

    The offset is part of the model: ``m = k + 1 + C d k/n`` is not a power law in m itself.

    An exponent belongs to one size only if no other quantity changes with it. With random heads the condition number of
    few clients' heads falls with n and grows with k; ``lf.SharedRepresentation(condition_number=1.0)`` keeps it fixed.

    References
    ----------
    Tobin 1958, Estimation of relationships for limited dependent variables, Econometrica 26.
    Box 1954, Some theorems on quadratic forms applied in the study of analysis of variance problems, Annals of
    Mathematical Statistics 25.

    Examples
    --------
    >>> import linfed as lf
    >>> n, d = [50, 100, 200, 100, 100], [40, 40, 40, 20, 80]
    >>> found = lf.fit_power_law("m - 3 ~ n^a d^b", {"n": n, "d": d, "m": [3 + 2 * y / x for x, y in zip(n, d)]})
    >>> {name: round(value[0], 9) for name, value in found.exponents.items()}
    {'a': -1.0, 'b': 1.0}
    """
    model = formulas.parsed(formula)
    confidence = check_number("confidence", confidence, minimum=0.0, maximum=1.0)
    columns = Columns.of(table)
    left = _left(model, columns, censored)
    base, factors = _design(model, columns, len(left.logs))
    design = np.column_stack([np.ones(len(left.logs)), *factors.values()])
    uncensored = left.sides == 0
    _check_rank(design, list(factors), f"over these {len(design)} points")
    if not uncensored.all():
        some = f"over the {uncensored.sum()} of {len(design)} points that are not censored"
        _check_rank(design[uncensored], list(factors), some)
    logs = left.logs - base
    free, scatter = _solved(design, logs, left.sides)
    resampled = None if left.replicates is None else left.replicates - base[:, None]
    ends = (50 * (1 - confidence), 50 * (1 + confidence))
    replicates = None if resampled is None else _of_replicates(design, left.sides, resampled)
    intervals = _intervals(design, logs, uncensored, free, replicates, ends)
    residuals = np.where(uncensored, logs - design @ free, np.nan)
    spread = np.full(len(logs), np.nan) if resampled is None else np.where(uncensored, resampled.std(axis=1), np.nan)
    return PowerLawFit(
        formula=formula,
        exponents={name: (float(free[i]), *intervals[i]) for i, name in enumerate(factors, start=1)},
        constant=(float(np.exp(free[0])), float(np.exp(intervals[0][0])), float(np.exp(intervals[0][1]))),
        fitted=np.exp(design @ free + base),
        residuals=residuals,
        spread=spread,
        scatter=scatter,
        curvature=_curvatures(design, logs, left.sides, list(factors), resampled, ends),
        p_value=_p_value(
            design[uncensored], residuals[uncensored], replicates, None if resampled is None else resampled[uncensored]
        ),
        reached=int(uncensored.sum()),
        above=int(np.sum(left.sides == ABOVE)),
        below=int(np.sum(left.sides == BELOW)),
        smallest=left.smallest,
        over="residuals" if resampled is None else "trials",
        confidence=confidence,
    )


def fit_exponent(x: npt.ArrayLike, values: npt.ArrayLike, *, paired: bool = True) -> tuple[float, float, float]:
    """Return the exponent a of ``median of values ~ x^a``, with a bootstrap interval over trials.

    Parameters
    ----------
    x : array_like (P,)
        Positive sizes, at least two different ones.
    values : array_like (trials, P)
        Positive measurements, a column for each size.
    paired : bool
        If True, a row is one trial at all sizes, and rows are resampled together (trials that share a seed); this is
        also valid for independent columns. If False, every column is resampled separately.

    Returns
    -------
    estimate, low, high : float
        Slope of the least-squares line through ``(log x, log median)`` and its 95 % percentile bootstrap interval over
        trials. The measured coverage for lognormal trials at four sizes is 0.94 to 0.97 with 10, 20 and 50 trials. With
        fewer than six trials it is unbounded.

    Raises
    ------
    ValueError
        If shapes do not match, or numbers are not positive and finite.

    Notes
    -----
    `fit_power_law` fits several exponents jointly, with an offset and censored points; its intervals use other
    resamples.

    Examples
    --------
    >>> from linfed.statistics import fit_exponent
    >>> round(fit_exponent([1, 2, 4], [[1.0, 0.5, 0.25]] * 5)[0], 12)
    -1.0
    """
    sizes, table = check_array("x", x, [("P",)]), check_array("values", values, [("trials", "P")])
    check_shape("values", table, (len(table), len(sizes)), "(trials, P)")
    if len(table) < 2:
        raise ValueError(f"values has shape {table.shape}, but must have at least two trials")
    for name, array in (("x", sizes), ("values", table)):
        if array.min() <= 0:
            raise ValueError(f"{name} contains {array.min():g}, but must be positive")
    if len(np.unique(sizes)) < 2:
        raise ValueError(f"x = {sizes.tolist()} must contain at least two different sizes")
    logs = np.log(sizes) - np.log(sizes).mean()

    def slope(*columns: Array, axis: int = 0) -> Array:
        return np.stack([np.log(np.median(column, axis=axis)) for column in columns], axis=-1) @ logs / (logs @ logs)

    interval = bootstrap_interval(slope, list(table.T), paired=paired, vectorized=True, resamples=500)
    return (float(slope(*table.T)), *interval)


# --- columns -------------------------------------------------------------------------------------------------


class _Left(NamedTuple):
    """Logarithms of the left side and of its replicates; a point whose side is not 0 is a bound.

    `smallest` is the number of known points at the smallest of whole sizes.
    """

    logs: Array
    sides: npt.NDArray[np.intp]
    replicates: Array | None
    smallest: int


def _left(model: Formula, columns: Columns, censored: Sequence[str] | None) -> _Left:
    grows = [name for name in formulas.names(model.left) if _of_trials(columns, name)]
    if len(grows) > 1:
        raise ValueError(f"formula = {short_repr(model.text)}: only one column may have trials, but {grows} have")
    points = len(next(iter(columns.values.values())))
    words = list(columns.values.get("censored", [""] * points) if censored is None else censored)
    replicates: Array | None = None
    middles = {name: columns.numbers(name) for name in formulas.names(model.left) if name not in grows}
    for name in grows:
        column = columns.name(name)
        if column == columns.answers:
            words = list(columns.values["censored"])
            bounds = {"above": columns.values["low"], "below": columns.values["high"], "": columns.values["crossing"]}
            middles[name] = np.array([bounds[word][i] for i, word in enumerate(words)], dtype=float)
            counts = [np.max(counts, initial=0) for counts in columns.values.get("count", [math.inf])]
            if min(counts) >= max(map(_fewest, columns.values.get("share", [0.5]))):
                replicates = np.array(columns.values["replicates"], dtype=float)
        else:
            table = [check_numbers(f"column {name!r}", one) for one in columns.values[column]]
            if len({one.shape for one in table}) != 1 or not len(table[0]):
                raise ValueError(f"column {name!r} of the formula must have the same number of trials at all points")
            trials = len(table[0])
            chosen = np.random.default_rng(0).integers(trials, size=(RESAMPLES, trials))
            middles[name] = np.median(table, axis=1)
            if trials >= FEWEST:
                replicates = np.array([np.median(one[chosen], axis=1) for one in table])
    if len(words) != points or not all(isinstance(word, str) and word in ("", "above", "below") for word in words):
        raise ValueError(
            f"censored = {short_repr(words)} must contain '', 'above' or 'below' for each of {points} points"
        )
    sides = np.array([{"": 0, "above": ABOVE, "below": BELOW}[word] for word in words])
    values = np.broadcast_to(formulas.value(model.left, middles.__getitem__), (points,))
    logs = logarithm(np.asarray(values, dtype=float), model.left_text)
    if replicates is not None:
        several = {k: v[:, None] for k, v in middles.items()} | {grows[0]: replicates}
        left = np.broadcast_to(formulas.value(model.left, several.__getitem__), replicates.shape)
        replicates = np.log(np.maximum(left, 1e-3 * np.exp(logs)[:, None]))
        replicates = np.where(sides[:, None] == 0, replicates, logs[:, None])
    whole = all(_is_whole(columns, name) for name in formulas.names(model.left))
    return _Left(logs, sides, replicates, int(np.sum((sides == 0) & (logs <= ROUNDING))) if whole else 0)


def _is_whole(columns: Columns, name: str) -> bool:
    """Return whether a column has whole numbers; of a table of `lf.find_smallest`, whether the searched sizes are."""
    column = columns.name(name)
    found = columns.values[column]
    if column == columns.answers:
        found = [one for one, word in zip(found, columns.values["censored"], strict=True) if not word]
    return all(np.all(np.asarray(one, dtype=float) % 1 == 0) for one in found)


def _fewest(share: float) -> float:
    """Return the smallest number of trials that bound the size at which a share of them succeeds."""
    return max(FEWEST, math.log(0.025) / math.log(max(share, 1.0 - share)))


def _of_trials(columns: Columns, name: str) -> bool:
    column = columns.name(name)
    return column == columns.answers or formulas.axes(columns.values[column][0]) == 1


def _design(model: Formula, columns: Columns, points: int) -> tuple[Array, dict[str, Array]]:
    """Return the logarithm of the factors without a free exponent, and of each exponent's factors."""
    base = np.zeros(points)
    factors = {name: np.zeros(points) for name in model.exponents}
    for factor in model.factors:
        values = np.asarray(formulas.value(factor.base, columns.numbers), dtype=float)
        logs = factor.power * logarithm(np.broadcast_to(values, (points,)), formulas.written(factor.base))
        if factor.exponent:
            factors[factor.exponent] += logs
        else:
            base += logs
    return base, factors


def _check_rank(design: Array, exponents: list[str], points: str) -> None:
    if not len(design):
        raise UndeterminedError("every point is censored; a law needs points that are not")
    for number, name in enumerate(exponents, start=1):
        if np.linalg.matrix_rank(design[:, : number + 1]) <= number:
            raise UndeterminedError(
                f"the exponent {name!r} is not determined: {points} its factor is constant, or a product of powers of "
                "the factors before it; use more points or fewer exponents"
            )


# --- the fit -------------------------------------------------------------------------------------------------


def _solved(design: Array, logs: Array, sides: npt.NDArray[np.intp], first: Array | None = None) -> tuple[Array, float]:
    """Return the coefficients and the scatter, by least squares or maximum likelihood with censored points."""
    uncensored = sides == 0
    if uncensored.all():
        free = np.asarray(np.linalg.lstsq(design, logs)[0], dtype=float)
        freedom = len(logs) - design.shape[1]
        return free, float(np.sqrt(np.sum((logs - design @ free) ** 2) / freedom)) if freedom else 0.0
    from scipy import optimize, stats

    if first is None:
        free = np.linalg.lstsq(design[uncensored], logs[uncensored])[0]
        scatter = max(float(np.std(logs[uncensored] - design[uncensored] @ free)), 10 * SMALLEST_SCATTER)
        first = np.append(free, np.log(scatter))
    beyond = sides[~uncensored]

    def loss(at: Array) -> tuple[float, Array]:
        scale = np.exp(at[-1])
        missed = (logs - design @ at[:-1]) / scale
        out = -beyond * missed[~uncensored]  # P(beyond the bound) = P(standard normal < out)
        hazard = np.exp(stats.norm.logpdf(out) - stats.norm.logcdf(out))
        value = np.sum(missed[uncensored] ** 2) / 2 + uncensored.sum() * at[-1] - np.sum(stats.norm.logcdf(out))
        pull = np.zeros(len(logs))
        pull[uncensored] = missed[uncensored]
        pull[~uncensored] = beyond * hazard
        of_scale = uncensored.sum() - np.sum(missed[uncensored] ** 2) + np.sum(hazard * out)
        return float(value), np.append(-(design.T @ pull) / scale, of_scale)

    bounds = [(None, None)] * design.shape[1] + [(np.log(SMALLEST_SCATTER), None)]
    found = optimize.minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}).x
    return found[:-1], float(np.exp(found[-1]))


def _intervals(
    design: Array,
    logs: Array,
    uncensored: npt.NDArray[np.bool_],
    free: Array,
    replicates: Array | None,
    ends: tuple[float, float],
) -> list[tuple[float, float]]:
    """Return the interval of each coefficient."""
    inverse = np.linalg.pinv(design[uncensored])
    rounding = ROUNDING * np.abs(inverse).sum(axis=1)
    if replicates is not None:
        low, high = np.percentile(replicates, ends, axis=1)
    else:
        from scipy import stats

        freedom = int(uncensored.sum()) - design.shape[1]
        if freedom < 1:
            return [(-np.inf, np.inf)] * len(free)
        left = logs[uncensored] - design[uncensored] @ free
        reach = stats.t.ppf(ends[1] / 100, freedom) * np.sqrt(left @ left / freedom * np.sum(inverse**2, axis=1))
        low, high = free - reach, free + reach
    return [(float(at), float(to)) for at, to in zip(low - rounding, high + rounding, strict=True)]


def _of_replicates(design: Array, sides: npt.NDArray[np.intp], resampled: Array) -> Array:
    """Return the coefficients of every replicate, (coefficients, replicates)."""
    if not sides.any():
        return np.asarray(np.linalg.lstsq(design, resampled)[0], dtype=float)
    free, scatter = _solved(design, resampled[:, 0], sides)
    first = np.append(free, np.log(scatter))
    return np.array([_solved(design, one, sides, first)[0] for one in resampled.T[:CENSORED_RESAMPLES]]).T


def _curvatures(
    design: Array,
    logs: Array,
    sides: npt.NDArray[np.intp],
    exponents: list[str],
    resampled: Array | None,
    ends: tuple[float, float],
) -> dict[str, Measured]:
    """Return, for each factor separately, twice the coefficient of its squared logarithm, added to the power law."""
    found = {}
    for number, name in enumerate(exponents, start=1):
        bent = np.column_stack([design, (design[:, number] - design[:, number].mean()) ** 2])
        uncensored = sides == 0
        if np.linalg.matrix_rank(bent[uncensored]) < bent.shape[1] or (
            resampled is None and uncensored.sum() <= bent.shape[1]
        ):
            continue
        free, _ = _solved(bent, logs, sides)
        replicates = None if resampled is None else _of_replicates(bent, sides, resampled)
        low, high = _intervals(bent, logs, uncensored, free, replicates, ends)[-1]
        found[name] = (2 * float(free[-1]), 2 * low, 2 * high)
    return found


def _p_value(design: Array, residuals: Array, replicates: Array | None, resampled: Array | None) -> float:
    """Return the p-value of the sum of squared residuals, by a scaled chi^2; NaN if trials do not vary."""
    if replicates is None or resampled is None or len(residuals) <= design.shape[1]:
        return float("nan")
    from scipy import stats

    covariance = np.cov(resampled[:, : replicates.shape[1]] - design @ replicates)
    mean, square = np.trace(covariance), np.sum(covariance**2)
    if not mean > len(residuals) * ROUNDING**2:
        return float("nan")
    return float(stats.chi2.sf(residuals @ residuals * mean / square, mean**2 / square))
