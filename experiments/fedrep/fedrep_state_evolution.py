"""Predictions of FedRep runs by state evolution, against simulations, in eight regimes.

State evolution follows B's position relative to B* without simulation and without fitted parameters. To second order
(`lf.theory.second_order_evolution`) it predicts the median run and the band that contains 80 % of the runs. With
gradient heads, or a ground truth of higher rank than B, it predicts only the median. All runs of a regime share one
ground truth, whose heads the prediction receives, and start with equal angles. Step sizes are multiples of
``best_step_size`` divided by the largest eigenvalue of the heads' second moment; at twice that the mean square stops
falling.

Every prediction is compared with state evolution without fluctuations. A prediction that ignores the feature that
defines the regime shows how much this feature matters. It could not win, so its error is a remark and no claim.

Figures
-------
"", "steps" : Top: subspace distance to B* against rounds, with the predicted median and 10-90 % band. Bottom: predicted
    divided by measured, with a prediction that ignores the defining feature of the regime. Lines: median over runs;
    shaded: 10-90 %.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Algorithms 1 and 2; docs/exact-law.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed import theory
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import Measured, bootstrap_interval, median_interval

SUMMARY = "predicted and measured distances of FedRep in eight regimes"
PICTURES = {"": 1400, "steps": 1400}
REDUCED = {"curves": {"without": ("growth", "fourth_power"), "deciles": ("distance",)}}

ISOTROPIC, EVERYBODY, NOISELESS = "heads were isotropic", "all took part", "labels had no noise"
EXACT, RANK, RATE, NORMALISED = "heads were exact", "the rank were k", "the mean square ruled", "there were QR"
"""The assumption under which a prediction ignores the feature of the regime, as in "as if heads were exact"."""

WITHIN = {"predicted": (0.5, 1.05), "low": (0.1, 1.07), "high": (0.9, 1.12)}
"""The quantile that a curve predicts, and its claimed factor; for a median with gradient heads that is 1.1."""

SMALLEST, TOLD = 1e-8, 10
"""The smallest distance that is judged, and the number of rounds at which curves are compared."""


def fourth_power(state: lf.State, truth: lf.Truth | None) -> Any:
    """Return the squared mean of the squared singular values of B: their fourth power if they are equal."""
    B = state.array("B")
    return (np.square(B).sum(axis=(-2, -1)) / B.shape[-1]) ** 2


SEVERAL: dict[str, Any] = {"rank": 5, "n_samples": 20}
SMALL: dict[str, Any] = {"dim": 100, "n_clients": 100}
EDGE: dict[str, Any] = SMALL | {"rival": RATE, "n_samples": 12, "rounds": 60, "trials": 3000}
TOP = (24.0, 20.0, 16.0, 6.0, 5.0, 4.0)
REGIMES: dict[str, dict[str, Any]] = {
    "anisotropic heads": {"rival": ISOTROPIC, "condition_number": 2.5, "rounds": 60, **SEVERAL},
    "50 of 200 clients": {"rival": EVERYBODY, "participants": 50, "relative_step": 0.9},
    "label noise": {"rival": NOISELESS, "noise_std": 0.5, **SEVERAL},
    "10 gradient steps": {"rival": EXACT, "head_steps": 10, "relative_step": 0.4, "rounds": 40},
    "true rank 6": {"rival": RANK, "spectrum": TOP, "dim": 100},
    "at the edge": {"relative_step": 2.0, **EDGE},
    "past the edge": {"relative_step": 2.2, **EDGE},
    "without QR": {"rival": NORMALISED, "noise_std": 1.0, "delta": 0.3, "rounds": 200, **SMALL},
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
    rounds: int = 30
    trials: int = 1000
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return measured and predicted distances, and the growth of B if it is not normalised."""
        truth = self.truth()
        W = np.asarray(truth.W)
        sizes = {name: getattr(self, name) for name in ("dim", "rank", "n_clients", "n_samples", "participants")}
        best = theory.best_step_size(**sizes) / float(np.linalg.eigvalsh(W.T @ W / len(W))[-1])
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
            rounds=self.rounds,
            trials=self.trials,
            participation=self.participants or 1.0,
            seed=(self.seed, 1),
            engine="chain",
            metrics=["subspace_distance", fourth_power],
        )
        curves = {"distance": result.metrics["subspace_distance"]} | self.predictions(W, step)
        if self.rival == RATE:
            rate = theory.one_round_factor(step, **sizes)
            curves["rival_predicted"] = np.minimum(self.delta * rate ** (result.rounds / 2), 1.0)
        if self.rival == NORMALISED:
            constant = theory.norm_growth(step, noise_std=self.noise_std, **sizes)
            curves |= {"growth": result.metrics["fourth_power"], "claimed_growth": 1.0 + constant * result.rounds}
        along = {name: lf.LabeledArray(curve, round=result.rounds) for name, curve in curves.items()}
        return {"step_size": step, "engine": result.engine, **along}

    def truth(self) -> lf.GivenTruth:
        """Return B* and the heads that all runs share."""
        sizes: dict[str, Any] = {"n_clients": self.n_clients, "dim": self.dim}
        if self.spectrum:
            truth = lf.UnderParameterized(spectrum=self.spectrum, **sizes).truth(self.seed, [0])
        else:
            shared = lf.SharedRepresentation(rank=self.rank, condition_number=self.condition_number, **sizes)
            truth = shared.truth(self.seed, [0])
        return lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=self.noise_std)

    def predictions(self, W: Any, step: float) -> dict[str, Any]:
        """Return the prediction with its band, and the competing predictions, each (rounds + 1,)."""
        names = ("dim", "n_samples", "noise_std", "participants", "rounds", "delta")
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.rival == EXACT:
            law = theory.gradient_heads_evolution(W, head_steps=self.head_steps, step_size=step, **given)
            return {"predicted": law.distance, "rival_predicted": self.rival_prediction(W, step, given)}
        if self.rival == RANK:
            path = theory.under_parameterized_evolution(W, rank=self.rank, step_size=step, **given)
            return {"predicted": path.distance, "rival_predicted": self.rival_prediction(W, step, given)}
        if self.rival == NORMALISED:
            means = theory.unnormalized_evolution(W, step_size=step, **given)
            first, lengths = means.distance, means.squared_length
        else:
            first = theory.state_evolution(W, step_size=step, **given).distance
            lengths = np.ones(self.rounds + 1)
        found = theory.second_order_evolution(W, step_size=step / lengths[:-1], **given)
        return {
            "predicted": found.distance,
            "low": found.low,
            "high": found.high,
            "first": first,
            "predicted_growth": lengths**2,
            "rival_predicted": self.rival_prediction(W, step, given),
        }

    def rival_prediction(self, W: Any, step: float, given: dict[str, Any]) -> Any:
        """Return the prediction that ignores the feature of the regime: as if heads were exact, B normalised, .."""
        values, vectors = np.linalg.eigh(W.T @ W / len(W))
        if self.rival == RANK:
            W = W @ vectors[:, -self.rank :]
        if self.rival == ISOTROPIC:
            W = W @ (vectors * np.sqrt(values.mean() / values))
        changes = {EVERYBODY: {"participants": None}, NOISELESS: {"noise_std": 0.0}}.get(self.rival, {})
        return theory.second_order_evolution(W, step_size=step, **given | changes).distance


