"""Write the scoreboard from ``results/committed/``: its short form into README.md, between two marks, all into a page.

Run ``python docs/scoreboard.py``; `tests/test_scoreboard.py` compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from linfed.report.scoreboard import markdown, records, rows

TOP = Path(__file__).resolve().parent.parent
README, PAGE, COMMITTED = TOP / "README.md", TOP / "docs" / "scoreboard.md", TOP / "results" / "committed"
MARKS = "<!-- scoreboard -->", "<!-- /scoreboard -->"

ABOUT = """# Scoreboard

Written by `python docs/scoreboard.py` from the committed results, and never by hand. A row for each sentence of a
paper that matters, in the paper's words where they are quoted; what was judged of it; estimate and 95 % interval in
one setting, which is named (the paper's own, where there is one); and how often which verdict was given over all
settings; HYPOTHESES FAIL counts those outside the condition that the sentence itself makes. A rival that changes what a
sentence is worth is the row after it. A sufficient condition is not refuted by needing less: how tight it is, is a
question of our own, and a row of its own.
"""


def page() -> str:
    """Return the page with all rows."""
    return f"{ABOUT}\n{markdown(rows(records(COMMITTED)))}\n"


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
    """Write both."""
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
