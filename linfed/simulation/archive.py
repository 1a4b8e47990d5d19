"""Results as arrays and a JSON description, which one npz file holds without pickles."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed
from linfed._types import Array, Json
from linfed._values import Configuration
from linfed.algorithms import ALGORITHMS
from linfed.algorithms.base import State, frozen
from linfed.algorithms.heads import ExactHeads, GradientHeads
from linfed.algorithms.initial import INITIALISATIONS
from linfed.algorithms.solvers import ClosedForm, GradientSteps
from linfed.data.given_classes import GivenClasses
from linfed.data.samples import FixedSamples, FreshSamples, GivenSamples
from linfed.problems import Classes, GivenTruth, SharedRepresentation, SharedWithShortcuts, UnderParameterized
from linfed.problems.designs import LAWS
from linfed.simulation.metrics import MetricTable

if TYPE_CHECKING:
    from linfed.simulation.results import Result

FORMAT = 1
"""Of a result's file; it grows whenever an older linfed could not read what is written, or a newer one what was."""

_LISTED: tuple[type[Any], ...] = (
    *ALGORITHMS.values(),
    *INITIALISATIONS.values(),
    *LAWS.values(),
    Classes,
    ClosedForm,
    ExactHeads,
    FixedSamples,
    FreshSamples,
    GivenTruth,
    GradientHeads,
    GradientSteps,
    SharedRepresentation,
    SharedWithShortcuts,
    UnderParameterized,
)
_KNOWN = {cls.__name__: cls for cls in _LISTED}


@dataclasses.dataclass(frozen=True)
class Unknown:
    """What a file says of a class that this process does not know: its name and its text.

    `described` and `arrays` are the whole of it, to be written again as they were.
    """

    name: str
    text: str
    described: Json = dataclasses.field(default=None, compare=False)
    arrays: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        return self.text


def encode_result(result: Result) -> tuple[dict[str, Array], Json]:
    """Return the arrays of a result and a description of the rest."""
    arrays: dict[str, Any] = {f"metrics/{name}": values for name, values in result.metrics.items()}
    arrays |= {f"final/{name}": values for name, values in result.final.arrays().items()}
    arrays |= {"rounds": result.rounds, "status_round": result.status_round}
    described = {
        "format": FORMAT,
        "version": linfed.__version__,
        "algorithm": encode(result.algorithm, "algorithm", arrays),
        "problem": encode(result.problem, "problem", arrays),
        "data": encode(result.data, "data", arrays),
        "seed": result.seed,
        "participation": encode(result.participation, "participation", arrays),
        "participants": result.participants,
        "status": [status.name for status in result.status],
        "absent": result.metrics.absent,
        "metrics": list(result.metrics),
        "state": encode_state(result.final),
        "seconds": result.seconds,
        "engine": result.engine,
    }
    return arrays, described


def decode_result(arrays: dict[str, Any], described: Json) -> dict[str, Any]:
    """Return the fields of the result that `encode_result` described, but for its status."""
    seed = described["seed"]
    metrics = {name: arrays[f"metrics/{name}"] for name in described["metrics"]}
    final = {key.removeprefix("final/"): value for key, value in arrays.items() if key.startswith("final/")}
    return {
        "algorithm": decode(described["algorithm"], arrays),
        "problem": decode(described["problem"], arrays),
        "data": decode(described["data"], arrays),
        "seed": tuple(seed) if isinstance(seed, list) else seed,
        "participation": decode(described["participation"], arrays),
        "participants": described["participants"],
        "rounds": arrays["rounds"],
        "metrics": MetricTable(metrics, described["absent"]),
        "status_round": arrays["status_round"],
        "final": decode_state(described["state"], final),
        "seconds": described["seconds"],
        "engine": described["engine"],
    }


def encode(value: Any, name: str, arrays: dict[str, Array]) -> Json:
    """Return a JSON description of a configuration; its arrays go into `arrays` under names that begin with `name`."""
    if isinstance(value, Unknown):
        arrays |= value.arrays
        return value.described
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if isinstance(value, GivenSamples):
        for part in ("X", "y", "counts"):
            arrays[f"{name}/{part}"] = getattr(value, part)
        classes = {"classes": value.n_classes} if isinstance(value, GivenClasses) else {}
        return {"samples": name, "test": encode(value.test, f"{name}/test", arrays), **classes}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        own = {} if _KNOWN.get(cls.__name__) is cls else {"module": cls.__module__, "qualname": cls.__qualname__}
        given = (field.name for field in dataclasses.fields(value) if field.init)
        fields = {part: encode(getattr(value, part), f"{name}/{part}", arrays) for part in given}
        if not any("repr" in part for part in fields.values()):
            return {"class": cls.__name__, **own, "fields": fields, "text": repr(value)}
    if isinstance(value, np.bool_ | np.integer | np.floating):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, tuple | list):
        parts = [encode(part, f"{name}/{index}", arrays) for index, part in enumerate(value)]
        if not any("repr" in part for part in parts):
            return {"tuple" if isinstance(value, tuple) else "list": parts}
    return {"repr": repr(value), "name": type(value).__name__}


