"""Grids of cells, the tables they fill, sweeps, and figures from tables."""

import enum
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed.claims.caveats import diverged_note, edge_note, unsettled_note
from linfed.errors import UsageError
from linfed.plotting.panels import bars, heat_map, level, median_level, place, steps
from linfed.reproduction.own_settings import with_settings
from linfed.system.description import describe, rebuild
from tests.helpers import assert_one_line, normal

# --- grids ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    rate: float = 1.0
    name: str = "a"


@dataclass(frozen=True)
class Outer:
    size: int = 3
    low: int = 0
    inner: Inner = Inner()
    sizes: tuple[int, ...] = (1, 2)

    def __post_init__(self):
        if self.low > self.size:
            raise ValueError(f"low = {self.low} must be at most size = {self.size}")

    def run(self):
        return {
            "error": np.full(2, self.size * self.inner.rate),
            "path": lf.LabeledArray(normal(2, 3), round=[0, 1, 2]),
        }


def test_grid_has_the_last_axis_fastest():
    found = lf.grid(Outer(), size=(3, 4), **{"inner.rate": (0.1, 0.2)})
    assert [(one.size, one.inner.rate) for one in found] == [(3, 0.1), (3, 0.2), (4, 0.1), (4, 0.2)]
    assert all(one.inner.name == "a" for one in found)
    assert lf.grid(Outer()) == [Outer()]
    assert lf.grid(Outer(), size=range(3, 5)) == lf.grid(Outer(), size=np.array([3, 4])) == [Outer(3), Outer(4)]


def test_fields_with_commas_go_together_and_change_at_once():
    found = lf.grid(Outer(), **{"size, low, inner.name": [(2, 2, "x"), (9, 7, "y")]})
    assert [(one.size, one.low, one.inner.name) for one in found] == [(2, 2, "x"), (9, 7, "y")]
    assert lf.grid(Outer(), size=(9,), low=(9,)) == [Outer(size=9, low=9)]  # though low alone would raise
    assert lf.grid(Outer(), **{"inner": (Inner(2.0),), "inner.name": ("z",)})[0].inner == Inner(2.0, "z")


@pytest.mark.parametrize(
    ("base", "axes", "fragments", "error"),
    [
        (Outer(), {"siez": (1,)}, ["'siez'", "Outer has no field", "did you mean 'size'"], ValueError),
        (Outer(), {"inner.rat": (1,)}, ["'inner.rat'", "Inner has no field 'rat'", "did you mean 'rate'"], ValueError),
        (Outer(), {"size.x": (1,)}, ["size = 3 must be a dataclass"], TypeError),
        (Outer(), {"size": ()}, ["size must have at least one value"], ValueError),
        (Outer(), {"size": 3}, ["size = 3 must be a sequence of values, e.g. size=(3,)"], TypeError),
        (Outer(), {"inner.name": "abc"}, ["inner.name = 'abc' must be a sequence"], TypeError),
        (Outer(), {"size, low": [(1, 2, 3)]}, ["'size, low' names 2 fields", "(1, 2, 3)"], ValueError),
        (Outer(), {"size, low": [3]}, ["'size, low' names 2 fields"], ValueError),
        ({"size": 3}, {"size": (1,)}, ["base = {'size': 3}", "dataclass"], TypeError),
        (Outer, {"size": (1,)}, ["base = ", "dataclass"], TypeError),
        (Outer(), {"low": (5,)}, ["low = 5 must be at most size = 3"], ValueError),
    ],
)
def test_grids_that_cannot_be_meant(base, axes, fragments, error):
    assert_one_line(lambda: lf.grid(base, **axes), fragments, error)


# --- tables --------------------------------------------------------------------------------------------------


@pytest.fixture
def table():
    return lf.sweep(lf.grid(Outer(), size=(3, 4), **{"inner.rate": (0.5, 2.0)}))


def test_a_row_has_the_fields_and_what_was_measured(table):
    assert table.columns == ("size", "low", "inner", "inner.rate", "inner.name", "sizes", "error", "path")
    assert len(table) == 4
    assert table["size"].tolist() == [3, 3, 4, 4]
    assert table["rate"].tolist() == table["inner.rate"].tolist() == [0.5, 2.0] * 2
    assert table["inner"].tolist() == ["Inner"] * 4
    assert table.rows[0]["sizes"] == (1, 2)
    assert table["error"].shape == (4, 2)
    assert table["path"].shape == (4, 2, 3)
    assert table["round"].tolist() == [0, 1, 2]
    (one,) = table.select(size=4, rate=2.0)
    assert one["error"].tolist() == [8.0, 8.0]
    assert one["size"] == 4


def test_rows_are_chosen_by_value(table):
    assert table.select(size=[3, 4], rate=0.5)["size"].tolist() == [3, 4]
    assert table.select(sizes=(1, 2))["size"].tolist() == [3, 3, 4, 4]
    assert len(table.select(size=5)) == 0
    assert table.unique("rate") == [0.5, 2.0]
    assert [(key, part["size"].tolist()) for key, part in table.groupby("rate")] == [(0.5, [3, 4]), (2.0, [3, 4])]
    assert [key for key, _ in table.groupby("size", "rate")] == [(3, 0.5), (3, 2.0), (4, 0.5), (4, 2.0)]
    assert (table.select(size=4) + table.select(size=3))["size"].tolist() == [4, 4, 3, 3]
    twice = table.assign(double=lambda row: 2 * row["size"], mean=lambda row: row["error"].mean())
    assert twice["double"].tolist() == [6, 6, 8, 8]
    assert twice["mean"].tolist() == [1.5, 6.0, 2.0, 8.0]


