"""Traces of FLUTE's runs: what they record and refuse, and runs in which the theorems hold or fail."""

import functools
import math

import numpy as np
import pytest

import linfed as lf
from linfed.statistics.findings import Verdict, judge_identity
from linfed.theory import flute as theory
from tests.helpers import rounds_of
from tests.theory.flute.made import FAILS, SHAPES, hand_made, made, said

GROWTH = said("After a round")


def identity(trace):
    """Return the finding on the recursion of a trace."""
    return judge_identity(trace.identity, tolerance=theory.IDENTITY_TOLERANCE, **said("The Theta recursion"))


@pytest.mark.parametrize("covariance", [2.0, np.geomspace(0.5, 2.0, 5)], ids=["scaled", "diagonal"])
def test_the_trace_refuses_a_covariance(covariance):
    """The region and its gap are those of x with the identity for covariance; the recursion itself would not tell."""
    problem = lf.UnderParameterized(n_clients=6, dim=5, design=lf.Gaussian(covariance=covariance))
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
    steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(15), n_rounds=3, seed=1, engine="explicit")
    with pytest.raises(ValueError, match=r"truth has design = Gaussian\(cov.*isotropic x of variance 1"):
        theory.flute_trace(steps, algorithm, problem.truth(1, range(1)))


def test_the_identity_holds_and_a_wrong_message_violates_it(monkeypatch):
    problem = made("n < d", noise_std=0.3)
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
    run = {"data": lf.FixedSamples(15), "n_rounds": 3, "seed": 1, "trials": 2, "engine": "explicit"}

    def found():
        steps = lf.iterate(algorithm, problem, **run)
        return identity(theory.flute_trace(steps, algorithm, problem.truth(1, range(2))))

    right = found()
    assert (right.verdict, right.detail) == (Verdict.HOLDS, "the worst of 2 trials, 6 values")
    honest = theory.ThetaCoordinates.remainder
    monkeypatch.setattr(theory.ThetaCoordinates, "remainder", lambda self, s, g, eta: honest(self, s, 2 * g, eta))
    assert found().verdict is Verdict.VIOLATED


def test_an_identity_that_was_not_evaluated_is_vacuous():
    assert identity(hand_made()).verdict is Verdict.VACUOUS


SPECTRUM = [1.0, 0.9, 0.1, 0.05]


@functools.cache
def long_run(shape, samples, n_rounds=1800):
    problem = made(shape, spectrum=SPECTRUM, noise_std=0.0 if samples is None else 1.0)
    eta = float(lf.theory.flute_step_limit(SPECTRUM, 2))
    algorithm = lf.FLUTE(rank=2, step_size=eta, init=lf.SmallRandom(1 / (10 * problem.dim)))
    data = lf.GivenSamples.population(problem, trials=10) if samples is None else lf.FixedSamples(samples)
    steps = lf.iterate(algorithm, problem, data=data, n_rounds=n_rounds, trials=10, engine="auto")
    return theory.flute_trace(steps, algorithm, problem.truth(0, range(10)), every=50, identity=False)


