"""Judge the claims of an experiment on its tables, and remark on claims and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from linfed.checks import short_repr
from linfed.claims.caveats import EDGE
from linfed.claims.claim import Claim
from linfed.errors import UsageError
from linfed.statistics.findings import Finding, by_sentence
from linfed.tables import export
from linfed.tables.grid import fields_of
from linfed.tables.table import Table

Tables: TypeAlias = dict[str, Table]
"""Tables of a run by name."""

Tolerant: TypeAlias = Callable[[str], AbstractContextManager[None]]
"""Function that returns a context in which an error may become a remark, which begins with the given text."""

MOST_NAMED = 3
"""Largest number of rows, and of their fields, that a remark on the edge of a grid names."""


class Judgement(NamedTuple):
    """Judged claims of a run.

    Attributes
    ----------
    findings : list of Finding or None
        Findings; None if the experiment has no ``CLAIMS``, and no ``claims`` that could be judged.
    not_asked : list of str
        Sentences of ``CLAIMS`` for which the tables have no rows.
    failed : set of str
        Sentences of ``CLAIMS`` whose judge raised an error.
    lacks_edge_notes : bool
        Whether findings come from ``claims(tables)`` or from derived tables, whose rows need not say which tunings they
        use, and no finding has a note on a tuning at the edge of its grid.
    """

    findings: list[Finding] | None
    not_asked: list[str]
    failed: set[str]
    lacks_edge_notes: bool


def judge_claims(file: Path, module: ModuleType, tables: Tables, tolerant: Tolerant) -> Judgement:
    """Add the derived tables of an experiment to its tables, and judge its claims.

    An error in one claim loses only this claim where `tolerant` turns it into a remark.
    """
    declared, failed = claims_of(file, module), set[str]()
    found = dict[tuple[str, str, str], list[Finding]]()  # by sentence, statistic and table
    saved = {*tables}
    expected = {*saved}  # if derived(tables) fails, the claims on its tables are not asked
    with tolerant("its derived tables cannot be computed"):
        tables |= derived_tables(module, tables)
        expected |= {claim.table for claim in declared}  # a table that does not exist is an error
    for claim in declared:
        known = found.setdefault((claim.sentence, claim.statistic.words, claim.table), [])
        if claim.table and claim.table not in expected:
            continue
        failed.add(claim.sentence)
        with tolerant(f"its claim {claim.sentence!r} cannot be judged"):
            known += _findings_of(file, claim, tables)
            failed.remove(claim.sentence)
    findings = [finding for part in found.values() for finding in part]
    lost = (sentence for (sentence, _, _), part in found.items() if not part and sentence not in failed)
    computed: list[Finding] | None = None
    if hasattr(module, "claims"):
        with tolerant("its claims cannot be judged"):
            computed = _checked(file, module.claims(tables))
    if computed is None and not declared:
        return Judgement(None, [], set(), lacks_edge_notes=False)
    every = by_sentence([*findings, *(computed or ())])
    unknown = bool(computed) or any(part and table not in {"", *saved} for (_, _, table), part in found.items())
    lacks_edge_notes = unknown and not any(EDGE in one.note for one in every)
    return Judgement(every, list(dict.fromkeys(lost)), failed, lacks_edge_notes)


def derived_tables(module: ModuleType, tables: Tables) -> Tables:
    """Return the further tables that an experiment computes by its function ``derived(tables)``."""
    found = module.derived(tables) if hasattr(module, "derived") else {}
    name = Path(str(module.__file__)).name
    if not isinstance(found, dict) or not all(isinstance(one, Table) for one in found.values()):
        raise UsageError(f"{name}: derived(tables) must return a dict of lf.Table, got {short_repr(found)}")
    if again := found.keys() & tables.keys():
        raise UsageError(f"{name}: derived(tables) must not return the table {min(again)!r}, which cells has")
    return found


def claims_of(file: Path, module: ModuleType) -> tuple[Claim, ...]:
    """Return the claims that an experiment declares in ``CLAIMS``; raise `UsageError` if it has another form."""
    declared = getattr(module, "CLAIMS", ())
    if not isinstance(declared, tuple | list) or not all(isinstance(one, Claim) for one in declared):
        raise UsageError(f"{file.name}: CLAIMS must be a tuple of linfed.claims.Claim, got {short_repr(declared)}")
    return tuple(declared)


def edge_remarks(tables: Tables, lists: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a remark for each table that has rows with a hyper-parameter at the edge of its grid.

    The remark names the first rows by the fields of their cells, which `lists` has by table.
    """
    remarks = []
    for key, table in tables.items():
        rows = [row for row in table.rows if row.get("at_grid_edge")]
        fields = {name for cell in lists.get(key, ()) for name, _ in fields_of(cell)}
        names = [name for name in export.distinguishing(table.rows) if name in fields][:MOST_NAMED]
        texts = [", ".join(f"{name} = {row[name]}" for name in names if name in row) for row in rows[:MOST_NAMED]]
        listed = "; ".join([*filter(None, texts), *([".."] if len(rows) > MOST_NAMED else [])])
        count = f"in {len(rows)} of {len(table)} rows of table {key!r} a tuned value lies {EDGE}"
        remarks += [f"{count}{f': {listed}' if listed else ''}"] if rows else []
    return remarks


def _findings_of(file: Path, claim: Claim, tables: Tables) -> list[Finding]:
    """Return the findings of a claim; raise `UsageError` if its table does not exist."""
    try:
        tables[claim.table or next(iter(tables))]  # those of a saved run raise an error that says how to compute them
    except KeyError:
        listed = ", ".join(map(repr, tables))
        raise UsageError(
            f"{file.name}: the claim {claim.sentence!r} needs the table {claim.table!r}, but there is only {listed}"
        ) from None
    return list(claim.findings(tables))


def _checked(file: Path, found: Any) -> list[Finding]:
    """Return the value of ``claims(tables)`` as a list; raise `UsageError` if it is not an iterable of findings."""
    findings = list(found) if isinstance(found, Iterable) else None
    if findings is None or not all(isinstance(one, Finding) for one in findings):
        raise UsageError(
            f"{file.name}: claims(tables) must return a list of lf.Finding, got "
            f"{short_repr(found if findings is None else findings)}"
        )
    return findings
