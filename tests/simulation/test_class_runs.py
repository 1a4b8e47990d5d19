"""Runs of classes: what is measured, saved, swept, drawn and said of them."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.representation.fedrod import FedRoDState
from linfed.data.sources import Sizes
from linfed.reproduction.experiments import load
from tests.algorithms import class_references as ref
from tests.helpers import ROOT, assert_one_line, assert_same, each

EXPERIMENTS = ROOT / "experiments"

OWN = [1, 2, 3, 4, 2]
PROBLEM = lf.Classes(n_clients=5, n_classes=4, classes_per_client=OWN, dim=6, rank=2, test_samples=15)
DATA = lf.FixedSamples(9)
FLUTE = lf.GeneralFLUTE(rank=2, step_size=0.2, local_steps=2)
ALL = ["accuracy", "own_class_accuracy", "train_accuracy", "train_loss", "test_loss", "global_nc2", "local_nc2"]
LEARNERS = {
    "FLUTE": FLUTE,
    "FedRep": lf.FedRep(rank=2, step_size=0.2, init="random", heads=lf.GradientHeads(steps=3)),
    "FedAvg, two layers": lf.FedAvg(rank=2, step_size=0.2, local_steps=3),
    "FedAvg + FT": lf.FedAvg(rank=2, step_size=0.2, fine_tune=lf.GradientHeads(steps=3)),
    "FedRoD": lf.FedRoD(rank=2, step_size=0.2),
}
WITHOUT_B = {
    "FedAvg": lf.FedAvg(step_size=0.2),
    "LG-FedAvg": lf.LGFedAvg(rank=2, step_size=0.2),
    "local": lf.LocalOnly(step_size=0.2),
}


def run(algorithm=FLUTE, problem=PROBLEM, **changes):
    return lf.simulate(algorithm, problem, **{"data": DATA, "rounds": 6, "trials": 2, "seed": 4} | changes)


def training(trials=2):
    """Return the samples that runs learn from, and those held out: X and labels, (trials, n, m, d) and (trials, n, m).

    The first are those of the last round's batch; the second are drawn again from their stream.
    """
    from linfed.numerics.streams import Stream, generators

    *_, last = lf.iterate(FLUTE, PROBLEM, data=DATA, rounds=1, trials=trials, seed=4)
    truth = PROBLEM.truth(4, range(trials))
    held_out = truth.draw(generators(4, Stream.TEST, range(trials)), truth.holds, PROBLEM.test_samples)
    return (last.batch.X[..., :-1].copy(), last.batch.y.copy()), held_out, truth.holds


# --- metrics -------------------------------------------------------------------------------------------------


@each("name", [*LEARNERS, *WITHOUT_B])
def test_metrics_are_loops_over_clients_and_samples(name):
    algorithm = (LEARNERS | WITHOUT_B)[name]
    names = ALL if name in LEARNERS else ALL[:5]
    result = run(algorithm, metrics=names)
    (X, y), (test_X, test_y), holds = training()
    predictors = np.broadcast_to(result.final.predictors(), (2, 5, 4, 7))
    for t in range(2):
        found = {metric: [] for metric in names}
        for i, theta in enumerate(predictors[t]):
            own = np.flatnonzero(holds[t, i])
            assert len(own) == OWN[i]
            found["accuracy"].append(ref.accuracy(test_X[t, i], test_y[t, i], theta))
            found["own_class_accuracy"].append(ref.accuracy(test_X[t, i], test_y[t, i], theta, own))
            found["train_accuracy"].append(ref.accuracy(X[t, i], y[t, i], theta))
            found["train_loss"].append(ref.loss(X[t, i], y[t, i], theta))
            found["test_loss"].append(ref.loss(test_X[t, i], test_y[t, i], theta))
            if name in LEARNERS:
                H = np.broadcast_to(result.final.for_prediction().W, (2, 5, 4, 3))[t, i, :, :-1]
                found["global_nc2"].append(ref.nc(H, own))
                found["local_nc2"].append(ref.nc(H, own, len(own)) if len(own) > 1 else np.nan)
        for metric, values in found.items():
            np.testing.assert_allclose(result.per_client(metric)[t], values, rtol=1e-10, err_msg=metric)
            np.testing.assert_allclose(result.metrics[metric][t, -1], np.nanmean(values), rtol=1e-10, err_msg=metric)


def test_own_classes_make_it_easier():
    """A shared model that has to tell all classes apart gains by being told which the client has."""
    metrics = run(WITHOUT_B["FedAvg"], rounds=40).metrics
    assert (metrics["own_class_accuracy"] >= metrics["accuracy"]).all()
    assert (metrics["own_class_accuracy"] > metrics["accuracy"] + 0.02)[:, -1].all()


def test_which_metrics_there_are_by_default():
    assert set(run().metrics) == {*ALL, "subspace_distance"}
    assert set(run(WITHOUT_B["FedAvg"]).metrics) == set(ALL[:5])
    fresh = run(data=lf.FreshSamples(9)).metrics
    assert set(fresh) == {*ALL, "subspace_distance"} - {"train_accuracy", "train_loss"}


@each(
    "name, algorithm, data, why",
    [
        ("global_nc2", WITHOUT_B["LG-FedAvg"], DATA, "no heads at a shared representation"),
        ("local_nc2", WITHOUT_B["FedAvg"], DATA, "no heads at a shared representation"),
        ("train_accuracy", FLUTE, lf.FreshSamples(9), "samples are fresh in every round"),
        ("train_loss", FLUTE, lf.FreshSamples(9), "use 'test_loss' or 'accuracy'"),
        ("risk", FLUTE, DATA, "it exists only for regression, but the samples have 4 classes"),
        ("parameter_error", FLUTE, DATA, "it exists only for regression"),
        ("mean_client_error", FLUTE, DATA, "it exists only for regression"),
        ("mean_truncation_error", FLUTE, DATA, "it exists only for regression"),
        ("subspace_distance", WITHOUT_B["local"], DATA, "no representation B"),
    ],
)
def test_a_metric_that_is_absent_says_why(name, algorithm, data, why):
    result = run(algorithm, data=data)
    with pytest.raises(KeyError, match=re.escape(why)):
        result.metrics[name]
    assert_one_line(lambda: run(algorithm, data=data, metrics=[name]), [name, why])
    if name not in ("subspace_distance", "parameter_error", "mean_truncation_error"):
        assert_one_line(lambda: result.per_client(name), [name, why])


def test_numbers_have_no_accuracy():
    problem = lf.SharedRepresentation(n_clients=5, dim=6, rank=2)
    result = lf.simulate(lf.FedAvg(step_size=0.1), problem, data=DATA, rounds=1)
    for name in ("accuracy", "own_class_accuracy", "train_accuracy", "global_nc2", "local_nc2"):
        with pytest.raises(KeyError, match="it exists only for classification"):
            result.metrics[name]
    assert_one_line(lambda: result.per_client("accuracy"), ["accuracy", "it exists only for classification"])
    assert_one_line(lambda: run().per_client("acuracy"), ["'acuracy'", "did you mean 'accuracy'"])


@each("algorithm", [lf.FedPer(rank=2, step_size=1e200), lf.FedAvg(step_size=1e308, local_steps=3)])
def test_a_run_that_diverges_is_a_result(algorithm):
    result = run(algorithm, rounds=30)
    assert [status.name for status in result.status] == ["DIVERGED"] * 2
    assert (result.status_round < 30).all()
    assert np.isnan(result.metrics["accuracy"][:, -1]).all()
    assert np.isfinite(result.metrics["accuracy"][:, 0]).all()
    assert np.isnan(result.per_client("accuracy")).all()
    assert "2 DIVERGED" in result.summary()


def test_a_metric_of_ones_own_sees_classes_and_cannot_change_them():
    def means_of(state, truth):
        assert state.classes == 4
        with pytest.raises(ValueError, match="read-only"):
            truth.means[:] = 0.0
        with pytest.raises(ValueError, match="read-only"):
            truth.holds[:] = True
        return np.linalg.norm(truth.means, axis=(1, 2))

    found = run(metrics=[means_of]).metrics["means_of"]
    np.testing.assert_allclose(found, PROBLEM.separation * 2)  # the root of the sum over four classes


# --- kept, swept and drawn -----------------------------------------------------------------------------------


@each("name", [*LEARNERS, *WITHOUT_B])
def test_a_saved_result_is_the_same(name, tmp_path):
    result = run((LEARNERS | WITHOUT_B)[name])
    again = lf.Result.load(result.save(tmp_path / "run.npz"))
    assert_same(result, again)
    assert again.algorithm == result.algorithm
    assert again.problem == PROBLEM
    assert again.problem.classes_per_client == tuple(OWN)
    assert type(again.final) is type(result.final)
    assert isinstance(again.final, FedRoDState) == (name == "FedRoD")
    assert np.array_equal(again.per_client("accuracy"), result.per_client("accuracy"))
    assert again.summary() == result.summary()
    assert again.floats_sent.tolist() == result.floats_sent.tolist()


def test_what_is_said_of_a_result():
    result = run()
    said = result.summary()
    assert said.startswith("GeneralFLUTE(rank=2, step_size=0.2, local_steps=2, ")
    assert "\nClasses(n_clients=5, n_classes=4, " in said
    for name in (*ALL, "subspace_distance"):
        assert re.search(rf"^{name} +\d", said, re.MULTILINE), name
    page = result._repr_html_()
    assert "Classes(n_clients=5" in page
    assert "accuracy" in page
    assert "<svg" in page


def test_accuracies_are_drawn_on_a_linear_axis():
    result = run(trials=3)
    axes = {name: result.plot(name) for name in ("accuracy", "test_loss")}
    assert {name: ax.get_yscale() for name, ax in axes.items()} == {"accuracy": "linear", "test_loss": "log"}
    assert axes["accuracy"].get_ylabel() == "accuracy"
    np.testing.assert_allclose(axes["accuracy"].lines[0].get_ydata(), np.median(result.metrics["accuracy"], axis=0))
    plt.close("all")


def own_accuracy(state, truth):
    """A user's own share of each trial."""
    return np.full(len(state.W), 0.5)