def test_at_population_the_region_is_entered_in_time_and_not_left():
    trace = long_run((4, 5), None)
    assert trace.rounds.tolist() == [0, *range(50, 1801, 50)]
    assert (trace.entry > 0).all()
    assert (trace.entry < 1800).all()
    assert not trace.inside[:, 0].any()
    assert trace.alive.all()
    for judge in (theory.judge_entry, theory.judge_staying):
        judged = judge(trace, allowed=0.31, **FAILS)
        assert (judged.verdict, judged.detail) == (Verdict.HOLDS, "0 of 10")
        assert judge(trace, allowed=0.1, **FAILS).verdict is Verdict.INCONCLUSIVE  # ten trials cannot tell
    assert np.isnan(trace.identity).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_trace_records_the_states_it_sees(shape):
    problem = made(shape, noise_std=0.3)
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.3))
    run = {"data": lf.FixedSamples(30), "n_rounds": 7, "trials": 2, "seed": 4, "engine": "compressed"}
    truth = problem.truth(4, range(2))
    coordinates = theory.ThetaCoordinates.of(truth)
    trace = theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, truth, every=3)
    steps = list(lf.iterate(algorithm, problem, **run))
    states = [step.after for step in steps]
    assert trace.rounds.tolist() == [0, 3, 6, 7]
    cut = truth.truncated(2).dense()
    for column, number in enumerate(trace.rounds):
        theta = coordinates.theta(states[number])
        region = coordinates.region(theta)
        np.testing.assert_array_equal(trace.region[:, column], np.stack(region, axis=-1))
        np.testing.assert_array_equal(trace.inside[:, column], coordinates.inside(region, 2))
        off = np.linalg.norm(states[number].predictors() - cut, axis=-1).mean(axis=-1)
        np.testing.assert_allclose(trace.error[:, column], off, rtol=1e-10)
        squares = np.square(states[number].predictors() - cut).sum(axis=-1)
        np.testing.assert_allclose(trace.rms[:, column], np.sqrt(squares.mean(axis=-1)), rtol=1e-10)
    np.testing.assert_array_equal(trace.entry, coordinates.entry_round(coordinates.theta(states[0]), 0.02))
    assert (trace.entry != coordinates.entry_round(coordinates.theta(states[1]), 0.02)).any()
    np.testing.assert_array_equal(np.isnan(trace.identity), [[True, False, False, True]] * 2)
    assert (trace.rank, trace.n_clients, trace.step_size) == (2, problem.n_clients, 0.02)
    with pytest.raises(ValueError, match=r"steps must begin with the initial state"):
        theory.flute_trace(iter([]), algorithm, truth)


def test_a_trace_refuses_weights_that_differ():
    """The recursion, which is that of equal weights, is wrong for them."""
    problem, algorithm = made("n < d", noise_std=0.3), lf.FLUTE(rank=2, step_size=0.02, weights="samples")
    data = lf.FixedSamples(30).draw(problem)
    counts = (10, 30, 20, 5, 30)
    unequal = lf.GivenSamples(*([each[0, i, :m] for i, m in enumerate(counts)] for each in (data.X, data.y)))
    steps = lf.iterate(algorithm, problem, data=unequal, n_rounds=2)
    with pytest.raises(ValueError, match=r"algorithm = FLUTE\(.*weights = 'uniform' for the theorems"):
        theory.flute_trace(steps, algorithm, problem.truth(0, range(1)))


def test_a_trace_needs_the_initial_state_all_clients_and_its_own_trials():
    problem, algorithm = made("n < d", noise_std=0.3), lf.FLUTE(rank=2, step_size=0.02)
    run = {"data": lf.FixedSamples(30), "n_rounds": 2, "trials": 2}
    truth = problem.truth(0, range(2))
    with pytest.raises(ValueError, match="steps must begin with the initial state"):
        theory.flute_trace(rounds_of(algorithm, problem, **run), algorithm, truth)
    with pytest.raises(ValueError, match=r"steps have \(2, 3\) trials and participants but must have \(2, 5\)"):
        theory.flute_trace(lf.iterate(algorithm, problem, participation=3, **run), algorithm, truth, identity=False)
    with pytest.raises(ValueError, match=r"steps have \(2, 5\) .* but must have \(1, 5\)"):
        theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, problem.truth(0, range(1)))


def test_a_diverged_trial_has_failed():
    problem = made((4, 5), spectrum=[1.0, 0.5])
    algorithm = lf.FLUTE(rank=1, step_size=9.0)
    steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(20), n_rounds=60, trials=3)
    trace = theory.flute_trace(steps, algorithm, problem.truth(0, range(3)))
    assert not trace.alive[:, -1].any()
    assert np.isnan(trace.error[~trace.alive]).all()
    assert np.isfinite(trace.error[trace.alive]).all()
    assert (trace.identity[:, 1:][trace.alive[:, 1:]] < 1e-10).all()
    assert np.isinf(theory.bound_ratios(trace)).all()
    judged = theory.judge_rate(trace, constant=1e9, allowed=0.1, **FAILS)
    assert judged.verdict is Verdict.HYPOTHESES_FAIL
    assert judged.detail == "3 of 3"
    assert theory.judge_entry(trace, allowed=0.1, **FAILS).verdict is Verdict.HYPOTHESES_FAIL


