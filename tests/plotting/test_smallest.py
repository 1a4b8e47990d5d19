"""`lf.plot_smallest`: smallest sizes with their intervals, their predictions and their bounds."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def smallest(**changes):
    """The rows of three searches, the last two censored, as `lf.find_smallest` returns them."""
    values = {
        "base.problem.n_clients": [40, 10, 20],
        "base.problem.dim": [8, 8, 8],
        "crossing": [5.0, 9.0, np.nan],
        "low": [4.0, 8.0, 32.0],
        "high": [6.0, 12.0, np.inf],
        "censored": ["", "", "above"],
        "predicted_crossing": [5.5, 8.5, np.nan],
        "predicted_low": [5.0, 8.0, np.nan],
        "predicted_high": [6.0, 9.0, np.nan],
        "missing_prediction": ["", "", "m is too small"],
    } | changes
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    return lf.Table([{"path": "data.n_samples", **row} for row in rows])


def test_smallest_sizes_have_their_intervals_their_predictions_and_their_bounds():
    ax = lf.plot_smallest(smallest(), "n_clients").axes[0]
    (bars,) = ax.containers
    np.testing.assert_array_equal(bars[0].get_xydata(), [[10, 9], [40, 5]])
    ends = [segment[:, 1].tolist() for segment in bars[2][0].get_segments()]
    assert ends == [[8, 12], [4, 6]]
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(lines["predicted"].get_xydata(), [[10, 8.5], [40, 5.5]])
    assert (lines["_above"].get_marker(), lines["_above"].get_xydata().tolist()) == ("^", [[20, 32]])
    assert lines["_below"].get_xydata().size == 0
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$n$", "smallest $m$")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["10", "20", "40"]


def test_an_upper_bound_is_not_drawn_as_a_prediction():
    """If smaller sizes have no prediction, the predicted size says only where the predictions begin."""
    table = smallest(predicted_crossing=[5.5, 8.5, 3.5], missing_prediction=["", "", "m is too small"])
    lines = {line.get_label(): line for line in lf.plot_smallest(table, "n_clients").axes[0].lines}
    np.testing.assert_array_equal(lines["predicted"].get_xydata(), [[10, 8.5], [40, 5.5]])


def test_smallest_sizes_of_several_lines_have_one_legend_entry_each():
    both = smallest() + smallest(**{"base.problem.dim": [16] * 3})
    figure = lf.plot_smallest(both, "n_clients", by="dim", width="page")
    assert sorted(text.get_text() for text in figure.legends[0].get_texts()) == ["$d$ = 16", "$d$ = 8", "predicted"]
    assert figure.get_size_inches()[0] == 6.9
    with pytest.raises(ValueError, match=r"several rows have the same n_clients; use select\(\), or set by="):
        lf.plot_smallest(both, "n_clients")


def test_smallest_sizes_without_predictions_are_drawn_without():
    """And each of at most eight sizes has a tick."""
    places = [40, 10, 20, 30, 50, 60, 70, 80]
    rows = [{k: v for k, v in row.items() if not k.startswith("predicted")} for row in smallest().rows * 3]
    rows = [row | {"base.problem.n_clients": n} for row, n in zip(rows, places, strict=False)]
    ax = lf.plot_smallest(lf.Table(rows), "n_clients").axes[0]
    assert "predicted" not in ax.get_legend_handles_labels()[1]
    assert [text.get_text() for text in ax.get_xticklabels()] == [f"{place}" for place in sorted(places)]


@pytest.mark.parametrize(("value", "shown"), [("A", "'A'"), (0, "0"), (-1.5, "-1.5"), (np.nan, "nan"), (None, "None")])
def test_a_size_on_a_logarithmic_axis_is_a_positive_number(value, shown):
    table = smallest(**{"base.problem.n_clients": [40, value, 20]})
    fragments = ["x = 'n_clients'", "positive numbers", f"holds {shown}"]
    assert_one_line(lambda: lf.plot_smallest(table, "n_clients"), fragments)


OTHERS = {
    "other runs": lf.Table([{"n_clients": 1}]),
    "two sizes": smallest() + lf.Table([row | {"path": "data.other"} for row in smallest().rows]),
    "no rows": smallest().select(path="data.other"),
}


@pytest.mark.parametrize("table", OTHERS.values(), ids=OTHERS)
def test_a_table_that_is_not_of_one_size_is_refused(table):
    with pytest.raises(ValueError, match=r"must be a table of lf.find_smallest, for one size"):
        lf.plot_smallest(table, "n_clients")
