"""The least size that serves: known success curves, censoring, coverage, budgets, the store, and what is wrong."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers import each

import linfed as lf
from linfed.statistics.crossings import ThresholdSearch, crossing_of, replicates_of, verdict

REACHES = lf.below("error", 1.0)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Trial j succeeds from its own size on, of logistic law around `middle`; `noise` is drawn anew at each size."""

    size: int = 16
    middle: float = 100.0
    width: float = 0.05
    own: float = 0.0
    falling: bool = False
    binary: bool = False
    trials: int = 8
    seed: int = 0

    def run(self):
        shared = np.random.default_rng(self.seed).logistic(size=10_000)[: self.trials] * self.width
        fresh = np.random.default_rng((self.seed, int(1e6 * self.size))).logistic(size=10_000)[: self.trials] * self.own
        margin = math.log(self.middle) + shared + fresh - math.log(self.size)
        margin = -margin if self.falling else margin
        return {"error": np.where(margin > 0, 10.0, 0.1) if self.binary else np.exp(margin)}


def search_of(cell, *, share=0.5, **options):
    """Return a finished search for a curve, without cells' overhead."""
    told = {"start": 16, "lower": 1, "upper": 16_384, "whole": True, "resolution": 0.05, "confidence": 0.95}
    search = ThresholdSearch(**told | {"share": share, "batch": 8, "trials": 64, "budget": 1024} | options)
    while (wanted := search.wanted()) is not None:
        size, first, last = wanted
        search.take(size, np.log10(replace(cell, size=size, trials=last).run()["error"])[first:])
    return search


# --- the answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("middle", [3.4, 99.5, 100.5, 1234.5])
def test_a_sharp_threshold_is_found_to_the_whole_number(middle, binary):
    cell = Curve(middle=middle, width=1e-9, binary=binary)
    table = lf.find_smallest("size", cell, reaches=REACHES, resolution=1e-6)
    assert table["size"] == math.ceil(middle)
    assert (table["low"], table["high"]) == (math.floor(middle), math.ceil(middle))
    assert (table["stop_reason"], table["censored"], table["violations"]) == ("resolved", "", 0)
    if not binary:  # margins say where between two whole numbers
        assert table["crossing"] == pytest.approx(middle, rel=1e-9)


def test_real_sizes_are_found_to_the_resolution():
    for start, middle in ((0.7, 0.02345), (0.001, 0.02345)):
        table = lf.find_smallest("size", Curve(size=start, middle=middle, width=1e-9), reaches=REACHES, resolution=0.01)
        assert table["size"] == table["crossing"] == pytest.approx(middle, rel=1e-6)
        assert table["low"] < middle <= table["high"] <= 1.01 * table["low"]


@pytest.mark.long
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("middle", [3.4, 99.5, 1234.5])
@each("off", [1e-4, 0.5, 0.97, 0.999, 1.03, 2.0, 1e4])
def test_where_a_search_from_near_begins_is_not_where_it_ends(off, middle, whole):
    """And from near it takes three sizes at most."""
    start = min(max(1, round(off * middle) if whole else off * middle), 16_384)
    cell = Curve(middle=middle, width=1e-12)
    search = search_of(cell, start=start, whole=whole, near=True, batch=8, trials=8)
    low, high = search.interval
    assert search.stop_reason == "resolved"
    assert low < middle <= high
    assert high <= low * 1.05 * (1 + 1e-12) or (whole and high - low == 1)
    assert crossing_of(search.margins, 0.5)[0] == pytest.approx(middle, rel=1e-9)
    assert len(search.margins) <= (3 if 0.97 <= off <= 1.03 else 24)


@pytest.mark.long
@pytest.mark.parametrize(("share", "own"), [(0.5, 0.0), (0.5, 0.05), (0.8, 0.0)])
def test_the_interval_covers_and_the_bootstrap_has_its_width(share, own):
    """Paired and independent over sizes: 4 misses of 25 happen with probability below 0.04 at 95 %."""
    cell = Curve(width=1e-12 if own else 0.05, own=own)
    true = 100.0 * math.exp(0.05 * math.log(share / (1.0 - share)))
    searches = [search_of(replace(cell, seed=seed), share=share) for seed in range(25)]
    assert max(len(margins) for one in searches for margins in one.margins.values()) <= 64
    missed = sum(not low < true <= high for low, high in (one.interval for one in searches))
    assert missed <= 3
    crossings = np.log([crossing_of(one.margins, share)[0][0] for one in searches])
    assert abs(crossings.mean() - math.log(true)) < 0.01
    spread = np.std([np.log(replicates_of(one.margins, share)) for one in searches[:5]], axis=1).mean()
    assert 0.4 < spread / crossings.std() < 2.5


