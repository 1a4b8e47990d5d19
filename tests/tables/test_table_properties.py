"""Operations of tables on random tables do what pandas does."""

from __future__ import annotations

import csv
import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

import linfed as lf
from tests.tables.table_strategies import assert_identical, names, rows

pd = pytest.importorskip("pandas")
NAN = float("nan")
MISSING = "no such column"

values = {
    "n": st.integers(-2, 2) | st.integers(2**62, 2**62 + 1),
    "x.rate": st.sampled_from([0.0, -0.0, 0.5, math.inf, NAN]),
    "s": st.sampled_from(["", "a", "b", "nan"]),
    "maybe": st.none() | st.integers(0, 1),
    "pair": st.tuples(st.integers(0, 1), st.sampled_from([0.5, NAN])),
}
KEYS = list(values)


@st.composite
def keyed_rows(draw):
    """Draw rows of key columns, some of them missing, with an array over trials of its own length."""
    out = []
    for place in range(draw(st.integers(1, 8))):
        present = draw(st.sets(st.sampled_from(KEYS))) if place else KEYS  # each column is in some row
        row = {name: draw(value) for name, value in values.items() if name in present}
        trials = draw(st.integers(1, 3))
        error = draw(st.lists(st.floats(), min_size=trials, max_size=trials))
        out.append(row | {"error": np.array(error), "hit": np.arange(trials) == draw(st.integers(0, 2))})
    return out


def column(rows, name, missing=MISSING):
    """Return a column as a series of Python objects; NaN within tuples is one object, as it is for pandas alone."""
    found = pd.Series(index=range(len(rows)), dtype=object)
    for place, row in enumerate(rows):
        value = row.get(name, missing)
        found.iat[place] = tuple(map(single, value)) if isinstance(value, tuple) else single(value)
    return found


def single(value):
    return NAN if value != value else value


def same_rows(table, rows):
    """Return whether a table has these rows, the very same."""
    return [id(row["error"]) for row in table.rows] == [id(row["error"]) for row in rows]


@given(keyed_rows(), st.sampled_from(KEYS), st.data())
def test_select(rows, name, data):
    wanted = data.draw(st.lists(values[name], max_size=3))
    table = lf.Table(rows)
    rows = table.rows
    mask = column(rows, name).isin([tuple(map(single, v)) if isinstance(v, tuple) else single(v) for v in wanted])
    expected = list(itertools.compress(rows, mask))
    short = name.rpartition(".")[2]
    for kind in (list, np.array) if name in ("n", "x.rate", "s") and wanted else (list,):
        assert same_rows(table.select(**{short: kind(wanted)}), expected)
    for value in wanted[:1]:
        one = column(rows, name).isin([tuple(map(single, value)) if isinstance(value, tuple) else single(value)])
        assert same_rows(table.select(**{short: value}), list(itertools.compress(rows, one)))
        if name in ("n", "x.rate"):
            assert same_rows(table.select(**{short: np.array(value)}), list(itertools.compress(rows, one)))
    second = KEYS[KEYS.index(name) - 1]
    value = data.draw(values[second])
    both = table.select(**{name: wanted, second: value})
    chosen = {id(row["error"]) for row in table.select(**{second: value}).rows}
    assert same_rows(both, [row for row in expected if id(row["error"]) in chosen])


