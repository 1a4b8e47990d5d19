"""Long cells in parts: `run_parts` spreads them over an executor, saves them one by one, and fails with them."""

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.sweeps.scheduler import CellFailure
from tests.sweeps.some_cells import RAN, Square, computed, values


@pytest.fixture(params=["here", "in threads"])
def executor(request):
    with nullcontext() if request.param == "here" else ThreadPoolExecutor(2) as found:
        yield found


@dataclass(frozen=True)
class Sum:
    """Add the squares of 10, and then of 20 and 21; raise in a stage or with a part, or go on after the part."""

    raises: int = -1
    goes_on: bool = False

    divides = True

    def run(self):
        total = 0
        for stage in range(3):
            if self.raises == stage:
                raise RuntimeError("unlucky")
            squares = [Square(10 * stage + n, fails=self.raises == 10 * stage + n) for n in range(stage)]
            try:
                total += sum(row["value"] for row in lf.run_parts(squares))
            except RuntimeError:
                if not self.goes_on:
                    raise
        return {"total": total}


class KeepingSum(Sum):
    keeps_parts = True


def test_a_cell_has_its_row_from_its_parts(executor, tmp_path):
    assert lf.sweep([Sum()], store=tmp_path, executor=executor)["total"] == 100 + 400 + 441
    assert sorted(RAN) == [10, 20, 21]
    assert len(list(tmp_path.iterdir())) == 1  # the parts are removed
    assert computed([Sum()], tmp_path) == []
    assert Sum().run() == {"total": 941}


@pytest.mark.parametrize("raises", [0, 1, 10, 21])
def test_a_cell_fails_in_a_stage_or_with_a_part(raises, executor, tmp_path):
    with pytest.raises(lf.SweepError, match=r"1 of 2 cells raised.*unlucky \(.*\.py:\d+\), in") as caught:
        lf.sweep([Sum(raises), Square(3)], store=tmp_path, executor=executor)
    assert values(caught.value.table) == [9]


def test_parts_that_are_of_no_use_are_not_computed(tmp_path):
    with pytest.raises(lf.SweepError):
        lf.sweep([Sum(20), Square(3)], store=tmp_path)
    assert RAN == [10, 20, 3]  # and not 21


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_cell_may_handle_the_error_of_a_part(is_stored, executor, tmp_path):
    """Alone, and in every sweep."""
    cell, store = Sum(10, goes_on=True), tmp_path if is_stored else None
    assert cell.run() == {"total": 400 + 441}
    assert lf.sweep([cell], executor=executor, store=store)["total"] == 400 + 441


def test_parts_belong_to_their_cell_unless_they_are_kept(tmp_path):
    parts = [Square(10), Square(20), Square(21)]
    lf.sweep([Square(20)], store=tmp_path)
    lf.sweep([Sum(), Square(10)], store=tmp_path)
    assert sorted(RAN) == [10, 10, 20, 20, 21]  # 10 and 20 as parts and as cells
    assert lf.Store(tmp_path).missing(parts) == [Square(21)]
    with pytest.raises(lf.SweepError):
        lf.sweep([Sum(20)], store=tmp_path / "other")
    lf.sweep([Square(10)], store=tmp_path / "other")  # which has 10 as a part of an unfinished cell
    lf.sweep([Sum(20, goes_on=True)], store=tmp_path / "other")
    assert lf.Store(tmp_path / "other").missing(parts) == [Square(20), Square(21)]
    lf.sweep([KeepingSum()], store=tmp_path)
    assert computed(parts, tmp_path) == []


def test_a_cell_goes_on_from_its_parts_whatever_others_with_equal_parts_have_finished(tmp_path):
    for ran in ([10, 20], [20]):
        RAN.clear()
        with pytest.raises(lf.SweepError):
            lf.sweep([Sum(20)], store=tmp_path)
        assert ran == RAN
        lf.sweep([Sum()], store=tmp_path)  # which removes its own parts


BUFFER = np.zeros(3)


