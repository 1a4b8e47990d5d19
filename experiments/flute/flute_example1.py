"""FLUTE paper, Example 1: what averages of the clients' representations can recover, and what FLUTE recovers.

The setting: ``Phi = [u_1 lambda_1 .. u_M lambda_M]`` with orthonormal u_i and lambda_1 > .. > lambda_M > 0, M = n <= d
clients, k = 1. Client i recovers ``phi_i`` and factors it as ``B_i w_i``; the server averages the B_i. The direction to
recover is u_1. The paper considers ``w_i = lambda_i`` and ``w_i = sqrt(lambda_i / M)``; it says that the first average
"deviates significantly" from u_1, and that in the second u_1 has "a heavier weight", "which will eventually help
recover" it.

With ``w_i`` proportional to ``lambda_i^p`` the average is proportional to ``sum_i lambda_i^(1-p) u_i``, hence

    cos^2 = lambda_1^(2-2p) / sum_i lambda_i^(2-2p),        dist = sqrt(1 - cos^2):

``sqrt(1 - 1/M)`` for p = 1, whatever the spectrum, and ``cos^2 = lambda_1 / sum_i lambda_i`` for p = 1/2. On a
geometric spectrum of ratio q the latter is ``(1 - q)/(1 - q^M)``, so its distance is about ``sqrt(q)``: below 0.1 only
for q < 0.01. An average recovers u_1 as p -> -infinity; p = 0, the plain mean of the phi_i, is drawn as well.

There are two sweeps: over M on the singular values 2d/(i+1) of the paper's Figure 3, and over q at M = d. In each the
clients recover phi_i exactly (the population: ``A_i = I``, no noise), or by least squares from m samples with noise;
then ``w_i`` is computed from the length of the estimate. On the same data, FLUTE (k = 1, the paper's step size 0.03)
runs from its small Gaussian B and W. FedRep (k = 1) runs from the direction of that B, and from each of the averages.
FedRep's step size is half the one that is best on u_1 itself, ``M / lambda_1^2``. All sizes except the example's own
are our choice.

References: Liu, Shen and Yang 2024, Example 1; their C.1 for the spectrum, the step and the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import KINDS, draw_level
from linfed.numerics.linalg import orthonormalize
from linfed.numerics.quantiles import quantiles
from linfed.plotting.panels import Figures, intervals
from linfed.statistics.intervals import first_round_below

from ._flute import FLUTE_STEP, spectrum

SUMMARY = "FLUTE paper, Example 1: which averages of local representations recover the top direction"
HEADLINES = (
    {"claim": "With w = sqrt(lambda/M) the average is closer to u_1 than with w = lambda"},
    {"claim": "The average with w = sqrt(lambda/M) recovers u_1"},
)
CAPTIONS = {
    "": "Subspace distance from u_1 of averages of the clients' representations, of FLUTE and of FedRep at k = 1, "
    "against the number of clients and the spectrum's ratio. Markers: median over trials; bars: 10-90 %. Solid: closed "
    "form for exact phi_i. Noise variance 0.3 with samples.",
    "rounds": "Number of rounds in which FedRep at k = 1 reaches distance 0.1, from a random B and from each average, "
    "against the number of clients and the spectrum's ratio. Markers: median over trials; bars: 10-90 %; above the "
    "last round: not reached. Noise variance 0.3 with samples.",
}
PICTURES = {"": 1400}

POWERS = {"w = lambda": 1.0, "w = sqrt(lambda/M)": 0.5, "w = 1": 0.0}
"""Name of each average, and the power p in ``w_i ~ lambda_i^p``."""
FIRST, SECOND = tuple(POWERS)[:2]

QUOTED = partial(c.cite, "FLUTE paper, Example 1", threshold=True)
DEVIATES = "B = [(1/M) sum_i u_i], which deviates significantly from the column space of B*"
HEAVIER = "u_1 will have a heavier weight in the aggregated representation, which will eventually help recover"

RECOVERED, FAR = 0.1, 0.5
"""A direction counts as recovered within the first distance, and as far beyond the second, 30 degrees."""
POPULATION = 0
"""The number of samples that stands for clients that recover their phi_i exactly."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One spectrum, known exactly or from samples; the ratio is 0 for the spectrum 2d/(i+1).

    The example fixes only k = 1 and M <= d; the other sizes are our choice.
    """

    n_samples: int = POPULATION
    n_clients: int = 10
    ratio: float = 0.0
    dim: int = 10
    n_rounds: int = 3000
    fedrep_rounds: int = 600
    trials: int = 50
    seed: int = 0

    def run(self) -> list[dict[str, Any]]:
        """Return the distances from u_1 of averages, FLUTE and FedRep, and FedRep's rounds from each initial B."""
        M, d = self.n_clients, self.dim
        values = d * self.ratio ** np.arange(M) if self.ratio else np.array(spectrum("2d/(i+1)", d))[:M]
        seed = (self.seed, M, round(1e6 * self.ratio))  # one ground truth for all sample counts
        U = orthonormalize(np.random.default_rng(seed).standard_normal((self.trials, d, M)))
        noise = 0.0 if self.n_samples == POPULATION else math.sqrt(0.3)
        problem = lf.GivenTruth(B=U, W=np.diag(values), noise_std=noise)
        draw = lf.FixedSamples(self.n_samples).draw if self.n_samples else lf.GivenSamples.population
        data = draw(problem, trials=self.trials, seed=seed)
        alone = lf.simulate(lf.LocalOnly(), problem, data=data, n_rounds=1, trials=self.trials, seed=seed)
        theta = np.asarray(alone.final.S)
        rows, starts = dict[str, Any](), dict[str, Any]()
        for name, power in POWERS.items():
            average = (theta / np.linalg.norm(theta, axis=-1, keepdims=True) ** power).mean(axis=1)[..., None]
            starts[name] = average / np.linalg.norm(average, axis=1, keepdims=True)
            exact = lf.theory.average_direction_distance(values, power)
            rows[name] = {"distance": lf.subspace_distance(average, U[..., :1]), "closed_form": exact}

        def distances(algorithm: lf.Algorithm, n_rounds: int, every: int = 1) -> Any:
            """Return the distances after every few rounds, (trials, rounds)."""
            run = lf.simulate(
                algorithm,
                problem,
                data=data,
                n_rounds=n_rounds,
                trials=self.trials,
                seed=seed,
                metrics=["subspace_distance"],
                record_every=every,
            )
            return run.metrics["subspace_distance"]

        curve = distances(lf.FLUTE(rank=1, step_size=FLUTE_STEP), self.n_rounds, self.n_rounds)
        rows["FLUTE"] = {"distance": curve[:, -1]}
        for name, init in {**starts, "FedRep": "random"}.items():
            curve = distances(lf.FedRep(rank=1, step_size=0.5 * M / values[0] ** 2, init=init), self.fedrep_rounds)
            taken = first_round_below(np.arange(curve.shape[1]), np.nan_to_num(curve, nan=1.0), RECOVERED)
            rows.setdefault(name, {"distance": curve[:, -1]})["rounds_to_0.1"] = taken
        sweep = "ratio" if self.ratio else "clients"
        return [{"sweep": sweep, "method": name, **row} for name, row in rows.items()]


