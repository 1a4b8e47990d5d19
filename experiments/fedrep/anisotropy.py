"""Which protocols of FedRep are biased if x is not isotropic, and which are only slower.

FedRep fits heads and takes the gradient on B on the same batch, or on the two halves of it (split). The gradient can be
whitened by the covariance of the client's own samples, of all clients' samples, or by the true one. DFW, the de-biased
and whitened FedRep of Zhang, Toso, Anderson and Matni, splits batches and whitens by own samples. x is Gaussian with
eigenvalues in a geometric sequence, of mean 1. The axes are common to all clients, or random for each client. In
the base setting the condition number is 10, n = 100, m = 30, d = 10, k = 2, and the label noise has standard deviation
1. Every protocol has its own tuned step.

`linfed.theory.mean_gradient` predicts the mean of a message at B* without a parameter. `linfed.theory.local_drift`
predicts the subspace at which a split batch ends, and the rate of the same batch. Two cases in which x and noise
depend on each other are outside of this law.

**Deviations**: we have only the abstract of the paper. It does not say whether its plain method, "vanilla
alternating-minimization descent", splits batches, so both protocols are judged. Its labels may be vectors and its x may
depend on past noise. All sizes are ours, and so is the meaning of "fails": twice the distance of DFW.

Figures
-------
"" : Distance after all rounds, for each protocol. Top: covariance common to all clients; bottom: random axes for each
    client. Dotted black: predicted for a split batch with small steps, without the floor of random samples.
"mechanism" : Left: mean message at B* outside of its span, in units of the predicted one of a split batch, with 95 %
    intervals. Middle: rounds in which the distance of the same batch falls by a factor e, without label noise; dotted:
    predicted. Right: distance against rounds at a large condition number, common covariance.

References: Zhang, Toso, Anderson and Matni 2024; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.figures.style import KINDS, LOOKS, PAGE_WIDTH, Look, plain_ticks
from linfed.plotting.panels import Figures, drawn_from, plot_curves
from linfed.statistics import fit_exponent, judge_exponent, mean_interval, median_interval, median_ratio
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import largest_factor, nan_as_worst

SUMMARY = "x with a covariance, common or per client: which protocols of FedRep are biased, and which are slower"
PICTURES = {"": 2070, "mechanism": 1400}
REDUCED = {table: {"without": ("score", "tried_*")} for table in ("rounds", "runs")}

SAME, SPLIT, DFW = "FedRep", "split", "split, own samples"
TRUE, POOLED, SAME_POOLED = "split, true covariance", "split, pooled samples", "same batch, pooled samples"
PROTOCOLS: dict[str, dict[str, Any]] = {
    SAME: {},
    SPLIT: {"split": True},
    DFW: {"split": True, "whiten": "own"},
    TRUE: {"split": True, "whiten": "true"},
    POOLED: {"split": True, "whiten": "pooled"},
    SAME_POOLED: {"whiten": "pooled"},
}
LABELS = {SAME: "FedRep, same batch", DFW: "split, own samples (DFW)"}
LOOK: dict[str, Look] = {SAME: LOOKS["FedRep"]} | {
    name: KINDS[turn] for name, turn in zip(list(PROTOCOLS)[1:], (0, 1, 3, 4, 8), strict=True)
}
COMMON, EACH = "common covariance", "covariance per client"
SERIES = {
    "condition": ("condition number", (1.0, 100.0, 1e4)),
    "n_clients": ("clients n", (25, 400)),
    "n_samples": ("samples m", (60, 120)),
    "noise_std": ("label noise", (0.1, 3.0)),
}
BASE = "base"
UNBIASED = 1e-9
"""Predicted distances below this number are 0 up to rounding errors, and are not drawn."""

ABSTRACT = "Zhang, Toso, Anderson and Matni 2024, abstract, in our words"
FAILS = f"{ABSTRACT}: plain alternation fails for mildly non-isotropic data; the factor is {OWN_THRESHOLD}"
LOSES = (
    f"{ABSTRACT}: without isotropic data the update is biased, and the noise no longer falls with the number of tasks; "
    f"the exponent is {OWN_THRESHOLD}"
)
OWN = OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes, and the covariances of x."""

    kind: str = lf.choice((COMMON, EACH), COMMON)
    condition: float = 10.0
    n_clients: int = 100
    n_samples: int = 30
    dim: int = 10
    rank: int = 2
    noise_std: float = 1.0
    trials: int = 30
    seed: int = 0

    @property
    def problem(self) -> lf.SharedRepresentation:
        """The problem; trials share the covariances and differ in B*, of uniform direction, and the heads."""
        values = np.geomspace(1.0, self.condition, self.dim)
        values /= values.mean()
        covariance: Array = values
        if self.kind == EACH:
            rng = np.random.default_rng([self.seed, 7])
            axes = np.linalg.qr(rng.standard_normal((self.n_clients, self.dim, self.dim)))[0]
            covariance = axes @ (values[:, None] * axes.mT)
            covariance = 0.5 * (covariance + covariance.mT)
        sizes: dict[str, Any] = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        return lf.SharedRepresentation(noise_std=self.noise_std, design=lf.Gaussian(covariance=covariance), **sizes)


