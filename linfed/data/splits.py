"""Splits of one data set over clients, from a separate stream for each trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Generator, Indices
from linfed.checks import check_array, check_integer, check_number, check_shape, check_whole, short_repr
from linfed.data.columns import check_complete, numbered, one_column
from linfed.numerics.rounding import rounded_share
from linfed.numerics.streams import Seed, Stream, check_seed, generators
from linfed.problems.classes import checked_classes_per_client, dealt_classes
from linfed.system.memory import check_fits

REDRAWS = 1000
"""Largest number of draws of a trial's shares until every client has enough samples."""


def classwise_split(
    labels: npt.ArrayLike,
    *,
    n_clients: int,
    classes_per_client: int | Sequence[int],
    trials: int = 1,
    seed: Seed = 0,
) -> Indices:
    """Split labelled samples over clients that each have only some of the classes.

    Parameters
    ----------
    labels : array_like (samples,)
        Classes, integers from 0; only classes with samples are assigned.
    n_clients : int
        Number of clients n, at most the number of samples.
    classes_per_client : int or sequence of n ints
        Number of distinct classes of each client.
    trials : int
        Number of independent splits.
    seed : int or tuple of int
        A trial's split is a function of (seed, trial).

    Returns
    -------
    ndarray of int (trials, samples)
        The client of each sample, or -1 if the sample is unassigned.

    Raises
    ------
    ValueError
        If a client would have no samples.
    SizeError
        If the splits do not fit into memory.

    Notes
    -----
    In random order each client takes the classes that the fewest clients have so far, with random ties. The numbers of
    clients per class differ by at most one. The samples of a class are distributed at random over its clients, whose
    numbers of samples of the class differ by at most one. Samples of a class without clients are unassigned.

    **Deviations**: the FLUTE paper (section 7.2) gives the number of classes per client but not how they are drawn.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> labels = np.repeat([0, 1, 2], 4)
    >>> (clients,) = lf.classwise_split(labels, n_clients=6, classes_per_client=1)
    >>> np.bincount(clients).tolist(), all(np.ptp(labels[clients == client]) == 0 for client in range(6))
    ([2, 2, 2, 2, 2, 2], True)
    """
    classes, sizes = _classes(labels)
    n = check_integer("n_clients", n_clients, maximum=len(classes))
    taken = checked_classes_per_client(classes_per_client, n, len(sizes))

    def shares(rng: Generator, trial: int) -> Indices:
        holds = dealt_classes(rng, taken, len(sizes)).T
        holders = holds.sum(axis=1)
        each, left = np.divmod(sizes, np.maximum(holders, 1))
        keys = np.where(holds, rng.random(holds.shape), math.inf)
        luck = np.argsort(np.argsort(keys, axis=1), axis=1)  # random rank of a client among the clients of the class
        dealt = np.where(holds, each[:, None] + (luck < left[:, None]), 0)
        if not dealt.sum(axis=0).all():
            raise ValueError(
                f"n_clients = {n}: in trial {trial} client {int(dealt.sum(axis=0).argmin())} would have no samples, "
                "because a class has fewer samples than clients: use fewer clients, or more classes_per_client"
            )
        return dealt

    return _split(classes, sizes, n, _checked_trials(trials, len(classes)), seed, shares)


