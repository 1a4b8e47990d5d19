"""Fields of an experiment's cells are replaced by ``--set``, and impossible values are one line."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.checks import check_integer
from linfed.errors import UsageError
from linfed.reproduction.experiments import cells_of, experiment_files, load_file
from linfed.reproduction.own_settings import check_cells, read_settings, with_settings
from linfed.reproduction.run import ReproduceOptions, cells_ready
from tests.helpers import ROOT

SMALL = lf.SharedRepresentation(n_clients=6, dim=5, rank=2)
FEDREP = lf.FedRep(rank=2, step_size=0.5)
RUN = {
    "algorithm": FEDREP,
    "problem": lf.SharedRepresentation(n_clients=12, dim=8, rank=2),
    "data": lf.FreshSamples(8),
    "n_rounds": 3,
}


@dataclass(frozen=True)
class Plain:
    size: int = 3
    shape: tuple[int, ...] = (1, 2)
    rate: float = 0.5
    word: str = "a"
    some: int | None = None
    problem: lf.SharedRepresentation = SMALL

    def __post_init__(self):
        check_integer("size", self.size)
        assert self.problem or 1 / 0

    def run(self):
        return {"value": self.size}


def test_values_are_literals_and_other_texts_words():
    given = ["size=4", "a.rate = 1e-3", "word=two words", "shape=[1, [2]]", "some=None", "word2='3'"]
    wanted = {"size": 4, "a.rate": 1e-3, "word": "two words", "shape": (1, (2,)), "some": None, "word2": "3"}
    assert read_settings(given) == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["dim"], "--set 'dim' must be FIELD=VALUE"),
        (["=3"], "--set '=3' must be FIELD=VALUE"),
        (["dim="], "--set 'dim=' must be FIELD=VALUE"),
        (["dim=3", "dim=4"], "--set dim is given twice"),
        (["dim={1, 2}"], "--set 'dim={1, 2}' must have a value that the record can hold"),
    ],
)
def test_a_wrong_text_is_one_line(given, said):
    with pytest.raises(UsageError, match=f"^{re.escape(said)}[^\n]*$"):
        read_settings(given)


def test_fields_are_replaced_where_they_are_and_equal_cells_are_one():
    lists = {"one": [Plain(size=n) for n in (1, 2)], "two": [lf.Run(**RUN)]}
    found = with_settings(lists, {"size": 5, "problem.dim": 7})
    assert found["one"] == [Plain(size=5, problem=lf.SharedRepresentation(n_clients=6, dim=7, rank=2))]
    assert found["two"][0].problem.dim == 7
    assert [cell.size for cell in with_settings(lists, {"problem.n_clients": 9})["one"]] == [1, 2]
    assert with_settings(lists, {"rate": 1, "some": 4})["one"] == [Plain(size=n, rate=1, some=4) for n in (1, 2)]
    assert lists["one"] == [Plain(size=1), Plain(size=2)]


@dataclass(frozen=True)
class Several:
    n: int = 10
    trials: int | None = 50
    tuning_trials: int = 10
    n_rounds: int = 5

    def run(self):
        return {"value": self.n}


def test_cells_that_then_differ_only_in_numbers_of_trials_are_one_with_the_most_trials():
    cells = [Several(), Several(100, None, 20), Several(1000, 20, 4), Several(1000, 20, 4, n_rounds=7)]
    assert with_settings({"runs": cells}, {"n": 300})["runs"] == [Several(300), Several(300, 20, 4, n_rounds=7)]
    assert with_settings({"runs": cells[1:]}, {"n": 300})["runs"][0] == Several(300, 20, 4)
    assert with_settings({"runs": cells}, {"n_rounds": 7})["runs"][-1] == Several(1000, 20, 4, n_rounds=7)
    assert len(with_settings({"runs": cells}, {"n_rounds": 7})["runs"]) == 3
    assert len(with_settings({"runs": cells}, {"trials": 3})["runs"]) == 4


def test_figure_3_at_another_number_of_clients_has_each_method_once():
    lists = cells_of(load_file(experiment_files(ROOT / "experiments")["fedrep-fig3"]), quick=False)
    found = with_settings(lists, {"n_clients": 300})["curves"]
    assert len({(one.preset, one.method) for one in found}) == len(found) < len(lists["curves"])
    assert {one.trials for one in found} == {max(one.trials for one in lists["curves"])}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("size", 0, "--set: size = 0 must be an integer of at least 1"),
        ("size", "3O", "--set: size = '3O' must be an integer of at least 1"),
        ("problem.dim", 1, "rank = 2 must be at most dim = 1"),
        ("problem.rank", None, "rank = None must be an integer"),
        ("problem", 0, "--set: problem = 0: ZeroDivisionError: division by zero"),
        ("dim", 3, "--set dim: the experiment has no such field (did you mean 'problem.dim'?)"),
        ("m", 3, "--set m: the experiment has no such field (did you mean 'data.n_samples'?)"),
        ("rank", 3, "--set rank: the experiment has no such field (did you mean 'problem.rank' or 'algorithm.rank'?)"),
        ("problem.dims", 3, "--set problem.dims: the experiment has no such field (did you mean 'problem.dim'?)"),
        ("other", 3, "--set other: the experiment has no such field; choose from: size, shape, rate, word, some, "),
    ],
)
def test_a_value_that_a_cell_refuses_is_one_line(path, value, said):
    with pytest.raises(UsageError, match=re.escape(said)) as told:
        with_settings({"cells": [Plain(), lf.Run(**RUN)]}, {path: value})
    assert "\n" not in str(told.value)


def test_a_tuned_algorithm_is_reached_and_what_it_chooses_is_not_set():
    tuned = lf.Tuned(base=FEDREP, grid={"step_size": (0.1, 0.3)}, trials=2)
    runs = [lf.Run(**(RUN | {"algorithm": one})) for one in (FEDREP, tuned)]
    plain, found = with_settings({"runs": runs}, {"algorithm.rank": 3, "algorithm.base.rank": 4})["runs"]
    assert (plain.algorithm.rank, found.algorithm.base.rank) == (3, 4)
    with pytest.raises(UsageError, match=r"the field is tuned over algorithm.grid = \{'step_size'"):
        with_settings({"runs": runs}, {"algorithm.base.step_size": 1.0})


def test_impossible_cells_are_refused_before_they_run():
    """By their own rank and dim, or by their method ``check()``."""

    @dataclass(frozen=True)
    class Own:
        dim: int = 3
        rank: int = 2

    check_cells({"runs": [lf.Run(**RUN), Own(rank=3)]})
    for dim in (3, np.int64(3)):
        with pytest.raises(UsageError, match=r"^rank = 4 must be at most dim = 3, in the cell "):
            check_cells({"runs": [Own(dim, rank=4)]})
    with pytest.raises(UsageError, match=r"^rank = 9 must be at most dim = 8, in the cell "):
        check_cells(with_settings({"runs": [lf.Run(**RUN)]}, {"algorithm.rank": 9}))


@pytest.mark.long
def test_fields_of_every_experiment_can_be_set():
    for file in experiment_files(ROOT / "experiments").values():
        lists = cells_ready(file, ReproduceOptions(quick=True, set={"trials": 7}))
        cells = [cell for own in lists.values() for cell in own]
        assert {cell.trials for cell in cells if hasattr(cell, "trials")} == {7}, file


# --- words -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    method: str = lf.choice(("FedRep", "FedAvg"), "FedRep")
    panel: str = lf.choice(("n", "d"), "n", label=True)

    def run(self):
        return {"value": 1.0}


@dataclass(frozen=True)
class Narrower:
    method: str = lf.choice(("FedAvg",), "FedAvg")

    def run(self):
        return {"value": 1.0}


def test_a_word_changes_the_cells_that_allow_it():
    lists = {"one": [Word()], "two": [Narrower()]}
    assert with_settings(lists, {"method": "FedRep"}) == lists
    assert with_settings(lists, {"method": "FedAvg"})["one"] == [Word("FedAvg")]
    with pytest.raises(UsageError, match=r"^--set: method = 'Nonsense' is unknown; allowed: 'FedRep', 'FedAvg'$"):
        with_settings(lists, {"method": "Nonsense"})


def test_a_label_is_not_set():
    lists = {"runs": [Word(panel="n")]}
    assert with_settings(lists, {"panel": "n"}) == lists
    with pytest.raises(UsageError, match=r"^--set panel: the field only names the values of other fields; set those"):
        with_settings(lists, {"panel": "d"})
    with pytest.raises(UsageError, match=r"panel = 'x' is unknown; allowed: 'n', 'd'$"):
        with_settings(lists, {"panel": "x"})
    run = lf.Run(algorithm=lf.LocalOnly(), data=lf.FixedSamples(5), n_rounds=1)
    with pytest.raises(UsageError, match=r"^--set name: the field only names"):
        with_settings({"runs": [run]}, {"name": "other"})


@dataclass(frozen=True)
class WithArray:
    weights: np.ndarray
    size: int = 3
    trials: int = 5

    def run(self):
        return {"value": self.size}


def test_cells_with_arrays_are_compared_by_their_values():
    cells = [
        WithArray(np.array([1.0, 2.0])),
        WithArray(np.array([1.0, 2.0]), trials=9),
        WithArray(np.array([1.0, 3.0])),
    ]
    assert with_settings({"runs": cells}, {"size": 4})["runs"][0].trials == 9
    assert len(with_settings({"runs": cells}, {"size": 4})["runs"]) == 2
