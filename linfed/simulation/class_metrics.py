"""What is measured of classifiers: accuracies, cross-entropy, and how far heads are from neural collapse."""

from __future__ import annotations

from collections.abc import Callable, Container

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.base import State
from linfed.data.classes import ClassBatch
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

ON_HELD_OUT = ("accuracy", "own_class_accuracy")
ON_TRAINING = ("train_accuracy",)
OF_HEADS = ("global_nc2", "local_nc2")

Measure = Callable[[State, ClassBatch], Array]


def _accuracies(own: bool) -> Measure:
    def measure(state: State, batch: ClassBatch) -> Array:
        return batch.accuracies(lambda t, c: state.trials(t).predictors(c), own=own)

    return measure


def _losses(state: State, batch: ClassBatch) -> Array:
    return batch.losses(lambda t, c: state.trials(t).predictors(c))


def _collapse(local: bool) -> Measure:
    def measure(state: State, batch: ClassBatch) -> Array:
        heads = np.broadcast_to(state.array("W")[..., :-1], (*batch.holds.shape, state.array("W").shape[-1] - 1))
        return nc2(heads, batch.holds, local=local)

    return measure


MEASURES: dict[str, dict[str, Measure]] = {
    "train": {
        "train_loss": _losses,
        "train_accuracy": _accuracies(own=False),
        "global_nc2": _collapse(local=False),
        "local_nc2": _collapse(local=True),
    },
    "test": {
        "test_loss": _losses,
        "accuracy": _accuracies(own=False),
        "own_class_accuracy": _accuracies(own=True),
    },
}
"""What is measured on the samples of the training, and on held-out ones: each client's value, (trials, n)."""


def class_values(state: State, batch: ClassBatch, names: Container[str], which: str) -> dict[str, Array]:
    """Return each client's value of the named metrics, (trials, n), NaN for a client that has none.

    Parameters
    ----------
    state : State
        What clients are served with.
    batch : ClassBatch
        The samples of all clients, of the training or held-out ones, as `which` says: "train" or "test".
    names : container of str
        Metrics that are wanted.
    which : str
    """
    some = batch.counts > 0
    return {
        name: np.where(some, measure(state, batch), np.nan)
        for name, measure in MEASURES[which].items()
        if name in names
    }


def mean_of_those(values: Array) -> Array:
    """Return each trial's mean over the clients that have a value, (trials,); NaN where none has."""
    known: Mask = ~np.isnan(values)
    count = known.sum(axis=-1)
    total = np.where(known, values, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
