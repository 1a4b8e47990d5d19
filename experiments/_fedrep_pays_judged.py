"""What `experiments.fedrep_pays` finds: where FedRep pays, and how many samples a client needs with and without it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, Hypothesis, judge, quoted
from linfed.statistics.intervals import Measured, largest_factor

FEDREP, LEAST, RIDGE, POOLED, ORACLE = "FedRep", "LocalOnly", "ridge", "PooledLeastSquares", "Oracle"
LAW, COUNT, PAPER = "the law", "more samples than unknowns", "log(n) + d/n, best constants"
HELPS = quoted("FedRep paper, section 4.2", "so long as log(n) + d/n << d, federation helps", threshold=True)
OWN = f"{OWN_PREDICTION}; the factor is an {OWN_THRESHOLD}"
NEAR = 1.25
"""The factor within which a line is said to be."""
LEVELS = {"a third": 1 / 3, "a tenth": 1 / 10, "a thirtieth": 1 / 30}
"""Excess risks that a sample complexity is asked for, in shares of the risk of predicting 0."""
LEVEL = LEVELS["a tenth"]
MUCH_LESS = 5
"""log(n) + d/n << d is taken to hold where the left side times this is at most the right one."""
RESAMPLES = 2000

Resampled: TypeAlias = Array
"""A statistic, and after it the same of each bootstrap resample of the trials, (1 + RESAMPLES,)."""


def medians(values: Iterable[Array]) -> Array:
    """Return medians over trials, of the trials and of bootstrap resamples of them, (1 + RESAMPLES, len(values))."""
    stacked = np.stack(list(values), axis=-1)
    trials = len(stacked)
    drawn = np.random.default_rng(0).integers(trials, size=(RESAMPLES, trials))
    picks = np.vstack([np.arange(trials), drawn])
    return np.stack([np.median(column[picks], axis=1) for column in stacked.T], axis=1)


def interval(resampled: Resampled) -> Measured:
    """Return a statistic with its 95 % percentile interval; infinite resamples are allowed."""
    low, high = np.quantile(resampled[1:], (0.025, 0.975), method="inverted_cdf")
    return float(resampled[0]), float(low), float(high)


def crossing(sizes: Any, values: Array) -> Any:
    """Return the size from which on values (.., sizes) are negative, on straight lines in the size's logarithm.

    The smallest size if all are negative, infinite if the last is not.
    """
    sizes, above = np.asarray(sizes, dtype=float), values >= 0
    last = above.shape[-1] - 1 - np.argmax(above[..., ::-1], axis=-1)
    after = np.minimum(last + 1, above.shape[-1] - 1)
    first, second = (np.take_along_axis(values, at[..., None], axis=-1)[..., 0] for at in (last, after))
    with np.errstate(all="ignore"):  # where nothing crosses
        part = first / (first - second)
        between = np.exp(np.log(sizes)[last] + part * np.log(sizes[after] / sizes[last]))
    return np.where(~above.any(axis=-1), sizes[0], np.where(above[..., -1], np.inf, between))


# --- where it pays -------------------------------------------------------------------------------------------


def measured_lines(part: lf.Table, column: str = FEDREP) -> dict[int, Measured]:
    """Return for each m from how many clients on a column is below the better of ridge and least squares."""
    found = {}
    for m, row in part.by("n_samples"):
        logs = medians(np.log(one[column] / np.minimum(one[RIDGE], one[LEAST])) for one in row)
        ends = interval(crossing([one["n_clients"] for one in row], logs))
        if np.isfinite(ends[0]):
            found[m] = ends
    return found


def lines(part: lf.Table, measured: dict[int, Measured]) -> dict[str, dict[int, float]]:
    """Return what each rule says for these m; the paper's with the constants of the least largest factor."""
    d, k = part.rows[0]["dim"], part.rows[0]["rank"]
    law = {row["n_samples"]: row["pays_from"] for row in part.rows if np.isfinite(row["pays_from"])}
    n, m = np.geomspace(2, 1000, 300), np.array(list(measured))
    a, b = (each[..., None, None] for each in np.meshgrid(np.geomspace(0.01, 30, 50), np.geomspace(0.03, 30, 50)))
    reached = a * np.log(n) + b * d / n <= m[:, None]
    paper = np.where(reached.any(axis=-1), n[np.argmax(reached, axis=-1)], n[-1])
    gap = np.abs(np.log(paper / [at for at, _, _ in measured.values()])).max(axis=-1)
    best = paper[np.unravel_index(np.argmin(gap), gap.shape)].tolist()
    unknowns = {one: max(2.0, k * (d - k) / (one - k)) for one in part.values("n_samples") if one > k}
    return {LAW: law, COUNT: unknowns, PAPER: dict(zip(measured, best, strict=True))}


