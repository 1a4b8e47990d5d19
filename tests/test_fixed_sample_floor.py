"""FedRep's minimum on fixed samples: the equations by a loop, their solution against runs, and whom federation pays."""

import functools

import numpy as np
import pytest
from helpers import assert_one_line, normal

import linfed as lf
from linfed.theory.fedrep.fixed_samples import client_excess

SIZES = {"dim": 40, "n_samples": 20, "noise_std": 0.3}


def isotropic(n, k, trials=None):
    """Return heads of length sqrt(k) with second moment I."""
    W = lf.SharedRepresentation(n_clients=n, dim=k, rank=k, condition_number=1.0).truth(0, range(trials or 1)).W
    return W if trials else W[0]


def floor(W, **changes):
    return lf.theory.fixed_sample_floor(W, **SIZES | changes)


# --- the equations -------------------------------------------------------------------------------------------


def equations(W, V, C, *, dim, n_samples, noise_std):
    """Return both right-hand sides, client by client."""
    (n, k), m = W.shape, n_samples
    share, J, second = (dim - k) / (n * (m - k)), np.zeros((k, k)), np.zeros((k, k))
    for w in W:
        left, T = 1 + w @ V @ w, noise_std**2 + w @ C @ w
        J += np.outer(w, w) / left / n
        second += T * (np.outer(w, w) + T / (m - k - 1) * np.eye(k)) / left**2 / n
    return share * np.linalg.inv(J), share * np.linalg.inv(J) @ second @ np.linalg.inv(J)


@pytest.mark.parametrize("noise_std", [0.0, 0.3, 1.0])
def test_the_floor_solves_the_equations(noise_std):
    W = normal(90, 3) * [1.5, 1.0, 0.7]
    found = floor(W, noise_std=noise_std)
    V, C = equations(W, found.leverage, found.covariance, **SIZES | {"noise_std": noise_std})
    np.testing.assert_allclose(found.leverage, V, rtol=1e-9)
    np.testing.assert_allclose(found.covariance, C, rtol=1e-9, atol=1e-15)
    assert (noise_std == 0) == (found.covariance == 0).all() == (found.distance == 0) == (found.risk == 0).all()


@pytest.mark.parametrize(("n", "m", "noise_std"), [(12, 20, 0.3), (60, 8, 0.3), (40, 20, 1.0)])
def test_isotropic_heads_have_a_closed_form(n, m, noise_std):
    k = 3
    g, nu = 37 * k / (n * (m - k)), m - k - 1
    found = floor(isotropic(n, k), n_samples=m, noise_std=noise_std)
    u = (1 - g - np.sqrt((1 - g) ** 2 - 4 * g * noise_std**2 / nu)) / (2 * g / nu)
    np.testing.assert_allclose(k * found.leverage, g / (1 - g) * np.eye(k), rtol=0, atol=1e-7)
    np.testing.assert_allclose(k * found.covariance, (u - noise_std**2) * np.eye(k), rtol=0, atol=1e-7)


def test_the_first_order_is_the_limit_of_many_clients():
    W = normal(40, 3)
    for copies, gap in ((20, 3e-2), (2000, 3e-4)):
        many = np.tile(W, (copies, 1))
        whole, first = floor(many), floor(many, first_order=True)
        np.testing.assert_allclose(whole.covariance, first.covariance, rtol=gap)
        np.testing.assert_allclose(whole.risk, first.risk, rtol=gap)
    gamma = np.linalg.inv(W.T @ W / 40)
    expected = 0.09 * 37 / (80_000 * 17) * gamma @ (W.T @ W / 40 + 0.09 / 16 * np.eye(3)) @ gamma
    np.testing.assert_allclose(first.covariance, expected, rtol=1e-9)
    heads = W[:5]
    known = lf.theory.new_client_mean_risk(0.0, noise_std=0.3, rank=3, n_samples=20)
    np.testing.assert_allclose(whole.risk, known, rtol=2e-3)  # B* is known in the end
    np.testing.assert_allclose(whole.outside(heads) ** 2, np.einsum("ni,ij,nj->n", heads, expected, heads), rtol=1e-2)


