"""FedRep paper, Theorem 1: how many samples m a run needs, against n, d, k, kappa, p, noise, step size and rounds.

The smallest m per client and round with which half of the runs go from distance 0.9 to 0.01 in 40 rounds (kappa^2 times
as many if heads are anisotropic). It is found by `lf.find_smallest`, at the theorem's step size ``1/(4 sigma_max^2)``
and at the best step size near B*. It is compared with Theorem 1's m, whose constant c is fitted to the base setting,
and with
`lf.predict`, which has no fitted constant. Samples are fresh in every round; they are simulated exactly in
distribution, in a frame of 3k dimensions whatever d and m.

Theorem 1 says that a number of samples is sufficient, and is judged from above: a smaller sufficient number does not
refute it. How tight it is, is our own question. Statements that the paper prints with Theta, in section 4.2 and (11),
are judged from both sides.

Figures
-------
"" : Top: smallest m with which half of the runs go from distance 0.9 to 0.01, against each size. Dotted: prediction of
    `lf.predict` for the measured ground truths, without a fitted constant; shaded: its 95 % interval. Dashed: Theorem
    1's m with the constant fitted at the base setting. Bottom: measured divided by predicted.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1, section 4.2 and (11).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
from linfed.plotting.panels import Figures
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, cite, judge, judge_exponent
from linfed.statistics.intervals import Measured

from ..shared.smallest import BEST, PANELS, THEOREM, Need, base_setting, settings
from ..shared.smallest_drawn import panels_page
from ..shared.smallest_judged import MARGIN, chosen, clients_of, covered, judge_predicted, lawful, many_clients, over

SUMMARY = "FedRep paper, Theorem 1: the smallest m against n, d, k, kappa, p, noise, step size and rounds"
HEADLINES = (
    {"claim": "With Theorem 1's m, c = 1, half of the runs go from distance 0.9 to 0.01 in all settings"},
    {"claim": "Theorem 1's m is tight to a factor of 10: one c is sufficient in all settings, a tenth of it in none"},
    {"claim": "The smallest m grows in kappa at most as fast as Theorem 1's"},
    {"claim": "Theorem 1's m is tight in kappa"},
    {"claim": "Over rounds that grow like kappa^2 the samples per client grow like kappa^4"},
    {"claim": "Where d / p dominates, the samples per client over a fixed number of rounds grow like k"},
    {"claim": "With many clients the smallest m grows at most like log(n) + d/n"},
)
PICTURES = {"": 1400}
REDUCED = {"samples": {"without": ("margin", "reached", "count")}}

paper = partial(cite, "FedRep paper, section 4.2")
SCALES = paper("the sample complexity scales as Theta(log(n) + d/n)")
CLAIMED = cite("FedRep paper, Theorem 1", "m >= c(kappa^4 k^3 log(rn)/E_0^2 + kappa^4 k^2 d/(E_0^2 rn))")
TOTAL = cite(
    "FedRep paper, (11)",
    "samples required per client [...] is Theta(m log (1/[eps])), which is "
    "Theta((kappa^4 k^3 log(rn) + kappa^4 kd/rn) log (1/[eps]))",
)
TIGHT = OWN_THRESHOLD.adding("the theorem states that its m suffices, not that fewer samples fail", ": ")

JOINT = ("base", "n", "d", "k", "p")
"""Panels whose points are fitted jointly."""
SAMPLES_IN = {**PANELS, "T": ("rounds", (20, 80, 160, 640), 80, "rounds T")}


def cells(quick: bool) -> dict[str, list[Need]]:
    """Return the searches at the theorem's and at the best step size; quick: few points, trials and clients."""
    base = base_setting(quick)
    joint = {panel: PANELS[panel] for panel in JOINT[1:]}
    return {
        "samples": [
            *settings(SAMPLES_IN, base, ("n", "kappa", "k") if quick else None),
            *settings(joint, replace(base, step=BEST), JOINT if quick else None),
        ]
    }


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest m against each size, with its prediction and the theorem's m."""
    table = tables["samples"]
    base = table.select(panel="base", step=THEOREM)
    constant = base["crossing"] / base["claim"]
    claim = f"Theorem 1 with c = {constant:.2g}, that of the base setting"
    return {"": panels_page(table, SAMPLES_IN, "smallest m", claim, lambda row: constant * row["claim"], "local")}


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the exponents of the smallest m, Theorem 1's constants, and the predictions."""
    table = tables["samples"]
    text = "lf.predict predicts the smallest m"
    return [
        *exponents(table),
        *constants(table),
        logarithm(table),
        *kappa(table),
        judge_predicted(table, "predicted_crossing", text=text, most=1.1),
        *beyond_threshold(table),
    ]


