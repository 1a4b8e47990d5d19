"""Constants and hypotheses of Theorem 1 for a run of FedRep, computed from its ground truth and participants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Indices
from linfed.algorithms.parts.heads import ExactHeads, GradientHeads
from linfed.algorithms.parts.step_size import largest_value, one_step
from linfed.algorithms.representation.fedrep import FedRep
from linfed.checks import check_instance, check_number
from linfed.data.samples import FreshSamples, GivenSamples
from linfed.numerics.streams import Seed
from linfed.problems import Problem, Truth
from linfed.simulation.participation import Participants, Participation
from linfed.simulation.results import Result
from linfed.statistics.findings import Hypothesis
from linfed.theory._assumptions import check_covariance, check_sub_gaussian
from linfed.theory.fedrep.theorem1.bound import (
    PRINTED,
    fedrep_bound,
    fedrep_failure_probability,
    fedrep_least_samples,
    fedrep_step_limit,
    head_singular_values,
)

NORM_TOLERANCE = 1e-9
"""Relative tolerance for the length of a head, which must be sqrt(k)."""

STEP_TOLERANCE = 1e-11
"""Relative tolerance for the step-size limit, since drawn heads have their prescribed moments only up to 1e-12."""


def participant_sets(
    participation: Participation, *, n_clients: int, n_rounds: int, trials: int, seed: Seed
) -> Indices | None:
    """Return the participants of every round of `lf.simulate` with these arguments.

    Returns
    -------
    ndarray of int (trials, n_rounds, p) or None
        None if all clients participate, or if there are no rounds.
    """
    sizes = {"n_clients": n_clients, "n_rounds": n_rounds, "n_trials": trials}
    participants = Participants(participation, trials=range(trials), seed=seed, **sizes)
    if participants.count == n_clients or n_rounds == 0:
        return None
    return np.stack([participants.next() for _ in range(n_rounds)], axis=1)


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
        Number of rounds that share a batch; 1 for fresh samples.
    head_steps : float
        Number of gradient steps on heads; 0 for exact heads, infinite for a user-defined class.
    ridge : float
        Ridge penalty of exact heads.
    rounds : ndarray of int (R,)
        Recorded rounds, from 0.
    distance : ndarray (trials, R)
        ``dist(B_t, B*)``; NaN after divergence.
    smallest, largest : ndarray (trials,)
        sigma_min bar and sigma_max bar over the participant sets of the run.
    unequal : ndarray (trials,)
        Largest relative difference between the length of a head and sqrt(k).

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=10, rank=2, condition_number=1.0)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.25, init=lf.AtDistance(0.5))
    >>> run = lf.theory.theorem1_run(lf.simulate(algorithm, problem, data=lf.FreshSamples(60), n_rounds=10, trials=2))
    >>> run.start.round(3), run.condition.round(3)
    (array([0.5, 0.5]), array([1., 1.]))
    >>> bool((run.distance <= run.bound() + 1e-12).all())
    True
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
        """Initial distance ``dist(B_0, B*)``, (trials,)."""
        return self.distance[:, 0]

    @property
    def condition(self) -> Array:
        """Condition number kappa, (trials,); infinite if sigma_min bar is 0."""
        with np.errstate(divide="ignore"):
            return self.largest / self.smallest

    @property
    def sizes(self) -> Array:
        """Number of samples that the theorem requires with its constant set to 1, (trials,)."""
        sizes = {"dim": self.dim, "rank": self.rank, "participants": self.participants}
        return fedrep_least_samples(condition=np.maximum(1.0, self.condition), start=self.start, **sizes)

    @property
    def allowed(self) -> float:
        """Failure probability of the theorem's bound over all rounds."""
        sizes = {"dim": self.dim, "rank": self.rank, "participants": self.participants}
        return fedrep_failure_probability(int(self.rounds[-1]), **sizes)

    def bound(self, exponent: float = PRINTED) -> Array:
        """Return Theorem 1's bound on the distance in every recorded round, (trials, R)."""
        start, smallest = self.start, self.smallest
        return fedrep_bound(self.rounds, step_size=self.step_size, start=start, smallest=smallest, exponent=exponent)

    def hypotheses(self, constant: float = 1.0) -> tuple[Hypothesis, ...]:
        """Return the hypotheses with C = `constant`, each evaluated at the trial closest to violating it."""
        constant = check_number("constant", constant, positive=True)
        limit = float(np.min(fedrep_step_limit(self.largest)))
        step = limit if limit < self.step_size <= limit * (1.0 + STEP_TOLERANCE) else self.step_size
        needed = float(np.max(self.sizes)) * constant
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
    """Compute all constants of Theorem 1 for a finished run of FedRep, from its ground truth and participants.

    Parameters
    ----------
    result : Result
        Result of `lf.simulate` for `FedRep`, with the metric "subspace_distance", with any engine.

    Returns
    -------
    Theorem1Run

    Raises
    ------
    TypeError
        If `result` is not a result.
    KeyError
        If it has no metric "subspace_distance".
    ValueError
        If the theorem does not cover the run: another algorithm (also a subclass, such as `PrivateFedRep`), several
        local steps on B, a schedule of step sizes, ``aggregate="sum"``, weights, `disjoint_samples`, `whiten`, or no
        QR. If there is no ground truth, or it is not ``B* w_i*`` where B* has as many columns as B. If the design is a
        custom one, which may have heavy tails, or if the covariance of x is not I.

    Notes
    -----
    Ground truth and participants are functions of the seed and are drawn again. The printed algorithm has no QR, but
    the proof of the theorem normalises B, so QR is required here.

    **Deviations**: the paper takes the extreme singular values over all subsets of p clients. With p < n they are taken
    here over the sets of the run (`head_singular_values`).

    References
    ----------
    FedRep paper, Theorem 1, Assumptions 1 to 3.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=10, rank=2, condition_number=1.0)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.25, init=lf.AtDistance(0.5))
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(60), n_rounds=30, trials=2)
    >>> run = lf.theory.theorem1_run(result)
    >>> run.bound().shape, [str(hypothesis) for hypothesis in run.hypotheses() if not hypothesis.holds]
    ((2, 31), [])
    """
    check_instance("result", result, Result, "a result of lf.simulate")
    algorithm, problem, data = result.algorithm, result.problem, result.data
    if type(algorithm) is not FedRep:  # subclasses add noise, compression or other steps
        raise ValueError(f"result has algorithm {result.name}; Theorem 1 supports only FedRep")
    options = algorithm.representation_steps, algorithm.aggregate, algorithm.weights, algorithm.orthonormalize
    if options != (1, "mean", None, True) or algorithm.disjoint_samples or algorithm.whiten is not None:
        raise ValueError(
            f"algorithm = {algorithm!r} must have representation_steps = 1, aggregate = 'mean', weights = None, "
            "orthonormalize = True, disjoint_samples = False and whiten = None for Theorem 1"
        )
    if problem is None:
        raise ValueError("result has no problem; Theorem 1 requires a ground truth")
    rounds, how = int(result.rounds[-1]), algorithm.heads
    smallest, largest, unequal = theorem1_constants(
        problem,
        rank=algorithm.rank,
        participation=result.participation,
        n_rounds=rounds,
        trials=result.trials,
        seed=result.seed,
    )
    return Theorem1Run(
        dim=problem.dim,
        rank=algorithm.rank,
        n_clients=problem.n_clients,
        participants=result.participants,
        n_samples=int(np.min(data.counts if isinstance(data, GivenSamples) else data.n_samples)),
        step_size=one_step(algorithm.step_size, "Theorem 1 requires"),
        noise_std=float(np.max(problem.noise_std)),
        batch_rounds=1 if isinstance(data, FreshSamples) else max(1, rounds),
        head_steps=how.steps if isinstance(how, GradientHeads) else 0 if isinstance(how, ExactHeads) else np.inf,
        ridge=largest_value(how.ridge, "ridge") if isinstance(how, ExactHeads) else 0.0,
        rounds=result.rounds,
        distance=result.metrics["subspace_distance"],
        smallest=smallest,
        largest=largest,
        unequal=unequal,
    )


