"""MAML and ANIL recover the representation, and the average loss does not.

The source proves it for linear models of two layers. Its simulations draw heads from N(0, diag(1, .., 1, mu^2)). Here n
= 40 clients with heads N(0, I) have population losses ``(1/2) ||B w - phi_i||^2`` and take part in every round. B
starts at a random subspace with ``alpha B'B = I``, and w at 0. The methods are ANIL and MAML, each exact and of first
order. The competitors minimise the average loss (`linfed.FedAvg` with one local step). They have the same step size,
the best one, 10 times the rounds, or a tenth of the clients in each round. `linfed.theory.meta_contraction` predicts
all four curves without a fitted parameter, and FedRep with step size ``alpha beta`` should take the same course.
`maml-rates` has the rates and shifted heads, and `maml-samples` fixed samples with noise.

**Deviations**: all sizes, step sizes and thresholds are ours. The clients are fixed, and all take part in each round.

References: Collins, Mokhtari, Oh and Shakkottai 2022, "MAML and ANIL provably learn representations".
"""

from __future__ import annotations

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import draw_level
from linfed.plotting.panels import Figures

from ._learns_shown import BELOW, META_LOOKS, NOT_BELOW, OVER_FEDREP, PREDICTED, STAYS_IN_SPAN, recovered, rounds_ratio
from ._maml import AVERAGE, BEST, FEDREP, LONG, META, RIVALS, Meta

SUMMARY = "MAML and ANIL recover B*, gradient descent on the average loss does not: distance against rounds"
CAPTIONS = {
    "": (
        "Subspace distance against rounds: MAML and ANIL with their common prediction (black), and the average loss "
        "with the smallest distance in the span that it can reach (dashed). Lines: median over trials; shaded on the "
        "left: 10-90 %."
    )
}
PICTURES = {"": 1400}

THRESHOLD = c.reading("Collins, Mokhtari, Oh and Shakkottai 2022, abstract and Figure 1").adding(
    f"the number is {c.OWN_THRESHOLD}"
)


def cells(quick: bool) -> dict[str, list[Meta]]:
    """Return runs of all methods; quick: small sizes, few trials, and no run of 10 times the rounds."""
    base, names = Meta(method=FEDREP), (*META, *RIVALS, FEDREP)
    if quick:
        base = Meta(
            method=FEDREP, n_clients=30, dim=6, rank=2, trials=6, alpha=0.3, beta=0.3, n_rounds=300, steps=(0.1, 0.3)
        )
    return {"population": lf.grid(base, method=[name for name in names if not quick or name != LONG])}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances against rounds."""
    table = tables["population"]
    named = table.assign(panel=lambda row: "average loss" if row["method"] in RIVALS else "MAML and ANIL")
    with lf.panels(named, column="panel", title="{}") as sheet:
        for ax, part in sheet:
            labels = {FEDREP: r"FedRep, step $\alpha\beta$"}
            row = part.rows[0]
            lf.plot_curves(
                ax, part, "round", "distance", looks=META_LOOKS, labels=labels, band=row["method"] not in RIVALS
            )
            if row["method"] in RIVALS:
                draw_level(ax, float(np.median(row["floor"])), label="smallest distance in the reached span")
                ax.set(xscale="log", xlim=(1, None), yscale="linear", ylim=(0.95, 1.002))
            else:
                law = np.median(part.select(method=next(iter(META)))["predicted"], axis=0)
                ax.plot(part["round"], law, color="black", linewidth=0.7, zorder=3, label="predicted")
                ax.set(yscale="log", ylim=(1e-8, 2))
        sheet.label("round", "subspace distance")
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials", ncols=3)
    return {"": sheet.figure}


CLAIMS = (
    c.Claim(
        "ANIL and MAML recover B*",
        THRESHOLD,
        c.share(recovered, BELOW, c.MOST),
        where=c.of(method=[*META]),
        over=c.each_row,
        setting="{method}, {n_rounds} rounds",
        note=lambda row: c.diverged_note(row, "this step"),
    ),
    c.Claim(
        "Minimising the average loss does not recover B*",
        THRESHOLD,
        c.share(lambda row: ~recovered(row), NOT_BELOW, c.MOST),
        where=c.of(method=RIVALS),
        over=c.each_row,
        setting="{method}",
    ),
    c.Claim(
        "The distance stays above the smallest one in the span of the start and the mean regressor",
        c.OWN_PREDICTION,
        STAYS_IN_SPAN,
        where=c.of(method=[AVERAGE, BEST, LONG]),
        over=c.each_row,
        setting="{method}",
    ),
    *(
        c.Claim(
            "The method takes the course of FedRep with step size alpha beta",
            PREDICTED,
            c.ratio("reached", name, FEDREP, OVER_FEDREP, c.within(0.9, 1.1), measure=rounds_ratio),
            setting=name,
        )
        for name in META
    ),
)
