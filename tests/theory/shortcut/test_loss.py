"""How fast the shortcut draft's rounds lose a B near B*: the predicted rounds, and the judges of this prediction."""

import numpy as np
import pytest

import linfed as lf
from experiments.shortcut import shortcut_lost
from linfed.claims import judged
from linfed.statistics.findings import Verdict
from linfed.theory import shortcut as theory
from tests.helpers import assert_one_line


def over_predicted(lost, predicted):
    """Return the finding of `experiments.shortcut.shortcut_lost` on the predicted rounds."""
    row = {"method": shortcut_lost.CLOSED, "kind": shortcut_lost.FIXED, "step_size": 0.3, "start": 0.3, "n_clients": 50}
    (found,) = judged(
        shortcut_lost.CLAIMS[-1:], {"rounds": lf.Table([row | {"lost": lost, "predicted": predicted[0]}])}
    )
    return found


def rounds(start=0.3, **changes):
    sizes = {"n_clients": 50, "n_samples": 40, "dim": 20, "rank": 2, "step_size": 0.3}
    return theory.shortcut_loss_rounds(start, **sizes | changes)


@pytest.mark.parametrize("step_size", [0.3, 1.4])
@pytest.mark.parametrize("level", [0.5, 0.8, 1.0])
def test_the_predicted_loss_is_where_mean_and_wander_pass_the_level(level, step_size):
    """Also beyond a step of 1, which magnifies as one of the same distance from 1."""
    n, m, d, k, start = 30, 25, 11, 3, 0.2
    sizes = {"n_clients": n, "n_samples": m, "dim": d, "rank": k, "step_size": step_size}
    found = rounds(start, level=level, **sizes)
    t, shrunk = (found + 1) / 2, abs(1 - step_size)
    rate = step_size * (k + 1) / (m * shrunk)
    wander = step_size * np.sqrt(k / (m * n)) * (np.sqrt(d - k) + np.sqrt(k)) / shrunk
    reached = start**2 * np.exp(2 * rate * t) + (wander * t) ** 2
    assert reached == pytest.approx(level**2, rel=1e-9) or (found == 1.0 and reached > level**2)


def test_the_predicted_loss_at_its_ends():
    assert rounds() == rounds(level=0.5)
    assert rounds(step_size=1.0) == rounds(0.5) == 1.0
    later = [rounds(n_samples=m) for m in (4 * 10**4, 16 * 10**4)]
    assert later[1] / later[0] == pytest.approx(2.0, rel=0.1)  # the wander by itself
    for changes, words in (
        ({"rank": 20}, "rank = 20"),
        ({"step_size": 0.0}, "step_size"),
        ({"level": 0.2}, "start"),
        ({"level": 1.01}, "level"),
    ):
        assert_one_line(lambda changes=changes: rounds(**changes), [words])


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        (1.02, Verdict.SUPPORTED),
        (1.98, Verdict.SUPPORTED),
        (0.98, Verdict.NOT_SUPPORTED),
        (2.02, Verdict.NOT_SUPPORTED),
    ],
)
def test_the_constant_of_the_predicted_loss_is_between_1_and_2(factor, verdict):
    predicted = np.full(16, 5.0)
    assert over_predicted(factor * (predicted + 1) - 1, predicted).verdict is verdict
    assert over_predicted(predicted * np.inf, predicted).detail == "16 of 16 censored"


def judged_exponent(lost, exponent, **more):
    return theory.judge_loss_exponent(lost, exponent, claim="it grows", setting="here", last=600, **more)


def test_the_exponent_of_the_loss_is_judged_in_samples_and_in_steps():
    spread = 1 + 0.01 * np.arange(16)
    lost = {m: 2 * np.sqrt(m) * spread - 1 for m in (10, 20, 40)}
    found = judged_exponent(lost, 0.5, every=2)
    assert found.verdict is Verdict.SUPPORTED
    assert judged_exponent(lost, 1.0, every=2).verdict is Verdict.NOT_SUPPORTED
    more = judged_exponent({**lost, 160: np.where(np.arange(16) < 4, np.inf, 300.0)}, 0.5, every=2)
    assert (more.detail, more.estimate) == ("censored at 160, left out", found.estimate)
    steps = {eta: 10 * (1 - eta) / eta * spread for eta in (0.03, 0.1, 0.3)}
    assert judged_exponent(steps, -1.0, in_step=True).estimate == pytest.approx(-1.0)


def test_a_size_counts_up_to_fifteen_percent_of_runs_that_ended_before_and_three_are_needed():
    spread = 1 + 0.01 * np.arange(20)
    for ended, kept in ((3, True), (4, False)):
        lost = {m: np.sqrt(m) * spread for m in (10, 20, 40)}
        lost[40][:ended] = np.inf
        assert (judged_exponent(lost, 0.5) is not None) == kept
    lost = {m: np.minimum(np.sqrt(m) * spread, 600) for m in (10, 20, 40)}
    assert judged_exponent(lost, 0.5).estimate == pytest.approx(0.5, abs=1e-6)
