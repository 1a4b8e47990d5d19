"""Tuning by rounds to a level: settings that cannot be chosen are stopped, and the choice is that of complete runs."""

import math
import tracemalloc
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import linfed as lf
from linfed.search import race
from linfed.simulation.loop import run_in_turns
from tests.helpers import mostly_long

PROBLEM = lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.05)
FEDREP = lf.FedRep(rank=2, step_size=9.0, init=lf.AtDistance(0.9))
SETTING = {"grid": {"step_size": (0.02, 0.1, 0.3, 0.6, 0.9, 3.0, 40.0)}, "data": lf.FreshSamples(8), "n_rounds": 60}


def tuned(*arguments, **options):
    """Return a tuning, or the text of its error, and the texts of its warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            tuning = lf.tune(*arguments, **options)
        except ValueError as error:
            return str(error), []
    return tuning, [str(one.message) for one in found]


def stopped_and_compared(*arguments, level, **options):
    """Tune with settings that stop; raise unless the result agrees with complete runs; return the stopped settings."""
    judge = lf.RoundsTo(level)
    one, notes = tuned(*arguments, score=judge, **options)
    whole, all_notes = tuned(*arguments, score=lambda rounds, curve: judge(rounds, curve), **options)
    if isinstance(whole, str):
        assert one == whole
        return np.array([])
    assert not isinstance(one, str)
    assert [note for note in notes if "no setting reaches" not in note] == all_notes
    for name in ("best", "settings", "at_grid_edge", "algorithm"):
        assert getattr(one, name) == getattr(whole, name)
    ends, ran = ~one.stopped, ~np.isnan(one.curves)
    assert np.array_equal(one.scores[ends], whole.scores[ends])
    assert np.array_equal(one.curves[ran], whole.curves[ran])
    assert np.all(one.scores[~ends] > one.scores[one.best])
    lower = ~ends & np.isfinite(one.scores)
    assert np.all(one.scores[lower] <= whole.scores[lower])
    return one.stopped


# --- given curves ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Played(lf.Algorithm):
    """Setting with a number, whose trials diverge in given rounds."""

    number: int
    ends: tuple

    def initial_state(self, start):
        return self.after(0)

    def step(self, state, batch, rng):
        return self.after(batch.round)

    def after(self, count):
        """Return the state after some rounds: their number, and that of the setting; infinite after the end."""
        return lf.State(
            S=np.array([[[count if count < end else np.inf, self.number]] for end in self.ends], dtype=float)
        )


@st.composite
def outcomes(draw):
    """Return values (settings, trials, rounds + 1), with ties, and the rounds in which trials diverge."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    settings, trials, rounds = draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 60))
    rate = 0.1 * rng.uniform(0.3, 10.0) * rng.choice([0.0, 0.3, 1.0, 1.0, 1.01, 1.1, 2.0], size=(settings, 1, 1))
    noise = draw(st.sampled_from([0.0, 0.01, 0.3]))
    values = np.exp(-rate * np.arange(rounds + 1) + noise * rng.normal(size=(settings, trials, rounds + 1)))
    values[rng.random(values.shape) < draw(st.sampled_from([0.0, 0.02, 0.4]))] = np.nan  # undefined for a while
    ends = rng.integers(1, draw(st.sampled_from([1, 4])) * rounds + 1, size=(settings, trials))
    return values, np.where(rng.random((settings, 1)) < 0.5, ends, 1000)


def compared(values, ends, **options):
    """Compare a tuning over given curves with complete runs, and return the stopped settings."""
    trials = np.arange(values.shape[1])

    def played(state, truth):
        return values[int(state.S[0, 0, 1]), trials, np.nanmax(state.S[:, 0, 0]).astype(int)]

    grid = [{"number": number, "ends": tuple(those)} for number, those in enumerate(ends.tolist())]
    sizes = {"data": lf.FreshSamples(1), "n_rounds": values.shape[2] - 1, "trials": len(trials)}
    problem = lf.GivenTruth(S=np.zeros((1, 2)))
    return stopped_and_compared(Played(number=0, ends=()), problem, grid=grid, metric=played, **sizes, **options)


