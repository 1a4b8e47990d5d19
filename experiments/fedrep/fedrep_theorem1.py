"""FedRep paper, Theorem 1: whether the bound on the distance holds in runs, and how loose it is.

Every constant is computed from the runs. The unspecified C in the hypothesis on m is 1, and m is then what the theorem
requires. Heads of equal length have a prescribed kappa over all clients (the kappa of sets of participants is larger),
and B starts at the same distance in all directions. Unless varied, n = d = 50 and k = 2, with 100 trials of 60 rounds
under the engine "chain". Negative controls each violate one hypothesis. The simplest competitor for the rate is a bound
that treats all heads as isotropic. `experiments.fedrep.fedrep_bound_samples` asks how many samples the bound needs.

The theorem's failure probability, below 1e-28 for two or more participants, is too small for trials to measure. The
claims therefore allow a share of 5 %. Fewer failures contradict C = 1, but not the theorem, whose C is unspecified. No
failure in 100 trials leaves a share of up to 3.6 % open. For p < n the constants are computed over the sets that
occurred.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1, section 4.2.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.plotting.panels import Figures, bars, draw_predicted
from linfed.theory.fedrep.theorem1 import bound, judges, runs

from ._theorem1 import BASE, NAMES, PAIRS, RIVAL, THEOREM, Setting, moved

SUMMARY = "FedRep paper, Theorem 1: the verdict on its bound over a grid, and how loose it is"
HEADLINES = (
    {
        "claim": "dist_T <= (1 - eta E0 sigma_min^2 / 2)^(T/2) dist_0 in every round, if m is the theorem's with C = 1",
        "wording": "the distance falls geometrically, by (10)",
    },
)
PICTURES = {"looseness": 1400}
CURVES = (BASE, "step", "condition", "start", "at the rival's m")  # their curves are drawn
REDUCED = {"runs": {"without": lambda row: () if row["name"] in CURVES else ("distance",)}}
CAPTIONS = {
    "curves": "Subspace distance against rounds in four of the runs, with Theorem 1's bound at the printed exponent "
    "and at twice that exponent, and state evolution. Lines: median over trials; shaded: 10-90 %.",
    "looseness": "Log rate of the runs divided by that of the bound, at both exponents, against the step size, kappa "
    "and E_0. Markers: median over trials; bars: 10-90 %. Dotted: state evolution.",
}

FIELDS = [field.name for field in fields(runs.Theorem1Run) if field.name not in ("rounds", "distance")]
"""Sizes and constants of a run, each a column."""
GRID = "grid"
"""Name of the runs at the theorem's own m over a grid."""
MOVES: dict[str, tuple[float, ...]] = {
    "step": (0.03, 0.1, 0.3),
    "condition": (2.0, 4.0, 8.0),
    "start": (0.1, 0.3, 0.7, 0.9, 0.99),
}
"""Values of each size that varies, besides that of the base setting."""
FEW = "at the rival's m"
"""Name of the runs at the simple rule's m, which depends neither on kappa nor on E_0 and has no logarithm."""
SPOILT: dict[str, dict[str, Any]] = {
    "noise": {"noise_std": 0.5},
    "fixed samples": {"fixed": True},
    "step x 12": {"step": 12.0},
    "m = k": {"m": 2},
    "GD heads, 1 step": {"gradient_steps": 1},
    "GD heads, 10 steps": {"gradient_steps": 10},
    "p = 2 < k = 3": {"participation": 0.1, "rank": 3},
}
"""The negative controls: each violates one hypothesis, and those that depend on it."""
LARGE: dict[str, dict[str, Any]] = {
    "n = p = d = 10,000": {"n_clients": 10_000, "dim": 10_000, "n_rounds": 40},
    "n = 100,000, p = d = 1000": {"n_clients": 100_000, "dim": 1000, "participation": 0.01, "n_rounds": 40},
}
ALONE: dict[str, dict[str, Any]] = {"one client of 50, k = 1": {"rank": 1, "participation": 0.02}}


