"""The loop: reproducible trials, paired runs, participation, outcomes, initial states and what is recorded."""

import dataclasses
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.linalg import subspace_angles

import linfed as lf
from linfed._names import is_share
from linfed.errors import WorkerError
from linfed.numerics.streams import Stream, generators
from linfed.numerics.threads import VARIABLE
from linfed.simulation import job
from linfed.simulation.class_metrics import mean_of_those
from linfed.simulation.loop import run_chunk
from linfed.simulation.metrics import MetricFacts, classification, plan_metrics
from linfed.system import memory
from linfed.system.processes import in_order
from tests.helpers import Held, assert_same, each, normal

EPS = np.finfo(float).eps
OF_CLASSES = {name for name, metric in lf.METRICS.items() if classification in metric.needs}


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(lf.Algorithm):
    """An algorithm that runs another one and keeps what it was shown, or looks in every few rounds only."""

    inner: lf.Algorithm
    every: int = 1
    active: list = field(default_factory=list)
    seen: list = field(default_factory=list)

    def initial_state(self, start):
        return self.inner.initial_state(start)

    def step(self, state, batch, rng):
        self.active.append(batch.active.copy())
        if len(self.active) % self.every:
            return state
        self.seen.append([part.copy() for part in batch.normal_equations()])
        return self.inner.step(state, batch, rng)

    def floats_per_trial(self, *, n_clients, dim, participants):
        return self.inner.floats_per_trial(n_clients=n_clients, dim=dim, participants=participants)


@dataclass(frozen=True, kw_only=True)
class Exploding(lf.Algorithm):
    """An algorithm whose second trial leaves the finite range in its second round; it names no size of its state."""

    inner: lf.Algorithm

    def initial_state(self, start):
        return self.inner.initial_state(start)

    def step(self, state, batch, rng):
        new = self.inner.step(state, batch, rng)
        W = new.W.copy()
        if state.W.any():
            W[1, 0, 0] = np.nan
        return new.update(W=W)


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
    "fresh, gradient heads": (PROBLEM, lf.FreshSamples(5), GRADIENT),
    "fresh, with a covariance": (SHAPED, lf.FreshSamples(5), EXACT),
    "fresh, large rounds": (WIDE, lf.FreshSamples(60), EXACT),
    "fresh, large rounds, gradient heads": (WIDE, lf.FreshSamples(60), GRADIENT),
    "fixed": (PROBLEM, lf.FixedSamples(5), EXACT),
    "fixed, gradient heads": (PROBLEM, lf.FixedSamples(5), GRADIENT),
    "fixed, at a distance": (PROBLEM, lf.FixedSamples(4), dataclasses.replace(EXACT, init=lf.AtDistance(0.5))),
    "given": (PROBLEM, lf.GivenSamples(normal(8, 5, 6), normal(8, 5)), EXACT),
    "local only": (PROBLEM, lf.FreshSamples(9), lf.LocalOnly()),
    "local only, few samples": (PROBLEM, lf.FixedSamples(3), lf.LocalOnly(ridge=0.1)),
}


def run(case, **changes):
    problem, data, algorithm = CASES[case]
    arguments = {"data": data, "rounds": 6, "participation": 0.8, "trials": 9, "seed": 3, "metrics": None} | changes
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


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_run_is_a_function_of_its_arguments(case, nine):
    assert_same(run(case), nine(case))
    risks, others = (result.metrics["risk"][:, -1] for result in (nine(case), run(case, seed=4)))
    assert len({*risks, *others}) == 18


@each("case", CASES)
@each("trials", [1, 8])
def test_a_trial_does_not_depend_on_the_number_of_trials(case, trials, nine):
    assert_same(run(case, trials=trials), nine(case), slice(None), slice(trials))


def chunks(text, rounds):
    """Return the number of chunks that a full progress bar tells of."""
    return int(text.split("| ")[-1].split("/")[1].split(" ")[0]) // rounds


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("how", ["chunk bytes", "memory budget"])
def test_a_trial_does_not_depend_on_the_chunk(case, how, nine, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, "1")  # threads divide the budget
    if how == "chunk bytes":
        monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
        result, wanted = run(case, progress=True), [9]
    else:
        with pytest.raises(lf.SizeError) as caught:
            run(case, memory_budget=1.0)
        number, unit = str(caught.value).split("about ")[1].split(" ")[:2]
        each = float(number) * 1000.0 ** ["B", "kB", "MB", "GB"].index(unit)
        # All trials share a part of the memory of one, so two or three trials can need little more.
        result, wanted = run(case, memory_budget=1.1 * each, progress=True), range(2, 10)
    assert chunks(capsys.readouterr().err, 6) in wanted
    assert_same(result, nine(case))


@pytest.mark.parametrize("algorithm", [EXACT, lf.LocalOnly()])
def test_a_trial_of_given_arrays_is_the_same_alone(algorithm):
    X, y = normal(9, 8, 5, 6), normal(9, 8, 5, seed=1)
    S = normal(9, 8, 6, seed=2)

    def result(chosen):
        data, problem = lf.GivenSamples(X[chosen], y[chosen]), lf.GivenTruth(S=S[chosen])
        return lf.simulate(algorithm, problem, data=data, rounds=4)

    together = result(slice(None))
    for trial in (0, 7):
        assert_same(result(slice(trial, trial + 1)), together, slice(None), slice(trial, trial + 1))


