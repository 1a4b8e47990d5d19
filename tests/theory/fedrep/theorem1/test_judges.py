"""The judges of Theorem 1 of the FedRep paper: verdicts on made-up and simulated runs, where it holds and where not."""

import math
from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed.statistics.findings import Verdict
from linfed.theory.fedrep.theorem1 import bound as theory
from linfed.theory.fedrep.theorem1 import judges, runs
from tests.theory.fedrep.theorem1.made import PROBLEM, falling, made, simulated

HERE = {"claim": "the bound holds", "setting": "here", "source": "Theorem 1"}


def judged_theorem1(run, **options):
    return judges.judge_theorem1(run, **HERE | options)


def judged_looseness(run, **options):
    return judges.judge_looseness(run, **HERE | {"statistic": "ratio of the rates"} | options)


SPOILT = {
    "noise std": {"noise_std": 0.1},
    "rounds that see": {"batch_rounds": 10},
    "gradient steps": {"head_steps": 1},
    "ridge": {"ridge": 1e-3},
    "||w_i||": {"unequal": np.full(80, 1e-3)},
    "k <= p": {"participants": 1, "smallest": np.zeros(80)},
    "0 < sigma_min": {"smallest": np.full(80, 1e-14)},
    "eta <=": {"step_size": 0.26},
    "<= m": {"n_samples": 40},
}


@pytest.mark.parametrize("name", SPOILT)
def test_every_hypothesis_is_seen_to_fail(name):
    run = made(falling(), **SPOILT[name])
    finding = judged_theorem1(run)
    assert finding.verdict is Verdict.HYPOTHESES_FAIL
    assert any(name in hypothesis.text for hypothesis in finding.failed_hypotheses)
    assert "fails: " in finding.remarks
    if name not in ("k <= p", "0 < sigma_min"):
        assert len(finding.failed_hypotheses) == 1
    assert not judged_theorem1(run, assumed=False).failed_hypotheses


def failing(run, *constant):
    return [hypothesis for hypothesis in run.hypotheses(*constant) if not hypothesis.holds]


def test_hypotheses_hold_up_to_their_limits():
    run = made(falling())
    needed = (8 * math.log(20) + 2) / 0.75**2
    assert failing(run, 0.999 * 1000 / needed) == []
    assert [hypothesis.right for hypothesis in failing(run, 1.001 * 1000 / needed)] == [1000]
    # drawn heads have sigma_max = 1 to 1e-12
    assert failing(made(falling(), largest=np.full(80, 1.0 + 1e-12))) == []
    (step,) = failing(made(falling(), step_size=0.25 + 1e-9))
    assert step.text.startswith("eta <=")
    worst = np.ones(80)
    worst[7] = 1.1
    (step,) = failing(made(falling(), largest=worst))  # the trial that is nearest to failing decides
    assert step.right == pytest.approx(1 / (4 * 1.21))


def test_verdicts_of_made_up_runs():
    """The bound falls by sqrt(1 - 0.25 * 0.75 / 2) = 0.952 a round, and by 0.906 with exponent T."""
    holds = judged_theorem1(made(falling(0.95)))
    assert (holds.verdict, holds.detail) == (Verdict.HOLDS, "0 of 80")
    assert judged_theorem1(made(falling(0.95)), exponent=1.0).verdict is Verdict.VIOLATED
    assert judged_theorem1(made(falling(0.9)), exponent=1.0).verdict is Verdict.HOLDS
    few = judged_theorem1(made(falling(0.9, trials=20)))
    assert few.verdict is Verdict.INCONCLUSIVE  # twenty trials cannot tell 5 % from none
    spoilt = falling(0.9)
    spoilt[3, 5:] = 0.5  # one round of one trial
    one = judged_theorem1(made(spoilt))
    assert (one.verdict, one.detail) == (Verdict.INCONCLUSIVE, "1 of 80")
    gone = falling(0.9)
    gone[:20, 5:] = np.nan
    assert judged_theorem1(made(gone)).verdict is Verdict.VIOLATED
    partial = judged_theorem1(made(gone, n_clients=40))
    assert partial.verdict is Verdict.INCONCLUSIVE
    assert "did not occur" in partial.note
    assert {one.claimed_high, holds.claimed_high, few.claimed_high} == {0.05}  # whatever the runs are
    assert judged_theorem1(made(falling(0.9), n_clients=40)).verdict is Verdict.HOLDS


def test_a_finding_has_the_defaults_and_its_notes():
    run = made(falling(0.95))
    plain = judged_theorem1(run)
    told = {"constant": 1.0, "exponent": 0.5, "assumed": True, "resolution": 0.05}
    assert plain == judged_theorem1(run, **told)
    assert judged_theorem1(run, note="a note").note == "a note"
    assert judged_theorem1(run, resolution=0.2).claimed_high == 0.2
    gone = falling(0.9)
    gone[:20, 5:] = np.nan
    partial = judged_theorem1(made(gone, n_clients=40), note="a note")
    assert partial.low == 0.0
    assert partial.note.startswith("a note")
    assert "nowhere below 1" in judged_theorem1(made(falling(n_rounds=0))).vacuous
    assert not judged_theorem1(made(falling(n_rounds=1))).vacuous


