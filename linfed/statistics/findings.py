"""Findings: claims, the measurements that judge them, and the rule that turns an interval into a verdict.

A claim states that a statistic lies in a range. It is SUPPORTED (for a theorem: HOLDS) if the whole confidence interval
lies inside the claimed range, NOT SUPPORTED (VIOLATED) if the whole interval lies outside, and INCONCLUSIVE otherwise.
The rule is the same for claims of papers and of this project. If a hypothesis of a theorem fails, the theorem claims
nothing (HYPOTHESES FAIL). If nothing was measured, or the claim could not have failed, the verdict is VACUOUS, with the
reason.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.checks import (
    check_bool,
    check_choice,
    check_instance,
    check_number,
    check_sequence,
    check_text,
    check_unmasked,
    is_real,
    short_repr,
)
from linfed.statistics.intervals import (
    Measured,
    binomial_share,
    checked_mask,
    clustered_share,
    probability_smaller,
    share_smaller,
)


class Origin(StrEnum):
    """Whose a claim is.

    Examples
    --------
    >>> from linfed.statistics import cite
    >>> cite("FedRep paper, Theorem 1", "decays exponentially").origin.is_paper
    True
    """

    QUOTED = "quoted"
    READING = "our reading"
    PREDICTION = "our prediction"
    THRESHOLD = "our threshold"
    CONJECTURE = "our conjecture"

    @property
    def is_paper(self) -> bool:
        """Whether the claim is of a paper, in its words or in ours."""
        return self in (Origin.QUOTED, Origin.READING)


def count_origins(origins: Iterable[Origin | None]) -> str:
    """Return how many claims have each origin as text; None is an unknown origin.

    Examples
    --------
    >>> from linfed.statistics.findings import Origin, count_origins
    >>> count_origins([Origin.QUOTED, Origin.READING, Origin.QUOTED, Origin.READING])
    '2 quoted, 2 our readings'
    """
    found = Counter(origins)
    words = {one: one.value if one is Origin.QUOTED else one.value + "s" * (found[one] != 1) for one in Origin}
    parts = [f"{found[one]} {words[one]}" for one in Origin if found[one]]
    return ", ".join([*parts, *([f"{found[None]} of unknown origin"] if found[None] else [])])


class Source(str):
    """Source of a claim: a text that knows whose the claim is.

    Parameters
    ----------
    text : str
        The source as it is printed.
    origin : Origin
        Whose the claim is.

    Examples
    --------
    >>> from linfed.statistics import OWN_PREDICTION
    >>> source = OWN_PREDICTION.adding("the factor is our threshold")
    >>> str(source), source.origin.value
    ('our prediction; the factor is our threshold', 'our prediction')
    """

    __slots__ = ("origin",)
    origin: Origin

    def __new__(cls, text: str, origin: Origin) -> Self:
        """Return the source."""
        self = super().__new__(cls, text)
        self.origin = Origin(origin)
        return self

    def __getnewargs__(self) -> tuple[str, Origin]:  # type: ignore[override]  # for copies
        return str(self), self.origin

    def adding(self, text: str, separator: str = "; ") -> Source:
        """Return the source with an addition to its text."""
        return Source(f"{self}{separator}{text}", self.origin)


OWN_PREDICTION = Source("our prediction", Origin.PREDICTION)
"""Source of a claim that this project derived."""

OWN_THRESHOLD = Source("our threshold", Origin.THRESHOLD)
"""Source of a claim whose numbers this project chose."""

OWN_CONJECTURE = Source("our conjecture, without a derivation", Origin.CONJECTURE)
"""Source of a claim that this project has not derived."""

SOURCES = "cite(..), reading(..), OWN_PREDICTION, OWN_THRESHOLD or OWN_CONJECTURE"
"""What names the source of a claim, in messages."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Kind of a verdict, with its colour in each output.

    Parameters
    ----------
    terminal : str
        SGR escape code on a terminal.
    report : str
        CSS class in ``report.html``.
    site : str
        Colour of the badges on the site.
    """

    terminal: str
    report: str
    site: str


FOR = Kind(terminal="32", report="good", site="success")
AGAINST = Kind(terminal="31", report="bad", site="danger")
OPEN = Kind(terminal="33", report="open", site="warning")
NOT_JUDGED = Kind(terminal="2", report="none", site="secondary")


class Verdict(StrEnum):
    """Judgement of a claim; HOLDS and VIOLATED are for theorems.

    Lists and pages show verdicts in the order of this class.

    Examples
    --------
    >>> import linfed as lf
    >>> finding = lf.Finding(claim="The error falls", setting="n = 100", statistic="final divided by initial error",
    ...                      source="our prediction", estimate=0.2, low=0.1, high=0.3, claimed_high=1.0, strict=True)
    >>> finding.verdict
    <Verdict.SUPPORTED: 'SUPPORTED'>
    >>> finding.verdict.meaning
    'the whole interval lies inside the required range'
    """

    SUPPORTED = "SUPPORTED"
    NOT_SUPPORTED = "NOT SUPPORTED"
    HOLDS = "HOLDS"
    VIOLATED = "VIOLATED"
    INCONCLUSIVE = "INCONCLUSIVE"
    VACUOUS = "VACUOUS"
    HYPOTHESES_FAIL = "HYPOTHESES FAIL"

    @property
    def kind(self) -> Kind:
        """Whether the verdict is for the claim, against it, open, or no judgement; with its colours."""
        return _VERDICTS[self][0]

    @property
    def meaning(self) -> str:
        """Meaning for legends."""
        return _VERDICTS[self][1]


INSIDE, OUTSIDE = (f"the whole interval lies {side} the required range" for side in ("inside", "outside"))
_VERDICTS = {
    Verdict.SUPPORTED: (FOR, INSIDE),
    Verdict.NOT_SUPPORTED: (AGAINST, OUTSIDE),
    Verdict.HOLDS: (FOR, f"{INSIDE} (for a theorem)"),
    Verdict.VIOLATED: (AGAINST, f"{OUTSIDE} (for a theorem)"),
    Verdict.INCONCLUSIVE: (OPEN, "the interval lies partly inside the required range; more trials can decide"),
    Verdict.VACUOUS: (
        NOT_JUDGED,
        "nothing could have refuted the claim, or nothing was measured; a note gives the reason",
    ),
    Verdict.HYPOTHESES_FAIL: (
        NOT_JUDGED,
        "a hypothesis of the theorem fails in this setting, so the theorem claims nothing",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """Hypothesis ``left <= right`` of a theorem, with the values of both sides.

    Parameters
    ----------
    text : str
        Formula of the hypothesis, e.g. ``"eta <= Delta^2 / (288 lambda_1^3)"``.
    left, right : float
        Values of the two sides; for several trials, the values of the trial nearest to failing.

    Examples
    --------
    >>> from linfed.statistics import Hypothesis
    >>> hypothesis = Hypothesis(text="eta <= 1 / (4 sigma_max^2)", left=0.5, right=0.25)
    >>> hypothesis.holds
    False
    >>> print(hypothesis)
    eta <= 1 / (4 sigma_max^2): 0.5 > 0.25
    """

    text: str
    left: float
    right: float

    def __post_init__(self) -> None:
        check_text("text", self.text)
        for name in ("left", "right"):
            value = getattr(self, name)
            if not is_real(value):
                raise ValueError(f"{name} = {short_repr(value)} must be a number")
            object.__setattr__(self, name, float(value))

    @property
    def holds(self) -> bool:
        """True if the hypothesis holds; sides that are equal up to rounding errors count as equal."""
        return bool(self.left <= self.right * (1 + 1e-12 * np.sign(self.right)))

    def __str__(self) -> str:
        return f"{self.text}: {self.left:.3g} {'<=' if self.holds else '>'} {self.right:.3g}"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Claim and the measurement that judges it.

    Parameters
    ----------
    claim : str
        Precise wording of the claim.
    setting : str
        Setting of the measurement, e.g. ``"n = 100"``.
    statistic : str
        Name of the measured quantity.
    source : str
        Whose the claim is: `cite`, `reading`, `OWN_PREDICTION`, `OWN_THRESHOLD` or `OWN_CONJECTURE`.
    estimate, low, high : float
        Value of the statistic and its 95 % confidence interval over trials. The estimate may be NaN if only bounds are
        known.
    claimed_low, claimed_high : float
        Claimed range; an end is infinite if the claim does not bound this side.
    strict : bool
        If True, the ends do not belong to the claimed range: "above" and "below" instead of "at least" and "at most".
    theorem : bool
        If True, the verdicts are HOLDS and VIOLATED instead of SUPPORTED and NOT SUPPORTED.
    hypotheses : tuple of Hypothesis
        Hypotheses of a theorem.
    vacuous : str
        Reason why the claim could not have failed or was not measured; empty without one.
    detail : str
        Counts behind the estimate, e.g. ``"11 of 12"``.
    note : str
        Remark for the reader.
    origin : Origin, optional
        Whose the claim is; by default that of the source if this is a `Source`, and unknown for other texts.

    Raises
    ------
    ValueError
        If `source` is empty, or the claimed range is unbounded or empty.

    Examples
    --------
    >>> import linfed as lf
    >>> finding = lf.Finding(claim="FedRep is faster than FedAvg", setting="n = 100", statistic="share of trials",
    ...                      source="our prediction", estimate=11 / 12, low=0.62, high=0.998, claimed_low=0.5,
    ...                      strict=True)
    >>> finding.claimed_range, finding.verdict.value
    ('above 0.5', 'SUPPORTED')
    """

    claim: str
    setting: str
    statistic: str
    source: str
    estimate: float
    low: float
    high: float
    claimed_low: float = -np.inf
    claimed_high: float = np.inf
    strict: bool = False
    theorem: bool = False
    hypotheses: tuple[Hypothesis, ...] = ()
    vacuous: str = ""
    detail: str = ""
    note: str = ""
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if self.origin is None and isinstance(self.source, Source):
            object.__setattr__(self, "origin", self.source.origin)
        if not isinstance(self.source, str) or not self.source.strip():
            raise ValueError(f"source = {short_repr(self.source)} must name the source of the claim: {SOURCES}")
        for name in ("estimate", "low", "high", "claimed_low", "claimed_high"):
            value = getattr(self, name)
            if not is_real(value):
                raise ValueError(f"{name} = {short_repr(value)} must be a number")
            object.__setattr__(self, name, float(value))
        for name in ("claim", "setting", "statistic", "vacuous", "detail", "note"):
            check_text(name, getattr(self, name))
        for name in ("strict", "theorem"):
            object.__setattr__(self, name, check_bool(name, getattr(self, name)))
        if self.low > self.high:
            raise ValueError(f"low = {self.low:g} must be at most high = {self.high:g}")
        parts = check_sequence("hypotheses", self.hypotheses, "a tuple of lf.statistics.Hypothesis")
        for part in parts:
            check_instance("hypotheses", part, Hypothesis, "a tuple of lf.statistics.Hypothesis")
        object.__setattr__(self, "hypotheses", tuple(parts))
        if np.isinf(self.claimed_low) and np.isinf(self.claimed_high):
            raise ValueError(
                f"claimed_low and claimed_high do not bound the statistic of {short_repr(self.claim)}; give one"
            )
        if self.claimed_low > self.claimed_high:
            raise ValueError(f"claimed_low = {self.claimed_low:g} must be at most claimed_high = {self.claimed_high:g}")

    @property
    def claimed_range(self) -> str:
        """Claimed range in words, e.g. "at least 0.5"."""
        return range_words(self.claimed_low, self.claimed_high, self.strict)

    @property
    def quotation(self) -> tuple[str, str]:
        """Place and words of a paper's quotation in the source, as given to `cite`; empty texts without any."""
        found = re.fullmatch(r'(.*?): "(.*?)"(?:[;,].*)?', self.source, re.DOTALL)
        return (found[1], found[2]) if found and self.origin is not None and self.origin.is_paper else ("", "")

    @property
    def why_vacuous(self) -> str:
        """Reason why the finding is vacuous; empty if it is not."""
        return self.vacuous or ("nothing was measured" if np.isnan([self.low, self.high]).any() else "")

    @property
    def verdict(self) -> Verdict:
        """Verdict: the position of the whole interval relative to the claimed range."""
        if self.failed_hypotheses:
            return Verdict.HYPOTHESES_FAIL
        if self.why_vacuous:
            return Verdict.VACUOUS
        # Distances of the interval from the ends of the claimed range; infinite on a side without a bound.
        below = np.inf if self.claimed_low == -np.inf else self.low - self.claimed_low
        above = np.inf if self.claimed_high == np.inf else self.claimed_high - self.high
        if below > 0 < above or (not self.strict and below >= 0 <= above):
            return Verdict.HOLDS if self.theorem else Verdict.SUPPORTED
        if self._outside:
            return Verdict.VIOLATED if self.theorem else Verdict.NOT_SUPPORTED
        return Verdict.INCONCLUSIVE

    @property
    def _outside(self) -> bool:
        if self.strict:
            return (self.high <= self.claimed_low != -np.inf) or (self.low >= self.claimed_high != np.inf)
        return self.high < self.claimed_low or self.low > self.claimed_high

    @property
    def failed_hypotheses(self) -> tuple[Hypothesis, ...]:
        """Hypotheses that fail."""
        return tuple(hypothesis for hypothesis in self.hypotheses if not hypothesis.holds)

    @property
    def remarks(self) -> str:
        """Note, reason for being vacuous, and failed hypotheses with the values of both sides, as one text."""
        vacuous = f"vacuous: {self.why_vacuous}" if self.why_vacuous else ""
        return join_notes(self.note, vacuous, *(f"fails: {hypothesis}" for hypothesis in self.failed_hypotheses))


