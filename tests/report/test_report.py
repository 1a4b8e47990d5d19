"""`linfed report`: one page from saved results, without computing anything."""

import base64
import contextlib
import functools
import html.parser
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from linfed import cli
from linfed.errors import UsageError
from linfed.figures.style import STYLE
from linfed.report.cards import Statement, measured
from linfed.report.page import page
from linfed.report.write import collected
from linfed.statistics.findings import AGAINST, Hypothesis, Verdict
from tests.helpers import ROOT, finding, png_alone

COMMITTED = ROOT / "results" / "committed"

TOY = '''
"""Two methods whose errors fall."""
from dataclasses import dataclass
import numpy as np
from matplotlib.figure import Figure
import linfed as lf
from linfed.statistics.findings import Hypothesis, judge

SUMMARY = "errors that fall, at two sizes < three & more"

@dataclass(frozen=True)
class Cell:
    method: str = "FedRep"
    size: int = 1
    trials: int = 5
    seed: int = 0

    def run(self):
        rounds = np.arange(0, 31, 2)
        rate = {"FedRep": 0.8, "FedAvg": 0.95}[self.method]
        start = 1 + np.arange(self.trials)[:, None] / 10
        return {"error": lf.LabeledArray(start * rate**rounds / self.size, round=rounds)}

def cells(quick):
    return {"curves": lf.grid(Cell(), method=("FedRep", "FedAvg"), size=(1, 2))}

def plot(tables):
    with lf.panels(tables["curves"], column="size", title="n = {}") as sheet:
        sheet.curves("round", "error")
        sheet.label("round", "error")
        sheet.legend("median and 10-90 %")
        sheet.axes[0, 0].axhline(0.1, color="0.5")
    map = Figure(figsize=(2, 2))
    map.subplots().imshow(np.eye(3))
    return {"": sheet.figure, "map": map}

def claims(tables):
    said = dict(statistic="share | of trials", source='a paper, Theorem 1: "errors <fall>"', claimed_low=0.5)
    failing = Hypothesis(text="eta <= 1", left=2.0, right=1.0)
    return [
        judge((0.9, 0.8, 1.0), claim="FedRep's error falls", setting="n = 1", **said),
        judge((0.4, 0.3, 0.45), claim="FedRep's error falls", setting="n = 2", note="a *note*", **said),
        judge(
            (0.6, 0.4, 0.8), claim="FedAvg's error falls", setting="n = 1", theorem=True, hypotheses=(failing,), **said
        ),
        judge((float("nan"),) * 3, claim="FedAvg's error rises", setting="n = 1", **said),
    ]
'''

