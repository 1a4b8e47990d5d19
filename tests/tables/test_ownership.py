"""Tables, cells and exports own their arrays: what the caller or a reader writes changes no other."""

import collections
import copy
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.system.description import describe
from tests.helpers import normal

BUFFER = np.zeros(3)


@dataclass(frozen=True)
class Reuses:
    """A cell that returns a buffer, which the next cell overwrites, in several forms and rows."""

    number: int

    def run(self):
        BUFFER[:] = self.number
        path = lf.LabeledArray(BUFFER[:, None], step=BUFFER[:1])
        return [{"each": BUFFER, "path": path}, {"each": BUFFER[::-1], "path": path}]


def numbers(table):
    return [
        [row["each"].tolist(), row["path"].values.tolist(), row["path"].axes["step"].tolist()] for row in table.rows
    ]


@pytest.mark.parametrize("options", [{}, {"workers": 2}])
def test_a_buffer_that_is_used_again_changes_no_table(options, tmp_path):
    cells = [Reuses(number) for number in (0, 1, 2, 1)]
    expected = [[[number] * 3, [[number]] * 3, [number]] for number in (0, 1, 2, 1) for _ in range(2)]
    assert numbers(lf.sweep(cells, **options)) == expected
    assert numbers(lf.sweep(cells, store=tmp_path, **options)) == expected
    assert numbers(lf.sweep(cells, store=tmp_path, **options)) == expected


@dataclass(frozen=True)
class Part:
    number: int

    def run(self):
        BUFFER[:] = self.number
        return {"each": BUFFER, "path": lf.LabeledArray(BUFFER[:, None], step=BUFFER[:1])}


