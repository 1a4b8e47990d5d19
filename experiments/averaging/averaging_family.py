"""The averaging family: fixed points, stationary variance and communication of seven algorithms, against predictions.

The model has one layer. There are n = 20 clients with m = 20 fixed samples each in d = 10 dimensions. The noise has
standard deviation 0.3, and the local steps are full-gradient steps of one common size. The ground truth of a client is
``sqrt(1 - h^2) c + h z_i``, with c and z_i random of length about 1: h is the heterogeneity. The base setting has K = 5
local steps, 5 of 20 clients in a round, and h = 1. K, the number of participants, h and the counts (5 to 35 samples,
weights in proportion) are varied one at a time. All algorithms run on the same data sets with the same participants.

Measured are the distances of the server's model from the global least-squares solution, and from the algorithm's own
limit. The limit of FedAvg, FedProx, FedVARP and ClusterFedVARP is the fixed point of FedAvg with full participation
(`linfed.theory`). The limit of SCAFFOLD, and of FedSCAVAR with the whole model, is the global least-squares solution.
For algorithms that train only windows of the model no limit is known. The column "settled" is the mean squared distance
from the limit over the second half of the rounds; for FedAvg it is predicted by the stationary covariance.

**Deviations**: the source has no experiment on a linear model and no sizes; all are our choice. The common step size is
not tuned, so that claims about rounds hold only at this step size.

Figures
-------
"" : Distance of the server's model from the global least-squares solution, against rounds. Lines: median over trials;
    shaded: 10-90 %. Dashed: predicted distance of FedAvg's fixed point.
"own" : Distance from each algorithm's own limit, if it is known, against rounds. Lines: median over trials; shaded:
    10-90 %. Dashed: predicted root mean square of FedAvg.
"floats" : Distance from the global least-squares solution against the numbers sent by server and participants. Lines:
    median over trials; shaded: 10-90 %. Dashed: predicted distance of FedAvg's fixed point.

References: the averaging family's source, Algorithms 1 to 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.algorithms.averaging.scaffold import ScaffoldState
from linfed.algorithms.parts.models import weighted_mean
from linfed.figures.style import draw_level
from linfed.numerics.linalg import take_clients
from linfed.plotting.panels import Figures
from linfed.statistics.findings import OWN_PREDICTION, Finding, judge, judge_share, judge_smaller
from linfed.statistics.intervals import first_round_below, median_ratio

SUMMARY = "The averaging family: fixed points, drift, variance and floats sent of its seven algorithms"
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
            else ("reached", "to_best", "to_own")
        ),
    }
}

N, D, M = 20, 10, 20
COUNTS = tuple(range(5, 36, 2))[:N] + (35,) * (N - 16)
STEP, CLUSTERS, SHARE, MU = 0.1, 5, 0.5, 1.0
AVG, PROX, SCAFFOLD, VARP, CLUSTER = ("FedAvg", "FedProx", "SCAFFOLD", "FedVARP", "ClusterFedVARP")
ROLEX, FILLED, SCAVAR, HALF = ("FedRolex", "FedRolex, zero-filled", "FedSCAVAR", "FedSCAVAR, half the model")
SINGLE, PRINTED = ("FedAvg, K = 1", "SCAFFOLD, printed weights")


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

    requires = lf.SCAFFOLD.requires

    def initial_state(self, start: Any) -> PrintedState:
        """Return SCAFFOLD's initial state, with the printed mean."""
        return PrintedState(**super().initial_state(start).arrays())


