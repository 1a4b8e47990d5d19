"""Hash of the code that can change a cell's numbers.

The hash covers all of linfed except the code that plots, saves and prints. For a user-defined class or function, it
covers the source, everything that this source uses in its module, and so on into the modules that it imports. For
installed packages, only their versions count. Comments, docstrings and layout do not count. Data files and environment
variables are not tracked.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from linfed._package import FOLDER
from linfed.checks import short_repr
from linfed.sweeps.module_source import Part, digest_of, source_of

STARTED = time.time()
"""Approximate time at which linfed was imported."""

SHIPPED = "_shipped"
"""Folder of the installed package that holds ``experiments/``; in a checkout they lie next to the package."""

NOT_COUNTED = (
    SHIPPED,
    "commands",
    "figures",
    "plotting",
    "report",
    "reproduction",
    "sweeps",
)
"""Subpackages whose code cannot change a cell's numbers. Shipped experiments count only for their own cells."""

ENTRY_POINTS = ("__init__.py", "__main__.py", "cli.py")
"""Top-level modules of linfed that cannot change a cell's numbers either."""

INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of Python and of installed packages."""


def code_digest(owners: Iterable[Any]) -> str:
    """Hash the code that these classes and functions depend on, and the versions of NumPy and SciPy.

    Raises
    ------
    ValueError
        If a class or a function is not defined in a file.
    """
    wanted = [part for owner in owners for base in getattr(owner, "__mro__", (owner,)) for part in _part_of(base)]
    versions = [*_needed_versions(), *sorted(f"{name} {_version(name)}" for name in _packages(wanted))]
    texts = [f"{module}: {text}" for module, text in statements(wanted).items()]
    return hashlib.sha256("\n".join([*versions, *_of_linfed(), *texts]).encode()).hexdigest()


def source_digests(owners: Iterable[Any]) -> dict[str, str]:
    """Hash the source that these functions depend on, without versions of other packages.

    Returns
    -------
    dict of str to str
        "experiment", the hash of the user-defined code, and "linfed", the hash of the package. They are the same in a
        checkout and in an installed package with the same code. Comments and docstrings do not count.
    """
    texts = [f"{module}: {text}" for module, text in statements(p for one in owners for p in _part_of(one)).items()]
    parts = {"experiment": texts, "linfed": _of_linfed()}
    return {name: hashlib.sha256("\n".join(part).encode()).hexdigest() for name, part in parts.items()}


def check_loaded(owners: Iterable[Any]) -> None:
    """Raise if a file that counts has changed since it was imported: its hash would not match the running code.

    Raises
    ------
    ValueError
        If a function or a constant (a number or a string) differs from the file of its module, or a file of linfed is
        newer than this process.
    """
    for _, entry in _counted_files():
        if entry.stat().st_mtime > STARTED:
            raise _changed(Path(entry.path), "this process")
    parts = [part for owner in owners for base in getattr(owner, "__mro__", (owner,)) for part in _part_of(base)]
    for module, numbers in _reached(parts).items():
        file = _file_of(module)
        if file is None or module not in sys.modules or file.stat().st_mtime <= STARTED:
            continue
        source = source_of(file, module, file.stat().st_mtime_ns)
        loaded = vars(sys.modules[module])
        for name, value in source.constants(numbers).items():
            if name in loaded and (type(loaded[name]), loaded[name]) != (type(value), value):
                raise _changed(file, f"{module}.{name}")
        written = {one.co_qualname: one for one in _codes(compile(file.read_bytes(), str(file), "exec"))}
        needed = {name for number in numbers for name in source.binds[number]}
        for function in _functions((loaded[name] for name in needed if name in loaded), module):
            code = function.__code__
            if Path(code.co_filename).resolve() == file and _same(code) != _same(written.get(code.co_qualname)):
                raise _changed(file, f"{module}.{code.co_qualname}")


def _changed(file: Path, what: str) -> ValueError:
    return ValueError(
        f"store= cannot save results of {what}: the code in {str(file)!r} has changed since it was imported; restart "
        "Python, or reload the module"
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects of all functions and classes defined inside a code object."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _codes(part)


def _functions(values: Iterable[Any], module: str) -> Iterator[FunctionType]:
    """Yield the functions, and the methods of the classes, among `values` that are defined in the module."""
    for value in values:
        value = inspect.unwrap(value) if callable(value) else value
        if getattr(value, "__module__", None) != module:
            continue
        if isinstance(value, type):
            found = (getattr(one, "fget", getattr(one, "__func__", one)) for one in vars(value).values())
            yield from (one for one in found if isinstance(one, FunctionType))
        elif isinstance(value, FunctionType):
            yield value


def _same(code: CodeType | None) -> Any:
    """Return a value that is equal for two functions with the same code."""
    if code is None:
        return None
    consts = [_same(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts[1:]]  # no docstring
    return code.co_code, code.co_names, code.co_varnames, consts


def _of_linfed() -> Iterator[str]:
    """Yield the hashes of linfed's modules."""
    for name, entry in sorted(_counted_files(), key=lambda one: one[0].split("/")):
        yield f"{name}:{digest_of(Path(entry.path), entry.stat().st_mtime_ns)}"