@dataclass(frozen=True, kw_only=True)
class Protocol(Setting):
    """One protocol with a tuned step."""

    method: str = lf.choice(PROTOCOLS, SAME)
    series: str = lf.choice((BASE, *SERIES), BASE, label=True)
    rounds: int = 200
    tuning_trials: int = 3

    @property
    def cost(self) -> float:
        """Relative run time: long runs start first."""
        return (
            self.rounds * self.n_clients * self.n_samples * (1.0 if self.kind == EACH or self.method != SAME else 0.1)
        )

    def run(self) -> dict[str, Any]:
        """Return the final distances, those predicted of a split batch, and the columns of the tuning."""
        problem, options = self.problem, dict(PROTOCOLS[self.method])
        if options.get("whiten") == "true":
            options["whiten"] = problem.design
        algorithm = lf.FedRep(rank=self.rank, step_size=0.1, init="random", **options)
        run: dict[str, Any] = {"data": lf.FreshSamples(self.n_samples), "rounds": self.rounds, "seed": self.seed}
        run |= {"record_every": self.rounds}
        tuning = lf.tune(
            algorithm,
            problem,
            grid={"step_size": (0.1, 0.3)},
            score="final",
            extend=True,
            trials=self.tuning_trials,
            **run,
        )
        result = lf.simulate(tuning.algorithm, problem, metrics=["subspace_distance"], trials=self.trials, **run)
        columns = tuning.columns() | {"distance": nan_as_worst(result.metrics["subspace_distance"][:, -1])}
        if self.method == SPLIT:
            with warnings.catch_warnings():  # no stationary subspace near B*: NaN
                warnings.simplefilter("ignore", RuntimeWarning)
                truth = problem.truth(self.seed, range(self.trials))
                law = lf.theory.local_drift(truth, n_samples=self.n_samples, split=True)
            columns["predicted"] = law.distance
        return columns


INDEPENDENT, UNEQUAL, PAST = "noise independent of x", "variance of noise depends on x", "x depends on past noise"


