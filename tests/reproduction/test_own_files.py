"""Grids of one's own, ``linfed reproduce FILE.py``, their default figure, and ``--set``."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed import cli
from linfed.checks import check_integer
from linfed.errors import UsageError
from linfed.reproduction.default_figure import default_figure
from linfed.reproduction.experiments import cells_of, declared_in, experiment_files, find, load_file
from linfed.reproduction.own_settings import check_cells, read_settings, with_settings
from linfed.reproduction.record import ResultsFolder
from linfed.reproduction.run import ReproduceOptions, cells_ready
from tests.helpers import ROOT, each, own_folder

GRID = """
import linfed as lf

def cells(quick):
    problem = lf.SharedRepresentation(n_clients=12, dim=8, rank=2)
    fedrep = lf.FedRep(rank=2, step_size=0.5)
    run = lf.Run(algorithm=fedrep, problem=problem, data=lf.FreshSamples(8), rounds=2 if quick else 5, trials=3)
    return lf.grid(run, algorithm=(fedrep, lf.FedAvg(rank=2, step_size=0.1)), **{"problem.n_clients": (12, 16)})
"""

OWN = """
from dataclasses import dataclass
from beside import LARGE
import numpy as np

@dataclass(frozen=True)
class Cell:
    number: int = 0
    size: float = LARGE
    words: tuple[str, ...] = ("a",)
    asked: int | None = None
    rank: int = 2
    dim: int = 3

    def run(self):
        with open("ran.txt", "a") as file:
            file.write(f"{self.number} ")
        return {"value": np.full(4, self.number * self.size)}

