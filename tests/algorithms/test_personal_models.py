"""Personalised models: rounds are the loops, ends are the closed forms, and reductions to other algorithms."""

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.streams import Stream, generators
from linfed.theory import fedavg_fixed_point
from tests import references as ref
from tests.helpers import assert_one_line, each, some
from tests.worlds import SHAPES, draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
ROUNDS = 5

OPTIONS = {
    "Ditto": (lf.Ditto, {"step_size": 0.1}),
    "Ditto, several steps": (
        lf.Ditto,
        {"step_size": 0.1, "local_steps": 3, "strength": 0.5, "personal_steps": 2, "personal_step_size": 0.15},
    ),
    "APFL": (lf.APFL, {"step_size": 0.1, "local_steps": 3}),
    "APFL, adaptive": (lf.APFL, {"step_size": 0.1, "local_steps": 2, "mix": 0.3, "mix_step_size": 0.4}),
    "APFL, framework": (
        lf.APFL,
        {"step_size": 0.1, "local_steps": 2, "mix": 0.7, "mix_step_size": 0.2, "variant": "framework"},
    ),
    "pFedMe": (lf.PFedMe, {"step_size": 0.05, "local_steps": 3, "strength": 2.0, "inner_step_size": 0.1}),
    "pFedMe, exact": (
        lf.PFedMe,
        {"step_size": 0.05, "local_steps": 3, "strength": 2.0, "inner_steps": None, "server_mix": 0.6},
    ),
    "pFedMe, beta = 1.5": (
        lf.PFedMe,
        {"step_size": 0.05, "local_steps": 2, "strength": 2.0, "inner_step_size": 0.05, "server_mix": 1.5},
    ),
    "L2GD": (lf.L2GD, {"step_size": 0.05, "strength": 2.0, "mean_probability": 0.3}),
    "Per-FedAvg": (lf.PerFedAvg, {"step_size": 0.1, "adaptation_step_size": 0.2}),
    "Per-FedAvg, Hessian": (
        lf.PerFedAvg,
        {"step_size": 0.1, "local_steps": 3, "adaptation_step_size": 0.2, "hessian": True},
    ),
    "Per-FedAvg, two parts": (
        lf.PerFedAvg,
        {"step_size": 0.1, "local_steps": 2, "adaptation_step_size": 0.2, "batches": "split"},
    ),
    "Per-FedAvg, split": (
        lf.PerFedAvg,
        {"step_size": 0.1, "local_steps": 2, "adaptation_step_size": 0.2, "hessian": True, "batches": "split"},
    ),
    "FedBABU": (lf.FedBABU, {"step_size": 0.1, "local_steps": 3}),
}
COINS = (True, False, False, True, False)


def options_of(algorithm):
    """Return the options of an algorithm's loop."""
    names = {
        lf.Ditto: ("step_size", "local_steps", "strength", "personal_steps", "personal_step_size"),
        lf.APFL: ("step_size", "local_steps", "mix_step_size", "variant"),
        lf.PFedMe: ("step_size", "local_steps", "strength", "inner_steps", "inner_step_size", "server_mix"),
        lf.L2GD: ("step_size", "strength", "mean_probability"),
        lf.PerFedAvg: ("step_size", "local_steps", "adaptation_step_size", "hessian", "batches"),
        lf.FedBABU: ("step_size", "local_steps"),
    }[type(algorithm)]
    found = {name: getattr(algorithm, name) for name in names}
    if found.get("personal_step_size", 0) is None:
        found["personal_step_size"] = found["step_size"]
    return found


def loop(algorithm, world, participants, w):
    """Return the states of a run of the loops, the initial one first, each as its arrays by name."""
    n, d = world.n, len(world.X[0][0])
    theta, V, a, B = np.zeros(d), np.zeros((n, d)), np.full(n, getattr(algorithm, "mix", 0.0)), world.B
    kind, more, states = type(algorithm), options_of(algorithm), []
    for number, active in enumerate([None, *participants]):
        if active is not None:
            active = np.sort(active)
            X, y = [world.X[i] for i in active], [world.y[i] for i in active]
            if kind is lf.Ditto:
                theta, V = ref.ditto_round(theta, V, X, y, active, **more)
            elif kind is lf.APFL:
                theta, V, a = ref.apfl_round(theta, V, a, X, y, active, **more)
            elif kind is lf.PFedMe:
                theta, V = ref.pfedme_round(theta, V, X, y, active, **more)
            elif kind is lf.L2GD:
                V = ref.l2gd_round(V, COINS[number - 1], X, y, active, **more)
            elif kind is lf.PerFedAvg:
                theta = ref.perfedavg_round(theta, X, y, **more)
            else:
                B = ref.fedbabu_round(B, w, X, y, **more)
        states.append(
            {
                lf.Ditto: {"S": V, "shared": theta[None]},
                lf.APFL: {"own": V, "shared": theta[None], "mix": a},
                lf.PFedMe: {"S": V, "shared": theta[None]},
                lf.L2GD: {"S": V},
                lf.PerFedAvg: {"S": theta[None], "shared": theta[None]},
                lf.FedBABU: {"B": B, "W": w[None]},
            }[kind]
        )
    return states


def made(kind, options, B, w):
    more = {"coins": COINS} if kind is lf.L2GD else {}
    if kind is lf.FedBABU:
        more = {"rank": len(w), "init": B, "head": w}
    return kind(**options, **more)


@each("shape", SHAPES)
@pytest.mark.parametrize("name", OPTIONS)
def test_rounds_are_the_loops(name, shape):
    kind, options = OPTIONS[name]
    counts, d, k, p = SHAPES[shape]
    if options.get("batches") == "split" and min(counts) < 3:
        pytest.skip("a client has fewer than three samples")
    world = draw_world(counts, d, k, noise=0.3, seed=1)
    w = np.random.default_rng(2).standard_normal(k)
    participants = draw_participants(world.n, p, ROUNDS)
    algorithm = made(kind, options, world.B, w)
    run = {"data": world.data(), "rounds": ROUNDS, "participation": participants}
    wanted = loop(algorithm, world, participants, w)
    rounds = [step.after for step in lf.iterate(algorithm, world.problem(noise_std=0.3), **run)]
    for state, arrays in zip(rounds, wanted, strict=False):
        assert state.arrays().keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_allclose(state.arrays()[key][0], array, **TOLERANCE)
    assert len(rounds) == len(wanted) + algorithm.finishes


