"""Formulas of power laws such as ``m - k - 1 ~ n^a d^b k^c``: parsing, and evaluation on the columns of a table."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from linfed._names import SYMBOLS
from linfed._types import Array
from linfed.checks import short_repr, suggestion

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {"log": np.log, "sqrt": np.sqrt, "exp": np.exp}

LONGEST = 200
"""Largest number of characters of a formula."""

EXAMPLE = "as in 'm - k - 1 ~ n^a d^b k^c'"


@dataclass(frozen=True)
class Factor:
    """Factor of the right side: an expression raised to `power`, times the free exponent if `exponent` is not empty."""

    base: ast.expr
    power: float
    exponent: str


@dataclass(frozen=True)
class Formula:
    """Power law ``left ~ product of factors``, up to a constant factor."""

    text: str
    left: ast.expr
    factors: tuple[Factor, ...]

    @property
    def left_text(self) -> str:
        """Text of the left side."""
        return self.text.partition("~")[0].strip()

    @property
    def exponents(self) -> list[str]:
        """Names of the free exponents, in their order."""
        return list(dict.fromkeys(factor.exponent for factor in self.factors if factor.exponent))


def parsed(text: object) -> Formula:
    """Return the formula for a text, or raise an error if the text is invalid."""
    if not isinstance(text, str) or text.count("~") != 1:
        raise ValueError(f"formula = {short_repr(text)} must have two sides with one ~ between them, {EXAMPLE}")
    if len(text) > LONGEST:
        raise ValueError(f"formula = {short_repr(text)} must have at most {LONGEST} characters")
    left, right = (_expression(side, text) for side in text.split("~"))
    factors = tuple(_factors(right, 1.0, text))
    named = {factor.exponent for factor in factors}
    for node in (node for side in (left, *(factor.base for factor in factors)) for node in ast.walk(side)):
        if isinstance(node, ast.Name) and node.id in named:
            raise ValueError(
                f"formula = {short_repr(text)} uses {node.id!r} both as an exponent and as a column: rename one"
            )
    return Formula(text, left, factors)


def _expression(side: str, text: str) -> ast.expr:
    """Return the expression of a side; ^ is a power, and a space between two factors is a product."""
    python = re.sub(r"(?<=[\w)])\s+(?=[\w(])", " * ", side.strip().replace("^", "**"))
    try:
        found = ast.parse(python, mode="eval").body
    except SyntaxError:
        raise ValueError(f"formula = {short_repr(text)}: {side.strip()!r} is not an expression, {EXAMPLE}") from None
    for node in ast.walk(found):
        number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
        call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        call = call and len(getattr(node, "args", ())) == 1 and not getattr(node, "keywords", ())
        plain = isinstance(node, ast.Name | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop | ast.expr_context)
        if not (number or call or plain) or (isinstance(node, ast.operator) and type(node) not in OPERATORS):
            functions = " ".join(FUNCTIONS)
            raise ValueError(
                f"formula = {short_repr(text)}: {ast.unparse(node)!r} must be a column, a number or one of "
                f"+ - * / ^ {functions}"
            )
    return found


def _factors(node: ast.expr, sign: float, text: str) -> Iterable[Factor]:
    """Yield the factors of a product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        yield from _factors(node.left, sign, text)
        yield from _factors(node.right, -sign if isinstance(node.op, ast.Div) else sign, text)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        if isinstance(node.right, ast.Name):
            yield Factor(node.left, sign, node.right.id)
        elif any(isinstance(part, ast.Name) for part in ast.walk(node.right)):
            raise ValueError(
                f"formula = {short_repr(text)}: the exponent {ast.unparse(node.right)!r} must be a name or a number"
            )
        else:
            power = sign * float(value(node.right, str))
            if not math.isfinite(power):
                raise ValueError(f"formula = {short_repr(text)}: the exponent {written(node.right)!r} must be finite")
            yield Factor(node.left, power, "")
    else:
        yield Factor(node, sign, "")


@np.errstate(all="ignore")  # the caller refuses values that are not finite
def value(node: ast.expr, column: Callable[[str], Any]) -> Any:
    """Return the value of an expression; `column` returns the value of a name. Raise if it is not a real number."""
    if isinstance(node, ast.Constant):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.Name):
        return column(node.id)
    if isinstance(node, ast.BinOp):
        sides = value(node.left, column), value(node.right, column)
        try:
            found = OPERATORS[type(node.op)](*sides)
        except (OverflowError, ZeroDivisionError):
            found = 1j
        if isinstance(found, complex):
            raise ValueError(f"formula: {written(node)!r} must be a finite real number")
        return found
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](value(node.operand, column))
    assert isinstance(node, ast.Call)
    return FUNCTIONS[node.func.id](value(node.args[0], column))  # type: ignore[attr-defined]


