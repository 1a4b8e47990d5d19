"""FedRep with shortcuts: steps on its loss, what it reduces to, new clients, and why (2)-(5) cannot learn B."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.data.explicit import ExplicitBatch
from linfed.numerics.streams import Stream, generators
from tests import references as ref
from tests.helpers import normal, rounds_of
from tests.worlds import draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
CLOSED = {"solver": lf.ClosedForm()}
SEIDEL = {"solver": lf.ClosedForm(order="gauss-seidel")}
JOINT = {"solver": lf.ClosedForm(order="joint")}


# --- reductions ----------------------------------------------------------------------------------------------


def assert_same_states(one, other, tolerance):
    one, other = list(one), list(other)
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        for name in ("B", "W"):
            np.testing.assert_allclose(getattr(a.after, name), getattr(b.after, name), rtol=0, atol=tolerance)
    return one


COUNTS = {"m < d": [4] * 6, "m > d": [12] * 6, "unequal": [3, 9, 4, 14, 7, 6]}
STEPS = [("jacobi", None, 1), ("gauss-seidel", 0.3, 3)]


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize(("order", "mixing", "local"), STEPS)
def test_without_shortcut_steps_it_is_fedrep_with_gradient_heads(counts, order, mixing, local):
    world = draw_world(counts, 7, 2, noise=0.3)
    shared = {"rank": 2, "step_size": 0.05, "init": world.B, "representation_steps": local}
    run = {"data": world.data(), "n_rounds": 20, "participation": draw_participants(6, 4, 20)}
    steps = lf.GradientSteps(head_steps=3, head_step_size=0.1, shortcut_steps=0, order=order)
    mine = lf.FedRepShortcut(**shared, solver=steps, mixing=mixing)
    its = lf.FedRep(**shared, heads=lf.GradientHeads(steps=3, step_size=0.1 * ref.factors_of(mixing)[0] ** 2))
    steps = assert_same_states(rounds_of(mine, **run), rounds_of(its, **run), 1e-13)
    assert not steps[-1].after.S.any()
    assert np.abs(steps[-1].after.B[0] - world.B).max() > 1e-3


@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize(("order", "mixing", "local"), [*STEPS, ("joint", 0.3, 1)])
def test_an_infinite_ridge_leaves_fedrep_with_exact_heads(counts, order, mixing, local):
    world = draw_world(counts, 7, 2, noise=0.3)
    shared = {"rank": 2, "step_size": 0.05, "init": world.B, "representation_steps": local}
    run = {"data": world.data(), "n_rounds": 20, "participation": draw_participants(6, 4, 20)}
    mine = lf.FedRepShortcut(**shared, solver=lf.ClosedForm(order=order), ridge=1e12, mixing=mixing)
    steps = assert_same_states(rounds_of(mine, **run), rounds_of(lf.FedRep(**shared), **run), 1e-9)
    assert np.abs(steps[-1].after.S).max() < 1e-9
    assert np.abs(steps[-1].after.B[0] - world.B).max() > 1e-3


@pytest.mark.parametrize("m", [1, 3, 6, 7])
def test_few_samples_give_the_shortest_shortcut(m):
    """(3) with m <= d: every sample is explained, and s_i has no part that the samples do not see."""
    world = draw_world([m] * 4, 7, 2, noise=0.3)
    algorithm = lf.FedRepShortcut(rank=2, step_size=0.03, init=world.B, **CLOSED)
    for step in rounds_of(algorithm, data=world.data(), n_rounds=3):
        for i, (X_i, y_i) in enumerate(zip(world.X, world.y, strict=True)):
            s, left = step.after.S[0, i], y_i - X_i @ step.before.B[0] @ step.before.W[0, i]
            np.testing.assert_allclose(X_i @ s, left, atol=1e-10)
            np.testing.assert_allclose(s, np.linalg.pinv(X_i) @ left, atol=1e-10)


@pytest.mark.parametrize("counts", [[4] * 4, [14] * 4, [2, 7, 13, 5]], ids=str)
def test_the_refit_is_one_more_round_of_all_clients(counts):
    """Under compressed samples as under rows."""
    world = draw_world(counts, 6, 2, noise=0.3)
    algorithm = lf.FedRepShortcut(rank=2, step_size=0.03, init=world.B, refit=True)
    for engine in ["explicit", *(["compressed"] if max(counts) > 6 else [])]:
        *_, step = rounds_of(algorithm, data=world.data(), n_rounds=3, participation=2, engine=engine)
        assert step.number == 4
        assert np.array_equal(step.before.B, step.after.B)
        for i, (X_i, y_i) in enumerate(zip(world.X, world.y, strict=True)):
            w, s = ref.shortest(X_i, y_i, step.after.B[0])
            np.testing.assert_allclose(step.after.W[0, i], w, **TOLERANCE)
            np.testing.assert_allclose(step.after.S[0, i], s, **TOLERANCE)


# --- the objective -------------------------------------------------------------------------------------------


def objective(B, w, s, X, y, mixing, ridge):
    """Return one client's loss at its own w and s."""
    a, c = ref.factors_of(mixing)
    return ref.loss(X, y, a * B @ w + c * s) + 0.5 * ridge * s @ s


