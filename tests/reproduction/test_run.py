"""A run leaves its tables, figures, claims and record; a saved run is drawn and judged again without computing."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import linfed as lf
from linfed.reproduction.experiments import cells_of, load_file
from linfed.reproduction.own_settings import read_settings
from linfed.reproduction.record import ResultsFolder, TableRecord
from linfed.reproduction.run import ReproduceOptions, command_of, load_tables, settings_of
from tests.helpers import ROOT
from tests.reproduction.toys import GRID, TOY, refused, run, write

pytestmark = pytest.mark.usefixtures("folder")

GRID_RUN = ("reproduce", "my_grid.py", "--quick", "--workers", 1)
QUICK = Path("results/quick")


def new(name, text):
    """Write a file again; the next command imports it as a new process would."""
    write(f"{name}.py", text)
    sys.modules.pop(name, None)


# --- what is written -------------------------------------------------------------------------------------------------


def test_a_run_writes_tables_figures_captions_and_a_record(toy, pdfs):
    call = ("reproduce", "toy-one", "--experiments", toy, "--out", "there", "--workers", 1, "--trials", 2)
    assert run(*call) == 0
    folder = ResultsFolder(Path("there"))
    names = {"toy-one.json", "toy-one-values.csv", "toy-one-values.npz", "cells"}
    names |= {f"toy-one{key}.{kind}" for key in ("", "-again") for kind in ("png", "pdf", "txt")}
    assert {path.name for path in folder.path.iterdir()} == names
    record = folder.read("toy-one")
    table = load_tables(record, folder)["values"]
    assert table["number"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(table.select(number=2)["value"], [102, 102])
    assert Path("there/toy-one-values.csv").read_text().splitlines()[-1].endswith(",102")
    assert record.tables == {"values": TableRecord(rows=3, shared={"trials": 2, "seed": 0, "size": 100})}
    assert (record.experiment, record.quick, record.set, record.file) == ("toy-one", False, {"trials": 2}, None)
    assert (record.cells, record.reused, record.is_judged) == (3, 0, True)
    assert [one.verdict.value for one in record.claims] == ["SUPPORTED"]
    assert record.figures == dict.fromkeys(("", "again"), "a toy. Sizes: 2 trials.")
    assert record.versions["numpy"] == np.__version__
    assert run(*call) == 0
    again = folder.read("toy-one")
    assert (again.reused, again.processor_seconds) == (3, record.processor_seconds)


def test_the_record_and_the_figures_have_the_command_and_the_hashes(pdfs):
    new("my_grid", GRID)
    assert run(*GRID_RUN, "--set", "problem.n_clients=16", "--seed", 3) == 0
    folder = Path("results/set/quick")
    record = json.loads((folder / "my-grid.json").read_text())
    assert record["command"] == "linfed reproduce my_grid.py --quick --seed 3 --set problem.n_clients=16"
    assert {*record["source"]} == {"experiment", "linfed"}
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in record["source"].values())
    with Image.open(folder / "my-grid.png") as image:
        texts = {name: image.info[name] for name in ("Creator", "Subject", "Keywords")}
    assert texts["Creator"] == f"linfed {lf.__version__}"
    assert texts["Subject"] == record["command"]
    assert all(digest in texts["Keywords"] for digest in record["source"].values())
    pdf = (folder / "my-grid.pdf").read_bytes()
    assert all(f"({text})".encode() in pdf for text in texts.values())


@pytest.mark.parametrize("value", ["word", "two words", 3, 0.25, True, None, (1, "a"), "1", "None"])
def test_the_command_gives_the_same_settings(value):
    options = ReproduceOptions(trials=4, set={"inner.field": value})
    words = shlex.split(command_of(ROOT / "experiments" / "fedrep" / "fedrep_fig4.py", options))
    assert words[:6] == ["linfed", "reproduce", "fedrep-fig4", "--trials", "4", "--set"]
    assert read_settings(words[6:]) == {"inner.field": value}


def test_settings_are_the_values_of_the_cells_fields():
    problem, data = lf.SharedRepresentation(n_clients=4, dim=6, rank=2), lf.FreshSamples(3)
    cell = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.1), problem=problem, data=data, n_rounds=3)
    cells = [replace(cell, n_rounds=rounds) for rounds in (3, 12, 3)]
    tables = {"one": lf.Table.of(cells, [{"risk": 0.1}] * 3)}
    found = settings_of(tables, {"one": cells[:1]})["one"]
    assert (found["rows"], found["n_rounds"], found["problem.dim"]) == (["3"], ["12", "3"], ["6"])
    assert "risk" not in found


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        ({}, "results"),
        ({"quick": True}, "results/quick"),
        ({"trials": 3}, "results/set"),
        ({"seed": 0, "quick": True}, "results/set/quick"),
        ({"set": {"dim": 3}, "out": "mine"}, "mine"),
    ],
)
def test_other_runs_do_not_overwrite_the_full_run(options, folder):
    assert ReproduceOptions(**options).folder.path == Path(folder)


# --- files of one's own ----------------------------------------------------------------------------------------------


def test_a_file_with_cells_alone_leaves_a_table_and_a_figure(capsys):
    new("my_grid", GRID)
    assert run(*GRID_RUN) == 0
    out = capsys.readouterr().out
    assert "my-grid.png: Subspace distance against round: median and 10-90 % over trials; black lines: predicted" in out
    wanted = lf.sweep(cells_of(load_file(Path("my_grid.py")), quick=True)["runs"])
    assert np.array_equal(lf.Table.load(QUICK / "my-grid-runs.npz")["subspace_distance"], wanted["subspace_distance"])
    record = ResultsFolder(QUICK).read("my-grid")
    assert (record.cells, record.file, record.is_judged) == (4, str(Path("my_grid.py").resolve()), True)
    (QUICK / "my-grid.png").unlink()
    assert run("replot", "all", "--quick") == 0
    assert (QUICK / "my-grid.png").exists()
    assert run("report", QUICK) == 0
    assert "Subspace distance against round" in (QUICK / "report.html").read_text()


def test_another_file_of_the_same_name_keeps_its_results(capsys):
    for place in ("a", "b"):
        write(f"{place}/same_name.py", GRID)
    assert run("reproduce", "a/same_name.py", "--quick", "--workers", 1) == 0
    del sys.modules["same_name"]
    sys.path.remove(str(Path("a").resolve()))
    assert run("reproduce", "b/same_name.py", "--quick", "--workers", 1) == 2
    assert "has the results of 'a/same_name.py'" in capsys.readouterr().err
    assert "have the same name" in refused(capsys, "reproduce", "a/same_name.py", "b/same_name.py", "--quick")
    Path("a/same_name.py").unlink()
    assert run("reproduce", "b/same_name.py", "--quick", "--workers", 1) == 0


# --- changed fields --------------------------------------------------------------------------------------------------


def test_changed_fields_are_in_the_record_and_in_a_folder_of_their_own(capsys):
    new("my_grid", GRID)
    assert run(*GRID_RUN, "--set", "problem.n_clients=20", "--set", "data.n_samples=9", "--trials", 2) == 0
    where = Path("results/set/quick")
    changes = {"trials": 2, "problem.n_clients": 20, "data.n_samples": 9}
    assert json.loads((where / "my-grid.json").read_text())["set"] == changes
    table = lf.Table.load(where / "my-grid-runs.npz")
    assert (table["problem.n_clients"].tolist(), len(table)) == ([20, 20], 2)
    before = (where / "my-grid.txt").read_text()
    assert "n = 20, m = 9, noise std 0, 2 rounds, 2 trials" in before
    assert run("replot", "my_grid.py", "--out", where) == 0
    assert (where / "my-grid.txt").read_text() == before
    assert run("report", where) == 0
    assert "n_clients = 20" in (where / "report.html").read_text()


def test_claims_and_figures_that_fail_with_changed_fields_are_remarks(capsys):
    """They may need all of an axis. The figures of the earlier run with other fields are removed."""
    new("my_grid", GRID)
    assert run(*GRID_RUN, "--trials", 2) == 0
    where = Path("results/set/quick")
    assert (where / "my-grid.png").exists()
    fails = "    raise ValueError('too few trials')\n"
    new("my_grid", f"{GRID}\ndef plot(tables):\n{fails}\ndef claims(tables):\n{fails}")
    assert run(*GRID_RUN, "--trials", 1) == 0
    assert not [*where.glob("my-grid.p*"), *where.glob("my-grid.txt")]
    capsys.readouterr()
    assert run("show", "my-grid", "--out", where) == 0
    shown = capsys.readouterr().out
    assert run("report", where) == 0
    for what in ("its claims cannot be judged", "its figures cannot be drawn"):
        remark = f"{what} with these settings (ValueError: too few trials)"
        assert f"my-grid: {remark}\n" in shown
        assert f"<p>{remark}</p>" in (where / "report.html").read_text()


# --- drawn and judged again ------------------------------------------------------------------------------------------


def files_of(folder):
    return {path: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def test_a_saved_run_is_judged_and_drawn_by_the_code_of_today(toy, capsys):
    """Nothing is computed; what was measured stays, to the last byte."""
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1, "--out", "out") == 0
    before = files_of("out")
    again = ("replot", "all", "--experiments", toy, "--out", "out")
    assert run(*again) == 0
    assert files_of("out") == before
    Path("out/toy-one.png").unlink()
    module = sys.modules[f"{toy.name}.toy_one"]
    judged, module.claims = module.claims, lambda tables: judged(tables) * 2
    capsys.readouterr()
    assert run(*again) == 0
    assert Path("out/toy-one.png").read_bytes() == before[Path("out/toy-one.png")]
    assert len(ResultsFolder(Path("out")).read("toy-one").claims) == 2
    assert "toy-one: 2 claims: 2 SUPPORTED" in capsys.readouterr().out
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2"]


def test_claims_that_raise_lose_no_results(capsys):
    """The error, the saved run and the report name the command that judges the claims after a correction."""
    new("own", f"{TOY}\ndef claims(tables):\n    return [tables.missing]\n")
    with pytest.raises(AttributeError) as caught:
        run("reproduce", "own.py", "--quick", "--workers", 1, "--out", "here")
    command = "linfed replot own.py --out here"
    assert caught.value.__notes__[0].endswith(f"run {command}")
    assert run("show", "own", "--out", "here") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "own: The claims were not judged" in shown
    assert command in shown
    assert run("report", "here") == 0
    assert f"run {command}<" in Path("here/report.html").read_text()
    new("own", TOY)
    assert run("replot", "own.py", "--out", "here") == 0
    assert "NOT SUPPORTED: values are large" in capsys.readouterr().out
    assert sorted(Path("ran.txt").read_text().split()) == ["0", "1", "2"]


def test_cells_that_changed_since_are_a_remark(capsys):
    new("my_grid", GRID)
    assert run(*GRID_RUN) == 0
    for text, changed in ((f"{GRID}\nSUMMARY = 'another text'\n", False), (GRID.replace("0.5", "0.6"), True)):
        new("my_grid", text)
        capsys.readouterr()
        assert run("replot", "my_grid.py", "--quick") == 0
        remark = "my-grid: its cells have changed since the run was saved; run linfed reproduce my_grid.py --quick"
        assert (remark in capsys.readouterr().out) == changed


def test_a_missing_table_is_named(toy, capsys):
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1) == 0
    again = ("replot", "toy-one", "--experiments", toy)
    record = Path("results/toy-one.json")
    text = record.read_text()
    record.write_text(json.dumps(json.loads(text) | {"tables": {}}))
    said = "linfed: the saved run of toy-one has no table 'values': run linfed reproduce toy-one\n"
    assert refused(capsys, *again) == said
    record.write_text(text)
    Path("results/toy-one-values.npz").unlink()
    assert "'results' must have the tables of toy-one (" in refused(capsys, *again)


def test_the_command_for_a_missing_table_names_the_folder_and_the_options(toy, capsys):
    call = ("--experiments", toy, "--out", "a b")
    assert run("reproduce", "toy-one", *call, "--workers", 1, "--quick") == 0
    Path("a b/toy-one-values.npz").unlink()
    assert refused(capsys, "replot", "toy-one", *call).endswith("run linfed reproduce toy-one --quick --out 'a b'\n")


def test_figures_that_are_not_drawn_any_more_are_removed(toy):
    assert run("reproduce", "toy-one", "--experiments", toy, "--workers", 1) == 0
    Path("results/toy-one-again.webp").touch()
    module = sys.modules[f"{toy.name}.toy_one"]
    drawn = module.plot
    module.plot = lambda tables: {"": drawn(tables)[""]}
    assert run("replot", "toy-one", "--experiments", toy) == 0
    assert {*ResultsFolder().read("toy-one").figures} == {""}
    assert [path.name for path in Path("results").glob("toy-one*.*") if path.stem == "toy-one-again"] == []
    assert Path("results/toy-one.png").exists()
