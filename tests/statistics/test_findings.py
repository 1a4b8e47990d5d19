"""Findings: one rule turns an interval and a claimed range into a verdict, for every judge."""

import copy
import dataclasses
import itertools
import pickle

import numpy as np
import pytest
from scipy import stats

from linfed.statistics.findings import (
    OWN_CONJECTURE,
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    Hypothesis,
    Origin,
    Source,
    Verdict,
    by_sentence,
    cite,
    count_origins,
    findings_table,
    join_notes,
    judge,
    judge_exponent,
    judge_failures,
    judge_identity,
    judge_share,
    judge_smaller,
    reading,
)
from linfed.statistics.gains import judge_lower_end
from linfed.statistics.intervals import probability_smaller
from tests.helpers import assert_one_line

HOLDING, FAILING = Hypothesis(text="a <= b", left=1.0, right=2.0), Hypothesis(text="c <= d", left=3.0, right=2.0)
SAID = {"claim": "t", "setting": "w", "source": OWN_PREDICTION}


def finding(low, high, **changes):
    fields = {"statistic": "s", "estimate": (low + high) / 2, "low": low, "high": high, "claimed_low": 0.5}
    return Finding(**SAID | fields | changes)


RANGES = {
    "at least": {"claimed_low": 0.5},
    "at most": {"claimed_low": -np.inf, "claimed_high": 0.5},
    "within": {"claimed_low": 0.4, "claimed_high": 0.6},
}


INTERVALS = [
    ("at least", (0.6, 0.9), True),
    ("at least", (0.5, 0.9), True),
    ("at least", (0.4, 0.6), None),
    ("at least", (0.1, 0.4), False),
    ("at least", (0.1, 0.5), None),
    ("at most", (0.5, 0.9), None),
    ("within", (0.4, 0.6), True),
    ("within", (0.6, 0.7), None),
    ("within", (0.1, 0.4), None),
    ("at most", (0.6, 0.9), False),
    ("at most", (0.4, 0.6), None),
    ("at most", (0.1, 0.5), True),
    ("within", (0.45, 0.55), True),
    ("within", (0.3, 0.55), None),
    ("within", (0.45, 0.7), None),
    ("within", (0.3, 0.7), None),
    ("within", (0.61, 0.7), False),
    ("within", (0.1, 0.39), False),
]


@pytest.mark.parametrize(("kind", "interval", "inside"), INTERVALS)
def test_the_whole_interval_decides(kind, interval, inside):
    """Theorems and this project's own predictions bear the same burden: no interval that reaches out is a yes."""
    for theorem, words in (
        (True, (Verdict.HOLDS, Verdict.VIOLATED)),
        (False, (Verdict.SUPPORTED, Verdict.NOT_SUPPORTED)),
    ):
        wanted = Verdict.INCONCLUSIVE if inside is None else words[not inside]
        assert finding(*interval, **RANGES[kind], theorem=theorem).verdict is wanted


STRICT = [
    ((1.0, 1.0), {"claimed_low": 1.0, "strict": False}, True),
    ((1.0, 1.0), {"claimed_low": 1.0}, False),
    ((0.8, 1.0), {"claimed_low": 1.0}, False),
    ((1.0, 1.2), {"claimed_low": 1.0}, None),
    ((1.0, 1.0), {"claimed_high": 1.0}, False),
    ((0.8, 1.0), {"claimed_high": 1.0}, None),
    ((1.0, 1.2), {"claimed_high": 1.0}, False),
    ((0.5, 0.9), {"claimed_low": 0.5, "claimed_high": 1.0}, None),
    ((0.6, 1.0), {"claimed_low": 0.5, "claimed_high": 1.0}, None),
    ((0.6, 0.9), {"claimed_low": 0.5, "claimed_high": 1.0}, True),
]


@pytest.mark.parametrize(("interval", "claimed", "inside"), STRICT)
def test_strict_ends_do_not_belong_to_the_range(interval, claimed, inside):
    fields = {"claimed_low": -np.inf, "strict": True} | claimed
    wanted = {True: Verdict.SUPPORTED, False: Verdict.NOT_SUPPORTED, None: Verdict.INCONCLUSIVE}[inside]
    assert finding(*interval, **fields).verdict is wanted


