"""FLUTE paper, Appendix C.2, on digits and on Gaussian classes: neural collapse of the heads, with FLUTE and FedRep.

The paper's measure is NC2, the distance of the heads' cosines from neural collapse: global over all classes, local over
the classes that a client holds. It falls if FLUTE's penalty works. The methods are FLUTE and FLUTE*, both also without
their penalty, FedRep and FedRep*. `experiments.flute.flute_classification` has the same runs.

**Deviations**: as in `experiments.flute.flute_classification`.

References: Liu, Shen and Yang 2024, Appendix C.2 and Figures 5 to 12.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures

from ._classes import COLLAPSING, DIGITS, FEDREP_STAR, FLUTE, FLUTE_STAR, GAUSSIAN, NO_NC, NO_NC_STAR, Contest, contests
from ._classes_shown import Asked, along_rounds, difference, ends_of, medians

SUMMARY = "FLUTE paper, Appendix C.2, on digits and Gaussian classes: neural collapse of the heads (NC2)"
HEADLINES = (
    {"claim": "FLUTE* has a smaller Local NC2 than FedRep*", "among": ("digits: ", "on digits")},
    {"claim": "FLUTE* has a smaller Local NC2 than FedRep*", "among": ("Gaussian classes: ", "on Gaussian classes")},
)
CAPTIONS = {
    "": "Global and Local NC2 of the heads against rounds, at k = 3. Lines: median over trials; shaded: 10-90 %.",
    "digits": "Global and Local NC2 of the heads against rounds, at k = 4. Lines: median over trials; shaded: 10-90 %.",
}
PICTURES = {"": 2070, "digits": 2070}
REDUCED = {
    "runs": {
        "without": lambda row: (
            *("score", "tried_*", "*accuracy", "final_*_nc2", "own_classes"),
            *(() if row["rank"] in (3, 4) and (row["data"], row["n_clients"]) != (GAUSSIAN, 50) else ("*_nc2",)),
        )
    }
}

C2, LINEAR = "FLUTE paper, C.2, of CIFAR and a CNN", "a linear representation"
"""The paper claims nothing about other data and models; whether its findings carry over is our own question."""
LARGER = c.cite(
    C2,
    "In some results, such as those shown in Figure 5 and Figure 7, the gaps between FedRep* and FLUTE* in terms of "
    "Averaged Local NC2 are significantly larger than those in terms of Global NC2",
    asked_of=LINEAR,
)
"""Both figures have 2 classes per client."""
ELSEWHERE = c.OWN_CONJECTURE.adding("the paper names only its figures with 2 classes per client")
CLOSER = c.reading(f"{C2}, on the gaps between FedRep* and FLUTE*, asked of {LINEAR}; the direction is our reading")
TOGETHER = c.cite(C2, "these two metrics are positively correlated", asked_of=LINEAR)

KINDS = {"Global NC2": "global_nc2", "Local NC2": "local_nc2"}


DRAWN = tuple(method for method in COLLAPSING if method not in (NO_NC, NO_NC_STAR))
"""The figure leaves out the methods without their penalty on neural collapse; the claims do not."""


def cells(quick: bool) -> dict[str, list[Contest]]:
    """Return the methods whose NC2 is recorded, in every setting of both data sets."""
    return {"runs": contests(quick, COLLAPSING)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw NC2 against rounds at the smaller rank, for the fewest and the most clients."""
    figures: Figures = {}
    for data, runs in tables["runs"].groupby("data"):
        k = min(runs.unique("rank"))
        ends = ends_of(runs).select(rank=k)
        with along_rounds(ends, len(KINDS), len(KINDS)) as sheet:
            for line, column in enumerate(KINDS.values()):
                for ax, part in sheet.row(line):
                    lf.plot_curves(ax, part, "round", column, order=DRAWN)
            sheet.label("round", *KINDS, yscale="linear")
            sheet.legend(f"k = {k}; {medians(runs)}")
        figures["digits" if data == DIGITS else ""] = sheet.figure
    return figures


# --- claims --------------------------------------------------------------------------------------------------


def gaps(part: lf.Table, far: str, near: str) -> list[Any]:
    """Return how much smaller the final NC2 of one method is than another's, for both kinds; empty without both."""
    rows = [part.select(method=method) for method in (far, near)]
    if any(len(row) != 1 for row in rows):
        return []
    return [rows[0][f"final_{kind}"] - rows[1][f"final_{kind}"] for kind in KINDS.values()]


def smaller(far: str, near: str, kind: str) -> c.Statistic:
    """Return the difference of the final NC2 of two methods."""

    def measure(part: lf.Table) -> c.Measurement | None:
        found = dict(zip(KINDS, gaps(part, far, near), strict=False))
        return difference(found[kind], np.zeros_like(found[kind])) if found else None

    words = "mean difference of NC2 over paired trials"
    return c.measured(words, measure, c.above(0.0), rows=c.of(method=[far, near]))


def larger_in_local(part: lf.Table) -> c.Measurement | None:
    """Return the gap in Local NC2 minus that in Global NC2; VACUOUS without a gap in Local NC2."""
    found = gaps(part, FEDREP_STAR, FLUTE_STAR)
    if not found:
        return None
    of_all, of_local = found
    result = difference(of_local, of_all)
    no_gap = np.nanmean(of_local) <= 0 < result.value[0]
    return result._replace(vacuous="FLUTE* does not have the smaller Local NC2") if no_gap else result


def correlation(part: lf.Table) -> c.Measurement:
    """Return the correlation of Global and Local NC2 along the rounds, a mean over methods."""
    curves = [[row[kind][:, 1:] for kind in KINDS.values()] for row in part]
    of_trials = np.mean([[np.corrcoef(*both)[0, 1] for both in zip(*pair, strict=True)] for pair in curves], axis=0)
    return difference(of_trials, np.zeros(len(of_trials)))


WITHOUT = "without its penalty on neural collapse"
CLAIMS = (
    *(
        Asked(f"{near} has a smaller {kind} than {rival}", source, smaller(far, near, kind))
        for far, near, rival, source in (
            (FEDREP_STAR, FLUTE_STAR, FEDREP_STAR, CLOSER),
            (NO_NC, FLUTE, WITHOUT, c.OWN_PREDICTION),
            (NO_NC_STAR, FLUTE_STAR, WITHOUT, c.OWN_PREDICTION),
        )
        for kind in KINDS
    ),
    *(
        Asked(
            "FLUTE*'s gap to FedRep* is larger in Local NC2 than in Global NC2",
            source,
            c.measured(
                "mean difference of the two gaps over paired trials",
                larger_in_local,
                c.above(0.0),
                rows=c.of(method=[FEDREP_STAR, FLUTE_STAR]),
            ),
            where=c.only(partitions),
        )
        for source, partitions in (
            (LARGER, lambda row: row["classes_per_client"] == 2),
            (ELSEWHERE, lambda row: row["classes_per_client"] != 2),
        )
    ),
    Asked(
        "Global and Local NC2 are positively correlated along the rounds",
        TOGETHER,
        c.measured("correlation along the rounds, mean over trials and methods", correlation, c.above(0.0)),
    ),
)