def cells():
    return {"some": [Cell(number=n) for n in range(3)], "more": [Cell(number=7)]}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, whose modules and path are gone afterwards; figures are coarse, and PDFs empty."""
    with own_folder(tmp_path, monkeypatch, dpi=40):
        yield tmp_path
    plt.close("all")


def write(name, text):
    Path(name).parent.mkdir(exist_ok=True, parents=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


# --- files ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_file_with_cells_alone_leaves_a_table_a_figure_and_a_record(capsys):
    write("my_grid.py", GRID)
    assert run("reproduce", "my_grid.py", "--workers", 1) == 0
    out = capsys.readouterr().out
    assert "my-grid.png: Subspace distance against round: median and 10-90 % over trials; black lines: predicted" in out
    names = {path.name for path in Path("results").iterdir()}
    files = {"my-grid-runs.csv", "my-grid-runs-round.csv", "my-grid-runs.npz", "my-grid.json"}
    assert names == files | {"my-grid.png", "my-grid.pdf", "my-grid.txt", "cells"}
    table = lf.Table.load("results/my-grid-runs.npz")
    wanted = lf.sweep(cells_of(load_file(Path("my_grid.py")), quick=False)["runs"])
    assert np.array_equal(table["subspace_distance"], wanted["subspace_distance"])
    assert ResultsFolder().read("my-grid").cells == 4


def test_a_saved_file_is_drawn_shown_listed_and_reported_anew(capsys):
    write("my-grid.py", GRID)
    assert run("reproduce", "my-grid.py", "--quick", "--workers", 1) == 0
    Path("results/quick/my-grid.png").unlink()
    assert run("replot", "my-grid.py", "--quick") == 0
    assert Path("results/quick/my-grid.png").exists()
    capsys.readouterr()
    for name in ("my-grid", "my-grid.py"):
        assert run("show", name, "--quick") == 0
        assert re.match(r"QUICK .*\nmy-grid: quick run, linfed .*\n.*my-grid.png\n  Subspace", capsys.readouterr().out)
    assert run("report", "results/quick") == 0
    assert "Subspace distance against round" in Path("results/quick/report.html").read_text()


@pytest.mark.long
def test_a_run_goes_on_from_its_store_and_the_files_code_counts(capsys):
    write("lib/own_one.py", OWN)
    write("lib/beside.py", "LARGE = 100.0")
    assert run("reproduce", "lib/own_one.py", "--workers", 1) == 0
    assert run("reproduce", "lib/own_one.py", "--workers", 1) == 0
    assert "4 of 4 cells from an earlier run" in capsys.readouterr().out
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2", "7"]
    command = [sys.executable, "-m", "linfed", "reproduce", "lib/own_one.py", "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    write("lib/beside.py", "LARGE = 50.0")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "cells from an earlier run" not in done.stdout
    assert lf.Table.load("results/own-one-some.npz")["value"][:, 0].tolist() == [0, 50, 100]


@pytest.mark.long
def test_shards_of_a_file_are_put_together(capsys):
    write("my_grid.py", GRID)
    for shard in ("1/2", "2/2"):
        assert run("reproduce", "my_grid.py", "--workers", 1, "--shard", shard, "--quick") == 0
        assert ("shard 1/2 is done" in capsys.readouterr().out) is (shard == "1/2")
    assert ResultsFolder(Path("results/quick")).read("my-grid").reused == 2


@pytest.mark.long
def test_a_name_and_its_file_in_a_folder_of_experiments_are_the_same(folder):
    package = folder / f"experiments_{folder.name}"
    write(package / "__init__.py", "")
    write(package / "mine_one.py", f"{GRID}\nSUMMARY = 'my summary'\n")
    assert {find(asked, package).resolve() for asked in ("mine-one", "mine_one")} == {package / "mine_one.py"}
    for asked in ("mine-one", package / "mine_one.py"):
        assert run("reproduce", asked, "--quick", "--workers", 1, "--experiments", package) == 0
    record = ResultsFolder(Path("results/quick")).read("mine-one")
    assert (record.reused, record.file) == (4, None)
    assert declared_in(package)["mine-one"].summary == "my summary"


ALONE = OWN.replace("from beside import LARGE", "LARGE = 1.0")
STEEP = GRID.replace("rank=2, step_size=0.5", "rank=9, step_size=1")
PROBLEM = "import linfed as lf\nlf.SharedRepresentation(n_clients=3, dim=1, rank=2)"

MISTAKES = {
    "no file": ("none.py", None, [], ["'none.py' does not exist"]),
    "no cells": ("a1.py", "x = 1", [], ["'a1.py' must have a function cells(quick)"]),
    "empty": ("a2.py", "def cells(quick): return []", [], ["a2.py: cells() returned no cells"]),
    "others": ("a3.py", "def cells(quick): return [3]", [], ["a3.py: cells[0] = 3 must be an lf.Run"]),
    "table": (
        "a4.py",
        "def cells(quick): return {'a/b': []}",
        [],
        ["a4.py: the table name 'a/b' from cells() must have only"],
    ),
    "syntax": ("a5.py", "x = 1\nx ==", [], ["a5.py, line 2: SyntaxError: invalid syntax"]),
    "error": ("a6.py", PROBLEM, [], ["a6.py, line 2: ValueError: rank = 2 must be at most dim = 1"]),
    "error in cells": ("a7.py", "def cells(quick):\n    return y", [], ["a7.py, line 2: NameError", "'y'"]),
    "exit": ("a8.py", "import sys\nsys.exit(3)", [], ["a8.py, line 2: SystemExit: 3"]),
    "exit in cells": ("a10.py", "def cells(quick):\n    exit(0)", [], ["a10.py, line 2: SystemExit: 0"]),
    "exit in a generator": ("a11.py", "def cells(quick):\n    yield\n    exit(0)", [], ["a11.py"]),
    "package": ("a9.py", "import nothing_like_it", [], ["'a9' requires nothing_like_it"]),
    "quick": ("b1.py", "def cells(): return []", ["--quick"], ["b1.py: cells() does not support --quick"]),
    "taken name": ("json.py", GRID, [], ["'json' is the name of another module; rename the file"]),
    "shipped name": ("fedrep_fig1.py", GRID, [], ["'fedrep_fig1.py' has the name of an experiment of linfed"]),
    "odd name": ("a b.py", GRID, [], ["'a b.py': rename the file"]),
    "no experiment": ("b2.py", GRID, [], None),
    "rank": (
        "b3.py",
        GRID.replace("rank=2, step_size=0.5", "rank=9, step_size=1"),
        [],
        ["rank = 9 must be at most dim"],
    ),
    "strict": ("b4.py", GRID, ["--strict"], ["--strict requires a committed run, but there is none of 'b4'"]),
    "set": (
        "b5.py",
        GRID,
        ["--set", "problem.dims=3"],
        ["--set problem.dims: no cell has this field (did you mean 'problem.dim'?)"],
    ),
    "set letter": (
        "b0.py",
        GRID,
        ["--set", "m=3"],
        ["--set m: no cell has this field (did you mean 'data.n_samples'?)"],
    ),
    "set what": ("b6.py", GRID, ["--set", "dim"], ["--set 'dim' must be FIELD=VALUE"]),
    "set twice": ("b7.py", GRID, ["--set", "dim=3", "--set", "dim=4"], ["--set dim is given twice"]),
    "set unclear": (
        "b8.py",
        GRID,
        ["--set", "rank=3"],
        ["--set rank: no cell has this field (did you mean 'algorithm.rank' or 'problem.rank'?)"],
    ),
    "set size": ("b9.py", GRID, ["--set", "problem.dim=0"], ["--set: dim = 0 must be an integer of at least 1"]),
    "set word": ("c1.py", GRID, ["--set", "problem.dim=3O"], ["--set: dim = '3O' must be an integer"]),
    "set rank": ("c2.py", GRID, ["--set", "algorithm.rank=9"], ["rank = 9 must be at most dim = 8, in the cell"]),
    "set and option": (
        "c4.py",
        GRID,
        ["--set", "trials=9", "--trials", 3],
        ["--trials and --set trials cannot be combined"],
    ),
    "own rank": (
        "c5.py",
        ALONE,
        ["--set", "rank=4"],
        ["rank = 4 must"],
    ),
}


@each("name", MISTAKES)
def test_a_mistake_is_one_line_before_anything_is_computed(name, capsys):
    file, text, arguments, fragments = MISTAKES[name]
    if text is not None:
        write(file, text)
    asked, fragments = (file[:-3], [f"did you mean '{file}'?"]) if fragments is None else (file, fragments)
    assert run("reproduce", asked, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for fragment in fragments:
        assert fragment in err
    assert not Path("results").exists()
    assert not Path("ran.txt").exists()


def test_another_module_of_the_name_is_not_run_in_its_place(monkeypatch, capsys):
    for place in ("a", "b"):
        write(f"{place}/same_name.py", GRID)
        monkeypatch.syspath_prepend(str(Path(place).resolve()))
    assert run("reproduce", "a/same_name.py", "--quick") == 2
    assert "Python imports" in capsys.readouterr().err
    assert not Path("results").exists()


@pytest.mark.long
def test_another_file_of_the_same_name_keeps_its_results(capsys):
    for place in ("a", "b"):
        write(f"{place}/same_name.py", GRID)
    assert run("reproduce", "a/same_name.py", "--quick", "--workers", 1) == 0
    del sys.modules["same_name"]
    sys.path.remove(str(Path("a").resolve()))
    assert run("reproduce", "b/same_name.py", "--quick", "--workers", 1) == 2
    assert "has the results of" in capsys.readouterr().err
    assert run("reproduce", "a/same_name.py", "b/same_name.py", "--quick") == 2
    assert "have the same name" in capsys.readouterr().err
    Path("a/same_name.py").unlink()
    assert run("reproduce", "b/same_name.py", "--quick", "--workers", 1) == 0


# --- own settings --------------------------------------------------------------------------------------------


SMALL = lf.SharedRepresentation(n_clients=6, dim=5, rank=2)
FEDREP = lf.FedRep(rank=2, step_size=0.5)
RUN = {
    "algorithm": FEDREP,
    "problem": lf.SharedRepresentation(n_clients=12, dim=8, rank=2),
    "data": lf.FreshSamples(8),
}


@dataclass(frozen=True)
class Plain:
    size: int = 3
    shape: tuple[int, ...] = (1, 2)
    rate: float = 0.5
    word: str = "a"
    some: int | None = None
    problem: lf.SharedRepresentation = SMALL

    def __post_init__(self):
        check_integer("size", self.size)
        assert self.problem or 1 / 0

    def run(self):
        return {"value": self.size}


def test_values_are_literals_and_other_texts_words():
    given = ["size=4", "a.rate = 1e-3", "word=two words", "shape=[1, [2]]", "some=None", "word2='3'"]
    wanted = {"size": 4, "a.rate": 1e-3, "word": "two words", "shape": (1, (2,)), "some": None, "word2": "3"}
    assert read_settings(given) == wanted


def test_fields_are_replaced_where_they_are_and_equal_cells_are_one():
    lists = {"one": [Plain(size=n) for n in (1, 2)], "two": [lf.Run(**RUN, rounds=3)]}
    found = with_settings(lists, {"size": 5, "problem.dim": 7})
    assert found["one"] == [Plain(size=5, problem=lf.SharedRepresentation(n_clients=6, dim=7, rank=2))]
    assert found["two"][0].problem.dim == 7
    assert with_settings(lists, {"problem.n_clients": 9})["one"] != lists["one"]
    assert lists["one"] == [Plain(size=1), Plain(size=2)]


@dataclass(frozen=True)
class Several:
    n: int = 10
    trials: int | None = 50
    tuning_trials: int = 10
    rounds: int = 5

    def run(self):
        return {"value": self.n}


def test_cells_that_then_differ_only_in_numbers_of_trials_are_one_with_the_most_trials():
    cells = [Several(), Several(100, None, 20), Several(1000, 20, 4), Several(1000, 20, 4, rounds=7)]
    assert with_settings({"runs": cells}, {"n": 300})["runs"] == [Several(300), Several(300, 20, 4, rounds=7)]
    assert with_settings({"runs": cells[1:]}, {"n": 300})["runs"][0] == Several(300, 20, 4)
    assert with_settings({"runs": cells}, {"rounds": 7})["runs"][-1] == Several(1000, 20, 4, rounds=7)
    assert len(with_settings({"runs": cells}, {"rounds": 7})["runs"]) == 3
    assert len(with_settings({"runs": cells}, {"trials": 3})["runs"]) == 4


def test_figure_3_at_another_number_of_clients_has_each_method_once():
    lists = cells_of(load_file(experiment_files(ROOT / "experiments")["fedrep-fig3"]), quick=False)
    found = with_settings(lists, {"n_clients": 300})["curves"]
    assert len({(one.preset, one.method) for one in found}) == len(found) < len(lists["curves"])
    assert {one.trials for one in found} == {max(one.trials for one in lists["curves"])}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("size", 0, "size = 0 must be an integer of at least 1"),
        ("size", "x", "size = 'x' must be an integer of at least 1"),
        ("problem.dim", 1, "rank = 2 must be at most dim = 1"),
        ("problem.noise_std", -1, "noise_std = -1 must be a finite number of at least 0"),
        ("problem.rank", None, "rank = None must be an integer"),
        ("problem", 0, "--set: problem = 0: ZeroDivisionError: division by zero"),
        ("dim", 3, "--set dim: no cell has this field (did you mean 'problem.dim'?)"),
        ("problem.dims", 3, "--set problem.dims: no cell has this field (did you mean 'problem.dim'?)"),
        ("other", 3, "--set other: no cell has this field; choose from: size, shape, rate, word, some, problem, "),
    ],
)
def test_what_a_cell_refuses_is_said_in_a_line(path, value, said):
    with pytest.raises(UsageError, match=re.escape(said)) as told:
        with_settings({"cells": [Plain()]}, {path: value})
    assert "\n" not in str(told.value)
    assert with_settings({"cells": [Plain()]}, {"rate": 1, "some": 4})["cells"][0].some == 4


def test_a_tuned_algorithm_is_reached_and_what_it_chooses_is_not_set():
    tuned = lf.Tuned(base=FEDREP, grid={"step_size": (0.1, 0.3)}, trials=2)
    runs = [lf.Run(**(RUN | {"algorithm": one}), rounds=3) for one in (FEDREP, tuned)]
    plain, found = with_settings({"runs": runs}, {"algorithm.rank": 3, "algorithm.base.rank": 4})["runs"]
    assert (plain.algorithm.rank, found.algorithm.base.rank) == (3, 4)
    with pytest.raises(UsageError, match=r"the field is tuned over algorithm.grid = \{'step_size'"):
        with_settings({"runs": runs}, {"algorithm.base.step_size": 1.0})
    with pytest.raises(UsageError, match="rank = 9 must be at most dim = 8"):
        check_cells(with_settings({"runs": runs[1:]}, {"algorithm.base.rank": 9}))


@pytest.mark.long
def test_own_settings_are_in_the_record_and_in_a_folder_of_their_own(capsys):
    write("my_grid.py", GRID)
    own = ["--set", "problem.n_clients=20", "--set", "data.n_samples=9", "--trials", 2]
    assert run("reproduce", "my_grid.py", "--quick", *own, "--workers", 1) == 0
    where = Path("results/set/quick")
    assert json.loads((where / "my-grid.json").read_text())["set"] == {
        "trials": 2,
        "problem.n_clients": 20,
        "data.n_samples": 9,
    }
    table = lf.Table.load(where / "my-grid-runs.npz")
    assert (table["problem.n_clients"].tolist(), len(table)) == ([20, 20], 2)
    assert "n = 20, m = 9, noise std 0, 2 rounds, 2 trials" in (where / "my-grid.txt").read_text()
    before = (where / "my-grid.txt").read_text()
    assert run("replot", "my_grid.py", "--out", where) == 0
    assert (where / "my-grid.txt").read_text() == before
    capsys.readouterr()
    assert run("show", "my-grid", "--out", where) == 0
    said = "my-grid: quick run, trials = 2, problem.n_clients = 20, data.n_samples = 9, linfed"
    assert capsys.readouterr().out.splitlines()[1].startswith(said)
    assert run("report", where) == 0
    assert "n_clients = 20" in (where / "report.html").read_text()


@pytest.mark.long
def test_claims_and_figures_that_need_all_of_an_axis_are_a_remark_under_own_settings(capsys):
    text = f"{GRID}\ndef claims(tables):\n    first, second = tables['runs'].groupby('n_clients')\n    return []\n"
    write("my_grid.py", text)
    assert run("reproduce", "my_grid.py", "--quick", "--workers", 1) == 0
    assert "0 claims" in capsys.readouterr().out
    assert run("reproduce", "my_grid.py", "--quick", "--workers", 1, "--set", "problem.n_clients=9") == 0
    out = capsys.readouterr().out
    assert "my-grid: its claims cannot be judged with these settings (ValueError: not enough values to unpack" in out
    assert "my-grid.png" in out


def test_figures_of_other_settings_are_removed_and_the_remark_is_shown(capsys):
    write("my_grid.py", GRID)
    own = ["reproduce", "my_grid.py", "--quick", "--workers", 1]
    assert run(*own, "--trials", 2) == 0
    where = Path("results/set/quick")  # the run of all trials is not overwritten
    assert (where / "my-grid.png").exists()
    write("my_grid.py", f"{GRID}\ndef plot(tables):\n    raise ValueError('too few trials')\n")
    del sys.modules["my_grid"]
    assert run(*own, "--trials", 1) == 0
    assert not [*where.glob("my-grid.p*"), *where.glob("my-grid.txt")]
    capsys.readouterr()
    remark = "its figures cannot be drawn with these settings (ValueError: too few trials)"
    assert run("show", "my-grid", "--out", where) == 0
    assert capsys.readouterr().out.endswith(f"my-grid: {remark}\n")
    assert run("report", where) == 0
    assert f"<p>{remark}</p>" in (where / "report.html").read_text()


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("size", "reason"),
    [("5", "size = 5 must be at least 9"), ("word", "'<' not supported between instances of 'str' and 'int'")],
)
def test_settings_that_the_cells_reject_are_one_line(own, size, reason, capsys):
    """For a file of one's own there is a traceback, because its code may be wrong."""
    write("given/__init__.py", "")
    check = "if self.size < 9:\n            raise ValueError(f'size = {self.size} must be at least 9')"
    text = OWN.replace("from beside import LARGE", "LARGE = 100").replace(
        "        return", f"        {check}\n        return"
    )
    named = [write("picky.py", text)] if own else ["picky", "--experiments", "given"]
    write("given/picky.py", text)
    assert run("reproduce", *named, "--workers", 1, "--set", f"size={size}") == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback") == own
    if not own:
        assert said == f"linfed: picky: 4 cells cannot run with size = {size}: {reason}\n"


