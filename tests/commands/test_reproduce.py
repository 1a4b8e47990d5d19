"""``linfed reproduce``: options, failing cells, stored cells, full disks, and mistakes that are one line."""

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linfed.reproduction import committed
from linfed.sweeps import scheduler
from tests.helpers import ROOT, mostly_long
from tests.reproduction.toys import TOY, refused, run, write


@pytest.fixture
def call(toy):
    """The words of a command that runs the toy in this process."""
    return "reproduce", "toy-one", "--experiments", toy, "--workers", 1


def ran():
    """Return the numbers of the cells that were computed."""
    return sorted(Path("ran.txt").read_text().split()) if Path("ran.txt").exists() else []


# --- what is printed -------------------------------------------------------------------------------------------------


def test_files_and_claims_are_printed_and_shown_again(call, capsys):
    assert run(*call, "--out", "there", "--trials", 2, "--verbose") == 0
    out = capsys.readouterr().out
    for name in ("-values.csv", "-values.npz", ".json", ".png", "-again.txt"):
        assert f"  wrote {Path('there', f'toy-one{name}')}\n" in out
    assert out.index("wrote") < out.index("values are large")
    assert "(1) a note" in out
    assert out.splitlines()[-2:] == ["toy-one: 1 claim: 1 SUPPORTED", "9 files in there"]
    assert run("show", "toy-one", "--out", "there", "--verbose") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("toy-one: full run, trials = 2, linfed")
    assert out[out.index("values are large") : out.index("toy-one: 1 claim")] in shown


def test_quick_runs_have_a_warning_and_their_own_folder(call, toy, capsys):
    assert run("reproduce", "all", "--quick", *call[2:]) == 0
    out = capsys.readouterr().out
    assert out.startswith("QUICK run: ")
    assert out.count("QUICK run") == 1
    assert "NOT SUPPORTED" in out
    record = json.loads(Path("results/quick/toy-one.json").read_text())
    assert record["tables"]["values"]["shared"] == {"trials": 5, "seed": 0, "size": 3}
    again = ("replot", "toy-one", "--experiments", toy)
    assert run(*again, "--quick") == 0
    assert capsys.readouterr().out.count("QUICK run") == 1
    assert "there is a quick run; choose it with --out results/quick" in refused(capsys, *again)


def test_several_runs_end_with_a_summary(call, toy, capsys):
    write(toy / "toy_two.py", TOY.replace("claimed_low=50.0", "claimed_low=500.0"))
    assert run("reproduce", "all", *call[2:]) == 0
    assert capsys.readouterr().out.split("\n\n")[-1].splitlines()[:2] == [
        "2 experiments, 2 claims: 1 SUPPORTED, 1 NOT SUPPORTED",
        "  toy-two: NOT SUPPORTED 1: values are large",
    ]


def test_strict_compares_with_the_committed_run(call, toy, capsys, monkeypatch):
    def known(verdict, **settings):
        verdicts = {("values are large", "least value", "toy"): [verdict]}
        runs = {"toy-one": committed.Committed(1.0, verdicts, {"values": settings})}
        monkeypatch.setattr(committed, "committed_runs", lambda: runs)
        capsys.readouterr()

    known("SUPPORTED")
    assert run(*call, "--strict") == 0
    assert capsys.readouterr().out.endswith("--strict: all verdicts as in the committed runs\n")
    again = ("replot", "toy-one", "--experiments", toy, "--strict")
    known("HOLDS", number=["0", "1", "2"])
    assert run(*again) == 1
    out, err = capsys.readouterr()
    assert err == "toy-one: SUPPORTED instead of HOLDS: values are large (toy; least value)\n"
    assert out.endswith("--strict: 1 verdict differs from the committed runs\n")
    known("HOLDS", number=["0", "1"])  # a difference would not come from the code
    assert run(*again) == 1
    out, err = capsys.readouterr()
    assert err == "toy-one: settings differ from the committed run: number 2 instead of 0, 1 in 'values'\n"
    assert out.endswith("--strict: 1 of 1 runs not compared, because their settings differ\n")


def test_the_time_of_the_committed_run_is_told_if_the_settings_are_the_same(call, monkeypatch):
    lines = []
    monkeypatch.setattr(committed, "committed_runs", lambda: {"toy-one": committed.Committed(241.6, {})})
    monkeypatch.setattr("linfed.sweeps.progress.log_status", lambda name, text, progress: lines.append(text))
    for options in ((), ("--trials", 3), ("--quick",)):
        assert run(*call, *options) == 0
    assert run("replot", *call[1:4]) == 0
    time = "; the committed run took about 4 min on two processors"
    assert lines == [f"experiment 1 of 1{time * same}" for same in (1, 0, 0, 0)]


# --- cells -----------------------------------------------------------------------------------------------------------


