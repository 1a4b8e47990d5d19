"""Packages that only some uses need: one clear line where they are missing."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional(package: str, extra: str, wanted: str) -> ModuleType:
    """Return a package of an extra of this project.

    Raises
    ------
    ImportError
        If it is not installed: one line names what `wanted` it, and how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(f"{wanted} needs {package}: pip install 'linfed[{extra}]'") from None
