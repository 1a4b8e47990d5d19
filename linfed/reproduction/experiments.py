"""Finding experiments: modules of a folder, by name; the project's own ship with the package.

An experiment is a module with ``SUMMARY``, ``cells(quick)``, ``plot(tables)`` and ``claims(tables)``; its name is the
module's, with hyphens. ``cells`` returns lists of cells by the name of the table they fill; figures and findings come
from these tables alone.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import linfed
from linfed.errors import UsageError, suggestion
from linfed.sweeps.code_hash import SHIPPED

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


def experiment_files(folder: Path) -> dict[str, Path]:
    """Return each experiment's name and module file."""
    return {path.stem.replace("_", "-"): path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}


def summary_of(name: str, folder: Path) -> str:
    """Return an experiment's ``SUMMARY``, without running its module where it is written there as a text."""
    for node in ast.parse(experiment_files(folder)[name].read_bytes()).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["SUMMARY"]:
            try:
                return str(ast.literal_eval(node.value))
            except ValueError:  # put together from other names
                break
    return str(load(name, folder).SUMMARY)


def check_known(name: str, folder: Path) -> None:
    """Raise unless the folder has an experiment of this name."""
    files = experiment_files(folder)
    if name not in files:
        listed = ", ".join(files) or "none"
        where = "" if _is_package_own(folder) else f" in {folder}"
        raise UsageError(f"experiment {name!r} is unknown{suggestion(name, files)}; there are{where}: {listed}, or all")


def _is_package_own(folder: Path) -> bool:
    return folder in [own.resolve() for own in _of_package()]


def load(name: str, folder: Path) -> ModuleType:
    """Import an experiment by name; its folder becomes importable, for worker processes too.

    Raises
    ------
    UsageError
        If there is none of this name, or if it needs a package that is not installed.
    """
    check_known(name, folder)
    _make_importable(folder)
    try:
        return importlib.import_module(f"{folder.name}.{experiment_files(folder)[name].stem}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "linfed", folder.name):  # a mistake in the experiment itself
            raise
        wanted = f"linfed[{EXTRAS[package]}]" if package in EXTRAS else package
        raise UsageError(f"experiment {name!r} needs {package}, which is missing: pip install {wanted!r}") from None


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
