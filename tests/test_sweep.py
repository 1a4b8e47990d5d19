"""Cells: files of their own, taken up again, on any executor."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

import linfed
from linfed.study.store import run_cells


@dataclass(frozen=True)
class Cell:
    number: int
    fails: bool = False


RAN = []


def square(cell):
    RAN.append(cell.number)
    if cell.fails:
        raise RuntimeError("unlucky")
    return {"value": np.array(cell.number**2)}


@pytest.fixture(autouse=True)
def fresh():
    RAN.clear()


def test_progress_is_a_truth_value_or_none(tmp_path):
    with pytest.raises(ValueError, match=r"progress = 'yes' must be True, False, or None"):
        run_cells(square, [Cell(3)], folder=tmp_path, progress="yes")
    assert RAN == []


@pytest.mark.parametrize("threads", [0, 2])
def test_results_come_in_the_order_of_the_cells(tmp_path, threads):
    cells = [Cell(3), Cell(1), Cell(2)]
    if threads:
        with ThreadPoolExecutor(threads) as executor:
            found = run_cells(square, cells, folder=tmp_path / "cells", executor=executor)
    else:
        found = run_cells(square, cells, folder=tmp_path / "cells")
    assert [int(result["value"]) for result in found.results] == [9, 1, 4]
    assert found.reused == 0
    assert sorted(RAN) == [1, 2, 3]
    again = run_cells(square, [Cell(2), Cell(4)], folder=tmp_path / "cells")
    assert ([int(result["value"]) for result in again.results], again.reused) == ([4, 16], 1)
    assert sorted(RAN) == [1, 2, 3, 4]


def test_a_file_is_of_no_use_once_linfed_has_changed(tmp_path, monkeypatch):
    package = tmp_path / "linfed"
    (package / "data").mkdir(parents=True)
    for name in ("__init__.py", "data/batch.py"):
        (package / name).write_text("")
    monkeypatch.setattr(linfed, "__file__", str(package / "__init__.py"))

    def reused():
        return run_cells(square, [Cell(1)], folder=tmp_path / "cells").reused

    assert (reused(), reused()) == (0, 1)
    for name in ("__init__.py", "data/batch.py"):
        (package / name).write_text("# changed\n")
        assert (reused(), reused()) == (0, 1)
    (package / "data" / "new.py").write_text("# new\n")
    assert (reused(), reused()) == (0, 1)


def test_a_failing_cell_keeps_the_others(tmp_path):
    with ThreadPoolExecutor(1) as executor, pytest.raises(RuntimeError, match="unlucky"):
        run_cells(square, [Cell(1), Cell(2, fails=True), Cell(3)], folder=tmp_path, executor=executor)
    assert 1 in RAN
    RAN.clear()
    found = run_cells(square, [Cell(1)], folder=tmp_path)
    assert found.reused == 1
    assert not RAN
