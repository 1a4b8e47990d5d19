"""The search over the settings of a grid: what is to be tried goes out, what came of it comes back.

Who tries the settings is no matter of the search: `lf.tune` does it here, a sweep in pieces of about a second.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from linfed._types import Array, Indices
from linfed._values import Configuration
from linfed.algorithms.base import Algorithm
from linfed.data.samples import Data
from linfed.errors import check_unmasked, is_real, shown
from linfed.figures import html as page
from linfed.figures.style import KINDS
from linfed.numerics.streams import Seed
from linfed.problems import Problem
from linfed.search.selection import area, at_edge, beyond, edge_message, of_results, smallest, within
from linfed.simulation.job import MOST_PIECES, Job, checked_job, seconds_of_a_trial
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result
from linfed.simulation.run import simulate_trials
from linfed.tables.grid import Row, changed, plain
from linfed.tables.labeled_array import Along

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Attempt: TypeAlias = tuple[Array, Indices]
"""What came of a setting: the values that are to be small, (trials, R), and the rounds at which they were measured."""

SHOWN_SETTINGS = 20
"""Settings that a notebook shows of a tuning."""

EXTENSIONS = 10
"""How often `tune` widens a grid at most."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What `tune` found; the median of an even number of trials is the lower middle one, as in every figure.

    Parameters
    ----------
    algorithm : Algorithm
        The chosen setting, ready to run.
    settings : list of dict
        Every setting that was tried: the grid's, then those that widened it.
    scores : ndarray (settings,)
        Score of each; smaller is better, infinite where too many trials diverged (more than half, for the median).
    best : int
        Index of the chosen setting: the smallest within the margin of the least score.
    rounds : ndarray of int (R,)
        Recorded rounds.
    curves : ndarray (settings, R)
        The metric's quantile over the tuning trials, the median unless told otherwise.
    at_edge : tuple of str
        Hyper-parameters whose chosen value is the least or the largest of those tried.
    """

    algorithm: Algorithm
    settings: list[dict[str, Any]]
    scores: Array
    best: int
    rounds: Indices
    curves: Array
    at_edge: tuple[str, ...]

    @property
    def chosen(self) -> dict[str, Any]:
        """The chosen setting."""
        return dict(self.settings[self.best])

    def __repr__(self) -> str:
        return f"<Tuning of {type(self.algorithm).__name__}: {'; '.join(self._told())}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the chosen setting, those with the least scores, and the curves of all."""
        best = {self.best, *np.argsort(self.scores, kind="stable")[:SHOWN_SETTINGS].tolist()}
        signs = ["chosen" if place == self.best else "" for place in range(len(self.settings))]
        rows = [
            [*(str(plain(value)) for value in self.settings[place].values()), f"{self.scores[place]:.4g}", signs[place]]
            for place in sorted(best)
        ]
        said = page.facts([("tuned", type(self.algorithm).__name__), ("chosen", "; ".join(self._told()))])
        return page.beside(said + page.table([*self.chosen, "score", ""], rows), self._figure())

    def _told(self) -> list[str]:
        """Return what was chosen, of how many, and whether it is at an edge of what was tried."""
        chosen = ", ".join(f"{name} = {plain(value)}" for name, value in self.chosen.items())
        told = [chosen, f"score {self.scores[self.best]:.4g}", f"{len(self.settings)} settings tried"]
        return [*told, *(f"{name} is at the edge" for name in self.at_edge)]

    def _figure(self) -> str:
        """Return a figure of the curves of all settings, that of the chosen one in colour; nothing without rounds."""
        if len(self.rounds) < 2:
            return ""
        at = page.points(len(self.rounds))

        def draw(ax: Axes) -> None:
            ax.plot(self.rounds[at], self.curves[:, at].T, color="0.5", linewidth=0.8)
            ax.plot(self.rounds[at], self.curves[self.best, at], color=KINDS[0][0], linewidth=1.8)
            fine = self.curves[np.isfinite(self.curves)]
            ax.set(xlabel="round", ylabel="tuned metric", yscale="log" if np.all(fine > 0) else "linear")

        return page.figure(draw)

    def columns(self, settings: Sequence[Mapping[str, Any]] | None = None) -> dict[str, Any]:
        """Return what a table keeps: the chosen values, the fields at an edge, and along ``setting`` what was tried.

        Parameters
        ----------
        settings : sequence of mapping, optional
            The settings in terms of one's own, in their order; by default those of the algorithm's fields.
        """
        if settings is not None:
            told = [dict(setting) for setting in settings]
            return dataclasses.replace(self, settings=told, at_edge=at_edge(told, [self.best])).columns()
        chosen, numbers = self.settings[self.best], range(len(self.settings))
        tried = {name: _column([plain(setting[name]) for setting in self.settings]) for name in chosen}
        return {
            **{name: plain(value) for name, value in chosen.items()},
            "best": self.best,
            "at_edge": ", ".join(self.at_edge),
            "score": Along(self.scores, setting=numbers),
            **{f"tried_{name}": Along(values, setting=numbers) for name, values in tried.items()},
        }


