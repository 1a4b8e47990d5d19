"""Explicit batches: every question against a loop over trials and clients, derived batches, and dependent features."""

import numpy as np
import pytest

from linfed.data.explicit import ExplicitBatch
from linfed.data.labels import LabelLaw
from linfed.numerics import linalg
from linfed.numerics.streams import Stream, TrialRandom, generators
from tests import references as ref
from tests.data.batches import (
    CUTS,
    SHAPES,
    TOLERANCE,
    TRIALS,
    Asked,
    answers,
    assert_answers,
    assert_same_bits,
    draw,
    everyone,
    explicit_batch,
    loop_answers,
    rows,
)

CUT_SHAPES = [(shape, "default") for shape in SHAPES]
CUT_SHAPES += [(shape, cut) for shape in ("m > d", "m < k", "unequal") for cut in CUTS if cut != "default"]
"""Shapes and how they are cut into blocks: the large shape is cut by default."""


@pytest.mark.parametrize(("shape", "cut"), CUT_SHAPES)
def test_every_question_equals_a_loop(shape, cut, monkeypatch):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    monkeypatch.setattr(linalg, "CACHE_VALUES", CUTS[cut](*X.shape[1:]))
    assert_answers(explicit_batch(X, y, counts), rows(X, y, counts), Asked(X.shape[1], d, k))


@pytest.mark.long
@pytest.mark.parametrize(("shape", "cut"), [*CUT_SHAPES[-9:], ("several blocks of clients", "default")])
def test_a_trial_alone_has_the_same_bits(shape, cut, monkeypatch):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    monkeypatch.setattr(linalg, "CACHE_VALUES", CUTS[cut](*X.shape[1:]))
    asked = Asked(X.shape[1], d, k)
    together = answers(explicit_batch(X, y, counts), asked)
    for t in range(TRIALS):
        one = slice(t, t + 1)
        alone = answers(explicit_batch(X[one], y[one], counts[one]), asked.trial(t))
        assert_same_bits(alone, {name: value[one] for name, value in together.items()})


def test_asking_writes_into_nothing():
    X, y, counts = draw([[2, 3, 9, 5]], 4)
    asked = Asked(4, 4, 3)
    order = np.random.default_rng(2).permuted(np.broadcast_to(np.arange(9), (TRIALS, 4, 9)), axis=-1)
    for array in (X, y, counts, order, *vars(asked).values()):
        array.setflags(write=False)  # then any write raises
    batch = explicit_batch(X, y, counts)
    answers(batch, asked)
    for other in (batch.shifted(asked.theta), *batch.minibatches(2, order), *batch.split()):
        answers(other, asked)
    for wrong in (order[..., :8], np.zeros_like(order)):
        with pytest.raises(ValueError, match="must contain permutations of range"):
            next(batch.minibatches(2, wrong))


def test_features_of_a_round_outlive_later_ones():
    X, _, counts = draw([[5, 5, 5]], 6)
    first, second = Asked(3, 6, 3, seed=1), Asked(3, 6, 3, seed=2)
    law = LabelLaw(B=first.B, W=first.W, S=None, noise=None)
    batch = ExplicitBatch(X, law, active=everyone(X))
    early = batch.project(first.B)
    late = batch.project(second.B)
    heads = late.fit().W
    latest = batch.project(np.zeros_like(first.B))
    latest.fit().representation_gradient()
    assert np.array_equal(heads, late.fit().W)
    np.testing.assert_allclose(early.fit().W, first.W, **TOLERANCE)
    np.testing.assert_allclose(early.head_gradient(first.W), 0, atol=1e-10)
    kept = early.representation_gradient(second.W)
    early.representation_gradient(first.W)
    data = rows(X, batch.y, counts)
    wanted = loop_answers(data, first.at_heads(second.W))["representation gradient"]
    np.testing.assert_allclose(kept, wanted, **TOLERANCE)


# --- batches made from a batch -------------------------------------------------------------------------------


def test_a_batch_says_whose_it_is_and_passes_it_on():
    X, y, _ = draw([[6, 6, 6]], 4)
    plain = ExplicitBatch(X, y, active=everyone(X))
    assert (plain.round, plain.n_clients, plain.counts.tolist()) == (0, 3, [[6.0] * 3] * TRIALS)
    batch = ExplicitBatch(X, y, active=2 * everyone(X), round_number=7, n_clients=9)
    fit = batch.project(np.ones((TRIALS, 4, 1))).fit()
    for other in (batch, batch.shifted(np.ones((TRIALS, 1, 4))), *batch.minibatches(4), *batch.split(), fit.shifted()):
        assert (other.round, other.n_clients) == (7, 9)
        assert np.array_equal(other.active, batch.active)


