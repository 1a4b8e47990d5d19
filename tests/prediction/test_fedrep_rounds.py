"""Predictions of FedRep in every round: the theory's own curves, medians and bands of runs, and doubts."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import linfed as lf
from linfed.prediction import fedrep_rounds as rounds
from linfed.prediction.cases import heads_of
from linfed.prediction.prediction import Curves
from tests.helpers import assert_one_line, basis, mostly_long, normal
from tests.prediction.runs import FRESH, HIGHER, PROBLEM, case_of, distances, fedrep, given, predict


def near_means(found, expected):
    """Assert that a prediction of the law "means" is near the root mean square, and the median of the largest angle."""
    assert found.law == "means"
    assert found.distance[0] == pytest.approx(expected.distance[0], rel=1e-9)
    assert found.distance == pytest.approx(expected.distance, rel=0.12)


def by_hand(law, problem, trial=0, *, seed=0, scale=1.0, **changes):
    W = scale * problem.truth(seed, [trial]).W[0]
    setting = {"dim": problem.dim, "n_samples": 10, "step_size": 0.5, "n_rounds": 3, "noise_std": problem.noise_std}
    return law(W, **setting | changes)


SECOND, MEANS = lf.theory.second_order_evolution, lf.theory.state_evolution

GRADIENT = lf.theory.gradient_heads_evolution

SERVED = {
    "defaults": ({}, {}, SECOND, {"delta": 0.6}),
    "some": ({}, {"participation": 0.5}, SECOND, {"delta": 0.6, "participants": 20}),
    "few samples": ({}, {}, MEANS, {"delta": 0.6}),
    "the truth": ({"init": lf.TrueSubspace()}, {}, SECOND, {"delta": 0.0}),
    "the sum": ({"aggregate": "sum", "step_size": 0.5 / 40}, {}, SECOND, {"delta": 0.6}),
    "a schedule": (
        {"step_size": lambda t: 0.5 / t},
        {},
        SECOND,
        {"delta": 0.6, "step_size": 0.5 / np.arange(1.0, 4.0)},
    ),
    "no round": ({"step_size": lambda t: 0.5 / t}, {"n_rounds": 0}, SECOND, {"delta": 0.6, "n_rounds": 0}),
    "another seed": ({}, {"seed": (3, 1)}, SECOND, {"delta": 0.6, "seed": (3, 1)}),
    "x of variance 2": ({}, {}, SECOND, {"delta": 0.6, "scale": 2**0.5}),
    "gradient heads": (
        {"heads": lf.GradientHeads(steps=3)},
        {"participation": 30},
        GRADIENT,
        {"delta": 0.6, "head_steps": 3, "participants": 30},
    ),
    "gradient heads at variance 2": (
        {"heads": lf.GradientHeads(step_size=0.2)},
        {},
        GRADIENT,
        {"delta": 0.6, "head_step_size": 0.4, "scale": 2**0.5},
    ),
    "gradient heads of the sum": (
        {"heads": lf.GradientHeads(), "aggregate": "sum", "step_size": 0.5 / 40},
        {},
        GRADIENT,
        {"delta": 0.6, "head_step_size": 0.5 / 40},
    ),
}


@pytest.mark.parametrize("rank", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SERVED)
def test_the_law_that_serves_is_the_theorys_own(name, rank):
    algorithm, run, law, changes = SERVED[name]
    problem = replace(PROBLEM, rank=rank)
    if name == "few samples":
        run, changes = {"data": lf.FreshSamples(rank + 3)}, changes | {"n_samples": rank + 3}
    if name.endswith("variance 2"):
        problem = replace(problem, design=lf.Gaussian(covariance=2.0))
    found = predict(fedrep(rank=rank, **algorithm), problem, **run)
    expected = by_hand(law, problem, **changes)
    assert found.law == {SECOND: "second order", MEANS: "means", GRADIENT: "gradient heads"}[law]
    assert found.rounds.tolist() == list(range(run.get("n_rounds", 3) + 1))
    if law is MEANS:
        near_means(found, expected)
    else:
        assert found.distance == pytest.approx(expected.distance, rel=1e-9)
    for end in ("low", "high"):
        given_end = getattr(found, end)
        assert (given_end is None) == (law is not SECOND)
        assert given_end is None or given_end == pytest.approx(getattr(expected, end), rel=1e-9)


STARTS = {
    "random": "random",
    "moments": "moments",
    "given": np.linalg.qr(PROBLEM.truth(4, [0]).B[0] + 0.15 * normal(30, 3))[0],
}


@pytest.mark.parametrize("name", STARTS)
def test_the_start_is_that_of_the_run(name):
    algorithm = fedrep(init=STARTS[name])
    first = lf.simulate(algorithm, PROBLEM, data=FRESH, n_rounds=0, trials=2, seed=4)
    found = predict(algorithm, trials=2, seed=4)
    assert found.distance[:, 0] == pytest.approx(first.metrics["subspace_distance"][:, 0], rel=1e-9)
    for trial in range(2):
        truth = PROBLEM.truth(4, [trial])
        expected = by_hand(SECOND, PROBLEM, trial, seed=4, B0=first.final.B[trial], B_star=truth.B[0])
        assert found.distance[trial] == pytest.approx(expected.distance, rel=1e-7)


def test_a_truth_in_other_coordinates_is_the_same():
    truth, A = PROBLEM.truth(0, [0]), normal(3, 3)
    other = lf.GivenTruth(B=truth.B[0] @ A, W=truth.W[0] @ np.linalg.inv(A).T, noise_std=0.1)
    one, same = predict(), predict(problem=other)
    assert same.distance == pytest.approx(one.distance, rel=1e-6)
    assert same.rate == pytest.approx(one.rate, rel=1e-9)


def test_trials_have_their_own_heads_and_the_first_stands_for_all():
    one, three = predict(), predict(trials=3)
    assert three.distance.shape == three.low.shape == three.high.shape == (3, 4)
    assert one.distance.shape == (4,)
    assert np.array_equal(one.distance, three.distance[0])
    assert three.floor.value.shape == three.best_step.value.shape == (3,)
    assert one.floor.value.shape == ()
    assert float(one.floor) == three.floor.value[0]
    assert len(np.unique(three.distance[:, -1])) == 3
    given = lf.GivenTruth(B=basis(30, 3), W=normal(2, 40, 3))
    assert predict(problem=given).distance.shape == (2, 4)


MEASURED = {  # of 2,000 runs by the chain: 10, 50 and 90 % after 4, 8 and 16 rounds
    "everybody": (
        {"noise_std": 0.0, "m": 12, "step_size": 0.5, "participation": 1.0},
        [[0.583, 0.364, 0.1121], [0.6134, 0.3934, 0.1245], [0.6403, 0.4214, 0.1374]],
    ),
    "half, with noise": (
        {"noise_std": 0.1, "m": 12, "step_size": 0.5, "participation": 40},
        [[0.5942, 0.3771, 0.1246], [0.6373, 0.4256, 0.1477], [0.6783, 0.4729, 0.174]],
    ),
    "m = k + 3": (
        {"noise_std": 0.0, "m": 6, "step_size": 0.4, "participation": 1.0},
        [[0.709, 0.5994, 0.3716], [0.7466, 0.6462, 0.4169], [0.7875, 0.6993, 0.4755]],
    ),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_medians_and_bands_lie_where_predicted(name):
    setting, measured = MEASURED[name]
    W = np.random.default_rng(5).standard_normal((80, 3)) * [1.3, 1.0, 0.7]
    problem = lf.GivenTruth(B=np.eye(100, 3), W=W, noise_std=setting["noise_std"])
    algorithm = fedrep(step_size=setting["step_size"], init=lf.AtDistance(0.8))
    found = lf.predict(
        algorithm, problem, data=lf.FreshSamples(setting["m"]), n_rounds=16, participation=setting["participation"]
    )
    low, median, high = np.array(measured)
    chosen = [4, 8, 16]
    assert found.distance[chosen] == pytest.approx(median, rel=0.03)
    if found.low is not None:
        assert found.low[chosen] == pytest.approx(low, rel=0.04)
        assert found.high[chosen] == pytest.approx(high, rel=0.04)
        assert np.all(abs(found.distance[chosen] / median - 1) < 0.5 * (high / low - 1))


@pytest.mark.parametrize("rank", [pytest.param(1, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_from_a_right_angle_there_is_no_distance(rank, noise):
    problem, run = given(40, 20, rank, noise_std=noise), {"data": lf.FreshSamples(rank + 6), "n_rounds": 20}
    basis = np.concatenate([np.eye(20)[:, : rank - 1], np.eye(20)[:, -1:]], axis=1)  # one angle is right
    for start in (lf.AtDistance(1.0), basis):
        found = lf.predict(lf.FedRep(rank=rank, step_size=0.3, init=start), problem, **run)
        assert_one_line(lambda f=found: f.distance, ["initial distance of 1", "chance"], errors=lf.NoPredictionError)
        assert found.warnings == ()
        assert found.rate < 1 < found.stability_edge
        assert "distance: " not in repr(found)
    heads = lf.GradientHeads(steps=3, step_size=0.3)
    gradient = lf.FedRep(rank=rank, step_size=0.3, heads=heads, init=lf.AtDistance(1.0))
    assert_one_line(lambda: lf.predict(gradient, problem, **run), ["distance of 1"], errors=lf.NoPredictionError)


# --- a truth of a higher rank ------------------------------------------------------------------------------------

UNDER = lf.theory.under_parameterized_evolution


@pytest.mark.long
@pytest.mark.parametrize("name", ["factors", "wide", "tall"])
def test_a_truth_of_a_higher_rank(name):
    """In factors; and without, with more clients than dimensions and with fewer. The law's draws are worth 1 %."""
    if name == "factors":
        problem, (V, U) = HIGHER, (HIGHER.truth(0, [0]).W[0], HIGHER.truth(0, [0]).B[0])
    else:
        problem = lf.UnderParameterized(n_clients=25 if name == "tall" else 9, dim=14)
        Phi = problem.truth(0, [0]).dense()[0]
        left, values, U = np.linalg.svd(Phi, full_matrices=False)
        V, U = left * values, U.T
    setting = {"rank": 2, "dim": problem.dim, "n_samples": 10, "noise_std": problem.noise_std, "n_rounds": 4}
    found = predict(fedrep(rank=2, step_size=0.2), problem, n_rounds=4)
    assert found.law == "under-parameterized"
    assert found.low is None
    expected = UNDER(V, step_size=0.2, delta=0.6, **setting).distance
    assert found.distance == pytest.approx(expected, rel=0.02)
    start = np.linalg.qr(U[:, :2] + 0.1 * normal(problem.dim, 2))[0]
    given = predict(fedrep(rank=2, step_size=0.2, init=start), problem, n_rounds=4)
    assert given.distance == pytest.approx(UNDER(V, step_size=0.2, B0=start, U=U, **setting).distance, rel=0.02)
    del setting["n_rounds"]
    pulled = [text for text in found.warnings if "second moment" in text]
    pull = 0.2 * np.linalg.norm(V, 2) ** 2 / len(V)
    assert len(pulled) == (pull > 1.3)
    assert all(f"is {pull:.2g}, above" in text for text in pulled)
    floor = lf.theory.under_parameterized_floor(V, step_size=0.2, **setting)
    assert found.floor == pytest.approx(floor.distance, rel=0.02)
    lambdas = np.linalg.svd(V, compute_uv=False) ** 2 / len(V)
    assert found.rate == pytest.approx(1 - 0.2 * 0.8 * (lambdas[1] - lambdas[2]))