def range_words(low: float, high: float, strict: bool) -> str:
    """Return a range in words; `strict` if the ends do not belong to it."""
    if low > -np.inf and high < np.inf:
        return f"between {low:g} and {high:g}" if strict else f"{low:g} to {high:g}"
    if low > -np.inf:
        return f"{'above' if strict else 'at least'} {low:g}"
    return f"{'below' if strict else 'at most'} {high:g}"


def cite(place: str, words: str, *, asked_of: str = "", threshold: bool = False) -> Source:
    """Return the source of a claim as a quotation from a paper, or as our reading if it is asked of something else.

    Parameters
    ----------
    place : str
        Place in the paper, e.g. ``"FedRep paper, Theorem 1"``.
    words : str
        Quoted words.
    asked_of : str
        The method, data or setting of which the claim is asked, unless it is the paper's.
    threshold : bool
        If True, add that this project chose the number of the claim.

    Examples
    --------
    >>> from linfed.statistics import cite
    >>> cite("FedRep paper, Theorem 1", "decays exponentially")
    'FedRep paper, Theorem 1: "decays exponentially"'
    >>> cite("FedRep paper, Theorem 1", "decays exponentially", asked_of="gradient heads").origin.value
    'our reading'
    """
    if check_text("asked_of", asked_of):
        source = Source(f'{place}, asked of {asked_of}: "{words}"', Origin.READING)
    else:
        source = Source(f'{place}: "{words}"', Origin.QUOTED)
    return source.adding(f"the number is {OWN_THRESHOLD}") if check_bool("threshold", threshold) else source