def written(node: ast.expr) -> str:
    """Return an expression as text."""
    return ast.unparse(node).replace("**", "^")


def names(node: ast.expr) -> list[str]:
    """Return the names of columns in an expression."""
    calls = {id(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    found = [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and id(part) not in calls]
    return list(dict.fromkeys(found))


def found_column(name: str, columns: Iterable[str], agree: Callable[[list[str]], bool]) -> str:
    """Return the column that a name refers to: by its full name, its last part, or a letter of the papers."""
    columns = list(columns)
    for wanted in (name, SYMBOLS.get(name, name)):
        if wanted in columns:
            return wanted
        ending = [column for column in columns if column.endswith(f".{wanted}")]
        if ending and agree(ending):
            return ending[0]
        if ending:
            raise ValueError(
                f"{name!r} is ambiguous: {' and '.join(map(repr, ending))} differ; use the full name of a column"
            )
    letters = [letter for letter, column in SYMBOLS.items() if column in {one.rpartition(".")[2] for one in columns}]
    short = list(dict.fromkeys(one.rpartition(".")[2] for one in columns))
    raise ValueError(
        f"formula contains {name!r}, which is not a column{suggestion(name, [*letters, *short])}; known letters: "
        f"{', '.join(letters) or 'none'} (a constant factor is always included)"
    )


@dataclass(frozen=True)
class Columns:
    """Columns of points: for each name a list with one entry per point, a value or an array of trials.

    `answers` is the name of the size in a table of `lf.find_smallest`, otherwise empty.
    """

    values: dict[str, list[Any]]
    answers: str = ""

    @classmethod
    def of(cls, table: Any) -> Columns:
        """Return the columns of a table, or of a mapping of names to columns."""
        if isinstance(table, Mapping):
            lengths = {name: len(column) for name, column in table.items() if axes(column) > 0}
            if len(set(lengths.values())) != 1 or 0 in lengths.values():
                raise ValueError(
                    f"table has columns of lengths {lengths}: all columns must have the same length, at least 1"
                )
            points = next(iter(lengths.values()))
            return cls({k: [v] * points if axes(v) == 0 else list(v) for k, v in table.items()})
        rows: list[dict[str, Any]] | None = getattr(table, "rows", None)
        if not rows:
            raise ValueError(f"table = {short_repr(table)} must be a table with rows, or a mapping of names to columns")
        common = [name for name in rows[0] if all(name in row for row in rows)]
        values = {name: [getattr(row[name], "values", row[name]) for row in rows] for name in common}
        paths = set(values["path"]) if {"path", "crossing", "replicates", "censored"} <= values.keys() else set()
        return cls(values, paths.pop().rpartition(".")[2] if len(paths) == 1 else "")

    def name(self, name: str) -> str:
        """Return the column that a name refers to."""

        def agree(columns: list[str]) -> bool:
            pairs = (zip(self.values[one], self.values[columns[0]], strict=True) for one in columns)
            return all(one is other or np.array_equal(one, other) for pair in pairs for one, other in pair)

        return found_column(name, self.values, agree)

    def numbers(self, name: str) -> Array:
        """Return a numeric column, (points,)."""
        column = self.values[self.name(name)]
        if not all(axes(one) == 0 and isinstance(one, int | float | np.number) for one in column):
            last = "; assign a column with one number per trial, e.g. of the last round" * (axes(column[0]) > 1)
            raise ValueError(
                f"column {name!r} of the formula must contain numbers, but contains {short_repr(column[0])}{last}"
            )
        return np.array(column, dtype=float)


def axes(value: Any) -> int:
    """Return the number of axes of a value; 2 for parts of different lengths, which form no array."""
    try:
        return np.ndim(value)
    except ValueError:
        return 2


def logarithm(values: Array, what: str) -> Array:
    """Return the logarithm of positive values, or raise an error for the first value that is not positive."""
    bad = np.flatnonzero(~(values > 0) | np.isinf(values))
    if bad.size:
        raise ValueError(f"{what} = {values[bad[0]]:g} at point {bad[0]} must be positive and finite")
    return np.log(values)


def format_number(number: float) -> str:
    """Return a number with three significant digits, or "-" if it is not finite."""
    return f"{number:.3g}" if math.isfinite(number) else "-"
