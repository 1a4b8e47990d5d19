"""Markdown tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a Markdown table with one line per row.

    Line breaks in cells become spaces. Bars are escaped unless they are already; other characters are Markdown.

    >>> print(table(("a", "b"), [(r"x | y \| *z*", "two  lines")]))
    | a | b |
    |---|---|
    | x \| y \| *z* | two lines |
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        lines.append("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", re.sub(r"\s+", " ", cell)) for cell in row) + " |")
    return "\n".join(lines)
