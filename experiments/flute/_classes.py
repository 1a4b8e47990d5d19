"""Classification experiments in the setting of the FLUTE paper's Table 1, where each client holds some of the classes.

Ten methods of the paper and three further baselines run on the same splits. All start from the same B and from one
random head, which all clients share (`FromOneHead`). The paper says only that the server initialises both.
Local only has neither B nor head: its softmax regression starts at 0.

The paper has 5 local epochs (in its CIFAR-100 setting); here there are K = 5 full-gradient local steps. FLUTE, FedPer,
LG-FedAvg, FedAvg and FedRoD take 5 steps, FedRep 5 on the head and 5 on B, FedRep* 10 and 5. FLUTE* takes 10 more on
the head, and fine-tuning 10 on the head. There are 100 rounds with full participation. Step sizes and FLUTE's weights
are those with the smallest held-out error on separate splits.

The further baselines:

- "FLUTE, no NC" and "FLUTE*, no NC" are FLUTE and FLUTE* without the penalty on neural collapse, at clients and server.
  Everything else is equal, and they are tuned too.
- "own classes" restricts FedAvg's single model to the classes that the client holds, which costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

import linfed as lf
from linfed.algorithms.representation.general_flute import random_heads
from linfed.figures.style import label, line_style
from linfed.plotting.panels import Figures
from linfed.simulation.class_metrics import mean_of_those

LOCAL, STAR = 5, 10
"""Local steps, and the head steps of FedRep* and FLUTE*."""

FEDREP, FEDREP_STAR, FLUTE, FLUTE_STAR = ("FedRep", "FedRep*", "FLUTE", "FLUTE*")
NO_NC, NO_NC_STAR = ("FLUTE, no NC", "FLUTE*, no NC")
FEDAVG, TUNED_AVG, LG, PER, ROD, LOCAL_ONLY = ("FedAvg", "FedAvg + FT", "LGFedAvg", "FedPer", "FedRoD", "LocalOnly")
BASELINES = (FEDAVG, TUNED_AVG, LG, PER, FEDREP, FEDREP_STAR, ROD)
"""The paper's baselines, except FedCP."""
METHODS = (*BASELINES, FLUTE, FLUTE_STAR, NO_NC, NO_NC_STAR, LOCAL_ONLY)
COLLAPSING = (FEDREP, FEDREP_STAR, FLUTE, FLUTE_STAR, NO_NC, NO_NC_STAR)
"""Methods whose measures of neural collapse (NC2) are recorded and drawn."""

FLUTES = {FLUTE: 0, FLUTE_STAR: STAR, NO_NC: 0, NO_NC_STAR: STAR}
STEPS = (0.05, 0.1, 0.2, 0.4)
WEIGHTS = ((0.01, 0.01), (0.1, 0.1), (1.0, 0.1))
DECAYS = (0.0, 1e-3)
"""Grids of eta_l, of the pairs (lambda_3, eta_r), and of lambda_1 = lambda_2."""


class FromOneHead:
    """Mixin for algorithms whose heads start at 0: start them from FLUTE's random initial head."""

    def initial_state(self: Any, start: Any) -> Any:
        """Return the algorithm's initial state with the random head, which all clients share."""
        state = super().initial_state(start)  # type: ignore[misc]
        return state.update(W=random_heads(start, state.W.shape[1], self.rank))


class FedRep(FromOneHead, lf.FedRep):
    """FedRep, started from the common random head."""


class FedPer(FromOneHead, lf.FedPer):
    """FedPer, started from the common random head."""


class LGFedAvg(FromOneHead, lf.LGFedAvg):
    """LG-FedAvg, started from the common random head."""


class FedAvg(FromOneHead, lf.FedAvg):
    """FedAvg, started from the common random head."""


class FedRoD(FromOneHead, lf.FedRoD):
    """FedRoD whose generic head starts from the common random head; the personal heads added to it start at 0."""


