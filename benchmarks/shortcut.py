"""Closed form of FedRep with a shortcut (least squares in d dimensions for each client), against LAPACK's solve.

The other side uses the same samples and labels, computes ``X_i'X_i`` and ``X_i'y_i`` for all clients and solves them in
one batched call. Before the timing, both sides must give the same vectors.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from benchmarks.ours import NOISE_STD, Size
from benchmarks.timing import Measurement, Row, Settings, Target, interleaved, repeated
from linfed.data.explicit import ExplicitBatch

TOLERANCE = 1e-9
"""Tolerance for the difference of both sides, relative to the largest entry."""


@dataclass(frozen=True)
class Case:
    """Fixed samples of clients with shortcuts."""

    size: Size

    @functools.cached_property
    def samples(self) -> Any:
        """Samples X (1, n, m, d) and y (1, n, m) of seed 0."""
        n, d, k, m = self.size.n, self.size.d, self.size.k, self.size.m
        problem = lf.SharedWithShortcuts(n_clients=n, dim=d, rank=k, shortcut_norm=0.5, noise_std=NOISE_STD)
        return lf.FixedSamples(m).draw(problem)

    @property
    def batch(self) -> ExplicitBatch:
        """Batch of all clients, for linfed's side."""
        X, y = (np.array(part).reshape(1, self.size.n, self.size.m, -1) for part in (self.samples.X, self.samples.y))
        return ExplicitBatch(X, y[..., 0], active=np.arange(self.size.n)[None])


def against_lapack(size: Size, settings: Settings) -> Measurement:
    """Measure `least_squares` of a batch against computing and solving the normal equations."""
    batch = Case(size).batch
    X, y = batch.X[0], batch.y[0]

    def solved() -> Any:
        return np.linalg.solve(X.mT @ X, X.mT @ y[..., None])[..., 0]

    mine, its = batch.least_squares()[0], solved()
    difference = np.abs(mine - its).max() / np.abs(its).max()
    assert difference < TOLERANCE, f"{size}: LAPACK differs from ours by {difference:.2g}"
    return interleaved(
        repeated(batch.least_squares, settings.seconds), repeated(solved, settings.seconds), settings.repetitions
    )


ROWS = [
    Row(
        "closed form of all shortcuts against LAPACK's solve",
        str(size),
        Target("most", 1.5),
        lambda s, size=size: against_lapack(size, s),
    )
    for size in (Size(200, 200, 5, 400),)
]