def test_the_facts_of_a_truth_of_a_higher_rank():
    """The largest step counts, at the largest second moment of the clients."""
    for m, few in ((10, {}), (6, {}), (5, {"few": 5.0})):
        case = case_of(fedrep(rank=2, step_size=[0.1, 0.3, 0.2]), HIGHER, lf.FreshSamples(m))
        found = rounds.UnderParameterised(case).curves()
        assert found.facts["pull"] == pytest.approx(0.3 * 9.0**2 / 60, rel=1e-9)
        assert {name: value for name, value in found.facts.items() if name == "few"} == few


@pytest.mark.parametrize("step", [0.05, 1.7])
def test_near_the_top_subspace_two_gaps_decide_the_rate(step):
    """The one after the k-th value, and at large steps that of all; without values beyond the rank, and with them."""
    for problem, below in ((HIGHER, 0.0), (lf.GivenTruth(Phi=normal(25, 6), noise_std=0.1), None)):
        case = case_of(fedrep(rank=2, step_size=step), problem)
        values = np.linalg.svd(problem.truth(0, [0]).dense()[0], compute_uv=False) ** 2 / problem.n_clients
        if below is None:
            below = values[5]
        share = step * (1 - 2 / 10)
        wanted = max(abs(1 - share * (values[1] - values[2])), abs(1 - share * (values[0] - below)))
        found = rounds.UnderParameterised(case)
        assert found.rate().value == pytest.approx([wanted], rel=1e-12)
        if step < 1:
            sizes = {"dim": problem.dim, "n_samples": 10, "participants": problem.n_clients}
            W = heads_of(problem.truth(0, [0]))[0]
            floor = lf.theory.under_parameterized_floor(W, rank=2, step_size=step, noise_std=0.1, **sizes).distance
            assert found.floor().value == pytest.approx([floor], rel=1e-9)


