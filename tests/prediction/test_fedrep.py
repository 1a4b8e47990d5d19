"""Predictions of FedRep in special cases: B of all dimensions, m <= k, fixed samples, and a wider B."""

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.linalg import distance_from
from linfed.prediction.fedrep import truncation_metric
from tests.helpers import assert_one_line, basis, mostly_long, normal
from tests.prediction.runs import PROBLEM, distances, fedrep, given, predict, turned, with_part

FRESH = lf.FreshSamples


def test_with_as_many_columns_as_dimensions_the_distance_is_0():
    problem = given(10, 4, 2, noise_std=0.1)
    algorithm = lf.FedRep(rank=4, step_size=0.1, init="random")
    run = {"data": FRESH(9), "n_rounds": 3}
    assert (lf.predict(algorithm, problem, **run).distance == 0).all()
    assert distances(algorithm, problem, FRESH(9), n_rounds=3).max() < 1e-7
    whole = lf.GivenTruth(B=np.eye(2), W=np.ones((3, 2)) + np.eye(3, 2))
    assert (lf.predict(lf.FedRep(rank=2, step_size=0.1, init="random"), whole, **run).distance == 0).all()


def test_m_up_to_k_is_no_movement():
    for init in (lf.AtDistance(0.6), "random"):
        found = predict(fedrep(init=init), data=lf.FixedSamples(3), trials=2)
        run = lf.simulate(fedrep(init=init), PROBLEM, data=lf.FixedSamples(3), n_rounds=3, trials=2)
        assert found.law == "no movement"
        assert found.distance == pytest.approx(run.metrics["subspace_distance"], rel=1e-9)
        assert_one_line(lambda found=found: found.rate, ["no prediction of the rate"], lf.NoPredictionError)


def test_without_movement_the_distance_is_to_the_span_of_regressors_that_do_not_determine_k_directions():
    algorithm = lf.FedRep(rank=2, step_size=0.3, init="random")
    problem, run = lf.GivenTruth(Phi=np.ones((6, 5))), {"data": lf.FreshSamples(2), "n_rounds": 3}
    found = lf.simulate(algorithm, problem, **run).metrics["subspace_distance"][0]
    np.testing.assert_allclose(lf.predict(algorithm, problem, **run).distance, found, rtol=0, atol=1e-12)
    reference, B = problem.truth(0, [0]).reference(2), np.eye(5)[None, :, :2]
    np.testing.assert_allclose([distance_from(reference, B), distance_from(B, reference)], np.sqrt(3 / 5), rtol=1e-12)


# --- fixed samples -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "dim", "k", "m", "edge"), [pytest.param(400, 12, 3, 6, 3.0, marks=pytest.mark.long), (20, 60, 2, 20, 0.9)]
)
def test_a_step_beyond_the_edge_of_fixed_samples_is_doubted(n, dim, k, m, edge):
    """Few samples or clients spread the curvatures: runs just below the edge converge, those above it do not."""
    problem, told = lf.SharedRepresentation(n_clients=n, dim=dim, rank=k, noise_std=0.02, condition_number=1.0), {}
    for share in (0.85, 1.2):
        algorithm = lf.FedRep(rank=k, step_size=share * edge, init=lf.AtDistance(0.1))
        run = {"data": lf.FixedSamples(m), "n_rounds": 300, "seed": 3}
        told[share] = lf.predict(algorithm, problem, **run).warnings
        last = lf.simulate(algorithm, problem, **run, trials=4).metrics["subspace_distance"][:, -2:]
        still = np.abs(np.diff(last, axis=1)) < 1e-9
        assert still.all() if share < 1 else not still.any()
    assert told[0.85] == ()
    assert f"for n_samples = {m}" in told[1.2][0]
    assert lf.predict(lf.FedRep(rank=k, step_size=1.2 * edge), problem, data=lf.FixedSamples(m), n_rounds=0).warnings
    heads = lf.SharedRepresentation(n_clients=n, dim=dim, rank=k, condition_number=2.0).truth(3, [0]).W[0]
    assert np.linalg.cond(heads) == pytest.approx(2.0)
    uneven = lf.GivenTruth(B=np.eye(dim)[:, :k], W=heads)
    text = lf.predict(lf.FedRep(rank=k, step_size=9.0), uneven, data=lf.FixedSamples(m), n_rounds=1).warnings[0]
    ratio = edge / (np.linalg.norm(heads, 2) ** 2 / n)  # the largest curvature decides
    assert float(text.split("below ")[1].split(",")[0]) == pytest.approx(ratio, rel=0.02)
    schedule = lf.FedRep(rank=k, step_size=[1.2 * edge, 0.1], init=lf.AtDistance(0.1))
    assert lf.predict(schedule, problem, data=lf.FixedSamples(m), n_rounds=2).warnings == ()  # it falls below the edge


