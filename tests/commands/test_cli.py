"""The command line: what it lists, what it writes, and what it says of mistakes."""

import csv
import errno
import gc
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import linfed
import linfed as lf
from linfed import cli
from linfed.commands.printed import banner, report, written
from linfed.figures import style
from linfed.reproduction import committed
from linfed.reproduction.experiments import experiment_files, experiments_folder, load
from linfed.reproduction.record import ResultsFolder, RunRecord, TableRecord
from linfed.reproduction.run import Reproduction, load_tables, settings_of
from linfed.sweeps import code_key
from tests.helpers import ROOT, png_alone, some

COMMITTED_RUNS = ResultsFolder(ROOT / "results" / "committed")

TOY = '''
"""An experiment small enough for a test."""
from dataclasses import dataclass
import numpy as np
from linfed.tables.grid import grid
from linfed.statistics.findings import judge

SUMMARY = "a toy"

@dataclass(frozen=True)
class Cell:
    number: int = 0
    size: int = 100
    trials: int = 5
    seed: int = 0

    def run(self):
        with open("ran.txt", "a") as file:
            file.write(f"{self.number} ")
        if self.number == 2 and self.seed == 13:
            raise RuntimeError("unlucky")
        return {"value": np.full(self.trials, self.number + self.size)}

def cells(quick):
    return {"values": grid(Cell(size=3 if quick else 100), number=range(3))}

def plot(tables):
    from matplotlib.figure import Figure
    figure = Figure()
    figure.subplots().plot(tables["values"]["value"].ravel())
    return {"": figure, "again": figure}

def claims(tables):
    low = float(tables["values"]["value"].min())
    return [judge((low, low, low), claim="values are large", setting="toy", statistic="least value", source="toy",
                  claimed_low=50.0, strict=True, note="a note")]
'''


@pytest.fixture
def whole_pictures():
    """Let the toy write its PDFs, whose fonts take longer than what else most tests do."""


@pytest.fixture
def toy(tmp_path, monkeypatch, request):
    """A checkout with one experiment, as the current folder; its PDFs are empty where `whole_pictures` is not asked."""
    folder = tmp_path / f"experiments_{tmp_path.name}"  # a name of its own: modules are cached by name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy_one.py").write_text(TOY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(style.STYLE, "savefig.dpi", 50)
    if "whole_pictures" not in request.fixturenames:
        monkeypatch.setattr(Figure, "savefig", png_alone)
    return folder


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("import linfed", 3),
        ("import linfed.cli; linfed.cli.parser().format_help()", 15),
        ("import linfed.cli; linfed.cli.main(['--version'])", 15),
    ],
)
def test_what_needs_nothing_imports_nothing(code, most):
    """Modules are counted, not seconds: of linfed's own so many, and nothing heavy."""
    code = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stderr.split()
    roots = {name.partition(".")[0] for name in loaded}
    assert "linfed" in roots
    assert roots <= {*sys.stdlib_module_names, "linfed"}
    assert sum(name.partition(".")[0] == "linfed" for name in loaded) <= most
    assert len(loaded) < 150


def test_list_names_algorithms_and_experiments(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "300")
    assert run("list") == 0
    printed = capsys.readouterr().out
    for name in ("FedRep", "LocalOnly", "fedrep-fig3"):
        assert sum(line.split()[:1] == [name] for line in printed.splitlines()) == 1


def installed(folder, monkeypatch):
    """Let linfed be installed in a folder, with one experiment that came with it."""
    package = folder / "site-packages" / "linfed"
    shipped = package / "_shipped" / "experiments"
    shipped.mkdir(parents=True)
    (shipped / "__init__.py").write_text("")
    (shipped / "toy_one.py").write_text(TOY)
    monkeypatch.setattr("linfed.reproduction.experiments.FOLDER", package)
    monkeypatch.setattr(code_key, "FOLDER", package)
    monkeypatch.setattr("linfed._sources.FOLDER", package)
    return shipped


