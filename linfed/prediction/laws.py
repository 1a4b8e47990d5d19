"""The laws of FedRep's distance, one entry each: name, source, range, curves, what is known near their end, doubts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from linfed.prediction.answers import Asked, Curves, Quantity
from linfed.prediction.cases import Case, Trial
from linfed.theory.fedrep.any_heads import LocalMap, typical_distance
from linfed.theory.fedrep.state_evolution import state_evolution

FAR_START = 0.97
"""Distance from which a start is left when chance has it."""

LARGE_STEP = 1.4
"""Multiple of the best step from which few and rare rounds rule the means."""

NEAR = "near B*, in mean square; single runs fall a little faster, clearly so where d is small"

NEAR_FLOOR = "steps below the edge: within 1 % of the median of runs up to a distance of 0.05, 7 % high at 0.1"


@dataclass(frozen=True)
class Law:
    """A law of the distance.

    Parameters
    ----------
    name, source, validity : str
        What it is called, where it is derived, where it holds.
    participants : int
        Clients in a round from which on it holds.
    curves : callable
        Of one trial.
    near : callable
        What is known where the runs end.
    """

    name: str
    source: str
    validity: str
    participants: int
    curves: Callable[[Case, Trial], Curves]
    near: Callable[[Case], dict[str, Asked]]

    def doubts(self, case: Case, curves: Curves) -> tuple[str, ...]:
        """Return where the picture fails for a run."""
        p, start = case.job.sizes.participants, float(np.max(curves.distance[..., 0]))
        found = list(curves.doubts)
        if p < self.participants:
            found.append(
                f"{p} clients take part in a round, fewer than {self.participants}: a round fluctuates, and a typical "
                "run is not what the means say"
            )
        if start > FAR_START:
            found.append(f"the start at {start:.3g} is above {FAR_START}: when a run leaves it is a matter of chance")
        return tuple(found)


def near_truth(case: Case) -> dict[str, Asked]:
    """Return what is known near B*, with exact heads and a truth of rank k."""
    noise_std, d = case.problem.noise_std, case.job.sizes.dim

    def asked(
        each: Callable[[LocalMap], float], source: str, validity: str = NEAR, metric: str = ""
    ) -> Callable[[], Quantity]:
        return lambda: Quantity(np.array([each(here) for here in case.maps]), f"theory.{source}", validity, metric)

    def floor(here: LocalMap) -> float:
        return float(typical_distance(here.floor(case.step("the floor is known for"), noise_std, d), dim=d))

    def rate(here: LocalMap) -> float:
        return float(np.sqrt(here.factor(case.step("the rate is known for"))))

    return {
        "floor": asked(floor, "local_floor", NEAR_FLOOR, "subspace_distance"),
        "rate": asked(rate, "local_factor", metric="subspace_distance"),
        "stability_edge": asked(lambda here: here.edge() / case.unit, "stability_edge"),
        "best_step": asked(lambda here: here.best() / case.unit, "local_best_step"),
    }


def _step_doubts(case: Case) -> list[str]:
    """Return what is said against the largest step, by the first trial's heads."""
    if not case.steps.size:
        return []
    largest, here = float(case.steps.max()), case.maps[0]
    told, edge, best = f"step_size = {largest / case.unit:.4g}", here.edge(), here.best()
    if largest >= edge:
        return [f"{told} is not below stability_edge = {edge / case.unit:.4g}: in mean square not every angle falls"]
    if largest > LARGE_STEP * best:
        return [f"{told} is {largest / best:.2g} times best_step: few and rare rounds rule the means"]
    return []


def _means(case: Case, trial: Trial) -> Curves:
    found, k, doubts = state_evolution(trial.W, **case.setting, **trial.start), case.algorithm.rank, _step_doubts(case)
    if case.samples <= k + 3:
        doubts.append(
            f"n_samples = {case.samples} is at most rank + 3 = {k + 3}: heads have no fourth moments, and few and rare "
            "rounds rule the means"
        )
    return Curves(found.distance, doubts=tuple(doubts))


MEANS = Law(
    name="means",
    source="theory.state_evolution: the exact means of a round, iterated",
    validity="20 clients a round or more, steps up to 1.1 best_step, starts up to 0.9: 1 to 15 % below the median of "
    "runs; without a band",
    participants=20,
    curves=_means,
    near=near_truth,
)