@dataclass(frozen=True)
class Reuses:
    """A part that returns a buffer, which the next part overwrites."""

    number: int

    def run(self):
        BUFFER[:] = self.number
        return {"each": BUFFER, "path": lf.LabeledArray(BUFFER[:, None], step=BUFFER[:1])}


@dataclass(frozen=True)
class Sums:
    parts: int
    divides = True

    def run(self):
        rows = lf.run_parts([Reuses(number) for number in range(self.parts)])
        return {name: np.array([getattr(row[name], "values", row[name]).sum() for row in rows]) for name in rows[0]}


def test_a_buffer_that_is_used_again_changes_no_part(executor, tmp_path):
    tables = [lf.sweep([Sums(3)], executor=executor), *(lf.sweep([Sums(3)], store=tmp_path) for _ in range(2))]
    for row in (Sums(3).run(), *(table.rows[0] for table in tables)):
        assert [row["each"].tolist(), row["path"].tolist()] == [[0.0, 3.0, 6.0]] * 2


# --- where run() and its parts run -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calls:
    """Call a function and one part."""

    function: object
    divides = True

    def run(self):
        return {"said": self.function(), "value": len(lf.run_parts([Square(1)]))}


def test_run_is_called_in_a_thread_that_ends_if_parts_are_spread():
    threads = []
    cell = Calls(lambda: threads.append(threading.current_thread()))
    lf.sweep([cell])
    with ThreadPoolExecutor(1) as executor:
        lf.sweep([cell], executor=executor)
    assert [one is threading.main_thread() for one in threads] == [True, False]
    threads[1].join(60.0)
    assert not threads[1].is_alive()


def test_run_has_the_context_of_the_sweep():
    said = contextvars.ContextVar("said", default="")
    said.set("outside")
    with ThreadPoolExecutor(1) as executor:
        assert lf.sweep([Calls(said.get)], executor=executor)["said"] == "outside"


@dataclass(frozen=True)
class Threaded:
    numbers: tuple[int, ...] = (2, 1, 5, 3, 4)
    divides = True

    def run(self):
        with ThreadPoolExecutor(5) as threads:
            call = contextvars.copy_context
            asked = [threads.submit(call().run, lf.run_parts, [Square(n)]) for n in self.numbers]
            return {"values": str([one.result()[0]["value"] for one in asked])}


def test_threads_of_a_cell_run_their_parts_themselves(executor, tmp_path):
    store = None if executor else tmp_path
    assert lf.sweep([Threaded()], executor=executor, store=store)["values"] == "[4, 1, 25, 9, 16]"


# --- parts that cannot be --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Huge:
    """A number that no file can hold."""

    def run(self):
        return {"value": 10**5000}


@dataclass(frozen=True)
class Twice:
    def run(self):
        return [{"value": 1}, {"value": 2}]


@dataclass(frozen=True)
class Needs:
    part: object
    divides = True

    def run(self):
        return {"value": len(lf.run_parts([Square(1), self.part]))}


def test_a_part_that_no_file_can_hold_fails_alone(tmp_path):
    with pytest.raises(lf.SweepError, match="1 of 2 cells raised") as caught:
        lf.sweep([Needs(Huge()), Square(3)], store=tmp_path)
    assert values(caught.value.table) == [9]


def test_a_part_has_one_row():
    with pytest.raises(TypeError, match="must return a mapping"):
        Needs(Twice()).run()
    with ThreadPoolExecutor(1) as executor, pytest.raises(lf.SweepError, match="a part of a cell must return one row"):
        lf.sweep([Needs(Twice())], executor=executor)


def test_the_message_of_a_failed_cell_is_one_line_of_limited_length():
    for error, said in (
        (ValueError("two\n  lines"), "ValueError: two lines"),
        (ValueError("x" * 500), f"ValueError: {'x' * 500}"),
        (ValueError("x" * 501), f"ValueError: {'x' * 497}..."),
        (KeyError(), "KeyError: KeyError()"),
    ):
        assert str(CellFailure(Square(1), error)) == f"{said}, in the cell {Square(1)!r}"