@pytest.mark.parametrize("strict", [False, True])
def test_nothing_is_said_of_an_infinite_end(strict):
    assert finding(0.6, np.inf, claimed_low=0.5, strict=strict).verdict is Verdict.SUPPORTED
    assert finding(np.inf, np.inf, claimed_low=0.5, strict=strict).verdict is Verdict.SUPPORTED
    assert finding(0.4, np.inf, claimed_low=0.5, strict=strict).verdict is Verdict.INCONCLUSIVE
    assert finding(-np.inf, 0.4, claimed_low=-np.inf, claimed_high=0.5, strict=strict).verdict is Verdict.SUPPORTED
    assert finding(-np.inf, np.inf, claimed_low=0.5, strict=strict, estimate=np.nan).verdict is Verdict.INCONCLUSIVE
    assert (
        finding(np.inf, np.inf, claimed_low=-np.inf, claimed_high=0.5, strict=strict).verdict is Verdict.NOT_SUPPORTED
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"claimed_low": 0.5}, "at least 0.5"),
        ({"claimed_low": 0.5, "strict": True}, "above 0.5"),
        ({"claimed_low": -np.inf, "claimed_high": 2.0}, "at most 2"),
        ({"claimed_low": -np.inf, "claimed_high": 2.0, "strict": True}, "below 2"),
        ({"claimed_low": 0.8, "claimed_high": 1.1}, "0.8 to 1.1"),
        ({"claimed_low": 0.8, "claimed_high": 1.1, "strict": True}, "between 0.8 and 1.1"),
    ],
)
def test_what_is_said_has_a_direction(changes, said):
    assert finding(0.0, 1.0, **changes).claimed_range == said


def test_nothing_measured_is_vacuous_with_the_reason():
    for low, high in ((np.nan, np.nan), (np.nan, 1.0), (0.0, np.nan)):
        nothing = finding(low, high)
        assert nothing.verdict is Verdict.VACUOUS
        assert nothing.remarks == "vacuous: nothing was measured"
    between = finding(0.6, 0.7, estimate=np.nan)  # known between bounds only
    assert between.verdict is Verdict.SUPPORTED
    assert finding(0.6, 0.7, vacuous="so", note="mind").remarks == "mind; vacuous: so"


@pytest.mark.parametrize(("fails", "vacuous", "inside"), list(itertools.product([False, True], repeat=3)))
def test_what_comes_first(fails, vacuous, inside):
    interval = (0.6, 0.7) if inside else (0.1, 0.2)
    hypotheses = (HOLDING, FAILING) if fails else (HOLDING,)
    judged = finding(*interval, hypotheses=hypotheses, vacuous="no" if vacuous else "", theorem=True)
    assert judged.failed_hypotheses == ((FAILING,) if fails else ())
    if fails:
        assert judged.verdict is Verdict.HYPOTHESES_FAIL
        assert "fails: c <= d: 3 > 2" in judged.remarks
    elif vacuous:
        assert judged.verdict is Verdict.VACUOUS
    else:
        assert judged.verdict is (Verdict.HOLDS if inside else Verdict.VIOLATED)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"source": " "}, ["source = ' '"]),
        ({"claimed_low": -np.inf}, ["claimed_low", "claimed_high"]),
        ({"claimed_low": 2.0, "claimed_high": 1.0}, ["claimed_low = 2", "claimed_high = 1"]),
    ],
)
def test_a_finding_has_a_source_and_a_claimed_range(changes, fragments):
    assert_one_line(lambda: finding(0.0, 1.0, **changes), fragments)


# --- judges --------------------------------------------------------------------------------------------------


def test_a_share_without_ties_stands_beside_that_of_all_trials():
    first = np.array([1.0] * 12 + [2.0] * 38)
    second = np.array([2.0] * 12 + [2.0] * 38)
    judged = judge_smaller(first, second, **SAID, statistic="s")
    assert judged.verdict is Verdict.SUPPORTED
    assert judged.detail == "12 of 12 that differ; 12 of all 50 smaller, 0 larger, 38 tied"
    apart = judge_smaller(first, second, paired=False, **SAID, statistic="s")
    assert (apart.estimate, apart.low, apart.high) == probability_smaller(first, second)
    assert (apart.claimed_low, apart.strict, apart.detail) == (0.5, True, "")
    tied = judge_smaller(first, first, **SAID, statistic="s")
    assert tied.verdict is Verdict.VACUOUS
    assert tied.vacuous == "all 50 trials tie"


