"""FedRep paper, initialisation: the samples that the method of moments needs, compared with FedRep's.

`lf.find_smallest` finds the smallest m with which half of the estimates reach distance 0.5, without noise. It also
finds the smallest m of FedRep with fresh samples, which goes to distance 0.01 in 40 rounds with the best step size.
FedRep starts at distance 0.5, at random, or as in Algorithm 2 of its paper from the moments of m samples.

Theorem 1 requires that the initial distance is below 1 by a constant. The paper states that the moments achieve this
without more samples per client, up to logarithms. This holds if their m grows at most like the theorem's term k^2 d/n.
The number of samples that the paper derives from it, (11), has the term k d/n instead; we compare with both.
The paper names no constants. It is our own question how their m compares with the theorem's m at c = 1, and with one
round or all rounds of FedRep. The experiment `estimators` compares the other spectral estimates.

**Deviations**: the sizes are ours. Heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``. The paper prints that
the initial distance must be *larger* than a constant; we read smaller. It does not name the constant; ours is 0.5.

Figures
-------
"" : Smallest m with which half of the estimates reach distance 0.5, or half of FedRep's runs go to distance 0.01,
    against clients, dimension and rank. Bars: 95 % intervals. Dotted: predictions without a fitted parameter. Dashed:
    Theorem 1's m with c = 1.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 4.2; Tripuraneni, Jin and Jordan 2021.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import linfed as lf
from linfed.cells.smallest_size import SmallestSize
from linfed.figures.style import KINDS, LOOKS, PAGE_WIDTH, same_scale
from linfed.plotting.panels import Figures, drawn_from
from linfed.statistics import judge_exponent
from linfed.statistics.findings import OWN_THRESHOLD, Finding, cite
from linfed.statistics.intervals import Measured

from ..shared.smallest import BEST, THEOREM, settings
from ..shared.smallest_drawn import draw_measured, label_axes, legend_entries
from ..shared.smallest_judged import MARGIN, chosen, judge_predicted, lawful, over, ratio_of, worst
from ..shared.spectral import AVERAGES, MOMENTS, PAIRS, TWO, Estimates, spectral
from ..shared.spectral import COLOURS as SPECTRAL_COLOURS

SUMMARY = "FedRep paper, initialisation: the smallest m of the moments and of FedRep, against n, d and k"
PICTURES = {"": 1400}
REDUCED = {"samples": {"without": ("margin", "reached", "count")}}

FEDREP, ALGORITHM, FROM_RANDOM = "FedRep, given distance", "FedRep, moments", "FedRep, random start"
COLOURS = {**SPECTRAL_COLOURS, FEDREP: LOOKS["FedRep"][0], ALGORITHM: KINDS[8][0], FROM_RANDOM: KINDS[10][0]}

paper = partial(cite, "FedRep paper, section 4.2")
MOMENTS_SUFFICE = paper(
    "This can be achieved by the Method of Moments without increasing the sample complexity for each client up to log "
    "factors"
)
PANELS: dict[str, tuple[str, tuple[Any, ...], Any, str]] = {
    "n": ("n_clients", (20, 50, 200, 500, 1000), 200, "clients n"),
    "d": ("dim", (25, 50, 200, 400), 50, "dimension d"),
    "k": ("rank", (1, 2, 5, 8), 1, "rank k"),
}


@dataclass(frozen=True, kw_only=True)
class Search(Estimates):
    """Search for the smallest m of an estimate, or of FedRep from one of its starts."""

    panel: str = lf.choice(("base", *PANELS), "base", label=True)
    method: str = lf.choice((*spectral(rank=1), FEDREP, ALGORITHM, FROM_RANDOM), FEDREP)
    step: str = lf.choice((THEOREM, BEST), BEST)
    n_clients: int = 100
    dim: int = 100
    delta: float = 0.5

    @property
    def search(self) -> SmallestSize:
        """The search for the smallest m."""
        search = super().search
        if self.method in (ALGORITHM, FROM_RANDOM):
            init = "moments" if self.method == ALGORITHM else "random"
            base = replace(search.base, algorithm=replace(search.base.algorithm, init=init), engine="auto")
            return replace(search, base=base, predicted=False)
        return search


def cells(quick: bool) -> dict[str, list[Search]]:
    """Return the searches of all methods; quick: two methods, few trials, and two settings in each panel."""
    base, methods = Search(), (MOMENTS, AVERAGES, PAIRS, TWO, FEDREP, ALGORITHM, FROM_RANDOM)
    if quick:
        base, methods = replace(base, dim=100, rank=2, trials=8, resolution=0.3, rounds=20), (MOMENTS, FEDREP)
    every = settings(PANELS, base, tuple(PANELS) if quick else None)
    return {"samples": [replace(one, method=name) for one in every for name in methods]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest m against each size."""
    import matplotlib.pyplot as plt

    table = tables["samples"]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(PAGE_WIDTH, 3.2), layout="constrained", sharey=True)
    for ax, (panel, (field, *_, text)) in zip(axes, PANELS.items(), strict=True):
        rows = sorted(table.select(panel=["base", panel]).rows, key=lambda row: row[field])
        for name in table.unique("method"):
            law = "predicted_crossing" if name == FEDREP else "estimated"
            part = [row for row in rows if row["method"] == name]
            shown = "random start" if name == FROM_RANDOM else name
            draw_measured(ax, part, field, shown, "predicted", law, COLOURS[name])
        x, claimed = ([row[name] for row in rows if row["method"] == FEDREP] for name in (field, "claim"))
        ax.plot(x, claimed, "--", color="0.5", label="Theorem 1, c = 1")
        label_axes(ax, [row[field] for row in rows], text)
    same_scale(list(axes))
    axes[0].set_ylabel("smallest m")
    figure.legend(*legend_entries(axes), loc="outside upper center", ncols=4)
    return {"": drawn_from(figure, table)}


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the samples of the moments, of Algorithm 2 and of the other estimates, and the predictions."""
    return [*moments(tables["samples"]), *searches(tables["samples"])]


def pairs(table: lf.Table, first: str, second: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the rows of two methods in the same settings, where both are known."""
    for one in table.select(method=first).rows:
        sizes = {name: one[name] for name in ("panel", "n_clients", "dim", "rank")}
        for other in table.select(method=second, **sizes).rows:
            if not (one["censored"] or other["censored"]):
                yield one, other