@dataclass(frozen=True, kw_only=True)
class Judged(Setting):
    """One setting at the theorem's m with C = 1, at the simple rule's m, or at another m."""

    name: str = lf.choice((GRID, FEW, BASE, *MOVES, *SPOILT, *ALONE, *PAIRS, *LARGE), GRID, label=True)
    m: int = 0
    rival_m: bool = lf.choice((False, True), False)
    fixed: bool = lf.choice((False, True), False)
    gradient_steps: int = 0

    def run(self) -> dict[str, Any]:
        """Return the run, with the prediction of state evolution if there is one."""
        problem = self.problem()
        step, needed, _ = self.constants(problem)
        m = self.m or math.ceil(self.rival if self.rival_m or needed == math.inf else needed)
        heads = lf.GradientHeads(steps=self.gradient_steps) if self.gradient_steps else lf.ExactHeads()
        data = lf.FixedSamples(m) if self.fixed else lf.FreshSamples(m)
        run = runs.theorem1_run(self.simulated(problem, step, data, heads))
        found: dict[str, Any] = {name: getattr(run, name) for name in FIELDS}
        found |= {"needed": needed, "distance": lf.LabeledArray(run.distance, round=run.rounds)}
        if m > self.rank + 1 and not self.gradient_steps and not self.fixed:
            evolution = lf.theory.state_evolution(
                problem.truth(self.seed, [0]).W[0],
                dim=self.dim,
                n_samples=m,
                participants=self.participants,
                noise_std=self.noise_std,
                delta=self.start,
                step_size=step,
                n_rounds=self.n_rounds,
            )
            found["predicted"] = lf.LabeledArray(evolution.distance, round=run.rounds)
        return found


@dataclass(frozen=True, kw_only=True)
class SameBatch:
    """A run whose QR factors are recorded."""

    heads: str = lf.choice(("exact", "gradient"), "exact")
    m: int = 10
    n_rounds: int = 30
    trials: int = 20

    def run(self) -> dict[str, Any]:
        """Return the error of ``R'R = I + eta^2 G'G``, and ``||R^{-1}||``, in every round."""
        problem = lf.SharedRepresentation(n_clients=20, dim=20, rank=2, noise_std=0.1)
        heads = lf.ExactHeads() if self.heads == "exact" else lf.GradientHeads(steps=1)
        algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9), heads=heads)
        steps = lf.iterate(
            algorithm,
            problem,
            data=lf.FreshSamples(self.m),
            participation=0.5,
            n_rounds=self.n_rounds,
            trials=self.trials,
            engine="explicit",
        )
        gap, inverse = judges.same_batch_gaps(steps, algorithm)
        rounds = range(1, self.n_rounds + 1)
        return {"gap": lf.LabeledArray(gap, round=rounds), "inverse": lf.LabeledArray(inverse, round=rounds)}


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the runs, each once, and those with recorded QR factors; quick: a few of each, small."""
    base = Judged(n_clients=12, dim=8, n_rounds=8, trials=75) if quick else Judged()
    heads = ((2, 1.0), (2, 3.0)) if quick else ((1, 1.0), (2, 1.0), (2, 4.0), (5, 1.0), (5, 4.0))
    steps, starts = ((base.step,), (base.start,)) if quick else ((0.1, 1.0), (0.3, 0.9))
    grid = lf.grid(base, **{"rank, condition": heads}, participation=(1.0, 0.5), step=steps, start=starts)
    along = [lf.grid(replace(base, name=name), **{name: MOVES[name][:: 3 if quick else 1]}) for name in MOVES]
    swept = [replace(base, name=BASE), *itertools.chain(*along)]
    known = [replace(cell, name=GRID) for cell in swept]
    spoilt = replace(base, n_clients=20, dim=10, n_rounds=100, trials=75 if quick else 100)
    named = ALONE if quick else PAIRS | LARGE | ALONE
    return {
        "runs": [
            *(cell for cell in grid if cell not in known),
            *(replace(cell, name=FEW, rival_m=True) for cell in grid if cell.step == 1.0),
            *swept,
            *(replace(spoilt, name=name, **changes) for name, changes in SPOILT.items()),
            *(replace(base, name=name, **changes) for name, changes in named.items()),
        ],
        "same_batch": [SameBatch(heads=how, trials=2 if quick else 20) for how in ("exact", "gradient")],
    }


def run_of(row: lf.Table) -> runs.Theorem1Run:
    """Return the run that is stored in a row."""
    return runs.Theorem1Run(rounds=row["round"], distance=row["distance"], **{name: row[name] for name in FIELDS})


def setting_text(row: lf.Table) -> str:
    """Return the setting of a run, as text."""
    if row["name"] in MOVES:
        return f"{NAMES[row['name']]} = {row[row['name']]:g}, m = {row['n_samples']:,}"
    if row["name"] not in (BASE, GRID, FEW):
        return f"{row['name']}, m = {row['n_samples']:,}"
    names = (("rank", "k"), ("condition", "kappa"), ("step", "step"), ("start", "dist_0"), ("participants", "p"))
    return ", ".join(f"{text} {row[name]:g}" for name, text in names) + f", m = {row['n_samples']:,}"


# --- claims --------------------------------------------------------------------------------------------------

SAYS = c.cite(
    "FedRep paper, Theorem 1, (10)",
    "Then for any t and any eta <= 1/(4 sigma_max^2), we have[:] dist(B_T, B*) <= (1 - eta E0 sigma_min^2/2)[^(T/2)] "
    "dist(B_0, B*)",
)
TO_T = c.OWN_PREDICTION.adding("Theorem 1 with ||R^-1|| <= 1, under the same events", ": ")
SAME = c.OWN_PREDICTION.adding("the normal equations of exact heads on the same batch", ": ")
NOT_SAME = c.Source("not claimed: only of exact heads", c.OWN_THRESHOLD.origin)
EXPONENTS = ((bound.PRINTED, "T/2", SAYS), (bound.SAME_BATCH, "T", TO_T))
OF_THEOREM = (GRID, BASE, *MOVES, *PAIRS, *LARGE, *ALONE)
"""Names of the runs in which the theorem applies."""
TOLERANCE = 1e-10
"""Largest violation of an identity that rounding errors can cause."""


def bounded(exponent: float, which: str, source: c.Source, names: tuple[str, ...], assumed: bool = True) -> c.Claim:
    """Return the claim that the bound holds: under the theorem's hypotheses, or whether or not they hold."""

    def judge(row: lf.Table, **given: Any) -> c.Finding:
        return judges.judge_theorem1(run_of(row), exponent=exponent, assumed=assumed, **given)

    numbers = f"C = 1 and the share {judges.RESOLUTION:g} are {c.OWN_THRESHOLD}s"
    not_claimed = c.Source(f"not claimed: {source} only under its hypotheses", c.OWN_THRESHOLD.origin)
    condition = "if m is the theorem's with C = 1" if assumed else "whether or not the hypotheses hold"
    return c.Claim(
        f"dist_T <= (1 - eta E0 sigma_min^2 / 2)^({which}) dist_0 in every round, {condition}",
        source.adding(numbers) if assumed else not_claimed,
        c.Statistic("share of trials that fail", judge),
        table="runs",
        where=c.of(name=list(names)),
        over=c.each_row,
        setting=setting_text,
    )


