"""The site's sources: code in pages is run, what is generated is whole, and names that pages give exist."""

import importlib
import json
import operator
import re
import sys
import tomllib
from collections import Counter

import numpy as np
import pytest
from PIL import Image

import linfed as lf
from docs.vocabulary import COMMITTED, TOP
from linfed.reproduction.experiments import experiment_files
from linfed.reproduction.record import RunRecord, TableRecord
from linfed.statistics import Hypothesis
from tests.helpers import finding

README, DOCS = "README.md", TOP / "docs"
PAGES = [
    path.relative_to(TOP).as_posix()
    for path in sorted(DOCS.rglob("*.md"))
    if not any(part.startswith("_") for part in path.relative_to(DOCS).parts)
]
REPOSITORY = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
EXPERIMENTS = set(experiment_files(TOP / "experiments"))


@pytest.fixture(scope="module")
def site():
    """The scripts of the site, as its build imports them: with docs/ on the path."""
    before = set(sys.modules)
    sys.path.insert(0, str(DOCS))
    names = ("gallery", "reference", "tutorials", "usage")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(DOCS))
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and sys.modules[name].__file__.startswith(str(DOCS)):
            del sys.modules[name]


# --- code in pages -------------------------------------------------------------------------------------------


def not_run(text):
    """Return the Python blocks of a page that the doctests would leave out, wholly or in part; not those of a file."""
    file = (DOCS / "guide" / "floor.py").read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^[ >]*```+ *\{?(?:python|py|python3|pycon|code-cell)\b[^\n]*\n(.*?)^[ >]*```", text)
    return [one for one in blocks if one not in file and (not one.startswith(">>> ") or "+SKIP" in one)]


@pytest.mark.parametrize("name", [README, *PAGES])
def test_every_block_of_python_is_run(name):
    assert not_run((TOP / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "```python\nx = 1\n```\n",
        "```{code-cell}\nx\n```\n",
        "```python\n>>> f()  # doctest: +SKIP\n```\n",
        "```py\nx\n```\n",
    ],
)
def test_a_block_that_is_not_run_is_found(text):
    assert len(not_run(f"```python\n>>> 1\n1\n\n```\n\n{text}")) == 1


# --- names and links -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [README, *PAGES])
def test_names_and_links_are_there(name):
    text = (TOP / name).read_text(encoding="utf-8")
    named = {
        one for names in re.findall(r"linfed\s+reproduce((?:\s+[a-z]+-[a-z0-9-]+)+)", text) for one in names.split()
    }
    assert named <= EXPERIMENTS
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        path = in_the_repository(link) if link.startswith("https:") else (TOP / name).parent / link
        assert path is None or path.exists(), link


def in_the_repository(link):
    """Return the path that a link to the repository means; None for one that leads elsewhere."""
    found = re.fullmatch(rf"{re.escape(REPOSITORY)}/(?:blob|raw)/main/(.+)", link)
    assert found or REPOSITORY not in link, link
    return TOP / found[1] if found else None


def test_links_of_the_readme_are_relative_here_and_absolute_for_the_package_index():
    """A package index shows the page away from the files beside it."""
    hook = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    text = (TOP / README).read_text(encoding="utf-8")
    assert [link for link in re.findall(r"\]\(([^)]+)\)", text) if REPOSITORY in link] == []
    for one in hook["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not link.startswith("https://")] == []
    inside = [link for link in links if link.startswith(REPOSITORY)]
    assert inside
    assert all(in_the_repository(link).exists() for link in inside)


# --- settings ------------------------------------------------------------------------------------------------

COLUMNS = {"m": "n_samples", "n": "n_clients", "d": "dim", "k": "rank", "eta": "step_size", "m_new": "n_new"}
"""The tables' columns, or axes, of the letters in the pages."""

ELSEWHERE = {"docs/averaging.md": {"d = 5"}}
"""Settings of a script."""


@pytest.fixture(scope="module")
def known():
    """The values of each of COLUMNS in the committed tables."""
    found = {column: set() for column in COLUMNS.values()}
    for path in COMMITTED.glob("*.npz"):
        with np.load(path) as arrays:  # of the arrays, only those that are needed
            for number, row in enumerate(json.loads(str(arrays["description"]))["table"]):
                for column, value in row.items():
                    if column in found:
                        found[column].add(float(value["value"]))
                    if "n_new" in value.get("axes", ()):
                        found["n_new"] |= set(map(float, arrays[f"{number}/{column}//n_new"]))
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({README, *PAGES} - {"docs/theory.md", "docs/scoreboard.md"}))
def test_settings_that_a_page_names_are_in_the_committed_tables(name, known):
    text = re.sub(r"(?s)```.*?```|`[^`]*`", "", (TOP / name).read_text(encoding="utf-8"))
    number = r"\d[\d,]*(?:\.\d+)?\b"
    unknown = set()
    for letter, values in re.findall(
        rf"(?<![\w./])({'|'.join(COLUMNS)}) = ({number}(?:(?:, {number})* (?:and|to) {number}(?! of))?)",
        " ".join(text.split()),
    ):
        unknown |= {
            f"{letter} = {value}"
            for value in re.findall(number, values)
            if float(value.replace(",", "")) not in known[COLUMNS[letter]]
        }
    assert unknown == ELSEWHERE.get(name, set())