@pytest.mark.parametrize("name", OPTIONS)
def test_trials_are_separate_runs(name):
    kind, options = OPTIONS[name]
    worlds = [draw_world([6] * 5, 7, 2, noise=0.2, seed=seed) for seed in range(3)]
    w = np.array([0.7, -0.4])
    algorithms = [made(kind, options, world.B, w) for world in worlds]
    together = made(kind, options, np.array([world.B for world in worlds]), w)
    participants = np.array([draw_participants(5, 3, ROUNDS, seed) for seed in range(3)])
    data = lf.GivenSamples(np.array([world.X for world in worlds]), np.array([world.y for world in worlds]))
    run = {"rounds": ROUNDS, "metrics": ["train_loss"]}
    all_at_once = lf.simulate(together, data=data, participation=participants, **run)
    for t, (world, algorithm) in enumerate(zip(worlds, algorithms, strict=True)):
        alone = lf.simulate(algorithm, data=world.data(), participation=participants[t], **run)
        for key, values in alone.final.arrays().items():
            np.testing.assert_allclose(all_at_once.final.arrays()[key][t], values[0], **TOLERANCE)


# --- ends --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world():
    return draw_world([9] * 4, 3, 2, noise=0.4, seed=3)


@pytest.fixture(scope="module")
def normal(world):
    return world.data().normal_equations()


def end(world, algorithm, rounds=1500, **more):
    return lf.simulate(algorithm, data=world.data(), rounds=rounds, metrics=["train_loss"], **more).final


def ridges(A, b, strength, centre):
    return np.linalg.solve(A + strength * np.eye(A.shape[-1]), (b + strength * centre)[..., None])[..., 0]