def test_rows_of_different_columns_stand_in_one_table():
    table = lf.Table([{"a": 1, "x": 2.0}, {"a": 2, "y": "w"}])
    assert table.select(x=2.0)["a"] == 1
    assert table.select(y="w")["a"] == 2
    assert [key for key, _ in table.groupby("y")] == [None, "w"]
    with pytest.raises(ValueError, match="some rows have no column 'x'"):
        table["x"]


def test_what_a_table_does_not_have(table):
    assert_one_line(lambda: table["eror"], ["'eror'", "did you mean 'error'", "'size'"], KeyError)
    assert_one_line(lambda: table.select(siz=3), ["'siz'", "did you mean 'size'"], KeyError)
    assert_one_line(lambda: table.select(round=3), ["'round' is an axis"], KeyError)
    assert_one_line(lambda: table.select(size=5)["error"], ["empty table", "'error'"], ValueError)
    assert_one_line(lambda: table.select(error=1.5), ["'error' contains arrays"], KeyError)
    assert_one_line(lambda: list(table.groupby("path")), ["'path' contains arrays"], KeyError)
    two = lf.Table([{"a.x": 1, "b.x": 2}])
    assert_one_line(lambda: two["x"], ["'x' may be 'a.x' or 'b.x'"], KeyError)
    ragged = lf.Table([{"e": lf.LabeledArray(normal(2, n), round=range(n))} for n in (2, 3)])
    assert_one_line(lambda: ragged["e"], ["'e' has a different shape in some rows"], ValueError)
    assert_one_line(lambda: ragged["round"], ["different labels along 'round'"], ValueError)


def test_values_that_no_row_holds():
    assert_one_line(
        lambda: lf.Table([{"x": normal(2, 3)}]), ["x must have shape (trials,)", "(2, 3)", "lf.LabeledArray"], TypeError
    )
    assert_one_line(lambda: lf.Table([{"x": normal(2), "y": normal(3)}]), ["x 2 and y 3", "lf.LabeledArray"])
    two = {name: lf.LabeledArray(normal(2, 2), round=[0, last]) for name, last in (("x", 1), ("y", 2))}
    assert_one_line(lambda: lf.Table([two]), ["y must have the same labels along 'round'"])
    assert_one_line(lambda: lf.Table([{"x": object()}]), ["x = <object", "lf.LabeledArray"], TypeError)
    for values, axes in ((normal(2, 3), {"round": [0, 1]}), (normal(2), {}), (normal(2, 3, 4), {"round": range(4)})):
        assert_one_line(
            lambda values=values, axes=axes: lf.LabeledArray(values, **axes), [f"shape {values.shape}"], ValueError
        )


def test_numbers_of_numpy_are_plain():
    row = lf.Table([{"a": np.float64(0.5), "b": np.array(3), "c": np.bool_(True), "d": (np.int64(1), [2.0])}]).rows[0]
    assert row == {"a": 0.5, "b": 3, "c": True, "d": (1, (2.0,))}
    assert [type(value) for value in row.values()] == [float, int, bool, tuple]


def test_a_file_of_something_else_is_no_table(tmp_path):
    run = lf.simulate(
        lf.LocalOnly(), lf.SharedRepresentation(n_clients=3, dim=4, rank=2), data=lf.FixedSamples(5), rounds=1
    )
    assert_one_line(lambda: lf.Table.load(run.save(tmp_path / "run.npz")), ["run.npz", "must be a table"], ValueError)
    (tmp_path / "torn.npz").write_bytes(b"PK")
    assert_one_line(lambda: lf.Table.load(tmp_path / "torn.npz"), ["torn.npz"], ValueError)


def test_csv_has_a_row_per_trial_and_a_file_per_axis(tmp_path, table):
    written = table.to_csv(tmp_path / "t.csv")
    assert [path.name for path in written] == ["t.csv", "t-round.csv"]
    lines = written[0].read_text().splitlines()
    assert lines[0] == "size,low,inner,inner.rate,inner.name,sizes,trial,error"
    assert lines[1:3] == ['3,0,Inner,0.5,a,"(1, 2)",0,1.5', '3,0,Inner,0.5,a,"(1, 2)",1,1.5']
    assert len(lines) == 1 + 4 * 2
    lines = written[1].read_text().splitlines()
    assert lines[0] == "size,inner.rate,trial,round,path"  # what all rows share is in the other file
    assert len(lines) == 1 + 4 * 2 * 3
    values = normal(2, 3)
    assert float(lines[1 + 4].split(",")[-1]) == values[1, 1]
    assert lines[1 + 4].split(",")[:4] == ["3", "0.5", "1", "1"]


