"""FedAvg with several local updates learns the representation, and with one it does not: rates, diversity, new clients.

The source proves it for population losses ``(1/2) ||B w - phi_i||^2`` of a model of two layers that all clients share.
Here n = 40 clients with heads N(0, diag(1, 1, mu^2)) start at a random subspace with ``eta B'B = I`` and w = 0. All
methods have equally many local gradient evaluations, so K = 1 has more rounds. The rivals have K = 1: with the same
step size, 5 times this size, the best one, or a tenth of the clients in each round. In the last rival all clients have
equal heads. `linfed.theory.fedavg_contraction` predicts the curves without a fitted parameter, and FedRep with step
size ``(K - 1) eta^2`` should take the same course. With K = 1 and all clients, and with equal clients, B stays in the
span of its start and of the mean regressor. The dashed line is the smallest distance there.

On fixed samples with noise, new clients fit their heads on the learned representation.

**Deviations**: sizes, distribution of the heads and thresholds are ours. New clients fit exact heads instead of taking
a few gradient steps. The claims follow the abstract, read with all clients in each round; the text of the theorems was
not at hand.

Figures
-------
"" : Subspace distance against local gradient evaluations of a client, for several local steps with predictions (black),
    and for the rivals. Dashed: smallest distance in the span that K = 1 can reach. Lines: median over trials; shaded on
    the left: 10-90 %.
"rates" : Left: fall of the log distance per round against the smallest eigenvalue of the heads' second moment, with its
    prediction; median over trials and 10-90 %. Right: share of runs that end below 1e-4 against the scale of the
    initial B, with 95 % intervals.
"samples" : Fixed samples with noise: subspace distance against rounds, and squared error of new clients against their
    samples. An error of 1 is the error of predicting 0. Lines and markers: median over trials; shaded and bars: 10-90
    %.

References: Collins, Hassani, Mokhtari and Shakkottai 2022, "FedAvg with fine tuning: local updates lead to
representation learning".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.claims.caveats import edge_note
from linfed.figures.style import draw_level, shades
from linfed.plotting.panels import Figures, bars, drawn_from
from linfed.statistics import judge_share, median_interval, median_ratio
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge, judge_identity, judge_smaller

from ._learns import (
    CLOSE,
    PREDICTED,
    OnSamples,
    Population,
    ScaledSubspace,
    draw_rates,
    draw_shares,
    judge_rates,
    recovered,
    rounds_ratio,
    some_panels,
)

SUMMARY = "FedAvg learns the representation by local updates: K steps against one, diversity, scale, new clients"
PICTURES = {"": 1400}
REDUCED = {"scales": {"without": ("distance", "predicted")}}

ABSTRACT = "Collins, Hassani, Mokhtari and Shakkottai 2022, abstract"
THRESHOLD = f"{ABSTRACT}; the number is {OWN_THRESHOLD}"

SEVERAL = {f"K = {steps}": steps for steps in (2, 5, 20)}
FEDREP, ALONE = "FedRep", "LocalOnly"
SAME, LARGE, BEST = "K = 1", "K = 1, 5 times the step", "K = 1, best step"
SAMPLED, EQUAL = "K = 1, a tenth of the clients", "K = 5, equal clients"
RIVALS = (SAME, LARGE, BEST, SAMPLED, EQUAL)
ON_SAMPLES = {"K = 1": 1, "K = 2": 2, "K = 10": 10}


@dataclass(frozen=True, kw_only=True)
class Averaged(Population):
    """FedAvg, or FedRep at the step size of the prediction; `scale` is ``eta B'B`` at the start."""

    method: str = lf.choice((*SEVERAL, FEDREP, SAME, LARGE, BEST, SAMPLED, EQUAL))
    local_steps: int = 1
    step_size: float = 0.1
    scale: float = 1.0
    evaluations: int = 6000
    steps: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0, 2.0, 5.0)  # of K = 1

    def check(self) -> None:
        """Raise if the number of local steps is not the one in the method's name."""
        named = {**SEVERAL, EQUAL: 5, FEDREP: self.local_steps}.get(self.method, 1)
        if self.local_steps != named:
            raise ValueError(f"local_steps = {self.local_steps} must be {named} for method = {self.method!r}")

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.evaluations * self.trials * (len(self.steps) if self.method == BEST else 1)

    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""
        if self.method == FEDREP:
            return lf.FedRep(rank=self.rank, step_size=(self.local_steps - 1) * step**2, init=ScaledSubspace())
        init = ScaledSubspace((self.scale / step) ** 0.5)
        return lf.FedAvg(rank=self.rank, step_size=step, local_steps=self.local_steps, init=init)

    def run(self) -> dict[str, Any]:
        """Return the distances and rates with their predictions."""
        W, step, columns = self.heads(), self.step_size * (5 if self.method == LARGE else 1), dict[str, Any]()
        if self.method == EQUAL:
            W = np.repeat(W[:, :1], self.n_clients, axis=1)
        rounds = self.evaluations // self.local_steps
        if self.method == BEST:
            problem, run = self.world(replace(self, trials=5, seed=self.seed + 1).heads())
            options: dict[str, Any] = {"score": "final", "margin": 0.0, "rounds": rounds, "record_every": rounds}
            tuning = lf.tune([self.algorithm(one) for one in self.steps], problem, **options, **run)
            step, columns = self.steps[tuning.best], {"at_grid_edge": tuning.columns()["at_grid_edge"]}
        C = None
        if self.method not in (FEDREP, SAMPLED):
            C = lf.theory.fedavg_contraction(W, step_size=step, local_steps=self.local_steps)
        found = self.follow(self.algorithm(step), W, rounds, C, 1.0 if self.method != SAMPLED else 0.1)
        at = found["distance"].axes["round"]
        return columns | found | {"evaluated": lf.LabeledArray(at * self.local_steps, round=at), "chosen_step": step}


