"""Given samples for classification, with labels 0..c-1."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Mask
from linfed.checks import check_array, check_integer, check_shape, check_whole
from linfed.data.classes import find_classes
from linfed.data.columns import TableColumns, numbered
from linfed.data.samples import GivenSamples, Samples
from linfed.data.sources import Sizes
from linfed.data.splits import owners_of
from linfed.numerics.streams import Seed
from linfed.system.memory import check_fits

FEW = 3
"""Largest number of classes that a warning lists."""


class GivenClasses(GivenSamples):
    """Given samples for classification: one local data set per client, with labels 0..c-1.

    Parameters
    ----------
    X : array_like (n, m, d) or (trials, n, m, d), or a sequence of n arrays (m_i, d)
        Samples. Without a leading trial axis all trials share the data.
    labels : array_like (n, m) or (trials, n, m), or a sequence of n arrays (m_i,)
        Classes, integers from 0 to c - 1.
    n_classes : int, optional
        Number of classes c, at least 2; by default the largest label of `labels` and `test`, plus 1.
    test : pair (X, labels), optional
        Held-out samples of the same clients, in any of these forms; lists may contain empty arrays.
    scale : bool, default False
        If True, features are centred by their mean over the training samples of all clients, and divided by their
        standard deviation; constant ones are left out. Biases make up for the common origin.

    Attributes
    ----------
    X : ndarray (n, m, d) or (trials, n, m, d)
        Samples. Rows beyond a client's count are zero.
    y : ndarray (n, m) or (trials, n, m)
        Labels, as floats. Entries beyond a client's count are 0 and must be ignored, although 0 is a class.
    counts : ndarray (n,) or (trials, n)
        Number of samples per client; per trial for data returned by `split`.
    test : GivenClasses or None
        Held-out samples; a client may have no held-out samples.
    n_classes : int
        Number of classes c.
    holds : ndarray of bool (n, c) or (trials, n, c)
        True if a client has samples of a class.
    class_names : tuple or None
        The labels of a table, in the order of the classes.
    preparation, client_names
        As in `GivenSamples`.

    Raises
    ------
    ValueError
        If shapes do not agree, or labels are not integers from 0 to c - 1.
    SizeError
        If a table of clients and classes does not fit into memory.

    Notes
    -----
    `split` distributes one data set over clients, differently in each trial.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.standard_normal((m, 4)) for m in (9, 12, 15)]
    >>> data = lf.GivenClasses(X, [np.arange(len(rows)) % 2 + i for i, rows in enumerate(X)])
    >>> data
    GivenClasses(X of shape (3, 15, 4), samples per client 9 to 15, 4 classes)
    >>> data.holds.astype(int).tolist()
    [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """

    n_classes: int
    holds: Mask
    test: GivenClasses | None
    class_names: tuple[Any, ...] | None = None
    _labels = "labels"
    _stratified = True

    def __init__(
        self,
        X: Samples,
        labels: Samples,
        *,
        n_classes: int | None = None,
        test: Sequence[Samples] | None = None,
        scale: bool = False,
    ) -> None:
        super().__init__(X, labels, test=test, scale=scale)
        self.number(n_classes)

    @classmethod
    def _labels_of(cls, labels: npt.NDArray[Any]) -> tuple[Array, tuple[Any, ...] | None]:
        classes, names = numbered("y", labels)
        return classes.astype(np.float64), names

    def _name_classes(self, names: tuple[Any, ...]) -> None:
        self.class_names = names
        self.number(max(2, len(names)))

    def _prepare(self, intercept: bool, scale: bool, columns: TableColumns | None = None) -> None:
        if columns is not None and not intercept:
            raise ValueError("intercept = False is not available for classes: classifiers always have biases")
        super()._prepare(intercept, scale, columns)

    def number(self, n_classes: int | None) -> None:
        """Check the labels, and store the number of classes c and the classes of each client."""
        parts = {"labels": self} if self.test is None else {"labels": self, "test labels": self.test}
        c = checked_classes({name: part.y for name, part in parts.items()}, n_classes)
        for part in parts.values():
            clients = part.y.size // part.y.shape[-1]
            check_fits(
                float(clients) * c,
                f"n_classes = {c} of {clients} clients",
                "number the classes 0, 1, 2, ... without gaps",
            )
            part.n_classes, part.holds = c, find_classes(part.y, part.counts, c)

    @classmethod
    def split(
        cls,
        X: npt.ArrayLike,
        labels: npt.ArrayLike,
        clients: npt.ArrayLike,
        *,
        n_classes: int | None = None,
        test_share: float = 0.2,
        seed: Seed = 0,
    ) -> GivenClasses:
        """Distribute one data set over clients in each trial, and hold out a share of each client's samples.

        Parameters
        ----------
        X : array_like (samples, d)
            Samples.
        labels : array_like (samples,)
            Classes, integers from 0 to c - 1.
        clients : array_like (samples,), or of int (trials, samples)
            The client of each sample. Values (samples,) of any type are the clients' names, for one trial. Integers
            (trials, samples) are the clients' numbers, or -1 for an unassigned sample: a result of `classwise_split` or
            `dirichlet_split`.
        n_classes : int, optional
            Number of classes c, at least 2; by default the largest label, plus 1.
        test_share : float
            Share of held-out samples: ``floor(test_share * count + 1/2)`` of a client's `count` samples of each class,
            but never all of them, so that a client trains on every class of its held-out samples.
        seed : int or tuple of int
            The choice and the order of a trial's samples are a function of (seed, trial).

        Returns
        -------
        GivenClasses
            X (trials, n, m, d), and counts (trials, n); m is the largest count of all trials.

        Raises
        ------
        ValueError
            If shapes do not agree, a client has no samples, or `test_share` > 0 holds out no sample at all.
        SizeError
            If the samples do not fit into memory.

        Warns
        -----
        UserWarning
            If `n_classes` is None and a class below the largest label has no sample.

        Notes
        -----
        A client's samples are in random order, so any first part of them mixes its classes. All trials are padded to
        one size, so the number of zero rows of a trial may depend on the other trials.

        Examples
        --------
        >>> import linfed as lf
        >>> import numpy as np
        >>> X, labels = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 3
        >>> clients = lf.classwise_split(labels, n_clients=3, classes_per_client=2, trials=5)
        >>> lf.GivenClasses.split(X, labels, clients)
        GivenClasses(X of shape (5, 3, 16, 4), samples per client 16, held-out samples per client 4, 3 classes)
        """
        rows = check_array("X", X, [("samples", "d")])
        y = check_array("labels", labels, [("samples",)])
        check_shape("labels", y, rows.shape[:1], f"(samples,) as X has shape {rows.shape}")
        c = checked_classes({"labels": y}, n_classes)
        data = cls._dealt(rows, y, *owners_of(clients, rows), test_share, seed)
        data.number(c)
        if n_classes is None and (empty := np.setdiff1d(np.arange(c), y).tolist()):
            few = ", ".join(map(str, empty[:FEW])) + f" and {len(empty) - FEW} more" * (len(empty) > FEW)
            warnings.warn(
                f"labels contains no sample of class {few}: number the classes 0, 1, 2, ... without gaps, or set "
                f"n_classes={c}",
                stacklevel=2,
            )
        return data

    def _divided(self, share: float, trials: int | None, seed: Seed) -> GivenClasses:
        data = super()._divided(share, trials, seed)
        data.number(self.n_classes)
        if self.class_names is not None:
            data.class_names = self.class_names
        return data

    @classmethod
    def population(cls, *_: object, **__: object) -> NoReturn:
        """Raise ValueError: `population` supports only regression."""
        raise ValueError("population() supports only regression: use lf.GivenSamples.population")

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self.n_classes} classes)"

    def normal_equations(self) -> NoReturn:
        """Raise ValueError: normal equations support only regression."""
        raise ValueError("normal_equations() supports only regression: use lf.GivenSamples")

    def compressed(self) -> NoReturn:
        """Raise ValueError: pseudo-samples support only regression."""
        raise ValueError("compressed() supports only regression: use lf.GivenSamples")

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return the number of floats in one trial's copy of the data, in addition to the given arrays."""
        copies = [(self, sizes.n_clients + sizes.gathered)] + (
            [] if self.test is None else [(self.test, sizes.n_clients)]
        )
        rows = sum(clients * int(samples.X.shape[-2]) for samples, clients in copies)
        return rows * (sizes.dim + 2) + sizes.n_clients * int(self.X.shape[-2]) * sizes.features

    @property
    def scale(self) -> Array:
        """Ones, (trials,) or (1,): class labels have no scale."""
        return np.ones(1 if self.X.ndim == 3 else self.X.shape[0])

    @property
    def predictor_scale(self) -> Array:
        """Ones, (trials,) or (1,)."""
        return self.scale


def checked_classes(labels: dict[str, Array], n_classes: int | None) -> int:
    """Check named arrays of labels, and return the number of classes."""
    if n_classes is not None:
        c = check_integer("n_classes", n_classes, minimum=2)
        allowed = f"from 0 to {c - 1} (n_classes = {c})"
    else:
        largest, allowed = max(float(array.max()) for array in labels.values()), "from 0"
        c = int(largest) + 1
    for name, array in labels.items():
        check_whole(name, array, 0.0, c - 1.0 if n_classes is not None else 2.0**53, allowed)
    if c < 2:
        raise ValueError("labels contains only class 0, but at least 2 classes are required: use n_classes=2 or more")
    return c
