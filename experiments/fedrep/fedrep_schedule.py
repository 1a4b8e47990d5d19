"""FedRep's best step size in every round with label noise, against simpler schedules and other uses of the heads.

`linfed.theory.best_step_schedule` minimises the mean squared angle after every round, for heads with second moment I.
It converges to the limit of heads that are fitted only to a round's samples. Competing schedules are constant step
sizes, ``a/t``, ``a/(t + t0)``, and the average of the iterates of a constant step size. Competing heads are fitted only
in every tenth round, or are remembered (one gradient step a round, with B's step size or a fixed one), or are known.

With heads of condition number 3 no step size is the best for all directions; there a matrix step, or averages, compete.
With 5 of 50 clients a round, a head's step size must not fall with the rounds, because its client takes part in few of
them. All competitors are tuned on separate trials; the sizes are our choice. B starts at the same distance from B* in
all runs. With known heads B is not rotated against B*, so that the true heads belong to its columns. Heads that take
gradient steps start at 0.

Figures
-------
"" : Mean squared sine of the principal angles to B*, divided by the bound for known heads, against rounds. Top:
    step-size schedules. Bottom: uses of the heads. One column of panels per client population.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithms 1 and 2; Polyak and Juditsky 1992.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import draw_level, line_style
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures, label_ends
from linfed.statistics.findings import Finding, judge

from ._fedrep_noisy import NEAR, OWN, Noisy, at_the_end, over
from ._fedrep_rivals import Averaged, KnownHeads, MatrixStep, RefittedEvery

SUMMARY = "FedRep with label noise: the best step size in every round, against other schedules and head updates"
PICTURES = {"": 1400}

BEST, CONSTANT, OVER_T, SHIFTED, AVERAGED = ("best schedule", "constant step", "a/t", "a/(t + t0)", "averaged iterates")
RARELY, REMEMBER, KNOWN, MATRIX = ("heads every 10 rounds", "gradient heads", "known heads", "matrix step")
KEPT, BOTH = ("gradient heads, step 0.2", "gradient heads, averaged")
HEAD_STEP = 0.2
EQUAL, UNEQUAL, SOME = ("heads of second moment I", "heads of condition number 3", "5 of 50 clients a round")
RULES = {
    EQUAL: (BEST, CONSTANT, OVER_T, SHIFTED, AVERAGED, RARELY, REMEMBER, KEPT, KNOWN),
    UNEQUAL: (BEST, SHIFTED, AVERAGED, MATRIX, REMEMBER, BOTH),
    SOME: (BEST, SHIFTED, REMEMBER, KEPT),
}
SHOWN = ((BEST, CONSTANT, OVER_T, SHIFTED, AVERAGED, MATRIX), (RARELY, REMEMBER, KEPT, BOTH, KNOWN))
"""Rules in the first row of panels, and in the second."""
SHORT = {BEST: "best for equal heads", RARELY: "every 10 rounds", REMEMBER: "gradient", KEPT: "gradient, step 0.2"}
SHORT |= {BOTH: "gradient, averaged", KNOWN: "known", CONSTANT: "constant", AVERAGED: "averaged", MATRIX: "matrix"}
"""Labels of rules at the ends of lines."""
CHANGES: dict[str, dict[str, Any]] = {UNEQUAL: {"condition": 3.0}, SOME: {"n_clients": 50, "participants": 5}}

SCALES, SHIFTS = (0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6), (1, 3, 10, 30)
CONSTANTS = (0.003, 0.005, 0.007, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2)
GRIDS: dict[str, tuple[tuple[float, ...], tuple[int, ...]]] = {
    CONSTANT: (CONSTANTS, (0,)),
    OVER_T: (SCALES, (0,)),
    **dict.fromkeys((AVERAGED, BOTH), (CONSTANTS[3:], (0, 30, 100))),
    MATRIX: ((1.0,), SHIFTS),
    **dict.fromkeys((SHIFTED, RARELY, REMEMBER, KEPT), (SCALES, SHIFTS)),
}
"""The tuned values of a and t0 for each rule; for averages t0 is the round after which they start."""

ABOVE, BELOW = {"claimed_low": 1.0, "strict": True}, {"claimed_high": 1.0, "strict": True}
NO_STEP = "No step size is the best for all directions: {} stays above the limit"
GRADIENT = "Heads with one gradient step a round"
SAID: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    (EQUAL, BEST, "limit", "The best schedule reaches the limit of refitted heads", NEAR),
    (EQUAL, CONSTANT, BEST, "The best schedule has a smaller final angle than every constant step size", ABOVE),
    (EQUAL, OVER_T, BEST, "a/t, with a tuned, is as good as the best schedule", NEAR),
    (EQUAL, SHIFTED, BEST, "a/(t + t0), with both tuned, is as good as the best schedule", NEAR),
    (EQUAL, AVERAGED, "limit", "Averaged iterates of a constant step size reach the limit", NEAR),
    (EQUAL, RARELY, "limit", "Fitting the heads less often costs more samples, not fewer", ABOVE),
    (EQUAL, REMEMBER, "limit", f"{GRADIENT} get below the limit", BELOW),
    (EQUAL, REMEMBER, "bound", f"{GRADIENT} reach the bound of known heads", NEAR),
    (EQUAL, KEPT, "limit", f"{GRADIENT}, of fixed size, get below the limit", BELOW),
    (EQUAL, KNOWN, "bound", "Gradient steps with known heads reach the bound of known heads", NEAR),
    (UNEQUAL, BEST, "limit", NO_STEP.format("the schedule for equal heads"), ABOVE),
    (UNEQUAL, SHIFTED, "limit", NO_STEP.format("a/(t + t0)"), ABOVE),
    (UNEQUAL, SHIFTED, "limit_of_a", "The final angle of a/(t + t0) is the predicted one", NEAR),
    (UNEQUAL, MATRIX, "limit", "A matrix step reaches the limit", NEAR),
    (UNEQUAL, AVERAGED, "limit", "Averaged iterates of a constant step size reach the limit", NEAR),
    (UNEQUAL, REMEMBER, "limit", f"{GRADIENT} get below the limit", BELOW),
    (UNEQUAL, BOTH, "bound", f"{GRADIENT}, with averaged iterates, reach the bound of known heads", NEAR),
    (SOME, BEST, "limit", "The best schedule reaches the limit of refitted heads", NEAR),
    (SOME, SHIFTED, BEST, "a/(t + t0), with both tuned, is as good as the best schedule", NEAR),
    (SOME, REMEMBER, "limit", f"{GRADIENT} get below the limit", BELOW),
    (SOME, KEPT, "limit", f"{GRADIENT}, of fixed size, get below the limit", BELOW),
)
"""The claims: panel, rule, what its final angle is divided by, text, and claimed range of the ratio."""
TARGETS = {
    BEST: "that of the best schedule",
    "limit": "the limit of refitted heads",
    "limit_of_a": "the limit of its own a",
    "bound": "the bound of known heads",
}


@dataclass(frozen=True, kw_only=True)
class Rule(Noisy):
    """One rule: a step-size schedule with a head update."""

    panel: str = lf.choice((EQUAL, *CHANGES), EQUAL, label=True)
    rule: str = lf.choice(
        (BEST, CONSTANT, OVER_T, SHIFTED, AVERAGED, RARELY, REMEMBER, KEPT, KNOWN, MATRIX, BOTH), BEST
    )
    tuning_trials: int = 6
    coarse: int = 1  # every how many values of a grid one is tried

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return super().cost * (1.0 + self.tuning_trials * len(self.tried) / self.trials)

    @property
    def tried(self) -> list[dict[str, Any]]:
        """The tuning grid of a rule, empty if it is not tuned."""
        scales, shifts = (part[:: self.coarse] for part in GRIDS.get(self.rule, ((), ())))
        return [{"a": a, "t0": t0} for a, t0 in itertools.product(scales, shifts)]

    @property
    def world(self) -> dict[str, Any]:
        """Arguments of `lf.simulate`; averages of B need an engine without a rotating frame."""
        return super().world | ({"engine": "projected"} if self.rule in (AVERAGED, BOTH) else {})

    def steps(self, a: float = 1.0, t0: float = 0) -> Any:
        """Return the step size of every round, or one for all."""
        if self.rule == BEST:
            return lf.theory.best_step_schedule(**self.whole)
        if self.rule in (CONSTANT, AVERAGED, BOTH):
            return a
        forget = self.rule not in (REMEMBER, KEPT, RARELY, KNOWN)  # exact fits absorb k/m of the residual
        return a / ((1.0 - forget * self.rank / self.n_samples) * (np.arange(1.0, self.rounds + 1) + t0))

    def algorithm(self, a: float = 1.0, t0: float = 0) -> lf.Algorithm:
        """Return the rule's algorithm."""
        made: dict[str, Any] = {
            AVERAGED: partial(Averaged, after=t0),
            BOTH: partial(Averaged, after=t0, heads=lf.GradientHeads()),
            RARELY: RefittedEvery,
            REMEMBER: partial(lf.FedRep, heads=lf.GradientHeads()),
            KEPT: partial(lf.FedRep, heads=lf.GradientHeads(step_size=HEAD_STEP)),
            KNOWN: KnownHeads,
            MATRIX: partial(MatrixStep, spread=self.noise_std**2 / (self.n_samples - self.rank - 1)),
        }
        init: Any = self.untwisted if self.rule == KNOWN else self.init
        options = {"rank": self.rank, "step_size": self.steps(a, t0), "init": init}
        algorithm: lf.Algorithm = made.get(self.rule, lf.FedRep)(**options)
        return algorithm

    @property
    def untwisted(self) -> lf.GivenFactors:
        """B at its distance from B* without a rotation, and the true heads, which then belong to its columns."""
        truth, rng = self.problem.truth(self.world["seed"], range(self.trials)), np.random.default_rng(self.seed)
        outside = rng.standard_normal(truth.B.shape)
        outside = orthonormalize(outside - truth.B @ (truth.B.mT @ outside))
        return lf.GivenFactors(np.sqrt(1.0 - self.delta**2) * truth.B + self.delta * outside, truth.W)

    def run(self) -> dict[str, Any]:
        """Tune the rule; return the angles along the rounds, and their predictions."""
        chosen, columns = dict[str, Any](), dict[str, Any]()
        if self.tried:
            world = self.world | {"trials": self.tuning_trials}
            algorithms = [self.algorithm(**one) for one in self.tried]
            tuning = lf.tune(algorithms, self.problem, metric=at_the_end, score="final", quantile=0.9, **world)
            chosen, columns = self.tried[tuning.best], tuning.columns(self.tried)
        elif self.rule == KNOWN:  # the best t0 of its own recursion: c = 1, heads without noise
            first = (self.dim - self.rank) * self.noise_std**2 * (1.0 - self.delta**2) / self.delta**2
            chosen = {"t0": (self.rank * (self.dim + 2) + first) / (self.n_clients * self.n_samples)}
        predicted = self.panel != UNEQUAL and self.rule in (BEST, CONSTANT, OVER_T, SHIFTED)
        return columns | self.measured(self.algorithm(**chosen), scale=chosen.get("a", 1.0), predicted=predicted)