def dirichlet_split(
    labels: npt.ArrayLike,
    *,
    n_clients: int,
    concentration: float,
    trials: int = 1,
    seed: Seed = 0,
    min_samples: int = 2,
) -> Indices:
    """Split labelled samples over clients with Dirichlet-distributed shares of each class.

    Parameters
    ----------
    labels : array_like (samples,)
        Classes, integers from 0.
    n_clients : int
        Number of clients n.
    concentration : float
        Concentration of the Dirichlet distribution. If it is small, one client has most samples of a class; if it is
        large, all clients have equal shares.
    trials : int
        Number of independent splits.
    seed : int or tuple of int
        A trial's split is a function of (seed, trial).
    min_samples : int
        Smallest allowed number of samples per client; a trial's shares are redrawn until it is reached.

    Returns
    -------
    ndarray of int (trials, samples)
        The client of each sample; every sample is assigned.

    Raises
    ------
    ValueError
        If some client has fewer than `min_samples` samples in each of 1000 draws.
    SizeError
        If the splits do not fit into memory.

    Notes
    -----
    For each class, shares ``p ~ Dirichlet(concentration, ..., concentration)`` over the n clients are drawn
    independently, as in Yurochkin et al. (2019). The samples of the class are distributed at random, in numbers given
    by the rounded cumulative shares. Hsu et al. (2019) instead draw a Dirichlet distribution over the classes of each
    client, with clients of equal size.

    References
    ----------
    M. Yurochkin, M. Agarwal, S. Ghosh, K. Greenewald, N. Hoang, Y. Khazaeni: Bayesian nonparametric federated learning
    of neural networks, ICML 2019. T.-M. H. Hsu, H. Qi, M. Brown: Measuring the effects of non-identical data
    distribution for federated visual classification, arXiv:1909.06335, 2019.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> labels = np.repeat([0, 1, 2], 200)
    >>> (even,) = lf.dirichlet_split(labels, n_clients=4, concentration=1e6)
    >>> (skewed,) = lf.dirichlet_split(labels, n_clients=4, concentration=0.1)
    >>> bool(np.ptp(np.bincount(even)) < 10 < 100 < np.ptp(np.bincount(skewed)))
    True
    """
    classes, sizes = _classes(labels)
    n, least = check_integer("n_clients", n_clients), check_integer("min_samples", min_samples)
    if n * least > len(classes):
        raise ValueError(
            f"n_clients = {n} with min_samples = {least} require {n * least} samples, but labels has {len(classes)}: "
            "reduce one of them"
        )
    alpha = np.full(n, check_number("concentration", concentration, positive=True, minimum=0.0, maximum=1e12))

    def shares(rng: Generator, trial: int) -> Indices:
        for _ in range(REDRAWS):
            inner = np.cumsum(rng.dirichlet(alpha, len(sizes)), axis=1)[:, :-1]
            cuts = np.rint(inner * sizes[:, None]).astype(np.intp)
            dealt = np.diff(cuts, axis=1, prepend=0, append=sizes[:, None])
            if dealt.sum(axis=0).min() >= least:
                return dealt
        raise ValueError(
            f"concentration = {concentration}: in {REDRAWS} draws of trial {trial} some of n_clients = {n} always had "
            f"fewer than min_samples = {least} samples: increase concentration, or reduce n_clients or min_samples"
        )

    return _split(classes, sizes, n, _checked_trials(trials, len(classes)), seed, shares)


def random_split(
    samples: int,
    *,
    n_clients: int,
    shares: Sequence[float] | Array | None = None,
    trials: int = 1,
    seed: Seed = 0,
) -> Indices:
    """Split samples over clients at random, in equal or unequal numbers.

    Parameters
    ----------
    samples : int
        Number of samples.
    n_clients : int
        Number of clients n, at most the number of samples.
    shares : sequence of n numbers, optional
        Positive weights of the clients: a client's number of samples is proportional to its weight, rounded. By default
        the numbers differ by at most one.
    trials : int
        Number of independent splits. Each client has the same number of samples in all of them.
    seed : int or tuple of int
        A trial's split is a function of (seed, trial).

    Returns
    -------
    ndarray of int (trials, samples)
        The client of each sample.

    Raises
    ------
    ValueError
        If a client would have no samples.
    SizeError
        If the splits do not fit into memory.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> clients = lf.random_split(100, n_clients=4, shares=[1, 2, 3, 4], trials=2)
    >>> clients.shape, np.bincount(clients[0]).tolist()
    ((2, 100), [10, 20, 30, 40])
    """
    samples = check_integer("samples", samples)
    trials = _checked_trials(trials, samples)
    counts = _counts(samples, n_clients, shares)
    sizes = np.array([samples])
    return _split(np.zeros(samples, dtype=np.intp), sizes, len(counts), trials, seed, lambda rng, trial: counts[None])