def decode(described: Json, arrays: dict[str, Any]) -> Any:
    """Return the configuration that `encode` described; one whose class is not known comes back as `Unknown`."""
    if "array" in described:
        return arrays[described["array"]]
    for kind in (tuple, list):
        if kind.__name__ in described:
            return kind(decode(part, arrays) for part in described[kind.__name__])
    if "samples" in described:
        of_classes = "classes" in described
        samples = GivenClasses.__new__(GivenClasses) if of_classes else GivenSamples.__new__(GivenSamples)
        for part in ("X", "y", "counts"):
            array = arrays[f"{described['samples']}/{part}"]
            array.setflags(write=False)
            setattr(samples, part, array)
        samples.test = decode(described["test"], arrays) if "test" in described else None  # older files have none
        if isinstance(samples, GivenClasses):
            samples.number(described["classes"])
        return samples
    if "class" in described:
        parts = {name: decode(part, arrays) for name, part in described["fields"].items()}
        found = _class(described) if "module" in described else _KNOWN.get(described["class"])
        if found is not None and not any(isinstance(part, Unknown) for part in parts.values()):
            try:
                return found(**parts)
            except (TypeError, ValueError):  # the class has other fields by now
                if "text" not in described:
                    raise
        return _unknown(described["class"], described.get("text", described["class"]), described, arrays)
    if "repr" in described:
        return _unknown(described["name"], described["repr"], described, arrays)
    return described["value"]


def _unknown(name: str, text: str, described: Json, arrays: dict[str, Any]) -> Unknown:
    return Unknown(name, text, described, {name: arrays[name] for name in _array_names(described)})


def _array_names(described: Json) -> Iterator[str]:
    """Yield the names of the arrays that belong to a description."""
    if "array" in described:
        yield described["array"]
    elif "samples" in described:
        yield from (f"{described['samples']}/{part}" for part in ("X", "y", "counts"))
    else:
        for part in [*described.get("fields", {}).values(), *described.get("tuple", []), *described.get("list", [])]:
            yield from _array_names(part)


def _class(described: Json) -> type[Any] | None:
    """Return the dataclass of a user's own that a description names, or None: no module is imported for it."""
    module, path = described["module"], described["qualname"]
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type):
        return found if dataclasses.is_dataclass(found) else None
    bases: list[type[Any]] = [Configuration, State]  # it may have been made within a function
    for base in bases:
        bases += [cls for cls in base.__subclasses__() if "_placeholder" not in vars(cls) and cls not in bases]
    return next((cls for cls in reversed(bases) if (cls.__module__, cls.__qualname__) == (module, path)), None)


def encode_state(state: State) -> Json:
    """Return a description of a state's class."""
    cls = type(state)
    return {
        "class": cls.__name__,
        "module": cls.__module__,
        "qualname": cls.__qualname__,
        "per_client": sorted(cls.per_client),
        "derived": cls.served is not State.served,
    }


def decode_state(described: Json, arrays: dict[str, Any]) -> State:
    """Return a state of the class that `encode_state` described; of a class made up for it where that is not known."""
    if isinstance(described, str):  # as files were written first: the name alone
        known: list[type[State]] = [State]
        for base in known:
            known += base.__subclasses__()
        found = next((cls for cls in known if cls.__name__ == described), None)
        described = {"class": described, "module": None, "qualname": described, "per_client": State.per_client}
    else:
        found = _class(described)
    if found is not None and issubclass(found, State):
        try:
            return frozen(found(**arrays))
        except TypeError:  # it has other fields by now
            pass
    names = {"__qualname__": described["qualname"], "_placeholder": True}
    if described.get("derived"):
        names["served"] = _not_served
    held = {field.name for field in dataclasses.fields(State)}
    made: type[State] = dataclasses.make_dataclass(
        described["class"],
        [(name, Any, None) for name in arrays if name not in held],
        bases=(State,),
        namespace={"per_client": frozenset(described["per_client"]), **names},
        frozen=True,
        kw_only=True,
        repr=False,
    )
    made.__module__ = described["module"]  # in the namespace, Python 3.12 and later would put this module in its place
    return frozen(made(**arrays))


def _not_served(state: State) -> State:
    """Raise: what the clients predict with is made of the arrays by a class that is not there."""
    cls = type(state)
    raise ValueError(
        f"the final state is a {cls.__module__}.{cls.__qualname__}, which alone knows what the clients predict with: "
        "import it before loading; its arrays are here"
    )


def check_format(path: str | os.PathLike[str], described: Json) -> None:
    """Raise unless a result has the format of today.

    Raises
    ------
    ValueError
        If it is older or newer; the message says which, and what to do.
    """
    found = described.get("format")
    if found == FORMAT:
        return
    by = f"linfed {described['version']}" if "version" in described else "an earlier linfed"
    if isinstance(found, int) and found > FORMAT:
        what = f"format {found}, newer than this linfed's, {FORMAT}: load it with a newer one"
    else:
        what = f"{'no format number' if found is None else f'format {found}'}, and this linfed reads format {FORMAT}"
        what += ": load it with the one that wrote it, or run it again"
    raise ValueError(f"path = {str(path)!r} was written by {by} and has {what}")
