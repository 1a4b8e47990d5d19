"""Find and load experiments: by name from a folder, or as your own Python file.

An experiment is a module with a function ``cells(quick)``, which returns a list of cells, or a dict from names of
tables to lists of cells. The claims ``CLAIMS``, ``derived(tables)``, ``plot(tables)``, ``claims(tables)`` and the
declarations for lists and pages (`linfed.reproduction.declarations`) are optional. Figures and findings depend only on
the tables. The name of the experiment is the name of the file with hyphens instead of underscores.
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

from linfed._package import FOLDER, SHIPPED
from linfed.checks import short_repr, suggestion
from linfed.errors import UsageError
from linfed.reproduction.declarations import NAMES, Declarations, declarations_of, page_order
from linfed.tables.grid import checked_cells

SHARED = "shared"
"""Name of the subpackage for code that experiments of several subpackages share."""

EXTRAS = {
    "dask": "cluster",
    "distributed": "cluster",
    "jax": "bench",
    "loky": "parallel",
    "mpi4py": "cluster",
    "pandas": "tables",
    "xarray": "tables",
}
"""Optional extras of linfed by the package that they install."""


def experiments_folder(given: str | None) -> Path:
    """Return the folder of experiments.

    Parameters
    ----------
    given : str or None
        The folder. If None, the first of these that exists: ``experiments/`` in the current folder; in the checkout
        that contains it; in the installed package; in the checkout of an editable installation.

    Raises
    ------
    UsageError
        If the folder does not exist or has no ``__init__.py``.
    """
    if given is None:
        for folder in [*_of_checkout(Path.cwd()), *_of_package()]:
            if _is_package(folder):
                return folder.resolve()
            if _has_experiments(folder):
                raise UsageError(
                    f"{folder} has no __init__.py: create an empty one, or choose another folder with --experiments DIR"
                )
        raise UsageError(
            f"no experiments/ in {Path.cwd()}, in a checkout above it or in the installed package: reinstall linfed, "
            "run the command in a checkout, or choose the folder with --experiments DIR"
        )
    folder = Path(given)
    if _is_package(folder):
        return folder.resolve()
    if folder.is_dir():
        raise UsageError(f"--experiments {given} must be a package: create an empty {folder / '__init__.py'}")
    raise UsageError(f"--experiments {given} must be a folder; leave it out for the experiments of linfed")


def _is_package(folder: Path) -> bool:
    """Return whether a folder has an ``__init__.py``."""
    return (folder / "__init__.py").is_file()


def _has_experiments(folder: Path) -> bool:
    """Return whether a folder, or a folder in it, contains a module with a function ``cells``."""
    try:
        return any(re.search(rb"(?m)^def cells\(", path.read_bytes()) for path in folder.glob("**/*.py"))
    except OSError:
        return False


def _of_checkout(here: Path) -> list[Path]:
    """Return the possible folders of experiments in a folder and in the checkout that contains it."""
    above = (folder / "experiments" for folder in here.parents if _is_linfed(folder / "pyproject.toml"))
    return [here / "experiments", *above]


def _of_package() -> list[Path]:
    """Return the possible folders of the experiments of linfed: in the package, and next to it in a checkout."""
    package = FOLDER
    checkout_folders = [package.parent / "experiments"] if _is_linfed(package.parent / "pyproject.toml") else []
    return [package / SHIPPED / "experiments", *checkout_folders]


def _is_linfed(path: Path) -> bool:
    """Return whether a ``pyproject.toml`` is linfed's."""
    try:
        return bool(tomllib.loads(path.read_text(encoding="utf-8"))["project"]["name"] == "linfed")
    except (OSError, KeyError, TypeError, ValueError):
        return False


def name_of(file: Path) -> str:
    """Return the name of the experiment in a file."""
    return file.stem.replace("_", "-")


def in_package(file: Path) -> bool:
    """Return whether a module belongs to a folder of experiments, as opposed to a single file."""
    return _is_package(file.parent)


def is_named(file: Path) -> bool:
    """Return whether an experiment is found by its name: it belongs to a folder, and is not a copy of another one.

    A copy has the name of an experiment in the working folder, in the checkout that contains it or in linfed.
    """
    folders = [folder for folder in (*_of_checkout(Path.cwd()), *_of_package()) if _is_package(folder)]
    known = [experiment_files(folder).get(name_of(file)) for folder in folders]
    others = [one for one in known if one is not None]
    return in_package(file) and (not others or any(one.samefile(file) for one in others))


def relative_path(path: str | Path) -> str:
    """Return the path of a file for a command: relative to the working folder if the file is below it."""
    full = Path(path).resolve()
    return str(full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else full)