def test_a_prediction_says_where_chance_is_large():
    problem = lf.UnderParameterized(n_clients=40, dim=20, spectrum=[20.0, 18.0, 4.0, 3.0])
    setting = {"data": lf.FreshSamples(n_samples=12), "n_rounds": 30}
    near, far = (
        lf.predict(lf.FedRep(rank=2, step_size=0.02, init=lf.AtDistance(delta)), problem, **setting)
        for delta in (0.8, 0.999)
    )
    assert not any("chance changes" in text for text in near.warnings)
    assert any("chance changes the part of B outside U_k by" in text for text in far.warnings)


# --- without QR --------------------------------------------------------------------------------------------------

PLAIN = {  # n, d, k, m, noise, step size, participants, rounds, initial distance, lengths of the heads' columns
    "noise": (100, 50, 2, 10, 1.0, 0.5, 100, 60, 0.3, None),
    "far start": (60, 60, 2, 10, 0.5, 0.5, 60, 40, 0.9, None),
    "some participants": (100, 60, 3, 14, 0.5, 0.8, 40, 60, 0.7, None),
    "heads that differ": (100, 60, 2, 12, 1.0, 0.5, 100, 60, 0.5, [1.2, 0.8]),
    "lengths that differ": (100, 30, 3, 15, 0.0, 0.7, 100, 40, 0.9, [1.4, 1.0, 0.7]),
    "eigenvalues 16 apart": (80, 30, 2, 9, 0.0, 0.4, 80, 150, 0.9, [2.0, 0.5]),
    "few clients": (5, 30, 2, 12, 0.3, 0.3, 5, 60, 0.5, [1.5, 1.0]),
}


@pytest.mark.parametrize("name", mostly_long(PLAIN, "far start", "lengths that differ"))
def test_without_qr_the_median_is_that_of_runs(name):
    n, d, k, m, noise, step, p, rounds, delta, scale = PLAIN[name]
    problem, run = given(n, d, k, noise_std=noise, scale=scale), {"n_rounds": rounds, "participation": p}
    algorithm = lf.FedRep(rank=k, step_size=step, orthonormalize=False, init=lf.AtDistance(delta))
    found = lf.predict(algorithm, problem, data=lf.FreshSamples(m), **run)
    measured = distances(algorithm, problem, lf.FreshSamples(m), trials=100, **run)
    spread = np.log(measured[:, 1:]).std(axis=0) / np.sqrt(100)
    assert (np.abs(np.log(found.distance / np.median(measured, axis=0)))[1:] < 0.05 + 4 * spread).all()
    assert found.law == "without QR"
    assert not found.warnings
    normal = lf.predict(
        lf.FedRep(rank=k, step_size=step, init=lf.AtDistance(delta)), problem, data=lf.FreshSamples(m), **run
    )
    assert abs(np.log(normal.distance[-1] / np.median(measured[:, -1]))) > 0.06


