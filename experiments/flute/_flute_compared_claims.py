"""FLUTE against FedRep and FedRep (RI), for Figures 1 and 3 of the FLUTE paper: the claims.

The claims compare numbers of rounds and final errors. Diverged trials have the largest errors. The verdict on rounds is
VACUOUS if the median error of one of the two methods hardly falls. The verdict on final errors is VACUOUS if a median
error has not converged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.numerics.quantiles import quantiles
from linfed.statistics import gains

from ._flute import FEDREP, FEDREP_RI, FLUTE, RIVALS, TUNED
from ._flute_compared import WAY

LEVEL = f"rounds_to_{WAY[1]}"
"""The column of rounds on which claims are judged."""

FALLEN = 0.9
"""Rounds are compared only if both median errors end at most at this share of their initial values: our threshold."""

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
DIMINISHING = "an increase in k results in a diminishing discrepancy in convergence speeds between FLUTE and FedRep"
OF_RIVAL = {FEDREP: "", FEDREP_RI: FEDREP_RI}
"""Of which rival a sentence of the paper about FedRep is asked."""
GAP_SHRINKS = {rival: c.cite(FIG3, DIMINISHING, asked_of=of_rival) for rival, of_rival in OF_RIVAL.items()}

FEWER = (
    f"share of paired trials with fewer rounds to keep {100 * WAY[1]:g} % of the way from the initial error to the "
    "largest final error of the three tuned methods, among the trials that differ"
)
LOWER = (
    f"share of paired trials with the smaller final error, among the trials that differ by more than {100 * TIE:g} % "
    "(the others end at the same stationary point)"
)
GAIN = (
    "gain at the smallest k divided by the gain at the largest; a gain is the competitor's median rounds to keep the "
    "level divided by FLUTE's"
)
GAP = f"{GAIN.replace('gain at', 'gap at')}, a gap the larger of the two divided by the smaller"
REDUCTION = "median gain in per cent of the competitor's error (0 for a tie), smallest k minus largest k"


def order_claims(setting: str, *columns: str, asked_of: str = "") -> tuple[c.Claim, ...]:
    """Return Figure 1's claims, for each value of some columns: fewer rounds than FedRep (RI), smaller final errors.

    `asked_of` names the settings, unless they are Figure 1's.
    """
    fewer = c.cite(FIG1, MUCH_FEWER, asked_of=asked_of)
    outperforms = {
        rival: c.cite(FIG1, OUTPERFORMS, asked_of=" in ".join(filter(None, (of_rival, asked_of))))
        for rival, of_rival in OF_RIVAL.items()
    }
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
                outperforms[rival],
                c.compared(LOWER, FLUTE, rival, lower_end, c.MOST),
                over=over,
                setting=setting,
                note=lost_against(rival),
            )
            for rival in RIVALS
        ),
    )


# --- statistics ----------------------------------------------------------------------------------------------


def fewer_rounds(mine: lf.Table, other: lf.Table, way: float = WAY[1], **fields: Any) -> c.Finding:
    """Judge fewer rounds than a competitor to keep a share of the way; trials without a level to reach do not count."""
    if reason := no_level_note(mine + other):
        fields["vacuous"] = reason
    rounds = np.stack([one[f"rounds_to_{way}"] for one in (mine, other)])
    return gains.judge_fewer_rounds(rounds, **fields)


def lower_end(mine: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
    """Judge final errors below a competitor's, if both have converged; ties are left out."""
    if reason := c.unsettled_note(mine + other, "error"):
        fields["vacuous"] = reason
    return gains.judge_lower_end(np.stack([mine["final"], other["final"]]), tie=TIE, **fields)


def outer_ranks(table: lf.Table) -> lf.Table:
    """Return the rows of the smallest and of the largest rank."""
    ranks = table.unique("rank")
    return table.select(rank=[min(ranks), max(ranks)])


def by_rank(table: lf.Table, rival: str, column: str) -> dict[int, Any]:
    """Return a column of FLUTE and of its competitor, (2, trials), for each rank."""
    return {
        k: np.stack([part.select(method=method)[column] for method in (FLUTE, rival)])
        for k, part in table.groupby("rank")
    }


