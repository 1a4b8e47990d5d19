"""FedRep's minimum on fixed samples: the predicted distance and risks, against minimisers, new clients and runs."""

import math

import numpy as np
import pytest
from scipy import optimize

import linfed as lf
from tests.helpers import assert_one_line, normal
from tests.theory.fedrep.runs import isotropic

SIZES = {"dim": 40, "n_samples": 20, "noise_std": 0.3}


def floor(W, **changes):
    return lf.theory.fixed_sample_floor(W, **SIZES | changes)


@pytest.mark.parametrize(("n", "m"), [(12, 20), (60, 8)])
def test_without_noise_isotropic_heads_have_a_closed_form(n, m):
    k = 3
    g = 37 * k / (n * (m - k))
    found = floor(isotropic(n, k), n_samples=m, noise_std=0.0)
    np.testing.assert_allclose(k * found.leverage, g / (1 - g) * np.eye(k), rtol=0, atol=1e-7)
    assert found.replicon == pytest.approx(g, rel=1e-4)
    assert (found.covariance == 0).all()
    assert found.distance == found.empirical_risk == 0
    np.testing.assert_allclose([found.risk, *found.drawn_risks], 0.0, atol=1e-20)
    slight = floor(isotropic(n, k), n_samples=m, noise_std=1e-7)
    assert slight.replicon == pytest.approx(g, rel=5e-3)
    np.testing.assert_allclose(slight.covariance, 1e-14 * slight.leverage, rtol=0, atol=0.02e-14 / k)


def test_many_clients_have_the_first_order():
    W = normal(40, 3)
    for copies, gap in ((20, 0.05), (2000, 0.02)):
        many = np.tile(W, (copies, 1))
        whole, first = floor(many), lf.theory.similar_floor(many, np.zeros(len(many)), **SIZES)
        np.testing.assert_allclose(whole.covariance, first.covariance, rtol=0, atol=gap * first.covariance.max())
        assert whole.risk == pytest.approx(first.risk.mean(), rel=gap)
    assert whole.empirical_risk == pytest.approx(0.045 * 17 / 20, rel=2e-3)


@pytest.mark.long
def test_trials_are_taken_one_by_one():
    W = np.stack([normal(30, 3, seed=seed) for seed in range(3)])
    together = floor(W)
    for trial in range(3):
        alone = floor(W[trial])
        for name in ("covariance", "distance", "empirical_risk", "risk", "drawn_risks", "leverage", "replicon"):
            np.testing.assert_array_equal(getattr(together, name)[trial], getattr(alone, name))
        np.testing.assert_allclose(together.outside(W)[trial], alone.outside(W[trial]), rtol=1e-9)


def test_only_the_span_matters():
    W, H = normal(30, 3), np.linalg.qr(normal(3, 3, seed=1))[0]
    one, other = floor(W), floor(W @ H)
    scale = one.covariance.max()
    np.testing.assert_allclose(other.covariance, H.T @ one.covariance @ H, rtol=0, atol=0.03 * scale)
    assert other.risk == pytest.approx(one.risk, rel=0.01)
    assert other.distance == pytest.approx(one.distance, rel=0.02)  # over its fixed draws


# --- against the minimiser ---------------------------------------------------------------------------------------


def minimum(rng, W, d, m, noise_std):
    """Return the tangents' Gram matrix, empirical risk and clients' squared errors at the minimum that L-BFGS finds.

    The heads are exact, and L-BFGS starts at B*.
    """
    n, k = W.shape
    X = rng.standard_normal((n, m, d))
    y = np.einsum("nmk,nk->nm", X[:, :, :k], W) + noise_std * rng.standard_normal((n, m))
    rows = X.reshape(-1, d)

    def heads(B):
        H = (rows @ B).reshape(n, m, k)
        w = np.linalg.solve(H.mT @ H, H.mT @ y[..., None])
        return w[..., 0], (H @ w)[..., 0] - y

    def objective(values):
        w, r = heads(values.reshape(d, k))
        return 0.5 * np.square(r).sum(), (rows.T @ (r[..., None] * w[:, None, :]).reshape(-1, k)).ravel()

    options = {"maxiter": 3000, "maxcor": 20, "gtol": 1e-6 * n * m, "ftol": 1e-12}
    found = optimize.minimize(objective, np.eye(d, k).ravel(), jac=True, method="L-BFGS-B", options=options)
    B = np.linalg.qr(found.x.reshape(d, k))[0]
    D = B[k:] @ np.linalg.inv(B[:k])
    wrong = heads(B)[0] @ B.T
    wrong[:, :k] -= W
    return D.T @ D, found.fun / (n * m), np.square(wrong).sum(axis=1)


