"""A run of FedRep as its laws take it: sizes, steps, and every trial's heads and start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from linfed._types import Array
from linfed.algorithms.fedrep import FedRep
from linfed.algorithms.heads import ExactHeads
from linfed.algorithms.initial import AtDistance, TrueSubspace
from linfed.algorithms.step_size import one_step
from linfed.errors import LawError, shown
from linfed.numerics.linalg import qr_positive
from linfed.problems import Problem, Truth
from linfed.simulation.job import Job
from linfed.simulation.loop import first_state
from linfed.theory.fedrep.any_heads import LocalMap
from linfed.theory.fedrep.state_evolution import ORTHONORMAL_TOLERANCE, HeadMoments


def heads_of(truth: Truth) -> tuple[Array, Array]:
    """Return a trial's heads (n, r), for x of variance 1, in the coordinates of an orthonormal B* (d, r), and that."""
    assert truth.B is not None
    assert truth.W is not None
    basis, R = qr_positive(truth.B[0])
    return np.sqrt(truth.design.variance or 1.0) * truth.W[0] @ R.T, basis


@dataclass(frozen=True)
class Trial:
    """A trial's heads (n, r) in the coordinates of the orthonormal B*, for x of variance 1, and its start."""

    W: Array
    start: Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A run of FedRep of which a law is asked."""

    job: Job
    algorithm: FedRep
    problem: Problem

    @property
    def exact(self) -> bool:
        """Whether heads are least squares."""
        return isinstance(self.algorithm.heads, ExactHeads) and self.algorithm.heads.ridge == 0

    @property
    def samples(self) -> int:
        """m, the most of a client."""
        return self.job.setting.samples

    @property
    def unit(self) -> int:
        """What a step of 1 is along the participants' mean gradient."""
        return self.job.sizes.participants if self.algorithm.aggregate == "sum" else 1

    @property
    def steps(self) -> Array:
        """The step along the participants' mean gradient, (), or in every round, (rounds,)."""
        held = np.asarray(self.algorithm.step_size, dtype=float)
        return self.unit * (held if held.ndim == 0 else held[: self.job.rounds])

    def step(self, what: str) -> float:
        """Return the step of all rounds, or raise: `what` speaks of one."""
        return self.unit * one_step(self.algorithm.step_size, what)

    @property
    def sizes(self) -> dict[str, int]:
        """What laws call dim, n_samples and participants."""
        sizes = self.job.sizes
        return {"dim": sizes.dim, "n_samples": self.samples, "participants": sizes.participants}

    @property
    def setting(self) -> dict[str, Any]:
        """What laws are told beside heads and start."""
        step_size = self.steps if self.steps.size else 1.0  # of no round
        return {**self.sizes, "step_size": step_size, "rounds": self.job.rounds, "noise_std": self.problem.noise_std}

    @cached_property
    def trials(self) -> list[Trial]:
        """Every trial's heads and start."""
        return [self._trial(number) for number in range(self.job.trials)]

    def _trial(self, number: int) -> Trial:
        W, basis = heads_of(self.problem.truth(self.job.seed, [number]))
        init = self.algorithm.initialisation
        if isinstance(init, AtDistance | TrueSubspace) and W.shape[1] == self.algorithm.rank:
            return Trial(W, {"delta": init.delta if isinstance(init, AtDistance) else 0.0})
        B0 = first_state(self.job, number).array("B")[0]
        if np.abs(B0.T @ B0 - np.eye(B0.shape[1])).max() > ORTHONORMAL_TOLERANCE:
            raise LawError(
                f"no law of the first round is known for init = {shown(init)}, whose columns are not orthonormal: give "
                "its Q factor"
            )
        return Trial(W, {"B0": B0, "B_star": basis})

    @cached_property
    def maps(self) -> list[LocalMap]:
        """What a round does near B*, for every trial's heads."""
        n = self.job.sizes.n_clients
        return [LocalMap.of(HeadMoments.of(trial.W), n_clients=n, **self.sizes) for trial in self.trials]
