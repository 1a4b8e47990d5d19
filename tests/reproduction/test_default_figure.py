"""The default figure of cells, and `lf.plot_runs`: its lines, panels and predictions, and what its caption says."""

from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed.errors import SizeError
from linfed.figures.style import KINDS, LOOKS, shades
from linfed.reproduction.default_figure import _looks, default_figure

FEDREP = lf.FedRep(rank=2, step_size=0.5)
FEDAVG = lf.FedAvg(rank=2, step_size=0.1)
GRADIENT = lf.FedRep(rank=2, step_size=0.5, heads=lf.GradientHeads(steps=3))
RUN = lf.Run(
    algorithm=FEDREP,
    problem=lf.SharedRepresentation(n_clients=12, dim=8, rank=2),
    data=lf.FreshSamples(8),
    n_rounds=1,
)
PREDICTED = replace(
    RUN,
    algorithm=lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9)),
    problem=lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.01),
    n_rounds=4,
    trials=3,
)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawn(cells):
    """Return the default figure of cells that nothing was computed for, and its caption."""
    table = lf.Table.of(cells, [{} for _ in cells])
    ends = lf.LabeledArray([[1.0, 0.1], [2.0, 0.2], [3.0, 0.3]], round=[0, 1])
    rows = [row | {"subspace_distance": ends} for row in table.rows]
    return default_figure(lf.Table(rows), cells)


def shown(figure):
    """Return the titles of a figure's panels, the words at their left, and the names of the lines."""
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    beside = [ax.get_ylabel().partition("\n")[0] for ax in figure.axes if "\n" in ax.get_ylabel()]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    return titles, beside, [name for name in names if not name.startswith("predicted")]


def black_lines(figure):
    return [line.get_ydata() for line in figure.axes[0].lines if line.get_color() == "black"]


# --- lines and panels ------------------------------------------------------------------------------------------------


NAMES = ["FedRep", "FedAvg"]
HEADS = [f"FedRep, heads = {kind}Heads" for kind in ("Exact", "Gradient")]
GRIDS = {
    "one method": ({}, ([], [], ["FedRep"])),
    "two methods": ({"algorithm": (FEDREP, FEDAVG)}, ([], [], NAMES)),
    "methods of one class": ({"algorithm": (FEDREP, GRADIENT)}, ([], [], HEADS)),
    "a field of the method": (
        {"algorithm.step_size": (0.1, 0.2)},
        ([], [], ["FedRep, step_size = 0.1", "FedRep, step_size = 0.2"]),
    ),
    "another field": ({"problem.n_clients": (9, 8)}, ([], [], ["n_clients = 9", "n_clients = 8"])),
    "three axes": (
        {"algorithm": (FEDREP, FEDAVG), "data.n_samples": (8, 9), "n_rounds, seed": [(1, 2), (2, 3)]},
        (["n_samples = 8", "n_samples = 9"], ["n_rounds = 1, seed = 2", "n_rounds = 2, seed = 3"], NAMES),
    ),
}


@pytest.mark.parametrize("name", GRIDS)
def test_lines_are_methods_and_panels_what_else_varies(name):
    axes, wanted = GRIDS[name]
    assert shown(drawn(lf.grid(RUN, **axes))[0]) == wanted


def test_an_assigned_column_names_the_methods():
    """Its names become the lines; a field in which a method has several values makes panels."""
    cells = lf.grid(RUN, **{"algorithm.step_size": (0.1, 0.2), "problem.n_clients": (8, 9)})
    ends = lf.LabeledArray([[1.0, 0.1], [2.0, 0.2]], round=[0, 1])
    table = lf.Table.of(cells, [{"risk": ends} for _ in cells])
    named = table.assign(method=lambda row: "bold" if row["step_size"] > 0.1 else "cautious")
    assert shown(lf.plot_runs(named, cells)[0]) == (["n_clients = 8", "n_clients = 9"], [], ["cautious", "bold"])
    sized = table.assign(method=lambda row: "few" if row["n_clients"] == 8 else "many")
    titles = ["step_size = 0.1", "step_size = 0.2"]
    assert shown(lf.plot_runs(sized, cells)[0]) == (titles, [], ["few", "many"])