def test_given_arrays_follow_their_trial_into_chunks(monkeypatch):
    X, y, B = normal(5, 8, 5, 6), normal(5, 8, 5, seed=1), normal(5, 6, 2, seed=2)
    algorithm, problem = dataclasses.replace(EXACT, init=B), lf.GivenTruth(Phi=normal(5, 8, 6, seed=3), B=B)
    active = np.argsort(normal(5, 4, 8, seed=4), axis=-1)[..., :3]
    arguments = {"data": lf.GivenSamples(X, y), "rounds": 4, "participation": active}
    whole = lf.simulate(algorithm, problem, **arguments)
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    assert_same(lf.simulate(algorithm, problem, **arguments), whole)


def test_worker_processes_give_the_same_bits(nine, capsys):
    case = "fresh, small rounds"
    assert_same(run(case, workers=2, progress=True), nine(case))
    assert chunks(capsys.readouterr().err, 6) == 2


def test_one_trial_needs_no_workers(nine):
    case = "fixed"
    assert_same(run(case, trials=1, workers=4), nine(case), slice(None), slice(1))


@pytest.mark.parametrize("case", CASES)
def test_a_longer_run_extends_a_shorter_one(case, nine):
    short = run(case, rounds=3, trials=4)
    for name, values in short.metrics.items():
        assert np.array_equal(values, nine(case).metrics[name][:4, :4])


def test_a_stream_is_extended_over_many_blocks():
    """240 values a round are drawn 34 rounds at a time."""
    long = run("fresh, small rounds", rounds=120, trials=2)
    for rounds in (33, 34, 35, 70):
        short = run("fresh, small rounds", rounds=rounds, trials=2)
        assert np.array_equal(short.metrics["risk"], long.metrics["risk"][:, : rounds + 1])


# --- pairing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "data"), [CASES[case][:2] for case in ("fresh, small rounds", "fresh, large rounds", "fixed")]
)
def test_algorithms_of_one_seed_see_the_same(problem, data):
    runs = []
    for inner in (EXACT, GRADIENT, dataclasses.replace(EXACT, step_size=0.01, init=lf.AtDistance(0.3)), lf.LocalOnly()):
        watched = Watched(inner=inner)
        result = lf.simulate(watched, problem, data=data, rounds=5, participation=0.5, trials=3, metrics=["risk"])
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
        lf.simulate(watched, problem, data=data, rounds=7, participation=0.8, trials=2, metrics=["risk"])
    assert [len(asked.seen), len(now_and_then.seen)] == [7, 2]
    for one, other in zip(asked.seen[2::3], now_and_then.seen, strict=True):
        assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize("init", ["random", lf.AtDistance(0.7), "moments", lf.Moments(clients=3)])
def test_algorithms_of_one_seed_start_alike(init):
    exact, gradient = dataclasses.replace(EXACT, init=init), dataclasses.replace(GRADIENT, init=init)
    one, other = (lf.simulate(a, PROBLEM, data=lf.FreshSamples(5), rounds=2, trials=3) for a in (exact, gradient))
    for name in one.metrics:
        assert np.array_equal(one.metrics[name][:, 0], other.metrics[name][:, 0])
        assert not np.isclose(one.metrics[name][:, 2], other.metrics[name][:, 2], rtol=1e-6).any()


# --- what is recorded ----------------------------------------------------------------------------------------


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
    result = run("fixed", rounds=rounds, record_every=every, trials=2)
    assert result.rounds.tolist() == recorded
    assert result.rounds.dtype == np.int64
    everything = run("fixed", rounds=rounds, trials=2)
    for name, values in result.metrics.items():
        assert np.array_equal(values, everything.metrics[name][:, recorded])


def test_no_rounds_return_the_initial_state():
    B = normal(3, 6, 2)
    result = run("fixed", rounds=0, trials=3)
    assert not result.final.W.any()
    given = lf.simulate(dataclasses.replace(EXACT, init=B), PROBLEM, data=lf.FixedSamples(5), rounds=0, seed=3)
    assert np.array_equal(given.final.B, B)
    assert given.status == [lf.Status.COMPLETED] * 3
    assert given.status_round.tolist() == [0, 0, 0]
    truth = PROBLEM.truth(3, range(3))
    np.testing.assert_allclose(
        given.metrics["subspace_distance"][:, 0],
        [np.sin(subspace_angles(*pair).max()) for pair in zip(B, truth.B, strict=True)],
        rtol=1e-12,
    )


