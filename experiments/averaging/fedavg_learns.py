"""FedAvg with several local updates learns the representation, and with one it does not.

The source proves it for population losses ``(1/2) ||B w - phi_i||^2`` of a model of two layers that all clients share.
Here n = 40 clients with heads N(0, I) start at a random subspace with ``eta B'B = I`` and w = 0. All methods have
equally many local gradient evaluations, so K = 1 has more rounds. K = 2, 5 and 20 have one step size, 0.1, or the best
step size each: the one with the fewest rounds to distance 1e-4 in the median of five separate trials. The competitors
have K = 1: with the same step size, 5 times this size, the best one, or a tenth of the clients in each round. In the
last competitor all clients have equal heads. `linfed.theory.fedavg_contraction` predicts the curves of the one step
size without a fitted parameter, and FedRep with step size ``(K - 1) eta^2`` should take the same course. With K = 1 and
all clients, and with equal clients, B stays in the span of its start and of the mean regressor. The dashed line is the
smallest distance there. `fedavg-rates` has the rates, and `fedavg-new-clients` fixed samples with noise.

**Deviations**: sizes, distribution of the heads and thresholds are ours. The claims follow the abstract, read with all
clients in each round; the text of the theorems was not at hand.

References: Collins, Hassani, Mokhtari and Shakkottai 2022, "FedAvg with fine tuning: local updates lead to
representation learning".
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import draw_level
from linfed.plotting.panels import Figures
from linfed.statistics import judge_smaller

from ._fedavg import BEST, EQUAL, FEDREP, LARGE, RIVALS, SAME, SAMPLED, SEVERAL, TUNED, Averaged
from ._learns import CLOSE
from ._learns_shown import (
    BELOW,
    FEDAVG_LOOKS,
    NOT_BELOW,
    OVER_FEDREP,
    PREDICTED,
    STAYS_IN_SPAN,
    recovered,
    rounds_ratio,
)

SUMMARY = "FedAvg learns the representation by local updates: K steps against one step, and against FedRep"
CAPTIONS = {
    "": (
        "Subspace distance against local gradient evaluations of a client: several local steps at one step size with "
        "predictions (black), at the best step size each, and the competitors. Dashed: smallest distance in the span "
        "that K = 1 can reach. Lines: median over trials; shaded on the left: 10-90 %."
    )
}
PICTURES = {"": 1400}

THRESHOLD = c.reading("Collins, Hassani, Mokhtari and Shakkottai 2022, abstract").adding(
    f"the number is {c.OWN_THRESHOLD}"
)


def cells(quick: bool) -> dict[str, list[Averaged]]:
    """Return runs of all methods; quick: small sizes and few trials."""
    base = Averaged(method=SAME)
    if quick:
        base = Averaged(
            method=SAME, n_clients=20, dim=6, rank=2, trials=6, step_size=0.3, evaluations=800, steps=(0.3, 1.0)
        )
    pairs = [*SEVERAL.items(), *TUNED.items(), (FEDREP, 5), *((name, 5 if name == EQUAL else 1) for name in RIVALS)]
    return {"population": lf.grid(base, **{"method, local_steps": pairs})}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances against gradient evaluations."""
    titles = dict.fromkeys(TUNED, "best step size of each K") | dict.fromkeys(RIVALS, "K = 1, or equal clients")
    table = tables["population"].assign(panel=lambda row: titles.get(row["method"], "one step size"))
    with lf.panels(table, column="panel", title="{}") as sheet:
        for ax, part in sheet:
            names = {FEDREP: r"FedRep, step $(K - 1)\,\eta^2$, $K = 5$"} | {name: f"_{name}" for name in TUNED}
            one, band = SAME in part.unique("method"), FEDREP in part.unique("method")
            lf.plot_curves(ax, part, "evaluated", "distance", looks=FEDAVG_LOOKS, labels=names, band=band)
            for row in part.select(method=[name for name in SEVERAL if name in part.unique("method")]):
                middle = np.median(row["predicted"], axis=0)
                text = "predicted" if row["method"] == "K = 2" else "_predicted"
                ax.plot(row["evaluated"], middle, color="black", linewidth=0.7, zorder=3, label=text)
            if one:
                draw_level(ax, float(np.median(part.select(method=SAME)["floor"])), label="smallest distance of K = 1")
                ax.set(yscale="linear", ylim=(0.95, 1.002))
            else:
                evaluations = part.rows[0]["evaluations"]
                ax.set(yscale="log", ylim=(1e-6, 2), xlim=(0, evaluations if band else evaluations / 4))
        sheet.label("local gradient evaluations", "subspace distance")
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials", ncols=3)
    return {"": sheet.figure}


def fewer(what: str, cost: str = "", *, tuned: bool = False) -> c.Claim:
    """Return the claim that more local updates need fewer rounds, or gradient evaluations, at one or tuned steps."""

    def judged(few: lf.Table, more: lf.Table, **fields: Any) -> c.Finding:
        return judge_smaller(*(row["reached"] * (row[cost] if cost else 1) for row in (more, few)), **fields)

    return c.Claim(
        f"{'With tuned step sizes' if tuned else 'At one step size'}, more local updates need fewer {what}",
        c.OWN_CONJECTURE if tuned else c.OWN_PREDICTION,
        c.Statistic(f"share of paired trials with fewer {what} to distance {CLOSE:g}", judged, c.MOST),
        where=c.of(method=[*(TUNED if tuned else SEVERAL)]),
        over=c.successive("local_steps"),
        setting=f"{{1[method]}} against {{0[method]}}, {SIZES}",
        note=lambda few, more: c.join_notes(*(c.diverged_note(row, "this step") for row in (few, more))),
    )


def never(sentence: str, source: c.Source, *methods: str) -> c.Claim:
    """Return a claim that most runs do not recover B*."""
    share = c.share(lambda row: ~recovered(row), NOT_BELOW, c.MOST)
    return OfEach(sentence, source, share, where=c.of(method=methods))


SIZES = "n = {n_clients}, {evaluations:,} gradient evaluations"
OfEach = partial(c.Claim, over=c.each_row, setting=f"{{method}}, {SIZES}")
CLAIMS = (
    OfEach(
        "FedAvg with several local updates recovers B*",
        THRESHOLD,
        c.share(recovered, BELOW, c.MOST),
        where=c.of(method=[*SEVERAL]),
    ),
    never("FedAvg with one local update does not recover B*", THRESHOLD, SAME, LARGE, BEST),
    OfEach(
        "The distance stays above the smallest one in the span of the start and the mean regressor",
        c.OWN_PREDICTION,
        STAYS_IN_SPAN,
        where=c.of(method=[SAME, LARGE, BEST, EQUAL]),
    ),
    never("FedAvg with one local update of a tenth of the clients does not recover B*", c.OWN_THRESHOLD, SAMPLED),
    never("Without diversity, FedAvg does not recover B*", c.OWN_PREDICTION, EQUAL),
    fewer("rounds"),
    fewer("gradient evaluations", "local_steps"),
    fewer("rounds", tuned=True),
    fewer("gradient evaluations", "local_steps", tuned=True),
    c.Claim(
        "FedAvg takes the course of FedRep with step size (K - 1) eta^2",
        PREDICTED,
        c.ratio("reached", "K = 5", FEDREP, OVER_FEDREP, c.within(0.9, 1.1), measure=rounds_ratio),
        setting=f"K = 5, {SIZES}",
    ),
)
