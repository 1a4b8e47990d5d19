"""FLUTE paper, Figure 4: three pairs of weights, and where gamma1 > 2 gamma2 diverges.

The setting (its C.1): d = 10, k = 6, n = 10, m in {8, 9, 10, 11}, gamma1 = 2 gamma2, gamma2 and (2/3) gamma2. The
paper does not say which truth, noise and steps: taken are those of its Figure 3, which the text puts just before
(singular values 2d/(i+1), noise variance 0.3, eta = 0.03, start 1/(10 d)), with Gaussian phi_i as a variant, gamma2 =
1/8 and 2000 rounds. Beside the paper's step each pair has one of its own, tuned on separate trials per m.

References beside the three: the truncation Phi_k, exact heads on U_k (Oracle), and a ridge regression of every client
by itself. Since ``||B'B||^2 + ||W'W||^2 = 2 ||B W'||^2 + ||B'B - W'W||^2`` and factors can be balanced, what FLUTE
minimises is ``sum_i f_i(theta_i) + (2 gamma2 - gamma1) ||Theta||^2`` over Theta of rank k: gamma1 < 2 gamma2 is a
ridge of ``2 (2 gamma2 - gamma1)`` per client, and Local only with this ridge is the same without the limit on the rank.

The phase line: by the same identity the objective on data is unbounded below iff the excess ``gamma1 - 2 gamma2``
is above ``(1/2) min_i lambda_min(A_i)``, ``A_i = X_i'X_i/m``: along the worst ray, balanced factors of rank one for one
client in its smallest eigenvector. (At population iff ``2 gamma1 >= 1 + 4 gamma2``: 1/2.) Three kinds of run are held
against it: from the paper's start at its step, from there at a small step, and from far out on the worst ray, where
terms below the fourth order do not count, at a step that is small there. A run may differ from its objective in both
directions. Where it is unbounded, a run can come to rest at a local minimum, or be held where the step becomes too
large: the direction of imbalance ``B'B - W'W`` has curvature ``2 sigma_1(B W')`` (for gamma2 = 1/8), and from ``sigma_1
= 1/eta`` on the run oscillates and loses what it gains. Where it is bounded, the minimum itself may lie beyond that: at
population ``sigma_1 = lambda_1/(1 - 2 excess)``, above ``1/eta`` from an excess of ``(1 - eta lambda_1)/2`` on.
"Diverged" is a run's status; of runs from far out it is also told whether they moved outward.

References: Liu, Shen and Yang 2024, Appendix C.1 ("Varying gamma1 and gamma2") and Figure 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, Finding, by_sentence, share, smaller
from linfed.statistics.intervals import quantiles
from linfed.study.run import Table, Tables, select, tidy

from ._flute import EQUAL_BEST, FLUTE_STEP, USUALLY_DIVERGES, spectrum
from ._lines import line_findings, line_rows
from ._shared import HUGE, legend, panels, tuned, tuning_arrays, tuning_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUMMARY = "FLUTE paper, Figure 4: gamma1 against gamma2, and where gamma1 > 2 gamma2 diverges"

PAIRS = {"gamma1 = 2 gamma2": 2.0, "gamma1 = gamma2": 1.0, "gamma1 = (2/3) gamma2": 2.0 / 3.0}
"""The paper's three pairs: gamma1 in units of gamma2."""

