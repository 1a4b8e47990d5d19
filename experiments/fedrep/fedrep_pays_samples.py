"""Sample complexity per client: the smallest m with FedRep and without federation, against the number of clients.

`fedrep-pays` describes the runs: d = 50, k = 3, one fixed data set of m samples for each of n clients, and two noise
levels. The local baselines are least squares and the best ridge regression.

The paper compares sample complexities per client: ``Theta(log(n) + d/n)`` with FedRep and ``Theta(d)`` without. Here
the sample complexity is the smallest m from which the median excess risk is at most a tenth of the risk of predicting
0, that is k/20. It is interpolated between the m of the grid, linearly in the logarithms.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 1, and section 4.2, "When and whom does federation
help?".
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import label
from linfed.plotting.panels import Figures, intervals
from linfed.statistics.intervals import Measured

from ._pays import FEDREP, LEAST, RIDGE, Point, points
from ._pays_resampled import Resampled, crossing, interval, lower, medians

SUMMARY = "smallest number of samples per client with FedRep and with local least squares and ridge, against n"
HEADLINES = (
    {
        "claim": "A client needs fewer samples with FedRep than with least squares without federation",
        "setting": "noise std 0.3, n = 50",
    },
    {
        "claim": "A client needs fewer samples with FedRep than with the best ridge without federation",
        "setting": "noise std 0.3, n = 50",
    },
)
PICTURES = {"": 1400}
REDUCED = {"map": {"without": ("gradient", "best", "law", "PooledLeastSquares", "Oracle")}}
CAPTIONS = {
    "": "Top: smallest m with which the median excess risk is a tenth of the risk of predicting 0, against the number "
    "of clients. Bottom: FedRep's divided by each local baseline's, against (log(n) + d/n)/d. Bars: 95 % intervals; "
    "none towards a side on which the grid ends."
}

HELPS = "so long as log(n) + d/n << d, federation helps"
paper = partial(c.cite, "FedRep paper, section 4.2", HELPS, threshold=True)
LEVELS = {"a third": 1 / 3, "a tenth": 1 / 10, "a thirtieth": 1 / 30}
"""Excess risks that define sample complexities, as shares of the risk of predicting 0."""
LEVEL = "a tenth"
MUCH_LESS = 5
"""log(n) + d/n << d counts as fulfilled if the left side times this number is at most the right side."""


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points of the map."""
    return {"map": points(quick)}


# --- sample complexities -------------------------------------------------------------------------------------


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return the resampled complexities, of FedRep and of a baseline, for each noise, level and number of clients."""
    rows = []
    for noise, part in tables["map"].groupby("noise_std"):
        sizes = {"noise_std": noise, "dim": part.rows[0]["dim"], "least": min(part.unique("n_samples"))}
        for level, share in LEVELS.items():
            for n, found in complexities(part, share).items():
                for name in (LEAST, RIDGE):
                    needed = {"baseline": name, "fedrep": found[FEDREP], "alone": found[name]}
                    rows.append(sizes | {"level": level, "n_clients": n} | needed)
    return {"needed": lf.Table(rows)}


def complexities(part: lf.Table, level: float) -> dict[int, dict[str, Resampled]]:
    """Return the smallest sufficient m by n and method, infinite where the grid does not reach the risk.

    Parameters
    ----------
    part : Table
        Points of one noise level.
    level : float
        The excess risk to reach, as a share of the risk of predicting 0, ``k/2``.

    Notes
    -----
    Without federation the risk hardly depends on n (only its median over trials does). At an m that was not run with n
    clients, the risk is taken from the largest smaller number of clients.
    """
    aim = level * part.rows[0]["rank"] / 2

    def smallest(rows: list[lf.Table], name: str) -> Resampled:
        return crossing((row["n_samples"] for row in rows), medians(np.log(row[name] / aim) for row in rows))

    found = {}
    for n in sorted(part.unique("n_clients")):
        nearest = []
        for m in sorted(part.unique("n_samples")):
            rows = [row for row in part.select(n_samples=m) if row["n_clients"] <= n]
            nearest += [max(rows, key=lambda row: row["n_clients"])] if rows else []
        of_size = [row for row in nearest if row["n_clients"] == n]
        found[n] = {FEDREP: smallest(of_size, FEDREP), LEAST: smallest(nearest, LEAST), RIDGE: smallest(nearest, RIDGE)}
    return found


def divided(row: lf.Table) -> Measured:
    """Return FedRep's complexity divided by the baseline's, with its interval, NaN where neither is reached.

    The smallest m of the grid is only an upper bound of a complexity.
    """
    m, alone, least = row["fedrep"], row["alone"], row["least"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return interval(m / alone, low=lower(m, least) / alone, high=m / lower(alone, least))


def small(n: Any, d: int) -> Any:
    """Return (log(n) + d/n)/d, which the paper assumes to be small."""
    return (np.log(n) + d / n) / d


def are_known(row: lf.Table) -> bool:
    """Return whether FedRep and the baseline reach the risk on the grid."""
    return bool(np.isfinite([row["fedrep"][0], row["alone"][0]]).all())


def break_even(part: lf.Table) -> Resampled | None:
    """Return the n from which a client needs fewer samples with FedRep, None if the grid does not reach the risk.

    It is infinite if a client needs more even with the most clients, and the smallest n if it needs fewer with all. The
    largest n that do not reach the risk are left out, because few m were run there.
    """
    largest = max((row["n_clients"] for row in part if are_known(row)), default=0)
    rows = [row for row in part if row["n_clients"] <= largest]
    if not rows:
        return None
    with np.errstate(invalid="ignore"):  # resamples in which neither is reached
        logs = np.stack([np.log(row["fedrep"]) - np.log(row["alone"]) for row in rows], axis=-1)
    return crossing((row["n_clients"] for row in rows), np.nan_to_num(logs, posinf=1e3, neginf=-1e3))


# --- claims --------------------------------------------------------------------------------------------------


def much_less(row: lf.Table) -> tuple[c.Hypothesis, ...]:
    """Return the paper's condition, with our number for "much less"."""
    n, d = row["n_clients"], row["dim"]
    return (c.Hypothesis(text=f"log(n) + d/n <= d/{MUCH_LESS}", left=math.log(n) + d / n, right=d / MUCH_LESS),)


