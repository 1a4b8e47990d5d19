"""The scoreboard says what the runs found on the declared headlines, and nothing else."""

import math

import pytest

from docs.tools import vocabulary
from linfed.report.cards import Card, cards_of, measured
from linfed.report.scoreboard import markdown, missing, rows
from linfed.reproduction.declarations import Declarations, Headline
from linfed.reproduction.experiments import declared_in
from linfed.reproduction.record import ResultsFolder, RunRecord
from linfed.statistics.findings import cite, required
from tests.helpers import ROOT, finding
from tests.reproduction.toys import package, run

EXPERIMENTS = ROOT / "experiments"
DECLARED = declared_in(EXPERIMENTS)


@pytest.fixture(scope="module")
def committed():
    return cards_of(vocabulary.records(), EXPERIMENTS)


def cards(headline, *claims, **fields):
    """Return the cards of one run with one headline."""
    record = RunRecord(**{"experiment": "one", "quick": False, "claims": claims} | fields)
    return {"one": Card(record=record, declared=Declarations(headlines=(Headline(**headline),)))}


def at(setting, value, claim="it falls", **changes):
    source = cite("A paper, Figure 1", "as 'it' says|so")
    interval = {"estimate": value, "low": value, "high": value}
    return finding(claim, setting, source=source, claimed_low=0.2, **interval | {"statistic": "a share"} | changes)


# --- the committed runs ----------------------------------------------------------------------------------------------


def test_every_headline_is_judged_in_the_committed_runs(committed):
    assert missing(committed) == []
    headlines = [(name, headline) for name, declared in DECLARED.items() for headline in declared.headlines]
    assert len(headlines) > 50
    for row, (experiment, headline) in zip(rows(committed), headlines, strict=True):
        start, name = headline.among
        assert (row.experiment, row.judged) == (experiment, headline.claim + (f", {name}" if name else ""))
        of_experiment = committed[row.experiment].record.claims
        claims = [one for one in of_experiment if one.claim == headline.claim and one.setting.startswith(start)]
        counted = len(row.statement.claims)
        assert counted == sum(claim.statistic == row.shown.statistic for claim in claims)
        assert len({claim.setting for claim in claims}) <= counted  # every setting counts
        assert headline.setting in ("", row.shown.setting)
        assert row.shown in claims


def test_a_row_names_its_statistic_with_the_required_range(committed):
    """Without the setting, the statistic and the range, a number in the list would mean nothing."""
    blocks = markdown(rows(committed)).replace("\\", "").split("\n\n**")
    for row in rows(committed):
        (block,) = [text for text in blocks if text.removeprefix("**").startswith(f"{row.paper}**")]
        statistic = f"Statistic: {row.shown.statistic}; required: {required(row.shown.claimed_range)}\n"
        items = block.split(statistic)[1].partition("\n\n")[0].splitlines()
        (item,) = [line for line in items if line.startswith(f"- {row.judged} (`{row.experiment}`): ")]
        setting = f" ({row.shown.setting})" if row.shown.setting else ""
        assert item.endswith(f"{measured(row.shown)}{setting}; **{row.verdict}**")


def test_the_first_row_of_a_theorem_is_its_bound_not_the_constant_of_its_proof():
    """A bound that says nothing in a setting is VACUOUS there, and its row says so."""
    first = DECLARED["flute-theorem55"].headlines[0]
    assert first.claim == "The error stays below 1,600 x the bound of Theorem 5.5 after T_R"


# --- rows ------------------------------------------------------------------------------------------------------------


def test_verdicts_are_counted_and_a_setting_is_shown_in_which_something_was_judged():
    claims = [at("m = 5", math.nan), at("m = 10", 0.25), at("m = 20", 1234.5), at("m = 20", 0.1, statistic="other")]
    (row,) = rows(cards({"claim": "it falls"}, *claims))
    assert row.verdict == "SUPPORTED 2, VACUOUS 1"
    assert (row.shown.setting, measured(row.shown)) == ("m = 10", "0.25 [0.25, 0.25]")
    assert (row.paper, row.wording) == ("A paper, Figure 1", "“as 'it' says|so”")
    (row,) = rows(cards({"claim": "it falls", "setting": "m = 20", "wording": "it does"}, *claims))
    assert (row.shown.setting, measured(row.shown), row.wording) == ("m = 20", "1,230 [1,230, 1,230]", "it does")
    assert rows({}) == []


