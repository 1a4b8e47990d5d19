"""Publishing a full run: what is refused, and that reduced tables are the run's to the digits that are kept."""

import gzip
import importlib
import json
import zipfile
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import linfed as lf
from linfed.numerics.quantiles import quantiles
from linfed.reproduction.record import ResultsFolder, RunRecord, TableRecord
from linfed.reproduction.run import save_tables
from tests.helpers import finding

publish = importlib.import_module("docs.tools.publish")


def record(name="one", **changes):
    known = {"commit": "a" * 40, "versions": {"numpy": "2"}, "machine": "a machine", "claims": (finding(),)}
    return RunRecord(**{"experiment": name, "quick": False} | known | changes)


# --- reduced tables --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e200])
def test_numbers_are_rounded_to_the_digits_that_are_kept(scale):
    values = scale * np.random.default_rng(0).standard_normal((50, 40))
    found = publish.rounded(values)
    assert np.allclose(found, values, rtol=0.5**publish.BITS / 2, atol=0)
    assert np.array_equal(publish.rounded(found), found)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, 600.0])
    assert np.array_equal(publish.rounded(special), special, equal_nan=True)
    for other in (np.arange(5), np.array([True]), np.array(["word"])):
        assert publish.rounded(other) is other


@pytest.mark.parametrize("count", [1, 101, 350, 351, 606, 12_000])
def test_rounds_keep_the_early_ones_and_both_ends(count):
    kept = publish.kept_rounds(count)
    assert len(kept) == min(count, publish.ROUNDS)
    assert (np.diff(kept) > 0).all()
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert np.array_equal(kept[: publish.EARLY], np.arange(count)[: publish.EARLY])


def test_columns_are_left_out_by_pattern_or_by_row_and_trials_become_deciles():
    trials = np.arange(101.0)
    curves = lf.LabeledArray(np.tile(trials[:, None], 50), round=range(50))
    row = {"method": "a", "tried_x": 1, "tried_y.z": 2, "error": trials, "curve": curves}
    found = publish.Reduction(without=("tried_*",), deciles=("error", "curve"), first_rounds=20).row(row)
    assert list(found) == ["method", "error", "curve"]
    assert found["error"].tolist() == np.linspace(0, 100, 11).tolist()
    assert found["curve"].values.shape == (11, 20)
    axis = publish.Reduction(deciles=("curve",), quantile_axis=True).row(row)["curve"]
    assert axis.names == ("quantile", "round")
    by_row = publish.Reduction(without=lambda row: ("error",) if row["method"] == "a" else ("curve",))
    left_out = [row.keys() - by_row.row(row | {"method": one}).keys() for one in "ab"]
    assert left_out == [{"error"}, {"curve"}]


def test_deciles_count_a_diverged_trial_as_infinite():
    """As the quantiles of figures do; a quantity that no trial has stays NaN."""
    known, diverged, missing = np.arange(10.0), np.r_[np.arange(9.0), np.nan], np.full(10, np.nan)
    found = publish.smaller(np.stack([known, diverged, missing], axis=1), deciles=True)
    assert np.allclose(found[:, 0], np.quantile(known, np.linspace(0, 1, 11)), rtol=1e-4)
    assert found[[5, 1, 9], 1].tolist() == list(quantiles(diverged))
    assert np.isinf(found[:, 1]).tolist() == [False] * 10 + [True]
    assert np.isnan(found[:, 2]).all()
    curve = lf.LabeledArray(np.stack([known, diverged], axis=1), round=[0, 1])
    assert np.array_equal(publish.smaller(curve, deciles=True).values, found[:, :2])


@pytest.mark.long
def test_every_column_that_a_committed_table_lacks_is_declared():
    """And every declared reduction is of a table of its experiment."""
    runs, declared = ResultsFolder(publish.COMMITTED), 0
    for name, run in runs.records().items():
        for key, reduction in publish.reductions(name, run.tables).items():
            declared += reduction != publish.Reduction()
            with np.load(runs.table(name, key)) as arrays:
                description = json.loads(str(arrays["description"]))
            left_out = set(description["reduced"].partition("without ")[2].split(", ")) - {"none"}
            rows = [{column: value.get("value") for column, value in row.items()} for row in description["table"]]
            found = {column for row in rows for column in reduction.left_out(row | dict.fromkeys(left_out))}
            assert found == left_out
    assert declared > 20


@pytest.mark.parametrize(
    ("reduced", "told"),
    [({"runs": {}}, "fedrep-fig1: REDUCED has unknown tables: runs"), ({"clients": {"wihout": ()}}, "'wihout'")],
)
def test_a_wrong_reduction_is_told(monkeypatch, reduced, told):
    monkeypatch.setattr(publish.load("fedrep-fig1", publish.TOP / "experiments"), "REDUCED", reduced)
    with pytest.raises((TypeError, ValueError), match=told):
        publish.reductions("fedrep-fig1", ["clients"])


# --- the folder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"quick": True}, "one: a quick run"),
        ({"claims": ()}, "one: no claims, so the run is not finished"),
        ({"commit": None}, "one: the commit is unknown"),
        ({"commit": "b and changes"}, "one: run at b and changes: commit them and run again, or publish with --anyway"),
        ({"commit": "b" * 40}, f"runs of different commits: {'a' * 40}, {'b' * 40}"),
    ],
)
def test_other_than_one_whole_run_is_refused(changes, told):
    assert publish.refusals({"one": record(), "other": record()}, {}) == []
    assert told in publish.refusals({"one": record(**changes), "other": record()}, {})


