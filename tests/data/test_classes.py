"""Batches of classes: the slope of the cross-entropy, padding, offsets, parts; layers; the Gaussian mixture."""

import numpy as np
import pytest

import linfed as lf
from linfed.data.classes import ClassBatch, find_classes, of_classes, with_ones
from linfed.data.explicit import ExplicitBatch
from linfed.numerics import layers
from linfed.numerics.softmax import cross_entropy, softmax_residual
from linfed.problems.classes import dealt_labels
from tests.algorithms import class_references as ref
from tests.algorithms.test_class_algorithms import slope
from tests.data.class_samples import CLASSES, COUNTS, TRIALS, C, D, K, draw
from tests.helpers import assert_one_line, each, normal

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}
N = 5


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, **TOLERANCE)


def slopes(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7)


@pytest.fixture(params=COUNTS)
def samples(request):
    return draw(request.param)


def theta(seed=5, rows=N):
    return normal(TRIALS, rows, C, D + 1, seed=seed)


def heads(seed=6):
    return normal(TRIALS, N, C, K + 1, seed=seed)


B = normal(TRIALS, D, K, seed=7)
BS = normal(TRIALS, N, D, K, seed=8)


# --- the cross-entropy ---------------------------------------------------------------------------------------


def test_large_logits_lose_nothing():
    logits = np.array([[1e4, 0.0, -1e4], [0.0, 1e4, 1e4], [-1e4, 0.0, 1e4]])  # (c, m)
    labels = np.array([0, 0, 1])
    assert cross_entropy(logits, labels).tolist() == [0.0, 1e4, np.log(2)]
    expected = [[0.0, -1.0, 0.0], [0.0, 1.0, -0.5], [0.0, 0.0, 0.5]]
    assert softmax_residual(logits.copy(), labels).tolist() == expected
    batch = ClassBatch(
        with_ones(np.array([[[[1.0], [-1.0]]]]), np.array([[2.0]])), np.zeros((1, 1, 2)),
        holds=np.ones((1, 1, 3), dtype=bool), active=np.zeros((1, 1), dtype=int),
    )  # fmt: skip
    large = np.array([[[[1e4, 0.0], [0.0, 0.0], [-1e4, 0.0]]]])
    assert batch.loss(large).tolist() == [[1e4]]
    assert batch.gradient(large).tolist() == [[[[0.5, -0.5], [0.0, 0.0], [-0.5, 0.5]]]]


def test_stacks_of_logits_are_their_samples_one_by_one():
    """A sample alone has the bits that it has among others."""
    logits, labels = 3 * normal(2, 3, 40, 5), np.random.default_rng(1).integers(0, 40, (2, 3, 5))
    residual, losses = softmax_residual(logits.copy(), labels), cross_entropy(logits, labels)
    for t, i, j in np.ndindex(2, 3, 5):
        one, label = logits[t, i, :, j], labels[t, i, j]
        total = np.log(np.exp(one).sum())
        close(losses[t, i, j], total - one[label])
        close(residual[t, i, :, j], np.exp(one - total) - (np.arange(40) == label))
        alone = softmax_residual(np.ascontiguousarray(one[:, None]), labels[t, i, j : j + 1])
        assert alone.tobytes() == np.ascontiguousarray(residual[t, i, :, j]).tobytes()


def test_loss_and_gradient_are_the_loops(samples):
    batch, at = samples.batch(), theta()
    for rows in (N, 1):
        loss, gradient = batch.loss(at[:, :rows]), batch.gradient(at[:, :rows])
        for t in range(TRIALS):
            for i, (X, y) in enumerate(zip(samples.X[t], samples.labels[t], strict=True)):
                one = at[t, i if rows > 1 else 0]
                close(loss[t, i], ref.loss(X, y, one))
                close(gradient[t, i], ref.gradient(X, y, one))
                slopes(gradient[t, i], slope(lambda v, X=X, y=y: ref.loss(X, y, v), one))


