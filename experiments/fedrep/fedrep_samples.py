"""FedRep paper, Theorem 1: how many samples m a run needs, against n, d, k, kappa, p, noise, step size and rounds.

The smallest m per client and round with which half of the runs go from distance 0.9 to 0.01 in 40 rounds (40 kappa^2
rounds if heads are anisotropic). It is found by `lf.find_smallest`, at the theorem's step size ``1/(4 sigma_max^2)``
and at the best step size near B*. It is compared with Theorem 1's m, whose constant c is fitted to the base setting,
and with `lf.predict`, which has no fitted constant. Samples are fresh in every round; they are simulated exactly in
distribution, in a frame of 3k dimensions whatever d and m.

Theorem 1 says that a number of samples is sufficient, and is judged from above: a smaller sufficient number does not
refute it. How tight it is, is our own question. Statements that the paper prints with Theta, in section 4.2 and (11),
are judged from both sides.

A second table has the smallest m on one fixed data set per client, in 100 rounds without noise. It is compared with the
prediction from the Marchenko-Pastur distribution (`linfed.theory.fixed_samples_needed`), which has no fitted parameter,
and with a count of equations and unknowns.

**Deviations**: the FedRep paper draws fresh samples in every round.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1, section 4.2 and (11); Marchenko and Pastur 1967.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.plotting.panels import SIZE_LABELS, Figures

from ..shared.smallest import BEST, FIXED, PANELS, THEOREM, Need, Panels, base_setting, settings
from ..shared.smallest_drawn import COLOURS, draw_measured, label_axes, panels_page, panels_row, rows_of
from ..shared.smallest_judged import (
    FACTOR,
    TOLERANCE,
    clients_of,
    covered,
    has_prediction,
    lawful,
    many_clients,
    over,
    predicted,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUMMARY = "FedRep paper, Theorem 1: the smallest m against n, d, k, kappa, p, noise, step size and rounds"
HEADLINES = (
    {
        "claim": "With Theorem 1's m, c = 1, half of the runs go from distance 0.9 to 0.01 in 20 to 640 rounds, in all "
        "settings",
    },
    {"claim": "Theorem 1's m is tight to a factor of 10: one c is sufficient in all settings, a tenth of it in none"},
    {"claim": "Over 40 kappa^2 rounds the smallest m grows in kappa at most as fast as Theorem 1's"},
    {"claim": "Theorem 1's m is tight in kappa"},
    {"claim": "Over rounds that grow like kappa^2 the samples per client grow like kappa^4"},
    {"claim": "The samples per client over a fixed number of rounds grow like k, as (11) without its term k^3 log(n)"},
    {"claim": "The samples per client over a fixed number of rounds grow in k like k^3 log(n) + k d/n, as (11)"},
    {"claim": "With many clients the smallest m grows at most like log(n) + d/n"},
    {"claim": "With many clients the smallest m grows like log(n) + d/n"},
)
PICTURES = {"": 1400, "fixed": 1400}
REDUCED = {table: {"without": ("shortfall", "reached", "count")} for table in ("samples", "fixed")}
CAPTIONS = {
    "": "Top: smallest m with which half of the runs go from distance 0.9 to 0.01, against each size. Dotted: "
    "prediction of `lf.predict` for the measured ground truths, without a fitted constant; shaded: its 95 % interval. "
    "Dashed: Theorem 1's m with the constant fitted at the base setting. Bottom: measured divided by predicted.",
    "fixed": "Smallest m with which half of the runs go from distance 0.9 to 0.01 on fixed samples, against clients, "
    "dimension and rank. Dotted: prediction from the Marchenko-Pastur distribution; dashed: m with as many equations "
    "as unknowns.",
}

SCALES = c.cite("FedRep paper, section 4.2", "the sample complexity scales as Theta(log(n) + d/n)")
CLAIMED = c.cite("FedRep paper, Theorem 1", "m >= c(kappa^4 k^3 log(rn)/E_0^2 + kappa^4 k^2 d/(E_0^2 rn))")
SUFFICES = "asked of the m with which half of the runs go from distance 0.9 to 0.01 in a number of rounds"
TOTAL = c.cite(
    "FedRep paper, (11)",
    "samples required per client [...] is Theta(m log (1/[eps])), which is "
    "Theta((kappa^4 k^3 log(rn) + kappa^4 kd/rn) log (1/[eps]))",
)
TIGHT = c.OWN_THRESHOLD.adding("the theorem states that its m suffices, not that fewer samples fail", ": ")

SAMPLES_IN: Panels = {**PANELS, "T": ("n_rounds", (20, 80, 160, 640), 80)}
JOINT: Panels = {panel: PANELS[panel] for panel in ("n", "d", "k", "p")}
"""The sizes that vary at the best step size, whose points are fitted jointly."""
FIXED_IN: Panels = {"n": ("n_clients", (10, 40, 80), 40), "d": ("dim", (20, 40, 160), 40), "k": ("rank", (1, 4), 4)}


def cells(quick: bool) -> dict[str, list[Need]]:
    """Return the searches with fresh samples, at both step sizes, and those on fixed samples; quick: few of them."""
    base = base_setting(quick)
    fixed = replace(base, trials=32, samples=FIXED, n_clients=20, dim=60, rank=2, n_rounds=100, start=8)
    return {
        "samples": [
            *settings(SAMPLES_IN, base, ("n", "kappa", "k") if quick else None),
            *settings(JOINT, replace(base, step=BEST), tuple(JOINT) if quick else None),
        ],
        "fixed": settings(FIXED_IN, fixed, ("n",) if quick else None),
    }


# --- claims --------------------------------------------------------------------------------------------------


def reached(words: str) -> Callable[[lf.Table], str]:
    """Return the setting of a fit: some words, and how many of the settings were reached."""
    return lambda part: f"{words}: {sum(not row['censored'] for row in part.rows)} of {len(part)} settings reached"


def factors(table: lf.Table) -> str:
    """Return how far the settings are from a law that is linear in k, and from the paper's."""
    plain, cubed = (lf.fit_power_law(f"m - k - 1 ~ d {k} / p", table).max_factor for k in ("k", "k^3"))
    return f"m - k - 1 is within a factor {plain:.2f} of a constant times d k / p, {cubed:.2f} of d k^3 / p"


