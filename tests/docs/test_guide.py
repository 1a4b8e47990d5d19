"""The files, commands and changes that the guide prints do what it says."""

import re
from pathlib import Path

import pytest

import linfed as lf
from linfed.reproduction.own_settings import read_settings
from linfed.reproduction.record import ResultsFolder
from linfed.reproduction.run import ReproduceOptions, cells_ready
from tests.helpers import ROOT
from tests.reproduction.toys import refused, run, write

EXPERIMENTS = ROOT / "experiments"


def page(name):
    return (ROOT / "docs" / "guide" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_the_file_in_the_guide_to_sweeps_runs(folder, monkeypatch):
    monkeypatch.setattr("linfed.reproduction.default_figure.MOST_PREDICTIONS", 0)
    (text,) = re.findall(r"```text\n(import linfed as lf\n.*?)```", page("sweeps"), re.S)
    write("heads.py", text)
    assert run("reproduce", "heads.py") == 0
    table = lf.Table.load("results/heads-runs.npz")
    assert len(table) == 8
    assert set(table["step_size"]) == {0.3, 0.9}
    assert (table["subspace_distance"][..., -1] < 0.1).mean() > 0.9
    changes = ["--set", "problem.n_clients=40", "--set", "problem.noise_std=0.1"]
    assert run("reproduce", "heads.py", "--quick", *changes) == 0
    assert len(lf.Table.load("results/set/quick/heads-runs.npz")) == 4


def test_the_commands_in_the_guide_to_sweeps_can_be_meant():
    (settings,) = re.findall(r"linfed reproduce fedrep-fig1 --quick (.*)", page("sweeps"))
    options = ReproduceOptions(quick=True, set=read_settings(settings.replace("--set", "").split()))
    cells = cells_ready(EXPERIMENTS / "fedrep" / "fedrep_fig1.py", options)["clients"]
    assert {(cell.dim, cell.rank) for cell in cells} == {(30, 4)}


def changed(file, block):
    """Apply the changes of a page to a file: lines with + after one with -, which they replace, or after another."""
    text = file.read_text(encoding="utf-8")
    for kind, old, new in re.findall(r"(?m)^([- ])(.*)\n((?:\+.*\n)+)", block):
        assert text.count(f"\n{old}\n") == 1
        kept = f"{old}\n" if kind == " " else ""
        text = text.replace(f"\n{old}\n", f"\n{kept}" + re.sub(r"(?m)^\+", "", new))
    file.write_text(text, encoding="utf-8")


@pytest.mark.long
def test_the_guide_to_a_papers_figure_changes_a_copy(folder, capsys):
    """The commands and the changes of the guide; the run is of a small part."""
    text = page("paper-figure")
    copy, show, reproduce = re.findall(r"(?m)^linfed (copy .*|show mine.*|reproduce mine.*)$", text)
    assert run(*copy.split(), "--experiments", EXPERIMENTS) == 0
    said = "Change mine/fedrep_fig3.py, and run linfed reproduce mine/fedrep_fig3.py --out mine/results\n"
    assert capsys.readouterr().out == said
    (block,) = re.findall(r"(?s)```diff\n(.*?)```", text)
    changed(Path("mine/fedrep_fig3.py"), block)
    assert run(*show.split()) == 0
    assert "10GD-GD needs fewer rounds than 5GD-GD\n  our conjecture" in capsys.readouterr().out
    small = ["--set", "n_clients=20", "--set", "n_rounds=20", "--set", "tuning_trials=1", "--trials", 6, "--workers", 1]
    assert run(*reproduce.split(), *small) == 0
    record = ResultsFolder(Path("mine/results")).read("fedrep-fig3")
    assert [one.setting for one in record.claims if "5GD-GD" in one.claim] == ["paper: n = 20", "notebook: n = 20"]
    assert Path("mine/results/fedrep-fig3.png").exists()
    told = refused(capsys, *reproduce.split(), "--set", "method=FedPer")
    assert "method = 'FedPer' is unknown; allowed: 'FedRep', '10GD-GD', '5GD-GD', 'GD-GD'\n" in told
