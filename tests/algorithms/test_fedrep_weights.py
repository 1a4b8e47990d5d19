"""FedRep with weights of clients: rounds of a loop, and weights that are relative."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, basis, normal

COUNTS, WEIGHTS = (7, 30, 6, 12, 9, 18), (1.0, 3.0, 0.5, 2.0, 0.3, 1.0)
PROBLEM = lf.GivenTruth(B=basis(8, 2, seed=20), W=normal(6, 2, seed=21), noise_std=(0.1, 0.2, 0.4, 0.8, 1.0, 0.3))


def fedrep(**more):
    return lf.FedRep(**{"rank": 2, "step_size": 0.3, "init": basis(8, 2, seed=23)} | more)


OPTIONS = {
    "exact": {},
    "gradient": {"heads": lf.GradientHeads(steps=2, step_size=0.2)},
    "ridge, sum": {"heads": lf.ExactHeads(ridge=0.1), "aggregate": "sum", "step_size": 0.05},
    "local steps": {"representation_steps": 3, "step_size": 0.1},
    "local steps, sum, no QR": {
        "representation_steps": 2, "step_size": 0.02, "aggregate": "sum", "orthonormalize": False,
    },
    "rotated": {"rotate_heads": True, "heads": lf.GradientHeads()},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_weighted_rounds_are_those_of_a_loop(name):
    data = lf.FixedSamples(12).draw(PROBLEM, seed=2)
    X, y = (list(part[0]) for part in (data.X, data.y))
    cut = [rows[:m] for rows, m in zip(X, COUNTS, strict=True)]
    for taken, engine in ((X, "explicit"), (X, "compressed"), (cut, "explicit")):
        labels = [one[: len(rows)] for one, rows in zip(y, taken, strict=True)]
        active = np.argsort(normal(8, 6, seed=5), axis=-1)[:, :4]
        run = {"data": lf.GivenSamples(taken, labels), "n_rounds": 8, "participation": active, "engine": engine}
        final = lf.simulate(fedrep(weights=WEIGHTS, **OPTIONS[name]), **run).final
        B, W = ref.fedrep(
            taken, labels, active, basis(8, 2, seed=23), weights=WEIGHTS, **{"step_size": 0.3} | OPTIONS[name]
        )[-1]
        assert np.abs(final.B[0] - B).max() < 1e-10
        assert np.abs(final.W[0] - W).max() < 1e-10
        scaled = lf.simulate(fedrep(weights=7.0 * np.array(WEIGHTS), **OPTIONS[name]), **run).final
        assert np.abs(scaled.B - final.B).max() < 1e-12


def test_relative_weights_have_mean_1():
    assert fedrep(weights=[1, 2, 6]).relative_weights.tolist() == [1 / 3, 2 / 3, 2.0]
    assert fedrep().relative_weights.tolist() == [1.0]
    assert_one_line(lambda: fedrep(weights=[1.0, 0.0]), ["weights = [1.0, 0.0]", "positive"])


@pytest.mark.parametrize("count", [5, 7])
def test_weights_of_other_clients_are_refused(count):
    run = {"data": lf.FixedSamples(12), "n_rounds": 1}
    wanted = [f"weights has {count} numbers", "n_clients = 6"]
    assert_one_line(lambda: lf.simulate(fedrep(weights=[1.0] * count), PROBLEM, **run), wanted)


def test_classes_take_weights():
    """The change of B is linear in the weights; equal weights are no weights."""
    classes = lf.Classes(n_clients=6, dim=8, n_classes=3, classes_per_client=2)
    options = {"rank": 2, "step_size": 0.2, "heads": lf.GradientHeads(), "orthonormalize": False, "init": "random"}
    first = np.array(WEIGHTS) / np.mean(WEIGHTS)

    def after(weights):
        return lf.simulate(lf.FedRep(weights=weights, **options), classes, data=lf.FixedSamples(20), n_rounds=1).final.B

    one, other, both = after(first), after(1.5 - 0.5 * first), after(0.75 + 0.25 * first)
    assert np.abs(one + other - 2 * both).max() < 1e-12
    assert np.abs(one - other).max() > 1e-3
    assert np.array_equal(after(np.ones(6)), after([3.0] * 6))
    assert np.abs(after(np.ones(6)) - after(None)).max() < 1e-14


def test_near_the_truth_weighted_rounds_keep_their_digits():
    """Messages of exact heads do not cancel, so the distance falls to the rounding error of B."""
    run = {
        "data": lf.FreshSamples((12, 30, 10, 12, 9, 18)),
        "n_rounds": 120,
        "seed": 1,
        "metrics": ["subspace_distance"],
    }
    algorithm = fedrep(weights=WEIGHTS, step_size=0.5, init=lf.AtDistance(0.1))
    heads = np.sqrt(2) * np.stack([[np.cos(a), np.sin(a)] for a in np.arange(6) * np.pi / 6])
    here = lf.GivenTruth(B=basis(8, 2, seed=20), W=heads)
    assert lf.simulate(algorithm, here, engine="chain", **run).metrics["subspace_distance"][0, -1] < 1e-18
    assert lf.simulate(algorithm, here, engine="projected", **run).metrics["subspace_distance"][0, -1] < 1e-14