def cells(quick: bool) -> dict[str, list[Rule]]:
    """Return all rules in all panels; quick: few rounds, trials and settings."""
    base = Rule(rounds=20, trials=8, tuning_trials=2, coarse=7) if quick else Rule()
    points = [(panel, rule) for panel, rules in RULES.items() for rule in rules]
    return {"rules": [replace(base, panel=panel, rule=rule, **CHANGES.get(panel, {})) for panel, rule in points]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the curves of the rules, divided by the bound of known heads: schedules above, uses of the heads below."""
    table = tables["rules"]
    looks = {rule: line_style("", turn) for turn, rule in enumerate(table.unique("rule"))}
    with lf.panels(table, column="panel", row=2, title="{}", height=4.6, sharex=True, sharey=True) as sheet:
        for line, names in enumerate(SHOWN):
            for ax, part in sheet.row(line):
                best = part.select(rule=BEST)
                for row in part.select(rule=[name for name in names if name in part.unique("rule")]):
                    t, mean = row["round"][1:], row["mean_square"].mean(axis=0)[1:]
                    bound = row["bound"] * row["rounds"] / t
                    shape = {"markevery": 5, "label": SHORT.get(row["rule"], row["rule"]), **looks[row["rule"]]}
                    ax.plot(t, mean / bound, **shape)
                ax.set(xscale="log", yscale="log", ylim=(0.8, 30.0), xlim=(t[0], t[-1]))
                label_ends(ax)
                draw_level(ax, 1.0, label="bound of known heads")
                limit = best["limit"] / best["bound"]
                ax.axhline(limit, color="black", linewidth=0.9, label="limit of heads refitted in every round")
        above = "mean squared sine of the angles\nover the bound of known heads"
        sheet.label("round", *[f"{what}\n{above}" for what in ("step-size schedules", "uses of the heads")])
        sheet.legend(f"mean of {table.rows[0]['trials']} trials")
    return {"": sheet.figure}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the final angle of every rule."""
    out = []
    for panel, rule, target, text, limits in SAID:
        row, best = (tables["rules"].select(panel=panel, rule=one) for one in (rule, BEST))
        edge = "a" in str(row.rows[0].get("at_grid_edge") or "").split(", ")
        fields: dict[str, Any] = {"claim": text, "setting": panel, **OWN, **limits}
        fields |= {"statistic": f"final mean squared sine, {rule}, divided by {TARGETS[target]}"}
        fields |= {"note": f"the tuned a of {rule} lies at the edge of its grid" if edge else ""}
        out.append(judge(over(row, best if target == BEST else row[target]), **fields))
    return out
