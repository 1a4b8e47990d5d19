"""FedRep paper, section 1: whether more local updates hurt averaging and help heads, in the setting of Figure 1.

The setting is the one of `experiments.fedrep.fedrep_fig1`: d = 20, k = 2, n = 100, m in {5, 10, 20}, fixed local data,
full participation, 500 rounds, noise variance 1e-3. FedAvg trains the two-layer model by K local steps a round. FedRep
fits each head by K gradient steps before its step on B (Algorithm 1, one step size for both). K is 1, 2 or 10.

Step sizes are tuned for each method, m and K on separate trials, for the smallest median of the final error. Other
experiments take the smallest step size within 1 % of the best; here the number of updates changes FedAvg's error by
about as much, so the best one is taken. At m = 5 FedAvg is the better the less it moves from 0, so the grid begins at
tiny step sizes. FedAvg also runs at one step size for all K. The simplest competitor is the best single model for all
clients, which no averaged model can beat.

**Deviations**: the paper gives no step size and no K for a linear model. Its section 5.2 varies K on images, with deep
networks. As there, runs have equal numbers of rounds, so K = 10 takes up to ten times the gradients of K = 1.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, sections 1 and 5.2, Figures 1 and 5; Collins, Hassani,
Mokhtari and Shakkottai 2022, for FedAvg with several local updates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import KINDS, Look
from linfed.plotting.panels import Figures, bars
from linfed.statistics.gains import judge_lower_end
from linfed.statistics.intervals import median_ratio, nan_as_worst

from ._fedrep import PAPER, Tuned

SUMMARY = "FedRep paper, section 1: more local updates of FedAvg and of FedRep's heads, in Figure 1's setting"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "Top: mean squared error of the clients after the last round, against the local updates K of a round, for each "
    "m. Dashed: the smallest error of any single model for all clients. Bottom: subspace distance. "
    "Markers: median over trials; bars: 10-90 %.",
}

BEST, COMMON = "best step", "common step"
SHOWN = {("FedAvg", BEST): "FedAvg", ("FedAvg", COMMON): "FedAvg, one step size", ("FedRep", BEST): "FedRep"}
LOOKS: dict[str, str | Look] = {"FedAvg": "FedAvg", "FedAvg, one step size": KINDS[8], "FedRep": "FedRep"}


@dataclass(frozen=True, kw_only=True)
class Updates(Tuned):
    """A method with K local updates in Figure 1's setting; a single step size is not tuned."""

    preset: str = lf.choice((PAPER,), PAPER)
    method: str = lf.choice(("FedAvg", "FedRep"), "FedRep")
    n_clients: int = 100
    dim: int = 20
    n_samples: int = 5
    local_updates: int = 1
    n_rounds: int = 500
    trials: int = 24
    tuning_trials: int = 6
    steps: tuple[float, ...] = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.8)

    def algorithm(self, step: float = 1.0) -> lf.Algorithm:
        """Return the method at a step size."""
        if self.method == "FedRep":
            return self.fedrep(step, lf.GradientHeads(steps=self.local_updates))
        return lf.FedAvg(rank=self.rank, step_size=step, local_steps=self.local_updates)

    def run(self) -> dict[str, Any]:
        """Return the mean error of the clients and the distance of B after the last round, (trials,)."""
        seed, metrics = (self.seed, self.n_samples), ("risk", "subspace_distance")
        result, columns = self.trained(
            "risk", seed, *metrics, record_every=self.n_rounds, quantile=0.5, ties_within=0.0
        )
        risk, distance = (result.metrics[name][:, -1] for name in metrics)
        floor = lf.theory.single_model_floor(self.problem.truth(seed, range(self.trials)))
        return columns | {
            "at": BEST if len(self.steps) > 1 else COMMON,
            "error": nan_as_worst(self.squared_error(risk)),
            "distance": nan_as_worst(distance),
            "floor": self.squared_error(floor),
            "diverged": np.isnan(risk),
        }


def cells(quick: bool) -> dict[str, list[Updates]]:
    """Return both methods at every m and K, and FedAvg at one step size; quick: two K, few trials and rounds."""
    base, several = Updates(), [1, 2, 10]
    if quick:
        base, several = Updates(n_clients=20, trials=8, tuning_trials=2, n_rounds=40, steps=(0.03, 0.1, 0.3)), [1, 10]
    grid = partial(lf.grid, n_samples=(5, 10, 20), local_updates=several)
    return {"updates": grid(base, method=("FedAvg", "FedRep")) + grid(replace(base, method="FedAvg", steps=(0.1,)))}


