"""FLUTE paper, Theorem 5.5: the region, the entry time T_R, the rate and the floor, at the theorem's own step.

The truth has k singular values at 1 and the others below, so that the theorem's step ``Delta^2 / (288 lambda_1^3)`` is
not too small to follow; the start is Algorithm 1's, alpha = 1/(10 d); label noise has standard deviation 1/2. The base
setting, d = 10, n = 15, k = 2, Delta = 1.4, sees the population (exact moments), one fixed data set of m samples (the
algorithm), and fresh samples every round (the proof); around it k, d, n and Delta move, at the population and at
m = 10^4; and at half the gap alpha is made smaller, as the proof wants it "sufficiently small". Two runs are there to
be found out: a step 60 times too large, and m = d + 2 samples.

The theorem wants m to grow like ``(1 - eta Delta/16)^(-2T)``: with m fixed it covers rounds up to ``T(m) = log m /
(-2 log(1 - eta Delta/16))`` (its other factors left out). With the constant of its proof the bound says nothing there:
it stays above the error of predicting 0. The least constant that passes up to T(m) is therefore reported, and that it
is nearly the same for all m is no finding: at T(m) the bound has fallen to ``m^-1/2`` of its scale by the definition of
T(m), and so has the floor. What is drawn beside it has no free parameter: the derivative's rate ``1 - eta Delta / 2``
(`linfed.theory.flute_local_rate`) and the floor to first order (`linfed.theory.truncation_floor`).

References: Liu, Shen and Yang 2024, Theorem 5.5, Appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

import linfed as lf
from linfed.statistics.findings import (
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    judge,
    judge_failures,
    quoted,
)
from linfed.statistics.intervals import median_interval, smallest_constant
from linfed.study.run import Table, Tables, select, tidy
from linfed.theory import flute

from ._shared import legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "FLUTE paper, Theorem 5.5: region, entry time, rate and floor, with the constants that would pass"

POPULATION, FIXED, FRESH = DATA = ("population", "fixed", "fresh")
ALLOWED = 0.05
"""The delta that failure shares are held against; the theorem leaves it open."""

SMALL_ALPHA = 1e-4

BASE, LARGE_STEP, FEW = "base", "step x 60", "m = d + 2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the base setting, and what moves around it."""

    n_clients: int = 15
    dim: int = 10
    rank: int = 2
    gap: float = 1.4
    noise_std: float = 0.5
    sizes: tuple[int, ...] = (100, 1_000, 10_000, 1_000_000)
    fresh: tuple[int, ...] = (100, 10_000)
    around: int = 10_000
    moved: tuple[str, ...] = ("rank", "dim", "n_clients", "gap")
    rounds: int = 12_000
    population_rounds: int = 26_000
    trials: int = 80  # with 50, no failure at all leaves a share of 0.071 open
    seed: int = 0

    def quick(self) -> Config:
        """Return fewer trials and settings, and a run that just reaches the floor."""
        few = replace(self, trials=8, sizes=(100, 10_000), fresh=(100,), moved=("rank",))
        return replace(few, rounds=3_000, population_rounds=3_000)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One setting on one kind of data."""

    name: str
    data: str
    n_samples: int
    n_clients: int
    dim: int
    rank: int
    gap: float
    rounds: int
    step_factor: float = 1.0
    alpha: float
    noise_std: float
    trials: int
    seed: int

    @property
    def problem(self) -> lf.UnderParameterized:
        """The truths: k singular values at 1, the others at ``1 - Delta/2``."""
        r = min(self.n_clients, self.dim)
        values = [1.0] * self.rank + [1.0 - self.gap / 2.0] * (r - self.rank)
        return lf.UnderParameterized(n_clients=self.n_clients, dim=self.dim, spectrum=values, noise_std=self.noise_std)

    @property
    def algorithm(self) -> lf.FLUTE:
        """FLUTE at the largest step of the theorem, or a multiple."""
        spectrum = self.problem.spectrum
        assert spectrum is not None
        limit = float(flute.flute_step_limit(spectrum, self.rank))
        return lf.FLUTE(rank=self.rank, step_size=self.step_factor * limit, init=lf.SmallRandom(self.alpha))


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    c = config
    base = Cell(
        name=BASE,
        data=POPULATION,
        n_samples=0,
        n_clients=c.n_clients,
        dim=c.dim,
        rank=c.rank,
        gap=c.gap,
        rounds=c.rounds,
        alpha=1.0 / (10.0 * c.dim),
        noise_std=c.noise_std,
        trials=c.trials,
        seed=c.seed,
    )
    # With the proof's constant the bound says something after some 20,000 rounds only.
    found = [replace(base, rounds=c.population_rounds)]
    found += [replace(base, data=FIXED, n_samples=m) for m in c.sizes]
    found += [replace(base, data=FRESH, n_samples=m, rounds=c.rounds // 2) for m in c.fresh]
    # The step goes with Delta^2 and the rate with eta Delta: half the gap takes eight times the rounds.
    moved = {
        "rank": replace(base, name=f"k = {2 * c.rank}", rank=2 * c.rank),
        "dim": replace(base, name=f"d = {4 * c.dim}", dim=4 * c.dim, alpha=1.0 / (40.0 * c.dim)),
        "n_clients": replace(base, name=f"n = {4 * c.n_clients}", n_clients=4 * c.n_clients),
        "gap": replace(base, name=f"Delta = {c.gap / 2:g}", gap=c.gap / 2, rounds=4 * c.rounds),
    }
    for name in c.moved:
        found += [moved[name], replace(moved[name], data=FIXED, n_samples=c.around)]
    if "gap" in c.moved:  # Proposition A.2 wants a "sufficiently small" alpha
        found.append(replace(moved["gap"], name=f"Delta = {c.gap / 2:g}, alpha = {SMALL_ALPHA:g}", alpha=SMALL_ALPHA))
    found.append(replace(base, name=LARGE_STEP, step_factor=60.0, rounds=c.rounds // 10))
    found.append(replace(base, name=FEW, data=FIXED, n_samples=c.dim + 2))
    return sorted(found, key=lambda cell: cell.rounds * cell.n_clients * cell.dim**2, reverse=True)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Follow a run round by round."""
    c, problem, trials = cell, cell.problem, range(cell.trials)
    truth = problem.truth(c.seed, trials)
    data: Any = lf.FreshSamples(c.n_samples) if c.data == FRESH else lf.FixedSamples(max(1, c.n_samples), in_law=True)
    if c.data == POPULATION:
        data = lf.GivenSamples.population(problem, trials=c.trials, seed=c.seed)
    every = max(1, c.rounds // 600)
    steps = lf.iterate(
        c.algorithm,
        problem,
        data=data,
        rounds=c.rounds,
        trials=c.trials,
        seed=c.seed,
        engine="explicit" if c.data == POPULATION else "compressed",
    )
    trace = flute.flute_trace(steps, c.algorithm, truth, every=every)
    floor = lf.theory.truncation_floor(truth, c.rank, max(1, c.n_samples))
    return {
        "rounds": trace.rounds,
        "error": trace.error,
        "inside": trace.inside,
        "region": trace.region,
        "entry": trace.entry,
        "identity": trace.identity,
        "alive": trace.alive,
        "floor": floor if c.data == FIXED else np.zeros_like(floor),
    }


def trace_of(cell: Cell, table: Table, summary: Table) -> flute.FluteTrace:
    """Return the trace of a cell from its tables."""
    trials = len(summary)
    spectrum = np.zeros(max(cell.dim, cell.n_clients))
    assert cell.problem.spectrum is not None
    spectrum[: len(cell.problem.spectrum)] = cell.problem.spectrum

    def column(name: str) -> Any:
        return table[name].reshape(trials, -1)

    return flute.FluteTrace(
        rank=cell.rank,
        n_clients=cell.n_clients,
        step_size=cell.algorithm.step_size,
        spectrum=np.broadcast_to(spectrum, (trials, len(spectrum))),
        rounds=column("round")[0],
        error=column("error"),
        inside=column("inside"),
        region=np.stack([column(name) for name in ("largest", "rest", "smallest")], axis=-1),
        entry=summary["entry"],
        identity=column("identity"),
        alive=column("alive"),
    )


KEYS = (
    "name",
    "data",
    "n_samples",
    "n_clients",
    "dim",
    "rank",
    "gap",
    "step_factor",
    "alpha",
    "noise_std",
    "cell_rounds",
)


def _keys(cell: Cell) -> dict[str, Any]:
    return {name: cell.rounds if name == "cell_rounds" else getattr(cell, name) for name in KEYS}


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return what was followed, round by round and per trial, as tidy tables."""
    parts: dict[str, list[Table]] = {"rounds": [], "summary": []}
    trials = {"trial": np.arange(config.trials)}
    for cell, found in zip(cells(config), results, strict=True):
        region = dict(zip(("largest", "rest", "smallest"), np.moveaxis(found["region"], -1, 0), strict=True))
        values = {name: found[name] for name in ("error", "inside", "identity", "alive")}
        parts["rounds"].append(tidy(_keys(cell), {**trials, "round": found["rounds"]}, {**values, **region}))
        parts["summary"].append(
            tidy(
                {**_keys(cell), "step_size": cell.algorithm.step_size},
                trials,
                {
                    "entry": found["entry"],
                    "entered": _entered(found["rounds"], found["inside"]),
                    "final": found["error"][:, -1],
                    "floor": found["floor"],
                    "diverged": ~found["alive"][:, -1],
                },
            )
        )
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def _entered(rounds: Any, inside: Any) -> Any:
    return np.where(inside.any(axis=1), rounds[inside.argmax(axis=1)], np.inf)


def _cells_of(tables: Tables) -> list[tuple[Cell, flute.FluteTrace, Table]]:
    """Return the cells that tables hold, with their traces and summaries."""
    found = []
    summary = tables["summary"]
    for row in np.unique(summary[list(KEYS)]):
        wanted = {name: row[name] for name in KEYS}
        own = select(summary, **wanted)
        fields = {name: value.item() for name, value in wanted.items() if name != "cell_rounds"}
        cell = Cell(**fields, rounds=int(row["cell_rounds"]), trials=len(own), seed=0)
        found.append((cell, trace_of(cell, select(tables["rounds"], **wanted), own), own))
    order = {POPULATION: math.inf, FIXED: 0.0, FRESH: -1e12}
    return sorted(found, key=lambda item: (item[0].name != BASE, item[0].name, -order[item[0].data], item[0].n_samples))


def where(cell: Cell) -> str:
    """Return a cell's name in tables."""
    data = cell.data if cell.data == POPULATION else f"{cell.data}, m = {cell.n_samples:,}"
    return data if cell.name == BASE else f"{cell.name}, {data}"


def covered(cell: Cell) -> float:
    """Return the last round that the theorem covers: ``m = (1 - eta Delta/16)^(-2T)``, unlimited at population."""
    if cell.data == POPULATION:
        return math.inf
    spectrum = cell.problem.spectrum
    assert spectrum is not None
    rate = float(flute.flute_rate(spectrum, cell.rank, cell.algorithm.step_size))
    return math.log(cell.n_samples) / (-2.0 * math.log(rate)) if 0 < rate < 1 else math.inf


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the errors against the theorem, the region, and the constants that would pass."""
    found = _cells_of(tables)
    return {"": _errors_figure(found), "region": _region_figure(found), "constants": _constants_figure(found)}


def _errors_figure(found: Any) -> Figure:
    from linfed.figures import style as plotting

    titles = ["one fixed data set (the algorithm)", "fresh samples every round (the proof)"]
    figure, axes = panels(titles, 3.3, sharey=True)
    base = [item for item in found if item[0].name == BASE]
    population = next(item for item in base if item[0].data == POPULATION)
    constant = smallest_constant(flute.bound_ratios(population[1]), allowed=ALLOWED)[0]
    colours = ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7")
    sizes = sorted({cell.n_samples for cell, _, _ in base if cell.n_samples})
    last = max(cell.rounds for cell, _, _ in base if cell.data == FIXED)
    with plotting.style():
        for ax, kind in zip(axes[0], (FIXED, FRESH), strict=True):
            for cell, trace, summary in base:
                if cell.data not in (kind, POPULATION):
                    continue
                colour = "black" if cell.data == POPULATION else colours[sizes.index(cell.n_samples)]
                told = "population" if cell.data == POPULATION else f"m = {cell.n_samples:,}"
                middle = np.median(trace.error, axis=0)
                low, high = np.quantile(trace.error, (0.1, 0.9), axis=0)
                ax.plot(trace.rounds, middle, color=colour, label=told)
                ax.fill_between(trace.rounds, low, high, color=colour, alpha=0.2, linewidth=0)
                if cell.data == FIXED:
                    level = float(np.median(summary["floor"]))
                    first = kind == FIXED and cell.n_samples == sizes[0]
                    ax.plot(
                        [0.62 * trace.rounds[-1], trace.rounds[-1]],
                        [level, level],
                        color="black",
                        linewidth=0.8,
                        linestyle=(0, (2, 1.5)),
                        label="floor, predicted" if first else "_floor",
                    )
            cell, trace, _ = population
            spectrum = trace.spectrum[0]
            bound = constant * flute.flute_bound(spectrum, cell.rank, trace.step_size, cell.n_clients, trace.rounds)
            after = trace.rounds > trace.entry.min()
            ax.plot(trace.rounds[after], bound[after], color="0.45", linewidth=1.0, label="the bound, least constant")
            t = np.linspace(trace.entry.min(), last, 50)
            start = float(np.interp(t[0], trace.rounds, np.median(trace.error, axis=0)))
            local = start * flute.flute_local_rate(spectrum, cell.rank, trace.step_size) ** (t - t[0])
            ax.plot(t, local, color="0.45", linewidth=1.0, linestyle=":", label="rate $1-\\eta\\Delta/2$, predicted")
            ax.set(yscale="log", xlabel="round", ylim=(1e-8, 2), xlim=(0, last))
            ax.axvline(float(np.median(trace.entry)), color="0.7", linewidth=0.8, zorder=0)
            ax.annotate("$T_R$", (float(np.median(trace.entry)), 1.0), xytext=(3, 0), textcoords="offset points")
        axes[0, 0].set_ylabel("mean distance from the truncation")
        trials = len(population[2])
        handles, labels = axes[0, 0].get_legend_handles_labels()
        title = f"median and 10-90 % of {trials} trials"
        figure.legend(handles, labels, loc="outside upper center", ncols=4, title=title)
    return figure


def _region_figure(found: Any) -> Figure:
    from linfed.figures import style as plotting

    names = {
        "largest": ("$\\sigma_1^2(\\Theta)$", "$\\leq 2\\lambda_1'$"),
        "rest": ("$\\sigma_1^2(\\Theta_{res})$", "$\\leq \\lambda_k'-\\Delta/2$"),
        "smallest": ("$\\sigma_k^2(\\Theta_k)$", "$\\geq \\Delta/4$"),
    }
    figure, axes = panels([f"{left} {right}" for left, right in names.values()], 2.5)
    with plotting.style():
        for cell, trace, _ in found:
            if cell.name != BASE or cell.data == FRESH:
                continue
            for index, ax in enumerate(axes[0]):
                told = where(cell)
                ax.plot(trace.rounds, np.median(trace.region[..., index], axis=0), label=told, linewidth=1.0)
        base = next(cell for cell, _, _ in found if cell.name == BASE)
        bounds = (4.0, 2.0 - base.gap / 2.0, base.gap / 4.0)
        for ax, bound in zip(axes[0], bounds, strict=True):
            plotting.draw_level(ax, bound)
            ax.set(yscale="log", xscale="log", xlabel="round")
            ax.set_xlim(left=30)
        legend(figure, axes[0], "median over trials; dashed: the region's bound")
    return figure


def _constants_figure(found: Any) -> Figure:
    import matplotlib.pyplot as plt

    from linfed.figures import style as plotting

    rows = [item for item in found if item[0].name not in (LARGE_STEP,)]
    with plotting.style():
        figure, ax = plt.subplots(figsize=(plotting.PAGE_WIDTH, 0.5 + 0.17 * len(rows)), layout="constrained")
        for position, (cell, trace, _) in enumerate(reversed(rows)):
            estimate, low, high = smallest_constant(flute.bound_ratios(trace, until=covered(cell)), allowed=ALLOWED)
            error = [[max(0.0, estimate - low)], [max(0.0, high - estimate)]]
            ax.errorbar([estimate], [position], xerr=error, marker="o", color="#0072B2", capsize=2)
        ax.set_yticks(range(len(rows)), [where(cell) for cell, _, _ in reversed(rows)])
        ax.set(
            xscale="log", xlabel="least constant with which the bound holds up to the covered round, in 95 % of trials"
        )
    return figure


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return the theorem's statements with their judgements."""
    found = _cells_of(tables)
    out: list[Finding] = []
    for part in (_bound, _identity, _entry, _staying, _beyond, _constants, _local_rate, _floor, _fresh):
        out += part(found)
    return out


def _hypotheses(cell: Cell) -> tuple[Any, ...]:
    return (flute.init_hypothesis(cell.alpha, cell.dim),)


def _identity(found: Any) -> list[Finding]:
    return [flute.judge_recursion(trace, where(cell)) for cell, trace, _ in found]


def _entry(found: Any) -> list[Finding]:
    judged = (
        flute.judge_entry(trace, where(cell), allowed=ALLOWED, hypotheses=_hypotheses(cell)) for cell, trace, _ in found
    )
    return list(judged)


def _staying(found: Any) -> list[Finding]:
    judged = (
        flute.judge_staying(trace, where(cell), allowed=ALLOWED, hypotheses=_hypotheses(cell))
        for cell, trace, _ in found
    )
    return list(judged)


def _bound(found: Any) -> list[Finding]:
    """Judge the bound with the proof's constant, up to the round that m covers."""
    out = []
    for cell, trace, _ in found:
        until = covered(cell)
        judged = flute.judge_rate(
            trace,
            where(cell),
            constant=4.0 * flute.PROOF_CONSTANT,
            allowed=ALLOWED,
            until=until,
            hypotheses=_hypotheses(cell),
            note="" if until == math.inf else "up to the round that m covers",
        )
        out.append(judged)
    return out


def _beyond(found: Any) -> list[Finding]:
    """Judge the bound beyond the rounds that m covers, with the least constant that passes up to there."""
    out = []
    for cell, trace, _ in found:
        until = covered(cell)
        if cell.name != BASE or cell.data != FIXED or until >= trace.rounds[-1]:
            continue
        constant = smallest_constant(flute.bound_ratios(trace, until=until), allowed=ALLOWED)[0]
        failed = flute.bound_ratios(trace) > constant
        judged = judge_failures(
            failed,
            text="The bound goes on holding beyond the round that m covers (the theorem does not say so)",
            where=where(cell),
            source="nobody: what the theorem leaves open",
            allowed=ALLOWED,
            hypotheses=(flute.step_hypothesis(trace), *_hypotheses(cell)),
            note=f"m = {cell.n_samples:,} covers {until:,.0f} rounds; its least constant up to there is {constant:.2g}",
        )
        out.append(judged)
    return out


def _constants(found: Any) -> list[Finding]:
    """Report the least constant of every setting, and how far it moves."""
    out = []
    estimates = []
    for cell, trace, _ in found:
        if cell.name in (LARGE_STEP, FEW):
            continue
        least = smallest_constant(flute.bound_ratios(trace, until=covered(cell)), allowed=ALLOWED)
        estimates.append(least[0])
        out.append(
            judge(
                least,
                most=4.0 * flute.PROOF_CONSTANT,
                theorem=True,
                source=quoted("FLUTE paper, Theorem 5.5", "there exist positive constants c1 and c2"),
                text="Theorem 5.5 holds with the proof's constant, 4 x 400",
                where=where(cell),
                statistic="least constant with which its bound holds in 95 % of trials, up to the covered round",
                hypotheses=(flute.step_hypothesis(trace), *_hypotheses(cell)),
            )
        )
    moved = (
        f"it moves from {min(estimates):.2g} to {max(estimates):.2g} over these settings; that it hardly moves with m "
        "is by the definition of the covered round: the bound falls to m^-1/2 of its scale there, as the floor does"
    )
    return [replace(judgement, note=moved) for judgement in out]


def _local_rate(found: Any) -> list[Finding]:
    """Compare the measured rate at the population with the derivative's."""
    out = []
    for cell, trace, _ in found:
        if cell.data != POPULATION or cell.name == LARGE_STEP:
            continue
        spectrum = trace.spectrum[0]
        predicted = math.log(flute.flute_local_rate(spectrum, cell.rank, trace.step_size))
        promised = math.log(flute.flute_rate(spectrum, cell.rank, trace.step_size))
        ratios = measured_rates(trace) / predicted
        if np.isnan(ratios).any():  # the run was too short
            continue
        out.append(
            judge(
                median_interval(ratios),
                least=0.99,
                most=1.01,
                theorem=True,
                source=f"{OWN_PREDICTION}; the 1 % is an {OWN_THRESHOLD}",
                text="Near the truncation the error falls by 1 - eta Delta / 2 a round",
                where=where(cell),
                statistic="measured log rate over the predicted one, median over trials",
                detail=f"{predicted / promised:.1f} times faster than the theorem's 1 - eta Delta/16",
            )
        )
    return out


def measured_rates(trace: flute.FluteTrace) -> Any:
    """Return the slope of the log error where it is small, yet above rounding, (trials,); NaN where there is none."""
    share = trace.error / trace.error[:, :1]
    near = (share < 1e-3) & (share > 1e-8)
    return np.array(
        [
            stats.linregress(trace.rounds[mask], np.log(error[mask])).slope if mask.sum() > 2 else np.nan
            for mask, error in zip(near, trace.error, strict=True)
        ]
    )


def _floor(found: Any) -> list[Finding]:
    """Compare the floors on fixed data with the first-order prediction."""
    out = []
    for cell, _, summary in found:
        if cell.data != FIXED or cell.name == FEW:
            continue
        out.append(
            judge(
                median_interval(summary["final"] / summary["floor"]),
                least=0.8,
                most=1.1,
                theorem=True,
                source=f"{OWN_PREDICTION}; the range is an {OWN_THRESHOLD}",
                note="a mean of norms is below their root mean square",
                text="With m fixed the error ends at a floor that the perturbation of the truncation predicts",
                where=where(cell),
                statistic="final error over predicted root mean square, median over trials",
            )
        )
    return out


def _fresh(found: Any) -> list[Finding]:
    """Compare fresh with reused samples."""
    out = []
    base = [(cell, trace) for cell, trace, _ in found if cell.name == BASE]
    for cell, trace in base:
        if cell.data != FRESH:
            continue
        fixed = next((its for other, its in base if other.data == FIXED and other.n_samples == cell.n_samples), None)
        if fixed is None:
            continue
        at = int(np.searchsorted(fixed.rounds, trace.rounds[-1]))
        ratios = trace.error[:, -1] / fixed.error[:, min(at, len(fixed.rounds) - 1)]
        spectrum = trace.spectrum[0]
        averaged = math.sqrt(trace.step_size * float(flute.flute_gap(spectrum, cell.rank)) / 4.0)
        out.append(
            judge(
                median_interval(ratios),
                least=1.0,
                theorem=True,
                source="FLUTE paper, proof of Theorem 5.5, which treats the samples of Algorithm 1 as fresh",
                text="Reused samples cost no more than fresh ones (the proof treats them as fresh)",
                where=where(cell),
                statistic="error with fresh samples over error with one data set, median over trials",
                detail=f"averaging over 4 / (eta Delta) rounds would give {averaged:.2g}",
            )
        )
    return out
