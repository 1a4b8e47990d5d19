"""FedRep with compressed messages: its rate near B*, and the floats that clients send.

`linfed.CompressedFedRep` sparsifies or quantises each client's message at random, without bias. Its relative variance
kappa lowers the rate near B* (`linfed.theory.near_truth_factor`). For sparsification kappa is ``1/q - 1``, with q the
share of entries that are kept. For quantisation it is the mean over messages whose directions are Gaussian. The first
series compares the predicted factor of a round with runs, without a fitted parameter. The second counts the floats that
a client sends until B is near B*, each method with its predicted best step size. The simplest rivals are messages
without compression (d k floats), and the two vectors a and w of the message ``a w'`` of rank one (d + k floats).

Floats are counted as in `linfed.CompressedFedRep`: independent masks also send indices, and 32 bits are one float.

**Deviations**: no paper compresses FedRep's message, and the sizes are ours.

Figures
-------
"" : Factor of the mean squared tangent in a round near B* against kappa. Lines: predicted; markers: runs, their mean
    with a 95 % interval.
"floats" : Subspace distance against the floats that a client sends. Medians over trials, one panel for each number of
    clients. Paler lines: fewer entries or levels.

References: Alistarh, Grubic, Li, Tomioka and Vojnovic 2017; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import line_style
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import Measured, bootstrap_interval, mean_interval

SUMMARY = "FedRep with sparsified or quantised messages: the rate near B*, and the floats sent until B is near B*"
PICTURES = {"": 1005, "floats": 2070}

PLAIN, PAIR, OWN_MASKS, ONE_MASK, QUANTISED = "all entries", "a and w", "own masks", "one mask", "quantised"
LOOK = {name: line_style("", turn) for turn, name in enumerate((PLAIN, PAIR, OWN_MASKS, ONE_MASK, QUANTISED))}


@dataclass(frozen=True, kw_only=True)
class Compressed:
    """Runs with one compression of messages."""

    method: str = lf.choice((PLAIN, PAIR, OWN_MASKS, ONE_MASK, QUANTISED), OWN_MASKS)
    strength: float = 0.25  # the share of kept entries, or the number of levels
    n_clients: int = 30
    dim: int = 50
    rank: int = 3
    n_samples: int = 20
    trials: int = 400
    seed: int = 0

    def check(self) -> None:
        """Raise if all entries are sent with a strength that has no effect."""
        if self.method in (PLAIN, PAIR) and self.strength != 1:
            raise ValueError(f"strength = {self.strength} must be 1 for method = {self.method!r}")

    @property
    def problem(self) -> lf.GivenTruth:
        """A random B*, and heads of length sqrt(k) with second moment I."""
        rng, k = np.random.default_rng(self.seed), self.rank
        frames = [orthonormalize(rng.standard_normal((k, k))) for _ in range(self.n_clients // k)]
        B = orthonormalize(rng.standard_normal((self.dim, k)))
        return lf.GivenTruth(B=B, W=np.sqrt(k) * np.concatenate(frames))

    @property
    def variance(self) -> float:
        """Relative variance kappa: exact for sparsification; for quantisation the mean over Gaussian directions."""
        if self.method != QUANTISED:  # the strength is 1 for all entries
            return 1.0 / self.strength - 1.0
        rng = np.random.default_rng(self.seed)
        a, w = rng.standard_normal((4000, self.dim, 1)), rng.standard_normal((4000, 1, self.rank))
        a, w = a / np.linalg.norm(a, axis=1, keepdims=True), w / np.linalg.norm(w, axis=2, keepdims=True)
        rest = np.modf(np.abs(a * w) * self.strength)[0]
        return float((rest * (1.0 - rest)).sum(axis=(1, 2)).mean() / self.strength**2)

    @property
    def law(self) -> dict[str, Any]:
        """Arguments of predictions near B*."""
        sizes = {"W": self.problem.W, "dim": self.dim, "n_samples": self.n_samples}
        return sizes | {"compression": self.variance, "shared_mask": self.method == ONE_MASK}

    def simulated(self, step: float, start: float, rounds: int, metrics: Any) -> lf.Result:
        """Run FedRep with the compression from equal angles."""
        fields: dict[str, Any] = {"rank": self.rank, "step_size": step, "init": lf.AtDistance(start)}
        algorithm: lf.FedRep = lf.FedRep(**fields)
        if self.method == QUANTISED:
            algorithm = lf.CompressedFedRep(levels=int(self.strength), **fields)
        elif self.method in (OWN_MASKS, ONE_MASK):
            shared = self.method == ONE_MASK
            algorithm = lf.CompressedFedRep(kept_share=self.strength, shared_mask=shared, **fields)
        run: dict[str, Any] = {"rounds": rounds, "trials": self.trials, "seed": self.seed, "metrics": metrics}
        return lf.simulate(algorithm, self.problem, data=lf.FreshSamples(self.n_samples), **run)


@dataclass(frozen=True, kw_only=True)
class Factor(Compressed):
    """Factor of a round near B*."""

    step: float = 0.2
    rounds: int = 2

    def run(self) -> dict[str, Any]:
        """Return the ratio of the squared tangents after and before the rounds of each trial, and its prediction."""
        found = self.simulated(self.step, 1e-5, self.rounds, [squared_tangents]).metrics["squared_tangents"]
        predicted = lf.theory.near_truth_factor(step_size=self.step, **self.law)
        return {"measured": found[:, -1] / found[:, 0], "predicted": float(predicted), "kappa": self.variance}


@dataclass(frozen=True, kw_only=True)
class Sent(Compressed):
    """Distance along the floats that a client sends."""

    rounds: int = 60
    budget: float = 2500.0
    delta: float = 0.7
    target: float = 1e-3

    def run(self) -> dict[str, Any]:
        """Return the distance in every round with the predicted best step size, and the floats up to the target."""
        step = float(lf.theory.local_best_step(**self.law))
        result = self.simulated(step, self.delta, self.rounds, ["subspace_distance"])
        each = self.dim + self.rank if self.method == PAIR else result.algorithm.communication(dim=self.dim).up
        paths = result.metrics["subspace_distance"]
        first = np.array([hit(np.log(path / self.target)) for path in paths])
        return {"distance": lf.LabeledArray(paths, round=result.rounds), "each": float(each), "floats": each * first}


def hit(path: Any) -> float:
    """Return the round at which a path first falls to 0, linear between rounds; NaN if it does not."""
    t = int(np.argmax(path <= 0))
    return float(t - 1 + path[t - 1] / (path[t - 1] - path[t])) if t else float("nan")


def squared_tangents(state: lf.State, truth: lf.Truth) -> Any:
    """Return the sum of the squared tangents of the angles between B and B*, (trials,)."""
    assert truth.B is not None
    B = state.array("B")
    inside = truth.B.mT @ B
    return np.square((B - truth.B @ inside) @ np.linalg.inv(inside)).sum(axis=(-2, -1))


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return compressions near B* and along runs; quick: fewer of both."""
    shares = (0.5, 0.1) if quick else (0.5, 0.2, 0.1, 0.05)
    levels = (4.0, 1.0) if quick else (16.0, 8.0, 4.0, 2.0, 1.0)
    factor = Factor(trials=100) if quick else Factor()
    sent: dict[str, Any] = {"trials": 6, "rounds": 50} if quick else {"trials": 12, "rounds": 100}
    counts = (30,) if quick else (30, 300)
    kept = (0.25,) if quick else (0.5, 0.25, 0.1)
    few = (4.0,) if quick else (8.0, 4.0)
    base = replace(factor, method=PLAIN, strength=1.0)
    runs = []
    for n in counts:
        runs += [Sent(method=name, strength=1.0, n_clients=n, **sent) for name in (PLAIN, PAIR)]
        runs += lf.grid(Sent(n_clients=n, **sent), method=(OWN_MASKS, ONE_MASK), strength=kept)
        runs += lf.grid(Sent(method=QUANTISED, n_clients=n, **sent), strength=few)
    near = lf.grid(factor, method=(OWN_MASKS, ONE_MASK), strength=shares)
    return {"factor": [base, *near, *lf.grid(factor, method=(QUANTISED,), strength=levels)], "sent": runs}


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the factor of a round against kappa, and the distance against floats."""
    with lf.panels(tables["factor"], title="", height=3.0, width="column") as sheet:
        for ax, part in sheet:
            for name, rows in part.groupby("method"):
                ordered, look = sorted(rows.rows, key=lambda row: row["kappa"]), LOOK[name]
                x = [row["kappa"] for row in ordered]
                ax.plot(x, [row["predicted"] for row in ordered], color=look["color"], linestyle=look["linestyle"])
                means = np.array([factor(row) for row in ordered]).T
                bars = np.abs(means[1:] - means[0])
                ax.errorbar(x, means[0], bars, label=name, capsize=2, **look | {"linestyle": ""})
        sheet.label("kappa", "factor of a round", yscale="log")
        sheet.legend("95 % intervals of the mean", ncols=2)
    with lf.panels(tables["sent"], column="n_clients", title="{} clients", height=3.3, sharey=True) as second:
        for ax, part in second:
            for name, rows in part.groupby("method"):
                for turn, row in enumerate(rows.rows):
                    path, look = np.median(row["distance"].values, axis=0), LOOK[name]
                    shown = {"alpha": 1.0 - 0.3 * turn, "markevery": 0.2, "label": "" if turn else name}
                    ax.plot(row["each"] * np.arange(len(path)), path, **look | shown)
        row = tables["sent"].rows[0]
        limits = {"xlim": (0.0, row["budget"]), "ylim": (row["target"] / 10, 1.0)}
        second.label("floats sent by a client", "subspace distance", yscale="log", **limits)
        second.legend(f"median of {row['trials']} trials", ncols=3)
    return {"": sheet.figure, "floats": second.figure}


def factor(row: dict[str, Any]) -> Measured:
    """Return the measured factor of a round, with its interval."""
    value, low, high = np.array(mean_interval(row["measured"])) ** (1.0 / row["rounds"])
    return float(value), float(low), float(high)


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the predicted factors, and the floats up to the target distance."""
    out = []
    fields: dict[str, Any] = {"claimed_low": 0.97, "claimed_high": 1.03}
    fields |= {"source": OWN_PREDICTION.adding(f"3 % is {OWN_THRESHOLD}")}
    fields["statistic"] = "mean factor of a round near B*, divided by the predicted one"
    for row in tables["factor"].rows:
        value, low, high = (each / row["predicted"] for each in factor(row))
        detail = f"kappa = {row['kappa']:.3g}, predicted factor {row['predicted']:.3g}"
        text = "A round near B* has the predicted factor"
        out.append(judge((value, low, high), claim=text, setting=at(row), detail=detail, **fields))
    for _, part in tables["sent"].groupby("n_clients"):
        out += compared(part)
    return out


