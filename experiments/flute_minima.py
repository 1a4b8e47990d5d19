"""FLUTE against FedRep where the empirical risk has many minima: whether the method decides which one is reached.

The FLUTE paper's Figure 1 with few samples for the rank: d = 10, n = 30, phi_i ~ N(0, I_d), noise variance 0.3, one
fixed data set, k = 8 at m = 12; k = 4 at m = 20 as the contrast. At gamma1 = 2 gamma2 the stationary points of FLUTE
that have rank k are those of the empirical risk over Theta of rank k, and so are FedRep's with exact heads. There are
many of them. Every method runs from several starts on each data set: FLUTE from small Gaussian B and W, FedRep (RI)
from the Q factor of the same B; FedRep once, from the method of moments, as in Figure 1.

Runs go on until they have settled: over a block of rounds the empirical risk with exact heads at B changes by less than
1e-9 of itself, its gradient by B is below 1e-6 of what its terms would give, and FLUTE's own predictors are those of
exact heads to 1e-6. Runs that have not settled by the last round are counted apart. Two end points are the same minimum
if their predictors differ by less than 1e-3 of their length and their risks by less than 1e-6. Steps: the one that has
brought the gradient lowest in nine of ten runs after a block of rounds on separate data sets. Starts on one data set
are a cluster: intervals are over data sets.

References: Liu, Shen and Yang 2024, section 7.1, Figure 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.numerics.linalg import orthonormalize
from linfed.statistics.findings import OWN_THRESHOLD, Finding, by_sentence, judge, share
from linfed.statistics.intervals import bootstrap_interval
from linfed.study.run import Table, Tables, select, tidy

from ._flute import FEDREP, FEDREP_RI, FLUTE, METHODS
from ._shared import legend, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "FLUTE paper, Figure 1's setting: how many minima there are, and which FLUTE and FedRep reach"

CHANGE, GRADIENT, HEADS = 1e-9, 1e-6, 1e-6
"""What a settled run is below: change of the risk over a block, relative gradient, FLUTE's distance to exact heads."""
SAME_POINT, SAME_RISK = 1e-3, 1e-6
"""Relative distances of predictors and of risks below which two end points are one minimum."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes after Figure 1; (samples, rank) of the settings."""

    n_clients: int = 30
    dim: int = 10
    settings: tuple[tuple[int, int], ...] = ((12, 8), (20, 4))
    noise_variance: float = 0.3
    starts: int = 3
    block: int = 1000
    blocks: int = 15
    tuning_trials: int = 4
    step_sizes: tuple[float, ...] = (0.01, 0.02, 0.03, 0.05, 0.1, 0.3, 0.7, 1.0)
    trials: int = 30
    seed: int = 0

    def quick(self) -> Config:
        """Return fewer data sets, starts, rounds and steps."""
        return replace(self, trials=6, starts=2, block=100, blocks=3, tuning_trials=2, step_sizes=(0.03, 0.7))


@dataclass(frozen=True, kw_only=True)
class Cell:
    """All data sets and starts of one method in one setting."""

    method: str
    n_samples: int
    rank: int
    config: Config


def cells(config: Config) -> list[Cell]:
    """Return the cells."""
    alone = replace(config, settings=())
    return [Cell(method=name, n_samples=m, rank=k, config=alone) for m, k in config.settings for name in METHODS]


@dataclass(frozen=True)
class Risk:
    """The empirical risk of every trial, by its second moments: A (T, n, d, d), b (T, n, d), mean y^2 (T, n)."""

    A: Any
    b: Any
    yy: Any

    def at(self, B: Any) -> tuple[Any, Any, Any]:
        """Return risk (T,), relative gradient (T,) and predictors (T, n, d) with exact heads at the span of B."""
        Q = orthonormalize(B)[:, None]
        AQ = self.A @ Q
        W = np.linalg.solve(Q.mT @ AQ, Q.mT @ self.b[..., None])
        Theta = (Q @ W)[..., 0]
        g = (AQ @ W)[..., 0] - self.b
        risk = 0.5 * (self.yy - np.vecdot(self.b, Theta)).mean(axis=-1)
        size = np.linalg.norm(self.b, axis=-1) * np.linalg.norm(W[..., 0], axis=-1)
        return risk, np.linalg.norm(g.mT @ W[..., 0], axis=(-2, -1)) / size.sum(axis=-1), Theta

    def of(self, chosen: Any) -> Risk:
        """Return the risk of some trials."""
        return Risk(self.A[chosen], self.b[chosen], self.yy[chosen])


