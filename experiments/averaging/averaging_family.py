"""The averaging family: fixed points, stationary variance and communication of seven algorithms, against predictions.

The model has one layer. There are n = 20 clients with m = 20 fixed samples each in d = 10 dimensions. The noise has
standard deviation 0.3, and the local steps are full-gradient steps of one common size. The ground truth of a client is
``sqrt(1 - h^2) c + h z_i``, with c and z_i random of length about 1: h is the heterogeneity. The base setting has K = 5
local steps, 5 of 20 clients in a round, and h = 1. K, the number of participants, h and the counts (5 to 35 samples,
weights in proportion) are varied one at a time. All algorithms run on the same data sets with the same participants.
ClusterFedVARP and FedSCAVAR have five clusters, with client i in cluster i mod 5. These clusters ignore the clients'
data, except in one setting: there the clients of a cluster have one ground truth, with ``z_(i mod 5)`` for z_i.

Measured are the distances of the server's model from the global least-squares solution, and from the algorithm's own
limit. The limit of FedAvg, FedProx, FedVARP and ClusterFedVARP is the fixed point of FedAvg with full participation
(`linfed.theory`). The limit of SCAFFOLD, and of FedSCAVAR with the whole model, is the global least-squares solution.
For algorithms that train only windows of the model no limit is known. Runs are judged over the second half of the
rounds: the final distance from the optimum, the column "end", is the median over these rounds. The column "settled" is
the mean squared distance from the limit over them; for FedAvg it is predicted by the stationary covariance.

**Deviations**: the source has no experiment on a linear model and no sizes; all are our choice. The common step size is
not tuned, so that claims about rounds hold only at this step size.

References: the averaging family's source, Algorithms 1 to 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.algorithms.averaging.scaffold import ScaffoldState
from linfed.algorithms.parts.models import weighted_mean
from linfed.figures.style import draw_level
from linfed.numerics.linalg import take_clients
from linfed.plotting.panels import Figures
from linfed.statistics import Origin, first_round_below, median_ratio

SUMMARY = "The averaging family: fixed points, drift, variance and floats sent of its seven algorithms"
CAPTIONS = {
    "": (
        "Distance of the server's model from the global least-squares solution, against rounds. Lines: median over "
        "trials; shaded: 10-90 %. Dashed: predicted distance of FedAvg's fixed point."
    ),
    "own": (
        "Distance from each algorithm's own limit, if it is known, against rounds. Lines: median over trials; shaded:"
        " 10-90 %. Dashed: predicted root mean square of FedAvg."
    ),
    "floats": (
        "Distance from the global least-squares solution against the numbers sent by server and participants. Lines: "
        "median over trials; shaded: 10-90 %. Dashed: predicted distance of FedAvg's fixed point."
    ),
}
PICTURES = {"": 2070, "floats": 2070, "own": 2070}
REDUCED = {
    "runs": {  # the figures show the first curves of four settings and of methods without further options
        "first_rounds": 41,
        "deciles": ("to_best", "to_own", "end", "settled", "spread", "drift"),
        "without": lambda row: (
            ("reached",)
            if row["heterogeneity"] == 1.0
            and row["participants"] > 2
            and row["local_steps"] > 1
            and "," not in row["method"]
            and not row["alike"]
            else ("reached", "to_best", "to_own")
        ),
    }
}

COUNTS = (*range(5, 36, 2), *(35,) * 4)
"""Samples of the 20 clients, if they have unequally many."""
CLUSTERS = 5
STEP = 0.1
AVG, PROX, SCAFFOLD, VARP, CLUSTER = ("FedAvg", "FedProx", "SCAFFOLD", "FedVARP", "ClusterFedVARP")
ROLEX, SCAVAR, SINGLE, PRINTED = ("FedRolex", "FedSCAVAR", "FedAvg, K = 1", "SCAFFOLD, printed weights")


class PrintedState(ScaffoldState):
    """State of SCAFFOLD that updates c with the participants' weights times p/n, as printed in the source."""

    def mean(self, values: Any, active: Any = None) -> Any:
        """Return the printed mean over the participants."""
        shares = take_clients(self.shares, active)
        p, n = active.shape[-1], self.shares.shape[-1]
        return (p / n) * weighted_mean(values, shares / shares.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, kw_only=True)
class PrintedScaffold(lf.SCAFFOLD):
    """SCAFFOLD with the weights printed in its source."""

    def initial_state(self, start: Any) -> PrintedState:
        """Return SCAFFOLD's initial state, with the printed mean."""
        return PrintedState(**super().initial_state(start).arrays())


