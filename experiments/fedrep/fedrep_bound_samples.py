"""FedRep paper, Theorem 1: how many samples its bound needs in runs, compared with the m that it requires.

The smallest C in front of Theorem 1's m with which the bound holds in 95 % of the trials, setting by setting; m is
found by bisection. Every constant is computed from the runs. Heads of equal length have a prescribed kappa over all
clients (the kappa of sets of participants is larger), and B starts at the same distance in all directions. Unless
varied, n = d = 50 and k = 2, with 100 trials of 60 rounds under the engine "chain". The simplest baseline is
``k + 2 + d k / p``, which depends neither on kappa nor on E_0 and has no logarithm.

The theorem's failure probability, below 1e-29 for two or more participants, is too small for trials to measure. For the
first round and k = 1 it is computed by importance sampling. The theorem says that its m is sufficient, not that fewer
samples are insufficient: how tight it is, is our own question.

Figures
-------
"verdicts" : How often the bound fails (in more than 5 % of the trials, in some, in none) at every m that was tried,
    setting by setting, and the m of three rules.
"constants" : Smallest constant in front of each rule for m with which the bound holds in 95 % of the trials, against
    each varied size, with 95 % intervals.
"rules" : Smallest m with which the bound holds in 95 % of the trials, measured, against the m of each rule: one size
    varied at a time, and settings drawn at random. Bars: 95 % intervals. Line: equal.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1; section 5.1 for the figures' sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS, PAGE_WIDTH, line_style, plain_ticks, style
from linfed.plotting.panels import Figures, drawn_from
from linfed.simulation.participation import n_participants
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, cite, judge, judge_share
from linfed.statistics.intervals import least_passing, median_interval
from linfed.theory.fedrep.theorem1 import bound, judges, runs, tail

from ._theorem1 import NAMES, PAIRS, PREDICTED, RIVAL, THEOREM, Setting, moved

SUMMARY = "FedRep paper, Theorem 1: how many samples its bound needs, compared with the m that it requires"
PICTURES = {"rules": 1400}

ALLOWED = 0.05
"""Share of trials that may fail at the smallest C."""
LEAST: dict[str, tuple[Any, ...]] = {
    "condition": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    "rank": (1, 2, 3, 5, 8),
    "start": (0.1, 0.5, 0.8, 0.95, 0.99, 0.998),
    "step": (0.03, 0.2, 1.0),
    "dim": (10, 50, 200, 1000),
    "n_clients": (10, 20, 50, 200),
    "participation": (0.2, 0.5, 1.0),
}
DRAWN = "drawn"
"""Name of the settings drawn at random, on which a prediction of the smallest m is judged."""
TAILS = ((2, 4), (2, 10), (2, 50), (5, 10), (10, 10), (10, 50), (20, 50))
RULES = {"needed": "Theorem 1's m", "rival": "k + 2 + d k / p", "predicted": "`fedrep_predicted_samples`"}
ASKS = cite("FedRep paper, Theorem 1", "Suppose that m >= c(kappa^4 k^3 log(rn)/E0^2 + kappa^4 k^2 d/(E0^2 rn))")
TIGHT = OWN_THRESHOLD.adding("the theorem states that its m suffices, not that fewer samples fail", ": ")
RIVALS = (("rival", RIVAL, "k + 2 + d k / p"), ("predicted", PREDICTED, "predicted"))
"""Rules other than the theorem's: column, line style and name."""

FAILS = ("#CC6677", "#DDCC77", "#44AA99")
"""Colours for a bound that fails often, in some trials, in none."""


