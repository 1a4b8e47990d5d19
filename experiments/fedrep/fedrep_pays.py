"""Break-even of federation: FedRep against local baselines, over samples and clients, with predictions.

d = 50, k = 3, one fixed data set of m samples for each of n clients, and two noise levels. The local baselines are
least squares, of minimum norm if m < d, and ridge regression with the best ridge for its noise and length,
``sigma^2 d/(m k)``. FedRep competes with the better of the two. One least-squares model for all clients, and exact
heads on the true B*, are run on the same data.

FedRep starts from the method of moments and runs until it converges. Its step size is the one that the spectra of
samples and of heads allow, ``1.2/(c (1 + sqrt g)^2 (1 + sqrt(k/n))^2)`` with c = 1 - k/m and
``g = (d-k) k/(n (m-k))``. It takes as many rounds as the slowest directions need, at most a thousand. The relative
gradient that is left is a column of the table, and so is the risk of the best round, chosen in hindsight.

The predicted break-even has no fitted parameter (`linfed.theory.break_even_clients`). It is compared with two rules.
One is g = 1, from which there are more samples than unknowns. The other is the FedRep paper's ``m ~ log(n) + d/n``,
with the pair of constants closest to the measured break-even, in hindsight and for each noise level. FedRep's risk is
predicted by `linfed.theory.fixed_sample_floor`, for the heads of the first eight trials. It is claimed for m >= k + 5,
up to a replicon radius of 0.9.

The paper compares sample complexities per client: ``Theta(log(n) + d/n)`` with FedRep and ``Theta(d)`` without. Here
the sample complexity is the smallest m from which the median excess risk is at most a tenth of the risk of predicting
0, that is k/20. It is interpolated between the m of the grid, linearly in the logarithms.

Figures
-------
"" : Median excess risk of FedRep divided by the better local baseline's (ridge or least squares), over samples per
    client and number of clients. Lines: measured break-even (ratio 1) and its predictions. Blank: not run (too many
    samples).
"complexity" : Top: smallest m with which the median excess risk is a tenth of the risk of predicting 0, against the
    number of clients. Bottom: FedRep's divided by each local baseline's, against (log(n) + d/n)/d. Bars: 95 %
    intervals; none towards a side on which the grid ends.
"sections" : Excess risk against the number of clients, for some m and both noise levels: FedRep with its prediction
    (dotted), and the baselines. Markers: median over trials; bars: 10-90 %.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 1, and section 4.2, "When and whom does federation
help?".
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.figures.style import KINDS, label, line_style
from linfed.plotting.panels import Figures, bars, heat_map, level, place
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, Hypothesis, cite, judge
from linfed.statistics.intervals import Measured, largest_factor
from linfed.theory import at_exact_heads

SUMMARY = "break-even of FedRep with local least squares and ridge, over m/d and n, measured and predicted"
HEADLINES = (
    {
        "claim": "A client needs fewer samples with FedRep than with least squares without federation",
        "setting": "noise std 0.3, n = 50",
    },
    {
        "claim": "A client needs fewer samples with FedRep than with the best ridge without federation",
        "setting": "noise std 0.3, n = 50",
    },
)
PICTURES = {"": 1400, "complexity": 1400}
REDUCED = {"map": {"without": ("gradient", "best")}}

LIMIT = 8_000
"""Largest total number of samples: points with more are far from all lines and not run."""

FEDREP, LEAST, RIDGE, POOLED, ORACLE = "FedRep", "LocalOnly", "ridge", "PooledLeastSquares", "Oracle"
LAW, COUNT, PAPER = "the law", "more samples than unknowns", "log(n) + d/n, best constants"
HELPS = cite("FedRep paper, section 4.2", "so long as log(n) + d/n << d, federation helps", threshold=True)
OWN = OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}")
STABLE = 0.9
"""Largest replicon radius at which the risk is claimed."""
NEAR = 1.25
"""The claimed accuracy of a predicted line, as a factor."""
LEVELS = {"a third": 1 / 3, "a tenth": 1 / 10, "a thirtieth": 1 / 30}
"""Excess risks that define sample complexities, as shares of the risk of predicting 0."""
LEVEL = LEVELS["a tenth"]
MUCH_LESS = 5
"""log(n) + d/n << d counts as fulfilled if the left side times this number is at most the right side."""
RESAMPLES = 2000

Resampled: TypeAlias = Array
"""A statistic of the trials, followed by that of each bootstrap resample, (1 + RESAMPLES,)."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of the map: all methods on the same data sets."""

    noise_std: float = 0.3
    n_samples: int
    n_clients: int
    dim: int = 50
    rank: int = 3
    most_rounds: int = 1000
    trials: int = 50
    law_trials: int = 8
    seed: int = 0

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return self.n_clients * self.n_samples

    def schedule(self) -> tuple[float, int]:
        """Return FedRep's step size and number of rounds."""
        spare = max(self.n_samples - self.rank, 1)
        wide = math.sqrt((self.dim - self.rank) * self.rank / (self.n_clients * spare))
        near = math.sqrt(self.rank / self.n_clients)
        largest, least = (1 + wide) * (1 + near), abs((1 - wide) * (1 - near))
        rounds = max(30, round(8 * (largest / max(least, 0.1)) ** 2))
        return 1.2 * self.n_samples / spare / largest**2, min(self.most_rounds, rounds)

    def run(self) -> dict[str, Any]:
        """Return every method's excess risk, simulated in blocks of trials that fit into memory, and predictions."""
        setting: dict[str, Any] = {"noise_std": self.noise_std, "dim": self.dim, "n_samples": self.n_samples}
        length, theory = math.sqrt(self.rank), lf.theory
        ridge = theory.best_local_ridge(length, **setting)
        alone = [float(theory.local_mean_risk(length, ridge=one, **setting)) for one in (0.0, ridge)]
        both = [theory.fixed_sample_edge(rank=self.rank, **setting)]
        both.append(theory.break_even_clients(min(alone), rank=self.rank, **setting))
        edge, pays_from = np.where(np.isfinite(both), both, np.nan).tolist()
        block = max(1, min(self.trials, 2**22 // (self.n_clients * self.n_samples * self.dim)))
        firsts = range(0, self.trials, block)
        parts = [self.block(min(block, self.trials - first), (self.seed, first), ridge, setting) for first in firsts]
        row = {"edge": edge, "pays_from": pays_from, "predicted_ridge": alone[1] - self.noise_std**2 / 2}
        row["law"] = np.full(self.trials, self.law() if self.n_clients >= edge else math.nan)
        return row | {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def law(self) -> float:
        """Return the predicted excess risk of FedRep, the median over the first trials; NaN outside its range."""
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        W = lf.SharedRepresentation(**sizes).truth((self.seed, 0), range(min(self.law_trials, self.trials))).W
        assert W is not None
        if self.n_samples <= self.rank + 4:  # the mean over clients is that of single clients
            return math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # outside the range of the prediction
            found = lf.theory.fixed_sample_floor(W, dim=self.dim, n_samples=self.n_samples, noise_std=self.noise_std)
        inside = found.replicon <= STABLE
        return float(np.median(found.risk)) - self.noise_std**2 / 2 if inside.all() else math.nan

    def block(self, trials: int, seed: tuple[int, int], ridge: float, setting: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of one block of trials."""
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank, "noise_std": self.noise_std}
        problem, floor = lf.SharedRepresentation(**sizes), self.noise_std**2 / 2
        truth = problem.truth(seed, range(trials))
        data = lf.FixedSamples(self.n_samples).draw(problem, trials=trials, seed=seed)
        given = lf.GivenTruth(B=truth.B, W=truth.W, noise_std=self.noise_std)

        def result(algorithm: lf.Algorithm, rounds: int = 1) -> lf.Result:
            times = {"rounds": rounds, "trials": trials, "record_every": max(1, rounds // 20)}
            return lf.simulate(algorithm, given, data=data, metrics=["risk"], **times)

        step, rounds = self.schedule()
        fedrep = result(lf.FedRep(rank=self.rank, step_size=step), rounds)
        course = fedrep.metrics["risk"] - floor
        rivals = {LEAST: lf.LocalOnly(), RIDGE: lf.LocalOnly(ridge=ridge), POOLED: lf.PooledLeastSquares()}
        rivals |= {ORACLE: lf.Oracle(rank=self.rank)}
        found = {name: result(one).metrics["risk"][:, -1] - floor for name, one in rivals.items()}
        found |= {FEDREP: course[:, -1], "best": course.min(axis=1)}
        return found | {"gradient": at_exact_heads(data, fedrep.final.B).gradient}


def cells(quick: bool) -> dict[str, list[Point]]:
    """Return the points of the map; at noise 1 the local baselines need up to 300 samples."""
    base, sizes = Point(n_samples=5, n_clients=2), (2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 50, 80, 140, 250, 500, 1000)
    counts: tuple[int, ...] = (5, 7, 10, 15, 25, 35, 50, 60, 75, 100, 200)
    axes: dict[str, Any] = {"noise_std, n_samples": [(s, m) for s in (0.3, 1.0) for m in counts] + [(1.0, 300)]}
    if quick:
        base, sizes = replace(base, trials=10, most_rounds=250, law_trials=2), (2, 8, 16, 50)
        axes = {"noise_std, n_samples": [(0.3, 10), (0.3, 75), (1.0, 15), (1.0, 75)]}
    points = lf.grid(base, **axes, n_clients=sizes)
    return {"map": [one for one in points if one.cost <= LIMIT]}


# --- statistics of resampled trials ----------------------------------------------------------------------------


def medians(values: Iterable[Array]) -> Array:
    """Return medians over the trials and over bootstrap resamples of them, (1 + RESAMPLES, len(values))."""
    stacked = np.stack(list(values), axis=-1)
    trials = len(stacked)
    resamples = np.random.default_rng(0).integers(trials, size=(RESAMPLES, trials))
    picks = np.vstack([np.arange(trials), resamples])
    return np.stack([np.median(column[picks], axis=1) for column in stacked.T], axis=1)


def interval(resampled: Resampled, low: Resampled | None = None, high: Resampled | None = None) -> Measured:
    """Return a statistic with its 95 % percentile interval; infinite resamples are allowed.

    `low` and `high` are bounds of resamples that are known only between bounds; by default `resampled`.
    """
    ends = ((resampled if low is None else low, 0.025), (resampled if high is None else high, 0.975))
    least, most = (float(np.quantile(bound[1:], share, method="inverted_cdf")) for bound, share in ends)
    return float(resampled[0]), least, most


def lower(size: Resampled, sizes: Iterable[float]) -> Resampled:
    """Return a lower bound of a size from `crossing`: 0 at the smallest of the sizes, which is only an upper bound."""
    return np.where(size <= min(sizes), 0.0, size)


def crossing(sizes: Any, values: Array) -> Any:
    """Return the size from which values (.., sizes) are negative, interpolated linearly in the log of the size.

    It is the smallest size if all values are negative (see `lower`), and infinite if the last one is not.
    """
    sizes, above = np.asarray(sizes, dtype=float), values >= 0
    last = above.shape[-1] - 1 - np.argmax(above[..., ::-1], axis=-1)
    after = np.minimum(last + 1, above.shape[-1] - 1)
    first, second = (np.take_along_axis(values, at[..., None], axis=-1)[..., 0] for at in (last, after))
    with np.errstate(all="ignore"):  # without a crossing
        part = first / (first - second)
        between = np.exp(np.log(sizes)[last] + part * np.log(sizes[after] / sizes[last]))
    return np.where(~above.any(axis=-1), sizes[0], np.where(above[..., -1], np.inf, between))


# --- break-even ----------------------------------------------------------------------------------------------


def measured_lines(part: lf.Table, column: str = FEDREP) -> dict[int, Measured]:
    """Return for each m the number of clients from which a column is below the better local baseline."""
    found = {}
    for m, row in part.groupby("n_samples"):
        logs = medians(np.log(one[column] / np.minimum(one[RIDGE], one[LEAST])) for one in row)
        sizes = [one["n_clients"] for one in row]
        number = crossing(sizes, logs)
        if np.isfinite(number[0]):
            found[m] = interval(number, low=lower(number, sizes))
    return found


def lines(part: lf.Table, measured: dict[int, Measured]) -> dict[str, dict[int, float]]:
    """Return the break-even of each rule by m; the paper's rule has the constants with the smallest largest factor."""
    d, k = part.rows[0]["dim"], part.rows[0]["rank"]
    law = {row["n_samples"]: row["pays_from"] for row in part.rows if np.isfinite(row["pays_from"])}
    n, m = np.geomspace(2, 1000, 300), np.array(list(measured))
    a, b = (each[..., None, None] for each in np.meshgrid(np.geomspace(0.01, 30, 50), np.geomspace(0.03, 30, 50)))
    reached = a * np.log(n) + b * d / n <= m[:, None]
    paper = np.where(reached.any(axis=-1), n[np.argmax(reached, axis=-1)], n[-1])
    gap = np.abs(np.log(paper / [at for at, _, _ in measured.values()])).max(axis=-1)
    best = paper[np.unravel_index(np.argmin(gap), gap.shape)].tolist()
    unknowns = {one: max(2.0, k * (d - k) / (one - k)) for one in part.unique("n_samples") if one > k}
    return {LAW: law, COUNT: unknowns, PAPER: dict(zip(measured, best, strict=True))}


def holds(row: lf.Table) -> bool:
    """Return whether the prediction for FedRep's minimum is claimed at a point."""
    return bool(np.isfinite(row["law"]).all())


def on_line(measured: dict[int, Measured], line: dict[int, float], setting: str, **fields: Any) -> list[Finding]:
    """Judge the distance of the measured break-even from a line, for each m."""
    statistic = "number of clients from which FedRep's excess risk is lower, divided by that of the line"
    fields |= {"statistic": statistic, "claimed_low": 1 / NEAR, "claimed_high": NEAR}
    out = []
    for m, (n, low, high) in measured.items():
        if m in line:
            detail, ratio = f"{n:.3g} clients, for {line[m]:.3g}", (n / line[m], low / line[m], high / line[m])
            out.append(judge(ratio, setting=f"{setting}, m = {m}", detail=detail, **fields))
    return out


def risks(part: lf.Table, setting: str) -> list[Finding]:
    """Judge the predicted excess risks: FedRep's where its prediction is claimed, and the best ridge's."""
    points, every = [row for row in part if holds(row)], [row for row in part if row["n_clients"] >= 50]
    measured = np.stack([row[FEDREP] for row in points], axis=1)
    law = np.stack([row["law"] for row in points], axis=1)
    ridge = np.stack([row[RIDGE] for row in every], axis=1)
    formula = np.broadcast_to([row["predicted_ridge"] for row in every], ridge.shape)
    left = max(np.quantile(row["gradient"], 0.9) for row in points)
    note = f"{len(points)} points; relative gradient at the end, 90 % quantile: at most {left:.1g}"
    fields: dict[str, Any] = {"setting": setting, "source": OWN, "claimed_high": 1.15}
    fields["statistic"] = "factor between the median over trials and the prediction, worst point"
    text = f"Up to a replicon radius of {STABLE:g}, FedRep's risk is the predicted one"
    return [
        judge(largest_factor(measured, law), claim=text, note=note, **fields),
        judge(largest_factor(ridge, formula), claim="The best ridge's risk is the predicted one", **fields),
    ]


# --- sample complexity per client ----------------------------------------------------------------------------


def small(n: Any, d: int) -> Any:
    """Return (log(n) + d/n)/d, which the paper assumes to be small."""
    return (np.log(n) + d / n) / d


def complexities(part: lf.Table, level: float) -> dict[str, dict[int, Resampled]]:
    """Return the smallest sufficient m by method and n, infinite where the grid does not reach the risk.

    Parameters
    ----------
    part : Table
        Points of one noise level.
    level : float
        The excess risk to reach, as a share of the risk of predicting 0, ``k/2``.

    Notes
    -----
    Without federation the risk hardly depends on n (only its median over trials does). At an m that was not run with n
    clients, the risk is taken from the largest smaller number of clients.
    """
    aim = level * part.rows[0]["rank"] / 2
    sizes, found = sorted(part.unique("n_clients")), dict[str, dict[int, Resampled]]()

    def smallest(rows: list[lf.Table], name: str) -> Resampled:
        logs = medians(np.log(row[name] / aim) for row in rows)
        return np.asarray(crossing([row["n_samples"] for row in rows], logs))

    for n in sizes:
        nearest = []
        for m in sorted(part.unique("n_samples")):
            rows = [row for row in part.select(n_samples=m) if row["n_clients"] <= n]
            nearest += [max(rows, key=lambda row: row["n_clients"])] if rows else []
        of_size = [row for row in nearest if row["n_clients"] == n]
        for name, rows in ((FEDREP, of_size), (LEAST, nearest), (RIDGE, nearest)):
            found.setdefault(name, {})[n] = smallest(rows, name)
    return found


def divided(m: Resampled, alone: Resampled, sizes: Iterable[float]) -> Measured:
    """Return the ratio of two sample complexities with its interval, NaN where neither is reached.

    The smallest of the sizes is only an upper bound of a complexity.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return interval(m / alone, low=lower(m, sizes) / alone, high=m / lower(alone, sizes))


def helps(part: lf.Table, setting: str) -> list[Finding]:
    """Judge whether a client needs fewer samples with FedRep than without, for each n, and the break-even."""
    d, tried, out = part.rows[0]["dim"], part.unique("n_samples"), []
    found = {name: complexities(part, level) for name, level in LEVELS.items()}
    for method, rival in {"least squares": LEAST, "the best ridge": RIDGE}.items():
        text = f"A client needs fewer samples with FedRep than with {method} without federation"
        for n, m in found["a tenth"][FEDREP].items():
            alone = found["a tenth"][rival][n]
            left, detail = math.log(n) + d / n, f"{m[0]:.3g} for {alone[0]:.3g}; (log(n) + d/n)/d = {small(n, d):.3f}"
            if np.isfinite([m[0], alone[0]]).all():  # both risks are reached on the grid
                fields: dict[str, Any] = {
                    "claim": text,
                    "setting": f"{setting}, n = {n:,}",
                    "source": HELPS,
                    "detail": detail,
                }
                fields["statistic"] = (
                    "smallest m for a tenth of the risk of predicting 0, divided by the local baseline's"
                )
                fields["hypotheses"] = (
                    Hypothesis(text=f"log(n) + d/n <= d/{MUCH_LESS}", left=left, right=d / MUCH_LESS),
                )
                out.append(judge(divided(m, alone, tried), claimed_high=1.0, strict=True, **fields))
        for name, every in found.items():
            n = break_even(every[FEDREP], every[rival])
            if not np.isnan(n[0]):
                ends = np.where(np.isinf(n), 0.0, small(n, d))  # 0 if FedRep needs more on the whole grid
                above = np.where(n <= min(every[FEDREP]), np.inf, ends)  # FedRep needs fewer on the whole grid
                out.append(
                    judge(
                        interval(ends, high=above),
                        claim=f"{text}, if (log(n) + d/n)/d <= 1/{MUCH_LESS}",
                        setting=f"{setting}, {name}",
                        statistic="(log(n) + d/n)/d at which both need the same m, for a share of predicting 0's risk",
                        source=OWN_THRESHOLD,
                        claimed_low=1 / MUCH_LESS,
                        detail=f"n = {n[0]:.3g}",
                    )
                )
    return out


def break_even(fedrep: dict[int, Resampled], alone: dict[int, Resampled]) -> Resampled:
    """Return the n from which a client needs fewer samples with FedRep, NaN if the grid does not reach the risk.

    It is infinite if a client needs more even with the most clients, and the smallest n if it needs fewer with all. The
    largest n that do not reach the risk are left out, because few m were run there.
    """
    reached = [n for n in fedrep if np.isfinite([fedrep[n][0], alone[n][0]]).all()]
    sizes = [n for n in fedrep if n <= max(reached, default=0)]
    if not sizes:
        return np.full(1 + RESAMPLES, np.nan)
    with np.errstate(invalid="ignore"):  # resamples in which neither is reached
        logs = np.stack([np.log(fedrep[n]) - np.log(alone[n]) for n in sizes], axis=-1)
    return np.asarray(crossing(sizes, np.nan_to_num(logs, posinf=1e3, neginf=-1e3)))


# --- figures -------------------------------------------------------------------------------------------------


LINES = {LAW: (KINDS[2][0], "-"), COUNT: (KINDS[4][0], ":"), PAPER: ("0.35", "--")}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the map with its lines, the sample complexities, and sections through the map."""
    table, trials = tables["map"], f"{tables['map'].rows[0]['trials']} trials"
    with lf.panels(table, column="noise_std", title="noise std {}", height=3.6, sharey=True) as sheet:
        images = [draw_map(ax, part) for ax, part in sheet]
        sheet.label("$m/d$", "clients $n$")
        text = "excess risk of FedRep over that of the better\nof ridge and least squares, median"
        bar = sheet.figure.colorbar(images[0], ax=sheet.axes, pad=0.02, aspect=30, ticks=[-2, -1, 0, 1, 2], label=text)
        bar.set_ticklabels(["0.01", "0.1", "1", "10", "100"])
        blank = f"blank: more than {LIMIT:,} samples, not run"
        sheet.legend(f"{trials}; {blank}; rows and columns are not evenly spaced", ncols=4)
    chosen = table.select(n_samples=[7, 10, 25, 75])
    with lf.panels(chosen, column="n_samples", row="noise_std", title="m = {}", height=4.2, sharey="row") as second:
        second.label("clients $n$", *(f"excess risk, noise std {s}" for s in table.unique("noise_std")), xscale="log")
        for ax, part in second:
            draw_section(ax, part)
        second.legend(f"median and 10-90 % of {trials}", ncols=4)
    return {"": sheet.figure, "complexity": draw_complexity(table), "sections": second.figure}


def draw_map(ax: Any, part: lf.Table) -> Any:
    """Draw the log ratio over m and n, with the measured break-even and the lines of the rules."""
    counts, sizes = part.unique("n_samples"), sorted(part.unique("n_clients"))
    values = np.full((len(sizes), len(counts)), np.nan)
    for row in part:
        ratio = np.median(row[FEDREP] / np.minimum(row[RIDGE], row[LEAST]))
        values[sizes.index(row["n_clients"]), counts.index(row["n_samples"])] = np.log10(ratio)
    shares = [f"{m / part.rows[0]['dim']:.2g}".replace("0.", ".") for m in counts]
    image = heat_map(ax, values, shares, [f"{n:,}" for n in sizes], cmap="RdBu_r", vmin=-2, vmax=2)
    measured = measured_lines(part)
    for rule, line in lines(part, measured).items():
        inside = [m for m in counts if line.get(m, np.inf) <= sizes[-1]]
        shape = dict(zip(("color", "linestyle"), LINES[rule], strict=True))
        places = [place(np.log(sizes), np.log(line[m])) for m in inside]
        level(ax, [counts.index(m) for m in inside], places, **shape, label=rule)
    at = [np.interp(np.log(ends), np.log(sizes), range(len(sizes))) for ends in measured.values()]
    level(ax, [counts.index(m) for m in measured], at, color="black", marker="o", linestyle="none", label="measured")
    return image


def draw_section(ax: Any, part: lf.Table) -> None:
    """Draw every method's excess risk against n, and FedRep's prediction."""
    from matplotlib.ticker import NullFormatter

    n = np.array([row["n_clients"] for row in part])
    for name in (FEDREP, LEAST, RIDGE, POOLED, ORACLE):
        values = np.stack([row[name] for row in part], axis=1)
        bars(ax, n, values, name, label=label(name))
    law = [np.median(row["law"]) if holds(row) else np.nan for row in part]
    ax.plot(n, law, color="black", linewidth=1.2, linestyle=":", zorder=5, label="FedRep, the law")
    ax.set(yscale="log", ylim=(1e-3, 8))
    ax.xaxis.set_minor_formatter(NullFormatter())


def draw_complexity(table: lf.Table) -> Any:
    """Draw the sample complexities against n, and FedRep's divided by the others against (log(n) + d/n)/d."""
    with lf.panels(table, column="noise_std", title="noise std {}", row=2, height=4.4, sharey="row") as sheet:
        for (ax, part), (below, _) in zip(sheet.row(0), sheet.row(1), strict=True):
            d = part.rows[0]["dim"]
            found = complexities(part, LEVEL)
            for method, needed in found.items():
                draw_ends(ax, {n: interval(m) for n, m in needed.items()}, method)
            for rival in (LEAST, RIDGE):
                pairs = {n: (m, found[rival][n]) for n, m in found[FEDREP].items()}
                tried = part.unique("n_samples")
                draw_ends(below, {small(n, d): divided(*pair, tried) for n, pair in pairs.items()}, rival)
            ax.set_xlabel("clients $n$")
            below.axhline(1.0, color="black", linewidth=0.7)
        sheet.label(
            "$(\\log n + d/n)/d$",
            "smallest sufficient m",
            "FedRep's divided by\nthe one without",
            xscale="log",
            yscale="log",
        )
        sheet.legend(f"95 % intervals over {table.rows[0]['trials']} trials", ncols=3)
    return sheet.figure


def draw_ends(ax: Any, found: dict[float, Any], method: str) -> None:
    """Draw finite statistics with their intervals, without bars to ends that are 0 or infinite."""
    finite_ends = {x: ends for x, ends in found.items() if np.isfinite(ends[0])}
    middle, low, high = np.array(list(finite_ends.values())).reshape(-1, 3).T
    low, high = np.where(low > 0, low, middle), np.where(np.isfinite(high), high, middle)
    shape = line_style(method) | {"linestyle": "none", "elinewidth": 0.7, "capsize": 1.5}
    ax.errorbar(
        list(finite_ends), middle, yerr=np.maximum([middle - low, high - middle], 0), label=label(method), **shape
    )


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the break-even of FedRep, the predicted risks, and the sample complexities with and without it."""
    shape = OWN_THRESHOLD.adding(
        "the FedRep paper's complexity, Theta(log(n) + d/n), taken for a rule of where it pays", ": "
    )
    texts = {
        LAW: ("FedRep breaks even at the predicted number of clients", OWN),
        COUNT: ("FedRep breaks even at as many samples as unknowns", OWN_THRESHOLD),
        PAPER: ("FedRep breaks even at m ~ log(n) + d/n, with both constants chosen in hindsight", shape),
    }
    hindsight = "Stopped at its best round, in hindsight, FedRep breaks even at the predicted number of clients"
    out = []
    for noise, part in tables["map"].groupby("noise_std"):
        where, measured = f"noise std {noise}", measured_lines(part)
        rules = lines(part, measured)
        for rule, (text, source) in texts.items():
            out += on_line(measured, rules[rule], where, claim=text, source=source)
        out += on_line(measured_lines(part, "best"), rules[LAW], where, claim=hindsight, source=OWN)
        out += [*risks(part, where), *helps(part, where)]
    return out
