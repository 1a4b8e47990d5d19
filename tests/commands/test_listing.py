"""``linfed list``: algorithms and experiments, the time of a full run, and which runs are saved."""

import re
from pathlib import Path

import pytest

from linfed.reproduction import committed
from linfed.reproduction.record import ResultsFolder, RunRecord
from tests.helpers import ROOT, mostly_long
from tests.reproduction.toys import refused, run


def test_algorithms_and_experiments_are_named(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "300")
    assert run("list") == run("list", "--algorithms") == 0
    printed = capsys.readouterr().out
    for name in ("FedRep", "LocalOnly", "fedrep-fig3", "altmin"):
        assert sum(line.startswith(f"  {name}  ") for line in printed.splitlines()) == 1


def test_saved_runs_and_times_are_shown(toy, capsys, monkeypatch):
    monkeypatch.setattr(committed, "committed_runs", lambda: {"toy-one": committed.Committed(241.6, {})})

    def states():
        assert run("list", "--experiments", toy) == 0
        return re.findall(r"^  toy-one +4 min(?: +(.+?))?  +a toy$", capsys.readouterr().out, re.M)

    found = states()
    for folder, quick in (("results", False), ("results/quick", True)):
        Path(folder).mkdir()
        ResultsFolder(Path(folder)).write(RunRecord(experiment="toy-one", quick=quick, judged=""))
        found += states()
    ResultsFolder().write(RunRecord(experiment="toy-one", quick=False))
    found += states()
    Path("results/toy-one.json").write_text("{")
    found += states()
    assert found == ["", "full", "full, quick", "unfinished, quick", "unreadable, quick"]
    assert run("list", "--experiments", toy, "--out", "results/quick") == 0
    assert re.search("^  toy-one +4 min +quick +a toy$", capsys.readouterr().out, re.M)


def test_a_file_in_the_place_of_the_results_is_one_line(toy, capsys):
    Path("file").write_text("")
    assert "'file' cannot be read" in refused(capsys, "list", "--experiments", toy, "--out", "file")


@pytest.mark.parametrize("width", mostly_long([60, 130], 60))
def test_lines_end_at_the_width_of_the_terminal(width, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(width))
    shown = ["show", "flute-fig3", "fedrep-theorem1", "--out", "results/committed"]
    for arguments in (["list"], ["list", "--algorithms"], shown, [*shown, "--verbose"]):
        assert run(*arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        assert 0.8 * width < max(map(len, lines)) <= width
        assert max(len(line) - len(line.lstrip()) for line in lines) <= width // 2
