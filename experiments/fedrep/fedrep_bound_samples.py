"""FedRep paper, Theorem 1: how many samples its bound needs in runs, compared with the m that it requires.

The smallest C in front of Theorem 1's m with which the bound holds in 95 % of the trials, setting by setting; m is
found by bisection. Every constant is computed from the runs. Heads of equal length have a prescribed kappa over all
clients (the kappa of sets of participants is larger), and B starts at the same distance in all directions. Unless
varied, n = d = 50 and k = 2, with 160 trials of 60 rounds under the engine "chain". The simplest competitor is
``k + 2 + d k / p``, which depends neither on kappa nor on E_0 and has no logarithm.

The paper's introduction states another m as a consequence of the analysis. As printed, it is
``kappa^2 k^3 (log(n) + kappa^2 k d/n)``. Its term in d/n then grows faster in k than the theorem's, so the brackets may
be misplaced: the smaller reading ``kappa^2 (k^3 log(n) + kappa^2 k d/n)`` has the term of (11). Both are judged. They
do not depend on E_0, which the introduction takes for a constant. They are asked from E_0 = 1/2 on, if all clients take
part, and of the settings that are not drawn.

The theorem says that its m is sufficient, not that fewer samples are insufficient: how tight it is, is our own
question. `experiments.fedrep.fedrep_bound_sizes` asks what m the theorem requires at the sizes of the paper's figures,
and for the failure probability that it states, which is too small for trials to measure.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures, intervals
from linfed.statistics.intervals import Measured, as_factor, for_each, largest_of, least_passing
from linfed.theory.fedrep.theorem1 import bound, judges, runs

from ._theorem1 import BASE, NAMES, PAIRS, Setting

SUMMARY = "FedRep paper, Theorem 1: how many samples its bound needs, compared with the m that it requires"
PICTURES = {"rules": 1400}
CAPTIONS = {
    "verdicts": "How often the bound fails (in more than 5 % of the trials, in some, in none) at every m that was "
    "tried, setting by setting, and the m of three rules.",
    "rules": "Smallest m with which the bound holds in 95 % of the trials, measured, against the m of each rule: one "
    "size varied at a time, and settings drawn at random. Bars: 95 % intervals. Line: equal.",
}

ALLOWED = 0.05
"""Share of trials that may fail at the smallest C."""
LEAST: dict[str, tuple[Any, ...]] = {
    "condition": (2.0, 4.0, 8.0, 16.0, 32.0),
    "rank": (1, 3, 5, 8),
    "start": (0.1, 0.8, 0.95, 0.99, 0.998),
    "step": (0.03, 0.2),
    "dim": (10, 200, 1000),
    "n_clients": (10, 20, 200),
    "participation": (0.2, 0.5),
}
"""Values of each size that varies, besides that of the base setting."""
DRAWN = "drawn"
"""Name of the settings drawn at random, on which a prediction of the smallest m is judged."""
RULES = {
    "needed": "Theorem 1, C = 1",
    "rival": "k + 2 + d k / p",
    "stated": "introduction, C = 1",
    "smaller": "introduction, smaller reading",
    "predicted": "predicted",
}
"""Rules for m, and their names in figures."""
READINGS = ("stated", "smaller")
"""The rules that read the introduction's m."""


@dataclass(frozen=True, kw_only=True)
class Least(Setting):
    """Search for the smallest m with which the bound holds."""

    name: str = lf.choice((BASE, *LEAST, *PAIRS, DRAWN), DRAWN, label=True)
    trials: int = 160  # no failure among them is enough for intervals that hold for all settings together

    def run(self) -> dict[str, Any]:
        """Search for the m from which no trial fails, and for the m up to which clearly too many fail."""
        problem = self.problem()
        step, needed, weak = self.constants(problem)
        top = math.ceil(self.rival)
        run = runs.theorem1_run(self.simulated(problem, step, lf.FreshSamples(top)))
        failed = {top: int(judges.beyond_bound(run).sum())}

        def count(m: int) -> int:
            if m not in failed:
                result = self.simulated(problem, step, lf.FreshSamples(m))
                at_m = replace(run, distance=result.metrics["subspace_distance"])
                failed[m] = int(judges.beyond_bound(at_m).sum())
            return failed[m]

        while count(top):
            top *= 2
        for most in (0, ALLOWED * self.trials, 2.4 * ALLOWED * self.trials):
            low, high = self.rank, top  # at m = k B does not change
            while high - low > max(1, 0.04 * high):
                middle = min(max(low + 1, round(math.sqrt(low * high))), high - 1)
                low, high = (low, middle) if count(middle) <= most else (middle, high)
        predicted = bound.fedrep_predicted_samples(
            dim=self.dim,
            rank=self.rank,
            participants=self.participants,
            start=self.start,
            step_size=step,
            smallest=weak,
            allowed=ALLOWED,
        )
        tried = sorted(failed)
        counts = [failed[m] for m in tried]
        least = least_passing(tried, counts, self.trials, allowed=ALLOWED)
        rules = {"needed": needed, "rival": self.rival, "predicted": predicted}
        found = dict(zip(("least", "least_low", "least_high"), least, strict=True))
        return rules | found | {"failed": lf.LabeledArray(counts, tried=tried)}


