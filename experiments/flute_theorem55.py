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

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

import linfed as lf
from linfed.figures.style import PAGE_WIDTH, draw_curve, draw_level
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, judge, judge_failures, quoted
from linfed.statistics.intervals import Measured, median_interval, smallest_constant
from linfed.theory import flute

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUMMARY = "FLUTE paper, Theorem 5.5: region, entry time, rate and floor, with the constants that would pass"

POPULATION, FIXED, FRESH = ("population", "fixed", "fresh")
BASE, LARGE_STEP, FEW = "base", "step x 60", "m = d + 2"
ALLOWED = 0.05
"""The delta that failure shares are held against; the theorem leaves it open."""
PROOFS = 4.0 * flute.PROOF_CONSTANT


@dataclass(frozen=True, kw_only=True)
class Followed:
    """One setting on one kind of data, followed round by round."""

    name: str = BASE
    data: str = POPULATION
    n_samples: int = 0
    n_clients: int = 15
    dim: int = 10
    rank: int = 2
    gap: float = 1.4
    rounds: int = 12_000
    step_factor: float = 1.0
    alpha: float = 1e-2
    noise_std: float = 0.5
    trials: int = 80  # with 50, no failure at all leaves a share of 0.071 open
    seed: int = 0

    @property
    def cost(self) -> float:
        """Long runs first."""
        return self.rounds * self.n_clients * self.dim**2

    @property
    def spectrum(self) -> tuple[float, ...]:
        """Singular values of the truths: k at 1, the others at ``1 - Delta/2``."""
        return (1.0,) * self.rank + (1.0 - self.gap / 2.0,) * (min(self.n_clients, self.dim) - self.rank)

    def run(self) -> dict[str, Any]:
        """Return what the theorem speaks of, round by round, the last round that m covers, and the predicted floor."""
        of_trials: dict[str, Any] = {"trials": self.trials, "seed": self.seed}
        problem = lf.UnderParameterized(
            n_clients=self.n_clients, dim=self.dim, spectrum=self.spectrum, noise_std=self.noise_std
        )
        step = self.step_factor * float(flute.flute_step_limit(self.spectrum, self.rank))
        algorithm = lf.FLUTE(rank=self.rank, step_size=step, init=lf.SmallRandom(self.alpha))
        rate, covered, told = float(flute.flute_rate(self.spectrum, self.rank, step)), math.inf, self.data
        if self.data == POPULATION:
            data: lf.Data = lf.GivenSamples.population(problem, **of_trials)
        else:
            fixed = lf.FixedSamples(self.n_samples, in_law=True)
            data = fixed if self.data == FIXED else lf.FreshSamples(self.n_samples)
            told += f", m = {self.n_samples:,}"
            if 0 < rate < 1:
                covered = math.log(self.n_samples) / (-2.0 * math.log(rate))
        engine = "explicit" if self.data == POPULATION else "compressed"
        truth = problem.truth(self.seed, range(self.trials))
        steps = lf.iterate(algorithm, problem, data=data, rounds=self.rounds, engine=engine, **of_trials)
        trace = flute.flute_trace(steps, algorithm, truth, every=max(1, self.rounds // 600))
        followed = {name: getattr(trace, name) for name in ("error", "inside", "identity", "alive")}
        followed |= dict(zip(flute.Region._fields, np.moveaxis(trace.region, -1, 0), strict=True))
        return {
            "setting": told if self.name == BASE else f"{self.name}, {told}",
            "step_size": step,
            "covered": covered,
            "singular_value": lf.Along(self.spectrum, index=range(len(self.spectrum))),
            "entry": trace.entry,
            "entered": np.where(trace.inside.any(axis=1), trace.rounds[trace.inside.argmax(axis=1)], np.inf),
            **({"floor": lf.theory.truncation_floor(truth, self.rank, self.n_samples)} if self.data == FIXED else {}),
            **{name: lf.Along(values, round=trace.rounds) for name, values in followed.items()},
        }


def cells(quick: bool) -> dict[str, list[Followed]]:
    """Return the base setting on every kind of data, and what moves around it."""
    base = Followed(trials=8, rounds=3_000) if quick else Followed()
    rounds, sizes, fresh = base.rounds, (100, 1_000, 10_000, 1_000_000), (100, 10_000)
    closer = replace(base, name="Delta = 0.7", gap=0.7, rounds=4 * rounds)
    both = {"data, n_samples": ((POPULATION, 0), (FIXED, 10_000))}
    runs = [
        # With the proof's constant the bound says something after some 20,000 rounds only.
        [replace(base, rounds=rounds if quick else 26_000)],
        lf.grid(base, data=[FIXED], n_samples=sizes[::2] if quick else sizes),
        lf.grid(base, data=[FRESH], n_samples=fresh[:1] if quick else fresh, rounds=[rounds // 2]),
        # The step goes with Delta^2 and the rate with eta Delta: half the gap takes eight times the rounds.
        [] if quick else lf.grid(closer, **both),
        # Proposition A.2 wants a "sufficiently small" alpha.
        [] if quick else [replace(closer, name="Delta = 0.7, alpha = 0.0001", alpha=1e-4)],
        [] if quick else lf.grid(replace(base, name="d = 40", dim=40, alpha=1.0 / 400.0), **both),
        lf.grid(replace(base, name="k = 4", rank=4), **both),
        [replace(base, name=FEW, data=FIXED, n_samples=base.dim + 2)],
        [] if quick else lf.grid(replace(base, name="n = 60", n_clients=60), **both),
        [replace(base, name=LARGE_STEP, step_factor=60.0, rounds=rounds // 10)],
    ]
    return {"runs": list(itertools.chain(*runs))}


def trace_of(one: lf.Table) -> flute.FluteTrace:
    """Return the trace of a run, with the singular values as they were asked for."""
    names = ("rank", "n_clients", "step_size", "error", "inside", "entry", "identity", "alive")
    return flute.FluteTrace(
        spectrum=np.tile(one["singular_value"], (one["trials"], 1)),
        rounds=one["round"],
        region=np.stack([one[name] for name in flute.Region._fields], axis=-1),
        **{name: one[name] for name in names},
    )


def least_constant(one: lf.Table) -> Measured:
    """Return the least constant with which the bound holds up to the covered round, in 95 % of the trials."""
    return smallest_constant(flute.bound_ratios(trace_of(one), until=one["covered"]), allowed=ALLOWED)


# --- figures -------------------------------------------------------------------------------------------------

COLOURS = {0: "black", 100: "#0072B2", 1_000: "#009E73", 10_000: "#E69F00", 1_000_000: "#D55E00"}
"""Of each number of samples; 0 at the population."""
KINDS = {FIXED: "one fixed data set (the algorithm)", FRESH: "fresh samples every round (the proof)"}
BOUNDS = {
    "largest": ("$\\sigma_1^2(\\Theta)$ $\\leq 2\\lambda_1'$", 4.0),
    "rest": ("$\\sigma_1^2(\\Theta_{res})$ $\\leq \\lambda_k'-\\Delta/2$", 2.0 - Followed.gap / 2.0),
    "smallest": ("$\\sigma_k^2(\\Theta_k)$ $\\geq \\Delta/4$", Followed.gap / 4.0),
}
"""What bounds the region, at the base setting."""


def plot(tables: dict[str, lf.Table]) -> dict[str, Figure]:
    """Return the errors against the theorem, the region, and the constants that would pass."""
    import matplotlib.pyplot as plt

    table = tables["runs"]
    base = table.where(name=BASE)
    with lf.page(base.where(data=[FIXED, FRESH]), column="data", title=KINDS.get, height=3.3, sharey=True) as errors:
        last = base.where(data=FIXED)["round"][-1]
        errors.label("round", "mean distance from the truncation", ylim=(1e-8, 2), xlim=(0, last))
        for ax, part in errors:
            _errors(ax, base.where(data=POPULATION), part, last)
        errors.legend(f"median and 10-90 % of {base.rows[0]['trials']} trials", ncols=4)
    region, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.5), layout="constrained")
    for ax, (name, (title, bound)) in zip(axes, BOUNDS.items(), strict=True):
        for one in base.where(data=[POPULATION, FIXED]):
            ax.plot(one["round"], np.median(one[name], axis=0), label=one["setting"], linewidth=1.0)
        draw_level(ax, bound)
        ax.set(yscale="log", xscale="log", xlabel="round", title=title)
        ax.set_xlim(left=30)
    handles, labels = axes[0].get_legend_handles_labels()
    told = "median over trials; dashed: the region's bound"
    region.legend(handles, labels, loc="outside upper center", ncols=len(labels), title=told)
    held = [one for one in table if one["name"] != LARGE_STEP]
    constants, ax = plt.subplots(figsize=(PAGE_WIDTH, 0.5 + 0.17 * len(held)), layout="constrained")
    for position, one in enumerate(reversed(held)):
        estimate, low, high = least_constant(one)
        error = [[max(0.0, estimate - low)], [max(0.0, high - estimate)]]
        ax.errorbar([estimate], [position], xerr=error, marker="o", color="#0072B2", capsize=2)
    ax.set_yticks(range(len(held)), [one["setting"] for one in reversed(held)])
    told = "least constant with which the bound holds up to the covered round, in 95 % of trials"
    ax.set(xscale="log", xlabel=told)
    return {"": errors.figure, "region": region, "constants": constants}


def _errors(ax: Axes, population: lf.Table, part: lf.Table, last: int) -> None:
    """Draw the errors on one kind of data beside those at the population, the bound, the predicted rate and floors."""
    for one in population + part:
        told = f"m = {one['n_samples']:,}" if one["n_samples"] else POPULATION
        line = {"color": COLOURS[one["n_samples"]], "linestyle": "-", "marker": ""}
        draw_curve(one["round"], one["error"], ax=ax, label=told, ylabel="", options=line)
        if one["data"] == FIXED:
            ends, level = np.array([0.62, 1.0]) * one["round"][-1], float(np.median(one["floor"]))
            told = "floor, predicted" if one["n_samples"] == 100 else "_floor"
            ax.plot(ends, [level] * 2, color="black", linewidth=0.8, linestyle=(0, (2, 1.5)), label=told)
    trace, grey = trace_of(population), {"color": "0.45", "linewidth": 1.0}
    spectrum, entry, middle = trace.spectrum[0], trace.entry.min(), float(np.median(trace.entry))
    after = trace.rounds[trace.rounds > entry]
    bound = flute.flute_bound(spectrum, trace.rank, trace.step_size, trace.n_clients, after)
    ax.plot(after, least_constant(population)[0] * bound, label="the bound, least constant", **grey)
    t = np.linspace(entry, last, 50)
    start = float(np.interp(t[0], trace.rounds, np.median(trace.error, axis=0)))
    local = start * flute.flute_local_rate(spectrum, trace.rank, trace.step_size) ** (t - t[0])
    ax.plot(t, local, linestyle=":", label="rate $1-\\eta\\Delta/2$, predicted", **grey)
    ax.axvline(middle, color="0.7", linewidth=0.8, zorder=0)
    ax.annotate("$T_R$", (middle, 1.0), xytext=(3, 0), textcoords="offset points")


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[lf.Finding]:
    """Return the theorem's statements with their judgements."""
    runs = [(one, trace_of(one), _said(one)) for one in tables["runs"]]
    found = []
    for one, trace, said in runs:
        note = "" if one["covered"] == math.inf else "up to the round that m covers"
        until = {"constant": PROOFS, "until": one["covered"]}
        found.append(flute.judge_rate(trace, **until, allowed=ALLOWED, note=note, **said))
    found += [flute.judge_recursion(trace, one["setting"]) for one, trace, _ in runs]
    found += [flute.judge_entry(trace, allowed=ALLOWED, **said) for _, trace, said in runs]
    found += [flute.judge_staying(trace, allowed=ALLOWED, **said) for _, trace, said in runs]
    fixed = {one["n_samples"]: (one, trace) for one, trace, _ in runs if one["name"] == BASE and one["data"] == FIXED}
    for one, trace in fixed.values():
        if one["covered"] < trace.rounds[-1]:
            found.append(_beyond(one, trace))
    found += _constants([run for run in runs if run[0]["name"] not in (LARGE_STEP, FEW)])
    found += _local_rates([run[:2] for run in runs if run[0]["data"] == POPULATION and run[0]["name"] != LARGE_STEP])
    for one, _, said in runs:
        if one["data"] == FIXED and one["name"] != FEW:
            found.append(
                judge(
                    median_interval(one["error"][:, -1] / one["floor"]),
                    least=0.8,
                    most=1.1,
                    theorem=True,
                    source=f"{OWN_PREDICTION}; the range is an {OWN_THRESHOLD}",
                    note="a mean of norms is below their root mean square",
                    text="With m fixed the error ends at a floor that the perturbation of the truncation predicts",
                    where=said["where"],
                    statistic="final error over predicted root mean square, median over trials",
                )
            )
    fresh = ((one, trace) for one, trace, _ in runs if one["data"] == FRESH and one["n_samples"] in fixed)
    return found + [_fresh(one, trace, fixed[one["n_samples"]][1]) for one, trace in fresh]


def _said(one: lf.Table, *hypotheses: lf.Hypothesis) -> dict[str, Any]:
    started = flute.init_hypothesis(one["alpha"], one["dim"])
    return {"where": one["setting"], "hypotheses": (*hypotheses, started)}


def _beyond(one: lf.Table, trace: flute.FluteTrace) -> lf.Finding:
    """Judge the bound beyond the rounds that m covers, with the least constant that passes up to there."""
    constant = least_constant(one)[0]
    told = f"m = {one['n_samples']:,} covers {one['covered']:,.0f} rounds"
    return judge_failures(
        flute.bound_ratios(trace) > constant,
        text="The bound goes on holding beyond the round that m covers (the theorem does not say so)",
        source="nobody: what the theorem leaves open",
        allowed=ALLOWED,
        note=f"{told}; its least constant up to there is {constant:.2g}",
        **_said(one, flute.step_hypothesis(trace)),
    )


def _constants(runs: Any) -> list[lf.Finding]:
    """Report the least constant of every setting, and how far it moves."""
    least = [least_constant(one) for one, _, _ in runs]
    low, high = min(least)[0], max(least)[0]
    moved = (
        f"it moves from {low:.2g} to {high:.2g} over these settings; that it hardly moves with m "
        "is by the definition of the covered round: the bound falls to m^-1/2 of its scale there, as the floor does"
    )
    return [
        judge(
            constant,
            most=PROOFS,
            theorem=True,
            source=quoted("FLUTE paper, Theorem 5.5", "there exist positive constants c1 and c2"),
            text="Theorem 5.5 holds with the proof's constant, 4 x 400",
            statistic="least constant with which its bound holds in 95 % of trials, up to the covered round",
            note=moved,
            **_said(one, flute.step_hypothesis(trace)),
        )
        for constant, (one, trace, _) in zip(least, runs, strict=True)
    ]


def _local_rates(runs: Any) -> list[lf.Finding]:
    """Compare the measured rate at the population with the derivative's, where the run is long enough."""
    found = []
    for one, trace in runs:
        spectrum = trace.spectrum[0]
        predicted = math.log(flute.flute_local_rate(spectrum, trace.rank, trace.step_size))
        promised = math.log(flute.flute_rate(spectrum, trace.rank, trace.step_size))
        share = trace.error / trace.error[:, :1]
        near = (share < 1e-3) & (share > 1e-8)  # small, yet above rounding
        if near.sum(axis=1).min() < 3:
            continue
        slopes = [stats.linregress(trace.rounds[m], np.log(e[m])).slope for m, e in zip(near, trace.error, strict=True)]
        found.append(
            judge(
                median_interval(np.array(slopes) / predicted),
                least=0.99,
                most=1.01,
                theorem=True,
                source=f"{OWN_PREDICTION}; the 1 % is an {OWN_THRESHOLD}",
                text="Near the truncation the error falls by 1 - eta Delta / 2 a round",
                where=one["setting"],
                statistic="measured log rate over the predicted one, median over trials",
                detail=f"{predicted / promised:.1f} times faster than the theorem's 1 - eta Delta/16",
            )
        )
    return found


def _fresh(one: lf.Table, trace: flute.FluteTrace, fixed: flute.FluteTrace) -> lf.Finding:
    """Compare fresh with reused samples."""
    at = min(int(np.searchsorted(fixed.rounds, trace.rounds[-1])), len(fixed.rounds) - 1)
    averaged = math.sqrt(trace.step_size * float(flute.flute_gap(trace.spectrum[0], trace.rank)) / 4.0)
    return judge(
        median_interval(trace.error[:, -1] / fixed.error[:, at]),
        least=1.0,
        theorem=True,
        source="FLUTE paper, proof of Theorem 5.5, which treats the samples of Algorithm 1 as fresh",
        text="Reused samples cost no more than fresh ones (the proof treats them as fresh)",
        where=one["setting"],
        statistic="error with fresh samples over error with one data set, median over trials",
        detail=f"averaging over 4 / (eta Delta) rounds would give {averaged:.2g}",
    )
