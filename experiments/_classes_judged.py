"""What the FLUTE paper says around its Table 1, judged, with the rivals that it does not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

import linfed as lf
from linfed.statistics.findings import OWN_PREDICTION, Finding, joined, judge, quoted
from linfed.study.notes import lost

from ._classes import BASELINES, COLLAPSING, FEDAVG, FEDREP, FEDREP_STAR, FLUTE, FLUTE_STAR, LOCAL_ONLY, NO_NC, told

TABLE1 = "FLUTE paper, section 7.2, Table 1"
OUTPERFORM = quoted(
    TABLE1,
    "FLUTE and FLUTE* consistently outperform other baseline algorithms in all experiments conducted on CIFAR-10 and "
    "CIFAR-100 datasets",
)
GAIN_GROWS = quoted(TABLE1, "the gain of FLUTE and FLUTE* becomes more prominent with larger N and m")
CLOSER = quoted(
    "FLUTE paper, C.2",
    "the gaps between FedRep* and FLUTE* in terms of Averaged Local NC2 are significantly larger than those in terms "
    "of Global NC2",
)
TOGETHER = quoted("FLUTE paper, C.2", "these two metrics are positively correlated")
POINTS = "mean difference in accuracy over paired trials, percentage points"


def difference(first: Any, second: Any, *, paired: bool = True) -> tuple[tuple[float, float, float], str]:
    """Return the mean difference with Student's (or Welch's) 95 % interval, and why there is none."""
    if paired:
        gaps = (first - second)[~np.isnan(first - second)]
        if len(gaps) < 2 or np.ptp(gaps) == 0.0:
            return (np.nan, -np.inf, np.inf), f"all {len(gaps)} trials tie" if len(gaps) else "no trial is left"
        found = stats.ttest_1samp(gaps, 0.0)
    else:
        first, second = (values[~np.isnan(values)] for values in (first, second))
        if min(len(first), len(second)) < 2:
            return (np.nan, -np.inf, np.inf), "no trial is left"
        found, gaps = stats.ttest_ind(first, second, equal_var=False), [first.mean() - second.mean()]
    low, high = found.confidence_interval()
    return (float(np.mean(gaps)), float(low), float(high)), ""


def edge(row: Any) -> str:
    """Return which of a row's tuned values are ends of what was tried, where more than two were, or nothing."""
    ends = [name for name in ("step_size", "collapse_penalty") if name in row["at_edge"].split(", ")]
    return f"{' and '.join(ends)} of {told(row['method'])} at an end of what was tried" if ends else ""


def judged(runs: lf.Table) -> list[Finding]:
    """Return what the paper says around its Table 1, and what its rivals say, in every setting and at every rank."""
    out: list[Finding] = []
    for (partition, rank), part in runs.by("partition", "rank"):
        out += in_setting(part, f"k = {rank}, {partition}")
    for rank, part in runs.by("rank"):
        out += growths(part, f"k = {rank}")
    return out


