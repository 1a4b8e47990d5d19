"""FLUTE paper, Table 1, on real digits: accuracies of ten methods for clients that hold 2 or 5 of ten classes.

The images are the 1797 of 8 x 8 pixels of `lf.load_digits`, in [0, 1]. The representation is linear, ``B'x``, with
k = 4 columns, below the number of classes, and k = 16, above it. In four partitions, as in the paper's for CIFAR-10,
n = 50 or 100 clients hold 2 or 5 classes each. In a fifth, 50 clients hold shares drawn from a Dirichlet distribution
with concentration 0.3. A quarter of each client's images is held out: a client trains on about 27 images, or 13. Each
trial has its own split.

**Deviations**: the paper's images are CIFAR's and its representation is a convolutional network, which are out of
scope. Full-gradient steps replace epochs. The paper gives neither step sizes nor weights; all are tuned on five other
splits of the same images. FedCP is left out. All methods start from one random head, on which the paper says nothing.
Trials are splits of the same 1797 images: intervals cover only the split, and would be wider for new images.

Figures
-------
"" : Accuracy on each client's held-out images, averaged over clients. Error bars: standard error over trials. Dashed:
    FedAvg restricted to each client's own classes.
"curves" : Accuracy on held-out images against rounds. Lines: median over trials; shaded: 10-90 %.
"nc2" : Global and Local NC2 of the heads against rounds, at k = 4. Lines: median over trials; shaded: 10-90 %.

References: Liu, Shen and Yang 2024, section 7.2, Table 1 and Appendix C.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import linfed as lf
from linfed.plotting.panels import Figures
from linfed.statistics.findings import Finding

from ._classes import METHODS, WEIGHTS, Contest, figures, not_drawn
from ._classes_judged import judged

SUMMARY = "FLUTE paper, Table 1, on real digits: accuracies of FLUTE, FLUTE* and eight others, and NC2"
HEADLINES = (
    {"claim": "FLUTE is more accurate than FedRep"},
    {"claim": "FLUTE is more accurate than the best of the other baselines"},
    {"claim": "The gain of FLUTE over FedRep grows with the number of classes per client"},
    {"claim": "FLUTE is more accurate than the same algorithm without its penalty on neural collapse"},
)
PICTURES = {"": 2070, "nc2": 2070}
REDUCED = {"runs": {"without": partial(not_drawn, rank=4, clients=(50, 100))}}

TEST_SHARE, PIXELS = 0.25, 64


@cache
def split(n: int, classes: int, concentration: float, trials: int, seed: Any) -> lf.GivenClasses:
    """Split the images over clients in each trial, by classes, or by a Dirichlet distribution if `classes` is 0."""
    X, labels = lf.load_digits()
    common: dict[str, Any] = {"n_clients": n, "trials": trials, "seed": seed}
    if classes:
        clients = lf.classwise_split(labels, classes_per_client=classes, **common)
    else:
        clients = lf.dirichlet_split(labels, concentration=concentration, **common)
    return lf.GivenClasses.split(X, labels, clients, test_share=TEST_SHARE, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Digits(Contest):
    """One method on one partition; 0 classes per client stands for the Dirichlet distribution."""

    concentration: float = 0.3

    @property
    def partition(self) -> str:
        """The clients and their classes, as text."""
        if not self.classes_per_client:
            return f"n = {self.n_clients}, Dirichlet {self.concentration:g}"
        return f"n = {self.n_clients}, {self.classes_per_client} classes"

    def source(self, trials: int, seed: Any) -> dict[str, Any]:
        """Return the split images, as arguments of `lf.simulate`."""
        return {"data": split(self.n_clients, self.classes_per_client, self.concentration, trials, seed)}


def cells(quick: bool) -> dict[str, list[Digits]]:
    """Return every method on every partition at both ranks."""
    base, ranks = Digits(), (4, 16)
    partitions = ((50, 2), (50, 5), (100, 2), (100, 5), (50, 0))
    if quick:
        base = replace(base, rounds=5, trials=3, tuning_trials=1, steps=(0.2,), weights=WEIGHTS[:1])
        ranks, partitions = ranks[:1], ((20, 2), (20, 5), (20, 0))
    settings = [replace(base, n_clients=n, classes_per_client=c) for n, c in partitions]
    return {"runs": [cell for one in settings for cell in lf.grid(one, rank=ranks, method=METHODS)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw final accuracies, accuracies against rounds, and NC2."""
    return figures(tables["runs"].assign(dim=lambda _: PIXELS))


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Judge the paper's claims on its Table 1, and the further baselines."""
    return judged(tables["runs"])
