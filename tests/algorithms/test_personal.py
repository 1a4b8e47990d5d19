"""Ditto, APFL, pFedMe, L2GD and Per-FedAvg: where they end, what they reduce to, and new clients."""

import numpy as np
import pytest

import linfed as lf
from linfed.theory import fedavg_fixed_point
from tests import references as ref
from tests.helpers import assert_one_line
from tests.loops import assert_rounds_are_the_loop
from tests.worlds import Learner, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


# --- ends --------------------------------------------------------------------------------------------------------


def end(world, algorithm, n_rounds=1500, **more):
    return lf.simulate(algorithm, data=world.data(), n_rounds=n_rounds, metrics=[], **more).final


def ridges(A, b, penalty, centre):
    return np.linalg.solve(A + penalty * np.eye(A.shape[-1]), (b + penalty * centre)[..., None])[..., 0]


@pytest.mark.parametrize("steps", [1, 4])
def test_ditto_ends_near_the_average(world, normal, steps):
    A, b = normal
    final = end(world, lf.Ditto(step_size=0.2, local_steps=steps, penalty=0.7, personal_steps=2))
    theta = fedavg_fixed_point(A, b, step_size=0.2, local_steps=steps)
    np.testing.assert_allclose(final.shared[0, 0], theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(final.S[0], ridges(A, b, 0.7, theta), rtol=0, atol=1e-12)


@pytest.mark.parametrize("participation", [1.0, 2])
@pytest.mark.parametrize("kind", [lf.Ditto, lf.APFL])
def test_the_servers_model_is_that_of_averaging(world, kind, participation):
    run = {"n_rounds": 7, "participation": participation}
    one, two = (end(world, which(step_size=0.2, local_steps=3), **run) for which in (kind, lf.FedAvg))
    np.testing.assert_allclose(one.shared, two.S, rtol=0, atol=1e-14)


def test_without_a_penalty_or_with_the_whole_mix_clients_are_alone(world):
    run = {"n_rounds": 7, "participation": 2}
    alone = end(world, lf.LocalOnly(step_size=0.2, local_steps=3), **run).S
    ditto = lf.Ditto(step_size=0.1, penalty=0.0, personal_steps=3, personal_step_size=0.2)
    np.testing.assert_allclose(end(world, ditto, **run).S, alone, rtol=0, atol=1e-14)
    mixed = lf.APFL(step_size=0.2, local_steps=3, mix=1.0)
    np.testing.assert_allclose(end(world, mixed, **run).own, alone, rtol=0, atol=1e-14)
    none = end(world, lf.APFL(step_size=0.2, local_steps=3, mix=0.0), **run)
    assert not none.own.any()
    np.testing.assert_array_equal(none.predictors(), np.broadcast_to(none.shared, (1, 4, 3)))


def test_a_fixed_mix_ends_at_local_least_squares(world, normal):
    A, b = normal
    final = end(world, lf.APFL(step_size=0.3, mix=0.4), 4000)
    np.testing.assert_allclose(final.predictors()[0], ridges(A, b, 0.0, 0.0), rtol=0, atol=1e-10)


def test_adapted_mixes_end_at_0_and_1(world):
    algorithm = lf.APFL(step_size=0.1, local_steps=2, mix=0.3, mix_step_size=50.0)
    mixes = [step.after.mix[0] for step in lf.iterate(algorithm, data=world.data(), n_rounds=6)]
    assert {0.0, 1.0} <= set(np.ravel(mixes))
    learner = Learner(lf.APFL, {"local_steps": 2, "mix": 0.3, "mix_step_size": 50.0}, sent=10)
    assert assert_rounds_are_the_loop(learner, data=world.data(), worlds=[world], n_rounds=6) == 6


def test_the_variants_of_apfl_differ(world):
    one, two = (end(world, lf.APFL(step_size=0.3, local_steps=5, variant=v), 20) for v in ("paper", "framework"))
    assert np.abs(one.predictors() - two.predictors()).max() > 1e-2


@pytest.mark.parametrize("steps", [1, 4])
def test_exact_pfedme_ends_at_the_fixed_point_of_averaging_on_envelopes(world, normal, steps):
    (A, b), penalty = normal, 2.0
    inverse = np.linalg.inv(A + penalty * np.eye(3))
    shrunk = {"step_size": 0.1, "local_steps": steps}
    w = fedavg_fixed_point(penalty * inverse @ A, (penalty * inverse @ b[..., None])[..., 0], **shrunk)
    final = end(world, lf.PFedMe(**shrunk, penalty=penalty, inner_steps=None))
    np.testing.assert_allclose(final.shared[0, 0], w, rtol=0, atol=1e-12)
    prox = fedavg_fixed_point(A, b, step_size=0.1, local_steps=2000, mu=penalty)  # solves the proximal problems
    assert (np.abs(w - prox).max() < 1e-12) == (steps == 1)
    assert (np.abs(w - prox).max() > 1e-4) == (steps == 4)


def test_many_inner_steps_are_exact(world):
    options = {"step_size": 0.1, "local_steps": 3, "penalty": 2.0}
    many = end(world, lf.PFedMe(**options, inner_steps=300, inner_step_size=0.2), 20)
    exact = end(world, lf.PFedMe(**options, inner_steps=None), 20)
    np.testing.assert_allclose(many.S, exact.S, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("steps", "hessian", "disjoint"),
    [(1, False, False), (1, True, False), (3, True, False), (1, False, True), (3, True, True)],
)
def test_perfedavg_ends_at_its_fixed_point(world, normal, steps, hessian, disjoint):
    thirds, halves = [slice(0, 3), slice(3, 6), slice(6, 9)], [slice(0, 4), slice(4, 9), slice(4, 9)]
    parts = (thirds if hessian else halves) if disjoint else [slice(0, 9)] * 3
    X, y = np.array(world.X), np.array(world.y)
    (A, b), (A1, b1), (A2, _) = (
        (X[:, s].mT @ X[:, s] / X[:, s].shape[1], (X[:, s].mT @ y[:, s, None])[..., 0] / X[:, s].shape[1])
        for s in parts
    )
    M, outer = np.eye(3) - 0.1 * A, np.eye(3) - 0.1 * A2 if hessian else np.eye(3)
    vector = (outer @ (b1 - 0.1 * (A1 @ b[..., None])[..., 0])[..., None])[..., 0]
    matrix = outer @ A1 @ M
    options = {"step_size": 0.1, "local_steps": steps}
    algorithm = lf.PerFedAvg(**options, adaptation_step_size=0.1, hessian=hessian, disjoint_samples=disjoint)
    theta = affine_fixed_point(matrix, vector, **options)
    *_, step, _ = lf.iterate(algorithm, data=world.data(), n_rounds=1)
    state = lf.State(S=theta[None, None], shared=theta[None, None])
    np.testing.assert_allclose(algorithm.step(state, step.batch, None).S[0, 0], theta, rtol=0, atol=1e-13)
    A_all, b_all = normal
    served = theta - 0.1 * (A_all @ theta - b_all)
    np.testing.assert_allclose(algorithm.finish(state, step.batch, None).S[0], served, rtol=0, atol=1e-13)
    if steps == 1 and not disjoint:
        power = 2 if hessian else 1
        left = sum(np.linalg.matrix_power(m, power) @ a for m, a in zip(M, A, strict=True))
        right = sum(np.linalg.matrix_power(m, power) @ c for m, c in zip(M, b, strict=True))
        np.testing.assert_allclose(left @ theta, right, rtol=0, atol=1e-12)


def affine_fixed_point(matrices, vectors, *, step_size, local_steps):
    """Return the fixed point of averaging K steps ``theta - step (M theta - v)``; M need not be symmetric."""
    d = len(matrices[0])
    K = [np.linalg.matrix_power(np.eye(d) - step_size * M, local_steps) for M in matrices]
    shifts = [
        step_size * sum(np.linalg.matrix_power(np.eye(d) - step_size * M, s) for s in range(local_steps)) @ v
        for M, v in zip(matrices, vectors, strict=True)
    ]
    return np.linalg.solve(np.eye(d) - np.mean(K, axis=0), np.mean(shifts, axis=0))


def test_the_expected_step_of_l2gd_is_zero_at_the_minimiser(world, normal):
    (A, b), penalty, q = normal, 0.8, 0.4
    inverse = np.linalg.inv(A + penalty * np.eye(3))
    mean = np.linalg.solve(np.eye(3) - penalty * inverse.mean(axis=0), (inverse @ b[..., None])[..., 0].mean(axis=0))
    V = ridges(A, b, penalty, mean)
    np.testing.assert_allclose(V.mean(axis=0), mean, rtol=0, atol=1e-14)
    prox = fedavg_fixed_point(A, b, step_size=0.1, local_steps=2000, mu=penalty)
    np.testing.assert_allclose(mean, prox, rtol=0, atol=1e-12)
    moves = []
    for coin in (True, False):
        algorithm = lf.L2GD(step_size=0.1, penalty=penalty, mean_probability=q, coins=[coin])
        *_, step = lf.iterate(algorithm, data=world.data(), n_rounds=1)
        moves.append(algorithm.step(lf.State(S=V[None]), step.batch, None).S[0] - V)
    assert np.abs(moves[0]).max() > 1e-2
    np.testing.assert_allclose(q * moves[0] + (1 - q) * moves[1], 0.0, rtol=0, atol=1e-15)


def test_all_clients_of_a_trial_share_the_coin(world):
    """100 coins of probability 0.3 in 20 trials: their number is within 4.5 standard deviations of the mean."""
    algorithm = lf.L2GD(step_size=0.05, penalty=1.0, mean_probability=0.3)
    pulled = []
    for step in lf.iterate(algorithm, data=world.data(), n_rounds=110, trials=20):
        if step.number > 10:  # all models are 0 until the first step on the losses
            kept = np.abs(step.after.S.mean(axis=1) - step.before.S.mean(axis=1)).max(axis=-1) < 1e-13
            moved = np.abs(step.after.S - step.before.S).max(axis=-1) > 1e-12
            assert moved.all()
            pulled.append(kept)
    pulled = np.array(pulled)
    assert abs(pulled.mean() - 0.3) < 4.5 * np.sqrt(0.21 / pulled.size)
    assert pulled.std(axis=0).min() > 0
    assert len(np.unique(pulled, axis=1)) > 1


# --- classes -----------------------------------------------------------------------------------------------------

CLASSES = lf.Classes(n_clients=5, dim=4, n_classes=3, classes_per_client=2)


def classes_end(algorithm, **more):
    return lf.simulate(algorithm, CLASSES, data=lf.FixedSamples(12), **{"n_rounds": 5, "participation": 3} | more).final


def test_classes_reduce_to_averaging_and_to_clients_alone():
    average = classes_end(lf.FedAvg(step_size=0.2, local_steps=3)).S
    for kind in (lf.Ditto, lf.APFL):
        np.testing.assert_allclose(classes_end(kind(step_size=0.2, local_steps=3)).shared, average, rtol=0, atol=1e-14)
    alone = classes_end(lf.LocalOnly(step_size=0.2, local_steps=3)).S
    ditto = lf.Ditto(step_size=0.1, penalty=0.0, personal_steps=3, personal_step_size=0.2)
    np.testing.assert_allclose(classes_end(ditto).S, alone, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        classes_end(lf.APFL(step_size=0.2, local_steps=3, mix=1.0)).predictors(), alone, rtol=0, atol=1e-14
    )
    options = {"step_size": 0.2, "local_steps": 1, "penalty": 2.0, "inner_steps": 1, "inner_step_size": 0.3}
    once = classes_end(lf.FedAvg(step_size=0.2 * 2.0 * 0.3)).S  # one step on the loss, then one towards its result
    np.testing.assert_allclose(classes_end(lf.PFedMe(**options)).shared, once, rtol=0, atol=1e-14)
    local = classes_end(lf.L2GD(step_size=0.2, mean_probability=0.5, coins=[False] * 5)).S
    np.testing.assert_allclose(local, classes_end(lf.LocalOnly(step_size=0.4)).S, rtol=0, atol=1e-14)


def test_perfedavg_of_classes_is_its_loop():
    algorithm = lf.PerFedAvg(step_size=0.2, local_steps=2, adaptation_step_size=0.3)
    for step in lf.iterate(algorithm, CLASSES, data=lf.FixedSamples(12), n_rounds=3):
        if step.number not in (1, 2, 3):
            continue
        theta = step.before.S
        for _ in range(2):
            theta = theta - 0.2 * step.batch.gradient(theta - 0.3 * step.batch.gradient(theta))
        np.testing.assert_allclose(step.after.S, theta.mean(axis=1, keepdims=True), rtol=0, atol=1e-14)


# --- new clients and bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [
        lf.PerFedAvg(step_size=0.3, adaptation_step_size=0.5),
        lf.ANIL(rank=2, step_size=0.3, adaptation_step_size=0.5),
        lf.MAML(rank=2, step_size=0.3, adaptation_step_size=0.3),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_new_clients_start_from_what_the_server_shares(algorithm, tmp_path):
    problem = lf.SharedRepresentation(n_clients=20, dim=5, rank=2, noise_std=0.1)
    result = lf.simulate(algorithm, problem, data=lf.FixedSamples(10), n_rounds=30, trials=2)
    risks = result.new_clients([10], clients=30)
    assert risks.shape == (2, 1, 30)
    assert np.isfinite(risks).all()
    assert risks.mean() < 0.8 * result.metrics["risk"][:, 0].mean()  # of predicting 0
    result.save(tmp_path / "run.npz")
    np.testing.assert_array_equal(lf.Result.load(tmp_path / "run.npz").new_clients([10], clients=30), risks)


def test_new_clients_are_fitted_around_the_servers_model(world, normal):
    """Here the training clients once more, as if they were new."""
    (A, b), w = normal, np.array([0.8, -0.5])
    for algorithm in (
        lf.Ditto(step_size=0.2, penalty=0.5),
        lf.PFedMe(step_size=0.05, penalty=0.5),
        lf.APFL(step_size=0.2),
        lf.PerFedAvg(step_size=0.2, adaptation_step_size=0.3),
        lf.FedBABU(rank=2, step_size=0.2, head=w),
    ):
        *_, step = lf.iterate(algorithm, data=world.data(), n_rounds=9)
        state = step.before if algorithm.finishes else step.after
        found = algorithm.adapt(state, step.batch).predictors()[0]
        if isinstance(algorithm, lf.FedBABU):
            B = state.B[0]
            wanted = np.array([B @ ref.least_squares(X @ B, y) for X, y in zip(world.X, world.y, strict=True)])
        elif isinstance(algorithm, lf.PerFedAvg):
            theta = state.S[0, 0]
            wanted = theta - 0.3 * (A @ theta - b)
        else:
            wanted = ridges(A, b, getattr(algorithm, "penalty", 0.0), state.shared[0, 0])
        np.testing.assert_allclose(found, wanted, **TOLERANCE)
    assert_one_line(
        lambda: lf.simulate(lf.L2GD(step_size=0.1), data=world.data(), n_rounds=2).new_clients(
            [5], problem=world.problem()
        ),
        ["L2GD learns nothing that new clients can use"],
    )


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_without_a_penalty_a_new_client_of_ditto_is_alone(penalty):
    """With fewer samples than dimensions."""
    world = draw_world([2] * 3, 5, 2, noise=0.3)
    algorithm = lf.Ditto(step_size=0.1, penalty=penalty)
    *_, step = lf.iterate(algorithm, data=world.data(), n_rounds=4)
    found = algorithm.adapt(step.after, step.batch).S[0]
    wanted = [ref.least_squares(X, y) for X, y in zip(world.X, world.y, strict=True)]
    if penalty:
        wanted = ridges(*world.data().normal_equations(), penalty, step.after.shared[0, 0])
    np.testing.assert_allclose(found, wanted, **TOLERANCE)


def test_only_a_fixed_mix_of_0_gives_new_clients_the_servers_model(world, normal):
    *_, step = lf.iterate(lf.APFL(step_size=0.2), data=world.data(), n_rounds=4)
    alone, shared = ridges(*normal, 0.0, 0.0), np.broadcast_to(step.after.shared[0], (4, 3))
    for options, wanted in (
        ({"mix": 0.0}, shared), ({"mix": 1.0}, alone), ({"mix": 0.0, "mix_step_size": 0.1}, alone),
    ):  # fmt: skip
        found = lf.APFL(step_size=0.2, **options).adapt(step.after, step.batch).S[0]
        np.testing.assert_allclose(np.broadcast_to(found, (4, 3)), wanted, **TOLERANCE)
    assert np.abs(alone - shared).max() > 0.01


def test_a_step_of_l2gd_may_reach_the_mean():
    for step_size in (0.25, [0.1, 0.25]):
        lf.L2GD(step_size=step_size, penalty=2.0, mean_probability=0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lf.APFL(step_size=0.1, mix=1.5), ["mix = 1.5", "from 0 to 1"]),
        (lambda: lf.APFL(step_size=0.1, mix=-0.5), ["mix = -0.5", "from 0 to 1"]),
        (lambda: lf.L2GD(step_size=0.5, penalty=2.0, mean_probability=0.5), ["must be at most 1", "2"]),
        (lambda: lf.L2GD(step_size=[0.1, 0.3], penalty=2.0, mean_probability=0.5), ["must be at most 1", "1.2"]),
        (lambda: lf.L2GD(step_size=0.1, mean_probability=1.0), ["mean_probability = 1.0", "inside (0, 1)"]),
        (lambda: lf.L2GD(step_size=0.1, coins=True), ["coins = True", "Booleans"]),
        (lambda: lf.L2GD(step_size=0.1, coins=[[True, False]]), ["coins = [[True, False]]", "Booleans"]),
        (lambda: lf.L2GD(step_size=0.1, coins=[0.5]), ["coins = [0.5]", "Booleans"]),
        (lambda: classes_end(lf.L2GD(step_size=0.1, coins=[True])), ["coins has 1 value", "n_rounds = 5"]),
        (
            lambda: classes_end(lf.PerFedAvg(step_size=0.1, adaptation_step_size=0.1, hessian=True)),
            ["hessian = True", "3 classes"],
        ),
        (lambda: classes_end(lf.PFedMe(step_size=0.1, inner_steps=None)), ["inner_steps = None", "3 classes"]),
        (lambda: lf.FedMTL(penalty=1.0, relation="tasks", epsilon=0.0), ["epsilon", "= 0.0", "positive"]),
        (lambda: classes_end(lf.FedMTL(penalty=1.0)), ["FedMTL supports only regression", "3 classes"]),
        (lambda: lf.FedBABU(rank=2, step_size=0.1, head=[0.0, 0.0]), ["head = [0.0, 0.0]", "not all of them 0"]),
        (lambda: lf.FedBABU(rank=2, step_size=0.1, head=[1.0]), ["head = [1.0]", "k = 2 values"]),
        (lambda: lf.FedBABU(rank=1, step_size=0.1, head=[1.0, 2.0]), ["head = [1.0, 2.0]", "k = 1 values"]),
    ],
)
def test_an_invalid_option_is_named(call, words):
    assert_one_line(call, words)
