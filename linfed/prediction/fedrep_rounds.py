"""Laws of FedRep's distance in every round on fresh samples, in the order in which they are asked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from linfed._types import Array
from linfed.algorithms.parts.heads import GradientHeads
from linfed.algorithms.representation.private_fedrep import PrivateFedRep
from linfed.checks import check_noise_std
from linfed.errors import NoPredictionError
from linfed.prediction.cases import FedRepRun, Trial
from linfed.prediction.conditions import ROUND, equal_clients, no_message_noise, rank_k, second_moments, two_rank
from linfed.prediction.fedrep_near_truth import (
    NEAR_END,
    STEP_OF_MEANS,
    FedRepLaw,
    NearTruth,
    step_doubts,
)
from linfed.prediction.law import Limits, above, doubts_of
from linfed.prediction.prediction import Asked, Curves, Quantity, Slow, joined
from linfed.simulation.engines import obstacle
from linfed.simulation.job import Job, seconds_of_a_trial
from linfed.theory.fedrep.near_truth.without_qr import unnormalized_evolution
from linfed.theory.fedrep.rounds.gradient_heads import gradient_heads_evolution
from linfed.theory.fedrep.rounds.second_order import SecondOrder as Evolution
from linfed.theory.fedrep.rounds.second_order import second_order_evolution, second_order_floor
from linfed.theory.fedrep.rounds.state_evolution import state_evolution
from linfed.theory.fedrep.rounds.under_parameterized import under_parameterized_evolution, under_parameterized_floor

CHAIN_CLIENTS = 1000
"""Number of clients up to which some hundred runs with engine "chain" cost about as much as a prediction."""

CHAIN_TRIALS = 300

FAR_START = 0.97
"""Initial distance above which the time of escape depends on chance."""

FEW = (0.0, "n_samples = {} is at most rank + 3: few and rare rounds dominate the means")
"""Limit of the numbers of samples that `few_samples` returns."""

FEWER = 12
"""Number of participants below which gradient heads are predicted for smaller fluctuations only."""

HEADS = 2**22
"""Number of head entries, over all trials, that are processed together."""

LARGEST_RANK = 16
"""Largest rank for which the eighth moments of the heads fit into memory."""

LOST = 1.0
"""Variance of log distance^2 that participants add in a round, above which means over gradient heads are wrong."""

MEDIAN_FLOOR = "the median of runs within 5 %, step sizes up to 0.98 of the stability edge"

RIGHT_ANGLE = (
    "no prediction of the distance is available from an initial distance of 1: at a right angle the mean of a round "
    "does not move B, so chance determines when the distance falls; use a smaller initial distance"
)

SPREADS = ("round_log_variance", "log_std")
"""Facts of `linfed.theory.SecondOrder`."""

UNEVEN = 4.0
"""Ratio of the eigenvalues of the heads' second moment up to which B grows alike in all columns without QR."""

SECOND_ORDER_LIMITS: Limits = {
    "round_log_variance": (
        0.2,
        "a round adds {} to the variance of log distance^2, above {}: second order is not enough",
    ),
    "log_std": (0.4, "log distance spreads by {} over runs, above {}: its tails are not Gaussian"),
    "selection": (
        0.3,
        "the choice of participants changes the pull on B by a relative variance of {}, above {}: few clients decide "
        "a round",
    ),
    "stride": (
        0.35,
        "a single participant moves B by {} of the way along its head, above {}: few clients decide a round",
    ),
}


