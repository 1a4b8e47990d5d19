"""Grid search over an algorithm's settings, and the cell that evaluates settings in parts of about one second."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from linfed._types import Array, Indices, Mask
from linfed._values import Configuration, EqualByValue
from linfed.algorithms.parts.base import Algorithm
from linfed.checks import check_instance, check_sequence, check_unmasked, is_real, short_repr
from linfed.data.samples import Data
from linfed.errors import GridEdgeWarning
from linfed.figures import html as page
from linfed.figures.style import KINDS
from linfed.numerics.streams import Seed
from linfed.problems import Problem
from linfed.search.selection import (
    RoundsTo,
    area,
    at_grid_edge,
    beyond,
    edge_message,
    of_results,
    quantile_curve,
    smallest,
    tie_limit,
    within,
)
from linfed.simulation.job import MOST_PIECES, Job, checked_job, seconds_of_a_trial
from linfed.simulation.participation import Participation
from linfed.simulation.results import Result
from linfed.simulation.run import simulate_trials
from linfed.simulation.status import Status
from linfed.tables.grid import Row, changed, plain
from linfed.tables.labeled_array import LabeledArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Attempt: TypeAlias = tuple[Array, Indices]
"""Outcome of a setting: the values of the metric, (trials, R), and the rounds at which it was measured."""

SHOWN_SETTINGS = 20
"""Maximum number of settings shown in a notebook."""

EXTENSIONS = 10
"""Maximum number of times that `tune` widens a grid."""


MOST_DIVERGED = 20
"""Largest number of diverged settings, in multiples of the grid, while `tune` looks for smaller ones."""


@dataclass(frozen=True, kw_only=True)
class TuningResult(EqualByValue):
    """Result of `tune`: the chosen setting, and the scores and curves of all settings.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm with the chosen setting, ready to run.
    settings : list of dict
        All settings tried: the grid, then the settings by which it was widened.
    scores : ndarray (settings,)
        Score of each setting. Smaller is better; infinite if too many trials diverged or are unstable (more than half,
        for the median). For a setting that was stopped it is a lower bound.
    best : int
        Index of the chosen setting: the smallest setting whose score ties with the best score.
    rounds : ndarray of int (R,)
        Recorded rounds.
    curves : ndarray (settings, R)
        Quantile of the metric over the tuning trials, by default the median. NaN in the rounds after a setting was
        stopped.
    at_grid_edge : tuple of str
        Hyper-parameters whose chosen value is the smallest or the largest one tried.

    Notes
    -----
    The median of an even number of trials is the lower of the two middle values, as in every figure.

    With ``score=lf.RoundsTo(level)``, a setting is stopped in the first recorded round that exceeds the best score,
    ties included: it can no longer be chosen. Its score is then the number of rounds to the level or, if it is
    above the level, the number of rounds run.

    Examples
    --------
    >>> import linfed as lf
    >>> problem, data = lf.SharedRepresentation(n_clients=30, dim=10, rank=2), lf.FreshSamples(n_samples=10)
    >>> fedrep = lf.FedRep(rank=2, step_size=1.0)
    >>> tuning = lf.tune(fedrep, problem, grid={"step_size": (0.5, 1.5, 4.5)}, data=data, n_rounds=30, trials=5)
    >>> tuning.best_params, tuning.best, tuning.scores.shape, tuning.curves.shape
    ({'step_size': 1.5}, 1, (3,), (3, 31))
    """

    algorithm: Any  # of the class that was tuned
    settings: list[dict[str, Any]]
    scores: Array
    best: int
    rounds: Indices
    curves: Array
    at_grid_edge: tuple[str, ...]

    @property
    def best_params(self) -> dict[str, Any]:
        """The chosen setting, as field names and values."""
        return dict(self.settings[self.best])

    @property
    def stopped(self) -> Mask:
        """Whether each setting was stopped before the last round, (settings,)."""
        return np.isnan(self.curves[:, -1])

    def __repr__(self) -> str:
        return f"<TuningResult of {type(self.algorithm).__name__}: {'; '.join(self._describe())}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the chosen setting, the settings with the best scores, and all curves."""
        best = {self.best, *np.argsort(self.scores, kind="stable")[:SHOWN_SETTINGS].tolist()}
        signs = [
            "chosen" if place == self.best else "stopped" * int(self.stopped[place])
            for place in range(len(self.settings))
        ]
        rows = [
            [*(str(plain(value)) for value in self.settings[place].values()), f"{self.scores[place]:.4g}", signs[place]]
            for place in sorted(best)
        ]
        facts = page.facts([("tuned", type(self.algorithm).__name__), ("chosen", "; ".join(self._describe()))])
        return page.beside(facts + page.table([*self.best_params, "score", ""], rows), self._figure())

    def _describe(self) -> list[str]:
        """Describe the chosen setting, its score, the number of settings, and the fields at the edge of the grid."""
        chosen = ", ".join(f"{name} = {plain(value)}" for name, value in self.best_params.items())
        facts = [chosen, f"score {self.scores[self.best]:.4g}", f"{len(self.settings)} settings tried"]
        return [*facts, *(f"{name} is at the edge" for name in self.at_grid_edge)]

    def _figure(self) -> str:
        """Return a figure of the curves of all settings, the chosen one in colour; empty if there is only one round."""
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
        """Return columns for a table: the chosen values, the fields at an edge, and all settings along ``setting``.

        If any setting was stopped, the column ``stopped`` marks these settings: their scores are lower bounds.

        Parameters
        ----------
        settings : sequence of mapping, optional
            The settings in other terms, in the same order; by default the fields of the algorithm.

        Returns
        -------
        dict
            From column names to values.
        """
        if settings is not None:
            listed = check_sequence("settings", settings, "a sequence of mappings")
            for index, setting in enumerate(listed):
                check_instance(f"settings[{index}]", setting, Mapping, "a mapping from names to values")
            if len(listed) != len(self.settings):
                raise ValueError(f"settings has {len(listed)} mappings, but must have {len(self.settings)}")
            dicts = [dict(setting) for setting in listed]
            return dataclasses.replace(self, settings=dicts, at_grid_edge=at_grid_edge(dicts, [self.best])).columns()
        chosen, numbers = self.settings[self.best], range(len(self.settings))
        tried = {name: _column([plain(setting[name]) for setting in self.settings]) for name in chosen}
        return {
            **{name: plain(value) for name, value in chosen.items()},
            "best": self.best,
            "at_grid_edge": ", ".join(self.at_grid_edge),
            "score": LabeledArray(self.scores, setting=numbers),
            **({"stopped": LabeledArray(self.stopped, setting=numbers)} if self.stopped.any() else {}),
            **{f"tried_{name}": LabeledArray(values, setting=numbers) for name, values in tried.items()},
        }


