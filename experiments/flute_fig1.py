"""FLUTE paper, Figure 1: the mean client error of FLUTE, FedRep and FedRep (RI) against rounds, Gaussian regressors.

The truth is the paper's, phi_i ~ N(0, I_d). Its d, k, n, m, sigma, its step and its rounds are not in the text. Chosen
here, after its Figure 3: d = 10, n = 30, m = 20, noise variance 0.3, k in {2, 4, 6, 8}. Varied: m = 100; no noise; all
sizes doubled. Everybody takes part, on one fixed data set, for 600 rounds, by when the tuned runs have settled. FLUTE
starts at its small Gaussian B and W, FedRep at the method of moments, FedRep (RI) at the Q factor of FLUTE's B.

Steps: each method's is tuned on separate trials over one common grid, for the mean of log10 error over the first 300
rounds (fast and low) in nine of ten trials; beside it, all methods at the step 0.03 of the paper's Figure 3, once with
FedRep's own mean over clients and once with a sum over clients, as FLUTE has it (`experiments._flute`).

"Fewer rounds" means fewer to 95 % of the way, trial by trial, from the error at B = 0 to the largest of the three tuned
methods' final errors, so that one level serves all speeds, every tuned method gets there, and levels compare across k.

References: Liu, Shen and Yang 2024, section 7.1 and Figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import Finding, joined, judge
from linfed.statistics.gains import lower_median, resampled
from linfed.statistics.intervals import worst
from linfed.study.pages import Figures

from ._flute import FEDREP_RI, FLUTE, RIVALS, SPEEDS, STEP_SIZES, Comparison
from ._flute_figures import curves_figure, tuning_figure
from ._flute_gains import SMALL_RANK, TIE, at_speeds, duel, ends_below, gains_more, needs_fewer, note

SUMMARY = "FLUTE paper, Figure 1: mean client error against rounds, FLUTE, FedRep and FedRep (RI), k = 2 to 8"

RANKS = (2, 4, 6, 8)
VARIATIONS: dict[str, dict[str, Any]] = {
    "main": {},
    "m = 100": {"n_samples": [100]},
    "noiseless": {"noise_variance": [0.0]},
    "doubled": {"dim": [20], "n_clients": [60], "n_samples": [40], "rank": [2 * k for k in RANKS]},
}
"""What a variation has in the place of the main setting's sizes, none of which are the paper's."""

FIGURES = {"main": "", "m = 100": "m100"}
"""What the names of a variation's figures end in, where not its own name."""

SPEED_LABELS = dict(zip(SPEEDS, ("steps tuned", "$\\eta$ = 0.03", "$\\eta$ = 0.03, all sum"), strict=True))


@dataclass(frozen=True, kw_only=True)
class Variation(Comparison):
    """A variation of the main setting, at one rank."""

    variation: str = ""
    n_clients: int = 30
    n_samples: int = 20


def cells(quick: bool) -> dict[str, list[Variation]]:
    """Return the variations; a quick run has fewer trials, rounds and steps, two ranks and two variations."""
    base, ranks, names = Variation(rank=0), RANKS, list(VARIATIONS)
    if quick:
        base = replace(base, trials=10, tuning_trials=4, rounds=200, tuning_rounds=200, step_sizes=STEP_SIZES[1:-1:3])
        ranks, names = RANKS[:: len(RANKS) - 1], names[:2]
    settings = [{"variation": [name], "rank": ranks} | VARIATIONS[name] for name in names]
    return {"runs": [cell for setting in settings for cell in lf.grid(base, **setting)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return the curves of each variation, a row for each speed, and the tuning."""
    runs = tables["runs"]
    figures = {
        FIGURES.get(name, name): curves_figure(part, "speed", SPEED_LABELS.__getitem__)
        for name, part in runs.by("variation")
    }
    return {**figures, "tuning": tuning_figure(runs, "variation")}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return what the paper says of Figure 1, for each variation, rank and speed."""
    settings = at_speeds(tables["runs"], "{variation}, k = {rank}", "variation", "rank")
    variations = at_speeds(tables["runs"], "{variation}", "variation")
    text = f"FLUTE's gain in rounds over {FEDREP_RI} is larger for small k"
    return [
        *(needs_fewer(*setting, FEDREP_RI) for setting in settings),
        *(ends_below(*setting, rival) for rival in RIVALS for setting in settings),
        *(gains_more(*variation, FEDREP_RI, signed=True, text=text) for variation in variations),
        *(ends_lower(*variation, rival) for rival in RIVALS for variation in variations),
    ]


def ends_lower(where: str, table: lf.Table, rival: str) -> Finding:
    """Return the claim that FLUTE's gain in the final error is larger at the smallest rank, at one speed."""
    gains = {}
    for k, part in table.by("rank"):
        mine, other = worst(duel(part, rival, "final"))
        gains[k] = 100 * np.where(np.abs(1 - mine / other) <= TIE, 0.0, 1 - mine / other)
    first, last = min(gains), max(gains)
    small, large = gains[first], gains[last]
    index = resampled(len(small))
    low, high = np.quantile(lower_median(small[index]) - lower_median(large[index]), (0.025, 0.975))
    return judge(
        (float(lower_median(small) - lower_median(large)), float(low), float(high)),
        source=SMALL_RANK,
        text=f"FLUTE's gain in the final error over {rival} is larger for small k",
        where=where,
        statistic="median gain in per cent of the rival's error (a tie is none), at the smallest k less at the largest",
        least=0.0,
        strict=True,
        detail=f"{', '.join(f'{float(lower_median(gain)):.2g}' for gain in gains.values())} % at "
        f"k = {', '.join(str(k) for k in gains)}",
        note=joined(*(note(table.where(rank=k, method=[FLUTE, rival])) for k in (first, last))),
    )
