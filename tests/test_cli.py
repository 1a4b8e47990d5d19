"""The command line: what it lists, what it writes, and what it says of mistakes."""

import csv
import errno
import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import png_alone
from matplotlib.figure import Figure

import linfed
from linfed import cli
from linfed.figures import style
from linfed.study.experiments import experiments_folder
from linfed.study.run import load_tables

ROOT = Path(__file__).parent.parent

TOY = '''
"""An experiment small enough for a test."""
from dataclasses import dataclass
import numpy as np
from linfed.study.grid import grid
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
    monkeypatch.setitem(style.STYLE, "savefig.dpi", 50)
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


def command(*arguments, **options):
    """Run the command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT} | options
    arguments = [sys.executable, "-m", "linfed", *map(str, arguments)]
    return subprocess.run(arguments, env=environment, text=True, check=False, **options)


def test_the_package_is_a_command():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{linfed.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["list"], ["--version"]])
def test_an_output_that_nobody_reads_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = command(*arguments, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


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
    assert run("reproduce", "fedrep-fig3") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert f"no experiments/ in {below}, nor beside a pyproject.toml of linfed in a folder above" in message


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


def test_figures_do_not_depend_on_what_shows_them_elsewhere(toy):
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1)
    done = command(*call, cwd=toy.parent, env={"MPLBACKEND": "no-such-backend"})
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("results/toy-one.png").stat().st_size > 0


def test_the_same_run_writes_the_same_bytes(toy, monkeypatch):
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


@pytest.mark.parametrize(
    ("wanted", "old"),
    [("out/cells/", False), (".csv", False), ("values.npz", True), (".json", True), (".png", True), (".pdf", True)],
)
def test_a_full_disk_is_one_line_and_leaves_nothing_broken(wanted, old, toy, capsys, monkeypatch):
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
    assert "cannot be written: No space left on device; what was finished is kept" in errors
    after = files_of("out")
    assert not [path for path in after if path.name.startswith(".")]
    assert [path for path in before if wanted in str(path)] == [path for path in after if wanted in str(path)]
    assert all(after[path] == before[path] for path in before if wanted in str(path))


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
    assert "cannot be written: File too large; what was finished is kept" in done.stderr
    assert files_of("out") == {}


def test_version_and_bare_call(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == linfed.__version__
    assert run() == 2
    assert "reproduce" in capsys.readouterr().out


def test_reproduce_writes_everything_and_prints_the_claims(toy, tmp_path, capsys):
    assert run("reproduce", "toy-one", "--experiments", toy, "--out", "there", "--workers", 1, "--trials", 2) == 0
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
    described, tables = load_tables("toy-one", folder)
    assert tables["values"]["number"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(tables["values"].where(number=2)["value"], [102, 102])
    assert described["tables"] == {"values": {"rows": 3, "shared": {"trials": 2, "seed": 0, "size": 100}}}
    assert described["quick"] is False
    assert described["claims"][0]["verdict"] == "SUPPORTED"
    assert described["versions"]["numpy"] == np.__version__
    assert described["seconds"] >= 0


def test_draw_takes_the_tables_of_an_earlier_run(toy, capsys):
    """Figures and claims are made anew, from the code as it is now; nothing is computed, what was measured stays."""
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--out", "out")
    assert run(*call) == 0
    before = {path: path.read_bytes() for path in Path("out").iterdir() if path.is_file()}
    assert run(*call, "--draw") == 0
    assert {path: path.read_bytes() for path in Path("out").iterdir() if path.is_file()} == before
    Path("out/toy-one.png").unlink()
    module = sys.modules[f"{toy.name}.toy_one"]
    judged, module.claims = module.claims, lambda tables: judged(tables) * 2
    capsys.readouterr()
    assert run(*call, "--draw") == 0
    assert Path("out/toy-one.png").read_bytes() == before[Path("out/toy-one.png")]
    assert len(json.loads(Path("out/toy-one.json").read_text())["claims"]) == 2
    assert "wrote out/toy-one.json" in capsys.readouterr().out
    assert Path("ran.txt").read_text().split() == ["0", "1", "2"]


def test_draw_goes_on_where_a_claim_was_wrong(toy):
    """Tables and what they are of are saved before anything is judged."""
    call = ("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--out", "out")
    assert run(*call) == 0
    module = sys.modules[f"{toy.name}.toy_one"]
    judged, module.claims = module.claims, lambda tables: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run(*call, "--trials", 9)
    module.claims = judged
    assert run(*call, "--draw") == 0
    described = json.loads(Path("out/toy-one.json").read_text())
    assert described["tables"]["values"]["shared"]["trials"] == 9
    assert len(described["claims"]) == 1


def test_reproduce_quick_seed_and_all(toy, capsys):
    assert run("reproduce", "all", "--quick", "--seed", 7, "--experiments", toy, "--workers", 1) == 0
    described = json.loads(Path("results/quick/toy-one.json").read_text())
    assert described["tables"]["values"]["shared"] == {"trials": 5, "seed": 7, "size": 3}
    assert described["quick"] is True
    assert "NOT SUPPORTED" in capsys.readouterr().out


def test_a_cell_that_raises_is_told_and_the_others_are_kept(toy, capsys):
    call = ("reproduce", "toy-one", "--seed", 13, "--experiments", toy, "--workers", 1)
    assert run(*call) == 1
    assert Path("ran.txt").read_text().split() == ["0", "1", "2"]
    errors = capsys.readouterr().err
    assert errors.startswith("Traceback")
    assert "linfed: toy-one: RuntimeError: unlucky" in errors
    assert errors.splitlines()[-1].startswith("linfed: toy-one: 1 of 3 cells raised; what was finished is kept")
    assert run(*call) == 1
    assert Path("ran.txt").read_text().split() == ["0", "1", "2", "2"]


@pytest.mark.filterwarnings("ignore::linfed.StoreWarning")
def test_cells_are_used_again_until_the_code_of_their_numbers_changes(toy, capsys, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", png_alone)
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
    assert run(*call, "--keep") == 0
    assert "3 of 3 cells from an earlier run" in capsys.readouterr().out
    assert run(*call) == 0
    assert "earlier run" not in capsys.readouterr().out
    assert run(*call, "--fresh") == 0
    assert Path("ran.txt").read_text().split() == ["0", "1", "2"] * 3


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


@pytest.mark.filterwarnings("ignore")  # of the cluster
def test_cells_run_on_a_dask_cluster(toy, capsys):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(1, processes=False, threads_per_worker=1, dashboard_address=None) as cluster:
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
    assert written["claims"][0]["high"] is None


def test_an_interrupt_is_one_line(toy, capsys, monkeypatch):
    from linfed.study import schedule

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(schedule, "compute", interrupted)
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
        (["reproduce", "toy-one", "--shard", "0/2"], ["--shard 0/2", "I from 1 to N"]),
        (["reproduce", "toy-one", "--shard", "3/2"], ["--shard 3/2", "I from 1 to N"]),
        (["reproduce", "toy-one", "--shard", "half"], ["--shard half", "e.g. 1/2"]),
        (["reproduce", "toy-one", "--keep", "--fresh"], ["--keep and --fresh contradict"]),
        (["reproduce", "toy-one", "--dask", "tcp://x:1", "--workers", "2"], ["--dask and --workers exclude"]),
        (["reproduce", "toy-one", "--dask", "nowhere:no"], ["--dask nowhere:no: no scheduler there"]),
        (["reproduce", "toy-one", "--draw", "--trials", "3"], ["--draw", "--trials 3", "changes nothing"]),
        (["reproduce", "toy-one", "--draw", "--out", "empty"], ["--draw toy-one", "'empty' holds no tables of it"]),
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
