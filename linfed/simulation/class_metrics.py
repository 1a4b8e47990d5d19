"""Metrics of classification: accuracies, cross-entropy, and the distance of heads from neural collapse."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from linfed._types import Array, Mask
from linfed.algorithms.parts.base import State
from linfed.data.classes import ClassBatch, SampleMeasure, is_correct, is_correct_among_held, sample_losses
from linfed.data.projected import ProjectedHeldOut
from linfed.errors import EngineError
from linfed.numerics.collapse import nc2

OF_SAMPLES: dict[str, dict[str, SampleMeasure]] = {
    "train": {"train_loss": sample_losses, "train_accuracy": is_correct},
    "test": {"test_loss": sample_losses, "accuracy": is_correct, "own_class_accuracy": is_correct_among_held},
}
"""Metrics that average a value of each sample, for training samples and for held-out samples."""

OF_HEADS = {"global_nc2": False, "local_nc2": True}
"""Metrics of heads; True if they use the client's number of classes instead of the total."""


def class_values(
    state: State, batch: ClassBatch | ProjectedHeldOut, names: Collection[str], which: str
) -> dict[str, Array]:
    """Return each client's value of the named metrics, (trials, n), NaN for a client without a value.

    Parameters
    ----------
    state : State
        State with the clients' predictors.
    batch : ClassBatch or ProjectedHeldOut
        Samples of all clients.
    names : collection of str
        Names of the metrics to compute.
    which : {"train", "test"}
        Kind of the samples in `batch`: training or held-out.
    """
    if isinstance(batch, ProjectedHeldOut):  # at their features, heads are the predictors
        if state.S is not None:
            raise EngineError(
                "engine = 'projected' has no held-out samples for predictors with a part S: use 'explicit'"
            )
        batch, state = batch.at(state.array("B")), State(S=state.array("W"))
    wanted = {name: measure for name, measure in OF_SAMPLES[which].items() if name in names}
    values = batch.means(lambda t, c: state.trials(t).predictors(c), wanted) if wanted else {}
    for name in OF_HEADS.keys() & names if which == "train" else ():
        W = state.array("W")[..., :-1]
        values[name] = nc2(np.broadcast_to(W, (*batch.holds.shape, W.shape[-1])), batch.holds, local=OF_HEADS[name])
    return {name: np.where(batch.counts > 0, each, np.nan) for name, each in values.items()}


def mean_of_those(values: Array) -> Array:
    """Return each trial's mean over the clients that have a value, (trials,); NaN if no client has one."""
    has_value: Mask = ~np.isnan(values)
    count = has_value.sum(axis=-1)
    total = np.where(has_value, values, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
