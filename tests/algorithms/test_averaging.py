"""The averaging family and its reference lines: drawn data, certificates, reductions, fine-tuning, shared rows."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.models import LinearModel
from linfed.data import sources
from linfed.data.explicit import ExplicitBatch
from linfed.numerics import linalg
from linfed.numerics.streams import Stream, generators
from linfed.simulation import job
from linfed.simulation.results import Result
from tests import references as ref
from tests.algorithms.test_algorithms import arrays_equal
from tests.helpers import Held, Wrapped, assert_same, each, normal
from tests.worlds import draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Watched(Wrapped):
    """Runs another algorithm and keeps what it was shown: samples, participants, states and copies of them."""

    steps: list = dataclasses.field(default_factory=list)
    finishing: list = dataclasses.field(default_factory=list)

    def step(self, state, batch, rng):
        new = self.inner.step(state, batch, rng)
        self.keep(self.steps, state, batch)
        return new

    def finish(self, state, batch, rng):
        new = self.inner.finish(state, batch, rng)
        self.keep(self.finishing, state, batch)
        return new

    def keep(self, log, state, batch):
        copies = {name: array.copy() for name, array in state.arrays().items()}
        log.append((batch.X.copy(), batch.y.copy(), batch.active.copy(), state, copies))


# --- drawn data, through the loops ---------------------------------------------------------------------------


def replay_one_layer(arrays, X, y, active, options):
    return {"S": ref.fedavg_round(arrays["S"][0], X, y, **options)[None]}


def replay_two_layers(arrays, X, y, active, options):
    B, w = ref.fedavg_two_layer_round(arrays["B"], arrays["W"][0], X, y, **options)
    return {"B": B, "W": w[None]}


def replay_fedper(arrays, X, y, active, options):
    return dict(zip("BW", ref.fedper_round(arrays["B"], arrays["W"], X, y, active, **options), strict=True))


def replay_pooled(arrays, X, y, active, options):
    return {"S": ref.stacked_least_squares(X, y, np.full(len(y), 1 / len(y)))[None]}


def replay_oracle(arrays, X, y, active, options):
    W = arrays["W"].copy()
    for i, X_i, y_i in zip(active, X, y, strict=True):
        W[i] = ref.least_squares(X_i @ arrays["B"], y_i)
    return {"B": arrays["B"], "W": W}


STEPS = {"step_size": 0.1, "local_steps": 3, "server_step_size": 0.7}
REPLAYS = {
    "FedAvg": (lf.FedAvg, replay_one_layer, STEPS),
    "FedAvg, two layers": (lf.FedAvg, replay_two_layers, STEPS),
    "FedPer": (lf.FedPer, replay_fedper, STEPS),
    "pooled": (lf.PooledLeastSquares, replay_pooled, {}),
    "oracle": (lf.Oracle, replay_oracle, {}),
}


@pytest.mark.parametrize("rows", ["drawn ahead", "drawn when read"])
@pytest.mark.parametrize("data", [lf.FreshSamples(6), lf.FixedSamples(6)], ids=repr)
@pytest.mark.parametrize("name", REPLAYS)
def test_drawn_data_replayed_through_the_loops(name, data, rows, monkeypatch):
    if rows == "drawn when read":
        monkeypatch.setattr(sources, "CACHE_VALUES", 0)
        monkeypatch.setattr(linalg, "CACHE_VALUES", 2 * 6 * 7)
    kind, step, options = REPLAYS[name]
    more = {} if name in ("FedAvg", "pooled") else {"rank": 2}
    problem = lf.SharedRepresentation(n_clients=5, dim=7, rank=2, noise_std=0.2)
    watched = Watched(inner=kind(**options, **more))
    start = lf.simulate(watched, problem, data=data, rounds=0, trials=2).final
    result = lf.simulate(watched, problem, data=data, rounds=10, participation=3, trials=2)
    assert len(watched.steps) == 10
    for t in range(2):
        arrays = {key: array[t] for key, array in start.arrays().items()}
        for X, y, active, *_ in watched.steps:
            arrays = step(arrays, X[t], y[t], active[t], options)
        for key, array in arrays.items():
            np.testing.assert_allclose(result.final.arrays()[key][t], array, **TOLERANCE)
    for *_, state, copies in watched.steps:  # and earlier states are as they were
        assert arrays_equal(state.arrays(), copies)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("fine_tune", [lf.GradientHeads(steps=10), lf.ExactHeads()], ids=["gradient", "exact"])
def test_fresh_samples_of_the_fine_tuning_come_from_streams_of_their_own(fine_tune, noise):
    problem = lf.SharedRepresentation(n_clients=5, dim=7, rank=2, noise_std=noise, design="cube")
    watched = Watched(inner=lf.FedAvg(step_size=0.1, rank=2, fine_tune=fine_tune))
    result = lf.simulate(watched, problem, data=lf.FreshSamples(4), rounds=6, participation=3, trials=2, seed=(4, 1))
    ((X, y, active, state, _),) = watched.finishing
    assert np.array_equal(active, np.tile(np.arange(5), (2, 1)))
    for step_X, *_ in watched.steps:
        assert not np.isin(step_X, X).any()
    truth = problem.truth((4, 1), range(2))
    for t in range(2):
        (x_rng,), (noise_rng,) = (generators((4, 1), s, [t]) for s in (Stream.FINISH_X, Stream.FINISH_NOISE))
        rows = np.empty((5, 4, 7))
        problem.design.fill(x_rng, rows)
        assert np.array_equal(X[t], rows)
        labels = np.vecdot(rows, truth.dense()[t][:, None]) + noise * noise_rng.standard_normal((5, 4))
        np.testing.assert_allclose(y[t], labels, **TOLERANCE)
        W = ref.fine_tuned(state.B[t], state.W[t, 0], X[t], y[t], fine_tune, 0.1)
        np.testing.assert_allclose(result.final.W[t], W, **TOLERANCE)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("trials", [1, 3])
def test_drawn_samples_are_those_that_a_run_sees(trials, noise):
    problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=noise, design=lf.Rademacher(covariance=2.0))
    data = lf.FixedSamples(3)
    given = data.draw(problem, trials=trials, seed=(2, 5))
    watched = Watched(inner=lf.PooledLeastSquares())
    one = lf.simulate(watched, problem, data=data, rounds=1, trials=trials, seed=(2, 5))
    ((X, y, *_),) = watched.steps
    assert np.array_equal(given.X, X)
    assert np.array_equal(given.y, y)
    assert (given.n_trials, given.counts.tolist()) == (trials, [3.0] * 5)
    assert_same(lf.simulate(lf.PooledLeastSquares(), problem, data=given, rounds=1, seed=(2, 5)), one)
    assert not np.isin(data.draw(problem, trials=trials).y, y).any()


@pytest.mark.parametrize("form", ["lists", "array", "trials"])
def test_normal_equations_of_given_samples(form):
    if form == "lists":
        world = draw_world([1, 4, 2, 7], 3, 2, noise=0.3)
        given, X, y = world.data(), [world.X], [world.y]
    else:
        X, y = normal(3, 4, 5, 3), normal(3, 4, 5, seed=1)
        if form == "array":
            X, y = X[:1], y[:1]
        given = lf.GivenSamples(X, y) if form == "trials" else lf.GivenSamples(X[0], y[0])
    A, b = given.normal_equations()
    assert A.ndim == (4 if form == "trials" else 3)
    for t, (rows, labels) in enumerate(zip(X, y, strict=True)):
        for i, (X_i, y_i) in enumerate(zip(rows, labels, strict=True)):
            index = (t, i) if form == "trials" else i
            np.testing.assert_allclose(A[index], X_i.T @ X_i / len(y_i), **TOLERANCE)
            np.testing.assert_allclose(b[index], X_i.T @ y_i / len(y_i), **TOLERANCE)


# --- certificates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("common", [False, True], ids=["each its own", "one for all"])
@pytest.mark.parametrize(("d", "k"), [(4, 0), (4, 2), (3, 1), (2, 2)])
def test_gradients_of_both_models_are_central_differences_of_the_loss(d, k, common):
    model = LinearModel(d, k)
    world = draw_world([5, 1, 3], d, max(k, 1), noise=0.3)
    data = world.data()
    batch = ExplicitBatch(data.X[None], data.y[None], active=np.arange(3)[None], counts=data.counts[None])
    size = d * k + k if k else d
    point = normal(1, 1 if common else 3, size)

    def loss(vector):
        if k == 0:
            return batch.loss(vector)
        B, w = vector[..., : d * k].reshape(*vector.shape[:2], d, k), vector[..., d * k :]
        return batch.loss(np.einsum("tndk,tnk->tnd", B, w))

    gradient = model.gradient(batch, point)
    assert gradient.shape == (1, 3, size)
    h = 0.5  # along one coordinate the loss is quadratic, so central differences are exact at any width
    for j, e in enumerate(h * np.eye(size)):
        np.testing.assert_allclose(gradient[..., j], (loss(point + e) - loss(point - e)) / (2 * h), **TOLERANCE)


def test_parameters_as_one_vector_and_back():
    B, w, theta = normal(2, 4, 3), normal(2, 5, 3, seed=1), normal(2, 5, 4, seed=2)
    model = LinearModel.of(lf.State(B=B, W=w))
    vector = model.vector(B, w)
    assert vector.shape == (2, 5, 15)
    one, two = model.layers(vector)
    assert np.array_equal(one, np.broadcast_to(B[:, None], (2, 5, 4, 3)))
    assert np.array_equal(two, w)
    units = normal(2, 5, 3, seed=3)
    B_units, w_units = model.layers(model.vector_of_units(units))
    assert np.array_equal(B_units, np.broadcast_to(units[:, :, None], (2, 5, 4, 3)))
    assert np.array_equal(w_units, units)
    shared = {"B": B, "W": w[:, :1]}
    for kind, arrays in ((model, shared), (LinearModel.of(lf.State(S=theta)), {"S": theta[:, :1]})):
        vector = kind.shared(lf.State(**arrays))
        assert vector.shape == (2, 1, kind.size)
        parts = kind.parts(vector)
        assert parts.keys() == arrays.keys()
        assert all(np.array_equal(parts[name], array) for name, array in arrays.items())
    assert np.array_equal(LinearModel(4, 0).vector_of_units(theta), theta)
    assert LinearModel(4, 0) == LinearModel(4, 0, classes=0, kept=False)


# --- reproducible trials -------------------------------------------------------------------------------------

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=5, rank=2, noise_std=0.1)
FAMILY = {
    "FedAvg": lf.FedAvg(step_size=0.2, local_steps=2, weights="samples"),
    "FedAvg, two layers": lf.FedAvg(step_size=0.1, rank=2, local_steps=2),
    "FedAvg + FT": lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.GradientHeads(steps=3)),
    "FedAvg + exact FT": lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.ExactHeads(), init=lf.AtDistance(0.5)),
    "FedPer": lf.FedPer(step_size=0.1, rank=2, local_steps=2, init="moments"),
    "pooled": lf.PooledLeastSquares(),
    "oracle": lf.Oracle(rank=2),
    "oracle, truncated": lf.Oracle(rank=1, ridge=0.1),
}
DATA = {
    "fresh": lf.FreshSamples(4),
    "fresh, drawn when read": lf.FreshSamples(6000),
    "fixed": lf.FixedSamples(4),
    "given": lf.GivenSamples([normal(1 + i % 4, 5, seed=i) for i in range(6)], [normal(1 + i % 4) for i in range(6)]),
}


def run(algorithm, data=DATA["fixed"], **changes):
    arguments = {"data": data, "rounds": 4, "participation": 0.5, "trials": 4, "seed": 3} | changes
    return lf.simulate(algorithm, PROBLEM, **arguments)


@pytest.mark.long
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", FAMILY)
def test_a_trial_depends_neither_on_the_others_nor_on_the_chunk(name, data, monkeypatch):
    four = run(FAMILY[name], DATA[data])
    risks = four.metrics["risk"][:, -1]
    assert len(set(risks)) == 4
    assert_same(run(FAMILY[name], DATA[data], trials=1), four, slice(None), slice(1))
    with pytest.raises(lf.SizeError) as caught:
        run(FAMILY[name], DATA[data], memory_budget=1.0)
    number, unit = str(caught.value).split("about ")[1].split(" ")[:2]
    each = float(number) * 1000.0 ** ["B", "kB", "MB", "GB"].index(unit)
    assert_same(run(FAMILY[name], DATA[data], memory_budget=3.1 * each), four)
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    assert_same(run(FAMILY[name], DATA[data]), four)


@pytest.mark.long
def test_worker_processes_give_the_same_bits():
    algorithm = FAMILY["FedAvg + FT"]
    assert_same(run(algorithm, DATA["fresh"], workers=2), run(algorithm, DATA["fresh"]))


# --- reductions ----------------------------------------------------------------------------------------------


def final(world, algorithm, rounds, participation=1.0, **more):
    return lf.simulate(algorithm, data=world.data(), rounds=rounds, participation=participation, **more).final


def model(rank, world):
    """Return the fields of FedAvg that say how many layers the model has."""
    return {} if rank is None else {"rank": rank, "init": world.B}


def assert_same_state(one, other, tolerance=TOLERANCE):
    assert one.arrays().keys() == other.arrays().keys()
    for key, array in one.arrays().items():
        np.testing.assert_allclose(other.arrays()[key], array, **tolerance)


@pytest.mark.long
@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("rank", [None, 2])
def test_one_local_step_leads_to_the_pooled_least_squares(rank, weights):
    world = draw_world([9, 3, 14, 6], 4, 2, noise=0.5)
    other = {"uniform": "samples", "samples": "uniform"}[weights]
    state = final(world, lf.FedAvg(step_size=0.3, weights=weights, **model(rank, world)), 1500)
    pooled, wrong = (final(world, lf.PooledLeastSquares(weights=each), 1) for each in (weights, other))
    np.testing.assert_allclose(state.predictors(), pooled.S, **TOLERANCE)
    assert np.abs(wrong.S - pooled.S).max() > 1e-2
    assert rank is None or np.abs(state.W).max() > 0.1


@pytest.mark.long
def test_from_zero_it_leads_to_the_shortest_pooled_least_squares():
    world = draw_world([2, 3, 1], 9, 2, noise=0.5)
    state = final(world, lf.FedAvg(step_size=0.1), 2500)
    pooled = final(world, lf.PooledLeastSquares(), 1)
    np.testing.assert_allclose(state.S, pooled.S, **TOLERANCE)
    X, y = np.concatenate(world.X), np.concatenate(world.y)
    np.testing.assert_allclose(X @ pooled.S[0, 0], y, **TOLERANCE)  # six samples, nine unknowns
    np.testing.assert_allclose(pooled.S[0, 0], np.linalg.lstsq(X, y)[0], **TOLERANCE)


@pytest.mark.parametrize("kind", [lf.FedAvg, lf.PooledLeastSquares])
def test_weights_by_equal_counts_are_uniform(kind):
    more = {"step_size": 0.1, "local_steps": 3} if kind is lf.FedAvg else {}
    for m, n, p in ((7, 5, 3), (3, 6, 6)):
        world = draw_world([m] * n, 4, 2, noise=0.5)
        active = draw_participants(n, p, 8)
        one, other = (final(world, kind(weights=each, **more), 8, active) for each in ("uniform", "samples"))
        assert arrays_equal(one.arrays(), other.arrays())


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("how", ["one client", "one participant", "identical clients"])
def test_without_heterogeneity_it_is_gradient_descent(how, rank):
    rounds, K, eta = 7, 3, 0.1
    world = draw_world([6], 4, 2, noise=0.5)
    (X,), (y,) = world.X, world.y
    if how == "identical clients":
        world.X, world.y = world.X * 5, world.y * 5
    elif how == "one participant":
        world.X, world.y = [5 * X, X, -2 * X], [y, y, y]
    active = [[1]] * rounds if how == "one participant" else 1.0
    state = final(world, lf.FedAvg(step_size=eta, local_steps=K, **model(rank, world)), rounds, active)
    theta, B, w = np.zeros(4), world.B, np.zeros(2)
    for _ in range(rounds * K):
        theta = theta - eta * ref.gradient(X, y, theta)
        g = ref.gradient(X, y, B @ w)
        B, w = B - eta * np.outer(g, w), w - eta * B.T @ g
    if rank is None:
        np.testing.assert_allclose(state.S[0, 0], theta, **TOLERANCE)
    else:
        np.testing.assert_allclose(state.B[0], B, **TOLERANCE)
        np.testing.assert_allclose(state.W[0, 0], w, **TOLERANCE)


@pytest.mark.parametrize("rank", [None, 2])
def test_the_servers_step_multiplies_a_single_local_step(rank):
    world = draw_world([6, 2, 9], 4, 2, noise=0.5)
    steps = ({"step_size": 0.1, "server_step_size": 2.5}, {"step_size": 0.25})
    one, other = (
        final(world, lf.FedAvg(**model(rank, world), **each), 9, [[0, 2], [0, 1], [1, 2]] * 3) for each in steps
    )
    assert_same_state(one, other)
    more = [final(world, lf.FedAvg(local_steps=2, **model(rank, world), **each), 9) for each in steps]
    gaps = [np.abs(a - b).max() for a, b in zip(*(state.arrays().values() for state in more), strict=True)]
    assert max(gaps) > 1e-4  # with two they differ


@pytest.mark.parametrize("local_steps", [1, 4])
def test_one_client_makes_fedper_the_two_layer_fedavg(local_steps):
    world = draw_world([6], 4, 2, noise=0.5)
    one, other = (
        final(world, kind(step_size=0.1, rank=2, local_steps=local_steps, init=world.B), 9)
        for kind in (lf.FedPer, lf.FedAvg)
    )
    assert_same_state(one, other)


def test_fedper_with_one_step_is_gradient_descent_on_the_sum_of_the_losses():
    world, eta = draw_world([6, 2, 9], 4, 2, noise=0.5), 0.1
    state = final(world, lf.FedPer(step_size=eta, rank=2, init=world.B), 20)
    B, W = world.B, np.zeros((3, 2))
    for _ in range(20):
        G = [ref.gradient(X, y, B @ w) for X, y, w in zip(world.X, world.y, W, strict=True)]
        B, W = B - eta * np.mean([np.outer(g, w) for g, w in zip(G, W, strict=True)], axis=0), W - eta * np.array(G) @ B
    np.testing.assert_allclose(state.B[0], B, **TOLERANCE)
    np.testing.assert_allclose(state.W[0], W, **TOLERANCE)


def test_one_client_makes_the_pool_local():
    for m in (3, 9):
        world = draw_world([m], 5, 2, noise=0.5)
        assert_same_state(final(world, lf.LocalOnly(), 1), final(world, lf.PooledLeastSquares(), 1))


@pytest.mark.parametrize("counts", [[7] * 5, [1, 2, 9, 3, 2]], ids=["equal", "unequal"])
def test_exact_fine_tuning_fits_the_heads_of_what_was_averaged(counts):
    world = draw_world(counts, 6, 2, noise=0.3)
    setting = {"step_size": 0.1, "rank": 2, "init": world.B}
    participants = draw_participants(5, 3, 8)
    ways = None, lf.ExactHeads()
    plain, tuned = (final(world, lf.FedAvg(fine_tune=how, **setting), 8, participants) for how in ways)
    assert np.array_equal(plain.B, tuned.B)
    assert (plain.W.shape, tuned.W.shape) == ((1, 1, 2), (1, 5, 2))
    for X, y, w in zip(world.X, world.y, tuned.W[0], strict=True):
        np.testing.assert_allclose(w, ref.least_squares(X @ plain.B[0], y), **TOLERANCE)


def test_many_fine_tuning_steps_reach_the_exact_heads():
    world = draw_world([12] * 4, 6, 2, noise=0.3)
    setting = {"step_size": 0.1, "rank": 2, "init": world.B}
    exact = final(world, lf.FedAvg(fine_tune=lf.ExactHeads(), **setting), 8).W
    many = [lf.GradientHeads(steps=steps, step_size=0.3) for steps in (5, 50, 500)]
    gaps = [np.abs(final(world, lf.FedAvg(fine_tune=heads, **setting), 8).W - exact).max() for heads in many]
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]
    assert gaps[2] < 1e-10


@pytest.mark.parametrize("m", [1, 2, 9])
@pytest.mark.parametrize("rank", [2, 3])
def test_the_oracle_has_the_heads_of_fedrep_at_distance_zero(rank, m):
    """The bases differ by a rotation, the predictors do not; a truth of larger rank is cut to its best subspace."""
    problem = lf.SharedRepresentation(n_clients=6, dim=7, rank=3, noise_std=0.4)
    setting = {"data": lf.FixedSamples(m), "trials": 2, "participation": 4}
    fedrep = lf.FedRep(rank=rank, step_size=0.1, init=lf.AtDistance(0.0))
    start = lf.simulate(fedrep, problem, rounds=0, **setting).final.B
    oracle = lf.simulate(lf.Oracle(rank=rank), problem, rounds=1, **setting)
    first = lf.simulate(fedrep, problem, rounds=1, **setting).final.W
    np.testing.assert_allclose(oracle.final.predictors(), first @ np.swapaxes(start, -1, -2), **TOLERANCE)
    assert oracle.metrics["subspace_distance"].max() < 1e-13
    for B, Phi in zip(oracle.final.B, problem.truth(0, range(2)).dense(), strict=True):
        assert ref.subspace_distance(ref.top_left_subspace(Phi, rank), B) < 1e-10


def test_the_oracle_keeps_to_a_given_subspace():
    B, Phi = normal(6, 2), normal(4, 6, seed=1)
    result = lf.simulate(lf.Oracle(rank=2), lf.GivenTruth(Phi=Phi, B=B), data=lf.FixedSamples(5), rounds=1)
    np.testing.assert_allclose(result.final.B[0], ref.qr_positive(B)[0], **TOLERANCE)


@pytest.mark.parametrize("rank", [None, 2])
def test_the_common_truth_of_all_clients_is_a_fixed_point_of_fedavg(rank):
    B, w = ref.qr_positive(normal(5, 2))[0], normal(2, seed=1)
    X = normal(1, 4, 3, 5, seed=2)
    batch = ExplicitBatch(X, X @ B @ w, active=np.arange(4)[None])
    state = lf.State(S=(B @ w)[None, None]) if rank is None else lf.State(B=B[None], W=w[None, None])
    for _ in range(5):
        state = lf.FedAvg(step_size=0.1, local_steps=3, rank=rank).step(state, batch, None)
    np.testing.assert_allclose(state.predictors()[0, 0], B @ w, rtol=0, atol=1e-14)


# --- what is done once at the end ----------------------------------------------------------------------------

TUNED = {
    "gradient": lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.GradientHeads(steps=4)),
    "exact": lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.ExactHeads()),
}


def plain(algorithm):
    return lf.FedAvg(step_size=algorithm.step_size, rank=algorithm.rank, init=algorithm.init)


@pytest.mark.long
@each("data", DATA)
@each(
    ("rounds", "every", "recorded"),
    [(4, 1, [0, 1, 2, 3, 4, 5]), (7, 3, [0, 3, 6, 7, 8]), (5, 3, [0, 3, 5, 6]), (2, 9, [0, 2, 3]), (0, 1, [0, 1])],
)
@each("how", TUNED)
def test_fine_tuning_is_one_more_round_and_leaves_the_others_alone(how, rounds, every, recorded, data):
    setting = {"rounds": rounds, "record_every": every, "trials": 2, "participation": 0.4}
    tuned, without = (run(each, DATA[data], **setting) for each in (TUNED[how], plain(TUNED[how])))
    assert tuned.rounds.tolist() == recorded
    assert without.rounds.tolist() == recorded[:-1]
    assert tuned.status == [lf.Status.COMPLETED] * 2
    assert tuned.status_round.tolist() == [rounds] * 2
    assert np.array_equal(tuned.final.B, without.final.B)
    assert (tuned.final.W.shape, without.final.W.shape) == ((2, 6, 2), (2, 1, 2))
    truth = PROBLEM.truth(3, range(2))
    for name, values in tuned.metrics.items():
        assert np.array_equal(values[:, :-1], without.metrics[name])
        assert (values[:, -1] != values[:, -2]).all() == (name != "subspace_distance")
    for t, Phi in enumerate(truth.dense()):
        Theta = tuned.final.W[t] @ tuned.final.B[t].T
        wanted = {
            "parameter_error": ref.parameter_error(Theta, Phi),
            "mean_client_error": ref.mean_client_error(Theta, Phi),
            "risk": ref.risk(Theta, Phi, np.eye(5), 0.1),
            "subspace_distance": ref.subspace_distance(truth.B[t], tuned.final.B[t]),
        }
        for name, value in wanted.items():
            np.testing.assert_allclose(tuned.metrics[name][t, -1], value, **TOLERANCE)


@pytest.mark.parametrize("how", TUNED)
def test_fine_tuning_needs_no_truth_and_no_round(how):
    world = draw_world([5, 2, 8], 4, 2, noise=0.1)
    result = lf.simulate(dataclasses.replace(TUNED[how], init=world.B), data=world.data(), rounds=0)
    assert result.rounds.tolist() == [0, 1]
    W = ref.fine_tuned(world.B, np.zeros(2), world.X, world.y, TUNED[how].fine_tune, 0.1)
    np.testing.assert_allclose(result.final.W[0], W, **TOLERANCE)


def wild(**more):
    """Return a run of three trials of which the second has samples that are far too large."""
    factor = np.array([1.0, 100.0, 1.0])[:, None, None, None]
    X, B, W = factor * normal(3, 5, 6, 4), normal(3, 4, 2, seed=1), normal(3, 5, 2, seed=2)
    data = lf.GivenSamples(X, np.einsum("tnmd,tdk,tnk->tnm", X, B, W))
    algorithm = lf.FedAvg(step_size=0.1, rank=2, init=normal(3, 4, 2, seed=3) / 2, **more)
    return lf.simulate(algorithm, lf.GivenTruth(B=B, W=W), data=data, rounds=25)


@pytest.mark.long
@pytest.mark.parametrize("chunks", ["one", "three"])
@pytest.mark.parametrize("how", [lf.GradientHeads(steps=10), lf.ExactHeads()], ids=["gradient", "exact"])
def test_a_trial_that_diverged_is_not_fine_tuned(how, chunks, monkeypatch):
    without, whole = wild(), wild(fine_tune=how)
    if chunks == "three":  # then every trial of one chunk has diverged
        monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
        assert_same(wild(fine_tune=how), whole)
    result = wild(fine_tune=how)
    assert result.status == without.status == [lf.Status.COMPLETED, lf.Status.DIVERGED, lf.Status.COMPLETED]
    assert result.status_round.tolist() == without.status_round.tolist()
    assert 1 < result.status_round[1] < 25
    assert np.array_equal(result.final.W[1], np.tile(without.final.W[1], (5, 1)))
    assert not np.isclose(result.final.W[[0, 2]], without.final.W[[0, 2]]).all(axis=-1).any()
    assert np.array_equal(result.final.B, without.final.B)
    for name, values in result.metrics.items():
        assert np.array_equal(values[:, :-1], without.metrics[name], equal_nan=True)
        assert np.isnan(values[:, -1]).tolist() == [False, True, False]


def test_a_run_whose_trials_all_diverge_ends_in_the_shapes_of_a_fine_tuned_one():
    algorithm = dataclasses.replace(TUNED["exact"], step_size=50.0)
    result = run(algorithm, rounds=200, trials=2)
    assert result.status == [lf.Status.DIVERGED] * 2
    assert (result.status_round < 200).all()
    assert result.rounds[-1] == 201
    assert result.final.W.shape == (2, 6, 2)
    assert all(np.isfinite(array).all() for array in result.final.arrays().values())
    assert all(np.isnan(values[:, -1]).all() for values in result.metrics.values())
    assert "2 DIVERGED" in result.summary()


def test_fine_tuning_itself_may_diverge():
    result = run(dataclasses.replace(TUNED["gradient"], fine_tune=lf.GradientHeads(step_size=1e300)), trials=2)
    without = run(plain(TUNED["gradient"]), trials=2)
    assert result.status == [lf.Status.DIVERGED] * 2
    assert result.status_round.tolist() == [5, 5]
    assert np.array_equal(result.final.W, np.tile(without.final.W, (1, 6, 1)))
    for name, values in result.metrics.items():
        assert np.array_equal(values[:, :-1], without.metrics[name])
        assert np.isnan(values[:, -1]).all()


def test_dependent_features_at_the_end_are_an_outcome():
    B = np.outer(normal(5), [1.0, 2.0])
    result = run(dataclasses.replace(TUNED["exact"], init=B), rounds=0, trials=2)
    assert result.status == [lf.Status.SINGULAR_HEAD] * 2
    assert result.status_round.tolist() == [1, 1]


@pytest.mark.parametrize("name", FAMILY)
def test_a_file_gives_everything_back(name, tmp_path):
    result = run(FAMILY[name], trials=2)
    loaded = Result.load(result.save(tmp_path / "result.npz"))
    assert_same(loaded, result)
    assert loaded.algorithm == result.algorithm
    assert loaded.summary() == result.summary()
    assert_same(
        lf.simulate(loaded.algorithm, loaded.problem, data=loaded.data, rounds=4, participation=0.5, trials=2, seed=3),
        result,
    )
    assert np.array_equal(loaded.client_risks(), result.client_risks())


def test_the_text_tells_of_fine_tuning_apart_from_the_rounds():
    tuned, without = run(TUNED["exact"]), run(plain(TUNED["exact"]))
    assert "4 trials of 4 rounds and fine-tuning, 3 clients a round" in tuned.summary()
    assert repr(tuned) == "<Result of FedAvg: 4 trials, 4 rounds and fine-tuning>"
    assert "fine-tuning" not in without.summary()
    assert repr(without) == "<Result of FedAvg: 4 trials, 4 rounds>"


@pytest.mark.parametrize("fine_tune", [None, lf.ExactHeads()], ids=["plain", "fine-tuned"])
def test_the_bar_counts_the_rounds(fine_tune, capsys):
    run(lf.FedAvg(step_size=0.1, rank=2, fine_tune=fine_tune), trials=1, progress=True)
    assert "4/4" in capsys.readouterr().err


# --- one row for all clients ---------------------------------------------------------------------------------

STATES = {
    "B, one w": {"B": normal(2, 5, 2), "W": normal(2, 1, 2, seed=1)},
    "one s": {"S": normal(2, 1, 5, seed=2)},
    "B, one w, one s": {"B": normal(2, 5, 2), "W": normal(2, 1, 2, seed=1), "S": normal(2, 1, 5, seed=2)},
    "B, one w, S": {"B": normal(2, 5, 2), "W": normal(2, 1, 2, seed=1), "S": normal(2, 4, 5, seed=2)},
    "B, W, one s": {"B": normal(2, 5, 2), "W": normal(2, 4, 2, seed=1), "S": normal(2, 1, 5, seed=2)},
    "B, W": {"B": normal(2, 5, 2), "W": normal(2, 4, 2, seed=1)},
    "S": {"S": normal(2, 4, 5, seed=2)},
}
TRUTHS = {"B": normal(5, 3, seed=3), "W": normal(4, 3, seed=4), "S": normal(4, 5, seed=5), "Phi": normal(4, 5, seed=6)}


@each("n", [1, 4])
@each("covariance", [None, 2.0, np.diag([1.0, 2.0, 0.5, 3.0, 0.0]) + 0.1], ids=["I", "2 I", "full"])
@each("parts", ["B, W", "S", "B, W, S", "Phi, B"])
@each("form", STATES)
def test_metrics_and_client_risks_of_shared_rows(form, parts, covariance, n):
    state = lf.State(**{name: array if name == "B" else array[:, :n] for name, array in STATES[form].items()})
    arrays = {name: TRUTHS[name] if name == "B" else TRUTHS[name][:n] for name in parts.split(", ")}
    problem = lf.GivenTruth(**arrays, noise_std=0.3, design=lf.Gaussian(covariance=covariance))
    result = lf.simulate(Held(state=state), problem, data=lf.FreshSamples(2), rounds=0, trials=2)
    matrix = np.eye(5) * (1.0 if covariance is None else covariance) if np.ndim(covariance) == 0 else covariance
    risks = result.client_risks()
    assert risks.shape == (2, n)
    for t in range(2):
        parts_of = {name: array[t] for name, array in state.arrays().items()}
        Theta = np.zeros((n, 5))
        for i in range(n):
            if "W" in parts_of:
                Theta[i] += parts_of["B"] @ parts_of["W"][min(i, len(parts_of["W"]) - 1)]
            if "S" in parts_of:
                Theta[i] += parts_of["S"][min(i, len(parts_of["S"]) - 1)]
        Phi = arrays["Phi"] if "Phi" in arrays else np.zeros((n, 5))
        if "W" in arrays:
            Phi = Phi + arrays["W"] @ arrays["B"].T
        if "S" in arrays:
            Phi = Phi + arrays["S"]
        wanted = {
            "parameter_error": ref.parameter_error(Theta, Phi),
            "mean_client_error": ref.mean_client_error(Theta, Phi),
            "risk": ref.risk(Theta, Phi, matrix, 0.3),
        }
        for name, value in wanted.items():
            np.testing.assert_allclose(result.metrics[name][t, 0], value, **TOLERANCE)
        np.testing.assert_allclose(risks[t], ref.client_risks(Theta, Phi, matrix, 0.3), **TOLERANCE)
        shown = state.predictors()[t]
        np.testing.assert_allclose(np.broadcast_to(shown, (n, 5)), Theta, **TOLERANCE)


def test_a_rate_that_overflows_is_infinite():
    A = np.stack([np.eye(3), 1e6 * np.eye(3)])[:, None].repeat(2, axis=1)
    gentle, steep = lf.theory.fedavg_rate(A, step_size=1e-3, local_steps=500)
    assert gentle == pytest.approx(0.999**500, rel=1e-12)
    assert np.isposinf(steep)
    mixed = np.concatenate([A[1], A[0]])
    assert np.isposinf(lf.theory.fedavg_rate(mixed, step_size=1e-3, local_steps=500))
    alone = lf.theory.fedavg_rate(mixed, step_size=1e-3, local_steps=500, weights=[0, 0, 1, 1])
    assert alone == pytest.approx(0.999**500, rel=1e-12)  # clients of weight 0 do not count
