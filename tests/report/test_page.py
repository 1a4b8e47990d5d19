"""The page of a report: sound HTML that loads nothing, with all that the records say."""

import base64
import io
import itertools
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from linfed.report.cards import Card, Statement, measured
from linfed.report.compare import compare
from linfed.report.content import Content
from linfed.report.page import page
from linfed.report.pictures import Picture
from linfed.report.scoreboard import rows
from linfed.report.write import collected
from linfed.reproduction.declarations import Declarations, Headline
from linfed.reproduction.record import ResultsFolder, RunRecord
from linfed.statistics.findings import AGAINST, Origin, Verdict
from tests.helpers import ROOT, finding
from tests.report.reports import RECORD, Checked, section

COMMITTED = ROOT / "results" / "committed"


@pytest.fixture(scope="module")
def checked(written):
    return Checked((written[0] / "report.html").read_text(encoding="utf-8"))


def test_the_page_is_sound(checked):
    assert checked.wrong == []
    ids = [attrs["id"] for _, attrs in checked.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [attrs["href"] for attrs in checked.all("a")]
    assert links
    assert {link[1:] for link in links} <= set(ids)
    levels = [int(tag[1]) for tag, _ in checked.found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_the_page_loads_nothing_but_itself(checked):
    for tag, attrs in checked.found:
        for name in ("src", "srcset", "action", "data"):
            assert attrs.get(name, "data:").startswith("data:"), (tag, attrs)
        assert tag not in ("iframe", "object", "embed")
        assert tag != "link" or attrs["href"] == "data:,"


def test_every_figure_is_there_with_its_caption(checked, results):
    stems = ["toy-fall", "toy-fall-map"]
    assert "toy-fall Two methods, at sizes < three & more.toy-fall-map A map." in checked.text
    assert [image["alt"] for image in checked.all("img")] == [f"Figure {stem}" for stem in stems]
    for stem, image in zip(stems, checked.all("img"), strict=True):
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/webp;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as drawn, Image.open(results / f"{stem}.png") as beside:
            assert drawn.size == (int(image["width"]), int(image["height"])) == beside.size
            assert np.abs(np.asarray(drawn.convert("RGB"), int) - np.asarray(beside.convert("RGB"))).mean() < 2


def test_the_page_says_all_that_the_record_does(checked):
    for claim in RECORD.claims:
        for part in (claim.claim, claim.setting, claim.statistic, claim.source, claim.verdict.value, claim.note):
            assert part in checked.text
    assert "required: >= 0.5" in checked.text
    assert checked.text.count(RECORD.claims[0].source) == 3  # once per statement
    assert checked.rows == [
        ["SUPPORTED", "n = 1", "0.9 [0.8, 1]"],
        ["NOT SUPPORTED", "n = 2", "0.4 [0.3, 0.45] (1)"],
        ["HYPOTHESES FAIL", "n = 1", "0.6 [0.4, 0.8] (1)"],
        ["VACUOUS", "n = 1", "no estimate (1)"],
    ]
    for told in ("fails: eta <= 1: 2 > 1", "QUICK runs.", "a machine", "2026-01-02", "commit aaaaaaaaaaaa"):
        assert told in checked.text
    assert "4 claims are in both runs" in checked.text
    assert "Changed" not in checked.text


def test_the_page_has_the_meanings_of_the_verdicts_that_occur(checked):
    meant = {verdict for verdict in Verdict if verdict.meaning in checked.text}
    assert meant == {Verdict.SUPPORTED, Verdict.NOT_SUPPORTED, Verdict.HYPOTHESES_FAIL, Verdict.VACUOUS}


@pytest.fixture
def alone(results, tmp_path):
    """A folder with the toy's record, without its figures."""
    shutil.copy(results / "toy-fall.json", tmp_path)
    return tmp_path


def test_a_run_without_figures_says_how_to_draw_them(alone):
    text = Checked(page(collected(str(alone)))).text
    assert f"No figures next to the record; linfed replot toy-fall --out {alone} draws them." in text


def test_claims_are_listed_by_outcome(alone):
    text = page(collected(str(alone)))
    assert "FedRep's error falls SUPPORTED 1 NOT SUPPORTED 1 a paper, Theorem 1; n = 2" in section(text, "contradicts")
    assert section(text, "agrees").endswith("None.")
    assert "FedAvg's error falls HYPOTHESES FAIL" in section(text, "undecided")
    assert "FedAvg's error rises VACUOUS" in section(text, "undecided")


# --- other contents --------------------------------------------------------------------------------------------------


def content(*cards, **changes):
    """Return the contents of a report on cards."""
    by_name = {card.name: card for card in cards}
    known = {"path": "results", "folder": ResultsFolder(), "scoreboard": rows(by_name)}
    return Content(cards=by_name, **known | {"pictures": {name: [] for name in by_name}} | changes)


def card(name, *claims, headline="it falls", quick=False, **fields):
    record = RunRecord(experiment=name, quick=quick, claims=claims, **fields)
    return Card(record=record, declared=Declarations(headlines=(Headline(claim=headline),), section="FedRep"))


def test_reports_on_many_experiments_show_the_main_figures_and_name_the_others():
    drawn = [Picture(stem=stem, caption="c", data=b"", width=1, height=1) for stem in ("a", "a-tuning")]
    cards = [card(name, finding("it falls")) for name in "abcd"]
    cards[0] = replace(cards[0], declared=replace(cards[0].declared, pictures={"": 1005}))
    pictures = {name: drawn if name == "a" else [] for name in "abcd"}
    many = page(content(*cards, pictures=pictures))
    assert "Further figures, which linfed report results/a.json shows: a-tuning" in many
    assert many.count("<figure>") == 1
    few = page(content(cards[0], pictures=pictures))
    assert "Further figures" not in few
    assert few.count("<figure>") == 2


def test_reports_on_many_experiments_list_only_the_headlines():
    four = [card(name, finding("it falls"), finding("it rises"), finding("it stays", low=0.1)) for name in "abcd"]
    for cards, few in ((four[:3], True), (four, False)):
        listed = section(page(content(*cards)), "agrees")
        assert listed.count("it falls") == len(cards)
        assert ("it rises" in listed) == few
        details = Checked(page(content(*cards))).all("details")
        assert sum("open" in attrs for attrs in details) == len(cards) * few


def test_reports_on_few_experiments_list_the_other_settings_and_statistics_of_headlines():
    claims = [finding("it falls", f"{place}: n = 2", statistic=what) for what in ("ratio", "risk") for place in "ab"]
    one = card("one", *claims)
    one = replace(one, declared=replace(one.declared, headlines=(Headline(claim="it falls", among=("a", "at a")),)))
    listed = section(page(content(one)), "agrees")
    assert "it falls, at a SUPPORTED" in listed
    assert "it falls SUPPORTED a paper; b: n = 2" in listed
    assert "it falls SUPPORTED 2 a paper; a: n = 2" in listed


def test_claims_of_papers_and_our_own_are_apart():
    low = {"low": 0.1, "high": 0.2}
    claims = [finding(one.value, origin=one, **low) for one in (Origin.THRESHOLD, Origin.QUOTED, Origin.PREDICTION)]
    text = page(content(card("a", *claims, finding("mine", **low), finding("fine", origin=Origin.PREDICTION))))
    against, ours = section(text, "contradicts"), section(text, "ours")
    assert "quoted" in against
    assert "mine" in against  # a source without an origin is the user's
    assert "our" not in against
    assert ours.index("our prediction") < ours.index("fine") < ours.index("our threshold")
    assert "quoted" not in ours
    for told in ("What the papers say: 1 claim: NOT SUPPORTED", "What linfed predicts: 2 claims"):
        assert told in Checked(text).text


def test_differences_from_another_run_are_listed():
    before = card("a", finding("it falls"), finding("same"), finding("old"))
    after = card("a", finding("it falls", low=0.1, high=0.2), finding("same"), finding("new"))
    moved = compare({"a": before.record}, {"a": after.record})
    found = section(page(content(after, moved=moved, baseline="before")), "differences")
    assert "Differences from before" in found
    assert "2 claims are in both runs" in found
    assert "Changed verdicts: 1" in found
    assert "NOT SUPPORTED" in found
    for only in ("Only in before: 1", "Only in this run: 1"):
        assert only in found


def test_a_report_says_which_runs_are_quick_and_which_have_no_claims():
    both = content(card("a", finding("it falls")), card("b", finding("it falls"), quick=True))
    assert "QUICK runs: b." in Checked(page(both)).text
    text = Checked(page(content(card("a", judged=""), card("b")))).text
    assert "no claims" in text
    assert "The claims were not judged" in text
    assert "QUICK" not in text


def test_a_report_says_which_runs_have_changed_fields():
    same, other = card("a", finding("it falls")), card("b", finding("it falls"), set={"dim": 30, "trials": 2})
    both, alone = content(same, other), content(other)
    assert "Runs with dim = 30, trials = 2: b. The verdicts of" in Checked(page(both)).text
    assert "Runs with dim = 30, trials = 2. The verdicts of" in Checked(page(alone)).text
    assert both.about.startswith("Full runs, some with changed fields, in results")
    assert alone.about.startswith("Full run with changed fields in results")
    assert "changed fields" not in page(content(same))


def test_texts_are_escaped():
    odd = card("a", finding("<b>it</b> & falls", "n < 1", source="<script>", statistic="a 'share'"), headline="none")
    checked = Checked(page(content(odd)))
    assert checked.wrong == []
    assert "<b>it</b> & falls" in checked.text
    assert len(checked.all("script")) == 1


# --- the committed results -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_report_on_the_committed_results_is_whole():
    found = collected(str(COMMITTED))
    text = page(found)
    checked = Checked(text)
    assert checked.wrong == []
    claims = sum(len(card.record.claims) for card in found.cards.values())
    assert len(checked.all("tr")) == claims > 1000
    assert f"{claims:,} claims in {len(found.cards)} experiments" in checked.text
    lists = {kind: section(text, kind) for kind in ("agrees", "contradicts", "undecided", "ours")}
    for row in found.scoreboard:
        one, kind = row.statement, row.statement.outcome
        assert isinstance(one, Statement)
        listed = lists["ours" if one.is_ours else kind]
        assert row.judged in listed
        assert f"{row.paper}; {one.setting}: {measured(one.worst)}; required: {one.required}; " in listed
        assert (one.worst.verdict.kind == AGAINST) == (kind == "contradicts")
    for name, card in found.cards.items():
        stems = {f"{name}-{key}" if key else name for key in card.record.figures}
        assert stems <= {one.stem for one in found.pictures[name]}, "run python -m docs.tools.pictures"
