"""Projected features: equations that one draw obeys, the numbers that it uses, and what is asked twice."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import linfed as lf
from linfed.data.projected import draws
from linfed.data.projected import features as features_module
from linfed.numerics import linalg, streams
from tests.data.small import COUNTS, LEVELS, PLAIN, at, batch_of, simulate
from tests.helpers import basis, mostly_long, normal
from tests.worlds import truth

X_NOISE = (streams.Stream.X, streams.Stream.NOISE)


@pytest.mark.parametrize("kind", ["ahead", "block by block", "block by block, differing clients"])
def test_numbers_of_projected_rounds_are_those_of_their_streams(kind, monkeypatch):
    """Four Gaussian and three chi-square values of each of five clients, with m, m - 1 and m - 2 degrees."""
    monkeypatch.setattr(linalg, "CACHE_VALUES", 20)  # two clients in a block
    if kind != "ahead":
        monkeypatch.setattr(draws, "BLOCK_VALUES", 0)
    m = np.array([[8, 4, 9, 5, 6], [7, 7, 3, 8, 11]] if "differing" in kind else [[8] * 5] * 2, dtype=float)
    made = draws.Draws(4, 3, None if "differing" in kind else 8, 5, 2, 7, range(2), X_NOISE)
    assert made.lasting == (kind == "ahead")
    rngs = [streams.generators(7, one, range(2)) for one in X_NOISE]
    for _ in range(2):
        made.next_round(m if "differing" in kind else None)
        normals, squares = np.empty((2, 4, 5)), np.empty((2, 3, 5))
        for t in range(2):
            for c in [range(5)] if kind == "ahead" else [range(2), range(2, 4), range(4, 5)]:
                normals[t][:, c] = rngs[0][t].standard_normal((4, len(c)))
                for j in range(3):
                    squares[t, j, c] = [2.0 * rngs[1][t].standard_gamma((m[t, i] - j) / 2) for i in c]
        for _ in range(2):  # a second pass has the same numbers
            seen = 0
            for t, c, found_normals, found_squares in made.blocks(10):
                np.testing.assert_array_equal(found_normals, normals[t, :, c])
                np.testing.assert_allclose(found_squares, squares[t, :, c], rtol=1e-13)
                seen += found_normals.size
            assert seen == normals.size


PROJECTED = {
    "low-rank truth": (truth(), 5, None, 2),
    "one sample": (truth(), 1, None, 2),
    "dense truth": (lf.GivenTruth(Phi=normal(6, 9), noise_std=0.3), 5, None, 2),
    "truth with a shortcut": (truth(S=normal(6, 9)), 5, None, 2),
    "covariance": (truth(design=lf.Gaussian(covariance=np.linspace(0.5, 2.0, 9))), 5, None, 2),
    "four columns": (truth(r=3), 7, None, 4),
    "four columns, three samples": (truth(r=6), 3, None, 4),
    "differing clients": (truth(noise=LEVELS), COUNTS, None, 3),
    "block by block": (truth(), 5, 60, 2),
    "block by block, dense truth": (lf.GivenTruth(Phi=normal(6, 9), noise_std=0.3), 5, 60, 2),
    "block by block, differing clients": (truth(noise=LEVELS), COUNTS, 60, 2),
}
REPEATED = ("low-rank truth", "block by block", "block by block, dense truth")
"""Settings whose every part is in another one."""


@pytest.fixture(params=mostly_long(PROJECTED, *(name for name in PROJECTED if name not in REPEATED)))
def setting(request, monkeypatch):
    if (cache := PROJECTED[request.param][2]) is not None:
        monkeypatch.setattr(draws, "BLOCK_VALUES", 0)
        monkeypatch.setattr(linalg, "CACHE_VALUES", cache)
    return request.param


def opened(setting):
    """Return the features of a setting's first round, B and the numbers of samples."""
    problem, m, _, k = PROJECTED[setting]
    B = basis(9, k, seed=3) @ (np.eye(k) + np.triu(normal(k, k, seed=4)) / 4)
    return batch_of("projected", problem, lf.FreshSamples(m), k).project(at(B)), at(B), m


@pytest.fixture
def features(setting):
    return opened(setting)


