"""FedRep's minimum on fixed samples for similar representations: its equations, a special case, and runs."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal

SIZES = {"dim": 20, "n_samples": 20, "noise_std": 0.3}


def parts(problem, trials):
    """Return the regressors inside the span of B*, and the lengths of the parts outside."""
    truth = problem.truth(0, range(trials))
    Phi = truth.dense()
    inside = Phi @ truth.B
    return inside, np.linalg.norm(Phi - inside @ truth.B.mT, axis=-1)


def test_covariance_and_risk_are_those_of_a_loop_over_clients():
    k, n, d, m, sigma = 2, 30, SIZES["dim"], SIZES["n_samples"], SIZES["noise_std"]
    W, outside = normal(n, k), 0.5 * np.abs(normal(n, seed=1))
    G = sum(np.outer(a, a) for a in W) / n - np.mean(outside**2) / (d - k) * np.eye(k)
    inverse, C = np.linalg.inv(G), np.zeros((k, k))
    for a, rho in zip(W, outside, strict=True):
        tau2 = rho**2 + sigma**2
        rows = sum((m - k + 1) * rho**2 / (d - k) + tau2 for _ in range(d - k)) / (m - k)
        C += inverse @ (rows * (np.outer(a, a) + tau2 / (m - k - 1) * np.eye(k))) @ inverse / n**2
    found, turned = lf.theory.similar_floor(W, outside, **SIZES), C @ np.linalg.inv(np.eye(k) + C)
    np.testing.assert_allclose(found.covariance, C, rtol=1e-12)
    for a, rho, risk in zip(W, outside, found.risk, strict=True):
        left = rho**2 * (1 - 2 * a @ inverse @ a / n) + a @ turned @ a
        np.testing.assert_allclose(2 * risk, left + (left + sigma**2) * k / (m - k - 1) + sigma**2, rtol=1e-12)


def test_trials_are_taken_one_by_one():
    W, outside = normal(2, 30, 2), 0.3 * np.abs(normal(2, 30, seed=1))
    both = lf.theory.similar_floor(W, outside, **SIZES)
    for trial in range(2):
        one = lf.theory.similar_floor(W[trial], outside[trial], **SIZES)
        for name in ("covariance", "distance", "risk"):
            np.testing.assert_allclose(getattr(both, name)[trial], getattr(one, name), rtol=1e-12)


def test_a_client_moves_the_estimate_at_most_onto_its_own_part():
    """With as few clients as columns nothing of a client's own part is left."""
    W, sigma = np.array([[1.5, 0.2], [-0.3, 1.1]]), 0.01
    found = lf.theory.similar_floor(W, [0.02, 0.03], dim=20, n_samples=50, noise_std=sigma)
    left = found.outside(W) ** 2
    np.testing.assert_allclose(2 * found.risk, left + (left + sigma**2) * 2 / 47 + sigma**2, rtol=1e-9)


@pytest.mark.long
def test_with_few_clients_each_moves_the_estimate_towards_its_own_part():
    """At 30 clients this lowers the excess risk by an eighth: without it the law is too high by that."""
    problem = lf.SimilarRepresentations(n_clients=30, dim=20, rank=2, deviation=0.4)
    result = lf.simulate(lf.BurerMonteiro(rank=2), problem, data=lf.FixedSamples(40), n_rounds=1, trials=60)
    inside, outside = parts(problem, 60)
    law = lf.theory.similar_floor(inside, outside, dim=20, n_samples=40, noise_std=0.0)
    G = inside.mT @ inside / 30 - (outside**2).mean(axis=-1)[:, None, None] / 18 * np.eye(2)
    own = np.vecdot(inside @ np.linalg.inv(G), inside) / 30
    planted = law.risk + outside**2 * own * (1 + 2 / 37)
    measured = result.metrics["risk"][:, -1]
    np.testing.assert_allclose(measured.mean(), law.risk.mean(), rtol=0.03)
    assert planted.mean() > 1.08 * measured.mean()


