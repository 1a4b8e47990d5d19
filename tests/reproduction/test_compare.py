"""`linfed compare`: what moved between two runs."""

import dataclasses
import math
import re

import pytest

from linfed import cli
from linfed.errors import UsageError
from linfed.report.compare import compare, format_comparison
from linfed.reproduction.record import ResultsFolder, RunRecord, read_runs
from linfed.statistics.findings import Finding
from tests.helpers import ROOT

COMMITTED = ROOT / "results" / "committed"


def claim(text="it falls", *, where="n = 1", **changes):
    said = {"statistic": "share", "source": "a paper", "claimed_low": 0.5}
    return Finding(**{"claim": text, "setting": where} | said | {"estimate": 0.9, "low": 0.8, "high": 1.0} | changes)


def runs(*claims, name="one", quick=False):
    return {name: RunRecord(experiment=name, quick=quick, claims=claims)}


def save(folder, *claims):
    folder.mkdir()
    ResultsFolder(folder).write(runs(*claims)["one"])


def test_a_verdict_that_moved_is_told_once():
    before, after = claim(), claim(estimate=0.6, low=0.4, high=0.75)
    found = compare(runs(before), runs(after))
    assert [(pair.before, pair.after) for pair in found.verdicts] == [(before, after)]
    assert (found.estimates, found.claimed_range, found.compared) == ([], [], 1)
    text = format_comparison(found, "A", "B")
    assert "SUPPORTED 0.9 [0.8, 1] -> INCONCLUSIVE 0.6 [0.4, 0.75]" in text
    assert "one: it falls" in text


@pytest.mark.parametrize(
    ("changes", "relative", "moved"),
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
def test_an_estimate_moved_beyond_both_intervals_or_by_a_share(changes, relative, moved):
    found = compare(runs(claim()), runs(claim(**changes)), relative=relative)
    assert len(found.estimates) == moved
    found = compare(runs(claim(**changes)), runs(claim()), relative=relative)
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
    same = [claim(where=where, estimate=estimate) for where, estimate in (("n = 1", 0.81), ("n = 2", 0.99))]
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


def test_runs_with_other_settings_are_told_in_a_line(tmp_path, capsys):
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
        for name, record in (("a", before), ("b", after)):
            (tmp_path / name).mkdir(exist_ok=True)
            ResultsFolder(tmp_path / name).write(record)
        assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--strict"]) == 1
        assert "1 experiment with other settings, so the exit status is 1" in capsys.readouterr().out


def test_the_committed_results_are_themselves():
    records = read_runs(str(COMMITTED))[1]
    found = compare(records, records)
    assert found.compared == sum(len(one.claims) for one in records.values()) > 1000
    assert [found.verdicts, found.estimates, found.claimed_range, found.before_only, found.after_only] == [
        [],
        [],
        [],
        {},
        {},
    ]
    assert found.remarks == []


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("moved", [False, True])
def test_the_command_fails_of_a_moved_verdict_where_asked(strict, moved, tmp_path, capsys):
    names = ("before", "after")
    for name, high in zip(names, (1.0, 0.85 if moved else 1.0), strict=True):
        save(tmp_path / name, claim(claimed_high=0.9, claimed_low=0.0, estimate=0.8, low=0.7, high=high))
    arguments = ["compare", str(tmp_path / "before"), str(tmp_path / "after" / "one.json"), *["--strict"] * strict]
    assert cli.main(arguments) == int(strict and moved)
    printed = capsys.readouterr().out
    assert ("changed verdicts: 1" in printed) is moved
    assert ("no differences" in printed) is not moved
    said = [line for line in printed.splitlines() if line.startswith("--strict: ")]
    count = "1 changed verdict" if moved else "0 changed verdicts"
    assert said == [f"--strict: {count}, 0 claims in one run alone, so the exit status is {int(moved)}"] * strict


@pytest.mark.parametrize(("claims", "status"), [(2, 0), (1, 1), (0, 1), (3, 1)])
def test_strict_fails_if_only_one_run_has_a_claim(claims, status, tmp_path, capsys):
    texts = ["it falls", "it rises", "it stays"]
    for name, count in (("before", 2), ("after", claims)):
        save(tmp_path / name, *map(claim, texts[:count]))
    assert cli.main(["compare", str(tmp_path / "before"), str(tmp_path / "after"), "--strict"]) == status
    alone = "1 claim in one run alone" if abs(claims - 2) == 1 else f"{2 - claims} claims in one run alone"
    assert f"0 changed verdicts, {alone}, so the exit status is {status}" in " ".join(capsys.readouterr().out.split())


def test_only_sections_with_differences_are_printed():
    text = format_comparison(compare(runs(claim(), claim("old")), runs(claim())), "A", "B")
    assert re.findall(r"^\S.*$", text, re.M) == ["A -> B: 1 claim compared", "only in A: 1 claim"]
