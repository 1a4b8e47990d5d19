"""Figures of tables: a panel for each value of a column, the curves in it, and what else a panel may show."""

import matplotlib.colors as mcolors
import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed.figures.style import LOOKS, line_style
from linfed.plotting.panels import as_one, bars, heat_map, intervals, label_ends, level, place, steps
from tests.helpers import assert_one_line, normal


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def table():
    """Curves of two numbers of samples and two numbers of clients."""
    settings = [(m, n) for m in (3, 6) for n in (10, 20)]
    return lf.Table(
        [
            {
                "algorithm": "FedRep",
                "algorithm.rank": 2,
                "data.n_samples": m,
                "problem.n_clients": n,
                "problem.rank": 2,
                "participants": n,
                "diverged": np.zeros(3, dtype=bool),
                "risk": lf.LabeledArray(np.exp(normal(3, 4, seed=m + n)), round=[0, 4, 8, 12]),
            }
            for m, n in settings
        ]
    )


def test_there_is_a_panel_for_each_value(table):
    with lf.panels(table, column="n_samples", row="n_clients", title="m = {}", height=3, sharex=True) as sheet:
        for ax, part in sheet:
            lf.plot_curves(ax, part, "round", "risk", by="algorithm")
        sheet.label("round", "ten", "twenty", yscale="linear")
        sheet.legend("legend")
    assert sheet.axes.shape == (2, 2)
    assert [ax.get_title() for ax in sheet.axes[0]] == ["$m$ = 3", "$m$ = 6"]
    assert [ax.get_ylabel() for ax in sheet.axes[:, 0]] == ["ten", "twenty"]
    assert [ax.get_xlabel() for ax in sheet.axes[1]] == ["round"] * 2
    assert {ax.get_yscale() for ax in sheet.axes.ravel()} == {"linear"}
    (legend,) = sheet.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["FedRep"]
    line = sheet.axes[1, 0].lines[0]
    values = table.select(n_samples=3, n_clients=20)["risk"]
    np.testing.assert_array_equal(line.get_ydata(), np.sort(values, axis=0)[1])
    assert list(line.get_xdata()) == [0, 4, 8, 12]


def test_rows_may_be_of_one_table_and_panels_may_be_empty(table):
    with lf.panels(table.select(n_clients=10), column="n_samples", row=2) as sheet:
        assert [[part["n_samples"] for _, part in sheet.row(i)] for i in (0, 1)] == [[3, 6]] * 2
    assert [ax.get_title() for ax in sheet.axes[0]] == ["n_samples = 3", "n_samples = 6"]
    with lf.panels(table, column=3, row=np.int64(2)) as sheet:
        assert {len(part) for _, part in sheet} == {len(table)}
    assert sheet.axes.shape == (2, 3)
    assert {ax.get_title() for ax in sheet.axes.flat} == {""}
    with pytest.raises(ValueError, match="column = 0 must be an integer of at least 1"), lf.panels(table, column=0):
        pass
    lacking = table.select(n_clients=10) + table.select(n_clients=20, n_samples=3)
    with lf.panels(lacking, column="n_samples", row="n_clients", title=lambda m: f"<{m}>") as sheet:
        assert len(list(sheet)) == 3
    assert sheet.axes[0, 1].get_title() == "<6>"
    with lf.panels(table, column="n_samples", title=r"$\frac{1}{2}$") as sheet:
        pass
    assert sheet.axes[0, 0].get_title() == r"$\frac{1}{2}$"
    for title in ("{:g}", "{.foo}"):  # panels without a value
        with lf.panels(table, column=2, title=title) as sheet:
            pass
        assert sheet.axes[0, 0].get_title() == title


@pytest.mark.parametrize("name", ["figsize", "nrows", "ncols", "layout"])
def test_what_panels_set_themselves_is_refused(table, name):
    def draw():
        with lf.panels(table, **{name: 3}):
            pass

    assert_one_line(draw, [f"panels() sets {name} itself", "row=, column=, width= and height="], TypeError)


def test_a_figure_is_closed_if_drawing_it_fails(table):
    with pytest.raises(ValueError, match="must have at least one row"), lf.panels(table.select(n_clients=3)):
        pass
    with pytest.raises(RuntimeError, match="broken"), lf.panels(table):
        raise RuntimeError("broken")
    assert plt.get_fignums() == []


def test_curves_have_the_order_the_scale_and_the_names_they_are_given(table):
    with lf.panels(table.select(n_clients=10)) as sheet:
        ((ax, part),) = sheet
        options = {"labels": {3: "three"}, "looks": {6: "GD-GD"}, "order": [6, 3], "at": slice(1, None)}
        lf.plot_curves(ax, part, "round", "risk", by="n_samples", scale=np.sqrt, band=False, linewidth=3.0, **options)
    assert [line.get_label() for line in ax.lines] == ["n_samples = 6", "three"]
    assert ax.lines[0].get_linewidth() == 3.0
    assert not ax.collections
    values = np.sqrt(table.select(n_clients=10, n_samples=6)["risk"])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.sort(values, axis=0)[1][1:])


