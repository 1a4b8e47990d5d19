"""What `experiments.fedrep_scaling` finds: exponents of the least m and of the rounds, and predictions beside them.

Theorem 1 says that a number of samples is enough, and is judged from above. That fewer are enough does not refute it;
how tight it is, is our question. What the paper prints with Theta, in section 4.2 and (11), is judged from both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, judge_exponent, quoted
from linfed.statistics.intervals import Measured

from ._fedrep_scaling import BEST, THEOREM

paper = partial(quoted, "FedRep paper, section 4.2")
SCALES = paper("the sample complexity scales as Theta(log(n) + d/n)")
CLAIMED = quoted("FedRep paper, Theorem 1", "m >= c(kappa^4 k^3 log(rn)/E_0^2 + kappa^4 k^2 d/(E_0^2 rn))")
TOTAL = quoted(
    "FedRep paper, (11)",
    "samples required per client [...] is Theta(m log (1/[eps])), which is "
    "Theta((kappa^4 k^3 log(rn) + kappa^4 kd/rn) log (1/[eps]))",
)
TIGHT = f"{OWN_THRESHOLD}: the theorem says that its m is enough, not that fewer are too few"
MARGIN = f"the margin is an {OWN_THRESHOLD}"

JOINT = ("base", "n", "d", "k", "p")
"""Panels whose points are fitted together."""
MANY = 10
"""Clients per dimension from which log n rules log(n) + d/n."""


def exponents(samples: lf.Table) -> list[Finding]:
    """Return the joint exponents of m - k - 1, those in k beside the paper's, and the constants of Theorem 1's m."""
    part = chosen(samples, lambda row: row["step"] == BEST and row["panel"] in JOINT and lawful(row))
    law = lf.fit("m - k - 1 ~ p^a d^b k^c", part)
    cubed, plain = (lf.fit(f"m - k - 1 ~ d {k} / p", part) for k in ("k^3", "k"))
    logarithmic = lf.fit("m - k - 1 ~ p^a d^b k^c log(n)^e", part)
    where = f"best step, m >= k + 4: {law.reached} of {law.points} settings reached"
    own = {"where": where, "source": f"{OWN_PREDICTION}; {MARGIN}"}
    said: dict[str, Any] = {"margin": 0.1, "kind": "equal", **own}
    found = [
        judge_exponent(law.exponents[name], claimed, text=f"m - k - 1 grows like d k / p: in {letter}", **said)
        for name, letter, claimed in (("a", "p", -1.0), ("b", "d", 1.0), ("c", "k", 1.0))
    ]
    fits = f"m - k - 1 is within a factor {plain.worst:.2f} of a constant times d k / p, {cubed.worst:.2f} of d k^3 / p"
    in_k = chosen(samples, lambda row: row["step"] == THEOREM and row["panel"] in ("base", "k") and lawful(row))
    ranks = lf.fit("m - k - 1 ~ k^c", in_k)
    where = f"the theorem's step, where d / p rules: {ranks.reached} of {ranks.points} settings reached"
    found += bounded(ranks.exponents["c"], 2.0, "k", margin=0.25, where=where, detail=fits)
    linear = "Where d / p rules the samples per client over a fixed number of rounds grow like k"
    fields: dict[str, Any] = {"margin": 0.25, "kind": "equal", "theorem": False, "where": where}
    source = f"{TOTAL}, asked of m - k - 1 at a fixed number of rounds; {MARGIN}"
    found.append(judge_exponent(ranks.exponents["c"], 1.0, text=linear, source=source, **fields))
    text = "No power of log n beside d k / p"
    found.append(judge_exponent(logarithmic.exponents["e"], 0.0, text=text, **said | {"margin": 0.25}))
    return [*found, *constants(samples)]


def bounded(exponent: Measured, claimed: float, letter: str, **said: Any) -> list[Finding]:
    """Return whether the least m grows at most as the theorem's does in a size, and whether as fast."""
    texts = f"The least m grows at most as Theorem 1's in {letter}", f"Theorem 1's m is tight in {letter}"
    sources = f"{CLAIMED}; {MARGIN}", TIGHT
    return [
        judge_exponent(exponent, claimed, text=text, kind=kind, source=source, theorem=kind == "at most", **said)
        for text, kind, source in zip(texts, ("at most", "equal"), sources, strict=True)
    ]