def _counted_files(folder: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the files of linfed that count, each with its path relative to the package."""
    with os.scandir(FOLDER / folder) as entries:
        for entry in entries:
            name = f"{folder}{entry.name}"
            if entry.is_dir() and name not in NOT_COUNTED:
                yield from _counted_files(f"{name}/")
            elif name.endswith(".py") and (folder or name not in ENTRY_POINTS):
                yield name, entry


@functools.cache
def _needed_versions() -> tuple[str, ...]:
    return tuple(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "scipy"))


def statements(wanted: Iterable[Part]) -> dict[str, str]:
    """Return the text of the statements that the given parts of user-defined modules depend on, by module."""
    out = {}
    for module, numbers in sorted(_reached(wanted).items()):
        file = _file_of(module)
        assert file is not None
        texts = source_of(file, module, file.stat().st_mtime_ns).texts
        out[module] = "\n".join(texts[number] for number in sorted(numbers))
    return out


def _reached(wanted: Iterable[Part]) -> dict[str, set[int]]:
    """Return the indices of the statements that the given parts of modules depend on, by module."""
    waiting = [_resolved(part) for part in wanted]
    seen, found = set(waiting), dict[str, set[int]]()
    while waiting:
        module, name = waiting.pop()
        file = _file_of(module)
        if file is None:
            continue
        source = source_of(file, module, file.stat().st_mtime_ns)
        needed = source.needed(name)
        if name is not None and not any(name in binds for binds in source.binds):
            passed = _passed_on(module, name)
            if getattr(passed, "__qualname__", None) and getattr(passed, "__module__", module) != module:
                waiting.append((passed.__module__, passed.__qualname__.partition(".")[0]))
        found.setdefault(module, set()).update(needed)
        more = {_resolved(part) for number in needed for part in source.parts(number)}
        if name in source.aliases:  # re-exported by a package
            more |= {_resolved(part) for part in source.aliased(name, set())}
        waiting += more - seen
        seen |= more
    return found


def _passed_on(module: str, name: str) -> Any:
    """Return the object that a package exports under a name through a module-level ``__getattr__``, else None."""
    try:
        return getattr(sys.modules.get(module), name, None)
    except Exception:
        return None


def _packages(wanted: Iterable[Part]) -> set[str]:
    """Return the installed packages, other than the standard library, that user-defined code imports."""
    found = set[str]()
    for module, numbers in _reached(wanted).items():
        file = _file_of(module)
        assert file is not None
        source = source_of(file, module, file.stat().st_mtime_ns)
        found |= {part[0].partition(".")[0] for number in numbers for part in source.parts(number)}
    return {name for name in found if name and name not in sys.stdlib_module_names and _file_of(name) is None} - {
        "linfed"
    }


@functools.cache
def _version(package: str) -> str:
    """Return the installed version of a package, imported or not; empty if no distribution contains it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # its distribution has another name
        names = importlib.metadata.packages_distributions().get(package, [])
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))


def _part_of(owner: Any) -> list[Part]:
    """Return the module and name of a user-defined class or function, as a list; empty for installed packages."""
    name = owner.__module__
    if name.partition(".")[0] == "linfed" or (_file_of(name) is None and _is_installed(name)):
        return []
    if _file_of(name) is None:
        raise ValueError(
            f"store= requires the source file of {short_repr(owner)}, which has none; define it in a module, "
            f"or omit store="
        )
    return [(name, owner.__qualname__.partition(".")[0])]


def _is_installed(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return bool(file) or module.partition(".")[0] in {*sys.stdlib_module_names, *sys.builtin_module_names}


def _resolved(part: Part) -> Part:
    """Return the part, or the whole submodule if its name is a submodule of a package."""
    module, name = part
    return (f"{module}.{name}", None) if name and _spec_file(f"{module}.{name}") else part


def _file_of(module: str) -> Path | None:
    """Return the source file of a user-defined module; None for linfed, Python and installed packages."""
    return None if module.partition(".")[0] == "linfed" else _user_file(_spec_file(module) or "")


def _user_file(name: str) -> Path | None:
    """Return the resolved path of a user's source file; None for files of Python and of installed packages.

    The experiments shipped with linfed count as the user's, wherever linfed is installed.
    """
    return _source_file(name, str(FOLDER / SHIPPED))


@functools.lru_cache(maxsize=4096)
def _source_file(name: str, shipped: str) -> Path | None:
    path = Path(name).resolve()
    is_user_code = Path(shipped).resolve() in path.parents or not any(folder in path.parents for folder in INSTALLED)
    return path if path.suffix == ".py" and is_user_code else None


def _spec_file(module: str) -> str | None:
    """Return the file of a module, imported or not; None if it has no file."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    above = module.rpartition(".")[0]
    if module.partition(".")[0] in sys.stdlib_module_names or (above and above not in sys.modules):
        return None
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return None if found is None else found.origin
