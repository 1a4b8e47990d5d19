"""The gallery has a page for each experiment with all its claims, and the tutorials one for each notebook."""

import csv
import io
import json
import re
from collections import Counter

import numpy as np
import pytest

from docs.tools import gallery, paths, tutorials
from docs.tools.paths import COMMITTED, DOCS, NOTEBOOKS
from linfed.reproduction.experiments import experiment_files
from linfed.reproduction.record import RunRecord, TableRecord
from linfed.statistics import Hypothesis, Origin
from tests.helpers import finding

EXPERIMENTS = set(experiment_files(paths.EXPERIMENTS))


@pytest.mark.long
def test_the_gallery_has_every_experiment_with_all_its_claims(tmp_path):
    assert set(gallery.write(tmp_path)) == EXPERIMENTS
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for name in EXPERIMENTS:
        claims = json.loads((COMMITTED / f"{name}.json").read_text(encoding="utf-8"))["claims"]
        page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        wanted = Counter(claim["verdict"] for claim in claims)
        titles = re.findall(r"(?m)^:::\{dropdown\} .*", page)
        counted = Counter()
        for verdict, number in re.findall(r"\}`([A-Z ]+) (\d+)`", "".join(titles)):
            counted[verdict] += int(number)
        assert counted == wanted, name
        rows = Counter(re.findall(r"(?m)^\| \{bdg-\w+\}`([A-Z ]+)` \|", page))  # of statements with several settings
        alone = Counter(found[1] for one in titles if (found := re.fullmatch(r"[^`]*\{bdg-\w+\}`([A-Z ]+) 1` .*", one)))
        assert rows <= wanted <= rows + alone, name
        assert (tmp_path / f"{name}-claims.csv").read_text(encoding="utf-8").count("\n") >= len(claims)
        assert f":link: {name}\n" in index
        for link in re.findall(r"\]\((\.\./[^)]+)\)", page):
            assert (DOCS / "_generated" / "experiments" / link).resolve().exists(), link
        for file in re.findall(r"`[^`<]*<([^`>\s]+)>`", page):
            assert (tmp_path / file).exists() or (DOCS / "_generated" / "experiments" / file).resolve().exists(), file


def test_a_card_is_shown_with_its_settings_and_statements():
    fails = Hypothesis(text="n <= m", left=2.0, right=1.0)
    claims = (
        finding("it falls", detail="9 of 10"),
        finding("it falls", "n = 2", theorem=True, hypotheses=(fails,)),
        finding("it falls", low=np.nan, note="few | trials", statistic="ratio"),
    )
    table = TableRecord(rows=3, shared={"rank": 2, "sizes": (1, (2, 3))})
    record = RunRecord(experiment="fedrep-fig1", quick=False, tables={"runs": table}, claims=claims)
    card = gallery.cards_of({"fedrep-fig1": record}, gallery.EXPERIMENTS)["fedrep-fig1"]
    page = "\n".join([*gallery.settings(card), *gallery.judged(card)])
    assert "- table `runs`, 3 rows; common to all rows: rank = 2, sizes = (1, (2, 3))" in page
    assert page.count(":::{dropdown} **it falls**") == 2
    for part in ("(9 of 10)", "1. fails: $n \\le m$: 2 \\> 1", "2. few \\| trials\n3. vacuous: nothing was measured"):
        assert part in page
    assert "(note 2, 3)" in page


def test_claims_as_csv_have_infinite_ends_and_no_missing_ones():
    claims = finding(estimate=np.nan, low=-np.inf, high=np.inf), finding(estimate=0.5, low=np.nan, high=1.0)
    rows = csv.DictReader(io.StringIO(gallery.as_csv(claims)))
    assert [[row[name] for name in ("estimate", "low", "high")] for row in rows] == [
        ["", "-inf", "inf"],
        ["0.5", "", "1.0"],
    ]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        (
            ["main: n = 9, m = 5", "main: n = 9, m = 1,000", "far: n = 9, m = 5"],
            ("n = 9", ("setting", "m"), [("main", "5"), ("main", "1,000"), ("far", "5")]),
        ),
        (["n = 5 against 2, k = 1", "n = 9, k = 2"], ("", ("n", "k"), [("5 against 2", "1"), ("9", "2")])),
        (["n = 9", "m = 5"], ("", ("setting",), [("n = 9",), ("m = 5",)])),
        (["n = d = 9", "no noise"], ("", ("setting",), [("n = d = 9",), ("no noise",)])),
        (["far: n = 5", "far: n = 9"], ("far", ("n",), [("5",), ("9",)])),
        (["n = 9", "n = 9"], ("n = 9", (), [(), ()])),
    ],
)
def test_parameters_at_the_end_of_all_settings_are_columns(settings, found):
    assert gallery.in_columns(settings) == found


def test_claims_of_papers_and_our_own_have_tables_of_their_own():
    claims = (finding("ours", origin=Origin.PREDICTION), finding("paper's", low=0.1, high=0.2, origin=Origin.QUOTED))
    card = gallery.cards_of({"one": RunRecord(experiment="one", quick=False, claims=claims)}, None)["one"]
    lines = gallery.judged(card)
    order = [line for line in lines if line.startswith("###")]
    assert order == ["### What the papers say\n", "### What linfed predicts\n"]
    assert "Papers: {bdg-danger}`NOT SUPPORTED 1`\n\nlinfed: {bdg-success}`SUPPORTED 1`" in gallery.grid_card(card)


def test_a_page_begins_with_its_place_in_the_paper():
    name = "flute-theorem55"
    card = gallery.cards_of({name: gallery.RUNS.read(name)}, gallery.EXPERIMENTS)[name]
    page = gallery.page(card, gallery.load(name, gallery.EXPERIMENTS))
    assert page.startswith("```{index} ! flute-theorem55, ! Theorem 5.5\n```\n\n# FLUTE, Theorem 5.5\n")


def test_every_notebook_is_a_tutorial_with_its_outputs_and_a_link(tmp_path):
    names = tutorials.write(tmp_path)
    assert names == sorted(
        (path.stem for path in NOTEBOOKS.glob("*.ipynb")), key=lambda name: int(name.partition("_")[0])
    )
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for name in names:
        stored = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        first, *others = json.loads((tmp_path / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        assert [cell.get("outputs") for cell in others] == [cell.get("outputs") for cell in stored[1:]]
        texts = ["".join(cell["source"]).replace("](../docs/", "](../../") for cell in stored[1:]]
        assert ["".join(cell["source"]) for cell in others] == texts
        assert f"<../../../notebooks/{name}.ipynb>" in first["source"]
        assert f"]({name}.ipynb): " in index


def test_every_experiment_has_at_most_three_sentences_among_the_findings():
    told = {name: gallery.finding(name) for name in EXPERIMENTS}
    assert [name for name, text in told.items() if not text] == []
    sentences = {name: len(re.findall(r"[.!?](?= [A-Z]|$)", text)) for name, text in told.items()}
    assert {name: count for name, count in sentences.items() if count > 3} == {}
    assert gallery.finding("none") == ""
