"""A table that several files test: two sizes and two rates, with an error per trial and a path over rounds."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import normal


@pytest.fixture
def table():
    settings = [(size, rate) for size in (3, 4) for rate in (0.5, 2.0)]
    return lf.Table(
        [
            {
                "size": size,
                "low": 0,
                "inner": "Inner",
                "inner.rate": rate,
                "sizes": (1, 2),
                "error": np.full(2, size * rate),
                "path": lf.LabeledArray(normal(2, 3), round=[0, 1, 2]),
            }
            for size, rate in settings
        ]
    )