@each("parts", ["B, W", "S", "B, W, S"])
@each("truth", ["B, W", "S", "B, W, S", "Phi, B"])
@each("covariance", [None, 2.0, np.diag([1.0, 2.0, 0.5, 3.0, 0.0]) + 0.1])
def test_metrics_against_their_definitions(parts, truth, covariance):
    """Every form of state against every form of truth, client by client."""
    arrays = {"B": normal(2, 5, 2), "W": normal(2, 4, 2, seed=1), "S": normal(2, 4, 5, seed=2)}
    true = {
        "B": normal(5, 3, seed=3),
        "W": normal(4, 3, seed=4),
        "S": normal(4, 5, seed=5),
        "Phi": normal(4, 5, seed=6),
    }
    state = lf.State(**{name: arrays[name] for name in parts.split(", ")})
    design = lf.Gaussian(covariance=covariance)
    problem = lf.GivenTruth(**{name: true[name] for name in truth.split(", ")}, noise_std=0.3, design=design)
    algorithm = Held(state=state)
    result = lf.simulate(algorithm, problem, data=lf.FreshSamples(2), rounds=0, trials=2)
    covariance = (
        np.eye(5) if covariance is None else np.diag(np.full(5, covariance)) if np.ndim(covariance) == 0 else covariance
    )
    differences = state.predictors() - problem.truth(0, [0, 1]).dense()
    for trial, gaps in enumerate(differences):
        values = {name: result.metrics[name][trial, 0] for name in ("parameter_error", "mean_client_error", "risk")}
        assert values["parameter_error"] == pytest.approx(np.linalg.norm(gaps), rel=1e-12)
        assert values["mean_client_error"] == pytest.approx(np.mean([np.linalg.norm(gap) for gap in gaps]), rel=1e-12)
        assert values["risk"] == pytest.approx(np.mean([gap @ covariance @ gap for gap in gaps]) / 2 + 0.045, rel=1e-12)


def test_errors_do_not_stop_at_the_root_of_rounding():
    """A state 1e-13 away from the truth reads 1e-13: squares of large numbers are never subtracted."""
    B, W = np.linalg.qr(normal(6, 2))[0], normal(4, 2, seed=1)
    gap = 1e-13 * normal(4, 2, seed=2)
    state = lf.State(B=B[None], W=(W + gap)[None])
    result = lf.simulate(Held(state=state), lf.GivenTruth(B=B, W=W), data=lf.FreshSamples(2), rounds=0)
    assert result.metrics["parameter_error"][0, 0] == pytest.approx(np.linalg.norm(gap), abs=2e-15)


def test_a_subset_of_metrics_has_the_same_numbers(nine):
    case = "fixed"
    result = run(case, metrics=["risk", "subspace_distance", "risk"])
    assert list(result.metrics) == ["risk", "subspace_distance"]
    for name in result.metrics:
        assert np.array_equal(result.metrics[name], nine(case).metrics[name])
    with pytest.raises(KeyError, match="absent: it was not requested"):
        result.metrics["parameter_error"]
    assert list(run(case, metrics="risk", trials=1).metrics) == ["risk"]
    assert list(run(case, metrics=[], trials=1).metrics) == []


# --- participation -------------------------------------------------------------------------------------------


@each("case", CASES)
@each(("participation", "count"), [(0.4, {8: 3, 40: 16}), (1, {8: 1, 40: 1}), (1.0, {8: 8, 40: 40})])
def test_a_run_equals_its_replay(case, participation, count):
    """A share, or a count, equals the run that is given the clients it drew, in any order."""
    problem, data, algorithm = CASES[case]
    arguments = {"data": data, "rounds": 4, "trials": 3, "seed": 3}
    watched = Watched(inner=algorithm)
    lf.simulate(watched, problem, participation=participation, metrics=["risk"], **arguments)
    drawn = np.stack(watched.active, axis=1)
    assert drawn.shape == (3, 4, count[problem.n_clients])
    result = lf.simulate(algorithm, problem, participation=participation, **arguments)
    assert result.participants == drawn.shape[-1]
    assert_same(lf.simulate(algorithm, problem, participation=drawn[..., ::-1], **arguments), result)
    one = lf.simulate(algorithm, problem, participation=drawn[0].tolist(), **{**arguments, "trials": 1})
    assert_same(one, result, slice(None), slice(1))


def test_clients_that_stay_away_keep_their_heads():
    result = run("fixed", participation=[[1, 5], [5, 2]], rounds=2)
    assert result.final.W.any(axis=-1).tolist() == [[client in (1, 2, 5) for client in range(8)]] * 9


# --- outcomes ------------------------------------------------------------------------------------------------

UNSTABLE = lf.FedRep(rank=2, step_size=0.3, init="random", heads=lf.GradientHeads(step_size=0.3), orthonormalize=False)
BAD = [1, 4]


def scaled_trials(chosen, kind):
    """Return the (problem, data) of five trials, of which two have data or heads that are far too large."""
    factor = np.ones((5, 1, 1, 1))
    factor[BAD] = 100.0
    X, B, W = normal(5, 8, 6, 6), normal(5, 6, 2, seed=1), normal(5, 8, 2, seed=2)
    if kind == "truth":
        return lf.GivenTruth(B=B[chosen], W=(factor[:, 0] * W)[chosen]), lf.FixedSamples(6)
    y = np.einsum("tnmd,tdk,tnk->tnm", X, B, W)
    data = lf.GivenSamples((factor * X)[chosen], (factor[..., 0] * y)[chosen])
    return None if kind == "data alone" else lf.GivenTruth(B=B[chosen], W=W[chosen]), data


