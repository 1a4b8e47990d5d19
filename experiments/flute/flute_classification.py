"""FLUTE paper, section 7.2 and Table 1, on digits and on Gaussian classes: accuracies of ten methods.

Clients hold 2 or 5 of ten classes, and predict held-out samples. There are two data sets.

**Digits**: the 1797 images of 8 x 8 pixels of `lf.load_digits`, in [0, 1], which need scikit-learn and are left out
without it. The representation is linear, ``B'x``, with k = 4 columns, below the number of classes, and k = 16, above
it. In four partitions, as in the paper's for CIFAR-10, n = 50 or 100 clients hold 2 or 5 classes each. In a fifth, 50
clients hold shares drawn from a Dirichlet distribution with concentration 0.3. A quarter of each client's images is
held out: a client trains on about 27 images, or 13. Each trial has its own split of the same 1797 images: intervals
cover only the split, and would be wider for new images.

**Gaussian classes**: the means of ten classes lie in r = 9 of d = 30 dimensions, at a root mean square distance of 3
from their centre. The samples have standard deviation 1 about their mean (`lf.Classes`). There are 20, 50 or 100
clients, each with 2 or 5 classes, m = 20 samples for training and 100 held-out samples. The representation has k = 3
columns, fewer than the dimensions of the means, or k = 9. The accuracy of the best classifier at the true means is
known (`ClassTruth.bayes`).

**Deviations**: the paper's images are CIFAR's and its representation is a convolutional network, which are out of
scope; the Gaussian classes are our choice. Full-gradient steps replace epochs. The paper gives neither step sizes nor
weights; all are tuned on five other splits or mixtures. FedCP is left out. All methods start from one random head, on
which the paper says nothing. A trial that diverges counts as an accuracy of 0. The methods and the further baselines
are in `experiments.flute._classes`.

References: Liu, Shen and Yang 2024, sections 6 and 7.2, Table 1, Appendices B and C.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

import linfed as lf
import linfed.claims as c
from linfed.figures.style import label, line_style
from linfed.plotting.panels import Figures

from ._classes import (
    BASELINES,
    DIGITS,
    FEDAVG,
    FEDREP,
    FEDREP_STAR,
    FLUTE,
    FLUTE_STAR,
    GAUSSIAN,
    LOCAL_ONLY,
    METHODS,
    NO_NC,
    NO_NC_STAR,
    PER,
    Contest,
    contests,
)
from ._classes_shown import Asked, along_rounds, difference, ends_of, medians

SUMMARY = "FLUTE paper, Table 1, on digits and Gaussian classes: accuracies of FLUTE, FLUTE* and eight others"
HEADLINES = (
    {"claim": "FLUTE is more accurate than FedRep", "among": ("digits: ", "on digits")},
    {"claim": "FLUTE is more accurate than FedRep", "among": ("Gaussian classes: ", "on Gaussian classes")},
    {"claim": "FLUTE is more accurate than the best of the other baselines", "among": ("digits: ", "on digits")},
    {
        "claim": "FLUTE is more accurate than the best of the other baselines",
        "among": ("Gaussian classes: ", "on Gaussian classes"),
    },
    {
        "claim": "The gain of FLUTE over FedRep grows with the number of classes per client",
        "among": ("digits: ", "on digits"),
    },
    {
        "claim": "FLUTE is more accurate than the same algorithm without its penalty on neural collapse",
        "among": ("digits: ", "on digits"),
    },
)
CAPTIONS = {
    "": "Accuracy on each client's held-out samples of its own classes, averaged over clients. Error bars: standard "
    "error over trials. Dashed: FedAvg restricted to each client's own classes; dotted: the best classifier.",
    "curves": "Accuracy on held-out samples against rounds. Lines: median over trials; shaded: 10-90 %.",
    "digits": "Accuracy on each client's held-out images, averaged over clients. Error bars: standard error over "
    "trials. Dashed: FedAvg restricted to each client's own classes.",
    "digits-curves": "Accuracy on held-out images against rounds. Lines: median over trials; shaded: 10-90 %.",
}
PICTURES = {"": 2070, "digits": 2070}
DRAWN = (FEDAVG, FEDREP, FEDREP_STAR, FLUTE, FLUTE_STAR, LOCAL_ONLY)
"""Methods whose accuracy is drawn against rounds, for the fewest and the most clients."""
REDUCED = {
    "runs": {
        "without": lambda row: (
            *("score", "tried_*", "*_nc2"),
            *(() if row["method"] in DRAWN and (row["data"], row["n_clients"]) != (GAUSSIAN, 50) else ("accuracy",)),
        )
    }
}

TABLE1, LINEAR = "FLUTE paper, section 7.2, Table 1, of CIFAR and a CNN", "a linear representation"
"""The paper claims nothing about other data and models; whether its findings carry over is our own question."""
OUTPERFORM = c.cite(
    TABLE1,
    "FLUTE and FLUTE* consistently outperform other baseline algorithms in all experiments conducted on CIFAR-10 and "
    "CIFAR-100 datasets",
    asked_of=LINEAR,
)
ALL_COLUMNS = c.reading(f"{TABLE1}, asked of {LINEAR}: in all eight columns")
GAIN_GROWS = c.cite(TABLE1, "the gain of FLUTE and FLUTE* becomes more prominent with larger N and m", asked_of=LINEAR)


def cells(quick: bool) -> dict[str, list[Contest]]:
    """Return every method in every setting of both data sets; quick: few rounds, trials and clients, one rank."""
    return {"runs": contests(quick, METHODS)}


# --- figures -------------------------------------------------------------------------------------------------


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw final accuracies, and accuracies against rounds, for the fewest and the most clients."""
    figures: Figures = {}
    for data, runs in tables["runs"].groupby("data"):
        ends = ends_of(runs)
        ranks = [f"k = {rank}\naccuracy (%)" for rank in runs.unique("rank")]
        with along_rounds(ends, "rank", len(ranks)) as sheet:
            sheet.curves("round", "accuracy", order=DRAWN)
            sheet.label("round", *ranks, yscale="linear", ylim=(45, 101))
            sheet.legend(medians(runs))
        name = "digits" if data == DIGITS else ""
        figures |= {name: accuracies(ends), f"{name}-curves".strip("-"): sheet.figure}
    return figures


