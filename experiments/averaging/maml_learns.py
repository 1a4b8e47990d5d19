"""MAML and ANIL recover the representation exponentially fast, and the average loss does not: diversity, mean heads.

The source proves it for linear models of two layers. Its simulations draw heads from N(0, diag(1, .., 1, mu^2)). Here n
= 40 clients have population losses ``(1/2) ||B w - phi_i||^2`` and take part in every round. B starts at a random
subspace with ``alpha B'B = I``, and w at 0. The methods are ANIL and MAML, each exact and of first order. The rivals
minimise the average loss (`linfed.FedAvg` with one local step). They have the same step size, the best one, 10 times
the rounds, or a tenth of the clients in each round. `linfed.theory.meta_contraction` predicts all four curves
without a fitted parameter, and FedRep with step size ``alpha beta`` should take the same course.

The second figure also shifts all heads by one vector, from a random start and from distance 0.5. The last figure has
fixed samples with noise: both steps use all of them, or each step uses one half. The step sizes are fixed there. They
hardly change the limits of ANIL, because ``(B, w, alpha)`` and ``(c B, w/c, alpha/c^2)`` describe equal predictors of
the clients.

**Deviations**: all sizes, step sizes and thresholds are ours, except for the distribution of the heads. The clients are
fixed, and all take part in each round.

Figures
-------
"" : Subspace distance against rounds: MAML and ANIL with their common prediction (black), and the average loss with the
    smallest distance in the span that it can reach (dashed). Lines: median over trials; shaded on the left: 10-90 %.
"rates" : Left: fall of the log distance per round against the smallest eigenvalue of the heads' second moment, with its
    prediction; median over trials and 10-90 %. Other panels: share of runs that end below 1e-4 against the shift of all
    heads, with 95 % intervals.
"samples" : Fixed samples with noise: final distance against the samples of each client. Markers: median over trials;
    bars: 10-90 %. Diverged runs count as distance 1.

References: Collins, Mokhtari, Oh and Shakkottai 2022, "MAML and ANIL provably learn representations".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.claims.caveats import diverged_note, edge_note
from linfed.figures.style import draw_level
from linfed.plotting.panels import Figures, bars, drawn_from
from linfed.statistics import judge_share, median_interval, median_ratio
from linfed.statistics.findings import (
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    join_notes,
    judge,
    judge_identity,
    judge_smaller,
)

from ._learns import (
    CLOSE,
    PREDICTED,
    OnSamples,
    Population,
    ScaledSubspace,
    draw_rates,
    draw_shares,
    fall,
    judge_rates,
    recovered,
    rounds_ratio,
    some_panels,
)

SUMMARY = "MAML and ANIL recover B* exponentially fast, the average loss does not: diversity, shifted heads, samples"
PICTURES = {"rates": 1400}
REDUCED = {"samples": {"without": ("distance",)}, "shifts": {"without": ("distance", "predicted")}}

PAPER = "Collins, Mokhtari, Oh and Shakkottai 2022"
THRESHOLD = f"{PAPER}, abstract and Figure 1; the number is {OWN_THRESHOLD}"

META: dict[str, tuple[type[lf.ANIL], bool]] = {
    "ANIL, first order": (lf.ANIL, False),
    "ANIL, exact": (lf.ANIL, True),
    "MAML, first order": (lf.MAML, False),
    "MAML, exact": (lf.MAML, True),
}
AVERAGE, BEST, LONG = "average loss", "average loss, best step", "average loss, 10 times the rounds"
DRAWN = "average loss, a tenth of the clients"
RIVALS = (AVERAGE, BEST, LONG, DRAWN)
FEDREP, SMALL = "FedRep", "MAML, first order, a tenth of the step"
BOTH = {"same": "the same samples for both steps", "split": "half of the samples for each step"}
RANDOM, NEAR = "random start", "start at distance 0.5"


@dataclass(frozen=True, kw_only=True)
class Meta(Population):
    """One method at population losses; alpha is the clients' step size, and beta the server's."""

    method: str = lf.choice((*META, AVERAGE, BEST, LONG, DRAWN, FEDREP, SMALL))
    alpha: float = 0.2
    beta: float = 0.2
    rounds: int = 900
    start: str = lf.choice((RANDOM, NEAR), RANDOM)
    steps: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6)  # of the average loss

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.rounds * self.trials * (10 if self.method in (LONG, SMALL) else 1)

    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size of the server."""
        length = 1.0 if self.method == FEDREP else self.alpha**-0.5
        init: Any = self.near(0.5) * length if self.start == NEAR else ScaledSubspace(length)
        if self.method == FEDREP:
            return lf.FedRep(rank=self.rank, step_size=self.alpha * step, init=init)
        if self.method in RIVALS:
            return lf.FedAvg(rank=self.rank, step_size=step, init=init)
        kind, hessian = META[self.method.removesuffix(", a tenth of the step")]
        sizes = {"step_size": step, "adaptation_step_size": self.alpha}
        return kind(rank=self.rank, hessian=hessian, init=init, **sizes)

    def near(self, distance: float) -> Array:
        """Return initial B (trials, d, k) at a distance from B*: all principal angles have this sine."""
        rng, k = np.random.default_rng((self.seed, self.dim)), self.rank
        inside = np.linalg.qr(rng.standard_normal((self.trials, k, k)))[0]
        outside = np.linalg.qr(rng.standard_normal((self.trials, self.dim - k, k)))[0]
        return np.concatenate([np.sqrt(1 - distance**2) * inside, distance * outside], axis=1)

    def run(self) -> dict[str, Any]:
        """Return the distances and rates with their predictions."""
        W, step, rounds, columns = self.heads(), self.beta, self.rounds, dict[str, Any]()
        if self.method in (LONG, SMALL):
            rounds *= 10
        if self.method == SMALL:
            step /= 10
        if self.method == BEST:
            problem, run = self.world(replace(self, trials=5, seed=self.seed + 1).heads())
            options: dict[str, Any] = {"score": "final", "margin": 0.0, "rounds": rounds, "record_every": rounds}
            tuning = lf.tune([self.algorithm(one) for one in self.steps], problem, **options, **run)
            step, columns = self.steps[tuning.best], {"at_grid_edge": tuning.columns()["at_grid_edge"]}
        C = None
        if self.method in META:
            C = lf.theory.meta_contraction(W, step_size=step, adaptation_step_size=self.alpha)
        found = self.follow(self.algorithm(step), W, rounds, C, 0.1 if self.method == DRAWN else 1.0)
        at, curve = found["distance"].axes["round"], found["distance"].values
        levels = {"early": fall(at, curve, 1e-3, 1e-6), "late": fall(at, curve, 1e-6, 1e-9)}
        return columns | found | levels | {"chosen_step": step}