def test_experiments_come_with_the_package_and_those_of_a_checkout_win(tmp_path, monkeypatch, capsys):
    shipped = installed(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert experiments_folder(None) == shipped
    assert run("list") == 0
    printed = capsys.readouterr().out
    assert [line.split() for line in printed.splitlines()][-1] == ["toy-one", "-", "-", "a", "toy"]
    assert "FedRep" in printed
    monkeypatch.chdir(ROOT / "docs")
    assert experiments_folder(None) == ROOT / "experiments"
    assert experiments_folder(str(shipped)) == shipped


def test_the_code_of_shipped_experiments_counts_by_cell(tmp_path, monkeypatch):
    """It is one's own code wherever linfed is installed, though nothing else of an installed package is."""
    shipped = installed(tmp_path, monkeypatch)
    shipped.rename(shipped.with_name(f"shipped_{tmp_path.name}"))
    shipped = shipped.with_name(f"shipped_{tmp_path.name}")
    (shipped / "toy_two.py").write_text(TOY)
    (shipped.parents[1] / "numbers.py").write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    cells = {name: load(name, shipped).cells(True)["values"] for name in ("toy-one", "toy-two")}

    def keys():
        return {name: code_key.code_digest([type(cell) for cell in own]) for name, own in cells.items()}

    before = keys()
    module = shipped / "toy_one.py"
    module.write_text(module.read_text().replace("self.number + self.size", "self.size + self.number"))
    after = keys()
    assert [before[name] == after[name] for name in cells] == [False, True]
    module.unlink()
    module.write_text(TOY.replace("values are large", "they are large"))  # what is judged does not count
    assert keys() == before


def test_a_package_that_runs_from_its_checkout_has_the_experiments_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert experiments_folder(None) == ROOT / "experiments"


def command(*arguments, **options):
    """Run the command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT} | options
    arguments = [sys.executable, "-m", "linfed", *map(str, arguments)]
    return subprocess.run(arguments, env=environment, text=True, check=False, **options)


def test_the_package_is_a_command():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{linfed.__version__}\n", "")


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["list"], ["--version"]])
def test_an_output_that_nobody_reads_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = command(*arguments, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.long
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_standard_streams_are_no_error(closed, tmp_path):
    """As in a daemon: Python sets them to None, and the next file would get the number of a closed one."""
    code = "import linfed.cli, sys; sys.exit(linfed.cli.main(['reproduce', 'toy-one', '--out', 'out']))"
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").touch()
    (tmp_path / "experiments" / "toy_one.py").write_text(QUIET)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: [os.close(number) for number in closed],
        check=False,
    )
    assert done.returncode == 0
    assert json.loads((tmp_path / "out" / "toy-one.json").read_text())["cells"] == 1


def test_bytes_that_are_no_text_are_no_error_on_a_closed_stream(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(SystemExit) as ended:
        run("list", "\udcff")
    assert ended.value.code == 2


QUIET = """
from dataclasses import dataclass
import linfed as lf

SUMMARY = "one run, with progress where it is shown"

@dataclass(frozen=True)
class Cell:
    seed: int = 0

    def run(self):
        problem = lf.SharedRepresentation(n_clients=4, dim=4, rank=2)
        algorithm = lf.FedRep(rank=2, step_size=0.1, init="random")
        lf.simulate(algorithm, problem, data=lf.FreshSamples(3), rounds=1)
        return {"value": 1.0}

def cells(quick):
    return {"runs": [Cell()]}

def plot(tables):
    return {}

def claims(tables):
    return []
"""


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_output_that_takes_no_more_is_one_line():
    with open("/dev/full", "w") as full:
        done = command("list", stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("linfed: the standard output cannot be written: No space left on device")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["list"], ["report", "."], ["compare", ".", "."], ["reproduce", "own.py"]])
def test_a_folder_without_permission_is_one_line(arguments, tmp_path, monkeypatch, capsys):
    def refuse(path, *arguments, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").touch()
    for name in ("is_file", "iterdir"):
        monkeypatch.setattr(Path, name, refuse)
    assert run(*arguments) == 2
    told = capsys.readouterr().err
    assert told.endswith("cannot be read: Permission denied\n")
    assert told.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows reports such a file as missing")
def test_a_name_that_is_too_long_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run("report", "x" * 5000) == 2
    told = capsys.readouterr().err
    assert told.endswith("cannot be read: File name too long\n")
    assert len(told) < 300


def test_a_working_folder_that_was_removed_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run("list") == 2
    assert capsys.readouterr().err == "linfed: the working folder has been removed: change to an existing folder\n"


def test_experiments_are_found_from_a_folder_of_the_checkout(monkeypatch, capsys, tmp_path):
    for folder in (ROOT / "experiments", ROOT / "linfed" / "data", ROOT / "docs"):
        monkeypatch.chdir(folder)
        assert experiments_folder(None) == ROOT / "experiments"
    # Another project's folder of that name, and one without a project, are not meant.
    below = tmp_path / "theirs" / "src"
    for folder in (tmp_path, tmp_path / "theirs"):
        (folder / "experiments").mkdir(parents=True)
        (folder / "experiments" / "__init__.py").write_text("")
    below.mkdir()
    (tmp_path / "theirs" / "pyproject.toml").write_text('[project]\nname = "theirs"\n')
    monkeypatch.chdir(below)
    monkeypatch.setattr("linfed.reproduction.experiments.FOLDER", tmp_path / "site" / "linfed")
    assert run("reproduce", "fedrep-fig3") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"no experiments/ in {below}, in a checkout above it or in the installed package" in message


@pytest.mark.parametrize("name", ["json", "queue", "numpy", "linfed", "two words"])
def test_a_folder_whose_name_is_taken_is_said(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "toy_one.py").write_text(TOY)
    assert run("reproduce", "toy-one", "--experiments", folder, "--out", tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"--experiments {folder}" in message
    assert f"{name!r}" in message
    assert "rename the folder" in message
    assert str(tmp_path) not in sys.path


@pytest.mark.long
def test_figures_do_not_depend_on_what_shows_them_elsewhere(toy):
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1)
    done = command(*call, cwd=toy.parent, env={"MPLBACKEND": "no-such-backend"})
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("results/toy-one.png").stat().st_size > 0


@pytest.mark.long
def test_the_same_run_writes_the_same_bytes(toy, whole_pictures, monkeypatch):
    written = []
    for moment in (0.0, 1e9):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda moment=moment: moment)  # what a figure would be dated by
            assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--out", f"at-{moment:g}") == 0
        paths = sorted(path for path in Path(f"at-{moment:g}").iterdir() if path.suffix != ".json" and path.is_file())
        written.append({path.name: path.read_bytes() for path in paths})
    assert sorted(path.split(".")[-1] for path in written[0]) == sorted(["csv", "npz", *2 * ["pdf", "png", "txt"]])
    assert b"CreationDate" not in written[0]["toy-one.pdf"]
    assert written[0] == written[1]


class Full(io.FileIO):
    """A file on a disk that is full after a hundred bytes of it."""

    def write(self, data):
        if self.tell() + len(data) > 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def fill(wanted, monkeypatch):
    """Let the disk be full for the files whose paths hold a text."""
    plain = Path.open

    def opened(path, mode="r", *arguments, **options):
        full = "w" in mode and wanted in str(path)
        return Full(path, "w") if full else plain(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", opened)


def files_of(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("wanted", "old"),
    [("out/cells/", False), (".csv", False), ("values.npz", True), (".json", True), (".png", True), (".pdf", True)],
)
def test_a_full_disk_is_one_line_and_leaves_nothing_broken(wanted, old, toy, whole_pictures, capsys, monkeypatch):
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--out", "out", "--trials", 50)
    before = {}
    if old:
        assert run(*call, "--seed", 1) == 0
        before = files_of("out")
        capsys.readouterr()
    with monkeypatch.context() as patch:
        fill(wanted, patch)
        assert run(*call) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith("linfed: '")
    assert "out/" in errors
    assert "cannot be written: No space left on device; finished cells are saved" in errors
    after = files_of("out")
    assert not [path for path in after if path.name.startswith(".")]
    assert [path for path in before if wanted in str(path)] == [path for path in after if wanted in str(path)]
    assert all(after[path] == before[path] for path in before if wanted in str(path))


@pytest.mark.long
def test_a_file_that_the_system_cuts_off_ends_the_command_with_one_line(toy):
    """The same in a process of its own, where its limit on the size of a file is what a full disk is."""
    code = "import resource, signal, sys; from linfed import cli; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); sys.exit(cli.main(sys.argv[1:]))"
    call = ["reproduce", "toy-one", "--experiments", str(toy), "--workers", "1", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    options = {"env": environment, "cwd": toy.parent, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([sys.executable, "-c", code, *call], **options)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("linfed: '")
    assert "out/cells" in done.stderr
    assert "cannot be written: File too large; finished cells are saved" in done.stderr
    assert files_of("out") == {}


def test_version_and_bare_call(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == linfed.__version__
    assert run() == 2
    assert "reproduce" in capsys.readouterr().out


def test_reproduce_writes_everything_and_prints_the_claims(toy, whole_pictures, tmp_path, capsys):
    call = ("reproduce", "toy-one", "--experiments", toy, "--out", "there", "--workers", 1, "--trials", 2)
    assert run(*call, "--verbose") == 0
    out = capsys.readouterr().out
    folder = tmp_path / "there"
    drawn = [f"{key}.{kind}" for key in ("", "-again") for kind in ("png", "pdf", "txt")]
    for suffix in ("-values.csv", "-values.npz", ".json", *drawn):
        path = folder / f"toy-one{suffix}"
        assert path.stat().st_size > 0
        assert f"wrote {Path('there') / path.name}" in out
    assert out.index("wrote") < out.index("values are large")
    assert "SUPPORTED" in out
    assert "(1) a note" in out
    with (folder / "toy-one-values.csv").open() as file:
        records = list(csv.DictReader(file))
    assert [float(record["value"]) for record in records] == [100.0, 100.0, 101.0, 101.0, 102.0, 102.0]
    record = ResultsFolder(folder).read("toy-one")
    tables = load_tables(record, ResultsFolder(folder))
    assert tables["values"]["number"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(tables["values"].select(number=2)["value"], [102, 102])
    assert record.tables == {"values": TableRecord(rows=3, shared={"trials": 2, "seed": 0, "size": 100})}
    assert record.quick is False
    assert record.claims[0].verdict.value == "SUPPORTED"
    assert record.versions["numpy"] == np.__version__
    assert record.seconds >= 0
    assert record.processor_seconds >= 0
    assert (record.cells, record.reused) == (3, 0)
    lines = out.splitlines()
    assert "toy-one: 1 claim: 1 SUPPORTED" in lines
    assert lines[-1] == "9 files in there"
    assert "QUICK" not in out
    capsys.readouterr()
    assert run("show", "toy-one", "--out", "there", "--verbose") == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].startswith("toy-one: full run, trials = 2, linfed")
    table = out[out.index("values are large") : out.index("toy-one: 1 claim")]
    assert table in shown
    assert run(*call) == 0
    again = ResultsFolder(folder).read("toy-one")
    assert (again.reused, again.processor_seconds) == (3, record.processor_seconds)


@pytest.mark.long
def test_draw_takes_the_tables_of_an_earlier_run(toy, capsys):
    """Figures and claims are made anew, from the code as it is now; nothing is computed, what was measured stays."""
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--out", "out")
    assert run(*call) == 0
    before = {path: path.read_bytes() for path in Path("out").iterdir() if path.is_file()}
    assert run("replot", "toy-one", "--experiments", toy, "--out", "out") == 0
    assert {path: path.read_bytes() for path in Path("out").iterdir() if path.is_file()} == before
    Path("out/toy-one.png").unlink()
    module = sys.modules[f"{toy.name}.toy_one"]
    judged, module.claims = module.claims, lambda tables: judged(tables) * 2
    capsys.readouterr()
    assert run("replot", "all", "--experiments", toy, "--out", "out") == 0
    assert Path("out/toy-one.png").read_bytes() == before[Path("out/toy-one.png")]
    assert len(json.loads(Path("out/toy-one.json").read_text())["claims"]) == 2
    assert "toy-one: 2 claims: 2 SUPPORTED" in capsys.readouterr().out
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2"]


def test_a_run_of_an_earlier_format_is_judged_again(toy, capsys):
    """In the first format, null stood for infinite numbers and NaN."""
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1) == 0
    record = ResultsFolder().record("toy-one")
    text = record.read_text()
    old = json.loads(text)
    del old["format"]
    old["claims"] = [one | {"claimed_high": None, "claimed_range": "at least 50"} for one in old["claims"]]
    record.write_text(json.dumps(old))
    for command in (["show", "toy-one"], ["report"]):
        capsys.readouterr()
        assert run(*command) == 2
        told = "is not a valid record of a run (its format is 1 instead of 2): rewrite it with linfed replot toy-one\n"
        assert capsys.readouterr().err == f"linfed: 'results/toy-one.json' {told}"
    assert run("replot", "toy-one", "--experiments", toy) == 0
    assert record.read_text() == text


@pytest.mark.long
def test_draw_goes_on_where_a_claim_was_wrong(toy):
    """Tables and what they are of are saved before anything is judged."""
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--out", "out")
    assert run(*call) == 0
    module = sys.modules[f"{toy.name}.toy_one"]
    judged, module.claims = module.claims, lambda tables: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(*call, "--seed", 9)
    module.claims = judged
    assert run("replot", "toy-one", "--experiments", toy, "--out", "out") == 0
    described = json.loads(Path("out/toy-one.json").read_text())
    assert described["tables"]["values"]["shared"]["seed"] == 9
    assert len(described["claims"]) == 1


def test_a_table_that_the_saved_run_lacks_is_named(toy, capsys):
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1) == 0
    record = Path("results/toy-one.json")
    record.write_text(json.dumps(json.loads(record.read_text()) | {"tables": {}}))
    capsys.readouterr()
    assert run("replot", "toy-one", "--experiments", toy) == 2
    said = "linfed: the saved run of toy-one has no table 'values': run linfed reproduce toy-one\n"
    assert capsys.readouterr().err == said


@pytest.mark.long
def test_reproduce_quick_seed_and_all(toy, capsys):
    assert run("reproduce", "all", "--quick", "--seed", 7, "--experiments", toy, "--workers", 1) == 0
    Path("results/set/quick").rename("results/quick")  # runs with another seed are in a folder of their own
    described = json.loads(Path("results/quick/toy-one.json").read_text())
    assert described["tables"]["values"]["shared"] == {"trials": 5, "seed": 7, "size": 3}
    assert described["quick"] is True
    out = capsys.readouterr().out
    assert "NOT SUPPORTED" in out
    assert out.startswith("QUICK run: ")
    assert out.count("QUICK run") == 1
    for arguments in (["replot", "toy-one", "--experiments", toy], ["show", "toy-one"]):
        assert run(*arguments, "--quick") == 0
        assert capsys.readouterr().out.count("QUICK run") == 1
        assert run(*arguments) == 2
        assert "there is a quick run; select it with --quick" in capsys.readouterr().err
    Path("results/quick/toy-one.json").rename("results/set/toy-one.json")
    assert run("show", "toy-one") == 2
    assert "there is a run with changed fields; choose it with --out results/set\n" in capsys.readouterr().err


def test_a_cell_that_raises_is_told_and_the_others_are_kept(toy, capsys):
    call = ("reproduce", "toy-one", "--seed", 13, "--experiments", toy, "--workers", 1)
    assert run(*call) == 1
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2"]
    errors = capsys.readouterr().err
    assert errors.startswith("Traceback")
    assert "linfed: toy-one: RuntimeError: unlucky" in errors
    assert errors.splitlines()[-1].startswith("linfed: toy-one: 1 of 3 cells raised; finished cells are saved")
    assert run(*call) == 1
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2", "2"]


@pytest.mark.filterwarnings("ignore::linfed.StoreWarning")
def test_cells_are_used_again_until_the_code_of_their_numbers_changes(toy, capsys):
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1)
    assert run(*call) == 0
    assert "earlier run" not in capsys.readouterr().out
    assert run(*call) == 0
    assert "3 of 3 cells from an earlier run" in capsys.readouterr().out
    module = toy / "toy_one.py"
    module.write_text(module.read_text().replace("values are large", "they are large") + "# changed\n")
    assert run(*call) == 0
    assert "3 of 3 cells from an earlier run" in capsys.readouterr().out
    module.write_text(module.read_text().replace("self.number + self.size", "self.size + self.number"))
    del sys.modules[f"{toy.name}.toy_one"]  # as a new command begins
    assert run(*call, "--reuse-stale") == 0
    assert "3 of 3 cells from an earlier run" in capsys.readouterr().out
    assert run(*call) == 0
    assert "earlier run" not in capsys.readouterr().out
    assert run(*call, "--recompute") == 0
    assert sorted(Path("ran.txt").read_text().split()) == sorted(["0", "1", "2"] * 3)


def test_shards_are_put_together(toy, capsys):
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1)
    for number in (1, 2):
        assert run(*call, "--shard", f"{number}/2", "--out", f"out-{number}") == 0
        assert "toy-one: shard" in capsys.readouterr().out
        assert not Path(f"out-{number}/toy-one.json").exists()
    shutil.copytree("out-2/cells", "out-1/cells", dirs_exist_ok=True)
    assert run(*call, "--out", "out-1") == 0
    assert "3 of 3 cells from an earlier run" in capsys.readouterr().out
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2"]


@pytest.mark.long
def test_the_address_of_a_dask_scheduler(toy, capsys):
    pytest.importorskip("distributed")
    assert run("reproduce", "toy-one", "--experiments", toy, "--dask", "nowhere:no") == 2
    assert "--dask nowhere:no must be the address of a Dask scheduler" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the cluster
def test_cells_run_on_a_dask_cluster(toy, capsys):
    distributed = pytest.importorskip("distributed")
    try:
        started = distributed.LocalCluster(1, processes=False, threads_per_worker=1, dashboard_address=None)
    except AssertionError:  # Dask waits ten seconds for its thread
        started = None
    if started is None:
        gc.collect()  # of the cluster, while its warnings are ignored
        pytest.skip("Dask's cluster did not start within ten seconds")
    with started as cluster:
        address = cluster.scheduler_address
        assert run("reproduce", "toy-one", "--experiments", toy, "--dask", address) == 0
    assert "values are large" in capsys.readouterr().out


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
    assert written["claims"][0]["high"] == "inf"


def test_an_interrupt_is_one_line(toy, capsys, monkeypatch):
    from linfed.sweeps import scheduler as schedule

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(schedule, "compute", interrupted)
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1) == 130
    assert capsys.readouterr().err == (
        "linfed: interrupted; finished cells are saved; run the same command again to resume\n"
    )
    monkeypatch.setattr("linfed.reproduction.record.ResultsFolder.read", interrupted)
    assert run("show", "toy-one") == 130
    assert capsys.readouterr().err == "linfed: interrupted\n"


@pytest.mark.long
def test_worker_processes_find_the_experiment(toy):
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 2) == 0
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["reproduce", "toy-on"], ["'toy-on'", "did you mean 'toy-one'"]),
        (["reproduce", "all", "toy-on"], ["'toy-on'", "did you mean 'toy-one'"]),
        (["reproduce", "zzz"], ["'zzz' is unknown; linfed list --experiments "]),
        (["reproduce", "toy"], ["'toy' is unknown (did you mean 'toy-"]),
        (["reproduce", "toy-one", "--trials", "0"], ["--trials 0", "at least 1"]),
        (["reproduce", "toy-one", "--seed", "-1"], ["--seed -1", "at least 0"]),
        (["reproduce", "toy-one", "--workers", "0"], ["--workers 0", "at least 1"]),
        (["reproduce", "toy-one", "--shard", "0/2"], ["--shard 0/2", "I from 1 to N"]),
        (["reproduce", "toy-one", "--shard", "3/2"], ["--shard 3/2", "I from 1 to N"]),
        (["reproduce", "toy-one", "--shard", "half"], ["--shard half", "e.g. 1/2"]),
        (
            ["reproduce", "toy-one", "--reuse-stale", "--recompute"],
            ["--reuse-stale and --recompute cannot be combined"],
        ),
        (
            ["reproduce", "toy-one", "--dask", "tcp://x:1", "--workers", "2"],
            ["--dask and --workers cannot be combined"],
        ),
        (
            ["replot", "toy-one", "--out", "empty"],
            ["no saved run of 'toy-one'", "linfed reproduce toy-one"],
        ),
        (["replot", "toy-on"], ["'toy-on'", "did you mean 'toy-one'"]),
        (["replot", "all"], ["no saved run in", "results", "linfed reproduce NAME"]),
        (["replot", "toy-one", "--out", "file"], ["'file' cannot be read", "--out DIR"]),
        (["list", "--out", "file"], ["'file' cannot be read", "--out DIR"]),
        (["reproduce", "toy-one", "--strict"], ["--strict requires a committed run", "none of 'toy-one'"]),
        (["reproduce", "toy-one", "--strict", "--quick"], ["--strict", "leave out --quick"]),
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
    assert "must be a package: create an empty " in capsys.readouterr().err


@pytest.mark.parametrize("command", [["list"], ["reproduce", "noise-floor"]])
def test_own_experiments_without_a_package_are_said(tmp_path, monkeypatch, capsys, command):
    """Silently the experiments that ship would be taken; a folder of other things of that name hides none of them."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "notes.py").write_text("print(1)")
    assert experiments_folder(None) != folder
    (folder / "noise_floor.py").write_text(TOY)
    assert run(*command) == 2
    assert capsys.readouterr().err == (
        f"linfed: {folder} has no __init__.py: create an empty one, or choose another folder with --experiments DIR\n"
    )
    (folder / "__init__.py").write_text("")
    assert experiments_folder(None) == folder


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no experiments/ in .*: reinstall linfed, .* or choose the folder with --experiments DIR"),
        (["--experiments", "nowhere"], "--experiments nowhere must be a folder; leave it out"),
    ],
)
def test_absent_experiments_are_said_clearly(tmp_path, monkeypatch, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("linfed.reproduction.experiments.FOLDER", tmp_path / "site" / "linfed")
    assert run("reproduce", "fedrep-fig3", *arguments) == 2
    assert re.fullmatch(f"linfed: {told}.*\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["reprodcue", "x"], "'reprodcue' is not a command (did you mean 'reproduce'?); see linfed --help"),
        (["fedrep-fig3"], "'fedrep-fig3' is not a command (did you mean 'linfed reproduce fedrep-fig3'?); see linfed"),
        (["reproduce"], "missing NAME; see linfed reproduce --help"),
        (["compare"], "missing A and B; see linfed compare --help"),
        (["list", ""], "'': no such argument; see linfed list --help"),
        (["report", "--quick"], "--quick: no such argument; see linfed report --help"),
        (["list", "--foo"], "--foo: no such argument; see linfed list --help"),
        (["reproduce", "toy-one", "--qick"], "--qick: no such argument (did you mean '--quick'?)"),
        (["reproduce", "toy-one", "--trial", "5"], "--trial 5: no such argument (did you mean '--trials'?)"),
        (
            ["reproduce", "toy-one", "--dim", "3"],
            "--dim 3: no such argument (to replace a field of an experiment, use ",
        ),
        (["reproduce", "toy-one", "--set", "size=3", "b=2"], "b=2: no such argument (each FIELD=VALUE must follow its"),
        (
            ["reproduce", "--set", "size=3", "b=2", "toy-one"],
            "'b=2' is not an experiment: each FIELD=VALUE must follow",
        ),
        (["show", "fedrep-fig33"], "no saved run of 'fedrep-fig33' in "),
    ],
)
def test_a_wrong_turn_is_one_line(toy, capsys, arguments, told):
    try:
        status = run(*arguments)
    except SystemExit as stopped:  # of the parser
        status = stopped.code
    assert status == 2
    message = capsys.readouterr().err
    assert message.startswith(f"linfed: {told}")
    assert message.count("\n") == 1


