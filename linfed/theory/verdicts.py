"""How a theorem is judged by measurement: its hypotheses with both sides' numbers, its failures, and one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
from scipy import stats

from linfed._types import Array
from linfed.claims import bootstrap_interval
from linfed.errors import check_array, check_choice, check_number

INFINITE = 1e150
"""Stands for an infinite ratio, which resampling cannot average."""


class Outcome(Enum):
    """Judgement of a theorem's statement."""

    HOLDS = "HOLDS"
    VIOLATED = "VIOLATED"
    VACUOUS = "VACUOUS"
    HYPOTHESES_FAIL = "HYPOTHESES FAIL"


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One condition of a theorem, ``left <= right``, with the numbers of both sides.

    Parameters
    ----------
    text : str
        The condition in symbols, e.g. ``"eta <= Delta^2 / (288 lambda_1^3)"``.
    left, right : float
        Its two sides; of many trials the pair that is nearest to failing.
    """

    text: str
    left: float
    right: float

    @property
    def holds(self) -> bool:
        """Whether it does; equal sides up to rounding do."""
        return bool(self.left <= self.right * (1 + 1e-12 * np.sign(self.right)))

    def __str__(self) -> str:
        return f"{self.text}: {self.left:.3g} {'<=' if self.holds else '>'} {self.right:.3g}"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A theorem's statement and what became of it.

    Parameters
    ----------
    text : str
        The statement.
    where : str
        The setting.
    statistic : str
        What was measured.
    said : str
        What the statement says of it.
    estimate, low, high : float
        Its value with a 95 % interval over trials.
    contradicted : bool
        Whether the interval excludes what is said.
    hypotheses : tuple of Hypothesis
        Conditions of the theorem; where one fails the statement promises nothing.
    vacuous : bool
        Whether what is said could not have failed, e.g. a bound above what any predictor reaches.
    detail : str
        Counts behind the estimate.
    note : str
        What a reader should know.
    """

    text: str
    where: str
    statistic: str
    said: str
    estimate: float
    low: float
    high: float
    contradicted: bool
    hypotheses: tuple[Hypothesis, ...] = ()
    vacuous: bool = False
    detail: str = ""
    note: str = ""

    @property
    def verdict(self) -> Outcome:
        """HYPOTHESES_FAIL comes first, then VACUOUS; VIOLATED needs an interval that excludes what is said.

        HOLDS thus means that the measurement does not contradict the statement; the interval says how much it could
        have seen.
        """
        if not all(hypothesis.holds for hypothesis in self.hypotheses):
            return Outcome.HYPOTHESES_FAIL
        if self.vacuous:
            return Outcome.VACUOUS
        return Outcome.VIOLATED if self.contradicted else Outcome.HOLDS

    @property
    def failed_hypotheses(self) -> tuple[Hypothesis, ...]:
        """The hypotheses that fail."""
        return tuple(hypothesis for hypothesis in self.hypotheses if not hypothesis.holds)

    @property
    def remarks(self) -> str:
        """The note, and the hypotheses that fail with both sides' numbers."""
        failed = (f"fails: {hypothesis}" for hypothesis in self.failed_hypotheses)
        return "; ".join([*([self.note] if self.note else []), *failed])


def judge_failures(
    failed: npt.ArrayLike,
    *,
    text: str,
    where: str,
    allowed: float,
    hypotheses: Sequence[Hypothesis] = (),
    vacuous: bool = False,
    note: str = "",
) -> Judgement:
    """Judge "with probability at least 1 - delta" by the share of trials in which the statement fails.

    Parameters
    ----------
    failed : array_like of bool (trials,)
        Trials in which it fails.
    text, where, note : str
        As in `Judgement`.
    allowed : float
        delta.
    hypotheses, vacuous
        As in `Judgement`.

    Returns
    -------
    Judgement
        With the Clopper-Pearson interval of the share; contradicted where that lies above `allowed`.
    """
    allowed = check_number("allowed", allowed, minimum=0.0, maximum=1.0)
    mask = np.asarray(failed, dtype=bool)
    if mask.size == 0:
        raise ValueError("failed is empty; give at least one trial")
    count, trials = int(mask.sum()), mask.size
    interval = stats.binomtest(count, trials).proportion_ci(0.95, method="exact")
    return Judgement(
        text=text,
        where=where,
        statistic="share of trials that fail",
        said=f"at most {allowed:g}",
        estimate=count / trials,
        low=float(interval.low),
        high=float(interval.high),
        contradicted=float(interval.low) > allowed,
        hypotheses=tuple(hypotheses),
        vacuous=vacuous,
        detail=f"{count} of {trials}",
        note=note,
    )


