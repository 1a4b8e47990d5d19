"""``linfed copy``: the copy of every experiment runs, can be changed, and is not mistaken for the experiment."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from linfed import cli
from linfed.errors import UsageError
from linfed.reproduction.experiments import cells_of, copied_files, experiment_files, is_named, load_file
from linfed.reproduction.own_settings import check_cells, with_settings
from linfed.reproduction.record import ResultsFolder
from linfed.tables.table import Table
from tests.helpers import ROOT, each, forget, own_folder

FOLDER = ROOT / "experiments"
FILES = experiment_files(FOLDER)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, whose modules and path are gone afterwards."""
    with own_folder(tmp_path, monkeypatch):
        yield tmp_path


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


def copied(name, folder="mine"):
    """Copy an experiment, and return its file."""
    assert run("copy", name, folder, "--experiments", FOLDER) == 0
    return Path(folder) / FILES[name].name


def refused(capsys, *arguments):
    """Return the one line with which a command refuses."""
    capsys.readouterr()
    assert run(*arguments) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


def plain(cell):
    """Return the fields of a cell, also of cells and algorithms within it, without their classes' modules."""
    if dataclasses.is_dataclass(cell):
        return type(cell).__name__, [plain(getattr(cell, one.name)) for one in dataclasses.fields(cell)]
    return repr(cell)


@each("name", FILES)
def test_every_copy_has_the_cells_of_its_experiment_and_refuses_unknown_words(name, tmp_path):
    place = f"copy_{name.replace('-', '_')}"
    module = load_file(copied(name, place))
    assert Path(module.__file__).parent == tmp_path / place
    assert {path.name for path in Path(place).iterdir()} - {"__pycache__"} == {
        "__init__.py",
        *(path.name for path in copied_files(FILES[name])),
    }
    lists, shipped = cells_of(module, quick=True), cells_of(load_file(FILES[name]), quick=True)
    assert {key: list(map(plain, cells)) for key, cells in lists.items()} == {
        key: list(map(plain, cells)) for key, cells in shipped.items()
    }
    check_cells(lists)
    if any(one.name == "method" for cells in lists.values() for cell in cells for one in dataclasses.fields(cell)):
        with pytest.raises(UsageError, match=r"method = 'Nonsense' is unknown; allowed: '[^\n]*$"):
            with_settings(lists, {"method": "Nonsense"})
    forget(tmp_path)


def test_the_files_of_a_copy_have_different_names():
    for file in FILES.values():
        names = [path.name for path in copied_files(file)]
        assert len({*names}) == len(names)
    assert "tripuraneni.json" in [path.name for path in copied_files(FILES["tripuraneni"])]


@pytest.mark.parametrize("name", ["fedrep-fig1", pytest.param("shortcut-bound", marks=pytest.mark.long)])
def test_a_copy_has_the_numbers_and_verdicts_of_its_experiment(name):
    file, small = copied(name), ["--quick", "--trials", 3, "--workers", 1]
    assert run("reproduce", file, *small, "--out", "mine/results") == 0
    assert run("reproduce", name, "--experiments", FOLDER, *small, "--out", "shipped") == 0
    one, other = ResultsFolder(Path("mine/results")).read(name), ResultsFolder(Path("shipped")).read(name)
    assert Path(one.file) == file.resolve()
    assert other.file is None
    assert one.claims == other.claims
    assert one.figures == other.figures
    for key in one.tables:
        paths = [f"{folder}/{name}-{key}.npz" for folder in ("mine/results", "shipped")]
        assert repr(Table.load(paths[0]).to_records()) == repr(Table.load(paths[1]).to_records())


def changed(file, page):
    """Apply the changes of a page, a block with lines that begin with - or +, to a file."""
    (block,) = re.findall(r"(?s)```diff\n(.*?)```", page)
    text = file.read_text(encoding="utf-8")
    for old, new in re.findall(r"(?m)^-(.*)\n((?:\+.*\n)+)", block):
        assert text.count(f"\n{old}\n") == 1
        text = text.replace(f"\n{old}\n", "\n" + re.sub(r"(?m)^\+", "", new))
    file.write_text(text, encoding="utf-8")


