"""Saved tables and stored cells with random content: loaded values equal the saved ones bit for bit."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import linfed as lf
from linfed.sweeps.store import Store, keys_of
from tests.tables.table_strategies import assert_identical, rows, scalars, words


@pytest.mark.long
@given(st.lists(rows(), max_size=4))
def test_tables(tmp_path_factory, rows):
    table, path = lf.Table(rows), tmp_path_factory.mktemp("table") / "t\u00e4ble.npz"
    assert table.save(path) == path
    loaded = lf.Table.load(path)
    assert_identical(table, loaded)
    assert loaded.columns == table.columns
    assert [path.name] == [one.name for one in path.parent.iterdir()]


GIVEN: list = []


@dataclasses.dataclass(frozen=True)
class Gives:
    """A cell that returns the rows of `GIVEN`."""

    name: str
    value: object

    def run(self):
        return GIVEN


def arrays_of(table):
    """Yield all arrays of a table, with the labels of their axes."""
    for value in (value for row in table.rows for value in row.values()):
        if isinstance(value, lf.LabeledArray):
            yield from (value.values, *value.axes.values())
        elif isinstance(value, np.ndarray):
            yield value


@pytest.mark.long
@given(st.lists(rows(), max_size=3), words, scalars)
def test_stored_cells(tmp_path_factory, rows, name, value):
    store = Store(tmp_path_factory.mktemp("store"))
    cell = Gives(name, value)
    GIVEN[:] = [{key: one for key, one in row.items() if key not in ("name", "value")} for row in rows]
    first = lf.sweep([cell], store=store)
    again = store.table([cell])
    assert_identical(first, again)
    for table in (first, again):
        assert not any(array.flags.writeable for array in arrays_of(table))
    assert keys_of([cell]) == keys_of([Gives(name, value)])
