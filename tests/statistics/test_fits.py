"""Joint power laws: planted exponents, the offset, censored points, and intervals."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, stats

import linfed as lf
from linfed.statistics.fits import PowerLawFit
from tests.helpers import assert_one_line

N = np.array([50, 100, 200, 400, 100, 100, 100, 100, 100])
D = np.array([40, 40, 40, 40, 20, 80, 160, 40, 40])
K = np.array([2, 2, 2, 2, 2, 2, 2, 4, 8])
SIZES = {"n_clients": N, "dim": D, "rank": K}
M = K + 1 + 3.0 * D * K / N


def trials_of(middles, noise, seed, trials=25):
    """Return (points, trials) around some middles."""
    return middles[:, None] * np.exp(noise * np.random.default_rng(seed).standard_normal((len(middles), trials)))


def estimates(fit):
    return {name: value[0] for name, value in fit.exponents.items()}


# --- laws ----------------------------------------------------------------------------------------------------


def test_planted_exponents_come_back():
    found = lf.fit_power_law("m - k - 1 ~ n^a d^b k^c", SIZES | {"m": M})
    assert estimates(found) == pytest.approx({"a": -1.0, "b": 1.0, "c": 1.0}, abs=1e-9)
    assert found.constant[0] == pytest.approx(3.0)
    np.testing.assert_allclose(found.residuals, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.fitted, 3.0 * D * K / N)
    one_rank = lf.fit_power_law("m ~ n^a / k", {"n": [1.0, 2.0, 4.0], "m": [6.0, 12.0, 24.0], "k": 2})
    assert estimates(one_rank) == pytest.approx({"a": 1.0})
    assert one_rank.constant[0] == pytest.approx(12.0)  # a number holds for every point
    assert (found.reached, found.points, found.max_factor) == (9, 9, pytest.approx(1.0))
    assert {abs(value) < 1e-9 for value, *_ in found.curvature.values()} == {True}


def test_a_wrong_offset_bends_the_law_and_the_residuals_say_so():
    table = SIZES | {"m": trials_of(M - K - 1, 0.05, 0) + (K + 1)[:, None]}
    right, wrong = lf.fit_power_law("m - k - 1 ~ n^a d^b k^c", table), lf.fit_power_law("m ~ n^a d^b k^c", table)
    assert right.p_value > 0.01
    assert wrong.p_value < 1e-6
    assert right.curved == ()
    assert "a" in wrong.curved
    assert right.max_factor < 1.05 < wrong.max_factor
    assert -0.9 < wrong.exponents["a"][0] < -0.3
    low, high = right.exponents["a"][1:]
    assert low < -1.0 < high


def test_fixed_factors_quotients_and_functions_are_part_of_the_law():
    table = SIZES | {"m": 2.0 * D * np.log(N) ** 1.5 / np.sqrt(K) / (N + 1)}
    for formula in ("m ~ n^0 d log(n)^e / (k^(1/2) (n + 1))", "m ~ d log(n)^e k^-0.5 / (n + 1)"):
        assert estimates(lf.fit_power_law(formula, table)) == pytest.approx({"e": 1.5}, abs=1e-9)
    assert estimates(lf.fit_power_law("m ~ log(n)^e / (n + 1)^a d^b k^c", table))["a"] == pytest.approx(1.0, abs=1e-9)
    shared = lf.fit_power_law("m - k - 1 ~ (d k / n)^a", SIZES | {"m": M})
    assert estimates(shared) == pytest.approx({"a": 1.0}, abs=1e-9)
    assert estimates(lf.fit_power_law("m - k - 1 ~ d^a k^a n^-1", SIZES | {"m": M})) == pytest.approx(
        {"a": 1.0}, abs=1e-9
    )


def rejected(spread, tables, *, trials=20, common=0.0, bend=0.0):
    """Return how many tables of a law, or of a bent one, have p < 0.05."""
    x, count = 2.0 ** np.arange(10), 0
    law = x**-0.5 * np.exp(bend * (np.arange(10) - 4.5) ** 2)
    for seed in range(tables):
        rng = np.random.default_rng((seed, trials))
        noise = np.sqrt(1 - common) * rng.standard_normal((10, trials)) + np.sqrt(common) * rng.standard_normal(trials)
        found = lf.fit_power_law("y ~ x^a", {"x": x, "y": law[:, None] * np.exp(np.reshape(spread, (-1, 1)) * noise)})
        count += found.p_value < 0.05
    return count


SPREADS = {"equal": [0.3] * 10, "tenfold": np.geomspace(0.03, 0.3, 10), "ends": [0.3, *[0.03] * 8, 0.3]}


@pytest.mark.parametrize("spread", ["tenfold", "ends"])
def test_a_law_is_not_rejected_for_its_unequal_spreads(spread):
    """Squared residuals over their spreads rejected 35 and 86 % of these at a level of 5 %."""
    assert stats.binomtest(rejected(SPREADS[spread], 30), 30, 0.1, "greater").pvalue > 1e-3


def test_a_bent_law_is_rejected():
    assert rejected(SPREADS["equal"], 20, bend=0.02) >= 18
    assert rejected(SPREADS["equal"], 20, bend=0.01, common=0.95) >= 18  # what trials share cancels in residuals


@pytest.mark.long
@pytest.mark.parametrize("spread", list(SPREADS))
@pytest.mark.parametrize("trials", [10, 50])
def test_how_often_a_law_is_rejected(spread, trials):
    """At most 8 % of tables at a level of 5 %, of independent and of shared trials; each errs with probability 1e-4."""
    for common in (0.0, 0.8):
        count = rejected(SPREADS[spread], 300, trials=trials, common=common)
        assert stats.binomtest(count, 300, 0.08, "greater").pvalue > 1e-4


@pytest.mark.parametrize("trials", [None, 10])
def test_rounding_is_no_bend(trials):
    """Tables of an exact law, whose only deviations are rounding errors, are not bent, and their exponent is exact."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n, d = np.exp(rng.uniform(2, 7, (2, 12)))
        m = 3 + rng.uniform(0.1, 10) * d / n
        found = lf.fit_power_law(
            "m - 3 ~ n^a d^b", {"n": n, "d": d, "m": m if trials is None else np.tile(m, (trials, 1)).T}
        )
        assert found.curved == ()
        assert found.exponents["a"][1] <= -1.0 <= found.exponents["a"][2]
        assert found.exponents["a"][2] - found.exponents["a"][1] < 1e-8
        assert np.isnan(found.p_value)


