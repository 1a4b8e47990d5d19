"""Every algorithm, in every form that `worlds.LEARNERS` has: its loop over clients, and what holds for all of them."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.data.explicit import ExplicitBatch
from linfed.simulation import job
from tests import references as ref
from tests.algorithms import class_references
from tests.helpers import assert_same
from tests.loops import LOOPS, assert_rounds_are_the_loop
from tests.worlds import LEARNERS, SHAPES, draw_classes, draw_participants, draw_world, names, one_of_each, shared

# --- the loops over clients ----------------------------------------------------------------------------------


WITHOUT_LOOP = {
    lf.BurerMonteiro, lf.FedMTL, lf.LocalGram, lf.LocalSpectral, lf.MethodOfMoments, lf.NuclearNorm, lf.Personalized,
    lf.TwoReplica, lf.UStatistic,
}  # fmt: skip
"""Algorithms whose tests compare them with another definition."""


def test_every_algorithm_is_a_learner():
    assert {one.kind for one in LEARNERS.values()} == {*lf.ALGORITHMS.values()}
    assert {*names()} | {*names("classification")} == {*LEARNERS}
    assert all(name.startswith(one.kind.__name__) for name, one in LEARNERS.items())
    assert {*lf.ALGORITHMS.values()} - LOOPS.keys() == WITHOUT_LOOP, "add the reference to tests/loops.py"


@pytest.mark.parametrize("name", names(loop=True))
def test_every_round_is_that_of_the_loop(name):
    """In all shapes for the first form of each class, and in two of them for the others."""
    learner, compared = LEARNERS[name], 0
    shapes = [*SHAPES.values()][:: 1 if name in one_of_each(names(loop=True)) else 5]
    for counts, d, k, p in shapes:
        if learner.options.get("clusters", 1) > len(counts):
            continue
        world = draw_world([max(m, learner.least) for m in counts], d, k, noise=0.3, seed=1)
        run = {"data": world.data(), "n_rounds": 3, "participation": draw_participants(world.n, p, 3)}
        begin = {"rank": k, "init": world.B, "worlds": [world]}
        compared += assert_rounds_are_the_loop(learner, world.problem(), **begin, **run)
    assert compared >= (2 if learner.kind is lf.AltMin else 3) * (len(shapes) - 1)


@pytest.mark.parametrize("name", one_of_each(names(loop=True)))
def test_every_round_of_drawn_samples_is_that_of_the_loop(name):
    """Fresh and fixed samples, several trials, each with a B and participants of its own."""
    learner = LEARNERS[name]
    worlds = [draw_world([6] * 5, 6, 2, noise=0.2, seed=seed) for seed in range(2)]
    problem = lf.GivenTruth(B=np.array([w.B_star for w in worlds]), W=np.array([w.W_star for w in worlds]))
    active = np.array([draw_participants(5, 3, 3, seed) for seed in range(2)])
    for data in (lf.FreshSamples(6), lf.FixedSamples(6)):
        run = {"data": data, "n_rounds": 3, "participation": active, "seed": 4}
        assert assert_rounds_are_the_loop(learner, problem, init=np.array([w.B for w in worlds]), **run)


@pytest.mark.parametrize("name", names("classification", loop=True))
def test_every_round_of_classes_is_that_of_the_loop(name):
    learner, compared = LEARNERS[name], 0
    for counts, p in (([6] * 5, 5), ([2, 9, 3, 6, 7], 3)):
        world = draw_classes([max(m, 2 * learner.least) for m in counts], 5, 2)
        run = {"data": world.data(), "n_rounds": 3, "participation": draw_participants(5, p, 3)}
        begin = {"init": world.B, "worlds": [world], "loops": class_references}
        compared += assert_rounds_are_the_loop(learner, **begin, **run)
    assert compared >= 6


# --- what holds for all --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_of_each(names()))
def test_given_arrays_are_neither_changed_nor_part_of_the_result(name):
    world, learner = draw_world([6] * 5, 7, 2, noise=0.1), LEARNERS[name]
    given = [np.array(world.X), np.array(world.y), world.B, world.B_star, world.W_star, draw_participants(5, 3, 4)]
    kept = [array.copy() for array in given]
    X, y, B, B_star, W_star, active = given
    data, problem = lf.GivenSamples(X, y), lf.GivenTruth(B=B_star, W=W_star)
    final = lf.simulate(learner.make(2, B), problem, data=data, n_rounds=4, participation=active).final
    for array in final.arrays().values():
        if array.flags.writeable:
            array[...] = 0.0
    for array, copy in zip([*given, data.X, data.y], [*kept, *kept[:2]], strict=True):
        assert np.array_equal(array, copy)
    assert all(array.flags.writeable for array in given)


@pytest.mark.parametrize("name", one_of_each(names()))
def test_the_seed_decides_every_bit_of_a_trial_whatever_the_others_are(name, monkeypatch):
    algorithm = LEARNERS[name].make(2, "moments")
    run = {"data": lf.FreshSamples(5), "n_rounds": 3, "participation": 0.5}
    together, other = (lf.simulate(algorithm, shared(d=8), trials=3, seed=seed, **run) for seed in (7, 8))
    alone = lf.simulate(algorithm, shared(d=8), trials=1, seed=7, **run)
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)  # then trial by trial
    assert_same(lf.simulate(algorithm, shared(d=8), trials=3, seed=7, **run), together)
    assert_same(alone, together, second=slice(0, 1))
    assert not np.array_equal(together.final.predictors(), other.final.predictors())


@pytest.mark.parametrize("name", one_of_each(names()))
def test_a_result_comes_back_from_its_file(name, tmp_path):
    result = lf.simulate(LEARNERS[name].make(), shared(), data=lf.FixedSamples(12), n_rounds=2, trials=2)
    loaded = lf.Result.load(result.save(tmp_path / "result.npz"))
    assert_same(loaded, result)
    assert loaded.algorithm == result.algorithm
    assert loaded.summary() == result.summary()
    assert np.array_equal(loaded.client_risks(), result.client_risks())


@pytest.mark.parametrize("name", one_of_each(names(keeps="absence")))
def test_rows_of_absent_clients_stay_as_they_are(name):
    world = draw_world([6] * 5, 7, 2, noise=0.1)
    run = {"data": world.data(), "n_rounds": 3, "participation": [[0, 1, 2], [1, 2, 3], [0, 2, 4]]}
    for step in lf.iterate(LEARNERS[name].make(2, world.B), world.problem(), **run):
        absent = np.setdiff1d(np.arange(5), step.batch.active[0]) if step.number else []
        for key, array in step.before.arrays().items():
            if key in step.before.per_client and array.shape[1] == 5:
                assert np.array_equal(step.after.array(key)[:, absent], array[:, absent])


FITTED = (lf.FedRep, lf.FedPer, lf.Oracle, lf.LocalOnly)


@pytest.mark.parametrize("name", [name for name in names() if LEARNERS[name].kind in FITTED])
@pytest.mark.parametrize("m", [2, 9])
def test_the_noiseless_truth_is_a_fixed_point(name, m):
    d, k, n = 5, 2, 4
    learner, world = LEARNERS[name], draw_world([m] * n, d, k)
    B, active = ref.qr_positive(world.B_star)[0], np.array([[0, 2, 3]])
    truth = world.W_star @ B.T
    X = np.array(world.X)[active]
    batch = ExplicitBatch(X, np.vecdot(X, truth[active][:, :, None]), active=active)
    state = lf.State(S=truth[None]) if learner.kind is lf.LocalOnly else lf.State(B=B[None], W=world.W_star[None])
    for _ in range(3):
        state = learner.make(k, step_size=0.3).step(state, batch, None)
    # A ridge shrinks what it fits, and least squares of fewer samples than unknowns are not unique.
    samples, unknowns = m // 2 if "split" in name else m, d if learner.kind is lf.LocalOnly else k
    unbiased = "ridge" not in str(learner.options) and (samples >= unknowns or "gradient heads" in name)
    error = np.abs(state.predictors()[0] - truth).max()
    assert error < 1e-12 if unbiased else error > 1e-3
    if unbiased and state.B is not None:
        np.testing.assert_allclose(state.B[0], B, atol=1e-12)
        np.testing.assert_allclose(state.W[0], world.W_star, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in names() if "split" in name])
def test_the_memory_of_a_step_counts_the_divided_samples(name):
    """As many numbers as the participants' samples have: x and the label."""
    algorithm, sizes = LEARNERS[name].make(), {"n_clients": 8, "dim": 10, "participants": 4, "samples": 6}
    whole = dataclasses.replace(algorithm, disjoint_samples=False)
    assert algorithm.floats_per_step(**sizes) - whole.floats_per_step(**sizes) == 4 * 6 * 11