@pytest.mark.parametrize(
    ("name", "what"), [("claims", "its claims cannot be judged"), ("plot", "its figures cannot be")]
)
def test_claims_and_figures_that_exit_are_an_error(name, what, capsys):
    write("leaves.py", OWN.replace("from beside import LARGE", "LARGE = 1") + f"\ndef {name}(tables):\n    exit(0)\n")
    assert run("reproduce", "leaves.py", "--workers", 1) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"linfed: leaves: {what}")
    assert told.endswith("(SystemExit: 0). The tables are saved: correct the error, and run linfed replot leaves.py\n")


def test_a_check_that_exits_is_an_error(capsys):
    text = OWN.replace("from beside import LARGE", "LARGE = 1")
    write("leaves.py", text.replace("    def run(self)", "    def check(self):\n        exit(0)\n\n    def run(self)"))
    assert run("reproduce", "leaves.py", "--workers", 1) == 2
    assert capsys.readouterr().err == "linfed: the experiment ended the command (SystemExit: 0)\n"


def test_all_saved_runs_include_own_files(capsys):
    write("my_grid.py", GRID)
    assert run("reproduce", "my_grid.py", "--quick", "--workers", 1) == 0
    picture = Path("results/quick/my-grid.png")
    picture.write_bytes(picture.read_bytes()[:300])
    capsys.readouterr()
    assert run("report", "results/quick") == 2
    assert re.fullmatch(
        r"linfed: '.*my-grid.png' is not a complete picture \(.*\): "
        r"draw it again with linfed replot my_grid.py --quick\n",
        capsys.readouterr().err,
    )
    every = ["replot", "all", "--experiments", ROOT / "experiments"]
    assert run(*every, "--quick") == 0
    assert run(*every, "--strict", "--out", "results/quick") == 2  # there is no committed run of it
    assert "no saved run in" in capsys.readouterr().err
    assert run("report", "results/quick") == 0
    capsys.readouterr()
    assert run("compare", "results/quick", "results/quick") == 0
    assert "not finished" not in capsys.readouterr().out


