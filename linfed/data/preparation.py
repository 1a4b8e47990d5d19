"""Preparation of given samples: an intercept for each client, and features and labels of scale 1.

Both are learned on training rows and applied to all rows. A client's intercept is not a parameter of a model: its best
value is known, so the rows are centred by the client's training means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from linfed._types import Array, Indices
from linfed._values import EqualByValue
from linfed.data.columns import TableColumns, listed

ROUNDING = 16 * np.finfo(float).eps
"""Share of a column's largest entry below which its spread is a rounding error."""


@dataclass(frozen=True, kw_only=True)
class Preparation(EqualByValue):
    """Preparation of given samples.

    Features become ``(x - x_mean) * factor`` and labels ``(y - y_mean) / unit``. A leading axis of trials has length 1
    if all trials share the samples.

    Parameters
    ----------
    intercept, scale : bool
        Arguments of the data.
    columns : TableColumns or None
        The columns of a table that was given.
    kept : ndarray of int (d,)
        The features that are left; the others are constant.
    x_mean : ndarray (trials, n, d) or (trials, 1, d)
        Means of the clients' training rows, or the one origin of all clients.
    y_mean : ndarray (trials, n) or (trials, 1)
        Means of the clients' training labels, or zero.
    factor : ndarray (trials, d)
        Factors of the features; 0 for a feature that is constant in the training rows of a trial.
    unit : ndarray (trials,)
        Unit of the labels.
    given : int
        Number of features before any was left out.
    """

    intercept: bool
    scale: bool
    columns: TableColumns | None
    kept: Indices
    x_mean: Array
    y_mean: Array
    factor: Array
    unit: Array
    given: int

    def __str__(self) -> str:
        done = [*["an intercept for each client"] * self.intercept, *["scaled"] * self.scale]
        if self.dropped:
            done.append(f"without constant {listed(self.dropped)}")
        return ", ".join(done) or "as given"

    @property
    def titles(self) -> tuple[Any, ...]:
        """Names or numbers of the features before any was left out."""
        return tuple(range(self.given)) if self.columns is None else self.columns.titles

    @property
    def dropped(self) -> tuple[Any, ...]:
        """Names or numbers of the features that were left out."""
        return tuple(self.titles[i] for i in np.setdiff1d(np.arange(self.given), self.kept))

    def rows(self, X: Array, inside: Array) -> Array:
        """Return prepared features (T, n, m, d) of rows (T, n, m, given); `inside` is 0 at padding."""
        return (X[..., self.kept] - self.x_mean[:, :, None]) * (self.factor[:, None, None] * inside[..., None])

    def labels(self, y: Array, inside: Array) -> Array:
        """Return prepared labels (T, n, m)."""
        return (y - self.y_mean[:, :, None]) / self.unit[:, None, None] * inside

    def of_rows(self, rows: Array, owner: Indices, trial: int) -> tuple[Array, float, Array]:
        """Return prepared features (samples, d) of rows (samples, given) in a trial, and the unit and offset of labels.

        `owner` (samples,) is the number of each row's client.
        """
        x_mean, y_mean, factor, unit = (
            array[min(trial, len(array) - 1)] for array in (self.x_mean, self.y_mean, self.factor, self.unit)
        )
        own = owner if self.intercept else np.zeros_like(owner)
        return (rows[:, self.kept] - x_mean[own]) * factor, float(unit), y_mean[own]

    def of_clients(self, X: Array, y: Array, counts: Array) -> Preparation:
        """Return the preparation of new clients with training rows (T, n, m, given): their means, the same scales."""
        if not self.intercept:
            return self
        return replace(self, x_mean=_means(X[..., self.kept], counts), y_mean=_means(y, counts))

    def after(self, first: Preparation) -> Preparation:
        """Return the preparation that equals `first` followed by this one."""
        factor = first.factor[:, self.kept]
        inverse = np.where(factor > 0, 1.0 / np.where(factor > 0, factor, 1.0), 0.0)
        return replace(
            self,
            columns=first.columns,
            given=first.given,
            kept=first.kept[self.kept],
            x_mean=first.x_mean[..., self.kept] + self.x_mean * inverse[:, None],
            y_mean=first.y_mean + first.unit[:, None] * self.y_mean,
            factor=factor * self.factor,
            unit=first.unit * self.unit,
        )


