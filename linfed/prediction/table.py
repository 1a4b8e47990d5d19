"""Table of the predicted quantities for each kind of run, shown by `predict` and in the guide."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from linfed.algorithms.averaging import SCAFFOLD, ClusterFedVARP, FedAvg, FedProx, FedRolex, FedSCAVAR, FedVARP
from linfed.algorithms.baselines.local_only import LocalOnly
from linfed.algorithms.baselines.oracle import Oracle
from linfed.algorithms.one_round.empirical_risk import BurerMonteiro
from linfed.algorithms.one_round.estimators import LocalGram, MethodOfMoments, TwoReplica, UStatistic
from linfed.algorithms.parts.base import Algorithm
from linfed.algorithms.personal import APFL, L2GD, Ditto, PerFedAvg, PFedMe
from linfed.algorithms.representation.altmin import AltMin
from linfed.algorithms.representation.compressed_fedrep import CompressedFedRep
from linfed.algorithms.representation.fedrep import FedRep
from linfed.algorithms.representation.flute import FLUTE
from linfed.algorithms.representation.private_fedrep import PrivateFedRep
from linfed.prediction.fedrep import MINIMUM, NARROW, STILL
from linfed.prediction.laws import (
    COMPRESSED,
    GRADIENT_HEADS,
    LARGEST_RANK,
    MEANS,
    NEAR,
    NOISE_ALONE,
    NOISY_MESSAGES,
    SECOND_ORDER,
    UNDER_PARAMETERISED,
    WITHOUT_QR,
)
from linfed.prediction.others import SERVED, SPECTRAL
from linfed.prediction.personal import MIXED_VALID, VALID

NEAR_END = ("floor", "rate", "stability_edge", "best_step")

WIDTH = 112


class Entry(NamedTuple):
    """Predicted quantities for one kind of run.

    Parameters
    ----------
    algorithms : tuple of classes
        Algorithms of the runs.
    runs : str
        Conditions on the runs.
    predicted : tuple of str
        Names of the available attributes of `Prediction`.
    range : str
        Range in which the prediction holds.
    """

    algorithms: tuple[type[Algorithm], ...]
    runs: str
    predicted: tuple[str, ...]
    range: str

    @property
    def title(self) -> str:
        """Algorithms and conditions on the runs."""
        return f"{', '.join(one.__name__ for one in self.algorithms)}: {self.runs}"


FAMILY = (FedAvg, FedProx, SCAFFOLD, FedVARP, ClusterFedVARP, FedSCAVAR)

ENTRIES = (
    Entry(
        (FedRep,),
        f"exact heads, fresh samples, m >= k + 4 for all clients, k <= {LARGEST_RANK}",
        ("distance", "low", "high", *NEAR_END),
        SECOND_ORDER.validity,
    ),
    Entry(
        (FedRep,),
        f"exact heads, fresh samples, m = k + 2 or k + 3 for a client, or k > {LARGEST_RANK}",
        ("distance", *NEAR_END),
        MEANS.validity,
    ),
    Entry(
        (PrivateFedRep,),
        "noise on messages without clipping, exact heads, fresh samples, m >= k + 2",
        ("distance", *NEAR_END),
        NOISY_MESSAGES.validity,
    ),
    Entry(
        (CompressedFedRep,),
        "sparsified messages, exact heads, fresh samples, m >= k + 2",
        NEAR_END,
        COMPRESSED,
    ),
    Entry((FedRep,), "gradient heads, fresh samples", ("distance",), GRADIENT_HEADS.validity),
    Entry(
        (FedRep,),
        "exact heads, fresh samples, ground truth of rank r > k",
        ("distance", "floor", "rate"),
        f"distance from the top-k subspace; {UNDER_PARAMETERISED.validity}",
    ),
    Entry(
        (FedRep,),
        "exact heads, fresh samples, ground truth of rank r < k, m >= k + 2 (low and high from k + 4 on), d >= k + r",
        ("distance", "low", "high", *NEAR_END),
        f"{NARROW}{SECOND_ORDER.validity}",
    ),
    Entry(
        (FedRep,),
        "exact heads, fresh samples, orthonormalize = False, one step size, m >= k + 2",
        ("distance",),
        WITHOUT_QR.validity,
    ),
    Entry((FedRep,), "exact heads, fresh samples, k < d < 2k, m >= k + 2", NEAR_END, NEAR),
    Entry((FedRep,), "k = d", ("distance",), "exact: B spans the whole space"),
    Entry(
        (PrivateFedRep,),
        "noise on messages without clipping, exact heads, fresh samples, m <= k",
        ("distance",),
        NOISE_ALONE.validity,
    ),
    Entry((FedRep, PrivateFedRep, CompressedFedRep), "exact heads, m <= k, no noise on messages", ("distance",), STILL),
    Entry(
        (FedRep,),
        "exact heads, fixed samples",
        ("floor",),
        MINIMUM,
    ),
    Entry((AltMin, BurerMonteiro), "fixed samples, all clients participate", ("floor",), MINIMUM),
    Entry(
        (FLUTE,),
        "fresh samples, Gaussian x, all clients participate",
        ("floor", "rate", "stability_edge"),
        "near the truncation to rank k; the rate at population, the floor in mean square; the edge in mean square, for "
        "a ground truth of rank k without label noise",
    ),
    Entry(
        (FLUTE,),
        "fixed samples, all clients participate",
        NEAR_END,
        "near the truncation to rank k, at population; the floor to first order in 1/m",
    ),
    Entry(
        FAMILY,
        "one layer, fixed or given samples, full gradients",
        NEAR_END,
        "exact for these samples; with partial participation, in mean square over participants",
    ),
    Entry(
        (FedRolex,),
        "one layer, fixed or given samples, full gradients",
        NEAR_END,
        "exact for these samples, for the limit cycle of the windows",
    ),
    Entry(
        (Ditto, APFL, PFedMe, PerFedAvg), "fixed or given samples, all clients participate", ("floor", "rate"), VALID
    ),
    Entry((L2GD,), "fixed or given samples, all clients participate, n d <= 400", ("floor", "rate"), MIXED_VALID),
    Entry(
        (MethodOfMoments, UStatistic, TwoReplica, LocalGram),
        "Gaussian x, all clients participate",
        ("floor",),
        SPECTRAL,
    ),
    Entry((LocalOnly,), "least squares or ridge, Gaussian x", ("floor",), SERVED),
    Entry((Oracle,), "Gaussian x", ("distance", "floor"), f"distance 0; floor: {SERVED}"),
)
"""All kinds of runs with predictions."""


def table() -> str:
    """Return the table as text, with predicted quantities and range for each kind of run."""
    lines = []
    for entry in ENTRIES:
        for start, text in (
            ("", entry.title),
            ("    predicted: ", ", ".join(entry.predicted)),
            ("    range: ", entry.range),
        ):
            after = "      " if start else "  "
            lines += textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=after)
    return "\n".join(lines)


def markdown_table() -> str:
    """Return the table as Markdown, without the ranges."""
    rows = [
        f"| {', '.join(one.__name__ for one in entry.algorithms)} | {entry.runs} | "
        f"{', '.join(f'`{name}`' for name in entry.predicted)} |"
        for entry in ENTRIES
    ]
    return "\n".join(["| algorithm | runs | predicted |", "|---|---|---|", *rows])
