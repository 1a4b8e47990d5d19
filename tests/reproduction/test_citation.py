"""``linfed --cite`` prints CITATION.cff as BibTeX."""

import re

import linfed as lf
from linfed.reproduction import citation
from tests.helpers import ROOT
from tests.reproduction.toys import run, write


def test_the_citation_is_that_of_the_file(capsys):
    assert run("--cite") == 0
    printed = capsys.readouterr().out
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    title = re.search(r'(?m)^title: "(.*)"$', text)[1]
    assert printed.startswith("@misc{linfed,\n")
    assert f"  title = {{{{{title}}}}},\n" in printed
    assert "  author = {{The linfed authors}},\n" in printed
    assert f"version {lf.__version__}" in printed
    assert f"version: {lf.__version__}\n" in text
    assert printed.count("{") == printed.count("}")


def test_authors_date_and_address_become_fields(tmp_path, monkeypatch):
    """The file of an installed package is in the package."""
    monkeypatch.setattr(citation, "FOLDER", tmp_path / "linfed")
    write(
        tmp_path / "linfed" / "_shipped" / "CITATION.cff",
        'title: "A: b"\nversion: 2.0\ndate-released: 2027-01-31\nrepository-code: https://example.org/x\nauthors:\n'
        '  - family-names: Doe\n    given-names: "Jane M."\n  - name: The others\nlicense: MIT\n',
    )
    assert citation.bibtex().splitlines() == [
        "@misc{linfed,",
        "  author = {Doe, Jane M. and {The others}},",
        "  title = {{A: b}},",
        "  year = {2027},",
        "  url = {https://example.org/x},",
        "  note = {Python package, version 2.0},",
        "}",
    ]
