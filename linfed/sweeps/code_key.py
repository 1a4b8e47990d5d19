"""Key of the code that can change a cell's numbers: a hash of whole files and of the versions of packages.

All files of linfed count, except the ones in `NOT_COUNTED`. The user's files that define the cell's classes and
functions count. So do the local modules that counted files import, at any place, with the packages that hold them.
Local modules without source count by their bytes, installed packages by their versions.

Comments and docstrings do not count, nor does the block ``if __name__ == "__main__":``, nor what an experiment
declares to choose, judge and draw cells. If other code of the file uses a name from these, the file counts as a whole,
and so does an experiment that another file imports.

Data files, environment variables, code that another process runs, modules that are loaded by a name in a string, and
functions, constants and class attributes that are replaced at run time are not covered.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
import symtable
import sys
from collections.abc import Container, Iterable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from linfed._package import FOLDER, SHIPPED
from linfed._sources import SOURCES, is_local
from linfed.checks import short_repr

NOT_COUNTED = (
    *(SHIPPED, "claims", "commands", "figures", "plotting", "report", "reproduction", "sweeps"),
    *("__init__", "__main__", "_package", "_sources", "cli"),
)
"""Subpackages and modules whose code cannot change a cell's numbers. Shipped experiments count for their own cells."""

DECLARED = {
    *("cells", "derived", "claims", "plot", "CLAIMS", "CAPTIONS"),
    *("SUMMARY", "HEADLINES", "PICTURES", "REDUCED"),
}
"""Names in an experiment, a module with a function ``cells``, that choose, judge and draw cells."""

FUNCTION = {property: "fget", classmethod: "__func__", staticmethod: "__func__", functools.cached_property: "func"}
"""Attribute of a descriptor that holds its function."""


class File(NamedTuple):
    """File of a module that counts.

    Attributes
    ----------
    module, path : str
    content : bytes
    whole : bool
        Whether the `DECLARED` names of an experiment count.
    """

    module: str
    path: str
    content: bytes
    whole: bool = True

    @property
    def code(self) -> Code:
        """The part of the file that counts."""
        return _code(self)


class Code(NamedTuple):
    """The part of a file that counts: its hash, and the names of the modules that it imports."""

    digest: str
    imports: frozenset[str] = frozenset()


def code_key(owners: Iterable[Any]) -> str:
    """Hash the code that these classes and functions depend on, and the versions of NumPy, SciPy and their imports.

    Raises
    ------
    ValueError
        If linfed, a class or a function has no source file. If the code that runs is not the code in the files: a file
        has changed since it was imported, or a method of a class was replaced by code of a file that does not count.
    """
    owners = list(owners)
    own, (files, packages) = _own_files(), _user_files(owners)
    for file in (own | files).values():
        if file.module in sys.modules:
            _check_file(file)
    for module in own.keys() & sys.modules.keys():
        for kind in list(vars(sys.modules[module]).values()):  # another thread may import from the module
            if isinstance(kind, type) and kind.__module__ == module:
                _check_methods(kind, own)
    for kind in {base for one in owners if isinstance(one, type) for base in one.__mro__ if base.__module__ in files}:
        _check_methods(kind, own | files)
    versions = (f"{name} {_version(name)}" for name in sorted({"numpy", "scipy"} | packages))
    return _hash([*versions, *_lines(own), *_lines(files)])


def source_digests(owners: Iterable[Any]) -> dict[str, str]:
    """Hash the same source as `code_key`, without the versions of packages.

    Returns
    -------
    dict of str to str
        "experiment", the hash of the user's code, and "linfed", the hash of the package. A checkout and an installed
        package with equal code have equal hashes.
    """
    return {"experiment": _hash(_lines(_user_files(owners)[0])), "linfed": _hash(_lines(_own_files()))}


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _lines(files: dict[str, File]) -> list[str]:
    return [f"{module} {file.code.digest}" for module, file in sorted(files.items())]


# --- the code that runs ----------------------------------------------------------------------------------------------


def _check_file(file: File) -> None:
    """Raise if a file has changed since it was imported."""
    loaded = SOURCES.setdefault(file.module, file.content)
    if loaded != file.content and file._replace(content=loaded).code.digest != file.code.digest:
        raise ValueError(
            f"store= cannot use results of {file.module!r}: the code in {file.path!r} has changed since it was "
            "imported; restart Python, or call importlib.reload"
        )


def _check_methods(kind: type, counted: Container[str]) -> None:
    """Raise if a method of a class is of a local module, or of a prompt, that is not among the given modules."""
    for name, value in list(vars(kind).items()):
        function = getattr(value, FUNCTION[type(value)]) if type(value) in FUNCTION else value
        variables = getattr(function, "__globals__", None)
        if variables is None or (module := variables.get("__name__")) in counted:
            continue
        path = variables.get("__file__")
        if is_local(path) if path else module == "__main__":
            raise ValueError(
                f"store= cannot use results of {short_repr(kind)}: its method {name} was replaced by code of the "
                f"module {module!r}; define a subclass instead"
            )


# --- files -----------------------------------------------------------------------------------------------------------


def _own_files() -> dict[str, File]:
    """Return the files of linfed that count, by module."""
    found, above = dict[str, File](), len(str(FOLDER)) + 1
    for folder, _, names in os.walk(FOLDER):
        for path in [os.path.join(folder, name) for name in names if name.endswith(".py")]:
            parts = path[above:].removesuffix(".py").split(os.sep)
            if parts[0] not in NOT_COUNTED:
                module = ".".join(["linfed", *parts]).removesuffix(".__init__")
                found[module] = File(module, path, _content(path))
    if not found:
        raise ValueError(
            f"store= requires the source files of linfed, which {str(FOLDER)!r} does not contain; install linfed with "
            "its .py files, or omit store="
        )
    return found


