"""FedRep with compressed messages: the variance of compression, and what it requires."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, basis, normal

D, K = 7, 2


def compressed(**changes):
    return lf.CompressedFedRep(**{"rank": K, "step_size": 0.4, "kept_share": 0.5} | changes)


# --- the algorithm ---------------------------------------------------------------------------------------------


def test_keeping_all_entries_is_fedrep():
    X, y, B = normal(1, 6, 5, D, seed=1), normal(1, 6, 5, seed=2), basis(D, K)
    run = {"data": lf.GivenSamples(X, y), "n_rounds": 3}
    plain = lf.simulate(lf.FedRep(rank=K, step_size=0.4, init=B), **run).final.B
    for same in ({"kept_share": 1.0}, {"kept_share": None, "levels": 10**12}):
        np.testing.assert_allclose(lf.simulate(compressed(init=B, **same), **run).final.B, plain, atol=1e-11)


class Repeated:
    """Uniform numbers of many trials from one generator."""

    def uniform(self, shape):
        return np.random.default_rng(0).random((20_000, *shape))


@pytest.mark.parametrize("levels", [1, 2, 5, 40])
def test_compression_has_no_bias_and_its_relative_variance(levels):
    """That of sparsification is ``1/q - 1``. That of quantisation is below its bound, by at most a factor of 12."""
    message = np.outer(normal(D, seed=3), [1.0, -0.4])
    many = np.broadcast_to(message, (20_000, 1, D, K))
    square = (message**2).sum()
    for algorithm in (compressed(kept_share=1.0 / (1.0 + levels)), compressed(kept_share=None, levels=levels)):
        found = algorithm._compressed(many, Repeated())[:, 0]
        spread = found.std(axis=0) / len(found) ** 0.5
        assert (np.abs(found.mean(axis=0) - message) < 4.5 * spread + 1e-12).all()
        errors = ((found - message) ** 2).sum(axis=(-2, -1)) / square
        if algorithm.levels is None:
            assert abs(errors.mean() - levels) < 4 * errors.std() / len(errors) ** 0.5 + 1e-12
        else:
            bound = min(D * K / levels**2, (D * K) ** 0.5 / levels)
            assert bound / 12 < errors.mean() < bound


def test_a_vanishing_message_stays_zero():
    assert not compressed(kept_share=None, levels=2)._compressed(np.zeros((20_000, 1, D, K)), Repeated()).any()


PROBLEM = lf.SharedRepresentation(n_clients=30, dim=12, rank=2, condition_number=2.0, noise_std=0.3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kept_share": 1.2}, ["kept_share = 1.2", "at most 1"]),
        ({"kept_share": None}, ["exactly one of kept_share and levels"]),
        ({"levels": 3}, ["exactly one of kept_share and levels", "levels = 3"]),
        ({"kept_share": None, "levels": 3, "shared_mask": True}, ["shared_mask = True requires kept_share"]),
        ({"whiten": "own"}, ["whiten"]),
    ],
)
def test_an_invalid_option_is_named(changes, words):
    assert_one_line(lambda: compressed(**changes), words)


def test_it_supports_only_regression_and_rows_of_each_client():
    problem = lf.Classes(n_clients=6, n_classes=3, classes_per_client=2, dim=9)
    algorithm = compressed(heads=lf.GradientHeads())
    call = lambda: lf.simulate(algorithm, problem, data=lf.FreshSamples(5), n_rounds=1)  # noqa: E731
    assert_one_line(call, ["CompressedFedRep supports only regression"])
    run = {"data": lf.FreshSamples(6), "n_rounds": 2}
    refused = ["engine = 'projected'", "more than the features"]
    assert_one_line(lambda: lf.simulate(compressed(), PROBLEM, engine="projected", **run), refused, lf.EngineError)