def test_without_qr_doubts_begin():
    run = {"data": lf.FreshSamples(10), "n_rounds": 5}
    algorithm = lf.FedRep(rank=2, step_size=0.3, orthonormalize=False, init=lf.AtDistance(0.5))
    assert not lf.predict(algorithm, given(60, 60, 2, scale=[3.0, 1.0]), **run).warnings
    few = lf.predict(algorithm, given(60, 60, 2), data=lf.FreshSamples(5), n_rounds=5)
    assert few.law == "means without QR"
    assert not few.warnings
    assert_one_line(lambda: few.floor, ["no prediction of the floor"], errors=lf.NoPredictionError)


@pytest.mark.long
def test_without_qr_random_runs_have_the_median():
    """Heads with eigenvalues up to 64 apart, few clients, few samples, step sizes up to 1.3 times the best one.

    The median is right within 5 %, and within 15 % for m = k + 2 and k + 3.
    """
    rng, told = np.random.default_rng(4), 0
    for number in range(35):
        k, n = int(rng.integers(1, 5)), int(np.exp(rng.uniform(np.log(6), np.log(100))))
        d, m = int(2 * k + rng.integers(0, 50)), int(k + rng.choice([4, 5, 8, 20] if number < 25 else [2, 3]))
        W = np.linalg.qr(rng.standard_normal((n, k)))[0] * np.sqrt(n) / np.geomspace(1, rng.uniform(1, 8), k)
        best = lf.theory.near_truth_best_step(W, dim=d, n_samples=m)
        problem = lf.GivenTruth(B=np.eye(d, k), W=W, noise_std=float(rng.choice([0.0, 0.1, 1.0])))
        start = lf.AtDistance(float(rng.choice([0.05, 0.3, 0.6, 0.9])))
        algorithm = lf.FedRep(rank=k, step_size=rng.uniform(0.1, 1.3) * best, init=start, orthonormalize=False)
        run = {"data": lf.FreshSamples(m), "n_rounds": int(rng.choice([10, 40]))}
        try:
            found = lf.predict(algorithm, problem, **run)
        except lf.NoPredictionError:  # numbers overflow
            continue
        told += bool(found.warnings)
        if found.warnings:
            continue
        measured = distances(algorithm, problem, trials=300, **run)
        spread = np.log(measured).std(axis=0) / np.sqrt(300)
        ratio = np.abs(np.log(found.distance / np.median(measured, axis=0)))
        off = 0.05 if m > k + 3 else 0.15
        assert (ratio < off + 4 * spread)[np.median(measured, axis=0) > 1e-8].all()
    assert told <= 11


@pytest.mark.long
@pytest.mark.parametrize("wide", [False, True])
def test_without_qr_and_without_second_order_it_is_the_median_around_the_means(wide):
    """With m = k + 2, or with k > 16 columns; in few dimensions, the root mean square of the means is far lower."""
    n, d, k, m, step, rounds, delta, noise = (
        (60, 42, 17, 45, 0.3, 30, 0.4, 0.5) if wide else (30, 12, 3, 5, 0.5, 40, 0.6, 0.2)
    )
    problem, data = given(n, d, k, noise_std=noise), lf.FreshSamples(m)
    algorithm = lf.FedRep(rank=k, step_size=step, init=lf.AtDistance(delta), orthonormalize=False)
    found = lf.predict(algorithm, problem, data=data, n_rounds=rounds)
    measured = distances(algorithm, problem, data, trials=60 if wide else 300, n_rounds=rounds)
    median = np.median(measured, axis=0)
    np.testing.assert_allclose(found.distance, median, rtol=0.05)
    W = problem.truth(0, [0]).W[0]
    means = lf.theory.unnormalized_evolution(
        W, dim=d, n_samples=m, step_size=step, n_rounds=rounds, noise_std=noise, delta=delta
    )
    assert wide or means.distance[-1] < 0.85 * median[-1]


@pytest.mark.long
def test_few_dimensions_are_doubted_where_they_count():
    """Noise on messages beside a single column of B*, and far starts of more than 16 angles."""
    for m, law in ((6, "means"), (1, "noise on messages")):
        noisy = lf.PrivateFedRep(rank=1, step_size=0.3, message_noise_std=2.0, init=lf.AtDistance(0.5))
        for d, words in ((2, "rank + 1"), (3, "rank + 2"), (4, "")):
            found = lf.predict(noisy, given(20, d, 1), data=lf.FreshSamples(m), n_rounds=3)
            assert found.law == law
            assert [text for text in found.warnings if "beside B*" in text] == [
                f"dim = {words}: the few directions beside B* fluctuate more than Gaussian ones"
            ] * bool(words)
    for start, doubted in ((0.7, True), (0.5, False)):
        many = lf.FedRep(rank=17, step_size=1.0, init=lf.AtDistance(start))
        found = lf.predict(many, given(60, 40, 17), data=lf.FreshSamples(60), n_rounds=30)
        words = "more than 16 angles, the initial distance is 0.7, above 0.6"
        assert any(words in text for text in found.warnings) == doubted


