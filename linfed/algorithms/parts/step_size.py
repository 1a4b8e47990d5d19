"""Step sizes and ridges: one number for all rounds, or a schedule with one number per round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias

from linfed._types import Array
from linfed._values import Check, non_negative, positive, takes
from linfed.algorithms.parts.base import Algorithm
from linfed.checks import check_array, short_repr
from linfed.data.batch import Batch

Schedule: TypeAlias = float | Sequence[float] | Array | Callable[[int], float]
"""A number, one number per round (n_rounds,), or a function of the round number, from 1."""

StepSize: TypeAlias = Schedule
"""Schedule of positive numbers."""


def checked_schedule(name: str, value: Any, check: Check) -> Schedule:
    """Return a valid schedule as a float, a tuple with one value per round, or a function, or raise."""
    if callable(value):
        if not takes(value, 1):
            raise TypeError(
                f"{name} = {short_repr(value)} must be a function of one argument, the round, which counts from 1"
            )
        return value  # `value_at` checks its return values
    if not isinstance(value, list | tuple) and not getattr(value, "ndim", 0):
        return float(check(name, value))
    values = tuple(check_array(name, value, [("n_rounds",)]).tolist())
    for index, one in enumerate(values):
        check(f"{name}[{index}]", one)
    return values


def checked_step_size(name: str, value: Any) -> StepSize:
    """Return a valid step size as `checked_schedule` does, or raise."""
    return checked_schedule(name, value, positive)


def checked_ridge(name: str, value: Any) -> Schedule:
    """Return a valid ridge as `checked_schedule` does, or raise."""
    return checked_schedule(name, value, non_negative)


def checked_rounds(steps: Sequence[float] | Array, n_rounds: int, name: str = "step_size") -> tuple[float, ...]:
    """Return the values of a schedule as a tuple, or raise if their number is not `n_rounds`."""
    if len(steps) != n_rounds:
        values = f"{len(steps)} value{'s' * (len(steps) != 1)}"
        raise ValueError(f"{name} has {values}, expected one for each round: n_rounds = {n_rounds}")
    return tuple(steps)


def value_at(schedule: Schedule, round_: int, name: str, check: Check) -> float:
    """Return the value of a schedule in a round, which counts from 1."""
    if isinstance(schedule, float):
        return schedule
    if callable(schedule):
        return float(check(f"{name}({round_})", schedule(round_)))
    return float(schedule[round_ - 1])


def values_of_rounds(schedule: Schedule, n_rounds: int, name: str, check: Check) -> Schedule:
    """Return the schedule for a run: a number as it is, or one value for each round; raise if their number differs."""
    if isinstance(schedule, float):
        return schedule
    if callable(schedule):
        return tuple(value_at(schedule, round_, name, check) for round_ in range(1, max(1, n_rounds) + 1))
    checked_rounds(schedule, n_rounds if n_rounds or len(schedule) != 1 else 1, name)  # of a function, for no round
    return schedule


def last_value(schedule: Schedule, name: str) -> float:
    """Return the value of the last round; raise for a function, whose last round is unknown."""
    return _values(schedule, name)[-1]


def largest_value(schedule: Schedule, name: str) -> float:
    """Return the largest value of all rounds; raise for a function, whose last round is unknown."""
    return max(_values(schedule, name))


def _values(schedule: Schedule, name: str) -> tuple[float, ...]:
    if callable(schedule):
        raise ValueError(f"{name} = {short_repr(schedule)} is a function of the round: use the algorithm of a result")
    return (schedule,) if isinstance(schedule, float) else tuple(map(float, schedule))


def step_at(step_size: StepSize, round_: int) -> float:
    """Return the step size in a round, which counts from 1."""
    return value_at(step_size, round_, "step_size", positive)


def one_step(step_size: StepSize, what: str) -> float:
    """Return the constant step size, or raise for a schedule; `what` starts the reason in the message."""
    if not isinstance(step_size, float):
        raise ValueError(f"step_size = {short_repr(step_size)} is a schedule: {what} one step size for all rounds")
    return step_size


class Scheduled(Algorithm):
    """Base class of algorithms whose field `step_size` may be a schedule (see `checked_step_size`)."""

    step_size: StepSize

    def step_in(self, batch: Batch) -> float:
        """Return the step size in a batch's round."""
        return self.step_size if isinstance(self.step_size, float) else step_at(self.step_size, batch.round)

    def for_rounds(self, n_rounds: int) -> Self:
        """Return the algorithm with one step size per round: a function is replaced by its values.

        Raises
        ------
        ValueError
            If a sequence does not have `n_rounds` values, or a function does not return a positive number.
        """
        steps = values_of_rounds(self.step_size, n_rounds, "step_size", positive)
        if steps is self.step_size:
            return self
        return replace(self, step_size=steps)  # type: ignore[type-var]  # subclasses are dataclasses
