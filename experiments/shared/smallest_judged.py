"""Statistics of searches for the smallest m, or the fewest rounds, divided by predictions and by each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import linfed as lf
from linfed.statistics.crossings import replicates_interval
from linfed.statistics.findings import OWN_PREDICTION, OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import Measured, largest_of

from .smallest import THEOREM

MARGIN = f"the margin is {OWN_THRESHOLD}"
MANY_CLIENTS = 10
"""Clients per dimension from which log n dominates log(n) + d/n."""


def over(row: dict[str, Any], law: float, *, confidence: float = 0.95) -> Measured:
    """Return a crossing divided by a predicted one, with its interval over trials."""
    low, high = replicates_interval(row["replicates"].values, confidence)
    return row["crossing"] / law, low / law, high / law


def ratio_of(first: dict[str, Any], second: dict[str, Any], *, confidence: float = 0.95) -> Measured:
    """Return the ratio of two smallest m with its interval over trials, which both share."""
    ratios = first["replicates"].values / second["replicates"].values
    return (first["crossing"] / second["crossing"], *replicates_interval(ratios, confidence))


def worst(ratio: Callable[..., Measured], samples: list[tuple[dict[str, Any], Any]], **fields: Any) -> Finding:
    """Return the finding for the largest ratio over settings; the first part of a sample is the setting's row."""
    estimates = [ratio(*sample)[0] for sample in samples]
    row, lowest = samples[int(np.argmax(estimates))][0], min(estimates)
    sizes = f"n = {row['n_clients']:,}, d = {row['dim']}, k = {row['rank']}"
    fields |= {"setting": f"{len(samples)} settings", "detail": f"{sizes}; smallest ratio {lowest:.2g}"}
    return judge(largest_of(ratio, samples), **fields)


def factor_off(row: dict[str, Any], law: float, *, confidence: float = 0.95) -> Measured:
    """Return the factor between a crossing and a predicted one, with its interval over trials."""
    logs = np.log(over(row, law, confidence=confidence))
    signed = -logs if logs[0] < 0 else logs
    factor, low, high = np.exp([signed[0], max(0.0, signed[1:].min()), np.abs(signed[1:]).max()])
    return float(factor), float(low), float(high)


def lawful(row: dict[str, Any], law: str = "predicted_crossing") -> bool:
    """Return whether there is a prediction, at an m at which heads have the moments that it needs."""
    return row[law] > (row["rank"] + 4 if row["path"] != "round" else 0)


def chosen(table: lf.Table, wanted: Callable[[dict[str, Any]], bool]) -> lf.Table:
    """Return the rows for which a condition holds."""
    return lf.Table([row for row in table.rows if wanted(row)])


def covered(row: dict[str, Any]) -> bool:
    """Return whether Theorem 1 applies to a setting: its step size, no noise, and eta at most 1/4."""
    return bool(row["step"] == THEOREM and row["noise_std"] == 0 and row["eta"] <= 0.25)


def many_clients(table: lf.Table) -> lf.Table:
    """Return the settings with many clients at the theorem's step size, or all settings without any such."""
    table = table.select(panel=["base", "n"], step=THEOREM)
    return chosen(table, lambda row: row["n_clients"] >= MANY_CLIENTS * row["dim"]) or table


def clients_of(table: lf.Table) -> str:
    """Return the numbers of clients in a table, as text."""
    return f"n = {', '.join(f'{n:,}' for n in sorted(table['n_clients']))}"


def samples_of(table: lf.Table) -> str:
    """Return the number of samples at which the fewest rounds are searched for, as text."""
    return f"m = {table.select(panel='base')['start']:,}"


def judge_predicted(table: lf.Table, column: str, *, text: str, most: float) -> Finding:
    """Judge the factor by which a prediction is off in the worst setting of a table."""
    rows = [row for row in table.rows if not row["censored"] and lawful(row, column)]
    samples = [(row, row[column]) for row in rows]
    off = np.array([abs(np.log(row["crossing"] / law)) for row, law in samples])
    worst, typical = int(off.argmax()), np.exp(np.median(off))
    condition = f", {samples_of(table)}" if rows[worst]["path"] == "round" else ", predicted m >= k + 4"
    return judge(
        largest_of(factor_off, samples),
        claim=text,
        claimed_high=most,
        source=OWN_PREDICTION.adding(f"the factor is {OWN_THRESHOLD}"),
        statistic="factor between measured and predicted, worst setting",
        setting=f"{len(rows)} settings{condition}",
        detail=f"{rows[worst]['panel']} at {rows[worst]['crossing']:.4g}; the median factor is {typical:.3f}",
    )
