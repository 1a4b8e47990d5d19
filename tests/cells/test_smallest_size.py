"""The cell that searches for the smallest size: known curves, runs, its range, its predictions and its store."""

import inspect
import math
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

import linfed as lf
from linfed.cells.smallest_size import SmallestSize
from linfed.system.description import describe
from tests.helpers import assert_one_line

REACHES = lf.below("error", 1.0)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Trial j succeeds from its own size on, of logistic law around `middle`."""

    size: int = 16
    middle: float = 100.0
    width: float = 0.05
    binary: bool = False
    trials: int = 8
    seed: int = 0

    def run(self):
        shared = np.random.default_rng(self.seed).logistic(size=self.trials) * self.width
        shortfall = math.log(self.middle) + shared - math.log(self.size)
        return {"error": np.where(shortfall > 0, 10.0, 0.1) if self.binary else np.exp(shortfall)}


def found(cell, path="size", reaches=REACHES, **options):
    return lf.find_smallest(path, cell, reaches=reaches, **options)


# --- known curves ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("middle", [3.4, 99.5, 100.5, 1234.5])
def test_a_sharp_threshold_is_found_to_the_whole_number(middle, binary):
    table = found(Curve(middle=middle, width=1e-9, binary=binary), resolution=1e-6)
    assert table["size"] == math.ceil(middle)
    assert (table["low"], table["high"]) == (math.floor(middle), math.ceil(middle))
    assert (table["stop_reason"], table["censored"], table["violations"]) == ("resolved", "", 0)
    if not binary:  # shortfalls say where between two whole numbers
        assert table["crossing"] == pytest.approx(middle, rel=1e-9)


def test_real_sizes_are_found_to_the_resolution():
    for start, middle in ((0.7, 0.02345), (0.001, 0.02345)):
        table = found(Curve(size=start, middle=middle, width=1e-9), resolution=0.01)
        assert table["size"] == table["crossing"] == pytest.approx(middle, rel=1e-6)
        assert table["low"] < middle <= table["high"] <= 1.01 * table["low"]


def test_the_answer_is_nearly_the_same_whatever_the_batch():
    one, other = (found(Curve(middle=77.7), batch=batch)["crossing"] for batch in (8, 16))
    assert one == pytest.approx(other, rel=0.03)


@pytest.mark.parametrize(
    ("options", "said", "low", "high"),
    [({"upper": 64}, "above", 64, math.inf), ({"lower": 128, "start": 300}, "below", 0, 128)],
)
def test_what_lies_outside_the_range_is_censored(options, said, low, high):
    table = found(Curve(width=1e-3), **options)
    assert (table["censored"], table["stop_reason"]) == (said, "end")
    assert np.isnan([table["size"], table["crossing"]]).all()
    assert (table["low"], table["high"]) == (low, high)


def test_the_budget_is_kept_and_said():
    for budget in (5, 40, 100):
        table = found(Curve(width=0.5), budget=budget)
        assert table["total_trials"] == table["count"].sum() == budget
        assert table["stop_reason"] == "budget"
    table = found(Curve(middle=9000.5, width=0.01), trials=8, resolution=1e-9)  # sixteen times the trials by default
    assert (table["total_trials"], table["stop_reason"]) == (16 * 8, "budget")


def test_counts_are_those_of_the_shortfalls():
    table = found(Curve(width=0.3))
    assert np.array_equal(table["count"], np.sum(~np.isnan(table["shortfall"]), axis=0))
    assert np.array_equal(table["reached"], np.sum(table["shortfall"] <= 0, axis=0))
    assert table.axes("shortfall") == ("trial", "tried")


# --- runs ------------------------------------------------------------------------------------------------------------

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9)),
    problem=lf.SharedRepresentation(n_clients=20, dim=12, rank=2),
    data=lf.FreshSamples(n_samples=8),
    n_rounds=30,
)
LEVEL = lf.below("subspace_distance", 0.01)


def of_samples(cells=RUN, reaches=LEVEL, **options):
    return found(cells, "data.n_samples", reaches, **options)


@pytest.mark.long
def test_a_run_is_asked_for_the_share_that_it_has():
    table = of_samples(trials=16, predicted=True)
    for size, count, reached in zip(table["tried"], table["count"], table["reached"], strict=True):
        (cell,) = lf.grid(replace(RUN, trials=int(count)), **{"data.n_samples": [int(size)]})
        assert np.sum(cell.simulate().metrics["subspace_distance"][:, -1] <= 0.01) == reached
    assert table["low"] < table["crossing"] <= table["high"]
    assert table["predicted_crossing"] == pytest.approx(table["crossing"], rel=0.3)
    assert "rank + 1 = 3" in table["missing_prediction"]
    assert table["predicted_low"] < table["predicted_crossing"] <= table["predicted_high"]


@pytest.mark.long
def test_what_is_predicted_is_of_the_truths_that_were_measured():
    """Truths of few clients differ: of the first three only one reaches the level where eight of sixteen do."""
    problem = lf.SharedRepresentation(n_clients=8, dim=12, rank=2)
    fedrep = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.8))
    run = lf.Run(algorithm=fedrep, problem=problem, data=lf.FreshSamples(10), n_rounds=8, seed=3)
    table = of_samples(run, lf.below("subspace_distance", 0.3), trials=16, resolution=0.1, predicted=True)

    def reached(size, trials=16):
        prediction = lf.predict(fedrep, problem, data=lf.FreshSamples(size), n_rounds=8, seed=3, trials=trials)
        return np.sum(prediction.distance[:, -1] <= 0.3)

    assert (table["predicted"], table["predicted_trials"], table["count"].max()) == (6, 16, 16)
    assert reached(6) >= 8 > reached(5)
    assert reached(6, trials=3) == 1
    low, high = (int(table[f"predicted_{end}"]) for end in ("low", "high"))
    assert low < table["predicted_crossing"] <= high
    assert reached(low) < 4
    assert reached(high) > 12


@pytest.mark.long
def test_the_smallest_number_of_rounds_is_that_of_one_run():
    table = found(RUN, "round", LEVEL, trials=16, predicted=True)
    first = np.argmax(replace(RUN, trials=16).simulate().metrics["subspace_distance"] <= 0.01, axis=1)
    assert table["round"] == np.quantile(first, 0.5, method="inverted_cdf")
    assert table["round"] - 1 < table["crossing"] <= table["round"]
    assert table["low"] < table["round"] <= table["high"]
    assert table["predicted"] == pytest.approx(table["round"], abs=3)
    assert table["predicted_low"] < table["predicted"] <= table["predicted_high"] < np.inf
    late = found(replace(RUN, n_rounds=3), "round", LEVEL, trials=8, predicted=True)
    assert late["censored"] == late["predicted_censored"] == "above"
    assert (late["low"], late["high"]) == (3, math.inf)


def test_steps_are_tuned_at_every_size():
    tuned = lf.Tuned(base=RUN.algorithm, grid={"step_size": (0.1, 0.4)}, trials=4)
    with pytest.warns(lf.GridEdgeWarning, match="step_size is at the edge"):
        table = of_samples(replace(RUN, algorithm=tuned), trials=8)
    assert (table["step_size"], table["at_grid_edge"]) == (0.4, "step_size")


def test_steps_are_set_by_a_rule_at_every_size():
    rule = of_samples(
        reaches=lf.below("subspace_distance", 1e-8), trials=8, step_size=lf.theory.best_step_size, lower=4
    )
    size = min(size for size in rule["tried"] if size >= rule["crossing"])
    wanted = lf.theory.best_step_size(dim=12, rank=2, n_clients=20, n_samples=int(size), participants=20)
    assert rule["step_size"] == wanted


def outside(state, truth):
    """Return the squared sines between B and B*: a metric as `simulate` takes it."""
    B = state.array("B")
    left = B - truth.B @ (truth.B.mT @ B)
    return np.square(left).sum(axis=(-2, -1))


def test_a_level_may_be_of_a_function_of_state_and_truth():
    table = of_samples(reaches=lf.below(outside, 0.01), trials=8)
    assert table["low"] < table["crossing"] <= table["high"]


# --- the range -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FromSeven(Curve):
    def __post_init__(self):
        if self.size < 7:
            raise ValueError("size must be at least 7")


@dataclass(frozen=True, kw_only=True)
class FromPi(Curve):
    size: float = 16.0

    def __post_init__(self):
        if self.size < math.pi:
            raise ValueError("size must be at least pi")


BY_RULE = {"step_size": lf.theory.best_step_size}
POSSIBLE = {
    "a rule of the step size": ("data.n_samples", RUN, BY_RULE, 4),
    "at the start": ("data.n_samples", RUN, BY_RULE | {"start": 4}, 4),
    "participants": ("problem.n_clients", replace(RUN, participation=5), {}, 5),
    "dimensions": ("problem.dim", replace(RUN, algorithm=replace(RUN.algorithm, init="random")), {}, 2),
    "dimensions at a distance": ("problem.dim", RUN, {}, 4),
    "a cell of a user": ("size", FromSeven(), {}, 7),
    "no restriction": ("size", Curve(), {}, 1),
    "a given end": ("size", Curve(), {"lower": 3}, 3),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_the_range_begins_where_runs_are_possible(name):
    path, cell, options, least = POSSIBLE[name]
    search = SmallestSize(base=cell, path=path, reaches=REACHES if path == "size" else LEVEL, **options)
    assert search._range[0] == least
    assert search.lower == options.get("lower")  # as given: a store knows the search by it


def test_a_real_range_begins_within_a_percent_of_the_first_possible_size():
    search = SmallestSize(base=FromPi(), path="size", reaches=REACHES)
    assert math.pi <= search._range[0] <= 1.011 * math.pi
    assert SmallestSize(base=Curve(size=16.0), path="size", reaches=REACHES)._range[0] == 16.0 / 1024


@pytest.mark.parametrize("end", ["start", "lower"])
def test_an_end_at_which_no_run_is_possible_is_named(end):
    with pytest.raises(ValueError, match=r"n_samples = 3 must be at least rank \+ 2 = 4") as caught:
        of_samples(**BY_RULE, **{end: 3})
    assert f"{end} = 3" in caught.value.__notes__[0]


def test_the_cell_of_a_search_has_the_defaults_of_the_function():
    function = inspect.signature(lf.find_smallest).parameters
    own = {one.name: one.default for one in fields(SmallestSize) if one.name not in ("base", "path", "reaches")}
    assert own == {name: function[name].default for name in own}


# --- invalid arguments -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoTrials:
    delta: float = 0.5

    def run(self):
        return {"error": np.ones(2)}


INVALID = {
    "the path": (Curve(), {"path": "sise"}, ValueError, r"no field 'sise' \(did you mean 'size'"),
    "the level": (Curve(), {"reaches": 0.1}, TypeError, "reaches = 0.1"),
    "the share": (Curve(), {"share": 1.0}, ValueError, r"share = 1.0 must be above 0 and below 1"),
    "the resolution": (Curve(), {"resolution": 0}, ValueError, "resolution = 0"),
    "the batch": (Curve(), {"batch": 9, "trials": 8}, ValueError, "batch = 9 must be at most trials = 8"),
    "the upper end": (Curve(), {"upper": 8}, ValueError, "start = 16 must be between lower = 1 and upper = 8"),
    "half a size to start": (Curve(), {"start": 4.5}, ValueError, "start = 4.5 must be an integer, as size is"),
    "half a size at the end": (Curve(), {"upper": 99.5}, ValueError, "upper = 99.5 must be an integer, as size is"),
    "half a number of samples": (RUN, {"path": "data.n_samples", "lower": 0.5}, ValueError, "lower = 0.5 must be an i"),
    "predictions of a user's cell": (Curve(), {"predicted": True}, ValueError, "predicted = True"),
    "a step size": (Curve(), {"step_size": 0.5}, ValueError, "step_size = 0.5 must be a function"),
    "a rule of two arguments": (
        RUN,
        {"path": "data.n_samples", "step_size": lambda t, s: 0.1},
        TypeError,
        "step_size = .* must be a function of the cell",
    ),
    "a cell without trials": (NoTrials(), {"path": "delta"}, TypeError, "must have a field 'trials'"),
    "an unknown column": (
        Curve(),
        {"reaches": lf.below("err", 1.0)},
        lf.SweepError,
        "requires a column 'err', but the run's row has 'error'",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments_are_named(name):
    cell, options, error, said = INVALID[name]
    with pytest.raises(error, match=said):
        found(cell, **{"reaches": LEVEL if cell is RUN else REACHES} | options)


# --- the store -------------------------------------------------------------------------------------------------------


def test_a_search_goes_on_from_its_store(tmp_path, monkeypatch):
    cells = lf.grid(RUN, **{"problem.n_clients": (20, 40)})
    table = of_samples(cells, trials=8, store=tmp_path)
    assert np.array_equal(table["crossing"], of_samples(cells, trials=8)["crossing"])
    files = len(list(tmp_path.iterdir()))
    for path in tmp_path.glob("*.cell"):
        if b'"path"' in path.read_bytes():  # the answers, not the runs
            path.unlink()

    def forbidden(*_):
        raise AssertionError("a run that is there was run again")

    monkeypatch.setattr("linfed.cells.run.simulate_trials", forbidden)
    again = of_samples(cells, trials=8, store=tmp_path)
    assert np.array_equal(again["replicates"], table["replicates"])
    assert len(list(tmp_path.iterdir())) == files


@dataclass(frozen=True, kw_only=True)
class Ruled(Curve):
    """Curve with an algorithm and no problem."""

    algorithm: lf.Algorithm = RUN.algorithm


def without_truth(**changes):
    X = np.random.default_rng(0).standard_normal((5, 8, 6))
    data, run = (
        lf.GivenSamples(X, X @ np.ones(6)),
        replace(RUN, algorithm=lf.FedRep(rank=2, step_size=0.5, init="random")),
    )
    return replace(
        run, **{"problem": None, "data": data, "participation": 1.0, "trials": None, "n_rounds": 3} | changes
    )


def test_a_small_integer_type_does_not_limit_the_range():
    cell = SmallestSize(base=Curve(size=np.int16(40)), path="size", reaches=REACHES)
    assert cell._range == (1, 40, 40 * 1024)
    assert describe(replace(cell, path=np.str_("size"))).text == describe(cell).text


def test_a_rule_knows_the_sizes_of_given_samples_and_of_given_participants():
    seen = []

    def rule(dim, n_clients, participants):
        seen.append((dim, n_clients, participants))
        return 0.1

    cell = without_truth(participation=np.array([[0, 3], [1, 2], [0, 4]]))
    search = SmallestSize(base=cell, path="round", reaches=lf.below("train_loss", 1.0), step_size=rule)
    search._ready(cell)
    assert seen == [(6, 5, 2)]


RULES = {
    "the searched size": (
        lambda: found(RUN, "algorithm.step_size", step_size=lambda dim: 0.1),
        ["step_size = <function", "path = 'algorithm.step_size'"],
    ),
    "a cell without an algorithm": (
        lambda: found(Curve(), step_size=lambda cell: 0.1),
        ["'algorithm.step_size'", "Curve has no field 'algorithm'"],
    ),
    "a cell without a problem": (
        lambda: found(Ruled(), step_size=lambda dim, n_clients: 0.1),
        ["must not use dim, n_clients, which the cell lacks"],
    ),
    "noise without a problem": (
        lambda: SmallestSize(
            base=without_truth(), path="round", reaches=lf.below("train_loss", 1.0), step_size=lambda noise_std: 0.1
        ).run(),
        ["must not use noise_std, which the cell lacks"],
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_that_do_not_fit_a_cell_are_named(name):
    assert_one_line(*RULES[name])
