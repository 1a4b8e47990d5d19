"""What is measured of classifiers: accuracies, cross-entropy, and how far heads are from neural collapse."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.base import State
from linfed.data.classes import ClassBatch, SampleMeasure, right, right_among_own, sample_losses
from linfed.numerics.collapse import nc2

CLASS_METRICS: dict[str, str] = {
    "accuracy": "share of a client's held-out samples that are given their class, among all classes; mean over clients",
    "own_class_accuracy": "the same where a client chooses among the classes that it holds",
    "train_accuracy": "`accuracy` on the samples of the training",
    "global_nc2": "(1/n) sum_i ||H_i H_i'/||H_i H_i'||_F - (u u') o (I - 11'/c)/sqrt(c - 1)||_F, row j of H_i the head "
    "of class j, u 1 at the client's classes; clients whose heads are 0 left out",
    "local_nc2": "the same with the client's own number of classes c_i in place of c; clients of one class left out",
}
"""Every metric of classes with its definition."""

OF_SAMPLES: dict[str, dict[str, SampleMeasure]] = {
    "train": {"train_loss": sample_losses, "train_accuracy": right},
    "test": {"test_loss": sample_losses, "accuracy": right, "own_class_accuracy": right_among_own},
}
"""What is measured of each sample of the training, and of each held-out one."""

OF_HEADS = {"global_nc2": False, "local_nc2": True}
"""What is measured of heads, and whether by the client's own number of classes."""


def class_values(state: State, batch: ClassBatch, names: Collection[str], which: str) -> dict[str, Array]:
    """Return each client's value of the named metrics, (trials, n), NaN for a client that has none.

    Parameters
    ----------
    state : State
        What clients are served with.
    batch : ClassBatch
        The samples of all clients, of the training or held-out ones, as `which` says: "train" or "test".
    names : collection of str
        Metrics that are wanted.
    which : str
    """
    wanted = {name: measure for name, measure in OF_SAMPLES[which].items() if name in names}
    values = batch.means(lambda t, c: state.trials(t).predictors(c), wanted) if wanted else {}
    for name in OF_HEADS.keys() & names if which == "train" else ():
        W = state.array("W")[..., :-1]
        values[name] = nc2(np.broadcast_to(W, (*batch.holds.shape, W.shape[-1])), batch.holds, local=OF_HEADS[name])
    return {name: np.where(batch.counts > 0, each, np.nan) for name, each in values.items()}


def mean_of_those(values: Array) -> Array:
    """Return each trial's mean over the clients that have a value, (trials,); NaN where none has."""
    known: Mask = ~np.isnan(values)
    count = known.sum(axis=-1)
    total = np.where(known, values, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
