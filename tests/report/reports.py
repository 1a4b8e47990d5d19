"""A report on a quick run with pictures, and a parser of pages."""

import contextlib
import functools
import html.parser
import io
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from linfed.reproduction.record import ResultsFolder, RunRecord
from linfed.statistics.findings import Hypothesis
from tests.helpers import finding
from tests.reproduction.toys import run

SOURCE = 'a paper, Theorem 1: "errors <fall>"'
FAILING = Hypothesis(text="eta <= 1", left=2.0, right=1.0)
CLAIMS = (
    finding("FedRep's error falls", "n = 1"),
    finding("FedRep's error falls", "n = 2", 0.4, 0.3, 0.45, note="a *note*"),
    finding("FedAvg's error falls", "n = 1", 0.6, 0.4, 0.8, theorem=True, hypotheses=(FAILING,)),
    finding("FedAvg's error rises", "n = 1", *[float("nan")] * 3),
)
RECORD = RunRecord(
    experiment="toy-fall",
    quick=True,
    date="2026-01-02",
    commit="a" * 40,
    machine="a machine",
    judged="",
    figures={"": "Two methods, at sizes < three & more.", "map": "A map."},
    claims=tuple(replace(one, source=SOURCE, statistic="share | of trials") for one in CLAIMS),
)


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """The folder of a quick run with two pictures and a claim of each kind."""
    folder = ResultsFolder(tmp_path_factory.mktemp("results"))
    folder.write(RECORD)
    for key, size in (("", (600, 300)), ("map", (300, 300))):
        figure = Figure(figsize=(size[0] / 100, size[1] / 100))
        figure.subplots().plot([1, 2])
        figure.savefig(folder.figure("toy-fall", key), dpi=100)
    return folder.path


@pytest.fixture(scope="session")
def written(results, tmp_path_factory):
    """The folder that a report on the run was written into, and what the command said."""
    out, said = tmp_path_factory.mktemp("report"), io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run("report", results, "--out", out, "--baseline", results) == 0
    return out, said.getvalue()


class Checked(html.parser.HTMLParser):
    """A page's elements, its text and the rows of its tables, and what is wrong with it."""

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
        return " ".join("".join(self.said).split())

    def all(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


def section(page, name):
    """Return the text of a section of a page."""
    return Checked(page[page.index(f'<section id="{name}"') :].split("</section>")[0]).text