@pytest.mark.long
def test_changed_cells_are_a_remark_when_a_run_is_redrawn(capsys):
    write("my_grid.py", GRID)
    assert run("reproduce", "my_grid.py", "--quick", "--workers", 1) == 0
    for text, changed in ((GRID + "\nSUMMARY = 'another text'\n", False), (GRID.replace("0.5", "0.6"), True)):
        write("my_grid.py", text)
        del sys.modules["my_grid"]
        capsys.readouterr()
        assert run("replot", "my_grid.py", "--quick") == 0
        remark = "my-grid: its cells have changed since the run was saved; run linfed reproduce my_grid.py --quick"
        assert (remark in capsys.readouterr().out) == changed


FINDING = "lf.Finding(claim='c', setting='s', statistic='t', source='o', estimate=1, low=1, high=1, claimed_low=0)"


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("def claims(tables):\n    return [True]", "claims(tables) must return a list of lf.Finding, got [True]"),
        ("def claims(tables):\n    return None", "claims(tables) must return a list of lf.Finding, got None"),
        (
            "def plot(tables):\n    return tables",
            "plot(tables) must return a dict of matplotlib figures, e.g. {'': fig",
        ),
    ],
)
def test_claims_and_plot_return_findings_and_figures(wrong, message, capsys):
    write("my_grid.py", f"{GRID}\n{wrong}\n")
    assert run("reproduce", "my_grid.py", "--quick", "--workers", 1) == 2
    assert f"linfed: my_grid.py: {message}" in capsys.readouterr().err