def test_trials_are_taken_one_by_one():
    W = np.stack([normal(30, 3, seed=seed) for seed in range(3)])
    together = floor(W)
    for trial in range(3):
        alone = floor(W[trial])
        for name in ("covariance", "distance", "risk", "leverage"):
            np.testing.assert_allclose(getattr(together, name)[trial], getattr(alone, name), rtol=1e-9)
        np.testing.assert_allclose(together.outside(W)[trial], alone.outside(W[trial]), rtol=1e-9)


def test_only_the_span_matters():
    W, H = normal(30, 3), np.linalg.qr(normal(3, 3, seed=1))[0]
    one, other = floor(W), floor(W @ H)
    np.testing.assert_allclose(other.covariance, H.T @ one.covariance @ H, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(other.risk, one.risk, rtol=1e-9)
    np.testing.assert_allclose(other.distance, one.distance, rtol=1e-2)  # over its fixed draws


def test_a_client_of_the_training_pays_what_its_minimum_costs():
    """Against the minimiser of ||y - F w||^2/(1 + w'V w) itself, by the least eigenpair, for noise of either sign.

    Its mean is known to 1 %, and the law's order leaves 1 % out.
    """
    rng, runs, m, k, sigma = np.random.default_rng(0), 30_000, 16, 2, 0.02
    w, V = np.array([1.5, 0.5]), np.diag([0.1, 0.02])
    F, noise = rng.standard_normal((runs, m, k)), sigma * rng.standard_normal((runs, m))
    S, weight = F.mT @ F, np.diag([0.1, 0.02, 1.0])
    costs = np.zeros(runs)
    for y in (F @ w + noise, F @ w - noise):
        both = np.concatenate([F, y[..., None]], axis=-1)
        root = np.linalg.inv(np.linalg.cholesky(both.mT @ both))
        least = 1.0 / np.linalg.eigvalsh(root @ weight @ root.mT)[:, -1]
        moment = F.mT @ y[..., None]
        ridged, plain = (np.linalg.solve(A, moment)[..., 0] - w for A in (S - least[:, None, None] * V, S))
        costs += (np.square(ridged).sum(axis=-1) - np.square(plain).sum(axis=-1)) / 2.0
    assert costs.std() / runs**0.5 < 0.012 * costs.mean()
    expected = client_excess(w[None], V, np.zeros((k, k)), m, sigma**2)[0] - sigma**2 * k / (m - k - 1)
    assert expected == pytest.approx(costs.mean(), rel=0.035)


# --- against runs --------------------------------------------------------------------------------------------

NOISY = {"n": 200, "d": 40, "k": 3, "m": 10, "noise_std": 1.0}
MANY = {"n": 60, "d": 60, "k": 3, "m": 16, "noise_std": 0.3}


@functools.cache
def run(n, d, k, m, noise_std, trials=24, rounds=60):
    """Return truths and the end of FedRep from the truth, which is at the minimum."""
    problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=noise_std)
    truth = problem.truth(0, range(trials))
    steps = 1.2 / ((1 - k / m) * (1 + np.sqrt((d - k) * k / (n * (m - k)))) ** 2)
    result = lf.simulate(
        lf.FedRep(rank=k, step_size=steps, init=truth.B),
        problem,
        data=lf.FixedSamples(m),
        rounds=rounds,
        trials=trials,
        record_every=rounds // 2,
    )
    np.testing.assert_allclose(*result.metrics["risk"][:, 1:].T, rtol=3e-3)
    return truth, result


