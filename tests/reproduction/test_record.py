"""The record of a run and the folder of results: what is written comes back, and contradictions are refused."""

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest

from linfed.errors import UsageError
from linfed.reproduction.record import ResultsFolder, RunRecord, TableRecord, read_record, read_runs
from linfed.statistics import Hypothesis
from tests.arguments import odd_json
from tests.helpers import ROOT, finding

CLAIMS = (
    finding(estimate=np.nan, low=-np.inf, high=np.inf),
    finding(low=0.8, high=np.inf, claimed_high=1e6),
    finding(claimed_low=-np.inf, claimed_high=0.3, low=np.inf, high=np.inf, estimate=np.inf, strict=True),
    finding(vacuous="it cannot fail", theorem=True, hypotheses=(Hypothesis(text="n > 1", left=2.0, right=np.inf),)),
    finding(
        low=np.nan, high=np.nan, hypotheses=(Hypothesis(text="n > 1", left=2.0, right=1.0),), note="a\nb", detail="é"
    ),
)

RECORD = RunRecord(
    experiment="one",
    file="/a/one.py",
    quick=False,
    command="linfed reproduce one.py",
    set={"trials": 3, "problem.noise_std": 0.5, "shape": (1, (2, 3)), "word": "inf"},
    tables={"runs": TableRecord(rows=2, shared={"steps": (0.1, 0.2), "dim": 3, "name": None})},
    seconds=3.5,
    blas=("openblas 1", "openblas 2"),
    figures={"": "One.", "ends": "Two."},
    judged="",
    claims=CLAIMS,
)


def test_a_record_comes_back_from_its_file(tmp_path):
    folder = ResultsFolder(tmp_path)
    text = folder.write(RECORD).read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    again = folder.read("one")
    assert repr(again) == repr(RECORD)  # NaN differs from itself
    assert [one.verdict for one in again.claims] == [one.verdict for one in CLAIMS]
    assert again.to_json() == json.loads(text)
    assert folder.records().keys() == {"one"}
    empty = RunRecord(experiment="two", quick=True)
    folder.write(empty)
    assert folder.read("two") == empty
    assert (folder.status("one"), folder.status("two"), folder.status("three")) == ("", "unfinished", "")
    folder.write(dataclasses.replace(RECORD, file=None))
    assert folder.status("one") == "full"  # a run of one's own file does not count


def test_fields_of_later_versions_are_left_out_and_missing_ones_have_their_defaults(tmp_path):
    value = RECORD.to_json() | {"later": [1]}
    del value["machine"]
    found = RunRecord.from_json(value)
    assert repr(found) == repr(dataclasses.replace(RECORD, machine=""))
    for name in ("experiment", "quick"):
        with pytest.raises(ValueError, match=f"^{name} is missing$"):
            RunRecord.from_json({key: one for key, one in value.items() if key != name})


@pytest.mark.parametrize("changes", [{"claims": [{"verdict": "HOLDS"}]}, {"format": 1, "claims": [{"estimate": None}]}])
def test_a_record_that_contradicts_itself_is_read_without_its_claims(changes, tmp_path):
    """To judge it again; the first format had null for infinite numbers and NaN."""
    folder = ResultsFolder(tmp_path)
    value = RECORD.to_json()
    folder.record("one").write_text(
        json.dumps(value | changes | {"claims": [value["claims"][1] | changes["claims"][0]]})
    )
    with pytest.raises(UsageError, match=r"\(.*(HOLDS|its format is 1).*\): rewrite it with linfed replot one --out "):
        folder.read("one")
    assert folder.status("one") == "unreadable"
    assert repr(folder.read("one", with_claims=False)) == repr(dataclasses.replace(RECORD, claims=()))


