"""The check before a release finds each fault in a small repository."""

import json
import subprocess
import sys

import pytest

import linfed as lf
from tests.tools import release

pytestmark = pytest.mark.long
VERSION = lf.__version__
CHANGED = "its cells, or the code that computes them, have changed since commit a1"
CODE = '''import linfed as lf

SUMMARY = "an experiment"


def cells(quick):
    """Return one cell."""
    problem, data = lf.SharedRepresentation(n_clients=3, dim=2, rank=1), lf.FixedSamples(n_samples=2)
    return [lf.Run(algorithm=lf.LocalOnly(), problem=problem, data=data, n_rounds=1, seed=0)]
'''


def commit(top):
    """Commit everything, and return the commit."""
    for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(top), *words], check=True)
    return release.git(top, "rev-parse", "HEAD")


def write(top, name, text):
    path = top / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if path.suffix == ".py":
        sys.modules.pop(path.stem, None)  # a changed experiment is loaded again


def record(top, name, **values):
    default = {"experiment": name, "commit": "a1", "judged": "a1"}
    present = release.computed_from(top / "experiments" / f"{name}.py")
    write(top, f"results/committed/{name}.json", json.dumps(default | present | values))


@pytest.fixture
def top(tmp_path, monkeypatch):
    """A repository that can be released."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # Python would load it if the size stays
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(tmp_path, "pyproject.toml", f'[project]\nversion = "{VERSION}"\n')
    write(tmp_path, "CITATION.cff", f"version: {VERSION}\ndate-released: 2027-01-31\n")
    write(tmp_path, "CHANGELOG.md", f"# Changelog\n\n## {VERSION} (2027-01-31)\n\n## 0.0.1 (2026-01-31)\n")
    for name in ("one", "two"):
        write(tmp_path, f"experiments/{name}.py", CODE)
        record(tmp_path, name)
    write(tmp_path, "results/committed/benchmarks.json", "{}")
    commit(tmp_path)
    yield tmp_path
    for name in ("one", "two"):
        sys.modules.pop(name, None)


def test_a_repository_without_faults(top, capsys):
    assert release.main(top) == 0
    assert capsys.readouterr().out == f"version {VERSION} can be released\n"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("pyproject.toml", '[project]\nversion = "9.9"\n', f"CITATION.cff has version {VERSION}, pyproject.toml 9.9"),
        ("CITATION.cff", "version: 9.9\ndate-released: 2027-01-31\n", "CITATION.cff has version 9.9"),
        ("CHANGELOG.md", "## 9.9 (2027-01-31)\n", "CHANGELOG.md has version 9.9"),
        ("CHANGELOG.md", f"## {VERSION} (unreleased)\n", "CHANGELOG.md unreleased: both must be one date"),
        ("CITATION.cff", f"version: {VERSION}\n", "date-released None"),
        ("experiments/one.py", CODE.replace("seed=0", "seed=1"), f"one: {CHANGED}"),
        ("experiments/one.py", f"{CODE}\nOTHER = 1\n", f"one: {CHANGED}"),
    ],
)
def test_a_fault_is_found(top, name, text, line, capsys):
    write(top, name, text)
    commit(top)
    assert release.main(top) == 1
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"commit": None}, "two: computed at commit None, judged at a1"),
        ({"judged": "b2"}, "two: computed at commit a1, judged at b2"),
        ({"source": None}, f"two: {CHANGED}"),
        ({"source": {"experiment": "1", "linfed": "2"}}, f"two: {CHANGED}"),
        ({"configuration": "2-0"}, f"two: {CHANGED}"),
    ],
)
def test_records_of_other_code(top, changes, line, capsys):
    record(top, "two", **changes)
    commit(top)
    assert release.main(top) == 1
    assert line in capsys.readouterr().out


def test_comments_and_claims_of_an_experiment_may_change(top):
    write(top, "experiments/one.py", f"# What it is about.\n{CODE}\n\ndef claims(tables):\n    return []\n")
    commit(top)
    assert release.main(top) == 0


def test_files_that_are_not_committed(top, capsys):
    write(top, "notes.txt", "1")
    assert release.main(top) == 1
    assert "?? notes.txt" in capsys.readouterr().out
