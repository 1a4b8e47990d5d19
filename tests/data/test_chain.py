"""The chain: a frame of r + 2k rows that keeps lengths and angles, and noise outside of it."""

import numpy as np
import pytest

import linfed as lf
from linfed.data.chain import ChainSource
from linfed.data.projected.source import ProjectedSource
from linfed.data.sources import Sizes
from linfed.numerics import streams
from tests.data.small import simulate
from tests.helpers import basis, normal
from tests.worlds import fedrep, shared

X_NOISE = (streams.Stream.X, streams.Stream.NOISE)
FINISH = (streams.Stream.FINISH_X, streams.Stream.FINISH_NOISE)


def test_the_frame_of_the_chain_keeps_lengths_and_angles():
    sizes, given = Sizes(n_clients=6, dim=11, participants=6, n_rounds=1, features=20), shared(d=11).truth(7, range(3))
    source, state = ChainSource(9, given, sizes, 3, 7, range(3)), lf.State(B=normal(3, 11, 3), W=normal(3, 6, 3))
    framed, star = source.to_frame(state), source.truth_in_frame(given).B
    assert framed.B.shape == (3, 8, 3)
    np.testing.assert_allclose(star.mT @ framed.B, given.B.mT @ state.B, atol=1e-12)
    moved = framed.update(B=normal(3, 8, 3, seed=1))
    for before, after in ((state, framed), (moved, source.reframe(moved))):
        np.testing.assert_allclose(after.B.mT @ after.B, before.B.mT @ before.B, atol=1e-12)
        assert not after.B[:, 5:].any()
        assert np.array_equal(after.W, state.W)
    assert np.array_equal(source.reframe(moved).B[:, :2], moved.B[:, :2])


@pytest.mark.parametrize("finish", [False, True])
def test_noise_outside_of_b_and_the_truth_is_that_of_its_stream(finish):
    pair = FINISH if finish else X_NOISE
    rngs = streams.generators(7, streams.Stream.FINISH_OUTSIDE if finish else streams.Stream.OUTSIDE, range(3))
    sizes, given = Sizes(n_clients=6, dim=11, participants=6, n_rounds=1, features=20), shared(d=11).truth(7, range(3))
    N = np.stack([rng.standard_normal((11, 3)) for rng in rngs])
    P = np.stack([basis(11, 5, seed=t) for t in range(3)])
    noise = ProjectedSource(9, given, sizes, 3, 7, range(3), pair).outer_noise(P)
    np.testing.assert_allclose(noise, N - P @ (P.mT @ N), atol=1e-13)

    rngs = streams.generators(7, streams.Stream.FINISH_OUTSIDE if finish else streams.Stream.OUTSIDE, range(3))
    P = np.stack([basis(8, 5, seed=t) for t in range(3)])
    noise = ChainSource(9, given, sizes, 3, 7, range(3), pair).outer_noise(P)
    np.testing.assert_allclose(P.mT @ noise, 0, atol=1e-13)
    for rng, found in zip(rngs, noise, strict=True):
        T = np.zeros((3, 3))
        T[0, 1], T[0, 2], T[1, 2] = rng.standard_normal(3)
        for j in range(3):  # d - r - k degrees of freedom and fewer
            T[j, j] = np.sqrt(2.0 * rng.standard_gamma((11 - 2 - 3 - j) / 2))
        np.testing.assert_allclose(found.T @ found, T.T @ T, atol=1e-12)


@pytest.mark.parametrize(("r", "k"), [(2, 2), (1, 2), (4, 2), (3, 1)])
def test_the_chain_has_r_plus_2k_rows(r, k):
    for d in (9, r + 2 * k):  # the least that there may be: then it has them all
        result = simulate(fedrep(d=d, k=k, init="random"), shared(d=d, r=r), lf.FreshSamples(5), engine="chain")
        assert result.final.B.shape == (3, r + 2 * k, k)
        assert np.abs(result.final.B[:, r + k :]).max() == 0


def test_the_chain_keeps_b_up_to_a_rotation_and_says_so():
    result = simulate(fedrep(), shared(), lf.FreshSamples(5), engine="chain")
    assert result.final.B.shape == (3, 6, 2)
    for question in (lambda: result.new_clients([5]), result.client_risks):
        with pytest.raises(ValueError, match=r"up to a rotation.*'projected'"):
            question()
