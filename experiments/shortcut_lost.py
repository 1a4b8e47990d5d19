"""How fast the shortcut draft's (2) to (5) lose a B near B*: the rounds until dist passes 0.5, over m and eta.

d = 20, k = 2, n = 50, heads of length sqrt(2), shortcuts of root mean square length 0.5, noise std 0.1; B starts at a
stated distance. Fixed samples and new ones in every round; beside them more clients; and from the same start two
rivals, the gauss-seidel order and FedRep. A run that has not passed 0.5 by the last round is censored: an infinite
number of rounds, counted, and never left out.

The prediction for fixed samples has no free parameter. Even heads are 0 and B moves in every second round, by ``-eta
mean Pi_i B w_i w_i'`` (docs/shortcut.md, section 2). Within span(B) that shrinks B to ``1 - eta`` (the heads' second
moment is I), and QR magnifies what is outside of it by ``1/(1 - eta)``: at eta = 1 without bound. Outside there are two
parts. The mean, Oja's step with the wrong sign, grows with the distance at rate ``r = eta (k + 1)/(m (1 - eta))`` a
move. The wander, what n clients of m samples leave of ``mean (Pi_i - I) B w_i w_i'``, is the same in all moves, as the
samples and the heads are; its spectral norm is about ``v = eta sqrt(k/(m n)) (sqrt(d - k) + sqrt(k))/(1 - eta)``. After
t moves ``dist^2 = delta^2 exp(2 r t) + (v t)^2``. The mean alone would take some ``m/(eta (k + 1))`` rounds, the wander
alone ``sqrt(m n)/eta``: the shorter of the two counts. (On new samples the wander of one move is not that of the next.)

References: shortcut draft, (2) to (5); docs/shortcut.md, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import brentq

import linfed as lf
from linfed.numerics.linalg import span_distance
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, by_sentence, judge, judge_exponent, share
from linfed.statistics.intervals import median_interval, quantiles
from linfed.statistics.scaling import fit_exponent
from linfed.study.run import Table, Tables, select, tidy

from ._shared import legend, panels
from ._shortcut import DIM, LEARNED, N_CLIENTS, RANK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "Shortcut draft: how fast (2) to (5) lose a B near B*, over m and eta, beside a prediction"

FIXED, FRESH = KINDS = ("fixed", "fresh")
CLOSED, SEIDEL, FEDREP = METHODS = ("(2)-(5)", "gauss-seidel", "FedRep")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All sizes are chosen here: the draft names none."""

    samples: tuple[int, ...] = (10, 20, 40, 80, 160)
    steps: tuple[float, ...] = (0.03, 0.1, 0.3, 1.0)
    starts: tuple[float, ...] = (0.05, 0.3)
    many_clients: int = 200
    rounds: int = 600
    rival_rounds: int = 200
    trials: int = 16
    seed: int = 0

    def quick(self) -> Config:
        """Return fewer trials, sizes and rounds."""
        return replace(
            self,
            samples=(10, 40),
            steps=(0.1, 0.3),
            starts=(0.3,),
            many_clients=60,
            rounds=60,
            rival_rounds=10,
            trials=5,
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method from one start, at one step and one number of samples."""

    method: str
    kind: str
    n_clients: int
    n_samples: int
    step_size: float
    start: float
    rounds: int
    trials: int
    seed: int


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    c = config
    run = {"trials": c.trials, "seed": c.seed}
    far, middle = c.starts[-1], c.steps[len(c.steps) // 2]

    def cell(method: str, kind: str, n: int, m: int, eta: float, start: float, rounds: int) -> Cell:
        sizes = {"n_clients": n, "n_samples": m, "step_size": eta, "start": start, "rounds": rounds}
        return Cell(method=method, kind=kind, **sizes, **run)  # type: ignore[arg-type]

    found = [
        cell(CLOSED, kind, N_CLIENTS, m, eta, start, c.rounds)
        for kind in KINDS
        for start in (c.starts if kind == FIXED else (far,))
        for eta in c.steps
        for m in c.samples
    ]
    found += [cell(CLOSED, FIXED, c.many_clients, m, c.steps[-2], far, c.rounds) for m in c.samples[::2]]
    for method in (SEIDEL, FEDREP):
        found += [cell(method, k, N_CLIENTS, m, middle, far, c.rival_rounds) for k in KINDS for m in c.samples[::2]]
    return sorted(found, key=lambda one: one.n_samples / one.step_size, reverse=True)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run until every trial has passed `LEARNED` or the rounds are over."""
    problem = lf.SharedWithShortcuts(n_clients=cell.n_clients, dim=DIM, rank=RANK, noise_std=0.1, shortcut_norm=0.5)
    shared: Any = {"rank": RANK, "step_size": cell.step_size, "init": lf.AtDistance(cell.start)}
    algorithm: lf.Algorithm = lf.FedRep(**shared)
    if cell.method != FEDREP:
        order: Any = "jacobi" if cell.method == CLOSED else "gauss-seidel"
        algorithm = lf.FedRepShortcut(**shared, solver="closed-form", order=order)
    data = lf.FixedSamples(cell.n_samples) if cell.kind == FIXED else lf.FreshSamples(cell.n_samples)
    seed = (cell.seed, cell.n_clients, cell.n_samples)
    B_star = problem.truth(seed, range(cell.trials)).B
    assert B_star is not None
    lost = np.full(cell.trials, np.inf)
    steps = lf.iterate(algorithm, problem, data=data, rounds=cell.rounds, trials=cell.trials, seed=seed)
    next(steps)  # the initial state
    for step in steps:
        assert step.after.B is not None
        dist = span_distance(step.after.B, B_star)
        lost[np.isinf(lost) & (dist > LEARNED)] = step.number
        if np.isfinite(lost).all():
            break
    return {"lost": lost, "dist": dist}


def predicted(cell: Cell) -> float:
    """Return the rounds until dist passes `LEARNED` on fixed samples, at least the first."""
    shrunk = abs(1.0 - cell.step_size)
    if shrunk == 0.0:
        return 1.0
    m, n, eta = cell.n_samples, cell.n_clients, cell.step_size
    rate = eta * (RANK + 1) / (m * shrunk)
    wander = eta * math.sqrt(RANK / (m * n)) * (math.sqrt(DIM - RANK) + math.sqrt(RANK)) / shrunk

    def beyond(moves: float) -> float:
        return cell.start**2 * math.exp(2.0 * rate * moves) + (wander * moves) ** 2 - LEARNED**2

    return max(1.0, 2.0 * brentq(beyond, 0.0, LEARNED / wander) - 1.0)  # the first move is in round 1


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return the rounds of every trial with their predictions, a tidy table."""
    parts: list[Table] = []
    for cell, found in zip(cells(config), results, strict=True):
        keys: dict[str, Any] = {"method": np.array(cell.method, dtype="U16"), "kind": np.array(cell.kind, dtype="U8")}
        keys |= {name: getattr(cell, name) for name in ("n_clients", "n_samples", "step_size", "start", "rounds")}
        keys["predicted"] = predicted(cell) if cell.method == CLOSED and cell.kind == FIXED else np.nan
        keys["mean_alone"] = cell.n_samples / (cell.step_size * (RANK + 1))
        parts.append(tidy(keys, {"trial": np.arange(cell.trials)}, {name: found[name] for name in ("lost", "dist")}))
    return {"rounds": np.concatenate(parts)}


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the rounds against m, a line for each step, with what is predicted."""
    from linfed.figures import style as plotting

    table = select(tables["rounds"], method=CLOSED, n_clients=N_CLIENTS)
    shown = [(kind, start) for kind in KINDS for start in np.unique(select(table, kind=kind)["start"])]
    titles = [f"{'fixed' if kind == FIXED else 'new'} samples, start at {start:g}" for kind, start in shown]
    figure, axes = panels(titles, 2.9, sharey=True)
    colours = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
    last = int(table["rounds"].max())
    with plotting.style():
        for ax, (kind, start) in zip(axes[0], shown, strict=True):
            for colour, eta in zip(colours, np.unique(table["step_size"]), strict=False):
                part = select(table, kind=kind, start=start, step_size=eta)
                m = np.unique(part["n_samples"])
                runs = np.stack([select(part, n_samples=size)["lost"] for size in m], axis=1)
                middle, low, high = (np.minimum(line, 2.0 * last) for line in quantiles(runs))
                label = f"$\\eta$ = {eta:g}"
                bars = (middle - low, high - middle)
                ax.errorbar(m, middle, yerr=bars, color=colour, fmt="o", markersize=3, label=label, capsize=1.5)
                if kind == FIXED:
                    line = [select(part, n_samples=size)["predicted"][0] for size in m]
                    ax.plot(
                        m, line, color=colour, linewidth=1.0, label="predicted, fixed samples" if eta < 0.05 else None
                    )
                if eta < 1:
                    line = [select(part, n_samples=size)["mean_alone"][0] for size in m]
                    told = "$m/(\\eta (k + 1))$" if eta < 0.05 else None
                    ax.plot(m, line, color=colour, linewidth=0.7, linestyle=":", label=told)
            plotting.draw_level(ax, last, "last round" if ax is axes[0, 0] else "")
            ax.set(xscale="log", yscale="log", xlabel="m", ylim=(0.7, 3.0 * last))
            ax.set_xticks(m, [str(size) for size in m])
            ax.minorticks_off()
        axes[0, 0].set_ylabel("rounds until dist > 0.5")
        trials = len(np.unique(table["trial"]))
        legend(figure, axes[0], f"median and 10-90 % of {trials} trials; above the last round: not reached")
    return {"": figure}


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return whether B is lost, on which time scale in m and eta, and whether rivals lose it."""
    table = tables["rounds"]
    closed = select(table, method=CLOSED, n_clients=N_CLIENTS)
    out: list[Finding] = []
    for kind, start, eta in np.unique(closed[["kind", "start", "step_size"]]).tolist():
        part = select(closed, kind=kind, start=start, step_size=eta)
        out.append(_kept_or_lost(part, f"{kind} samples, start {start:g}, eta {eta:g}", lost=True))
    for method in (SEIDEL, FEDREP):
        for kind in KINDS:
            out.append(_kept_or_lost(select(table, method=method, kind=kind), f"{method}, {kind} samples", lost=False))
    for kind, start, eta in np.unique(closed[closed["step_size"] < 1][["kind", "start", "step_size"]]).tolist():
        part = select(closed, kind=kind, start=start, step_size=eta)
        fixed = kind == FIXED
        said = {"where": f"start {start:g}, eta {eta:g}", "source": OWN_PREDICTION}
        text = f"The rounds until B is lost grow like {'sqrt(m) on fixed samples' if fixed else 'm on new ones, m > d'}"
        out += _exponent(
            part if fixed else part[part["n_samples"] > DIM], "n_samples", 0.5 if fixed else 1.0, text, said
        )
    slow = select(closed[closed["step_size"] < 1], kind=FIXED)
    for start, m in np.unique(slow[["start", "n_samples"]]).tolist():
        said = {"where": f"start {start:g}, m = {m}", "source": OWN_PREDICTION}
        text = "The rounds until B is lost go like (1 - eta)/eta on fixed samples"
        out += _exponent(select(slow, start=start, n_samples=m), "step_size", -1.0, text, said)
    known = select(table[table["step_size"] < 1], method=CLOSED, kind=FIXED)
    for n, start, eta in np.unique(known[["n_clients", "start", "step_size"]]).tolist():
        part = select(known, n_clients=n, start=start, step_size=eta)
        out.append(
            judge(
                median_interval((part["lost"] + 1.0) / (part["predicted"] + 1.0)),
                text="The prediction without a free parameter tells the rounds, to a constant between 1 and 2",
                where=f"n = {n}, start {start:g}, eta {eta:g}",
                statistic="moves until dist > 0.5 over those predicted, median of all runs, censored ones infinite",
                source=f"{OWN_PREDICTION}; the constants are {OWN_THRESHOLD}s",
                least=1.0,
                most=2.0,
                detail=f"{np.isinf(part['lost']).sum()} of {len(part)} censored",
            )
        )
    return by_sentence(out)


def _kept_or_lost(part: Table, where: str, *, lost: bool) -> Finding:
    """Judge that runs lose B within the rounds, or that a rival's do not."""
    few = [
        f"m = {m}: {np.isfinite(runs).sum()} of {len(runs)}"
        for m in np.unique(part["n_samples"])
        for runs in [select(part, n_samples=m)["lost"]]
        if not np.isfinite(runs).all() and lost
    ]
    told = f"passed 0.5 within {part['rounds'].max()} rounds"
    return share(
        np.isfinite(part["lost"]) == lost,
        0.9,
        text="(2) to (5) lose a B near B*" if lost else "From the same start a rival does not lose it",
        where=where,
        statistic="share of runs, over all m, that passed 0.5 within the rounds"
        if lost
        else f"share that have not {told}",
        source=OWN_PREDICTION,
        note=f"{where}: censored, passed are {', '.join(few)}" if few else "",
    )


def _exponent(part: Table, column: str, claimed: float, text: str, said: dict[str, Any]) -> list[Finding]:
    """Judge the exponent of the moves in m or in eta/(1 - eta), over the sizes at which nine of ten runs were lost."""
    sizes, moves, left = [], [], []
    for size in np.unique(part[column]):
        runs = select(part, **{column: size})
        reached = np.isfinite(runs["lost"]).mean() >= 0.85
        (sizes if reached else left).append(size)
        if reached:
            rounds = np.minimum(runs["lost"], runs["rounds"])
            moves.append((rounds + 1.0) / 2.0 if runs["kind"][0] == FIXED else rounds)
    if len(sizes) < 3:
        return []
    x = np.array(sizes, dtype=float)
    fitted = fit_exponent(
        x if column == "n_samples" else x / (1.0 - x), np.stack(moves, axis=1), paired=column == "step_size"
    )
    told = f"censored at {', '.join(f'{size:g}' for size in left)}, left out" if left else ""
    return [judge_exponent(fitted, claimed, kind="equal", margin=0.2, theorem=False, text=text, detail=told, **said)]
