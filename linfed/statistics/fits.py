"""Fits of power laws: one exponent (`fit_exponent`), or several jointly, with offsets and censored points (`fit`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_array, check_number, check_shape, shown
from linfed.statistics import formulas
from linfed.statistics.formulas import Columns, Formula, logarithm, told
from linfed.statistics.intervals import Measured, bootstrap_interval

RESAMPLES = 400
"""Bootstrap replicates of columns with trials."""

CENSORED_RESAMPLES = 100
"""Replicates where points are censored, each of which is an optimisation."""

SMALLEST_SCATTER = 1e-4
"""Least standard deviation, in the logarithm, that a fit with censored points may come to."""

ROUNDING = 1e-10
"""Error of a logarithm that may be rounding, of a left side such as m - k - 1, which cancels digits."""

BELOW, ABOVE = -1, 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A fitted power law: what `fit` returns.

    Parameters
    ----------
    formula : str
    exponents : dict of str to (estimate, low, high)
        The free ones, with 95 % intervals.
    constant : (estimate, low, high)
        The factor C before the product.
    fitted : ndarray (points,)
        What the law says of the left side.
    residuals : ndarray (points,)
        Logarithm of the measured over the fitted; NaN where censored.
    spread : ndarray (points,)
        Standard deviation of each point's logarithm over trials; NaN where none is known.
    scatter : float
        Standard deviation about the law, in the logarithm.
    curvature : dict of str to (estimate, low, high)
        Of each exponent's factor, how the exponent changes over a factor e of its base: 0 of a power law. The interval
        allows for rounding errors of `ROUNDING` in every logarithm, as all intervals do.
    p_value : float
        Probability of residuals as large as these if the law held and trials alone scattered; NaN without trials, or
        without more points than coefficients.
    reached, above, below : int
        Points that are known, and that are censored.
    over : str
        Of what the intervals tell: "trials", or "residuals".
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
    over: str

    @property
    def points(self) -> int:
        """All points, censored ones too."""
        return len(self.fitted)

    @property
    def worst(self) -> float:
        """The largest factor between a measured point and the law."""
        return float(np.exp(np.nanmax(np.abs(self.residuals))))

    @property
    def bent(self) -> tuple[str, ...]:
        """The exponents whose curvature is not 0: its interval excludes it, as each does in 5 % of true laws."""
        return tuple(name for name, (_, low, high) in self.curvature.items() if low > 0 or high < 0)

    def __str__(self) -> str:
        law = f"{self.formula}, constant {told(self.constant[0])} [{told(self.constant[1])}, {told(self.constant[2])}]"
        found = "".join(f", {k} = {v:.3f} [{low:.3f}, {high:.3f}]" for k, (v, low, high) in self.exponents.items())
        sides = ", ".join(f"{count} {side}" for side, count in (("above", self.above), ("below", self.below)) if count)
        reached = f"{self.reached} of {self.points} reached" + (f" ({sides})" if sides else "")
        bends = ", ".join(f"{k} by {self.curvature[k][0]:+.2f}" for k in self.bent)
        bent = f"; bent: {bends}" if bends else "; no bend seen" if self.curvature else ""
        lack = "" if np.isnan(self.p_value) else f", p = {self.p_value:.2g} if trials alone scattered"
        return f"{law}{found}; {reached}; within a factor {self.worst:.3f}{lack}{bent} (95 % over {self.over})"


def fit(
    formula: str,
    table: Any,
    *,
    censored: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> Fit:
    """Fit a power law with an offset, jointly in all its exponents.

    Parameters
    ----------
    formula : str
        ``"m - k - 1 ~ n^a d^b k^c"``: on the left what grows, an expression of columns; on the right a product of
        expressions to free exponents (names), to numbers, or to none; ``/`` divides. A constant factor is understood.
        ``log``, ``sqrt`` and ``exp`` are known: ``"m - k - 1 ~ n^-1 d^b log(n)^e"``. Names are columns, the last part
        of their names, or the papers' letters: n, m, d, k, p, kappa, sigma, eta, t.
    table : Table, or mapping of names to columns
        The table of `lf.least`, whose least sizes are then known between whole numbers, with replicates over trials and
        what is censored. Or any other table or mapping of columns: numbers, (points,), or of what is on the left alone
        (points, trials), whose median is fitted.
    censored : sequence of str, optional
        Of each point "", "above" where only a lower bound is known and given, or "below"; of `lf.least` not needed.
    confidence : float
        Of the intervals.

    Returns
    -------
    Fit

    Raises
    ------
    ValueError
        For a formula that cannot be read, a name that is no column, sides that are not positive, or factors that
        cannot be told apart over these points.

    Notes
    -----
    Least squares in the logarithm, every point alike. With censored points it is the maximum of the normal likelihood,
    in which such a point counts with the probability of lying beyond its bound (Tobin 1958): leaving them out would
    bias every exponent towards the points that succeed.

    Intervals are percentiles of a bootstrap over trials, resampled together at all points; their measured coverage at
    95 % is 0.94 to 0.97 with 10, 20 and 50 lognormal trials. They say how well trials
    determine the exponents of *this* law; whether it is one, `residuals`, `p_value` and `curvature` say. Without trials
    they are Student's, of the residuals.

    `p_value` is of the sum of squared residuals. Under the law it is a weighted sum of chi^2, as trials scatter more at
    some points than at others and may be shared between points; its mean and variance follow from the covariance of the
    replicates' residuals, and a scaled chi^2 with these two is taken for it (Box 1954). At a level of 5 % a true law is
    rejected in 0 to 8 % of tables, measured with 10, 20 and 50 trials, 5 to 25 points, and spreads that are equal or
    tenfold apart, of independent and of shared trials.

    The offset is part of the model: fitted to m itself, ``m = k + 1 + C d k/n`` would have exponents that are none.

    **Deviations**: none.

    References
    ----------
    Tobin 1958, Estimation of relationships for limited dependent variables, Econometrica 26.
    Box 1954, Some theorems on quadratic forms applied in the study of analysis of variance problems, Annals of
    Mathematical Statistics 25.

    Examples
    --------
    >>> import linfed as lf
    >>> n, d = [50, 100, 200, 100, 100], [40, 40, 40, 20, 80]
    >>> found = lf.fit("m - 3 ~ n^a d^b", {"n": n, "d": d, "m": [3 + 2 * y / x for x, y in zip(n, d)]})
    >>> {name: round(value[0], 9) for name, value in found.exponents.items()}
    {'a': -1.0, 'b': 1.0}
    """
    model = formulas.parsed(formula)
    confidence = check_number("confidence", confidence, minimum=0.0, maximum=1.0)
    columns = Columns.of(table)
    left = _left(model, columns, censored)
    base, factors = _design(model, columns, len(left.logs))
    design = np.column_stack([np.ones(len(left.logs)), *factors.values()])
    known = left.sides == 0
    _check_rank(design, list(factors), f"over these {len(design)} points")
    if not known.all():
        some = f"over the {known.sum()} of {len(design)} points that are not censored"
        _check_rank(design[known], list(factors), some)
    logs = left.logs - base
    free, scatter = _solved(design, logs, left.sides)
    resampled = None if left.replicates is None else left.replicates - base[:, None]
    ends = (50 * (1 - confidence), 50 * (1 + confidence))
    replicates = None if resampled is None else _of_replicates(design, left.sides, resampled)
    intervals = _intervals(design, logs, known, free, replicates, ends)
    residuals = np.where(known, logs - design @ free, np.nan)
    spread = np.full(len(logs), np.nan) if resampled is None else np.where(known, resampled.std(axis=1), np.nan)
    return Fit(
        formula=formula,
        exponents={name: (float(free[i]), *intervals[i]) for i, name in enumerate(factors, start=1)},
        constant=(float(np.exp(free[0])), float(np.exp(intervals[0][0])), float(np.exp(intervals[0][1]))),
        fitted=np.exp(design @ free + base),
        residuals=residuals,
        spread=spread,
        scatter=scatter,
        curvature=_curvatures(design, logs, left.sides, list(factors), resampled, ends),
        p_value=_p_value(design[known], residuals[known], replicates, None if resampled is None else resampled[known]),
        reached=int(known.sum()),
        above=int(np.sum(left.sides == ABOVE)),
        below=int(np.sum(left.sides == BELOW)),
        over="residuals" if resampled is None else "trials",
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
        Whether a row is one trial at all sizes: trials that share a seed are resampled together, which is right for
        independent columns too. False resamples every column by itself.

    Returns
    -------
    estimate, low, high : float
        Slope of the least-squares line through ``(log x, log median)``; 95 % percentile bootstrap over trials, whose
        measured coverage for lognormal trials at four sizes is 0.94 to 0.97 with 10, 20 and 50 of them.

    Raises
    ------
    ValueError
        For shapes that do not fit, or numbers that are not positive and finite.

    Notes
    -----
    `fit` fits several exponents jointly, with an offset and censored points; its intervals come from other resamples.

    Examples
    --------
    >>> from linfed.statistics.fits import fit_exponent
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
    logs = np.log(sizes) - np.log(sizes).mean()

    def slope(*columns: Array, axis: int = 0) -> Array:
        return np.stack([np.log(np.median(column, axis=axis)) for column in columns], axis=-1) @ logs / (logs @ logs)

    interval = bootstrap_interval(slope, list(table.T), paired=paired, vectorized=True, resamples=500)
    return (float(slope(*table.T)), *interval)


# --- columns -------------------------------------------------------------------------------------------------


class _Left(NamedTuple):
    """Logarithms of the left side (points,), which are bounds where a side is not 0; and of its replicates."""

    logs: Array
    sides: npt.NDArray[np.intp]
    replicates: Array | None


def _left(model: Formula, columns: Columns, censored: Sequence[str] | None) -> _Left:
    grows = [name for name in formulas.names(model.left) if _of_trials(columns, name)]
    if len(grows) > 1:
        raise ValueError(f"formula = {shown(model.text)}: {grows} have trials; one column of the left side may")
    points = len(next(iter(columns.values.values())))
    words = [""] * points if censored is None else list(censored)
    replicates: Array | None = None
    middles = {name: columns.numbers(name) for name in formulas.names(model.left) if name not in grows}
    for name in grows:
        column = columns.name(name)
        if column == columns.answers:
            words = columns.values["censored"]
            bounds = {"above": columns.values["low"], "below": columns.values["high"], "": columns.values["crossing"]}
            middles[name] = np.array([bounds[word][i] for i, word in enumerate(words)], dtype=float)
            replicates = np.array(columns.values["replicates"], dtype=float)
        else:
            table = [np.asarray(one, dtype=float) for one in columns.values[column]]
            if len({len(one) for one in table}) != 1:
                raise ValueError(f"the formula's {name!r} has different numbers of trials at its points")
            trials = len(table[0])
            chosen = np.random.default_rng(0).integers(trials, size=(RESAMPLES, trials))
            middles[name] = np.median(table, axis=1)
            replicates = np.array([np.median(one[chosen], axis=1) for one in table])
    if len(words) != points or not set(words) <= {"", "above", "below"}:
        raise ValueError(f"censored = {shown(words)} must hold '', 'above' or 'below' for each of {points} points")
    sides = np.array([{"": 0, "above": ABOVE, "below": BELOW}[word] for word in words])
    values = np.broadcast_to(formulas.value(model.left, middles.__getitem__), (points,))
    logs = logarithm(np.asarray(values, dtype=float), model.left_text)
    if replicates is not None:
        several = {k: v[:, None] for k, v in middles.items()} | {grows[0]: replicates}
        left = np.broadcast_to(formulas.value(model.left, several.__getitem__), replicates.shape)
        replicates = np.log(np.maximum(left, 1e-3 * np.exp(logs)[:, None]))
        replicates = np.where(sides[:, None] == 0, replicates, logs[:, None])
    return _Left(logs, sides, replicates)


def _of_trials(columns: Columns, name: str) -> bool:
    column = columns.name(name)
    return column == columns.answers or np.ndim(columns.values[column][0]) == 1


def _design(model: Formula, columns: Columns, points: int) -> tuple[Array, dict[str, Array]]:
    """Return the logarithm of what has no free exponent, and of each exponent's factors."""
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
        raise ValueError("every point is censored; a law needs points that are not")
    for number, name in enumerate(exponents, start=1):
        if np.linalg.matrix_rank(design[:, : number + 1]) <= number:
            raise ValueError(
                f"the exponent {name!r} cannot be told: {points} its factor is constant, or a product of powers of "
                "those before it"
            )


