"""Recorded metrics equal their definitions on dense arrays, for every form of ground truth and state."""

import itertools

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import Held, normal
from tests.worlds import draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("delta", [0.0, 1e-13, 1e-9, 1e-4, 0.3, 1.0])
def test_a_distance_has_its_relative_accuracy(delta):
    E = np.eye(9)
    B = np.sqrt(1 - delta**2) * E[:, :3] + delta * E[:, 3:6] * [1.0, 0.5, 1.0]
    B[:, 1] = np.sqrt(1 - delta**2 / 4) * E[:, 1] + delta / 2 * E[:, 4]
    problem = lf.GivenTruth(B=E[:, :3], W=np.ones((2, 3)))
    result = lf.simulate(lf.FedRep(rank=3, step_size=0.1, init=B), problem, data=lf.FreshSamples(4), n_rounds=0)
    np.testing.assert_allclose(result.metrics["subspace_distance"], delta, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("stretch", [1.0, 1 + 4e-14, 1 + 1e-9, 3.0])
def test_a_nearly_orthonormal_basis_costs_no_accuracy(stretch, rank):
    E = np.eye(9)
    init = stretch * np.hstack([E[:, :3] + 1e-14 * E[:, 3:6], E[:, 6:]])[:, :rank]
    problem = lf.GivenTruth(B=E[:, :3] * stretch, W=np.ones((2, 3)))
    result = lf.simulate(lf.FedRep(rank=rank, step_size=0.1, init=init), problem, data=lf.FreshSamples(4), n_rounds=0)
    np.testing.assert_allclose(result.metrics["subspace_distance"], 1e-14, rtol=0, atol=1e-15)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("parts", ["BW", "B not orthonormal", "BW+S", "Phi", "Phi, B"])
def test_metrics_of_any_truth_equal_the_dense_ones(parts, rank):
    n, d, r, noise = 5, 8, 3, 0.4
    rng = np.random.default_rng(2)
    world = draw_world([6] * n, d, r)
    B, W, S = world.B_star, world.W_star, rng.standard_normal((n, d))
    if parts == "B not orthonormal":
        B = B @ rng.standard_normal((r, r))
    root = rng.standard_normal((d, d))
    covariance = root @ root.T / d
    arrays, Phi = {
        "BW": ({"B": B, "W": W}, W @ B.T),
        "B not orthonormal": ({"B": B, "W": W}, W @ B.T),
        "BW+S": ({"B": B, "W": W, "S": S}, W @ B.T + S),
        "Phi": ({"Phi": S}, S),
        "Phi, B": ({"Phi": S, "B": B}, S),
    }[parts]
    problem = lf.GivenTruth(**arrays, noise_std=noise, design=lf.Gaussian(covariance=covariance))
    init = rng.standard_normal((d, rank))
    for algorithm in (lf.FedRep(rank=rank, step_size=0.05, init=init, orthonormalize=False), lf.LocalOnly()):
        result = lf.simulate(algorithm, problem, data=world.data(), n_rounds=3, participation=[[0, 2], [1, 3], [2, 3]])
        Theta = result.final.predictors()[0]
        dense = {
            "parameter_error": ref.parameter_error(Theta, Phi),
            "mean_client_error": ref.mean_client_error(Theta, Phi),
            "risk": ref.risk(Theta, Phi, covariance, noise),
        }
        if isinstance(algorithm, lf.FedRep):
            # a truth of larger rank is held against the subspace of the learned rank and least risk
            best = {"Phi": Phi, "Phi, B": None}.get(parts, W @ B.T if rank < r else None)
            L = np.linalg.cholesky(covariance)
            reference = B if best is None else np.linalg.solve(L.T, ref.top_left_subspace(best @ L, rank))
            dense["subspace_distance"] = ref.subspace_distance(reference, result.final.B[0])
            if rank < r or parts not in ("BW", "B not orthonormal"):
                U = ref.top_left_subspace(Phi, rank)
                dense["mean_truncation_error"] = ref.mean_client_error(Theta, Phi @ U @ U.T)
        assert result.metrics.keys() == dense.keys()
        for key, value in dense.items():
            np.testing.assert_allclose(result.metrics[key][0, -1], value, **TOLERANCE)


STATES = {
    "B, one w": {"B": normal(2, 5, 2), "W": normal(2, 1, 2, seed=1)},
    "one s": {"S": normal(2, 1, 5, seed=2)},
    "B, one w, one s": {"B": normal(2, 5, 2), "W": normal(2, 1, 2, seed=1), "S": normal(2, 1, 5, seed=2)},
    "B, one w, S": {"B": normal(2, 5, 2), "W": normal(2, 1, 2, seed=1), "S": normal(2, 4, 5, seed=2)},
    "B, W, one s": {"B": normal(2, 5, 2), "W": normal(2, 4, 2, seed=1), "S": normal(2, 1, 5, seed=2)},
    "B, W": {"B": normal(2, 5, 2), "W": normal(2, 4, 2, seed=1)},
    "S": {"S": normal(2, 4, 5, seed=2)},
    "B, W, S": {"B": normal(2, 5, 2), "W": normal(2, 4, 2, seed=1), "S": normal(2, 4, 5, seed=2)},
}
TRUTHS = {
    "B, W": {"B": normal(5, 3, seed=3), "W": normal(4, 3, seed=4)},
    "S": {"S": normal(4, 5, seed=5)},
    "B, W, S": {"B": normal(5, 3, seed=3), "W": normal(4, 3, seed=4), "S": normal(4, 5, seed=5)},
    "Phi, B": {"Phi": normal(4, 5, seed=6), "B": normal(5, 3, seed=3)},
}


COVARIANCES = [None, 2.0, np.diag([1.0, 2.0, 0.5, 3.0, 0.0]) + 0.1]


@pytest.mark.parametrize(("truth", "form"), [*itertools.product(TRUTHS, STATES)])
def test_metrics_of_a_state_equal_the_dense_ones(truth, form):
    """Every form of state against every form of truth, client by client; each form meets every covariance."""
    arrays, state = TRUTHS[truth], lf.State(**STATES[form])
    covariance = COVARIANCES[([*TRUTHS].index(truth) + [*STATES].index(form)) % 3]
    problem = lf.GivenTruth(**arrays, noise_std=0.3, design=lf.Gaussian(covariance=covariance))
    result = lf.simulate(Held(state=state), problem, data=lf.FreshSamples(2), n_rounds=0, trials=2)
    Phi = arrays.get("Phi", 0.0) + arrays.get("S", 0.0) + (arrays["W"] @ arrays["B"].T if "W" in arrays else 0.0)
    matrix = covariance if np.ndim(covariance) else (covariance or 1.0) * np.eye(5)
    for t in range(2):
        Theta = np.zeros((4, 5))
        if state.B is not None:
            Theta = Theta + state.W[t] @ state.B[t].T
        if state.S is not None:
            Theta = Theta + state.S[t]
        wanted = {
            "parameter_error": ref.parameter_error(Theta, Phi),
            "mean_client_error": ref.mean_client_error(Theta, Phi),
            "risk": ref.risk(Theta, Phi, matrix, 0.3),
        }
        for name, value in wanted.items():
            np.testing.assert_allclose(result.metrics[name][t, 0], value, rtol=1e-12)
        np.testing.assert_allclose(result.client_risks()[t], ref.client_risks(Theta, Phi, matrix, 0.3), **TOLERANCE)
        np.testing.assert_allclose(np.broadcast_to(state.predictors()[t], (4, 5)), Theta, **TOLERANCE)


@pytest.mark.parametrize("in_law", [True, None])
def test_losses_of_clients_are_those_of_the_samples_of_the_run(in_law, monkeypatch):
    """Fixed samples that were drawn in law are drawn in law again; samples that were not drawn cannot be returned."""
    monkeypatch.setattr("linfed.data.samples.MANY_VALUES", 100.0)
    problem, data = (
        lf.SharedRepresentation(n_clients=6, dim=4, rank=2, noise_std=0.3),
        lf.FixedSamples(12, in_law=in_law),
    )
    run = {"data": data, "n_rounds": 3, "trials": 2, "metrics": ["train_loss"], "engine": "compressed"}
    result = lf.simulate(lf.FedRep(rank=2, step_size=0.3, init="random"), problem, **run)
    recorded = result.metrics["train_loss"][:, -1]
    np.testing.assert_allclose(result.per_client("train_loss").mean(axis=1), recorded, rtol=1e-12)
    with pytest.raises(ValueError, match=r"draw\(\) requires in_law = False"):
        data.draw(problem)


def test_errors_do_not_stop_at_the_root_of_rounding():
    """A state 1e-13 away from the truth reads 1e-13: squares of large numbers are never subtracted."""
    B, W = np.linalg.qr(normal(6, 2))[0], normal(4, 2, seed=1)
    gap = 1e-13 * normal(4, 2, seed=2)
    state = lf.State(B=B[None], W=(W + gap)[None])
    result = lf.simulate(Held(state=state), lf.GivenTruth(B=B, W=W), data=lf.FreshSamples(2), n_rounds=0)
    assert result.metrics["parameter_error"][0, 0] == pytest.approx(np.linalg.norm(gap), abs=2e-15)


@pytest.mark.parametrize("algorithm", [lf.LocalOnly(), lf.FedRep(rank=2, step_size=0.1)], ids=["local", "none"])
def test_the_shortcut_error_is_of_the_full_dimensional_part_alone(algorithm):
    problem = lf.SharedWithShortcuts(n_clients=8, dim=6, rank=2, shortcut_norm=0.5)
    run = {"data": lf.FixedSamples(9), "n_rounds": 2, "trials": 3, "metrics": [lf.shortcut_error]}
    result, S = lf.simulate(algorithm, problem, **run), problem.truth(0, range(3)).S
    left = (result.final.predictors() if isinstance(algorithm, lf.LocalOnly) else 0.0) - S
    wanted = np.sqrt(np.sum(left**2, axis=(1, 2)))
    np.testing.assert_allclose(result.metrics["shortcut_error"][:, -1], wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="requires a ground truth with shortcuts"):
        lf.shortcut_error(result.final, None)


@pytest.mark.parametrize(
    "algorithm",
    [lf.LocalOnly(), lf.FedRep(rank=2, step_size=0.1), lf.PooledLeastSquares(), lf.ARMUL(step_size=0.1, penalty=0.3)],
    ids=["local", "heads", "one model", "for prediction"],
)
def test_the_worst_client_and_the_worst_inlier(algorithm):
    problem = lf.SimilarRepresentations(
        n_clients=8, dim=6, rank=2, deviation=0.3, outliers=0.25, outlier_norm=50.0, noise_std=0.2
    )
    metrics = [lf.max_client_error, lf.max_inlier_error]
    result = lf.simulate(algorithm, problem, data=lf.FixedSamples(4), n_rounds=2, trials=3, metrics=metrics)
    errors = np.linalg.norm(result.final.predictors() - problem.truth(0, range(3)).dense(), axis=-1)
    errors = np.broadcast_to(errors, (3, 8))
    np.testing.assert_allclose(result.metrics["max_client_error"][:, -1], errors.max(axis=1), rtol=1e-12)
    np.testing.assert_allclose(result.metrics["max_inlier_error"][:, -1], errors[:, :6].max(axis=1), rtol=1e-12)
    assert (errors[:, 6:].max(axis=1) > errors[:, :6].max(axis=1)).all()
    truth = problem.truth(0, range(3))
    np.testing.assert_array_equal(lf.max_client_error(result.final, truth), result.metrics["max_client_error"][:, -1])


def test_without_outliers_both_are_equal_and_a_missing_truth_is_named():
    problem = lf.SharedRepresentation(n_clients=8, dim=6, rank=2, noise_std=0.2)
    metrics = [lf.max_client_error, lf.max_inlier_error]
    result = lf.simulate(lf.LocalOnly(), problem, data=lf.FixedSamples(9), n_rounds=1, metrics=metrics)
    np.testing.assert_array_equal(*(result.metrics[metric.__name__] for metric in metrics))
    for metric in metrics:
        with pytest.raises(ValueError, match=f"{metric.__name__} requires the ground truth"):
            metric(result.final, None)
