"""How fast the shortcut draft's (2) to (5) lose a B near B*: the rounds until the distance exceeds 0.5, over m and eta.

d = 20, k = 2, n = 50, heads of length sqrt(2), shortcuts of root mean square length 0.5, noise std 0.1; B starts at a
given distance. Samples are fixed, or new in every round; some settings have more clients. Two competitors start from
the same B: the gauss-seidel order and FedRep. A run that has not exceeded 0.5 by the last round is censored: its number
of rounds is infinite, and it is counted and not left out.

The prediction for fixed samples has no fitted parameter (`linfed.theory.shortcut_loss_rounds`). B leaves span(B*) in
two ways. The mean of the updates would take about ``m/(eta (k + 1))`` rounds. Their random part, which repeats in every
round, would take ``sqrt(m n)/eta``. The shorter of the two counts. (On new samples the random parts of different
updates are independent, and only the mean counts.) The claim that B is lost is about runs with at least three times the
predicted number of rounds.

References: shortcut draft, (2) to (5); docs/shortcut.md, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import draw_level, shades
from linfed.numerics.linalg import span_distance
from linfed.plotting.panels import Figures, bars
from linfed.statistics import median_interval
from linfed.theory.shortcut import judge_loss_exponent, shortcut_loss_rounds

from ._shortcut import LEARNED, Sized

SUMMARY = "Shortcut draft: how fast (2) to (5) lose a B near B*, over m and eta, measured and predicted"
CAPTIONS = {
    "": (
        "Number of rounds until the updates (2)-(5), started near B*, exceed subspace distance 0.5, against m, for "
        "several step sizes. Markers: median over trials; bars: 10-90 %; lines: prediction."
    )
}
PICTURES = {"": 1400}

FIXED, FRESH = ("fixed", "fresh")
WORDS = {FIXED: "fixed", FRESH: "new"}
CLOSED, SEIDEL, FEDREP = ("(2)-(5)", "gauss-seidel", "FedRep")
ORDERS: dict[str, Any] = {CLOSED: "jacobi", SEIDEL: "gauss-seidel"}
THEORY = (("predicted", "predicted, fixed samples", 1.0, "-"), ("mean_alone", "$m/(\\eta (k + 1))$", 0.7, ":"))
"""Columns that are drawn as lines: their labels, widths and dashes."""


@dataclass(frozen=True, kw_only=True)
class Loss(Sized):
    """One method from one initial B, at one step size and number of samples; all sizes are our choice."""

    method: str = lf.choice((*ORDERS, FEDREP), CLOSED)
    kind: str = lf.choice((FIXED, FRESH), FIXED)
    n_samples: int = 10
    step_size: float = 0.3
    start: float = 0.3
    n_rounds: int = 600
    trials: int = 16
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Run until every trial has exceeded distance `LEARNED`, or to the last round."""
        problem, seed = self.with_shortcuts(0.5), (self.seed, self.n_clients, self.n_samples)
        data = (lf.FixedSamples if self.kind == FIXED else lf.FreshSamples)(self.n_samples)
        k, eta, start = self.rank, self.step_size, lf.AtDistance(self.start)
        algorithm: lf.Algorithm = lf.FedRep(rank=k, step_size=eta, init=start)
        if self.method in ORDERS:
            solver = lf.ClosedForm(order=ORDERS[self.method])
            algorithm = lf.FedRepShortcut(rank=k, step_size=eta, init=start, solver=solver)
        B_star, lost = problem.truth(seed, range(self.trials)).B, np.full(self.trials, np.inf)
        assert B_star is not None
        for step in lf.iterate(algorithm, problem, data=data, n_rounds=self.n_rounds, trials=self.trials, seed=seed):
            dist = span_distance(step.after.array("B"), B_star)
            lost[np.isinf(lost) & (dist > LEARNED)] = step.number
            if np.isfinite(lost).all():
                break
        predicted = math.nan
        if (self.method, self.kind) == (CLOSED, FIXED):
            n, m, d = self.n_clients, self.n_samples, self.dim
            predicted = shortcut_loss_rounds(
                self.start, n_clients=n, n_samples=m, dim=d, rank=k, step_size=eta, level=LEARNED
            )
        alone = self.n_samples / (eta * (k + 1))
        return {"lost": lost, "dist": dist, "predicted": predicted, "mean_alone": alone}


