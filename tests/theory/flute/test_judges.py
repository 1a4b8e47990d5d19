"""The judges of FLUTE's theorems and of our predictions for it, on hand-made traces: every verdict."""

import math

import numpy as np
import pytest

import linfed as lf
from experiments.flute import flute_theorem55
from linfed.statistics.findings import Verdict
from linfed.theory import flute as theory
from tests.theory.flute.made import FAILS, hand_made, said

LOCAL_RATE, FLOOR, REUSED = map(said, ("Near the truncation", "With m fixed", "Reused samples"))
GROWTH, GAIN, FRESH_FLOOR = map(said, ("After a round", "Fresh samples reduce", "On fresh samples"))


def test_the_trial_nearest_to_failing_speaks_for_the_step():
    trace = hand_made(spectrum=np.array([[1.0, 0.9, 0.1], [1.0, 0.6, 0.1]]), step_size=0.004, rank=2)
    assert theory.step_hypothesis(trace).right == pytest.approx(1.0**2 / 288)
    assert not theory.step_hypothesis(trace).holds
    assert theory.step_hypothesis(trace, constant="printed").right == pytest.approx(1 / 228)
    assert theory.step_hypothesis(trace, constant="printed").holds
    assert theory.init_hypothesis(0.01, 10).holds
    assert not theory.init_hypothesis(0.0101, 10).holds


def test_the_least_constant_of_a_hand_made_trace():
    trace = hand_made([[9.0, 8.0, 3.0, 5.0], [9.0, 8.0, 3.0, np.nan]])
    bound = [1.0 / (0.001 * 1.6**2) * 0.5 * (1 - 0.0001) ** t for t in (0, 10, 20, 30)]
    np.testing.assert_allclose(theory.bound_ratios(trace), [5 / bound[3], np.inf], rtol=1e-12)
    np.testing.assert_allclose(theory.bound_ratios(trace, until=20), [3 / bound[2], 8 / bound[1]], rtol=1e-12)
    np.testing.assert_array_equal(theory.bound_ratios(trace, until=10), [0.0, theory.bound_ratios(trace, until=10)[1]])


def test_every_verdict_of_the_rate():
    bound = float(lf.theory.flute_bound([1.0, 0.2], 1, 0.001, 4, [30])[0])
    error = np.array([[9.0, 8.0, 3.0, 5.0]] * 2)

    def verdict(constant, allowed=0.1, **changes):
        return theory.judge_rate(hand_made(**{"error": error} | changes), constant=constant, allowed=allowed, **FAILS)

    assert verdict(8.5 / bound, allowed=0.85).verdict is Verdict.HOLDS
    assert verdict(8.5 / bound).verdict is Verdict.INCONCLUSIVE
    assert verdict(100.0).verdict is Verdict.VACUOUS
    assert verdict(8.5 / bound, step_size=0.1).verdict is Verdict.HYPOTHESES_FAIL
    assert verdict(4.9 / bound).verdict is Verdict.VIOLATED
    # Both verdicts are of the rounds after T_R.
    late = np.array([30.0, 30.0])
    assert verdict(4.9 / bound, entry=late).verdict is Verdict.VACUOUS
    assert verdict(4.9 / bound, entry=np.array([30.0, 20.0])).detail == "1 of 1, of 2 trials"
    assert verdict(4.9 / bound, allowed=0.5).verdict is Verdict.INCONCLUSIVE


def test_the_entry_and_the_staying_of_hand_made_traces():
    def inside(*rows):
        return np.array(rows, dtype=bool)

    def entry(rows, promised):
        trace = hand_made(inside=rows, entry=np.array(promised))
        return theory.judge_entry(trace, allowed=0.1, **FAILS).detail

    assert entry(inside([0, 1, 1, 1], [0, 0, 1, 1]), [10.0, 20.0]) == "0 of 2"
    assert entry(inside([0, 0, 1, 1], [0, 0, 0, 1]), [10.0, 20.0]) == "2 of 2"
    assert entry(inside([0, 1, 1, 1], [0, 0, 0, 0]), [3.0, 20.0]) == "1 of 2"
    assert entry(inside([0, 1, 1, 1], [0, 0, 0, 0]), [10.0, 99.0]) == "0 of 1, of 2 trials"  # it ends before T_R

    def staying(*rows):
        return theory.judge_staying(hand_made(inside=inside(*rows)), allowed=0.1, **FAILS).detail

    assert staying([0, 1, 1, 1], [0, 0, 0, 0]) == "0 of 1, of 2 trials"
    assert staying([0, 1, 0, 1], [1, 1, 1, 0]) == "2 of 2"
    outside = hand_made(inside=inside([0, 0, 0, 0], [0, 0, 0, 0]))
    never = theory.judge_staying(outside, allowed=0.1, **FAILS)
    assert never.verdict is Verdict.VACUOUS
    assert "the premise occurred in none of 2 trials" in never.remarks