def test_gradients_at_features_are_slopes(samples):
    features, W = samples.batch().project(B), heads()
    weights = normal(TRIALS, N, seed=9) ** 2
    by_head, mean = features.gradients(W)
    close(by_head, features.head_gradient(W))
    close(mean, features.representation_gradient(W))
    total, weighed = features.representation_gradient(W, 1.0), features.representation_gradient(W, weights)
    for t in range(TRIALS):
        by_B = []
        for i, (X, y) in enumerate(zip(samples.X[t], samples.labels[t], strict=True)):
            slopes(by_head[t, i], slope(lambda H, X=X, y=y, t=t: ref.loss(X @ B[t], y, H), W[t, i]))
            by_B.append(slope(lambda b, X=X, y=y, H=W[t, i]: ref.loss(X @ b, y, H), B[t]))
        slopes(mean[t], np.mean(by_B, axis=0))
        slopes(total[t], np.sum(by_B, axis=0))
        slopes(weighed[t], np.einsum("i,ijk->jk", weights[t], by_B))


@each("penalty", [0.0, 0.3])
@each("own", [True, False])
def test_gradients_of_each_client_are_slopes(penalty, own):
    samples, W = draw(), heads()
    by_head, by_B = samples.batch().project(BS if own else B).gradients_of_clients(W, penalty)
    for t in range(TRIALS):
        for i, (X, y) in enumerate(zip(samples.X[t], samples.labels[t], strict=True)):
            at, H = BS[t, i] if own else B[t], W[t, i]

            def loss(b, h, X=X, y=y):
                return ref.loss(X @ b, y, h) + penalty * np.mean([np.sum((b.T @ x) ** 2) for x in X])

            slopes(by_head[t, i], slope(lambda h, at=at, loss=loss: loss(at, h), H))
            slopes(by_B[t, i], slope(lambda b, H=H, loss=loss: loss(b, H), at))


def test_padding_is_in_nothing():
    """Twice the rows, and labels of padding that are other classes: not a bit of any answer."""
    samples = draw()
    batch = samples.batch()
    X = np.concatenate([batch.X, np.zeros_like(batch.X)], axis=2)
    inside = np.arange(2 * samples.m) < samples.counts[..., None]
    y = np.where(inside, np.concatenate([batch.y, np.zeros_like(batch.y)], axis=2), 1.0)
    padded = ClassBatch(X, y, holds=batch.holds, active=batch.active, counts=batch.counts)
    at, W = theta(), heads()
    for one, other in ((batch, padded), (batch.balanced(), padded.balanced()), (batch.shifted(at), padded.shifted(at))):
        close(one.gradient(at), other.gradient(at))
        close(one.loss(at), other.loss(at))
        assert np.isfinite(one.loss(at)).all()
        for found, wanted in zip(one.project(B).gradients(W), other.project(B).gradients(W), strict=True):
            close(found, wanted)
        for own in (False, True):
            close(one.accuracies(lambda t, c: at[t, c], own=own), other.accuracies(lambda t, c: at[t, c], own=own))
    assert np.array_equal(find_classes(y, samples.counts, C), batch.holds)


def test_the_classes_that_clients_have():
    holds = draw().batch().holds
    assert holds.shape == (TRIALS, N, C)
    assert [np.flatnonzero(row).tolist() for row in holds[1]] == CLASSES
    assert not holds[..., 3].any()


def test_what_nobody_has_goes_down_and_a_single_class_is_learned():
    """The logit of a class without samples has a positive slope in its bias; client 2's own class alone a negative."""
    by_bias = draw().batch().gradient(np.zeros((TRIALS, 1, C, D + 1)))[..., -1]
    np.testing.assert_allclose(by_bias[..., 3], 1 / C, rtol=1e-14)
    np.testing.assert_allclose(by_bias[:, 2], [[0.25, 0.25, -0.75, 0.25]] * TRIALS, rtol=1e-14)
    np.testing.assert_allclose(by_bias.sum(axis=-1), 0, atol=1e-15)


def test_a_client_without_samples_has_no_gradient():
    batch = ClassBatch(
        np.zeros((1, 2, 3, D + 1)), np.zeros((1, 2, 3)), holds=np.zeros((1, 2, C), dtype=bool),
        active=np.array([[0, 1]]), counts=np.zeros((1, 2)),
    )  # fmt: skip
    for one in (batch, batch.balanced()):
        assert not one.gradient(theta(rows=2)[:1]).any()
        assert not one.loss(theta(rows=2)[:1]).any()
        assert not one.project(B[:1]).head_gradient(heads()[:1, :2]).any()