BEST = "gamma1 = gamma2"
SPECTRUM = "2d/(i+1)"
TRUTHS = ("spectrum", "gaussian")
STEPS = ("paper", "tuned")
STARTS = ("paper", "small step", "far")
FATES = {"diverged": "diverges", "outward": "moves outward"}
"""What a run may do beyond the phase line, and the words for it."""
MARGIN = 0.02
"""Excesses this near to a trial's threshold are also judged by themselves."""
AT_REST = 1e-6
"""A gradient below this share of the parameters' norm: the run has come to rest."""
AT_LIMIT = 0.5
"""A run that moves, with a step times ``sigma_1(B W')`` from here on, is near the limit 1 of its step."""
FAR = 1e6
"""Squared length of each of the two factors at the far start."""
OUTWARD = 2.0
"""A run from far out has moved outward once ``||B W'||`` is this multiple of what it was."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The paper's sizes; what it leaves open is chosen here."""

    n_clients: int = 10
    dim: int = 10
    rank: int = 6
    n_samples: tuple[int, ...] = (8, 9, 10, 11)
    noise_variance: float = 0.3
    gamma2: float = 0.125
    step_size: float = FLUTE_STEP
    rounds: int = 2000
    trials: int = 50
    seed: int = 0
    step_sizes: tuple[float, ...] = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07)
    tuning_trials: int = 10
    record_every: int = 10
    phase_samples: tuple[int, ...] = (8, 9, 10, 11, 12, 15, 20, 40, 100, 400, 10_000)
    excess: tuple[float, ...] = (
        *(-0.02, 0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15),
        *(0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    )
    phase_rounds: int = 3000
    small_step_size: float = 0.005
    small_step_rounds: int = 6000
    far_step: float = 0.1

    def quick(self) -> Config:
        """Return fewer trials, rounds, steps and points of the phase line."""
        return replace(
            self,
            trials=6,
            tuning_trials=3,
            rounds=200,
            step_sizes=self.step_sizes[3::2],
            phase_samples=(8, 20, 400),
            excess=(-0.02, 0.02, 0.1, 0.4),
            phase_rounds=500,
            small_step_rounds=1000,
        )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The curves of one truth at one sample count, or (without a truth) one column of the phase line."""

    truth: str
    n_samples: int
    config: Config


def cells(config: Config) -> list[Cell]:
    """Return the cells, the long ones first."""
    alone = replace(config, n_samples=(), phase_samples=())  # a cell depends on its own m alone
    phase = [Cell(truth="", n_samples=m, config=alone) for m in sorted(config.phase_samples, reverse=True)]
    return phase + [Cell(truth=truth, n_samples=m, config=alone) for truth in TRUTHS for m in config.n_samples]


def problem_of(cell: Cell) -> lf.UnderParameterized:
    """Return the truth of a cell."""
    c = cell.config
    values = spectrum("" if cell.truth == "gaussian" else SPECTRUM, c.dim)
    return lf.UnderParameterized(
        n_clients=c.n_clients, dim=c.dim, spectrum=values, noise_std=math.sqrt(c.noise_variance)
    )


def flute(config: Config, gamma1: float, step: float, **options: Any) -> lf.FLUTE:
    """Return FLUTE at a weight and a step; it starts from N(0, 1/(10 d)^2) unless told otherwise."""
    return lf.FLUTE(rank=config.rank, step_size=step, gamma1=gamma1, gamma2=config.gamma2, **options)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Run the curves, or the column of the phase line."""
    return curves_cell(cell) if cell.truth else phase_cell(cell)


# --- the figure's curves -------------------------------------------------------------------------------------


def curves_cell(cell: Cell) -> dict[str, Any]:
    """Tune each pair's step on separate trials; run the trials that count at both steps, and the references."""
    c, problem, data = cell.config, problem_of(cell), lf.FixedSamples(cell.n_samples)
    seed = (c.seed, cell.n_samples)
    shared: dict[str, Any] = {"data": data, "trials": c.trials, "seed": seed, "metrics": ["mean_client_error"]}
    found: dict[str, Any] = {}
    for index, ratio in enumerate(PAIRS.values()):
        algorithm = flute(c, ratio * c.gamma2, c.step_size)
        tuning = tuned(
            algorithm,
            problem,
            grid={"step_size": c.step_sizes},
            data=data,
            rounds=c.rounds,
            metric="mean_client_error",
            score="final",
            quantile=0.9,
            trials=c.tuning_trials,
            seed=seed,
            record_every=c.rounds,
        )
        found |= {f"{name}/{index}": value for name, value in tuning_arrays(tuning).items()}
        for step_name, chosen in (("paper", algorithm), ("tuned", tuning.algorithm)):
            result = lf.simulate(chosen, problem, rounds=c.rounds, record_every=c.record_every, **shared)
            found[f"curve/{index}/{step_name}"] = result.metrics["mean_client_error"]
            found["rounds"] = result.rounds
        ridge = 2.0 * (2.0 - ratio) * c.gamma2
        alone = lf.simulate(lf.LocalOnly(ridge=ridge), problem, rounds=1, **shared)
        found[f"ridge/{index}"] = alone.metrics["mean_client_error"][:, -1]
    truth = problem.truth(seed, range(c.trials))
    rest = truth.truncated(c.rank).dense() - truth.dense()
    oracle = lf.simulate(lf.Oracle(rank=c.rank), problem, rounds=1, **shared)
    return found | {
        "truncation": np.linalg.norm(rest, axis=-1).mean(axis=-1),
        "oracle": oracle.metrics["mean_client_error"][:, -1],
    }


# --- the phase line ------------------------------------------------------------------------------------------


def pseudo_samples(samples: lf.GivenSamples) -> lf.GivenSamples:
    """Return at most d + 1 samples per client with the same A_i and b_i, drawn and factored once for all runs."""
    m, d = samples.X.shape[-2:]
    if m <= d + 1:
        return samples
    R = np.stack(
        [
            np.linalg.qr(np.concatenate([X, y[..., None]], axis=-1), mode="r")
            for X, y in zip(samples.X, samples.y, strict=True)
        ]
    )
    R *= math.sqrt((d + 1) / m)
    return lf.GivenSamples(R[..., :d], R[..., d])


def phase_cell(cell: Cell) -> dict[str, Any]:
    """Return every trial's threshold, and its fate at each excess from each start."""
    c, problem, seed = cell.config, problem_of(cell), (cell.config.seed, cell.n_samples)
    data = pseudo_samples(lf.FixedSamples(cell.n_samples).draw(problem, trials=c.trials, seed=seed))
    nothing = lf.GivenTruth(Phi=np.zeros((c.n_clients, c.dim)))  # then the parameter error is ||B W'||
    A, b = data.normal_equations()
    trials, eigen = np.arange(c.trials), np.linalg.eigh(A)
    worst = eigen.eigenvalues[..., 0].argmin(axis=-1)
    length = math.sqrt(FAR)
    B0, W0 = np.zeros((c.trials, c.dim, c.rank)), np.zeros((c.trials, c.n_clients, c.rank))
    B0[:, :, 0] = length * eigen.eigenvectors[trials, worst, :, 0]
    W0[trials, worst, 0] = length
    runs: dict[str, tuple[float, int, dict[str, Any]]] = {
        "paper": (c.step_size, c.phase_rounds, {}),
        "small step": (c.small_step_size, c.small_step_rounds, {}),
        "far": (c.far_step / FAR, c.phase_rounds, {"init": (B0, W0)}),
    }
    names = ("diverged", "outward", "gradient", "limit")
    found = {name: np.full((len(STARTS), len(c.excess), c.trials), np.nan) for name in names}
    for row, start in enumerate(STARTS):
        step, rounds, options = runs[start]
        for column, excess in enumerate(c.excess):
            algorithm = flute(c, 2.0 * c.gamma2 + excess, step, **options)
            result = lf.simulate(
                algorithm,
                nothing,
                data=data,
                rounds=rounds,
                trials=c.trials,
                seed=seed,
                metrics=["parameter_error"],
                record_every=max(1, rounds // 100),
            )
            lost = np.array([status is lf.Status.DIVERGED for status in result.status])
            lengths = np.nan_to_num(result.metrics["parameter_error"], nan=np.inf)
            largest = np.linalg.svd(result.final.predictors(), compute_uv=False)[:, 0]
            found["diverged"][row, column] = lost
            found["outward"][row, column] = lengths.max(axis=1) > OUTWARD * lengths[:, 0]
            found["gradient"][row, column] = np.where(lost, np.nan, relative_gradient(algorithm, result.final, A, b))
            found["limit"][row, column] = np.where(lost, np.nan, step * largest)
    return {"threshold": lf.theory.flute_divergence_threshold(A), **found}


def relative_gradient(algorithm: lf.FLUTE, state: lf.State, A: Any, b: Any) -> Any:
    """Return the norm of the objective's gradient over that of the parameters, (trials,)."""
    B, W = np.asarray(state.B), np.asarray(state.W)
    with np.errstate(over="ignore", invalid="ignore"):
        g = (A @ (W @ B.mT)[..., None])[..., 0] - b
        grow, shrink = 2.0 * algorithm.gamma1, 4.0 * algorithm.gamma2
        by_B = g.mT @ W - B @ (grow * W.mT @ W - shrink * B.mT @ B)
        by_W = g @ B - W @ (grow * B.mT @ B - shrink * W.mT @ W)
        squares = [(part**2).sum(axis=(-2, -1)) for part in (by_B, by_W, B, W)]
        return np.sqrt((squares[0] + squares[1]) / (squares[2] + squares[3]))


# --- tables --------------------------------------------------------------------------------------------------


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return curves, final and least errors, references, tuning, fates and thresholds as tidy tables."""
    names = ("curves", "summary", "references", "tuning", "phase", "thresholds", "lines")
    parts: dict[str, list[Table]] = {name: [] for name in names}
    trials = {"trial": np.arange(config.trials)}
    for cell, found in zip(cells(config), results, strict=True):
        if not cell.truth:
            _add_phase(parts, config, cell, found)
            continue
        keys: dict[str, Any] = {"truth": cell.truth, "n_samples": cell.n_samples}
        for index, pair in enumerate(PAIRS):
            tuning = {name: found[f"{name}/{index}"] for name in ("scores", "best", "at_edge")}
            of_pair = {**keys, "pair": pair}
            parts["tuning"].append(tuning_rows(of_pair, config.step_sizes, tuning))
            for name in STEPS:
                step = config.step_size if name == "paper" else config.step_sizes[int(tuning["best"])]
                whole = {**of_pair, "step": name, "step_size": step}
                curve = found[f"curve/{index}/{name}"]
                parts["curves"].append(tidy(whole, {**trials, "round": found["rounds"]}, {"error": curve}))
                values = {
                    "final": curve[:, -1],
                    "least": np.where(np.isnan(curve), np.inf, curve).min(axis=1),
                    "ridge": found[f"ridge/{index}"],
                    "diverged": np.isnan(curve[:, -1]),
                }
                parts["summary"].append(tidy(whole, trials, values))
        references = {"truncation": found["truncation"], "oracle": found["oracle"]}
        parts["references"].append(tidy(keys, trials, references))
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def _add_phase(parts: dict[str, list[Table]], config: Config, cell: Cell, found: dict[str, Any]) -> None:
    trials = {"trial": np.arange(config.trials)}
    keys = {"n_samples": cell.n_samples}
    parts["thresholds"].append(tidy(keys, trials, {"threshold": found["threshold"]}))
    values = {
        "threshold": found["threshold"][None, None, :],
        "unbounded": (np.array(config.excess)[:, None] > found["threshold"])[None],
        "diverged": found["diverged"] > 0,
        "outward": found["outward"] > 0,
        "gradient": found["gradient"],
        "limit": found["limit"],
    }
    steps = np.array([config.step_size, config.small_step_size, config.far_step / FAR])
    values["step_size"] = steps[:, None, None]
    edges = _step_edges(config)[:, None, None]
    axes: dict[str, Any] = {"start": STARTS, "excess": config.excess, **trials}
    parts["phase"].append(tidy(keys, axes, {**values, "step_edge": edges}))
    unbounded = values["unbounded"][0].T[:, None]
    for row, start in enumerate(STARTS):
        for fate in FATES:
            told = {**keys, "start": np.array(start, dtype="U16"), "fate": np.array(fate, dtype="U16")}
            parts["lines"].append(line_rows(told, values[fate][row].T[:, None], unbounded))


def _step_edges(config: Config) -> Any:
    """Return each start's excess above which its step is too large for the population's minimum; nan far out."""
    steps = np.array([config.step_size, config.small_step_size, np.nan])
    values = spectrum(SPECTRUM, config.dim)
    assert values is not None
    return (1.0 - steps * values[0]) / 2.0


# --- figures -------------------------------------------------------------------------------------------------

LOOKS = dict(zip(PAIRS, ("GD-GD", "FedRep", "10GD-GD"), strict=True))
"""The looks that the pairs borrow from methods which do not occur here."""

SYMBOLS = {
    "gamma1 = 2 gamma2": "γ₁ = 2 γ₂",
    "gamma1 = gamma2": "γ₁ = γ₂",
    "gamma1 = (2/3) gamma2": "γ₁ = (2/3) γ₂",
}


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the paper's figure, the same for Gaussian phi_i, the phase line, and the tuning."""
    return {
        "": _curves_figure(tables, "spectrum"),
        "gaussian": _curves_figure(tables, "gaussian"),
        "phase": _phase_figure(tables),
        "tuning": _tuning_figure(tables),
    }


def _by_trial(table: Table, column: str) -> Any:
    """Return a column as (trials, ..), from a tidy table sorted by trial."""
    return table[column].reshape(len(np.unique(table["trial"])), -1)


def _curves_figure(tables: Tables, truth: str) -> Figure:
    from linfed.figures import style as plotting

    sizes = [int(m) for m in np.unique(tables["summary"]["n_samples"])]
    figure, axes = panels([f"m = {m}" for m in sizes], 4.0, rows=len(STEPS), sharex=True, sharey=True)
    trials = len(np.unique(tables["summary"]["trial"]))
    with plotting.style():
        for row, step in zip(axes, STEPS, strict=True):
            for ax, m in zip(row, sizes, strict=True):
                for pair in PAIRS:
                    chosen = select(tables["curves"], truth=truth, n_samples=m, pair=pair, step=step)
                    chosen = chosen[np.isin(chosen["round"], _drawn(chosen["round"]))]
                    plotting.draw_curve(
                        _by_trial(chosen, "round")[0],
                        _by_trial(chosen, "error"),
                        ax=ax,
                        label=SYMBOLS[pair],
                        ylabel="",
                        method=LOOKS[pair],
                    )
                _draw_references(ax, tables, truth, m)
                ax.set(xscale="log", yscale="linear")
            used = select(tables["summary"], step=step)["step_size"]
            row[0].set_ylabel(f"mean client error\n({f'step {used[0]:g}' if step == 'paper' else 'tuned steps'})")
        for ax in axes[-1]:
            ax.set_xlabel("round")
        start = float(select(tables["curves"], truth=truth, round=0)["error"].max())
        least = float(quantiles(select(tables["references"], truth=truth)["truncation"])[1])
        axes[0, 0].set_ylim(0.8 * least, 1.05 * start)
        legend(figure, [axes[0, 0]], f"median and 10-90 % of {trials} trials; medians of the references")
    return figure


def _drawn(rounds: Any) -> Any:
    """Return the recorded rounds to draw, evenly spaced on a logarithmic axis."""
    recorded = np.unique(rounds[rounds > 0])
    wanted = np.geomspace(recorded[0], recorded[-1], 40)
    return np.unique(recorded[np.abs(recorded - wanted[:, None]).argmin(axis=1)])


def _draw_references(ax: Axes, tables: Tables, truth: str, m: int) -> None:
    references = select(tables["references"], truth=truth, n_samples=m)
    ridge = select(tables["summary"], truth=truth, n_samples=m, pair=BEST, step="paper")["ridge"]
    lines: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("oracle (exact heads on $U_k$)", references["oracle"], {"color": "#009E73", "linestyle": (0, (1, 1))}),
        ("local ridge 1/4", ridge, {"color": "black", "linestyle": (0, (5, 1))}),
        (
            "truncation $\\Phi_k$",
            references["truncation"],
            {"color": "0.35", "linestyle": (0, (4, 2)), "linewidth": 0.7},
        ),
    )
    for name, values, shape in lines:
        ax.axhline(float(quantiles(values)[0]), label=name, zorder=1.5, **{"linewidth": 1.0, **shape})


def _phase_figure(tables: Tables) -> Figure:
    from matplotlib import patheffects

    from linfed.figures import style as plotting

    phase, thresholds = tables["phase"], tables["thresholds"]
    sizes, rows = np.unique(phase["n_samples"]), np.unique(phase["excess"])
    trials = len(np.unique(phase["trial"]))
    steps = [float(select(phase, start=start)["step_size"][0]) for start in STARTS]
    titles = [f"paper's start, step {step:g}" for step in steps[:2]] + ["far out on the worst ray, tiny step"]
    figure, axes = panels(titles, 3.4, sharex=True, sharey=True)
    columns = np.arange(len(sizes))
    line, low, high = (
        np.interp(np.array(values), rows, np.arange(len(rows)))
        for values in zip(
            *(quantiles(select(thresholds, n_samples=m)["threshold"]) for m in sizes),
            strict=True,
        )
    )
    with plotting.style():
        for ax, start in zip(axes[0], STARTS, strict=True):
            chosen = select(phase, start=start)
            share = np.array([[select(chosen, n_samples=m, excess=e)["diverged"].mean() for m in sizes] for e in rows])
            image = ax.imshow(share, origin="lower", aspect="auto", cmap="Blues", vmin=0, vmax=1)
            ax.errorbar(
                columns,
                line,
                yerr=[line - low, high - line],
                color="#D55E00",
                marker=".",
                linewidth=1.2,
                elinewidth=0.8,
                capsize=1.5,
                label="above: unbounded below (median and 10-90 %)",
            )
            edge = float(chosen["step_edge"][0])
            if np.isfinite(edge):
                level = float(np.interp(edge, rows, np.arange(len(rows))))
                ax.plot(
                    [columns[-1] - 1.5, columns[-1] + 0.5],
                    [level, level],
                    color="black",
                    linestyle="--",
                    linewidth=1.2,
                    path_effects=[patheffects.withStroke(linewidth=3.0, foreground="white")],
                    label="above: the population's minimum is unstable at this step",
                )
            ax.set_xticks(columns, [f"{m:,}" for m in sizes], rotation=60)
            ax.set_yticks(np.arange(len(rows)), [f"{e:g}" for e in rows])
            ax.grid(visible=False)
            ax.set_xlabel("samples per client m")
        axes[0, 0].set_ylabel("excess γ₁ - 2 γ₂")
        figure.colorbar(image, ax=axes[0, -1], label="share of trials that diverged", pad=0.02)
        legend(figure, [axes[0, 0]], f"{trials} trials; d = 10; rows are not evenly spaced")
    return figure


def _tuning_figure(tables: Tables) -> Figure:
    from linfed.figures import style as plotting

    sizes = [int(m) for m in np.unique(tables["tuning"]["n_samples"])]
    figure, axes = panels([f"m = {m}" for m in sizes], 2.3, sharey=True)
    with plotting.style():
        for ax, m in zip(axes[0], sizes, strict=True):
            for pair in PAIRS:
                table, shape = (
                    select(tables["tuning"], truth="spectrum", n_samples=m, pair=pair),
                    plotting.look(LOOKS[pair]),
                )
                fine = np.isfinite(table["score"])
                ax.plot(table["step_size"][fine], table["score"][fine], label=SYMBOLS[pair], **shape)
                best = table[table["chosen"]]
                ax.plot(best["step_size"], best["score"], "o", color=shape["color"], markersize=8, fillstyle="none")
            ax.set(xscale="log", xlabel="step size")
        axes[0, 0].set_ylabel("final mean client error")
        legend(figure, [axes[0, 0]], "90 % of the tuning trials lie below; circled: the chosen step")
    return figure


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: Tables) -> list[Finding]:
    """Return what the paper says of Figure 4, and what theory says of divergence, judged on the measurements."""
    found = []
    for truth in TRUTHS:
        for step in STEPS:
            found += _pair_claims(tables, truth, step)
    return by_sentence([*found, *_usually(tables["phase"]), *_same_thing(tables["phase"]), *_lines(tables["lines"])])