def test_the_proofs_constant_is_tight_or_not():
    bound = float(lf.theory.flute_bound([1.0, 0.2], 1, 0.001, 4, [30])[0])

    def judged(error, trials=100, **changes):
        many = {"spectrum": np.array([[1.0, 0.2, 0.0]] * trials), "entry": np.tile([10.0, 0.0], trials // 2)}
        trace = hand_made([[9.0, 8.0, 3.0, error]] * trials, **many, **changes)
        least = theory.least_constant(trace, allowed=flute_theorem55.ALLOWED)
        return lf.statistics.judge(least, hypotheses=(theory.step_hypothesis(trace),), **said("The constant 4 x 400"))

    assert judged(170.0 * bound).verdict is Verdict.SUPPORTED
    few = judged(170.0 * bound, trials=70)
    assert (few.verdict, few.high) == (Verdict.INCONCLUSIVE, np.inf)  # any constant may fail in 5 % of the trials
    assert judged(170.0 * bound).estimate == pytest.approx(170.0)
    assert judged(150.0 * bound).verdict is Verdict.NOT_SUPPORTED
    assert judged(1700.0 * bound).verdict is Verdict.NOT_SUPPORTED
    assert (few.claimed_low, few.claimed_high) == (160.0, 1600.0)
    assert judged(np.nan).verdict is Verdict.NOT_SUPPORTED
    assert judged(1.0, step_size=0.1).verdict is Verdict.HYPOTHESES_FAIL
    assert "in 95 % of trials" in judged(1.0).statistic


def test_a_bound_that_holds_no_longer_beyond_the_covered_round():
    for last, verdict, detail in ((2.0, Verdict.INCONCLUSIVE, "0 of 2"), (9.5, Verdict.NOT_SUPPORTED, "2 of 2")):
        trace = hand_made([[9.0, 8.0, 3.0, last]] * 2, entry=np.zeros(2))
        found = theory.judge_beyond(trace, until=20, allowed=0.1, note="m covers 20", theorem=False, **FAILS)
        assert (found.verdict, found.detail) == (verdict, detail)
        least = theory.least_constant(trace, allowed=0.1, until=20)[0]
        assert found.note == f"m covers 20; its smallest constant up to there is {least:.2g}"


def test_rounding_errors_are_within_every_bound():
    error = np.array([[9.0, 1.0, 0.9e-12, 0.9e-12], [9.0, 1.0, 1.1e-12, 1.1e-12]])
    found = theory.bound_ratios(hand_made(error, entry=np.array([10.0, 10.0])))
    assert found[0] == 0.0
    assert found[1] > 0.0


# --- the local rate ----------------------------------------------------------------------------------------------


def falling(rate, last=24_000, **changes):
    """Return a trace of 20 trials whose error falls by a factor a round, to a floor of 1e-9."""
    rounds = np.arange(0, last + 1, 600)
    error = np.maximum(np.tile(rate ** rounds.astype(float), (20, 1)), 1e-9)
    shape = {"spectrum": np.tile([1.0, 0.2, 0.0], (20, 1)), "rounds": rounds, "error": error, "entry": np.zeros(20)}
    return hand_made(inside=np.ones(error.shape, dtype=bool), **shape | changes)


def test_the_local_rate_is_judged_to_one_percent_where_runs_are_near():
    local = float(lf.theory.flute_local_rate([1.0, 0.2, 0.0], 1, 0.001))
    found = theory.judge_local_rate(falling(local), **LOCAL_RATE)
    assert (found.verdict, found.detail[:9]) == (Verdict.HOLDS, "8.0 times")
    assert found.estimate == pytest.approx(1.0)
    for power, verdict in (
        (0.992, Verdict.HOLDS),
        (1.008, Verdict.HOLDS),
        (0.988, Verdict.VIOLATED),
        (1.012, Verdict.VIOLATED),
    ):
        assert theory.judge_local_rate(falling(local**power), **LOCAL_RATE).verdict is verdict
    far = falling(local, last=6000)
    assert not far.near.any()
    assert theory.judge_local_rate(far, **LOCAL_RATE).verdict is Verdict.VACUOUS


def test_three_rounds_between_a_thousandth_and_a_hundred_millionth_are_near():
    for late, near in (
        ([9e-4, 1e-5, 1.1e-8], [False, True, True, True]),
        ([1.1e-3, 1e-5, 1.1e-8], [False] * 4),
        ([9e-4, 1e-5, 9e-9], [False] * 4),
    ):
        trace = hand_made(2.0 * np.array([[1.0, *late]] * 2))
        assert trace.near.tolist() == [near] * 2
    few = hand_made(np.array([[1.0, 9e-4, 1e-5, 1.1e-8], [1.0, 9e-4, 1e-5, 0.0]]))
    assert not few.near.any()


# --- floors ------------------------------------------------------------------------------------------------------


FLOORS = np.linspace(1.0, 2.0, 20)
"""Predicted floors of 20 trials."""


def judged_floor(*rounds, share=1.0, floor=FLOORS, **options):
    """Return the finding on errors that are multiples of the floors in recorded rounds."""
    return theory.judge_floor(np.outer(share * floor, rounds), floor, **FLOOR | options)


def test_floors_are_judged_to_five_percent():
    for share, verdict in (
        (0.951, Verdict.HOLDS),
        (1.049, Verdict.HOLDS),
        (0.949, Verdict.VIOLATED),
        (1.051, Verdict.VIOLATED),
        (np.nan, Verdict.VIOLATED),
    ):
        assert judged_floor(9.0, 3.0, 1.0, 1.0, share=share).verdict is verdict
    for share, verdict in ((1.0, Verdict.HOLDS), (0.7, Verdict.VIOLATED), (1.3, Verdict.VIOLATED)):
        found = judged_floor(9.0, 5.0, 3.0, 2.0, 1.0, 1.0, 0.9, 1.0, share=share, fresh=True, **FRESH_FLOOR)
        assert found.verdict is verdict


@pytest.mark.parametrize(("fresh", "still", "falls"), [(False, 0.019, 0.021), (True, 0.095, 0.105)])
def test_a_floor_that_runs_have_not_reached_is_not_judged(fresh, still, falls):
    """Over the last quarter of the rounds: by 2 % on fixed samples, by 10 % on fresh ones."""
    for fall, vacuous in ((still, False), (falls, True), (0.2, True)):
        found = judged_floor(*[9.0] * 6, 1.0, 1.0 - fall, fresh=fresh)
        assert found.vacuous.startswith("the error fell by") is vacuous
        assert (found.verdict is Verdict.VACUOUS) is vacuous
    assert found.vacuous == "the error fell by 20% over the last quarter of the rounds"


def test_floors_are_compared_in_root_mean_square():
    """Over trials, and on fresh samples over the last quarter of the rounds: no mean of unsquared errors."""
    floor, spread = np.linspace(1.0, 2.0, 400), np.random.default_rng(0).exponential(size=400)
    found = judged_floor(9.0, 1.0, 1.0, 1.0, share=np.sqrt(spread), floor=floor)
    assert found.estimate == pytest.approx(math.sqrt(spread.mean()), rel=1e-12)
    reach = 1.966 * spread.std(ddof=1) / 20  # Student's quantile with 399 degrees of freedom
    assert [found.low**2, found.high**2] == pytest.approx([spread.mean() - reach, spread.mean() + reach], rel=1e-4)
    assert judged_floor(*[9.0] * 12, 1.0, 3.0, 1.0, 3.0, fresh=True).estimate == pytest.approx(math.sqrt(5))
    found = judged_floor(9.0, 1.0, 1.0, 1.0, share=np.where(np.arange(20) == 7, np.nan, 1.0))
    assert (found.estimate, found.low, found.verdict) == (math.inf, math.inf, Verdict.VIOLATED)


def test_fresh_and_reused_samples_are_compared_after_as_many_rounds():
    reused = hand_made([[9.0, 5.0, 3.0, 1.0]] * 6)
    short = {"rounds": np.array([0, 10, 20]), "inside": np.ones((6, 3), dtype=bool)}
    found = theory.judge_fresh(hand_made([[9.0, 5.0, 6.0]] * 6, **short), reused, **REUSED)
    assert (found.verdict, found.estimate) == (Verdict.SUPPORTED, 2.0)
    assert found.detail == f"averaging over 4 / (eta Delta) rounds would give {math.sqrt(0.001 * 1.6 / 4):.2g}"
    assert (
        theory.judge_fresh(hand_made([[9.0, 5.0, 1.5]] * 6, **short), reused, **REUSED).verdict is Verdict.NOT_SUPPORTED
    )


def test_the_gain_is_that_of_the_last_quarter_and_judged_to_seven_percent():
    more = {"rounds": np.arange(0, 80, 10), "inside": np.ones((6, 8), dtype=bool)}
    begun = [9.0, 5.0, 3.0, 2.0, 2.0, 2.0]
    fresh = hand_made(np.array([[*begun, 0.5, 1.5]] * 6), **more)
    rms = math.sqrt((0.5**2 + 1.5**2) / 2)
    for gain, predicted, verdict in (
        (0.94 * 20, 20.0, Verdict.SUPPORTED),
        (1.06 * 20, 20.0, Verdict.SUPPORTED),
        (0.92 * 20, 20.0, Verdict.NOT_SUPPORTED),
        (1.08 * 20, 20.0, Verdict.NOT_SUPPORTED),
        (20.0, 50.0, Verdict.NOT_SUPPORTED),
    ):
        reused = hand_made(np.array([[*begun, 1.0, gain * rms]] * 6), **more)
        found = theory.judge_gain(fresh, reused, np.full(6, predicted), **GAIN)
        assert found.verdict is verdict
        assert found.estimate == pytest.approx(gain / predicted, rel=1e-12)
        assert found.detail == f"predicted gain {predicted:g}"


# --- the lemmas on growth ----------------------------------------------------------------------------------------


def test_every_verdict_on_growth():
    growth = np.array([[np.nan, -0.1, -0.2, np.nan]] * 2)
    setting = {"step_size": 0.01}
    assert theory.judge_growth(hand_made(growth=growth, **setting), **GROWTH).verdict is Verdict.HOLDS
    assert theory.judge_growth(hand_made(growth=growth + 0.11, **setting), **GROWTH).verdict is Verdict.VIOLATED
    assert theory.judge_growth(hand_made(**setting), **GROWTH).verdict is Verdict.VACUOUS
    assert theory.judge_growth(hand_made(growth=growth, step_size=0.03), **GROWTH).verdict is Verdict.HYPOTHESES_FAIL
    wide = np.full((2, 4, 3), 4.1)  # sigma_1^2(Theta) above 2 lambda_1'
    assert theory.judge_growth(hand_made(growth=growth, region=wide), **GROWTH).verdict is Verdict.HYPOTHESES_FAIL


def test_every_verdict_on_the_rest():
    """Singular values 1 and 0.2 at k = 1: the factor is 1 + eta (0.2 + 0.2), or 1 + eta 0.2 for the population."""
    rounds = np.array([0, 10, 20, 30])

    def verdict(rate, *, start=0.01, allowed=0.9, noise=0.0, **changes):
        region = np.zeros((2, 4, 3))
        remainder = noise + np.zeros((2, 4))
        region[..., 1] = start * (1 + 0.01 * rate) ** (2.0 * rounds)
        return theory.judge_rest(
            hand_made(region=region, remainder=remainder, step_size=0.01), allowed=allowed, **changes, **FAILS
        ).verdict

    assert verdict(0.39) is Verdict.HOLDS
    assert verdict(0.41, allowed=0.1) is Verdict.VIOLATED
    assert verdict(0.19, extra=False) is Verdict.HOLDS
    assert verdict(0.21, extra=False, allowed=0.1) is Verdict.VIOLATED
    assert verdict(0.39, start=1.3) is Verdict.VACUOUS
    noise = np.zeros((2, 4))  # above eta Delta/8 sigma_1 at t = 0: only the rounds before are covered
    noise[:, 2:] = 1.01 * 0.01 * 1.6 / 8 * 0.1
    assert verdict(0.41, allowed=0.1, noise=noise) is Verdict.VIOLATED
    noise[:, 1] = noise[:, 2]
    assert verdict(0.41, allowed=0.1, noise=noise) is Verdict.VACUOUS
    assert verdict(0.41, allowed=0.1, noise=noise / 1.02) is Verdict.VIOLATED


def test_the_hypotheses_of_the_lemmas_by_hand():
    """Singular values 1 and 0.2 at k = 1: Delta = 1.6 and lambda_1' = 2."""
    growth, region = np.array([[np.nan, -0.1, -0.2, np.nan]] * 2), np.zeros((2, 4, 3))
    region[1, 2, 0], region[:, 3] = 3.0, 9.0  # the growth in a round depends on the state before it
    step, size = theory.judge_growth(hand_made(growth=growth, region=region, step_size=0.01), **GROWTH).hypotheses
    assert (step.left, step.right) == (0.01, pytest.approx(1.6**2 / 16 / 2**3, rel=1e-14))
    assert (size.left, size.right) == (1.5, 2.0)
    region[:, 0, 0] = 0.5, 3.0
    step, size = theory.judge_rest(hand_made(region=region, step_size=0.01), allowed=0.1, **FAILS).hypotheses
    assert (step.left, step.right) == (0.01, pytest.approx(1 / 12, rel=1e-14))
    assert (size.left, size.right) == (1.5, 2.0)


def test_the_note_on_the_rest_counts_covered_rounds():
    remainder, region = np.zeros((3, 4)), np.zeros((3, 4, 3))
    remainder[:, 0], remainder[0, 2], remainder[1, 3] = np.nan, np.nan, np.nan
    region[..., 1] = 0.01
    trace = hand_made(np.ones((3, 4)), region=region, remainder=remainder, entry=np.zeros(3))
    found = theory.judge_rest(trace, allowed=0.1, **FAILS)
    assert found.note == "the condition of its proof covers 2 of 3 recorded rounds"
