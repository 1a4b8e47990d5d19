"""Judges for the FLUTE paper's claims around its Table 1, and for baselines that the paper does not run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

import linfed as lf
from linfed.claims.caveats import diverged_note
from linfed.statistics.findings import OWN_PREDICTION, Finding, cite, join_notes, judge

from ._classes import (
    BASELINES,
    COLLAPSING,
    FEDAVG,
    FEDREP,
    FEDREP_STAR,
    FLUTE,
    FLUTE_STAR,
    LOCAL_ONLY,
    NO_NC,
    NO_NC_STAR,
    method_label,
)

TABLE1 = "FLUTE paper, section 7.2, Table 1, of CIFAR and a CNN, asked of a linear representation"
C2 = "FLUTE paper, C.2, of CIFAR and a CNN, asked of a linear representation"
"""The paper claims nothing about other data and models; whether its findings carry over is our own question."""
OUTPERFORM = cite(
    TABLE1,
    "FLUTE and FLUTE* consistently outperform other baseline algorithms in all experiments conducted on CIFAR-10 and "
    "CIFAR-100 datasets",
)
ALL_COLUMNS = f"{TABLE1}: in all eight columns"
GAIN_GROWS = cite(TABLE1, "the gain of FLUTE and FLUTE* becomes more prominent with larger N and m")
CLOSER = cite(
    C2,
    "the gaps between FedRep* and FLUTE* in terms of Averaged Local NC2 are significantly larger than those in terms "
    "of Global NC2",
)
TOGETHER = cite(C2, "these two metrics are positively correlated")
POINTS = "mean difference in accuracy over paired trials, percentage points"


def difference(first: Any, second: Any, *, paired: bool = True) -> tuple[tuple[float, float, float], str]:
    """Return the mean difference with Student's (or Welch's) 95 % interval; without one, also the reason."""
    if paired:
        gaps = (first - second)[~np.isnan(first - second)]
        if len(gaps) < 2 or np.ptp(gaps) == 0.0:
            tied = f"all {len(gaps)} trials tie" if not gaps.any() else "too few trials, or all with one difference"
            return (np.nan, -np.inf, np.inf), tied if len(gaps) else "no trial is left"
        found = stats.ttest_1samp(gaps, 0.0)
    else:
        first, second = (values[~np.isnan(values)] for values in (first, second))
        if min(len(first), len(second)) < 2:
            return (np.nan, -np.inf, np.inf), "no trial is left"
        found, gaps = stats.ttest_ind(first, second, equal_var=False), [first.mean() - second.mean()]
    low, high = found.confidence_interval()
    return (float(np.mean(gaps)), float(low), float(high)), ""


def edge(row: Any) -> str:
    """Return a note on tuned values at the edge of a grid of more than two values; otherwise empty."""
    ends = [name for name in ("step_size", "collapse_penalty") if name in row["at_grid_edge"].split(", ")]
    return f"{' and '.join(ends)} of {method_label(row['method'])} at the edge of the grid" if ends else ""


def judged(runs: lf.Table) -> list[Finding]:
    """Return the findings on the paper's claims and on the further baselines, for every setting and rank."""
    out: list[Finding] = []
    for (partition, rank), part in runs.groupby("partition", "rank"):
        out += in_setting(part, f"k = {rank}, {partition}")
    for rank, part in runs.groupby("rank"):
        out += growths(part, f"k = {rank}")
    return out


def best_tuned(part: lf.Table, methods: Sequence[str]) -> str:
    """Return the method with the smallest error on the tuning trials, on which no claim is judged."""
    rows = [row for row in part.rows if row["method"] in methods]
    return str(min(rows, key=lambda row: row["score"].values[row["best"]])["method"])


def in_setting(part: lf.Table, place: str) -> list[Finding]:
    """Return the findings of one setting at one rank."""
    out: list[Finding] = []
    row = {str(one["method"]): one for one in part.rows}
    end = {name: one["final_accuracy"] for name, one in row.items()}

    def above(first: Any, second: Any, text: str, methods: Sequence[str], **fields: Any) -> None:
        found, vacuous = difference(first, second)
        rows = part.select(method=list(methods))
        entries = {
            "source": OWN_PREDICTION,
            "statistic": POINTS,
            "note": join_notes(*map(edge, rows.rows), diverged_note(rows)),
            **fields,
        }
        out.append(judge(found, claimed_low=0.0, strict=True, vacuous=vacuous, claim=text, setting=place, **entries))

    def more_accurate(one: str, other: str, text: str, **fields: Any) -> None:
        above(end[one], end[other], text, (one, other), **fields)

    best = best_tuned(part, BASELINES)
    more_accurate(FLUTE, FEDREP, "FLUTE is more accurate than FedRep", source=OUTPERFORM)
    more_accurate(FLUTE_STAR, FEDREP_STAR, "FLUTE* is more accurate than FedRep*", source=OUTPERFORM)
    for one in (FLUTE, FLUTE_STAR):
        text = f"{one} is more accurate than the best of the other baselines"
        more_accurate(one, best, text, source=OUTPERFORM, detail=method_label(best))
    more_accurate(FLUTE_STAR, FLUTE, "FLUTE* is more accurate than FLUTE", source=ALL_COLUMNS)
    for one, without, rival in ((FLUTE, NO_NC, FEDREP), (FLUTE_STAR, NO_NC_STAR, FEDREP_STAR)):
        penalty = "its penalty on neural collapse"
        more_accurate(one, without, f"{one} is more accurate than the same algorithm without {penalty}")
        more_accurate(without, rival, f"{one} without {penalty} is more accurate than {rival}")
    federated = best_tuned(part, (*BASELINES, FLUTE, FLUTE_STAR))
    text = "Each client's own softmax regression, without federation, is more accurate than the best federated method"
    more_accurate(LOCAL_ONLY, federated, text, detail=method_label(federated))
    top = best_tuned(part, [name for name in row if name != FEDAVG])
    masked = [row[name]["own_classes"] for name in (FEDAVG, top)]
    text = "Restricted to the client's own classes, FedAvg is more accurate than the best other method"
    above(*masked, text, (FEDAVG, top), detail=method_label(top))
    return out + collapse(row, place)