def test_odd_json_is_a_record_or_one_line(tmp_path):
    """Also values of the right type that contradict each other."""
    path = tmp_path / "one.json"
    for seed in range(150):
        chance = random.Random(seed)
        value = json.loads(json.dumps(RECORD.to_json()))
        if seed % 2:
            claim, *others = chance.sample(value["claims"], len(CLAIMS))
            for name in chance.sample(sorted(claim), 2):
                claim[name] = chance.choice([*others[0].values(), " ", "-inf", "nan", 1])
        else:
            value = odd_json(chance, value)
        path.write_text(json.dumps(value).replace('"DEEP"', "[" * 10**5 + "]" * 10**5))
        try:
            found = read_record(path)
        except UsageError as error:
            found = str(error)
        if isinstance(found, RunRecord):
            assert found.to_json() == RunRecord.from_json(found.to_json()).to_json(), seed
        else:
            assert found is None or "\n" not in found, seed


ODD = [
    ({"seconds": None}, "seconds = None has the wrong type"),
    ({"versions": [5]}, "versions = [5] has the wrong type"),
    ({"claims": [5]}, "claims[0] = 5 has the wrong type"),
    ({"tables": {"a": {"rows": 2.5}}}, "tables.a.rows = 2.5 has the wrong type"),
    ({"seconds": 10**400}, "int too large to convert to float"),
    ({"cells": True}, "cells = True has the wrong type"),
    ({"machine": "\ud800"}, "machine = '\\ud800' cannot be printed"),
    ({"format": 1}, "its format is 1 instead of 2"),
    ({"estimate": "x"}, "claims[0].estimate = 'x' has the wrong type"),
    ({"low": 0.1}, "claims[0].verdict = 'SUPPORTED', but its numbers give INCONCLUSIVE"),
    ({"claimed_high": 0.4}, "claims[0]: claimed_low = 0.5 must be at most claimed_high = 0.4"),
    ({"hypotheses": [{"text": "n > 1", "left": 1}]}, "claims[0].hypotheses[0].right is missing"),
    ({"experiment": "<script>alert(1)</script>"}, "experiment = '<script>alert(1)</script>' is not the name of an exp"),
]


