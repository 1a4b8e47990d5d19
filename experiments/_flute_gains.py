"""How the sentences of the FLUTE paper on Figures 1 and 3 are judged: who needs fewer rounds, who ends lower.

Tables are those of `experiments._flute.Comparison`. Rounds of a trial are NaN where it has no level to reach, and
infinite where a run does not reach it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

import linfed as lf
from linfed.figures.style import label
from linfed.statistics.findings import Finding, joined, judge, quoted, smaller
from linfed.statistics.intervals import Measured, share_smaller, worst
from linfed.study.notes import edges, lost

from ._flute import FLUTE, SPEEDS, TUNED, WAY

FIG1, FIG3 = "FLUTE paper, section 7.1, Figure 1", "FLUTE paper, C.1, Figure 3"
MUCH_FEWER = quoted(FIG1, "when FedRep is randomly initialized, FLUTE outperforms FedRep(RI) in much fewer iterations")
OUTPERFORMS = quoted(FIG1, "as the learning progresses over more epochs, FLUTE eventually outperforms FedRep")
SMALL_RANK = quoted(
    FIG1,
    "the performance gain of FLUTE is more pronounced [...] where k is relatively small. As k increases, the gap "
    "between the convergence rates of FLUTE and FedRep narrows",
)
GAP_SHRINKS = quoted(
    FIG3, "an increase in k results in a diminishing discrepancy in convergence speeds between FLUTE and FedRep"
)
"""What the paper says."""

TIE = 1e-3
"""Final errors within this relative distance count as equal: both runs are then at the same stationary point."""

SETTLED = 0.01
"""A median error that changes by more, relatively, over the second half of the rounds has not settled."""

LEVEL = f"rounds_to_{WAY[1]}"
"""The column of rounds by which claims are judged."""

Bounds: TypeAlias = tuple[Any, Any]
"""A quantity that is known between bounds."""


def at_speeds(runs: lf.Table, told: str, *names: str) -> list[tuple[str, lf.Table]]:
    """Return the rows of each speed and value of some columns, and what they are called, as a format of columns."""
    found = [(speed, part) for speed in SPEEDS for _, part in runs.where(speed=speed).by(*names)]
    return [(f"{speed}: {told.format_map(part.rows[0])}", part) for speed, part in found]


def duel(table: lf.Table, rival: str, column: str) -> Any:
    """Return a column of FLUTE and of its rival, (2, trials)."""
    return np.stack([table.where(method=method)[column] for method in (FLUTE, rival)])


def median(values: Any) -> Any:
    """Return the lower median along the last axis: infinities are allowed."""
    return np.quantile(values, 0.5, axis=-1, method="inverted_cdf")


def resampled(trials: int) -> Any:
    """Return 2,000 bootstrap samples of the trials' indices."""
    return np.random.default_rng(0).integers(trials, size=(2000, trials))


# --- notes ---------------------------------------------------------------------------------------------------


def note(table: lf.Table) -> str:
    """Return what a reader should know of rows at one speed: diverged trials, steps at the edge of the grid."""
    return joined(lost(table, "its tuned step" if table.rows[0]["speed"] == TUNED else "step 0.03"), edges(table))


def unsettled(table: lf.Table) -> str:
    """Return which median curves still move by more than 1 % between half of the rounds and the last, if any."""
    told = []
    for row in table:
        rounds, curve = row["round"], row["error"][0]
        late = curve[2 * rounds >= rounds[-1]]
        change = late[-1] / late[0] - 1 if np.isfinite(late[-1]) else 0.0
        if abs(change) > SETTLED:
            told.append(f"{label(row['method'])} {'rises' if change > 0 else 'falls'}")
    return f"not at rest: over the second half of the rounds the error of {' and that of '.join(told)}" if told else ""


# --- who ends lower, who needs fewer rounds ------------------------------------------------------------------


def ends_below(where: str, table: lf.Table, rival: str) -> Finding:
    """Return the claim that FLUTE ends below a rival.

    Errors within a relative `TIE` are equal; ties are counted and left out. Diverged trials count as the worst.
    """
    first, second = worst(duel(table, rival, "final"))
    equal = np.abs(first - second) <= TIE * np.minimum(first, second)
    chosen = table.where(method=[FLUTE, rival])
    found = smaller(
        np.where(equal, second, first),
        second,
        text=f"FLUTE ends below {rival}",
        where=where,
        statistic="share of paired trials with the smaller final error "
        f"(ties aside: within {100 * TIE:g} %, the same stationary point)",
        source=OUTPERFORMS,
        note=joined(unsettled(chosen), note(chosen)),
    )
    change = float(median(first / second - 1))
    told = "diverges more" if abs(change) > 100 else f"{100 * change:+.2f} %"
    return replace(found, detail=f"{found.detail}; median difference {told}")