@pytest.mark.parametrize("steps", some([1, 4], 2))
def test_ditto_ends_near_the_average(world, normal, steps):
    A, b = normal
    final = end(world, lf.Ditto(step_size=0.2, local_steps=steps, strength=0.7, personal_steps=2))
    theta = fedavg_fixed_point(A, b, step_size=0.2, local_steps=steps)
    np.testing.assert_allclose(final.shared[0, 0], theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(final.S[0], ridges(A, b, 0.7, theta), rtol=0, atol=1e-12)


@pytest.mark.parametrize("participation", [1.0, 2])
@pytest.mark.parametrize("kind", [lf.Ditto, lf.APFL])
def test_the_servers_model_is_that_of_averaging(world, kind, participation):
    run = {"rounds": 7, "participation": participation}
    one, two = (end(world, which(step_size=0.2, local_steps=3), **run) for which in (kind, lf.FedAvg))
    np.testing.assert_allclose(one.shared, two.S, rtol=0, atol=1e-14)


def test_without_a_penalty_or_with_the_whole_mix_clients_are_alone(world):
    run = {"rounds": 7, "participation": 2}
    alone = end(world, lf.LocalOnly(step_size=0.2, local_steps=3), **run).S
    ditto = lf.Ditto(step_size=0.1, strength=0.0, personal_steps=3, personal_step_size=0.2)
    np.testing.assert_allclose(end(world, ditto, **run).S, alone, rtol=0, atol=1e-14)
    mixed = lf.APFL(step_size=0.2, local_steps=3, mix=1.0)
    np.testing.assert_allclose(end(world, mixed, **run).own, alone, rtol=0, atol=1e-14)
    none = end(world, lf.APFL(step_size=0.2, local_steps=3, mix=0.0), **run)
    assert not none.own.any()
    np.testing.assert_array_equal(none.predictors(), np.broadcast_to(none.shared, (1, 4, 3)))


@pytest.mark.parametrize("mix", some([0.4, 0.8], 2))
def test_a_fixed_mix_ends_at_local_least_squares(world, normal, mix):
    A, b = normal
    final = end(world, lf.APFL(step_size=0.3, mix=mix), 4000)
    np.testing.assert_allclose(final.predictors()[0], ridges(A, b, 0.0, 0.0), rtol=0, atol=1e-10)


def test_adapted_mixes_end_at_0_and_1(world):
    algorithm = lf.APFL(step_size=0.1, local_steps=2, mix=0.3, mix_step_size=50.0)
    wanted = loop(algorithm, world, [np.arange(4)] * 6, np.zeros(2))
    for step, arrays in zip(lf.iterate(algorithm, data=world.data(), rounds=6), wanted, strict=True):
        np.testing.assert_allclose(step.after.mix[0], arrays["mix"], **TOLERANCE)
    assert {0.0, 1.0} <= set(np.ravel([arrays["mix"] for arrays in wanted]))


def test_the_variants_of_apfl_differ(world):
    one, two = (end(world, lf.APFL(step_size=0.3, local_steps=5, variant=v), 20) for v in ("paper", "framework"))
    assert np.abs(one.predictors() - two.predictors()).max() > 1e-2


@pytest.mark.parametrize("variant", some(["paper", "framework"], 2))
def test_each_variant_of_apfl_ends_at_its_own_floor(variant):
    world = draw_world([9] * 4, 5, 2, noise=0.4, seed=4)
    run = {"problem": world.problem(noise_std=0.4), "data": world.data(), "rounds": 4000}
    algorithm = lf.APFL(step_size=0.1, local_steps=2, mix=0.7, variant=variant)
    result = lf.simulate(algorithm, **run, metrics=["risk"], record_every=4000)
    np.testing.assert_allclose(result.metrics["risk"][0, -1], lf.predict(algorithm, **run).floor, rtol=1e-9)


@pytest.mark.parametrize("steps", some([4, 1], 2))
def test_exact_pfedme_ends_at_the_fixed_point_of_averaging_on_envelopes(world, normal, steps):
    (A, b), strength = normal, 2.0
    inverse = np.linalg.inv(A + strength * np.eye(3))
    shrunk = {"step_size": 0.1, "local_steps": steps}
    w = fedavg_fixed_point(strength * inverse @ A, (strength * inverse @ b[..., None])[..., 0], **shrunk)
    final = end(world, lf.PFedMe(**shrunk, strength=strength, inner_steps=None))
    np.testing.assert_allclose(final.shared[0, 0], w, rtol=0, atol=1e-12)
    prox = fedavg_fixed_point(A, b, step_size=0.1, local_steps=2000, mu=strength)  # solves the proximal problems
    assert (np.abs(w - prox).max() < 1e-12) == (steps == 1)
    assert (np.abs(w - prox).max() > 1e-4) == (steps == 4)


def test_many_inner_steps_are_exact(world):
    options = {"step_size": 0.1, "local_steps": 3, "strength": 2.0}
    many = end(world, lf.PFedMe(**options, inner_steps=300, inner_step_size=0.2), 20)
    exact = end(world, lf.PFedMe(**options, inner_steps=None), 20)
    np.testing.assert_allclose(many.S, exact.S, rtol=0, atol=1e-12)


@pytest.mark.parametrize("batches", ["same", "split"])
@pytest.mark.parametrize("hessian", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_perfedavg_ends_at_its_fixed_point(world, normal, steps, hessian, batches):
    thirds, halves = [slice(0, 3), slice(3, 6), slice(6, 9)], [slice(0, 4), slice(4, 9), slice(4, 9)]
    parts = (thirds if hessian else halves) if batches == "split" else [slice(0, 9)] * 3
    X, y = np.array(world.X), np.array(world.y)
    (A, b), (A1, b1), (A2, _) = (
        (X[:, s].mT @ X[:, s] / X[:, s].shape[1], (X[:, s].mT @ y[:, s, None])[..., 0] / X[:, s].shape[1])
        for s in parts
    )
    M, outer = np.eye(3) - 0.1 * A, np.eye(3) - 0.1 * A2 if hessian else np.eye(3)
    vector = (outer @ (b1 - 0.1 * (A1 @ b[..., None])[..., 0])[..., None])[..., 0]
    matrix = outer @ A1 @ M
    options = {"step_size": 0.1, "local_steps": steps}
    algorithm = lf.PerFedAvg(**options, adaptation_step_size=0.1, hessian=hessian, batches=batches)
    theta = affine_fixed_point(matrix, vector, **options)
    *_, step, _ = lf.iterate(algorithm, data=world.data(), rounds=1)
    state = lf.State(S=theta[None, None], shared=theta[None, None])
    np.testing.assert_allclose(algorithm.step(state, step.batch, None).S[0, 0], theta, rtol=0, atol=1e-13)
    A_all, b_all = normal
    served = theta - 0.1 * (A_all @ theta - b_all)
    np.testing.assert_allclose(algorithm.finish(state, step.batch, None).S[0], served, rtol=0, atol=1e-13)
    if steps == 1 and batches == "same":
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
    (A, b), strength, q = normal, 0.8, 0.4
    inverse = np.linalg.inv(A + strength * np.eye(3))
    mean = np.linalg.solve(np.eye(3) - strength * inverse.mean(axis=0), (inverse @ b[..., None])[..., 0].mean(axis=0))
    V = ridges(A, b, strength, mean)
    np.testing.assert_allclose(V.mean(axis=0), mean, rtol=0, atol=1e-14)
    prox = fedavg_fixed_point(A, b, step_size=0.1, local_steps=2000, mu=strength)
    np.testing.assert_allclose(mean, prox, rtol=0, atol=1e-12)
    moves = []
    for coin in (True, False):
        algorithm = lf.L2GD(step_size=0.1, strength=strength, mean_probability=q, coins=[coin])
        *_, step = lf.iterate(algorithm, data=world.data(), rounds=1)
        moves.append(algorithm.step(lf.State(S=V[None]), step.batch, None).S[0] - V)
    assert np.abs(moves[0]).max() > 1e-2
    np.testing.assert_allclose(q * moves[0] + (1 - q) * moves[1], 0.0, rtol=0, atol=1e-15)


def test_all_clients_of_a_trial_share_the_coin(world):
    """100 coins of probability 0.3 in 20 trials: their number is within 4.5 standard deviations of the mean."""
    algorithm = lf.L2GD(step_size=0.05, strength=1.0, mean_probability=0.3)
    pulled = []
    for step in lf.iterate(algorithm, data=world.data(), rounds=110, trials=20):
        if step.number > 10:  # all models are 0 until the first step on the losses
            kept = np.abs(step.after.S.mean(axis=1) - step.before.S.mean(axis=1)).max(axis=-1) < 1e-13
            moved = np.abs(step.after.S - step.before.S).max(axis=-1) > 1e-12
            assert moved.all()
            pulled.append(kept)
    pulled = np.array(pulled)
    assert abs(pulled.mean() - 0.3) < 4.5 * np.sqrt(0.21 / pulled.size)
    assert pulled.std(axis=0).min() > 0
    assert len(np.unique(pulled, axis=1)) > 1


@pytest.mark.long
def test_fedbabu_learns_the_direction_of_averaging(world, normal):
    A, b = normal
    w = np.array([0.8, -0.5])
    algorithm = lf.FedBABU(rank=2, step_size=0.2, local_steps=3, head=w)
    steps = list(lf.iterate(algorithm, data=world.data(), rounds=2000))
    B = steps[-2].after.B[0]
    theta = fedavg_fixed_point(A, b, step_size=0.2 * w @ w, local_steps=3)
    np.testing.assert_allclose(B @ w, theta, rtol=0, atol=1e-12)
    other = np.array([0.5, 0.8])  # orthogonal to w: B never changes in it
    np.testing.assert_allclose(B @ other, steps[0].after.B[0] @ other, rtol=0, atol=1e-12)
    heads = [ref.least_squares(X @ B, y) for X, y in zip(world.X, world.y, strict=True)]
    np.testing.assert_allclose(steps[-1].after.W[0], heads, **TOLERANCE)


def objective(algorithm, A, b, Theta, Omega):
    """Return FedMTL's objective, without its constants."""
    inverse = np.linalg.inv(Omega)
    losses = sum(0.5 * theta @ M @ theta - c @ theta for M, c, theta in zip(A, b, Theta, strict=True))
    product = Theta @ inverse @ Theta.T if algorithm.relation == "features" else Theta.T @ inverse @ Theta
    return losses + algorithm.strength * (np.trace(product) + algorithm.epsilon * np.trace(inverse))


@pytest.mark.parametrize("participation", [1.0, 2])
@pytest.mark.parametrize("relation", ["features", "tasks"])
def test_fedmtl_minimises_its_objective_in_turn(world, normal, relation, participation):
    (A, b), algorithm = normal, lf.FedMTL(strength=0.05, relation=relation, epsilon=0.01)
    last = np.inf
    for step in lf.iterate(algorithm, data=world.data(), rounds=12, participation=participation):
        if step.number == 0:
            continue
        (active,), Omega, Theta = step.batch.active, step.before.Omega[0], step.after.S[0]
        inverse = np.linalg.inv(Omega)
        pull = Theta @ inverse if relation == "features" else inverse @ Theta
        slopes = np.array([M @ theta - c for M, c, theta in zip(A, b, Theta, strict=True)]) + 2 * 0.05 * pull
        np.testing.assert_allclose(slopes[active], 0.0, rtol=0, atol=1e-12)
        others = np.setdiff1d(np.arange(4), active)
        np.testing.assert_array_equal(Theta[others], step.before.S[0][others])
        for relations in (Omega, step.after.Omega[0]):
            value = objective(algorithm, A, b, Theta, relations)
            assert value <= last + 1e-12
            last = value
        Gram = Theta.T @ Theta if relation == "features" else Theta @ Theta.T
        new = step.after.Omega[0]
        assert np.trace(new) == pytest.approx(1.0, abs=1e-14)
        scaled = new @ new * np.trace(Gram + 0.01 * np.eye(len(Gram))) / np.trace(new @ new)
        np.testing.assert_allclose(scaled, Gram + 0.01 * np.eye(len(Gram)), rtol=0, atol=1e-12)


@pytest.mark.long
def test_fedmtl_ends_at_the_squared_nuclear_norm(world, normal):
    """The gradient of the losses plus that of ``lambda (tr (Theta'Theta + eps I)^(1/2))^2`` vanishes."""
    (A, b), eps, strength = normal, 0.01, 0.05
    final = end(world, lf.FedMTL(strength=strength, epsilon=eps), 3000)
    Theta = final.S[0]
    values, vectors = np.linalg.eigh(Theta.T @ Theta + eps * np.eye(3))
    root = np.sqrt(values)
    penalty = 2.0 * strength * root.sum() * Theta @ (vectors / root) @ vectors.T
    slopes = np.array([M @ theta - c for M, c, theta in zip(A, b, Theta, strict=True)]) + penalty
    np.testing.assert_allclose(slopes, 0.0, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        strength
        * (np.trace(Theta @ np.linalg.inv(final.Omega[0]) @ Theta.T) + eps * np.trace(np.linalg.inv(final.Omega[0]))),
        strength * root.sum() ** 2,
        rtol=1e-10,
    )


def test_fedmtl_without_epsilon_keeps_directions_that_no_model_uses():
    """With m < d and one client, a singular relation is still served."""
    X, y = np.eye(3)[None, :2], np.array([[1.0, 2.0]])
    final = lf.simulate(
        lf.FedMTL(strength=0.01, epsilon=0.0), data=lf.GivenSamples(X, y), rounds=50, metrics=["train_loss"]
    ).final
    assert np.isfinite(final.S).all()
    assert abs(final.S[0, 0, 2]) < 1e-12
    np.testing.assert_allclose(np.linalg.eigvalsh(final.Omega[0])[:2], 0.0, rtol=0, atol=1e-12)


def test_fedmtl_starts_from_relations_of_trace_1(world):
    for relation, size in (("features", 3), ("tasks", 4)):
        first = next(lf.iterate(lf.FedMTL(strength=0.1, relation=relation), data=world.data(), rounds=1)).after
        np.testing.assert_array_equal(first.Omega, [np.eye(size) / size])


def test_models_of_0_leave_the_relation_of_fedmtl(world):
    data = lf.GivenSamples(np.array(world.X), np.zeros((4, 9)))
    final = lf.simulate(lf.FedMTL(strength=0.1, epsilon=0.0), data=data, rounds=3, metrics=["train_loss"]).final
    assert not final.S.any()
    np.testing.assert_array_equal(final.Omega, [np.eye(3) / 3])


@each("relation", ["features", "tasks"])
def test_trials_of_fedmtl_are_separate_runs(relation):
    worlds = [draw_world([6] * 4, 3, 2, noise=0.2, seed=seed) for seed in range(2)]
    data = lf.GivenSamples(np.array([world.X for world in worlds]), np.array([world.y for world in worlds]))
    participants = np.array([draw_participants(4, 2, ROUNDS, seed) for seed in range(2)])
    algorithm, run = lf.FedMTL(strength=0.05, relation=relation), {"rounds": ROUNDS, "metrics": ["train_loss"]}
    together = lf.simulate(algorithm, data=data, participation=participants, **run).final
    for t, world in enumerate(worlds):
        alone = lf.simulate(algorithm, data=world.data(), participation=participants[t], **run).final
        for key, values in alone.arrays().items():
            np.testing.assert_allclose(together.arrays()[key][t], values[0], **TOLERANCE)


def test_the_random_head_of_fedbabu_comes_from_the_stream_of_the_algorithm(world):
    steps = lf.iterate(lf.FedBABU(rank=3, step_size=0.1), data=world.data(), rounds=1, trials=2, seed=5)
    for W, rng in zip(next(steps).after.W, generators(5, Stream.ALGORITHM, [0, 1]), strict=True):
        np.testing.assert_allclose(W, rng.standard_normal((1, 3)) / np.sqrt(3), rtol=1e-14)


# --- classes -----------------------------------------------------------------------------------------------------

CLASSES = lf.Classes(n_clients=5, dim=4, n_classes=3, classes_per_client=2)


def classes_end(algorithm, **more):
    return lf.simulate(algorithm, CLASSES, data=lf.FixedSamples(12), **{"rounds": 5, "participation": 3} | more).final


def test_classes_reduce_to_averaging_and_to_clients_alone():
    average = classes_end(lf.FedAvg(step_size=0.2, local_steps=3)).S
    for kind in (lf.Ditto, lf.APFL):
        np.testing.assert_allclose(classes_end(kind(step_size=0.2, local_steps=3)).shared, average, rtol=0, atol=1e-14)
    alone = classes_end(lf.LocalOnly(step_size=0.2, local_steps=3)).S
    ditto = lf.Ditto(step_size=0.1, strength=0.0, personal_steps=3, personal_step_size=0.2)
    np.testing.assert_allclose(classes_end(ditto).S, alone, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        classes_end(lf.APFL(step_size=0.2, local_steps=3, mix=1.0)).predictors(), alone, rtol=0, atol=1e-14
    )
    options = {"step_size": 0.2, "local_steps": 1, "strength": 2.0, "inner_steps": 1, "inner_step_size": 0.3}
    once = classes_end(lf.FedAvg(step_size=0.2 * 2.0 * 0.3)).S  # one step on the loss, then one towards its result
    np.testing.assert_allclose(classes_end(lf.PFedMe(**options)).shared, once, rtol=0, atol=1e-14)
    local = classes_end(lf.L2GD(step_size=0.2, mean_probability=0.5, coins=[False] * 5)).S
    np.testing.assert_allclose(local, classes_end(lf.LocalOnly(step_size=0.4)).S, rtol=0, atol=1e-14)


def test_perfedavg_of_classes_is_its_loop():
    algorithm = lf.PerFedAvg(step_size=0.2, local_steps=2, adaptation_step_size=0.3)
    for step in lf.iterate(algorithm, CLASSES, data=lf.FixedSamples(12), rounds=3):
        if step.number not in (1, 2, 3):
            continue
        theta = step.before.S
        for _ in range(2):
            theta = theta - 0.2 * step.batch.gradient(theta - 0.3 * step.batch.gradient(theta))
        np.testing.assert_allclose(step.after.S, theta.mean(axis=1, keepdims=True), rtol=0, atol=1e-14)


def test_fedbabu_of_classes_keeps_its_head():
    algorithm = lf.FedBABU(rank=2, step_size=0.2, fine_tune=lf.GradientHeads(steps=3))
    states = [step.after for step in lf.iterate(algorithm, CLASSES, data=lf.FixedSamples(12), rounds=3)]
    assert states[0].W.shape == (1, 1, 3, 3)
    assert not states[0].W[..., -1].any()
    np.testing.assert_array_equal(states[3].W, states[0].W)
    assert np.abs(states[3].B - states[0].B).max() > 1e-3
    assert states[4].W.shape == (1, 5, 3, 3)


# --- predictions -------------------------------------------------------------------------------------------------

PREDICTED = [name for name in OPTIONS if name not in ("APFL, adaptive", "L2GD", "FedBABU")]
SAMPLES = {"unequal samples": [3, 12, 5, 7], "more samples": [9] * 4, "fewer samples": [3] * 4, "one client": [8]}


@pytest.mark.long
@pytest.mark.parametrize("samples", SAMPLES)
@pytest.mark.parametrize("name", PREDICTED)
def test_runs_end_at_the_predicted_floor_with_the_predicted_rate(name, samples):
    kind, options = OPTIONS[name]
    algorithm = kind(**{key: value for key, value in options.items() if key != "mix_step_size"})
    world = draw_world(SAMPLES[samples], 5, 2, noise=0.4, seed=4)
    run = {"problem": world.problem(noise_std=0.4), "data": world.data()}
    found = lf.predict(algorithm, rounds=10, **run)
    rate = float(found.rate)
    assert 0.5 < rate < 1.0
    rounds = min(2000, round(np.log(1e-12) / np.log(rate)))
    result = lf.simulate(algorithm, rounds=rounds, metrics=["risk"], record_every=rounds, **run)
    if rate**rounds < 1e-9:
        np.testing.assert_allclose(result.metrics["risk"][0, -1], found.floor, rtol=1e-7)
    if kind is lf.PerFedAvg:  # it serves personal models at the end alone
        return
    states = [step.after.predictors() for step in lf.iterate(algorithm, rounds=600, **run)]
    late, later, latest = (np.linalg.norm(states[t + 1] - states[t]) for t in (299, 449, 599))
    assert later < 1e-11 or (later / late) ** (1 / 150) == pytest.approx(rate, rel=0.02)
    assert latest < 1e-11 or (latest / later) ** (1 / 150) == pytest.approx(rate, rel=0.01)


def whole_round(algorithm, world):
    """Return matrix and offset of a round of the loops, on the server's model and all V, side by side."""
    more, n, d = options_of(algorithm), world.n, len(world.X[0][0])

    def after(z):
        given = (world.X, world.y, np.arange(n))
        theta, V = z[:d], z[d:].reshape(n, d)
        if isinstance(algorithm, lf.Ditto):
            theta, V = ref.ditto_round(theta, V, *given, **more)
        elif isinstance(algorithm, lf.APFL):
            theta, V, _ = ref.apfl_round(theta, V, np.full(n, algorithm.mix), *given, **more)
        elif isinstance(algorithm, lf.PFedMe):
            theta, V = ref.pfedme_round(theta, V, *given, **more)
        else:
            theta, V = ref.perfedavg_round(theta, *given[:2], **more), 0 * V
        return np.concatenate([theta, V.ravel()])

    offset = after(np.zeros(d + n * d))
    return np.array([after(row) - offset for row in np.eye(d + n * d)]).T, offset


@pytest.mark.parametrize("counts", [[7, 12, 5], [3, 3, 3], [8]], ids=["more samples", "fewer samples", "one client"])
@each("name", PREDICTED)
def test_floor_and_rate_are_those_of_the_map_of_the_loops(name, counts):
    kind, options = OPTIONS[name]
    algorithm = kind(**{key: value for key, value in options.items() if key != "mix_step_size"})
    d = 5 if counts[0] == 3 else 3
    world = draw_world(counts, d, 2, noise=0.4, seed=4)
    M, end = whole_round(algorithm, world)
    values = np.linalg.eigvals(M)
    for _ in range(18):  # twice as many rounds each time, from 0
        M, end = M @ M, M @ end + end
    theta, V = end[:d], end[d:].reshape(-1, d)
    if kind is lf.APFL:
        V = algorithm.mix * V + (1 - algorithm.mix) * theta
    elif kind is lf.PerFedAvg:
        V = np.array([theta - 0.2 * ref.gradient(X, y, theta) for X, y in zip(world.X, world.y, strict=True)])
    covariance = np.diag(np.linspace(0.5, 2.0, d))
    problem = world.problem(noise_std=0.4, design=lf.Gaussian(covariance=covariance))
    found = lf.predict(algorithm, problem, data=world.data(), rounds=10)
    assert found.floor == pytest.approx(ref.risk(V, world.Phi, covariance, 0.4), rel=1e-8)
    assert found.rate == pytest.approx(np.abs(values[np.abs(values - 1) > 1e-9]).max(), rel=1e-8)


def test_fixed_samples_are_predicted_as_the_same_samples_if_given():
    problem = lf.SharedRepresentation(n_clients=4, dim=3, rank=2, noise_std=0.3)
    run = {"rounds": 2, "seed": 5}
    data = lf.FixedSamples(9).draw(problem, trials=2, seed=5)
    for algorithm in (lf.Ditto(step_size=0.2, strength=0.5), lf.FedAvg(step_size=0.2, local_steps=3)):
        drawn = lf.predict(algorithm, problem, data=lf.FixedSamples(9), trials=2, **run)
        given = lf.predict(algorithm, problem, data=data, **run)
        for name in ("floor", "rate"):
            np.testing.assert_allclose(getattr(drawn, name), getattr(given, name), rtol=1e-12)
            assert np.ptp(getattr(drawn, name)) > 1e-6


@pytest.mark.parametrize(
    ("algorithm", "run", "words"),
    [
        (lf.Ditto(step_size=0.1), {"participation": 0.5}, ["2 of 4 participants", "all clients must participate"]),
        (lf.APFL(step_size=0.1, mix_step_size=0.1), {}, ["mix_step_size = 0.1", "must be fixed"]),
        (lf.PFedMe(step_size=[0.1, 0.2]), {}, ["schedule"]),
        (lf.L2GD(step_size=0.1, coins=[True, False]), {}, ["given coins", "leave coins= out"]),
    ],
)
def test_runs_without_a_prediction_are_one_line(world, algorithm, run, words):
    call = {"data": world.data(), "rounds": 2, **run}
    assert_one_line(lambda: lf.predict(algorithm, world.problem(), **call), words, errors=lf.NoPredictionError)


@pytest.mark.parametrize("samples", [20, pytest.param(3, marks=pytest.mark.long)])
def test_l2gd_has_the_predicted_mean_and_fluctuation(samples):
    """400 runs with their own coins on the same samples; in a planted law only the steps on the losses fluctuate."""
    problem = lf.SharedRepresentation(n_clients=6, dim=5, rank=2, noise_std=0.5, design=lf.Gaussian(covariance=2.0))
    truth, data = problem.truth(0, [0]), lf.FixedSamples(samples).draw(problem)
    given = lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=0.5, design=problem.design)
    run = {"problem": given, "data": lf.GivenSamples(data.X[0], data.y[0])}
    algorithm = lf.L2GD(step_size=0.1, strength=2.0, mean_probability=0.3)
    (A,), (b,) = data.normal_equations()
    law = lf.theory.l2gd_stationary_models(A, b, step_size=0.1, strength=2.0, mean_probability=0.3)
    rounds, trials = {20: 400, 3: 2500}[samples], 400
    assert law.rate**rounds < 1e-4
    result = lf.simulate(algorithm, rounds=rounds, trials=trials, metrics=["risk"], record_every=rounds, **run)
    models = result.final.S
    error = models.std(axis=0) / np.sqrt(trials)
    assert np.abs((models.mean(axis=0) - law.models) / error).max() < 4.5
    squares = (models - law.models) ** 2
    expected = np.diagonal(law.covariance, axis1=1, axis2=2)
    assert np.abs((squares.mean(axis=0) - expected) / (squares.std(axis=0) / np.sqrt(trials))).max() < 4.5
    risk, floor = result.metrics["risk"][:, -1], lf.predict(algorithm, rounds=10, **run).floor
    error = risk.std(ddof=1) / np.sqrt(trials)
    assert abs(risk.mean() - float(floor)) < 4 * error
    lengths = squares.sum(axis=(1, 2))
    error = lengths.std(ddof=1) / np.sqrt(trials)
    assert abs(lengths.mean() - expected.sum()) < 4 * error < abs(lengths.mean() - 0.7 * expected.sum())


@pytest.mark.parametrize("unseen", [False, True])
def test_the_law_of_l2gd_solves_the_equation_of_all_models_together(unseen):
    """By dense matrices of a round with either coin; a direction that no sample sees changes nothing."""
    rng, (n, d), (step, strength, q) = np.random.default_rng(0), (3, 2), (0.1, 1.5, 0.3)
    X, y = rng.standard_normal((n, 5, d)), rng.standard_normal((n, 5))
    A, b = lf.GivenSamples(X, y).normal_equations()
    local, mean = np.eye(n * d), np.kron(np.full((n, n), 1 / n), np.eye(d))
    for i in range(n):
        local[d * i : d * i + d, d * i : d * i + d] -= step / (1 - q) * A[i]
    pulled = np.eye(n * d) - step * strength / q * (np.eye(n * d) - mean)
    whole = (1 - q) * local + q * pulled
    end = np.linalg.solve(np.eye(n * d) - whole, step * b.ravel())
    r0, r1 = local @ end + step / (1 - q) * b.ravel() - end, pulled @ end - end
    drive = (1 - q) * np.outer(r0, r0) + q * np.outer(r1, r1)
    squares = (1 - q) * np.kron(local, local) + q * np.kron(pulled, pulled)
    S = np.linalg.solve(np.eye((n * d) ** 2) - squares, drive.ravel()).reshape(n, d, n, d)
    turn = np.linalg.qr(rng.standard_normal((3, d)))[0] if unseen else np.eye(d)
    found = lf.theory.l2gd_stationary_models(
        turn @ A @ turn.T, b @ turn.T, step_size=step, strength=strength, mean_probability=q
    )
    np.testing.assert_allclose(found.models, end.reshape(n, d) @ turn.T, rtol=0, atol=1e-12)
    wanted = [turn @ S[i, :, i] @ turn.T for i in range(n)]
    np.testing.assert_allclose(found.covariance, wanted, rtol=0, atol=1e-8 * np.abs(S).max())
    assert found.rate == pytest.approx(np.abs(np.linalg.eigvals(whole)).max(), rel=1e-9)


def moments_of_l2gd(A, b, step, strength, q):
    """Return the mean and the covariances of all models after 2^24 rounds from 0; None if the moments overflow."""
    n, d = b.shape
    local, pulled = np.eye(n * d + 1), np.eye(n * d + 1)
    for i in range(n):
        local[d * i : d * i + d, d * i : d * i + d] -= step / (1 - q) * A[i]
    local[:-1, -1] = step / (1 - q) * b.ravel()
    pulled[:-1, :-1] -= step * strength / q * (np.eye(n * d) - np.kron(np.full((n, n), 1 / n), np.eye(d)))
    squares = (1 - q) * np.kron(local, local) + q * np.kron(pulled, pulled)  # of the models and a 1
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(24):
            squares = squares @ squares
    whole = squares[:, -1].reshape(n * d + 1, -1)
    if not np.isfinite(whole).all() or np.abs(whole).max() > 1e20:
        return None
    mean = whole[:-1, -1]
    S = (whole[:-1, :-1] - np.outer(mean, mean)).reshape(n, d, n, d)
    return mean.reshape(n, d), S[range(n), :, range(n)]


def test_the_law_of_l2gd_is_the_limit_of_its_moments_in_random_settings():
    """With more and with fewer samples than parameters, below and above the stability edge, in any unit."""
    rng, seen = np.random.default_rng(0), []
    for _ in range(150):
        (n, d, m), unit = rng.integers(1, 4, 3), 10 ** rng.uniform(-3, 3)
        X, y = unit * rng.standard_normal((n, m, d)), rng.standard_normal((n, m))
        if rng.random() < 0.2:
            X[0] = 0.0
        A, b = lf.GivenSamples(X, np.where(X.any(axis=-1), y, 0.0)).normal_equations()
        largest = np.linalg.eigvalsh(A).max() or 1.0
        q = rng.uniform(0.1, 0.9)
        step = rng.uniform(0.1, 3.0) * (1 - q) / largest
        strength = rng.uniform(0.1, 1.0) * q / step
        wanted, options = moments_of_l2gd(A, b, step, strength, q), {"strength": strength, "mean_probability": q}
        kind = "fewer" if n * m < d else "more"
        if wanted is None:
            with pytest.raises(ValueError, match="grows without bound"):
                lf.theory.l2gd_stationary_models(A, b, step_size=step, **options)
            seen.append(f"{kind}, unstable")
            continue
        found = lf.theory.l2gd_stationary_models(A, b, step_size=step, **options)
        scale = np.abs(wanted[0]).max()
        np.testing.assert_allclose(found.models, wanted[0], rtol=0, atol=1e-8 * scale)
        np.testing.assert_allclose(found.covariance, wanted[1], rtol=1e-6, atol=1e-8 * scale**2)
        if kind == "fewer":  # one model fits all samples
            np.testing.assert_allclose(found.covariance, 0.0, atol=1e-20 * scale**2)
        seen.append(f"{kind}, stable")
    assert {one: seen.count(one) > 3 for one in seen} == {
        f"{kind}, {end}": True for kind in ("fewer", "more") for end in ("stable", "unstable")
    }


def test_l2gd_with_fewer_samples_than_parameters_has_a_floor():
    """The samples of all clients together leave directions free; the coins then move no model at the end."""
    problem = lf.SharedRepresentation(n_clients=3, dim=10, rank=2, noise_std=0.1)
    algorithm = lf.L2GD(step_size=0.05, strength=1.0, mean_probability=0.3)
    run = {"data": lf.FixedSamples(2), "rounds": 6000, "trials": 2}
    found = lf.predict(algorithm, problem, **run)
    result = lf.simulate(algorithm, problem, metrics=["risk"], record_every=6000, **run)
    assert found.rate.value.max() ** 6000 < 1e-3
    np.testing.assert_allclose(result.metrics["risk"][:, -1], found.floor.value, rtol=1e-3)


def test_l2gd_minimises_the_mixture_in_the_mean():
    """The mean models are the minimiser of the mixture of losses, and a tenth of the step a tenth of the variance."""
    problem = lf.SharedRepresentation(n_clients=4, dim=3, rank=2, noise_std=0.3)
    (A,), (b,) = lf.FixedSamples(12).draw(problem).normal_equations()
    big, small = (
        lf.theory.l2gd_stationary_models(A, b, step_size=step, strength=1.5, mean_probability=0.4)
        for step in (0.01, 0.001)
    )
    slopes = (A @ big.models[..., None])[..., 0] - b + 1.5 * (big.models - big.models.mean(axis=0))
    np.testing.assert_allclose(slopes, 0, atol=1e-12)
    np.testing.assert_allclose(big.models, small.models, rtol=1e-10)
    np.testing.assert_allclose(
        np.trace(big.covariance.mean(axis=0)), 10 * np.trace(small.covariance.mean(axis=0)), rtol=0.05
    )


def test_l2gd_without_a_stationary_law_is_one_line():
    problem = lf.SharedRepresentation(n_clients=3, dim=4, rank=2, noise_std=0.3)
    run = {"data": lf.FixedSamples(12), "rounds": 2}
    call = lf.predict(lf.L2GD(step_size=0.9, strength=0.3, mean_probability=0.5), problem, **run)
    assert_one_line(lambda: call.floor, ["step_size = 0.9", "grows without bound"], errors=lf.NoPredictionError)
    large = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, noise_std=0.3)
    call = lf.predict(lf.L2GD(step_size=0.01), large, **run)
    assert_one_line(lambda: call.floor, ["n d = 1000", "at most 400"], errors=lf.NoPredictionError)


