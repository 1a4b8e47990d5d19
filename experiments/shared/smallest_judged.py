"""Claims on searches for the smallest m, or the fewest rounds: their size divided by predictions and by each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.claims.rows import Where
from linfed.statistics.crossings import replicates_interval
from linfed.statistics.intervals import Measured, as_factor, largest_of

from .smallest import THEOREM

TOLERANCE = f"the tolerance is {c.OWN_THRESHOLD}"
FACTOR = c.OWN_PREDICTION.adding(f"the factor is {c.OWN_THRESHOLD}")
MANY_CLIENTS = 10
"""Clients per dimension from which log n dominates log(n) + d/n."""
SETTING = ("panel", "n_clients", "dim", "rank")
"""Columns that two methods share in one setting."""

Samples: TypeAlias = Callable[[lf.Table], list[tuple[lf.Table, ...]]]
"""Function of a table that returns the arguments of a ratio for each setting."""


# --- statistics ----------------------------------------------------------------------------------------------


def over(row: lf.Table, law: float, *, confidence: float = 0.95) -> Measured:
    """Return a crossing divided by a predicted one, with its interval over trials."""
    low, high = replicates_interval(row["replicates"], confidence)
    return row["crossing"] / law, low / law, high / law


def ratio_of(first: lf.Table, second: lf.Table, *, confidence: float = 0.95) -> Measured:
    """Return the ratio of two smallest m with its interval over trials, which both share."""
    ratios = first["replicates"] / second["replicates"]
    return (first["crossing"] / second["crossing"], *replicates_interval(ratios, confidence))


def worst_ratio(ratio: Callable[..., Measured], samples: Samples, words: str, high: float) -> c.Statistic:
    """Return the largest ratio over settings, e.g. `ratio_of` over `both`; a sample begins with the setting's row."""

    def measure(part: lf.Table) -> c.Measurement | None:
        found = samples(part)
        if not found:
            return None
        estimates = [ratio(*sample)[0] for sample in found]
        row = found[int(np.argmax(estimates))][0]
        sizes = f"n = {row['n_clients']:,}, d = {row['dim']}, k = {row['rank']}"
        return c.Measurement(largest_of(ratio, found), f"{sizes}; smallest ratio {min(estimates):.2g}")

    return c.measured(words, measure, c.at_most(high))


def predicted(law: str, most: float) -> c.Statistic:
    """Return the factor between measured and predicted sizes in the worst setting.

    Parameters
    ----------
    law : str
        Column with the predictions.
    most : float
        Largest factor that a claim allows.
    """

    def factor(row: lf.Table, *, confidence: float = 0.95) -> Measured:
        return as_factor(over(row, row[law], confidence=confidence))

    def measure(part: lf.Table) -> c.Measurement:
        factors = [factor(row)[0] for row in part]
        row = part.rows[int(np.argmax(factors))]
        typical = np.exp(np.median(np.log(factors)))
        detail = f"{row['panel']} at {row['crossing']:.4g}; the median factor is {typical:.3f}"
        return c.Measurement(largest_of(factor, [(one,) for one in part]), detail)

    return c.measured("factor between measured and predicted, worst setting", measure, c.at_most(most))


def both(first: str, second: str) -> Samples:
    """Return a function that gives the rows of two methods in the same settings, where both sizes are known."""

    def samples(table: lf.Table) -> list[tuple[lf.Table, ...]]:
        return [
            (one, other)
            for one in table.select(method=first)
            for other in table.select(method=second, **{name: one[name] for name in SETTING})
            if not (one["censored"] or other["censored"])
        ]

    return samples


def number_of(samples: Samples) -> Callable[[lf.Table], str]:
    """Return the setting of a claim: the number of samples."""
    return lambda table: f"{len(samples(table))} settings"


# --- rows ----------------------------------------------------------------------------------------------------


def lawful(row: lf.Table, law: str = "predicted_crossing") -> bool:
    """Return whether there is a prediction, at an m at which heads have the moments that it needs."""
    return bool(row[law] > (row["rank"] + 4 if row["path"] != "round" else 0))


def has_prediction(law: str) -> Where:
    """Return the choice of the searches that found the size, for which a column has a prediction."""
    return c.only(lambda row: not row["censored"] and lawful(row, law))


def covered(row: lf.Table | dict[str, Any]) -> bool:
    """Return whether Theorem 1 applies to a setting: its step size, no noise, and eta at most 1/4."""
    return bool(row["step"] == THEOREM and row["noise_std"] == 0 and row["eta"] <= 0.25)


def many_clients(table: lf.Table) -> lf.Table:
    """Return the settings with many clients at the theorem's step size, or all settings without any such."""
    table = table.select(panel=["base", "n"], step=THEOREM)
    return c.only(lambda row: row["n_clients"] >= MANY_CLIENTS * row["dim"])(table) or table


def clients_of(table: lf.Table) -> str:
    """Return the numbers of clients in a table, as text."""
    return f"n = {', '.join(f'{n:,}' for n in sorted(table.unique('n_clients')))}"