@dataclass(frozen=True, kw_only=True)
class Least(Setting):
    """Search for the smallest m with which the bound holds."""

    name: str = lf.choice((*LEAST, *PAIRS, DRAWN), DRAWN, label=True)

    def run(self) -> dict[str, Any]:
        """Search for the m from which no trial fails, and for the m up to which clearly too many fail."""
        problem = self.problem()
        step, needed, weak = self.constants(problem)
        top = math.ceil(self.rival)
        first = self.simulated(problem, step, lf.FreshSamples(top))
        run, failed = runs.theorem1_run(first), {}

        def count(m: int) -> int:
            if m not in failed:
                result = first if m == first.data.n_samples else self.simulated(problem, step, lf.FreshSamples(m))
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
        sizes = {"dim": self.dim, "rank": self.rank, "participants": self.participants, "start": self.start}
        predicted = bound.fedrep_predicted_samples(step_size=step, smallest=weak, allowed=ALLOWED, **sizes)
        tried = sorted(failed)
        least = least_passing(tried, [failed[m] for m in tried], self.trials, allowed=ALLOWED)
        counts = {"failed": lf.LabeledArray([failed[m] for m in tried], tried=tried)}
        names = dict(zip(("least", "least_low", "least_high"), least, strict=True))
        return {"needed": needed, "rival": self.rival, "predicted": predicted, "step_size": step, **names, **counts}


def random_settings(base: Least, count: int, seed: int = 15) -> list[Least]:
    """Return random settings, with another seed than those used to develop the prediction.

    Sizes, kappa, E_0, step size and participation are drawn from fixed ranges.
    """
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")

    cells = []
    for _ in range(count):
        rank = int(rng.integers(1, 7))
        clients, dim = int(between(10 * rank, 200)), int(between(3 * rank, 1000))
        changes = {"condition": between(1.0, 20.0) if rank > 1 else 1.0, "start": math.sqrt(1.0 - between(0.01, 0.95))}
        changes |= {"step": between(0.05, 1.0), "participation": float(rng.choice([0.5, 1.0]))}
        cells.append(replace(base, name=DRAWN, n_clients=clients, dim=dim, rank=rank, **changes))
    return cells


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A figure of the paper, and the m that the theorem would require there."""

    figure: str = lf.choice(("1", "3", "4"), "3", label=True)
    n_clients: int = 100
    dim: int = 10
    m: int = 5
    participation: float = 0.1
    rank: int = 2
    rounds: int = 200
    trials: int = 20
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return the theorem's m with C = 1, for sets that occur and for searched sets, from two initial distances."""
        problem = lf.SharedRepresentation(n_clients=self.n_clients, dim=self.dim, rank=self.rank)
        p = n_participants(self.participation, self.n_clients)
        size = {"participation": self.participation, "trials": self.trials, "seed": self.seed}
        seen = runs.theorem1_constants(problem, rank=self.rank, rounds=self.rounds, **size)[:2]
        kappas = {
            "": seen,
            "_searched": bound.searched_singular_values(problem.truth(self.seed, range(self.trials)).W, p),
        }
        random = lf.FedRep(rank=self.rank, step_size=0.1, init="random")
        first = lf.simulate(
            random, problem, data=lf.FreshSamples(self.m), rounds=0, metrics=["subspace_distance"], **size
        )
        out: dict[str, Any] = {"participants": p, "first": first.metrics["subspace_distance"][:, 0]}
        sizes = {"dim": self.dim, "rank": self.rank, "participants": p}
        with np.errstate(divide="ignore"):
            for name, (smallest, largest) in kappas.items():
                out[f"kappa{name}"] = largest / smallest
                for start, distance in (("random", out["first"]), ("half", np.full(self.trials, 0.5))):
                    found = bound.fedrep_least_samples(condition=largest / smallest, start=distance, **sizes)
                    out[f"needed_{start}{name}"] = found
        return out


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The m at which the first round has the failure probability that the theorem allows (k = 1, exact)."""

    n_clients: int = 2
    dim: int = 4
    start: float = 0.5
    draws: int = 8000

    def run(self) -> dict[str, Any]:
        """Return the smallest m, by bisection, and the theorem's; the interval covers only the importance sampling."""
        sizes = {"dim": self.dim, "participants": self.n_clients, "start": self.start}
        needed = float(bound.fedrep_least_samples(rank=1, condition=1.0, **sizes))
        allowed = -100.0 * min(math.log(self.n_clients), self.dim)

        def excess(m: int) -> tuple[float, float]:
            found, error = tail.first_round_failure(n_samples=m, draws=self.draws, **sizes)
            return found - allowed, error

        low, high = 2, 4
        while excess(high)[0] > 0.0:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if excess(middle)[0] > 0.0 else (low, middle)
        margin = 2.0 * excess(low)[1] * high / -allowed  # two standard errors of the logarithm, in samples
        ends = {"least_low": float(low - margin), "least_high": float(high + margin)}
        return {"rank": 1, "log_allowed": allowed, "needed": needed, "least": float(high), **ends}


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the searches, the first rounds and the paper's sizes; quick: a few of each, small."""
    small: dict[str, Any] = {"n_clients": 12, "dim": 8, "rounds": 8}
    least, trials = Least(**small if quick else {}), 100
    moves = {"condition": (1.0, 8.0)} if quick else LEAST
    along = [one for name, values in moves.items() for one in lf.grid(replace(least, name=name), **{name: values})]
    pairs = [replace(least, name=name, **{**changes, "trials": trials}) for name, changes in PAIRS.items()]
    figures = (("3", 10, 10, 5, 0.1), ("3", 100, 10, 5, 0.1), ("3", 1000, 10, 5, 0.1), ("3", 10_000, 10, 5, 0.1))
    figures += (("1", 100, 20, 5, 1.0), ("1", 100, 20, 20, 1.0), ("4", 100, 20, 10, 0.1))
    return {
        "least": [*along, *pairs[: 1 if quick else 2], *([] if quick else random_settings(least, 32))],
        "tail": lf.grid(Tail(draws=500 if quick else 8000), **{"n_clients, dim": TAILS[: 1 if quick else None]}),
        "sizes": lf.grid(Sizes(), **{"figure, n_clients, dim, m, participation": figures[: 2 if quick else None]}),
    }


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


