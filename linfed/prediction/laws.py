"""Predictions of FedRep's distance: name, source, range, curves, quantities near the limit, and warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from linfed.algorithms.parts.heads import GradientHeads
from linfed.checks import check_noise_std
from linfed.errors import NoPredictionError
from linfed.prediction.cases import FedRepRun, Trial
from linfed.prediction.prediction import Asked, Curves, Quantity, Slow, joined
from linfed.theory.fedrep.fixed_samples.largest_angle import median_distance
from linfed.theory.fedrep.near_truth.any_heads import LocalMap
from linfed.theory.fedrep.near_truth.without_qr import unnormalized_evolution
from linfed.theory.fedrep.rounds.gradient_heads import gradient_heads_evolution
from linfed.theory.fedrep.rounds.second_order import SecondOrder, second_order_evolution, second_order_floor
from linfed.theory.fedrep.rounds.state_evolution import state_evolution
from linfed.theory.fedrep.rounds.under_parameterized import under_parameterized_evolution, under_parameterized_floor

FAR_START = 0.97
"""Initial distance above which the time of escape depends on chance."""

LARGEST_RANK = 16
"""Largest rank for which the eighth moments of the heads fit into memory."""

STEP_OF_MEANS = 1.4
"""Largest multiple of the best step size for which the mean of a round is near its median."""

SPREADS = ("round_log_variance", "log_std")
"""Facts of `SecondOrder`."""

FEWER = 12
"""Number of participants below which gradient heads are predicted for smaller fluctuations only."""

LOST = 1.0
"""Variance of log distance^2 that participants add in a round, above which means over gradient heads are wrong."""

FEW = (0.0, "n_samples = {} is at most rank + 3: few and rare rounds dominate the means")
"""Limit of the numbers of samples that `_few` returns."""

UNEVEN = 4.0
"""Ratio of the eigenvalues of the heads' second moment up to which B grows alike in all columns without QR."""

HEADS = 2**22
"""Number of head entries, over all trials, that are processed together."""

NEAR = "near B*, in mean square; single runs fall slightly faster, clearly so for small d"

COMPRESSED = (
    "near B*, in the mean square over runs and over the orientations of B* and of B's columns; single runs fall "
    "slightly faster"
)

FLOOR_SHARE = 0.8
"""Largest share of the stability edge at which typical runs have the mean square at the floor."""

NEAR_FLOOR = (
    f"step sizes up to {FLOOR_SHARE:g} of the stability edge: root mean square, within 5 % of the median of runs"
)

MEDIAN_FLOOR = "the median of runs within 5 %, step sizes up to 0.98 of the stability edge"


Limits: TypeAlias = Mapping[str, tuple[float, str]]
"""Largest reliable value of each fact, and the warning for larger values."""


def doubts_of(facts: Mapping[str, float], limits: Limits) -> list[str]:
    """Return the warnings of the facts above their limits."""
    return [
        text.format(above(facts[name], limit), limit)
        for name, (limit, text) in limits.items()
        if facts.get(name, 0.0) > limit
    ]


def above(value: float, limit: float) -> str:
    """Return a number above a limit with two digits, or as many as distinguish it from the limit."""
    least = max(2, len(f"{value:.0f}"))
    texts = (f"{value:.{digits}g}" for digits in range(least, 18))
    return next((text for text in texts if float(text) > limit), f"{value}")


@dataclass(frozen=True, kw_only=True)
class Law:
    """Prediction of the distance.

    Parameters
    ----------
    name, source, validity : str
        Name, source and range of the prediction.
    curves : callable
        Function that predicts the curves of some trials.
    near : callable
        Function that returns the predicted quantities near the limit of runs.
    limits : mapping
        Limits of the facts of these curves.
    participants : int
        Smallest number of participants for which the prediction holds.
    step : float, optional
        Largest multiple of the best step size for which the prediction holds, if this is known.
    """

    name: str
    source: str
    validity: str
    curves: Callable[[FedRepRun, Sequence[Trial]], Curves]
    near: Callable[[FedRepRun], dict[str, Asked]]
    limits: Limits
    participants: int = 20
    step: float | None = None

    def doubts(self, case: FedRepRun, curves: Curves) -> tuple[str, ...]:
        """Return warnings that the prediction may be inaccurate for a run."""
        p, start = case.job.sizes.participants, float(np.max(curves.distance[..., 0]))
        found = doubts_of(curves.facts, self.limits)
        if self.step is not None:
            found += step_doubts(case, self.step)
        if p < self.participants:
            found.append(f"a round has {p} participants, fewer than {self.participants}: rounds fluctuate too much")
        if start > FAR_START + 1e-9:  # of an initial B, up to rounding error
            told = above(start, FAR_START)
            found.append(f"the initial distance {told} is above {FAR_START}: the time of escape depends on chance")
        return tuple(found)


