"""FLUTE against FedRep when the empirical risk has many minima: whether the method decides which one is reached.

The FLUTE paper's Figure 1 with few samples for the rank: d = 10, n = 30, phi_i ~ N(0, I_d), noise variance 0.3, one
fixed data set, k = 8 at m = 12. The contrast is k = 4 at m = 20. At gamma1 = 2 gamma2, FLUTE's stationary points of
rank k are the stationary points of the empirical risk over Theta of rank k. So are FedRep's with exact heads. There
are many of them. FLUTE and FedRep (RI) run from several initialisations on each data set: FLUTE from small Gaussian B
and W, FedRep (RI) from the Q factor of the same B. FedRep runs once, from the method of moments, as in Figure 1.

Runs continue until they have converged ("settled"). Over a block of rounds, the relative change of the empirical risk
with exact heads at B must be below 1e-9. Its gradient by B must be below 1e-6 of the size of its terms, and FLUTE's own
predictors must equal those of exact heads to 1e-6. Runs that have not settled by the last round are counted separately.
Two final points are the same minimum if their predictors differ by less than 1e-3 of their length and their risks by
less than 1e-6. The step size is the one with the smallest 90 % quantile of the gradient after a block of rounds on
separate data sets. Initialisations on one data set are a cluster: intervals are over data sets.

Figures
-------
"" : Distribution of the settled runs' final errors, as the excess (per cent) over the error of the run with the
    smallest empirical risk on the same data set. One run per initialisation and data set. Noise variance 0.3; runs
    continue in blocks of rounds until they have settled.

References: Liu, Shen and Yang 2024, section 7.1, Figure 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.figures.style import line_style
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures
from linfed.statistics.findings import OWN_THRESHOLD, judge, judge_share
from linfed.statistics.intervals import clustered_difference
from linfed.theory import at_exact_heads

from ._flute import FEDREP, FEDREP_RI, FLUTE, METHODS

SUMMARY = "FLUTE paper, Figure 1's setting: how many minima there are, and which of them FLUTE and FedRep reach"
PICTURES = {"": 1400}
REDUCED = {"ends": {"without": ("predictors",)}}

CHANGE, GRADIENT, HEADS = 1e-9, 1e-6, 1e-6
"""Limits for a settled run: change of the risk over a block, relative gradient, FLUTE's distance to exact heads."""
SAME_POINT, SAME_RISK = 1e-3, 1e-6
"""Relative distances of predictors and of risks below which two end points are one minimum."""


