"""FLUTE paper, Lemma A.18: what the distance of Theta from its limit says about B W', at random and extreme Theta.

The lemma is deterministic: ``||B W' - Phi_k||_F <= ||Theta Theta' - diag(2 Lambda_k, 0)||_F``. The proof of Theorem 5.5
ends with it. Both sides (`linfed.theory.ThetaCoordinates.distances`) are evaluated at four kinds of Theta:

- random: B and W are Gaussian, each with a scale from 1/1000 to 10.
- near: the limit, changed by Gaussian numbers of sizes from 1e-6 to 1 in Theta.
- turned: the limit, changed in the antisymmetric part of B W' only, by the same sizes.
- opposite: ``U'B = -V'W``, at B of the limit.

The proof sets ``||S + S'||_F = 2 ||S||_F`` for the difference S in singular coordinates, which need not be symmetric.
The lemma holds nevertheless, even with the factor ``1/sqrt(2)``, which is the simplest competitor of its factor 1.

**Deviations**: the extract of the paper has no factor in the lemma. It may have lost one.

References: Liu, Shen and Yang 2024, Lemma A.18.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import draw_level
from linfed.plotting.panels import Figures

SUMMARY = "FLUTE paper, Lemma A.18: which factor of the distance of Theta bounds the distance of B W'"
HEADLINES = ({"claim": "Lemma A.18 holds"},)
CAPTIONS = {
    "": "Left side of Lemma A.18 divided by its right side, against the right side, at four kinds of Theta. Dashed: "
    "the factor of the lemma, and the smallest one."
}
PICTURES = {"": 1005}

RANDOM, NEAR, TURNED, OPPOSITE = KINDS = ("random", "near", "turned", "opposite")
FACTOR = 1.0 / math.sqrt(2.0)
"""The smallest factor with which the lemma holds."""
ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Both sides of the lemma at many Theta of one kind."""

    kind: str = lf.choice(KINDS, RANDOM, label=True)
    n_clients: int = 15
    dim: int = 10
    rank: int = 2
    trials: int = 2_000
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return the right side, the left side divided by it, and the ratio of the sides of the proof's last step."""
        size, k, T = max(self.n_clients, self.dim), self.rank, self.trials
        problem = lf.UnderParameterized(n_clients=self.n_clients, dim=self.dim, noise_std=0.0)
        coordinates = lf.theory.ThetaCoordinates.of(problem.truth(self.seed, range(T)))
        rng = np.random.default_rng((self.seed, KINDS.index(self.kind)))
        first, values = np.arange(k), coordinates.spectrum[:, :k]
        limit = np.zeros((T, 2 * size, k))
        limit[:, first, first] = np.sqrt(2.0 * values)
        change = 10.0 ** rng.uniform(-6.0, 0.0, (T, 1, 1))
        B, W = rng.standard_normal((T, self.dim, k)), rng.standard_normal((T, self.n_clients, k))
        if self.kind == RANDOM:
            scales = 10.0 ** rng.uniform(-3.0, 1.0, (2, T, 1, 1))
            theta = coordinates.stacked(scales[0] * B, scales[1] * W)
        elif self.kind == NEAR:
            theta = limit + change * coordinates.stacked(B, W)
        elif self.kind == TURNED:
            theta, turn = limit.copy(), B[:, :k] - B[:, :k].mT
            theta[:, size : size + k] = change * turn / np.sqrt(2.0 * values)[:, None]
        else:
            theta = np.concatenate([limit[:, size:], limit[:, :size]], axis=1)
        of_product, of_theta = coordinates.distances(theta)
        upper, lower = theta[:, :size], theta[:, size:]
        S = 0.5 * (upper + lower) @ (upper - lower).mT
        S[:, first, first] -= values
        last_step = np.linalg.norm(S + S.mT, axis=(1, 2)) / (2.0 * of_product)
        return {"of_theta": of_theta, "factor": of_product / of_theta, "last_step": last_step}


def cells(quick: bool) -> dict[str, list[Sides]]:
    """Return every kind of Theta, with more and with fewer clients than dimensions, for two ranks."""
    base = Sides(trials=100) if quick else Sides()
    return {"sides": lf.grid(base, **{"n_clients, dim": [(15, 10), (6, 20)]}, rank=(2, 4), kind=KINDS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the factor of each Theta."""
    table = tables["sides"]
    with lf.panels(table, column="rank", height=2.9, sharey=True) as sheet:
        for ax, part in sheet:
            for number, (kind, rows) in enumerate(part.groupby("kind")):
                look: dict[str, Any] = {"color": f"C{number}", "markersize": 1.5, "rasterized": True}
                ax.plot(rows["of_theta"].ravel(), rows["factor"].ravel(), ".", label=kind, **look)
            draw_level(ax, 1.0)
            draw_level(ax, FACTOR)
        right = "$||\\Theta\\Theta^\\top - diag(2\\Lambda_k, 0)||_F$"
        sheet.label(right, "$||BW^\\top - \\Phi_k||_F$ divided by it", xscale="log", ylim=(0, 1.1))
        sheet.legend(f"{table.rows[0]['trials']:,} of each kind and size; dashed: factors 1 and $1/\\sqrt{{2}}$")
    return {"": sheet.figure}


# --- claims --------------------------------------------------------------------------------------------------

LEMMA = c.cite(
    "FLUTE paper, Lemma A.18",
    "If ||Theta (Theta)' - diag(Lambda_k, 0)||_F <= delta for some delta > 0, "
    "then ||B W - diag(Lambda_k, 0)||_F <= delta",
)
PROOF = c.cite(
    "FLUTE paper, proof of Lemma A.18",
    "Combining with the fact ||B W + W'B' - 2 diag(Lambda_k, 0)||_F = 2 ||B W - diag(Lambda_k, 0)||_F",
)
SIDES = "left side divided by the right one"


def largest(over: float, words: str) -> c.Statistic:
    """Return the largest excess of the factor over a number."""
    return c.identity(lambda row: row["factor"] - over, f"largest {SIDES}, minus {words}", ROUNDING)


Asked = partial(
    c.Claim,
    over=c.each("kind", "n_clients", "rank"),
    setting="{kind}: n = {n_clients}, d = {dim}, k = {rank}",
)
CLAIMS = (
    Asked("Lemma A.18 holds", LEMMA, largest(1.0, "1")),
    Asked(
        "Lemma A.18 holds with the factor 1/sqrt(2)",
        c.OWN_PREDICTION,
        largest(FACTOR, "1/sqrt(2)"),
        theorem=False,
    ),
    Asked(
        "No smaller factor is possible: 1/sqrt(2) is attained, or approached near the limit",
        c.OWN_PREDICTION,
        c.identity(lambda row: FACTOR - row["factor"].max(keepdims=True), f"1/sqrt(2) minus the largest {SIDES}", 1e-6),
        where=c.of(kind=[TURNED, OPPOSITE]),
        theorem=False,
    ),
    Asked(
        "The last step of the proof is an identity: ||S + S'||_F = 2 ||S||_F",
        PROOF,
        c.identity(
            lambda row: np.abs(row["last_step"] - 1.0),
            "largest difference of ||S + S'||_F / (2 ||S||_F) from 1",
            ROUNDING,
        ),
    ),
)