def _check_spanned(case: FedRepRun) -> None:
    """Raise a NoPredictionError if the heads of a trial leave a direction out."""
    if not all(here.spanned for here in case.maps):
        raise NoPredictionError(
            f"heads span fewer than rank = {case.algorithm.rank} dimensions: along the others B is not learned, so "
            "floor, rate, stability edge and best step do not exist"
        )


def near_truth(case: FedRepRun) -> dict[str, Asked]:
    """Return the predicted quantities near B* for exact heads and a ground truth of rank k."""
    d = case.job.sizes.dim

    def quantity(
        each: Callable[[LocalMap], float], source: str, validity: str = NEAR, metric: str = ""
    ) -> Callable[[], Quantity]:
        def asked() -> Quantity:
            _check_spanned(case)
            return Quantity(np.array([each(here) for here in case.maps]), f"theory.{source}", validity, metric)

        return asked

    def floor(here: LocalMap) -> float:
        step, edge = case.step("the floor requires"), here.edge()
        found = float(median_distance(here.floor(step), dim=d))
        if found and step > FLOOR_SHARE * edge:
            size, edge = step / case.unit, edge / case.unit
            raise NoPredictionError(
                f"no prediction of the floor is available for step_size = {size:.4g}, above {FLOOR_SHARE:g} of "
                f"stability_edge = {edge:.4g}: few runs dominate the mean square there"
            )
        return found

    def rate(here: LocalMap) -> float:
        return float(np.sqrt(here.factor(case.step("the rate requires"))))

    return {
        "floor": quantity(floor, "near_truth_floor", NEAR_FLOOR, "subspace_distance"),
        "rate": quantity(rate, "near_truth_factor", metric="subspace_distance"),
        "stability_edge": quantity(lambda here: here.edge() / case.unit, "stability_edge"),
        "best_step": quantity(lambda here: here.best() / case.unit, "local_best_step"),
    }


def _near_truth_median(case: FedRepRun) -> dict[str, Asked]:
    """Return these quantities, with the stationary median as floor if labels have noise."""
    quantities = near_truth(case)
    if not np.any(case.problem.noise_std):
        return quantities

    def check() -> float:
        _check_spanned(case)
        step = case.step("the floor requires")
        for here in case.maps:
            here.floor(step)  # raises from the stability edge on, and without an edge
        return step

    def floor() -> Quantity:
        step, W = check(), np.stack([trial.W for trial in case.trials])
        found = second_order_floor(W, step_size=step, noise_std=case.problem.noise_std, **case.sizes)
        facts = _facts(case, case.trials, [found])
        valid = "; ".join(doubts_of(facts, SECOND_ORDER.limits)) or MEDIAN_FLOOR
        return Quantity(found.distance, "theory.second_order_floor", valid, "subspace_distance")

    return quantities | {"floor": Slow(floor, check)}


def step_doubts(case: FedRepRun, limit: float) -> list[str]:
    """Return warnings about the largest step size, from the heads of the first trial."""
    if not case.steps.size:
        return []
    largest, here = float(case.steps.max()), case.maps[0]
    step, edge, best = f"step_size = {largest / case.unit:.4g}", here.edge(), here.best()
    if not here.spanned:
        return [
            f"heads span fewer than rank = {case.algorithm.rank} dimensions: not every angle falls at any step_size"
        ]
    if largest >= edge:
        return [f"{step} is not below stability_edge = {edge / case.unit:.4g}: not every angle falls in mean square"]
    if largest > limit * best:
        return [
            f"{step} is {above(largest / best, limit)} times best_step, above {limit}: few and rare rounds dominate "
            "the means"
        ]
    return []


def singly(curves: Callable[[FedRepRun, Trial], Curves]) -> Callable[[FedRepRun, Sequence[Trial]], Curves]:
    """Return a function for several trials from a function `curves` for one trial."""
    return lambda case, trials: joined([curves(case, trial) for trial in trials])


def _second_order(case: FedRepRun, trials: Sequence[Trial]) -> Curves:
    together, found = max(1, HEADS // trials[0].W.size), []
    for start in range(0, len(trials), together):
        some = trials[start : start + together]
        W, at = np.stack([trial.W for trial in some]), some[0].start()
        if some[0].B0 is not None:
            at = {name: np.stack([trial.start()[name] for trial in some]) for name in at}
        found.append(second_order_evolution(W, **case.setting, **at))
    distance, low, high = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("distance", "low", "high")
    )
    return Curves(distance, low, high, _facts(case, trials, found))