@dataclass(frozen=True)
class Whole:
    parts: int
    divides = True

    def run(self):
        rows = lf.run_parts([Part(number) for number in range(self.parts)])
        return {name: np.array([getattr(row[name], "values", row[name]).sum() for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("options", [{}, {"workers": 2}])
def test_a_buffer_that_is_used_again_changes_no_part(options, tmp_path):
    expected = [[0.0, 3.0, 6.0]] * 2
    tables = [lf.sweep([Whole(3)], **options), *(lf.sweep([Whole(3)], store=tmp_path, **options) for _ in range(2))]
    rows = [
        {name: row[name] for name in ("each", "path")} for row in (Whole(3).run(), *(table.rows[0] for table in tables))
    ]
    for row in rows:
        assert [row["each"].tolist(), row["path"].tolist()] == expected


def test_arrays_are_copied_into_a_table():
    given = {"each": normal(3), "word": np.array(["a", "b", "c"]), "fixed": normal(3, seed=1)}
    given["fixed"].setflags(write=False)
    values, labels = normal(3, 3), np.arange(3.0)
    row = {**given, "path": lf.LabeledArray(values, step=labels)}
    tables = (
        lf.Table([row]),
        lf.Table.of([Reuses(1)], [row]),
        lf.Table([{}]).assign(**{k: lambda _, v=v: v for k, v in row.items()}),
    )
    expected = {name: value.copy() for name, value in given.items()} | {"path": values.copy(), "step": labels.copy()}
    given["fixed"].setflags(write=True)
    for array in (*given.values(), values, labels):
        array[:] = array[::-1].copy()
    for table in tables:
        for name, value in expected.items():
            assert np.array_equal(table[name], value)


def held(table):
    """Yield all arrays that a table holds."""
    for value in (value for row in table.rows for value in row.values()):
        yield from (value.values, *value.axes.values()) if isinstance(value, lf.LabeledArray) else (value,)


@pytest.mark.parametrize("made", ["new", "pickled", "copied", "loaded", "joined"])
def test_what_is_read_from_a_table_changes_no_table(made, tmp_path):
    row = {"each": normal(3), "path": lf.LabeledArray(normal(3, 2), step=[1, 2])}
    table = lf.Table([row])
    if made == "pickled":
        table = pickle.loads(pickle.dumps(table))
    elif made == "copied":
        table = copy.deepcopy(table)
    elif made == "loaded":
        table = lf.Table.load(table.save(tmp_path / "table.npz"))
    elif made == "joined":
        both = lf.Table.joined([table, table])
        both.rows[0]["each"] = np.zeros(3)
        table = list(both)[1]
    for name in ("each", "path", "step"):
        before = table[name]
        table[name][:] = -1
        assert np.array_equal(table[name], before)
    for array in held(table):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = -1
    assert np.array_equal(table["each"], row["each"])
    assert np.array_equal(table["path"], row["path"].values)


def test_equal_cells_share_no_row(tmp_path):
    run = lf.Run(
        algorithm=lf.FedRep(rank=2, step_size=0.5),
        problem=lf.SharedRepresentation(n_clients=10, dim=5, rank=2),
        data=lf.FreshSamples(5),
        rounds=3,
    )
    for table in (lf.sweep([run, run]), lf.sweep([run, run], store=tmp_path), lf.Store(tmp_path).table([run, run])):
        first, second = table
        expected = second["risk"]
        first["risk"][:] = -1
        first.rows[0]["risk"] = None
        assert np.array_equal(second["risk"], expected)


def test_an_export_changes_no_table():
    pytest.importorskip("xarray")
    table = lf.Table([{"each": normal(3), "path": lf.LabeledArray(normal(3, 2), step=[1, 2])}])
    dataset = table.to_xarray()
    expected = {name: table[name] for name in ("each", "path")}
    for name, values in expected.items():
        dataset[name].values[:] = 0
        assert np.array_equal(table[name], values)
    problem = lf.SharedRepresentation(n_clients=10, dim=5, rank=2)
    result = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, data=lf.FreshSamples(5), rounds=3)
    risk, rounds = result.metrics["risk"].copy(), result.rounds.copy()
    result.to_xarray()["risk"].values[:] = 0
    frame = result.to_pandas()
    frame.loc[:, "risk"] = 0.0
    assert np.array_equal(result.metrics["risk"], risk)
    assert np.array_equal(result.rounds, rounds)


FEDREP = lf.FedRep(rank=2, step_size=0.5)
RUN = {"algorithm": FEDREP, "data": lf.FreshSamples(5), "rounds": 3}
CONTAINERS = {
    "a dict": (lf.Tuned, {"base": FEDREP}, "grid", lambda: {"step_size": [0.1, 0.5]}),
    "another mapping": (lf.Tuned, {"base": FEDREP}, "grid", lambda: collections.OrderedDict(step_size=[0.1, 0.5])),
    "a user's mapping": (lf.Tuned, {"base": FEDREP}, "grid", lambda: collections.UserDict(step_size=[0.1, 0.5])),
    "a list": (lf.Run, RUN, "metrics", lambda: ["risk", "subspace_distance"]),
    "a user's list": (lf.Run, RUN, "metrics", lambda: collections.UserList(["risk", "subspace_distance"])),
    "a list of lists": (lf.Run, RUN, "participation", lambda: [[0, 1]] * 3),
    "an array": (lf.Run, RUN, "participation", lambda: np.tile([0, 1], (3, 1))),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_cell_keeps_what_it_was_made_of(name):
    cls, options, field, make = CONTAINERS[name]
    given = make()
    cell = cls(**options, **{field: given})
    before = describe(cell).text
    if isinstance(given, np.ndarray):
        given[:] = 2
    elif isinstance(given, collections.abc.Mapping):
        given["step_size"].append(0.7)
        given["rank"] = [1, 2]
    else:
        given.append(given[0])
        if isinstance(given[0], list):
            given[0].append(2)
    assert describe(cell).text == before == describe(cls(**options, **{field: make()})).text


def test_equal_cells_have_one_key():
    one, other = (lf.Run(**RUN, metrics=names) for names in (["risk"], ("risk",)))
    assert one == other
    assert describe(one).text == describe(other).text


def test_a_summary_keeps_its_entries():
    summary = lf.Table([{"rule": "a", "error": np.arange(8.0)}]).summarize("error", rows="rule")
    entries = dict(summary.entries)
    own = type(summary)("error", "median", "smallest", ["rule"], [], entries)
    entries.clear()
    assert own.to_markdown() == summary.to_markdown()