@pytest.mark.long
@given(
    outcomes(),
    st.sampled_from([0.0, 0.01, 0.3]),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    st.integers(1, 25),
    st.sampled_from([1e-9, 0.1, 0.1, 0.7, 2.0]),
)
def test_the_choice_is_that_of_complete_runs(drawn, ties_within, quantile, record_every, level):
    compared(*drawn, ties_within=ties_within, quantile=quantile, record_every=record_every, level=level)


def falling(*rounds):
    """Return values (settings, 1, 61) that fall to 0.1 in the given rounds."""
    return np.exp(-math.log(10) * np.arange(61) / np.array(rounds)[:, None, None])


NEVER = 1000
UNDEFINED = np.concatenate([np.where(np.arange(61) == 16, np.nan, falling(20)), falling(22)])
"""The better setting has no value in the round of a comparison."""
AWAY = np.concatenate(
    [np.where((np.arange(61) > 25) & (np.arange(61) < 40), 1.0, falling(5)), falling(20), falling(50)]
)
"""The first setting reaches the level first and leaves it for some rounds."""


@pytest.mark.parametrize(
    ("values", "ends", "ties_within", "stopped"),
    [
        (falling(25.5, 20, 50), (NEVER, NEVER, NEVER), 0.3, [False, False, True]),  # a tie that comes later
        (falling(20.2, 20, 20), (NEVER, NEVER, NEVER), 0.01, [False, False, False]),
        (falling(20.21, 20, 20), (NEVER, NEVER, NEVER), 0.01, [True, False, False]),
        (falling(5, 20, 40), (50, NEVER, NEVER), 0.01, [False, False, True]),  # diverges after it has reached the level
        (falling(5, 20, 40), (3, 60, 60), 0.01, []),
        (UNDEFINED, (NEVER, NEVER), 0.01, [False, True]),
        (AWAY, (NEVER, NEVER, NEVER), 0.01, [False, False, True]),
        (np.maximum(falling(8, 30), 0.1), (NEVER, NEVER), 0.0, [False, True]),  # reached in the round of a comparison
    ],
)
def test_settings_that_may_be_chosen_run_to_the_end(values, ends, ties_within, stopped):
    found = compared(values, np.array(ends)[:, None], ties_within=ties_within, level=0.1)
    assert found.tolist() == stopped


# --- runs ------------------------------------------------------------------------------------------------------

CASES = {
    "plain": ({}, 5),
    "every seventh round": ({"record_every": 7}, 5),
    "all trials": ({"quantile": 1.0}, 3),
    "several clients": ({"participation": 0.3}, 3),
    "fixed samples": ({"data": lf.FixedSamples(12), "metric": "train_loss", "level": 0.003}, 2),
    "gradient heads": ({"algorithm": replace(FEDREP, heads=lf.GradientHeads(steps=5, step_size=0.3))}, 3),
    "fitted heads at the end": ({"algorithm": lf.FedBABU(rank=2, step_size=1.0), "metric": "risk", "level": 1.0}, 1),
    "a wider grid": ({"grid": {"step_size": (0.02, 0.05)}, "extend": True}, 1),
    "a narrower grid": ({"grid": {"step_size": (40.0, 80.0)}, "extend": True}, 1),
    "no setting reaches the level": ({"level": 1e-9}, 0),
}


@pytest.mark.parametrize("case", mostly_long(CASES, "every seventh round", "fitted heads at the end", "a wider grid"))
def test_runs_agree_with_complete_ones(case):
    options, fewest = CASES[case]
    options = {"algorithm": FEDREP, "trials": 4, "level": 0.2} | SETTING | options
    assert stopped_and_compared(options.pop("algorithm"), PROBLEM, **options).sum() >= fewest


