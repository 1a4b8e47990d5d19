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
from linfed.numerics.linalg import TINY, symmetric, symmetric_root
from linfed.prediction.cases import FedRepRun, Trial
from linfed.prediction.conditions import ROUND, equal_clients, no_message_noise, rank_k, second_moments, two_rank
from linfed.prediction.fedrep_near_truth import (
    NEAR_END,
    FedRepLaw,
    NearTruth,
    stable_floor,
    step_doubts,
)
from linfed.prediction.law import Limits, above, doubts_of
from linfed.prediction.prediction import Asked, Curves, Quantity, Slow, joined
from linfed.simulation.engines import obstacle
from linfed.simulation.job import Job, seconds_of_a_trial
from linfed.theory.fedrep.arguments import StepTooLargeError
from linfed.theory.fedrep.fixed_samples.largest_angle import median_around
from linfed.theory.fedrep.near_truth.without_qr import unnormalized_evolution
from linfed.theory.fedrep.rounds.gradient_heads import gradient_heads_evolution
from linfed.theory.fedrep.rounds.second_order import SecondOrder as Evolution
from linfed.theory.fedrep.rounds.second_order import second_order_evolution, second_order_floor
from linfed.theory.fedrep.rounds.state_evolution import StateEvolution, state_evolution
from linfed.theory.fedrep.rounds.under_parameterized import under_parameterized_evolution, under_parameterized_floor

ADDED = 20
"""Largest number of rounds whose errors add up from the stability edge on."""

CHAIN_CLIENTS = 1000
"""Number of clients up to which some hundred runs with engine "chain" cost about as much as a prediction."""

CHAIN_TRIALS = 300

ESCAPED = 0.6
"""Final distance below which errors of a far start show."""

FAR_START = 0.97
"""Initial distance above which the time of escape depends on chance, if a law has no lower one."""

THIN = (0.0, "dim = rank + {}: the few directions beside B* fluctuate more than Gaussian ones")
"""Limit of the numbers of directions that `few_directions` returns."""

FEWER = 12
"""Number of participants below which gradient heads are predicted for smaller fluctuations only."""

HEADS = 2**22
"""Number of head entries, over all trials, that are processed together."""

LARGE_NOISE = 0.5
"""Largest length of the noise that a round adds to a column of B for which its part along B is small."""

LARGEST_RANK = 16
"""Largest rank for which the eighth moments of the heads fit into memory."""

LOST = 1.0
"""Variance of log distance^2 that participants add in a round, above which means over gradient heads are wrong."""

MEDIAN_FLOOR = "the median of runs within 5 %, step sizes up to 0.98 of the stability edge"

RIGHT_ANGLE = (
    "no prediction of the distance is available from an initial distance of 1: at a right angle the mean of a round "
    "does not move B, so chance determines when the distance falls; use a smaller initial distance"
)

ROUNDING = 1e-15
"""Distance below which runs have no correct digits."""

SECOND_ORDER_LIMITS: Limits = {
    "round_log_variance": (
        0.3,
        "a round adds {} to the variance of log distance^2, above {}: second order is not enough",
    ),
    "log_std": (0.6, "log distance spreads by {} over runs, above {}: its tails are not Gaussian"),
    "stride": (
        0.35,
        "a single participant moves B by {} of the way along its head, above {}: few clients decide a round",
    ),
}

FLOOR_LIMITS: Limits = {
    **{name: limit for name, limit in SECOND_ORDER_LIMITS.items() if name != "log_std"},
    "selection": (
        0.3,
        "the choice of participants changes the pull on B by a relative variance of {}, above {}: few clients decide "
        "a round",
    ),
}
"""Limits of the facts of a stationary median, in which errors of single rounds do not add up."""


