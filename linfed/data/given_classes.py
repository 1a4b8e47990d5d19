"""The user's own labelled samples: classes 0..c-1 instead of real labels."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices, Mask
from linfed.data.classes import held_classes
from linfed.data.samples import GivenSamples, Samples
from linfed.data.sources import Sizes
from linfed.data.splits import held_out, places
from linfed.errors import check_array, check_integer, check_number, check_shape, check_whole
from linfed.numerics.streams import Seed, check_seed
from linfed.system.memory import check_fits


class GivenClasses(GivenSamples):
    """The user's own labelled samples: one local data set per client, of classes 0..c-1.

    Parameters
    ----------
    X : array_like (n, m, d) or (trials, n, m, d), or a sequence of n arrays (m_i, d)
        Samples. Without a leading trial axis every trial sees the same data.
    labels : array_like (n, m) or (trials, n, m), or a sequence of n arrays (m_i,)
        Classes, whole numbers from 0 to c - 1.
    n_classes : int, optional
        Classes c, at least 2; by default the largest label of `labels` and `test`, plus 1.
    test : pair (X, labels), optional
        Held-out samples of the same clients, in any of these forms; lists may hold empty arrays.

    Attributes
    ----------
    X : ndarray (n, m, d) or (trials, n, m, d)
        Samples. Rows beyond a client's count are zero.
    y : ndarray (n, m) or (trials, n, m)
        Labels, as floats. Beyond a client's count they are 0, which is a class: `counts` says what is a sample.
    counts : ndarray (n,) or (trials, n)
        Samples per client, of each trial where `split` made them.
    test : GivenClasses or None
        The held-out samples; clients may have none.
    n_classes : int
        Classes c.
    holds : ndarray of bool (n, c) or (trials, n, c)
        The classes that each client has samples of.

    Raises
    ------
    ValueError
        For shapes that do not fit, or labels that are not whole numbers from 0 to c - 1.
    SizeError
        If a table of clients and classes would not fit the memory.

    Notes
    -----
    One data set is cut among clients, anew for each trial, by `split`.

    **Deviations**: none.

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
    _labels = "labels"

    def __init__(
        self,
        X: Samples,
        labels: Samples,
        *,
        n_classes: int | None = None,
        test: tuple[Samples, Samples] | None = None,
    ) -> None:
        super().__init__(X, labels, test=test)
        self.number(n_classes)

    def number(self, n_classes: int | None) -> None:
        """Check the labels, and keep how many classes c there are and who holds which."""
        parts = {"labels": self} if self.test is None else {"labels": self, "test labels": self.test}
        c = checked_classes({name: part.y for name, part in parts.items()}, n_classes)
        for part in parts.values():
            clients = part.y.size // part.y.shape[-1]
            check_fits(float(clients) * c, f"n_classes = {c} of {clients} clients", "number the classes 0, 1, 2, ...")
            part.n_classes, part.holds = c, held_classes(part.y, part.counts, c)

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
        """Return one data set cut among clients, anew for each trial, a part of each client's samples held out.

        Parameters
        ----------
        X : array_like (samples, d)
            Samples.
        labels : array_like (samples,)
            Classes, whole numbers from 0 to c - 1.
        clients : array_like of int (trials, samples)
            The client of each sample, -1 for nobody's: as `classwise_split` and `dirichlet_split` return them, or one
            that is known, as ``clients[None]``.
        n_classes : int, optional
            Classes c, at least 2; by default the largest of all labels, plus 1, whoever has them.
        test_share : float
            Of each client's samples of a class, ``floor(test_share * count + 1/2)`` are held out, but never all: it
            has no held-out sample of a class that it does not train on. 0 holds out none.
        seed : int or tuple of int
            A trial's samples, and their order, are a function of (seed, trial).

        Returns
        -------
        GivenClasses
            X (trials, n, m, d), and counts (trials, n); m is the largest count of all trials.

        Raises
        ------
        ValueError
            For shapes that do not fit, a client without a sample, or a share that holds out no sample at all.
        SizeError
            If the samples would not fit the memory.

        Notes
        -----
        A client's samples are in random order, so that its first ones are of all its classes. Padding is common to all
        trials: a trial among more of them may have more rows of zeros.

        **Deviations**: none.

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
        owners = _owners(clients, rows)
        share, seed = check_number("test_share", test_share, minimum=0.0, maximum=1.0), check_seed(seed)
        train, test = held_out(owners, y, share, seed)
        data = cls.__new__(cls)
        data._hold(*_padded(rows, y, owners, train))
        if share > 0:
            if not any(map(len, test)):
                raise ValueError(
                    f"test_share = {test_share} holds out no sample, as every client has too few of each class: raise "
                    "it, or set it to 0"
                )
            data.test = cls.__new__(cls)
            data.test._hold(*_padded(rows, y, owners, test))
        data.number(c)
        return data

    @classmethod
    def population(cls, *_: object, **__: object) -> NoReturn:
        """Raise: moments say nothing of classes."""
        raise ValueError("population() is for squares, and GivenClasses holds classes: use lf.GivenSamples.population")

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self.n_classes} classes)"

    def normal_equations(self) -> NoReturn:
        """Raise: they are of squares."""
        raise ValueError("normal_equations() is of squares, and GivenClasses holds classes: use lf.GivenSamples")

    def compressed(self) -> NoReturn:
        """Raise: pseudo-samples stand for squares."""
        raise ValueError("compressed() is of squares, and GivenClasses holds classes: use lf.GivenSamples")

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return how many numbers one trial's data hold at a time, beyond the given arrays: every trial has a copy."""
        held = [(self, sizes.n_clients + sizes.gathered)] + (
            [] if self.test is None else [(self.test, sizes.n_clients)]
        )
        rows = sum(clients * int(samples.X.shape[-2]) for samples, clients in held)
        return rows * (sizes.dim + 2) + sizes.n_clients * int(self.X.shape[-2]) * sizes.features

    @property
    def scale(self) -> Array:
        """Ones, (trials,) or (1,): classes have no size."""
        return np.ones(1 if self.X.ndim == 3 else self.X.shape[0])


