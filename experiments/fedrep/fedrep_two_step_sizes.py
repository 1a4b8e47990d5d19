"""FedRep paper, Figure 3, with other rivals: 10GD-GD and GD-GD with one step size for the heads and another one for B.

In Algorithm 1 and in `fedrep-fig3` gradient steps on heads and on B share one step size, which the heads limit. FedRep
needs none for its heads. Here its rivals have two step sizes, tuned together over all pairs of two grids, for the
fewest rounds in which nine of ten runs reach distance 0.05 and keep it. Sizes, noise and starts are those of
`experiments.fedrep.fedrep_fig3`. There are five tuning trials at n = 10,000, so that all pairs fit in memory together,
and ten at other n. At n = 10 a round has fewer participants than columns of B; these runs are left out.

**Deviations**: the paper has one step size.

References: Collins, Hassani, Mokhtari and Shakkottai 2021, section 5.1 and Figure 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import linfed as lf
from linfed.figures.style import KINDS
from linfed.plotting.panels import Figures

from ._fedrep import NOISE_VARIANCE
from .fedrep_fig3 import ACCELERATES, HEAD_STEPS, IS_FASTEST, SCALE_BADLY, Curve, draw, fewer, gains_less, paper

SUMMARY = "FedRep paper, Figure 3, with a step size for the heads and another one for B in FedRep's rivals"
PICTURES = {"": 2070}
CAPTIONS = {
    "": "Subspace distance against rounds, for different numbers of clients, with the paper's conventions. Lines: "
    "median over trials; shaded: 10-90 %. Step sizes are tuned for the fewest rounds to keep distance 0.05 (dashed).",
    "notebook": "Squared subspace distance against rounds, for different numbers of clients, with the conventions of "
    "the authors' notebook. Lines: median over trials, until half of them have diverged; shaded: 10-90 %. Step sizes "
    "are tuned for the fewest rounds to keep distance 0.05 (dashed, squared).",
}

TWO = " with two step sizes"
TEN, ONE = RIVALS = ("10GD-GD" + TWO, "GD-GD" + TWO)
ALTERED = "another step size for the heads"


@dataclass(frozen=True, kw_only=True)
class TwoSteps(Curve):
    """FedRep, or a rival with two step sizes, at one number of clients."""

    method: str = lf.choice(("FedRep", *RIVALS), "FedRep")
    head_steps: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7)

    @property
    def updates(self) -> int:
        """Gradient steps on the heads in a round."""
        return HEAD_STEPS[self.method.removesuffix(TWO)]

    def settings(self) -> list[lf.FedRep]:
        """Return the method at all its pairs of step sizes."""
        if self.method == "FedRep":
            return super().settings()
        return [self.at(step, head_step) for step in self.steps for head_step in self.head_steps]


def cells(quick: bool) -> dict[str, list[TwoSteps]]:
    """Return all methods at all numbers of clients, with the paper's and with the notebook's conventions."""
    base, sizes = TwoSteps(), [(100, 50, 10), (1000, 20, 10), (10_000, 20, 5)]
    if quick:
        base = TwoSteps(n_rounds=120, steps=(0.1, 0.3, 0.7, 2.0), head_steps=(0.1, 0.3))
        sizes = [(100, 10, 2), (1000, 10, 2)]
    axes: dict[str, Any] = {
        "preset, noise_variance": list(NOISE_VARIANCE.items()),
        "n_clients, trials, tuning_trials": sizes,
        "method": ("FedRep", *RIVALS),
    }
    return {"curves": lf.grid(base, **axes)}


CLAIMS = (
    *(fewer("FedRep", rival, paper(IS_FASTEST, asked_of=ALTERED)) for rival in RIVALS),
    fewer(TEN, ONE, paper(ACCELERATES, asked_of=ALTERED)),
    *(gains_less(rival, paper(SCALE_BADLY, asked_of=ALTERED)) for rival in RIVALS),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the distance with the paper's conventions, and its square with the notebook's."""
    return draw(tables["curves"], ("FedRep", *RIVALS), looks={TEN: KINDS[8], ONE: KINDS[10]})
