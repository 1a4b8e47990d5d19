"""Configurations of the clients' data: fresh, fixed or given samples."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Indices
from linfed._values import Configuration, check_fields, optional
from linfed.checks import (
    check_array,
    check_bool,
    check_integer,
    check_number,
    check_sequence,
    check_shape,
    is_several,
    short_repr,
    suggestion,
)
from linfed.data.columns import TableColumns, check_complete, listed, named_or_given, numbered, read_table
from linfed.data.compressed import factor_of
from linfed.data.explicit import ExplicitBatch, normal_equations
from linfed.data.preparation import Preparation, learned
from linfed.data.sources import Counts, Sizes, draw_fixed, everybody
from linfed.data.splits import dealt, held_out, owners_of
from linfed.numerics.streams import Seed, check_seed, check_trials
from linfed.problems import Problem, check_problem, n_classes
from linfed.problems.designs import is_gaussian
from linfed.system.memory import check_copy, check_fits

Samples: TypeAlias = "npt.ArrayLike | Sequence[npt.ArrayLike]"

MANY_VALUES = 2.0**28
"""Above this many values of X per trial, fixed Gaussian samples are drawn compressed, exactly in distribution."""


@dataclass(frozen=True)
class FreshSamples(Configuration):
    """A new batch of samples for each participant and round (FedRep paper, Algorithm 2).

    Parameters
    ----------
    n_samples : int or sequence of int (n,)
        Number of samples m per participant and round, equal for all clients, or one for each client.

    Raises
    ------
    ValueError
        If a number is below 1; in `simulate` also if their number is not the number of clients.

    Notes
    -----
    Explicit samples cost p m d Gaussian numbers per round. For Gaussian x an engine may draw only the projections that
    a round uses, exactly in distribution (``engine=`` of `simulate`, docs/exact-law.md). If the clients have different
    numbers of samples, such an engine requires, for regression, more than k samples of every client, where k is the
    rank of B. Explicit samples then cost as much as if every client had the largest number.

    Examples
    --------
    >>> import linfed as lf
    >>> run = lf.FedRep(rank=2, step_size=0.5, init="random"), lf.SharedRepresentation(n_clients=1000, dim=50, rank=2)
    >>> lf.simulate(*run, data=lf.FreshSamples(n_samples=10**6), n_rounds=5).engine      # avoids 50 billion numbers
    'projected'
    """

    n_samples: Counts | Sequence[int] | npt.NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        check_fields(self, n_samples=check_counts)

    @property
    def counts(self) -> Counts:
        """`n_samples`, as an int or a tuple."""
        return cast("Counts", self.n_samples)

    @property
    def unequal(self) -> bool:
        """True if clients have different numbers of samples."""
        return isinstance(self.n_samples, tuple)

    @property
    def largest(self) -> int:
        """Largest number of samples of a client."""
        return int(np.max(self.n_samples))

    @property
    def smallest(self) -> int:
        """Smallest number of samples of a client."""
        return int(np.min(self.n_samples))

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return the number of floats in one trial's data in a round."""
        return sizes.participants * self.largest * (sizes.dim + sizes.features)


def check_counts(name: str, value: object) -> Counts:
    """Return a number of samples, or a tuple with one number for each client."""
    if not is_several(value):
        return check_integer(name, value)
    if len(value) == 0:
        raise ValueError(f"{name} = {short_repr(value)} must contain a number for each client")
    return tuple(check_integer(f"{name}[{client}]", count) for client, count in enumerate(value))


def _check_count(name: str, value: object) -> int:
    """Return a number of samples; a sequence of numbers raises with the class that supports it."""
    if is_several(value):
        raise ValueError(
            f"{name} = {short_repr(value)} must be one integer for all clients; fixed samples of different numbers are "
            "given as lf.GivenSamples (help(lf.FixedSamples) has an example)"
        )
    return check_integer(name, value)


