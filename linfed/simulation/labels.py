"""How a run is told in a line: in a summary, and beside others of the same algorithm in one figure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from linfed.algorithms.base import Algorithm
from linfed.errors import shown

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
