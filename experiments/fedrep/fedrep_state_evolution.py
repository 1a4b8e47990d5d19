"""Predictions of FedRep runs by state evolution, against simulations, in eight regimes.

State evolution follows B's position relative to B* without simulation and without fitted parameters. To second order
(`lf.theory.second_order_evolution`) it predicts the median run and the band that contains 80 % of the runs. With
gradient heads, or a ground truth of higher rank than B, it predicts only the median. All runs of a regime share one
ground truth, whose heads the prediction receives, and start with equal angles. Step sizes are multiples of
``best_step_size`` divided by the largest eigenvalue of the heads' second moment; at twice that the mean square stops
falling.

The predictions with a band are compared with state evolution without fluctuations. A prediction that ignores the
feature that defines the regime shows how much this feature matters. It could not win, so its error is a remark and no
claim.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithms 1 and 2; docs/exact-law.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed import theory
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures
from linfed.statistics.intervals import Measured, bootstrap_interval

SUMMARY = "predicted and measured distances of FedRep in eight regimes"
PICTURES = {"": 1400, "steps": 1400}
REDUCED = {"curves": {"without": ("growth", "fourth_power"), "deciles": ("distance",)}}
CURVES = (
    "Top: subspace distance against rounds, with the predicted median and 10-90 % band. Bottom: measured "
    "divided by predicted, with a prediction that ignores the defining feature of the regime. Lines: median over runs; "
    "shaded: 10-90 %."
)
CAPTIONS = {"": CURVES, "steps": CURVES}

ISOTROPIC, EVERYBODY, NOISELESS = "heads were isotropic", "all took part", "labels had no noise"
EXACT, RANK, RATE, NORMALISED = "heads were exact", "the rank were k", "the mean square ruled", "there were QR"
"""The assumption under which a prediction ignores the feature of the regime, as in "as if heads were exact"."""

LEVELS = {"predicted": 0.5, "low": 0.1, "high": 0.9}
"""The quantile that a curve predicts; 0.5 for all others."""

SMALLEST, COMPARED = 1e-8, 10
"""The smallest distance that is judged, and the number of rounds at which curves are compared."""


def fourth_power(state: lf.State, truth: lf.Truth | None) -> Any:
    """Return the squared mean of the squared singular values of B: their fourth power if they are equal."""
    B = state.array("B")
    return (np.square(B).sum(axis=(-2, -1)) / B.shape[-1]) ** 2


SEVERAL: dict[str, Any] = {"rank": 5, "n_samples": 20}
SMALL: dict[str, Any] = {"dim": 100, "n_clients": 100}
EDGE: dict[str, Any] = SMALL | {"rival": RATE, "n_samples": 12, "n_rounds": 60, "trials": 3000}
TOP = (24.0, 20.0, 16.0, 6.0, 5.0, 4.0)
REGIMES: dict[str, dict[str, Any]] = {
    "anisotropic heads": {"rival": ISOTROPIC, "condition_number": 2.5, "n_rounds": 60, **SEVERAL},
    "50 of 200 clients": {"rival": EVERYBODY, "participants": 50, "relative_step": 0.9},
    "label noise": {"rival": NOISELESS, "noise_std": 0.5, **SEVERAL},
    "10 gradient steps": {"rival": EXACT, "head_steps": 10, "relative_step": 0.4, "n_rounds": 40},
    "true rank 6": {"rival": RANK, "spectrum": TOP, "dim": 100},
    "at the edge": {"relative_step": 2.0, **EDGE},
    "past the edge": {"relative_step": 2.2, **EDGE},
    "without QR": {"rival": NORMALISED, "noise_std": 1.0, "delta": 0.3, "n_rounds": 200, **SMALL},
}
"""The sizes of each regime that differ from the defaults, and its competing prediction."""


@dataclass(frozen=True, kw_only=True)
class Regime:
    """Runs of one ground truth, and their predictions."""

    regime: str = lf.choice(REGIMES, label=True)
    rival: str = lf.choice((ISOTROPIC, EVERYBODY, NOISELESS, EXACT, RANK, RATE, NORMALISED))
    n_clients: int = 200
    dim: int = 200
    rank: int = 3
    n_samples: int = 15
    participants: int | None = None
    noise_std: float = 0.0
    condition_number: float = 1.0
    relative_step: float = 0.8
    head_steps: int = 0
    spectrum: tuple[float, ...] = ()
    delta: float = 0.9
    n_rounds: int = 30
    trials: int = 1000
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return measured and predicted distances, and the growth of B if it is not normalised."""
        truth = self.truth()
        W = np.asarray(truth.W)
        best = self.of_round(theory.best_step_size) / float(np.linalg.eigvalsh(W.T @ W / len(W))[-1])
        step = self.relative_step * best
        result = lf.simulate(
            lf.FedRep(
                rank=self.rank,
                step_size=step,
                init=lf.AtDistance(self.delta),
                heads=lf.GradientHeads(steps=self.head_steps) if self.head_steps else lf.ExactHeads(),
                orthonormalize=self.rival != NORMALISED,
            ),
            truth,
            data=lf.FreshSamples(self.n_samples),
            n_rounds=self.n_rounds,
            trials=self.trials,
            participation=self.participants or 1.0,
            seed=(self.seed, 1),
            engine="chain",
            metrics=["subspace_distance", fourth_power],
        )
        curves = {"distance": result.metrics["subspace_distance"]} | self.predictions(W, step)
        curves["rival_predicted"] = self.rival_prediction(W, step)
        if self.rival == NORMALISED:
            constant = self.of_round(theory.norm_growth, step, noise_std=self.noise_std)
            curves |= {"growth": result.metrics["fourth_power"], "claimed_growth": 1.0 + constant * result.rounds}
        along = {name: lf.LabeledArray(curve, round=result.rounds) for name, curve in curves.items()}
        return {"step_size": step, "engine": result.engine, **along}

    def truth(self) -> lf.GivenTruth:
        """Return B* and the heads that all runs share."""
        problem: lf.Problem = lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=self.rank, condition_number=self.condition_number
        )
        if self.spectrum:
            problem = lf.UnderParameterized(n_clients=self.n_clients, dim=self.dim, spectrum=self.spectrum)
        truth = problem.truth(self.seed, [0])
        return lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=self.noise_std)

    def of_round(self, function: Callable[..., float], *step: float, **options: float) -> float:
        """Return the value of a function of `linfed.theory` about one round, at the sizes of the regime."""
        return function(
            *step,
            n_clients=self.n_clients,
            dim=self.dim,
            rank=self.rank,
            n_samples=self.n_samples,
            participants=self.participants,
            **options,
        )

    def evolution(self, of: Callable[..., Any], W: Any, step: Any, **options: int) -> Any:
        """Return the evolution from a function of `linfed.theory`, at the sizes of the regime."""
        return of(
            W,
            dim=self.dim,
            n_samples=self.n_samples,
            participants=self.participants,
            noise_std=self.noise_std,
            delta=self.delta,
            step_size=step,
            n_rounds=self.n_rounds,
            **options,
        )

    def predictions(self, W: Any, step: float) -> dict[str, Any]:
        """Return the prediction with its band, and the one without fluctuations, each (n_rounds + 1,)."""
        if self.rival == EXACT:
            return {
                "predicted": self.evolution(
                    theory.gradient_heads_evolution, W, step, head_steps=self.head_steps
                ).distance
            }
        if self.rival == RANK:
            return {"predicted": self.evolution(theory.under_parameterized_evolution, W, step, rank=self.rank).distance}
        if self.rival == NORMALISED:
            first = self.evolution(theory.unnormalized_evolution, W, step)
            lengths = first.squared_length
        else:
            first = self.evolution(theory.state_evolution, W, step)
            lengths = np.ones(self.n_rounds + 1)
        found = self.evolution(theory.second_order_evolution, W, step / lengths[:-1])
        return {
            "predicted": found.distance,
            "low": found.low,
            "high": found.high,
            "first": first.distance,
            "predicted_growth": lengths**2,
        }

    def rival_prediction(self, W: Any, step: float) -> Any:
        """Return the prediction that ignores the feature of the regime: as if heads were exact, B normalised, .."""
        if self.rival == RATE:
            rate = self.of_round(theory.one_round_factor, step)
            return np.minimum(self.delta * rate ** (np.arange(self.n_rounds + 1) / 2), 1.0)
        values, vectors = np.linalg.eigh(W.T @ W / len(W))
        if self.rival == RANK:
            W = W @ vectors[:, -self.rank :]
        if self.rival == ISOTROPIC:
            W = W @ (vectors * np.sqrt(values.mean() / values))
        simpler = replace(
            self,
            participants=None if self.rival == EVERYBODY else self.participants,
            noise_std=0.0 if self.rival == NOISELESS else self.noise_std,
        )
        return simpler.evolution(theory.second_order_evolution, W, step).distance


