"""Colours of verdicts on a terminal; NO_COLOR turns them off, FORCE_COLOR turns them on everywhere."""

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
"""SGR escape codes by verdict; ``QUICK`` is the warning of quick runs."""


def is_colored() -> bool:
    """Return whether to colour the output; NO_COLOR overrides FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def painted(kind: str, text: str) -> str:
    """Return a text in the colour of a verdict, or unchanged if the output has no colours."""
    return f"\x1b[{CODES[kind]}m{text}\x1b[0m" if kind in CODES and is_colored() else text
