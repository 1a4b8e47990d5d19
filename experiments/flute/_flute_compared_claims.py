"""FLUTE against FedRep and FedRep (RI), for Figures 1 and 3 of the FLUTE paper: the claims.

The claims compare numbers of rounds and final errors. Diverged trials have the largest errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.statistics import gains

from ._flute import FEDREP_RI, FLUTE, RIVALS, TUNED
from ._flute_compared import WAY

LEVEL = f"rounds_to_{WAY[1]}"
"""The column of rounds on which claims are judged."""

TIE = 1e-3
"""Final errors within this relative distance count as equal: both runs are at the same stationary point."""

FIG1, FIG3 = "FLUTE paper, section 7.1, Figure 1", "FLUTE paper, C.1, Figure 3"
MUCH_FEWER = "when FedRep is randomly initialized, FLUTE outperforms FedRep(RI) in much fewer iterations"
OUTPERFORMS = "as the learning progresses over more epochs, FLUTE eventually outperforms FedRep"
SMALL_RANK = c.cite(
    FIG1,
    "the performance gain of FLUTE is more pronounced [...] where k is relatively small. As k increases, the gap "
    "between the convergence rates of FLUTE and FedRep narrows",
)
GAP_SHRINKS = c.cite(
    FIG3, "an increase in k results in a diminishing discrepancy in convergence speeds between FLUTE and FedRep"
)

FEWER = (
    f"share of paired trials with fewer rounds to {100 * WAY[1]:g} % of the way from the initial error to the largest "
    "final error of the three tuned methods (ties excluded)"
)
LOWER = (
    "share of paired trials with the smaller final error "
    f"(ties excluded: within {100 * TIE:g} %, the same stationary point)"
)
GAIN = (
    "gain at the smallest k divided by that at the largest; a gain is the competitor's median rounds divided by FLUTE's"
)
GAP = f"{GAIN.replace('gain at', 'gap at')}, a gap the larger of the two divided by the smaller"
REDUCTION = "median gain in per cent of the competitor's error (0 for a tie), smallest k minus largest k"


def order_claims(setting: str, *columns: str, asked_of: str = "") -> tuple[c.Claim, ...]:
    """Return Figure 1's claims, for each value of some columns: fewer rounds than FedRep (RI), smaller final errors.

    `asked_of` names the settings, unless they are Figure 1's.
    """
    fewer = c.cite(FIG1, MUCH_FEWER, asked_of=asked_of)
    outperforms = c.cite(FIG1, OUTPERFORMS, asked_of=asked_of)
    over = c.each("speed", *columns)
    return (
        c.Claim(
            f"FLUTE needs fewer rounds than {FEDREP_RI}",
            fewer,
            c.compared(FEWER, FLUTE, FEDREP_RI, fewer_rounds, c.MOST),
            over=over,
            setting=setting,
            note=rounds_note,
        ),
        *(
            c.Claim(
                f"FLUTE has a smaller final error than {rival}",
                outperforms,
                c.compared(LOWER, FLUTE, rival, lower_end, c.MOST),
                over=over,
                setting=setting,
                note=end_note(rival),
            )
            for rival in RIVALS
        ),
    )


# --- statistics ----------------------------------------------------------------------------------------------


def fewer_rounds(mine: lf.Table, other: lf.Table, way: float = WAY[1], **fields: Any) -> c.Finding:
    """Judge fewer rounds than a competitor to a share of the way; trials without a level to reach do not count."""
    rounds = np.stack([one[f"rounds_to_{way}"] for one in (mine, other)])
    return gains.judge_fewer_rounds(rounds, **fields)


def lower_end(mine: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
    """Judge final errors below a competitor's; ties are left out."""
    return gains.judge_lower_end(np.stack([mine["final"], other["final"]]), tie=TIE, **fields)


