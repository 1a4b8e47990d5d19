"""The averaging family: its loops, its fixed points, its reductions; bad input."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.streams import Stream, TrialRandom, generators
from tests import references as ref
from tests.helpers import assert_one_line, covering, each, normal
from tests.worlds import draw_participants, draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
CLUSTERS = [0, 1, 0, 2, 1]
SHARES = [0.3, 1.0, 0.5, 0.7, 0.2]
OWN = {
    "FedAvg": [{}],
    "FedProx": [{"mu": 0.4}],
    "SCAFFOLD": [{}, {"controls": "gradient"}],
    "FedVARP": [{}],
    "ClusterFedVARP": [{"clusters": 2}, {"clusters": CLUSTERS}],
    "FedRolex": [{"model_share": 0.5}, {"model_share": SHARES}, {"model_share": SHARES, "aggregation": "zero-filled"}],
    "FedSCAVAR": [{"clusters": CLUSTERS, "model_share": SHARES, "mu": 0.3}, {"clusters": 2, "model_share": 0.6}],
}
LOCAL = [{"local_steps": 1}, {"local_steps": 3, "server_step_size": 0.7}, {"local_epochs": 2, "batch_size": 3}]
COUNTS = {"equal": [6] * 5, "unequal": [1, 9, 4, 2, 7]}
COMBINATIONS = [
    (kind, own, local, rank, counts, weights, p)
    for kind, options in OWN.items()
    for own, local, rank, (counts, weights), p in itertools.product(
        options, LOCAL, (None, 2), [("equal", "uniform"), ("unequal", "uniform"), ("unequal", "samples")], (3, 5)
    )
]


def pairs(index):
    """Yield every pair of what a combination has, of each algorithm and its options."""
    kind, *settings = COMBINATIONS[index]
    for one, other in itertools.combinations(enumerate(map(str, settings)), 2):
        yield kind, one, other


SETTINGS = [COMBINATIONS[index] for (index,) in covering([(i,) for i in range(len(COMBINATIONS))], pairs)]


def run(kind, world, participants, *, data=None, rank=None, **options):
    """Return the result of one trial of an algorithm of the family."""
    more = {} if rank is None else {"rank": rank, "init": world.B}
    algorithm = getattr(lf, kind)(**more, **options)
    data = world.data() if data is None else data
    return lf.simulate(
        algorithm, world.problem(), data=data, rounds=len(participants), participation=np.sort(participants)
    )


def vector(final):
    """Return the shared parameters of a state of one trial."""
    return final.S[0, 0] if final.B is None else np.concatenate([final.B[0].ravel(), final.W[0, 0]])


@pytest.mark.parametrize("kind", OWN)
def test_the_batched_rounds_are_the_loops(kind):
    for _, own, local, rank, counts, weights, p in (one for one in SETTINGS if one[0] == kind):
        world = draw_world(COUNTS[counts], 4, 2, noise=0.2)
        participants = np.sort(draw_participants(5, p, 7))
        options = {"step_size": 0.1, "weights": weights, **own, **local}
        found = run(kind, world, participants, rank=rank, **options).final
        begin = np.zeros(4) if rank is None else np.concatenate([world.B.ravel(), np.zeros(2)])
        loop = ref.Family(kind, begin, world.X, world.y, rank=rank or 0, **options)
        rng = TrialRandom(generators(0, Stream.ALGORITHM, range(1)))
        for number, active in enumerate(participants, 1):
            orders = rng.permutations((p,), max(COUNTS[counts]))[0] if "local_epochs" in local else None
            loop.round(number, active, orders)
        told = f"{own}, {local}, rank {rank}, {counts}, {weights}, p = {p}"
        np.testing.assert_allclose(vector(found), loop.vector, **TOLERANCE, err_msg=told)
        if hasattr(found, "controls"):
            np.testing.assert_allclose(found.controls[0], loop.controls, **TOLERANCE, err_msg=told)
            np.testing.assert_allclose(found.control[0, 0], loop.c, **TOLERANCE, err_msg=told)
        if hasattr(found, "changes"):
            memory = [loop.memory[c] for c in sorted(loop.memory)]
            np.testing.assert_allclose(found.changes[0], memory, **TOLERANCE, err_msg=told)


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


def everybody(rounds):
    return np.tile(np.arange(6), (rounds, 1))


WEIGHTS = ["uniform", "samples"]
CORRECTED = [("SCAFFOLD", {}), ("SCAFFOLD", {"controls": "gradient"}), ("FedSCAVAR", {"clusters": 6, "mu": 0.4})]


@pytest.mark.long
@each("kind, own", [("FedAvg", {}), ("FedProx", {"mu": 0.5})])
@each("weights", WEIGHTS)
def test_the_iteration_under_full_participation_is_the_matrix_and_ends_at_the_fixed_point(world, kind, own, weights):
    A, _, _ = moments(world)
    steps = {**STEPS, "server_step_size": 0.8}
    matrix = lf.theory.fedavg_iteration_matrix(A, weights=weighting(world, weights), **own, **steps)
    end = fixed_point(world, weights, **own, **STEPS)
    path = [vector(run(kind, world, everybody(r), weights=weights, **own, **steps).final) for r in (3, 4)]
    np.testing.assert_allclose(path[1] - end, matrix @ (path[0] - end), rtol=1e-11, atol=1e-13)
    far = vector(run(kind, world, everybody(400), weights=weights, **own, **steps).final)
    np.testing.assert_allclose(far, end, rtol=0, atol=1e-13)
    assert np.abs(end - global_least_squares(world, weights)).max() > 1e-3  # the drift


def test_fedprox_with_many_steps_solves_the_proximal_problem(world):
    A, b, _ = moments(world)
    Q = np.linalg.inv(A + 0.5 * np.eye(3))
    exact = np.linalg.solve((Q @ A).sum(axis=0), (Q @ b[..., None]).sum(axis=0))[:, 0]
    np.testing.assert_allclose(
        fixed_point(world, "uniform", mu=0.5, step_size=0.2, local_steps=2000), exact, atol=1e-13
    )


@pytest.mark.long
@each("weights", WEIGHTS)
@each(
    "kind, own", [("SCAFFOLD", {}), ("SCAFFOLD", {"controls": "gradient"}), ("FedSCAVAR", {"clusters": 6, "mu": 0.4})]
)
@each("steps", [1, 7])
def test_scaffold_ends_at_the_global_least_squares_whoever_takes_part(weights, kind, own, steps):
    world = draw_world([4, 12, 7, 30, 5, 9], 3, 2, noise=0.3, seed=3)
    options = {"step_size": 0.5 / (steps + 1), "local_steps": steps, "weights": weights}
    found = run(kind, world, draw_participants(6, 3, 500), **options, **own).final
    np.testing.assert_allclose(vector(found), global_least_squares(world, weights), rtol=0, atol=1e-11)


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
@each("weights", WEIGHTS)
def test_fedvarp_ends_where_fedavg_does_with_everybody_and_fedavg_wanders(world, weights):
    participants = draw_participants(6, 3, 600)
    end = fixed_point(world, weights, **STEPS)
    found = vector(run("FedVARP", world, participants, weights=weights, **STEPS).final)
    np.testing.assert_allclose(found, end, rtol=0, atol=1e-12)
    assert np.abs(vector(run("FedAvg", world, participants, weights=weights, **STEPS).final) - end).max() > 1e-3


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

ALL = "all"
REDUCTIONS = {
    "FedProx, mu = 0": (("FedProx", {"mu": 0.0}), ("FedAvg", {}), 3),
    "FedVARP, everybody": (("FedVARP", {}), ("FedAvg", {}), 6),
    "ClusterFedVARP, everybody": (("ClusterFedVARP", {"clusters": 2}), ("FedAvg", {}), 6),
    "ClusterFedVARP, n clusters": (("ClusterFedVARP", {"clusters": 6}), ("FedVARP", {}), 3),
    "FedRolex, the whole model": (("FedRolex", {"model_share": 1.0}), ("FedAvg", {}), 3),
    "FedRolex, zero-filled": (("FedRolex", {"model_share": 1.0, "aggregation": "zero-filled"}), ("FedAvg", {}), 3),
    "FedSCAVAR, everybody": (("FedSCAVAR", {"clusters": 2}), ("SCAFFOLD", {}), 6),
}


@pytest.mark.long
@each("local", LOCAL)
@each("rank", [None, 2])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, local, rank):
    (kind, own), (other, others), p = REDUCTIONS[name]
    world = draw_world([9] * 6, 4, 2, noise=0.3)
    participants = draw_participants(6, p, 12)
    options = {"step_size": 0.1, "rank": rank, **local}
    one = run(kind, world, participants, **own, **options).final
    two = run(other, world, participants, **others, **options).final
    np.testing.assert_allclose(vector(one), vector(two), rtol=1e-13, atol=1e-14)


def test_remembering_everybody_is_averaging_under_unequal_counts_too():
    world = draw_world([3, 9, 5, 14, 6, 8], 4, 2, noise=0.3)
    one = run("FedVARP", world, everybody(9), step_size=0.1, weights="samples").final
    two = run("FedAvg", world, everybody(9), step_size=0.1, weights="samples").final
    np.testing.assert_allclose(vector(one), vector(two), rtol=1e-13, atol=1e-14)


# --- invariants ----------------------------------------------------------------------------------------------

PER_CLIENT = {"clusters": CLUSTERS, "model_share": SHARES}
INVARIANT = {
    "FedProx": {"mu": 0.4},
    "SCAFFOLD": {},
    "FedVARP": {},
    "ClusterFedVARP": {"clusters": CLUSTERS},
    "FedRolex": {"model_share": SHARES},
    "FedSCAVAR": {**PER_CLIENT, "mu": 0.3},
}
OWN_ROWS = ("controls", "shares")
"""Arrays of a state with a row for each client; ``changes`` has one only without clusters."""


def rows_of(kind):
    return (*OWN_ROWS, "changes") if kind == "FedVARP" else OWN_ROWS


@pytest.mark.long
@each("local", LOCAL)
@each("rank", [None, 2])
@pytest.mark.parametrize("kind", INVARIANT)
def test_a_trial_is_the_same_alone_and_among_others(kind, rank, local):
    problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.2)
    algorithm = getattr(lf, kind)(step_size=0.1, rank=rank, **INVARIANT[kind], **local)
    run = {"data": lf.FixedSamples(7), "rounds": 6, "participation": 0.6, "seed": 3}
    among, again, other = (
        lf.simulate(algorithm, problem, trials=trials, **{**run, "seed": seed})
        for trials, seed in ((3, 3), (1, 3), (1, 4))
    )
    for name, array in again.final.arrays().items():
        assert np.array_equal(array[0], among.final.arrays()[name][0])
        assert name == "shares" or not np.array_equal(array, other.final.arrays()[name])


@each("weights", WEIGHTS)
@each("rank", [None, 2])
@each("kind", INVARIANT)
def test_equivariance_to_client_permutation(kind, rank, weights):
    world = draw_world([1, 9, 4, 2, 6], 4, 2, noise=0.1)
    order, participants = np.array([3, 0, 4, 1, 2]), draw_participants(5, 3, 6)
    moved = replace(world, X=[world.X[i] for i in order], y=[world.y[i] for i in order], W_star=world.W_star[order])
    options = {"step_size": 0.1, "local_steps": 2, "weights": weights, "rank": rank}
    told = {key: [value[i] for i in order] if key in PER_CLIENT else value for key, value in INVARIANT[kind].items()}
    one = run(kind, world, participants, **options, **INVARIANT[kind]).final
    two = run(kind, moved, np.argsort(order)[participants], **options, **told).final
    for name, array in one.arrays().items():
        wanted = array[:, order] if name in rows_of(kind) else array
        np.testing.assert_allclose(two.arrays()[name], wanted, **TOLERANCE)


@each("kind", ["FedProx", "SCAFFOLD", "FedVARP", "ClusterFedVARP"])
def test_equivariance_to_rotation(kind):
    """Of one layer; windows of coordinates turn with nothing."""
    world = draw_world([1, 9, 4, 2, 6], 4, 2, noise=0.1)
    Q = ref.qr_positive(np.random.default_rng(1).standard_normal((4, 4)))[0]
    turned = replace(world, X=[X_i @ Q.T for X_i in world.X], B_star=Q @ world.B_star)
    options = {"step_size": 0.1, "local_steps": 2, **INVARIANT[kind]}
    one, two = (run(kind, each_, draw_participants(5, 3, 6), **options).final for each_ in (world, turned))
    for name, array in one.arrays().items():
        wanted = array if name == "shares" else array @ Q.T
        np.testing.assert_allclose(two.arrays()[name], wanted, **TOLERANCE)


@each("kind", ["SCAFFOLD", "FedVARP", "FedSCAVAR"])
def test_those_who_do_not_take_part_remember_what_they_did(kind):
    world = draw_world([6] * 5, 4, 2, noise=0.1)
    participants = np.array([[0, 1, 2], [1, 2, 3]])
    options = {"step_size": 0.1, "local_steps": 2, **INVARIANT[kind]}
    old, new = (run(kind, world, participants[:r], **options).final for r in (1, 2))
    name = "changes" if kind == "FedVARP" else "controls"
    for client, moves in enumerate([False, True, True, True, False]):
        same = np.array_equal(old.arrays()[name][:, client], new.arrays()[name][:, client])
        assert same != moves


# --- engines, memory, input ----------------------------------------------------------------------------------

SMALL = {
    "FedProx": {"mu": 0.1},
    "SCAFFOLD": {},
    "FedVARP": {},
    "ClusterFedVARP": {"clusters": 3},
    "FedRolex": {"model_share": 0.5},
    "FedSCAVAR": {"clusters": 3, "model_share": 0.5, "mu": 0.1},
}


@each("rank", [None, 2])
@pytest.mark.parametrize("kind", SMALL)
def test_compressed_samples_serve_full_gradients(kind, rank):
    problem = lf.SharedRepresentation(n_clients=6, dim=4, rank=2, noise_std=0.3)
    algorithm = getattr(lf, kind)(step_size=0.1, local_steps=2, rank=rank, **SMALL[kind])
    settings = {"rounds": 5, "participation": 0.5, "trials": 2, "metrics": ["risk"]}
    one, two = (
        lf.simulate(algorithm, problem, data=lf.FixedSamples(40), engine=name, **settings)
        for name in ("explicit", "compressed")
    )
    np.testing.assert_allclose(two.final.predictors(), one.final.predictors(), rtol=1e-10, atol=1e-12)
    assert lf.simulate(algorithm, problem, data=lf.FreshSamples(4000), **settings).engine == "compressed"


def test_stored_vectors_are_counted():
    """Old and new ones; of clusters also a copy for each client."""
    world = draw_world([4] * 7, 3, 2)
    for kind, own in {"FedAvg": {}, **SMALL}.items():
        algorithm = getattr(lf, kind)(step_size=0.1, **own)
        start = lf.simulate(algorithm, data=world.data(), rounds=0).final.arrays()
        rows = sum(start[name].shape[1] for name in ("changes", "controls", "control") if name in start)
        assert algorithm.memory(7) == 2 * rows + 7 * ("clusters" in own), kind


def test_minibatches_need_the_samples_themselves():
    problem = lf.SharedRepresentation(n_clients=6, dim=4, rank=2)
    algorithm = lf.SCAFFOLD(step_size=0.1, local_epochs=2, batch_size=7)
    assert lf.simulate(algorithm, problem, data=lf.FixedSamples(40), rounds=2).engine == "explicit"


MISTAKES = {
    "epochs without a size": (lambda: lf.FedAvg(step_size=0.1, local_epochs=2), ["local_epochs", "batch_size"]),
    "a size without epochs": (lambda: lf.SCAFFOLD(step_size=0.1, batch_size=2), ["local_epochs", "batch_size"]),
    "both kinds of steps": (
        lambda: lf.FedVARP(step_size=0.1, local_steps=3, local_epochs=2, batch_size=4),
        ["local_steps = 3", "local_epochs"],
    ),
    "negative mu": (lambda: lf.FedProx(step_size=0.1, mu=-1), ["mu", "-1"]),
    "no share": (lambda: lf.FedRolex(step_size=0.1, model_share=0.0), ["model_share", "0"]),
    "a share above 1": (lambda: lf.FedRolex(step_size=0.1, model_share=[0.5, 1.5]), ["model_share[1]", "1.5"]),
    "a share of 0": (lambda: lf.FedRolex(step_size=0.1, model_share=[0.5, 0.0]), ["model_share[1]", "0"]),
    "no such aggregation": (
        lambda: lf.FedRolex(step_size=0.1, aggregation="publishd"),
        ["aggregation", "did you mean 'published'?"],
    ),
    "no such controls": (lambda: lf.SCAFFOLD(step_size=0.1, controls="I"), ["controls", "'change'", "'gradient'"]),
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
def test_a_mistake_is_one_line(name):
    call, fragments = MISTAKES[name]
    assert_one_line(call, fragments)


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_the_problem_is_one_line(name):
    algorithm, fragments = UNFIT[name]
    problem = lf.SharedRepresentation(n_clients=6, dim=4, rank=2)
    assert_one_line(lambda: lf.simulate(algorithm, problem, data=lf.FixedSamples(5), rounds=1), fragments)


def test_as_many_clusters_as_clients_fit():
    lf.ClusterFedVARP(step_size=0.1, clusters=6).check(n_clients=6, dim=4)


def test_windows_roll_over_the_units_and_round_shares_as_decimals():
    assert ref.window(3, 0.5, 4) == {2, 3}
    assert ref.window(4, 0.5, 4) == {3, 0}
    assert len(ref.window(1, 0.29, 100)) == 29
    problem = lf.SharedRepresentation(n_clients=3, dim=100, rank=2)
    after = [
        lf.simulate(lf.FedRolex(step_size=0.1, model_share=0.29), problem, data=lf.FixedSamples(5), rounds=r).final.S
        for r in (1, 2)
    ]
    assert np.flatnonzero(after[0]).tolist() == list(range(29))
    assert np.flatnonzero(after[1]).tolist() == list(range(30))


@each("name", OWN)
@pytest.mark.parametrize("participants", [1, 4])
def test_a_trial_is_that_of_a_run_of_its_own_bit_for_bit(name, participants):
    X, y = normal(3, 5, 4, 3), normal(3, 5, 4, seed=1)
    for options in OWN[name]:
        algorithm = getattr(lf, name)(step_size=0.1, local_steps=2, **options)
        run = {"rounds": 8, "participation": participants}
        together = lf.simulate(algorithm, data=lf.GivenSamples(X, y), **run)
        alone = lf.simulate(algorithm, data=lf.GivenSamples(X[0], y[0]), trials=1, **run)
        for key, array in alone.final.arrays().items():
            np.testing.assert_array_equal(together.final.arrays()[key][:1], array)
