"""How fast the shortcut draft's (2) to (5) lose a B near B*: the rounds until the distance exceeds 0.5, over m and eta.

d = 20, k = 2, n = 50, heads of length sqrt(2), shortcuts of root mean square length 0.5, noise std 0.1; B starts at a
given distance. Samples are fixed, or new in every round; some settings have more clients. Two competitors start from
the same B: the gauss-seidel order and FedRep. A run that has not exceeded 0.5 by the last round is censored: its number
of rounds is infinite, and it is counted and not left out.

The prediction for fixed samples has no fitted parameter (`linfed.theory.shortcut_loss_rounds`). B leaves span(B*) in
two ways. The mean of the updates would take about ``m/(eta (k + 1))`` rounds. Their random part, which repeats in every
round, would take ``sqrt(m n)/eta``. The shorter of the two counts. (On new samples the random parts of different
updates are independent.)

Figures
-------
"" : Number of rounds until the updates (2)-(5), started near B*, exceed subspace distance 0.5, against m, for several
    step sizes. Markers: median over trials; bars: 10-90 %; lines: prediction.

References: shortcut draft, (2) to (5); docs/shortcut.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import draw_level, shades
from linfed.numerics.linalg import span_distance
from linfed.plotting.panels import Figures, bars
from linfed.statistics.findings import OWN_PREDICTION, Finding, judge_share
from linfed.theory.shortcut import judge_loss_exponent, judge_loss_rounds, shortcut_loss_rounds

from ._shortcut import LEARNED, Sized

SUMMARY = "Shortcut draft: how fast (2) to (5) lose a B near B*, over m and eta, measured and predicted"
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
    rounds: int = 600
    trials: int = 16
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Run until every trial has exceeded distance `LEARNED`, or to the last round."""
        problem = lf.SharedWithShortcuts(**self.whole, noise_std=self.noise_std, shortcut_norm=0.5)
        data = (lf.FixedSamples if self.kind == FIXED else lf.FreshSamples)(self.n_samples)
        world: dict[str, Any] = {"trials": self.trials, "seed": (self.seed, self.n_clients, self.n_samples)}
        shared: dict[str, Any] = {"rank": self.rank, "step_size": self.step_size, "init": lf.AtDistance(self.start)}
        algorithm: lf.Algorithm = lf.FedRep(**shared)
        if self.method in ORDERS:
            algorithm = lf.FedRepShortcut(**shared, solver=lf.ClosedForm(order=ORDERS[self.method]))
        B_star, lost = problem.truth(world["seed"], range(self.trials)).B, np.full(self.trials, np.inf)
        for step in lf.iterate(algorithm, problem, data=data, rounds=self.rounds, **world):
            dist = span_distance(step.after.B, B_star)
            lost[np.isinf(lost) & (dist > LEARNED)] = step.number
            if np.isfinite(lost).all():
                break
        setting = {"n_samples": self.n_samples, "step_size": self.step_size, "level": LEARNED}
        has_prediction = (self.method, self.kind) == (CLOSED, FIXED)
        predicted = shortcut_loss_rounds(self.start, **self.whole, **setting) if has_prediction else math.nan
        alone = self.n_samples / (self.step_size * (self.rank + 1))
        return {"lost": lost, "dist": dist, "predicted": predicted, "mean_alone": alone}


