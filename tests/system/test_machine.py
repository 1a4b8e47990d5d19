"""Where numbers come from: the processor, and the commit of a checkout."""

import subprocess
from pathlib import Path

import pytest

from linfed.system import machine


@pytest.mark.parametrize(("flags", "vectors"), [("fpu avx2 avx512f", ", AVX-512"), ("fpu avx2", ", AVX2"), ("fpu", "")])
def test_a_processor_is_named_with_its_widest_vectors(flags, vectors, monkeypatch):
    text = f"processor\t: 0\nmodel name\t: Some: Chip 3\nflags\t\t: {flags}\n\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert machine.processor_model.__wrapped__() == f"Some: Chip 3{vectors}"


def test_a_processor_without_a_description_has_the_name_of_its_kind(monkeypatch):
    def fails(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", fails)
    assert machine.processor_model.__wrapped__()


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Return a function that calls git in a new repository, which is linfed's folder."""
    monkeypatch.setattr(machine, "FOLDER", tmp_path)

    def call(*arguments):
        names = ("-c", "user.name=a", "-c", "user.email=b@c")
        done = subprocess.run(["git", "-C", tmp_path, *names, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    call("init")
    return call


def test_the_commit_of_a_checkout(git, tmp_path):
    assert machine.commit() is None  # nothing is tracked
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "first", "--date", "2026-01-31T12:00:00")
    found = git("rev-parse", "HEAD")
    (tmp_path / "untracked").write_text("one")
    assert machine.commit() == found
    (tmp_path / "file").write_text("two")
    assert machine.commit() == machine.commit(tmp_path) == f"{found} and changes"
    day = git("show", "-s", "--format=%cs", "HEAD")
    assert machine.commit_date.__wrapped__(f"{found} and changes") == day
    assert machine.commit_date.__wrapped__("unknown") == ""


def test_a_folder_without_a_checkout_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert machine.commit(tmp_path) is None
