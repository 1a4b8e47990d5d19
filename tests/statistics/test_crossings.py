"""The search for the smallest size: known success curves, coverage, and every step against its rule written out."""

import math

import numpy as np
import pytest
from scipy import stats

from linfed.statistics.crossings import ThresholdSearch, crossing_of, replicates_interval, replicates_of, verdict

OPTIONS = {
    **{"start": 16, "lower": 1, "upper": 16_384, "whole": True, "share": 0.5, "resolution": 0.05},
    **{"confidence": 0.95, "batch": 8, "trials": 64, "budget": 1024},
}


def curve(size, trials, *, middle=100.0, width=0.05, own=0.0, falling=False, seed=0):
    """Return the shortfalls of trials that succeed from their own sizes on, of logistic law around `middle`.

    `width` is the scale of what a trial has at all sizes, and `own` of what is drawn anew at each size.
    """
    shared = np.random.default_rng(seed).logistic(size=trials) * width
    fresh = np.random.default_rng((seed, int(1e6 * size))).logistic(size=trials) * own
    shortfalls = (math.log(middle) + shared + fresh - math.log(size)) / math.log(10)
    return -shortfalls if falling else shortfalls


def searched(options=None, **of_curve):
    """Return a finished search for a curve."""
    search = ThresholdSearch(**OPTIONS | (options or {}))
    while (wanted := search.wanted()) is not None:
        size, first, last = wanted
        search.take(size, curve(size, last, **of_curve)[first:])
    return search


def begun(tried=(), **options):
    """Return a search with the given numbers of successes among the trials of some sizes."""
    search = ThresholdSearch(**OPTIONS | options)
    for size, (count, total) in dict(tried).items():
        search.take(size, np.where(np.arange(total) < count, -0.5, 0.5))
    return search


# --- known success curves ------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("off", [1e-4, 0.97, 1.03, 1e4])
def test_where_a_search_from_near_begins_is_not_where_it_ends(off, whole):
    """And from near it takes three sizes at most."""
    for middle in (3.4, 99.5, 1234.5):
        start = min(max(1, round(off * middle) if whole else off * middle), 16_384)
        near = {"start": start, "whole": whole, "near": True, "trials": 8}
        search = searched(near, middle=middle, width=1e-12)
        low, high = search.interval
        assert search.stop_reason == "resolved"
        assert low < middle <= high
        assert high <= low * 1.05 * (1 + 1e-12) or (whole and high - low == 1)
        assert crossing_of(search.shortfalls, 0.5)[0] == pytest.approx(middle, rel=1e-9)
        assert len(search.shortfalls) <= (3 if 0.97 <= off <= 1.03 else 24)


@pytest.mark.long
@pytest.mark.parametrize(("share", "own"), [(0.5, 0.0), (0.5, 0.05), (0.8, 0.0)])
def test_the_interval_covers_and_the_bootstrap_has_its_width(share, own):
    """Paired and independent over sizes: 4 misses of 25 happen with probability below 0.04 at 95 %."""
    true = 100.0 * math.exp(0.05 * math.log(share / (1.0 - share)))
    searches = [searched({"share": share}, width=1e-12 if own else 0.05, own=own, seed=seed) for seed in range(25)]
    assert max(len(shortfalls) for one in searches for shortfalls in one.shortfalls.values()) <= 64
    missed = sum(not low < true <= high for low, high in (one.interval for one in searches))
    assert missed <= 3
    crossings = np.log([crossing_of(one.shortfalls, share)[0][0] for one in searches])
    assert abs(crossings.mean() - math.log(true)) < 0.01
    spread = np.std([np.log(replicates_of(one.shortfalls, share)) for one in searches[:5]], axis=1).mean()
    assert 0.4 < spread / crossings.std() < 2.5


def test_trials_are_spent_near_the_threshold():
    search = searched(middle=1000.5)
    tried = {size: len(shortfalls) for size, shortfalls in search.shortfalls.items()}
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
    search = begun({8: (9, 10), 4: (1, 10)}, start=8, upper=64)
    assert search.interval == (0, math.inf)
    search = begun({8: (9, 10), 4: (1, 10), 16: (10, 10), 2: (0, 10)}, start=8, upper=64)  # 0.001
    assert search.interval == (2, 16)


def test_ties_at_the_level_count_as_reached():
    assert verdict(np.zeros(64), 0.5, 0.01) == 1
    search = searched({"resolution": 1e-6}, middle=128.0, width=0.0)
    assert crossing_of(search.shortfalls, 0.5)[0][0] == 128.0


def test_success_that_falls_with_the_size_is_seen():
    assert searched({"start": 50}, falling=True, width=1e-3).violations == 0  # no size beyond was tried
    bump = searched({"start": 50}, width=1e-3)
    bump.take(400, np.full(64, 0.3))
    assert bump.violations == 1
    low, high = bump.interval
    assert low < 100.0 <= high


# --- formulas, written out -----------------------------------------------------------------------------------