def collapse(row: Mapping[str, Any], place: str) -> list[Finding]:
    """Return the findings on NC2 in one setting."""
    kinds = ("global", "local")

    def gaps(far: str, near: str) -> tuple[Any, Any]:
        (first, second) = ([row[name][f"final_{kind}_nc2"] for kind in kinds] for name in (far, near))
        return first[0] - second[0], first[1] - second[1]

    out: list[Finding] = []
    statistic = "mean difference of NC2 over paired trials"
    without = "without its penalty on neural collapse"
    for far, near, rival, source in (
        (FEDREP_STAR, FLUTE_STAR, FEDREP_STAR, CLOSER),
        (NO_NC, FLUTE, without, OWN_PREDICTION),
        (NO_NC_STAR, FLUTE_STAR, without, OWN_PREDICTION),
    ):
        for kind, gap in zip(kinds, gaps(far, near), strict=True):
            found, vacuous = difference(gap, np.zeros(len(gap)))
            text = f"{near} has a smaller {kind.capitalize()} NC2 than {rival}"
            fields = {"claim": text, "setting": place, "source": source, "statistic": statistic}
            out.append(judge(found, claimed_low=0.0, strict=True, vacuous=vacuous, **fields))
    of_all, of_local = gaps(FEDREP_STAR, FLUTE_STAR)
    found, vacuous = difference(of_local, of_all)
    if np.nanmean(of_local) <= 0 < found[0]:
        vacuous = "FLUTE* does not have the smaller Local NC2"
    fields = {"claim": "FLUTE*'s gap to FedRep* is larger in Local NC2 than in Global NC2", "setting": place}
    fields |= {"source": CLOSER, "statistic": "mean difference of the two gaps over paired trials"}
    out.append(judge(found, claimed_low=0.0, strict=True, vacuous=vacuous, **fields))
    both = np.array([[row[name][f"{kind}_nc2"].values[:, 1:] for kind in kinds] for name in COLLAPSING])
    found, vacuous = correlations(both)
    fields = {"claim": "Global and Local NC2 are positively correlated along the rounds", "setting": place}
    fields |= {"source": TOGETHER, "statistic": "correlation along the rounds, mean over trials and methods"}
    return [*out, judge(found, claimed_low=0.0, strict=True, vacuous=vacuous, **fields)]


def correlations(curves: Any) -> tuple[tuple[float, float, float], str]:
    """Return the mean correlation of Global and Local NC2, with its interval, from (methods, 2, trials, rounds)."""
    of_trials = np.array(
        [[np.corrcoef(*both[:, trial])[0, 1] for trial in range(both.shape[1])] for both in curves]
    ).mean(axis=0)
    return difference(of_trials, np.zeros(len(of_trials)))


def growths(part: lf.Table, setting: str) -> list[Finding]:
    """Return the findings on whether the gains grow with the number of clients and of classes per client."""
    out: list[Finding] = []
    sizes = ((one["n_clients"], one["classes_per_client"], one["partition"]) for one in part.rows)
    cells = {(n, classes): partition for n, classes, partition in sizes if classes}
    for one, rival in ((FLUTE, FEDREP), (FLUTE_STAR, FEDREP_STAR)):
        gain = {
            key: part.select(partition=partition, method=one)["final_accuracy"]
            - part.select(partition=partition, method=rival)["final_accuracy"]
            for key, partition in cells.items()
        }
        for less, more in [(a, b) for a in cells for b in cells]:
            axis = [i for i in (0, 1) if less[i] != more[i]]
            if len(axis) != 1 or not next_larger(less, more, axis[0], list(cells)):
                continue
            found, vacuous = difference(gain[more], gain[less], paired=False)
            what = ("number of clients", "number of classes per client")[axis[0]]
            fixed = ("c_i", "n")[axis[0]]
            at = f"{setting}, {fixed} = {less[1 - axis[0]]}: {more[axis[0]]} against {less[axis[0]]}"
            fields = {
                "claim": f"The gain of {one} over {rival} grows with the {what}",
                "setting": at,
                "source": GAIN_GROWS,
            }
            fields["statistic"] = "difference of the mean gains in accuracy, percentage points"
            out.append(judge(found, claimed_low=0.0, strict=True, vacuous=vacuous, **fields))
    return out


def next_larger(less: Any, more: Any, axis: int, cells: Sequence[Any]) -> bool:
    """Return whether `more` is the next larger cell after `less` along an axis, at the same other size."""
    values = sorted({cell[axis] for cell in cells if cell[1 - axis] == less[1 - axis]})
    return more[axis] in values and less[axis] < more[axis] and values.index(more[axis]) == values.index(less[axis]) + 1
