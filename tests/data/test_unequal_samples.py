"""Different numbers of fresh samples per client: against given samples, and the derived mean of a round."""

import numpy as np
import pytest

import linfed as lf
from linfed.data import sources
from tests.helpers import assert_one_line, each

COUNTS = (2, 3, 5, 10, 20, 60)
CLASSES = lf.Classes(n_clients=6, dim=8, n_classes=3, classes_per_client=2)


def world(dim=8):
    rng = np.random.default_rng(0)
    B, _ = np.linalg.qr(rng.standard_normal((dim, 2)))
    return lf.GivenTruth(B=B, W=rng.standard_normal((len(COUNTS), 2)), noise_std=0.3)


def fedrep(dim=8, **options):
    B, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((dim, 2)))
    return lf.FedRep(**{"rank": 2, "step_size": 0.7, "init": B, **options})


RUNS = {
    "FedRep": (fedrep(), world()),
    "method of moments": (fedrep(init="moments"), world()),
    "gradient heads": (fedrep(heads=lf.GradientHeads(steps=3, step_size=0.2)), world()),
    "FedAvg": (lf.FedAvg(step_size=0.1, local_steps=3, weights="samples"), world()),
    "fine-tuned": (lf.FedAvg(rank=2, step_size=0.05, fine_tune=lf.GradientHeads(steps=2, step_size=0.1)), world()),
    "classes": (lf.FedPer(rank=2, step_size=0.1), CLASSES),
}


@pytest.fixture(params=[False, True], ids=["drawn ahead", "drawn when read"])
def when(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(sources, "CACHE_VALUES", 10)


@pytest.mark.parametrize("participation", [1.0, 0.5])
@each("name", RUNS)
def test_a_batch_has_the_rows_of_its_participants(name, participation, when):
    algorithm, problem = RUNS[name]
    rounds = lf.iterate(
        algorithm, problem, data=lf.FreshSamples(COUNTS), rounds=3, participation=participation, trials=2
    )
    next(rounds)
    for batch in (step.batch for step in rounds):
        np.testing.assert_array_equal(batch.counts, np.array(COUNTS)[batch.active])
        inside = np.arange(max(COUNTS)) < batch.counts[..., None]
        np.testing.assert_array_equal(np.any(batch.X != 0, axis=-1), inside)
        assert not np.any(batch.y[~inside])


@pytest.mark.parametrize("name", RUNS)
def test_a_round_equals_that_on_the_same_samples_given(name, when):
    algorithm, problem = RUNS[name]
    run = {"rounds": 1, "seed": 3}
    _, first, *_ = lf.iterate(algorithm, problem, data=lf.FreshSamples(COUNTS), **run)
    X, y = ([rows[:m] for rows, m in zip(part[0], COUNTS, strict=True)] for part in (first.batch.X, first.batch.y))
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
    problem, algorithm = world(), fedrep(orthonormalize=False)
    trials = 4000
    ends = lf.simulate(
        algorithm, problem, data=lf.FreshSamples(COUNTS), rounds=1, trials=trials, metrics=["risk"]
    ).final.B
    B, Phi = algorithm.init.B, problem.W @ problem.B.T
    for k, off in ((2, False), (3, True)):
        c = 1.0 - np.minimum(k / np.array(COUNTS), 1.0)
        moved = (c[:, None] * Phi).T @ Phi / len(COUNTS) @ B
        mean = B + algorithm.step_size * (moved - B @ (B.T @ moved))
        z = (ends.mean(axis=0) - mean) / (ends.std(axis=0) / np.sqrt(trials))
        assert (np.abs(z).max() > 6.0) == off
        assert (np.abs(z).max() > 4.5) == off


def test_equal_numbers_are_those_of_one_number():
    algorithm, problem = RUNS["FedRep"]
    run = {"rounds": 5, "engine": "explicit", "metrics": ["risk"]}
    one, each = (lf.simulate(algorithm, problem, data=lf.FreshSamples(m), **run) for m in (7, [7] * 6))
    np.testing.assert_array_equal(one.metrics["risk"], each.metrics["risk"])
    assert each.data == lf.FreshSamples((7,) * 6) == lf.FreshSamples(np.full(6, 7))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lf.FreshSamples(()), ["n_samples = ()", "a number for each client"]),
        (lambda: lf.FreshSamples((3, 0)), ["n_samples[1] = 0", "integer of at least 1"]),
        (lambda: lf.FreshSamples("33"), ["n_samples = '33'", "integer of at least 1"]),
        (
            lambda: lf.simulate(*RUNS["FedRep"], data=lf.FreshSamples((3, 4)), rounds=1),
            ["n_samples has 2 numbers", "n_clients = 6"],
        ),
        *(
            (
                lambda engine=engine: lf.simulate(
                    *RUNS["FedRep"], data=lf.FreshSamples(COUNTS), rounds=1, engine=engine
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
            lambda: lf.predict(*RUNS["FedRep"], data=lf.FreshSamples(COUNTS), rounds=1),
            ["no prediction of FedRep's distance", "a client with n_samples = 2", "rank + 2 = 4"],
        ),
        (
            lambda: lf.predict(lf.FLUTE(rank=2, step_size=0.1), world(), data=lf.FreshSamples(COUNTS), rounds=1),
            ["no prediction of FLUTE", "different numbers of fresh samples"],
        ),
    ],
)
def test_wrong_numbers_are_one_line(call, words):
    assert_one_line(call, words)