def _facts(case: FedRepRun, trials: Sequence[Trial], found: Sequence[SecondOrder]) -> dict[str, float]:
    """Return the facts of second order: the largest values over rounds and trials.

    Two of them are about the clients that are drawn, 0 if all clients participate. A client pulls B along its head by
    ``eta/p`` times ``omega c ||w||^2``. "selection" is the relative variance of the mean of this pull over a round,
    about 1/p for many equal clients, and "stride" is the largest pull.
    """
    clients = case.clients
    facts = {name: max(float(np.max(getattr(one, name), initial=0.0)) for one in found) for name in SPREADS}
    if not clients.share:
        return facts
    pulls = [clients.weights * clients.fitted * np.square(trial.W).sum(axis=1) for trial in trials]
    step = float(np.max(case.steps, initial=0.0))
    return facts | {
        "selection": clients.share * max(float(np.mean(pull**2) / np.mean(pull) ** 2) for pull in pulls),
        "stride": step / clients.participants * max(float(np.max(pull)) for pull in pulls),
    }


def _means(case: FedRepRun, trial: Trial) -> Curves:
    found = state_evolution(trial.W, **case.setting, message_noise_std=case.message_noise_std, **trial.start())
    return Curves(found.distance, facts=_few(case) | {"rank": float(case.algorithm.rank)})


def _noise_alone(case: FedRepRun, trial: Trial) -> Curves:
    return Curves(_means(case, trial).distance, facts={"angles": np.sqrt(case.algorithm.rank / case.job.sizes.dim)})


def _without_qr(case: FedRepRun, trial: Trial) -> Curves:
    step, values = case.step("the distance requires"), np.linalg.svd(trial.W, compute_uv=False) ** 2
    start = trial.start()
    found = unnormalized_evolution(trial.W, **case.setting | {"step_size": step}, **start)
    facts = {"uneven": float(values[0] / values[-1]) if values[-1] > 0 else np.inf}
    k = case.algorithm.rank
    if case.samples <= k + 3 or k > LARGEST_RANK or not case.job.rounds:
        return Curves(found.distance, facts=facts | _few(case))
    steps = step / found.squared_length[:-1]
    median = second_order_evolution(trial.W, **case.setting | {"step_size": steps}, **start)
    return Curves(median.distance, facts=facts | _facts(case, [trial], [median]))


def _few(case: FedRepRun) -> dict[str, float]:
    """Return n_samples as a fact if heads have no fourth moments."""
    return {"few": float(case.fewest)} if case.fewest <= case.algorithm.rank + 3 else {}


def _gradient_heads(case: FedRepRun, trial: Trial) -> Curves:
    heads, variance = case.algorithm.heads, case.problem.design.variance or 1.0
    assert isinstance(heads, GradientHeads)
    size = heads.step_size
    if size is None and case.unit * variance != 1:  # step size of B without the factor of the sum
        size = case.step("gradient heads require") / case.unit
    size = None if size is None else variance * size
    found = gradient_heads_evolution(
        trial.W, head_steps=heads.steps, head_step_size=size, **case.setting, **trial.start()
    )
    kick, few = float(found.round_log_variance.max(initial=0.0)), case.job.sizes.participants < FEWER
    shown = kick if kick <= LOST else 0.0
    return Curves(found.distance, facts={"participants": shown, "fewer": shown if few else 0.0, "lost": kick})


def _under_parameterized(case: FedRepRun, trial: Trial) -> Curves:
    found = under_parameterized_evolution(trial.W, rank=case.algorithm.rank, **case.setting, **trial.start("U"))
    pull = float(np.linalg.norm(trial.W, 2) ** 2 / len(trial.W) * np.max(case.steps, initial=0.0))
    end = float(found.distance[-1])
    return Curves(found.distance, facts={"pull": pull, "end": end, "chance": float(found.chance.max()), **_few(case)})


def _near_top_subspace(case: FedRepRun) -> dict[str, Asked]:
    """Return the predicted quantities near U_k for exact heads and a ground truth of rank r > k."""
    k, c = case.algorithm.rank, 1.0 - case.algorithm.rank / case.samples
    noise_std = check_noise_std(case.problem.noise_std)

    def floor() -> Quantity:
        step = case.step("the floor requires")
        values = [
            under_parameterized_floor(trial.W, rank=k, step_size=step, noise_std=noise_std, **case.sizes).distance
            for trial in case.trials
        ]
        valid = "small step sizes: within 1 % at eta lambda_1 up to 0.08, 4 % too low at 0.3"
        return Quantity(np.array(values), "theory.under_parameterized_floor", valid, "subspace_distance")

    def rate() -> Quantity:
        step, rates = case.step("the rate requires"), []
        for trial in case.trials:
            values = np.zeros(case.job.sizes.dim)
            found = np.linalg.svd(trial.W, compute_uv=False) ** 2 / len(trial.W)
            values[: len(found)] = found
            gaps = values[k - 1] - values[k], values[0] - values[-1]
            rates.append(max(abs(1.0 - step * c * gap) for gap in gaps))
        valid = "near U_k, in the mean over samples: 1 - eta c (lambda_k - lambda_(k+1)) for small step sizes"
        return Quantity(np.array(rates), "theory.one_round_means at U_k", valid, "subspace_distance")

    return {"floor": floor, "rate": rate}


