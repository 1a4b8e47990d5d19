"""Files of results with random content: loaded values equal the saved ones bit for bit."""

from __future__ import annotations

import dataclasses
import json

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import linfed as lf
from linfed.simulation import archive
from linfed.simulation.metrics import MetricTable
from linfed.simulation.results import Result
from linfed.system import files
from linfed.system.description import describe, rebuild, text_of
from tests.helpers import normal
from tests.tables.table_strategies import DTYPES, arrays, names, scalars, words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Odd(lf.State):
    """A state with arrays of any shape and type."""

    extra: np.ndarray = None
    clients: np.ndarray = None
    per_client = lf.State.per_client | {"clients"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Word:
    """A value within a configuration."""

    value: object


@dataclasses.dataclass(frozen=True, kw_only=True)
class Holds(lf.FedRep):
    """An algorithm with a field of any content."""

    held: object = None


floats = hnp.arrays("<f8", hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
floats = floats | floats.map(np.transpose)  # in any memory order


contents = st.recursive(
    scalars.filter(lambda value: not isinstance(value, tuple)) | floats.map(np.asarray),
    lambda part: st.lists(part, max_size=3) | st.lists(part, max_size=3).map(tuple) | part.map(lambda v: Word(value=v)),
    max_leaves=5,
)


def assert_same_content(one, other):
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif isinstance(one, Word):
        assert_same_content(one.value, other.value)
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same_content(first, second)
    else:
        assert repr(one) == repr(other)


GIVEN = lf.GivenSamples(normal(2, 3, 4), normal(2, 3))


@st.composite
def results(draw):
    """Draw a result with states, metrics and arguments that no run needs to have."""
    trials, n, d, k = (draw(st.integers(1, 3)) for _ in range(4))
    rounds = np.array(draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=4, unique=True).map(sorted)))
    parts = {"B": (trials, d, k), "W": (trials, draw(st.sampled_from([1, n])), k), "S": (trials, n, d)}
    kept = draw(st.sampled_from(["B W", "S", "B W S"])).split()
    state = {name: draw(arrays("<f8", parts[name])) for name in kept}
    if draw(st.booleans()):
        extra = draw(arrays(draw(st.sampled_from(DTYPES)), (trials,)))
        final = Odd(**state, extra=extra, clients=draw(arrays("<f8", (trials, n, 2))))
    else:
        final = lf.State(**state)
    metrics = {
        name: draw(arrays("<f8", (trials, len(rounds)))) for name in draw(st.lists(names, unique=True, max_size=3))
    }
    return Result(
        algorithm=Holds(rank=k, step_size=0.1, held=draw(contents)),
        problem=None,
        data=draw(st.sampled_from([lf.FreshSamples(3), lf.FixedSamples(10**9), GIVEN])),
        seed=draw(st.integers(0, 2**100) | st.lists(st.integers(0, 2**70), min_size=1, max_size=3).map(tuple)),
        participation=draw(
            st.floats(0.1, 1.0) | st.integers(1, n) | hnp.arrays("<i8", (2, n), elements=st.integers(0, n - 1))
        ),
        participants=draw(st.integers(1, n)),
        rounds=rounds,
        metrics=MetricTable(metrics, draw(st.dictionaries(words, words, max_size=2))),
        status=draw(st.lists(st.sampled_from(lf.Status), min_size=trials, max_size=trials)),
        status_round=draw(hnp.arrays("<i8", trials)),
        final=final,
        seconds=draw(st.floats(0, 1e300)),
        engine=draw(words),
    )


@pytest.mark.long
@given(results())
def test_results(tmp_path_factory, result):
    path = result.save(tmp_path_factory.mktemp("result") / "r\u00e9sult")
    loaded = Result.load(path)
    assert_same_content(loaded.algorithm.held, result.algorithm.held)
    assert dataclasses.replace(loaded.algorithm, held=None) == dataclasses.replace(result.algorithm, held=None)
    assert repr(loaded.data) == repr(result.data)
    assert_same_content(loaded.participation, result.participation)
    for name in ("seed", "participants", "status", "seconds", "engine"):
        assert_same_content(getattr(loaded, name), getattr(result, name))
    assert type(loaded.final) is type(result.final)
    pairs = [(dict(loaded.metrics), dict(result.metrics)), (loaded.final.arrays(), result.final.arrays())]
    for one, other in pairs:
        assert list(one) == list(other)
        for name in one:
            assert_same_content(np.ascontiguousarray(one[name]), np.ascontiguousarray(other[name]))
    assert loaded.metrics.absent == result.metrics.absent
    assert_same_content(loaded.rounds, result.rounds)
    assert_same_content(loaded.status_round, result.status_round)
    # A second file has the same content.
    again = files.read(loaded.save(path.parent / "again"))
    first = files.read(path)
    assert again[1] == first[1] or repr(again[1]) == repr(first[1])


@pytest.mark.long
@given(contents)
def test_configurations_of_unknown_classes_are_saved_again_unchanged(content):
    """As a process does that has not imported the class."""
    stored = {}
    described = archive.encode(Word(value=(content, Word(value=content))), stored)
    described["value"]["is"] = "elsewhere.Gone"
    loaded = archive.decode(described, stored)
    assert isinstance(loaded, archive.Unknown)
    again = {}
    assert archive.encode(loaded, again) == described
    assert again.keys() == stored.keys()


@pytest.mark.long
@given(contents)
def test_what_is_described_is_rebuilt(content):
    found = describe(content)
    back = rebuild(json.loads(text_of(found.json)), found.arrays)
    assert_same_content(back, content)
    assert text_of(describe(back).json) == text_of(found.json)
