"""FLUTE against FedRep and FedRep (RI), for Figures 1 and 3 of the FLUTE paper: cells, figures and judges.

All methods run on the same ground truths, data and random draws, at four speeds:

- "tuned": each method has its own step size, chosen on separate trials over one common grid;
- "0.03": all methods have the paper's step size and the loss of its analysis, with 1/2. FLUTE sums over clients and
  FedRep averages, so that the same number means different speeds;
- "0.03, factor 2": the same step size, and for FLUTE the loss of the paper's main text, without 1/2, which doubles its
  data gradient. FedRep keeps the loss of the FedRep paper, with 1/2;
- "0.03, summed": as "0.03", with FedRep summing over clients too.

The claims compare numbers of rounds and final errors. A trial's number of rounds is NaN if there is no level to reach,
and infinite if the run does not reach it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.claims.caveats import diverged_note, edge_note, unsettled_note
from linfed.plotting.panels import steps
from linfed.statistics import gains
from linfed.statistics.findings import Finding, cite, join_notes
from linfed.statistics.intervals import quantiles

from ._flute import (
    DOUBLED,
    FEDREP,
    FEDREP_RI,
    FLUTE,
    FLUTE_STEP,
    METHODS,
    PLAIN,
    RIVALS,
    SPEEDS,
    STEP_SIZES,
    SUMMED,
    TUNED,
    Setting,
)

WAY = (0.8, 0.95, 0.99)
"""Shares of the way from the initial error to the final one; claims are judged at the middle share."""

LEVEL = f"rounds_to_{WAY[1]}"
"""The column of rounds on which claims are judged."""

NOT_DRAWN = ("least", "least_round", "rounds_to_0.8", "rounds_to_0.99", "length", "diverged")
"""Columns that no figure shows."""

TIE = 1e-3
"""Final errors within this relative distance count as equal: both runs are at the same stationary point."""

FIG1, FIG3 = "FLUTE paper, section 7.1, Figure 1", "FLUTE paper, C.1, Figure 3"
MUCH_FEWER = cite(FIG1, "when FedRep is randomly initialized, FLUTE outperforms FedRep(RI) in much fewer iterations")
OUTPERFORMS = cite(FIG1, "as the learning progresses over more epochs, FLUTE eventually outperforms FedRep")
SMALL_RANK = cite(
    FIG1,
    "the performance gain of FLUTE is more pronounced [...] where k is relatively small. As k increases, the gap "
    "between the convergence rates of FLUTE and FedRep narrows",
)
GAP_SHRINKS = cite(
    FIG3, "an increase in k results in a diminishing discrepancy in convergence speeds between FLUTE and FedRep"
)
"""Quotations of the paper."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Setting):
    """All methods at all speeds in one setting: a cell of Figures 1 and 3."""

    rounds: int = 600
    step_sizes: tuple[float, ...] = STEP_SIZES
    tuning_trials: int = 10
    tuning_rounds: int = 300

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.n_clients * self.rank

    def algorithms(self, method: str) -> dict[str, tuple[lf.Algorithm, dict[str, Any]]]:
        """Return a method at each speed, with the columns of its tuning or its step size."""

        def at(step: float, speed: str = PLAIN) -> lf.Algorithm:
            if method == FLUTE:
                return lf.FLUTE(rank=self.rank, step_size=step, gradient_factor=2 if speed == DOUBLED else 1)
            init = "moments" if method == FEDREP else "random"
            aggregate = "sum" if speed == SUMMED else "mean"
            return lf.FedRep(rank=self.rank, step_size=step, init=init, aggregate=aggregate)

        grid = [at(step) for step in self.step_sizes]
        tuning = self.tune(grid, score="area", rounds=self.tuning_rounds, trials=self.tuning_trials)
        fixed = {speed: (at(FLUTE_STEP, speed), {"step_size": FLUTE_STEP}) for speed in SPEEDS if speed != TUNED}
        return {TUNED: (tuning.algorithm, tuning.columns())} | fixed

    def run(self) -> list[dict[str, Any]]:
        """Tune every method on separate trials; return a row for each method at each speed, with reference errors."""
        runs, curves = [], dict[lf.Algorithm, Any]()
        for method in METHODS:
            for speed, (algorithm, columns) in self.algorithms(method).items():
                if algorithm not in curves:
                    curves[algorithm] = self.simulate(algorithm, self.rounds).metrics["mean_client_error"]
                runs.append(({"speed": speed, "method": method, **columns}, curves[algorithm]))
        truncation, start = self.truncation  # all start at heads of (nearly) 0
        lines = {"truncation": truncation, "length": start, "oracle": self.final(lf.Oracle(rank=self.rank))}
        tuned = [curve[:, -1] for row, curve in runs if row["speed"] == TUNED]
        end = np.nan_to_num(tuned, nan=-1.0).max(axis=0)
        return [row | lines | measured(curve, start, end) for row, curve in runs]