class InRounds(FedRepLaw):
    """Distance in every round, from the heads and the initial B of every trial.

    Attributes
    ----------
    participants : int
        Smallest number of participants for which the prediction holds.
    step : float, optional
        Largest multiple of the best step size for which the prediction holds, if this is known.
    far : float
        Largest initial distance for which the prediction holds.
    """

    participants: ClassVar[int] = 20
    far: ClassVar[float] = FAR_START
    step: ClassVar[float | None] = None

    @abstractmethod
    def evolution(self) -> Curves:
        """Return the curves of all trials."""

    def curves(self) -> Curves | str:
        """Return the distance, or the message from a right angle."""
        try:
            found = self.evolution()
        except StepTooLargeError as error:
            raise error.in_units(self.run.unit) from None
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
        if start > self.far + 1e-9:  # of an initial B, up to rounding error
            told = above(start, self.far)
            yield f"the initial distance {told} is above {self.far}: the time of escape depends on chance"

    def notes(self) -> tuple[str, ...]:
        """Return a note on runs of engine "chain"."""
        return chain_notes(self.run.job)

    def few_directions(self, most: int) -> dict[str, float]:
        """Return the number of directions beside a single column of B* as a fact if they are at most `most`."""
        beside = self.run.job.sizes.dim - self.run.algorithm.rank
        return {"thin": float(beside)} if self.run.algorithm.rank == 1 and beside <= most else {}


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
        f"12 clients a round or more, k up to 10, initial distances up to {FAR_START:g}, rounds in which participants "
        "add at most 0.4 to the variance of log distance^2: the median of runs within 10 % in 20 rounds of 356 of 357 "
        "random settings, within 6 % in 95 % of them; with 5 to 11 clients, at most 0.2; without a band"
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
    name = "under-parameterized"
    source = "theory.under_parameterized_evolution: rows of B in the eigenbasis of the clients' second moment"
    validity = (
        "the median within 7 % for 6 clients a round or more, initial distances up to 0.93, step sizes up to "
        "1.3/lambda_1; without a band"
    )
    range = f"distance from the top-k subspace; {validity}"
    conditions = (*ROUND, no_message_noise, two_rank, equal_clients, second_moments)
    limits: ClassVar[Limits] = {
        "pull": (
            1.3,
            "step_size times the clients' largest second moment is {}, above {}: the prediction was not tested there",
        ),
        "chance": (
            0.9,
            "chance changes the part of B outside U_k by {}, above {}: single rounds may be off by a factor of 2",
        ),
        "few": (0.0, "n_samples = {} is at most rank + 3: few and rare rounds dominate the means"),
    }
    participants = 6
    far = 0.93

    def concerns(self) -> bool:
        """Return True for a ground truth of rank r > k."""
        return (self.run.truth_rank or 0) > self.run.algorithm.rank

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the distance of a trial."""
        run = self.run
        found = under_parameterized_evolution(trial.W, rank=run.algorithm.rank, **run.setting, **trial.start("U"))
        pull = float(np.linalg.norm(trial.W, 2) ** 2 / len(trial.W) * np.max(run.steps, initial=0.0))
        facts = {"pull": pull, "chance": float(found.chance.max())}
        if run.fewest <= run.algorithm.rank + 3:
            facts["few"] = float(run.fewest)
        return Curves(found.distance, facts=facts)

    def floor(self) -> Quantity:
        """Return the stationary distance."""
        run, step, k = self.run, self.run.step("the floor requires"), self.run.algorithm.rank
        noise_std = check_noise_std(run.problem.noise_std)
        edge = min(2.0 / (1.0 - k / run.samples) / max(self.gaps(trial)[1], TINY) for trial in run.trials)
        if step >= edge:
            raise NoPredictionError(
                f"step_size = {step / run.unit:.4g} must be below 2/(c (lambda_1 - lambda_d)) = {edge / run.unit:.4g}, "
                "c = 1 - k/m: at larger step sizes the mean square grows without bound and no floor exists"
            )
        values = [
            under_parameterized_floor(trial.W, rank=k, step_size=step, noise_std=noise_std, **run.sizes).distance
            for trial in run.trials
        ]
        valid = "small step sizes: within 1 % at eta lambda_1 up to 0.08, 4 % too low at 0.3"
        return Quantity(np.array(values), "theory.under_parameterized_floor", valid, "subspace_distance")

    def gaps(self, trial: Trial) -> tuple[float, float]:
        """Return lambda_k - lambda_(k+1) and lambda_1 - lambda_d of the clients' second moment."""
        values, k = np.zeros(self.run.job.sizes.dim), self.run.algorithm.rank
        found = np.linalg.svd(trial.W, compute_uv=False) ** 2 / len(trial.W)
        values[: len(found)] = found
        return float(values[k - 1] - values[k]), float(values[0] - values[-1])

    def rate(self) -> Quantity:
        """Return the factor of the slowest component."""
        run, step, k, rates = self.run, self.run.step("the rate requires"), self.run.algorithm.rank, []
        c = 1.0 - k / run.samples
        for trial in run.trials:
            rates.append(max(abs(1.0 - step * c * gap) for gap in self.gaps(trial)))
        valid = "near U_k, in the mean over samples: 1 - eta c (lambda_k - lambda_(k+1)) for small step sizes"
        return Quantity(np.array(rates), "theory.one_round_means at U_k", valid, "subspace_distance")


