"""What was found: a statement, what was measured of it, and one rule that turns an interval into a verdict.

A statement says that a statistic lies in a range. It is SUPPORTED (a theorem's statement HOLDS) when the whole interval
lies inside what is said, NOT SUPPORTED (VIOLATED) when the whole interval lies outside, and INCONCLUSIVE otherwise,
whoever says it: a paper, or this project. Where a condition of a theorem fails, it promises nothing (HYPOTHESES FAIL);
where nothing was measured, or what is said could not have failed, the verdict is VACUOUS, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array
from linfed.errors import check_choice, check_number, check_unmasked, shown
from linfed.statistics.intervals import Measured, binomial_share, clustered_share, probability_smaller, share_smaller

OWN_PREDICTION = "own prediction"
"""Source of a statement that this project derived."""

OWN_THRESHOLD = "own threshold"
"""Source of a statement whose numbers this project chose."""


class Verdict(Enum):
    """Judgement of a statement: of a figure's sentence, or of a theorem's."""

    SUPPORTED = "SUPPORTED"
    NOT_SUPPORTED = "NOT SUPPORTED"
    HOLDS = "HOLDS"
    VIOLATED = "VIOLATED"
    INCONCLUSIVE = "INCONCLUSIVE"
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
class Finding:
    """A statement and what became of it.

    Parameters
    ----------
    text : str
        The statement, made precise.
    where : str
        The setting, e.g. ``"n = 100"``.
    statistic : str
        What was measured.
    source : str
        Who says it: a paper's words with their place (`quoted`), `OWN_PREDICTION` or `OWN_THRESHOLD`.
    estimate, low, high : float
        The statistic's value and its 95 % interval over trials. An estimate may be NaN where only bounds are known.
    least, most : float
        The range that is said; infinite on a side of which nothing is said.
    strict : bool
        Whether the ends of the range do not belong to it: "above" and "below" for "at least" and "at most".
    theorem : bool
        Whether the verdict has a theorem's words (HOLDS, VIOLATED).
    hypotheses : tuple of Hypothesis
        Conditions of a theorem.
    vacuous : str
        Why what is said could not have failed, or was not measured; empty if it could.
    detail : str
        Counts behind the estimate, e.g. ``"11 of 12"``.
    note : str
        What a reader should know.
    """

    text: str
    where: str
    statistic: str
    source: str
    estimate: float
    low: float
    high: float
    least: float = -np.inf
    most: float = np.inf
    strict: bool = False
    theorem: bool = False
    hypotheses: tuple[Hypothesis, ...] = ()
    vacuous: str = ""
    detail: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError(
                f"source = {shown(self.source)} must say who states it: a paper's words, or OWN_PREDICTION"
            )
        if np.isinf(self.least) and np.isinf(self.most):
            raise ValueError(f"least and most say nothing of the statistic of {shown(self.text)}; give one of them")
        if self.least > self.most:
            raise ValueError(f"least = {self.least:g} must be at most most = {self.most:g}")

    @property
    def said(self) -> str:
        """What the statement says of its statistic."""
        if self.least > -np.inf and self.most < np.inf:
            return f"between {self.least:g} and {self.most:g}" if self.strict else f"{self.least:g} to {self.most:g}"
        if self.least > -np.inf:
            return f"{'above' if self.strict else 'at least'} {self.least:g}"
        return f"{'below' if self.strict else 'at most'} {self.most:g}"

    @property
    def why_vacuous(self) -> str:
        """Why nothing can be said; empty if it can."""
        return self.vacuous or ("nothing was measured" if np.isnan([self.low, self.high]).any() else "")

    @property
    def verdict(self) -> Verdict:
        """The judgement: the whole interval against what is said."""
        if self.failed_hypotheses:
            return Verdict.HYPOTHESES_FAIL
        if self.why_vacuous:
            return Verdict.VACUOUS
        # Slack below and above, which an infinite end of the range gives whatever the interval's end is.
        below = np.inf if self.least == -np.inf else self.low - self.least
        above = np.inf if self.most == np.inf else self.most - self.high
        if below > 0 < above or (not self.strict and below >= 0 <= above):
            return Verdict.HOLDS if self.theorem else Verdict.SUPPORTED
        if self._outside:
            return Verdict.VIOLATED if self.theorem else Verdict.NOT_SUPPORTED
        return Verdict.INCONCLUSIVE

    @property
    def _outside(self) -> bool:
        if self.strict:
            return (self.high <= self.least != -np.inf) or (self.low >= self.most != np.inf)
        return self.high < self.least or self.low > self.most

    @property
    def failed_hypotheses(self) -> tuple[Hypothesis, ...]:
        """The hypotheses that fail."""
        return tuple(hypothesis for hypothesis in self.hypotheses if not hypothesis.holds)

    @property
    def remarks(self) -> str:
        """The note, why it is vacuous, and the hypotheses that fail with both sides' numbers."""
        vacuous = f"vacuous: {self.why_vacuous}" if self.why_vacuous else ""
        return joined(self.note, vacuous, *(f"fails: {hypothesis}" for hypothesis in self.failed_hypotheses))


