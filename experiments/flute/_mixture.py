"""The mixtures of Gaussian classes, as a setting of `_classes.Contest`, with the accuracy of the best classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import linfed as lf
from linfed.data.class_sources import held_out
from linfed.numerics.layers import composed

from ._classes import Contest

HELD_OUT = 100


@dataclass(frozen=True, kw_only=True)
class Mixture(Contest):
    """One method on one family of mixtures."""

    n_classes: int = 10
    dim: int = 30
    n_samples: int = 20
    separation: float = 3.0

    @property
    def partition(self) -> str:
        """The clients and their classes, as text."""
        return f"n = {self.n_clients}, {self.classes_per_client} classes"

    @property
    def problem(self) -> lf.Classes:
        """The problem, which draws the mixtures."""
        sizes = {name: getattr(self, name) for name in ("n_clients", "n_classes", "classes_per_client", "dim")}
        return lf.Classes(**sizes, separation=self.separation, test_samples=HELD_OUT)

    def source(self, trials: int, seed: Any) -> dict[str, Any]:
        """Return the problem and its data, as arguments of `lf.simulate`."""
        return {"problem": self.problem, "data": lf.FixedSamples(self.n_samples)}

    def run(self) -> dict[str, Any]:
        """Return the results of the method, and the accuracy of the best classifier on the same held-out samples."""
        best = self.best_accuracy(self.problem.truth(self.seed, range(self.trials)))
        return {**super().run(), "bayes": 100.0 * np.mean(best, axis=1)}

    def best_accuracy(self, truth: Any) -> Any:
        """Return the accuracy of the best classifier on each client's held-out samples, (trials, n)."""
        theta = composed(truth.B, truth.bayes())
        samples = held_out(truth, HELD_OUT, self.seed, range(self.trials))
        return samples.accuracies(lambda t, c: theta[t, c])