@pytest.mark.long
def test_the_second_moment_of_a_message_is_that_of_draws():
    """One client at B*: row q of X'(residual) head', with a part e outside; planted: m - k in place of m - k + 1."""
    k, m, sigma, draws = 2, 7, 0.5, 200_000
    e, a = np.array([0.8, 0.3]), np.array([1.0, -0.5])
    rng = np.random.default_rng(0)
    Z, X = rng.standard_normal((draws, m, k)), rng.standard_normal((draws, m, 2))
    y = Z @ a + X @ e + sigma * rng.standard_normal((draws, m))
    heads = np.linalg.solve(Z.mT @ Z, (Z.mT @ y[..., None]))[..., 0]
    rows = (X.mT @ (y - (Z @ heads[..., None])[..., 0])[..., None])[..., 0]
    found = rows[:, :1] ** 2 * heads**2  # row 0, diagonal of the outer product of the heads
    tau2 = e @ e + sigma**2
    fields = (m - k) * (np.diag(np.outer(a, a)) + tau2 / (m - k - 1))
    right, wrong = (fields * ((m - k + extra) * e[0] ** 2 + tau2) for extra in (1, 0))
    error = found.std(axis=0) / np.sqrt(draws)
    assert np.all(np.abs(found.mean(axis=0) - right) < 4 * error)
    assert np.all(np.abs(found.mean(axis=0) - wrong) > 6 * error)
    np.testing.assert_allclose(rows.mean(axis=0), (m - k) * e, atol=0.02)


@pytest.mark.long
@pytest.mark.parametrize(
    ("changes", "noise_std"),
    [({"deviation": 0.2, "outliers": 0.1}, 0.5), ({"deviation": 0.3}, 0.3), ({"deviation": 0.5}, 0.0)],
)
def test_runs_have_the_predicted_risk_and_distance(changes, noise_std):
    """300 clients: the neglected order is about 1 %; without the clients' own parts in B the risk is too small."""
    problem = lf.SimilarRepresentations(n_clients=300, dim=20, rank=2, noise_std=noise_std, **changes)
    result = lf.simulate(lf.BurerMonteiro(rank=2), problem, data=lf.FixedSamples(20), n_rounds=1, trials=40)
    inside, outside = parts(problem, 40)
    law = lf.theory.similar_floor(inside, outside, **SIZES | {"noise_std": noise_std})
    excess = result.metrics["risk"][:, -1] - noise_std**2 / 2
    np.testing.assert_allclose(excess.mean(), (law.risk.mean(axis=-1) - noise_std**2 / 2).mean(), rtol=0.015)
    measured = result.metrics["subspace_distance"][:, -1]
    error = measured.std(ddof=1) / np.sqrt(40)
    assert abs(measured.mean() - law.distance.mean()) < 4 * error + 0.02 * measured.mean()
    # A planted law: the parts outside, or those of the clients that are no outliers, are only label noise.
    label_noise = np.sqrt(noise_std**2 + np.median(outside**2))
    planted = lf.theory.fixed_sample_floor(inside, dim=20, n_samples=20, noise_std=label_noise)
    assert abs(measured.mean() - planted.distance.mean()) > 6 * error


def test_the_warning_begins_at_a_tangent_of_two_fifths():
    W, outside = np.ones((100, 1)), np.zeros(100)
    found = lf.theory.similar_floor(W, outside, **SIZES | {"noise_std": 3.0})
    assert 0.33 < found.distance < 0.4 / np.hypot(1.0, 0.4)
    with pytest.warns(RuntimeWarning, match=r"largest angle has a mean sine of 0\.(39|4)"):
        lf.theory.similar_floor(W, outside, **SIZES | {"noise_std": 3.4})


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"outside": [1.0, 1.0]}, ("outside", "one length for every client")),
        ({"outside": [9.0] * 6}, ("outside", "mean square of 81", "not the top-k subspace")),
        ({"n_samples": 3}, ("n_samples",)),
        ({"noise_std": -1.0}, ("noise_std",)),
    ],
)
def test_wrong_arguments_are_one_line(changes, fragments):
    arguments = {"W": normal(6, 2), "outside": np.zeros(6)} | SIZES | changes
    assert_one_line(
        lambda: lf.theory.similar_floor(arguments.pop("W"), arguments.pop("outside"), **arguments), fragments
    )
