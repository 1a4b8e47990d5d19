"""The statements of a paper: each row of its page is judged, is not about linear or synthetic data, or says why not."""

import re

import pytest

from docs.tools.vocabulary import cited
from tests.docs.test_docs import DOCS, EXPERIMENTS, exists

HEADER = re.compile(r"\| statement \| (?:where in the paper|in the draft) \| judged in \|")
ELSEWHERE = "not about linear or synthetic data"
PAGES = {
    path.name: text
    for path in sorted((DOCS / "papers").glob("*.md"))
    if HEADER.search(text := path.read_text(encoding="utf-8"))
}


def statements(text):
    """Yield the cells of every row of the tables of statements."""
    for table in HEADER.split(text)[1:]:
        for line in table.partition("\n\n")[0].splitlines()[2:]:
            yield line.strip("| ").split(" | ")


def faults(row):
    """Return what is wrong with a row."""
    if len(row) != 3 or not all(row):
        return f"{row} does not have three cells"
    judged = row[2]
    names = re.findall("`([^`]+)`", judged)
    if missing := [name for name in names if not exists(name)]:
        return f"{missing} of {row[0]!r} are not there"
    if judged == ELSEWHERE or re.fullmatch(r"not judged: \S.*", judged):
        return ""
    by_tests = judged.startswith("a test: ") and all(name.startswith("tests/") for name in names)
    if (judged.startswith("`") and names[0] in EXPERIMENTS) or (by_tests and names):
        return ""
    return f"{row[0]!r} names neither an experiment, a test nor a reason"


def test_papers_have_tables_of_statements():
    assert {"fedrep.md", "flute.md", "shortcut.md"} <= set(PAGES)
    assert all(len(list(statements(text))) > 10 for text in PAGES.values())


@pytest.mark.parametrize("name", PAGES)
def test_every_statement_is_judged_or_says_why_not(name):
    assert [fault for row in statements(PAGES[name]) if (fault := faults(row))] == []


@pytest.mark.parametrize(("name", "paper"), [("fedrep.md", "FedRep paper"), ("flute.md", "FLUTE paper")])
def test_every_experiment_that_quotes_a_paper_judges_one_of_its_statements(name, paper):
    judges = {one for row in statements(PAGES[name]) for one in re.findall("`([^`]+)`", row[2])}
    quotes = {one for one in EXPERIMENTS if cited([one], paper)}
    assert quotes
    assert quotes - judges == set()


@pytest.mark.parametrize(
    "judged",
    ["", "not judged", "not judged: ", "`fedrep-fig2`", "`lf.FedRep`", "partly", "a test", "a test: `fedrep-fig1`"],
)
def test_what_is_in_between_is_found(judged):
    assert faults(["It holds", "Theorem 1", judged])
    assert not faults(["It holds", "Theorem 1", "`fedrep-fig1`, `fedrep-fig3`"])
