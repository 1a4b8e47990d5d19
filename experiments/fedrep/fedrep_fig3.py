"""FedRep paper, Figure 3: distance against rounds for FedRep, 10GD-GD and GD-GD, at four numbers of clients.

The paper fixes d = 10, k = 2, m = 5, r = 0.1 and the noise variance 1e-3. It gives neither the step sizes nor the
initial B nor the number of rounds. Here B starts at a random subspace, because the method of moments would start the
larger problems below the first threshold. Step sizes are tuned per method and n, on separate trials, for the fewest
rounds to distance 0.01, over one grid without the steps that are far too large for gradient heads or far too small for
many clients. As in the paper's Algorithm 1, heads and representation share one step size. Two further methods, in the
tables and the claims, have a separate head step size; their runs are only twice as long as their tuning runs. There are
50 trials, and 20 for n >= 1,000.

The ``notebook`` preset follows the authors' published linear notebook where it differs from the paper
(`experiments._fedrep`); its figure shows the squared distance.

Figures
-------
"" : Subspace distance to B* against rounds, for different numbers of clients, with the paper's conventions. Lines:
    median over trials; shaded: 10-90 %. Step sizes are tuned for the fewest rounds to distance 0.01 (dashed).
"notebook" : Squared subspace distance to B* against rounds, for different numbers of clients, with the conventions of
    the authors' notebook. Lines: median over trials, until half of them have diverged; shaded: 10-90 %. Step sizes are
    tuned for the fewest rounds to distance 0.01 (dashed, squared).

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 5.1 and Figure 3.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import draw_level
from linfed.plotting.panels import Figures
from linfed.statistics.gains import factor_ratio
from linfed.statistics.intervals import first_round_below

from ._fedrep import NOISE_VARIANCE, NOTEBOOK, PAPER, Setting

SUMMARY = "FedRep paper, Figure 3: distance against rounds, FedRep against gradient heads, n = 10 to 10,000"
HEADLINES = (
    {"claim": "FedRep converges in fewer rounds with more clients"},
    {"claim": "FedRep needs fewer rounds than 10GD-GD", "setting": "paper: n = 100"},
    {"claim": "10GD-GD needs fewer rounds than GD-GD", "setting": "paper: n = 100"},
    {"claim": "GD-GD gains less from more clients than FedRep"},
)
PICTURES = {"": 2070, "notebook": 2070}

paper = partial(c.cite, "FedRep paper, section 5.1, Figure 3")
MORE_CLIENTS = paper("by increasing the number of nodes n, clients converge to the true representation faster")
FASTEST = paper("FedRep [...] has the fastest rate compared to GD-GD and 10GD-GD")
MORE_UPDATES = paper(
    "running more local updates for finding the local head accelerates the convergence speed of FedRep"
)
SCALES = paper("GD-GD and 10GD-GD [...] do not scale properly with n")

METHODS = ("FedRep", "10GD-GD", "GD-GD")
OWN = " (own head step)"
HEAD_STEPS = {"10GD-GD": 10, "GD-GD": 1, "10GD-GD" + OWN: 10, "GD-GD" + OWN: 1}
"""Gradient steps on the heads in a round; FedRep fits its heads exactly."""
NEAR = 0.01
"""Methods are tuned for, and judged by, the number of rounds to this distance."""
LARGEST = {"10GD-GD": 0.7, "GD-GD": 1.0, "10GD-GD" + OWN: 3.0, "GD-GD" + OWN: 1.4}
"""Largest step size on B that is tried with gradient heads; the best are at most 0.3, 0.7, 1.4 and 0.7."""
ENOUGH: dict[str, dict[int, int]] = {
    "FedRep": {100: 40, 1000: 20, 10_000: 20},
    "10GD-GD" + OWN: {100: 60, 1000: 20, 10_000: 20},
    PAPER: {100: 130, 1000: 70, 10_000: 50},
    NOTEBOOK: {},
}
"""Rounds of a tuning run by number of clients, for two methods and for the others of each preset; the best settings
need at most 85 % of them. All other tuning runs are as long as the runs themselves."""


@dataclass(frozen=True, kw_only=True)
class Curve(Setting):
    """One method at one number of clients; the defaults are the paper's, or our choice where it gives none."""

    method: str = lf.choice(("FedRep", *HEAD_STEPS), "FedRep")
    n_clients: int = 0
    dim: int = 10
    n_samples: int = 5
    participation: float = 0.1
    rounds: int = 200
    tuning_trials: int = 10
    steps: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)
    head_steps: tuple[float, ...] = (0.2, 0.3, 0.5, 0.7)

    @property
    def tuning_rounds(self) -> int:
        """Rounds of a tuning run."""
        enough = ENOUGH.get(self.method, ENOUGH[self.preset])
        return min(self.rounds, enough.get(self.n_clients, self.rounds))

    @property
    def cost(self) -> float:
        """Relative run time, which grows with the grid: long runs start first."""
        return self.n_clients * (2 if self.method.endswith(OWN) else 1)

    def at(self, step: float, head_step: float) -> lf.FedRep:
        """Return the method at step sizes in the paper's normalisation."""
        if self.method == "FedRep":
            return self.fedrep(step)
        if self.preset == NOTEBOOK:
            head_step *= self.n_samples  # heads are not summed
        return self.fedrep(step, lf.GradientHeads(steps=HEAD_STEPS[self.method], step_size=head_step))

    def run(self) -> dict[str, Any]:
        """Tune the step sizes on separate trials, then run the trials."""
        data = (lf.FreshSamples if self.preset == PAPER else lf.FixedSamples)(self.n_samples)
        seed = (self.seed, self.n_clients)  # trials at different n are then independent
        world: dict[str, Any] = {"data": data, "participation": self.participation, "seed": seed}
        steps = [step for step in self.steps if step <= LARGEST.get(self.method, np.inf)]
        if self.method.endswith(OWN):  # ten head steps need smaller step sizes than one
            head_steps = self.head_steps[:-1] if self.method.startswith("10GD") else self.head_steps[1:]
            pairs = list(itertools.product(steps, head_steps))
        else:
            pairs = [(step, step) for step in steps]
        candidates = [self.at(*pair) for pair in pairs]
        tried: dict[str, Any] = {"rounds": self.tuning_rounds, "trials": self.tuning_trials, "score": lf.RoundsTo(NEAR)}
        tuning = lf.tune(candidates, self.problem, **tried, **world)
        wanted: dict[str, Any] = {"rounds": self.rounds, "trials": self.trials, "metrics": ["subspace_distance"]}
        result = lf.simulate(tuning.algorithm, self.problem, **wanted, **world)
        recorded, distance = result.rounds, result.metrics["subspace_distance"]
        return tuning.columns() | {
            "pair": pairs[tuning.best],
            "participants": result.participants,
            "distance": lf.LabeledArray(distance, round=recorded),
            **{f"rounds_to_{level:g}": first_round_below(recorded, distance, level) for level in (0.1, NEAR)},
        }