SUMMARY = "errors that fall, at two sizes < three & more"


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Return the folder of an experiment, and of its results with pictures, of a quick run."""
    top = tmp_path_factory.mktemp("toy")
    folder = top / f"experiments_{top.name}"  # a name of its own: modules are cached by name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy_fall.py").write_text(TOY)
    before = list(sys.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STYLE, "savefig.dpi", 60)
        patch.setattr(Figure, "savefig", png_alone)
        arguments = ("reproduce", "toy-fall", "--quick", "--experiments", folder, "--out", top / "out", "--workers", 1)
        assert run(*arguments) == 0
    sys.path[:] = before
    return folder, top / "out"


@pytest.fixture(scope="module")
def written(toy, tmp_path_factory):
    """Return the folder that a report of the toy was written into, and what the command said."""
    results = toy[1]
    out, said = tmp_path_factory.mktemp("report"), io.StringIO()
    before = list(sys.path)
    with contextlib.redirect_stdout(said):
        assert run("report", results, "--out", out, "--baseline", results) == 0
    sys.path[:] = before
    return out, said.getvalue()


class Checked(html.parser.HTMLParser):
    """A page's elements, and what is wrong with it."""

    EMPTY = ("meta", "link", "img", "input", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.wrong, self.said, self.rows = [], [], [], [], []
        self.feed(text)
        self.wrong += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        self.wrong += [f"{tag} has {name} twice" for name in names if names.count(name) > 1]
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"{tag} is closed where it is not open")

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.said.append(data)
            if "td" in self.open:
                self.rows[-1][-1] += data

    @functools.cached_property
    def text(self):
        return "".join(self.said)

    def all(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


@pytest.fixture(scope="module")
def checked(written):
    return Checked((written[0] / "report.html").read_text(encoding="utf-8"))


def plain_lines(text):
    return " ".join(text.split())


@pytest.mark.long
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


@pytest.mark.long
def test_the_page_loads_nothing_but_itself(checked):
    for tag, attrs in checked.found:
        for name in ("src", "srcset", "action", "data"):
            assert attrs.get(name, "data:").startswith("data:"), (tag, attrs)
        assert tag not in ("iframe", "object", "embed")
        assert tag != "link" or attrs["href"] == "data:,"


def test_every_figure_is_there_with_its_caption(checked, toy):
    images = checked.all("img")
    stems = ["toy-fall", "toy-fall-map"]
    assert [image["alt"] for image in images] == [f"Figure {stem}" for stem in stems]
    for stem, image in zip(stems, images, strict=True):
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/webp;base64"
        with Image.open(io.BytesIO(base64.b64decode(data))) as drawn, Image.open(toy[1] / f"{stem}.png") as beside:
            assert drawn.size == (int(image["width"]), int(image["height"])) == beside.size
            assert np.abs(np.asarray(drawn.convert("RGB"), int) - np.asarray(beside.convert("RGB"))).mean() < 2
        assert f"{stem} {SUMMARY}. Sizes: 5 trials." in plain_lines(checked.text)


def test_the_page_says_all_that_the_record_does(checked, toy):
    record = json.loads((toy[1] / "toy-fall.json").read_text())
    text = plain_lines(checked.text)
    for claim in record["claims"]:
        for part in ("claim", "setting", "statistic", "source", "verdict", "note"):
            assert plain_lines(claim[part]) in text
    assert "required: >= 0.5" in text
    assert text.count(record["claims"][0]["source"]) == 3  # once per statement
    assert checked.rows == [
        ["SUPPORTED", "n = 1", "0.9 [0.8, 1]"],
        ["NOT SUPPORTED", "n = 2", "0.4 [0.3, 0.45] (1)"],
        ["HYPOTHESES FAIL", "n = 1", "0.6 [0.4, 0.8] (1)"],
        ["VACUOUS", "n = 1", "- [-, -] (1)"],
    ]
    for told in ("fails: eta <= 1: 2 > 1", "QUICK runs."):
        assert told in text
    for told in ("machine", "commit", "date"):
        assert str(record[told] or "unknown")[:12] in text
    assert SUMMARY in text


@pytest.fixture
def alone(toy, tmp_path):
    """Return a folder with the toy's record, without its figures."""
    shutil.copy(toy[1] / "toy-fall.json", tmp_path)
    return tmp_path


def test_the_page_has_the_meanings_of_the_verdicts_that_occur(checked):
    legend = {verdict.value: verdict.meaning in checked.text for verdict in Verdict}
    assert {name for name, listed in legend.items() if listed} >= {"SUPPORTED", "HYPOTHESES FAIL", "VACUOUS"}
    assert not legend["INCONCLUSIVE"]


def test_large_figures_are_reduced_and_small_ones_kept(alone):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 90, 3), dtype=np.uint8))
    image.save(alone / "toy-fall.png", dpi=(300, 300))
    image.save(alone / "toy-fall-map.webp", lossless=True)
    first, second = collected(str(alone)).pictures["toy-fall"]
    assert [(first.width, first.height), (second.width, second.height)] == [(45, 20), (90, 40)]
    with Image.open(io.BytesIO(first.data)) as small:
        assert small.size == (45, 20)
        assert len(small.convert("RGB").getcolors()) <= 48
    assert second.data == (alone / "toy-fall-map.webp").read_bytes()


def test_figures_of_other_experiments_are_left_out(alone):
    record = json.loads((alone / "toy-fall.json").read_text())
    (alone / "toy-fall-far.json").write_text(json.dumps(record | {"experiment": "toy-fall-far"}))
    for stem in ("toy-fall-new", "toy-fall-far", "toy-fall-far-map", "toy"):
        Image.new("RGB", (3, 3)).save(alone / f"{stem}.png")
    found = collected(str(alone)).pictures
    stems = {name: [one.stem for one in pictures] for name, pictures in found.items()}
    assert stems == {"toy-fall": ["toy-fall-new"], "toy-fall-far": ["toy-fall-far", "toy-fall-far-map"]}


def test_the_captions_are_those_of_the_record(alone):
    path = alone / "toy-fall.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"figures": {"map": "what <the> map shows"}}))
    Image.new("RGB", (3, 3)).save(alone / "toy-fall-map.png")
    found = collected(str(path))
    assert [one.caption for one in found.pictures["toy-fall"]] == ["what <the> map shows"]
    assert "what &lt;the&gt; map shows" in page(found)


