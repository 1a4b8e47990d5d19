"""FedRep paper, Assumption 3: whether Theorem 1 holds for heads of unequal lengths, all at most sqrt(k).

Theorem 1 assumes heads of length sqrt(k). The paper says that lengths of at most O(sqrt(k)) are enough. Here some
clients have heads of length sqrt(k) and all others of a thousandth of it, or lengths are uniform. Every constant of the
theorem is computed from the heads, so kappa is 1 except for uniform lengths. The bound (10) is judged at the theorem's
m with C = 1. The smallest C with which it holds is then sought at several n = d: C = 1, 2, 4, ... are tried until no
trial fails. The theorem leaves C unspecified, but it is absolute and must not grow. A smaller C than 1 counts as 1,
which is then enough. B starts at distance 0.5; 40 rounds, p = n, under the engine "chain". There are 300 trials at n =
d = 100, where some C fail in a few per cent of them, and 100 at others.

Averages are ruled by the long heads. With ``p_eff = (sum ||w_i||^2)^2 / sum ||w_i||^4`` instead of p in d/p, the
theorem's m counts p_eff clients of equal length. This rule is ours, and so is the simplest one,
``k + 2 + d k / p_eff``.

The paper's allowance bounds lengths from above only. With a mean square length of order k, as in the cases "half long"
and "uniform", p_eff is of order n, and the allowance is the theorem with another C.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, Theorem 1 and Assumption 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures
from linfed.statistics.intervals import least_passing
from linfed.theory.fedrep.theorem1 import judges, runs

from ._theorem1 import Setting

SUMMARY = "FedRep paper, Assumption 3: Theorem 1's bound for heads of unequal lengths up to sqrt(k)"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "Smallest C in front of Theorem 1's m with which the bound (10) holds in 95 % of the trials, among 1, 2, 4 "
    "and so on, against n = d, for each distribution of the heads' lengths. At C = 1 it is at most 1."
}

ALLOWED = judges.RESOLUTION
EQUAL, UNIFORM, HALF, FEW, LEAST = "equal", "uniform", "half long", "2 % long", "k long"
SHARES = {EQUAL: 1.0, HALF: 0.5, FEW: 0.02, LEAST: 0.0}
"""Shares of clients with long heads; at least k clients have them."""
RULES = ("theorem", "effective", "rival")


@dataclass(frozen=True, kw_only=True)
class Unequal(Setting):
    """Theorem 1's bound for one distribution of lengths, at the m of three rules."""

    name: str = lf.choice((UNIFORM, *SHARES), EQUAL, label=True)
    n_clients: int = 100
    dim: int = 100
    rank: int = 1
    short: float = 1e-3
    n_rounds: int = 40
    most: float = 1024.0

    def problem(self) -> lf.GivenTruth:
        """Return the ground truths of all trials; before the lengths are drawn, all singular values are equal."""

        def drawn(clients: int, part: int) -> lf.Truth:
            law = lf.SharedRepresentation(n_clients=clients, dim=self.dim, rank=self.rank, condition_number=1.0)
            return law.truth((self.seed, part), range(self.trials))

        n, lengths = self.n_clients, np.random.default_rng(self.seed).random((self.trials, self.n_clients, 1))
        long = n if self.name == UNIFORM else max(self.rank, round(SHARES[self.name] * n))
        truth = drawn(long, 0)
        W = truth.W if long == n else np.concatenate([truth.W, self.short * drawn(n - long, 1).W], axis=1)
        return lf.GivenTruth(B=truth.B, W=W * lengths if self.name == UNIFORM else W)

    def failed(self, problem: lf.GivenTruth, step: float, m: float) -> Any:
        """Return whether the bound fails with m samples, (trials,)."""
        return judges.beyond_bound(runs.theorem1_run(self.simulated(problem, step, lf.FreshSamples(math.ceil(m)))))

    def run(self) -> dict[str, Any]:
        """Return the failures at the m of each rule, and the smallest C with which few trials fail."""
        problem = self.problem()
        step, needed, _ = self.constants(problem)
        squares = np.square(np.asarray(problem.W)).sum(axis=-1)
        effective = float((squares.sum(axis=1) ** 2 / (squares**2).sum(axis=1)).min())
        smallest, largest = self.singular_values(problem)
        scale = float(((largest / smallest) ** 4).max()) / (1.0 - self.start**2) ** 2
        k, extra = self.rank, self.dim * (1.0 / effective - 1.0 / self.n_clients)
        found: dict[str, Any] = {
            "effective": effective,
            "kappa": float((largest / smallest).max()),
            "m_theorem": needed,
            "m_effective": needed + scale * k**2 * extra,
            "m_rival": k + 2 + self.dim * k / effective,
        }
        found |= {f"failed_{rule}": self.failed(problem, step, found[f"m_{rule}"]) for rule in RULES}
        tried, counts = [1.0], [int(found["failed_theorem"].sum())]
        while counts[-1] and tried[-1] < self.most:
            tried.append(2.0 * tried[-1])
            counts.append(int(self.failed(problem, step, tried[-1] * needed).sum()))
        least = least_passing(tried, counts, self.trials, allowed=ALLOWED)
        found |= dict(zip(("least", "least_low", "least_high"), least, strict=True))
        return found | {"failed": lf.LabeledArray(counts, C=tried), "longest": float(np.sqrt(squares.max() / k))}