def cells(quick: bool) -> dict[str, list[Curve]]:
    """Return all methods with the paper's conventions (two also with a separate head step), and the notebook's."""
    fewer = {
        "trials": 10,
        "tuning_trials": 2,
        "rounds": 120,
        "steps": (0.1, 0.3, 0.7, 2.0),
        "head_steps": (0.3, 0.5, 0.7),
    }
    base = Curve(**fewer) if quick else Curve()
    sizes = (100, 1000) if quick else (10, 100, 1000, 10_000)
    variants = tuple(method + OWN for method in METHODS[1:])
    curves = lf.grid(base, n_clients=sizes, method=(*METHODS, *variants))
    notebook = dataclasses.replace(base, preset=NOTEBOOK, noise_variance=NOISE_VARIANCE[NOTEBOOK])
    curves += lf.grid(notebook, n_clients=sizes, method=METHODS)
    curves = [not_drawn(curve) if curve.method in variants else curve for curve in curves]
    return {"curves": curves if quick else [many(curve) if curve.n_clients >= 1000 else curve for curve in curves]}


def not_drawn(curve: Curve) -> Curve:
    """Return a curve that is in no figure: it ends at twice the rounds of its tuning runs."""
    return dataclasses.replace(curve, rounds=min(curve.rounds, 2 * curve.tuning_rounds))


