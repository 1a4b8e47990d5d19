"""Metrics of classification: accuracies, losses and neural collapse."""

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.streams import Stream, generators
from linfed.simulation.class_metrics import mean_of_those
from tests.algorithms import class_references as ref
from tests.helpers import assert_one_line

OWN = [1, 2, 3, 4, 2]
PROBLEM = lf.Classes(n_clients=5, n_classes=4, classes_per_client=OWN, dim=6, rank=2, test_samples=15)
DATA = lf.FixedSamples(9)
FLUTE = lf.GeneralFLUTE(rank=2, step_size=0.2, local_steps=2)
ALL = ["accuracy", "own_class_accuracy", "train_accuracy", "train_loss", "test_loss", "global_nc2", "local_nc2"]
LEARNERS = {
    "FLUTE": FLUTE,
    "FedAvg, fine-tuned": lf.FedAvg(rank=2, step_size=0.2, fine_tune=lf.GradientHeads(steps=3)),
    "FedRoD": lf.FedRoD(rank=2, step_size=0.2),
}
WITHOUT_B = {
    "FedAvg": lf.FedAvg(step_size=0.2),
    "LG-FedAvg": lf.LGFedAvg(rank=2, step_size=0.2),
    "local": lf.LocalOnly(step_size=0.2),
}


def run(algorithm=FLUTE, problem=PROBLEM, **changes):
    return lf.simulate(algorithm, problem, **{"data": DATA, "n_rounds": 6, "trials": 2, "seed": 4} | changes)


def training():
    """Return training and held-out samples, X (trials, n, m, d) and labels, and the classes of each client."""
    *_, last = lf.iterate(FLUTE, PROBLEM, data=DATA, n_rounds=1, trials=2, seed=4)
    truth = PROBLEM.truth(4, range(2))
    held_out = truth.draw(generators(4, Stream.TEST, range(2)), truth.holds, PROBLEM.test_samples)
    return (last.batch.X[..., :-1].copy(), last.batch.y.copy()), held_out, truth.holds


@pytest.mark.parametrize("name", [*LEARNERS, *WITHOUT_B])
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
    metrics = run(WITHOUT_B["FedAvg"], n_rounds=40).metrics
    assert (metrics["own_class_accuracy"] >= metrics["accuracy"]).all()
    assert (metrics["own_class_accuracy"] > metrics["accuracy"] + 0.02)[:, -1].all()


def test_which_metrics_there_are_by_default():
    assert set(run().metrics) == {*ALL, "subspace_distance"}
    assert set(run(WITHOUT_B["FedAvg"]).metrics) == set(ALL[:5])
    fresh = run(data=lf.FreshSamples(9)).metrics
    assert set(fresh) == {*ALL, "subspace_distance"} - {"train_accuracy", "train_loss"}


ABSENT = {
    "heads without a shared representation": ("global_nc2", WITHOUT_B["LG-FedAvg"], DATA, "shared representation"),
    "no representation": ("local_nc2", WITHOUT_B["FedAvg"], DATA, "shared representation"),
    "no subspace": ("subspace_distance", WITHOUT_B["local"], DATA, "no representation B"),
    "fresh samples": ("train_accuracy", FLUTE, lf.FreshSamples(9), "fresh in every round"),
    "fresh samples have a test loss": ("train_loss", FLUTE, lf.FreshSamples(9), "'test_loss' or 'accuracy'"),
    "risk": ("risk", FLUTE, DATA, "only for regression, but the samples have 4 classes"),
    "parameter error": ("parameter_error", FLUTE, DATA, "only for regression"),
    "client error": ("mean_client_error", FLUTE, DATA, "only for regression"),
    "truncation error": ("mean_truncation_error", FLUTE, DATA, "only for regression"),
}


@pytest.mark.parametrize("case", ABSENT)
def test_a_metric_that_is_absent_says_why(case):
    name, algorithm, data, why = ABSENT[case]
    result = run(algorithm, data=data)
    assert_one_line(lambda: result.metrics[name], [why], KeyError)
    assert_one_line(lambda: run(algorithm, data=data, metrics=[name]), [name, why])
    if name not in ("subspace_distance", "parameter_error", "mean_truncation_error"):
        assert_one_line(lambda: result.per_client(name), [name, why])


def test_regression_has_no_accuracy():
    problem = lf.SharedRepresentation(n_clients=5, dim=6, rank=2)
    result = lf.simulate(lf.FedAvg(step_size=0.1), problem, data=DATA, n_rounds=1)
    for name in ("accuracy", "own_class_accuracy", "train_accuracy", "global_nc2", "local_nc2"):
        assert_one_line(lambda name=name: result.metrics[name], ["only for classification"], KeyError)
    assert_one_line(lambda: result.per_client("accuracy"), ["accuracy", "only for classification"])
    assert_one_line(lambda: run().per_client("acuracy"), ["'acuracy'", "did you mean 'accuracy'"])


def test_a_function_sees_classes_and_cannot_change_them():
    def means_of(state, truth):
        assert state.classes == 4
        for array in (truth.means, truth.holds):
            with pytest.raises(ValueError, match="read-only"):
                array[:] = 0
        return np.linalg.norm(truth.means, axis=(1, 2))

    found = run(metrics=[means_of]).metrics["means_of"]
    np.testing.assert_allclose(found, PROBLEM.separation * 2)  # the root of the sum over four classes


def test_a_mean_is_over_those_with_a_value():
    found = mean_of_those(np.array([[1.0, np.nan, 4.0], [np.nan] * 3, [0.0, 0.0, 3.0]]))
    np.testing.assert_array_equal(found, [2.5, np.nan, 1.0])