@pytest.mark.parametrize("bend", [1e-6, -1e-6])
def test_a_small_bend_is_none_of_rounding(bend):
    x = 2.0 ** np.arange(8)
    found = lf.fit_power_law("y ~ x^a", {"x": x, "y": x * np.exp(bend * np.log(x) ** 2)})
    assert found.curvature["a"][0] == pytest.approx(2 * bend, rel=1e-3)
    assert found.curved == ("a",)


# --- formulas, written out -----------------------------------------------------------------------------------


def students(design, logs, confidence=0.95):
    """Return the least-squares coefficients and the reach of their Student intervals, by the normal equations."""
    covariance = np.linalg.inv(design.T @ design)
    found = covariance @ design.T @ logs
    freedom = len(logs) - design.shape[1]
    variance = np.sum((logs - design @ found) ** 2) / freedom
    return found, stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(variance * np.diag(covariance)), variance**0.5


def test_a_fit_over_residuals_is_that_of_the_normal_equations():
    y = 3.0 * D**0.7 / N * np.exp(0.1 * np.random.default_rng(3).standard_normal(9))
    logs, columns = np.log(2 * y) - 0.5 * np.log(K), [np.log(N), np.log(D)]
    design = np.column_stack([np.ones(9), *columns])
    for options, level in (({}, 0.95), ({"confidence": 0.6}, 0.6)):
        found = lf.fit_power_law("2 y ~ n^a d^b k^(1/2)", SIZES | {"y": y}, **options)
        middle, reach, scatter = students(design, logs, level)
        for place, name in enumerate(("a", "b"), start=1):
            wanted = middle[place] + reach[place] * np.array([0, -1, 1])
            np.testing.assert_allclose(found.exponents[name], wanted, atol=1e-8)
            bent = np.column_stack([design, (columns[place - 1] - columns[place - 1].mean()) ** 2])
            curved, curved_reach, _ = students(bent, logs, level)
            wanted = 2 * (curved[-1] + curved_reach[-1] * np.array([0, -1, 1]))
            np.testing.assert_allclose(found.curvature[name], wanted, atol=1e-7)
        np.testing.assert_allclose(found.constant, np.exp(middle[0] + reach[0] * np.array([0, -1, 1])), rtol=1e-7)
        np.testing.assert_allclose(found.fitted, np.exp(design @ middle) * K**0.5, rtol=1e-10)
        np.testing.assert_allclose(found.residuals, logs - design @ middle, atol=1e-10)
        assert found.scatter == pytest.approx(scatter, rel=1e-8)
        assert np.isnan(found.spread).all()
        assert found.max_factor == pytest.approx(np.exp(np.abs(logs - design @ middle).max()), rel=1e-8)