def reading(text: str) -> Source:
    """Return the source of a claim that is our reading of a paper, without a quotation; the text begins with the place.

    Examples
    --------
    >>> from linfed.statistics import reading
    >>> reading("FLUTE paper, Theorem 5.5").origin.value
    'our reading'
    """
    return Source(text, Origin.READING)


def join_notes(*notes: str) -> str:
    """Return the notes as one text, without repetitions and empty notes.

    Examples
    --------
    >>> from linfed.statistics.findings import join_notes
    >>> join_notes("two trials diverged", "", "two trials diverged")
    'two trials diverged'
    """
    return "; ".join(dict.fromkeys(note for note in notes if note))


# --- judges --------------------------------------------------------------------------------------------------

REQUIRED = {
    "claim": "precise wording of the claim",
    "setting": "setting of the measurement, e.g. 'n = 100'",
    "statistic": "name of the measured quantity",
    "source": f"source of the claim: {SOURCES}",
}
"""Fields of `Finding` that the caller of a judge must give, unless the judge does, with their meanings."""


def judge(measured: Measured, **fields: Any) -> Finding:
    """Return the finding for a statistic with its interval.

    Parameters
    ----------
    measured : tuple of float
        Estimate, and lower and upper end of the 95 % confidence interval.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`, and `claimed_low` or
        `claimed_high`. The verdict is SUPPORTED or NOT SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.

    Returns
    -------
    Finding

    Raises
    ------
    TypeError
        If a required field is missing.

    Examples
    --------
    >>> from linfed.statistics import judge, median_interval
    >>> ratios = [0.9, 1.0, 1.1, 1.0, 0.95, 1.05]
    >>> finding = judge(median_interval(ratios), claim="The prediction is exact up to 20 %", setting="n = 100",
    ...                 statistic="measured divided by predicted", source="our prediction",
    ...                 claimed_low=0.8, claimed_high=1.25)
    >>> finding.verdict.value
    'SUPPORTED'
    """
    if missing := [name for name in REQUIRED if name not in fields]:
        meanings = ", ".join(f"{name} ({REQUIRED[name]})" for name in missing)
        raise TypeError(f"a finding requires {meanings}")
    estimate, low, high = measured
    return Finding(estimate=estimate, low=low, high=high, **fields)


