"""Labels made from the ground truth's parts when they are asked for, against a loop."""

import itertools

import numpy as np
import pytest

from linfed.data.explicit import ExplicitBatch
from linfed.data.labels import LabelLaw
from linfed.numerics import linalg
from tests.data.batches import TOLERANCE, TRIALS, Asked, assert_answers, draw, everyone, rows

PARTS = [parts for size in range(4) for parts in itertools.combinations(("BW", "S", "noise"), size)]


@pytest.mark.parametrize("first", ["y", "project", "gradient"])
@pytest.mark.parametrize("parts", PARTS, ids="+".join)
def test_labels_are_the_sum_of_their_parts(parts, first, monkeypatch):
    p, m, d, r = 4, 5, 6, 2
    X = draw([[m] * p], d)[0]
    monkeypatch.setattr(linalg, "CACHE_VALUES", 2 * m * d)  # two clients in a block
    rng = np.random.default_rng(3)
    B, W = rng.standard_normal((TRIALS, d, r)), rng.standard_normal((TRIALS, p, r))
    S, noise = rng.standard_normal((TRIALS, p, d)), rng.standard_normal((TRIALS, p, m))
    y = np.zeros((TRIALS, p, m))
    for t, i in np.ndindex(TRIALS, p):
        y[t, i] = (("BW" in parts) * (X[t, i] @ B[t] @ W[t, i]) + ("S" in parts) * (X[t, i] @ S[t, i])) + (
            "noise" in parts
        ) * noise[t, i]
    law = LabelLaw(
        B=B if "BW" in parts else None,
        W=W if "BW" in parts else None,
        S=S if "S" in parts else None,
        noise=noise if "noise" in parts else None,
    )
    batch = ExplicitBatch(X, law, active=everyone(X))
    asked = Asked(p, d, 3)
    if first == "y":
        assert batch.y.shape == y.shape
    elif first == "gradient":
        batch.gradient(asked.theta)
    assert_answers(batch, rows(X, y, batch.counts), asked)
    np.testing.assert_allclose(batch.y, y, **TOLERANCE)


def test_the_labels_of_a_client_alone_have_the_bits_of_many():
    X, rng = draw([[1] * 5], 8)[0], np.random.default_rng(3)
    parts = {"W": rng.standard_normal((TRIALS, 5, 20)), "S": rng.standard_normal((TRIALS, 5, 8))}
    law, stars = LabelLaw(B=None, noise=rng.standard_normal((TRIALS, 5, 1)), **parts), rng.standard_normal((20, 1, 5))
    together = law.labels(slice(1, 2), slice(0, 5), X[1:2], stars)
    for i in range(5):
        own = np.ascontiguousarray(stars[..., i : i + 1])
        alone = law.labels(slice(1, 2), slice(i, i + 1), X[1:2, i : i + 1], own)
        assert np.ascontiguousarray(together[:, i]).tobytes() == np.ascontiguousarray(alone[:, 0]).tobytes()