def test_records_along_axes_without_trials():
    table = lf.Table(
        [
            {
                "m": 5,
                "score": lf.LabeledArray([0.3, 0.1], setting=[0, 1]),
                "tried": lf.LabeledArray([1.0, 2.0], setting=[0, 1]),
            }
        ]
    )
    assert table.to_records("setting") == [
        {"setting": 0, "score": 0.3, "tried": 1.0},
        {"setting": 1, "score": 0.1, "tried": 2.0},
    ]
    assert table.to_records() == [{"m": 5}]


@pytest.mark.long
def test_pandas_and_xarray(table):
    pandas = pytest.importorskip("pandas")
    frame = table.to_pandas("round")
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 4 * 2 * 3
    with pytest.warns(UserWarning, match=r"^columns along round are left out: path; to_pandas\('round'\) h") as caught:
        assert "path" not in table.to_pandas()
    assert caught[0].filename == __file__
    pytest.importorskip("xarray")
    data = table.to_xarray("size", "rate")
    assert dict(data.sizes) == {"size": 2, "rate": 2, "trial": 2, "round": 3}
    assert data["error"].sel(size=4, rate=2.0).values.tolist() == [8.0, 8.0]


def test_short_names_of_columns_where_they_tell(table):
    rows = table.to_records(short=True)
    assert list(rows[0]) == ["size", "low", "inner", "rate", "name", "sizes", "trial", "error"]
    assert [row["rate"] for row in rows] == [row["inner.rate"] for row in table.to_records()]
    assert table.to_records()[0]["inner.name"] == "a"  # as ever
    both = lf.Table([{"a.n": 1, "b.n": 2, "c.r": 3, "d.trial": 4, "p": lf.LabeledArray([0.5], r=[7]), "e.x.y": 5}])
    assert list(both.to_records(short=True)[0]) == ["a.n", "b.n", "c.r", "d.trial", "y"]


@pytest.mark.long
def test_short_names_outside(table, tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("xarray")
    assert {"rate", "path"} < set(table.to_pandas("round", short=True))
    assert {"inner.rate", "path"} < set(table.to_pandas("round"))
    for index in ("inner.rate", "rate"):  # an index has the name that it was given
        assert dict(table.to_xarray("size", index, short=True).sizes) == {"size": 2, index: 2, "trial": 2, "round": 3}
    two = table.select(size=3, rate=0.5) + table.select(size=4, rate=2.0)
    assert [set(two.to_xarray("size", short=short)) - {"error", "path"} for short in (True, False)] == [
        {"rate"},
        {"inner.rate"},
    ]
    (path, _) = table.to_csv(tmp_path / "a", short=True)
    assert path.read_text().startswith("size,low,inner,rate,")


def test_a_notebook_shows_what_varies(table):
    html = table._repr_html_()
    assert [name in html for name in ("<th>size</th>", "<th>inner.rate</th>", "<th>low</th>")] == [True, True, False]
    assert "<td>1.5</td>" in html
    assert "4 rows" in html
    many = lf.Table([{"n": n, "<b>": "<i>", "hit": np.array([n > 5, True])} for n in range(100)])
    html = many._repr_html_()
    assert html.count("<tr>") == 21
    assert "100 rows, the first 20 shown" in html
    assert "The same in all rows: &lt;b&gt; = &lt;i&gt;" in html
    assert "2 of 2" in html
    assert "size, inner.rate, error, path" in repr(table)
    head, names, first, *_ = str(table).splitlines()
    assert head == repr(table)
    assert names.split() == ["size", "inner.rate", "error", "path"]
    assert first.split()[:3] == ["3", "0.5", "1.5"]
    assert all(f"<td>{value}</td>" in table._repr_html_() for value in first.split())
    assert str(many).splitlines()[-1] == "80 more rows"
    assert str(many.select(n=0)).splitlines()[1:] == ["n: 0", "<b>: <i>", "hit: 1 of 2"]


# --- runs and sweeps -----------------------------------------------------------------------------------------

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5, init="random"),
    problem=lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.1),
    data=lf.FreshSamples(n_samples=6),
    rounds=12,
    trials=3,
    seed=5,
    participation=0.5,
    record_every=4,
)
STEPS = (0.1, 0.3, 1.0, 3.0, 10.0)
TUNED = lf.Tuned(base=RUN.algorithm, grid={"step_size": STEPS}, trials=4)


def test_a_run_is_simulate_with_its_arguments():
    result = lf.simulate(
        RUN.algorithm,
        RUN.problem,
        data=RUN.data,
        rounds=12,
        trials=3,
        seed=5,
        participation=0.5,
        record_every=4,
    )
    (row,) = lf.sweep([RUN])
    for name, values in result.metrics.items():
        assert row[name].tobytes() == values.tobytes()
    assert row["round"].tolist() == [0, 4, 8, 12]
    assert (row["participants"], row["engine"], row["trials"]) == (10, result.engine, 3)
    assert row["diverged"].tolist() == [False] * 3
    assert (row["problem.n_clients"], row["n_samples"], row["step_size"], row["algorithm"]) == (20, 6, 0.5, "FedRep")
    assert RUN.simulate().metrics["risk"].tobytes() == result.metrics["risk"].tobytes()


