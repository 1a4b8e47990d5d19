"""What is left of a sweep: long cells first, costs that are no seconds, several workers; and what is shown of it."""

import heapq
import re
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.sweeps.executors import ExecutionOptions
from linfed.sweeps.progress import ProgressBar, WorkEstimate, cost_of, format_duration, is_shown, log_status, weight_of
from linfed.sweeps.scheduler import run_cells


@dataclass(frozen=True)
class Costly:
    cost: float

    def run(self):
        return {"value": self.cost}


@dataclass(frozen=True)
class Sized:
    trials: int = 2
    rounds: int = 3
    name: str = "x"

    def run(self):
        return {"value": self.trials}


class Other(Costly):
    pass


def replay(cells, seconds, workers):
    """Return (true seconds left, those that were said, those by the number of cells) at the end of each cell but one.

    Long cells are started first, and told as they end.
    """
    order = sorted(range(len(cells)), key=lambda i: -cost_of(cells[i]))
    free, ends = [0.0] * workers, []
    for i in order:
        end = heapq.heappop(free) + seconds[i]
        heapq.heappush(free, end)
        ends.append((end, i))
    work, found = WorkEstimate(dict(enumerate(cells)), workers), []
    for count, (end, i) in enumerate(sorted(ends)[:-1], start=1):
        work.finished(i, seconds[i])
        found.append((max(free) - end, work.left(end), end * (len(cells) - count) / count))
    return np.array(found)


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("exponent", [0.3, 0.5, 1.0])
def test_what_is_left_is_right_where_seconds_are_a_power_of_the_cost(workers, exponent):
    costs = np.repeat([1000.0, 300.0, 100.0, 30.0, 10.0], 12)
    seconds = 5 * (costs / 1000.0) ** exponent
    found = replay([Costly(cost) for cost in costs], seconds, workers)
    true, said, counted = found[len(found) // 4 : -workers].T
    assert np.median(np.abs(np.log(said / true))) < np.log(1.25)
    assert np.median(np.abs(np.log(said / true))) < np.median(np.abs(np.log(counted / true)))


def test_costs_that_say_little_are_believed_little():
    """Seconds with a spread of a factor of two about the square root of the cost."""
    rng = np.random.default_rng(0)
    costs = 10.0 ** rng.uniform(0, 4, 60)
    seconds = costs**0.5 * np.exp(0.7 * rng.standard_normal(60))
    true, said, counted = replay([Costly(cost) for cost in costs], seconds, 2)[10:50].T
    assert np.median(np.abs(np.log(said / true))) < np.log(1.6) < np.median(np.abs(np.log(counted / true)))


def test_nothing_is_said_before_anything_has_ended_but_what_an_earlier_run_knows():
    cells = {0: Costly(4.0), 1: Costly(4.0)}
    assert WorkEstimate(cells, 1).left(3.0) is None
    work = WorkEstimate(cells, 2)
    work.add_timing(Costly(4.0), 10.0)
    assert work.left(0.0) == pytest.approx(10.0)
    assert work.left(4.0) == pytest.approx(6.0)  # both are running
    work.failed(0)
    work.finished(1, 10.0)
    assert work.left(10.0) == 0.0


def test_a_class_of_which_nothing_has_ended_takes_the_mean_of_all_that_have():
    work = WorkEstimate({0: Costly(1.0), 1: Costly(1.0), 2: Other(1e9)}, 1)
    work.finished(0, 3.0)
    assert work.left(3.0) == pytest.approx(6.0)


def test_where_nobody_knows_the_workers_the_work_done_tells():
    work = WorkEstimate({i: Costly(1.0) for i in range(40)}, None)
    for i in range(20):
        work.finished(i, 10.0)
    assert work.left(20.0) == pytest.approx(20.0)


def test_weights_of_cells():
    assert weight_of(Costly(3.0)) == 3.0
    assert [weight_of(Costly(cost)) for cost in (0.0, -1.0, np.inf, np.nan)] == [1.0] * 4
    assert weight_of(Sized()) == 6.0
    data, problem = lf.FreshSamples(6), lf.SharedRepresentation(n_clients=20, dim=8, rank=2)
    runs = [
        lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.5), problem=problem, data=data, rounds=10, trials=trials)
        for trials in (5, 10)
    ]
    assert weight_of(runs[1]) == pytest.approx(2 * weight_of(runs[0]))
    assert 0 < weight_of(runs[0]) == runs[0].seconds()


@pytest.mark.parametrize("progress", [True, False, None])
def test_the_bar_of_a_sweep(progress, capsys):
    run_cells([Costly(float(i + 1)) for i in range(4)], options=ExecutionOptions(progress=progress), label="four")
    shown = capsys.readouterr().err
    if progress:
        assert shown.split("\r")[-1].startswith("four: 100%|")
        assert "4 of 4 cells" in shown
    else:
        assert shown == ""


def test_the_bar_says_how_long_it_still_takes(capsys):
    cells = {i: Costly(1.0) for i in range(10)}
    known = [(Costly(1.0), 600.0)]
    bar = ProgressBar("ten", cells, known, done=1, total=11, workers=2, progress=True)
    bar.close()
    assert "1 of 11 cells, about 50 min left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "1 s"), (7.4, "7 s"), (44.6, "45 s"), (88.0, "90 s"), (241.5, "4 min"), (5300, "88 min"), (9000, "2.5 h")],
)
def test_times_are_said_as_one_says_them(seconds, said):
    assert format_duration(seconds) == f"about {said}"


def test_what_is_done_now_is_said_on_a_terminal_only(capsys, monkeypatch):
    log_status("toy", "judging")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert is_shown(None)
    assert not is_shown(False)
    log_status("toy", "judging")
    assert capsys.readouterr().err == "toy: judging\n"


@pytest.mark.long
def test_the_bar_moves_while_the_first_cell_runs(capsys):
    bar = ProgressBar("one", {0: Costly(1.0)}, [], done=0, total=1, workers=1, progress=True)
    time.sleep(2.0)
    moved = capsys.readouterr().err.split("\r")[-1]
    bar.close()
    assert re.search(r"\b00:0[1-9]\b", moved)
    assert "0 of 1 cell" in moved
    shown = capsys.readouterr().err
    time.sleep(1.2)
    assert capsys.readouterr().err == ""
    assert shown
