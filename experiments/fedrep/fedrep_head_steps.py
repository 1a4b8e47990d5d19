"""FedRep paper, section 4.1: how many gradient steps a head needs, against log(1/eps) and its condition number.

Clients fit heads on B* by gradient steps from 0, on one batch of m samples with noise. They stop when the distance to
the minimiser is at most eps times its length. L and mu are the extreme eigenvalues of a client's ``Z'Z/m``, and their
ratio kappa is its condition number. With the client's own step size ``2/(L + mu)`` the error falls by the factor
``(kappa - 1)/(kappa + 1)`` a step. Competitors are the step size ``1/(1 + k/m)`` for all clients, which uses no
eigenvalue, and the closed form.

**Deviations**: the paper gives neither a step size nor the constant in front of log(1/eps), which depends on kappa and
so on m/k.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 4.1.
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
from linfed.plotting.panels import Figures, draw_predicted, intervals
from linfed.statistics.crossings import replicates_interval
from linfed.statistics.intervals import Measured, median_interval

SUMMARY = "FedRep paper, section 4.1: gradient steps of a head to accuracy eps, against its condition number"
PICTURES = {"": 1400}
CAPTIONS = {
    "": "Gradient steps on a head until its distance to the minimiser is at most eps times its length, at each "
    "client's own step size, for each m/k. Markers: median over clients; bars: 10-90 %. Dotted: predicted from the "
    "median condition number. Dashed: log(1/eps).",
}
OWN_STEP, ONE_STEP = "own step size", "one step size"
LEVELS = (1e-2, 1e-4, 1e-8)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Gradient steps on the heads of many clients, each at its fixed samples."""

    rule: str = lf.choice((OWN_STEP, ONE_STEP), OWN_STEP)
    rank: int = 2
    per_rank: int = 2
    noise_std: float = 0.5
    n_clients: int = 20
    dim: int = 20
    most: int = 4000
    trials: int = 20
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return each client's steps to every accuracy, its condition number, and its fall per step."""
        k, m, count = self.rank, self.rank * self.per_rank, self.trials * self.n_clients
        problem = lf.SharedRepresentation(
            n_clients=self.n_clients, dim=self.dim, rank=k, noise_std=self.noise_std, head_norm=1.0
        )
        seed = (self.seed, k, m)
        A, b = lf.FixedSamples(m).draw(problem, trials=self.trials, seed=seed).normal_equations()
        B = problem.truth(seed, range(self.trials)).B[:, None]
        A, b = (B.mT @ A @ B).reshape(count, k, k), (B.mT @ b[..., None]).reshape(count, k)
        ends, best = np.linalg.eigvalsh(A)[:, [0, -1]], np.linalg.solve(A, b[..., None])[..., 0]
        step = 2.0 / ends.sum(axis=1) if self.rule == OWN_STEP else np.full(count, 1.0 / (1.0 + k / m))
        w, errors = np.zeros((count, k)), np.ones((self.most + 1, count))
        with np.errstate(over="ignore", invalid="ignore"):  # one step size for all clients may be too large for some
            for at in range(1, self.most + 1):
                w = w - step[:, None] * ((A @ w[..., None])[..., 0] - b)
                errors[at] = np.linalg.norm(w - best, axis=1) / np.linalg.norm(best, axis=1)
        within = np.array([errors <= eps for eps in LEVELS])
        needed = np.where(within.any(axis=1), within.argmax(axis=1), np.inf)
        ends_at = ((needed[-2], 0), (needed[-1], self.most))  # of clients that do not arrive: all their steps
        first, last = (np.where(np.isfinite(one), one, instead).astype(int) for one, instead in ends_at)
        clients, kappa = range(count), ends[:, 1] / ends[:, 0]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            fall = np.log(errors[first, clients] / errors[last, clients]) / np.maximum(last - first, 1)
        return {
            "n_samples": m,
            "needed": lf.LabeledArray(needed.T, eps=LEVELS),
            "kappa": kappa,
            "fall": fall,
            "law": np.log((kappa + 1.0) / (kappa - 1.0)),
        }