@dataclass(frozen=True)
class FixedSamples(Configuration):
    """One local data set per client, drawn once and used in every round.

    Parameters
    ----------
    n_samples : int
        Number of samples m of every client. For different numbers use `GivenSamples`, for example with the first m_i
        samples of each client (see Examples).
    in_law : bool, optional
        If True, draw only triangular factors with the distribution of the samples' factors, at a cost independent of m.
        This requires Gaussian x, m > d, and an algorithm for quadratic losses, and does not support the method of
        moments. If False, draw every sample. By default, samples are drawn, unless a trial would have more than 2^28
        numbers, x is Gaussian and the engine is "compressed"; ``init="moments"``, which needs samples, then raises an
        EngineError.

    Raises
    ------
    ValueError
        If `n_samples` is below 1; in `simulate` also (as `EngineError`) if ``in_law=True`` is not supported.

    Notes
    -----
    If m > d, triangular factors of at most d + 1 rows can replace the samples (``engine="compressed"``). They are
    computed from the samples, or drawn directly (`in_law`). For algorithms that only use gradients, they save time from
    m > d/2. Runs with equal seeds and equal `in_law` have equal samples.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=30, dim=10, rank=2, noise_std=0.5)
    >>> run = {"data": lf.FixedSamples(n_samples=40), "n_rounds": 20, "metrics": ["train_loss", "risk"]}
    >>> result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, **run)
    >>> bool(result.metrics["train_loss"][0, -1] < 0.5 * 0.5**2 < result.metrics["risk"][0, -1])
    True

    Clients with 5, 8 and 20 samples:

    >>> problem = lf.SharedRepresentation(n_clients=3, dim=4, rank=2)
    >>> drawn, counts = lf.FixedSamples(20).draw(problem), (5, 8, 20)
    >>> samples = [[array[0, i, :m] for i, m in enumerate(counts)] for array in (drawn.X, drawn.y)]
    >>> lf.GivenSamples(*samples)
    GivenSamples(X of shape (3, 20, 4), samples per client 5 to 20)
    """

    n_samples: int
    in_law: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self, n_samples=_check_count, in_law=optional(check_bool))

    def draw(self, problem: Problem, *, trials: int = 1, seed: Seed = 0) -> GivenSamples:
        """Return the data sets of ``simulate(..., trials=trials, seed=seed)`` as given samples.

        Parameters
        ----------
        problem : Problem
            Ground truth and distribution of x.
        trials : int
            Number of trials.
        seed : int or tuple of int
            Seed of the run.

        Returns
        -------
        GivenSamples
            X (trials, n, m, d) and y (trials, n, m).

        Raises
        ------
        ValueError
            If no samples are drawn (``in_law=True``, or None with very many of them), or for classification.
        SizeError
            If the samples do not fit into memory.
        """
        if self.in_law:
            raise ValueError("draw() requires in_law = False or None: with in_law = True no samples are drawn")
        trials, seed = check_integer("trials", trials), check_seed(seed)
        sizes = (check_problem(problem).n_clients, self.n_samples, problem.dim)
        _check_given(trials, sizes, problem, "let simulate draw them, a few trials at a time")
        if n_classes(problem):
            raise ValueError("draw() supports only regression; for classification use simulate, which draws the data")
        if is_gaussian(problem.design) and draws_factors(self, sizes[0], sizes[2]):
            raise ValueError(
                f"draw() requires in_law = False for more than {MANY_VALUES:,.0f} values of X per trial: with in_law = "
                "None no samples are drawn"
            )
        truth = problem.truth(seed, range(trials))
        return GivenSamples(*draw_fixed(truth, sizes, seed, range(trials)))

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return the number of floats in one trial's data in a round."""
        return (sizes.n_clients + sizes.gathered) * self.n_samples * (sizes.dim + sizes.features)


def draws_factors(data: FixedSamples, n_clients: int, dim: int) -> bool:
    """Return True if factors of fixed Gaussian samples are drawn instead of the samples.

    The field ``data.in_law`` decides; if it is None, the number of values per trial does. Up to d samples have no
    factors of fewer rows.
    """
    if data.in_law is not None:
        return data.in_law
    if data.n_samples <= dim:
        return False
    return float(n_clients) * data.n_samples * dim > MANY_VALUES