def test_methods_by_name_and_rows_that_lack_the_metric():
    @dataclass(frozen=True)
    class Named:
        method: str
        n: int = 3

        def run(self):
            raise AssertionError

    cells = [Named(method) for method in ("FedRep", "$mine_")]
    error = lf.LabeledArray(np.ones((2, 3)), round=[0, 1, 2])
    figure, caption = default_figure(lf.Table.of([*cells, Named("c")], [{"error": error}, {"error": error}, {}]), cells)
    assert shown(figure)[2] == ["FedRep", r"\$mine_"]
    assert "not drawn: rows without error" in caption
    figure.canvas.draw()
    assert default_figure(lf.Table.of(cells, [{"value": np.ones(3)}] * 2), cells) is None


def test_what_is_left_out_is_said():
    axes = {"problem.n_clients": range(8, 16), "data.n_samples": (8, 9), "n_rounds": (1, 2), "seed": (0, 1)}
    figure, caption = drawn(lf.grid(RUN, **axes))
    assert "not drawn: n_clients = 10, n_clients = 13, n_rounds = 2. Sizes" in caption
    assert len(shown(figure)[0]) == 6
    assert shown(figure)[1:] == (["n_samples = 8", "n_samples = 9"], ["seed = 0", "seed = 1"])
    axes = {"problem.n_clients": (8, 9), "data.n_samples": range(8, 13), "seed": (0, 1)}
    assert "not drawn: n_samples = 10. Sizes" in drawn(lf.grid(RUN, **axes))[1]


def test_rows_with_equal_settings_are_drawn_once_and_counted():
    assert "not drawn: 2 further rows with equal settings. Sizes" in drawn([*lf.grid(RUN, seed=(0, 1)), RUN, RUN])[1]
    assert "not drawn: 1 further row with equal settings. Sizes" in drawn([RUN, RUN])[1]
    assert "not drawn" not in drawn([RUN])[1]


@pytest.mark.parametrize("other", [1.0, lf.LabeledArray([[1.0, 2.0]], step=[0, 1])], ids=["a number", "another axis"])
def test_rows_without_a_curve_are_left_out(other):
    cells = lf.grid(RUN, seed=(0, 1, 2))
    curve = lf.LabeledArray([[1.0, 0.1], [2.0, 0.2]], round=[0, 1])
    found = [{"error": curve}, {"error": other}, {"error": curve}]
    for order in ((0, 1, 2), (0, 2, 1)) if isinstance(other, lf.LabeledArray) else ((1, 0, 2), (0, 1, 2)):
        table = lf.Table.of(cells, [found[i] for i in order])
        figure, caption = lf.plot_runs(table, cells, "error")
        assert len(figure.axes[0].lines) == 2
        assert "not drawn: rows without error against round" in caption


def test_one_trial_has_no_median_in_the_caption():
    cells = [replace(PREDICTED, trials=1)]
    assert lf.plot_runs(lf.sweep(cells), cells)[1].startswith("Subspace distance against round: one trial; ")


@pytest.mark.long
def test_many_lines_have_no_bands_and_no_prediction():
    for count, bands in ((2, 2), (6, 6), (7, 0), (13, 0)):
        figure, caption = drawn(lf.grid(RUN, seed=range(count)))
        assert len(figure.axes[0].collections) == bands
        assert len(shown(figure)[2]) == min(count, 12)
        assert caption.startswith(f"Subspace distance against round: median{' and 10-90 %' * (count < 7)} over trials")


def test_lines_are_methods_or_shades_or_kinds():
    def looks(*lines):
        return _looks(lf.Table([{"=line": line} for line in lines]), lines)

    assert looks("FedRep", "mine") == {"FedRep": LOOKS["FedRep"], "mine": KINDS[0]}
    assert looks("m = 1", "m = 0.5") == shades(("m = 1", "m = 0.5"))


def test_diverging_runs_are_said_and_cut_off():
    run = replace(RUN, n_rounds=12, trials=3, metrics=("parameter_error",))
    runs = lf.grid(run, algorithm=(FEDREP, lf.FedAvg(rank=2, step_size=50.0)))
    with pytest.warns(lf.DivergenceWarning):
        table = lf.sweep(runs)
    figure, caption = default_figure(table, runs)
    assert "3 of 6 trials diverged, in 1 of 2 rows" in caption
    low, high = figure.axes[0].get_ylim()
    assert high <= 1e4 * table.rows[0]["parameter_error"].values[:, 0].max()
    assert low == pytest.approx(0.7 * figure.axes[0].dataLim.y0)