def constants(samples: lf.Table) -> list[Finding]:
    """Return whether Theorem 1's m is enough with the constant 1, and whether one constant is tight in all settings."""
    rows = [row for row in samples.rows if covered(row) and not row["censored"]]
    measured = np.array([row["crossing"] / row["claim"] for row in rows])
    resampled = np.array([row["replicates"].values / row["claim"] for row in rows])

    def ends(values: Any) -> tuple[float, float]:
        low, high = np.percentile(values, (2.5, 97.5))
        return float(low), float(high)

    said = {
        "where": f"{len(measured)} settings, the theorem's step",
        "detail": f"constants from {measured.min():.2g} to {measured.max():.2g}",
    }
    return [
        judge(
            (float(measured.max()), *ends(resampled.max(axis=0))),
            text="With Theorem 1's m, c = 1, half of the runs come from distance 0.9 to 0.01 in all settings",
            statistic="the largest of the least constants c with which half of the runs do",
            source=f"{CLAIMED}; half of the runs, the distances, the rounds and the 1 are an {OWN_THRESHOLD}",
            most=1.0,
            **said,
        ),
        judge(
            (float(measured.max() / measured.min()), *ends(resampled.max(axis=0) / resampled.min(axis=0))),
            text="Theorem 1's m is tight to a factor of 10: one c serves, and a tenth of it nowhere",
            statistic="the largest of the least constants c over the smallest",
            source=TIGHT,
            most=10.0,
            **said,
        ),
    ]


def logarithm(samples: lf.Table, rounds: lf.Table) -> list[Finding]:
    """Return what many clients leave: whether m, and the rounds, grow with n there."""
    m, t = (_many(table.where(panel=["base", "n"], step=THEOREM)) for table in (samples, rounds))
    where = f"n = {', '.join(f'{n:,}' for n in sorted(m['n_clients']))}"
    said = {"where": where, "kind": "equal", "theorem": False}
    log_n, n = lf.fit("m ~ (log(n) + d / n)^e", m).exponents["e"], lf.fit("t ~ n^a", t).exponents["a"]
    text = "With many clients the least m grows like log(n) + d/n"
    more = "With many clients the rounds do not depend on n"
    own = {"source": f"{OWN_PREDICTION}; {MARGIN}"}
    return [
        judge_exponent(log_n, 1.0, margin=0.25, text=text, source=f"{SCALES}; {MARGIN}", **said),
        judge_exponent(n, 0.0, margin=0.02, text=more, **said | own | {"where": f"{where}; {_at(rounds)}"}),
    ]


def _at(rounds: lf.Table) -> str:
    """Return the number of samples at which the fewest rounds are sought."""
    return f"m = {rounds.where(panel='base')['start']:,}"


def _many(table: lf.Table) -> lf.Table:
    """Return the settings of many clients, of a quick run all."""
    return chosen(table, lambda row: row["n_clients"] >= MANY * row["dim"]) or table


def kappa(samples: lf.Table, rounds: lf.Table) -> list[Finding]:
    """Return the exponents of kappa: in m, in the rounds, and in both together."""
    m, total, t = (
        lf.fit(f"{left} ~ kappa^a", table.where(panel=["base", "kappa"], step=THEOREM)).exponents["a"]
        for left, table in (("m", samples), ("m * rounds", samples), ("t", rounds))
    )
    where = f"the theorem's step, {samples.where(panel='base', step=THEOREM)['rounds']} kappa^2 rounds"
    own: dict[str, Any] = {"where": where, "source": f"{OWN_PREDICTION}; {MARGIN}"}
    asked = "asked at kappa^2 times the rounds of kappa = 1"
    theta: dict[str, Any] = {"where": where, "source": f"{TOTAL}, {asked}; {MARGIN}", "theorem": False}
    return [
        *bounded(m, 4.0, "kappa", margin=0.25, where=where),
        judge_exponent(
            total,
            4.0,
            kind="equal",
            margin=0.25,
            text="The samples per client over rounds that grow like kappa^2 grow like kappa^4",
            **theta,
        ),
        judge_exponent(m, 0.0, kind="at most", margin=0.1, text="kappa raises no m", **own),
        judge_exponent(
            t,
            2.0,
            kind="equal",
            margin=0.25,
            text="The rounds grow like kappa^2",
            **own | {"where": _at(rounds)},
        ),
    ]