# --- offsets and parts ---------------------------------------------------------------------------------------


def test_shifted_batches_answer_as_at_the_sum(samples):
    batch, one, other, W, V = samples.batch(), theta(), theta(seed=11), heads(), heads(seed=12)
    for offset in (other, other[:, :1]):
        close(batch.shifted(offset).gradient(one), batch.gradient(one + offset))
        close(batch.shifted(offset).loss(one), batch.loss(one + offset))
        close(batch.shifted(offset).shifted(one).loss(offset), batch.loss(one + 2 * offset))
    rest = batch.project(B).shifted(V)
    close(rest.project(B).head_gradient(W), batch.project(B).head_gradient(W + V))
    close(rest.gradient(one), batch.gradient(one + layers.composed(B, V)))


def test_balanced_batches_add_the_logarithm_of_shares(samples):
    batch, at = samples.batch().balanced(), theta()
    for t in range(TRIALS):
        for i, (X, y) in enumerate(zip(samples.X[t], samples.labels[t], strict=True)):
            added = ref.balanced(y, C)
            close(batch.loss(at)[t, i], ref.loss(X, y, at[t, i], added))
            close(batch.gradient(at)[t, i], ref.gradient(X, y, at[t, i], added))
            assert not batch.gradient(at)[t, i, np.isinf(added)].any()


@each("kind", ["plain", "balanced", "shifted"])
@each("ordered", [False, True])
def test_minibatches_hold_each_sample_once(kind, ordered):
    """So their gradients, weighed by their counts, have the mean of the whole, offsets and all."""
    samples, at = draw(), theta()
    batch = samples.batch()
    batch = {"plain": batch, "balanced": batch.balanced(), "shifted": batch.shifted(theta(seed=11))}[kind]
    rng = np.random.default_rng(1)
    order = rng.permuted(np.broadcast_to(np.arange(samples.m), (TRIALS, N, samples.m)), axis=-1) if ordered else None
    parts = list(batch.minibatches(4, order))
    assert [part.shape[2] for part in parts] == [4, 4, 1]
    close(sum(part.counts for part in parts), batch.counts)
    seen = np.concatenate([part.X for part in parts], axis=2)
    for t in range(TRIALS):
        for i, X in enumerate(samples.X[t]):
            inside = seen[t, i][seen[t, i][:, -1] > 0][:, :-1]
            assert sorted(map(tuple, inside)) == sorted(map(tuple, X))
    total = sum(part.counts[..., None, None] * part.gradient(at) for part in parts)
    close(total / batch.counts[..., None, None], batch.gradient(at))


@each("kind", ["plain", "balanced", "shifted"])
def test_halves_are_the_first_and_the_second(kind):
    samples = draw("equal")
    batch, at = samples.batch(), theta()
    batch = {"plain": batch, "balanced": batch.balanced(), "shifted": batch.shifted(theta(seed=11))}[kind]
    halves = batch.split()
    close(sum(half.gradient(at) for half in halves) / 2, batch.gradient(at))
    assert np.array_equal(np.concatenate([half.y for half in halves], axis=2), batch.y)
    assert_one_line(lambda: draw().batch().split(), ["at least 2 samples", "got 1"])


@each(
    "question",
    [lambda b: b.least_squares(), lambda b: b.pooled_least_squares(np.ones((2, 5))), lambda b: b.normal_equations()],
)
def test_questions_of_squares_are_refused(question):
    assert_one_line(lambda: question(draw().batch()), ["supports only regression, but the samples have 4 classes"])


def test_heads_have_no_closed_form():
    assert_one_line(
        lambda: draw().batch().project(B).fit(), ["fit() supports only regression", "4 classes", "lf.GradientHeads()"]
    )


def test_who_needs_classes_says_so():
    squares = ExplicitBatch(normal(1, 2, 3, 4), normal(1, 2, 3), active=np.array([[0, 1]]))
    assert_one_line(
        lambda: of_classes(squares, "this"), ["this supports only classification, but the samples are for regression"]
    )


