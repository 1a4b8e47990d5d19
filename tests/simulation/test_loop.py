"""The loop over rounds: trials that diverge end alone, at their last finite state."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.simulation import job
from linfed.simulation.loop import run_chunk
from tests.helpers import Held, assert_same, normal
from tests.simulation.watched import Watched


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


PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2, noise_std=0.1)
EXACT = lf.FedRep(rank=2, step_size=0.3)
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


@pytest.mark.filterwarnings("ignore:.*far from mean 0 or scale 1")
@pytest.mark.parametrize("kind", ["truth", "data", "data alone"])
def test_trials_that_diverge_end_alone(kind):
    init = normal(5, 6, 2, seed=3) / 3
    algorithm = dataclasses.replace(UNSTABLE, init=init)
    problem, data = scaled_trials(slice(None), kind)
    result = lf.simulate(algorithm, problem, data=data, n_rounds=60)
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
            alone = lf.simulate(dataclasses.replace(UNSTABLE, init=init[[trial]]), problem, data=data, n_rounds=60)
            assert_same(alone, result, slice(None), slice(trial, trial + 1))


def test_a_diverged_trial_keeps_its_last_finite_state():
    problem, data = scaled_trials([1], "data")
    algorithm = dataclasses.replace(UNSTABLE, init=normal(1, 6, 2, seed=3))
    full = lf.simulate(algorithm, problem, data=data, n_rounds=60)
    (stop,) = full.status_round
    before = lf.simulate(algorithm, problem, data=data, n_rounds=int(stop) - 1)
    assert before.status == [lf.Status.COMPLETED]
    for name, array in before.final.arrays().items():
        assert np.array_equal(array, full.final.arrays()[name])


def test_what_diverges_is_judged_by_the_labels_of_its_own_trial(monkeypatch):
    """Without a truth the scale of given labels counts: in a chunk that is not the first, those of its trials."""
    X, y = normal(3, 4, 8, 2), normal(3, 4, 8, seed=1)
    y[1] *= 1e14
    X[2, ..., 1] = X[2, ..., 0] + 3e-13 * X[2, ..., 1]  # the predictors are as large, the labels are not
    arguments = {"data": lf.GivenSamples(X, y), "n_rounds": 2}
    whole = lf.simulate(lf.LocalOnly(), **arguments)
    assert whole.status == [lf.Status.COMPLETED, lf.Status.COMPLETED, lf.Status.DIVERGED]
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    assert_same(lf.simulate(lf.LocalOnly(), **arguments), whole)


def test_a_trial_has_diverged_beyond_1e12_times_its_scale():
    """The scale is that of the truth or of given labels, and at least 1."""
    S = np.zeros((4, 1, 3))
    S[:, 0, 0] = [1e12, 1.001e12, 1e13, 1.001e13]
    for scale, alive in ((0.0, 1), (0.1, 1), (10.0, 3)):
        problem = lf.GivenTruth(S=np.tile([scale, 0.0, 0.0], (2, 1)))
        result = lf.simulate(Held(state=lf.State(S=S)), problem, data=lf.FixedSamples(5), n_rounds=2, trials=4)
        assert [status is lf.Status.COMPLETED for status in result.status] == [trial < alive for trial in range(4)]
        assert result.status_round.tolist() == [2 * (trial < alive) for trial in range(4)]


@pytest.mark.parametrize("data", [lf.FreshSamples(8), lf.FixedSamples(8)])
@pytest.mark.parametrize("orthonormalize", [True, False])
@pytest.mark.parametrize("heads", [lf.ExactHeads(), lf.GradientHeads(steps=2, step_size=1e300)])
def test_numbers_that_overflow_are_a_result(heads, orthonormalize, data):
    """From a finite state to infinity in one round."""
    huge = lf.FedRep(rank=2, step_size=1e300, init="random", heads=heads, orthonormalize=orthonormalize)
    result = lf.simulate(huge, PROBLEM, data=data, n_rounds=3, trials=2)
    for values, status, last in zip(result.metrics["risk"], result.status, result.status_round, strict=True):
        diverged = status is lf.Status.DIVERGED
        assert np.isnan(values[last:]).all() if diverged else np.isfinite(values).all()
        assert diverged or isinstance(heads, lf.ExactHeads)
    assert all(np.isfinite(array).all() for array in result.final.arrays().values())


def test_dependent_features_are_an_outcome():
    """Two sign columns of two samples agree up to sign in half of the draws, so that most runs meet them early."""
    problem = lf.SharedRepresentation(n_clients=1, dim=4, rank=2, design="rademacher")
    algorithm = lf.FedRep(rank=2, step_size=0.1, init=np.eye(4)[:, :2])  # m = k: B does not move
    arguments = {"data": lf.FreshSamples(2), "trials": 12}
    result = lf.simulate(algorithm, problem, n_rounds=3, **arguments)
    watched = Watched(inner=algorithm)
    lf.simulate(watched, problem, n_rounds=3, metrics=["risk"], **arguments)
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


def test_divergence_outweighs_a_singular_head():
    data = lf.GivenSamples(np.ones((2, 2, 5, 3)), normal(2, 2, 5))  # one direction only
    arguments = {"data": data, "n_rounds": 4, "trials": 2}
    inner = lf.FedRep(rank=2, step_size=0.1, init=normal(3, 2))
    assert lf.simulate(inner, **arguments).status == [lf.Status.SINGULAR_HEAD] * 2
    problem = lf.GivenTruth(S=np.zeros((2, 3)))
    result = lf.simulate(Exploding(inner=inner), problem, **arguments)
    assert result.status == [lf.Status.SINGULAR_HEAD, lf.Status.DIVERGED]
    assert result.status_round.tolist() == [1, 2]


def test_an_algorithm_that_names_no_size_runs_on_data_alone():
    data = lf.GivenSamples(normal(2, 2, 5, 3), normal(2, 2, 5))
    arguments = {"data": data, "n_rounds": 2}
    inner = lf.FedRep(rank=2, step_size=0.1)
    assert_same(lf.simulate(Exploding(inner=inner), **arguments), lf.simulate(inner, **arguments), 0, 0)


def the_job(trials):
    return job.checked_job(EXACT, PROBLEM, lf.FreshSamples(5), 3, 1.0, trials, 0, [], 3, "auto")


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