@pytest.mark.long
def test_claims_that_raise_are_not_judged(capsys):
    """The error, the saved run and the report name the command that judges the claims after a correction."""
    write("my_grid.py", f"{GRID}\ndef claims(tables):\n    return [tables.missing]\n")
    with pytest.raises(AttributeError) as caught:
        run("reproduce", "my_grid.py", "--quick", "--workers", 1, "--out", "here")
    assert caught.value.__notes__[0].endswith("run linfed replot my_grid.py --out here")
    assert run("show", "my-grid", "--out", "here") == 0
    shown = capsys.readouterr().out
    assert "my-grid: The claims were not judged" in shown
    assert "linfed replot my_grid.py --out here" in shown
    assert run("report", "here") == 0
    assert "run linfed replot my_grid.py --out here<" in Path("here/report.html").read_text()
    write("my_grid.py", f"{GRID}\ndef claims(tables):\n    yield {FINDING}\n")
    del sys.modules["my_grid"]
    assert run("replot", "my_grid.py", "--out", "here") == 0
    assert "SUPPORTED: c" in capsys.readouterr().out


@pytest.mark.long
def test_fields_of_every_experiment_can_be_set():
    for file in experiment_files(ROOT / "experiments").values():
        lists = cells_ready(file, ReproduceOptions(quick=True, set={"trials": 7}))
        cells = [cell for own in lists.values() for cell in own]
        assert {cell.trials for cell in cells if hasattr(cell, "trials")} == {7}, file