def test_trials_are_spent_near_the_threshold():
    search = search_of(Curve(middle=1000.5, width=0.05))
    tried = {size: len(margins) for size, margins in search.margins.items()}
    assert all(count == 8 for size, count in tried.items() if not 0.7 < size / 1000 < 1.4)
    assert max(tried.values()) == 64
    assert search.total_trials < 400


def test_what_lies_between_two_sizes_is_uncertain_where_margins_do_not_say():
    far = {3: np.full(9, 5.0), 4: np.full(9, -5.0)}
    replicates = replicates_of(far, 0.5)
    assert crossing_of(far, 0.5)[0][0] == pytest.approx(math.sqrt(12.0))
    assert 3.0 < replicates.min() < 3.1
    assert 3.9 < replicates.max() < 4.0
    near = {3: np.full(9, 0.3), 4: np.full(9, -0.1)}
    assert replicates_of(near, 0.5) == pytest.approx(3.0 * (4 / 3) ** 0.75)


def test_each_of_the_looks_at_a_size_may_err_with_its_part():
    """Of 8 to 64 trials there are four looks, of both sides: 0.05 / 8 each. 9 of 10 have probability 0.011."""
    search = ThresholdSearch(
        start=8,
        lower=1,
        upper=64,
        whole=True,
        share=0.5,
        resolution=0.05,
        confidence=0.95,
        batch=8,
        trials=64,
        budget=999,
    )
    search.take(8, [-1.0] * 9 + [1.0])
    assert search.interval == (0, math.inf)
    search.take(4, [1.0] * 9 + [-1.0])
    assert search.interval == (0, math.inf)
    search.take(16, [-1.0] * 10)  # 0.001
    search.take(2, [1.0] * 10)
    assert search.interval == (2, 16)


def test_ties_at_the_level_count_as_reached():
    assert verdict(np.zeros(64), 0.5, 0.01) == 1
    search = search_of(Curve(middle=128.0, width=0.0), resolution=1e-6)
    assert crossing_of(search.margins, 0.5)[0][0] == 128.0


def test_one_number_is_the_same_whatever_the_batch():
    crossings = [
        lf.find_smallest("size", Curve(middle=77.7), reaches=REACHES, batch=batch)["crossing"] for batch in (8, 16)
    ]
    assert crossings[0] == pytest.approx(crossings[1], rel=0.03)


def test_success_that_falls_with_the_size_is_seen():
    assert search_of(Curve(size=16, falling=True, width=1e-3), start=50).violations == 0  # no size beyond was tried
    bump = search_of(Curve(width=1e-3), start=50)
    bump.take(400, np.full(64, 0.3))
    assert bump.violations == 1
    low, high = bump.interval
    assert low < 100.0 <= high


# --- the ends of the range, and the budget -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said", "low", "high"),
    [({"upper": 64}, "above", 64, math.inf), ({"lower": 128, "start": 300}, "below", 0, 128)],
)
def test_what_lies_outside_the_range_is_censored(options, said, low, high):
    table = lf.find_smallest("size", Curve(width=1e-3), reaches=REACHES, **options)
    assert table["censored"] == said
    assert table["stop_reason"] == "end"
    assert np.isnan([table["size"], table["crossing"]]).all()
    assert (table["low"], table["high"]) == (low, high)


def test_the_budget_is_kept_and_said():
    for budget in (5, 40, 100):
        table = lf.find_smallest("size", Curve(width=0.5), reaches=REACHES, budget=budget)
        assert table["total_trials"] == table["count"].sum() == budget
        assert table["stop_reason"] == "budget"


def test_the_budget_is_sixteen_times_the_trials_by_default():
    options = {"reaches": REACHES, "trials": 8, "resolution": 1e-9}
    table = lf.find_smallest("size", Curve(middle=9000.5, width=0.01), **options)
    assert (table["total_trials"], table["stop_reason"]) == (16 * 8, "budget")


def test_counts_are_those_of_the_margins():
    table = lf.find_smallest("size", Curve(width=0.3), reaches=REACHES)
    assert np.array_equal(table["count"], np.sum(~np.isnan(table["margin"]), axis=0))
    assert np.array_equal(table["reached"], np.sum(table["margin"] <= 0, axis=0))
    assert table.axes("margin") == ("trial", "tried")