def random_settings(base: Least, count: int, seed: int = 15) -> list[Least]:
    """Return random settings, with another seed than those used to develop the prediction.

    Sizes, kappa, E_0, step size and participation are drawn from fixed ranges.
    """
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")

    def drawn(rank: int) -> Least:
        return replace(
            base,
            name=DRAWN,
            rank=rank,
            n_clients=int(between(10 * rank, 200)),
            dim=int(between(3 * rank, 1000)),
            condition=between(1.0, 20.0) if rank > 1 else 1.0,
            start=math.sqrt(1.0 - between(0.01, 0.95)),
            step=between(0.05, 1.0),
            participation=float(rng.choice([0.5, 1.0])),
        )

    return [drawn(rank=int(rng.integers(1, 7))) for _ in range(count)]


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the searches, the first rounds and the paper's sizes; quick: a few of each, small."""
    base = Least(name=BASE, n_clients=12, dim=8, n_rounds=8, trials=100) if quick else Least(name=BASE)
    moves = {"condition": (8.0,)} if quick else LEAST
    along = [one for name, values in moves.items() for one in lf.grid(replace(base, name=name), **{name: values})]
    pairs = [replace(base, name=name, **{**changes, "trials": base.trials}) for name, changes in PAIRS.items()]
    pairs = pairs[:1] if quick else [*pairs, *random_settings(base, 32)]
    return {"least": [base, *along, *pairs]}


def rule_m(row: Any, rule: str) -> float:
    """Return the m of a rule, with a constant of 1 in front of it."""
    if rule not in READINGS:
        return float(row[rule])
    kappa, k, n = row["condition"], row["rank"], row["n_clients"]
    outside = k**3 if rule == "stated" else 1  # the factor k^3 stands in front of the brackets, or of the logarithm
    return float(kappa**2 * (k**3 * math.log(n) + outside * kappa**2 * k * row["dim"] / n))


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return each search with each rule, and the rule's m."""

    def is_asked(row: lf.Table, rule: str) -> bool:
        near = row["participation"] == 1.0 and row["start"] ** 2 <= 0.5 and row["name"] != DRAWN
        return bool(rule not in READINGS or near)

    def with_rule(row: lf.Table, rule: str) -> dict[str, Any]:
        chosen = "drawn at random" if row["name"] == DRAWN else "all but the drawn ones"
        kept = row.rows[0] | {"inverse_E0": 1.0 / (1.0 - row["start"] ** 2), "chosen": chosen}
        return kept | {"rule": rule, "rule_m": rule_m(row, rule)}

    rows = [with_rule(row, rule) for rule in RULES for row in tables["least"] if is_asked(row, rule)]
    return {"rules": lf.Table(rows)}


# --- claims --------------------------------------------------------------------------------------------------


ASKS = c.cite("FedRep paper, Theorem 1", "Suppose that m >= c(kappa^4 k^3 log(rn)/E0^2 + kappa^4 k^2 d/(E0^2 rn))")
STATES = c.cite("FedRep paper, section 1", "we only need O(kappa^2 k^3 (log(n) + kappa^2 kd[/]n)) samples per client")
SMALLER = c.reading(STATES.adding("read as kappa^2 (k^3 log(n) + kappa^2 k d/n)"))
PAPERS = {
    "needed": ("Theorem 1's m", ASKS),
    "stated": ("the introduction's m", STATES),
    "smaller": ("the smaller reading of the introduction's m", SMALLER),
}
"""The paper's rules in sentences, and their sources."""
TIGHT = c.OWN_THRESHOLD.adding("the theorem states that its m suffices, not that fewer samples fail", ": ")
NOT_FITTED = c.OWN_PREDICTION.adding("without a fitted number", ", ")
HOLDS = f"smallest constant with which the bound holds in {100 * (1 - ALLOWED):g} % of the trials"
ORDERS = "orders of magnitude between the smallest constants of two settings, at most"


