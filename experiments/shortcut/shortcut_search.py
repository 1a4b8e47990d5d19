"""Whether learned shortcuts pay: the shortcut draft's best settings against FedRep with one personal fit.

d = 20, k = 2, n = 50, m below and above d, fixed data, heads of length sqrt(2), shortcuts drawn independently of B*,
noise std 0.1; B starts at a random subspace.

The draft compares no errors, and has no separate step size for the shortcut and no ridge: all claims are ours.

The best setting has the smallest median parameter error after the last round on separate trials. For Algorithm 1 the
search covers all pairs of step sizes for B and for the shortcut; for the joint form, all pairs of step sizes and
ridges. The main competitor is FedRep with one personal ridge fit at its end (`lf.Personalized`), searched over as many
pairs of step sizes and ridges; FedRep without a fit has the same step sizes. The joint form's step size is the grid's
times (1 + ridge) / ridge, because the ridge slows B by that factor. The joint form is refitted without the ridge at the
end, and measured before and after.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import KINDS, LOOKS, label, line_style
from linfed.numerics.quantiles import quantiles
from linfed.plotting.panels import Figures
from linfed.statistics import Origin, median_interval
from linfed.statistics.intervals import Measured, nan_as_worst

from ._shortcut import Sized

SUMMARY = "Shortcut draft: its best settings against FedRep with one personal fit, for m below and above d"
HEADLINES = (
    {"claim": "The best setting found has a smaller parameter error than FedRep"},
    {"claim": "The best setting found has a smaller parameter error than one personal fit at FedRep's B"},
)
CAPTIONS = {
    "": (
        "Final parameter error of the best settings found, for two forms of the shortcut, two sizes of the true "
        "shortcuts, and m below and above d, against FedRep with one personal ridge fit, FedRep, and Local only. "
        "Markers: median over trials; bars: 10-90 %."
    )
}
PICTURES = {"": 1400}

GRADIENT, JOINT = "Algorithm 1", "joint ridge"
DIST, ERROR = "subspace_distance", "parameter_error"
OWN, FIT, FEDREP, LOCAL = "shortcuts", "fit", "FedRep", "LocalOnly"
METHODS = (OWN, FIT, FEDREP, LOCAL)
DRAWN = {FIT: KINDS[1]}
"""Colour and marker of the method that the package's styles do not cover."""
SEARCHED = (OWN, FIT, FEDREP)
"""The tuned methods."""


@dataclass(frozen=True, kw_only=True)
class Search(Sized):
    """The search of one family at one number of samples and one size of shortcuts; all sizes are our choice.

    `values` are those of the parameter that limits the learned shortcuts, ``eta_s`` or the ridge; `ridges` are those of
    the fit.
    """

    family: str = lf.choice((GRADIENT, JOINT), GRADIENT)
    size: float = 0.5
    n_samples: int = 10
    steps: tuple[float, ...] = (0.1, 0.3, 0.5, 1.0)
    values: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    ridges: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    n_rounds: int = 200
    tuning_trials: int = 20
    trials: int = 60
    seed: int = 0

    def settings(self, method: str) -> list[dict[str, float]]:
        """Return the tuning grid of a method, with the same step sizes on B for all methods."""
        values = {OWN: self.values, FIT: self.ridges, FEDREP: (np.nan,)}[method]
        return [{"step_size": step, "value": value} for step, value in itertools.product(self.steps, values)]

    def at(self, method: str, step_size: float, value: float) -> lf.Algorithm:
        """Return a method at a setting."""
        if method == OWN and self.family == JOINT:
            return self.joint(step_size * (1.0 + value) / value, value)
        if method == OWN:
            return self.algorithm_1(step_size, lf.GradientSteps(shortcut_step_size=value))
        fedrep = lf.FedRep(rank=self.rank, step_size=step_size, init="random")
        return lf.Personalized(base=fedrep, ridge=value) if method == FIT else fedrep

    def run(self) -> list[dict[str, Any]]:
        """Find the settings with the smallest final parameter error on separate trials; run them and Local only."""
        problem, data, seed = (
            self.with_shortcuts(self.size),
            lf.FixedSamples(self.n_samples),
            (self.seed, self.n_samples),
        )
        run = partial(
            lf.simulate, data=data, n_rounds=self.n_rounds, record_every=self.n_rounds, trials=self.trials, seed=seed
        )
        rows = [{"method": LOCAL, "error": run(lf.LocalOnly(), problem, metrics=[ERROR]).metrics[ERROR][:, -1]}]
        for method in SEARCHED:
            grid = self.settings(method)
            candidates = [self.at(method, **setting) for setting in grid]
            # no ties: the differences of interest are smaller
            tune = partial(lf.tune, metric=ERROR, score="final", ties_within=0.0, trials=self.tuning_trials, seed=seed)
            tuning = tune(candidates, problem, data=data, n_rounds=self.n_rounds, record_every=self.n_rounds)
            refits = method == OWN and self.family == JOINT
            best: Any = replace(tuning.algorithm, refit=True) if refits else tuning.algorithm
            ends = run(best, problem, metrics=[ERROR, DIST]).metrics
            error, row = ends[ERROR], {"method": method, **tuning.columns(grid), "dist": ends[DIST][:, -1]}
            row |= {"error": error[:, 1], "refitted_error": error[:, -1]} if refits else {"error": error[:, -1]}
            rows.append(row)
        return rows