def _user_files(owners: Iterable[Any]) -> tuple[dict[str, File], set[str]]:
    """Return the user's files that count, by module, and the names of the installed packages that they import."""
    named = {base.__module__: base for one in owners for base in getattr(one, "__mro__", (one,))}
    for module, owner in named.items():
        if _file_of(module) is None and module.partition(".")[0] not in sys.stdlib_module_names:
            raise _without_source(owner)
    waiting = [(module, False) for module in named]
    files, packages = dict[str, File](), set[str]()
    while waiting:
        module, whole = waiting.pop(0)
        path, top = _file_of(module), module.partition(".")[0]
        if path is None or top == "linfed" or (module in files and files[module].whole >= whole):
            continue
        if not is_local(path) and (top in sys.stdlib_module_names or _version(top)):
            packages.add(top)
            continue
        if not os.path.isfile(path):
            raise _without_source(module)
        files[module] = file = File(module, path, _content(path), whole)
        waiting += [(one, True) for one in {module.rpartition(".")[0], *file.code.imports} - {"", module}]
    return files, packages - sys.stdlib_module_names


def _without_source(what: object) -> ValueError:
    return ValueError(
        f"store= requires the source file of {short_repr(what)}, which has none; define it in a module, or omit store="
    )


def _file_of(module: str) -> str | None:
    """Return the file of a module, imported or not; None if it has no file."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__file__", None)
    spec = _spec(module, tuple(sys.path))
    return spec.origin if spec is not None and spec.has_location else None


@functools.lru_cache(maxsize=4096)
def _spec(module: str, path: tuple[str, ...]) -> ModuleSpec | None:
    """Find a module that is not imported, without importing the packages that hold it."""
    above, _, name = module.rpartition(".")
    if not above:
        return importlib.util.find_spec(name)
    if above in sys.modules:
        folders = getattr(sys.modules[above], "__path__", None)
    else:
        spec = _spec(above, path)
        folders = spec and spec.submodule_search_locations
    return PathFinder.find_spec(name, folders) if folders else None


@functools.cache
def _version(package: str) -> str:
    """Return the installed version of a package, imported or not; empty if no distribution contains it."""
    from importlib import metadata  # not imported with linfed: it takes a tenth of the time of NumPy

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # its distribution has another name
        names = metadata.packages_distributions().get(package, [])
        return ", ".join(f"{name} {metadata.version(name)}" for name in sorted(set(names)))


# --- what counts of a file -------------------------------------------------------------------------------------------


def _content(path: str) -> bytes:
    """Return the bytes of a file, which are read again only if it has changed."""
    found = os.stat(path)
    return _read(path, (found.st_mtime_ns, found.st_ctime_ns, found.st_size))


@functools.lru_cache(maxsize=4096)
def _read(path: str, changed: tuple[int, ...]) -> bytes:
    return Path(path).read_bytes()


@functools.lru_cache(maxsize=4096)
def _code(file: File) -> Code:
    try:
        tree = ast.parse(file.content)
    except (SyntaxError, ValueError):  # not a source file
        return Code(hashlib.sha256(file.content).hexdigest())
    tree.body = _counted(tree.body, file.whole)
    digest = hashlib.sha256(_text(tree).encode(errors="surrogatepass")).hexdigest()
    return Code(digest, frozenset() if file.module.startswith("linfed.") else _imports(tree, file))


def _text(tree: ast.AST) -> str:
    """Return the structure of a tree without docstrings as text; `ast.dump` takes longer."""
    parts: list[str] = []
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        parts.append(type(node).__name__)
        for name in getattr(node, "_fields", ()):
            value = getattr(node, name)
            if type(value) is list:
                if value:  # empty lists do not count, since later versions of Python have more of them
                    nodes = [one for one in value if type(one) is not ast.Expr or type(one.value) is not ast.Constant]
                    parts.append(f"{name} {len(nodes)}")
                    waiting += nodes
            elif isinstance(value, ast.AST):
                if name != "ctx":
                    parts.append(name)
                    waiting.append(value)
            elif value is not None:
                parts.append(f"{name}={value!r}")
        if type(node) is str:  # in a list of names
            parts.append(node)
    return " ".join(parts)


def _counted(body: list[ast.stmt], whole: bool) -> list[ast.stmt]:
    """Leave out the main block and the declarations of an experiment, unless other statements use a name from them."""
    is_experiment = not whole and any(isinstance(one, ast.FunctionDef) and one.name == "cells" for one in body)
    left = [one for one in body if _is_main(one) or (is_experiment and set() < _defined(one) <= DECLARED)]
    if not left:
        return body
    rest = [one for one in body if one not in left]
    used = {node.id for one in rest for node in ast.walk(one) if isinstance(node, ast.Name)}
    return body if any(_defined(one) & used for one in left) else rest


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines in its module."""
    names = symtable.symtable(ast.unparse(node), "", "exec").get_symbols()
    return {name.get_name() for name in names if name.is_assigned()}


def _imports(tree: ast.Module, file: File) -> frozenset[str]:
    """Return the names of the modules that a file imports, also within functions."""
    package = getattr(sys.modules.get(file.module), "__package__", None)
    package = package or (file.module if file.path.endswith("__init__.py") else file.module.rpartition(".")[0])
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (above, node.module) if part)
            found |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
    return frozenset(found)
