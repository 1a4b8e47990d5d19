"""FedRep's best step in every round under label noise, beside simpler rules for steps, and other uses of the heads.

`linfed.theory.best_step_schedule` leaves the least mean squared angle after every round, for heads of second moment I;
it tends to the limit of heads that are fitted to a round's samples alone. Rivals for the steps: constant ones, ``a/t``,
``a/(t + t0)``, the average of the iterates of a constant step. Rivals for the heads: fitted in every tenth round only,
remembered (one gradient step a round, of the size of B's, or of a fixed one), known. With heads of condition number 3
no step size is the best for all directions: a matrix step, or averages, for that. With 5 of 50 clients a round a head's
step must not fall with the rounds, of which its client sees few. All rivals are tuned on separate trials; the sizes are
chosen here. B starts at one distance from B* in all; where heads are known it is not turned against B*, so that the
true heads are those of its columns, and where they take gradient steps they start at 0.

Figures
-------
"" : The mean squared sine of the angles to B* over what known heads would leave, against rounds, for rules of steps and
    of heads; a panel for each kind of clients.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithms 1 and 2; Polyak and Juditsky 1992.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import draw_level, look
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures
from linfed.statistics.findings import Finding, judge

from ._fedrep_noisy import NEAR, OWN, Noisy, at_the_end, over
from ._fedrep_rivals import Averaged, KnownHeads, MatrixStep, RefittedEvery

SUMMARY = "FedRep under label noise: the best step in every round, beside rivals for steps and heads"

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
"""Of each rule the tuned a, and t0: of averages the rounds before they begin."""

ABOVE, BELOW = {"least": 1.0, "strict": True}, {"most": 1.0, "strict": True}
NO_STEP = "No step size is the best for all directions: {} is above the limit"
SAID: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    (EQUAL, BEST, "limit", "The best schedule reaches the limit of heads of a round's samples", NEAR),
    (EQUAL, CONSTANT, BEST, "The best schedule ends below every constant step", ABOVE),
    (EQUAL, OVER_T, BEST, "a/t, with a tuned, is as good as the best schedule", NEAR),
    (EQUAL, SHIFTED, BEST, "a/(t + t0), with both tuned, is as good as the best schedule", NEAR),
    (EQUAL, AVERAGED, "limit", "Averaged iterates of a constant step reach the limit", NEAR),
    (EQUAL, RARELY, "limit", "Heads that are fitted more rarely cost more, not less", ABOVE),
    (EQUAL, REMEMBER, "limit", "Heads by one gradient step a round, which remember, come below the limit", BELOW),
    (EQUAL, REMEMBER, "bound", "Heads by one gradient step a round reach the bound of known heads", NEAR),
    (EQUAL, KEPT, "limit", "So do they with a fixed step on heads", BELOW),
    (EQUAL, KNOWN, "bound", "With known heads gradient steps reach their bound", NEAR),
    (UNEQUAL, BEST, "limit", NO_STEP.format("the schedule for equal heads"), ABOVE),
    (UNEQUAL, SHIFTED, "limit", NO_STEP.format("a/(t + t0)"), ABOVE),
    (UNEQUAL, SHIFTED, "limit_of_a", "a/(t + t0) ends where its own formula says", NEAR),
    (UNEQUAL, MATRIX, "limit", "A matrix step reaches the limit", NEAR),
    (UNEQUAL, AVERAGED, "limit", "Averaged iterates of a constant step reach the limit", NEAR),
    (UNEQUAL, REMEMBER, "limit", "Heads by one gradient step a round, which remember, come below the limit", BELOW),
    (UNEQUAL, BOTH, "bound", "With averaged iterates they reach the bound of known heads", NEAR),
    (SOME, BEST, "limit", "The best schedule reaches the limit of heads of a round's samples", NEAR),
    (SOME, SHIFTED, BEST, "a/(t + t0), with both tuned, is as good as the best schedule", NEAR),
    (SOME, REMEMBER, "limit", "Heads by one gradient step a round, which remember, come below the limit", BELOW),
    (SOME, KEPT, "limit", "So do they with a fixed step on heads", BELOW),
)
"""Of each panel and rule what its angle is held against, what is said, and the range."""
TARGETS = {
    BEST: "that of the best schedule",
    "limit": "the limit of heads of a round's samples",
    "limit_of_a": "the limit of its own a",
    "bound": "the bound of known heads",
}


@dataclass(frozen=True, kw_only=True)
class Rule(Noisy):
    """One rule for steps and heads."""

    panel: str = EQUAL
    rule: str = BEST
    tuning_trials: int = 6
    coarse: int = 1  # every how many values of a grid are tried

    @property
    def cost(self) -> float:
        """Long runs first."""
        return super().cost * (1.0 + self.tuning_trials * len(self.tried) / self.trials)

    @property
    def tried(self) -> list[dict[str, Any]]:
        """The settings of a rule that is tuned."""
        scales, shifts = (part[:: self.coarse] for part in GRIDS.get(self.rule, ((), ())))
        return [{"a": a, "t0": t0} for a, t0 in itertools.product(scales, shifts)]

    @property
    def world(self) -> dict[str, Any]:
        """What every run is told; the mean of B lies in no rotating frame."""
        return super().world | ({"engine": "projected"} if self.rule in (AVERAGED, BOTH) else {})

    def steps(self, a: float = 1.0, t0: float = 0) -> Any:
        """Return the step of every round, or of all."""
        if self.rule == BEST:
            return lf.theory.best_step_schedule(**self.whole)
        if self.rule in (CONSTANT, AVERAGED, BOTH):
            return a
        forget = self.rule not in (REMEMBER, KEPT, RARELY, KNOWN)  # then a fit absorbs k/m of the residual
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
        own = {"rank": self.rank, "step_size": self.steps(a, t0), "init": init}
        algorithm: lf.Algorithm = made.get(self.rule, lf.FedRep)(**own)
        return algorithm

    @property
    def untwisted(self) -> lf.GivenFactors:
        """B at its distance from B* without a turn, so that the true heads are those of its columns, and these."""
        truth, rng = self.problem.truth(self.world["seed"], range(self.trials)), np.random.default_rng(self.seed)
        outside = rng.standard_normal(truth.B.shape)
        outside = orthonormalize(outside - truth.B @ (truth.B.mT @ outside))
        return lf.GivenFactors(np.sqrt(1.0 - self.delta**2) * truth.B + self.delta * outside, truth.W)

    def run(self) -> dict[str, Any]:
        """Tune the rule, and return the angles along the rounds, and what theory says of them."""
        chosen, columns = dict[str, Any](), dict[str, Any]()
        if self.tried:
            world = self.world | {"trials": self.tuning_trials}
            algorithms = [self.algorithm(**one) for one in self.tried]
            tuning = lf.tune(algorithms, self.problem, metric=at_the_end, score="final", quantile=0.9, **world)
            chosen, columns = self.tried[tuning.best], tuning.columns(self.tried)
        elif self.rule == KNOWN:  # the best of its own recursion: c = 1, heads without noise
            first = (self.dim - self.rank) * self.noise_std**2 * (1.0 - self.delta**2) / self.delta**2
            chosen = {"t0": (self.rank * (self.dim + 2) + first) / (self.n_clients * self.n_samples)}
        told = self.panel != UNEQUAL and self.rule in (BEST, CONSTANT, OVER_T, SHIFTED)
        return columns | self.measured(self.algorithm(**chosen), scale=chosen.get("a", 1.0), predicted=told)


def cells(quick: bool) -> dict[str, list[Rule]]:
    """Return all rules for heads of either kind; quick: few rounds, trials and settings."""
    base = Rule(rounds=20, trials=8, tuning_trials=2, coarse=7) if quick else Rule()
    points = [(panel, rule) for panel, rules in RULES.items() for rule in rules]
    return {"rules": [replace(base, panel=panel, rule=rule, **CHANGES.get(panel, {})) for panel, rule in points]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return the rules' curves over the known heads' bound."""
    table = tables["rules"]
    looks = {rule: look("", turn) for turn, rule in enumerate(table.values("rule"))}
    with lf.page(table, column="panel", title="{}", height=3.7, sharey=True) as sheet:
        for ax, part in sheet:
            for row in part:
                t, mean = row["round"][1:], row["mean_square"].mean(axis=0)[1:]
                bound = row["bound"] * row["rounds"] / t
                ax.plot(t, mean / bound, label=row["rule"], markevery=5, **looks[row["rule"]])
            best = part.where(rule=BEST)
            draw_level(ax, 1.0, label="bound of known heads")
            ax.axhline(best["limit"] / best["bound"], color="black", linewidth=0.9, label="limit of a round's heads")
            ax.set(xscale="log", yscale="log", ylim=(0.8, 30.0))
        sheet.label("round", "mean squared sine of the angles\nover the bound of known heads")
        sheet.legend(f"mean of {table.rows[0]['trials']} trials", ncols=4)
    return {"": sheet.figure}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return how every rule ends."""
    out = []
    for panel, rule, target, text, limits in SAID:
        row, best = (tables["rules"].where(panel=panel, rule=one) for one in (rule, BEST))
        edge = "a" in str(row.rows[0].get("at_edge") or "").split(", ")
        said: dict[str, Any] = {"text": text, "where": panel, **OWN, **limits}
        said |= {"statistic": f"mean squared sine at the end, {rule}, over {TARGETS[target]}"}
        said |= {"note": f"the tuned a of {rule} lies at the edge of its grid" if edge else ""}
        out.append(judge(over(row, best if target == BEST else row[target]), **said))
    return out