def learned(
    X: Array, y: Array, counts: Array, *, intercept: bool, scale: bool, classes: bool, columns: TableColumns | None
) -> Preparation:
    """Return the preparation that training rows X (T, n, m, d) with labels y (T, n, m) and counts (T, n) determine.

    For classes, whose biases are the intercepts, scaling first moves the origin to the mean of all training rows.
    """
    trials, _, m, d = X.shape
    inside = np.arange(m) < counts[..., None]
    x_mean, y_mean = np.zeros((trials, 1, d)), np.zeros((trials, 1))
    if intercept:
        x_mean, y_mean = _means(X, counts), _means(y, counts)
    factor, unit = np.ones((trials, d)), np.ones(trials)
    if scale:
        for t in range(trials):  # no sum runs across trials
            rows, labels = X[t][inside[t]], y[t][inside[t]]
            if classes:
                x_mean[t] = rows.mean(axis=0)
            owner = np.nonzero(inside[t])[0] if intercept else np.zeros(len(rows), dtype=np.intp)
            spread = np.sqrt(np.square(rows - x_mean[t][owner]).mean(axis=0))
            varies = spread > ROUNDING * np.abs(rows).max(axis=0)
            factor[t] = np.where(varies, 1.0 / np.where(varies, spread, 1.0), 0.0)
            size = float(np.sqrt(np.square(labels - y_mean[t][owner]).mean()))
            if not classes and size > ROUNDING * np.abs(labels).max():
                unit[t] = size
    kept = np.flatnonzero((factor > 0).any(axis=0))
    if not kept.size:
        where = "within a client" if intercept else "in the training rows"
        raise ValueError(f"scale = True leaves no feature: none of the {d} features varies {where}")
    return Preparation(
        intercept=intercept,
        scale=scale,
        columns=columns,
        kept=kept,
        x_mean=x_mean[..., kept],
        y_mean=y_mean,
        factor=factor[:, kept],
        unit=unit,
        given=d,
    )


def _means(values: Array, counts: Array) -> Array:
    """Return each client's means, (T, n) or (T, n, d), of zero-padded labels (T, n, m) or rows (T, n, m, d)."""
    counts = np.maximum(counts, 1.0)
    return values.sum(axis=2) / (counts if values.ndim == 3 else counts[..., None])


FAR = 30.0
"""Largest standard deviation, and inverse of the smallest, of features and labels for which usual step sizes fit."""

AWAY = 2.0
"""Largest mean of features and labels, in standard deviations, for which a model without intercepts fits."""

FEWEST = 20
"""Smallest number of rows by which features and labels are judged."""


def unusual(X: Array, y: Array, counts: Array) -> str:
    """Return which features and labels of rows (n, m, d) and (n, m) are far from mean 0 or scale 1; empty if none."""
    inside = np.arange(y.shape[-1]) < counts[:, None]
    rows = np.column_stack([X[inside], y[inside]])
    if len(rows) < FEWEST:
        return ""
    means, spreads = rows.mean(axis=0), rows.std(axis=0)
    far = (np.abs(means) > AWAY * spreads) | (spreads > FAR) | ((spreads < 1.0 / FAR) & (spreads > 0))
    *features, labels = far.tolist()
    first = int(np.argmax(far))
    found = [*[f"{sum(features)} of {len(features)} features"] * any(features), *["the labels"] * labels]
    which = f"feature {first}" if first < len(features) else "the labels"
    numbers = f"{which} with mean {means[first]:.3g} and standard deviation {spreads[first]:.3g}"
    return f"{' and '.join(found)} are far from mean 0 or scale 1 ({numbers})" if found else ""
