"""The declarations of an experiment: read from its file, checked, and ordered for the pages."""

import pytest

from linfed.errors import UsageError
from linfed.reproduction.declarations import OTHERS, SECTIONS, Declarations, Headline, page_order, title
from linfed.reproduction.experiments import declared_by, declared_in, load_file
from tests.helpers import ROOT, finding
from tests.reproduction.toys import write

DECLARED = declared_in(ROOT / "experiments")


def test_every_experiment_stands_in_the_section_of_its_folder_and_declares_one_line():
    assert all(declared.summary for declared in DECLARED.values())
    assert list(dict.fromkeys(declared.section for declared in DECLARED.values())) == list(SECTIONS.values())
    for path in (ROOT / "experiments" / "fedrep").glob("[!_]*.py"):
        assert DECLARED[path.stem.replace("_", "-")].section == "FedRep"


def test_pages_are_ordered_by_section_place_and_name():
    """At one place, the experiment with the place in its name comes first; your own come last."""
    declared = {
        name: Declarations(summary=summary, section=section)
        for name, summary, section in (
            ("mine", "", OTHERS),
            ("flute-b", "", "FLUTE"),
            ("flute-a", "FLUTE, a setting", "FLUTE"),
            ("bounds", "FLUTE paper, Theorem 5.5, bounds", "FLUTE"),
            ("flute-theorem55", "FLUTE paper, Theorem 5.5: a bound", "FLUTE"),
            ("flute-theorem51", "FLUTE paper, Theorem 5.1: rates", "FLUTE"),
            ("flute-fig10", "FLUTE paper, Figure 10: errors", "FLUTE"),
            ("flute-fig2", "FLUTE paper, Figure 2: errors", "FLUTE"),
            ("zero", "", "FedRep"),
        )
    }
    wanted = "zero flute-fig2 flute-fig10 flute-theorem51 flute-theorem55 bounds flute-a flute-b mine"
    assert page_order(declared) == wanted.split()
    titles = {name: title(name, declared[name]) for name in ("flute-fig2", "bounds", "mine")}
    assert titles == {"flute-fig2": "FLUTE, Figure 2", "bounds": "bounds", "mine": "mine"}


MISSING = {
    "claim": ({"claim": "fastr"}, "HEADLINES[0]: no claim is 'fastr' (did you mean 'faster'?)"),
    "setting": ({"claim": "faster", "setting": "k = 3"}, "HEADLINES[0]: 'faster' has no setting 'k = 3'"),
    "settings": (
        {"claim": "faster", "among": ("tuned", "all")},
        "HEADLINES[0]: 'faster' has no setting that begins with 'tuned'",
    ),
    "nothing": ({"claim": "faster", "setting": "k = 2", "among": ("k", "all")}, ""),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_headline_that_matches_no_claim_is_named(name):
    headline, told = MISSING[name]
    declared, claims = Declarations(headlines=(Headline(**headline),)), [finding("faster", "k = 2")]
    assert declared.missing_headline(claims) == told
    assert bool(declared.missing_headline(claims, partial=True)) == (name == "claim")  # settings can be missing


# --- reading and checking --------------------------------------------------------------------------------------------


WRONG = {
    "summary": ("SUMMARY = ('one', 'two')", "SUMMARY = ('one', 'two') must be one line of text"),
    "lines": ("SUMMARY = 'one\\ntwo'", "SUMMARY = 'one\\ntwo' must be one line of text"),
    "one headline": ("HEADLINES = 'it falls'", "HEADLINES = 'it falls' must be a tuple of dicts"),
    "a text": ("HEADLINES = ('it falls',)", "HEADLINES[0] = 'it falls' must be a dict with 'claim' and some of"),
    "a field": ("HEADLINES = ({'claim': 'x', 'seting': 'y'},)", "must be a dict with 'claim' and some of 'setting',"),
    "no claim": ("HEADLINES = ({'setting': 'y'},)", "HEADLINES[0] = {'setting': 'y'} must be a dict with 'claim'"),
    "a type": ("HEADLINES = ({'claim': 3},)", "HEADLINES[0]['claim'] = 3 must be a text"),
    "among": ("HEADLINES = ({'claim': 'x', 'among': 'ab'},)", "HEADLINES[0]['among'] = 'ab' must be a pair of texts"),
    "pictures": ("PICTURES = ['']", "PICTURES = [''] must be a dict from keys of figures to widths in pixels"),
    "a key": ("PICTURES = {0: 1400}", "PICTURES = {0: 1400} must be a dict from keys of figures to widths in pixels"),
    "a width": ("PICTURES = {'a': 0}", "PICTURES['a'] = 0 must be a width in pixels"),
    "a float": ("PICTURES = {'a': 0.5}", "PICTURES['a'] = 0.5 must be a width in pixels"),
    "captions": ("CAPTIONS = {'': 3}", "CAPTIONS = {'': 3} must be a dict from keys of figures to captions"),
    "syntax": ("SUMMARY = ", "wrong.py, line 2: SyntaxError: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_declaration_is_one_line(name, folder):
    """Where a page reads it, and where the experiment is loaded; captions are for figures only."""
    line, told = WRONG[name]
    file = write(folder / "wrong.py", f"def cells(): return []\n{line}\n")
    for read in (load_file, declared_by)[: 1 + (name != "captions")]:
        with pytest.raises(UsageError) as caught:
            read(file)
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "SUMMARY = 'one line'\ndef cells(): return []\n",
        "def cells(): return []\nSUMMARY = 'one line'\n",
        "def cells(): return []\nx = 1; SUMMARY = 'one line'\n",
        "'''\nclass of experiments\n'''\nSUMMARY = 'one line'\n",
        "PAPER = '''\ndef of a term\n'''\nSUMMARY = 'one line'\nclass Cell: ...\n",
        "default = 3\nSUMMARY = 'one line'\n",
    ],
)
def test_a_declaration_is_read_wherever_it_stands(source, tmp_path):
    assert declared_by(write(tmp_path / "one.py", source)).summary == "one line"


def test_a_declaration_that_is_no_literal_is_read_from_the_module(folder):
    file = write(folder / "computed.py", "def cells(): return []\nSUMMARY = str(1 + 1)\n")
    assert declared_by(file).summary == "2"