@pytest.mark.parametrize("kind", ["truth", "data", "data alone"])
def test_trials_that_diverge_end_alone(kind):
    init = normal(5, 6, 2, seed=3) / 3
    algorithm = dataclasses.replace(UNSTABLE, init=init)
    problem, data = scaled_trials(slice(None), kind)
    result = lf.simulate(algorithm, problem, data=data, rounds=60)
    fine = [trial for trial in range(5) if trial not in BAD]
    assert [result.status[trial] for trial in BAD] == [lf.Status.DIVERGED] * 2
    assert [result.status[trial] for trial in fine] == [lf.Status.COMPLETED] * 3
    assert (result.status_round[BAD] < 60).all()
    assert (result.status_round[BAD] > 1).all()
    assert (result.status_round[fine] == 60).all()
    for values in result.metrics.values():
        for trial, row in enumerate(values):
            stop = result.status_round[trial] if trial in BAD else 61
            assert np.isfinite(row[:stop]).all()
            assert np.isnan(row[stop:]).all()
    assert all(np.isfinite(array).all() for array in result.final.arrays().values())
    if kind != "truth":  # there the samples belong to the number of the trial
        for trial in range(5):
            problem, data = scaled_trials([trial], kind)
            alone = lf.simulate(dataclasses.replace(UNSTABLE, init=init[[trial]]), problem, data=data, rounds=60)
            assert_same(alone, result, slice(None), slice(trial, trial + 1))


def test_a_diverged_trial_keeps_its_last_finite_state():
    problem, data = scaled_trials([1], "data")
    algorithm = dataclasses.replace(UNSTABLE, init=normal(1, 6, 2, seed=3))
    full = lf.simulate(algorithm, problem, data=data, rounds=60)
    (stop,) = full.status_round
    before = lf.simulate(algorithm, problem, data=data, rounds=int(stop) - 1)
    assert before.status == [lf.Status.COMPLETED]
    for name, array in before.final.arrays().items():
        assert np.array_equal(array, full.final.arrays()[name])


def test_what_diverges_is_judged_by_the_labels_of_its_own_trial(monkeypatch):
    """Without a truth the scale of given labels counts: in a chunk that is not the first, those of its trials."""
    X, y = normal(3, 4, 8, 2), normal(3, 4, 8, seed=1)
    y[1] *= 1e14
    X[2, ..., 1] = X[2, ..., 0] + 3e-13 * X[2, ..., 1]  # the predictors are as large, the labels are not
    arguments = {"data": lf.GivenSamples(X, y), "rounds": 2}
    whole = lf.simulate(lf.LocalOnly(), **arguments)
    assert whole.status == [lf.Status.COMPLETED, lf.Status.COMPLETED, lf.Status.DIVERGED]
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    assert_same(lf.simulate(lf.LocalOnly(), **arguments), whole)


def test_when_all_diverge_the_bar_still_fills(capsys):
    algorithm = dataclasses.replace(UNSTABLE, step_size=1e3)
    result = lf.simulate(algorithm, PROBLEM, data=lf.FreshSamples(5), rounds=500, trials=3, progress=True)
    assert result.status == [lf.Status.DIVERGED] * 3
    assert result.rounds[-1] == 500
    assert "500/500" in capsys.readouterr().err


@pytest.mark.parametrize("data", [lf.FreshSamples(8), lf.FixedSamples(8)])
def test_numbers_that_overflow_are_a_finding(data):
    """Straight from a finite state to infinity, in every form of step."""
    for algorithm in (UNSTABLE, GRADIENT, EXACT, dataclasses.replace(EXACT, orthonormalize=False)):
        huge = dataclasses.replace(algorithm, step_size=1e300, init="random")
        if algorithm.heads != lf.ExactHeads():
            huge = dataclasses.replace(huge, heads=lf.GradientHeads(steps=algorithm.heads.steps, step_size=1e300))
        result = lf.simulate(huge, PROBLEM, data=data, rounds=3, trials=2)
        for trial, status in enumerate(result.status):
            if status is lf.Status.DIVERGED:
                assert np.isnan(result.metrics["risk"][trial, result.status_round[trial] :]).all()
            else:
                assert np.isfinite(result.metrics["risk"][trial]).all()
        assert all(np.isfinite(array).all() for array in result.final.arrays().values())
        if algorithm.heads != lf.ExactHeads():
            assert set(result.status) == {lf.Status.DIVERGED}


def test_dependent_features_are_an_outcome():
    """Two sign columns of two samples agree up to sign in half of the draws, so that most runs meet them early."""
    problem = lf.SharedRepresentation(n_clients=1, dim=4, rank=2, design="rademacher")
    algorithm = lf.FedRep(rank=2, step_size=0.1, init=np.eye(4)[:, :2])  # m = k: B does not move
    arguments = {"data": lf.FreshSamples(2), "trials": 12}
    result = lf.simulate(algorithm, problem, rounds=3, **arguments)
    watched = Watched(inner=algorithm)
    lf.simulate(watched, problem, rounds=3, metrics=["risk"], **arguments)
    singular = np.stack([np.abs(A[:, 0, 0, 1]) == 1.0 for A, _ in watched.seen], axis=1)
    assert 0 < singular.any(axis=1).sum() < 12
    assert singular[:, 1:].any()
    for trial, hits in enumerate(singular):
        if hits.any():
            assert result.status[trial] is lf.Status.SINGULAR_HEAD
            assert result.status_round[trial] == 1 + hits.argmax()
        else:
            assert result.status[trial] is lf.Status.STALLED
            assert result.status_round[trial] == 3
    assert all(np.isfinite(values).all() for values in result.metrics.values())


