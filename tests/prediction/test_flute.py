"""Predictions of FLUTE: rate, edge, best step and floor on fixed and on fresh samples."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line

THEORY = lf.theory


def flute(step_size, problem, data, **weights):
    algorithm = lf.FLUTE(rank=2, step_size=step_size, **weights)
    return lf.predict(algorithm, problem, data=data, n_rounds=9, trials=2)


def twice(step_size, problem, data):
    """Return the prediction of the same rounds by gradients of twice the size and half the step size."""
    return flute(step_size / 2, problem, data, server_step_size=step_size, gradient_factor=2)


def test_flute_has_its_rate_edge_best_step_and_floor_on_fixed_samples():
    problem, data = lf.UnderParameterized(n_clients=30, dim=10, gap=4.0, gap_after=2), lf.FixedSamples(200)
    truth = problem.truth(0, range(2))
    values = np.linalg.svd(truth.dense(), compute_uv=False)
    found, other = flute(0.01, problem, data), twice(0.01, problem, data)
    np.testing.assert_allclose(found.rate, THEORY.flute_local_rate(values, 2, 0.01), rtol=1e-12)
    np.testing.assert_allclose(found.stability_edge, 1 / values[:, 0], rtol=1e-12)
    # 1 - eta (lambda_k - lambda_(k+1)) = 2 eta lambda_1 - 1
    best = 2 / (2 * values[:, 0] + values[:, 1] - values[:, 2])
    np.testing.assert_allclose(found.best_step, best, rtol=1e-12)
    for row, step in zip(values, best, strict=True):
        least = THEORY.flute_local_rate(row, 2, step)
        assert all(THEORY.flute_local_rate(row, 2, share * step) > least for share in (0.99, 1.01))
    np.testing.assert_allclose(found.floor, THEORY.truncation_floor(truth, 2, 200), rtol=1e-12)
    assert found.floor.metric == "mean_truncation_error"
    np.testing.assert_array_equal(other.rate, found.rate)
    np.testing.assert_allclose(2 * other.stability_edge, found.stability_edge, rtol=1e-12)
    np.testing.assert_allclose(2 * other.best_step, found.best_step, rtol=1e-12)
    fedrep = lf.predict(lf.FedRep(rank=2, step_size=0.01), problem, data=data, n_rounds=9, trials=2)
    np.testing.assert_array_equal(fedrep.floor, found.floor)
    edge = float(found.stability_edge.value.min())
    assert flute(0.999 * edge, problem, data).floor.value.shape == (2,)
    beyond = flute(edge, problem, data)
    assert_one_line(lambda: beyond.floor, [f"1/lambda_1 = {edge:.4g}"], lf.NoPredictionError)


def test_flute_has_a_floor_and_an_edge_on_fresh_samples():
    problem = lf.UnderParameterized(n_clients=15, dim=8, gap=4.0, gap_after=2, noise_std=0.3)
    quiet = lf.UnderParameterized(n_clients=15, dim=8, spectrum=[2.0, 1.0])
    data = lf.FreshSamples(20)
    found, other = flute(0.005, problem, data), twice(0.005, problem, data)
    floor = THEORY.truncation_floor(problem.truth(0, range(2)), 2, 20, step_size=0.005)
    for one in (found, other):
        np.testing.assert_allclose(one.floor, floor)
    assert found.floor.metric == "mean_truncation_error"
    assert "first order" in found.floor.validity
    words = ["only for a ground truth of rank = 2 without label noise"]
    assert_one_line(lambda: found.stability_edge, words, lf.NoPredictionError)
    edge = THEORY.flute_stability_edge(quiet.truth(0, range(2)), 2, 20)
    np.testing.assert_allclose(flute(0.005, quiet, data).stability_edge, edge)
    np.testing.assert_allclose(twice(0.005, quiet, data).stability_edge, edge / 2)
    assert "too low" in flute(0.05, problem, lf.FreshSamples(2)).floor.validity


def given(spectrum, n, d, k, sigma=0.0, seed=0):
    """Return a ground truth with these singular values, and an initialisation at its truncation to rank k."""
    rng, r = np.random.default_rng(seed), len(spectrum)
    U, V = (np.linalg.qr(rng.standard_normal((size, r)))[0] for size in (d, n))
    root = np.sqrt(spectrum[:k])
    return lf.GivenTruth(B=U * spectrum, W=V, noise_std=sigma), (U[:, :k] * root, V[:, :k] * root)


@pytest.mark.parametrize(
    ("m", "share", "words"),
    [
        (20, 0.8, ["are few", "largest stable one on these n_samples = 20"]),
        (40, 0.9, ["are few", "largest stable one on these n_samples = 40"]),
        (10, 0.5, ["n_samples = 10 are few", "too low"]),
        (6, 0.2, ["n_samples = 6 are few", "too low"]),
        (400, 0.2, []),
        (400, 0.9, []),
        (200, 0.99, ["largest stable one on these n_samples = 200"]),
    ],
)
def test_few_samples_and_a_step_near_their_own_edge_are_doubted(m, share, words):
    truth = lf.SharedRepresentation(n_clients=20, dim=10, rank=3).truth(0, [0])
    problem = lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=0.5)
    top = np.linalg.svd(truth.dense()[0], compute_uv=False)[0]
    found = lf.predict(lf.FLUTE(rank=3, step_size=share / top), problem, data=lf.FixedSamples(m), n_rounds=1)
    text = "; ".join(found.warnings)
    assert bool(found.warnings) == bool(words)
    assert all(word in text for word in words)
    assert ("are few" in found.floor.validity) == ("are few" in text)


def compared(algorithm, problem, m, n_rounds, trials, seed=0):
    """Return the prediction, the root mean square of runs over the floor, its standard error, and all distances."""
    run = {"data": lf.FixedSamples(m), "n_rounds": n_rounds, "trials": trials, "seed": seed}
    found = lf.predict(algorithm, problem, **run)
    end = lf.simulate(algorithm, problem, metrics=["train_loss"], record_every=n_rounds, **run).final
    away = end.array("W") @ end.array("B").mT - problem.truth(0, [0]).truncated(algorithm.rank).dense()
    squares = np.square(away).sum(axis=-1).mean(axis=-1)
    ratio = np.sqrt(squares.mean()) / float(found.floor.value[0])
    return found, ratio, 0.5 * squares.std() / np.sqrt(trials) / squares.mean()


@pytest.mark.long
def test_doubted_floors_are_wrong_and_others_right():
    """At the truncation of rank 2, n = 10, d = 6: few samples, a step above the samples' edge, and neither."""
    problem, start = given(np.array([4.0, 3.0]), 10, 6, 2, 0.5)
    for m, share, right in ((8, 0.3, False), (400, 0.3, True), (60, 0.97, False)):
        found, ratio, error = compared(lf.FLUTE(rank=2, step_size=share / 4.0, init=start), problem, m, 1500, 24)
        assert (not found.warnings) == right
        assert (abs(np.log(ratio)) < 0.1 + 2.5 * error) == right