def fewer(row: lf.Table) -> c.Measurement:
    """Return FedRep's complexity divided by the baseline's."""
    m, alone, share = row["fedrep"][0], row["alone"][0], small(row["n_clients"], row["dim"])
    return c.Measurement(divided(row), f"{m:.3g} for {alone:.3g}; (log(n) + d/n)/d = {share:.3f}")


def even_at(part: lf.Table) -> c.Measurement | None:
    """Return (log(n) + d/n)/d at the n from which FedRep needs fewer samples."""
    n = break_even(part)
    if n is None or np.isnan(n[0]):
        return None
    ends = np.where(np.isinf(n), 0.0, small(n, part.rows[0]["dim"]))  # 0 if FedRep needs more on the whole grid
    above = np.where(n <= min(part.unique("n_clients")), np.inf, ends)  # FedRep needs fewer on the whole grid
    return c.Measurement(interval(ends, high=above), f"n = {n[0]:.3g}")


def helps(baseline: str, words: str) -> tuple[c.Claim, c.Claim]:
    """Return the paper's claim that federation helps, and our claim on how small log(n) + d/n has to be."""
    sentence = f"A client needs fewer samples with FedRep than with {words} without federation"
    return (
        c.Claim(
            sentence,
            paper(asked_of="the best ridge" if baseline == RIDGE else ""),
            c.measured("smallest m for a tenth of the risk of predicting 0, divided by the local baseline's", fewer),
            c.below(1.0),
            table="needed",
            where=(c.of(level=LEVEL, baseline=baseline), c.only(are_known)),
            over=c.each_row,
            setting="noise std {noise_std}, n = {n_clients:,}",
            hypotheses=much_less,
        ),
        c.Claim(
            f"{sentence}, if (log(n) + d/n)/d <= 1/{MUCH_LESS}",
            c.OWN_THRESHOLD,
            c.measured("(log(n) + d/n)/d at which both need the same m, for a share of predicting 0's risk", even_at),
            c.at_least(1 / MUCH_LESS),
            table="needed",
            where=c.of(baseline=baseline),
            over=c.each("noise_std", "level"),
            setting="noise std {noise_std}, {level}",
        ),
    )


CLAIMS = (*helps(LEAST, "least squares"), *helps(RIDGE, "the best ridge"))


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the sample complexities against n, and FedRep's divided by the others against (log(n) + d/n)/d."""
    table, needed = tables["map"], tables["needed"].select(level=LEVEL)
    with lf.panels(table, column="noise_std", title="noise std {}", row=2, height=4.4, sharey="row") as sheet:
        for (ax, part), (below, _) in zip(sheet.row(0), sheet.row(1), strict=True):
            at_noise = needed.select(noise_std=part.rows[0]["noise_std"])
            for name, rows in at_noise.groupby("baseline"):
                n = np.array(rows.unique("n_clients"))
                if name == LEAST:
                    intervals(ax, n, [interval(row["fedrep"]) for row in rows], FEDREP, label=label(FEDREP))
                intervals(ax, n, [interval(row["alone"]) for row in rows], name, label=label(name))
                intervals(below, small(n, part.rows[0]["dim"]), [divided(row) for row in rows], name, label=label(name))
            ax.set_xlabel("clients $n$")
            below.axhline(1.0, color="black", linewidth=0.7)
        sheet.label(
            "$(\\log n + d/n)/d$",
            "smallest sufficient m",
            "FedRep's divided by\nthe one without",
            xscale="log",
            yscale="log",
        )
        sheet.legend(f"95 % intervals over {table.rows[0]['trials']} trials", ncols=3)
    return {"": sheet.figure}
