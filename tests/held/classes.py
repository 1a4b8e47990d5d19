"""The numbers of the page on classes."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from scipy import stats

from experiments._classes import FEDAVG, METHODS, told

from . import CLASSES, Results, held

DIGITS, MIXTURE = "flute-digits", "flute-classification"


def cell(values: np.ndarray) -> str:
    """Return a mean over trials with its standard error; how many are left where some diverged."""
    known = values[~np.isnan(values)]
    left = f" ({len(known)} of {len(values)})" if len(known) < len(values) else ""
    return f"{known.mean():.1f} ± {stats.sem(known):.1f}{left}"


def lines(results: Results, name: str, rank: int) -> Iterator[str]:
    """Yield the lines of a table like the paper's Table 1, at one rank."""
    runs = results.table(f"{name}-runs").where(rank=rank)
    partitions = runs.values("partition")
    yield f"| k = {rank} | " + " | ".join(partitions) + " |"
    for method in METHODS:
        found = runs.where(method=method)
        yield f"| {told(method)} | " + " | ".join(cell(row["final_accuracy"]) for row in found.rows) + " |"
    averaged = runs.where(method=FEDAVG)
    yield "| FedAvg, own classes | " + " | ".join(cell(row["own_classes"]) for row in averaged.rows) + " |"
    if name == MIXTURE:
        yield "| the best classifier | " + " | ".join(cell(row["bayes"]) for row in averaged.rows) + " |"


def counted(results: Results, name: str, text: str, where: str = "") -> str:
    """Return the verdicts of a statement over its settings, in words."""
    found = Counter(one.verdict for one in results.claims(name, text, where))
    return ", ".join(f"{verdict} {count}" for verdict, count in found.most_common())


@held(CLASSES, DIGITS)
def digits(results: Results):
    for rank in results.table(f"{DIGITS}-runs").values("rank"):
        yield from lines(results, DIGITS, rank)


@held(CLASSES, MIXTURE)
def mixture(results: Results):
    for rank in results.table(f"{MIXTURE}-runs").values("rank"):
        yield from lines(results, MIXTURE, rank)
