"""FedRep paper, initialisation: the samples that the method of moments needs, compared with FedRep's.

`lf.find_smallest` finds the smallest m with which half of the estimates reach a distance from B*. The experiment
`estimators` has the distances. There are two series of searches:

- To distance 0.5, without noise. Here FedRep with fresh samples is searched too: it goes to distance 0.01 in 40 rounds
  with the best step size. It starts at distance 0.5, at random, or as in Algorithm 2 of its paper from the moments of m
  samples.
- To distance 0.95, for k = 4 and with noise. With noise 1, n varies at d = 100, or n = d varies. At d = 100 the noise
  also grows with n, such that the transition of the local averages stays at the same m.

Theorem 1 requires that the initial distance is below 1 by a constant. The paper states that the moments achieve this
without more samples per client, up to logarithms. This holds if their m grows at most like the theorem's term k^2 d/n.
The number of samples that the paper derives from it, (11), has the term k d/n instead; no claim compares with it.
The paper names no constants. It is our own question how their m compares with the theorem's m at c = 1, and with one
round or all rounds of FedRep.

Spectral estimators lose the weakest direction of ``Gamma = (1/n) sum_i w_i w_i'`` at a transition, which
`linfed.theory.spectral_floor` predicts (its `ratio` is 1 there). With lambda the smallest eigenvalue of Gamma and
``s^2 = ||w||^2 + sigma^2``, local averages need ``n m^2 lambda^2 > d s^4`` for large m (Niu et al. state this), and so
does the U-statistic. The moments need ``n m lambda^2 > (3/4) d s^4``: only the total number of samples counts. The
prediction of the distance has no fitted parameter. It assumes that the noise has the spectrum of a large matrix with
independent entries, which holds for large d and n/d.

**Deviations**: the sizes and the distance 0.95 are ours. Heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``.
The paper prints that the initial distance must be *larger* than a constant; we read smaller. It does not name the
constant; ours is 0.5.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 4.2; Tripuraneni, Jin and Jordan 2021; Niu, Su, Xu
and Yang 2024; Duchi, Feldman, Hu and Talwar 2022; Benaych-Georges and Nadakuditi 2011.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import linfed as lf
import linfed.claims as c
from linfed.algorithms.one_round.estimators import SpectralEstimator
from linfed.cells.smallest_size import SmallestSize
from linfed.figures.style import KINDS, LOOKS
from linfed.plotting.panels import SIZE_LABELS, Figures
from linfed.statistics.intervals import Measured

from ..shared.smallest import BEST, FIXED, Need, Panels, settings
from ..shared.smallest_drawn import draw_measured, label_axes, panels_row, rows_of
from ..shared.smallest_judged import (
    FACTOR,
    TOLERANCE,
    both,
    has_prediction,
    number_of,
    over,
    predicted,
    ratio_of,
    worst_ratio,
)
from ..shared.spectral import AVERAGES, MOMENTS, PAIRS, SPECTRAL, TWO, spectral
from ..shared.spectral_drawn import COLOURS as SPECTRAL_COLOURS
from ..shared.spectral_drawn import LOOKS as SPECTRAL_LOOKS

SUMMARY = "FedRep paper, initialisation: the smallest m of spectral estimators and of FedRep, against n, d, k and noise"
PICTURES = {"": 1400, "transition": 1400}
CAPTIONS = {
    "": "Smallest m with which half of the estimates reach distance 0.5, or half of FedRep's runs go to distance 0.01, "
    "against clients, dimension and rank. Bars: 95 % intervals. Dotted: predictions without a fitted parameter. "
    "Dashed: Theorem 1's m with c = 1.",
    "transition": "Smallest m with which half of the estimates have a distance of at most 0.95: against clients, "
    "against n = d, and against clients with growing noise. Bars: 95 % intervals; open triangles: bounds. Dotted: "
    "prediction without a fitted parameter; dashed: transition of the local averages and of the moments.",
}
REDUCED = {name: {"without": ("shortfall", "reached", "count")} for name in ("samples", "transition")}

FEDREP, ALGORITHM, FROM_RANDOM = "FedRep, given distance", "FedRep, moments", "FedRep, random start"
COLOURS = {**SPECTRAL_COLOURS, FEDREP: LOOKS["FedRep"][0], ALGORITHM: KINDS[8][0], FROM_RANDOM: KINDS[10][0]}
MARKERS = {name: look[1] for name, look in SPECTRAL_LOOKS.items()}

MOMENTS_SUFFICE = c.cite(
    "FedRep paper, section 4.2",
    "This can be achieved by the Method of Moments without increasing the sample complexity for each client up to log "
    "factors",
)
PANELS: Panels = {
    "n": ("n_clients", (20, 50, 200, 500, 1000), 200),
    "d": ("dim", (25, 50, 200, 400), 50),
    "k": ("rank", (1, 2, 5, 8), 1),
}
WITH_NOISE = {"n": "clients n", "d": "dimension d, with n = d", "noise": "clients n, with growing noise"}
"""Texts of the horizontal axes with noise."""
NEAR = 1.25
"""The claimed accuracy of the predicted m with noise, as a factor."""


@dataclass(frozen=True, kw_only=True)
class Search(Need):
    """Search for the smallest m of an estimate at distance `delta`, or of FedRep from one of its starts."""

    panel: str = lf.choice(("base", *PANELS, "noise"), "base", label=True)
    asks: str = lf.choice(("data.n_samples",), "data.n_samples")
    method: str = lf.choice((*spectral(rank=1), FEDREP, ALGORITHM, FROM_RANDOM), MOMENTS)
    n_clients: int = 100
    dim: int = 100
    delta: float = 0.5
    trials: int = 24
    resolution: float = 0.1

    @property
    def estimator(self) -> SpectralEstimator | None:
        """The estimator, None for FedRep."""
        return spectral(self.rank).get(self.method)

    @property
    def search(self) -> SmallestSize:
        """The search for the smallest m."""
        search = super().search
        if self.estimator is not None:
            data = lf.FixedSamples(self.start)
            base = replace(search.base, algorithm=self.estimator, data=data, n_rounds=1, engine="auto")
            few = 1.0 if self.method in (MOMENTS, AVERAGES) else 2.0
            reaches = lf.below("subspace_distance", self.delta)
            return replace(search, base=base, reaches=reaches, step_size=None, predicted=False, lower=few, upper=2**14)
        if self.method == FEDREP:
            return search
        algorithm = replace(search.base.algorithm, init="moments" if self.method == ALGORITHM else "random")
        return replace(search, base=replace(search.base, algorithm=algorithm, engine="auto"), predicted=False)

    @property
    def predictions(self) -> dict[str, Any]:
        """Columns besides the search: the m of the predicted distance delta, and of the transition."""
        estimated, transition = self.crossing_of("distance", self.delta), self.crossing_of("ratio", 1.0)
        return super().predictions | {"estimated": estimated, "transition": transition}

    def crossing_of(self, quantity: str, level: float) -> float:
        """Return the m at which a predicted quantity falls to a level, interpolated.

        It is NaN if the quantity is smaller at m = 2, and for FedRep.
        """
        estimator = self.estimator
        if estimator is None:
            return math.nan
        problem = lf.SharedRepresentation(n_clients=self.n_clients, dim=self.dim, rank=self.rank, condition_number=1.0)
        W = problem.truth(self.seed, [0]).W
        assert W is not None
        stride = 2 if isinstance(estimator, lf.TwoReplica) else 1  # an odd last sample is not used

        @functools.cache
        def excess(m: int) -> float:
            with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # beyond the range
                law = lf.theory.spectral_floor(estimator, W[0], dim=self.dim, n_samples=m, noise_std=self.noise_std)
            return math.log(float(getattr(law, quantity)) / level)

        low, high = 2, 2**16
        if excess(low) <= 0:
            return math.nan
        while high - low > stride:
            middle = (low + high) // (2 * stride) * stride
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return low * (high / low) ** (excess(low) / (excess(low) - excess(high)))


def cells(quick: bool) -> dict[str, list[Search]]:
    """Return the searches without and with noise; quick: two methods, few trials and settings."""
    exact, noisy = Search(step=BEST), Search(samples=FIXED, rank=4, noise_std=1.0, delta=0.95, start=8)
    methods, estimators = [MOMENTS, AVERAGES, PAIRS, TWO, FEDREP, ALGORITHM, FROM_RANDOM], list(SPECTRAL)
    clients, dims, multiples = [25, 50, 200, 400], [25, 50, 200, 400], [4, 16]
    if quick:
        exact = replace(exact, rank=2, trials=8, resolution=0.3, n_rounds=20)
        noisy, methods = replace(noisy, n_clients=60, dim=60, resolution=0.2), [MOMENTS, FEDREP]
        estimators, clients, dims, multiples = [MOMENTS, AVERAGES], [20, 160], [30], []
    samples = settings(PANELS, exact, tuple(PANELS) if quick else None)
    transition = [noisy, *lf.grid(replace(noisy, panel="n"), n_clients=clients)]
    transition += [replace(noisy, panel="d", n_clients=d, dim=d) for d in dims]
    for multiple in multiples:
        noise = ((noisy.rank + noisy.noise_std**2) * multiple**0.5 - noisy.rank) ** 0.5
        transition.append(replace(noisy, panel="noise", n_clients=multiple * noisy.dim, noise_std=noise))
    return {
        "samples": [replace(one, method=name) for one in samples for name in methods],
        "transition": [replace(one, method=name) for one in transition for name in estimators],
    }


# --- claims --------------------------------------------------------------------------------------------------


def of_all_rounds(one: lf.Table, fedrep: lf.Table, *, confidence: float = 0.95) -> Measured:
    """Return a smallest m divided by the samples of all rounds of FedRep together."""
    ratio, low, high = ratio_of(one, fedrep, confidence=confidence)
    return ratio / fedrep["n_rounds"], low / fedrep["n_rounds"], high / fedrep["n_rounds"]


def largest_sizes(table: lf.Table) -> lf.Table:
    """Return the row with the largest n of each panel."""
    return lf.Table.joined(c.largest("n_clients")(part) for _, part in table.groupby("panel"))


def no_more(first: str, second: str, sentence: str) -> c.Claim:
    """Return the claim that a method needs no more samples than another, up to 10 %."""
    words = f"smallest m of {first} divided by that of {second}, worst setting"
    statistic = worst_ratio(ratio_of, both(first, second), words, 1.1)
    return c.Claim(sentence, c.OWN_THRESHOLD, statistic, setting=number_of(both(first, second)))


NO_CONSTANT = c.OWN_THRESHOLD.adding("the paper names no constant", ": ")
AGAINST = both(MOMENTS, FEDREP)
known = c.only(lambda row: not row["censored"])
CLAIMS = (
    *(
        c.Claim(
            f"The smallest m of the moments grows at most like k^2 d/n: in {letter}",
            c.reading(MOMENTS_SUFFICE.adding(f"compared with Theorem 1 without its term k^3 log(n); {TOLERANCE}")),
            c.power_law("m ~ n^a d^b k^c", name, power, 0.1, "at most"),
            where=(c.of(method=MOMENTS), known),
            setting="{points} settings, distance {delta:g}",
            theorem=False,
        )
        for name, letter, power in (("a", "n", -1.0), ("b", "d", 1.0), ("c", "k", 2.0))
    ),
    c.Claim(
        "Half of the estimates by the moments reach the distance with Theorem 1's m, c = 1",
        NO_CONSTANT,
        worst_ratio(
            over,
            lambda table: [(row, row["claim"]) for row in table],
            "smallest m of the moments divided by Theorem 1's, worst setting",
            1.0,
        ),
        where=(c.of(method=MOMENTS), known),
        setting="{points} settings",
    ),
    c.Claim(
        "The moments need fewer samples than all rounds of a run of FedRep together",
        NO_CONSTANT,
        worst_ratio(
            of_all_rounds, AGAINST, "smallest m of the moments divided by {n_rounds} times FedRep's, worst setting", 1.0
        ),
        setting=number_of(AGAINST),
    ),
    c.Claim(
        "The moments need no more samples than one round of FedRep",
        c.OWN_THRESHOLD,
        worst_ratio(ratio_of, AGAINST, "smallest m of the moments divided by FedRep's, worst setting", 1.0),
        setting=number_of(AGAINST),
    ),
    no_more(ALGORITHM, FEDREP, "Algorithm 2 needs no more samples from its moments than from the given distance"),
    no_more(FROM_RANDOM, FEDREP, "FedRep needs no more samples from a random start than from the given distance"),
    no_more(ALGORITHM, FROM_RANDOM, "Algorithm 2 needs no more samples from its moments than from a random start"),
    no_more(AVERAGES, MOMENTS, "Local averages need no more samples than the moments"),
    *(
        c.Claim(
            f"{name.capitalize()}: the smallest m is the predicted one",
            FACTOR,
            predicted("estimated", 1.15),
            where=(c.of(method=name), has_prediction("estimated")),
            setting="{points} settings, predicted m >= k + 4",
        )
        for name in (MOMENTS, AVERAGES, PAIRS, TWO)
    ),
    *(
        c.Claim(
            f"{name.capitalize()}: the smallest m falls like one over the {words}",
            c.OWN_PREDICTION.adding(TOLERANCE),
            c.power_law("m ~ n^a", "a", power, 0.15),
            table="transition",
            where=(c.of(panel=["base", "n"], method=name), known, c.sorted_by("n_clients")),
            setting="d = {dim}, n = {n_clients} to {last[n_clients]}",
            theorem=False,
        )
        for name, power, words in (
            (MOMENTS, -1.0, "clients"),
            *((name, -0.5, "root of the clients") for name in SPECTRAL if name != MOMENTS),
        )
    ),
    *(
        c.Claim(
            f"{name.capitalize()}: the smallest m is the predicted one",
            FACTOR,
            c.measured(
                "smallest m divided by the predicted m",
                lambda row: over(row, row["estimated"]),
                c.within(1 / NEAR, NEAR),
            ),
            table="transition",
            where=(c.of(panel=["d", "noise"], method=name), known, largest_sizes),
            over=c.each_row,
            setting="d = {dim}, n = {n_clients:,}, noise std {noise_std:.2g}",
            detail=lambda row: f"{row['crossing']:.2f} against {row['estimated']:.2f}",
        )
        for name in SPECTRAL
    ),
)


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the smallest m against each size, without and with noise."""
    samples, noisy = tables["samples"], tables["transition"]

    def exact(ax: Any, panel: str) -> None:
        field = PANELS[panel][0]
        rows = rows_of(samples, panel, field)
        draw(ax, rows, field, SIZE_LABELS[field])
        x, claimed = ([row[name] for row in rows if row["method"] == FEDREP] for name in (field, "claim"))
        ax.plot(x, claimed, "--", color="0.5", label="Theorem 1, c = 1")

    def with_noise(ax: Any, panel: str) -> None:
        draw(ax, rows_of(noisy, panel, "n_clients"), "n_clients", WITH_NOISE[panel], transition=True)

    return {
        "": panels_row(samples, PANELS, exact, "smallest m", height=3.2, ncols=4),
        "transition": panels_row(noisy, WITH_NOISE, with_noise, "smallest m", height=3.0, ncols=4),
    }


def draw(ax: Any, rows: list[dict[str, Any]], field: str, text: str, *, transition: bool = False) -> None:
    """Draw the smallest m of each method against a size, and the transition of the moments and the local averages."""
    for name in dict.fromkeys(row["method"] for row in rows):
        part = [row for row in rows if row["method"] == name]
        law = "predicted_crossing" if name == FEDREP else "estimated"
        shown = "random start" if name == FROM_RANDOM else name
        draw_measured(ax, part, field, shown, "predicted", law, COLOURS[name], MARKERS.get(name, "o"))
        if transition and name in (MOMENTS, AVERAGES):
            x, y = ([row[one] for row in part] for one in (field, "transition"))
            ax.plot(x, y, "--", color=COLOURS[name], linewidth=0.8, label="transition")
    if not rows:
        ax.text(0.5, 0.9, "not run", ha="center", transform=ax.transAxes)
    label_axes(ax, [row[field] for row in rows], text)