METHODS: dict[str, tuple[type[lf.Algorithm], dict[str, Any]]] = {
    AVG: (lf.FedAvg, {}),
    SINGLE: (lf.FedAvg, {"local_steps": 1}),
    PROX: (lf.FedProx, {"mu": 1.0}),
    SCAFFOLD: (lf.SCAFFOLD, {}),
    PRINTED: (PrintedScaffold, {}),
    VARP: (lf.FedVARP, {}),
    CLUSTER: (lf.ClusterFedVARP, {"clusters": CLUSTERS}),
    ROLEX: (lf.FedRolex, {"model_share": 0.5}),
    SCAVAR: (lf.FedSCAVAR, {"clusters": CLUSTERS}),
}
OF_FEDAVG, OF_SCAFFOLD = (AVG, SINGLE, PROX, VARP, CLUSTER), (SCAFFOLD, SCAVAR)
LEVEL, EXACT = 1e-2, 1e-6
"""Distances from the global least-squares solution: one that runs soon reach, and one that counts as zero."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One algorithm in one setting."""

    method: str = lf.choice(METHODS, AVG)
    local_steps: int = 5
    participants: int = 5
    heterogeneity: float = 1.0
    counts: str = lf.choice(("equal", "unequal"), "equal")
    alike: bool = lf.choice((False, True), False)  # one ground truth for each cluster
    dim: int = 10
    n_clients: int = 20
    n_samples: int = 20
    noise_std: float = 0.3
    n_rounds: int = 1000
    trials: int = 50
    seed: int = 0

    @property
    def setting(self) -> str:
        """The varied sizes, as text."""
        more = ", unequal m" * (self.counts != "equal") + ", alike in clusters" * self.alike
        return f"K = {self.local_steps}, p = {self.participants}, h = {self.heterogeneity:g}{more}"

    @property
    def algorithm(self) -> Any:
        """The algorithm with its options."""
        kind, options = METHODS[self.method]
        weights = "uniform" if self.counts == "equal" else "samples"
        return kind(**{"step_size": STEP, "local_steps": self.local_steps, "weights": weights} | options)

    def data(self, trial: int) -> tuple[lf.GivenTruth, lf.GivenSamples]:
        """Return a trial's ground truth and samples, equal for all algorithms; fewer samples are a prefix of more."""
        rng = np.random.default_rng((self.seed, trial))
        common, deviations = rng.standard_normal(self.dim), rng.standard_normal((self.n_clients, self.dim))
        if self.alike:
            deviations = deviations[np.arange(self.n_clients) % CLUSTERS]
        h = self.heterogeneity
        Phi = (np.sqrt(1.0 - h * h) * common + h * deviations) / np.sqrt(self.dim)
        n, most = self.n_clients, max(*COUNTS, self.n_samples)
        X, noise = rng.standard_normal((n, most, self.dim)), self.noise_std * rng.standard_normal((n, most))
        counts = [self.n_samples] * n if self.counts == "equal" else COUNTS
        rows = [X[i, :m] for i, m in enumerate(counts)]
        labels = [x @ phi + e[: len(x)] for x, phi, e in zip(rows, Phi, noise, strict=True)]
        return lf.GivenTruth(Phi=Phi, noise_std=self.noise_std), lf.GivenSamples(rows, labels)

    def run(self) -> dict[str, Any]:
        """Return both distances along the rounds, their final values and their predictions, trial by trial."""
        trials = [self.trial(trial) for trial in range(self.trials)]
        rounds = np.arange(0, self.n_rounds + 1, 5)
        sent = rounds * self.participants * sum(self.algorithm.communication(dim=self.dim))
        found = {name: np.stack([one[name] for one in trials]) for name in trials[0]}
        curves = {name: lf.LabeledArray(found[name][:, rounds], round=rounds) for name in ("to_best", "to_own")}
        return {"setting": self.setting} | found | curves | {"floats_sent": lf.LabeledArray(sent, round=rounds)}

    def trial(self, trial: int) -> dict[str, Any]:
        """Run one trial."""
        problem, data = self.data(trial)
        A, b = data.normal_equations()
        weights = data.counts / data.counts.sum()
        best = np.linalg.solve(np.einsum("i,ijk->jk", weights, A), weights @ b)
        end, spread = self.predicted(A, b, weights, best)
        run = partial(lf.iterate, participation=self.participants, seed=(self.seed, trial))
        steps = run(self.algorithm, problem, data=data, n_rounds=self.n_rounds)
        path = np.stack([step.after.array("S")[0, 0] for step in steps])
        path = np.concatenate([path, np.full((self.n_rounds + 1 - len(path), self.dim), np.nan)])  # diverged
        to_best, to_own = np.linalg.norm(path - best, axis=1), np.linalg.norm(path - end, axis=1)
        half = self.n_rounds // 2
        scores = {"settled": np.mean(to_own[half:] ** 2), "spread": spread, "drift": np.linalg.norm(end - best)}
        reached = first_round_below(np.arange(float(len(path))), to_best[None], LEVEL)[0]
        return {"to_best": to_best, "to_own": to_own, "end": np.median(to_best[half:]), "reached": reached} | scores

    def predicted(self, A: Array, b: Array, weights: Array, best: Array) -> tuple[Array, float]:
        """Return the limit of the mean and the mean square around it; NaN without a prediction."""
        if self.method in OF_SCAFFOLD:
            return best, 0.0
        if self.method not in OF_FEDAVG:
            return np.full(self.dim, np.nan), np.nan
        steps, mu = self.algorithm.local_steps, getattr(self.algorithm, "mu", 0.0)
        end = lf.theory.fedavg_fixed_point(A, b, weights=weights, step_size=STEP, local_steps=steps, mu=mu)
        if self.method == VARP or self.participants == self.n_clients:
            return end, 0.0
        if self.method == CLUSTER or self.counts != "equal":
            return end, np.nan
        covariance = lf.theory.fedavg_stationary_covariance(
            A, b, participants=self.participants, step_size=STEP, local_steps=steps, mu=mu
        )
        return end, float(np.trace(covariance))


