"""Why FedRep with a split batch is biased if x is not isotropic, and why the same batch is slow.

FedRep fits heads and takes the gradient on B on the same batch, or on the two halves of it (split).
`linfed.theory.mean_gradient` predicts the mean of a message at B* without a parameter. DFW also splits the batch, but
whitens by own samples. `linfed.theory.near_truth_drift` predicts the rate of the same batch near B*. Two cases in which
x and noise depend on each other are outside of this law. The sizes are as in the experiment `anisotropy`.

References: Zhang, Toso, Anderson and Matni 2024; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import KINDS, LOOKS, line_style
from linfed.plotting.panels import Figures, draw_predicted
from linfed.statistics import mean_interval

from ._anisotropic import COMMON, DFW, EACH, SAME, SPLIT, Setting

SUMMARY = "x with a covariance: the bias of FedRep's messages on a split batch, and the rate of the same batch"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "Left: mean message at B* outside of its span, along the predicted one of a split batch and in its units, with "
    "95 % intervals. Right: rounds in which the distance of the same batch falls by a factor e, times step size and "
    "largest predicted rate, without label noise. Dotted: predicted."
}

INDEPENDENT, UNEQUAL, PAST = "noise independent of x", "variance of noise depends on x", "x depends on past noise"


@dataclass(frozen=True, kw_only=True)
class Messages(Setting):
    """Mean message at B*, outside of its span, over fresh draws."""

    method: str = lf.choice((SAME, SPLIT, DFW), SAME)
    noise: str = lf.choice((INDEPENDENT, UNEQUAL, PAST), INDEPENDENT)
    n_clients: int = 10
    draws: int = 2000

    def run(self) -> dict[str, Any]:
        """Return each trial's mean message along a direction, in units of the predicted one of a split batch.

        The direction is the predicted one if noise is independent of x. Otherwise it is the mean of the even trials,
        and only the odd ones are returned.
        """
        truth = self.problem.truth(self.seed, [0])
        assert truth.B is not None
        (B,), Phi = truth.B, truth.dense()[0]
        unit = lf.theory.mean_gradient(B, truth, n_samples=self.n_samples, disjoint_samples=True)[0]
        unit = unit - B @ (B.T @ unit)
        found = np.stack([self.outside(B, Phi, np.random.default_rng([self.seed, t])) for t in range(self.trials)])
        if self.noise != INDEPENDENT:
            direction = found[::2].mean(axis=0)
            unit, found = direction / np.linalg.norm(direction) * np.linalg.norm(unit), found[1::2]
        return {"message": (found * unit).sum(axis=(-2, -1)) / np.square(unit).sum()}

    def outside(self, B: Array, Phi: Array, rng: Any) -> Array:
        """Return the mean message over draws and clients, without its part in the span of B, (d, k)."""
        draws, m = self.draws, self.n_samples
        X = np.empty((self.n_clients, draws, m, self.dim))
        self.problem.design.fill(rng, X.reshape(self.n_clients, draws * m, self.dim))
        noise = self.noise_std * rng.standard_normal(X.shape[:-1])
        if self.noise == UNEQUAL:  # standard deviation proportional to |x_1|
            noise *= np.abs(X[..., 0]) / np.sqrt(np.mean(np.square(X[..., 0])))
        if self.noise == PAST:  # the last label noise moves x along a fixed direction
            X[..., 1:, :] += noise[..., :-1, None] * np.ones(self.dim)
        y = (X @ Phi[:, None, :, None])[..., 0] + noise
        half = m // 2 if self.method != SAME else m
        A, b, X, y = X[..., :half, :], y[..., :half], X[..., m - half :, :], y[..., m - half :]
        Z = A @ B
        w = np.linalg.solve(Z.mT @ Z, Z.mT @ b[..., None])
        message = X.mT @ (X @ (B @ w) - y[..., None])
        message = np.linalg.solve(X.mT @ X, message) if self.method == DFW else message / half
        mean = (message @ w.mT).mean(axis=(0, 1))
        return np.asarray(mean - B @ (B.T @ mean))


@dataclass(frozen=True, kw_only=True)
class Rate(Setting):
    """Rate of the same batch near B* without label noise."""

    noise_std: float = 0.0
    trials: int = 30
    folds: float = 8.0
    most_rounds: int = 40_000

    def run(self) -> dict[str, Any]:
        """Return the rounds for a fall of the distance by e, in the second half of a run, and the predicted ones."""
        problem = self.problem
        rates = lf.theory.near_truth_drift(problem.truth(self.seed, range(self.trials)), n_samples=self.n_samples).rates
        step = 0.5 / float(rates.max())
        rounds = min(self.most_rounds, int(np.ceil(self.folds / (step * float(np.median(rates[:, 0])))))) // 2 * 2
        result = lf.simulate(
            lf.FedRep(rank=self.rank, step_size=step, init=lf.AtDistance(1e-3)),
            problem,
            data=lf.FreshSamples(self.n_samples),
            n_rounds=rounds,
            trials=self.trials,
            seed=self.seed,
            metrics=["subspace_distance"],
            record_every=rounds // 2,
        )
        _, middle, last = result.metrics["subspace_distance"].T
        powers = [np.log(np.square(1.0 - step * rates) ** at @ np.ones(rates.shape[1])) for at in (rounds // 2, rounds)]
        half, unit = rounds // 2, step * float(rates.max())
        return {
            "measured": unit * half / np.log(middle / last),
            "predicted": unit * half / (0.5 * (powers[0] - powers[1])),
        }


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the messages and the rates; quick: fewer."""
    if quick:
        message = Messages(draws=300, trials=12)
        return {
            "messages": lf.grid(message, condition=(10.0, 1e4), method=(SAME, SPLIT)),
            "rates": lf.grid(Rate(trials=8), condition=(1.0, 10.0)),
        }
    message = Messages(trials=20)
    return {
        "messages": [
            *lf.grid(message, condition=(10.0, 100.0, 1e4), method=(SAME, SPLIT)),
            *lf.grid(message, condition=(10.0, 100.0), method=(DFW,)),
            *lf.grid(Messages(trials=20), n_samples=(12, 30), noise=(UNEQUAL, PAST)),
            *lf.grid(Messages(trials=20, method=DFW), noise=(UNEQUAL, PAST)),
        ],
        "rates": lf.grid(Rate(), kind=(COMMON, EACH), condition=(1.0, 3.0, 10.0, 100.0, 1000.0)),
    }


