"""How fast the shortcut draft's rounds lose a B near B*: the predicted rounds, and the judges of this prediction."""

import numpy as np
import pytest

import linfed as lf
from experiments.shortcut import shortcut_lost
from linfed.claims import judged
from linfed.statistics.findings import Verdict
from linfed.theory import shortcut as theory

SIZES = {"n_clients": 50, "n_samples": 40, "dim": 20, "rank": 2, "step_size": 0.3}


def test_the_predicted_loss_is_where_mean_and_wander_pass_the_level():
    t = (theory.shortcut_loss_rounds(0.3, **SIZES) + 1.0) / 2.0
    rate, wander = 0.3 * 3 / (40 * 0.7), 0.3 * np.sqrt(2 / (40 * 50)) * (np.sqrt(18) + np.sqrt(2)) / 0.7
    assert 0.09 * np.exp(2 * rate * t) + (wander * t) ** 2 == pytest.approx(0.25)
    assert theory.shortcut_loss_rounds(0.3, **{**SIZES, "step_size": 1.0}) == 1.0
    assert theory.shortcut_loss_rounds(0.5, **SIZES) == 1.0
    later = [theory.shortcut_loss_rounds(0.3, **{**SIZES, "n_samples": m}) for m in (4 * 10**4, 16 * 10**4)]
    assert later[1] / later[0] == pytest.approx(2.0, rel=0.1)  # the wander alone
    for changes, said in (({"rank": 20}, "rank = 20"), ({"step_size": 0.0}, "step_size"), ({"level": 0.2}, "start")):
        with pytest.raises(ValueError, match=said):
            theory.shortcut_loss_rounds(0.3, **{**SIZES, **changes})


def over_predicted(lost, predicted):
    """Return the finding of `experiments.shortcut.shortcut_lost` on the predicted rounds."""
    row = {"method": shortcut_lost.CLOSED, "kind": shortcut_lost.FIXED, "step_size": 0.3, "start": 0.3, "n_clients": 50}
    (found,) = judged(
        shortcut_lost.CLAIMS[-1:], {"rounds": lf.Table([row | {"lost": lost, "predicted": predicted[0]}])}
    )
    return found


@pytest.mark.parametrize(("factor", "verdict"), [(1.5, Verdict.SUPPORTED), (3.0, Verdict.NOT_SUPPORTED)])
def test_the_predicted_loss_is_judged_to_a_factor_of_two(factor, verdict):
    predicted = np.full(16, 40.0)
    assert over_predicted(factor * (predicted + 1) - 1, predicted).verdict is verdict
    assert over_predicted(predicted * np.inf, predicted).detail == "16 of 16 censored"


@pytest.mark.parametrize("step_size", [0.3, 1.4])
@pytest.mark.parametrize("level", [0.5, 0.8, 1.0])
def test_the_predicted_loss_of_generic_sizes(level, step_size):
    """Also beyond a step of 1, which magnifies as one of the same distance from 1."""
    n, m, d, k, start = 30, 25, 11, 3, 0.2
    sizes = {"n_clients": n, "n_samples": m, "dim": d, "rank": k, "step_size": step_size}
    found = theory.shortcut_loss_rounds(start, level=level, **sizes)
    t, shrunk = (found + 1) / 2, abs(1 - step_size)
    rate = step_size * (k + 1) / (m * shrunk)
    wander = step_size * np.sqrt(k / (m * n)) * (np.sqrt(d - k) + np.sqrt(k)) / shrunk
    reached = start**2 * np.exp(2 * rate * t) + (wander * t) ** 2
    assert reached == pytest.approx(level**2, rel=1e-9) or (found == 1.0 and reached > level**2)
    if level == 0.5:
        assert found == theory.shortcut_loss_rounds(start, **sizes)
    with pytest.raises(ValueError, match="level"):
        theory.shortcut_loss_rounds(start, level=1.01, **sizes)


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


def test_a_size_counts_if_fifteen_percent_of_its_runs_ended_before():
    spread = 1 + 0.01 * np.arange(20)
    said = {"claim": "it grows", "setting": "here", "last": 600}
    for ended, kept in ((3, True), (4, False)):
        lost = {m: np.sqrt(m) * spread for m in (10, 20, 40)}
        lost[40][:ended] = np.inf
        found = theory.judge_loss_exponent(lost, 0.5, **said)
        assert (found is not None) == kept
    lost = {m: np.minimum(np.sqrt(m) * spread, 600) for m in (10, 20, 40)}
    assert theory.judge_loss_exponent(lost, 0.5, **said).estimate == pytest.approx(0.5, abs=1e-6)


def test_the_exponent_of_the_loss_leaves_out_sizes_at_which_runs_ended_before():
    spread = 1 + 0.01 * np.arange(16)
    said = {"claim": "it grows", "setting": "here", "last": 600}
    lost = {m: 2 * np.sqrt(m) * spread - 1 for m in (10, 20, 40)}
    assert theory.judge_loss_exponent(lost, 0.5, every=2, **said).verdict is Verdict.SUPPORTED
    assert theory.judge_loss_exponent(lost, 1.0, every=2, **said).verdict is Verdict.NOT_SUPPORTED
    more = {**lost, 160: np.where(np.arange(16) < 4, np.inf, 300.0)}
    found = theory.judge_loss_exponent(more, 0.5, every=2, **said)
    assert found.detail == "censored at 160, left out"
    assert found.estimate == theory.judge_loss_exponent(lost, 0.5, every=2, **said).estimate
    assert theory.judge_loss_exponent({m: lost[m] for m in (10, 20)}, 0.5, **said) is None
    steps = {eta: 10 * (1 - eta) / eta * spread for eta in (0.03, 0.1, 0.3)}
    assert theory.judge_loss_exponent(steps, -1.0, in_step=True, **said).estimate == pytest.approx(-1.0)