def constants(words: str, statistic: Callable[[Array], Array], most: float) -> c.Statistic:
    """Return a statistic of the constants c of all settings (settings, ..), with which half of the runs succeed."""

    def measure(part: lf.Table) -> c.Measurement:
        found = np.array([row["crossing"] / row["claim"] for row in part])
        low, high = np.percentile(statistic(np.array([row["replicates"] / row["claim"] for row in part])), (2.5, 97.5))
        detail = f"constants from {found.min():.2g} to {found.max():.2g}"
        return c.Measurement((float(statistic(found)), float(low), float(high)), detail)

    return c.measured(words, measure, c.at_most(most))


def beyond(row: lf.Table) -> c.Measurement:
    """Return the smallest m of a whole run divided by the threshold near B*."""
    return c.Measurement(over(row, row["local"]), f"{row['crossing']:.2f} against {row['local']:.2f}")


OWN = c.OWN_PREDICTION.adding(TOLERANCE)
PRODUCT, LOGARITHMIC = "m - k - 1 ~ p^a d^b k^c", "m - k - 1 ~ p^a d^b k^c log(n)^e"
OF_CONSTANT = partial(
    c.Claim,
    where=c.only(lambda row: covered(row) and not row["censored"]),
    setting="{points} settings, the theorem's step",
)
OF_JOINT = partial(
    c.Claim, where=(c.of(step=BEST), c.only(lawful)), setting=reached("best step, m >= k + 4"), theorem=False
)
OF_K = partial(
    c.Claim,
    where=(c.of(step=THEOREM, panel=["base", "k"]), c.only(lawful)),
    setting=reached("the theorem's step"),
    theorem=False,
)
OF_KAPPA = partial(
    c.Claim,
    where=c.of(panel=["base", "kappa"], step=THEOREM),
    setting="the theorem's step, {n_rounds} kappa^2 rounds",
    theorem=False,
)
CLAIMS = (
    OF_JOINT("m - k - 1 grows like d k / p: in p", OWN, c.power_law(PRODUCT, "a", -1.0, 0.1)),
    OF_JOINT("m - k - 1 grows like d k / p: in d", OWN, c.power_law(PRODUCT, "b", 1.0, 0.1)),
    OF_JOINT("m - k - 1 grows like d k / p: in k", OWN, c.power_law(PRODUCT, "c", 1.0, 0.1), detail=factors),
    OF_K(
        "The smallest m of 40 rounds grows in k at most as fast as Theorem 1's",
        c.reading(
            CLAIMED.adding(
                f"{SUFFICES}, and compared with the term k^2 d/(rn), which grows more slowly than the sum; {TOLERANCE}"
            )
        ),
        c.power_law("m - k - 1 ~ k^c", "c", 2.0, 0.25, "at most"),
    ),
    OF_K(
        "Theorem 1's m is tight in k, even without its term k^3 log(n)",
        TIGHT,
        c.power_law("m - k - 1 ~ k^c", "c", 2.0, 0.25),
    ),
    OF_K(
        "The samples per client over a fixed number of rounds grow like k, as (11) without its term k^3 log(n)",
        c.reading(TOTAL.adding(f"asked of m - k - 1 at a fixed number of rounds; {TOLERANCE}", ", ")),
        c.power_law("m - k - 1 ~ k^c", "c", 1.0, 0.25),
    ),
    OF_K(
        "The samples per client over a fixed number of rounds grow in k like k^3 log(n) + k d/n, as (11)",
        c.reading(TOTAL.adding(f"asked of m - k - 1 at a fixed number of rounds; {TOLERANCE}", ", ")),
        c.power_law("m - k - 1 ~ (k^3 log(p) + k d / p)^e", "e", 1.0, 0.25),
    ),
    OF_JOINT("m - k - 1 has no power of log n besides d k / p", OWN, c.power_law(LOGARITHMIC, "e", 0.0, 0.25)),
    OF_CONSTANT(
        "With Theorem 1's m, c = 1, half of the runs go from distance 0.9 to 0.01 in 20 to 640 rounds, in all settings",
        c.reading(
            CLAIMED.adding(f"{SUFFICES}; half of the runs, the distances, the rounds and the 1 are {c.OWN_THRESHOLD}s")
        ),
        constants(
            "smallest c with which half of the runs do, the largest over settings", lambda found: found.max(axis=0), 1.0
        ),
    ),
    OF_CONSTANT(
        "Theorem 1's m is tight to a factor of 10: one c is sufficient in all settings, a tenth of it in none",
        TIGHT,
        constants(
            "smallest sufficient c of each setting, the largest divided by the smallest",
            lambda found: found.max(axis=0) / found.min(axis=0),
            10.0,
        ),
    ),
    c.Claim(
        "With many clients the smallest m grows at most like log(n) + d/n",
        SCALES.adding(TOLERANCE),
        c.power_law("m ~ (log(n) + d / n)^e", "e", 1.0, 0.25, "at most"),
        where=many_clients,
        setting=clients_of,
        theorem=False,
    ),
    c.Claim(
        "With many clients the smallest m grows like log(n) + d/n",
        SCALES.adding(TOLERANCE),
        c.power_law("m ~ (log(n) + d / n)^e", "e", 1.0, 0.25),
        where=many_clients,
        setting=clients_of,
        theorem=False,
    ),
    OF_KAPPA(
        "Over 40 kappa^2 rounds the smallest m grows in kappa at most as fast as Theorem 1's",
        c.reading(CLAIMED.adding(f"{SUFFICES}; {TOLERANCE}")),
        c.power_law("m ~ kappa^a", "a", 4.0, 0.25, "at most"),
    ),
    OF_KAPPA("Theorem 1's m is tight in kappa", TIGHT, c.power_law("m ~ kappa^a", "a", 4.0, 0.25)),
    OF_KAPPA(
        "Over rounds that grow like kappa^2 the samples per client grow like kappa^4",
        c.reading(TOTAL.adding(f"asked at kappa^2 times the rounds of kappa = 1; {TOLERANCE}", ", ")),
        c.power_law("m * n_rounds ~ kappa^a", "a", 4.0, 0.25),
    ),
    OF_KAPPA("The smallest m does not grow with kappa", OWN, c.power_law("m ~ kappa^a", "a", 0.0, 0.1, "at most")),
    c.Claim(
        "lf.predict predicts the smallest m",
        FACTOR,
        predicted("predicted_crossing", 1.1),
        where=has_prediction("predicted_crossing"),
        setting="{points} settings, predicted m >= k + 4",
    ),
    c.Claim(
        "A whole run needs a larger m than the threshold near B*",
        c.OWN_PREDICTION,
        c.measured("smallest m divided by the threshold near B*", beyond, c.above(1.0)),
        where=(c.of(panel=["base", "T"], step=THEOREM), c.only(lambda row: not row["censored"])),
        over=c.each_row,
        setting="{n_rounds} rounds from {delta:g} to {level:g}",
    ),
    c.Claim(
        "The Marchenko-Pastur distribution predicts the smallest m on fixed samples",
        FACTOR,
        predicted("spectral", 1.15),
        table="fixed",
        where=has_prediction("spectral"),
        setting="{points} settings, predicted m >= k + 4",
    ),
)

# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest m against each size, with its prediction and the theorem's m, and that on fixed samples."""
    table, fixed = tables["samples"], tables["fixed"]
    base = table.select(panel="base", step=THEOREM)
    constant = base["crossing"] / base["claim"]
    claim = f"Theorem 1 with c = {constant:.2g}, that of the base setting"

    def draw(ax: Axes, panel: str) -> None:
        field = FIXED_IN[panel][0]
        rows = rows_of(fixed, panel, field)
        sizes = [row[field] for row in rows]
        draw_measured(ax, rows, field, "measured", "predicted: Marchenko-Pastur law", "spectral", COLOURS[THEOREM])
        counted = [row["rank"] + (row["dim"] - row["rank"]) * row["rank"] / row["p"] for row in rows]
        ax.plot(sizes, counted, "--", color="0.5", label="as many equations as unknowns")
        label_axes(ax, sizes, SIZE_LABELS[field])

    ylabel = f"smallest m, {fixed.rows[0]['n_rounds']} rounds"
    return {
        "": panels_page(table, SAMPLES_IN, "smallest m", claim, lambda row: float(constant * row["claim"]), "local"),
        "fixed": panels_row(fixed, FIXED_IN, draw, ylabel, height=2.6, ncols=3),
    }
