"""Samples of classes with unequal counts, padded into batches as the package lays them, and the answers of a start."""

from dataclasses import dataclass

import numpy as np

from linfed.data.classes import ClassBatch, find_classes, with_ones
from linfed.numerics.streams import Stream, TrialRandom, generators
from tests.helpers import basis

C, D, K, TRIALS = 4, 5, 2, 2
COUNTS = {"equal": [6] * 5, "unequal": [3, 9, 1, 6, 7], "unequal, above 1": [3, 9, 2, 6, 7]}
CLASSES = [[0, 1], [0, 1, 2], [2], [1, 2], [0, 2]]
"""Of each client: the last class is nobody's, and client 2 has but one."""


@dataclass
class Samples:
    """Samples X[t][i] (m_i, d) and labels[t][i] (m_i,) of every trial and client."""

    X: list
    labels: list
    classes: int = C

    @property
    def counts(self):
        return np.array([[float(len(y)) for y in each] for each in self.labels])

    @property
    def m(self):
        return int(self.counts.max())

    @property
    def all_clients(self):
        return np.broadcast_to(np.arange(self.counts.shape[1]), self.counts.shape)

    def of(self, t, active):
        """Return the samples of some clients, as the loops take them."""
        return [self.X[t][i] for i in active], [self.labels[t][i] for i in active]

    def batch(self, active=None, number=0):
        """Return the batch of the participants (T, p), rows beyond a client's count zero."""
        active = self.all_clients if active is None else active
        trials, p = active.shape
        X, labels = np.zeros((trials, p, self.m, self.X[0][0].shape[1])), np.zeros((trials, p, self.m))
        for t in range(trials):
            for place, i in enumerate(active[t]):
                X[t, place, : len(self.labels[t][i])] = self.X[t][i]
                labels[t, place, : len(self.labels[t][i])] = self.labels[t][i]
        counts = np.take_along_axis(self.counts, active, axis=1)
        holds = find_classes(labels, counts, self.classes)
        whose = {"active": active, "counts": counts, "round_number": number, "n_clients": self.counts.shape[1]}
        return ClassBatch(with_ones(X, counts), labels, holds=holds, **whose)

    def own(self, t, active):
        """Return the classes of some clients."""
        return [sorted({int(label) for label in self.labels[t][i]}) for i in active]


def draw(counts="unequal", seed=0, d=D):
    """Return samples of the classes above, one of each first."""
    rng = np.random.default_rng(seed)
    X, labels = [], []
    for _ in range(TRIALS):
        X.append([rng.standard_normal((m, d)) for m in COUNTS[counts]])
        labels.append(
            [np.resize(rng.permutation(own), m) for own, m in zip(CLASSES, COUNTS[counts], strict=True)],
        )
    return Samples(X, labels)


def slope(function, at, step=1e-6):
    """Return the central differences of a function of an array."""
    out = np.zeros(at.shape)
    for index in np.ndindex(at.shape):
        moved = np.zeros(at.shape)
        moved[index] = step
        out[index] = (function(at + moved) - function(at - moved)) / (2 * step)
    return out


def random():
    """Return an algorithm's random numbers from their beginning."""
    return TrialRandom(generators(0, Stream.ALGORITHM, range(TRIALS)))


class Begin:
    """What an algorithm may know of these samples before the first round."""

    def __init__(self, samples):
        self.trials, self.n_clients, self.dim = len(samples.X), samples.counts.shape[1], samples.X[0][0].shape[1]
        self.counts, self.classes, self.rng = samples.counts, samples.classes, random()

    def zeros(self, clients, columns):
        return np.zeros((self.trials, clients, self.classes, columns + 1))

    def representation(self, init, rank):
        return np.array([basis(self.dim, rank, seed=t) for t in range(self.trials)])
