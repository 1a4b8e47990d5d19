"""FLUTE paper, Theorem 5.1: how the final error depends on m, n, d, the gap and kappa.

The theorem's per-client samples for an error epsilon grow like ``max(d, n) / (n epsilon^2) (lambda_1 / Delta)^10``, so
the error should fall at least like ``sqrt(max(d, n) / (n m))`` and grow at most like ``Delta^-5``. Every run continues
until it has converged, on one fixed data set per client. The final error is then the distance of the empirical risk's
minimiser from the truncation, whatever the step size. Therefore the step size is one half instead of the theorem's; one
setting uses the theorem's, to show that it converges to the same point.

The spectrum is (1, 1, t, t, t), k = 2, ``t = 1 - Delta/2``, with Delta = 1.4 unless varied. Label noise of standard
deviation 1 dominates the error of the rank-k model, except in the noiseless sweep, which is another regime. Samples are
drawn in distribution (``in_law=True``), at a cost independent of m.

Remark 5.3 has a special case, the over-parameterised one: ground truths of rank k. There the samples grow at most like
``kappa^5``, with ``kappa = (lambda_1 / lambda_k)^2``, so the error at most like ``kappa^(5/2)``. In this sweep the
spectrum is (1, kappa^(-1/2)).

The simplest competitor has one round: the rank-k truncation of the matrix of all clients' own least squares, which need
m > d. Its first-order error is smaller than FLUTE's, because they are exact without noise, at any rank of the ground
truth.

The fitted exponents are compared with those of `linfed.theory.truncation_floor`, which has no fitted parameter: in
homogeneous noise it is ``noise_std sqrt(k (d + n - k) / (n m))`` times a factor for close singular values.

References: Liu, Shen and Yang 2024, Theorem 5.1 and Remarks 5.2, 5.3, 5.7.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.laws import draw_law
from linfed.figures.style import same_scale
from linfed.plotting.panels import SIZE_LABELS, Figures
from linfed.statistics.intervals import quantile_interval
from linfed.statistics.scaling import judge_farthest_off, judge_one_constant, judge_predicted_exponent
from linfed.theory.flute import flute_gap, flute_step_limit

SUMMARY = "FLUTE paper, Theorem 5.1: exponents of the floor in m, n, d, Delta and kappa, measured and predicted"
HEADLINES = ({"claim": "The error falls at least like m^-1/2"},)
CAPTIONS = {
    "": "Final error of converged runs, against m, n, d, the gap and kappa, and the same divided by its prediction "
    "without fitted parameters, with the exponents of both. Markers: median over trials; bars: 10-90 %."
}
PICTURES = {"": 1400}

REMARKS = "FLUTE paper, Remark 5.2"
SAMPLES = c.cite(REMARKS, "the per-client sample complexity scales in O(max{d, M} / (M eps^2))")
INDEPENDENT = c.cite(REMARKS, "When d < M, the sample complexity of FLUTE becomes independent with M")
CONDITIONED = c.cite("FLUTE paper, Remark 5.3", "our sample complexity then becomes O(max{d, M} / (M eps^2) kappa^5)")
CLOSING = c.cite("FLUTE paper, Remark 5.3", "O(max{d, M} / (M eps^2) (lambda_1 / [Delta])^10)")
TOLERANCE = 0.03
"""Tolerance of a claimed exponent: if a bound is sharp, no interval lies on one side of its exponent."""

MANY = {"n_samples": 100_000}
KAPPA = "kappa, rank k"
SWEEPS: dict[str, tuple[str, tuple[float, ...], tuple[float, ...], dict[str, Any]]] = {
    "m": ("n_samples", (300, 1_000, 3_000, 10_000, 30_000, 100_000), (300, 3_000, 30_000), {}),
    "n below d": ("n_clients", (6, 9, 13, 20, 30), (6, 13, 30), MANY | {"dim": 100}),
    "n above d": ("n_clients", (60, 120, 240, 480, 960), (60, 120, 240), MANY | {"dim": 6}),
    "d above n": ("dim", (30, 50, 90, 160), (30, 50), {"n_clients": 6, "n_samples": 300_000}),
    "d below n": ("dim", (6, 8, 12, 16), (6, 16), MANY | {"n_clients": 800}),
    "Delta": ("gap", (0.1, 0.2, 0.4, 0.8, 1.6), (0.4, 0.8, 1.6), {"n_samples": 1_000_000}),
    "n, noiseless": ("n_clients", (8, 16, 32, 64, 128), (8, 32, 128), {"noise_std": 0.0}),
    KAPPA: ("kappa", (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0), (1.0, 16.0, 64.0), {"n_samples": 1_000_000}),
}
"""Varied field of each sweep, its values, its values in a quick run, and changes from the base setting."""
SLOW = "the theorem's step"


@dataclass(frozen=True, kw_only=True)
class Floor:
    """One point of a sweep, run until it has converged."""

    sweep: str = lf.choice((*SWEEPS, SLOW), "m", label=True)
    n_clients: int = 20
    dim: int = 20
    n_samples: int = 10_000
    gap: float = 1.4
    kappa: float = 0.0
    """Condition number of a ground truth of rank k; 0 for the spectrum with the gap."""
    noise_std: float = 1.0
    step: float = 0.5
    rank: int = 2
    trials: int = 50
    seed: int = 0

    @property
    def spectrum(self) -> tuple[float, ...]:
        """Singular values of the ground truths."""
        if self.kappa:
            return (*(1.0,) * (self.rank - 1), self.kappa**-0.5)
        return (1.0,) * self.rank + (1.0 - self.gap / 2.0,) * 3

    @property
    def rounds(self) -> int:
        """Rounds to leave the small initialisation, and to converge at rate ``1 - eta Delta / 2`` to nine digits."""
        gap = float(flute_gap(self.spectrum, self.rank))
        start = math.log(10.0 * self.dim) / math.log1p(self.step * (self.spectrum[self.rank - 1] - gap / 4.0))
        return math.ceil(3.0 * start + 21.0 / (self.step * gap / 2.0))

    def run(self) -> dict[str, Any]:
        """Return the measured and the predicted floor of every trial."""
        problem = lf.UnderParameterized(
            n_clients=self.n_clients, dim=self.dim, spectrum=self.spectrum, noise_std=self.noise_std
        )
        metric = "mean_client_error" if self.kappa else "mean_truncation_error"  # equal for a truth of rank k
        drawn: dict[str, Any] = {
            "data": lf.FixedSamples(self.n_samples, in_law=True),
            "trials": self.trials,
            "seed": self.seed,
        }
        result = lf.simulate(
            lf.FLUTE(rank=self.rank, step_size=self.step),
            problem,
            n_rounds=self.rounds,
            metrics=[metric],
            record_every=max(1, self.rounds // 10),
            **drawn,
        )
        alone = lf.simulate(lf.LocalOnly(), problem, n_rounds=1, metrics=["mean_client_error"], **drawn)
        U, values, Vt = np.linalg.svd(alone.final.predictors(), full_matrices=False)
        cut = (U[..., : self.rank] * values[:, None, : self.rank]) @ Vt[:, : self.rank]
        truth = problem.truth(self.seed, range(self.trials))
        best, error = truth.truncated(self.rank).dense(), result.metrics[metric]
        return {
            "error": error[:, -1],
            "rms": rms(result.final.predictors() - best),
            "one_round": rms(cut - best),
            "moved": np.abs(error[:, -1] - error[:, -2]) / error[:, -1],
            "predicted": lf.theory.truncation_floor(truth, self.rank, self.n_samples),
            "diverged": np.isnan(error[:, -1]),
        }


def rms(difference: Any) -> Any:
    """Return the root mean square over clients of differences (trials, n, d), (trials,)."""
    return np.sqrt(np.square(difference).sum(axis=(-2, -1)) / difference.shape[-2])


def cells(quick: bool) -> dict[str, list[Floor]]:
    """Return the points of every sweep, and one at the theorem's step size."""
    base = Floor(trials=20) if quick else Floor()
    floors = []
    for sweep, (moves, values, few, stays) in SWEEPS.items():
        floors += lf.grid(replace(base, sweep=sweep, **stays), **{moves: few if quick else values})
    slow = replace(base, sweep=SLOW, n_samples=3_000)
    return {"floors": [*floors, replace(slow, step=float(flute_step_limit(slow.spectrum, slow.rank)))]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the floors of every sweep with their prediction."""
    table, labels = tables["floors"], SIZE_LABELS | {"gap": "gap $\\Delta$", "kappa": "$\\kappa$"}
    with lf.panels(table, row=4, column=4, height=6.0, height_ratios=(2, 1, 2, 1)) as sheet:
        sheet.label("", *["root mean square distance\nfrom the truncation", "measured /\npredicted"] * 2)
        laws, ratios = sheet.axes[::2].ravel(), sheet.axes[1::2].ravel()
        for ax, below, (sweep, (moves, *_)) in zip(laws, ratios, SWEEPS.items(), strict=True):
            part = table.select(sweep=sweep)
            if len(part) > 1:  # of one point there is no slope
                draw_law(ax, part[moves], part["rms"].T, part["predicted"].T, method="FLUTE", below=below)
            ax.set_title(stays_at(part))
            below.set_xlabel(labels[moves])
        same_scale(laws)
        same_scale(ratios)
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials; slope (predicted slope)")
    return {"": sheet.figure}


# --- claims --------------------------------------------------------------------------------------------------


def stays_at(part: lf.Table) -> str:
    """Return the fixed numbers of clients and dimensions of a sweep, as text, and whether there is no noise."""
    sizes = {name: part.unique(column) for name, column in (("n", "n_clients"), ("d", "dim"))}
    values = {name: found[0] for name, found in sizes.items() if len(found) == 1}
    words = [f"{name} = {value:,}" for name, value in values.items()]
    if len(set(values.values())) == 1:
        words = [f"{' = '.join(values)} = {next(iter(values.values())):,}"]
    return ", ".join([*words, *(["no noise"] if part.unique("noise_std") == [0.0] else [])])


def note(part: lf.Table) -> str:
    """Return the caveats on a sweep: diverged trials, runs that have not converged."""
    lost, moved = int(part["diverged"].sum()), part["moved"].max()
    warning = f"in the last tenth of the rounds the error still moved by up to {moved:.1g}" if moved > 1e-6 else ""
    return c.join_notes(f"{lost} trials diverged" if lost else "", warning)


def judge_predicted(part: lf.Table, **fields: Any) -> c.Finding | None:
    """Judge the measured exponent of a sweep against the predicted one."""
    if len(part) < 2:
        return None
    moves, *_ = SWEEPS[part.rows[0]["sweep"]]
    return judge_predicted_exponent(part[moves], part["rms"].T, part["predicted"].T, tolerance=TOLERANCE, **fields)


def judge_floor(part: lf.Table, **fields: Any) -> c.Finding | None:
    """Judge the measured root mean square at the point where it is farthest from the predicted one."""
    return judge_farthest_off(part["rms"].T, part["predicted"].T, **fields) if len(part) > 1 else None


def judge_constant(part: lf.Table, **fields: Any) -> c.Finding | None:
    """Judge whether one constant fits ``sqrt(max(d, n) / (n m))``, as far as the first-order prediction allows.

    ``d + n - k`` lies between the maximum and twice the maximum, and singular values t below the first k contribute at
    most the factor ``(1 + t^2) / (1 - t^2)^2``: constants may differ by the square root of the product.
    """
    if len(part) < 2:
        return None
    t = 1.0 - min(part.unique("gap")) / 2.0
    most = math.sqrt(2.0 * (1.0 + t**2) / (1.0 - t**2) ** 2)
    fields["source"] = fields["source"].adding(f"the first-order law lets constants differ by {most:.2f}", ": ")
    bound = np.sqrt(np.maximum(part["dim"], part["n_clients"]) / (part["n_clients"] * part["n_samples"]))
    return judge_one_constant(part["error"].T / bound, claimed_high=most, **fields)


def both_steps(table: lf.Table) -> Iterator[tuple[lf.Table, lf.Table]]:
    """Yield the run at the theorem's step size, and that at the usual one on the same data."""
    for slow in table.select(sweep=SLOW):
        fast = table.select(sweep="m", n_samples=slow["n_samples"])
        if len(fast):
            yield slow, fast


def bound(sentence: str, source: c.Source, sweep: str, claimed: float, kind: str, *rows: c.Where) -> c.Claim:
    """Return the claim that the theorem's bound limits the exponent of the error in a sweep, or in some rows of it."""
    return c.Claim(
        sentence,
        source.adding(f"the tolerance is {c.OWN_THRESHOLD}"),
        c.exponent("error", SWEEPS[sweep][0], claimed, TOLERANCE, kind),
        where=(c.of(sweep=sweep), *rows),
        setting=stays_at,
        note=note,
    )


MORE_CLIENTS = c.only(lambda row: row["n_clients"] > row["dim"])
Swept = partial(
    c.Claim,
    where=c.of(sweep=list(SWEEPS)),
    over=c.each("sweep"),
    setting=lambda part: f"{part.rows[0]['sweep']}: {stays_at(part)}",
)
CLAIMS = (
    bound("The error falls at least like m^-1/2", SAMPLES, "m", -0.5, "at most"),
    bound(
        "With more clients than dimensions the error does not grow with n",
        INDEPENDENT,
        "n above d",
        0.0,
        "at most",
        MORE_CLIENTS,
    ),
    bound(
        "With more dimensions than clients the error grows at most like d^1/2",
        SAMPLES,
        "d above n",
        0.5,
        "at most",
        c.only(lambda row: row["dim"] > row["n_clients"]),
    ),
    bound("As the gap closes the error grows at most like Delta^-5", CLOSING, "Delta", -5.0, "at least"),
    bound(
        "In the over-parameterised case the error grows at most like kappa^(5/2)", CONDITIONED, KAPPA, 2.5, "at most"
    ),
    bound(
        "Without noise and with more clients than dimensions the error does not grow with n",
        INDEPENDENT,
        "n, noiseless",
        0.0,
        "at most",
        c.of(noise_std=0.0),
        MORE_CLIENTS,
    ),
    c.Claim(
        "At a fixed spectrum and noise one constant fits sqrt(max(d, n) / (n m)) up to a factor at all tested m, n, d",
        c.OWN_PREDICTION,
        c.Statistic("largest constant divided by the smallest", judge_constant),
        where=c.only(lambda row: row["sweep"] not in ("Delta", "n, noiseless", KAPPA, SLOW)),
        setting="{points} settings",
    ),
    Swept(
        "The exponent is that of the first-order prediction",
        c.OWN_PREDICTION.adding(f"the tolerance is {c.OWN_THRESHOLD}"),
        c.Statistic("fitted exponent minus the predicted one", judge_predicted),
        c.within(-TOLERANCE, TOLERANCE),
        note=note,
    ),
    Swept(
        "The floor is that of the first-order prediction",
        c.OWN_PREDICTION.adding(f"the range is {c.OWN_THRESHOLD}"),
        c.Statistic("measured divided by predicted root mean square, at the worst point", judge_floor),
        c.within(0.9, 1.1),
    ),
    Swept(
        "One round, the truncation of all clients' own least squares, has no larger error than FLUTE",
        c.OWN_PREDICTION.adding(f"the 5 % are {c.OWN_THRESHOLD}"),
        c.worst(
            partial(quantile_interval, level=0.5),
            lambda row: (row["one_round"] / row["rms"],),
            "n = {n_clients}, d = {dim}, m = {n_samples}, of {points} points",
            "its root mean square divided by FLUTE's, median over trials, at the worst point",
            c.at_most(1.05),
        ),
    ),
    c.Claim(
        "FLUTE's floor is a power of (d + n - k)/(n m)",
        c.OWN_PREDICTION.adding(f"the tolerance is {c.OWN_THRESHOLD}"),
        c.power_law("rms ~ ((d + n - k) / (n m))^a", "a", 0.5, 0.05),
        where=c.of(sweep=["m", "n above d", "d above n"]),
        setting="{points} settings",
    ),
    c.Claim(
        "The floor does not depend on the step size",
        c.OWN_PREDICTION,
        c.identity(
            lambda slow, fast: np.abs(slow["error"] / fast["error"] - 1.0),
            "largest relative difference on the same data",
            1e-6,
        ),
        over=both_steps,
        setting="eta = {0[step]:.2g} against {1[step]:g}, m = {n_samples:,}",
    ),
)
