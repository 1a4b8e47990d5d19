"""Running an algorithm: the arguments of a run, its engine, the loop, what is measured and returned."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linfed.simulation.loop import Round as Round
    from linfed.simulation.loop import iterate as iterate
    from linfed.simulation.run import simulate as simulate

# Loaded when first used: who wants one module of this room need not load the others.
_PUBLIC = {"Round": "linfed.simulation.loop", "iterate": "linfed.simulation.loop", "simulate": "linfed.simulation.run"}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'linfed.simulation' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