def accuracies(runs: lf.Table) -> Any:
    """Draw the mean accuracy of every method: a column of panels for each partition, a row for each rank."""
    ranks, lines = runs.unique("rank"), {"own_classes": (4, 2), "bayes": (1, 1)}
    height = 1.0 + 1.9 * len(ranks)
    with lf.panels(runs, column="partition", row="rank", title="{}", height=height, sharex="col") as sheet:
        for ax, part in sheet:
            for place, row in enumerate(reversed(part.rows)):
                values = accuracies_of(row)
                mean, error = values.mean(), stats.sem(values)
                shape = line_style(str(row["method"])) | {"linestyle": "none", "capsize": 1.5, "markersize": 4}
                ax.errorbar(mean, place, xerr=error, **shape)
            (one,) = part.select(method=FEDAVG).rows
            for name, dashes in lines.items():
                if name in one:
                    ax.axvline(np.nanmean(one[name]), color="0.4", linewidth=0.8, linestyle=(0, dashes), zorder=0)
            ax.set_yticks(range(len(part)), [method_label(row["method"]) for row in reversed(part.rows)])
            ax.label_outer(remove_inner_ticks=True)
        sheet.label("accuracy (%)", *(f"k = {rank}" for rank in ranks))
        bayes_note = "; dotted: the best classifier" if "bayes" in runs.rows[0] else ""
        trials = f"mean and standard error of {runs.rows[0]['trials']} trials"
        sheet.figure.suptitle(f"{trials}; dashed: FedAvg among own classes{bayes_note}", fontsize=8)
    return sheet.figure


def method_label(method: str) -> str:
    """Return the name of a method in figures and findings."""
    return method if method == PER else label(method)


def accuracies_of(row: lf.Table, column: str = "final_accuracy") -> Any:
    """Return the accuracies in percent (trials,); a diverged trial has 0."""
    return np.nan_to_num(row[column], nan=0.0)


# --- claims --------------------------------------------------------------------------------------------------


