"""FLUTE paper, Appendix C.1: for which m and excess gamma1 - 2 gamma2 FLUTE diverges.

The setting is that of `experiments.flute.flute_fig4`: d = 10, k = 6, n = 10, singular values 2d/(i+1), noise variance
0.3, gamma2 = 1/8, here for m = 8 to 10,000.

The phase line: by the identity given there, the objective on data is unbounded below iff the excess
``gamma1 - 2 gamma2`` is above ``(1/2) min_i lambda_min(A_i)``, with ``A_i = X_i'X_i/m``. It falls along the worst ray:
balanced factors of rank one for one client, in its smallest eigenvector. (At population: iff
``2 gamma1 >= 1 + 4 gamma2``, an excess of 1/2.)

Three kinds of run are compared with the line. Two start from the paper's initialisation, at its step size and at a
small one. The third starts far out on the worst ray, where terms below the fourth order are negligible, at a step size
that is small there.

A run may differ from its objective in both directions. If the objective is unbounded, a run can still converge to a
local minimum, or be stopped where the step size becomes too large. The direction of imbalance ``B'B - W'W`` has
curvature ``2 sigma_1(B W')`` (for gamma2 = 1/8), and from ``sigma_1 = 1/eta`` the run oscillates and loses its gains.
If the objective is bounded, the minimum itself may be beyond that limit. At population
``sigma_1 = lambda_1/(1 - 2 excess)``, which is above ``1/eta`` from an excess of ``(1 - eta lambda_1)/2``. "Diverged"
is a run's status; for runs from far out it is also recorded whether they moved outward.

References: Liu, Shen and Yang 2024, Appendix C.1 ("Varying gamma1 and gamma2").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures, bars, heat_map, level, place
from linfed.statistics.thresholds import AMONG, COUNTED, line_counts, line_findings

from ._flute import FLUTE_STEP, GAMMA2, SPECTRA, Weighted

SUMMARY = "FLUTE paper, Appendix C.1: divergence for gamma1 > 2 gamma2, against an objective that is unbounded below"
HEADLINES = (
    {"claim": "gamma1 > 2 gamma2 usually diverges"},
    {"claim": "gamma1 > 2 gamma2 usually diverges, beyond the paper's m"},
)
CAPTIONS = {
    "": "Share of trials that diverged, over m and the excess gamma1 - 2 gamma2, for three kinds of run. Line: the "
    "excess above which the objective is unbounded below. k = 6 of 10 singular values."
}
PICTURES = {"": 1400}
REDUCED = {"phase": {"without": ("gradient", "limit", "diverged_counts", "outward_counts")}}

USUALLY_DIVERGES = c.cite(
    "FLUTE paper, C.1, Figure 4", "We do not set gamma_1 > 2 gamma_2 because in this setting, ||BW||_F usually diverges"
)

PAPERS = (8, 9, 10, 11)
"""The numbers of samples in the paper's Figure 4."""
SAMPLES = (8, 9, 10, 11, 12, 15, 20, 40, 100, 400, 10_000)
EXCESS = (-0.02, 0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
FAR = 1e6
"""Squared norm of each of the two factors at the initialisation far out."""
STARTS = (("paper", FLUTE_STEP, 3000), ("small step", 0.005, 6000), ("far", 0.1 / FAR, 3000))
"""Kinds of run compared with the phase line, with step size and rounds."""
FATES = ("diverged", "outward")
"""What a run may do above the phase line."""
MARGIN = 0.02
"""Excesses this close to a trial's threshold are also judged separately."""
AT_REST = 1e-6
"""A run has converged if its gradient is below this share of the parameters' norm."""
AT_LIMIT = 0.5
"""A run that has not converged is near its step-size limit if eta ``sigma_1(B W')`` (limit 1) is at least this."""
OUTWARD = 2.0
"""A run from far out has moved outward once ``||B W'||`` exceeds this multiple of its initial value."""


@dataclass(frozen=True, kw_only=True)
class Fate(Weighted):
    """Runs of one kind at every excess gamma1 - 2 gamma2, at one number of samples."""

    start: str = lf.choice(("paper", "small step", "far"), "paper", label=True)
    step_size: float = 0.0
    n_rounds: int = 0
    spectrum: str = lf.choice((SPECTRA[0], SPECTRA[1]), SPECTRA[0])
    weights: tuple[float, ...] = EXCESS

    def run(self) -> dict[str, Any]:
        """Return every trial's threshold, and whether it diverged or moved outward at each excess."""
        # Compressed once for all runs.
        data = lf.FixedSamples(self.n_samples).draw(self.problem, trials=self.trials, seed=self.streams).compressed()
        A, b = data.normal_equations()
        threshold, far = lf.theory.flute_divergence_threshold(A), self.start == "far"
        init: Any = lf.theory.flute_worst_ray(A, self.rank, square=FAR) if far else lf.SmallRandom()
        fates = [self.fate(data, A, b, init, excess) for excess in self.weights]
        of_weights = {name: np.stack([fate[name] for fate in fates], axis=1) for name in fates[0]}
        of_weights["unbounded"] = np.array(self.weights) > threshold[:, None]
        unbounded = of_weights["unbounded"][:, None]
        counts = {f"{fate}_counts": line_counts(of_weights[fate][:, None], unbounded) for fate in FATES}
        return {
            "threshold": threshold,
            # The excess above which the step size is too large for a run near the population's minimum.
            "step_edge": np.nan if far else (1.0 - self.step_size * max(self.problem.spectrum or (0.0,))) / 2.0,
            **{name: lf.LabeledArray(values, excess=self.weights) for name, values in of_weights.items()},
            **{name: lf.LabeledArray(values, among=AMONG, count=COUNTED) for name, values in counts.items()},
        }

    def fate(self, data: lf.GivenSamples, A: Any, b: Any, init: Any, excess: float) -> dict[str, Any]:
        """Return whether trials diverged or moved outward at one excess, their gradient, and eta sigma_1(B W')."""
        gamma1 = 2.0 * GAMMA2 + excess
        result = lf.simulate(
            lf.FLUTE(rank=self.rank, step_size=self.step_size, gamma1=gamma1, gamma2=GAMMA2, init=init),
            lf.GivenTruth(Phi=np.zeros((self.n_clients, self.dim))),  # makes the parameter error ||B W'||
            data=data,
            n_rounds=self.n_rounds,
            trials=self.trials,
            seed=self.streams,
            metrics=["parameter_error"],
            record_every=max(1, self.n_rounds // 100),
        )
        lost = np.array([status is lf.Status.DIVERGED for status in result.status])
        lengths = np.nan_to_num(result.metrics["parameter_error"], nan=np.inf)
        largest = np.linalg.svd(result.final.predictors(), compute_uv=False)[:, 0]
        B, W = result.final.B, result.final.W
        gradient = lf.theory.flute_relative_gradient(B, W, A, b, gamma1=gamma1, gamma2=GAMMA2)
        return {
            "diverged": lost,
            "outward": lengths.max(axis=1) > OUTWARD * lengths[:, 0],
            "gradient": np.where(lost, np.nan, gradient),
            "limit": np.where(lost, np.nan, self.step_size * largest),
        }


def cells(quick: bool) -> dict[str, list[Fate]]:
    """Return the runs for each m; quick: fewer trials, rounds and points."""
    base = Fate(n_samples=0)
    if quick:
        base = replace(base, trials=30, weights=(-0.02, 0.02, 0.1, 0.4))
    kinds = [(start, step, rounds // 3 if quick else rounds) for start, step, rounds in STARTS]
    return {
        "phase": lf.grid(base, **{"start, step_size, n_rounds": kinds}, n_samples=(8, 20, 400) if quick else SAMPLES)
    }


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the shares of trials that diverged, with the line above which the objective is unbounded below."""
    phase = tables["phase"]
    rows, sizes, first = phase["excess"], phase.unique("n_samples"), phase.rows[0]
    titles = {
        start: f"paper's initialisation, step {part.rows[0]['step_size']:g}" for start, part in phase.groupby("start")
    }
    titles["far"] = "far out on the worst ray, tiny step"
    look: dict[str, Any] = {"marker": ".", "linestyle": "-", "linewidth": 1.2, "elinewidth": 0.8}
    with lf.panels(
        phase, column="start", title=lambda start: titles[start], height=3.4, sharex=True, sharey=True
    ) as sheet:
        for ax, part in sheet:
            shares = c.stacked(part, lambda row: row["diverged"].mean(axis=0))
            image = heat_map(ax, shares, [f"{m:,}" for m in sizes], [f"{e:g}" for e in rows])
            ax.tick_params(axis="x", rotation=60)
            places = np.interp(c.stacked(part, "threshold"), rows, np.arange(len(rows)))
            text, colour = "above: unbounded below (median and 10-90 %)", KINDS[0][0]
            bars(ax, range(len(sizes)), places, text, color=colour, **look)
            edge = part.rows[0]["step_edge"]
            if np.isfinite(edge):
                text = "above: the population's minimum is unstable at this step"
                ends = [len(sizes) - 2.5, len(sizes) - 0.5]
                level(ax, ends, [place(rows, edge)] * 2, label=text, color="black", linestyle="--", linewidth=1.2)
        sheet.label("samples per client m", "excess γ₁ - 2 γ₂")
        sheet.figure.colorbar(image, ax=sheet.axes[0, -1], label="share of trials that diverged", pad=0.02)
        sheet.legend(f"{first['trials']} trials; d = {first['dim']}; rows are not evenly spaced")
    return {"": sheet.figure}


# --- claims --------------------------------------------------------------------------------------------------


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return whether the paper's runs diverge at a small and at a large excess: a row for each excess and m."""
    rows = []
    for excess in (0.02, 0.3):
        for run in tables["phase"].select(start="paper"):
            at = np.abs(run["excess"] - excess).argmin()
            diverged = run["diverged"][:, at]
            rows.append({"excess": run["excess"][at], "n_samples": run["n_samples"], "diverged": diverged})
    return {"usual": lf.Table(rows)}


def share_among(hits: Callable[[lf.Table], Any], points: Callable[[lf.Table], Any], words: str) -> c.Statistic:
    """Return the share of hits among some of the points (m, trial, excess); a data set (m, trial) is a cluster."""

    def sets(part: lf.Table) -> Any:
        chosen = points(part)
        return np.ravel_multi_index(np.nonzero(chosen)[:-1], chosen.shape[:-1])

    return c.share(lambda part: hits(part)[points(part)], words, c.above(0.95), clusters=sets)


def agreements(fate: str) -> tuple[c.Statistic, ...]:
    """Return the shares of runs that agree with the objective: of all, close to the threshold, by data set."""

    def agrees(part: lf.Table) -> Any:
        return part[fate] == part["unbounded"]

    def is_near(part: lf.Table) -> Any:
        return np.abs(part["excess"] - part["threshold"][..., None]) < MARGIN

    of_sets = "share of data sets (m, trial) for which this holds at every excess of the grid"
    return (
        share_among(agrees, lambda part: np.ones_like(part["unbounded"]), "share of (data set, excess) pairs"),
        share_among(agrees, is_near, f"share of pairs within {MARGIN:g} of the threshold"),
        c.share(lambda part: agrees(part).all(axis=-1), of_sets, c.above(0.95)),
    )


def rest_note(part: lf.Table) -> str:
    """Return the number of runs that did not diverge above the threshold, converged or near the step's limit."""
    stuck = part["unbounded"] & ~part["diverged"]
    resting = stuck & (part["gradient"] < AT_REST)
    limited = stuck & ~resting & (part["limit"] >= AT_LIMIT)
    rest = (
        f"{kind_of_run(part)}: of the {stuck.sum()} that did not diverge {resting.sum()} have converged (gradient "
        f"below {AT_REST:g} of B, W), {limited.sum()} move near the limit of the step (eta sigma_1 >= {AT_LIMIT:g})"
    )
    return rest if stuck.any() else ""


def step_note(part: lf.Table) -> str:
    """Return how many runs that diverged below the threshold lie above the step's limit at the minimum."""
    first, below = part.rows[0], part["diverged"] & ~part["unbounded"]
    over = np.sum(below & (part["excess"] > first["step_edge"]))
    step = f"{over} of the {below.sum()} lie above the step's limit at the population's minimum"
    return f"{kind_of_run(part)}: {step}" if below.any() and first["start"] != "far" else ""


def kind_of_run(part: lf.Table) -> str:
    """Return the name of the kind of run in settings."""
    names = {"paper": "paper's start and step", "small step": "paper's start, small step", "far": "far start"}
    return names[part.rows[0]["start"]]


def line_gain(fate: str, among: str) -> c.Statistic:
    """Return the share of points that the line of each data set predicts, minus that of the common threshold."""
    common = "the best excess common to all data sets of the same m, in hindsight"

    def judge(part: lf.Table, **fields: Any) -> c.Finding:
        counts = part[f"{fate}_counts"][::-1]  # the largest m first
        return line_findings(counts, fixed=common, **fields)[AMONG.index(among)]

    return c.Statistic(f"share of {among} that the line predicts, minus that of {common}", judge, c.above(0.0))


USUAL = c.share(
    lambda row: row["diverged"],
    "share of trials that diverged, from the paper's initialisation at its step size",
    c.MOST,
)
above = c.only(lambda row: row["excess"] > 0.0)
Usually = partial(
    c.Claim,
    statistic=USUAL,
    table="usual",
    over=c.each("excess", "n_samples"),
    setting="excess {excess:g}: m = {n_samples:,}",
)
Predicted = partial(c.Claim, source=c.OWN_PREDICTION, table="phase", over=c.each("start"), setting=kind_of_run)
LINE = "Each data set's own threshold predicts better than any common one whether a run {}"
CLAIMS = (
    Usually("gamma1 > 2 gamma2 usually diverges", USUALLY_DIVERGES, where=(above, c.of(n_samples=list(PAPERS)))),
    Usually(
        "gamma1 > 2 gamma2 usually diverges, beyond the paper's m",
        c.OWN_THRESHOLD.adding(f"the paper has m = {min(PAPERS)} to {max(PAPERS)}", ": "),
        where=(above, c.of(n_samples=[20, 100, 400, 10_000])),
    ),
    *(
        Predicted("A run diverges iff the objective is unbounded below", statistic=statistic)
        for statistic in agreements("diverged")
    ),
    Predicted(
        "Where the objective is unbounded below the run diverges",
        statistic=share_among(
            lambda part: part["diverged"], lambda part: part["unbounded"], "share of the pairs above the threshold"
        ),
        note=rest_note,
    ),
    Predicted(
        "Where the objective is bounded below the run does not diverge",
        statistic=share_among(
            lambda part: ~part["diverged"],
            lambda part: ~part["unbounded"],
            "share of the pairs at or below the threshold",
        ),
        note=step_note,
    ),
    *(
        Predicted(
            "Far out on the worst ray a run moves outward iff the objective is unbounded below",
            statistic=statistic,
            where=c.of(start="far"),
        )
        for statistic in agreements("outward")
    ),
    *(Predicted(LINE.format("diverges"), statistic=line_gain("diverged", among), setting="{start}") for among in AMONG),
    *(
        Predicted(
            LINE.format("moves outward"),
            statistic=line_gain("outward", among),
            where=c.of(start="far"),
            setting="{start}",
        )
        for among in AMONG
    ),
)
