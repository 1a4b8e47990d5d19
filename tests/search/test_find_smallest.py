"""The least size that serves: known success curves, censoring, coverage, budgets, the store, and what is wrong."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.cells.smallest_size import SmallestSize
from linfed.statistics.crossings import ThresholdSearch, crossing_of, replicates_interval, replicates_of, verdict
from tests.helpers import each

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
    from linfed.sweeps import scheduler as schedule

    def forbidden(*_):
        raise AssertionError("a run that is there was run again")

    monkeypatch.setattr("linfed.cells.run.simulate_trials", forbidden)

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
    default = lf.find_smallest("data.n_samples", cells, start=lambda run: 9, **options)
    for name in ("low", "high", "crossing", "censored", "total_trials"):
        np.testing.assert_array_equal(default[name], table[name])


@dataclass(frozen=True, kw_only=True)
class FromSeven(Curve):
    size: int = 16

    def __post_init__(self):
        if self.size < 7:
            raise ValueError("size must be at least 7")


@dataclass(frozen=True, kw_only=True)
class FromPi(FromSeven):
    size: float = 16.0

    def __post_init__(self):
        if self.size < math.pi:
            raise ValueError("size must be at least pi")


def participating(count):
    return replace(RUN, participation=count)


POSSIBLE = {
    "a rule of the step size": ("data.n_samples", RUN, {"step_size": lf.theory.best_step_size}, 4),
    "at the start": ("data.n_samples", RUN, {"step_size": lf.theory.best_step_size, "start": 4}, 4),
    "participants": ("problem.n_clients", participating(5), {}, 5),
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


def test_a_start_or_an_end_at_which_no_run_is_possible_is_named():
    rule = {"reaches": LEVEL, "step_size": lf.theory.best_step_size}
    for changes, note in (
        ({"start": 3}, "at the start, start = 3"),
        ({"lower": 3}, "at the end of the range, lower = 3"),
    ):
        with pytest.raises(ValueError, match=r"n_samples = 3 must be at least rank \+ 2 = 4") as caught:
            lf.find_smallest("data.n_samples", RUN, **changes, **rule)
        assert caught.value.__notes__ == [note]
    with pytest.raises(ValueError, match="size must be at least 7"):
        lf.find_smallest("size", FromSeven(), lower=6, reaches=REACHES)


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


# --- formulas, written out -----------------------------------------------------------------------------------


def test_a_share_is_judged_by_both_binomial_tails():
    for total, share, error in ((8, 0.5, 0.00625), (10, 0.5, 0.0125), (20, 0.8, 0.02), (5, 0.3, 0.2), (9, 0.9, 0.1)):
        for count in range(total + 1):
            margins = np.where(np.arange(total) < count, -0.5, 0.5)
            few = stats.binom.cdf(count, total, share) <= error
            many = stats.binom.sf(count - 1, total, share) <= error
            assert verdict(margins, share, error) == int(many) - int(few)


def falling(values, weights):
    """Return the isotonic decreasing fit: the least of the largest means over intervals that contain a place."""
    places = range(len(values))

    def mean(i, k):
        return np.average(values[i : k + 1], weights=weights[i : k + 1])

    return [min(max(mean(i, k) for k in places[j:]) for i in places[: j + 1]) for j in places]


def crossing_by_hand(margins, share, weights, between):
    """Return the size and the place at which one weighting's share-quantile crosses 0."""
    sizes, middles, counts = sorted(margins), [], [len(margins[size]) for size in sorted(margins)]
    for size in sizes:
        pairs = sorted(zip(margins[size], weights, strict=False))
        total, sums = sum(weight for _, weight in pairs), np.cumsum([weight for _, weight in pairs])
        middle = next(margin for (margin, _), up_to in zip(pairs, sums, strict=True) if up_to >= share * total - 1e-12)
        middles.append(min(1.0, max(-1.0, middle)))
    fitted = falling(np.array(middles), counts)
    place = next((place for place, value in enumerate(fitted) if value <= 0), len(sizes))
    if place in (0, len(sizes)):
        return (sizes[0] if place == 0 else math.inf), place
    above, below = fitted[place - 1], -fitted[place]
    part = between if min(above, below) >= 1.0 else above / (above + below)
    low, high = sizes[place - 1], sizes[place]
    return (low + part * (high - low) if low == 0 else low ** (1 - part) * high**part), place


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("shift", [-3.0, -0.4, 0.0, 0.4, 3.0])
def test_a_crossing_is_that_of_isotonic_quantiles(first, shift):
    """Margins that do not fall with the size, beyond a decade on some sides, of unequal numbers of trials."""
    rng = np.random.default_rng(int(10 * (shift + 5)))
    trials = {first: 9, 5: 12, 8: 12, 13: 7, 21: 10}
    margins = {
        size: rng.normal(shift + 1.2 - 0.6 * place, 0.7, count) for place, (size, count) in enumerate(trials.items())
    }
    weights, between = rng.exponential(size=(6, 12)), rng.uniform(size=6)
    for share in (0.3, 0.5, 0.8):
        crossing, place = crossing_of(margins, share, weights, between)
        wanted = [crossing_by_hand(margins, share, *one) for one in zip(weights, between, strict=True)]
        assert place.tolist() == [place for _, place in wanted]
        np.testing.assert_allclose(crossing, [size for size, _ in wanted], rtol=1e-9)
        plain, at = crossing_of(margins, share)
        size, place = crossing_by_hand(margins, share, np.ones(12), 0.5)
        assert (plain.shape, at.tolist()) == ((1,), [place])
        assert plain[0] == pytest.approx(size, rel=1e-9)