def in_setting(part: lf.Table, where: str) -> list[Finding]:
    """Return the claims of one setting at one rank."""
    row = {str(one.rows[0]["method"]): one for _, one in part.by("method")}
    end = {name: one["final_accuracy"] for name, one in row.items()}
    best = max(BASELINES, key=lambda name: np.nanmean(end[name]))
    plain = max(
        (name for name in BASELINES if name not in (FEDREP, FEDREP_STAR)), key=lambda name: np.nanmean(end[name])
    )

    def above(one: str, other: str, text: str, source: str = OUTPERFORM, rival: Any = None, detail: str = "") -> None:
        found, vacuous = difference(end[one], end[other] if rival is None else rival)
        methods = part.where(method=[one, other])
        note = joined(*map(edge, methods.rows), lost(methods))
        said = {"text": text, "where": where, "source": source, "statistic": POINTS, "note": note, "detail": detail}
        out.append(judge(found, least=0.0, strict=True, vacuous=vacuous, **said))

    out: list[Finding] = []
    above(FLUTE, FEDREP, "FLUTE is more accurate than FedRep")
    above(FLUTE_STAR, FEDREP_STAR, "FLUTE* is more accurate than FedRep*")
    for one in (FLUTE, FLUTE_STAR):
        above(one, plain, f"{one} is more accurate than the best of the other baselines", detail=told(plain))
    above(FLUTE_STAR, FLUTE, "FLUTE* is more accurate than FLUTE")
    text = "FLUTE is more accurate than the same algorithm without its penalty on neural collapse"
    above(FLUTE, NO_NC, text, OWN_PREDICTION)
    text = "Each client's own softmax regression, the simplest rival, is more accurate than FLUTE"
    above(LOCAL_ONLY, FLUTE, text, OWN_PREDICTION)
    own = row[FEDAVG]["own_classes"]
    text = (
        "FedAvg's one model, asked among the client's own classes alone, is more accurate than the best of all methods"
    )
    top = max((best, FLUTE, FLUTE_STAR), key=lambda name: np.nanmean(end[name]))
    found, vacuous = difference(own, end[top])
    said = {"where": where, "source": OWN_PREDICTION, "statistic": POINTS, "detail": told(top)}
    out.append(judge(found, least=0.0, strict=True, vacuous=vacuous, text=text, **said))
    nc2 = {name: [row[name][f"final_{kind}_nc2"] for kind in ("global", "local")] for name in (FEDREP_STAR, FLUTE_STAR)}
    gaps = [first - second for first, second in zip(nc2[FEDREP_STAR], nc2[FLUTE_STAR], strict=True)]
    found, vacuous = difference(gaps[1], gaps[0])
    said = {
        "text": "FLUTE* is nearer to collapse than FedRep*, by more in Local NC2 than in Global NC2",
        "where": where,
    }
    said |= {"source": CLOSER, "statistic": "mean difference of the two gaps over paired trials"}
    out.append(judge(found, least=0.0, strict=True, vacuous=vacuous, **said))
    both = np.array([[row[name][f"{kind}_nc2"][:, 1:] for kind in ("global", "local")] for name in COLLAPSING])
    found, vacuous = correlations(both)
    said = {"text": "Global and Local NC2 are positively correlated along the rounds", "where": where}
    said |= {"source": TOGETHER, "statistic": "mean over trials and methods of the correlation along the rounds"}
    return [*out, judge(found, least=0.0, strict=True, vacuous=vacuous, **said)]


def correlations(curves: Any) -> tuple[tuple[float, float, float], str]:
    """Return the mean correlation of Global and Local NC2 of (methods, 2, trials, rounds), with its interval."""
    of_trials = np.array(
        [[np.corrcoef(*both[:, trial])[0, 1] for trial in range(both.shape[1])] for both in curves]
    ).mean(axis=0)
    return difference(of_trials, np.zeros(len(of_trials)))


def growths(part: lf.Table, where: str) -> list[Finding]:
    """Return whether the gains grow with the clients, and with the classes that each holds."""
    out: list[Finding] = []
    sizes = ((one["n_clients"], one["classes_per_client"], one["partition"]) for one in part.rows)
    cells = {(n, own): partition for n, own, partition in sizes if own}
    for one, rival in ((FLUTE, FEDREP), (FLUTE_STAR, FEDREP_STAR)):
        gain = {
            key: part.where(partition=partition, method=one)["final_accuracy"]
            - part.where(partition=partition, method=rival)["final_accuracy"]
            for key, partition in cells.items()
        }
        for less, more in [(a, b) for a in cells for b in cells]:
            axis = [i for i in (0, 1) if less[i] != more[i]]
            if len(axis) != 1 or not next_larger(less, more, axis[0], list(cells)):
                continue
            found, vacuous = difference(gain[more], gain[less], paired=False)
            what = ("clients", "classes per client")[axis[0]]
            fixed = ("c_i", "n")[axis[0]]
            at = f"{where}, {fixed} = {less[1 - axis[0]]}: {more[axis[0]]} against {less[axis[0]]}"
            said = {"text": f"The gain of {one} over {rival} grows with the {what}", "where": at, "source": GAIN_GROWS}
            said["statistic"] = "difference of the mean gains in accuracy, percentage points"
            out.append(judge(found, least=0.0, strict=True, vacuous=vacuous, **said))
    return out


def next_larger(less: Any, more: Any, axis: int, cells: Sequence[Any]) -> bool:
    """Return whether `more` is the next value after `less` along an axis, the other one equal."""
    values = sorted({cell[axis] for cell in cells if cell[1 - axis] == less[1 - axis]})
    return more[axis] in values and less[axis] < more[axis] and values.index(more[axis]) == values.index(less[axis]) + 1