def at(row: dict[str, Any]) -> str:
    """Return the compression of a row as text."""
    return row["method"] if row["method"] in (PLAIN, PAIR) else f"{row['method']}, {row['strength']:g}"


def compared(part: lf.Table) -> list[Finding]:
    """Judge the floats of the best strength of each compression against those of its rivals."""
    out, best = [], {}
    for name, rows in part.groupby("method"):
        reached = [row for row in rows.rows if np.isfinite(row["floats"]).all()]
        if reached:
            best[name] = min(reached, key=lambda row: float(np.median(row["floats"])))
    for first, second, text in (
        (OWN_MASKS, PLAIN, "Own masks need fewer floats than all entries"),
        (ONE_MASK, PLAIN, "One mask needs fewer floats than all entries"),
        (ONE_MASK, OWN_MASKS, "One mask needs fewer floats than own masks"),
        (PAIR, OWN_MASKS, "The two vectors a and w need fewer floats than own masks"),
        (PAIR, ONE_MASK, "The two vectors a and w need fewer floats than one mask"),
        (PAIR, QUANTISED, "The two vectors a and w need fewer floats than quantised entries"),
    ):
        if first in best and second in best:
            fields: dict[str, Any] = {"setting": f"{part.rows[0]['n_clients']} clients", "source": OWN_THRESHOLD}
            fields |= {"claimed_high": 1.0, "strict": True, "detail": f"{at(best[first])} against {at(best[second])}"}
            fields["statistic"] = f"ratio of the floats up to distance {part.rows[0]['target']:g}, medians over trials"
            out.append(judge(ratio(best[first]["floats"], best[second]["floats"]), claim=text, **fields))
    return out


def ratio(first: Any, second: Any) -> Measured:
    """Return the ratio of the medians over trials, with its interval."""

    def of(one: Any, other: Any, axis: int = 0) -> Any:
        return np.median(one, axis=axis) / np.median(other, axis=axis)

    return (float(of(first, second)), *bootstrap_interval(of, (first, second), vectorized=True))