def judge_smaller(first: Array, second: Array, *, paired: bool = True, **fields: Any) -> Finding:
    """Judge that the first value is smaller in most trials.

    Parameters
    ----------
    first, second : ndarray (trials,)
        Values of the two methods.
    paired : bool
        If True, the trials are paired, and the statistic is the share among the pairs that differ; VACUOUS if all pairs
        tie. If False, each trial of the first is compared with each of the second, and a tie counts half
        (`probability_smaller`).
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`. The verdict is SUPPORTED or NOT
        SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.

    Returns
    -------
    Finding

    Examples
    --------
    >>> import numpy as np
    >>> from linfed.statistics import judge_smaller
    >>> first, second = np.arange(8.0), np.arange(8.0) + 0.5
    >>> finding = judge_smaller(first, second, claim="A is better than B", setting="n = 100", statistic="share",
    ...                         source="our prediction")
    >>> finding.detail, finding.verdict.value
    ('8 of 8', 'SUPPORTED')
    """
    if not check_bool("paired", paired):
        return judge(probability_smaller(first, second), **{"claimed_low": 0.5, "strict": True} | fields)
    found, detail = share_smaller(first, second)
    tied = f"all {len(first)} trials tie" if np.isnan(found[0]) else ""
    return judge(found, **{"claimed_low": 0.5, "strict": True, "detail": detail, "vacuous": tied} | fields)