class GivenSamples:
    """Given samples: one local data set per client.

    Parameters
    ----------
    X : array_like (n, m, d) or (trials, n, m, d), or a sequence of n arrays (m_i, d)
        Samples. Without a leading trial axis all trials share the data.
    y : array_like (n, m) or (trials, n, m), or a sequence of n arrays (m_i,)
        Labels.
    test : pair (X, y), optional
        Held-out samples of the same clients for the metric `test_loss`, in any of these forms. Lists may contain empty
        arrays: clients without held-out samples do not count in the mean.
    intercept : bool, default False
        If True, each client has an intercept, which no ridge penalises: features and labels are centred by the means of
        the client's training samples (see Notes).
    scale : bool, default False
        If True, features and labels are divided by their root mean square over the training samples of all clients,
        after the centring. Features that are then zero are left out: with an intercept, a feature that is constant
        within each client.

    Attributes
    ----------
    preparation : Preparation or None
        What `intercept` and `scale` have done.
    client_names : tuple or None
        Names of the clients, if a column of labels assigned the samples.

    Raises
    ------
    ValueError
        If shapes do not agree, or values are not finite numbers. Masked arrays, strings, dates and truth values are
        refused.

    Notes
    -----
    Use lists of arrays for clients with different sample counts; they are stored as zero-padded rows. Trials with
    different counts cannot share one run: run each trial with a separate `GivenSamples`.

    Prepared samples replace `X` and `y`, also in `test`. Means and scales come from the training samples. They are
    applied to held-out samples, and to the samples of `Result.predictions`, `Result.losses` and `Result.adapt`. The
    metrics are losses of predictors with intercepts, at the scaled labels. A client's best intercept,
    ``mean(y) - theta' mean(x)``, makes the centring exact for every loss of training samples. The models of the papers
    have no intercepts, so that `problem` cannot be given with prepared samples.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> X = [np.random.default_rng(m).standard_normal((m, 4)) for m in (9, 12, 15)]
    >>> y = [rows @ [1.0, -1.0, 0.0, 0.5] for rows in X]
    >>> lf.GivenSamples(X, y)
    GivenSamples(X of shape (3, 15, 4), samples per client 9 to 15)
    >>> result = lf.simulate(lf.FedRep(rank=1, step_size=0.3), data=lf.GivenSamples(X, y), n_rounds=200)
    >>> bool(result.metrics["train_loss"][0, -1] < 1e-12)
    True

    Labels in thousands and far from 0:

    >>> lf.GivenSamples(X, [1000 * (40 + labels) for labels in y], intercept=True, scale=True)
    GivenSamples(X of shape (3, 15, 4), samples per client 9 to 15, an intercept for each client, scaled)
    """

    X: Array
    y: Array
    counts: Array
    test: GivenSamples | None = None
    preparation: Preparation | None = None
    client_names: tuple[Any, ...] | None = None
    _labels = "y"  # the argument's name, for messages
    _stratified = False  # whether samples of each label are held out separately

    def __init__(
        self,
        X: Samples,
        y: Samples,
        *,
        test: Sequence[Samples] | None = None,
        intercept: bool = False,
        scale: bool = False,
    ) -> None:
        self._hold(*_checked(type(self), X, y, "", some=False))
        if test is not None:
            self._take_test(test)
        self._prepare(check_bool("intercept", intercept), check_bool("scale", scale))

    def _take_test(self, test: Sequence[Samples]) -> None:
        """Check held-out samples, and store them."""
        if not isinstance(test, list | tuple) or len(test) != 2:
            raise ValueError(f"test = {short_repr(test)} must be a pair of arrays, (X, {self._labels})")
        self.test = some_samples(*test, prefix="test ", kind=type(self))
        self.test.check_sizes(self.n_clients, self.dim, "X has", prefix="test ")
        trials = [samples.X.shape[0] for samples in (self.test, self) if samples.X.ndim == 4]
        if len(set(trials)) > 1:
            raise ValueError(
                f"test X has arrays for {trials[0]} trials, but X for {trials[1]}; the numbers must be equal"
            )

    def _hold(self, X: Array, y: Array, counts: Array) -> None:
        """Store read-only arrays."""
        self.X, self.y, self.counts = X, y, counts
        for array in (X, y, counts):
            array.setflags(write=False)

    @classmethod
    def from_table(
        cls,
        table: Any,
        y: Any,
        clients: Any,
        *,
        categories: Sequence[Any] = (),
        test_share: float = 0.2,
        trials: int = 1,
        seed: Seed = 0,
        intercept: bool = True,
        scale: bool = True,
    ) -> Self:
        """Return the samples of a table with a row for each sample and a column that names the sample's client.

        Parameters
        ----------
        table : DataFrame, mapping of columns, structured array, or array_like (samples, d)
            All columns other than those of `y` and `clients` are features. Columns of an array are named by their
            numbers.
        y : name of a column, or array_like (samples,)
            Labels. For `GivenClasses` the values of any type are the classes, in order.
        clients : name of a column, or array_like (samples,)
            Each sample's client: texts, numbers or other values that can be compared. Each value is one client.
        categories : sequence of names
            Columns of categories. Each value in the training rows becomes a feature of 0 and 1; other values are 0 in
            all of them.
        test_share : float
            Share of held-out samples, as in `split`.
        trials : int
            Number of random divisions into training and held-out samples; each is a trial.
        seed : int or tuple of int
            The choice and the order of a trial's samples are a function of (seed, trial).
        intercept, scale : bool, default True
            As in the class. Classifiers always have biases, so that `GivenClasses` requires ``intercept=True``.

        Returns
        -------
        GivenSamples or GivenClasses
            X (trials, n, m, d), with the clients' names in `client_names`.

        Raises
        ------
        ValueError
            If a column is unknown, values are missing, a feature is not a number, or `test_share` > 0 holds out no
            sample.
        SizeError
            If the samples do not fit into memory.

        Examples
        --------
        >>> import linfed as lf
        >>> table = {"clinic": ["Bern", "Aarau"] * 3, "age": [31, 52, 44, 60, 25, 38], "ward": list("abbaba"),
        ...          "year": [2020] * 6, "cost": [900, 4100, 2300, 5000, 700, 2600]}
        >>> data = lf.GivenSamples.from_table(table, y="cost", clients="clinic", categories=["ward"], test_share=0.3)
        >>> data.X.shape, data.client_names
        ((1, 2, 2, 3), ('Aarau', 'Bern'))
        >>> print(data.preparation)
        an intercept for each client, scaled, without constant 'year'
        """
        columns = read_table("table", table)
        samples = len(next(iter(columns.values())))
        (label_name, labels), (client_name, sites) = (
            named_or_given(name, value, columns, samples) for name, value in (("y", y), ("clients", clients))
        )
        names = tuple(name for name in columns if name not in (label_name, client_name))
        if not names:
            raise ValueError(f"table has the columns {listed(tuple(columns))}, none of them a feature")
        categories = check_sequence("categories", categories, "a sequence of names of columns")
        for name in categories:
            if not isinstance(name, Hashable) or name not in names:
                found = f"categories contains {short_repr(name)}{suggestion(name, map(str, names))}"
                raise ValueError(f"{found}, but must name features; allowed: {listed(names)}")
        check_complete("table", {name: columns[name] for name in names} | {"y": labels, "clients": sites})
        values, classes = cls._labels_of(labels)
        owner, client_names = numbered("clients", sites)
        size = float(check_integer("trials", trials)) * samples * (len(names) + 2)
        check_fits(size, f"trials = {trials} of {samples} samples", "use fewer trials")
        owners = np.repeat(owner[None], trials, axis=0)
        train, test = cls._held_out(owners, values, test_share, seed)
        used = np.unique(np.concatenate(train))
        levels = [
            numbered(f"table[{name!r}]", columns[name][used])[1] if name in categories else None for name in names
        ]
        read = TableColumns(names=names, levels=tuple(levels), clients=client_name)
        rows = read.features("table", columns)
        parts = [dealt(rows, values, owners, part) for part in (train, test) if any(map(len, part))]
        unseen = ~parts[0][0].any(axis=(1, 2)) & read.is_level
        for X, _, _ in parts[1:]:
            X *= ~unseen[:, None, None]
        data = cls._of_parts(*parts, names=client_names)
        if classes is not None:
            data._name_classes(classes)
        data._prepare(check_bool("intercept", intercept), check_bool("scale", scale), read)
        return data

    @classmethod
    def _labels_of(cls, labels: npt.NDArray[Any]) -> tuple[Array, tuple[Any, ...] | None]:
        """Return the labels of a table as floats, and the names of the classes."""
        return check_array("y", labels, [("samples",)]), None

    def _name_classes(self, names: tuple[Any, ...]) -> None:
        """Store the names of the classes."""
        raise NotImplementedError

    @classmethod
    def split(
        cls,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        clients: npt.ArrayLike,
        *,
        test_share: float = 0.2,
        seed: Seed = 0,
    ) -> GivenSamples:
        """Distribute one data set over clients in each trial, and hold out a share of each client's samples.

        Parameters
        ----------
        X : array_like (samples, d)
            Samples.
        y : array_like (samples,)
            Labels.
        clients : array_like (samples,), or of int (trials, samples)
            The client of each sample. Values (samples,) of any type are the clients' names, for one trial; see also
            `from_table`. Integers (trials, samples) are the clients' numbers, or -1 for an unassigned sample: a result
            of `random_split` or `feature_split`, of which one trial is ``clients[:1]``. A client must have the same
            number of samples in all trials.
        test_share : float
            Share of held-out samples: ``floor(test_share * count + 1/2)`` of a client's `count` samples, but never all
            of them.
        seed : int or tuple of int
            The choice and the order of a trial's samples are a function of (seed, trial).

        Returns
        -------
        GivenSamples
            X (trials, n, m, d), and counts (n,); m is the largest count. Rows beyond a client's count are zero.

        Raises
        ------
        ValueError
            If shapes do not agree, a client has no samples or different numbers of samples in the trials, or
            `test_share` > 0 holds out no sample at all.
        SizeError
            If the samples do not fit into memory.

        Examples
        --------
        >>> import linfed as lf
        >>> import numpy as np
        >>> X, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60.0)
        >>> lf.GivenSamples.split(X, y, lf.feature_split(X[:, 0], n_clients=3, trials=5))
        GivenSamples(X of shape (5, 3, 16, 4), samples per client 16, held-out samples per client 4)
        >>> lf.GivenSamples.split(X, y, np.repeat(["north", "south"], 30)).client_names
        ('north', 'south')
        """
        rows = check_array("X", X, [("samples", "d")])
        labels = check_array("y", y, [("samples",)])
        check_shape("y", labels, rows.shape[:1], f"(samples,) as X has shape {rows.shape}")
        owners, names = owners_of(clients, rows)
        counts = np.stack([np.bincount(one[one >= 0]) for one in owners])
        if np.ptp(counts, axis=0).any():
            client = int(np.ptp(counts, axis=0).argmax())
            found = _range(counts[:, client].astype(float))
            raise ValueError(
                f"clients: client {client} has {found} samples, but must have the same number in all trials; run each "
                "trial with a separate lf.GivenSamples"
            )
        return cls._dealt(rows, labels, owners, names, test_share, seed)

    @classmethod
    def _dealt(
        cls,
        rows: Array,
        labels: Array,
        owners: Indices,
        names: tuple[Any, ...] | None,
        test_share: float,
        seed: Seed,
    ) -> Self:
        """Return checked samples dealt to their owners (trials, samples), with a share of them held out."""
        parts = cls._held_out(owners, labels, test_share, seed)
        return cls._of_parts(*(dealt(rows, labels, owners, part) for part in parts if any(map(len, part))), names=names)

    @classmethod
    def _held_out(
        cls, owners: Indices, labels: Array, test_share: float, seed: Seed
    ) -> tuple[list[Indices], list[Indices]]:
        """Return the indices of training and of held-out samples, with one array per trial."""
        share, seed = check_number("test_share", test_share, minimum=0.0, maximum=1.0), check_seed(seed)
        train, test = held_out(owners, cls._strata(labels), share, seed)
        if share > 0 and not any(map(len, test)):
            each = " of each class" if cls._stratified else ""
            raise ValueError(
                f"test_share = {test_share} holds out no sample, because every client has too few samples{each}: "
                "increase it, or set it to 0"
            )
        return train, test

    @classmethod
    def _of_parts(cls, *parts: tuple[Array, Array, Array], names: tuple[Any, ...] | None) -> Self:
        """Return data that hold checked arrays of training samples, and of held-out samples if there are any."""
        data = cls._made(*parts[0])
        if len(parts) > 1:
            data.test = cls._made(*parts[1])
        if names is not None:
            data.client_names = names
        return data

    @classmethod
    def _strata(cls, labels: Array) -> Array:
        """Return the groups of samples that are held out separately."""
        return labels if cls._stratified else np.zeros(len(labels))

    @classmethod
    def _made(cls, X: Array, y: Array, counts: Array) -> Self:
        """Return data that hold checked arrays; counts (trials, n) of regression data are equal in all trials."""
        data = cls.__new__(cls)
        data._hold(X, y, counts if cls._stratified or counts.ndim == 1 else counts[0].copy())
        return data

    def _prepare(self, intercept: bool, scale: bool, columns: TableColumns | None = None) -> None:
        """Learn the preparation on the training samples, and apply it to all samples."""
        if not intercept and not scale and columns is None:
            return
        arrays = self.with_trials()
        classes = self._stratified
        made = learned(*arrays, intercept=intercept and not classes, scale=scale, classes=classes, columns=columns)
        self.preparation = made
        for part in (self,) if self.test is None else (self, self.test):
            ready = part.prepared(made)
            part._hold(ready.X, ready.y, ready.counts)

    def with_trials(self) -> tuple[Array, Array, Array]:
        """Return X (T, n, m, d), y (T, n, m) and counts (T, n), where T is 1 if all trials share the samples."""
        X, y = (self.X, self.y) if self.X.ndim == 4 else (self.X[None], self.y[None])
        return X, y, np.broadcast_to(self.counts, X.shape[:2])

    def prepared(self, preparation: Preparation) -> Self:
        """Return these samples, without held-out ones, prepared as others were.

        They get an axis of trials if they or the preparation have one.
        """
        X, y, counts = self.with_trials()
        inside = (np.arange(X.shape[2]) < counts[..., None]).astype(float)
        rows, labels = preparation.rows(X, inside), y if self._stratified else preparation.labels(y, inside)
        labels = np.broadcast_to(labels, rows.shape[:-1])
        if len(rows) == 1 and self.X.ndim == 3:
            rows, labels = rows[0], labels[0]
        out = type(self).__new__(type(self))
        out._hold(rows, labels, self.counts)
        return out

    def hold_out(self, share: float, *, trials: int | None = None, seed: Seed = 0) -> Self:
        """Return these data with a share of the training samples as the held-out samples, for tuning.

        Parameters
        ----------
        share : float
            Share of held-out samples, as `test_share` in `split`.
        trials : int, optional
            Number of trials, each with its own choice, for data without an axis of trials. By default they stay without
            one.
        seed : int or tuple of int
            The choice of a trial's samples is a function of (seed, trial).

        Returns
        -------
        GivenSamples or GivenClasses
            Data whose `test` contains samples of `X`. The test samples of the original data are in neither part.
            Prepared data are prepared again, by the samples that are left.

        Raises
        ------
        ValueError
            If `share` is not between 0 and 1, or holds out no sample, or the data have another number of trials.

        Examples
        --------
        >>> import linfed as lf
        >>> import numpy as np
        >>> data = lf.GivenSamples(np.ones((3, 8, 2)), np.ones((3, 8)))
        >>> data.hold_out(0.25)
        GivenSamples(X of shape (3, 6, 2), samples per client 6, held-out samples per client 2)
        >>> data.hold_out(0.25, trials=10)
        GivenSamples(X of shape (10, 3, 6, 2), samples per client 6, held-out samples per client 2)
        """
        share = check_number("share", share, positive=True, minimum=0.0, maximum=1.0)
        count = None if trials is None else check_integer("trials", trials)
        if count is not None and self.X.ndim == 4 and count != len(self.X):
            raise ValueError(f"trials = {count} must be {len(self.X)}: X has arrays for {len(self.X)} trials")
        if self.X.ndim == 3:
            check_fits(float(count or 1) * self.X.size, f"trials = {count} of the samples", "use fewer trials")
        return self._divided(share, count, check_seed(seed))

    def _divided(self, share: float, trials: int | None, seed: Seed) -> Self:
        X, y, counts = self.with_trials()
        several = self.X.ndim == 4 or trials is not None
        parts: tuple[list[Any], list[Any]] = ([], [])
        for trial in range(len(X) if trials is None else trials):
            source = trial if self.X.ndim == 4 else 0
            taken = np.arange(X.shape[2]) < counts[source][:, None]
            rows, labels, owner = X[source][taken], y[source][taken], np.nonzero(taken)[0][None]
            of_trial = (*seed, trial) if isinstance(seed, tuple) else (seed, trial)
            for part, chosen in zip(parts, held_out(owner, self._strata(labels), share, of_trial), strict=True):
                part.append(dealt(rows, labels, owner, chosen))
        if not any(counts.any() for _, _, counts in parts[1]):
            raise ValueError(f"share = {share:g} holds out no sample, because every client has too few: increase it")
        train, test = (_of_one_size(part) for part in parts)
        if not several:
            train, test = ((X[0], y[0], counts[0]) for X, y, counts in (train, test))
        data = self._of_parts(train, test, names=self.client_names)
        if (first := self.preparation) is not None:
            data._prepare(first.intercept or self._stratified, first.scale, first.columns)
            assert data.preparation is not None
            data.preparation = data.preparation.after(first)
        return data

    @classmethod
    def population(cls, problem: Problem, *, trials: int = 1, seed: Seed = 0) -> GivenSamples:
        """Return data sets of d samples with exactly the population's second moments: m -> infinity, no noise.

        Parameters
        ----------
        problem : Problem
            Ground truth and distribution of x.
        trials : int
            Number of trials.
        seed : int or tuple of int
            Seed of the ground truths, as in ``simulate(..., trials=trials, seed=seed)``.

        Returns
        -------
        GivenSamples
            X (trials, n, d, d) such that ``X_i'X_i/d`` is the covariance of x, and ``y = X_i phi_i``. Quadratic losses
            are then the population losses without the term ``noise_std^2 / 2``. The method of moments uses fourth
            moments, which differ.

        Raises
        ------
        ValueError
            For classification.
        SizeError
            If the samples do not fit into memory.
        """
        trials, seed = check_integer("trials", trials), check_seed(seed)
        n, d = check_problem(problem).n_clients, problem.dim
        _check_given(trials, (n, d, d), problem, "a smaller dim")
        truth = problem.truth(seed, range(trials))
        rows = np.sqrt(d) * truth.design.shape_rows(np.eye(d))
        X = np.broadcast_to(rows, (trials, n, d, d))
        if truth.design.per_client:
            return cls(X, (X @ truth.dense()[..., None])[..., 0])
        return cls(X, truth.dense() @ rows.T)

    def __repr__(self) -> str:
        held_out = "" if self.test is None else f", held-out samples per client {_range(self.test.counts)}"
        done = "" if self.preparation is None else f", {self.preparation}"
        counts = f"samples per client {_range(self.counts)}{held_out}"
        return f"{type(self).__name__}(X of shape {self.X.shape}, {counts}{done})"

    @property
    def n_trials(self) -> int | None:
        """Number of trials of the data; None if they have no trial axis."""
        count = int(self.X.shape[0]) if self.X.ndim == 4 else None
        return count if count is not None or self.test is None else self.test.n_trials

    @property
    def n_clients(self) -> int:
        """Number of clients n."""
        return int(self.X.shape[-3])

    @property
    def dim(self) -> int:
        """Ambient dimension d."""
        return int(self.X.shape[-1])

    def of_trials(self, trials: Sequence[int]) -> tuple[Array, Array, Array]:
        """Return X (T, n, m, d), y (T, n, m) and counts (T, n) of the given trials."""
        trials = check_trials(trials)
        if self.X.ndim == 4:
            if max(trials) >= len(self.X):
                raise ValueError(
                    f"trials = {short_repr(trials)} must be below {len(self.X)}, the number of trials of X"
                )
            chosen: slice | list[int] = list(trials)
            if isinstance(trials, range) and trials.step > 0:  # a slice that descends to -1 would be empty
                chosen = slice(trials.start, trials.stop, trials.step)
            return self.X[chosen], self.y[chosen], np.broadcast_to(self.counts, self.X.shape[:2])[chosen]
        X, y, counts = (np.broadcast_to(array, (len(trials), *array.shape)) for array in (self.X, self.y, self.counts))
        return X, y, counts

    def check_sizes(self, n_clients: int | None, dim: int, having: str, *, prefix: str = "") -> None:
        """Raise unless the samples have `n_clients` clients (None: any number) and dimension `dim`."""
        if self.dim != dim or n_clients not in (None, self.n_clients):
            clients = "" if n_clients is None else f"n = {n_clients} clients of dimension "
            raise ValueError(f"{prefix}X has shape {self.X.shape}, expected {clients}d = {dim} as {having}")

    def normal_equations(self) -> tuple[Array, Array]:
        """Return ``A_i = X_i'X_i/m_i`` (..., n, d, d) and ``b_i = X_i'y_i/m_i`` (..., n, d)."""
        return normal_equations(self.X, self.y, np.broadcast_to(self.counts, self.X.shape[:-2]))

    def compressed(self) -> GivenSamples:
        """Return at most d + 1 pseudo-samples per client with unchanged full-batch quadratic losses.

        Returns
        -------
        GivenSamples
            The triangular factors of ``[X_i, y_i]``, scaled to their number of rows. ``A_i``, ``b_i`` and losses are
            unchanged up to rounding errors, and one factorisation serves many runs. If ``m <= d + 1``, the samples are
            returned unchanged. Held-out samples are not compressed. The default penalty of `NuclearNorm` depends on
            the number of samples: give one.

        Raises
        ------
        ValueError
            If clients have different numbers of samples: pseudo-samples do not preserve the counts.
        """
        m, q = float(self.counts[0]), self.dim + 1
        if np.any(self.counts != m):
            raise ValueError(f"clients have {_range(self.counts)} samples each; compressed() requires equal counts")
        if m <= q:
            return self
        if self.X.ndim == 3:
            R = factor_of(self.X, self.y)
        else:  # trial by trial, as a factorisation copies its samples
            R = np.stack([factor_of(X, y) for X, y in zip(self.X, self.y, strict=True)])
        R *= np.sqrt(q / m)
        out = GivenSamples(R[..., :-1], R[..., -1])
        for name in ("test", "preparation", "client_names"):
            if (value := getattr(self, name)) is not None:
                setattr(out, name, value)
        return out

    @property
    def scale(self) -> Array:
        """Root mean square label, (trials,) or (1,)."""
        return np.sqrt(((self.y if self.y.ndim == 3 else self.y[None]) ** 2).sum(axis=(-2, -1)) / self.counts.sum())

    @property
    def predictor_scale(self) -> Array:
        """Scale of predictors, (trials,) or (1,): `scale` over the largest entry of the smallest column, if below 1.

        Each client has its own columns; columns of zeros do not count.
        """
        X = self.X if self.X.ndim == 4 else self.X[None]
        largest = np.maximum(X.max(axis=2), -X.min(axis=2))
        return np.asarray(self.scale / largest.min(axis=(1, 2), initial=1.0, where=largest > 0))

    def floats_per_trial(self, sizes: Sizes) -> int:
        """Return the number of floats in one trial's data in a round, in addition to the given arrays."""
        m, copies = int(self.X.shape[-2]), sizes.n_clients if self.X.ndim == 4 else 0
        return (sizes.gathered + copies) * m * (sizes.dim + 1) + sizes.participants * m * sizes.features


