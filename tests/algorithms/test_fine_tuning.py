"""Fine-tuning after the last round: the steps of clients, and how the loop, its records and results treat them."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.fine_tuning import tuned_floats
from linfed.numerics.streams import Stream, generators
from linfed.simulation import job
from tests import references as ref
from tests.helpers import assert_same, normal
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


@pytest.mark.parametrize("name", GLOBAL)
def test_fine_tuning_of_all_layers_is_the_loop(name):
    counts = [6] * 5 if name.startswith("FedAvg") else [3, 12, 5, 7, 2]
    algorithm, world = GLOBAL[name], draw_world(counts, 7, 2, noise=0.3)
    *_, before, after = lf.iterate(algorithm, data=world.data(), n_rounds=3, participation=3)
    wanted = tuned(*server(before.after), world.X, world.y, TUNING, 0.15)
    np.testing.assert_allclose(after.after.predictors()[0], wanted, rtol=0, atol=1e-10)
    assert np.ptp(wanted, axis=0).max() > 0.01


@pytest.mark.parametrize("name", [name for name in GLOBAL if "FedAvg" in name or "BABU" in name])
def test_new_clients_take_the_same_steps_from_the_servers_model(name):
    algorithm, world, new = GLOBAL[name], draw_world([6] * 4, 7, 2, noise=0.3), draw_world([9] * 3, 7, 2, seed=4)
    result = lf.simulate(algorithm, data=world.data(), n_rounds=3)
    *_, before, _ = lf.iterate(algorithm, data=world.data(), n_rounds=3)
    adapted = result.adapt(np.array(new.X), np.array(new.y))
    wanted = tuned(*server(before.after), new.X, new.y, TUNING, 0.15)
    np.testing.assert_allclose(adapted.predictors()[0], wanted, rtol=0, atol=1e-10)


def test_the_default_step_size_is_that_of_the_last_round():
    world, steps = draw_world([6] * 4, 7, 2, noise=0.3), (0.3, 0.2, 0.05)
    algorithm = lf.FedAvg(step_size=steps, fine_tune=lf.AllLayers(steps=3))
    *_, before, after = lf.iterate(algorithm, data=world.data(), n_rounds=3)
    wanted = tuned(*server(before.after), world.X, world.y, lf.AllLayers(steps=3), 0.05)
    np.testing.assert_allclose(after.after.S[0], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("rank", [None, 2])
def test_many_steps_end_at_each_clients_least_squares_and_one_tiny_step_at_the_common_model(rank):
    world = draw_world([20] * 4, 5, 2, noise=0.3)
    plain = lf.simulate(lf.FedAvg(step_size=0.1, rank=rank), data=world.data(), n_rounds=5)
    for steps, step_size, wanted in (
        (5000, 0.1, lf.simulate(lf.LocalOnly(), data=world.data(), n_rounds=1).final.predictors()),
        (1, 1e-14, plain.final.predictors()),
    ):
        tuning = lf.AllLayers(steps=steps, step_size=step_size)
        algorithm = lf.FedAvg(step_size=0.1, rank=rank, fine_tune=tuning)
        final = lf.simulate(algorithm, data=world.data(), n_rounds=5).final
        np.testing.assert_allclose(final.predictors(), np.broadcast_to(wanted, (1, 4, 5)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("rank", [None, 2])
def test_classes_are_fine_tuned_by_cross_entropy(rank):
    classes = lf.Classes(n_clients=5, n_classes=3, classes_per_client=2, dim=6)
    run = {"data": lf.FixedSamples(12), "n_rounds": 3}
    common = {"step_size": 0.3, "rank": rank}
    one = lf.simulate(lf.FedAvg(**common), classes, **run, metrics=["train_loss"])
    two = lf.simulate(lf.FedAvg(**common, fine_tune=lf.AllLayers()), classes, **run, metrics=["train_loss"])
    assert two.metrics["train_loss"][0, -1] < 0.8 * one.metrics["train_loss"][0, -1]
    assert two.final.predictors().shape == (1, 5, 3, one.final.predictors().shape[-1])


def test_a_diverged_trial_does_not_spoil_the_others():
    world = draw_world([6] * 4, 7, 2, noise=0.3)
    X, y = np.array(world.X), np.array(world.y)
    huge = lf.GivenSamples(np.array([X, 1e200 * X]), np.array([y, y]))
    algorithm = lf.FedAvg(step_size=0.1, fine_tune=TUNING)
    both = lf.simulate(algorithm, data=huge, n_rounds=3, trials=2)
    assert [status.name for status in both.status] == ["COMPLETED", "DIVERGED"]
    alone = lf.simulate(algorithm, data=world.data(), n_rounds=3)
    np.testing.assert_array_equal(both.final.S[0], alone.final.S[0])


def test_no_prediction_of_a_fine_tuned_model():
    problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2)
    with pytest.raises(lf.NoPredictionError, match="fine_tune"):
        lf.predict(GLOBAL["FedAvg, one layer"], problem, data=lf.FixedSamples(9), n_rounds=3)


def test_fine_tuned_models_are_counted():
    """Of each client a head, or three times the parameters of its model with a bias."""
    sizes = {"rank": 2, "dim": 5}
    assert tuned_floats(None, 7, **sizes) == 0
    assert tuned_floats(lf.ExactHeads(), 7, **sizes) == 7 * 2
    assert tuned_floats(lf.AllLayers(), 7, **sizes) == 7 * 3 * 2 * 6
    assert tuned_floats(lf.AllLayers(), 7, rank=0, dim=5) == 7 * 3 * 6


# --- the round after the last one ----------------------------------------------------------------------------

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=5, rank=2, noise_std=0.1)


def run(algorithm, data=None, **changes):
    arguments = {"n_rounds": 4, "participation": 0.5, "trials": 2, "seed": 3} | changes
    return lf.simulate(algorithm, PROBLEM, data=data or lf.FixedSamples(4), **arguments)


TUNED = {
    "gradient": lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.GradientHeads(steps=4)),
    "exact": lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.ExactHeads()),
}


def plain(algorithm):
    return lf.FedAvg(step_size=algorithm.step_size, rank=algorithm.rank, init=algorithm.init)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_fresh_samples_of_the_fine_tuning_come_from_streams_of_their_own(noise):
    problem = lf.SharedRepresentation(n_clients=5, dim=7, rank=2, noise_std=noise, design="cube")
    algorithm = lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.ExactHeads())
    run = {"data": lf.FreshSamples(4), "n_rounds": 6, "participation": 3, "trials": 2, "seed": (4, 1)}
    *rounds, X = [step.batch.X.copy() for step in lf.iterate(algorithm, problem, **run) if step.number]
    *_, last = lf.iterate(algorithm, problem, **run)
    assert len(rounds) == 6
    assert not any(np.isin(one, X).any() for one in rounds)
    assert np.array_equal(last.batch.active, np.tile(np.arange(5), (2, 1)))
    for t, Phi in enumerate(problem.truth((4, 1), range(2)).dense()):
        (x_rng,), (noise_rng,) = (generators((4, 1), s, [t]) for s in (Stream.FINISH_X, Stream.FINISH_NOISE))
        rows = np.empty((5, 4, 7))
        problem.design.fill(x_rng, rows)
        assert np.array_equal(X[t], rows)
        labels = np.vecdot(rows, Phi[:, None]) + noise * noise_rng.standard_normal((5, 4))
        np.testing.assert_allclose(last.batch.y[t], labels, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("how", "data", "rounds", "every", "recorded"),
    [
        ("gradient", lf.FreshSamples(4), 4, 1, [0, 1, 2, 3, 4, 5]),
        ("exact", lf.FreshSamples(4), 7, 3, [0, 3, 6, 7, 8]),
        ("gradient", lf.FixedSamples(4), 5, 3, [0, 3, 5, 6]),
        ("exact", lf.FixedSamples(4), 2, 9, [0, 2, 3]),
        ("exact", lf.FixedSamples(4), 0, 1, [0, 1]),
    ],
)
def test_fine_tuning_is_one_more_round_and_leaves_the_others_alone(how, data, rounds, every, recorded):
    setting = {"n_rounds": rounds, "record_every": every, "participation": 0.4}
    tuned, without = (run(each, data, **setting) for each in (TUNED[how], plain(TUNED[how])))
    assert tuned.rounds.tolist() == recorded
    assert without.rounds.tolist() == recorded[:-1]
    assert tuned.status == [lf.Status.COMPLETED] * 2
    assert tuned.status_round.tolist() == [rounds] * 2
    assert np.array_equal(tuned.final.B, without.final.B)
    assert (tuned.final.W.shape, without.final.W.shape) == ((2, 6, 2), (2, 1, 2))
    for name, values in tuned.metrics.items():
        assert np.array_equal(values[:, :-1], without.metrics[name])
        assert (values[:, -1] != values[:, -2]).all() == (name != "subspace_distance")
    error = np.linalg.norm(tuned.final.predictors() - PROBLEM.truth(3, range(2)).dense(), axis=(1, 2))
    np.testing.assert_allclose(tuned.metrics["parameter_error"][:, -1], error, rtol=1e-10)


def wild(**more):
    """Return a run of three trials of which the second has samples that are far too large."""
    factor = np.array([1.0, 100.0, 1.0])[:, None, None, None]
    X, B, W = factor * normal(3, 5, 6, 4), normal(3, 4, 2, seed=1), normal(3, 5, 2, seed=2)
    data = lf.GivenSamples(X, np.einsum("tnmd,tdk,tnk->tnm", X, B, W))
    algorithm = lf.FedAvg(step_size=0.1, rank=2, init=normal(3, 4, 2, seed=3) / 2, **more)
    return lf.simulate(algorithm, lf.GivenTruth(B=B, W=W), data=data, n_rounds=25)


@pytest.mark.parametrize("how", [lf.GradientHeads(steps=10), lf.ExactHeads()], ids=["gradient", "exact"])
def test_a_trial_that_diverged_is_not_fine_tuned(how, monkeypatch):
    without, result = wild(), wild(fine_tune=how)
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)  # then every trial of one chunk has diverged
    assert_same(wild(fine_tune=how), result)
    assert result.status == without.status == [lf.Status.COMPLETED, lf.Status.DIVERGED, lf.Status.COMPLETED]
    assert result.status_round.tolist() == without.status_round.tolist()
    assert 1 < result.status_round[1] < 25
    assert np.array_equal(result.final.W[1], np.tile(without.final.W[1], (5, 1)))
    assert not np.isclose(result.final.W[[0, 2]], without.final.W[[0, 2]]).all(axis=-1).any()
    assert np.array_equal(result.final.B, without.final.B)
    for name, values in result.metrics.items():
        assert np.array_equal(values[:, :-1], without.metrics[name], equal_nan=True)
        assert np.isnan(values[:, -1]).tolist() == [False, True, False]


def test_a_run_whose_trials_all_diverge_ends_in_the_shapes_of_a_fine_tuned_one():
    algorithm = dataclasses.replace(TUNED["exact"], step_size=50.0)
    result = run(algorithm, n_rounds=200)
    assert result.status == [lf.Status.DIVERGED] * 2
    assert (result.status_round < 200).all()
    assert result.rounds[-1] == 201
    assert result.final.W.shape == (2, 6, 2)
    assert all(np.isfinite(array).all() for array in result.final.arrays().values())
    assert all(np.isnan(values[:, -1]).all() for values in result.metrics.values())
    assert "2 DIVERGED" in result.summary()


def test_fine_tuning_itself_may_diverge():
    result = run(dataclasses.replace(TUNED["gradient"], fine_tune=lf.GradientHeads(step_size=1e300)))
    without = run(plain(TUNED["gradient"]))
    assert result.status == [lf.Status.DIVERGED] * 2
    assert result.status_round.tolist() == [5, 5]
    assert np.array_equal(result.final.W, np.tile(without.final.W, (1, 6, 1)))
    for name, values in result.metrics.items():
        assert np.array_equal(values[:, :-1], without.metrics[name])
        assert np.isnan(values[:, -1]).all()


def test_dependent_features_at_the_end_are_an_outcome():
    B = np.outer(normal(5), [1.0, 2.0])
    result = run(dataclasses.replace(TUNED["exact"], init=B), n_rounds=0)
    assert result.status == [lf.Status.SINGULAR_HEAD] * 2
    assert result.status_round.tolist() == [1, 1]


def test_the_text_tells_of_fine_tuning_apart_from_the_rounds():
    tuned, without = run(TUNED["exact"]), run(plain(TUNED["exact"]))
    assert "2 trials of 4 rounds and fine-tuning, 3 clients a round" in tuned.summary()
    assert repr(tuned) == "<Result of FedAvg: 2 trials, 4 rounds and fine-tuning>"
    assert "fine-tuning" not in without.summary()
    assert repr(without) == "<Result of FedAvg: 2 trials, 4 rounds>"
