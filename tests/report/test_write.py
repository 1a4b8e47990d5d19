"""A report is written from saved results, without computing or drawing anything."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from linfed.report.write import collected, write
from linfed.reproduction.record import ResultsFolder, RunRecord
from tests.helpers import ROOT, finding
from tests.reproduction.toys import refused


def save(folder, *names, **changes):
    folder = ResultsFolder(Path(folder))
    folder.create()
    for name in names:
        folder.write(RunRecord(**{"experiment": name, "quick": False, "claims": (finding(),)} | changes))
    return folder


def test_the_command_says_what_it_wrote(written):
    folder, said = written
    assert said == f"wrote {folder / 'report.html'}\n"
    assert [path.name for path in folder.rglob("*")] == ["report.html"]


def test_the_title_says_what_when_and_which_commit(tmp_path):
    where = save(tmp_path, "a", quick=True, date="2026-01-02", commit="a" * 40)
    found = collected(str(tmp_path / "a.json"))
    assert found.title == "linfed: results of a"
    commit = f"commit {'a' * 12}. Nothing was recomputed."
    assert found.about == f"Quick run of 2026-01-02 in {tmp_path / 'a.json'}; {commit}"
    where.write(RunRecord(experiment="b", quick=False, date="2026-01-03", commit="b" * 40))
    found = collected(str(tmp_path))
    assert found.title == "linfed: results of a and b"
    commits = f"commits {'a' * 12}, {'b' * 12}. Nothing was recomputed."
    assert found.about == f"Full and quick runs of 2026-01-02 to 2026-01-03 in {tmp_path}; {commits}"
    where.write(replace(where.read("a"), quick=False))
    save(tmp_path, "c", "d")
    found = collected(str(tmp_path))
    assert found.title == "linfed: results of 4 experiments"
    assert found.about.startswith("Full runs of ")


def test_headlines_without_a_claim_are_left_out_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    save(tmp_path, "fedrep-fig1")
    assert collected(str(tmp_path)).scoreboard == []
    err = capsys.readouterr().err
    assert err.startswith("linfed: fedrep-fig1: HEADLINES[0]: no claim is ")
    assert err.endswith("; the scoreboard leaves it out\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere",), "FOLDER 'nowhere' does not exist"),
        (("torn",), "'torn/one.json' is not a valid record of a run"),
        (("good", "--baseline", "nowhere"), "--baseline 'nowhere' does not exist"),
        (("good", "--baseline", "other"), "the runs have no experiment in common"),
        (("x" * 5000,), "cannot be read: File name too long"),
        (("good", "--out", "torn/one.json"), "--out 'torn/one.json' cannot be written"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments, told, folder, capsys):
    save("good", "one")
    save("other", "two")
    save("torn", "one").record("one").write_text("{")
    assert told in refused(capsys, "report", *arguments)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_the_place_of_a_record_is_one_line(tmp_path, capsys):
    os.mkfifo(tmp_path / "one.json")
    assert "one.json' is not a valid record of a run (it is not a regular file)" in refused(capsys, "report", tmp_path)


@pytest.mark.long
def test_a_report_draws_nothing(results, tmp_path):
    shutil.copy(results / "toy-fall.json", tmp_path)
    code = "import sys; from linfed import cli; cli.main(sys.argv[1:]); print(*sys.modules)"
    command = [sys.executable, "-c", code, "report", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "linfed.report.page" in done.stdout.split()
    assert "matplotlib" not in done.stdout.split()


def test_out_is_a_folder_or_a_file(tmp_path):
    save(tmp_path / "runs", "one")
    for out, path in (("there", "there/report.html"), ("pages/mine.html", "pages/mine.html"), ("rep.HTML", "rep.HTML")):
        assert write(str(tmp_path / "runs"), out=str(tmp_path / out)) == tmp_path / path
        assert (tmp_path / path).read_text().startswith("<!DOCTYPE html>")