# --- from the stability edge on ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "m", "share", "doubted"), [(5, 10, 1.48, True), (5, 10, 0.95, False), (60, 10, 1.48, False)]
)
def test_past_the_edge_few_clients_and_samples_are_doubted(n, m, share, doubted):
    W = np.random.default_rng(0).standard_normal((n, 5))
    problem = lf.GivenTruth(B=np.eye(13, 5), W=W)
    step = share * lf.theory.stability_edge(W, dim=13, n_samples=m)
    algorithm, run = lf.FedRep(rank=5, step_size=step, init=lf.AtDistance(0.2)), {"n_rounds": 5}
    found = lf.predict(algorithm, problem, data=lf.FreshSamples(m), **run)
    assert any("not below stability_edge" in text for text in found.warnings) == doubted
    measured = distances(algorithm, problem, lf.FreshSamples(m), trials=400, **run)
    off = abs(np.log(found.distance[-1] / np.median(measured[:, -1])))
    assert off > 0.06 if doubted else off < 0.05 + 4 * np.log(measured[:, -1]).std() / 20
    past = [20 * step, *[0.5 * step / share] * 4]  # only the first round is past the edge
    once = lf.predict(replace(algorithm, step_size=past), problem, data=lf.FreshSamples(200), **run)
    assert not any("not below stability_edge, and rank" in text for text in once.warnings)


# --- noise on messages -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_noise_on_messages_has_the_theorys_own_curve_and_floor():
    problem = lf.SharedRepresentation(n_clients=30, dim=12, rank=2, condition_number=2.0, noise_std=0.3)
    run = {"data": lf.FreshSamples(8), "n_rounds": 4}

    def told(kind=lf.PrivateFedRep, **changes):
        algorithm = kind(**{"rank": 2, "step_size": 0.5, "init": lf.AtDistance(0.6)} | changes)
        return lf.predict(algorithm, problem, **run)

    found, plain = told(message_noise_std=0.02), told()
    W = problem.truth(0, [0]).W[0]
    sizes = {"dim": 12, "n_samples": 8, "noise_std": 0.3, "step_size": 0.5, "message_noise_std": 0.02}
    assert found.law == "second order"
    expected = SECOND(W, n_rounds=4, delta=0.6, **sizes)
    for name in ("distance", "low", "high"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name))
    assert found.floor == pytest.approx(float(lf.theory.second_order_floor(W, **sizes).distance))
    near_means(
        lf.predict(
            lf.PrivateFedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.6), message_noise_std=0.02),
            problem,
            data=lf.FreshSamples(5),
            n_rounds=4,
        ),
        MEANS(W, n_rounds=4, delta=0.6, **sizes | {"n_samples": 5}),
    )
    near_means(told(message_noise_std=0.4), MEANS(W, n_rounds=4, delta=0.6, **sizes | {"message_noise_std": 0.4}))
    assert found.floor > 1.1 * plain.floor
    assert (found.stability_edge, found.best_step) == (plain.stability_edge, plain.best_step)
    assert np.array_equal(plain.distance, told(lf.FedRep).distance)
    summed = told(message_noise_std=0.02 * 30, step_size=0.5 / 30, aggregate="sum")
    assert summed.floor == pytest.approx(found.floor)
    np.testing.assert_allclose(summed.distance, found.distance)


NOISE = {  # n, d, k, m, noise, step size, participants, initial distance, rounds
    "small start": (20, 40, 2, 2, 0.05, 0.5, 20, 0.1, 30),
    "fewer samples than columns": (20, 60, 3, 1, 0.1, 0.5, 5, 0.5, 30),
    "one column": (10, 30, 1, 1, 0.05, 1.0, 10, 0.3, 20),
}


@pytest.mark.parametrize("name", mostly_long(NOISE, "small start", "one column"))
def test_messages_of_noise_turn_b_as_predicted(name):
    """The largest angle is a little above the root mean square of all, which is exact for one column."""
    n, d, k, m, noise, step, p, delta, rounds = NOISE[name]
    problem, run = given(n, d, k, noise_std=0.3), {"n_rounds": rounds, "participation": p}
    for aggregate, unit in (("mean", 1), ("sum", p)):
        options = {"message_noise_std": noise, "init": lf.AtDistance(delta), "aggregate": aggregate}
        algorithm = lf.PrivateFedRep(rank=k, step_size=step, **options)
        found = lf.predict(algorithm, problem, data=lf.FreshSamples(m), **run)
        measured = distances(algorithm, problem, lf.FreshSamples(m), trials=200, **run)
        root = np.sqrt(np.square(measured).mean(axis=0))
        low, high = (0.97, 1.03) if k == 1 else (0.88, 1.01)
        assert ((low < found.distance / root) & (found.distance / root < high)).all()
        assert found.law == "noise on messages"
        planted = lf.PrivateFedRep(rank=k, step_size=1.3 * step, **options)
        assert lf.predict(planted, problem, data=lf.FreshSamples(m), **run).distance[1] > 1.02 * found.distance[1]
        assert unit >= 1


# --- doubts ------------------------------------------------------------------------------------------------------

