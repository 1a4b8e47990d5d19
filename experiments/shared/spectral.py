"""Spectral estimators by name."""

from __future__ import annotations

import linfed as lf
from linfed.algorithms.one_round.estimators import SpectralEstimator

MOMENTS, AVERAGES, PAIRS = "moments", "local averages", "U-statistic"
TWO, ONE_SIDED = "two replicas", "two replicas, one-sided"
SPECTRAL = (MOMENTS, AVERAGES, PAIRS, TWO, ONE_SIDED)


def spectral(rank: int) -> dict[str, SpectralEstimator]:
    """Return the estimators by name; all but the first two require at least two samples per client."""
    return {
        MOMENTS: lf.MethodOfMoments(rank=rank),
        AVERAGES: lf.LocalGram(rank=rank),
        PAIRS: lf.UStatistic(rank=rank),
        TWO: lf.TwoReplica(rank=rank),
        ONE_SIDED: lf.TwoReplica(rank=rank, symmetric=False),
    }