SECOND_ORDER = Law(
    name="second order",
    source="theory.second_order_evolution: mean and covariance of a round, log-Cholesky closure",
    validity="the median within 5 % and the band within 10 %, within 2 and 5 % in most runs, for m > k + 3, initial "
    "distances up to 0.97, rounds that add at most 0.2 to the variance of log distance^2, a spread of log distance up "
    "to 0.4, and participants of which few do not decide a round",
    curves=_second_order,
    near=_near_truth_median,
    limits={
        "round_log_variance": (
            0.2,
            "a round adds {} to the variance of log distance^2, above {}: second order is not enough",
        ),
        "log_std": (0.4, "log distance spreads by {} over runs, above {}: its tails are not Gaussian"),
        "selection": (
            0.3,
            "the choice of participants changes the pull on B by a relative variance of {}, above {}: few clients "
            "decide a round",
        ),
        "stride": (
            0.35,
            "a single participant moves B by {} of the way along its head, above {}: few clients decide a round",
        ),
    },
    participants=1,
)

MEANS = Law(
    name="means",
    source="theory.state_evolution: the exact means of a round, iterated",
    validity="20 clients a round or more, step sizes up to 1.1 best_step, initial distances up to 0.9: 1 to 15 % below "
    "the median of runs; without a band",
    curves=singly(_means),
    near=near_truth,
    limits={
        "rank": (LARGEST_RANK, "rank = {} is above {}: the largest of many angles may be 40 % above the prediction"),
        "few": FEW,
    },
    step=STEP_OF_MEANS,
)

NOISY_MESSAGES = replace(
    MEANS,
    validity="near B*, in mean square; `distance` is the root mean square of the worst direction: once noise on "
    "messages dominates, it is below the median of runs by a share of up to sqrt(k/d), and `floor` is not",
)

NOISE_ALONE = Law(
    name="noise on messages",
    source="theory.state_evolution: the exact means of a round, in which the clients' messages are 0",
    validity="root mean square of the worst direction: 1 to 10 % below the median of runs for sqrt(k/d) up to 0.3; "
    "without a band",
    curves=singly(_noise_alone),
    near=lambda case: {},
    limits={
        "angles": (
            0.15,
            "sqrt(rank/dim) is {}, above {}: the largest angle of single runs may be more than 10 % above the "
            "prediction",
        ),
    },
    participants=1,
)

WITHOUT_QR = Law(
    name="without QR",
    source="theory.unnormalized_evolution: growth of B; theory.second_order_evolution with its effective step sizes",
    validity="the median within 5 % for m >= k + 4, 12 clients a round or more, and a second moment of the heads whose "
    "eigenvalues differ by a factor of up to 4; for m = k + 2 or k + 3 it is 8 to 25 % too low; without a band",
    curves=singly(_without_qr),
    near=lambda case: {},
    limits={
        **SECOND_ORDER.limits,
        "uneven": (
            UNEVEN,
            "the largest eigenvalue of the heads' second moment is {} times the smallest, above {}: the columns of "
            "B grow unevenly",
        ),
        "few": FEW,
    },
    participants=12,
)

GRADIENT_HEADS = Law(
    name="gradient heads",
    source="theory.gradient_heads_evolution: means over a population of clients, the median over runs",
    validity="12 clients a round or more, k up to 5, initial distances up to 0.95, rounds in which participants add at "
    "most 0.4 to the variance of log distance^2: the median of runs within 10 % in 20 rounds of 342 of 343 random "
    "settings, within 6 % in 95 % of them; with 5 to 11 clients, at most 0.2; without a band",
    curves=singly(_gradient_heads),
    near=lambda case: {},
    limits={
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
    },
    participants=5,
)

UNDER_PARAMETERISED = Law(
    name="under-parameterised",
    source="theory.under_parameterized_evolution: rows of B in the eigenbasis of the clients' second moment",
    validity="the median within 2 to 6 % for 40 clients a round or more, initial distances from 0.7 to 0.9, step sizes "
    "up to 0.6/lambda_1; without a band",
    curves=singly(_under_parameterized),
    near=_near_top_subspace,
    limits={
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
    },
    participants=40,
)
