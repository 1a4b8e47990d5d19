"""The state evolution of FedRep with a step size for each round."""

import numpy as np
import pytest

import linfed as lf

ROUNDS = 6
STEPS = (0.3, 0.2, 0.5, 0.1, 0.4, 0.05)


def test_state_evolution_takes_a_step_for_each_round():
    setting = {"dim": 30, "n_samples": 9, "noise_std": 0.5, "participants": 7}
    W = np.random.default_rng(0).standard_normal((12, 2))
    plain = lf.theory.state_evolution(W, step_size=0.3, rounds=ROUNDS, delta=0.6, **setting)
    constant = lf.theory.state_evolution(W, step_size=[0.3] * ROUNDS, rounds=ROUNDS, delta=0.6, **setting)
    np.testing.assert_array_equal(constant.Q, plain.Q)
    path = lf.theory.state_evolution(W, step_size=STEPS, rounds=ROUNDS, delta=0.6, **setting)
    for t, eta in enumerate(STEPS):
        N, Q = lf.theory.one_round_means(path.N[t], path.Q[t], W, step_size=eta, **setting)
        L = np.linalg.cholesky(N.T @ N + Q)
        np.testing.assert_allclose(path.Q[t + 1], np.linalg.solve(L, np.linalg.solve(L, Q).T), rtol=1e-10, atol=1e-14)
    with pytest.raises(ValueError, match="step_size has 2 values, expected one for each round: rounds = 6"):
        lf.theory.state_evolution(W, step_size=STEPS[:2], rounds=ROUNDS, delta=0.6, **setting)
    with pytest.raises(ValueError, match=r"step_size = .* must be a positive finite number, or one for each round"):
        lf.theory.state_evolution(W, step_size=lambda round_: 0.4 / round_, rounds=ROUNDS, delta=0.6, **setting)