@pytest.mark.long
@pytest.mark.parametrize("seed", range(16))
def test_floors_without_a_warning_are_right_at_random(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 5))
    n, d = max(k, int(rng.choice([k, 10, 40]))), int(rng.integers(k, 14))
    r = k if seed % 2 else int(rng.integers(k, min(n, d) + 1))
    spectrum = np.sort(rng.uniform(1.0, 3.0, r))[::-1] * np.sqrt(n / r)
    spectrum[k:] = np.minimum(spectrum[k:] * rng.uniform(0.1, 0.9), 0.95 * spectrum[k - 1])
    problem, start = given(spectrum, n, d, k, float(rng.choice([0.1, 1.0, 5.0])), seed)
    m, share = int(k + 1 + rng.choice([30, 100, 300, 1000])), float(rng.choice([0.2, 0.7, 0.9, 0.97]))
    algorithm = lf.FLUTE(rank=k, step_size=share / spectrum[0], init=start)
    found, ratio, error = compared(algorithm, problem, m, 2000, 24, seed)
    assert found.warnings or abs(np.log(ratio)) < 0.1 + 2.5 * error


@pytest.mark.parametrize(("values", "share"), [([1.69], 0.338), ([3.0, 1.0], 0.2), ([3.0, 1.0], 0.9)])
def test_the_rate_without_other_directions_is_that_of_runs(values, share):
    """With k = n = d there is no gap: all modes have ``1 - eta (lambda_p + lambda_q)``."""
    d = len(values)
    problem, (B, W) = given(np.array(values), d, d, d)
    X = np.broadcast_to(np.sqrt(d) * np.eye(d), (d, d, d))  # A_i = I
    data = lf.GivenSamples(X, np.sqrt(d) * problem.truth(0, [0]).dense()[0])
    rng, step = np.random.default_rng(0), share / values[0]
    start = tuple(each + 1e-4 * rng.standard_normal(each.shape) for each in (B, W))
    algorithm = lf.FLUTE(rank=d, step_size=step, init=start)
    found = lf.predict(algorithm, problem, data=data, n_rounds=1)
    rate = max(abs(1 - 2 * step * value) for value in values)
    assert found.rate == pytest.approx(rate, rel=1e-12)
    assert found.best_step == pytest.approx(1 / (values[0] + values[-1]), rel=1e-12)
    assert not found.warnings
    run = lf.simulate(algorithm, problem, data=data, n_rounds=12, metrics=["mean_client_error"])
    error = run.metrics["mean_client_error"][0]
    assert (error[12] / error[6]) ** (1 / 6) == pytest.approx(rate, rel=0.02)


