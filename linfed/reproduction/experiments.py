"""Finding and loading experiments: by name, from a folder of them, or as a Python file of one's own.

An experiment is a module with ``cells(quick)``, which returns lists of cells by the name of the table they fill, or
one list. ``plot(tables)``, ``claims(tables)`` and ``SUMMARY`` are optional; figures and findings come from the tables
alone. Its name is the file's, with hyphens.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import tomllib
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import linfed
from linfed.errors import UsageError, shown, suggestion
from linfed.sweeps.code_hash import SHIPPED
from linfed.tables.grid import checked_cells

EXTRAS = {
    "dask": "cluster",
    "distributed": "cluster",
    "jax": "bench",
    "loky": "parallel",
    "mpi4py": "cluster",
    "pandas": "tables",
    "xarray": "tables",
}
"""The optional extra that brings a package."""


def experiments_folder(given: str | None) -> Path:
    """Return the folder of experiments.

    Parameters
    ----------
    given : str or None
        The folder, or None: ``experiments/`` in the current folder or in the checkout that it lies in; where there is
        none, those that the installed package brings, or that lie beside a package which runs from its checkout.

    Raises
    ------
    UsageError
        If there is none, or if it is no package; the message says how to get one.
    """
    if given is None:
        for folder in [*_of_checkout(Path.cwd()), *_of_package()]:
            if _is_package(folder):
                return folder.resolve()
            if _has_experiments(folder):
                raise UsageError(
                    f"{folder} has no __init__.py: make an empty one, or name another folder with --experiments DIR"
                )
        raise UsageError(
            f"no experiments/ in {Path.cwd()}, in a checkout of linfed above it, or in the installed package: install "
            "linfed anew, run this in a checkout, or name their folder with --experiments DIR"
        )
    folder = Path(given)
    if _is_package(folder):
        return folder.resolve()
    if folder.is_dir():
        raise UsageError(f"--experiments {given} has no __init__.py; experiments are modules of a package")
    raise UsageError(f"--experiments {given} is no folder; leave it out for the experiments that come with linfed")


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _has_experiments(folder: Path) -> bool:
    """Return whether a folder that is no package has a module with cells, and is not just any folder of that name."""
    try:
        return any(re.search(rb"(?m)^def cells\(", path.read_bytes()) for path in folder.glob("*.py"))
    except OSError:
        return False


def _of_checkout(here: Path) -> list[Path]:
    """Return where experiments may lie: here, or in the checkout that a folder lies in."""
    above = (folder / "experiments" for folder in here.parents if _is_linfed(folder / "pyproject.toml"))
    return [here / "experiments", *above]


def _of_package() -> list[Path]:
    """Return where the experiments of the package lie that is running: within it, or beside it in its checkout."""
    package = Path(linfed.__file__).parent
    beside = [package.parent / "experiments"] if _is_linfed(package.parent / "pyproject.toml") else []
    return [package / SHIPPED / "experiments", *beside]


def _is_linfed(path: Path) -> bool:
    try:
        return bool(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] == "linfed")
    except (OSError, KeyError, TypeError, ValueError):
        return False


def name_of(file: Path) -> str:
    """Return the name of the experiment in a file."""
    return file.stem.replace("_", "-")


def in_package(file: Path) -> bool:
    """Return whether a module belongs to a folder of experiments, and is no file that stands alone."""
    return _is_package(file.parent)


def experiment_files(folder: Path) -> dict[str, Path]:
    """Return each experiment's name and module file."""
    return {name_of(path): path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}