def test_a_cell_that_raises_is_told_and_the_others_are_kept(call, capsys):
    for times in (1, 2):
        assert run(*call, "--seed", 13) == 1
        assert ran() == sorted(["0", "1", *["2"] * times])
    errors = capsys.readouterr().err
    assert errors.startswith("Traceback")
    assert "linfed: toy-one: RuntimeError: unlucky" in errors
    assert errors.splitlines()[-1].startswith("linfed: toy-one: 1 of 3 cells raised; finished cells are saved")


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("size", "reason"),
    [("5", "5 in cell 0"), ("word", "'<' not supported between instances of 'str' and 'int'")],
)
def test_settings_that_the_cells_reject_are_one_line(own, size, reason, toy, capsys):
    """For a file of one's own there is a traceback, because its code may be wrong."""
    check = "if self.size < 9:\n            raise ValueError(f'{self.size} in cell {self.number}')"
    text = TOY.replace("        return", f"        {check}\n        return")
    write(toy / "picky.py", text)
    named = [write("own_picky.py", text)] if own else ["picky", "--experiments", toy]
    assert run("reproduce", *named, "--workers", 1, "--set", f"size={size}") == 1
    said = capsys.readouterr().err
    assert said.startswith("Traceback") == own
    if not own:
        assert said == f"linfed: picky: 3 cells cannot run with size = {size}: {reason}\n"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::linfed.StoreWarning")
def test_cells_are_used_again_until_the_code_of_their_numbers_changes(call, toy, capsys):
    def reused(*options):
        assert run(*call, *options) == 0
        return "3 of 3 cells from an earlier run" in capsys.readouterr().out

    assert not reused()
    assert reused()
    judged = TOY.replace("values are large", "they are large") + "# changed\n"
    write(toy / "toy_one.py", judged)
    assert reused()
    write(toy / "toy_one.py", judged.replace("self.number + self.size", "self.size + self.number"))
    del sys.modules[f"{toy.name}.toy_one"]  # as a new command begins
    assert reused("--reuse-stale")
    assert not reused()
    assert not reused("--recompute")
    assert ran() == sorted(["0", "1", "2"] * 3)


def test_shards_are_put_together(call, capsys):
    for number in (1, 2):
        assert run(*call, "--shard", f"{number}/2", "--out", f"out-{number}") == 0
        assert f"toy-one: shard {number}/2 is done" in capsys.readouterr().out
        assert not Path(f"out-{number}/toy-one.json").exists()
    shutil.copytree("out-2/cells", "out-1/cells", dirs_exist_ok=True)
    assert run(*call, "--out", "out-1") == 0
    assert "3 of 3 cells from an earlier run" in capsys.readouterr().out
    assert ran() == ["0", "1", "2"]


@pytest.mark.long
def test_worker_processes_find_the_experiment(call):
    assert run(*call[:-1], 2) == 0
    assert ran() == ["0", "1", "2"]


@pytest.mark.long
def test_a_wrong_address_of_a_dask_scheduler_is_one_line(call, capsys):
    pytest.importorskip("distributed")
    told = refused(capsys, *call[:-2], "--dask", "nowhere:no")
    assert "--dask nowhere:no must be the address of a Dask scheduler" in told


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the cluster
def test_cells_run_on_a_dask_cluster(call, capsys):
    distributed = pytest.importorskip("distributed")
    try:
        started = distributed.LocalCluster(1, processes=False, threads_per_worker=1, dashboard_address=None)
    except AssertionError:  # Dask waits ten seconds for its thread
        gc.collect()  # of the cluster, while its warnings are ignored
        pytest.skip("Dask's cluster did not start within ten seconds")
    with started as cluster:
        code = run(*call[:-2], "--dask", cluster.scheduler_address)
    shown = capsys.readouterr()
    if "(AssertionError:)" in shown.err:  # the same wait, for the client's thread
        pytest.skip("Dask's client did not start within ten seconds")
    assert code == 0
    assert "values are large" in shown.out


# --- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_figures_do_not_depend_on_what_shows_them_elsewhere(call):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "no-such-backend"}
    command = [sys.executable, "-m", "linfed", *map(str, call)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("results/toy-one.png").stat().st_size > 0


@pytest.mark.long
def test_the_same_run_writes_the_same_bytes(call, pdfs, monkeypatch):
    written = []
    for moment in (0.0, 1e9):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)  # what a figure would be dated by
        assert run(*call, "--out", f"at-{moment:g}") == 0
        paths = sorted(path for path in Path(f"at-{moment:g}").iterdir() if path.suffix != ".json" and path.is_file())
        written.append({path.name: path.read_bytes() for path in paths})
    assert sorted(path.split(".")[-1] for path in written[0]) == sorted(["csv", "npz", *2 * ["pdf", "png", "txt"]])
    assert b"CreationDate" not in written[0]["toy-one.pdf"]
    assert written[0] == written[1]