def by_rank(table: lf.Table, rival: str, column: str) -> dict[int, Any]:
    """Return a column of FLUTE and of its competitor, (2, trials), for each rank."""
    return {
        k: np.stack([part.select(method=method)[column] for method in (FLUTE, rival)])
        for k, part in table.groupby("rank")
    }


def more_speed(rival: str, *, signed: bool) -> c.Statistic:
    """Return FLUTE's gain in rounds at the smallest rank divided by that at the largest; the gap unless `signed`."""

    def judge(part: lf.Table, **fields: Any) -> c.Finding | None:
        rounds, last = by_rank(part, rival, LEVEL), int(part["round"][-1])
        if len(rounds) < 2:
            return None
        if np.all(part.select(method=FLUTE)["diverged"]):
            fields["vacuous"] = LOST
        return gains.judge_more_speed(rounds, last, name="k", signed=signed, **fields)

    return c.Statistic(GAIN if signed else GAP, judge, c.above(1.0), c.of(method=[FLUTE, rival]))


def more_reduction(rival: str) -> c.Statistic:
    """Return FLUTE's gain in the final error at the smallest rank minus that at the largest."""

    def judge(part: lf.Table, **fields: Any) -> c.Finding | None:
        finals = by_rank(part, rival, "final")
        return gains.judge_more_reduction(finals, name="k", tie=TIE, **fields) if len(finals) > 1 else None

    return c.Statistic(REDUCTION, judge, c.above(0.0), c.of(method=[FLUTE, rival]))


# --- notes ---------------------------------------------------------------------------------------------------

LOST = "FLUTE diverges in every trial"
"""Why nothing of FLUTE can be compared between sizes."""


def lost_note(*parts: lf.Table) -> str:
    """Return the caveat on diverged trials, for rows at one speed."""
    step = "its tuned step" if parts[0].rows[0]["speed"] == TUNED else "step 0.03"
    return c.join_notes(*(c.diverged_note(part, step) for part in parts))


def lost_against(rival: str) -> Callable[[lf.Table], str]:
    """Return the caveat on diverged trials of FLUTE and a competitor, at the smallest and the largest rank."""

    def note(part: lf.Table) -> str:
        both, ranks = part.select(method=[FLUTE, rival]), part.unique("rank")
        return lost_note(both.select(rank=min(ranks)), both.select(rank=max(ranks)))

    return note


def gain_note(part: lf.Table) -> str:
    """Return the caveats on gains over FedRep (RI): whether FLUTE has one at the smallest rank, diverged trials."""
    k, rounds = min(by_rank(part, FEDREP_RI, LEVEL).items(), key=lambda item: item[0])
    mine, other = gains.lower_median(np.nan_to_num(rounds, nan=np.inf))
    none = "" if mine < other else f"FLUTE has no gain at k = {k}: it needs as many rounds, or more"
    return c.join_notes(none, lost_against(FEDREP_RI)(part))


def end_note(rival: str) -> Callable[[lf.Table], str]:
    """Return the caveats on final errors: runs that have not converged, diverged trials."""
    return lambda part: c.join_notes(
        c.unsettled_note(part.select(method=[FLUTE, rival]), "error"), lost_against(rival)(part)
    )


def rounds_note(part: lf.Table) -> str:
    """Return the caveats on rounds: another verdict at another share of the way, trials without a level or diverged."""
    mine, other = (part.select(method=method) for method in (FLUTE, FEDREP_RI))
    verdicts = {
        way: fewer_rounds(mine, other, way, claim="-", setting="-", statistic="-", source="-").verdict for way in WAY
    }
    others = (
        f"to {100 * way:g} % of the way the verdict is {verdict.value}"
        for way, verdict in verdicts.items()
        if verdict is not verdicts[WAY[1]]
    )
    aimless = np.isnan(mine[LEVEL])
    left_out = f"in {aimless.sum()} of {len(aimless)} trials a tuned method ends above B = 0: no level, left out"
    return c.join_notes(*others, left_out if aimless.any() else "", lost_against(FEDREP_RI)(part))