def test_an_accuracy_of_a_loaded_table_is_drawn_like_that_of_a_run(tmp_path):
    cell = lf.Run(
        algorithm=FLUTE, problem=PROBLEM, data=DATA, rounds=3, trials=6, metrics=["accuracy", "test_loss", own_accuracy]
    )
    table = lf.Table.load(lf.sweep([cell]).save(tmp_path / "table.npz"))
    scales = {}
    for name in ("accuracy", "test_loss", "own_accuracy"):
        with lf.panels(table) as sheet:
            lf.plot_curves(sheet.axes[0, 0], table, "round", name, by="algorithm")
        scales[name] = sheet.axes[0, 0].get_yscale()
    assert scales == {"accuracy": "linear", "test_loss": "log", "own_accuracy": "linear"}
    best = {name: table.summarize(name, rows="algorithm").best for name in scales}
    assert best == {"accuracy": "largest", "test_loss": "smallest", "own_accuracy": "largest"}
    result = cell.simulate()
    result.save(tmp_path / "run.npz")
    ax = lf.Result.load(tmp_path / "run.npz").plot("own_accuracy")
    assert (ax.get_yscale(), ax.get_ylabel()) == ("linear", "own accuracy")
    plt.close("all")


@pytest.mark.long
def test_trials_in_workers_are_those_of_one_process():
    for data in (DATA, lf.FreshSamples(9)):
        one, other = (run(data=data, participation=0.6, trials=4, workers=workers) for workers in (1, 2))
        assert_same(one, other)