def test_weights_of_clients_that_differ_are_refused():
    """Such runs do not fall at the predicted rate; of equal numbers of samples the weights are equal."""
    problem = lf.UnderParameterized(n_clients=5, dim=4, spectrum=[3.0, 1.0])
    drawn = lf.FixedSamples(40).draw(problem)
    counts = (8, 40, 40, 20, 40)
    unequal = lf.GivenSamples(*([each[0, i, :m] for i, m in enumerate(counts)] for each in (drawn.X, drawn.y)))
    setting = {"n_rounds": 9, "problem": problem}
    one, other = (lf.FLUTE(rank=2, step_size=0.1, weights=weights) for weights in ("uniform", "samples"))
    words = ["no prediction of FLUTE", "weights = 'samples'", "different numbers of samples", "'uniform'"]
    assert_one_line(lambda: lf.predict(other, data=unequal, **setting), words, lf.NoPredictionError)
    for data in (unequal, drawn, lf.FixedSamples(40), lf.FreshSamples(40)):
        rate = lf.predict(one, data=data, **setting).rate
        assert data is unequal or lf.predict(other, data=data, **setting).rate == rate


def test_regressors_of_zero_and_large_steps_are_one_line():
    zero = lf.GivenTruth(B=[[1.0], [0.0]], W=np.zeros((3, 1)))
    for data in (lf.FixedSamples(5), lf.FreshSamples(5)):
        found = lf.predict(lf.FLUTE(rank=1, step_size=0.2), zero, data=data, n_rounds=1)
        for name in ("floor", "rate", "stability_edge"):
            words = ["regressors that are all 0", "lambda_1 = 0"]
            assert_one_line(lambda name=name, found=found: getattr(found, name), words, lf.NoPredictionError)
    problem = lf.UnderParameterized(n_clients=15, dim=8, spectrum=[2.0, 1.0])
    beyond = twice(2.0, problem, lf.FreshSamples(20))
    edge = 0.5 / np.linalg.svd(problem.truth(0, range(2)).dense(), compute_uv=False)[:, 0].max()
    assert_one_line(lambda: beyond.floor, ["step_size = 1:", f"1/lambda_1 = {edge:.4g}"], lf.NoPredictionError)