# --- the default figure --------------------------------------------------------------------------------------


def drawn(cells):
    """Return the default figure of cells that nothing was computed for, and its caption."""
    table = lf.Table.of(cells, [{} for _ in cells])
    ends = lf.LabeledArray([[1.0, 0.1], [2.0, 0.2], [3.0, 0.3]], round=[0, 1])
    rows = [row | {"subspace_distance": ends} for row in table.rows]
    return default_figure(lf.Table(rows), cells)


def shown(figure):
    """Return the titles of a figure's panels, the words at their left, and the names of the lines."""
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    beside = [ax.get_ylabel().partition("\n")[0] for ax in figure.axes if "\n" in ax.get_ylabel()]
    return (
        titles,
        beside,
        [text.get_text() for text in figure.legends[0].get_texts() if not text.get_text().startswith("predicted")],
    )


FEDAVG = lf.FedAvg(rank=2, step_size=0.1)
GRADIENT = lf.FedRep(rank=2, step_size=0.5, heads=lf.GradientHeads(steps=3))
NAMES = ["FedRep", "FedAvg"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("axes", "wanted"),
    [
        ({}, ([], [], ["FedRep"])),
        ({"algorithm": (FEDREP, FEDAVG)}, ([], [], NAMES)),
        (
            {"algorithm": (FEDREP, GRADIENT)},
            ([], [], [f"FedRep, heads = {kind}Heads" for kind in ("Exact", "Gradient")]),
        ),
        ({"algorithm.step_size": (0.1, 0.2)}, ([], [], ["FedRep, step_size = 0.1", "FedRep, step_size = 0.2"])),
        ({"problem.n_clients": (9, 8)}, ([], [], ["n_clients = 9", "n_clients = 8"])),
        (
            {"algorithm": (FEDREP, FEDAVG), "data.n_samples": (8, 9), "rounds, seed": [(1, 2), (2, 3)]},
            (["n_samples = 8", "n_samples = 9"], ["rounds = 1, seed = 2", "rounds = 2, seed = 3"], NAMES),
        ),
    ],
)
def test_lines_are_methods_and_panels_what_else_varies(axes, wanted):
    figure, _ = drawn(lf.grid(lf.Run(**RUN, rounds=1), **axes))
    assert shown(figure) == wanted


