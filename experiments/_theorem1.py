"""The runs of FedRep's Theorem 1 with every constant, and the search for the least m with which the bound holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed.simulation.participation import n_participants
from linfed.statistics.intervals import least_passing
from linfed.theory.fedrep import theorem1, theorem1_judges, theorem1_runs, theorem1_tail

PLAIN = ("dim", "rank", "n_clients", "participants", "n_samples", "step_size", "noise_std")
PLAIN += ("batch_rounds", "head_steps", "ridge")
OF_TRIALS = ("smallest", "largest", "unequal")
EDGE = 1.0 - 1e-9
"""Rounding must not decide whether a step is the largest that is allowed."""
ALLOWED = 0.05
"""Share of trials that may fail with the least C."""
GRID = "grid"
"""Runs at the theorem's own m over a grid."""
MOVES: dict[str, tuple[float, ...]] = {
    "step": (0.03, 0.1, 0.3, 1.0),
    "condition": (1.0, 2.0, 4.0, 8.0),
    "start": (0.1, 0.3, 0.5, 0.7, 0.9, 0.99),
}
LEAST: dict[str, tuple[Any, ...]] = {
    "condition": (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
    "rank": (1, 2, 3, 5, 8),
    "start": (0.1, 0.5, 0.8, 0.95, 0.99, 0.998),
    "step": (0.03, 0.2, 1.0),
    "dim": (10, 50, 200, 1000),
    "n_clients": (10, 20, 50, 200),
    "participation": (0.2, 0.5, 1.0),
}
NAMES = {"step": "eta / limit", "condition": "kappa", "start": "dist_0", "rank": "k", "dim": "d"}
NAMES |= {"n_clients": "n = p", "participation": "p / n"}
DRAWN = "drawn"
"""Settings drawn at random, on which a prediction of the least m is judged."""
FEW = "at the rival's m"
"""Runs whose m knows neither kappa nor E_0 nor a logarithm."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Sizes, heads and start; a step as a share of the largest that is allowed."""

    name: str = GRID
    n_clients: int = 50
    dim: int = 50
    rank: int = 2
    condition: float | None = 1.0
    start: float = 0.5
    step: float = 1.0
    participation: float = 1.0
    rounds: int = 60
    trials: int = 100
    noise_std: float = 0.0
    seed: int = 0

    @property
    def cost(self) -> float:
        """Those with many participants or columns first."""
        return self.n_clients * self.participation * self.rank * self.rounds * self.trials

    def problem(self) -> lf.GivenTruth:
        """Return the truths of all trials, drawn once: a kappa takes its time."""
        size = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        law = lf.SharedRepresentation(**size, condition_number=self.condition)
        truth = law.truth(self.seed, range(self.trials))
        return lf.GivenTruth(B=truth.B, W=truth.W, noise_std=self.noise_std)

    @property
    def participants(self) -> int:
        """Clients in a round."""
        return n_participants(self.participation, self.n_clients)

    @property
    def world(self) -> dict[str, Any]:
        """What runs share."""
        return {name: getattr(self, name) for name in ("participation", "rounds", "trials", "seed")}

    @property
    def rival(self) -> float:
        """Samples by a rule that knows sizes alone."""
        return self.rank + 2 + self.dim * self.rank / self.participants

    def constants(self, problem: lf.GivenTruth) -> tuple[float, float, float]:
        """Return the step, the samples that the theorem asks for with C = 1, and sigma_min bar of the median trial."""
        smallest, largest, _ = theorem1_runs.theorem1_constants(problem, rank=self.rank, **self.world)
        sizes = {"dim": self.dim, "rank": self.rank, "participants": self.participants, "start": self.start}
        with np.errstate(divide="ignore"):
            needed = theorem1.fedrep_least_samples(condition=largest / smallest, **sizes).max()
        step = self.step * EDGE * float(theorem1.fedrep_step_limit(largest).min())
        return step, float(needed), float(np.median(smallest))

    def simulated(self, problem: lf.GivenTruth, step: float, data: Any, engine: str = "chain", **own: Any) -> lf.Result:
        """Return a run."""
        algorithm = lf.FedRep(rank=self.rank, step_size=step, init=lf.AtDistance(self.start), **own)
        run = {"data": data, "engine": engine, "metrics": ["subspace_distance"], **self.world}
        return lf.simulate(algorithm, problem, **run)


@dataclass(frozen=True, kw_only=True)
class Judged(Setting):
    """One setting at the theorem's own m with C = 1, or at another."""

    m: int = 0
    fixed: bool = False
    gradient_steps: int = 0

    def run(self) -> dict[str, Any]:
        """Return the run, with what state evolution predicts of it where that exists."""
        problem = self.problem()
        step, needed, _ = self.constants(problem)
        m = self.m or math.ceil(self.rival if self.name == FEW or needed == math.inf else needed)
        own = {"heads": lf.GradientHeads(steps=self.gradient_steps)} if self.gradient_steps else {}
        data, engine = (lf.FixedSamples(m), "auto") if self.fixed else (lf.FreshSamples(m), "chain")
        run = theorem1_runs.theorem1_run(self.simulated(problem, step, data, engine, **own))
        predicted = {}
        if m > self.rank + 1 and not own and not self.fixed:
            told = {"dim": self.dim, "n_samples": m, "rounds": self.rounds, "noise_std": self.noise_std}
            told |= {"participants": self.participants, "delta": self.start, "step_size": step}
            found = lf.theory.state_evolution(problem.truth(self.seed, [0]).W[0], **told).distance
            predicted = {"predicted": lf.Along(found, round=run.rounds)}
        values = {name: getattr(run, name) for name in (*PLAIN, *OF_TRIALS)}
        return {**values, "needed": needed, "distance": lf.Along(run.distance, round=run.rounds), **predicted}


@dataclass(frozen=True, kw_only=True)
class Least(Setting):
    """The least m with which the bound holds."""

    def run(self) -> dict[str, Any]:
        """Search for the m from which on no trial fails, and for the one up to which clearly too many do."""
        problem = self.problem()
        step, needed, weak = self.constants(problem)
        top = math.ceil(self.rival)
        first = self.simulated(problem, step, lf.FreshSamples(top))
        run, failed = theorem1_runs.theorem1_run(first), {}

        def count(m: int) -> int:
            if m not in failed:
                result = first if m == first.data.n_samples else self.simulated(problem, step, lf.FreshSamples(m))
                own = replace(run, distance=result.metrics["subspace_distance"])
                failed[m] = int(theorem1_judges.beyond_bound(own).sum())
            return failed[m]

        while count(top):
            top *= 2
        for most in (0, ALLOWED * self.trials, 2.4 * ALLOWED * self.trials):
            low, high = self.rank, top  # with m = k nothing moves
            while high - low > max(1, 0.04 * high):
                middle = min(max(low + 1, round(math.sqrt(low * high))), high - 1)
                low, high = (low, middle) if count(middle) <= most else (middle, high)
        sizes = {"dim": self.dim, "rank": self.rank, "participants": self.participants, "start": self.start}
        predicted = theorem1.fedrep_predicted_samples(step_size=step, smallest=weak, allowed=ALLOWED, **sizes)
        tried = sorted(failed)
        least = least_passing(tried, [failed[m] for m in tried], self.trials, allowed=ALLOWED)
        counts = {"failed": lf.Along([failed[m] for m in tried], tried=tried)}
        names = dict(zip(("least", "least_low", "least_high"), least, strict=True))
        return {"needed": needed, "rival": self.rival, "predicted": predicted, "step_size": step, **names, **counts}


def drawn(base: Least, count: int, seed: int = 15) -> list[Least]:
    """Return settings at random, of another seed than when the prediction was made.

    Sizes, kappa, E_0, step and participation have their ranges.
    """
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")

    cells = []
    for _ in range(count):
        rank = int(rng.integers(1, 7))
        clients, dim = int(between(10 * rank, 200)), int(between(3 * rank, 1000))
        own = {"condition": between(1.0, 20.0) if rank > 1 else 1.0, "start": math.sqrt(1.0 - between(0.01, 0.95))}
        own |= {"step": between(0.05, 1.0), "participation": float(rng.choice([0.5, 1.0]))}
        cells.append(replace(base, name=DRAWN, n_clients=clients, dim=dim, rank=rank, **own))
    return cells


@dataclass(frozen=True, kw_only=True)
class SameBatch:
    """A run whose QR is looked at."""

    heads: str = "exact"
    m: int = 10
    rounds: int = 30
    trials: int = 20

    def run(self) -> dict[str, Any]:
        """Return what ``R'R = I + eta^2 G'G`` is missed by, and ``||R^{-1}||``."""
        problem = lf.SharedRepresentation(n_clients=20, dim=20, rank=2, noise_std=0.1)
        heads = lf.ExactHeads() if self.heads == "exact" else lf.GradientHeads(steps=1)
        algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9), heads=heads)
        run = {"data": lf.FreshSamples(self.m), "rounds": self.rounds, "trials": self.trials, "participation": 0.5}
        steps = lf.iterate(algorithm, problem, engine="explicit", **run)
        found = theorem1_judges.same_batch_gaps(steps, algorithm)
        rounds = range(1, self.rounds + 1)
        return {name: lf.Along(x, round=rounds) for name, x in zip(("gap", "inverse"), found, strict=True)}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A figure of the paper, and how many samples the theorem would ask for there."""

    figure: str = "3"
    n_clients: int = 100
    dim: int = 10
    m: int = 5
    participation: float = 0.1
    rank: int = 2
    rounds: int = 200
    trials: int = 20
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return the theorem's m with C = 1 over sets that occur and over those a search finds, from two starts."""
        problem = lf.SharedRepresentation(n_clients=self.n_clients, dim=self.dim, rank=self.rank)
        p = n_participants(self.participation, self.n_clients)
        size = {"participation": self.participation, "trials": self.trials, "seed": self.seed}
        seen = theorem1_runs.theorem1_constants(problem, rank=self.rank, rounds=self.rounds, **size)[:2]
        kappas = {
            "": seen,
            "_searched": theorem1.searched_singular_values(problem.truth(self.seed, range(self.trials)).W, p),
        }
        random = lf.FedRep(rank=self.rank, step_size=0.1, init="random")
        first = lf.simulate(
            random, problem, data=lf.FreshSamples(self.m), rounds=0, metrics=["subspace_distance"], **size
        )
        out: dict[str, Any] = {"participants": p, "first": first.metrics["subspace_distance"][:, 0]}
        sizes = {"dim": self.dim, "rank": self.rank, "participants": p}
        with np.errstate(divide="ignore"):
            for name, (smallest, largest) in kappas.items():
                out[f"kappa{name}"] = largest / smallest
                for start, distance in (("random", out["first"]), ("half", np.full(self.trials, 0.5))):
                    found = theorem1.fedrep_least_samples(condition=largest / smallest, start=distance, **sizes)
                    out[f"needed_{start}{name}"] = found
        return out


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The failure probability that the theorem allows, and the m at which the first round has it: k = 1, exact law."""

    n_clients: int = 2
    dim: int = 4
    start: float = 0.5
    draws: int = 8000

    def run(self) -> dict[str, Any]:
        """Return the least m, by halving, and what the theorem asks for; the interval is of the sampling alone."""
        sizes = {"dim": self.dim, "participants": self.n_clients, "start": self.start}
        needed = float(theorem1.fedrep_least_samples(rank=1, condition=1.0, **sizes))
        allowed = -100.0 * min(math.log(self.n_clients), self.dim)

        def excess(m: int) -> tuple[float, float]:
            found, error = theorem1_tail.first_round_failure(n_samples=m, draws=self.draws, **sizes)
            return found - allowed, error

        low, high = 2, 4
        while excess(high)[0] > 0.0:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if excess(middle)[0] > 0.0 else (low, middle)
        beside = 2.0 * excess(low)[1] * high / -allowed  # samples for two standard errors of the logarithm
        ends = {"least_low": float(low - beside), "least_high": float(high + beside)}
        return {"rank": 1, "log_allowed": allowed, "needed": needed, "least": float(high), **ends}