def test_a_fit_over_trials_is_that_of_resampled_medians():
    """Also where a resampled median is below the offset: it counts as a thousandth of the given left side."""
    x, rng = np.array([1.0, 2.0, 3.0, 5.0, 9.0]), np.random.default_rng(0)
    trials = 3 + 2.0 * x[:, None] ** -0.5 * np.exp(0.2 * rng.standard_normal((5, 6)))
    trials[4, :2] = 2.9
    chosen = np.random.default_rng(0).integers(6, size=(400, 6))
    middles = np.median(trials, axis=1) - 3
    medians = np.array([np.median(row[chosen], axis=1) for row in trials]) - 3
    assert (medians <= 0).any()
    logs, resampled = np.log(middles), np.log(np.maximum(medians, 1e-3 * middles[:, None]))
    design = np.column_stack([np.ones(5), np.log(x)])
    solve = np.linalg.inv(design.T @ design) @ design.T
    for options, ends in (({}, [2.5, 97.5]), ({"confidence": 0.7}, [15.0, 85.0])):
        found = lf.fit_power_law("m - 3 ~ x^a", {"x": x, "m": trials}, **options)
        lows, highs = np.percentile(solve @ resampled, ends, axis=1)
        middle = solve @ logs
        np.testing.assert_allclose(found.exponents["a"], [middle[1], lows[1], highs[1]], atol=1e-8)
        np.testing.assert_allclose(np.log(found.constant), [middle[0], lows[0], highs[0]], atol=1e-8)
    np.testing.assert_allclose(found.spread, resampled.std(axis=1), rtol=1e-10)
    covariance = np.cov(resampled - design @ solve @ resampled)
    mean, square = np.trace(covariance), np.trace(covariance @ covariance)
    residuals = logs - design @ middle
    wanted = stats.chi2.sf(np.sum(residuals**2) * mean / square, mean**2 / square)
    assert found.p_value == pytest.approx(wanted, rel=1e-6)
    assert (found.over, found.confidence, found.reached) == ("trials", 0.7, 5)


def test_as_many_points_as_coefficients_leave_no_scatter():
    x, trials = np.array([1.0, 2.0, 5.0]), trials_of(np.array([1.0, 3.0, 4.0]), 0.1, 0, trials=6)
    two = lf.fit_power_law("y ~ x^a", {"x": x[:2], "y": [1.0, 3.0]})
    assert (two.scatter, two.exponents["a"][1:], two.curvature) == (0.0, (-np.inf, np.inf), {})
    assert np.isnan(two.p_value)
    three = lf.fit_power_law("y ~ x^a", {"x": x, "y": [1.0, 3.0, 4.0]})
    assert three.curvature == {}  # three coefficients would fit three points
    sizes = {"x": [1.0, 2.0, 5.0, 7.0], "y": [1.0, 3.0, 4.0, 6.0]}
    bounded = lf.fit_power_law("y ~ x^a", sizes, censored=["below", "", "", ""])
    assert bounded.curvature == {}  # nor the three that are known
    assert np.isfinite(three.exponents["a"]).all()
    assert "a" in lf.fit_power_law("y ~ x^a", {"x": x, "y": trials}).curvature  # the trials vary
    assert np.isnan(lf.fit_power_law("y ~ x^a", {"x": x[:2], "y": trials[:2]}).p_value)
    assert "a" in lf.fit_power_law("y ~ x^a", {"x": [1.0, 2.0, 5.0, 7.0], "y": [1.0, 3.0, 4.0, 6.0]}).curvature
    assert lf.fit_power_law("y ~ x^a", {"x": [1.0, 1.0, 2.0, 2.0], "y": [1.0, 3.0, 4.0, 6.0]}).curvature == {}