def test_an_assigned_column_names_the_methods():
    """Its names become the lines; a field in which a method has several values makes panels."""
    cells = lf.grid(lf.Run(**RUN, rounds=1), **{"algorithm.step_size": (0.1, 0.2), "problem.n_clients": (8, 9)})
    ends = lf.LabeledArray([[1.0, 0.1], [2.0, 0.2]], round=[0, 1])
    table = lf.Table.of(cells, [{"risk": ends} for _ in cells])
    named = table.assign(method=lambda row: "bold" if row["step_size"] > 0.1 else "cautious")
    assert shown(lf.plot_runs(named, cells)[0]) == (["n_clients = 8", "n_clients = 9"], [], ["cautious", "bold"])
    sized = table.assign(method=lambda row: "few" if row["n_clients"] == 8 else "many")
    titles = ["step_size = 0.1", "step_size = 0.2"]
    assert shown(lf.plot_runs(sized, cells)[0]) == (titles, [], ["few", "many"])


def test_a_tuned_algorithm_is_told_from_another_and_predicted_at_its_step(monkeypatch):
    tuned = lf.Tuned(base=FEDREP, grid={"step_size": (0.1, 0.3)}, trials=2)
    cells = lf.grid(lf.Run(**RUN, rounds=3, trials=2), algorithm=(FEDREP, tuned))
    with pytest.warns(lf.GridEdgeWarning):
        table = lf.sweep(cells)
    figure, caption = default_figure(table, cells)
    assert shown(figure)[2] == ["FedRep", "FedRep, tuned"]
    assert "the best step of FedRep, tuned lies at the edge" in caption
    black = [line.get_ydata() for line in figure.axes[0].get_lines() if line.get_color() == "black"]
    for line, step in zip(black, (0.5, table.rows[1]["step_size"]), strict=True):
        options = {"data": RUN["data"], "rounds": 3, "trials": 2}
        own = lf.predict(lf.FedRep(rank=2, step_size=step), RUN["problem"], **options).distance
        np.testing.assert_array_equal(line, np.median(own, axis=0))


