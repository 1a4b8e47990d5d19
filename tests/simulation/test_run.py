"""Complete runs: trials that do not depend on each other, on chunks or on workers, and paired runs of one seed."""

import dataclasses
import os
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import linfed as lf
from linfed.errors import WorkerError
from linfed.simulation import job
from tests.helpers import assert_same, normal
from tests.simulation.watched import Watched

# --- reproducible trials -------------------------------------------------------------------------------------

PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2, noise_std=0.1)
WIDE = lf.SharedRepresentation(n_clients=40, dim=40, rank=2, noise_std=0.1, design="cube")
SHAPED = lf.SharedRepresentation(
    n_clients=8, dim=6, rank=2, design=lf.Gaussian(covariance=np.diag(np.arange(1.0, 7.0)))
)


EXACT = lf.FedRep(rank=2, step_size=0.3)
GRADIENT = lf.FedRep(
    rank=2,
    step_size=0.2,
    init="random",
    heads=lf.GradientHeads(steps=2),
    representation_steps=2,
    rotate_heads=True,
)


# Small rounds are drawn ahead, large ones (here 32 x 60 x 40 values) when they are first read.
CASES = {
    "fresh, small rounds": (PROBLEM, lf.FreshSamples(5), EXACT),
    "fresh, few samples": (PROBLEM, lf.FreshSamples(1), EXACT),
    "fresh, with a covariance": (SHAPED, lf.FreshSamples(5), EXACT),
    "fresh, large rounds": (WIDE, lf.FreshSamples(60), EXACT),
    "fresh, large rounds, gradient heads": (WIDE, lf.FreshSamples(60), GRADIENT),
    "fixed": (PROBLEM, lf.FixedSamples(5), EXACT),
    "fixed, at a distance": (PROBLEM, lf.FixedSamples(4), dataclasses.replace(EXACT, init=lf.AtDistance(0.5))),
    "given": (PROBLEM, lf.GivenSamples(normal(8, 5, 6), normal(8, 5)), EXACT),
    "local only": (PROBLEM, lf.FreshSamples(9), lf.LocalOnly()),
    "local only, few samples": (PROBLEM, lf.FixedSamples(3), lf.LocalOnly(ridge=0.1)),
}


def run(case, **changes):
    problem, data, algorithm = CASES[case]
    arguments = {"data": data, "n_rounds": 6, "participation": 0.8, "trials": 9, "seed": 3, "metrics": None} | changes
    return lf.simulate(algorithm, problem, **arguments)


@pytest.fixture(scope="module")
def nine():
    """Return each case's run of nine trials, made once."""
    made = {}

    def result(case):
        if case not in made:
            made[case] = run(case)
        return made[case]

    return result


@pytest.mark.parametrize("case", CASES)
def test_a_trial_does_not_depend_on_the_number_of_trials(case, nine):
    for trials in (1, 8):
        assert_same(run(case, trials=trials), nine(case), second=slice(trials))


def chunks(text, n_rounds):
    """Return the number of chunks that a full progress bar shows."""
    return int(text.split("| ")[-1].split("/")[1].split(" ")[0]) // n_rounds


@pytest.mark.parametrize("algorithm", [EXACT, lf.LocalOnly()])
def test_a_trial_of_given_arrays_is_the_same_alone(algorithm):
    X, y = normal(9, 8, 5, 6), normal(9, 8, 5, seed=1)
    S = normal(9, 8, 6, seed=2)

    def result(chosen):
        data, problem = lf.GivenSamples(X[chosen], y[chosen]), lf.GivenTruth(S=S[chosen])
        return lf.simulate(algorithm, problem, data=data, n_rounds=4)

    together = result(slice(None))
    for trial in (0, 7):
        assert_same(result(slice(trial, trial + 1)), together, slice(None), slice(trial, trial + 1))