@dataclass(frozen=True, kw_only=True)
class Sampled(OnSamples):
    """One method on fixed samples with noise; both of its steps use all of them, or each step uses one half."""

    method: str = lf.choice((*META, AVERAGE, FEDREP))
    batches: str = lf.choice(("same", "split"), "same")
    alpha: float = 0.1
    rounds: int = 600
    steps: tuple[float, ...] = (0.2,)

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.rounds * self.n_samples * (10.0 if self.batches == "split" else 1.0)

    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""
        if self.method == FEDREP:
            return lf.FedRep(rank=self.rank, step_size=step, init=ScaledSubspace())
        init: Any = ScaledSubspace(self.alpha**-0.5)
        if self.method == AVERAGE:
            return lf.FedAvg(rank=self.rank, step_size=step, init=init)
        kind, hessian = META[self.method]
        sizes: dict[str, Any] = {"step_size": step, "adaptation_step_size": self.alpha, "batches": self.batches}
        return kind(rank=self.rank, hessian=hessian, init=init, **sizes)


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return runs of all methods, at several diversities, with shifted heads, and on fixed samples."""
    base, samples = Meta(method=FEDREP), Sampled(method=FEDREP)
    few: dict[str, Any] = {"n_clients": 30, "dim": 6, "rank": 2, "trials": 6}
    many = replace(base, n_clients=100, dim=10, trials=10)
    if quick:
        base, samples = (
            replace(base, alpha=0.3, beta=0.3, rounds=300, steps=(0.1, 0.3), **few),
            replace(samples, rounds=60, **few),
        )
        many = base
    mus: tuple[float, ...] = (1.0, 0.7) if quick else (1.0, 0.7, 0.5)
    names = [name for name in (*META, *RIVALS, FEDREP) if not quick or name != LONG]
    shifts = lf.grid(
        base if quick else replace(many, trials=30),
        start=(RANDOM, NEAR),
        method=tuple(META),
        shift=(2.0,) if quick else (0.0, 0.5, 1.0, 2.0),
    )
    last = [one for one in shifts if (one.start, one.method) == (RANDOM, "MAML, first order")][-2:]
    counts, split = ((10, 20), ("ANIL, first order",)) if quick else ((10, 20, 40), tuple(META)[:2])
    methods = (*META, AVERAGE, FEDREP)
    return {
        "population": lf.grid(base, method=names),
        "rates": [
            replace(many, method=name, diversity=mu, rounds=int(40 / (base.alpha * base.beta * mu**2)))
            for mu in mus
            for name in (tuple(META)[::3] if quick else META)
        ],
        "shifts": [*shifts, *(replace(one, method=SMALL) for one in last if not quick)],
        "samples": [
            *lf.grid(samples, n_samples=counts, method=methods),
            *lf.grid(replace(samples, batches="split"), n_samples=counts, method=split),
        ],
    }


LOOKS: dict[str, Any] = {
    "ANIL, first order": ("#332288", "o", "-"),
    "ANIL, exact": ("#88CCEE", "s", "--"),
    "MAML, first order": ("#CC6677", "^", "-."),
    "MAML, exact": ("#AA4499", "D", ":"),
    SMALL: ("#661100", "v", ":"),
    AVERAGE: ("#999933", "v", "--"),
    BEST: ("#44AA99", "d", "-."),
    LONG: ("#888888", "P", ":"),
    DRAWN: ("#117733", "X", "-"),
    FEDREP: ("#0072B2", "o", "-"),
}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances, the rates, the shares of runs with shifted heads, and the fixed samples."""
    table = tables["population"]
    named = table.assign(panel=lambda row: "average loss" if row["method"] in RIVALS else "MAML and ANIL")
    with lf.panels(named, column="panel", title="{}") as sheet:
        for ax, part in sheet:
            labels = {FEDREP: r"FedRep, step $\alpha\beta$"}
            row = part.rows[0]
            lf.plot_curves(ax, part, "round", "distance", looks=LOOKS, labels=labels, band=row["method"] not in RIVALS)
            if row["method"] in RIVALS:
                draw_level(ax, float(np.median(row["floor"])), label="smallest distance in the reached span")
                ax.set(xscale="log", xlim=(1, None), yscale="linear", ylim=(0.95, 1.002))
            else:
                law = np.median(part.select(method=next(iter(META)))["predicted"], axis=0)
                ax.plot(part["round"], law, color="black", linewidth=0.7, zorder=3, label="predicted")
                ax.set(yscale="log", ylim=(1e-8, 2))
        sheet.label("round", "distance from B*")
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials", ncols=3)
    figures = {"": sheet.figure}
    figures["rates"] = draw_rates_and_shifts(tables["rates"], tables["shifts"])
    with lf.panels(tables["samples"], column="batches", title=BOTH.get, sharey=True) as third:
        for ax, part in third:
            for name, rows in part.groupby("method"):
                x, values = np.array([row["n_samples"] for row in rows]), np.stack([row["end"] for row in rows], axis=1)
                bars(ax, x, np.minimum(values, 1.0), LOOKS[name], label=name)
            ax.set(xscale="log", yscale="log")
            ax.set_xticks(x, [str(size) for size in x])
            ax.xaxis.minorticks_off()
        third.label("samples of a client", "final distance from B*")
        third.legend(ncols=3)
    return figures | {"samples": third.figure}