def _pair_claims(tables: Tables, truth: str, step: str) -> list[Finding]:
    out = []
    summary = select(tables["summary"], truth=truth, step=step)
    for m in (int(m) for m in np.unique(summary["n_samples"])):
        where = f"{truth}, {step} step: m = {m}"
        notes = [] if m in (8, 9, 10) else ["the paper speaks of m = 8, 9, 10"]
        edge = [
            pair
            for pair in PAIRS
            if step == "tuned" and select(tables["tuning"], truth=truth, n_samples=m, pair=pair)["at_edge"].any()
        ]
        if edge:
            notes.append(f"best step at the edge of the grid: {', '.join(edge)}")
        said = {"where": where, "note": "; ".join(notes)}

        def errors(pair: str, column: str = "final", m: int = m) -> Any:
            return np.nan_to_num(select(summary, n_samples=m, pair=pair)[column], nan=HUGE, posinf=HUGE)

        for column, told in (("final", "final"), ("least", "least recorded")):
            for rival in PAIRS:
                if rival != BEST:
                    out.append(
                        smaller(
                            errors(BEST, column),
                            errors(rival, column),
                            source=EQUAL_BEST,
                            text=f"{BEST} has a smaller error than {rival}",
                            statistic=f"share of paired trials in which the {told} error is smaller",
                            **said,
                        )
                    )
        out.append(
            smaller(
                errors(BEST),
                errors(BEST, "ridge"),
                source="nobody: the simplest rival of the sentence above",
                text=f"FLUTE at {BEST} has a smaller error than a local ridge of the same strength, without federation",
                statistic="share of paired trials in which the final error is smaller",
                **said,
            )
        )
    return out


