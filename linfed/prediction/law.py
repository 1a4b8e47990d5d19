"""Laws: each predicts one kind of run, and states which runs, why not this one, what it gives and in which range."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, TypeAlias, TypeVar

import numpy as np

from linfed.algorithms.parts.base import Algorithm
from linfed.errors import NoPredictionError
from linfed.prediction.prediction import Asked, Curves, Prediction
from linfed.problems import Problem, Truth
from linfed.simulation.job import Job

CURVES = ("distance", "low", "high")

WIDTH = 112
"""Width of the table of all laws as text."""

Limits: TypeAlias = Mapping[str, tuple[float, str]]
"""Largest reliable value of each fact, and the warning for larger values."""

AlgorithmT_co = TypeVar("AlgorithmT_co", bound=Algorithm, covariant=True)


@dataclass(frozen=True)
class Run(Generic[AlgorithmT_co]):
    """Run to be predicted, with an algorithm of a known class."""

    job: Job
    algorithm: AlgorithmT_co

    @property
    def problem(self) -> Problem:
        """Ground truth of the run, or raise a NoPredictionError."""
        if self.job.problem is None:
            raise NoPredictionError("predictions require a ground truth: give problem=")
        return self.job.problem

    @property
    def variance(self) -> float:
        """Variance of isotropic x."""
        return self.problem.design.variance or 1.0

    @property
    def everybody(self) -> bool:
        """True if all clients participate in every round."""
        return self.job.sizes.participants == self.job.sizes.n_clients

    def truths(self) -> Iterator[Truth]:
        """Yield the ground truth of every trial."""
        for trial in range(self.job.trials):
            yield self.problem.truth(self.job.seed, [trial])


RunT_co = TypeVar("RunT_co", bound=Run[Algorithm], covariant=True)


class Law(ABC, Generic[RunT_co]):
    """Prediction of one kind of run; its formulas are in `linfed.theory`.

    To add a law, write a subclass and list it in its module or in `dispatch.py`, after the laws that are more accurate
    for its runs: `predict` asks the laws of an algorithm in this order, and the first one that concerns a run predicts
    it or says why not. The tables of predictions are made from the attributes of the classes. Laws are classes, not
    entries of one list of functions, because laws of one family share quantities and warnings by inheritance, and
    because ``self.run`` has the type that the family's `run_of` returns, so that its algorithm has a known class.

    Attributes
    ----------
    algorithms : tuple of classes
        Algorithms of the runs.
    runs : str
        Conditions on the runs in words, for the tables.
    gives : tuple of str
        Names of the predicted attributes of `Prediction`. Each of "floor", "rate", "stability_edge" and "best_step" is
        a method of the law.
    name, source, validity : str
        As in `Prediction`.
    range : str
        Range for the tables, if it is other than `validity`.
    conditions : tuple of callables
        Functions of a run that return why the law does not hold for it, or an empty string.
    limits : mapping
        Limits of the facts of the curves.
    or_next : bool
        If True, the next law is asked if the formulas of this one fail.
    """

    algorithms: ClassVar[tuple[type[Algorithm], ...]]
    runs: ClassVar[str]
    gives: ClassVar[tuple[str, ...]]
    name: str
    source: str
    validity: str
    range: ClassVar[str] = ""
    conditions: tuple[Callable[[RunT_co], str], ...] = ()
    limits: ClassVar[Limits] = {}
    or_next: ClassVar[bool] = False

    def __init__(self, run: RunT_co) -> None:
        self.run = run

    @classmethod
    @abstractmethod
    def run_of(cls, job: Job) -> RunT_co:
        """Return the run of a job, shared by all laws of its algorithm, or raise a NoPredictionError."""

    @property
    def subject(self) -> str:
        """What is predicted, in messages."""
        return type(self.run.algorithm).__name__

    def concerns(self) -> bool:
        """Return True if the run is of the kind that the law is about."""
        return True

    def why_not(self) -> str:
        """Return why the law does not hold for the run, or an empty string."""
        return next(filter(None, (condition(self.run) for condition in self.conditions)), "")

    def curves(self) -> Curves | str:
        """Return the distance and its band, or the message if they are not predicted."""
        *others, last = [name.replace("_", " ") for name in self.gives]
        only = f"{', '.join(others)} and {last}" if others else last
        return f"no prediction of {self.subject}'s distance in every round is available, only of its {only}"

    def doubts(self, curves: Curves | str) -> Iterator[str]:
        """Yield warnings that the prediction may be inaccurate for the run."""
        yield from () if isinstance(curves, str) else doubts_of(curves.facts, self.limits)

    def notes(self) -> tuple[str, ...]:
        """Return notes on exact alternatives of similar cost."""
        return ()

    def quantities(self) -> dict[str, Asked]:
        """Return the functions that compute the predicted quantities."""
        return {name: getattr(self, name) for name in self.gives if name not in CURVES}

    def predict(self) -> Prediction:
        """Return the prediction of the run."""
        curves = self.curves()
        return Prediction(
            law=self.name,
            source=self.source,
            validity=self.validity,
            rounds=np.arange(self.run.job.n_rounds + 1),
            warnings=tuple(self.doubts(curves)),
            notes=self.notes(),
            _curves=curves,
            _quantities=self.quantities(),
        )


RunT = TypeVar("RunT", bound=Run[Algorithm])


def first_prediction(run: RunT, laws: Iterable[type[Law[RunT]]]) -> Prediction:
    """Return the prediction of the first law that concerns a run, or raise a NoPredictionError with its reason."""
    failed: list[str] = []
    for law in (kind(run) for kind in laws):
        if not law.concerns():
            continue
        if reason := law.why_not():
            raise NoPredictionError(f"no prediction of {law.subject} is available {reason}")
        try:
            found = law.predict()
        except NoPredictionError:
            raise
        except (ValueError, OverflowError) as error:  # valid for runs but not for the formulas of this law
            failed.append(f"the prediction {law.name!r} is not available: {error}")
            if law.or_next:
                continue
            break
        return found if isinstance(found._curves, str) else replace(found, warnings=(*found.warnings, *failed))
    raise NoPredictionError(failed[-1])


def no_representation(name: str) -> str:
    """Return the message for the distance of an algorithm without B."""
    return f"no prediction of the distance is available for {name}, which learns no representation B"


def doubts_of(facts: Mapping[str, float], limits: Limits) -> list[str]:
    """Return the warnings of the facts above their limits."""
    return [
        text.format(above(facts[name], limit), limit)
        for name, (limit, text) in limits.items()
        if facts.get(name, 0.0) > limit
    ]


def above(value: float, limit: float) -> str:
    """Return a number above a limit with two digits, or as many as distinguish it from the limit."""
    least = max(2, len(f"{value:.0f}"))
    texts = (f"{value:.{digits}g}" for digits in range(least, 18))
    return next((text for text in texts if float(text) > limit), f"{value}")


def title(law: type[Law[Run[Algorithm]]]) -> str:
    """Return a law's algorithms and conditions on the runs."""
    return f"{names(law)}: {law.runs}"


def names(law: type[Law[Run[Algorithm]]]) -> str:
    """Return the names of a law's algorithms."""
    return ", ".join(one.__name__ for one in law.algorithms)


def table(laws: Sequence[type[Law[Run[Algorithm]]]]) -> str:
    """Return the table of laws as text, with predicted quantities and range."""
    lines = []
    for law in laws:
        for start, text in (
            ("", title(law)),
            ("    predicted: ", ", ".join(law.gives)),
            ("    range: ", law.range or law.validity),
        ):
            after = "      " if start else "  "
            lines += textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=after)
    return "\n".join(lines)


def markdown_table(laws: Sequence[type[Law[Run[Algorithm]]]]) -> str:
    """Return the table of laws as Markdown, without the ranges."""
    rows = [f"| {names(law)} | {law.runs} | {', '.join(f'`{name}`' for name in law.gives)} |" for law in laws]
    return "\n".join(["| algorithm | runs | predicted |", "|---|---|---|", *rows])
