"""Colours of verdicts on a terminal; NO_COLOR turns them off, FORCE_COLOR turns them on everywhere."""

from __future__ import annotations

import os
import sys

QUICK = "35"
"""SGR escape code of the warning of quick runs; `Verdict.kind` has the codes of verdicts."""


def is_colored() -> bool:
    """Return whether to colour the output; NO_COLOR overrides FORCE_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def painted(code: str, text: str) -> str:
    """Return a text in the colour of an SGR escape code, or unchanged if the output has no colours."""
    return f"\x1b[{code}m{text}\x1b[0m" if is_colored() else text