class InRounds(FedRepLaw):
    """Distance in every round, from the heads and the initial B of every trial.

    Attributes
    ----------
    participants : int
        Smallest number of participants for which the prediction holds.
    step : float, optional
        Largest multiple of the best step size for which the prediction holds, if this is known.
    """

    participants: ClassVar[int] = 20
    step: ClassVar[float | None] = None

    @abstractmethod
    def evolution(self) -> Curves:
        """Return the curves of all trials."""

    def curves(self) -> Curves | str:
        """Return the distance, or the message from a right angle."""
        found = self.evolution()
        orthogonal = bool(np.max(found.distance[..., 0]) > 1.0 - 1e-12)
        if orthogonal and not self.quantities():
            raise NoPredictionError(RIGHT_ANGLE)
        return RIGHT_ANGLE if orthogonal else found

    def doubts(self, curves: Curves | str) -> Iterator[str]:
        """Yield warnings about facts, step sizes, few participants and a far start."""
        yield from super().doubts(curves)
        if isinstance(curves, str):
            return
        if self.step is not None:
            yield from step_doubts(self.run, self.step)
        p, start = self.run.job.sizes.participants, float(np.max(curves.distance[..., 0]))
        if p < self.participants:
            yield f"a round has {p} participants, fewer than {self.participants}: rounds fluctuate too much"
        if start > FAR_START + 1e-9:  # of an initial B, up to rounding error
            told = above(start, FAR_START)
            yield f"the initial distance {told} is above {FAR_START}: the time of escape depends on chance"

    def notes(self) -> tuple[str, ...]:
        """Return a note on runs of engine "chain"."""
        return chain_notes(self.run.job)

    def few_samples(self) -> dict[str, float]:
        """Return n_samples as a fact if heads have no fourth moments."""
        return {"few": float(self.run.fewest)} if self.run.fewest <= self.run.algorithm.rank + 3 else {}


class TrialByTrial(InRounds):
    """The same, where the curves of a trial do not depend on the others."""

    def evolution(self) -> Curves:
        """Return the curves of all trials."""
        return joined([self.evolution_of(trial) for trial in self.run.trials])

    @abstractmethod
    def evolution_of(self, trial: Trial) -> Curves:
        """Return the curves of a trial."""