@pytest.mark.parametrize("weights", [None, 0.3, normal(4, 6, seed=2)], ids=["mean", "a number", "weighted"])
def test_both_gradients_at_once_are_the_two_of_one_draw(setting, weights):
    """Of the same numbers, asked together and one by one; who writes into an answer does not change the next one."""
    together, alone = (opened(setting)[0] for _ in range(2))
    W = normal(4, 6, together.B.shape[-1], seed=1)
    both, given = together.gradients(W, weights), W.copy()
    for one, other in zip(both, (alone.head_gradient(W), alone.representation_gradient(W, weights)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
    kept = [part.copy() for part in both]
    for part in both:
        part *= -7.0
    for one, other in zip(together.gradients(W, weights), kept, strict=True):
        assert one.tobytes() == other.tobytes()
    assert np.array_equal(W, given)


def test_messages_and_head_gradients_come_from_the_same_samples(features):
    """``B' sum_i (1/m) X_i'r_i w_i' = sum_i (head gradient)_i w_i'`` at any heads."""
    features, B, _ = features
    W = normal(4, 6, features.B.shape[-1], seed=1)
    G = features.representation_gradient(W, 1.0)
    wanted = np.swapaxes(features.head_gradient(W), -1, -2) @ W
    np.testing.assert_allclose(np.swapaxes(B, -1, -2) @ G, wanted, atol=1e-12)


def test_exact_heads_solve_the_normal_equations_of_the_same_samples(features):
    features, B, m = features
    fit = features.fit()
    G = fit.representation_gradient()
    assert np.abs(features.head_gradient(fit.W)).max() < 1e-11
    assert np.abs(np.swapaxes(B, -1, -2) @ G).max() < 1e-11
    assert (np.min(m) > B.shape[-1]) == bool(G.any())


def test_ridge_heads_solve_theirs(features):
    features, B, _ = features
    fit = features.fit(0.2)
    np.testing.assert_allclose(features.head_gradient(fit.W), -0.2 * fit.W, atol=1e-12)
    wanted = -0.2 * fit.W.mT @ fit.W / 6
    np.testing.assert_allclose(B.mT @ fit.representation_gradient(), wanted, atol=1e-12)


def test_labels_have_the_coordinates_of_the_truth(features):
    features, B, _ = features
    truth, frame, k = features._source.truth, features._frame, B.shape[-1]
    np.testing.assert_allclose(frame.P.mT @ frame.P, at(np.eye(frame.P.shape[-1])), atol=1e-13)
    np.testing.assert_allclose(frame.P[..., :k] @ frame.R, truth.design.root_apply(B), atol=1e-13)
    a, e, tau, _ = features._labels(slice(0, 4), slice(0, 6))
    outside = e if frame.star is None else frame.P[..., k:] @ e
    phi = truth.design.root_apply(truth.dense().mT)
    np.testing.assert_allclose(frame.P[..., :k] @ a + outside, phi, atol=1e-12)
    np.testing.assert_allclose(frame.P[..., :k].mT @ outside, 0, atol=1e-12)
    squares = np.square(outside).sum(axis=1) + np.broadcast_to(truth.noise_std, 6) ** 2
    np.testing.assert_allclose(np.square(tau), squares, rtol=1e-12)


def pseudo_samples(features):
    """Return Z0, Z (T, n, rows, k), v, y (T, n, rows) and g (T, n, q) of all pseudo-samples."""

    def stacked(columns, shape):
        rows = [[np.zeros(shape) if row is None else np.broadcast_to(row, shape) for row in one] for one in columns]
        return np.array(rows).transpose(2, 3, 1, 0)

    found = {}
    for t, c, pseudo in features._pseudo_blocks():
        shape = pseudo.labels.tau.shape
        parts = [stacked(pseudo.Z0, shape), stacked(pseudo.Z, shape)]
        parts += [stacked([part], shape)[..., 0] for part in (pseudo.v, pseudo.y)] + [pseudo.g.mT]
        for index, part in enumerate(parts):
            found.setdefault(index, np.empty((4, 6, *part.shape[2:])))[t, c] = part
    return list(found.values())


def test_pseudo_samples_use_every_number_once(features):
    features, B, _ = features
    source, numbers, k = features._source, np.empty((4, 6)), B.shape[-1]
    for t, c, normals, squares in source.draws.blocks(features._values()):
        numbers[t, c] = np.square(normals[:, : source.inner]).sum(axis=1) + squares.sum(axis=1)
    Z0, Z, v, y, _ = pseudo_samples(features)
    np.testing.assert_allclose(np.square(Z0).sum(axis=(-2, -1)) + np.square(v).sum(axis=-1), numbers, rtol=1e-12)
    assert not source.triangular or np.array_equal(np.tril(Z0, -1), np.zeros_like(Z0))
    assert Z0.shape[2] == (k + 1 if source.triangular else source.n_samples)
    np.testing.assert_allclose(Z, Z0 @ features._frame.R[:, None], atol=1e-12)
    a, _, tau, _ = features._labels(slice(0, 4), slice(0, 6))
    np.testing.assert_allclose(y, (Z0 @ a.mT[..., None])[..., 0] + tau[..., None] * v, atol=1e-12)


def looped_message(features, W, weights):
    """Return the part of ``sum_i X_i'r_i w_i'`` inside the basis, and the Gram matrix of the rest, from a loop."""
    Z0, Z, v, y, g = pseudo_samples(features)
    _, e, tau, _ = features._labels(slice(0, 4), slice(0, 6))
    counts, sigma = features._counts, np.broadcast_to(features._source.truth.noise_std, 6)
    inside, gram = (np.zeros_like(part) for part in features._no_message())
    for t, i in np.ndindex(4, 6):
        r = Z[t, i] @ W[t, i] - y[t, i]
        rho, length = np.linalg.norm(e[t, :, i]), np.linalg.norm(r)
        u = e[t, :, i] / rho
        h = u @ g[t, i]
        outside = u * (rho * (v[t, i] @ r) + sigma[i] * length * h) / tau[t, i] + length * (g[t, i] - u * h)
        w = W[t, i] * weights[t, i] / (1.0 if counts is None else counts[t, i])
        inside[t] += np.outer(np.append(Z0[t, i].T @ r, outside), w)
        gram[t] += length**2 * np.outer(w, w)
    return inside, gram


@pytest.mark.parametrize("heads", ["any", "exact", "exact, weighted", "ridge"])
def test_messages_are_those_of_the_loop(features, heads):
    features, B, _ = features
    frame, k, weights = features._frame, B.shape[-1], normal(4, 6, seed=2)
    if heads == "any":
        W = normal(4, 6, k, seed=1)
        message = features._message_at(W, weights)
    else:
        weights = np.ones((4, 6)) if heads == "exact" else weights
        ridge = 0.2 if heads == "ridge" else 0.0
        W, message = features.fitted(ridge, *([] if heads == "exact" else [weights]))
    inside, gram = looped_message(features, W, weights)
    np.testing.assert_allclose(message.inside, inside, atol=1e-10)
    if frame.star is None:  # nothing lies beyond
        Q, ambient = frame.P, inside[:, k:]
        wanted = Q @ inside[:, :k] + ambient - Q @ (Q.mT @ ambient)
    else:
        np.testing.assert_allclose(message.gram, gram, atol=1e-10)
        N = np.stack([rng.standard_normal((9, k)) for rng in streams.generators(1, streams.Stream.OUTSIDE, range(4))])
        N -= frame.P @ (frame.P.mT @ N)
        wanted = frame.P @ inside + N @ linalg.root_of_gram(message.gram)
    total = features.message_sum(message)
    np.testing.assert_allclose(total, wanted, atol=1e-9)
    found, counts = features.shaped(total, 0.5), 1.0 if features._counts is not None else features._source.n_samples
    np.testing.assert_allclose(found, features._source.truth.design.shape_rows(total.mT).mT * 0.5 / counts, atol=1e-12)


def test_pseudo_samples_are_kept_or_drawn_again(features, monkeypatch):
    features, B, _ = features
    W, answers = normal(4, 6, B.shape[-1], seed=1), []
    for limit in (features_module.KEPT_VALUES, 0):
        monkeypatch.setattr(features_module, "KEPT_VALUES", limit)
        features._kept = features._normal = None
        answers.append([features.head_gradient(W), *features._message_at(W, W[..., 0])])
        assert (features._kept is None) == (limit == 0)
    assert all(np.array_equal(one, other) for one, other in zip(*answers, strict=True))


def test_a_client_without_noise_and_without_a_part_outside_of_b_sends_gaussian_numbers():
    """There e and tau are 0, and the message outside of B is ||r|| times these numbers."""
    problem = lf.GivenTruth(B=basis(9, 2), W=normal(6, 2), noise_std=(0.0, 0.3, 0.3, 0.3, 0.3, 0.3))
    features = batch_of("projected", problem, lf.FreshSamples(5)).project(at(basis(9, 2)))
    labels, (norm, g) = features._labels(slice(0, 4), slice(0, 6)), (np.abs(normal(4, 6)), normal(4, 2, 6))
    labels.e[:, :, 0], labels.tau[:, 0] = 0.0, 0.0
    found = features._outside(labels, normal(4, 6, seed=1), norm, g)
    assert np.array_equal(found[..., 0], g[..., 0] * norm[:, None, 0])
    assert np.isfinite(found).all()


def test_the_message_is_the_same_however_it_is_asked_for():
    """At exact heads, in closed form or from pseudo-samples: what lies along B and the truth is the same."""
    problem, B, answers = truth(d=4), at(basis(4, 2, seed=3)), []  # nothing lies outside
    for weights, scale in ((None, 1.0), (1.0, 6.0), (np.full((4, 6), 1 / 6), 1.0)):
        features = batch_of("projected", problem, lf.FreshSamples(6)).project(B)
        answers.append(features.fit().representation_gradient(weights) / scale)
    features = batch_of("projected", problem, lf.FreshSamples(6)).project(B)
    answers.append(features.representation_gradient(features.fit().W))
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], atol=1e-12)