def test_a_run_without_figures_says_how_to_draw_them(alone):
    text = Checked(page(collected(str(alone)))).text
    assert f"No figures next to the record; linfed replot toy-fall --out {alone} draws them." in text


@pytest.mark.long
def test_a_report_draws_nothing(alone):
    code = "import sys; from linfed import cli; cli.main(sys.argv[1:]); print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(alone)], capture_output=True, text=True, check=True, env=environment
    )
    assert "linfed.report.page" in done.stdout.split()
    assert "matplotlib" not in done.stdout.split()


def test_the_title_says_what_when_and_which_commit(alone):
    path = alone / "toy-fall.json"
    record = json.loads(path.read_text())
    found = collected(str(path))
    assert found.title == "linfed: results of toy-fall"
    assert found.about.startswith(f"Quick run of {record['date']} in {path}; commit ")
    for name, day in (("b", "2026-01-02"), ("c", "2026-01-03"), ("d", "2026-01-03")):
        changes = {"experiment": name, "date": day, "commit": name * 40, "quick": False}
        (alone / f"{name}.json").write_text(json.dumps(record | changes))
    path.unlink()
    found = collected(str(alone))
    assert found.title == "linfed: results of b, c and d"
    assert found.about == (
        f"Full runs of 2026-01-02 to 2026-01-03 in {alone}; commits {'b' * 12}, {'c' * 12}, {'d' * 12}. "
        "Nothing was recomputed."
    )


def part(text, name):
    """Return the text of a section of a page."""
    return plain_lines(Checked(text[text.index(f'<section id="{name}"') :].split("</section>")[0]).text)


def test_claims_are_listed_by_outcome(alone):
    text = page(collected(str(alone)))
    assert "FedRep's error falls SUPPORTED 1 NOT SUPPORTED 1 a paper, Theorem 1; n = 2" in part(text, "contradicts")
    assert part(text, "agrees").endswith("None.")
    assert "FedAvg's error falls HYPOTHESES FAIL" in part(text, "undecided")
    assert "FedAvg's error rises VACUOUS" in part(text, "undecided")


@pytest.mark.long
def test_long_reports_list_the_scoreboard_and_count_other_claims():
    found = collected(str(COMMITTED))
    text = page(found)
    lists = {kind: part(text, kind) for kind in ("agrees", "contradicts", "undecided")}
    for row in found.scoreboard:
        one, kind = row.statement, row.statement.outcome
        assert row.judged in lists[kind]
        assert f"{row.paper}; {one.setting}: {measured(one.worst)}; required: {one.required}; " in lists[kind]
        assert (one.worst.verdict.kind == AGAINST) == (kind == "contradicts")
    others = sum(map(int, re.findall(r"<p>(\d+) other claims?: ", text)))
    main = {(name, one.claim) for name, card in found.cards.items() for one in card.declared.headlines}
    every = [(name, one.claim) for name, card in found.cards.items() for one in card.statements]
    assert others == sum(one not in main for one in every) > 100


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
    least, most = ends
    ranges = {"claimed_low": least, "claimed_high": most}
    claims = [finding(setting=str(i), low=low, high=high, **ranges) for i, (low, high) in enumerate(intervals)]
    assert Statement(claims).setting == str(wanted)


