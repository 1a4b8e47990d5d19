"""FLUTE paper, section 7.2, on a mixture of Gaussian classes: which methods gain from the penalty on neural collapse.

The means of ten classes lie in r = 9 of d = 30 dimensions, at a root mean square distance of 3 from their centre. x has
standard deviation 1 about its mean (`lf.Classes`). n = 20, 50 or 100 clients hold 2 or 5 classes each and train on
m = 20 samples; 100 more of each client are held out. The representation has k = 3 columns, fewer than the span of the
means, or k = 9, as many. The accuracy of the best classifier at the true means is known (`ClassTruth.bayes`).

**Deviations**: the paper has images and a convolutional network in this section and no synthetic classes; the whole
setting is our choice. Full-gradient steps replace epochs, and step sizes and weights are tuned on five other mixtures.
FedCP is left out. All methods start from one random head, on which the paper says nothing.

Figures
-------
"" : Accuracy on each client's held-out samples of its own classes, averaged over clients. Error bars: standard error
    over trials. Dashed: FedAvg restricted to each client's own classes; dotted: the best classifier.
"curves" : Accuracy on held-out samples against rounds. Lines: median over trials; shaded: 10-90 %.
"nc2" : Global and Local NC2 of the heads against rounds, at k = 3. Lines: median over trials; shaded: 10-90 %.

References: Liu, Shen and Yang 2024, sections 6 and 7.2, Appendices B and C.2.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import linfed as lf
from linfed.plotting.panels import Figures
from linfed.statistics.findings import Finding

from ._classes import METHODS, WEIGHTS, figures, not_drawn
from ._classes_judged import judged
from ._mixture import Mixture

SUMMARY = "FLUTE paper, section 7.2, on Gaussian classes: FLUTE and FLUTE* against eight methods, and NC2"
HEADLINES = (
    {"claim": "FLUTE is more accurate than FedRep"},
    {"claim": "FLUTE is more accurate than the best of the other baselines"},
)
PICTURES = {"": 2070, "nc2": 2070}
REDUCED = {"runs": {"without": partial(not_drawn, rank=3, clients=(20, 100))}}


def cells(quick: bool) -> dict[str, list[Mixture]]:
    """Return every method in every setting at both ranks."""
    base, clients, ranks = Mixture(), (20, 50, 100), (3, 9)
    if quick:
        base = replace(base, rounds=5, trials=3, tuning_trials=1, steps=(0.2,), weights=WEIGHTS[:1])
        clients, ranks = (5, 10), ranks[:1]
    class_counts = (2, 5)
    return {"runs": lf.grid(base, n_clients=clients, classes_per_client=class_counts, rank=ranks, method=METHODS)}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw final accuracies, accuracies against rounds, and NC2."""
    return figures(tables["runs"])


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the paper's claims on its Table 1, and the further baselines."""
    return judged(tables["runs"])
