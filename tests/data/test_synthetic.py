"""Synthetic(alpha, beta) of the FedProx paper: sizes, distributions, seeds, what its parameters do, and errors."""

import math

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.data import synthetic
from linfed.numerics.streams import Stream, generators
from tests.helpers import assert_one_line
from tests.worlds import LEARNERS, names


def draw(alpha=1.0, beta=1.0, **changes):
    return lf.synthetic_classes(alpha, beta, **{"n_clients": 6, "n_samples": 20, "dim": 8, "n_classes": 4} | changes)


def clients(n, d, c, alpha, beta, iid=False, seed=0):
    """Return W (n, c, d), b (n, c) and the means (n, d) of the first trial."""
    (rng,) = generators(seed, Stream.TRUTH, [0])
    return synthetic._draw_clients(rng, n, d, c, alpha, beta, iid)


def test_the_published_sizes():
    data = lf.synthetic_classes(0.5, 0.5, test_samples=10, seed=1)
    assert (data.n_trials, data.n_clients, data.dim, data.n_classes) == (1, 30, 60, 10)
    assert data.X.shape == (1, 30, int(data.counts.max()), 60)
    assert (data.counts >= 50).all()
    assert len(set(data.counts[0])) > 20
    assert data.test.X.shape == (1, 30, 10, 60)


def test_what_is_left_out_is_as_published():
    small = {"n_samples": 2}
    one = lf.synthetic_classes(1.0, 1.0, **small)
    sizes = {"n_clients": 30, "test_samples": 100, "dim": 60, "n_classes": 10}
    other = lf.synthetic_classes(1.0, 1.0, iid=False, trials=1, seed=0, **sizes, **small)
    for part, wanted in ((one, other), (one.test, other.test)):
        assert np.array_equal(part.X, wanted.X)
        assert np.array_equal(part.y, wanted.y)
    two = draw(n_classes=2)
    assert (two.n_classes, set(np.unique(two.y))) == (2, {0.0, 1.0})


def test_the_published_numbers_of_samples():
    """The logarithms of those above 50, before rounding down, are N(4, 2^2)."""
    (rng,) = generators(0, Stream.TRUTH, [0])
    counts = synthetic._draw_counts(rng, 20_000)
    for count in (50, 55, 100, 500, 5000):
        share = stats.norm.cdf((math.log(count + 1 - 50) - 4.0) / 2.0)
        assert abs((counts <= count).mean() - share) < 5 * math.sqrt(share * (1 - share) / 20_000)


@pytest.mark.parametrize("n_samples", [7, [3, 9, 4, 4, 1, 6], np.array([3, 9, 4, 4, 1, 6])])
def test_numbers_of_samples_and_padding(n_samples):
    data = draw(n_samples=n_samples, trials=3, test_samples=5)
    wanted = np.broadcast_to(n_samples, (3, 6))
    assert data.counts.tolist() == wanted.tolist()
    inside = np.arange(data.X.shape[2]) < wanted[..., None]
    assert (data.X.any(axis=-1) == inside).all()
    assert not data.y[~inside].any()
    assert (data.test.counts == 5).all()
    assert draw(test_samples=0).test is None


@pytest.mark.parametrize(("part", "beta"), [("train", 2.0), ("test", 2.0), ("train", 0.0)])
def test_inputs_are_gaussian_about_the_clients_means(beta, part):
    n, d, m = 8, 5, 3000
    data = draw(1.0, beta, n_clients=n, dim=d, n_samples=m, test_samples=m)
    X = (data if part == "train" else data.test).X[0]
    _, _, means = clients(n, d, 4, 1.0, beta)
    variances = np.arange(1, d + 1) ** -1.2
    z = (X - means[:, None]) / np.sqrt(variances)
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-4
    flat = z.reshape(-1, d)
    assert np.abs(flat.T @ flat / len(flat) - np.eye(d)).max() < 5 * math.sqrt(2 / len(flat))


def test_labels_are_the_classes_of_largest_logits():
    n_samples = [11, 3, 8, 20, 5, 9]
    data = draw(n_samples=n_samples, trials=2)
    W, b, _ = clients(6, 8, 4, 1.0, 1.0)
    for i, count in enumerate(n_samples):
        for x, label in zip(data.X[0, i, :count], data.y[0, i, :count], strict=True):
            logits = [sum(W[i, j] * x) + b[i, j] for j in range(4)]
            assert label == logits.index(max(logits))
    assert set(np.unique(data.y)) == {0.0, 1.0, 2.0, 3.0}


def test_the_distribution_of_clients():
    """Within a client all entries share the mean u_i, of variance alpha; the mean of an input B_i, of variance beta."""
    n, d, c = 4000, 3, 2
    W, b, means = clients(n, d, c, 0.5, 2.0)
    for part, variance in ((np.concatenate([W.reshape(n, -1), b], axis=1), 0.5), (means, 2.0)):
        size = part.shape[1]
        covariance = np.eye(size) + variance
        moments = part[:, :, None] * part[:, None]
        error = moments.std(axis=0) / math.sqrt(n)
        assert (np.abs(moments.mean(axis=0) - covariance) < 5 * error).all()
        assert error.max() < 0.1
        assert (np.abs(part.mean(axis=0)) < 5 * math.sqrt((1 + variance) / n)).all()
    assert np.abs(np.corrcoef(means[:, 0], b[:, 0])[0, 1]) < 5 / math.sqrt(n)