def test_a_run_may_have_the_name_of_its_method(tmp_path):
    steps = {"small steps": 0.1, "large steps": 0.5}
    axis = [(name, replace(RUN.algorithm, step_size=step)) for name, step in steps.items()]
    cells = lf.grid(RUN, **{"name, algorithm": axis, "problem.n_clients": (10, 20)})
    table = lf.sweep(cells, store=tmp_path)
    assert table.unique("method") == [*steps]
    assert "name" not in table.columns
    assert table.select(method="large steps")["step_size"].tolist() == [0.5, 0.5]
    with lf.panels(table, column="n_clients") as sheet:
        for ax, part in sheet:
            lf.plot_curves(ax, part, "round", "risk", by="method")
    assert [line.get_label() for line in sheet.axes.ravel()[0].lines] == [*steps]
    plt.close(sheet.figure)
    stored = lf.Store(tmp_path).table(cells)
    assert stored["risk"].tolist() == table["risk"].tolist()
    assert stored.unique("method") == [*steps]
    assert describe(cells[0]).text != describe(replace(cells[0], name="")).text
    assert rebuild(describe(cells[0]).json, describe(cells[0]).arrays) == cells[0] != replace(cells[0], name="")
    with pytest.raises(TypeError, match="name = 3 must be a string"):
        replace(RUN, name=3)
    with pytest.raises(UsageError, match=r"^--set name: the field only names"):
        with_settings({"runs": cells}, {"name": "other"})


def test_a_run_without_a_name_has_no_column_and_no_other_description():
    assert not {"name", "method"} & {*lf.sweep([RUN]).columns}
    assert "name" not in describe(RUN).json["fields"]
    assert rebuild(describe(RUN).json, describe(RUN).arrays) == RUN


def test_diverged_trials_are_told():
    with pytest.warns(lf.DivergenceWarning, match=r"^3 of 3 trials diverged, in 1 of 1 rows"):
        (row,) = lf.sweep([replace(RUN, algorithm=lf.FedAvg(step_size=1e3), rounds=60)])
    assert row["diverged"].all()
    assert row["status"].tolist() == ["DIVERGED"] * 3


def test_a_tuned_run_is_tune_and_then_simulate():
    options = {"data": RUN.data, "rounds": 12, "participation": 0.5, "seed": 5}
    tuning = lf.tune(RUN.algorithm, RUN.problem, grid=TUNED.grid, trials=4, **options)
    result = lf.simulate(tuning.algorithm, RUN.problem, trials=3, record_every=4, **options)
    (row,) = lf.sweep([replace(RUN, algorithm=TUNED)])
    assert row["subspace_distance"].tobytes() == result.metrics["subspace_distance"].tobytes()
    assert row["step_size"] == tuning.algorithm.step_size
    assert row["score"].tobytes() == tuning.scores.tobytes()
    assert row["tried_step_size"].tolist() == list(STEPS)
    assert row["at_grid_edge"] == ""
    assert row["algorithm.base.step_size"] == 0.5
    assert row["best"] == tuning.best


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_the_tuning_may_be_shorter_than_the_run():
    options = {"data": RUN.data, "rounds": 4, "participation": 0.5, "seed": 5}
    tuning = lf.tune(RUN.algorithm, RUN.problem, grid=TUNED.grid, trials=4, **options)
    (row,) = lf.sweep([replace(RUN, algorithm=replace(TUNED, rounds=4))])
    assert row["score"].tobytes() == tuning.scores.tobytes()
    assert row["round"][-1] == 12


def test_a_step_at_the_edge_of_its_grid_is_said_once():
    runs = lf.grid(replace(RUN, algorithm=replace(TUNED, grid={"step_size": (0.01, 0.02)})), seed=(0, 1))
    with pytest.warns(lf.GridEdgeWarning, match=r"best step_size is at the edge of its grid in 2 of 2 rows") as caught:
        table = lf.sweep(runs)
    assert len(caught) == 1
    assert table["at_grid_edge"].tolist() == ["step_size"] * 2
    assert edge_note(table, "algorithm.base") == "the best step of FedRep lies at the edge of the grid"
    assert edge_note(lf.sweep([RUN]), "algorithm") == ""


def test_trials_that_diverged_are_noted():
    table = lf.Table(
        [{"method": name, "diverged": np.arange(4) < count} for name, count in (("LocalOnly", 2), ("FedRep", 0))]
    )
    assert diverged_note(table) == "2 trials of Local only diverged at its best step"


@pytest.mark.long
def test_the_table_is_the_same_wherever_the_cells_run(tmp_path):
    runs = lf.grid(RUN, **{"data.n_samples": (3, 6), "problem.n_clients": (10, 20)})
    tables = [
        lf.sweep(runs),
        lf.sweep(runs, workers=2),
        lf.sweep(runs, store=tmp_path / "store"),
        lf.sweep(runs[::-1], store=tmp_path / "store"),
    ]
    with ThreadPoolExecutor(2) as executor:
        tables.append(lf.sweep(runs, executor=executor))
        executor.submit(int)  # it is not shut down
    for other in tables[1:]:
        other = other.select(n_samples=3) + other.select(n_samples=6)
        for n in (10, 20):
            for m in (3, 6):
                for name in ("subspace_distance", "risk"):
                    one, again = (t.select(n_clients=n, n_samples=m)[name] for t in (tables[0], other))
                    assert one.tobytes() == again.tobytes()
    assert [row["n_samples"] for row in tables[0]] == [3, 3, 6, 6]
    assert [row["n_samples"] for row in tables[3]] == [6, 6, 3, 3]
    assert len(list((tmp_path / "store").glob("*.cell"))) == 4