# --- questions that are asked twice -----------------------------------------------------------------------------


def test_the_same_question_has_the_same_answer(features):
    features, _, _ = features
    W = normal(4, 6, features.B.shape[-1], seed=1)
    first, fit = features.head_gradient(W), features.fit()
    mean = fit.representation_gradient()
    assert np.array_equal(features.head_gradient(W), first)
    assert np.array_equal(features.fit().W, fit.W)
    assert np.array_equal(fit.representation_gradient(), mean)
    for one in (1.0, np.array(1.0)):
        np.testing.assert_allclose(fit.representation_gradient(one), 6 * mean, rtol=1e-12)


@pytest.mark.parametrize("heads", ["exact", "any"])
def test_one_choice_of_weights_is_answered_again_and_no_other(heads):
    features = batch_of("projected", truth(), lf.FreshSamples(5)).project(at(basis(9, 2)))
    W, weights = normal(4, 6, 2), np.abs(normal(4, 6, seed=1))
    ask = features.fit().representation_gradient if heads == "exact" else partial(features.representation_gradient, W)
    first = ask(weights)
    kept = first.copy()
    first *= 2.0
    np.testing.assert_array_equal(ask(weights.copy()), kept)
    with pytest.raises(lf.EngineError, match="a second representation_gradient in a round"):
        ask(2.0 * weights)


