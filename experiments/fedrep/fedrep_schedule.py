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

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithms 1 and 2; Polyak and Juditsky 1992.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import draw_level, line_style
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures, label_ends
from linfed.statistics.intervals import mean_ratio

from ._fedrep_noisy import Noisy, end
from ._fedrep_rivals import Averaged, KnownHeads, MatrixStep, RefittedEvery

SUMMARY = "FedRep with label noise: the best step size in every round, against other schedules and head updates"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "Mean squared sine of the principal angles to B*, divided by the bound for known heads, against rounds. Top: "
    "step-size schedules. Bottom: uses of the heads. One column of panels per client population. Without trials "
    "that diverged."
}
SIDE = c.OWN_PREDICTION.adding("without a free parameter", ", ")
OWN = SIDE.adding("10 % is our threshold")

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
"""The tuned values of a and t0 for each rule; for averages t0 is the round after which they start."""


@dataclass(frozen=True, kw_only=True)
class Rule(Noisy):
    """One rule: a step-size schedule with a head update."""

    panel: str = lf.choice((EQUAL, *CHANGES), EQUAL, label=True)
    rule: str = lf.choice(
        (BEST, CONSTANT, OVER_T, SHIFTED, AVERAGED, RARELY, REMEMBER, KEPT, KNOWN, MATRIX, BOTH), BEST
    )
    tuning_trials: int = 10
    coarse: int = 1  # every how many values of a grid one is tried

    @property
    def tried(self) -> list[dict[str, Any]]:
        """The tuning grid of a rule, empty if it is not tuned."""
        scales, shifts = (part[:: self.coarse] for part in GRIDS.get(self.rule, ((), ())))
        return [{"a": a, "t0": t0} for a, t0 in itertools.product(scales, shifts)]

    @property
    def engine(self) -> str:
        """Engine of the runs: averages of B need one without a rotating frame."""
        return "projected" if self.rule in (AVERAGED, BOTH) else super().engine

    def steps(self, a: float, t0: float) -> Any:
        """Return the step size of every round, or one for all."""
        if self.rule == BEST:
            return self.predicted(lf.theory.best_step_schedule)
        if self.rule in (CONSTANT, AVERAGED, BOTH):
            return a
        forget = self.rule not in (REMEMBER, KEPT, RARELY, KNOWN)  # exact fits absorb k/m of the residual
        return a / ((1.0 - forget * self.rank / self.n_samples) * (np.arange(1.0, self.n_rounds + 1) + t0))

    def algorithm(self, a: float = 1.0, t0: float = 0.0) -> Any:
        """Return the rule's algorithm."""
        made: dict[str, Any] = {
            AVERAGED: partial(Averaged, after=int(t0)),
            BOTH: partial(Averaged, after=int(t0), heads=lf.GradientHeads()),
            RARELY: RefittedEvery,
            REMEMBER: partial(lf.FedRep, heads=lf.GradientHeads()),
            KEPT: partial(lf.FedRep, heads=lf.GradientHeads(step_size=HEAD_STEP)),
            KNOWN: KnownHeads,
            MATRIX: partial(MatrixStep, spread=self.noise_std**2 / (self.n_samples - self.rank - 1)),
        }
        init: Any = self.untwisted if self.rule == KNOWN else self.init
        return made.get(self.rule, lf.FedRep)(rank=self.rank, step_size=self.steps(a, t0), init=init)

    @property
    def untwisted(self) -> lf.GivenFactors:
        """B at its distance from B* without a rotation, and the true heads, which then belong to its columns."""
        truth, rng = self.problem.truth(self.run_seed, range(self.trials)), np.random.default_rng(self.seed)
        outside = rng.standard_normal(truth.B.shape)
        outside = orthonormalize(outside - truth.B @ (truth.B.mT @ outside))
        return lf.GivenFactors(np.sqrt(1.0 - self.delta**2) * truth.B + self.delta * outside, truth.W)

    def run(self) -> dict[str, Any]:
        """Tune the rule; return the angles along the rounds, and their predictions."""
        a, t0, columns = 1.0, 0.0, dict[str, Any]()
        if self.tried:
            tuning = lf.tune(
                [self.algorithm(**one) for one in self.tried],
                self.problem,
                data=lf.FreshSamples(self.n_samples),
                n_rounds=self.n_rounds,
                participation=self.participation,
                trials=self.tuning_trials,
                seed=self.run_seed,
                engine=self.engine,
                metric=at_the_end,
                score="final",
                quantile=0.9,
            )
            a, t0 = self.tried[tuning.best].values()
            columns = tuning.columns(self.tried)
        elif self.rule == KNOWN:  # the best t0 of its own recursion: c = 1, heads without noise
            first = (self.dim - self.rank) * self.noise_std**2 * (1.0 - self.delta**2) / self.delta**2
            t0 = (self.rank * (self.dim + 2) + first) / (self.n_clients * self.n_samples)
        predicted = self.panel != UNEQUAL and self.rule in (BEST, CONSTANT, OVER_T, SHIFTED)
        return columns | self.measured(self.algorithm(a, t0), scale=a, predicted=predicted)


