"""Where federation starts to pay: FedRep against what clients can do alone, over samples and clients, and predicted.

d = 50, k = 3, one fixed data set of m samples for each of n clients, two noise levels. Alone a client has least
squares, of minimum norm where m < d, or the ridge regression that is best for its noise and length, of the ridge
``sigma^2 d/(m k)``; the better of the two is the rival. One least-squares model for all clients and exact heads on the
true B* stand beside, on the same data.

FedRep starts from the method of moments and goes on to its minimum: with the step that the spectra of samples and of
heads allow, ``1.2/(c (1 + sqrt g)^2 (1 + sqrt(k/n))^2)`` with c = 1 - k/m and ``g = (d-k) k/(n (m-k))``, for as many
rounds as their slowest directions take, a thousand at most. What is left of its gradient is a column, and so is the
risk of the round that was best in hindsight.

The law's line has no free parameter (`linfed.theory.federation_pays_from`). Beside it: from where on there are more
samples than unknowns, g = 1; and the FedRep paper's ``m ~ log(n) + d/n`` with the pair of constants that comes nearest
to the measured line, in hindsight and for each noise level.

The paper compares sample complexities per client: ``Theta(log(n) + d/n)`` with FedRep and ``Theta(d)`` without. Here it
is the smallest m from which on the median excess risk is at most a tenth of the risk of predicting 0, that is k/20, on
straight lines in the logarithms between the m of the grid.

Figures
-------
"" : FedRep's excess risk over that of the better of ridge and least squares alone, median, over samples and clients,
    with the measured line of 1 and what rules say of it; blank: too many samples, not run.
"complexity" : Above, the smallest m with which the median excess risk is a tenth of the risk of predicting 0, against
    n; below, FedRep's divided by those without federation, against (log(n) + d/n)/d; with 95 % intervals.
"sections" : Excess risks against n, for some m and both noise levels: FedRep and its law, and what stands beside it;
    median and 10-90 % over trials.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 1, and section 4.2, "When and whom does federation
help?".
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS, label, look
from linfed.plotting.panels import Figures, bars, heat_map, level, place
from linfed.statistics.findings import Finding
from linfed.theory import at_exact_heads

from . import _fedrep_pays_judged as judged
from ._fedrep_pays_judged import COUNT, FEDREP, LAW, LEAST, ORACLE, PAPER, POOLED, RIDGE

SUMMARY = "where FedRep starts to pay: against least squares and ridge alone, over m/d and n, and as predicted"

LIMIT = 8_000
"""Samples in all, with more of which points are far beyond the lines."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of the map: all methods on the same data sets."""

    noise_std: float = 0.3
    n_samples: int
    n_clients: int
    dim: int = 50
    rank: int = 3
    most_rounds: int = 1000
    trials: int = 50
    seed: int = 0

    @property
    def cost(self) -> float:
        """Samples of a trial."""
        return self.n_clients * self.n_samples

    def schedule(self) -> tuple[float, int]:
        """Return the step on B, and how many rounds."""
        spare = max(self.n_samples - self.rank, 1)
        wide = math.sqrt((self.dim - self.rank) * self.rank / (self.n_clients * spare))
        near = math.sqrt(self.rank / self.n_clients)
        largest, least = (1 + wide) * (1 + near), abs((1 - wide) * (1 - near))
        rounds = max(30, round(8 * (largest / max(least, 0.1)) ** 2))
        return 1.2 * self.n_samples / spare / largest**2, min(self.most_rounds, rounds)

    def run(self) -> dict[str, Any]:
        """Return every method's excess risk, in blocks of trials that fit, and what theory says."""
        told: dict[str, Any] = {"noise_std": self.noise_std, "dim": self.dim, "n_samples": self.n_samples}
        length, theory = math.sqrt(self.rank), lf.theory
        ridge = theory.best_local_ridge(length, **told)
        alone = [float(theory.local_mean_risk(length, ridge=one, **told)) for one in (0.0, ridge)]
        both = [theory.fixed_sample_edge(rank=self.rank, **told)]
        both.append(theory.federation_pays_from(min(alone), rank=self.rank, **told))
        edge, pays_from = np.where(np.isfinite(both), both, np.nan).tolist()
        block = max(1, min(self.trials, 2**22 // (self.n_clients * self.n_samples * self.dim)))
        firsts = range(0, self.trials, block)
        parts = [self.block(min(block, self.trials - first), (self.seed, first), ridge, told) for first in firsts]
        row = {"edge": edge, "pays_from": pays_from, "predicted_ridge": alone[1] - self.noise_std**2 / 2}
        return row | {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def block(self, trials: int, seed: tuple[int, int], ridge: float, told: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of some trials."""
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank, "noise_std": self.noise_std}
        problem, floor = lf.SharedRepresentation(**sizes), self.noise_std**2 / 2
        truth = problem.truth(seed, range(trials))
        data = lf.FixedSamples(self.n_samples).draw(problem, trials=trials, seed=seed)
        given = lf.GivenTruth(B=truth.B, W=truth.W, noise_std=self.noise_std)

        def result(algorithm: lf.Algorithm, rounds: int = 1) -> lf.Result:
            times = {"rounds": rounds, "trials": trials, "record_every": max(1, rounds // 20)}
            return lf.simulate(algorithm, given, data=data, metrics=["risk"], **times)

        step, rounds = self.schedule()
        fedrep = result(lf.FedRep(rank=self.rank, step_size=step), rounds)
        course = fedrep.metrics["risk"] - floor
        rivals = {LEAST: lf.LocalOnly(), RIDGE: lf.LocalOnly(ridge=ridge), POOLED: lf.PooledLeastSquares()}
        rivals |= {ORACLE: lf.Oracle(rank=self.rank)}
        found = {name: result(one).metrics["risk"][:, -1] - floor for name, one in rivals.items()}
        found |= {FEDREP: course[:, -1], "best": course.min(axis=1)}
        found["gradient"] = at_exact_heads(data, fedrep.final.B).gradient
        if self.n_samples < self.rank + 2 or self.n_clients < self.rank:
            return found | {"law": np.full(trials, np.nan)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # where there is no law, which is NaN
            law = lf.theory.fixed_sample_floor(truth.W, **told)
        return found | {"law": np.where(law.distance < 0.37, law.risk.mean(axis=1) - floor, np.nan)}


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points of the map; at noise 1 clients without federation need up to 300 samples."""
    base, sizes = Point(n_samples=5, n_clients=2), (2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 50, 80, 140, 250, 500, 1000)
    counts: tuple[int, ...] = (5, 7, 10, 15, 25, 35, 50, 60, 75, 100, 200)
    axes: dict[str, Any] = {"noise_std, n_samples": [(s, m) for s in (0.3, 1.0) for m in counts] + [(1.0, 300)]}
    if quick:
        base, sizes = replace(base, trials=4, most_rounds=60), (2, 6, 16, 50)
        axes = {"noise_std": (0.3, 1.0), "n_samples": (10, 75)}
    points = lf.grid(base, **axes, n_clients=sizes)
    return {"map": [one for one in points if one.cost <= LIMIT]}


LINES = {LAW: (KINDS[2][0], "-"), COUNT: (KINDS[4][0], ":"), PAPER: ("0.35", "--")}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return the map with its lines, and sections through it."""
    table, trials = tables["map"], f"{tables['map'].rows[0]['trials']} trials"
    with lf.page(table, column="noise_std", title="noise std {}", height=3.6, sharey=True) as sheet:
        images = [draw_map(ax, part) for ax, part in sheet]
        sheet.label("$m/d$", "clients $n$")
        told = "excess risk of FedRep over that of the better\nof ridge and least squares, median"
        bar = sheet.figure.colorbar(images[0], ax=sheet.axes, pad=0.02, aspect=30, ticks=[-2, -1, 0, 1, 2], label=told)
        bar.set_ticklabels(["0.01", "0.1", "1", "10", "100"])
        blank = f"blank: more than {LIMIT:,} samples, not run"
        sheet.legend(f"{trials}; {blank}; rows and columns are not evenly spaced", ncols=4)
    chosen = table.where(n_samples=[7, 10, 25, 75])
    with lf.page(chosen, column="n_samples", row="noise_std", title="m = {}", height=4.2, sharey="row") as second:
        second.label("clients $n$", *(f"excess risk, noise std {s}" for s in table.values("noise_std")), xscale="log")
        for ax, part in second:
            draw_section(ax, part)
        second.legend(f"median and 10-90 % of {trials}", ncols=4)
    return {"": sheet.figure, "complexity": draw_complexity(table), "sections": second.figure}


def draw_map(ax: Any, part: lf.Table) -> Any:
    """Draw the log ratio over m and n, with the measured line and those of the rules."""
    counts, sizes = part.values("n_samples"), sorted(part.values("n_clients"))
    values = np.full((len(sizes), len(counts)), np.nan)
    for row in part:
        ratio = np.median(row[FEDREP] / np.minimum(row[RIDGE], row[LEAST]))
        values[sizes.index(row["n_clients"]), counts.index(row["n_samples"])] = np.log10(ratio)
    shares = [f"{m / part.rows[0]['dim']:.2g}".replace("0.", ".") for m in counts]
    image = heat_map(ax, values, shares, [f"{n:,}" for n in sizes], cmap="RdBu_r", vmin=-2, vmax=2)
    measured = judged.measured_lines(part)
    for rule, line in judged.lines(part, measured).items():
        inside = [m for m in counts if line.get(m, np.inf) <= sizes[-1]]
        shape = dict(zip(("color", "linestyle"), LINES[rule], strict=True))
        places = [place(np.log(sizes), np.log(line[m])) for m in inside]
        level(ax, [counts.index(m) for m in inside], places, **shape, label=rule)
    at = [np.interp(np.log(ends), np.log(sizes), range(len(sizes))) for ends in measured.values()]
    level(ax, [counts.index(m) for m in measured], at, color="black", marker="o", linestyle="none", label="measured")
    return image


def draw_section(ax: Any, part: lf.Table) -> None:
    """Draw every method's excess risk against n, and FedRep's by its law."""
    from matplotlib.ticker import NullFormatter

    n = np.array([row["n_clients"] for row in part])
    for name in (FEDREP, LEAST, RIDGE, POOLED, ORACLE):
        values = np.stack([row[name] for row in part], axis=1)
        bars(ax, n, values, name, label=label(name))
    law = np.where([judged.holds(row) for row in part], [np.median(row["law"]) for row in part], np.nan)
    ax.plot(n, law, color="black", linewidth=1.2, linestyle=":", zorder=5, label="FedRep, the law")
    ax.set(yscale="log", ylim=(1e-3, 8))
    ax.xaxis.set_minor_formatter(NullFormatter())


def draw_complexity(table: lf.Table) -> Any:
    """Draw the sample complexities against n, and FedRep's divided by the others against (log(n) + d/n)/d."""
    with lf.page(table, column="noise_std", title="noise std {}", row=2, height=4.4, sharey="row") as sheet:
        for (ax, part), (below, _) in zip(sheet.row(0), sheet.row(1), strict=True):
            d = part.rows[0]["dim"]
            found = judged.complexities(part, judged.LEVEL)
            for method, needed in found.items():
                draw_ends(ax, {n: judged.interval(m) for n, m in needed.items()}, method)
            for rival in (LEAST, RIDGE):
                ratios = {n: judged.divided(m, found[rival][n]) for n, m in found[FEDREP].items()}
                draw_ends(below, {judged.small(n, d): judged.interval(ratio) for n, ratio in ratios.items()}, rival)
            ax.set_xlabel("clients $n$")
            below.axhline(1.0, color="black", linewidth=0.7)
        sheet.label(
            "$(\\log n + d/n)/d$",
            "smallest sufficient m",
            "FedRep's divided by\nthe one without",
            xscale="log",
            yscale="log",
        )
        sheet.legend(f"95 % intervals over {table.rows[0]['trials']} trials", ncols=3)
    return sheet.figure


def draw_ends(ax: Any, found: dict[float, Any], method: str) -> None:
    """Draw finite statistics with their intervals."""
    known = {x: ends for x, ends in found.items() if np.isfinite(ends).all()}
    middle, low, high = np.array(list(known.values())).reshape(-1, 3).T
    shape = look(method) | {"linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    ax.errorbar(list(known), middle, yerr=np.maximum([middle - low, high - middle], 0), label=label(method), **shape)


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return where FedRep pays, what predictions are worth, and the sample complexities with and without it."""
    return judged.claims(tables["map"])