def advance(cell: Cell, step: float, data: lf.GivenSamples, B: Any, W: Any) -> tuple[Any, Any]:
    """Return B and heads after a block of rounds."""
    algorithm: lf.Algorithm = lf.FedRep(rank=cell.rank, step_size=step, init=B)
    if cell.method == FLUTE:
        algorithm = lf.FLUTE(rank=cell.rank, step_size=step, init=(B, W))
    rounds = cell.config.block
    final = lf.simulate(algorithm, data=data, rounds=rounds, trials=len(B), record_every=rounds).final
    return final.B, final.W


def begin(cell: Cell, trials: int, seed: Any) -> tuple[Any, Any, Any, Any]:
    """Return truths (T, n, d), samples, B and heads of all data sets and starts; starts of a data set in turn."""
    c, k = cell.config, cell.rank
    problem = lf.UnderParameterized(n_clients=c.n_clients, dim=c.dim, noise_std=math.sqrt(c.noise_variance))
    samples = lf.FixedSamples(cell.n_samples).draw(problem, trials=trials, seed=seed)
    starts = 1 if cell.method == FEDREP else c.starts
    X, y, Phi = (
        np.repeat(part, starts, axis=0) for part in (samples.X, samples.y, problem.truth(seed, range(trials)).dense())
    )
    if cell.method == FEDREP:
        moments = lf.simulate(lf.FedRep(rank=k, step_size=1.0), data=samples, rounds=0, trials=trials).final
        return Phi, (X, y), moments.B, moments.W
    draws = [
        lf.simulate(
            lf.FLUTE(rank=k, step_size=1.0),
            problem,
            data=lf.FixedSamples(1),
            rounds=0,
            trials=trials,
            seed=(c.seed, k, start),
        ).final
        for start in range(starts)
    ]
    B, W = (np.stack([getattr(draw, name) for draw in draws], axis=1) for name in "BW")
    B, W = (part.reshape(-1, *part.shape[2:]) for part in (B, W))
    return Phi, (X, y), B if cell.method == FLUTE else orthonormalize(B), W


def tuned(cell: Cell) -> float:
    """Return the step whose gradient is the lowest in nine of ten runs after a block, on separate data sets."""
    c = cell.config
    _, rows, B, W = begin(cell, c.tuning_trials, (c.seed, cell.n_samples, 1))
    data = lf.GivenSamples(*rows)
    risk = _risk(data)
    found = []
    for step in c.step_sizes:
        with np.errstate(all="ignore"):
            gradient = risk.at(advance(cell, step, data, B, W)[0])[1]
        found.append(np.quantile(np.nan_to_num(gradient, nan=np.inf), 0.9, method="inverted_cdf"))
    return c.step_sizes[int(np.argmin(found))]


