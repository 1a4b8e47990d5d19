"""Compressed samples: the values of explicit rows, pseudo-samples, and samples beyond what is drawn."""

import tracemalloc

import numpy as np
import pytest

import linfed as lf
from linfed.data import compressed
from linfed.data.sources import Sizes
from linfed.numerics import linalg, streams
from linfed.numerics.streams import Stream
from linfed.simulation import engines, job
from linfed.simulation.engines import EngineQuery, open_source
from tests.data.batches import Asked, answers
from tests.data.small import LEVELS, batch_of, simulate
from tests.helpers import basis, normal
from tests.worlds import DATA, LEARNERS, draw_world, fedrep, names, one_of_each, shared, truth

pytestmark = pytest.mark.filterwarnings("ignore:the 3 trials are identical")  # some data have no trial axis
SAMPLES = [name for name in DATA if name != "fresh"]


def assert_close(one, other, tolerance=1e-10):
    """Assert that two results agree up to rounding, relative to the largest number."""
    pairs = [(one.metrics[name], other.metrics[name]) for name in other.metrics]
    pairs += [(one.final.arrays()[name], array) for name, array in other.final.arrays().items()]
    assert len(pairs) > 3
    for a, b in pairs:
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max()
    assert one.status == other.status
    assert np.array_equal(one.status_round, other.status_round)


COMPRESSED = [
    name
    for name in names()
    if name != "FedRepShortcut, closed form"  # its heads are nothing but rounding
    and not engines.obstacle(
        "compressed",
        EngineQuery(
            algorithm=LEARNERS[name].make(),
            problem=truth(),
            data=DATA["fixed"],
            sizes=Sizes(n_clients=6, dim=9, participants=6, n_rounds=5, features=20),
        ),
    )
]
"""Learners that never ask for single samples."""


@pytest.mark.parametrize("name", one_of_each(COMPRESSED))
def test_compressed_samples_give_the_values_of_explicit_rows(name):
    algorithm = LEARNERS[name].make(init=basis(9, 2), step_size=0.05)
    for samples in SAMPLES if name == "FedRep" else ["fixed", "given, unequal"]:
        some = LEARNERS[name].kind in (lf.FedRep, lf.FedAvg, lf.SCAFFOLD)
        run = {"n_rounds": 4, "participation": 0.5 if some else 1.0}
        one, other = (
            simulate(algorithm, truth(), DATA[samples], engine=engine, **run) for engine in ("compressed", "explicit")
        )
        assert (one.engine, other.engine) == ("compressed", "explicit")
        assert_close(one, other, LEARNERS[name].tolerance)


def test_compressed_data_of_each_trial_give_the_values_of_explicit_rows(monkeypatch):
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    data = lf.GivenSamples(normal(5, 6, 14, 9), normal(5, 6, 14, seed=1))
    active = np.argsort(normal(5, 20, 6, seed=4), axis=-1)[..., :3]
    one, other = (
        lf.simulate(fedrep(), truth(), data=data, n_rounds=20, participation=active, engine=engine)
        for engine in ("compressed", "explicit")
    )
    assert_close(one, other)


