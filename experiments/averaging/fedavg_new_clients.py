"""New clients of a representation that FedAvg learned with several local updates, on fixed samples with noise.

n = 100 clients have fixed samples with noise. New clients fit their heads on the learned representation. The
competitors are FedAvg with one local update, FedRep, and least squares without federation. All step sizes are tuned.

**Deviations**: sizes and thresholds are ours. New clients fit exact heads instead of taking a few gradient steps. The
claims follow the abstract; the text of the theorems was not at hand.

References: Collins, Hassani, Mokhtari and Shakkottai 2022, "FedAvg with fine tuning: local updates lead to
representation learning".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures, bars

from ._learns import OnSamples, ScaledSubspace
from ._learns_shown import FEDAVG_LOOKS

SUMMARY = "FedAvg with several local updates on noisy samples: new clients, against one update and FedRep"
CAPTIONS = {
    "": (
        "Fixed samples with noise: subspace distance against rounds, and squared error of new clients against their "
        "samples. An error of 1 is the error of predicting 0. Lines and markers: median over trials; shaded and bars:"
        " 10-90 %."
    )
}
PICTURES = {"": 1400}

ABSTRACT = c.reading("Collins, Hassani, Mokhtari and Shakkottai 2022, abstract")
ON_SAMPLES = {"K = 1": 1, "K = 2": 2, "K = 10": 10}
ONE, BEST, FEDREP, ALONE = "K = 1", "K = 10", "FedRep", "LocalOnly"


@dataclass(frozen=True, kw_only=True)
class Sampled(OnSamples):
    """FedAvg with K local steps, FedRep, or local least squares, on fixed samples with noise."""

    method: str = lf.choice((*ON_SAMPLES, FEDREP, ALONE))
    steps: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8)
    new_samples: tuple[int, ...] = (3, 5, 10, 20, 40)

    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""
        if self.method == ALONE:
            return lf.LocalOnly()
        if self.method == FEDREP:
            return lf.FedRep(rank=self.rank, step_size=step, init=ScaledSubspace())
        steps, init = ON_SAMPLES[self.method], ScaledSubspace(step**-0.5)
        return lf.FedAvg(rank=self.rank, step_size=step, local_steps=steps, init=init)


def cells(quick: bool) -> dict[str, list[Sampled]]:
    """Return runs of all methods; quick: small sizes and few trials."""
    base, methods = Sampled(method=FEDREP), (*ON_SAMPLES, FEDREP)
    if quick:
        base = Sampled(
            method=FEDREP,
            n_clients=20,
            dim=6,
            rank=2,
            trials=6,
            n_rounds=60,
            steps=(0.2, 0.4),
            tuning_trials=2,
            new_samples=(2, 5),
        )
        methods = (ONE, BEST, FEDREP)
    return {"samples": [*lf.grid(base, method=methods), replace(base, method=ALONE, n_rounds=1, steps=(1.0,))]}


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return a row for each method and number of samples of a new client, with the errors of the trials."""
    rows = [
        row.rows[0] | {"new": int(m), "error": row["error"][:, place]}
        for row in tables["samples"]
        for place, m in enumerate(row["new"])
    ]
    return {"new_clients": lf.Table(rows)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances against rounds, and the errors of new clients against their samples."""
    table = tables["samples"]
    with lf.panels(table, column=2, height=2.7) as sheet:
        left, right = sheet.axes[0]
        trained = table.select(method=[name for name in table.unique("method") if name != ALONE])
        lf.plot_curves(left, trained, "round", "distance", looks=FEDAVG_LOOKS)
        left.set(xlabel="round", ylabel="subspace distance")
        for row in table:
            name = row["method"]
            text = "Local only" if name == ALONE else f"_{name}"
            bars(right, row["new"], row["error"], FEDAVG_LOOKS.get(name, name), label=text)
        right.set(xscale="log", yscale="log", xlabel="samples of a new client", ylabel="squared error, relative")
        right.set_xticks(table["new"], [str(size) for size in table["new"]])
        right.xaxis.minorticks_off()
        sheet.legend(ncols=5)
    return {"": sheet.figure}


PAIRED = "share of paired trials in which the median new client's error is smaller"
OfEach = partial(c.Claim, table="new_clients", over=c.each("new"), setting="m = {n_samples}, m_new = {new}")
noisy = c.only(lambda row: row["noise_std"] > 0.0)
from_rank = c.only(lambda row: row["new"] >= row["rank"])
CLAIMS = (
    OfEach(
        "A new client has a smaller error with FedAvg, K = 10, than with one local update",
        ABSTRACT,
        c.smaller("error", BEST, ONE, PAIRED),
        where=from_rank,
    ),
    OfEach(
        "A new client has a smaller error with FedAvg, K = 10, than without federation",
        c.OWN_THRESHOLD,
        c.smaller("error", BEST, ALONE, PAIRED),
        where=(from_rank, c.only(lambda row: row["new"] < row["dim"])),
    ),
    OfEach(
        "A new client of FedAvg, K = 10, has at most 1.1 times the error of FedRep's",
        c.OWN_THRESHOLD,
        c.ratio(
            "error", BEST, FEDREP, "error of the median new client, divided by that with FedRep, medians over trials"
        ),
        c.at_most(1.1),
        where=from_rank,
    ),
    OfEach(
        "A few samples of a new client are sufficient",
        c.OWN_THRESHOLD,
        c.median("error", "median new client's squared error divided by |phi|^2, median over trials", c.at_most(0.1)),
        where=(c.of(method=BEST), from_rank, c.only(lambda row: row["new"] < row["dim"])),
    ),
    c.Claim(
        "More local updates leave a smaller final distance on noisy samples",
        c.OWN_THRESHOLD,
        c.smaller("end", BEST, "K = 2", "share of paired trials with the smaller final distance"),
        where=noisy,
        setting="K = 10 against K = 2, m = {n_samples}",
    ),
)