@pytest.mark.long
def test_what_is_left_out_is_said():
    axes = {"problem.n_clients": range(8, 16), "data.n_samples": (8, 9), "rounds": (1, 2), "seed": (0, 1)}
    figure, caption = drawn(lf.grid(lf.Run(**RUN, rounds=1), **axes))
    assert "not drawn: n_clients = 10, n_clients = 13, rounds = 2. Sizes" in caption
    assert len(shown(figure)[0]) == 6
    assert shown(figure)[1:] == (["n_samples = 8", "n_samples = 9"], ["seed = 0", "seed = 1"])


@pytest.mark.long
def test_many_lines_have_no_bands_and_no_prediction():
    few, many = (drawn(lf.grid(lf.Run(**RUN, rounds=1), seed=range(n)))[0] for n in (6, 13))
    assert [len(figure.axes[0].collections) for figure in (few, many)] == [6, 0]
    assert len(shown(many)[2]) == 12


def test_methods_by_name_and_rows_that_lack_the_metric():
    @dataclass(frozen=True)
    class Named:
        method: str
        n: int = 3

        def run(self):
            raise AssertionError

    cells = [Named(method) for method in ("FedRep", "$mine_")]
    error = lf.LabeledArray(np.ones((2, 3)), round=[0, 1, 2])
    figure, caption = default_figure(lf.Table.of([*cells, Named("c")], [{"error": error}, {"error": error}, {}]), cells)
    assert shown(figure)[2] == ["FedRep", r"\$mine_"]
    assert "not drawn: rows without error" in caption
    figure.canvas.draw()
    assert default_figure(lf.Table.of(cells, [{"value": np.ones(3)}] * 2), cells) is None


def test_diverging_runs_are_said_and_cut_off():
    run = lf.Run(**RUN, rounds=12, trials=3, metrics=("parameter_error",))
    runs = lf.grid(run, algorithm=(FEDREP, lf.FedAvg(rank=2, step_size=50.0)))
    with pytest.warns(lf.DivergenceWarning):
        table = lf.sweep(runs)
    figure, caption = default_figure(table, runs)
    assert "3 of 6 trials diverged, in 1 of 2 rows" in caption
    assert figure.axes[0].get_ylim()[1] <= 1e4 * table.rows[0]["parameter_error"].values[:, 0].max()


# --- the guide -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_file_in_the_guide_runs(monkeypatch):
    monkeypatch.setattr("linfed.reproduction.default_figure.MOST_PREDICTIONS", 0)
    page = (ROOT / "docs" / "guide" / "sweeps.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```text\n(import linfed as lf\n.*?)```", page, re.S)
    write("heads.py", text)
    assert run("reproduce", "heads.py") == 0
    table = lf.Table.load("results/heads-runs.npz")
    assert len(table) == 8
    assert set(table["step_size"]) == {0.3, 0.9}
    assert (table["subspace_distance"][..., -1] < 0.1).mean() > 0.9
    assert (
        run("reproduce", "heads.py", *["--quick", "--set", "problem.n_clients=40", "--set", "problem.noise_std=0.1"])
        == 0
    )
    assert len(lf.Table.load("results/set/quick/heads-runs.npz")) == 4


def test_the_commands_in_the_guide_can_be_meant():
    page = (ROOT / "docs" / "guide" / "sweeps.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"linfed reproduce fedrep-fig1 --quick (.*)", page)
    options = ReproduceOptions(quick=True, set=read_settings(settings.replace("--set", "").split()))
    cells = cells_ready(ROOT / "experiments" / "fedrep" / "fedrep_fig1.py", options)["clients"]
    assert {(cell.dim, cell.rank) for cell in cells} == {(30, 4)}