def _risk(data: lf.GivenSamples) -> Risk:
    return Risk(*data.normal_equations(), (data.y**2).mean(axis=-1))


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run every start until it has settled, or to the last round."""
    c, step = cell.config, tuned(cell)
    Phi, (X, y), B, W = begin(cell, c.trials, (c.seed, cell.n_samples))
    risk = _risk(lf.GivenSamples(X, y))
    value, gradient, Theta = risk.at(B)
    rounds, settled = np.zeros(len(B), dtype=int), np.zeros(len(B), dtype=bool)
    B, W = B.copy(), W.copy()
    for _ in range(c.blocks):
        left = np.flatnonzero(~settled)
        if not len(left):
            break
        B[left], W[left] = advance(cell, step, lf.GivenSamples(X[left], y[left]), B[left], W[left])
        new, gradient[left], Theta[left] = risk.of(left).at(B[left])
        own = W[left] @ B[left].mT if cell.method == FLUTE else Theta[left]
        apart = np.linalg.norm(own - Theta[left], axis=(-2, -1)) / np.linalg.norm(Theta[left], axis=(-2, -1))
        still = np.abs(new - value[left]) < CHANGE * new
        settled[left] = still & (gradient[left] < GRADIENT) & (apart < HEADS)
        value[left] = new
        rounds[left] += c.block
    values = np.linalg.svd(Theta, compute_uv=False)
    error = np.linalg.norm(Theta - Phi, axis=-1).mean(axis=-1)
    return {
        "step_size": np.array(step),
        "rounds": rounds,
        "settled": settled,
        "risk": value,
        "gradient": gradient,
        "error": error,
        "weakest": values[:, cell.rank - 1] / values[:, 0],
        "Theta": Theta,
    }


ACROSS = "FLUTE and FedRep (RI), one start"
MOMENTS = "FLUTE and FedRep"
WITHIN = {FLUTE: "FLUTE, two starts", FEDREP_RI: "FedRep (RI), two starts"}
"""Pairs of runs on one data set: of two methods, and of one."""


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return every run's end, and every pair of ends on one data set, as tidy tables."""
    ends: list[Table] = []
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for cell, result in zip(cells(config), results, strict=True):
        keys = {"n_samples": cell.n_samples, "rank": cell.rank, "method": np.array(cell.method, dtype="U16")}
        keys["step_size"] = result["step_size"][()]
        names = ("rounds", "settled", "risk", "error", "gradient", "weakest")
        shaped = {name: result[name].reshape(config.trials, -1) for name in (*names, "Theta")}
        shaped["Theta"] = result["Theta"].reshape(config.trials, -1, *result["Theta"].shape[1:])
        axes = {"trial": np.arange(config.trials), "start": np.arange(shaped["risk"].shape[1])}
        ends.append(tidy(keys, axes, {name: shaped[name] for name in names}))
        found.setdefault((cell.n_samples, cell.rank), {})[cell.method] = shaped
    pairs = []
    for (m, k), by_method in found.items():
        each = range(config.starts)
        chosen = [(ACROSS, FLUTE, s, FEDREP_RI, s) for s in each] + [(MOMENTS, FLUTE, s, FEDREP, 0) for s in each]
        chosen += [(told, name, s, name, t) for name, told in WITHIN.items() for s in each for t in range(s)]
        for told, one, s, other, t in chosen:
            keys = {"n_samples": m, "rank": k, "pair": np.array(told, dtype="U40")}
            first, second = ({n: part[:, i] for n, part in by_method[x].items()} for x, i in ((one, s), (other, t)))
            pairs.append(tidy(keys, {"trial": np.arange(config.trials)}, _compared(first, second)))
    return {"ends": np.concatenate(ends), "pairs": np.concatenate(pairs)}


