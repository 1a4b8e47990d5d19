"""Tables as records, CSV files, pandas frames, xarray datasets, text and HTML, with a warning of diverged trials."""

import sys

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, normal


@pytest.fixture
def diverged():
    """Two rows, of whose five trials two and none diverged, with curves and one number per trial."""
    rows = []
    for rule, lost in (("a", 2), ("b", 0)):
        is_lost = np.arange(5) < lost
        risk = np.where(is_lost[:, None], np.nan, normal(5, 3))
        status = np.where(is_lost, "DIVERGED", "COMPLETED")
        rows.append(
            {"rule": rule, "status": status, "risk": lf.LabeledArray(risk, round=[0, 1, 2]), "last": risk[:, -1]}
        )
    return lf.Table(rows)


# --- records and CSV -------------------------------------------------------------------------------------------------


def test_records_have_an_entry_per_row_and_trial(table):
    records = table.to_records()
    assert len(records) == 4 * 2
    assert records[1] == {
        **{"size": 3, "low": 0, "inner": "Inner", "inner.rate": 0.5, "sizes": (1, 2)},
        **{"trial": 1, "error": 1.5},
    }
    assert lf.Table([{}, {}]).to_records() == [{}, {}]


def test_records_along_an_axis_have_what_differs_and_the_words_of_a_trial(table, diverged):
    values = normal(2, 3)
    assert table.to_records("round")[4] == {"size": 3, "inner.rate": 0.5, "trial": 1, "round": 1, "path": values[1, 1]}
    assert len(table.to_records("round")) == 4 * 2 * 3
    assert list(diverged.to_records("round")[0]) == ["rule", "trial", "round", "status", "risk"]


def test_records_along_axes_without_trials():
    columns = {"score": [0.3, 0.1], "tried": [1.0, 2.0]}
    table = lf.Table([{"m": 5} | {name: lf.LabeledArray(values, setting=[0, 1]) for name, values in columns.items()}])
    assert table.to_records("setting") == [
        {"setting": 0, "score": 0.3, "tried": 1.0},
        {"setting": 1, "score": 0.1, "tried": 2.0},
    ]
    assert table.to_records() == [{"m": 5}]
    assert_one_line(lambda: table.to_records("round"), ["('round',)", "('setting',)"], KeyError)
    along = lf.Table([{"score": lf.LabeledArray([0.3], setting=[0])}])
    assert_one_line(along.to_records, ["requires the name of an axis", "to_records('setting')"])


def test_a_csv_file_has_the_records_and_each_axis_another(table, tmp_path):
    written = table.to_csv(tmp_path / "t.csv")
    assert [path.name for path in written] == ["t.csv", "t-round.csv"]
    lines = written[0].read_text().splitlines()
    assert lines[0] == "size,low,inner,inner.rate,sizes,trial,error"
    assert lines[1:3] == ['3,0,Inner,0.5,"(1, 2)",0,1.5', '3,0,Inner,0.5,"(1, 2)",1,1.5']
    assert len(lines) == 1 + 4 * 2
    lines = written[1].read_text().splitlines()
    assert lines[0] == "size,inner.rate,trial,round,path"  # what all rows share is in the other file
    assert lines[1 + 4].split(",")[:4] == ["3", "0.5", "1", "1"]
    assert float(lines[1 + 4].split(",")[-1]) == normal(2, 3)[1, 1]
    assert len(lines) == 1 + 4 * 2 * 3
    (path,) = lf.Table([{}]).to_csv(tmp_path / "empty")
    assert path.read_text().strip() == ""


def test_two_axes_are_not_written_to_one_file(tmp_path):
    both = {"p": lf.LabeledArray(np.ones((2, 2)), a=[0, 1], b=[0, 1]), "q": lf.LabeledArray([1.0], **{"a-b": [0]})}
    assert_one_line(lambda: lf.Table([both]).to_csv(tmp_path / "t"), ["t-a-b.csv", "('a', 'b')", "('a-b',)"])
    assert list(tmp_path.iterdir()) == []


def test_short_names_are_the_last_parts_unless_two_columns_share_one(table, tmp_path):
    rows = table.to_records(short=True)
    assert list(rows[0]) == ["size", "low", "inner", "rate", "sizes", "trial", "error"]
    assert [row["rate"] for row in rows] == [row["inner.rate"] for row in table.to_records()]
    both = lf.Table([{"a.n": 1, "b.n": 2, "c.r": 3, "d.trial": 4, "p": lf.LabeledArray([0.5], r=[7]), "e.x.y": 5}])
    assert list(both.to_records(short=True)[0]) == ["a.n", "b.n", "c.r", "d.trial", "y"]
    path = table.to_csv(tmp_path / "a", short=True)[0]
    assert path.read_text().startswith("size,low,inner,rate,")


# --- pandas and xarray -----------------------------------------------------------------------------------------------


def test_pandas_has_the_records(table):
    pandas = pytest.importorskip("pandas")
    for short in (True, False):
        pandas.testing.assert_frame_equal(
            table.to_pandas("round", short=short), pandas.DataFrame(table.to_records("round", short=short))
        )
    with pytest.warns(UserWarning, match=r"columns along round are left out: path; to_pandas\('round'\)") as caught:
        assert "path" not in table.to_pandas()
    assert caught[0].filename == __file__