def cells(quick: bool) -> dict[str, list[Search]]:
    """Return a search for each family with its values and rounds, number of samples and size."""
    if quick:
        few = Search(steps=(0.3,), ridges=(0.1, 0.3), tuning_trials=2, trials=6)
        families = [(GRADIENT, (0.001, 0.003), 60), (JOINT, few.ridges, 20)]
        return {"search": lf.grid(few, **{"family, values, n_rounds": families}, size=(0.5,), n_samples=(10,))}
    families = [(GRADIENT, Search().values, 200), (JOINT, Search().ridges, 100)]
    return {"search": lf.grid(Search(), **{"family, values, n_rounds": families}, size=(0.5, 1.0), n_samples=(10, 40))}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the final parameter error of each method at its best setting, for every family, size and m."""
    table = tables["search"]
    settings = [(family, size) for family in table.unique("family") for size in table.unique("size")]
    labels = [f"{family}\nsize {size:g}" for family, size in settings]
    with lf.panels(table, column="n_samples", title="m = {}", sharey=True) as sheet:
        for ax, part in sheet:
            for (family, size, method), row in part.groupby("family", "size", "method"):
                shape = line_style(DRAWN.get(method, method if method in LOOKS else family))
                name = {OWN: family, FIT: "FedRep + one personal fit"}.get(method, label(method))
                place = settings.index((family, size)) + 0.15 * (METHODS.index(method) - 1.5)
                middle, low, high = quantiles(row["error"])
                bar = {"elinewidth": 0.7, "capsize": 1.5, **shape, "linestyle": "none"}
                ax.errorbar(place, middle, yerr=[[middle - low], [high - middle]], label=name, **bar)
        sheet.label("", "parameter error", yscale="log")
        for ax in sheet.axes.ravel():
            ax.set_xticks(range(len(settings)), labels)
        sheet.legend(f"each at its best setting; median and 10-90 % of {table.rows[0]['trials']} trials")
    return {"": sheet.figure}


SIMPLEST = c.Source("not claimed: the simplest rival of the claim above", Origin.CONJECTURE)


def error_of(part: lf.Table, method: str) -> Array:
    """Return a method's errors; a diverged trial has the largest."""
    return nan_as_worst(part.select(method=method)["error"])


def median(part: lf.Table, method: str) -> str:
    """Return a method's median error as text."""
    return f"{quantiles(part.select(method=method)['error'])[0]:.3g}"


def best_setting(part: lf.Table) -> str:
    """Return the best setting found of the shortcuts, and its distance."""
    row = part.select(method=OWN)
    knob = "ridge" if row["family"] == JOINT else "eta_s"
    return f"eta {row['step_size']:g}, {knob} {row['value']:g}; dist {quantiles(row['dist'])[0]:.2g}"


def best_fit(part: lf.Table) -> str:
    """Return the median errors of the fit and of the shortcuts, and the best setting of the fit."""
    row = part.select(method=FIT)
    found = f"the fit: eta {row['step_size']:g}, ridge {row['value']:g}"
    return f"{median(part, FIT)} against {median(part, OWN)}; {found}"


def gains(part: lf.Table) -> str:
    """Return FedRep's median error, and the number of trials in which the shortcuts gain nothing."""
    gain = error_of(part, FEDREP) - error_of(part, OWN)
    return f"FedRep {median(part, FEDREP)}; {np.sum(gain <= 0)} of {len(gain)} trials without a gain"


def kept_gain(part: lf.Table) -> Measured:
    """Return the share of the shortcuts' gain over FedRep that the fit has.

    Where they gain nothing, the share is infinite if the fit's gain is at least nine tenths of theirs, else minus
    infinite. So in every trial the share is at least 0.9 if and only if the fit's gain minus 0.9 times theirs is not
    negative.
    """
    alone, fitted, trained = (error_of(part, method) for method in (FEDREP, FIT, OWN))
    gain, kept = alone - trained, alone - fitted
    without = np.where(kept >= 0.9 * gain, np.inf, -np.inf)
    return median_interval(np.where(gain > 0, kept / np.where(gain > 0, gain, 1.0), without))


def smaller_than(rival: str, method: str, source: c.Source, words: str, detail: Callable[..., str]) -> c.Claim:
    """Return the claim that the best setting found has a smaller error than a competitor."""

    def measure(theirs: Array, mine: Array) -> Measured:
        return median_interval(nan_as_worst(theirs) / nan_as_worst(mine))

    sentence = f"The best setting found has a smaller parameter error than {rival}"
    return OfEach(sentence, source, c.ratio("error", method, OWN, words, c.above(1.0), measure=measure), detail=detail)


FIT_WORDS = "the fit's error divided by its error, median of paired trials"
KEPT = (
    "the fit's gain over FedRep in the parameter error, divided by the shortcuts'; median of paired trials; where they "
    "gain nothing, infinite if the fit's gain is at least 0.9 times theirs, else minus infinite"
)
OfEach = partial(
    c.Claim, over=c.each("family", "size", "n_samples"), setting="m = {n_samples}, size {size:g}: {family}"
)
CLAIMS = (
    smaller_than("Local only", LOCAL, c.OWN_THRESHOLD, "Local only's error divided by its error, median", best_setting),
    smaller_than("FedRep", FEDREP, c.OWN_THRESHOLD, "FedRep's error divided by its error, median", best_setting),
    smaller_than("one personal fit at FedRep's B", FIT, SIMPLEST, FIT_WORDS, best_fit),
    OfEach(
        "One personal fit at FedRep's B keeps at least nine tenths of the shortcuts' gain over FedRep",
        c.OWN_THRESHOLD,
        c.measured(KEPT, kept_gain, c.at_least(0.9), rows=c.of(method=SEARCHED)),
        detail=gains,
    ),
)
