"""What a run leaves of itself: its command, the hashes of its code, the metadata of its figures; and the citation."""

import json
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

import linfed as lf
from linfed import cli
from linfed.reproduction import citation
from linfed.reproduction.run import ReproduceOptions, command_of
from linfed.sweeps.code_key import source_digests
from tests.helpers import ROOT

FILE = """
from beside import LARGE
import linfed as lf
import numpy as np

def cells(quick):
    problem = lf.SharedRepresentation(n_clients=LARGE, dim=8, rank=2)
    fedavg = lf.FedAvg(rank=2, step_size=0.5)
    return [lf.Run(algorithm=fedavg, problem=problem, data=lf.FreshSamples(8), rounds=2 if quick else 5, trials=3)]
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of one's own, which imports a module beside it; what it loads is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    Path("beside.py").write_text("LARGE = 12\n")
    Path("own.py").write_text(FILE)
    yield Path("own.py")
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.long
def test_the_record_and_the_figures_have_the_command_and_the_hashes(file):
    assert cli.main(["reproduce", "own.py", "--quick", "--set", "problem.n_clients=16", "--seed", "3"]) == 0
    folder = Path("results/set/quick")
    record = json.loads((folder / "own.json").read_text())
    assert record["command"] == "linfed reproduce own.py --quick --seed 3 --set problem.n_clients=16"
    assert record["versions"]["linfed"] == lf.__version__
    assert {*record["source"]} == {"experiment", "linfed"}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in record["source"].values())
    with Image.open(folder / "own.png") as image:
        texts = {name: image.info[name] for name in ("Creator", "Subject", "Keywords")}
    pdf = (folder / "own.pdf").read_bytes()
    assert texts["Creator"] == f"linfed {lf.__version__}"
    assert texts["Subject"] == record["command"]
    assert all(digest in texts["Keywords"] for digest in record["source"].values())
    for text in texts.values():
        assert f"({text})".encode() in pdf


@pytest.mark.long
def test_a_figure_that_is_drawn_again_has_the_metadata_of_its_run(file):
    assert cli.main(["reproduce", "own.py", "--quick"]) == 0
    before = Path("results/quick/own.png").read_bytes()
    assert cli.main(["replot", "own.py", "--quick"]) == 0
    assert Path("results/quick/own.png").read_bytes() == before


def digests(changes):
    """The hashes of own.py with some texts replaced, in a new process."""
    for name, (old, new) in changes.items():
        text = Path(name).read_text()
        assert old in text
        Path(name).write_text(text.replace(old, new))
    code = "import json, own; from linfed.sweeps.code_key import source_digests as s; print(json.dumps(s([own.cells])))"
    return json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


@pytest.mark.long
def test_the_hash_is_of_the_experiment_and_of_what_it_imports(file):
    first = digests({})
    assert digests({"own.py": ("problem =", "# a comment\n    problem =")}) == first
    beside = digests({"beside.py": ("12", "13")})
    own = digests({"own.py": ("0.5", "0.25")})
    assert len({one["experiment"] for one in (first, beside, own)}) == 3
    assert {one["linfed"] for one in (first, beside, own)} == {first["linfed"]}


def test_the_hash_of_linfed_is_of_its_files(monkeypatch):
    before = source_digests([])
    monkeypatch.setattr("linfed.sweeps.code_key._own_files", dict)
    assert source_digests([])["linfed"] != before["linfed"]
    assert source_digests([])["experiment"] == before["experiment"]


@pytest.mark.parametrize("value", ["word", "two words", 3, 0.25, True, None, (1, "a"), "1", "None"])
def test_the_command_gives_the_same_settings(value):
    from linfed.reproduction.own_settings import read_settings

    options = ReproduceOptions(trials=4, set={"inner.field": value})
    words = shlex.split(command_of(ROOT / "experiments" / "fedrep" / "fedrep_fig4.py", options))
    assert words[:5] == ["linfed", "reproduce", "fedrep-fig4", "--trials", "4"]
    assert words[5] == "--set"
    assert read_settings(words[6:]) == {"inner.field": value}


# --- citation ------------------------------------------------------------------------------------------------


def test_the_citation_is_that_of_the_file(capsys):
    assert cli.main(["--cite"]) == 0
    printed = capsys.readouterr().out
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    title = re.search(r'(?m)^title: "(.*)"$', text)[1]
    assert printed.startswith("@misc{linfed,\n")
    assert f"  title = {{{{{title}}}}},\n" in printed
    assert "  author = {{The linfed authors}},\n" in printed
    assert f"version {lf.__version__}" in printed
    assert f"version: {lf.__version__}\n" in text
    assert printed.count("{") == printed.count("}")


def test_authors_date_and_address_become_fields(tmp_path, monkeypatch):
    (tmp_path / "CITATION.cff").write_text(
        'title: "A: b"\nversion: 2.0\ndate-released: 2027-01-31\nrepository-code: https://example.org/x\nauthors:\n'
        '  - family-names: Doe\n    given-names: "Jane M."\n  - name: The others\nlicense: MIT\n'
    )
    monkeypatch.setattr(citation, "citation_file", lambda: tmp_path / "CITATION.cff")
    assert citation.bibtex().splitlines() == [
        "@misc{linfed,",
        "  author = {Doe, Jane M. and {The others}},",
        "  title = {{A: b}},",
        "  year = {2027},",
        "  url = {https://example.org/x},",
        "  note = {Python package, version 2.0},",
        "}",
    ]


def test_an_installed_package_has_its_own_file(tmp_path, monkeypatch):
    monkeypatch.setattr("linfed.reproduction.citation.FOLDER", tmp_path / "linfed")
    shipped = tmp_path / "linfed" / "_shipped" / "CITATION.cff"
    shipped.parent.mkdir(parents=True)
    shipped.write_text("x")
    assert citation.citation_file() == shipped


@pytest.mark.long
def test_the_archives_are_complete(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    assert wheel.stat().st_size < 3e6
    assert source.stat().st_size < 25e6
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
    missing = {str(path.relative_to(ROOT)) for path in files} - inside
    assert not missing
