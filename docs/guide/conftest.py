"""Fixture of the guide's doctests: each page runs in an empty folder with the files that it shows."""

import shutil
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parent


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Make a folder with the guide's Python files the current one, and remove what it adds to the process.

    Pages read the committed results as in a checkout.
    """
    for file in {*GUIDE.glob("*.py")} - {Path(__file__)}:
        shutil.copy(file, tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "committed").symlink_to(GUIDE.parent.parent / "results" / "committed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
