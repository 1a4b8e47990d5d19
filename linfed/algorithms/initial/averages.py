"""Truncated local averages: a spectral initialisation from the vectors ``X_i'y_i/m``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linfed._types import Array
from linfed._values import check_fields, positive
from linfed.algorithms.initial.base import Initial, InitialStart
from linfed.checks import is_real
from linfed.numerics.linalg import top_eigenvectors


@dataclass(frozen=True, kw_only=True)
class TruncatedAverages(Initial):
    """Initial B from local averages: top-k left singular vectors of ``[X_i'y_i/m]_i``, without the largest labels.

    Parameters
    ----------
    threshold : float
        C > 0: a sample counts only if ``y^2 <= C mean(y^2)``, with the mean over all clients' samples; ``np.inf`` for
        all samples.

    Raises
    ------
    ValueError
        If `threshold` is not positive.
    EngineError
        In `simulate`, for classification, or if no samples are drawn (see `FixedSamples`).

    Notes
    -----
    The sum of a client is divided by its number of samples m_i, including those that do not count. With fresh data it
    uses an additional batch, drawn from separate streams; with fixed or given data it uses the data set. Cost
    ``O(n m d + n d^2 + d^3)``.

    References
    ----------
    Nayer and Vaswani 2023, "Fast and sample-efficient federated low rank matrix recovery from column-wise linear and
    quadratic projections", Algorithm 1, whose C is ``9 kappa^2 mu^2``.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=200, dim=10, rank=2)
    >>> algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.TruncatedAverages())
    >>> result = lf.simulate(algorithm, problem, data=lf.FreshSamples(n_samples=50), n_rounds=0)
    >>> bool(result.metrics["subspace_distance"][0, 0] < 0.3)
    True
    """

    threshold: float = 9.0

    def __post_init__(self) -> None:
        infinite = is_real(self.threshold) and self.threshold == np.inf
        check_fields(self, threshold=(lambda _, value: float(value)) if infinite else positive)

    def floats_per_trial(self, *, rank: int, n_clients: int, dim: int) -> int:
        """Return the size of the Gram matrix and its decomposition."""
        return 3 * dim**2

    def resolve(self, start: InitialStart, rank: int) -> Array:
        """Return the top-k left singular vectors, in two passes over blocks of clients."""
        squares, samples = np.zeros(start.trials), np.zeros(start.trials)
        for trial, _, y, counts in start.rows(start.n_clients):
            squares[trial] += np.square(y).sum()
            samples[trial] += counts.sum()
        largest = np.sqrt(self.threshold * squares / samples)
        gram = np.zeros((start.trials, start.dim, start.dim))
        for trial, X, y, counts in start.rows(start.n_clients):
            kept = np.where(np.abs(y) <= largest[trial], y, 0.0) / counts[:, None]
            averages = (kept[:, None, :] @ X)[:, 0]
            gram[trial] += averages.T @ averages
        return top_eigenvectors(gram, rank)