@pytest.mark.parametrize("unit", [1, 20])
def test_the_largest_stable_step_on_fixed_samples_by_hand(unit):
    k, d, n, m = 2, 12, 20, 9
    changes = {"aggregate": "sum"} if unit > 1 else {}

    def told(problem, step_size=9.0):
        algorithm = fedrep(rank=k, step_size=step_size, init="random", **changes)
        return lf.predict(algorithm, problem, data=lf.FixedSamples(m), n_rounds=1).warnings

    W = normal(n, k)
    largest = np.linalg.norm(W, 2) ** 2 / n * (1 - k / m) * (1 + np.sqrt((d - k) * k / (n * (m - k)))) ** 2
    problem = lf.GivenTruth(B=basis(d, k), W=W)
    (text,) = told(problem)
    assert (
        f"step_size = 9 is not below {2 / largest / unit:.4g}, about the largest stable one for n_samples = 9" in text
    )
    assert told(problem, 0.999 * 2 / largest / unit) == ()
    for dim, beyond in ((12, 0.0), (3, 1.0)):
        higher = lf.UnderParameterized(n_clients=n, dim=dim, spectrum=[3.0, 2.0, 1.0])
        (text,) = told(higher)
        assert f"is not below {2 * n / (9.0 - beyond) / unit:.4g}, about the largest stable one for large" in text


def test_equal_singular_values_and_x_that_is_not_gaussian_have_no_edge_on_fixed_samples():
    for problem in (
        lf.UnderParameterized(n_clients=4, dim=4, spectrum=[1.0, 1.0, 1.0, 1.0], noise_std=0.1),
        lf.GivenTruth(B=np.eye(9)[:, :2], W=np.zeros((5, 2))),
        lf.SharedRepresentation(n_clients=9, dim=9, rank=2, design="rademacher"),
    ):
        assert (
            lf.predict(lf.FedRep(rank=2, step_size=9.0), problem, data=lf.FixedSamples(20), n_rounds=1).warnings == ()
        )


def test_noise_that_differs_between_clients_on_fixed_samples():
    """The distance from the truncation has the noise of each client in its closed form."""
    noise = np.linspace(0.05, 0.5, 50)
    problem = lf.UnderParameterized(n_clients=50, dim=8, spectrum=[6.0, 5.0, 2.0, 1.0], noise_std=noise)
    run = {"data": lf.FixedSamples(200), "n_rounds": 200, "seed": 3, "trials": 10}
    found = lf.predict(lf.FedRep(rank=2, step_size=0.5), problem, **run).floor
    last = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, **run).final.predictors()
    U, s, Vt = np.linalg.svd(problem.truth(3, range(10)).dense(), full_matrices=False)
    off = last - (U[..., :2] * s[:, None, :2]) @ Vt[:, :2]
    ratio = np.square(off).sum(axis=-1).mean(axis=-1) / np.asarray(found) ** 2
    assert 0.85 < ratio.mean() < 1.15  # over ten data sets


@pytest.mark.parametrize("name", ["similar", pytest.param("outliers", marks=pytest.mark.long)])
def test_the_predicted_floor_on_fixed_samples_is_that_of_runs(name):
    """From the truncation of all regressors to rank k, outliers included; to first order in 1/m."""
    problem = with_part(name)
    fedrep, data = lf.FedRep(rank=2, step_size=0.3, init=lf.TrueSubspace()), lf.FixedSamples(400)
    floor = float(lf.predict(fedrep, problem, data=data, n_rounds=5).floor)
    result = lf.simulate(fedrep, problem, data=data, n_rounds=100, trials=40, metrics=[truncation_error])
    assert np.sqrt(np.square(result.metrics["truncation_error"][:, -1]).mean()) == pytest.approx(floor, rel=0.05)


def truncation_error(state, truth):
    """Return the root mean square distance of the clients' predictors from the truncation to rank 2."""
    cut = truth.truncated(2).dense()
    return np.sqrt(np.square(state.predictors() - cut).sum(axis=-1).mean(axis=-1))


def test_the_metric_of_a_floor_is_that_of_the_truth_if_the_rank_suffices():
    for rank, metric in ((2, "mean_truncation_error"), (3, "mean_client_error"), (4, "mean_client_error")):
        assert truncation_metric(PROBLEM, rank) == metric
    assert truncation_metric(lf.UnderParameterized(n_clients=9, dim=5), 5) == "mean_truncation_error"


# --- more columns than the rank of the truth ---------------------------------------------------------------------