METHODS: dict[str, tuple[type[lf.Algorithm], dict[str, Any]]] = {
    AVG: (lf.FedAvg, {}),
    SINGLE: (lf.FedAvg, {"local_steps": 1}),
    PROX: (lf.FedProx, {"mu": MU}),
    SCAFFOLD: (lf.SCAFFOLD, {}),
    PRINTED: (PrintedScaffold, {}),
    VARP: (lf.FedVARP, {}),
    CLUSTER: (lf.ClusterFedVARP, {"clusters": CLUSTERS}),
    ROLEX: (lf.FedRolex, {"model_share": SHARE}),
    FILLED: (lf.FedRolex, {"model_share": SHARE, "aggregation": "zero-filled"}),
    SCAVAR: (lf.FedSCAVAR, {"clusters": CLUSTERS}),
    HALF: (lf.FedSCAVAR, {"clusters": CLUSTERS, "model_share": SHARE}),
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
    dim: int = D
    n_clients: int = N
    n_samples: int = M
    noise_std: float = 0.3
    rounds: int = 1000
    trials: int = 50
    seed: int = 0

    @property
    def setting(self) -> str:
        """The varied sizes, as text."""
        counts = "" if self.counts == "equal" else ", unequal m"
        return f"K = {self.local_steps}, p = {self.participants}, h = {self.heterogeneity:g}{counts}"

    @property
    def algorithm(self) -> Any:
        """The algorithm with its options."""
        kind, options = METHODS[self.method]
        weights = "uniform" if self.counts == "equal" else "samples"
        return kind(**{"step_size": STEP, "local_steps": self.local_steps, "weights": weights, **options})

    def data(self, trial: int) -> tuple[lf.GivenTruth, lf.GivenSamples]:
        """Return a trial's ground truth and samples, equal for all algorithms; fewer samples are a prefix of more."""
        rng = np.random.default_rng((self.seed, trial))
        common, deviations = rng.standard_normal(self.dim), rng.standard_normal((self.n_clients, self.dim))
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
        found = [self.trial(trial) for trial in range(self.trials)]
        rounds = np.arange(0, self.rounds + 1, 5)
        sent = rounds * self.participants * sum(self.algorithm.communication(dim=self.dim))
        curves = {name: np.stack([one[name] for one in found]) for name in found[0]}
        out = {name: lf.LabeledArray(curves.pop(name)[:, rounds], round=rounds) for name in ("to_best", "to_own")}
        return {"setting": self.setting, **out, **curves, "floats_sent": lf.LabeledArray(sent, round=rounds)}

    def trial(self, trial: int) -> dict[str, Any]:
        """Run one trial."""
        problem, data = self.data(trial)
        A, b = data.normal_equations()
        weights = data.counts / data.counts.sum()
        best = np.linalg.solve(np.einsum("i,ijk->jk", weights, A), weights @ b)
        end, spread = self.predicted(A, b, weights, best)
        run = {"data": data, "rounds": self.rounds, "participation": self.participants, "seed": (self.seed, trial)}
        path = np.stack([step.after.S[0, 0] for step in lf.iterate(self.algorithm, problem, **run)])
        path = np.concatenate([path, np.full((self.rounds + 1 - len(path), self.dim), np.nan)])  # diverged
        to_best, to_own = np.linalg.norm(path - best, axis=1), np.linalg.norm(path - end, axis=1)
        half = self.rounds // 2
        scores = {"settled": np.mean(to_own[half:] ** 2), "spread": spread, "drift": np.linalg.norm(end - best)}
        reached = first_round_below(np.arange(len(path)), to_best[None], LEVEL)[0]
        return {"to_best": to_best, "to_own": to_own, "end": np.median(to_best[half:]), "reached": reached, **scores}

    def predicted(self, A: Any, b: Any, weights: Any, best: Any) -> tuple[Any, float]:
        """Return the limit of the mean and the mean square around it; NaN without a prediction."""
        algorithm, none = self.algorithm, np.nan
        if self.method in OF_SCAFFOLD:
            return best, 0.0
        if self.method not in OF_FEDAVG:
            return np.full(self.dim, none), none
        steps = {"step_size": STEP, "local_steps": algorithm.local_steps, "mu": getattr(algorithm, "mu", 0.0)}
        end = lf.theory.fedavg_fixed_point(A, b, weights=weights, **steps)
        if self.method == VARP or self.participants == self.n_clients:
            return end, 0.0
        if self.method == CLUSTER or self.counts != "equal":
            return end, none
        covariance = lf.theory.fedavg_stationary_covariance(A, b, participants=self.participants, **steps)
        return end, float(np.trace(covariance))


def cells(quick: bool) -> dict[str, list[Family]]:
    """Return every method in the base setting and in the settings that differ from it in one size."""
    base = Family(rounds=180, trials=12) if quick else Family()
    varied: dict[str, tuple[Any, ...]] = {
        "participants": (2, N),
        "counts": ("unequal",),
        "local_steps": (1, 20),
        "heterogeneity": (0.0, 0.3),
    }
    others = {} if quick else varied
    settings = [base, *(replace(base, **{name: value}) for name, values in others.items() for value in values)]
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
    ends: dict[str, Any] = {"local_steps": steps, "participants": base["n_clients"], "counts": "unequal"}
    varied = [row["setting"] for row in runs.rows if any(row[name] == end for name, end in ends.items())]
    runs = runs.select(setting=[base["setting"], *varied])
    runs = runs.assign(panel=lambda row: row["setting"].replace(", h = 1", ""))
    for key, x, y, ylabel in (
        ("", "round", "to_best", "distance from the optimum"),
        ("own", "round", "to_own", "distance from the own limit"),
        ("floats", "floats_sent", "to_best", "distance from the optimum"),
    ):
        with lf.panels(runs, column="panel", row=2, title="{}", height=4.2, sharey="row") as sheet:
            for line, names in enumerate(GROUPS[y]):
                for ax, part in sheet.row(line):
                    fedavg = part.select(method=AVG)
                    lf.plot_curves(ax, part.select(method=list(names)), x, y, order=names, at=slice(0, DRAWN))
                    if line == 0:
                        level = fedavg["drift"] if y == "to_best" else np.sqrt(fedavg["spread"])
                        if np.isfinite(level).all() and np.median(level) > 0:
                            draw_level(
                                ax,
                                float(np.median(level)),
                                "",
                                label="FedAvg's drift, predicted" if y == "to_best" else "FedAvg's spread, predicted",
                            )
                        ax.set(yscale="log", ylim=(0.01, 1.0), xlim=(0, fedavg[x][EARLY]))
                    else:
                        ax.set(
                            yscale="log", ylim=(LEAST, 1.0), xlim=(0, reached(part.select(method=list(names)), x, y))
                        )
            sheet.label("floats sent" if x == "floats_sent" else "round", ylabel, ylabel)
            sheet.legend(f"median and 10-90 % of {runs.rows[0]['trials']} trials", ncols=4)
        figures[key] = sheet.figure
    return figures


def reached(part: lf.Table, x: str, y: str) -> float:
    """Return the end of the horizontal axis: where the last method's median reaches the lower end of the panel."""
    ends = [first_round_below(row[x][:DRAWN], np.median(row[y], axis=0)[None, :DRAWN], LEAST) for row in part]
    return min(float(np.max(ends)), max(float(row[x][:DRAWN][-1]) for row in part))


KNOWN = [AVG, PROX, SCAFFOLD, VARP, CLUSTER, SCAVAR]
SOURCE = "own expectation; the source prints the algorithm without a claim"


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return the findings on each algorithm's purpose and on the predictions, in every setting."""
    out = []
    for where, part in tables["runs"].groupby("setting"):
        row = {name: part.select(method=name) for name in METHODS}
        some = part.rows[0]["participants"] < part.rows[0]["n_clients"]
        end = {name: one["end"] for name, one in row.items()}
        settled = {name: one["settled"] for name, one in row.items()}
        same = part.rows[0]["local_steps"] == 1

        def lower(one: str, other: str, text: str, source: str, values: Any = end, setting: str = where) -> Finding:
            return judge_smaller(values[one], values[other], claim=text, setting=setting, source=source,
                           statistic="share of paired trials with the smaller final distance")  # fmt: skip

        if not same and not some:
            text = (
                "With full participation FedAvg has a larger final distance from the optimum than with one local step"
            )
            out.append(lower(SINGLE, AVG, text, f"{SOURCE}, Algorithm 4"))
        if not same:
            text = "FedProx has a smaller final distance from the optimum than FedAvg"
            out.append(lower(PROX, AVG, text, f"{SOURCE}, Algorithm 2"))
            text = "FedAvg with one local step has a smaller final distance from the optimum than FedProx"
            out.append(lower(SINGLE, PROX, text, OWN_PREDICTION))
        for name in (*OF_SCAFFOLD, PRINTED):
            called = "SCAFFOLD with the printed weights" if name == PRINTED else name
            text, source = f"{called} converges to the optimum", f"{SOURCE}, Algorithm {8 if name == SCAVAR else 4}"
            statistic = f"share of trials whose final distance from the optimum is below {EXACT:g}"
            out.append(
                judge_share(end[name] < EXACT, 0.9, claim=text, setting=where, source=source, statistic=statistic)
            )
        if some:
            text = "FedVARP converges closer to its own limit than FedAvg"
            out.append(lower(VARP, AVG, text, f"{SOURCE}, Algorithm 5", settled))
            text = "ClusterFedVARP converges closer to its own limit than FedAvg"
            out.append(lower(CLUSTER, AVG, text, f"{SOURCE}, Algorithm 6", settled))
            text = "ClusterFedVARP stays further from its own limit than FedVARP"
            out.append(lower(VARP, CLUSTER, text, OWN_PREDICTION, settled))
        statistic = f"share of trials whose final mean square about FedAvg's fixed point is below {EXACT**2:g}"
        text = "FedVARP converges to the fixed point of FedAvg with full participation"
        fields = {"claim": text, "setting": where, "source": OWN_PREDICTION, "statistic": statistic}
        out.append(judge_share(settled[VARP] < EXACT**2, 0.9, **fields))
        for name in (AVG, PROX):
            predicted = row[name]["spread"]
            if np.isfinite(predicted).all() and predicted.min() > 0:
                fields = {"claim": f"{name}'s stationary variance is the predicted one", "setting": where}
                fields |= {
                    "statistic": "mean square about the limit divided by the predicted one, median over trials",
                    "source": OWN_PREDICTION,
                }
                out.append(judge(median_ratio(settled[name], predicted), claimed_low=0.9, claimed_high=1.1, **fields))
        text = "FedRolex with half the model has a larger final distance from the optimum than FedAvg"
        out.append(lower(AVG, ROLEX, text, f"{SOURCE}, Algorithm 7"))
        reached = {name: row[name]["reached"] for name in OF_SCAFFOLD}
        fields = {
            "claim": "FedSCAVAR needs fewer rounds than SCAFFOLD",
            "setting": where,
            "source": f"{SOURCE}, Algorithm 8",
        }
        fields["statistic"] = f"share of paired trials with fewer rounds to a distance of {LEVEL:g} (ties excluded)"
        out.append(judge_smaller(reached[SCAVAR], reached[SCAFFOLD], **fields))
    return out
