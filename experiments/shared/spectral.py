"""Spectral estimators by name, and searches for the smallest m with which they reach a distance from B*."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import linfed as lf
from linfed.algorithms.one_round.estimators import SpectralEstimator
from linfed.cells.smallest_size import SmallestSize
from linfed.figures.style import KINDS, Look

from .smallest import Need

MOMENTS, AVERAGES, PAIRS = "moments", "local averages", "U-statistic"
TWO, ONE_SIDED = "two replicas", "two replicas, one-sided"
SPECTRAL = (MOMENTS, AVERAGES, PAIRS, TWO, ONE_SIDED)
LOOKS: dict[str, Look] = {MOMENTS: KINDS[0], AVERAGES: KINDS[1], PAIRS: KINDS[3], TWO: KINDS[4], ONE_SIDED: KINDS[5]}
COLOURS = {name: look[0] for name, look in LOOKS.items()}


def spectral(rank: int) -> dict[str, SpectralEstimator]:
    """Return the estimators by name; all but the first two require at least two samples per client."""
    return {
        MOMENTS: lf.MethodOfMoments(rank=rank),
        AVERAGES: lf.LocalGram(rank=rank),
        PAIRS: lf.UStatistic(rank=rank),
        TWO: lf.TwoReplica(rank=rank),
        ONE_SIDED: lf.TwoReplica(rank=rank, symmetric=False),
    }


@dataclass(frozen=True, kw_only=True)
class Estimates(Need):
    """Search for the smallest m with which half of the estimates are at a distance of at most `delta`."""

    panel: str = lf.choice(("n", "d", "noise"), "n", label=True)
    asks: str = lf.choice(("data.n_samples",), "data.n_samples")
    method: str = lf.choice(spectral(rank=1), MOMENTS)
    trials: int = 24
    resolution: float = 0.1

    @property
    def estimator(self) -> SpectralEstimator | None:
        """The estimator, None for another method."""
        return spectral(self.rank).get(self.method)

    @property
    def search(self) -> SmallestSize:
        """The search for the smallest m."""
        search = super().search
        if self.estimator is None:
            return search
        once = {"data": lf.FixedSamples(self.start), "rounds": 1, "engine": "auto"}
        base = replace(search.base, algorithm=self.estimator, **once)
        few = 1.0 if self.method in (MOMENTS, AVERAGES) else 2.0
        reaches = lf.below("subspace_distance", self.delta)
        return replace(search, base=base, reaches=reaches, step_size=None, predicted=False, lower=few, upper=2**14)

    @property
    def predictions(self) -> dict[str, Any]:
        """Columns besides the search: the m of the predicted distance delta, and of the transition."""
        if self.estimator is None:
            return super().predictions | {"estimated": math.nan, "transition": math.nan}
        columns = {"estimated": self.crossing_of("distance", self.delta), "transition": self.crossing_of("ratio", 1.0)}
        return super().predictions | columns

    def crossing_of(self, quantity: str, level: float) -> float:
        """Return the m at which a predicted quantity falls to a level, interpolated; NaN if it is smaller at m = 2."""
        assert self.estimator is not None
        sizes = {"n_clients": self.n_clients, "dim": self.dim, "rank": self.rank}
        W = lf.SharedRepresentation(**sizes, condition_number=1.0).truth(self.seed, [0]).W
        stride = 2 if isinstance(self.estimator, lf.TwoReplica) else 1  # an odd last sample is not used
        found: dict[int, float] = {}

        def excess(m: int) -> float:
            if m not in found:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # beyond the range of the prediction
                    options: dict[str, Any] = {"dim": self.dim, "n_samples": m, "noise_std": self.noise_std}
                    law = lf.theory.spectral_floor(self.estimator, W[0], **options)  # type: ignore[index,arg-type]
                found[m] = math.log(float(getattr(law, quantity)) / level)
            return found[m]

        low, high = 2, 2**16
        if excess(low) <= 0:
            return math.nan
        while high - low > stride:
            middle = (low + high) // (2 * stride) * stride
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return low * (high / low) ** (excess(low) / (excess(low) - excess(high)))