def experiment_files(folder: Path) -> dict[str, Path]:
    """Return the files of the experiments in a folder and in its subpackages except ``shared``, by name.

    A module whose name begins with an underscore is not an experiment.
    """
    inner = [one.parent for one in folder.glob("*/__init__.py") if one.parent.name != SHARED]
    files = [path for part in (folder, *inner) for path in part.glob("*.py") if not path.stem.startswith("_")]
    return {name_of(path): path for path in sorted(files, key=lambda path: path.stem)}


def imported_modules(file: Path) -> list[Path]:
    """Return the modules that a module of an experiment itself imports by relative imports."""
    found = dict[Path, None]()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            paths = [folder.with_suffix(".py")] if node.module else [folder / f"{one.name}.py" for one in node.names]
            found |= dict.fromkeys(path for path in paths if path.is_file())
    return list(found)


def shared_modules(file: Path) -> list[Path]:
    """Return all modules that an experiment imports by relative imports, directly or through other modules."""
    found = imported_modules(file)
    for one in found:  # grows in the loop
        found += [path for path in imported_modules(one) if path not in found]
    return found


def copied_files(file: Path) -> list[Path]:
    """Return the files that a copy of an experiment needs: its modules, and data files with their names."""
    modules = [file, *shared_modules(file)]
    return [path for one in modules for path in sorted(one.parent.glob(f"{one.stem}.*"))]


def declared_by(file: Path) -> Declarations:
    """Return the declarations of the experiment in a file.

    The module is imported only if a declaration is not a literal.

    Raises
    ------
    UsageError
        If a declaration has a wrong form, or if the declarations are not valid Python.
    """
    try:
        body = _declaring_part(file.read_bytes(), str(file.resolve())).body
    except (SyntaxError, ValueError) as error:
        raise UsageError(_error_in(file, error)) from error
    values: dict[str, object] = {}
    for node in body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if name in NAMES:
                try:
                    values[name] = ast.literal_eval(value)
                except ValueError:  # an expression with other names
                    values[name] = getattr(load_file(file), name)
            case ast.AugAssign(target=ast.Name(id=name)) if name in NAMES:
                values[name] = getattr(load_file(file), name)
    return declarations_of(values, file)


def _declaring_part(source: bytes, filename: str) -> ast.Module:
    """Parse a module up to its first function or class, or all of it if a declaration can follow.

    Declarations are at the beginning, and parsing only these is several times faster.
    """
    definition = re.search(rb"^(def|class|async|@)", source, re.MULTILINE)
    if definition and not re.search("|".join(NAMES).encode(), source[definition.start() :]):
        try:
            return ast.parse(source[: definition.start()], filename)
        except SyntaxError:  # e.g. the line is part of a string
            pass
    return ast.parse(source, filename)


def declared_in(folder: Path) -> dict[str, Declarations]:
    """Return the declarations of a folder's experiments by name, in the order of the pages."""
    found = {name: declared_by(file) for name, file in experiment_files(folder).items()}
    return {name: found[name] for name in page_order(found)}


def find(name_or_file: str, folder: Path) -> Path:
    """Return the file of an experiment, given by its name in a folder or as FILE.py.

    Raises
    ------
    UsageError
        If the experiment does not exist, or if FILE.py has an invalid name or the name of an experiment of linfed.
    """
    if name_or_file.endswith(".py"):
        return _user_file(name_or_file)
    files, name = experiment_files(folder), name_or_file.replace("_", "-")
    if "=" in name_or_file:
        raise UsageError(f"{name_or_file!r} is not an experiment: each FIELD=VALUE must follow its own --set")
    if name not in files:
        near = [one for one in files if name in one][:3] if len(name) > 2 else []
        near = [f"{name_or_file}.py"] if Path(f"{name_or_file}.py").is_file() else near
        meant = f" (did you mean {' or '.join(map(repr, near))}?)" if near else suggestion(name, files)
        where = "" if _is_package_folder(folder) else f" --experiments {folder}"
        raise UsageError(f"experiment {name_or_file!r} is unknown{meant}; linfed list{where} shows all")
    return files[name]


def _user_file(path: str) -> Path:
    """Return the path of FILE.py; raise `UsageError` if it does not exist or has an invalid name."""
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"{path!r} does not exist: give the path of a Python file with cells(quick)")
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", file.stem, re.ASCII):
        raise UsageError(f"{path!r}: rename the file; its name can have only letters, digits, - and _")
    shipped = next((files for files in map(experiment_files, _of_package()) if files), {})
    if name_of(file) in shipped and not in_package(file):
        raise UsageError(f"{path!r} has the name of an experiment of linfed: rename the file")
    return file


