"""Tuning where the step sizes of a grid are unstable, or where larger values of a metric are better."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, basis, normal

N, M, D, K = 20, 30, 8, 2


def samples(factor=1.0, noise=0.1):
    X, B, W = normal(N, M, D), basis(D, K, seed=1), normal(N, K, seed=2)
    return X, factor * (np.einsum("nmd,dk,nk->nm", X, B, W) + noise * normal(N, M, seed=3))


def given(factor=1.0, **more):
    return lf.GivenSamples(*samples(factor, **more))


def test_tuning_finds_the_step_for_labels_of_another_unit():
    search = {"grid": {"step_size": (0.1, 0.3, 0.9)}, "rounds": 60, "metric": "train_loss", "extend": True, "trials": 1}
    losses = []
    for factor in (1.0, 1000.0):
        found = lf.tune(lf.FedRep(rank=K, step_size=0.1), data=given(factor), **search)
        losses.append(
            lf.simulate(found.algorithm, data=given(factor), rounds=60).metrics["train_loss"][0, -1] / factor**2
        )
    assert losses[1] < 1.1 * losses[0]
    assert found.at_grid_edge == ()
    assert np.isinf(found.scores[:3]).all()


def test_a_grid_of_unstable_steps_is_an_error():
    search = {"grid": {"step_size": (0.1, 0.3)}, "rounds": 60, "metric": "train_loss", "trials": 1}
    with pytest.raises(ValueError, match="every setting of the grid diverged"):
        lf.tune(lf.FedRep(rank=K, step_size=0.1), data=given(1000.0), **search)


def test_an_accuracy_is_not_made_small():
    problem = lf.Classes(n_clients=5, n_classes=4, classes_per_client=[1, 2, 3, 4, 2], dim=6, rank=2, test_samples=15)
    fedper = lf.FedPer(rank=2, step_size=0.1)
    search = {"grid": {"step_size": (0.01, 1.0, 1e250)}, "trials": 2}
    where = {"data": lf.FixedSamples(9), "rounds": 20}
    wanted = ["metric = 'accuracy'", "larger values are better", "'test_loss'"]
    for score in ("area", "final", lf.RoundsTo(0.5), lambda rounds, curve: 1 - curve[-1]):
        own = {"metric": "accuracy", "score": score}
        assert_one_line(lambda own=own: lf.tune(fedper, problem, **search, **own, **where), wanted)
        assert_one_line(lambda own=own: lf.Tuned(base=fedper, **search, **own), wanted)

    def error(result):
        return 1 - result.per_client("accuracy").mean(axis=1)

    for metric in (error, "test_loss"):
        found = lf.tune(fedper, problem, metric=metric, score="final", **search, **where)
        assert found.algorithm.step_size == 1.0
