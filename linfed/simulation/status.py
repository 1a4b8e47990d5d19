"""Outcomes of a trial."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """Outcome of a trial; the value explains it and suggests what to do.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=20, dim=6, rank=2)
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(n_samples=12), n_rounds=3)
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

    UNSTABLE = (
        "ran all rounds, but the step size exceeds the stability edge: at the end a step does not decrease the loss; "
        "use a smaller step size, or divide the labels by their scale"
    )
    STALLED = (
        "ran all rounds, but B did not move: no client has more samples than B has columns, so that its head explains "
        "them all; use more samples or a smaller rank"
    )
    ITERATION_LIMIT = "ran all rounds, but the minimiser of the last one reached its largest number of iterations"

    def __repr__(self) -> str:
        return f"Status.{self.name}"
