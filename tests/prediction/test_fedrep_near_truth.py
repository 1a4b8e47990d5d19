"""Floors, rates, edges and best steps of FedRep near B*, against the theory's functions and against runs."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import linfed as lf
from linfed.prediction import fedrep_rounds as rounds
from linfed.prediction.fedrep_near_truth import step_doubts
from linfed.theory.fedrep.arguments import StepTooLargeError
from tests.helpers import assert_one_line, mostly_long
from tests.prediction.runs import PROBLEM, distances, fedrep, given, predict, turned


@pytest.mark.long
def test_what_is_known_near_the_truth_is_the_theorys_own():
    W, sizes = PROBLEM.truth(0, [0]).W[0], {"dim": 30, "n_samples": 10, "participants": 20}
    for algorithm, unit in ((fedrep(), 1), (fedrep(aggregate="sum", step_size=0.025), 20)):
        found = predict(algorithm, participation=20)
        assert found.rate == pytest.approx(lf.theory.near_truth_factor(W, step_size=0.5, **sizes) ** 0.5)
        assert found.stability_edge * unit == pytest.approx(lf.theory.stability_edge(W, **sizes))
        assert found.best_step * unit == pytest.approx(lf.theory.near_truth_best_step(W, **sizes), rel=1e-6)
        floor = lf.theory.second_order_floor(W, step_size=0.5, noise_std=0.1, **sizes)
        assert found.floor == pytest.approx(floor.distance, rel=1e-9)
        assert found.floor.metric == "subspace_distance"
    scheduled = predict(fedrep(step_size=lambda t: 0.5 / t))
    assert scheduled.best_step == predict().best_step
    for name in ("floor", "rate"):
        assert_one_line(lambda name=name: getattr(scheduled, name), ["is a schedule", name], lf.NoPredictionError)


def test_compressed_messages_have_the_quantities_of_the_map():
    problem = lf.SharedRepresentation(n_clients=30, dim=12, rank=2, condition_number=2.0, noise_std=0.3)

    def told(kept_share, step_size=0.4, m=8, **changes):
        algorithm = lf.CompressedFedRep(rank=2, step_size=step_size, kept_share=kept_share, **changes)
        return lf.predict(algorithm, problem, data=lf.FreshSamples(m), n_rounds=4)

    W, sizes = problem.truth(0, [0]).W[0], {"dim": 12, "n_samples": 8, "compression": 3.0, "shared_mask": True}
    found = told(0.25, 0.2, shared_mask=True)
    assert found.rate == pytest.approx(lf.theory.near_truth_factor(W, step_size=0.2, **sizes) ** 0.5)
    assert found.stability_edge == pytest.approx(lf.theory.stability_edge(W, **sizes))
    assert found.best_step == pytest.approx(lf.theory.near_truth_best_step(W, **sizes))
    X = lf.theory.near_truth_floor(W, step_size=0.2, noise_std=0.3, **sizes)
    assert found.floor == pytest.approx(lf.theory.median_distance(X, dim=12))
    assert "stability_edge" in told(0.05, 1.0).warnings[0]
    still = told(0.5, m=2).distance
    assert (still == still[0]).all()


@pytest.mark.parametrize(
    ("algorithm", "m"),
    [
        (fedrep(), 6),
        (lf.PrivateFedRep(rank=3, step_size=0.5, message_noise_std=0.01), 6),
        (lf.CompressedFedRep(rank=3, step_size=0.5, kept_share=0.5), 10),
    ],
)
def test_a_floor_in_mean_square_ends_before_the_edge(algorithm, m):
    """Without noise it is 0 up to the edge."""
    data = lf.FreshSamples(m)
    edge = float(predict(algorithm, data=data).stability_edge)
    below, beyond = (replace(algorithm, step_size=share * edge) for share in (0.79, 0.81))
    assert 0 < predict(below, data=data).floor < 1
    refused = predict(beyond, data=data)
    words = ["no prediction of the floor", f"{0.81 * edge:.4g}", "above 0.8 of", f"stability_edge = {edge:.4g}"]
    assert_one_line(lambda: refused.floor, words, lf.NoPredictionError)
    assert "floor:" not in repr(refused)
    if not getattr(algorithm, "message_noise_std", 0.0):
        assert predict(beyond, replace(PROBLEM, noise_std=0.0), data=data).floor == 0


def test_steps_are_doubted_beyond_a_multiple_of_the_best_and_from_the_edge_on():
    def told(*steps, limit=1.4, spanned=True):
        here = SimpleNamespace(edge=lambda: 3.0, best=lambda: 1.0, spanned=spanned)
        algorithm = SimpleNamespace(rank=2)
        return step_doubts(SimpleNamespace(steps=np.array(steps), maps=[here], unit=2, algorithm=algorithm), limit)

    assert told() == told(1.4) == told(0.1, 1.4, 0.3) == told(2.4, limit=2.4) == []
    assert told(0.3, 1.5)[0].startswith("step_size = 0.75 is 1.5 times best_step, above 1.4")
    assert told(3.0, limit=9.0)[0].startswith("step_size = 1.5 is not below stability_edge = 1.5")
    assert told(2.9, limit=9.0) == []
    assert "fewer than rank = 2 dimensions" in told(0.1, spanned=False)[0]
    assert (rounds.Means.step, rounds.SecondOrder.step) == (1.0, None)


# --- dimensions below twice the rank -----------------------------------------------------------------------------


SMALL = {"d = 3": (20, 3, 2, 8, 20), "d = 5": (40, 5, 3, 9, 10), "d = 5, k = 4": (30, 5, 4, 12, 30)}  # n, d, k, m, p


@pytest.mark.parametrize("name", mostly_long(SMALL, "d = 3"))
def test_below_twice_the_rank_floor_and_rate_are_those_of_runs(name):
    n, d, k, m, p = SMALL[name]
    problem, start = given(n, d, k, noise_std=0.03), turned(d, k, 0.0)
    edge = float(
        lf.predict(
            lf.FedRep(rank=k, step_size=0.1, init=start), problem, data=lf.FreshSamples(m), n_rounds=1, participation=p
        ).stability_edge
    )
    algorithm = lf.FedRep(rank=k, step_size=0.3 * edge, init=start)
    run = {"n_rounds": 140, "participation": p}
    found = lf.predict(algorithm, problem, data=lf.FreshSamples(m), **run)
    measured = distances(algorithm, problem, lf.FreshSamples(m), trials=60, **run)[:, 60:]
    assert found.floor == pytest.approx(np.median(measured), rel=0.06)
    clean = given(n, d, k)
    tilted = lf.FedRep(rank=k, step_size=0.3 * edge, init=turned(d, k, 1e-4))
    squares = np.square(distances(tilted, clean, lf.FreshSamples(m), n_rounds=24, trials=1200, participation=p)).mean(
        axis=0
    )
    assert found.rate == pytest.approx((squares[24] / squares[8]) ** (1 / 32), abs=0.012)
    assert_one_line(lambda: found.distance, ["below 2 rank", f"dim = {d}"], errors=lf.NoPredictionError)


LARGE_STEPS = {  # share of entries that are kept, n, d, k, m: at 0.65 of the stability edge
    "d = 4, k = 3": (1.0, 4, 4, 3, 8),
    "d = 3, k = 2": (1.0, 20, 3, 2, 5),
    "d = 5, k = 4": (1.0, 4, 5, 4, 7),
    "sparse, d = 4, k = 3": (0.5, 20, 4, 3, 8),
    "sparse, d = 2, k = 1": (0.5, 20, 2, 1, 8),
    "sparse, d = 8, k = 2": (0.5, 20, 8, 2, 8),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LARGE_STEPS)
def test_up_to_twice_the_rank_floors_are_within_ten_percent(name):
    """At large steps, where single runs fluctuate more than Gaussian tangents."""
    kept, n, d, k, m = LARGE_STEPS[name]
    rng = np.random.default_rng(1)
    W = np.linalg.qr(rng.standard_normal((n, k)))[0] * np.sqrt(n) * np.geomspace(1.5, 1.0, k)
    bases = np.linalg.qr(rng.standard_normal((400, d, k)))[0]  # masks see their orientations
    problem = lf.GivenTruth(B=bases, W=W, noise_std=0.03)
    options = {"init": lf.TrueSubspace(), "step_size": 0.1, "rank": k}
    sparse = lf.CompressedFedRep(kept_share=kept, **options)
    algorithm, data = (lf.FedRep(**options) if kept == 1 else sparse), lf.FreshSamples(m)
    one = replace(problem, B=bases[0])
    edge = float(lf.predict(algorithm, one, data=data, n_rounds=1).stability_edge)
    algorithm = replace(algorithm, step_size=0.65 * edge)
    floor = lf.predict(algorithm, one, data=data, n_rounds=1).floor
    told = 10 if d <= 2 * k else 5
    assert f"within {told} % of the median" in floor.validity
    measured = distances(algorithm, problem, data, trials=400, n_rounds=150)[:, 50:]
    assert abs(np.log(float(floor) / np.median(measured))) < np.log(1 + told / 100) + 0.015


# --- clients that differ, with noise on messages or sparse messages ----------------------------------------------

DIFFERING = {
    "noise": lambda **more: lf.PrivateFedRep(rank=2, message_noise_std=0.03, **more),
    "sparse": lambda **more: lf.CompressedFedRep(rank=2, kept_share=0.5, **more),
}


@pytest.mark.long
@pytest.mark.parametrize("name", DIFFERING)
def test_the_floor_of_clients_that_differ_is_that_of_runs(name):
    noise, counts = np.geomspace(0.05, 0.6, 30), [8, 12, 20] * 10
    B = np.linalg.qr(np.random.default_rng(2).standard_normal((40, 2)))[0]  # masks see its coordinates
    problem = lf.GivenTruth(B=B, W=given(30, 40, 2).W, noise_std=noise)
    run = {"data": lf.FreshSamples(counts), "n_rounds": 150, "participation": 20}
    options = {"init": lf.TrueSubspace(), "weights": np.linspace(1.0, 3.0, 30)}
    edge = float(lf.predict(DIFFERING[name](step_size=0.1, **options), problem, **run).stability_edge)
    algorithm = DIFFERING[name](step_size=0.3 * edge, **options)
    found = float(lf.predict(algorithm, problem, **run).floor)
    measured = distances(algorithm, problem, run.pop("data"), trials=30, **run)[:, 50:]
    assert np.median(measured) * 0.94 < found < np.sqrt(np.square(measured).mean()) * 1.05
    alike = lf.GivenTruth(B=B, W=problem.W, noise_std=0.15)
    assert float(lf.predict(algorithm, alike, data=lf.FreshSamples(13), **run).floor) != pytest.approx(found, rel=0.1)


# --- heads that leave a direction out ----------------------------------------------------------------------------

QUANTITIES = ("floor", "rate", "stability_edge", "best_step")

ALGORITHMS = {
    "FedRep": lambda k: lf.FedRep(rank=k, step_size=0.3, init=lf.AtDistance(0.5)),
    "noise": lambda k: lf.PrivateFedRep(rank=k, step_size=0.3, message_noise_std=0.1, init=lf.AtDistance(0.5)),
    "sparse": lambda k: lf.CompressedFedRep(rank=k, step_size=0.3, kept_share=0.5, init=lf.AtDistance(0.5)),
}


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_heads_that_do_not_span_have_no_quantities_near_the_truth(name, noise):
    one = given(1, 10, 2, noise_std=noise)
    none = lf.GivenTruth(B=np.eye(10)[:, :2], W=np.zeros((5, 2)), noise_std=noise)
    flat = lf.GivenTruth(B=np.eye(10)[:, :2], W=np.ones((30, 2)), noise_std=noise)
    for problem in (one, none, flat):
        found = lf.predict(ALGORITHMS[name](2), problem, data=lf.FreshSamples(8), n_rounds=5)
        for quantity in QUANTITIES:
            words = ["heads span fewer than rank = 2 dimensions"]
            assert_one_line(lambda q=quantity, f=found: getattr(f, q), words, errors=lf.NoPredictionError)
        assert "rate" not in repr(found)


def test_a_direction_that_heads_leave_out_is_not_learned():
    few_heads = replace(PROBLEM, n_clients=2, noise_std=0.0)
    assert predict(problem=few_heads).distance[-1] > 0.59  # the largest angle does not fall
    few_samples = predict(problem=few_heads, data=lf.FreshSamples(6))
    assert any("not every angle falls" in text for text in few_samples.warnings)


ONE_OF_FEW = [(5, 5), (4, 3), (40, 10), (5, 3), (9, 4), (3, 3), (2, 1), (1, 1)]


@pytest.mark.long
@pytest.mark.parametrize(("n", "k"), ONE_OF_FEW, ids=str)
def test_a_prediction_for_one_participant_is_whole(n, k):
    problem = lf.SharedRepresentation(n_clients=n, dim=4 * k, rank=k, noise_std=0.1)
    algorithm = lf.FedRep(rank=k, step_size=0.02, init=lf.AtDistance(0.5))
    found = lf.predict(algorithm, problem, data=lf.FreshSamples(k + 6), n_rounds=3, participation=1)
    assert np.isfinite(found.distance).all()
    assert 0.0 < found.best_step < found.stability_edge
    assert found.rate < 1.0
    assert 0.0 < found.floor < 1.0


NARROWER = lf.SharedRepresentation(n_clients=20, dim=20, rank=2, noise_std=0.1)
WIDER = lf.UnderParameterized(n_clients=60, dim=20, spectrum=[9, 8, 4, 3])


@pytest.mark.parametrize(
    ("problem", "options", "step"),
    [
        (NARROWER, {"aggregate": "sum"}, 0.15),
        (NARROWER, {"rank": 4, "init": "random"}, 3.0),
        (NARROWER, {"rank": 4, "init": "random", "aggregate": "sum"}, 0.2),
        (WIDER, {"aggregate": "sum"}, 1.0),
    ],
    ids=["sum", "narrow", "narrow sum", "under-parameterised sum"],
)
def test_a_step_beyond_the_edge_is_told_in_the_units_of_step_size(problem, options, step):
    options = {"rank": 2, "init": lf.AtDistance(0.5)} | options
    run = {"data": lf.FreshSamples(10), "n_rounds": 5}
    found = lf.predict(lf.FedRep(step_size=step, **options), problem, **run)
    words = [f"step_size = {step:g} must be below"]
    if problem is NARROWER:
        words.append(f"stability_edge = {float(found.stability_edge):.4g}")
    assert_one_line(lambda: found.floor, words, lf.NoPredictionError)


def test_gradient_heads_without_correct_digits_are_told_in_the_units_of_step_size():
    heads = lf.GradientHeads(steps=5, step_size=0.9)
    algorithm = lf.FedRep(rank=2, step_size=1.0, init=lf.AtDistance(0.5), aggregate="sum", heads=heads)
    words = ["step_size = 1 is too large for these heads"]
    assert_one_line(
        lambda: lf.predict(algorithm, NARROWER, data=lf.FreshSamples(3), n_rounds=50), words, lf.NoPredictionError
    )


def test_an_error_of_a_step_size_comes_back_from_a_worker_process():
    error = StepTooLargeError(0.5, 7, "these heads", "use a smaller one")
    told = "step_size = 0.5 is too large for these heads: no correct digits are left in round 7; use a smaller one"
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == told
    assert str(error.in_units(2.0)).startswith("step_size = 0.25 is")