@pytest.mark.long
@pytest.mark.parametrize("setting", [NOISY, MANY], ids=["noisy", "many unknowns"])
def test_runs_end_where_the_law_says(setting):
    """A mean over runs is known to 2 or 3 %; the law is off by as much."""
    k, m, noise_std = (setting[name] for name in ("k", "m", "noise_std"))
    truth, result = run(**setting)
    told = {"dim": setting["d"], "n_samples": m, "noise_std": noise_std}
    law = lf.theory.fixed_sample_floor(truth.W, **told)
    first = lf.theory.fixed_sample_floor(truth.W, **told, first_order=True)
    excess, floor_ = result.client_risks().mean(axis=1) - noise_std**2 / 2, noise_std**2 / 2
    assert (result.metrics["subspace_distance"][:, -1] / law.distance).mean() == pytest.approx(1.0, abs=0.08)
    assert excess.mean() == pytest.approx((law.risk - floor_).mean(), rel=0.08)
    new = lf.theory.new_client_mean_risk(law.outside(truth.W), noise_std=noise_std, rank=k, n_samples=m) - floor_
    wrong = {"noisy": new, "many unknowns": first.risk - floor_}["noisy" if noise_std == 1.0 else "many unknowns"]
    assert excess.mean() > 1.04 * wrong.mean()  # a client of the training is no new one; the first order is too low


def test_new_clients_lose_what_the_law_says():
    truth, result = run(**MANY)
    law = lf.theory.fixed_sample_floor(truth.W, dim=60, n_samples=16, noise_std=0.3)
    heads = lf.SharedRepresentation(n_clients=60, dim=60, rank=3).new_clients(truth, 400, 1, range(24)).W
    expected = lf.theory.new_client_mean_risk(law.outside(heads), noise_std=0.3, rank=3, n_samples=20).mean()
    found = result.new_clients([20], clients=400, seed=1).mean() - 0.045
    assert found == pytest.approx(expected - 0.045, rel=0.06)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_as_many_clients_as_columns_are_alone(n):
    """Every predictor is then in reach, and the minimum of the empirical risk is each client's least squares."""
    problem = lf.SharedRepresentation(n_clients=n, dim=6, rank=3, noise_std=0.3)
    told = {"data": lf.FixedSamples(40), "trials": 2}
    alone = lf.simulate(lf.LocalOnly(), problem, rounds=1, **told).final.predictors()
    found = lf.simulate(lf.FedRep(rank=3, step_size=0.7, init="random"), problem, rounds=400, **told).final
    np.testing.assert_allclose(found.predictors(), alone, rtol=0, atol=1e-7)


# --- where it can be learned, and whom it pays ---------------------------------------------------------------

NOISY_SIZES = {"dim": 40, "rank": 3, "n_samples": 10, "noise_std": 1.0}


def edge(**changes):
    return lf.theory.fixed_sample_edge(**NOISY_SIZES | changes)


def pays(rival, **changes):
    return lf.theory.break_even_clients(rival, **NOISY_SIZES | changes)


def test_runs_from_the_truth_know_no_edge():
    """They end the farther the fewer clients there are; the equations for Gaussian heads end at 0.61 of the edge."""
    m, k, d = 10, 3, 40
    h = 1 / (m - k - 1)
    assert (d - k) * k / ((m - k) * (1 + 2 * h - 2 * np.sqrt(h * (1 + h)))) < 0.7 * edge()
    ends = []
    for share in (0.65, 1.35):
        n = round(share * edge())
        problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=1.0, condition_number=1.0)
        fedrep = lf.FedRep(rank=k, step_size=0.7, init=problem.truth(0, range(8)).B)
        told = {"data": lf.FixedSamples(m), "rounds": 300, "trials": 8, "record_every": 150}
        ends.append(np.median(lf.simulate(fedrep, problem, **told).metrics["subspace_distance"][:, -1]))
    assert 0.35 < ends[1] < 0.42
    assert 0.58 < ends[0] < 0.7