def differences(function, point):
    """Return the gradient of a function by central differences."""
    out = np.empty(point.shape)
    for index in np.ndindex(point.shape):
        values = []
        for sign in (1, -1):
            moved = point.copy()
            moved[index] += sign * 1e-5
            values.append(function(moved))
        out[index] = (values[0] - values[1]) / 2e-5
    return out


@pytest.mark.parametrize("counts", [[4] * 3, [1, 9, 14]], ids=str)
@pytest.mark.parametrize("order", ["jacobi", "gauss-seidel"])
@pytest.mark.parametrize(("mixing", "ridge"), [(None, 0.0), (0.6, 0.7)])
def test_a_round_is_a_gradient_step_of_the_loss(counts, order, mixing, ridge):
    world = draw_world(counts, 5, 2, noise=0.3)
    X, y, B = world.X, world.y, world.B
    steps = lf.GradientSteps(head_step_size=0.04, shortcut_step_size=0.03, order=order)
    algorithm = lf.FedRepShortcut(rank=2, step_size=0.05, init=B, solver=steps, mixing=mixing, ridge=ridge)
    *_, last = rounds_of(algorithm, data=lf.GivenSamples(X, y), n_rounds=4)
    a, c = ref.factors_of(mixing)
    (B, W, S), (new_B, new_W, new_S) = (
        (state.B[0], state.W[0] / a, state.S[0] / c) for state in (last.before, last.after)
    )
    moved = B.copy()
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        fixed = X_i, y_i, mixing, ridge
        head = differences(lambda w, s=S[i], fixed=fixed: objective(B, w, s, *fixed), W[i])
        np.testing.assert_allclose((new_W[i] - W[i]) / -0.04, head, rtol=1e-6, atol=1e-7)
        seen = new_W[i] if order == "gauss-seidel" else W[i]
        shortcut = differences(lambda s, w=seen, fixed=fixed: objective(B, w, s, *fixed), S[i])
        np.testing.assert_allclose((new_S[i] - S[i]) / -0.03, shortcut, rtol=1e-6, atol=1e-7)
        new = new_W[i], new_S[i]
        moved -= 0.05 / 3 * differences(lambda B, new=new, fixed=fixed: objective(B, *new, *fixed), B)
    assert np.abs(moved - B).max() > 1e-4
    np.testing.assert_allclose(ref.qr_positive(moved)[0], new_B, rtol=0, atol=1e-8)


# --- new clients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 3, 6, 15])
@pytest.mark.parametrize(
    ("ridge", "refit", "mixing"),
    [(0.0, False, None), (0.0, True, 0.4), (0.3, False, None), (0.3, False, 0.4), (0.3, True, 0.4)],
)
def test_new_clients_fit_as_the_training_ends(m, ridge, refit, mixing):
    """With the ridge, unless the training refits (or has none): then with the shortest shortcut."""
    world = draw_world([m] * 3, 6, 2, noise=0.3)
    X, y, B = world.X, world.y, world.B
    algorithm = lf.FedRepShortcut(rank=2, step_size=0.1, ridge=ridge, refit=refit, mixing=mixing)
    batch = ExplicitBatch(np.array(X)[None], np.array(y)[None], active=np.arange(3)[None])
    state = algorithm.adapt(lf.State(B=B[None], W=normal(1, 9, 2), S=normal(1, 9, 6)), batch)
    assert (state.W.shape, state.S.shape) == ((1, 3, 2), (1, 3, 6))
    assert np.array_equal(state.B[0], B)
    a, c = ref.factors_of(mixing)
    for i, (X_i, y_i) in enumerate(zip(X, y, strict=True)):
        if ridge and not refit:
            rows = np.block([[a * X_i @ B, c * X_i], [np.zeros((6, 2)), np.sqrt(ridge * m) * np.eye(6)]])
            both = ref.least_squares(rows, np.concatenate([y_i, np.zeros(6)]))
            w, s = a * both[:2], c * both[2:]
        else:
            w, s = ref.shortest(X_i, y_i, B)
        np.testing.assert_allclose(state.W[0, i], w, rtol=0, atol=1e-9)
        np.testing.assert_allclose(state.S[0, i], s, rtol=0, atol=1e-9)


