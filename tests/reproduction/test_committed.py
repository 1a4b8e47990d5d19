"""The verdicts and settings of the committed runs, which ship with the package, and what differs from them."""

import pytest

from docs.tools import vocabulary
from linfed.reproduction import committed
from linfed.reproduction.committed import Committed, differences, other_settings, verdicts_of
from linfed.reproduction.experiments import experiment_files
from tests.helpers import ROOT, finding


def test_the_verdicts_that_ship_are_those_of_the_committed_records():
    known, runs = committed.committed_runs(), vocabulary.records()
    assert {name: one.verdicts for name, one in known.items()} == {
        name: verdicts_of(record.claims) for name, record in runs.items()
    }, "run python -m docs.tools.publish --record"
    for name, record in runs.items():
        assert record.seconds <= known[name].seconds + 0.1
        assert record.processor_seconds <= 2 * known[name].seconds + 0.1  # with the cells of earlier runs
        assert set(known[name].settings) == set(record.tables)
    assert known["fedrep-fig4"].settings["clients"]["rank"] == ["2"]
    assert set(known) <= set(experiment_files(ROOT / "experiments"))


@pytest.fixture
def known(monkeypatch):
    """Let one committed run have given verdicts and settings."""

    def let(verdicts, settings=None):
        monkeypatch.setattr(committed, "committed_runs", lambda: {"one": Committed(1.0, verdicts, settings or {})})

    return let


def test_verdicts_that_are_not_the_committed_ones_are_listed(known):
    claims = [finding("it falls"), finding("twice"), finding("twice", low=0.1)]
    known(verdicts_of(claims))
    assert differences("one", claims) == []
    known({("it falls", "share", "n = 1"): ["HOLDS"], ("gone", "share", "n = 2"): ["VIOLATED", "HOLDS", "HOLDS"]})
    assert differences("one", claims) == [
        "one: SUPPORTED instead of HOLDS: it falls (n = 1; share)",
        "one: no such claim instead of VIOLATED, 2 HOLDS: gone (n = 2; share)",
        "one: SUPPORTED, INCONCLUSIVE instead of no such claim: twice (n = 1; share)",
    ]


def test_other_settings_are_listed_field_by_field(known):
    """Of fields and tables that both runs have; values that only one of them has, at most three."""
    settings = {"runs": {"n": ["1", "2", "3"], "rows": ["3"], "new": ["1"]}, "more": {"rows": ["1"]}}
    for same in (settings, {}, {"runs": {"n": ["1", "2", "3"]}, "gone": {"rows": ["1"]}}):
        known({}, same)
        assert other_settings("one", settings) == ""
    known({}, {"runs": {"n": ["1", "2", "7"], "rows": ["2"]}})
    said = "one: settings differ from the committed run"
    assert other_settings("one", settings) == f"{said}: n 3 instead of 7 in 'runs'; rows 3 instead of 2 in 'runs'"
    known({}, {"runs": {"n": ["1", "2", "3", "4", "5", "6", "7"]}})
    assert other_settings("one", settings) == f"{said}: n 1, 2, 3 instead of 4, 5, 6, .. in 'runs'"
