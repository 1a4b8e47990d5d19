"""Runs of FedRep as its laws see them: heads, steps, and whether a clip acts."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed.prediction.cases import heads_of
from tests.helpers import assert_one_line, normal
from tests.prediction.runs import case_of, fedrep


def test_a_run_of_the_sum_has_the_steps_of_the_mean():
    case = case_of(fedrep(aggregate="sum", step_size=lambda t: 0.01 * t), participation=8)
    assert case.unit == 8
    np.testing.assert_allclose(case.steps, [0.08, 0.16, 0.24], rtol=1e-14)
    assert case.sizes == {"dim": 30, "n_samples": 10, "participants": 8}
    assert {**case.setting, "step_size": 0} == {**case.sizes, "step_size": 0, "n_rounds": 3, "noise_std": 0.1}
    mean = case_of(fedrep(step_size=0.3), participation=8)
    assert (mean.unit, mean.steps, mean.step("")) == (1, 0.3, 0.3)


@pytest.mark.parametrize(("n", "d"), [(7, 4), (4, 7), (5, 5)])
def test_heads_are_coordinates_in_an_orthonormal_basis(n, d):
    design = lf.Gaussian(covariance=2.0)
    for given, rank in (
        ({"Phi": normal(n, d)}, min(n, d)),
        ({"B": 3.0 * normal(d, 2), "W": normal(n, 2, seed=1)}, 2),
    ):
        problem = lf.GivenTruth(**given, design=design)
        truth = problem.truth(0, [0])
        W, B = heads_of(truth)
        assert W.shape == (n, rank)
        np.testing.assert_allclose(B.T @ B, np.eye(rank), rtol=0, atol=1e-13)
        np.testing.assert_allclose(W @ B.T, 2**0.5 * truth.dense()[0], rtol=0, atol=1e-12)
        whole = lf.UnderParameterized(n_clients=n, dim=d)
        assert case_of(fedrep(rank=1), whole).truth_rank == min(n, d)


def test_a_clip_acts_with_at_most_the_probability_of_its_bound():
    """And where it acts, there is no prediction."""
    problem = lf.SharedRepresentation(n_clients=9, dim=12, rank=2, noise_std=0.5)
    algorithm = lf.PrivateFedRep(rank=2, step_size=0.1, init="random", clip=8.0)
    case = case_of(algorithm, problem, lf.FreshSamples(7), n_rounds=20)
    rng, truth = np.random.default_rng(0), problem.truth(0, [0])
    W, B_star = heads_of(truth)
    lengths = []
    for i in range(9):
        x = rng.standard_normal((4000, 7, 12))
        y = x @ (B_star @ W[i]) + 0.5 * rng.standard_normal((4000, 7))
        B = np.linalg.qr(rng.standard_normal((12, 2)))[0]
        Z = x @ B
        heads = np.linalg.solve(Z.mT @ Z, Z.mT @ y[..., None])[..., 0]
        r = y - np.einsum("rmk,rk->rm", Z, heads)
        lengths.append(np.linalg.norm(np.einsum("rmd,rm->rd", x, r) / 7, axis=1) * np.linalg.norm(heads, axis=1))
    longer = np.mean(np.array(lengths) > 8.0) * 9 * 20
    assert 0.1 < longer < case._clipped_at_most(8.0) < np.inf
    assert np.mean(np.square(lengths)) * 9 * 20 / 64 < case._clipped_at_most(8.0)
    assert case.clip == 8.0
    assert case_of(replace(algorithm, clip=1e4), problem, lf.FreshSamples(7)).clip is None
    for changes in ({"heads": lf.GradientHeads()}, {"representation_steps": 2}, {"clip": 10.0}):
        given = replace(algorithm, clip=1e4)
        lacking = replace(given, **changes)
        assert_one_line(
            lambda lacking=lacking: lf.predict(lacking, problem, data=lf.FreshSamples(7), n_rounds=3).distance,
            ["clip = "],
            lf.NoPredictionError,
        )


def test_noise_alone_nearly_reaches_the_bound_on_clipped_messages():
    """Then ``||X'r||^2`` is ``||r||^2 chi^2`` with d - k degrees of freedom, and independent of the head."""
    problem = lf.GivenTruth(B=np.eye(32)[:, :2], W=np.full((2, 2), 1e-9), noise_std=2.0)
    algorithm = lf.PrivateFedRep(rank=2, step_size=0.1, init="random", clip=1.0)
    case = case_of(algorithm, problem, lf.FreshSamples(6), n_rounds=1)
    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((20_000, 6, 2)), 2.0 * rng.standard_normal((20_000, 6, 1))
    heads = np.linalg.solve(Z.mT @ Z, Z.mT @ y)
    squared = 30 * np.square(y - Z @ heads).sum(axis=1) * np.square(heads).sum(axis=1) / 6**2
    assert 0.8 < 2 * squared.mean() / case._clipped_at_most(1.0) < 1.0
