"""AltGDmin at published sizes, and what its spectral start is worth: a random start, the moments, and other steps.

d = 600, n = 600 clients, rank 4 and m = 198 samples each, without noise, on one fixed data set. AltGDmin has its
published step size. It starts from its truncated averages, from the method of moments, or at random. The competitors
are FedRep with twice the step size, from a random start, and in the second figure alternating minimisation.

The second figure has d = n = 80 and few samples: how often do runs reach distance 1e-6 within 600 rounds (alternating
minimisation: 60)?

**Deviations**: the source's step size and threshold are those of its theory up to constants, and its heads are
Gaussian. Here ``(1/n) sum_i w_i w_i' = I``, and the spectral norm of the averages stands for that of the regressors.

References: Nayer and Vaswani 2023; Thekumparampil, Jain, Netrapalli and Oh 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array, Mask
from linfed.figures.style import line_style
from linfed.plotting.panels import Figures
from linfed.statistics.intervals import binomial_share, first_round_below

SUMMARY = "AltGDmin at d = n = 600: a spectral start against a random one, in rounds and in samples"
CAPTIONS = {
    "": (
        "Subspace distance against rounds for three initialisations of AltGDmin, and FedRep with twice its step size. "
        "Lines: median over trials; shaded: 10-90 %."
    ),
    "samples": (
        "Share of runs that reach distance 1e-6, against the samples per client. Bars: 95 % intervals. Dashed: as "
        "many equations as unknowns."
    ),
}
PICTURES = {"": 1400, "samples": 1400}

RANK = 4
SPECTRAL, RANDOM, MOMENTS = "truncated averages", "random start", "method of moments"
FEDREP, ALTMIN = "FedRep, twice the step", "alternating minimisation"
CLOSE, REACHED = 1e-8, 1e-6
"""Distances of the two figures that count as reached."""


def methods() -> dict[str, lf.Algorithm]:
    """Return the algorithms by name."""
    return {
        SPECTRAL: lf.AltGDmin(rank=RANK),
        MOMENTS: lf.AltGDmin(rank=RANK, init="moments"),
        RANDOM: lf.AltGDmin(rank=RANK, init="random"),
        FEDREP: lf.FedRep(rank=RANK, step_size=1.0, init="random"),
        ALTMIN: lf.AltMin(rank=RANK, init=lf.TruncatedAverages()),
    }


@dataclass(frozen=True, kw_only=True)
class Start(lf.Run):
    """A run, with the name of its method and start."""

    method: str = lf.choice(methods(), label=True)


def cells(quick: bool) -> dict[str, list[Start]]:
    """Return the runs of both figures; quick: d = n = 60 and 40, few samples and trials."""
    run = Start(
        method=SPECTRAL,
        algorithm=methods()[SPECTRAL],
        problem=square(60 if quick else 600),
        data=lf.FixedSamples(40 if quick else 198),
        n_rounds=120,
        trials=6,
        metrics=["subspace_distance"],
    )
    curves = [replace(run, method=name, algorithm=one) for name, one in methods().items() if name != ALTMIN]
    small = replace(run, problem=square(40 if quick else 80), record_every=10)
    few = []
    for name in (SPECTRAL, RANDOM) if quick else (SPECTRAL, MOMENTS, RANDOM, ALTMIN):
        rounds, trials = (200, 6) if quick else (60, 10) if name == ALTMIN else (600, 20)
        one = replace(small, method=name, algorithm=methods()[name], n_rounds=rounds, trials=trials)
        counts = (12, 20) if quick else (7, 8, 9, 10, 12, 14, 17, 20, 25, 30)
        few += [replace(one, data=lf.FixedSamples(m)) for m in counts]
    return {"curves": curves, "samples": few}


def square(size: int) -> lf.SharedRepresentation:
    """Return a problem with d = n."""
    return lf.SharedRepresentation(n_clients=size, dim=size, rank=RANK, condition_number=1.0)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances against rounds, and the shares of runs that reach 1e-6 against m."""
    table = tables["curves"]
    with lf.panels(table, column="n_clients", title="n = {}", height=3.2) as sheet:
        sheet.curves("round", "subspace_distance", by="method")
        sheet.label("round", "subspace distance", yscale="log", ylim=(1e-12, 2))
        sheet.legend(f"median and 10-90 % of {next(iter(table))['trials']} trials", ncols=2)
    few = tables["samples"]
    with lf.panels(few, column="n_clients", title="n = {}", height=3.0) as second:
        for ax, part in second:
            for name, rows in part.groupby("method"):
                found = [binomial_share(int(end(row).sum()), len(end(row))) for row in rows]
                middle, low, high = np.array(found).T
                shape = line_style(name, list(methods()).index(name)) | {"capsize": 1.5, "elinewidth": 0.7}
                x = [row["n_samples"] for row in rows]
                ax.errorbar(x, middle, yerr=(middle - low, high - middle), label=name, **shape)
            row = next(iter(part))
            edge = RANK + RANK * (row["dim"] - RANK) / row["n_clients"]
            ax.axvline(edge, color="0.5", linestyle="--", linewidth=0.8, label="as many equations as unknowns")
        second.label("samples per client m", "share of runs below 1e-6", xscale="log", ylim=(-0.04, 1.04))
        second.legend(ncols=3)
    return {"": sheet.figure, "samples": second.figure}


def end(row: lf.Table) -> Mask:
    """Return for each trial whether the distance fell below 1e-6."""
    return np.asarray(row["subspace_distance"][:, -1] < REACHED)


def rounds(row: lf.Table) -> Array:
    """Return the rounds of each trial to distance 1e-8."""
    return first_round_below(np.asarray(row["round"]), row["subspace_distance"], CLOSE)


def random_starts(part: lf.Table) -> Mask | None:
    """Return `end` of the runs from a random start, or None if not most runs from truncated averages reach 1e-6."""
    spectral, drawn = part.select(method=SPECTRAL), part.select(method=RANDOM)
    return end(drawn) if len(spectral) == len(drawn) == 1 and end(spectral).mean() >= 0.5 else None


PLACE = "d = n = {dim}, m = {n_samples}"
TIMES = f"median rounds to {CLOSE:g}, divided by those from truncated averages"
CLAIMS = (
    *(
        c.Claim(
            f"AltGDmin reaches distance {CLOSE:g}: {name}",
            c.OWN_THRESHOLD,
            c.share(
                lambda row: row["subspace_distance"][:, -1] < CLOSE, "share of trials within {n_rounds} rounds", c.MOST
            ),
            where=c.of(method=name),
            setting=PLACE,
        )
        for name in (SPECTRAL, MOMENTS, RANDOM)
    ),
    c.Claim(
        "A random start costs AltGDmin at most half as many rounds again",
        c.OWN_THRESHOLD,
        c.ratio(rounds, RANDOM, SPECTRAL, TIMES, c.at_most(1.5)),
        setting=PLACE,
    ),
    c.Claim(
        "FedRep at random with twice the step needs fewer rounds than AltGDmin from its start",
        c.OWN_THRESHOLD,
        c.ratio(rounds, FEDREP, SPECTRAL, TIMES, c.below(1.0)),
        setting=PLACE,
    ),
    c.Claim(
        "Where most runs from truncated averages reach 1e-6, most runs from a random start do",
        c.OWN_THRESHOLD,
        c.share(random_starts, "share of the runs from a random start", c.MOST),
        table="samples",
        where=c.of(method=[SPECTRAL, RANDOM]),
        over=c.each("n_samples"),
        setting=PLACE,
        detail=lambda part: f"{end(part.select(method=SPECTRAL)).mean():.0%} from truncated averages",
    ),
)