def judge_share(
    hits: npt.ArrayLike, claimed_low: float, *, clusters: npt.ArrayLike | None = None, **fields: Any
) -> Finding:
    """Judge that a share lies above a number.

    Parameters
    ----------
    hits : array_like of bool (points,) or (rows, ..)
        True for the points that count as hits; VACUOUS without points.
    claimed_low : float
        Lower end of the claimed range.
    clusters : array_like (points,) or (rows,), optional
        Cluster of each point, or of each row of `hits`, if points are not independent (several runs on one data set).
        The interval is then over clusters; otherwise it is the Clopper-Pearson interval.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`. The verdict is SUPPORTED or NOT
        SUPPORTED; with ``theorem=True``, HOLDS or VIOLATED.

    Returns
    -------
    Finding

    Examples
    --------
    >>> from linfed.statistics import judge_share
    >>> finding = judge_share([True] * 19 + [False], 0.5, claim="Most runs converge", setting="n = 100",
    ...                       statistic="share of trials", source="our threshold")
    >>> finding.detail, finding.claimed_range, finding.verdict.value
    ('19 of 20', 'above 0.5', 'SUPPORTED')
    """
    values = checked_mask("hits", hits)
    if values.ndim == 0:
        raise ValueError(f"hits = {short_repr(hits)} must be an array (points,) or (rows, ..)")
    if clusters is not None and np.shape(clusters) != (len(values),):
        raise ValueError(f"clusters has shape {np.shape(clusters)}, expected one for each of the {len(values)} hits")
    count, total = int(values.sum()), values.size
    sets = None if clusters is None else np.repeat(clusters, values[0].size if total else 1)
    found = binomial_share(count, total) if sets is None else clustered_share(values.ravel(), sets)
    detail = f"{count} of {total}" if total else "none"
    if sets is not None and total:
        detail += f" in {len(np.unique(sets))} clusters"
    vacuous = "" if total else "there is no such point"
    return judge(found, **{"claimed_low": claimed_low, "strict": True, "detail": detail, "vacuous": vacuous} | fields)