def cells(quick: bool) -> dict[str, list[Steps]]:
    """Return both step sizes at every k and m/k; quick: few clients and ratios."""
    base, ranks, ratios = Steps(), [2, 5, 10], [2, 5, 20, 100]
    if quick:
        base, ranks, ratios = Steps(trials=4, most=400), [2, 5], [5, 20]
    return {"steps": lf.grid(base, rule=(OWN_STEP, ONE_STEP), rank=ranks, per_rank=ratios)}


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return a row for each accuracy."""
    kept = ("rule", "rank", "per_rank", "n_samples", "most", "law")
    rows = [
        {name: row[name] for name in kept} | {"eps": float(eps), "needed": needed}
        for row in tables["steps"]
        for eps, needed in zip(row["eps"], row["needed"].T, strict=True)
    ]
    return {"levels": lf.Table(rows)}


# --- claims --------------------------------------------------------------------------------------------------

SAYS = c.cite(
    "FedRep paper, section 4.1",
    "an update for a local head that is [eps]-close to the global minimizer of (7) after at most log(1/[eps]) local "
    "gradient updates",
)
CLOSED = c.OWN_THRESHOLD.adding("the closed form is the paper's alternative, which it does not compare", ": ")


def digits(row: lf.Table) -> float:
    """Return log(1/eps)."""
    return -math.log(row["eps"])


def power(last: lf.Table, first: lf.Table) -> Measured:
    """Return the power of log(1/eps) with which the steps of the median client grow, towards the smaller eps."""
    clients = np.stack([first["needed"], last["needed"]])
    chosen = np.random.default_rng(0).integers(clients.shape[1], size=(400, clients.shape[1]))
    with np.errstate(invalid="ignore"):
        medians = np.c_[np.median(clients, axis=1), np.median(clients[:, chosen], axis=2)]
        found = np.log(medians[1] / medians[0]) / math.log(digits(last) / digits(first))
    return float(found[0]), *replicates_interval(found[1:])


def excess(row: lf.Table) -> Any:
    """Return the steps beyond the largest possible number, infinite for clients that did not arrive.

    They are NaN if a client did not arrive and has a largest possible number beyond the steps that were tried.
    """
    possible = np.ceil(digits(row) / row["law"] + 1e-6)
    return np.where(np.isfinite(row["needed"]) | (possible <= row["most"]), row["needed"] - possible, np.nan)


def cost(row: lf.Table) -> Measured:
    """Return the operations of the median client's steps divided by the closed form's.

    A step takes 2 m k operations, or k^2 if ``Z'Z`` is computed first, in m k^2; the cheaper way counts.
    """
    m, k = row["n_samples"], row["rank"]
    estimate, low, high = (
        min(2 * m * k * steps, m * k**2 + k**2 * steps) / (m * k**2 + k**3) for steps in median_interval(row["needed"])
    )
    return estimate, low, high


def fall(row: lf.Table) -> Measured:
    """Return the log fall per step divided by the predicted one, for the median client."""
    return median_interval(row["fall"] / row["law"])


OfSteps = partial(c.Claim, over=c.each_row, setting="{rule}, k = {rank}, m = {n_samples}")
OfLevels = partial(OfSteps, table="levels", setting="{rule}, k = {rank}, m = {n_samples}, eps = {eps:g}")
CLAIMS = (
    OfLevels(
        "At most log(1/eps) gradient steps make a head accurate to eps",
        SAYS.adding(f"the constant 1 and the share are {c.OWN_THRESHOLD}s"),
        c.failures(lambda row: row["needed"] > digits(row), "share of clients that need more steps", 0.05),
        where=c.smallest("eps"),
        theorem=False,
    ),
    c.Claim(
        "The gradient steps of a head grow at most like log(1/eps)",
        SAYS.adding(f"the tolerance is {c.OWN_THRESHOLD}"),
        c.measured("power between the two ends", power, c.at_most(1.25)),
        table="levels",
        over=c.ends("eps", c.each("rule", "rank", "per_rank")),
        setting="{rule}, k = {rank}, m = {n_samples}, eps from {1[eps]:g} to {0[eps]:g}",
    ),
    OfSteps(
        "At its own step size, a head's error falls by (kappa - 1)/(kappa + 1) a step",
        c.OWN_PREDICTION.adding(f"the range is {c.OWN_THRESHOLD}"),
        c.measured("log fall per step divided by the predicted one, median over clients", fall, c.within(0.95, 1.05)),
        where=c.of(rule=OWN_STEP),
    ),
    OfLevels(
        "At its own step size, no head needs more than log(1/eps) / log((kappa + 1)/(kappa - 1)) steps, rounded up",
        c.OWN_PREDICTION,
        c.identity(excess, "largest excess of steps", 0.0),
        where=(c.of(rule=OWN_STEP), c.smallest("eps")),
        theorem=False,
    ),
    OfLevels(
        "Gradient steps to eps = 1e-4 cost no more operations than the closed form, m k^2 + k^3",
        CLOSED,
        c.measured("operations of the median client, divided by the closed form's", cost, c.at_most(1.0)),
        where=c.of(rule=ONE_STEP, eps=1e-4),  # a step size of its own needs the eigenvalues of Z'Z
    ),
)


# --- figure --------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the numbers of gradient steps against the accuracy."""
    table = tables["steps"].select(rule=OWN_STEP)
    with lf.panels(table, column="per_rank", title="m = {} k", height=2.5, sharey=True) as sheet:
        for ax, part in sheet:
            for turn, row in enumerate(part):
                eps = row["eps"]
                found = np.quantile(row["needed"], (0.5, 0.1, 0.9), axis=0, method="inverted_cdf").T
                intervals(ax, eps * 1.3 ** (turn - 1), found, KINDS[turn], label=f"k = {row['rank']}")
                draw_predicted(ax, eps, np.log(1.0 / eps) / np.median(row["law"]), color=KINDS[turn][0])
            ax.plot(eps, np.log(1.0 / eps), "k--", label="log(1/eps)")
            ax.set(xscale="log", yscale="log", xlabel="accuracy eps")
            ax.invert_xaxis()
        sheet.axes[0, 0].set_ylabel("gradient steps")
        sheet.legend(f"{len(row['kappa'])} clients", ncols=5)
    return {"": sheet.figure}
