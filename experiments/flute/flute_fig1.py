"""FLUTE paper, Figure 1: the mean client error of FLUTE, FedRep and FedRep (RI) against rounds, Gaussian regressors.

The ground truth is the paper's, phi_i ~ N(0, I_d). The text gives neither d, k, n, m and sigma nor the step size and
the rounds. Our choice follows its Figure 3: d = 10, n = 30, m = 20, noise variance 0.3, k in {2, 4, 6, 8}. The
variations are m = 100, no noise, and all sizes doubled. Every round has full participation, on one fixed data set, for
600 rounds, by when the tuned runs have converged. FLUTE starts from its small Gaussian B and W, FedRep from the method
of moments, FedRep (RI) from the Q factor of FLUTE's B.

The step size of each method is tuned on separate trials over one common grid, for the smallest 90 % quantile of the
mean of log10 error over the first 300 rounds (fast and low), not for the fewest rounds to a level. All methods also run
at the step size 0.03 of the paper's Figure 3, in three ways (`experiments.flute._flute_compared`): with FedRep's own
mean over clients; with the gradient of the paper's main text in FLUTE, twice as large as in its analysis; and with a
sum over clients in FedRep, as in FLUTE.

"Fewer rounds" means fewer rounds to keep 95 % of the way, trial by trial, from the error at B = 0 to the largest final
error of the three tuned methods: up to the first round from which on a run is below this level to its end. Thus one
level serves all speeds, every tuned method keeps it, and levels are comparable across k. Rounds are not compared if the
median error of one of the two methods ends above 90 % of its initial value, and final errors are not compared if a
median curve has not converged.

References: Liu, Shen and Yang 2024, section 7.1 and Figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures

from ._flute import FEDREP_RI, RIVALS, SPEEDS
from ._flute_compared import Comparison
from ._flute_compared_claims import SMALL_RANK, gain_note, lost_against, more_reduction, more_speed, order_claims
from ._flute_compared_figures import NOT_DRAWN, curves_figure, tuning_figure

SUMMARY = "FLUTE paper, Figure 1: mean client error against rounds, FLUTE, FedRep and FedRep (RI), k = 2 to 8"
HEADLINES = (
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "setting": "0.03: main, k = 4",
        "among": ("0.03: ", "all at the paper's step 0.03, FedRep averaging over clients"),
    },
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "setting": "0.03, factor 2: main, k = 4",
        "among": ("0.03, factor 2: ", "all at the paper's step 0.03, FLUTE with its main text's gradient"),
    },
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "setting": "0.03, summed: main, k = 4",
        "among": ("0.03, summed: ", "all at the paper's step 0.03, FedRep summing over clients"),
    },
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "setting": "tuned: main, k = 4",
        "among": ("tuned: ", "every method at its step with the smallest mean log error"),
    },
    {
        "claim": "FLUTE has a smaller final error than FedRep",
        "among": ("0.03: ", "all at the paper's step 0.03, FedRep averaging over clients"),
    },
    {
        "claim": "FLUTE has a smaller final error than FedRep",
        "among": ("tuned: ", "every method at its step with the smallest mean log error"),
    },
    {
        "claim": "FLUTE's gain in the final error over FedRep is larger for small k",
        "among": ("0.03: ", "all at the paper's step 0.03, FedRep averaging over clients"),
    },
    {
        "claim": "FLUTE's gain in the final error over FedRep is larger for small k",
        "among": ("tuned: ", "every method at its step with the smallest mean log error"),
    },
)
CURVES = (
    "Mean client error of FLUTE, FedRep and FedRep (RI) against rounds, for each k, at tuned step sizes and at the "
    "paper's 0.03. Factor 2: FLUTE has twice the data gradient. Lines: median over trials; shaded: 10-90 % of FLUTE "
    "and FedRep."
)
CAPTIONS = {
    **dict.fromkeys(("", "m100", "noiseless", "doubled"), CURVES),
    "tuning": "Tuning criterion against step size: the 90 % quantile over separate tuning trials of the mean of log10 "
    "error over rounds. Circled: the selected step size; thin line: 0.03.",
}
PICTURES = {"": 1400}
REDUCED = {"runs": {"without": (*NOT_DRAWN, "rounds_to_0.95", "final")}}

RANKS = (2, 4, 6, 8)
VARIATIONS = {
    "main": (10, 30, 20, 0.3),
    "m = 100": (10, 30, 100, 0.3),
    "noiseless": (10, 30, 20, 0.0),
    "doubled": (20, 60, 40, 0.3),
}
"""d, n, m and the noise variance of each variation; none are given in the paper. The ranks grow with d."""

FIGURES = {"main": "", "m = 100": "m100"}
"""Suffixes of figure names, for variations whose suffix is not their own name."""

SPEED_LABELS = dict(
    zip(SPEEDS, ("steps tuned", *(f"$\\eta$ = 0.03{part}" for part in ("", ", factor 2", ", all sum"))), strict=True)
)


@dataclass(frozen=True, kw_only=True)
class Variation(Comparison):
    """A variation of the main setting, at one rank."""

    variation: str = lf.choice(VARIATIONS, "main", label=True)


def cells(quick: bool) -> dict[str, list[Variation]]:
    """Return the variations; quick: fewer trials, rounds and step sizes, two ranks and one variation."""
    base, ranks, names = Variation(n_clients=0, n_samples=0, rank=0), list(RANKS), list(VARIATIONS)
    if quick:
        base = replace(base, trials=36, n_rounds=250, tuning_trials=3, tuning_rounds=100, step_sizes=(0.05, 0.5))
        ranks, names = [min(RANKS), max(RANKS)], ["m = 100"]
    sizes = "variation, dim, n_clients, n_samples, noise_variance, rank"
    points = [(name, *VARIATIONS[name], k * VARIATIONS[name][0] // 10) for name in names for k in ranks]
    return {"runs": lf.grid(base, **{sizes: points})}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the curves of each variation, with a row for each speed, and the tuning."""
    runs = tables["runs"].assign(steps=lambda one: SPEED_LABELS[one["speed"]])
    figures = {FIGURES.get(name, name): curves_figure(part, "steps", "col") for name, part in runs.groupby("variation")}
    return {**figures, "tuning": tuning_figure(runs, "variation")}


CLAIMS = (
    *order_claims("{speed}: {variation}, k = {rank}", "variation", "rank"),
    c.Claim(
        f"FLUTE's gain in rounds over {FEDREP_RI} is larger for small k",
        SMALL_RANK,
        more_speed(FEDREP_RI, signed=True),
        over=c.each("speed", "variation"),
        setting="{speed}: {variation}",
        note=gain_note,
    ),
    *(
        c.Claim(
            f"FLUTE's gain in the final error over {rival} is larger for small k",
            SMALL_RANK,
            more_reduction(rival),
            over=c.each("speed", "variation"),
            setting="{speed}: {variation}",
            note=lost_against(rival),
        )
        for rival in RIVALS
    ),
)
