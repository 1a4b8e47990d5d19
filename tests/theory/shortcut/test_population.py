"""The shortcut draft at population: repulsion, Oja's rule, the top subspace and the eigenvalue condition."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.problems import Truth
from linfed.theory import shortcut as theory
from tests.theory.shortcut.made import algorithm_of, made, seen_rounds


@pytest.mark.long
@pytest.mark.parametrize("m", [4, 12])
def test_the_first_gradient_drives_B_away_in_the_mean(m):
    # Mean over 40000 clients of the component along the law; 4.5 standard errors: 7e-6 false alarms.
    problem = made(200, 6, 2, noise_std=0.5)
    algorithm = algorithm_of(2, init=lf.AtDistance(0.6))
    (r,) = seen_rounds(algorithm, problem, lf.FreshSamples(m), n_rounds=1, trials=200)
    gradient = (r.B - r.B_bar) / r.step_size
    outside = gradient - r.B @ (r.B.mT @ gradient)
    expected = theory.shortcut_repulsion(problem.truth(3, range(200)), r.B, m)
    share = (outside * expected).sum(axis=(-2, -1)) / (expected**2).sum(axis=(-2, -1))
    error = share.std(ddof=1) / np.sqrt(200)
    assert abs(share.mean() - 1) < 4.5 * error
    assert error < 0.02
    assert (r.bound().distance > 0.6).mean() > 0.9


@pytest.mark.parametrize("k", [1, 3])
def test_the_repulsion_is_a_share_of_ojas_gradient_by_loops(k):
    truth, B = made(5, 6, 2).truth(3, range(2)), np.linalg.qr(np.random.default_rng(0).standard_normal((2, 6, k)))[0]
    found = theory.shortcut_repulsion(truth, B, 9)
    for t, Phi in enumerate(truth.dense()):
        moment = sum(np.outer(phi, phi) for phi in Phi) / 5
        wanted = (k + 1) / 9 * (np.eye(6) - B[t] @ B[t].T) @ moment @ B[t]
        np.testing.assert_allclose(found[t], wanted, rtol=0, atol=1e-14)


def test_repulsion_refuses_few_samples_and_other_shapes():
    truth = made(4, 6, 2).truth(3, range(2))
    with pytest.raises(ValueError, match="n_samples = 3 must be at least k \\+ 2 = 4"):
        theory.shortcut_repulsion(truth, truth.B, 3)
    assert np.isfinite(theory.shortcut_repulsion(truth, truth.B, 4)).all()
    with pytest.raises(ValueError, match="B has shape"):
        theory.shortcut_repulsion(truth, truth.B[:1], 9)


LAWS = {
    "covariance": lf.Gaussian(covariance=np.geomspace(0.5, 2.0, 6)),
    "scaled": lf.Gaussian(covariance=2.0),
    "rademacher": lf.Rademacher(),
    "cube": lf.UniformCube(),
    "sphere": lf.UniformSphere(),
}


@pytest.mark.parametrize("law", LAWS)
def test_what_holds_for_another_law_of_x_refuses_this_one(law):
    truth = made(4, 6, 2, design=LAWS[law]).truth(3, range(2))
    with pytest.raises(ValueError, match=r"truth has design = .*; the mean of the gradient .* standard Gaussian x"):
        theory.shortcut_repulsion(truth, truth.B, 9)
    if law == "covariance":
        with pytest.raises(ValueError, match=r"truth has design = Gaussian\(cov.*at population requires isotropic x"):
            theory.top_subspace_distance(truth, 2)
        with pytest.raises(ValueError, match=r"truth has design = Gaussian\(cov.*condition requires isotropic x"):
            theory.shortcut_spectrum_hypothesis(truth)
    else:  # second moments are all they ask for
        plain = made(4, 6, 2).truth(3, range(2))
        assert np.array_equal(theory.top_subspace_distance(truth, 2), theory.top_subspace_distance(plain, 2))
        assert theory.shortcut_spectrum_hypothesis(truth) == theory.shortcut_spectrum_hypothesis(plain)


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("ridge", [0.05, 1.0, 20.0])
def test_at_population_the_joint_ridge_follows_oja(ridge, participation):
    problem = made(8, 7, 2)
    data = lf.GivenSamples.population(problem, trials=2, seed=3)
    algorithm = algorithm_of(2, solver=lf.ClosedForm(order="joint"), ridge=ridge)
    for r in seen_rounds(algorithm, problem, data, participation=participation):
        sides = r.oja()
        assert sides.gap.max() < 1e-12
        assert np.abs(sides.left).max() > 1e-4
    stale = seen_rounds(
        algorithm_of(2, solver=lf.ClosedForm(order="gauss-seidel"), ridge=ridge), problem, data, n_rounds=2
    )[1]
    assert stale.oja().gap.min() > 1e-3
    sampled = seen_rounds(algorithm, problem, lf.FixedSamples(20), n_rounds=1, participation=participation)[0]
    assert sampled.oja().gap.min() > 1e-3


def hand_made(heads, lengths, n=40):
    """Return a truth with ``B*'S* = 0``, heads and shortcuts exactly uncorrelated, of given second moments."""
    k, extra = len(heads), len(lengths)
    signs = np.linalg.qr(np.random.default_rng(0).standard_normal((n, k + extra)))[0] * np.sqrt(n)
    B = np.eye(k + extra)[:, :k]
    S = np.zeros((n, k + extra))
    S[:, k:] = signs[:, k:] * np.sqrt(lengths)
    return Truth(B=B[None], W=(signs[:, :k] * np.sqrt(heads))[None], S=S[None])