def summary_of(name: str, folder: Path) -> str:
    """Return an experiment's ``SUMMARY``, without running its module where it is written there as a text."""
    for node in ast.parse(experiment_files(folder)[name].read_bytes()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["SUMMARY"]:
            try:
                return str(ast.literal_eval(node.value))
            except ValueError:  # put together from other names
                return str(load(name, folder).SUMMARY)
    return ""


def find(asked: str, folder: Path) -> Path:
    """Return the file of the experiment that is asked for: by its name in a folder, or itself as FILE.py.

    Raises
    ------
    UsageError
        If there is none, or if it cannot have this name.
    """
    if asked.endswith(".py"):
        return _own_file(asked)
    files, name = experiment_files(folder), asked.replace("_", "-")
    if name not in files:
        listed = ", ".join(files) or "none"
        where = "" if _is_package_own(folder) else f" in {folder}"
        meant = f" (did you mean '{asked}.py'?)" if Path(f"{asked}.py").is_file() else suggestion(name, files)
        raise UsageError(f"experiment {asked!r} is unknown{meant}; there are{where}: {listed}, or all")
    return files[name]


def _own_file(asked: str) -> Path:
    """Return the path of a FILE.py, checked."""
    file = Path(asked)
    if not file.is_file():
        raise UsageError(f"{asked!r} does not exist: give the path of a Python file with cells(quick)")
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", file.stem, re.ASCII):
        raise UsageError(f"{asked!r}: rename the file, its name may hold letters, digits, - and _ only")
    shipped = next((files for files in map(experiment_files, _of_package()) if files), {})
    if name_of(file) in shipped and not in_package(file):
        raise UsageError(f"{asked!r} has the name of an experiment that comes with linfed: rename the file")
    return file


def _is_package_own(folder: Path) -> bool:
    return folder in [own.resolve() for own in _of_package()]


def load(name: str, folder: Path) -> ModuleType:
    """Import an experiment of a folder by name (`load_file`)."""
    return load_file(find(name, folder))


def load_file(file: Path) -> ModuleType:
    """Import the experiment in a file; its folder becomes importable, for worker processes too.

    Raises
    ------
    UsageError
        If it raises, has no ``cells``, or needs a package that is not installed.
    """
    module_name = _importable(file.resolve())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        package = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and package not in ("", "linfed", module_name.partition(".")[0]):
            wanted = f"linfed[{EXTRAS[package]}]" if package in EXTRAS else package
            told = f"experiment {name_of(file)!r} needs {package}, which is missing: pip install {wanted!r}"
            raise UsageError(told) from None
        raise UsageError(_error_in(file, error)) from error
    if Path(str(module.__file__)).resolve() != file.resolve():
        raise UsageError(
            f"{file}: Python finds {module.__file__} by the name {module_name!r}; rename the file or its folder"
        )
    if not callable(getattr(module, "cells", None)):
        raise UsageError(
            f"{str(file)!r} has no function cells(quick), which returns a list of cells, e.g. lf.grid(...)"
        )
    return module


def _importable(file: Path) -> str:
    """Return the name to import a file by, and put where it lies on the path, unless another module has the name."""
    package, folder = in_package(file), file.parent
    top = folder.name if package else file.stem
    said = f"--experiments {folder}" if package else str(file)
    wanted, kind = (folder / "__init__.py", "folder") if package else (file, "file")
    if package and not top.isidentifier():
        raise UsageError(f"{said}: {top!r} cannot be the name of a module; rename the folder")
    imported = Path(getattr(sys.modules.get(top), "__file__", None) or "nowhere").resolve()
    if top in sys.stdlib_module_names or (top in sys.modules and imported != wanted):
        raise UsageError(f"{said}: {top!r} is the name of another module; rename the {kind}")
    root = str(folder.parent if package else folder)
    if root not in sys.path:
        sys.path.insert(0, root)
    return f"{top}.{file.stem}" if package else top


def _error_in(file: Path, error: BaseException) -> str:
    """Return an error on one line, with the last line of the file that led to it."""
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if Path(one.filename) == file.resolve()]
    if isinstance(error, SyntaxError) and Path(error.filename or "") == file.resolve():
        lines = [error.lineno]
    place = f", line {lines[-1]}" if lines else ""
    message = " ".join(str(getattr(error, "msg", None) or error).split())
    return f"{file}{place}: {type(error).__name__}: {message}"


def cells_of(module: ModuleType, *, quick: bool) -> dict[str, list[Any]]:
    """Return an experiment's cells by table; a plain list is that of the table ``runs``.

    Raises
    ------
    UsageError
        If they are none, or cannot be made.
    """
    file = Path(str(module.__file__))
    takes_quick = bool(inspect.signature(module.cells).parameters)
    if quick and not takes_quick:
        raise UsageError(f"{file.name}: its cells() has no quick sizes: leave out --quick, or write cells(quick)")
    try:
        found = module.cells(quick) if takes_quick else module.cells()
    except Exception as error:
        raise UsageError(_error_in(file, error)) from error
    tables = found if isinstance(found, Mapping) else {"runs": found}
    for key in tables:
        if not isinstance(key, str) or not re.fullmatch(r"\w[\w-]*", key):
            raise UsageError(f"{file.name}: cells() names a table {shown(key)}, and a file could not be called so")
    try:
        lists: dict[str, list[Any]] = {key: list(checked_cells(cells)) for key, cells in tables.items()}
    except TypeError as error:
        raise UsageError(f"{file.name}: {error}") from None
    if not any(lists.values()):
        raise UsageError(f"{file.name}: cells() returned no cells")
    return lists
