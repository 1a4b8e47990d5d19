"""Second moments of the averaging family when some clients take part: against all sets of participants, and runs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse.linalg import eigs

import linfed as lf
from linfed.theory import mean_square
from linfed.theory.averaging import seen_directions
from linfed.theory.drawn_clients import drawn_moments
from tests.helpers import assert_one_line
from tests.worlds import draw_world

N, D = 5, 2
STEPS = {"step_size": 0.3, "local_steps": 3, "server_step_size": 1.2}
CLUSTERS = (0, 1, 0, 0, 1)
EQUAL, UNEQUAL = [6] * N, [4, 9, 6, 12, 5]
CASES = {
    "FedAvg": (lf.FedAvg(**STEPS), EQUAL),
    "FedAvg, samples": (lf.FedAvg(weights="samples", **STEPS), UNEQUAL),
    "FedProx": (lf.FedProx(mu=0.6, **STEPS), EQUAL),
    "FedVARP": (lf.FedVARP(**STEPS), EQUAL),
    "FedVARP, samples": (lf.FedVARP(weights="samples", **STEPS), UNEQUAL),
    "SCAFFOLD": (lf.SCAFFOLD(**STEPS), EQUAL),
    "SCAFFOLD, samples": (lf.SCAFFOLD(weights="samples", **STEPS), UNEQUAL),
    "SCAFFOLD, K = 1": (lf.SCAFFOLD(**STEPS | {"local_steps": 1}), EQUAL),
    "SCAFFOLD, gradient": (lf.SCAFFOLD(controls="gradient", **STEPS), EQUAL),
    "SCAFFOLD, gradient, samples": (lf.SCAFFOLD(controls="gradient", weights="samples", **STEPS), UNEQUAL),
    "ClusterFedVARP": (lf.ClusterFedVARP(clusters=CLUSTERS, **STEPS), EQUAL),
    "ClusterFedVARP, samples": (lf.ClusterFedVARP(clusters=CLUSTERS, weights="samples", **STEPS), UNEQUAL),
    "ClusterFedVARP, C = n": (lf.ClusterFedVARP(clusters=N, **STEPS), EQUAL),
    "FedSCAVAR": (lf.FedSCAVAR(clusters=CLUSTERS, mu=0.4, **STEPS), EQUAL),
    "FedSCAVAR, samples": (lf.FedSCAVAR(clusters=CLUSTERS, weights="samples", **STEPS), UNEQUAL),
    "FedSCAVAR, C = n": (lf.FedSCAVAR(clusters=N, **STEPS), EQUAL),
}


def parts(state):
    """Return the blocks of a state, theta first: (blocks, d)."""
    kept = [getattr(state, name)[0] for name in ("controls", "changes") if hasattr(state, name)]
    return np.concatenate([state.S[0], *kept])


def enumerated(name, p, seed=3):
    """Return the algorithm, A, b, weights, and matrices (sets, N, N) and offsets (sets, N) of a round, run as it is."""
    algorithm, counts = CASES[name]
    world = draw_world(counts, D, 2, noise=0.4, seed=seed)
    problem, data = world.problem(), world.data()
    first = lf.simulate(algorithm, problem, data=data, n_rounds=0).final
    blocks = len(parts(first))

    def state(vector):
        rows = vector.reshape(blocks, D)
        arrays = {"S": rows[None, :1]}
        if hasattr(first, "controls"):
            arrays["controls"] = rows[None, 1 : N + 1]
            arrays["control"] = first.mean(rows[None, 1 : N + 1])
        if hasattr(first, "changes"):
            arrays["changes"] = rows[None, blocks - first.changes.shape[1] :]
        return first.update(**arrays)

    matrices, offsets = [], []
    for active in itertools.combinations(range(N), p):
        steps = lf.iterate(algorithm, problem, data=data, n_rounds=1, participation=np.array([active]))
        next(steps)
        batch = next(steps).batch
        points = np.vstack([np.zeros(blocks * D), np.eye(blocks * D)])
        after = np.array([parts(algorithm.step(state(point), batch, None)).ravel() for point in points])
        matrices.append((after[1:] - after[0]).T)
        offsets.append(after[0])
    A, b = data.normal_equations()
    weights = np.array(counts, float) if algorithm.weights == "samples" else None
    return algorithm, A, b, weights, np.array(matrices), np.array(offsets)


def closed_set(moments, X, controlled):
    """Return of all second moments X (N, N) those that `moments` holds, control variates in its unit."""
    unit = np.ones(len(X) // D)
    unit[1 : N + 1] = moments.unit if controlled else 1.0
    X = X / np.repeat(unit, D) / np.repeat(unit, D)[:, None]
    if isinstance(moments, mean_square.FullMoments):
        return X.ravel()
    c, n = moments._width, N
    blocks = X.reshape(len(X) // D, D, len(X) // D, D).transpose(0, 2, 1, 3)
    if c == 0:
        return blocks[0, 0].ravel()
    own = np.stack([blocks[1 + i, 1 + i] for i in range(n)])
    # E (theta, h) c_i' with h = mean_j H_j c_j
    h = np.einsum("jqd,jide->iqe", moments._H, blocks[1:, 1:]) / n
    return np.concatenate([blocks[0, 0].ravel(), np.concatenate([blocks[0, 1:], h], axis=1).ravel(), own.ravel()])


@pytest.mark.parametrize("p", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CASES)
def test_second_moments_are_those_over_all_sets_of_participants(name, p):
    """One round of them, and the rate."""
    algorithm, A, _, weights, M, _ = enumerated(name, p)
    moments = mean_square.second_moments(algorithm, A, algorithm.step_size, p, weights)
    root = np.random.default_rng(0).standard_normal((len(M[0]), len(M[0])))
    controlled = isinstance(algorithm, lf.SCAFFOLD | lf.FedSCAVAR)
    wanted = closed_set(moments, (M @ root @ root.T @ M.mT).mean(axis=0), controlled)
    found = moments.apply(closed_set(moments, root @ root.T, controlled))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    squares = sum(np.kron(one, one) for one in M) / len(M)
    radius = np.abs(eigs(squares, k=1, v0=np.eye(len(M[0])).ravel(), tol=1e-13, return_eigenvectors=False)[0])
    found = lf.theory.mean_square_rate(algorithm, A, participants=p, weights=weights)
    assert found == pytest.approx(np.sqrt(radius), rel=1e-10)
    mean = np.abs(np.linalg.eigvals(M.mean(axis=0))).max()
    assert np.abs(np.linalg.eigvals(moments.mean)).max() == pytest.approx(mean, rel=1e-7)  # repeated eigenvalues
    assert found > mean


@pytest.mark.parametrize("name", ["FedAvg, samples", "ClusterFedVARP", "ClusterFedVARP, samples", "SCAFFOLD, samples"])
def test_end_and_spread_are_those_over_all_sets_of_participants(name):
    p = 2
    algorithm, A, b, weights, M, v = enumerated(name, p)
    moments = mean_square.FullMoments(algorithm, A, algorithm.step_size, p, weights, b)
    end = np.linalg.lstsq(np.eye(len(M[0])) - M.mean(axis=0), v.mean(axis=0), rcond=None)[0]
    np.testing.assert_allclose(moments.fixed_point()[:D], end[:D], rtol=0, atol=1e-12)
    u = M @ end + v - end
    size = len(end) ** 2
    squares = sum(np.kron(one, one) for one in M) / len(M)
    wanted = np.linalg.solve(np.eye(size) - squares, (u.T @ u).ravel() / len(M)).reshape(len(end), -1)[:D, :D]
    np.testing.assert_allclose(moments.spread(), wanted, rtol=0, atol=1e-11)
    assert (np.abs(wanted).max() > 1e-3) == (not name.startswith("SCAFFOLD"))


CLUSTERED = [(0, 0, 0, 0, 0, 0), (0, 1, 2, 3, 4, 5), (0, 1, 0, 2, 0, 1), (0, 0, 1, 0, 0, 0)]


@pytest.mark.parametrize("weights", [None, np.array([1.0, 4.0, 2.0, 2.0, 3.0, 1.0])], ids=["equal", "unequal"])
@pytest.mark.parametrize("clusters", CLUSTERED, ids=str)
@pytest.mark.parametrize("p", [1, 4, 6])
def test_moments_of_who_takes_part(clusters, weights, p):
    """Against a loop over all sets, in words of their own."""
    clusters, rows = np.array(clusters), []
    for chosen in itertools.combinations(range(6), p):
        takes_part = [float(i in chosen) for i in range(6)]
        weight = np.ones(6) if weights is None else weights
        share = [e * w / sum(weight[j] for j in chosen) for e, w in zip(takes_part, weight, strict=True)]
        count = [sum(clusters[j] == c for j in chosen) for c in range(clusters.max() + 1)]
        own = [e / count[c] if e else 0.0 for e, c in zip(takes_part, clusters, strict=True)]
        rows.append([*share, *takes_part, *own, *(float(k == 0) for k in count)])
    rows = np.array(rows)
    mean, second = drawn_moments(p, clusters, weights)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=0, atol=1e-15)
    np.testing.assert_allclose(second, rows.T @ rows / len(rows), rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["FedAvg", "SCAFFOLD", "SCAFFOLD, gradient", "FedSCAVAR", "FedVARP"])
def test_the_rate_does_not_depend_on_units_nor_on_directions_that_nobody_sees(name):
    algorithm, counts = CASES[name]
    if name == "FedSCAVAR":
        algorithm = replace(algorithm, mu=0.0)
    A, _ = draw_world(counts, D, 2, noise=0.4, seed=3).data().normal_equations()
    wanted = lf.theory.mean_square_rate(algorithm, A, participants=2)
    for unit in (1e-9, 1e9):
        other = replace(algorithm, step_size=algorithm.step_size / unit)
        assert lf.theory.mean_square_rate(other, unit * A, participants=2) == pytest.approx(wanted, rel=1e-9)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0][:, :D]
    unseen = turn @ A @ turn.T
    assert seen_directions(unseen).shape == (5, D)
    assert lf.theory.mean_square_rate(algorithm, unseen, participants=2) == pytest.approx(wanted, rel=1e-9)


def test_with_everybody_it_is_the_rate_of_the_mean():
    _, A, _, _, _, _ = enumerated("SCAFFOLD", 1)
    for name in ("FedAvg", "SCAFFOLD", "FedVARP"):
        found = lf.theory.mean_square_rate(CASES[name][0], A, participants=N)
        if name == "SCAFFOLD":
            matrix = lf.theory.scaffold_iteration_matrix(A, participants=N, **STEPS)
            assert found == pytest.approx(np.abs(np.linalg.eigvals(matrix)).max(), rel=1e-9)
        else:
            assert found == pytest.approx(float(lf.theory.fedavg_rate(A, **STEPS)), rel=1e-9)


EQUAL_CURVATURES = np.tile(np.eye(3), (40, 1, 1))


def rate(algorithm, A=EQUAL_CURVATURES, participants=4, **changes):
    return lf.theory.mean_square_rate(algorithm, A, participants=participants, **changes)


FEDAVG, COUNTED = (lf.FedAvg(weights=weights, step_size=0.1, local_steps=2) for weights in ("uniform", "samples"))
WINDOWS = lf.FedSCAVAR(clusters=2, model_share=(0.5,) + (1.0,) * 39, **STEPS)
NUMBERED = np.arange(1.0, 41)


@pytest.mark.parametrize(
    ("algorithm", "changes", "fragments"),
    [
        (COUNTED, {"participants": 20, "weights": NUMBERED}, ["unequal weights", "upper bound", "of 40"]),
        (COUNTED, {}, ["weights is missing", "'samples'"]),
        (FEDAVG, {"weights": NUMBERED}, ["weights", "must be equal or omitted", "'uniform'"]),
        (FEDAVG, {"weights": NUMBERED[1:]}, ["weights"]),
        (FEDAVG, {"weights": 0 * NUMBERED}, ["weights", "positive"]),
        (FEDAVG, {"participants": 41}, ["participants = 41"]),
        (FEDAVG, {"A": np.zeros((40, 3, 3))}, ["A is 0"]),
        (lf.FedAvg(rank=2, step_size=0.1), {}, ["one layer"]),
        (lf.FedPer(rank=2, step_size=0.1), {}, ["FedPer"]),
        (WINDOWS, {}, ["model_share", "must be 1"]),
    ],
)
def test_invalid_arguments_are_one_line(algorithm, changes, fragments):
    assert_one_line(lambda: rate(algorithm, **changes), fragments)


def test_equal_weights_are_none_and_an_overflow_is_infinite():
    assert rate(COUNTED, weights=np.full(40, 5.0)) == rate(FEDAVG, weights=np.full(40, 5.0)) == rate(FEDAVG)
    large = np.tile(np.eye(50), (40, 1, 1))
    assert rate(FEDAVG, large) == pytest.approx(0.81, rel=1e-12)  # 2,500 unknowns only
    assert rate(lf.FedAvg(step_size=1e300, local_steps=9)) == np.inf


@pytest.mark.parametrize(
    "algorithm",
    [lf.FedAvg(step_size=1.0), lf.FedVARP(step_size=1.0), lf.SCAFFOLD(step_size=1.0)],
    ids=lambda one: type(one).__name__,
)
def test_a_step_that_solves_every_problem_at_once_has_rate_0(algorithm):
    assert lf.theory.mean_square_rate(algorithm, np.stack([np.eye(3)] * 4), participants=4) == 0.0


SIZES = {  # algorithm, n, d, weights that differ, number of unknowns, the most that is allowed
    "one summary": (lf.FedVARP(step_size=0.1), 40, 50, False, (1 + 3 * 40) * 50**2, 200_000),
    "two summaries": (lf.SCAFFOLD(controls="gradient", **STEPS), 782, 8, False, (1 + 4 * 782) * 8**2, 200_000),
    "all controls": (lf.SCAFFOLD(**STEPS), 30, 10, False, 31 * 10, 300),
    "memories": (lf.ClusterFedVARP(clusters=4, **STEPS), 5, 61, False, 5 * 61, 300),
    "controls and memories": (lf.FedSCAVAR(clusters=4, **STEPS), 5, 31, False, 10 * 31, 300),
    "no memory": (lf.FedAvg(**STEPS), 19, 48, True, 19 * 48, 900),
}


@pytest.mark.parametrize("name", SIZES)
def test_what_is_too_large_says_how_large_it_is(name):
    """A client less, or equal weights, can be computed."""
    algorithm, n, d, differ, unknowns, most = SIZES[name]

    def moments(n):
        weights = np.arange(1.0, n + 1) if differ else None
        return mean_square.second_moments(algorithm, np.tile(np.eye(d), (n, 1, 1)), 0.1, 1, weights)

    words = [f"1 of {n} participants", f"({unknowns} unknowns, at most {most})"]
    assert_one_line(lambda: moments(n), words)
    if name in ("two summaries", "all controls", "no memory"):
        assert moments(n - 1).size > 0


@pytest.mark.parametrize("name", CASES)
def test_one_client_takes_part_always(name):
    algorithm, _ = CASES[name]
    if hasattr(algorithm, "clusters"):
        algorithm = replace(algorithm, clusters=1)
    A, _ = draw_world([9], D, 2, noise=0.4, seed=3).data().normal_equations()
    once = np.linalg.matrix_power(np.eye(D) - 0.3 * (A[0] + getattr(algorithm, "mu", 0.0) * np.eye(D)), 3)
    if algorithm.local_steps == 1:
        once = np.eye(D) - 0.3 * A[0]
    moved = np.linalg.solve(A[0] + getattr(algorithm, "mu", 0.0) * np.eye(D), np.eye(D) - once) @ A[0]
    wanted = np.abs(np.linalg.eigvals(np.eye(D) - 1.2 * moved)).max()
    found = lf.theory.mean_square_rate(algorithm, A, participants=1, weights=[9])
    assert found == pytest.approx(wanted, rel=1e-7)


def test_the_moments_of_one_client():
    mean, second = drawn_moments(1, np.zeros(1, int), None)
    np.testing.assert_array_equal(mean, [1.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(second, np.outer(mean, mean))
