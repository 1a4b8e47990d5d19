"""``linfed copy``: the copy of an experiment runs, can be changed, and is not mistaken for the experiment."""

import dataclasses
import sys
from pathlib import Path

import pytest

from linfed.errors import UsageError
from linfed.reproduction.experiments import cells_of, copied_files, experiment_files, load_file
from linfed.reproduction.own_settings import check_cells, with_settings
from linfed.reproduction.record import ResultsFolder
from linfed.tables.table import Table
from tests.helpers import ROOT, mostly_long
from tests.reproduction.toys import TOY, refused, run, write

pytestmark = pytest.mark.usefixtures("folder")

FOLDER = ROOT / "experiments"
FILES = experiment_files(FOLDER)


def copied(name, folder="mine"):
    """Copy an experiment, and return its file."""
    assert run("copy", name, folder, "--experiments", FOLDER) == 0
    return Path(folder) / FILES[name].name


def plain(cell):
    """Return the fields of a cell, also of cells and algorithms within it, without their classes' modules."""
    if dataclasses.is_dataclass(cell):
        return type(cell).__name__, [plain(getattr(cell, one.name)) for one in dataclasses.fields(cell)]
    return repr(cell)


@pytest.mark.parametrize("name", mostly_long(FILES, "fedrep-fig3", "flute-fig1", "averaging-family"))
def test_every_copy_has_the_cells_of_its_experiment_and_refuses_unknown_words(name, folder):
    place = f"copy_{name.replace('-', '_')}"
    module = load_file(copied(name, place))
    assert Path(module.__file__).parent == folder / place
    files = {path.name for path in Path(place).iterdir()} - {"__pycache__"}
    assert files == {"__init__.py", *(path.name for path in copied_files(FILES[name]))}
    lists, shipped = cells_of(module, quick=True), cells_of(load_file(FILES[name]), quick=True)
    assert {key: list(map(plain, cells)) for key, cells in lists.items()} == {
        key: list(map(plain, cells)) for key, cells in shipped.items()
    }
    check_cells(lists)
    if any(one.name == "method" for cells in lists.values() for cell in cells for one in dataclasses.fields(cell)):
        with pytest.raises(UsageError, match=r"method = 'Nonsense' is unknown; allowed: '[^\n]*$"):
            with_settings(lists, {"method": "Nonsense"})


@pytest.mark.long
def test_a_copy_has_the_numbers_and_verdicts_of_its_experiment():
    name = "fedrep-near-truth"
    file, small = copied(name), ["--quick", "--trials", 8, "--workers", 1]
    assert run("reproduce", file, *small, "--out", "mine/results") == 0
    assert run("reproduce", name, "--experiments", FOLDER, *small, "--out", "shipped") == 0
    one, other = ResultsFolder(Path("mine/results")).read(name), ResultsFolder(Path("shipped")).read(name)
    assert Path(one.file) == file.resolve()
    assert other.file is None
    assert one.claims == other.claims
    assert one.figures == other.figures
    for key in one.tables:
        tables = [Table.load(f"{folder}/{name}-{key}.npz") for folder in ("mine/results", "shipped")]
        assert repr(tables[0].to_records()) == repr(tables[1].to_records())


def test_results_of_a_copy_and_of_its_experiment_are_not_mixed_up(capsys, monkeypatch):
    """The record of a copy has its path; commands refuse one in the place of the other, and say how to go on."""
    for place in ("experiments", "experiments/fedrep"):
        write(f"{place}/__init__.py", "")
    shipped = write("experiments/fedrep/toy_one.py", TOY)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for module in [one for one in sys.modules if one.partition(".")[0] == "experiments"]:
        del sys.modules[module]
    assert run("copy", "toy-one") == 0
    copy = Path("mine/toy_one.py")
    assert run("reproduce", "toy-one", "--workers", 1) == 0
    said = "has the results of 'experiment toy-one': choose another folder with --out DIR\n"
    for command in (["replot", copy], ["show", copy]):
        assert refused(capsys, *command) == f"linfed: 'results' {said}"
    assert run("reproduce", copy, "--workers", 1, "--out", "other") == 0
    record = ResultsFolder(Path("other")).read("toy-one")
    assert (record.file, record.command) == (str(copy.resolve()), "linfed reproduce mine/toy_one.py")
    said = "'other' has the results of 'mine/toy_one.py': choose another folder with --out DIR\n"
    for command in (["replot", "toy-one"], ["show", shipped]):
        assert refused(capsys, *command, "--out", "other") == f"linfed: {said}"
    for command in (["replot", copy, "--out", "other"], ["replot", "all", "--out", "other"], ["report", "other"]):
        assert run(*command) == 0
    assert ResultsFolder(Path("other")).read("toy-one").file == str(copy.resolve())
    assert "mine/toy_one.py" in Path("other/report.html").read_text()
    capsys.readouterr()
    assert run("show", copy, "--out", "other") == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(", mine/toy_one.py")
    assert run("list", "--out", "other") == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["toy-one", "-", "a"]
    monkeypatch.setattr("linfed.reproduction.committed.committed_runs", lambda: {"toy-one": None})
    assert "--strict requires a committed run" in refused(capsys, "reproduce", copy, "--strict", "--out", "other")


@pytest.mark.parametrize("given", ["mine", "json", "linfed", "two-words", "there/2", "class"])
def test_a_copy_needs_a_new_folder_that_is_a_package(given, capsys):
    Path("mine").mkdir()
    told = refused(capsys, "copy", "fedrep-fig1", given, "--experiments", FOLDER)
    assert told.startswith(f"linfed: DIR = {given!r} must be a new folder with the name of a Python package")


def test_an_unknown_experiment_has_a_suggestion(capsys):
    assert "did you mean 'fedrep-fig1'" in refused(capsys, "copy", "fedrep-fi1", "--experiments", FOLDER)