@pytest.mark.parametrize(
    ("options", "fragments", "error"),
    [
        ({"linewidthh": 3}, ["'linewidthh' is not a property", "did you mean 'linewidth'?"], TypeError),
        ({"scale": 2}, ["scale = 2", "a function"], TypeError),
        ({"looks": {3: ("red", "o")}}, ["looks[3] = ('red', 'o')", "colour, marker and line style"], ValueError),
        ({"looks": {3: "FedRap"}}, ["looks[3] = 'FedRap'", "did you mean 'FedRep'?"], ValueError),
    ],
)
def test_wrong_options_of_curves_are_refused(table, options, fragments, error):
    _, ax = plt.subplots()
    part = table.select(n_clients=10)
    assert_one_line(lambda: lf.plot_curves(ax, part, "round", "risk", by="n_samples", **options), fragments, error)


def test_a_line_is_one_row_along_the_axis(table):
    one = table.select(n_clients=10, n_samples=3)
    several = ["4 rows have algorithm = 'FedRep'", "'data.n_samples' or 'problem.n_clients'"]
    with lf.panels(table) as sheet:
        ax = sheet.axes[0, 0]
        for part, y, by, fragments, error in (
            (table, "risk", "algorithm", several, ValueError),
            (one, "diverged", "rank", ["'rank' may be"], KeyError),
            (one, "diverged", "algorithm", ["'diverged' must have the axes", "'round'"], ValueError),
            (one, "participants", "algorithm", ["'participants' must have the axes", "'round'"], ValueError),
        ):
            assert_one_line(lambda part=part, y=y, by=by: lf.plot_curves(ax, part, "round", y, by=by), fragments, error)


def test_a_line_has_one_look_in_all_panels():
    """In whatever order the panels meet it, and where it is missing."""
    rows = [(10, "a"), (10, "b"), (20, "b"), (20, "a"), (30, "b")]
    table = lf.Table([{"n": n, "rule": rule, "e": lf.LabeledArray(normal(3, 2), round=[0, 1])} for n, rule in rows])
    with lf.panels(table, column="n") as sheet:
        sheet.curves("round", "e", by="rule")
    looks = {(line.get_label(), line.get_color(), line.get_marker()) for ax in sheet.axes[0] for line in ax.lines}
    assert len(looks) == 2


def test_cells_with_names_are_the_methods_of_a_legend():
    rows = [
        {"method": name, "e": lf.LabeledArray(normal(3, 2), round=[0, 1])} for name in ("small steps", "large steps")
    ]
    with lf.panels(lf.Table(rows)) as sheet:
        ((ax, part),) = sheet
        lf.plot_curves(ax, part, "round", "e", by="method")
    assert [line.get_label() for line in ax.lines] == ["small steps", "large steps"]


def test_tuning_curves_circle_the_chosen_step():
    tried = lf.LabeledArray([0.1, 0.1, 0.2, 0.4], setting=range(4))
    scores = {"FedAvg": (0, [np.inf] * 4), "FedRep": (2, [3.0, 2.0, 1.0, np.inf])}
    table = lf.Table(
        [{"method": "untuned"}]
        + [
            {"method": name, "best": best, "tried_step_size": tried, "score": lf.LabeledArray(score, setting=range(4))}
            for name, (best, score) in scores.items()
        ]
    )
    with lf.panels(table) as sheet:
        steps(sheet.axes[0, 0], table)
    line, circle = sheet.axes[0, 0].lines
    assert line.get_xydata().tolist() == [[0.1, 2.0], [0.2, 1.0]]
    assert circle.get_xydata().tolist() == [[0.2, 1.0]]


def test_heat_maps_bars_and_levels():
    _, ax = plt.subplots()
    heat_map(ax, np.zeros((2, 3)), ["a", "b", "c"], ["x", "y"])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b", "c"]
    assert place([0.0, 1.0, 10.0], np.array([5.5])).tolist() == [1.5] * 3
    level(ax, [0, 1], [place([0.0, 1.0], np.array([0.2, 0.4, 0.9])), place([0.0, 1.0], 0.5)], color="black")
    assert ax.lines[0].get_ydata().tolist() == [0.4, 0.5]
    bars_before = len(ax.containers)
    level(ax, [0, 1], [place([0.0, 1.0], 0.5)] * 2, color="black")
    assert (bars_before, len(ax.containers)) == (1, 1)  # no bars of length 0
    _, ax = plt.subplots()
    bars(ax, [1, 2], np.array([[1.0, np.nan], [2.0, 5.0], [3.0, 9.0]]), "FedRep")
    assert ax.lines[0].get_ydata().tolist() == [2.0, 5.0]
    assert [part.tolist() for part in ax.containers[0][2][0].get_segments()] == [[[1, 1], [1, 3]], [[2, 5], [2, 9]]]
    bars(ax, [1, 2], np.array([[np.nan, 1.0], [np.nan, 2.0]]), "FedAvg")
    bars(ax, [1, 2], np.full((2, 2), np.nan), "Ditto")
    assert ax.get_legend_handles_labels()[1] == ["FedRep", "FedAvg"]
    assert ax.lines[-1].get_xdata().tolist() == [2]