def cells(quick: bool) -> dict[str, list[Example]]:
    """Return both sweeps, over M and over q."""
    example, samples = Example(), [POPULATION, 100, 20]
    clients, ratios = [2, 3, 4, 6, 8, 10], [0.002, 0.005, 0.02, 0.05, 0.15, 0.3, 0.5, 0.7, 0.9]
    if quick:
        example, samples = Example(trials=10, n_rounds=500, fedrep_rounds=100), [POPULATION, 20]
        clients, ratios = [2, 10], [0.005, 0.5]
    sweeps = [(M, 0.0) for M in clients] + [(example.dim, q) for q in ratios]
    return {"directions": lf.grid(example, n_samples=samples, **{"n_clients, ratio": sweeps})}


AVERAGES = dict(zip(POWERS, KINDS, strict=False))
"""Colours and markers of the averages."""
WEIGHTS = ("\\lambda", "\\sqrt{\\lambda/M}", "1")
NAMES = {power: f"average, $w = {weight}$" for power, weight in zip(POWERS, WEIGHTS, strict=True)}
LOWEST = 1e-4
"""Smaller distances are drawn at this one."""
SWEEPS = {
    "clients": ("n_clients", "clients $M$, $\\lambda_i = 2d/(i+1)$", "linear", (2, 10)),
    "ratio": ("ratio", "ratio $q$ of $\\lambda = d, dq, dq^2, \\ldots$; $M = d$", "log", (0.005, 0.15, 0.5, 0.9)),
}
"""Varied column of each sweep, axis, scale, and points of claims; the first average is judged at every M."""


