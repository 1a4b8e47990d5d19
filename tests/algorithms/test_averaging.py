"""The averaging family: where runs end, and options with a value for each client."""

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.averaging.base import Averaging
from linfed.data.explicit import ExplicitBatch
from tests import references as ref
from tests.helpers import assert_one_line, normal
from tests.loops import assert_rounds_are_the_loop
from tests.worlds import LEARNERS, Learner, draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
CLUSTERS = [0, 1, 0, 2, 1]
SHARES = [0.3, 1.0, 0.5, 0.7, 0.2]
FOR_EACH_CLIENT = {
    "ClusterFedVARP": {"clusters": CLUSTERS},
    "FedRolex": {"model_share": SHARES},
    "FedRolex, zero-filled": {"model_share": SHARES, "aggregation": "zero-filled"},
    "FedSCAVAR": {"clusters": CLUSTERS, "model_share": SHARES, "mu": 0.3},
    "FedSCAVAR, minibatches": {"clusters": CLUSTERS, "model_share": SHARES, "local_epochs": 2, "batch_size": 3},
}


@pytest.mark.parametrize("name", FOR_EACH_CLIENT)
def test_clusters_and_shares_of_each_client_go_through_the_loop(name):
    kind = getattr(lf, name.split(",")[0])
    world = draw_world([1, 9, 4, 2, 7], 4, 2, noise=0.2)
    run = {"data": world.data(), "n_rounds": 4, "participation": draw_participants(5, 3, 4)}
    for more in ({"rank": None}, {"weights": "samples"}):
        learner = Learner(kind, {**FOR_EACH_CLIENT[name], **more}, sent=0)
        assert assert_rounds_are_the_loop(learner, init=world.B, worlds=[world], **run) == 4


def run(kind, world, participants, *, rank=None, **options):
    """Return the result of one trial of an algorithm of the family."""
    more = {} if rank is None else {"rank": rank, "init": world.B}
    algorithm = getattr(lf, kind)(**more, **options)
    return lf.simulate(
        algorithm, world.problem(), data=world.data(), n_rounds=len(participants), participation=np.sort(participants)
    )


def vector(final):
    """Return the shared parameters of a state of one trial."""
    return final.S[0, 0] if final.B is None else np.concatenate([final.B[0].ravel(), final.W[0, 0]])


# --- where they go, for one layer and full gradients ---------------------------------------------------------

STEPS = {"step_size": 0.2, "local_steps": 5}


@pytest.fixture(scope="module", params=["equal", "unequal"])
def world(request):
    return draw_world([9] * 6 if request.param == "equal" else [4, 12, 7, 30, 5, 9], 3, 2, noise=0.3, seed=3)


def moments(world):
    data = world.data()
    A, b = data.normal_equations()
    return A, b, np.array([float(len(y)) for y in world.y])


def weighting(world, weights):
    counts = moments(world)[2]
    return counts / counts.sum() if weights == "samples" else np.full(len(counts), 1 / len(counts))


def global_least_squares(world, weights):
    A, b, _ = moments(world)
    pi = weighting(world, weights)
    return np.linalg.solve(np.einsum("i,ijk->jk", pi, A), pi @ b)


def fixed_point(world, weights, mu=0.0, **steps):
    A, b, _ = moments(world)
    return lf.theory.fedavg_fixed_point(A, b, mu=mu, weights=weighting(world, weights), **steps)


def everybody(n_rounds):
    return np.tile(np.arange(6), (n_rounds, 1))


def test_fedprox_with_many_steps_solves_the_proximal_problem(world):
    A, b, _ = moments(world)
    Q = np.linalg.inv(A + 0.5 * np.eye(3))
    exact = np.linalg.solve((Q @ A).sum(axis=0), (Q @ b[..., None]).sum(axis=0))[:, 0]
    np.testing.assert_allclose(
        fixed_point(world, "uniform", mu=0.5, step_size=0.2, local_steps=2000), exact, atol=1e-13
    )