@pytest.mark.parametrize("common", [False, True], ids=["per client", "one offset"])
@pytest.mark.parametrize("shape", ["m > d", "m < d", "unequal"])
def test_shifted_labels(shape, common):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    asked = Asked(X.shape[1], d, k)
    offset = asked.common if common else asked.theta
    batch = explicit_batch(X, y, counts).shifted(offset)
    full = np.broadcast_to(offset, asked.theta.shape)
    data = [
        [(X_i, y_i - X_i @ full[t, i]) for i, (X_i, y_i) in enumerate(clients)]
        for t, clients in enumerate(rows(X, y, counts))
    ]
    assert np.array_equal(batch.active, everyone(X))
    assert_answers(batch, data, asked)


@pytest.mark.parametrize("ordered", [False, True], ids=["as they lie", "ordered"])
@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize(
    "counts", [[[9, 9, 9, 9]], [[1, 2, 3, 9], [9, 3, 5, 6], [4, 9, 2, 3]]], ids=["equal", "unequal"]
)
def test_minibatches(counts, size, ordered):
    X, y, counts = draw(counts, 5)
    _, p, m, d = X.shape
    asked = Asked(p, d, 2)
    everything = np.broadcast_to(np.arange(m), (TRIALS, p, m))
    order = np.random.default_rng(4).permuted(everything, axis=-1) if ordered else None
    batches = list(explicit_batch(X, y, counts).minibatches(size, order))
    assert len(batches) == -(-m // size)
    for number, batch in enumerate(batches):
        data = []
        for t in range(TRIALS):
            data.append([])
            for i in range(p):
                own = [j for j in (everything if order is None else order)[t, i] if j < counts[t, i]]
                chosen = own[number * size : (number + 1) * size]
                data[t].append((X[t, i, chosen], y[t, i, chosen]))
        assert_answers(batch, data, asked)
        for t, i in np.ndindex(TRIALS, p):
            X_i, y_i = data[t][i]
            assert np.array_equal(batch.X[t, i, : len(y_i)], X_i)
            assert np.array_equal(batch.y[t, i, : len(y_i)], y_i)
            assert not batch.X[t, i, len(y_i) :].any()
            assert not batch.y[t, i, len(y_i) :].any()


def test_minibatches_in_a_drawn_order():
    """An order that is given counts more than a generator."""
    X, y, counts = draw([[7, 7, 7], [7, 2, 5], [3, 7, 7]], 4)
    batch = explicit_batch(X, y, counts)

    def random():
        return TrialRandom(generators(1, Stream.ALGORITHM, range(TRIALS)))

    order = random().permutations((3,), 7)
    pairs = [
        (batch.minibatches(3, rng=random()), batch.minibatches(3, order)),
        (batch.minibatches(3, order[..., ::-1], rng=random()), batch.minibatches(3, order[..., ::-1])),
    ]
    for one, other in pairs:
        for part, wanted in zip(one, other, strict=True):
            assert np.array_equal(part.X, wanted.X)
            assert np.array_equal(part.y, wanted.y)


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("counts", [[[9, 9, 9]], [[11, 11, 11]], [[3, 4, 9], [9, 5, 6], [7, 11, 3]]])
def test_split_gives_as_many_parts_as_are_asked(counts, parts, rest):
    X, y, counts = draw(counts, 4)
    batch = explicit_batch(X, y, counts)
    found = batch.split(parts, rest=rest) if rest else batch.split(parts)
    assert len(found) == parts
    for part, batch in enumerate(found):
        start = part * (counts // parts)
        sizes = counts - start if rest and part == parts - 1 else counts // parts
        assert np.array_equal(batch.counts, sizes)
        assert batch.X.shape[:2] == (TRIALS, 3)
        assert batch.X.shape[2] >= sizes.max()
        for t, i in np.ndindex(TRIALS, 3):
            size, own = int(sizes[t, i]), slice(int(start[t, i]), int(start[t, i] + sizes[t, i]))
            assert np.array_equal(batch.X[t, i, :size], X[t, i, own])
            assert np.array_equal(batch.y[t, i, :size], y[t, i, own])
            assert not batch.X[t, i, size:].any()
            assert not batch.y[t, i, size:].any()
    with pytest.raises(ValueError, match=f"must be at least {counts.min() + 1:g}"):
        explicit_batch(X, y, counts).split(int(counts.min()) + 1)


# --- dependent features --------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [linalg.CACHE_VALUES, 1], ids=["one block", "a block for each client"])
@pytest.mark.parametrize("case", ["empty clients", "n m < d", "dependent samples"])
def test_pooled_least_squares_of_minimum_norm(case, values, monkeypatch):
    monkeypatch.setattr(linalg, "CACHE_VALUES", values)
    counts = {"empty clients": [[0, 4, 0, 9], [2, 0, 0, 9], [1, 1, 1, 9]], "n m < d": [[2, 1, 3]]}.get(case, [[5, 5]])
    X, y, counts = draw(counts, 9 if case == "n m < d" else 5)
    if case == "dependent samples":
        X[..., 4] = X[..., 0] - 2 * X[..., 1]
        X[1] = X[1, :1, :1]
    batch, weights = explicit_batch(X, y, counts), Asked(X.shape[1], X.shape[-1], 1).weights
    theta = batch.pooled_least_squares(weights)
    for t, clients in enumerate(rows(X, y, counts)):
        own_X, own_y = zip(*clients, strict=True)
        np.testing.assert_allclose(theta[t], [ref.stacked_least_squares(own_X, own_y, weights[t])], **TOLERANCE)
        for ridge in (1e-3, 2.0):
            A = sum(w * x.T @ x / len(x) for w, x in zip(weights[t], own_X, strict=True) if len(x))
            b = sum(w * x.T @ z / len(x) for w, x, z in zip(weights[t], own_X, own_y, strict=True) if len(x))
            wanted = np.linalg.solve(A + ridge * np.eye(X.shape[-1]), b)
            np.testing.assert_allclose(batch.pooled_least_squares(weights, ridge)[t, 0], wanted, rtol=1e-9, atol=1e-12)
    alone = np.zeros_like(weights)
    alone[:, -1] = 2.0  # a client that weighs nothing plays no part
    np.testing.assert_allclose(batch.pooled_least_squares(alone)[:, 0], batch.least_squares()[:, -1], **TOLERANCE)


@pytest.mark.parametrize("shape", ["m == k", "m < k", "unequal"])
def test_gradient_is_exactly_zero_where_samples_do_not_exceed_k(shape):
    counts, d, k = SHAPES[shape]
    X, y, counts = draw(counts, d)
    features = explicit_batch(X, y, counts).project(Asked(X.shape[1], d, k).B)
    fit = features.fit()
    for i in range(X.shape[1]):
        alone = np.zeros(counts.shape)
        alone[:, i] = 1.0
        moves = fit.representation_gradient(alone).any(axis=(1, 2))
        assert np.array_equal(moves, counts[:, i] > k)
        left = fit.shifted().y[:, i].any(axis=-1)
        assert np.array_equal(left, counts[:, i] > k)


@pytest.mark.parametrize("cause", ["B", "samples", "a zero column of B"])
@pytest.mark.parametrize("m", [2, 3, 4, 8])
def test_dependent_features_give_the_shortest_head_and_a_flag(m, cause):
    p, d, k = 3, 5, 3
    X, y, counts = draw([[m] * p], d)
    asked = Asked(p, d, k)
    if cause == "samples":  # one client of one trial
        X[1, 2] = np.outer(np.arange(1.0, m + 1), X[1, 2, 0])
        marked = np.array([False, True, False])
    else:
        asked.B[1:, :, 2] = asked.B[1:, :, 0] - 2 * asked.B[1:, :, 1] if cause == "B" else 0.0
        marked = np.array([False, True, True])
    batch = explicit_batch(X, y, counts)
    features = batch.project(asked.B)
    assert not batch.singular.any()
    features.fit(0.3)
    assert not batch.singular.any()  # a ridge makes the head unique
    fit = features.fit()
    # With fewer samples than k every head is a choice of minimum norm: nothing unusual to mark.
    assert np.array_equal(batch.singular, marked if m >= k else [False] * TRIALS)
    assert np.array_equal(batch.shifted(asked.theta).singular, batch.singular)
    wanted = loop_answers(rows(X, y, counts), asked)
    np.testing.assert_allclose(fit.W, wanted["heads"], **TOLERANCE)
    got = fit.representation_gradient()
    np.testing.assert_allclose(got, wanted["representation gradient at the heads"], **TOLERANCE)


def test_a_flag_raised_in_a_derived_batch_is_seen_in_the_batch():
    X, y, counts = draw([[6, 6]], 4)
    batch = explicit_batch(X, y, counts)
    B = np.ones((TRIALS, 4, 2))
    B[0, :2, 0] = -1.0
    batch.shifted(np.ones((TRIALS, 1, 4))).project(B).fit()
    assert np.array_equal(batch.singular, [False, True, True])


@pytest.mark.parametrize("m", [3, 5, 9])
def test_dependent_samples_give_the_shortest_least_squares(m):
    X, y, counts = draw([[m, m, m]], 5)
    X[0, 1] = np.outer(np.arange(1.0, m + 1), X[0, 1, 0])
    X[2, 0, 1:] = 0.0
    batch = explicit_batch(X, y, counts)
    wanted = loop_answers(rows(X, y, counts), Asked(3, 5, 2))
    np.testing.assert_allclose(batch.least_squares(), wanted["least squares"], **TOLERANCE)
    np.testing.assert_allclose(batch.least_squares(0.3), wanted["ridge"], **TOLERANCE)


def test_the_order_of_minibatches_may_be_a_list():
    X = np.arange(12.0).reshape(1, 2, 3, 2)
    batch = ExplicitBatch(X, X[..., 0], active=np.array([[0, 1]]))
    order = [[[2, 0, 1], [1, 2, 0]]]
    for one, other in zip(batch.minibatches(2, order), batch.minibatches(2, np.array(order)), strict=True):
        assert np.array_equal(one.X, other.X)
    for wrong in ([[[0, 1], [1, 2, 0]]], [[[0.5, 1, 2], [1, 2, 0]]], [[["a", "b", "c"]] * 2]):
        with pytest.raises(ValueError, match="order"):
            next(batch.minibatches(2, wrong))