# --- claims --------------------------------------------------------------------------------------------------

HURTS = c.cite(
    "FedRep paper, section 1",
    "unlike standard federated learning where multiple local updates in a heterogeneous setting moves each client away "
    "from the best averaged representation, and thus hurts performance",
)
HELPS = c.cite(
    "FedRep paper, section 1",
    "each client can make many local updates at each communication round, which is beneficial in learning its own "
    "individual head",
)
ON_IMAGES = c.cite(
    "FedRep paper, section 5.2",
    "FedRep's performance is monotonically non-decreasing with E, i.e., FedRep requires less tuning of E and is never "
    "hurt by more local computation",
    asked_of="a linear model",
    threshold=True,
)
FEW, MANY = 1, 10


def asked(
    sentence: str, source: c.Source, method: str, statistic: c.Statistic, required: c.Range | None = None
) -> c.Claim:
    """Return a claim on 10 local updates against one, for each m, at the best and at the common step size."""
    return c.Claim(
        sentence,
        source,
        statistic,
        required,
        where=c.of(method=method, local_updates=[FEW, MANY]),
        over=c.each("at", "n_samples"),
        setting="{at}, m = {n_samples}",
        note=partial(c.diverged_note, place="its step"),
    )


def smaller_end(one: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
    """Judge smaller errors; runs that have converged to the same limit tie."""
    return judge_lower_end(np.stack([one["error"], other["error"]]), tie=1e-3, **fields)


smaller = partial(c.smaller, by="local_updates")
quotient = partial(c.ratio, by="local_updates")
ERROR, DISTANCE = "share of paired trials with the smaller mean client error", "share with the smaller distance"
CLAIMS = (
    asked(
        "Ten local updates leave FedAvg a larger error than one", HURTS, "FedAvg", smaller("error", FEW, MANY, ERROR)
    ),
    asked(
        "Ten local updates leave FedAvg's B farther from B* than one",
        c.reading(HURTS.adding("asked of the distance of B")),
        "FedAvg",
        smaller("distance", FEW, MANY, DISTANCE),
    ),
    asked(
        "Ten local updates change FedAvg's error by less than a tenth",
        c.OWN_THRESHOLD,
        "FedAvg",
        quotient("error", MANY, FEW, "median error with ten updates divided by that with one"),
        c.within(0.9, 1.1),
    ),
    c.Claim(
        "FedAvg's error is within a tenth of the best single model's, for every number of local updates",
        c.OWN_THRESHOLD,
        c.worst(
            median_ratio,
            lambda row: (row["error"], row["floor"]),
            "m = {n_samples}, K = {local_updates}, of {points} settings",
            "largest ratio of the medians",
        ),
        c.at_most(1.1),
        where=c.of(method="FedAvg"),
        over=c.each("at"),
        setting="{at}",
    ),
    asked(
        "Ten updates of its heads leave FedRep a smaller error than one",
        c.reading(HELPS.adding("asked of the error after all rounds, with one step size for B and heads")),
        "FedRep",
        c.compared(f"{ERROR}; differences up to 0.1 % are ties", MANY, FEW, smaller_end, c.MOST, by="local_updates"),
    ),
    asked(
        "Ten updates of its heads do not hurt FedRep: at most 1.1 times the error with one",
        ON_IMAGES,
        "FedRep",
        quotient("error", MANY, FEW, "median error with ten updates divided by that with one"),
        c.at_most(1.1),
    ),
)


# --- figure --------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw errors and distances against the number of local updates."""
    table = tables["updates"]
    with lf.panels(table, column="n_samples", row=2, title="m = {}", height=4.0, sharex=True, sharey="row") as sheet:
        for row, column in enumerate(("error", "distance")):
            for ax, part in sheet.row(row):
                for turn, ((method, at), name) in enumerate(SHOWN.items()):
                    rows = c.sorted_by("local_updates")(part.select(method=method, at=at))
                    x = rows["local_updates"] * 1.06 ** (turn - 1)
                    bars(ax, x, rows[column].T, LOOKS[name], label=name)
                if column == "error":
                    ax.axhline(np.median(part.rows[0]["floor"]), color="black", linestyle="--", label="single model")
                ax.set(xscale="log", yscale="log")
                ax.set_xticks(part.unique("local_updates"), [str(number) for number in part.unique("local_updates")])
                ax.xaxis.minorticks_off()
        sheet.label("local updates K of a round", "squared error", "subspace distance")
        sheet.legend(f"{table.rows[0]['trials']} trials", ncols=4)
    return {"": sheet.figure}
