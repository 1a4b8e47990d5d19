"""Every page with numbers is what its template makes of the committed results, which are full runs."""

import dataclasses
import doctest
import re

import pytest

from docs.tools import formulas, render, vocabulary
from docs.tools.paths import COMMITTED, TOP
from docs.tools.vocabulary import record
from linfed.reproduction.experiments import experiment_files

PAGES = render.pages()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_its_template_makes_of_the_committed_results(page):
    text = (TOP / page).read_text(encoding="utf-8")
    assert text == render.render(PAGES[page]), "edit the template, and run python -m docs.tools.render"


@pytest.mark.long
def test_formulas_of_plain_texts_are_tex():
    assert doctest.testmod(formulas).attempted >= 5
    assert doctest.testmod(formulas).failed == 0
    texts = {
        getattr(claim, key)
        for name in experiment_files(TOP / "experiments")
        for claim in record(name).claims
        for key in ("claim", "source", "setting", "statistic", "detail")
    }
    assert len(texts) > 1000
    for text in texts:
        literal, tex = (formulas.with_formulas(text).split("$")[turn::2] for turn in (0, 1))
        assert len(literal) == len(tex) + 1
        assert not re.search(r"\b(kappa|sigma|lambda|eta|gamma1)\b", " ".join(literal)) or "`" in text, text
        assert all(one.count("{") == one.count("}") and one.strip() == one for one in tex), text


@pytest.mark.long
@pytest.mark.parametrize("spoiled", [{"estimate": 0.123}, {"claimed_low": 0.0}, {"low": -0.5678}])
def test_a_page_follows_a_changed_result(spoiled, monkeypatch):
    """And nothing of the page but the sentence on it."""
    claim = vocabulary.claim("flute-theorem51", "As the gap closes the error grows at most like Delta^-5")
    before = (TOP / "docs/findings.md").read_text(encoding="utf-8").splitlines()
    record = vocabulary.record("flute-theorem51")
    claims = tuple(dataclasses.replace(one, **spoiled) if one is claim else one for one in record.claims)
    changed_record, other = dataclasses.replace(record, claims=claims), vocabulary.record
    monkeypatch.setattr(vocabulary, "record", lambda name: changed_record if name == "flute-theorem51" else other(name))
    after = render.render(PAGES["docs/findings.md"]).splitlines()
    changed = [line for line, other in zip(before, after, strict=True) if line != other]
    assert len(changed) == 1
    assert "Delta^" in changed[0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{{ nothing }}", "UndefinedError: 'nothing' is undefined"),
        ("{{ claim('fedrep-fig1', 'no').verdict }}", "LookupError: fedrep-fig1 has no claim 'no' with setting"),
        ("{{ table('fedrep-fig1-clients', n_samples=6)['median'] }}", "cannot read column 'median' of an empty table"),
        ("{{ 1 | }}", "TemplateSyntaxError: "),
        ("{% do check(1 > 2) %}", "AssertionError: the results no longer support this sentence"),
    ],
)
def test_a_mistake_in_a_template_is_told_with_its_line(line, told, tmp_path):
    (tmp_path / "page.md.jinja").write_text(f"# Title\n\nIt is {line}.\n")
    with pytest.raises(ValueError, match=r"page\.md\.jinja:\n  line 3: It is ") as caught:
        render.render("page.md.jinja", tmp_path)
    assert f"It is {line}." in str(caught.value)
    assert told in str(caught.value)


def test_the_committed_results_are_full_runs():
    names = experiment_files(TOP / "experiments")
    assert {path.stem for path in COMMITTED.glob("*.json")} - {"benchmarks"} == set(names)
    records = [record(name) for name in names]
    assert not any(run.quick for run in records)
    assert all(run.claims for run in records)
    about = (COMMITTED / "README.md").read_text(encoding="utf-8")
    for name, run in zip(names, records, strict=True):
        assert re.fullmatch("[0-9a-f]{40}", run.commit)
        assert re.search(rf"\|[^|]*\b{name}\b[^|]*\| {run.commit} \|", about)
    tables = {f"{name}-{key}" for name, run in zip(names, records, strict=True) for key in run.tables}
    assert {path.stem for path in COMMITTED.glob("*.npz")} == tables
