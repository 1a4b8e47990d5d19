"""How the sentences of the FLUTE paper on Figures 1 and 3 are judged: who needs fewer rounds, who ends lower.

Tables are those of `experiments._flute.Comparison`. Rounds of a trial are NaN where it has no level to reach, and
infinite where a run does not reach it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import label
from linfed.statistics.findings import Finding, joined, judge, quoted, smaller
from linfed.statistics.gains import gain_ratio, gain_told, lower_median
from linfed.statistics.intervals import share_smaller, worst
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


def at_speeds(runs: lf.Table, told: str, *names: str) -> list[tuple[str, lf.Table]]:
    """Return the rows of each speed and value of some columns, and what they are called, as a format of columns."""
    found = [(speed, part) for speed in SPEEDS for _, part in runs.where(speed=speed).by(*names)]
    return [(f"{speed}: {told.format_map(part.rows[0])}", part) for speed, part in found]


def duel(table: lf.Table, rival: str, column: str) -> Any:
    """Return a column of FLUTE and of its rival, (2, trials)."""
    return np.stack([table.where(method=method)[column] for method in (FLUTE, rival)])


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
    change = float(lower_median(first / second - 1))
    told = "diverges more" if abs(change) > 100 else f"{100 * change:+.2f} %"
    return replace(found, detail=f"{found.detail}; median difference {told}")


def needs_fewer(where: str, table: lf.Table, rival: str) -> Finding:
    """Return the claim that FLUTE needs fewer rounds than a rival to the middle share of the way.

    Its note says of the other shares where they are judged otherwise, and of trials without a level to reach.
    """
    found = {}
    for share in WAY:
        rounds = duel(table, rival, f"rounds_to_{share}")
        known = rounds[:, ~np.isnan(rounds).any(axis=0)]
        measured, detail = share_smaller(*known)
        if known.size:
            medians = (f"{end:g}" if np.isfinite(end) else "never" for end in lower_median(known))
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
            detail=detail if known.size else "no trial has a level to reach",
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
    mine, other = lower_median(np.nan_to_num(rounds[ends[0]], nan=np.inf))
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
