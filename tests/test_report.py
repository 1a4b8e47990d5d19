"""`linfed report`: one page and one Markdown file from saved results, without computing anything."""

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

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

import linfed as lf
from linfed import cli
from linfed.errors import UsageError
from linfed.figures.png import shrunk
from linfed.figures.style import COLUMN_WIDTH, STYLE, style
from linfed.report.lines import PLACES, read
from linfed.report.looks import plain
from linfed.report.page import page
from linfed.report.svg import chart, symbols
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
        return {"error": lf.Along(start * rate**rounds / self.size, round=rounds)}

def cells(quick):
    return {"curves": lf.grid(Cell(), method=("FedRep", "FedAvg"), size=(1, 2))}

def plot(tables):
    with lf.page(tables["curves"], column="size", title="n = {}") as sheet:
        sheet.curves("round", "error")
        sheet.label("round", "error")
        sheet.legend("median and 10-90 %")
        sheet.axes[0, 0].axhline(0.1, color="0.5")
    map = Figure(figsize=(2, 2))
    map.subplots().imshow(np.eye(3))
    return {"": sheet.figure, "map": map}

def claims(tables):
    said = dict(statistic="share | of trials", source='a paper, Theorem 1: "errors <fall>"', least=0.5)
    failing = Hypothesis(text="eta <= 1", left=2.0, right=1.0)
    return [
        judge((0.9, 0.8, 1.0), text="FedRep's error falls", where="n = 1", **said),
        judge((0.4, 0.3, 0.45), text="FedRep's error falls", where="n = 2", note="a *note*", **said),
        judge((0.6, 0.4, 0.8), text="FedAvg's error falls", where="n = 1", theorem=True, hypotheses=(failing,), **said),
        judge((float("nan"),) * 3, text="FedAvg's error rises", where="n = 1", **said),
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
        assert run("report", results, "--out", out, "--experiments", folder, "--against", results) == 0
    sys.path[:] = before
    return out, said.getvalue()


class Checked(html.parser.HTMLParser):
    """A page's elements, and what is wrong with it."""

    EMPTY = ("meta", "link", "img", "input", "br", "path", "use", "rect")

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.wrong, self.said, self.scripts = [], [], [], [], []
        self.feed(text)
        self.wrong += [f"{tag} is not closed" for tag in self.open]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        self.wrong += [f"{tag} has {name} twice" for name in names if names.count(name) > 1]
        self.found.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"{tag} is closed where it is not open")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
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
    links = [attrs["href"] for attrs in (*checked.all("a"), *checked.all("use"))]
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


def test_every_picture_is_there_with_words(checked, toy):
    images = checked.all("img")
    assert [image["alt"].startswith("Figure toy-fall") for image in images] == [True, True]
    for image, name in zip(images, ("toy-fall.png", "toy-fall-map.png"), strict=True):
        shown = Image.open(io.BytesIO(base64.b64decode(image["src"].partition(",")[2])))
        beside = Image.open(toy[1] / name)
        assert shown.size == (int(image["width"]), int(image["height"])) == beside.size
        assert np.abs(np.asarray(shown.convert("RGB"), int) - np.asarray(beside.convert("RGB"))).mean() < 1
    assert "2 panels. error against round. panels n = 1; n = 2. lines FedRep, FedAvg." in images[0]["alt"]


def test_the_page_says_all_that_the_record_does(checked, toy):
    record = json.loads((toy[1] / "toy-fall.json").read_text())
    text = plain_lines(checked.text)
    for claim in record["claims"]:
        for part in ("text", "where", "statistic", "source", "said", "verdict", "note"):
            assert plain_lines(claim[part]) in text
    for told in ("0.9 [0.8, 1]", "0.4 [0.3, 0.45]", "fails: eta <= 1: 2 > 1", "- [-, -]", "QUICK runs."):
        assert told in text
    assert [record["claims"][index]["verdict"] for index in range(4)] == [
        *("SUPPORTED", "NOT SUPPORTED", "HYPOTHESES FAIL", "VACUOUS")
    ]
    for told in ("machine", "commit"):
        assert str(record[told] or "not known")[:12] in text
    assert SUMMARY in text


def test_the_values_on_hover_are_the_tables(checked, toy):
    table = lf.Table.load(toy[1] / "toy-fall-curves.npz")
    (told,) = [json.loads(script) for script in checked.scripts if script.startswith("[")]  # the map has none
    assert [panel["x"] for panel in told] == ["round", "round"]
    for panel, size in zip(told, (1, 2), strict=True):
        assert [line["n"] for line in panel["lines"]] == ["FedRep", "FedAvg"]  # the level has no values
        for line in panel["lines"]:
            row = table.where(method=line["n"], size=size)
            values = row["error"]
            assert line["x"] == row["round"].tolist()
            assert np.allclose(line["y"], np.median(values, axis=0), rtol=1e-3)
            assert np.allclose(line["l"], np.quantile(values, 0.1, axis=0, method="inverted_cdf"), rtol=1e-3)
            assert np.allclose(line["h"], np.quantile(values, 0.9, axis=0, method="inverted_cdf"), rtol=1e-3)


