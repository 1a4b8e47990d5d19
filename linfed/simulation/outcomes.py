"""Outcomes of trials that ran all rounds, from their last state and batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.baselines.oracle import Oracle
from linfed.algorithms.baselines.personalized import Personalized
from linfed.algorithms.parts.base import Algorithm, State
from linfed.data.batch import Batch
from linfed.data.samples import FreshSamples, GivenSamples
from linfed.data.sources import Source
from linfed.numerics.linalg import orthonormalize, span_distance, svd
from linfed.problems import Truth
from linfed.simulation.job import Job
from linfed.simulation.status import Status

CHEAP, MANY = 1_000_000, 50
"""Numbers in all fixed samples, and rounds of all clients, from which on they are looked at again after the run."""

FEWEST = 10
"""Fewest rounds of a run whose last step is judged: earlier heads may be large for a while."""

AT_REST = 1e-12
"""A representation has not moved if the sine of the angle to its initial span is below this."""


def doubts(
    job: Job, first: State, last: State, batch: Batch, source: Source, truth: Truth | None
) -> Iterator[tuple[Status, Mask]]:
    """Yield the outcomes that cast doubt on a result, the weightiest first, and the trials (T,) that have them.

    Parameters
    ----------
    job : Job
    first, last : State
        States before the first round and after the last one.
    batch : Batch
        Samples of the last round, whose buffers may be used again.
    source : Source
    truth : Truth, optional
    """
    sizes, few = job.sizes, (batch.counts <= job.algorithm.learned_rank).all(axis=1)
    share, variance = sizes.participants / sizes.n_clients, None
    known = job.n_rounds >= FEWEST and type(job.algorithm).overshoots is not Algorithm.overshoots
    if known and isinstance(job.data, FreshSamples):
        variance = _variance(truth)
    elif known and _worthwhile(job):
        batch = batch if share == 1.0 else source.all_clients(job.n_rounds)
    else:
        known = False
    unstable = job.algorithm.overshoots(last, batch, share, variance) if known else None
    doubted = unstable is not None and variance is not None and bool(unstable.any())
    heads = _true_heads(truth, last.array("B").shape[-1]) if doubted else None
    if unstable is not None and heads is not None:  # fitted heads also have noise; near B* the true ones decide
        at_truth = job.algorithm.overshoots(last.update(W=heads), batch, share, variance)
        unstable = unstable if at_truth is None else unstable & at_truth
    if unstable is not None:
        yield Status.UNSTABLE, unstable
    learner = job.algorithm.base if isinstance(job.algorithm, Personalized) else job.algorithm
    # In the first round heads may be 0; the coordinates of the chain engine turn; a B of all dimensions cannot move.
    judged = job.n_rounds > 1 and job.engine != "chain" and not isinstance(learner, Oracle)
    before, after = first.B, last.B
    if judged and few.any() and before is not None and after is not None and after.shape[-1] < after.shape[-2]:
        yield Status.STALLED, few & (span_distance(before, after) < AT_REST)
    unfinished = job.algorithm.unfinished(last)
    if unfinished is not None:
        yield Status.ITERATION_LIMIT, unfinished


def _worthwhile(job: Job) -> bool:
    """Return whether a few passes over the fixed samples of all clients take little time, or little of the run's."""
    assert not isinstance(job.data, FreshSamples)
    samples = job.data.X.shape[-2] if isinstance(job.data, GivenSamples) else job.data.n_samples
    clients = job.sizes.n_clients
    return clients * samples * job.sizes.dim <= CHEAP or job.n_rounds * job.sizes.participants >= MANY * clients


def _variance(truth: Truth | None) -> float:
    """Return the mean variance of x outside span(B*), given its coordinates inside; the smallest of all trials."""
    covariance = None if truth is None else truth.design.covariance
    value = np.asarray(1.0 if covariance is None else covariance, dtype=float)
    if truth is None or truth.B is None or value.ndim == 0 or truth.B.shape[-1] >= truth.B.shape[-2]:
        return float(value.diagonal(axis1=-2, axis2=-1).mean() if value.ndim >= 2 else value.mean())
    Sigma = np.diag(value) if value.ndim == 1 else value.reshape(-1, *value.shape[-2:]).mean(axis=0)
    Q = orthonormalize(truth.B)
    inside = np.linalg.solve(Q.mT @ Sigma @ Q, Q.mT @ Sigma @ Sigma @ Q).trace(axis1=-2, axis2=-1)
    return float((Sigma.trace() - inside).min() / (Q.shape[-2] - Q.shape[-1]))


def _true_heads(truth: Truth | None, columns: int) -> Array | None:
    """Return the true heads along the top directions of an orthonormal B*, (T, n, columns); None without a B*."""
    if truth is None or truth.B is None or truth.W is None:
        return None
    heads = truth.orthonormal_heads()
    if heads.shape[-1] > columns:
        heads = (heads @ svd(heads)[2].mT)[..., :columns]
    return np.pad(heads, ((0, 0), (0, 0), (0, columns - heads.shape[-1])))