def test_few_samples_violate_the_entry_and_the_staying():
    trace = long_run((4, 5), 7)
    entry = theory.judge_entry(trace, allowed=0.1, **FAILS)
    staying = theory.judge_staying(trace, allowed=0.0, **FAILS)
    assert entry.verdict is staying.verdict is Verdict.VIOLATED
    assert entry.hypotheses[0].holds
    assert staying.estimate > 0.1
    for judge, allowed in ((theory.judge_entry, 0.1), (theory.judge_staying, 0.0)):  # 7 samples: nothing is claimed
        found = judge(trace, allowed=allowed, theorem=False, **FAILS)
        assert found.verdict is Verdict.NOT_SUPPORTED


def test_an_oversized_step_fails_the_hypotheses():
    problem = made((4, 5), spectrum=SPECTRUM)
    algorithm = lf.FLUTE(rank=2, step_size=0.01)
    data = lf.GivenSamples.population(problem, trials=2)
    steps = lf.iterate(algorithm, problem, data=data, n_rounds=3, trials=2)
    trace = theory.flute_trace(steps, algorithm, problem.truth(0, range(2)))
    limit = float(lf.theory.flute_step_limit(SPECTRUM, 2))
    judged = [judge(trace, allowed=0.1, **FAILS) for judge in (theory.judge_entry, theory.judge_staying)]
    for one in [*judged, theory.judge_rate(trace, constant=1.0, allowed=0.1, **FAILS)]:
        assert one.verdict is Verdict.HYPOTHESES_FAIL
        (failed,) = one.failed_hypotheses
        assert (failed.left, failed.right) == (0.01, pytest.approx(limit))
        assert str(failed) == f"eta <= Delta^2 / (288 lambda_1^3): 0.01 > {limit:.3g}"


def traced(**changes):
    problem = lf.UnderParameterized(n_clients=8, dim=5, spectrum=[1.0, 1.0, 0.3, 0.3, 0.3], noise_std=0.5)
    setting = {"step_size": 0.0068, "m": 1000, "n_rounds": 600} | changes
    algorithm = lf.FLUTE(rank=2, step_size=setting["step_size"], init=lf.SmallRandom(0.02))
    data = lf.FixedSamples(setting["m"])
    steps = lf.iterate(algorithm, problem, data=data, n_rounds=setting["n_rounds"], engine="compressed", trials=3)
    return theory.flute_trace(steps, algorithm, problem.truth(0, range(3)), every=20), algorithm, problem, data


def test_the_growth_is_that_of_the_lemma_by_hand():
    """The excess of the bound, in a plain loop over the rounds of one trial."""
    trace, algorithm, problem, data = traced()
    coordinates = lf.theory.ThetaCoordinates.of(problem.truth(0, range(3)))
    column = 0
    for step in lf.iterate(algorithm, problem, data=data, n_rounds=600, engine="compressed", trials=3):
        if step.number % 20 or not step.number:
            continue
        column += 1
        theta, new = (coordinates.theta(state)[1] for state in (step.before, step.after))
        off = new - coordinates.population_step(coordinates.theta(step.before), 0.0068)[1]
        kth = np.linalg.svd(theta[:2])[1][1] ** 2
        rest = np.linalg.norm(theta[2:], 2) ** 2
        additive = 0.0068**2 * 2**3 + 4 * math.sqrt(2) * np.linalg.norm(off[:2], 2)
        bound = (1 + 0.0068 * (2 - rest - kth)) * kth - additive
        found = trace.growth[1, column]
        if bound > 0:
            assert found == pytest.approx((bound - np.linalg.svd(new[:2])[1][1] ** 2) / kth, rel=1e-6)
        else:
            assert np.isnan(found)
    assert np.isfinite(trace.growth[1, 1:]).sum() > 5
    assert np.isnan(trace.growth[1, 1:]).any()


def test_the_lemmas_hold_on_runs_and_false_ones_are_seen():
    trace, *_ = traced()
    assert theory.judge_growth(trace, **GROWTH).verdict is Verdict.HOLDS
    assert theory.judge_rest(trace, allowed=0.75, **FAILS).verdict is Verdict.HOLDS
    hopeless, *_ = traced(step_size=0.3, n_rounds=40)
    assert theory.judge_growth(hopeless, **GROWTH).verdict is Verdict.HYPOTHESES_FAIL
    assert theory.judge_rest(hopeless, allowed=0.5, **FAILS).verdict is Verdict.HYPOTHESES_FAIL