# --- the fit -------------------------------------------------------------------------------------------------


def _solved(design: Array, logs: Array, sides: npt.NDArray[np.intp], first: Array | None = None) -> tuple[Array, float]:
    """Return the coefficients and the scatter: least squares, or the censored likelihood's maximum."""
    known = sides == 0
    if known.all():
        free = np.asarray(np.linalg.lstsq(design, logs)[0], dtype=float)
        freedom = len(logs) - design.shape[1]
        return free, float(np.sqrt(np.sum((logs - design @ free) ** 2) / freedom)) if freedom else 0.0
    from scipy import optimize, stats

    if first is None:
        free = np.linalg.lstsq(design[known], logs[known])[0]
        scatter = max(float(np.std(logs[known] - design[known] @ free)), 10 * SMALLEST_SCATTER)
        first = np.append(free, np.log(scatter))
    beyond = sides[~known]

    def loss(at: Array) -> tuple[float, Array]:
        scale = np.exp(at[-1])
        missed = (logs - design @ at[:-1]) / scale
        out = -beyond * missed[~known]  # log-probability of lying beyond the bound is that of a normal below `out`
        hazard = np.exp(stats.norm.logpdf(out) - stats.norm.logcdf(out))
        value = np.sum(missed[known] ** 2) / 2 + known.sum() * at[-1] - np.sum(stats.norm.logcdf(out))
        pull = np.zeros(len(logs))
        pull[known] = missed[known]
        pull[~known] = beyond * hazard
        of_scale = known.sum() - np.sum(missed[known] ** 2) + np.sum(hazard * out)
        return float(value), np.append(-(design.T @ pull) / scale, of_scale)

    bounds = [(None, None)] * design.shape[1] + [(np.log(SMALLEST_SCATTER), None)]
    found = optimize.minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}).x
    return found[:-1], float(np.exp(found[-1]))