def searched(row: lf.Table) -> str:
    """Return the setting of a search, as text."""
    if row["name"] == DRAWN:
        kappa = f"kappa {row['condition']:.3g}, " if row["rank"] > 1 else ""
        sizes = f"n {row['n_clients']}, p/n {row['participation']:g}, d {row['dim']}, k {row['rank']}"
        return f"{sizes}, {kappa}dist_0 {row['start']:.3g}, step {row['step']:.2g}"
    if row["name"] not in NAMES:
        return str(row["name"])
    everybody = row["name"] != "n_clients" or row["participation"] == 1.0
    return f"{NAMES[row['name']] if everybody else 'n'} = {row[row['name']]:g}"


def constant(row: lf.Table, *, confidence: float = 0.95) -> Measured:
    """Return the smallest constant in front of a rule's m, with its interval."""
    given = row["tried"], row["failed"], row["trials"]
    least, low, high = least_passing(*given, allowed=ALLOWED, confidence=confidence)
    return least / row["rule_m"], max(low, row["rank"]) / row["rule_m"], high / row["rule_m"]


def magnitude(row: lf.Table, inverse: bool, *, confidence: float = 0.95) -> Measured:
    """Return the decimal logarithm of the smallest constant, or of its inverse."""
    least, low, high = np.log10(constant(row, confidence=confidence))
    return (-least, -high, -low) if inverse else (least, low, high)


def spread(part: lf.Table) -> c.Measurement:
    """Return the orders of magnitude between the smallest constants of two settings."""
    ends = [
        largest_of(magnitude, [(row, inverse) for row in part], confidence=for_each(0.95, 2))
        for inverse in (False, True)
    ]
    width, low, high = np.sum(ends, axis=0)
    return c.Measurement((width, max(0.0, low), high), f"from {10 ** -ends[1][0]:.2g} to {10 ** ends[0][0]:.2g}")


def factor(row: lf.Table, *, confidence: float = 0.95) -> Measured:
    """Return the factor between the smallest m and that of a rule."""
    return as_factor(constant(row, confidence=confidence))


def worst_factor(part: lf.Table) -> Measured:
    """Return the largest factor between the smallest m and that of a rule, with its interval."""
    return largest_of(factor, [(row,) for row in part])


def note(part: lf.Table) -> str:
    """Return a caveat on settings that were known when the prediction was made."""
    return "" if part.rows[0]["name"] == DRAWN else "the rule was developed on these settings"


OfRules = partial(c.Claim, table="rules", over=c.each("chosen"), setting="{points} settings, {chosen}")
OfPrediction = partial(OfRules, where=c.of(rule="predicted"), note=note)


def proportional(rule: str, text: str, source: c.Source) -> c.Claim:
    """Return the claim that the smallest m is proportional to that of a rule."""
    sentence = f"The smallest m is proportional to {text}, to a factor of 10"
    return OfRules(sentence, source, c.measured(ORDERS, spread, c.at_most(1.0)), where=c.of(rule=rule))


def growth(rule: str, name: str, smallest: float, claimed: float = 0.0) -> Iterator[c.Claim]:
    """Yield claims on the power by which the smallest m grows with kappa, 1/E_0 or k, against the m of a rule.

    The theorem's m, or the introduction's, is sufficient and thus bounds the power from above; whether it is tight is
    our own question. The introduction's is a sum of powers: it is judged by the difference of the two powers.
    """

    def power(*rows: lf.Table) -> Any:
        first, last = ([row[end] - row["rank"] for end in ("least", "least_low", "least_high")] for row in rows)
        ratios = np.array(last)[[0, 1, 2]] / np.array(first)[[0, 2, 1]]
        if rule in READINGS:
            ratios *= rows[0]["rule_m"] / rows[1]["rule_m"]
        with np.errstate(divide="ignore", invalid="ignore"):
            return tuple(np.log(ratios) / np.log(rows[1][size] / rows[0][size]))

    size, symbol = ("inverse_E0", "1 / E0") if name == "start" else (name, NAMES[name])
    whose, says = PAPERS[rule]
    bounded = f"The smallest m - k grows with {symbol} at most half a power faster than {whose}"
    less = ", less the introduction's" if rule in READINGS else ""
    for sentence, source, required in (
        (bounded, says.adding(f"the half is {c.OWN_THRESHOLD}"), c.at_most(claimed + 0.5)),
        (f"{whose[0].upper()}{whose[1:]} is tight in {symbol}, up to half a power", TIGHT, c.near(claimed, 0.5)),
    ):
        yield c.Claim(
            sentence,
            source,
            c.measured(f"power between the two ends{less}", power, required),
            table="rules",
            where=(c.of(rule=rule, name=[BASE, name]), c.only(lambda row: row[name] >= smallest)),
            over=c.ends(name),
            setting=f"from {{0[{size}]:.3g}} to {{1[{size}]:.3g}}",
        )