def constant(row: lf.Table, base: str = "needed") -> tuple[float, float, float]:
    """Return the smallest constant in front of a rule for m with which the bound holds, and its interval."""
    low, high = row["least_low"], row["least_high"]
    return row["least"] / row[base], max(low, row["rank"]) / row[base], high / row[base]


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the map of verdicts, the smallest constants, and the rules for m."""
    table = tables["least"]
    with style():
        return {"rules": rules(table), "verdicts": verdicts(table), "constants": constants(table)}


def verdicts(table: lf.Table) -> Any:
    """Draw the values of m that were tried in every setting, coloured by how often the bound fails."""
    import matplotlib.pyplot as plt

    rows = [row for row in table if row["name"] != DRAWN][::-1]
    figure, ax = plt.subplots(figsize=(PAGE_WIDTH, 0.9 + 0.15 * len(rows)), layout="constrained")
    for place, row in enumerate(rows):
        count = np.asarray(row["failed"])
        kinds = {
            "fails in over 5 %": (FAILS[0], count > ALLOWED * row["trials"]),
            "in some": (FAILS[1], (count > 0) & (count <= ALLOWED * row["trials"])),
            "in none": (FAILS[2], count == 0),
        }
        for text, (colour, mask) in kinds.items():
            at = row["tried"][mask]
            ax.plot(at, np.full(len(at), place), "o", color=colour, markersize=3.5, label=text)
        ax.plot(row["rival"], place, "D", color="black", fillstyle="none", label="k + 2 + d k / p")
        ax.plot(row["predicted"], place, "x", color="black", markersize=5, label="predicted")
        ax.plot(row["needed"], place, "|", color="black", markersize=9, markeredgewidth=2, label="Theorem 1, C = 1")
    ax.set_yticks(range(len(rows)), [searched(row) for row in rows])
    ax.set(xscale="log", xlabel="samples m of a client and round")
    plain_ticks(ax)
    labels = dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(labels.values(), labels.keys(), ncols=6, loc="outside upper center", title="the bound, in its trials")
    return drawn_from(figure, sum(rows, lf.Table()))


def constants(table: lf.Table) -> Any:
    """Draw the smallest constants of Theorem 1 and of the other rules against each varied size."""
    import matplotlib.pyplot as plt

    names = [name for name in NAMES if len(table.select(name=name))]
    figure, axes = plt.subplots(
        1, len(names), figsize=(PAGE_WIDTH, 2.3), layout="constrained", sharey=True, squeeze=False
    )
    for ax, name in zip(axes[0], names, strict=True):
        rows = list(table.select(name=name))
        x = moved(ax, rows, name)
        for base, method, text in (("needed", THEOREM, "Theorem 1"), *RIVALS):
            found = np.array([constant(row, base) for row in rows])
            middle, low, high = np.where(np.isfinite(found), found, np.nan).T
            ax.errorbar(
                x, middle, yerr=(middle - low, high - middle), **{**line_style(method), "capsize": 1.5, "label": text}
            )
    plain_ticks(axes[0, 0])
    axes[0, 0].set_ylabel("least constant that passes")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=3, loc="outside upper center")
    return drawn_from(figure, table.select(name=names))


def rules(table: lf.Table) -> Any:
    """Draw the smallest m, measured, against the m of each rule."""
    import matplotlib.pyplot as plt

    names = [name for name in (DRAWN, *NAMES) if len(table.select(name=name))]
    looks = {DRAWN: ("0.6", ".", "none")} | dict(zip(NAMES, KINDS, strict=False))
    figure, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.9), layout="constrained", sharey=True)
    for ax, (base, _, text) in zip(axes, (("needed", THEOREM, "Theorem 1, C = 1"), *RIVALS), strict=True):
        for name in names:
            rows = list(table.select(name=name))
            predictions, found = np.array([[row[base], row["least"]] for row in rows]).T
            ends = [[max(row["least_low"], row["rank"]), row["least_high"]] for row in rows]
            low, high = np.where(np.isfinite(ends), ends, np.array([[row["least"]] * 2 for row in rows])).T
            shape = {**line_style(looks[name]), "linestyle": "none", "elinewidth": 0.7}
            text_of = "random settings" if name == DRAWN else f"{NAMES[name]} varied"
            bars = (np.maximum(0.0, found - low), np.maximum(0.0, high - found))
            ax.errorbar(predictions, found, yerr=bars, label=text_of, **shape)
        ax.set(xscale="log", yscale="log", xlabel=f"$m$: {text}")
        ends = 1.0, ax.get_ylim()[1]
        ax.plot(ends, ends, color="0.35", linewidth=0.7, zorder=1, label="equal")
        ax.set_ylim(ends)
        plain_ticks(ax)
    axes[0].set_ylabel("smallest $m$, measured")
    figure.legend(*axes[0].get_legend_handles_labels(), ncols=5, loc="outside upper center")
    return drawn_from(figure, table)


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return the findings on the smallest constants, on their range, and on the other rules."""
    table, out = tables["least"], []
    statistic = f"smallest constant with which the bound holds in {100 * (1 - ALLOWED):g} % of the trials"
    for row in table:
        fields = {"setting": searched(row), "statistic": statistic, "source": f"{ASKS}; the 1 is {OWN_THRESHOLD}"}
        detail = f"m = {row['least']:g} of {row['needed']:.4g}"
        out.append(judge(constant(row), claimed_high=1.0, claim="C = 1 is sufficient", detail=detail, **fields))
    for row in tables["tail"]:
        out.append(
            judge(
                constant(row),
                claimed_high=1.0,
                claim="C = 1 is sufficient for the theorem's failure probability in the first round, k = 1",
                setting=f"p = {row['n_clients']}, d = {row['dim']}, dist_0 = {row['start']:g}",
                statistic="smallest constant with which a first round fails no more often, by importance sampling",
                source=f"{ASKS}; the 1 is {OWN_THRESHOLD}, the distribution of the first round is {OWN_PREDICTION}",
                detail=f"m = {row['least']:g} of {row['needed']:.3g} for exp({row['log_allowed']:.0f})",
            )
        )
    seen, unseen = [row for row in table if row["name"] != DRAWN], list(table.select(name=DRAWN))
    for rows, which in ((seen, "all but the drawn ones"), (unseen, "drawn at random")):
        where = f"{len(rows)} settings, {which}"
        if rows:
            note = "the rule was developed on these settings" if rows is seen else ""
            out += [spread(rows, where, base, text) for base, text in RULES.items()]
            out += predicted(rows, where, note)
    for name, least, claimed in (("condition", 4.0, 4.0), ("start", 0.8, 2.0), ("rank", 2, 3.0)):
        rows = [row for row in table.select(name=name) if row[name] >= least]
        out += growth(name, rows[0], rows[-1], claimed) if len(rows) > 1 else []
    for row in tables["sizes"]:
        for start, word in (("random", "random B"), ("half", "distance 0.5")):
            searched_for = np.median(row[f"needed_{start}_searched"])
            out.append(
                judge(
                    median_interval(row[f"needed_{start}"] / row["m"]),
                    claimed_high=1.0,
                    claim="The paper's figures have at least the m that Theorem 1 requires with C = 1",
                    setting=f"Figure {row['figure']}: n = {row['n_clients']:,}, p = {row['participants']:,}, {word}",
                    statistic="m of the theorem divided by m of the figure, median over trials",
                    source=OWN_THRESHOLD,
                    detail=f"m = {np.median(row[f'needed_{start}']):.3g}; over searched sets {searched_for:.3g}",
                )
            )
    return out


