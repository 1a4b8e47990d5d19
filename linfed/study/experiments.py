"""Finding experiments: modules of a folder beside the package, by name.

An experiment is a module with ``SUMMARY``, ``cells(quick)``, ``plot(tables)`` and ``claims(tables)``; its name is the
module's, with hyphens. ``cells`` returns lists of cells by the name of the table they fill; figures and findings come
from these tables alone.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from types import ModuleType

from linfed.errors import UsageError, suggestion


def experiments_folder(given: str | None) -> Path:
    """Return the folder of experiments: the one given, or ``experiments/`` in the current checkout.

    Raises
    ------
    UsageError
        If there is none; the message says how to get one.
    """
    if given is None:
        folder = _of_checkout(Path.cwd())
        wanted = f"no experiments/ in {Path.cwd()}, nor beside a pyproject.toml of linfed in a folder above"
    else:
        folder, wanted = Path(given), f"--experiments {given}"
    if folder.is_dir() and (folder / "__init__.py").exists():
        return folder.resolve()
    if folder.is_dir():
        raise UsageError(f"{wanted}: {folder} has no __init__.py; experiments are modules of a package")
    raise UsageError(
        f"{wanted}: the experiments lie beside the package, not in it; run this in a checkout of linfed, or name their "
        "folder with --experiments DIR"
    )


def _of_checkout(here: Path) -> Path:
    """Return the folder of experiments here, or of the checkout that a folder lies in."""
    own = here / "experiments"
    above = (folder / "experiments" for folder in here.parents if _is_linfed(folder / "pyproject.toml"))
    return next((folder for folder in (own, *above) if (folder / "__init__.py").exists()), own)


def _is_linfed(path: Path) -> bool:
    try:
        return bool(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] == "linfed")
    except (OSError, KeyError, TypeError, ValueError):
        return False


def experiment_files(folder: Path) -> dict[str, Path]:
    """Return each experiment's name and module file."""
    return {path.stem.replace("_", "-"): path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}


def load(name: str, folder: Path) -> ModuleType:
    """Import an experiment by name; its folder becomes importable, for worker processes too."""
    files = experiment_files(folder)
    if name not in files:
        listed = ", ".join(files) or "none"
        raise UsageError(f"experiment {name!r} is unknown{suggestion(name, files)}; here: {listed}, or all")
    _make_importable(folder)
    return importlib.import_module(f"{folder.name}.{files[name].stem}")


def _make_importable(folder: Path) -> None:
    """Put the folder's parent on the path, unless the folder's name is that of another module."""
    name = folder.name
    imported = Path(getattr(sys.modules.get(name), "__file__", None) or "nowhere").resolve().parent
    if name in sys.stdlib_module_names or (name in sys.modules and imported != folder):
        raise UsageError(f"--experiments {folder}: {name!r} is the name of another module; rename the folder")
    if not name.isidentifier():
        raise UsageError(f"--experiments {folder}: {name!r} cannot be the name of a module; rename the folder")
    root = str(folder.parent)
    if root not in sys.path:
        sys.path.insert(0, root)
