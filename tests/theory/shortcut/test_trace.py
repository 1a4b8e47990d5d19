"""Traces of the shortcut draft's bound: their terms in every recorded round, and their judges."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from experiments.shortcut import shortcut_bound
from linfed.claims import judged
from linfed.statistics.findings import Verdict, judge_identity
from linfed.theory import shortcut as theory
from tests.theory.shortcut.made import algorithm_of, made, seen_rounds

EXACT = 1e-10


def traced(algorithm, problem, data, *, n_rounds=30, trials=3, every=1, seed=3, equations=False, **more):
    truth = problem.truth(seed, range(trials))
    run = {"data": data, "n_rounds": n_rounds, "trials": trials, "seed": seed, "engine": "explicit", **more}
    steps = lf.iterate(algorithm, problem, **run)
    return theory.shortcut_trace(steps, algorithm, truth, every=every, equations=equations)


SETTINGS = {
    "closed form": {},
    "closed form with a ridge": {"ridge": 1.0},
    "joint": {"solver": lf.ClosedForm(order="joint"), "ridge": 1.0},
    "gradient": {"solver": lf.GradientSteps(shortcut_step_size=0.01)},
}


def equations(trace):
    """Return the findings of `experiments.shortcut.shortcut_bound` on a trace of (2) to (5)."""
    series = {name: lf.LabeledArray(values, round=trace.rounds) for name, values in trace.series.items()}
    rows = lf.Table([{"method": shortcut_bound.CLOSED, "noise_std": 0.0, **series}])
    return judged(shortcut_bound.CLAIMS[:3], {"terms": rows})


FIELDS = {"claim": "It holds", "setting": "here", "statistic": "largest violation", "source": "our prediction"}


def split(trace):
    """Return the finding on the identities (19) to (21)."""
    return judge_identity(trace.identity, tolerance=theory.IDENTITY_TOLERANCE, **FIELDS)


def bound(trace):
    """Return the finding on the bound (22)."""
    return theory.judge_bound(trace.distance, trace.bound, **FIELDS)


@pytest.mark.long
@pytest.mark.parametrize("noise_std", [0.0, 0.3])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_bound_holds_in_every_round_and_is_tight(setting, noise_std):
    algorithm = algorithm_of(2, step_size=0.3, init=lf.AtDistance(0.5), **SETTINGS[setting])
    problem = made(30, 10, 2, noise_std=noise_std)
    trace = traced(algorithm, problem, lf.FixedSamples(25), participation=0.5)
    assert trace.distance.shape == trace.bound.shape == (3, 30)
    assert trace.identity.max() < EXACT
    assert (trace.distance <= trace.bound * (1 + EXACT)).all()
    assert (trace.bound < 3 * trace.distance).mean() > 0.5
    assert (trace.noise > 1e-6).any() == (noise_std > 0)
    assert split(trace).verdict is Verdict.HOLDS
    assert bound(trace).verdict is Verdict.HOLDS
    whole = lf.simulate(
        algorithm,
        problem,
        data=lf.FixedSamples(25),
        n_rounds=30,
        trials=3,
        seed=3,
        engine="explicit",
        participation=0.5,
    )
    np.testing.assert_allclose(trace.distance, whole.metrics["subspace_distance"][:, 1:], rtol=1e-9)
    thin = traced(algorithm, problem, lf.FixedSamples(25), participation=0.5, every=7)
    assert thin.rounds.tolist() == [7, 14, 21, 28]
    np.testing.assert_array_equal(thin.shortcut, trace.shortcut[:, 6::7])


def test_a_trace_has_the_terms_of_every_recorded_round():
    algorithm, problem = algorithm_of(2, step_size=0.3), made(6, 8, 2, noise_std=0.5)
    rounds = seen_rounds(algorithm, problem, lf.FixedSamples(20), participation=0.5)
    trace = traced(
        algorithm, problem, lf.FixedSamples(20), n_rounds=5, trials=2, every=2, equations=True, participation=0.5
    )
    assert trace.rounds.tolist() == [2, 4]
    for column, r in enumerate(rounds[1::2]):
        terms = r.bound()._asdict()
        gaps = [r.split().gap, r.split_outside().gap, r.split_in_terms().gap]
        terms |= {"identity": np.max(gaps, axis=0), "heads": r.head_update().gap}
        terms |= {"printed": r.head_update(sign="printed").gap, "shortcuts": r.shortcut_equation().gap}
        assert set(terms) == set(trace.series)
        for name, values in terms.items():
            np.testing.assert_allclose(trace.series[name][:, column], values, rtol=1e-9, atol=1e-12)
    whole = traced(algorithm, problem, lf.FixedSamples(20), n_rounds=5, trials=2, participation=0.5)
    assert whole.rounds.tolist() == [1, 2, 3, 4, 5]
    assert whole.heads is whole.printed is whole.shortcuts is None


def test_R_can_shrink_what_it_normalises():
    trace = traced(algorithm_of(2, step_size=0.3, init=lf.AtDistance(0.5)), made(30, 10, 2), lf.FixedSamples(25))
    assert trace.inverse.max() > 1.3
    ridge = algorithm_of(2, step_size=0.3, init=lf.AtDistance(0.5), solver=lf.ClosedForm(order="joint"), ridge=1.0)
    assert traced(ridge, made(30, 10, 2), lf.FixedSamples(25)).inverse.max() < 1.01


def test_judges_see_failures():
    trace = traced(algorithm_of(2), made(6, 8, 2), lf.FixedSamples(20), n_rounds=3)
    broken = dataclasses.replace(trace, distance=trace.bound * 1.01)
    assert bound(broken).verdict is Verdict.VIOLATED
    distance, identity = trace.distance.copy(), trace.identity.copy()
    distance[1, 2], identity[1, 2] = 1.01 * trace.bound[1, 2], 1e-9  # one round of one trial
    assert bound(dataclasses.replace(trace, distance=distance)).verdict is Verdict.VIOLATED
    assert split(dataclasses.replace(trace, identity=identity)).verdict is Verdict.VIOLATED
    loose = dataclasses.replace(trace, contraction=trace.contraction + 9.0)
    assert bound(loose).verdict is Verdict.VACUOUS
    assert split(dataclasses.replace(trace, identity=trace.identity + 1e-9)).verdict is Verdict.VIOLATED
    nothing = dataclasses.replace(trace, identity=np.full_like(trace.identity, np.nan))
    assert split(nothing).verdict is Verdict.VACUOUS


def test_the_equations_are_judged_by_each_trials_worst_round():
    trace = traced(algorithm_of(2), made(6, 8, 2), lf.FixedSamples(20), n_rounds=4, equations=True)
    found = {claim.claim.split(" is ")[0]: claim for claim in equations(trace)}
    assert [claim.verdict for claim in found.values()] == [Verdict.HOLDS, Verdict.VIOLATED, Verdict.HOLDS]
    assert found["Equation (18)"].detail == "the worst of 3 trials, 3 values"
    shortcuts = trace.shortcuts.copy()
    shortcuts[1, 2], shortcuts[1, 3] = 1e-3, np.nan  # before it diverges
    broken = equations(dataclasses.replace(trace, shortcuts=shortcuts))
    assert [claim.verdict for claim in broken] == [Verdict.HOLDS, Verdict.VIOLATED, Verdict.VIOLATED]
    for solver in (lf.ClosedForm(order="gauss-seidel"), lf.GradientSteps()):
        other = dataclasses.replace(algorithm_of(2), solver=solver)
        with pytest.raises(ValueError, match=r"equations = True requires solver = ClosedForm\(\)"):
            traced(other, made(6, 8, 2), lf.FixedSamples(20), n_rounds=1, equations=True)


def test_a_diverged_trial_leaves_nan_and_the_others_alone():
    problem, algorithm = made(6, 8, 2), algorithm_of(2)
    truth = problem.truth(3, range(2))

    def steps(alive):
        run = {"data": lf.FixedSamples(20), "n_rounds": 4, "trials": 2, "seed": 3, "engine": "explicit"}
        for step in lf.iterate(algorithm, problem, **run):
            yield dataclasses.replace(step, alive=np.array([True, alive or step.number < 3]))

    whole, cut = (theory.shortcut_trace(steps(alive), algorithm, truth) for alive in (True, False))
    for name, one in whole.series.items():
        other = cut.series[name]
        assert np.isnan(other[1, 2:]).all()
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1, :2], other[1, :2])
    assert bound(cut).verdict is bound(whole).verdict
    assert split(cut).verdict is Verdict.HOLDS


def test_a_trace_refuses_a_refit_and_nothing():
    problem, refits = made(6, 8, 2), algorithm_of(2, refit=True)
    truth = problem.truth(3, range(1))
    with pytest.raises(ValueError, match="refit = True"):
        theory.shortcut_trace([], refits, truth)
    with pytest.raises(ValueError, match="steps must contain at least one round"):
        theory.shortcut_trace([], algorithm_of(2), truth)
