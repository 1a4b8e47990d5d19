"""How a theorem is judged: outcomes and their precedence, intervals, constants, exponents, and the printed table."""

import itertools

import numpy as np
import pytest
from scipy import stats

from linfed.claims import Claim, Verdict, claims_table
from linfed.theory.verdicts import (
    Hypothesis,
    Judgement,
    Outcome,
    judge_exponent,
    judge_failures,
    smallest_constant,
)

HOLDING, FAILING = Hypothesis(text="a <= b", left=1.0, right=2.0), Hypothesis(text="c <= d", left=3.0, right=2.0)
SAID = {"text": "t", "where": "w"}


def judgement(**changes):
    fields = {"statistic": "s", "said": "at most 1", "estimate": 0.5, "low": 0.4, "high": 0.6, "contradicted": False}
    return Judgement(**SAID | fields | changes)


@pytest.mark.parametrize(("fails", "vacuous", "contradicted"), list(itertools.product([False, True], repeat=3)))
def test_what_comes_first(fails, vacuous, contradicted):
    hypotheses = (HOLDING, FAILING) if fails else (HOLDING,)
    judged = judgement(hypotheses=hypotheses, vacuous=vacuous, contradicted=contradicted)
    assert judged.failed_hypotheses == ((FAILING,) if fails else ())
    if fails:
        assert judged.verdict is Outcome.HYPOTHESES_FAIL
    elif vacuous:
        assert judged.verdict is Outcome.VACUOUS
    elif contradicted:
        assert judged.verdict is Outcome.VIOLATED
    else:
        assert judged.verdict is Outcome.HOLDS


@pytest.mark.parametrize(
    ("left", "right", "holds"),
    [
        (1.0, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1.0 + 1e-10, 1.0, False),
        (-1.0 + 1e-14, -1.0, True),
        (-1.0 + 1e-10, -1.0, False),
        (-1.0, -1.0, True),
        (0.0, 0.0, True),
        (1e-300, 0.0, False),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (1.0, np.inf, True),
        (np.inf, 1.0, False),
    ],
)
def test_a_hypothesis_holds_up_to_rounding(left, right, holds):
    hypothesis = Hypothesis(text="x <= y", left=left, right=right)
    assert hypothesis.holds is holds
    assert str(hypothesis) == f"x <= y: {left:.3g} {'<=' if holds else '>'} {right:.3g}"