def test_a_step_size_beyond_the_edge_has_a_rate_and_no_floor(world):
    found = lf.predict(lf.Ditto(step_size=5.0), world.problem(), data=world.data(), rounds=2)
    assert found.rate > 1
    assert_one_line(lambda: found.floor, ["step_size = 5", "diverges with rate"], errors=lf.NoPredictionError)


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
    result = lf.simulate(algorithm, problem, data=lf.FixedSamples(10), rounds=30, trials=2)
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
        lf.Ditto(step_size=0.2, strength=0.5),
        lf.PFedMe(step_size=0.05, strength=0.5),
        lf.APFL(step_size=0.2),
        lf.PerFedAvg(step_size=0.2, adaptation_step_size=0.3),
        lf.FedBABU(rank=2, step_size=0.2, head=w),
    ):
        *_, step = lf.iterate(algorithm, data=world.data(), rounds=9)
        state = step.before if algorithm.finishes else step.after
        found = algorithm.adapt(state, step.batch).predictors()[0]
        if isinstance(algorithm, lf.FedBABU):
            B = state.B[0]
            wanted = np.array([B @ ref.least_squares(X @ B, y) for X, y in zip(world.X, world.y, strict=True)])
        elif isinstance(algorithm, lf.PerFedAvg):
            theta = state.S[0, 0]
            wanted = theta - 0.3 * (A @ theta - b)
        else:
            wanted = ridges(A, b, getattr(algorithm, "strength", 0.0), state.shared[0, 0])
        np.testing.assert_allclose(found, wanted, **TOLERANCE)
    assert_one_line(
        lambda: lf.simulate(lf.L2GD(step_size=0.1), data=world.data(), rounds=2).new_clients(
            [5], problem=world.problem()
        ),
        ["L2GD learns nothing that new clients can use"],
    )


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_without_a_penalty_a_new_client_of_ditto_is_alone(strength):
    """With fewer samples than dimensions."""
    world = draw_world([2] * 3, 5, 2, noise=0.3)
    algorithm = lf.Ditto(step_size=0.1, strength=strength)
    *_, step = lf.iterate(algorithm, data=world.data(), rounds=4)
    found = algorithm.adapt(step.after, step.batch).S[0]
    wanted = [ref.least_squares(X, y) for X, y in zip(world.X, world.y, strict=True)]
    if strength:
        wanted = ridges(*world.data().normal_equations(), strength, step.after.shared[0, 0])
    np.testing.assert_allclose(found, wanted, **TOLERANCE)


