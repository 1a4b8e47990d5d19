"""Write the scoreboard into README.md, between its two marks, from ``results/committed/``.

Run ``python docs/scoreboard.py``; `tests/test_scoreboard.py` compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from linfed.report.scoreboard import markdown, records, rows

TOP = Path(__file__).resolve().parent.parent
README, COMMITTED = TOP / "README.md", TOP / "results" / "committed"
MARKS = "<!-- scoreboard -->", "<!-- /scoreboard -->"


def written(text: str) -> str:
    """Return the README's text with the scoreboard of the committed results.

    Raises
    ------
    ValueError
        If the text does not have both marks, once.
    """
    start, stop = MARKS
    if text.count(start) != 1 or text.count(stop) != 1:
        raise ValueError(f"README.md must have {start} and {stop}, once each")
    table = markdown((row for row in rows(records(COMMITTED)) if row.main), short=True)
    return re.sub(f"{start}.*{stop}", lambda found: f"{start}\n\n{table}\n\n{stop}", text, flags=re.DOTALL)


def main() -> int:
    """Write the README."""
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