@dataclass(frozen=True, kw_only=True)
class Sampled(OnSamples):
    """FedAvg with K local steps, FedRep, or local least squares, on fixed samples with noise."""

    method: str = lf.choice((*ON_SAMPLES, FEDREP, ALONE))
    steps: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8)
    new_samples: tuple[int, ...] = (3, 5, 10, 20, 40)

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return 20.0 * self.rounds * self.trials * ON_SAMPLES.get(self.method, 1)

    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""
        if self.method == ALONE:
            return lf.LocalOnly()
        if self.method == FEDREP:
            return lf.FedRep(rank=self.rank, step_size=step, init=ScaledSubspace())
        steps, init = ON_SAMPLES[self.method], ScaledSubspace(step**-0.5)
        return lf.FedAvg(rank=self.rank, step_size=step, local_steps=steps, init=init)


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return runs of all methods, of three K at several diversities, of several scales, and on fixed samples."""
    several = list(SEVERAL.items())
    pairs = [*several, (FEDREP, 5), *((name, 5 if name == EQUAL else 1) for name in RIVALS)]
    base, samples = Averaged(method=SAME), Sampled(method=FEDREP)
    diversities: tuple[float, ...] = (1.0, 0.7, 0.5)
    many = replace(base, n_clients=100, dim=10, trials=10)
    if quick:
        few: dict[str, Any] = {"n_clients": 20, "dim": 6, "rank": 2, "trials": 6}
        base, samples = replace(base, step_size=0.3, evaluations=800, steps=(0.3, 1.0), **few), replace(samples, **few)
        many, several, diversities = replace(base, n_clients=30), several[:2], (1.0, 0.7)
        samples = replace(samples, rounds=60, steps=(0.2, 0.4), tuning_trials=2, new_samples=(2, 5))
    rates = []
    for mu, (name, steps) in itertools.product(diversities, several):
        rounds = int((30 if quick else 48) / (base.step_size**2 * (steps - 1) * mu**2))
        rates.append(replace(many, method=name, local_steps=steps, diversity=mu, evaluations=rounds * steps))
    middle = replace(base, method="K = 5", local_steps=5, evaluations=600 if quick else 4000)
    scales = lf.grid(
        middle if quick else replace(middle, trials=40),
        scale=(0.01, 1.0) if quick else (0.01, 0.03, 0.1, 0.3, 1.0, 1.5),
    )
    alone = replace(samples, method=ALONE, rounds=1, steps=(1.0,))
    methods = [name for name in (*ON_SAMPLES, FEDREP) if not quick or name != "K = 2"]
    return {
        "population": [replace(base, method=name, local_steps=steps) for name, steps in pairs],
        "rates": rates,
        "scales": scales,
        "samples": [*lf.grid(samples, method=methods), alone],
    }


LOOKS = shades(SEVERAL) | {
    SAME: ("#CC6677", "v", "-."),
    LARGE: ("#44AA99", "s", "--"),
    BEST: ("#AA4499", "D", ":"),
    SAMPLED: ("#332288", "P", "-"),
    EQUAL: ("#999933", "d", "--"),
    "K = 10": ("#44AA99", "s", "-"),
}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances, the rates and scales, and the fixed samples."""
    table = tables["population"].assign(
        panel=lambda row: "one local step, or equal clients" if row["method"] in RIVALS else "several local steps"
    )
    with lf.panels(table, column="panel", title="{}") as sheet:
        for ax, part in sheet:
            names = {FEDREP: r"FedRep, step $(K - 1)\,\eta^2$, $K = 5$"}
            one = SAME in part.unique("method")
            lf.plot_curves(ax, part, "evaluated", "distance", looks=LOOKS, labels=names, band=not one)
            for row in part.select(method=[name for name in SEVERAL if name in part.unique("method")]):
                middle = np.median(row["predicted"], axis=0)
                text = "predicted" if row["method"] == "K = 2" else "_predicted"
                ax.plot(row["evaluated"], middle, color="black", linewidth=0.7, zorder=3, label=text)
            if one:
                draw_level(ax, float(np.median(part.select(method=SAME)["floor"])), label="smallest distance of K = 1")
                ax.set(yscale="linear", ylim=(0.95, 1.002))
            else:
                ax.set(yscale="log", ylim=(1e-6, 2))
        sheet.label("local gradient evaluations", "distance from B*")
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials", ncols=3)
    figure, (left, right) = some_panels(2)
    rates, scales = tables["rates"], tables["scales"]
    draw_rates(left, rates, LOOKS)
    draw_shares(right, scales, "scale", LOOKS["K = 5"], "share of runs, K = 5")
    right.set(xscale="log", xlabel=r"scale of the initial B: $\eta B^\top B$", ylim=(-0.04, 1.04))
    right.set_ylabel(f"share of runs below {CLOSE:g}")
    figure.legend(loc="outside upper center", ncols=5)
    second = drawn_from(figure, lf.Table([*rates.rows, *scales.rows]))
    return {"": sheet.figure, "rates": second, "samples": draw_samples(tables["samples"])}