def more_speed(rival: str, *, signed: bool) -> c.Statistic:
    """Return FLUTE's gain in rounds at the smallest rank divided by that at the largest; the gap unless `signed`.

    There is no finding if a tuned step size at one of these ranks lies at the edge of the grid.
    """

    def judge(part: lf.Table, **fields: Any) -> c.Finding | None:
        rounds, last = by_rank(part, rival, LEVEL), int(part["round"][-1])
        if len(rounds) < 2 or c.edge_note(outer_ranks(part)):
            return None
        if reason := no_level_note(outer_ranks(part)):
            fields["vacuous"] = reason
        return gains.judge_more_speed(rounds, last, name="k", signed=signed, **fields)

    return c.Statistic(GAIN if signed else GAP, judge, c.above(1.0), c.of(method=[FLUTE, rival]))


def more_reduction(rival: str) -> c.Statistic:
    """Return FLUTE's gain in the final error at the smallest rank minus that at the largest, if all have converged."""

    def judge(part: lf.Table, **fields: Any) -> c.Finding | None:
        finals = by_rank(part, rival, "final")
        if reason := c.join_notes(*(c.unsettled_note(one, "error") for _, one in outer_ranks(part).groupby("rank"))):
            fields["vacuous"] = reason
        return gains.judge_more_reduction(finals, name="k", tie=TIE, **fields) if len(finals) > 1 else None

    return c.Statistic(REDUCTION, judge, c.above(0.0), c.of(method=[FLUTE, rival]))


# --- notes ---------------------------------------------------------------------------------------------------

LOST = "FLUTE diverges in every trial"
"""Why nothing of FLUTE can be compared between sizes."""

TUNED_FOR = "step sizes are tuned for the smallest mean of log10 error, not for the fewest rounds"
"""Caveat on numbers of rounds at tuned step sizes."""


def no_level_note(table: lf.Table) -> str:
    """Return why rounds are not compared: the methods whose median error hardly falls or diverges; empty if none."""
    notes = []
    for rank, part in table.groupby("rank"):
        ends = {one.rows[0]["method"]: quantiles(one["error"])[0][[0, -1]] for one in part}
        names = [name for name, (first, last) in ends.items() if last > FALLEN * first]
        if names:
            whose = " and of ".join(names)
            notes.append(
                f"no level to compare at k = {rank}: the median error of {whose} ends above {100 * FALLEN:g} % of its "
                "initial value"
            )
    return c.join_notes(*notes)


def tuning_note(part: lf.Table) -> str:
    """Return the caveat on the criterion of the tuning, for rows at tuned step sizes."""
    return TUNED_FOR if part.rows[0]["speed"] == TUNED else ""


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
    """Return the caveats on gains over FedRep (RI): whether FLUTE has one at the smallest rank, and `speed_note`."""
    k, rounds = min(by_rank(part, FEDREP_RI, LEVEL).items(), key=lambda item: item[0])
    mine, other = gains.lower_median(np.nan_to_num(rounds, nan=np.inf))
    none = "" if mine < other else f"FLUTE has no gain at k = {k}: it needs as many rounds, or more"
    return c.join_notes(none, speed_note(FEDREP_RI)(part))


def speed_note(rival: str) -> Callable[[lf.Table], str]:
    """Return the caveats on numbers of rounds: the criterion of the tuning, diverged trials."""
    return lambda part: c.join_notes(tuning_note(part), lost_against(rival)(part))


def rounds_note(part: lf.Table) -> str:
    """Return the caveats on rounds: other verdicts at other shares of the way, trials without a level, `speed_note`."""
    mine, other = (part.select(method=method) for method in (FLUTE, FEDREP_RI))
    verdicts = {
        way: fewer_rounds(mine, other, way, claim="-", setting="-", statistic="-", source="-").verdict for way in WAY
    }
    others = (
        f"for {100 * way:g} % of the way the verdict is {verdict.value}"
        for way, verdict in verdicts.items()
        if verdict is not verdicts[WAY[1]]
    )
    aimless = np.isnan(mine[LEVEL])
    left_out = f"in {aimless.sum()} of {len(aimless)} trials a tuned method ends above B = 0: no level, left out"
    return c.join_notes(*others, left_out if aimless.any() else "", speed_note(FEDREP_RI)(part))
