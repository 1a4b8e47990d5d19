"""Meanings of names: the letters of the papers, and how a quantity is shown.

A table's column has only a name: it may be a metric, a user's own metric or a column of a loaded file. So a convention
for names decides how it is shown, for all of them alike.
"""

from __future__ import annotations

SYMBOLS = {
    "n": "n_clients",
    "m": "n_samples",
    "d": "dim",
    "k": "rank",
    "p": "participants",
    "kappa": "condition_number",
    "sigma": "noise_std",
    "eta": "step_size",
    "t": "round",
}
"""Fields and columns that the papers' letters stand for."""

LETTERS = {**SYMBOLS, "lr": "step_size"}
"""Fields by the letters of the papers and other short names, for messages."""


def is_share(name: str) -> bool:
    """Return whether a quantity is a share whose best value is 1: the last word of its name is "accuracy" or "r2".

    Shares have a linear axis, because a logarithmic one would hide differences close to 1, and the largest is the best.
    """
    return name.replace(".", "_").rpartition("_")[2] in ("accuracy", "r2")


def axis_label(name: str) -> str:
    """Return the label of a quantity on an axis: its name, without underscores."""
    return name.replace("_", " ")
