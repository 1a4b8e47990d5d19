"""The command line: what it lists, what it writes, and what it says of mistakes."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from linfed import cli
from linfed.reproduce import load_tables

ROOT = Path(__file__).parent.parent

TOY = '''
"""An experiment small enough for a test."""
from dataclasses import dataclass, replace
import numpy as np
from linfed.findings import judge
from linfed.reproduce import rows

SUMMARY = "a toy"

@dataclass(frozen=True, kw_only=True)
class Config:
    trials: int = 5
    seed: int = 0
    size: int = 100
    def quick(self):
        return replace(self, size=3)

@dataclass(frozen=True)
class Cell:
    number: int
    config: Config

def cells(config):
    return [Cell(number, config) for number in range(3)]

def run_cell(cell):
    with open("ran.txt", "a") as file:
        file.write(f"{cell.number} ")
    if cell.number == 2 and cell.config.seed == 13:
        raise RuntimeError("unlucky")
    return {"values": np.full(cell.config.trials, cell.number + cell.config.size)}

def tables(config, results):
    records = [(i, v) for i, r in enumerate(results) for v in r["values"]]
    return {"values": rows([("cell", "i8"), ("value", "f8")], records)}

def plot(tables):
    from matplotlib.figure import Figure
    figure = Figure()
    figure.subplots().plot(tables["values"]["value"])
    return {"": figure, "again": figure}

def claims(tables):
    low = float(tables["values"]["value"].min())
    return [judge((low, low, low), text="values are large", where="toy", statistic="least value", source="toy",
                  least=50.0, strict=True, note="a note")]
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A checkout with one experiment, as the current folder."""
    folder = tmp_path / f"experiments_{tmp_path.name}"  # a name of its own: modules are cached by name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy_one.py").write_text(TOY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return folder


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


