"""Cards of runs: statements with their outcomes and worst settings, and numbers as text."""

import math

import numpy as np
import pytest

from linfed.report.cards import (
    Card,
    Statement,
    by_origin,
    cards_of,
    errors_sentence,
    expected_errors,
    measured,
    number,
    short,
)
from linfed.reproduction.declarations import Declarations
from linfed.reproduction.record import RunRecord, TableRecord
from linfed.statistics.findings import Hypothesis, Origin, cite, judge
from tests.helpers import ROOT, finding

JUDGED = {
    "SUPPORTED": finding(),
    "HOLDS": finding(theorem=True),
    "NOT SUPPORTED": finding(low=0.1, high=0.2),
    "VIOLATED": finding(low=0.1, high=0.2, theorem=True),
    "INCONCLUSIVE": finding(low=0.4),
    "VACUOUS": finding(low=np.nan),
    "HYPOTHESES FAIL": finding(hypotheses=(Hypothesis(text="eta <= 1", left=2.0, right=1.0),)),
}


@pytest.mark.parametrize(
    ("verdicts", "wanted"),
    [
        ({"SUPPORTED": 2, "INCONCLUSIVE": 2, "VACUOUS": 9}, "agrees"),
        ({"HOLDS": 2, "INCONCLUSIVE": 3}, "undecided"),
        ({"HOLDS": 9, "VIOLATED": 1}, "contradicts"),
        ({"SUPPORTED": 9, "NOT SUPPORTED": 1}, "contradicts"),
        ({"HYPOTHESES FAIL": 1}, "undecided"),
    ],
)
def test_one_contradiction_decides_the_outcome(verdicts, wanted):
    one = Statement([JUDGED[verdict] for verdict, count in verdicts.items() for _ in range(count)])
    assert one.verdicts == verdicts
    assert one.outcome == wanted


@pytest.mark.parametrize(
    ("ends", "intervals", "wanted"),
    [
        ((0.0, np.inf), [(-0.5, 0.1), (-11.0, -9.0), (-0.3, -0.2)], 1),
        ((0.0, np.inf), [(-5.0, 9.0), (-0.2, -0.1)], 1),  # the first is undecided
        ((0.0, np.inf), [(3.0, 4.0), (1.0, 9.0), (np.nan, np.nan)], 1),  # the last is vacuous
        ((-np.inf, 1.1), [(1.0, 1.05), (1.0, 1.3)], 1),
        ((0.9, 1.1), [(0.95, 1.05), (0.98, 1.09), (0.93, 1.0)], 1),
        ((-np.inf, 2.0), [(1.0, np.inf), (1.0, 5.0)], 0),
    ],
)
def test_the_worst_setting_fails_by_most_or_is_nearest_to_failing(ends, intervals, wanted):
    ranges = {"claimed_low": ends[0], "claimed_high": ends[1]}
    claims = [finding(setting=str(i), low=low, high=high, **ranges) for i, (low, high) in enumerate(intervals)]
    assert Statement(claims).setting == str(wanted)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999.0, "999"),
        (999.6, "1,000"),
        (999_600.0, "1e+06"),
        (1000.0, "1,000"),
        (-1000.0, "-1,000"),
        (123456.0, "123,000"),
        (1e6, "1e+06"),
        (math.nan, "-"),
    ],
)
def test_numbers_have_three_digits_and_thousands_are_written_out(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((math.nan, 0.0, math.inf), "no estimate, interval [0, inf]"),
        ((2.0, -math.inf, 3.0), "2 [-inf, 3]"),
        ((math.nan,) * 3, "no estimate"),
    ],
)
def test_infinite_ends_are_told(interval, text):
    found = judge(interval, claim="c", setting="s", statistic="t", source="o", claimed_low=0.5, claimed_high=9.0)
    assert measured(found) == text


def test_claims_that_differ_only_in_their_setting_are_one_statement():
    claims = (finding("a"), finding("b"), finding("a", "n = 2"), finding("a", source="another"))
    card = Card(record=RunRecord(experiment="one", quick=False, claims=claims))
    assert [len(one.claims) for one in card.statements] == [2, 1, 1]


