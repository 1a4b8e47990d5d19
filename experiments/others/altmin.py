"""Alternating minimisation: distance against rounds, floats, clients and noise, with gradient steps and the moments.

Each client fits a head, and the server solves the least squares for B exactly (Thekumparampil et al., "MLLAM").
`linfed.AltMin` runs on the same samples in both steps, or on halves, from the method of moments. There are two parts:

- distance against rounds and against the floats of a client, with FedRep (tuned step) and AltGDmin (published step);
- final distance against clients and noise, with the moments, local averages, FedRep, and the minimum of the empirical
  risk that L-BFGS finds. The prediction for this minimum is `linfed.theory.fixed_sample_floor`.

The source states that the error is nearly optimal for a constant k with few samples per task, and that the errors of
earlier results with few samples are larger. The experiment `mllam-samples` has the number of samples. On fixed
samples, clients may also send their normal equations once, and the server computes the rest: the simplest competitor in
floats.

**Deviations**: the sizes are ours. The source draws other samples in each half of a round. One curve of the first part
has m new samples in each round. Heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``. We know the source's
results from its abstract. The rate ``sigma sqrt(d/(n m))`` is the known minimax rate for these heads.

Figures
-------
"" : Distance from B* against rounds and against floats, without and with noise. Lines: median over trials; shaded:
    10-90 %. Dashed: floats of the normal equations, sent once.
"ends" : Final distance against clients for three m, and against the noise. Markers: median over trials; bars: 10-90 %.
    Dotted: prediction for the minimum of the empirical risk.

References: Thekumparampil, Jain, Netrapalli and Oh 2021, "Sample efficient linear meta-learning by alternating
minimization"; Nayer and Vaswani 2023; Du, Hu, Kakade, Lee and Lei 2021.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.figures.style import KINDS, LOOKS, Look
from linfed.plotting.panels import Figures, bars
from linfed.statistics import (
    fit_exponent,
    judge_exponent,
    judge_one_constant,
    judge_share,
    median_interval,
    median_ratio,
)
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import largest_factor, largest_of

SUMMARY = "alternating minimisation (MLLAM): distance against rounds, floats, clients and noise, with FedRep's"
PICTURES = {"": 1400, "ends": 1400}

ALTMIN, HALVES, FRESH = "AltMin", "AltMin, halves", "AltMin, fresh samples"
FEDREP, ALTGDMIN, MOMENTS = "FedRep", "AltGDmin", "moments"
AVERAGES, RISK = "local averages", "empirical risk"
LOOK: dict[str, Look] = {FEDREP: LOOKS["FedRep"]}
LOOK |= dict(zip((MOMENTS, AVERAGES, RISK, ALTMIN, HALVES, FRESH, ALTGDMIN), KINDS, strict=False))
COURSES = (ALTMIN, HALVES, FRESH, FEDREP, ALTGDMIN)
ENDS = (MOMENTS, AVERAGES, HALVES, FEDREP, ALTMIN, RISK)

CLOSE, NEAR = 1e-6, 1.05
"""Distance that counts as reached without noise, and factor within which distances count as equal."""
SINE, SMALL_NOISE, SAME = 0.37, 0.3, 1e-3
"""Largest sine at which the prediction is claimed, largest small noise, and distance below which subspaces coincide."""
OPTIMAL = "Thekumparampil, Jain, Netrapalli and Oh 2021, abstract: nearly optimal error; the {} is " + OWN_THRESHOLD


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes of a problem, and the methods by name."""

    n_clients: int = 100
    dim: int = 40
    rank: int = 3
    noise_std: float = 0.0
    rounds: int = 60
    trials: int = 20
    seed: int = 0

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.n_clients * self.dim**2

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The problem: heads of equal length with second moment I."""
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank, "noise_std": self.noise_std}
        return lf.SharedRepresentation(**sizes, condition_number=1.0)

    def plain_run(self, name: str, n_samples: int) -> lf.Run:
        """Return a run of a method; FedRep's step size follows from the largest eigenvalue near B* without noise."""
        k, once, spare = self.rank, {"rounds": 1}, max(n_samples - self.rank, 1)
        largest = (1.0 + ((self.dim - k) * k / (self.n_clients * spare)) ** 0.5) ** 2
        algorithms: dict[str, tuple[lf.Algorithm, dict[str, int]]] = {
            ALTMIN: (lf.AltMin(rank=k), {}),
            HALVES: (lf.AltMin(rank=k, split=True), {}),
            FRESH: (lf.AltMin(rank=k, split=True), {}),
            FEDREP: (lf.FedRep(rank=k, step_size=1.2 * n_samples / spare / largest), {"rounds": 4 * self.rounds}),
            ALTGDMIN: (lf.AltGDmin(rank=k, init="moments"), {"rounds": 4 * self.rounds}),
            MOMENTS: (lf.MethodOfMoments(rank=k), once),
            AVERAGES: (lf.LocalGram(rank=k), once),
            RISK: (lf.BurerMonteiro(rank=k, iterations=400, tolerance=1e-8), once),
        }
        algorithm, changes = algorithms[name]
        data = (lf.FreshSamples if name == FRESH else lf.FixedSamples)(n_samples)
        options: dict[str, Any] = {"rounds": self.rounds, "trials": self.trials, "seed": self.seed} | changes
        return lf.Run(algorithm=algorithm, problem=self.problem, data=data, metrics=["subspace_distance"], **options)