@pytest.mark.parametrize("options", [{}, {"clusters": 3}, {"sparsity": 2}, {"orthogonal": True}], ids=str)
@pytest.mark.parametrize("refit", [False, True])
def test_risks_of_new_clients_equal_a_loop(options, refit):
    n, d, k, sizes = 5, 6, 2, [2, 4, 9]
    problem = lf.SharedWithShortcuts(n_clients=n, dim=d, rank=k, shortcut_norm=0.5, noise_std=0.2, **options)
    algorithm = lf.FedRepShortcut(rank=k, step_size=0.1, ridge=0.4, refit=refit)
    result = lf.simulate(algorithm, problem, data=lf.FixedSamples(8), n_rounds=3, trials=2, seed=4)
    risks = result.new_clients(sizes, clients=4, seed=9)
    truth = problem.new_clients(problem.truth(4, range(2)), 4, 9, range(2))
    Phi = truth.dense()
    for t in range(2):
        (x_rng,), (noise_rng,) = (generators(9, stream, [t]) for stream in (Stream.NEW_X, Stream.NEW_NOISE))
        X = x_rng.standard_normal((9, 4, d))
        y = np.vecdot(X, Phi[t]) + 0.2 * noise_rng.standard_normal((9, 4))
        for column, m in enumerate(sizes):
            batch = ExplicitBatch(
                X[None, :m].swapaxes(1, 2).copy(), y[None, :m].swapaxes(1, 2).copy(), active=np.arange(4)[None]
            )
            state = algorithm.adapt(lf.State(B=result.final.B[t : t + 1]), batch)
            wanted = ref.client_risks(state.predictors()[0], Phi[t], np.eye(d), 0.2)
            np.testing.assert_allclose(risks[t, column], wanted, rtol=1e-8)


# --- (2)-(5) cannot learn B ----------------------------------------------------------------------------------

STALLED = lf.SharedWithShortcuts(n_clients=8, dim=7, rank=2, shortcut_norm=0.5, noise_std=0.3)


@pytest.mark.parametrize("data", [lf.FixedSamples, lf.FreshSamples])
@pytest.mark.parametrize("participation", [pytest.param(1.0, marks=pytest.mark.long), 0.5])
@pytest.mark.parametrize("m", [1, 2, 3, 7, 8, 20])
def test_gauss_seidel_never_moves_the_representation(m, participation, data):
    """Once s_i solves its least squares at w_i, ``X_i'(Z_i w_i + X_i s_i - y_i)`` is 0: for every m and noise."""
    algorithm = lf.FedRepShortcut(rank=2, step_size=0.1, **SEIDEL, init="random")
    steps = list(rounds_of(algorithm, STALLED, data=data(m), n_rounds=10, participation=participation, trials=2))
    start = steps[0].before.B
    # Rounding moves it by the square of the heads, which are long where m == k, and shortcuts where m == d.
    np.testing.assert_allclose(steps[-1].after.B, start, rtol=0, atol=1e-11 if m in (2, 7) else 1e-12)
    assert steps[-1].after.W.any()
    assert steps[-1].after.S.any()
    # The ridge is a way out.
    ridge = dataclasses.replace(algorithm, ridge=0.5)
    *_, last = rounds_of(ridge, STALLED, data=data(m), n_rounds=25, participation=participation, trials=2)
    assert m <= 2 or np.abs(last.after.B - start).max() > 1e-2


