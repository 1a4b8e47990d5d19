"""What the experiments of the FLUTE paper share: its spectra, a setting and its run, and how its sentences are judged.

A setting is run with FLUTE, FedRep and FedRep (RI), all on the same truths, data and random draws, at three speeds:

- "tuned": every method at a step of its own, chosen on separate trials over one common grid;
- "0.03": every method at the paper's one step. FLUTE sums over clients and FedRep averages, so the number means
  different speeds in the two;
- "0.03, summed": the same number, with FedRep summing over clients too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.claims import Claim, Verdict, first_round_below, share_smaller
from linfed.metrics import quantiles
from linfed.plotting import label
from linfed.reproduce import Table, Tables, select, tidy

from ._shared import HUGE, edge_note, legend, panels, tuned, tuning_arrays, tuning_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FLUTE, FEDREP, FEDREP_RI = METHODS = ("FLUTE", "FedRep", "FedRep (RI)")
"""FedRep starts at the method of moments; FedRep (RI) at the Q factor of the very B that FLUTE draws."""

TUNED, PAPER_STEP, SUMMED = SPEEDS = ("tuned", "0.03", "0.03, summed")
SPEED_LABELS = {TUNED: "steps tuned", PAPER_STEP: "$\\eta$ = 0.03", SUMMED: "$\\eta$ = 0.03, all sum"}

FLUTE_STEP = 0.03
"""The paper's step (Appendix C.1)."""

STEP_SIZES = (0.003, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4)
"""The common grid. A sum over n clients needs steps about n times below those of a mean: it has room for both."""

SPECTRA = ("2d/(i+1)", "2d-i+1")
"""Both readings of "the i-th singular value to be 2d i+1", where the text has lost a character."""

TIE = 1e-3
"""Final errors within this relative distance count as equal: both runs are then at the same stationary point."""

SETTLED = 0.01
"""A median error that changes by more, relatively, over the second half of the rounds has not settled."""

WAY = (0.8, 0.95, 0.99)
"""Shares of the way from the start's error to the final one; claims are judged at the middle one."""


def spectrum(name: str, dim: int) -> tuple[float, ...] | None:
    """Return the d singular values that a name stands for; None, for Gaussian phi_i, without a name."""
    if not name:
        return None
    values = {"2d/(i+1)": [2 * dim / (i + 1) for i in range(1, dim + 1)]}
    values["2d-i+1"] = [2.0 * dim - i + 1 for i in range(1, dim + 1)]
    return tuple(values[name])


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One truth, one amount of data and one rank, with the options of its runs: a cell of Figures 1 and 3.

    Parameters
    ----------
    name : str
        The setting's group in tables and figures: a variation, or a spectrum.
    spectrum : str
        A name from `SPECTRA`; empty for Gaussian phi_i.
    """

    name: str
    dim: int
    n_clients: int
    n_samples: int
    rank: int
    noise_variance: float
    spectrum: str = ""
    rounds: int
    trials: int
    seed: int
    step_sizes: tuple[float, ...]
    tuning_trials: int
    tuning_rounds: int

    @property
    def problem(self) -> lf.UnderParameterized:
        """The truths."""
        return lf.UnderParameterized(
            n_clients=self.n_clients,
            dim=self.dim,
            spectrum=spectrum(self.spectrum, self.dim),
            noise_std=math.sqrt(self.noise_variance),
        )

    @property
    def data(self) -> lf.FixedSamples:
        """One data set for all rounds."""
        return lf.FixedSamples(self.n_samples)

    @property
    def streams(self) -> tuple[int, ...]:
        """Seed of the trials: all ranks see the same truths and data, other sizes have others."""
        return (self.seed, self.dim, self.n_clients, self.n_samples)

    @property
    def keys(self) -> dict[str, Any]:
        """Columns that name the setting in every table."""
        sizes = {"dim": self.dim, "n_clients": self.n_clients, "n_samples": self.n_samples, "rank": self.rank}
        return {"setting": self.name, **sizes}


def algorithm(method: str, rank: int, step_size: float = 1.0, *, summed: bool = False) -> lf.Algorithm:
    """Return FLUTE, FedRep or FedRep (RI); `summed` lets FedRep sum over clients too."""
    if method == FLUTE:
        return lf.FLUTE(rank=rank, step_size=step_size)
    init = "moments" if method == FEDREP else "random"
    return lf.FedRep(rank=rank, step_size=step_size, init=init, aggregate="sum" if summed else "mean")


def errors(s: Setting, method: lf.Algorithm, rounds: int | None = None) -> Any:
    """Return the mean client error of every trial in every round, (trials, rounds + 1); NaN where it diverged."""
    result = lf.simulate(
        method,
        s.problem,
        data=s.data,
        rounds=s.rounds if rounds is None else rounds,
        trials=s.trials,
        seed=s.streams,
        metrics=["mean_client_error"],
    )
    return result.metrics["mean_client_error"]


def lengths(s: Setting) -> tuple[Any, Any]:
    """Return the mean lengths of the truncation's errors ``(Phi_k)_i - phi_i`` and of the ``phi_i``, each (trials,)."""
    truth = s.problem.truth(s.streams, range(s.trials))
    Phi = truth.dense()
    rest = truth.truncated(s.rank).dense() - Phi
    return np.linalg.norm(rest, axis=-1).mean(axis=-1), np.linalg.norm(Phi, axis=-1).mean(axis=-1)


