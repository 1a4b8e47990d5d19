"""FLUTE paper, Table 1, on real digits: accuracies of ten methods where clients hold 2 or 5 of ten classes.

The images are the 1797 of 8 x 8 pixels of `lf.load_digits`, in [0, 1]; the representation is linear, ``B'x``, with
k = 4 columns, below the number of classes, and k = 16, above it. n = 50 or 100 clients hold 2 or 5 classes each (the
paper's four partitions of CIFAR-10), or, of 50 clients, shares drawn from a Dirichlet law with concentration 0.3. A
quarter of each client's images is held out: a client trains on about 27 images, or 13. Each trial has its own split.

**Deviations**: the paper's images are CIFAR's and its representation is a convolutional network, which are outside of
this package; full-gradient steps in the place of epochs; the paper gives neither steps nor weights, all are tuned here,
on five other splits of the same images; FedCP is left out. All methods begin at one random head, on which the paper
says nothing; the committed runs are of before, when FLUTE's heads began at random and all others at 0. Trials are
splits of the same 1797 images: intervals speak of splits, and would be wider for images that nobody has seen.

Figures
-------
"" : The mean accuracy on held-out images of the client's own, over clients, and its standard error over trials; dashed:
    FedAvg's one model, asked among the client's own classes alone.
"curves" : The accuracy against rounds; median and 10-90 % over trials.
"nc2" : Global and Local NC2 of the heads against rounds, at k = 4; median and 10-90 % over trials.

References: Liu, Shen and Yang 2024, section 7.2, Table 1 and Appendix C.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import linfed as lf
from linfed.plotting.panels import Figures
from linfed.statistics.findings import Finding

from ._classes import METHODS, WEIGHTS, Contest, figures
from ._classes_judged import judged

SUMMARY = "FLUTE paper, Table 1, on real digits: accuracies of FLUTE, FLUTE* and eight others, and NC2"

TEST_SHARE, PIXELS = 0.25, 64


@cache
def split(n: int, classes: int, concentration: float, trials: int, seed: Any) -> lf.GivenClasses:
    """Return the images of each client in each trial, cut by classes, or where there are none by Dirichlet's law."""
    X, labels = lf.load_digits()
    common: dict[str, Any] = {"n_clients": n, "trials": trials, "seed": seed}
    if classes:
        clients = lf.classwise_split(labels, classes_per_client=classes, **common)
    else:
        clients = lf.dirichlet_split(labels, concentration=concentration, **common)
    return lf.GivenClasses.split(X, labels, clients, test_share=TEST_SHARE, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Digits(Contest):
    """One method on one split; no classes per client is Dirichlet's."""

    concentration: float = 0.3

    @property
    def partition(self) -> str:
        """Clients and their classes, in words."""
        if not self.classes_per_client:
            return f"n = {self.n_clients}, Dirichlet {self.concentration:g}"
        return f"n = {self.n_clients}, {self.classes_per_client} classes"

    def source(self, trials: int, seed: Any) -> dict[str, Any]:
        """Return the split images."""
        return {"data": split(self.n_clients, self.classes_per_client, self.concentration, trials, seed)}


def cells(quick: bool) -> dict[str, list[Digits]]:
    """Return every method on every split at both ranks."""
    base, ranks = Digits(), (4, 16)
    partitions = ((50, 2), (50, 5), (100, 2), (100, 5), (50, 0))
    if quick:
        base = replace(base, rounds=5, trials=3, tuning_trials=1, steps=(0.2,), weights=WEIGHTS[:1])
        ranks, partitions = ranks[:1], ((20, 2), (20, 5), (20, 0))
    settings = [replace(base, n_clients=n, classes_per_client=c) for n, c in partitions]
    return {"runs": [cell for one in settings for cell in lf.grid(one, rank=ranks, method=METHODS)]}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Return accuracies, curves and NC2."""
    return figures(tables["runs"].assign(dim=lambda _: PIXELS))


def claims(tables: dict[str, lf.Table]) -> list[Finding]:
    """Return what the paper says of its Table 1, and the rivals."""
    return judged(tables["runs"])