def predicted(rows: list[lf.Table], place: str, note: str) -> list[Finding]:
    """Judge how close the predicted smallest m is: in the worst setting, and in most settings."""
    middle, low, high = np.array([constant(row, "predicted") for row in rows]).T
    factor = np.exp(np.abs(np.log(middle)))
    ends = max(1.0, np.maximum(low, 1.0 / high).max()), np.maximum(high, 1.0 / low).max()
    fields = {"setting": place, "source": f"{OWN_PREDICTION}, without a fitted number", "note": note}
    text = "`fedrep_predicted_samples` predicts the smallest m to a factor of"
    return [
        judge((factor.max(), *ends), claimed_high=3.0, claim=f"{text} 3", statistic="factor, worst setting", **fields),
        judge_share(
            factor <= 2.0, 0.75, claim=f"{text} 2 in three of four settings", statistic="share of settings", **fields
        ),
    ]


def spread(rows: list[lf.Table], setting: str, base: str, text: str) -> Finding:
    """Judge how much the smallest constant in front of a rule varies over settings."""
    found = np.log10([constant(row, base) for row in rows]).T
    width = np.ptp(found[0]), max(0.0, found[1].max() - found[2].min()), found[2].max() - found[1].min()
    return judge(
        width,
        claimed_high=1.0,
        claim=f"The smallest m is proportional to {text}, to a factor of 10",
        setting=setting,
        statistic="orders of magnitude between the smallest constants of two settings, at most",
        source=TIGHT if base == "needed" else f"{OWN_PREDICTION}, without a fitted number",
        detail=f"from {10 ** found[0].min():.2g} to {10 ** found[0].max():.2g}",
    )