def _compared(first: Any, second: Any) -> dict[str, Any]:
    """Return whether two runs have settled, and at one minimum, and how much the first's risk and error are larger."""
    length = np.linalg.norm(first["Theta"], axis=(-2, -1))
    apart = np.linalg.norm(first["Theta"] - second["Theta"], axis=(-2, -1)) / length
    risk, error = (first[name] / second[name] - 1.0 for name in ("risk", "error"))
    same = (apart < SAME_POINT) & (np.abs(risk) < SAME_RISK)
    return {"settled": first["settled"] & second["settled"], "same": same, "apart": apart, "risk": risk, "error": error}


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the end error of every settled run, data set by data set, relative to the data set's least risk's."""
    from linfed.figures import style as plotting

    ends = tables["ends"]
    settings = np.unique(ends[["n_samples", "rank"]]).tolist()
    figure, axes = panels([f"m = {m}, k = {k}" for m, k in settings], 2.9)
    looks = {FLUTE: ("#0072B2", "o", -0.2), FEDREP_RI: ("#D55E00", "s", 0.0), FEDREP: ("#009E73", "^", 0.2)}
    with plotting.style():
        for ax, (m, k) in zip(axes[0], settings, strict=True):
            part = select(ends, n_samples=m, rank=k, settled=True)
            sets = np.unique(part["trial"])
            best = {t: select(part, trial=t)["error"][select(part, trial=t)["risk"].argmin()] for t in sets}
            spread = {t: np.ptp(select(part, trial=t)["error"]) / best[t] for t in sets}
            place = {t: i for i, t in enumerate(sorted(sets, key=lambda t: spread[t]))}
            for name, (colour, marker, shift) in looks.items():
                rows = select(part, method=name)
                x = [place[t] + shift for t in rows["trial"]]
                y = [100 * (e / best[t] - 1) for t, e in zip(rows["trial"], rows["error"], strict=True)]
                ax.plot(x, y, marker, color=colour, markersize=2.5, label=name, alpha=0.8, markeredgewidth=0)
            ax.set_xlabel("data set, by spread")
        axes[0, 0].set_ylabel("mean client error, per cent\nabove that at the least risk")
        legend(figure, axes[0], "settled runs, a mark for each start")
    return {"": figure}


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return how often two runs settle at one minimum, whether the method decides it, and who ends lower."""
    out: list[Finding] = []
    ends, pairs = tables["ends"], tables["pairs"]
    for m, k in np.unique(pairs[["n_samples", "rank"]]).tolist():
        whole, setting = select(pairs, n_samples=m, rank=k), f"m = {m}, k = {k}"
        runs = select(ends, n_samples=m, rank=k)
        told = [
            f"{name} {select(runs, method=name)['settled'].sum()} of {len(select(runs, method=name))}"
            for name in METHODS
        ]
        said = {"source": OWN_THRESHOLD, "note": f"{setting}: runs that settled: {', '.join(told)}"}
        part = select(whole, settled=True)
        for pair in (ACROSS, MOMENTS, *WITHIN.values()):
            chosen = select(part, pair=pair)
            out.append(
                share(
                    chosen["same"],
                    0.95,
                    clusters=chosen["trial"],
                    text="Two runs on one data set settle at the same minimum",
                    where=f"{setting}: {pair}",
                    statistic="share of pairs of settled runs; intervals over data sets",
                    **said,
                )
            )
        out.append(_method_against_start(part, setting, said))
        for pair in (ACROSS, MOMENTS):
            chosen = select(part, pair=pair)
            differ = chosen[~chosen["same"]]
            for column, what in (("risk", "empirical risk"), ("error", "mean client error")):
                lower, higher = int((differ[column] < 0).sum()), int((differ[column] > 0).sum())
                finding = share(
                    differ[column] < 0,
                    0.5,
                    clusters=differ["trial"],
                    text=f"Where they differ, FLUTE's minimum has the lower {what}",
                    where=f"{setting}: {pair}",
                    statistic="share of pairs of settled runs at different minima; intervals over data sets",
                    **said,
                )
                counts = f"{lower} lower, {higher} higher, {len(chosen) - len(differ)} tied"
                out.append(replace(finding, detail=f"{counts}; {finding.detail}"))
    return by_sentence(out)


def _method_against_start(part: Table, setting: str, said: dict[str, Any]) -> Finding:
    """Judge whether two methods from one start part as often as two starts of one method."""
    across, within = select(part, pair=ACROSS), part[np.isin(part["pair"], list(WITHIN.values()))]
    counted = [
        [
            float(n)
            for rows in (across, within)
            for of in [select(rows, trial=trial)]
            for n in (of["same"].sum(), len(of))
        ]
        for trial in np.unique(part["trial"])
    ]
    columns = tuple(np.array(counted).reshape(-1, 4).T)

    def difference(a: Any, of_a: Any, w: Any, of_w: Any) -> float:
        return float(a.sum() / max(1.0, of_a.sum()) - w.sum() / max(1.0, of_w.sum()))

    none = not len(across) or not len(within)
    ends = (np.nan, np.nan) if none or len(counted) < 2 else bootstrap_interval(difference, columns, paired=True)
    shares = [f"{100 * rows['same'].mean():.0f} %" if len(rows) else "-" for rows in (across, within)]
    return judge(
        (np.nan if none else difference(*columns), *ends),
        text="From one start FLUTE and FedRep part as often as one method does from two",
        where=setting,
        statistic="share of settled pairs at the same minimum, two methods less two starts; interval over data sets",
        least=-0.1,
        most=0.1,
        detail=f"{shares[0]} against {shares[1]}",
        **said,
    )