def test_too_few_samples_are_no_singular_head():
    problem = lf.SharedRepresentation(n_clients=3, dim=4, rank=3)
    result = lf.simulate(lf.FedRep(rank=3, step_size=0.1), problem, data=lf.FreshSamples(2), rounds=3)
    assert result.status == [lf.Status.STALLED]


def test_divergence_outweighs_a_singular_head():
    data = lf.GivenSamples(np.ones((2, 2, 5, 3)), normal(2, 2, 5))  # one direction only
    arguments = {"data": data, "rounds": 4, "trials": 2}
    inner = lf.FedRep(rank=2, step_size=0.1, init=normal(3, 2))
    assert lf.simulate(inner, **arguments).status == [lf.Status.SINGULAR_HEAD] * 2
    problem = lf.GivenTruth(S=np.zeros((2, 3)))
    result = lf.simulate(Exploding(inner=inner), problem, **arguments)
    assert result.status == [lf.Status.SINGULAR_HEAD, lf.Status.DIVERGED]
    assert result.status_round.tolist() == [1, 2]


# --- data without a truth ------------------------------------------------------------------------------------


def test_an_algorithm_that_names_no_size_runs_on_data_alone():
    data = lf.GivenSamples(normal(2, 2, 5, 3), normal(2, 2, 5))
    arguments = {"data": data, "rounds": 2}
    inner = lf.FedRep(rank=2, step_size=0.1)
    assert_same(lf.simulate(Exploding(inner=inner), **arguments), lf.simulate(inner, **arguments), 0, 0)


def test_given_data_need_no_truth():
    result = lf.simulate(EXACT, data=lf.GivenSamples(normal(8, 5, 6), normal(8, 5)), rounds=3)
    assert result.final.B.shape == (1, 6, 2)
    assert list(result.metrics) == ["train_loss"]
    for name in lf.METRICS.keys() - {"train_loss", "test_loss", *OF_CLASSES}:
        with pytest.raises(KeyError, match="absent: it requires the ground truth"):
            result.metrics[name]


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_a_run_warns_if_given_data_make_its_trials_identical():
    X, y = normal(8, 5, 6), normal(8, 5, seed=1)
    run = {"data": lf.GivenSamples(X, y), "rounds": 3}
    algorithm = lf.FedRep(rank=2, step_size=0.1)
    for one in (algorithm, lf.FedAvg(step_size=1e9)):  # metrics of diverged trials are NaN
        with pytest.warns(
            UserWarning, match=r"^the 4 trials are identical, .* use trials=1, .*\(lf\.GivenSamples\.split\)$"
        ) as caught:
            result = lf.simulate(one, **run, trials=4)
        assert (len(caught), caught[0].filename) == (1, __file__)
    assert np.isnan(result.metrics["train_loss"][:, -1]).all()
    cells = lf.grid(lf.Run(algorithm=algorithm, trials=4, **run), record_every=(1, 2))
    with pytest.warns(UserWarning, match="^the 4 trials are identical") as caught:
        lf.sweep(cells)
    assert (len(caught), caught[0].filename) == (1, __file__)
    tuned = lf.Tuned(base=algorithm, grid={"step_size": [0.1, 0.2, 0.3]}, metric="train_loss")
    lf.sweep([dataclasses.replace(cells[0], algorithm=tuned, trials=1)])  # a warning would be an error
    random = dataclasses.replace(algorithm, init="random")
    lf.simulate(algorithm, **run)
    lf.simulate(algorithm, **run, trials=4, participation=3)
    lf.simulate(random, data=run["data"], rounds=0, trials=4)  # the losses of zero heads are equal, the states are not
    lf.simulate(algorithm, data=lf.GivenSamples(np.stack([X] * 4), np.stack([y] * 4)), rounds=3, trials=4)
    lf.tune(algorithm, grid={"step_size": [0.1, 0.2, 0.3]}, metric="train_loss", **run, trials=4)


@pytest.mark.parametrize(
    ("algorithm", "absent"),
    [
        (
            lf.LocalOnly(),
            {"subspace_distance": "no representation", "mean_truncation_error": "no representation"},
        ),
        (EXACT, {"mean_truncation_error": f"the ground truth has rank {PROBLEM.rank} <= k"}),
    ],
)
def test_a_metric_that_does_not_apply_is_absent(algorithm, absent):
    result = lf.simulate(algorithm, PROBLEM, data=lf.FreshSamples(5), rounds=1)
    absent = absent | dict.fromkeys(["train_loss", "test_loss"], "samples are fresh")
    assert set(result.metrics) == set(lf.METRICS) - set(absent) - OF_CLASSES
    for name, reason in absent.items():
        with pytest.raises(KeyError, match=f"absent: .*{reason}"):
            result.metrics[name]