def test_a_censored_fit_is_the_most_likely_one():
    """As a search without gradients finds it, with points censored on both sides."""
    rng = np.random.default_rng(0)
    x = np.repeat([1.0, 2.0, 4.0, 8.0], 4)
    logs = np.log(2.0) - 0.5 * np.log(x) + 0.4 * rng.standard_normal(16)
    words = np.where(logs > 0.8, "above", np.where(logs < -0.6, "below", ""))
    logs = np.clip(logs, -0.6, 0.8)
    assert {*words} == {"", "above", "below"}

    def loss(at):
        missed = (logs - at[0] - at[1] * np.log(x)) / np.exp(at[2])
        known = stats.norm.logpdf(missed[words == ""]) - at[2]
        beyond = stats.norm.logsf(missed[words == "above"]), stats.norm.logcdf(missed[words == "below"])
        return -sum(one.sum() for one in (known, *beyond))

    best = optimize.minimize(loss, [0.5, -0.5, -1.0], method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10}).x
    found = lf.fit_power_law("y ~ x^a", {"x": x, "y": np.exp(logs)}, censored=words)
    assert (np.log(found.constant[0]), found.exponents["a"][0]) == pytest.approx(best[:2], abs=1e-3)
    assert found.scatter == pytest.approx(np.exp(best[2]), rel=2e-3)
    known = words == ""
    assert (found.reached, found.above, found.below) == tuple((words == one).sum() for one in ("", "above", "below"))
    assert np.isnan(found.residuals).tolist() == (~known).tolist()
    # The intervals are Student's, from the points that are known.
    design = np.column_stack([np.ones(known.sum()), np.log(x[known])])
    freedom, left = known.sum() - 2, found.residuals[known]
    error = np.sqrt(np.sum(left**2) / freedom * np.linalg.inv(design.T @ design)[1, 1])
    reach = stats.t.ppf(0.975, freedom) * error
    wanted = found.exponents["a"][0] + reach * np.array([-1, 1])
    np.testing.assert_allclose(found.exponents["a"][1:], wanted, atol=1e-8)


# --- censored points, and sizes that a search found ----------------------------------------------------------


@pytest.mark.long
def test_the_sizes_that_least_finds_are_fitted():
    run = lf.Run(
        algorithm=lf.FedRep(rank=2, step_size=0.25, init=lf.AtDistance(0.001)),
        problem=lf.SharedRepresentation(n_clients=10, dim=200, rank=2, condition_number=1.0),
        data=lf.FreshSamples(n_samples=8),
        n_rounds=10,
        engine="chain",
    )
    cells = lf.grid(run, **{"problem.dim": (500, 1000, 2000)})
    table = lf.find_smallest("data.n_samples", cells, reaches=lf.below("subspace_distance", 0.001), trials=16, lower=4)
    found = lf.fit_power_law("m ~ (d - k + 1)^b", table)
    assert found.exponents["b"][0] == pytest.approx(1.0, abs=0.15)
    assert (found.reached, found.over) == (3, "trials")


def sizes_found(sizes, trials, share=0.5):
    """Return the table of a search for the smallest m at several n: a median over trials, and its replicates."""
    rows = [
        {"n_clients": 50.0 * 2**i, "n_samples": m, "path": "data.n_samples", "crossing": m, "censored": "",
         "low": m, "high": m, "replicates": m * np.ones(200), "count": trials, "share": share}
        for i, m in enumerate(sizes)
    ]  # fmt: skip
    return SimpleNamespace(rows=rows)