def needs_fewer(where: str, table: lf.Table, rival: str) -> Finding:
    """Return the claim that FLUTE needs fewer rounds than a rival to the middle share of the way.

    Its note says of the other shares where they are judged otherwise, and of trials without a level to reach.
    """
    found = {}
    for share in WAY:
        rounds = duel(table, rival, f"rounds_to_{share}")
        first, second = rounds[:, ~np.isnan(rounds).any(axis=0)]
        measured, detail = share_smaller(first, second)
        if first.size:
            medians = (f"{end:g}" if np.isfinite(end) else "never" for end in (median(first), median(second)))
            detail = f"{detail}; medians {' and '.join(medians)}"
        found[share] = judge(
            measured,
            text=f"FLUTE needs fewer rounds than {rival}",
            where=where,
            statistic=f"share of paired trials with fewer rounds to {100 * WAY[1]:g} % of the way from the "
            "start's error to the largest final error of the three tuned methods (ties aside)",
            source=MUCH_FEWER,
            least=0.5,
            strict=True,
            vacuous="no trial has a level to reach, or all tie" if math.isnan(measured[0]) else "",
            detail=detail if first.size else "no trial has a level to reach",
        )
    main, aimless = found[WAY[1]], np.isnan(table.where(method=FLUTE)[LEVEL])
    others = [
        f"to {100 * share:g} % of the way it is {one.verdict.value}"
        for share, one in found.items()
        if one.verdict is not main.verdict
    ]
    told = f"in {aimless.sum()} of {len(aimless)} trials a tuned method ends above B = 0: no level, left out"
    return replace(main, note=joined(*others, told if aimless.any() else "", note(table.where(method=[FLUTE, rival]))))


# --- gains in rounds -------------------------------------------------------------------------------------------


def gains_more(where: str, table: lf.Table, rival: str, *, signed: bool, text: str) -> Finding:
    """Return the claim that FLUTE's gain in rounds is larger at the smallest of the table's ranks, at one speed.

    The gain is the rival's median over FLUTE's; without `signed` it is the gap, the larger of the two over the smaller.
    """
    last = int(table["round"][-1])
    rounds = {k: duel(part, rival, LEVEL) for k, part in table.by("rank")}
    ends = min(rounds), max(rounds)
    found, vacuous = gain_ratio(*(rounds[k] for k in ends), last, signed=signed)
    mine, other = median(np.nan_to_num(rounds[ends[0]], nan=np.inf))
    none = f"FLUTE has no gain at k = {ends[0]}: it needs as many rounds, or more"
    gains = ", ".join(gain_told(each, last) for each in rounds.values())
    return judge(
        found,
        text=text,
        where=where,
        source=SMALL_RANK if signed else GAP_SHRINKS,
        statistic=f"ratio of {'gains' if signed else 'gaps'} at the smallest and the largest k, a gain being the "
        "rival's median rounds over FLUTE's" + ("" if signed else ", a gap the larger of the two over the smaller"),
        least=1.0,
        strict=True,
        vacuous=vacuous,
        detail=f"gains {gains} at k = {', '.join(map(str, rounds))}",
        note=joined(
            none if signed and not mine < other else "",
            *(note(table.where(rank=k, method=[FLUTE, rival])) for k in ends),
        ),
    )


def log_gain(rounds: Any, last: int, *, signed: bool = True) -> Bounds:
    """Return bounds of the log of the rival's median rounds over FLUTE's, of rounds (2, .., trials); or of its size.

    A median that is never reached lies beyond the last round; the two bounds are the same where both are reached.
    """
    mine, other = median(rounds)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.log(np.minimum(other, last)) - np.log(mine)
        high = np.log(other) - np.log(np.minimum(mine, last))
    if signed:
        return low, high
    least, most = np.minimum(np.abs(low), np.abs(high)), np.maximum(np.abs(low), np.abs(high))
    return np.where((low <= 0) & (high >= 0), 0.0, least), most


def gain_ratio(small: Any, large: Any, last: int, *, signed: bool) -> tuple[Measured, str]:
    """Return the ratio of the gains (or gaps) at a small and at a large rank, and why there is none.

    Trials are paired; `small` and `large` are rounds (2, trials), `last` is the last round.
    """
    known = ~np.isnan([small, large]).any(axis=(0, 1))
    trials = int(known.sum())
    if trials < 2:
        return (math.nan, 0.0, math.inf), "too few trials have a level to reach"

    def bounds(index: Any) -> Bounds:
        first, second = (log_gain(rounds[:, known][:, index], last, signed=signed) for rounds in (small, large))
        with np.errstate(invalid="ignore"):
            low, high = first[0] - second[1], first[1] - second[0]
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    drawn = zip(bounds(resampled(trials)), (0.025, 0.975), strict=True)
    low, high = (float(np.exp(np.quantile(part, q, method="inverted_cdf"))) for part, q in drawn)
    least, most = bounds(np.arange(trials))
    return (float(np.exp(least)) if least == most else math.nan, low, high), ""


def gain_told(rounds: Any, last: int) -> str:
    """Return FLUTE's gain in rounds in words."""
    known = ~np.isnan(rounds).any(axis=0)
    if not known.any():
        return "-"
    low, high = log_gain(rounds[:, known], last)
    if low == high or (np.isposinf(high) and low > -np.inf):
        return f"{'' if low == high else '> '}{math.exp(low):.2g}"
    return f"< {math.exp(high):.2g}" if high < np.inf else "?"