def test_help_needs_no_heavy_import():
    code = "import sys, linfed.cli; linfed.cli.parser().format_help(); print([m for m in sys.modules if m in HEAVY])"
    code = "HEAVY = {'numpy', 'scipy', 'matplotlib', 'tqdm'}\n" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_list_names_algorithms_and_experiments(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run("list") == 0
    printed = capsys.readouterr().out
    for name in ("FedRep", "LocalOnly", "fedrep-fig3"):
        assert sum(line.split()[:1] == [name] for line in printed.splitlines()) == 1


def test_list_without_a_checkout_still_lists_algorithms(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run("list") == 0
    printed = capsys.readouterr().out
    assert "FedRep" in printed
    assert "--experiments DIR" in printed


def test_version_and_bare_call(capsys):
    import linfed

    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == linfed.__version__
    assert run() == 2
    assert "reproduce" in capsys.readouterr().out


def test_reproduce_writes_everything_and_prints_the_claims(toy, tmp_path, capsys):
    assert run("reproduce", "toy-one", "--experiments", toy, "--out", "there", "--workers", 1, "--trials", 2) == 0
    out = capsys.readouterr().out
    folder = tmp_path / "there"
    for suffix in ("-values.csv", ".npz", ".json", ".png", ".pdf", "-again.png", "-again.pdf"):
        path = folder / f"toy-one{suffix}"
        assert path.stat().st_size > 0
        assert f"wrote {Path('there') / path.name}" in out
    assert out.index("wrote") < out.index("values are large")
    assert "SUPPORTED" in out
    assert "(1) a note" in out
    with (folder / "toy-one-values.csv").open() as file:
        records = list(csv.DictReader(file))
    assert [float(record["value"]) for record in records] == [100.0, 100.0, 101.0, 101.0, 102.0, 102.0]
    np.testing.assert_array_equal(load_tables(folder / "toy-one.npz")["values"]["cell"], [0, 0, 1, 1, 2, 2])
    described = json.loads((folder / "toy-one.json").read_text())
    assert described["config"] == {"trials": 2, "seed": 0, "size": 100}
    assert described["claims"][0]["verdict"] == "SUPPORTED"
    assert described["versions"]["numpy"] == np.__version__
    assert described["seconds"] >= 0


def test_reproduce_quick_seed_and_all(toy, capsys):
    assert run("reproduce", "all", "--quick", "--seed", 7, "--experiments", toy, "--workers", 1) == 0
    described = json.loads(Path("results/quick/toy-one.json").read_text())
    assert described["config"] == {"trials": 5, "seed": 7, "size": 3}
    assert "NOT SUPPORTED" in capsys.readouterr().out


def test_a_run_that_breaks_off_keeps_its_cells(toy):
    with pytest.raises(RuntimeError, match="unlucky"):
        run("reproduce", "toy-one", "--seed", 13, "--experiments", toy, "--workers", 1)
    assert Path("ran.txt").read_text().split() == ["0", "1", "2"]
    with pytest.raises(RuntimeError, match="unlucky"):
        run("reproduce", "toy-one", "--seed", 13, "--experiments", toy, "--workers", 1)
    assert Path("ran.txt").read_text().split() == ["0", "1", "2", "2"]


def test_cells_are_used_again_until_their_code_changes(toy, capsys):
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1)
    assert run(*call) == 0
    assert "earlier run" not in capsys.readouterr().out
    assert run(*call) == 0
    assert "3 of 3 cells from an earlier run" in capsys.readouterr().out
    module = toy / "toy_one.py"
    module.write_text(module.read_text() + "# changed\n")
    assert run(*call) == 0
    assert "earlier run" not in capsys.readouterr().out
    assert Path("ran.txt").read_text().split() == ["0", "1", "2"] * 2


def test_a_bug_in_an_experiment_is_not_called_a_mistake_of_the_user(toy):
    module = toy / "toy_one.py"
    module.write_text(module.read_text().replace("low = float(", "low = [].index("))
    with pytest.raises(ValueError, match="is not in list"):
        run("reproduce", "toy-one", "--experiments", toy, "--workers", 1)


def test_json_is_strict(toy):
    module = toy / "toy_one.py"
    module.write_text(module.read_text().replace("(low, low, low)", "(low, low, float('inf'))"))
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--out", ".") == 0
    written = json.loads(Path("toy-one.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert written["claims"][0]["high"] is None


def test_an_interrupt_is_one_line(toy, capsys, monkeypatch):
    from linfed import sweep

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "_compute", interrupted)
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1) == 130
    assert capsys.readouterr().err == (
        "linfed: interrupted; what was finished is kept, and the same command goes on from there\n"
    )


def test_worker_processes_find_the_experiment(toy):
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 2) == 0
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["reproduce", "toy-on"], ["'toy-on'", "did you mean 'toy-one'"]),
        (["reproduce", "all", "toy-on"], ["'toy-on'", "did you mean 'toy-one'"]),
        (["reproduce", "zzz"], ["'zzz'", "toy-one"]),
        (["reproduce", "toy-one", "--trials", "0"], ["--trials 0", "at least 1"]),
        (["reproduce", "toy-one", "--seed", "-1"], ["--seed -1", "at least 0"]),
        (["reproduce", "toy-one", "--workers", "0"], ["--workers 0", "at least 1"]),
        (["reproduce", "toy-one", "--out", "file/below"], ["--out", "cannot be written"]),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(toy, capsys, arguments, fragments):
    Path("file").write_text("")
    assert run(*arguments, "--experiments", toy) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for fragment in fragments:
        assert fragment in message
    assert not Path("ran.txt").exists()


def test_a_folder_that_is_no_package_is_said(tmp_path, capsys):
    assert run("list", "--experiments", tmp_path) == 2
    assert "no __init__.py" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--experiments", "nowhere"]])
def test_absent_experiments_are_said_clearly(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert run("reproduce", "fedrep-fig3", *arguments) == 2
    message = capsys.readouterr().err
    assert "checkout" in message
    assert "--experiments DIR" in message
