"""`linfed report`: one page from saved results, without computing anything."""

import base64
import contextlib
import functools
import html.parser
import io
import itertools
import json
import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

import linfed as lf
from linfed import cli
from linfed.errors import UsageError
from linfed.figures.png import shrink_png
from linfed.figures.style import STYLE, style
from linfed.report import pictures
from linfed.report.page import page
from linfed.report.theory import sections
from linfed.report.write import collected
from linfed.reproduction.experiments import load

ROOT = Path(__file__).parent.parent
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
        arguments = ("reproduce", "toy-fall", "--quick", "--experiments", folder, "--out", top / "out", "--workers", 1)
        assert run(*arguments) == 0
    sys.path[:] = before
    return folder, top / "out"


@pytest.fixture(scope="module")
def written(toy, tmp_path_factory):
    """Return the folder that a report of the toy was written into, and what the command said."""
    folder, results = toy
    out, said = tmp_path_factory.mktemp("report"), io.StringIO()
    before = list(sys.path)
    with contextlib.redirect_stdout(said):
        assert run("report", results, "--out", out, "--experiments", folder, "--baseline", results) == 0
    sys.path[:] = before
    return out, said.getvalue()


class Checked(html.parser.HTMLParser):
    """A page's elements, and what is wrong with it."""

    EMPTY = ("meta", "link", "img", "input", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.wrong, self.said = [], [], [], []
        self.feed(text)
        self.wrong += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        self.wrong += [f"{tag} has {name} twice" for name in names if names.count(name) > 1]
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"{tag} is closed where it is not open")

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.said.append(data)

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


def test_every_figure_is_there_with_words(checked):
    images = checked.all("img")
    assert [image["alt"] for image in images] == [
        f"Figure toy-fall: {SUMMARY}. Sizes: 5 trials.",
        f"Figure toy-fall-map: {SUMMARY}. Sizes: 5 trials.",
    ]
    assert [int(images[1][side]) for side in ("width", "height")] == [288, 288]  # two inches
    for image in images:
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        drawn = ElementTree.fromstring(base64.b64decode(data))
        shape = float(drawn.get("width").removesuffix("pt")) / float(drawn.get("height").removesuffix("pt"))
        assert int(image["width"]) / int(image["height"]) == pytest.approx(shape, rel=0.01)


def test_the_page_says_all_that_the_record_does(checked, toy):
    record = json.loads((toy[1] / "toy-fall.json").read_text())
    text = plain_lines(checked.text)
    for claim in record["claims"]:
        for part in ("claim", "setting", "statistic", "source", "claimed_range", "verdict", "note"):
            assert plain_lines(claim[part]) in text
    for told in ("0.9 [0.8, 1]", "0.4 [0.3, 0.45]", "fails: eta <= 1: 2 > 1", "- [-, -]", "QUICK runs."):
        assert told in text
    assert [record["claims"][index]["verdict"] for index in range(4)] == [
        *("SUPPORTED", "NOT SUPPORTED", "HYPOTHESES FAIL", "VACUOUS")
    ]
    for told in ("machine", "commit"):
        assert str(record[told] or "unknown")[:12] in text
    assert SUMMARY in text


@pytest.fixture
def alone(toy, tmp_path):
    """Return a folder with the toy's record and table, without its PNG files."""
    for name in ("toy-fall.json", "toy-fall-curves.npz"):
        shutil.copy(toy[1] / name, tmp_path)
    return tmp_path


def texts(picture):
    """Return the texts of an SVG file and their sizes in points."""
    found = ElementTree.fromstring(picture.data).iter("{http://www.w3.org/2000/svg}text")
    return [
        ("".join(text.itertext()), float(re.search(rb"([\d.]+)px", ElementTree.tostring(text))[1])) for text in found
    ]


def test_figures_are_drawn_from_the_tables_in_the_style(alone, toy):
    """The map's ticks take their size only when it is saved."""
    before = plt.get_fignums()
    shown = collected(str(alone), experiments=str(toy[0])).shown["toy-fall"]
    assert ([one.stem for one in shown.pictures], shown.remarks) == (["toy-fall", "toy-fall-map"], [])
    assert plt.get_fignums() == before
    curves, image = map(texts, shown.pictures)
    assert {("0", 7), ("10", 7), ("30", 7), ("round", 8), ("error", 8), ("n = 2", 8), ("FedAvg", 7)} <= set(curves)
    assert {("0", 7), ("2", 7)} <= set(image)
    assert {size for _, size in image} == {7}
    again = collected(str(alone), experiments=str(toy[0])).shown["toy-fall"]
    assert [one.data for one in again.pictures] == [one.data for one in shown.pictures]


def test_a_large_figure_is_a_png(alone, toy, monkeypatch):
    monkeypatch.setattr(pictures, "SVG_BYTES", 1000)
    found = collected(str(alone), experiments=str(toy[0]))
    with style():
        figures = load("toy-fall", toy[0]).plot({"curves": lf.Table.load(alone / "toy-fall-curves.npz")})
        for one, figure in zip(found.shown["toy-fall"].pictures, figures.values(), strict=True):
            assert one.kind == "image/png"
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", dpi=200)
            assert np.array_equal(
                shrink_png(drawn, 1400).convert("RGB"), Image.open(io.BytesIO(one.data)).convert("RGB")
            )
            assert [one.width, one.height] == pytest.approx(144 * figure.get_size_inches(), abs=0.5)
    plt.close("all")
    assert "data:image/png;base64," in page(found)