Data = FreshSamples | FixedSamples | GivenSamples


def _check_given(trials: int, sizes: tuple[int, int, int], problem: Problem, way_out: str) -> None:
    """Raise unless given samples of these sizes (n, m, d) and one copy of them fit into memory."""
    n, m, d = sizes
    check_fits(
        trials * (2.0 * n * m * (d + 1) + problem.floats_per_trial()),
        f"trials = {trials} of n = {n} clients with {m} samples of dimension {d} each",
        f"use fewer trials, clients or samples, or {way_out}",
    )


def _of_one_size(trials: Sequence[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """Return the samples of several trials as arrays of one trial axis, padded with zeros to the largest count."""
    m = max(X.shape[2] for X, _, _ in trials)
    whole = [(0, 0), (0, 0)]
    X = np.concatenate([np.pad(X, [*whole, (0, m - X.shape[2]), (0, 0)]) for X, _, _ in trials])
    y = np.concatenate([np.pad(y, [*whole, (0, m - y.shape[2])]) for _, y, _ in trials])
    return X, y, np.concatenate([counts for _, _, counts in trials])


def some_samples(X: Samples, y: Samples, *, prefix: str = "", kind: type[GivenSamples] = GivenSamples) -> GivenSamples:
    """Return samples for evaluation only; in a list some clients may have no samples."""
    samples = kind.__new__(kind)
    samples._hold(*_checked(kind, X, y, prefix, some=True))
    return samples


def given_batch(samples: GivenSamples, trials: Sequence[int]) -> ExplicitBatch:
    """Return a batch of all clients' samples in the given trials."""
    X, y, counts = samples.of_trials(trials)
    return ExplicitBatch(X, y, active=everybody(*X.shape[:2]), counts=counts)


def _range(counts: Array) -> str:
    """Return the range of some counts as text, e.g. "9 to 15"."""
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _checked(kind: type[GivenSamples], X: Any, y: Any, prefix: str, *, some: bool) -> tuple[Array, Array, Array]:
    """Return checked samples, labels and counts (n,); with `some`, clients of a list may have no samples."""
    name = prefix + kind._labels
    X, y = _cells(X, 2), _cells(y, 1)
    if isinstance(X, list | tuple) and not _regular(X):
        if any(_axes(part) > 2 for part in X):
            raise ValueError(
                f"{prefix}X has trials with arrays of different sizes, but must be one array (trials, n, m, d): run "
                f"each trial with a separate lf.{kind.__name__}, or give all clients equal counts"
            )
        return _padded(X, y, prefix, name, some=some)
    check_copy(f"{prefix}X", X)
    rows = check_array(f"{prefix}X", X, [("n", "m", "d"), ("trials", "n", "m", "d")])
    labels = check_array(name, y, [("n", "m"), ("trials", "n", "m")])
    wanted = "(n, m)" if rows.ndim == 3 else "(trials, n, m)"
    check_shape(name, labels, rows.shape[:-1], f"{wanted} as {prefix}X has shape {rows.shape}")
    return rows, labels, np.full(rows.shape[-3], float(rows.shape[-2]))


def _cells(value: Any, axes: int) -> Any:
    """Return an array of arrays, as of a MATLAB file, as a list of them; a label array (m_i, 1) loses its last axis."""
    if not isinstance(value, np.ndarray) or value.dtype != object or np.ndim(value.flat[0] if value.size else 0) == 0:
        return value
    parts = value.ravel().tolist()
    return [np.ravel(part) if axes == 1 and np.ndim(part) == 2 and 1 in np.shape(part) else part for part in parts]


def _regular(X: Sequence[Any]) -> bool:
    """Return whether the parts can be stacked into one array; False if a part is ragged."""
    try:
        return len({np.shape(part) for part in X}) == 1
    except ValueError:
        return False


def _axes(part: Any) -> int:
    """Return the number of axes of a possibly ragged part, judged by its first entries."""
    if isinstance(part, list | tuple):
        return 1 + (_axes(part[0]) if part else 0)
    return np.ndim(part)


def _padded(X: Sequence[Any], y: Any, prefix: str, name: str, *, some: bool) -> tuple[Array, Array, Array]:
    """Return zero-padded rows (n, m, d), labels (n, m) and counts (n,) from lists of arrays."""
    if not is_several(y) or len(y) != len(X):
        raise ValueError(f"{name} must be a sequence of n = {len(X)} arrays (m_i,), as X has n arrays (m_i, d)")
    if len(X) == 0:
        raise ValueError(f"{prefix}X is an empty sequence; it must contain at least one client")
    parts = [_part(f"{prefix}X[{i}]", part, ("m_i", "d"), some) for i, part in enumerate(X)]
    labels = [_part(f"{name}[{i}]", part, ("m_i",), some) for i, part in enumerate(y)]
    counts = np.array([float(part.shape[0]) for part in parts])
    if not counts.any():
        raise ValueError(f"{prefix}X contains no samples; at least one client must have samples")
    dim = parts[int(counts.argmax())].shape[1] if some else parts[0].shape[1]
    for i, (part, label) in enumerate(zip(parts, labels, strict=True)):
        if part.ndim == 2:  # an empty list has no dimension
            check_shape(f"{prefix}X[{i}]", part, (part.shape[0], dim), "(m_i, d)")
        check_shape(f"{name}[{i}]", label, part.shape[:1], f"(m_i,) as {prefix}X[{i}] has shape {part.shape}")
    rows = np.zeros((len(parts), int(counts.max()), dim))
    values = np.zeros(rows.shape[:-1])
    for i in map(int, np.flatnonzero(counts)):
        rows[i, : parts[i].shape[0]], values[i, : labels[i].shape[0]] = parts[i], labels[i]
    return rows, values, counts


def _part(name: str, value: Any, axes: tuple[str, ...], some: bool) -> Array:
    """Return one client's array; with `some` it may be empty."""
    if some and _axes(value) and len(value) == 0:
        return np.asarray(value, dtype=np.float64)
    return check_array(name, value, [axes])


def check_truthless(data: object) -> None:
    """Raise unless `data` can be used without a ground truth."""
    if not isinstance(data, GivenSamples):
        raise ValueError(f"data = {short_repr(data)} requires problem=, or use lf.GivenSamples")
