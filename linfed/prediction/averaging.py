"""What is known of the averaging family on samples that stay: fixed points, mean iterations, what spread is left."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from linfed._types import Array
from linfed.algorithms.averaging import SCAFFOLD, ClusterFedVARP, FedAvg, FedProx, FedRolex, FedSCAVAR, FedVARP
from linfed.algorithms.averaging.base import Averaging
from linfed.algorithms.base import State
from linfed.data.explicit import normal_equations
from linfed.data.samples import FixedSamples, FreshSamples, GivenSamples
from linfed.data.sources import draw_fixed
from linfed.errors import LawError, shown
from linfed.prediction.answers import Asked, Prediction, Quantity
from linfed.prediction.others import one_step
from linfed.simulation.engines import drawn_in_law
from linfed.simulation.job import Job
from linfed.simulation.metrics import client_risks
from linfed.theory.averaging import fedavg_fixed_point, fedavg_rate
from linfed.theory.partial import fedavg_stationary_covariance, scaffold_iteration_matrix
from linfed.theory.rolling import fedrolex_cycle

NO_B = "no law of the distance is known for one-layer {}, which learns no representation B"

MEAN = "exact in the end, of the distance of the mean over participants from the fixed point"

SCAN = 50
"""Steps at which the rate is looked at for its edge, over a factor of ten thousand."""


class Equations(NamedTuple):
    """A trial's normal equations A (n, d, d) and b (n, d), and the clients' weights, None for equal ones."""

    A: Array
    b: Array
    weights: Array | None


def of_averaging(job: Job, algorithm: Averaging) -> Prediction:
    """Return fixed point, mean iteration, its best step and edge, and what the choice of participants leaves."""
    name = type(algorithm).__name__
    _check(job, algorithm, name)
    step = one_step(algorithm.step_size, name)
    everybody = job.sizes.participants == job.sizes.n_clients

    def each(measure: Callable[[Equations], float], source: str, validity: str) -> Callable[[], Quantity]:
        return lambda: Quantity(np.array([measure(one) for one in _equations(job, algorithm)]), source, validity)

    def rate(one: Equations, step_size: float = step) -> float:
        return _rate(one, algorithm, step_size, job.sizes.participants)

    def edge(one: Equations) -> float:
        return _edge(one, lambda step_size: rate(one, step_size))

    def best(one: Equations) -> float:
        from scipy import optimize

        last = np.log(edge(one))
        found = optimize.minimize_scalar(
            lambda log: rate(one, float(np.exp(log))),
            bounds=(last + np.log(1e-3), last),
            method="bounded",
            options={"xatol": 1e-6},
        )
        return float(np.exp(found.x))

    def floor() -> Quantity:
        if job.problem is None:
            raise LawError("no risk is known without a truth: give problem=")
        values = []
        for trial, one in enumerate(_equations(job, algorithm)):
            truth = job.problem.truth(job.seed, [trial])
            theta = _end(one, algorithm, step, job.rounds)
            risk = float(client_risks(State(S=theta[None, None]), truth).mean())
            if not everybody and type(algorithm) in (FedAvg, FedProx):
                spread = fedavg_stationary_covariance(
                    one.A, one.b, participants=job.sizes.participants, **_steps(algorithm, step),
                    server_step_size=algorithm.server_step_size,
                )  # fmt: skip
                values_, vectors = np.linalg.eigh(spread)
                rows = np.sqrt(np.maximum(values_, 0.0))[:, None] * vectors.T
                risk += 0.5 * float(np.square(job.problem.design.root_apply(rows)).sum())
            values.append(risk)
        return Quantity(np.array(values), SOURCES[type(algorithm)], "exact on average, for these samples", "risk")

    law: Asked = floor
    if isinstance(algorithm, ClusterFedVARP) and not everybody and algorithm.n_clusters < job.sizes.n_clients:
        law = "no law of the floor is known for ClusterFedVARP where some take part: it wanders about its mean"
    if isinstance(algorithm, FedRolex) and not everybody:
        law = "no law of the floor is known for FedRolex where some take part: it wanders about its cycle"
    source = SOURCES[type(algorithm)]
    return Prediction(
        law="cycle" if isinstance(algorithm, FedRolex) else "fixed point",
        source=source,
        validity="one layer, full gradients, samples that stay",
        rounds=np.arange(job.rounds + 1),
        _curves=NO_B.format(name),
        _quantities={
            "rate": each(rate, RATES.get(type(algorithm), "theory.fedavg_rate"), MEAN),
            "floor": law,
            "stability_edge": each(edge, source, "of the mean"),
            "best_step": each(best, source, "of the mean"),
        },
    )


SOURCES: dict[type[Averaging], str] = {
    FedAvg: "theory.fedavg_fixed_point",
    FedProx: "theory.fedavg_fixed_point",
    FedVARP: "theory.fedavg_fixed_point",
    ClusterFedVARP: "theory.fedavg_fixed_point",
    SCAFFOLD: "the pooled least squares",
    FedSCAVAR: "the pooled least squares",
    FedRolex: "theory.fedrolex_cycle",
}
"""Where the end of each is derived."""

RATES: dict[type[Averaging], str] = {
    **dict.fromkeys((SCAFFOLD, FedSCAVAR), "theory.scaffold_iteration_matrix"),
    FedRolex: "theory.fedrolex_cycle",
}
CORRECTED = (SCAFFOLD, FedSCAVAR)


def _check(job: Job, algorithm: Averaging, name: str) -> None:
    """Raise unless a law speaks of the run."""
    some = job.sizes.participants < job.sizes.n_clients
    if algorithm.rank is not None:
        raise LawError(f"no law of {name} is known for rank = {algorithm.rank}: the model must have one layer")
    if algorithm.local_epochs is not None:
        raise LawError(f"no law of {name} is known for local_epochs = {algorithm.local_epochs}: full gradients alone")
    if isinstance(job.data, FreshSamples):
        raise LawError(
            f"no law of {name} is known for FreshSamples (theory.single_model_floor bounds every single model's risk)"
        )
    if isinstance(job.data, FixedSamples) and drawn_in_law(job.data, job.sizes.n_clients, job.sizes.dim):
        raise LawError(
            f"no law of {name} is known for samples in law: its fixed point is that of samples that are drawn"
        )
    if some and not isinstance(job.participation, int | float):
        raise LawError(f"no law of {name} is known for participants that are named: they must be drawn")
    unequal = isinstance(job.data, GivenSamples) and np.ptp(job.data.counts) > 0
    if algorithm.weights == "samples" and unequal and (some or isinstance(algorithm, CORRECTED)):
        raise LawError(f'no law of {name} is known for weights = "samples" where counts differ and some take part')
    if isinstance(algorithm, FedRolex) and some and np.ptp(algorithm.model_share) > 0:
        raise LawError("no law of FedRolex is known for model_share = one each where some take part: one for all")
    if isinstance(algorithm, FedSCAVAR) and np.min(algorithm.model_share) < 1:
        raise LawError(f"no law of FedSCAVAR is known for model_share = {shown(algorithm.model_share)}: it must be 1")
    if isinstance(algorithm, SCAFFOLD) and algorithm.controls != "change":
        raise LawError(f"no law of SCAFFOLD is known for controls = {algorithm.controls!r}: it must be 'change'")


def _steps(algorithm: Averaging, step_size: float) -> dict[str, Any]:
    return {
        "step_size": step_size,
        "local_steps": algorithm.local_steps,
        "mu": algorithm.mu if isinstance(algorithm, FedProx | FedSCAVAR) else 0.0,
    }


def _end(one: Equations, algorithm: Averaging, step_size: float, rounds: int) -> Array:
    """Return where the mean ends, (d,); where it goes round in a cycle, after a last round of this number."""
    if isinstance(algorithm, FedRolex):
        cycle, rate_ = _cycle(one, algorithm, step_size)
        if rate_ >= 1.0:
            raise LawError(f"step_size = {step_size:g}: FedRolex diverges, rate {rate_:.4g}; take a smaller step")
        return cycle[rounds % len(cycle)]
    if isinstance(algorithm, CORRECTED):
        return fedavg_fixed_point(one.A, one.b, step_size=step_size, weights=one.weights, stable=False)
    return fedavg_fixed_point(one.A, one.b, weights=one.weights, **_steps(algorithm, step_size))


def _rate(one: Equations, algorithm: Averaging, step_size: float, participants: int) -> float:
    """Return the spectral radius of the mean iteration."""
    server = algorithm.server_step_size
    if isinstance(algorithm, CORRECTED):
        matrix = scaffold_iteration_matrix(
            one.A, participants=participants, server_step_size=server, **_steps(algorithm, step_size)
        )
        return float(np.abs(np.linalg.eigvals(matrix)).max()) if np.isfinite(matrix).all() else np.inf
    if isinstance(algorithm, FedRolex):
        return _cycle(one, algorithm, step_size)[1]
    found = fedavg_rate(one.A, server_step_size=server, weights=one.weights, **_steps(algorithm, step_size))
    return float(found) if np.isfinite(found) else np.inf


def _cycle(one: Equations, algorithm: FedRolex, step_size: float) -> tuple[Array, float]:
    return fedrolex_cycle(
        one.A,
        one.b,
        step_size=step_size,
        model_share=algorithm.model_share,
        local_steps=algorithm.local_steps,
        server_step_size=algorithm.server_step_size,
        weights=one.weights,
        aggregation=algorithm.aggregation,
    )


def _edge(one: Equations, rate: Callable[[float], float]) -> float:
    """Return the least step at which the mean iteration no longer converges."""
    from scipy import optimize

    scale = 2.0 / float(np.linalg.eigvalsh(one.A).max())
    steps = scale * np.geomspace(1e-2, 1e2, SCAN)
    for low, high in itertools.pairwise(steps.tolist()):
        if rate(high) >= 1.0:
            return float(optimize.brentq(lambda step: min(rate(step), 2.0) - 1.0, low, high, xtol=1e-12 * scale))
    raise LawError("no edge was found")


def _equations(job: Job, algorithm: Averaging) -> Iterator[Equations]:
    """Yield every trial's equations."""
    shape = (job.sizes.n_clients, job.setting.samples, job.sizes.dim)
    for trial in range(job.trials):
        if isinstance(job.data, GivenSamples):
            (X, y, counts), weights = job.data.of_trials([trial]), job.data.counts
        else:
            assert job.problem is not None
            X, y = draw_fixed(job.problem.truth(job.seed, [trial]), shape, job.seed, [trial])
            counts, weights = np.full(X.shape[:2], float(shape[1])), np.ones(shape[0])
        A, b = normal_equations(X[0], y[0], counts[0])
        yield Equations(A, b, weights if algorithm.weights == "samples" else None)