def feature_split(
    feature: npt.ArrayLike,
    *,
    n_clients: int,
    shares: Sequence[float] | Array | None = None,
    trials: int = 1,
    seed: Seed = 0,
) -> Indices:
    """Split samples over clients by a feature: each client has the samples of an interval of its values.

    Parameters
    ----------
    feature : array_like (samples,)
        A feature or label of each sample.
    n_clients, shares
        As in `random_split`. The first client has the smallest values.
    trials : int
        Number of splits. They differ only in samples with equal values at the ends of the intervals.
    seed : int or tuple of int
        A trial's split is a function of (seed, trial).

    Returns
    -------
    ndarray of int (trials, samples)
        The client of each sample.

    Raises
    ------
    ValueError
        If a client would have no samples.
    SizeError
        If the splits do not fit into memory.

    Notes
    -----
    A feature that already names the clients, such as a site, needs no split: see `GivenSamples.from_table`.

    Examples
    --------
    >>> import linfed as lf
    >>> lf.feature_split([0.1, 0.9, 0.4, 0.2], n_clients=2).tolist()
    [[0, 1, 1, 0]]
    """
    values = check_array("feature", feature, [("samples",)])
    counts = _counts(len(values), n_clients, shares)
    trials, seed = _checked_trials(trials, len(values)), check_seed(seed)
    clients = np.empty((trials, len(values)), dtype=np.intp)
    for trial, rng in enumerate(generators(seed, Stream.SPLIT, range(trials))):
        clients[trial, np.lexsort((rng.random(len(values)), values))] = np.repeat(np.arange(len(counts)), counts)
    return clients


def _checked_trials(trials: int, samples: int) -> int:
    """Return the number of splits; raise unless they fit into memory."""
    trials = check_integer("trials", trials)
    check_fits(float(trials) * samples, f"trials = {trials} of {samples} samples", "use fewer trials or samples")
    return trials


def _counts(samples: int, n_clients: int, shares: Sequence[float] | Array | None) -> Indices:
    """Return the number of samples of each client."""
    n = check_integer("n_clients", n_clients, maximum=samples)
    weights = check_array("shares", np.ones(n) if shares is None else shares, [("n_clients",)])
    check_shape("shares", weights, (n,), "(n_clients,)")
    most = np.finfo(float).max / samples / n
    if not (weights.min() > 0 and weights.max() <= most):
        raise ValueError(f"shares = {short_repr(shares)} must be positive numbers of at most {most:.3g}")
    ends = np.rint(samples * np.cumsum(weights) / weights.sum()).astype(np.intp)
    counts = np.diff(ends, prepend=0)
    if counts.min() == 0:
        raise ValueError(
            f"shares: client {int(counts.argmin())} of n_clients = {n} would have none of {samples} samples; use more "
            "equal shares or fewer clients"
        )
    return counts


def held_out(clients: Indices, labels: Array, share: float, seed: Seed) -> tuple[list[Indices], list[Indices]]:
    """Return the indices of training and of held-out samples, in random order, as lists with one array per trial.

    ``floor(share * count + 1/2)`` of a client's `count` samples of each class are held out, but never all.
    """
    train, test = [], []
    classes = np.unique(labels, return_inverse=True)[1]
    for owner, rng in zip(clients, generators(seed, Stream.HELD_OUT, range(len(clients))), strict=True):
        order = rng.permutation(len(labels))
        order = order[owner[order] >= 0]
        place, counts = places(owner[order] * (classes.max() + 1) + classes[order])
        is_test = place < np.minimum(rounded_share(share, counts), counts - 1)
        train.append(order[~is_test])
        test.append(order[is_test])
    return train, test


