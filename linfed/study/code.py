"""The digest of the code that can change a cell's numbers.

Of linfed counts everything but what draws, keeps and prints. Of a class or a function of one's own counts its text,
that of what it names in its module, and so on into the modules that are imported there, unless they are installed
packages. Comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import inspect
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeAlias

import linfed
from linfed.errors import shown

STARTED = time.time()
"""About when linfed was imported."""

Part: TypeAlias = tuple[str, str | None]
"""A module, and the name in it that is meant, or None for all of it."""

NO_NUMBERS = (
    "__init__.py",
    "__main__.py",
    "cli.py",
    "figures/",
    *(f"study/{name}.py" for name in ("axes", "canonical", "code", "experiments", "export", "kinds", "means", "notes")),
    *(f"study/{name}.py" for name in ("overview", "pages", "recipe", "run", "schedule", "store", "sweep", "swept")),
)
"""What of linfed changes no number: what draws, keeps, sends and prints."""

INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of Python and of installed packages."""

DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
"""Statements that count where a name they bind is needed; all others always do."""


def code_digest(owners: Iterable[Any]) -> str:
    """Return a digest of the code that these classes and functions rest on, and of NumPy's and SciPy's versions.

    Raises
    ------
    ValueError
        For a class or a function that is in no file.
    """
    wanted = [part for own in owners for base in getattr(own, "__mro__", (own,)) for part in _part_of(base)]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "scipy")]
    return hashlib.sha256(
        "\n".join([*versions, *_of_linfed(), *map(": ".join, statements(wanted).items())]).encode()
    ).hexdigest()


def check_loaded(owners: Iterable[Any]) -> None:
    """Raise if a file that counts has changed since it was imported: what runs is then not what its digest says.

    Raises
    ------
    ValueError
        For functions, and constants of numbers and words, that are not as the file of their module has them; and for a
        file of linfed that is newer than this process.
    """
    folder = Path(linfed.__file__).parent
    for file in folder.rglob("*.py"):
        if not file.relative_to(folder).as_posix().startswith(NO_NUMBERS) and file.stat().st_mtime > STARTED:
            raise _changed(file, "this process")
    parts = [part for own in owners for base in getattr(own, "__mro__", (own,)) for part in _part_of(base)]
    for module, numbers in _reached(parts).items():
        own_file = _file_of(module)
        if own_file is None or own_file.stat().st_mtime <= STARTED:
            continue
        source = _source(own_file, module, own_file.stat().st_mtime_ns)
        loaded = vars(sys.modules[module])
        for name, value in source.constants(numbers).items():
            if name in loaded and (type(loaded[name]), loaded[name]) != (type(value), value):
                raise _changed(own_file, f"{module}.{name}")
        written = {one.co_qualname: one for one in _codes(compile(own_file.read_bytes(), str(own_file), "exec"))}
        needed = {name for number in numbers for name in source.binds[number]}
        for function in _functions((loaded[name] for name in needed if name in loaded), module):
            code = function.__code__
            if Path(code.co_filename).resolve() == own_file and _same(code) != _same(written.get(code.co_qualname)):
                raise _changed(own_file, f"{module}.{code.co_qualname}")


