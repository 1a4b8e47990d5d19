"""Exceptions and warnings."""

from __future__ import annotations

import warnings
from typing import Any


class SizeError(MemoryError):
    """Raised if arrays would not fit in the allowed memory; the message gives the estimate and a way out.

    Examples
    --------
    >>> import linfed as lf
    >>> algorithm, problem = lf.FedRep(rank=2, step_size=0.5), lf.SharedRepresentation(n_clients=9, dim=5, rank=2)
    >>> try:
    ...     lf.simulate(algorithm, problem, data=lf.FreshSamples(10), n_rounds=5, memory_budget=100)
    ... except lf.SizeError:
    ...     print("needs more than 100 bytes")
    needs more than 100 bytes
    """


class EngineError(ValueError):
    """Raised if the chosen engine does not support a run; the message names the engines that do.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=9, dim=5, rank=2)
    >>> try:
    ...     lf.simulate(lf.FedAvg(step_size=0.1), problem, data=lf.FreshSamples(10), n_rounds=5, engine="chain")
    ... except lf.EngineError:
    ...     print("use another engine")
    use another engine
    """


class NoPredictionError(ValueError):
    """Raised if no prediction is available for a run; the message gives the assumption that fails.

    Examples
    --------
    >>> import linfed as lf
    >>> problem = lf.SharedRepresentation(n_clients=9, dim=5, rank=2)
    >>> try:
    ...     lf.predict(lf.FedRoD(rank=2, step_size=0.1), problem, data=lf.FreshSamples(10), n_rounds=5)
    ... except lf.NoPredictionError:
    ...     print("no prediction")
    no prediction
    """


class UsageError(ValueError):
    """Raised for a mistake on the command line; the message gives the allowed values."""


class WorkerError(RuntimeError):
    """Raised if a worker process died; the message gives the likely cause."""


class SweepError(RuntimeError):
    """Raised after a sweep in which some cells failed.

    Attributes
    ----------
    failures : sequence
        The failed cells and their errors.
    table : Table or None
        The rows of all other cells.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import linfed as lf
    >>> @dataclass(frozen=True)
    ... class Inverse:
    ...     n: int
    ...
    ...     def run(self):
    ...         return {"inverse": 1 / self.n}
    >>> try:
    ...     lf.sweep([Inverse(0), Inverse(2)])
    ... except lf.SweepError as error:
    ...     print(len(error.failures), "failed;", error.table["inverse"])
    1 failed; 0.5
    """

    def __init__(self, message: str, failures: Any = (), table: Any = None) -> None:
        super().__init__(message)
        self.failures = failures
        self.table = table


class GridEdgeWarning(UserWarning):
    """Warns that the best value of a hyper-parameter is at the edge of its grid: the optimum may lie outside.

    Examples
    --------
    >>> import warnings
    >>> import linfed as lf
    >>> problem, fedrep = lf.SharedRepresentation(n_clients=30, dim=10, rank=2), lf.FedRep(rank=2, step_size=1.0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", lf.GridEdgeWarning)
    ...     tuning = lf.tune(fedrep, problem, grid={"step_size": (0.1, 0.5)}, data=lf.FreshSamples(10), n_rounds=9)
    >>> len(caught), tuning.algorithm.step_size
    (1, 0.5)
    """


class ValidationWarning(UserWarning):
    """Warns that a hyper-parameter is tuned on the test samples: the test loss of the chosen setting is too small.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import linfed as lf
    >>> X, y = np.random.default_rng(0).normal(size=(2, 5, 8, 3)), np.ones((2, 5, 8))
    >>> data = lf.GivenSamples(X[0], y[0], test=(X[1], y[1]))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     tuning = lf.tune(lf.LocalOnly(), grid={"ridge": (0.1, 1.0)}, data=data, n_rounds=1, metric="test_loss")
    >>> caught[0].category.__name__
    'ValidationWarning'
    """


class DivergenceWarning(UserWarning):
    """Warns that some trials diverged: their metrics are NaN, and pandas leaves NaN out of averages.

    Examples
    --------
    >>> import warnings
    >>> import linfed as lf
    >>> run = lf.Run(algorithm=lf.FedAvg(step_size=50.0), data=lf.FreshSamples(10), n_rounds=200,
    ...              problem=lf.SharedRepresentation(n_clients=10, dim=5, rank=2))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", lf.DivergenceWarning)
    ...     frame = lf.sweep([run]).to_pandas("round")
    >>> set(frame["status"].dropna())
    {'DIVERGED'}
    """


def diverged_warning(found: str) -> DivergenceWarning:
    """Return the warning about diverged trials; `found` says how many trials diverged."""
    return DivergenceWarning(f"{found}: their metrics are NaN, and averages in pandas and xarray skip NaN")


def warn_diverged(found: str, stacklevel: int) -> None:
    """Issue the warning about diverged trials; `stacklevel` is as in `warnings.warn`."""
    warnings.warn(diverged_warning(found), stacklevel=stacklevel + 1)


class StoreWarning(UserWarning):
    """Warns of a file in a store that is damaged or foreign, or that other code has computed.

    Examples
    --------
    >>> import tempfile, warnings
    >>> from pathlib import Path
    >>> import linfed as lf
    >>> run = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.5), data=lf.FreshSamples(10), n_rounds=3,
    ...              problem=lf.SharedRepresentation(n_clients=10, dim=5, rank=2))
    >>> folder = tempfile.mkdtemp()
    >>> table = lf.sweep([run], store=folder)
    >>> for file in Path(folder).glob("*.cell"):
    ...     size = file.write_bytes(b"damaged")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", lf.StoreWarning)
    ...     table = lf.sweep([run], store=folder)
    >>> len(caught)
    1
    """


class WriteError(OSError):
    """Raised if a file could not be written; the previous version is unchanged."""
