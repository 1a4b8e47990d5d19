"""FedRep and FedAvg with medians: clients that send anything, a single client, and options that exclude each other."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line
from tests.worlds import draw_world, of_classes

MEDIANS = ["median", "geometric median"]


def corrupted(world, clients):
    """Return the samples, with labels of some clients that fit nothing."""
    rng = np.random.default_rng(1)
    y = [100 * rng.standard_normal(len(y_i)) if i in clients else y_i for i, y_i in enumerate(world.y)]
    return lf.GivenSamples(world.X, y)


@pytest.mark.long
@pytest.mark.parametrize("aggregate", MEDIANS)
def test_fedrep_learns_next_to_corrupted_clients(aggregate):
    world = draw_world([30] * 40, 8, 2, seed=5)
    run = {"problem": world.problem(), "data": corrupted(world, {0, 1, 2}), "n_rounds": 120}
    algorithm = {"rank": 2, "step_size": 0.3, "init": world.B}
    mean = lf.simulate(lf.FedRep(**algorithm), **run).metrics["subspace_distance"][0]
    robust = lf.simulate(lf.FedRep(aggregate=aggregate, **algorithm), **run).metrics["subspace_distance"][0]
    assert robust[-1] < 0.05 < 0.5 < mean[-1]


@pytest.mark.long
@pytest.mark.parametrize("aggregate", MEDIANS)
def test_fedavg_learns_next_to_corrupted_clients(aggregate):
    world = draw_world([30] * 40, 8, 1, seed=5)
    theta = np.ones(8)
    world.y = [X_i @ theta for X_i in world.X]
    run = {"data": corrupted(world, {0, 1, 2}), "n_rounds": 300, "metrics": []}
    mean, robust = (
        lf.simulate(lf.FedAvg(step_size=0.3, local_steps=3, aggregate=how), **run).final.S[0, 0]
        for how in ("mean", aggregate)
    )
    assert np.linalg.norm(robust - theta) < 0.3
    assert np.linalg.norm(mean - theta) > 1.0


@pytest.mark.parametrize("aggregate", MEDIANS)
def test_the_median_of_one_client_is_its_message(aggregate):
    world = draw_world([12], 5, 2, noise=0.3, seed=6)
    run = {"data": world.data(), "n_rounds": 5, "metrics": ["train_loss"]}
    for make in (
        lambda how: lf.FedRep(rank=2, step_size=0.2, init=world.B, representation_steps=2, aggregate=how),
        lambda how: lf.FedAvg(step_size=0.2, local_steps=2, aggregate=how),
        lambda how: lf.FedAvg(step_size=0.2, rank=2, init=world.B, aggregate=how),
    ):
        one, other = (lf.simulate(make(how), **run).final for how in ("mean", aggregate))
        for name, array in one.arrays().items():
            np.testing.assert_allclose(other.arrays()[name], array, rtol=0, atol=1e-13)


MEDIAN = {"rank": 2, "step_size": 0.1, "aggregate": "median"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lf.FedRep(**MEDIAN, weights=[1.0, 2.0]), ["aggregate = 'median'", "weights = None"]),
        (lambda: lf.FedRep(**MEDIAN, whiten="own"), ["aggregate = 'median'", "whiten = None"]),
        (lambda: lf.PrivateFedRep(**MEDIAN), ["aggregate = 'median'", "'mean'", "'sum'"]),
        (lambda: lf.CompressedFedRep(**MEDIAN, levels=3), ["aggregate = 'median'", "'mean'", "'sum'"]),
        (lambda: lf.FedAvg(step_size=0.1, aggregate="sum"), ["aggregate = 'sum'", "'geometric median'"]),
        (lambda: lf.FedAvg(step_size=0.1, aggregate="median", weights="samples"), ["'median'", "weights = 'samples'"]),
        (
            lambda: of_classes(lf.FedRep(heads=lf.GradientHeads(), init="random", **MEDIAN)),
            ["aggregate = 'median' supports only regression", "2 classes"],
        ),
    ],
)
def test_an_invalid_option_is_named(call, words):
    assert_one_line(call, words)