# --- a setting's run -----------------------------------------------------------------------------------------


def thinned(rounds: int) -> Any:
    """Return the rounds at which curves are kept: evenly spaced in the logarithm."""
    return np.unique(np.concatenate([[0], np.geomspace(1, max(rounds, 1), 60).astype(int)]))


def run_setting(s: Setting) -> dict[str, Any]:
    """Tune every method on separate trials, run all methods at all speeds, and the reference lines."""
    kept = thinned(s.rounds)
    truncation, length = lengths(s)
    oracle = errors(s, lf.Oracle(rank=s.rank), 1)[:, -1]
    found: dict[str, Any] = {"kept": kept, "truncation": truncation, "length": length, "oracle": oracle}
    curves: dict[tuple[str, str], Any] = {}
    for method in METHODS:
        tuning = tuned(
            algorithm(method, s.rank),
            s.problem,
            grid={"step_size": s.step_sizes},
            data=s.data,
            rounds=s.tuning_rounds,
            metric="mean_client_error",
            score="area",
            quantile=0.9,
            trials=s.tuning_trials,
            seed=s.streams,
        )
        found |= {f"{method}/{name}": value for name, value in tuning_arrays(tuning).items()}
        curves[TUNED, method] = errors(s, tuning.algorithm)
        curves[PAPER_STEP, method] = errors(s, algorithm(method, s.rank, FLUTE_STEP))
        again = method == FLUTE  # it sums as it is
        summed = algorithm(method, s.rank, FLUTE_STEP, summed=True)
        curves[SUMMED, method] = curves[PAPER_STEP, method] if again else errors(s, summed)
    start = length  # both begin at heads of (nearly) 0
    end = np.nanmax(np.nan_to_num([curves[TUNED, method][:, -1] for method in METHODS], nan=-1.0), axis=0)
    for (speed, method), curve in curves.items():
        key = f"{speed}/{method}"
        filled = np.nan_to_num(curve, nan=np.inf)
        found[f"{key}/curve"] = np.stack(quantiles(curve[:, kept]))
        found[f"{key}/final"] = curve[:, -1]
        found[f"{key}/least"] = filled.min(axis=1)
        found[f"{key}/least_round"] = filled.argmin(axis=1)
        for share in WAY:
            level = end + (1 - share) * (start - end)
            reached = first_round_below(np.arange(curve.shape[1]), filled - level[:, None], 0.0)
            found[f"{key}/to_{share}"] = np.where(end < start, reached, np.nan)  # else there is no way to go
    return found


