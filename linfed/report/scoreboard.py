"""Scoreboard: the headlines of the experiments, each with its measurement and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from linfed.report.cards import Card, Statement, measured, place_of
from linfed.reproduction.declarations import Headline
from linfed.statistics.findings import NOT_JUDGED, Finding, required
from linfed.tables import escaping


@dataclass(frozen=True, kw_only=True)
class Row:
    """Headline with its measurement and verdicts.

    Parameters
    ----------
    experiment : str
        Name of the experiment.
    headline : Headline
        The headline.
    statement : Statement
        Claims in the counted settings, with the statistic that is shown.
    shown : Finding
        Claim in the setting to show, which is the paper's setting if there is one.
    """

    experiment: str
    headline: Headline
    statement: Statement
    shown: Finding

    @property
    def paper(self) -> str:
        """Source, e.g. "FedRep paper, Figure 1"."""
        return place_of(self.shown.source)

    @property
    def wording(self) -> str:
        """Wording of the claim, in quotation marks if it is a quotation; empty if `judged` contains it."""
        quoted = self.shown.quotation[1]
        return self.headline.wording or (f"“{quoted}”" if quoted else "")

    @property
    def judged(self) -> str:
        """Precise claim that was judged."""
        return ", ".join(filter(None, (self.headline.claim, self.headline.among[1])))

    @property
    def verdict(self) -> str:
        """Verdicts as text."""
        return self.statement.verdict


def rows(cards: Mapping[str, Card]) -> list[Row]:
    """Return the rows of all headlines that the runs judge, in the order of the cards.

    A headline without a claim has no row; `missing` names it.
    """
    judged = ((name, card, headline) for name, card in cards.items() for headline in card.declared.headlines)
    found = ((name, headline, headline.found_in(card.record.claims)) for name, card, headline in judged)
    return [_row(name, headline, claims) for name, headline, claims in found if claims]


def missing(cards: Mapping[str, Card]) -> list[str]:
    """Return a line for each run with claims, but no claim of one of its headlines.

    Quick runs and runs with changed fields may lack claims.
    """
    full = ((name, card) for name, card in cards.items() if card.record.claims and not card.record.is_partial)
    reasons = ((name, card.declared.missing_headline(card.record.claims)) for name, card in full)
    return [f"{name}: {reason}" for name, reason in reasons if reason]


def _row(name: str, headline: Headline, claims: list[Finding]) -> Row:
    judged = [claim for claim in claims if claim.verdict.kind != NOT_JUDGED] or claims
    shown = next((claim for claim in judged if claim.setting == headline.setting), judged[0])
    statement = Statement([claim for claim in claims if claim.statistic == shown.statistic])
    return Row(experiment=name, headline=headline, statement=statement, shown=shown)


def markdown(rows: Iterable[Row]) -> str:
    """Return the rows as Markdown: each source once, each statistic once, then the claims as a list.

    Names of experiments are code, which the site turns into links; their pages quote the sources.
    """
    blocks = []
    for place, of_place in _grouped(rows, lambda row: row.paper):
        blocks.append(f"**{escaping.markdown(place)}**")
        for statistic, group in _grouped(of_place, lambda row: f"{row.shown.statistic}; required: {_range(row)}"):
            blocks += [f"Statistic: {escaping.markdown(statistic)}", "\n".join(map(_item, group))]
    return "\n\n".join(blocks) + "\n"


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> list[tuple[str, list[Row]]]:
    """Return the rows by a key, in the order of their first rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.items())


def _range(row: Row) -> str:
    return required(row.shown.claimed_range)


def _item(row: Row) -> str:
    setting = f" ({escaping.markdown(row.shown.setting)})" if row.shown.setting else ""
    claim = f"- {escaping.markdown(row.judged)} (`{row.experiment}`): {escaping.markdown(measured(row.shown))}"
    return f"{claim}{setting}; **{row.verdict}**"