@pytest.mark.parametrize(("low", "high"), [(3.0, -3.0), (1.0, -1.0), (0.9, -3.0), (3.0, -0.9)])
def test_margins_beyond_a_decade_do_not_say_where_the_crossing_is(low, high):
    found = crossing_of({4: np.full(3, low), 9: np.full(3, high)}, 0.5, np.ones((2, 3)), np.array([0.25, 0.5]))[0]
    parts = [0.25, 0.5] if low >= 1.0 and high <= -1.0 else [min(low, 1) / (min(low, 1) - max(high, -1))] * 2
    np.testing.assert_allclose(found, 4.0 * 2.25 ** np.array(parts), rtol=1e-12)


def test_replicates_weigh_a_trial_alike_at_all_sizes_and_in_all_settings():
    rng = np.random.default_rng(0)
    margins = {size: rng.normal(0.6 - 0.3 * place, 0.4, 10) for place, size in enumerate((4, 6, 9, 14))}
    margins[14] = margins[14][:6]
    found = replicates_of(margins, 0.5)
    weights = np.random.default_rng(0).exponential(size=(10, 400)).T  # of the trials, whatever the margins
    assert found.shape == (400,)
    np.testing.assert_allclose(found, np.minimum(crossing_of(margins, 0.5, weights)[0], 14), rtol=1e-12)
    few = replicates_of({size: values[:6] for size, values in margins.items()}, 0.5)
    wanted = crossing_of({size: values[:6] for size, values in margins.items()}, 0.5, weights[:, :6])[0]
    np.testing.assert_allclose(few, np.minimum(wanted, 14), rtol=1e-12)
    assert 0.05 < np.std(np.log(found)) < 0.5
    assert (replicates_of({4: np.ones(9), 7: np.ones(9)}, 0.5) == 7).all()  # no size succeeds
    assert (replicates_of({4: -np.ones(9), 7: -np.ones(9)}, 0.5) == 4).all()


def begun(tried=(), **options):
    """Return a search with the given numbers of successes among the trials of some sizes."""
    told = {"start": 16, "lower": 1, "upper": 16_384, "whole": True, "resolution": 0.05, "confidence": 0.95}
    search = ThresholdSearch(**told | {"share": 0.5, "batch": 8, "trials": 64, "budget": 1024} | options)
    for size, (count, total) in dict(tried).items():
        search.take(size, np.where(np.arange(total) < count, -0.5, 0.5))
    return search