@pytest.mark.long
def test_a_sweep_of_classes_is_the_same_in_workers():
    cell = lf.Run(algorithm=FLUTE, problem=PROBLEM, data=DATA, rounds=3, trials=2)
    axes = {"algorithm": (FLUTE, LEARNERS["FedRoD"]), "problem.classes_per_client": (1, 3)}
    alone, two = (lf.sweep(lf.grid(cell, **axes), workers=workers) for workers in (1, 2))
    assert len(alone) == len(two) == 4
    for row, twin in zip(alone.rows, two.rows, strict=True):
        assert row.keys() == twin.keys()
        for name in ALL:
            assert row[name].values.tobytes() == twin[name].values.tobytes()
    with lf.panels(alone, column="problem.classes_per_client") as sheet:
        sheet.curves("round", "accuracy", by="algorithm")
    assert {ax.get_yscale() for ax in sheet.axes.ravel()} == {"linear"}
    plt.close(sheet.figure)


def test_tuning_makes_no_accuracy_small():
    fedper = lf.FedPer(rank=2, step_size=0.1)
    search = {"grid": {"step_size": (0.01, 1.0, 1e250)}, "trials": 2}
    where = {"data": DATA, "rounds": 20}
    wanted = ["metric = 'accuracy'", "larger values are better", "'test_loss'"]
    for score in ("area", "final", lf.RoundsTo(0.5), lambda rounds, curve: 1 - curve[-1]):
        own = {"metric": "accuracy", "score": score}
        assert_one_line(lambda own=own: lf.tune(fedper, PROBLEM, **search, **own, **where), wanted)
        assert_one_line(lambda own=own: lf.Tuned(base=fedper, **search, **own), wanted)

    def error(result):
        return 1 - result.per_client("accuracy").mean(axis=1)

    for metric in (error, "test_loss"):
        found = lf.tune(fedper, PROBLEM, metric=metric, score="final", **search, **where)
        assert found.algorithm.step_size == 1.0