def cells(quick: bool) -> dict[str, list[Loss]]:
    """Return (2) to (5) over m and eta on both kinds of samples and with more clients, and the competitors."""
    base, many, rival_rounds = (Loss(n_rounds=60, trials=36), 60, 10) if quick else (Loss(), 200, 200)
    samples, some = ((20, 10), (10,)) if quick else ((160, 80, 40, 20, 10), (160, 40, 10))
    steps, starts = ((0.1, 0.3), (0.3,)) if quick else ((0.03, 0.1, 0.3, 1.0), (0.05, 0.3))
    found = lf.grid(base, start=starts, step_size=steps, n_samples=samples)
    found += lf.grid(base, kind=[FRESH], step_size=steps, n_samples=samples)
    found += lf.grid(base, n_clients=[many], step_size=[steps[-2]], n_samples=some)
    found += lf.grid(base, method=(SEIDEL, FEDREP), kind=(FIXED, FRESH), n_rounds=[rival_rounds], n_samples=some)
    return {"rounds": found}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the rounds against m, with a line for each step size, and the predictions."""
    table = fewest(tables["rounds"].select(method=CLOSED))
    table = table.assign(panel=lambda row: f"{WORDS[row['kind']]} samples, start at {row['start']:g}")
    looks = shades(sorted(table.unique("step_size")))
    last, trials = (table.rows[0][name] for name in ("n_rounds", "trials"))
    with lf.panels(table, column="panel", title="{}", height=2.9, sharey=True) as sheet:
        for ax, part in sheet:
            for eta, line in part.groupby("step_size"):
                colour, marker, _ = looks[eta]
                m, runs = np.atleast_1d(line["n_samples"]), np.minimum(np.atleast_2d(line["lost"]).T, 2.0 * last)
                late = np.median(runs, axis=0) > last
                for part_of, filled in ((~late, "full"), (late, "none")):
                    if part_of.any():
                        told, dots = f"$\\eta$ = {eta:g}" if filled == "full" else "_late", (colour, marker, "none")
                        x, y = m[part_of], runs[:, part_of]
                        bars(ax, x, y, dots, label=told, markersize=3, fillstyle=filled, elinewidth=None)
                for name, text, width, dashes in THEORY:
                    if np.isfinite(line[name]).all() and (eta < 1 or name == "predicted"):
                        first, values = text if eta == min(looks) else None, np.atleast_1d(line[name])
                        ax.plot(m, values, color=colour, linewidth=width, linestyle=dashes, label=first)
            draw_level(ax, last, "last round" if ax is sheet.axes[0, 0] else "")
            ax.axvline(part.rows[0]["dim"], color="0.35", linewidth=0.7, linestyle=":", label="$m = d$")
            ax.set(xscale="log", yscale="log", ylim=(0.7, 3.0 * last))
            ax.set_xticks(m, [str(size) for size in m])
            ax.minorticks_off()
        sheet.label("m", "rounds until subspace distance > 0.5")
        sheet.legend(f"median and 10-90 % of {trials} trials; open, above the last round: not reached")
    return {"": sheet.figure}


fewest = c.smallest("n_clients")
"""Choice of the rows with the fewest clients; the others only show whether the number of clients matters."""


def expected(row: lf.Table) -> float:
    """Return the predicted rounds until B is lost; on new samples, those of the mean."""
    return float(row["predicted" if row["kind"] == FIXED else "mean_alone"])


def censored(part: lf.Table) -> str:
    """Return a note on the numbers of samples at which runs ended before they passed 0.5."""
    passed = {m: np.isfinite(runs["lost"]) for m, runs in sorted(part.groupby("n_samples"))}
    few = [f"m = {m}: {runs.sum()} of {len(runs)}" for m, runs in passed.items() if not runs.all()]
    return f"{LOSS.format(**part.rows[0])}: some are censored; passed: {', '.join(few)}" if few else ""


def updates_over_predicted(part: lf.Table) -> c.Measurement:
    """Return the updates until B is lost divided by those predicted; 1 is added for the first update, in round 1."""
    lost = part["lost"]
    ratios = (lost.ravel() + 1.0) / (np.repeat(part["predicted"], lost.shape[-1]) + 1.0)
    return c.Measurement(median_interval(ratios), f"{np.isinf(ratios).sum()} of {len(ratios)} censored")


def exponent(along: str, claimed: float) -> c.Statistic:
    """Return the exponent of the updates in m, or in eta/(1 - eta)."""

    def judge(part: lf.Table, **fields: Any) -> c.Finding | None:
        row, lost = part.rows[0], {size: rows["lost"] for size, rows in part.groupby(along)}
        every = 2 if row["kind"] == FIXED else 1
        in_step = along == "step_size"
        return judge_loss_exponent(lost, claimed, last=row["n_rounds"], in_step=in_step, every=every, **fields)

    return c.Statistic(f"fitted exponent (equal {claimed:g}, up to 0.2)", judge, c.near(claimed, 0.2))


def grows(law: str, along: str, claimed: float, *rows: Callable[[lf.Table], lf.Table]) -> c.Claim:
    """Return the claim that the rounds until B is lost follow a power law in a size."""
    other, text = ("n_samples", "m = {n_samples}") if along == "step_size" else ("step_size", "eta {step_size}")
    return c.Claim(
        f"The rounds until B is lost {law}",
        c.OWN_PREDICTION,
        exponent(along, claimed),
        where=(c.of(method=CLOSED), fewest, slow, *rows, c.sorted_by(other), c.sorted_by("start")),
        over=c.each("start", other),
        setting=f"start {{start:g}}, {text}",
    )


PASSED = "share of runs that passed 0.5 within {n_rounds} rounds, over all m with at most a third of these predicted"
NOT_PASSED = "share of runs that have not passed 0.5 within {n_rounds} rounds"
UPDATES = "updates until dist > 0.5 divided by those predicted, median of all runs, censored ones infinite"
LOSS = "{kind} samples, start {start:g}, eta {step_size:g}"
slow = c.only(lambda row: row["step_size"] < 1)
long_enough = c.only(lambda row: 3.0 * expected(row) <= row["n_rounds"])
"""Choice of rows in which B should be lost: the rounds are up to twice those predicted, and vary over trials."""
above_d = c.only(lambda row: row["n_samples"] > row["dim"])
CLAIMS = (
    c.Claim(
        "(2) to (5) lose a B near B*",
        c.OWN_PREDICTION,
        c.share(lambda part: np.isfinite(part["lost"]), PASSED, c.above(0.9)),
        where=(c.of(method=CLOSED), fewest, long_enough, c.sorted_by("n_samples")),
        over=c.each("kind", "start", "step_size"),
        setting=f"{LOSS}, m up to {{last[n_samples]}}",
        note=censored,
    ),
    *(
        c.Claim(
            "From the same B a competitor does not lose it",
            c.OWN_PREDICTION,
            c.Statistic(
                NOT_PASSED,
                lambda part, why=why, **fields: lf.statistics.judge_share(
                    np.isinf(part["lost"]), vacuous=why, **fields
                ),
                c.above(0.9),
            ),
            where=c.of(method=name),
            over=c.each("kind"),
            setting="{method}, {kind} samples",
        )
        for name, why in ((SEIDEL, "this order never changes B"), (FEDREP, ""))
    ),
    grows("grow like sqrt(m) on fixed samples", "n_samples", 0.5, c.of(kind=FIXED)),
    grows("grow like m on new samples, m > d", "n_samples", 1.0, c.of(kind=FRESH), above_d),
    grows("scale like (1 - eta)/eta on fixed samples", "step_size", -1.0, c.of(kind=FIXED)),
    c.Claim(
        "The prediction without a fitted parameter gives the rounds, to a constant between 1 and 2",
        c.OWN_PREDICTION.adding(f"the constants are {c.OWN_THRESHOLD}s"),
        c.measured(UPDATES, updates_over_predicted, c.within(1.0, 2.0)),
        where=(c.of(method=CLOSED, kind=FIXED), slow),
        over=c.each("n_clients", "start", "step_size"),
        setting="n = {n_clients}, start {start:g}, eta {step_size:g}",
    ),
)
