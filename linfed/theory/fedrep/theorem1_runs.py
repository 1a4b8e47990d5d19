"""A run of FedRep with every constant of Theorem 1 and its hypotheses, computed from truth and participants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Indices
from linfed.algorithms.fedrep import FedRep
from linfed.algorithms.heads import ExactHeads, GradientHeads
from linfed.algorithms.step_size import one_step
from linfed.data.samples import FreshSamples, GivenSamples
from linfed.errors import check_number
from linfed.numerics.linalg import qr_positive
from linfed.numerics.streams import Seed
from linfed.problems import Problem, Truth
from linfed.simulation.participation import Participants, Participation
from linfed.simulation.results import Result
from linfed.statistics.findings import Hypothesis
from linfed.theory._laws import check_covariance
from linfed.theory.fedrep.theorem1 import (
    PRINTED,
    fedrep_bound,
    fedrep_failure_probability,
    fedrep_least_samples,
    fedrep_step_limit,
    head_singular_values,
)

NORM_TOLERANCE = 1e-9
"""How far, relatively, the length of a head may be from sqrt(k)."""

STEP_TOLERANCE = 1e-11
"""By how much of it a step may exceed the limit: drawn heads have their prescribed moments to 1e-12."""


def participant_sets(
    participation: Participation, *, n_clients: int, rounds: int, trials: int, seed: Seed
) -> Indices | None:
    """Return the clients that take part in every round of `lf.simulate` with these arguments.

    Returns
    -------
    ndarray of int (trials, rounds, p) or None
        None where all take part, or no round runs.
    """
    sizes = {"n_clients": n_clients, "rounds": rounds, "n_trials": trials}
    drawn = Participants(participation, trials=range(trials), seed=seed, **sizes)
    if drawn.count == n_clients or rounds == 0:
        return None
    return np.stack([drawn.next() for _ in range(rounds)], axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Theorem1Run:
    """A run of FedRep with every constant of Theorem 1.

    Parameters
    ----------
    dim, rank, n_clients, participants, n_samples : int
        d, k, n, p and m.
    step_size, noise_std : float
        eta and sigma.
    batch_rounds : int
        Rounds that one batch serves: 1 for fresh samples.
    head_steps : float
        Gradient steps on heads in the place of their minimiser; 0 for exact heads, infinite for a class of one's own.
    ridge : float
        Of exact heads.
    rounds : ndarray of int (R,)
        Recorded rounds, the first is 0.
    distance : ndarray (trials, R)
        ``dist(B_t, B*)``; NaN from divergence on.
    smallest, largest : ndarray (trials,)
        sigma_min bar and sigma_max bar, over the sets that occurred.
    unequal : ndarray (trials,)
        Largest relative difference of the length of a head from sqrt(k).
    """

    dim: int
    rank: int
    n_clients: int
    participants: int
    n_samples: int
    step_size: float
    noise_std: float
    batch_rounds: int
    head_steps: float
    ridge: float
    rounds: Indices
    distance: Array
    smallest: Array
    largest: Array
    unequal: Array

    @property
    def start(self) -> Array:
        """``dist(B_0, B*)``, (trials,)."""
        return self.distance[:, 0]

    @property
    def condition(self) -> Array:
        """Kappa, (trials,); infinite where sigma_min bar is 0."""
        with np.errstate(divide="ignore"):
            return self.largest / self.smallest

    @property
    def sizes(self) -> Array:
        """Samples that the theorem asks for with its constant at 1, (trials,)."""
        sizes = {"dim": self.dim, "rank": self.rank, "participants": self.participants}
        return fedrep_least_samples(condition=np.maximum(1.0, self.condition), start=self.start, **sizes)

    @property
    def allowed(self) -> float:
        """The failure probability that the theorem allows in all rounds together."""
        sizes = {"dim": self.dim, "rank": self.rank, "participants": self.participants}
        return fedrep_failure_probability(int(self.rounds[-1]), **sizes)

    def bound(self, exponent: float = PRINTED) -> Array:
        """Return the bound in every recorded round, (trials, R)."""
        start, smallest = self.start, self.smallest
        return fedrep_bound(self.rounds, step_size=self.step_size, start=start, smallest=smallest, exponent=exponent)

    def hypotheses(self, constant: float = 1.0) -> tuple[Hypothesis, ...]:
        """Return the theorem's hypotheses, each at the trial that is nearest to failing, with C = `constant`."""
        limit = float(np.min(fedrep_step_limit(self.largest)))
        step = limit if limit < self.step_size <= limit * (1.0 + STEP_TOLERANCE) else self.step_size
        needed = float(np.max(self.sizes)) * check_number("constant", constant, positive=True)
        worst = int(np.argmax(self.condition))
        return (
            Hypothesis(text="noise std <= 0", left=self.noise_std, right=0.0),
            Hypothesis(text="rounds that see one batch <= 1", left=self.batch_rounds, right=1.0),
            Hypothesis(text="gradient steps in the place of exact heads <= 0", left=self.head_steps, right=0.0),
            Hypothesis(text="ridge <= 0", left=self.ridge, right=0.0),
            Hypothesis(text="| ||w_i|| / sqrt(k) - 1 | <= 0", left=_zeroed(self.unequal), right=0.0),
            Hypothesis(text="k <= p", left=self.rank, right=self.participants),
            Hypothesis(
                text="0 < sigma_min (up to rounding, 1e-12 sigma_max <= sigma_min)",
                left=1e-12 * float(self.largest[worst]),
                right=float(self.smallest[worst]),
            ),
            Hypothesis(text="eta <= 1 / (4 sigma_max^2)", left=step, right=limit),
            Hypothesis(
                text=f"{constant:g} kappa^4 k^2 (k log p + d/p) / E_0^2 <= m", left=needed, right=float(self.n_samples)
            ),
        )


