"""Markdown tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a Markdown table with one line per row; line breaks in cells become spaces, and bars are escaped.

    >>> print(table(("a", "b"), [("x | y", "two  lines")]))
    | a | b |
    |---|---|
    | x \| y | two lines |
    """
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        lines.append("| " + " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines)