def draw_samples(table: lf.Table) -> Any:
    """Draw the distances against rounds, and the errors of new clients against their samples."""
    figure, (left, right) = some_panels(2)
    trained = table.select(method=[name for name in table.unique("method") if name != ALONE])
    lf.plot_curves(left, trained, "round", "distance", looks=LOOKS)
    left.set(xlabel="round", ylabel="distance from B*")
    for row in table:
        name = row["method"]
        text = "Local only" if name == ALONE else f"_{name}"
        bars(right, row["new"], row["error"], LOOKS.get(name, name), label=text)
    right.set(xscale="log", yscale="log", xlabel="samples of a new client", ylabel="squared error, relative")
    right.set_xticks(table["new"], [str(size) for size in table["new"]])
    right.xaxis.minorticks_off()
    figure.legend(loc="outside upper center", ncols=5)
    return drawn_from(figure, table)


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge which runs recover B*, the predictions, the influence of K, diversity and scale, and new clients."""
    found = [*recovery(tables["population"])]
    found += judge_rates(tables["rates"], f"{ABSTRACT}; the comparison is ours")
    found += [
        judge_share(
            recovered(row),
            0.5,
            claim="Most runs recover B* from every scale of the initial B",
            setting=f"K = 5, eta B'B = {row['scale']:g}",
            statistic=f"share of trials that end below {CLOSE:g}",
            source=OWN_THRESHOLD,
        )
        for row in tables["scales"]
    ]
    return [*found, *on_samples(tables["samples"])]


NEVER = {
    SAME: ("FedAvg with one local update does not recover B*", THRESHOLD),
    LARGE: ("FedAvg with one local update does not recover B*", THRESHOLD),
    BEST: ("FedAvg with one local update does not recover B*", THRESHOLD),
    SAMPLED: ("FedAvg with one local update of a tenth of the clients does not recover B*", OWN_THRESHOLD),
    EQUAL: ("Without diversity, FedAvg does not recover B*", OWN_PREDICTION),
}


def recovery(table: lf.Table) -> Iterator[Finding]:
    """Judge which methods come close to B* with equally many gradient evaluations, and the span of the others."""
    rows = {row["method"]: row for row in table}
    where = f"n = {table.rows[0]['n_clients']}, {table.rows[0]['evaluations']:,} gradient evaluations"
    for name, row in rows.items():
        fields: dict[str, Any] = {
            "setting": f"{name}, {where}",
            "statistic": f"share of trials that end below {CLOSE:g}",
        }
        if name in SEVERAL:
            text = "FedAvg with several local updates recovers B*"
            yield judge_share(recovered(row), 0.5, claim=text, source=THRESHOLD, **fields)
        if name in NEVER:
            text, source = NEVER[name]
            fields |= {"statistic": f"share of trials that do not end below {CLOSE:g}", "note": edge_note(row)}
            yield judge_share(~recovered(row), 0.5, claim=text, source=source, **fields)
        if name in NEVER and name != SAMPLED:
            yield judge_identity(
                row["floor"][:, None] - row["distance"],
                tolerance=1e-6,
                claim="B stays in the span of its start and the mean regressor, which bounds its distance below",
                setting=f"{name}, {where}",
                statistic="largest excess of the smallest distance in this span over the distance",
                source=OWN_PREDICTION,
            )
    for few, more in itertools.pairwise(SEVERAL):
        for what in ("rounds", "gradient evaluations"):
            counts = [rows[k]["reached"] * (1 if what == "rounds" else SEVERAL[k]) for k in (more, few)]
            yield judge_smaller(
                *counts,
                claim=f"More local updates need fewer {what}",
                setting=f"{more} against {few}, {where}",
                statistic=f"share of paired trials with fewer {what} to distance {CLOSE:g}",
                source=OWN_PREDICTION,
            )
    yield judge(
        rounds_ratio(rows["K = 5"]["reached"], rows[FEDREP]["reached"]),
        claim="FedAvg takes the course of FedRep with step size (K - 1) eta^2",
        setting=f"K = 5, {where}",
        statistic=f"rounds to distance {CLOSE:g}, divided by FedRep's, median over trials",
        source=PREDICTED,
        claimed_low=0.9,
        claimed_high=1.1,
    )


def on_samples(table: lf.Table) -> Iterator[Finding]:
    """Judge new clients of FedAvg against one local update, FedRep and no federation, and the distance K = 2 leaves."""
    rows = {row["method"]: row for row in table}
    best = max((name for name in rows if name in ON_SAMPLES), key=ON_SAMPLES.__getitem__)
    mine, names = rows[best], {"K = 1": "with one local update", ALONE: "without federation"}
    for place, m in enumerate(mine["new"].tolist()):
        where = f"m = {mine['n_samples']}, m_new = {m}"
        error = {name: row["error"][:, place] for name, row in rows.items()}
        if m < mine["rank"]:
            continue
        for rival in (name for name in names if name == "K = 1" or m < mine["dim"]):
            yield judge_smaller(
                error[best],
                error[rival],
                claim=f"A new client has a smaller error with FedAvg, {best}, than {names[rival]}",
                setting=where,
                statistic="share of paired trials in which the median new client's error is smaller",
                source=ABSTRACT if rival == "K = 1" else OWN_THRESHOLD,
                note=edge_note(table.select(method=[best, rival])),
            )
        yield judge(
            median_ratio(error[best], error[FEDREP]),
            claim=f"A new client of FedAvg, {best}, has at most 1.1 times the error of FedRep's",
            setting=where,
            statistic="error of the median new client, divided by that with FedRep, medians over trials",
            source=OWN_THRESHOLD,
            claimed_high=1.1,
        )
        if m > mine["rank"] + 1:
            yield judge(
                median_interval(error[best]),
                claim="A few samples of a new client are sufficient",
                setting=where,
                statistic="median new client's squared error divided by |phi|^2, median over trials",
                source=THRESHOLD,
                claimed_high=0.1,
            )
    if "K = 2" in rows and best != "K = 2":
        yield judge_smaller(
            mine["end"],
            rows["K = 2"]["end"],
            claim="More local updates leave a smaller final distance on noisy samples",
            setting=f"{best} against K = 2, m = {mine['n_samples']}",
            statistic="share of paired trials with the smaller final distance",
            source=OWN_THRESHOLD,
        )
