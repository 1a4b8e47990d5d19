"""Predictions of runs by the formula of another run: wider B, small d, B without QR, and messages of noise."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, each

FRESH = lf.FreshSamples


def given(n, d, r, *, noise_std=0.0, seed=0, scale=None):
    """Return a ground truth on the first r coordinates, with Gaussian heads whose columns have the given lengths."""
    W = np.random.default_rng(seed).standard_normal((n, r))
    return lf.GivenTruth(B=np.eye(d)[:, :r], W=W if scale is None else W * scale, noise_std=noise_std)


def turned(d, k, sine, seed=0):
    """Return an orthonormal B in random columns whose angles to the first k coordinates have this sine, if not 0."""
    B = np.eye(d)[:, :k].copy()
    for i in range(min(k, d - k)):
        B[i, i], B[k + i, i] = np.sqrt(1 - sine**2), sine
    return B @ np.linalg.qr(np.random.default_rng(seed).standard_normal((k, k)))[0]


def distances(algorithm, problem, data, **run):
    """Return the distance in every round, (trials, rounds + 1)."""
    return lf.simulate(algorithm, problem, data=data, metrics=["subspace_distance"], **run).metrics["subspace_distance"]


# --- more columns than the rank of the truth -------------------------------------------------------------------

WIDER = {  # n, d, k, r, m, noise, step size, participants, rounds
    "two more": (40, 30, 4, 2, 12, 0.1, 0.4, 40, 30),
    "without noise": (60, 60, 5, 2, 15, 0.0, 0.5, 60, 20),
    "some participants": (60, 40, 3, 1, 8, 0.3, 0.4, 20, 30),
    "k = d - r": (40, 12, 10, 2, 20, 0.2, 0.5, 40, 30),
}


@each("name", WIDER)
def test_a_wider_run_is_predicted_by_its_narrow_equivalent(name):
    n, d, k, r, m, noise, step, p, rounds = WIDER[name]
    problem = given(n, d, r, noise_std=noise)
    start = np.linalg.qr(np.random.default_rng(1).standard_normal((d, k)))[0]
    algorithm, run = lf.FedRep(rank=k, step_size=step, init=start), {"rounds": rounds, "participation": p}
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


def test_the_step_sizes_of_a_wider_run_are_its_own():
    """Above the edge of the wide run it does not converge; the equivalent's edge is larger by m/m'."""
    problem, start = given(40, 30, 2), turned(30, 2, 0.3)
    start = np.concatenate([start, np.eye(30)[:, 10:16]], axis=1)
    run = {"data": FRESH(14), "rounds": 150}
    edge = float(lf.predict(lf.FedRep(rank=8, step_size=0.1, init=start), problem, **run).stability_edge)
    narrow = lf.theory.stability_edge(problem.W, dim=24, n_samples=8)
    assert edge == pytest.approx(narrow * 14 / 8, rel=1e-9)
    for share, falls in ((0.8, True), (1.3, False)):
        algorithm = lf.FedRep(rank=8, step_size=share * edge, init=start)
        measured = distances(algorithm, problem, FRESH(14), rounds=150, trials=20)
        assert (np.median(measured[:, -1]) < 1e-3) == falls
    summed = lf.FedRep(rank=8, step_size=0.1 / 40, init=start, aggregate="sum")
    found = lf.predict(summed, problem, **run)
    assert found.stability_edge == pytest.approx(edge / 40, rel=1e-9)
    plain = lf.predict(lf.FedRep(rank=8, step_size=0.1, init=start), problem, **run)
    np.testing.assert_allclose(found.distance, plain.distance, rtol=1e-9)


# --- dimensions below 2k -----------------------------------------------------------------------------------------

SMALL = {"d = 3": (20, 3, 2, 8, 20), "d = 5": (40, 5, 3, 9, 10), "d = 5, k = 4": (30, 5, 4, 12, 30)}  # n, d, k, m, p


@each("name", SMALL)
def test_below_twice_the_rank_floor_and_rate_are_those_of_runs(name):
    n, d, k, m, p = SMALL[name]
    problem, start = given(n, d, k, noise_std=0.03), turned(d, k, 0.0)
    edge = float(
        lf.predict(
            lf.FedRep(rank=k, step_size=0.1, init=start), problem, data=FRESH(m), rounds=1, participation=p
        ).stability_edge
    )
    algorithm = lf.FedRep(rank=k, step_size=0.3 * edge, init=start)
    run = {"rounds": 200, "participation": p}
    found = lf.predict(algorithm, problem, data=FRESH(m), **run)
    measured = distances(algorithm, problem, FRESH(m), trials=60, **run)[:, 60:]
    assert found.floor == pytest.approx(np.median(measured), rel=0.06)
    clean = given(n, d, k)
    tilted = lf.FedRep(rank=k, step_size=0.3 * edge, init=turned(d, k, 1e-4))
    squares = np.square(distances(tilted, clean, FRESH(m), rounds=24, trials=2000, participation=p)).mean(axis=0)
    assert found.rate == pytest.approx((squares[24] / squares[8]) ** (1 / 32), abs=0.012)
    assert_one_line(lambda: found.distance, ["below 2 rank", f"dim = {d}"], errors=lf.NoPredictionError)


def test_with_as_many_columns_as_dimensions_the_distance_is_0():
    problem = given(10, 4, 2, noise_std=0.1)
    algorithm = lf.FedRep(rank=4, step_size=0.1, init="random")
    run = {"data": FRESH(9), "rounds": 3}
    assert (lf.predict(algorithm, problem, **run).distance == 0).all()
    assert distances(algorithm, problem, FRESH(9), rounds=3).max() < 1e-7
    whole = lf.GivenTruth(B=np.eye(2), W=np.ones((3, 2)) + np.eye(3, 2))
    assert (lf.predict(lf.FedRep(rank=2, step_size=0.1, init="random"), whole, **run).distance == 0).all()


# --- without QR ----------------------------------------------------------------------------------------------------

PLAIN = {  # n, d, k, m, noise, step size, participants, rounds, initial distance, lengths of the heads' columns
    "noise": (100, 50, 2, 10, 1.0, 0.5, 100, 60, 0.3, None),
    "far start": (60, 60, 2, 10, 0.5, 0.5, 60, 40, 0.9, None),
    "some participants": (100, 60, 3, 14, 0.5, 0.8, 40, 60, 0.7, None),
    "heads that differ": (100, 60, 2, 12, 1.0, 0.5, 100, 60, 0.5, [1.2, 0.8]),
}


@each("name", PLAIN)
def test_without_qr_the_median_is_that_of_runs(name):
    n, d, k, m, noise, step, p, rounds, delta, scale = PLAIN[name]
    problem, run = given(n, d, k, noise_std=noise, scale=scale), {"rounds": rounds, "participation": p}
    algorithm = lf.FedRep(rank=k, step_size=step, orthonormalize=False, init=lf.AtDistance(delta))
    found = lf.predict(algorithm, problem, data=FRESH(m), **run)
    measured = distances(algorithm, problem, FRESH(m), trials=100, **run)
    spread = np.log(measured[:, 1:]).std(axis=0) / np.sqrt(100)
    assert (np.abs(np.log(found.distance / np.median(measured, axis=0)))[1:] < 0.05 + 4 * spread).all()
    assert found.law == "without QR"
    assert not found.warnings
    normal = lf.predict(lf.FedRep(rank=k, step_size=step, init=lf.AtDistance(delta)), problem, data=FRESH(m), **run)
    assert abs(np.log(normal.distance[-1] / np.median(measured[:, -1]))) > 0.06


def test_without_qr_doubts_begin():
    run = {"data": FRESH(10), "rounds": 5}
    algorithm = lf.FedRep(rank=2, step_size=0.3, orthonormalize=False, init=lf.AtDistance(0.5))
    uneven = lf.predict(algorithm, given(60, 60, 2, scale=[3.0, 1.0]), **run)
    assert any("grow unevenly" in text for text in uneven.warnings)
    few = lf.predict(algorithm, given(60, 60, 2), data=FRESH(5), rounds=5)
    assert any("at most rank + 3" in text for text in few.warnings)
    assert_one_line(lambda: few.floor, ["no prediction of the floor"], errors=lf.NoPredictionError)


# --- messages of noise alone ---------------------------------------------------------------------------------------

NOISE = {  # n, d, k, m, noise, step size, participants, initial distance, rounds
    "small start": (20, 40, 2, 2, 0.05, 0.5, 20, 0.1, 30),
    "fewer samples than columns": (20, 60, 3, 1, 0.1, 0.5, 5, 0.5, 30),
    "one column": (10, 30, 1, 1, 0.05, 1.0, 10, 0.3, 20),
}


@each("name", NOISE)
def test_messages_of_noise_turn_b_as_predicted(name):
    """The largest angle is a little above the root mean square of all, which is exact for one column."""
    n, d, k, m, noise, step, p, delta, rounds = NOISE[name]
    problem, run = given(n, d, k, noise_std=0.3), {"rounds": rounds, "participation": p}
    for aggregate, unit in (("mean", 1), ("sum", p)):
        options = {"message_noise_std": noise, "init": lf.AtDistance(delta), "aggregate": aggregate}
        algorithm = lf.PrivateFedRep(rank=k, step_size=step, **options)
        found = lf.predict(algorithm, problem, data=FRESH(m), **run)
        measured = distances(algorithm, problem, FRESH(m), trials=200, **run)
        root = np.sqrt(np.square(measured).mean(axis=0))
        low, high = (0.97, 1.03) if k == 1 else (0.88, 1.01)
        assert ((low < found.distance / root) & (found.distance / root < high)).all()
        assert found.law == "noise on messages"
        planted = lf.PrivateFedRep(rank=k, step_size=1.3 * step, **options)
        assert lf.predict(planted, problem, data=FRESH(m), **run).distance[1] > 1.02 * found.distance[1]
        assert unit >= 1


# --- clients that differ, with noise on messages or sparse messages ------------------------------------------------


DIFFERING = {
    "noise": lambda **more: lf.PrivateFedRep(rank=2, message_noise_std=0.03, **more),
    "sparse": lambda **more: lf.CompressedFedRep(rank=2, kept_share=0.5, **more),
}


@each("name", DIFFERING)
def test_the_floor_of_clients_that_differ_is_that_of_runs(name):
    noise, counts = np.geomspace(0.05, 0.6, 30), [8, 12, 20] * 10
    B = np.linalg.qr(np.random.default_rng(2).standard_normal((40, 2)))[0]  # masks see its coordinates
    problem = lf.GivenTruth(B=B, W=given(30, 40, 2).W, noise_std=noise)
    run = {"data": FRESH(counts), "rounds": 150, "participation": 20}
    options = {"init": lf.TrueSubspace(), "weights": np.linspace(1.0, 3.0, 30)}
    edge = float(lf.predict(DIFFERING[name](step_size=0.1, **options), problem, **run).stability_edge)
    algorithm = DIFFERING[name](step_size=0.3 * edge, **options)
    found = float(lf.predict(algorithm, problem, **run).floor)
    measured = distances(algorithm, problem, run.pop("data"), trials=30, **run)[:, 50:]
    assert np.median(measured) * 0.94 < found < np.sqrt(np.square(measured).mean()) * 1.05
    alike = lf.GivenTruth(B=B, W=problem.W, noise_std=0.15)
    assert float(lf.predict(algorithm, alike, data=FRESH(13), **run).floor) != pytest.approx(found, rel=0.1)


# --- runs without an answer ----------------------------------------------------------------------------------------

QUANTITIES = ("floor", "rate", "stability_edge", "best_step")
ALGORITHMS = {
    "FedRep": lambda k: lf.FedRep(rank=k, step_size=0.3, init=lf.AtDistance(0.5)),
    "noise": lambda k: lf.PrivateFedRep(rank=k, step_size=0.3, message_noise_std=0.1, init=lf.AtDistance(0.5)),
    "sparse": lambda k: lf.CompressedFedRep(rank=k, step_size=0.3, kept_share=0.5, init=lf.AtDistance(0.5)),
}


@each("name", ALGORITHMS)
@each("noise", [0.0, 0.1])
def test_heads_that_do_not_span_have_no_quantities_near_the_truth(name, noise):
    one = given(1, 10, 2, noise_std=noise)
    none = lf.GivenTruth(B=np.eye(10)[:, :2], W=np.zeros((5, 2)), noise_std=noise)
    flat = lf.GivenTruth(B=np.eye(10)[:, :2], W=np.ones((30, 2)), noise_std=noise)
    for problem in (one, none, flat):
        found = lf.predict(ALGORITHMS[name](2), problem, data=FRESH(8), rounds=5)
        for quantity in QUANTITIES:
            words = ["heads span fewer than rank = 2 dimensions"]
            assert_one_line(lambda q=quantity, f=found: getattr(f, q), words, errors=lf.NoPredictionError)
        assert "rate" not in repr(found)


@each("rank", [1, 3])
@each("noise", [0.0, 0.3])
def test_from_a_right_angle_there_is_no_distance(rank, noise):
    problem, run = given(40, 20, rank, noise_std=noise), {"data": FRESH(rank + 6), "rounds": 20}
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


REFUSED = {  # words, algorithm, problem, data
    "wider, gradient heads": (
        ["rank 2 and rank = 4"], lf.FedRep(rank=4, step_size=0.1, heads=lf.GradientHeads(step_size=0.1), init="random"),
        given(9, 20, 2), FRESH(9),
    ),
    "wider, noise on messages": (
        ["noise on messages"], lf.PrivateFedRep(rank=4, step_size=0.1, message_noise_std=0.1, init="random"),
        given(9, 20, 2), FRESH(9),
    ),
    "wider, clients that differ": (
        ["different noise_std", "rank 2 and rank = 4"], lf.FedRep(rank=4, step_size=0.1, init="random"),
        given(9, 20, 2, noise_std=np.linspace(0.1, 0.9, 9)), FRESH(9),
    ),
    "wider, dimension": (
        ["dim = 5", "rank + 2 = 6"], lf.FedRep(rank=4, step_size=0.1, init="random"), given(9, 5, 2), FRESH(9),
    ),
    "wider, sparse": (
        ["compressed", "rank"], lf.CompressedFedRep(rank=4, step_size=0.1, kept_share=0.5, init="random"),
        given(9, 20, 2), FRESH(9),
    ),
    "wider, without QR": (
        ["orthonormalize = False", "rank 2 and rank = 4"],
        lf.FedRep(rank=4, step_size=0.1, orthonormalize=False, init="random"), given(9, 20, 2), FRESH(9),
    ),
    "without QR, schedule": (
        ["orthonormalize = False", "schedule"],
        lf.FedRep(rank=2, step_size=[0.1, 0.2], orthonormalize=False, init="random"), given(9, 20, 2), FRESH(9),
    ),
    "without QR, clients that differ": (
        ["orthonormalize = False", "different numbers of fresh samples"],
        lf.FedRep(rank=2, step_size=0.1, orthonormalize=False, init="random"), given(9, 20, 2), FRESH([9] * 8 + [8]),
    ),
    "without QR, gradient heads": (
        ["orthonormalize = False", "gradient heads"],
        lf.FedRep(rank=2, step_size=0.1, orthonormalize=False, heads=lf.GradientHeads(step_size=0.1), init="random"),
        given(9, 20, 2), FRESH(9),
    ),
    "small d, gradient heads": (
        ["dim = 3", "2 rank = 4"],
        lf.FedRep(rank=2, step_size=0.1, heads=lf.GradientHeads(step_size=0.1), init="random"),
        given(9, 3, 2), FRESH(9),
    ),
    "noise, some clients with few samples": (
        ["n_samples = 2", "rank + 2 = 4"],
        lf.PrivateFedRep(rank=2, step_size=0.1, message_noise_std=0.1, init="random"),
        given(3, 20, 2), FRESH([9, 9, 2]),
    ),
}  # fmt: skip


@each("name", REFUSED)
def test_other_runs_are_refused_with_the_reason(name):
    words, algorithm, problem, data = REFUSED[name]
    call = {"data": data, "rounds": 2}
    lf.simulate(algorithm, problem, **call)
    assert_one_line(lambda: lf.predict(algorithm, problem, **call), words, errors=lf.NoPredictionError)