# --- what steps require of a batch ---------------------------------------------------------------------------

TWO = {"rank": 2, "step_size": 0.1}
OWN = {**TWO, "adaptation_step_size": 0.1}
EACH_COVARIANCE = lf.Gaussian(covariance=np.array([np.eye(3), 2.0 * np.eye(3)]))
REQUIRED = [
    ("GRADIENTS", lf.FLUTE, [TWO]),
    ("FEATURES", lf.FedRep, [TWO, {**TWO, "whiten": lf.Gaussian(covariance=2.0)}]),
    ("COORDINATES", lf.FedRep, [{**TWO, "whiten": lf.Gaussian(covariance=[2.0, 1.0, 1.0])}]),
    ("QUADRATIC", lf.FedRep, [{**TWO, "representation_steps": 2}, {**TWO, "whiten": "own"}]),
    ("QUADRATIC", lf.FedRep, [{**TWO, "whiten": "pooled"}, {**TWO, "whiten": EACH_COVARIANCE}]),
    ("ROWS", lf.FedRep, [{**TWO, "disjoint_samples": True}]),
    ("FEATURES", lf.PrivateFedRep, [TWO]),
    ("COORDINATES", lf.PrivateFedRep, [{**TWO, "message_noise_std": 0.1}]),
    ("QUADRATIC", lf.PrivateFedRep, [{**TWO, "clip": 1.0}, {**TWO, "clip": 1.0, "message_noise_std": 0.1}]),
    ("QUADRATIC", lf.CompressedFedRep, [{**TWO, "levels": 2}]),
    ("FEATURES", lf.GeneralFLUTE, [TWO]),
    ("ROWS", lf.GeneralFLUTE, [{**TWO, "local_steps": 2}, {**TWO, "head_steps": 1}]),
    ("QUADRATIC", lf.AltGDmin, [{"rank": 2}]),
    ("FEATURES", lf.AltGDmin, [TWO]),
    ("ROWS", lf.AltGDmin, [{**TWO, "disjoint_samples": True}]),
    ("QUADRATIC", lf.AltMin, [{"rank": 2}]),
    ("ROWS", lf.AltMin, [{"rank": 2, "disjoint_samples": True}]),
    ("FEATURES", lf.ANIL, [OWN]),
    ("QUADRATIC", lf.ANIL, [{**OWN, "hessian": True}]),
    ("ROWS", lf.ANIL, [{**OWN, "disjoint_samples": True}, {**OWN, "hessian": True, "disjoint_samples": True}]),
    ("QUADRATIC", lf.MAML, [OWN]),
    ("ROWS", lf.MAML, [{**OWN, "disjoint_samples": True}]),
    ("QUADRATIC", lf.PerFedAvg, [{"step_size": 0.1, "adaptation_step_size": 0.1}]),
    ("ROWS", lf.PerFedAvg, [{"step_size": 0.1, "adaptation_step_size": 0.1, "disjoint_samples": True}]),
    ("QUADRATIC", lf.FedAvg, [TWO]),
    ("ROWS", lf.FedAvg, [{**TWO, "local_epochs": 1, "batch_size": 2}]),
]


def test_an_algorithm_requires_what_its_steps_use():
    assert list(lf.Requires) == list(range(5))
    for level, kind, settings in REQUIRED:
        for options in settings:
            assert kind(**options).requires is lf.Requires[level], (kind, options)