@pytest.mark.parametrize("trials", [1, 10, 57])
def test_failures_have_their_exact_interval(trials):
    for count in {0, 1, trials // 2, trials}:
        failed = np.arange(trials) < count
        judged = judge_failures(failed, **SAID, allowed=0.2)
        low = 0.0 if count == 0 else stats.beta.ppf(0.025, count, trials - count + 1)
        high = 1.0 if count == trials else stats.beta.ppf(0.975, count + 1, trials - count)
        assert judged.estimate == count / trials
        assert (judged.low, judged.high) == (pytest.approx(low, abs=1e-12), pytest.approx(high, abs=1e-12))
        assert judged.detail == f"{count} of {trials}"
        assert judged.said == "at most 0.2"
        assert judged.verdict is (Outcome.VIOLATED if low > 0.2 else Outcome.HOLDS)


def test_a_share_above_the_allowed_one_is_no_contradiction_by_itself():
    few, many = (judge_failures(np.arange(trials) < trials * 3 // 10, **SAID, allowed=0.2) for trials in (10, 400))
    assert few.estimate == many.estimate == 0.3
    assert (few.verdict, many.verdict) == (Outcome.HOLDS, Outcome.VIOLATED)
    # What is said to fail never fails once too often.
    assert judge_failures([True, *[False] * 50], **SAID, allowed=0.0).verdict is Outcome.VIOLATED
    assert judge_failures([True] * 50, **SAID, allowed=1.0).verdict is Outcome.HOLDS


def test_failures_pass_on_what_else_is_said():
    judged = judge_failures([True] * 9, **SAID, allowed=0.1, hypotheses=[HOLDING, FAILING], note="n")
    assert judged.hypotheses == (HOLDING, FAILING)
    assert judged.verdict is Outcome.HYPOTHESES_FAIL
    assert judged.note == "n"
    assert judge_failures([True] * 9, **SAID, allowed=0.1, vacuous=True).verdict is Outcome.VACUOUS
    for allowed in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="allowed"):
            judge_failures([True], **SAID, allowed=allowed)


def test_the_smallest_constant_passes_and_nothing_much_smaller_does():
    ratios = np.random.default_rng(0).permutation(np.arange(1.0, 102.0))
    for allowed in (0.0, 0.1, 0.5):
        constant, low, high = smallest_constant(ratios, allowed=allowed)
        assert (ratios > constant).mean() <= allowed
        assert (ratios > constant - 2).mean() > allowed
        assert low <= constant <= high
    assert smallest_constant(ratios, allowed=0.1) == smallest_constant(ratios, allowed=0.1)
    constant, low, high = smallest_constant([2.0] * 5)
    assert (constant, low, high) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("trials", [10, 20, 40])
def test_no_smaller_constant_passes(trials):
    ratios = np.arange(1.0, trials + 1)
    constant = smallest_constant(ratios, allowed=0.1)[0]
    assert (ratios > constant).mean() <= 0.1
    assert (ratios > constant - 1).mean() > 0.1


def test_a_diverged_trial_has_an_infinite_ratio():
    constant, low, high = smallest_constant([*[1.0] * 18, *[np.inf] * 4], allowed=0.1)
    assert (constant, high) == (np.inf, np.inf)
    assert not np.isnan(low)


EXPONENTS = [
    ("at most", (-0.6, -0.7, -0.55), Outcome.HOLDS),
    ("at most", (-0.52, -0.6, -0.45), Outcome.HOLDS),
    ("at most", (-0.4, -0.45, -0.35), Outcome.VIOLATED),
    ("at least", (-0.6, -0.7, -0.55), Outcome.VIOLATED),
    ("at least", (-0.52, -0.6, -0.45), Outcome.HOLDS),
    ("at least", (-0.4, -0.45, -0.35), Outcome.HOLDS),
    ("equal", (-0.6, -0.7, -0.55), Outcome.VIOLATED),
    ("equal", (-0.52, -0.6, -0.45), Outcome.HOLDS),
    ("equal", (-0.4, -0.45, -0.35), Outcome.VIOLATED),
]


@pytest.mark.parametrize(("kind", "fitted", "wanted"), EXPONENTS)
def test_an_exponent_is_judged_by_its_interval(kind, fitted, wanted):
    judged = judge_exponent(fitted, -0.5, kind=kind, **SAID, note="n", detail="d")
    assert judged.verdict is wanted
    assert (judged.estimate, judged.low, judged.high) == fitted
    assert judged.said == f"{kind} -0.5"
    assert (judged.note, judged.detail, judged.statistic) == ("n", "d", "fitted exponent")
    failing = judge_exponent(fitted, -0.5, kind=kind, **SAID, hypotheses=[FAILING])
    assert failing.verdict is Outcome.HYPOTHESES_FAIL


@pytest.mark.parametrize("kind", ["at most", "at least"])
def test_an_exponent_that_could_not_be_fitted_does_not_hold(kind):
    assert judge_exponent((np.nan,) * 3, -0.5, kind=kind, **SAID).verdict is not Outcome.HOLDS


def test_an_unknown_kind_is_named():
    with pytest.raises(ValueError, match="kind"):
        judge_exponent((1.0, 0.9, 1.1), 1.0, kind="below", **SAID)


def test_claims_and_judgements_share_a_table():
    figure = {"text": "A figure's sentence", "where": "n = 1", "statistic": "share", "reference": 0.5}
    rows = [
        Claim(**figure, estimate=0.8, low=0.6, high=0.9, detail="8 of 10"),
        judgement(text="A theorem's sentence", where="here", note="so and so"),
        judgement(text="A theorem's sentence", where="there, with more", contradicted=True),
        judgement(text="A theorem's sentence", where="vacuous", vacuous=True, note="so and so"),
        judgement(text="A theorem's sentence", where="failing", hypotheses=(FAILING,), estimate=np.nan),
    ]
    lines = claims_table(rows).splitlines()
    assert lines.count("A figure's sentence") == lines.count("A theorem's sentence") == 1
    assert "  share; the claim says above 0.5" in lines
    assert "  s; the claim says at most 1" in lines
    (figures,) = [line for line in lines if "n = 1" in line]
    assert figures.split()[0] == Verdict.SUPPORTED.value
    assert "[0.6, 0.9]" in figures
    assert figures.endswith("8 of 10")
    for where, outcome in {
        "here": "HOLDS",
        "there, with more": "VIOLATED",
        "vacuous": "VACUOUS",
        "failing": "HYPOTHESES FAIL",
    }.items():
        (line,) = [line for line in lines if f" {where} " in line and line.startswith("    ")]
        assert line.strip().startswith(outcome)
    assert sum("(1) so and so" in line for line in lines) == 1
    # The columns of both kinds are aligned.
    assert len({line.index("[") for line in lines if "[" in line}) == 1