def cells(quick: bool) -> dict[str, list[Family]]:
    """Return every method in the base setting and in the settings that differ from it in one size."""
    base = Family(n_rounds=180, trials=12) if quick else Family()
    varied = [*lf.grid(base, participants=(2, base.n_clients)), replace(base, counts="unequal")]
    varied += lf.grid(base, local_steps=(1, 20)) + lf.grid(base, heterogeneity=(0.0, 0.3))
    settings = [base, *([] if quick else varied), replace(base, alike=True)]
    return {"runs": [cell for setting in settings for cell in lf.grid(setting, method=tuple(METHODS))]}


DRAWN, LEAST = 41, 1e-4
"""Number of recorded rounds drawn, and the smallest distance: only SCAFFOLD and FedSCAVAR come below it."""
EARLY = 12
"""Index of the last record in the first row of panels, whose methods stop falling early."""
GROUPS = {
    "to_best": ((AVG, PROX, ROLEX, CLUSTER, VARP), (SCAFFOLD, SCAVAR)),
    "to_own": ((AVG, PROX, CLUSTER), (VARP, SCAFFOLD, SCAVAR)),
}
"""Methods in each row of panels: those that stop at a distance, and those that go on falling."""


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances from the optimum and from the own limit against rounds, and the first against floats sent."""
    figures, runs = {}, tables["runs"]
    base, steps = runs.rows[0], max(runs.unique("local_steps"))
    varied = runs.select(local_steps=steps), runs.select(participants=base["n_clients"]), runs.select(counts="unequal")
    drawn = runs.select(setting=[base["setting"], *lf.Table.joined(varied).unique("setting")])
    drawn = drawn.assign(panel=lambda row: row["setting"].replace(", h = 1", ""))
    for key, x, y in (("", "round", "to_best"), ("own", "round", "to_own"), ("floats", "floats_sent", "to_best")):
        ylabel = "distance from the optimum" if y == "to_best" else "distance from the own limit"
        with lf.panels(drawn, column="panel", row=2, title="{}", height=4.2, sharey="row") as sheet:
            for line, names in enumerate(GROUPS[y]):
                for ax, part in sheet.row(line):
                    rows = part.select(method=list(names))
                    lf.plot_curves(ax, rows, x, y, order=names, at=slice(0, DRAWN))
                    if line == 1:
                        ax.set(yscale="log", ylim=(LEAST, 1.0), xlim=(0, reached(rows, x, y)))
                        continue
                    fedavg = part.select(method=AVG)
                    what = "drift" if y == "to_best" else "spread"
                    level = fedavg[what] if what == "drift" else np.sqrt(fedavg[what])
                    if np.isfinite(level).all() and np.median(level) > 0:
                        draw_level(ax, float(np.median(level)), label=f"FedAvg's {what}, predicted")
                    ax.set(yscale="log", ylim=(0.01, 1.0), xlim=(0, fedavg[x][EARLY]))
            kinds = [f"{kind}\n{ylabel}" for kind in ("without convergence:", "with convergence:")]
            sheet.label("floats sent" if x == "floats_sent" else "round", *kinds)
            sheet.legend(f"median and 10-90 % of {drawn.rows[0]['trials']} trials", ncols=4)
        figures[key] = sheet.figure
    return figures


def reached(part: lf.Table, x: str, y: str) -> float:
    """Return the end of the horizontal axis: where the last method's median reaches the lower end of the panel."""
    ends = [first_round_below(row[x][:DRAWN], np.median(row[y], axis=0)[None, :DRAWN], LEAST) for row in part]
    return min(float(np.max(ends)), max(float(row[x][:DRAWN][-1]) for row in part))