class GradientDescentHeads(TrialByTrial):
    """Heads by gradient steps."""

    runs = "gradient heads, fresh samples"
    gives = ("distance",)
    name = "gradient heads"
    source = "theory.gradient_heads_evolution: means over a population of clients, the median over runs"
    validity = (
        "12 clients a round or more, k up to 5, initial distances up to 0.95, rounds in which participants add at "
        "most 0.4 to the variance of log distance^2: the median of runs within 10 % in 20 rounds of 342 of 343 random "
        "settings, within 6 % in 95 % of them; with 5 to 11 clients, at most 0.2; without a band"
    )
    conditions = (*ROUND, no_message_noise, rank_k, two_rank, equal_clients)
    limits: ClassVar[Limits] = {
        "participants": (
            0.4,
            "participants add {} to the variance of log distance^2 in a round, above {}: the median may be more "
            "than 10 % off",
        ),
        "fewer": (
            0.2,
            f"fewer than {FEWER} participants add {{}} to the variance of log distance^2 in a round, above {{}}: the "
            "median may be more than 10 % off",
        ),
        "lost": (
            LOST,
            "participants add {} to the variance of log distance^2 in a round, above {}: few and rare batches or "
            "clients dominate the means; run lf.simulate(..., trials=300) instead",
        ),
    }
    participants = 5

    def concerns(self) -> bool:
        """Return True if heads are not exact."""
        return not self.run.exact

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the median of a trial."""
        run, heads = self.run, self.run.algorithm.heads
        assert isinstance(heads, GradientHeads)
        size = heads.step_size
        if size is None and run.unit * run.variance != 1:  # step size of B without the factor of the sum
            size = run.step("gradient heads require") / run.unit
        size = None if size is None else run.variance * size
        found = gradient_heads_evolution(
            trial.W, head_steps=heads.steps, head_step_size=size, **run.setting, **trial.start()
        )
        kick, few = float(found.round_log_variance.max(initial=0.0)), run.job.sizes.participants < FEWER
        shown = kick if kick <= LOST else 0.0
        return Curves(found.distance, facts={"participants": shown, "fewer": shown if few else 0.0, "lost": kick})


class UnderParameterised(TrialByTrial):
    """Ground truth of rank r > k: distance from the top-k subspace U_k, and quantities near it."""

    runs = "exact heads, fresh samples, ground truth of rank r > k"
    gives = ("distance", "floor", "rate")
    name = "under-parameterised"
    source = "theory.under_parameterized_evolution: rows of B in the eigenbasis of the clients' second moment"
    validity = (
        "the median within 2 to 6 % for 40 clients a round or more, initial distances from 0.7 to 0.9, step sizes "
        "up to 0.6/lambda_1; without a band"
    )
    range = f"distance from the top-k subspace; {validity}"
    conditions = (*ROUND, no_message_noise, two_rank, equal_clients, second_moments)
    limits: ClassVar[Limits] = {
        "pull": (
            0.6,
            "step_size times the clients' largest second moment is {}, above {}: the prediction was not tested there",
        ),
        "end": (0.4, "the final distance is {}, above {}: far from U_k the prediction is 10 % too low"),
        "chance": (
            0.9,
            "chance changes the part of B outside U_k by {}, above {}: single rounds may be off by a factor of 2",
        ),
        "few": FEW,
    }
    participants = 40

    def concerns(self) -> bool:
        """Return True for a ground truth of rank r > k."""
        return (self.run.truth_rank or 0) > self.run.algorithm.rank

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the distance of a trial."""
        run = self.run
        found = under_parameterized_evolution(trial.W, rank=run.algorithm.rank, **run.setting, **trial.start("U"))
        pull = float(np.linalg.norm(trial.W, 2) ** 2 / len(trial.W) * np.max(run.steps, initial=0.0))
        facts = {"pull": pull, "end": float(found.distance[-1]), "chance": float(found.chance.max())}
        return Curves(found.distance, facts=facts | self.few_samples())

    def floor(self) -> Quantity:
        """Return the stationary distance."""
        run, step, k = self.run, self.run.step("the floor requires"), self.run.algorithm.rank
        noise_std = check_noise_std(run.problem.noise_std)
        values = [
            under_parameterized_floor(trial.W, rank=k, step_size=step, noise_std=noise_std, **run.sizes).distance
            for trial in run.trials
        ]
        valid = "small step sizes: within 1 % at eta lambda_1 up to 0.08, 4 % too low at 0.3"
        return Quantity(np.array(values), "theory.under_parameterized_floor", valid, "subspace_distance")

    def rate(self) -> Quantity:
        """Return the factor of the slowest component."""
        run, step, k, rates = self.run, self.run.step("the rate requires"), self.run.algorithm.rank, []
        c = 1.0 - k / run.samples
        for trial in run.trials:
            values = np.zeros(run.job.sizes.dim)
            found = np.linalg.svd(trial.W, compute_uv=False) ** 2 / len(trial.W)
            values[: len(found)] = found
            gaps = values[k - 1] - values[k], values[0] - values[-1]
            rates.append(max(abs(1.0 - step * c * gap) for gap in gaps))
        valid = "near U_k, in the mean over samples: 1 - eta c (lambda_k - lambda_(k+1)) for small step sizes"
        return Quantity(np.array(rates), "theory.one_round_means at U_k", valid, "subspace_distance")


