"""The numbers of README.md and docs/*.md, each computed from the committed results, as the text has them.

A function beneath `held` yields fragments of a document: sentences, or pieces of them, whose numbers and verdicts it
takes from `Results`. `tests/test_numbers.py` asks the document for each. What a fragment has beside its results (the
words, and the settings that they speak of) is spelled out as it stands there.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import linfed as lf
from linfed.statistics.quantiles import quantiles

TOP = Path(__file__).resolve().parent.parent.parent
COMMITTED = TOP / "results" / "committed"
README, FINDINGS, SPEED = "README.md", "docs/findings.md", "docs/speed.md"
EXACT_LAW, SHORTCUT, AVERAGING = "docs/exact-law.md", "docs/shortcut.md", "docs/averaging.md"
CLASSES = "docs/classes.md"
START, NOTATION = "docs/start.md", "docs/notation.md"
PAPER, WHERE = "docs/papers/flute.md", "docs/papers/where.md"
ALGORITHMS, DATA, METRICS, PREDICT, PROBLEMS, TUNING = (
    f"docs/guide/{name}.md" for name in ("algorithms", "data", "metrics", "predict", "problems", "tuning")
)


def pages(folder: Path = TOP / "docs") -> list[str]:
    """Return the documents beneath docs/, but those that the site's build writes."""
    found = (path.relative_to(TOP) for path in sorted(folder.rglob("*.md")))
    return [path.as_posix() for path in found if not any(part.startswith("_") for part in path.parts)]


@dataclass(frozen=True)
class Claim:
    """A claim of a run, as its JSON has it; numbers that are not finite are NaN."""

    text: str
    where: str
    statistic: str
    estimate: float
    low: float
    high: float
    verdict: str
    detail: str
    note: str
    least: float
    most: float

    @property
    def counts(self) -> list[int]:
        """The whole numbers of the detail: of "49 of 50" 49 and 50."""
        return [int(number) for number in re.findall(r"\d+", self.detail)]

    def between(self, show: Callable[[float], str]) -> str:
        """Return the interval, "[low, high]"."""
        return f"[{show(self.low)}, {show(self.high)}]"


class Results:
    """The committed results of all experiments, read when they are asked for."""

    def __init__(self, folder: Path = COMMITTED) -> None:
        self.folder = folder
        self.record = functools.cache(self._record)
        self.table = functools.cache(self._table)

    def _record(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def _table(self, name: str) -> lf.Table:
        """Return a reduced table, by experiment and table."""
        return lf.Table.load(self.folder / f"{name}.npz")

    def claims(self, name: str, text: str, where: str = "", statistic: str = "") -> list[Claim]:
        """Return the claims of an experiment with this text, whose setting and statistic match the patterns."""
        found = []
        for one in self.record(name)["claims"]:
            if one["text"] == text and re.search(where, one["where"]) and re.search(statistic, one["statistic"]):
                taken = {key: one[key] for key in Claim.__dataclass_fields__}
                found.append(Claim(**{key: np.nan if value is None else value for key, value in taken.items()}))
        if not found:
            raise LookupError(f"{name}: no claim {text!r} where {where!r}, statistic {statistic!r}")
        return found

    def claim(self, name: str, text: str, where: str = "", statistic: str = "") -> Claim:
        """Return the one claim that fits."""
        found = self.claims(name, text, where, statistic)
        if len(found) > 1:
            told = "; ".join(f"{one.where} ({one.statistic})" for one in found)
            raise LookupError(f"{name}: {len(found)} claims {text!r} where {where!r}: {told}")
        return found[0]

    def shared(self, name: str, table: str) -> dict[str, Any]:
        """Return what all rows of a table share."""
        return self.record(name)["tables"][table]["shared"]


Fragments = Callable[[Results], Iterator[str]]
HELD: list[tuple[str, str, Fragments]] = []
"""Document, source and what yields the fragments."""


def held(document: str, source: str) -> Callable[[Fragments], Fragments]:
    """Return a decorator that puts a function into `HELD`."""

    def put(function: Fragments) -> Fragments:
        HELD.append((document, source, function))
        return function

    return put


# --- as the text has them ------------------------------------------------------------------------------------

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def word(count: int) -> str:
    """Return a small number as a word."""
    return WORDS[count]


def verdict(claims: Claim | Iterable[Claim]) -> str:
    """Return the verdict that all of the claims have; a mixture is told as such, and is in no document."""
    found = dict.fromkeys(one.verdict for one in ([claims] if isinstance(claims, Claim) else claims))
    return " | ".join(found)


def tally(claims: Iterable[Claim], *verdicts: str) -> list[int]:
    """Return how many of the claims have each verdict."""
    found = [one.verdict for one in claims]
    return [found.count(one) for one in verdicts]


def fixed(digits: int, factor: float = 1.0) -> Callable[[float], str]:
    """Return a function that shows a number with so many decimals."""
    return lambda value: f"{factor * value:.{digits}f}"


per_cent = fixed(0, 100.0)


def short(value: float, digits: int = 1) -> str:
    """Return a number in scientific notation as the documents have it: 5.9e-4."""
    return re.sub(r"e([+-])0", r"e\1", f"{value:.{digits}e}").replace("e+", "e")


def spread(values: Iterable[float], show: Callable[[float], str] = str, to: str = " to ") -> str:
    """Return the least and the largest of some numbers; one of them where they are the same in the text."""
    ends = list(values)
    low, high = show(min(ends)), show(max(ends))
    return low if low == high else f"{low}{to}{high}"


def median(values: Any) -> float:
    """Return the median over trials as figures and claims have it: that of a trial, diverged ones the worst."""
    return float(quantiles(np.asarray(values, dtype=float))[0])


def only(values: Iterable[Any]) -> Any:
    """Return the one value of what must all be the same."""
    (value,) = set(values)
    return value