def exponents(samples: lf.Table) -> list[Finding]:
    """Judge the joint exponents of m - k - 1, and the exponent in k against the paper's."""
    part = chosen(samples, lambda row: row["step"] == BEST and row["panel"] in JOINT and lawful(row))
    law = lf.fit_power_law("m - k - 1 ~ p^a d^b k^c", part)
    cubed, plain = (lf.fit_power_law(f"m - k - 1 ~ d {k} / p", part) for k in ("k^3", "k"))
    logarithmic = lf.fit_power_law("m - k - 1 ~ p^a d^b k^c log(n)^e", part)
    where = f"best step, m >= k + 4: {law.reached} of {law.points} settings reached"
    setting_fields = {"setting": where, "source": OWN_PREDICTION.adding(MARGIN)}
    shared_fields: dict[str, Any] = {"margin": 0.1, "kind": "equal", **setting_fields}
    found = [
        judge_exponent(
            law.exponents[name], claimed, claim=f"m - k - 1 grows like d k / p: in {letter}", **shared_fields
        )
        for name, letter, claimed in (("a", "p", -1.0), ("b", "d", 1.0), ("c", "k", 1.0))
    ]
    fits = (
        f"m - k - 1 is within a factor {plain.max_factor:.2f} of a constant times d k / p, "
        f"{cubed.max_factor:.2f} of d k^3 / p"
    )
    in_k = chosen(samples, lambda row: row["step"] == THEOREM and row["panel"] in ("base", "k") and lawful(row))
    ranks = lf.fit_power_law("m - k - 1 ~ k^c", in_k)
    where = f"the theorem's step, where d / p dominates: {ranks.reached} of {ranks.points} settings reached"
    found += bounded(ranks.exponents["c"], 2.0, "k", margin=0.25, setting=where, detail=fits)
    linear = "Where d / p dominates, the samples per client over a fixed number of rounds grow like k"
    fields: dict[str, Any] = {"margin": 0.25, "kind": "equal", "theorem": False, "setting": where}
    source = f"{TOTAL}, asked of m - k - 1 at a fixed number of rounds; {MARGIN}"
    found.append(judge_exponent(ranks.exponents["c"], 1.0, claim=linear, source=source, **fields))
    text = "m - k - 1 has no power of log n besides d k / p"
    found.append(judge_exponent(logarithmic.exponents["e"], 0.0, claim=text, **shared_fields | {"margin": 0.25}))
    return found


def bounded(exponent: Measured, claimed: float, letter: str, **fields: Any) -> list[Finding]:
    """Judge whether the smallest m grows in a size at most as fast as the theorem's, and whether as fast."""
    texts = f"The smallest m grows in {letter} at most as fast as Theorem 1's", f"Theorem 1's m is tight in {letter}"
    sources = f"{CLAIMED}; {MARGIN}", TIGHT
    return [
        judge_exponent(exponent, claimed, claim=text, kind=kind, source=source, theorem=kind == "at most", **fields)
        for text, kind, source in zip(texts, ("at most", "equal"), sources, strict=True)
    ]