def cells(quick: bool) -> dict[str, list[Regime]]:
    """Return the eight regimes; quick: smaller, with few runs and rounds."""
    less: dict[str, Any] = {"n_clients": 60, "dim": 60, "rounds": 6, "trials": 30} if quick else {}
    regimes = [Regime(regime=name, **changes) for name, changes in REGIMES.items()]
    return {"curves": [replace(regime, **less) for regime in regimes] if quick else regimes}


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
    some = lf.Table([row for row in table.rows if row["regime"] in names])
    measured: dict[str, Any] = {"by": "engine", "labels": {"chain": "measured"}, "looks": {"chain": "FedRep"}}
    with lf.panels(some, column="regime", row=2, title="{}", height=3.7, sharex="col") as sheet:
        for (ax, row), (below, _) in zip(sheet.row(0), sheet.row(1), strict=True):
            lf.plot_curves(ax, row, "round", "distance", **measured)
            for name in (name for name in LINES if name in row.columns):
                colour, line, text = LINES[name]
                shape: dict[str, Any] = {"color": colour, "linestyle": line, "linewidth": 0.9}
                ax.plot(row["round"], row[name], label=text, **shape)
                level, _ = WITHIN.get(name, WITHIN["predicted"])
                below.plot(row["round"], row[name] / np.quantile(row["distance"], level, axis=0), **shape)
            below.set_title(f"as if {row['rival']}", color=RIVAL, fontsize=7)
            below.set(ylim=(0.75, 1.25))
        sheet.label("round", "subspace distance to B*", "predicted / measured")
        sheet.legend(f"median and 10-90 % of {' or '.join(map(str, some.unique('trials')))} runs", ncols=3)
    return sheet.figure


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the predictions and the competing ones in the worst round, and the growth of B without QR."""
    found = []
    for regime, row in tables["curves"].groupby("regime"):
        where = f"{regime}: d = {row['dim']}, k = {row['rank']}, m = {row['n_samples']}, {row['trials']} runs"
        fields = {"setting": where, "source": OWN_PREDICTION}
        ignores = (
            f"as if {row['rival']}, the predicted median is off by a factor of {off(row, 'rival_predicted')[0]:.3g}"
        )
        for name in (name for name in WITHIN if name in row.columns):
            level, most = WITHIN[name]
            found.append(
                judge(
                    off(row, name),
                    claim=f"The {'median run' if name == 'predicted' else '10-90 % band'} is as predicted",
                    statistic=f"factor between measured and predicted {100 * level:.0f} % quantile, worst round",
                    claimed_high=1.1 if row["rival"] == EXACT else most,
                    note=ignores if name == "predicted" else "",
                    **fields | {"source": f"{OWN_PREDICTION}, nothing is fitted; the factor is {OWN_THRESHOLD}"},
                )
            )
        if "first" in row.columns:
            found.append(
                judge(
                    off(row, "first", "predicted"),
                    claim="A prediction without fluctuations is less accurate",
                    statistic="its largest factor from the measured median, divided by the prediction's",
                    claimed_low=1.0,
                    strict=True,
                    **fields | {"setting": f"as if nothing fluctuated; {where}"},
                )
            )
        if "growth" in row.columns:
            found += [
                judge(
                    median_interval((row["growth"][:, -1] - 1) / (row[name][-1] - 1)),
                    claim=text,
                    statistic=f"growth of ||B||^4 in {row['rounds']} rounds divided by that predicted, median run",
                    claimed_low=1 - margin,
                    claimed_high=1 + margin,
                    **fields,
                )
                for name, text, margin in (
                    ("claimed_growth", "Without QR ||B||^4 = 1 + C t", 0.2),
                    ("predicted_growth", "The growth of ||B|| follows round by round from the predicted means", 0.05),
                )
            ]
    return found


def off(row: lf.Table, name: str, over: str = "") -> Measured:
    """Return the largest factor between a prediction and the measured curve, or its ratio to another's factor."""
    typical = np.median(row["distance"], axis=0)
    rounds = np.flatnonzero(typical > SMALLEST)[1:]
    rounds = rounds[np.unique(np.linspace(0, len(rounds) - 1, TOLD).astype(int))]
    values = row["distance"][:, rounds]

    def factor(chosen: Any, curve: str) -> Any:
        measured = np.quantile(chosen, WITHIN.get(curve, WITHIN["predicted"])[0], axis=-2)
        return np.exp(np.abs(np.log(row[curve][rounds] / measured)).max(axis=-1))

    def worst_factor(trials: Any, axis: int = -1) -> Any:
        chosen = values[np.asarray(trials, dtype=int)]
        return factor(chosen, name) / (factor(chosen, over) if over else 1.0)

    everyone = np.arange(float(len(values)))
    return float(worst_factor(everyone)), *bootstrap_interval(worst_factor, (everyone,), vectorized=True, resamples=300)
