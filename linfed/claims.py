"""What a paper says of a figure, as sentences that measurements support or do not.

Every claim has a statistic, an interval over trials, and a verdict: SUPPORTED when the whole interval lies on the
claim's side of the reference value, NOT SUPPORTED when it lies on the other side, else INCONCLUSIVE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from scipy import stats

from linfed._types import Array, Generator


class Verdict(Enum):
    """Judgement of a claim."""

    SUPPORTED = "SUPPORTED"
    NOT_SUPPORTED = "NOT SUPPORTED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One testable sentence and what was measured.

    Parameters
    ----------
    text : str
        What the paper says, made precise.
    where : str
        The setting, e.g. ``"n = 100"``.
    statistic : str
        What was measured.
    estimate, low, high : float
        Its value and confidence interval.
    reference : float
        The value that separates true from false; the claim says that the statistic lies above it.
    detail : str
        Counts behind the estimate, e.g. ``"11 of 12, 38 ties"``.
    note : str
        What a reader should know, e.g. a hypothesis that fails here.
    """

    text: str
    where: str
    statistic: str
    estimate: float
    low: float
    high: float
    reference: float
    detail: str = ""
    note: str = ""

    @property
    def remarks(self) -> str:
        """The note."""
        return self.note

    @property
    def said(self) -> str:
        """What the claim says of its statistic."""
        return f"above {self.reference:g}"

    @property
    def verdict(self) -> Verdict:
        """The judgement: the interval against the reference."""
        if self.low > self.reference:
            return Verdict.SUPPORTED
        if self.high < self.reference:
            return Verdict.NOT_SUPPORTED
        return Verdict.INCONCLUSIVE


class Judged(Protocol):
    """What a table of verdicts tells of: a `Claim` of a figure, or a theorem's `linfed.theory.Judgement`."""

    @property
    def text(self) -> str:
        """The statement."""
        ...

    @property
    def where(self) -> str:
        """The setting."""
        ...

    @property
    def statistic(self) -> str:
        """What was measured."""
        ...

    @property
    def said(self) -> str:
        """What the statement says of it."""
        ...

    @property
    def estimate(self) -> float:
        """Its value."""
        ...

    @property
    def low(self) -> float:
        """Lower end of its interval."""
        ...

    @property
    def high(self) -> float:
        """Upper end of its interval."""
        ...

    @property
    def verdict(self) -> Enum:
        """The judgement."""
        ...

    @property
    def detail(self) -> str:
        """Counts behind the estimate."""
        ...

    @property
    def remarks(self) -> str:
        """What a reader should know."""
        ...


def first_round_below(rounds: Array, values: Array, threshold: float) -> Array:
    """Return the first recorded round at which each trial is at or below a threshold, infinite if it never is.

    Parameters
    ----------
    rounds : ndarray (R,)
    values : ndarray (trials, R)
    threshold : float

    Returns
    -------
    ndarray (trials,)
    """
    hit = values <= threshold
    return np.where(hit.any(axis=1), np.asarray(rounds, dtype=float)[hit.argmax(axis=1)], np.inf)


def share_smaller(first: Array, second: Array, *, confidence: float = 0.95) -> tuple[tuple[float, float, float], str]:
    """Return the share of paired trials in which the first is smaller, among those that differ.

    Parameters
    ----------
    first, second : ndarray (trials,)
        Paired values; infinities are allowed (two of them are a tie).
    confidence : float

    Returns
    -------
    (estimate, low, high) : tuple of float
        With a Clopper-Pearson interval; (nan, 0, 1) where all trials tie.
    detail : str
        The counts in words.
    """
    smaller, larger = int(np.sum(first < second)), int(np.sum(first > second))
    ties = len(first) - smaller - larger
    detail = f"{smaller} of {smaller + larger}" + (f", {ties} ties" if ties else "")
    if smaller + larger == 0:
        return (np.nan, 0.0, 1.0), detail
    interval = stats.binomtest(smaller, smaller + larger).proportion_ci(confidence, method="exact")
    return (smaller / (smaller + larger), float(interval.low), float(interval.high)), detail


def probability_smaller(
    first: Array, second: Array, *, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float, float]:
    """Return P(first < second) + P(tie)/2 for independent trials, with a bootstrap interval.

    Parameters
    ----------
    first : ndarray (a,)
    second : ndarray (b,)
        Infinities are allowed: only the order counts.
    confidence : float
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    estimate, low, high : float
    """

    def statistic(a: Array, b: Array) -> float:
        below = np.searchsorted(np.sort(b), a, side="left"), np.searchsorted(np.sort(b), a, side="right")
        return float(1.0 - (below[0].mean() + below[1].mean()) / (2.0 * len(b)))

    estimate = statistic(first, second)
    if estimate in (0.0, 1.0):  # no overlap at all: the bootstrap is degenerate, the exact bound is not
        edge = stats.binomtest(0, min(len(first), len(second))).proportion_ci(confidence, method="exact").high
        return (estimate, 1.0 - float(edge), 1.0) if estimate else (estimate, 0.0, float(edge))
    low, high = bootstrap_interval(statistic, (first, second), confidence=confidence, seed=seed)
    return estimate, low, high


def bootstrap_interval(
    statistic: Callable[..., float],
    samples: Sequence[Array],
    *,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic of independent samples.

    Parameters
    ----------
    statistic : callable
        From one array per sample to a number.
    samples : sequence of ndarray
    confidence : float
    seed : int
    resamples : int
    """
    rng: Generator = np.random.default_rng(seed)
    found = stats.bootstrap(
        tuple(samples),
        statistic,
        confidence_level=confidence,
        n_resamples=resamples,
        method="percentile",
        vectorized=False,
        rng=rng,
    ).confidence_interval
    return float(found.low), float(found.high)


def claims_table(claims: Sequence[Judged]) -> str:
    """Return the claims as text: each sentence once, below it a line per setting with verdict and interval."""
    notes: list[str] = []
    lines: list[str] = []
    width = max((len(claim.where) for claim in claims), default=0)
    verdicts = max((len(claim.verdict.value) for claim in claims), default=0) + 1
    for index, claim in enumerate(claims):
        if index == 0 or _sentence(claims[index - 1]) != _sentence(claim):
            lines += ["", claim.text, f"  {claim.statistic}; the claim says {claim.said}"]
        mark = ""
        if claim.remarks:
            if claim.remarks not in notes:
                notes.append(claim.remarks)
            mark = f"  ({notes.index(claim.remarks) + 1})"
        estimate = "-" if np.isnan(claim.estimate) else f"{claim.estimate:.3g}"
        measured = f"{estimate:>8}  [{claim.low:.3g}, {claim.high:.3g}]"
        detail = f"  {claim.detail}" if claim.detail else ""
        lines.append(f"    {claim.verdict.value:<{verdicts}} {claim.where:<{width}} {measured}{detail}{mark}")
    lines += [
        "",
        "95 % intervals over trials, each claim by itself: of many, one in twenty may err.",
        *(f"({number}) {note}" for number, note in enumerate(notes, start=1)),
    ]
    return "\n".join(lines[1:])


def _sentence(claim: Judged) -> tuple[str, str, str]:
    return claim.text, claim.statistic, claim.said