def measured(curve: Any, start: Any, end: Any) -> dict[str, Any]:
    """Return quantiles of errors (trials, rounds + 1), final and smallest errors, and rounds to shares of the way."""
    filled, last = np.nan_to_num(curve, nan=np.inf), curve.shape[1] - 1
    kept = np.unique(np.concatenate([[0], np.geomspace(1, last, 60).astype(int)]))
    return {
        "error": lf.LabeledArray(quantiles(curve[:, kept]), quantile=(0.5, 0.1, 0.9), round=kept),
        "final": curve[:, -1],
        "least": filled.min(axis=1),
        "least_round": filled.argmin(axis=1),
        "diverged": np.isnan(curve[:, -1]),
        **{f"rounds_to_{share}": gains.rounds_to_share(curve, start, end, share) for share in WAY},
    }


# --- figures -------------------------------------------------------------------------------------------------


def curves_figure(table: lf.Table, row: str) -> Any:
    """Return the curves and reference lines: a column for each rank, a row for each value of a column of the table."""
    values = table.unique(row)
    with lf.panels(
        table, column="rank", row=row, title="k = {}", height=0.9 + 1.35 * len(values), sharex=True
    ) as sheet:
        for ax, part in sheet:
            lf.plot_curves(ax, part, "round", "error", at=slice(1, None))  # three "trials" with the saved quantiles
            for name, line, style in (
                ("oracle", "oracle (exact heads on $U_k$)", (0, (1, 1))),
                ("truncation", "truncation $\\Phi_k$", (0, (5, 2))),
            ):
                shape = {"color": "0.25", "linewidth": 0.8, "linestyle": style, "zorder": 1.5}
                ax.axhline(float(np.median(part.rows[0][name])), label=line, **shape)
            ax.set_xscale("log")
        sheet.label("round", *(f"{value}\nmean client error" for value in values))
        sheet.legend(f"{common(table)}; median and 10-90 % of {table.rows[0]['trials']} trials")
    return sheet.figure


def common(table: lf.Table) -> str:
    """Return the sizes that all rows of a table share, without the rank, as text."""
    names = {"d": "dim", "n": "n_clients", "m": "n_samples", "noise variance": "noise_variance"}
    found = {name: table.unique(column) for name, column in names.items()}
    return ", ".join(f"{name} = {values[0]:g}" for name, values in found.items() if len(values) == 1)


def tuning_figure(table: lf.Table, row: str) -> Any:
    """Return the tuning curves: a row for each value of a column of the table, a column for each of its ranks."""
    tuned = table.select(speed=TUNED)
    ranks = {value: part.unique("rank") for value, part in tuned.groupby(row)}
    turns = tuned.assign(turn=lambda one: ranks[one[row]].index(one["rank"]))
    with lf.panels(turns, column="turn", row=row, height=0.9 + 1.35 * len(ranks), sharex=True) as sheet:
        for ax, part in sheet:
            steps(ax, part)
            ax.axvline(FLUTE_STEP, color="0.6", linewidth=0.6, zorder=0)
            ax.set_title(f"k = {part.rows[0]['rank']}")
        sheet.label("step size", *(f"{value}\nscore" for value in ranks))
        caption = "mean of $\\log_{10}$ error over rounds, 90 % of the tuning trials lie below"
        sheet.legend(f"{caption}; circled: the chosen step size; thin line: 0.03")
    return sheet.figure


# --- claims --------------------------------------------------------------------------------------------------


def at_speeds(runs: lf.Table, pattern: str, *names: str) -> list[tuple[str, lf.Table]]:
    """Return a table for each speed and value of some columns, with its name from the format string `pattern`."""
    found = [(speed, part) for speed in SPEEDS for _, part in runs.select(speed=speed).groupby(*names)]
    return [(f"{speed}: {pattern.format_map(part.rows[0])}", part) for speed, part in found]


def duel(table: lf.Table, rival: str, column: str) -> Any:
    """Return a column of FLUTE and of its competitor, (2, trials)."""
    return np.stack([table.select(method=method)[column] for method in (FLUTE, rival)])


def note(table: lf.Table) -> str:
    """Return caveats on rows at one speed: diverged trials, step sizes at the edge of the grid."""
    return join_notes(
        diverged_note(table, "its tuned step" if table.rows[0]["speed"] == TUNED else "step 0.03"), edge_note(table)
    )