class WithoutQR(TrialByTrial):
    """B that is not orthonormalised: the step shrinks as B grows, most along long heads."""

    runs = f"exact heads, fresh samples, orthonormalize = False, one step size, m >= k + 4, k <= {LARGEST_RANK}"
    gives = ("distance",)
    name = "without QR"
    source = "theory.second_order_evolution without QR"
    validity = (
        "the median within 5 % down to distances of 1e-8, in the range of second order, for heads whose second moment "
        "has eigenvalues that differ by a factor of up to 1000; without a band"
    )
    conditions = (*ROUND, rank_k, two_rank, second_moments)
    limits: ClassVar[Limits] = SECOND_ORDER_LIMITS
    participants = 1

    def concerns(self) -> bool:
        """Return True without QR, if second order can be computed."""
        return not self.run.algorithm.orthonormalize and has_second_order(self.run)

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the median of a trial."""
        run = self.run
        options = run.setting | trial.start() | {"step_size": run.step("the distance requires")}
        found = second_order_evolution(trial.W, **options, orthonormalize=False)
        return Curves(found.distance, facts=second_order_facts(run, [trial], [found]))


class SecondOrder(InRounds, NearTruth):
    """Median and band."""

    runs = f"exact heads, fresh samples, m >= k + 4 for all clients, k <= {LARGEST_RANK}"
    gives = ("distance", "low", "high", *NEAR_END)
    name = "second order"
    source = "theory.second_order_evolution: mean and covariance of a round, log-Cholesky closure"
    validity = (
        "the median within 5 % and the band within 10 %, within 2 and 5 % in most runs, for m > k + 3, initial "
        f"distances up to 0.97, rounds that add at most {SECOND_ORDER_LIMITS['round_log_variance'][0]:g} to the "
        f"variance of log distance^2, a spread of log distance up to {SECOND_ORDER_LIMITS['log_std'][0]:g}, and "
        "participants of which few do not decide a round; "
        "from stability_edge on, for many participants or samples, or few rounds"
    )
    conditions = (*ROUND, rank_k, two_rank, second_moments)
    limits: ClassVar[Limits] = {
        **SECOND_ORDER_LIMITS,
        "tails": (
            2.4,
            "step_size is not below stability_edge, and rank / (participants (n_samples - rank - 3)), added up over up "
            "to 20 rounds, is {}, above {}: rounds have heavy tails, whose errors add up",
        ),
        "past_edge": (
            0.4,
            "step_size is not below stability_edge, and log distance spreads by {} over runs, above {}: errors of "
            "rounds add up",
        ),
    }
    or_next = True
    participants = 1

    def concerns(self) -> bool:
        """Return True if second order can be computed."""
        return has_second_order(self.run)

    def evolution(self) -> Curves:
        """Return the median and the band of all trials, some trials at a time."""
        trials = self.run.trials
        together, found = max(1, HEADS // trials[0].W.size), []
        for start in range(0, len(trials), together):
            some = trials[start : start + together]
            W, at = np.stack([trial.W for trial in some]), some[0].start()
            if some[0].B0 is not None:
                at = {name: np.stack([trial.start()[name] for trial in some]) for name in at}
            options = self.run.setting | {"message_noise_std": self.run.message_noise_std}
            found.append(second_order_evolution(W, **options, **at))
        distance, low, high = (
            np.concatenate([getattr(one, name) for one in found]) for name in ("distance", "low", "high")
        )
        facts = second_order_facts(self.run, trials, found)
        return Curves(distance, low, high, facts | self.past_edge(facts["log_std"]))

    def past_edge(self, log_std: float) -> dict[str, float]:
        """Return the facts of step sizes from the stability edge on, where the errors of rounds do not die out."""
        run, k = self.run, self.run.algorithm.rank
        edge = min((here.edge() for here in run.maps if here.spanned), default=np.inf)
        past = int((np.broadcast_to(run.steps, run.job.n_rounds) >= edge).sum())
        if not past:
            return {}
        tails = k / (run.job.sizes.participants * (run.fewest - k - 3))
        return {"tails": min(past, ADDED) * tails, "past_edge": log_std}

    def quantities(self) -> dict[str, Asked]:
        """Return the quantities near B*, with the stationary median as floor if labels or messages have noise."""
        noisy = bool(np.any(self.run.problem.noise_std)) or self.run.message_noise_std > 0
        return super().quantities() | ({"floor": Slow(self.median_floor, self.floor_step)} if noisy else {})

    def floor_step(self) -> float:
        """Return the step size, or raise if there is no floor."""
        self.check_spanned()
        step = self.run.step("the floor requires")
        for here in self.run.maps:
            stable_floor(self.run, here, step)  # raises from the stability edge on, and without an edge
        return step

    def median_floor(self) -> Quantity:
        """Return the stationary median."""
        run, step = self.run, self.floor_step()
        W = np.stack([trial.W for trial in run.trials])
        noise_std, added = run.problem.noise_std, run.message_noise_std
        found = second_order_floor(W, step_size=step, noise_std=noise_std, message_noise_std=added, **run.sizes)
        facts = second_order_facts(run, run.trials, [found])
        valid = "; ".join(doubts_of(facts, FLOOR_LIMITS)) or MEDIAN_FLOOR
        return Quantity(found.distance, "theory.second_order_floor", valid, "subspace_distance")


class AroundMeans(TrialByTrial):
    """Median around the means of a round, whose fluctuations are Gaussian."""

    validity = (
        "the median of runs within 15 %, within 6 % in most runs, for step sizes up to best_step and initial "
        f"distances up to 0.95, for d < 5k up to 0.75 if k >= 3, and 0.6 if k > {LARGEST_RANK}; without a band"
    )
    conditions = (*ROUND, rank_k, two_rank, second_moments)
    limits: ClassVar[Limits] = {
        "gathered": (
            0.6,
            "log distance^2 gathers a variance of about {} over the rounds, above {}: its tails are not Gaussian",
        ),
        "thin": THIN,
        "slow": (
            0.75,
            "with few dimensions for 3 angles or more, the initial distance is {}, above {}: chance delays the slowest "
            "angle",
        ),
        "slowest": (
            0.6,
            f"with few dimensions for more than {LARGEST_RANK} angles, the initial distance is {{}}, above {{}}: "
            "chance delays the slowest angle",
        ),
    }
    participants = 1
    step, far = 1.0, 0.95
    thin: ClassVar[int] = 1
    """Largest number of directions beside a single column of B* in which fluctuations are not Gaussian enough."""

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the median of a trial."""
        found, steps = self.means(trial)
        distance, k, d = around_means(self.run, trial, found, steps), self.run.algorithm.rank, self.run.job.sizes.dim
        facts = {"gathered": self.gathered()} | self.few_directions(self.thin)
        if k > 2 and d < 5 * k and distance[-1] < ESCAPED:
            facts["slowest" if k > LARGEST_RANK else "slow"] = distance[0]
        return Curves(distance, facts=facts)

    def means(self, trial: Trial) -> tuple[StateEvolution, Array]:
        """Return the means of a trial, and the step sizes as matrices (rounds, k, k)."""
        return means_of(self.run, trial)

    def gathered(self) -> float:
        """Return about how much variance the factors of all rounds that last add to log distance^2, for one trial.

        A round multiplies the mean square by f and the squared mean by g. With noise, a state lasts for ``f/(1 - f)``
        rounds.
        """
        run, here, step = self.run, self.run.maps[0], float(np.max(self.run.steps, initial=0.0))
        if not (here.spanned and step and run.job.n_rounds):
            return 0.0
        factor = here.factor(step)
        kept = (1.0 - step * np.linalg.eigvalsh(here.pull)[0]) ** 2
        noisy = bool(np.any(run.problem.noise_std)) or run.message_noise_std > 0
        rounds = min(run.job.n_rounds, factor / (1.0 - factor)) if noisy and factor < 1.0 else run.job.n_rounds
        return rounds * 2.0 * (1.0 - min(kept / factor, 1.0)) / (run.job.sizes.dim - run.algorithm.rank)