def holds(row: lf.Table) -> bool:
    """Return whether the law of the minimum is said to hold at a point."""
    return bool(row["n_clients"] >= NEAR * row["edge"] and np.isfinite(row["law"]).all())


def on_line(measured: dict[int, Measured], line: dict[int, float], where: str, **said: Any) -> list[Finding]:
    """Return how far the measured line is from another, for each m."""
    statistic = "number of clients from which on FedRep's excess risk is the lower one, over that of the line"
    said |= {"statistic": statistic, "least": 1 / NEAR, "most": NEAR}
    out = []
    for m, (n, low, high) in measured.items():
        if m in line:
            detail, ratio = f"{n:.3g} clients, for {line[m]:.3g}", (n / line[m], low / line[m], high / line[m])
            out.append(judge(ratio, where=f"{where}, m = {m}", detail=detail, **said))
    return out


def risks(part: lf.Table, where: str) -> list[Finding]:
    """Return how far the excess risks are from those predicted: FedRep's where its law holds, and the best ridge's."""
    own, every = [row for row in part if holds(row)], [row for row in part if row["n_clients"] >= 50]
    ends = [np.stack([row[name] for row in own], axis=1) for name in (FEDREP, "law")]
    ridge = np.stack([row[RIDGE] for row in every], axis=1)
    formula = np.broadcast_to([row["predicted_ridge"] for row in every], ridge.shape)
    left = max(np.quantile(row["gradient"], 0.9) for row in own)
    note = f"{len(own)} points; relative gradient at the end, 90 % quantile: at most {left:.1g}"
    said: dict[str, Any] = {"where": where, "source": OWN, "most": 1.15}
    said["statistic"] = "factor between the median over trials and the prediction, the worst point"
    text = f"From {NEAR:g} times the edge on, up to a sine of 0.37, FedRep's risk is the law's"
    return [
        judge(largest_factor(*ends), text=text, note=note, **said),
        judge(largest_factor(ridge, formula), text="The best ridge's risk is the formula's", **said),
    ]


# --- sample complexity per client ----------------------------------------------------------------------------


def small(n: Any, d: int) -> Any:
    """Return (log(n) + d/n)/d, which the paper wants to be small."""
    return (np.log(n) + d / n) / d


def complexities(part: lf.Table, level: float) -> dict[str, dict[int, Resampled]]:
    """Return the smallest sufficient m by method and n, infinite where the grid does not reach the risk.

    Parameters
    ----------
    part : Table
        Points of one noise level.
    level : float
        The excess risk to reach, as a share of the risk of predicting 0, ``k/2``.

    Notes
    -----
    Without federation the risk hardly depends on n (its median over trials does): at an m that was not run with n
    clients it is that of the most clients below.
    """
    aim = level * part.rows[0]["rank"] / 2
    sizes, found = sorted(part.values("n_clients")), dict[str, dict[int, Resampled]]()

    def smallest(rows: list[lf.Table], name: str) -> Resampled:
        logs = medians(np.log(row[name] / aim) for row in rows)
        return np.asarray(crossing([row["n_samples"] for row in rows], logs))

    for n in sizes:
        nearest = []
        for m in sorted(part.values("n_samples")):
            rows = [row for row in part.where(n_samples=m) if row["n_clients"] <= n]
            nearest += [max(rows, key=lambda row: row["n_clients"])] if rows else []
        own = [row for row in nearest if row["n_clients"] == n]
        for name, rows in ((FEDREP, own), (LEAST, nearest), (RIDGE, nearest)):
            found.setdefault(name, {})[n] = smallest(rows, name)
    return found