# --- theory --------------------------------------------------------------------------------------------------


@each("name", [*LEARNERS, *WITHOUT_B])
def test_no_law_is_known_of_classes(name):
    algorithm = (LEARNERS | WITHOUT_B)[name]
    wanted = ["no prediction is available for 4 classes"]
    assert_one_line(lambda: lf.predict(algorithm, PROBLEM, data=DATA, rounds=3), wanted, lf.NoPredictionError)
    assert_one_line(lambda: lf.predict(run(algorithm)), wanted, lf.NoPredictionError)


def test_no_law_is_known_of_gradient_steps_alone():
    problem = lf.SharedRepresentation(n_clients=5, dim=6, rank=2)
    assert_one_line(
        lambda: lf.predict(lf.LocalOnly(step_size=0.1), problem, data=lf.FixedSamples(20), rounds=3),
        ["LocalOnly", "step_size = 0.1", "least squares"],
        lf.NoPredictionError,
    )


def test_engines_but_rows_refuse_fixed_samples_of_classes():
    why = {"projected": "fixed samples are used at more than one B"}
    for engine in ("compressed", "projected", "chain"):
        wanted = [f"engine = '{engine}' does not support", why.get(engine, "it does not support classification")]
        assert_one_line(lambda engine=engine: run(engine=engine), wanted)
    assert run().engine == "explicit"
    assert_one_line(lambda: run(data=lf.FixedSamples(9, in_law=True)), ["in_law = True does not support this run"])


def test_given_numbers_do_not_go_with_classes():
    given = lf.GivenSamples(np.zeros((5, 3, 6)), np.zeros((5, 3)))
    assert_one_line(lambda: run(data=given), ["problem has 4 classes", "data has regression labels"])


def test_moments_are_of_squares():
    algorithm = lf.FedRep(rank=2, step_size=0.2, heads=lf.GradientHeads())
    assert_one_line(lambda: run(algorithm), ["the method of moments) supports only regression", "use init = 'random'"])