def more_accurate(first: str, rivals: Sequence[str], column: str = "final_accuracy") -> c.Statistic:
    """Return the difference of the accuracies of a method and a competitor, the best one on the tuning trials."""

    def best(part: lf.Table) -> lf.Table:
        """Return the rows of the method and of its competitor; no claim is judged on the tuning trials."""
        found = [row for row in part.rows if row["method"] in rivals]
        errors = [row["score"].values[row["best"]] for row in found] if len(found) > 1 else []
        rival = found[int(np.argmin(errors)) if errors else 0]["method"] if found else ""
        return part.select(method=[first, rival])

    def measure(part: lf.Table) -> c.Measurement | None:
        values = {str(row["method"]): accuracies_of(row, column) for row in part}
        if len(values) < 2:
            return None
        mine = values.pop(first)
        ((rival, other),) = values.items()
        detail = method_label(rival) if len(rivals) > 1 else ""
        return difference(mine, other, detail=detail, note=c.diverged_note(part))

    words = "mean difference in accuracy over paired trials, percentage points"
    return c.measured(words, measure, c.above(0.0), rows=best)


def grows(method: str, rival: str, size: str, other: str, symbol: str, words: str) -> c.Claim:
    """Return the claim that the gain of a method over a competitor grows with a size, at each value of another."""

    def gain(part: lf.Table) -> Any:
        return accuracies_of(part.select(method=method)) - accuracies_of(part.select(method=rival))

    def measure(less: lf.Table, more: lf.Table) -> c.Measurement | None:
        both = len(less) == len(more) == 2
        return difference(gain(more), gain(less), paired=False) if both else None

    statistic = "difference of the mean gains in accuracy, percentage points"
    return c.Claim(
        f"The gain of {method} over {rival} grows with the {words}",
        GAIN_GROWS,
        c.measured(statistic, measure, c.above(0.0), rows=c.of(method=[method, rival])),
        where=c.only(lambda row: row["classes_per_client"] > 0),
        over=c.successive(size, c.each("data", "rank", other)),
        setting=f"{{data}}: k = {{rank}}, {symbol} = {{{other}}}: {{1[{size}]}} against {{0[{size}]}}",
    )


PAIRS = ((FLUTE, FEDREP, NO_NC), (FLUTE_STAR, FEDREP_STAR, NO_NC_STAR))
CLAIMS = (
    *(
        Asked(f"{method} is more accurate than {rival}", OUTPERFORM, more_accurate(method, [rival]))
        for method, rival, _ in PAIRS
    ),
    *(
        Asked(
            f"{method} is more accurate than the best of the other baselines",
            OUTPERFORM,
            more_accurate(method, BASELINES),
        )
        for method, *_ in PAIRS
    ),
    Asked("FLUTE* is more accurate than FLUTE", ALL_COLUMNS, more_accurate(FLUTE_STAR, [FLUTE])),
    *(
        claim
        for method, rival, without in PAIRS
        for claim in (
            Asked(
                f"{method} is more accurate than the same algorithm without its penalty on neural collapse",
                c.OWN_PREDICTION,
                more_accurate(method, [without]),
            ),
            Asked(
                f"{method} without its penalty on neural collapse is more accurate than {rival}",
                c.OWN_PREDICTION,
                more_accurate(without, [rival]),
            ),
        )
    ),
    Asked(
        "Each client's own softmax regression, without federation, is more accurate than the best federated method "
        "that predicts all classes",
        c.OWN_PREDICTION,
        more_accurate(LOCAL_ONLY, (*BASELINES, FLUTE, FLUTE_STAR)),
    ),
    Asked(
        "Restricted to the client's own classes, FedAvg is more accurate than the best other method without this "
        "restriction",
        c.OWN_PREDICTION,
        more_accurate(FEDAVG, [method for method in METHODS if method != FEDAVG], "own_classes"),
    ),
    *(
        grows(method, rival, *axis)
        for method, rival, _ in PAIRS
        for axis in (
            ("n_clients", "classes_per_client", "c_i", "number of clients"),
            ("classes_per_client", "n_clients", "n", "number of classes per client"),
        )
    ),
)