def test_the_guide_changes_a_copy(capsys):
    """The commands and the changes of the guide; the run is of a small part."""
    page = (FOLDER.parent / "docs" / "guide" / "paper-figure.md").read_text(encoding="utf-8")
    copy, show, reproduce = re.findall(r"(?m)^linfed (copy .*|show mine.*|reproduce mine.*)$", page)
    assert run(*copy.split(), "--experiments", FOLDER) == 0
    said = "Change mine/fedrep_fig3.py, and run linfed reproduce mine/fedrep_fig3.py --out mine/results\n"
    assert capsys.readouterr().out == said
    changed(Path("mine/fedrep_fig3.py"), page)
    assert run(*show.split()) == 0
    shown = capsys.readouterr().out
    assert "10GD-GD needs fewer rounds than 5GD-GD\n  our conjecture" in shown
    small = ["--set", "n_clients=20", "--set", "rounds=20", "--set", "tuning_trials=1", "--trials", 6, "--workers", 1]
    assert run(*reproduce.split(), *small) == 0
    record = ResultsFolder(Path("mine/results")).read("fedrep-fig3")
    assert [one.setting for one in record.claims if "5GD-GD" in one.claim] == ["paper: n = 20", "notebook: n = 20"]
    assert Path("mine/results/fedrep-fig3.png").exists()
    assert "method = 'FedPer' is unknown; allowed: 'FedRep', '10GD-GD', '5GD-GD', 'GD-GD'\n" in refused(
        capsys, *reproduce.split(), "--set", "method=FedPer"
    )


SMALL = '''"""A small experiment."""
from dataclasses import dataclass
import linfed as lf

@dataclass(frozen=True)
class Cell:
    n: int = 3

    def run(self):
        return {"value": float(self.n)}

def cells(quick):
    return [Cell()]
'''


def test_results_of_a_copy_and_of_its_experiment_are_not_mixed_up(capsys, monkeypatch):
    """The record of a copy has its path; commands refuse one in the place of the other, and say how to go on."""
    Path("experiments/fedrep").mkdir(parents=True)
    for path in ("experiments", "experiments/fedrep"):
        Path(path, "__init__.py").touch()
    shipped = Path("experiments/fedrep/small_one.py")
    shipped.write_text(SMALL)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for module in [one for one in sys.modules if one.partition(".")[0] == "experiments"]:
        del sys.modules[module]
    assert run("copy", "small-one") == 0
    copy = Path("mine/small_one.py")
    assert (is_named(shipped), is_named(copy)) == (True, False)
    assert run("reproduce", "small-one", "--workers", 1) == 0
    said = "has the results of 'experiment small-one': choose another folder with --out DIR\n"
    for command in (["reproduce", copy, "--workers", 1], ["replot", copy], ["show", copy]):
        assert refused(capsys, *command) == f"linfed: 'results' {said}"
    assert run("reproduce", copy, "--workers", 1, "--out", "other") == 0
    record = ResultsFolder(Path("other")).read("small-one")
    assert (record.file, record.command) == (str(copy.resolve()), "linfed reproduce mine/small_one.py")
    assert ResultsFolder(Path("other")).replot(record) == "linfed replot mine/small_one.py --out other"
    said = "'other' has the results of 'mine/small_one.py': choose another folder with --out DIR\n"
    for command in (["reproduce", "small-one", "--workers", 1], ["replot", "small-one"], ["show", shipped]):
        assert refused(capsys, *command, "--out", "other") == f"linfed: {said}"
    for command in (["replot", copy, "--out", "other"], ["replot", "all", "--out", "other"], ["report", "other"]):
        assert run(*command) == 0
    assert ResultsFolder(Path("other")).read("small-one").file == str(copy.resolve())
    assert "mine/small_one.py" in Path("other/report.html").read_text()
    capsys.readouterr()
    assert run("show", copy, "--out", "other") == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(", mine/small_one.py")
    assert run("list", "--out", "other") == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["small-one", "-", "-", "-"]
    monkeypatch.setattr("linfed.reproduction.committed.committed_runs", lambda: {"small-one": None})
    assert "--strict requires a committed run" in refused(capsys, "reproduce", copy, "--strict", "--out", "other")


@pytest.mark.parametrize("given", ["mine", "json", "linfed", "two-words", "there/2"])
def test_a_copy_needs_a_new_folder_that_is_a_package(given, capsys):
    Path("mine").mkdir()
    told = refused(capsys, "copy", "fedrep-fig1", given, "--experiments", FOLDER)
    assert told == (f"linfed: DIR = {given!r} must be a new folder with the name of a Python package, e.g. mine\n")
    assert "did you mean 'fedrep-fig1'" in refused(capsys, "copy", "fedrep-fi1", "--experiments", FOLDER)