def theorem1_constants(
    problem: Problem, *, rank: int, participation: Participation = 1.0, n_rounds: int, trials: int, seed: Seed = 0
) -> tuple[Array, Array, Array]:
    """Return the constants of Theorem 1 for a run: `Theorem1Run.smallest`, `largest` and `unequal`.

    Parameters
    ----------
    problem, participation, n_rounds, trials, seed
        As in `lf.simulate`.
    rank : int
        Number of columns of B.

    Returns
    -------
    smallest, largest, unequal : ndarray (trials,)

    Raises
    ------
    ValueError
        If the theorem does not cover the ground truth or the distribution of x, as in `theorem1_run`.
    """
    sets = participant_sets(participation, n_clients=problem.n_clients, n_rounds=n_rounds, trials=trials, seed=seed)
    constants = []
    for trial in range(trials):  # one by one: all truths together may be large
        truth = problem.truth(seed, [trial])
        check_covariance(truth, "Theorem 1 requires")
        check_sub_gaussian(truth, "Theorem 1 requires")
        heads = _heads(truth, rank)
        (smallest,), (largest,) = head_singular_values(heads, None if sets is None else sets[trial][None])
        lengths = np.sqrt(np.vecdot(heads, heads) / rank)
        constants.append((smallest, largest, np.abs(lengths - 1.0).max()))
    smallest, largest, unequal = np.transpose(constants)
    return smallest, largest, unequal


def _heads(truth: Truth, rank: int) -> Array:
    """Return the true heads in the coordinates of an orthonormal B*, (trials, n, k)."""
    if truth.B is None or truth.W is None or truth.S is not None or truth.subspace is not None:
        raise ValueError("the ground truth must be B* w_i*, given as factors and without further parts, for Theorem 1")
    if truth.B.shape[-1] != rank:
        raise ValueError(f"the ground truth has rank {truth.B.shape[-1]}; Theorem 1 requires rank = {rank}, as for B")
    return truth.orthonormal_heads()


def _zeroed(unequal: Array) -> float:
    """Return the largest difference, or 0 if it is within rounding error."""
    worst = float(unequal.max())
    return 0.0 if worst <= NORM_TOLERANCE else worst
