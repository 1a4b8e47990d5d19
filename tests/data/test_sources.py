"""Sources of rows: every number is that of its stream, for equal and for unequal numbers of samples."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from linfed.data import sources
from linfed.data.projected import draws
from linfed.data.sources import Sizes
from linfed.numerics import streams
from linfed.simulation.engines import open_source
from tests.data.small import COUNTS, GRADIENT, LEVELS
from tests.helpers import assert_one_line, normal
from tests.worlds import fedrep, truth

X_NOISE = (streams.Stream.X, streams.Stream.NOISE)
FINISH = (streams.Stream.FINISH_X, streams.Stream.FINISH_NOISE)
INIT = (streams.Stream.INIT_X, streams.Stream.INIT_NOISE)
VARIANCES = np.stack([np.diag(np.arange(1.0, 10.0) + i) for i in range(6)])


FRESH_ROWS = {
    "noiseless": (truth(noise=0.0), 5),
    "dense truth": (lf.GivenTruth(Phi=normal(6, 9), noise_std=0.3), 5),
    "differing clients": (truth(noise=LEVELS), COUNTS),
    "their own covariances": (truth(design=lf.Gaussian(covariance=VARIANCES)), 5),
}


def drawn(problem, n_samples, who, rngs, seed=7):
    """Return X (p, m, d) and y (p, m) of one trial's clients, without samples beyond a client's number, in a list."""
    truth, sizes = problem.truth(seed, [0]), np.broadcast_to(n_samples, 6)
    z, noise = (rng.standard_normal((len(who), sizes.max(), *rest)) for rng, rest in zip(rngs, ((9,), ()), strict=True))
    design, levels = truth.design, np.broadcast_to(problem.noise_std, 6)
    X = design.shape_clients(z, np.array(who)) if design.per_client else z
    parts = []
    for place, i in enumerate(who):
        rows = X[place, : sizes[i]]
        parts.append((rows, rows @ truth.dense()[0, i] + levels[i] * noise[place, : sizes[i]]))
    return parts


def assert_rows(X, y, parts):
    """Assert that padded rows (p, m, d) and labels (p, m) are the given ones."""
    for rows, labels, (wanted_rows, wanted_labels) in zip(X, y, parts, strict=True):
        m = len(wanted_labels)
        np.testing.assert_allclose(rows[:m], wanted_rows, rtol=1e-13)
        np.testing.assert_allclose(labels[:m], wanted_labels, rtol=1e-10, atol=1e-12)
        assert not rows[m:].any()
        assert not labels[m:].any()


@pytest.mark.parametrize("cache", [None, 1], ids=["ahead", "when they are read"])
@pytest.mark.parametrize("name", FRESH_ROWS)
def test_fresh_rows_are_those_of_their_streams(name, cache, monkeypatch):
    problem, m = FRESH_ROWS[name]
    if cache is not None:
        monkeypatch.setattr(sources, "CACHE_VALUES", cache)
    sizes, trials = Sizes(n_clients=6, dim=9, participants=2, n_rounds=2, features=20), range(2)
    source = open_source("explicit", lf.FreshSamples(m), problem.truth(7, trials), sizes, 2, 7, trials)
    rngs = [list(pair) for pair in zip(*(streams.generators(7, one, trials) for one in X_NOISE), strict=True)]
    for number, who in enumerate(([[0, 3], [1, 5]], [[2, 4], [0, 1]]), 1):
        batch = source.round(np.array(who), number)
        assert (batch.round, batch.n_clients) == (number, 6)
        for t in trials:
            assert_rows(batch.X[t], batch.y[t], drawn(problem, m, who[t], rngs[t]))
    batch, whole = source.all_clients(3), list(source.rows_for_moments(np.arange(6)))
    assert (batch.round, batch.n_clients, batch.active.tolist()) == (3, 6, [[*range(6)]] * 2)
    first = source.first(2, 6)
    assert (first.round, first.n_clients) == (0, 6)
    for t in trials:
        last, init = ([streams.generators(7, one, trials)[t] for one in pair] for pair in (FINISH, INIT))
        assert_rows(batch.X[t], batch.y[t], drawn(problem, m, range(6), last))
        wanted = drawn(problem, m, range(6), init)
        assert_rows(first.X[t], first.y[t], wanted)
        X, y, counts = (np.concatenate([block[part] for block in whole if block[0] == t]) for part in (1, 2, 3))
        assert_rows(X, y, wanted)
        assert np.array_equal(counts, np.broadcast_to(m, 6))
        assert np.array_equal(first.counts[t], counts)


def test_small_rounds_are_drawn_ahead_and_samples_are_read_in_blocks(monkeypatch):
    """Rounds of 2 x 5 x 9 numbers up to half a block, and projected rounds of 5 x 7 numbers up to a whole one."""
    sizes, trials = Sizes(n_clients=6, dim=9, participants=2, n_rounds=2, features=20), range(2)
    for cache, ahead, wanted in ((180, True, [4, 2]), (179, False, [3, 3]), (1, False, [1] * 6), (270, True, [6])):
        monkeypatch.setattr(sources, "CACHE_VALUES", cache)
        for data in (lf.FreshSamples(5), lf.FixedSamples(5)):
            source = open_source("explicit", data, truth().truth(7, trials), sizes, 2, 7, trials)
            blocks = [len(X) for trial, X, _, _ in source.rows_for_moments(np.arange(6)) if trial == 1]
            assert blocks == wanted
            assert data == lf.FixedSamples(5) or (source._ahead is not None) == ahead
    for block, ahead in ((35, True), (34, False)):
        monkeypatch.setattr(draws, "BLOCK_VALUES", block)
        assert draws.Draws(4, 3, 8, 5, 2, 7, trials, X_NOISE).lasting == ahead


def test_fixed_samples_are_copied_for_some_participants_alone():
    sizes = Sizes(n_clients=6, dim=9, participants=5, n_rounds=1, features=20)
    assert (sizes.gathered, dataclasses.replace(sizes, participants=6).gathered, sizes.classes) == (5, 0, 0)


# --- unequal numbers of samples -------------------------------------------------------------------------------


UNEQUAL = (2, 3, 5, 10, 20, 60)
CLASSES = lf.Classes(n_clients=6, dim=9, n_classes=3, classes_per_client=2)


RUNS = {
    "FedRep": (fedrep(step_size=0.7), truth()),
    "method of moments": (fedrep(init="moments"), truth()),
    "gradient heads": (fedrep(**GRADIENT), truth()),
    "FedAvg": (lf.FedAvg(step_size=0.1, local_steps=3, weights="samples"), truth()),
    "fine-tuned": (lf.FedAvg(rank=2, step_size=0.05, fine_tune=lf.GradientHeads(steps=2, step_size=0.1)), truth()),
    "classes": (lf.FedPer(rank=2, step_size=0.1), CLASSES),
}


@pytest.mark.parametrize("cache", [sources.CACHE_VALUES, 10], ids=["drawn ahead", "drawn when read"])
@pytest.mark.parametrize("name", RUNS)
def test_a_round_equals_that_on_the_same_samples_given(name, cache, monkeypatch):
    monkeypatch.setattr(sources, "CACHE_VALUES", cache)
    algorithm, problem = RUNS[name]
    run = {"n_rounds": 1, "seed": 3}
    _, first, *_ = lf.iterate(algorithm, problem, data=lf.FreshSamples(UNEQUAL), **run)
    X, y = ([rows[:m] for rows, m in zip(part[0], UNEQUAL, strict=True)] for part in (first.batch.X, first.batch.y))
    if name == "classes":
        data, problem = lf.GivenClasses([rows[:, :-1] for rows in X], y, n_classes=3), None
    else:
        data = lf.GivenSamples(X, y)
    _, second, *_ = lf.iterate(algorithm, problem, data=data, **run, engine="explicit")
    state = algorithm.step(first.before, second.batch, None)
    for key, values in first.after.arrays().items():
        np.testing.assert_allclose(state.arrays()[key], values, rtol=0, atol=1e-12)


@pytest.mark.long
def test_the_mean_of_a_round_is_the_derived_one():
    """The factor of client i is ``c_i = 1 - k / m_i``, and 0 for m_i = k; |z| > 4.5 in one of 10,000 right runs."""
    problem, algorithm = truth(), fedrep(step_size=0.7, orthonormalize=False)
    trials = 4000
    ends = lf.simulate(
        algorithm, problem, data=lf.FreshSamples(UNEQUAL), n_rounds=1, trials=trials, metrics=["risk"]
    ).final.B
    B, Phi = algorithm.init.B, problem.W @ problem.B.T
    for k, off in ((2, False), (3, True)):
        c = 1.0 - np.minimum(k / np.array(UNEQUAL), 1.0)
        moved = (c[:, None] * Phi).T @ Phi / len(UNEQUAL) @ B
        mean = B + algorithm.step_size * (moved - B @ (B.T @ moved))
        z = (ends.mean(axis=0) - mean) / (ends.std(axis=0) / np.sqrt(trials))
        assert (np.abs(z).max() > 6.0) == off
        assert (np.abs(z).max() > 4.5) == off


def test_equal_numbers_are_those_of_one_number():
    algorithm, problem = RUNS["FedRep"]
    run = {"n_rounds": 5, "engine": "explicit", "metrics": ["risk"]}
    one, each_its_own = (lf.simulate(algorithm, problem, data=lf.FreshSamples(m), **run) for m in (7, [7] * 6))
    np.testing.assert_array_equal(one.metrics["risk"], each_its_own.metrics["risk"])
    assert each_its_own.data == lf.FreshSamples((7,) * 6) == lf.FreshSamples(np.full(6, 7))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lf.FreshSamples(()), ["n_samples = ()", "a number for each client"]),
        (lambda: lf.FreshSamples((3, 0)), ["n_samples[1] = 0", "integer of at least 1"]),
        (lambda: lf.FreshSamples("33"), ["n_samples = '33'", "integer of at least 1"]),
        (
            lambda: lf.simulate(*RUNS["FedRep"], data=lf.FreshSamples((3, 4)), n_rounds=1),
            ["n_samples has 2 numbers", "n_clients = 6"],
        ),
        *(
            (
                lambda engine=engine: lf.simulate(
                    *RUNS["FedRep"], data=lf.FreshSamples(UNEQUAL), n_rounds=1, engine=engine
                ),
                [
                    f"engine = '{engine}'",
                    f"clients have different numbers of fresh samples{more}; use 'auto', 'explicit'",
                ],
            )
            for engine, more in (
                ("compressed", ""),
                ("projected", ", and one has at most rank = 2"),
                ("chain", ", and one has at most rank = 2"),
            )
        ),
        (
            lambda: lf.predict(*RUNS["FedRep"], data=lf.FreshSamples(UNEQUAL), n_rounds=1),
            ["no prediction of FedRep's distance", "a client with n_samples = 2", "rank + 2 = 4"],
        ),
        (
            lambda: lf.predict(lf.FLUTE(rank=2, step_size=0.1), truth(), data=lf.FreshSamples(UNEQUAL), n_rounds=1),
            ["no prediction of FLUTE", "different numbers of fresh samples"],
        ),
    ],
)
def test_wrong_numbers_are_one_line(call, words):
    assert_one_line(call, words)
