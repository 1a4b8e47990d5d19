"""First and second moments of client sampling: p of n clients, drawn uniformly without replacement."""

from __future__ import annotations

import itertools
import math

import numpy as np

from linfed._types import Array, Indices

MOST_SETS = 200_000
"""Largest number of participant sets that are enumerated for unequal weights."""

Moments = tuple[Array, Array]
"""Means (s,) and second moments (s, s) of s random scalars."""


def set_share(n: int, p: int) -> float:
    """Return the variance of a mean over p of n clients without replacement, divided by the variance over clients."""
    return (n - p) / (p * (n - 1)) if p < n else 0.0


def drawn_moments(participants: int, clusters: Indices, weights: Array | None) -> Moments:
    """Return the moments of the ``3 n + C`` scalars through which a round depends on the set I of participants.

    Parameters
    ----------
    participants : int
        Number of participants p, from 1 to n.
    clusters : ndarray of int (n,)
        Cluster of each client, numbered from 0 to C - 1.
    weights : ndarray (n,), optional
        Weights of the clients; equal by default.

    Returns
    -------
    mean : ndarray (3 n + C,)
    second : ndarray (3 n + C, 3 n + C)
        Moments of ``u_i = w_i e_i / sum_{j in I} w_j``, ``e_i = 1{i in I}`` and ``v_i = e_i / k_{c(i)}`` for i = 1, ..,
        n, where k_c is the number of participants in cluster c. Then ``o_c = 1{k_c = 0}`` for each cluster.

    Raises
    ------
    ValueError
        If weights are unequal and there are too many sets to enumerate.

    Notes
    -----
    Equal weights have a closed form: given the counts k, the participants of a cluster are a simple random sample of
    the cluster, and the counts are hypergeometric. For unequal weights all sets are enumerated.
    """
    if weights is None or np.ptp(weights) == 0:
        return _equal(participants, clusters)
    return _enumerated(participants, clusters, weights)


def _equal(p: int, clusters: Indices) -> Moments:
    n, n_c = len(clusters), np.bincount(clusters)
    C, sizes = len(n_c), n_c.astype(float)
    total = math.comb(n, p)
    none = np.array([math.comb(n - g, p) / total for g in n_c.tolist()])  # P(k_c = 0)
    both = np.array(
        [[math.comb(n - g - h, p) / total if g + h <= n else 0.0 for h in n_c.tolist()] for g in n_c.tolist()]
    )
    inverse = np.array([_mean_inverse(n, p, g) for g in n_c.tolist()])  # E[1/k_c; k_c > 0]
    some, pair = 1.0 - none, p * (p - 1) / (n * (n - 1)) if n > 1 else 0.0
    # E[k_c' 1{k_c = 0}]: all p participants are then among the n - n_c others
    left = none[:, None] * p * sizes / np.maximum(n - sizes, 1.0)[:, None]
    outer, inside = np.outer(sizes, sizes), np.maximum(sizes * (sizes - 1.0), 1.0)
    # for two clients of clusters c and c', for two clients of one cluster, and for a client with itself
    blocks = {
        "ee": (np.full((C, C), pair), np.full(C, pair), np.full(C, p / n)),
        "ve": ((p * sizes / n - left) / outer, (p * sizes / n - some) / inside, some / sizes),
        "vv": ((1.0 - none[:, None] - none + both) / outer, (some - inverse) / inside, inverse / sizes),
    }
    found = {}
    same = clusters[:, None] == clusters
    for name, (apart, together, within) in blocks.items():
        found[name] = np.where(same, together[clusters][:, None], apart[np.ix_(clusters, clusters)])
        np.fill_diagonal(found[name], within[clusters])
    other = np.arange(C)[:, None] != clusters
    oe = np.where(other, (left / sizes)[:, clusters], 0.0)
    ov = np.where(other, ((none[:, None] - both) / sizes)[:, clusters], 0.0)
    oo = np.where(np.eye(C, dtype=bool), np.diag(none), both)
    ee, ve, vv = found["ee"], found["ve"], found["vv"]
    second = np.block(
        [
            [ee / p**2, ee / p, ve.T / p, oe.T / p],
            [ee / p, ee, ve.T, oe.T],
            [ve / p, ve, vv, ov.T],
            [oe / p, oe, ov, oo],
        ]
    )
    return np.concatenate([np.full(n, 1.0 / n), np.full(n, p / n), (some / sizes)[clusters], none]), second


def _mean_inverse(n: int, p: int, size: int) -> float:
    """Return E[1/k; k > 0], where k is the number of clients of a cluster among the p participants."""
    counts = range(max(1, p - n + size), min(p, size) + 1)
    return sum(math.comb(size, k) * math.comb(n - size, p - k) / (k * math.comb(n, p)) for k in counts)


def _enumerated(p: int, clusters: Indices, weights: Array) -> Moments:
    n, C = len(clusters), int(clusters.max()) + 1
    if math.comb(n, p) > MOST_SETS:
        raise ValueError(
            f"unequal weights with participants = {p} of {n} clients have {math.comb(n, p)} participant sets, but at "
            f"most {MOST_SETS} are enumerated; the mean's stability edge is only an upper bound"
        )
    sets = np.array(list(itertools.combinations(range(n), p)))
    taken = np.zeros((len(sets), n))
    np.put_along_axis(taken, sets, 1.0, axis=1)
    counts = taken @ np.eye(C)[clusters]
    cluster_counts = counts[:, clusters]
    rows = np.concatenate(
        [
            taken * weights / (taken @ weights)[:, None],
            taken,
            taken / np.maximum(cluster_counts, 1.0),
            counts == 0,
        ],
        axis=1,
    )
    return rows.mean(axis=0), rows.T @ rows / len(rows)
