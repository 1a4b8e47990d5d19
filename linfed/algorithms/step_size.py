"""Step sizes: one number for all rounds, or a schedule, a number for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias

from linfed._types import Array
from linfed._values import positive, takes
from linfed.algorithms.base import Algorithm
from linfed.data.batch import Batch
from linfed.errors import check_array, shown

StepSize: TypeAlias = float | Sequence[float] | Array | Callable[[int], float]
"""A positive number, one for each round, (rounds,), or a function of the round's number, from 1."""


def checked_step_size(name: str, value: Any) -> StepSize:
    """Return a step size as it is kept: a float, a tuple with one for each round, or a function; or raise."""
    if callable(value):
        if not takes(value, 1):
            raise TypeError(
                f"{name} = {shown(value)} must be a function of one argument, the round, which counts from 1"
            )
        return value  # what it returns is checked round by round
    if not isinstance(value, list | tuple) and not getattr(value, "ndim", 0):
        return positive(name, value)
    steps = tuple(check_array(name, value, [("rounds",)]).tolist())
    for index, step in enumerate(steps):
        positive(f"{name}[{index}]", step)
    return steps


def checked_rounds(steps: Sequence[float] | Array, rounds: int) -> tuple[float, ...]:
    """Return the steps of a run of so many rounds, or raise if there are more or fewer of them."""
    if len(steps) != rounds:
        values = f"{len(steps)} value{'s' * (len(steps) != 1)}"
        raise ValueError(f"step_size has {values}, expected one for each round: rounds = {rounds}")
    return tuple(steps)


def step_at(step_size: StepSize, round_: int) -> float:
    """Return the step of a round, which counts from 1."""
    if isinstance(step_size, float):
        return step_size
    if callable(step_size):
        return float(positive(f"step_size({round_})", step_size(round_)))
    return float(step_size[round_ - 1])


def one_step(step_size: StepSize, what: str, error: type[ValueError] = ValueError) -> float:
    """Return the step size of all rounds, or raise `error` for a schedule; `what` begins the reason."""
    if not isinstance(step_size, float):
        raise error(f"step_size = {shown(step_size)} is a schedule: {what} one step for all rounds")
    return step_size


class Scheduled(Algorithm):
    """An algorithm whose field `step_size` may be a schedule, kept as `checked_step_size` returns it."""

    step_size: StepSize

    def step_in(self, batch: Batch) -> float:
        """Return the step of a batch's round."""
        return self.step_size if isinstance(self.step_size, float) else step_at(self.step_size, batch.round)

    def for_rounds(self, rounds: int) -> Self:
        """Return the algorithm with the step of every round: a function of the round becomes what it returns.

        Raises
        ------
        ValueError
            For a sequence of another length, and a function that returns something else than a positive number.
        """
        steps = self.step_size
        if isinstance(steps, float):
            return self
        if callable(steps):
            found = tuple(step_at(steps, round_) for round_ in range(1, max(1, rounds) + 1))
            return replace(self, step_size=found)  # type: ignore[type-var]  # subclasses are dataclasses
        checked_rounds(steps, rounds)
        return self