def falls(exponent: float, which: str, source: c.Source) -> c.Claim:
    """Return the claim that the distance falls at least as fast as the bound."""

    def judge(row: lf.Table, **given: Any) -> c.Finding:
        return judges.judge_looseness(run_of(row), exponent=exponent, **given)

    return c.Claim(
        f"The distance falls at the bound's rate or faster, exponent {which}",
        source,
        c.Statistic("log rate of the run divided by that of the bound, median over trials", judge),
        table="runs",
        where=c.of(name=[BASE, *MOVES]),
        over=c.each_row,
        setting=setting_text,
    )


def depends(name: str, rule: str = "the bound", isotropic: bool = False) -> c.Claim:
    """Return the claim that the rate depends on a size as that of a rule does; `isotropic` if it has sigma_min = 1."""

    def growth(first: lf.Table, last: lf.Table) -> Array:
        found = judges.rate_ratios(run_of(last)) / judges.rate_ratios(run_of(first))
        return np.asarray((last["smallest"] / first["smallest"]) ** 2 * found if isotropic else found)

    return c.Claim(
        f"The rate of a run depends on {NAMES[name]} as the rate of {rule} does, to a factor of 2",
        c.OWN_THRESHOLD,
        c.median(growth, "the first rate divided by the second, last setting over first, median over trials"),
        c.within(0.5, 2.0),
        table="runs",
        where=c.of(name=[BASE, name]),
        over=c.ends(name),
        setting=f"{NAMES[name]} {{0[{name}]:g}} to {{1[{name}]:g}}",
    )


