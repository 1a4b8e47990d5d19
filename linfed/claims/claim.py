"""Claims, and the findings that a run gives for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from types import NoneType
from typing import Any

from linfed.checks import check_instance, check_sequence, check_text, short_repr
from linfed.claims.caveats import edge_note
from linfed.claims.ranges import Range
from linfed.claims.rows import Over, Where, whole
from linfed.claims.statistic import FittedExponent, Statistic, formatted, with_names
from linfed.statistics.findings import Finding, Hypothesis, Source, count_origins, join_notes, range_words, required
from linfed.tables.table import Table


@dataclass(frozen=True)
class Claim:
    """A sentence, its source, the statistic that judges it, and the range that the sentence requires.

    Parameters
    ----------
    sentence : str
        Precise wording.
    source : Source
        Whose the sentence is: `cite`, `reading`, `OWN_PREDICTION`, `OWN_THRESHOLD` or `OWN_CONJECTURE`.
    statistic : Statistic
        What is measured.
    required : Range, optional
        Required range, if it is not the default of the statistic. A fitted exponent has the range of its arguments.
    table : str
        Name of the table; the first one by default.
    where : function or tuple of functions
        Choice of rows that the sentence is about, e.g. ``of(method="FedRep")``; several apply one after the other.
    over : function
        Groups of rows that give one finding each, e.g. ``each("n_clients")``; one finding for all rows by default.
    setting : str or function
        Setting of a finding, with the columns of its rows in braces (`linfed.claims.statistic.formatted`), or a
        function of the rows.
    note, detail : function, optional
        Remark on a finding, and counts behind its estimate; functions of the rows. A remark on hyper-parameters at the
        edge of their grid is added to each finding.
    hypotheses : function, optional
        Hypotheses of a theorem; a function of the rows.
    theorem : bool, optional
        Whether the verdicts are HOLDS and VIOLATED; by default the statistic decides.

    Raises
    ------
    TypeError
        If an argument has another type.
    ValueError
        If `required` is not the range that a fitted exponent states.

    Examples
    --------
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> table = lf.Table([{"n": n, "method": method, "error": [scale / n] * 8}
    ...                   for n in (10, 20) for method, scale in (("A", 1.0), ("B", 2.0))])
    >>> claim = c.Claim("A has a smaller error than B", c.OWN_PREDICTION,
    ...                 c.smaller("error", "A", "B", "share of trials"), over=c.each("n"), setting="n = {n}")
    >>> [(one.setting, one.verdict.value) for one in c.judged([claim], {"runs": table})]
    [('n = 10', 'SUPPORTED'), ('n = 20', 'SUPPORTED')]
    """

    sentence: str
    source: Source
    statistic: Statistic
    required: Range | None = None
    _: KW_ONLY
    table: str = ""
    where: Where | tuple[Where, ...] = ()
    over: Over = whole
    setting: str | Callable[..., str] = ""
    note: Callable[..., str] | None = None
    detail: Callable[..., str] | None = None
    hypotheses: Callable[..., tuple[Hypothesis, ...]] | None = None
    theorem: bool | None = None

    def __post_init__(self) -> None:
        for name in ("sentence", "table"):
            check_text(name, getattr(self, name))
        check_instance("source", self.source, Source, "cite(..), reading(..), OWN_PREDICTION or another Source")
        check_instance("statistic", self.statistic, Statistic, "a Statistic such as smaller(..) or measured(..)")
        if self.required is not None:
            check_instance("required", self.required, Range, "a range such as at_most(..) or above(..)")
            if isinstance(self.statistic, FittedExponent) and self.required != self.statistic.required:
                raise ValueError(
                    f"required = {self.required} must be left out: a fitted exponent has the range of its claimed, "
                    f"tolerance and kind, {self.statistic.required}"
                )
        for choose in self.where if isinstance(self.where, tuple) else (self.where,):
            _check_function("where", choose, ", or a tuple of such functions")
        _check_function("over", self.over)
        for name in ("setting", "note", "detail", "hypotheses"):
            value = getattr(self, name)
            if value is not None and not (name == "setting" and isinstance(value, str)):
                _check_function(name, value)
        check_instance("theorem", self.theorem, (bool, NoneType), "True, False or None")

    def findings(self, tables: Mapping[str, Table]) -> Iterator[Finding]:
        """Yield the findings on the tables of a run; none if their rows do not suffice."""
        rows = self._table_of(tables)
        for choose in self.where if isinstance(self.where, tuple) else (self.where,):
            rows = choose(rows)
            if not isinstance(rows, Table):
                raise TypeError(f"where of the claim {self.sentence!r} must return a lf.Table, got {short_repr(rows)}")
        for parts in self.over(rows) if len(rows) else ():
            used = [self.statistic.rows(part) for part in parts]
            found = self.statistic.judge(*used, **self._fields(parts)) if all(map(len, used)) else None
            if found is not None:
                edges = edge_note(Table.joined(used), self.statistic.by)
                yield replace(found, note=found.note if edges in found.note else join_notes(found.note, edges))

    def _table_of(self, tables: Mapping[str, Table]) -> Table:
        """Return the table that the claim is about."""
        check_instance("tables", tables, Mapping, "a mapping from names to tables, e.g. {'runs': table}")
        name = self.table or next(iter(tables), "")
        try:
            table = tables[name]
        except KeyError:
            listed = ", ".join(map(repr, tables)) or "no table"
            needed = f"the table {self.table!r}" if self.table else "a table"
            raise KeyError(f"the claim {self.sentence!r} needs {needed}, but tables has only {listed}") from None
        check_instance(f"tables[{name!r}]", table, Table, "a lf.Table")
        return table

    def _fields(self, parts: tuple[Table, ...]) -> dict[str, Any]:
        """Return the fields of a finding that do not depend on the measured value."""
        fields: dict[str, Any] = {
            "claim": self.sentence,
            "setting": formatted(self.setting, parts),
            "source": self.source,
            "statistic": formatted(self.statistic.words, parts),
        }
        wanted = self.required or self.statistic.required
        if wanted is not None:
            fields |= {"claimed_low": wanted.low, "claimed_high": wanted.high, "strict": wanted.strict}
        more = {
            "note": self.note(*parts) if self.note else "",
            "detail": self.detail(*parts) if self.detail else "",
            "hypotheses": self.hypotheses(*parts) if self.hypotheses else (),
        }
        fields |= {name: value for name, value in more.items() if value}
        return fields if self.theorem is None else fields | {"theorem": self.theorem}


def _check_function(name: str, value: object, others: str = "") -> None:
    if not callable(value):
        raise TypeError(f"{name} = {short_repr(value)} must be a function of tables{others}")


def _check_claims(claims: Iterable[Claim]) -> list[Claim]:
    found = check_sequence("claims", claims, "a sequence of claims")
    for place, one in enumerate(found):
        check_instance(f"claims[{place}]", one, Claim, "a Claim")
    return found


def judged(claims: Iterable[Claim], tables: Mapping[str, Table]) -> list[Finding]:
    """Return the findings of claims on the tables of a run, in the order of the claims.

    Examples
    --------
    >>> import numpy as np
    >>> import linfed as lf
    >>> from linfed import claims as c
    >>> claim = c.Claim("Few runs diverge", c.OWN_THRESHOLD,
    ...                 c.failures(lambda row: row["diverged"], "share of diverged trials", 0.1))
    >>> [one.detail for one in c.judged([claim], {"runs": lf.Table([{"diverged": np.full(50, False)}])})]
    ['0 of 50']
    """
    return [finding for claim in _check_claims(claims) for finding in claim.findings(tables)]


def claims_text(claims: Iterable[Claim]) -> str:
    """Return claims as text, without a run: their origins, and each sentence with its source, statistic and range.

    Names of columns in angle brackets stand for values of a run.

    Examples
    --------
    >>> from linfed import claims as c
    >>> claim = c.Claim("A has a smaller error than B", c.cite("FedRep paper, Figure 1", "A is better than B"),
    ...                 c.smaller("error", "A", "B", "share of trials"))
    >>> print(c.claims_text([claim]))
    1 sentence: 1 quoted
    <BLANKLINE>
    A has a smaller error than B
      quoted: FedRep paper, Figure 1: "A is better than B"
      share of trials; required: > 0.5
    """
    found = {_text(one): one.source.origin for one in _check_claims(claims)}
    count = f"{len(found)} sentence{'s' * (len(found) != 1)}"
    return "\n\n".join([f"{count}: {count_origins(found.values())}" if found else count, *found])


def _text(claim: Claim) -> str:
    """Return a claim as lines: its sentence, whose it is, and its statistic with the required range."""
    wanted, whose = claim.required or claim.statistic.required, claim.source.origin.value
    needed = "by the statistic" if wanted is None else required(range_words(*wanted))
    source = claim.source if claim.source.startswith(whose) else f"{whose}: {claim.source}"
    return f"{claim.sentence}\n  {source}\n  {with_names(claim.statistic.words)}; required: {needed}"
