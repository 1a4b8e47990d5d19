"""The command ``linfed``: what it imports, what it says of mistakes, and its exit status."""

import os
import subprocess
import sys

import pytest

import linfed
from linfed.errors import SizeError, WorkerError
from tests.helpers import ROOT
from tests.reproduction.toys import refused, run


@pytest.mark.parametrize(
    "code",
    [
        "import linfed",
        "import linfed.cli; linfed.cli.parser().format_help()",
        "import linfed.cli; linfed.cli.main(['--version'])",
    ],
)
def test_what_needs_nothing_imports_nothing(code):
    """No package but linfed, and of linfed no module that computes."""
    code = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stderr.split()
    roots = {name.partition(".")[0] for name in loaded}
    assert "linfed" in roots
    assert roots <= {*sys.stdlib_module_names, "linfed"}
    assert {name.split(".")[1] for name in loaded if name.startswith("linfed.")} <= {
        "_package",
        "_sources",
        "cli",
        "commands",
    }


def command(*arguments, **options):
    """Run the command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment} | options
    return subprocess.run([sys.executable, "-m", "linfed", *arguments], check=False, **options)


def test_the_package_is_a_command():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{linfed.__version__}\n", "")


def test_an_output_that_nobody_reads_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = command("--version", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_version_and_bare_call(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == linfed.__version__
    assert run() == 2
    assert "reproduce" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["reprodcue", "x"], "'reprodcue' is not a command (did you mean 'reproduce'?); see linfed --help"),
        (["fedrep-fig3"], "'fedrep-fig3' is not a command (did you mean 'linfed reproduce fedrep-fig3'?); see linfed"),
        (["zzz"], "'zzz' is not a command; see linfed --help"),
        (["reproduce"], "missing NAME; see linfed reproduce --help"),
        (["compare"], "missing BEFORE and AFTER; see linfed compare --help"),
        (["list", ""], "'': no such argument; see linfed list --help"),
        (["report", "--quick"], "--quick: no such argument; see linfed report --help"),
        (["reproduce", "x", "--qick"], "--qick: no such argument (did you mean '--quick'?)"),
        (["reproduce", "x", "--trial", "5"], "--trial 5: no such argument (did you mean '--trials'?)"),
        (
            ["reproduce", "x", "--dim", "3"],
            "--dim 3: no such argument (to replace a field of an experiment, use --set",
        ),
        (
            ["reproduce", "x", "--set", "size=3", "b=2"],
            "b=2: no such argument (each FIELD=VALUE must follow its own",
        ),
        (["reproduce", "--set", "size=3", "b=2", "x"], "'b=2' is not an experiment: each FIELD=VALUE must follow"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line(arguments, told, capsys):
    assert refused(capsys, *arguments).startswith(f"linfed: {told}")


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (SizeError("too\tlarge"), 2, "too\tlarge"),
        (WorkerError("a worker died"), 1, "a worker died"),
        (SystemExit(3), 2, "the experiment ended the command (SystemExit: 3)"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyboardInterrupt(15), 143, "interrupted"),
        (PermissionError(13, "Permission denied", "secret"), 2, "'secret' cannot be read: Permission denied"),
    ],
)
def test_an_error_of_a_command_is_one_line_with_a_status(error, status, told, monkeypatch, capsys):
    def run_list(given):
        raise error

    monkeypatch.setattr("linfed.commands.listing.run", run_list)
    assert refused(capsys, "list", status=status) == f"linfed: {told}\n"


def test_other_errors_are_not_called_mistakes_of_the_user(monkeypatch):
    def run_list(given):
        raise FileNotFoundError(2, "No such file or directory", "x")

    monkeypatch.setattr("linfed.commands.listing.run", run_list)
    with pytest.raises(FileNotFoundError):
        run("list")


def test_a_working_folder_that_was_removed_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "the working folder has been removed" in refused(capsys, "list")
