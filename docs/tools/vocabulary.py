"""Functions for the templates of the pages: access to committed findings, tables and benchmarks, and number formats.

Every function here can be called in an expression, ``span(values, 2)``, or used as a filter, ``values | span(2)``.

A finding is a `lf.Finding` of a committed record.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import stats

import linfed as lf
from docs.tools.algorithm_table import algorithm_table as algorithm_table
from docs.tools.algorithm_table import for_classes as for_classes
from docs.tools.algorithm_table import served_by as served_by
from docs.tools.paths import COMMITTED, EXPERIMENTS, TOP
from linfed.numerics.quantiles import quantiles
from linfed.report import scoreboard as board
from linfed.report.cards import WHOSE, Card, cards_of
from linfed.report.cards import counts as counts_of_verdicts
from linfed.report.cards import errors_sentence as errors_sentence
from linfed.reproduction.committed import committed_runs
from linfed.reproduction.record import ResultsFolder, RunRecord
from linfed.statistics.findings import Finding, Origin
from linfed.sweeps.progress import format_duration

RUNS = ResultsFolder(COMMITTED)
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

# --- what is committed ---------------------------------------------------------------------------------------


@functools.cache
def records() -> dict[str, RunRecord]:
    """Return the committed records of all experiments."""
    return RUNS.records()


@functools.cache
def record(experiment: str) -> RunRecord:
    """Return the committed record of an experiment."""
    return RUNS.read(experiment)


def matches(pattern: str, text: str) -> bool:
    """Return True if a text matches a pattern, in which ``*`` stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def claims(experiment: str, text: str, *settings: str, without: str = "", statistic: str = "*") -> list[Finding]:
    """Return the findings on a claim, in all settings or in some of them.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    text : str
        Exact text of the claim.
    *settings : str
        Patterns of the settings, in which ``*`` stands for any text; all settings by default.
    without : str
        Pattern of settings to exclude.
    statistic : str
        Pattern of the statistic.

    Returns
    -------
    list of Finding

    Raises
    ------
    LookupError
        If there is no such finding.
    """
    found = [
        one
        for one in record(experiment).claims
        if one.claim == text
        and any(matches(setting, one.setting) for setting in settings or ["*"])
        and not (without and matches(without, one.setting))
        and matches(statistic, one.statistic)
    ]
    if not found:
        raise LookupError(f"{experiment} has no claim {text!r} with setting {settings}, statistic {statistic!r}")
    return found


def claim(experiment: str, text: str, *settings: str, **chosen: str) -> Finding:
    """Return the only finding of `claims`; raise a LookupError if there are several."""
    found = claims(experiment, text, *settings, **chosen)
    if len(found) > 1:
        raise LookupError(f"{experiment}: {text!r} was judged in {[one.setting for one in found]}: choose one setting")
    return found[0]


def cited(experiments: Iterable[str], paper: str) -> list[Finding]:
    """Return the findings of experiments on claims that are quoted from `paper`, e.g. "FedRep paper"."""
    return [
        one
        for name in experiments
        for one in record(name).claims
        if one.source.startswith(paper) and one.origin is Origin.QUOTED
    ]


@functools.cache
def _table(name: str) -> lf.Table:
    return lf.Table.load(COMMITTED / f"{name}.npz")


def table(name: str, **values: Any) -> lf.Table:
    """Return a committed table, e.g. "fedrep-fig1-clients", or only its rows with the given values of columns.

    ``table(...)["column"]`` is the value of a single row, or the stacked values of several rows.
    """
    return _table(name).select(**values)


def shared(experiment: str, table: str) -> Mapping[str, Any]:
    """Return the columns that are the same in all rows of a committed table, by name."""
    return record(experiment).tables[table].shared


def full_run_time(experiment: str) -> str:
    """Return the time of the committed run as in `linfed list`: "about 80 s"."""
    return format_duration(committed_runs()[experiment].seconds)


@functools.cache
def _benchmarks() -> dict[tuple[str, str], Mapping[str, Any]]:
    rows = json.loads((COMMITTED / "benchmarks.json").read_text(encoding="utf-8"))["rows"]
    return {(row["name"], row["sizes"]): row for row in rows}