def _is_package_folder(folder: Path) -> bool:
    """Return whether a folder has the experiments of the running linfed."""
    return folder in [path.resolve() for path in _of_package()]


def load(name: str, folder: Path) -> ModuleType:
    """Import an experiment of a folder by name."""
    return load_file(find(name, folder))


def load_file(file: Path) -> ModuleType:
    """Import the experiment in a file, and add its folder to ``sys.path``.

    Raises
    ------
    UsageError
        If the import fails, if the module has no ``cells``, if a declaration has a wrong form, or if a required package
        is not installed.
    """
    module_name = _importable(file.resolve())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        package = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and package not in ("", "linfed", module_name.partition(".")[0]):
            wanted = f"linfed[{EXTRAS[package]}]" if package in EXTRAS else package
            message = f"experiment {name_of(file)!r} requires {package}: pip install {wanted!r}"
            raise UsageError(message) from None
        raise UsageError(_error_in(file, error)) from error
    if Path(str(module.__file__)).resolve() != file.resolve():
        raise UsageError(f"{file}: Python imports {module.__file__} as {module_name!r}; rename the file or its folder")
    if not callable(getattr(module, "cells", None)):
        raise UsageError(
            f"{str(file)!r} must have a function cells(quick) that returns a list of cells, e.g. lf.grid(...)"
        )
    for name in ("derived", "claims", "plot"):
        if not callable(getattr(module, name, len)):
            raise UsageError(f"{str(file)!r}: {name} must be a function, got {short_repr(getattr(module, name))}")
    declarations_of(vars(module), file)
    return module


def _importable(file: Path) -> str:
    """Return the import name of a file, after adding its folder to ``sys.path``.

    Raises
    ------
    UsageError
        If another module has the name, or if it is not a valid name.
    """
    package, folder = in_package(file), file.parent
    while package and _is_package(folder.parent):
        folder = folder.parent
    top = folder.name if package else file.stem
    location = f"--experiments {folder}" if package else str(file)
    wanted, kind = (folder / "__init__.py", "folder") if package else (file, "file")
    if package and not top.isidentifier():
        raise UsageError(f"{location}: {top!r} is not a valid module name; rename the folder")
    imported = Path(getattr(sys.modules.get(top), "__file__", None) or "nowhere").resolve()
    if top in sys.stdlib_module_names or (top in sys.modules and imported != wanted):
        raise UsageError(f"{location}: {top!r} is the name of another module; rename the {kind}")
    root = str(folder.parent if package else folder)
    if root not in sys.path:
        sys.path.insert(0, root)
    return ".".join([top, *file.relative_to(folder).with_suffix("").parts]) if package else top


def _error_in(file: Path, error: BaseException) -> str:
    """Return an error as one line, with the number of the line in the file that led to it."""
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if Path(one.filename) == file.resolve()]
    if isinstance(error, SyntaxError) and Path(error.filename or "") == file.resolve():
        lines = [error.lineno]
    place = f", line {lines[-1]}" if lines else ""
    message = " ".join(str(getattr(error, "msg", None) or error).split())
    return f"{file}{place}: {type(error).__name__}: {message}"


def cells_of(module: ModuleType, *, quick: bool) -> dict[str, list[Any]]:
    """Return the cells of an experiment by table; a plain list fills the table ``runs``.

    Raises
    ------
    UsageError
        If ``cells`` raises or exits, returns no cells or something else than cells, or does not support ``--quick``.
    """
    file = Path(str(module.__file__))
    takes_quick = bool(inspect.signature(module.cells).parameters)
    if quick and not takes_quick:
        raise UsageError(f"{file.name}: cells() does not support --quick: leave it out, or define cells(quick)")
    try:
        found = module.cells(quick) if takes_quick else module.cells()
    except (Exception, SystemExit) as error:
        raise UsageError(_error_in(file, error)) from error
    tables = found if isinstance(found, Mapping) else {"runs": found}
    for key in tables:
        if not isinstance(key, str) or not re.fullmatch(r"\w[\w-]*", key):
            raise UsageError(
                f"{file.name}: the table name {short_repr(key)} from cells() must have only letters, digits, - and _"
            )
    try:
        lists: dict[str, list[Any]] = {key: list(checked_cells(cells)) for key, cells in tables.items()}
    except TypeError as error:
        raise UsageError(f"{file.name}: {error}") from None
    except (Exception, SystemExit) as error:  # of a generator
        raise UsageError(_error_in(file, error)) from error
    if not any(lists.values()):
        raise UsageError(f"{file.name}: cells() returned no cells")
    return lists
