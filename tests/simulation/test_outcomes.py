"""Outcomes of runs that complete all rounds without a result: steps beyond the edge, a B that cannot move, limits."""

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.overshooting import overshot
from tests.helpers import basis, each, normal

N, M, D, K = 20, 30, 8, 2
COMPLETED, UNSTABLE, STALLED = lf.Status.COMPLETED, lf.Status.UNSTABLE, lf.Status.STALLED


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


@each("participation", [1.0, 0.5])
@each("name", HIDDEN)
def test_labels_of_another_unit_are_no_silent_nonsense(name, participation):
    """QR keeps B finite, whatever the step; the right step for labels a thousand times as large is 1e-6 of it."""
    for factor, step, wanted in ((1.0, 0.3, COMPLETED), (1000.0, 0.3, UNSTABLE), (1000.0, 0.3e-6, COMPLETED)):
        if name == "PrivateFedRep" and step < 1e-3:  # whose noise has a unit, too
            continue
        result = lf.simulate(HIDDEN[name](step), data=given(factor), rounds=60, participation=participation)
        assert result.status == [wanted], (factor, step)
        loss = result.metrics["train_loss"][0, -1] / factor**2
        assert (loss < 0.1) == (wanted is COMPLETED)


@each("factor", [1.0, 1000.0])
@each("step", [0.01, 0.1, 0.3, 0.6, 0.9, 1.1, 1.5, 2.5, 10.0, 1e4])
def test_a_step_is_unstable_where_smaller_ones_learn_far_more(step, factor):
    best = lf.simulate(lf.FedRep(rank=K, step_size=0.5), data=given(), rounds=200).metrics["train_loss"][0, -1]
    result = lf.simulate(lf.FedRep(rank=K, step_size=step / factor**2), data=given(factor), rounds=400)
    excess = result.metrics["train_loss"][0, -1] / factor**2 / best
    assert result.status == [UNSTABLE if excess > 1.5 else COMPLETED], excess


@each("participation", [1.0, 0.5])
@each("step", [0.9, 2.5])
@each("name", ["FedRep, sum", "AltGDmin", "FedRep, schedule", "FedRep"])
def test_equal_steps_have_equal_outcomes(name, step, participation):
    """A sum over p clients takes steps p times as large as their mean."""
    factor = 1.0 if name in ("FedRep", "FedRep, schedule") else 1.0 / participation
    result = lf.simulate(HIDDEN[name](step * factor), data=given(), rounds=60, participation=participation)
    assert result.status == [UNSTABLE if step > 2 else COMPLETED]


@each("participation", [1.0, 5])
@each("engine", ["explicit", "projected", "chain"])
def test_steps_beyond_the_edge_are_found_with_fresh_samples(engine, participation):
    run = {"data": lf.FreshSamples(10), "rounds": 60, "trials": 3, "engine": engine, "participation": participation}
    for step, wanted in ((0.3, COMPLETED), (1000.0, UNSTABLE)):
        assert lf.simulate(lf.FedRep(rank=K, step_size=step), PROBLEM, **run).status == [wanted] * 3


def test_the_unit_of_fresh_samples_counts():
    for std, step in ((10.0, 0.003), (0.1, 30.0)):
        problem = lf.SharedRepresentation(n_clients=50, dim=20, rank=K, design=lf.Gaussian(covariance=std**2))
        run = {"problem": problem, "data": lf.FreshSamples(10), "rounds": 60}
        assert lf.simulate(lf.FedRep(rank=K, step_size=step), **run).status == [COMPLETED]
        assert lf.simulate(lf.FedRep(rank=K, step_size=100 * step), **run).status == [UNSTABLE]


def test_what_has_no_orthonormal_representation_diverges_as_before():
    for algorithm in (lf.FedAvg(step_size=9.0), lf.LocalOnly(step_size=9.0)):
        assert lf.simulate(algorithm, data=given(), rounds=60).status == [lf.Status.DIVERGED]


def test_tuning_finds_the_step_for_labels_of_another_unit():
    found = [
        lf.tune(lf.FedRep(rank=K, step_size=0.1), data=given(factor), grid={"step_size": (0.1, 0.3, 0.9)}, rounds=60,
                metric="train_loss", extend=True, trials=1)
        for factor in (1.0, 1000.0)
    ]  # fmt: skip
    losses = [
        lf.simulate(one.algorithm, data=given(factor), rounds=60).metrics["train_loss"][0, -1] / factor**2
        for one, factor in zip(found, (1.0, 1000.0), strict=True)
    ]
    assert losses[1] < 1.1 * losses[0]
    assert found[1].at_grid_edge == ()
    assert np.isinf(found[1].scores[:3]).all()


def test_a_grid_of_steps_beyond_the_edge_is_an_error():
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        lf.tune(lf.FedRep(rank=K, step_size=0.1), data=given(1000.0), grid={"step_size": (0.1, 0.3)}, rounds=60,
                metric="train_loss", trials=1)  # fmt: skip


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
        result = lf.simulate(lf.LocalOnly(step_size=step, ridge=0.01), data=data, rounds=300)
        assert result.status == [wanted]
    data = lf.GivenClasses(np.delete(X, 2, axis=0), np.delete(labels, 2, axis=0))
    assert lf.simulate(lf.LocalOnly(step_size=0.3, ridge=0.01), data=data, rounds=300).status == [COMPLETED]


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
    "FLUTE": (lf.FLUTE(rank=K, step_size=0.01), False),
}


