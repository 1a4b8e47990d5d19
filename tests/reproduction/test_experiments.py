"""Experiments are found by name or as a file, and a wrong one is one line before anything is computed."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from linfed.errors import UsageError
from linfed.reproduction.experiments import (
    cells_of,
    copied_files,
    declared_in,
    experiment_files,
    experiments_folder,
    find,
    is_named,
    load,
    load_file,
)
from linfed.reproduction.record import ResultsFolder
from linfed.sweeps.code_key import code_key
from tests.helpers import ROOT
from tests.reproduction.toys import GRID, TOY, package, refused, run, write

pytestmark = pytest.mark.usefixtures("folder")

SHIPPED = experiment_files(ROOT / "experiments")


# --- the folder of experiments ---------------------------------------------------------------------------------------


@pytest.fixture
def installed(folder, monkeypatch):
    """The experiments of a linfed that is installed in a folder without a checkout."""
    site = folder / "site-packages" / "linfed"
    monkeypatch.setattr("linfed.reproduction.experiments.FOLDER", site)
    monkeypatch.setattr("linfed._sources.FOLDER", site)
    monkeypatch.setattr("linfed.sweeps.code_key.FOLDER", site)
    write(site / "numbers.py", "")
    write(site / "_shipped" / "experiments" / "__init__.py", "")
    return write(site / "_shipped" / "experiments" / "toy_one.py", TOY).parent


def test_experiments_come_with_the_package_and_those_of_a_checkout_win(installed, monkeypatch):
    assert experiments_folder(None) == installed
    for inside in ("docs", "linfed/data", "experiments", "."):
        monkeypatch.chdir(ROOT / inside)
        assert experiments_folder(None) == ROOT / "experiments"
    assert experiments_folder(str(installed)) == installed


def test_an_editable_installation_has_the_experiments_beside_it():
    assert experiments_folder(None) == ROOT / "experiments"


def test_another_project_or_one_without_experiments_is_not_meant(folder, monkeypatch):
    for place in (folder, folder / "theirs"):
        write(place / "experiments" / "__init__.py", "")
    write(folder / "theirs" / "pyproject.toml", '[project]\nname = "theirs"\n')
    below = write(folder / "theirs" / "src" / "notes.txt", "").parent
    monkeypatch.chdir(below)
    monkeypatch.setattr("linfed.reproduction.experiments.FOLDER", folder / "site" / "linfed")
    with pytest.raises(UsageError, match=re.escape(f"no experiments/ in {below}, in a checkout above it or in the ")):
        experiments_folder(None)


def test_a_folder_that_is_no_package_is_refused(folder):
    with pytest.raises(UsageError, match=r"--experiments nowhere must be a folder; leave it out"):
        experiments_folder("nowhere")
    with pytest.raises(UsageError, match=r"--experiments .* must be a package: create an empty .*__init__\.py"):
        experiments_folder(str(folder))


def test_own_experiments_without_a_package_are_not_passed_over(folder):
    """Silently those of linfed would be taken; a folder of other things of that name hides none of them."""
    write("experiments/notes.py", "print(1)")
    assert experiments_folder(None) == ROOT / "experiments"
    write("experiments/toy_one.py", TOY)
    with pytest.raises(UsageError, match=r"experiments has no __init__\.py: create an empty one"):
        experiments_folder(None)
    write("experiments/__init__.py", "")
    assert experiments_folder(None) == folder / "experiments"


def test_the_code_of_shipped_experiments_counts_as_ones_own(installed, folder):
    """Though nothing else of an installed package does; what is judged does not count."""
    shipped = installed.rename(installed.with_name(f"shipped_{folder.name}"))
    write(shipped / "toy_two.py", TOY)
    modules = {name: load(name, shipped) for name in ("toy-one", "toy-two")}

    def keys():
        return {name: code_key([type(cell) for cell in one.cells(True)["values"]]) for name, one in modules.items()}

    before = keys()
    write(shipped / "toy_one.py", TOY.replace("self.number + self.size", "self.size + self.number"))
    importlib.reload(modules["toy-one"])
    assert [before[name] == keys()[name] for name in modules] == [False, True]
    (shipped / "toy_one.py").unlink()
    write(shipped / "toy_one.py", TOY.replace("values are large", "they are large"))
    importlib.reload(modules["toy-one"])
    assert keys() == before


# --- names and files -------------------------------------------------------------------------------------------------


def test_a_name_and_its_file_in_a_folder_of_experiments_are_the_same(folder):
    place = package(folder, mine_one=TOY.replace("a toy", "my summary"), _helper="x = 1")
    assert list(experiment_files(place)) == ["mine-one"]
    assert {find(asked, place) for asked in ("mine-one", "mine_one")} == {place / "mine_one.py"}
    assert declared_in(place)["mine-one"].summary == "my summary"
    assert is_named(place / "mine_one.py")
    for asked in ("mine-one", place / "mine_one.py"):
        assert run("reproduce", asked, "--quick", "--workers", 1, "--experiments", place) == 0
    record = ResultsFolder(Path("results/quick")).read("mine-one")
    assert (record.reused, record.file) == (3, None)


def test_declarations_can_be_annotated_or_extended(folder):
    texts = {
        "annotated_one": TOY.replace('SUMMARY = "a toy"', 'HEADLINES: tuple\nSUMMARY: str = "annotated"'),
        "longer_one": TOY.replace('SUMMARY = "a toy"', 'SUMMARY = "a toy"\nSUMMARY += ", extended"'),
    }
    found = declared_in(package(folder, **texts))
    assert {name: one.summary for name, one in found.items()} == {
        "annotated-one": "annotated",
        "longer-one": "a toy, extended",
    }


def test_an_experiment_in_a_subpackage_is_imported_with_all_packages_above_it():
    assert load("fedrep-fig1", ROOT / "experiments").__name__ == "experiments.fedrep.fedrep_fig1"


def test_a_copy_of_an_experiment_is_not_named(folder):
    write("mine/__init__.py", "")
    assert not is_named(write("mine/fedrep_fig1.py", GRID))
    assert is_named(write("mine/another.py", GRID))
    assert not is_named(write("alone.py", GRID))


@pytest.mark.long
def test_the_files_of_a_copy_have_different_names_and_include_data():
    for file in SHIPPED.values():
        names = [path.name for path in copied_files(file)]
        assert len({*names}) == len(names)
    assert "tripuraneni.json" in [path.name for path in copied_files(SHIPPED["tripuraneni"])]
    assert "_fedrep.py" in [path.name for path in copied_files(SHIPPED["fedrep-fig3"])]


def test_cells_are_a_dict_of_lists_a_list_or_a_generator():
    tables = load_file(write("many.py", f"{GRID}\nplain = cells\ndef cells(quick): yield from plain(quick)\n"))
    assert {key: len(cells) for key, cells in cells_of(tables, quick=True).items()} == {"runs": 4}
    assert [cell.n_rounds for cell in cells_of(tables, quick=False)["runs"]] == [5] * 4
    without = load_file(write("without.py", f"{GRID}\nplain = cells\ndef cells(): return {{'a': plain(True)}}\n"))
    assert list(cells_of(without, quick=False)) == ["a"]


PROBLEM = "import linfed as lf\nlf.SharedRepresentation(n_clients=3, dim=1, rank=2)"

MISTAKES = {
    "no file": ("none.py", None, ["'none.py' does not exist"]),
    "no cells": ("a1.py", "x = 1", ["'a1.py' must have a function cells(quick)"]),
    "empty": ("a2.py", "def cells(quick): return []", ["a2.py: cells() returned no cells"]),
    "no cell": ("a3.py", "def cells(quick): return [3]", ["a3.py: cells[0] = 3 must be an lf.Run"]),
    "name of a table": ("a4.py", "def cells(quick): return {'a/b': []}", ["a4.py", "'a/b'", "letters, digits"]),
    "syntax": ("a5.py", "x = 1\nx ==", ["a5.py, line 2: SyntaxError: invalid syntax"]),
    "error": ("a6.py", PROBLEM, ["a6.py, line 2: ValueError: rank = 2 must be at most dim = 1"]),
    "error in cells": ("a7.py", "def cells(quick):\n    return y", ["a7.py, line 2: NameError", "'y'"]),
    "exit": ("a8.py", "import sys\nsys.exit(3)", ["a8.py, line 2: SystemExit: 3"]),
    "exit in a generator": ("a9.py", "def cells(quick):\n    exit(0)\n    yield", ["a9.py, line 2: SystemExit: 0"]),
    "package": ("b1.py", "import nothing_like_it", ["'b1' requires nothing_like_it: pip install 'nothing_like_it'"]),
    "plot": ("b2.py", f"{GRID}\nplot = 3\n", ["b2.py", "plot must be a function, got 3"]),
    "standard library": ("json.py", GRID, ["'json' is the name of another module; rename the file"]),
    "shipped": ("fedrep_fig1.py", GRID, ["'fedrep_fig1.py' has the name of an experiment of linfed"]),
    "odd name": ("a b.py", GRID, ["'a b.py': rename the file"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_file_is_one_line_before_anything_is_computed(name, capsys):
    file, text, fragments = MISTAKES[name]
    if text is not None:
        write(file, text)
    line = refused(capsys, "reproduce", file)
    for fragment in fragments:
        assert fragment in line
    assert not Path("results").exists()


def test_cells_without_quick_refuse_it(capsys):
    write("own.py", "def cells(): return []")
    assert "own.py: cells() does not support --quick" in refused(capsys, "reproduce", "own.py", "--quick")


def test_an_unknown_name_has_a_suggestion(folder, capsys):
    place = package(folder)
    write("own.py", GRID)
    for asked, said in (
        ("toy-on", "'toy-on' is unknown (did you mean 'toy-one'?)"),
        ("toy", "'toy' is unknown (did you mean 'toy-one'?)"),
        ("own", "'own' is unknown (did you mean 'own.py'?)"),
        ("zzz", f"'zzz' is unknown; linfed list --experiments {place} shows all"),
        ("b=2", "'b=2' is not an experiment: each FIELD=VALUE must follow its own --set"),
    ):
        with pytest.raises(UsageError, match=re.escape(said)):
            find(asked, place)


def test_an_optional_package_is_named_with_its_extra(toy, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    write(toy / "toy_one.py", f"import pandas\n{TOY}")
    with pytest.raises(UsageError, match=r"'toy-one' requires pandas: pip install 'linfed\[tables\]'"):
        load("toy-one", toy)


@pytest.mark.parametrize("name", ["json", "numpy", "linfed", "two words"])
def test_a_folder_whose_name_is_taken_is_refused(name, folder):
    write(folder / name / "__init__.py", "")
    write(folder / name / "toy_one.py", TOY)
    with pytest.raises(UsageError, match=rf"--experiments .*{name}: '{name}' is .*; rename the folder"):
        load("toy-one", folder / name)
    assert str(folder) not in sys.path


def test_another_module_of_the_name_is_not_run_in_its_place(monkeypatch):
    for place in ("a", "b"):
        monkeypatch.syspath_prepend(str(write(f"{place}/same_name.py", GRID).parent.resolve()))
    with pytest.raises(UsageError, match=r"Python imports .*b.same_name\.py as 'same_name'; rename the file"):
        load_file(Path("a/same_name.py"))
