"""Models of one and two layers: their gradients, and their parameters as one vector."""

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.models import LinearModel
from linfed.data.explicit import ExplicitBatch
from tests.helpers import normal
from tests.worlds import draw_world

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


@pytest.mark.parametrize("common", [False, True], ids=["each its own", "one for all"])
@pytest.mark.parametrize(("d", "k"), [(4, 0), (4, 2), (3, 1), (2, 2)])
def test_gradients_of_both_models_are_central_differences_of_the_loss(d, k, common):
    model = LinearModel(d, k)
    world = draw_world([5, 1, 3], d, max(k, 1), noise=0.3)
    data = world.data()
    batch = ExplicitBatch(data.X[None], data.y[None], active=np.arange(3)[None], counts=data.counts[None])
    size = d * k + k if k else d
    point = normal(1, 1 if common else 3, size)

    def loss(vector):
        if k == 0:
            return batch.loss(vector)
        B, w = vector[..., : d * k].reshape(*vector.shape[:2], d, k), vector[..., d * k :]
        return batch.loss(np.einsum("tndk,tnk->tnd", B, w))

    gradient = model.gradient(batch, point)
    assert gradient.shape == (1, 3, size)
    h = 0.5  # along one coordinate the loss is quadratic, so central differences are exact at any width
    for j, e in enumerate(h * np.eye(size)):
        np.testing.assert_allclose(gradient[..., j], (loss(point + e) - loss(point - e)) / (2 * h), **TOLERANCE)


def test_parameters_as_one_vector_and_back():
    B, w, theta = normal(2, 4, 3), normal(2, 5, 3, seed=1), normal(2, 5, 4, seed=2)
    model = LinearModel.of(lf.State(B=B, W=w))
    vector = model.vector(B, w)
    assert vector.shape == (2, 5, 15)
    one, two = model.layers(vector)
    assert np.array_equal(one, np.broadcast_to(B[:, None], (2, 5, 4, 3)))
    assert np.array_equal(two, w)
    units = normal(2, 5, 3, seed=3)
    B_units, w_units = model.layers(model.vector_of_units(units))
    assert np.array_equal(B_units, np.broadcast_to(units[:, :, None], (2, 5, 4, 3)))
    assert np.array_equal(w_units, units)
    shared = {"B": B, "W": w[:, :1]}
    for kind, arrays in ((model, shared), (LinearModel.of(lf.State(S=theta)), {"S": theta[:, :1]})):
        vector = kind.shared(lf.State(**arrays))
        assert vector.shape == (2, 1, kind.size)
        parts = kind.parts(vector)
        assert parts.keys() == arrays.keys()
        assert all(np.array_equal(parts[name], array) for name, array in arrays.items())
    assert np.array_equal(LinearModel(4, 0).vector_of_units(theta), theta)
    assert LinearModel(4, 0) == LinearModel(4, 0, classes=0, kept=False)


def test_vectors_of_representations_of_their_own():
    own, W = normal(2, 5, 4, 3), normal(2, 5, 3, seed=1)
    model = LinearModel(4, 3)
    for heads in (W, W[:, :1]):
        B, w = model.layers(model.vector(own, heads))
        assert np.array_equal(B, own)
        assert np.array_equal(w, np.broadcast_to(heads, W.shape))
        np.testing.assert_allclose(
            model.predictors(model.vector(own, heads)), np.einsum("tndk,tnk->tnd", own, w), **TOLERANCE
        )
    theta = normal(2, 5, 4)
    assert np.array_equal(LinearModel(4, 0).predictors(theta), theta)