def cells(quick: bool) -> dict[str, list[Loss]]:
    """Return (2) to (5) over m and eta on both kinds of samples and with more clients, and the competitors."""
    base, many, rival_rounds = (Loss(rounds=60, trials=36), 60, 10) if quick else (Loss(), 200, 200)
    samples, some = ((20, 10), (10,)) if quick else ((160, 80, 40, 20, 10), (160, 40, 10))
    steps, starts = ((0.1, 0.3), (0.3,)) if quick else ((0.03, 0.1, 0.3, 1.0), (0.05, 0.3))
    found = lf.grid(base, start=starts, step_size=steps, n_samples=samples)
    found += lf.grid(base, kind=[FRESH], step_size=steps, n_samples=samples)
    found += lf.grid(base, n_clients=[many], step_size=[steps[-2]], n_samples=some)
    rival = {"method": (SEIDEL, FEDREP), "kind": (FIXED, FRESH), "rounds": [rival_rounds]}
    return {"rounds": found + lf.grid(base, **rival, n_samples=some)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the rounds against m, with a line for each step size, and the predictions."""
    table = fewest(tables["rounds"].select(method=CLOSED))
    table = table.assign(panel=lambda row: f"{WORDS[row['kind']]} samples, start at {row['start']:g}")
    looks = shades(sorted(table.unique("step_size")))
    last, trials = (table.rows[0][name] for name in ("rounds", "trials"))
    with lf.panels(table, column="panel", title="{}", height=2.9, sharey=True) as sheet:
        for ax, part in sheet:
            for eta, line in part.groupby("step_size"):
                colour, marker, _ = looks[eta]
                m, runs = np.atleast_1d(line["n_samples"]), np.minimum(np.atleast_2d(line["lost"]).T, 2.0 * last)
                dots = {"color": colour, "linestyle": "none", "marker": marker, "markersize": 3, "elinewidth": None}
                late = np.median(runs, axis=0) > last
                for part_of, filled in ((~late, "full"), (late, "none")):
                    if part_of.any():
                        text = f"$\\eta$ = {eta:g}" if filled == "full" else "_late"
                        bars(ax, m[part_of], runs[:, part_of], text, fillstyle=filled, **dots)
                for name, text, width, dashes in THEORY:
                    if np.isfinite(line[name]).all() and (eta < 1 or name == "predicted"):
                        shape = {"color": colour, "linewidth": width, "linestyle": dashes}
                        ax.plot(m, np.atleast_1d(line[name]), label=text if eta == min(looks) else None, **shape)
            draw_level(ax, last, "last round" if ax is sheet.axes[0, 0] else "")
            ax.axvline(part.rows[0]["dim"], color="0.35", linewidth=0.7, linestyle=":", label="$m = d$")
            ax.set(xscale="log", yscale="log", ylim=(0.7, 3.0 * last))
            ax.set_xticks(m, [str(size) for size in m])
            ax.minorticks_off()
        sheet.label("m", "rounds until dist > 0.5")
        sheet.legend(f"median and 10-90 % of {trials} trials; open, above the last round: not reached")
    return {"": sheet.figure}


def fewest(table: lf.Table) -> lf.Table:
    """Return the rows with the fewest clients; the others only show whether the number of clients matters."""
    return table.select(n_clients=min(table.unique("n_clients")))


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge whether B is lost, on which time scale in m and eta, and whether competitors lose it."""
    table = tables["rounds"]
    closed, rivals = fewest(table.select(method=CLOSED)), table.select(method=[SEIDEL, FEDREP])
    slow = closed.select(step_size=[eta for eta in closed.unique("step_size") if eta < 1])
    fixed = slow.select(kind=FIXED)
    many = slow.select(kind=FRESH, n_samples=[m for m in closed.unique("n_samples") if m > closed.rows[0]["dim"]])
    out = []
    for (kind, start, eta), part in closed.groupby("kind", "start", "step_size"):
        where = f"{kind} samples, start {start:g}, eta {eta:g}"
        passed = {m: np.isfinite(runs["lost"]) for m, runs in sorted(part.groupby("n_samples"))}
        few = [f"m = {m}: {runs.sum()} of {len(runs)}" for m, runs in passed.items() if not runs.all()]
        fields = {"setting": where, "note": f"{where}: some are censored; passed: {', '.join(few)}" if few else ""}
        fields |= {
            "statistic": "share of runs, over all m, that passed 0.5 within the rounds",
            "source": OWN_PREDICTION,
        }
        out.append(judge_share(np.isfinite(part["lost"]), 0.9, claim="(2) to (5) lose a B near B*", **fields))
    for (method, kind), part in rivals.groupby("method", "kind"):
        fields = {"setting": f"{method}, {kind} samples", "source": OWN_PREDICTION}
        fields |= {"statistic": f"share of runs that have not passed 0.5 within {part.rows[0]['rounds']} rounds"}
        out.append(
            judge_share(np.isinf(part["lost"]), 0.9, claim="From the same B a competitor does not lose it", **fields)
        )
    out += exponents(fixed, "n_samples", 0.5, "grow like sqrt(m) on fixed samples")
    out += exponents(many, "n_samples", 1.0, "grow like m on new samples, m > d")
    out += exponents(fixed, "step_size", -1.0, "scale like (1 - eta)/eta on fixed samples")
    closed_form = table.select(method=CLOSED, kind=FIXED, step_size=slow.unique("step_size"))
    for (n, start, eta), part in closed_form.groupby("n_clients", "start", "step_size"):
        lost = part["lost"]
        predicted = np.repeat(part["predicted"], lost.shape[-1])
        out.append(judge_loss_rounds(lost.ravel(), predicted, f"n = {n}, start {start:g}, eta {eta:g}"))
    return out


def exponents(table: lf.Table, along: str, claimed: float, law: str) -> list[Finding]:
    """Judge the exponent of the updates in m or in eta/(1 - eta), for each initial distance and step size, or m."""
    out, in_step = [], along == "step_size"
    for (start, other), part in sorted(table.groupby("start", "n_samples" if in_step else "step_size")):
        where = f"start {start:g}, {f'm = {other}' if in_step else f'eta {other:g}'}"
        fields = {"claim": f"The rounds until B is lost {law}", "setting": where, "last": part.rows[0]["rounds"]}
        every, lost = (
            (2 if part.rows[0]["kind"] == FIXED else 1),
            {size: row["lost"] for size, row in part.groupby(along)},
        )
        out.append(judge_loss_exponent(lost, claimed, in_step=in_step, every=every, **fields))
    return [finding for finding in out if finding]