def test_a_missing_experiment_is_refused(tmp_path, capsys):
    assert publish.main([str(tmp_path), "--to", str(tmp_path / "to")]) == 1
    assert f"fedrep-fig3: no run in '{tmp_path}'" in capsys.readouterr().err.splitlines()
    assert not (tmp_path / "to").exists()
    runs = {"a": record(commit="a" * 40), "b": record(commit="b" * 40)}
    assert publish.refusals(runs, {"c": "no run"}, add=True) == []


def test_the_folder_of_a_run_is_not_its_own_target(tmp_path, capsys):
    """Its complete tables would be lost."""
    with pytest.raises(SystemExit):
        publish.main([str(tmp_path / "x" / ".."), "--to", str(tmp_path), "--anyway"])
    assert "x/..' must be another folder than the target" in capsys.readouterr().err


def test_a_table_is_published_reduced_and_says_so(tmp_path):
    out, to = ResultsFolder(tmp_path / "out"), tmp_path / "to"
    out.create()
    to.mkdir()
    for other in ("old-table.npz", "old.webp", "benchmarks.json", "notes.txt"):
        (to / other).write_text("{}")
    ResultsFolder(to).write(record("old"))
    name, distance = "fedrep-near-truth", np.geomspace(1, 1e-9, 601) * np.ones((4, 1))
    row = {"n_samples": 5, "error": np.arange(4) / 3, "shortfall": lf.LabeledArray(distance, round=range(0, 1202, 2))}
    save_tables(name, {"near": lf.Table([row])}, out)
    out.write(record(name, tables={"near": TableRecord(rows=1)}))
    publish.publish(out, [name], ResultsFolder(to))
    files = {f"{name}.json", f"{name}-near.csv", f"{name}-near.npz"}
    assert {path.name for path in to.iterdir()} == {"README.md", "benchmarks.json", "notes.txt", *files}
    assert (to / f"{name}.json").read_text() == out.record(name).read_text()
    found = lf.Table.load(to / f"{name}-near.npz")
    assert found.columns == ("n_samples", "error")  # its shortfalls are in no picture
    assert np.allclose(found["error"], row["error"], rtol=1e-4)
    with zipfile.ZipFile(to / f"{name}-near.npz") as archive:
        assert {part.compress_type for part in archive.infolist()} == {zipfile.ZIP_LZMA}
    _, told = publish.files.read(to / f"{name}-near.npz")
    assert told["reduced"].endswith("without shortfall")
    assert f"| {name} | {'a' * 40} | a machine | numpy 2 |" in (to / "README.md").read_text()


def test_more_experiments_are_added_to_those_that_are_published(tmp_path):
    """The others stay, with their commit; of those that come again nothing old is left."""
    to = tmp_path / "to"
    for commit, names, key in (("one", ["fedrep-fig4", "fedrep-fig3"], "old"), ("two", ["fedrep-fig3"], "new")):
        out = ResultsFolder(tmp_path / commit)
        out.create()
        for name in names:
            save_tables(name, {key: lf.Table([{"n_samples": 5}])}, out)
            out.write(record(name, tables={key: TableRecord(rows=1)}, commit=commit))
        publish.publish(out, names, ResultsFolder(to), add=commit == "two")
    assert {path.name for path in to.glob("*.npz")} == {"fedrep-fig4-old.npz", "fedrep-fig3-new.npz"}
    about = (to / "README.md").read_text()
    assert "| fedrep-fig4 | one |" in about
    assert "| fedrep-fig3 | two |" in about


@dataclass(frozen=True)
class Cell:
    size: int

    def run(self):
        return {}


def test_the_file_of_the_package_has_the_settings_of_the_cells(tmp_path, monkeypatch):
    module = SimpleNamespace(__file__="one.py", cells=lambda quick: [Cell(1), Cell(2)])
    monkeypatch.setattr(publish, "load", lambda name, folder: module)
    folder = ResultsFolder(tmp_path)
    save_tables("one", {"runs": lf.Table([{"size": 1}, {"size": 2}])}, folder)
    folder.write(RunRecord(experiment="one", quick=False, tables={"runs": TableRecord(rows=2)}))
    path = publish.write_committed(folder, tmp_path / "committed.json.gz")
    content = json.loads(gzip.decompress(path.read_bytes()))
    assert content["one"]["settings"] == {"runs": {"size": ["1", "2"], "rows": ["2"]}}


def test_what_is_committed_is_drawn(tmp_path, monkeypatch):
    """Publishing removes the earlier pictures of an experiment."""
    name, out, drawn = "fedrep-near-truth", ResultsFolder(tmp_path / "out"), []
    out.create()
    save_tables(name, {"near": lf.Table([{"n_samples": 5}])}, out)
    out.write(record(name, tables={"near": TableRecord(rows=1)}))
    monkeypatch.setattr(publish, "COMMITTED", tmp_path / "committed")
    monkeypatch.setattr(publish, "write_committed", lambda folder: folder.path)
    monkeypatch.setattr(publish.pictures, "draw", drawn.append)
    for to, expected in (("elsewhere", []), ("committed", [[name]])):
        assert publish.main([str(out.path), "--add", "--to", str(tmp_path / to)]) == 0
        assert drawn == expected