# --- initial states ------------------------------------------------------------------------------------------


@pytest.mark.long
@each("delta", [0.0, 1e-12, 0.3, 1.0])
@pytest.mark.parametrize(("d", "truth_rank", "rank"), [(7, 3, 3), (6, 3, 3), (9, 4, 2), (2, 1, 1)])
def test_at_distance_has_all_angles_equal(delta, d, truth_rank, rank):
    """Over many trials: with d = 2k what is drawn beside the truth's subspace is now and then nearly dependent,
    and must not come out of the orthogonal complement for that by more than rounding.
    """
    problem = lf.SharedRepresentation(n_clients=6, dim=d, rank=truth_rank)
    algorithm = lf.FedRep(rank=rank, step_size=0.1, init=lf.AtDistance(delta))
    result = lf.simulate(algorithm, problem, data=lf.FreshSamples(3), rounds=0, trials=300, seed=2)
    B, Q = result.final.B, problem.truth(2, range(300)).reference(rank)
    sines = np.linalg.svd(B - Q @ (np.swapaxes(Q, -1, -2) @ B), compute_uv=False)
    np.testing.assert_allclose(sines, delta, atol=20 * EPS)
    np.testing.assert_allclose(np.swapaxes(B, -1, -2) @ B, np.broadcast_to(np.eye(rank), (300, rank, rank)), atol=1e-14)
    np.testing.assert_allclose(result.metrics["subspace_distance"][:, 0], delta, atol=20 * EPS)
    assert len({basis.tobytes() for basis in B}) == 300


def test_a_random_subspace_is_orthonormal_and_of_its_trial():
    algorithm = lf.FedRep(rank=3, step_size=0.1, init="random")
    B = lf.simulate(algorithm, PROBLEM, data=lf.FreshSamples(3), rounds=0, trials=4).final.B
    np.testing.assert_allclose(np.swapaxes(B, -1, -2) @ B, np.broadcast_to(np.eye(3), (4, 3, 3)), atol=1e-14)
    assert len({basis.tobytes() for basis in B}) == 4


def moments(X, y):
    """Return ``(1/n) sum_i (1/m_i) sum_j y_ij^2 x_ij x_ij'`` sample by sample, from lists of clients."""
    return sum(
        sum(label**2 * np.outer(x, x) for x, label in zip(rows, labels, strict=True)) / len(labels)
        for rows, labels in zip(X, y, strict=True)
    ) / len(X)


def assert_top_subspace(B, M):
    top = np.linalg.eigh(M)[1][:, ::-1][:, : B.shape[1]]
    np.testing.assert_allclose(np.abs(np.vecdot(B.T, top.T)), 1.0, atol=1e-10)  # the eigenvectors, largest first


def initial(init, problem, data, **arguments):
    algorithm = lf.FedRep(rank=2, step_size=0.1, init=init)
    return lf.simulate(algorithm, problem, data=data, rounds=0, **arguments).final.B


CLIENTS = [("moments", 8), (lf.Moments(clients=3), 3), (lf.Moments(clients=8), 8), (lf.Moments(clients=1), 1)]


@pytest.mark.parametrize(("init", "clients"), CLIENTS)
def test_moments_of_given_data(init, clients):
    X, y = normal(3, 8, 5, 6), normal(3, 8, 5, seed=1)
    for trial, B in enumerate(initial(init, None, lf.GivenSamples(X, y))):
        assert_top_subspace(B, moments(X[trial, :clients], y[trial, :clients]))


@pytest.mark.parametrize(("init", "clients"), CLIENTS)
def test_moments_of_unequal_counts(init, clients):
    X = [normal(2 + i % 4, 6, seed=i) for i in range(8)]
    y = [normal(2 + i % 4, seed=10 + i) for i in range(8)]
    (B,) = initial(init, None, lf.GivenSamples(X, y))
    assert_top_subspace(B, moments(X[:clients], y[:clients]))


@pytest.mark.parametrize(("init", "clients"), CLIENTS)
def test_moments_of_fixed_data_use_the_data_themselves(init, clients):
    """With one sample per client ``b_i = x_i y_i``, and ``b_i b_i'`` is its term."""
    watched = Watched(inner=lf.LocalOnly())
    lf.simulate(watched, PROBLEM, data=lf.FixedSamples(1), rounds=1, trials=3, metrics=["risk"])
    _, b = watched.seen[0]
    for B, terms in zip(initial(init, PROBLEM, lf.FixedSamples(1), trials=3), b, strict=True):
        if clients > 1:
            assert_top_subspace(B, np.einsum("nd,ne->de", terms[:clients], terms[:clients]))
        else:
            assert np.abs(B[:, 0] @ terms[0]) == pytest.approx(np.linalg.norm(terms[0]), rel=1e-12)


