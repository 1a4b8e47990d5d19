"""Batches of classes: the slope of the cross-entropy, padding, offsets, minibatches and halves."""

import numpy as np
import pytest

from linfed.data.classes import ClassBatch, find_classes, of_classes, with_ones
from linfed.data.explicit import ExplicitBatch
from linfed.numerics import layers
from tests.algorithms import class_references as ref
from tests.data.class_samples import CLASSES, COUNTS, TRIALS, C, D, K, draw, slope
from tests.helpers import assert_one_line, normal

N = 5
B = normal(TRIALS, D, K, seed=7)
BS = normal(TRIALS, N, D, K, seed=8)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


def slopes(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7)


@pytest.fixture(params=COUNTS)
def samples(request):
    return draw(request.param)


def theta(seed=5, rows=N):
    return normal(TRIALS, rows, C, D + 1, seed=seed)


def heads(seed=6):
    return normal(TRIALS, N, C, K + 1, seed=seed)


KINDS = {
    "plain": lambda batch: batch,
    "balanced": lambda batch: batch.balanced(),
    "shifted": lambda batch: batch.shifted(theta(seed=11)),
}


def test_large_logits_lose_nothing():
    batch = ClassBatch(
        with_ones(np.array([[[[1.0], [-1.0]]]]), np.array([[2.0]])), np.zeros((1, 1, 2)),
        holds=np.ones((1, 1, 3), dtype=bool), active=np.zeros((1, 1), dtype=int),
    )  # fmt: skip
    large = np.array([[[[1e4, 0.0], [0.0, 0.0], [-1e4, 0.0]]]])
    assert batch.loss(large).tolist() == [[1e4]]
    assert batch.gradient(large).tolist() == [[[[0.5, -0.5], [0.0, 0.0], [-0.5, 0.5]]]]


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


@pytest.mark.parametrize(("penalty", "own"), [(0.0, True), (0.3, True), (0.3, False)])
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


@pytest.mark.parametrize(("kind", "ordered"), [("plain", False), ("balanced", True), ("shifted", True)])
def test_minibatches_hold_each_sample_once(kind, ordered):
    """So their gradients, weighed by their counts, have the mean of the whole, offsets and all."""
    samples, at = draw(), theta()
    batch = KINDS[kind](samples.batch())
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


@pytest.mark.parametrize("kind", KINDS)
def test_halves_are_the_first_and_the_second(kind):
    samples = draw("equal")
    batch, at = KINDS[kind](samples.batch()), theta()
    halves = batch.split()
    close(sum(half.gradient(at) for half in halves) / 2, batch.gradient(at))
    assert np.array_equal(np.concatenate([half.y for half in halves], axis=2), batch.y)
    assert_one_line(lambda: draw().batch().split(), ["n_samples = 1 must be at least 2"])


REFUSED = {
    "least_squares": (lambda: draw().batch().least_squares(), ["supports only regression", "4 classes"]),
    "pooled_least_squares": (
        lambda: draw().batch().pooled_least_squares(np.ones((2, 5))),
        ["supports only regression", "4 classes"],
    ),
    "normal_equations": (lambda: draw().batch().normal_equations(), ["supports only regression", "4 classes"]),
    "fit": (lambda: draw().batch().project(B).fit(), ["fit()", "only regression", "lf.GradientHeads()"]),
    "split": (lambda: draw().batch().split(), ["n_samples = 1 must be at least 2"]),
    "of_classes": (
        lambda: of_classes(ExplicitBatch(normal(1, 2, 3, 4), normal(1, 2, 3), active=np.array([[0, 1]])), "this"),
        ["this supports only classification"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_classes_do_not_support_is_refused(name):
    assert_one_line(*REFUSED[name])