@dataclass(frozen=True, kw_only=True)
class Course(Setting):
    """Distance of one method against rounds; FedRep's step size is tuned on separate trials."""

    method: str = lf.choice((ALTMIN, HALVES, FRESH, FEDREP, ALTGDMIN, MOMENTS, AVERAGES, RISK))
    n_samples: int = 15
    steps: tuple[float, ...] = (0.5, 0.7, 1.0, 1.2, 1.4, 1.7, 2.0, 2.4)

    def run(self) -> dict[str, Any]:
        """Return the distance and the floats of one client against rounds."""
        run = self.plain_run(self.method, self.n_samples)
        if self.method == FEDREP:
            grid = {"step_size": self.steps}
            run = replace(run, algorithm=lf.Tuned(base=run.algorithm, grid=grid, trials=self.trials // 2))
        result = run.simulate()
        return {
            "distance": lf.LabeledArray(result.metrics["subspace_distance"], round=result.rounds),
            "floats": lf.LabeledArray(result.floats_sent / result.participants, round=result.rounds),
            "step_size": float(getattr(result.algorithm, "step_size", None) or np.nan),
        }


@dataclass(frozen=True, kw_only=True)
class End(Setting):
    """Final distances of the methods on the same data sets."""

    panel: str = lf.choice(("n", "sigma"), label=True)
    n_samples: int
    noise_std: float = 1.0
    most_clients: int = 400

    def run(self) -> dict[str, Any]:
        """Return the final distances, the prediction, and the distances between the limits and L-BFGS's minimum."""
        names = [ALTMIN, HALVES, FEDREP, MOMENTS, AVERAGES, *([RISK] if self.n_clients <= self.most_clients else [])]
        found = {name: self.plain_run(name, self.n_samples).simulate() for name in names}
        none = np.full(self.trials, np.nan)
        row: dict[str, Any] = {RISK: none}
        row |= {name: result.metrics["subspace_distance"][:, -1] for name, result in found.items()}
        for name in (ALTMIN, FEDREP):
            known = RISK in found
            row[f"{name} apart"] = lf.subspace_distance(found[name].final.B, found[RISK].final.B) if known else none
        return row | {"law": none if self.n_samples < self.rank + 2 else self.predicted()}

    def predicted(self) -> Array:
        """Return the predicted distance of the minimum of the empirical risk."""
        W = self.problem.truth(self.seed, range(self.trials)).W
        assert W is not None
        sizes: dict[str, Any] = {"dim": self.dim, "n_samples": self.n_samples, "noise_std": self.noise_std}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # beyond the range of the prediction
            return lf.theory.fixed_sample_floor(W, **sizes).distance


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the runs of both parts; quick: small sizes and few trials."""
    course, end = Course(method=ALTMIN), End(panel="n", n_samples=12)
    if quick:
        course = replace(course, n_clients=50, dim=20, rank=2, rounds=20, trials=6, steps=(0.7, 1.0, 1.4))
        end = replace(end, dim=16, rank=2, rounds=12, trials=8)
        ends = lf.grid(end, n_clients=(50, 200)) + lf.grid(replace(end, panel="sigma"), noise_std=(0.1, 0.3))
    else:
        ends = lf.grid(end, n_samples=(6, 12, 24), n_clients=(25, 50, 100, 200, 400, 800))
        ends += lf.grid(replace(end, panel="sigma", n_clients=200), noise_std=(0.03, 0.1, 0.3, 1.0, 2.0))
    return {"curves": lf.grid(course, noise_std=(0.0, 1.0), method=COURSES), "ends": ends}


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances against rounds and floats, and the final distances."""
    return {"": draw_courses(tables["curves"]), "ends": draw_ends(tables["ends"])}


def draw_courses(table: lf.Table) -> Any:
    """Draw the distance against rounds, and against the floats of one client."""
    with lf.panels(table, column="noise_std", row=2, title="noise std {:g}", height=4.6) as sheet:
        for line, x in enumerate(("round", "floats")):
            for ax, part in sheet.row(line):
                rows = dict(part.groupby("method"))
                lf.plot_curves(ax, part, x, "distance", looks=LOOK, at=slice(line, None))
                end = float(np.median(rows[ALTMIN]["distance"][:, -1]))
                ax.set(ylim=(1e-9 if end < CLOSE else 0.5 * end, 1.5))
                if x == "round":
                    ax.set(xlim=(0, 1.5 * rows[ALTMIN]["rounds"]), xlabel="round")
                else:
                    ax.set(xscale="log", xlabel="floats that a client sends and receives")
                    once = equations(rows[ALTMIN])
                    ax.axvline(once, color="0.35", linewidth=0.8, linestyle="--", label="normal equations, once")
        for ax in sheet.axes[:, 0]:
            ax.set_ylabel("distance from B*")
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials", ncols=3)
    return sheet.figure


def draw_ends(table: lf.Table) -> Any:
    """Draw the final distances against clients for each m, and against the noise."""
    table = table.assign(
        shown=lambda row: f"m = {row['n_samples']}" + f", n = {row['n_clients']}" * (row["panel"] != "n")
    )
    with lf.panels(table, column="shown", title="{}", height=2.9, sharey=True) as sheet:
        for ax, part in sheet:
            field = "n_clients" if part.rows[0]["panel"] == "n" else "noise_std"
            rows = sorted(part.rows, key=lambda row: row[field])
            for name in ENDS:
                run = [row for row in rows if not np.isnan(row[name]).any()]
                if run:
                    values, x = np.stack([row[name] for row in run], axis=1), [row[field] for row in run]
                    shape: dict[str, Any] = {"linewidth": 0.8, "markerfacecolor": "none"}
                    bars(ax, x, values, LOOK[name], label=name, **shape)  # type: ignore[arg-type]
            law = [one if one < SINE else np.nan for one in (np.median(row["law"]) for row in rows)]
            ax.plot([row[field] for row in rows], law, "k:", linewidth=1.4, zorder=5, label="predicted")
            ax.set(xscale="log", yscale="log", xlabel="clients n" if field == "n_clients" else "noise sigma")
        sheet.axes[0, 0].set_ylabel("final distance from B*")
        sheet.legend(ncols=4)
    return sheet.figure


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge rounds and floats, and the final distances."""
    curves, ends = tables["curves"], tables["ends"]
    claimed = [row for row in ends.rows if (row["law"] < SINE).all()]
    found = [one for _, part in curves.groupby("noise_std") for one in courses(part)]
    found += [*limits(claimed), *constants(claimed)] if claimed else []
    found += suboptimal(ends.select(panel="sigma"))
    for m, part in ends.select(panel="n").groupby("n_samples"):
        rows = sorted(part.rows, key=lambda row: row["n_clients"])
        found += [*rate(rows, "n_clients", f"m = {m}"), *rivals(rows, f"m = {m}")]
    n, part = max(ends.select(panel="n").groupby("n_clients"), key=lambda group: group[0])
    return [*found, *rate(sorted(part.rows, key=lambda row: row["n_samples"]), "n_samples", f"n = {n}")]


def equations(row: lf.Table) -> float:
    """Return the floats of a client's normal equations."""
    return float(row["dim"] * (row["dim"] + 3) / 2)


def courses(part: lf.Table) -> Iterator[Finding]:
    """Judge the rounds and the floats of AltMin and of the gradient methods, at one noise level."""
    rows = dict(part.groupby("method"))
    mine = rows[ALTMIN]
    noise, last = mine["noise_std"], mine["distance"][:, -1:]
    level = NEAR * last if noise else CLOSE
    rounds: dict[str, Array] = {}
    for name in (ALTMIN, FEDREP, ALTGDMIN):
        below = rows[name]["distance"] <= level
        at = np.asarray(rows[name]["round"], dtype=float)[below.argmax(axis=1)]
        rounds[name] = np.where(below.any(axis=1), at, np.inf)
    floats = {name: each * rows[name]["floats"][1] for name, each in rounds.items()}
    aim = f"{NEAR} times AltMin's final distance" if noise else f"distance {CLOSE:g}"
    where = f"noise std {noise:g}, n = {mine['n_clients']}, m = {mine['n_samples']}, to {aim}"
    fields: dict[str, Any] = {"setting": where, "source": OWN_THRESHOLD, "claimed_high": 1.0, "strict": True}
    middle = {name: np.quantile(each, 0.5, method="inverted_cdf") for name, each in rounds.items()}
    for rival, words in ((FEDREP, " with a tuned step"), (ALTGDMIN, " with its published step")):
        ratio, detail = median_ratio(rounds[ALTMIN], rounds[rival]), f"{middle[ALTMIN]:g} against {middle[rival]:g}"
        text, statistic = f"AltMin needs fewer rounds than {rival}{words}", f"median rounds divided by those of {rival}"
        yield judge(ratio, claim=text, statistic=statistic, detail=detail, **fields)
    text, statistic = "FedRep sends fewer floats than AltMin", "median floats of a client divided by those of AltMin"
    yield judge(median_ratio(floats[FEDREP], floats[ALTMIN]), claim=text, statistic=statistic, **fields)
    text = "FedRep sends fewer floats than clients that send their normal equations once"
    statistic = "median floats of a client divided by d (d + 3)/2"
    yield judge(median_interval(floats[FEDREP] / equations(mine)), claim=text, statistic=statistic, **fields)


def limits(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    """Judge the final distance against its prediction, and the limits against the minimum that L-BFGS finds."""
    yield judge(
        largest_factor(*(np.stack([row[name] for row in rows], axis=1) for name in (ALTMIN, "law"))),
        claim=f"AltMin's final distance is that predicted for the empirical risk, up to a sine of {SINE}",
        setting=f"{len(rows)} points",
        statistic="factor between the median over trials and the prediction, worst point",
        source=OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}"),
        claimed_high=1.1,
    )
    for (m, name), known in {
        (m, name): [row for row in rows if row["n_samples"] == m and not np.isnan(row[f"{name} apart"]).any()]
        for m in sorted({row["n_samples"] for row in rows})
        for name in (ALTMIN, FEDREP)
    }.items():
        hits = np.array([row[f"{name} apart"] for row in known]).T < SAME
        yield judge_share(
            hits,
            0.8,
            clusters=np.arange(len(hits)),  # a trial has the same ground truth at all points
            claim=f"{name} and L-BFGS converge to the same minimum of the empirical risk",
            setting=f"m = {m}, points with a predicted sine up to {SINE}: {len(known)}",
            statistic=f"share of trials in which the two subspaces are closer than {SAME:g}",
            source=OWN_PREDICTION,
        )


def rate(rows: list[dict[str, Any]], field: str, setting: str) -> Iterator[Finding]:
    """Judge how the final distance falls with the clients, or with the samples."""
    close = [row for row in rows if (row["law"] < SINE).all()]
    if len(close) > 1:
        sizes, (letter, other) = [row[field] for row in close], {"n_clients": "nm", "n_samples": "mn"}[field]
        fitted = fit_exponent(sizes, np.stack([row[ALTMIN] for row in close], axis=1))
        text = f"With {other} fixed, AltMin's distance falls at least as fast as one over the root of {letter}"
        where = f"{setting}, {letter} = {sizes[0]:,} to {sizes[-1]:,}"
        fields: dict[str, Any] = {"setting": where, "source": OPTIMAL.format("margin")}
        yield judge_exponent(fitted, -0.5, kind="at most", margin=0.1, claim=text, **fields)


def constants(rows: list[dict[str, Any]]) -> Iterator[Finding]:
    """Judge whether the distance has one constant before the rate sigma sqrt(d/(n m)) in all settings."""
    rates = [row["noise_std"] * np.sqrt(row["dim"] / (row["n_clients"] * row["n_samples"])) for row in rows]
    ratios = np.stack([row[ALTMIN] / one for row, one in zip(rows, rates, strict=True)], axis=1)
    text = "AltMin's distance is a constant times sigma sqrt(d/(n m)), within a factor of 2"
    yield judge_one_constant(ratios, claimed_high=2.0, claim=text, source=OPTIMAL.format("factor"))


def suboptimal(table: lf.Table) -> Iterator[Finding]:
    """Judge how the distances of AltMin and of the moments depend on small noise."""
    rows = sorted((row for row in table.rows if row["noise_std"] <= SMALL_NOISE), key=lambda row: row["noise_std"])
    if len(rows) < 2:
        return
    sigma = [row["noise_std"] for row in rows]
    where = f"n = {rows[0]['n_clients']}, m = {rows[0]['n_samples']}, noise std {sigma[0]:g} to {sigma[-1]:g}"
    texts = {ALTMIN: "AltMin's distance is proportional to small noise"}
    texts[MOMENTS] = "The distance of the moments does not fall with small noise"
    for name, claimed in ((ALTMIN, 1.0), (MOMENTS, 0.0)):
        fitted = fit_exponent(sigma, np.stack([row[name] for row in rows], axis=1))
        fields: dict[str, Any] = {"kind": "equal", "margin": 0.1, "setting": where, "theorem": False}
        yield judge_exponent(fitted, claimed, claim=texts[name], source=OPTIMAL.format("margin"), **fields)


def rivals(rows: list[dict[str, Any]], setting: str) -> Iterator[Finding]:
    """Judge whether AltMin is as close to B* as each competitor, at the worst number of clients."""
    for rival in (MOMENTS, AVERAGES, HALVES):
        ratios = np.array([median_ratio(row[ALTMIN], row[rival]) for row in rows])
        worst = int(ratios[:, 0].argmax())
        closer, farther = int(np.sum(ratios[:, 2] < 1.0)), int(np.sum(ratios[:, 1] > 1.0))
        yield judge(
            largest_of(median_ratio, [(row[ALTMIN], row[rival]) for row in rows]),
            claim=f"AltMin is as close to B* as {rival}, for every number of clients",
            setting=f"{setting}, noise std {rows[0]['noise_std']:g}",
            statistic="ratio of the median distances, worst number of clients",
            source=OWN_THRESHOLD,
            claimed_high=NEAR,
            detail=f"n = {rows[worst]['n_clients']:,}; closer at {closer}, tied at {len(rows) - closer - farther}, "
            f"farther at {farther} points",
        )