EXPECTED = c.Source("own expectation; the source prints the algorithm without a claim", Origin.CONJECTURE)
several_steps = c.only(lambda row: row["local_steps"] > 1)
some_clients = c.only(lambda row: row["participants"] < row["n_clients"])
alike = c.only(lambda row: row["alike"])
not_alike = c.only(lambda row: not row["alike"])
has_prediction = c.only(lambda row: 0.0 < row["spread"].min() <= row["spread"].max() < np.inf)
all_clients = c.only(lambda row: row["participants"] == row["n_clients"])
OfEach = partial(c.Claim, over=c.each("setting"), setting="{setting}")
OfSome = partial(OfEach, where=some_clients)
NAMES = {SINGLE: "FedAvg with one local step", PRINTED: "SCAFFOLD with the printed weights"}


def algorithm(number: int) -> c.Source:
    """Return the source of a claim on the purpose of one of the source's algorithms."""
    return EXPECTED.adding(f"Algorithm {number}", ", ")


LATE = "over the second half of the rounds"
FINAL = {"end": f"median distance from the optimum {LATE}", "settled": f"mean square distance from the limit {LATE}"}
"""Final distances, by column."""


def nearer(column: str, first: str, second: str) -> c.Statistic:
    """Return the share of trials in which the first method has the smaller final distance."""
    return c.smaller(column, first, second, f"share of paired trials with the smaller {FINAL[column]}")


def smaller_end(first: str, second: str, source: c.Source) -> c.Claim:
    """Return the claim that a method ends nearer to the optimum than another."""
    sentence = f"{NAMES.get(first, first)} has a smaller final distance from the optimum than {second}"
    return OfEach(sentence, source, nearer("end", first, second), where=several_steps)


def below(column: str, level: float) -> c.Statistic:
    """Return the share of trials that end below a level."""
    return c.share(lambda row: row[column] < level, f"share of trials with a {FINAL[column]} below {level:g}")


def converges(method: str, source: c.Source) -> c.Claim:
    """Return the claim that a method converges to the optimum."""
    sentence = f"{NAMES.get(method, method)} converges to the optimum"
    return OfEach(sentence, source, below("end", EXACT), c.above(0.9), where=c.of(method=method))


def has_variance(method: str) -> c.Claim:
    """Return the claim that a method has the predicted stationary variance."""
    words = f"{FINAL['settled']} divided by the predicted one, median over trials"
    ratio = c.measured(words, lambda row: median_ratio(row["settled"], row["spread"]), c.within(0.9, 1.1))
    sentence = f"{method}'s stationary variance is the predicted one"
    return OfEach(sentence, c.OWN_PREDICTION, ratio, where=(c.of(method=method), has_prediction))


FEWER = f"share of paired trials with fewer rounds to a distance of {LEVEL:g} (ties excluded)"
CLAIMS = (
    smaller_end(PROX, AVG, algorithm(2)),
    smaller_end(SINGLE, PROX, c.OWN_PREDICTION),
    converges(SCAFFOLD, algorithm(4)),
    converges(SCAVAR, algorithm(8)),
    converges(PRINTED, algorithm(4)),
    OfSome("FedVARP converges closer to its own limit than FedAvg", algorithm(5), nearer("settled", VARP, AVG)),
    OfSome(
        "ClusterFedVARP converges closer to its own limit than FedAvg",
        algorithm(6),
        nearer("settled", CLUSTER, AVG),
        where=(some_clients, alike),
    ),
    OfSome(
        "ClusterFedVARP with clusters that ignore the clients' data converges closer to its own limit than FedAvg",
        algorithm(6),
        nearer("settled", CLUSTER, AVG),
        where=(some_clients, not_alike),
    ),
    OfSome(
        "ClusterFedVARP stays further from its own limit than FedVARP",
        c.OWN_PREDICTION,
        nearer("settled", VARP, CLUSTER),
    ),
    OfEach(
        "FedVARP converges to the fixed point of FedAvg with full participation",
        c.OWN_PREDICTION,
        below("settled", EXACT**2),
        c.above(0.9),
        where=c.of(method=VARP),
    ),
    has_variance(AVG),
    has_variance(PROX),
    OfEach(
        "FedRolex with half the model has a larger final distance from the optimum than FedAvg",
        algorithm(7),
        nearer("end", AVG, ROLEX),
    ),
    *(
        OfEach(
            f"FedSCAVAR with {clusters} needs fewer rounds than SCAFFOLD",
            algorithm(8),
            c.smaller("reached", SCAVAR, SCAFFOLD, FEWER),
            where=where,
        )
        for clusters, where in (
            ("alike clients in each cluster", alike),
            ("clusters that ignore the clients' data", not_alike),
        )
    ),
    OfEach(
        "With full participation FedAvg has a larger final distance from the optimum than with one local step",
        algorithm(4),
        nearer("end", SINGLE, AVG),
        where=(several_steps, all_clients),
    ),
)
