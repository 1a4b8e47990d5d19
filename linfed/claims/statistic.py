"""Statistics that a claim measures on its rows."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import check_choice, check_number
from linfed.claims.ranges import MOST, Range, at_least, at_most, near
from linfed.claims.rows import Parts, Where, of
from linfed.statistics import formulas
from linfed.statistics.findings import (
    Finding,
    join_notes,
    judge,
    judge_exponent,
    judge_failures,
    judge_identity,
    judge_share,
    judge_smaller,
)
from linfed.statistics.fits import UndeterminedError, fit_exponent, fit_power_law
from linfed.statistics.intervals import Measured, largest_factor, largest_of, median_interval, median_ratio
from linfed.tables.table import Table

Judge: TypeAlias = Callable[..., "Finding | None"]
"""Function of the rows of a finding, and of the other fields of the finding as keywords.

It returns None if the rows do not suffice, e.g. if they lack one of two methods; then the claim is not asked of them.
"""


Column: TypeAlias = str | Callable[[Table], Array]
"""Values of a row: the name of a column, or a function of the row."""


def _values(row: Table, column: Column) -> Array:
    values: Array = column(row) if callable(column) else row[column]
    return values


def stacked(rows: Iterable[Table], column: Column) -> Array:
    """Return a column of several rows as one array (trials, rows); the column is a name, or a function of a row.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"n": n, "error": [scale / n for scale in (10, 20, 30)]} for n in (10, 20)])
    >>> c.stacked(table, "error")
    array([[1. , 0.5],
           [2. , 1. ],
           [3. , 1.5]])
    """
    return np.stack([_values(row, column) for row in rows], axis=1)


def _all(table: Table) -> Table:
    return table


@dataclass(frozen=True)
class Statistic:
    """Measured quantity of a claim.

    Parameters
    ----------
    words : str
        Name of the statistic, with the columns of its rows in braces, as in `Claim.setting`.
    judge : function
        Returns the finding for the rows of a setting, or None if they do not suffice. It is called with these rows and
        with the fields ``claim``, ``setting``, ``source``, ``statistic`` and the required range as keywords, as the
        judges of `linfed.statistics` are.
    required : Range, optional
        Range that a claim with this statistic requires, unless the claim has another one. Without any, the judge
        supplies the range.
    rows : function, optional
        Chooses the rows of a setting that the statistic uses, e.g. ``of(method=["FedRep", "FedAvg"])``; all by default.
    by : str, optional
        Column with the names of the methods, for the remark on hyper-parameters at the edge of their grid.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> from linfed.statistics import judge, median_interval
    >>> def judge_small(row, **fields):
    ...     return judge(median_interval(row["error"]), claimed_high=0.1, **fields)
    >>> claim = c.Claim("The error is small", c.OWN_THRESHOLD, c.Statistic("median error", judge_small))
    >>> c.judged([claim], {"runs": lf.Table([{"error": [0.01, 0.02, 0.03, 0.02, 0.01, 0.02]}])})[0].claimed_range
    'at most 0.1'
    """

    words: str
    judge: Judge
    required: Range | None = None
    rows: Where = _all
    by: str = "method"


class FittedExponent(Statistic):
    """Fitted exponent. Its words state the required range, so a claim cannot require another one."""


class Measurement(NamedTuple):
    """Value of a statistic, with more than its interval.

    Parameters
    ----------
    value : tuple of float
        Estimate, and lower and upper end of the 95 % confidence interval.
    detail, note, vacuous : str
        As in `Finding`.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> c.Measurement((0.2, 0.1, 0.3), detail="11 of 55").note
    ''
    """

    value: Measured
    detail: str = ""
    note: str = ""
    vacuous: str = ""


def measured(
    words: str,
    measure: Callable[..., Measured | Measurement | None],
    required: Range | None = None,
    *,
    rows: Where = _all,
) -> Statistic:
    """Return a statistic from a function of the rows.

    Parameters
    ----------
    words : str
        Name of the statistic.
    measure : function
        Takes the rows of a finding, and returns the estimate with its interval, a `Measurement`, or None if the rows do
        not suffice.
    required, rows
        As in `Statistic`.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> from linfed.statistics import median_interval
    >>> claim = c.Claim("The error is small", c.OWN_THRESHOLD,
    ...                 c.measured("median error", lambda row: median_interval(row["error"])), c.at_most(0.1))
    >>> table = lf.Table([{"error": [0.01, 0.02, 0.03, 0.02, 0.01, 0.02]}])
    >>> c.judged([claim], {"runs": table})[0].verdict.value
    'SUPPORTED'
    """

    def found(*parts: Table, **fields: Any) -> Finding | None:
        value = measure(*parts)
        if value is None:
            return None
        one = value if isinstance(value, Measurement) else Measurement(value)
        more = {name: text for name, text in one._asdict().items() if name != "value" and text}
        note = join_notes(one.note, fields.get("note", ""))
        return judge(one.value, **more | fields | {"note": note})

    return Statistic(words, found, required, rows)


def median(
    column: Column | Callable[..., Array], words: str, required: Range | None = None, *, rows: Where = _all
) -> Statistic:
    """Return the median over trials of a column, or of a function of the rows of a finding.

    Parameters
    ----------
    column : str or function
        Column (trials,) of the single row of a finding, or a function that returns such values for the rows of a
        finding. NaN (a diverged trial) counts as infinite.
    words : str
        Name of the statistic.
    required, rows
        As in `Statistic`.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> claim = c.Claim("The error is half the predicted one", c.OWN_PREDICTION,
    ...                 c.median(lambda row: row["error"] / row["law"], "error / prediction", c.near(0.5, 0.1)))
    >>> table = lf.Table([{"error": np.array([1.0, 1.1, 0.9, 1.0, 1.0, 0.9]), "law": 2.0}])
    >>> c.judged([claim], {"runs": table})[0].verdict.value
    'SUPPORTED'
    """

    def measure(*parts: Table) -> Measured:
        return median_interval(column(*parts) if callable(column) else parts[0][column])

    return measured(words, measure, required, rows=rows)


# --- two methods -----------------------------------------------------------------------------------------------------


def compared(
    words: str, first: Any, second: Any, judge: Judge, required: Range | None = None, *, by: str = "method"
) -> Statistic:
    """Return a statistic of the rows of two methods; the rows do not suffice unless both methods have one.

    Several rows of a method raise ValueError.

    Parameters
    ----------
    words : str
        Name of the statistic.
    first, second : object
        Values of the column `by`.
    judge : function
        Returns the finding for the two rows, see `Statistic`.
    required : Range, optional
        Range that a claim requires, unless it has another one.
    by : str, optional
        Column with the names of the methods.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> from linfed.statistics import judge, median_interval
    >>> def judge_difference(one, other, **fields):
    ...     return judge(median_interval(other["error"] - one["error"]), **fields)
    >>> claim = c.Claim("B has a larger error than A", c.OWN_PREDICTION,
    ...                 c.compared("difference", "A", "B", judge_difference, c.above(0.0)))
    >>> table = lf.Table([{"method": "A", "error": np.full(8, 1.0)}, {"method": "B", "error": np.full(8, 2.0)}])
    >>> c.judged([claim], {"runs": table})[0].estimate
    1.0
    """

    def found(part: Table, **fields: Any) -> Finding | None:
        rows = part.select(**{by: first}), part.select(**{by: second})
        for name, one in zip((first, second), rows, strict=True):
            if len(one) > 1:
                raise ValueError(f"{len(one)} rows have {by} = {name!r}: choose one of them with where= or over=")
        return judge(*rows, **fields) if all(map(len, rows)) else None

    return Statistic(words, found, required, of(**{by: [first, second]}), by)


def smaller(column: Column, first: Any, second: Any, words: str, *, by: str = "method") -> Statistic:
    """Return the share of paired trials in which the first method has the smaller value; ties are left out.

    The column is a name, or a function of a row. The required range is above 0.5 unless the claim has another one.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"method": "A", "error": [1.0] * 8}, {"method": "B", "error": [2.0] * 8}])
    >>> claim = c.Claim("A has a smaller error than B", c.OWN_PREDICTION,
    ...                 c.smaller("error", "A", "B", "share of trials"))
    >>> c.judged([claim], {"runs": table})[0].detail
    '8 of 8'

    Methods may stand in another column, here with a tuned step size:

    >>> rows = [{"pair": pair, "error": [1 + (pair == "B")] * 8, "at_grid_edge": "step_size"} for pair in ("A", "B")]
    >>> claim = c.Claim("A is better", c.OWN_PREDICTION, c.smaller("error", "A", "B", "share of trials", by="pair"))
    >>> c.judged([claim], {"runs": lf.Table(rows)})[0].note
    'the best step of A and B lies at the edge of the grid'
    """

    def finding(one: Table, other: Table, **fields: Any) -> Finding:
        return judge_smaller(_values(one, column), _values(other, column), **fields)

    return compared(words, first, second, finding, MOST, by=by)


def ratio(
    column: Column,
    first: Any,
    second: Any,
    words: str,
    required: Range | None = None,
    *,
    by: str = "method",
    measure: Callable[..., Measured] = median_ratio,
) -> Statistic:
    """Return the ratio of a column of two methods: of the medians over trials, or another `measure` of two arrays.

    The column is a name, or a function of a row.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"method": "A", "error": [1.0] * 8}, {"method": "B", "error": [2.0] * 8}])
    >>> claim = c.Claim("B has twice the error of A", c.OWN_PREDICTION,
    ...                 c.ratio("error", "B", "A", "ratio of the medians", c.near(2.0, 0.1)))
    >>> c.judged([claim], {"runs": table})[0].estimate
    2.0

    A function of a row, here the error after the last round:

    >>> curves = lf.Table([{"method": name, "error": lf.LabeledArray([[1.0, end]] * 8, round=[0, 1])}
    ...                    for name, end in (("A", 0.1), ("B", 0.3))])
    >>> last = c.ratio(lambda row: row["error"][:, -1], "A", "B", "ratio of the final errors", c.below(1.0))
    >>> round(c.judged([c.Claim("A is better", c.OWN_PREDICTION, last)], {"runs": curves})[0].estimate, 3)
    0.333
    """

    def judge_ratio(one: Table, other: Table, **fields: Any) -> Finding:
        return judge(measure(_values(one, column), _values(other, column)), **fields)

    return compared(words, first, second, judge_ratio, required, by=by)


def smaller_after(column: Column, words: str) -> Statistic:
    """Return the probability of a smaller value in the second of two rows, whose trials are independent.

    The column is a name, or a function of a row. The required range is above 0.5 unless the claim has another one.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"n": 10, "error": [2.0, 2.1] * 8}, {"n": 20, "error": [1.0, 1.1] * 8}])
    >>> claim = c.Claim("More clients have a smaller error", c.OWN_PREDICTION,
    ...                 c.smaller_after("error", "P(smaller error)"), over=c.successive("n"))
    >>> c.judged([claim], {"runs": table})[0].verdict.value
    'SUPPORTED'
    """

    def later(*parts: Table, **fields: Any) -> Finding:
        if [len(part) for part in parts] != [1, 1]:
            counts = " and ".join(str(len(part)) for part in parts)
            raise ValueError(f"smaller_after(..) compares two rows, got {counts}: choose them with where= and over=")
        before, after = parts
        return judge_smaller(_values(after, column), _values(before, column), paired=False, **fields)

    return Statistic(words, later, MOST)


# --- many trials or rows ---------------------------------------------------------------------------------------------


def share(
    hits: Callable[..., Any],
    words: str,
    required: Range | None = None,
    *,
    clusters: Callable[..., npt.ArrayLike] | None = None,
) -> Statistic:
    """Return the share of hits; VACUOUS without any point.

    Parameters
    ----------
    hits : function
        Returns for the rows of a finding a boolean array (points,) or (clusters, ..), or None if the rows do not
        suffice.
    words : str
        Name of the statistic.
    required : Range, optional
        Range that a claim requires, unless it has another one.
    clusters : function, optional
        Returns the cluster of each point, or of each row of the hits, for points that are not independent, as in
        `linfed.statistics.judge_share`.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> claim = c.Claim("Most runs converge", c.OWN_THRESHOLD,
    ...                 c.share(lambda row: row["error"] < 0.1, "share of trials", c.at_least(0.5)))
    >>> c.judged([claim], {"runs": lf.Table([{"error": np.repeat([0.01, 0.2], [19, 1])}])})[0].detail
    '19 of 20'
    """

    def finding(*parts: Table, **fields: Any) -> Finding | None:
        found = hits(*parts)
        if found is None:
            return None
        low = fields.pop("claimed_low", -math.inf)
        return judge_share(found, low, clusters=None if clusters is None else clusters(*parts), **fields)

    return Statistic(words, finding, required)


def failures(
    failed: Callable[..., Any], words: str, allowed: float, *, premise: Callable[..., Any] | None = None
) -> Statistic:
    """Return the share of trials in which a bound fails, which may be at most `allowed`.

    Parameters
    ----------
    failed : function
        Returns for the rows of a finding a boolean array (trials,), or None if the rows do not suffice.
    words : str
        Name of the statistic.
    allowed : float
        Largest allowed share.
    premise : function, optional
        Returns the trials in which the premise holds; the others do not count.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> claim = c.Claim("The bound holds with probability 0.9", c.reading("FedRep paper, Theorem 1"),
    ...                 c.failures(lambda row: row["error"] > row["bound"], "share of trials above the bound", 0.1))
    >>> c.judged([claim], {"runs": lf.Table([{"error": np.full(50, 0.1), "bound": np.full(50, 0.2)}])})[0].verdict.value
    'HOLDS'
    """

    def finding(*parts: Table, **fields: Any) -> Finding | None:
        found = failed(*parts)
        if found is None:
            return None
        return judge_failures(found, allowed=allowed, premise=None if premise is None else premise(*parts), **fields)

    return Statistic(words, finding, at_most(check_number("allowed", allowed, minimum=0.0, maximum=1.0)))


def identity(gaps: Callable[..., Any], words: str, tolerance: float) -> Statistic:
    """Return the largest violation of an identity or inequality in any trial, which rounding errors must explain.

    Parameters
    ----------
    gaps : function
        Returns for the rows of a finding the violations (trials, ..), NaN where they were not evaluated; or None if the
        rows do not suffice.
    words : str
        Name of the statistic.
    tolerance : float
        Largest violation that rounding errors can cause.

    Notes
    -----
    The verdicts are HOLDS and VIOLATED; with ``theorem=False`` in the claim, SUPPORTED and NOT SUPPORTED.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> claim = c.Claim("Both sides are equal", c.OWN_PREDICTION,
    ...                 c.identity(lambda row: row["gap"], "largest difference", 1e-10))
    >>> c.judged([claim], {"runs": lf.Table([{"gap": [1e-15, 3e-16]}])})[0].verdict.value
    'HOLDS'
    """

    def finding(*parts: Table, **fields: Any) -> Finding | None:
        found = gaps(*parts)
        return None if found is None else judge_identity(found, tolerance=tolerance, **fields)

    return Statistic(words, finding, at_most(check_number("tolerance", tolerance, minimum=0.0)))


def worst(
    interval: Callable[..., Measured],
    samples: Callable[[Table], Sequence[Any] | None],
    at: Callable[[Table], str] | str,
    words: str,
    required: Range | None = None,
) -> Statistic:
    """Return the largest of a statistic over rows, with an interval that holds for all rows together.

    Parameters
    ----------
    interval : function
        Takes samples and ``confidence=``, and returns an estimate with its interval, e.g.
        `linfed.statistics.median_ratio`.
    samples : function
        Returns the arguments of `interval` for one row, or None if the row does not count.
    at : str or function
        Text about the row with the largest estimate, with the columns of the row in braces, or a function of the row.
        ``{points}`` is the number of rows that count.
    words : str
        Name of the statistic.
    required : Range, optional
        Range that a claim requires, unless it has another one.

    Notes
    -----
    See `linfed.statistics.intervals.largest_of` for the interval.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> from linfed.statistics import median_ratio
    >>> table = lf.Table([{"n": n, "error": [scale] * 8, "bound": [1.0] * 8} for n, scale in ((10, 0.2), (20, 0.1))])
    >>> largest = c.worst(median_ratio, lambda row: (row["error"], row["bound"]), "n = {n}, of {points} n",
    ...                   "largest ratio")
    >>> claim = c.Claim("The error is below the bound", c.OWN_PREDICTION, largest, c.below(1.0))
    >>> c.judged([claim], {"runs": table})[0].detail
    'n = 10, of 2 n'
    """

    def measure(part: Table) -> Measurement | None:
        found = [(row, values) for row in part if (values := samples(row)) is not None]
        if not found:
            return None
        estimates = [interval(*values)[0] for _, values in found]
        row = found[int(np.nanargmax(estimates)) if not np.isnan(estimates).all() else 0][0]
        others = [one for one, _ in found if one is not row]
        text = at(row) if callable(at) else formatted(at, (Table.joined([row, *others]),))
        return Measurement(largest_of(interval, [tuple(values) for _, values in found]), text)

    return measured(words, measure, required)


def factor(
    column: Column, predicted: Column, words: str, required: Range | None = None, *, rows: Where = _all
) -> Statistic:
    """Return the largest factor, over rows, between the medians over trials of a column and of its prediction.

    Parameters
    ----------
    column, predicted : str or function
        Columns with measurements and predictions, positive, (trials,) or (trials, points), or functions of a row that
        return them. A prediction may also be one number for all trials.
    words : str
        Name of the statistic.
    required : Range, optional
        Range that a claim requires, unless it has another one.
    rows : function, optional
        As in `Statistic`.

    Notes
    -----
    See `linfed.statistics.intervals.largest_factor` for the interval. All rows have equally many trials, which are
    resampled together.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"n": n, "error": [1.05 / n] * 8, "law": [1.0 / n] * 8} for n in (10, 20)])
    >>> claim = c.Claim("The error is 1/n", c.OWN_PREDICTION,
    ...                 c.factor("error", "law", "factor to the prediction, worst n", c.at_most(1.1)))
    >>> round(c.judged([claim], {"runs": table})[0].estimate, 3)
    1.05
    """

    def measure(part: Table) -> Measured:
        found = [np.asarray(_values(row, column), dtype=float) for row in part]
        laws = [np.broadcast_to(_values(row, predicted), one.shape) for row, one in zip(part, found, strict=True)]
        return largest_factor(np.column_stack(found), np.column_stack(laws).astype(float))

    return measured(words, measure, required, rows=rows)


def exponent(y: Column, x: str, claimed: float, tolerance: float, kind: str = "equal") -> Statistic:
    """Return the fitted exponent of a column in another one; rows of one size do not suffice.

    Parameters
    ----------
    y : str or function
        Positive measurements (trials,): a column, or a function of a row.
    x : str
        Column with the sizes.
    claimed, tolerance, kind
        Claimed exponent, tolerance and side, as in `linfed.statistics.judge_exponent`.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> scales = (0.8, 0.9, 1.0, 1.0, 1.1, 1.2)
    >>> table = lf.Table([{"m": m, "error": [scale / m for scale in scales]} for m in (10, 20, 40)])
    >>> claim = c.Claim("The error is 1/m", c.OWN_PREDICTION, c.exponent("error", "m", -1.0, 0.1))
    >>> c.judged([claim], {"runs": table})[0].claimed_range
    '-1.1 to -0.9'
    """

    def fitted(part: Table) -> Measured | None:
        sizes = [row[x] for row in part]
        if len(set(sizes)) < 2:
            return None
        return fit_exponent(sizes, stacked(part, y))

    return _exponent(fitted, claimed, tolerance, kind)


def power_law(formula: str, name: str, claimed: float, tolerance: float, kind: str = "equal") -> Statistic:
    """Return an exponent of a power law, fitted jointly with others; rows that do not determine it do not suffice.

    Factors that are constant over the rows are left out of the fit, so they do not prevent the other exponents.

    Parameters
    ----------
    formula : str
        Power law, as in `linfed.fit_power_law`.
    name : str
        Name of the exponent in the formula.
    claimed, tolerance, kind
        Claimed exponent, tolerance and side, as in `linfed.statistics.judge_exponent`.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> claim = c.Claim("m grows like d", c.OWN_PREDICTION, c.power_law("m ~ d^a", "a", 1.0, 0.1))
    >>> table = lf.Table([{"d": d, "m": [0.9 * d, d, 1.1 * d]} for d in (10, 20, 40)])
    >>> c.judged([claim], {"runs": table})[0].verdict.value
    'HOLDS'
    """

    def fitted(part: Table) -> Measured | None:
        try:
            return fit_power_law(_of_varying(formula, part), part).exponents.get(name)
        except UndeterminedError:
            return None

    return _exponent(fitted, claimed, tolerance, kind)


def _of_varying(formula: str, table: Table) -> str:
    """Return a power law with exponent 0 in place of each free exponent whose factors are constant over the rows."""
    model, numbers = formulas.parsed(formula), formulas.Columns.of(table).numbers
    varying = {one.exponent for one in model.factors if np.ptp(formulas.value(one.base, numbers)) > 0}
    for name in set(model.exponents) - varying:
        formula = re.sub(rf"\^\s*{name}\b", "^0", formula)
    return formula


def _exponent(fit: Callable[[Table], Measured | None], claimed: float, tolerance: float, kind: str) -> Statistic:
    claimed, tolerance = check_number("claimed", claimed), check_number("tolerance", tolerance, minimum=0.0)

    def finding(part: Table, **fields: Any) -> Finding | None:
        fitted = fit(part)
        return None if fitted is None else judge_exponent(fitted, claimed, kind=kind, tolerance=tolerance, **fields)

    check_choice("kind", kind, ("at most", "at least", "equal"))
    required = {"at most": at_most(claimed + tolerance), "at least": at_least(claimed - tolerance)}
    words = f"fitted exponent ({kind} {claimed:g}, up to {tolerance:g})"
    return FittedExponent(words, finding, required.get(kind, near(claimed, tolerance)))


def formatted(pattern: str | Callable[..., str], parts: Parts) -> str:
    """Return a text with columns of the rows.

    Parameters
    ----------
    pattern : str or function
        Format with columns of the first row (``{n_clients}``), of the first row of each table (``{1[n_clients]}``), of
        the last row (``{last[n_clients]}``), or the number of rows (``{points}``). A dotted column such as
        ``problem.dim`` is also known by its last part. A function is called with the tables.
    parts : tuple of Table
        Rows of a finding.
    """
    if callable(pattern):
        return pattern(*parts)
    if "{" not in pattern:
        return pattern
    rows = [_short(part.rows[0]) for part in parts]
    try:
        return pattern.format(*rows, **rows[0] | {"points": len(parts[0]), "last": _short(parts[-1].rows[-1])})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        message = f"{pattern!r} has no values for its braces in the columns ({type(error).__name__}: {error})"
        raise ValueError(f"{message}; write {{{{ and }}}} for braces in the text") from error


def with_names(pattern: str) -> str:
    """Return a format of `formatted` with the names of its columns in angle brackets instead of their values.

    Examples
    --------
    >>> from linfed.claims.statistic import with_names
    >>> with_names("risk after {n_rounds:,} rounds, n = {0[n_clients]} to {1[n_clients]}")
    'risk after <n_rounds> rounds, n = <first n_clients> to <second n_clients>'
    """
    if "{" not in pattern:
        return pattern
    found, tables = [], {"0": "first", "1": "second"}
    for text, name, *_ in string.Formatter().parse(pattern):
        column = " ".join(tables.get(word, word) for word in re.findall(r"[\w.]+", name or ""))
        found.append(f"{text}<{column}>" if column else text)
    return "".join(found)


def _short(row: Any) -> dict[str, Any]:
    return {name.rpartition(".")[2]: value for name, value in row.items()} | dict(row)