def moments(table: lf.Table) -> Iterator[Finding]:
    """Judge the samples that the moments need, compared with Theorem 1's and with FedRep's."""
    rows = chosen(table, lambda row: row["method"] == MOMENTS and not row["censored"])
    fitted = lf.fit_power_law("m ~ n^a d^b k^c", rows).exponents
    theorem, printed = f"the term k^2 d/n of Theorem 1; {MARGIN}", f"the term k d/n that (11) prints; {MARGIN}"
    where = f"{len(rows)} settings, distance {rows.rows[0]['delta']:g}"
    for name, letter, claimed, term, words in (
        ("a", "n", -1.0, "k^2 d/n", theorem),
        ("b", "d", 1.0, "k^2 d/n", theorem),
        ("c", "k", 2.0, "k^2 d/n", theorem),
        ("c", "k", 1.0, "k d/n", printed),
    ):
        text = f"The smallest m of the moments grows at most like {term}: in {letter}"
        fields: dict[str, Any] = {"source": f"{MOMENTS_SUFFICE}; compared with {words}", "theorem": False}
        yield judge_exponent(fitted[name], claimed, kind="at most", margin=0.1, claim=text, setting=where, **fields)
    threshold = OWN_THRESHOLD.adding("the paper names no constant", ": ")
    ratios = [(row, row["claim"]) for row in rows.rows]
    text = "Half of the estimates by the moments reach the distance with Theorem 1's m, c = 1"
    statistic = "smallest m of the moments divided by Theorem 1's, worst setting"
    yield worst(over, ratios, claim=text, statistic=statistic, source=threshold, claimed_high=1.0)
    both = list(pairs(table, MOMENTS, FEDREP))
    if not both:
        return
    rounds = table.select(method=FEDREP).rows[0]["rounds"]

    def of_all_rounds(one: dict[str, Any], other: dict[str, Any], **options: float) -> Measured:
        ratio, low, high = ratio_of(one, other, **options)
        return ratio / rounds, low / rounds, high / rounds

    text = "The moments need fewer samples than all rounds of a run of FedRep together"
    statistic = f"smallest m of the moments divided by {rounds} times FedRep's, worst setting"
    yield worst(of_all_rounds, both, claim=text, statistic=statistic, source=threshold, claimed_high=1.0)
    text = "The moments need no more samples than one round of FedRep"
    statistic = "smallest m of the moments divided by FedRep's, worst setting"
    yield worst(ratio_of, both, claim=text, statistic=statistic, source=OWN_THRESHOLD, claimed_high=1.0)


def searches(table: lf.Table) -> Iterator[Finding]:
    """Judge Algorithm 2 against other starts, the local averages against the moments, and the predictions."""
    comparisons = (
        (ALGORITHM, FEDREP, "Algorithm 2 needs no more samples from its moments than from the given distance"),
        (FROM_RANDOM, FEDREP, "FedRep needs no more samples from a random start than from the given distance"),
        (ALGORITHM, FROM_RANDOM, "Algorithm 2 needs no more samples from its moments than from a random start"),
        (AVERAGES, MOMENTS, "Local averages need no more samples than the moments"),
    )
    for first, second, text in comparisons:
        if ratios := list(pairs(table, first, second)):
            statistic = f"smallest m of {first} divided by that of {second}, worst setting"
            yield worst(ratio_of, ratios, claim=text, statistic=statistic, source=OWN_THRESHOLD, claimed_high=1.1)
    for name in (MOMENTS, AVERAGES, PAIRS, TWO):
        known = [row for row in table.select(method=name).rows if not row["censored"] and lawful(row, "estimated")]
        if known:
            text = f"{name[0].upper()}{name[1:]}: the smallest m is the predicted one"
            yield judge_predicted(lf.Table(known), "estimated", text=text, most=1.15)