def many(curve: Curve) -> Curve:
    """Return a curve for many clients, where trials differ less: fewer trials, and no steps that are far too small.

    The notebook's methods with gradient heads keep all tuning trials: their best step sizes lie near the largest that
    converge, where some trials diverge.
    """
    differ = curve.preset == NOTEBOOK and curve.method != "FedRep"
    tuning_trials = curve.tuning_trials if differ else 4
    return dataclasses.replace(curve, trials=20, tuning_trials=tuning_trials, steps=curve.steps[2:])


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distance with the paper's conventions, and its square with the notebook's."""
    figures = {}
    drawn = tables["curves"].select(method=list(METHODS))
    for preset, table in drawn.groupby("preset"):
        power, preface = (1, "") if preset == PAPER else (2, "the notebook's conventions, ")
        with lf.panels(table, column="n_clients", title="n = {:,}", height=2.1, sharey=True) as sheet:
            for ax, part in sheet:
                lf.plot_curves(ax, part, "round", "distance", order=METHODS, scale=lambda v, power=power: v**power)
                draw_level(ax, NEAR**power, label=f"distance {NEAR:g}, the target of tuning")
            sheet.label("round", "squared subspace distance" if power == 2 else "subspace distance to B*")
            trials = " or ".join(map(str, table.unique("trials")))
            sheet.legend(f"{preface}median and 10-90 % of {trials} trials")
        figures["" if preset == PAPER else preset] = sheet.figure
    return figures


def note(*parts: lf.Table) -> str:
    """Return a caveat on rows with too few participants for Theorem 1."""
    p, k = parts[0].rows[0]["participants"], parts[0].rows[0]["rank"]
    return (
        f"p = {p} participant a round is fewer than k = {k}: sigma_min = 0, so Theorem 1 cannot apply" if p < k else ""
    )


def enough_participants(row: lf.Table) -> bool:
    """Return whether Theorem 1 can apply to a row."""
    return bool(row["participants"] >= row["rank"])


def gains_less(rival: str) -> c.Statistic:
    """Return FedRep's factor between the rounds at the smallest and at the largest n, divided by a rival's."""

    def measure(small: lf.Table, large: lf.Table) -> c.Measurement | None:
        if len(small) < 2 or len(large) < 2:
            return None
        mine, other = (
            [part.select(method=name)["rounds_to_0.01"] for part in (small, large)] for name in ("FedRep", rival)
        )
        found, remark = factor_ratio(mine, other, min(small.unique("rounds") + large.unique("rounds")))
        return c.Measurement(found, note=remark)

    words = f"FedRep's reduction factor of the rounds to distance 0.01 divided by {rival}'s"
    return c.measured(words, measure, c.above(1.0), rows=c.of(method=["FedRep", rival]))


def fewer(first: str, second: str, source: c.Source) -> c.Claim:
    """Return the claim that one method needs fewer rounds than another."""
    words = "share of paired trials with fewer rounds to distance 0.01 (ties excluded)"
    return c.Claim(
        f"{first} needs fewer rounds than {second}",
        source,
        c.smaller("rounds_to_0.01", first, second, words),
        over=c.each("preset", "n_clients"),
        setting="{preset}: n = {n_clients:,}",
        note=note,
    )


RIVALS = tuple(HEAD_STEPS)
CLAIMS = (
    c.Claim(
        "FedRep converges in fewer rounds with more clients",
        MORE_CLIENTS,
        c.smaller_after("rounds_to_0.01", "P(fewer rounds to distance 0.01)"),
        where=c.of(method="FedRep"),
        over=c.successive("n_clients", c.each("preset")),
        setting="{preset}: n = {1[n_clients]:,} against {0[n_clients]:,}",
        note=note,
    ),
    fewer("FedRep", "10GD-GD", FASTEST),
    fewer("10GD-GD", "GD-GD", MORE_UPDATES),
    *(fewer("FedRep", rival, FASTEST) for rival in RIVALS[2:]),
    *(
        c.Claim(
            f"{rival} gains less from more clients than FedRep",
            SCALES,
            gains_less(rival),
            where=c.only(enough_participants),
            over=c.ends("n_clients", c.each("preset")),
            setting="{preset}: n = {0[n_clients]:,} to {1[n_clients]:,}",
        )
        for rival in RIVALS
    ),
)