def test_a_share_is_judged_by_both_binomial_tails():
    for total, share, error in ((8, 0.5, 0.00625), (10, 0.5, 0.0125), (20, 0.8, 0.02), (5, 0.3, 0.2), (9, 0.9, 0.1)):
        for count in range(total + 1):
            shortfalls = np.where(np.arange(total) < count, -0.5, 0.5)
            few = stats.binom.cdf(count, total, share) <= error
            many = stats.binom.sf(count - 1, total, share) <= error
            assert verdict(shortfalls, share, error) == int(many) - int(few)


def falling(values, weights):
    """Return the isotonic decreasing fit: the least of the largest means over intervals that contain a place."""
    places = range(len(values))

    def mean(i, k):
        return np.average(values[i : k + 1], weights=weights[i : k + 1])

    return [min(max(mean(i, k) for k in places[j:]) for i in places[: j + 1]) for j in places]


def crossing_by_hand(shortfalls, share, weights, between):
    """Return the size and the place at which one weighting's share-quantile crosses 0."""
    sizes, middles, counts = sorted(shortfalls), [], [len(shortfalls[size]) for size in sorted(shortfalls)]
    for size in sizes:
        pairs = sorted(zip(shortfalls[size], weights, strict=False))
        total, sums = sum(weight for _, weight in pairs), np.cumsum([weight for _, weight in pairs])
        middle = next(
            shortfall for (shortfall, _), up_to in zip(pairs, sums, strict=True) if up_to >= share * total - 1e-12
        )
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
    """Shortfalls that do not fall with the size, beyond a decade on some sides, of unequal numbers of trials."""
    rng = np.random.default_rng(int(10 * (shift + 5)))
    trials = {first: 9, 5: 12, 8: 12, 13: 7, 21: 10}
    shortfalls = {
        size: rng.normal(shift + 1.2 - 0.6 * place, 0.7, count) for place, (size, count) in enumerate(trials.items())
    }
    weights, between = rng.exponential(size=(6, 12)), rng.uniform(size=6)
    for share in (0.3, 0.5, 0.8):
        crossing, place = crossing_of(shortfalls, share, weights, between)
        wanted = [crossing_by_hand(shortfalls, share, *one) for one in zip(weights, between, strict=True)]
        assert place.tolist() == [place for _, place in wanted]
        np.testing.assert_allclose(crossing, [size for size, _ in wanted], rtol=1e-9)
        plain, at = crossing_of(shortfalls, share)
        size, place = crossing_by_hand(shortfalls, share, np.ones(12), 0.5)
        assert (plain.shape, at.tolist()) == ((1,), [place])
        assert plain[0] == pytest.approx(size, rel=1e-9)


@pytest.mark.parametrize(("low", "high"), [(3.0, -3.0), (1.0, -1.0), (0.9, -3.0), (3.0, -0.9)])
def test_margins_beyond_a_decade_do_not_say_where_the_crossing_is(low, high):
    found = crossing_of({4: np.full(3, low), 9: np.full(3, high)}, 0.5, np.ones((2, 3)), np.array([0.25, 0.5]))[0]
    parts = [0.25, 0.5] if low >= 1.0 and high <= -1.0 else [min(low, 1) / (min(low, 1) - max(high, -1))] * 2
    np.testing.assert_allclose(found, 4.0 * 2.25 ** np.array(parts), rtol=1e-12)


def test_replicates_weigh_a_trial_alike_at_all_sizes_and_in_all_settings():
    rng = np.random.default_rng(0)
    shortfalls = {size: rng.normal(0.6 - 0.3 * place, 0.4, 10) for place, size in enumerate((4, 6, 9, 14))}
    shortfalls[14] = shortfalls[14][:6]
    found = replicates_of(shortfalls, 0.5)
    weights = np.random.default_rng(0).exponential(size=(10, 400)).T  # of the trials, whatever the shortfalls
    assert found.shape == (400,)
    np.testing.assert_allclose(found, np.minimum(crossing_of(shortfalls, 0.5, weights)[0], 14), rtol=1e-12)
    few = replicates_of({size: values[:6] for size, values in shortfalls.items()}, 0.5)
    wanted = crossing_of({size: values[:6] for size, values in shortfalls.items()}, 0.5, weights[:, :6])[0]
    np.testing.assert_allclose(few, np.minimum(wanted, 14), rtol=1e-12)
    assert 0.05 < np.std(np.log(found)) < 0.5
    assert (replicates_of({4: np.ones(9), 7: np.ones(9)}, 0.5) == 7).all()  # no size succeeds
    assert (replicates_of({4: -np.ones(9), 7: -np.ones(9)}, 0.5) == 4).all()


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
    "between small sizes": ({1: NONE, 4: ALL}, {}, (2, 0, 8)),
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
    assert search.shortfalls[16].tolist() == [-0.5, -0.5, *[0.5] * 6, 0.25, -0.25]
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
