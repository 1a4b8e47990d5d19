"""Results: their text, records, frames and pictures."""

import dataclasses
import sys
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

import linfed as lf
from linfed.simulation.metrics import MetricTable
from linfed.simulation.results import Result
from tests.helpers import assert_one_line, normal

PROBLEM = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
FEDREP = lf.FedRep(rank=2, step_size=0.3)
FRESH, FIXED = lf.FreshSamples(5), lf.FixedSamples(5)
X, Y = normal(5, 3, 4), normal(5, 3)
GIVEN = lf.GivenSamples(X, Y)


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def run(algorithm=FEDREP, problem=PROBLEM, data=FRESH, **changes):
    arguments = {"n_rounds": 4, "participation": 0.6, "trials": 2, "record_every": 3} | changes
    return lf.simulate(algorithm, problem, data=data, **arguments)


@pytest.fixture(scope="module")
def mixed():
    """Return a run of three trials of which the second diverges."""
    heads = normal(3, 5, 2) * np.array([1.0, 100.0, 1.0])[:, None, None]
    algorithm = lf.FedRep(
        rank=2, step_size=0.3, init=normal(4, 2, seed=3) / 2, heads=lf.GradientHeads(), orthonormalize=False
    )
    problem = lf.GivenTruth(B=np.eye(4)[:, :2], W=heads)
    result = lf.simulate(algorithm, problem, data=lf.FixedSamples(6), n_rounds=20, record_every=2)
    assert result.status == [lf.Status.COMPLETED, lf.Status.DIVERGED, lf.Status.COMPLETED]
    return result


@pytest.fixture(scope="module")
def lost():
    """Return a run of which every trial diverges."""
    algorithm = lf.FedRep(rank=2, step_size=1e9, init="random", heads=lf.GradientHeads(), orthonormalize=False)
    return run(algorithm, n_rounds=30, record_every=1)


# --- text and records ----------------------------------------------------------------------------------------


def with_numbers(n_rounds=2, trials=3, **changes):
    """Return a run of FedAvg with given numbers in the place of its metrics and seconds."""
    sizes = {"n_rounds": n_rounds, "trials": trials, "engine": "explicit", "seed": 7}
    result = run(lf.FedAvg(step_size=0.1, **changes), data=FIXED, **sizes)
    values = np.arange(1.0, trials + 1)[:, None] * np.ones(len(result.rounds))
    return with_metrics(dataclasses.replace(result, seconds=1.234), risk=values, a_metric_with_a_long_name=values / 8)


def with_metrics(result, **metrics):
    return dataclasses.replace(result, metrics=MetricTable(metrics, {}))


def test_every_line_of_a_summary():
    assert with_numbers().summary().splitlines()[1:] == [
        "SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1), FixedSamples(n_samples=5)",
        "3 trials of 2 rounds, 3 clients a round, engine explicit, seed 7, 1.23 s: 3 COMPLETED",
        f"{'at the end':25} {'median':>12} {'10 %':>12} {'90 %':>12}",
        f"{'risk':25} {'2':>12} {'1':>12} {'3':>12}",
        f"{'a_metric_with_a_long_name':25} {'0.25':>12} {'0.125':>12} {'0.375':>12}",
    ]
    short = with_metrics(with_numbers(), risk=with_numbers().metrics["risk"])
    assert short.summary().splitlines()[-1] == f"{'risk':20} {'2':>12} {'1':>12} {'3':>12}"
    assert repr(with_numbers(n_rounds=1)) == "<Result of FedAvg: 3 trials, 1 round>"
    tuned = with_numbers(n_rounds=1, trials=1, rank=2, fine_tune=lf.ExactHeads())
    assert repr(tuned) == "<Result of FedAvg: 1 trials, 1 round and fine-tuning>"
    assert tuned.summary().splitlines()[2].startswith("1 trial of 1 round and fine-tuning, 3 clients")
    without_truth = run(problem=None, data=GIVEN, trials=1)
    assert "no ground truth" in without_truth.summary()
    assert "median" not in with_metrics(without_truth).summary()