def test_only_a_fixed_mix_of_0_gives_new_clients_the_servers_model(world, normal):
    *_, step = lf.iterate(lf.APFL(step_size=0.2), data=world.data(), rounds=4)
    alone, shared = ridges(*normal, 0.0, 0.0), np.broadcast_to(step.after.shared[0], (4, 3))
    for options, wanted in (
        ({"mix": 0.0}, shared), ({"mix": 1.0}, alone), ({"mix": 0.0, "mix_step_size": 0.1}, alone),
    ):  # fmt: skip
        found = lf.APFL(step_size=0.2, **options).adapt(step.after, step.batch).S[0]
        np.testing.assert_allclose(np.broadcast_to(found, (4, 3)), wanted, **TOLERANCE)
    assert np.abs(alone - shared).max() > 0.01


def test_a_step_of_l2gd_may_reach_the_mean():
    for step_size in (0.25, [0.1, 0.25]):
        lf.L2GD(step_size=step_size, strength=2.0, mean_probability=0.5)


@each(
    ("call", "words"),
    [
        (lambda: lf.Ditto(step_size=0.1, strength=-1), ["strength = -1"]),
        *(
            (lambda kind=kind: kind(step_size=0.1, local_steps=0), ["local_steps = 0"])
            for kind in (lf.Ditto, lf.APFL, lf.PFedMe)
        ),
        (lambda: lf.APFL(step_size=0.1, mix=1.5), ["mix = 1.5", "from 0 to 1"]),
        (lambda: lf.APFL(step_size=0.1, mix=-0.5), ["mix = -0.5", "from 0 to 1"]),
        (lambda: lf.APFL(step_size=0.1, variant="x"), ["variant = 'x'", "'paper', 'framework'"]),
        (lambda: lf.PFedMe(step_size=0.1, inner_steps=0), ["inner_steps = 0"]),
        (lambda: lf.PFedMe(step_size=0.1, server_mix=0), ["server_mix = 0"]),
        (lambda: lf.L2GD(step_size=0.5, strength=2.0, mean_probability=0.5), ["must be at most 1", "2"]),
        (lambda: lf.L2GD(step_size=[0.1, 0.3], strength=2.0, mean_probability=0.5), ["must be at most 1", "1.2"]),
        (lambda: lf.L2GD(step_size=0.1, mean_probability=1.0), ["mean_probability = 1.0", "below 1"]),
        (lambda: lf.L2GD(step_size=0.1, mean_probability=0.0), ["mean_probability = 0.0", "positive"]),
        (lambda: lf.L2GD(step_size=0.1, mean_probability=1.5), ["mean_probability = 1.5", "from 0 to 1"]),
        (lambda: lf.L2GD(step_size=0.1, coins=True), ["coins = True", "Booleans"]),
        (lambda: lf.L2GD(step_size=0.1, coins=[[True, False]]), ["coins = [[True, False]]", "Booleans"]),
        (lambda: lf.L2GD(step_size=0.1, coins=[0.5]), ["coins = [0.5]", "Booleans"]),
        (
            lambda: classes_end(lf.L2GD(step_size=0.1, coins=[True])),
            ["coins has 1 value", "rounds = 5"],
        ),
        (lambda: lf.PerFedAvg(step_size=0.1, adaptation_step_size=0), ["adaptation_step_size = 0"]),
        (
            lambda: classes_end(lf.PerFedAvg(step_size=0.1, adaptation_step_size=0.1, hessian=True)),
            ["hessian = True", "3 classes"],
        ),
        (lambda: classes_end(lf.PFedMe(step_size=0.1, inner_steps=None)), ["inner_steps = None", "3 classes"]),
        (lambda: lf.FedMTL(strength=0.0), ["strength = 0.0"]),
        (lambda: lf.FedMTL(strength=1.0, relation="x"), ["relation = 'x'", "'features', 'tasks'"]),
        (lambda: lf.FedMTL(strength=1.0, relation="tasks", epsilon=0.0), ["epsilon", "= 0.0", "positive"]),
        (lambda: classes_end(lf.FedMTL(strength=1.0)), ["FedMTL supports only regression", "3 classes"]),
        (lambda: lf.FedBABU(rank=2, step_size=0.1, head=[0.0, 0.0]), ["head = [0.0, 0.0]", "not all of them 0"]),
        (lambda: lf.FedBABU(rank=2, step_size=0.1, head=[1.0]), ["head = [1.0]", "k = 2 values"]),
        (lambda: lf.FedBABU(rank=1, step_size=0.1, head=[1.0, 2.0]), ["head = [1.0, 2.0]", "k = 1 values"]),
    ],
)
def test_bad_input_is_one_line(call, words):
    assert_one_line(call, words)
