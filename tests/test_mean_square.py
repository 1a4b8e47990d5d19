"""Second moments of the averaging family when some clients take part: against all sets of participants, and runs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from helpers import assert_one_line
from scipy.sparse.linalg import eigs
from test_algorithms import draw_world

import linfed as lf
from linfed.theory import mean_square
from linfed.theory.averaging import seen_directions
from linfed.theory.drawn_clients import drawn_moments

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
    first = lf.simulate(algorithm, problem, data=data, rounds=0).final
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
        steps = lf.iterate(algorithm, problem, data=data, rounds=1, participation=np.array([active]))
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


@pytest.mark.parametrize("p", [1, 3])
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
    assert found > np.abs(np.linalg.eigvals(M.mean(axis=0))).max()  # the rate of the mean