def test_a_batch_is_projected_at_an_equal_b_to_heads_that_cannot_be_written():
    batch, B = batch_of("projected", truth(), lf.FreshSamples(5)), np.array(at(basis(9, 2)))
    assert batch.project(B) is batch.project(B) is batch.project(B.copy())
    with pytest.raises(ValueError, match="read-only"):
        batch.project(B).fit().W[0, 0, 0] = 1.0


@dataclass(frozen=True, kw_only=True)
class Twice(lf.FedRep):
    """Asks for two messages in one step, and says that it does not."""

    ask: object
    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        features = batch.project(state.B)
        self.ask(batch, features, features.fit())
        return state


TWICE = {
    "at two B": lambda batch, features, fit: batch.project(features.B + 0.5).representation_gradient(fit.W),
    "at two sets of heads": lambda batch, features, fit: (
        fit.representation_gradient() - features.representation_gradient(fit.W)
    ),
    "of two fits": lambda batch, features, fit: (
        fit.representation_gradient() - features.fit(0.1).representation_gradient()
    ),
}


@pytest.mark.parametrize("engine", ["projected", "chain"])
@pytest.mark.parametrize("name", TWICE)
def test_what_has_another_law_is_refused(name, engine):
    with pytest.raises(lf.EngineError, match=f"engine = {engine!r}.*lf.Requires.QUADRATIC if a step"):
        simulate(Twice(**PLAIN, ask=TWICE[name]), truth(), lf.FreshSamples(12), engine=engine)