def growth(name: str, first: lf.Table, last: lf.Table, claimed: float) -> list[Finding]:
    """Judge the power by which the smallest m grows with kappa, 1/E_0 or k, against the theorem's.

    The theorem's m is sufficient and thus bounds the power from above; whether it is tight is our own question.
    """
    size = [1.0 / (1.0 - row["start"] ** 2) if name == "start" else row[name] for row in (first, last)]
    ends = [[row[end] - row["rank"] for end in ("least", "least_low", "least_high")] for row in (first, last)]
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = [np.log(ends[1][i] / ends[0][j]) / np.log(size[1] / size[0]) for i, j in ((0, 0), (1, 2), (2, 1))]
    symbol = "1 / E0" if name == "start" else NAMES[name]
    fields = {"setting": f"from {size[0]:.3g} to {size[1]:.3g}", "statistic": "power between the two ends"}
    text = f"The smallest m - k grows with {symbol} at most half a power faster than Theorem 1's m"
    return [
        judge(
            tuple(powers),
            claimed_high=claimed + 0.5,
            claim=text,
            source=f"{ASKS}; the half is {OWN_THRESHOLD}",
            **fields,
        ),
        judge(
            tuple(powers),
            claimed_low=claimed - 0.5,
            claimed_high=claimed + 0.5,
            claim=f"Theorem 1's m is tight in {symbol}, up to half a power",
            source=TIGHT,
            **fields,
        ),
    ]