def cells(quick: bool) -> dict[str, list[Regime]]:
    """Return the eight regimes; quick: smaller, with few runs and rounds."""
    regimes = [Regime(regime=name, **changes) for name, changes in REGIMES.items()]
    small = [replace(regime, n_clients=60, dim=60, n_rounds=6, trials=30) for regime in regimes]
    return {"curves": small if quick else regimes}


def off(row: lf.Table, name: str, over: str = "") -> Measured | None:
    """Return the largest factor between a prediction and the measured curve, or its ratio to another's factor.

    None if the regime does not have the prediction.
    """
    if name not in row.columns:
        return None
    typical = np.median(row["distance"], axis=0)
    rounds = np.flatnonzero(typical > SMALLEST)[1:]
    rounds = rounds[np.unique(np.linspace(0, len(rounds) - 1, COMPARED).astype(int))]
    values = row["distance"][:, rounds]

    def factor(chosen: Any, curve: str) -> Any:
        measured = np.quantile(chosen, LEVELS.get(curve, 0.5), axis=-2)
        return np.exp(np.abs(np.log(row[curve][rounds] / measured)).max(axis=-1))

    def worst_factor(trials: Any, axis: int = -1) -> Any:
        chosen = values[np.asarray(trials, dtype=int)]
        return factor(chosen, name) / (factor(chosen, over) if over else 1.0)

    everyone = np.arange(float(len(values)))
    return float(worst_factor(everyone)), *bootstrap_interval(worst_factor, (everyone,), vectorized=True, resamples=300)