def cells(quick: bool) -> dict[str, list[Unequal]]:
    """Return every distribution of lengths at every size; quick: two sizes, few trials and rounds."""
    base = Unequal(n_rounds=8) if quick else Unequal()
    sizes = [(20, 20, 75), (200, 200, 75)] if quick else [(100, 100, 300), (400, 400, 100), (1600, 1600, 100)]
    ranks = (1,) if quick else (1, 2)
    return {"lengths": lf.grid(base, name=(*SHARES, UNIFORM), **{"n_clients, dim, trials": sizes}, rank=ranks)}


# --- claims --------------------------------------------------------------------------------------------------

RELAXED = c.cite(
    "FedRep paper, section 4.2",
    "Assumption 3 can be relaxed to allow [||w_i*||_2 <=] O([sqrt] k), as the exact normalization is only for "
    "simplicity of analysis",
)
SHARE = f"share of trials in which the bound fails; {ALLOWED:g} is {c.OWN_THRESHOLD}"
Each = partial(c.Claim, over=c.each_row, setting="{name}, k = {rank}, n = d = {dim}")


def holds(rule: str, condition: str, source: c.Source) -> c.Claim:
    """Return the claim that the bound holds at the m of a rule."""
    return Each(
        f"Theorem 1's bound holds for heads of length at most sqrt(k), {condition}",
        source,
        c.failures(lambda row: row[f"failed_{rule}"], "share of trials that fail", ALLOWED),
        detail=lambda row: f"m = {math.ceil(row[f'm_{rule}'])}, {row['effective']:.3g} clients in effect",
        theorem=False,
    )


def growth(first: lf.Table, last: lf.Table) -> c.Measurement:
    """Return the power of n = d with which the smallest C of at least 1 grows; an open end bounds it on one side."""
    ends = np.array([[one[name] for name in ("least", "least_low", "least_high")] for one in (first, last)])
    before, after = np.log(np.maximum(ends, 1.0)) / math.log(last["dim"] / first["dim"])
    low, high = after[1] - before[2], after[2] - before[1]
    known = np.isfinite([low, high]).all()
    return c.Measurement((after[0] - before[0] if known else math.nan, low, high))


def smallest(row: lf.Table) -> str:
    """Return what is known of the smallest C, as text."""
    low, high = (f"{row[name]:g}" if 0 < row[name] < math.inf else "" for name in ("least_low", "least_high"))
    return " and ".join(filter(None, (low and f"above {low}", high and f"at most {high}"))) or "unknown"


CLAIMS = (
    holds(
        "theorem",
        "with the theorem's m, C = 1",
        c.OWN_THRESHOLD.adding(f"the 1 and the share, because the theorem names no C; {RELAXED}", ": "),
    ),
    c.Claim(
        "One C in front of Theorem 1's m is enough for all n = d, for heads of length at most sqrt(k)",
        RELAXED.adding(f"the tolerance is {c.OWN_THRESHOLD}"),
        c.measured("power of n = d with which the smallest C of at least 1 grows", growth, c.at_most(0.25)),
        over=c.ends("dim", c.each("name", "rank")),
        setting="{name}, k = {rank}, n = d from {0[dim]} to {1[dim]}",
        detail=lambda first, last: f"C {smallest(first)}, then {smallest(last)}",
    ),
    holds("effective", "with p_eff instead of p in d/p, C = 1", c.OWN_PREDICTION),
    holds("rival", "with m = k + 2 + d k / p_eff", c.OWN_THRESHOLD),
)


# --- figure --------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest C against n = d."""
    table = c.sorted_by("dim")(tables["lengths"])
    with lf.panels(table, column="rank", title="k = {}", height=2.6, sharey=True) as sheet:
        for ax, part in sheet:
            for turn, (name, rows) in enumerate(part.groupby("name")):
                colour, marker, line = KINDS[turn]
                x, y = ([row[one] for row in rows] for one in ("dim", "least"))
                ax.plot(1.05 ** (turn - 2) * np.array(x), y, linestyle=line, color=colour, marker=marker, label=name)
            ax.set_xticks(part.unique("dim"), [str(dim) for dim in part.unique("dim")])
            ax.xaxis.minorticks_off()
        sheet.label("clients and dimension n = d", "smallest C", xscale="log", yscale="log")
        sheet.legend("heads", ncols=5)
    return {"": sheet.figure}