def test_the_captions_of_the_record_come_first(alone, toy):
    path = alone / "toy-fall.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"figures": {"map": "what <the> map shows"}}))
    found = collected(str(path), experiments=str(toy[0]))
    captions = [one.caption for one in found.shown["toy-fall"].pictures]
    assert captions == [f"{SUMMARY}. Sizes: 5 trials.", "what <the> map shows"]
    assert "what &lt;the&gt; map shows" in page(found)


def test_what_the_tables_cannot_draw_is_told_in_a_line(toy, tmp_path):
    folder, results = toy
    shutil.copy(results / "toy-fall.json", tmp_path)
    table = lf.Table.load(results / "toy-fall-curves.npz")
    reduced = lf.Table([{name: value for name, value in row.items() if name != "error"} for row in table.rows])
    reduced.save(tmp_path / "toy-fall-curves.npz")
    found = collected(str(tmp_path), experiments=str(folder))
    assert found.shown["toy-fall"].pictures == []
    (told,) = found.shown["toy-fall"].remarks
    assert "cannot be drawn from these tables" in told
    assert "'error'" in told
    assert "\n" not in told
    assert "linfed reproduce toy-fall" in Checked(page(found)).text


@pytest.fixture
def no_experiments(tmp_path):
    """Return a folder without an experiment: nothing is drawn."""
    folder = tmp_path / "none"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    return str(folder)


def test_without_the_experiment_its_png_files_are_shown(toy, no_experiments):
    found = collected(str(toy[1]), experiments=no_experiments).shown["toy-fall"]
    assert ["the figures are the PNG files" in remark for remark in found.remarks] == [True]
    assert [one.stem for one in found.pictures] == ["toy-fall", "toy-fall-map"]
    for one in found.pictures:
        assert one.kind == "image/png"
        with Image.open(io.BytesIO(one.data)) as shown, Image.open(toy[1] / f"{one.stem}.png") as beside:
            assert shown.size == (one.width, one.height) == beside.size
            assert np.abs(np.asarray(shown.convert("RGB"), int) - np.asarray(beside.convert("RGB"))).mean() < 1


def test_the_command_says_what_it_wrote(written, checked):
    folder, said = written
    assert said == f"wrote {folder / 'report.html'}\n"
    assert [path.name for path in folder.rglob("*")] == ["report.html"]
    assert "4 claims are in both runs" in checked.text
    assert "Changed verdicts: 0" in checked.text


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
        (("report", "results/quick", "--experiments", "none"), "--experiments none must be a folder"),
        (("report", "results/quick", "--baseline", "nowhere"), "--baseline 'nowhere' does not exist"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "quick").mkdir(parents=True)
    (tmp_path / "results" / "quick" / "one.json").write_text('{"experiment": "one", "claims": []}')
    (tmp_path / "other.json").write_text("[]")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "one.json").write_text("{")
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_the_committed_results_are_whole(no_experiments):
    found = collected(str(COMMITTED), experiments=no_experiments)
    checked = Checked(page(found))
    assert checked.wrong == []
    claims = sum(len(one["claims"]) for one in found.records.values())
    assert claims > 1000
    bodies = checked.text.count("claimed: ")
    assert bodies >= claims
    assert f"{claims:,} claims in {len(found.records)} experiments" in plain_lines(checked.text)
    assert len(found.scoreboard) == len({(row.experiment, row.judged) for row in found.scoreboard})
    assert found.quick == []


def test_the_theory_of_the_page_is_that_of_the_docs():
    """`docs/theory.md` is made by the same function."""
    told = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").replace("\\|", "|")
    found = collected(str(COMMITTED / "fedrep-million.json"), experiments=str(ROOT / "experiments"))
    assert found.shown["fedrep-million"].pictures[0].kind == "image/svg+xml"
    statements = sections(found.records)["FedRep"]["fedrep-million"]
    assert statements
    assert all(f"| {one.claim} | {one.source} | {one.verdict} | {one.measured} |" in told for one in statements)


def test_a_torn_record_is_named(tmp_path):
    (tmp_path / "one.json").write_text("{")
    with pytest.raises(UsageError, match=r"one\.json"):
        collected(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seconds": None}, "seconds = None has the wrong type"),
        ({"seconds": [5]}, r"seconds = \[5\] has the wrong type"),
        ({"versions": None}, "versions = None has the wrong type"),
        ({"versions": [5]}, r"versions = \[5\] has the wrong type"),
        ({"blas": [5]}, r"blas\[0\] = 5 has the wrong type"),
        ({"claims": [5]}, r"claims\[0\] is not an object"),
        ({"estimate": "x"}, r"claims\[0\]\.estimate = 'x' has the wrong type"),
        ({"verdict": 5}, r"claims\[0\]\.verdict = 5 has the wrong type"),
        ({"verdict": "PERHAPS"}, r"claims\[0\]\.verdict = 'PERHAPS' is unknown"),
        ({"hypotheses": [{"text": "n > 1", "left": 1}]}, r"claims\[0\]\.hypotheses\[0\]\.right is missing"),
        ({"experiment": "<script>alert(1)</script>"}, "experiment = '<script>.* is not the name of an experiment"),
    ],
)
def test_an_odd_record_is_one_line(changes, told, toy, tmp_path):
    record = json.loads((toy[1] / "toy-fall.json").read_text())
    inside = changes.keys() & record["claims"][0].keys()
    (record["claims"][0] if inside else record).update(changes)
    (tmp_path / "toy-fall.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match=rf"toy-fall\.json' is not a valid record of a run \({told}\)$"):
        collected(str(tmp_path), experiments=str(toy[0]))


def test_a_record_nested_too_deeply_is_one_line(tmp_path):
    (tmp_path / "one.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"one\.json' is not a valid record of a run \(it is nested too deeply\)"):
        collected(str(tmp_path))