@pytest.mark.long
def test_scaffold_with_the_printed_weights_ends_elsewhere():
    """The source weighs the update of c by the participants' shares: unequal counts then lead to another point."""
    world = draw_world([4, 12, 7, 30, 5, 9], 3, 2, noise=0.3, seed=3)
    ends = {}
    for printed in ("population", "printed"):
        loop = ref.Family(
            "SCAFFOLD", np.zeros(3), world.X, world.y, step_size=0.1, local_steps=5, weights="samples",
            control_weights=printed,
        )  # fmt: skip
        for number, active in enumerate(np.sort(draw_participants(6, 3, 600)), 1):
            loop.round(number, active)
        ends[printed] = np.abs(loop.vector - global_least_squares(world, "samples")).max()
    assert ends["population"] < 1e-12
    assert ends["printed"] > 1e-2


@pytest.mark.long
def test_clusters_settle_only_where_their_clients_move_alike():
    """Two clients with the same samples in each cluster settle as FedVARP does; with other samples they wander."""
    half = draw_world([9] * 3, 3, 2, noise=0.3, seed=3)
    twice = draw_world([9] * 6, 3, 2, noise=0.3, seed=3)
    twice.X[:], twice.y[:] = half.X + half.X, half.y + half.y
    participants = draw_participants(6, 3, 600)
    end = fixed_point(twice, "uniform", **STEPS)
    same, mixed = ([0, 1, 2, 0, 1, 2], [0, 0, 1, 1, 2, 2])
    found = {
        name: np.abs(vector(run("ClusterFedVARP", twice, participants, clusters=c, **STEPS).final) - end).max()
        for name, c in (("same", same), ("mixed", mixed))
    }
    assert found["same"] < 1e-12
    assert found["mixed"] > 1e-3


# --- reductions ----------------------------------------------------------------------------------------------


def final(world, algorithm, n_rounds, participation=1.0, **more):
    return lf.simulate(algorithm, data=world.data(), n_rounds=n_rounds, participation=participation, **more).final


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


@pytest.mark.parametrize("kind", [lf.FedAvg, lf.PooledLeastSquares])
def test_weights_by_equal_counts_are_uniform(kind):
    more = {"step_size": 0.1, "local_steps": 3} if kind is lf.FedAvg else {}
    for m, n, p in ((7, 5, 3), (3, 6, 6)):
        world = draw_world([m] * n, 4, 2, noise=0.5)
        active = draw_participants(n, p, 8)
        one, other = (final(world, kind(weights=each, **more), 8, active) for each in ("uniform", "samples"))
        assert np.array_equal(one.S, other.S)


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


@pytest.mark.parametrize("rank", [None, 2])
def test_the_common_truth_of_all_clients_is_a_fixed_point_of_fedavg(rank):
    B, w = ref.qr_positive(normal(5, 2))[0], normal(2, seed=1)
    X = normal(1, 4, 3, 5, seed=2)
    batch = ExplicitBatch(X, X @ B @ w, active=np.arange(4)[None])
    state = lf.State(S=(B @ w)[None, None]) if rank is None else lf.State(B=B[None], W=w[None, None])
    for _ in range(5):
        state = lf.FedAvg(step_size=0.1, local_steps=3, rank=rank).step(state, batch, None)
    np.testing.assert_allclose(state.predictors()[0, 0], B @ w, rtol=0, atol=1e-14)


def test_remembering_everybody_is_averaging_under_unequal_counts_too():
    world = draw_world([3, 9, 5, 14, 6, 8], 4, 2, noise=0.3)
    one = run("FedVARP", world, everybody(9), step_size=0.1, weights="samples").final
    two = run("FedAvg", world, everybody(9), step_size=0.1, weights="samples").final
    np.testing.assert_allclose(vector(one), vector(two), rtol=1e-13, atol=1e-14)


# --- engines, memory, input ----------------------------------------------------------------------------------