def constants(samples: lf.Table) -> list[Finding]:
    """Judge whether Theorem 1's m is sufficient with c = 1, and whether one c is tight in all settings."""
    rows = [row for row in samples.rows if covered(row) and not row["censored"]]
    measured = np.array([row["crossing"] / row["claim"] for row in rows])
    resampled = np.array([row["replicates"].values / row["claim"] for row in rows])

    def ends(values: Any) -> tuple[float, float]:
        low, high = np.percentile(values, (2.5, 97.5))
        return float(low), float(high)

    fields = {
        "setting": f"{len(measured)} settings, the theorem's step",
        "detail": f"constants from {measured.min():.2g} to {measured.max():.2g}",
    }
    return [
        judge(
            (float(measured.max()), *ends(resampled.max(axis=0))),
            claim="With Theorem 1's m, c = 1, half of the runs go from distance 0.9 to 0.01 in all settings",
            statistic="smallest c with which half of the runs do, the largest over settings",
            source=f"{CLAIMED}; half of the runs, the distances, the rounds and the 1 are {OWN_THRESHOLD}s",
            claimed_high=1.0,
            **fields,
        ),
        judge(
            (float(measured.max() / measured.min()), *ends(resampled.max(axis=0) / resampled.min(axis=0))),
            claim="Theorem 1's m is tight to a factor of 10: "
            "one c is sufficient in all settings, a tenth of it in none",
            statistic="smallest sufficient c of each setting, the largest divided by the smallest",
            source=TIGHT,
            claimed_high=10.0,
            **fields,
        ),
    ]


def logarithm(samples: lf.Table) -> Finding:
    """Judge whether with many clients the smallest m grows at most like log(n) + d/n."""
    m = many_clients(samples)
    return judge_exponent(
        lf.fit_power_law("m ~ (log(n) + d / n)^e", m).exponents["e"],
        1.0,
        kind="at most",
        margin=0.25,
        claim="With many clients the smallest m grows at most like log(n) + d/n",
        setting=clients_of(m),
        source=f"{SCALES}; {MARGIN}",
        theorem=False,
    )


def kappa(samples: lf.Table) -> list[Finding]:
    """Judge the exponents of kappa in m, and in m times the rounds."""
    of_kappa = samples.select(panel=["base", "kappa"], step=THEOREM)
    m, total = (lf.fit_power_law(f"{left} ~ kappa^a", of_kappa).exponents["a"] for left in ("m", "m * rounds"))
    where = f"the theorem's step, {samples.select(panel='base', step=THEOREM)['rounds']} kappa^2 rounds"
    rounds_rule = "asked at kappa^2 times the rounds of kappa = 1"
    return [
        *bounded(m, 4.0, "kappa", margin=0.25, setting=where),
        judge_exponent(
            total,
            4.0,
            kind="equal",
            margin=0.25,
            claim="Over rounds that grow like kappa^2 the samples per client grow like kappa^4",
            setting=where,
            source=f"{TOTAL}, {rounds_rule}; {MARGIN}",
            theorem=False,
        ),
        judge_exponent(
            m,
            0.0,
            kind="at most",
            margin=0.1,
            claim="The smallest m does not grow with kappa",
            setting=where,
            source=OWN_PREDICTION.adding(MARGIN),
        ),
    ]


def beyond_threshold(samples: lf.Table) -> list[Finding]:
    """Judge the smallest m of a whole run, divided by the threshold near B*, for each number of rounds."""
    return [
        judge(
            over(row, row["local"]),
            claim="A whole run needs a larger m than the threshold near B*",
            setting=f"{row['rounds']} rounds from {row['delta']:g} to {row['level']:g}",
            statistic="smallest m divided by the threshold near B*",
            source=OWN_PREDICTION,
            claimed_low=1.0,
            strict=True,
            detail=f"{row['crossing']:.2f} against {row['local']:.2f}",
        )
        for row in samples.select(panel=["base", "T"], step=THEOREM).rows
        if not row["censored"]
    ]
