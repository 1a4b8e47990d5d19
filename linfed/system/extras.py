"""Import of optional packages, with a one-line error if a package is missing."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_optional(package: str, extra: str, wanted: str) -> ModuleType:
    """Import and return a package that belongs to an extra of linfed.

    Raises
    ------
    ImportError
        If the package is not installed; the message names the feature `wanted` and the installation command.
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ImportError(f"{wanted} requires {package}: pip install 'linfed[{extra}]'") from None