def divided(m: Resampled, alone: Resampled) -> Resampled:
    """Return the ratio of two sample complexities, NaN where neither is reached."""
    with np.errstate(invalid="ignore"):
        return m / alone


def helps(part: lf.Table, where: str) -> list[Finding]:
    """Return whether a client needs fewer samples with FedRep than without, n by n, and where both need the same."""
    d, out = part.rows[0]["dim"], []
    found = {name: complexities(part, level) for name, level in LEVELS.items()}
    for told, rival in {"least squares": LEAST, "the best ridge": RIDGE}.items():
        text = f"A client needs fewer samples with FedRep than with {told} without federation"
        for n, m in found["a tenth"][FEDREP].items():
            alone = found["a tenth"][rival][n]
            left, detail = math.log(n) + d / n, f"{m[0]:.3g} for {alone[0]:.3g}; (log(n) + d/n)/d = {small(n, d):.3f}"
            if np.isfinite([m[0], alone[0]]).all():  # else the grid does not reach the risk
                said: dict[str, Any] = {"text": text, "where": f"{where}, n = {n:,}", "source": HELPS, "detail": detail}
                said["statistic"] = "smallest m for a tenth of the risk of predicting 0, divided by the one without"
                said["hypotheses"] = (
                    Hypothesis(text=f"log(n) + d/n <= d/{MUCH_LESS}", left=left, right=d / MUCH_LESS),
                )
                out.append(judge(interval(divided(m, alone)), most=1.0, strict=True, **said))
        for name, every in found.items():
            n = break_even(every[FEDREP], every[rival])
            if not np.isnan(n[0]):
                out.append(
                    judge(
                        interval(np.where(np.isinf(n), 0.0, small(n, d))),  # 0 if it needs more on the whole grid
                        text=f"{text}, from (log(n) + d/n)/d = 1/{MUCH_LESS} down",
                        where=f"{where}, {name}",
                        statistic="(log(n) + d/n)/d at which both need as many, for a share of the risk of 0",
                        source=OWN_THRESHOLD,
                        least=1 / MUCH_LESS,
                        detail=f"n = {n[0]:.3g}",
                    )
                )
    return out


def break_even(fedrep: dict[int, Resampled], alone: dict[int, Resampled]) -> Resampled:
    """Return the n from which on a client needs fewer samples with FedRep, NaN if the grid does not reach the risk.

    It is infinite if a client needs more with the most clients too. The largest n, of which few m were run, are left
    out as far as they do not reach it.
    """
    reached = [n for n in fedrep if np.isfinite([fedrep[n][0], alone[n][0]]).all()]
    sizes = [n for n in fedrep if n <= max(reached, default=0)]
    if not sizes:
        return np.full(1 + RESAMPLES, np.nan)
    with np.errstate(invalid="ignore"):  # resamples in which neither is reached
        logs = np.stack([np.log(fedrep[n]) - np.log(alone[n]) for n in sizes], axis=-1)
    return np.asarray(crossing(sizes, np.nan_to_num(logs, posinf=1e3, neginf=-1e3)))


def claims(table: lf.Table) -> list[Finding]:
    """Return where the lines lie, what the law and the ridge's formula are worth, and the sample complexities."""
    shape = f"{OWN_THRESHOLD}: the FedRep paper's complexity, Theta(log(n) + d/n), taken for a rule of where it pays"
    said = {
        LAW: ("FedRep pays from the predicted number of clients on", OWN),
        COUNT: ("FedRep pays from where there are more samples than unknowns", OWN_THRESHOLD),
        PAPER: ("FedRep pays from m ~ log(n) + d/n on, the two constants chosen in hindsight", shape),
    }
    hindsight = "Stopped at its best round, in hindsight, FedRep pays from the predicted number of clients on"
    out = []
    for noise, part in table.by("noise_std"):
        where, measured = f"noise std {noise}", measured_lines(part)
        rules = lines(part, measured)
        for rule, (text, source) in said.items():
            out += on_line(measured, rules[rule], where, text=text, source=source)
        out += on_line(measured_lines(part, "best"), rules[LAW], where, text=hindsight, source=OWN)
        out += [*risks(part, where), *helps(part, where)]
    return out