# --- predictions -----------------------------------------------------------------------------------------------------


def test_runs_are_plotted_with_their_predictions():
    few = replace(PREDICTED, participation=4)
    cells = lf.grid(few, **{"data.n_samples": (6, 16)})  # four participants with few samples: the prediction warns
    table = lf.sweep(cells)
    figure, caption = lf.plot_runs(table, cells, width="column")
    assert figure.get_size_inches()[0] == 3.35
    for cell, line in zip(cells, black_lines(figure), strict=True):
        run = {"data": cell.data, "n_rounds": 4, "trials": 3, "participation": 4}
        expected = lf.predict(cell.algorithm, cell.problem, **run).distance
        np.testing.assert_array_equal(line, np.median(expected, axis=0))
    assert "black lines: predicted median; dashed black lines: predictions with warnings" in caption
    other, caption = lf.plot_runs(table, cells, "parameter_error")
    assert caption.startswith("Parameter error against round")
    assert not black_lines(other)


def test_predictions_of_a_figure_share_a_number_of_trials(monkeypatch):
    monkeypatch.setattr("linfed.reproduction.default_figure.PREDICTED_TRIALS", 12)
    cells = lf.grid(replace(PREDICTED, trials=7), **{"data.n_samples": (8, 16)})
    figure, caption = lf.plot_runs(lf.sweep(cells), cells)
    expected = lf.predict(PREDICTED.algorithm, PREDICTED.problem, data=cells[1].data, n_rounds=4, trials=6).distance
    np.testing.assert_array_equal(black_lines(figure)[1], np.median(expected, axis=0))
    assert "black lines: predicted median of the first 6 trials. " in caption


@pytest.mark.parametrize("error", [SizeError, lf.NoPredictionError])
def test_runs_without_a_prediction_are_plotted_without(error, monkeypatch):
    def predict(*arguments, **options):
        raise error("too large")

    monkeypatch.setattr("linfed.reproduction.default_figure.predict", predict)
    figure, caption = drawn([RUN])
    assert not black_lines(figure)
    assert "predicted" not in caption


@pytest.mark.parametrize(
    "algorithm", [FEDREP, lf.FLUTE(rank=2, step_size=0.01), lf.UStatistic(rank=2)], ids=lambda one: type(one).__name__
)
def test_runs_with_a_predicted_floor_but_no_curve_are_plotted_without(algorithm):
    """On fixed samples `lf.predict` gives floors or rates, and raises if the distance is asked for."""
    figure, caption = drawn([replace(RUN, algorithm=algorithm, data=lf.FixedSamples(8))])
    assert not black_lines(figure)
    assert "predicted" not in caption


def test_a_tuned_algorithm_is_told_from_another_and_predicted_at_its_step():
    tuned = lf.Tuned(base=FEDREP, grid={"step_size": (0.1, 0.3)}, trials=2)
    cells = lf.grid(replace(RUN, n_rounds=3, trials=2), algorithm=(FEDREP, tuned))
    with pytest.warns(lf.GridEdgeWarning):
        table = lf.sweep(cells)
    figure, caption = default_figure(table, cells)
    assert shown(figure)[2] == ["FedRep", "FedRep, tuned"]
    assert "the best step of FedRep, tuned lies at the edge" in caption
    for line, step in zip(black_lines(figure), (0.5, table.rows[1]["step_size"]), strict=True):
        options = {"data": RUN.data, "n_rounds": 3, "trials": 2}
        own = lf.predict(lf.FedRep(rank=2, step_size=step), RUN.problem, **options).distance
        np.testing.assert_array_equal(line, np.median(own, axis=0))


# --- wrong arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "error", "message"),
    [
        ("status", ValueError, "metric = 'status' must have values along one axis"),
        ("risks", KeyError, "column 'risks' is unknown"),
    ],
)
def test_a_metric_that_is_no_curve_is_refused(metric, error, message):
    with pytest.raises(error, match=message):
        lf.plot_runs(lf.sweep([PREDICTED]), [PREDICTED], metric)


def test_a_table_without_curves_has_no_figure_of_runs():
    with pytest.raises(ValueError, match="must have a column with values along one axis"):
        lf.plot_runs(lf.Table([{"error": np.ones(3)}]), [RUN])