def test_an_unstable_setting_does_not_win():
    """Its status is known only at the end (`Status.UNSTABLE`)."""
    problem = lf.SharedRepresentation(n_clients=20, dim=8, rank=2)
    found, _ = tuned(FEDREP, problem, score=lf.RoundsTo(0.9), trials=3, **SETTING | {"grid": {"step_size": (0.3, 6.0)}})
    assert found.best_params == {"step_size": 0.3}
    assert found.scores[1] == np.inf


def test_stopped_settings_have_lower_bounds_and_no_further_curve():
    tuning, _ = tuned(FEDREP, PROBLEM, score=lf.RoundsTo(0.2), trials=4, **SETTING)
    assert not tuning.stopped[tuning.best]
    assert tuning.stopped[0]
    last = np.flatnonzero(~np.isnan(tuning.curves[0]))[-1]
    assert last == tuning.scores[0] == math.floor(1.01 * tuning.scores[tuning.best]) + 1
    assert np.array_equal(tuning.columns()["stopped"].values, tuning.stopped)
    assert "stopped" in tuning._repr_html_()
    assert "stopped" not in lf.tune(FEDREP, PROBLEM, trials=4, **SETTING).columns()


# --- where it runs ---------------------------------------------------------------------------------------------


def rounds_run(monkeypatch):
    """Return a list that gets an element for each round that a setting runs in turns."""
    ran = []

    def counted(*arguments):
        for step in run_in_turns(*arguments):
            ran.append(step[0])
            yield step

    monkeypatch.setattr("linfed.simulation.run.run_in_turns", counted)
    return ran


def test_settings_that_do_not_fit_together_run_one_by_one(monkeypatch):
    ran = rounds_run(monkeypatch)
    options = {"score": lf.RoundsTo(0.2), "trials": 4, **SETTING}
    first, _ = tuned(FEDREP, PROBLEM, **options)
    assert 0 < len(ran) < 0.6 * 7 * 61
    ran.clear()
    monkeypatch.setattr(race, "MOST_BYTES", 1e5)
    assert tuned(FEDREP, PROBLEM, **options)[0] == first
    assert ran == []


@pytest.mark.parametrize("data", [lf.FreshSamples(8), lf.FixedSamples(12)])
def test_threads_share_the_trials(data, monkeypatch):
    options = {"score": lf.RoundsTo(0.2), "trials": 5, **SETTING, "data": data}
    first, _ = tuned(FEDREP, PROBLEM, **options)
    for name in ("THREAD_BYTES", "DRAWN_THREAD_BYTES"):
        monkeypatch.setattr(f"linfed.simulation.job.{name}", 1.0)
    monkeypatch.setenv("LINFED_NUM_THREADS", "2")
    assert tuned(FEDREP, PROBLEM, **options)[0] == first


@pytest.mark.long
def test_workers_run_all_settings_to_the_end():
    options = {"score": lf.RoundsTo(0.2), "trials": 4, **SETTING, "grid": {"step_size": (0.02, 0.6, 0.9)}}
    assert tuned(FEDREP, PROBLEM, workers=2, **options)[0] == tuned(FEDREP, PROBLEM, **options)[0]


def test_fixed_samples_are_held_once():
    """Six settings take less than half as much memory again as one, and stay below the estimate."""
    problem, data = lf.SharedRepresentation(n_clients=100, dim=40, rank=2), lf.FixedSamples(80)

    def peak(count):
        algorithms = [replace(FEDREP, step_size=0.1 + 0.01 * step) for step in range(count)]
        tracemalloc.start()
        tuned(algorithms, problem, data=data, n_rounds=4, trials=2, score=lf.RoundsTo(1e-6), engine="explicit")
        return tracemalloc.get_traced_memory()[1], tracemalloc.stop()

    peak(1)
    assert peak(6)[0] < 1.5 * peak(1)[0]