WIDER = {  # n, d, k, r, m, noise, step size, participants, rounds
    "two more": (40, 30, 4, 2, 12, 0.1, 0.4, 40, 30),
    "without noise": (60, 60, 5, 2, 15, 0.0, 0.5, 60, 20),
    "some participants": (60, 40, 3, 1, 8, 0.3, 0.4, 20, 30),
    "k = d - r": (40, 12, 10, 2, 20, 0.2, 0.5, 40, 30),
}


@pytest.mark.parametrize("name", mostly_long(WIDER, *list(WIDER)[:2]))
def test_a_wider_run_is_predicted_by_its_narrow_equivalent(name):
    n, d, k, r, m, noise, step, p, rounds = WIDER[name]
    problem = given(n, d, r, noise_std=noise)
    start = np.linalg.qr(np.random.default_rng(1).standard_normal((d, k)))[0]
    algorithm, run = lf.FedRep(rank=k, step_size=step, init=start), {"n_rounds": rounds, "participation": p}
    found = lf.predict(algorithm, problem, data=FRESH(m), **run)
    measured = distances(algorithm, problem, FRESH(m), trials=120, **run)
    assert found.distance[0] == pytest.approx(measured[0, 0], rel=1e-9)
    shares = found.distance[1:] / np.median(measured, axis=0)[1:]
    spread = np.log(measured[:, 1:]).std(axis=0) / np.sqrt(120)
    assert (np.abs(np.log(shares)) < 0.05 + 4 * spread).all()
    assert f"{r} columns" in found.source
    assert "r columns" in found.validity
    assert all(text.startswith("as a run with") for text in found.warnings)
    if noise:
        assert abs(np.log(float(found.floor) / np.median(measured[:, -1]))) < 0.05 + 4 * spread[-1]
    assert found.best_step < found.stability_edge


MOVING = {  # n, d, k, r, m, noise, share by which the extra columns lower the distance
    "many columns": (17, 26, 14, 2, 18, 2.0, 0.14),
    "many columns and clients": (170, 26, 14, 2, 18, 2.0, 0.0),
    "little noise": (20, 20, 10, 1, 15, 0.3, 0.0),
    "one direction": (30, 40, 20, 1, 25, 2.0, 0.08),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MOVING)
def test_random_moves_of_extra_columns_are_told_if_they_count(name):
    n, d, k, r, m, noise, lowered = MOVING[name]
    rng = np.random.default_rng(0)
    W = np.linalg.qr(rng.standard_normal((n, r)))[0] * np.sqrt(n)
    problem, start = lf.GivenTruth(B=np.eye(d, r), W=W, noise_std=noise), np.linalg.qr(rng.standard_normal((d, k)))[0]
    kept = m - (k - r)
    step = 0.5 * lf.theory.near_truth_best_step(W, dim=d - (k - r), n_samples=kept) * m / kept
    algorithm, run = lf.FedRep(rank=k, step_size=step, init=start), {"data": FRESH(m), "n_rounds": 40}
    found = lf.predict(algorithm, problem, **run)
    assert any("extra columns" in text for text in found.warnings) == bool(lowered)
    assert ("extra columns" in found.floor.validity) == bool(lowered)
    measured = np.median(distances(algorithm, problem, trials=400, **run)[:, -10:])
    assert np.log(float(found.floor) / measured) == pytest.approx(lowered, abs=0.04)


@pytest.mark.long
def test_the_step_sizes_of_a_wider_run_are_its_own():
    """Above the edge of the wide run it does not converge; the equivalent's edge is larger by m/m'."""
    problem, start = given(40, 30, 2), turned(30, 2, 0.3)
    start = np.concatenate([start, np.eye(30)[:, 10:16]], axis=1)
    run = {"data": FRESH(14), "n_rounds": 20}
    edge = float(lf.predict(lf.FedRep(rank=8, step_size=0.1, init=start), problem, **run).stability_edge)
    narrow = lf.theory.stability_edge(problem.W, dim=24, n_samples=8)
    assert edge == pytest.approx(narrow * 14 / 8, rel=1e-9)
    for share, falls in ((0.8, True), (1.3, False)):
        algorithm = lf.FedRep(rank=8, step_size=share * edge, init=start)
        measured = distances(algorithm, problem, FRESH(14), n_rounds=150, trials=6)
        assert (np.median(measured[:, -1]) < 1e-3) == falls
    summed = lf.FedRep(rank=8, step_size=0.1 / 40, init=start, aggregate="sum")
    found = lf.predict(summed, problem, **run)
    assert found.stability_edge == pytest.approx(edge / 40, rel=1e-9)
    plain = lf.predict(lf.FedRep(rank=8, step_size=0.1, init=start), problem, **run)
    np.testing.assert_allclose(found.distance, plain.distance, rtol=1e-9)