COUNTS, LEVELS, WEIGHTS = (7, 30, 6, 12, 9, 18), (0.1, 0.2, 0.4, 0.8, 1.0, 0.3), (1.0, 3.0, 0.5, 2.0, 0.3, 1.0)


def test_clients_that_differ_have_the_theorys_own_curves_and_quantities():
    problem = given(6, 8, 2, noise_std=LEVELS, seed=21)
    start, heads = lf.AtDistance(0.5), np.asarray(problem.W)
    run = {"data": lf.FreshSamples(COUNTS), "n_rounds": 5, "participation": 4}
    found = lf.predict(lf.FedRep(rank=2, step_size=0.05, init=start, weights=WEIGHTS), problem, **run)
    sizes = {"dim": 8, "n_samples": COUNTS, "participants": 4, "weights": WEIGHTS}
    course = {"step_size": 0.05, "n_rounds": 5, "noise_std": LEVELS, "delta": 0.5}
    evolved = SECOND(heads, **course, **sizes)
    np.testing.assert_allclose([found.distance, found.high], [evolved.distance, evolved.high], rtol=1e-12)
    assert found.law == "second order"
    assert float(found.stability_edge) == pytest.approx(lf.theory.stability_edge(heads, **sizes), rel=1e-12)
    assert float(found.best_step) == pytest.approx(lf.theory.near_truth_best_step(heads, **sizes), rel=1e-9)
    floor = lf.theory.second_order_floor(heads, step_size=0.05, noise_std=LEVELS, **sizes)
    assert float(found.floor) == pytest.approx(floor.distance, rel=1e-12)
    rate = lf.theory.near_truth_factor(heads, step_size=0.05, **sizes)
    assert float(found.rate) == pytest.approx(np.sqrt(rate), rel=1e-12)
    counts = [5, *COUNTS[1:]]
    plain = lf.predict(lf.FedRep(rank=2, step_size=0.05, init=start), problem, data=lf.FreshSamples(counts), n_rounds=5)
    assert plain.low is None
    near_means(plain, MEANS(heads, dim=8, n_samples=counts, **course))


LIMITS = {
    "without QR": (
        rounds.WithoutQR,
        {"round_log_variance": 0.3, "log_std": 0.6, "stride": 0.35},
        1,
    ),
    "means without QR": (rounds.MeansWithoutQR, {"gathered": 0.6, "slow": 0.75, "slowest": 0.6, "thin": 0.0}, 1),
    "noise on messages": (rounds.NoiseAlone, {"thin": 0.0}, 1),
    "second order": (
        rounds.SecondOrder,
        {
            "round_log_variance": 0.3,
            "log_std": 0.6,
            "stride": 0.35,
            "tails": 2.4,
            "past_edge": 0.4,
        },
        1,
    ),
    "means": (rounds.Means, {"gathered": 0.6, "slow": 0.75, "slowest": 0.6, "thin": 0.0}, 1),
    "gradient heads": (rounds.GradientDescentHeads, {"participants": 0.4, "fewer": 0.2, "lost": 1.0}, 5),
    "under-parameterized": (
        rounds.UnderParameterised,
        {"pull": 1.3, "chance": 0.9, "few": 0.0},
        6,
    ),
}
"""Facts up to which each law is not doubted, and its smallest number of participants."""


@pytest.mark.parametrize("name", LIMITS)
def test_doubts_begin_beyond_the_range_of_a_law(name):
    """Facts of another law are no doubts of this one."""
    kind, limits, participants = LIMITS[name]
    plain = type("Plain", (kind,), {"step": None})  # without warnings about the step size

    def told(p=participants, start=0.5, **facts):
        case = SimpleNamespace(job=SimpleNamespace(sizes=SimpleNamespace(participants=p)))
        return tuple(plain(case).doubts(Curves(np.array([start, 0.1]), facts=facts)))

    others = {fact: 9.0 for _, facts, *_ in LIMITS.values() for fact in facts if fact not in limits}
    far = kind.far
    assert told(**limits, **others) == told(start=far) == told(start=far + 1e-12) == ()
    assert set(kind.limits) == set(limits)
    for fact, limit in limits.items():
        (text,) = told(**{fact: limit + 1.0})
        assert f" {limit + 1:.2g}" in text
        assert f"above {limit}" in text or fact in ("few", "thin")
        (text,) = told(**{fact: 1.0001 * limit + 1e-9})
        assert f"{limit:g} is" not in text
        assert f" {limit:g}, above" not in text
        assert told(**{fact: 0.9 * limit}) == ()
    (text,) = told(start=far + 0.001)
    assert text.startswith(f"the initial distance {far + 0.001:.3f} is above {far}")
    if participants > 1:
        (text,) = told(p=participants - 1)
        assert text.startswith(f"a round has {participants - 1} participants, fewer than {participants}")


LARGE = lf.SharedRepresentation(n_clients=60, dim=100, rank=2)