def _usually(phase: Table) -> list[Finding]:
    """Return the paper's "usually diverges", at its start and step, for a small excess and a large one."""
    sizes, rows = np.unique(phase["n_samples"]), np.unique(phase["excess"])
    out = []
    for wanted in (0.02, 0.3):
        excess = rows[np.abs(rows - wanted).argmin()]
        for m in (int(m) for m in sizes if m in (8, 9, 10, 11, 20, 100, 400, 10_000)):
            hits = select(phase, start="paper", n_samples=m, excess=excess)["diverged"]
            out.append(
                share(
                    hits,
                    0.5,
                    source=USUALLY_DIVERGES,
                    text="gamma1 > 2 gamma2 usually diverges",
                    where=f"excess {excess:g}: m = {m:,}",
                    statistic="share of trials that diverged, from the paper's start at its step",
                )
            )
    return out


def _lines(table: Table) -> list[Finding]:
    """Return how much more the data set's own threshold tells than an excess common to all data sets of an m."""
    return [
        finding
        for fate, told in FATES.items()
        for start in (STARTS if fate == "diverged" else ("far",))
        for finding in line_findings(
            select(table, start=start, fate=fate),
            fixed="the best excess common to all data sets of the same m, in hindsight",
            text=f"Each data set's own threshold tells whether a run {told} better than any common to them",
            where=start,
        )
    ]