def test_given_arrays_follow_their_trial_into_chunks(monkeypatch):
    X, y, B = normal(5, 8, 5, 6), normal(5, 8, 5, seed=1), normal(5, 6, 2, seed=2)
    algorithm, problem = dataclasses.replace(EXACT, init=B), lf.GivenTruth(Phi=normal(5, 8, 6, seed=3), B=B)
    active = np.argsort(normal(5, 4, 8, seed=4), axis=-1)[..., :3]
    arguments = {"data": lf.GivenSamples(X, y), "n_rounds": 4, "participation": active}
    whole = lf.simulate(algorithm, problem, **arguments)
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    assert_same(lf.simulate(algorithm, problem, **arguments), whole)


def test_worker_processes_give_the_same_bits(nine, capsys):
    case = "fresh, small rounds"
    assert_same(run(case, workers=2, progress=True), nine(case))
    assert chunks(capsys.readouterr().err, 6) == 2
    assert_same(run(case, trials=1, workers=4), nine(case), second=slice(1))  # one trial needs no workers


@pytest.mark.parametrize("case", CASES)
def test_a_longer_run_extends_a_shorter_one(case, nine):
    short = run(case, n_rounds=3, trials=4)
    for name, values in short.metrics.items():
        assert np.array_equal(values, nine(case).metrics[name][:4, :4])


def test_a_stream_is_extended_over_many_blocks():
    """240 values a round are drawn 34 rounds at a time."""
    long = run("fresh, small rounds", n_rounds=120, trials=2)
    for rounds in (33, 34, 35, 70):
        short = run("fresh, small rounds", n_rounds=rounds, trials=2)
        assert np.array_equal(short.metrics["risk"], long.metrics["risk"][:, : rounds + 1])


def test_the_defaults_of_a_run():
    told = {"participation": 1.0, "trials": 1, "seed": 0, "engine": "auto"}
    data = lf.FreshSamples(12)
    result = lf.simulate(EXACT, PROBLEM, data=data, n_rounds=3)
    assert_same(lf.simulate(EXACT, PROBLEM, data=data, n_rounds=3, record_every=1, workers=1, **told), result)
    assert (result.trials, result.participants, result.rounds.tolist(), result.seed) == (1, 8, [0, 1, 2, 3], 0)
    for arguments in ({}, told):
        *_, last = lf.iterate(EXACT, PROBLEM, data=data, n_rounds=3, **arguments)
        assert all(np.array_equal(array, result.final.arrays()[name]) for name, array in last.after.arrays().items())


# --- paired runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "data"), [CASES[case][:2] for case in ("fresh, small rounds", "fresh, large rounds", "fixed")]
)
def test_algorithms_of_one_seed_see_the_same(problem, data):
    runs = []
    for inner in (EXACT, GRADIENT, dataclasses.replace(EXACT, step_size=0.01, init=lf.AtDistance(0.3)), lf.LocalOnly()):
        watched = Watched(inner=inner)
        result = lf.simulate(watched, problem, data=data, n_rounds=5, participation=0.5, trials=3, metrics=["risk"])
        runs.append((watched, result))
    (first, _), *others = runs
    assert len({active.tobytes() for active in first.active}) == 5
    for other, _ in others:
        assert np.array_equal(first.active, other.active)
        for (A, b), (A2, b2) in zip(first.seen, other.seen, strict=True):
            assert np.array_equal(A, A2)
            # Labels come out of a product with B beside B*, whose width may change their rounding.
            np.testing.assert_allclose(b, b2, rtol=0, atol=1e-13 * np.abs(b).max())


@pytest.mark.parametrize("case", ["fresh, small rounds", "fresh, large rounds", "fixed"])
def test_rounds_without_a_question_leave_the_data_of_the_others_alone(case):
    problem, data, _ = CASES[case]
    asked, now_and_then = (Watched(inner=lf.LocalOnly(), every=every) for every in (1, 3))
    for watched in (asked, now_and_then):
        lf.simulate(watched, problem, data=data, n_rounds=7, participation=0.8, trials=2, metrics=["risk"])
    assert [len(asked.seen), len(now_and_then.seen)] == [7, 2]
    for one, other in zip(asked.seen[2::3], now_and_then.seen, strict=True):
        assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize("init", ["random", lf.AtDistance(0.7), "moments", lf.Moments(clients=3)])