def ignoring(row: lf.Table) -> str:
    """Return a note on the error of the prediction that ignores the feature of the regime."""
    factor, *_ = off(row, "rival_predicted") or (np.nan,)
    return f"as if {row['rival']}, the predicted median is off by a factor of {factor:.3g}"


WHERE = "{regime}: d = {dim}, k = {rank}, m = {n_samples}, {trials} runs"
Judged = partial(c.Claim, over=c.each("regime"), setting=WHERE)
NOT_FITTED = c.OWN_PREDICTION.adding(f"nothing is fitted; the factor is {c.OWN_THRESHOLD}", ", ")


def predicted(what: str, name: str, most: float, **fields: Any) -> c.Claim:
    """Return the claim that a quantile of the distances is the predicted one, to a factor."""
    words = f"factor between measured and predicted {100 * LEVELS[name]:.0f} % quantile, worst round"
    statistic = c.measured(words, lambda row: off(row, name), c.at_most(most))
    return Judged(f"The {what} is as predicted", NOT_FITTED, statistic, **fields)


def grown(sentence: str, name: str, tolerance: float) -> c.Claim:
    """Return the claim that B grows as predicted, up to a tolerance."""
    words = "growth of ||B||^4 in {n_rounds} rounds divided by that predicted, median run"
    growth = c.median(lambda row: (row["growth"][:, -1] - 1) / (row[name][-1] - 1), words)
    return Judged(
        sentence, c.OWN_PREDICTION, growth, c.within(1 - tolerance, 1 + tolerance), where=c.of(rival=NORMALISED)
    )


CLAIMS = (
    predicted("median run", "predicted", 1.05, where=c.only(lambda row: row["rival"] != EXACT), note=ignoring),
    predicted("median run", "predicted", 1.1, where=c.of(rival=EXACT), note=ignoring),
    predicted("10-90 % band", "low", 1.07),
    predicted("10-90 % band", "high", 1.12),
    Judged(
        "A prediction without fluctuations is less accurate",
        c.OWN_PREDICTION,
        c.measured(
            "its largest factor from the measured median, divided by the prediction's",
            lambda row: off(row, "first", "predicted"),
            c.above(1.0),
        ),
        setting=f"as if nothing fluctuated; {WHERE}",
    ),
    grown("Without QR ||B||^4 = 1 + C t after all t rounds", "claimed_growth", 0.2),
    grown("The growth of ||B|| in all rounds follows from the predicted means", "predicted_growth", 0.05),
)


RIVAL, FIRST = KINDS[4][0], KINDS[0][0]
"""Colours of the competing predictions."""

LINES = {
    "predicted": ("black", "-", "predicted median"),
    "low": ("black", ":", "predicted 10 %, 90 %"),
    "high": ("black", ":", "predicted 10 %, 90 %"),
    "first": (FIRST, "--", "without fluctuations"),
    "rival_predicted": (RIVAL, "-.", "as if (title below)"),
}
"""Colour, line style and label of each prediction."""


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the regimes of heads and clients, and those of step sizes, with the ratios to the measurements."""
    names = tables["curves"].unique("regime")
    return {"": regimes_figure(tables["curves"], names[:4]), "steps": regimes_figure(tables["curves"], names[4:])}


def regimes_figure(table: lf.Table, names: list[Any]) -> Any:
    """Draw the named regimes."""
    some = table.select(regime=names)
    with lf.panels(some, column="regime", row=2, title="{}", height=3.7, sharex="col") as sheet:
        for (ax, row), (below, _) in zip(sheet.row(0), sheet.row(1), strict=True):
            engine = row["engine"]
            lf.plot_curves(
                ax, row, "round", "distance", by="engine", labels={engine: "measured"}, looks={engine: "FedRep"}
            )
            for name in (name for name in LINES if name in row.columns):
                colour, line, text = LINES[name]
                measured = np.quantile(row["distance"], LEVELS.get(name, 0.5), axis=0)
                ax.plot(row["round"], row[name], label=text, color=colour, linestyle=line, linewidth=0.9)
                below.plot(row["round"], measured / row[name], color=colour, linestyle=line, linewidth=0.9)
            below.set_title(f"as if {row['rival']}", color=RIVAL, fontsize=7)
            below.set(ylim=(0.75, 1.25))
        sheet.label("round", "subspace distance", "measured / predicted")
        sheet.legend(f"median and 10-90 % of {' or '.join(map(str, some.unique('trials')))} runs", ncols=3)
    return sheet.figure
