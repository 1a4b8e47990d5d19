"""FLUTE against FedRep on Gaussian classes in 30 to 10,000 dimensions, with fresh samples.

The setting follows `experiments.flute_classification`, with n = 20 clients of five classes, m = 20 fresh samples per
round and one step on B per round. FLUTE takes one local step, FedRep one step on the heads and one on B. Such rounds
are drawn exactly in distribution, without samples of dimension d. The other baselines would need the samples. Step
sizes and weights are tuned on ten other mixtures. The means of the classes stay at the same distance, so the best
classifier does not depend on d. The simplest rival is FLUTE without its penalty on neural collapse.

**Deviations**: the paper has no synthetic classes; all sizes are our choice.

Figures
-------
"" : Accuracy on held-out samples against the dimension, with fresh samples and one step on B per round. Lines: median
    over trials; shaded: 10-90 %. Dashed: the best classifier.

References: Liu, Shen and Yang 2024, section 6 and Appendix B.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.data.projected import ProjectedHeldOut
from linfed.figures.style import draw_level, label
from linfed.plotting.panels import Figures, drawn_from
from linfed.statistics.findings import OWN_PREDICTION, Finding, join_notes, judge

from ._classes import FEDREP, FLUTE, NO_NC, WEIGHTS, medians
from ._classes_judged import POINTS, difference, edge
from ._mixture import HELD_OUT, Mixture

UNPAIRED = "mean difference in accuracy between the largest and the smallest dimension, percentage points"

SUMMARY = "FLUTE against FedRep on Gaussian classes in up to 10,000 dimensions, with fresh samples"
PICTURES = {"": 2070}


@dataclass(frozen=True, kw_only=True)
class Wide(Mixture):
    """One method with fresh samples and one step on B per round, in any dimension."""

    n_clients: int = 20
    classes_per_client: int = 5
    rank: int = 3
    dim: int = 1000
    tuning_trials: int = 10
    steps: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)

    @property
    def algorithm(self) -> lf.Algorithm:
        """The method with one local step, and for FedRep one step on the heads."""
        plain = super().algorithm
        if isinstance(plain, lf.GeneralFLUTE):
            return replace(plain, local_steps=1)
        assert isinstance(plain, lf.FedRep)
        return replace(plain, heads=lf.GradientHeads(), representation_steps=1)

    def source(self, trials: int, seed: Any) -> dict[str, Any]:
        """Return the problem and its data, as arguments of `lf.simulate`."""
        return {"problem": self.problem, "data": lf.FreshSamples(self.n_samples)}

    def best_accuracy(self, truth: Any) -> Any:
        """Return the accuracy of the best classifier on held-out samples that are known only through their features."""
        heads = truth.bayes()
        samples = ProjectedHeldOut(truth, HELD_OUT, truth.B.shape[-1], self.seed, range(self.trials))
        return samples.at(truth.B).accuracies(lambda t, c: heads[t, c])


def cells(quick: bool) -> dict[str, list[Wide]]:
    """Return FedRep and FLUTE, with and without its penalty, at both ranks in several dimensions."""
    wide, ranks, compared = Wide(), (3, 9), (FEDREP, FLUTE, NO_NC)
    if quick:
        few: dict[str, Any] = {"rounds": 30, "trials": 60, "tuning_trials": 2, "steps": (0.4,), "weights": WEIGHTS[:1]}
        return {"runs": lf.grid(replace(wide, n_clients=10, **few), rank=ranks[:1], dim=(30, 300), method=compared)}
    several = lf.grid(wide, rank=ranks, dim=(30, 1000), method=compared)
    return {"runs": [*several, *lf.grid(wide, dim=(10_000,), method=compared)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the accuracy against the dimension, in a panel for each rank."""
    runs = tables["runs"]
    shared = ("n_clients", "n_samples", "rounds", "trials", "rank", "method")
    lines = []
    for _, part in runs.groupby("rank", "method"):
        rows = sorted(part.rows, key=lambda row: row["dim"])
        ends, best = (np.stack([row[name] for row in rows], axis=1) for name in ("final_accuracy", "bayes"))
        along = {"dim": [row["dim"] for row in rows]}
        lines.append(
            {name: rows[0][name] for name in shared}
            | {"ends": lf.LabeledArray(ends, **along), "bayes": best.mean(axis=1)}
        )
    table = lf.Table(lines)
    with lf.panels(table, column="rank", title="k = {}", height=2.6, sharey=True) as sheet:
        sheet.curves("dim", "ends")
        for ax, part in sheet:
            draw_level(ax, float(np.mean(part.rows[0]["bayes"])), "")
        sheet.label("d", "accuracy (%)", xscale="log", yscale="linear")
        for ax, part in sheet:
            dimensions = part.rows[0]["ends"].axes["dim"]
            ax.set_xticks(dimensions, [f"{int(d):,}" for d in dimensions])
            ax.minorticks_off()
        sheet.legend(medians(runs))
    return {"": drawn_from(sheet.figure, runs)}  # the rows with their dimensions


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge FLUTE against FedRep and against itself without its penalty, and the change with the dimension."""
    out = []
    for (rank, method), part in tables["runs"].groupby("rank", "method"):
        rows = sorted(part.rows, key=lambda row: row["dim"])
        found, vacuous = difference(rows[-1]["final_accuracy"], rows[0]["final_accuracy"], paired=False)
        fields: dict[str, Any] = {"source": OWN_PREDICTION, "vacuous": vacuous, "statistic": UNPAIRED}
        fields |= {"setting": f"{label(method)}, k = {rank}, d = {rows[0]['dim']:,} to {rows[-1]['dim']:,}"}
        claim = "On fresh samples with one step per round, the accuracy falls with the dimension"
        out.append(judge(found, claimed_high=0.0, strict=True, claim=claim, **fields))
    for (rank, dim), part in tables["runs"].groupby("rank", "dim"):
        row = {str(one["method"]): one for one in part.rows}
        texts = {FEDREP: "FedRep", NO_NC: "without its penalty on neural collapse"}
        for other, text in texts.items():
            found, vacuous = difference(*(row[name]["final_accuracy"] for name in (FLUTE, other)))
            fields = {"setting": f"k = {rank}, d = {dim:,}", "source": OWN_PREDICTION, "vacuous": vacuous}
            fields |= {"statistic": POINTS, "note": join_notes(*map(edge, (row[FLUTE], row[other])))}
            claim = f"On fresh samples with one step per round, FLUTE is more accurate than {text}"
            out.append(judge(found, claimed_low=0.0, strict=True, claim=claim, **fields))
    return out
