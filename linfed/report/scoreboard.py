"""Scoreboard: the headlines of the experiments, each with its measurement and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from linfed.report.cards import Card, Statement, counted, measured, place_of
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
        """Verdicts as text, the most frequent first."""
        return counted(dict(Counter(claim.verdict for claim in self.statement.claims).most_common()))


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
    """Return the rows as Markdown: the source of each claim with its words once, then its claims as a list.

    A statistic that all claims of a source share stands above the list. Names of experiments are code, which the site
    turns into links.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.paper, row.wording), []).append(row)
    blocks = []
    for (place, wording), group in groups.items():
        statistics = {_statistic(row) for row in group}
        common = statistics.pop() if len(statistics) == 1 else ""
        lead = f"**{escaping.markdown(place)}**" + (f": {escaping.markdown(wording)}" if wording else "")
        if common:
            lead += f"\n\nStatistic: {common}"
        blocks.append("\n".join([lead, "", *(_item(row, own_statistic=not common) for row in group)]))
    return "\n\n".join(blocks) + "\n"


def _statistic(row: Row) -> str:
    return escaping.markdown(f"{row.shown.statistic}; required: {required(row.shown.claimed_range)}")


def _item(row: Row, own_statistic: bool) -> str:
    statistic = f"{_statistic(row)}. " if own_statistic else ""
    setting = f" ({escaping.markdown(row.shown.setting)})" if row.shown.setting else ""
    claim = f"- {escaping.markdown(row.judged)} (`{row.experiment}`): {statistic}"
    return f"{claim}{escaping.markdown(measured(row.shown))}{setting}; **{row.verdict}**"
