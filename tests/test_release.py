"""The check before a release finds each fault in a small repository."""

import json
import subprocess

import pytest

import linfed as lf
from tests import release

VERSION = lf.__version__


def commit(top):
    """Commit everything, and return the commit."""
    for words in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(top), *words], check=True)
    return release.git(top, "rev-parse", "HEAD")


def write(top, name, text):
    path = top / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def record(top, name, **commits):
    write(top, f"results/committed/{name}.json", json.dumps({"experiment": name, **commits}))


@pytest.fixture
def top(tmp_path):
    """A repository that can be released."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    write(tmp_path, "pyproject.toml", f'[project]\nversion = "{VERSION}"\n')
    write(tmp_path, "CITATION.cff", f"version: {VERSION}\ndate-released: 2027-01-31\n")
    write(tmp_path, "CHANGELOG.md", f"# Changelog\n\n## {VERSION} (2027-01-31)\n\n## 0.0.1 (2026-01-31)\n")
    for name in ("linfed/a.py", "experiments/one.py", release.WRITTEN):
        write(tmp_path, name, "1")
    run = commit(tmp_path)
    for name in ("one", "two"):
        record(tmp_path, name, commit=run, judged=run)
    write(tmp_path, "results/committed/benchmarks.json", "{}")
    write(tmp_path, release.WRITTEN, "2")
    commit(tmp_path)
    return tmp_path


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
        ("linfed/a.py", "2", "code differs from commit"),
        ("experiments/new.py", "2", "code differs from commit"),
    ],
)
def test_a_fault_is_found(top, name, text, line, capsys):
    write(top, name, text)
    commit(top)
    assert release.main(top) == 1
    assert line in capsys.readouterr().out


@pytest.mark.parametrize("changes", [{"commit": None}, {"judged": None}, {"commit": "0" * 40}])
def test_records_of_other_commits(top, changes, capsys):
    run = release.git(top, "rev-parse", "HEAD~")
    record(top, "two", **{"commit": run, "judged": run, **changes})
    commit(top)
    assert release.main(top) == 1
    assert "the records name 2 commits" in capsys.readouterr().out


def test_a_commit_that_git_does_not_know(top, capsys):
    for name in ("one", "two"):
        record(top, name, commit="0" * 40, judged="0" * 40)
    commit(top)
    assert release.main(top) == 1
    assert "bad object" in capsys.readouterr().out


def test_files_that_are_not_committed(top, capsys):
    write(top, "experiments/new.py", "1")
    assert release.main(top) == 1
    assert "experiments/" in capsys.readouterr().out