@dataclass(frozen=True, kw_only=True)
class Messages(Setting):
    """Mean message at B*, outside of its span, over fresh draws."""

    method: str = lf.choice((SAME, SPLIT, DFW), SAME)
    noise: str = lf.choice((INDEPENDENT, UNEQUAL, PAST), INDEPENDENT)
    n_clients: int = 10
    draws: int = 2000

    def run(self) -> dict[str, Any]:
        """Return each trial's mean message along a direction, in units of the predicted one of a split batch.

        The direction is the predicted one if noise is independent of x. Otherwise it is the mean of the even trials,
        and only the odd ones are returned.
        """
        truth = self.problem.truth(self.seed, [0])
        assert truth.B is not None
        (B,), Phi = truth.B, truth.dense()[0]
        unit = lf.theory.mean_gradient(B, truth, n_samples=self.n_samples, split=True)[0]
        unit = unit - B @ (B.T @ unit)
        found = np.stack([self.outside(B, Phi, np.random.default_rng([self.seed, t])) for t in range(self.trials)])
        if self.noise != INDEPENDENT:
            direction = found[::2].mean(axis=0)
            unit, found = direction / np.linalg.norm(direction) * np.linalg.norm(unit), found[1::2]
        return {"message": (found * unit).sum(axis=(-2, -1)) / np.square(unit).sum()}

    def outside(self, B: Array, Phi: Array, rng: Any) -> Array:
        """Return the mean message over draws and clients, without its part in the span of B, (d, k)."""
        draws, m = self.draws, self.n_samples
        X = np.empty((self.n_clients, draws, m, self.dim))
        self.problem.design.fill(rng, X.reshape(self.n_clients, draws * m, self.dim))
        noise = self.noise_std * rng.standard_normal(X.shape[:-1])
        if self.noise == UNEQUAL:  # standard deviation proportional to |x_1|
            noise *= np.abs(X[..., 0]) / np.sqrt(np.mean(np.square(X[..., 0])))
        if self.noise == PAST:  # the last label noise moves x along a fixed direction
            X[..., 1:, :] += noise[..., :-1, None] * np.ones(self.dim)
        y = (X @ Phi[:, None, :, None])[..., 0] + noise
        half = m // 2 if self.method != SAME else m
        A, b, X, y = X[..., :half, :], y[..., :half], X[..., m - half :, :], y[..., m - half :]
        Z = A @ B
        w = np.linalg.solve(Z.mT @ Z, Z.mT @ b[..., None])
        message = X.mT @ (X @ (B @ w) - y[..., None])
        message = np.linalg.solve(X.mT @ X, message) if self.method == DFW else message / half
        mean = (message @ w.mT).mean(axis=(0, 1))
        return np.asarray(mean - B @ (B.T @ mean))


