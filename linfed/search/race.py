"""Race: the cell that runs settings in turns, until no further round can change which of them is chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from linfed._types import Array, Indices
from linfed.numerics.linalg import quiet
from linfed.search.grid_search import Search, Tries, without_unstable
from linfed.search.selection import RoundsTo, quantile_curve, tie_limit
from linfed.simulation.job import bytes_at_once, trial_chunks, trial_threads
from linfed.simulation.loop import Held
from linfed.simulation.run import Turns
from linfed.system.memory import budget_bytes
from linfed.tables.grid import Row
from linfed.tables.labeled_array import LabeledArray

LAP = 8
"""Number of rounds that a setting runs in its turn: a comparison costs about as much as a small round."""

MOST_BYTES = 2.0**30
"""Largest memory of a race, so that several processes can have one each."""


@dataclass(frozen=True, kw_only=True)
class Race(Tries):
    """Cell that runs some settings in turns, on all tuning trials; the other fields are as in `tune`.

    Parameters
    ----------
    judge : RoundsTo
    quantile, ties_within : float
    best : float
        Best score of the settings that were tried before, or infinity.

    Notes
    -----
    A setting whose last value is above the level has a score of at least the number of rounds so far, and later rounds
    can only increase the score of the others. If the score exceeds the best one, ties included, a setting cannot be
    chosen. The best settings run to the end, because their scores may increase; the others then continue.
    """

    judge: RoundsTo
    quantile: float
    ties_within: float
    best: float

    def fits(self) -> bool:
        """Return whether all trials of all settings fit the memory at once."""
        return bytes_at_once([self.job(one) for one in self.algorithms]) <= min(MOST_BYTES, budget_bytes())

    def run(self) -> Row:
        """Return the outcomes along ``setting`` and ``round``, NaN in the rounds that a setting did not run."""
        jobs, budget, held = [self.job(one) for one in self.algorithms], budget_bytes(), Held()
        threads = min(trial_threads(job, budget) for job in jobs)
        chunks = max((trial_chunks(job, threads, budget) for job in jobs), key=len)
        recorded = jobs[0].recorded
        with quiet():
            entrants = [_Entrant(self, Turns(job, chunks, threads, held), recorded) for job in jobs]
            for last in _laps(recorded):
                for one in entrants:
                    one.advance(last)
                if self._is_decided(entrants, last):
                    break
        values = np.stack([one.values for one in entrants], axis=1)
        return {"tried": LabeledArray(values, setting=range(len(jobs)), round=recorded)}

    def _is_decided(self, entrants: list[_Entrant], last: int) -> bool:
        """Complete the settings that may be chosen, and return whether no others may be after `last` rounds."""
        while True:
            limit = tie_limit(min(self.best, *(one.score for one in entrants)), self.ties_within)
            if last <= limit:
                return False
            ahead = [one for one in entrants if one.score <= limit and not one.is_complete]
            if not ahead:
                return True
            for one in ahead:
                one.advance(one.recorded[-1])


def race_of(tries: Tries, search: Search, best: float) -> Race:
    """Return the race of the settings of a cell; `best` is the best score before."""
    assert isinstance(search.judge, RoundsTo)
    fields = {field.name: getattr(tries, field.name) for field in dataclasses.fields(tries)}
    return Race(**fields, judge=search.judge, quantile=search.quantile, ties_within=search.ties_within, best=best)


class _Entrant:
    """Setting in a race, with its values (trials, R) and its score so far."""

    def __init__(self, race: Race, turns: Turns, recorded: Indices) -> None:
        self._race, self._turns, self.recorded = race, turns, recorded
        self.is_complete = False
        self.values: Array = np.empty(0)
        self.score = np.inf

    def advance(self, last: int) -> None:
        """Run all rounds up to `last`, and update the score: infinite while the last value is above the level."""
        if self.is_complete:
            return
        self._turns.advance(last)
        metrics, status = self._turns.outcome()
        (values,) = metrics.values()
        self.values = without_unstable(values, status)
        self.is_complete = last == self.recorded[-1]
        at = self.recorded[self.recorded <= last]
        if len(at) < 2:
            return
        curve = quantile_curve(self.values[:, : len(at)], self._race.quantile)
        score = self._race.judge(at, curve)
        has_diverged = self.is_complete and not np.isfinite(curve[-1])
        self.score = np.inf if score > last or has_diverged else score


def _laps(recorded: Indices) -> Iterator[int]:
    """Yield the recorded rounds in which settings are compared: at least `LAP` rounds apart, and the last."""
    previous = 0
    for number in recorded[1:].tolist():
        if number >= previous + LAP or number == recorded[-1]:
            yield number
            previous = number
    if len(recorded) == 1:
        yield int(recorded[0])