def first_law(W, d, m, noise_std):
    """Return C of the narrower law: leave one out with Gaussian errors of the heads, to first order in V."""
    (n, k), share = W.shape, (d - W.shape[1]) / (len(W) * (m - W.shape[1]))
    V, C = np.zeros((2, k, k))
    for _ in range(500):
        seen = 1.0 / (1.0 + np.vecdot(W @ V, W))
        inverse, T = np.linalg.inv((W * seen[:, None]).T @ W / n), noise_std**2 + np.vecdot(W @ C, W)
        noise = (W * (T * seen**2)[:, None]).T @ W / n + np.mean((T * seen) ** 2) / (m - k - 1) * np.eye(k)
        V, C = share * inverse, share * inverse @ noise @ inverse
    return C


MINIMA = {
    "many unknowns": {"n": 60, "d": 60, "k": 3, "m": 16, "noise_std": 0.3},
    "noisy": {"n": 150, "d": 100, "k": 2, "m": 10, "noise_std": 1.0},
    "unequal heads": {"n": 60, "d": 100, "k": 2, "m": 20, "noise_std": 0.4, "lengths": (1.6, 0.5)},
    "m = k + 2": {"n": 300, "d": 60, "k": 2, "m": 4, "noise_std": 0.3},
    "d = 2k": {"n": 50, "d": 8, "k": 4, "m": 20, "noise_std": 0.5},
    "n = k": {"n": 3, "d": 60, "k": 3, "m": 200, "noise_std": 0.3},
    "near the edge": {"n": 20, "d": 200, "k": 2, "m": 40, "noise_std": 0.5},
}

LONG = dict.fromkeys(MINIMA, 60) | {"d = 2k": 200}


def compared(name, trials):
    """Compare the law with the minima of data sets that share their heads."""
    n, d, k, m, noise_std = (MINIMA[name][key] for key in ("n", "d", "k", "m", "noise_std"))
    rng = np.random.default_rng(0)
    W = rng.standard_normal((n, k)) * MINIMA[name].get("lengths", 1.0)
    law = lf.theory.fixed_sample_floor(W, dim=d, n_samples=m, noise_std=noise_std)
    assert law.replicon < 0.9
    found = [minimum(rng, W, d, m, noise_std) for _ in range(trials)]
    gram, risks = np.array([one[0] for one in found]), np.array([one[1] for one in found])
    traces = np.trace(gram, axis1=1, axis2=2)
    error = traces.std(ddof=1) / trials**0.5
    return law, W, (gram, traces, error), risks, np.array([one[2] for one in found])


@pytest.mark.parametrize(
    ("name", "trials"), [("many unknowns", 24), *(pytest.param(*one, marks=pytest.mark.long) for one in LONG.items())]
)
def test_the_minimum_is_where_the_law_puts_it(name, trials):
    """The law may be off by 2 %, and its distance by 1 %; the error of the mean over data sets is added."""
    law, W, (gram, traces, error), risks, errors = compared(name, trials)
    n, d, k, m, noise_std = (MINIMA[name][key] for key in ("n", "d", "k", "m", "noise_std"))
    assert abs(traces.mean() - np.trace(law.covariance)) < 3 * error + 0.02 * traces.mean()
    spread = np.diagonal(gram, axis1=1, axis2=2).std(axis=0, ddof=1) / trials**0.5
    gap = np.abs(np.diag(gram.mean(axis=0)) - np.diag(law.covariance))
    assert (gap < 3.5 * spread + 0.03 * np.diag(law.covariance)).all()
    sines = np.sqrt(np.linalg.eigvalsh(gram)[:, -1])
    sines /= np.hypot(1.0, sines)
    assert abs(sines.mean() - law.distance) < 3 * sines.std(ddof=1) / trials**0.5 + 0.01 * law.distance
    assert abs(risks.mean() - law.empirical_risk) < 3 * risks.std(ddof=1) / trials**0.5 + 0.01 * risks.mean()
    levels = (0.25, 0.5, 0.75, 0.9)
    picks = np.random.default_rng(0).integers(trials, size=(200, trials))
    spread = np.std([np.quantile(errors[pick], levels) for pick in picks], axis=0)
    gap = np.abs(np.quantile(errors, levels) - 2 * np.quantile(law.drawn_risks, levels) + noise_std**2)
    if n > k:  # with k clients the span differs between data sets by more than the law allows for
        assert (gap < 3.5 * spread + 0.02 * np.quantile(errors, levels)).all()
    if m > k + 4:
        spread = np.median(errors.mean(axis=1)[picks], axis=1).std()
        gap = abs(np.median(errors.mean(axis=1)) - 2 * law.risk + noise_std**2)
        assert gap < 3.5 * spread + 0.02 * errors.mean()
    if name in ("many unknowns", "noisy"):  # planted: the first order
        first = lf.theory.similar_floor(W, np.zeros(n), dim=d, n_samples=m, noise_std=noise_std)
        assert traces.mean() - np.trace(first.covariance) > 5 * error
    if name in ("noisy", "near the edge") and trials > 30:  # planted: the narrower law
        assert traces.mean() - np.trace(first_law(W, d, m, noise_std)) > 4 * error


