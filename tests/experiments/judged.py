"""Tables of experiments to judge: the committed ones, cells that are computed here, and tables that are spoiled."""

import numpy as np

import linfed as lf
from linfed.reproduction.experiments import cells_of, load
from linfed.reproduction.record import ResultsFolder
from tests.helpers import ROOT

FOLDER = ROOT / "experiments"
COMMITTED = ResultsFolder(ROOT / "results" / "committed")


def module(name):
    """Return the module of an experiment."""
    return load(name, FOLDER)


def committed(name, key):
    """Return a committed table; it lacks columns that no figure needs."""
    return lf.Table.load(COMMITTED.table(name, key))


def computed(name, key, /, **fields):
    """Return the table of those quick cells of an experiment that have these values of their fields."""
    cells = cells_of(module(name), quick=True)[key]
    cells = [cell for cell in cells if all(getattr(cell, field) == value for field, value in fields.items())]
    return lf.Table.of(cells, [cell.run() for cell in cells])


def verdicts(claims):
    """Return the verdicts of findings by sentence and setting."""
    return {(claim.claim, claim.setting): claim.verdict for claim in claims}


def exchanged(table, one, other):
    """Return a table in which two methods have each other's name."""
    names = {one: other, other: one}
    return table.assign(method=lambda row: names.get(row["method"], row["method"]))


def spoiled(table, column, value, **where):
    """Return a table whose first row of the named ones begins with another value."""
    rows = [dict(row) for row in table.rows]
    row = next(row for row in rows if all(row[name] == wanted for name, wanted in where.items()))
    values = np.array(getattr(row[column], "values", row[column]))
    values.flat[0] = value
    labeled = isinstance(row[column], lf.LabeledArray)
    row[column] = lf.LabeledArray(values, **row[column].axes) if labeled else values
    return lf.Table(rows)


def searched(crossing, **columns):
    """Return the row of a search for the smallest m, whose crossing varies by 2 % over trials."""
    replicates = crossing * (1 + 0.02 * np.random.default_rng(0).standard_normal(400))
    found = {
        "path": "data.n_samples",
        "n_samples": np.ceil(crossing),
        "censored": "",
        "crossing": crossing,
        "low": crossing - 1,
        "high": crossing + 1,
    }
    sizes = {"panel": "n", "n_clients": 50, "dim": 40, "rank": 2, "noise_std": 0.0, "n_rounds": 40, "delta": 0.5}
    return found | {"replicates": lf.LabeledArray(replicates, replicate=range(400))} | sizes | columns
