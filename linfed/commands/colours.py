"""Colours of verdicts: on a terminal, unless NO_COLOR is set; anywhere, if FORCE_COLOR is."""

from __future__ import annotations

import os
import sys

CODES = {
    "SUPPORTED": "32",
    "HOLDS": "32",
    "NOT SUPPORTED": "31",
    "VIOLATED": "31",
    "INCONCLUSIVE": "33",
    "VACUOUS": "2",
    "HYPOTHESES FAIL": "2",
    "QUICK": "35",
}
"""Escape codes (SGR) by what is painted."""


def is_coloured() -> bool:
    """Return whether the output is to be coloured; NO_COLOR has the last word."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def painted(kind: str, text: str) -> str:
    """Return a text in the colour of a verdict, where the output is coloured."""
    return f"\x1b[{CODES[kind]}m{text}\x1b[0m" if kind in CODES and is_coloured() else text
