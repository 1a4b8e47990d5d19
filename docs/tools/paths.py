"""Folders of the repository that the programs of the pages read and write."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
DOCS, EXPERIMENTS, NOTEBOOKS = TOP / "docs", TOP / "experiments", TOP / "notebooks"
FIGURES, TEMPLATES = DOCS / "figures", DOCS / "templates"
THUMBNAILS = FIGURES / "thumbnails"
COMMITTED = TOP / "results" / "committed"