def judge_failures(
    failed: npt.ArrayLike, *, allowed: float, premise: npt.ArrayLike | None = None, **fields: Any
) -> Finding:
    """Judge a theorem's claim "with probability at least 1 - delta" by the share of trials in which it fails.

    Parameters
    ----------
    failed : array_like of bool (trials,)
        True for the trials in which the claim fails.
    allowed : float
        Failure probability delta. (With 50 trials without a failure the interval ends at 0.071, so a smaller delta
        requires more trials.)
    premise : array_like of bool (trials,), optional
        True for the trials in which the premise occurred; only these count. All trials by default. VACUOUS if the
        premise never occurred.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `source`; the judge supplies a `statistic`. The verdict
        is HOLDS or VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding
        Finding for the share, with its Clopper-Pearson interval.

    Examples
    --------
    >>> from linfed.statistics import judge_failures
    >>> finding = judge_failures([False] * 50, allowed=0.1, claim="The bound holds", setting="n = 100",
    ...                          source="our prediction")
    >>> finding.detail, finding.verdict.value
    ('0 of 50', 'HOLDS')
    """
    allowed = check_number("allowed", allowed, minimum=0.0, maximum=1.0)
    mask = checked_mask("failed", failed)
    if mask.size == 0:
        raise ValueError("failed is empty; give at least one trial")
    tried = mask if premise is None else mask[checked_mask("premise", premise)]
    count, trials = int(tried.sum()), tried.size
    detail = f"{count} of {trials}" + (f", of {mask.size} trials" if trials < mask.size else "")
    defaults = {"statistic": "share of trials that fail", "detail": detail, "claimed_high": allowed, "theorem": True}
    if trials == 0:
        defaults["vacuous"] = f"the premise occurred in none of {mask.size} trials"
    given = {name: value for name, value in fields.items() if value != "" or name not in defaults}
    return judge(binomial_share(count, trials), **defaults | given)


def judge_identity(gaps: npt.ArrayLike, *, tolerance: float, **fields: Any) -> Finding:
    """Judge a deterministic identity or inequality by its worst trial.

    Parameters
    ----------
    gaps : array_like (trials, ..)
        Violations of the identity or inequality; NaN where it was not evaluated.
    tolerance : float
        Largest violation that rounding errors can cause.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `statistic`, `source`. The verdict is HOLDS or
        VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding
        Finding for the largest violation. The interval has length 0, because one violation in any trial refutes the
        claim. VACUOUS if nothing was evaluated.

    Examples
    --------
    >>> from linfed.statistics import judge_identity
    >>> finding = judge_identity([1e-15, 3e-16], tolerance=1e-12, claim="The two sides are equal", setting="n = 100",
    ...                          statistic="largest gap", source="our prediction")
    >>> finding.estimate, finding.verdict.value
    (1e-15, 'HOLDS')
    """
    values = np.atleast_1d(np.asarray(check_unmasked("gaps", gaps), dtype=float))
    values = values.reshape(len(values), math.prod(values.shape[1:]))
    has_value = ~np.isnan(values)
    worst = float(values[has_value].max()) if has_value.any() else np.nan
    defaults = {
        "detail": f"the worst of {int(has_value.any(axis=1).sum())} trials, {int(has_value.sum())} values",
        "claimed_high": tolerance,
        "theorem": True,
    }
    return judge((worst, worst, worst), **defaults | fields)


