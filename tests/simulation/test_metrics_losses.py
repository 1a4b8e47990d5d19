"""Losses on the clients' own samples and on held-out ones, which need no ground truth."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.numerics import linalg
from linfed.simulation import job
from tests.helpers import Held, assert_one_line, assert_same, normal
from tests.simulation.held_out import DATA, PHI, D, N, client_losses, given, of_trial, run
from tests.worlds import LEARNERS

pytestmark = pytest.mark.filterwarnings("ignore:the 3 trials are identical")  # some data have no trial axis

FEDREP = lf.FedRep(rank=2, step_size=0.2)
LEARNED = ["FedRep", "FedRep, gradient heads, no QR", "FedAvg", "FedAvg, exactly fine-tuned", "FedRepShortcut", "FLUTE"]


def learner(name):
    return LEARNERS[name].make()


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
@pytest.mark.parametrize("name", LEARNED)
def test_losses_equal_a_loop_over_clients(name, engine):
    for samples in ("arrays of trials", "lists") if name == "FedRep" else ("trials, held-out lists",):
        arguments = {"data": given(samples), "engine": engine, "participation": 0.5 if "FedRep" in name else 1.0}
        result = run(learner(name), **arguments)
        assert list(result.metrics) == ["train_loss", "test_loss"]
        steps = list(lf.iterate(learner(name), n_rounds=5, trials=3, seed=4, **arguments))
        assert result.metrics["train_loss"].shape == (3, len(result.rounds)) == (3, len(steps))
        for column, step in enumerate(steps):
            for trial, theta in enumerate(step.after.predictors()):
                for metric, part in zip(("train_loss", "test_loss"), DATA[samples], strict=True):
                    expected = np.nanmean(client_losses(theta, of_trial(part, trial)))
                    assert result.metrics[metric][trial, column] == pytest.approx(expected, rel=1e-12, abs=1e-24)


@pytest.mark.parametrize("parts", ["B, W, S", "B, w", "s", "B, w, S", "B, W, s"])
def test_every_form_of_state(parts):
    """A part in lower case is one row for all clients."""
    arrays = {"B": normal(3, D, 2), "W": normal(3, N, 2, seed=1), "S": normal(3, N, D, seed=2)}
    rows = {name.upper(): arrays[name.upper()][:, : 1 if name.islower() else None] for name in parts.split(", ")}
    state = lf.State(**rows)
    result = run(Held(state=state), data=given("lists"), n_rounds=0)
    for trial, theta in enumerate(state.predictors()):
        for metric, samples in zip(("train_loss", "test_loss"), DATA["lists"], strict=True):
            assert result.metrics[metric][trial, 0] == pytest.approx(np.nanmean(client_losses(theta, samples)), 1e-12)
    assert_same(
        run(Held(state=state.trials(slice(1))), data=given("lists"), n_rounds=0, trials=1), result, second=slice(1)
    )


@pytest.mark.parametrize("name", LEARNED)
def test_compressed_samples_have_the_losses_of_explicit_rows(name):
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=2, noise_std=0.3)
    for data, truth in ((given("lists"), None), (lf.FixedSamples(30), problem)):
        names = ["train_loss", "test_loss"] if truth is None else ["train_loss"]
        one, other = (
            run(learner(name), truth, data=data, engine=engine, metrics=names) for engine in ("explicit", "compressed")
        )
        assert (one.engine, other.engine) == ("explicit", "compressed")
        for metric in names:
            np.testing.assert_allclose(one.metrics[metric], other.metrics[metric], rtol=1e-10, atol=1e-12)


def test_fixed_samples_have_the_loss_of_the_samples_they_draw():
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=2, noise_std=0.3)
    result = run(FEDREP, problem, data=lf.FixedSamples(9), metrics=["train_loss", "risk"], engine="explicit")
    drawn = lf.FixedSamples(9).draw(problem, trials=3, seed=4)
    losses = result.losses(drawn.X, drawn.y)
    np.testing.assert_allclose(losses.mean(axis=1), result.metrics["train_loss"][:, -1], rtol=1e-12)
    np.testing.assert_array_equal(result.metrics["risk"], run(FEDREP, problem, data=lf.FixedSamples(9)).metrics["risk"])


def test_factors_that_are_drawn_in_law_have_the_loss_of_the_population():
    """With a million samples the loss at theta is the risk to three digits."""
    problem = lf.SharedRepresentation(n_clients=N, dim=D, rank=2, noise_std=0.3)
    algorithm = dataclasses.replace(FEDREP, init="random")
    result = run(algorithm, problem, data=lf.FixedSamples(10**6, in_law=True), metrics=["train_loss", "risk"])
    np.testing.assert_allclose(result.metrics["train_loss"], result.metrics["risk"], rtol=0.01)


@pytest.mark.parametrize("name", DATA)
def test_losses_of_a_trial_do_not_depend_on_the_others(name, monkeypatch):
    whole = run(FEDREP, data=given(name), engine="explicit")
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    assert_same(run(FEDREP, data=given(name), engine="explicit"), whole)
    one = lf.GivenSamples(*of_trial(DATA[name][0], 0), test=of_trial(DATA[name][1], 0))
    assert_same(run(FEDREP, data=one, engine="explicit", trials=1), whole, second=slice(1))


@pytest.mark.parametrize("name", ["FedRep", "FedAvg", "LocalOnly"])
def test_losses_do_not_depend_on_blocks_of_clients(name, monkeypatch):
    whole = run(learner(name), data=given("lists"), engine="explicit")
    monkeypatch.setattr(linalg, "CACHE_VALUES", 50)  # fewer numbers than one client has: it is a block by itself
    cut = run(learner(name), data=given("lists"), engine="explicit")
    for metric, values in whole.metrics.items():
        np.testing.assert_allclose(cut.metrics[metric], values, rtol=1e-12)
    assert_same(run(learner(name), data=given("lists"), engine="explicit", trials=1), cut, second=slice(1))


# --- recorded losses -----------------------------------------------------------------------------------------

X, Y = DATA["arrays"][0]
TRUTH = lf.GivenTruth(Phi=PHI)
ABSENT = {
    "no held-out samples": ({"data": lf.GivenSamples(X, Y)}, "test_loss", ["no held-out samples", "test=(X, y)"]),
    "no truth": ({"data": lf.GivenSamples(X, Y)}, "risk", ["requires the ground truth"]),
    "a truth": ({"problem": TRUTH}, "train_loss", ["not requested (metrics=)"]),
    "another metric": ({"metrics": ["test_loss"]}, "train_loss", ["not requested (metrics=)"]),
    "fresh samples": ({"problem": TRUTH, "data": lf.FreshSamples(5)}, "train_loss", ["fresh", "'risk'"]),
    "fresh samples, held out": ({"problem": TRUTH, "data": lf.FreshSamples(5)}, "test_loss", ["fresh", "'risk'"]),
    "fixed samples": ({"problem": TRUTH, "data": lf.FixedSamples(5)}, "train_loss", ["not requested"]),
    "fixed samples, held out": ({"problem": TRUTH, "data": lf.FixedSamples(5)}, "test_loss", ["no held-out samples"]),
}


@pytest.mark.parametrize("name", ABSENT)
def test_a_loss_that_is_absent_says_why(name):
    changes, metric, fragments = ABSENT[name]
    result = run(FEDREP, **changes)
    assert_one_line(lambda: result.metrics[metric], [f"metric '{metric}' is absent", *fragments], KeyError)
    if "not requested" not in fragments[0]:
        wanted = [f"metrics = '{metric}' does not apply", fragments[0]]
        assert_one_line(lambda: run(FEDREP, **changes | {"metrics": [metric]}), wanted)


def test_the_metrics_of_given_samples_by_default():
    assert list(run(FEDREP, data=lf.GivenSamples(X, Y)).metrics) == ["train_loss"]
    assert list(run(FEDREP).metrics) == ["train_loss", "test_loss"]
    errors = [name for name in lf.METRICS if "loss" not in name and "accuracy" not in name and "nc2" not in name]
    assert list(run(FEDREP, TRUTH).metrics) == errors
    assert list(run(FEDREP, TRUTH, metrics=["test_loss", "risk"]).metrics) == ["test_loss", "risk"]


def test_losses_leave_the_run_alone():
    asked = run(FEDREP, TRUTH, metrics=["risk", "train_loss", "test_loss"])
    plain = run(FEDREP, TRUTH)
    assert np.array_equal(asked.metrics["risk"], plain.metrics["risk"])
    assert np.array_equal(asked.final.B, plain.final.B)


@pytest.mark.long
def test_worker_processes_have_held_out_samples():
    one, other = (run(FEDREP, data=given("held out by trial"), workers=workers) for workers in (1, 2))
    assert_same(one, other)