@dataclass(frozen=True, kw_only=True)
class Contest(ABC):
    """One method in one setting; subclasses define the samples."""

    method: str = lf.choice((*FLUTES, FEDREP, FEDREP_STAR, ROD, FEDAVG, TUNED_AVG, PER, LG, LOCAL_ONLY), FLUTE)
    n_clients: int = 50
    classes_per_client: int = 2
    rank: int = 4
    rounds: int = 100
    trials: int = 20
    tuning_trials: int = 5
    steps: tuple[float, ...] = STEPS
    weights: tuple[tuple[float, float], ...] = WEIGHTS
    seed: int = 0

    @property
    @abstractmethod
    def partition(self) -> str:
        """The clients and their classes, as text."""

    @abstractmethod
    def source(self, trials: int, seed: Any) -> dict[str, Any]:
        """Return the problem and the data of `trials` trials, as arguments of `lf.simulate`."""

    @property
    def algorithm(self) -> lf.Algorithm:
        """The method with a placeholder step size, which tuning replaces."""
        common: dict[str, Any] = {"step_size": 1.0, "local_steps": LOCAL}
        if self.method == LOCAL_ONLY:
            return lf.LocalOnly(**common)
        common["rank"] = self.rank
        if self.method in FLUTES:
            return lf.GeneralFLUTE(head_steps=FLUTES[self.method], **common)
        if self.method in (FEDREP, FEDREP_STAR):
            heads = lf.GradientHeads(steps=LOCAL if self.method == FEDREP else STAR)
            of_b = {"init": "random", "representation_steps": LOCAL, "orthonormalize": False}
            return FedRep(rank=self.rank, step_size=1.0, heads=heads, **of_b)
        if self.method == ROD:
            return FedRoD(personal=lf.GradientHeads(steps=LOCAL), **common)
        if self.method in (FEDAVG, TUNED_AVG):
            heads = lf.GradientHeads(steps=STAR) if self.method == TUNED_AVG else None
            return FedAvg(fine_tune=heads, **common)
        return {PER: FedPer, LG: LGFedAvg}[self.method](**common)

    @property
    def grid(self) -> Any:
        """The tuning grid: step sizes, and for FLUTE its weights."""
        if self.method not in FLUTES:
            return {"step_size": self.steps}
        collapse = self.weights if self.method not in (NO_NC, NO_NC_STAR) else [(0.0, 0.0)]
        names = ("step_size", "collapse_penalty", "server_step_size", "feature_penalty", "head_penalty")
        tried = [(step, *both, decay, decay) for step in self.steps for both in collapse for decay in DECAYS]
        return [dict(zip(names, values, strict=True)) for values in tried]

    def run(self) -> dict[str, Any]:
        """Tune the method on separate trials, run it, and return the accuracies and NC2 of each trial."""
        search = {"metric": held_out_error, "score": "final", "rounds": self.rounds, "trials": self.tuning_trials}
        wider = self.method not in FLUTES
        tuning = lf.tune(
            self.algorithm, grid=self.grid, extend=wider, **search, **self.source(self.tuning_trials, (self.seed, 1))
        )
        every = max(1, self.rounds // 20)
        run = {"rounds": self.rounds, "record_every": every, "trials": self.trials, "seed": self.seed}
        result = lf.simulate(tuning.algorithm, **run, **self.source(self.trials, self.seed))
        in_range = result.rounds <= self.rounds
        along = {"accuracy": 100.0, "global_nc2": 1.0, "local_nc2": 1.0}
        nothing = np.full((self.trials, len(result.rounds)), np.nan)
        curves = {name: scale * result.metrics.get(name, nothing) for name, scale in along.items()}
        return {
            "partition": self.partition,
            **tuning.columns(),
            **{
                name: lf.LabeledArray(curve[:, in_range], round=result.rounds[in_range])
                for name, curve in curves.items()
            },
            **{f"final_{name}": curve[:, -1] for name, curve in curves.items()},
            "own_classes": 100.0 * result.metrics["own_class_accuracy"][:, -1],
            "diverged": np.isnan(curves["accuracy"][:, -1]),
        }


def held_out_error(result: lf.Result) -> Any:
    """Return each trial's share of misclassified held-out samples, averaged over clients; NaN if the trial diverged."""
    return 1.0 - mean_of_those(result.per_client("accuracy"))


# --- figures -------------------------------------------------------------------------------------------------

NAMES = {"accuracy": "accuracy (%)", "global_nc2": "Global NC2", "local_nc2": "Local NC2"}


def figures(runs: lf.Table) -> Figures:
    """Draw final accuracies, accuracies against rounds, and NC2, for the fewest and the most clients."""
    clients = runs.unique("n_clients")
    ends = runs.select(n_clients=[min(clients), max(clients)])
    methods, low = (FEDAVG, FEDREP, FEDREP_STAR, FLUTE, FLUTE_STAR, LOCAL_ONLY), min(runs.unique("rank"))
    ranks = [f"k = {rank}\n{NAMES['accuracy']}" for rank in runs.unique("rank")]
    with along_rounds(ends, "rank", len(ranks)) as accuracy:
        accuracy.curves("round", "accuracy", order=methods)
        accuracy.label("round", *ranks, yscale="linear", ylim=(45, 101))
        accuracy.legend(medians(runs))
    kinds = ("global_nc2", "local_nc2")
    with along_rounds(ends.select(rank=low, method=list(COLLAPSING)), len(kinds), len(kinds)) as collapse:
        for line, name in enumerate(kinds):
            for ax, part in collapse.row(line):
                lf.plot_curves(ax, part, "round", name, order=COLLAPSING)
        collapse.label("round", *(NAMES[name] for name in kinds), yscale="linear")
        collapse.legend(f"k = {low}; {medians(runs)}")
    return {"": accuracies(ends), "curves": accuracy.figure, "nc2": collapse.figure}


def not_drawn(row: dict[str, Any], rank: int, clients: tuple[int, ...]) -> tuple[str, ...]:
    """Return the columns that no figure shows: NC2 is drawn at one rank, curves for some numbers of clients."""
    drawn, method = row["n_clients"] in clients, row["method"]
    curved = drawn and method in (FEDAVG, FEDREP, FEDREP_STAR, FLUTE, FLUTE_STAR, LOCAL_ONLY)
    collapsing = drawn and row["rank"] == rank and "F" in method and "Avg" not in method
    nc2 = () if collapsing else ("global_nc2", "local_nc2")
    return ("score", "tried_*", "final_*_nc2", *(() if curved else ("accuracy",)), *nc2)


def along_rounds(runs: lf.Table, row: str | int, lines: int) -> Any:
    """Return a grid of panels with a column for each partition and `lines` rows."""
    return lf.panels(runs, column="partition", row=row, title="{}", height=0.9 + 1.6 * lines, sharey="row")


def medians(runs: lf.Table) -> str:
    """Return the legend title for curves."""
    return f"median and 10-90 % of {runs.rows[0]['trials']} trials"


def accuracies(runs: lf.Table) -> Any:
    """Draw the mean accuracy of every method: a column of panels for each partition, a row for each rank."""
    ranks, lines = runs.unique("rank"), {"own_classes": (4, 2), "bayes": (1, 1)}
    height = 1.0 + 1.9 * len(ranks)
    with lf.panels(runs, column="partition", row="rank", title="{}", height=height, sharex="col") as sheet:
        for ax, part in sheet:
            for place, row in enumerate(reversed(part.rows)):
                mean, error = mean_error(row["final_accuracy"])
                shape = line_style(str(row["method"])) | {"linestyle": "none", "capsize": 1.5, "markersize": 4}
                ax.errorbar(mean, place, xerr=error, **shape)
            (one,) = part.select(method=FEDAVG).rows
            for name, dashes in lines.items():
                if name in one:
                    ax.axvline(np.nanmean(one[name]), color="0.4", linewidth=0.8, linestyle=(0, dashes), zorder=0)
            ax.set_yticks(range(len(part)), [method_label(row["method"]) for row in reversed(part.rows)])
            ax.label_outer(remove_inner_ticks=True)
        sheet.label("accuracy (%)", *(f"k = {rank}" for rank in ranks))
        bayes_note = "; dotted: the best classifier" if "bayes" in runs.rows[0] else ""
        trials = f"mean and standard error of {runs.rows[0]['trials']} trials"
        sheet.figure.suptitle(f"{trials}; dashed: FedAvg among own classes{bayes_note}", fontsize=8)
    return sheet.figure


def method_label(method: str) -> str:
    """Return the name of a method in figures and findings."""
    return method if method == PER else label(method)


def mean_error(values: Any) -> tuple[float, float]:
    """Return the mean over the trials that did not diverge, and its standard error."""
    finite_values = values[~np.isnan(values)]
    return (
        (float(finite_values.mean()), float(stats.sem(finite_values))) if len(finite_values) > 1 else (np.nan, np.nan)
    )
