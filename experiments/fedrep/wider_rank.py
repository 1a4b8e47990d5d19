"""Representations that are wider than the ground truth: what FedRep and ANIL do with the extra columns.

The ground truth has rank r = 2, and B has k > r columns. The distance is the sine of the largest angle between span(B*)
and span(B). Of the k directions of span(B), k - r have no part in span(B*). FedRep's mean step does not move them, so a
wider B costs samples but does not learn less. To first order, FedRep with k columns is FedRep with r columns on
``m - (k-r)`` samples in ``d - (k-r)`` dimensions, with the step size multiplied by ``(m - (k-r))/m``, from the same
initial angles. `lf.predict` for this narrow run is the prediction. Its competitor is the prediction that ignores the
extra columns, with all samples and dimensions.

Yueksel, Boursier and Flammarion study first-order ANIL with k > r. They find that it learns span(B*) and unlearns its
complement. Its own step from m samples has noise of variance ``v = mean_i (||phi_i||^2 + sigma^2)/m``. With other
samples for the second step, an extra direction of length s shrinks as ``s <- s - beta alpha^2 v s^3``. The competitor
is FedRep without QR, and ANIL on the same samples for both steps is the control.

**Deviations**: all sizes, step sizes and thresholds are ours. The clients are fixed, all take part in each round, and
samples are fresh.

References: Yueksel, Boursier and Flammarion 2023, "First-order ANIL provably learns representations despite
overparametrization"; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import KINDS, shades
from linfed.plotting.panels import Figures
from linfed.statistics.intervals import first_round_below

SUMMARY = "B with more columns than the truth: FedRep's price in samples, and how fast ANIL forgets the extra columns"
PICTURES = {"": 1400}
REDUCED = {"width": {"without": ("rival",)}}
CAPTIONS = {
    "": "Left: subspace distance of FedRep against rounds for each number of columns k. Right: root mean square length "
    "of the k - r extra directions of B outside span(B*), divided by the initial one. Lines: median over trials; "
    "shaded: 10-90 %; dotted: predicted. Noise std 0.5."
}

PAPER = c.reading("Yueksel, Boursier and Flammarion 2023, in our words").adding("the factor is our threshold")
OWN = c.OWN_PREDICTION.adding("the range is our threshold")

FEDREP, FREE = "FedRep", "FedRep without QR"
SPLIT, SAME = "ANIL, other samples", "ANIL, same samples"


@dataclass(frozen=True, kw_only=True)
class Wide:
    """FedRep with k columns on a ground truth of rank r, with fresh samples."""

    method: str = lf.choice((FEDREP, FREE), FEDREP)
    rank: int = 2
    truth_rank: int = 2
    n_clients: int = 60
    dim: int = 60
    n_samples: int = 24
    noise_std: float = 0.5
    step_size: float = 0.5
    n_rounds: int = 100
    trials: int = 30
    seed: int = 0

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The problem."""
        return lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=self.truth_rank, noise_std=self.noise_std
        )

    def start(self) -> Array:
        """Return random initial B with orthonormal columns, (trials, d, k)."""
        rng = np.random.default_rng((self.seed, self.dim, self.rank))
        return np.linalg.qr(rng.standard_normal((self.trials, self.dim, self.rank)))[0]

    def run(self) -> dict[str, Any]:
        """Return the distances with the prediction of the narrow run and its competitor."""
        if self.rank < self.truth_rank:
            raise ValueError(f"rank = {self.rank} must be at least truth_rank = {self.truth_rank}")
        B0 = self.start()
        result = lf.simulate(
            lf.FedRep(rank=self.rank, step_size=self.step_size, init=B0, orthonormalize=self.method != FREE),
            self.problem,
            data=lf.FreshSamples(self.n_samples),
            n_rounds=self.n_rounds,
            trials=self.trials,
            seed=self.seed,
            metrics=["subspace_distance"],
        )
        curves = {"distance": result.metrics["subspace_distance"]}
        if self.method == FEDREP:
            curves["predicted"] = self.narrow(B0, self.rank - self.truth_rank)
            curves["rival"] = self.narrow(B0, 0)
        return {name: lf.LabeledArray(value, round=np.arange(self.n_rounds + 1)) for name, value in curves.items()}

    def narrow(self, B0: Array, extra: int) -> Array:
        """Return the predicted distance (trials, n_rounds + 1) of r columns without `extra` dimensions and samples."""
        truth, r, d = self.problem.truth(self.seed, range(self.trials)), self.truth_rank, self.dim - extra
        assert truth.B is not None
        assert truth.W is not None
        m = self.n_samples - extra
        left, cosines, _ = np.linalg.svd(truth.B.mT @ B0, full_matrices=False)  # B* has orthonormal columns
        init = np.zeros((self.trials, d, r))
        init[:, :r] = left * cosines[:, None]
        init[:, r : 2 * r] = np.sqrt(1.0 - cosines[:, :, None] ** 2) * np.eye(r)
        problem = lf.GivenTruth(B=np.eye(d)[:, :r], W=truth.W, noise_std=self.noise_std)
        algorithm = lf.FedRep(rank=r, step_size=self.step_size * m / self.n_samples, init=init)
        data = lf.FreshSamples(m)
        return lf.predict(algorithm, problem, data=data, n_rounds=self.n_rounds, trials=self.trials).distance