# --- against runs ------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("n", "m", "noise_std"), [(80, 12, 0.3), (150, 8, 0.5), (40, 25, 0.3), (200, 10, 1.0)])
def test_new_clients_have_the_predicted_mean_risk(n, m, noise_std):
    """For several numbers of samples of new clients; planted: the first order of the subspace, and B* itself."""
    d, k, trials, counts = 60, 3, 16, (5, 8, 40)
    problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=noise_std)
    truth = problem.truth(0, range(trials))
    data = {"data": lf.FixedSamples(m), "n_rounds": 1, "trials": trials}
    result = lf.simulate(lf.BurerMonteiro(rank=k, init=truth.B, tolerance=1e-8), problem, **data)
    sizes = {"dim": d, "n_samples": m, "noise_std": noise_std}
    law = lf.theory.fixed_sample_floor(truth.W, **sizes)
    first = lf.theory.similar_floor(truth.W, np.zeros((trials, n)), **sizes)
    heads = problem.new_clients(truth, 400, 1, range(trials)).W
    outside = lf.theory.outside_length(result.final.B, problem.new_clients(truth, 400, 1, range(trials)).dense())
    for count in counts:
        each = {"noise_std": noise_std, "rank": k, "n_samples": count}
        # given B, the mean over a new client's samples is exact: the only noise is that of B
        measured, expected, planted, known = (
            lf.theory.new_client_mean_risk(part, **each).mean(axis=-1) - noise_std**2 / 2
            for part in (outside, law.outside(heads), first.outside(heads), np.zeros_like(outside))
        )
        ratio = measured / expected
        error = ratio.std(ddof=1) / trials**0.5
        assert abs(ratio.mean() - 1.0) < 3 * error + 0.01
        if noise_std < 1.0 or count > 5:  # otherwise the error of the head hides that of B
            assert all((measured / wrong).mean() > 1.0 + 3 * error for wrong in (planted, known))
    run = result.new_clients([counts[-1]], clients=400, seed=1).mean(axis=-1).squeeze() - noise_std**2 / 2
    np.testing.assert_allclose((run / measured).mean(), 1.0, rtol=0, atol=0.02)


@pytest.mark.long
@pytest.mark.parametrize("n", [1, 2, 3])
def test_as_many_clients_as_columns_are_alone(n):
    """Every predictor is then in reach, and the minimum of the empirical risk is each client's least squares."""
    problem = lf.SharedRepresentation(n_clients=n, dim=6, rank=3, noise_std=0.3)
    told = {"data": lf.FixedSamples(40), "trials": 2}
    alone = lf.simulate(lf.LocalOnly(), problem, n_rounds=1, **told).final.predictors()
    found = lf.simulate(lf.FedRep(rank=3, step_size=0.7, init="random"), problem, n_rounds=400, **told).final
    np.testing.assert_allclose(found.predictors(), alone, rtol=0, atol=1e-7)


# --- samples that a number of rounds needs -----------------------------------------------------------------------


def needed(step_size=0.25, **changes):
    run = {"dim": 60, "rank": 2, "n_clients": 20, "delta": 0.9, "level": 0.01, "n_rounds": 100}
    return lf.theory.fixed_samples_needed(step_size, **run | changes)


