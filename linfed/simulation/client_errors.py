"""Errors of clients on samples, in the labels' own units: by client, and over all clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from linfed._types import Array
from linfed.algorithms.parts.base import State
from linfed.data.preparation import Preparation
from linfed.data.samples import GivenSamples, given_batch
from linfed.numerics.linalg import quiet
from linfed.simulation.metrics import client_losses
from linfed.tables.table import Table


@dataclass(frozen=True, kw_only=True)
class ClientErrors:
    """Sums over each client's samples, (trials, n), from which its errors follow; NaN for a trial that diverged.

    Parameters
    ----------
    names : tuple
        Names or numbers of the clients.
    counts : ndarray
        Numbers of samples; a client may have none.
    squares : ndarray
        Sums of squared errors, in regression.
    means, spreads : ndarray
        Mean of the labels, and sum of their squared deviations from it.
    accuracy : ndarray or None
        Shares of correct classes, in classification.
    """

    names: tuple[Any, ...]
    counts: Array
    squares: Array
    means: Array
    spreads: Array
    accuracy: Array | None = None

    def by_client(self) -> dict[str, Array]:
        """Return each client's errors, (trials, n), by name; NaN for a client without samples."""
        if self.accuracy is not None:
            return {"accuracy": self.accuracy}
        with quiet():
            rmse = np.sqrt(self.squares / self.counts)
            r2 = 1.0 - self.squares / np.where(self.spreads > 0, self.spreads, np.nan)
        return {"rmse": np.where(self.counts > 0, rmse, np.nan), "r2": np.where(self.counts > 0, r2, np.nan)}

    def table(self) -> Table:
        """Return the table with a row for each client."""
        found = self.by_client()
        samples = self.counts.max(axis=0).astype(int).tolist()
        rows = [
            {"client": _plain(name), "samples": samples[i], **{key: values[:, i] for key, values in found.items()}}
            for i, name in enumerate(self.names)
        ]
        return Table(rows)

    def over_clients(self) -> dict[str, Array]:
        """Return means, quantiles and the worst value over clients, and the errors over all rows, (trials,)."""
        found = self.by_client()
        total = self.counts.sum(axis=1)
        main = "rmse" if self.accuracy is None else "accuracy"
        values = found[main]
        bad = self.accuracy is None
        out = {
            main: _of_those(np.mean, values),
            f"median_{main}": _of_those(np.median, values),
            f"{'q90' if bad else 'q10'}_{main}": _of_those(lambda own: np.quantile(own, 0.9 if bad else 0.1), values),
            f"worst_{main}": _of_those(np.max if bad else np.min, values),
        }
        if self.accuracy is not None:
            right = np.where(self.counts > 0, self.accuracy * self.counts, 0.0).sum(axis=1)
            return out | {"rows_accuracy": right / total}
        squares = self.squares.sum(axis=1)
        centre = (self.counts * self.means).sum(axis=1, keepdims=True) / total[:, None]
        spread = (self.spreads + self.counts * (self.means - centre) ** 2).sum(axis=1)
        with quiet():
            return {
                **out,
                "rows_rmse": np.sqrt(squares / total),
                "r2": _of_those(np.mean, found["r2"]),
                "rows_r2": 1.0 - squares / np.where(spread > 0, spread, np.nan),
            }


def regression_errors(
    state: State, samples: GivenSamples, trials: int, preparation: Preparation | None, names: tuple[Any, ...] | None
) -> ClientErrors:
    """Return the errors of predictors on prepared samples of the same clients."""
    batch = given_batch(samples, range(trials))
    counts, y = batch.counts, batch.y
    inside = np.arange(y.shape[-1]) < counts[..., None]
    some = np.maximum(counts, 1.0)
    with quiet():
        squares = 2.0 * counts * client_losses(state.for_prediction(), batch)
    means = np.where(inside, y, 0.0).sum(axis=-1) / some
    spreads = np.square(np.where(inside, y - means[..., None], 0.0)).sum(axis=-1)
    unit, offset = np.ones((1, 1)), np.zeros((1, 1))
    if preparation is not None:
        unit, offset = preparation.unit[:, None], preparation.y_mean
    return ClientErrors(
        names=tuple(range(counts.shape[1])) if names is None else names,
        counts=counts,
        squares=np.where(counts > 0, squares, 0.0) * unit**2,
        means=offset + unit * means,
        spreads=spreads * unit**2,
    )


def _of_those(function: Any, values: Array) -> Array:
    """Return a function of each trial's values that are not NaN, (trials,)."""
    return np.array([function(own[~np.isnan(own)]) if (~np.isnan(own)).any() else np.nan for own in values])


def _plain(name: Any) -> Any:
    """Return a client's name as a value that tables can hold."""
    return name if isinstance(name, str | int | float) else str(name)
