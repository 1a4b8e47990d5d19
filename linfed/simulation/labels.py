"""How a run is told in a line: in a summary, and beside others of the same algorithm in one figure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from linfed.algorithms.base import Algorithm
from linfed.errors import shown
from linfed.statistics.quantiles import quantiles

if TYPE_CHECKING:
    from linfed.simulation.results import Result


def told(value: object) -> str:
    """Return a configuration as one line: its fields that are not at their defaults."""
    if not dataclasses.is_dataclass(value):
        return shown(value)
    fields = []
    for field in dataclasses.fields(value):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if repr(getattr(value, field.name)) != repr(default):
            fields.append(f"{field.name}={shown(getattr(value, field.name))}")
    return f"{type(value).__name__}({', '.join(fields)})"


def summary(result: Result) -> str:
    """Return what was run, how the trials ended, and each metric's last values over trials, as a short text."""
    lines = [
        told(result.algorithm),
        f"{told(result.problem) if result.problem is not None else 'no truth given'}, {told(result.data)}",
        f"{result.trials} trial{'s' if result.trials > 1 else ''} of {length(result)}, "
        f"{result.participants} clients a round, engine {result.engine}, seed {result.seed}, "
        f"{result.seconds:.2f} s: {ended(result)}",
    ]
    width = max([20, *map(len, result.metrics)])
    if result.metrics:
        lines.append(f"{'at the end':<{width}} {'median':>12} {'10 %':>12} {'90 %':>12}")
    lines += [f"{name:<{width}} {' '.join(f'{text:>12}' for text in texts)}" for name, *texts in at_the_end(result)]
    return "\n".join(lines)


def ended(result: Result) -> str:
    """Return how the trials ended, with the number of each kind."""
    return ", ".join(f"{count} {status.name}" for status, count in Counter(result.status).items())


def at_the_end(result: Result) -> list[tuple[str, ...]]:
    """Return each metric's name and last values over trials: median, 10 % and 90 %."""
    return [(name, *(f"{value:.4g}" for value in quantiles(values[:, -1]))) for name, values in result.metrics.items()]


def length(result: Result) -> str:
    """Return how long a run was, in words."""
    count = result.rounds[-1] - result.finished
    return f"{count} round{'' if count == 1 else 's'}{' and fine-tuning' if result.finished else ''}"


def differences(result: Result, metric: str) -> list[dict[str, str]]:
    """Return what tells a curve from others of the same algorithm: the sooner, the more it is worth saying."""
    algorithm = result.algorithm
    known = isinstance(algorithm, Algorithm) and dataclasses.is_dataclass(algorithm)
    names = [field.name for field in dataclasses.fields(algorithm)] if known else []  # type: ignore[arg-type]
    return [
        {name: shown(getattr(algorithm, name)) for name in names} or {"algorithm": shown(algorithm)},
        {"metric": metric},
        {"data": told(result.data), "problem": told(result.problem), "participation": shown(result.participation)},
        {"trials": str(result.trials), "rounds": str(result.rounds[-1]), "seed": shown(result.seed)},
        {"engine": result.engine},
    ]