DOUBTS = {
    "few rounds decide": (
        {"step_size": 0.9},
        {
            "data": lf.FreshSamples(4),
            "n_rounds": 30,
            "problem": lf.SharedRepresentation(n_clients=20, dim=5, rank=2),
        },
        "log distance^2 gathers a variance of",
    ),
    "slow angles": (
        {"rank": 4, "init": lf.AtDistance(0.85)},
        {
            "problem": lf.SharedRepresentation(n_clients=60, dim=11, rank=4),
            "data": lf.FreshSamples(6),
            "n_rounds": 40,
        },
        "chance delays the slowest angle",
    ),
    "few clients": ({"step_size": 1.0}, {"participation": 3}, "a single participant moves B by"),
    "a large step of few": ({"step_size": 2.4}, {"participation": 9}, "a single participant moves B by"),
    "heavy clients": (
        {"weights": np.r_[np.ones(57), np.full(3, 50.0)]},
        {"participation": 20},
        "a single participant moves B by",
    ),
    "far": ({"init": lf.AtDistance(0.98)}, {}, "the initial distance 0.98 is above 0.97"),
    "large step": ({"step_size": 1.3}, {"data": lf.FreshSamples(5)}, "step_size = 1.3 is 1."),
    "past the edge": ({"step_size": 3.0}, {"data": lf.FreshSamples(5)}, "step_size = 3 is not below stability_edge ="),
    "rough": ({"step_size": 1.2}, {"participation": 3}, "to the variance of log distance"),
    "strong pull": ({"step_size": 1.0}, {"problem": HIGHER}, "was not tested there"),
    "spread": ({"step_size": 1.2}, {"participation": 3, "n_rounds": 60}, "log distance spreads by"),
    "long away": (
        {"heads": lf.GradientHeads(steps=9, step_size=0.3)},
        {"participation": 12, "n_rounds": 20, "problem": lf.SharedRepresentation(n_clients=60, dim=40, rank=2)},
        "participants add",
    ),
    "large head steps": ({"heads": lf.GradientHeads(steps=9, step_size=0.9)}, {}, "above 1.0: few and rare batches"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_where_the_picture_fails_it_says_so(name):
    algorithm, run, said = DOUBTS[name]
    problem, changes = run.get("problem", LARGE), {key: value for key, value in run.items() if key != "problem"}
    found = predict(
        lf.FedRep(**{"rank": 2, "step_size": 0.5, "init": lf.AtDistance(0.5)} | algorithm), problem, **changes
    )
    assert any(said in text for text in found.warnings)
    assert said in repr(found)
    assert not any("\n" in text for text in found.warnings)


def test_without_doubts_it_says_where_the_chain_is_as_good():
    algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.5))
    found = predict(algorithm, LARGE)
    assert found.warnings == ()
    (note,) = found.notes
    assert "trials=300, engine='chain'" in note
    assert predict(algorithm, lf.SharedRepresentation(n_clients=1001, dim=100, rank=2)).notes == ()
    assert predict(algorithm, lf.SharedRepresentation(n_clients=60, dim=5, rank=2)).notes == ()  # no frame fits


# --- laws at random and extreme settings -------------------------------------------------------------------------


def orthonormal_heads(rng, n, k, condition=1.0):
    return np.linalg.qr(rng.standard_normal((n, k)))[0] * np.sqrt(n) * np.geomspace(condition, 1.0, k)


def worst(distance, predicted, share=0.5):
    """Return the largest log ratio of a predicted and a measured quantile beyond two standard errors, of all rounds."""
    runs, distance = len(distance), np.sort(distance, axis=0)
    width = 2.0 * np.sqrt(share * (1.0 - share) / runs)
    low, high = (np.log(distance[round(at * (runs - 1))]) for at in (share - width, share + width))
    found = np.log(predicted)
    beyond = np.where(found > high, found - high, np.where(found < low, found - low, 0.0))
    return float(beyond[np.argmax(np.abs(beyond))])


@pytest.mark.long
def test_without_noise_on_messages_their_law_is_that_of_other_runs():
    problem, run = given(40, 20, 3, noise_std=0.3, seed=1), {"data": lf.FreshSamples(11), "n_rounds": 30}

    def told(noise):
        algorithm = lf.PrivateFedRep(rank=3, step_size=0.4, init=lf.AtDistance(0.6), message_noise_std=noise)
        return lf.predict(algorithm, problem, **run)

    none, little = told(0.0), told(1e-9)
    for name in ("distance", "low", "high"):
        np.testing.assert_allclose(getattr(little, name), getattr(none, name), rtol=1e-6)
    assert float(little.floor) == pytest.approx(float(none.floor), rel=1e-6)
    assert little.distance[-1] == pytest.approx(float(little.floor), rel=0.03)
    assert told(0.02).distance[-1] > 1.1 * little.distance[-1]


MESSAGES = {  # k, d, n, m - k, participants, label noise, noise of a round on a column, share of the best step, start
    "the limit without noise": (4, 9, 25, 4, 25, 0.1, 1e-9, 0.5, 0.8),
    "as many dimensions as angles": (4, 8, 100, 4, 100, 0.1, 1e-3, 0.5, 0.05),
    "noise that decides": (5, 30, 60, 10, 30, 0.0, 0.3, 0.7, 0.3),
    "one angle": (1, 80, 100, 5, 50, 0.0, 0.3, 0.7, 0.8),
    "few clients": (3, 40, 8, 12, 8, 0.3, 0.05, 0.4, 0.9),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MESSAGES)
