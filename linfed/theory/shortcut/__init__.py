"""The shortcut draft: its equations in a recorded round, its bound over a run, and predictions for B."""

from __future__ import annotations

from linfed.theory.shortcut.bound import BoundTerms, ShortcutRound
from linfed.theory.shortcut.identities import IDENTITY_TOLERANCE, READINGS, Blocks, Sides
from linfed.theory.shortcut.loss import judge_loss_exponent, shortcut_loss_rounds
from linfed.theory.shortcut.population import shortcut_repulsion, shortcut_spectrum_hypothesis, top_subspace_distance
from linfed.theory.shortcut.trace import ShortcutTrace, judge_bound, shortcut_trace

__all__ = [
    "IDENTITY_TOLERANCE",
    "READINGS",
    "Blocks",
    "BoundTerms",
    "ShortcutRound",
    "ShortcutTrace",
    "Sides",
    "judge_bound",
    "judge_loss_exponent",
    "shortcut_loss_rounds",
    "shortcut_repulsion",
    "shortcut_spectrum_hypothesis",
    "shortcut_trace",
    "top_subspace_distance",
]