# --- the reference -------------------------------------------------------------------------------------------


def test_the_reference_has_every_public_name_once(site):
    counts = Counter(name for group in site["reference"].GROUPS.values() for name in group.names)
    told = "docs/reference.py, GROUPS"
    assert {name for name, count in counts.items() if count > 1} == set(), told
    assert set(counts) == site["reference"].public(), told


def test_every_public_name_has_an_example(site):
    reference = site["reference"]
    names = reference.public() - {*reference.CONSTANTS}
    assert [name for name in sorted(names) if ">>> " not in (operator.attrgetter(name)(lf).__doc__ or "")] == []


@pytest.mark.long
def test_pages_that_use_a_name_are_found(site):
    """In an experiment's own code, in code that experiments share, in a tutorial, and in the guide."""
    usage, files = site["usage"], experiment_files(TOP / "experiments")
    assert "new_client_excess_quantile" in usage.used_by(files["fedrep-fig4"])  # its own
    assert "FedPer" in usage.used_by(files["fedrep-fig4"])  # shared
    assert "FedPer" not in usage.used_by(files["shortcut-bound"])
    found = usage.usage()["FedRep"]
    for page in ("/guide/algorithms", "/_generated/tutorials/1_first_steps", "/_generated/experiments/anisotropy"):
        assert f"<{page}>`" in found