def test_a_row_may_count_the_settings_of_one_kind_only():
    claims = [at("elsewhere: k = 2", 0.1), at("0.03: k = 2", 0.5)]
    (row,) = rows(cards({"claim": "it falls", "among": ("0.03: ", "at the paper's step")}, *claims))
    assert row.judged == "it falls, at the paper's step"
    assert (row.verdict, measured(row.shown)) == ("SUPPORTED", "0.5 [0.5, 0.5]")


def test_texts_of_a_row_are_escaped():
    claim = at("n = 1\n| end", 0.5, claim="*falls* | [x] <b>")
    found = rows(cards({"claim": claim.claim}, claim))
    source, _, statistic, _, line = markdown(found).splitlines()
    assert source == "**A paper, Figure 1**"
    assert statistic == r"Statistic: a share; required: \>= 0.2"
    assert line == r"- \*falls\* \| \[x\] \<b\> (`one`): 0.5 \[0.5, 0.5\] (n = 1 \| end); **SUPPORTED**"
    assert markdown(rows(cards({"claim": "it falls"}, at("", 0.5)))).endswith(r"0.5 \[0.5, 0.5\]; **SUPPORTED**" + "\n")


def test_a_source_and_its_statistic_stand_once():
    named = {"one": at("n = 1", 0.5), "two": at("n = 1", 0.5, claim="it rises")}
    both = [row for claim in named.values() for row in rows(cards({"claim": claim.claim}, claim))]
    assert markdown(both).count("A paper, Figure 1") == markdown(both).count("a share") == 1
    other = rows(cards({"claim": "it falls"}, at("n = 1", 0.5, statistic="a ratio")))
    assert (markdown(both + other).count("a share"), markdown(both + other).count("a ratio")) == (1, 1)


def test_only_full_runs_miss_headlines():
    for partial in ({}, {"quick": True}, {"set": {"rank": 3}}):
        found = cards({"claim": "it fals"}, at("k = 2", 0.5), **partial)
        assert rows(found) == []
        told = [] if partial else ["one: HEADLINES[0]: no claim is 'it fals' (did you mean 'it falls'?)"]
        assert missing(found) == told
    assert missing(cards({"claim": "it falls"})) == []  # not judged yet


PLANTED = """
from dataclasses import dataclass
import linfed as lf

SUMMARY = "FedRep paper, Figure 9: errors that fall"
HEADLINES = ({"claim": "The error falls", "setting": "size = 2"},)

@dataclass(frozen=True)
class Cell:
    size: int = 1

    def run(self):
        return {"error": 1 / self.size}

def cells(quick):
    return lf.grid(Cell(), size=(1, 2))

def claims(tables):
    for row in tables["runs"]:
        yield lf.Finding(
            claim="The error falls", setting=f"size = {row['size']}", statistic="error", source="our prediction",
            estimate=row["error"], low=row["error"], high=row["error"], claimed_high=1.0,
        )
"""


def test_a_planted_experiment_is_on_every_page_from_its_own_file(folder, monkeypatch, capsys):
    """No other file names it: not the list, not the report, not the scoreboard. A wrong headline is told at once."""
    wrong = PLANTED.replace('{"claim": "The error falls"', '{"claim": "The error fals"')
    place = package(folder, **{"__init__": "", "fedrep/__init__": "", "fedrep/falling": PLANTED, "fedrep/wrong": wrong})
    options = ("--experiments", place, "--out", "out", "--workers", 1)
    assert run("reproduce", "falling", *options) == 0
    assert run("list", "--experiments", place) == 0
    assert "Figure 9: errors that fall" in capsys.readouterr().out
    (row,) = rows(cards_of(ResultsFolder(folder / "out").records(), place))
    assert (row.experiment, row.shown.setting, row.verdict) == ("falling", "size = 2", "SUPPORTED 2")
    monkeypatch.setattr("linfed.report.write.experiments_folder", lambda given: place)
    assert run("report", "out") == 0
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "<h3>FedRep</h3><ul><li>The error falls" in page
    assert "Figure 9: errors that fall" in page
    capsys.readouterr()
    said = "HEADLINES[0]: no claim is 'The error fals' (did you mean 'The error falls'?)"
    assert run("reproduce", "wrong", *options) == 2
    printed = " ".join(capsys.readouterr().out.split())
    assert f"wrong.py: {said}; correct it, and run linfed replot wrong --out out" in printed
    assert len(ResultsFolder(folder / "out").read("wrong").claims) == 2  # nothing is lost
    assert run("report", "out") == 0
    assert f"wrong: {said}; the scoreboard leaves it out" in capsys.readouterr().err
    assert run("reproduce", "wrong", "--quick", *options) == 0
    assert said in " ".join(capsys.readouterr().out.split())
