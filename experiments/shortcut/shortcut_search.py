"""Whether learned shortcuts pay: the shortcut draft's best settings against FedRep with one personal fit.

d = 20, k = 2, n = 50, m below and above d, fixed data, heads of length sqrt(2), shortcuts drawn independently of B*,
noise std 0.1; B starts at a random subspace.

The best setting has the smallest median parameter error after the last round on separate trials. For Algorithm 1 the
search covers all pairs of step sizes for B and for the shortcut; for the joint form, all pairs of step sizes and
ridges. The main competitor is FedRep with one personal ridge fit at its end (`lf.Personalized`), searched over as many
pairs of step sizes and ridges; FedRep without a fit has the same step sizes. The joint form's step size is the grid's
times (1 + ridge) / ridge, because the ridge slows B by that factor. The joint form is refitted without the ridge at the
end, and measured before and after.

Figures
-------
"" : Final parameter error of the best settings found, for two forms of the shortcut, two sizes of the true shortcuts,
    and m below and above d, against FedRep with one personal ridge fit, FedRep, and Local only. Markers: median over
    trials; bars: 10-90 %.

References: shortcut draft, Algorithm 1 and (1) to (5).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS, LOOKS, label, line_style
from linfed.plotting.panels import Figures
from linfed.statistics.findings import OWN_THRESHOLD, Finding, join_notes, judge
from linfed.statistics.intervals import median_interval, nan_as_worst, quantiles

from ._shortcut import Sized

SUMMARY = "Shortcut draft: its best settings against FedRep with one personal fit, for m below and above d"
HEADLINES = (
    {"claim": "The best setting found has a smaller parameter error than FedRep"},
    {"claim": "The best setting found has a smaller parameter error than one personal fit at FedRep's B"},
)
PICTURES = {"": 1400}

FAMILIES = GRADIENT, JOINT = ("Algorithm 1", "joint ridge")
DIST, ERROR = "subspace_distance", "parameter_error"
OWN, FIT, FEDREP, LOCAL = "shortcuts", "fit", "FedRep", "LocalOnly"
METHODS = (OWN, FIT, FEDREP, LOCAL)
DRAWN = {FIT: KINDS[1]}
"""Colour and marker of the method that the package's styles do not cover."""
SEARCHED = {OWN: "the shortcuts' setting", FIT: "the fit's setting", FEDREP: "FedRep's setting"}
"""The tuned methods, and their names in notes."""


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
    rounds: int = 200
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
            return self.algorithm_1(step_size, solver=lf.GradientSteps(shortcut_step_size=value))
        fedrep = lf.FedRep(rank=self.rank, step_size=step_size, init="random")
        return lf.Personalized(base=fedrep, ridge=value) if method == FIT else fedrep

    def run(self) -> list[dict[str, Any]]:
        """Find the settings with the smallest final parameter error on separate trials; run them and Local only."""
        problem = lf.SharedWithShortcuts(**self.whole, shortcut_norm=self.size, noise_std=self.noise_std)
        world: dict[str, Any] = {"data": lf.FixedSamples(self.n_samples), "seed": (self.seed, self.n_samples)}
        world |= {"rounds": self.rounds, "record_every": self.rounds}
        # No margin for ties: the differences of interest are smaller.
        score: dict[str, Any] = {"metric": ERROR, "score": "final", "margin": 0.0}
        alone = lf.simulate(lf.LocalOnly(), problem, trials=self.trials, metrics=[ERROR], **world)
        rows = [{"method": LOCAL, "error": alone.metrics[ERROR][:, -1]}]
        for method in SEARCHED:
            grid = self.settings(method)
            settings = [self.at(method, **setting) for setting in grid]
            tuning = lf.tune(settings, problem, trials=self.tuning_trials, **score, **world)
            refits = method == OWN and self.family == JOINT
            best: Any = replace(tuning.algorithm, refit=True) if refits else tuning.algorithm
            ends = lf.simulate(best, problem, trials=self.trials, metrics=[ERROR, DIST], **world).metrics
            error, row = ends[ERROR], {"method": method, **tuning.columns(grid), "dist": ends[DIST][:, -1]}
            row |= {"error": error[:, 1], "refitted_error": error[:, -1]} if refits else {"error": error[:, -1]}
            rows.append(row)
        return rows


def cells(quick: bool) -> dict[str, list[Search]]:
    """Return a search for each family, number of samples and size."""
    grid: dict[str, Any] = {"size": (0.5, 1.0), "n_samples": (10, 40)}
    base, rounds, steps = Search(), (200, 100), Search().values
    if quick:
        grid, rounds, steps = {"size": (0.5,), "n_samples": (10,)}, (60, 20), (0.001, 0.003)
        base = Search(steps=(0.3,), ridges=(0.1, 0.3), tuning_trials=2, trials=6)
    families = list(zip(FAMILIES, (steps, base.ridges), rounds, strict=True))
    return {"search": lf.grid(base, **{"family, values, rounds": families}, **grid)}


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


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the best setting found against Local only, FedRep, and one personal fit at FedRep's B."""
    out = []
    for (family, size, m), part in tables["search"].groupby("family", "size", "n_samples"):
        best = {method: part.select(method=method) for method in SEARCHED}
        found_best, fit = best[OWN], best[FIT]
        edges = [f"{SEARCHED[name]} found at the edge of its grid" for name, one in best.items() if one["at_grid_edge"]]
        fields = {"setting": f"m = {m}, size {size:g}: {family}", "note": join_notes(*edges)}
        found = f"eta {found_best['step_size']:g}, {'ridge' if family == JOINT else 'eta_s'} {found_best['value']:g}"
        medians = {method: f"{quantiles(one['error'])[0]:.3g}" for method, one in best.items()}
        trained, fitted, alone = (nan_as_worst(one["error"]) for one in best.values())
        setting = f"{found}; dist {quantiles(found_best['dist'])[0]:.2g}"
        fits = f"{medians[FIT]} against {medians[OWN]}; the fit: eta {fit['step_size']:g}, ridge {fit['value']:g}"
        for name, statistic, theirs, detail in (
            (
                "Local only",
                "Local only's error divided by its error, median",
                part.select(method=LOCAL)["error"],
                setting,
            ),
            ("FedRep", "FedRep's error divided by its error, median", best[FEDREP]["error"], setting),
            (
                "one personal fit at FedRep's B",
                "the fit's error divided by its error, median of paired trials",
                fitted,
                fits,
            ),
        ):
            text = f"The best setting found has a smaller parameter error than {name}"
            source = "the draft's aim" if theirs is not fitted else "not claimed: the simplest rival of the draft's aim"
            entries = {"claim": text, "statistic": statistic, "source": source, "detail": detail, **fields}
            out.append(judge(median_interval(theirs / trained), claimed_low=1.0, strict=True, **entries))
        gain = alone - trained
        kept = np.where(gain > 0, (alone - fitted) / np.where(gain > 0, gain, 1.0), np.inf)
        text = "One personal fit at FedRep's B keeps at least nine tenths of the shortcuts' gain over FedRep"
        statistic = (
            "the fit's gain over FedRep in the parameter error, divided by the shortcuts'; median of paired trials, "
        )
        entries = {"claim": text, "statistic": statistic + "infinite where they gain nothing", "source": OWN_THRESHOLD}
        entries |= {"detail": f"FedRep {medians[FEDREP]}; {np.sum(gain <= 0)} of {len(gain)} trials without a gain"}
        out.append(judge(median_interval(kept), claimed_low=0.9, **entries, **fields))
    return out
