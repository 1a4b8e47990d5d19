"""AltGDmin at published sizes, and what its spectral start is worth: a random start, the moments, and other steps.

d = 600, n = 600 clients, rank 4 and m = 198 samples each, without noise, on one fixed data set. AltGDmin has its
published step size. It starts from its truncated averages, from the method of moments, or at random. The rivals are
FedRep with twice the step size, from a random start, and in the second figure alternating minimisation.

The second figure has d = n = 80 and few samples: how often do runs reach distance 1e-6 within 600 rounds (alternating
minimisation: 60)?

**Deviations**: the source's step size and threshold are those of its theory up to constants, and its heads are
Gaussian. Here ``(1/n) sum_i w_i w_i' = I``, and the spectral norm of the averages stands for that of the regressors.

Figures
-------
"" : Subspace distance against rounds for three starts of AltGDmin, and FedRep with twice its step size. Lines: median
    over trials; shaded: 10-90 %.
"samples" : Share of runs that reach distance 1e-6, against the samples per client. Bars: 95 % intervals. Dashed: as
    many equations as unknowns.

References: Nayer and Vaswani 2023; Thekumparampil, Jain, Netrapalli and Oh 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import linfed as lf
from linfed._types import Array
from linfed.figures.style import line_style
from linfed.plotting.panels import Figures
from linfed.statistics import judge_share, median_ratio
from linfed.statistics.findings import OWN_THRESHOLD, Finding, judge
from linfed.statistics.intervals import binomial_share, first_round_below

SUMMARY = "AltGDmin at d = n = 600: a spectral start against a random one, in rounds and in samples"
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
    sizes = {"n_clients": 60, "dim": 60} if quick else {"n_clients": 600, "dim": 600}
    run = Start(
        method=SPECTRAL,
        algorithm=methods()[SPECTRAL],
        problem=lf.SharedRepresentation(rank=RANK, condition_number=1.0, **sizes),
        data=lf.FixedSamples(40 if quick else 198),
        rounds=120,
        trials=6,
        metrics=["subspace_distance"],
    )
    curves = [replace(run, method=name, algorithm=one) for name, one in methods().items() if name != ALTMIN]
    sizes = dict.fromkeys(sizes, 40 if quick else 80)
    small = replace(run, problem=lf.SharedRepresentation(rank=RANK, condition_number=1.0, **sizes))
    counts: tuple[int, ...] = (12, 20) if quick else (7, 8, 9, 10, 12, 14, 17, 20, 25, 30)
    few = []
    for name in (SPECTRAL, RANDOM) if quick else (SPECTRAL, MOMENTS, RANDOM, ALTMIN):
        rounds, trials = (200, 6) if quick else (60, 10) if name == ALTMIN else (600, 20)
        for m in counts:
            options: dict[str, Any] = {"rounds": rounds, "trials": trials, "record_every": 10}
            few.append(replace(small, method=name, algorithm=methods()[name], data=lf.FixedSamples(m), **options))
    return {"curves": curves, "samples": few}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distances against rounds, and the shares of runs that reach 1e-6 against m."""
    table = tables["curves"]
    with lf.panels(table, column="n_clients", title="n = {}", height=3.2) as sheet:
        sheet.curves("round", "subspace_distance", by="method")
        sheet.label("round", "distance from B*", yscale="log", ylim=(1e-12, 2))
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


def end(row: lf.Table) -> Array:
    """Return for each trial whether the distance fell below 1e-6."""
    return np.asarray(row["subspace_distance"][:, -1] < REACHED)


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge whether runs converge from each start, the rounds, and the share of runs with few samples."""
    table, few = tables["curves"], tables["samples"]
    row = next(iter(table))
    where = f"d = n = {row['dim']}, m = {row['n_samples']}"
    rounds: dict[str, Array] = {}
    out = []
    for name in (SPECTRAL, MOMENTS, RANDOM):
        one = table.select(method=name)
        values = one["subspace_distance"]
        rounds[name] = first_round_below(np.asarray(one["round"]), values, CLOSE)
        out.append(
            judge_share(
                values[:, -1] < CLOSE,
                0.5,
                claim=f"AltGDmin reaches distance {CLOSE:g}: {name}",
                setting=where,
                statistic=f"share of trials within {row['rounds']} rounds",
                source=OWN_THRESHOLD,
            )
        )
    rival = first_round_below(np.asarray(row["round"]), table.select(method=FEDREP)["subspace_distance"], CLOSE)
    fields: dict[str, Any] = {"setting": where, "source": OWN_THRESHOLD}
    fields["statistic"] = f"median rounds to {CLOSE:g}, divided by those from truncated averages"
    text = "A random start costs AltGDmin at most half as many rounds again"
    out.append(judge(median_ratio(rounds[RANDOM], rounds[SPECTRAL]), claim=text, claimed_high=1.5, **fields))
    text = "FedRep at random with twice the step needs fewer rounds than AltGDmin from its start"
    out.append(judge(median_ratio(rival, rounds[SPECTRAL]), claim=text, claimed_high=1.0, strict=True, **fields))
    starts = few.select(method=[SPECTRAL, RANDOM])
    for m, rows in starts.groupby("n_samples"):
        spectral, drawn = (end(rows.select(method=name)) for name in (SPECTRAL, RANDOM))
        if spectral.mean() < 0.5:
            continue
        out.append(
            judge_share(
                drawn,
                0.5,
                claim="Where most runs from truncated averages reach 1e-6, most runs from a random start do",
                setting=f"d = n = {next(iter(rows))['dim']}, m = {m}",
                statistic="share of the runs from a random start",
                source=OWN_THRESHOLD,
                detail=f"{spectral.mean():.0%} from truncated averages",
            )
        )
    return out
