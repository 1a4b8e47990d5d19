"""The record of a run and the folder of results: what is written comes back, and contradictions are refused."""

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest

from linfed import cli
from linfed.errors import UsageError
from linfed.reproduction.record import ResultsFolder, RunRecord, TableRecord, read_record
from linfed.statistics import Hypothesis
from tests.helpers import finding
from tests.package.fuzz import odd_json

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


def test_a_verdict_that_contradicts_its_numbers_is_refused_until_the_run_is_judged_again(tmp_path, monkeypatch):
    """Whatever the claims are, the rest of the record is read to judge it again."""
    monkeypatch.chdir(tmp_path)
    value = RECORD.to_json()
    value["claims"][1]["verdict"] = "HOLDS"
    ResultsFolder().create()
    ResultsFolder().record("one").write_text(json.dumps(value))
    told = r"'results/one.json' is not a valid record of a run \(claims\[1\].verdict = 'HOLDS', but its numbers give "
    with pytest.raises(UsageError, match=rf"^{told}INCONCLUSIVE\): rewrite it with linfed replot one$"):
        ResultsFolder().read("one")
    assert ResultsFolder().status("one") == "unreadable"
    assert repr(ResultsFolder().read("one", with_claims=False)) == repr(dataclasses.replace(RECORD, claims=()))


def test_a_record_of_the_first_format_is_read_without_claims(tmp_path):
    value = RECORD.to_json() | {"claims": [{"estimate": None}], "commit": None}
    del value["format"]
    ResultsFolder(tmp_path).record("one").write_text(json.dumps(value))
    with pytest.raises(UsageError, match=r"\(its format is 1 instead of 2\): rewrite it with linfed replot one --out "):
        ResultsFolder(tmp_path).read("one")
    assert ResultsFolder(tmp_path).read("one", with_claims=False).tables == RECORD.tables


@pytest.mark.parametrize("seed", range(150))
def test_odd_json_is_a_record_or_one_line(seed, tmp_path):
    """Also values of the right type that contradict each other."""
    chance = random.Random(seed)
    value = json.loads(json.dumps(RECORD.to_json()))
    if seed % 2:
        claim, *others = chance.sample(value["claims"], len(CLAIMS))
        for name in chance.sample(sorted(claim), 2):
            claim[name] = chance.choice([*others[0].values(), " ", "-inf", "nan", 1])
    else:
        value = odd_json(chance, value)
    path = tmp_path / "one.json"
    path.write_text(json.dumps(value).replace('"DEEP"', "[" * 10**5 + "]" * 10**5))
    try:
        found = read_record(path)
    except UsageError as error:
        found, told = None, str(error)
        assert told.count("\n") == 0
    if found is not None:
        assert found.to_json() == RunRecord.from_json(found.to_json()).to_json()


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
        ("results/quick", "results", "there is a quick run; select it with --quick"),
        ("results", "results/quick", "there is a full run; leave out --quick"),
        ("results/set", "results", "there is a run with changed fields; choose it with --out results/set"),
        ("results/set/quick", "results/quick", "a run with changed fields; choose it with --out results/set/quick"),
        ("results", "results/set", "there is a full run; leave out --quick"),
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


def test_show_takes_paths_as_report_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    folder = ResultsFolder(Path("elsewhere"))
    folder.create()
    for name in ("one", "two"):
        folder.write(dataclasses.replace(RECORD, experiment=name, file=None))
    (folder.path / "benchmarks.json").write_text("[]")
    assert cli.main(["show", "elsewhere"]) == 0
    every = capsys.readouterr().out
    assert [line[:14] for line in every.splitlines() if ", linfed ?" in line] == ["one: full run,", "two: full run,"]
    assert cli.main(["show", "elsewhere/two.json"]) == 0
    assert capsys.readouterr().out == every[every.index("two: full run") :]
    assert cli.main(["show", "elsewhere/twoo.json"]) == 2
    assert capsys.readouterr().err == "linfed: NAME 'elsewhere/twoo.json' does not exist (did you mean 'two.json'?)\n"