def test_noise_on_messages_has_the_median_and_the_band_of_runs(name):
    k, d, n, more, p, noise, length, share, start = MESSAGES[name]
    rng = np.random.default_rng(len(name))
    problem = lf.GivenTruth(B=np.eye(d, k), W=orthonormal_heads(rng, n, k, 1.5), noise_std=noise)
    step = share * lf.theory.near_truth_best_step(problem.W, dim=d, n_samples=k + more, participants=p)
    algorithm = lf.PrivateFedRep(
        rank=k, step_size=step, init=lf.AtDistance(start), message_noise_std=length / step / np.sqrt(d)
    )
    run = {"data": lf.FreshSamples(k + more), "n_rounds": 40, "participation": p}
    found = lf.predict(algorithm, problem, **run)
    measured = distances(algorithm, problem, trials=300, seed=4, **run)
    assert found.law == "second order"
    assert found.warnings == ()
    assert abs(worst(measured, found.distance)) < 0.05
    assert abs(worst(measured, found.low, 0.1)) < 0.1
    assert abs(worst(measured, found.high, 0.9)) < 0.1


MANY = {  # k, d, n, m, label noise, share of the best step, initial distance
    "many angles": (17, 40, 100, 37, 0.0, 0.8, 0.6),
    "from near": (19, 38, 100, 39, 1.0, 0.5, 0.05),
    "few samples": (20, 60, 80, 23, 0.3, 0.4, 0.3),
    "m = k + 3": (4, 8, 60, 7, 1.0, 0.8, 0.3),
    "m = k + 2, few clients": (3, 30, 8, 5, 0.3, 0.4, 0.05),
    "more noise": (5, 12, 40, 8, 5.0, 1.0, 0.3),
}


@pytest.mark.parametrize("name", mostly_long(MANY, "m = k + 3"))
def test_the_means_give_the_median_of_the_largest_angle(name):
    """The root mean square over angles is up to 3.4 times lower."""
    k, d, n, m, noise, share, start = MANY[name]
    rng = np.random.default_rng(len(name))
    problem = lf.GivenTruth(B=np.eye(d, k), W=orthonormal_heads(rng, n, k), noise_std=noise)
    step = share * lf.theory.near_truth_best_step(problem.W, dim=d, n_samples=m)
    algorithm, run = (
        lf.FedRep(rank=k, step_size=step, init=lf.AtDistance(start)),
        {"data": lf.FreshSamples(m), "n_rounds": 12},
    )
    found = lf.predict(algorithm, problem, **run)
    measured = distances(algorithm, problem, trials=150, seed=4, **run)
    assert found.law == "means"
    assert found.warnings == ()
    assert abs(worst(measured, found.distance)) < np.log(1.15)


@pytest.mark.long
@pytest.mark.parametrize("start", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_noise_alone_has_the_median_of_runs(k, start):
    for d in (max(2 * k, 4), int(k / 0.25**2), 150):
        for length in (0.01, 0.3):
            algorithm = lf.PrivateFedRep(
                rank=k, step_size=0.5, init=lf.AtDistance(start), message_noise_std=length / 0.5 / np.sqrt(d)
            )
            run = {"data": lf.FreshSamples(k), "n_rounds": 25, "participation": 5}
            problem = given(12, d, k, noise_std=0.1)
            found = lf.predict(algorithm, problem, **run)
            measured = distances(algorithm, problem, trials=200, seed=4, **run)
            assert found.law == "noise on messages"
            assert found.warnings == ()
            assert abs(worst(measured, found.distance)) < np.log(1.12 if d <= 10 * k else 1.05)


@pytest.mark.long
def test_a_truth_of_a_higher_rank_is_warned_of_where_it_is_wrong():
    """In random settings with 3 to 100 participants, initial distances up to 0.97 and steps up to 1.5/lambda_1."""
    rng, counts = np.random.default_rng(12), {(right, warned): 0 for right in (True, False) for warned in (True, False)}
    for number in range(60):
        k = int(rng.integers(1, 5))
        r = k + int(rng.integers(1, 6))
        d, n = max(2 * k, r) + int(rng.integers(0, 30)), max(r, int(np.exp(rng.uniform(np.log(3), np.log(100)))))
        lengths = np.sort(rng.uniform(1.0, 3.0, r))[::-1] * np.where(np.arange(r) < k, 1.0, rng.uniform(0.1, 0.8))
        problem = lf.GivenTruth(
            B=np.eye(d, r), W=orthonormal_heads(rng, n, r) * lengths, noise_std=float(rng.choice([0.0, 0.3, 3.0]))
        )
        algorithm = lf.FedRep(
            rank=k,
            step_size=float(rng.uniform(0.02, 1.5)) / lengths[0] ** 2,
            init=lf.AtDistance(float(rng.choice([0.05, 0.3, 0.6, 0.88, 0.92, 0.97]))),
        )
        run = {"data": lf.FreshSamples(k + 4 + int(rng.integers(0, 20))), "n_rounds": int(rng.choice([10, 40]))}
        try:
            found = lf.predict(algorithm, problem, **run)
        except lf.NoPredictionError as error:
            assert "too large" in str(error)  # noqa: PT017
            continue
        measured = distances(algorithm, problem, trials=200, seed=number, **run)
        counts[abs(worst(measured, found.distance)) < np.log(1.07), bool(found.warnings)] += 1
    assert counts[False, False] <= 2
    assert 2 * counts[True, True] <= counts[True, True] + counts[True, False]
    assert counts[False, True] >= 3
