"""The cells of `experiments.fedrep_scaling`: the least m, or the fewest rounds, that a run of FedRep needs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

import linfed as lf
from linfed.cells.smallest_size import Least
from linfed.theory.fedrep.arguments import set_share

FRESH, FIXED = "fresh", "fixed"
THEOREM, BEST = "theorem's step", "best step"


@dataclass(frozen=True, kw_only=True)
class Need:
    """How many samples, or rounds, bring half of the runs from distance 0.9 to 0.01.

    Heads have length ``sqrt(k)`` and singular values that are geometric with the ratio kappa. `step` is "theorem's
    step", ``eta`` over the largest eigenvalue of Gamma, of which Theorem 1 allows eta = 1/4; or the "best step" near B*
    for kappa = 1 (`lf.theory.best_step_size`, by its formula also at m = k + 1).
    """

    panel: str = ""
    asks: str = "data.n_samples"
    samples: str = FRESH
    n_clients: int = 50
    dim: int = 1000
    rank: int = 3
    kappa: float = 1.0
    participants: int | None = None
    noise_std: float = 0.0
    step: str = THEOREM
    eta: float = 0.25
    start: int = 16
    rounds: int = 40
    delta: float = 0.9
    level: float = 0.01
    resolution: float = 0.05
    trials: int = 32
    seed: int = 0

    keeps_pieces = True

    @property
    def cost(self) -> float:
        """Long searches first."""
        return self.n_clients * self.rounds * (self.dim if self.samples == FIXED else 1)

    @property
    def p(self) -> int:
        """Participants."""
        return self.n_clients if self.participants is None else self.participants

    @property
    def largest(self) -> float:
        """The largest eigenvalue of Gamma, whose trace is k."""
        squares = np.geomspace(self.kappa**2, 1.0, self.rank)
        return float(self.rank * squares[0] / squares.sum())

    @property
    def smallest(self) -> float:
        """The least eigenvalue of Gamma."""
        return self.largest / self.kappa**2

    def step_size(self, run: lf.Run) -> float:
        """Return the step at a number of samples."""
        m, k = run.data.n_samples, self.rank
        if self.step == THEOREM or m <= k:
            return self.eta / self.largest
        c, g = 1.0 - k / m, (self.dim - k + 1) * k / (self.p * m)
        f = (k - 1) * set_share(self.n_clients, self.p)
        return 1.0 / (c * (1.0 + f) + g)

    @property
    def search(self) -> Least:
        """The search that answers."""
        kappa = self.kappa if self.rank > 1 else 1.0
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        fresh = self.samples == FRESH
        run = lf.Run(
            algorithm=lf.FedRep(rank=self.rank, step_size=self.eta, init=lf.AtDistance(self.delta)),
            problem=lf.SharedRepresentation(**sizes, noise_std=self.noise_std, condition_number=kappa),
            data=lf.FreshSamples(self.start) if fresh else lf.FixedSamples(self.start),
            participation=self.p,
            rounds=self.rounds,
            seed=(self.seed, self.n_clients, self.dim, self.rank),
            engine="chain" if fresh and self.dim >= 3 * self.rank else "auto",
        )
        return Least(
            base=run,
            path=self.asks,
            reaches=lf.below("subspace_distance", self.level),
            most=4096,
            resolution=self.resolution,
            trials=self.trials,
            step_size=self.step_size,
            predicted=fresh,
        )

    def run(self) -> dict[str, Any]:
        """Return what `lf.least` would, beside what is said of it."""
        return {**self.search.run(), **self.said}

    def stages(self) -> Generator[Sequence[Any], Sequence[Any], dict[str, Any]]:
        """Return the same in pieces."""
        row = yield from self.search.stages()
        return {**row, **self.said}

    @property
    def said(self) -> dict[str, Any]:
        """What Theorem 1 says of it, its constant 1, and the law near B* or of fixed samples.

        The theorem's rounds have no constant; they follow from ``(1 - eta E0 smin^2/2)^(T/2)``.
        """
        k, E0 = self.rank, 1.0 - self.delta**2
        claim = self.kappa**4 * k**2 * (k * math.log(self.p) / E0**2 + self.dim / (E0**2 * self.p))
        rate = math.log1p(-self.eta * self.smallest / self.largest * E0 / 2) / 2
        return {
            "path": self.asks,
            "p": self.p,
            "claim": claim,
            "bound": math.log(self.level / self.delta) / rate,
            "local": local_threshold(self.n_clients, self.p, self.dim, k, self.eta),
            "spectral": fixed_samples_need(self) if self.samples == FIXED else math.nan,
        }


def local_threshold(n: int, p: int, d: int, k: int, eta: float) -> float:
    """Return the m at which the mean squared angle stays as it is in a round near B*: Gamma = I, no noise.

    ``(1 - eta c)^2 + eta^2 c (c f + g) = 1`` with ``c = 1 - k/m``, of `lf.theory.one_round_factor`. For p = n and
    eta = 1/4 it is ``p m = (d-k+1) k/(7 + k/m)``. NaN where it lies below k + 2, where the law ends.
    """
    f, h = (k - 1) * set_share(n, p), (d - k + 1) * k / p
    m = eta * (h - (1.0 + f) * k) / (2.0 - eta * (1.0 + f))
    return m if m >= k + 2 else math.nan


def fixed_samples_need(need: Need) -> float:
    """Return the least m on fixed samples without noise, as the spectrum of Marchenko and Pastur has it.

    The angles' tangents, (d-k) k numbers, are pulled by the Gram matrix of n (m-k) vectors ``x (x) w_i``, so that
    directions of eigenvalue l shrink by ``1 - eta c l`` a round; l has their law with the ratio ``(d-k) k/(n (m-k))``.
    """
    n, d, k = need.n_clients, need.dim, need.rank

    def tangent(m: float) -> float:
        ratio = (d - k) * k / (n * (m - k))
        angles = (np.arange(2000) + 0.5) * np.pi / 2000
        values = 1.0 + ratio + 2.0 * math.sqrt(ratio) * np.cos(angles)
        weights = 4.0 * ratio * np.sin(angles) ** 2 / (4000 * ratio * values)
        left = float(np.sum(weights * (1.0 - need.eta * (1.0 - k / m) * values) ** (2 * need.rounds)))
        return math.sqrt(left + max(0.0, 1.0 - 1.0 / ratio))

    def excess(m: float) -> float:
        aim = need.level / math.sqrt(1 - need.level**2) * math.sqrt(1 - need.delta**2) / need.delta
        return math.log(tangent(m) / aim)

    return float(optimize.brentq(excess, k + 0.01, 1e6)) if excess(1e6) < 0 else math.nan


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The factor by which a round multiplies the angles of a single run near B*, at the theorem's step without noise.

    Every run starts at all angles of sine `delta`; the first rounds, in which the angles find their proportions, do not
    count.
    """

    n_clients: int = 50
    participants: int | None = None
    dim: int = 1000
    rank: int = 3
    n_samples: int = 16
    eta: float = 0.25
    delta: float = 1e-5
    first: int = 10
    rounds: int = 60
    trials: int = 64
    seed: int = 0

    @property
    def p(self) -> int:
        """Participants."""
        return self.n_clients if self.participants is None else self.participants

    def run(self) -> dict[str, Any]:
        """Return the factor of each run."""
        result = lf.simulate(
            lf.FedRep(rank=self.rank, step_size=self.eta, init=lf.AtDistance(self.delta)),
            lf.SharedRepresentation(n_clients=self.n_clients, dim=self.dim, rank=self.rank, condition_number=1.0),
            data=lf.FreshSamples(self.n_samples),
            participation=self.p,
            rounds=self.rounds,
            trials=self.trials,
            seed=(self.seed, self.n_clients, self.dim, self.rank),
            metrics=["subspace_distance"],
            record_every=self.first,
            engine="chain",
        )
        distance = result.metrics["subspace_distance"]
        return {"growth": (distance[:, -1] / distance[:, 1]) ** (1.0 / (self.rounds - self.first))}


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The m at which the angles of a single run neither grow nor shrink near B*, at the theorem's step."""

    n_clients: int
    participants: int | None = None
    dim: int
    rank: int
    trials: int = 64
    seed: int = 0

    keeps_pieces = True

    @property
    def search(self) -> Least:
        """The search that answers, from above the law's own threshold."""
        sizes = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "trials"}
        base = Growth(**sizes, n_samples=math.ceil(self.law) + 1)
        reaches = lf.below("growth", 1.0)
        return Least(base=base, path="n_samples", reaches=reaches, resolution=0.01, trials=self.trials)

    @property
    def law(self) -> float:
        """The threshold in mean square."""
        p = self.n_clients if self.participants is None else self.participants
        return local_threshold(self.n_clients, p, self.dim, self.rank, Growth.eta)

    def run(self) -> dict[str, Any]:
        """Return the threshold, measured and by the law."""
        return {**self.search.run(), "law": self.law}
