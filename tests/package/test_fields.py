"""Every field of every configuration refuses what its annotation excludes, in one line with its name and value."""

import dataclasses
import re
from collections.abc import Mapping
from functools import partial

import numpy as np
import pytest

import linfed as lf
from tests.arguments import VALID
from tests.helpers import assert_one_line

NAN, INF = float("nan"), float("inf")
NO_NUMBERS = (True, "2", b"3", 3j, np.ma.masked, np.timedelta64(3, "s"), np.datetime64("2024-01-01"))
LEFT_OUT = (lf.Finding, lf.Result, lf.State, lf.Summary, lf.Truth, lf.TuningResult, lf.Run, lf.Design)
"""What linfed makes itself, with checks of its own; runs, which are checked when they begin; an abstract class."""

NEEDED: Mapping[type, dict[str, object]] = {
    lf.UnderParameterized: {"gap": 0.5, "gap_after": 1},
    lf.ClusterFedVARP: {"clusters": [0, 0, 1, 1, 1]},
    lf.FedSCAVAR: {"clusters": [0, 0, 1, 1, 1]},
    lf.CompressedFedRep: {"kept_share": 0.5},
    lf.GivenTruth: {"B": np.eye(6)[:, :2], "W": np.ones((5, 2))},
    lf.Tuned: {"base": VALID["algorithm"], "metric": "risk"},
}
"""Arguments that a class needs besides those without a default."""

EXCLUDED = {
    "int": ((*NO_NUMBERS, 2.5, None), "integer"),
    "int | None": ((*NO_NUMBERS, 2.5), "integer"),
    "float": ((*NO_NUMBERS, None, NAN, "fast"), "number"),
    "float | None": ((*NO_NUMBERS, NAN, "fast"), "number"),
    "StepSize": ((*NO_NUMBERS, None, NAN, INF, -INF, 0, -0.1), "positive finite number"),
    "Schedule": ((*NO_NUMBERS, None, NAN, -0.1), "number of at least 0"),
    "bool": ((1, None, "yes"), "True or False"),
    "bool | None": ((1, "yes"), "True or False"),
    "Design": (("gausian", None, np.eye(6), lf.Rademacher), "gaussian|lf.Rademacher()"),
    "HeadSolver": (("exact", None, lf.GradientHeads, 3), "lf.ExactHeads()"),
    "HeadSolver | AllLayers | None": (("exact", True, lf.ExactHeads), "lf.ExactHeads()"),
    "Solver": (("closed-form", None, lf.ClosedForm), "lf.ClosedForm("),
    "Initial | str | npt.ArrayLike": (("momets", 3, np.ones(6), lf.SmallRandom()), "moments|(d, k)"),
    "Algorithm": ((lf.FedRep, "FedRep", None), "algorithm"),
}
"""Values that an annotation excludes, and a word of the message."""

BELOW = {"int": -1, "int | None": -1, "float": -1e-9, "float | None": -1e-9}
"""A number below the range of every field with an annotation."""


KINDS = [getattr(lf, name) for name in lf.__all__]
KINDS = [kind for kind in KINDS if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in LEFT_OUT]


def made(kind, **changes):
    """Return a configuration with one changed field."""
    fields = [one for one in dataclasses.fields(kind) if one.init]
    needed = [one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING]
    given = NEEDED.get(kind, {}) | changes
    unknown = set(needed) - set(VALID) - set(given)
    assert not unknown, f"add values for {unknown} to VALID in tests/arguments.py"
    return kind(**{name: VALID[name] for name in needed if name in VALID} | given)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_refuses_what_its_annotation_excludes(kind):
    made(kind)
    for field in dataclasses.fields(kind):
        literal = re.match(r"Literal\[(.*?)[,\]]", str(field.type))
        none = ((), "")
        values, words = (("nonsense", 5, np.eye(2)), literal[1]) if literal else EXCLUDED.get(field.type, none)
        for value in values if field.init else ():
            call = partial(made, kind, **{field.name: value})
            message = assert_one_line(call, [field.name], (TypeError, ValueError))
            assert any(word in message for word in words.split("|")), message


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_below_its_range_is_refused(kind):
    """Also the largest of them: the integer below the least one, and 0 if a number must be positive."""
    for field in dataclasses.fields(kind):
        if field.type in BELOW and field.init:
            call = partial(made, kind, **{field.name: BELOW[field.type]})
            message = assert_one_line(call, [f"{field.name} = {BELOW[field.type]!r}"])
            assert re.search(r"at least|positive|inside|from \d|must be", message)
            least = re.search(r"integer of at least (\d+)", message)
            edge = int(least[1]) - 1 if least else 0 if "positive" in message else -1
            if edge >= 0:
                assert_one_line(partial(made, kind, **{field.name: edge}), [f"{field.name} = {edge}"])
