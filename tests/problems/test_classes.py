"""Gaussian classes: their means, who holds which class, samples, Bayes heads, and what a run can reach."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import linfed as lf
from linfed.data.class_sources import held_out
from linfed.problems.classes import dealt_labels
from tests.helpers import assert_one_line, normal

PROBLEM = lf.Classes(n_clients=12, n_classes=5, classes_per_client=2, dim=9, rank=3, separation=2.5)


COVARIANCES = {
    "identity": None,
    "multiple": 2.0,
    "diagonal": np.linspace(0.3, 2.5, 7),
    "full": normal(7, 7, seed=5) @ normal(7, 7, seed=5).T / 7 + 0.3 * np.eye(7),
}


def test_class_means_lie_in_the_subspace_at_the_stated_separation():
    truth = PROBLEM.truth(1, range(4))
    assert truth.B.shape == (4, 9, 3)
    assert truth.means.shape == (4, 5, 3)
    np.testing.assert_allclose(truth.B.mT @ truth.B, np.broadcast_to(np.eye(3), (4, 3, 3)), atol=1e-10)
    np.testing.assert_allclose(truth.means.mean(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(np.sqrt(np.mean(np.sum(truth.means**2, axis=-1), axis=-1)), 2.5, rtol=1e-14)
    np.testing.assert_allclose(truth.scale, 2.5, rtol=1e-14)
    assert (np.linalg.matrix_rank(truth.means) == 3).all()


@pytest.mark.parametrize("name", COVARIANCES)
def test_the_bayes_heads_have_the_densities_of_the_classes(name):
    problem = lf.Classes(
        n_clients=5,
        n_classes=4,
        classes_per_client=3,
        dim=7,
        rank=2,
        separation=1.5,
        design=lf.Gaussian(covariance=COVARIANCES[name]),
    )
    truth = problem.truth(9, [0])
    Sigma = np.eye(7) if name == "identity" else np.asarray(COVARIANCES[name])
    Sigma = np.diag(np.broadcast_to(Sigma, 7)) if Sigma.ndim < 2 else Sigma
    x, W = normal(7, seed=4), truth.bayes()[0]
    for i in range(5):
        assert np.isneginf(W[i, ~truth.holds[0, i], -1]).all()
        own = np.flatnonzero(truth.holds[0, i])
        densities = [multivariate_normal.pdf(x, truth.B[0] @ truth.means[0, j], Sigma) for j in own]
        logits = (W[i, own, :-1] @ truth.discriminants[0].T) @ x + W[i, own, -1]
        np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), densities / np.sum(densities), rtol=1e-10)
    assert lf.subspace_distance(truth.reference(2), truth.discriminants).max() < 1e-12
    X, labels = truth.draw([np.random.default_rng(0)], np.ones((1, 1, 4), dtype=bool), 40_000)
    rest = X[0, 0] - (truth.means[0] @ truth.B[0].T)[labels[0, 0].astype(int)]
    np.testing.assert_allclose(np.cov(rest.T), Sigma, atol=0.1)


@pytest.mark.parametrize(("own", "holders"), [(2, {4, 5}), (5, {12}), (1, {2, 3}), ([1, 2, 3, 4] * 3, {6})])
def test_classes_have_equally_many_holders(own, holders):
    problem = lf.Classes(n_clients=12, n_classes=5, classes_per_client=own, dim=9)
    for holds in problem.truth(3, range(5)).holds:
        assert holds.sum(axis=1).tolist() == np.broadcast_to(own, 12).tolist()
        assert set(holds.sum(axis=0).tolist()) <= holders
    first, second = problem.truth(3, range(2)).holds
    assert own == 5 or not np.array_equal(first, second)


def test_labels_go_through_the_classes_in_turn():
    holds = np.array([[[True, False, True, True], [False, True, False, False]]])
    assert dealt_labels(holds, 5).tolist() == [[[0, 2, 3, 0, 2], [1, 1, 1, 1, 1]]]
    assert_one_line(lambda: dealt_labels(holds, 2), ["n_samples = 2", "classes_per_client = 3"])


@pytest.mark.parametrize("data", [lf.FixedSamples(6), lf.FreshSamples(6)])
def test_a_trial_is_the_same_whatever_their_number(data):
    algorithm = lf.GeneralFLUTE(rank=2, step_size=0.3)
    run = {"data": data, "n_rounds": 4, "seed": 5, "participation": 0.5}
    one, many = (lf.simulate(algorithm, PROBLEM, trials=trials, **run) for trials in (1, 3))
    for name, array in one.final.arrays().items():
        assert array.tobytes() == many.final.arrays()[name][:1].tobytes()
    for name in one.metrics:
        assert one.metrics[name].tobytes() == many.metrics[name][:1].tobytes(), name
    np.testing.assert_array_equal(PROBLEM.truth(5, range(3)).means[2:], PROBLEM.truth(5, [2]).means)


def test_held_out_samples_are_others():
    """What is learned by heart says little of what is held out."""
    problem = lf.Classes(n_clients=4, n_classes=3, classes_per_client=3, dim=60, separation=0.3, test_samples=20)
    result = lf.simulate(
        lf.LocalOnly(step_size=0.5, local_steps=20), problem, data=lf.FixedSamples(20), n_rounds=20, trials=2
    )
    assert (result.metrics["train_accuracy"][:, -1] == 1).all()
    assert (result.metrics["accuracy"][:, -1] < 0.7).all()
    assert result.metrics["test_loss"][0, -1] > 10 * result.metrics["train_loss"][0, -1]


@pytest.fixture(scope="module")
def large():
    """Return a fit of many samples at k = r, and the problem."""
    problem = lf.Classes(
        n_clients=10, n_classes=4, classes_per_client=3, dim=8, rank=2, separation=1.5, test_samples=2000
    )
    heads = lf.GradientHeads(steps=10, step_size=0.5)
    algorithm = lf.FedRep(rank=2, step_size=2.0, init="random", heads=heads)
    run = {"data": lf.FreshSamples(500), "n_rounds": 150, "record_every": 150, "trials": 2, "seed": 2}
    return problem, lf.simulate(algorithm, problem, **run)


@pytest.mark.long
def test_no_model_beats_the_bayes_heads_and_large_samples_reach_them(large):
    problem, learned = large
    truth = problem.truth(2, range(2))
    with np.errstate(invalid="ignore"):
        bayes = lf.State(B=truth.B, W=truth.bayes())
        accuracies = bayes_accuracies(problem, bayes)
    best = accuracies.mean(axis=1)
    error = 0.5 / np.sqrt(accuracies.shape[1] * problem.test_samples)  # at most, of the mean accuracy
    assert (best > 0.6).all()
    assert (best < 0.9).all()
    own = learned.metrics["own_class_accuracy"][:, -1]
    assert (own < best + 5 * error).all()
    assert (own > best - 0.02).all()
    others = [lf.FedAvg(step_size=0.5), lf.LocalOnly(step_size=0.5), lf.GeneralFLUTE(rank=2, step_size=0.5)]
    for algorithm in others:
        run = lf.simulate(algorithm, problem, data=lf.FixedSamples(30), n_rounds=60, record_every=60, trials=2, seed=2)
        for name in ("accuracy", "own_class_accuracy"):
            assert (run.metrics[name][:, -1] < best + 5 * error).all()


def bayes_accuracies(problem, state):
    """Return the accuracy of a state on the samples that a run of seed 2 holds out."""
    batch = held_out(problem.truth(2, range(2)), problem.test_samples, 2, range(2))
    return batch.accuracies(lambda t, c: state.trials(t).predictors(c), own=True)


@pytest.mark.long
def test_the_subspace_of_the_means_is_learned(large):
    _, learned = large
    distance = learned.metrics["subspace_distance"]
    assert (distance[:, 0] > 0.5).all()
    assert (distance[:, -1] < 0.1).all()


SIZES = {"n_clients": 4, "n_classes": 3, "classes_per_client": 2, "dim": 5}


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        ({"classes_per_client": 0}, ["classes_per_client = 0"]),
        ({"classes_per_client": 4}, ["classes_per_client = 4"]),
        ({"classes_per_client": [1, 2, 4, 3]}, ["classes_per_client[2] = 4"]),
        ({"classes_per_client": [1, 2, 3]}, ["classes_per_client has 3 "]),
        ({"classes_per_client": "all"}, ["classes_per_client = 'all'"]),
        ({"rank": 3}, ["rank = 3"]),
        ({"rank": 2, "dim": 1}, ["rank = 2"]),
        ({"design": lf.Gaussian(covariance=np.broadcast_to(np.eye(5), (4, 5, 5)))}, ["one covariance"]),
        ({"design": lf.Rademacher()}, ["design = "]),
        ({"design": "cube"}, ["design = "]),
        ({"design": lf.Gaussian(covariance=np.diag([1.0, 1, 1, 1, 0]))}, ["design = "]),
        ({"design": lf.Gaussian(covariance=[1.0])}, ["covariance has shape"]),
    ],
)
def test_wrong_options_are_named(options, fragments):
    assert_one_line(lambda: lf.Classes(**SIZES | options), fragments)


def test_what_does_not_apply_to_classes_is_refused():
    run = {"data": lf.FixedSamples(1), "n_rounds": 1}
    wanted = ["n_samples = 1", "classes_per_client = 2"]
    assert_one_line(lambda: lf.simulate(lf.FedAvg(step_size=0.1), lf.Classes(**SIZES), **run), wanted)
    truth = lf.Classes(**SIZES).truth(0, [0])
    assert_one_line(lambda: truth.dense(), ["dense() supports only regression", "bayes()"])
    assert_one_line(lambda: truth.truncated(1), ["supports only regression"])
