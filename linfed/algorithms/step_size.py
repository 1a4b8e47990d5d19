"""Step sizes: one number for all rounds, or a schedule with one number per round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias

from linfed._types import Array
from linfed._values import positive, takes
from linfed.algorithms.base import Algorithm
from linfed.data.batch import Batch
from linfed.errors import check_array, short_repr

StepSize: TypeAlias = float | Sequence[float] | Array | Callable[[int], float]
"""A positive number, one number per round (rounds,), or a function of the round number, from 1."""


def checked_step_size(name: str, value: Any) -> StepSize:
    """Return a valid step size as a float, a tuple with one value per round, or a function, or raise."""
    if callable(value):
        if not takes(value, 1):
            raise TypeError(
                f"{name} = {short_repr(value)} must be a function of one argument, the round, which counts from 1"
            )
        return value  # `step_at` checks its return values
    if not isinstance(value, list | tuple) and not getattr(value, "ndim", 0):
        return positive(name, value)
    steps = tuple(check_array(name, value, [("rounds",)]).tolist())
    for index, step in enumerate(steps):
        positive(f"{name}[{index}]", step)
    return steps


def checked_rounds(steps: Sequence[float] | Array, rounds: int) -> tuple[float, ...]:
    """Return the step sizes as a tuple, or raise if their number is not `rounds`."""
    if len(steps) != rounds:
        values = f"{len(steps)} value{'s' * (len(steps) != 1)}"
        raise ValueError(f"step_size has {values}, expected one for each round: rounds = {rounds}")
    return tuple(steps)


def step_at(step_size: StepSize, round_: int) -> float:
    """Return the step size of a round, which counts from 1."""
    if isinstance(step_size, float):
        return step_size
    if callable(step_size):
        return float(positive(f"step_size({round_})", step_size(round_)))
    return float(step_size[round_ - 1])


def one_step(step_size: StepSize, what: str, error: type[ValueError] = ValueError) -> float:
    """Return the constant step size, or raise `error` for a schedule; `what` starts the reason in the message."""
    if not isinstance(step_size, float):
        raise error(f"step_size = {short_repr(step_size)} is a schedule: {what} one step for all rounds")
    return step_size


class Scheduled(Algorithm):
    """Base class of algorithms whose field `step_size` may be a schedule (see `checked_step_size`)."""

    step_size: StepSize

    def step_in(self, batch: Batch) -> float:
        """Return the step size in a batch's round."""
        return self.step_size if isinstance(self.step_size, float) else step_at(self.step_size, batch.round)

    def for_rounds(self, rounds: int) -> Self:
        """Return the algorithm with one step size per round: a function is replaced by its values.

        Raises
        ------
        ValueError
            If a sequence does not have `rounds` values, or a function does not return a positive number.
        """
        steps = self.step_size
        if isinstance(steps, float):
            return self
        if callable(steps):
            found = tuple(step_at(steps, round_) for round_ in range(1, max(1, rounds) + 1))
            return replace(self, step_size=found)  # type: ignore[type-var]  # subclasses are dataclasses
        checked_rounds(steps, rounds)
        return self