def test_without_pictures_they_are_drawn_from_the_tables(toy, tmp_path):
    """And the record's captions come first."""
    folder, results = toy
    shutil.copy(results / "toy-fall-curves.npz", tmp_path)
    path = tmp_path / "toy-fall.json"
    record = json.loads((results / "toy-fall.json").read_text())
    path.write_text(json.dumps(record | {"figures": {"map": "what <the> map shows"}}))
    before = plt.get_fignums()
    found = collected(str(path), experiments=str(folder))
    pictures, remarks = found.shown["toy-fall"].pictures, found.shown["toy-fall"].remarks
    assert [(one.stem, one.chart is not None) for one in pictures] == [("toy-fall", True), ("toy-fall-map", False)]
    assert [one.caption for one in pictures] == [f"{SUMMARY}. Sizes: 5 trials.", "what <the> map shows"]
    assert pictures[0].width == pytest.approx(1400, abs=2)
    assert (remarks, plt.get_fignums()) == ([], before)
    assert "what &lt;the&gt; map shows" in page(found)
    with style():
        figures = load("toy-fall", folder).plot({"curves": lf.Table.load(tmp_path / "toy-fall-curves.npz")})
        for picture, figure in zip(pictures, figures.values(), strict=True):
            drawn = io.BytesIO()
            figure.savefig(drawn, format="png", dpi=min(300.0, 1400 / figure.get_figwidth()))
            assert np.array_equal(
                shrunk(drawn, 1400).convert("RGB"), Image.open(io.BytesIO(picture.png)).convert("RGB")
            )
    plt.close("all")


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


def test_without_the_experiment_there_are_the_pictures_that_lie_there(toy, no_experiments):
    found = collected(str(toy[1]), experiments=no_experiments).shown["toy-fall"]
    assert ["no values on hover" in remark for remark in found.remarks] == [True]
    assert [(one.stem, one.chart) for one in found.pictures] == [("toy-fall", None), ("toy-fall-map", None)]


def test_the_markdown_says_the_same(written, toy):
    text = (written[0] / "REPORT.md").read_text(encoding="utf-8")
    record = json.loads((toy[1] / "toy-fall.json").read_text())
    for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)", text):
        assert (written[0] / picture).is_file()
    assert text.count("![") == 2
    tables = re.findall(r"(?m)^\|.*(?:\n\|.*)+", text)
    bars = [{len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} for table in tables]
    assert all(len(count) == 1 for count in bars)
    told = text.replace("\\", "").replace("&lt;", "<")
    for claim in record["claims"]:
        assert claim["text"] in told
        assert claim["verdict"] in told
    assert "a \\*note\\*" in text
    assert "> **QUICK runs**" in text
    assert re.search(r"<(?!/?(?:details|summary)>)", text) is None