def _column(values: list[Any]) -> list[Any]:
    """Return values of one kind, as an array takes them: None among numbers is NaN, and others are words."""
    numbers = [math.nan if value is None else value for value in values]
    plainly = all(isinstance(value, bool | int | float) for value in numbers)
    return numbers if plainly else [str(value) for value in values]


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search: the algorithm and its settings, and how the best of them is told; fields as in `tune`."""

    algorithm: Algorithm
    settings: list[dict[str, Any]]
    judge: Callable[[Indices, Array], float]
    quantile: float
    margin: float
    extend: bool

    def steps(self) -> Generator[list[Algorithm], Sequence[Attempt], tuple[Tuning, list[str]]]:
        """Yield algorithms to try, take what came of them, and return what was found, and what lies at an edge."""
        settings = self.settings
        curves: list[Array] = []
        scores: list[float] = []
        for widened in range(EXTENSIONS + 1):
            for values, at in (yield [changed(self.algorithm, one) for one in settings[len(curves) :]]):
                values = np.where(np.isnan(values), np.inf, values)
                curve = np.quantile(values, self.quantile, axis=0, method="inverted_cdf")
                curves.append(curve)
                scores.append(self._score(at, curve) if np.isfinite(curve[-1]) else np.inf)
            ties = within(scores, self.margin, logarithmic=self.judge is area)
            if not ties:
                raise ValueError(
                    f"every setting of the grid diverged or has no score: {shown(self.settings)}; try smaller steps"
                )
            best = smallest(settings, ties)
            edges = at_edge(settings, [best])
            more = beyond(self.algorithm, settings, best, edges) if self.extend and widened < EXTENSIONS else []
            if not more:
                break
            settings = settings + more
        found = Tuning(
            algorithm=changed(self.algorithm, settings[best]),
            settings=settings,
            scores=np.array(scores),
            best=best,
            rounds=at,
            curves=np.array(curves),
            at_edge=edges,
        )
        return found, [edge_message(settings, name, settings[best][name]) for name in at_edge(settings, ties)]

    def _score(self, rounds: Indices, curve: Array) -> float:
        """Return the score of a curve, or raise for one that is not a number."""
        score: Any = self.judge(rounds, curve)
        if not is_real(score):
            raise TypeError(f"score returned {shown(score)}, expected a number")
        return float(score)


@dataclass(frozen=True, kw_only=True)
class Tries(Configuration):
    """Some settings on some of the tuning's trials, from `first` up to `last`: a cell."""

    algorithms: tuple[Algorithm, ...]
    problem: Problem | None
    data: Data
    rounds: int
    participation: Participation
    trials: int
    seed: Seed
    metric: str | Callable[..., Array]
    record_every: int
    engine: str
    first: int
    last: int

    def attempt(self, algorithm: Algorithm) -> Attempt:
        """Return what comes of one setting."""
        return measured(simulate_trials(self.job(algorithm), range(self.first, self.last)), self.metric)

    def job(self, algorithm: Algorithm) -> Job:
        """Return the run of one setting, on all trials."""
        return checked_job(
            algorithm,
            self.problem,
            self.data,
            self.rounds,
            self.participation,
            self.trials,
            self.seed,
            recorded(self.metric),
            self.rounds if of_results(self.metric) and self.rounds else self.record_every,
            self.engine,
        )

    def run(self) -> Row:
        """Return the attempts along ``setting`` and ``round``."""
        found = [self.attempt(one) for one in self.algorithms]
        values = np.stack([values for values, _ in found], axis=1)
        return {"tried": Along(values, setting=range(len(found)), round=found[0][1])}

    def seconds(self) -> float:
        """Return about what all of it takes."""
        return (self.last - self.first) * sum(seconds_of_a_trial(self.job(one)) for one in self.algorithms)

    def divided(self) -> list[Tries]:
        """Return it in pieces of about a second: of whole settings, or of some trials of one."""
        if len(self.algorithms) > 1:
            count = min(len(self.algorithms), max(1, math.ceil(self.seconds())))
            groups = [list(part) for part in np.array_split(np.arange(len(self.algorithms)), count)]
            parts = [dataclasses.replace(self, algorithms=tuple(self.algorithms[i] for i in group)) for group in groups]
            return parts if count == 1 else [piece for part in parts for piece in part.divided()]
        count = 1 if of_results(self.metric) else min(self.trials, max(1, math.ceil(self.seconds())), MOST_PIECES)
        ends = [self.trials * part // count for part in range(count + 1)]
        return [dataclasses.replace(self, first=first, last=last) for first, last in itertools.pairwise(ends)]


def attempts(pieces: Sequence[Tries], rows: Sequence[Row]) -> list[Attempt]:
    """Return what came of each setting, of the rows of all pieces."""
    parts: dict[int, list[Array]] = {}
    number = -1
    for piece, row in zip(pieces, rows, strict=True):
        tried: Along = row["tried"]
        for place in range(len(piece.algorithms)):
            number += piece.first == 0
            parts.setdefault(number, []).append(tried.values[:, place])
    recorded = rows[0]["tried"].axes["round"]
    return [(np.concatenate(values), recorded) for values in parts.values()]


def recorded(metric: Any) -> list[Any]:
    """Return the metrics that a tuning run records: none for a function of the result."""
    return [] if of_results(metric) else [metric]


def measured(result: Result, metric: str | Callable[..., Array]) -> tuple[Array, Indices]:
    """Return what is to be made small, (trials, R), and the rounds at which it was measured."""
    if not of_results(metric):
        (values,) = result.metrics.values()
        return values, result.rounds
    assert callable(metric)
    values = np.asarray(check_unmasked("values returned by metric", metric(result)), dtype=float)
    if values.shape != (result.trials,):
        raise ValueError(f"metric returned shape {values.shape}, expected one value per trial, ({result.trials},)")
    return values[:, None], result.rounds[-1:]