def judge_exponent(fitted: Measured, claimed: float, *, kind: str, tolerance: float, **fields: Any) -> Finding:
    """Judge a scaling law by a fitted exponent.

    Parameters
    ----------
    fitted : tuple of float
        Estimate and interval, as `linfed.statistics.fit_exponent` returns them.
    claimed : float
        Claimed exponent.
    kind : {"at most", "at least", "equal"}
        Side of `claimed` on which the measured exponent must lie. For example, an upper bound ``m^-1/2`` on an error
        claims that the exponent in m is at most -1/2.
    tolerance : float
        Tolerance of the claimed exponent. With tolerance 0, no finite number of trials could support a sharp scaling
        law.
    **fields
        Other fields of `Finding`. Required: `claim`, `setting`, `source`; the judge supplies a `statistic`. The verdict
        is HOLDS or VIOLATED; with ``theorem=False``, SUPPORTED or NOT SUPPORTED.

    Returns
    -------
    Finding

    Examples
    --------
    >>> from linfed.statistics import fit_exponent, judge_exponent
    >>> m, errors = [10, 20, 40], [[scale, 0.5 * scale, 0.26 * scale] for scale in (0.8, 0.9, 1.0, 1.0, 1.1, 1.2)]
    >>> finding = judge_exponent(fit_exponent(m, errors), -1.0, kind="equal", tolerance=0.1, claim="The error is 1/m",
    ...                          setting="n = 100", source="our prediction")
    >>> finding.claimed_range, finding.verdict.value
    ('-1.1 to -0.9', 'HOLDS')
    """
    check_choice("kind", kind, ("at most", "at least", "equal"))
    tolerance = check_number("tolerance", tolerance, minimum=0.0)
    defaults = {
        "claimed_low": -np.inf if kind == "at most" else claimed - tolerance,
        "claimed_high": np.inf if kind == "at least" else claimed + tolerance,
        "statistic": f"fitted exponent ({kind} {claimed:g}, up to {tolerance:g})",
        "theorem": True,
    }
    return judge(fitted, **defaults | fields)


# --- tables --------------------------------------------------------------------------------------------------


def by_sentence(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings grouped by claim and statistic, otherwise in their order."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.claim, finding.statistic), []).append(finding)
    return [finding for group in groups.values() for finding in group]


def required(claimed_range: str) -> str:
    """Return a claimed range with signs instead of words.

    >>> required("above 0.5"), required("at most 1e-06"), required("0.9 to 1.1")
    ('> 0.5', '<= 1e-06', '0.9 to 1.1')
    """
    for words, sign in (("above ", "> "), ("at least ", ">= "), ("below ", "< "), ("at most ", "<= ")):
        claimed_range = claimed_range.replace(words, sign)
    return claimed_range


def findings_table(findings: Sequence[Finding]) -> str:
    """Return the findings as text: each claim once, followed by a line per setting with verdict and interval.

    The meanings of the verdicts that occur follow.
    """
    notes: list[str] = []
    lines: list[str] = []
    width = max((len(finding.setting) for finding in findings), default=0)
    verdicts = max((len(finding.verdict.value) for finding in findings), default=0) + 1
    for index, finding in enumerate(findings):
        if index == 0 or _sentence(findings[index - 1]) != _sentence(finding):
            lines += [
                "",
                finding.claim,
                f"  {finding.source}",
                f"  {finding.statistic}; required: {required(finding.claimed_range)}",
            ]
        mark = ""
        if finding.remarks:
            if finding.remarks not in notes:
                notes.append(finding.remarks)
            mark = f"  ({notes.index(finding.remarks) + 1})"
        estimate = "-" if np.isnan(finding.estimate) else f"{finding.estimate:.3g}"
        measured = f"{estimate:>8}  [{finding.low:.3g}, {finding.high:.3g}]"
        detail = f"  {finding.detail}" if finding.detail else ""
        verdict = f"{finding.verdict.value:<{verdicts}}"
        lines.append(f"    {verdict} {finding.setting:<{width}} {measured}{detail}{mark}")
    occur = {finding.verdict for finding in findings}
    lines += [
        "",
        *(f"{verdict.value}: {verdict.meaning}." for verdict in Verdict if verdict in occur),
        "Intervals are 95 % confidence intervals over trials, each for one claim: about one in twenty may be wrong.",
        *(f"({number}) {note}" for number, note in enumerate(notes, start=1)),
    ]
    return "\n".join(lines[1:])


def _sentence(finding: Finding) -> tuple[str, str, str, str]:
    return finding.claim, finding.source, finding.statistic, finding.claimed_range