def at_the_end(result: lf.Result) -> Array:
    """Return the mean squared sines at the end of a run, (trials,)."""
    B = orthonormalize(result.final.for_prediction().array("B"))
    if result.engine == "chain":  # the first axes of its frame span B*
        outside = B[:, result.algorithm.learned_rank :]
    else:
        assert result.problem is not None
        truth = result.problem.truth(result.seed, range(result.trials))
        outside = B - truth.B @ (truth.B.mT @ B)
    squares: Array = np.square(outside).sum(axis=(-2, -1)) / B.shape[-1]
    return squares


def cells(quick: bool) -> dict[str, list[Rule]]:
    """Return all rules in all panels; quick: few rounds, trials and settings."""
    base = Rule(n_rounds=20, trials=8, tuning_trials=2, coarse=7) if quick else Rule()
    points = [(panel, rule) for panel, rules in RULES.items() for rule in rules]
    return {"rules": [replace(base, panel=panel, rule=rule, **CHANGES.get(panel, {})) for panel, rule in points]}


LIMIT, LIMIT_OF_A, BOUND = "limit", "limit_of_a", "bound"
TARGETS = {
    BEST: "that of the best schedule",
    LIMIT: "the limit of refitted heads",
    LIMIT_OF_A: "the limit of its own a",
    BOUND: "the bound of known heads",
}


def reachable(row: lf.Table, target: str) -> float:
    """Return a target for all rounds, or for those that a rule averages: it falls like one over their number."""
    left_out = row["t0"] if row["rule"] in (AVERAGED, BOTH) else 0
    return float(row[target] * row["n_rounds"] / (row["n_rounds"] - left_out))


def over(rule: str, target: str) -> c.Statistic:
    """Return the final mean squared sine of a rule, divided by the best schedule's, or by a column."""
    words = f"final mean squared sine, {rule}, divided by {TARGETS[target]}"
    if target == BEST:
        return c.ratio(end, rule, BEST, words, by="rule", measure=mean_ratio)
    words += " for as many rounds as it averages" * (rule in (AVERAGED, BOTH))
    return c.measured(words, lambda row: mean_ratio(end(row), reachable(row, target)), rows=c.of(rule=rule))


def asked(panel: str, sentence: str, rule: str, target: str, required: c.Range) -> c.Claim:
    """Return a claim on the final angle of a rule, divided by a target."""
    source, used = OWN if required == NEAR else SIDE, [rule, BEST] if target == BEST else rule
    where = c.of(panel=panel, rule=used)
    return c.Claim(sentence, source, over(rule, target), required, where=where, setting="{panel}", note=diverged)


def diverged(*rows: lf.Table) -> str:
    """Return how many trials of the rules diverged: without their ends no mean is known."""
    ends = [(row["rule"], np.isnan(end(row))) for part in rows for row in part]
    return c.join_notes(*(f"{lost.sum()} of {len(lost)} trials diverged: {rule}" for rule, lost in ends if lost.any()))


