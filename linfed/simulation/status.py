"""Outcomes of a trial."""

from __future__ import annotations

from enum import Enum

LEFT_OUT = "their metrics are NaN, and averages in pandas and xarray skip NaN"
"""Text about diverged trials, for warnings."""


class Status(Enum):
    """Outcome of a trial; the value explains it and suggests what to do.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(n_samples=12), rounds=3)
    >>> result.status
    [Status.COMPLETED]
    >>> result.status[0].value
    'ran all rounds'
    """

    COMPLETED = "ran all rounds"
    DIVERGED = "became infinite or too large: its step size was too large, or its objective is unbounded below"
    SINGULAR_HEAD = (
        "ran all rounds, but the features of a client with enough samples were linearly dependent, so its head was the "
        "solution of minimum norm; check the data and the rank of B"
    )

    def __repr__(self) -> str:
        return f"Status.{self.name}"
