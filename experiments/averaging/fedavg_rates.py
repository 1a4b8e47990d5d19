"""FedAvg with several local updates: its rate over the diversity of the heads, and the scale of the initial B.

The setting is that of the experiment `fedavg-learns`, with n = 100 clients and heads N(0, diag(1, 1, mu^2)) for the
rates. `linfed.theory.fedavg_contraction` predicts them without a fitted parameter. Other runs start at ``eta B'B`` up
to a hundred times smaller than in the source.

**Deviations**: sizes, distribution of the heads and thresholds are ours. The claims follow the abstract, read with all
clients in each round; the text of the theorems was not at hand.

References: Collins, Hassani, Mokhtari and Shakkottai 2022, "FedAvg with fine tuning: local updates lead to
representation learning".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures

from ._fedavg import SAME, SEVERAL, Averaged
from ._learns import CLOSE
from ._learns_shown import BELOW, FEDAVG_LOOKS, draw_rates, draw_shares, rate_claims, recovered

SUMMARY = "FedAvg with several local updates: rate over the diversity of the heads, and scale of the initial B"
CAPTIONS = {
    "": (
        "Left: fall of the log distance per round against the smallest eigenvalue of the heads' second moment, with "
        "its prediction; median over trials and 10-90 %. Right: share of runs that end below 1e-4 against the scale "
        "of the initial B, with 95 % intervals."
    )
}
PICTURES = {"": 1400}
REDUCED = {"scales": {"without": ("distance", "predicted")}}


def cells(quick: bool) -> dict[str, list[Averaged]]:
    """Return runs of three K at several diversities, and of several scales; quick: small sizes and few trials."""
    base, several, rounds = Averaged(method=SAME), list(SEVERAL.items()), 48
    diversities: Sequence[float] = (1.0, 0.7, 0.5)
    scales: Sequence[float] = (0.01, 0.03, 0.1, 0.3, 1.0, 1.5)
    many, middle = replace(base, n_clients=100, dim=10, trials=10), replace(base, evaluations=4000, trials=40)
    if quick:
        base = Averaged(method=SAME, dim=6, rank=2, trials=6, step_size=0.3, steps=(0.3, 1.0))
        many, middle = replace(base, n_clients=30), replace(base, n_clients=20, evaluations=600)
        diversities, several, rounds, scales = (1.0, 0.7), several[:2], 30, (0.01, 1.0)
    rates = [
        replace(
            many,
            method=name,
            local_steps=steps,
            diversity=mu,
            evaluations=steps * int(rounds / (many.step_size**2 * (steps - 1) * mu**2)),
        )
        for mu in diversities
        for name, steps in several
    ]
    return {"rates": rates, "scales": lf.grid(replace(middle, method="K = 5", local_steps=5), scale=scales)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the rates, and the shares of runs against the scale."""
    rates, scales = tables["rates"], tables["scales"]
    with lf.panels(rates + scales, column=2, height=2.7) as sheet:
        left, right = sheet.axes[0]
        draw_rates(left, rates, FEDAVG_LOOKS)
        draw_shares(right, scales, "scale", FEDAVG_LOOKS["K = 5"], "share of runs, K = 5")
        right.set(xscale="log", xlabel=r"scale of the initial B: $\eta B^\top B$", ylim=(-0.04, 1.04))
        right.set_ylabel(f"share of runs below {CLOSE:g}")
        sheet.legend(ncols=5)
    return {"": sheet.figure}


CLAIMS = (
    *rate_claims(c.reading("Collins, Hassani, Mokhtari and Shakkottai 2022, abstract; the comparison is ours")),
    c.Claim(
        "Most runs recover B* from every scale of the initial B within the given gradient evaluations",
        c.OWN_THRESHOLD,
        c.share(recovered, BELOW, c.MOST),
        table="scales",
        over=c.each_row,
        setting="K = 5, eta B'B = {scale:g}, {evaluations:,} gradient evaluations",
    ),
)