def test_several_rows_of_one_cell():
    @dataclass(frozen=True)
    class Two:
        n: int

        def run(self):
            return [{"method": name, "error": np.full(2, self.n)} for name in ("a", "b")]

    table = lf.sweep([Two(1), Two(2)])
    assert [(row["n"], row["method"]) for row in table] == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert len(lf.sweep([])) == 0


@pytest.mark.parametrize(
    ("call", "fragments", "error"),
    [
        (lambda: lf.sweep([RUN, 3]), ["cells[1] = 3", "lf.Run"], TypeError),
        (lambda: lf.sweep([lf.Run]), ["cells[0] = ", "lf.Run"], TypeError),
        (lambda: lf.sweep([Inner()]), ["cells[0] = Inner", "run()"], TypeError),
        (lambda: lf.sweep([RUN], workers=0), ["workers = 0"], ValueError),
        (lambda: replace(RUN, algorithm="FedRep"), ["algorithm = 'FedRep'", "lf.Tuned"], TypeError),
        (lambda: lf.Tuned(base=RUN.algorithm, grid={"step": (1,)}), ["'step'", "did you mean 'step_size'"], ValueError),
        (lambda: lf.Tuned(base=3, grid={}), ["base = 3"], TypeError),
        (lambda: replace(TUNED, score="finl"), ["score = 'finl'", "did you mean 'final'"], ValueError),
        (lambda: replace(TUNED, quantile=2), ["quantile = 2", "from 0 to 1"], ValueError),
        (lambda: replace(TUNED, trials=0), ["trials = 0", "at least 1"], ValueError),
        (lambda: replace(TUNED, extend="yes"), ["extend = 'yes'"], ValueError),
        (lambda: lf.grid(RUN, **{"problem.n_client": (3,)}), ["'n_client'", "did you mean 'n_clients'"], ValueError),
        (lambda: lf.sweep([replace(RUN, rounds=-1)]), ["rounds = -1"], ValueError),
    ],
)
def test_sweeps_that_cannot_be_meant(call, fragments, error):
    assert_one_line(call, fragments, error)


# --- figures -------------------------------------------------------------------------------------------------


@pytest.fixture
def drawn():
    yield lf.sweep(lf.grid(RUN, **{"data.n_samples": (3, 6), "problem.n_clients": (10, 20)}))
    plt.close("all")


def test_a_page_has_a_panel_for_each_value(drawn):
    with lf.panels(drawn, column="n_samples", row="n_clients", title="m = {}", height=3, sharex=True) as sheet:
        for ax, part in sheet:
            lf.plot_curves(ax, part, "round", "subspace_distance", by="algorithm")
        sheet.label("round", "ten", "twenty", yscale="linear")
        sheet.legend("told")
    assert sheet.axes.shape == (2, 2)
    assert [ax.get_title() for ax in sheet.axes[0]] == ["$m$ = 3", "$m$ = 6"]
    assert [ax.get_ylabel() for ax in sheet.axes[:, 0]] == ["ten", "twenty"]
    assert [ax.get_xlabel() for ax in sheet.axes[1]] == ["round"] * 2
    assert {ax.get_yscale() for ax in sheet.axes.ravel()} == {"linear"}
    (legend,) = sheet.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["FedRep"]
    line = sheet.axes[1, 0].lines[0]
    values = drawn.select(n_samples=3, n_clients=20)["subspace_distance"]
    np.testing.assert_array_equal(line.get_ydata(), np.sort(values, axis=0)[1])
    assert list(line.get_xdata()) == [0, 4, 8, 12]


def test_rows_may_be_of_one_table_and_panels_may_be_empty(drawn):
    with lf.panels(drawn.select(n_clients=10), column="n_samples", row=2) as sheet:
        assert [[part["n_samples"] for _, part in sheet.row(i)] for i in (0, 1)] == [[3, 6]] * 2
    assert [ax.get_title() for ax in sheet.axes[0]] == ["n_samples = 3", "n_samples = 6"]
    lacking = drawn.select(n_clients=10) + drawn.select(n_clients=20, n_samples=3)
    with lf.panels(lacking, column="n_samples", row="n_clients", title=lambda m: f"<{m}>") as sheet:
        assert len(list(sheet)) == 3
    assert sheet.axes[0, 1].get_title() == "<6>"
    with pytest.raises(ValueError, match="must have at least one row"), lf.panels(drawn.select(n_clients=3)):
        pass


def test_curves_have_the_order_the_scale_and_the_names_they_are_given(drawn):
    with lf.panels(drawn.select(n_clients=10)) as sheet:
        ((ax, part),) = sheet
        options = {"labels": {3: "three"}, "looks": {6: "GD-GD"}, "order": [6, 3], "at": slice(1, None)}
        lf.plot_curves(ax, part, "round", "risk", by="n_samples", scale=np.sqrt, band=False, linewidth=3.0, **options)
    assert [line.get_label() for line in ax.lines] == ["n_samples = 6", "three"]
    assert ax.lines[0].get_linewidth() == 3.0
    assert not ax.collections
    values = np.sqrt(drawn.select(n_clients=10, n_samples=6)["risk"])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.sort(values, axis=0)[1][1:])


