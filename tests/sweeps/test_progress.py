"""What is shown of a sweep: a bar over the costs of its cells, and messages."""

import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.sweeps.executors import ExecutionOptions
from linfed.sweeps.progress import costs_of, format_duration, is_shown, log_status
from linfed.sweeps.scheduler import run_cells


@dataclass(frozen=True)
class Costly:
    cost: float

    def run(self):
        if self.cost == 13:
            raise RuntimeError("unlucky")
        return {"value": self.cost}


@dataclass(frozen=True)
class Free:
    number: int

    def run(self):
        return {"value": self.number}


@dataclass(frozen=True)
class Odd:
    def run(self):
        return {}

    @property
    def cost(self):
        raise ValueError("not known")


@dataclass(frozen=True)
class Sizes:
    n_clients: int = 20
    n_rounds: int = 10
    seed: int = 7
    n_samples: int = 0
    noise_std: float = 3.0
    fixed: bool = True
    method: str = "FedRep"
    grid: tuple[int, ...] = (5, 6)

    def run(self):
        return {}


def test_costs_of_cells():
    assert costs_of([Costly(3.0)]) == [3.0]
    assert costs_of([Sizes(), Sizes(n_clients=50), Free(4), Free(-3), Odd()]) == [200.0, 500.0, 4.0, 1.0, 1.0]
    assert costs_of([Free(10**400), Free(10**308), Sizes(10**200, 10**200)]) == [1.0, 1e308, 1.0]
    assert costs_of([Sizes(n_clients=np.int64(50))]) == [500.0]
    assert costs_of([]) == []


def test_a_shard_is_a_tuple_a_list_or_an_array():
    for shard in ((1, 2), [1, 2], np.array([1, 2])):
        assert ExecutionOptions(shard=shard).shard == (1, 2)


def test_estimated_costs_are_scaled_to_given_ones():
    assert costs_of([Costly(4.0), Sizes(), Costly(8.0), Sizes(n_rounds=30)]) == [4.0, 3.0, 8.0, 9.0]
    assert costs_of([Costly(4.0), *map(Costly, (0.0, -1.0, np.inf, np.nan, "large", True)), Odd()]) == [4.0] * 8


def test_the_cost_of_a_run_is_its_seconds():
    data, problem = lf.FreshSamples(6), lf.SharedRepresentation(n_clients=20, dim=8, rank=2)
    one, two = [
        lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.5), problem=problem, data=data, n_rounds=10, trials=trials)
        for trials in (5, 10)
    ]
    tuned = lf.Tuned(base=one.algorithm, grid={"step_size": (0.1, 0.2, 0.3)}, trials=5)
    run = lf.Run(algorithm=tuned, problem=problem, data=data, n_rounds=10, trials=5)
    short, long, longest = costs_of([one, two, run])
    assert 0 < short < 1
    assert long == pytest.approx(2 * short)
    assert longest == pytest.approx(4 * short, rel=0.02)


@pytest.mark.parametrize("progress", [True, False, None])
def test_the_bar_of_a_sweep(progress, capsys):
    run_cells([Costly(float(i + 1)) for i in range(4)], options=ExecutionOptions(progress=progress), label="four")
    shown = capsys.readouterr().err
    if progress:
        assert shown.split("\r")[-1].startswith("four: 100%|")
        assert "4 of 4 cells" in shown
    else:
        assert shown == ""


def test_the_bar_counts_costs_and_cells(capsys, tmp_path):
    """Equal cells count as several, failed cells as ended."""
    shares = []

    @dataclass(frozen=True)
    class Looks(Free):
        def run(self):
            shares.append(capsys.readouterr().err.split("\r")[-1])
            time.sleep(0.15)  # the bar moves at most every 0.1 s
            return super().run()

    store = lf.Store(tmp_path)
    lf.sweep([Costly(2.0)], store=store)
    cells = [Costly(7.0), Costly(2.0), Costly(13.0), Costly(7.0), Free(1)]
    run_cells(cells, store, ExecutionOptions(progress=True))
    assert "4 of 4 cells" in capsys.readouterr().err
    run_cells([Costly(1.0), Costly(3.0), Looks(0), Looks(-1)], options=ExecutionOptions(progress=True))
    assert shares[1].startswith(" 62%")
    assert "2 of 4 cells" in shares[1]


def test_nothing_is_shown_if_nothing_is_computed(capsys, tmp_path):
    lf.sweep([Costly(2.0)], store=tmp_path)
    lf.sweep([Costly(2.0)], store=tmp_path, progress=True)
    assert capsys.readouterr().err == ""


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
