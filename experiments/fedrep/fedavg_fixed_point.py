"""FedAvg in the setting of the FedRep paper's Figure 1: its convergence, and the fixed points it converges to.

The setting is that of `experiments.fedrep_fig1` with the paper's conventions. FedAvg, FedRep and the oracle are run as
there. FedAvg also runs on the one-layer model with 1 and 10 local steps, whose fixed points are known in closed form.
Its step size is the one of the grid with the fastest predicted convergence in the worst of separate trials. Of step
sizes that tie within 1 % every method takes the smallest.

Errors are ``||theta_i - phi_i||^2``.

Figures
-------
"" : Top: FedAvg's error against rounds, and its fixed points, known in closed form (dotted). Bottom: distance from the
    fixed points, with the predicted rate (thin black line). One column per m. Lines: median over trials; shaded:
    10-90 %.
"rounds" : Mean squared error of the clients against rounds, for each m, with the floor of a single model (dashed) and
    the oracle's error. Lines: median over trials; shaded: 10-90 %.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 1 and Figure 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import draw_level, label, line_style
from linfed.plotting.panels import Figures, as_one
from linfed.search.selection import at_grid_edge, smallest, within
from linfed.statistics.findings import Finding

from ._fedrep import FEDAVG, PAPER, QUICK, Clients
from .fedrep_fig1 import SIZES, more_samples

SUMMARY = "FedAvg in the setting of the FedRep paper's Figure 1: error against rounds, predicted fixed points and rates"
PICTURES = {"": 2070}
REDUCED = {"curves": {"without": ("squared_error",)}}

ONE_LAYER = ("FedAvg, one layer", "FedAvg, one layer, K = 10")


@dataclass(frozen=True, kw_only=True)
class OneLayer(Clients):
    """FedAvg on the one-layer model: its clients' errors, its fixed point, and the distance from it."""

    preset: str = lf.choice((PAPER,), PAPER)
    method: str = lf.choice((name for name, options in FEDAVG.items() if "rank" in options), "FedAvg, one layer")

    def tuned(self, metric: Any, **world: Any) -> tuple[lf.Algorithm, dict[str, Any]]:
        """Return FedAvg at the step size with the fastest predicted rate in the worst separate trial, and columns."""
        apart, local_steps = (*world["seed"], 1), FEDAVG[self.method]["local_steps"]
        A, _ = world["data"].draw(self.problem, trials=2 * self.trials, seed=apart).normal_equations()
        settings = [{"step_size": step} for step in self.steps]
        worst = [lf.theory.fedavg_rate(A, local_steps=local_steps, **setting).max() for setting in settings]
        scores = np.array([-1.0 / np.log(rate) if rate < 1 else np.inf for rate in worst])
        best = smallest(settings, within(scores))
        columns = {**settings[best], "best": best, "at_grid_edge": ", ".join(at_grid_edge(settings, [best]))}
        return self.algorithm(self.steps[best]), columns | {
            "score": lf.LabeledArray(scores, setting=range(len(scores)))
        }

    def run(self) -> dict[str, Any]:
        """Return the errors of the clients and of the predicted fixed point, its rate, and the distances from it."""
        found, seed = super().run(), (self.seed, self.n_samples)
        samples = lf.FixedSamples(self.n_samples).draw(self.problem, trials=self.trials, seed=seed)
        A, b = samples.normal_equations()
        setting = {"step_size": found["step_size"], "local_steps": FEDAVG[self.method]["local_steps"]}
        # The rate in the table shows whether a trial's iteration diverges.
        point = lf.theory.fedavg_fixed_point(A, b, stable=False, **setting)
        Phi = self.problem.truth(seed, range(self.trials)).dense()
        # With the fixed point as ground truth, the error is the distance from it.
        target = lf.GivenTruth(Phi=np.broadcast_to(point[:, None], Phi.shape))
        options = {"rounds": self.rounds, "trials": self.trials, "metrics": ["mean_client_error"], "record_every": 5}
        way = lf.simulate(self.algorithm(found["step_size"]), target, data=samples, **options)
        difference = point[:, None] - Phi
        length = np.linalg.norm(point, axis=-1)[:, None]
        return found | {
            "fixed_point_squared_error": np.vecdot(difference, difference).mean(axis=-1),
            "rate": lf.theory.fedavg_rate(A, **setting),
            "distance": lf.LabeledArray(way.metrics["mean_client_error"] / length, round=way.rounds),
        }


def cells(quick: bool) -> dict[str, list[Clients]]:
    """Return Figure 1's cells of FedAvg, FedRep and the oracle, and one-layer FedAvg."""
    one_layer, figure = (kind(**(QUICK if quick else {})) for kind in (OneLayer, Clients))
    compared = lf.grid(figure, n_samples=SIZES, method=("FedAvg", "FedRep", "Oracle"))
    return {"curves": compared + lf.grid(one_layer, n_samples=SIZES, method=ONE_LAYER)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the errors with the fixed points and the distances from them, and the errors against rounds."""
    table = tables["curves"]
    trials = f"median and 10-90 % of {table.rows[0]['trials']} trials"
    with lf.panels(table, column="n_samples", title="m = {}", height=2.3, sharey=True) as ways:
        for ax, part in ways:
            lf.plot_curves(ax, part, "round", "curve", order=("FedRep",))
            as_one(ax, part, "round", "curve", ("FedAvg", *ONE_LAYER))
            draw_level(
                ax, float(np.median(part.select(method="FedAvg")["single_model_floor"])), label="single-model floor"
            )
            shape = line_style("Oracle") | {"marker": "", "zorder": 1.5}
            ax.axhline(float(np.median(part.select(method="Oracle")["mean"])), label=label("Oracle"), **shape)
        ways.label("round", "mean squared error of clients")
        ways.legend(trials)
    with lf.panels(table, column="n_samples", title="m = {}", row=2, height=3.8, sharex=True, sharey="row") as sheet:
        for (upper, part), (lower, _) in zip(sheet.row(0), sheet.row(1), strict=True):
            lf.plot_curves(upper, part, "round", "curve", order=("FedAvg", *ONE_LAYER))
            for row in part.select(method=list(ONE_LAYER)):
                shape = {"color": line_style(row["method"])["color"], "linestyle": ":", "zorder": 3}
                text = f"fixed point, K = {FEDAVG[row['method']]['local_steps']}"
                upper.axhline(float(np.median(row["fixed_point_squared_error"])), label=text, **shape)
                lf.plot_curves(lower, row, "round", "distance")
                logs = row["round"] * np.log(row["rate"][:, None]) + np.log(row["distance"][:, :1])
                fit = np.exp(np.median(logs, axis=0))
                in_range = np.where((fit > 1e-16) & (fit < 1e16), fit, np.nan)
                lower.plot(row["round"], in_range, color="black", linewidth=0.6, label="predicted rate")
            draw_level(
                upper, float(np.median(part.select(method="FedAvg")["single_model_floor"])), label="single-model floor"
            )
            upper.set_yscale("linear")
        sheet.label("round", "mean squared\nerror of clients", "relative distance from\nthe fixed point")
        sheet.legend(trials, ncols=4)
    return {"": sheet.figure, "rounds": ways.figure}


def draw_floor(ax: Any, part: lf.Table) -> None:
    """Draw the smallest error of any single model for all clients."""
    floor = np.median(part.select(method="FedAvg")["single_model_floor"])
    draw_level(ax, float(floor), label="single-model floor")


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the paper's claim on FedAvg with more samples, at the fixed point of one local step."""
    return more_samples(tables["curves"].select(method="FedAvg, one layer"), ", at the fixed point")
