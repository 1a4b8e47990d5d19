"""The risk of a single model, and the law of a new client's risk, against draws of samples and exact heads."""

import functools

import numpy as np
import pytest
import scipy.stats

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, normal

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
NAN, INF = float("nan"), float("inf")

# --- the floor of a single model ---------------------------------------------------------------------------------

FLOORS = {
    "B, W": {"B": normal(3, 5, 2), "W": normal(3, 6, 2, seed=1)},
    "S": {"S": normal(6, 5, seed=2)},
    "B, W, S": {"B": normal(5, 2), "W": normal(6, 2, seed=1), "S": normal(6, 5, seed=2)},
    "Phi, B": {"Phi": normal(3, 6, 5, seed=2), "B": normal(5, 2)},
    "one client": {"Phi": normal(1, 5)},
    "equal clients": {"Phi": np.tile(normal(5), (6, 1))},
}

COVARIANCE = np.diag([1.0, 2.0, 0.5, 3.0, 0.2]) + 0.1


@pytest.mark.parametrize(
    ("form", "covariance"), [*((form, COVARIANCE) for form in FLOORS), ("B, W", None), ("B, W, S", 2.0)]
)
def test_the_floor_is_the_risk_of_the_mean_and_nothing_is_below(form, covariance):
    problem = lf.GivenTruth(**FLOORS[form], noise_std=0.3, design=lf.Gaussian(covariance=covariance))
    truth = problem.truth(0, range(3))
    floors = lf.theory.single_model_floor(truth)
    assert floors.shape == (3,)
    matrix = np.eye(5) * (1.0 if covariance is None else covariance) if np.ndim(covariance) == 0 else covariance
    rng = np.random.default_rng(0)
    for floor, Phi in zip(floors, truth.dense(), strict=True):
        mean = Phi.mean(axis=0)
        risk = functools.partial(ref.risk, Phi=Phi, covariance=matrix, noise_std=0.3)
        np.testing.assert_allclose(floor, risk(Theta=[mean] * len(Phi)), **TOLERANCE)
        assert form not in ("one client", "equal clients") or floor == pytest.approx(0.3**2 / 2, rel=1e-12)
        for size in (1e-3, 0.1, 10.0):
            for _ in range(5):
                change = size * rng.standard_normal(5)
                above = risk(Theta=[mean + change] * len(Phi)) - floor
                np.testing.assert_allclose(above, 0.5 * change @ matrix @ change, rtol=1e-6, atol=1e-12)


SINGLE = {
    "FedAvg, 3 local steps": (lf.FedAvg(step_size=0.5, local_steps=3), 60),
    "FedAvg, two layers": (lf.FedAvg(step_size=0.3, rank=2), 300),
    "pooled": (lf.PooledLeastSquares(), 1),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SINGLE)
def test_single_models_approach_their_floor_as_samples_grow(name):
    problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2, noise_std=0.3)
    floor, (algorithm, rounds) = lf.theory.single_model_floor(problem.truth(0, range(3))), SINGLE[name]
    gaps = []
    for m in (20, 200, 2000):
        result = lf.simulate(algorithm, problem, data=lf.FixedSamples(m), n_rounds=rounds, trials=3, metrics=["risk"])
        gaps.append((result.metrics["risk"][:, -1] / floor - 1).mean())
        assert (result.metrics["risk"][:, -1] >= floor).all()
    assert gaps[0] > 3 * gaps[1] > 9 * gaps[2]  # like 1/m
    assert gaps[2] < 3e-3


# --- the law of a new client's risk ------------------------------------------------------------------------------


def drawn_excess(rho, *, noise_std, rank, n_samples, seed=0):
    """Return the excess risk of clients with these rho: samples, labels, exact heads and errors, one by one."""
    d, count, rng = rank + 3, len(rho), np.random.default_rng(seed)
    B = ref.qr_positive(rng.standard_normal((d, rank)))[0]
    beyond = rng.standard_normal((count, d))
    beyond -= beyond @ B @ B.T
    beyond *= (rho / np.linalg.norm(beyond, axis=1))[:, None]
    phi = rng.standard_normal((count, rank)) @ B.T + beyond
    X = rng.standard_normal((count, n_samples, d))
    y = np.vecdot(X, phi[:, None]) + noise_std * rng.standard_normal((count, n_samples))
    Q, R = np.linalg.qr(X @ B)
    w = np.linalg.solve(R, (y[:, None, :] @ Q)[:, 0, :, None])[..., 0]
    return 0.5 * np.square(w @ B.T - phi).sum(axis=1)