@each("m", [1, K, 12])
@each("name", FEW)
def test_a_representation_that_cannot_move_is_reported(name, m):
    algorithm, stalls = FEW[name]
    result = lf.simulate(algorithm, PROBLEM, data=lf.FixedSamples(m), rounds=5, trials=2)
    assert result.status == [STALLED if stalls and m <= K else COMPLETED] * 2


def test_a_representation_of_all_dimensions_need_not_move():
    result = lf.simulate(
        lf.FedRep(rank=D, step_size=0.1), data=lf.GivenSamples(*(a[:, :D] for a in samples())), rounds=5
    )
    assert result.status == [COMPLETED]


# --- limits of iterations ------------------------------------------------------------------------------------


@each("kind", [lf.BurerMonteiro, lf.NuclearNorm])
def test_the_limit_of_iterations_is_reported_trial_by_trial(kind):
    options = {"rank": K, "init": "random"} if kind is lf.BurerMonteiro else {"weight": 0.01}
    X, y = normal(2, N, M, D), normal(2, N, M, seed=1)
    y[1] = 0.0  # nothing to do
    data = lf.GivenSamples(X, y)
    assert lf.simulate(kind(iterations=3, **options), data=data, rounds=2).status == [
        lf.Status.ITERATION_LIMIT, COMPLETED,
    ]  # fmt: skip
    assert lf.simulate(kind(**options), data=data, rounds=2).status == [COMPLETED] * 2


def test_a_saved_result_keeps_its_outcomes(tmp_path):
    result = lf.simulate(lf.NuclearNorm(weight=1e-4, iterations=3), data=given(), rounds=1)
    found = lf.Result.load(result.save(tmp_path / "run.npz"))
    assert found.status == result.status == [lf.Status.ITERATION_LIMIT]
    assert repr(found) == "<Result of NuclearNorm: 1 trials, 1 round, 1 ITERATION_LIMIT>"
    assert "1 ITERATION_LIMIT" in found.summary()


def test_the_representation_of_a_result_counts_other_outcomes():
    X, y = (np.stack([array] * 3) for array in samples())
    y[1] *= 1000.0
    result = lf.simulate(lf.FedRep(rank=K, step_size=0.3), data=lf.GivenSamples(X, y), rounds=60)
    assert repr(result) == "<Result of FedRep: 3 trials, 60 rounds, 1 UNSTABLE>"
    assert result.status_round.tolist() == [60] * 3


# --- ordinary runs -------------------------------------------------------------------------------------------

STEP = {"step_size": 0.1}
LAYERS = STEP | {"rank": K}
ORDINARY = [
    lf.FedRep(**LAYERS), lf.FedRep(**LAYERS, heads=lf.GradientHeads(steps=5)), lf.FedRep(**LAYERS, whiten="own"),
    lf.FedRep(**LAYERS, whiten="pooled"), lf.FedRep(**LAYERS, representation_steps=3), lf.FedPer(**LAYERS),
    lf.FedRep(**LAYERS, split=True), lf.PrivateFedRep(**LAYERS, message_noise_std=0.01, clip=0.5),
    lf.CompressedFedRep(**LAYERS, kept_share=0.5), lf.AltGDmin(rank=K), lf.AltMin(rank=K),
    lf.AltMin(rank=K, split=True), lf.FedRepShortcut(**LAYERS), lf.FedRepShortcut(**LAYERS, refit=True),
    lf.FedRepShortcut(**LAYERS, solver=lf.ClosedForm(order="joint"), ridge=0.1),
    lf.Personalized(base=lf.FedRep(**LAYERS), ridge=0.1),
    lf.FLUTE(rank=K, step_size=0.01), lf.TPGD(rank=K, step_size=0.01, first_phase=50), lf.LGFedAvg(**LAYERS),
    lf.FedRoD(**LAYERS, personal=lf.ExactHeads()), lf.FedBABU(**LAYERS), lf.FedAvg(**STEP), lf.FedAvg(**LAYERS),
    lf.ANIL(**LAYERS, adaptation_step_size=0.1), lf.MAML(**LAYERS, adaptation_step_size=0.1), lf.LocalOnly(),
    lf.LocalOnly(ridge=0.1), lf.LocalOnly(**STEP), lf.PooledLeastSquares(), lf.Oracle(rank=K), lf.Ditto(**STEP),
    lf.APFL(**STEP), lf.PFedMe(step_size=0.01, inner_steps=None), lf.L2GD(**STEP, strength=0.1),
    lf.PerFedAvg(**STEP, adaptation_step_size=0.1), lf.FedMTL(strength=0.1), lf.FedMTL(strength=0.1, relation="tasks"),
    lf.NuclearNorm(weight=0.05), lf.NuclearNorm(noise_std=0.1), lf.BurerMonteiro(rank=K), lf.MethodOfMoments(rank=K),
    lf.UStatistic(rank=K), lf.TwoReplica(rank=K), lf.LocalGram(rank=K),
]  # fmt: skip


@each("data", [lf.FixedSamples(12), lf.FixedSamples(30), lf.FreshSamples(12)])
@each("noise", [0.0, 0.3, 1.0])
@each("algorithm", ORDINARY)
def test_ordinary_runs_have_no_other_outcome(algorithm, noise, data):
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=K, noise_std=noise)
    result = lf.simulate(algorithm, problem, data=data, rounds=30, trials=2, metrics=["risk"])
    assert result.status == [COMPLETED] * 2