def test_ends_that_are_zero_or_infinite_are_not_drawn():
    _, ax = plt.subplots()
    intervals(ax, [1, 2, 3], [(2.0, 1.0, 4.0), (np.nan, 1.0, 1.0), (3.0, 0.0, np.inf)], "FedRep")
    (bars,) = ax.containers
    assert [segment.tolist() for segment in bars[2][0].get_segments()] == [[[1, 1], [1, 4]], [[3, 3], [3, 3]]]


def test_labels_at_the_ends_of_lines_are_moved_apart_at_the_right_and_stay_elsewhere():
    _, ax = plt.subplots()
    for name, ends, height in (("low", [0, 1], 0.5), ("high", [0, 1], 0.51), ("short", [0, 0.5], 0.5)):
        ax.plot(ends, [height] * 2, label=name)
    ax.set(xlim=(0, 1), ylim=(0, 1))
    label_ends(ax)
    places = {text.get_text(): text.xy for text in ax.texts}
    np.testing.assert_allclose([places[name] for name in ("low", "high", "short")], [(1, 0.5), (1, 0.575), (0.5, 0.5)])
    assert all(text.xyann[0] > 0 == text.xyann[1] for text in ax.texts)
    assert ax.get_legend_handles_labels()[1] == []


def test_labels_at_the_ends_of_lines_stay_below_the_top_and_are_dark_enough():
    _, ax = plt.subplots()
    for name, height in (("low", 0.5), ("two\nlines", 0.95), ("high", 0.95)):
        ax.plot([0, 1], [height] * 2, label=name, color="#FFFF00")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    label_ends(ax, gap=0.1)
    places = [text.xy[1] for text in ax.texts]
    np.testing.assert_allclose(places, [0.5, 0.85, 1.0])
    shades = np.array([mcolors.to_rgb(text.get_color()) for text in ax.texts])
    assert (shades**2.2 @ (0.2126, 0.7152, 0.0722) <= 0.301).all()


def test_panels_have_plain_ticks_on_short_logarithmic_axes(table):
    with lf.panels(table) as sheet:
        sheet.label("size", xscale="log", xlim=(5, 60))
    assert "10" in [text.get_text() for text in sheet.axes[0, 0].get_xticklabels()]


def methods(*names):
    error = lf.LabeledArray(np.ones((2, 3)), round=range(3))
    return lf.Table([{"method": name, "error": error} for name in names])


def looks_of(figure):
    return [(mcolors.to_hex(line.get_color()), line.get_marker()) for ax in figure.axes for line in ax.lines]


def test_lines_without_a_look_have_none_of_a_methods():
    """However many: the turns once came to FedRep's look at the second."""
    with lf.panels(methods("FedRep", *map(str, range(40)), "FLUTE")) as sheet:
        sheet.curves("round", "error")
    found = looks_of(sheet.figure)
    assert len(set(found)) == len(found) == 42
    looks = {(mcolors.to_hex(color), marker) for color, marker, _ in LOOKS.values()}
    assert [look for look in found if look in looks] == [
        (mcolors.to_hex(LOOKS[name][0]), LOOKS[name][1]) for name in ("FedRep", "FLUTE")
    ]


def test_lines_on_each_other_are_drawn_as_one():
    _, ax = plt.subplots()
    as_one(ax, methods("FedAvg", "FedAvg + FT", "FedRep"), "round", "error", ("FedAvg", "FedAvg + FT", "absent"))
    (line,) = ax.lines
    assert line.get_label() == "FedAvg; FedAvg + FT"
    assert line.get_color() == line_style("FedAvg")["color"]
    with pytest.raises(ValueError, match="2 rows have method = 'FedAvg', but a line shows one row"):
        as_one(ax, methods("FedAvg", "FedAvg"), "round", "error", ("absent", "FedAvg"))
    as_one(ax, methods("FedRep"), "round", "error", ("absent", "FedRep"))
    assert ax.lines[1].get_label() == "FedRep"


def test_curves_without_a_column_of_methods_name_the_columns_that_differ():
    table = lf.Table([{"data.n_samples": m, "risk": lf.LabeledArray([[1.0, 0.1]], round=[0, 1])} for m in (4, 8)])
    ax = plt.figure().subplots()
    with pytest.raises(KeyError, match=r"no column 'method': set by= to the column .*, e.g. 'n_samples'"):
        lf.plot_curves(ax, table, "round", "risk")


@pytest.mark.parametrize(
    ("name", "value"), [("width", "columns"), ("width", 0.0), ("width", -1.0), ("width", None), ("height", 0.0)]
)
def test_a_size_is_a_positive_number_and_a_width_may_be_a_name(name, value):
    with pytest.raises((ValueError, TypeError), match=f"{name} = "), lf.panels(lf.Table([{"n": 1}]), **{name: value}):
        pass