@pytest.mark.parametrize("trials", [(), (3,)])
def test_pseudo_samples_have_the_losses_of_the_samples(trials):
    held_out = normal(6, 4, 9, seed=2), normal(6, 4, seed=3)
    data = lf.GivenSamples(normal(*trials, 6, 40, 9), normal(*trials, 6, 40, seed=1), test=held_out)
    small = data.compressed()
    assert small.X.shape == (*trials, 6, 10, 9)
    assert small.test is data.test
    for one, other in zip(small.normal_equations(), data.normal_equations(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    np.testing.assert_allclose((small.y**2).mean(axis=-1), (data.y**2).mean(axis=-1), rtol=1e-12)
    assert small.compressed() is small
    assert small.compressed().X.shape == lf.GivenSamples(data.X[..., :11, :], data.y[..., :11]).compressed().X.shape
    with pytest.raises(ValueError, match=r"1 to 40 samples each"):
        DATA["given, unequal"].compressed()


def test_data_without_a_truth_are_compressed():
    data = draw_world([20] * 6, 9, 2, noise=0.3).data()
    one, other = (lf.simulate(fedrep(), data=data, n_rounds=50, engine=engine) for engine in ("compressed", "explicit"))
    for name, array in other.final.arrays().items():
        assert np.abs(one.final.arrays()[name] - array).max() < 1e-10
    assert lf.simulate(fedrep(), data=data, n_rounds=50).engine == "compressed"


@pytest.mark.parametrize("samples", SAMPLES)
@pytest.mark.parametrize(("design", "clients"), [("gaussian", None), ("cube", 1), ("cube", 4)])
def test_the_moments_of_compressed_samples_are_those_of_the_rows(samples, clients, design, monkeypatch):
    monkeypatch.setattr(linalg, "CACHE_VALUES", 500)
    algorithm = lf.FedRep(rank=2, step_size=0.3, init=lf.Moments(clients=clients))
    problem = truth(design=design)
    one, other = (
        simulate(algorithm, problem, DATA[samples], n_rounds=0, engine=engine) for engine in ("compressed", "explicit")
    )
    assert np.abs(one.final.B - other.final.B).max() < 1e-12


@pytest.mark.parametrize("samples", SAMPLES)
def test_every_question_has_the_same_answer_up_to_rounding(samples):
    asked = Asked(6, 9, 2, trials=4)
    batch, rows = (batch_of(name, truth(), DATA[samples]) for name in ("compressed", "explicit"))
    for one, other in ((batch, rows), (batch.shifted(asked.theta), rows.shifted(asked.theta))):
        found, wanted = answers(one, asked), answers(other, asked)
        assert np.array_equal(one.counts, other.counts)
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-10, err_msg=name)


def test_gradients_leave_fixed_samples_as_they_are():
    sizes = Sizes(n_clients=6, dim=9, participants=4, n_rounds=3, features=20)
    source = open_source("compressed", lf.FixedSamples(12), truth().truth(0, range(3)), sizes, 2, 5, range(3))
    active, W, B = np.array([[0, 2, 3, 5], [1, 2, 3, 4], [0, 1, 4, 5]]), normal(3, 4, 2), normal(3, 9, 2, seed=1)
    first = [part.copy() for part in source.round(active).project(B).gradients(W, 1.0)]
    source.round(active[::-1]).project(2 * B).gradients(W, 1.0)
    for one, other in zip(first, source.round(active).project(B).gradients(W, 1.0), strict=True):
        assert one.tobytes() == other.tobytes()


def test_fixed_samples_beyond_many_values_hold_only_pseudo_samples():
    data, problem = lf.FixedSamples(10**6), shared(n=20, d=50)
    algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.5))
    tracemalloc.start()
    result = simulate(algorithm, problem, data, n_rounds=40, engine="compressed", trials=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    assert (result.metrics["subspace_distance"][:, -1] < 1e-3).all()
    batch = batch_of("compressed", problem, data, trials=1)
    assert batch.X.shape == (1, 20, 51, 50)
    assert (batch.counts == 1e6).all()


def test_gradients_of_fixed_samples_hold_the_factors_and_the_normal_equations_once():
    n, d, m = 200, 100, 133
    algorithm, problem = lf.FLUTE(rank=2, step_size=0.01), shared(n=n, d=d)
    tracemalloc.start()
    simulate(algorithm, problem, lf.FixedSamples(m), n_rounds=3, engine="compressed", trials=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    floats = n * ((d + 1) * (d + 1) + d * (d + 1))
    assert floats < peak / 8 < 1.2 * floats


def test_fresh_samples_are_compressed_to_one_more_than_the_dimension():
    batch = batch_of("compressed", shared(n=20, d=50), lf.FreshSamples(10**6), trials=1)
    assert batch.X.shape == (1, 20, 51, 50)
    A = batch.normal_equations()[0]
    assert np.abs(A - np.eye(50)).max() < 6e-3  # six standard deviations


def bartlett(m, d, count, normals, gammas):
    """Return triangular factors of standard Gaussian matrices (m, d + 1), entry by entry."""
    R, above = np.zeros((count, d + 1, d + 1)), normals.standard_normal((count, d * (d + 1) // 2))
    for c in range(count):
        place = 0
        for i in range(d + 1):
            R[c, i, i] = np.sqrt(2.0 * gammas.standard_gamma((m - i) / 2))
            for j in range(i + 1, d + 1):
                R[c, i, j] = above[c, place]
                place += 1
    return R


@pytest.mark.parametrize("kind", ["fresh", "fixed"])
def test_compressed_rows_are_bartletts_factors(kind):
    """With labels of the truth and the last column's noise; all clients of a fixed set, some in a fresh round."""
    problem, trials = truth(noise=LEVELS, S=normal(6, 9, seed=5), design=lf.Gaussian(covariance=np.arange(1.0, 10))), 2
    truths, who = problem.truth(7, range(trials)), [range(6)] * 2 if kind == "fixed" else [[0, 3, 4], [1, 2, 5]]
    if kind == "fixed":
        X, y = compressed.draw_factors(truths, (6, 12, 9), 7, range(trials))
    else:
        sizes = Sizes(n_clients=6, dim=9, participants=3, n_rounds=2, features=20)
        source = open_source("compressed", lf.FreshSamples(12), truths, sizes, 2, 7, range(trials))
        batch = source.round(np.array(who), 4)
        assert (batch.round, batch.n_clients, batch.counts.tolist()) == (4, 6, [[12.0] * 3] * 2)
        X, y = batch.X, batch.y
    for t in range(trials):
        R = bartlett(
            12, 9, len(who[t]), *(streams.generators(7, one, range(trials))[t] for one in (Stream.X, Stream.NOISE))
        )
        for place, i in enumerate(who[t]):
            rows = R[place, :, :-1] * np.sqrt(np.arange(1.0, 10))
            np.testing.assert_allclose(X[t, place], rows, rtol=1e-12)
            labels = rows @ truths.dense()[t, i] + LEVELS[i] * R[place, :, -1]
            np.testing.assert_allclose(y[t, place], labels, atol=1e-11)