@pytest.mark.long
def test_the_reference_is_written(site, tmp_path):
    reference = site["reference"]
    reference.write(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {*reference.GROUPS, "index", "command-line", "benchmarks"}
    assert "linfed reproduce" in (tmp_path / "command-line.md").read_text()
    rows = json.loads((COMMITTED / "benchmarks.json").read_text())["rows"]
    assert (tmp_path / "benchmarks.md").read_text().count("\n| ") == 1 + len(rows)


# --- the gallery ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_gallery_has_every_experiment_with_all_its_claims(site, tmp_path):
    gallery = site["gallery"]
    assert set(gallery.write(tmp_path)) == EXPERIMENTS
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for name in EXPERIMENTS:
        claims = json.loads((COMMITTED / f"{name}.json").read_text(encoding="utf-8"))["claims"]
        page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        shown = Counter(re.findall(r"(?m)^\| \{bdg-\w+\}`([A-Z ]+)` \|", page))
        assert shown == Counter(claim["verdict"] for claim in claims), name
        assert (tmp_path / f"{name}-claims.csv").read_text(encoding="utf-8").count("\n") >= len(claims)
        assert f":link: {name}\n" in index
        for link in re.findall(r"\]\((\.\./[^)]+)\)", page):
            assert (DOCS / "_generated" / "experiments" / link).resolve().exists(), link
        for file in re.findall(r"(?:`[^`<]*<|literalinclude\} )([^`>\s]+)(?:>`|\n)", page):
            assert (tmp_path / file).exists() or (DOCS / "_generated" / "experiments" / file).resolve().exists(), file


def test_a_card_is_shown_with_its_settings_and_statements(site):
    gallery = site["gallery"]
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
    assert page.count("**it falls**") == 2
    for part in ("9 of 10", "fails: $n \\le m$: 2 \\> 1", "few \\| trials; vacuous: nothing was measured"):
        assert part in page


def test_a_page_begins_with_its_place_in_the_paper(site):
    gallery, name = site["gallery"], "flute-theorem55"
    card = gallery.cards_of({name: gallery.RUNS.read(name)}, gallery.EXPERIMENTS)[name]
    page = gallery.page(card, gallery.load(name, gallery.EXPERIMENTS))
    assert page.startswith("```{index} ! flute-theorem55, ! Theorem 5.5\n```\n\n# FLUTE, Theorem 5.5\n")


def test_a_thumbnail_is_the_first_panel(site):
    """Of two panels side by side, the left one with its title and labels, without the legend above both."""
    image = Image.new("L", (1000, 500), "white")
    for left in (100, 550):
        image.paste(0, (left, 150, left + 2, 400))
        image.paste(0, (left, 398, left + 400, 400))
        image.paste(0, (left + 180, 415, left + 220, 440))
    assert site["gallery"].first_panel(image) == (0, 132, 514, 443)
    image.paste(0, (300, 110, 700, 130))
    assert site["gallery"].first_panel(image) == (0, 142, 514, 443)
    assert site["gallery"].first_panel(Image.new("L", (1000, 500), "white")) is None


# --- papers --------------------------------------------------------------------------------------------------


def exists(name):
    """Return whether a name of a page about papers is there: of code, of an experiment, or of a test."""
    if name.startswith("tests/"):
        file, _, test = name.partition("::")
        path = TOP / file
        return path.exists() and (not test or re.search(rf"(?m)^def {test}\(", path.read_text(encoding="utf-8")))
    if name.startswith("lf."):
        return has(lf, name.removeprefix("lf."))
    if name.startswith("linfed."):
        module, _, attribute = name.rpartition(".")
        try:
            return has(importlib.import_module(module), attribute)
        except ImportError:
            return False
    return name in EXPERIMENTS


def has(holder, name):
    try:
        return operator.attrgetter(name)(holder) is not None
    except AttributeError:
        return False


def test_what_the_table_of_places_names_is_there():
    rows = [
        line for line in (DOCS / "papers" / "where.md").read_text(encoding="utf-8").splitlines() if line[:2] == "| "
    ]
    rows = [row.strip("| ").split(" | ") for row in rows if not row.startswith("| place")]
    assert len(rows) > 40
    assert {len(row) for row in rows} == {5}
    named = [name for row in rows for cell in row[2:] for name in re.findall("`([^`]+)`", cell)]
    assert [name for name in named if not exists(name)] == []
    for place, _, code, experiments, tests in rows:
        assert re.fullmatch("none|(`linfed[.].+`|`lf[.].+`)", code), place
        assert re.fullmatch("none|all|all of its own|`[a-z].+`", experiments), place
        assert re.fullmatch("none|`tests/.+`", tests), place


def test_every_experiment_is_in_the_pages_of_papers():
    text = "".join((TOP / name).read_text(encoding="utf-8") for name in PAGES if name.startswith("docs/papers/"))
    assert {name for name in EXPERIMENTS if f"`{name}`" not in text} == set()


@pytest.mark.parametrize(
    "name",
    [
        "lf.FedRap",
        "lf.theory.bound",
        "fedrep-fig2",
        "tests/test_none.py",
        "tests/docs/test_docs.py::test_none",
        "linfed.no.f",
    ],
)
def test_a_name_that_is_not_there_is_found(name):
    assert not exists(name)


# --- the tutorials --------------------------------------------------------------------------------------------


def test_every_notebook_is_a_tutorial_with_its_outputs_and_a_link(site, tmp_path):
    names = site["tutorials"].write(tmp_path)
    assert names == [path.stem for path in sorted((TOP / "notebooks").glob("*.ipynb"))]
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for name in names:
        stored = json.loads((TOP / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        first, *others = json.loads((tmp_path / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        assert others == stored[1:]
        assert f"<../../../notebooks/{name}.ipynb>" in first["source"]
        assert f"]({name}.ipynb): " in index
