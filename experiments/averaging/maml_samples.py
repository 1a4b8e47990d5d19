"""MAML and ANIL on fixed samples with noise: the same samples for both steps or halves, the average loss, and FedRep.

n = 100 clients have fixed samples with noise. Both steps of MAML and ANIL use all samples, or each step uses one half.
The step sizes are fixed. They hardly change the limits of ANIL, because ``(B, w, alpha)`` and ``(c B, w/c, alpha/c^2)``
describe equal predictors of the clients. B starts at a random subspace with ``alpha B'B = I``. With few samples most
runs of first-order MAML diverge from this start, so it also starts at ``alpha B'B = 0.5 I``.

**Deviations**: all sizes, step sizes, scales of the initial B and thresholds are ours. The clients are fixed, and all
take part in each round.

References: Collins, Mokhtari, Oh and Shakkottai 2022, "MAML and ANIL provably learn representations".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures, bars
from linfed.statistics import judge, judge_smaller, median_ratio

from ._learns import OnSamples, ScaledSubspace
from ._learns_shown import META_LOOKS, with_scale
from ._maml import AVERAGE, FEDREP, META

SUMMARY = "MAML and ANIL on noisy samples: final distance against the samples, with the average loss and FedRep"
CAPTIONS = {
    "": (
        "Fixed samples with noise: final subspace distance against the samples of each client. Markers: median over "
        "trials; bars: 10-90 %. Diverged runs count as distance 1."
    )
}
PICTURES = {"": 1400}
REDUCED = {"samples": {"without": ("distance",)}}

BOTH = {"same": "the same samples for both steps", "split": "half of the samples for each step"}


@dataclass(frozen=True, kw_only=True)
class Sampled(OnSamples):
    """One method on fixed samples with noise; both of its steps use all of them, or each step uses one half."""

    method: str = lf.choice((*META, AVERAGE, FEDREP))
    batches: str = lf.choice(("same", "split"), "same")
    alpha: float = 0.1
    scale: float = 1.0  # alpha B'B at the start
    n_rounds: int = 600
    steps: tuple[float, ...] = (0.2,)

    def algorithm(self, step: float) -> lf.Algorithm:
        """Return the method at a step size."""
        if self.method == FEDREP:
            return lf.FedRep(rank=self.rank, step_size=step, init=ScaledSubspace())
        init = ScaledSubspace((self.scale / self.alpha) ** 0.5)
        if self.method == AVERAGE:
            return lf.FedAvg(rank=self.rank, step_size=step, init=init)
        kind, hessian = META[self.method]
        meta = partial(kind, disjoint_samples=self.batches == "split", hessian=hessian)
        return meta(rank=self.rank, step_size=step, adaptation_step_size=self.alpha, init=init)


def cells(quick: bool) -> dict[str, list[Sampled]]:
    """Return all methods on the same samples, and two on halves; quick: small sizes, few trials, one on halves."""
    base, split = Sampled(method=FEDREP), tuple(META)[:2]
    counts: Sequence[int] = (10, 20, 40)
    if quick:
        base = Sampled(method=FEDREP, n_rounds=60, n_clients=30, dim=6, rank=2, trials=6)
        counts, split = (10, 20), split[:1]
    same = lf.grid(base, n_samples=counts, method=(*META, AVERAGE, FEDREP))
    halves = lf.grid(base, batches=["split"], n_samples=counts, method=split)
    smaller_start = replace(base, method="MAML, first order", scale=0.5)
    return {"samples": [*same, *halves, *lf.grid(smaller_start, n_samples=counts)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the final distances against the samples."""
    table = tables["samples"].assign(curve=with_scale)
    with lf.panels(table, column="batches", title=lambda name: BOTH[name], sharey=True) as sheet:
        for ax, part in sheet:
            for name, rows in part.groupby("curve"):
                x, ends = [row["n_samples"] for row in rows], np.minimum(c.stacked(rows, "end"), 1.0)
                bars(ax, x, ends, META_LOOKS.get(name, META_LOOKS[rows.rows[0]["method"]]), label=name)
            ax.set(xscale="log", yscale="log")
            ax.set_xticks(x, [str(size) for size in x])
            ax.xaxis.minorticks_off()
        sheet.label("samples of a client", "final subspace distance")
        sheet.legend(ncols=3)
    return {"": sheet.figure}


def beside(other: Callable[[lf.Table], dict[str, Any]], **rows: Any) -> c.Over:
    """Return a function that yields each of the rows, chosen by columns, with the row that `other` names."""
    return lambda table: ((row, match) for row in table.select(**rows) if len(match := table.select(**other(row))) == 1)


def same(row: lf.Table, method: str = "", times: float = 1.0) -> dict[str, Any]:
    """Return the columns of the row with the same samples for both steps: of a method, and times the samples."""
    return {"method": method or row["method"], "batches": "same", "n_samples": times * row["n_samples"]}


def smaller(row: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
    """Judge whether the first row has the smaller final distances."""
    return judge_smaller(row["end"], other["end"], **fields)


def ratio(row: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
    """Judge the ratio of the median final distances."""
    return judge(median_ratio(row["end"], other["end"]), **fields)


def diverged(*rows: lf.Table) -> str:
    """Return a note on diverged trials."""
    return c.join_notes(*(c.diverged_note(row, "this scale of the initial B") for row in rows))


def setting(row: lf.Table, *_: lf.Table) -> str:
    """Return the setting of a row: its method, the scale of its initial B, and its samples."""
    return f"{with_scale(row)}, m = {row['n_samples']}"


OVER_HALF = "final distance divided by the one of half as many, unsplit samples, medians over trials"
noisy = c.only(lambda row: row["noise_std"] > 0.0)
SMALLER = c.Statistic("share of paired trials with the smaller final distance", smaller, c.MOST)
CLAIMS = (
    c.Claim(
        "On noisy samples, the method ends closer to B* than the average loss",
        c.reading("Collins, Mokhtari, Oh and Shakkottai 2022; the comparison is ours"),
        SMALLER,
        where=noisy,
        over=beside(lambda row: same(row, AVERAGE), method=[*META], batches="same"),
        setting=setting,
        note=lambda row, _: diverged(row),
    ),
    c.Claim(
        "On noisy samples, the method ends within 1.2 times FedRep's distance",
        c.OWN_THRESHOLD,
        c.Statistic("final distance divided by FedRep's, medians over trials", ratio, c.at_most(1.2)),
        where=noisy,
        over=beside(lambda row: same(row, FEDREP), method=[*META], batches="same"),
        setting=setting,
        note=lambda row, _: diverged(row),
    ),
    c.Claim(
        "One data set for both steps leaves a smaller distance than its two halves",
        c.OWN_THRESHOLD,
        SMALLER,
        over=beside(
            lambda row: {"method": row["method"], "batches": "split", "n_samples": row["n_samples"]}, batches="same"
        ),
        setting=setting,
        note=lambda whole, halves: diverged(halves, whole),
    ),
    c.Claim(
        "Splitting the samples costs half of them",
        c.OWN_THRESHOLD,
        c.Statistic(OVER_HALF, ratio, c.within(0.8, 1.25)),
        over=beside(lambda row: same(row, times=0.5), batches="split"),
        setting="{method}, split m = {0[n_samples]} against the same m = {1[n_samples]}",
        note=lambda row, _: diverged(row),
    ),
)