def test_the_eigenvalue_condition_decides_for_uncorrelated_shortcuts_outside_the_span():
    for lengths, visible in (([0.9, 0.5, 0.1], True), ([1.1, 0.5, 0.1], False)):
        truth = hand_made([2.0, 1.0], lengths)
        condition = theory.shortcut_spectrum_hypothesis(truth)
        assert (condition.left, condition.right) == pytest.approx((lengths[0], 1.0))
        assert condition.holds is visible
        distance = theory.top_subspace_distance(truth, 2)[0]
        assert distance < 1e-12 if visible else distance > 1 - 1e-12


def test_without_orthogonality_the_condition_is_not_necessary_and_correlation_defeats_it():
    # s_i* inside the span of B* hides nothing, however long.
    inside = hand_made([2.0, 1.0], [0.5, 0.1])
    inside = dataclasses.replace(inside, S=inside.S + 9.0 * np.roll(inside.W, 1, axis=1) @ inside.B.mT)
    assert not theory.shortcut_spectrum_hypothesis(inside).holds
    # s_i* that follow the heads turn the top subspace, however short.
    follows = hand_made([2.0, 1.0], [0.1, 0.1])
    turned = np.eye(4)[:, 2:]
    follows = dataclasses.replace(follows, S=0.2 * follows.W @ turned.T[None])
    assert theory.shortcut_spectrum_hypothesis(follows).holds
    assert theory.top_subspace_distance(follows, 2)[0] > 0.1
    only = Truth(B=inside.B, W=inside.W, S=9.0 * inside.W @ inside.B.mT)
    assert not theory.shortcut_spectrum_hypothesis(only).holds
    assert theory.top_subspace_distance(only, 2)[0] < 1e-12


def test_the_condition_names_the_worst_trial_and_few_clients_fail_it():
    one, two = hand_made([2.0, 1.0], [0.3, 0.1]), hand_made([3.0, 0.5], [0.4, 0.1])
    both = Truth(**{name: np.concatenate([getattr(one, name), getattr(two, name)]) for name in ("B", "W", "S")})
    found = theory.shortcut_spectrum_hypothesis(both)
    assert (found.left, found.right) == pytest.approx((0.4, 0.5))
    assert theory.top_subspace_distance(both, 2).shape == (2,)
    scaled = dataclasses.replace(one, B=2 * one.B, W=one.W / 2)
    assert theory.shortcut_spectrum_hypothesis(scaled).right == pytest.approx(1.0)
    single = made(1, 5, 2).truth(0, range(1))
    assert theory.shortcut_spectrum_hypothesis(single).right == 0.0
    with pytest.raises(ValueError, match="must have a shared part"):
        theory.top_subspace_distance(Truth(S=one.S), 2)
    with pytest.raises(ValueError, match="shared part and shortcuts"):
        theory.shortcut_spectrum_hypothesis(Truth(B=one.B, W=one.W))