def test_xarray_has_the_columns_of_its_index_as_coordinates(table):
    pytest.importorskip("xarray")
    for index in ("inner.rate", "rate"):  # an index has the name that it was given
        data = table.to_xarray("size", index, short=True)
        assert dict(data.sizes) == {"size": 2, index: 2, "trial": 2, "round": 3}
    assert data["error"].sel(size=4, rate=2.0).values.tolist() == [8.0, 8.0]
    two = table.select(size=3, rate=0.5) + table.select(size=4, rate=2.0)
    for short, name in ((True, "rate"), (False, "inner.rate")):
        assert set(two.to_xarray("size", short=short)) == {"error", "path", name}
    before = table["error"]
    table.to_xarray("size", "rate")["error"].values[:] = 0
    table.select(size=3, rate=0.5).to_xarray()["error"].values[:] = 0
    assert np.array_equal(table["error"], before)


def test_rows_that_an_index_does_not_tell_apart_are_no_dataset():
    pytest.importorskip("xarray")
    settings = [("a", 1.0), ("b", 2.0), ("a", 3.0)]
    table = lf.Table([{"h": h, "t": "same", "s": s, "e": lf.LabeledArray([s, s], r=[0, 1])} for h, s in settings])
    assert_one_line(lambda: table.to_xarray("h"), ["rows 0 and 2 have h = 'a'"])
    assert_one_line(table.to_xarray, ["rows 0 and 1 have no index"])
    data = table.select(s=[1.0, 2.0]).to_xarray("h")
    assert data["s"].sel(h="b") == 2.0
    assert data["e"].sel(h="a").values.tolist() == [1.0, 1.0]


def test_frames_and_datasets_mark_diverged_trials_and_warn(diverged):
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    for made in (lambda: diverged.to_pandas("round"), lambda: diverged.to_xarray("rule")):
        with pytest.warns(lf.DivergenceWarning, match="2 of 10 trials diverged, in 1 of 2 rows.* skip NaN") as caught:
            data = made()
        assert caught[0].filename == __file__
        assert (np.asarray(data["status"]) == "DIVERGED").sum() in (2, 2 * 3)
    diverged.select(rule="b").to_pandas("round")  # a warning would be an error
    with pytest.warns(UserWarning, match="columns along round are left out") as caught:
        assert len(diverged.to_pandas()) == 10
    assert [one.category for one in caught] == [UserWarning]


@pytest.mark.parametrize("package", ["pandas", "xarray"])
def test_a_missing_package_is_named(package, table, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    call = getattr(table, f"to_{package}")
    assert_one_line(call, [f"to_{package}()", f"requires {package}", "linfed[tables]"], ImportError)


# --- text and HTML ---------------------------------------------------------------------------------------------------


def test_a_notebook_shows_what_varies_as_medians(table):
    html, text = table._repr_html_(), str(table)
    assert [f"<th>{name}</th>" in html for name in ("size", "inner.rate", "low")] == [True, True, False]
    assert "4 rows" in html
    assert "The same in all rows: low = 0; inner = Inner" in html
    head, names, first, *_ = text.splitlines()
    assert head == repr(table)
    assert "size, inner.rate, error, path" in head
    assert names.split() == ["size", "inner.rate", "error", "path"]
    assert first.split() == ["3", "0.5", "1.5", f"{np.sort(normal(2, 3)[:, -1])[0]:.4g}"]
    assert all(f"<td>{value}</td>" in html for value in first.split())


def test_twenty_rows_are_shown():
    many = lf.Table([{"n": n, "<b>": "<i>", "hit": np.array([n > 5, True])} for n in range(100)])
    html = many._repr_html_()
    assert html.count("<tr>") == 21
    assert "100 rows, the first 20 shown" in html
    assert "The same in all rows: &lt;b&gt; = &lt;i&gt;" in html
    assert "<td>2 of 2</td>" in html
    assert str(many).splitlines()[-1] == "80 more rows"
    few = lf.Table(many.rows[:20])
    assert "first 20" not in few._repr_html_()
    assert "more" not in str(few)


def test_one_row_is_shown_in_a_few_lines():
    row = {"a": 1, "b": np.array([3.0, 5.0, 7.0]), "c": lf.LabeledArray([1.0, 2.0], r=[0, 1]), "d": 0.25}
    row |= {"e": np.array(["x", "y", "x"]), "f.part": 3, "g": "", "h": None, "i": np.full(3, np.nan)}
    table = lf.Table([row])
    assert str(table).splitlines() == ["<Table of 1 row, 9 columns>", "a = 1, b = 5, d = 0.25, e = 2 x, 1 y, i = nan"]
    html = table._repr_html_()
    places = [html.index(text) for text in (">a<", ">1<", ">b<", ">5<", ">c<", ">2 values<", ">e<", ">2 x, 1 y<")]
    assert places == sorted(places)


def test_empty_arrays_and_tables_are_shown_as_such():
    assert "empty" in lf.Table([{"a": np.zeros(0)}, {"a": np.zeros(0)}])._repr_html_()
    assert "0 rows" in lf.Table()._repr_html_()


def test_a_notebook_and_a_file_count_diverged_trials(diverged, tmp_path):
    assert "3 COMPLETED, 2 DIVERGED" in diverged._repr_html_()
    heading, *lines = diverged.to_csv(tmp_path / "t")[0].read_text().splitlines()
    place = heading.split(",").index("status")
    assert [line.split(",")[place] for line in lines] == ["DIVERGED"] * 2 + ["COMPLETED"] * 8


def test_the_index_of_a_dataset_has_one_number_or_text_in_each_row():
    pytest.importorskip("xarray")
    table = lf.Table([{"n": n, "error": np.ones(3) * n} for n in (1, 2)])
    assert_one_line(lambda: table.to_xarray("error"), ["column 'error' contains arrays"], KeyError)
    some = table + lf.Table([{"error": np.ones(3)}])
    assert_one_line(lambda: some.to_xarray("n"), ["some rows have no column 'n'"])