def test_without_noise_the_edge_is_where_samples_are_as_many_as_unknowns():
    assert edge(noise_std=0.0) == 37 * 3 / 7
    assert edge(noise_std=1e-3) == pytest.approx(37 * 3 / 7, rel=0.01)
    assert edge(noise_std=0.3) > 1.3 * 37 * 3 / 7
    assert edge(n_samples=100, noise_std=0.0) == 3
    assert edge(n_samples=4) == np.inf


def test_a_rival_that_does_nothing_leaves_the_edge():
    assert pays(1e6) == edge()
    assert edge() < pays(1.1) < pays(0.9) < pays(0.8)


def test_it_pays_from_where_the_risks_cross():
    """Far from the edge the law is that of the floor."""
    for n in (300, 1000, 40_000):
        rival = float(floor(isotropic(n, 3), n_samples=10, noise_std=1.0).risk.mean())
        assert pays(rival) == pytest.approx(n, rel=0.06 if n < 1000 else 0.04)


def test_it_never_pays_to_share_what_is_known():
    known = float(lf.theory.new_client_mean_risk(0.0, noise_std=1.0, rank=3, n_samples=10))
    assert pays(known) == np.inf
    assert pays(known + 1e-9) == pytest.approx(10 * pays(known + 1e-8), rel=1e-3)
    assert pays(2.0, n_samples=4) == np.inf
    assert np.isfinite(pays(2.0, n_samples=6, noise_std=0.3))


# --- where there is no law -----------------------------------------------------------------------------------


def test_it_warns_where_there_is_no_minimum():
    W = isotropic(6, 3)  # g = 1.09
    with pytest.warns(RuntimeWarning, match="no solution"):
        found = floor(W)
    assert all(np.isnan(part).all() for part in (found.covariance, found.distance, found.risk, found.outside(W)))
    both = np.stack([isotropic(30, 3), 1e-3 * isotropic(30, 3)])
    with pytest.warns(RuntimeWarning, match="in 1 of 2 trials"):
        found = floor(both)
    assert np.isnan(found.distance).tolist() == [False, True]


def test_it_warns_where_the_law_is_not_near():
    with pytest.warns(RuntimeWarning, match=r"mean sine of 0\.[345]"):
        floor(isotropic(30, 3), noise_std=1.15)
    with pytest.warns(RuntimeWarning, match="several minima"):
        floor(isotropic(30_000, 3), n_samples=5, noise_std=1.5)


def test_the_mean_is_infinite_with_few_samples():
    assert np.isinf(floor(isotropic(400, 3), n_samples=6).risk).all()
    assert np.isfinite(floor(isotropic(400, 3), n_samples=7).risk).all()
    assert (floor(isotropic(400, 3), n_samples=6, noise_std=0.0).risk == 0).all()


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"W": normal(2, 3)}, ["W of shape (2, 3)", "span"]),
        ({"W": normal(3)}, ["W has shape (3,)"]),
        ({"n_samples": 4}, ["n_samples = 4", "rank + 2 = 5"]),
        ({"dim": 5}, ["dim = 5", "2 rank"]),
        ({"noise_std": -1.0}, ["noise_std = -1.0"]),
        ({"first_order": 1}, ["first_order = 1"]),
    ],
)
def test_bad_arguments(changes, fragments):
    arguments = {"W": normal(9, 3), **SIZES} | changes
    assert_one_line(lambda: lf.theory.fixed_sample_floor(arguments.pop("W"), **arguments), fragments)


def test_bad_arguments_of_what_follows():
    for call in (edge, functools.partial(pays, 1.0)):
        assert_one_line(lambda call=call: call(rank=0), ["rank = 0"])
        assert_one_line(lambda call=call: call(dim=4), ["dim = 4"])
        assert_one_line(lambda call=call: call(noise_std=-1.0), ["noise_std = -1.0"])
        assert_one_line(lambda call=call: call(n_samples=0), ["n_samples = 0"])
    assert_one_line(lambda: pays(-1.0), ["rival_risk = -1.0"])
    assert_one_line(lambda: floor(normal(90, 3)).outside(normal(90, 2)), ["W has shape (90, 2)"])