def enough(rule: str, sentence: str) -> c.Claim:
    """Return the claim that the m of a rule is sufficient with a constant of 1."""
    return c.Claim(
        sentence,
        c.OWN_THRESHOLD.adding(f"the 1 is in place of the unnamed constant in {PAPERS[rule][1]}", ": "),
        c.measured(HOLDS, constant, c.at_most(1.0)),
        table="rules",
        where=c.of(rule=rule),
        over=c.each_row,
        setting=searched,
        detail=lambda row: f"m = {row['least']:g} of {row['rule_m']:.4g}",
    )


CLAIMS = (
    enough("needed", "C = 1 is sufficient"),
    enough("stated", "The introduction's m is sufficient with a constant of 1"),
    enough("smaller", "The smaller reading of the introduction's m is sufficient with a constant of 1"),
    *(proportional(rule, text, TIGHT) for rule, (text, _) in PAPERS.items()),
    proportional("rival", "k + 2 + d k / p", NOT_FITTED),
    proportional("predicted", "`fedrep_predicted_samples`", NOT_FITTED),
    OfPrediction(
        "`fedrep_predicted_samples` predicts the smallest m to a factor of 3",
        NOT_FITTED,
        c.measured("factor, worst setting", worst_factor, c.at_most(3.0)),
    ),
    OfPrediction(
        "`fedrep_predicted_samples` predicts the smallest m to a factor of 2 in three of four settings",
        NOT_FITTED,
        c.share(lambda part: [factor(row)[0] <= 2.0 for row in part], "share of settings", c.above(0.75)),
    ),
    *growth("needed", "condition", 4.0, claimed=4.0),
    *growth("needed", "start", 0.8, claimed=2.0),
    *growth("needed", "rank", 2, claimed=3.0),
    *(claim for rule in READINGS for claim in (*growth(rule, "condition", 4.0), *growth(rule, "rank", 2))),
)


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the map of verdicts, and the rules for m."""
    rules = [rule for rule in RULES if rule != "smaller"]
    return {"rules": rules_figure(tables["rules"].select(rule=rules)), "verdicts": verdicts(tables["least"])}


COLOURS = ("#CC6677", "#DDCC77", "#44AA99")
"""Colours for a bound that fails often, in some trials, in none."""


def verdicts(table: lf.Table) -> Any:
    """Draw the values of m that were tried in every setting, coloured by how often the bound fails."""
    varied = c.only(lambda row: row["name"] != DRAWN)(table)
    rows = list(varied)[::-1]
    with lf.panels(varied, height=0.9 + 0.15 * len(rows)) as sheet:
        ax = sheet.axes[0, 0]
        for place, row in enumerate(rows):
            count, most = row["failed"], ALLOWED * row["trials"]
            kinds = (count > most, (count > 0) & (count <= most), count == 0)
            for colour, text, chosen in zip(COLOURS, ("fails in over 5 %", "in some", "in none"), kinds, strict=True):
                at = row["tried"][chosen]
                ax.plot(at, np.full(len(at), place), "o", color=colour, markersize=3.5, label=text)
            ax.plot(row["rival"], place, "D", color="black", fillstyle="none", label="k + 2 + d k / p")
            ax.plot(row["predicted"], place, "x", color="black", markersize=5, label="predicted")
            ax.plot(row["needed"], place, "|", color="black", markersize=9, markeredgewidth=2, label="Theorem 1, C = 1")
        ax.set_yticks(range(len(rows)), [searched(row) for row in rows])
        sheet.label("samples m of a client and round", xscale="log")
        sheet.legend("the bound, in its trials", ncols=6)
    return sheet.figure


def rules_figure(table: lf.Table) -> Any:
    """Draw the smallest m, measured, against the m of each rule."""
    looks = {DRAWN: ("0.6", ".", "none")} | dict(zip(NAMES, KINDS, strict=False)) | {BASE: ("black", "D", "none")}
    with lf.panels(table, column="rule", title=lambda _: "", height=2.9, sharey=True) as sheet:
        for ax, part in sheet:
            for name in (name for name in looks if name in part.unique("name")):
                rows = part.select(name=name)
                label = {DRAWN: "random settings", BASE: BASE}.get(name) or f"{NAMES[name]} varied"
                found = [row["rule_m"] * np.array(constant(row)) for row in rows]
                intervals(ax, [row["rule_m"] for row in rows], found, looks[name], label=label, capsize=0)
            ax.set(xscale="log", yscale="log", xlabel=f"$m$: {RULES[part.rows[0]['rule']]}")
            ends = 1.0, ax.get_ylim()[1]
            ax.plot(ends, ends, color="0.35", linewidth=0.7, zorder=1, label="equal")
            ax.set_ylim(ends)
        sheet.axes[0, 0].set_ylabel("smallest $m$, measured")
        sheet.legend(ncols=5)
    return sheet.figure
