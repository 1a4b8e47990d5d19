"""Samples from tables: columns of sites and categories, missing values, and the forms in which tables come."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal

SITES = np.array(["north", "east", "south"])[np.arange(30) % 3]
TABLE = {
    "site": SITES,
    "x": np.arange(30.0),
    "wind": np.array(["N", "S", "NW", "calm", "S"] * 6),
    "kind": np.array([1, 2, 2] * 10),
    "y": 3 * np.arange(30.0) + 100,
}


class Frame:
    """A table with the interface that a DataFrame shares with others: `columns`, and columns by name."""

    def __init__(self, table):
        self.columns, self._table = list(table), table

    def __getitem__(self, name):
        return self._table[name]


def structured(table):
    """Return a structured array, as `np.genfromtxt` reads from a CSV file with names."""
    array = np.empty(30, dtype=[(name, np.asarray(values).dtype) for name, values in table.items()])
    for name, values in table.items():
        array[name] = values
    return array


def lists(table):
    """Return a mapping of lists."""
    return {name: list(values) for name, values in table.items()}


FORMS = {"mapping": dict, "frame": Frame, "structured array": structured, "lists": lists}
OPTIONS = {"y": "y", "clients": "site", "categories": ["wind", "kind"], "test_share": 0.2, "trials": 2, "seed": 4}


def rows_of(data, trial, client):
    count = int(data.counts[client])
    return data.X[trial, client, :count], data.y[trial, client, :count]


@pytest.mark.parametrize("form", FORMS)
def test_rows_belong_to_their_sites_and_categories_become_features(form):
    data = lf.GivenSamples.from_table(FORMS[form](TABLE), **OPTIONS, intercept=False, scale=False)
    assert data.client_names == ("east", "north", "south")
    assert data.preparation.titles == ("x", "wind=N", "wind=NW", "wind=S", "wind=calm", "kind=1", "kind=2")
    levels = [("wind", level) for level in ("N", "NW", "S", "calm")] + [("kind", 1), ("kind", 2)]
    for trial in range(2):
        seen = []
        for client, site in enumerate(data.client_names):
            parts = [rows_of(part, trial, client) for part in (data, data.test)]
            assert [len(y) for _, y in parts] == [8, 2]
            for X, y in parts:
                number = X[:, 0].astype(int)
                assert (SITES[number] == site).all()
                assert np.array_equal(y, TABLE["y"][number])
                wanted = np.column_stack([TABLE[name][number] == level for name, level in levels])
                assert np.array_equal(X[:, 1:], wanted.astype(float))
                seen += number.tolist()
        assert sorted(seen) == list(range(30))


def test_a_table_is_prepared_by_default_and_an_array_too():
    data = lf.GivenSamples.from_table(TABLE, **OPTIONS)
    assert (data.preparation.intercept, data.preparation.scale) == (True, True)
    np.testing.assert_allclose(np.sum(data.X**2, axis=(1, 2)) / 24, 1.0, rtol=1e-12)
    flat = lf.GivenSamples.from_table(TABLE["x"][:, None], TABLE["y"], SITES, trials=2, seed=4)
    alone = lf.GivenSamples.from_table(
        {name: TABLE[name] for name in ("x", "y", "site")}, "y", "site", trials=2, seed=4
    )
    assert np.array_equal(flat.X, alone.X)
    assert flat.client_names == alone.client_names


def test_a_level_that_no_training_row_has_is_zero():
    table = TABLE | {"wind": np.array(["N"] * 29 + ["storm"])}
    for seed in range(20):
        for prepared in (False, True):
            data = lf.GivenSamples.from_table(table, **OPTIONS | {"seed": seed}, intercept=prepared, scale=prepared)
            titles = [data.preparation.titles[i] for i in data.preparation.kept]
            for trial in range(2):
                in_training = 29.0 in numbers_of(data, trial, prepared)
                if "wind=storm" in titles:
                    assert data.test.X[trial, ..., titles.index("wind=storm")].any() <= in_training
                    assert data.X[trial, ..., titles.index("wind=storm")].any() == in_training
                else:
                    assert not in_training


def numbers_of(data, trial, prepared):
    """Return the numbers of the training rows of a trial."""
    if not prepared:
        return set(data.X[trial, ..., 0].ravel())
    preparation = data.preparation
    rows = data.X[trial, ..., 0] / preparation.factor[trial, 0] + preparation.x_mean[trial, :, None, 0]
    return set(np.round(rows.ravel(), 6))


NAMES = ([3, 7, 7, 3, -1, -1], [1.5, 2.5, 2.5, 1.5, 9.0, 9.0], ["b", "a", "a", "b", "d", "c"], [1, "a", "a", 1, 2, 2])


@pytest.mark.parametrize("names", NAMES)
def test_names_of_clients_are_values_of_any_type(names):
    kinds = {type(name) for name in names}
    values, X = np.array(names, dtype=object if len(kinds) > 1 else None), np.arange(12.0).reshape(6, 2)
    data = lf.GivenSamples.split(X, np.zeros(6), values, test_share=0)
    expected = sorted(set(names)) if len(kinds) == 1 else list(dict.fromkeys(names))
    assert list(data.client_names) == expected
    for client, name in enumerate(expected):
        rows = [row for row, one in enumerate(names) if one == name]
        assert sorted(data.X[0, client, : int(data.counts[client]), 0]) == [2.0 * row for row in rows]
    numbers = [[expected.index(name) for name in names]]
    assert np.array_equal(data.X, lf.GivenSamples.split(X, np.zeros(6), numbers, test_share=0).X)


def test_classes_of_any_type():
    data = lf.GivenClasses.from_table(TABLE, "wind", "site", categories=["kind"], test_share=0.2)
    assert (data.n_classes, data.class_names, data.test.n_classes) == (4, ("N", "NW", "S", "calm"), 4)
    result = lf.simulate(lf.FedAvg(step_size=0.1), data=data, n_rounds=2)
    found = result.predictions(TABLE)
    assert found.shape == (1, 30)
    assert set(found.ravel()) <= set(data.class_names)
    assert data.hold_out(0.2).class_names == data.class_names
    call = lambda: lf.GivenClasses.from_table(TABLE, "wind", "site", categories=["kind"], intercept=False)  # noqa: E731
    assert_one_line(call, ["intercept = False", "biases"])


def test_cells_of_a_matlab_file_are_lists():
    parts = [normal(m, 4, seed=m) for m in (9, 12, 15)]
    X, y, column = (np.empty((1, 3), dtype=object) for _ in range(3))
    for i, rows in enumerate(parts):
        X[0, i], y[0, i], column[0, i] = rows, rows[:, 0], rows[:, :1]
    wanted = lf.GivenSamples(parts, [rows[:, 0] for rows in parts])
    for labels in (y, column, y[0]):
        data = lf.GivenSamples(X[0], labels, test=(X, labels))
        for part in (data, data.test):
            assert np.array_equal(part.X, wanted.X)
            assert np.array_equal(part.y, wanted.y)


MISSING = np.array([np.nan, *range(29)])
HOLES = {
    "wind": np.array(["", None] * 15, dtype=object),
    "y": MISSING,
    "site": np.ma.array(SITES, mask=[1] * 3 + [0] * 27),
}
WRONG = {
    "missing numbers": (
        lambda: lf.GivenSamples.from_table(TABLE | {"x": MISSING}, **OPTIONS),
        ["table has 1 missing value (1 in 'x')", "dropna()", "fillna("],
    ),
    "missing texts, labels and sites": (
        lambda: lf.GivenSamples.from_table(TABLE | HOLES, **OPTIONS),
        ["table has 34 missing values (30 in 'wind', 1 in 'y', 3 in 'clients')"],
    ),
    "a text that is no category": (
        lambda: lf.GivenSamples.from_table(TABLE, "y", "site", categories=["kind"]),
        ["table['wind'] holds 'N', which is not a number", "categories="],
    ),
    "an unknown column of labels": (lambda: lf.GivenSamples.from_table(TABLE, "z", "site"), ["y = 'z'", "'wind'"]),
    "a mistyped column": (lambda: lf.GivenSamples.from_table(TABLE, "y", "sites"), ["clients = 'sites'", "'site'?"]),
    "an unknown category": (
        lambda: lf.GivenSamples.from_table(TABLE, "y", "site", categories=["winds"]),
        ["categories contains 'winds' (did you mean 'wind'?)", "must name features"],
    ),
    "labels of another length": (
        lambda: lf.GivenSamples.from_table(TABLE, np.ones(5), "site"),
        ["y has shape (5,)", "(30,)"],
    ),
    "no features": (lambda: lf.GivenSamples.from_table({"y": [1.0, 2.0], "site": "ab"}, "y", "site"), ["table"]),
    "columns of other lengths": (
        lambda: lf.GivenSamples.from_table({"x": [1.0], "y": [1.0, 2.0], "s": [1, 2]}, "y", "s"),
        ["table has columns of different lengths"],
    ),
    "nothing held out": (
        lambda: lf.GivenSamples.from_table(TABLE, **OPTIONS | {"test_share": 0.01}),
        ["test_share = 0.01 holds out no sample"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tables_are_refused_in_one_line(name):
    assert_one_line(*WRONG[name])


@pytest.mark.long
def test_a_data_frame_with_values_of_its_own_kinds():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE).astype({"wind": "category", "kind": "Int64", "site": "string"})
    wanted = lf.GivenSamples.from_table(TABLE, **OPTIONS)
    found = lf.GivenSamples.from_table(frame, **OPTIONS)
    assert np.array_equal(found.X, wanted.X)
    assert found.client_names == wanted.client_names
    frame.loc[3, "kind"] = pandas.NA
    frame.loc[[4, 5], "wind"] = None
    assert_one_line(
        lambda: lf.GivenSamples.from_table(frame, **OPTIONS), ["3 missing values (2 in 'wind', 1 in 'kind')"]
    )
    whole = lf.GivenSamples.from_table(frame.dropna(), **OPTIONS)
    assert whole.counts.sum() + whole.test.counts.sum() == 27
    assert lf.GivenSamples.split(frame[["x"]], frame["y"], frame["site"]).client_names == wanted.client_names


def test_a_column_may_be_named_by_a_number_or_text_of_numpy():
    rows = np.column_stack([TABLE["x"], np.arange(30) % 3, TABLE["y"]])
    plain = lf.GivenSamples.from_table(rows, 2, 1, seed=4)
    assert np.array_equal(lf.GivenSamples.from_table(rows, np.int64(2), np.int8(1), seed=4).X, plain.X)
    named = {name: TABLE[name] for name in ("x", "y", "site")}
    one, other = (lf.GivenSamples.from_table(named, kind("y"), kind("site"), seed=4) for kind in (str, np.str_))
    assert np.array_equal(one.X, other.X)
