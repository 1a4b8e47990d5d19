"""Key of the code that can change a cell's numbers: a hash of whole files and of the versions of packages.

Of linfed, all files count except those that cannot change a number. Of the user's code, the files count that define the
cell's classes and functions, and the local modules that these files import or name in a string, at any place. Local
modules without source count by their bytes, installed packages by their versions. Comments and docstrings do not count,
nor does the block ``if __name__ == "__main__":``, nor the parts of an experiment that choose, judge and draw, unless
code that counts uses a name which they define.

Data files, environment variables, code that another process runs, modules whose names are computed, and functions,
constants and class attributes that are replaced at run time are not covered.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from linfed._package import FOLDER
from linfed._sources import SOURCES, SourceFinder, is_installed
from linfed.checks import short_repr

SHIPPED = "_shipped"
"""Folder of the installed package that holds ``experiments/``; in a checkout they lie next to the package."""

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

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class File(NamedTuple):
    """File of a module; an archive or a compiled module counts by its bytes.

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
    """The part of a file that counts: its hash, the modules that it imports, and strings that may name modules."""

    digest: str
    imports: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()


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
        "experiment", the hash of the user's code, and "linfed", the hash of the package. They are the same in a
        checkout and in an installed package with the same code. Comments and docstrings do not count.
    """
    return {"experiment": _hash(_lines(_user_files(owners)[0])), "linfed": _hash(_lines(_own_files()))}


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
            content = file.content
            loaded = SOURCES.setdefault(file.module, content)
            if loaded != content and file.code(loaded) != file.code():
                raise ValueError(
                    f"store= cannot save results of {file.module!r}: the code in {file.path!r} has changed since it "
                    "was imported; restart Python, or call importlib.reload"
                )
    classes = {base for owner in owners for base in getattr(owner, "__mro__", ()) if base.__module__ in files}
    for module in own.keys() & sys.modules.keys():
        values = list(vars(sys.modules[module]).values())  # another thread may import from the module
        classes |= {one for one in values if isinstance(one, type) and one.__module__ == module}
    for kind in classes:
        counted = files.keys() if kind.__module__ in files else ()
        for name, value in list(vars(kind).items()):
            function = getattr(value, FUNCTION.get(type(value), ""), value)
            module = function.__globals__.get("__name__", "") if isinstance(function, FunctionType) else ""
            if module in sys.modules and module not in (kind.__module__, *counted) and _is_users(module):
                raise ValueError(
                    f"store= cannot save results of {short_repr(kind)}: its method {name} was replaced by code of the "
                    f"module {module!r}; define a subclass instead"
                )


def _is_users(module: str) -> bool:
    """Return whether an imported module is neither of linfed, nor of Python, nor of an installed package."""
    path = _file_of(module)
    return module.partition(".")[0] != "linfed" and (module == "__main__" if path is None else _is_local(path))


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _lines(files: dict[str, File]) -> Iterator[str]:
    return (f"{module} {file.code().digest}" for module, file in sorted(files.items()))


# --- files -----------------------------------------------------------------------------------------------------------


def _own_files(folder: str = "") -> dict[str, File]:
    """Return the files of linfed that count, by module."""
    found = dict[str, File]()
    for entry in os.scandir(FOLDER / folder) if FOLDER.is_dir() else ():
        name = f"{folder}{entry.name}"
        module = f"linfed/{name}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if name.endswith(".py") and name not in NOT_COUNTED:
            found[module] = File(entry.path, module)
        elif entry.is_dir() and name not in NOT_COUNTED:
            found |= _own_files(f"{name}/")
    if not (found or folder):
        raise ValueError(
            f"store= requires the source files of linfed, which {str(FOLDER)!r} does not contain; install linfed with "
            "its .py files, or omit store="
        )
    return found


def _user_files(owners: Iterable[Any]) -> tuple[dict[str, File], set[str]]:
    """Return the user's files that count, by module, and the names of the installed packages that they import."""
    waiting = list[File]()
    for owner in {base for one in owners for base in getattr(one, "__mro__", (one,))}:
        path = _file_of(owner.__module__)
        if path is None and owner.__module__.partition(".")[0] not in sys.stdlib_module_names:
            raise _without_source(owner)
        waiting.append(File(path or "", owner.__module__, owner.__qualname__ in DECLARED))
    files, packages = dict[str, File](), set[str]()
    while waiting:
        file = waiting.pop()
        top = file.module.partition(".")[0]
        known = files.get(file.module)
        if not file.path or top == "linfed" or (known is not None and known.whole >= file.whole):
            continue
        if not _is_local(file.path) and (top in sys.stdlib_module_names or _version(top)):
            packages.add(top)
            continue
        if not os.path.isfile(file.path):
            raise _without_source(file.module)
        files[file.module] = file
        code = file.code()
        strings = {one for one in code.strings if (path := _file_of(one)) and _is_local(path)}
        for module in {file.module.rpartition(".")[0], *code.imports, *strings} - {"", file.module}:
            waiting.append(File(_file_of(module) or "", module))
    return files, packages - sys.stdlib_module_names


