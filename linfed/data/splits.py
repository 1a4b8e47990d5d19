"""Who gets which of a user's labelled samples: splits among clients, each trial's from its own stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from linfed._types import Array, Generator, Indices
from linfed.errors import check_array, check_integer, check_number, check_whole
from linfed.numerics.streams import Seed, Stream, check_seed, generators
from linfed.problems.classes import checked_classes_per_client, dealt_classes
from linfed.system.memory import check_fits

REDRAWS = 1000
"""Draws of a trial's proportions before it is an error that none serves."""


def classwise_split(
    labels: npt.ArrayLike,
    *,
    n_clients: int,
    classes_per_client: int | Sequence[int],
    trials: int = 1,
    seed: Seed = 0,
) -> Indices:
    """Return who gets which sample where each client has some of the classes only.

    Parameters
    ----------
    labels : array_like (samples,)
        Classes, whole numbers from 0; those that occur are dealt out.
    n_clients : int
        Clients n, at most as many as samples.
    classes_per_client : int or sequence of n ints
        Distinct classes that a client gets.
    trials : int
        Each has a split of its own.
    seed : int or tuple of int
        A trial's split is a function of (seed, trial).

    Returns
    -------
    ndarray of int (trials, samples)
        The client of each sample, -1 where nobody gets it.

    Raises
    ------
    ValueError
        If a client would get no sample.
    SizeError
        If the splits would not fit the memory.

    Notes
    -----
    In random order each client takes the classes that the fewest have so far, ties broken at random: the numbers of
    holders differ by at most one. The samples of a class are dealt at random among its holders, whose numbers of them
    differ by at most one. A class that nobody holds is nobody's.

    **Deviations**: the FLUTE paper (section 7.2) gives each client so many classes and does not say how they are drawn.

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
        luck = np.argsort(np.argsort(keys, axis=1), axis=1)  # a holder's place among those of the class
        dealt = np.where(holds, each[:, None] + (luck < left[:, None]), 0)
        if not dealt.sum(axis=0).all():
            raise ValueError(
                f"n_clients = {n}: in trial {trial} client {int(dealt.sum(axis=0).argmin())} would get no sample, as "
                "a class has fewer samples than holders: use fewer clients, or more classes_per_client"
            )
        return dealt

    return _split(classes, sizes, n, trials, seed, shares)


def dirichlet_split(
    labels: npt.ArrayLike,
    *,
    n_clients: int,
    concentration: float,
    trials: int = 1,
    seed: Seed = 0,
    min_samples: int = 2,
) -> Indices:
    """Return who gets which sample where clients have random shares of each class.

    Parameters
    ----------
    labels : array_like (samples,)
        Classes, whole numbers from 0.
    n_clients : int
        Clients n.
    concentration : float
        Of the Dirichlet law: small, and a class is one client's; large, and all have the same share.
    trials : int
        Each has a split of its own.
    seed : int or tuple of int
        A trial's split is a function of (seed, trial).
    min_samples : int
        Samples that each client has at least: a trial's shares are drawn until that is so.

    Returns
    -------
    ndarray of int (trials, samples)
        The client of each sample; every sample is somebody's.

    Raises
    ------
    ValueError
        If a thousand draws give some client fewer than `min_samples`.
    SizeError
        If the splits would not fit the memory.

    Notes
    -----
    For each class ``p ~ Dirichlet(concentration, ..., concentration)`` over the n clients, independently, as in
    Yurochkin et al. (2019); the samples of the class are dealt at random, cut at the cumulative shares rounded to whole
    samples. Hsu et al. (2019) have a Dirichlet law over the classes of each client instead, and clients of one size.

    **Deviations**: none from Yurochkin et al. but the names.

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
            f"n_clients = {n} with min_samples = {least} need {n * least} samples, and labels holds {len(classes)}: "
            "lower one of them"
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
            f"fewer than min_samples = {least} samples: raise concentration, or lower n_clients or min_samples"
        )

    return _split(classes, sizes, n, trials, seed, shares)


def held_out(clients: Indices, labels: Array, share: float, seed: Seed) -> tuple[list[Indices], list[Indices]]:
    """Return which samples train and which are held out, in random order, a list with an array for each trial.

    Of each client's samples of a class, ``floor(share * count + 1/2)`` are held out, but never all.
    """
    train, test = [], []
    classes = np.unique(labels, return_inverse=True)[1]
    for owner, rng in zip(clients, generators(seed, Stream.HELD_OUT, range(len(clients))), strict=True):
        order = rng.permutation(len(labels))
        order = order[owner[order] >= 0]
        place, counts = places(owner[order] * (classes.max() + 1) + classes[order])
        held = place < np.minimum(np.floor(share * counts + 0.5), counts - 1)
        train.append(order[~held])
        test.append(order[held])
    return train, test


def places(groups: Indices) -> tuple[Indices, Indices]:
    """Return each entry's place within its group, in the order in which they lie, and the size of its group."""
    order = np.argsort(groups, kind="stable")
    found, sizes = np.unique(groups, return_counts=True)
    starts, place = np.cumsum(sizes) - sizes, np.empty_like(groups)
    place[order] = np.arange(groups.size) - np.repeat(starts, sizes)
    return place, sizes[np.searchsorted(found, groups)]


def _classes(labels: npt.ArrayLike) -> tuple[Indices, Indices]:
    """Return the class of each sample, numbered among those that occur, and the size of each."""
    array = check_array("labels", labels, [("samples",)])
    check_whole("labels", array, 0.0, math.inf, "from 0")
    _, classes, sizes = np.unique(array, return_inverse=True, return_counts=True)
    return classes, sizes


def _split(
    classes: Indices, sizes: Indices, n: int, trials: int, seed: Seed, shares: Callable[[Generator, int], Indices]
) -> Indices:
    """Return the clients (trials, samples), dealt at random so that each gets ``shares(rng, trial)`` (c, n)."""
    trials, seed = check_integer("trials", trials), check_seed(seed)
    check_fits(float(trials) * len(classes), f"trials = {trials} of {len(classes)} samples", "use fewer trials")
    clients = np.empty((trials, len(classes)), dtype=np.intp)
    everybody = np.tile([*range(n), -1], len(sizes))
    for trial, rng in enumerate(generators(seed, Stream.SPLIT, range(trials))):
        dealt = shares(rng, trial)
        nobodys = sizes - dealt.sum(axis=1)
        order = rng.permutation(len(classes))
        order = order[np.argsort(classes[order], kind="stable")]
        clients[trial, order] = np.repeat(everybody, np.column_stack([dealt, nobodys]).ravel())
    return clients