def quoted(place: str, words: str, *, threshold: bool = False) -> str:
    """Return a source: where a paper says it, and its words; `threshold` says that the number is this project's."""
    return f'{place}: "{words}"' + (f"; the number is our {OWN_THRESHOLD}" if threshold else "")


def joined(*notes: str) -> str:
    """Return the notes that say something as one, each once."""
    return "; ".join(dict.fromkeys(note for note in notes if note))


# --- judges --------------------------------------------------------------------------------------------------


def judge(measured: Measured, **said: Any) -> Finding:
    """Return the finding of a statistic with its interval; `said` are the other fields of `Finding`."""
    estimate, low, high = measured
    return Finding(estimate=estimate, low=low, high=high, **said)


def smaller(first: Array, second: Array, *, paired: bool = True, **said: Any) -> Finding:
    """Judge that the first is the smaller one in most of the paired trials that differ; VACUOUS where all tie.

    Of trials that are not `paired`, each of the first is compared with each of the second, and a tie counts half
    (`probability_smaller`).
    """
    if not paired:
        return judge(probability_smaller(first, second), **{"least": 0.5, "strict": True} | said)
    found, detail = share_smaller(first, second)
    tied = f"all {len(first)} trials tie" if np.isnan(found[0]) else ""
    return judge(found, **{"least": 0.5, "strict": True, "detail": detail, "vacuous": tied} | said)


def share(hits: npt.ArrayLike, least: float, *, clusters: npt.ArrayLike | None = None, **said: Any) -> Finding:
    """Judge that a share lies above a number.

    Parameters
    ----------
    hits : array_like of bool (points,) or (rows, ..)
        Whether a point counts; VACUOUS where there is none.
    least : float
    clusters : array_like (points,), optional
        Each point's cluster, where points are not independent trials (several runs on one data set): the interval is
        then over clusters; of hits (rows, ..) each row's. Without it it is Clopper and Pearson's.
    **said
        Other fields of `Finding`.
    """
    values = np.asarray(check_unmasked("hits", hits), dtype=bool)
    count, total = int(values.sum()), values.size
    sets = None if clusters is None else np.repeat(clusters, values[0].size if total else 1)
    found = binomial_share(count, total) if sets is None else clustered_share(values.ravel(), sets)
    detail = f"{count} of {total}" if total else "none"
    if sets is not None and total:
        detail += f" in {len(np.unique(sets))} data sets"
    vacuous = "" if total else "there is no such point"
    return judge(found, **{"least": least, "strict": True, "detail": detail, "vacuous": vacuous} | said)


def judge_failures(
    failed: npt.ArrayLike, *, allowed: float, premise: npt.ArrayLike | None = None, **said: Any
) -> Finding:
    """Judge "with probability at least 1 - delta" by the share of trials in which a theorem's statement fails.

    Parameters
    ----------
    failed : array_like of bool (trials,)
        Trials in which it fails.
    allowed : float
        delta. (With 50 trials the interval of no failure ends at 0.071: a smaller delta needs more trials.)
    premise : array_like of bool (trials,), optional
        Trials in which its premise occurred, and which alone count; all by default. VACUOUS where there is none.
    **said
        Other fields of `Finding`.

    Returns
    -------
    Finding
        With the Clopper-Pearson interval of the share.
    """
    allowed = check_number("allowed", allowed, minimum=0.0, maximum=1.0)
    mask = np.asarray(check_unmasked("failed", failed), dtype=bool)
    if mask.size == 0:
        raise ValueError("failed is empty; give at least one trial")
    tried = mask if premise is None else mask[np.asarray(check_unmasked("premise", premise), dtype=bool)]
    count, trials = int(tried.sum()), tried.size
    detail = f"{count} of {trials}" + (f", of {mask.size} trials" if trials < mask.size else "")
    fields = {"statistic": "share of trials that fail", "detail": detail, "most": allowed, "theorem": True}
    if trials == 0:
        fields["vacuous"] = f"the premise occurred in none of {mask.size} trials"
    given = {name: value for name, value in said.items() if value != ""}
    return judge(binomial_share(count, trials), **fields | given)


