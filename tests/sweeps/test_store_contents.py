"""Stored cells with random content: what is read is what was stored, bit for bit, and nobody can write into it."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
from hypothesis import given

import linfed as lf
from linfed.sweeps.store import Store, keys_of
from tests.tables.table_strategies import assert_identical, rows, scalars, words

GIVEN: list = []


@dataclasses.dataclass(frozen=True)
class Gives:
    """A cell that returns the rows of `GIVEN`."""

    name: str
    value: object

    def run(self):
        return GIVEN


@given(st.lists(rows(), max_size=3), words, scalars)
def test_a_stored_cell_is_read_bit_for_bit(tmp_path_factory, rows, name, value):
    store, cell = Store(tmp_path_factory.mktemp("store")), Gives(name, value)
    GIVEN[:] = [{key: one for key, one in row.items() if key not in ("name", "value")} for row in rows]
    first = lf.sweep([cell], store=store)
    again = store.table([cell])
    assert_identical(first, again)
    for table in (first, again):
        assert not any(array.flags.writeable for array in table.payload()[0].values())
    assert keys_of([cell]) == keys_of([Gives(name, value)])