# --- interruptions and mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted", mostly_long(["out/cells/", ".csv", "values.npz", ".json", ".png"], "out/cells/", ".json")
)
def test_a_full_disk_is_one_line_and_leaves_nothing_broken(wanted, call, capsys, monkeypatch):
    """Files of the earlier run stay as they were."""
    assert run(*call, "--out", "out") == 0
    before = {path: path.read_bytes() for path in Path("out").rglob(f"*{wanted}") if path.is_file()}
    plain = Path.open

    def opened(path, mode="r", *arguments, **options):
        if "w" in mode and wanted in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(path, mode, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        capsys.readouterr()
        assert run(*call, "--out", "out", "--seed", 1) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith("linfed: '")
    assert "out/" in errors
    assert "cannot be written: No space left on device; finished cells are saved" in errors
    assert not [path for path in Path("out").rglob(".*") if path.is_file()]
    assert all(path.read_bytes() == content for path, content in before.items())


def test_an_interrupt_says_how_to_resume(call, capsys, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(scheduler, "compute", interrupted)
    for options, said in ((), "again to resume"), (("--recompute",), "without --recompute to resume"):
        told = refused(capsys, *call, *options, status=130)
        assert told == f"linfed: interrupted; finished cells are saved; run the same command {said}\n"


def test_a_bug_in_an_experiment_is_not_called_a_mistake_of_the_user(call, toy):
    write(toy / "toy_one.py", TOY.replace("low = float(", "low = [].index("))
    with pytest.raises(ValueError, match="is not in list"):
        run(*call)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["reproduce", "toy-on"], ["'toy-on'", "did you mean 'toy-one'"]),
        (["reproduce", "all", "toy-on"], ["'toy-on'", "did you mean 'toy-one'"]),
        (["reproduce", "toy-one", "--trials", "0"], ["--trials 0 must be at least 1"]),
        (["reproduce", "toy-one", "--seed", "-1"], ["--seed -1 must be at least 0"]),
        (["reproduce", "toy-one", "--workers", "0"], ["--workers 0 must be at least 1"]),
        (["reproduce", "toy-one", "--shard", "0/2"], ["--shard 0/2", "I from 1 to N"]),
        (["reproduce", "toy-one", "--shard", "3/2"], ["--shard 3/2", "I from 1 to N"]),
        (["reproduce", "toy-one", "--shard", "half"], ["--shard half", "e.g. 1/2"]),
        (["reproduce", "toy-one", "--reuse-stale", "--recompute"], ["--reuse-stale and --recompute cannot be"]),
        (["reproduce", "toy-one", "--dask", "x", "--workers", "2"], ["--dask and --workers cannot be combined"]),
        (["reproduce", "toy-one", "--dask", ""], ["--dask requires the address of a scheduler"]),
        (["reproduce", "toy-one", "--set", "trials=9", "--trials", "3"], ["--trials and --set trials cannot be"]),
        (["reproduce", "toy-one", "--set", "sise=9"], ["--set sise", "did you mean 'size'"]),
        (["reproduce", "toy-one", "--strict"], ["--strict requires a committed run", "none of 'toy-one'"]),
        (["reproduce", "toy-one", "--strict", "--quick"], ["--strict", "leave out --quick"]),
        (["reproduce", "toy-one", "--strict", "--shard", "1/2"], ["--strict and --shard cannot be combined"]),
        (
            ["reproduce", "mine/toy_one.py", "all"],
            ["toy_one.py' and 'mine/toy_one.py' have the same name: run them separately"],
        ),
        (["list", "--algorithms"], ["--algorithms lists algorithms: leave out --out and --experiments"]),
        (["list", "--algorithms", "--out", "x"], ["--algorithms lists algorithms: leave out --out and --experiments"]),
        (["show", "toy-one"], ["--experiments ", " is for --claims: leave it out, or add --claims"]),
        (["reproduce", "toy-one", "--out", "file/below"], ["--out", "cannot be written"]),
        (["replot", "toy-one", "--out", "empty"], ["no saved run of 'toy-one'", "linfed reproduce toy-one"]),
        (["replot", "all"], ["no saved run in", "results", "linfed reproduce NAME"]),
        (["replot", "toy-one", "--out", "file"], ["'file' cannot be read", "--out DIR"]),
    ],
)
def test_mistakes_are_one_line_before_anything_runs(arguments, fragments, toy, capsys):
    Path("file").write_text("")
    write("mine/toy_one.py", TOY)
    line = refused(capsys, *arguments, "--experiments", toy)
    for fragment in fragments:
        assert fragment in line
    assert ran() == []