def checked_classes(labels: dict[str, Array], n_classes: int | None) -> int:
    """Return how many classes there are, after a check of the labels, each array under its name."""
    if n_classes is not None:
        c = check_integer("n_classes", n_classes, minimum=2)
        allowed = f"from 0 to {c - 1} (n_classes = {c})"
    else:
        largest, allowed = max(float(array.max()) for array in labels.values()), "from 0"
        c = int(largest) + 1
    for name, array in labels.items():
        check_whole(name, array, 0.0, c - 1.0 if n_classes is not None else 2.0**53, allowed)
    if c < 2:
        raise ValueError("labels holds class 0 alone, and at least two classes are needed: give n_classes=2, or more")
    return c


def _owners(clients: npt.ArrayLike, rows: Array) -> Indices:
    """Return the client of each sample, (trials, samples), after checking that each has one in every trial."""
    array = check_array("clients", clients, [("trials", "samples")])
    samples = rows.shape[0]
    check_shape("clients", array, (array.shape[0], samples), f"(trials, samples) as X has shape {rows.shape}")
    check_whole("clients", array, -1.0, samples - 1.0, f"from -1 (nobody) to {samples - 1}, for {samples} samples,")
    owners = array.astype(np.intp)
    n = int(owners.max()) + 1
    if n == 0:
        raise ValueError("clients holds -1 (nobody) alone; at least one client needs samples")
    for trial, one in enumerate(owners):
        missing = np.setdiff1d(np.arange(n), one)
        if missing.size:
            raise ValueError(
                f"clients holds no sample of client {missing[0]} in trial {trial}; each of n = {n} clients needs one "
                "in every trial"
            )
    return owners


def _padded(rows: Array, labels: Array, owners: Indices, chosen: list[Indices]) -> tuple[Array, Array, Array]:
    """Return zero-padded X (trials, n, m, d), y (trials, n, m) and counts (trials, n) of some samples of each trial."""
    trials, n, d = len(chosen), int(owners.max()) + 1, rows.shape[1]
    counts = np.stack([np.bincount(owner[one], minlength=n) for owner, one in zip(owners, chosen, strict=True)])
    m = int(counts.max())
    check_fits(
        float(trials) * n * m * (d + 1),
        f"{trials} trials of n = {n} clients, padded to {m} samples of dimension {d} each,",
        "use fewer trials, or clients of more equal sizes",
    )
    X, y = np.zeros((trials, n, m, d)), np.zeros((trials, n, m))
    for trial, one in enumerate(chosen):
        client = owners[trial, one]
        place = places(client)[0]
        X[trial, client, place], y[trial, client, place] = rows[one], labels[one]
    return X, y, counts.astype(np.float64)