def test_a_diverged_trial_counts_as_the_worst_in_a_summary(mixed, lost):
    text = mixed.summary()
    assert "2 COMPLETED, 1 DIVERGED" in text
    for name, values in mixed.metrics.items():
        (line,) = (line for line in text.splitlines() if line.startswith(name))
        assert f"{np.sort(values[[0, 2], -1])[1]:.4g}" in line
    assert repr(mixed) == "<Result of FedRep: 3 trials, 20 rounds, 1 DIVERGED>"
    assert "2 DIVERGED" in lost.summary()
    assert "inf" in lost.summary()


def test_records_are_one_line_per_number(mixed):
    records = mixed.to_records()
    assert len(records) == 3 * len(mixed.rounds) * len(mixed.metrics)
    columns = {int(round_): column for column, round_ in enumerate(mixed.rounds)}
    for record in records:
        expected = mixed.metrics[record["metric"]][record["trial"], columns[record["round"]]]
        assert np.array_equal(record["value"], expected, equal_nan=True)
        assert [type(value) for value in record.values()] == [int, int, str, float, str]
        assert record["status"] == mixed.status[record["trial"]].name
    assert len({tuple(record.values())[:3] for record in records}) == len(records)


def test_frames_have_a_row_for_each_trial_and_round(mixed, monkeypatch):
    """The arguments for pandas and xarray, without these packages."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    monkeypatch.setitem(sys.modules, "xarray", SimpleNamespace(Dataset=lambda *metrics, **more: (*metrics, more)))
    with pytest.warns(lf.DivergenceWarning, match="^1 of 3 trials diverged") as caught:
        frame, (metrics, more) = mixed.to_pandas(), mixed.to_xarray()
    assert [one.filename for one in caught] == [__file__] * 2
    assert list(frame) == ["trial", "round", "status", *mixed.metrics]
    names = [status.name for status in mixed.status]
    rows = [(trial, round_, names[trial]) for trial in range(3) for round_ in mixed.rounds]
    assert list(zip(frame["trial"], frame["round"], frame["status"], strict=True)) == rows
    assert list(metrics) == list(mixed.metrics)
    for name, values in mixed.metrics.items():
        np.testing.assert_array_equal(frame[name], np.concatenate(list(values)))
        axes, copied = metrics[name]
        assert (axes, copied is values) == (("trial", "round"), False)
        np.testing.assert_array_equal(copied, values)
    assert more["coords"]["trial"].tolist() == [0, 1, 2]
    assert (more["coords"]["round"] is mixed.rounds, more["coords"]["status"]) == (True, ("trial", names))
    assert list(more["attrs"]) == ["algorithm", "data", "engine", "problem"]
    calm = run(problem=None, data=GIVEN)  # a warning would be an error
    assert list(calm.to_pandas()) == ["trial", "round", "status", "train_loss"]
    assert list(calm.to_xarray()[1]["attrs"]) == ["algorithm", "data", "engine"]


def test_the_metric_table_is_a_mapping():
    metrics = run().metrics
    assert dict(metrics) == {name: metrics[name] for name in metrics}
    expected = [name for name in lf.METRICS if name not in metrics.absent]
    assert (len(metrics), list(metrics)) == (len(expected), expected)
    assert "risk: (2, 3)" in repr(metrics)


@pytest.mark.parametrize(
    ("name", "fragments"),
    [
        ("risks", ["'risks' is unknown", "did you mean 'risk'?", "'parameter_error'"]),
        ("subspace_distance", ["'subspace_distance' is absent", "no representation"]),
        ("zzz", ["'zzz' is unknown"]),
    ],
)
def test_a_metric_that_is_not_there_says_why(name, fragments):
    result = run(lf.LocalOnly())
    message = assert_one_line(lambda: result.metrics[name], fragments, KeyError)
    assert ("did you mean" in message) == (name == "risks")
    assert_one_line(lambda: result.plot(name), [name], (KeyError, ValueError))


def test_the_final_state_counts_the_clients_of_a_run_without_a_truth():
    result = run(lf.LocalOnly(), data=FIXED)
    nothing = dataclasses.replace(result, problem=None)
    losses = nothing.losses(X, Y)
    residuals = np.einsum("nmd,tnd->tnm", X, result.final.S) - Y
    np.testing.assert_allclose(losses, (residuals**2).sum(axis=-1) / 6, rtol=1e-10)
    assert_one_line(lambda: nothing.losses(X[:4], Y[:4]), ["X has shape (4, 3, 4)", "n = 5 clients"])
    one = dataclasses.replace(run(lf.FedAvg(step_size=0.1), data=FIXED), problem=None)
    assert one.losses(X[:4], Y[:4]).shape == (2, 4)  # one model serves any number of clients


# --- pictures ------------------------------------------------------------------------------------------------


def test_a_plot_has_the_median_and_a_band():
    result = run(trials=21, n_rounds=12, record_every=1)
    ax = result.plot("parameter_error")
    (line,), (band,) = ax.lines, ax.collections
    values = np.sort(result.metrics["parameter_error"], axis=0)
    assert line.get_xdata().tolist() == list(range(13))
    assert np.array_equal(line.get_ydata(), np.median(values, axis=0))
    heights = band.get_paths()[0].vertices[:, 1]
    assert values[1].min() <= heights.min() <= values[3].min()
    assert values[17].max() <= heights.max() <= values[19].max()
    assert (ax.get_yscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "round", "parameter error")
    assert line.get_label() == "FedRep"
    for trials in (1, 3, 5):  # an odd number of trials has one middle value
        result = run(trials=trials)
        ax = result.plot("risk")
        assert np.array_equal(ax.lines[0].get_ydata(), np.median(result.metrics["risk"], axis=0))
        assert len(ax.collections) == (trials > 1)


def test_a_plot_on_given_axes_with_a_label_and_no_band():
    figure, ax = plt.subplots()
    assert run().plot("risk", ax=ax, label="mine", band=False) is ax
    run(lf.LocalOnly()).plot("risk", ax=ax)
    assert [line.get_label() for line in ax.lines] == ["mine", "LocalOnly"]
    assert len(ax.collections) == 1
    assert ax.figure is figure


def labels(ax):
    """Return the labels of lines that differ in label, and in colour or marker."""
    found = [line.get_label() for line in ax.lines]
    assert len(set(found)) == len({(line.get_color(), line.get_marker()) for line in ax.lines}) == len(found)
    return found


def test_runs_of_one_class_are_told_apart_in_a_plot(tmp_path):
    first, *others = (run(lf.FedRep(rank=2, step_size=step)) for step in (0.3, 0.1, 0.05))
    ax = first.plot("risk")
    assert labels(ax) == ["FedRep"]
    look = ax.lines[0].get_color(), ax.lines[0].get_marker()
    for result in others:
        Result.load(result.save(tmp_path / "a.npz")).plot("risk", ax=ax)
    run(lf.LocalOnly()).plot("risk", ax=ax)
    steps = ["FedRep (step_size=0.3)", "FedRep (step_size=0.1)", "FedRep (step_size=0.05)"]
    assert labels(ax) == [*steps, "LocalOnly"]
    assert (ax.lines[0].get_color(), ax.lines[0].get_marker()) == look
    bands = [tuple(band.get_facecolor()[0][:3]) for band in ax.collections]
    assert bands == [mpl.colors.to_rgb(line.get_color()) for line in ax.lines]


APART = {
    "a field": (
        {"algorithm": lf.FedRep(rank=2, step_size=0.3, heads=lf.ExactHeads())},
        {"algorithm": lf.FedRep(rank=2, step_size=0.3, heads=lf.GradientHeads(steps=2))},
        ["heads=ExactHeads(ridge=0.0)", "heads=GradientHeads(steps=2, step_size=None)"],
    ),
    "data": (
        {"data": lf.FreshSamples(5)},
        {"data": lf.FreshSamples(7)},
        ["data=FreshSamples(n_samples=5)", "data=FreshSamples(n_samples=7)"],
    ),
    "the seed": ({"seed": 0}, {"seed": (1, 2)}, ["seed=0", "seed=(1, 2)"]),
}


@pytest.mark.parametrize("name", APART)
def test_the_label_of_a_line_has_what_differs(name):
    one, other, expected = APART[name]
    ax = run(**one).plot("risk")
    run(**other).plot("risk", ax=ax)
    assert labels(ax) == [f"FedRep ({text})" for text in expected]


def test_the_labels_of_several_differences():
    ax = run().plot("risk")
    run(data=lf.FreshSamples(7)).plot("risk", ax=ax)
    run(lf.FedRep(rank=1, step_size=0.3)).plot("risk", ax=ax)
    assert labels(ax)[2] == "FedRep (rank=1, data=FreshSamples(n_samples=5))"
    metrics = run().plot("risk")
    run().plot("mean_client_error", ax=metrics)
    assert labels(metrics) == ["FedRep (metric=risk)", "FedRep (metric=mean_client_error)"]
    named = run().plot("risk", label="mine")
    run(seed=1).plot("risk", ax=named)
    assert labels(named) == ["mine", "FedRep"]
    named.lines[1].set_label("renamed")
    run(seed=2).plot("risk", ax=named)
    assert labels(named) == ["mine", "renamed", "FedRep"]


def test_options_of_a_line():
    result = run()
    ax = result.plot("risk", color="red", ls=":", linewidth=3, marker="s", markevery=2, alpha=0.5)
    (line,), (band,) = ax.lines, ax.collections
    assert (line.get_color(), line.get_linestyle(), line.get_linewidth()) == ("red", ":", 3)
    assert (line.get_marker(), line.get_markevery(), line.get_alpha()) == ("s", 2, 0.5)
    assert tuple(band.get_facecolor()[0][:3]) == (1.0, 0.0, 0.0)
    result.plot("risk", ax=ax, c="blue")
    assert ax.lines[1].get_color() == "blue"
    figures = plt.get_fignums()
    assert_one_line(lambda: result.plot("risk", colr="red"), ["'colr'", "did you mean 'color'?"], TypeError)
    assert plt.get_fignums() == figures


def test_diverged_trials_and_zeros_in_a_plot(mixed, lost, tmp_path):
    ax = mixed.plot("parameter_error")
    values = mixed.metrics["parameter_error"]
    ranked = np.sort(np.where(np.isnan(values), np.inf, values), axis=0)
    assert np.array_equal(ax.lines[0].get_ydata(), ranked[1])  # the second best of three
    assert len(lost.plot("parameter_error").lines[0].get_xdata()) == lost.status_round.max()
    zero = run(lf.LocalOnly(), lf.GivenTruth(S=np.zeros((5, 4))), lf.FreshSamples(6))
    ax = zero.plot("parameter_error")
    assert ax.get_yscale() == "linear"
    ax.figure.savefig(tmp_path / "figure.png")


def test_the_figure_of_a_notebook_spans_all_rounds(monkeypatch):
    def drawn(result):
        axes = []

        def figure(draw):
            axes.append(plt.figure().subplots())
            draw(axes[0])

        monkeypatch.setattr("linfed.figures.html.figure", figure)
        result._html_figure()
        return axes

    (ax,) = drawn(with_numbers(n_rounds=50))
    assert ax.get_xlim() == pytest.approx((-2.0, 52.0))
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_yscale()) == ("round", "risk", "log")
    assert len(drawn(with_numbers(n_rounds=1))) == 1
    assert drawn(with_numbers(n_rounds=0)) == drawn(with_metrics(with_numbers())) == []
    assert drawn(with_metrics(with_numbers(), risk=np.full((3, 3), np.nan))) == []
    (ax,) = drawn(with_metrics(with_numbers(), accuracy=np.ones((3, 3))))
    assert ax.get_yscale() == "linear"