def benchmark(name: str, sizes: str) -> Mapping[str, Any]:
    """Return a row of benchmarks.json, with its ``ratio``, or with ``ours`` if there is no competitor."""
    if (name, sizes) not in _benchmarks():
        raise LookupError(f"benchmarks.json has no row {name!r}, {sizes!r}")
    return _benchmarks()[name, sizes]


def duration(milliseconds: float) -> str:
    """Return a time with three digits and its unit: "0.441 ms", "8.05 s"."""
    rounded = float(f"{milliseconds:.3g}")
    value, unit = (rounded / 1e3, "s") if rounded >= 1e3 else (rounded, "ms")
    return f"{thousands(value) if value >= 1e3 else f'{value:#.3g}'.rstrip('.')} {unit}"


def speed(name: str, sizes: str) -> str:
    """Return three cells of a table: linfed's time, the other's, and the median of the other's divided by linfed's."""
    row = benchmark(name, sizes)
    ratio = float(np.median([other / ours for ours, other in row["pairs"]]))
    return f"{duration(row['ours'])} | {duration(row['other'])} | {times(ratio)}"


def processor() -> str:
    """Return the processor of the benchmarks, which must be the same in all rows."""
    return only(row["machine"] for row in _benchmarks().values() if "machine" in row)


def comparisons() -> dict[str, Any]:
    """Return the comparisons with published code and stored numbers, from tests/validation/comparisons.json."""
    return json.loads((TOP / "tests" / "validation" / "comparisons.json").read_text(encoding="utf-8"))


def every_claim() -> list[Finding]:
    """Return the findings of all committed runs."""
    return [one for run in records().values() for one in run.claims]


def cards() -> dict[str, Card]:
    """Return the cards of the committed runs, in the order of the pages."""
    return cards_of(records(), EXPERIMENTS)


def scoreboard() -> dict[str, str]:
    """Return the Markdown lists of the scoreboard, by whose the claims are."""
    found: dict[str, list[board.Row]] = {title: [] for title in WHOSE.values()}
    for row in board.rows(cards()):
        found[WHOSE[row.statement.origin]].append(row)
    return {title: board.markdown(rows) for title, rows in found.items() if rows}


def code(path: str, name: str = "", *, before: str = "", to: str = "") -> str:
    """Return the code of a definition of a file, optionally up to a later one, or of all lines before a function."""
    text = (TOP / path).read_text(encoding="utf-8")
    nodes = {defined(node): node for node in ast.parse(text).body}
    first, last, lines = nodes[name or before], nodes[to or name or before], text.splitlines()
    found = lines[first.lineno - 1 : last.end_lineno] if name else lines[: first.lineno - 1]
    return "\n".join(found).strip()