def where(row: lf.Table) -> str:
    """Return the setting of a message."""
    noise = "" if row["noise"] == INDEPENDENT else f", {row['noise']}, m = {row['n_samples']}"
    return f"condition number {row['condition']:g}{noise}"


OWN = c.OWN_PREDICTION.adding("the factor is our threshold")
MESSAGE = c.measured(
    "mean message at B* outside of its span, along the predicted direction (if noise and x depend: along that of other "
    "trials), divided by the predicted one of a split batch with independent noise",
    lambda row: mean_interval(row["message"]),
)
Message = partial(c.Claim, table="messages", over=c.each("noise", "condition", "n_samples"), setting=where)
SMALL = "a bias of at most a tenth of a split batch's"
dependent = c.only(lambda row: row["noise"] != INDEPENDENT)

CLAIMS = (
    Message(
        f"The message of FedRep on the same batch has {SMALL}",
        OWN,
        MESSAGE,
        c.near(0.0, 0.1),
        where=c.of(method=SAME, noise=INDEPENDENT),
    ),
    Message(
        "The message of FedRep on a split batch has the predicted bias",
        OWN,
        MESSAGE,
        c.within(0.9, 1.1),
        where=c.of(method=SPLIT),
    ),
    Message(
        f"The message of DFW has {SMALL} with independent noise", OWN, MESSAGE, c.near(0.0, 0.1), where=c.of(method=DFW)
    ),
    Message(
        "The message of FedRep on the same batch is biased if noise and x depend",
        OWN,
        MESSAGE,
        c.above(0.0),
        where=(c.of(method=SAME), dependent),
    ),
    c.Claim(
        "Near B* the same batch has the predicted rate",
        OWN,
        c.factor("measured", "predicted", "factor between measured and predicted rounds, worst condition number"),
        c.at_most(1.1),
        table="rates",
        over=c.each("kind"),
        setting="{kind}",
    ),
)

LABELS = {SAME: "FedRep, same batch", DFW: "split, own samples (DFW)"}
LOOK = {SAME: LOOKS["FedRep"], SPLIT: KINDS[0], DFW: KINDS[1]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the mean messages and the rates."""
    with lf.panels(tables["messages"], column=2, height=2.9) as sheet:
        left, right = sheet.axes[0]
        for turn, (method, part) in enumerate(tables["messages"].select(noise=INDEPENDENT).groupby("method")):
            middle, low, high = np.array([mean_interval(row["message"]) for row in part]).T
            x = np.array([row["condition"] for row in part]) * 1.12 ** (turn - 1)
            shape = line_style(LOOK[method]) | {"capsize": 1.5}
            left.errorbar(x, middle, yerr=(middle - low, high - middle), label=LABELS.get(method, method), **shape)
        left.axhline(1.0, color="black", linestyle=":", linewidth=1.4, label="predicted")
        left.set_ylabel("message outside / predicted")
        for (kind, part), (color, marker, _) in zip(
            tables["rates"].groupby("kind"), (KINDS[2], KINDS[6]), strict=False
        ):
            measured, law = ([np.median(row[name]) for row in part] for name in ("measured", "predicted"))
            right.plot(part["condition"], measured, marker, color=color, label=kind)
            draw_predicted(right, part["condition"], law, label="_predicted", linewidth=1.4)
        right.set(yscale="log", ylabel="rounds for a factor e,\ntimes step and largest rate")
        sheet.label("condition number", xscale="log")
        for ax in (left, right):
            ax.legend(loc="best", fontsize="small")
    return {"": sheet.figure}