def test_only_a_known_experiment_is_said_to_be_computable(toy, capsys):
    for name, told in (("fedrep-fig3", "fedrep-fig3, or"), ("xyz", "xyz if linfed list has this name, or")):
        assert run("show", name) == 2
        assert f": run linfed reproduce {told} choose another folder with --out DIR\n" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"claims": {}, "quick": false}'])
def test_a_record_that_is_none_is_said(content, toy, capsys):
    Path("results").mkdir()
    Path("results/toy-one.json").write_text(content)
    assert run("show", "toy-one") == 2
    message = capsys.readouterr().err
    assert message.startswith("linfed: 'results/toy-one.json' is not a valid record of a run")
    assert message.endswith(": rewrite it with linfed reproduce toy-one\n")
    assert run("list", "--experiments", toy) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["toy-one", "-", "unreadable"]


@pytest.mark.parametrize(("package", "wanted"), [("pandas", "linfed[tables]"), ("nothing_like_it", "nothing_like_it")])
def test_a_package_that_an_experiment_lacks_is_said(package, wanted, toy, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    module = toy / "toy_one.py"
    module.write_text(f"import {package}\n" + module.read_text())
    assert run("reproduce", "toy-one", "--experiments", toy) == 2
    said = f"linfed: experiment 'toy-one' requires {package}: pip install '{wanted}'\n"
    assert capsys.readouterr().err == said


def test_list_says_which_runs_there_are_and_how_long_they_take(toy, capsys, monkeypatch):
    monkeypatch.setattr(committed, "committed_runs", lambda: {"toy-one": committed.Committed(241.6, {})})
    found = []
    for runs in ({}, {"results": False}, {"results": False, "results/quick": True}):
        for folder, quick in runs.items():
            Path(folder).mkdir(exist_ok=True)
            ResultsFolder(Path(folder)).write(RunRecord(experiment="toy-one", quick=quick, judged=""))
        assert run("list", "--experiments", toy) == 0
        found += re.findall(r"^  toy-one +4 min +(.+?)  +a toy$", capsys.readouterr().out, re.M)
    ResultsFolder().write(RunRecord(experiment="toy-one", quick=False))
    assert run("list", "--experiments", toy) == 0
    assert found == ["-", "full", "full, quick"]
    assert "unfinished, quick" in capsys.readouterr().out


@pytest.mark.long
def test_strict_tells_verdicts_that_are_not_the_committed_ones(toy, capsys, monkeypatch):
    known = {("values are large", "least value", "toy"): ["SUPPORTED"]}
    monkeypatch.setattr(committed, "committed_runs", lambda: {"toy-one": committed.Committed(1.0, known)})
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--strict") == 0
    assert "--strict: all verdicts as in the committed runs" in capsys.readouterr().out
    known |= {("values are large", "least value", "toy"): ["INCONCLUSIVE"], ("a", "b", "c"): ["HOLDS"]}
    assert run("replot", "toy-one", "--experiments", toy, "--strict") == 1
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        "toy-one: SUPPORTED instead of INCONCLUSIVE: values are large (toy; least value)",
        "toy-one: no such claim instead of HOLDS: a (c; b)",
    ]
    assert "--strict: 2 verdicts differ from the committed runs" in out


