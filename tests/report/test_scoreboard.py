"""The scoreboard says what the committed runs found, and nothing else."""

import math
import re

import pytest

from docs.vocabulary import RUNS, TOP
from linfed import cli
from linfed.errors import UsageError
from linfed.report.cards import Card, cards_of, measured, number
from linfed.report.scoreboard import markdown, missing, rows
from linfed.reproduction.declarations import OTHERS, SECTIONS, Declarations, Headline, page_order
from linfed.reproduction.experiments import declared_by, declared_in, load_file
from linfed.reproduction.record import ResultsFolder, RunRecord
from linfed.statistics.findings import Finding, cite, judge, required

DECLARED = declared_in(TOP / "experiments")


@pytest.fixture(scope="module")
def cards():
    return cards_of(RUNS.records(), TOP / "experiments")


def _card(name, declared, *claims, quick=False, **fields):
    return {name: Card(record=RunRecord(experiment=name, quick=quick, claims=claims, **fields), declared=declared)}


def _declared(**headline):
    return Declarations(headlines=(Headline(**headline),))


def test_every_headline_is_judged_in_the_committed_runs(cards):
    found = rows(cards)
    headlines = [(name, headline) for name, declared in DECLARED.items() for headline in declared.headlines]
    assert len(headlines) > 50
    for row, (experiment, headline) in zip(found, headlines, strict=True):
        start, name = headline.among
        assert (row.experiment, row.judged) == (experiment, headline.claim + (f", {name}" if name else ""))
        claims = [
            claim
            for claim in cards[row.experiment].record.claims
            if claim.claim == headline.claim and claim.setting.startswith(start)
        ]
        counted = len(row.statement.claims)
        assert counted == sum(claim.statistic == row.shown.statistic for claim in claims)
        assert len({claim.setting for claim in claims}) <= counted  # every setting counts
        assert headline.setting in ("", row.shown.setting)
        assert row.shown in claims


def test_verdicts_are_counted_over_settings_and_a_setting_is_shown_in_which_something_was_judged():
    text = DECLARED["fedrep-fig1"].headlines[0].claim
    claims = [
        _claim(text, "m = 5", math.nan),
        _claim(text, "m = 10", 0.25),
        _claim(text, "m = 20", 1234.5),
    ]
    card = _card("fedrep-fig1", DECLARED["fedrep-fig1"], *claims, *_others("fedrep-fig1", text))
    (row,) = rows(card)[:1]
    assert row.verdict == "SUPPORTED 2, VACUOUS 1"
    assert (row.shown.setting, measured(row.shown)) == ("m = 10", "0.25 [0.25, 0.25]")
    assert (row.paper, row.wording) == ("A paper, Figure 1", "“as 'it' says|so”")
    assert "says\\|so" in markdown([row])
    assert "(https://a/fedrep-fig1/)" in markdown([row], "https://a/{}/")
    assert rows({}) == []


def _claim(text, where, value):
    source = cite("A paper, Figure 1", "as 'it' says|so")
    shown = {"estimate": value, "low": value, "high": value, "statistic": "a share", "claimed_low": 0.2}
    return Finding(claim=text, setting=where, source=source, **shown)


def _others(experiment, text):
    return [_claim(one.claim, "", 0.5) for one in DECLARED[experiment].headlines if one.claim != text]


def test_a_row_may_count_the_settings_of_one_kind_only():
    claims = [_claim("faster", "elsewhere: k = 2", 0.1), _claim("faster", "0.03: k = 2", 0.5)]
    declared = _declared(claim="faster", among=("0.03: ", "at the paper's step"))
    (row,) = rows(_card("one", declared, *claims))
    assert row.judged == "faster, at the paper's step"
    assert (row.verdict, measured(row.shown)) == ("SUPPORTED", "0.5 [0.5, 0.5]")