def setting_tables(settings: Sequence[Setting], results: Sequence[Mapping[str, Any]]) -> Tables:
    """Return curves (median and 10-90 %), statistics of every trial, tuning and references as tidy tables."""
    parts: dict[str, list[Table]] = {name: [] for name in ("curves", "summary", "tuning", "references")}
    for s, found in zip(settings, results, strict=True):
        trials = {"trial": np.arange(s.trials)}
        for method in METHODS:
            tuning = {name: found[f"{method}/{name}"] for name in ("scores", "best", "at_edge")}
            parts["tuning"].append(tuning_rows({**s.keys, "method": method}, s.step_sizes, tuning))
            best = s.step_sizes[int(tuning["best"])]
            for speed in SPEEDS:
                key = f"{speed}/{method}"
                named = {**s.keys, "speed": speed, "method": method}
                median, low, high = found[f"{key}/curve"]
                parts["curves"].append(
                    tidy(named, {"round": found["kept"]}, {"median": median, "low": low, "high": high})
                )
                final = found[f"{key}/final"]
                values = {
                    "step_size": np.array(best if speed == TUNED else FLUTE_STEP),
                    "final": final,
                    "least": found[f"{key}/least"],
                    "least_round": found[f"{key}/least_round"],
                    **{f"rounds_to_{share}": found[f"{key}/to_{share}"] for share in WAY},
                    "diverged": np.isnan(final),
                }
                parts["summary"].append(tidy(named, trials, values))
        values = {name: found[name] for name in ("oracle", "truncation", "length")}
        parts["references"].append(tidy(s.keys, trials, values))
    return {name: np.concatenate(tables) for name, tables in parts.items()}


# --- figures -------------------------------------------------------------------------------------------------


def draw_setting(ax: Axes, tables: Tables, speed: str, **keys: Any) -> None:
    """Draw every method's curve, and the truncation's and the oracle's errors as lines."""
    from linfed import plotting

    for method in METHODS:
        chosen = select(tables["curves"], speed=speed, method=method, **keys)
        chosen = chosen[chosen["round"] > 0]
        # Three "trials" whose quantiles are the saved ones.
        values = np.stack([chosen["low"], chosen["median"], chosen["high"]])
        plotting.draw_curve(chosen["round"], values, ax=ax, label=label(method), ylabel="", method=method)
    references = select(tables["references"], **keys)
    for name, told, style in (
        ("oracle", "oracle (exact heads on $U_k$)", (0, (1, 1))),
        ("truncation", "truncation $\\Phi_k$", (0, (5, 2))),
    ):
        value = float(np.median(references[name]))
        ax.axhline(value, color="0.25", linewidth=0.8, linestyle=style, zorder=1.5, label=told)
    ax.set_xscale("log")


