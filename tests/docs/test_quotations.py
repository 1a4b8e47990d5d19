"""Every quotation of a paper was checked against the paper, and none was changed since."""

import json

import pytest

from tests.docs.quotations import CHECKED, PAGES, ROOT, SOURCES, Quotation, is_in, letters, quotations


def test_every_quotation_was_checked_against_its_source():
    checked = {one["sha256"]: (one["place"], one["source"]) for one in json.loads(CHECKED.read_text(encoding="utf-8"))}
    found = {one.sha256: one for one in quotations()}
    new = [f"{one.place}: {one.words}" for sha256, one in found.items() if sha256 not in checked]
    assert not new, "not checked: run python -m tests.docs.quotations FOLDER with extracts of the papers"
    gone = [told for sha256, told in checked.items() if sha256 not in found]
    assert not gone, "no longer quoted: run python -m tests.docs.quotations FOLDER with extracts of the papers"
    assert all(checked[sha256] == (one.place, one.source) for sha256, one in found.items())


def test_quotations_of_experiments_judges_and_pages_are_found():
    places = {one.place for one in quotations()}
    assert {
        "FedRep paper, Figure 1",  # of a partial
        "FedRep paper, Theorem 1",
        "FLUTE paper, Proposition A.2",
        "FLUTE paper",  # of a page
    } <= places
    assert all(any(place.startswith(paper) for paper in SOURCES) for place in places)
    assert all((ROOT / page).exists() for page in PAGES)


# As extracts have it: a superscript on a line of its own, a ligature, a hyphen at the end of a line, a lost epsilon.
ETA, SIGMA, STAR, FI = "\N{GREEK SMALL LETTER ETA}", "\N{GREEK SMALL LETTER SIGMA}", "\u2217", "\ufb01"
EXTRACT = letters(
    f"Then for any t and any\n2\n{ETA} 1/(4{SIGMA}max,{STAR}\n), we have {FI}nite low-\ndimensional error. "
    "The rest is \N{GREEK CAPITAL LETTER THETA} (m log (1/))."
)


@pytest.mark.parametrize(
    ("words", "there"),
    [
        ("for any t and any eta <= 1/(4 sigma_max^2), we have", True),
        ("we have finite low-dimensional error", True),
        ("for any t [...] finite", True),
        ("The rest is Theta(m log (1/[eps]))", True),
        ("for any T we have", False),
        ("finite [...] for any t", False),
        ("The rest is O(m log (1/[eps]))", False),
        ("high-dimensional error", False),
    ],
)
def test_what_an_extract_has_is_found_and_nothing_else(words, there):
    assert is_in(words, EXTRACT) is there


def test_a_changed_sign_is_another_quotation():
    first, second = (Quotation("FLUTE paper, C.1", f"gamma_1 {sign} gamma_2") for sign in "<>")
    assert first.sha256 != second.sha256
    assert first.sha256 == Quotation("FLUTE paper, C.1", "gamma_1  <\ngamma_2").sha256