NEAR, ABOVE, BELOW = c.within(0.9, 1.1), c.above(1.0), c.below(1.0)
STAYS = "With unequal heads {} stays above the limit"
GRADIENT = "Heads with one gradient step a round"
REACHED = "Averaged iterates of a constant step size reach the limit of the averaged rounds"
REACHED_WITH_HEADS = f"{GRADIENT}, with averaged iterates, reach the bound of known heads in the averaged rounds"
CLAIMS = (
    asked(EQUAL, "The best schedule reaches the limit of refitted heads", BEST, LIMIT, NEAR),
    asked(
        EQUAL,
        "The best schedule has a smaller final angle than the best of ten constant step sizes",
        CONSTANT,
        BEST,
        ABOVE,
    ),
    asked(EQUAL, "a/t, with a tuned, is as good as the best schedule", OVER_T, BEST, NEAR),
    asked(EQUAL, "a/(t + t0), with both tuned, is as good as the best schedule", SHIFTED, BEST, NEAR),
    asked(EQUAL, REACHED, AVERAGED, LIMIT, NEAR),
    asked(EQUAL, "Fitting the heads in every tenth round only costs more samples, not fewer", RARELY, LIMIT, ABOVE),
    asked(EQUAL, f"{GRADIENT} get below the limit", REMEMBER, LIMIT, BELOW),
    asked(EQUAL, f"{GRADIENT} reach the bound of known heads", REMEMBER, BOUND, NEAR),
    asked(EQUAL, f"{GRADIENT}, of fixed size, get below the limit", KEPT, LIMIT, BELOW),
    asked(EQUAL, "Gradient steps with known heads reach the bound of known heads", KNOWN, BOUND, NEAR),
    asked(UNEQUAL, STAYS.format("the schedule for equal heads"), BEST, LIMIT, ABOVE),
    asked(UNEQUAL, STAYS.format("a/(t + t0), with both tuned,"), SHIFTED, LIMIT, ABOVE),
    asked(UNEQUAL, "The final angle of a/(t + t0) is the predicted one", SHIFTED, LIMIT_OF_A, NEAR),
    asked(UNEQUAL, "A matrix step reaches the limit", MATRIX, LIMIT, NEAR),
    asked(
        UNEQUAL,
        REACHED,
        AVERAGED,
        LIMIT,
        NEAR,
    ),
    asked(UNEQUAL, f"{GRADIENT} get below the limit", REMEMBER, LIMIT, BELOW),
    asked(
        UNEQUAL,
        REACHED_WITH_HEADS,
        BOTH,
        BOUND,
        NEAR,
    ),
    asked(SOME, "The best schedule reaches the limit of refitted heads", BEST, LIMIT, NEAR),
    asked(SOME, "a/(t + t0), with both tuned, is as good as the best schedule", SHIFTED, BEST, NEAR),
    asked(SOME, f"{GRADIENT} get below the limit", REMEMBER, LIMIT, BELOW),
    asked(SOME, f"{GRADIENT}, of fixed size, get below the limit", KEPT, LIMIT, BELOW),
)

SHOWN = ((BEST, CONSTANT, OVER_T, SHIFTED, AVERAGED, MATRIX), (RARELY, REMEMBER, KEPT, BOTH, KNOWN))
"""Rules in the first row of panels, and in the second."""
SHORT = {BEST: "best for equal heads", RARELY: "every 10 rounds", REMEMBER: "gradient", KEPT: "gradient, step 0.2"}
SHORT |= {BOTH: "gradient, averaged", KNOWN: "known", CONSTANT: "constant", AVERAGED: "averaged", MATRIX: "matrix"}
"""Labels of rules at the ends of lines."""


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the curves of the rules, divided by the bound of known heads: schedules above, uses of the heads below."""
    table = tables["rules"]
    looks = {rule: line_style("", turn) for turn, rule in enumerate(table.unique("rule"))}
    with lf.panels(table, column="panel", row=2, title="{}", height=4.6, sharex=True, sharey=True) as sheet:
        for line, names in enumerate(SHOWN):
            for ax, part in sheet.row(line):
                best = part.select(rule=BEST)
                for row in part.select(rule=[name for name in names if name in part.unique("rule")]):
                    t, kept = row["round"][1:], np.isfinite(end(row))
                    mean = row["mean_square"][kept, 1:].mean(axis=0)
                    bound = row["bound"] * row["n_rounds"] / t
                    shape = {"markevery": 5, "label": SHORT.get(row["rule"], row["rule"]), **looks[row["rule"]]}
                    ax.plot(t, mean / bound, **shape)
                ax.set(xscale="log", yscale="log", ylim=(0.8, 30.0), xlim=(t[0], t[-1]))
                label_ends(ax)
                draw_level(ax, 1.0, label="bound of known heads")
                limit = best["limit"] / best["bound"]
                ax.axhline(limit, color="black", linewidth=0.9, label="limit of heads refitted in every round")
        sheet.label("round", *[f"{what}:\nsquared sine / bound" for what in ("schedules", "uses of the heads")])
        sheet.legend(f"mean of {table.rows[0]['trials']} trials")
    return {"": sheet.figure}