class Means(AroundMeans, NearTruth):
    """The same, and quantities near B*."""

    runs = f"exact heads, fresh samples, m = k + 2 or k + 3 for a client, or k > {LARGEST_RANK}"
    gives = ("distance", *NEAR_END)
    name = "means"
    source = "theory.state_evolution: the exact means of a round, iterated; median of the largest of k Gaussian angles"


class MeansWithoutQR(AroundMeans):
    """The same without QR."""

    runs = (
        f"exact heads, fresh samples, orthonormalize = False, one step size, m = k + 2 or k + 3, or k > {LARGEST_RANK}"
    )
    gives = ("distance",)
    name = "means without QR"
    source = "theory.unnormalized_evolution: the means of a round, iterated; median of the largest of k Gaussian angles"

    def concerns(self) -> bool:
        """Return True without QR."""
        return not self.run.algorithm.orthonormalize

    def means(self, trial: Trial) -> tuple[StateEvolution, Array]:
        """Return the means of a trial, and the step sizes as matrices (rounds, k, k)."""
        options = self.run.setting | trial.start() | {"step_size": self.run.step("the distance requires")}
        found = unnormalized_evolution(trial.W, **options)
        return found, options["step_size"] * np.linalg.inv(found.S[:-1])


class NoisyMessages(SecondOrder):
    """The same with noise on messages, up to a length at which its part along B counts."""

    algorithms = (PrivateFedRep,)
    runs = f"noise on messages without clipping, {SecondOrder.runs}"

    def concerns(self) -> bool:
        """Return True for noise on messages that is not too large, if rounds have fourth moments."""
        length = np.max(self.run.steps, initial=0.0) * self.run.message_noise_std * np.sqrt(self.run.job.sizes.dim)
        return 0 < length <= LARGE_NOISE and super().concerns()

    def evolution(self) -> Curves:
        """Return the median and the band, or raise a ValueError if rounds at distances near 1 fluctuate too much."""
        found = super().evolution()
        if (added := found.facts["round_log_variance"]) > LOST:
            raise ValueError(SECOND_ORDER_LIMITS["round_log_variance"][1].format(above(added, LOST), LOST))
        return found