@pytest.mark.parametrize("m", [3, 6, 7, 8, 20])
def test_jacobi_moves_it_by_what_the_head_changed(m):
    """Client i's gradient is ``(1/m) X_i' Z_i (w_i^{t+1} - w_i^t) w_i^{t+1}'``: nothing of it knows B*."""
    eta, moved = 0.05, 0.0
    algorithm = lf.FedRepShortcut(rank=2, step_size=eta, **CLOSED, init="random")
    for step in rounds_of(algorithm, STALLED, data=lf.FixedSamples(m), n_rounds=8, participation=0.5):
        (B,), (W,), (new,) = step.before.B, step.before.W, step.after.W
        (active,), (X,) = step.batch.active, step.batch.X
        G = sum(np.outer(X_i.T @ X_i @ B @ (new[i] - W[i]) / m, new[i]) for i, X_i in zip(active, X, strict=True))
        wanted = ref.qr_positive(B - eta * G / len(active))[0]
        np.testing.assert_allclose(step.after.B[0], wanted, **TOLERANCE)
        moved = max(moved, np.abs(wanted - B).max())
    assert moved > 1e-3


@pytest.mark.parametrize("k", [1, 3])
def test_jacobi_at_the_population_is_a_cycle_of_two(k):
    problem = lf.SharedWithShortcuts(n_clients=8, dim=9, rank=k, shortcut_norm=0.5)
    data = lf.GivenSamples.population(problem, trials=2, seed=1)
    algorithm = lf.FedRepShortcut(rank=k, step_size=0.2, **CLOSED, init="random")
    states = [step.after for step in rounds_of(algorithm, problem, data=data, n_rounds=40, seed=1)]
    result = lf.simulate(algorithm, problem, data=data, n_rounds=40, seed=1)
    distance = result.metrics["subspace_distance"]
    assert (distance[:, 0] > 0.1).all()
    np.testing.assert_allclose(distance, np.repeat(distance[:, :1], 41, axis=1), rtol=0, atol=1e-10)
    for before, after in zip(states, states[2:], strict=False):
        np.testing.assert_allclose(before.W, after.W, rtol=0, atol=1e-10)
    assert np.abs(states[0].W - states[1].W).max() > 0.1


@pytest.mark.parametrize("ridge", [0.1, 1.0, 5.0])
def test_jointly_with_a_ridge_the_population_step_is_ojas(ridge):
    """``B_bar = B + eta (ridge / (1 + ridge)) (I - BB') M B``, and the shortcut is ``(I - BB') phi / (1 + ridge)``."""
    d, k, eta = 9, 2, 0.3
    problem = lf.SharedWithShortcuts(n_clients=8, dim=d, rank=k, shortcut_norm=0.3)
    (Phi,) = problem.truth(1, [0]).dense()
    data = lf.GivenSamples.population(problem, trials=1, seed=1)
    algorithm = lf.FedRepShortcut(rank=k, step_size=eta, **JOINT, ridge=ridge, init="random")
    for step in rounds_of(algorithm, problem, data=data, n_rounds=5, seed=1):
        (B,) = step.before.B
        outside = np.eye(d) - B @ B.T
        drift = outside @ (Phi.T @ Phi / 8) @ B
        wanted = ref.qr_positive(B + eta * ridge / (1 + ridge) * drift)[0]
        np.testing.assert_allclose(step.after.B[0], wanted, **TOLERANCE)
        np.testing.assert_allclose(step.after.W[0], Phi @ B, **TOLERANCE)
        np.testing.assert_allclose(step.after.S[0], Phi @ outside / (1 + ridge), **TOLERANCE)


@pytest.mark.long
def test_both_ways_out_learn_the_leading_subspace():
    """A ridge with the joint order, or few small steps on the shortcut; (2)-(5) as drafted stay where they begin."""
    problem = lf.SharedWithShortcuts(n_clients=30, dim=8, rank=2, shortcut_norm=0.3, orthogonal=True)
    arguments = {"data": lf.FixedSamples(40), "n_rounds": 200, "metrics": ["subspace_distance", "parameter_error"]}
    ways = {
        "drafted": CLOSED,
        "joint": JOINT | {"ridge": 1.0, "refit": True},
        "gradient": {"solver": lf.GradientSteps(shortcut_step_size=0.01)},
    }
    found = {}
    for name, options in ways.items():
        algorithm = lf.FedRepShortcut(rank=2, step_size=0.3, init="random", **options)
        metrics = lf.simulate(algorithm, problem, **arguments).metrics
        found[name] = [metrics[key][0, [0, -1]] for key in ("subspace_distance", "parameter_error")]
    start, end = found["drafted"][0]
    assert end > 0.5 * start > 0.2
    for name in ("joint", "gradient"):
        start, end = found[name][0]
        assert end < 0.2 < start, name
    assert found["joint"][1][1] < 1e-8  # the refit: without noise and with m > d everything is found
