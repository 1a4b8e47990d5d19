"""Every number in README.md and docs/*.md that rests on an experiment is the committed results'.

The numbers are listed in `held`, a module for each paper; a new one needs its line there.
"""

import functools
import importlib.util
import re
import tomllib

import pytest
from held import (
    EXACT_LAW,
    FINDINGS,
    HELD,
    README,
    SHORTCUT,
    SPEED,
    TOP,
    Results,
    averaging,
    classes,
    fedrep,
    flute,
    pages,
    scoreboard,
    settings,
    shortcut,
    speed,
)
from PIL import Image

from linfed.reproduction.experiments import experiment_files

assert all((averaging, classes, fedrep, flute, scoreboard, shortcut, speed))  # their import fills HELD

GENERATED = ("docs/theory.md", "docs/scoreboard.md")
DOCUMENTS = (README, *(name for name in pages() if name not in GENERATED))
BENCHMARKS = "benchmarks.json"
REPOSITORY = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
VERDICTS = r"NOT SUPPORTED|SUPPORTED|INCONCLUSIVE|VACUOUS|HOLDS|VIOLATED|HYPOTHESES FAIL"


@pytest.fixture(scope="module")
def results():
    return Results()


def plain(text):
    """Return a text in one line."""
    return " ".join(text.split())


def document(name):
    return (TOP / name).read_text(encoding="utf-8")


def measured(source, results):
    """Return whether there is a run to hold numbers against: of the benchmarks there need not be one."""
    return source != BENCHMARKS or (results.folder / BENCHMARKS).exists()


def nearest(fragment, text):
    """Return what a text has in the place of a fragment, as far as can be told."""
    words, wanted = text.split(), fragment.split()
    starts = range(max(1, len(words) - len(wanted) + 1))
    first = max(starts, key=lambda i: sum(one == other for one, other in zip(words[i:], wanted, strict=False)))
    return " ".join(words[first : first + len(wanted)])


def missing(name, text, source, fragments):
    """Return what a document ought to say and does not, with what it says."""
    return [
        f"\n{name} does not say what the results say ({source}):\n  results: {one}\n  {name}: {nearest(one, text)}"
        for one in map(plain, fragments)
        if one not in text
    ]


@pytest.mark.parametrize(("name", "source", "fragments"), HELD, ids=[f"{one[1]}: {one[2].__name__}" for one in HELD])
def test_numbers_are_those_of_the_results(name, source, fragments, results):
    if not measured(source, results):
        pytest.skip("the benchmarks' results are not committed")
    told = missing(name, plain(document(name)), source, fragments(results))
    assert not told, "\n".join(told)


# --- that none is missing ------------------------------------------------------------------------------------


def prose(name, text, results):
    """Return a document in one line, without the sections that rest on no experiment, and without blocks of code."""
    unmeasured = ["Ratios"] if name == SPEED and not measured(BENCHMARKS, results) else []
    for title in (*settings.UNCHECKED.get(name, ()), *unmeasured):
        text, count = re.subn(rf"(?ms)^## {title}$.*?(?=^## |\Z)", "", text)
        assert count, f"{name} has no section {title!r}"
    text = re.sub(r"(?s)```.*?```", "", text)
    return plain(re.sub(r"(?m)^ {4}.*$", "", text) if name in (EXACT_LAW, SHORTCUT) else text)


def occurrences(fragment, text):
    at = text.find(fragment)
    while at >= 0:
        yield at, at + len(fragment)
        at = text.find(fragment, at + 1)


@functools.cache
def known_values(results):
    """Return the values of each field of `settings.FIELDS` in the committed tables, as words."""
    found = {column: set() for column in settings.FIELDS.values()}
    for path in results.folder.glob("*.npz"):
        table = results.table(path.stem)
        for row in table.rows:
            for column, values in found.items():
                values |= {float(row[column])} if column in row else set()
        if "n_new" in (axis for row in table.rows for value in row.values() for axis in getattr(value, "axes", ())):
            found["n_new"] |= {float(value) for value in table["n_new"]}
    return found


def unheld(name, text, fragments, known):
    """Return the digits and verdicts of a text in one line that nothing holds, each with what stands around it."""
    free = [True] * len(text)

    def hold(start, end):
        free[start:end] = [False] * (end - start)

    exempt = [one for fragments_ in settings.EXEMPT.get(name, {}).values() for one in fragments_]
    for one in (*map(plain, fragments), *exempt):
        for span in occurrences(one, text):
            hold(*span)
    for pattern in (*settings.NAMES, r"`[^`]*`", r"\]\([^)]*\)"):  # code, targets of links
        for match in re.finditer(pattern, text):
            hold(*match.span())
    for match in re.finditer(settings.SETTING, text):
        values = [float(value.replace(",", "").rstrip(".")) for value in re.findall(settings.NUMBER, match["values"])]
        if set(values) <= known[settings.FIELDS[match["letter"]]]:
            hold(*match.span())
    places = []
    for match in re.finditer(rf"\d+|\b(?:{VERDICTS})\b", text):
        if any(free[match.start() : match.end()]):
            if places and match.start() < places[-1][1] + 30:  # told with the one before it
                places[-1] = (places[-1][0], match.end())
            else:
                places.append(match.span())
    return [f"{name}: .. {text[max(0, start - 50) : end + 30]} .." for start, end in places]


