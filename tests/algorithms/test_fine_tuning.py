"""Fine-tuning of all layers after the last round, against loops over clients."""

from __future__ import annotations

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.fine_tuning import tuned_floats
from tests import references as ref
from tests.algorithms.test_personal_models import CLASSES
from tests.helpers import each
from tests.worlds import draw_world

TUNING = lf.AllLayers(steps=4, step_size=0.15)
COMMON = {"step_size": 0.1, "local_steps": 2, "fine_tune": TUNING}
GLOBAL = {
    **{
        f"{kind.__name__}, {'two layers' if rank else 'one layer'}": kind(**COMMON, **more, rank=rank)
        for kind, more in (
            (lf.FedAvg, {}),
            (lf.FedProx, {"mu": 0.5}),
            (lf.SCAFFOLD, {}),
            (lf.FedVARP, {}),
            (lf.ClusterFedVARP, {"clusters": 2}),
            (lf.FedRolex, {"model_share": 1.0}),
            (lf.FedSCAVAR, {"clusters": 2, "mu": 0.5, "model_share": 1.0}),
        )
        for rank in (None, 2)
    },
    "FedBABU": lf.FedBABU(rank=2, head=[0.8, -0.5], **COMMON),
}


def tuned(B, w, X, y, tuning, step_size):
    """Return each client's predictor after its steps from theta (B None) or from (B, w)."""
    out = []
    for X_i, y_i in zip(X, y, strict=True):
        theta, B_i, w_i = w, B, w
        for _ in range(tuning.steps):
            if B is None:
                theta = theta - step_size * ref.gradient(X_i, y_i, theta)
            else:
                B_i, w_i = ref.two_layer_steps(X_i, y_i, B_i, w_i, step_size, 1)
        out.append(theta if B is None else B_i @ w_i)
    return np.array(out)


def server(state):
    """Return B and w, or None and theta, of a state whose model all clients share."""
    return (None, state.S[0, 0]) if state.B is None else (state.B[0], state.W[0, 0])


@pytest.mark.parametrize("counts", [[6] * 5, [3, 12, 5, 7, 2]], ids=str)
@each("name", GLOBAL)
def test_fine_tuning_of_all_layers_is_the_loop(name, counts):
    algorithm, world = GLOBAL[name], draw_world(counts, 7, 2, noise=0.3)
    *_, before, after = lf.iterate(algorithm, data=world.data(), rounds=3, participation=3)
    wanted = tuned(*server(before.after), world.X, world.y, TUNING, 0.15)
    np.testing.assert_allclose(after.after.predictors()[0], wanted, rtol=0, atol=1e-10)
    assert np.ptp(wanted, axis=0).max() > 0.01


@pytest.mark.parametrize("name", [name for name in GLOBAL if "FedAvg" in name or "BABU" in name])
def test_new_clients_take_the_same_steps_from_the_servers_model(name):
    algorithm, world, new = GLOBAL[name], draw_world([6] * 4, 7, 2, noise=0.3), draw_world([9] * 3, 7, 2, seed=4)
    result = lf.simulate(algorithm, data=world.data(), rounds=3)
    *_, before, _ = lf.iterate(algorithm, data=world.data(), rounds=3)
    adapted = result.adapt(np.array(new.X), np.array(new.y))
    wanted = tuned(*server(before.after), new.X, new.y, TUNING, 0.15)
    np.testing.assert_allclose(adapted.predictors()[0], wanted, rtol=0, atol=1e-10)


def test_the_default_step_size_is_that_of_the_last_round():
    world, steps = draw_world([6] * 4, 7, 2, noise=0.3), (0.3, 0.2, 0.05)
    algorithm = lf.FedAvg(step_size=steps, fine_tune=lf.AllLayers(steps=3))
    *_, before, after = lf.iterate(algorithm, data=world.data(), rounds=3)
    wanted = tuned(*server(before.after), world.X, world.y, lf.AllLayers(steps=3), 0.05)
    np.testing.assert_allclose(after.after.S[0], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rank", [None, 2])
def test_many_steps_end_at_each_clients_least_squares_and_one_tiny_step_at_the_common_model(rank):
    world = draw_world([20] * 4, 5, 2, noise=0.3)
    plain = lf.simulate(lf.FedAvg(step_size=0.1, rank=rank), data=world.data(), rounds=5)
    for steps, step_size, wanted in (
        (5000, 0.1, lf.simulate(lf.LocalOnly(), data=world.data(), rounds=1).final.predictors()),
        (1, 1e-14, plain.final.predictors()),
    ):
        tuning = lf.AllLayers(steps=steps, step_size=step_size)
        algorithm = lf.FedAvg(step_size=0.1, rank=rank, fine_tune=tuning)
        final = lf.simulate(algorithm, data=world.data(), rounds=5).final
        np.testing.assert_allclose(final.predictors(), np.broadcast_to(wanted, (1, 4, 5)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("rank", [None, 2])
def test_classes_are_fine_tuned_by_cross_entropy(rank):
    run = {"data": lf.FixedSamples(12), "rounds": 3}
    common = {"step_size": 0.3, "rank": rank}
    one = lf.simulate(lf.FedAvg(**common), CLASSES, **run, metrics=["train_loss"])
    two = lf.simulate(lf.FedAvg(**common, fine_tune=lf.AllLayers()), CLASSES, **run, metrics=["train_loss"])
    assert two.metrics["train_loss"][0, -1] < 0.8 * one.metrics["train_loss"][0, -1]
    assert two.final.predictors().shape == (1, 5, 3, one.final.predictors().shape[-1])


def test_a_diverged_trial_does_not_spoil_the_others():
    world = draw_world([6] * 4, 7, 2, noise=0.3)
    X, y = np.array(world.X), np.array(world.y)
    huge = lf.GivenSamples(np.array([X, 1e200 * X]), np.array([y, y]))
    algorithm = lf.FedAvg(step_size=0.1, fine_tune=TUNING)
    both = lf.simulate(algorithm, data=huge, rounds=3, trials=2)
    assert [status.name for status in both.status] == ["COMPLETED", "DIVERGED"]
    alone = lf.simulate(algorithm, data=world.data(), rounds=3)
    np.testing.assert_array_equal(both.final.S[0], alone.final.S[0])


def test_a_result_is_saved_and_loaded_with_the_servers_model(tmp_path):
    world = draw_world([6] * 4, 7, 2, noise=0.3)
    result = lf.simulate(GLOBAL["FedAvg, one layer"], data=world.data(), rounds=3)
    result.save(tmp_path / "run.npz")
    loaded = lf.Result.load(tmp_path / "run.npz")
    assert loaded.algorithm == result.algorithm
    np.testing.assert_array_equal(loaded.final.shared, result.final.shared)


def test_no_prediction_of_a_fine_tuned_model():
    problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2)
    with pytest.raises(lf.NoPredictionError, match="fine_tune"):
        lf.predict(GLOBAL["FedAvg, one layer"], problem, data=lf.FixedSamples(9), rounds=3)


def test_fine_tuned_models_are_counted():
    """Of each client a head, or three times the parameters of its model with a bias."""
    sizes = {"rank": 2, "dim": 5}
    assert tuned_floats(None, 7, **sizes) == 0
    assert tuned_floats(lf.ExactHeads(), 7, **sizes) == 7 * 2
    assert tuned_floats(lf.AllLayers(), 7, **sizes) == 7 * 3 * 2 * 6
    assert tuned_floats(lf.AllLayers(), 7, rank=0, dim=5) == 7 * 3 * 6
