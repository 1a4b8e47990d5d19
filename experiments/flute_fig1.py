"""FLUTE paper, Figure 1: the mean client error of FLUTE, FedRep and FedRep (RI) against rounds, Gaussian regressors.

The truth is the paper's, phi_i ~ N(0, I_d). Its d, k, n, m, sigma, its step and its rounds are not in the text. Chosen
here, after its Figure 3: d = 10, n = 30, m = 20, noise variance 0.3, k in {2, 4, 6, 8}. Varied: m = 100; no noise; all
sizes doubled. Everybody takes part, on one fixed data set, for 600 rounds, by when the tuned runs have settled. FLUTE
starts at its small Gaussian B and W, FedRep at the method of moments, FedRep (RI) at the Q factor of FLUTE's B.

Steps: each method's is tuned on separate trials over one common grid, for the mean of log10 error over the first 300
rounds (fast and low) in nine of ten trials; beside it, all methods at the step 0.03 of the paper's Figure 3, once with
FedRep's own mean over clients and once with a sum over clients, as FLUTE has it (`experiments._flute_compared`).

"Fewer rounds" means fewer to 95 % of the way, trial by trial, from the error at B = 0 to the largest of the three tuned
methods' final errors, so that one level serves all speeds, every tuned method gets there, and levels compare across k.

Figures
-------
"*" : The mean client error of FLUTE, FedRep and FedRep (RI) against rounds, for each k, at tuned steps and at the
    paper's 0.03; median and 10-90 % over trials.
"tuning" : What the steps were chosen by: the mean of log10 error over the rounds that nine of ten separate trials stay
    below; circled: the chosen step; thin line: 0.03.

References: Liu, Shen and Yang 2024, section 7.1 and Figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import linfed as lf
from linfed.plotting.panels import Figures
from linfed.statistics.findings import Finding

from ._flute import FEDREP_RI, RIVALS, SPEEDS, STEP_SIZES
from ._flute_compared import Comparison, at_speeds, curves_figure, ends_lower, gains_more, order_claims, tuning_figure

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
        base = replace(base, trials=5, rounds=40, tuning_trials=2, tuning_rounds=40, step_sizes=STEP_SIZES[2:-1:5])
        ranks, names = RANKS[:: len(RANKS) - 1], names[:2]
    settings = [{"variation": [name], "rank": ranks} | VARIATIONS[name] for name in names]
    return {"runs": [cell for setting in settings for cell in lf.grid(base, **setting)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return the curves of each variation, a row for each speed, and the tuning."""
    runs = tables["runs"].assign(steps=lambda one: SPEED_LABELS[one["speed"]])
    figures = {FIGURES.get(name, name): curves_figure(part, "steps") for name, part in runs.by("variation")}
    return {**figures, "tuning": tuning_figure(runs, "variation")}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return what the paper says of Figure 1, for each variation, rank and speed."""
    settings = at_speeds(tables["runs"], "{variation}, k = {rank}", "variation", "rank")
    variations = at_speeds(tables["runs"], "{variation}", "variation")
    return [
        *order_claims(settings),
        *(gains_more(*variation, FEDREP_RI, signed=True) for variation in variations),
        *(ends_lower(*variation, rival) for rival in RIVALS for variation in variations),
    ]
