"""Static analysis of a module: the statements that a name depends on, and the parts of other modules that they use."""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

Part: TypeAlias = tuple[str, str | None]
"""A module and a name in it, or None for the whole module."""

PLAIN = ("dataclass", "cache", "lru_cache", "wraps", "contextmanager", "total_ordering", "runtime_checkable", "final")
"""Decorators without side effects in other modules."""

ANYTHING = ("globals", "locals", "eval", "exec", "vars", "__import__", "import_module", "modules", "__subclasses__")
"""Names through which code can use objects that it does not mention; its whole module counts then."""

DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
"""Statements that count only if a name that they bind is needed; all others always count."""

IMPORTS = (ast.Import, ast.ImportFrom)


@functools.lru_cache(maxsize=4096)
def source_of(file: Path, module: str, changed: int) -> ModuleSource:
    """Parse a module; `changed` is the file's time of change in nanoseconds, so that a changed file is read again."""
    above = module if file.name == "__init__.py" else module.rpartition(".")[0]
    package = getattr(sys.modules.get(module), "__package__", None) or above
    return ModuleSource(ast.parse(file.read_bytes()), package, main=module == "__main__")


@functools.lru_cache(maxsize=4096)
def digest_of(file: Path, changed: int) -> str:
    """Hash all statements of a module; `changed` is as in `source_of`."""
    source = ModuleSource(ast.parse(file.read_bytes()), "", main=False)
    return hashlib.sha256("\n".join(source.texts).encode()).hexdigest()