def test_the_command_says_what_it_wrote(written, checked):
    folder, said = written
    assert said == f"wrote {folder / 'report.html'}\n"
    assert [path.name for path in folder.rglob("*")] == ["report.html"]
    assert "4 claims are in both runs" in checked.text
    assert "Changed" not in checked.text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("report", "nowhere"), "FOLDER 'nowhere' does not exist"),
        (("report", "resluts"), "FOLDER 'resluts' does not exist (did you mean 'results'?)"),
        (
            ("report", "results"),
            "'results' does not contain a NAME.json from linfed reproduce; these folders do: results",
        ),
        (("report", "torn"), "'torn/one.json' is not a valid record of a run"),
        (("report", "other.json"), "FOLDER 'other.json' is not a NAME.json from linfed reproduce"),
        (("compare", "nowhere", "torn"), "A 'nowhere' does not exist"),
        (("compare", "results/quick", "nowhere"), "B 'nowhere' does not exist"),
        (("compare", "results/quick", "results/quick", "--rtol", "-1"), "--rtol -1.0 must be at least 0"),
        (("report", "results/quick", "--baseline", "nowhere"), "--baseline 'nowhere' does not exist"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "quick").mkdir(parents=True)
    (tmp_path / "results" / "quick" / "one.json").write_text(
        '{"experiment": "one", "format": 2, "quick": true, "claims": []}'
    )
    (tmp_path / "other.json").write_text("[]")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "one.json").write_text("{")
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_the_report_on_the_committed_results_is_whole_and_small():
    found = collected(str(COMMITTED))
    text = page(found)
    checked = Checked(text)
    assert checked.wrong == []
    claims = sum(len(card.record.claims) for card in found.cards.values())
    assert claims > 1000
    assert len(checked.all("tr")) == claims
    assert f"{claims:,} claims in {len(found.cards)} experiments" in plain_lines(checked.text)
    assert len(found.scoreboard) == len({(row.experiment, row.judged) for row in found.scoreboard})
    assert found.quick == []
    assert not any("open" in attrs for attrs in checked.all("details"))
    assert len(text.encode()) <= 1_180 * claims
    for name, card in found.cards.items():
        stems = {f"{name}-{key}" if key else name for key in card.record.figures}
        assert stems <= {one.stem for one in found.pictures[name]}, "run python docs/pictures.py"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seconds": None}, "seconds = None has the wrong type"),
        ({"seconds": [5]}, r"seconds = \[5\] has the wrong type"),
        ({"versions": None}, "versions = None has the wrong type"),
        ({"versions": [5]}, r"versions = \[5\] has the wrong type"),
        ({"blas": [5]}, r"blas\[0\] = 5 has the wrong type"),
        ({"claims": [5]}, r"claims\[0\] = 5 has the wrong type"),
        ({"claims": {}}, r"claims = \{\} has the wrong type"),
        ({"tables": {"a": {"rows": 2.5}}}, r"tables\.a\.rows = 2\.5 has the wrong type"),
        ({"cells": True}, "cells = True has the wrong type"),
        ({"machine": "\ud800"}, "machine = '.*' cannot be printed"),
        ({"format": 1}, "its format is 1 instead of 2"),
        ({"estimate": "x"}, r"claims\[0\]\.estimate = 'x' has the wrong type"),
        ({"verdict": 5}, r"claims\[0\]\.verdict = 5, but its numbers give SUPPORTED"),
        ({"verdict": "NOT SUPPORTED"}, r"claims\[0\]\.verdict = 'NOT SUPPORTED', but its numbers give SUPPORTED"),
        ({"low": 0.1}, r"claims\[0\]\.verdict = 'SUPPORTED', but its numbers give INCONCLUSIVE"),
        ({"source": "\u2028"}, r"claims\[0\]: source = '.*' must name the source of the claim: .*"),
        ({"claimed_high": 0.4}, r"claims\[0\]: claimed_low = 0\.5 must be at most claimed_high = 0\.4"),
        ({"claimed_low": "-inf"}, r"claims\[0\]: claimed_low and claimed_high do not bound the statistic of .*"),
        ({"hypotheses": [{"text": "n > 1", "left": 1}]}, r"claims\[0\]\.hypotheses\[0\]\.right is missing"),
        ({"experiment": "<script>alert(1)</script>"}, "experiment = '<script>.* is not the name of an experiment"),
    ],
)
def test_an_odd_record_is_one_line(changes, told, toy, tmp_path):
    """Its claims can be judged anew; the rest must be computed."""
    record = json.loads((toy[1] / "toy-fall.json").read_text())
    inside = changes.keys() & record["claims"][0].keys()
    (record["claims"][0] if inside else record).update(changes)
    (tmp_path / "toy-fall.json").write_text(json.dumps(record))
    again = "replot" if inside or "claims" in changes or "format" in changes else "reproduce"
    again = rf"linfed {again} toy-fall --out {re.escape(str(tmp_path))}"
    told = rf"toy-fall\.json' is not a valid record of a run \({told}\): rewrite it with {again}$"
    with pytest.raises(UsageError, match=told):
        collected(str(tmp_path))


def test_a_record_nested_too_deeply_is_one_line(tmp_path):
    (tmp_path / "one.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"one\.json' is not a valid record of a run \(it is nested too deeply\)"):
        collected(str(tmp_path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_a_record_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "one.json")
    with pytest.raises(UsageError, match=r"one\.json' is not a valid record of a run \(it is not a regular file\)"):
        collected(str(tmp_path))
