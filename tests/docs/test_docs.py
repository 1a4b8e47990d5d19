"""The pages: their code is run, the names and links that they give exist, and settings are those of the tables."""

import importlib
import json
import operator
import re
import tomllib
from collections import Counter

import numpy as np
import pytest

import linfed as lf
from docs.tools import reference
from docs.tools.paths import COMMITTED, TOP
from linfed.reproduction.experiments import experiment_files
from tests.docs.shown import wrong

README, DOCS = "README.md", TOP / "docs"
PAGES = [
    path.relative_to(TOP).as_posix()
    for path in sorted(DOCS.rglob("*.md"))
    if not any(part.startswith("_") for part in path.relative_to(DOCS).parts)
]
REPOSITORY = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
EXPERIMENTS = set(experiment_files(TOP / "experiments"))


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


def title(path):
    """Return the title of a page or a notebook."""
    text = path.read_text(encoding="utf-8")
    lines = "".join(json.loads(text)["cells"][0]["source"]) if path.suffix == ".ipynb" else text
    return re.search(r"(?m)^# (.+)$", lines)[1]


def test_questions_of_the_readme_are_answered_on_pages_with_the_titles_of_the_links():
    """A link has the title of its page, or the beginning of it."""
    links = re.findall(r"(?m)^\| [^|]+\? [^|]*\| (.+) \|$", (TOP / README).read_text(encoding="utf-8"))
    found = [link for cell in links for link in re.findall(r"\[([^\]]+)\]\(((?:docs|notebooks)/[^)]+)\)", cell)]
    assert len(found) > 10
    titles = {path: title(TOP / path) for _, path in found}
    assert [text for text, path in found if not re.search(rf"^(\d+\. )?{re.escape(text)}", titles[path])] == []


def test_no_two_pages_have_the_same_title():
    titles = Counter(title(TOP / name) for name in PAGES if name != "docs/index.md")
    titles.update(group.title for group in reference.GROUPS.values())
    assert [one for one, count in titles.items() if count > 1] == []


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
@pytest.mark.parametrize("name", sorted({README, *PAGES} - {"docs/scoreboard.md"}))
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
        assert re.fullmatch("none|none: a definition|`[a-z].+`", experiments), place
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


@pytest.mark.parametrize(
    ("page", "marks"),
    [
        ("<!-- written by docs/tools/render.py --><p>fine</p><script>let a = '``'</script>", []),
        ("<p>&lt;!-- written by docs/tools/render.py --&gt;</p>", ["<!", "written by docs/tools/render.py"]),
        ("<p>``rank``</p>", ["``"]),
        (r'<p><span class="math notranslate">\(k\)</span> and <span>\(d\)</span></p>', [r"\("]),
        (r'<div class="math"><span class="eqno">(1)</span>\[k\]</div><p>{bdg-success}</p>', ["{bdg-"]),
        ("<em>heads=&lt;factory&gt;</em><p>&lt;function f at 0x7f&gt;</p>", ["<factory>", "<function"]),
    ],
)
def test_pages_with_markup_in_their_text_are_found(page, marks):
    assert wrong(page) == marks