# --- runs ----------------------------------------------------------------------------------------------------

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9)),
    problem=lf.SharedRepresentation(n_clients=20, dim=12, rank=2),
    data=lf.FreshSamples(n_samples=8),
    rounds=30,
)
LEVEL = lf.below("subspace_distance", 0.01)


@pytest.mark.long
def test_a_run_is_asked_for_the_share_that_it_has():
    table = lf.find_smallest("data.n_samples", RUN, reaches=LEVEL, trials=16, predicted=True)
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
    run = lf.Run(algorithm=fedrep, problem=problem, data=lf.FreshSamples(10), rounds=8, seed=3)
    level = lf.below("subspace_distance", 0.3)
    table = lf.find_smallest("data.n_samples", run, reaches=level, trials=16, resolution=0.1, predicted=True)

    def reached(size, trials=16):
        found = lf.predict(fedrep, problem, data=lf.FreshSamples(size), rounds=8, seed=3, trials=trials)
        return np.sum(found.distance[:, -1] <= 0.3)

    assert (table["predicted"], table["predicted_trials"], table["count"].max()) == (6, 16, 16)
    assert reached(6) >= 8 > reached(5)
    assert reached(6, trials=3) == 1
    low, high = (int(table[f"predicted_{end}"]) for end in ("low", "high"))
    assert low < table["predicted_crossing"] <= high
    assert reached(low) < 4
    assert reached(high) > 12


@pytest.mark.long
def test_least_rounds_are_those_of_the_run():
    table = lf.find_smallest("round", RUN, reaches=LEVEL, trials=16, predicted=True)
    first = np.argmax(replace(RUN, trials=16).simulate().metrics["subspace_distance"] <= 0.01, axis=1)
    assert table["round"] == np.quantile(first, 0.5, method="inverted_cdf")
    assert table["round"] - 1 < table["crossing"] <= table["round"]
    assert table["low"] < table["round"] <= table["high"]
    assert table["predicted"] == pytest.approx(table["round"], abs=3)
    assert table["predicted_low"] < table["predicted"] <= table["predicted_high"] < np.inf
    late = lf.find_smallest("round", replace(RUN, rounds=3), reaches=LEVEL, trials=8, predicted=True)
    assert late["censored"] == late["predicted_censored"] == "above"
    assert (late["low"], late["high"]) == (3, math.inf)


@pytest.mark.long
def test_steps_are_tuned_or_set_at_every_size():
    tuned = lf.Tuned(base=RUN.algorithm, grid={"step_size": (0.1, 0.4)}, trials=4)
    with pytest.warns(lf.GridEdgeWarning, match="step_size is at the edge"):
        table = lf.find_smallest("data.n_samples", replace(RUN, algorithm=tuned), reaches=LEVEL, trials=8)
    assert (table["step_size"], table["at_grid_edge"]) == (0.4, "step_size")
    options = {"trials": 8, "step_size": lf.theory.best_step_size, "lower": 4}
    rule = lf.find_smallest("data.n_samples", RUN, reaches=lf.below("subspace_distance", 1e-8), **options)
    size = min(size for size in rule["tried"] if size >= rule["crossing"])
    wanted = lf.theory.best_step_size(dim=12, rank=2, n_clients=20, n_samples=int(size), participants=20)
    assert rule["step_size"] == wanted


# --- the store -----------------------------------------------------------------------------------------------


def test_a_search_goes_on_from_its_store(tmp_path, monkeypatch):
    cells = lf.grid(RUN, **{"problem.n_clients": (20, 40)})
    table = lf.find_smallest("data.n_samples", cells, reaches=LEVEL, trials=8, store=tmp_path)
    plain = lf.find_smallest("data.n_samples", cells, reaches=LEVEL, trials=8)
    assert np.array_equal(table["crossing"], plain["crossing"])
    files = len(list(tmp_path.iterdir()))
    for path in tmp_path.glob("*.cell"):
        if b'"path"' in path.read_bytes():  # the answers, not the runs
            path.unlink()
    from linfed.cells.run import Part

    def forbidden(self):
        raise AssertionError("a run that is there was run again")

    monkeypatch.setattr(Part, "run", forbidden)
    from linfed.sweeps import scheduler as schedule

    monkeypatch.setattr(schedule, "compute", forbidden)
    again = lf.find_smallest("data.n_samples", cells, reaches=LEVEL, trials=8, store=tmp_path)
    assert np.array_equal(again["replicates"], table["replicates"])
    assert len(list(tmp_path.iterdir())) == files


