"""Alternating minimisation, two phases, ANIL and empirical risk: rounds are loops, ends meet optimality conditions."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.one_round import empirical_risk
from tests import references as ref
from tests.helpers import assert_one_line, basis, each, normal
from tests.worlds import SHAPES, draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
ROUNDS = 6

OPTIONS = {
    "AltGDmin": (lf.AltGDmin, {"step_size": 0.01}),
    "AltGDmin, published step": (lf.AltGDmin, {}),
    "AltGDmin, split": (lf.AltGDmin, {"split": True}),
    "AltMin": (lf.AltMin, {}),
    "AltMin, split": (lf.AltMin, {"split": True}),
    "ANIL": (lf.ANIL, {"step_size": 0.1, "adaptation_step_size": 0.3}),
    "ANIL, split": (lf.ANIL, {"step_size": 0.1, "adaptation_step_size": 0.3, "batches": "split"}),
    "ANIL, Hessian": (lf.ANIL, {"step_size": 0.1, "adaptation_step_size": 0.3, "hessian": True}),
    "ANIL, Hessian, split": (
        lf.ANIL, {"step_size": 0.1, "adaptation_step_size": 0.3, "hessian": True, "batches": "split"},
    ),
    "MAML": (lf.MAML, {"step_size": 0.1, "adaptation_step_size": 0.2}),
    "MAML, split": (lf.MAML, {"step_size": 0.1, "adaptation_step_size": 0.2, "batches": "split"}),
    "MAML, Hessian": (lf.MAML, {"step_size": 0.1, "adaptation_step_size": 0.2, "hessian": True}),
    "MAML, Hessian, split": (
        lf.MAML, {"step_size": 0.1, "adaptation_step_size": 0.2, "hessian": True, "batches": "split"},
    ),
    "TPGD": (lf.TPGD, {"step_size": 0.02, "first_phase": 3}),
}  # fmt: skip
META = (lf.ANIL, lf.MAML)


def loop(kind, options, world, W0, participants, exact=()):
    """Return B and W after every round of the loops.

    If `exact` has B and W when a round begins, they replace the loop's own: an ill-conditioned round multiplies the
    rounding errors of the earlier ones.
    """
    B, W, shared, size = world.B, W0.copy(), np.zeros(W0.shape[1]), 0.0
    for number, active in enumerate(participants, start=1):
        B, W = exact or (B, W)
        active = np.sort(active)
        X, y = [world.X[i] for i in active], [world.y[i] for i in active]
        if kind is lf.AltGDmin:
            more = dict(options)
            if "step_size" not in options:
                if number == 1:
                    size = np.linalg.norm([X_i.T @ y_i / len(y_i) for X_i, y_i in zip(X, y, strict=True)], 2)
                samples = [len(y_i) // 2 if options.get("split") else len(y_i) for y_i in y]  # of the gradient
                more["step_size"] = 0.5 / (np.mean(samples) * size**2)
            B, W = ref.altgdmin_round(B, W, X, y, active, **more)
        elif kind is lf.AltMin:
            if (found := ref.altmin_round(B, W, X, y, active, **options)) is None:
                return
            B, W = found
        elif kind is lf.ANIL and not options.get("hessian"):
            B, shared = ref.anil_round(B, shared, X, y, **options)
        elif kind in META:
            B, shared = ref.maml_round(B, shared, X, y, adapts="head" if kind is lf.ANIL else "both", **options)
        else:
            penalty = float(number > options["first_phase"])
            B, W = ref.tpgd_round(B, W, X, y, active, step_size=options["step_size"], penalty=penalty)
        yield B, shared[None] if kind in META else W


def made(kind, options, B, W):
    return kind(rank=B.shape[1], init=(B, W) if kind is lf.TPGD else B, **options)


@each("shape", SHAPES)
@pytest.mark.parametrize("name", OPTIONS)
def test_rounds_are_the_loops(name, shape):
    kind, options = OPTIONS[name]
    counts, d, k, p = SHAPES[shape]
    if "split" in name:  # each half then has the sizes of the shape
        counts = [2 * m for m in counts]
    world = draw_world(counts, d, k, noise=0.3, seed=1)
    W0 = np.random.default_rng(2).standard_normal((world.n, k)) if kind is lf.TPGD else np.zeros((world.n, k))
    participants = draw_participants(world.n, p, ROUNDS)
    steps = lf.iterate(
        made(kind, options, world.B, W0), data=world.data(), rounds=ROUNDS, participation=np.sort(participants)
    )
    next(steps)
    compared, exact = 0, []
    for step, (B, W) in zip(steps, loop(kind, options, world, W0, participants, exact), strict=False):
        np.testing.assert_allclose(step.after.B[0], B, **TOLERANCE)
        np.testing.assert_allclose(step.after.W[0], W, **TOLERANCE)
        exact[:] = [step.after.B[0], step.after.W[0]] if kind is lf.AltMin else []
        compared += 1
    assert compared == ROUNDS or (kind is lf.AltMin and shape not in ("plain", "one takes part", "n == 1"))
    if not compared:
        pytest.skip("the least squares of the first round is ill-conditioned")


def test_altgdmin_is_fedrep_with_a_step_n_m_times_as_large():
    world = draw_world([9] * 6, 7, 2, noise=0.2, seed=3)
    run = {"data": world.data(), "rounds": 20}
    one = lf.simulate(lf.AltGDmin(rank=2, step_size=0.005, init=world.B), **run)
    other = lf.simulate(lf.FedRep(rank=2, step_size=0.005 * 6 * 9, init=world.B), **run)
    np.testing.assert_allclose(one.final.B, other.final.B, **TOLERANCE)
    np.testing.assert_allclose(one.final.W, other.final.W, **TOLERANCE)


@pytest.mark.parametrize("threshold", [0.5, 9.0, np.inf])
def test_the_initialisation_is_that_of_the_truncated_averages(threshold):
    world = draw_world([9, 4, 12, 7], 5, 2, noise=0.2, seed=4)
    B = lf.simulate(lf.AltGDmin(rank=2, threshold=threshold), data=world.data(), rounds=0).final.B[0]
    expected, values = ref.truncated_averages(world.X, world.y, 2, threshold)
    assert values[1] > 1.1 * values[2]
    np.testing.assert_allclose(B @ B.T, expected @ expected.T, **TOLERANCE)
    given = lf.simulate(lf.FedRep(rank=2, step_size=1.0, init=lf.TruncatedAverages(threshold=threshold)),
                        data=world.data(), rounds=0).final.B[0]  # fmt: skip
    np.testing.assert_array_equal(B, given)


def test_all_samples_count_with_an_infinite_threshold():
    world = draw_world([9, 4, 12, 7], 5, 2, noise=0.2, seed=4)
    B = lf.simulate(lf.AltGDmin(rank=2, threshold=np.inf), data=world.data(), rounds=0).final.B[0]
    gram = lf.simulate(lf.LocalGram(rank=2), data=world.data(), rounds=1).final.B[0]
    np.testing.assert_allclose(B @ B.T, gram @ gram.T, **TOLERANCE)


def test_the_norm_of_the_first_round_sets_every_step():
    world = draw_world([9, 4, 12, 7], 5, 2, noise=0.2, seed=4)
    first, *rounds = lf.iterate(lf.AltGDmin(rank=2), data=world.data(), rounds=3)
    assert first.after.norm.tolist() == [[[0.0]]]
    size = np.linalg.norm([X.T @ y / len(y) for X, y in zip(world.X, world.y, strict=True)], 2)
    for step in rounds:
        np.testing.assert_allclose(step.after.norm, [[[size]]], rtol=1e-12)


def test_the_penalty_may_come_at_once():
    world, W = draw_world([9] * 4, 5, 2, noise=0.2, seed=4), normal(4, 2)
    options = {"rank": 2, "step_size": 0.02, "init": (world.B, W)}
    one, other = (
        lf.simulate(algorithm, data=world.data(), rounds=5).final
        for algorithm in (lf.TPGD(first_phase=0, **options), lf.FLUTE(**options))
    )
    np.testing.assert_allclose(one.B, other.B, **TOLERANCE)
    np.testing.assert_allclose(one.W, other.W, **TOLERANCE)


@pytest.mark.parametrize("scale", [1e-5, 1e4])
def test_the_units_of_the_samples_do_not_matter_to_alternating_minimisation(scale):
    """With 10 samples for the 12 entries of B."""
    world = draw_world([5] * 2, 6, 2, noise=0.3, seed=5)
    X, y = np.array(world.X), np.array(world.y)
    one, other = (
        lf.simulate(lf.AltMin(rank=2, init=world.B), data=lf.GivenSamples(factor * X, factor * y), rounds=1).final
        for factor in (1.0, scale)
    )
    np.testing.assert_allclose(other.B, one.B, rtol=0, atol=1e-8)
    np.testing.assert_allclose(other.W, one.W, rtol=0, atol=1e-8)
    assert ref.subspace_distance(one.B[0], world.B) > 0.01


def test_badly_scaled_coordinates_cost_alternating_minimisation_no_digits():
    """The normal equations have condition number 1e8, and their solution alone an error of 1e-7."""
    world = draw_world([9] * 6, 5, 2, noise=0.3, seed=5)
    X = [X_i * [1.0, 1.0, 1.0, 1.0, 1e-4] for X_i in world.X]
    final = lf.simulate(lf.AltMin(rank=2, init=world.B), data=lf.GivenSamples(X, world.y), rounds=1).final
    rows = [np.kron(x, w) for X_i, w in zip(X, final.W[0], strict=True) for x in X_i]
    wanted = np.linalg.lstsq(np.array(rows), np.concatenate(world.y))[0].reshape(5, 2)
    np.testing.assert_allclose(final.B[0], ref.qr_positive(wanted)[0], rtol=0, atol=1e-10)


def mean_loss(world, Theta):
    return np.mean([ref.loss(X, y, theta) for X, y, theta in zip(world.X, world.y, Theta, strict=True)])


DESCENT = {
    "AltMin": (lf.AltMin, {}),
    "AltMin, of another rank": (lf.AltMin, {"rank": 4, "init": "random"}),
    "BurerMonteiro": (lf.BurerMonteiro, {"iterations": 3}),
    "FedRep": (lf.FedRep, {"step_size": 0.05}),
    "FedRep, exact heads turned": (lf.FedRep, {"step_size": 0.05, "rotate_heads": True}),
    "FedRep, gradient heads turned": (
        lf.FedRep, {"step_size": 0.05, "heads": lf.GradientHeads(steps=2), "rotate_heads": True},
    ),
    "AltGDmin": (lf.AltGDmin, {"step_size": 1e-4}),
    "TPGD": (lf.TPGD, {"step_size": 1e-3, "first_phase": 40, "init": lf.SmallRandom(0.1)}),
    "FedPer": (lf.FedPer, {"step_size": 0.05}),
    "LGFedAvg": (lf.LGFedAvg, {"step_size": 0.05}),
    "FedAvg of two layers": (lf.FedAvg, {"step_size": 0.05}),
}  # fmt: skip


@each("name", DESCENT)
def test_the_recorded_loss_of_a_descent_method_never_rises(name):
    """The features are correlated, as in a table: then R of ``B = Q R`` is far from the identity."""
    kind, options = DESCENT[name]
    world = draw_world([25] * 8, 10, 3, noise=0.3, seed=5)
    mix = normal(10, 10, seed=6) * np.geomspace(1, 0.05, 10) / np.sqrt(10)
    data = lf.GivenSamples([X @ mix for X in world.X], world.y)
    losses = lf.simulate(kind(**{"rank": 3, "init": world.B} | options), data=data, rounds=40).metrics["train_loss"][0]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(losses))
    assert losses[-1] < losses[0]


def test_alternating_minimisation_turns_all_heads():
    """Also the head of a client that did not take part belongs to the new B: its predictor is that of the minimiser."""
    world = draw_world([7] * 8, 6, 2, noise=0.5, seed=5)
    algorithm, participants = lf.AltMin(rank=2, init=world.B), np.array([np.arange(8), [0, 1, 3, 4, 5, 6, 7, 2]])[:, :7]
    _, first, second = lf.iterate(algorithm, data=world.data(), rounds=2, participation=np.sort(participants))
    heads = [ref.least_squares(world.X[i] @ first.after.B[0], world.y[i]) for i in participants[1]]
    rows = [np.kron(x, w) for i, w in zip(participants[1], heads, strict=True) for x in world.X[i]]
    minimiser = np.linalg.lstsq(np.array(rows), np.concatenate([world.y[i] for i in participants[1]]))[0].reshape(6, 2)
    expected = [*(minimiser @ w for w in heads), minimiser @ first.after.W[0, 2]]
    found = second.after.predictors()[0][[*participants[1], 2]]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_the_minimiser_of_both_factors_is_where_alternating_minimisation_ends():
    world = draw_world([12] * 20, 6, 2, noise=0.5, seed=6)
    ends = [
        lf.simulate(algorithm, data=world.data(), rounds=rounds).final
        for algorithm, rounds in ((lf.BurerMonteiro(rank=2), 1), (lf.AltMin(rank=2), 300))
    ]
    first, second = (end.B[0] @ end.B[0].T for end in ends)
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ends[0].B[0].T @ ends[0].B[0], np.eye(2), rtol=0, atol=1e-12)
    for X, y, w in zip(world.X, world.y, ends[0].W[0], strict=True):  # both parts of the gradient are 0
        np.testing.assert_allclose(w, ref.least_squares(X @ ends[0].B[0], y), rtol=0, atol=1e-6)
    assert mean_loss(world, ends[0].predictors()[0]) <= mean_loss(world, ends[1].predictors()[0]) + 1e-12


@pytest.mark.long
@pytest.mark.parametrize("p", [20, 3, 1])
def test_trials_of_the_minimiser_do_not_depend_on_each_other(p):
    problem = lf.SharedRepresentation(n_clients=p, dim=6, rank=2, noise_std=0.3)
    for algorithm in (lf.BurerMonteiro(rank=3), lf.NuclearNorm(weight=0.05)):
        run = {"data": lf.FixedSamples(9), "rounds": 1}
        all_, first = (lf.simulate(algorithm, problem, seed=5, trials=t, **run) for t in (3, 1))
        np.testing.assert_array_equal(first.final.predictors()[0], all_.final.predictors()[0])


@each("weight", [0.3, 0.05, 0.003])
@each("counts, d", [([9] * 8, 5), ([3] * 8, 6), ([2, 7, 30, 4], 5), ([6], 4), ([4] * 3, 3), ([1] * 30, 4)])
def test_the_nuclear_norm_meets_its_optimality_conditions(counts, d, weight):
    world = draw_world(counts, d, 2, noise=0.3, seed=7)
    Theta = lf.simulate(lf.NuclearNorm(weight=weight, tolerance=1e-11), data=world.data(), rounds=1).final.S[0]
    G = np.array([ref.gradient(X, y, t) for X, y, t in zip(world.X, world.y, Theta, strict=True)]) / world.n
    U, s, Vt = np.linalg.svd(Theta, full_matrices=False)
    U, Vt = U[:, s > 1e-8], Vt[s > 1e-8]
    np.testing.assert_allclose(U.T @ G + weight * Vt, 0, atol=1e-7)
    np.testing.assert_allclose(G @ Vt.T + weight * U, 0, atol=1e-7)
    assert np.linalg.norm(G, 2) <= weight + 1e-7


def test_a_weight_of_the_norm_of_the_gradient_leaves_nothing():
    world = draw_world([9] * 8, 5, 2, noise=0.3, seed=7)
    G = np.array([ref.gradient(X, y, np.zeros(5)) for X, y in zip(world.X, world.y, strict=True)]) / 8
    edge = np.linalg.norm(G, 2)
    zero, some = (
        lf.simulate(lf.NuclearNorm(weight=factor * edge), data=world.data(), rounds=1).final.S[0]
        for factor in (1.001, 0.999)
    )
    assert not zero.any()
    assert some.any()


def test_the_default_weight_is_the_published_one():
    world = draw_world([16] * 9, 4, 2, noise=0.3, seed=8)
    weight = 0.3 * (3 + 2) / (9 * 4)
    run = {"data": world.data(), "rounds": 1}
    one, other = (lf.simulate(lf.NuclearNorm(**more), **run) for more in ({"noise_std": 0.3}, {"weight": weight}))
    np.testing.assert_allclose(one.final.S, other.final.S, **TOLERANCE)


def fista(X, y, weight, iterations, tolerance):
    """Return the last of so many accelerated proximal steps, and how many were tried; each must be short enough."""
    n, zeros = len(X), np.zeros((len(X), X[0].shape[1]))

    def slope(Theta):
        return np.array([ref.gradient(X_i, y_i, theta) for X_i, y_i, theta in zip(X, y, Theta, strict=True)]) / n

    first, tried, momentum, Theta, point = slope(zeros), 0, 1.0, zeros, zeros
    curvature = np.sum(first * (slope(first) - first)) / np.sum(first**2)
    for _ in range(iterations):
        while True:
            tried += 1
            U, s, Vt = np.linalg.svd(point - slope(point) / curvature, full_matrices=False)
            new = U * np.maximum(s - weight / curvature, 0.0) @ Vt
            step = new - point
            if np.sum(step * (slope(new) - slope(point))) <= (1 + 1e-12) * curvature * np.sum(step**2):
                break
            curvature *= 2.0
        following = 0.5 + np.sqrt(0.25 + momentum**2)
        forward = np.sum((point - new) * (new - Theta)) <= 0
        point = new + (momentum - 1.0) / following * (new - Theta) if forward else new
        momentum, Theta = following if forward else 1.0, new
        if curvature * np.linalg.norm(step) <= tolerance * np.linalg.norm(first):
            break
    return Theta, tried


def stacked(m, n, d, k):
    """Return samples of two trials, the second of another scale and with strong and weak coordinates."""
    first, second = (draw_world([m] * n, d, k, noise=0.3, seed=seed) for seed in (7, 8))
    second.X = [X * np.linspace(0.3, 3.0, d) for X in second.X]
    return np.array([first.X, second.X]), np.array([first.y, second.y])


@each("iterations, tolerance", [(1, 1e-9), (2, 1e-9), (3, 1e-9), (6, 1e-9), (40, 1e-9), (400, 0.03), (400, 1e-3)])
def test_the_iterations_of_the_nuclear_norm_are_those_of_a_loop(iterations, tolerance):
    X, y = stacked(9, 6, 5, 2)
    algorithm = lf.NuclearNorm(weight=0.05, iterations=iterations, tolerance=tolerance)
    final = lf.simulate(algorithm, data=lf.GivenSamples(X, y), rounds=1).final
    for t in range(2):
        wanted, _ = fista(X[t], y[t], 0.05, iterations, tolerance)
        np.testing.assert_allclose(final.S[t], wanted, rtol=0, atol=1e-10)


def test_the_iterations_of_the_nuclear_norm_end_at_the_tolerance(monkeypatch):
    X, y = stacked(9, 6, 5, 2)
    tried, plain = [], empirical_risk._shrunk
    monkeypatch.setattr(empirical_risk, "_shrunk", lambda *arguments: tried.append(1) or plain(*arguments))
    for t in range(2):
        for tolerance in (0.1, 1e-3, 1e-6):
            tried.clear()
            algorithm = lf.NuclearNorm(weight=0.05, tolerance=tolerance)
            lf.simulate(algorithm, data=lf.GivenSamples(X[t], y[t]), rounds=1)
            assert len(tried) == fista(X[t], y[t], 0.05, 5000, tolerance)[1]


@pytest.fixture
def asked(monkeypatch):
    """Return what SciPy was asked to minimise; it returns the start."""
    asked = {}

    def minimize(objective, start, **options):
        asked.update(options, objective=objective, start=start)
        return SimpleNamespace(x=start, status=0)

    monkeypatch.setattr("scipy.optimize.minimize", minimize)
    return asked


@pytest.mark.parametrize(("n", "k"), [(4, 2), (2, 3)])
def test_the_joint_minimiser_knows_the_slope_of_its_objective(asked, n, k):
    world, d = draw_world([6] * n, 5, k, noise=0.3, seed=2), 5
    algorithm = lf.BurerMonteiro(rank=k, init=world.B, iterations=7, tolerance=1e-3)
    lf.simulate(algorithm, data=world.data(), rounds=1)

    def parts(values):
        return values[: d * k].reshape(d, k), values[d * k :].reshape(n, k)

    def objective(values):
        B, W = parts(values)
        losses = [ref.loss(X, y, B @ w) for X, y, w in zip(world.X, world.y, W, strict=True)]
        return sum(losses) + np.sum((B.T @ B - W.T @ W) ** 2) / 8

    at = normal(d * k + n * k, seed=3)
    value, slope = asked["objective"](at)
    assert value == pytest.approx(objective(at), rel=1e-12)
    wanted = [(objective(at + 1e-4 * one) - objective(at - 1e-4 * one)) / 2e-4 for one in np.eye(len(at))]
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-6)
    B, W = parts(asked["start"])
    np.testing.assert_allclose(B.T @ B, W.T @ W, atol=1e-12)
    heads = np.array([ref.least_squares(X @ world.B, y) for X, y in zip(world.X, world.y, strict=True)])
    np.testing.assert_allclose(W @ B.T, heads @ world.B.T, atol=1e-12)
    limits = asked["options"]
    assert (limits["maxiter"], limits["maxfun"], limits["ftol"]) == (7, 14, 0.0)
    assert limits["gtol"] == pytest.approx(1e-3 * np.mean(np.square(world.y)))


def test_the_joint_minimiser_goes_through_the_trials_one_by_one(asked):
    X, y = stacked(6, 4, 5, 2)
    algorithm = lf.BurerMonteiro(rank=2, init=basis(5, 2))
    both = lf.simulate(algorithm, data=lf.GivenSamples(X, y), rounds=1).final
    for t in range(2):
        one = lf.simulate(algorithm, data=lf.GivenSamples(X[t], y[t]), rounds=1).final
        np.testing.assert_allclose(both.predictors()[t], one.predictors()[0], **TOLERANCE)
        np.testing.assert_allclose(both.B[t].T @ both.B[t], np.eye(2), atol=1e-12)


def test_the_joint_minimiser_leaves_what_is_not_finite():
    B, W = normal(1, 5, 2), normal(1, 4, 2, seed=1)
    for one, other in ((B, W * np.nan), (B * np.nan, W)):
        found = lf.BurerMonteiro(rank=2)._minimise(None, one, other)
        assert found[0] is one
        assert found[1] is other


@pytest.mark.parametrize("n", [30, 2])
def test_with_a_rank_the_nuclear_norm_has_a_representation(n):
    world = draw_world([9] * n, 5, 2, noise=0.1, seed=9)
    run = {"data": world.data(), "rounds": 1}
    final = lf.simulate(lf.NuclearNorm(weight=0.01, rank=3), **run).final
    Theta = lf.simulate(lf.NuclearNorm(weight=0.01), **run).final.S[0]
    B = final.B[0]
    np.testing.assert_allclose(B.T @ B, np.eye(3), rtol=0, atol=1e-12)
    rows = np.linalg.svd(Theta, full_matrices=False)[2][: min(3, n)]
    np.testing.assert_allclose(rows @ B @ B.T, rows, rtol=0, atol=1e-8)
    for X, y, w in zip(world.X, world.y, final.W[0], strict=True):
        np.testing.assert_allclose(w, ref.least_squares(X @ B, y), **TOLERANCE)


def test_where_heads_explain_all_samples_nothing_that_minimises_the_loss_moves():
    """m = k: FedRep, AltGDmin, AltMin and the joint minimiser keep the span of B; the local averages do not."""
    problem = lf.SharedRepresentation(n_clients=500, dim=8, rank=2)
    B = basis(8, 2)
    for algorithm in (
        lf.AltGDmin(rank=2, init=B), lf.AltMin(rank=2, init=B), lf.BurerMonteiro(rank=2, init=B),
    ):  # fmt: skip
        curve = lf.simulate(algorithm, problem, data=lf.FixedSamples(2), rounds=3).metrics["subspace_distance"][0]
        assert curve[-1] == pytest.approx(curve[0], abs=1e-9)
        assert curve[0] > 0.5


@pytest.mark.parametrize("adapts", ["head", "both"])
def test_the_reference_is_the_derivative_of_the_loss_after_the_own_step(adapts):
    """By differences of the loss: the own step on the first half of the samples, the loss on the second."""
    (X,), (y,) = (world := draw_world([14], 5, 2, noise=0.3, seed=11)).X, world.y
    B, w, alpha = world.B, np.array([0.7, -0.4]), 0.3
    theta, moves = np.concatenate([B.ravel(), w]), np.arange(12) >= (10 if adapts == "head" else 0)

    def after(at):
        slope, _ = ref.two_layer_derivatives(at, X[:7], y[:7], 5, 2)
        own = at - alpha * moves * slope
        return ref.loss(X[7:], y[7:], own[:10].reshape(5, 2) @ own[10:])

    sides = [[after(theta + side * 1e-5 * one) for one in np.eye(12)] for side in (1, -1)]
    slope = (np.array(sides[0]) - sides[1]) / 2e-5
    new_B, new_w = ref.maml_round(
        B, w, [X], [y], step_size=1.0, adaptation_step_size=alpha, hessian=True, batches="split", adapts=adapts
    )
    np.testing.assert_allclose(theta - np.concatenate([new_B.ravel(), new_w]), slope, rtol=0, atol=1e-8)


@pytest.mark.parametrize("hessian", [False, True])
@pytest.mark.parametrize("kind", META)
def test_without_an_own_step_the_average_loss_is_minimised(kind, hessian):
    world = draw_world([9] * 6, 7, 2, noise=0.2, seed=3)
    run = {"data": world.data(), "rounds": 20, "metrics": ["train_loss"]}
    meta = kind(rank=2, step_size=0.1, adaptation_step_size=1e-300, hessian=hessian, init=world.B)
    one, other = (
        lf.simulate(algorithm, **run).final for algorithm in (meta, lf.FedAvg(rank=2, step_size=0.1, init=world.B))
    )
    np.testing.assert_allclose(one.B, other.B, **TOLERANCE)
    np.testing.assert_allclose(one.shared, other.W, **TOLERANCE)
    assert np.abs(other.B - world.B).max() > 0.05


def test_two_local_steps_are_a_step_of_maml_after_a_step_of_the_average_loss():
    """The change in a round of FedAvg with K = 2 is the sum of the changes of both, from one model."""
    world = draw_world([9] * 6, 7, 2, noise=0.2, seed=3)
    step = {"rank": 2, "step_size": 0.2}
    *_, last = lf.iterate(lf.FedAvg(local_steps=2, init=world.B, **step), data=world.data(), rounds=4)
    B, w = last.before.B[0], last.before.W[0, 0]
    assert np.abs(w).max() > 0.05
    (B1, w1), (B2, w2) = (
        ref.maml_round(B, w, world.X, world.y, step_size=0.2, adaptation_step_size=size) for size in (0.0, 0.2)
    )
    np.testing.assert_allclose(last.after.B[0] - B, B1 + B2 - 2 * B, **TOLERANCE)
    np.testing.assert_allclose(last.after.W[0, 0] - w, w1 + w2 - 2 * w, **TOLERANCE)


def test_clients_of_maml_predict_with_their_own_two_layers():
    world = draw_world([9] * 6, 7, 2, noise=0.2, seed=3)
    algorithm = lf.MAML(rank=2, step_size=0.2, adaptation_step_size=0.3, init=world.B)
    *_, last = lf.iterate(algorithm, data=world.data(), rounds=5)
    B, w = last.before.B[0], last.before.shared[0, 0]
    for X, y, theta in zip(world.X, world.y, last.after.predictors()[0], strict=True):
        g = ref.gradient(X, y, B @ w)
        np.testing.assert_allclose(theta, (B - 0.3 * np.outer(g, w)) @ (w - 0.3 * B.T @ g), **TOLERANCE)


def test_anil_learns_classes():
    mixture = lf.Classes(n_clients=6, dim=5, n_classes=3, classes_per_client=2)
    run = {"data": lf.FixedSamples(12), "rounds": 30}
    algorithm = lf.ANIL(rank=2, step_size=0.5, adaptation_step_size=0.5)
    accuracy = lf.simulate(algorithm, mixture, **run).metrics["own_class_accuracy"][0]
    assert accuracy[-1] > accuracy[0] + 0.2


@each(
    ("call", "words"),
    [
        (lambda: lf.AltGDmin(rank=0), ["rank = 0"]),
        (lambda: lf.AltGDmin(rank=1, threshold=-1), ["threshold = -1"]),
        (lambda: lf.AltGDmin(rank=1, step_size=0.0), ["step_size = 0.0"]),
        (lambda: lf.AltMin(rank=1, split=2), ["split = 2"]),
        (lambda: lf.TPGD(rank=1, step_size=0.1, first_phase=-1), ["first_phase = -1"]),
        (lambda: lf.ANIL(rank=1, step_size=0.1, adaptation_step_size=0.0), ["adaptation_step_size = 0.0"]),
        (lambda: lf.MAML(rank=1, step_size=0.1, adaptation_step_size=0.0), ["adaptation_step_size = 0.0"]),
        (lambda: lf.MAML(rank=1, step_size=0.1, adaptation_step_size=0.1, hessian=1), ["hessian = 1"]),
        (lambda: one_sample(lf.MAML(rank=1, step_size=0.1, adaptation_step_size=0.1, batches="split")), ["got 1"]),
        (lambda: of_classes(lf.MAML(rank=2, step_size=0.1, adaptation_step_size=0.1)), ["MAML", "2 classes"]),
        (
            lambda: of_classes(lf.ANIL(rank=2, step_size=0.1, adaptation_step_size=0.1, hessian=True)),
            ["hessian = True supports only regression", "2 classes"],
        ),
        (lambda: lf.NuclearNorm(weight=0.0), ["weight = 0.0"]),
        (lambda: lf.NuclearNorm(rank=0), ["rank = 0"]),
        (lambda: lf.BurerMonteiro(rank=2, iterations=0), ["iterations = 0"]),
        (lambda: one_sample(lf.AltMin(rank=1, split=True)), ["at least 2 samples per client, got 1"]),
        (lambda: one_sample(lf.NuclearNorm(rank=4)), ["rank = 4 must be at most dim = 3"]),
        (lambda: of_classes(lf.AltMin(rank=2)), ["AltMin supports only regression", "2 classes"]),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_one_line(call, words):
    assert_one_line(call, words)


def one_sample(algorithm):
    return lf.simulate(
        algorithm, lf.SharedRepresentation(n_clients=4, dim=3, rank=1), data=lf.FixedSamples(1), rounds=1
    )


def of_classes(algorithm):
    problem = lf.Classes(n_clients=4, dim=3, n_classes=2, classes_per_client=2)
    return lf.simulate(algorithm, problem, data=lf.FixedSamples(5), rounds=1)