def _intervals(
    design: Array,
    logs: Array,
    known: npt.NDArray[np.bool_],
    free: Array,
    replicates: Array | None,
    ends: tuple[float, float],
) -> list[tuple[float, float]]:
    """Return each coefficient's interval."""
    inverse = np.linalg.pinv(design[known])
    rounding = ROUNDING * np.abs(inverse).sum(axis=1)
    if replicates is not None:
        low, high = np.percentile(replicates, ends, axis=1)
    else:
        from scipy import stats

        freedom = int(known.sum()) - design.shape[1]
        if freedom < 1:
            return [(-np.inf, np.inf)] * len(free)
        left = logs[known] - design[known] @ free
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
    """Return, of each factor alone, twice the coefficient of its squared logarithm beside the law."""
    found = {}
    for number, name in enumerate(exponents, start=1):
        bent = np.column_stack([design, (design[:, number] - design[:, number].mean()) ** 2])
        known = sides == 0
        if np.linalg.matrix_rank(bent[known]) < bent.shape[1] or (resampled is None and known.sum() <= bent.shape[1]):
            continue
        free, _ = _solved(bent, logs, sides)
        replicates = None if resampled is None else _of_replicates(bent, sides, resampled)
        low, high = _intervals(bent, logs, known, free, replicates, ends)[-1]
        found[name] = (2 * float(free[-1]), 2 * low, 2 * high)
    return found


def _p_value(design: Array, residuals: Array, replicates: Array | None, resampled: Array | None) -> float:
    """Return the probability of such a sum of squared residuals, by a scaled chi^2; NaN without scatter over trials."""
    if replicates is None or resampled is None or len(residuals) <= design.shape[1]:
        return float("nan")
    from scipy import stats

    covariance = np.cov(resampled[:, : replicates.shape[1]] - design @ replicates)
    mean, square = np.trace(covariance), np.sum(covariance**2)
    if not mean > len(residuals) * ROUNDING**2:
        return float("nan")
    return float(stats.chi2.sf(residuals @ residuals * mean / square, mean**2 / square))
