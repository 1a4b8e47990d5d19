"""Alternating minimisation: the smallest number of samples per client, against the dimension and the clients.

The smallest m with which half of the runs of `linfed.AltMin` reach distance 0.01 in 40 rounds on fixed samples without
noise, found by `lf.find_smallest`. Runs start from the method of moments. First n = 4 d and d grows, then n grows at
d = 40. The competitors are FedRep with four times the rounds, and the count of equations and unknowns.

The source (Thekumparampil et al., "MLLAM") states for a constant k that order log d samples per task suffice. The
number that it requires grows like the logarithm of the number of tasks. Both are sufficient conditions, and are judged
from above: a smaller sufficient number does not refute them. Whether m has to grow at all is our own question.

**Deviations**: the sizes are ours. The source draws other samples in each half of a round. Heads have length sqrt(k)
and ``(1/n) sum_i w_i w_i' = I``. We know the source's results from its abstract.

References: Thekumparampil, Jain, Netrapalli and Oh 2021, "Sample efficient linear meta-learning by alternating
minimization".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import linfed as lf
import linfed.claims as c
from linfed.cells.smallest_size import SmallestSize
from linfed.figures.style import KINDS, LOOKS
from linfed.plotting.panels import Figures

from ..shared.smallest import BEST, FIXED, THEOREM, Need
from ..shared.smallest_drawn import draw_measured, label_axes, panels_row
from ..shared.smallest_judged import TOLERANCE, both, number_of, ratio_of, worst_ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUMMARY = "alternating minimisation (MLLAM): the smallest m against d and n, with FedRep's"
PICTURES = {"": 1400}
REDUCED = {"samples": {"without": ("shortfall", "reached", "count")}}
CAPTIONS = {
    "": "Smallest m with which half of the runs reach distance 0.01, against the dimension d with n = 4 d, and against "
    "the clients n. Bars: 95 % intervals; open triangles: bounds. Dotted: m with equal numbers of equations and "
    "unknowns."
}

ALTMIN, FEDREP = "AltMin", "FedRep"
COLOURS = {ALTMIN: KINDS[1][0], FEDREP: LOOKS["FedRep"][0]}
BASE = "base"
PANELS = {"d": ("dim", "dimension d, with n = 4 d"), "n": ("n_clients", "clients n")}
PER_DIM = 4
"""Clients per dimension where the dimension grows."""
abstract = "Thekumparampil, Jain, Netrapalli and Oh 2021, abstract"
same = "asked of the same samples in both steps"
LOG_D = c.reading(f"{abstract}: order log d samples per task suffice for a constant k").adding(same)
LOG_N = c.reading(f"{abstract}: the samples per task grow like the logarithm of the number of tasks").adding(same)


@dataclass(frozen=True, kw_only=True)
class Search(Need):
    """Search for the smallest m of a method from the method of moments, on fixed samples."""

    panel: str = lf.choice((BASE, *PANELS), BASE, label=True)
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
            algorithm, rounds, rule = (
                replace(search.base.algorithm, init="moments"),
                4 * self.n_rounds,
                search.step_size,
            )
        else:
            algorithm, rounds, rule = lf.AltMin(rank=self.rank), self.n_rounds, None
        return replace(search, base=replace(search.base, algorithm=algorithm, n_rounds=rounds), step_size=rule)

    @property
    def predictions(self) -> dict[str, Any]:
        """Columns besides the search: the m with equal numbers of equations and unknowns."""
        counted = self.rank + (self.dim - self.rank) * self.rank / self.n_clients
        return super().predictions | {"counted": counted}


def cells(quick: bool) -> dict[str, list[Search]]:
    """Return the searches along both panels, and the base that they share; quick: few sizes, AltMin only."""
    base = Search(dim=16, trials=8, resolution=0.3, n_rounds=20) if quick else Search()
    along_d = [replace(base, panel="d", dim=d, n_clients=PER_DIM * d) for d in ((8,) if quick else (10, 20, 80))]
    clients = (16,) if quick else (20, 40, 80, 320, 640, 1280)
    along_n = [replace(base, panel="n", n_clients=n) for n in clients]
    methods = (ALTMIN,) if quick else (ALTMIN, FEDREP)
    every = [replace(base, n_clients=PER_DIM * base.dim), *along_d, *along_n]
    return {"samples": [replace(one, method=name) for one in every for name in methods]}


def along(panel: str) -> Callable[[lf.Table], str]:
    """Return the setting of a claim on the sizes of a panel."""

    def setting(part: lf.Table) -> str:
        row, sizes = part.rows[0], sorted(part.unique(PANELS[panel][0]))
        others = f"n = {row['n_clients'] // row['dim']} d" if panel == "d" else f"d = {row['dim']}"
        return f"{panel} = {sizes[0]} to {sizes[-1]:,}, {others}"

    return setting


def growth(panel: str, suffices: c.Source) -> tuple[c.Claim, c.Claim]:
    """Return the claims that the smallest m grows like the logarithm of d or n, and not at all."""
    claim = partial(c.Claim, where=c.of(panel=[BASE, panel], method=ALTMIN), setting=along(panel))
    return (
        claim(
            f"The smallest m grows at most like log {panel}",
            suffices.adding(TOLERANCE),
            c.power_law(f"m ~ log({panel})^a", "a", 1.0, 0.25, "at most"),
            theorem=False,
        ),
        claim(
            f"The smallest m does not grow with {panel}",
            c.OWN_THRESHOLD.adding("the source states that its m suffices", ": "),
            c.power_law(f"m ~ {panel}^a", "a", 0.0, 0.05, "at most"),
            theorem=False,
        ),
    )


CLAIMS = (
    *growth("d", LOG_D),
    *growth("n", LOG_N),
    c.Claim(
        "With four times the rounds, FedRep needs no more samples than AltMin",
        c.OWN_THRESHOLD,
        worst_ratio(ratio_of, both(FEDREP, ALTMIN), "FedRep's smallest m divided by AltMin's, largest", 1.05),
        setting=number_of(both(FEDREP, ALTMIN)),
    ),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest m against d and against n."""
    table = tables["samples"]

    def draw(ax: Axes, panel: str) -> None:
        part, (field, text) = table.select(panel=[BASE, panel]), PANELS[panel]
        for name, of_method in part.groupby("method"):
            rows = sorted(of_method.rows, key=lambda row: row[field])
            draw_measured(ax, rows, field, name, "equations and unknowns", "counted", COLOURS[name])
        label_axes(ax, [row[field] for row in part.rows], text)

    return {"": panels_row(table, PANELS, draw, "smallest m", height=2.8, ncols=4)}