def theorem1_run(result: Result) -> Theorem1Run:
    """Return a finished run of FedRep with every constant of Theorem 1, computed from its truth and participants.

    Parameters
    ----------
    result : Result
        Of `lf.simulate`, with the metric "subspace_distance", under any engine.

    Returns
    -------
    Theorem1Run

    Raises
    ------
    ValueError
        For another algorithm, one with several local steps on B, a server's sum or no QR, of which the theorem does not
        speak; for a truth that is not ``B* w_i*`` with B* of as many columns as B; for x of another covariance than I.

    Notes
    -----
    Truth and participants are functions of the seed, and are drawn again. Without QR the theorem would be of the
    algorithm as it is printed; its proof normalises B.

    **Deviations**: the largest and the least singular values are over all subsets of clients where all take part, else
    over the sets that occurred (`head_singular_values`).

    References
    ----------
    FedRep paper, Theorem 1, Assumptions 1 to 3.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=10, rank=2, condition_number=1.0)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.25, init=lf.AtDistance(0.5))
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(60), rounds=30, trials=2)
    >>> run = lf.theory.theorem1_run(result)
    >>> run.bound().shape, [str(hypothesis) for hypothesis in run.hypotheses() if not hypothesis.holds]
    ((2, 31), [])
    """
    algorithm, problem, data = result.algorithm, result.problem, result.data
    if not isinstance(algorithm, FedRep):
        raise ValueError(f"result is of {result.name}, and the theorem speaks of FedRep")
    if (algorithm.representation_steps, algorithm.aggregate, algorithm.orthonormalize) != (1, "mean", True):
        raise ValueError(
            f"algorithm = {algorithm!r} must have representation_steps = 1, aggregate = 'mean' and orthonormalize = "
            "True: the theorem speaks of these"
        )
    if problem is None:
        raise ValueError("result has no problem: without a truth there is no distance to bound")
    rounds, how = int(result.rounds[-1]), algorithm.heads
    smallest, largest, unequal = theorem1_constants(
        problem,
        rank=algorithm.rank,
        participation=result.participation,
        rounds=rounds,
        trials=result.trials,
        seed=result.seed,
    )
    return Theorem1Run(
        dim=problem.dim,
        rank=algorithm.rank,
        n_clients=problem.n_clients,
        participants=result.participants,
        n_samples=int(data.counts.min()) if isinstance(data, GivenSamples) else data.n_samples,
        step_size=one_step(algorithm.step_size, "the theorem speaks of"),
        noise_std=problem.noise_std,
        batch_rounds=1 if isinstance(data, FreshSamples) else max(1, rounds),
        head_steps=how.steps if isinstance(how, GradientHeads) else 0 if isinstance(how, ExactHeads) else np.inf,
        ridge=how.ridge if isinstance(how, ExactHeads) else 0.0,
        rounds=result.rounds,
        distance=result.metrics["subspace_distance"],
        smallest=smallest,
        largest=largest,
        unequal=unequal,
    )


def theorem1_constants(
    problem: Problem, *, rank: int, participation: Participation = 1.0, rounds: int, trials: int, seed: Seed = 0
) -> tuple[Array, Array, Array]:
    """Return what Theorem 1 asks of the truth of a run to be: `Theorem1Run.smallest`, `largest` and `unequal`.

    Parameters
    ----------
    problem, participation, rounds, trials, seed
        As in `lf.simulate`.
    rank : int
        Columns of B.

    Returns
    -------
    smallest, largest, unequal : ndarray (trials,)

    Raises
    ------
    ValueError
        For truths and laws of x of which the theorem does not speak, as in `theorem1_run`.
    """
    sets = participant_sets(participation, n_clients=problem.n_clients, rounds=rounds, trials=trials, seed=seed)
    constants = []
    for trial in range(trials):  # one by one: all truths together may be large
        truth = problem.truth(seed, [trial])
        check_covariance(truth, "the theorem is stated")
        heads = _heads(truth, rank)
        (smallest,), (largest,) = head_singular_values(heads, None if sets is None else sets[trial][None])
        lengths = np.sqrt(np.vecdot(heads, heads) / rank)
        constants.append((smallest, largest, np.abs(lengths - 1.0).max()))
    smallest, largest, unequal = np.transpose(constants)
    return smallest, largest, unequal


def _heads(truth: Truth, rank: int) -> Array:
    """Return the true heads in the coordinates of an orthonormal B*, (trials, n, k)."""
    if truth.B is None or truth.W is None or truth.S is not None or truth.subspace is not None:
        raise ValueError("the truth must be B* w_i*, in factors and without a part beside it: the theorem speaks of it")
    if truth.B.shape[-1] != rank:
        raise ValueError(f"the truth has rank {truth.B.shape[-1]} and B {rank} columns: the theorem wants them equal")
    return np.asarray(truth.W @ qr_positive(truth.B)[1].mT)


def _zeroed(unequal: Array) -> float:
    """Return the largest difference, as 0 where it is rounding."""
    worst = float(unequal.max())
    return 0.0 if worst <= NORM_TOLERANCE else worst
