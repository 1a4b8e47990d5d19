"""Draw docs/figures/rounds.png: what the server and the clients hold and send in one round of four algorithms.

Run ``python -m docs.tools.rounds``. The picture carries the digest of this file, which
`tests/docs/test_pictures.py` compares.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from docs.tools.paths import FIGURES
from linfed.figures.style import style

PICTURE = FIGURES / "rounds.png"
DIGEST = "drawn"
SERVER, CLIENT, INK, PALE = "#DCEAF5", "#FBEBD3", "#333333", "#777777"


class Round(NamedTuple):
    """The text of one panel; tuples are lines."""

    title: str
    server: tuple[str, ...]
    down: str
    up: str
    holds: str
    steps: tuple[str, ...]


ROUNDS = (
    Round(
        "FedRep",
        ("holds  $B$", r"$B \leftarrow \mathrm{qr}(\mathrm{mean}\ B_i)$"),
        "$B$",
        "$B_i$",
        "keeps  $X_i, y_i$  and the head $w_i$",
        (r"$w_i \leftarrow$ least squares of $y_i$ on $X_i B$", r"$B_i = B - \eta\,\nabla_B f_i(w_i, B)$"),
    ),
    Round(
        "FLUTE",
        (
            "holds  $B$  and all heads  $w_1 \\ldots w_n$",
            r"$B, W \leftarrow$ a gradient step with the regulariser",
        ),
        "$B,\\ w_i$",
        r"$\nabla_B f_i,\ \nabla_{w_i} f_i$",
        "keeps only  $X_i, y_i$",
        ("two gradients at  $(B, w_i)$,", "from one residual  $X_i B w_i - y_i$"),
    ),
    Round(
        "FedRep with a shortcut",
        ("holds  $B$", r"$B \leftarrow \mathrm{qr}(\mathrm{mean}\ B_i)$"),
        "$B$",
        "$B_i$",
        "keeps  $X_i, y_i$,  the head $w_i$  and the shortcut $s_i$",
        (
            r"steps on $w_i$ at the old $s_i$,  on $s_i$ at the old $w_i$",
            r"$B_i = B - \eta\,\nabla_B f_i(w_i, s_i, B)$  at the new  $w_i, s_i$",
        ),
    ),
    Round(
        "SCAFFOLD",
        (
            r"holds  $\theta$  and the variate  $c$",
            r"$\theta \leftarrow \theta + \eta_s\,\mathrm{mean}\ \Delta_i$,   $c \leftarrow c + \sum \pi_i \Delta c_i$",
        ),
        r"$\theta,\ c$",
        r"$\Delta_i,\ \Delta c_i$",
        "keeps  $X_i, y_i$  and the variate $c_i$",
        (
            r"$K$ times  $\theta_i \leftarrow \theta_i - \eta\,(\nabla f_i(\theta_i) - c_i + c)$,   "
            r"$\Delta_i = \theta_i - \theta$",
            r"$\Delta c_i = -c - \Delta_i / (K \eta)$,   $c_i \leftarrow c_i + \Delta c_i$",
        ),
    ),
)


def box(axes: Axes, bottom: float, height: float, colour: str, shift: float = 0.0) -> None:
    """Draw a box with round corners over the width of a panel."""
    shape = FancyBboxPatch(
        (0.04 + shift, bottom - shift),
        0.88,
        height,
        boxstyle="round,pad=0,rounding_size=0.02",
        facecolor=colour,
        edgecolor=INK if not shift else PALE,
        linewidth=0.8,
        zorder=2 if not shift else 1,
    )
    axes.add_patch(shape)


def panel(axes: Axes, one: Round) -> None:
    """Draw one algorithm's round."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    axes.set_title(one.title, fontsize=11, fontweight="bold")
    box(axes, 0.72, 0.26, SERVER)
    for shift in (0.036, 0.018, 0.0):
        box(axes, 0.08, 0.36, CLIENT, shift)
    text = {"ha": "center", "va": "center", "color": INK, "zorder": 3}
    axes.text(0.07, 0.94, "server", ha="left", va="center", color=PALE, fontsize=8, zorder=3)
    axes.text(0.07, 0.40, "client i", ha="left", va="center", color=PALE, fontsize=8, zorder=3)
    axes.text(0.48, 0.875, one.server[0], fontsize=9, **text)
    axes.text(0.48, 0.785, one.server[1], fontsize=9, **text)
    axes.text(0.48, 0.33, one.holds, fontsize=9, **text)
    for line, height in zip(one.steps, (0.225, 0.135), strict=True):
        axes.text(0.48, height, line, fontsize=9, **text)
    for x, start, end, what, side in ((0.33, 0.71, 0.45, one.down, "right"), (0.63, 0.45, 0.71, one.up, "left")):
        arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", xy=(x, end), xytext=(x, start), arrowprops=arrow)
        axes.text(x + (0.03 if side == "left" else -0.03), 0.58, what, fontsize=11, **(text | {"ha": side}))


def digest() -> str:
    """Return the digest of this file."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def draw() -> None:
    """Draw the picture."""
    import matplotlib.pyplot as plt

    with style():
        figure, panels = plt.subplots(2, 2, figsize=(9.6, 7.2), layout="constrained")
        for axes, one in zip(panels.flat, ROUNDS, strict=True):
            panel(axes, one)
        figure.savefig(PICTURE, dpi=150, metadata={DIGEST: digest(), "Software": None})
        plt.close(figure)


if __name__ == "__main__":
    mpl.use("Agg")
    draw()