def _column(values: list[Any]) -> list[Any]:
    """Return values that fit into one array: numbers with None as NaN, or else strings."""
    numbers = [math.nan if value is None else value for value in values]
    is_plain = all(isinstance(value, bool | int | float) for value in numbers)
    return numbers if is_plain else [str(value) for value in values]


@dataclass(frozen=True, kw_only=True)
class Search:
    """Grid search over the settings of an algorithm; the fields are as in `tune`."""

    algorithm: Algorithm
    settings: list[dict[str, Any]]
    judge: Callable[[Indices, Array], float]
    quantile: float
    ties_within: float
    extend: bool

    @property
    def is_race(self) -> bool:
        """Whether settings are stopped once they cannot be chosen."""
        return type(self.judge) is RoundsTo

    def run(self, attempt: Callable[[list[Algorithm], float], Sequence[Attempt]]) -> tuple[TuningResult, list[Warning]]:
        """Return the `TuningResult` and warnings.

        ``attempt(algorithms, best)`` returns the outcome of each algorithm, where `best` is the best score before. In a
        race it may be NaN in the rounds that decide nothing (`linfed.search.race`).
        """
        settings = self.settings
        curves: list[Array] = []
        scores: list[float] = []
        lowest = np.inf  # over settings, trials and rounds
        widened = 0
        while True:
            found = attempt(
                [changed(self.algorithm, one) for one in settings[len(curves) :]], min(scores, default=np.inf)
            )
            lowest = min(lowest, *(float(np.nanmin(values, initial=np.inf)) for values, _ in found))
            for curve, score in self._scored(found, min(scores, default=np.inf)):
                curves.append(curve)
                scores.append(score)
            ties = within(scores, self.ties_within, logarithmic=self.judge is area)
            if not ties and self.extend and (more := self._smaller(settings)):
                settings = settings + more
                continue
            if not ties:
                raise ValueError(
                    f"every setting of the grid diverged or has no score: {short_repr(self.settings)}; "
                    "try smaller step sizes"
                )
            best = smallest(settings, ties)
            edges = at_grid_edge(settings, [best])
            rounds = found[0][1]
            more = beyond(self.algorithm, settings, best, edges) if self.extend and widened < EXTENSIONS else []
            if not more:
                break
            settings, widened = settings + more, widened + 1
        tuning = TuningResult(
            algorithm=changed(self.algorithm, settings[best]),
            settings=settings,
            scores=np.array(scores),
            best=best,
            rounds=rounds,
            curves=np.array(curves),
            at_grid_edge=edges,
        )
        found_warnings: list[Warning] = [
            GridEdgeWarning(edge_message(settings, name, settings[best][name])) for name in at_grid_edge(settings, ties)
        ]
        if isinstance(self.judge, RoundsTo) and lowest > self.judge.level:
            found_warnings.append(
                UserWarning(
                    f"no setting reaches {self.judge.level:g} in {rounds[-1]} rounds: the score compares how near the "
                    "settings come to it; use a larger level or more rounds"
                )
            )
        return tuning, found_warnings

    def _scored(self, found: Sequence[Attempt], best: float) -> list[tuple[Array, float]]:
        """Return the curve and the score of each setting; `best` is the best score of the settings before."""
        curves = [quantile_curve(values, self.quantile) for values, _ in found]
        rounds = found[0][1]
        scores = [self._score(rounds, curve) if np.isfinite(curve[-1]) else np.inf for curve in curves]
        if not self.is_race:
            return list(zip(curves, scores, strict=True))
        limit = tie_limit(min(best, *scores), self.ties_within)
        count = int(np.searchsorted(rounds, limit, side="right")) + 1  # up to the first round beyond the limit
        if count >= len(rounds):
            return list(zip(curves, scores, strict=True))
        for place, curve in enumerate(curves):
            score = self._score(rounds[:count], curve[:count])
            if score > limit:
                scores[place] = min(score, float(rounds[count - 1])) if np.isfinite(curve[count - 1]) else np.inf
                curve[count:] = np.nan
        return list(zip(curves, scores, strict=True))

    def _smaller(self, settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return smaller settings than the tried ones, which diverged; none after too many."""
        if len(settings) > MOST_DIVERGED * len(self.settings):
            return []
        least = smallest(settings, range(len(settings)))
        return beyond(self.algorithm, settings, least, at_grid_edge(settings, [least]))

    def _score(self, rounds: Indices, curve: Array) -> float:
        """Return the score of a curve; raise if it is not a number."""
        score: Any = self.judge(rounds, curve)
        if not is_real(score):
            raise TypeError(f"score must return a number, got {short_repr(score)}")
        return float(score)


@dataclass(frozen=True, kw_only=True)
class Tries(Configuration):
    """Cell that runs some settings on the tuning trials from `first` to `last` (exclusive)."""

    algorithms: tuple[Algorithm, ...]
    problem: Problem | None
    data: Data
    n_rounds: int
    participation: Participation
    trials: int
    seed: Seed
    metric: str | Callable[..., Array]
    record_every: int
    engine: str
    first: int
    last: int

    def attempt(self, algorithm: Algorithm) -> Attempt:
        """Run one setting and return its outcome."""
        return measured(simulate_trials(self.job(algorithm), range(self.first, self.last)), self.metric)

    def job(self, algorithm: Algorithm) -> Job:
        """Return the simulation job of one setting, for all trials."""
        return checked_job(
            algorithm,
            self.problem,
            self.data,
            self.n_rounds,
            self.participation,
            self.trials,
            self.seed,
            recorded(self.metric),
            self.n_rounds if of_results(self.metric) and self.n_rounds else self.record_every,
            self.engine,
            argument="metric",
        )

    def run(self) -> Row:
        """Return the outcomes along ``setting`` and ``round``."""
        found = [self.attempt(one) for one in self.algorithms]
        values = np.stack([values for values, _ in found], axis=1)
        return {"tried": LabeledArray(values, setting=range(len(found)), round=found[0][1])}

    def seconds(self) -> float:
        """Return the estimated run time in seconds."""
        return (self.last - self.first) * sum(seconds_of_a_trial(self.job(one)) for one in self.algorithms)

    def divided(self) -> list[Tries]:
        """Split the cell into parts of about one second: whole settings, or some trials of one setting."""
        if len(self.algorithms) > 1:
            count = min(len(self.algorithms), max(1, math.ceil(self.seconds())))
            groups = [list(part) for part in np.array_split(np.arange(len(self.algorithms)), count)]
            parts = [dataclasses.replace(self, algorithms=tuple(self.algorithms[i] for i in group)) for group in groups]
            return parts if count == 1 else [piece for part in parts for piece in part.divided()]
        count = 1 if of_results(self.metric) else min(self.trials, max(1, math.ceil(self.seconds())), MOST_PIECES)
        ends = [self.trials * part // count for part in range(count + 1)]
        return [dataclasses.replace(self, first=first, last=last) for first, last in itertools.pairwise(ends)]


def attempts(pieces: Sequence[Tries], rows: Sequence[Row]) -> list[Attempt]:
    """Return the outcome of each setting, assembled from the rows of all parts."""
    parts: dict[int, list[Array]] = {}
    number = -1
    for piece, row in zip(pieces, rows, strict=True):
        tried: LabeledArray = row["tried"]
        for place in range(len(piece.algorithms)):
            number += piece.first == 0
            parts.setdefault(number, []).append(tried.values[:, place])
    recorded = rows[0]["tried"].axes["round"]
    return [(np.concatenate(values), recorded) for values in parts.values()]


def recorded(metric: Any) -> list[Any]:
    """Return the metrics that a tuning run records: none if the metric is a function of the result."""
    return [] if of_results(metric) else [metric]


def without_unstable(values: Array, status: Sequence[Status]) -> Array:
    """Return a copy of values (trials, R) in which unstable trials end with NaN, as if they had diverged."""
    values = values.copy()
    values[[one is Status.UNSTABLE for one in status], -1] = np.nan  # what QR holds together converges to nothing
    return values


def measured(result: Result, metric: str | Callable[..., Array]) -> tuple[Array, Indices]:
    """Return the values of the metric, (trials, R), and the rounds at which it was measured."""
    if not of_results(metric):
        (values,) = result.metrics.values()
        return without_unstable(values, result.status), result.rounds
    assert callable(metric)
    values = np.asarray(check_unmasked("values returned by metric", metric(result)), dtype=float)
    if values.shape != (result.trials,):
        raise ValueError(f"metric must return one value per trial, shape ({result.trials},), got shape {values.shape}")
    return without_unstable(values[:, None], result.status), result.rounds[-1:]