@functools.cache
def all_fragments(name, results):
    """Return all fragments of a document that there are results for."""
    return [
        one
        for document_, source, fragments in HELD
        if document_ == name and measured(source, results)
        for one in fragments(results)
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_number_is_without_a_source(name, results):
    text = prose(name, document(name), results)
    told = unheld(name, text, all_fragments(name, results), known_values(results))
    assert not told, "no line of tests/held/ holds\n" + "\n".join(told)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_exemption_is_used(name):
    text = plain(document(name))
    assert [one for fragments in settings.EXEMPT.get(name, {}).values() for one in fragments if one not in text] == []


# --- that the test can fail ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def right(results):
    """A text that says what the results say of FINDINGS, its fragments, and the settings' values."""
    fragments = [*map(plain, all_fragments(FINDINGS, results))]
    return " And ".join(fragments), fragments, known_values(results)


def test_changed_digits_are_found(right):
    text, fragments, known = right
    assert not missing(FINDINGS, text, "", fragments)
    for fragment in [one for one in fragments if re.search(r"\d", one)][::7]:
        changed = text.replace(fragment, re.sub(r"\d+", r"\g<0>7", fragment))
        assert missing(FINDINGS, changed, "", fragments), fragment
        assert unheld(FINDINGS, changed, fragments, known), fragment


@pytest.mark.parametrize("added", ["It falls by 7 %.", "At m = 171 it fails.", "This is SUPPORTED.", "Of 50 trials 3."])
def test_an_added_number_is_found(added, right):
    text, fragments, known = right
    assert not unheld(FINDINGS, text, fragments, known)
    assert unheld(FINDINGS, f"{text} {added}", fragments, known)


@pytest.mark.parametrize("spoiled", [{"verdict": "INCONCLUSIVE"}, {"estimate": 0.123}, {"low": 0.0123}])
def test_a_changed_claim_is_found(spoiled, results):
    other, record = Results(), results.record("flute-theorem51")
    changed = [{**one, **(spoiled if "Delta^-5" in one["text"] else {})} for one in record["claims"]]
    other.record = lambda name: record | {"claims": changed}
    text = " ".join(map(plain, flute.theorem_51(results)))
    (told,) = missing(FINDINGS, text, "flute-theorem51", flute.theorem_51(other))
    assert told.startswith(
        "\ndocs/findings.md does not say what the results say (flute-theorem51):\n  results: in Delta"
    )
    assert f"{FINDINGS}: in Delta it is INCONCLUSIVE" in told


# --- what is committed ---------------------------------------------------------------------------------------


def test_the_committed_results_are_full_runs(results):
    names = experiment_files(TOP / "experiments")
    assert {path.stem for path in results.folder.glob("*.json")} - {"benchmarks"} == set(names)
    records = [results.record(name) for name in names]
    assert not any(record["quick"] for record in records)
    assert all(record["claims"] for record in records)
    about = (results.folder / "README.md").read_text(encoding="utf-8")
    for name, record in zip(names, records, strict=True):
        assert re.fullmatch("[0-9a-f]{40}", record["commit"])
        assert re.search(rf"\|[^|]*\b{name}\b[^|]*\| {record['commit']} \|", about)
    tables = {f"{name}-{key}" for name, record in zip(names, records, strict=True) for key in record["tables"]}
    assert {path.stem for path in results.folder.glob("*.npz")} == tables
    assert sum(path.stat().st_size for path in results.folder.iterdir()) < 10e6


def script(name):
    """Return a script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, TOP / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_theory_is_made_from_the_committed_claims():
    theory = script("theory")
    assert document(GENERATED[0]) == theory.page(), "run python docs/theory.py"


def test_the_pictures_are_those_of_the_committed_tables():
    pictures = script("pictures")
    assert {path.stem for path in (TOP / "docs").glob("*.png")} == {*pictures.PICTURES, "exact-law", "rounds"}
    old = []
    for name, (experiment, _, width) in pictures.PICTURES.items():
        with Image.open(TOP / "docs" / f"{name}.png") as image:
            if image.info.get(pictures.DIGEST) != pictures.digest(experiment) or image.width != width:
                old.append(name)
    assert not old, f"run python docs/pictures.py {' '.join(old)}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_names_and_links_are_there(name):
    text = document(name)
    named = {
        one for names in re.findall(r"linfed\s+reproduce((?:\s+[a-z]+-[a-z0-9-]+)+)", text) for one in names.split()
    }
    assert named <= set(experiment_files(TOP / "experiments"))
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        path = in_the_repository(link) if link.startswith("https:") else (TOP / name).parent / link
        assert path is None or path.exists(), link


def in_the_repository(link):
    """Return the path that a link to the repository means; None for one that leads elsewhere."""
    found = re.fullmatch(rf"{re.escape(REPOSITORY)}/(?:blob|raw)/main/(.+)", link)
    assert found or REPOSITORY not in link, link
    return TOP / found[1] if found else None


def test_links_of_the_readme_are_whole():
    """A package index shows the page away from the files beside it."""
    links = re.findall(r"\]\(([^)]+)\)", document(README))
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