# --- what is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"path": "sise"}, ValueError, r"no field 'sise' \(did you mean 'size'"),
        ({"reaches": 0.1}, TypeError, "reaches = 0.1"),
        ({"share": 1.0}, ValueError, r"share = 1.0 must be above 0 and below 1"),
        ({"resolution": 0}, ValueError, "resolution = 0"),
        ({"batch": 9, "trials": 8}, ValueError, "batch = 9 must be at most trials = 8"),
        ({"upper": 8}, ValueError, "start = 16 must be between lower = 1 and upper = 8"),
        ({"start": 4.5}, ValueError, "start = 4.5 must be an integer, as size is"),
        ({"upper": 99.5}, ValueError, "upper = 99.5 must be an integer, as size is"),
        ({"predicted": True}, ValueError, "predicted = True"),
        ({"step_size": 0.5}, ValueError, "step_size = 0.5 must be a function"),
        ({"nope": 3}, TypeError, "find_smallest has no argument 'nope'; lf.sweep allows store, executor"),
        ({"lower": lambda: 3}, TypeError, "lower = .* must be a number or a function of the cell"),
        ({"lower": lambda cell: -1}, ValueError, "lower = -1 must be a positive"),
    ],
)
def test_wrong_arguments_are_named(changes, error, said):
    options = {"path": "size", "reaches": REACHES} | changes
    with pytest.raises(error, match=said):
        lf.find_smallest(options.pop("path"), Curve(), **options)


def test_each_cell_may_have_its_own_range():
    """Ranks differ, and a step size may be defined from k + 2 samples on only."""
    cells = lf.grid(RUN, **{"algorithm.rank, problem.rank": [(1, 1), (3, 3)]})
    options = {"reaches": LEVEL, "trials": 8, "step_size": lf.theory.best_step_size}
    with pytest.raises(ValueError, match=r"n_samples = 3 must be at least rank \+ 2 = 5"):
        lf.find_smallest("data.n_samples", cells, lower=3, **options)
    table = lf.find_smallest(
        "data.n_samples", cells, lower=lambda run: run.algorithm.rank + 2, start=lambda run: 9, **options
    )
    assert list(table["censored"]) == ["below", "below"]
    assert list(table["high"]) == [3, 5]


def test_a_step_rule_of_another_signature_is_named():
    with pytest.raises(TypeError, match=r"step_size = .* must be a function of the cell, or of any of"):
        lf.find_smallest("data.n_samples", RUN, reaches=LEVEL, step_size=lambda t, s: 0.1)
    with pytest.raises(TypeError, match=r"metric = .* must be a function of two arguments"):
        lf.below(lambda state: 1.0, 0.1)


def test_wrong_cells_are_named():
    with pytest.raises(TypeError, match="must have a field 'trials'"):
        lf.find_smallest("delta", _NoTrials(), reaches=REACHES)
    with pytest.raises(ValueError, match=r"lower = 0.5 must be an integer, as data.n_samples is"):
        lf.find_smallest("data.n_samples", RUN, reaches=LEVEL, lower=0.5)
    with pytest.raises(lf.SweepError, match="requires a column 'err', but the run's row has 'error'"):
        lf.find_smallest("size", Curve(), reaches=lf.below("err", 1.0))
    with pytest.raises(ValueError, match=r"level = 0 must be a positive"):
        lf.below("error", 0)


@dataclass(frozen=True)
class _NoTrials:
    delta: float = 0.5

    def run(self):
        return {"error": np.ones(2)}


def test_above_is_below_upside_down():
    assert lf.above("error", 2.0).margins([20.0, 2.0, 0.2, np.nan]).tolist() == [-1.0, 0.0, 1.0, np.inf]
    assert lf.below("error", 2.0).margins([20.0, 2.0, 0.2, np.nan]).tolist() == [1.0, 0.0, -1.0, np.inf]
    assert lf.below("error", 1.0, ever=True).misses([[1.0, 5.0]]).tolist() == [0.0]
    assert lf.below("error", 5.0).misses([[1.0, 50.0]]).tolist() == [1.0]


def test_a_negative_value_is_below_any_level():
    below, above = lf.below("gap", 0.1), lf.above("gap", 0.1)
    np.testing.assert_array_equal(below.margins([-1e-3, 0.0, np.nan]), [-np.inf, -np.inf, np.inf])
    np.testing.assert_array_equal(above.margins([-1e-3, 0.0, np.nan]), [np.inf, np.inf, np.inf])