def predicted(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return how far predictions are off, at the worst setting of each table."""
    asked = {
        "samples": ("The least m is what lf.predict says", "predicted_crossing", 1.1),
        "rounds": ("The least rounds are what lf.predict says", "predicted_crossing", 1.1),
        "fixed": ("On fixed samples the least m is what Marchenko and Pastur's spectrum says", "spectral", 1.15),
    }
    found = []
    for key, (text, law, most) in asked.items():
        rows = [row for row in tables[key].rows if not row["censored"] and lawful(row, law)]
        logs = np.log([over(row, row[law]) for row in rows])
        worst = int(np.abs(logs[:, 0]).argmax())
        sign = np.sign(logs[worst, 0])
        middle, *ends = np.exp(sign * logs[worst])
        said = {"text": text, "source": f"{OWN_PREDICTION}; the factor is an {OWN_THRESHOLD}", "most": most}
        said |= {"statistic": "factor between the measured and the predicted, the worst setting"}
        typical = np.exp(np.median(np.abs(logs[:, 0])))
        where = f"{len(rows)} settings" + (", predicted m >= k + 4" if key != "rounds" else f", {_at(tables[key])}")
        detail = f"{rows[worst]['panel']} at {rows[worst]['crossing']:.4g}; the median factor is {typical:.3f}"
        found.append(judge((middle, min(ends), max(ends)), **said, where=where, detail=detail))
    flute = lf.fit("rms ~ ((d + n - k) / (n m))^a", tables["flute"])
    text, source = (
        "FLUTE's floor is a power of (d + n - k)/(n m)",
        f"{OWN_PREDICTION}; the margin is an {OWN_THRESHOLD}",
    )
    said = {"text": text, "source": source, "where": f"{flute.points} settings"}
    return [*found, judge_exponent(flute.exponents["a"], 0.5, kind="equal", margin=0.05, **said)]


def near(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return the threshold near B* in each setting, and what whole runs need beyond it."""
    found = []
    for row in tables["near"].rows:
        sizes = f"n = {row['n_clients']}, p = {row['participants'] or row['n_clients']}, d = {row['dim']:,}"
        found.append(
            judge(
                over(row, row["law"]),
                text="Near B* angles neither grow nor shrink at p m = (d-k+1) k / (7 + k/m), for p = n",
                where=f"{sizes}, k = {row['rank']}",
                statistic="m at which single runs neither grow nor shrink, over the predicted",
                source=f"{OWN_PREDICTION}; the range is an {OWN_THRESHOLD}",
                least=0.98,
                most=1.02,
                detail=f"{row['crossing']:.2f} against {row['law']:.2f}",
            )
        )
    for row in tables["samples"].where(panel=["base", "T"], step=THEOREM).rows:
        if not row["censored"]:
            found.append(
                judge(
                    over(row, row["local"]),
                    text="A whole run needs more than the threshold near B*",
                    where=f"{row['rounds']} rounds from {row['delta']:g} to {row['level']:g}",
                    statistic="the least m over the threshold near B*",
                    source=OWN_PREDICTION,
                    least=1.0,
                    strict=True,
                    detail=f"{row['crossing']:.2f} against {row['local']:.2f}",
                )
            )
    return found


def over(row: dict[str, Any], law: float) -> tuple[float, float, float]:
    """Return a crossing over a law, with its interval over trials."""
    return (row["crossing"] / law, *(np.percentile(row["replicates"].values, (2.5, 97.5)) / law))


def lawful(row: dict[str, Any], law: str = "predicted_crossing") -> bool:
    """Return whether a prediction is there, and of an m at which heads have the moments that it needs."""
    return row[law] > (row["rank"] + 4 if row["path"] != "round" else 0)


def chosen(table: lf.Table, wanted: Callable[[dict[str, Any]], bool]) -> lf.Table:
    return lf.Table([row for row in table.rows if wanted(row)])


def covered(row: dict[str, Any]) -> bool:
    """Return whether the theorem speaks of a setting: its step, no noise, and eta at most 1/4."""
    return bool(row["step"] == THEOREM and row["noise_std"] == 0 and row["eta"] <= 0.25)
