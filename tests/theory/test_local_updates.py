"""Local updates and own steps at population losses: what a round does to B outside B*, against runs and loops."""

import itertools

import numpy as np
import pytest

import linfed as lf
from linfed.theory import contracted_distance, fedavg_contraction, meta_contraction
from tests.helpers import assert_one_line

TRIALS, CLIENTS, DIM, RANK, STEP = 4, 20, 8, 3, 0.1


def world(trials=TRIALS):
    """Return a problem, its heads, and a random B with orthonormal columns."""
    family = lf.SharedRepresentation(n_clients=CLIENTS, dim=DIM, rank=RANK, condition_number=1.3)
    truth = family.truth(0, range(trials))
    B = np.linalg.qr(np.random.default_rng(0).standard_normal((trials, DIM, RANK)))[0]
    return lf.GivenTruth(B=truth.B, W=truth.W), truth.W, B


def distances(algorithm, problem, n_rounds):
    data = lf.GivenSamples.population(problem, trials=problem.n_trials)
    run = {"data": data, "n_rounds": n_rounds, "metrics": ["subspace_distance"]}
    return lf.simulate(algorithm, problem, **run).metrics["subspace_distance"][:, : n_rounds + 1]


def fall(curve, first, last):
    """Return the mean fall of the logarithm per round."""
    return np.log(curve[:, first] / curve[:, last]) / (last - first)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_each_local_step_multiplies_the_part_outside(steps):
    """Exactly, whatever B'B is, by the heads, which change with B. After the first round: w starts at 0."""
    problem, W, _ = world(trials=1)
    B_star = np.asarray(problem.B)[0]
    outside = np.eye(DIM) - B_star @ B_star.T
    start = np.random.default_rng(3).standard_normal((DIM, RANK))
    algorithm = lf.FedAvg(rank=RANK, step_size=STEP, local_steps=steps, init=start)
    data = lf.GivenSamples.population(problem, trials=1)
    for step in itertools.islice(lf.iterate(algorithm, problem, data=data, n_rounds=4), 2, None):
        (B,), (w,), total = step.before.B, step.before.W[0], 0.0
        for w_star in W[0]:
            B_i, w_i, product = B, w, np.eye(RANK)
            for _ in range(steps):
                product = product @ (np.eye(RANK) - STEP * np.outer(w_i, w_i))
                g = B_i @ w_i - B_star @ w_star
                B_i, w_i = B_i - STEP * np.outer(g, w_i), w_i - STEP * B_i.T @ g
            total = total + product / CLIENTS
        np.testing.assert_allclose(outside @ step.after.B[0], outside @ B @ total, atol=1e-12)
        assert np.abs(step.after.B[0] - B).max() > 1e-4


def test_the_contraction_by_loops():
    _, W, _ = world()
    for steps in (1, 2, 7):
        wanted = []
        for heads in W:
            mean, total = heads.mean(axis=0), 0.0
            for w in heads:
                one = np.eye(RANK) - STEP**2 * np.outer(w, w)
                total = total + np.linalg.matrix_power(one, steps - 1) / CLIENTS
            wanted.append((np.eye(RANK) - STEP**2 * np.outer(mean, mean)) @ total)
        found = fedavg_contraction(W, step_size=STEP, local_steps=steps)
        np.testing.assert_allclose(found, wanted, atol=1e-14)
        np.testing.assert_allclose(fedavg_contraction(W[1], step_size=STEP, local_steps=steps), wanted[1], atol=1e-14)