MISSING = {
    "claim": ({"claim": "fastr"}, r"no claim is 'fastr' \(did you mean 'faster'\?\)"),
    "setting": ({"claim": "faster", "setting": "k = 3"}, "'faster' has no setting 'k = 3'"),
    "settings": ({"claim": "faster", "among": ("tuned", "all")}, "'faster' has no setting that begins with 'tuned'"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_headline_that_matches_no_claim_is_named(name):
    """Of a full run: a quick one, or one with changed fields, may lack it."""
    headline, told = MISSING[name]
    claim, declared = _claim("faster", "k = 2", 0.5), _declared(**headline)
    (line,) = missing(_card("one", declared, claim))
    assert re.match(rf"one: HEADLINES\[0\]: {told}", line)
    for partial in ({}, {"quick": True}, {"set": {"rank": 3}}):
        assert len(rows(_card("one", declared, claim, **partial))) == (name == "setting")
        assert not partial or not missing(_card("one", declared, claim, **partial))


def test_every_headline_has_a_committed_claim(cards):
    assert missing(cards) == []


def test_the_first_row_of_a_theorem_is_its_bound_not_the_constant_of_its_proof():
    """A bound that says nothing in a setting is VACUOUS there, and its row says so."""
    first = DECLARED["flute-theorem55"].headlines[0]
    assert first.claim == "The error stays below 1,600 x the bound of Theorem 5.5 after T_R"


def test_a_row_names_its_statistic_with_the_required_range(cards):
    """Without the setting, the statistic and the range, a number in the table would mean nothing."""
    header, _, *lines = markdown(rows(cards)).splitlines()
    assert (
        header == "| claim | statistic and required range | measured (95 % CI) | verdicts over settings | experiment |"
    )
    for row, line in zip(rows(cards), lines, strict=True):
        text = line.replace("\\", "")
        shown = f"; required: {required(row.shown.claimed_range)} | {measured(row.shown)}"
        assert f"{shown} | {row.verdict} | {row.experiment} |" in text
        assert row.shown.statistic in text


def test_texts_of_a_row_are_escaped():
    claim = _claim("*falls* | [x] <b>", "n = 1\n| end", 0.5)
    (row,) = rows(_card("one", _declared(claim=claim.claim), claim))
    line = markdown([row]).splitlines()[2]
    assert line.startswith(r"| \*falls\* \| \[x\] \<b\> (")
    assert r"a share; setting: n = 1 \| end; required: \>= 0.2 | 0.5 \[0.5, 0.5\] | SUPPORTED | one |" in line


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


def test_other_files_of_a_folder_are_left_out(tmp_path):
    (tmp_path / "benchmarks.json").write_text("[]")
    (tmp_path / "sweep.json").write_text('{"quick": true}')
    ResultsFolder(tmp_path).write(RunRecord(experiment="one", quick=False))
    assert list(ResultsFolder(tmp_path).records()) == ["one"]


# --- declarations --------------------------------------------------------------------------------------------


def test_every_experiment_stands_in_a_section_and_declares_one_line():
    for name, declared in DECLARED.items():
        assert declared.summary, name
    sections = [declared.section for declared in DECLARED.values()]
    assert list(dict.fromkeys(sections)) == list(SECTIONS.values())
    for name in (
        "private-fedrep",
        "private-fedrep-published",
        "anisotropy",
        "anisotropy-mechanism",
        "weights",
        "weights-schedule",
        "compression",
        "compression-floats",
        "wider-rank",
    ):
        assert DECLARED[name].section == "FedRep"


def test_pages_are_ordered_by_section_place_and_name():
    """At one place, the experiment with the place in its name comes first; your own come last."""
    declared = {
        name: Declarations(summary=summary, section=section)
        for name, summary, section in (
            ("mine", "", OTHERS),
            ("flute-b", "", "FLUTE"),
            ("flute-a", "FLUTE, a setting", "FLUTE"),
            ("bounds", "FLUTE paper, Theorem 5.5, bounds", "FLUTE"),
            ("flute-theorem55", "FLUTE paper, Theorem 5.5: a bound", "FLUTE"),
            ("flute-theorem51", "FLUTE paper, Theorem 5.1: rates", "FLUTE"),
            ("flute-fig10", "FLUTE paper, Figure 10: errors", "FLUTE"),
            ("flute-fig2", "FLUTE paper, Figure 2: errors", "FLUTE"),
            ("zero", "", "FedRep"),
        )
    }
    wanted = "zero flute-fig2 flute-fig10 flute-theorem51 flute-theorem55 bounds flute-a flute-b mine"
    assert page_order(declared) == wanted.split()


WRONG = {
    "summary": ("SUMMARY = ('one', 'two')", "SUMMARY = ('one', 'two') must be one line of text"),
    "lines": ("SUMMARY = 'one\\ntwo'", "SUMMARY = 'one\\ntwo' must be one line of text"),
    "one headline": ("HEADLINES = 'it falls'", "HEADLINES = 'it falls' must be a tuple of dicts"),
    "a text": ("HEADLINES = ('it falls',)", "HEADLINES[0] = 'it falls' must be a dict with 'claim' and some of"),
    "a field": ("HEADLINES = ({'claim': 'x', 'seting': 'y'},)", "must be a dict with 'claim' and some of 'setting',"),
    "no claim": ("HEADLINES = ({'setting': 'y'},)", "HEADLINES[0] = {'setting': 'y'} must be a dict with 'claim'"),
    "a type": ("HEADLINES = ({'claim': 3},)", "HEADLINES[0]['claim'] = 3 must be a text"),
    "among": ("HEADLINES = ({'claim': 'x', 'among': 'ab'},)", "HEADLINES[0]['among'] = 'ab' must be a pair of texts"),
    "pictures": ("PICTURES = ['']", "PICTURES = [''] must be a dict from keys of figures to widths in pixels"),
    "a key": ("PICTURES = {0: 1400}", "PICTURES = {0: 1400} must be a dict from keys of figures to widths in pixels"),
    "a width": ("PICTURES = {'a': 0.5}", "PICTURES['a'] = 0.5 must be a width in pixels"),
    "syntax": ("SUMMARY = ", "one.py, line 2: SyntaxError: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_declaration_is_one_line(name, tmp_path):
    line, told = WRONG[name]
    (tmp_path / "one.py").write_text(f"def cells(): return []\n{line}\n")
    with pytest.raises(UsageError) as caught:
        declared_by(tmp_path / "one.py")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "SUMMARY = 'one line'\ndef cells(): return []\n",
        "def cells(): return []\nSUMMARY = 'one line'\n",
        "def cells(): return []\nx = 1; SUMMARY = 'one line'\n",
        "'''\nclass of experiments\n'''\nSUMMARY = 'one line'\n",
        "PAPER = '''\ndef of a term\n'''\nSUMMARY = 'one line'\nclass Cell: ...\n",
        "default = 3\nSUMMARY = 'one line'\n",
    ],
)
def test_a_declaration_is_read_wherever_it_stands(source, tmp_path):
    (tmp_path / "one.py").write_text(source)
    assert declared_by(tmp_path / "one.py").summary == "one line"


def test_declarations_are_checked_when_a_module_is_loaded(tmp_path, monkeypatch):
    """Also those that are not literals; nothing is computed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, line in (("wrong_summary", "SUMMARY = 3"), ("computed_summary", "SUMMARY = 1 + len('ab')")):
        (tmp_path / f"{name}.py").write_text(f"def cells(): return []\n{line}\n")
        for read in (load_file, declared_by):
            with pytest.raises(UsageError, match=rf"{name}\.py: SUMMARY = 3 must be one line of text"):
                read(tmp_path / f"{name}.py")


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


def test_a_planted_experiment_is_on_every_page_from_its_own_file(tmp_path, monkeypatch, capsys):
    """No other file names it: not the list, not the report, not the scoreboard. A wrong headline is told at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "planted_experiments"  # a name of its own: modules are cached by name
    room = folder / "fedrep"
    room.mkdir(parents=True)
    for one in (folder, room):
        (one / "__init__.py").write_text("")
    (room / "falling.py").write_text(PLANTED)
    (room / "wrong.py").write_text(PLANTED.replace('{"claim": "The error falls"', '{"claim": "The error fals"'))
    options = ("--experiments", str(folder), "--out", "out", "--workers", "1")
    assert cli.main(["reproduce", "falling", *options]) == 0
    assert cli.main(["list", "--experiments", str(folder)]) == 0
    assert "Figure 9: errors that fall" in capsys.readouterr().out
    found = rows(cards_of(ResultsFolder(tmp_path / "out").records(), folder))
    assert [(row.experiment, row.shown.setting, row.verdict) for row in found] == [
        ("falling", "size = 2", "SUPPORTED 2")
    ]
    monkeypatch.setattr("linfed.report.write.experiments_folder", lambda given: folder)
    assert cli.main(["report", "out"]) == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<h3>FedRep</h3><ul><li>The error falls" in page
    assert "Figure 9: errors that fall" in page
    capsys.readouterr()
    missing = "HEADLINES[0]: no claim is 'The error fals' (did you mean 'The error falls'?)"
    assert cli.main(["reproduce", "wrong", *options]) == 2
    printed = " ".join(capsys.readouterr().out.split())
    assert f"wrong.py: {missing}; correct it, and run linfed replot wrong --out out" in printed
    assert "wrong: 2 claims" in printed
    assert len(ResultsFolder(tmp_path / "out").read("wrong").claims) == 2  # nothing is lost
    assert cli.main(["report", "out"]) == 0
    assert f"wrong: {missing}; the scoreboard leaves it out" in capsys.readouterr().err
    assert cli.main(["reproduce", "wrong", "--quick", *options]) == 0
    assert missing in " ".join(capsys.readouterr().out.split())
