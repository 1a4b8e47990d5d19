"""The scoreboard says what the committed runs found, and nothing else."""

import math

import pytest

from docs.vocabulary import RUNS
from linfed.report.scoreboard import SENTENCES, markdown, measured, number, rows
from linfed.reproduction.record import ResultsFolder, RunRecord
from linfed.statistics.findings import Finding, judge


@pytest.fixture(scope="module")
def runs():
    return RUNS.records()


def _record(name, *claims, quick=False):
    return {name: RunRecord(experiment=name, quick=quick, claims=claims)}


def test_every_sentence_is_judged_in_the_committed_runs(runs):
    found = rows(runs)
    for row, sentence in zip(found, SENTENCES, strict=True):
        start, name = sentence.among
        assert (row.experiment, row.judged) == (sentence.experiment, sentence.claim + (f", {name}" if name else ""))
        claims = [
            claim
            for claim in runs[row.experiment].claims
            if claim.claim == sentence.claim and claim.setting.startswith(start)
        ]
        assert sum(row.verdicts.values()) == sum(claim.statistic == row.statistic for claim in claims)
        assert len({claim.setting for claim in claims}) <= sum(row.verdicts.values())  # every setting counts
        assert sentence.setting in ("", row.setting)
        assert row.setting in {claim.setting for claim in claims}


def test_verdicts_are_counted_over_settings_and_a_setting_is_shown_in_which_something_was_judged(runs):
    text = SENTENCES[0].claim
    claims = [
        _claim(text, "m = 5", math.nan),
        _claim(text, "m = 10", 0.25),
        _claim(text, "m = 20", 1234.5),
    ]
    (row,) = rows(_record("fedrep-fig1", *claims, *_others("fedrep-fig1", text)))[:1]
    assert row.verdict == "SUPPORTED 2, VACUOUS 1"
    assert (row.setting, row.measured) == ("m = 10", "0.25 [0.25, 0.25]")
    assert (row.paper, row.wording) == ("A paper, Figure 1", "“as 'it' says|so”")
    assert "says\\|so" in markdown([row])
    assert "(https://a/fedrep-fig1/)" in markdown([row], "https://a/{}/")
    assert rows({}) == []


def _claim(text, where, value):
    source = "A paper, Figure 1: \"as 'it' says|so\""
    shown = {"estimate": value, "low": value, "high": value, "statistic": "a share", "claimed_low": 0.2}
    return Finding(claim=text, setting=where, source=source, **shown)


def _others(experiment, text):
    return [_claim(one.claim, "", 0.5) for one in SENTENCES if one.experiment == experiment and one.claim != text]


def test_a_row_may_count_the_settings_of_one_kind_only():
    sentence = next(one for one in SENTENCES if one.among[0])
    claims = [
        _claim(sentence.claim, "elsewhere: k = 2", 0.1),
        _claim(sentence.claim, f"{sentence.among[0]}k = 2", 0.5),
    ]
    every = [*claims, *_others(sentence.experiment, sentence.claim)]
    found = rows(_record(sentence.experiment, *every, quick=True))
    row = next(row for row in found if row.judged == f"{sentence.claim}, {sentence.among[1]}")
    assert (row.verdict, row.measured) == ("SUPPORTED", "0.5 [0.5, 0.5]")


def test_a_kind_of_settings_that_is_not_there_is_told():
    """Of a full run: a quick one may lack it."""
    sentence = next(one for one in SENTENCES if one.among[0])
    claims = [_claim(sentence.claim, "elsewhere", 0.5), *_others(sentence.experiment, sentence.claim)]
    with pytest.raises(ValueError, match="has no setting that begins with"):
        rows(_record(sentence.experiment, *claims))


def test_the_first_row_of_a_theorem_is_its_bound_not_the_constant_of_its_proof():
    """A bound that says nothing in a setting is VACUOUS there, and its row says so."""
    first = next(one.claim for one in SENTENCES if one.experiment == "flute-theorem55")
    assert first == "The error stays below 1,600 x the bound of Theorem 5.5 after T_R"


def test_a_row_names_its_statistic_with_the_required_range(runs):
    """Without the setting, the statistic and the range, a number in the table would mean nothing."""
    header, _, *lines = markdown(rows(runs)).splitlines()
    assert (
        header == "| claim | statistic and required range | measured (95 % CI) | verdicts over settings | experiment |"
    )
    for row, line in zip(rows(runs), lines, strict=True):
        assert f"; required: {row.required} | {row.measured} | {row.verdict} | {row.experiment} |" in line
        assert row.statistic.replace("|", "\\|") in line


@pytest.mark.parametrize(
    ("value", "text"),
    [(999.0, "999"), (1000.0, "1,000"), (-1000.0, "-1,000"), (123456.0, "123,000"), (1e6, "1e+06"), (math.nan, "-")],
)
def test_numbers_have_three_digits_and_thousands_are_written_out(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [((math.nan, 0.0, math.inf), "- [0, inf]"), ((2.0, -math.inf, 3.0), "2 [-inf, 3]"), ((math.nan,) * 3, "- [-, -]")],
)
def test_infinite_ends_are_told(interval, text):
    found = judge(interval, claim="c", setting="s", statistic="t", source="o", claimed_low=0.5, claimed_high=9.0)
    assert measured(found) == text


def test_a_sentence_that_its_experiment_no_longer_judges_is_told():
    with pytest.raises(ValueError, match="fedrep-fig1 has no claim"):
        rows(_record("fedrep-fig1", _claim("something else", "", 0.5)))


def test_other_files_of_a_folder_are_left_out(tmp_path):
    (tmp_path / "benchmarks.json").write_text("[]")
    (tmp_path / "sweep.json").write_text('{"quick": true}')
    ResultsFolder(tmp_path).write(RunRecord(experiment="one", quick=False))
    assert list(ResultsFolder(tmp_path).records()) == ["one"]