def test_tuning_curves_circle_the_chosen_step():
    tried = lf.LabeledArray([0.1, 0.1, 0.2, 0.4], setting=range(4))
    score = lf.LabeledArray([3.0, 2.0, 1.0, np.inf], setting=range(4))
    lost_row = {
        "method": "FedAvg",
        "best": 0,
        "tried_step_size": tried,
        "score": lf.LabeledArray([np.inf] * 4, setting=range(4)),
    }
    table = lf.Table([{"method": "FedRep", "best": 2, "tried_step_size": tried, "score": score}, lost_row])
    with lf.panels(table) as sheet:
        steps(sheet.axes[0, 0], table)
    line, circle = sheet.axes[0, 0].lines
    assert line.get_xydata().tolist() == [[0.1, 2.0], [0.2, 1.0]]
    assert circle.get_xydata().tolist() == [[0.2, 1.0]]
    plt.close("all")


def test_a_level_is_named_in_the_first_column_of_panels():
    table = lf.Table([{"m": m, "floor": m * np.array([1.0, 9.0, 3.0])} for m in (5, 10)])
    with lf.panels(table, column="m", row=2) as sheet:
        for ax, part in sheet:
            median_level(ax, part, "floor", "floor", below=True)
    assert [line.get_ydata()[0] for ax in sheet.axes[1] for line in ax.lines] == [15.0, 30.0]
    assert [len(ax.texts) for ax in sheet.axes.ravel()] == [1, 0, 1, 0]
    _, ax = plt.subplots()
    median_level(ax, table.select(m=5), "floor", "floor")
    assert ax.texts[0].get_text() == "floor"
    plt.close("all")


def test_heat_maps_bars_and_levels():
    _, ax = plt.subplots()
    heat_map(ax, np.zeros((2, 3)), ["a", "b", "c"], ["x", "y"])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b", "c"]
    assert place([0.0, 1.0, 10.0], np.array([5.5])).tolist() == [1.5] * 3
    level(ax, [0, 1], [place([0.0, 1.0], np.array([0.2, 0.4, 0.9])), place([0.0, 1.0], 0.5)], color="black")
    assert ax.lines[0].get_ydata().tolist() == [0.4, 0.5]
    _, ax = plt.subplots()
    bars(ax, [1, 2], np.array([[1.0, np.nan], [2.0, 5.0], [3.0, 6.0]]), "FedRep")
    assert ax.lines[0].get_ydata().tolist() == [2.0, 5.0]
    plt.close("all")


def test_a_note_says_whose_curves_are_not_at_rest():
    ends = {"FLUTE": [0.4, 0.3], "FedRep": [0.3, 0.3], "Oracle": [0.3, 0.4], "FedAvg": [0.3, np.nan]}
    rounds = [0, 5, 10]
    rows = [{"method": name, "error": lf.LabeledArray([[1.0, *end]] * 3, round=rounds)} for name, end in ends.items()]
    assert unsettled_note(lf.Table(rows), "error") == (
        "not converged: over the second half of the rounds the error of FLUTE falls and that of Oracle (B*) rises"
    )
    assert unsettled_note(lf.Table(rows[1:2]), "error") == ""
    assert unsettled_note(lf.Table(rows), "error", change=0.5) == ""


def test_a_line_has_one_look_on_the_whole_page():
    """In whatever order the panels meet it, and where it is missing."""
    rows = [(10, "a"), (10, "b"), (20, "b"), (20, "a"), (30, "b")]
    table = lf.Table([{"n": n, "rule": rule, "e": lf.LabeledArray(normal(3, 2), round=[0, 1])} for n, rule in rows])
    with lf.panels(table, column="n") as sheet:
        sheet.curves("round", "e", by="rule")
    colours = {(line.get_label(), line.get_color(), line.get_marker()) for ax in sheet.axes[0] for line in ax.lines}
    assert len(colours) == 2
    plt.close("all")


def test_a_line_is_one_row_along_the_axis(drawn):
    with lf.panels(drawn) as sheet:
        ax = sheet.axes[0, 0]
        said = ["4 rows have algorithm = 'FedRep'", "'problem.n_clients' or 'data.n_samples'"]
        assert_one_line(lambda: lf.plot_curves(ax, drawn, "round", "risk", by="algorithm"), said)
        one = drawn.select(n_clients=10, n_samples=3)
        assert_one_line(lambda: lf.plot_curves(ax, one, "round", "diverged", by="rank"), ["'problem.rank'"], KeyError)
        for y in ("diverged", "participants"):
            assert_one_line(
                lambda y=y: lf.plot_curves(ax, one, "round", y, by="algorithm"),
                [f"{y!r} must have the axes", "'round'"],
            )
    figures = plt.get_fignums()
    with pytest.raises(RuntimeError, match="broken"), lf.panels(drawn):
        raise RuntimeError("broken")
    assert plt.get_fignums() == figures
    with lf.panels(drawn, column="n_samples", title=r"$\frac{1}{2}$") as sheet:
        pass
    assert sheet.axes[0, 0].get_title() == r"$\frac{1}{2}$"


