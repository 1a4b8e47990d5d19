"""The wheel and the source archive contain what they should."""

import subprocess
import sys
import tarfile
import zipfile

import pytest

import linfed as lf
from tests.helpers import ROOT


@pytest.mark.long
def test_the_archives_are_complete(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as content:
        assert content.read("linfed/_shipped/CITATION.cff") == (ROOT / "CITATION.cff").read_bytes()
        names = set(content.namelist())
        assert {name.split("/")[0] for name in names} == {"linfed", f"linfed-{lf.__version__}.dist-info"}
        shipped = {f"linfed/_shipped/{path.relative_to(ROOT)}" for path in (ROOT / "experiments").rglob("*.py")}
        assert shipped | {"linfed/py.typed", "linfed/reproduction/committed.json.gz"} <= names
    with tarfile.open(source) as content:
        inside = {name.partition("/")[2] for name in content.getnames()}
    folders = ("linfed", "experiments", "tests", "benchmarks", "notebooks", "docs", "results/committed")
    files = {path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.is_file()}
    files -= {path for path in files if {"__pycache__", "_generated", ".ipynb_checkpoints"} & set(path.parts)}
    assert {str(path.relative_to(ROOT)) for path in files} - inside == set()