@dataclass(frozen=True, kw_only=True)
class Rate(Setting):
    """Rate of the same batch near B* without label noise."""

    noise_std: float = 0.0
    trials: int = 30
    folds: float = 8.0
    most_rounds: int = 40_000

    def run(self) -> dict[str, Any]:
        """Return the rounds for a fall of the distance by e, in the second half of a run, and the predicted ones."""
        problem = self.problem
        rates = lf.theory.local_drift(problem.truth(self.seed, range(self.trials)), n_samples=self.n_samples).rates
        step = 0.5 / float(rates.max())
        rounds = min(self.most_rounds, int(np.ceil(self.folds / (step * float(np.median(rates[:, 0])))))) // 2 * 2
        algorithm = lf.FedRep(rank=self.rank, step_size=step, init=lf.AtDistance(1e-3))
        run: dict[str, Any] = {"data": lf.FreshSamples(self.n_samples), "rounds": rounds, "seed": self.seed}
        run |= {"record_every": rounds // 2, "metrics": ["subspace_distance"], "trials": self.trials}
        _, middle, last = lf.simulate(algorithm, problem, **run).metrics["subspace_distance"].T
        powers = [np.log(np.square(1.0 - step * rates) ** at @ np.ones(rates.shape[1])) for at in (rounds // 2, rounds)]
        half, unit = rounds // 2, step * float(rates.max())
        return {
            "measured": unit * half / np.log(middle / last),
            "predicted": unit * half / (0.5 * (powers[0] - powers[1])),
        }


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return all series, the messages, the rates and the longer runs; quick: few values and trials."""
    base, kinds = Protocol(), (COMMON, EACH)
    if quick:
        base = dataclasses.replace(base, rounds=60, trials=8, tuning_trials=2, n_clients=30)
        runs = lf.grid(base, kind=kinds, method=(SAME, SPLIT, DFW))
        runs += lf.grid(dataclasses.replace(base, series="n_clients"), n_clients=(120,), method=(SAME, SPLIT))
        message = Messages(draws=300, trials=12)
        return {
            "runs": runs,
            "messages": lf.grid(message, condition=(10.0, 1e4), method=(SAME, SPLIT)),
            "rates": lf.grid(Rate(trials=8), condition=(1.0, 10.0)),
            "rounds": lf.grid(dataclasses.replace(base, condition=1e4), rounds=(60, 300), method=(SAME,)),
        }
    runs = lf.grid(base, kind=kinds, method=tuple(PROTOCOLS))
    for series, (_, values) in SERIES.items():
        one = dataclasses.replace(base, series=series)
        methods = tuple(PROTOCOLS) if series == "condition" else (SAME, SPLIT, DFW)
        runs += lf.grid(one, kind=kinds, method=methods, **{series: values})
    longer = dataclasses.replace(base, condition=1e4)
    message = Messages(trials=20)
    dependent = lf.grid(dataclasses.replace(message, n_samples=12), noise=(UNEQUAL, PAST))
    dependent += lf.grid(dataclasses.replace(message, method=DFW), noise=(UNEQUAL, PAST))
    return {
        "runs": runs,
        "messages": [
            *lf.grid(message, condition=(10.0, 100.0, 1e4), method=(SAME, SPLIT)),
            *lf.grid(message, condition=(10.0, 100.0), method=(DFW,)),
            *dependent,
        ],
        "rates": lf.grid(Rate(), kind=kinds, condition=(1.0, 3.0, 10.0, 100.0, 1000.0)),
        "rounds": [
            *lf.grid(longer, rounds=(100, 300, 1000, 3000, 10_000), method=(SAME,)),
            *lf.grid(longer, rounds=(100, 300, 1000), method=(DFW, SAME_POOLED)),
        ],
    }


# --- figures -------------------------------------------------------------------------------------------------


def along(rows: lf.Table, x: str, column: str = "distance") -> lf.LabeledArray:
    """Return a column of one protocol's rows as one array (trials, x)."""
    ordered = sorted(rows.rows, key=lambda row: row[x])
    return lf.LabeledArray(np.stack([row[column] for row in ordered], axis=1), **{x: [row[x] for row in ordered]})


def lines(table: lf.Table, series: str) -> Iterator[dict[str, Any]]:
    """Yield one row for each covariance and protocol, with its distances along a series."""
    shared = ("n_clients", "n_samples", "dim", "rank", "rounds", "trials")
    chosen = lf.Table([row for row in table.rows if row["series"] in (series, BASE)])
    for kind, part in chosen.groupby("kind"):
        for method, rows in part.groupby("method"):
            row = {name: rows.rows[0][name] for name in shared if name != series}
            row |= {"kind": kind, "method": method, "series": series}
            row["distance"] = along(rows, series)
            yield row | ({"predicted": along(rows, series, "predicted")} if method == SPLIT else {})


DOTS: dict[str, Any] = {"color": "black", "linestyle": ":", "linewidth": 1.4, "zorder": 5, "label": "predicted"}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances of all protocols, and what is behind them."""
    found = [series for series in SERIES if len({row[series] for row in tables["runs"].rows}) > 1] or ["condition"]
    table = lf.Table([row for series in found for row in lines(tables["runs"], series)])
    options = {"labels": LABELS, "looks": LOOK}
    shape: dict[str, Any] = {"column": "series", "row": "kind", "height": 4.2, "sharex": "col", "sharey": True}
    with lf.panels(table, title=lambda name: "", **shape) as sheet:
        for line, kind in enumerate(table.unique("kind")):
            for ax, part in sheet.row(line):
                series = part.rows[0]["series"]
                rows = {row["method"]: row for row in part.rows}
                most = max(row["distance"].values.shape[1] for row in part.rows)
                order = [name for name in PROTOCOLS if name in rows and rows[name]["distance"].values.shape[1] == most]
                plot_curves(ax, part, series, "distance", band=False, order=order, **options)
                if SPLIT in rows:
                    ends = np.median(rows[SPLIT]["predicted"].values, axis=0)
                    ends[ends < UNBIASED] = np.nan
                    ax.plot(rows[SPLIT]["predicted"].axes[series], ends, **DOTS)
                ax.set_xscale("log")
            sheet.axes[line, 0].set_ylabel(f"distance\n{kind}")
        lowest = min(float(np.median(row["distance"].values, axis=0).min()) for row in table.rows)
        sheet.axes[0, 0].set(yscale="log", ylim=(0.5 * lowest, None))  # predictions may be smaller
        for ax, series in zip(sheet.axes[-1], found, strict=True):
            ax.set_xlabel(SERIES[series][0])
        sheet.legend(f"median of {table.rows[0]['trials']} trials", ncols=4)
    return {"": drawn_from(sheet.figure, tables["runs"]), "mechanism": mechanism(tables)}


def mechanism(tables: dict[str, lf.Table]) -> Any:
    """Draw the mean messages, the rates, and the distances against rounds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(PAGE_WIDTH, 2.9), layout="constrained")
    messages = tables["messages"]
    for turn, (method, part) in enumerate(messages.select(noise=INDEPENDENT).groupby("method")):
        middle, low, high = np.array([mean_interval(row["message"]) for row in part.rows]).T
        x = np.array([row["condition"] for row in part.rows]) * 1.12 ** (turn - 1)
        shape = dict(zip(("color", "marker", "linestyle"), LOOK[method], strict=True)) | {"capsize": 1.5}
        axes[0].errorbar(x, middle, yerr=(middle - low, high - middle), label=LABELS.get(method, method), **shape)
    axes[0].axhline(1.0, **(DOTS | {"label": "_predicted"}))
    axes[0].set(xscale="log", xlabel="condition number", ylabel="message outside / predicted")
    for turn, (kind, part) in enumerate(tables["rates"].groupby("kind")):
        color, marker, _ = KINDS[(2, 6)[turn]]
        x = [row["condition"] for row in part.rows]
        axes[1].plot(x, [np.median(row["measured"]) for row in part.rows], marker, color=color, label=kind)
        axes[1].plot(x, [np.median(row["predicted"]) for row in part.rows], **(DOTS | {"label": "_predicted"}))
    axes[1].set(xscale="log", yscale="log", xlabel="condition number", ylabel="rounds for a factor e, times step")
    for method, part in tables["rounds"].groupby("method"):
        row = lf.Table([{"method": method, "distance": along(part, "rounds")}])
        plot_curves(axes[2], row, "rounds", "distance", band=False, labels=LABELS, looks=LOOK)
    axes[2].set(xscale="log", yscale="log", xlabel="rounds", ylabel="distance")
    handles: dict[str, Any] = {}
    for ax in axes:
        plain_ticks(ax)
        handles |= {text: handle for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    handles["predicted"] = axes[0].lines[-1]
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4)
    return drawn_from(figure, messages)


# --- claims --------------------------------------------------------------------------------------------------


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the paper's statements per protocol, the laws of messages, ends and rates, and the simplest rivals."""
    return [*failures(tables["runs"]), *scalings(tables["runs"]), *laws(tables), *rivals(tables)]


def named(method: str) -> str:
    """Return a protocol's name in a claim."""
    return {SAME: "FedRep on the same batch", SPLIT: "FedRep on a split batch", DFW: "DFW"}.get(method, method)


def failures(table: lf.Table) -> Iterator[Finding]:
    """Judge whether the plain protocols fail where DFW does not, in the base setting."""
    for kind, part in table.select(series=BASE).groupby("kind"):
        ends = {row["method"]: row for row in part.rows}
        for method in (SAME, SPLIT):
            if not {method, DFW} <= ends.keys():
                continue
            yield judge(
                median_interval(ends[method]["distance"] / ends[DFW]["distance"]),
                claim=f"{named(method)} fails for mildly non-isotropic x",
                setting=f"{kind}, condition number {ends[method]['condition']:g}",
                statistic="final distance divided by DFW's, median over paired trials, steps tuned for each",
                source=FAILS,
                claimed_low=2.0,
            )


def scalings(table: lf.Table) -> Iterator[Finding]:
    """Judge how the final distance depends on the number of clients."""
    for row in lines(table, "n_clients"):
        n = row["distance"].axes["n_clients"]
        if row["method"] not in (SAME, SPLIT, DFW) or len(set(n)) < 2:
            continue
        fields: dict[str, Any] = {"setting": f"{row['kind']}, n = {min(n)} to {max(n)}", "theorem": False}
        fitted = fit_exponent(n, row["distance"].values)
        if row["method"] == DFW:
            text = "The distance of DFW falls like n^(-1/2) or faster"
            yield judge_exponent(fitted, -0.5, kind="at most", margin=0.1, claim=text, source=LOSES, **fields)
        else:
            text = f"The distance of {named(row['method'])} loses its dependence on the number of clients"
            yield judge_exponent(fitted, -0.25, kind="at least", margin=0.0, claim=text, source=LOSES, **fields)


def laws(tables: dict[str, lf.Table]) -> Iterator[Finding]:
    """Judge the mean messages, the ends of split batches, and the rates against their predictions."""
    unit = "mean message at B* outside of its span, divided by the predicted one of a split batch"
    for row in tables["messages"].rows:
        fields: dict[str, Any] = {"statistic": unit, "source": OWN, "setting": f"condition number {row['condition']:g}"}
        found = mean_interval(row["message"])
        fields["setting"] += "" if row["noise"] == INDEPENDENT else f", {row['noise']}, m = {row['n_samples']}"
        if row["noise"] != INDEPENDENT and row["method"] == SAME:
            fields |= {"claimed_low": 0.0, "strict": True}
            yield judge(found, claim=f"The message of {named(row['method'])} is biased if noise and x depend", **fields)
        elif row["method"] == SPLIT:
            fields |= {"claimed_low": 0.9, "claimed_high": 1.1}
            yield judge(found, claim="The message of FedRep on a split batch has the predicted bias", **fields)
        else:
            fields |= {"claimed_low": -0.1, "claimed_high": 0.1}
            yield judge(found, claim=f"The message of {named(row['method'])} has no bias", **fields)
    for row in tables["runs"].select(method=SPLIT, kind=COMMON).rows:
        largest = max(one["n_clients"] for one in tables["runs"].rows)
        if row["n_clients"] == largest and row["series"] == "n_clients" and np.isfinite(row["predicted"]).all():
            yield judge(
                median_ratio(row["distance"], row["predicted"]),
                claim="A split batch ends at the predicted subspace",
                setting=f"{row['kind']}, n = {largest}",
                statistic="median final distance divided by the predicted one, without the floor of random samples",
                source=OWN,
                claimed_low=1 / 1.25,
                claimed_high=1.25,
            )
    for kind, part in tables["rates"].groupby("kind"):
        measured, predicted = (np.stack([row[name] for row in part.rows], axis=1) for name in ("measured", "predicted"))
        worst = largest_factor(measured, predicted)
        text = "Near B* the same batch has the predicted rate"
        statistic = "factor between measured and predicted rounds, worst condition number"
        yield judge(worst, claim=text, setting=kind, statistic=statistic, source=OWN, claimed_high=1.1)


def rivals(tables: dict[str, lf.Table]) -> Iterator[Finding]:
    """Judge the same batch with whitening, or with more rounds, against DFW."""
    for row in tables["runs"].select(method=SAME_POOLED).rows:
        if row["series"] in (BASE, "condition") and row["condition"] >= 10:
            same = {name: row[name] for name in ("kind", "series", "condition")}
            (other,) = tables["runs"].select(method=DFW, **same).rows
            yield judge(
                median_interval(row["distance"] / other["distance"]),
                claim="Whitening by pooled samples without a split is at least as good as DFW",
                setting=f"{row['kind']}, condition number {row['condition']:g}",
                statistic="final distance divided by DFW's, median over paired trials",
                source=OWN_THRESHOLD,
                claimed_high=1.0,
            )
    table = tables["rounds"]
    for other in table.select(method=DFW).rows:
        for row in table.select(method=SAME).rows:
            if row["rounds"] in (other["rounds"], 10 * other["rounds"]):
                times = row["rounds"] // other["rounds"]
                longer = "in as many rounds" if times == 1 else f"in {times} times as many rounds"
                yield judge(
                    median_interval(row["distance"] / other["distance"]),
                    claim=f"FedRep on the same batch is at least as good as DFW {longer}",
                    setting=f"{COMMON}, condition number {row['condition']:g}, {other['rounds']} rounds of DFW",
                    statistic="final distance divided by DFW's, median over paired trials",
                    source=OWN_THRESHOLD,
                    claimed_high=1.0,
                )
