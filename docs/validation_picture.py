"""Draw docs/validation.png: linfed's curves and means on those of published code, and the differences below.

Run ``python docs/validation_picture.py`` after ``python -m tests.validation.comparisons``. The picture carries the hash
of this file and of the comparisons, which `tests/test_docs.py` checks.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from linfed.figures.style import KINDS, LOOKS, PAGE_WIDTH, draw_level, style
from tests.validation.comparisons import WRITTEN, Replay, replays

PICTURE = Path(__file__).with_name("validation.png")
DIGEST = "drawn"
SERIES = (
    ("method of moments", "clients", 20, "moments,\n20 clients", (4.2e4, 0.99)),
    ("method of moments", "samples", 25, "moments,\nm = 25", (9e4, 0.47)),
    ("method of moments", "samples", 5, "moments,\nm = 5", (2.4e4, 0.72)),
    ("empirical risk minimiser", "clients", 20, "risk minimiser,\n20 clients", (1.4e4, 0.19)),
)
"""Estimator, the size that does not change, its value, and the label of each line of means with its place."""
LABELS = {
    "100 of 100 clients": (47, 3e-5, "right"),
    "30 of 100 clients": (119, 4e-1, "right"),
    "FedRep": (28, 1e-3, "right"),
    "10GD-GD": (44, 0.2, "center"),
    "GD-GD": (44, 1.15, "center"),
}
"""Place of the label of each curve."""


def draw_replays(above: Axes, below: Axes, found: Sequence[tuple[str, str, Replay]]) -> None:
    """Draw squared distances per round, theirs wide and pale, ours thin, and their relative differences below."""
    for label, colour, one in found:
        rounds = np.arange(len(one.theirs))
        above.plot(rounds, one.theirs, color=colour, alpha=0.35, linewidth=4.0, solid_capstyle="round")
        above.plot(rounds, one.ours, color=colour, linewidth=0.9)
        *place, side = LABELS[label]
        above.text(*place, label, color=colour, fontsize=7, ha=side)
        difference = np.abs(one.ours / one.theirs - 1)
        below.plot(rounds[difference > 0], difference[difference > 0], ".", color=colour, markersize=2.5)
    draw_level(below, found[0][2].tolerance, "limit of the tests")
    above.set(yscale="log")
    below.set(yscale="log", ylim=(1e-17, 1e-11), xlabel="round")


def draw_statistics(above: Axes, below: Axes, written: dict[str, Any]) -> None:
    """Draw mean distances against the number of all samples, and the p-values of all comparisons below."""
    rows = written["statistics"]
    for (estimator, fixed, value, label, place), (colour, *_) in zip(SERIES, KINDS, strict=False):
        line = [
            row
            for row in rows
            if (row["estimator"], row["quantity"], row[fixed]) == (estimator, "subspace distance", value)
        ]
        samples = [row["clients"] * row["samples"] for row in line]
        means = np.array([row["ours"][0] for row in line])
        errors = [1.96 * row["ours"][1] / row["ours"][2] ** 0.5 for row in line]
        above.plot(samples, [row["theirs"][0] for row in line], "o", color=colour, fillstyle="none", markersize=5)
        above.errorbar(samples, means, errors, color=colour, linewidth=0.9, capsize=2)
        above.text(
            *place,
            label,
            color=colour,
            fontsize=7,
            ha="right" if "m = 5" in label or "risk" in label else "left",
            va="center",
        )
    for quantity, marker in (("subspace distance", "o"), ("new client's error", "x")):
        some = [row for row in rows if row["quantity"] == quantity and row["clients"]]
        samples = [row["clients"] * row["samples"] for row in some]
        below.plot(samples, [row["p_value"] for row in some], marker, color="0.35", markersize=3, label=quantity)
    draw_level(below, written["level"] / len(rows), "limit of the tests", below=True)
    above.set(xscale="log", ylim=(0, 1.05), ylabel="mean subspace distance")
    below.set(xscale="log", yscale="log", ylim=(1e-4, 1.5), xlabel="samples of all clients", ylabel="p-value")
    below.legend(loc="lower left", bbox_to_anchor=(0.0, 0.2), handletextpad=0.2)


def draw_key(ax: Axes, handles: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Draw a legend in grey of the two sides of a comparison."""
    for label, look in handles:
        ax.plot([], [], color="0.35", label=label, **look)
    ax.legend(loc="lower left")


def digest() -> str:
    """Return the hash of this file and of the comparisons."""
    return hashlib.sha256(Path(__file__).read_bytes() + WRITTEN.read_bytes()).hexdigest()


def draw() -> None:
    """Draw the picture."""
    import matplotlib.pyplot as plt

    runs = [one for one in replays() if one.quantity == "squared distance"]
    first = [
        (f"{one.run.split(', ')[1]}", colour, one)
        for one, colour in zip(runs[:2], (LOOKS["FedRep"][0], LOOKS["FedAvg"][0]), strict=True)
    ]
    second = [(one.method, LOOKS[one.method][0], one) for one in runs[2:]]
    with style():
        figure, axes = plt.subplots(
            2, 3, figsize=(PAGE_WIDTH, 3.9), layout="constrained", sharex="col", height_ratios=(1.6, 1.0)
        )
        draw_replays(*axes[:, 0], first)
        draw_replays(*axes[:, 1], second)
        draw_statistics(*axes[:, 2], json.loads(WRITTEN.read_text(encoding="utf-8")))
        draw_key(axes[0, 0], (("notebook", {"alpha": 0.35, "linewidth": 4.0}), ("linfed", {"linewidth": 0.9})))
        draw_key(
            axes[0, 2],
            (
                ("stored mean", {"marker": "o", "fillstyle": "none", "linestyle": "", "markersize": 5}),
                ("linfed, 95 %", {"marker": "_", "linewidth": 0.9, "markersize": 5}),
            ),
        )
        axes[0, 0].set_ylabel("squared subspace distance")
        axes[1, 0].set_ylabel("relative difference")
        titles = ("FedRep notebook, Figure 1", "FedRep notebook, Figure 3", "Tripuraneni, Jin and Jordan")
        for ax, title in zip(axes[0], titles, strict=True):
            ax.set_title(title)
        figure.savefig(PICTURE, dpi=200, metadata={DIGEST: digest(), "Software": None})
        plt.close(figure)


if __name__ == "__main__":
    mpl.use("Agg")
    draw()
