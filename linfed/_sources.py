"""Source of each local module as Python read it, since a file may change after its import.

The key of a stored cell (`linfed.sweeps.code_key`) is a hash of files, but Python runs the code that it imported. It
keeps neither the source nor the time of an import. ``import linfed`` therefore reads the files of the local modules
that are already imported, and adds a finder to `sys.meta_path` that reads the files of later ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from linfed._package import FOLDER

SOURCES: dict[str, bytes] = {}
"""Content of the file of each imported module of linfed and of the user, by the name of the module."""

PYTHON = tuple(f"{os.path.dirname(path)}{os.sep}" for path in (os.__file__, os.path.realpath(os.__file__)))
"""Folder of the standard library, as it is imported and without links."""

PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
"""Names of the folders of installed packages."""


def is_local(file: str) -> bool:
    """Return whether a file is of linfed, its experiments or the user, and not of Python or an installed package."""
    installed = file.startswith(PYTHON) or any(name in file for name in PACKAGES)
    return file.startswith(str(FOLDER)) or not installed


class SourceFinder:
    """Finder that reads the source of the modules that `PathFinder` finds, before they are executed."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return what `PathFinder` returns."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            _read(name, spec.origin)
        return spec


def _read(name: str, file: object) -> None:
    if isinstance(file, str) and is_local(file):
        SOURCES.pop(name, None)
        with suppress(OSError):  # in an archive
            SOURCES[name] = Path(file).read_bytes()


if PathFinder in sys.meta_path:
    sys.meta_path.insert(sys.meta_path.index(PathFinder), SourceFinder)
for _name, _module in list(sys.modules.items()):
    with suppress(Exception):  # objects in place of modules, whose attributes may raise anything
        _read(_name, getattr(_module, "__file__", None))
