"""The comparison of two runs: verdicts, estimates and claims that differ."""

import dataclasses
import math
import re

import pytest

from docs.tools import vocabulary
from linfed.errors import UsageError
from linfed.report.compare import compare, format_comparison
from linfed.reproduction.record import RunRecord
from tests.helpers import finding


def claim(text="it falls", **changes):
    return finding(text, **changes)


def runs(*claims, name="one"):
    return {name: RunRecord(experiment=name, quick=False, claims=claims)}


def test_a_verdict_that_moved_is_told_once():
    before, after = claim(), claim(estimate=0.6, low=0.4, high=0.75)
    found = compare(runs(before), runs(after))
    assert [(pair.before, pair.after) for pair in found.verdicts] == [(before, after)]
    assert (found.estimates, found.claimed_range, found.compared) == ([], [], 1)
    text = format_comparison(found, "A", "B")
    assert "SUPPORTED 0.9 [0.8, 1] -> INCONCLUSIVE 0.6 [0.4, 0.75]" in text
    assert "one: it falls" in text


@pytest.mark.parametrize(
    ("changes", "rtol", "moved"),
    [
        ({"estimate": 0.7, "low": 0.6, "high": 0.75}, None, True),  # outside of both
        ({"estimate": 0.7, "low": 0.6, "high": 0.95}, None, False),  # the first lies in the second's interval
        ({"estimate": 0.85, "low": 0.84, "high": 0.86}, None, False),  # the second lies in the first's
        ({"estimate": 0.8, "low": 0.7, "high": 0.85}, None, False),  # an interval's ends belong to it
        ({"estimate": 1.0, "low": 0.95, "high": 1.1}, None, False),
        ({"estimate": 0.85, "low": 0.84, "high": 0.86}, 0.05, True),
        ({"estimate": 0.85, "low": 0.84, "high": 0.86}, 0.06, False),
        ({"estimate": math.nan}, None, True),
        ({"estimate": math.inf, "high": math.inf}, None, True),
        ({"estimate": 0.7, "high": math.inf}, None, False),  # an end that is not finite bounds nothing
    ],
)
def test_an_estimate_moved_beyond_both_intervals_or_by_a_share(changes, rtol, moved):
    found = compare(runs(claim()), runs(claim(**changes)), rtol=rtol)
    assert len(found.estimates) == moved
    found = compare(runs(claim(**changes)), runs(claim()), rtol=rtol)
    assert len(found.estimates) == moved


def test_rounding_is_no_move():
    """An identity's error is a thousand times smaller than what is said of it."""
    before = claim(estimate=1e-15, low=1e-15, high=1e-15, claimed_low=-math.inf, claimed_high=1e-8)
    after = dataclasses.replace(before, estimate=3e-15, low=3e-15, high=3e-15)
    assert compare(runs(before), runs(after)).estimates == []
    far = dataclasses.replace(before, estimate=3e-9, low=3e-9, high=3e-9)
    assert len(compare(runs(before), runs(far)).estimates) == 1


def test_what_is_said_otherwise_is_told():
    found = compare(runs(claim()), runs(claim(claimed_low=0.6)))
    assert len(found.claimed_range) == 1
    assert "required: >= 0.5 -> >= 0.6" in format_comparison(found, "A", "B")


def test_claims_are_matched_by_what_names_them():
    same = [claim(setting=setting, estimate=estimate) for setting, estimate in (("n = 1", 0.81), ("n = 2", 0.99))]
    twice = [claim("twice"), claim("twice", vacuous="it cannot fail")]
    found = compare(runs(*same, *twice, claim("old")), runs(*twice, *same[::-1], claim("new")))
    assert found.compared == 4
    assert (found.verdicts, found.estimates) == ([], [])
    assert [one.claim for one in found.before_only["one"]] == ["old"]
    assert [one.claim for one in found.after_only["one"]] == ["new"]
    assert "only in A: 1 claim\n  one: old (n = 1; share): SUPPORTED" in format_comparison(found, "A", "B")
    other = compare(runs(claim(statistic="another")), runs(claim()))
    assert other.compared == 0


def test_experiments_of_one_run_alone_are_a_remark():
    both = runs(claim()) | runs(claim(), name="two")
    assert compare(both, runs(claim())).remarks == ["only the first run has two"]
    assert compare(runs(claim()), both).remarks == ["only the second run has two"]
    assert compare(runs(claim()), runs()).remarks == ["one of the runs is not finished: one"]
    with pytest.raises(UsageError, match="no experiment in common: one; two"):
        compare(runs(claim()), runs(claim(), name="two"))


def test_runs_with_other_settings_are_told_in_a_line():
    """Nothing is listed of them: their claims are on other settings."""
    before, moved = runs(claim())["one"], claim("other", estimate=0.1, low=0.0, high=0.2)
    for changes, kind in (({"quick": True}, "quick run"), ({"set": {"trials": 3, "dim": 9}}, "full run, trials = 3, ")):
        after = dataclasses.replace(before, claims=(claim(low=0.3, high=0.4), moved), **changes)
        both = runs(claim(), name="two")
        found = compare({"one": before} | both, {"one": after} | both)
        assert (found.other_settings, found.compared, found.verdicts, found.after_only) == (["one"], 1, [], {})
        (remark,) = found.remarks
        assert remark.startswith(f"one: the settings differ (full run; {kind}")
        assert format_comparison(found, "A", "B") == f"A -> B: 1 claim compared\n  {remark}"


def test_the_committed_results_are_themselves():
    records = vocabulary.records()
    found = compare(records, records)
    assert found.compared == sum(len(one.claims) for one in records.values()) > 1000
    assert not any([found.verdicts, found.estimates, found.claimed_range, found.before_only, found.after_only])
    assert found.remarks == []


def test_only_sections_with_differences_are_printed():
    text = format_comparison(compare(runs(claim(), claim("old")), runs(claim())), "A", "B")
    assert re.findall(r"^\S.*$", text, re.M) == ["A -> B: 1 claim compared", "only in A: 1 claim"]
