"""FLUTE paper, section 7.2, on a mixture of Gaussian classes: which methods gain from the penalty on neural collapse.

The means of ten classes lie in r = 9 of d = 30 dimensions, at a root mean square distance of 3 from their centre. x has
standard deviation 1 about its mean (`lf.Classes`). n = 20, 50 or 100 clients hold 2 or 5 classes each and train on
m = 20 samples; 100 more of each client are held out. The representation has k = 3 columns, fewer than the span of the
means, or k = 9, as many. The accuracy of the best classifier at the true means is known (`ClassTruth.bayes`).

**Deviations**: the paper has images and a convolutional network in this section and no synthetic classes; the whole
setting is our choice. Full-gradient steps replace epochs, and step sizes and weights are tuned on five other mixtures.
FedCP is left out. All methods start from one random head, on which the paper says nothing; the committed runs are
older, with FLUTE's heads started at random and all others at 0.

A further table asks whether the comparison depends on the dimension, with fresh samples and one step on B per round, at
d = 30, 1,000 and (for k = 3) 10,000. FLUTE takes one local step, FedRep one step on the heads and one on B. Such rounds
are drawn exactly in distribution without samples of dimension d. The other baselines would need the samples. Step sizes
and weights are tuned on ten other mixtures here.

Figures
-------
"" : Accuracy on each client's held-out samples of its own classes, averaged over clients. Error bars: standard error
    over trials. Dashed: FedAvg restricted to each client's own classes; dotted: the best classifier.
"curves" : Accuracy on held-out samples against rounds. Lines: median over trials; shaded: 10-90 %.
"dimension" : Accuracy on held-out samples against the dimension, with fresh samples and one step on B per round. Lines:
    median over trials; shaded: 10-90 %. Dashed: the best classifier.
"nc2" : Global and Local NC2 of the heads against rounds, at k = 3. Lines: median over trials; shaded: 10-90 %.

References: Liu, Shen and Yang 2024, sections 6 and 7.2, Appendices B and C.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.data.class_sources import held_out
from linfed.data.projected import ProjectedHeldOut
from linfed.figures.style import draw_level
from linfed.numerics.layers import composed
from linfed.plotting.panels import Figures, drawn_from
from linfed.statistics.findings import OWN_PREDICTION, Finding, join_notes, judge

from ._classes import FEDREP, FLUTE, METHODS, NO_NC, WEIGHTS, Contest, figures, medians
from ._classes_judged import POINTS, difference, edge, judged

SUMMARY = "FLUTE paper, section 7.2, on Gaussian classes: FLUTE and FLUTE* against eight methods, and NC2"

HELD_OUT = 100


@dataclass(frozen=True, kw_only=True)
class Mixture(Contest):
    """One method on one family of mixtures."""

    n_classes: int = 10
    dim: int = 30
    n_samples: int = 20
    separation: float = 3.0

    @property
    def partition(self) -> str:
        """The clients and their classes, as text."""
        return f"n = {self.n_clients}, {self.classes_per_client} classes"

    @property
    def problem(self) -> lf.Classes:
        """The problem, which draws the mixtures."""
        sizes = {name: getattr(self, name) for name in ("n_clients", "n_classes", "classes_per_client", "dim")}
        return lf.Classes(**sizes, separation=self.separation, test_samples=HELD_OUT)

    def source(self, trials: int, seed: Any) -> dict[str, Any]:
        """Return the problem and its data, as arguments of `lf.simulate`."""
        return {"problem": self.problem, "data": lf.FixedSamples(self.n_samples)}

    def run(self) -> dict[str, Any]:
        """Return the results of the method, and the accuracy of the best classifier on the same held-out samples."""
        best = self.best_accuracy(self.problem.truth(self.seed, range(self.trials)))
        return {**super().run(), "bayes": 100.0 * np.mean(best, axis=1)}

    def best_accuracy(self, truth: Any) -> Any:
        """Return the accuracy of the best classifier on each client's held-out samples, (trials, n)."""
        theta = composed(truth.B, truth.bayes())
        samples = held_out(truth, HELD_OUT, self.seed, range(self.trials))
        return samples.accuracies(lambda t, c: theta[t, c])


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


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return every method in every setting at both ranks, and FedRep and FLUTE in several dimensions."""
    base, clients, ranks = Mixture(), (20, 50, 100), (3, 9)
    if quick:
        base = replace(base, rounds=5, trials=3, tuning_trials=1, steps=(0.2,), weights=WEIGHTS[:1])
        clients, ranks = (5, 10), ranks[:1]
    class_counts = (2, 5)
    wide, dimensions = Wide(), (30, 1000)
    if quick:
        wide, dimensions = replace(wide, n_clients=5, rounds=5, trials=3, tuning_trials=1, steps=(0.2,)), (20, 200)
        wide = replace(wide, weights=WEIGHTS[:1])
    compared = (FEDREP, FLUTE, NO_NC)
    in_dimensions = lf.grid(wide, rank=ranks, dim=dimensions, method=compared)
    return {
        "runs": lf.grid(base, n_clients=clients, classes_per_client=class_counts, rank=ranks, method=METHODS),
        "dimension": in_dimensions if quick else [*in_dimensions, *lf.grid(wide, dim=(10_000,), method=compared)],
    }


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw final accuracies, accuracies against rounds, NC2, and final accuracies against the dimension."""
    return figures(tables["runs"]) | {"dimension": against_dimension(tables["dimension"])}


def against_dimension(runs: lf.Table) -> Any:
    """Draw the accuracy against the dimension, in a panel for each rank."""
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
    return drawn_from(sheet.figure, runs)  # the rows with their dimensions


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the paper's claims on its Table 1, and the further baselines."""
    return [*judged(tables["runs"]), *in_dimensions(tables["dimension"])]


def in_dimensions(runs: lf.Table) -> list[Finding]:
    """Judge FLUTE with one step per round against FedRep, and against itself without its penalty."""
    out = []
    for (rank, dim), part in runs.groupby("rank", "dim"):
        row = {str(one["method"]): one for one in part.rows}
        texts = {FEDREP: "FedRep", NO_NC: "without its penalty on neural collapse"}
        for other, text in texts.items():
            found, vacuous = difference(*(row[name]["final_accuracy"] for name in (FLUTE, other)))
            fields: dict[str, Any] = {"setting": f"k = {rank}, d = {dim}", "source": OWN_PREDICTION, "vacuous": vacuous}
            fields |= {"statistic": POINTS, "note": join_notes(*map(edge, (row[FLUTE], row[other])))}
            claim = f"On fresh samples with one step per round, FLUTE is more accurate than {text}"
            out.append(judge(found, claimed_low=0.0, strict=True, claim=claim, **fields))
    return out
