"""FedRep paper, Theorem 1: how many rounds a run needs, against n, d, k, kappa, p, m, noise and step size.

The fewest rounds with which half of the runs go from distance 0.9 to 0.01, found by `lf.find_smallest`. Here m = 60,
three times the smallest m of the base setting, and the step size is the theorem's, ``1/(4 sigma_max^2)``. The rounds
are compared with Theorem 1's bound and with `lf.predict`, neither of which has a fitted constant. Samples are fresh in
every round; they are simulated exactly in distribution, in a frame of 3k dimensions whatever d and m.

Figures
-------
"" : Top: fewest rounds from distance 0.9 to 0.01 against each size. Dotted: prediction of `lf.predict`, without a
    fitted constant; shaded: its 95 % interval. Dashed: Theorem 1's bound. Bottom: measured divided by predicted.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1 and (10).
"""

from __future__ import annotations

from dataclasses import replace

import linfed as lf
from linfed.plotting.panels import Figures
from linfed.statistics.findings import OWN_PREDICTION, Finding, judge_exponent

from ..shared.smallest import PANELS, THEOREM, Need, base_setting, settings
from ..shared.smallest_drawn import panels_page
from ..shared.smallest_judged import MARGIN, clients_of, judge_predicted, many_clients, samples_of

SUMMARY = "FedRep paper, Theorem 1: the fewest rounds against n, d, k, kappa, p, m, noise and step size"
PICTURES = {"": 1400}
REDUCED = {"rounds": {"without": ("margin", "reached", "count")}}

ROUNDS_IN = {
    **PANELS,
    "sigma": ("noise_std", (0.001, 0.003, 0.01, 0.03, 0.1), 0.01, "noise $\\sigma$"),
    "eta": ("eta", (0.05, 0.1, 0.2, 0.5, 1.0), 0.5, "step $\\eta$"),
    "m": ("start", (10, 15, 30, 120, 1000), 120, "samples m"),
}


def cells(quick: bool) -> dict[str, list[Need]]:
    """Return the searches; quick: few points, trials and clients."""
    base = replace(base_setting(quick), asks="round", start=60, rounds=30 if quick else 100)
    return {"rounds": settings(ROUNDS_IN, base, ("n", "kappa") if quick else None)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the fewest rounds against each size, with their prediction and the theorem's bound."""
    bound = "Theorem 1's bound on the rounds"
    return {"": panels_page(tables["rounds"], ROUNDS_IN, "fewest rounds", bound, lambda row: row["bound"], "")}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the exponents of the fewest rounds in n and in kappa, and the prediction."""
    table = tables["rounds"]
    many, at = many_clients(table), samples_of(table)
    source = OWN_PREDICTION.adding(MARGIN)
    return [
        judge_exponent(
            lf.fit_power_law("t ~ n^a", many).exponents["a"],
            0.0,
            kind="equal",
            margin=0.02,
            claim="With many clients the rounds do not depend on n",
            setting=f"{clients_of(many)}; {at}",
            source=source,
            theorem=False,
        ),
        judge_exponent(
            lf.fit_power_law("t ~ kappa^a", table.select(panel=["base", "kappa"], step=THEOREM)).exponents["a"],
            2.0,
            kind="equal",
            margin=0.25,
            claim="The rounds grow like kappa^2",
            setting=at,
            source=source,
        ),
        judge_predicted(table, "predicted_crossing", text="lf.predict predicts the fewest rounds", most=1.1),
    ]