NONE, ALL, SIX, TWO = (0, 8), (8, 8), (6, 8), (2, 8)
UNDECIDED = {22: (30, 64), 23: (34, 64)}
STEPS = {
    "the first size": ({}, {}, (16, 0, 8)),
    "twice the size": ({16: NONE}, {}, (32, 0, 8)),
    "half the size": ({16: ALL}, {}, (8, 0, 8)),
    "half an odd size": ({7: ALL, 16: ALL}, {}, (4, 0, 8)),
    "the end of the range": ({16: NONE}, {"upper": 20}, (20, 0, 8)),
    "the lower end": ({16: ALL}, {"lower": 11}, (11, 0, 8)),
    "more trials at the end": ({16: NONE, 20: TWO}, {"upper": 20}, (20, 8, 16)),
    "more trials at the lower end": ({16: ALL, 11: SIX}, {"lower": 11}, (11, 8, 16)),
    "near, up": ({100: NONE}, {"near": True}, (105, 0, 8)),
    "near, up twice": ({100: NONE, 105: NONE}, {"near": True}, (116, 0, 8)),
    "near, up three times": ({100: NONE, 105: NONE, 116: NONE}, {"near": True}, (141, 0, 8)),
    "near, up as far as twice": (dict.fromkeys((100, 105, 116, 141, 208), NONE), {"near": True}, (416, 0, 8)),
    "near, down": ({100: ALL}, {"near": True}, (95, 0, 8)),
    "near, down twice": ({100: ALL, 95: ALL}, {"near": True}, (86, 0, 8)),
    "near, the next number": ({4: NONE}, {"near": True}, (5, 0, 8)),
    "near, the number before": ({4: ALL}, {"near": True}, (3, 0, 8)),
    "near, real sizes": ({2.0: NONE}, {"near": True, "whole": False}, (2.1, 0, 8)),
    "between": ({16: NONE, 32: ALL}, {}, (23, 0, 8)),
    "between real sizes": ({2.0: NONE, 8.0: ALL}, {"whole": False}, (4.0, 0, 8)),
    "between near sizes": ({3: NONE, 5: ALL}, {}, (4, 0, 8)),
    "the size with fewer trials": ({22: (6, 16), 23: SIX}, {}, (23, 8, 16)),
    "the lower size first": ({22: TWO, 23: SIX}, {}, (22, 8, 16)),
    "a decided size is left": ({22: NONE, 23: SIX}, {}, (23, 8, 16)),
    "twice the trials": ({22: (6, 16), 23: (10, 16)}, {}, (22, 16, 32)),
    "no more than all trials": ({22: TWO, 23: SIX}, {"trials": 12}, (22, 8, 12)),
    "no more than the budget": ({22: TWO, 23: SIX}, {"budget": 19}, (22, 8, 11)),
    "outwards, down": (UNDECIDED, {}, (16, 0, 8)),
    "outwards, down to the range": (UNDECIDED, {"lower": 20}, (21, 0, 8)),
    "outwards, to a decided size": (UNDECIDED | {16: NONE}, {}, (19, 0, 8)),
    "outwards, at an undecided size": (UNDECIDED | {16: NONE, 19: TWO}, {}, (19, 8, 16)),
    "outwards, at that with fewer trials": (UNDECIDED | {12: NONE, 18: (4, 16), 20: TWO}, {}, (20, 8, 16)),
    "outwards, not at a size beyond": (UNDECIDED | {16: TWO, 20: NONE}, {}, (21, 0, 8)),
    "outwards, up": (UNDECIDED | {21: NONE}, {}, (33, 0, 8)),
    "outwards, up to the range": (UNDECIDED | {21: NONE}, {"upper": 30}, (26, 0, 8)),
    "outwards, up to a decided size": (UNDECIDED | {21: NONE, 33: ALL}, {}, (28, 0, 8)),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_next_trials_of_a_search(name):
    tried, options, wanted = STEPS[name]
    found = begun(tried, **options).wanted()
    assert found == (pytest.approx(wanted[0], rel=1e-12), *wanted[1:])


ENDS = {
    "at the end of the range": ({16: NONE, 20: NONE}, {"upper": 20}, "end"),
    "at the lower end": ({16: ALL, 11: ALL}, {"lower": 11}, "end"),
    "at an end with all trials": ({16: NONE, 20: (30, 64)}, {"upper": 20}, "end"),
    "at neighbours": ({22: NONE, 23: ALL}, {}, "resolved"),
    "at the resolution": ({2.0: NONE, 2.1: ALL}, {"whole": False}, "resolved"),
    "at the budget": ({16: NONE, 32: NONE}, {"budget": 16}, "budget"),
    "without sizes left": (UNDECIDED | {21: NONE, 24: ALL}, {}, "trials"),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_search_ends(name):
    tried, options, reason = ENDS[name]
    search = begun(tried, **options)
    assert search.wanted() is None
    assert search.stop_reason == reason


def test_the_looks_at_a_size_are_as_many_as_doublings_allow():
    """Nine of ten have probability 0.011 on either side: enough for two looks, 0.0125 each, and not for three."""
    for trials, looks in ((8, 1), (9, 2), (16, 2), (17, 3), (64, 4)):
        search = begun({4: (1, 10), 8: (9, 10)}, trials=trials)
        assert search.interval == ((4, 8) if looks < 3 else (0.0, math.inf))
    strict = begun({4: (1, 10), 8: (9, 10)}, trials=8, confidence=0.98)
    assert strict.interval == (0.0, math.inf)


def test_trials_of_a_size_are_added_up():
    search = begun({16: TWO})
    search.take(16, [0.25, -0.25])
    assert search.margins[16].tolist() == [-0.5, -0.5, *[0.5] * 6, 0.25, -0.25]
    assert search.total_trials == 10


def test_the_failing_end_lies_below_the_succeeding_one():
    search = begun({4: NONE, 8: ALL, 16: NONE, 32: NONE, 64: ALL})
    assert (search.interval, search.violations) == ((4, 8), 2)
    assert (begun({4: SIX}).interval, begun({4: NONE}).violations) == ((0.0, math.inf), 0)


def test_replicates_have_percentiles_and_beyond_them_the_ends_of_a_normal_law():
    values = np.random.default_rng(0).lognormal(1.0, 0.2, size=400)
    for confidence in (0.95, 0.5):
        tail = 50 * (1 - confidence)
        wanted = np.percentile(values, (tail, 100 - tail))
        assert replicates_interval(values, confidence) == pytest.approx(tuple(wanted), rel=1e-12)
    assert replicates_interval(values) == tuple(np.percentile(values, (2.5, 97.5)))
    logs, confidence = np.log(values), 1 - 1e-6  # less than one of 400 replicates lies beyond
    low, high = np.exp(logs.mean() + logs.std() * stats.norm.ppf([5e-7, 1 - 5e-7]))
    assert replicates_interval(values, confidence) == pytest.approx((low, high), rel=1e-6)
    assert low < values.min() < values.max() < high
    values[0] = 0.1
    assert replicates_interval(values, 0.999)[0] == pytest.approx(np.percentile(values, 0.05), rel=1e-12)  # it is lower
    assert replicates_interval(np.full(400, 3.0), 0.999) == pytest.approx((3.0, 3.0), rel=1e-12)
