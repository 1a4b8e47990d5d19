"""Cells: files of their own, taken up again, on any executor."""

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

import linfed
from linfed.study.store import run_cells


@dataclass(frozen=True)
class Square:
    number: int
    fails: bool = False

    def run(self):
        RAN.append(self.number)
        if self.fails:
            raise RuntimeError("unlucky")
        return {"value": self.number**2}


@dataclass(frozen=True)
class Costly(Square):
    @property
    def cost(self):
        return self.number


RAN = []


def values(found):
    return [table["value"] for table in found.tables]


@pytest.fixture(autouse=True)
def fresh():
    RAN.clear()


def test_progress_is_a_truth_value_or_none(tmp_path):
    with pytest.raises(ValueError, match=r"progress = 'yes' must be True, False, or None"):
        run_cells([Square(3)], folder=tmp_path, progress="yes")
    assert RAN == []


@pytest.mark.parametrize("threads", [0, 2])
def test_results_come_in_the_order_of_the_cells(tmp_path, threads):
    cells = [Square(3), Square(1), Square(2)]
    if threads:
        with ThreadPoolExecutor(threads) as executor:
            found = run_cells(cells, folder=tmp_path / "cells", executor=executor)
    else:
        found = run_cells(cells, folder=tmp_path / "cells")
    assert values(found) == [9, 1, 4]
    assert found.reused == 0
    assert sorted(RAN) == [1, 2, 3]
    again = run_cells([Square(2), Square(4)], folder=tmp_path / "cells")
    assert (values(again), again.reused) == ([4, 16], 1)
    assert sorted(RAN) == [1, 2, 3, 4]


def test_a_file_is_of_no_use_once_linfed_has_changed(tmp_path, monkeypatch):
    package = tmp_path / "linfed"
    (package / "data").mkdir(parents=True)
    for name in ("__init__.py", "data/batch.py"):
        (package / name).write_text("")
    monkeypatch.setattr(linfed, "__file__", str(package / "__init__.py"))

    def reused():
        return run_cells([Square(1)], folder=tmp_path / "cells").reused

    assert (reused(), reused()) == (0, 1)
    for name in ("__init__.py", "data/batch.py"):
        (package / name).write_text("# changed\n")
        assert (reused(), reused()) == (0, 1)
    (package / "data" / "new.py").write_text("# new\n")
    assert (reused(), reused()) == (0, 1)


def test_a_failing_cell_keeps_the_others(tmp_path):
    with ThreadPoolExecutor(1) as executor, pytest.raises(RuntimeError, match="unlucky"):
        run_cells([Square(1), Square(2, fails=True), Square(3)], folder=tmp_path, executor=executor)
    assert 1 in RAN
    RAN.clear()
    found = run_cells([Square(1)], folder=tmp_path)
    assert found.reused == 1
    assert not RAN


def test_the_longest_cells_start_first(tmp_path):
    assert values(run_cells([Costly(2), Costly(5), Costly(3)], folder=tmp_path)) == [4, 25, 9]
    assert RAN == [5, 3, 2]


def test_without_a_folder_nothing_is_kept():
    for _ in range(2):
        assert values(run_cells([Square(3), Square(3)])) == [9, 9]
    assert RAN == [3] * 4


def test_a_cell_of_a_class_without_a_file_needs_no_store(tmp_path):
    namespace = {"__name__": "nowhere"}
    exec("class Own:\n    def run(self):\n        return {'value': 1}", namespace)
    own = dataclass(frozen=True)(namespace["Own"])()
    assert values(run_cells([own])) == [1]
    with pytest.raises(ValueError, match=r"store= needs the code of .*Own.*, which has no file"):
        run_cells([own], folder=tmp_path)


@dataclass(frozen=True)
class Of:
    part: object

    def run(self):
        RAN.append(self.part)
        return {"value": 1}


def test_the_code_of_what_a_cell_is_made_of_counts(tmp_path, monkeypatch):
    """An algorithm of one's own in a module of its own: its change is a change of the cell."""
    module = tmp_path / "own_algorithm.py"
    module.write_text("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Own:\n    step: float = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import own_algorithm

    cells = [Of((own_algorithm.Own(),))]
    assert [run_cells(cells, folder=tmp_path / "cells").reused for _ in range(2)] == [0, 1]
    module.write_text(module.read_text() + "# changed\n")
    assert [run_cells(cells, folder=tmp_path / "cells").reused for _ in range(2)] == [0, 1]


def test_what_a_module_imports_beside_it_counts(tmp_path, monkeypatch):
    """A helper, a base class in another module, and a function inside a partial."""
    (tmp_path / "beside_it.py").write_text("K = 1\nclass Base:\n    def run(self):\n        return {'value': K}\n")
    (tmp_path / "of_cells.py").write_text(
        "from dataclasses import dataclass\nimport beside_it\n"
        "@dataclass(frozen=True)\nclass Inherits(beside_it.Base):\n    n: object = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import of_cells

    cells = [of_cells.Inherits()]
    assert [run_cells(cells, folder=tmp_path / "cells").reused for _ in range(2)] == [0, 1]
    (tmp_path / "beside_it.py").write_text((tmp_path / "beside_it.py").read_text() + "# changed\n")
    assert [run_cells(cells, folder=tmp_path / "cells").reused for _ in range(2)] == [0, 1]
    cells = [Of(functools.partial(of_cells.beside_it.Base.run, 1))]
    assert [run_cells(cells, folder=tmp_path / "cells").reused for _ in range(2)] == [0, 1]
    (tmp_path / "beside_it.py").write_text((tmp_path / "beside_it.py").read_text() + "# again\n")
    assert [run_cells(cells, folder=tmp_path / "cells").reused for _ in range(2)] == [0, 1]
