"""FLUTE paper, Appendix C.1: for which m and excess gamma1 - 2 gamma2 FLUTE diverges.

The setting is that of `experiments.flute_fig4`: d = 10, k = 6, n = 10, singular values 2d/(i+1), noise variance 0.3,
gamma2 = 1/8, here for m = 8 to 10,000.

The phase line: by the identity given there, the objective on data is unbounded below iff the excess
``gamma1 - 2 gamma2`` is above ``(1/2) min_i lambda_min(A_i)``, with ``A_i = X_i'X_i/m``. It falls along the worst ray:
balanced factors of rank one for one client, in its smallest eigenvector. (At population: iff ``2 gamma1 >= 1 + 4
gamma2``, an excess of 1/2.)

Three kinds of run are compared with the line. Two start from the paper's initialisation, at its step size and at a
small one. The third starts far out on the worst ray, where terms below the fourth order are negligible, at a step size
that is small there.

A run may differ from its objective in both directions. If the objective is unbounded, a run can still converge to a
local minimum, or be stopped where the step size becomes too large. The direction of imbalance ``B'B - W'W`` has
curvature ``2 sigma_1(B W')`` (for gamma2 = 1/8), and from ``sigma_1 = 1/eta`` the run oscillates and loses its gains.
If the objective is bounded, the minimum itself may be beyond that limit. At population
``sigma_1 = lambda_1/(1 - 2 excess)``, which is above ``1/eta`` from an excess of ``(1 - eta lambda_1)/2``. "Diverged"
is a run's status; for runs from far out it is also recorded whether they moved outward.

Figures
-------
"" : Share of trials that diverged, over m and the excess gamma1 - 2 gamma2, for three kinds of run. Line: the excess
    above which the objective is unbounded below. k = 6 of 10 singular values.

References: Liu, Shen and Yang 2024, Appendix C.1 ("Varying gamma1 and gamma2").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures, bars, heat_map, level, place
from linfed.statistics.findings import OWN_THRESHOLD, Finding, cite, judge_share
from linfed.statistics.thresholds import AMONG, COUNTED, line_counts, line_findings
from linfed.theory.flute import judge_divergence, judge_unbounded

from ._flute import FLUTE_STEP, GAMMA2, SPECTRA, Weighted

SUMMARY = "FLUTE paper, Appendix C.1: divergence for gamma1 > 2 gamma2, against an objective that is unbounded below"
HEADLINES = (
    {"claim": "gamma1 > 2 gamma2 usually diverges"},
    {"claim": "gamma1 > 2 gamma2 usually diverges, beyond the paper's m"},
)
PICTURES = {"": 1400}
REDUCED = {"phase": {"without": ("gradient", "limit", "diverged_counts", "outward_counts")}}

USUALLY_DIVERGES = cite(
    "FLUTE paper, C.1, Figure 4",
    "We do not set gamma_1 > 2 gamma_2 because in this setting, ||BW||_F usually diverges",
)

PAPERS_MOST = 11
"""The largest m of the paper's Figure 4."""
SAMPLES = (8, 9, 10, 11, 12, 15, 20, 40, 100, 400, 10_000)
EXCESS = (-0.02, 0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
FAR = 1e6
"""Squared norm of each of the two factors at the initialisation far out."""
STARTS = (("paper", FLUTE_STEP, 3000), ("small step", 0.005, 6000), ("far", 0.1 / FAR, 3000))
"""Kinds of run compared with the phase line, with step size and rounds."""
FATES = {"diverged": "diverges", "outward": "moves outward"}
"""What a run may do above the phase line, and its name in claims."""
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
    rounds: int = 0
    spectrum: str = lf.choice((SPECTRA[0], SPECTRA[1]), SPECTRA[0])
    weights: tuple[float, ...] = EXCESS

    def run(self) -> dict[str, Any]:
        """Return every trial's threshold, and whether it diverged or moved outward at each excess."""
        # Compressed once for all runs.
        data = lf.FixedSamples(self.n_samples).draw(self.problem, trials=self.trials, seed=self.streams).compressed()
        A, b = data.normal_equations()
        threshold, far = lf.theory.flute_divergence_threshold(A), self.start == "far"
        init: dict[str, Any] = {"init": lf.theory.flute_worst_ray(A, self.rank, square=FAR)} if far else {}
        fates = [self.fate(data, A, b, excess, **init) for excess in self.weights]
        of_weights = {name: np.stack([fate[name] for fate in fates], axis=1) for name in fates[0]}
        of_weights["unbounded"] = np.array(self.weights) > threshold[:, None]
        counts_of = {fate: line_counts(of_weights[fate][:, None], of_weights["unbounded"][:, None]) for fate in FATES}
        return {
            "threshold": threshold,
            # The excess above which the step size is too large for a run near the population's minimum.
            "step_edge": np.nan if far else (1.0 - self.step_size * self.problem.spectrum[0]) / 2.0,
            **{name: lf.LabeledArray(values, excess=self.weights) for name, values in of_weights.items()},
            **{
                f"{fate}_counts": lf.LabeledArray(counts, among=AMONG, count=COUNTED)
                for fate, counts in counts_of.items()
            },
        }

    def fate(self, data: lf.GivenSamples, A: Any, b: Any, excess: float, **init: Any) -> dict[str, Any]:
        """Return whether trials diverged or moved outward at one excess, their gradient, and eta sigma_1(B W')."""
        weights = {"gamma1": 2.0 * GAMMA2 + excess, "gamma2": GAMMA2}
        algorithm = lf.FLUTE(rank=self.rank, step_size=self.step_size, **weights, **init)
        nothing = lf.GivenTruth(Phi=np.zeros((self.n_clients, self.dim)))  # makes the parameter error ||B W'||
        kept = {"metrics": ["parameter_error"], "record_every": max(1, self.rounds // 100)}
        result = self.simulate(algorithm, self.rounds, problem=nothing, data=data, **kept)
        lost = np.array([status is lf.Status.DIVERGED for status in result.status])
        lengths = np.nan_to_num(result.metrics["parameter_error"], nan=np.inf)
        largest = np.linalg.svd(result.final.predictors(), compute_uv=False)[:, 0]
        gradient = lf.theory.flute_relative_gradient(result.final.B, result.final.W, A, b, **weights)
        return {
            "diverged": lost,
            "outward": lengths.max(axis=1) > OUTWARD * lengths[:, 0],
            "gradient": np.where(lost, np.nan, gradient),
            "limit": np.where(lost, np.nan, self.step_size * largest),
        }


def cells(quick: bool) -> dict[str, list[Fate]]:
    """Return the runs for each m; quick: fewer trials, rounds and points."""
    base, sizes, shorter = Fate(n_samples=0), SAMPLES, 1
    if quick:
        base, sizes, shorter = replace(base, trials=30, weights=(-0.02, 0.02, 0.1, 0.4)), (8, 20, 400), 3
    kinds = [(start, step, rounds // shorter) for start, step, rounds in STARTS]
    return {"phase": lf.grid(base, **{"start, step_size, rounds": kinds}, n_samples=sizes)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the shares of trials that diverged, with the line above which the objective is unbounded below."""
    phase = tables["phase"]
    rows, sizes, first = phase["excess"], phase.unique("n_samples"), phase.rows[0]
    titles = {start: f"paper's start, step {part.rows[0]['step_size']:g}" for start, part in phase.groupby("start")}
    titles["far"] = "far out on the worst ray, tiny step"
    line = {"color": KINDS[0][0], "marker": ".", "linestyle": "-", "linewidth": 1.2, "elinewidth": 0.8}
    limit = {"color": "black", "linestyle": "--", "linewidth": 1.2}
    with lf.panels(phase, column="start", title=titles.get, height=3.4, sharex=True, sharey=True) as sheet:
        for ax, part in sheet:
            image = heat_map(ax, part["diverged"].mean(axis=1).T, [f"{m:,}" for m in sizes], [f"{e:g}" for e in rows])
            ax.tick_params(axis="x", rotation=60)
            places = np.interp(part["threshold"].T, rows, np.arange(len(rows)))
            bars(ax, range(len(sizes)), places, "above: unbounded below (median and 10-90 %)", **line)
            edge = part.rows[0]["step_edge"]
            if np.isfinite(edge):
                text = "above: the population's minimum is unstable at this step"
                level(ax, [len(sizes) - 2.5, len(sizes) - 0.5], [place(rows, edge)] * 2, label=text, **limit)
        sheet.label("samples per client m", "excess γ₁ - 2 γ₂")
        sheet.figure.colorbar(image, ax=sheet.axes[0, -1], label="share of trials that diverged", pad=0.02)
        sheet.legend(f"{first['trials']} trials; d = {first['dim']}; rows are not evenly spaced")
    return {"": sheet.figure}


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the paper's claims on divergence, and the predicted phase line."""
    phase = tables["phase"]
    lines = [
        finding
        for fate, event in FATES.items()
        for start, part in phase.groupby("start")
        if fate == "diverged" or start == "far"
        for finding in line_findings(
            part[f"{fate}_counts"][::-1],  # the largest m first
            fixed="the best excess common to all data sets of the same m, in hindsight",
            claim=f"Each data set's own threshold predicts better than any common one whether a run {event}",
            setting=start,
        )
    ]
    same = (finding for start, part in phase.groupby("start") for finding in against_the_line(start, part))
    return [*usually(phase.select(start="paper")), *same, *lines]


def usually(phase: lf.Table) -> list[Finding]:
    """Judge the paper's "usually diverges", at its initialisation and step size, for a small and a large excess."""
    rows = phase["excess"]
    return [
        judge_share(
            part["diverged"][:, at],
            0.5,
            source=USUALLY_DIVERGES
            if m <= PAPERS_MOST
            else OWN_THRESHOLD.adding(f"the paper has m = 8 to {PAPERS_MOST}", ": "),
            claim="gamma1 > 2 gamma2 usually diverges" + (", beyond the paper's m" if m > PAPERS_MOST else ""),
            setting=f"excess {rows[at]:g}: m = {m:,}",
            statistic="share of trials that diverged, from the paper's initialisation at its step size",
        )
        for at in (np.abs(rows - wanted).argmin() for wanted in (0.02, 0.3))
        for m, part in phase.select(n_samples=[8, 9, 10, 11, 20, 100, 400, 10_000]).groupby("n_samples")
    ]


def against_the_line(start: str, phase: lf.Table) -> list[Finding]:
    """Judge whether runs of one kind diverge exactly if unbounded below, with counts of the exceptions."""
    setting = {"paper": "paper's start and step", "small step": "paper's start, small step", "far": "far start"}[start]
    excess, unbounded, diverged = phase["excess"], phase["unbounded"], phase["diverged"]  # (m, trials, excess)
    stuck, below = unbounded & ~diverged, diverged & ~unbounded
    resting = stuck & (phase["gradient"] < AT_REST)
    limited = stuck & ~resting & (phase["limit"] >= AT_LIMIT)
    rest = (
        f"{setting}: of the {stuck.sum()} that did not diverge {resting.sum()} have converged (gradient below "
        f"{AT_REST:g} of B, W), {limited.sum()} move near the limit of the step (eta sigma_1 >= {AT_LIMIT:g})"
    )
    over = np.sum(below & (excess > phase.rows[0]["step_edge"]))
    step = f"{setting}: {over} of the {below.sum()} lie above the step's limit at the population's minimum"
    line = {"excess": excess, "threshold": phase["threshold"], "setting": setting, "margin": MARGIN}
    notes = rest if stuck.any() else "", step if below.any() and start != "far" else ""
    found = judge_divergence(diverged, notes=notes, **line)
    if start == "far":
        text = "Far out on the worst ray a run moves outward iff the objective is unbounded below"
        found += judge_unbounded(phase["outward"], text=text, **line)
    return found