def test_algorithms_of_one_seed_start_alike(init):
    exact, gradient = dataclasses.replace(EXACT, init=init), dataclasses.replace(GRADIENT, init=init)
    one, other = (lf.simulate(a, PROBLEM, data=lf.FreshSamples(5), n_rounds=2, trials=3) for a in (exact, gradient))
    for name in one.metrics:
        assert np.array_equal(one.metrics[name][:, 0], other.metrics[name][:, 0])
        assert not np.isclose(one.metrics[name][:, 2], other.metrics[name][:, 2], rtol=1e-6).any()


# --- recorded rounds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rounds", "every", "recorded"),
    [
        (7, 3, [0, 3, 6, 7]),
        (6, 3, [0, 3, 6]),
        (2, 10, [0, 2]),
        (2, 10**30, [0, 2]),
        (2, 10**400, [0, 2]),
        (0, 1, [0]),
        (0, 5, [0]),
        (3, 1, [0, 1, 2, 3]),
    ],
)
def test_recorded_rounds(rounds, every, recorded):
    result = run("fixed", n_rounds=rounds, record_every=every, trials=2)
    assert result.rounds.tolist() == recorded
    assert result.rounds.dtype == np.int64
    everything = run("fixed", n_rounds=rounds, trials=2)
    for name, values in result.metrics.items():
        assert np.array_equal(values, everything.metrics[name][:, recorded])


def test_no_rounds_return_the_initial_state():
    B = normal(3, 6, 2)
    result = run("fixed", n_rounds=0, trials=3)
    assert not result.final.W.any()
    given = lf.simulate(dataclasses.replace(EXACT, init=B), PROBLEM, data=lf.FixedSamples(5), n_rounds=0, seed=3)
    assert np.array_equal(given.final.B, B)
    assert given.status == [lf.Status.COMPLETED] * 3
    assert given.status_round.tolist() == [0, 0, 0]
    truth = PROBLEM.truth(3, range(3))
    np.testing.assert_allclose(
        given.metrics["subspace_distance"][:, 0],
        [np.sin(subspace_angles(*pair).max()) for pair in zip(B, truth.B, strict=True)],
        rtol=1e-12,
    )


# --- warnings, progress and failures -------------------------------------------------------------------------


def test_a_run_warns_if_given_data_make_its_trials_identical():
    X, y = normal(8, 5, 6), normal(8, 5, seed=1)
    run = {"data": lf.GivenSamples(X, y), "n_rounds": 3}
    algorithm = lf.FedRep(rank=2, step_size=0.1)
    for one in (algorithm, lf.FedAvg(step_size=1e9)):  # metrics of diverged trials are NaN
        with pytest.warns(
            UserWarning, match=r"^the 4 trials are identical, .* use trials=1, .*\(lf\.GivenSamples\.split\)$"
        ) as caught:
            result = lf.simulate(one, **run, trials=4)
        assert (len(caught), caught[0].filename) == (1, __file__)
    assert np.isnan(result.metrics["train_loss"][:, -1]).all()
    random = dataclasses.replace(algorithm, init="random")
    lf.simulate(algorithm, **run)
    lf.simulate(algorithm, **run, trials=4, participation=3)
    lf.simulate(
        random, data=run["data"], n_rounds=0, trials=4
    )  # the losses of zero heads are equal, the states are not
    lf.simulate(algorithm, data=lf.GivenSamples(np.stack([X] * 4), np.stack([y] * 4)), n_rounds=3, trials=4)


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False), (None, False), ("default", False)])
def test_progress(progress, shown, capsys):
    run("fixed", trials=2, **{} if progress == "default" else {"progress": progress})
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("6/6" in captured.err) == shown
    assert bool(captured.err) == shown


@dataclass(frozen=True, kw_only=True)
class Fatal(lf.FedRep):
    """Ends the process that runs it, as a class that cannot be found there does."""

    def initial_state(self, start):
        os._exit(1)


@pytest.mark.long
def test_a_worker_that_dies_is_explained():
    with pytest.raises(WorkerError, match=r"^workers = 2: a worker process died"):
        lf.simulate(Fatal(rank=2, step_size=0.1), PROBLEM, data=lf.FreshSamples(5), n_rounds=2, trials=2, workers=2)