# --- layers --------------------------------------------------------------------------------------------------


@each("own", [True, False])
def test_layers_are_loops_with_classes(own):
    W, g = heads(), theta()
    found, (by_B, by_H) = layers.composed(BS if own else B, W), layers.pulled_back(g, BS, W)
    gram, summed = layers.head_gram(W), layers.summed_outer(g, W)
    scaled = layers.scaled_by(gram, g)
    for t in range(TRIALS):
        total = np.zeros((D, K))
        for i in range(N):
            close(found[t, i], ref.predictor(BS[t, i] if own else B[t], W[t, i]))
            wanted_B, wanted_H, products = np.zeros((D, K)), np.zeros((C, K + 1)), np.zeros((C, C))
            for j in range(C):
                wanted_B += np.outer(g[t, i, j, :-1], W[t, i, j, :-1])
                wanted_H[j] = [*(BS[t, i].T @ g[t, i, j, :-1]), g[t, i, j, -1]]
                for other in range(C):
                    products[j, other] = W[t, i, j, :-1] @ W[t, i, other, :-1]
            close(by_B[t, i], wanted_B)
            close(by_H[t, i], wanted_H)
            close(gram[t, i], products)
            close(scaled[t, i], np.column_stack([products @ g[t, i, :, :-1], np.zeros(C)]))
            total += wanted_B
        close(summed[t], total)


@each("own", [True, False])
def test_layers_are_loops_with_numbers(own):
    W, g = normal(TRIALS, N, K, seed=6), normal(TRIALS, N, D, seed=5)
    found, (by_B, by_w) = layers.composed(BS if own else B, W), layers.pulled_back(g, BS, W)
    scaled, summed = layers.scaled_by(layers.head_gram(W), g), layers.summed_outer(g, W)
    for t in range(TRIALS):
        for i in range(N):
            close(found[t, i], (BS[t, i] if own else B[t]) @ W[t, i])
            close(by_B[t, i], np.outer(g[t, i], W[t, i]))
            close(by_w[t, i], BS[t, i].T @ g[t, i])
            close(scaled[t, i], (W[t, i] @ W[t, i]) * g[t, i])
        close(summed[t], sum(np.outer(g[t, i], W[t, i]) for i in range(N)))
    assert layers.shape_of_client(3, 0) == (3,)
    assert layers.shape_of_client(3, 7) == (7, 4)


# --- the Gaussian mixture ------------------------------------------------------------------------------------

PROBLEM = lf.Classes(n_clients=12, n_classes=5, classes_per_client=2, dim=9, rank=3, separation=2.5)