class NoisyMeans(Means):
    """The same with noise on messages."""

    algorithms = (PrivateFedRep,)
    runs = "noise on messages without clipping, exact heads, fresh samples, m >= k + 2"
    thin = 2  # the means leave out noise along B*

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
    validity = "the median of runs within 12 %, within 5 % for d above 10k; without a band"
    conditions = (*ROUND, rank_k, two_rank)
    limits: ClassVar[Limits] = {"thin": THIN}
    participants = 1

    def concerns(self) -> bool:
        """Return True for noise on messages and m <= k."""
        return self.run.message_noise_std > 0 and self.run.samples <= self.run.algorithm.rank

    def evolution_of(self, trial: Trial) -> Curves:
        """Return the median of a trial."""
        distance = around_means(self.run, trial, *means_of(self.run, trial))
        return Curves(distance, facts=self.few_directions(NoisyMeans.thin))


IN_ROUNDS = (
    GradientDescentHeads,
    UnderParameterised,
    WithoutQR,
    MeansWithoutQR,
    NoiseAlone,
    NoisyMessages,
    NoisyMeans,
    SecondOrder,
    Means,
)
"""All of them; one that is asked later is broader or less accurate."""


def has_second_order(run: FedRepRun) -> bool:
    """Return True if rounds have fourth moments, and those of order eight of the heads fit into memory."""
    return run.fewest > run.algorithm.rank + 3 and run.algorithm.rank <= LARGEST_RANK


