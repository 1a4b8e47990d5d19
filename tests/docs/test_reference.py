"""The reference, and the pages that use a name."""

import json
import operator
from collections import Counter

import pytest

import linfed as lf
from docs.tools import reference, usage
from docs.tools.paths import COMMITTED, EXPERIMENTS
from linfed.reproduction.experiments import experiment_files


def test_the_reference_has_every_public_name_once():
    counts = Counter(name for group in reference.GROUPS.values() for name in group.names)
    told = "docs/tools/reference.py, GROUPS"
    assert {name for name, count in counts.items() if count > 1} == set(), told
    assert set(counts) == reference.public(), told


def test_every_public_name_has_an_example():
    names = reference.public() - {*reference.CONSTANTS}
    assert [name for name in sorted(names) if ">>> " not in (operator.attrgetter(name)(lf).__doc__ or "")] == []


@pytest.mark.parametrize(
    ("shown", "plain"),
    [
        ("(over: 'Over' = <function whole at 0x7fab>)", "(over: 'Over' = whole)"),
        ("(by=<function <lambda>>, first=1)", "(by=lambda, first=1)"),
        ("(default=<dataclasses._MISSING_TYPE object at 0x7f9c>)", "(default=MISSING)"),
    ],
)
def test_defaults_in_signatures_are_names(shown, plain):
    assert reference.plain_defaults(shown) == plain


def test_the_page_of_a_class_links_the_methods_of_its_base_class():
    """It shows those that have other parameters."""
    lines = reference.directive("GivenClasses")
    assert "Further methods: those of :class:`linfed.GivenSamples`." in lines
    assert "floats_per_trial" in lines[2]
    assert "split" not in lines[2]
    assert reference.directive("Algorithm") == [".. autoclass:: linfed.Algorithm", "   :members:"]


@pytest.mark.long
def test_pages_that_use_a_name_are_found():
    """In an experiment's own code, in code that experiments share, in a tutorial, and in the guide."""
    files = experiment_files(EXPERIMENTS)
    assert "new_client_excess_quantile" in usage.used_by(files["fedrep-fig4"])  # its own
    assert "FedPer" in usage.used_by(files["fedrep-fig4"])  # shared
    assert "FedPer" not in usage.used_by(files["shortcut-bound"])
    assert "<!" not in "".join(usage.usage().values())  # comments at the top of pages are no titles
    found = usage.usage()["FedRep"]
    for page in ("/guide/algorithms", "/_generated/tutorials/1_first_steps", "/_generated/experiments/anisotropy"):
        assert f"<{page}>`" in found


@pytest.mark.long
def test_the_reference_is_written(tmp_path):
    reference.write(tmp_path)
    pages = {path.name.removesuffix(path.suffix) for path in tmp_path.iterdir()}
    names = reference.public() - {*reference.CONSTANTS}
    assert pages == {*reference.GROUPS, *names, "index", "command-line", "benchmarks"}
    assert "FedRep\n======\n\n.. autoclass:: linfed.FedRep\n" in (tmp_path / "FedRep.rst").read_text()
    assert "linfed reproduce" in (tmp_path / "command-line.md").read_text()
    rows = json.loads((COMMITTED / "benchmarks.json").read_text())["rows"]
    assert (tmp_path / "benchmarks.md").read_text().count("\n| ") == 1 + len(rows)