@given(keyed_rows(), st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
def test_groupby_and_unique(rows, chosen):
    table = lf.Table(rows)
    rows = table.rows
    # A row without a column is in the group of None; pandas would put None into the group of NaN.
    keys = pd.DataFrame({name: column(rows, name, None).map(lambda v: MISSING if v is None else v) for name in chosen})
    groups = keys.groupby(chosen, sort=False, dropna=False)
    expected = [(key, [rows[place] for place in part.index]) for key, part in groups]
    found = list(table.groupby(*chosen))
    assert len(found) == len(expected)
    for (key, part), (wanted, members) in zip(found, expected, strict=True):
        assert same_rows(part, members)
        key = key if len(chosen) > 1 else (key,)
        assert repr(key) == repr(
            tuple(
                None if one is MISSING else rows_value(members, name) for one, name in zip(wanted, chosen, strict=True)
            )
        )
    assert len(table.unique(chosen[0])) == len(keys[chosen[0]].unique())


def rows_value(members, name):
    return members[0].get(name)


@given(keyed_rows(), st.booleans())
def test_records_are_exploded_rows(rows, short):
    table = lf.Table(rows)
    frame = pd.DataFrame(rows, dtype=object)
    long = frame.explode(["error", "hit"])
    long.insert(0, "trial", long.groupby(level=0).cumcount())
    found = table.to_records(short=short)
    assert len(found) == len(long)
    for record, (place, line) in zip(found, long.iterrows(), strict=True):
        wanted = {name: np.asarray(line[name]).item() for name in ("trial", "error", "hit")} | {
            name: value for name, value in rows[place].items() if name in values
        }
        shorter = {name.rpartition(".")[2] if short else name: value for name, value in wanted.items()}
        assert {name: repr(value) for name, value in record.items()} == {n: repr(v) for n, v in shorter.items()}
    pd.testing.assert_frame_equal(table.to_pandas(short=short), pd.DataFrame(found))


@given(st.lists(rows(), max_size=3))
def test_records_along_axes_are_stacked_arrays(rows):
    table = lf.Table(rows)
    along = {tuple(v.axes) for row in rows for v in row.values() if isinstance(v, lf.LabeledArray)}
    plain = {name for row in rows for name, v in row.items() if not isinstance(v, lf.LabeledArray)}
    pure = {name for row in rows for name in row} - plain  # a plain value is repeated in the records of its row
    for axes in along:
        wanted = []
        for row in rows:
            arrays = {n: v for n, v in row.items() if isinstance(v, lf.LabeledArray) and tuple(v.axes) == axes}
            for trials in (True, False):
                for name, array in arrays.items():
                    if array.trials is trials and name in pure:
                        labels = [range(len(array.values))] * trials + [array.axes[axis].tolist() for axis in axes]
                        index = pd.MultiIndex.from_product(map(range, map(len, labels)))  # pandas joins 0.0 and -0.0
                        wanted += [
                            (name, *(labels[axis][one] for axis, one in enumerate(place)), value)
                            for place, value in zip(index, array.values.ravel().tolist(), strict=True)
                        ]
        places = [("trial", *axes), axes]
        found = [
            (name, *(record[axis] for axis in places["trial" not in record]), record[name])
            for record in table.to_records(*axes)
            for name in record
            if name in pure
        ]
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))


@given(st.lists(rows(), max_size=3))
def test_csv_files_have_the_records(tmp_path_factory, rows):
    table, path = lf.Table(rows), tmp_path_factory.mktemp("csv") / "table.csv"
    along = list(dict.fromkeys(tuple(v.axes) for row in rows for v in row.values() if isinstance(v, lf.LabeledArray)))
    assume(not any("/" in axis for axes in along for axis in axes))
    written = table.to_csv(path)
    plain = len(written) - len(along)
    for axes, one in zip([()] * plain + along, written, strict=True):
        records = table.to_records(*axes)
        with one.open(encoding="utf-8", newline="") as file:
            head, *lines = csv.reader(file)
        assert set(head) == {name for record in records for name in record}
        wanted = [["" if record.get(name) is None else str(record[name]) for name in head] for record in records]
        assert lines == wanted
        if len(head) > 1:
            frame = pd.read_csv(one, dtype=str, keep_default_na=False, engine="python")
            assert len(frame) == len(records)


@given(st.data(), st.sampled_from(["median", "mean"]))
def test_summaries_are_aggregates(data, statistic):
    keys = data.draw(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab")), min_size=1, unique=True))
    finite = st.floats(-1e6, 1e6, allow_subnormal=False) | st.just(NAN)
    rows = [
        {"n": n, "rule": rule, "error": np.array(data.draw(st.lists(finite, min_size=1, max_size=9)))}
        for n, rule in keys
    ]
    table = lf.Table(rows)
    frame = table.to_pandas()
    worst = frame.assign(error=frame["error"].fillna(math.inf)).groupby(["n", "rule"])["error"]
    expected = worst.quantile(0.5, interpolation="lower") if statistic == "median" else worst.mean()
    lines = table.summarize("error", rows="rule", columns="n", statistic=statistic).to_pandas()
    assert len(lines) == len(keys)
    for line in lines.to_dict("records"):
        wanted = expected[line["n"], line["rule"]]
        assert line["estimate"] == wanted or line["estimate"] == pytest.approx(wanted, rel=1e-12, abs=1e-9)
        assert line["low"] <= line["estimate"] <= line["high"]
        errors = frame[(frame["n"] == line["n"]) & (frame["rule"] == line["rule"])]["error"]
        assert (line["trials"], line["diverged"]) == (len(errors), errors.isna().sum())


@given(st.lists(st.dictionaries(names, st.integers(), max_size=5), max_size=4))
def test_short_names_are_unique_and_have_the_values(rows):
    table = lf.Table(rows)
    for long, short in zip(table.to_records(), table.to_records(short=True), strict=True):
        assert list(long.values()) == list(short.values())
        assert all(name == brief or name.endswith(f".{brief}") for name, brief in zip(long, short, strict=True))


@given(st.lists(rows(), max_size=4))
def test_a_saved_table_is_loaded_bit_for_bit(tmp_path_factory, rows):
    table, path = lf.Table(rows), tmp_path_factory.mktemp("table") / "t\u00e4ble.npz"
    assert table.save(path) == path
    loaded = lf.Table.load(path)
    assert_identical(table, loaded)
    assert loaded.columns == table.columns
    assert [path.name] == [one.name for one in path.parent.iterdir()]