def test_the_command_says_what_it_wrote(written, checked):
    folder, said = written
    wrote = [Path(line.removeprefix("wrote ")) for line in said.splitlines()]
    assert [path.name for path in wrote] == ["report.html", "REPORT.md", "toy-fall.png", "toy-fall-map.png"]
    assert {path for path in folder.rglob("*") if path.is_file()} == set(wrote)
    assert "4 claims are in both" in checked.text
    assert "Verdicts that moved: 0" in (folder / "REPORT.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("report", "nowhere"), "FOLDER 'nowhere' does not exist"),
        (("report", "resluts"), "FOLDER 'resluts' does not exist (did you mean 'results'?)"),
        (("report", "results"), "'results' holds no NAME.json that linfed reproduce wrote; there are some in results"),
        (("report", "torn"), "'torn/one.json' cannot be read as a run's record"),
        (("report", "other.json"), "FOLDER 'other.json' is not a NAME.json that linfed reproduce wrote"),
        (("compare", "nowhere", "torn"), "A 'nowhere' does not exist"),
        (("compare", "results/quick", "nowhere"), "B 'nowhere' does not exist"),
        (("compare", "results/quick", "results/quick", "--relative", "-1"), "--relative -1.0 must be at least 0"),
        (("report", "results/quick", "--experiments", "none"), "--experiments none is no folder"),
        (("report", "results/quick", "--against", "nowhere"), "--against 'nowhere' does not exist"),
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
    bodies = checked.text.count("said: ")
    assert bodies >= claims
    assert f"{claims:,} claims in {len(found.records)} experiments" in plain_lines(checked.text)
    assert len(found.scoreboard) == len({(row.experiment, row.judged) for row in found.scoreboard})
    assert found.quick == []


def test_the_theory_of_the_page_is_that_of_the_docs():
    """`docs/theory.md` is made by the same function."""
    told = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").replace("\\|", "|")
    found = collected(str(COMMITTED / "fedrep-million.json"), experiments=str(ROOT / "experiments"))
    assert found.shown["fedrep-million"].pictures[0].chart is not None
    statements = sections(found.records)["FedRep"]["fedrep-million"]
    assert statements
    assert all(f"| {one.text} | {one.source} | {one.verdict} | {one.measured} |" in told for one in statements)


# --- what a figure draws -------------------------------------------------------------------------------------


@pytest.fixture
def axes():
    figure, ax = plt.subplots(figsize=(COLUMN_WIDTH, 2))
    yield ax
    plt.close(figure)


def drawn(ax):
    ax.figure.draw_without_rendering()
    return read(ax.figure)


def test_bars_are_the_ends_of_their_points(axes):
    axes.errorbar([1, 2], [10, 20], yerr=[[1, 2], [3, 4]], fmt="o", color="#0072B2", capsize=2, label="a")
    found = drawn(axes)
    (curve,) = found.panels[0].curves  # caps are no lines of their own
    assert (curve.low.tolist(), curve.high.tolist()) == ([9, 18], [13, 24])
    assert [area.group for area in found.panels[0].areas] == [0]
    assert curve.dashes == "none"


def test_lines_without_a_label_belong_to_those_that_look_alike(axes):
    axes.plot([0, 1], [1, 2], color="#0072B2", label="a")
    axes.plot([0, 1], [2, 3], color="#D55E00", label="b")
    axes.plot([0, 1], [3, 4], "o", color="#D55E00")
    axes.plot([0, 1], [3, 4], color="#009E73")
    axes.axhline(2.5, color="#000000")
    found = drawn(axes)
    assert [curve.group for curve in found.panels[0].curves] == [0, 1, 1, None, None]
    assert [curve.values is None for curve in found.panels[0].curves] == [False] * 4 + [True]


def test_points_lie_where_matplotlib_draws_them(axes):
    axes.set(xscale="log", yscale="symlog")
    axes.plot([1, 10, 100], [-5.0, np.nan, 50.0], label="a")
    (curve,) = drawn(axes).panels[0].curves
    wanted = axes.transAxes.inverted().transform(axes.transData.transform([[1, -5], [100, 50]]))
    assert np.allclose(curve.places[[0, 2]], wanted)
    assert np.isnan(curve.places[1, 1])
    (path,) = re.findall(r'data-curve="0"[^>]* d="([^"]*)"', chart(drawn(axes)))
    assert re.sub(r"[-\d. ]+", "", path) == "MM"  # no line over the gap


def test_markers_lie_on_their_line(axes):
    axes.plot([1, 2, 4], [3.0, 1.0, 2.0], "o-", label="a")
    text = chart(drawn(axes))
    (path,) = re.findall(r'data-curve="0"[^>]* d="([^"]*)"', text)
    marks = re.findall(r"translate\(([-\d.]+) ([-\d.]+)\)", text.partition('<g class="marks"')[2].partition("</g>")[0])
    assert marks == [tuple(corner.split()) for corner in re.split("[ML]", path)[1:]]
    heights = [float(y) for _, y in marks]
    assert heights[0] < heights[2] < heights[1]  # larger values lie higher, and y points down


def test_long_lines_are_thinned_to_what_is_seen(axes):
    x = np.arange(1, 20_001)
    axes.plot(x, 1 / x, label="a")
    axes.set(xscale="log", yscale="log")
    (curve,) = drawn(axes).panels[0].curves
    assert len(curve.values) <= PLACES + 1
    assert curve.values[[0, -1], 0].tolist() == [1, 20_000]
    assert np.diff(curve.places[:, 0]).max() < 0.07  # between 1 and 2, of four decades


def test_a_figure_with_a_map_is_left_to_its_picture(axes):
    axes.plot([0, 1], [0, 1])
    assert drawn(axes) is not None
    axes.pcolormesh(np.eye(3))
    assert drawn(axes) is None


def test_a_figure_without_lines_has_no_chart(axes):
    axes.text(0, 0, "nothing")
    assert drawn(axes) is None


def test_symbols_are_those_of_the_markers(axes):
    axes.plot([0, 1], [0, 1], "^", label="a")
    found = drawn(axes)
    ids = set(re.findall('id="([^"]*)"', symbols([found])))
    assert set(re.findall('href="#([^"]*)"', chart(found))) == ids != set()


@pytest.mark.parametrize(
    ("text", "told"),
    [("$10^{-2}$", "10⁻²"), (r"$\Vert S - S^*\Vert_F$", "‖S - S*‖_F"), ("5 % & more", "5 % & more"), ("B*", "B*")],
)
def test_mathematics_is_told_plainly(text, told):
    assert plain(text) == told


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
    with pytest.raises(UsageError, match=rf"toy-fall\.json' cannot be read as a run's record \({told}\)$"):
        collected(str(tmp_path), experiments=str(toy[0]))


def test_a_record_nested_too_deeply_is_one_line(tmp_path):
    (tmp_path / "one.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"one\.json' cannot be read as a run's record \(it is nested too deeply\)"):
        collected(str(tmp_path))
