"""Write docs/theory.md from ``results/committed/``: the statements of theory, their sources and verdicts with numbers.

Run ``python docs/theory.py``. What is a statement of theory, and which setting is shown, says `linfed.report.theory`.
"""

from __future__ import annotations

from pathlib import Path

from linfed.report.markdown import table
from linfed.report.scoreboard import records
from linfed.report.theory import sections

TOP = Path(__file__).resolve().parent.parent
COMMITTED, PAGE = TOP / "results" / "committed", TOP / "docs" / "theory.md"

ABOUT = """# What theory says, and what was found

Written by `python docs/theory.py` from the committed results, and never by hand. Each row is one statement: the source
that makes it, how often which verdict was given over the settings in which it was judged, and the numbers of the
setting in which it is nearest to failing (or fails by most): estimate, 95 % interval over trials, and the range that is
said. The verdicts are the judges' own; CONTRIBUTING.md has their rule. `linfed reproduce NAME` gives all settings.
"""

HEADER = ("statement", "source", "verdicts", "measured, where it is nearest to failing", "where")


def page(folder: Path = COMMITTED) -> str:
    """Return the page."""
    lines = [ABOUT]
    for title, found in sections(records(folder)).items():
        lines.append(f"## {title}\n")
        for name, statements in found.items():
            told = [(one.text, one.source, one.verdict, one.measured, one.where) for one in statements]
            lines += [f"### {name}\n", table(HEADER, told), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