OfTheSameBatch = partial(c.Claim, table="same_batch", over=c.each_row, setting="{heads} heads, m = {m}")
CLAIMS = (
    bounded(*EXPONENTS[0], (*OF_THEOREM, *SPOILT)),
    bounded(*EXPONENTS[1], OF_THEOREM),
    bounded(*EXPONENTS[0], (FEW, *SPOILT), assumed=False),
    *(falls(*one) for one in EXPONENTS),
    depends("condition"),
    depends("condition", "a bound with sigma_min = 1", isotropic=True),
    depends("start"),
    *(
        OfTheSameBatch(sentence, source, statistic, where=c.of(heads=heads), theorem=heads == "exact")
        for heads, source in (("exact", SAME), ("gradient", NOT_SAME))
        for sentence, statistic in (
            (
                "R'R = I + eta^2 G'G",
                c.identity(lambda row: row["gap"], "largest relative difference of the two sides", TOLERANCE),
            ),
            (
                "||R^-1|| <= 1, so that T may replace T/2",
                c.identity(lambda row: row["inverse"] - 1.0, "largest ||R^-1|| - 1", TOLERANCE),
            ),
        )
    ),
)


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the curves with their bounds, and the looseness."""
    return {"curves": curves(tables["runs"]), "looseness": looseness(tables["runs"])}


def curves(table: lf.Table) -> Any:
    """Draw measured distances with the bound at both exponents, and state evolution."""
    parts = (table.select(name=name) for name in (BASE, "condition", "start"))
    last = [list(part)[-1] for part in (*parts, table.select(name=FEW, participation=1.0)) if part]
    shown = lf.Table.joined(last).assign(title=title)
    with lf.panels(shown, column="title", title="{}", height=2.5) as sheet:
        for ax, row in sheet:
            run, name = run_of(row), row["name"]
            lf.plot_curves(ax, row, "round", "distance", by="name", labels={name: "measured"}, looks={name: "FedRep"})
            for exponent, line, text in ((bound.PRINTED, "-", "bound, T/2"), (bound.SAME_BATCH, "--", "bound, T")):
                ax.plot(run.rounds, np.median(run.bound(exponent), axis=0), color="0.35", linestyle=line, label=text)
            draw_predicted(ax, run.rounds, row["predicted"], label="state evolution")
            ax.set(xlabel="round", ylabel="", yscale="log")
        sheet.label("round", "subspace distance")
        sheet.legend(f"median and 10-90 % of {shown.rows[0]['trials']} trials", ncols=4)
    return sheet.figure


def title(row: lf.Table) -> str:
    """Return the title of a panel: the setting and m."""
    name = "condition" if row["name"] == BASE else row["name"]
    setting = f"k = {row['rank']}, kappa = {row['condition']:g}" if name == FEW else f"{NAMES[name]} = {row[name]:g}"
    return f"{setting}\nm = {row['n_samples']:,}"


def looseness(table: lf.Table) -> Any:
    """Draw the log rate of runs divided by that of the bound, against eta, kappa and E_0."""
    with lf.panels(table.select(name=list(MOVES)), column="name", title=lambda _: "", height=2.3) as sheet:
        for ax, varied in sheet:
            name = varied.rows[0]["name"]
            part = c.sorted_by(name)(varied + table.select(name=BASE))
            x = moved(ax, list(part), name)
            for exponent, method, text in ((0.5, THEOREM, "exponent T/2"), (1.0, RIVAL, "exponent T")):
                ratios = np.stack([judges.rate_ratios(run_of(row), exponent) for row in part], axis=1)
                bars(ax, x, ratios, method, label=text)
                expected = [np.median(judges.rate_ratios(predicted_run(row), exponent)) for row in part]
                draw_predicted(
                    ax, x, expected, linewidth=1.5, zorder=5, label="" if exponent == 1.0 else "state evolution"
                )
        sheet.axes[0, 0].set_ylabel("rate / guaranteed rate")
        sheet.legend(ncols=3)
    return sheet.figure


def predicted_run(row: lf.Table) -> runs.Theorem1Run:
    """Return a run with the distances that state evolution predicts."""
    return replace(run_of(row), distance=np.tile(row["predicted"], (row["trials"], 1)))
