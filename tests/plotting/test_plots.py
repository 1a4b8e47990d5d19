"""Figures of one's own study: curves with predictions, smallest sizes, and the files of a figure."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

import linfed as lf

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9)),
    problem=lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.01),
    data=lf.FreshSamples(8),
    rounds=4,
    trials=3,
)


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
    rows = [{k: v for k, v in row.items() if not k.startswith("predicted")} for row in smallest().rows]
    ax = lf.plot_smallest(lf.Table(rows), "n_clients").axes[0]
    assert "predicted" not in ax.get_legend_handles_labels()[1]


def test_a_table_of_other_runs_has_no_smallest_sizes():
    with pytest.raises(ValueError, match=r"must be a table of lf.find_smallest"):
        lf.plot_smallest(lf.Table([{"n": 1}]), "n")


def test_runs_are_plotted_with_their_predictions():
    cells = lf.grid(RUN, **{"data.n_samples": (5, 16)})  # at most rank + 3 samples, of which the prediction warns
    table = lf.sweep(cells)
    figure, caption = lf.plot_runs(table, cells, width="column")
    assert figure.get_size_inches()[0] == 3.35
    black = [line for line in figure.axes[0].lines if line.get_color() == "black"]
    for cell, line in zip(cells, black, strict=True):
        expected = lf.predict(cell.algorithm, cell.problem, data=cell.data, rounds=4, trials=3).distance
        np.testing.assert_array_equal(line.get_ydata(), np.median(expected, axis=0))
    assert "black lines: predicted median; " in caption
    other, caption = lf.plot_runs(table, cells, "parameter_error")
    assert caption.startswith("Parameter error against round")
    assert not [line for line in other.axes[0].lines if line.get_color() == "black"]


def test_predictions_of_a_figure_share_a_number_of_trials(monkeypatch):
    monkeypatch.setattr("linfed.reproduction.default_figure.PREDICTED_TRIALS", 12)
    cells = lf.grid(replace(RUN, trials=7), **{"data.n_samples": (8, 16)})
    figure, caption = lf.plot_runs(lf.sweep(cells), cells)
    black = [line for line in figure.axes[0].lines if line.get_color() == "black"]
    expected = lf.predict(RUN.algorithm, RUN.problem, data=cells[1].data, rounds=4, trials=6).distance
    np.testing.assert_array_equal(black[1].get_ydata(), np.median(expected, axis=0))
    assert "black lines: predicted median of the first 6 trials. " in caption


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("status",), ValueError, "metric = 'status' must have values along one axis"),
        (("risks",), KeyError, "column 'risks' is unknown"),
    ],
)
def test_a_metric_that_is_no_curve_is_refused(arguments, error, message):
    cells = [RUN]
    with pytest.raises(error, match=message):
        lf.plot_runs(lf.sweep(cells), cells, *arguments)


def test_a_table_without_curves_has_no_figure_of_runs():
    with pytest.raises(ValueError, match="must have a column with values along one axis"):
        lf.plot_runs(lf.Table([{"error": np.ones(3)}]), [RUN])


@pytest.mark.long
@pytest.mark.parametrize(("width", "dots"), [("column", 1005), ("page", 2070), (2.0, 600)])
def test_files_have_the_width_and_embed_truetype_fonts(tmp_path, width, dots):
    with lf.panels(lf.Table([{"n": 1}]), width=width) as sheet:
        sheet.label("x", "y")
    png, pdf = lf.save_figure(sheet.figure, tmp_path / "name.pdf")
    assert (png.name, pdf.name) == ("name.png", "name.pdf")
    with Image.open(png) as image:
        assert image.width == dots
    assert b"/CIDFontType2" in pdf.read_bytes()


@pytest.mark.long
def test_a_figure_of_matplotlib_is_saved_with_truetype_fonts_too(tmp_path):
    figure, ax = plt.subplots()
    ax.set_title("title")
    figure.savefig(tmp_path / "plain.pdf")
    assert b"/Type3" in (tmp_path / "plain.pdf").read_bytes()
    written = lf.save_figure(figure, tmp_path / "ours")[1].read_bytes()
    assert b"/CIDFontType2" in written
    assert b"/Type3" not in written
    assert lf.save_figure(ax, tmp_path / "axes")[1].read_bytes() == written
    with pytest.raises(TypeError, match=r"figure = 'name.png' must be a matplotlib Figure or Axes"):
        lf.save_figure("name.png", tmp_path / "axes")


def test_curves_without_a_column_of_methods_name_the_columns_that_differ():
    table = lf.Table([{"data.n_samples": m, "risk": lf.LabeledArray([[1.0, 0.1]], round=[0, 1])} for m in (4, 8)])
    ax = plt.figure().subplots()
    with pytest.raises(KeyError, match=r"no column 'method': set by= to the column .*, e.g. 'n_samples'"):
        lf.plot_curves(ax, table, "round", "risk")


@pytest.mark.parametrize("width", ["columns", 0.0, -1.0, None])
def test_a_width_is_a_number_or_a_name(width):
    with (
        pytest.raises((ValueError, TypeError), match="width = "),
        lf.panels(lf.Table([{"n": 1}]), width=width),
    ):
        pass
