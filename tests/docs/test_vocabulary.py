"""What the expressions of a template can use: claims, counts, and numbers as text."""

from types import SimpleNamespace

import numpy as np
import pytest

from docs.tools import vocabulary
from linfed.statistics import Hypothesis
from tests.helpers import finding


def test_claims_are_chosen_by_setting_and_statistic():
    name, text = "fedrep-fig1", "Local only improves with m"
    assert len(vocabulary.claims(name, text)) == 8
    assert len(vocabulary.claims(name, text, "paper*")) == 4
    assert len(vocabulary.claims(name, text, "paper: m = 10*", "paper: m = 20*", without="*5")) == 2
    assert vocabulary.claim(name, text, "paper: m = 20*", statistic="*mean client*").verdict == "NOT SUPPORTED"
    with pytest.raises(LookupError, match="choose one setting"):
        vocabulary.claim(name, text, "paper*")
    with pytest.raises(ValueError, match="the values differ"):
        vocabulary.verdict(vocabulary.claims(name, text))


def test_what_is_counted():
    fails = Hypothesis(text="n > 1", left=2.0, right=1.0)
    found = [finding(theorem=True, **one) for one in ({}, {"vacuous": "nothing"}, {}, {"hypotheses": (fails,)})]
    assert vocabulary.verdicts(found) == "HOLDS 2, VACUOUS 1, HYPOTHESES FAIL 1"
    assert vocabulary.verdicts([finding(low=0.4), finding(low=0.4), finding()]) == "SUPPORTED 1, INCONCLUSIVE 2"
    assert vocabulary.tally(found, "HOLDS") == 2
    assert len(vocabulary.judged(found)) == 3
    assert vocabulary.all_counts([finding(detail="49 of 50"), finding(detail="7 of 50")], 0) == [49, 7]
    assert vocabulary.median([np.nan, 1.0, np.nan]) == np.inf


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (vocabulary.measured(finding(estimate=1.234, low=1.0, high=1.5)), "1.23 [1.00, 1.50]"),
        (vocabulary.interval(finding(low=0.894, high=0.98), 0, percent=True), "[89, 98]"),
        (vocabulary.span([0.3, 0.123], 2), "0.12 to 0.30"),
        (vocabulary.span([0.121, 0.119], 2), "0.12"),
        (vocabulary.scientific(5.92e-4), "5.9e-4"),
        (vocabulary.scientific(1e12, 0), "1e12"),
        (" ".join(map(vocabulary.compact, (1.526, 0.0999, 0.0454, 0.00999, 5.92e-4))), "1.53 0.10 0.045 0.01 5.9e-4"),
        (" ".join(map(vocabulary.times, (0.279, 0.998, 7.71, 99.97, 1234))), "0.28 1.0 7.7 100 1,234"),
        (", ".join(map(vocabulary.duration, (0.441, 999.6, 8050, 1e6))), "0.441 ms, 1.00 s, 8.05 s, 1,000 s"),
        (vocabulary.mean_and_error(np.array([1.0, np.nan, 3.0])), "2.0 ± 1.0 (2 of 3)"),
        (vocabulary.word_after("rounds to distance 0.01; more", "distance"), "0.01"),
        (vocabulary.word(0) + vocabulary.word(12), "nonetwelve"),
        (vocabulary.fill("- one two three\n", 9), "- one two\n  three\n"),
    ],
)
def test_how_numbers_are_shown(shown, text):
    assert shown == text


def test_ties_are_counted_from_the_details():
    details = ["5 of 28 that differ; 5 of all 50 smaller, 23 larger, 22 tied; median", "36 of 50; median", "3 tied"]
    assert vocabulary.tied(SimpleNamespace(detail=detail) for detail in details) == 25