def plain_ticks(ax: Axes) -> None:
    """Write the ticks of a short logarithmic axis as plain numbers, three or four of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    low, high = ax.get_ylim()
    if high / low > 30:
        return
    steps = (1.0, 2.0, 5.0) if high / low > 3 else (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    ax.yaxis.set_major_locator(LogLocator(subs=steps, numticks=12))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())


def curves_figure(tables: Tables, rows: Sequence[tuple[str, str, Mapping[str, Any]]], ranks: Sequence[int]) -> Figure:
    """Return the curves, a column for each rank.

    Parameters
    ----------
    tables : Tables
    rows : sequence of (title, speed, keys)
        What the rows show.
    ranks : sequence of int
    """
    from linfed import plotting

    figure, axes = panels([f"k = {k}" for k in ranks], 0.9 + 1.35 * len(rows), rows=len(rows), sharex=True)
    trials = len(np.unique(tables["summary"]["trial"]))
    with plotting.style():
        for line, (title, speed, keys) in zip(axes, rows, strict=True):
            for ax, k in zip(line, ranks, strict=True):
                draw_setting(ax, tables, speed, rank=k, **keys)
                plain_ticks(ax)
            line[0].set_ylabel(f"{title}\nmean client error")
        for ax in axes[-1]:
            ax.set_xlabel("round")
        legend(figure, axes[0], f"median and 10-90 % of {trials} trials")
    return figure


def draw_ranks(tables: Tables, rows: Sequence[tuple[str, Mapping[str, Any]]], ranks: Sequence[int]) -> Figure:
    """Return, against k, rounds to the level at each speed, and final errors relative to the truncation's own.

    Parameters
    ----------
    tables : Tables
    rows : sequence of (title, keys)
        What the rows show.
    ranks : sequence of int
    """
    from linfed import plotting

    titles = [f"rounds, {speed}" for speed in SPEEDS] + ["error / truncation's"]
    figure, axes = panels(titles, 0.9 + 1.35 * len(rows), rows=len(rows), sharex=True)
    last = int(tables["curves"]["round"].max())
    with plotting.style():
        for line, (title, keys) in zip(axes, rows, strict=True):
            for method in METHODS:
                for ax, speed in zip(line, (*SPEEDS, TUNED), strict=True):
                    summary = [select(tables["summary"], speed=speed, method=method, rank=k, **keys) for k in ranks]
                    if ax is line[-1]:
                        rest = [select(tables["references"], rank=k, **keys)["truncation"] for k in ranks]
                        values = np.stack([part["final"] / own for part, own in zip(summary, rest, strict=True)], 1)
                    else:
                        rounds = np.stack([part[rounds_column()] for part in summary], 1)
                        values = np.where(np.isinf(rounds), 2.0 * last, rounds)
                    shift = 0.15 * (METHODS.index(method) - 1)
                    _draw_quantiles(ax, np.array(ranks) + shift, values, method)
            for ax in line[:-1]:
                ax.set_yscale("log")
                ax.set_ylim(0.7, 3.0 * last)
                plotting.draw_level(ax, last, "last round" if ax is line[0] else "")
            line[0].set_ylabel(f"{title}\nto 95 % of the way")
        for ax in axes[-1]:
            ax.set_xlabel("k")
            ax.set_xticks(ranks)
        legend(
            figure,
            axes[0],
            "median and 10-90 % of trials; above the last round: not reached; right: final errors, tuned",
        )
    return figure


def _draw_quantiles(ax: Axes, x: Any, values: Any, method: str) -> None:
    """Draw medians with 10-90 % bars, each over the trials that have a value."""
    from linfed import plotting

    found = [np.quantile(column[~np.isnan(column)], (0.1, 0.5, 0.9), method="inverted_cdf") for column in values.T]
    low, middle, high = np.array(found).T
    bars = {"elinewidth": 0.7, "capsize": 1.5}
    ax.errorbar(x, middle, yerr=(middle - low, high - middle), label=label(method), **bars, **plotting.look(method))


def tuning_grid(tables: Tables, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Figure:
    """Return the tuning curves, a row for each setting and a column for each of its ranks in turn."""
    from linfed import plotting

    tuning = tables["tuning"]
    ranks = [[int(k) for k in np.unique(select(tuning, **keys)["rank"])] for _, keys in rows]
    figure, axes = panels([""] * len(ranks[0]), 0.9 + 1.35 * len(rows), rows=len(rows), sharex=True)
    with plotting.style():
        for line, (title, keys), own in zip(axes, rows, ranks, strict=True):
            for ax, k in zip(line, own, strict=True):
                for method in METHODS:
                    plotting.draw_tuning(ax, select(tuning, method=method, rank=k, **keys), method)
                ax.axvline(FLUTE_STEP, color="0.6", linewidth=0.6, zorder=0)
                ax.set(xscale="log")
                ax.set_title(f"k = {k}")
            line[0].set_ylabel(f"{title}\nscore")
        for ax in axes[-1]:
            ax.set_xlabel("step size")
        told = "mean of $\\log_{10}$ error over rounds, 90 % of the tuning trials lie below"
        legend(figure, axes[0], f"{told}; circled: the chosen step; thin line: 0.03")
    return figure


# --- claims --------------------------------------------------------------------------------------------------


def worst(values: Any) -> Any:
    """Return errors with diverged trials (NaN) as the worst."""
    return np.nan_to_num(values, nan=HUGE)


def ends_below(first: Any, second: Any) -> tuple[tuple[float, float, float], str]:
    """Return the share of paired trials in which the first final error is the smaller, with interval and counts.

    Errors within a relative `TIE` are equal; ties are counted and left out. Diverged trials count as the worst.
    """
    first, second = worst(first), worst(second)
    equal = np.abs(first - second) <= TIE * np.minimum(first, second)
    found, detail = share_smaller(np.where(equal, second, first), second)
    median = float(np.quantile(first / second - 1, 0.5, method="inverted_cdf"))
    told = "diverges more" if abs(median) > 100 else f"{100 * median:+.2f} %"
    return found, f"{detail}; median difference {told}"


def fewer_rounds(first: Any, second: Any) -> tuple[tuple[float, float, float], str]:
    """Return the share of paired trials in which the first needs fewer rounds, with interval, counts and medians.

    NaN, in both, is a trial in which there is no level to reach; infinite is a run that does not reach it.
    """
    known = ~(np.isnan(first) | np.isnan(second))
    if not known.any():
        return (math.nan, 0.0, 1.0), "no trial has a level to reach"
    first, second = first[known], second[known]
    found, detail = share_smaller(first, second)
    medians = " and ".join(_rounds(np.quantile(part, 0.5, method="inverted_cdf")) for part in (first, second))
    return found, f"{detail}; medians {medians}"


def _rounds(value: Any) -> str:
    return f"{value:g}" if np.isfinite(value) else "never"


def resampled(trials: int) -> Any:
    """Return 2,000 bootstrap samples of the trials' indices."""
    return np.random.default_rng(0).integers(trials, size=(2000, trials))