@pytest.mark.parametrize(
    ("share", "trials", "over"),
    [
        (0.5, [3, 2], "residuals"),
        (0.5, [5, 4], "residuals"),
        (0.5, [6, 5], "trials"),
        (0.9, [35], "residuals"),
        (0.9, [36], "trials"),
        (0.1, [35], "residuals"),
        (0.1, [36], "trials"),
    ],
)
def test_with_few_trials_the_intervals_do_not_come_from_them(share, trials, over):
    """No replicate lies beyond the largest trial, which is below the 90 % quantile with probability 0.9^trials."""
    found = lf.fit_power_law("m ~ n^a", sizes_found([8.0, 4.1, 2.0, 1.02], trials, share), confidence=0.5)
    assert found.over == over
    assert found.exponents["a"][0] == pytest.approx(-1.0, abs=0.02)
    assert str(found).endswith(f"(50 % over {over})")


def test_a_column_of_bounds_is_used():
    """m = d exactly, and for d = 64 only the bound m > 8 is known."""
    table = {"d": [1, 2, 4, 8, 64], "m": [1, 2, 4, 8, 8], "censored": [""] * 4 + ["above"]}
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    for found in (lf.fit_power_law("m ~ d^a", table), lf.fit_power_law("m ~ d^a", lf.Table(rows))):
        assert found.exponents["a"][0] == pytest.approx(1.0, abs=1e-3)
        assert (found.reached, found.above) == (4, 1)
    known = lf.fit_power_law("m ~ d^a", table, censored=[""] * 5)
    assert (known.exponents["a"][0], known.reached) == (pytest.approx(0.491, abs=0.001), 5)
    for bad in ([False] * 4 + [True], [""] * 4 + [np.nan], [""] * 4 + ["over"]):
        with pytest.raises(ValueError, match=r"censored = .* must contain '', 'above' or 'below'"):
            lf.fit_power_law("m ~ d^a", table | {"censored": bad})


@pytest.mark.parametrize(
    ("formula", "m", "smallest"),
    [
        ("m - k - 1 ~ d^a", [5, 5, 5, 8, 17], 3),
        ("m - k - 1 ~ d^a", [6, 7, 8, 9, 17], 0),
        ("m ~ d^a", [1, 1, 2, 3, 4], 2),
        ("m ~ d^a", [5, 5, 5, 8, 17], 0),
        ("m ~ d^a", [0.9, 0.8, 0.7, 0.5, 0.1], 0),  # no sizes
        ("m - k + 3 ~ d^a", [0.5, 0.75, 1.0, 2.0, 4.0], 0),
        ("m - k - 1 ~ d^a", [[5, 5, 5, 5, 6, 5], [6, 5, 5, 5, 5, 5], [6, 6, 6, 6, 6, 6], [9] * 6, [12] * 6], 2),
    ],
)
def test_points_at_the_smallest_size_are_noted(formula, m, smallest):
    found = lf.fit_power_law(formula, {"d": [10, 20, 40, 80, 160], "k": [3] * 5, "m": m})
    note = f"; {smallest} at the smallest size (left side at most 1), which flattens the power law"
    assert (found.smallest, note in str(found)) == (smallest, smallest > 0)
    table = {"d": [10, 20, 40, 80, 160], "k": [3] * 5, "m": m}
    bounded = lf.fit_power_law(formula, table, censored=["below", "", "", "", ""])
    assert bounded.smallest == max(0, smallest - 1)