def test_stored_vectors_are_counted():
    """Old and new ones; of clusters also a copy for each client."""
    world = draw_world([4] * 7, 3, 2)
    for learner in LEARNERS.values():
        if not issubclass(learner.kind, Averaging):
            continue
        algorithm = learner.make()
        start = lf.simulate(algorithm, data=world.data(), n_rounds=0).final.arrays()
        rows = sum(start[name].shape[1] for name in ("changes", "controls", "control") if name in start)
        assert algorithm.memory(7) == 2 * rows + 7 * ("clusters" in learner.options), learner


MISTAKES = {
    "epochs without a size": (lambda: lf.FedAvg(step_size=0.1, local_epochs=2), ["local_epochs", "batch_size"]),
    "a size without epochs": (lambda: lf.SCAFFOLD(step_size=0.1, batch_size=2), ["local_epochs", "batch_size"]),
    "both kinds of steps": (
        lambda: lf.FedVARP(step_size=0.1, local_steps=3, local_epochs=2, batch_size=4),
        ["local_steps = 3", "local_epochs"],
    ),
    "no share": (lambda: lf.FedRolex(step_size=0.1, model_share=0.0), ["model_share", "0"]),
    "a share above 1": (lambda: lf.FedRolex(step_size=0.1, model_share=[0.5, 1.5]), ["model_share[1]", "1.5"]),
    "a share of 0": (lambda: lf.FedRolex(step_size=0.1, model_share=[0.5, 0.0]), ["model_share[1]", "0"]),
    "a gap": (lambda: lf.ClusterFedVARP(step_size=0.1, clusters=[0, 2, 0]), ["clusters", "without gaps"]),
    "a negative cluster": (
        lambda: lf.ClusterFedVARP(step_size=0.1, clusters=[-1, 0]),
        ["clusters[0] = -1", "at least 0"],
    ),
    "half a cluster": (lambda: lf.ClusterFedVARP(step_size=0.1, clusters=1.5), ["clusters", "1.5"]),
}
UNFIT = {
    "more clusters than clients": (lf.ClusterFedVARP(step_size=0.1, clusters=7), ["clusters = 7", "n_clients = 6"]),
    "clusters of others": (lf.ClusterFedVARP(step_size=0.1, clusters=[0, 1]), ["2 entries", "6 clients"]),
    "clusters of more": (lf.ClusterFedVARP(step_size=0.1, clusters=[0, 1] * 4), ["8 entries", "6 clients"]),
    "shares of more": (lf.FedRolex(step_size=0.1, model_share=[0.5] * 7), ["7 values", "6 clients"]),
    "shares of others": (lf.FedRolex(step_size=0.1, model_share=[0.5, 0.5]), ["2 values", "6 clients"]),
    "both, of the last": (lf.FedSCAVAR(step_size=0.1, clusters=3, model_share=[0.5]), ["1 values", "6 clients"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_invalid_option_is_named(name):
    assert_one_line(*MISTAKES[name])


@pytest.mark.parametrize("name", UNFIT)
def test_an_option_that_does_not_fit_the_problem_is_named(name):
    algorithm, fragments = UNFIT[name]
    problem = lf.SharedRepresentation(n_clients=6, dim=4, rank=2)
    assert_one_line(lambda: lf.simulate(algorithm, problem, data=lf.FixedSamples(5), n_rounds=1), fragments)


def test_windows_roll_over_the_units_and_round_shares_as_decimals():
    assert ref.window(3, 0.5, 4) == {2, 3}
    assert ref.window(4, 0.5, 4) == {3, 0}
    assert len(ref.window(1, 0.29, 100)) == 29
    problem = lf.SharedRepresentation(n_clients=3, dim=100, rank=2)
    after = [
        lf.simulate(lf.FedRolex(step_size=0.1, model_share=0.29), problem, data=lf.FixedSamples(5), n_rounds=r).final.S
        for r in (1, 2)
    ]
    assert np.flatnonzero(after[0]).tolist() == list(range(29))
    assert np.flatnonzero(after[1]).tolist() == list(range(30))