def median(values: Any) -> Any:
    """Return the lower median along the last axis: infinities are allowed."""
    return np.quantile(values, 0.5, axis=-1, method="inverted_cdf")


def log_gain(flute: Any, rival: Any, last: int) -> tuple[Any, Any]:
    """Return bounds of the log of the rival's median rounds over FLUTE's, along the last axis.

    A median that is never reached lies beyond the last round; the two bounds are the same where both are reached.
    """
    mine, other = median(flute), median(rival)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.log(np.minimum(other, last)) - np.log(mine)
        high = np.log(other) - np.log(np.minimum(mine, last))
    return low, high


def gap(bounds: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return bounds of the absolute value of a quantity that is known between bounds."""
    low, high = bounds
    inside = (low <= 0) & (high >= 0)
    return np.where(inside, 0.0, np.minimum(np.abs(low), np.abs(high))), np.maximum(np.abs(low), np.abs(high))


def gain_ratio(
    small: tuple[Any, Any], large: tuple[Any, Any], last: int, *, signed: bool
) -> tuple[tuple[float, float, float], str]:
    """Return the ratio of FLUTE's gains in rounds at two ranks, over paired trials, with a bootstrap interval.

    Parameters
    ----------
    small, large : (flute, rival) rounds of every trial, at the small and at the large rank
    last : int
        The last round.
    signed : bool
        Compare the gains (rival's median over FLUTE's); or the gaps (the larger median over the smaller).
    """
    known = ~np.any([np.isnan(part) for part in (*small, *large)], axis=0)
    if known.sum() < 2:
        return (math.nan, 0.0, math.inf), "too few trials have a level to reach"
    small, large = ((pair[0][known], pair[1][known]) for pair in (small, large))

    def bounds(index: Any) -> tuple[Any, Any]:
        first, second = (log_gain(pair[0][index], pair[1][index], last) for pair in (small, large))
        if not signed:
            first, second = gap(first), gap(second)
        with np.errstate(invalid="ignore"):
            low, high = first[0] - second[1], first[1] - second[0]
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    drawn = bounds(resampled(int(known.sum())))
    low, high = (
        float(np.exp(np.quantile(part, q, method="inverted_cdf")))
        for part, q in zip(drawn, (0.025, 0.975), strict=True)
    )
    least, most = bounds(np.arange(int(known.sum())))
    estimate = float(np.exp(least)) if least == most else math.nan
    return (estimate, low, high), ""


def gain_told(flute: Any, rival: Any, last: int) -> str:
    """Return FLUTE's gain in rounds in words."""
    known = ~(np.isnan(flute) | np.isnan(rival))
    if not known.any():
        return "-"
    low, high = log_gain(flute[known], rival[known], last)
    if low == high:
        return f"{math.exp(low):.2g}"
    return (
        f"> {math.exp(low):.2g}"
        if np.isposinf(high) and low > -np.inf
        else f"< {math.exp(high):.2g}"
        if high < np.inf
        else "?"
    )


def note(tables: Tables, speed: str, methods: Sequence[str], **keys: Any) -> str:
    """Return what a reader should know of a setting: diverged trials, steps at the edge of the grid."""
    notes = []
    summary = select(tables["summary"], speed=speed, **keys)
    for method in methods:
        lost = int(select(summary, method=method)["diverged"].sum())
        if lost:
            told = "its tuned step" if speed == TUNED else "step 0.03"
            notes.append(f"{lost} trials of {label(method)} diverged at {told}")
    edge = [m for m in methods if speed == TUNED and select(tables["tuning"], method=m, **keys)["at_edge"].any()]
    return joined(*notes, edge_note(edge) if edge else "")


def unsettled(tables: Tables, speed: str, methods: Sequence[str], **keys: Any) -> str:
    """Return which median curves still move by more than 1 % between half of the rounds and the last, if any."""
    told = []
    for method in methods:
        curve = select(tables["curves"], speed=speed, method=method, **keys)
        late = curve["median"][2 * curve["round"] >= curve["round"].max()]
        change = late[-1] / late[0] - 1 if np.isfinite(late[-1]) else 0.0
        if abs(change) > SETTLED:
            told.append(f"{label(method)} {'rises' if change > 0 else 'falls'}")
    return f"not at rest: over the second half of the rounds the error of {' and that of '.join(told)}" if told else ""


def without_level(tables: Tables, **keys: Any) -> str:
    """Return how many trials end no better than they began, if any: they have no level to reach."""
    chosen = select(tables["summary"], speed=TUNED, method=FLUTE, **keys)
    lost = int(np.isnan(chosen[f"rounds_to_{WAY[1]}"]).sum())
    return f"in {lost} of {len(chosen)} trials a tuned method ends above B = 0: no level, left out" if lost else ""


def verdict_of(found: tuple[float, float, float], reference: float) -> Verdict:
    """Return the verdict of an interval."""
    claim = Claim(text="", where="", statistic="", estimate=found[0], low=found[1], high=found[2], reference=reference)
    return claim.verdict


def joined(*notes: str) -> str:
    """Return the notes that say something as one."""
    return "; ".join(part for part in notes if part)


def _of(tables: Tables, speed: str, method: str, column: str, **keys: Any) -> Any:
    return select(tables["summary"], speed=speed, method=method, **keys)[column]


def rounds_column(share: float = WAY[1]) -> str:
    """Return the summary's column of rounds to a share of the way."""
    return f"rounds_to_{share}"


def end_claims(tables: Tables, rivals: Sequence[str], settings: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Claim]:
    """Return the claims that FLUTE ends below its rivals, for each setting (its name and keys) and speed."""
    out = []
    for rival in rivals:
        for speed in SPEEDS:
            for where, keys in settings:
                mine, other = (_of(tables, speed, method, "final", **keys) for method in (FLUTE, rival))
                (estimate, low, high), detail = ends_below(mine, other)
                out.append(
                    Claim(
                        text=f"FLUTE ends below {rival}",
                        where=f"{speed}: {where}",
                        statistic="share of paired trials with the smaller final error "
                        f"(ties aside: within {100 * TIE:g} %, the same stationary point)",
                        estimate=estimate,
                        low=low,
                        high=high,
                        reference=0.5,
                        detail=detail,
                        note=joined(
                            unsettled(tables, speed, (FLUTE, rival), **keys),
                            note(tables, speed, (FLUTE, rival), **keys),
                        ),
                    )
                )
    return out


def speed_claims(tables: Tables, rival: str, settings: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Claim]:
    """Return the claims that FLUTE needs fewer rounds than a rival, for each setting and speed."""
    out = []
    for speed in SPEEDS:
        for where, keys in settings:
            judged = {
                share: fewer_rounds(*(_of(tables, speed, m, rounds_column(share), **keys) for m in (FLUTE, rival)))
                for share in WAY
            }
            (estimate, low, high), detail = judged[WAY[1]]
            verdicts = {share: verdict_of(found, 0.5) for share, (found, _) in judged.items()}
            others = [
                f"to {100 * share:g} % of the way it is {verdict.value}"
                for share, verdict in verdicts.items()
                if verdict is not verdicts[WAY[1]]
            ]
            out.append(
                Claim(
                    text=f"FLUTE needs fewer rounds than {rival}",
                    where=f"{speed}: {where}",
                    statistic=f"share of paired trials with fewer rounds to {100 * WAY[1]:g} % of the way from the "
                    "start's error to the largest final error of the three tuned methods (ties aside)",
                    estimate=estimate,
                    low=low,
                    high=high,
                    reference=0.5,
                    detail=detail,
                    note=joined(*others, without_level(tables, **keys), note(tables, speed, (FLUTE, rival), **keys)),
                )
            )
    return out


def gain_claim(
    tables: Tables, speed: str, rival: str, ranks: Sequence[int], *, signed: bool, text: str, where: str, **keys: Any
) -> Claim:
    """Return the claim that FLUTE's gain in rounds (or the gap, whoever leads) is larger at the smallest rank."""
    last = int(tables["curves"]["round"].max())
    rounds = {
        k: tuple(_of(tables, speed, method, rounds_column(), rank=k, **keys) for method in (FLUTE, rival))
        for k in ranks
    }
    first, final = ranks[0], ranks[-1]
    found, told = gain_ratio(rounds[first], rounds[final], last, signed=signed)  # type: ignore[arg-type]
    gains = ", ".join(gain_told(*rounds[k], last) for k in ranks)
    leads = median(np.nan_to_num(rounds[first][0], nan=np.inf)) < median(np.nan_to_num(rounds[first][1], nan=np.inf))
    if signed and not leads:
        told = joined(told, f"FLUTE has no gain at k = {first}: it needs as many rounds, or more")
    what = "gains" if signed else "gaps"
    return Claim(
        text=text,
        where=f"{speed}: {where}",
        statistic=f"ratio of {what} at the smallest and the largest k, a gain being the rival's median rounds over "
        "FLUTE's" + ("" if signed else ", a gap the larger of the two over the smaller"),
        estimate=found[0],
        low=found[1],
        high=found[2],
        reference=1.0,
        detail=f"gains {gains} at k = {', '.join(str(k) for k in ranks)}",
        note=joined(told, *(note(tables, speed, (FLUTE, rival), rank=k, **keys) for k in (first, final))),
    )
