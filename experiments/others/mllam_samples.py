"""Alternating minimisation: the smallest number of samples per client, against the dimension and the clients.

The smallest m with which half of the runs of `linfed.AltMin` reach distance 0.01 in 40 rounds on fixed samples without
noise, found by `lf.find_smallest`. Runs start from the method of moments. First n = 4 d and d grows, then n grows at
d = 40. The competitors are FedRep with four times the rounds, and the count of equations and unknowns.

The source (Thekumparampil et al., "MLLAM") states for a constant k that order log d samples per task suffice. The
number that it requires grows like the logarithm of the number of tasks. Both are sufficient conditions, and are judged
from above: a smaller sufficient number does not refute them. Whether m has to grow at all is our own question.

**Deviations**: the sizes are ours. The source draws other samples in each half of a round. Heads have length sqrt(k)
and ``(1/n) sum_i w_i w_i' = I``. We know the source's results from its abstract.

Figures
-------
"" : Smallest m with which half of the runs reach distance 0.01, against the dimension d with n = 4 d, and against the
    clients n. Bars: 95 % intervals; open triangles: bounds. Dotted: m with equal numbers of equations and unknowns.

References: Thekumparampil, Jain, Netrapalli and Oh 2021, "Sample efficient linear meta-learning by alternating
minimization".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import linfed as lf
from linfed.cells.smallest_size import SmallestSize
from linfed.figures.style import KINDS, LOOKS, PAGE_WIDTH, same_scale
from linfed.plotting.panels import Figures, drawn_from
from linfed.statistics import judge_exponent
from linfed.statistics.findings import OWN_THRESHOLD, Finding

from ..shared.smallest import BEST, FIXED, THEOREM, Need
from ..shared.smallest_drawn import draw_measured, label_axes, legend_entries
from ..shared.smallest_judged import MARGIN, ratio_of, worst

SUMMARY = "alternating minimisation (MLLAM): the smallest m against d and n, with FedRep's"
PICTURES = {"": 1400}
REDUCED = {"samples": {"without": ("margin", "reached", "count")}}

ALTMIN, FEDREP = "AltMin", "FedRep"
COLOURS = {ALTMIN: KINDS[1][0], FEDREP: LOOKS["FedRep"][0]}
PANELS = {"d": ("dim", "dimension d, with n = 4 d"), "n": ("n_clients", "clients n")}
PER_DIM = 4
"""Clients per dimension where the dimension grows."""
SOURCE = "Thekumparampil, Jain, Netrapalli and Oh 2021, abstract: {}; " + MARGIN
SUFFICE = {
    "d": SOURCE.format("order log d samples per task suffice for a constant k"),
    "n": SOURCE.format("the samples per task grow like the logarithm of the number of tasks"),
}


@dataclass(frozen=True, kw_only=True)
class Search(Need):
    """Search for the smallest m of a method from the method of moments, on fixed samples."""

    panel: str = lf.choice(PANELS, "d", label=True)
    asks: str = lf.choice(("data.n_samples",), "data.n_samples")
    method: str = lf.choice((ALTMIN, FEDREP), ALTMIN)
    samples: str = lf.choice((FIXED,), FIXED)
    step: str = lf.choice((THEOREM, BEST), BEST)
    n_clients: int = 40
    dim: int = 40
    rank: int = 2
    start: int = 8
    trials: int = 24
    resolution: float = 0.1

    @property
    def search(self) -> SmallestSize:
        """The search for the smallest m."""
        search = super().search
        if self.method == FEDREP:
            algorithm, rounds, rule = replace(search.base.algorithm, init="moments"), 4 * self.rounds, search.step_size
        else:
            algorithm, rounds, rule = lf.AltMin(rank=self.rank), self.rounds, None
        return replace(search, base=replace(search.base, algorithm=algorithm, rounds=rounds), step_size=rule)

    @property
    def predictions(self) -> dict[str, Any]:
        """Columns besides the search: the m with equal numbers of equations and unknowns."""
        counted = self.rank + (self.dim - self.rank) * self.rank / self.n_clients
        return super().predictions | {"counted": counted}


def cells(quick: bool) -> dict[str, list[Search]]:
    """Return the searches along both panels; quick: few and small sizes, AltMin only."""
    base = Search()
    dims, clients, methods = (10, 20, 40, 80), (20, 40, 80, 160, 320, 640, 1280), (ALTMIN, FEDREP)
    if quick:
        base = replace(base, dim=16, trials=8, resolution=0.3, rounds=20)
        dims, clients, methods = (8, 16), (16, 64), (ALTMIN,)
    along_d = [replace(base, panel="d", dim=d, n_clients=PER_DIM * d) for d in dims]
    along_n = [replace(base, panel="n", n_clients=n) for n in clients]
    return {"samples": [replace(one, method=name) for one in along_d + along_n for name in methods]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest m against d and against n."""
    import matplotlib.pyplot as plt

    table = tables["samples"]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(PAGE_WIDTH, 2.8), layout="constrained", sharey=True)
    for ax, (panel, (field, text)) in zip(axes, PANELS.items(), strict=True):
        for name, part in table.select(panel=panel).groupby("method"):
            rows = sorted(part.rows, key=lambda row: row[field])
            draw_measured(ax, rows, field, name, "equations and unknowns", "counted", COLOURS[name])
        label_axes(ax, [row[field] for row in table.select(panel=panel).rows], text)
    same_scale(list(axes))
    axes[0].set_ylabel("smallest m")
    figure.legend(*legend_entries(axes), loc="outside upper center", ncols=4)
    return {"": drawn_from(figure, table)}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge how the smallest m grows, and FedRep's against AltMin's."""
    table = tables["samples"]
    found = [one for panel in PANELS for one in growth(table.select(panel=panel, method=ALTMIN), panel)]
    rows = [row for row in table.select(method=FEDREP).rows if not row["censored"]]
    pairs = [(row, table.select(panel=row["panel"], method=ALTMIN, n_clients=row["n_clients"])) for row in rows]
    ratios = [(row, mine.rows[0]) for row, mine in pairs if not mine["censored"]]
    if ratios:
        text = "With four times the rounds, FedRep needs no more samples than AltMin"
        statistic = "FedRep's smallest m divided by AltMin's, largest"
        found.append(worst(ratio_of, ratios, claim=text, statistic=statistic, source=OWN_THRESHOLD, claimed_high=1.05))
    return found


def growth(part: lf.Table, panel: str) -> Iterator[Finding]:
    """Judge how the smallest m grows with d or n."""
    sizes = sorted(row[PANELS[panel][0]] for row in part.rows)
    if len(sizes) < 2:
        return
    row = part.rows[0]
    others = f"n = {row['n_clients'] // row['dim']} d" if panel == "d" else f"d = {row['dim']}"
    fields: dict[str, Any] = {"setting": f"{panel} = {sizes[0]} to {sizes[-1]:,}, {others}", "kind": "at most"}
    exponent = lf.fit_power_law(f"m ~ log({panel})^a", part).exponents["a"]
    text = f"The smallest m grows at most like log {panel}"
    yield judge_exponent(exponent, 1.0, margin=0.25, claim=text, source=SUFFICE[panel], **fields)
    exponent = lf.fit_power_law(f"m ~ {panel}^a", part).exponents["a"]
    text = f"The smallest m does not grow with {panel}"
    source = OWN_THRESHOLD.adding("the source states that its m suffices", ": ")
    yield judge_exponent(exponent, 0.0, margin=0.05, claim=text, source=source, theorem=False, **fields)
