"""FLUTE paper, Theorem 5.1: how the error that is left depends on m, n, d and the gap, at a fixed spectrum.

The theorem's per-client samples for an error epsilon grow like ``max(d, n) / (n epsilon^2) (lambda_1 / Delta)^10``, so
the error should fall at least like ``sqrt(max(d, n) / (n m))`` and grow at most like ``Delta^-5``. Here every run goes
on until it has settled, on one fixed data set per client: what is left is the distance of the empirical risk's
minimiser from the truncation, whatever the step, so the step is one half instead of the theorem's (which one setting
uses, to show that it ends at the same place). The spectrum is (1, 1, t, t, t), k = 2, ``t = 1 - Delta/2``, Delta = 1.4
unless it moves; label noise of standard deviation 1 dominates what the model cannot express, but in the noiseless
sweep, which is another regime. Samples are drawn in law (``in_law=True``): m costs nothing.

Beside the fitted exponents stand those of `linfed.theory.truncation_floor`, which has no free parameter: in homogeneous
noise it is ``noise_std sqrt(k (d + n - k) / (n m))`` times what close singular values add.

References: Liu, Shen and Yang 2024, Theorem 5.1 and Remarks 5.2, 5.3, 5.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import (
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    judge,
    judge_exponent,
    judge_identity,
    quoted,
)
from linfed.statistics.intervals import bootstrap_interval
from linfed.statistics.scaling import fit_exponent
from linfed.study.run import Table, Tables, select, tidy
from linfed.theory.flute import flute_step_limit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "FLUTE paper, Theorem 5.1: exponents of the floor in m, n, d and Delta, measured and predicted"

_REMARKS = "FLUTE paper, Remark 5.2"
SOURCES = {
    "m": quoted(_REMARKS, "the per-client sample complexity scales in O(max{d, M} / (M eps^2))"),
    "n above d": quoted(_REMARKS, "When d < M, the sample complexity of FLUTE becomes independent with M"),
    "d above n": quoted(_REMARKS, "FLUTE achieves a linear speedup in terms of M in the high dimensional setting"),
    "Delta": quoted("FLUTE paper, Remark 5.3", "O(max{d, M} / (M eps^2) (lambda_1 / Delta)^10)"),
    "n, noiseless": quoted(_REMARKS, "When d < M, the sample complexity of FLUTE becomes independent with M"),
}
"""What the paper says of each sweep."""

MARGIN = 0.03
"""By how much an exponent may miss what is said of it: a sharp law lies at its edge, and no interval at one side."""

STEP = 0.5
TAIL = 3
"""Singular values after the k-th."""

SWEEPS = {
    "m": ("samples m", "n = d = 20"),
    "n below d": ("clients n", "d = 100"),
    "n above d": ("clients n", "d = 6"),
    "d above n": ("dimension d", "n = 6"),
    "d below n": ("dimension d", "n = 800"),
    "Delta": ("gap $\\Delta$", "n = d = 20"),
    "n, noiseless": ("clients n", "d = 20, no noise"),
}
"""What moves in each sweep, and what stays."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One point of a sweep."""

    sweep: str
    at: float
    n_clients: int = 20
    dim: int = 20
    n_samples: int = 10_000
    gap: float = 1.4
    noise_std: float = 1.0
    step: float = STEP
    rank: int = 2
    trials: int = 50
    seed: int = 0

    @property
    def problem(self) -> lf.UnderParameterized:
        """The truths."""
        values = [1.0] * self.rank + [1.0 - self.gap / 2.0] * TAIL
        return lf.UnderParameterized(n_clients=self.n_clients, dim=self.dim, spectrum=values, noise_std=self.noise_std)

    @property
    def rounds(self) -> int:
        """Enough to leave the small start, and then to settle at the rate ``1 - eta Delta / 2`` to nine digits."""
        start = math.log(10.0 * self.dim) / math.log1p(self.step * (1.0 - self.gap / 4.0))
        return math.ceil(3.0 * start + 21.0 / (self.step * self.gap / 2.0))


