"""Which source answers for a run's data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linfed.data.samples import Data, FreshSamples, GivenSamples
from linfed.data.sources import FixedSource, FreshSource, Sizes, Source, draw_fixed
from linfed.problems import Truth
from linfed.streams import Seed


def open_source(data: Data, truth: Truth | None, sizes: Sizes, seed: Seed, trials: Sequence[int]) -> Source:
    """Return the source of a chunk of trials."""
    if isinstance(data, GivenSamples):
        if data.X.ndim == 4:
            X, y = data.X[list(trials)], data.y[list(trials)]
        else:
            X, y = (np.broadcast_to(array, (len(trials), *array.shape)) for array in (data.X, data.y))
        return FixedSource(X, y, np.broadcast_to(data.counts, X.shape[:2]))
    assert truth is not None
    if isinstance(data, FreshSamples):
        return FreshSource(data.n_samples, truth, sizes, seed, trials)
    X, y = draw_fixed(truth, (sizes.n_clients, data.n_samples, sizes.dim), seed, trials)
    return FixedSource(X, y, np.full(X.shape[:2], float(data.n_samples)))
