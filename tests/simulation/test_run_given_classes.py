"""Runs on real data sets with classes: counts that differ from trial to trial, workers and files."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_same

datasets = pytest.importorskip("sklearn.datasets")
pytestmark = pytest.mark.long


LOADERS = {"wine": datasets.load_wine, "breast cancer": datasets.load_breast_cancer}
ALGORITHMS = {
    "FedRep": lf.FedRep(rank=2, step_size=0.3, init="random", heads=lf.GradientHeads(steps=5)),
    "FedAvg + FT": lf.FedAvg(
        rank=2, step_size=0.3, local_steps=5, weights="samples", fine_tune=lf.GradientHeads(steps=9)
    ),
    "General FLUTE": lf.GeneralFLUTE(rank=2, step_size=0.3, local_steps=5),
    "LocalOnly": lf.LocalOnly(step_size=0.3, local_steps=5),
}


def split(name, trials=3, seed=0, **wanted):
    """Return a data set with standardised columns, cut among six clients by Dirichlet's law: unequal counts."""
    X, labels = LOADERS[name](return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    clients = lf.dirichlet_split(labels, n_clients=6, concentration=1.0, trials=trials, seed=seed)
    return lf.GivenClasses.split(X, labels, clients, seed=seed, **wanted)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("name", LOADERS)
def test_given_arrays_are_learned(name, algorithm):
    data = split(name)
    assert np.ptp(data.counts, axis=0).min() > 0, "counts that differ from trial to trial"
    result = lf.simulate(algorithm, data=data, n_rounds=40, participation=0.5, trials=3, record_every=40)
    assert result.metrics["accuracy"][:, -1].min() > 0.9
    assert np.allclose(np.nanmean(result.per_client("accuracy"), axis=1), result.metrics["accuracy"][:, -1], rtol=1e-12)


def of_trial(samples, trial):
    """Return the samples of one trial as lists, without padding."""
    X, y, counts = (array[0] for array in samples.of_trials(range(trial, trial + 1)))
    return [X[i, : int(m)] for i, m in enumerate(counts)], [y[i, : int(m)] for i, m in enumerate(counts)]


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "General FLUTE"])  # its heads are drawn
def test_a_trial_is_what_it_is_alone_with_its_own_counts(name):
    algorithm, data = ALGORITHMS[name], split("wine")
    run = {"data": data, "n_rounds": 4, "trials": 3, "participation": 4}
    together = lf.simulate(algorithm, **run)
    first, *steps = lf.iterate(algorithm, **run)
    for trial in range(3):
        alone = lf.GivenClasses(*of_trial(data, trial), test=of_trial(data.test, trial), n_classes=3)
        participants = np.stack([step.batch.active[trial] for step in steps[:4]])
        (same,) = lf.grid(algorithm, init=[first.after.B[trial]]) if algorithm.learned_rank else [algorithm]
        result = lf.simulate(same, data=alone, n_rounds=4, participation=participants)
        assert set(result.metrics) == set(together.metrics)
        for metric, values in result.metrics.items():
            assert np.allclose(values[0], together.metrics[metric][trial], rtol=1e-9, equal_nan=True), metric


def test_workers_and_files_change_nothing(tmp_path):
    data = split("wine")
    run = {"data": data, "n_rounds": 3, "trials": 3, "participation": 3}
    result = lf.simulate(ALGORITHMS["General FLUTE"], **run)
    loaded = lf.Result.load(result.save(tmp_path / "run.npz"))
    for other in (lf.simulate(ALGORITHMS["General FLUTE"], workers=2, **run), loaded):
        assert_same(other, result)
        assert np.array_equal(result.per_client("local_nc2"), other.per_client("local_nc2"), equal_nan=True)
    assert (loaded.data.n_classes, loaded.data.test.n_classes) == (3, 3)
    assert np.array_equal(loaded.data.holds, data.holds)
    assert loaded.data.test.counts.shape == (3, 6)