@pytest.mark.parametrize(("changes", "told"), ODD)
def test_an_odd_record_is_one_line(changes, told, tmp_path):
    """Its claims can be judged again from the saved tables; the rest must be computed."""
    record = dataclasses.replace(RECORD, file=None, claims=(finding(), *CLAIMS)).to_json()
    of_claim = changes.keys() & record["claims"][0].keys()
    (record["claims"][0] if of_claim else record).update(changes)
    (tmp_path / "one.json").write_text(json.dumps(record))
    word = "replot" if of_claim or changes.keys() & {"claims", "format"} else "reproduce"
    with pytest.raises(UsageError) as caught:
        read_runs(str(tmp_path))
    message = str(caught.value)
    assert f"one.json' is not a valid record of a run ({told}" in message
    assert message.endswith(f"): rewrite it with linfed {word} one --out {tmp_path}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "Expecting property name"), ("[" * 100_000, "it is nested too deeply")]
)
def test_a_file_that_is_no_json_is_one_line(text, reason, tmp_path):
    (tmp_path / "one.json").write_text(text)
    with pytest.raises(UsageError, match=rf"one\.json' is not a valid record of a run \({reason}[^\n]*$"):
        read_runs(str(tmp_path))
    assert ResultsFolder(tmp_path).status("one") == "unreadable"


def test_files_of_other_things_are_no_records(tmp_path):
    folder = ResultsFolder(tmp_path)
    for name, text in (("benchmarks", "[]"), ("sweep", '{"quick": true}')):
        (tmp_path / f"{name}.json").write_text(text)
    folder.write(RunRecord(experiment="one", quick=False))
    assert list(folder.records()) == ["one"]
    for name in ("benchmarks", "sweep"):
        with pytest.raises(
            UsageError, match=rf"{name}\.json' is not a valid record of a run: rewrite it with linfed re"
        ):
            folder.read(name)
    (tmp_path / "again.json").write_text((tmp_path / "one.json").read_text())
    with pytest.raises(UsageError, match=r"one\.json' is a second record of 'one' in this folder"):
        folder.records()


@pytest.mark.long
def test_committed_records_come_back_as_they_were_written():
    folder = ResultsFolder(ROOT / "results" / "committed")
    for name, record in folder.records().items():
        assert record.to_json() == json.loads(folder.record(name).read_text(encoding="utf-8")), name


@pytest.mark.parametrize("changes", [{"figures": {"/../x": "One."}}, {"tables": {"/../x": {"rows": 1}}}])
def test_a_record_names_no_files_of_other_folders(changes):
    with pytest.raises(ValueError, match=r"^'/../x' is not the name of a table or figure$"):
        RunRecord.from_json(RECORD.to_json() | changes)


# --- the folder ----------------------------------------------------------------------------------------------


def test_the_commands_name_the_folder_where_it_is_not_the_default():
    results = ResultsFolder()
    assert results.command("replot", "one") == "linfed replot one"
    assert results.part(quick=True).command("replot", "one") == "linfed replot one --quick"
    assert results.part(quick=True, changed=True).command("show", "one") == "linfed show one --out results/set/quick"
    assert ResultsFolder(Path("a b")).replot(RECORD) == "linfed replot /a/one.py --out 'a b'"
    assert results.figure("one", "ends") == Path("results/one-ends.png")
    assert results.figure("one", "", ".txt") == Path("results/one.txt")


@pytest.mark.parametrize(
    ("saved", "asked", "advice"),
    [
        ("results/quick", "results", "there is a quick run; choose it with --out results/quick"),
        ("a b/quick", "a b", "there is a quick run; choose it with --out 'a b/quick'"),
        ("results", "results/quick", "there is a full run; choose it with --out results"),
        ("results/set", "results", "there is a run with changed fields; choose it with --out results/set"),
        (
            "results/set/quick",
            "results/quick",
            "a quick run with changed fields; choose it with --out results/set/quick",
        ),
        ("results", "results/set", "there is a full run; choose it with --out results"),
        ("elsewhere", "results", "run linfed reproduce fedrep-fig1, or choose another folder with --out DIR"),
    ],
)
def test_a_run_in_another_folder_is_found(saved, asked, advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = ResultsFolder(Path(saved))
    folder.create()
    folder.write(dataclasses.replace(RECORD, experiment="fedrep-fig1"))
    with pytest.raises(UsageError, match=f"{advice}$"):
        ResultsFolder(Path(asked)).read("fedrep-fig1")


def test_runs_are_read_from_a_folder_or_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = ResultsFolder(Path("results/quick"))
    folder.create()
    for name in ("one", "two"):
        folder.write(dataclasses.replace(RECORD, experiment=name))
    Path("other.json").write_text("[]")
    assert [*read_runs("results/quick")[1]] == ["one", "two"]
    where, records = read_runs("results/quick/two.json")
    assert (where, [*records]) == (folder, ["two"])
    for path, said in {
        "nowhere": "A 'nowhere' does not exist",
        "resluts": "A 'resluts' does not exist (did you mean 'results'?)",
        "results": "A 'results' does not contain a NAME.json from linfed reproduce; these folders do: results/quick",
        "other.json": "A 'other.json' is not a NAME.json from linfed reproduce",
    }.items():
        with pytest.raises(UsageError) as caught:
            read_runs(path, "A")
        assert str(caught.value) == said


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"file' cannot be read \(Not a directory\): choose another folder with --out"):
        ResultsFolder(tmp_path / "file").check_readable()
    with pytest.raises(UsageError, match=r"--out .*below' cannot be written: "):
        ResultsFolder(tmp_path / "file" / "below").create()


def test_own_files_are_those_that_still_exist(tmp_path):
    folder = ResultsFolder(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "mine.py").touch()
    for name, file in (("one", tmp_path / "mine.py"), ("gone", tmp_path / "gone.py"), ("named", None)):
        folder.write(dataclasses.replace(RECORD, experiment=name, file=file and str(file)))
    assert folder.own_files() == {"one": tmp_path / "mine.py"}