@pytest.mark.parametrize(("init", "clients"), CLIENTS)
def test_moments_of_fresh_data_have_samples_of_their_own(init, clients):
    truth = PROBLEM.truth(7, range(3))
    bases = initial(init, PROBLEM, lf.FreshSamples(5), trials=3, seed=7)
    for trial, B in enumerate(bases):
        (x_rng,), (noise_rng,) = (generators(7, stream, [trial]) for stream in (Stream.INIT_X, Stream.INIT_NOISE))
        X, noise = x_rng.standard_normal((clients, 5, 6)), 0.1 * noise_rng.standard_normal((clients, 5))
        phi = truth.dense()[trial, :clients]
        assert_top_subspace(B, moments(X, np.einsum("nmd,nd->nm", X, phi) + noise))


def test_moments_over_many_blocks_of_clients():
    """2500 clients of 40 values pass through the cache in two blocks, as in one."""
    X, y = normal(2500, 4, 10), normal(2500, 4, seed=1)
    (B,) = initial("moments", None, lf.GivenSamples(X, y))
    assert_top_subspace(B, np.einsum("nm,nmd,nme->de", y**2, X, X, optimize=True))


# --- trials without number ----------------------------------------------------------------------------------


def the_job(trials):
    return job.checked_job(EXACT, PROBLEM, lf.FreshSamples(5), 3, 1.0, trials, 0, [], 3, "auto")


@pytest.mark.parametrize("trials", [1, 7, 1000])
@pytest.mark.parametrize("workers", [1, 3])
def test_chunks_cover_every_trial_once(trials, workers, monkeypatch):
    monkeypatch.setattr(job, "CHUNK_BYTES", 20_000.0)
    chunks = job.trial_chunks(the_job(trials), workers, 1e9)
    assert [trial for chunk in chunks for trial in chunk] == list(range(trials))
    assert len(chunks) == len(list(chunks)) >= min(workers, trials)
    assert min(map(len, chunks)) > 0


def test_chunks_are_made_when_their_turn_comes(monkeypatch):
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    tracemalloc.start()
    chunks = job.trial_chunks(the_job(10**12), 2, 1e9)
    assert len(chunks) == 10**12
    assert next(iter(chunks)) == range(1)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_no_more_chunks_wait_than_the_workers_need():
    taken = []

    def items():
        for item in range(10**9):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(2) as pool:
        found = in_order(pool, abs, items(), 4)
        assert [next(found) for _ in range(3)] == [0, 1, 2]
        assert len(taken) < 8
        assert list(in_order(pool, abs, [-1, -2, -3], 4)) == [1, 2, 3]


@pytest.mark.long
def test_final_states_beyond_memory_are_found_after_the_first_chunk(monkeypatch):
    """What a trial leaves is known by then: B (6, 2) and W (8, 2), 28 numbers beside its status."""
    arguments = {"data": lf.FreshSamples(5), "rounds": 1, "metrics": [], "trials": 1000}
    monkeypatch.setattr(job, "CHUNK_BYTES", 1e5)
    monkeypatch.setattr(memory, "physical_memory", lambda: 2 * 2 * 8 * 1000 * 29.9)
    with pytest.raises(lf.SizeError, match=r"trials = 1000 .* about 480 kB, but half of the memory is 478 kB"):
        lf.simulate(EXACT, PROBLEM, **arguments)
    monkeypatch.setattr(memory, "physical_memory", lambda: 2 * 2 * 8 * 1000 * 30.1)
    assert lf.simulate(EXACT, PROBLEM, **arguments).trials == 1000