def draw_rates_and_shifts(rates: lf.Table, shifts: lf.Table) -> Any:
    """Draw the rates against the heads' second moment, and the shares of runs against the shift, for both starts."""
    figure, axes = some_panels(1 + len(shifts.unique("start")))
    draw_rates(axes[0], rates, LOOKS)
    for ax, (start, part) in zip(axes[1:], shifts.groupby("start"), strict=True):
        for name, rows in part.groupby("method"):
            draw_shares(ax, rows, "shift", LOOKS[name], name if name == SMALL else f"_{name}")
        ax.set(title=start, xlabel="shift of all heads", ylim=(-0.04, 1.04))
    axes[1].set_ylabel(f"share of runs below {CLOSE:g}")
    figure.legend(loc="outside upper center", ncols=3)
    return drawn_from(figure, lf.Table([*rates.rows, *shifts.rows]))


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge which methods recover B*, how fast, with which heads and starts, and on which samples."""
    return [
        *recovery(tables["population"]),
        *exponential(tables["rates"]),
        *judge_rates(tables["rates"], f"{PAPER}, abstract; the comparison is ours"),
        *shifted(tables["shifts"]),
        *on_samples(tables["samples"]),
    ]


def recovery(table: lf.Table) -> Iterator[Finding]:
    """Judge which methods come close to B*, the span of the average loss, and the course of FedRep."""
    fields: dict[str, Any] = {"source": THRESHOLD, "statistic": f"share of trials that end below {CLOSE:g}"}
    for row in table.select(method=[*META]):
        where, note = f"{row['method']}, {row['rounds']} rounds", diverged_note(row, "this step")
        yield judge_share(recovered(row), 0.5, claim="ANIL and MAML recover B*", setting=where, note=note, **fields)
    fields["statistic"] = f"share of trials that do not end below {CLOSE:g}"
    for row in table.select(method=[*RIVALS]):
        text, where = "Minimising the average loss does not recover B*", row["method"]
        yield judge_share(~recovered(row), 0.5, claim=text, setting=where, note=edge_note(row), **fields)
        if where == DRAWN:
            continue
        yield judge_identity(
            row["floor"][:, None] - row["distance"],
            tolerance=1e-6,
            claim="B stays in the span of its start and the mean regressor, which bounds its distance below",
            setting=where,
            statistic="largest excess of the smallest distance in this span over the distance",
            source=OWN_PREDICTION,
        )
    fedrep = table.select(method=FEDREP)["reached"]
    for row in table.select(method=[*META]):
        yield judge(
            rounds_ratio(row["reached"], fedrep),
            claim="The method takes the course of FedRep with step size alpha beta",
            setting=row["method"],
            statistic=f"rounds to distance {CLOSE:g}, divided by FedRep's, median over trials",
            source=PREDICTED,
            claimed_low=0.9,
            claimed_high=1.1,
        )


def exponential(table: lf.Table) -> Iterator[Finding]:
    """Judge whether the logarithm of the distance falls linearly in the rounds."""
    for row in table:
        yield judge(
            median_interval(row["late"] / row["early"]),
            claim="The distance falls exponentially fast",
            setting=f"{row['method']}, mu = {row['diversity']:g}",
            statistic="fall of the log distance per round from 1e-6 to 1e-9, divided by that from 1e-3 to 1e-6",
            source=THRESHOLD,
            claimed_low=0.9,
            claimed_high=1.1,
            note=diverged_note(row, "this step"),
        )


def shifted(table: lf.Table) -> Iterator[Finding]:
    """Judge whether most runs recover B* if all heads are shifted, from both starts."""
    for row in table:
        text, comma, step = row["method"].partition(", a tenth")
        yield judge_share(
            recovered(row),
            0.5,
            claim=f"Most runs of {text} recover B* for every mean of the heads",
            setting=f"{row['start']}, shift {row['shift']:g}{comma}{step}",
            statistic=f"share of trials that end below {CLOSE:g}",
            source=OWN_THRESHOLD,
            note=diverged_note(row, "this step"),
        )


def on_samples(table: lf.Table) -> Iterator[Finding]:
    """Judge the average loss, the same samples against split ones, and the methods against FedRep."""
    rows = {(row["method"], row["batches"], row["n_samples"]): row for row in table}
    counts = sorted(table.unique("n_samples"))
    for (name, batches, m), row in rows.items():
        note = diverged_note(row, "this step")
        if name in META and batches == "same":
            yield judge_smaller(
                row["end"],
                rows[AVERAGE, "same", m]["end"],
                claim="On noisy samples, the method ends closer to B* than the average loss",
                setting=f"{name}, m = {m}",
                statistic="share of paired trials with the smaller final distance",
                source=f"{PAPER}; the comparison is ours",
                note=note,
            )
            yield judge(
                median_ratio(row["end"], rows[FEDREP, "same", m]["end"]),
                claim="On noisy samples, the method ends within 1.2 times FedRep's distance",
                setting=f"{name}, m = {m}",
                statistic="final distance divided by FedRep's, medians over trials",
                source=OWN_THRESHOLD,
                claimed_high=1.2,
                note=note,
            )
        if batches != "split":
            continue
        yield judge_smaller(
            rows[name, "same", m]["end"],
            row["end"],
            claim="One data set for both steps leaves a smaller distance than its two halves",
            setting=f"{name}, m = {m}",
            statistic="share of paired trials with the smaller final distance",
            source=OWN_THRESHOLD,
            note=join_notes(note, diverged_note(rows[name, "same", m], "this step")),
        )
        if 2 * m in counts:
            yield judge(
                median_ratio(rows[name, "split", 2 * m]["end"], rows[name, "same", m]["end"]),
                claim="Splitting the samples costs half of them",
                setting=f"{name}, split m = {2 * m} against the same m = {m}",
                statistic="final distance divided by the one of half as many, unsplit samples, medians over trials",
                source=OWN_THRESHOLD,
                claimed_low=0.8,
                claimed_high=1.25,
            )