class WithoutQR(TrialByTrial):
    """B that is not orthonormalised: the step size shrinks as B grows."""

    runs = "exact heads, fresh samples, orthonormalize = False, one step size, m >= k + 2"
    gives = ("distance",)
    name = "without QR"
    source = "theory.unnormalized_evolution: growth of B; theory.second_order_evolution with its effective step sizes"
    validity = (
        "the median within 5 % for m >= k + 4, 12 clients a round or more, and a second moment of the heads whose "
        "eigenvalues differ by a factor of up to 4; for m = k + 2 or k + 3 it is 8 to 25 % too low; without a band"
    )
    conditions = (*ROUND, rank_k, two_rank, second_moments)
    limits: ClassVar[Limits] = {
        **SECOND_ORDER_LIMITS,
        "uneven": (
            UNEVEN,
            "the largest eigenvalue of the heads' second moment is {} times the smallest, above {}: the columns of "
            "B grow unevenly",
        ),
        "few": FEW,
    }
    participants = 12

    def concerns(self) -> bool:
        """Return True without QR."""
        return not self.run.algorithm.orthonormalize

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the median of a trial."""
        run, k, start = self.run, self.run.algorithm.rank, trial.start()
        step, values = run.step("the distance requires"), np.linalg.svd(trial.W, compute_uv=False) ** 2
        found = unnormalized_evolution(trial.W, **run.setting | {"step_size": step}, **start)
        facts = {"uneven": float(values[0] / values[-1]) if values[-1] > 0 else np.inf}
        if run.samples <= k + 3 or k > LARGEST_RANK or not run.job.n_rounds:
            return Curves(found.distance, facts=facts | self.few_samples())
        steps = step / found.squared_length[:-1]
        median = second_order_evolution(trial.W, **run.setting | {"step_size": steps}, **start)
        return Curves(median.distance, facts=facts | second_order_facts(run, [trial], [median]))


class SecondOrder(InRounds, NearTruth):
    """Median and band."""

    runs = f"exact heads, fresh samples, m >= k + 4 for all clients, k <= {LARGEST_RANK}"
    gives = ("distance", "low", "high", *NEAR_END)
    name = "second order"
    source = "theory.second_order_evolution: mean and covariance of a round, log-Cholesky closure"
    validity = (
        "the median within 5 % and the band within 10 %, within 2 and 5 % in most runs, for m > k + 3, initial "
        "distances up to 0.97, rounds that add at most 0.2 to the variance of log distance^2, a spread of log distance "
        "up to 0.4, and participants of which few do not decide a round"
    )
    conditions = (*ROUND, rank_k, two_rank, second_moments)
    limits = SECOND_ORDER_LIMITS
    or_next = True
    participants = 1

    def concerns(self) -> bool:
        """Return True if rounds have fourth moments, and those of order eight of the heads fit into memory."""
        run, k = self.run, self.run.algorithm.rank
        return run.fewest > k + 3 and k <= LARGEST_RANK

    def evolution(self) -> Curves:
        """Return the median and the band of all trials, some trials at a time."""
        trials = self.run.trials
        together, found = max(1, HEADS // trials[0].W.size), []
        for start in range(0, len(trials), together):
            some = trials[start : start + together]
            W, at = np.stack([trial.W for trial in some]), some[0].start()
            if some[0].B0 is not None:
                at = {name: np.stack([trial.start()[name] for trial in some]) for name in at}
            found.append(second_order_evolution(W, **self.run.setting, **at))
        distance, low, high = (
            np.concatenate([getattr(one, name) for one in found]) for name in ("distance", "low", "high")
        )
        return Curves(distance, low, high, second_order_facts(self.run, trials, found))

    def quantities(self) -> dict[str, Asked]:
        """Return the quantities near B*, with the stationary median as floor if labels have noise."""
        noisy = bool(np.any(self.run.problem.noise_std))
        return super().quantities() | ({"floor": Slow(self.median_floor, self.floor_step)} if noisy else {})

    def floor_step(self) -> float:
        """Return the step size, or raise if there is no floor."""
        self.check_spanned()
        step = self.run.step("the floor requires")
        for here in self.run.maps:
            here.floor(step)  # raises from the stability edge on, and without an edge
        return step

    def median_floor(self) -> Quantity:
        """Return the stationary median."""
        run, step = self.run, self.floor_step()
        W, noise_std = np.stack([trial.W for trial in run.trials]), run.problem.noise_std
        found = second_order_floor(W, step_size=step, noise_std=noise_std, **run.sizes)
        facts = second_order_facts(run, run.trials, [found])
        valid = "; ".join(doubts_of(facts, self.limits)) or MEDIAN_FLOOR
        return Quantity(found.distance, "theory.second_order_floor", valid, "subspace_distance")


class Means(TrialByTrial, NearTruth):
    """Root mean square."""

    runs = f"exact heads, fresh samples, m = k + 2 or k + 3 for a client, or k > {LARGEST_RANK}"
    gives = ("distance", *NEAR_END)
    name = "means"
    source = "theory.state_evolution: the exact means of a round, iterated"
    validity = (
        "20 clients a round or more, step sizes up to 1.1 best_step, initial distances up to 0.9: 1 to 15 % below "
        "the median of runs; without a band"
    )
    conditions = (*ROUND, rank_k, two_rank, second_moments)
    limits: ClassVar[Limits] = {
        "rank": (LARGEST_RANK, "rank = {} is above {}: the largest of many angles may be 40 % above the prediction"),
        "few": FEW,
    }
    step = STEP_OF_MEANS

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the root mean square of a trial."""
        distance = mean_distance(self.run, trial)
        return Curves(distance, facts=self.few_samples() | {"rank": float(self.run.algorithm.rank)})