@pytest.mark.long
def test_rows_that_an_index_does_not_tell_apart_are_no_dataset():
    pytest.importorskip("xarray")
    rows = [
        {"h": h, "t": "same", "s": v, "e": lf.LabeledArray([v, v], r=[0, 1])}
        for h, v in (("a", 1.0), ("b", 2.0), ("a", 3.0))
    ]
    assert_one_line(lambda: lf.Table(rows).to_xarray("h"), ["rows 0 and 2 have h = 'a'"])
    assert_one_line(lambda: lf.Table(rows).to_xarray(), ["rows 0 and 1 have no index"])
    data = lf.Table(rows[:2]).to_xarray("h")
    assert data["s"].sel(h="b") == 2.0
    assert data["e"].sel(h="a").values.tolist() == [1.0, 1.0]


def test_a_short_name_is_no_guess():
    table = lf.Table([{"a.x": 1, "b.c.x": n} for n in (1, 2)])
    for part in (table, table.select(**{"b.c.x": 1})):
        assert_one_line(lambda part=part: part.unique("x"), ["'a.x' or 'b.c.x'"], KeyError)


def test_several_values_and_nan_are_found():
    table = lf.Table([{"n": n, "t": (n, 1), "x": x} for n, x in ((1, 0.5), (2, np.nan), (3, np.nan))])
    for several in ((1, 3), [1, 3], {1, 3}, range(1, 4, 2), np.array([1, 3])):
        assert table.select(n=several)["n"].tolist() == [1, 3]
    assert table.select(t=(2, 1))["n"] == 2
    assert table.select(t=[(2, 1), (3, 1)])["n"].tolist() == [2, 3]
    assert table.select(x=np.nan)["n"].tolist() == [2, 3]
    assert [len(part) for _, part in table.groupby("x")] == [1, 2]


def test_names_are_not_taken_twice(tmp_path):
    for name in ("trial", "r"):
        row = {name: 5, "a": lf.LabeledArray([1, 2], r=[0, 1])}
        assert_one_line(lambda row=row: lf.Table([row]), [f"a column {name!r}", "name of an axis"])
    assert_one_line(lambda: lf.LabeledArray([[1, 2]], trial=[0, 1]), ["must not contain 'trial'"])
    table = lf.Table([{"a@r": np.zeros(2), "a": lf.LabeledArray([[1, 2], [3, 4]], r=[7, 8])}])
    assert lf.Table.load(table.save(tmp_path / "t.npz"))["a@r"].tolist() == [0.0, 0.0]
    assert_one_line(lambda: table.to_records("round"), ["('round',)", "('r',)"], KeyError)

    def participants(state, truth):
        return np.zeros(len(state.B))

    run = replace(RUN, metrics=["risk", participants])
    assert_one_line(lambda: lf.sweep([run]), ["function named 'participants'", "rename the function"], lf.SweepError)


def test_arrays_of_other_things_are_refused():
    for values in (np.array([None, 1.0]), np.array([1j])):
        assert_one_line(
            lambda values=values: lf.Table([{"x": values}]), ["x must be an array of numbers", "got dtype"], TypeError
        )
    assert_one_line(lambda: lf.LabeledArray([None, 1.0], r=[0, 1]), ["dtype object"], TypeError)


def test_values_of_one_text_are_told_apart():
    given = [lf.GivenSamples(normal(2, 3, 4, seed=seed), normal(2, 3, seed=seed)) for seed in (0, 1, 0)]
    run = lf.Run(algorithm=lf.LocalOnly(), data=given[0], rounds=1)
    table = lf.sweep(lf.grid(run, data=given))
    assert len(table.unique("data")) == 2
    inits = [lf.GivenSubspace(normal(8, 2, seed=seed)) for seed in (0, 1)]
    table = lf.sweep(lf.grid(replace(RUN, rounds=0), **{"algorithm.init": inits}))
    assert len(table.unique("algorithm.init.B")) == 2


def test_a_grid_of_steps_may_hold_none():
    grid = {"heads.step_size": (None, 0.1), "step_size": (0.2, 0.3)}
    base = replace(RUN.algorithm, heads=lf.GradientHeads(steps=2))
    with pytest.warns(lf.GridEdgeWarning):
        (row,) = lf.sweep([replace(RUN, algorithm=lf.Tuned(base=base, grid=grid, trials=2))])
    assert np.isnan(row["tried_heads.step_size"]).sum() == 2
    shorter = replace(RUN, algorithm=lf.Tuned(base=RUN.algorithm, grid={"step_size": (0.3,)}, trials=2, rounds=0))
    (row,) = lf.sweep([shorter])
    assert row["score"].shape == (1,)


@dataclass(frozen=True)
class Wrong:
    returned: object

    def run(self):
        if self.returned == "raises":
            raise RuntimeError("unlucky")
        return self.returned


@pytest.mark.parametrize("returned", [None, 3, "text", ("a", "b")])
def test_what_a_cell_must_return_is_said(returned):
    assert_one_line(lambda: lf.sweep([Wrong(returned)]), ["Wrong.run must return a mapping or a list"], lf.SweepError)


