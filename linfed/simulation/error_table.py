"""Table of the errors of several methods on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping

from linfed.checks import check_instance, check_text
from linfed.simulation.results import Result
from linfed.tables.table import Table


def error_table(results: Mapping[str, Result]) -> Table:
    r"""Return a table with a row for each method: its errors on the clients' held-out samples.

    Parameters
    ----------
    results : mapping of str to Result
        Results by the names of the methods, on data with held-out samples.

    Returns
    -------
    Table
        The column ``method``, and columns with one value per trial in the labels' own units. In regression:

        - ``rmse``, ``median_rmse``, ``q90_rmse``, ``worst_rmse``: mean, median, 90 % quantile and largest value, over
          clients, of a client's root mean square error;
        - ``rows_rmse``: root mean square error over the rows of all clients;
        - ``r2``, ``rows_r2``: mean over clients of the share of a client's variance that is explained, and the share
          of the variance of all rows.

        In classification ``accuracy``, ``median_accuracy``, ``q10_accuracy``, ``worst_accuracy``, ``rows_accuracy``.
        Clients without held-out samples do not count, nor does a client with equal labels in ``r2``. NaN in a trial
        that diverged.

    Raises
    ------
    TypeError
        If `results` does not map names to results.
    ValueError
        If a run has no held-out samples, or used engine "chain".

    Notes
    -----
    The trials of `GivenSamples.from_table` are random divisions of the same rows. Intervals over these trials, as of
    `Table.summarize`, show how much the error depends on the division. They do not cover other rows or clients.

    Examples
    --------
    >>> import linfed as lf
    >>> import numpy as np
    >>> rng, site = np.random.default_rng(0), np.repeat(["a", "b", "c"], 20)
    >>> X = rng.normal(size=(60, 4))
    >>> data = lf.GivenSamples.from_table(X, 1000 + 50 * X[:, 0] + 10 * rng.normal(size=60), site, trials=8)
    >>> methods = {"local": lf.LocalOnly(ridge=0.1), "pooled": lf.PooledLeastSquares()}
    >>> table = lf.error_table({name: lf.simulate(one, data=data, n_rounds=1) for name, one in methods.items()})
    >>> print(*table.summarize("rmse", rows="method", statistic="mean").to_markdown().splitlines()[:4], sep="\n")
    | method | rmse |
    | --- | --- |
    | local | 14.1 [11.8, 16.4] |
    | pooled | 11.1 [9.2, 13.1] |
    """
    check_instance("results", results, Mapping, "a mapping from names of methods to results")
    rows = []
    for name, result in results.items():
        check_instance(f"results[{name!r}]", result, Result, "a result of lf.simulate")
        errors = result.client_errors()
        rows.append({"method": check_text("results, a name", name), **errors.over_clients()})
    return Table(rows)