def owners_of(clients: npt.ArrayLike, rows: Array) -> tuple[Indices, tuple[Any, ...] | None]:
    """Return the client of each sample, (trials, samples), and the clients' names if `clients` is (samples,).

    Raises if a client has no sample in some trial.
    """
    samples = rows.shape[0]
    if (named := one_column(clients)) is not None:
        check_complete("clients", {"clients": named})
        check_shape("clients", named, (samples,), f"(samples,) as X has shape {rows.shape}")
        if named.dtype.kind == "i" and named.min() == -1 and len(np.unique(named)) == int(named.max()) + 2:
            raise ValueError(
                f"clients of shape ({samples},) holds names, but -1 to {named.max()} are the numbers of a split, with "
                "-1 for unassigned samples: give clients[None], of shape (1, samples)"
            )
        owner, names = numbered("clients", named)
        return owner[None], names
    array = check_array("clients", clients, [("trials", "samples")])
    check_shape("clients", array, (array.shape[0], samples), f"(trials, samples) as X has shape {rows.shape}")
    check_whole("clients", array, -1.0, samples - 1.0, f"from -1 (unassigned) to {samples - 1}, for {samples} samples,")
    owners = array.astype(np.intp)
    n = int(owners.max()) + 1
    if n == 0:
        raise ValueError("clients contains only -1 (unassigned); at least one client must have samples")
    for trial, one in enumerate(owners):
        missing = np.setdiff1d(np.arange(n), one)
        if missing.size:
            raise ValueError(
                f"clients has no sample of client {missing[0]} in trial {trial}; each of n = {n} clients must have one "
                "in every trial"
            )
    return owners, None


def dealt(rows: Array, labels: Array, owners: Indices, chosen: list[Indices]) -> tuple[Array, Array, Array]:
    """Return zero-padded X (trials, n, m, d), y (trials, n, m) and counts (trials, n) of the chosen samples."""
    trials, n, d = len(chosen), int(owners.max()) + 1, rows.shape[1]
    counts = np.stack([np.bincount(owner[one], minlength=n) for owner, one in zip(owners, chosen, strict=True)])
    m = int(counts.max())
    check_fits(
        float(trials) * n * m * (d + 1),
        f"{trials} trials of n = {n} clients, padded to {m} samples of dimension {d} each,",
        "use fewer trials, or clients with more equal numbers of samples",
    )
    X, y = np.zeros((trials, n, m, d)), np.zeros((trials, n, m))
    for trial, one in enumerate(chosen):
        client = owners[trial, one]
        place = places(client)[0]
        X[trial, client, place], y[trial, client, place] = rows[one], labels[one]
    return X, y, counts.astype(np.float64)


def places(groups: Indices) -> tuple[Indices, Indices]:
    """Return each entry's position within its group, in the order of the entries, and the size of its group."""
    order = np.argsort(groups, kind="stable")
    found, sizes = np.unique(groups, return_counts=True)
    starts, place = np.cumsum(sizes) - sizes, np.empty_like(groups)
    place[order] = np.arange(groups.size) - np.repeat(starts, sizes)
    return place, sizes[np.searchsorted(found, groups)]


def _classes(labels: npt.ArrayLike) -> tuple[Indices, Indices]:
    """Return the class of each sample, numbered over the classes with samples, and the size of each class."""
    array = check_array("labels", labels, [("samples",)])
    check_whole("labels", array, 0.0, math.inf, "from 0")
    _, classes, sizes = np.unique(array, return_inverse=True, return_counts=True)
    return classes, sizes


def _split(
    classes: Indices, sizes: Indices, n: int, trials: int, seed: Seed, shares: Callable[[Generator, int], Indices]
) -> Indices:
    """Return random clients (trials, samples); ``shares(rng, trial)`` (c, n) is the number of samples of each."""
    seed = check_seed(seed)
    clients = np.empty((trials, len(classes)), dtype=np.intp)
    everybody = np.tile([*range(n), -1], len(sizes))
    for trial, rng in enumerate(generators(seed, Stream.SPLIT, range(trials))):
        dealt = shares(rng, trial)
        nobodys = sizes - dealt.sum(axis=1)
        order = rng.permutation(len(classes))
        order = order[np.argsort(classes[order], kind="stable")]
        clients[trial, order] = np.repeat(everybody, np.column_stack([dealt, nobodys]).ravel())
    return clients