@dataclass(frozen=True, kw_only=True)
class Ends:
    """All data sets and initialisations of one method in one setting, after Figure 1."""

    method: str = lf.choice((FLUTE, FEDREP, FEDREP_RI), FLUTE)
    n_samples: int
    rank: int
    n_clients: int = 30
    dim: int = 10
    starts: int = 3
    block: int = 1000
    blocks: int = 15
    tuning_trials: int = 4
    step_sizes: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.1, 0.3, 0.7, 1.0)
    trials: int = 30
    seed: int = 0

    def advance(self, step: float, data: lf.GivenSamples, B: Any, W: Any) -> tuple[Any, Any]:
        """Return B and heads after a block of rounds."""
        algorithm: lf.Algorithm = lf.FedRep(rank=self.rank, step_size=step, init=B)
        if self.method == FLUTE:
            algorithm = lf.FLUTE(rank=self.rank, step_size=step, init=(B, W))
        times = {"rounds": self.block, "trials": len(B), "record_every": self.block}
        final = lf.simulate(algorithm, data=data, **times).final
        return final.B, final.W

    def begin(self, trials: int, seed: Any) -> tuple[Any, lf.GivenSamples, Any, Any]:
        """Return ground truths (T, n, d), samples, B and heads; runs are sorted by data set, then initialisation."""
        problem = lf.UnderParameterized(n_clients=self.n_clients, dim=self.dim, noise_std=math.sqrt(0.3))
        samples = lf.FixedSamples(self.n_samples).draw(problem, trials=trials, seed=seed)
        none: dict[str, Any] = {"rounds": 0, "trials": trials}
        if self.method == FEDREP:
            draws = [lf.simulate(lf.FedRep(rank=self.rank, step_size=1.0), data=samples, **none).final]
        else:
            none |= {"algorithm": lf.FLUTE(rank=self.rank, step_size=1.0), "data": lf.FixedSamples(1)}
            seeds = [(self.seed, self.rank, start) for start in range(self.starts)]
            draws = [lf.simulate(problem=problem, seed=of_start, **none).final for of_start in seeds]
        B, W = (np.concatenate(np.stack([getattr(draw, name) for draw in draws], axis=1)) for name in "BW")
        truths = problem.truth(seed, range(trials)).dense()
        Phi, X, y = (np.repeat(part, len(draws), axis=0) for part in (truths, samples.X, samples.y))
        return Phi, lf.GivenSamples(X, y), orthonormalize(B) if self.method == FEDREP_RI else B, W

    def tuned(self) -> float:
        """Return the step size with the smallest 90 % quantile of the gradient after a block, on separate data sets."""
        _, data, B, W = self.begin(self.tuning_trials, (self.seed, self.n_samples, 1))
        found = []
        for step in self.step_sizes:
            with np.errstate(all="ignore"):
                gradient = at_exact_heads(data, self.advance(step, data, B, W)[0]).gradient
            found.append(np.quantile(np.nan_to_num(gradient, nan=np.inf), 0.9, method="inverted_cdf"))
        return self.step_sizes[int(np.argmin(found))]

    def run(self) -> dict[str, Any]:
        """Run from every initialisation until the run has settled, or to the last round."""
        step = self.tuned()
        Phi, data, B, W = self.begin(self.trials, (self.seed, self.n_samples))
        value, gradient, Theta = at_exact_heads(data, B)
        rounds, settled = np.zeros(len(B), dtype=int), np.zeros(len(B), dtype=bool)
        for _ in range(self.blocks):
            left = np.flatnonzero(~settled)
            if not len(left):
                break
            samples = lf.GivenSamples(data.X[left], data.y[left])
            B[left], W[left] = self.advance(step, samples, B[left], W[left])
            new, gradient[left], Theta[left] = at_exact_heads(samples, B[left])
            reached = W[left] @ B[left].mT if self.method == FLUTE else Theta[left]
            apart = np.linalg.norm(reached - Theta[left], axis=(-2, -1)) / np.linalg.norm(Theta[left], axis=(-2, -1))
            still = np.abs(new - value[left]) < CHANGE * new
            settled[left] = still & (gradient[left] < GRADIENT) & (apart < HEADS)
            value[left] = new
            rounds[left] += self.block
        values = np.linalg.svd(Theta, compute_uv=False)
        found = {"rounds": rounds, "settled": settled, "risk": value, "gradient": gradient}
        found["error"] = np.linalg.norm(Theta - Phi, axis=-1).mean(axis=-1)
        found["weakest"] = values[:, self.rank - 1] / values[:, 0]
        start = range(len(B) // self.trials)
        axes = {"start": start, "client": range(self.n_clients), "coordinate": range(self.dim)}
        return {
            "setting": f"m = {self.n_samples}, k = {self.rank}",
            "step_size": step,
            "predictors": lf.LabeledArray(Theta.reshape(self.trials, -1, self.n_clients, self.dim), **axes),
            **{name: lf.LabeledArray(ends.reshape(self.trials, -1), start=start) for name, ends in found.items()},
        }


def cells(quick: bool) -> dict[str, list[Ends]]:
    """Return all methods with few samples for the rank, and in the contrast; quick: smaller sizes, shorter blocks."""
    base, sizes = Ends(n_samples=12, rank=8), ((12, 8), (20, 4))
    if quick:
        base = replace(base, n_clients=12, dim=6, trials=50, starts=2, block=500, blocks=5)
        base, sizes = replace(base, tuning_trials=2, step_sizes=(0.05, 0.5)), ((8, 4), (12, 3))
    return {"ends": lf.grid(base, **{"n_samples, rank": sizes}, method=METHODS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distribution of the final errors, relative to that at the smallest risk on the same data set."""
    with lf.panels(tables["ends"], column="setting", title="{}", height=2.9) as sheet:
        for ax, part in sheet:
            settled, risk, error = (
                np.concatenate([runs[name] for runs in part], axis=1) for name in ("settled", "risk", "error")
            )
            best = error[np.arange(len(error)), np.where(settled, risk, np.inf).argmin(axis=1)]
            for name in (FLUTE, FEDREP_RI, FEDREP):
                runs = part.select(method=name)
                trial, _ = ended = np.nonzero(runs["settled"])
                above = np.sort(100 * (runs["error"][ended] / best[trial] - 1))
                if above.size:
                    shape = {"drawstyle": "steps-post", "markevery": max(1, above.size // 8), **line_style(name)}
                    share = np.arange(1, above.size + 1) / above.size
                    ax.plot(above, share, label=name, **shape)
            ax.axvline(0.0, color="0.35", linewidth=0.7, linestyle=":")
            if not settled.any():
                ax.text(0.5, 0.6, "no run has settled", ha="center", transform=ax.transAxes)
        sheet.label("mean client error, per cent above that at the least risk", "share of runs below", ylim=(0, 1.02))
        sheet.legend("settled runs, one for each data set and start")
    return {"": sheet.figure}


ACROSS = "FLUTE and FedRep (RI), one start"
MOMENTS = "FLUTE and FedRep"
WITHIN = {FLUTE: "FLUTE, two starts", FEDREP_RI: "FedRep (RI), two starts"}
"""Names of pairs of runs on one data set: of two methods, and of one method."""


def pairs_of(part: lf.Table) -> lf.Table:
    """Return for each pair whether both settled, whether at one minimum, and the excess of the first run."""
    runs, each = dict(part.groupby("method")), list(range(part.rows[0]["starts"]))
    later, earlier = np.tril_indices(len(each), -1)
    chosen = {
        ACROSS: ((FLUTE, each), (FEDREP_RI, each)),
        MOMENTS: ((FLUTE, each), (FEDREP, [0] * len(each))),
        **{pair: ((name, later), (name, earlier)) for name, pair in WITHIN.items()},
    }
    rows = []
    for pair, both in chosen.items():
        names = ("predictors", "risk", "error", "settled")
        Theta, risk, error, settled = ([runs[one][name][:, starts] for one, starts in both] for name in names)
        apart = np.linalg.norm(Theta[0] - Theta[1], axis=(-2, -1)) / np.linalg.norm(Theta[0], axis=(-2, -1))
        excess = {"risk": risk[0] / risk[1] - 1.0, "error": error[0] / error[1] - 1.0}
        same, couples = (apart < SAME_POINT) & (np.abs(excess["risk"]) < SAME_RISK), range(apart.shape[1])
        found = {"settled": settled[0] & settled[1], "same": same, **excess}
        rows.append({"pair": pair, **{name: lf.LabeledArray(values, couple=couples) for name, values in found.items()}})
    return lf.Table(rows)


def claims(tables: dict[str, lf.Table]) -> list[lf.Finding]:
    """Judge how often two runs settle at one minimum, whether the method decides it, and which one ends lower."""
    found = []
    for setting, part in tables["ends"].groupby("setting"):
        settled_counts = [f"{runs['method']} {runs['settled'].sum()} of {runs['settled'].size}" for runs in part]
        found += judged(setting, pairs_of(part), f"{setting}: runs that settled: {', '.join(settled_counts)}")
    return found


def judged(setting: str, pairs: lf.Table, note: str) -> list[lf.Finding]:
    """Return the findings on the pairs of a setting; pairs with a run that has not settled are left out."""
    once, lower = [], []
    for pair, of in pairs.groupby("pair"):
        settled, differ = of["settled"], of["settled"] & ~of["same"]
        fields = {"setting": f"{setting}: {pair}", "source": OWN_THRESHOLD, "note": note}
        text = "Two runs on one data set settle at the same minimum"
        fields["statistic"] = "share of pairs of settled runs; intervals over data sets"
        once.append(judge_share(of["same"][settled], 0.95, clusters=np.nonzero(settled)[0], claim=text, **fields))
        fields["statistic"] = "share of pairs of settled runs at different minima; intervals over data sets"
        for name, what in (("risk", "empirical risk"), ("error", "mean client error")):
            if pair in (ACROSS, MOMENTS):
                text, excess = f"Where they differ, FLUTE's minimum has the lower {what}", of[name][differ]
                finding = judge_share(excess < 0, 0.5, clusters=np.nonzero(differ)[0], claim=text, **fields)
                counts = f"{(excess < 0).sum()} lower, {(excess > 0).sum()} higher, {(settled & of['same']).sum()} tied"
                lower.append(replace(finding, detail=f"{counts}; {finding.detail}"))
    has_settled = np.any([of["settled"].any(axis=1) for of in pairs], axis=0)
    across, within = (
        [
            np.concatenate([of[name] for of in pairs.select(pair=kinds)], axis=1)[has_settled]
            for name in ("same", "settled")
        ]
        for kinds in ([ACROSS], list(WITHIN.values()))
    )
    difference, shares = clustered_difference(across, within)
    parting = judge(
        difference,
        source=OWN_THRESHOLD,
        claim="FLUTE and FedRep from one start reach different minima as often as one method from two starts",
        setting=setting,
        statistic="share of settled pairs at the same minimum, two methods minus two starts; interval over data sets",
        claimed_low=-0.1,
        claimed_high=0.1,
        detail=shares,
        note=note,
    )
    return [*once, parting, *lower]
