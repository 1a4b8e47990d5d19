"""Outcomes of runs that complete all rounds without a useful result: unstable steps, a B that cannot move, limits."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from docs.tools.algorithm_table import with_required
from linfed.algorithms.parts.overshooting import overshot
from tests.helpers import assert_one_line, basis, mostly_long, normal
from tests.worlds import LEARNERS, names, one_of_each, shared

N, M, D, K = 20, 30, 8, 2
COMPLETED, UNSTABLE, STALLED = lf.Status.COMPLETED, lf.Status.UNSTABLE, lf.Status.STALLED
DIVERGED = lf.Status.DIVERGED


def samples(factor=1.0, noise=0.1):
    X, B, W = normal(N, M, D), basis(D, K, seed=1), normal(N, K, seed=2)
    return X, factor * (np.einsum("nmd,dk,nk->nm", X, B, W) + noise * normal(N, M, seed=3))


def given(factor=1.0, **more):
    return lf.GivenSamples(*samples(factor, **more))


PROBLEM = lf.SharedRepresentation(n_clients=50, dim=20, rank=K, noise_std=0.1)
HIDDEN = {
    "FedRep": lambda step: lf.FedRep(rank=K, step_size=step),
    "FedRep, gradient heads": lambda step: lf.FedRep(
        rank=K, step_size=step, heads=lf.GradientHeads(steps=5, step_size=0.2)
    ),
    "FedRep, sum": lambda step: lf.FedRep(rank=K, step_size=step / N, aggregate="sum"),
    "FedRep, weights": lambda step: lf.FedRep(rank=K, step_size=step, weights=np.arange(1.0, N + 1)),
    "FedRep, schedule": lambda step: lf.FedRep(rank=K, step_size=[step] * 60),
    "PrivateFedRep": lambda step: lf.PrivateFedRep(rank=K, step_size=step, message_noise_std=1e-3),
    "CompressedFedRep": lambda step: lf.CompressedFedRep(rank=K, step_size=step, kept_share=0.9),
    "AltGDmin": lambda step: lf.AltGDmin(rank=K, step_size=step / (N * M)),
    "FedRepShortcut": lambda step: lf.FedRepShortcut(
        rank=K, step_size=step, solver=lf.ClosedForm(order="joint"), ridge=1e6
    ),
    "Personalized": lambda step: lf.Personalized(base=lf.FedRep(rank=K, step_size=step), ridge=1e6),
}


@pytest.mark.parametrize(
    "name", mostly_long(HIDDEN, "FedRep", "FedRep, sum", "FedRep, weights", "AltGDmin", "PrivateFedRep")
)
@pytest.mark.filterwarnings("ignore:.*far from mean 0 or scale 1")
def test_labels_of_another_unit_are_reported(name):
    """QR keeps B finite, whatever the step; the right step for labels a thousand times as large is 1e-6 of it."""
    for factor, step, wanted in ((1.0, 0.3, COMPLETED), (1000.0, 0.3, UNSTABLE), (1000.0, 0.3e-6, COMPLETED)):
        if name == "PrivateFedRep" and step < 1e-3:  # its noise has a unit, too
            continue
        result = lf.simulate(HIDDEN[name](step), data=given(factor), n_rounds=60, participation=0.5)
        assert result.status == [wanted], (factor, step)
        loss = result.metrics["train_loss"][0, -1] / factor**2
        assert (loss < 0.1) == (wanted is COMPLETED)


BOUNDED = {"ARMUL": "a client moves the common model by at most the penalty", "GeneralFLUTE": "for classes alone"}
"""Algorithms that are excepted from the test below, and why."""
STEPS = [name for name, kind in lf.ALGORITHMS.items() if "step_size" in kind.__dataclass_fields__]


@pytest.mark.parametrize("data", [lf.FixedSamples(10), lf.FreshSamples(10)], ids=["fixed", "fresh"])
@pytest.mark.parametrize("name", [name for name in STEPS if name not in BOUNDED])
def test_a_step_thousands_of_times_too_large_is_reported(name, data):
    """By the status or by an error; an algorithm that keeps B finite needs `overshoots`."""

    def status():
        algorithm = replace(with_required(lf.ALGORITHMS[name]), step_size=1000.0)
        return lf.simulate(algorithm, PROBLEM, data=data, n_rounds=60, trials=2).status

    if name == "L2GD":
        assert_one_line(status, ["must be at most 1"])
    else:
        assert set(status()) <= {UNSTABLE, DIVERGED}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*far from mean 0 or scale 1")
def test_a_step_is_unstable_where_smaller_ones_learn_far_more():
    best = lf.simulate(lf.FedRep(rank=K, step_size=0.5), data=given(), n_rounds=200).metrics["train_loss"][0, -1]
    for step, factor in ((0.01, 1.0), (0.9, 1.0), (1.1, 1000.0), (1.5, 1.0), (2.5, 1000.0)):
        result = lf.simulate(lf.FedRep(rank=K, step_size=step / factor**2), data=given(factor), n_rounds=400)
        excess = result.metrics["train_loss"][0, -1] / factor**2 / best
        assert result.status == [UNSTABLE if excess > 1.5 else COMPLETED], (step, factor, excess)


@pytest.mark.parametrize("name", ["FedRep, sum", "AltGDmin", "FedRep, schedule", "FedRep"])
def test_equal_steps_have_equal_outcomes(name):
    """A sum over p clients takes steps p times as large as their mean."""
    for step, participation in ((0.9, 1.0), (2.5, 1.0), (0.9, 0.5), (2.5, 0.5)):
        factor = 1.0 if name in ("FedRep", "FedRep, schedule") else 1.0 / participation
        result = lf.simulate(HIDDEN[name](step * factor), data=given(), n_rounds=60, participation=participation)
        assert result.status == [UNSTABLE if step > 2 else COMPLETED]


@pytest.mark.parametrize("participation", [1.0, 5])
@pytest.mark.parametrize("engine", ["explicit", "projected", "chain"])
def test_unstable_steps_are_found_with_fresh_samples(engine, participation):
    run = {"data": lf.FreshSamples(10), "n_rounds": 30, "trials": 2, "engine": engine, "participation": participation}
    for step, wanted in ((0.3, COMPLETED), (1000.0, UNSTABLE)):
        assert lf.simulate(lf.FedRep(rank=K, step_size=step), PROBLEM, **run).status == [wanted] * 2


def test_the_unit_of_fresh_samples_counts():
    for std, step in ((10.0, 0.003), (0.1, 30.0)):
        problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=K, design=lf.Gaussian(covariance=std**2))
        run = {"problem": problem, "data": lf.FreshSamples(10), "n_rounds": 60}
        assert lf.simulate(lf.FedRep(rank=K, step_size=step), **run).status == [COMPLETED]
        assert lf.simulate(lf.FedRep(rank=K, step_size=100 * step), **run).status == [UNSTABLE]


@pytest.mark.parametrize(("step", "wanted"), [(1.0, COMPLETED), (1.8, UNSTABLE)])
@pytest.mark.parametrize("name", ["FedRep", "AltGDmin"])
def test_steps_on_disjoint_samples_are_judged_by_their_own_halves(name, step, wanted):
    """Heads of one half and the gradient of the other: the edge is at a smaller step than on all samples."""
    n, m = 60, 14
    problem = lf.SharedRepresentation(n_clients=n, dim=10, rank=3, noise_std=0.05)
    options = {"rank": 3, "init": lf.AtDistance(0.3), "disjoint_samples": True}
    algorithm = (
        lf.FedRep(step_size=step, **options)
        if name == "FedRep"
        else lf.AltGDmin(step_size=step / (n * m / 2), **options)
    )
    result = lf.simulate(algorithm, problem, data=lf.FixedSamples(m), n_rounds=300, trials=4)
    assert result.status.count(wanted) >= (4 if wanted is COMPLETED else 3)  # a loss may fall by chance
    assert (result.metrics["subspace_distance"][:, -1] < 0.03).all() == (wanted is COMPLETED)


NOISY = lf.SharedRepresentation(n_clients=1000, dim=20, rank=2, noise_std=3.0)
LONG = lf.GivenTruth(
    B=np.eye(20, 2), W=normal(50, 2), design=lf.Gaussian(covariance=np.where(np.arange(20) < 2, 25.0, 1.0))
)
RIDGE = lf.SharedRepresentation(n_clients=40, dim=12, rank=2, noise_std=0.1)
STABLE = {
    "noise in heads": (lf.FedRep(rank=2, step_size=2.2), NOISY, lf.FreshSamples(6)),
    "large variance of x in span(B*)": (lf.FedRep(rank=2, step_size=1.0), LONG, lf.FreshSamples(40)),
    "ridge": (lf.FedRep(rank=2, step_size=8.0, heads=lf.ExactHeads(ridge=3.0)), RIDGE, lf.FixedSamples(20)),
    "ridge, fresh": (lf.FedRep(rank=2, step_size=40.0, heads=lf.ExactHeads(ridge=1.0)), RIDGE, lf.FreshSamples(20)),
}


@pytest.mark.parametrize("name", STABLE)
def test_a_step_that_the_run_settles_with_is_not_unstable(name):
    algorithm, problem, data = STABLE[name]
    result = lf.simulate(algorithm, problem, data=data, n_rounds=60, trials=2)
    assert result.status == [COMPLETED] * 2
    assert (result.metrics["subspace_distance"][:, -1] < 0.5).all()


def test_steps_without_an_orthonormal_representation_diverge():
    for algorithm in (lf.FedAvg(step_size=9.0), lf.LocalOnly(step_size=9.0)):
        assert lf.simulate(algorithm, data=given(), n_rounds=60).status == [lf.Status.DIVERGED]


def test_the_rule_of_a_quadratic_loss():
    """From a loss of 1 + excess, the step with curvature c leaves ``1 + excess (1 - c)^2``."""
    c = np.array([0.1, 1.0, 1.9, 1.99, 2.01, 3.0, 100.0])
    for excess, expected in ((1.0, c > 2), (0.05, np.zeros(7, dtype=bool))):
        after = 1.0 + excess * np.square(1.0 - c)
        found = overshot(np.full(7, 1.0 + excess), after, 2.0 * c * excess, np.full(7, 10.0))
        assert found.tolist() == expected.tolist()
    assert overshot(np.array([np.nan]), np.array([1.0]), np.array([1.0]), np.array([1.0])).tolist() == [False]
    assert not overshot(np.zeros(1), np.full(1, 1e-30), np.full(1, 1e-30), np.ones(1)).any()


def test_local_gradient_steps_on_classes_are_judged_for_every_client():
    """The gradient of the cross-entropy is bounded: too large a step never diverges."""
    X, labels = normal(4, 30, 3), (normal(4, 30, seed=1) > 0).astype(int)
    X[2] *= 15.0
    data = lf.GivenClasses(X, labels)
    for step, wanted in ((0.3, UNSTABLE), (0.003, COMPLETED)):
        result = lf.simulate(lf.LocalOnly(step_size=step, ridge=0.01), data=data, n_rounds=300)
        assert result.status == [wanted]
    data = lf.GivenClasses(np.delete(X, 2, axis=0), np.delete(labels, 2, axis=0))
    assert lf.simulate(lf.LocalOnly(step_size=0.3, ridge=0.01), data=data, n_rounds=300).status == [COMPLETED]


# --- a representation that cannot move -----------------------------------------------------------------------

FEW = {
    "FedRep": (lf.FedRep(rank=K, step_size=0.3), True),
    "AltGDmin": (lf.AltGDmin(rank=K), True),
    "AltMin": (lf.AltMin(rank=K), True),
    "BurerMonteiro": (lf.BurerMonteiro(rank=K), True),
    "Personalized": (lf.Personalized(base=lf.FedRep(rank=K, step_size=0.3), ridge=0.1), True),
    "FedRep, gradient heads": (lf.FedRep(rank=K, step_size=0.3, heads=lf.GradientHeads()), False),
    "Oracle": (lf.Oracle(rank=K), False),
    "MethodOfMoments": (lf.MethodOfMoments(rank=K), False),
    "FedAvg": (lf.FedAvg(rank=K, step_size=0.1), False),
    "FedPer": (lf.FedPer(rank=K, step_size=0.1), False),
    "Personalized Oracle": (lf.Personalized(base=lf.Oracle(rank=K), ridge=0.1), False),
    "FLUTE": (lf.FLUTE(rank=K, step_size=0.01), False),
}


@pytest.mark.parametrize("name", FEW)
def test_a_representation_that_cannot_move_is_reported(name):
    algorithm, stalls = FEW[name]
    for m in (1, K, 12):
        result = lf.simulate(algorithm, PROBLEM, data=lf.FixedSamples(m), n_rounds=5, trials=2)
        assert result.status == [STALLED if stalls and m <= K else COMPLETED] * 2
    first = lf.simulate(algorithm, PROBLEM, data=lf.FixedSamples(K), n_rounds=1)
    assert first.status == [COMPLETED]  # heads may have been 0


def test_a_representation_of_all_dimensions_need_not_move():
    result = lf.simulate(
        lf.FedRep(rank=D, step_size=0.1), data=lf.GivenSamples(*(a[:, :D] for a in samples())), n_rounds=5
    )
    assert result.status == [COMPLETED]


# --- limits of iterations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [lf.BurerMonteiro, lf.NuclearNorm])
def test_the_limit_of_iterations_is_reported_trial_by_trial(kind, tmp_path):
    options = {"rank": K, "init": "random"} if kind is lf.BurerMonteiro else {"penalty": 0.01}
    X, y = normal(2, N, M, D), normal(2, N, M, seed=1)
    y[1] = 0.0  # this trial needs no iteration
    data = lf.GivenSamples(X, y)
    result = lf.simulate(kind(iterations=3, **options), data=data, n_rounds=2)
    loaded = lf.Result.load(result.save(tmp_path / "run.npz"))
    assert loaded.status == result.status == [lf.Status.ITERATION_LIMIT, COMPLETED]
    assert lf.simulate(kind(**options), data=data, n_rounds=2).status == [COMPLETED] * 2


def test_a_result_counts_its_outcomes():
    X, y = (np.stack([array] * 3) for array in samples())
    y[1] *= 1000.0
    result = lf.simulate(lf.FedRep(rank=K, step_size=0.3), data=lf.GivenSamples(X, y), n_rounds=60)
    assert repr(result) == "<Result of FedRep: 3 trials, 60 rounds, 1 UNSTABLE>"
    assert "1 UNSTABLE" in result.summary()
    assert result.status_round.tolist() == [60] * 3


# --- ordinary runs -------------------------------------------------------------------------------------------

ORDINARY = (lf.FixedSamples(12), 0.0), (lf.FixedSamples(30), 0.3), (lf.FreshSamples(12), 1.0)


JUDGED = [
    name
    for name in names()
    if LEARNERS[name].kind.overshoots is not lf.Algorithm.overshoots
    or LEARNERS[name].kind.unfinished is not lf.Algorithm.unfinished
]
"""Learners with an outcome of their own; the others can only complete, stall or diverge."""


@pytest.mark.parametrize("name", one_of_each(JUDGED))
def test_ordinary_runs_have_no_other_outcome(name):
    data, noise = ORDINARY[JUDGED.index(name) % 3]
    result = lf.simulate(LEARNERS[name].make(step_size=0.05), shared(noise=noise), data=data, n_rounds=15, trials=2)
    assert result.status == [COMPLETED] * 2
