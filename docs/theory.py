"""Write docs/theory.md from ``results/committed/``: the statements of theory, their sources and verdicts with numbers.

Run ``python docs/theory.py``. A statement is of theory if its verdict has a theorem's words, its source is a theorem,
or this project derived it.
Those of one sentence, source and statistic are one row; shown is the setting in which the statement is nearest to
failing, or fails by most.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

from linfed.statistics.findings import OWN_PREDICTION

TOP = Path(__file__).resolve().parent.parent
COMMITTED, PAGE = TOP / "results" / "committed", TOP / "docs" / "theory.md"

ABOUT = """# What theory says, and what was found

Written by `python docs/theory.py` from the committed results, and never by hand. Each row is one statement: the source
that makes it, how often which verdict was given over the settings in which it was judged, and the numbers of the
setting in which it is nearest to failing (or fails by most): estimate, 95 % interval over trials, and the range that is
said. The verdicts are the judges' own; CONTRIBUTING.md has their rule. `linfed reproduce NAME` gives all settings.
"""

PAPERS = {"fedrep": "FedRep", "flute": "FLUTE", "shortcut": "The shortcut draft", "fedavg": "Averaging"}
"""Sections, by the beginning of an experiment's name."""


def number(value: float | None) -> str:
    """Return a number of a claim; JSON has null for what is not finite."""
    return "-" if value is None or math.isnan(value) else f"{value:.3g}"


def slack(claim: dict[str, Any]) -> float:
    """Return how far the interval is inside what is said, as a share of the numbers' size."""
    low, high, least, most = (claim[name] for name in ("low", "high", "least", "most"))
    size = max((abs(value) for value in (low, high, least, most) if value is not None), default=1.0) or 1.0
    below = math.inf if least is None else -math.inf if low is None else (low - least) / size
    above = math.inf if most is None else -math.inf if high is None else (most - high) / size
    return min(below, above)


def groups(claims: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the statements of theory, those of one sentence together."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for claim in claims:
        if claim["theorem"] or claim["source"].startswith(OWN_PREDICTION) or re.search(r"Theorem \d", claim["source"]):
            found.setdefault((claim["text"], claim["source"], claim["statistic"]), []).append(claim)
    return list(found.values())


def row(group: list[dict[str, Any]]) -> str:
    """Return the table's line of a statement."""
    verdicts = Counter(claim["verdict"] for claim in group)
    told = ", ".join(f"{verdict} {count}" if len(group) > 1 else verdict for verdict, count in verdicts.items())
    judged = [claim for claim in group if claim["verdict"] not in ("HYPOTHESES FAIL", "VACUOUS")] or group
    worst = min(judged, key=slack)
    measured = f"{number(worst['estimate'])} [{number(worst['low'])}, {number(worst['high'])}]; said: {worst['said']}"
    cells = (worst["text"], worst["source"], told, f"{worst['statistic']}: {measured}", worst["where"])
    return "| " + " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells) + " |"


def page(folder: Path = COMMITTED) -> str:
    """Return the page."""
    lines = [ABOUT]
    for start, title in PAPERS.items():
        lines.append(f"## {title}\n")
        for path in sorted(folder.glob(f"{start}-*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            rows = [row(group) for group in groups(record["claims"])]
            if rows:
                lines += [
                    f"### {record['experiment']}\n",
                    "| statement | source | verdicts | measured, where it is nearest to failing | where |",
                    "|---|---|---|---|---|",
                    *rows,
                    "",
                ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