def test_class_means_lie_in_the_subspace_at_the_stated_separation():
    truth = PROBLEM.truth(1, range(4))
    assert truth.B.shape == (4, 9, 3)
    assert truth.means.shape == (4, 5, 3)
    close(truth.B.mT @ truth.B, np.broadcast_to(np.eye(3), (4, 3, 3)))
    np.testing.assert_allclose(truth.means.mean(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(np.sqrt(np.mean(np.sum(truth.means**2, axis=-1), axis=-1)), 2.5, rtol=1e-14)
    np.testing.assert_allclose(truth.scale, 2.5, rtol=1e-14)
    assert (np.linalg.matrix_rank(truth.means) == 3).all()


def test_samples_are_gaussian_about_their_class_mean():
    X, labels = PROBLEM.truth(0, [0]).draw([np.random.default_rng(1)], PROBLEM.truth(0, [0]).holds, 4000)
    truth = PROBLEM.truth(0, [0])
    rest = X[0] - (truth.means[0] @ truth.B[0].T)[labels[0].astype(int)]
    assert np.abs(rest.mean(axis=(0, 1))).max() < 5 / np.sqrt(48000)
    assert np.abs(np.cov(rest.reshape(-1, 9).T) - np.eye(9)).max() < 5 * np.sqrt(2 / 48000)


@each("own, holders", [(2, {4, 5}), (5, {12}), (1, {2, 3}), ([1, 2, 3, 4] * 3, {6})])
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


@each("data", [lf.FixedSamples(6), lf.FreshSamples(6)])
def test_a_trial_is_the_same_whatever_their_number(data):
    algorithm = lf.GeneralFLUTE(rank=2, step_size=0.3)
    run = {"data": data, "rounds": 4, "seed": 5, "participation": 0.5}
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
        lf.LocalOnly(step_size=0.5, local_steps=20), problem, data=lf.FixedSamples(20), rounds=20, trials=2
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
    run = {"data": lf.FreshSamples(500), "rounds": 150, "record_every": 150, "trials": 2, "seed": 2}
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
        run = lf.simulate(algorithm, problem, data=lf.FixedSamples(30), rounds=60, record_every=60, trials=2, seed=2)
        for name in ("accuracy", "own_class_accuracy"):
            assert (run.metrics[name][:, -1] < best + 5 * error).all()


def bayes_accuracies(problem, state):
    """Return the accuracy of a state on the samples that a run of seed 2 holds out."""
    from linfed.data.class_sources import held_out

    batch = held_out(problem.truth(2, range(2)), problem.test_samples, 2, range(2))
    return batch.accuracies(lambda t, c: state.trials(t).predictors(c), own=True)


@pytest.mark.long
def test_the_subspace_of_the_means_is_learned(large):
    _, learned = large
    distance = learned.metrics["subspace_distance"]
    assert (distance[:, 0] > 0.5).all()
    assert (distance[:, -1] < 0.1).all()


def test_the_bayes_heads_are_the_law_of_the_labels():
    """Their softmax is proportional to the densities of the client's classes, by scipy's."""
    from scipy.stats import multivariate_normal

    truth = PROBLEM.truth(0, [0])
    W, x = truth.bayes()[0], normal(9, seed=4)
    for i in (0, 7):
        own = np.flatnonzero(truth.holds[0, i])
        densities = [multivariate_normal.pdf(x, truth.B[0] @ truth.means[0, j], np.eye(9)) for j in own]
        values = np.exp(ref.logits(W[i], truth.B[0].T @ x)[own])
        np.testing.assert_allclose(values / values.sum(), densities / np.sum(densities), rtol=1e-12)
        assert np.isneginf(W[i, ~truth.holds[0, i], -1]).all()


SIZES = {"n_clients": 4, "n_classes": 3, "classes_per_client": 2, "dim": 5}


@each(
    "fragment, options",
    [
        ("n_classes = 1", {"n_classes": 1}),
        ("classes_per_client = 0", {"classes_per_client": 0}),
        ("classes_per_client = 4", {"classes_per_client": 4}),
        ("classes_per_client[2] = 4", {"classes_per_client": [1, 2, 4, 3]}),
        ("classes_per_client has 3 ", {"classes_per_client": [1, 2, 3]}),
        ("classes_per_client = 'all'", {"classes_per_client": "all"}),
        ("rank = 3", {"rank": 3}),
        ("rank = 2", {"rank": 2, "dim": 1}),
        ("separation = 0", {"separation": 0}),
        ("separation = -1", {"separation": -1}),
        ("separation = nan", {"separation": np.nan}),
        ("test_samples = 0", {"test_samples": 0}),
        (
            "must have one covariance for all clients",
            {"design": lf.Gaussian(covariance=np.broadcast_to(np.eye(5), (4, 5, 5)))},
        ),
    ],
)
def test_bad_sizes(fragment, options):
    assert_one_line(lambda: lf.Classes(**SIZES | options), [fragment])


def test_fewer_samples_than_classes_are_refused():
    run = {"data": lf.FixedSamples(1), "rounds": 1}
    wanted = ["n_samples = 1", "classes_per_client = 2"]
    assert_one_line(lambda: lf.simulate(lf.FedAvg(step_size=0.1), lf.Classes(**SIZES), **run), wanted)


def test_a_truth_of_classes_has_no_regressors():
    truth = lf.Classes(**SIZES).truth(0, [0])
    assert_one_line(lambda: truth.dense(), ["dense() supports only regression", "bayes()"])
    assert_one_line(lambda: truth.truncated(1), ["supports only regression"])