def test_a_share_of_clusters_is_judged_by_its_clusters():
    """All 600 points of six data sets hit: by themselves they say above 0.9, six data sets do not."""
    hits, clusters = np.ones(600, dtype=bool), np.repeat(np.arange(6), 100)
    said = {**SAID, "statistic": "s"}
    assert judge_share(hits, 0.9, **said).verdict is Verdict.SUPPORTED
    judged = judge_share(hits, 0.9, clusters=clusters, **said)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.detail == "600 of 600 in 6 clusters"
    assert judge_share(hits.reshape(6, 4, 25), 0.9, clusters=range(6), **said) == judged
    for none in (judge_share([], 0.9, **said), judge_share(np.ones((0, 3)), 0.9, clusters=[], **said)):
        assert (none.verdict, none.detail) == (Verdict.VACUOUS, "none")


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
        assert judged.claimed_range == "at most 0.2"
        expected = Verdict.VIOLATED if low > 0.2 else Verdict.HOLDS if high <= 0.2 else Verdict.INCONCLUSIVE
        assert judged.verdict is expected


def test_more_trials_are_what_decides_a_share_of_failures():
    few, some, many = (
        judge_failures(np.arange(trials) < trials * 3 // 10, **SAID, allowed=0.2) for trials in (10, 40, 400)
    )
    assert few.estimate == some.estimate == many.estimate == 0.3
    assert [one.verdict for one in (few, some, many)] == [Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE, Verdict.VIOLATED]
    none = {trials: judge_failures([False] * trials, **SAID, allowed=0.05).verdict for trials in (50, 80)}
    assert none == {50: Verdict.INCONCLUSIVE, 80: Verdict.HOLDS}
    assert judge_failures([True] * 50, **SAID, allowed=1.0).verdict is Verdict.HOLDS


def test_trials_without_the_premise_do_not_count():
    failed = premise = [False] * 90 + [True] * 10
    judged = judge_failures(failed, premise=premise, **SAID, allowed=0.2)
    assert (judged.estimate, judged.detail) == (1.0, "10 of 10, of 100 trials")
    assert judged.verdict is Verdict.VIOLATED
    assert judge_failures(failed, **SAID, allowed=0.2).verdict is Verdict.HOLDS
    never = judge_failures([False] * 9, premise=[False] * 9, **SAID, allowed=0.2)
    assert never.verdict is Verdict.VACUOUS
    assert "9 trials" in never.vacuous


def test_failures_pass_on_what_else_is_said():
    judged = judge_failures([True] * 9, **SAID, allowed=0.1, hypotheses=(HOLDING, FAILING), note="n")
    assert (judged.hypotheses, judged.verdict, judged.note) == ((HOLDING, FAILING), Verdict.HYPOTHESES_FAIL, "n")
    assert judge_failures([True] * 9, **SAID, allowed=0.1, vacuous="so").verdict is Verdict.VACUOUS


def test_one_trial_refutes_an_identity():
    """One trial that misses it is enough, and one that meets it does not save the other 49."""
    said = {**SAID, "statistic": "s", "tolerance": 1e-10}
    gaps = np.full((50, 3), 1e-15)
    assert judge_identity(gaps, **said).verdict is Verdict.HOLDS
    gaps[17, 2] = 2e-10
    judged = judge_identity(gaps, **said)
    assert judged.verdict is Verdict.VIOLATED
    assert (judged.estimate, judged.low, judged.high) == (2e-10, 2e-10, 2e-10)
    gaps[:49] = 1.0
    assert judge_identity(gaps, **said).verdict is Verdict.VIOLATED
    gaps[:] = np.nan
    assert judge_identity(gaps, **said).verdict is Verdict.VACUOUS
    gaps[3, 1] = 1e-12
    assert judge_identity(gaps, **said).verdict is Verdict.HOLDS
    assert judge_identity(gaps, **said).detail == "the worst of 1 trials, 1 values"
    gaps[4, 1] = np.inf
    assert judge_identity(gaps, **said).verdict is Verdict.VIOLATED
    assert judge_identity([1e-15, 2e-15], **said).detail == "the worst of 2 trials, 2 values"


EXPONENTS = [
    ("at most", (-0.6, -0.7, -0.55), Verdict.HOLDS),
    ("at least", (-0.52, -0.6, -0.45), Verdict.INCONCLUSIVE),
    ("at least", (-0.4, -0.45, -0.35), Verdict.HOLDS),
    ("equal", (-0.6, -0.7, -0.55), Verdict.VIOLATED),
    ("equal", (-0.5, -0.51, -0.49), Verdict.HOLDS),
    ("equal", (-0.4, -0.45, -0.35), Verdict.VIOLATED),
]
"""Each end of each claimed range."""


@pytest.mark.parametrize(("kind", "fitted", "wanted"), EXPONENTS)
def test_an_exponent_is_judged_by_its_interval(kind, fitted, wanted):
    judged = judge_exponent(fitted, -0.5, kind=kind, tolerance=0.03, **SAID, note="n", detail="d")
    assert judged.verdict is wanted
    assert (judged.estimate, judged.low, judged.high) == fitted
    assert judged.statistic == f"fitted exponent ({kind} -0.5, up to 0.03)"
    assert (judged.note, judged.detail) == ("n", "d")
    failing = judge_exponent(fitted, -0.5, kind=kind, tolerance=0.03, **SAID, hypotheses=(FAILING,))
    assert failing.verdict is Verdict.HYPOTHESES_FAIL
    assert judge_exponent((np.nan,) * 3, -0.5, kind=kind, tolerance=0.0, **SAID).verdict is Verdict.VACUOUS


CASE = {"claim": "c", "setting": "s"}
BAD = {
    "no source": (lambda: judge((0.5, 0.4, 0.6), **CASE), ["statistic", "source"]),
    "no source of a comparison": (lambda: judge_smaller(np.zeros(2), np.ones(2), **CASE), ["statistic", "source"]),
    "no setting": (lambda: judge_share([True], 0.5, statistic="s"), ["claim", "setting", "source"]),
    "no setting of failures": (lambda: judge_failures([True], allowed=0.1, claim="c"), ["setting", "source"]),
    "no setting of ends": (lambda: judge_lower_end(np.ones((2, 3)), tie=0.1, claim="c"), ["setting"]),
    "no trials": (lambda: judge_failures([], **SAID, allowed=0.2), ["failed"]),
    "a negative share": (lambda: judge_failures([True], **SAID, allowed=-0.1), ["allowed = -0.1"]),
    "a share above 1": (lambda: judge_failures([True], **SAID, allowed=1.1), ["allowed = 1.1"]),
    "no share": (lambda: judge_failures([True], **SAID, allowed=np.nan), ["allowed = nan"]),
    "kind": (lambda: judge_exponent((1.0, 0.9, 1.1), 1.0, kind="below", tolerance=0.0, **SAID), ["kind = 'below'"]),
    "tolerance": (
        lambda: judge_exponent((1.0, 0.9, 1.1), 1.0, kind="equal", tolerance=-1.0, **SAID),
        ["tolerance = -1"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_arguments_of_a_judge_are_named(name):
    assert_one_line(*BAD[name], (TypeError, ValueError))


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


# --- sources -------------------------------------------------------------------------------------------------

SOURCES = {
    Origin.QUOTED: cite("FedRep paper, Theorem 1", "decays"),
    Origin.READING: reading("FLUTE paper, Theorem 5.5"),
    Origin.PREDICTION: OWN_PREDICTION,
    Origin.THRESHOLD: OWN_THRESHOLD,
    Origin.CONJECTURE: OWN_CONJECTURE,
}


@pytest.mark.parametrize("origin", Origin)
def test_a_source_has_an_origin_that_survives_copies(origin):
    source = SOURCES[origin]
    assert source.origin is origin
    assert origin.is_paper == (origin in (Origin.QUOTED, Origin.READING))
    for copied in (pickle.loads(pickle.dumps(source)), copy.copy(source), copy.deepcopy(source)):
        assert (copied, copied.origin, type(copied)) == (source, origin, Source)
    added = source.adding("the factor is our threshold").adding("2023", ", ")
    assert added == f"{source}; the factor is our threshold, 2023"
    assert added.origin is origin
    judged = finding(0.6, 0.7, source=source)
    assert judged.origin is origin
    assert dataclasses.replace(judged, source="another").origin is origin


def test_a_source_of_plain_text_has_no_origin():
    assert finding(0.6, 0.7, source="a colleague").origin is None
    with pytest.raises(ValueError, match="nonsense"):
        Source("text", "nonsense")


def test_a_source_quotes_with_its_place():
    assert cite("FedRep paper, Figure 3", "faster") == 'FedRep paper, Figure 3: "faster"'
    assert cite("p", "w", threshold=True) == 'p: "w"; the number is our threshold'
    assert join_notes("a", "", "b", "a") == "a; b"


def test_origins_are_counted():
    assert count_origins([]) == ""
    every = [*Origin, Origin.CONJECTURE, Origin.QUOTED, None]
    assert count_origins(every) == (
        "2 quoted, 1 our reading, 1 our prediction, 1 our threshold, 2 our conjectures, 1 of unknown origin"
    )


def test_the_quotation_in_a_source_is_found():
    quoted = cite("FedRep paper, (10)", 'for any "t" and eta').adding("the number is ours")
    asked = reading("FedRep paper, (10), asked of FedAvg").adding('"for any t"', ": ")
    for source, expected in (
        (quoted, ("FedRep paper, (10)", 'for any "t" and eta')),
        (quoted.adding("asked of m - k - 1", ", "), ("FedRep paper, (10)", 'for any "t" and eta')),
        (asked, ("FedRep paper, (10), asked of FedAvg", "for any t")),
        (reading("FedRep paper, (10)"), ("", "")),
        (OWN_CONJECTURE.adding('"for any t"', ": "), ("", "")),
        ('A colleague: "for any t"', ("", "")),
    ):
        assert finding(0.6, 0.7, source=source).quotation == expected


# --- the table -----------------------------------------------------------------------------------------------


def test_every_line_of_the_table():
    rows = [
        finding(0.6, 0.7, setting="n = 1", note="so"),
        finding(0.4, 0.6, setting="n = 20", detail="3 of 4"),
        finding(0.1, 0.2, setting="n = 3", vacuous="no", note="so"),
        finding(0.75, 0.875, setting="n = 4", note="so"),
        finding(0.1, 0.4, claim="u", claimed_low=-np.inf, claimed_high=0.5, strict=True),
        finding(0.4, 0.6, claim="u", setting="n = 5", theorem=True, hypotheses=(FAILING,), estimate=np.nan),
        finding(0.6, 0.7, setting="n = 6", theorem=True),
    ]
    first, second, third, fourth, legend = findings_table(rows).split("\n\n")
    assert first.splitlines() == [
        "t",
        f"  {OWN_PREDICTION}",
        "  s; required: >= 0.5",
        f"    {'SUPPORTED':16} {'n = 1':6} {'0.65':>8}  [0.6, 0.7]  (1)",
        f"    {'INCONCLUSIVE':16} {'n = 20':6} {'0.5':>8}  [0.4, 0.6]  3 of 4",
        f"    {'VACUOUS':16} {'n = 3':6} {'0.15':>8}  [0.1, 0.2]  (2)",
        f"    {'SUPPORTED':16} {'n = 4':6} {'0.812':>8}  [0.75, 0.875]  (1)",
    ]
    assert second.splitlines()[0] == third.splitlines()[0] == "u"
    assert second.splitlines()[2:] == [
        "  s; required: < 0.5",
        f"    {'SUPPORTED':16} {'w':6} {'0.25':>8}  [0.1, 0.4]",
    ]
    assert f"{'HYPOTHESES FAIL':16} {'n = 5':6} {'-':>8}  [0.4, 0.6]  (3)" in third
    assert fourth.splitlines()[-1] == f"    {'HOLDS':16} {'n = 6':6} {'0.65':>8}  [0.6, 0.7]"
    words = [line.partition(":")[0] for line in legend.splitlines()]
    assert words[:5] == ["SUPPORTED", "HOLDS", "INCONCLUSIVE", "VACUOUS", "HYPOTHESES FAIL"]
    assert legend.splitlines()[-3:] == ["(1) so", "(2) so; vacuous: no", "(3) fails: c <= d: 3 > 2"]


def test_findings_of_one_sentence_come_together():
    a, b = finding(0.0, 1.0), finding(0.0, 1.0, claim="u")
    moved = dataclasses.replace(a, setting="v")
    assert by_sentence([a, b, moved]) == [a, moved, b]