def _changed(file: Path, what: str) -> ValueError:
    return ValueError(
        f"store= would keep what {what} computes under the code of {str(file)!r}, which has changed since: start anew, "
        "or import the module anew"
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of everything that is defined within some code."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield part
            yield from _codes(part)


def _functions(values: Iterable[Any], module: str) -> Iterator[FunctionType]:
    """Yield the functions and methods that a module has defined."""
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
    """Return what is the same of two functions where they do the same."""
    if code is None:
        return None
    consts = [_same(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts[1:]]  # the first: text
    return code.co_code, code.co_names, code.co_varnames, consts


def _of_linfed() -> Iterator[str]:
    """Yield the text of linfed's own modules."""
    folder = Path(linfed.__file__).parent
    for file in sorted(folder.rglob("*.py")):
        name = file.relative_to(folder).as_posix()
        if not name.startswith(NO_NUMBERS):
            yield f"{name}:{_source(file, '', file.stat().st_mtime_ns).whole}"


def statements(wanted: Iterable[Part]) -> dict[str, str]:
    """Return the statements that parts of modules of one's own rest on, by module."""
    out = {}
    for module, numbers in sorted(_reached(wanted).items()):
        file = _file_of(module)
        assert file is not None
        texts = _source(file, module, file.stat().st_mtime_ns).texts
        out[module] = "\n".join(texts[number] for number in sorted(numbers))
    return out


def _reached(wanted: Iterable[Part]) -> dict[str, set[int]]:
    """Return the numbers of the statements that parts of modules rest on, by module."""
    waiting = [_resolved(part) for part in wanted]
    seen, found = set(waiting), dict[str, set[int]]()
    while waiting:
        module, name = waiting.pop()
        file = _file_of(module)
        if file is None:
            continue
        source = _source(file, module, file.stat().st_mtime_ns)
        needed = source.needed(name)
        found.setdefault(module, set()).update(needed)
        more = {_resolved(part) for number in needed for part in source.parts(number)}
        if name in source.aliases:  # what a package passes on
            more |= {_resolved(part) for part in source.aliased(name, set())}
        waiting += more - seen
        seen |= more
    return found


def _part_of(own: Any) -> list[Part]:
    """Return where a class or a function is defined; nothing for those of linfed, Python and installed packages."""
    name = own.__module__
    if name.partition(".")[0] in {"linfed", *sys.stdlib_module_names}:
        return []
    if _file_of(name) is None and not getattr(sys.modules.get(name), "__file__", None):
        raise ValueError(
            f"store= needs the code of {shown(own)}, which has no file: put it into a module or drop store="
        )
    return [(name, own.__qualname__.partition(".")[0])]


def _resolved(part: Part) -> Part:
    """Return a part; that which is a module within a package as all of this module."""
    module, name = part
    return (f"{module}.{name}", None) if name and f"{module}.{name}" in sys.modules else part


def _file_of(module: str) -> Path | None:
    """Return the source file of a module of one's own; None for linfed's, Python's and those of installed packages."""
    path = Path(getattr(sys.modules.get(module), "__file__", None) or "").resolve()
    installed = module.partition(".")[0] == "linfed" or any(folder in path.parents for folder in INSTALLED)
    return path if path.suffix == ".py" and not installed else None


@functools.lru_cache(maxsize=4096)
def _source(file: Path, module: str, changed: int) -> _Source:
    return _Source(ast.parse(file.read_bytes()), module if file.name == "__init__.py" else module.rpartition(".")[0])


class _Source:
    """A module's statements: their text, the names that each binds and loads, and where imported names come from."""

    def __init__(self, tree: ast.Module, package: str) -> None:
        self.package = package
        self.aliases: dict[str | None, set[Part]] = defaultdict(set)
        self.nodes = [node for node in tree.body if not _is_idle(node)]
        for node in self.nodes:
            for name, part in self._imported(node):
                self.aliases[name].add(part)

    @functools.cached_property
    def binds(self) -> list[set[str]]:
        """The names that each statement binds."""
        return [{*_bound(node), *dict(self._imported(node))} for node in self.nodes]

    @functools.cached_property
    def loads(self) -> list[dict[str, set[str]]]:
        """The names that each statement loads, with the attributes asked of them."""
        return [_loaded(node) for node in self.nodes]

    @functools.cached_property
    def texts(self) -> list[str]:
        """Each statement as text."""
        return [_text(node) for node in self.nodes]

    @functools.cached_property
    def whole(self) -> str:
        """A digest of all statements."""
        return hashlib.sha256("\n".join(self.texts).encode()).hexdigest()

    def constants(self, numbers: Iterable[int]) -> dict[str, Any]:
        """Return the numbers and words that statements give names to, which no function changes."""
        changed = {
            name
            for node in self.nodes
            for part in ast.walk(node)
            if isinstance(part, ast.Global)
            for name in part.names
        }
        found: dict[str, Any] = {}
        for node in (self.nodes[number] for number in numbers):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                found |= {one.id: node.value.value for one in node.targets if isinstance(one, ast.Name)}
        often = [name for binds in self.binds for name in binds]
        return {name: value for name, value in found.items() if name not in changed and often.count(name) == 1}

    def needed(self, name: str | None) -> set[int]:
        """Return the statements that a name rests on, and those that always count; for None all."""
        if name is None:
            return set(range(len(self.nodes)))
        needed = {
            i for i, node in enumerate(self.nodes) if not isinstance(node, DEFINES) or self.binds[i] & {name, "*"}
        }
        waiting = list(needed)
        while waiting:
            loads = self.loads[waiting.pop()].keys()
            more = {i for i, binds in enumerate(self.binds) if i not in needed and binds & loads}
            needed |= more
            waiting += more
        return needed

    def parts(self, number: int) -> Iterator[Part]:
        """Yield what a statement needs of other modules."""
        for name, attributes in self.loads[number].items():
            if name in self.aliases:
                yield from self.aliased(name, attributes)
        if "*" in self.binds[number]:
            yield from self.aliases["*"]
        for node in ast.walk(self.nodes[number]):
            if node is not self.nodes[number]:  # an import within a function
                yield from dict(self._imported(node)).values()

    def aliased(self, name: str | None, attributes: set[str]) -> Iterator[Part]:
        """Yield what is meant by a name that is imported, and by its attributes where it is a module."""
        for module, within in self.aliases[name]:
            whole = within is not None or not attributes or "" in attributes or module.startswith(f"{name}.")
            yield from [(module, within)] if whole else [(module, attribute) for attribute in attributes]

    def _imported(self, node: ast.AST) -> Iterator[tuple[str, Part]]:
        """Yield the names that an import binds, and what they stand for."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], (alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            above = self.package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(part for part in (above, node.module) if part)
            for alias in node.names:
                yield alias.asname or alias.name, (module, None if alias.name == "*" else alias.name)


def _is_idle(node: ast.stmt) -> bool:
    """Return whether a statement does nothing for those that import the module: text, the main part, type checking."""
    if isinstance(node, ast.If):
        words = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
        return not node.orelse and bool(words & {"__name__", "TYPE_CHECKING"})
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds or changes in its module."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        for part in ast.walk(node):
            if isinstance(part, ast.Global):
                yield from part.names
        return
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        if isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store):
            yield from (one.id for one in ast.walk(part.value) if isinstance(one, ast.Name))


def _loaded(node: ast.AST) -> dict[str, set[str]]:
    """Return the names that a statement loads, annotations aside, with the attributes asked of each; "" for itself."""
    found: dict[str, set[str]] = defaultdict(set)
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            found[part.value.id].add(part.attr)
        elif isinstance(part, ast.Name):
            found[part.id].add("")
        else:
            waiting += [
                value
                for field, values in ast.iter_fields(part)
                if field not in ("annotation", "returns")
                for value in (values if isinstance(values, list) else [values])
                if isinstance(value, ast.AST)
            ]
    return found


def _text(node: ast.stmt) -> str:
    """Return a statement as text, without comments and docstrings, in a layout of its own."""
    for part in ast.walk(node):
        body = getattr(part, "body", None)
        if isinstance(body, list) and body and _is_idle(body[0]):
            body[:] = [one for one in body if not _is_idle(one)] or [ast.Pass()]
    return ast.unparse(node)