# --- texts and invalid arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("curvature", "bent"),
    [
        ({"a": (0.3, 0.1, 0.5), "b": (-0.2, -0.4, -0.1)}, "; curvature: a by +0.30, b by -0.20"),
        ({"a": (0.3, 0.1, 0.5), "b": (0.1, 0.0, 0.4)}, "; curvature: a by +0.30"),
        ({"a": (-0.1, -0.4, 0.0)}, "; no curvature detected"),
        ({}, ""),
    ],
)
def test_all_parts_of_a_fits_text(curvature, bent):
    fit = PowerLawFit(
        formula="m ~ n^a d^b", exponents={"a": (-1.0, -1.25, -0.75), "b": (0.5, 0.375, 0.625)},
        constant=(3.0, 2.5, np.inf), fitted=np.ones(7), residuals=np.array([0.1, -0.2, np.nan, 0.0, 0.1, np.nan, 0.0]),
        spread=np.ones(7), scatter=0.1, curvature=curvature, p_value=np.nan if bent else 0.04, reached=4, above=2,
        below=1, over="trials", confidence=0.9,
    )  # fmt: skip
    lack = "" if bent else ", p = 0.04"
    assert str(fit) == (
        "m ~ n^a d^b, constant 3 [2.5, -], a = -1.000 [-1.250, -0.750], b = 0.500 [0.375, 0.625]; 4 of 7 reached "
        f"(2 above, 1 below); within a factor 1.221{lack}{bent} (90 % over trials)"
    )


SEVERAL = {"n": [1, 2, 3, 2], "d": [1, 1, 1, 2], "m": [1, 2, 3, 4]}
AMBIGUOUS = [{"a.size": 1, "b.size": 2, "m": 3.0}, {"a.size": 2, "b.size": 2, "m": 3.0}]
RAGGED = np.array([np.ones(1), np.ones(2), np.ones(1)], dtype=object)
CURVES = [{"n": n, "error": lf.LabeledArray(np.ones((3, 5)) / n, round=range(5))} for n in (2, 4, 8)]
BAD = {
    "a negative side": ("m - 100 ~ n^a", SIZES | {"m": M}, {}, ["m - 100 = ", "at point 0"]),
    "an infinite side": ("m ~ n^a", SEVERAL | {"m": [1, np.inf, 1, 1]}, {}, ["m = inf at point 1"]),
    "a side that is no number": ("m ~ n^a", SEVERAL | {"m": [1, np.nan, 1, 1]}, {}, ["m = nan at point 1"]),
    "a factor of 0": ("m ~ (k - 2)^a", SIZES | {"m": M}, {}, ["k - 2 = 0 at point 0"]),
    "the same factor twice": ("m ~ n^a (2 n)^b", SIZES | {"m": M}, {}, ["exponent 'b' is not determined"]),
    "columns of other lengths": ("m ~ n^a", {"n": [1, 2], "m": [1, 2, 3]}, {}, ["columns of lengths"]),
    "no rows": ("m ~ n^a", lf.Table([]), {}, ["a table with rows"]),
    "words": ("m ~ n^a d^b", SEVERAL, {"censored": ["no", "", "", ""]}, ["censored = "]),
    "one known point": (
        "m ~ n^a d^b",
        SEVERAL,
        {"censored": ["above", "below", "", "above"]},
        ["'a' is not determined", "1 of 4 points"],
    ),
    "one known size": (
        "m ~ n^a d^b",
        SEVERAL,
        {"censored": ["", "", "", "above"]},
        ["'b' is not determined", "3 of 4 points"],
    ),
    "no known point": ("m ~ n^a d^b", SEVERAL, {"censored": ["above"] * 4}, ["every point is censored"]),
    "two columns of one name": ("m ~ size^e", lf.Table(AMBIGUOUS), {}, ["'size' is ambiguous", "'a.size'", "'b.size'"]),
    "trials of a factor": ("y ~ x^a", {"x": np.ones((3, 4)), "y": [1.0, 2.0, 3.0]}, {}, ["column 'x'"]),
    "trials of two columns": (
        "u + v ~ z^a",
        {"z": [1.0, 2.0, 3.0], "u": np.ones((3, 4)), "v": np.ones((3, 4))},
        {},
        ["only one column may have trials"],
    ),
    "other trials at other points": (
        "u + v ~ z^a",
        {"z": [1.0, 2.0, 3.0], "u": RAGGED, "v": 1.0},
        {},
        ["the same number of trials"],
    ),
    "n_rounds": ("error ~ n^a", lf.Table(CURVES), {}, ["column 'error'", "one number per trial"]),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_tables_are_named(name):
    formula, table, options, fragments = BAD[name]
    assert_one_line(lambda: lf.fit_power_law(formula, table, **options), fragments)