@pytest.mark.long
def test_strict_tells_other_settings_in_the_place_of_verdicts(toy, capsys, monkeypatch):
    """A toy of three sizes: one that was edited, one that was left out, fewer trials; and a field that is new."""
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1) == 0
    tables = load_tables(ResultsFolder().read("toy-one"), ResultsFolder())
    settings = settings_of(tables, load("toy-one", toy).cells(False))
    known = {("values are large", "least value", "toy"): ["INCONCLUSIVE"]}

    def strict(settings):
        monkeypatch.setattr(committed, "committed_runs", lambda: {"toy-one": committed.Committed(1.0, known, settings)})
        capsys.readouterr()
        status = run("replot", "toy-one", "--experiments", toy, "--strict")
        out, err = capsys.readouterr()
        return status, err.splitlines(), out.splitlines()[-1]

    differs = ["toy-one: SUPPORTED instead of INCONCLUSIVE: values are large (toy; least value)"]
    for same in (settings, {}, {"values": {**settings["values"], "new": ["1"]}, "gone": {"rows": ["1"]}}):
        assert strict(same) == (1, differs, "--strict: 1 verdict differs from the committed runs")
    other = {"values": {**settings["values"], "rows": ["2"], "number": ["0", "1", "7"]}}
    status, lines, last = strict(other)
    said = "toy-one: settings differ from the committed run: number 2 instead of 7 in 'values'; rows 3 instead of 2 in"
    assert (status, lines) == (1, [f"{said} 'values'"])
    assert last == "--strict: 1 of 1 runs not compared, because their settings differ"


