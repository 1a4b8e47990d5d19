"""How a trial ends."""

from __future__ import annotations

from enum import Enum

LEFT_OUT = "their metrics are NaN, and averages in pandas and xarray skip NaN"
"""What to know of trials that diverged, in a warning."""


class Status(Enum):
    """How a trial ended; the value is a sentence to act upon."""

    COMPLETED = "ran all rounds"
    DIVERGED = "left the finite range; try a smaller step size, unless the objective is unbounded below"
    SINGULAR_HEAD = (
        "ran all rounds, but a client with enough samples met linearly dependent features, so its head was the one of "
        "minimum norm; look at the data or at the rank of B"
    )

    def __repr__(self) -> str:
        return f"Status.{self.name}"
