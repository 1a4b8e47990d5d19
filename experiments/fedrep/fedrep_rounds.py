"""FedRep paper, Theorem 1: how many rounds a run needs, against n, d, k, kappa, p, m, noise and step size.

The fewest rounds with which half of the runs go from distance 0.9 to 0.01, found by `lf.find_smallest`. Here m = 60,
three times the smallest m of the base setting, and the step size is the theorem's, ``1/(4 sigma_max^2)``. The rounds
are compared with Theorem 1's bound and with `lf.predict`, both without a fitted constant. Samples are fresh in every
round; they are simulated exactly in distribution, in a frame of 3k dimensions whatever d and m.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1 and (10).
"""

from __future__ import annotations

from dataclasses import replace

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures

from ..shared.smallest import PANELS, THEOREM, Need, base_setting, settings
from ..shared.smallest_drawn import panels_page
from ..shared.smallest_judged import FACTOR, TOLERANCE, clients_of, has_prediction, many_clients, predicted

SUMMARY = "FedRep paper, Theorem 1: the fewest rounds against n, d, k, kappa, p, m, noise and step size"
PICTURES = {"": 1400}
REDUCED = {"rounds": {"without": ("shortfall", "reached", "count")}}
CAPTIONS = {
    "": "Top: fewest rounds from distance 0.9 to 0.01 against each size. Dotted: prediction of `lf.predict`, without a "
    "fitted constant; shaded: its 95 % interval. Dashed: Theorem 1's bound. Bottom: measured divided by predicted."
}

ROUNDS_IN = {
    **PANELS,
    "n": (*PANELS["n"][:3], {10_000: {"trials": 8}, 100_000: {"trials": 8}}),
    "sigma": ("noise_std", (0.001, 0.003, 0.01, 0.03, 0.1), 0.01),
    "eta": ("eta", (0.05, 0.1, 0.2, 0.5, 1.0), 0.5),
    "m": ("start", (10, 15, 30, 120, 1000), 120),
}


def cells(quick: bool) -> dict[str, list[Need]]:
    """Return the searches; quick: few points, trials and clients."""
    base = replace(base_setting(quick), asks="round", start=60, n_rounds=30 if quick else 100)
    return {"rounds": settings(ROUNDS_IN, base, ("n", "kappa") if quick else None)}


CLAIMS = (
    c.Claim(
        "With many clients the rounds do not depend on n",
        c.OWN_PREDICTION.adding(TOLERANCE),
        c.power_law("t ~ n^a", "a", 0.0, 0.02),
        where=many_clients,
        setting=lambda table: f"{clients_of(table)}; m = {table.rows[0]['start']:,}",
        theorem=False,
    ),
    c.Claim(
        "At the theorem's step size the rounds grow like kappa^2",
        c.OWN_PREDICTION.adding(TOLERANCE),
        c.power_law("t ~ kappa^a", "a", 2.0, 0.25),
        where=c.of(panel=["base", "kappa"], step=THEOREM),
        setting="m = {start:,}",
        theorem=False,
    ),
    c.Claim(
        "lf.predict predicts the fewest rounds",
        FACTOR,
        predicted("predicted_crossing", 1.1),
        where=has_prediction("predicted_crossing"),
        setting="{points} settings, m = {start:,}",
    ),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the fewest rounds against each size, with their prediction and the theorem's bound."""
    bound = "Theorem 1's bound on the rounds"
    return {"": panels_page(tables["rounds"], ROUNDS_IN, "fewest rounds", bound, lambda row: float(row["bound"]))}
