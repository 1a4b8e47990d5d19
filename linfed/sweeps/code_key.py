"""Key of the code that can change a cell's numbers: a hash of whole files and of the versions of packages.

All files of linfed count except those that cannot change a number. The user's files that define the cell's classes and
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
import glob
import hashlib
import importlib.util
import os
import sys
from collections.abc import Container, Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from linfed._package import FOLDER, SHIPPED
from linfed._sources import SOURCES, is_local
from linfed.checks import short_repr

NOT_COUNTED = (
    *(SHIPPED, "claims", "commands", "figures", "plotting", "report", "reproduction", "sweeps"),
    *("__init__.py", "__main__.py", "_package.py", "_sources.py", "cli.py"),
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
    path, module : str
    whole : bool
        Whether the `DECLARED` names of an experiment count.
    """

    path: str
    module: str
    whole: bool = True

    def code(self, content: bytes | None = None) -> Code:
        """Return what counts of the file, or of another content."""
        return _code(self.content if content is None else content, self.path, self.module, self.whole)

    @property
    def content(self) -> bytes:
        """The file's bytes."""
        found = os.stat(self.path)
        return _read(self.path, (found.st_mtime_ns, found.st_ctime_ns, found.st_size))


class Code(NamedTuple):
    """The part of a file that counts: its hash, and the names of the modules that it imports."""

    digest: str
    imports: frozenset[str] = frozenset()


def code_digest(owners: Iterable[Any]) -> str:
    """Hash the code that these classes and functions depend on, and the versions of NumPy, SciPy and their imports.

    Raises
    ------
    ValueError
        If linfed, a class or a function has no source file.
    """
    files, packages = _user_files(owners)
    versions = [f"{name} {_version(name)}" for name in sorted({"numpy", "scipy"} | packages)]
    return _hash([*versions, *_lines(_own_files()), *_lines(files)])


def source_digests(owners: Iterable[Any]) -> dict[str, str]:
    """Hash the source that the functions of an experiment depend on, without versions of other packages.

    Returns
    -------
    dict of str to str
        "experiment", the hash of the user's code with all that an experiment declares, and "linfed", the hash of the
        package. They are the same in a checkout and in an installed package with the same code. Comments and docstrings
        do not count.
    """
    return {"experiment": _hash(_lines(_user_files(owners, whole=True)[0])), "linfed": _hash(_lines(_own_files()))}


def check_loaded(owners: Iterable[Any]) -> None:
    """Raise if the code that runs is not the code in the files, whose hash is the key.

    Raises
    ------
    ValueError
        If a file has changed since it was imported, or a method of a class was replaced by code that is not in the key.
    """
    owners = list(owners)
    own, files = _own_files(), _user_files(owners)[0]
    for file in [*own.values(), *files.values()]:
        if file.module in sys.modules:
            _check_file(file)
    for module in own.keys() & sys.modules.keys():
        for kind in list(vars(sys.modules[module]).values()):  # another thread may import from the module
            if isinstance(kind, type) and kind.__module__ == module:
                _check_methods(kind, own)
    for kind in {base for owner in owners for base in getattr(owner, "__mro__", ()) if base.__module__ in files}:
        _check_methods(kind, own | files)


def _check_file(file: File) -> None:
    content = file.content
    loaded = SOURCES.setdefault(file.module, content)
    if loaded != content and file.code(loaded) != file.code():
        raise ValueError(
            f"store= cannot use results of {file.module!r}: the code in {file.path!r} has changed since it was "
            "imported; restart Python, or call importlib.reload"
        )


def _check_methods(kind: type, counted: Container[str]) -> None:
    """Raise if a method of a class is of a local module, or of a prompt, that is not among the given modules."""
    for name, value in list(vars(kind).items()):
        function = getattr(value, FUNCTION.get(type(value), ""), value)
        variables = getattr(function, "__globals__", {})
        module, path = variables.get("__name__"), variables.get("__file__")
        if module not in counted and (is_local(path) if path else module == "__main__"):
            raise ValueError(
                f"store= cannot use results of {short_repr(kind)}: its method {name} was replaced by code of the "
                f"module {module!r}; define a subclass instead"
            )


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _lines(files: dict[str, File]) -> Iterator[str]:
    return (f"{module} {file.code().digest}" for module, file in sorted(files.items()))


# --- files -----------------------------------------------------------------------------------------------------------


def _own_files() -> dict[str, File]:
    """Return the files of linfed that count, by module."""
    found = dict[str, File]()
    for name in glob.iglob("**/*.py", root_dir=FOLDER, recursive=True):
        if name.split(os.sep)[0] not in NOT_COUNTED:
            module = f"linfed.{name.removesuffix('.py').replace(os.sep, '.')}".removesuffix(".__init__")
            found[module] = File(os.path.join(FOLDER, name), module)
    if not found:
        raise ValueError(
            f"store= requires the source files of linfed, which {str(FOLDER)!r} does not contain; install linfed with "
            "its .py files, or omit store="
        )
    return found


def _user_files(owners: Iterable[Any], whole: bool = False) -> tuple[dict[str, File], set[str]]:
    """Return the user's files that count, by module, and the names of the installed packages that they import."""
    waiting = list[File]()
    for owner in {base for one in owners for base in getattr(one, "__mro__", (one,))}:
        path = _file_of(owner.__module__)
        if path is None and owner.__module__.partition(".")[0] not in sys.stdlib_module_names:
            raise _without_source(owner)
        waiting.append(File(path or "", owner.__module__, whole))
    files, packages = dict[str, File](), set[str]()
    while waiting:
        file = waiting.pop(0)
        top = file.module.partition(".")[0]
        known = files.get(file.module)
        if not file.path or top == "linfed" or (known is not None and known.whole >= file.whole):
            continue
        if not is_local(file.path) and (top in sys.stdlib_module_names or _version(top)):
            packages.add(top)
            continue
        if not os.path.isfile(file.path):
            raise _without_source(file.module)
        files[file.module] = file
        for module in {file.module.rpartition(".")[0], *file.code().imports} - {"", file.module}:
            waiting.append(File(_file_of(module) or "", module))
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


@functools.lru_cache(maxsize=4096)
def _read(path: str, changed: tuple[int, ...]) -> bytes:
    """Read a file; `changed` differs if the file has changed."""
    return Path(path).read_bytes()


@functools.lru_cache(maxsize=4096)
def _code(content: bytes, path: str, module: str, whole: bool) -> Code:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # not a source file
        return Code(hashlib.sha256(content).hexdigest())
    tree.body = _counted(tree.body, whole)
    digest = hashlib.sha256(_text(tree).encode(errors="surrogatepass")).hexdigest()
    return Code(digest) if module.startswith("linfed.") else Code(digest, _imports(tree, path, module))


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
    """Return the names that a function, an assignment or a main block defines; none for other statements."""
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    if not _is_main(node):
        return set()
    nodes = list(ast.walk(node))
    found = {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    found |= {one.asname or one.name.partition(".")[0] for one in nodes if isinstance(one, ast.alias)}
    return found | {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _imports(tree: ast.Module, path: str, module: str) -> frozenset[str]:
    """Return the names of the modules that a file imports, also within functions."""
    package = getattr(sys.modules.get(module), "__package__", None)
    package = package or (module if path.endswith("__init__.py") else module.rpartition(".")[0])
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (above, node.module) if part)
            found |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
    return frozenset(found)