def test_claims_are_grouped_by_whose_they_are():
    every = [finding(str(origin), origin=origin) for origin in (None, *reversed(Origin))]
    found = {title: [claim.claim for claim in group] for title, group in by_origin(every).items()}
    assert found == {
        "What the papers say": ["our reading", "quoted"],
        "What linfed predicts": ["our conjecture", "our prediction"],
        "Thresholds and controls": ["our threshold"],
        "Other claims": ["None"],
    }
    assert list(by_origin(every[:1])) == ["Other claims"]


@pytest.mark.long
def test_wrong_verdicts_are_as_frequent_as_expected():
    """Simulated: normal estimates, whose true values are uniform and so unknown, and claims that they are above 0."""
    rng = np.random.default_rng(0)
    true = rng.uniform(-3, 3, 16_000)
    seen = true + rng.normal(size=true.shape)
    claims = [finding(estimate=one, low=one - 1.96, high=one + 1.96, claimed_low=0.0) for one in seen]
    against = np.abs(seen) > 1.96
    wrong = int(((np.sign(seen) != np.sign(true)) & against).sum())
    assert expected_errors(claims) == pytest.approx(wrong, abs=3 * wrong**0.5)
    assert wrong > 20
    counted = f"{against.sum():,} of 16,000 verdicts are for or against a claim"
    assert errors_sentence(claims).startswith(counted)
    assert f"about {expected_errors(claims):.0f} of these" in errors_sentence(claims)
    assert "fewer than one of these" in errors_sentence(claims[:1])


@pytest.mark.parametrize(
    ("interval", "ends", "wanted"),
    [
        ((1.0, 0.0, 2.0), (0.0, math.inf), 0.025),
        ((1.0, 0.0, 2.0), (0.0, 2.0), 0.05),
        ((0.0, -1.0, 4.0), (-1.0, 2.0), 0.0),  # undecided
        ((3.0, 1.0, 4.0), (-5.0, 0.999), 0.025),  # outside
        ((1.0, 1.0, 1.0), (0.0, math.inf), 0.0),
        ((math.inf, 1.0, math.inf), (0.0, math.inf), 0.025),
        ((math.nan, 1.0, 2.0), (0.0, math.inf), 0.025),
    ],
)
def test_the_chance_of_a_wrong_verdict_is_that_of_the_nearest_end(interval, ends, wanted):
    names = ("estimate", "low", "high", "claimed_low", "claimed_high")
    found = finding(**dict(zip(names, (*interval, *ends), strict=True)), strict=False)
    assert expected_errors([found]) == pytest.approx(wanted, abs=1e-3)


def test_a_card_tells_how_a_run_was_computed():
    claim = finding(source=cite("A paper, Figure 1", "as it says"))
    record = RunRecord(
        experiment="one",
        quick=False,
        tables={"runs": TableRecord(rows=2, shared={"rank": 2, "sizes": (1, (2, 3))})},
        claims=(claim, claim),
        commit="a" * 40,
        judged="b" * 40,
        versions={"numpy": "2", "scipy": "1"},
        machine="a machine",
        blas=("openblas", "openblas"),
        date="2026-01-02",
    )
    card = Card(record=record)
    assert (card.name, card.title, card.date) == ("one", "one", "2026-01-02")
    assert card.commit == f"{'a' * 12}, judged by {'b' * 12}"
    assert card.machine == "a machine; numpy 2, scipy 1; openblas"
    assert card.settings == {"runs": "rank = 2, sizes = (1, (2, 3))"}
    assert card.quotations == [("A paper, Figure 1", "as it says")]
    assert short("run 0123456789abcdef0 and abc") == "run 0123456789ab and abc"


def test_cards_are_in_the_order_of_the_pages_with_the_declarations_of_named_experiments():
    names = ("tripuraneni", "flute-fig1", "fedrep-fig3", "fedrep-fig1")
    records = {name: RunRecord(experiment=name, quick=False) for name in names}
    records["fedrep-fig1"] = RunRecord(experiment="fedrep-fig1", quick=False, file="/a/fedrep_fig1.py")
    cards = cards_of(records, ROOT / "experiments")
    assert list(cards) == ["fedrep-fig3", "flute-fig1", "fedrep-fig1", "tripuraneni"]
    assert cards["fedrep-fig3"].title == "FedRep, Figure 3"
    assert cards["fedrep-fig1"].declared == Declarations()
    assert all(card.declared == Declarations() for card in cards_of(records, None).values())
