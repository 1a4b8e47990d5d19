"""Looks of the spectral estimators in figures."""

from __future__ import annotations

from linfed.figures.style import KINDS, Look

from .spectral import AVERAGES, MOMENTS, ONE_SIDED, PAIRS, TWO

LOOKS: dict[str, Look] = {MOMENTS: KINDS[0], AVERAGES: KINDS[1], PAIRS: KINDS[3], TWO: KINDS[4], ONE_SIDED: KINDS[5]}
COLOURS = {name: look[0] for name, look in LOOKS.items()}