class ModuleSource:
    """Statements of a module: their text, the names that each binds and loads, and the origin of imported names."""

    def __init__(self, tree: ast.Module, package: str, *, main: bool) -> None:
        self.package = package
        self.aliases: dict[str | None, set[Part]] = defaultdict(set)
        body = list(tree.body)
        if main:  # assignments under `if __name__ == "__main__"` count, calls do not
            parts = [part for node in body if _is_main(node) for part in getattr(node, "body", [])]
            body += [part for part in parts if not isinstance(part, ast.Expr)]
        self.nodes = [node for node in body if not _is_idle(node)]
        for node in self.nodes:
            for name, part in self._imported(node):
                self.aliases[name].add(part)

    @functools.cached_property
    def binds(self) -> list[set[str]]:
        """The names that each statement binds."""
        return [{*_bound(node), *dict(self._imported(node))} for node in self.nodes]

    @functools.cached_property
    def loads(self) -> list[dict[str, set[str]]]:
        """The names that each statement loads, with the attributes that it reads from them."""
        return [_loaded(node) for node in self.nodes]

    @functools.cached_property
    def texts(self) -> list[str]:
        """The text of each statement."""
        return [_text(node) for node in self.nodes]

    def constants(self, numbers: Iterable[int]) -> dict[str, Any]:
        """Return the constants (numbers, strings) assigned by the statements of these indices and never reassigned."""
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
        """Return the indices of the statements that a name depends on or that always count; all for None."""
        if name is None:
            return set(range(len(self.nodes)))
        bound_names = {name, "*"}
        needed = {i for i, node in enumerate(self.nodes) if self.always[i] or self.binds[i] & bound_names}
        while True:
            loads = {one for i in needed for one in self.loads[i]}
            if loads & {*ANYTHING} or any(self.loads[i][one] & {*ANYTHING} for i in needed for one in self.loads[i]):
                return set(range(len(self.nodes)))
            bound = {one for i in needed for one in self.binds[i] if not isinstance(self.nodes[i], IMPORTS)}
            more = {i for i, binds in enumerate(self.binds) if i not in needed and binds & loads}
            more |= {i for i, names in enumerate(self.changes) if i not in needed and names & bound}
            seen = {one for i in needed for one in self.binds[i]}
            more |= {i for i, node in enumerate(self.nodes) if i not in needed and _decorators(node) & seen}
            if not more:
                return needed
            needed |= more

    @functools.cached_property
    def always(self) -> list[bool]:
        """For each statement, whether it always counts because it may do more than bind a name."""
        used = {name for loads in self.loads for name in loads}
        return [
            not isinstance(node, DEFINES) or (isinstance(node, IMPORTS) and not binds & used)
            for node, binds in zip(self.nodes, self.binds, strict=True)
        ]

    @functools.cached_property
    def changes(self) -> list[set[str]]:
        """The names of the module that each statement may modify: arguments of a called function, bases of a class."""
        found = []
        pairs = list(zip(self.nodes, self.binds, strict=True))
        assigned = {name for node, binds in pairs for name in binds if _assigns(node)}
        for node, loads in zip(self.nodes, self.loads, strict=True):
            calls = _assigns(node) and any(isinstance(part, ast.Call) for part in ast.walk(node))
            names = {name for base in getattr(node, "bases", []) for name in _loaded(base)}
            decorators = _decorators(node)
            for other, binds in pairs:  # a decorator that this module defines
                if binds & decorators and not isinstance(other, IMPORTS):
                    names |= _loaded(other).keys() & assigned
            found.append(names | (loads.keys() & assigned if calls else set()))
        return found

    def parts(self, number: int) -> Iterator[Part]:
        """Yield the parts of other modules that a statement uses."""
        for name, attributes in self.loads[number].items():
            if name in self.aliases:
                yield from self.aliased(name, attributes)
        if "*" in self.binds[number]:
            yield from self.aliases["*"]
        if isinstance(self.nodes[number], IMPORTS) and self.always[number]:  # an import for its side effects
            yield from ((module, None) for name in self.binds[number] for module, _ in self.aliases[name])
        for node in ast.walk(self.nodes[number]):
            if node is not self.nodes[number]:  # an import within a function
                yield from (part for _, part in self._imported(node))

    def aliased(self, name: str | None, attributes: set[str]) -> Iterator[Part]:
        """Yield the parts that an imported name refers to; if it is a module, the parts for its attributes."""
        for module, within in self.aliases[name]:
            whole = within is not None or not attributes or "" in attributes or module.startswith(f"{name}.")
            yield from [(module, within)] if whole else [(module, attribute) for attribute in attributes]

    def _imported(self, node: ast.AST) -> Iterator[tuple[str, Part]]:
        """Yield the names that an import binds, each with the part that it refers to."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], (alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            above = self.package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(part for part in (above, node.module) if part)
            for alias in node.names:
                yield alias.asname or alias.name, (module, None if alias.name == "*" else alias.name)


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse


def _is_idle(node: ast.stmt) -> bool:
    """Return whether a statement has no effect on import: a docstring, the main block, imports for type checking."""
    if isinstance(node, ast.If) and not node.orelse:
        return _is_main(node) or ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    return _is_constant(node)


def _decorators(node: ast.stmt) -> set[str]:
    """Return the names of a definition's decorators that may have side effects."""
    called = [one.func if isinstance(one, ast.Call) else one for one in getattr(node, "decorator_list", [])]
    texts = [ast.unparse(one) for one in called]
    return {text.partition(".")[0] for text in texts if text.rpartition(".")[2] not in PLAIN}


def _assigns(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign)


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds or modifies in its module."""
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
    """Return the names that a statement loads outside annotations, each with the attributes read; "" is the name."""
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
    """Return the structure of a statement as text, without its layout, comments and docstrings."""
    parts: list[str] = []
    _write(node, parts)
    return " ".join(parts)


def _write(node: ast.AST, parts: list[str]) -> None:
    """Append the type and the fields of a node that are not empty; `ast.unparse` takes three times as long."""
    parts.append(type(node).__name__)
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or value == [] or isinstance(value, ast.expr_context):
            continue
        parts.append(f"{name}=")
        values = value if isinstance(value, list) else [value]
        for one in [one for one in values if not _is_constant(one)] or [ast.Pass()]:
            if isinstance(one, ast.AST):
                _write(one, parts)
            else:
                parts.append(repr(one))
    parts.append(";")


def _is_constant(node: object) -> bool:
    """Return whether this is a statement that is only a constant: a docstring or an ellipsis."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
