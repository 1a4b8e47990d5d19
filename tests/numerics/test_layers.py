"""The chain rule between a predictor and its two layers, against loops over clients."""

import numpy as np
import pytest

from linfed.numerics import layers
from tests.algorithms import class_references as ref
from tests.helpers import normal

TRIALS, N, C, D, K = 2, 5, 4, 5, 2
B = normal(TRIALS, D, K, seed=7)
BS = normal(TRIALS, N, D, K, seed=8)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("own", [True, False])
def test_layers_are_loops_with_classes(own):
    W, g = normal(TRIALS, N, C, K + 1, seed=6), normal(TRIALS, N, C, D + 1, seed=5)
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


@pytest.mark.parametrize("own", [True, False])
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