class NoisyMessages(Means):
    """The same with noise on messages."""

    algorithms = (PrivateFedRep,)
    runs = "noise on messages without clipping, exact heads, fresh samples, m >= k + 2"
    validity = (
        "near B*, in mean square; `distance` is the root mean square of the worst direction: once noise on messages "
        "dominates, it is below the median of runs by a share of up to sqrt(k/d), and `floor` is not"
    )

    def concerns(self) -> bool:
        """Return True for noise on messages."""
        return self.run.message_noise_std > 0


class NoiseAlone(TrialByTrial):
    """Noise on messages that are 0, as exact heads on m <= k samples leave no residual."""

    algorithms = (PrivateFedRep,)
    runs = "noise on messages without clipping, exact heads, fresh samples, m <= k"
    gives = ("distance",)
    name = "noise on messages"
    source = "theory.state_evolution: the exact means of a round, in which the clients' messages are 0"
    validity = (
        "root mean square of the worst direction: 1 to 10 % below the median of runs for sqrt(k/d) up to 0.3; "
        "without a band"
    )
    conditions = (*ROUND, rank_k, two_rank)
    limits: ClassVar[Limits] = {
        "angles": (
            0.15,
            "sqrt(rank/dim) is {}, above {}: the largest angle of single runs may be more than 10 % above the "
            "prediction",
        ),
    }
    participants = 1

    def concerns(self) -> bool:
        """Return True for noise on messages and m <= k."""
        return self.run.message_noise_std > 0 and self.run.samples <= self.run.algorithm.rank

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the root mean square of a trial."""
        angles = np.sqrt(self.run.algorithm.rank / self.run.job.sizes.dim)
        return Curves(mean_distance(self.run, trial), facts={"angles": angles})


IN_ROUNDS = (GradientDescentHeads, UnderParameterised, WithoutQR, NoiseAlone, NoisyMessages, SecondOrder, Means)
"""All of them; one that is asked later is broader or less accurate."""


def mean_distance(run: FedRepRun, trial: Trial) -> Array:
    """Return the root mean square of the distance of a trial."""
    options = run.setting | {"message_noise_std": run.message_noise_std} | trial.start()
    return state_evolution(trial.W, **options).distance


def second_order_facts(run: FedRepRun, trials: Sequence[Trial], found: Sequence[Evolution]) -> dict[str, float]:
    """Return the facts of second order: the largest values over rounds and trials.

    Two of them are about the clients that are drawn, 0 if all clients participate. A client pulls B along its head by
    ``eta/p`` times ``omega c ||w||^2``. "selection" is the relative variance of the mean of this pull over a round,
    about 1/p for many equal clients, and "stride" is the largest pull.
    """
    clients = run.clients
    facts = {name: max(float(np.max(getattr(one, name), initial=0.0)) for one in found) for name in SPREADS}
    if not clients.share:
        return facts
    pulls = [clients.weights * clients.fitted * np.square(trial.W).sum(axis=1) for trial in trials]
    step = float(np.max(run.steps, initial=0.0))
    return facts | {
        "selection": clients.share * max(float(np.mean(pull**2) / np.mean(pull) ** 2) for pull in pulls),
        "stride": step / clients.participants * max(float(np.max(pull)) for pull in pulls),
    }


def chain_notes(job: Job) -> tuple[str, ...]:
    """Return notes on exact alternatives of similar cost."""
    if job.sizes.n_clients > CHAIN_CLIENTS or obstacle("chain", job.setting):
        return ()
    seconds = CHAIN_TRIALS * seconds_of_a_trial(replace(job, engine="chain"))
    return (
        f"{CHAIN_TRIALS} runs, exact in distribution, take about {max(1.0, float(f'{seconds:.1g}')):g} s: "
        f"lf.simulate(..., trials={CHAIN_TRIALS}, engine='chain')",
    )