# --- progress and memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (False, False), (None, False)])
def test_progress(progress, shown, capsys):
    run("fixed", progress=progress, trials=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("6/6" in captured.err) == shown
    assert bool(captured.err) == shown


@pytest.mark.parametrize("progress", ["yes", 1, 0, "False", np.array([True])])
def test_progress_is_a_truth_value_or_none(progress):
    with pytest.raises(ValueError, match=r"progress = .* must be True, False, or None"):
        run("fixed", progress=progress, trials=2)
    assert run("fixed", progress=np.False_, trials=1).trials == 1


def test_a_trial_that_does_not_fit_is_refused_with_an_estimate():
    problem = lf.SharedRepresentation(n_clients=1000, dim=100, rank=2)
    with pytest.raises(lf.SizeError, match="memory_budget is 1 MB") as caught:
        lf.simulate(EXACT, problem, data=lf.FixedSamples(50), rounds=1, memory_budget=1e6)
    assert isinstance(caught.value, MemoryError)
    number, unit = str(caught.value).split("about ")[1].split(" ")[:2]
    assert unit == "MB"
    assert 40 <= float(number) <= 120  # X alone takes 40 MB


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
def test_the_batch_of_all_clients_at_the_end_is_counted(engine):
    """One client takes part in a round, and all of them in the fine-tuning: their rows take 16 MB at once."""
    problem = lf.SharedRepresentation(n_clients=1000, dim=20, rank=2)
    arguments = {"data": lf.FreshSamples(100), "rounds": 1, "participation": 1, "engine": engine}
    plain = lf.FedAvg(rank=2, step_size=0.1)
    lf.simulate(plain, problem, **arguments, memory_budget=2e6)
    rows = 8 * 1000 * 20 * (100 if engine == "explicit" else 21)
    with pytest.raises(lf.SizeError, match="one trial needs about"):
        lf.simulate(dataclasses.replace(plain, fine_tune=lf.ExactHeads()), problem, **arguments, memory_budget=rows)


@dataclass(frozen=True, kw_only=True)
class Fatal(lf.FedRep):
    """Ends the process that runs it, as a class that cannot be found there does."""

    def initial_state(self, start):
        os._exit(1)


@pytest.mark.long
@pytest.mark.parametrize(("interactive", "why"), [(False, "below if __name__ == .__main__."), (True, "Terminated")])
def test_a_worker_that_dies_is_explained(interactive, why, monkeypatch):
    """In a notebook, loky sends classes by value: there is nothing to put into a module."""
    monkeypatch.setattr("linfed.system.processes._is_interactive", lambda: interactive)
    with pytest.raises(WorkerError, match=f"^workers = 2: a worker process died.*{why}"):
        lf.simulate(Fatal(rank=2, step_size=0.1), PROBLEM, data=lf.FreshSamples(5), rounds=2, trials=2, workers=2)


def test_one_sample_of_one_client_has_its_label_in_any_number_of_trials():
    """NumPy's einsum sums a single column in another order than several."""
    for rank in (1, 3, 5, 8):
        problem = lf.SharedRepresentation(n_clients=1, dim=9, rank=rank, noise_std=0.1)
        for seed in range(8):
            labels = {lf.FixedSamples(1).draw(problem, trials=trials, seed=seed).y[0].tobytes() for trials in (1, 2, 3)}
            assert len(labels) == 1


def test_a_trial_has_diverged_beyond_1e12_times_its_scale():
    """The scale is that of the truth or of given labels, and at least 1."""
    S = np.zeros((4, 1, 3))
    S[:, 0, 0] = [1e12, 1.001e12, 1e13, 1.001e13]
    for scale, alive in ((0.0, 1), (0.1, 1), (10.0, 3)):
        problem = lf.GivenTruth(S=np.tile([scale, 0.0, 0.0], (2, 1)))
        result = lf.simulate(Held(state=lf.State(S=S)), problem, data=lf.FixedSamples(5), rounds=2, trials=4)
        assert [status is lf.Status.COMPLETED for status in result.status] == [trial < alive for trial in range(4)]
        assert result.status_round.tolist() == [2 * (trial < alive) for trial in range(4)]


def test_bars_and_ticks_count_rounds_once():
    ticks = []
    found = run_chunk(the_job(2), range(2), ticks.append)
    assert sum(ticks) == 3
    assert found.status_round.tolist() == [3, 3]
    diverging = dataclasses.replace(UNSTABLE, step_size=1e300, heads=lf.GradientHeads(step_size=1e300))
    ticks.clear()
    long = job.checked_job(diverging, PROBLEM, lf.FreshSamples(5), 50, 1.0, 2, 0, [], 50, "auto")
    found = run_chunk(long, range(2), ticks.append)
    assert found.status_round.max() < 50
    assert sum(ticks) == 50


def test_a_mean_is_over_those_with_a_value():
    found = mean_of_those(np.array([[1.0, np.nan, 4.0], [np.nan] * 3, [0.0, 0.0, 3.0]]))
    np.testing.assert_array_equal(found, [2.5, np.nan, 1.0])


def test_a_plan_is_for_regression_and_a_unique_subspace_by_default():
    run = MetricFacts(truth=True, reference=True, columns=2, truth_rank=3, fixed=True, held_out=True)

    def plan(wanted=None, argument="metrics", **changes):
        return plan_metrics(wanted, dataclasses.replace(run, **changes), argument=argument)

    errors = ("subspace_distance", "parameter_error", "mean_client_error", "mean_truncation_error", "risk")
    assert (plan().names, plan().functions) == (errors, {})
    assert plan() == plan(no_reference="", classes=0)
    wider = plan(truth_rank=2)
    assert wider.names == tuple(name for name in errors if name != "mean_truncation_error")
    assert plan(truth_rank=None).names == errors
    assert plan(columns=1, truth_rank=2).names == errors
    alone = plan(truth=False, reference=False)
    assert alone.names == ("train_loss", "test_loss")
    with pytest.raises(ValueError, match=r"^metrics = 'accuracy' does not apply: it exists only for classification$"):
        plan(["accuracy"])
    wanted = r"^metric = 'accuracy' does not apply: .*; use metric = 'subspace_distance' or .* or 'test_loss'$"
    with pytest.raises(ValueError, match=wanted):
        plan(["accuracy"], argument="metric")
    for name in ("subspace_distance", "mean_truncation_error"):
        assert plan(no_reference="equal").absent[name] == "equal"
        assert "no representation B" in plan(columns=0).absent[name]


def test_metrics_say_what_they_are():
    """The label and the axis of a metric follow from its name, so that a table of a file has them, too."""
    assert {name for name, metric in lf.METRICS.items() if metric.is_share} == {
        "accuracy",
        "own_class_accuracy",
        "train_accuracy",
    }
    for name, metric in lf.METRICS.items():
        assert (metric.name, metric.label) == (name, name.replace("_", " "))
    assert [is_share(name) for name in ("of.accuracy", "my_accuracy", "inaccuracy", "accuracy_of")] == [1, 1, 0, 0]
    with pytest.raises(TypeError):
        lf.METRICS["risk"] = None