@pytest.mark.parametrize(("steps", "rounds"), [(20, 120), pytest.param(2, 1200, marks=pytest.mark.long)])
def test_fedavg_falls_at_the_predicted_rate(steps, rounds):
    """The rate to 6 %; with K in the place of K - 1, or the mean of the heads forgotten, K = 2 is off by more."""
    problem, W, B = world()
    curve = distances(lf.FedAvg(rank=RANK, step_size=STEP, local_steps=steps, init=B / STEP**0.5), problem, rounds)
    C = fedavg_contraction(W, step_size=STEP, local_steps=steps)
    rate = -np.log(np.abs(np.linalg.eigvals(C)).max(axis=-1))
    measured = fall(curve, 2 * rounds // 3, rounds)
    np.testing.assert_allclose(measured, rate, rtol=0.06)
    wrong = fedavg_contraction(W, step_size=STEP, local_steps=steps + 1)
    assert steps > 5 or np.abs(np.log(np.abs(np.linalg.eigvals(wrong)).max(axis=-1)) / -measured - 1).min() > 0.15
    predicted = contracted_distance(B, problem.B, C, np.arange(rounds + 1))
    for level in (0.1, 1e-3):
        reached = [(one <= level).argmax(axis=1) for one in (curve, predicted)]
        np.testing.assert_allclose(reached[0] / reached[1], 1.0, atol=0.15)


@pytest.mark.long
def test_fedavg_at_a_small_step_is_fedrep_at_the_step_of_the_prediction():
    problem, _, B = world()
    steps = {"rank": RANK, "step_size": 0.05}
    mine = distances(lf.FedAvg(local_steps=3, init=B / 0.05**0.5, **steps), problem, 400)
    other, wrong = (
        distances(lf.FedRep(rank=RANK, step_size=factor * 0.05**2, init=B), problem, 400) for factor in (2, 3)
    )
    assert np.abs(mine - other).max() < 0.05
    assert np.abs(mine - wrong).max() > 0.1


OTHERS = [(lf.ANIL, True), (lf.MAML, False)]
META = [(lf.ANIL, False), (lf.MAML, True), *(pytest.param(*one, marks=pytest.mark.long) for one in OTHERS)]


@pytest.mark.parametrize(("kind", "hessian"), META)
def test_the_four_meta_learners_fall_at_one_rate(kind, hessian):
    """Heads of mean 0, so that MAML's head stays small; half the step is off by a factor."""
    problem, W, B = world()
    W = W - W.mean(axis=1, keepdims=True)
    problem = lf.GivenTruth(B=problem.B, W=W)
    alpha, beta = 0.2, 0.1
    meta = kind(rank=RANK, step_size=beta, adaptation_step_size=alpha, hessian=hessian, init=B / alpha**0.5)
    curve = distances(meta, problem, 700)
    C = meta_contraction(W, step_size=beta, adaptation_step_size=alpha)
    rate = -np.log(np.linalg.eigvalsh(C).max(axis=-1))
    np.testing.assert_allclose(fall(curve, 500, 700), rate, rtol=0.02)
    half = meta_contraction(W, step_size=beta, adaptation_step_size=alpha / 2)
    assert np.abs(np.log(np.linalg.eigvalsh(half).max(axis=-1)) / -rate - 1).min() > 0.4
    np.testing.assert_allclose(np.log(contracted_distance(B, problem.B, C, np.arange(701)) / curve), 0, atol=0.2)


@pytest.mark.long
@pytest.mark.parametrize("equal", [False, True], ids=["one local step", "equal heads"])
def test_the_span_that_one_step_or_equal_clients_cannot_leave(equal):
    """B stays in the span of its start and the mean regressor, which has no subspace near B*."""
    problem, W, B = world()
    if equal:
        W = np.repeat(W[:, :1], CLIENTS, axis=1)
        problem = lf.GivenTruth(B=problem.B, W=W)
    mean = problem.B @ W.mean(axis=1)[..., None]
    floor = lf.subspace_distance(np.concatenate([B, mean], axis=-1), problem.B)
    steps = 5 if equal else 1
    curve = distances(lf.FedAvg(rank=RANK, step_size=STEP, local_steps=steps, init=B / STEP**0.5), problem, 500)
    assert (curve > floor[:, None] - 1e-9).all()
    C = fedavg_contraction(W, step_size=STEP, local_steps=steps)
    values = np.sort(np.abs(np.linalg.eigvals(C)), axis=-1)
    np.testing.assert_allclose(values[:, 1:], 1.0, atol=1e-12)
    assert (values[:, 0] < 1).all()


def test_own_steps_contract_by_the_second_moment_of_the_heads():
    _, W, _ = world()
    found = meta_contraction(W, step_size=0.3, adaptation_step_size=0.2)
    wanted = [np.eye(RANK) - 0.06 * sum(np.outer(w, w) for w in heads) / CLIENTS for heads in W]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-14)
    np.testing.assert_allclose(meta_contraction(W[1], step_size=0.3, adaptation_step_size=0.2), wanted[1], atol=1e-14)


def test_the_distance_after_a_contraction_is_that_of_the_contracted_part_outside():
    """Also of a B whose columns are not orthonormal, and of one B* or one contraction for all trials."""
    rng = np.random.default_rng(2)
    B, B_star = rng.standard_normal((2, DIM, RANK)), np.linalg.qr(rng.standard_normal((2, DIM, RANK)))[0]
    C, rounds = 0.4 * rng.standard_normal((2, RANK, RANK)), [0, 3, 1]
    found = contracted_distance(B, B_star, C, rounds)
    assert found.shape == (2, 3)
    for trial in range(2):
        inside = B_star[trial].T @ B[trial]
        T = B[trial] @ np.linalg.inv(inside) - B_star[trial]
        for column, t in enumerate(rounds):
            moved = B_star[trial] + T @ np.linalg.matrix_power(C[trial], t)
            wanted = lf.subspace_distance(moved, B_star[trial])
            assert found[trial, column] == pytest.approx(float(np.squeeze(wanted)), rel=1e-10)
        alone = contracted_distance(B[trial], B_star[trial], C[trial], rounds)
        np.testing.assert_allclose(alone, found[trial], rtol=1e-13)


def test_heads_of_zero_do_not_count():
    W = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    C = fedavg_contraction(W, step_size=0.1, local_steps=3)
    np.testing.assert_allclose(C, np.diag([1 - 2 / 3 * (1 - 0.99**2), 1.0]), atol=1e-15)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fedavg_contraction(np.ones(3), step_size=0.1, local_steps=2), ["W", "(n, k)"]),
        (lambda: fedavg_contraction(np.ones((3, 2)), step_size=0.1, local_steps=0), ["local_steps = 0"]),
        (lambda: contracted_distance(np.eye(4, 2), np.eye(5, 2), np.eye(2), [0]), ["B", "(5, 2)"]),
        (lambda: contracted_distance(np.eye(4, 2), np.eye(4, 2), np.eye(3), [0]), ["contraction", "(2, 2)"]),
        (lambda: contracted_distance(np.eye(4)[:, 2:], np.eye(4, 2), np.eye(2), [0]), ["B*'B is singular"]),
        (lambda: contracted_distance(np.eye(4, 2), 2 * np.eye(4, 2), np.eye(2), [0]), ["B_star", "orthonormal"]),
        (lambda: contracted_distance(np.eye(4, 2), np.eye(4, 2), np.eye(2), [0.5]), ["rounds = [0.5]"]),
    ],
)
def test_what_cannot_be_served_is_one_line(call, words):
    assert_one_line(call, words)