@dataclass(frozen=True, kw_only=True)
class Config:
    """The points of every sweep."""

    m: tuple[int, ...] = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
    n_below: tuple[int, ...] = (6, 9, 13, 20, 30)
    n_above: tuple[int, ...] = (60, 120, 240, 480, 960)
    d_above: tuple[int, ...] = (30, 50, 90, 160)
    d_below: tuple[int, ...] = (6, 8, 12, 16)
    gaps: tuple[float, ...] = (1.6, 0.8, 0.4, 0.2, 0.1)
    noiseless: tuple[int, ...] = (8, 16, 32, 64, 128)
    trials: int = 50
    seed: int = 0

    def quick(self) -> Config:
        """Return fewer trials and points."""
        return replace(
            self,
            m=self.m[::2],
            n_below=self.n_below[::2],
            n_above=self.n_above[:3],
            d_above=self.d_above[:2],
            d_below=self.d_below[::3],
            gaps=self.gaps[:3],
            noiseless=self.noiseless[::2],
            trials=10,
        )


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    c = config
    found = [Cell(sweep="m", at=m, n_samples=m) for m in c.m]
    found += [Cell(sweep="n below d", at=n, n_clients=n, dim=100, n_samples=100_000) for n in c.n_below]
    found += [Cell(sweep="n above d", at=n, n_clients=n, dim=6, n_samples=100_000) for n in c.n_above]
    found += [Cell(sweep="d above n", at=d, n_clients=6, dim=d, n_samples=300_000) for d in c.d_above]
    found += [Cell(sweep="d below n", at=d, n_clients=800, dim=d, n_samples=100_000) for d in c.d_below]
    found += [Cell(sweep="Delta", at=gap, gap=gap, n_samples=1_000_000) for gap in c.gaps]
    found += [
        Cell(sweep="n, noiseless", at=n, n_clients=n, dim=20, n_samples=10_000, noise_std=0.0) for n in c.noiseless
    ]
    theorem = Cell(sweep="the theorem's step", at=3_000, n_samples=3_000)
    assert theorem.problem.spectrum is not None
    found.append(replace(theorem, step=float(flute_step_limit(theorem.problem.spectrum, theorem.rank))))
    found = [replace(cell, trials=c.trials, seed=c.seed) for cell in found]
    return sorted(found, key=lambda cell: cell.rounds * cell.n_clients * cell.dim**2, reverse=True)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run FLUTE until it has settled."""
    c = cell
    result = lf.simulate(
        lf.FLUTE(rank=c.rank, step_size=c.step),
        c.problem,
        data=lf.FixedSamples(c.n_samples, in_law=True),
        rounds=c.rounds,
        trials=c.trials,
        seed=c.seed,
        metrics=["mean_truncation_error"],
        record_every=max(1, c.rounds // 10),
    )
    truth = c.problem.truth(c.seed, range(c.trials))
    error = result.metrics["mean_truncation_error"]
    difference = result.final.predictors() - truth.truncated(c.rank).dense()
    return {
        "error": error[:, -1],
        "rms": np.sqrt(np.square(difference).sum(axis=(-2, -1)) / c.n_clients),
        "moved": np.abs(error[:, -1] - error[:, -2]) / error[:, -1],
        "predicted": lf.theory.truncation_floor(truth, c.rank, c.n_samples),
        "diverged": np.array([status is lf.Status.DIVERGED for status in result.status]),
    }


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return the floors, measured and predicted, of every trial."""
    trials = {"trial": np.arange(config.trials)}
    parts: list[Table] = []
    for cell, found in zip(cells(config), results, strict=True):
        names = ("sweep", "at", "n_clients", "dim", "n_samples", "gap", "noise_std", "rank", "step")
        keys = {name: getattr(cell, name) for name in names}
        parts.append(tidy(keys, trials, found))
    table = np.concatenate([part.astype(_widest(parts)) for part in parts])
    return {"floors": np.sort(table, order=["sweep", "at", "trial"])}


def _widest(parts: Sequence[Table]) -> Any:
    """Return the type whose names are long enough for all parts."""
    return np.result_type(*(part.dtype for part in parts)) if len(parts) > 1 else parts[0].dtype