@dataclass(frozen=True, kw_only=True)
class Forgotten(Wide):
    """Length of the extra directions under ANIL, or under FedRep without QR."""

    method: str = lf.choice((SPLIT, SAME, FREE), SPLIT)
    rank: int = 6
    n_clients: int = 30
    dim: int = 20
    n_samples: int = 20
    step_size: float = 0.3
    alpha: float = 0.3
    n_rounds: int = 400
    trials: int = 10

    def run(self) -> dict[str, Any]:
        """Return the lengths of the extra directions relative to the start, and their prediction for other samples."""
        k, r, every = self.rank, self.truth_rank, max(1, self.n_rounds // 60)
        if k <= r:
            raise ValueError(f"rank = {k} must be above truth_rank = {r}: no extra direction exists")
        truth = self.problem.truth(self.seed, range(self.trials))
        assert truth.B is not None
        first, m = 1.0 / self.alpha, self.n_samples
        algorithm: lf.Algorithm
        if self.method == FREE:
            first, algorithm = 1.0, lf.FedRep(rank=k, step_size=self.step_size, init=self.start(), orthonormalize=False)
        else:
            algorithm = lf.ANIL(
                rank=k,
                step_size=self.step_size,
                adaptation_step_size=self.alpha,
                init=first**0.5 * self.start(),
                disjoint_samples=self.method == SPLIT,
            )
        data = lf.FreshSamples(2 * m if self.method == SPLIT else m)  # both steps have m samples
        rounds, lengths = [], []
        for step in lf.iterate(
            algorithm, self.problem, data=data, n_rounds=self.n_rounds, trials=self.trials, seed=self.seed
        ):
            if step.number % every == 0:
                B = step.after.array("B")
                outside = np.linalg.svd(B - truth.B @ (truth.B.mT @ B), compute_uv=False)[:, : k - r]
                lengths.append(np.sqrt((outside**2).mean(axis=1) / first))
                rounds.append(step.number)
        power = (truth.dense() ** 2).sum(axis=-1).mean(axis=-1) + self.noise_std**2
        pull = 2.0 * self.step_size * self.alpha**2 * first * power / m
        predicted = 1.0 / np.sqrt(1.0 + pull[:, None] * np.array(rounds))
        return {
            "length": lf.LabeledArray(np.stack(lengths, axis=1), round=rounds),
            "predicted": lf.LabeledArray(predicted, round=rounds),
        }


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return FedRep over its number of columns, and the methods that could forget the extra ones; quick: fewer."""
    base, forgotten = (Wide(trials=10), Forgotten(n_rounds=200, trials=6)) if quick else (Wide(), Forgotten())
    ranks = (2, 16) if quick else (2, 4, 8, 16)
    return {
        "width": [
            *lf.grid(base, rank=ranks),
            *lf.grid(base, method=[FREE], rank=ranks[-1:]),
        ],
        "extra": [
            *lf.grid(forgotten, method=(SPLIT, SAME, FREE)),
            *([] if quick else lf.grid(forgotten, method=[SPLIT], n_samples=[40])),
        ],
    }


def rounds(row: lf.Table, column: str) -> Array:
    """Return the number of rounds to distance 0.3, (trials,)."""
    return first_round_below(row["round"], row[column], 0.3)


def floor(row: lf.Table, column: str) -> Array:
    """Return the mean distance over the last quarter of the rounds, (trials,)."""
    distance: Array = row[column]
    return np.asarray(distance[:, 3 * distance.shape[1] // 4 :].mean(axis=1))


def wide(what: str, measure: Callable[[lf.Table, str], Array], columns: str, prediction: str) -> c.Claim:
    """Return the claim that FedRep with k > r columns is as predicted for r columns."""
    return c.Claim(
        f"FedRep with k > r columns has the {what} of the prediction for r columns and {columns}",
        OWN,
        c.median(
            lambda row: measure(row, "distance") / measure(row, prediction),
            "measured divided by predicted, median over trials",
        ),
        c.within(0.87, 1.15),
        table="width",
        where=(c.of(method=FEDREP), c.only(lambda row: row["rank"] > row["truth_rank"])),
        over=c.each("rank"),
        setting="k = {rank}, r = {truth_rank}, m = {n_samples}",
    )


Forgets = partial(
    c.Claim,
    table="extra",
    over=c.each("n_samples", "method"),
    setting="{method}, k = {rank}, r = {truth_rank}, m = {n_samples}",
)
CLAIMS = (
    wide("rounds to distance 0.3", rounds, "fewer samples", "predicted"),
    wide("mean final distance (last quarter of the rounds)", floor, "fewer samples", "predicted"),
    wide("rounds to distance 0.3", rounds, "all samples", "rival"),
    wide("mean final distance (last quarter of the rounds)", floor, "all samples", "rival"),
    Forgets(
        "ANIL on other samples forgets the extra directions at the predicted speed",
        OWN,
        c.median(
            lambda row: row["length"][:, -1] / row["predicted"][:, -1],
            "final length divided by the predicted one, median over trials",
        ),
        c.within(0.95, 1.05),
        where=c.of(method=SPLIT),
    ),
    *(
        Forgets(
            "The extra directions lose more than half of their length",
            source,
            c.median(lambda row: row["length"][:, -1], "final length divided by the initial one, median over trials"),
            c.at_most(0.5),
            where=c.of(method=methods),
        )
        for source, methods in ((PAPER, SPLIT), (c.OWN_THRESHOLD, [SAME, FREE]))
    ),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances for each number of columns, and the lengths of the extra directions."""
    width, extra = tables["width"], tables["extra"]
    with lf.panels(width + extra, column=2, height=3.0) as sheet:
        left, right = sheet.axes[0]
        looks = shades(width.unique("rank"))
        for one in width:
            free = one["method"] == FREE
            text = f"k = {one['rank']}" + (", without QR" if free else "")
            colour = "0.4" if free else looks[one["rank"]][0]
            draw(left, one, "distance", text, colour, "--" if free else "-", predicted=not free)
        for one, (colour, _, _) in zip(extra, KINDS, strict=False):
            several = len(extra.select(method=one["method"])) > 1
            text = one["method"] + (f", m = {one['n_samples']}" if several else "")
            draw(right, one, "length", text, colour, predicted=one["method"] == SPLIT)
        for ax in (left, right):
            ax.plot([], [], ":", color="black", linewidth=1.0, label="predicted")
        sheet.label("round", "subspace distance", yscale="log")
        right.set_ylabel("length of extra directions")
        left.legend(loc="best", fontsize="small")
        right.legend(loc="upper right", bbox_to_anchor=(1.0, 0.95), fontsize="small")
    return {"": sheet.figure}


def draw(ax: Any, one: lf.Table, column: str, text: str, colour: Any, linestyle: str = "-", *, predicted: bool) -> None:
    """Draw the median and the deciles of a curve over trials, and the median of its prediction."""
    low, middle, high = np.quantile(one[column], (0.1, 0.5, 0.9), axis=0)
    ax.plot(one["round"], middle, label=text, linewidth=1.1, color=colour, linestyle=linestyle)
    ax.fill_between(one["round"], low, high, color=colour, alpha=0.15, linewidth=0)
    if predicted:
        ax.plot(one["round"], np.median(one["predicted"], axis=0), ":", color="black", linewidth=1.0, zorder=5)