def defined(node: ast.stmt) -> str:
    """Return the name of the function, class or constant that a statement defines; empty for other statements."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return getattr(node, "name", "")


def module(name: str) -> Any:
    """Return a module, for settings and tables in its code."""
    return importlib.import_module(name)


def ties_within() -> float:
    """Return the share of the best score within which `lf.tune` takes the smallest setting."""
    return inspect.signature(lf.tune).parameters["ties_within"].default


def project() -> Mapping[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    return tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def python_version() -> str:
    """Return the lowest version of Python that the package supports."""
    return project()["requires-python"].removeprefix(">=")


def repository() -> str:
    """Return the address of the repository."""
    return project()["urls"]["Repository"]


def check(condition: object) -> str:
    """Return an empty string; raise an AssertionError if the condition of a sentence in the page is not true."""
    if not condition:
        raise AssertionError("the results no longer support this sentence: change the sentence")
    return ""


# --- what is made of it --------------------------------------------------------------------------------------


def counts(claim: Finding) -> list[int]:
    """Return the whole numbers in the detail of a finding: [49, 50] for "49 of 50"."""
    return [int(number) for number in re.findall(r"\d+", claim.detail)]


def tied(claims: Iterable[Finding]) -> int:
    """Return the number of trials that tie, from the details of findings: 22 for "5 smaller, 23 larger, 22 tied"."""
    return sum(int(number) for one in claims for number in re.findall(r"(\d+) tied", one.detail))


def all_counts(claims: Iterable[Finding], place: int) -> list[int]:
    """Return the number at position `place` in the detail of each finding."""
    return [counts(one)[place] for one in claims]


def only(values: Iterable[Any]) -> Any:
    """Return the common value of values that must all be equal."""
    different = set(values)
    if len(different) != 1:
        raise ValueError(f"the values differ: {sorted(different)}")
    return different.pop()


def verdict(claims: Finding | Iterable[Finding]) -> str:
    """Return the verdict of a finding, or the common verdict of several findings."""
    return only(one.verdict.value for one in ([claims] if isinstance(claims, Finding) else claims))


def tally(claims: Iterable[Finding], verdict: str) -> int:
    """Return the number of findings with a verdict."""
    return sum(one.verdict == verdict for one in claims)


def verdicts(claims: Iterable[Finding]) -> str:
    """Return the verdicts with their counts, in the order of `Verdict`: "SUPPORTED 3, INCONCLUSIVE 6"."""
    return ", ".join(f"{verdict} {count}" for verdict, count in counts_of_verdicts(claims).items())


def judged(claims: Iterable[Finding]) -> list[Finding]:
    """Return the findings for which the hypotheses of the claim hold."""
    return [one for one in claims if one.verdict != "HYPOTHESES FAIL"]


def median(values: Any) -> float:
    """Return the lower median over trials as in figures and findings, with diverged trials as infinite."""
    return float(quantiles(np.asarray(values, dtype=float))[0])


def word_after(text: str, mark: str) -> str:
    """Return the word after a mark in a detail or a statistic: "0.01" after "distance" in "rounds to distance 0.01"."""
    return text.split(f"{mark} ", 1)[1].split()[0].rstrip(",;")


# --- how it is shown -----------------------------------------------------------------------------------------


def fixed(value: float, digits: int = 2, percent: bool = False) -> str:
    """Return a number with a fixed number of decimals, in percent if `percent`."""
    return f"{(100 if percent else 1) * value:.{digits}f}"


def percent(value: float, digits: int = 0) -> str:
    """Return a share in percent."""
    return fixed(value, digits, percent=True)


def interval(claim: Finding, digits: int = 2, percent: bool = False) -> str:
    """Return the interval of a finding: "[0.98, 1.03]"."""
    return f"[{fixed(claim.low, digits, percent)}, {fixed(claim.high, digits, percent)}]"


def measured(claim: Finding, digits: int = 2) -> str:
    """Return the estimate of a finding with its interval: "1.02 [0.98, 1.03]"."""
    return f"{fixed(claim.estimate, digits)} {interval(claim, digits)}"


def span(values: Iterable[float], digits: int | None = None, percent: bool = False) -> str:
    """Return the smallest and the largest of some numbers, "48 to 50", or one number if both look the same."""
    ends = list(values)
    low, high = (str(end) if digits is None else fixed(end, digits, percent) for end in (min(ends), max(ends)))
    return low if low == high else f"{low} to {high}"


def scientific(value: float, digits: int = 1) -> str:
    """Return a number as "5.9e-4"."""
    return re.sub(r"e([+-])0", r"e\1", f"{value:.{digits}e}").replace("e+", "e")


def compact(value: float) -> str:
    """Return a number with two decimals from 0.1 on, with two digits below: "1.53", "0.045", "5.9e-4"."""
    rounded = float(f"{value:.2g}")
    return scientific(value) if rounded < 0.01 else f"{value:.2g}" if rounded < 0.1 else f"{value:.2f}"


def thousands(value: float) -> str:
    """Return a whole number with commas: "10,000"."""
    return f"{value:,.0f}"


def word(count: int) -> str:
    """Return a number up to twelve as a word."""
    return WORDS[count]


def times(value: float) -> str:
    """Return a ratio of speeds: whole from 100 on, with one decimal from 1 on, with two below."""
    return f"{value:,.{2 if round(value, 2) < 1 else 1 if round(value, 1) < 100 else 0}f}"


def mean_and_error(values: Any) -> str:
    """Return a mean over trials with its standard error, and the number of finite trials if some diverged."""
    finite = values[~np.isnan(values)]
    left = f" ({len(finite)} of {len(values)})" if len(finite) < len(values) else ""
    return f"{finite.mean():.1f} ± {stats.sem(finite):.1f}{left}"


def fill(text: str, width: int) -> str:
    """Return a Markdown list, with each item wrapped to lines of at most `width` characters."""
    options = {"width": width, "subsequent_indent": "  ", "break_long_words": False, "break_on_hyphens": False}
    return "".join(textwrap.fill(line, **options) + "\n" for line in text.splitlines())
