"""Printed reports: one line for each claim, a line for each setting if verbose, and a summary of several runs."""

from pathlib import Path

import pytest

from linfed.commands.printed import claims_text, report, summary, tally, wrapped, written
from linfed.reproduction.run import Reproduction
from linfed.statistics.findings import Origin
from tests.helpers import finding

CLAIMS = (
    finding("it falls", "n = 1"),
    finding("it falls", "n = 2", low=0.4),
    finding("it falls", "n = 3", note="a remark"),
    finding("it rises", low=0.1, high=0.2),
)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")


def done(claims=CLAIMS, **changes):
    known = {"files": [Path("a.png"), Path("b.csv")], "captions": {"": "One.", "ends": "Two."}, "remarks": ["a remark"]}
    known |= {"settings": {}, "quick": False, "cells": 4, "reused": 0, "seconds": 1.26}
    return Reproduction(claims=None if claims is None else list(claims), **known | changes)


def test_a_claim_has_the_number_of_each_verdict_and_its_measurement_nearest_to_failing():
    assert report("one", done()).splitlines() == [
        "one: 1.3 s",
        "  one: a remark",
        "  SUPPORTED 2, INCONCLUSIVE 1: it falls",
        "      share: 0.9 [0.4, 1]; required: >= 0.5 (n = 2)",
        "  NOT SUPPORTED: it rises",
        "      share: 0.9 [0.1, 0.2]; required: >= 0.5",
        "one: 4 claims: 2 SUPPORTED, 1 NOT SUPPORTED, 1 INCONCLUSIVE",
    ]


def test_claims_with_another_source_or_statistic_are_apart():
    claims = [finding("it falls"), finding("it falls", statistic="ratio", low=0.4), finding("it falls", source="other")]
    lines = claims_text("one", claims, verbose=False).splitlines()
    assert [line for line in lines if line.endswith(": it falls")] == [
        "  SUPPORTED: it falls",
        "  INCONCLUSIVE: it falls",
        "  SUPPORTED: it falls",
    ]


def test_claims_of_papers_come_first():
    ours, paper = (finding("it rises", origin=one) for one in (Origin.THRESHOLD, Origin.QUOTED))
    lines = claims_text("one", [ours, paper], verbose=False).splitlines()
    assert lines[0] == "  What the papers say: 1 claim: 1 SUPPORTED"
    assert lines[3] == "  Thresholds and controls: 1 claim: 1 SUPPORTED"
    assert claims_text("one", [paper], verbose=False).startswith("  What the papers say\n  SUPPORTED: it rises")


def test_settings_files_and_notes_are_verbose():
    text = report("one", done(reused=3), verbose=True)
    assert text.startswith("one: 1.3 s, 3 of 4 cells from an earlier run\n  wrote a.png\n  wrote b.csv\n")
    assert [setting for setting in ("n = 1", "n = 2", "n = 3") if f" {setting} " in text] == ["n = 1", "n = 2", "n = 3"]
    assert "  share; required: >= 0.5" in text
    assert "(1) a remark" in text


def test_a_run_without_claims_has_its_captions():
    assert report("one", done(claims=None, remarks=[])).splitlines() == [
        "one: 1.3 s",
        "  one.png: One.",
        "  one-ends.png: Two.",
    ]
    assert claims_text("one", [], verbose=False) == f"one: {tally([])}" == "one: 0 claims"


def test_several_runs_end_with_the_contradicted_claims():
    runs = {"one": done(CLAIMS[:1]), "two": done(), "three": done(claims=None)}
    assert summary(runs).splitlines() == [
        "3 experiments, 5 claims: 3 SUPPORTED, 1 NOT SUPPORTED, 1 INCONCLUSIVE",
        "  two: NOT SUPPORTED 1: it rises",
    ]
    assert written(runs, Path("there")) == "6 files in there (--verbose lists them, and the settings of each claim)"
    assert written({"one": done(files=[Path("x")])}, Path("there"), verbose=True) == "1 file in there"


@pytest.mark.parametrize("width", [24, 40, 80])
def test_no_line_ends_within_a_verdict(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    text = "  in this setting the claim is NOT SUPPORTED, and it is HYPOTHESES FAIL in the other-setting"
    lines = wrapped(text).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line.startswith("      ") for line in lines[1:])
    assert sum("NOT SUPPORTED" in line for line in lines) == sum("HYPOTHESES FAIL" in line for line in lines) == 1