def test_a_run_on_its_bound_is_within_it():
    bound = made(falling()).bound()
    assert not judges.beyond_bound(made(bound)).any()
    bound[:40, 3] *= 1.001
    np.testing.assert_array_equal(judges.beyond_bound(made(bound)), np.arange(80) < 40)
    np.testing.assert_allclose(judges.rate_ratios(made(made(falling()).bound())), 1.0)


def test_vacuous_where_nothing_is_said():
    nowhere = judged_theorem1(made(falling(start=1.0)), assumed=False)
    assert nowhere.verdict is Verdict.VACUOUS
    assert "nowhere below 1" in nowhere.remarks
    alone = made(falling(), rank=1, n_clients=1, participants=1)
    finding = judged_theorem1(alone)
    assert finding.verdict is Verdict.VACUOUS
    assert "probability of 1" in finding.remarks


def test_distances_of_rounding_are_within_every_bound():
    """The bound falls by 0.0195 a round here."""
    for floor, beyond in ((3e-16, False), (2e-12, True)):
        run = made(np.maximum(falling(0.01, n_rounds=60), floor))
        assert (judges.beyond_bound(run, exponent=40.0) == beyond).all()


def test_rates():
    run = made(falling(0.9))
    bound = -0.5 * math.log(1 - 0.25 * 0.75 / 2)
    np.testing.assert_allclose(judges.rate_ratios(run), -math.log(0.9) / bound)
    np.testing.assert_allclose(judges.rate_ratios(run, 1.0), -math.log(0.9) / bound / 2)
    floor = made(np.maximum(falling(0.01, n_rounds=30), 1e-15))  # five rounds above rounding
    np.testing.assert_allclose(judges.rate_ratios(floor), -math.log(0.01) / bound)
    assert judged_looseness(run).verdict is Verdict.HOLDS
    assert judged_looseness(made(falling(0.99))).verdict is Verdict.VIOLATED
    gone = falling(0.9)
    gone[:60, 5:] = np.nan
    assert judged_looseness(made(gone)).estimate == -np.inf
    gone[:60, 1:] = np.nan  # diverged before the first record
    assert judged_looseness(made(gone)).estimate == -np.inf
    soon = falling(0.9)
    soon[:, 1:] = 1e-14
    np.testing.assert_allclose(judges.rate_ratios(made(soon)), math.log(1e11) / bound)  # at least this rate
    assert judged_looseness(made(soon)).verdict is Verdict.HOLDS


def test_rates_are_judged_under_the_hypotheses_and_where_the_bound_falls():
    noisy = judged_looseness(made(falling(0.99), noise_std=0.1))
    assert noisy.verdict is Verdict.HYPOTHESES_FAIL
    distance = falling(0.9)
    distance[:70] = 0.0  # they start at B*
    assert judged_looseness(made(distance)).verdict is Verdict.HOLDS
    assert np.isnan(judges.rate_ratios(made(distance))).sum() == 70
    nowhere = judged_looseness(made(0 * distance))
    assert nowhere.verdict is Verdict.VACUOUS
    assert "does not fall" in nowhere.remarks


def test_theorem_holds_on_a_run_and_the_engines_agree():
    needed = theory.fedrep_least_samples(dim=10, rank=2, participants=12, condition=1.0, start=0.5)
    finding = judged_theorem1(runs.theorem1_run(simulated(m=math.ceil(needed), engine="chain")))
    assert finding.verdict is Verdict.HOLDS
    one, other = (runs.theorem1_run(simulated(trials=2, engine=engine)) for engine in ("explicit", "chain"))
    for name in ("smallest", "largest", "sizes", "unequal"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12)


FALSE = {
    "an oversized step": ({"step": 3.0}, "eta <="),
    "m <= k, so that nothing moves": ({"m": 2}, "<= m"),
    "noise": ({"problem": replace(PROBLEM, noise_std=2.0), "n_rounds": 50}, "noise std"),
}


@pytest.mark.parametrize("name", FALSE)
def test_runs_that_break_a_hypothesis_break_the_bound(name):
    changes, text = FALSE[name]
    run = runs.theorem1_run(simulated(**changes))
    judged = judged_theorem1(run)
    if name.startswith("m <= k"):
        np.testing.assert_allclose(run.distance, 0.5, rtol=1e-12)
    assert judged.verdict is Verdict.HYPOTHESES_FAIL
    assert [text in hypothesis.text for hypothesis in judged.failed_hypotheses] == [True]
    assert judged_theorem1(run, assumed=False).verdict is Verdict.NOT_SUPPORTED  # nobody says so


def test_fixed_samples_gradient_heads_and_few_participants_are_hypotheses():
    fixed = runs.theorem1_run(simulated(m=lf.FixedSamples(60), n_rounds=3, trials=1))
    assert fixed.batch_rounds == 3
    gradient = runs.theorem1_run(simulated(heads=lf.GradientHeads(steps=10), n_rounds=3, trials=1))
    assert gradient.head_steps == 10
    alone = runs.theorem1_run(simulated(participation=1, n_rounds=3, trials=1))
    assert alone.smallest.tolist() == [0.0]
    assert alone.condition.tolist() == alone.sizes.tolist() == [np.inf]
    failed = [hypothesis.text for hypothesis in judged_theorem1(alone).failed_hypotheses]
    assert [text[:6] for text in failed] == ["k <= p", "0 < si", "eta <=", "1 kapp"]
