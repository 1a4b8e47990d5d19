"""FedRep without QR: B grows under label noise, and the step that is left makes the distance."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, basis, normal
from tests.theory.fedrep.runs import isotropic, run_of

SETTING = {"dim": 12, "n_samples": 9, "step_size": 0.5, "n_rounds": 6, "noise_std": 0.1}


def fourth_power(state, truth):
    B = state.array("B")
    return (np.square(B).sum(axis=(-2, -1)) / B.shape[-1]) ** 2


@pytest.mark.long
def test_without_qr_the_step_anneals_itself():
    """Under label noise ||B||^4 grows by C in a round, and the step that is left makes the distance."""
    W, sizes = isotropic(30, 2), {"dim": 60, "n_samples": 10, "noise_std": 1.0}
    run = run_of(W, step_size=0.2, start=0.4, n_rounds=150, orthonormalize=False, **sizes)
    metrics = lf.simulate(**run, trials=60, engine="chain", metrics=["subspace_distance", fourth_power]).metrics
    setting = {"step_size": 0.2, "n_rounds": 150, "delta": 0.4, **sizes}
    found = lf.theory.unnormalized_evolution(W, **setting)
    growth = metrics["fourth_power"].mean(axis=0)
    np.testing.assert_allclose(found.squared_length**2, growth, rtol=0.03)
    assert growth[-1] > 3
    constant = lf.theory.norm_growth(0.2, rank=2, n_clients=30, **sizes)
    assert 1.0 < (growth[-1] - growth[75]) / (75 * constant) < 1.1
    median = np.median(metrics["subspace_distance"], axis=0)[[75, 150]]
    kept = lf.theory.state_evolution(W, **setting).distance[[75, 150]]
    assert (np.abs(np.log(found.distance[[75, 150]] / median)) < 0.2).all()
    assert (kept > 1.1 * median).all()


def test_with_small_steps_and_without_noise_it_is_the_state_evolution():
    W, setting = normal(9, 2, seed=1), SETTING | {"noise_std": 0.0, "step_size": 1e-3}
    found = lf.theory.unnormalized_evolution(W, delta=0.3, **setting)
    assert found.squared_length[0] == 1.0
    assert (np.diff(found.squared_length) > 0).all()
    np.testing.assert_allclose(found.distance, lf.theory.state_evolution(W, delta=0.3, **setting).distance, rtol=1e-5)


def test_without_qr_the_step_is_a_matrix_on_the_heads():
    W, B0, B_star = normal(9, 2, seed=1), basis(12, 2, 3), basis(12, 2, 4)
    setting = SETTING | {"noise_std": 0.7, "participants": 4, "step_size": 0.4}
    found = lf.theory.unnormalized_evolution(W, B0=B0, B_star=B_star, **setting)
    sizes = {name: setting[name] for name in ("dim", "n_samples", "noise_std", "participants")}
    N, R = B_star.T @ B0, np.eye(2)
    Q = np.eye(2) - N.T @ N
    for t in range(6):
        step = 0.4 * np.linalg.inv(R @ R.T)
        pull = N.T @ W.T @ W @ N * (7 / 9) / 9
        N_one, Q_one = lf.theory.one_round_means(N, Q, W, step_size=1.0, **sizes)
        kept = np.eye(2) - pull
        added, kept = Q_one - kept @ Q @ kept, np.eye(2) - pull @ step  # by samples and the choice of clients
        N, Q = N + (N_one - N) @ step, kept.T @ Q @ kept + step @ added @ step
        C = np.linalg.cholesky(N.T @ N + Q).T
        R, inverse = C @ R, np.linalg.inv(C)
        N, Q = N @ inverse, inverse.T @ Q @ inverse
        assert found.squared_length[t + 1] == pytest.approx(np.trace(R @ R.T) / 2, rel=1e-10)
        np.testing.assert_allclose(found.S[t + 1], R @ R.T, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(found.N[t + 1], N, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(found.Q[t + 1], Q, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.distance**2, np.linalg.eigvalsh(found.Q)[:, -1], rtol=1e-12)
    sizes = {"dim": 60, "rank": 2, "n_clients": 30, "n_samples": 10, "noise_std": 0.8}
    growth = 2 * 0.3**2 * 0.8 * 58 * 0.64 * (1 + 0.64 / 7) / 10
    assert lf.theory.norm_growth(0.3, **sizes) == pytest.approx(growth / 30, rel=1e-12)
    assert lf.theory.norm_growth(0.3, participants=7, **sizes) == pytest.approx(growth / 7, rel=1e-12)
    assert_one_line(lambda: lf.theory.norm_growth(0.0, **sizes), ["step_size = 0.0"])