def columns(table: Table, sweep: str, name: str) -> tuple[Any, Any]:
    """Return the points of a sweep, (P,), and a column as (trials, P)."""
    chosen = select(table, sweep=sweep)
    at = np.unique(chosen["at"])
    return at, np.stack([select(chosen, at=value)[name] for value in at], axis=1)


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the floors of every sweep with their prediction."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator

    from linfed.figures import style as plotting

    table = tables["floors"]
    with plotting.style():
        figure, axes = plt.subplots(2, 4, figsize=(plotting.PAGE_WIDTH, 4.3), layout="constrained")
        for ax, (sweep, (xlabel, fixed)) in zip(axes.ravel(), SWEEPS.items(), strict=False):
            at, measured = columns(table, sweep, "rms")
            _, predicted = columns(table, sweep, "predicted")
            low, middle, high = np.quantile(measured, (0.1, 0.5, 0.9), axis=0)
            slope = fit_exponent(at, measured)[0]
            foreseen = fit_exponent(at, predicted)[0]
            ax.errorbar(at, middle, yerr=(middle - low, high - middle), label="measured", **plotting.look("FLUTE"))
            ax.plot(at, np.median(predicted, axis=0), color="black", linewidth=0.9, linestyle=":", label="predicted")
            ax.set(xscale="log", yscale="log", xlabel=xlabel)
            ax.set_title(fixed)
            ax.text(
                0.5, 0.97, f"{slope:.2f} ({foreseen:.2f})", transform=ax.transAxes, ha="center", va="top", fontsize=7
            )
            low, high = ax.get_ylim()
            ax.set_ylim(low, high * (high / low) ** 0.15)  # room for the text
            shown = at if len(at) < 6 else at[1::2]
            ax.set_xticks(shown, [f"{value:,g}" if value < 10_000 else f"{value:.0e}" for value in shown])
            ax.xaxis.set_minor_locator(NullLocator())
            if high / low < 3:
                ax.yaxis.set_major_locator(MaxNLocator(4))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
            ax.yaxis.set_minor_formatter(NullFormatter())
        axes[0, 0].set_ylabel("root mean square distance\nfrom the truncation")
        axes[1, 0].set_ylabel("root mean square distance\nfrom the truncation")
        axes[-1, -1].set_axis_off()
        handles, labels = axes[0, 0].get_legend_handles_labels()
        trials = len(np.unique(table["trial"]))
        axes[-1, -1].legend(
            handles, labels, loc="center", title=f"median and 10-90 %\nof {trials} trials;\nslope (predicted slope)"
        )
    return {"": figure}


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return the theorem's exponents as bounds, its constant, the predictions, and the step's part in it."""
    table = tables["floors"]
    return [*_theorem(table), *_constants(table), *_predicted(table), *_same_floor(table)]


def _note(table: Table, sweep: str) -> str:
    chosen = select(table, sweep=sweep)
    notes = []
    if chosen["diverged"].any():
        notes.append(f"{int(chosen['diverged'].sum())} trials diverged")
    if chosen["moved"].max() > 1e-6:
        notes.append(f"in the last tenth of the rounds the error still moved by up to {chosen['moved'].max():.1g}")
    return "; ".join(notes)


def _theorem(table: Table) -> list[Finding]:
    """Judge the exponents of an upper bound: the error falls at least, or grows at most, so fast."""
    bounds = {
        "m": (-0.5, "at most", "The error falls at least like m^-1/2"),
        "n above d": (0.0, "at most", "With more clients than dimensions the error does not grow with n"),
        "d above n": (0.5, "at most", "With more dimensions than clients the error grows at most like d^1/2"),
        "Delta": (-5.0, "at least", "As the gap closes the error grows at most like Delta^-5"),
        "n, noiseless": (0.0, "at most", "Without noise the error does not grow with n"),
    }
    out = []
    for sweep, (claimed, kind, text) in bounds.items():
        at, measured = columns(table, sweep, "error")
        out.append(
            judge_exponent(
                fit_exponent(at, measured),
                claimed,
                kind=kind,
                margin=MARGIN,
                text=text,
                source=f"{SOURCES[sweep]}; the margin is an {OWN_THRESHOLD}",
                where=SWEEPS[sweep][1].replace("$", ""),
                note=_note(table, sweep),
            )
        )
    return out


def _constants(table: Table) -> list[Finding]:
    """Judge whether one constant serves ``sqrt(max(d, n) / (n m))``, as far as the law behind it lets it.

    ``d + n - k`` lies between the maximum and twice that, and singular values t below the first k add up to the factor
    ``(1 + t^2) / (1 - t^2)^2``: constants may differ by the root of both.
    """
    t = 1.0 - Cell.gap / 2.0
    most = math.sqrt(2.0 * (1.0 + t**2) / (1.0 - t**2) ** 2)
    noisy = table[(table["gap"] == Cell.gap) & (table["noise_std"] == Cell.noise_std) & (table["step"] == STEP)]
    bound = np.sqrt(np.maximum(noisy["dim"], noisy["n_clients"]) / (noisy["n_clients"] * noisy["n_samples"]))
    ratios = noisy["error"] / bound
    where = np.unique(noisy[["sweep", "at"]])
    groups = [ratios[(noisy["sweep"] == sweep) & (noisy["at"] == at)] for sweep, at in where]

    def spread(*samples: Any) -> float:
        medians = [float(np.median(sample)) for sample in samples]
        return max(medians) / min(medians)

    medians = [float(np.median(group)) for group in groups]
    return [
        judge(
            (spread(*groups), *bootstrap_interval(spread, groups, paired=True, resamples=500)),
            most=most,
            theorem=True,
            source=f"{OWN_PREDICTION}: the first-order law lets constants differ by {most:.2f}",
            text="At a fixed spectrum and noise one constant serves sqrt(max(d, n) / (n m)) for all m, n and d",
            where=f"{len(groups)} settings",
            statistic="largest least constant over the smallest",
            detail=f"constants from {min(medians):.3g} to {max(medians):.3g}",
        )
    ]


def _predicted(table: Table) -> list[Finding]:
    """Compare the floors and their exponents with the prediction."""
    out = []
    for sweep, (_, fixed) in SWEEPS.items():
        at, measured = columns(table, sweep, "rms")
        _, predicted = columns(table, sweep, "predicted")
        foreseen = fit_exponent(at, predicted)[0]
        estimate, low, high = fit_exponent(at, measured)
        out.append(
            judge(
                (estimate - foreseen, low - foreseen, high - foreseen),
                least=-MARGIN,
                most=MARGIN,
                theorem=True,
                source=f"{OWN_PREDICTION}; the margin is an {OWN_THRESHOLD}",
                text="The exponent is that of the first-order law",
                where=f"{sweep}: {fixed}".replace("$", ""),
                statistic="fitted exponent less the predicted one",
                detail=f"measured {estimate:.3f}, predicted {foreseen:.3f}",
                note=_note(table, sweep),
            )
        )
    for sweep, (_, fixed) in SWEEPS.items():
        _, measured = columns(table, sweep, "rms")
        _, predicted = columns(table, sweep, "predicted")
        # The prediction is a root mean square over data sets: so is what it is held against.
        groups = list(np.square(measured / predicted).T)

        def worst(*samples: Any) -> float:
            roots = [math.sqrt(float(np.mean(sample))) for sample in samples]
            return max(roots, key=lambda root: abs(math.log(root)))

        out.append(
            judge(
                (worst(*groups), *bootstrap_interval(worst, groups, paired=True, resamples=500)),
                least=0.9,
                most=1.1,
                theorem=True,
                source=f"{OWN_PREDICTION}; the range is an {OWN_THRESHOLD}",
                text="The floor is that of the first-order law",
                where=f"{sweep}: {fixed}".replace("$", ""),
                statistic="measured over predicted root mean square, at the point that is farthest off",
            )
        )
    return out


def _same_floor(table: Table) -> list[Finding]:
    """Compare the floor at the theorem's step with that at the larger one, on the same data."""
    slow = select(table, sweep="the theorem's step")
    fast = select(table, sweep="m", at=slow["at"][0])
    return [
        judge_identity(
            np.abs(slow["error"] / fast["error"] - 1.0),
            tolerance=1e-6,
            source=OWN_PREDICTION,
            text="The floor does not depend on the step",
            where=f"eta = {slow['step'][0]:.2g} against {STEP:g}, m = {int(slow['n_samples'][0]):,}",
            statistic="largest relative difference on the same data",
        )
    ]