def test_settings_are_the_values_of_the_cells_fields():
    cell = importlib.import_module("some_cells").RUN
    cells = [replace(cell, rounds=rounds) for rounds in (3, 12, 3)]
    tables = {"one": lf.Table.of(cells, [{"risk": 0.1}] * 3)}
    found = settings_of(tables, {"one": cells[:1]})["one"]
    assert (found["rows"], found["rounds"], found["problem.dim"]) == (["3"], ["12", "3"], ["6"])
    assert "risk" not in found


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, False),
    ],
)
def test_verdicts_are_coloured_where_that_is_wanted(variables, coloured, capsys, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run("show", "flute-divergence", "--out", ROOT / "results" / "committed") == 0
    printed = capsys.readouterr().out
    assert ("\x1b[31mNOT SUPPORTED" in printed) is ("\x1b[0m" in printed) is coloured
    assert "NOT SUPPORTED" in printed


@pytest.mark.long
def test_several_runs_end_with_a_summary(toy, capsys):
    (toy / "toy_two.py").write_text(TOY.replace("claimed_low=50.0", "claimed_low=500.0"))
    assert run("reproduce", "all", "--experiments", toy, "--workers", 1) == 0
    assert capsys.readouterr().out.split("\n\n")[-1].splitlines()[:-1] == [
        "2 experiments, 2 claims: 1 SUPPORTED, 1 NOT SUPPORTED",
        "  toy-two: NOT SUPPORTED 1: values are large",
    ]


@pytest.mark.long
def test_a_claim_has_one_line_and_its_settings_are_verbose(toy, capsys):
    module = toy / "toy_one.py"
    ranges = {"toy": "(low, low, low)", "open": "(40.0, 40.0, 60.0)", "other": "(low, low, low)"}
    row = 'judge({}, claim="values are large", setting="{}", statistic="s", source="toy", claimed_low=50.0)'
    rows = ", ".join(row.format(interval, setting) for setting, interval in ranges.items())
    module.write_text(module.read_text().split("    return [judge")[0] + f"    return [{rows}]\n")
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == [
        "  SUPPORTED 2, INCONCLUSIVE 1: values are large",
        "toy-one: 3 claims: 2 SUPPORTED, 1 INCONCLUSIVE",
    ]
    assert run("show", "toy-one") == 0
    assert lines[1:3] == capsys.readouterr().out.splitlines()[-2:]
    for command in (["replot", "toy-one", "--experiments", toy], ["show", "toy-one"]):
        assert run(*command, "--verbose") == 0
        printed = capsys.readouterr().out
        assert [setting for setting in ranges if f" {setting} " in printed] == list(ranges)
        assert "  s; required: >= 50" in printed


@pytest.mark.parametrize("name", committed.committed_runs())
def test_the_claims_of_every_experiment_fit_on_forty_lines(name, capsys, monkeypatch):
    """A quick run judges the same claims in fewer settings."""
    monkeypatch.setenv("COLUMNS", "80")
    claims = COMMITTED_RUNS.read(name).claims
    options = {"quick": True, "cells": 100, "reused": 50, "seconds": 1234.5, "captions": {}, "remarks": []}
    done = Reproduction(files=[Path(name)] * 30, claims=claims, settings={}, **options)
    text = "\n".join([banner(), report(name, done), written({name: done}, Path("results/quick"))])
    comparisons = ("flute-classification", "estimators")  # of many methods: more than twenty claims
    assert len(text.splitlines()) <= (55 if name in comparisons else 40)
    assert max(map(len, text.splitlines())) <= 80
    for claim in claims:
        assert claim.claim in " ".join(text.split())


@pytest.mark.parametrize("width", some([60, 80, 130], 3))
def test_lines_end_at_the_width_of_the_terminal(width, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in (["list"], ["show", "flute-fig3", "fedrep-theorem1", "--out", "results/committed"]):
        for verbose in ([], ["--verbose"])[: 1 + (arguments[0] == "show")]:
            assert run(*arguments, *verbose) == 0
            lines = capsys.readouterr().out.splitlines()
            assert 0.8 * width < max(map(len, lines)) <= width


def test_captions_are_shown_where_a_run_has_them(toy, capsys):
    described = json.loads((ROOT / "results" / "committed" / "flute-fig4.json").read_text())
    Path("results").mkdir()
    Path("results/flute-fig4.json").write_text(json.dumps({**described, "figures": {"": "One.", "ends": "Two."}}))
    assert run("show", "flute-fig4") == 0
    printed = capsys.readouterr().out
    assert "results/flute-fig4.png\n  One.\nresults/flute-fig4-ends.png\n  Two.\n" in printed


def test_the_record_that_ships_is_that_of_the_committed_runs():
    known = committed.committed_runs()
    runs = COMMITTED_RUNS.records()
    assert {name: one.verdicts for name, one in known.items()} == {
        name: committed.verdicts_of(told.claims) for name, told in runs.items()
    }, "run python docs/publish.py --record"
    for name, one in runs.items():
        assert one.seconds <= known[name].seconds + 0.1
        assert one.processor_seconds <= 2 * known[name].seconds + 0.1  # with the cells of earlier runs
    tables = {name: set(told.tables) for name, told in runs.items()}
    assert {name: set(one.settings) for name, one in known.items()} == tables
    assert known["fedrep-fig4"].settings["clients"]["rank"] == ["2"]
    assert set(known) <= set(experiment_files(ROOT / "experiments"))


def test_claims_of_saved_runs_are_the_findings_that_they_were():
    for name in committed.committed_runs():
        told = json.loads(COMMITTED_RUNS.record(name).read_text())
        record = RunRecord.from_json(told)
        assert record.to_json() == told
        assert [one.verdict.value for one in record.claims] == [one["verdict"] for one in told["claims"]]
