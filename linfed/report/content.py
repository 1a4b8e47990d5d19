"""Contents of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from linfed.report.cards import Card, counts, short
from linfed.report.compare import Comparison
from linfed.report.pictures import Picture
from linfed.report.scoreboard import Row
from linfed.reproduction.record import ResultsFolder
from linfed.statistics.findings import Finding, Verdict


@dataclass(frozen=True, kw_only=True)
class Content:
    """Contents of a report.

    Parameters
    ----------
    path : str
        Folder of the runs, or one ``NAME.json`` in it, as it was given.
    folder : ResultsFolder
        Folder of the runs.
    cards : dict of str to Card
        Cards by the name of the experiment.
    scoreboard : list of Row
        Rows of the scoreboard.
    pictures : dict of str to list of Picture
        Figures of each experiment.
    moved : Comparison or None
        Differences from the run `baseline`.
    baseline : str
        Name of the run to compare with.
    """

    path: str
    folder: ResultsFolder
    cards: Mapping[str, Card]
    scoreboard: list[Row]
    pictures: Mapping[str, list[Picture]]
    moved: Comparison | None = None
    baseline: str = ""

    @property
    def quick(self) -> list[str]:
        """Names of the experiments with a quick run."""
        return [name for name, card in self.cards.items() if card.record.quick]

    @property
    def changed(self) -> dict[str, list[str]]:
        """Names of the experiments whose runs have changed fields, by the fields with their values."""
        found: dict[str, list[str]] = {}
        for name, card in self.cards.items():
            if card.record.set:
                fields = ", ".join(f"{field} = {value}" for field, value in card.record.set.items())
                found.setdefault(fields, []).append(name)
        return found

    @property
    def totals(self) -> dict[Verdict, int]:
        """Number of claims with each verdict."""
        return counts(self.claims)

    @property
    def claims(self) -> list[Finding]:
        """Claims of all runs."""
        return [claim for card in self.cards.values() for claim in card.record.claims]

    @property
    def title(self) -> str:
        """Names of the experiments, or their number if there are more than three."""
        *names, last = self.cards
        if len(names) > 2:
            return f"linfed: results of {len(self.cards)} experiments"
        return f"linfed: results of {' and '.join(filter(None, (', '.join(names), last)))}"

    @property
    def about(self) -> str:
        """Kind, folder, dates and commits of the runs."""
        kind = "Full" if not self.quick else "Quick" if len(self.quick) == len(self.cards) else "Full and quick"
        altered = sum(map(len, self.changed.values()))
        fields = " with changed fields" if altered == len(self.cards) else ", some with changed fields," * (altered > 0)
        days = sorted(filter(None, {card.date for card in self.cards.values()}))
        when = f" of {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
        commits = dict.fromkeys(short(card.record.commit or "unknown") for card in self.cards.values())
        which = f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}"
        return f"{kind} run{'s' * (len(self.cards) > 1)}{fields}{when} in {self.path}; {which}. Nothing was recomputed."