def distance(excess, rho, **law):
    """Return how far the law's quantiles are off, as shares: at most the Kolmogorov-Smirnov statistic."""
    levels = np.arange(0.02, 0.99, 0.03)
    quantiles = [lf.theory.new_client_excess_quantile(q, rho, **law) for q in levels]
    return max(abs((excess <= x).mean() - q) for q, x in zip(levels, quantiles, strict=True))


K = 3

MIXTURES = {"noise alone": [0.0], "one rho": [0.7], "a mixture": [0.0, 0.01, 0.4, 2.0, 0.4], "no noise": [0.3, 1.0]}


@pytest.mark.long
@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("m", [K, K + 1, K + 3, 5 * K])
def test_excess_risks_follow_the_law(mixture, m):
    """One-sample Kolmogorov-Smirnov: a right law is rejected at fewer than one seed in 1000.

    The power is shown by laws that are nearly right: other degrees of freedom, and a longer error outside.
    """
    rho = np.tile(MIXTURES[mixture], 12_000 // len(MIXTURES[mixture]))
    law = {"noise_std": 0.0 if mixture == "no noise" else 0.5, "rank": K}
    excess = drawn_excess(rho, n_samples=m, **law)
    critical = scipy.stats.kstwo.isf(1e-3, len(rho))
    some = np.array(MIXTURES[mixture])
    assert distance(excess, some, n_samples=m, **law) < critical
    assert distance(excess, some, n_samples=m + K - 1, **law) > critical  # (k, m) for (k, m - k + 1)
    if mixture != "noise alone":
        assert distance(excess, 1.2 * some, n_samples=m, **law) > critical


@pytest.mark.parametrize("m", [K, K + 1])
def test_the_mean_is_infinite_at_k_and_k_plus_one_unless_nothing_is_left_to_explain(m):
    law = {"rank": K, "n_samples": m}
    rho = np.array([[0.0, 0.5]])
    assert lf.theory.new_client_mean_risk(rho, noise_std=0.0, **law).tolist() == [[0.0, INF]]
    assert lf.theory.new_client_mean_risk(rho, noise_std=0.1, **law).tolist() == [[INF, INF]]
    assert lf.theory.new_client_mean_risk(0.5, noise_std=0.0, rank=K, n_samples=K + 2) == pytest.approx(0.5)
    medians = [lf.theory.new_client_excess_quantile(0.5, rho, noise_std=0.1, rank=K, n_samples=n) for n in (m, m + 1)]
    assert 0 < medians[1] < medians[0] < INF


def test_the_mean_risk_of_a_new_client_by_hand():
    rho, sigma, k, m = np.array([[0.0, 0.3], [1.7, 0.9]]), 0.4, 3, 11
    wanted = 0.5 * (rho**2 + 3 * (rho**2 + 0.16) / 7) + 0.08
    found = lf.theory.new_client_mean_risk(rho, noise_std=sigma, rank=k, n_samples=m)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


LENGTHS = {
    "a mixture": [[0.1, 1.0], [2.0, 0.0], [0.4, 0.4]],
    "one client": [0.4],
    "equal clients": [0.4] * 7,
    "nearly equal clients": [0.4, 0.4 + 1e-9],
    "short lengths": [1e-7, 1e-6, 2e-6],
    "long lengths": [100.0, 1e3, 2e3],
}


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("name", LENGTHS)
def test_the_quantile_is_where_the_distribution_function_is_q(name, noise):
    """A mixture of Fisher's laws, client by client."""
    rho, k, m = np.array(LENGTHS[name]), 2, 6
    noise *= rho.max()
    law = scipy.stats.f(k, m - k + 1)
    for q in (0.2, 0.45, 0.95, 0.999):
        found = lf.theory.new_client_excess_quantile(q, rho, noise_std=noise, rank=k, n_samples=m)
        below = 0.0
        for length in rho.ravel():
            tau2 = length**2 + noise**2
            share = law.cdf((2 * found - length**2) / (tau2 * k / (m - k + 1))) if tau2 else 1.0
            below += share / rho.size
        assert below == pytest.approx(q, rel=1e-8)


def test_clients_that_are_fitted_exactly_lose_nothing():
    """If half of the clients are, the law has an atom at 0."""
    law = {"noise_std": 0.0, "rank": 2, "n_samples": 5}
    quantile = lf.theory.new_client_excess_quantile
    assert quantile(0.2, [0.0, 1.0], **law) == quantile(0.3, [0.0, 1.0], **law) == 0.0
    assert quantile(0.7, [0.0, 1.0], **law) == pytest.approx(quantile(0.4, [1.0], **law), rel=1e-8)
    assert quantile(0.99, [0.0, 0.0], **law) == 0.0
    assert lf.theory.new_client_mean_risk(0.0, noise_std=0.0, rank=2, n_samples=9) == 0.0
    assert lf.theory.new_client_mean_risk([0.0], noise_std=0.2, rank=2, n_samples=10**9) == pytest.approx(0.02)


def test_lengths_outside_are_what_least_squares_leaves():
    B, Phi = normal(3, 6, 2), normal(3, 5, 6, seed=1)
    lengths = lf.theory.outside_length(B, Phi)
    assert lengths.shape == (3, 5)
    for trial, client in np.ndindex(3, 5):
        phi = Phi[trial, client]
        left = phi - B[trial] @ np.linalg.lstsq(B[trial], phi)[0]
        assert lengths[trial, client] == pytest.approx(np.linalg.norm(left), rel=1e-12)
    np.testing.assert_allclose(lf.theory.outside_length(B[1], Phi[1]), lengths[1], **TOLERANCE)
    np.testing.assert_allclose(lf.theory.outside_length(B * [1e-9, 1e9], Phi), lengths, **TOLERANCE)


def test_under_a_covariance_the_mean_risk_is_that_of_whitened_lengths():
    """Against 4,000 fits: 4.5 standard errors are 7e-6 false alarms; the unwhitened length is far off."""
    design = lf.Gaussian(covariance=np.geomspace(0.2, 5.0, 5))
    B, phi, m, sigma = np.linalg.qr(normal(5, 2))[0], normal(5, seed=1), 9, 0.3
    X = normal(4000, m, 5, seed=2) * np.sqrt(design.covariance)
    y = X @ phi + sigma * normal(4000, m, seed=3)
    off = np.linalg.pinv(X @ B) @ y[..., None]
    risks = 0.5 * ((B @ off)[..., 0] - phi) ** 2 @ design.covariance + 0.5 * sigma**2

    def predicted(B, phi):
        rho = np.linalg.norm(phi - B @ np.linalg.lstsq(B, phi)[0])
        return lf.theory.new_client_mean_risk(rho, noise_std=sigma, rank=2, n_samples=m)

    error = 4.5 * risks.std() / np.sqrt(4000)
    assert abs(risks.mean() - predicted(design.root_apply(B), design.root_apply(phi[:, None])[:, 0])) < error
    assert abs(risks.mean() - predicted(B, phi)) > 5 * error


# --- invalid calls -----------------------------------------------------------------------------------------------


def mean(outside=1.0, **changes):
    return lf.theory.new_client_mean_risk(outside, **{"noise_std": 0.1, "rank": 3, "n_samples": 8} | changes)


def quantile(q=0.5, outside=1.0, **changes):
    return lf.theory.new_client_excess_quantile(q, outside, **{"noise_std": 0.1, "rank": 3, "n_samples": 8} | changes)


def outside(**changes):
    return lf.theory.outside_length(**{"B": np.eye(3, 2), "Phi": np.ones((4, 3))} | changes)


BAD = [
    *(
        (call, changes, fragments)
        for call in (mean, quantile)
        for changes, fragments in (
            ({"noise_std": -0.1}, ["noise_std = -0.1"]),
            ({"n_samples": 2}, ["n_samples = 2"]),
            ({"outside": -1.0}, ["outside must contain finite numbers"]),
            ({"outside": [0.5, NAN]}, ["outside must contain finite numbers"]),
        )
    ),
    (quantile, {"q": 0.0}, ["q = 0.0"]),
    (quantile, {"q": 1.0}, ["q = 1.0"]),
    (outside, {"B": np.ones(3)}, ["B has shape (3,)", "(d, k)"]),
    (outside, {"Phi": np.ones(3)}, ["Phi has shape (3,)", "(n, d)"]),
    (outside, {"Phi": np.ones((4, 5))}, ["Phi has shape (4, 5)", "(4, 3)"]),
    (outside, {"Phi": np.ones((2, 4, 3))}, ["Phi has shape (2, 4, 3)", "(4, 3)"]),
]


@pytest.mark.parametrize(("call", "changes", "fragments"), BAD)
def test_invalid_arguments_are_one_line(call, changes, fragments):
    call()
    assert_one_line(lambda: call(**changes), fragments)


def test_as_many_samples_as_columns_are_enough():
    assert 0 < quantile(n_samples=3) < mean(n_samples=3) == INF