def note_on(table: lf.Table, rival: str) -> str:
    """Return the caveats on FLUTE and a competitor, at the smallest and the largest rank."""
    ranks = table.unique("rank")
    return join_notes(*(note(table.select(rank=k, method=[FLUTE, rival])) for k in (min(ranks), max(ranks))))


def lost(table: lf.Table) -> str:
    """Return why nothing of FLUTE can be compared between sizes: all of its trials diverge; empty if some do not."""
    return "FLUTE diverges in every trial" if np.all(table.select(method=FLUTE)["diverged"]) else ""


def order_claims(settings: list[tuple[str, lf.Table]]) -> list[Finding]:
    """Return the findings on fewer rounds than FedRep (RI), and on smaller final errors than either FedRep."""
    ends = [ends_below(*setting, rival) for rival in RIVALS for setting in settings]
    return [*(needs_fewer(*setting, FEDREP_RI) for setting in settings), *ends]


def ends_below(setting: str, table: lf.Table, rival: str) -> Finding:
    """Return the finding on smaller final errors than a competitor's.

    Ties are counted and left out; diverged trials have the largest errors.
    """
    return gains.judge_lower_end(
        duel(table, rival, "final"),
        tie=TIE,
        claim=f"FLUTE has a smaller final error than {rival}",
        setting=setting,
        statistic="share of paired trials with the smaller final error "
        f"(ties excluded: within {100 * TIE:g} %, the same stationary point)",
        source=OUTPERFORMS,
        note=join_notes(unsettled_note(table.select(method=[FLUTE, rival]), "error"), note_on(table, rival)),
    )


def needs_fewer(setting: str, table: lf.Table, rival: str) -> Finding:
    """Return the finding on fewer rounds than a competitor to the middle share of the way.

    Its note lists other shares with another verdict, and counts trials without a level to reach.
    """
    fields = {
        "claim": f"FLUTE needs fewer rounds than {rival}",
        "setting": setting,
        "statistic": f"share of paired trials with fewer rounds to {100 * WAY[1]:g} % of the way from the "
        "initial error to the largest final error of the three tuned methods (ties excluded)",
        "source": MUCH_FEWER,
    }
    found = {share: gains.judge_fewer_rounds(duel(table, rival, f"rounds_to_{share}"), **fields) for share in WAY}
    main, aimless = found[WAY[1]], np.isnan(table.select(method=FLUTE)[LEVEL])
    others = [
        f"to {100 * share:g} % of the way the verdict is {one.verdict.value}"
        for share, one in found.items()
        if one.verdict is not main.verdict
    ]
    left_out = f"in {aimless.sum()} of {len(aimless)} trials a tuned method ends above B = 0: no level, left out"
    return replace(main, note=join_notes(*others, left_out if aimless.any() else "", note_on(table, rival)))


def gains_more(setting: str, table: lf.Table, rival: str, *, signed: bool) -> Finding:
    """Return the finding on a larger gain in rounds at the smallest of the table's ranks, at one speed.

    The gain is the competitor's median divided by FLUTE's. If `signed` is False it is the gap: the larger of the two
    medians divided by the smaller.
    """
    rounds = {k: duel(part, rival, LEVEL) for k, part in table.groupby("rank")}
    mine, other = gains.lower_median(np.nan_to_num(rounds[min(rounds)], nan=np.inf))
    text = (
        "FLUTE's gain in rounds over {} is larger" if signed else "The gap between the speeds of FLUTE and {} shrinks"
    )
    none = f"FLUTE has no gain at k = {min(rounds)}: it needs as many rounds, or more"
    empty = {"vacuous": lost(table)} if lost(table) else {}
    return gains.judge_more_speed(
        rounds,
        int(table["round"][-1]),
        name="k",
        signed=signed,
        claim=text.format(rival) + (" for small k" if signed else " with k"),
        setting=setting,
        source=SMALL_RANK if signed else GAP_SHRINKS,
        statistic=f"{'gain' if signed else 'gap'} at the smallest k divided by that at the largest; a gain is the "
        "competitor's median rounds divided by FLUTE's"
        + ("" if signed else ", a gap the larger of the two divided by the smaller"),
        note=join_notes(none if signed and not mine < other else "", note_on(table, rival)),
        **empty,
    )


def ends_lower(setting: str, table: lf.Table, rival: str) -> Finding:
    """Return the finding on a larger gain in the final error at the smallest rank, at one speed."""
    return gains.judge_more_reduction(
        {k: duel(part, rival, "final") for k, part in table.groupby("rank")},
        name="k",
        tie=TIE,
        claim=f"FLUTE's gain in the final error over {rival} is larger for small k",
        setting=setting,
        source=SMALL_RANK,
        statistic="median gain in per cent of the competitor's error (0 for a tie), smallest k minus largest k",
        note=note_on(table, rival),
    )
