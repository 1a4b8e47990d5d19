"""Run of FedRep as input of predictions: sizes, step sizes, and heads and initialisation of every trial."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from linfed._types import Array
from linfed.algorithms.initial import AtDistance, TrueSubspace
from linfed.algorithms.parts.heads import ExactHeads
from linfed.algorithms.parts.step_size import one_step
from linfed.algorithms.representation.compressed_fedrep import CompressedFedRep
from linfed.algorithms.representation.fedrep import FedRep
from linfed.algorithms.representation.private_fedrep import PrivateFedRep
from linfed.checks import short_repr
from linfed.data.samples import FreshSamples
from linfed.errors import NoPredictionError
from linfed.numerics.linalg import qr_positive
from linfed.prediction.law import Run
from linfed.problems import Truth
from linfed.problems.designs import is_gaussian
from linfed.simulation.job import Job
from linfed.simulation.loop import first_state
from linfed.theory.fedrep.arguments import Clients, is_orthonormal
from linfed.theory.fedrep.near_truth.any_heads import LocalMap
from linfed.theory.fedrep.rounds.state_evolution import RoundMoments

CLIPPED = 1e-3
"""Mean number of clipped messages in a run below which clipping is ignored."""


def heads_of(truth: Truth) -> tuple[Array, Array]:
    """Return the heads (n, r) of a trial in the coordinates of an orthonormal B* (d, r), and this B*.

    The heads are scaled for x of variance 1. For regressors without factors, r is the smaller of n and d.
    """
    if truth.B is None or truth.W is None:
        (Phi,) = truth.dense()
        n, d = Phi.shape
        basis, W = (np.eye(d), Phi) if n >= d else qr_positive(Phi.T)
        W = W if n >= d else W.T
    else:
        basis, R = qr_positive(truth.B[0])
        W = truth.W[0] @ R.T
    return np.sqrt(truth.design.variance or 1.0) * W, basis


@dataclass(frozen=True)
class Trial:
    """Heads (n, r) of a trial in the coordinates of an orthonormal B* (d, r), for x of variance 1, and its initial B.

    The initial B is B0, or any B at distance delta.
    """

    W: Array
    basis: Array
    delta: float | None = None
    B0: Array | None = None

    def start(self, basis: str = "B_star") -> dict[str, Any]:
        """Return the initial B as keyword arguments of predictions, where `basis` is the keyword for B*."""
        return {"delta": self.delta} if self.B0 is None else {"B0": self.B0, basis: self.basis}


@dataclass(frozen=True)
class FedRepRun(Run[FedRep]):
    """Run of FedRep to be predicted; its step sizes count `scale` times."""

    scale: float = 1.0

    @classmethod
    def of(cls, job: Job) -> FedRepRun:
        """Return the run of a job, or raise a NoPredictionError for options without predictions."""
        assert isinstance(job.algorithm, FedRep)
        run = cls(job, job.algorithm)
        if run.algorithm.disjoint_samples or run.algorithm.whiten is not None:
            raise NoPredictionError("no prediction is available for disjoint_samples = True or a whitened gradient")
        return run

    @property
    def exact(self) -> bool:
        """True if heads are exact, without a ridge."""
        return isinstance(self.algorithm.heads, ExactHeads) and self.algorithm.heads.ridge == 0

    @cached_property
    def clip(self) -> float | None:
        """Largest norm of a client's message; None without clipping, or if no message becomes so long."""
        clip = self.algorithm.clip if isinstance(self.algorithm, PrivateFedRep) else None
        return None if clip is None or self._clipped_at_most(clip) < CLIPPED else clip

    def _clipped_at_most(self, clip: float) -> float:
        """Return a bound on the mean number of clipped messages in a run; infinite if it is not known.

        It is Markov's inequality for the squared length of a message with exact heads, ``||X'r||^2 ||what||^2/m^2``.
        With ``l = m - k`` and ``tau^2 <= ||phi||^2 + sigma^2`` at any B, its mean is at most
        ``l (l + 1 + d - k) tau^2 (||phi||^2 + k tau^2/(l - 1))/m^2``.
        """
        k, d, data, design = self.algorithm.rank, self.job.sizes.dim, self.job.data, self.problem.design
        gaussian = is_gaussian(design) and design.variance is not None
        one_step = self.exact and self.algorithm.representation_steps == 1
        if not (isinstance(data, FreshSamples) and gaussian and one_step and self.fewest > k + 1):
            return np.inf
        m, worst = np.asarray(data.n_samples, dtype=float), 0.0
        left = m - k
        for number in range(self.job.trials):
            length = np.square(heads_of(self.problem.truth(self.job.seed, [number]))[0]).sum(axis=1)
            tau = length + np.square(self.problem.noise_std)
            squared = left * (left + 1 + d - k) * tau * (length + k * tau / (left - 1)) / m**2
            worst = max(worst, float(squared.mean()))
        return self.job.n_rounds * self.job.sizes.participants * worst / clip**2

    @property
    def message_noise_std(self) -> float:
        """Standard deviation of the noise on each entry of the mean message."""
        added = self.algorithm.message_noise_std if isinstance(self.algorithm, PrivateFedRep) else 0.0
        return added / self.unit

    @property
    def compression(self) -> dict[str, Any]:
        """Relative variance of sparsified messages, and whether masks are shared; empty without sparsification."""
        algorithm = self.algorithm
        if not isinstance(algorithm, CompressedFedRep) or algorithm.kept_share is None:
            return {}
        return {"compression": 1.0 / algorithm.kept_share - 1.0, "shared_mask": algorithm.shared_mask}

    @property
    def samples(self) -> int:
        """Largest number m of samples of a client."""
        return self.job.setting.samples

    @property
    def unit(self) -> float:
        """Factor from `step_size` to the step along the participants' mean gradient."""
        return self.scale * (self.job.sizes.participants if self.algorithm.aggregate == "sum" else 1)

    @property
    def steps(self) -> Array:
        """Step size along the participants' mean gradient, () or (n_rounds,)."""
        sizes = np.asarray(self.algorithm.step_size, dtype=float)
        return self.unit * (sizes if sizes.ndim == 0 else sizes[: self.job.n_rounds])

    def step(self, what: str) -> float:
        """Return the constant step size, or raise for a schedule; `what` begins the reason."""
        return self.unit * one_step(self.algorithm.step_size, what)

    @property
    def fewest(self) -> int:
        """Smallest number m of samples of a client."""
        return int(np.min(self.job.data.n_samples)) if isinstance(self.job.data, FreshSamples) else self.samples

    @property
    def differing(self) -> str:
        """In what the clients differ, as a word; empty if they are equal."""
        unequal = isinstance(self.job.data, FreshSamples) and self.job.data.unequal
        noisy, weighted = np.ndim(self.problem.noise_std) > 0, self.algorithm.weights is not None
        found = {"numbers of fresh samples": unequal, "noise_std": noisy, "weights": weighted}
        return next((name for name, differs in found.items() if differs), "")

    @property
    def sizes(self) -> dict[str, Any]:
        """Keyword arguments dim, n_samples and participants of predictions, and weights if they are given."""
        sizes, data = self.job.sizes, self.job.data
        counts = data.n_samples if isinstance(data, FreshSamples) else self.samples
        found: dict[str, Any] = {"dim": sizes.dim, "n_samples": counts, "participants": sizes.participants}
        return found if self.algorithm.weights is None else found | {"weights": self.algorithm.weights}

    @property
    def setting(self) -> dict[str, Any]:
        """Keyword arguments of predictions, without heads and initial B."""
        step_size = self.steps if self.steps.size else 1.0  # unused without rounds
        return {
            **self.sizes,
            "step_size": step_size,
            "n_rounds": self.job.n_rounds,
            "noise_std": self.problem.noise_std,
        }

    @cached_property
    def trials(self) -> list[Trial]:
        """Heads and initial B of every trial."""
        return [self._trial(number) for number in range(self.job.trials)]

    def _trial(self, number: int) -> Trial:
        W, basis = heads_of(self.problem.truth(self.job.seed, [number]))
        init = self.algorithm.initialization
        if isinstance(init, AtDistance | TrueSubspace):
            return Trial(W, basis, delta=init.delta if isinstance(init, AtDistance) else 0.0)
        B0 = first_state(self.job, number).array("B")[0]
        if not is_orthonormal(B0):
            raise NoPredictionError(
                f"no prediction of the first round is available for init = {short_repr(init)}, whose columns are not "
                "orthonormal: give its Q factor"
            )
        return Trial(W, basis, B0=B0)

    @cached_property
    def truth_rank(self) -> int | None:
        """Rank r of the ground truth, as in `heads_of`; None if its top subspace is not the reference subspace."""
        if self.problem.truth_rank is not None:
            return self.problem.truth_rank
        truth = self.problem.truth(self.job.seed, [0])
        plain = truth.B is None and truth.subspace is None
        return min(self.job.sizes.n_clients, self.job.sizes.dim) if plain else None

    @cached_property
    def clients(self) -> Clients:
        """Sizes of a round, and numbers of samples, noise variances and weights of the clients."""
        n, sizes = self.job.sizes.n_clients, self.sizes | {"noise_std": self.problem.noise_std}
        sizes |= {"message_noise_std": self.message_noise_std, **self.compression}
        return Clients.checked(n, self.algorithm.rank, **sizes, near=True)

    @cached_property
    def maps(self) -> list[LocalMap]:
        """Linear map of a round near B* for the heads of every trial."""
        return [LocalMap.of(RoundMoments.of(trial.W, self.clients)) for trial in self.trials]
