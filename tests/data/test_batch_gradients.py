"""Gradients of heads and of B from one draw, by every source of samples: those of two questions, and of the rows."""

import numpy as np
import pytest

import linfed as lf
from linfed.data import sources
from linfed.data.projected import draws
from linfed.data.sources import Sizes
from linfed.numerics import linalg
from linfed.simulation.engines import open_source
from tests.helpers import basis, normal

HELD, STREAMED = None, 60
BATCHES = {
    "explicit, fixed": ("explicit", lf.FixedSamples(12), HELD),
    "explicit, fresh": ("explicit", lf.FreshSamples(12), HELD),
    "explicit, fresh, few": ("explicit", lf.FreshSamples(1), HELD),
    "explicit, streamed": ("explicit", lf.FreshSamples(12), STREAMED),
    "compressed, fixed": ("compressed", lf.FixedSamples(12), HELD),
    "compressed, fresh": ("compressed", lf.FreshSamples(12), HELD),
    "projected": ("projected", lf.FreshSamples(12), HELD),
    "projected, few": ("projected", lf.FreshSamples(2), HELD),
    "projected, in blocks": ("projected", lf.FreshSamples(12), STREAMED),
    "chain": ("chain", lf.FreshSamples(12), HELD),
    "chain, in blocks": ("chain", lf.FreshSamples(12), STREAMED),
}


TRUTHS = {
    "low-rank": lf.GivenTruth(B=basis(9, 2, seed=20), W=normal(6, 2, seed=21), noise_std=0.3),
    "noiseless": lf.GivenTruth(B=basis(9, 2, seed=20), W=normal(6, 2, seed=21)),
    "dense": lf.GivenTruth(Phi=normal(6, 9, seed=22), noise_std=0.3),
}


WEIGHTS = [None, 1.0, 0.3, np.linspace(-0.5, 1.5, 12).reshape(3, 4)]


ACTIVE = np.array([[0, 2, 3, 5], [1, 2, 3, 4], [0, 1, 4, 5]])


def opened(name, problem, monkeypatch, rounds=3):
    engine, data, limit = BATCHES[name]
    if limit is not None:
        monkeypatch.setattr(sources, "CACHE_VALUES", 0)
        monkeypatch.setattr(draws, "BLOCK_VALUES", 0)
        monkeypatch.setattr(linalg, "CACHE_VALUES", limit)
    sizes = Sizes(n_clients=6, dim=9, participants=4, rounds=rounds, features=20)
    return open_source(engine, data, problem.truth(0, range(3)), sizes, 2, 5, range(3))


def heads_and_b(name, seed):
    rows = 6 if name.startswith("chain") else 9
    B = normal(3, rows, 2, seed=seed)
    if name.startswith("chain"):
        B[:, 4:] = 0.0
    return normal(3, 4, 2, seed=seed + 100), B


PLACES = [(name, truth) for name in BATCHES for truth in TRUTHS if not ("chain" in name and truth == "dense")]


@pytest.mark.parametrize(("name", "truth"), PLACES)
def test_both_gradients_at_once_are_the_two_of_one_batch(name, truth, monkeypatch):
    """Asked together, and one by one of the same draw; round after round, so that the streams stand alike."""
    together, alone = (opened(name, TRUTHS[truth], monkeypatch, rounds=4) for _ in range(2))
    for round_, weights in enumerate(WEIGHTS):
        W, B = heads_and_b(name, round_)
        both = together.round(ACTIVE).project(B).gradients(W, weights)
        features = alone.round(ACTIVE).project(B)
        each = features.head_gradient(W), features.representation_gradient(W, weights)
        for one, other in zip(both, each, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
    assert np.abs(both[1]).max() > 1e-2


@pytest.mark.parametrize("name", BATCHES)
def test_both_gradients_are_their_askers_own(name, monkeypatch):
    """Who writes into them changes neither what was asked with nor the next answer."""
    W, B = heads_and_b(name, 0)
    given = W.copy(), B.copy()
    features = opened(name, TRUTHS["low-rank"], monkeypatch).round(ACTIVE).project(B)
    first = features.gradients(W, WEIGHTS[3])
    kept = [part.copy() for part in first]
    for part in first:
        part *= -7.0
    assert np.array_equal(W, given[0])
    assert np.array_equal(B, given[1])
    for one, other in zip(features.gradients(W, WEIGHTS[3]), kept, strict=True):
        assert one.tobytes() == other.tobytes()


def test_streamed_rows_are_the_rows_that_are_drawn_ahead(monkeypatch):
    """Whatever is asked of a round, and if nothing is, the next one sees its own rows."""
    ahead = opened("explicit, fresh", TRUTHS["low-rank"], monkeypatch, rounds=5)
    wanted = [(batch.X.copy(), batch.y.copy()) for batch in (ahead.round(ACTIVE) for _ in range(5))]
    W, B = heads_and_b("explicit", 0)
    questions = [
        lambda batch: batch.project(B).gradients(W),
        lambda batch: (batch.project(B).gradients(W), batch.project(B).gradients(W, 1.0)),
        lambda batch: None,
        lambda batch: (batch.project(B).gradients(W), batch.loss(np.zeros((3, 1, 9)))),
        lambda batch: batch.X,
    ]
    for order in (questions, questions[::-1]):
        source = opened("explicit, streamed", TRUTHS["low-rank"], monkeypatch, rounds=5)
        for ask, (X, y) in zip(order, wanted, strict=True):
            batch = source.round(ACTIVE)
            assert type(batch.rows).__name__ == "DrawnRows"
            ask(batch)
            if ask is not questions[2]:
                assert np.array_equal(batch.X, X)
                np.testing.assert_allclose(batch.y, y, rtol=1e-12, atol=1e-12)


def test_given_samples_are_left_alone_by_the_gram_form(monkeypatch):
    source = opened("compressed, fixed", TRUTHS["dense"], monkeypatch)
    W, B = heads_and_b("compressed", 0)
    first = [part.copy() for part in source.round(ACTIVE).project(B).gradients(W, 1.0)]
    source.round(ACTIVE[::-1]).project(2 * B).gradients(W, 1.0)
    for one, other in zip(first, source.round(ACTIVE).project(B).gradients(W, 1.0), strict=True):
        assert one.tobytes() == other.tobytes()