def means_of(run: FedRepRun, trial: Trial) -> tuple[StateEvolution, Array]:
    """Return the means of a trial by `state_evolution`, and the step sizes as matrices (rounds, k, k)."""
    options = run.setting | trial.start() | {"message_noise_std": run.message_noise_std}
    steps = np.broadcast_to(run.steps, run.job.n_rounds)
    return state_evolution(trial.W, **options), steps[:, None, None] * np.eye(run.algorithm.rank)


def around_means(run: FedRepRun, trial: Trial, found: StateEvolution, steps: Array) -> Array:
    """Return the median distance of a trial: the largest of k angles whose tangents D fluctuate around their mean.

    A step size M (k, k) on orthonormal columns, one of `steps` (rounds, k, k), and the mean pull Gamma of the clients
    multiply the mean of D by ``(I - N N' P) (I + (I - N N') P)^{-1}`` with ``P = Gamma N M N^{-1}``. The rest of
    ``T = E D'D = N^{-T} Q N^{-1}`` is due to fluctuations.
    """
    W, k, d = trial.W, run.algorithm.rank, run.job.sizes.dim
    if found.distance[0] > 1.0 - 1e-12:
        return found.distance
    fitted = np.maximum(1.0 - k / np.asarray(run.sizes["n_samples"]), 0.0)  # messages of m <= k samples are 0
    weights = np.ones(1) if run.algorithm.weights is None else np.array(run.algorithm.weights)
    pull = W.T @ ((fitted * weights / weights.mean())[:, None] * W) / len(W)
    back, identity = np.linalg.inv(found.N), np.eye(k)
    T, D = symmetric(back.mT @ found.Q @ back), np.empty_like(found.Q)
    D[0] = symmetric_root(T[0])
    for t, step in enumerate(steps):
        kept, pulled = found.N[t] @ found.N[t].T, pull @ found.N[t] @ step @ back[t]
        D[t + 1] = D[t] @ (identity - kept @ pulled) @ np.linalg.inv(identity + (identity - kept) @ pulled)
    return median_around(T, D, dim=d)


def second_order_facts(run: FedRepRun, trials: Sequence[Trial], found: Sequence[Evolution]) -> dict[str, float]:
    """Return the facts of second order: the largest values over rounds and trials.

    Two of them are about the clients that are drawn, 0 if all clients participate. A client pulls B along its head by
    ``eta/p`` times ``omega c ||w||^2``. "selection" is the relative variance of the mean of this pull over a round,
    about 1/p for many equal clients, and "stride" is the largest pull.
    """
    clients = run.clients
    facts = {
        "round_log_variance": max(float(np.max(added_variance(one), initial=0.0)) for one in found),
        "log_std": max(float(np.max(one.log_std, initial=0.0, where=one.distance > ROUNDING)) for one in found),
    }
    if not clients.share:
        return facts
    pulls = [clients.weights * clients.fitted * np.square(trial.W).sum(axis=1) for trial in trials]
    step = float(np.max(run.steps, initial=0.0))
    return facts | {
        "selection": clients.share * max(float(np.mean(pull**2) / np.mean(pull) ** 2) for pull in pulls),
        "stride": step / clients.participants * max(float(np.max(pull)) for pull in pulls),
    }


def added_variance(found: Evolution) -> Array:
    """Return the variance that a round adds to the logarithm of squared tangents, and at the floor to log distance^2.

    Before the floor it counts also at distances near 1, since its errors last until the distance falls.
    """
    if found.distance.shape != found.round_log_variance.shape:
        return found.round_log_variance
    return np.asarray(found.round_log_variance * np.square((1.0 - found.distance) * (1.0 + found.distance)))


def chain_notes(job: Job) -> tuple[str, ...]:
    """Return notes on exact alternatives of similar cost."""
    if job.sizes.n_clients > CHAIN_CLIENTS or obstacle("chain", job.setting):
        return ()
    seconds = CHAIN_TRIALS * seconds_of_a_trial(replace(job, engine="chain"))
    return (
        f"{CHAIN_TRIALS} runs, exact in distribution, take about {max(1.0, float(f'{seconds:.1g}')):g} s: "
        f"lf.simulate(..., trials={CHAIN_TRIALS}, engine='chain')",
    )