def test_new_clients_of_classes_are_refused_whatever_the_problem():
    squares = lf.SharedRepresentation(n_clients=4, dim=6, rank=2)
    for problem in (None, squares, PROBLEM):
        wanted = ["new_clients() supports only regression"]
        assert_one_line(lambda problem=problem: run().new_clients([5], problem=problem), wanted)
    of_squares = lf.simulate(lf.FedPer(rank=2, step_size=0.1), squares, data=lf.FixedSamples(9), rounds=1)
    assert_one_line(lambda: of_squares.new_clients([5], problem=PROBLEM), ["new_clients() supports only regression"])


def test_heads_of_classes_are_not_rotated():
    algorithm = lf.FedRep(rank=2, step_size=0.2, init="random", heads=lf.GradientHeads(), rotate_heads=True)
    assert_one_line(lambda: run(algorithm), ["rotate_heads = True supports only regression", "4 classes"])


def test_the_estimate_counts_every_trials_copy():
    X, labels = np.zeros((9, 20, 6)), np.arange(180).reshape(9, 20) % 4
    data = lf.GivenClasses(X, labels, test=(np.zeros((9, 50, 6)), labels[:, :1] + np.zeros((9, 50))))
    sizes = Sizes(n_clients=9, dim=6, participants=9, rounds=1, features=0)
    assert data.floats_per_trial(sizes) >= 9 * (20 + 50) * 7


def test_clients_are_asked_of_runs_with_schedules_and_given_participants():
    steps, who = np.linspace(0.3, 0.1, 4), np.tile([[0, 2, 3]], (4, 1))
    result = run(lf.GeneralFLUTE(rank=2, step_size=steps), rounds=4, participation=who)
    for metric in ("accuracy", "global_nc2"):
        assert np.allclose(result.per_client(metric).mean(axis=1), result.metrics[metric][:, -1], rtol=1e-12)


@pytest.mark.parametrize("data", ["Gaussian classes", pytest.param("digits", marks=pytest.mark.long)])
def test_all_methods_of_a_contest_begin_at_one_model(data):
    """The same B and the same head, which is none of 0, in every trial; Local only has neither."""
    module = load("flute-classification", EXPERIMENTS)
    cells = {cell.method: cell for cell in module.cells(True)["runs"] if cell.data == data}  # of the last setting
    assert set(cells) == set(module.METHODS)
    del cells["LocalOnly"]
    begin = {}
    for method, cell in cells.items():
        problem, data = cell.source(2, 7)
        state = next(iter(lf.iterate(cell.algorithm, problem, data=data, rounds=1, trials=2, seed=7))).after
        B = state.own[:, 0] if method == "LGFedAvg" else state.B
        begin[method] = B, np.unique(state.W, axis=1), state.for_prediction().predictors()
    first = begin["FLUTE"]
    assert first[1].shape[1] == 1
    assert np.abs(first[1][..., :-1]).min() > 0
    assert not first[1][..., -1].any()
    for method, found in begin.items():
        for one, other in zip(found[:2], first[:2], strict=True):
            assert np.array_equal(one, other), method
        np.testing.assert_allclose(*np.broadcast_arrays(found[2], first[2]), rtol=1e-12, err_msg=method)


def test_flute_star_meets_itself_without_its_penalty():
    module = load("flute-classification", EXPERIMENTS)
    cells = {cell.method: cell for cell in module.cells(False)["runs"]}
    pairs = {"FLUTE": "FLUTE, no NC", "FLUTE*": "FLUTE*, no NC"}
    for method, without in pairs.items():
        assert cells[method].algorithm == cells[without].algorithm
        penalties = [{point["collapse_penalty"] for point in cells[name].grid} for name in (method, without)]
        assert penalties == [{0.01, 0.1, 1.0}, {0.0}]
        assert {point["server_step_size"] for point in cells[without].grid} == {0.0}
        steps = [{point["step_size"] for point in cells[name].grid} for name in (method, without)]
        assert steps[0] == steps[1]