def smallest_constant(ratios: npt.ArrayLike, *, allowed: float = 0.1) -> tuple[float, float, float]:
    """Return the smallest constant with which a bound would hold in all but a share of the trials.

    Parameters
    ----------
    ratios : array_like (trials,)
        For each trial the largest ratio of what is bounded to the bound with constant 1.
    allowed : float
        Share of trials that may fail.

    Returns
    -------
    estimate, low, high : float
        With a percentile bootstrap interval over trials.
    """
    given = np.asarray(ratios, dtype=float)
    values = check_array("ratios", np.nan_to_num(np.minimum(given, INFINITE), nan=INFINITE), [("trials",)])
    level = 1.0 - check_number("allowed", allowed, minimum=0.0, maximum=1.0)
    if len(values) < 2:
        raise ValueError(f"ratios has {len(values)} value; an interval over trials needs two")

    def statistic(sample: Array) -> float:
        return float(np.quantile(sample, level, method="inverted_cdf"))

    found = (statistic(values), *bootstrap_interval(statistic, (values,)))
    estimate, low, high = (value if value < INFINITE else np.inf for value in found)
    return estimate, low, high


def judge_exponent(
    fitted: tuple[float, float, float],
    claimed: float,
    *,
    kind: str,
    text: str,
    where: str,
    hypotheses: Sequence[Hypothesis] = (),
    note: str = "",
    detail: str = "",
) -> Judgement:
    """Judge a scaling law by a fitted exponent.

    Parameters
    ----------
    fitted : tuple of float
        Estimate and interval, as `linfed.scaling.fit_exponent` returns them.
    claimed : float
        The exponent of the statement.
    kind : "at most", "at least" or "equal"
        Which side the measured exponent must lie on: an upper bound on an error that falls like ``m^-1/2`` says that
        the exponent in m is at most -1/2.
    text, where, hypotheses, note, detail
        As in `Judgement`.
    """
    check_choice("kind", kind, ("at most", "at least", "equal"))
    return judge_range(
        fitted,
        -np.inf if kind == "at most" else claimed,
        np.inf if kind == "at least" else claimed,
        text=text,
        where=where,
        statistic="fitted exponent",
        said=f"{kind} {claimed:g}",
        hypotheses=hypotheses,
        note=note,
        detail=detail,
    )


def judge_range(
    measured: tuple[float, float, float],
    least: float,
    most: float,
    *,
    text: str,
    where: str,
    statistic: str,
    said: str,
    hypotheses: Sequence[Hypothesis] = (),
    note: str = "",
    detail: str = "",
) -> Judgement:
    """Judge a statement that a statistic lies in a range.

    Parameters
    ----------
    measured : tuple of float
        Estimate and interval.
    least, most : float
        The range; contradicted where the whole interval lies outside.
    text, where, statistic, said, hypotheses, note, detail
        As in `Judgement`.
    """
    estimate, low, high = measured
    return Judgement(
        text=text,
        where=where,
        statistic=statistic,
        said=said,
        estimate=estimate,
        low=low,
        high=high,
        contradicted=low > most or high < least,
        hypotheses=tuple(hypotheses),
        vacuous=bool(np.isnan(measured).any()),
        note=note,
        detail=detail,
    )
