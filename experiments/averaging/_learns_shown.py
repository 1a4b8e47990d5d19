"""Figures and claims that the experiments on local updates and own steps share."""

from __future__ import annotations

from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array, Mask
from linfed.figures.style import Look, shades
from linfed.plotting.panels import bars, intervals
from linfed.statistics import judge_smaller
from linfed.statistics.intervals import Measured, binomial_share, median_interval

from . import _maml
from ._fedavg import BEST, EQUAL, LARGE, SAME, SAMPLED, SEVERAL, TUNED
from ._learns import CLOSE

FEDAVG_LOOKS: dict[str, Look] = (
    shades(SEVERAL)
    | dict(zip(TUNED, shades(SEVERAL).values(), strict=True))
    | {
        SAME: ("#CC6677", "v", "-."),
        LARGE: ("#44AA99", "s", "--"),
        BEST: ("#AA4499", "D", ":"),
        SAMPLED: ("#332288", "P", "-"),
        EQUAL: ("#999933", "d", "--"),
        "K = 10": ("#44AA99", "s", "-"),
    }
)

META_LOOKS: dict[str, Look] = {
    "ANIL, first order": ("#332288", "o", "-"),
    "ANIL, exact": ("#88CCEE", "s", "--"),
    "MAML, first order": ("#CC6677", "^", "-."),
    "MAML, exact": ("#AA4499", "D", ":"),
    "MAML, first order, alpha B'B = 0.5": ("#661100", "v", ":"),
    _maml.AVERAGE: ("#999933", "v", "--"),
    _maml.BEST: ("#44AA99", "d", "-."),
    _maml.LONG: ("#888888", "P", ":"),
    _maml.DRAWN: ("#117733", "X", "-"),
    _maml.FEDREP: ("#0072B2", "o", "-"),
}

PREDICTED = c.OWN_PREDICTION.adding(f"the range is {c.OWN_THRESHOLD}")
BELOW = f"share of trials that end below {CLOSE:g}"
NOT_BELOW = f"share of trials that do not end below {CLOSE:g}"
FEWER_ROUNDS = f"share of paired trials with fewer rounds to distance {CLOSE:g}"
OVER_FEDREP = f"rounds to distance {CLOSE:g}, divided by FedRep's, median over trials"


def draw_rates(ax: Any, table: lf.Table, looks: dict[str, Look]) -> None:
    """Draw the rates of each method against the smallest eigenvalue of the heads' second moment, with predictions."""
    for name, part in table.groupby("method"):
        rows = c.sorted_by("diversity")(part)
        x, rates = [np.median(row["smallest"]) for row in rows], c.stacked(rows, "rate")
        bars(ax, x, rates, looks[name], label=name, linestyle="none", markerfacecolor="none")
        ax.plot(x, [np.median(row["law"]) for row in rows], color=looks[name][0], linewidth=1.0, label=f"_{name}")
    ax.plot([], [], color="0.3", linewidth=1.0, label="predicted")
    ax.set(xscale="log", yscale="log", ylabel="fall of the log distance per round")
    ax.set_xlabel("smallest eigenvalue of\nthe heads' second moment")


def draw_shares(ax: Any, part: lf.Table, x: str, look: Look, label: str) -> None:
    """Draw the share of runs that recover B* against a column, with its 95 % interval."""
    shares = [binomial_share(int(recovered(row).sum()), len(recovered(row))) for row in part]
    intervals(ax, [row[x] for row in part], shares, look, label=label, linestyle=look[2])


def recovered(row: lf.Table) -> Mask:
    """Return for each trial whether its final distance is below 1e-4."""
    return np.asarray(row["end"] < CLOSE)


def with_scale(row: Any) -> str:
    """Return the method of a row, with the scale of its initial B unless ``alpha B'B = I``."""
    method, scale = row["method"], row["scale"]
    return f"{method}, alpha B'B = {scale:g}" if scale != 1.0 else str(method)


# --- claims --------------------------------------------------------------------------------------------------


def rounds_ratio(first: Array, second: Array) -> Measured:
    """Return the median over trials of a ratio of rounds; a trial in which one is infinite counts as infinite."""
    known = np.isfinite(first) & np.isfinite(second)
    return median_interval(np.divide(first, second, out=np.full(len(known), np.nan), where=known))


def span_gap(row: lf.Table) -> Array:
    """Return how far the distance is below the smallest one in the span of the start and the mean regressor."""
    return np.asarray(row["floor"][:, None] - row["distance"])


STAYS_IN_SPAN = c.identity(span_gap, "largest excess of the smallest distance in this span over the distance", 1e-6)


def fewer_rounds(more: lf.Table, less: lf.Table, **fields: Any) -> c.Finding:
    """Judge whether the first of two rows needs fewer rounds, in paired trials."""
    return judge_smaller(more["reached"], less["reached"], **fields)


def rate_claims(source: c.Source) -> tuple[c.Claim, ...]:
    """Return the claims on rates and curves against their prediction, and on the effect of diverse heads.

    The `source` is that of the last claim.
    """
    place, within = "{method}, mu = {diversity:g}", c.within(0.9, 1.1)
    rate = "fall of the log distance from 1e-3 to 1e-9, divided by the predicted one, median over trials"
    rounds = f"rounds to distance {CLOSE:g}, divided by the predicted ones, median over trials"
    return (
        c.Claim(
            "The rate is the predicted one",
            PREDICTED,
            c.median(lambda row: row["rate"] / row["law"], rate, within),
            table="rates",
            over=c.each_row,
            setting=place,
        ),
        c.Claim(
            "The rounds from a random start are the predicted ones",
            PREDICTED,
            c.measured(rounds, lambda row: rounds_ratio(row["reached"], row["reached_law"]), within),
            table="rates",
            over=c.each_row,
            setting=place,
        ),
        c.Claim(
            "Diverse heads speed the recovery of B* up",
            source,
            c.Statistic(FEWER_ROUNDS, fewer_rounds, c.MOST),
            table="rates",
            over=c.successive("diversity", c.each("method"), descending=True),
            setting="{method}, mu = {0[diversity]:g} against {1[diversity]:g}",
        ),
    )
