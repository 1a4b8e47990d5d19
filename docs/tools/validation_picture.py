"""Draw docs/figures/validation.png: linfed's curves and means on those of published code, and the differences below.

Run ``python -m docs.tools.validation_picture`` after ``python -m tests.validation.comparisons``. The picture carries
the hash of this file and of the comparisons, which `tests/docs/test_pictures.py` checks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from docs.tools.paths import FIGURES
from linfed.figures.style import KINDS, LOOKS, PAGE_WIDTH, draw_level, style
from tests.validation.comparisons import WRITTEN, Replay, replays

PICTURE = FIGURES / "validation.png"
DIGEST = "drawn"
CURVES = (
    ("100 of 100\nclients", LOOKS["FedRep"][0], (46, 3e-5, "right")),
    ("30 of 100\nclients", LOOKS["FedAvg"][0], (119, 0.3, "right")),
    ("FedRep", LOOKS["FedRep"][0], (27, 8e-4, "right")),
    ("10GD-GD", LOOKS["10GD-GD"][0], (42, 0.2, "center")),
    ("GD-GD", LOOKS["GD-GD"][0], (42, 1.2, "center")),
)
"""Label, colour and place of the label of each replayed curve: two of Figure 1, three of Figure 3."""
MEANS = (
    ("method of moments", "clients", 20, "moments,\n20 clients", (1.8e5, 0.72, "left")),
    ("method of moments", "samples", 25, "moments,\nm = 25", (1.1e5, 0.45, "left")),
    ("method of moments", "samples", 5, "moments,\nm = 5", (2.3e4, 0.72, "right")),
    ("empirical risk minimiser", "clients", 20, "risk minimiser,\n20 clients", (3.6e4, 0.29, "left")),
)
"""Estimator, the size that does not change, its value, and the label of each line of means with its place."""


def write(ax: Axes, label: str, colour: str, place: tuple[float, float, str]) -> None:
    """Write the label of a line."""
    x, y, side = place
    ax.text(x, y, label, color=colour, fontsize=7, ha=side, va="center")


def draw_replays(above: Axes, below: Axes, found: Sequence[Replay], curves: Sequence[tuple[str, str, Any]]) -> None:
    """Draw squared distances per round, theirs wide and pale, ours thin, and their relative differences below."""
    for one, (label, colour, place) in zip(found, curves, strict=True):
        rounds = np.arange(len(one.theirs))
        above.plot(rounds, one.theirs, color=colour, alpha=0.35, linewidth=4.0, solid_capstyle="round")
        above.plot(rounds, one.ours, color=colour, linewidth=0.9)
        write(above, label, colour, place)
        difference = np.abs(one.ours / one.theirs - 1)
        below.plot(rounds[difference > 0], difference[difference > 0], ".", color=colour, markersize=2.5)
    draw_level(below, found[0].tolerance, "limit of the tests")
    above.set(yscale="log")
    below.set(yscale="log", ylim=(1e-17, 1e-11), xlabel="round")


def draw_statistics(above: Axes, below: Axes, written: dict[str, Any]) -> None:
    """Draw mean distances against the number of all samples, and the p-values of all comparisons below."""
    rows = [row | {"all": (row["clients"] or 0) * (row["samples"] or 0)} for row in written["statistics"]]
    for (estimator, fixed, value, label, place), (colour, *_) in zip(MEANS, KINDS, strict=False):
        named = (estimator, "subspace distance", value)
        line = [row for row in rows if (row["estimator"], row["quantity"], row[fixed]) == named]
        samples, theirs = [row["all"] for row in line], [row["theirs"][0] for row in line]
        means, stds, sizes = np.transpose([row["ours"] for row in line])
        above.plot(samples, theirs, "o", color=colour, fillstyle="none", markersize=5)
        above.errorbar(samples, means, 1.96 * stds / sizes**0.5, color=colour, linewidth=0.9, capsize=2)
        write(above, label, colour, place)
    for quantity, marker in (("subspace distance", "o"), ("new client's error", "x")):
        some = [row for row in rows if row["quantity"] == quantity and row["all"]]
        values = [row["p_value"] for row in some]
        below.plot([row["all"] for row in some], values, marker, color="0.35", markersize=3, label=quantity.split()[-1])
    draw_level(below, written["level"] / len(rows), "limit of the tests", below=True)
    above.set(xscale="log", xlim=(3e2, 1.6e6), ylim=(0, 1.05), ylabel="mean subspace distance")
    below.set(xscale="log", yscale="log", ylim=(1e-4, 1.5), xlabel="samples of all clients", ylabel="p-value")
    below.legend(loc="lower right", bbox_to_anchor=(1.0, 0.2), handletextpad=0.2)


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
    with style():
        figure, axes = plt.subplots(
            2, 3, figsize=(PAGE_WIDTH, 3.9), layout="constrained", sharex="col", height_ratios=(1.6, 1.0)
        )
        draw_replays(*axes[:, 0], runs[:2], CURVES[:2])
        draw_replays(*axes[:, 1], runs[2:], CURVES[2:])
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