def test_a_cell_that_raises_is_named(tmp_path):
    assert_one_line(lambda: lf.sweep([Wrong("raises")]), ["unlucky", "Wrong(returned='raises')"], lf.SweepError)
    assert_one_line(lambda: lf.sweep(RUN), ["cells = Run(", "lf.grid(run, ...)"], TypeError)
    (tmp_path / "file").write_text("")
    for store in (tmp_path / "file", ""):
        assert_one_line(lambda store=store: lf.sweep([RUN], store=store), ["store = ", "must be a folder"])


def test_equal_cells_on_threads_have_one_file(tmp_path):
    with ThreadPoolExecutor(4) as executor:
        table = lf.sweep([RUN] * 8, executor=executor, store=tmp_path)
    assert len(table) == 8
    assert len(list(tmp_path.glob("*.cell"))) == 1


def test_grids_of_fields_that_are_called_base():
    fit = lf.Personalized(base=RUN.algorithm, ridge=0.1)
    assert [one.base.step_size for one in lf.grid(fit, base=lf.grid(RUN.algorithm, step_size=(0.1, 0.2)))] == [0.1, 0.2]
    assert_one_line(lambda: lf.grid(RUN, n_clients=(3,)), ["did you mean 'problem.n_clients'"])


def test_empty_arrays_are_shown_as_such():
    assert "empty" in lf.Table([{"a": np.zeros(0)}, {"a": np.zeros(0)}])._repr_html_()
    assert "0 rows" in lf.Table()._repr_html_()


def test_one_row_is_shown_from_top_to_bottom():
    html = lf.Table([{"a": 1, "b": np.array([3.0, 5.0, 7.0])}])._repr_html_()
    assert html.index(">a<") < html.index(">1<") < html.index(">b<") < html.index(">5<")


def test_a_value_may_be_an_array_without_axes():
    table = lf.Table([{"n": 1}, {"n": 2}])
    assert table.select(n=np.array(2)).rows == [{"n": 2}]
    assert table.select(n=np.array([2.0, 3.0])).rows == [{"n": 2}]


def test_nan_within_tuples_and_labels_equals_nan():
    one, other = ({"pair": (1, (float("nan"), "a")), "x": n} for n in (1, 2))
    table = lf.Table([one, other])
    assert len(table.select(pair=[(1, (float("nan"), "a"))])) == 2
    assert [len(part) for _, part in table.groupby("pair")] == [2]
    assert "pair" not in repr(table)  # it does not vary
    labelled = {name: lf.LabeledArray([1.0, 2.0], level=[0.5, float("nan")]) for name in ("p", "q")}
    table = lf.Table([labelled, {"p": lf.LabeledArray([3.0, 4.0], level=[0.5, float("nan")]), "q": 1}])
    np.testing.assert_array_equal(table["level"], [0.5, np.nan])


def test_a_column_of_numbers_and_strings_keeps_both():
    assert lf.Table([{"n": 1}, {"n": "x"}, {"n": None}])["n"].tolist() == [1, "x", None]
    ragged = lf.Table([{"n": (1, (2, 3))}, {"n": (1, (2, 4))}])
    assert_one_line(lambda: ragged["n"], ["column 'n'", "tuples of tuples", "unique()"])
    assert ragged.unique("n") == [(1, (2, 3)), (1, (2, 4))]


def test_rows_without_columns(tmp_path):
    assert lf.Table([{}, {}]).to_records() == [{}, {}]
    (path,) = lf.Table([{}]).to_csv(tmp_path / "t")
    assert path.read_text().strip() == ""


def test_two_axes_are_not_written_to_one_file(tmp_path):
    both = {"p": lf.LabeledArray(np.ones((2, 2)), a=[0, 1], b=[0, 1]), "q": lf.LabeledArray([1.0], **{"a-b": [0]})}
    assert_one_line(lambda: lf.Table([both]).to_csv(tmp_path / "t"), ["t-a-b.csv", "('a', 'b')", "('a-b',)"])
    assert list(tmp_path.iterdir()) == []


def test_names_and_labels_that_a_file_cannot_hold_are_refused():
    for name in ("a\0b", "\ud800"):
        assert_one_line(lambda name=name: lf.Table([{name: 1}]), ["names of columns", repr(name)])
        assert_one_line(lambda name=name: lf.LabeledArray([1.0], **{name: [0]}), ["names of axes", repr(name)])
    assert_one_line(lambda: lf.Table([{"a/": 1}]), ["must not end in '/'", "'a/'"])  # as "a" with an axis "/x"
    for labels in ([[0, 1], [2, 3]], [None, 1], 3):
        assert_one_line(lambda labels=labels: lf.LabeledArray([1.0, 2.0], r=labels), ["r must be one-d"], TypeError)


def test_numbers_of_an_enumeration_are_plain():
    class Level(enum.IntEnum):
        HIGH = 2

    class Word(enum.StrEnum):
        LOW = "low"

    row = lf.Table([{"a": Level.HIGH, "b": Word.LOW, "c": (Level.HIGH,)}]).rows[0]
    assert [type(value) for value in (row["a"], row["b"], row["c"][0])] == [int, str, int]
    assert row == {"a": 2, "b": "low", "c": (2,)}