def title(samples: int) -> str:
    """Return the name of the data in titles."""
    return "φ known exactly" if samples == POPULATION else f"least squares, m = {samples}"


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw distances from u_1 against the number of clients and the spectrum's ratio, and FedRep's rounds."""
    table = tables["directions"]
    panels = partial(lf.panels, column="n_samples", row="sweep", title=title, sharex="row", sharey="row")
    of_trials = f"median and 10-90 % of {table.rows[0]['trials']} trials"
    with panels(table, height=4.4) as distances:
        distances.label("", *["subspace distance from $u_1$"] * 2)
        for ax, part in distances:
            logarithmic = part.rows[0]["sweep"] == "ratio"
            ax.set(**({"yscale": "log", "ylim": (0.7 * LOWEST, 1.5)} if logarithmic else {"ylim": (-0.05, 1.05)}))
            for name, line in part.groupby("method"):
                x = _draw(ax, line, "distance", linestyle="none" if name in POWERS else ":")
                if name in POWERS:
                    ax.plot(x, np.maximum(line["closed_form"], LOWEST), color=AVERAGES[name][0], linewidth=1.0)
            draw_level(ax, RECOVERED)
        distances.legend(f"{of_trials}; solid: closed form for exact $\\phi$; below $10^{{-4}}$: drawn there")
    last = table.rows[0]["fedrep_rounds"]
    table = table.select(method=["FedRep", *POWERS])
    table = table.assign(shown=lambda row: np.minimum(row["rounds_to_0.1"], 2.0 * last))
    with panels(table, height=4.2) as rounds:
        rounds.label("", *["FedRep's rounds\nto distance 0.1"] * 2, yscale="symlog", ylim=(-0.5, 4.0 * last))
        for ax, part in rounds:
            for name in ("FedRep", *POWERS):
                start_label = {"label": "FedRep, random initialisation"} if name == "FedRep" else {}
                _draw(ax, part.select(method=name), "shown", linestyle=":", **start_label)
            draw_level(ax, last, "last round" if ax is rounds.axes[0, 0] else "")
        rounds.legend(f"FedRep from each initialisation: {of_trials}; above the last round: not reached")
    return {"": distances.figure, "rounds": rounds.figure}


def _draw(ax: Any, part: lf.Table, y: str, **options: Any) -> Any:
    """Draw a method's finite medians with 10-90 % over its sweep; return the sweep's points."""
    moves, xlabel, xscale, _ = SWEEPS[part.rows[0]["sweep"]]
    method = part.rows[0]["method"]
    ax.set(xlabel=xlabel, xscale=xscale)
    x, found = np.atleast_1d(part[moves]), np.maximum(quantiles(np.atleast_2d(part[y]).T), LOWEST).T
    if method == "FLUTE":  # FedRep's marks, which are nearly equal, stay visible inside
        options |= {"markersize": 9, "fillstyle": "none", "zorder": 1}
    if np.isfinite(found[:, 0]).any():
        text = options.pop("label", NAMES.get(method, method))
        intervals(ax, x, found, AVERAGES.get(method, method), label=text, linewidth=0.7, **options)
    return x


# --- claims --------------------------------------------------------------------------------------------------


def setting(part: lf.Table) -> str:
    """Return the setting of a finding."""
    row = part.rows[0]
    return f"{title(row['n_samples'])}: M = {row['n_clients']}" + (f", q = {row['ratio']:g}" if row["ratio"] else "")


def is_judged(row: lf.Table) -> bool:
    """Return whether a row is a point of the claims."""
    moves, *_, points = SWEEPS[row["sweep"]]
    return row[moves] in points


def distance(row: lf.Table) -> Any:
    """Return the distance from u_1, 1 if the run diverged."""
    return np.nan_to_num(row["distance"], nan=1.0)


def recovered(row: lf.Table) -> Any:
    """Return whether u_1 is recovered."""
    return distance(row) < RECOVERED


def gap(row: lf.Table) -> Any:
    """Return the difference of a distance from its closed form."""
    return np.abs(distance(row) - row["closed_form"])


ON = (
    ("", c.only(lambda row: row["n_samples"] == POPULATION)),
    ("least-squares estimates", c.only(lambda row: row["n_samples"] != POPULATION)),
)
"""What a sentence of the example is asked of, which assumes that clients recover their phi_i, and the rows."""
Asked = partial(
    c.Claim, where=c.only(is_judged), over=c.each("n_samples", "sweep", "n_clients", "ratio"), setting=setting
)
NEARER = "share of paired trials with the smaller distance"
SOONER = f"share of paired trials with fewer rounds to distance {RECOVERED:g}"
WITHIN = f"share of trials in which the distance is below {RECOVERED:g}"
CLAIMS = (
    *(
        Asked(
            f"The average with {FIRST} deviates significantly from u_1",
            QUOTED(DEVIATES, asked_of=estimates),
            c.share(
                lambda row: distance(row) > FAR,
                f"share of trials in which its distance is above {FAR:g} (30 degrees)",
                c.MOST,
            ),
            where=(c.of(sweep="clients", method=FIRST), rows),
        )
        for estimates, rows in ON
    ),
    Asked(
        "The closed forms hold: sqrt(1 - cos^2), cos^2 = lambda_1^(2-2p) / sum lambda_i^(2-2p)",
        c.OWN_PREDICTION,
        c.identity(
            lambda part: np.max([gap(row) for row in part], axis=0),
            "largest difference of a distance from its closed form",
            1e-12,
        ),
        where=(c.of(n_samples=POPULATION, method=list(POWERS)), c.only(is_judged)),
    ),
    *(
        Asked(
            f"With {SECOND} the average is closer to u_1 than with {FIRST}",
            QUOTED(HEAVIER, asked_of=estimates),
            c.smaller(distance, SECOND, FIRST, NEARER),
            where=(c.only(is_judged), rows),
        )
        for estimates, rows in ON
    ),
    *(  # the paper claims only that the weight helps to recover u_1
        Asked(
            f"{'The average with ' if method in POWERS else ''}{method} recovers u_1",
            c.OWN_THRESHOLD,
            c.share(recovered, WITHIN, c.MOST),
            where=(c.of(method=method), c.only(is_judged)),
        )
        for method in (SECOND, "FLUTE", "FedRep")
    ),
    Asked(
        f"FLUTE is closer to u_1 than the average with {SECOND}",
        c.OWN_THRESHOLD,
        c.smaller(distance, "FLUTE", SECOND, NEARER),
    ),
    *(
        Asked(
            f"The heavier weight helps: FedRep reaches u_1 sooner from the average with {SECOND} than with {FIRST}",
            QUOTED(HEAVIER, asked_of=" and ".join(filter(None, ("FedRep's rounds", estimates)))),
            c.smaller("rounds_to_0.1", SECOND, FIRST, SOONER),
            where=(c.only(is_judged), rows),
        )
        for estimates, rows in ON
    ),
)
