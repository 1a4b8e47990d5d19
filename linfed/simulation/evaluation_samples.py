"""Samples for losses and accuracies: the clients' fixed training samples and held-out samples."""

from __future__ import annotations

from linfed.data.class_sources import FixedClassSource, held_out
from linfed.data.classes import ClassBatch, with_ones
from linfed.data.explicit import ExplicitBatch
from linfed.data.projected import ProjectedClassSource, ProjectedHeldOut
from linfed.data.samples import GivenSamples, given_batch
from linfed.data.sources import Source, everybody
from linfed.problems import Classes, Truth
from linfed.problems.classes import ClassTruth
from linfed.simulation.class_metrics import OF_HEADS, OF_SAMPLES
from linfed.simulation.job import Job
from linfed.simulation.metrics import Measured


def measured_samples(job: Job, truth: Truth | None, source: Source, trials: range) -> dict[str, Measured]:
    """Return the samples for the metrics of a job, under "train" and "test"; later rounds leave them unchanged.

    Parameters
    ----------
    job : Job
    truth : Truth or None
        Ground truth of the trials.
    source : Source
        Source of the trials' batches.
    trials : range
        Numbers of the trials.
    """
    found: dict[str, Measured] = {}
    names = {*job.plan.names}
    if names & {*OF_SAMPLES["train"], *OF_HEADS}:
        batch = source.all_clients()
        assert isinstance(batch, ExplicitBatch | ClassBatch)
        found["train"] = batch
    if not names & OF_SAMPLES["test"].keys():
        return found
    if isinstance(truth, ClassTruth) and not isinstance(job.data, GivenSamples):
        assert isinstance(job.problem, Classes)
        samples = job.problem.test_samples
        if isinstance(source, ProjectedClassSource):
            found["test"] = ProjectedHeldOut(truth, samples, job.algorithm.learned_rank, job.seed, trials)
        else:
            found["test"] = held_out(truth, samples, job.seed, trials)
        return found
    assert isinstance(job.data, GivenSamples)
    assert job.data.test is not None
    if isinstance(source, FixedClassSource):
        X, labels, counts = job.data.test.of_trials(trials)
        everyone = everybody(*counts.shape)
        found["test"] = ClassBatch(with_ones(X, counts), labels, holds=source.holds, active=everyone, counts=counts)
    else:
        found["test"] = given_batch(job.data.test, trials)
    return found
