"""Predictions of personal models: floor and rate are those of the affine map that the loops are."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, normal
from tests.loops import Round
from tests.worlds import LEARNERS, Learner, draw_world

NO_MIXING = {"local_steps": 2, "mix": 0.7}
PREDICTED = {
    "Ditto": Learner(lf.Ditto, {}, sent=10),
    "Ditto, several steps": Learner(
        lf.Ditto, {"local_steps": 3, "penalty": 0.5, "personal_steps": 2, "personal_step_size": 0.15}, sent=10
    ),
    "APFL": Learner(lf.APFL, {"local_steps": 3}, sent=10),
    "APFL, framework": Learner(lf.APFL, NO_MIXING | {"variant": "framework"}, sent=10),
    "PFedMe": LEARNERS["PFedMe"],
    "PFedMe, exact": LEARNERS["PFedMe, exact"],
    "PFedMe, beta = 1.5": LEARNERS["PFedMe, beta = 1.5"],
    "PerFedAvg": LEARNERS["PerFedAvg"],
    "PerFedAvg, Hessian": LEARNERS["PerFedAvg, Hessian"],
    "PerFedAvg, split": LEARNERS["PerFedAvg, split"],
    "PerFedAvg, Hessian, split": LEARNERS["PerFedAvg, Hessian, split"],
}


@pytest.fixture
def world():
    return draw_world([9] * 4, 3, 2, noise=0.4, seed=3)


def round_as_a_map(learner, world):
    """Return matrix and offset of a round of the loop on the state without the mix, and how to unpack it."""
    options, start = learner.options_at(2), learner.loop.start(world, **learner.options_at(2))
    moved = {name: array.shape for name, array in start.items() if name != "mix"}
    now = Round(world.X, world.y, np.arange(world.n), 1, world.n, max(map(len, world.y)), None)

    def unpack(z):
        parts = np.split(z, np.cumsum([np.prod(shape) for shape in moved.values()])[:-1])
        return start | {name: part.reshape(shape) for (name, shape), part in zip(moved.items(), parts, strict=True)}

    def after(z):
        new = learner.loop.round(unpack(z), now, **options)
        return np.concatenate([new[name].ravel() for name in moved])

    size = sum(int(np.prod(shape)) for shape in moved.values())
    offset = after(np.zeros(size))
    return np.array([after(row) - offset for row in np.eye(size)]).T, offset, unpack, now


@pytest.mark.parametrize("counts", [[7, 12, 5], [3, 3, 3], [8]], ids=["more samples", "fewer samples", "one client"])
@pytest.mark.parametrize("name", PREDICTED)
def test_floor_and_rate_are_those_of_the_map_of_the_loops(name, counts):
    learner = PREDICTED[name]
    d = 5 if counts[0] == 3 else 3
    world = draw_world(counts, d, 2, noise=0.4, seed=4)
    M, end, unpack, now = round_as_a_map(learner, world)
    values = np.linalg.eigvals(M)
    for _ in range(18):  # twice as many rounds each time, from 0
        M, end = M @ M, M @ end + end
    last = unpack(end)
    if learner.loop.end:
        last = learner.loop.end(last, now, **learner.options_at(2))
    if learner.kind is lf.APFL:
        a = learner.make().mix
        last["S"] = a * last["own"] + (1 - a) * last["shared"]
    covariance = np.diag(np.linspace(0.5, 2.0, d))
    problem = world.problem(noise_std=0.4, design=lf.Gaussian(covariance=covariance))
    found = lf.predict(learner.make(), problem, data=world.data(), n_rounds=10)
    assert found.floor == pytest.approx(ref.risk(last["S"], world.Phi, covariance, 0.4), rel=1e-8)
    assert found.rate == pytest.approx(np.abs(values[np.abs(values - 1) > 1e-9]).max(), rel=1e-8)


@pytest.mark.parametrize(
    ("algorithm", "shape", "unseen"),
    [
        (lf.Ditto(step_size=0.1, penalty=0.01), (1, 3, 5), 0),
        (lf.Ditto(step_size=0.1, penalty=0.01), (4, 20, 5), 1),
        (lf.Ditto(step_size=0.1, penalty=0.0), (8, 4, 15), 0),
        (lf.APFL(step_size=0.1, mix=1.0), (8, 4, 15), 0),
    ],
    ids=["Ditto, few samples", "Ditto, columns of zeros", "Ditto alone", "APFL, own models"],
)
def test_the_rate_is_that_of_what_a_run_from_zero_serves(algorithm, shape, unseen):
    """Directions that no client's samples have stay at 0, and the server's model does not count if it is not served."""
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal(shape), rng.standard_normal(shape[:2])
    X[..., : 2 * unseen] = 0.0
    data = lf.GivenSamples(X, y)
    served = [lf.simulate(algorithm, data=data, n_rounds=n).final.predictors() for n in (300, 330, 360)]
    first, second = (np.linalg.norm(after - before) for before, after in pairwise(served))
    measured = (second / first) ** (1 / 30)
    found = lf.predict(algorithm, data=data, n_rounds=10)
    assert found.rate == pytest.approx(measured, rel=1e-3)


def test_fixed_samples_are_predicted_as_the_same_samples_if_given():
    problem = lf.SharedRepresentation(n_clients=4, dim=3, rank=2, noise_std=0.3)
    run = {"n_rounds": 2, "seed": 5}
    data = lf.FixedSamples(9).draw(problem, trials=2, seed=5)
    for algorithm in (lf.Ditto(step_size=0.2, penalty=0.5), lf.FedAvg(step_size=0.2, local_steps=3)):
        drawn = lf.predict(algorithm, problem, data=lf.FixedSamples(9), trials=2, **run)
        given = lf.predict(algorithm, problem, data=data, **run)
        for name in ("floor", "rate"):
            np.testing.assert_allclose(getattr(drawn, name), getattr(given, name), rtol=1e-12)
            assert np.ptp(getattr(drawn, name)) > 1e-6


@pytest.mark.parametrize(
    ("algorithm", "run", "words"),
    [
        (lf.Ditto(step_size=0.1), {"participation": 0.5}, ["2 of 4 participants", "all clients must participate"]),
        (
            lf.Ditto(step_size=0.1, weights="samples"),
            {"data": lf.GivenSamples([normal(m, 3) for m in (5, 9, 9, 9)], [normal(m) for m in (5, 9, 9, 9)])},
            ["weights = 'samples'", "different numbers of samples", "'uniform'"],
        ),
        (lf.APFL(step_size=0.1, mix_step_size=0.1), {}, ["mix_step_size = 0.1", "must be fixed"]),
        (lf.PFedMe(step_size=[0.1, 0.2]), {}, ["schedule"]),
        (lf.L2GD(step_size=0.1, coins=[True, False]), {}, ["given coins", "leave coins= out"]),
    ],
)
def test_runs_without_a_prediction_are_one_line(world, algorithm, run, words):
    call = {"data": world.data(), "n_rounds": 2, **run}
    assert_one_line(lambda: lf.predict(algorithm, world.problem(), **call), words, errors=lf.NoPredictionError)


def test_weights_of_equal_numbers_of_samples_are_equal():
    problem = lf.SharedRepresentation(n_clients=4, dim=3, rank=2, noise_std=0.3)
    for data in (lf.FixedSamples(9), lf.FixedSamples(9).draw(problem)):
        one, other = (
            lf.predict(lf.Ditto(step_size=0.2, penalty=0.5, weights=weights), problem, data=data, n_rounds=2)
            for weights in ("uniform", "samples")
        )
        assert (one.floor, one.rate) == (other.floor, other.rate)


def test_l2gd_without_a_stationary_law_is_one_line():
    problem = lf.SharedRepresentation(n_clients=3, dim=4, rank=2, noise_std=0.3)
    run = {"data": lf.FixedSamples(12), "n_rounds": 2}
    call = lf.predict(lf.L2GD(step_size=0.9, penalty=0.3, mean_probability=0.5), problem, **run)
    assert_one_line(lambda: call.floor, ["step_size = 0.9", "grows without bound"], errors=lf.NoPredictionError)
    large = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, noise_std=0.3)
    call = lf.predict(lf.L2GD(step_size=0.01), large, **run)
    assert_one_line(lambda: call.floor, ["n d = 1000", "at most 400"], errors=lf.NoPredictionError)


def test_a_step_size_beyond_the_edge_has_a_rate_and_no_floor(world):
    found = lf.predict(lf.Ditto(step_size=5.0), world.problem(), data=world.data(), n_rounds=2)
    assert found.rate > 1
    assert_one_line(lambda: found.floor, ["step_size = 5", "diverges with rate"], errors=lf.NoPredictionError)


@pytest.mark.long
def test_l2gd_with_fewer_samples_than_parameters_has_a_floor():
    """The samples of all clients together leave directions free; the coins then move no model at the end."""
    problem = lf.SharedRepresentation(n_clients=3, dim=10, rank=2, noise_std=0.1)
    algorithm = lf.L2GD(step_size=0.05, penalty=1.0, mean_probability=0.3)
    run = {"data": lf.FixedSamples(2), "n_rounds": 6000, "trials": 2}
    found = lf.predict(algorithm, problem, **run)
    result = lf.simulate(algorithm, problem, metrics=["risk"], record_every=6000, **run)
    assert found.rate.value.max() ** 6000 < 1e-3
    np.testing.assert_allclose(result.metrics["risk"][:, -1], found.floor.value, rtol=1e-3)


EDGES = {
    "Ditto": lf.Ditto(step_size=0.01, penalty=0.5, local_steps=2),
    "Ditto, other steps": lf.Ditto(step_size=0.01, personal_step_size=0.003),
    "APFL": lf.APFL(step_size=0.01, local_steps=2, mix=0.7),
    "PFedMe": lf.PFedMe(step_size=0.01, penalty=2.0, inner_steps=3),
    "PFedMe, exact": lf.PFedMe(step_size=0.01, penalty=2.0, inner_steps=None),
    "PerFedAvg": lf.PerFedAvg(step_size=0.01, adaptation_step_size=0.01),
}


@pytest.mark.parametrize("name", EDGES)
def test_runs_converge_up_to_the_stability_edge_of_given_samples(name):
    """The edge depends on X alone, so no ground truth is needed; one client has far larger samples."""
    X, y = np.random.default_rng(0).normal(size=(4, 9, 3)), np.random.default_rng(1).normal(size=(4, 9))
    data = lf.GivenSamples(X * np.array([1.0, 6.0, 1.0, 0.5])[:, None, None], y)
    edge = float(lf.predict(EDGES[name], data=data, n_rounds=1).stability_edge)
    for share, converges in ((0.97, True), (1.03, False)):
        algorithm = dataclasses.replace(EDGES[name], step_size=share * edge)
        assert (float(lf.predict(algorithm, data=data, n_rounds=1).rate) < 1) == converges
        states = [step.after.arrays() for step in lf.iterate(algorithm, data=data, n_rounds=260)][:261]
        moves = [
            max(np.linalg.norm(after[part] - before[part]) for part in after)
            for before, after in (states[t - 1 : t + 1] for t in (len(states) // 2, len(states) - 1))
        ]
        if converges:
            assert len(states) == 261
            assert moves[1] < max(moves[0], 1e-15)
        else:  # it grows, or the trial has diverged
            assert len(states) < 261 or moves[1] > moves[0]


@pytest.mark.parametrize("variant", ["paper", "framework"])
def test_each_variant_of_apfl_ends_at_its_own_floor(variant):
    world = draw_world([9] * 4, 5, 2, noise=0.4, seed=4)
    run = {"problem": world.problem(noise_std=0.4), "data": world.data(), "n_rounds": 1600}
    algorithm = lf.APFL(step_size=0.25, local_steps=2, mix=0.7, variant=variant)
    result = lf.simulate(algorithm, **run, metrics=["risk"], record_every=1600)
    np.testing.assert_allclose(result.metrics["risk"][0, -1], lf.predict(algorithm, **run).floor, rtol=1e-9)


SMALL = lf.SharedRepresentation(n_clients=4, dim=3, rank=2, noise_std=0.3)
SLOW = {
    "Ditto": lambda step: lf.Ditto(step_size=step),
    "APFL": lambda step: lf.APFL(step_size=step),
    "PerFedAvg": lambda step: lf.PerFedAvg(step_size=step, adaptation_step_size=0.1),
    "PFedMe": lambda step: lf.PFedMe(step_size=step),
}


@pytest.mark.parametrize(("step", "name"), [*((1e-11, name) for name in list(SLOW)[:3]), (5e-8, "PFedMe")])
def test_a_slow_direction_is_not_an_unseen_one(name, step):
    """At small steps, 1 - rate is proportional to the step size, to its square for PFedMe, and the floor is one."""
    run = {"data": lf.FixedSamples(20), "n_rounds": 1}
    found, larger = (lf.predict(SLOW[name](one), SMALL, **run) for one in (step, 100 * step))
    power = 2 if name == "PFedMe" else 1
    assert 1 - float(found.rate) == pytest.approx((1 - float(larger.rate)) * 0.01**power, rel=0.05)
    assert float(found.floor) == pytest.approx(float(larger.floor), rel=2e-3)


@pytest.mark.parametrize("unit", [1e-5, 1e-6, 1e4])
@pytest.mark.parametrize(
    ("make", "rtol"),
    [
        (lambda v: lf.APFL(step_size=0.3 / v), 1e-9),
        (lambda v: lf.Ditto(step_size=0.3 / v, penalty=0.4 * v), 1e-9),
        (lambda v: lf.PFedMe(step_size=0.05 / v, penalty=2.0 * v), 1e-9),
        (lambda v: lf.PerFedAvg(step_size=0.3 / v, adaptation_step_size=0.1 / v, hessian=True), 1e-9),
    ],
    ids=["APFL", "Ditto", "PFedMe", "PerFedAvg"],
)
def test_predictions_do_not_depend_on_the_unit_of_x(make, rtol, unit):
    world = draw_world([2, 7, 12], 4, 2, noise=0.4, seed=5)  # a client leaves directions free
    X = [unit * each for each in world.X]
    problem = lf.GivenTruth(Phi=world.Phi / unit, noise_std=0.4, design=lf.Gaussian(covariance=unit**2))
    other = lf.predict(make(unit**2), problem, data=lf.GivenSamples(X, world.y), n_rounds=1)
    plain = lf.predict(make(1.0), world.problem(noise_std=0.4), data=world.data(), n_rounds=1)
    assert other.rate == pytest.approx(float(plain.rate), rel=rtol)
    assert other.floor == pytest.approx(float(plain.floor), rel=1e-7)
    assert float(other.stability_edge) * unit**2 == pytest.approx(float(plain.stability_edge), rel=1e-7)


def test_small_steps_at_a_normal_step_size_have_the_floor_of_a_long_run():
    """x in units of 1e-5 at step 0.3: the rate is near 1, and the floor that of the same run in larger steps."""
    truth = SMALL.truth(0, [0])
    tiny = lf.GivenTruth(B=truth.B[0], W=truth.W[0] * 1e5, noise_std=0.3, design=lf.Gaussian(covariance=1e-10))
    for name in ("APFL", "PerFedAvg"):
        found = lf.predict(SLOW[name](0.3), tiny, data=lf.FixedSamples(20), n_rounds=1)
        assert 1e-12 < 1 - float(found.rate) < 1e-9
        faster = lf.predict(SLOW[name](3e6), tiny, data=lf.FixedSamples(20), n_rounds=1)
        assert float(found.floor) == pytest.approx(float(faster.floor), rel=0.02)


@pytest.mark.parametrize("size", [0.8, 1.0, 2.0, 5.0])
def test_perfedavg_whose_mean_map_grows_has_no_edge(size):
    algorithm = lf.PerFedAvg(step_size=0.01, adaptation_step_size=size)
    found = lf.predict(algorithm, SMALL, data=lf.FixedSamples(20), n_rounds=1)
    assert float(found.rate) > 1
    assert_one_line(lambda: found.stability_edge, ["no stable step_size of at least"], lf.NoPredictionError)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("covariance", [1e-12, 1e-3, 1.0, 1e4])
def test_the_edge_of_a_penalty_does_not_need_curvature(covariance):
    """A penalty of 1 alone has the edge 2, and curvature lowers it."""
    problem = lf.SharedRepresentation(
        n_clients=4, dim=3, rank=2, noise_std=0.3, design=lf.Gaussian(covariance=covariance)
    )
    run = {"data": lf.FixedSamples(20), "n_rounds": 1}
    top = np.linalg.eigvalsh(lf.FixedSamples(20).draw(problem).normal_equations()[0]).max()
    ditto = lf.predict(lf.Ditto(step_size=0.01), problem, **run).stability_edge
    assert ditto == pytest.approx(2 / (1 + top), rel=1e-6)
    edge = float(lf.predict(lf.PFedMe(step_size=0.01), problem, **run).stability_edge)
    for share, stable in ((0.98, True), (1.02, False)):
        assert (float(lf.predict(lf.PFedMe(step_size=share * edge), problem, **run).rate) < 1) == stable


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_steps_far_too_large_or_small_are_one_line():
    run = {"data": lf.FixedSamples(20), "n_rounds": 1}
    found = lf.predict(lf.PFedMe(step_size=2.5, inner_steps=2), SMALL, **run)
    assert 1 < float(found.rate) < np.inf
    assert_one_line(lambda: found.floor, ["step_size = 2.5 is too large", "diverges"], lf.NoPredictionError)
    found = lf.predict(lf.PFedMe(step_size=1e200), SMALL, **run)
    assert_one_line(lambda: found.rate, ["step_size = 1e+200", "overflows"], lf.NoPredictionError)
    found = lf.predict(lf.Ditto(step_size=1e-300), SMALL, **run)
    assert_one_line(lambda: found.floor, ["step_size = 1e-300", "1 within rounding error"], lf.NoPredictionError)