def test_alpha_changes_no_label():
    """Its shift is the same for all logits of a sample: contrary to the paper, models do not differ more."""
    one, other = (draw(alpha, trials=3, n_samples=200) for alpha in (0.0, 100.0))
    assert one.X.tobytes() == other.X.tobytes()
    assert one.y.tobytes() == other.y.tobytes()
    W = clients(6, 8, 4, 0.0, 1.0)[0]
    assert np.abs(np.corrcoef(W.reshape(6, -1))[np.triu_indices(6, 1)]).max() < 0.8  # also at alpha = 0 all differ


def test_beta_scales_the_means_alone():
    one, other = (draw(1.0, beta, trials=2) for beta in (1.0, 4.0))
    shift = other.X[0, :, 0] - one.X[0, :, 0]
    np.testing.assert_allclose(
        other.X - one.X, np.broadcast_to((other.X - one.X)[:, :, :1, :1], one.X.shape), atol=1e-12
    )
    assert np.abs(shift).min() > 1e-3


def test_iid_clients_share_one_classifier_and_inputs_of_mean_0():
    n, m = 5, 4000
    data = draw(0.0, 0.0, iid=True, n_clients=n, n_samples=m)
    W, b, means = clients(n, 8, 4, 0.0, 0.0, iid=True)
    assert not means.any()
    assert np.ptp(W, axis=0).max() == np.ptp(b, axis=0).max() == 0
    X = data.X[0].reshape(-1, 8)
    assert np.array_equal(data.y[0].ravel(), np.argmax(X @ W[0].T + b[0], axis=-1))
    assert (np.abs(X.mean(axis=0)) < 5 * np.arange(1, 9) ** -0.6 / math.sqrt(n * m)).all()
    shares = np.stack([(data.y[0] == j).mean(axis=1) for j in range(4)])
    assert np.ptp(shares, axis=1).max() < 0.06
    differ = draw(0.0, 0.0, n_clients=n, n_samples=m)
    assert np.ptp(np.stack([(differ.y[0] == j).mean(axis=1) for j in range(4)]), axis=1).max() > 0.2


@pytest.mark.parametrize("n_samples", [9, None, [3, 9, 4, 4, 1, 6]])
def test_a_trial_depends_on_seed_and_trial_alone(n_samples):
    data, fewer, other = (draw(n_samples=n_samples, trials=t, seed=s) for t, s in ((3, 5), (2, 5), (3, (5, 1))))
    m = fewer.X.shape[2]
    assert np.array_equal(data.X[:2, :, :m], fewer.X)
    assert np.array_equal(data.test.X[:2], fewer.test.X)
    assert np.array_equal(data.counts[:2], fewer.counts)
    assert not np.isin(data.X[data.X != 0], other.X).any()
    assert not np.isin(data.X[0][data.X[0] != 0], data.X[1]).any()
    assert not np.isin(data.test.X, data.X).any()
    sizes = draw(n_samples=2, trials=3, seed=5)  # the clients do not depend on their numbers of samples
    if n_samples == 9:
        assert np.array_equal(sizes.X[:, 0], data.X[:, 0, :2])


def test_a_client_can_be_fitted_without_error():
    """The labels are a function of x, linear with biases: an error of 0 is possible for each client, not for all."""
    W, b, _ = clients(6, 8, 4, 1.0, 1.0)
    data = draw(n_samples=300)
    local = np.argmax(data.test.X[0] @ W.mT + b[:, None], axis=-1)
    assert np.array_equal(local, data.test.y[0])


ONE_OF_A_KIND = [*{LEARNERS[name].kind: name for name in names("classification")}.values()]


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_algorithms_for_classes_run(name):
    data = draw(n_samples=[4, 9, 5, 6, 9, 7], trials=2, test_samples=4)
    result = lf.simulate(LEARNERS[name].make(step_size=0.1), data=data, n_rounds=2)
    assert result.metrics["accuracy"].shape == (2, len(result.rounds))
    assert np.isfinite(result.metrics["test_loss"]).all()


WRONG = {
    "alpha": (lambda value: draw(value), (-1.0, math.inf, None, "1"), ["of at least 0"]),
    "beta": (lambda value: draw(1.0, value), (-0.1, math.nan, True), ["of at least 0"]),
    "iid": (lambda value: draw(0.0, 0.0, iid=value), (1, None), ["True or False"]),
    "n_clients": (lambda value: draw(n_clients=value), (0, 2.0), ["integer of at least 1"]),
    "n_samples": (lambda value: draw(n_samples=value), (0, 1.5, "5", True), ["integer of at least 1"]),
    "n_samples[2]": (lambda value: draw(n_samples=[1, 1, value, 1, 1, 1]), (0, 2.5), ["integer of at least 1"]),
    "test_samples": (lambda value: draw(test_samples=value), (-1, 0.5), ["integer of at least 0"]),
    "dim": (lambda value: draw(dim=value), (0, None), ["integer of at least 1"]),
    "n_classes": (lambda value: draw(n_classes=value), (1, 2.5), ["integer of at least 2"]),
    "trials": (lambda value: draw(trials=value), (0, True), ["integer of at least 1"]),
    "seed": (lambda value: draw(seed=value), (-1, 0.5), ["non-negative integer"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_values_out_of_range(name):
    call, values, said = WRONG[name]
    for value in values:
        assert_one_line(lambda value=value: call(value), [f"{name} = {value!r}", *said])


def test_other_mistakes():
    assert_one_line(lambda: draw(0.0, 0.5, iid=True), ["iid = True requires alpha = beta = 0", "beta = 0.5"])
    assert_one_line(lambda: draw(n_samples=[1, 2]), ["n_samples = [1, 2] has 2 entries", "n_clients = 6"])
    assert_one_line(lambda: draw(n_samples=10**9), ["use fewer trials, or smaller n_samples"], lf.SizeError)