@pytest.mark.parametrize(
    ("step_size", "changes", "expected"),
    [
        (1.0, {}, 29.2021),
        (0.1, {"n_rounds": 5000, "dim": 1000, "n_clients": 4}, 573.803),
        (0.25, {"n_rounds": 1000, "dim": 200, "rank": 3, "n_clients": 10}, 75.734),
    ],
)
def test_fixed_samples_needed_where_powers_would_underflow_or_overflow(step_size, changes, expected):
    assert needed(step_size, **changes) == pytest.approx(expected, rel=1e-5)


def test_fixed_samples_needed_falls_with_the_rounds():
    assert needed(n_rounds=1) == math.inf
    assert needed(n_rounds=40) > needed(n_rounds=100) > needed(n_rounds=1000) > 2


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"n_clients": 1}, ["n_clients = 1", "at least"]),
        ({"level": 0.9}, ["level = 0.9 must be below delta = 0.9"]),
        ({"delta": 1.0}, ["delta"]),
        ({"dim": 2}, ["dim = 2"]),
    ],
)
def test_invalid_arguments_of_fixed_samples_needed_are_one_line(changes, fragments):
    assert_one_line(lambda: needed(**changes), fragments)


def test_fixed_samples_needed_with_large_steps_and_near_the_start():
    """With eta = 2.5 many samples diverge, since 1 - eta < -1, but few leave only a part 1 - k/m of the gradient."""
    assert 2 < needed(2.5, n_clients=2000) < 3
    for m, reached in ((3, True), (30, False)):
        problem = lf.SharedRepresentation(n_clients=400, dim=60, rank=2, condition_number=1.0)
        algorithm = lf.FedRep(rank=2, step_size=2.5, init=lf.AtDistance(0.9))
        run = lf.simulate(algorithm, problem, data=lf.FixedSamples(m), n_rounds=100, metrics=["subspace_distance"])
        assert bool(run.metrics["subspace_distance"][0, -1] < 0.01) is reached
    assert needed(n_clients=2000, level=0.8999) == 2.0


def test_fixed_samples_needed_after_one_round_and_after_very_many():
    """One round leaves a mean square with two moments of the spectrum; many leave the directions without samples."""
    d, k, n, eta = 60, 2, 20, 0.6
    share = (0.49 / 0.51) / (0.81 / 0.19)
    m = needed(eta, n_rounds=1, level=0.7)
    c, variance = 1 - k / m, (d - k) * k / (n * (m - k))
    assert 1 - 2 * eta * c + (eta * c) ** 2 * (1 + variance) == pytest.approx(share, rel=1e-9)
    m = needed(0.05, n_rounds=10**7, level=0.7)
    assert m == pytest.approx(k + (d - k) * k * (1 - share) / n, rel=1e-6)
    assert np.isfinite(needed(eta, n_rounds=1, level=0.7, dim=3))


# --- where there is no law ---------------------------------------------------------------------------------------


def test_it_warns_where_there_is_no_minimum():
    W = isotropic(6, 3)  # g = 1.09
    with pytest.warns(RuntimeWarning, match="no solution"):
        found = floor(W)
    assert all(np.isnan(part).all() for part in (found.covariance, found.distance, found.risk, found.outside(W)))
    both = np.stack([isotropic(30, 3), 1e-3 * isotropic(30, 3)])
    with pytest.warns(RuntimeWarning, match="in 1 of 2 trials"):
        found = floor(both)
    assert np.isnan(found.distance).tolist() == [False, True]


def test_it_warns_where_the_equations_are_not_stable():
    with pytest.warns(RuntimeWarning, match="replicon radius is [1-9]"):
        lf.theory.fixed_sample_floor(isotropic(150, 2), dim=100, n_samples=8, noise_std=1.0)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"W": normal(2, 3)}, ["W of shape (2, 3)", "span"]),
        ({"W": normal(3)}, ["W has shape (3,)"]),
        ({"n_samples": 4}, ["n_samples = 4", "rank + 2 = 5"]),
        ({"dim": 5}, ["dim = 5", "2 rank"]),
    ],
)
def test_invalid_arguments_are_one_line(changes, fragments):
    arguments = {"W": normal(9, 3), **SIZES} | changes
    assert_one_line(lambda: lf.theory.fixed_sample_floor(arguments.pop("W"), **arguments), fragments)


def test_heads_of_another_rank_have_no_lengths_outside():
    assert_one_line(lambda: floor(normal(90, 3)).outside(normal(90, 2)), ["W has shape (90, 2)"])