def _same_thing(phase: Table) -> list[Finding]:
    """Return how far "unbounded below" and "diverged" are the same, for each kind of run."""
    out = []
    for start in STARTS:
        chosen = select(phase, start=start)
        told = {"paper": "paper's start and step", "small step": "paper's start, small step", "far": "far start"}[start]
        unbounded, diverged = chosen["unbounded"], chosen["diverged"]
        near = np.abs(chosen["excess"] - chosen["threshold"]) < MARGIN
        data_set = np.unique(chosen[["n_samples", "trial"]], return_inverse=True)[1].ravel()
        stuck, below = unbounded & ~diverged, diverged & ~unbounded
        resting = stuck & (chosen["gradient"] < AT_REST)
        limited = stuck & ~resting & (chosen["limit"] >= AT_LIMIT)
        rest = (
            f"{told}: of the {stuck.sum()} that did not diverge {resting.sum()} are at rest (gradient below "
            f"{AT_REST:g} of B, W), {limited.sum()} move near the limit of the step (eta sigma_1 >= {AT_LIMIT:g})"
        )
        over = np.sum(chosen["excess"][below] > chosen["step_edge"][below])
        step = f"{told}: {over} of the {below.sum()} lie above the step's limit at the population's minimum"
        same = "Diverging and being unbounded below are the same"
        fates = [(same, diverged == unbounded)]
        if start == "far":
            fates.append(
                ("Far out on the worst ray a run moves outward iff unbounded below", chosen["outward"] == unbounded)
            )
        statistics: list[tuple[str, str, Any, Any, str]] = []
        for text, agree in fates:
            statistics += [
                (text, "share of (data set, excess) pairs", agree, data_set, ""),
                (text, f"share of pairs within {MARGIN:g} of the threshold", agree[near], data_set[near], ""),
                (
                    text,
                    "share of data sets (m, trial) in which it is so at every excess of the grid",
                    np.bincount(data_set, weights=~agree) == 0,
                    None,
                    "",
                ),
            ]
        statistics += [
            (
                "Where the objective is unbounded below the run diverges",
                "share of the pairs above the threshold",
                diverged[unbounded],
                data_set[unbounded],
                rest if stuck.any() else "",
            ),
            (
                "Where the objective is bounded below the run does not diverge",
                "share of the pairs at or below the threshold",
                ~diverged[~unbounded],
                data_set[~unbounded],
                step if below.any() and start != "far" else "",
            ),
        ]
        for text, statistic, hits, clusters, note in statistics:
            said = {"text": text, "where": told, "statistic": statistic, "source": OWN_PREDICTION, "note": note}
            out.append(share(hits, 0.95, clusters=clusters, **said))
    return out