def judge_identity(gaps: npt.ArrayLike, *, tolerance: float, **said: Any) -> Finding:
    """Judge a statement about every run, an identity or an inequality without chance: the worst trial decides.

    Parameters
    ----------
    gaps : array_like (trials, ..)
        By how much it is missed, at most `tolerance` by rounding; NaN where it was not evaluated.
    tolerance : float
    **said
        Other fields of `Finding`.

    Returns
    -------
    Finding
        Of the largest gap. There is no interval over trials: one trial that misses it refutes it. VACUOUS where
        nothing was evaluated.
    """
    values = np.asarray(check_unmasked("gaps", gaps), dtype=float).reshape(len(np.atleast_1d(gaps)), -1)
    known = ~np.isnan(values)
    worst = float(values[known].max()) if known.any() else np.nan
    fields = {
        "detail": f"the worst of {int(known.any(axis=1).sum())} trials, {int(known.sum())} values",
        "most": tolerance,
        "theorem": True,
    }
    return judge((worst, worst, worst), **fields | said)


def judge_exponent(fitted: Measured, claimed: float, *, kind: str, margin: float, **said: Any) -> Finding:
    """Judge a scaling law by a fitted exponent.

    Parameters
    ----------
    fitted : tuple of float
        Estimate and interval, as `linfed.statistics.fits.fit_exponent` returns them.
    claimed : float
        The exponent of the statement.
    kind : "at most", "at least" or "equal"
        Which side the measured exponent must lie on: an upper bound on an error that falls like ``m^-1/2`` says that
        the exponent in m is at most -1/2.
    margin : float
        By how much it may miss that. Without one, no finite number of trials could ever support a law that is sharp.
    **said
        Other fields of `Finding`.
    """
    check_choice("kind", kind, ("at most", "at least", "equal"))
    margin = check_number("margin", margin, minimum=0.0)
    fields = {
        "least": -np.inf if kind == "at most" else claimed - margin,
        "most": np.inf if kind == "at least" else claimed + margin,
        "statistic": f"fitted exponent ({kind} {claimed:g}, up to {margin:g})",
        "theorem": True,
    }
    return judge(fitted, **fields | said)


# --- tables --------------------------------------------------------------------------------------------------


def by_sentence(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings with those of one sentence and statistic together, else in their order."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.text, finding.statistic), []).append(finding)
    return [finding for group in groups.values() for finding in group]


def findings_table(findings: Sequence[Finding], paint: Callable[[Verdict, str], str] = lambda _, text: text) -> str:
    """Return the findings as text: each sentence once, below it a line per setting with verdict and interval.

    `paint` returns a verdict's text in a colour.
    """
    notes: list[str] = []
    lines: list[str] = []
    width = max((len(finding.where) for finding in findings), default=0)
    verdicts = max((len(finding.verdict.value) for finding in findings), default=0) + 1
    for index, finding in enumerate(findings):
        if index == 0 or _sentence(findings[index - 1]) != _sentence(finding):
            lines += ["", finding.text, f"  {finding.source}", f"  {finding.statistic}; said: {finding.said}"]
        mark = ""
        if finding.remarks:
            if finding.remarks not in notes:
                notes.append(finding.remarks)
            mark = f"  ({notes.index(finding.remarks) + 1})"
        estimate = "-" if np.isnan(finding.estimate) else f"{finding.estimate:.3g}"
        measured = f"{estimate:>8}  [{finding.low:.3g}, {finding.high:.3g}]"
        detail = f"  {finding.detail}" if finding.detail else ""
        verdict = paint(finding.verdict, f"{finding.verdict.value:<{verdicts}}")
        lines.append(f"    {verdict} {finding.where:<{width}} {measured}{detail}{mark}")
    lines += [
        "",
        "95 % intervals over trials, each statement by itself: of many, one in twenty may err.",
        *(f"({number}) {note}" for number, note in enumerate(notes, start=1)),
    ]
    return "\n".join(lines[1:])


def _sentence(finding: Finding) -> tuple[str, str, str, str]:
    return finding.text, finding.source, finding.statistic, finding.said
