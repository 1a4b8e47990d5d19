"""Publishing a full run: what is refused, and that reduced tables are the run's to the digits that are kept."""

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pytest

import linfed as lf
from linfed.reproduction.record import ResultsFolder, RunRecord, TableRecord
from linfed.reproduction.run import save_tables
from linfed.statistics.findings import judge

PATH = Path(__file__).parent.parent / "docs" / "publish.py"


@pytest.fixture(scope="module")
def publish():
    spec = importlib.util.spec_from_file_location("publish", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e200])
def test_numbers_are_rounded_to_the_digits_that_are_kept(publish, scale):
    values = scale * np.random.default_rng(0).standard_normal((50, 40))
    found = publish.rounded(values)
    assert np.allclose(found, values, rtol=0.5**publish.BITS / 2, atol=0)
    assert np.array_equal(publish.rounded(found), found)


def test_what_is_no_number_stays(publish):
    special = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0, 600.0])
    assert np.array_equal(publish.rounded(special), special, equal_nan=True)
    for other in (np.arange(5), np.array([True]), np.array(["word"])):
        assert publish.rounded(other) is other


@pytest.mark.parametrize("count", [1, 101, 350, 351, 606, 12_000])
def test_rounds_keep_the_early_ones_and_both_ends(publish, count):
    kept = publish.kept_rounds(count)
    assert len(kept) == min(count, publish.ROUNDS)
    assert (np.diff(kept) > 0).all()
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert np.array_equal(kept[: publish.EARLY], np.arange(count)[: publish.EARLY])


def record(**changes):
    claim = judge(
        (1.0, 0.9, 1.1), claimed_low=0.5, claim="it is so", setting="n = 1", statistic="share", source="a paper"
    )
    known = {"experiment": "fedrep-fig1", "quick": False, "claims": (claim,), "commit": "a" * 40}
    return RunRecord(**(known | {"versions": {"numpy": "2"}, "machine": "a machine"} | changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"quick": True}, "one: a quick run"),
        ({"claims": ()}, "one: no claims, so the run is not finished"),
        ({"commit": None}, "one: the commit is unknown"),
        ({"commit": "b and changes"}, "one: run at b and changes"),
        ({"commit": "b" * 40}, f"runs of different commits: {'a' * 40}, {'b' * 40}"),
    ],
)
def test_other_than_one_whole_run_is_refused(publish, changes, told):
    assert publish.refusals({"one": record(), "other": record()}, {}) == []
    assert told in publish.refusals({"one": record(**changes), "other": record()}, {})


def test_a_missing_experiment_is_refused(publish, tmp_path, capsys):
    assert publish.main([str(tmp_path), "--to", str(tmp_path / "to")]) == 1
    assert f"fedrep-fig3: no run in '{tmp_path}'" in capsys.readouterr().err.splitlines()
    assert not (tmp_path / "to").exists()


def test_what_is_published(publish, tmp_path):
    """Tables reduced and marked so, the record as it was, small CSV files, and nothing of an earlier run."""
    out, to = ResultsFolder(tmp_path / "out"), tmp_path / "to"
    out.create()
    to.mkdir()
    for stale in ("old.json", "old-table.npz", "benchmarks.json"):
        (to / stale).write_text("{}")
    distance = np.geomspace(1, 1e-9, 601) * np.ones((4, 1))
    row = {"n_samples": 5, "error": np.arange(4) / 3, "curve": lf.LabeledArray(distance, round=range(0, 1202, 2))}
    save_tables("fedrep-fig1", {"clients": lf.Table([row])}, out)
    out.write(record(tables={"clients": TableRecord(rows=1)}))
    publish.publish(out, ["fedrep-fig1"], ResultsFolder(to))
    names = {"README.md", "benchmarks.json", "fedrep-fig1.json", "fedrep-fig1-clients.csv", "fedrep-fig1-clients.npz"}
    assert {path.name for path in to.iterdir()} == names
    assert (to / "fedrep-fig1.json").read_text() == out.record("fedrep-fig1").read_text()
    found = lf.Table.load(to / "fedrep-fig1-clients.npz")
    assert found.columns == ("n_samples", "error")  # its curve is in no picture
    assert np.allclose(found["error"], row["error"], rtol=1e-4)
    with zipfile.ZipFile(to / "fedrep-fig1-clients.npz") as archive:
        assert {part.compress_type for part in archive.infolist()} == {zipfile.ZIP_LZMA}
    _, told = publish.files.read(to / "fedrep-fig1-clients.npz")
    assert told["reduced"].endswith("without curve")
    about = (to / "README.md").read_text()
    assert f"| fedrep-fig1 | {'a' * 40} | a machine | numpy 2 |" in about
    assert "reduced" in about


def test_more_experiments_are_added_to_those_that_are_published(publish, tmp_path):
    """The others stay, with their commit; of those that come again nothing old is left."""
    to = tmp_path / "to"

    def run(commit, names, key):
        out = ResultsFolder(tmp_path / commit)
        out.create()
        for name in names:
            save_tables(name, {key: lf.Table([{"n_samples": 5}])}, out)
            out.write(record(tables={key: TableRecord(rows=1)}, commit=commit, experiment=name))
        return out

    first, second = run("one", ["fedrep-fig1", "fedrep-fig3"], "old"), run("two", ["fedrep-fig3"], "new")
    publish.publish(first, ["fedrep-fig1", "fedrep-fig3"], ResultsFolder(to))
    publish.publish(second, ["fedrep-fig3"], ResultsFolder(to), add=True)
    assert {path.name for path in to.glob("*.npz")} == {"fedrep-fig1-old.npz", "fedrep-fig3-new.npz"}
    about = (to / "README.md").read_text()
    assert "| fedrep-fig1 | one |" in about
    assert "| fedrep-fig3 | two |" in about
    runs = {name: record(commit=name * 40) for name in "ab"}
    assert publish.refusals(runs, {"c": "no run"}, add=True) == []