def _without_source(what: object) -> ValueError:
    return ValueError(
        f"store= requires the source file of {short_repr(what)}, which has none; define it in a module, or omit store="
    )


@functools.lru_cache(maxsize=4096)
def _is_local(path: str) -> bool:
    """Return whether a file is the user's; the experiments shipped with linfed are, wherever it is installed."""
    return f"{os.sep}{SHIPPED}{os.sep}" in path or not is_installed(os.path.realpath(path))


def _file_of(module: str) -> str | None:
    """Return the file of a module, imported or not, or the archive that holds it; None if it has no file."""
    if module in sys.modules:
        found = getattr(sys.modules[module], "__file__", None)
    else:
        found, _ = _find(module, tuple(sys.path))
    if found is None or os.path.isfile(found):
        return found
    return next((str(one) for one in Path(found).parents if one.is_file()), found)


@functools.lru_cache(maxsize=4096)
def _find(module: str, path: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Return the file of a module that is not imported, and the folders of its submodules; nothing is imported."""
    above, _, name = module.rpartition(".")
    folders: tuple[str, ...] | None = None
    if above:
        folders = tuple(getattr(sys.modules.get(above), "__path__", ())) or _find(above, path)[1]
    if not name.isidentifier() or folders == ():
        return None, ()
    spec = PathFinder.find_spec(module, folders)
    for finder in sys.meta_path:  # built-in modules, and those of editable installations
        spec = spec or (finder.find_spec(module, folders) if finder is not SourceFinder else None)
    if spec is None:
        return None, ()
    return spec.origin if spec.has_location else None, tuple(spec.submodule_search_locations or ())


@functools.cache
def _version(package: str) -> str:
    """Return the installed version of a package, imported or not; empty if no distribution contains it."""
    import importlib.metadata  # not imported with linfed: it takes a tenth of the time of NumPy

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # its distribution has another name
        names = importlib.metadata.packages_distributions().get(package, [])
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))


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
    return Code(digest) if module.startswith("linfed.") else Code(digest, *_named(tree, path, module))


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
    """Leave out the main block and the declarations of an experiment, unless other statements use their names."""
    is_experiment = not whole and any(isinstance(one, ast.FunctionDef) and one.name == "cells" for one in body)
    left = {one for one in body if _is_main(one) or (is_experiment and _is_declaration(one))}
    while left:
        used = {name for one in body if one not in left for name in _used(one)}
        needed = {one for one in left if _bound(one) & used}
        if not needed:
            break
        left -= needed
    return [one for one in body if one not in left]


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse


def _is_declaration(node: ast.stmt) -> bool:
    declares = isinstance(node, ast.FunctionDef | ast.Assign | ast.AnnAssign) and set() < _bound(node) <= DECLARED
    return declares and not any(isinstance(one, ast.Global) for one in ast.walk(node))


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds in its module."""
    nodes = [node] if isinstance(node, DEFINITIONS) else list(ast.walk(node))
    found = {one.name for one in nodes if isinstance(one, DEFINITIONS)}
    found |= {one.asname or one.name.partition(".")[0] for one in nodes if isinstance(one, ast.alias)}
    return found | {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _used(node: ast.stmt) -> set[str]:
    """Return the names that a statement uses, or may use: local names, attributes in capitals and strings count."""
    nodes = list(ast.walk(node))
    used = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    used |= {one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    used |= {one.attr for one in nodes if isinstance(one, ast.Attribute) and one.attr.isupper()}  # of the module itself
    return used | {name for one in nodes if isinstance(one, ast.Global) for name in one.names}


def _named(tree: ast.Module, path: str, module: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the modules that a file imports, and its strings that may name modules."""
    is_package = path.endswith("__init__.py")
    package = getattr(sys.modules.get(module), "__package__", None)
    package = package or (module if is_package else module.rpartition(".")[0])
    imports, strings = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(part for part in (above, node.module) if part)
            imports |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.removesuffix(".py")
            strings |= {name, f"{package}.{name.lstrip('.')}"} if is_package or name.startswith(".") else {name}
    return frozenset(imports), frozenset(strings)
