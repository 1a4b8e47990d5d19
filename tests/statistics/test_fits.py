"""Joint power laws: planted exponents, the offset, censored points, intervals, and invalid formulas."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, stats

import linfed as lf
from linfed.statistics.fits import PowerLawFit
from linfed.statistics.formulas import format_number, names, parsed, value, written

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


@pytest.mark.parametrize("over", ["trials", "residuals"])
def test_the_interval_covers_about_as_often_as_it_says(over):
    """Of 30 tables 95 % should; 24 or fewer happen with probability below 0.003, and the bootstrap of 25 is short."""
    covered = 0
    for seed in range(30):
        noisy = trials_of(M - K - 1, 0.3, seed)
        left = noisy if over == "trials" else noisy[:, 0]
        found = lf.fit_power_law("left ~ n^a d^b k^c", SIZES | {"left": left})
        assert found.over == over
        covered += found.exponents["b"][1] <= 1.0 <= found.exponents["b"][2]
    assert covered >= 25


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
    """Of exact laws; all 30 tables with trials used to be bent, and the exponent lay outside of 27 intervals."""
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


def test_a_small_bend_is_none_of_rounding():
    x = 2.0 ** np.arange(8)
    found = lf.fit_power_law("y ~ x^a", {"x": x, "y": x * np.exp(1e-6 * np.log(x) ** 2)})
    assert found.curvature["a"][0] == pytest.approx(2e-6, rel=1e-3)
    assert found.curved == ("a",)


def test_curvature_is_the_change_of_the_exponent():
    """Of y = x^(1 + 0.1 log x) the local exponent 1 + 0.2 log x grows by 0.2 over a factor e."""
    x = np.geomspace(1.0, 50.0, 9)
    found = lf.fit_power_law("y ~ x^a", {"x": x, "y": x ** (1 + 0.1 * np.log(x))}).curvature["a"]
    np.testing.assert_allclose(found, 0.2, atol=1e-8)


def test_intervals_over_residuals_are_students():
    """As SciPy's linear regression has them, with points - 2 degrees of freedom."""
    x = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
    y = x**1.5 * np.exp(0.1 * np.random.default_rng(0).standard_normal(5))
    exact = stats.linregress(np.log(x), np.log(y))
    reach = stats.t.ppf(0.975, 3) * exact.stderr
    found = lf.fit_power_law("y ~ x^a", {"x": x, "y": y}).exponents["a"]
    np.testing.assert_allclose(found, [exact.slope, exact.slope - reach, exact.slope + reach], atol=1e-8)


# --- censoring -----------------------------------------------------------------------------------------------


def test_censored_points_are_not_left_out():
    """What exceeds 60 is known to do so: leaving it out biases the exponent, counting it does not."""
    rng = np.random.default_rng(0)
    x = np.tile([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 40)
    y = 3.0 * x * np.exp(0.8 * rng.standard_normal(len(x)))
    above = y > 60
    words = np.where(above, "above", "")
    counted = lf.fit_power_law("y ~ x^a", {"x": x, "y": np.minimum(y, 60)}, censored=words)
    dropped = lf.fit_power_law("y ~ x^a", {"x": x[~above], "y": y[~above]})
    low, high = counted.exponents["a"][1:]
    assert low < 1.0 < high
    assert dropped.exponents["a"][2] < 0.95
    assert counted.scatter == pytest.approx(0.8, rel=0.15)
    assert (counted.reached, counted.above, counted.points) == (240 - above.sum(), above.sum(), 240)
    assert f"{240 - above.sum()} of 240 reached ({above.sum()} above)" in str(counted)
    _, low, high = counted.constant
    assert low < high
    assert f"[{low:.3g}, {high:.3g}]" in str(counted)
    assert np.isnan(counted.residuals[above]).all()
    # The same upside down.
    mirrored = lf.fit_power_law("z ~ x^a", {"x": x, "z": 1 / np.minimum(y, 60)}, censored=np.where(above, "below", ""))
    assert mirrored.exponents["a"][0] == pytest.approx(-counted.exponents["a"][0], rel=1e-4)
    assert mirrored.below == above.sum()


@pytest.mark.long
def test_least_sizes_come_with_their_replicates_and_bounds():
    rows = []
    rng = np.random.default_rng(1)
    for n, d in zip([50, 100, 200, 100, 100], [40, 40, 40, 20, 80], strict=True):
        crossing = 3 + 90.0 * d / n
        replicates = 3 + 90.0 * d / n * np.exp(0.02 * rng.standard_normal(100))
        out = crossing > 70
        rows.append(
            {
                "base.problem.n_clients": n,
                "base.problem.dim": d,
                "base.problem.rank": 2,
                "base.algorithm.rank": 2,
                "path": "data.n_samples",
                "n_samples": np.nan if out else np.ceil(crossing),
                "crossing": np.nan if out else crossing,
                "low": 64.0 if out else crossing - 1,
                "high": np.inf if out else crossing + 1,
                "censored": "above" if out else "",
                "replicates": lf.LabeledArray(replicates, replicate=range(100)),
            }
        )
    found = lf.fit_power_law("m - k - 1 ~ n^a d^b", lf.Table(rows))
    assert (found.reached, found.above, found.over) == (3, 2, "trials")
    assert estimates(found) == pytest.approx({"a": -1.0, "b": 1.0}, abs=0.02)
    assert 0.005 < found.exponents["b"][2] - found.exponents["b"][1] < 0.2


@pytest.mark.long
def test_the_sizes_that_least_finds_are_fitted():
    run = lf.Run(
        algorithm=lf.FedRep(rank=2, step_size=0.25, init=lf.AtDistance(0.001)),
        problem=lf.SharedRepresentation(n_clients=10, dim=200, rank=2, condition_number=1.0),
        data=lf.FreshSamples(n_samples=8),
        rounds=10,
        engine="chain",
    )
    cells = lf.grid(run, **{"problem.dim": (500, 1000, 2000)})
    table = lf.find_smallest("data.n_samples", cells, reaches=lf.below("subspace_distance", 0.001), trials=16, lower=4)
    found = lf.fit_power_law("m ~ (d - k + 1)^b", table)
    assert found.exponents["b"][0] == pytest.approx(1.0, abs=0.15)
    assert (found.reached, found.over) == (3, "trials")


def test_with_few_trials_the_intervals_do_not_come_from_them():
    """As for columns of trials: resamples of three trials would give intervals that are far too short."""
    points = 5
    n = np.array([50.0, 100.0, 200.0, 400.0, 800.0])
    m = 400 / n * np.exp([0.01, -0.02, 0.0, 0.02, -0.01])
    columns = {
        "n_clients": n.tolist(),
        "n_samples": m.tolist(),
        "path": ["data.n_samples"] * points,
        "crossing": m.tolist(),
        "low": m.tolist(),
        "high": m.tolist(),
        "censored": [""] * points,
        "replicates": (m[:, None] * np.ones(200)).tolist(),
    }
    over = {}
    for trials in (3, 5, 6):
        counted = columns | {"count": [[trials, trials - 1]] * points}
        rows = [dict(zip(counted, row, strict=True)) for row in zip(*counted.values(), strict=True)]
        found = lf.fit_power_law("m ~ n^a", SimpleNamespace(rows=rows))
        over[trials] = found.over
        assert found.exponents["a"][0] == pytest.approx(-1.0, abs=0.02)
        assert str(found).endswith(f"(95 % over {found.over})")
    half = lf.fit_power_law("m ~ n^a", SimpleNamespace(rows=rows), confidence=0.5)
    assert str(half).endswith("(50 % over trials)")
    assert over == {3: "residuals", 5: "residuals", 6: "trials"}


def test_a_share_far_from_a_half_needs_more_trials():
    """No replicate lies beyond the largest trial, which is below the 90 % quantile with probability 0.9^trials."""
    m = np.array([8.0, 4.1, 2.0, 1.02])
    few, many = "residuals", "trials"
    for share, trials, over in ((0.5, 6, many), (0.9, 35, few), (0.9, 36, many), (0.1, 35, few), (0.1, 36, many)):
        rows = [
            {"n_clients": 50.0 * 2**i, "n_samples": m[i], "path": "data.n_samples", "crossing": m[i], "censored": "",
             "low": m[i], "high": m[i], "replicates": m[i] * np.ones(200), "count": [trials], "share": share}
            for i in range(4)
        ]  # fmt: skip
        assert lf.fit_power_law("m ~ n^a", SimpleNamespace(rows=rows)).over == over


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


# --- what is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("m n^a", "two sides with one ~"),
        ("m ~ n^a ~ d", "two sides with one ~"),
        ("m ~ n^", "is not an expression"),
        ("m ~ n^(a + b)", r"exponent 'a \+ b' must be a name or a number"),
        ("m ~ open(n)^a", "must be a column, a number or one of"),
        ("m ~ n.real^a", "must be a column, a number or one of"),
        ("m ~ rnak^a", r"'rnak', which is not a column \(did you mean 'rank'\?\); known letters: n, d, k"),
        ("m ~ C n^a", "'C', which is not a column"),
        ("m ~ n^a a^b", "uses 'a' both as an exponent and as a column"),
        ("m - 100 ~ n^a", r"m - 100 = -94 at point 0 must be positive"),
        ("m ~ n^a (2 n)^b", "exponent 'b' is not determined"),
        ("m ~ (k - 2)^a", r"k - 2 = 0 at point 0"),
        (3, "formula = 3"),
        pytest.param(f"m ~ {'n^a ' * 5000}", "must have at most 200 characters", id="many factors"),
        pytest.param(f"m ~ ({'n + ' * 1000} n)^a", "must have at most 200 characters", id="many terms"),
    ],
)
def test_formulas_that_cannot_be_meant_are_named(formula, said):
    with pytest.raises(ValueError, match=said):
        lf.fit_power_law(formula, SIZES | {"m": np.full(9, 6)})


def test_tables_that_cannot_be_meant_are_named():
    with pytest.raises(ValueError, match="columns of lengths"):
        lf.fit_power_law("m ~ n^a", {"n": [1, 2], "m": [1, 2, 3]})
    with pytest.raises(ValueError, match="must be a table with rows"):
        lf.fit_power_law("m ~ n^a", lf.Table([]))
    with pytest.raises(ValueError, match=r"censored = .* must contain"):
        lf.fit_power_law("m ~ n^a", {"n": [1, 2], "m": [1, 2]}, censored=["no", ""])
    several = {"n": [1, 2, 3, 2], "d": [1, 1, 1, 2], "m": [1, 2, 3, 4]}
    for words, said in (
        (
            ["above", "below", "", "above"],
            r"'a' is not determined: over the 1 of 4 points that are not censored its factor",
        ),
        (["", "", "", "above"], r"'b' is not determined: over the 3 of 4 points that are not censored its factor"),
        (["above"] * 4, "every point is censored"),
    ):
        with pytest.raises(ValueError, match=said):
            lf.fit_power_law("m ~ n^a d^b", several, censored=words)
    rows = [{"a.size": 1, "b.size": 2, "m": 3.0}, {"a.size": 2, "b.size": 2, "m": 3.0}]
    with pytest.raises(ValueError, match=r"'size' is ambiguous: 'a.size' and 'b.size' differ"):
        lf.fit_power_law("m ~ size^e", lf.Table(rows))


def test_a_fit_reads_as_one_line():
    text = str(lf.fit_power_law("m - k - 1 ~ n^a d^b k^c", SIZES | {"m": M}))
    assert "\n" not in text
    assert text.startswith("m - k - 1 ~ n^a d^b k^c, constant 3 [")
    assert "a = -1.000 [" in text
    assert "9 of 9 reached; within a factor 1.000" in text
    assert parsed("m ~ n^a d^b").exponents == ["a", "b"]


def test_a_column_along_the_rounds_has_too_many_numbers():
    table = lf.Table([{"n": n, "error": lf.LabeledArray(np.ones((3, 5)) / n, round=range(5))} for n in (2, 4, 8)])
    with pytest.raises(
        ValueError, match=r"column 'error' .* assign a column with one number per trial, e.g. of the last"
    ):
        lf.fit_power_law("error ~ n^a", table)
    last = table.assign(end=lambda row: row["error"][:, -1])
    assert lf.fit_power_law("end ~ n^a", last).exponents["a"][0] == pytest.approx(-1.0)


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
    assert np.isfinite(three.exponents["a"]).all()
    assert "a" in lf.fit_power_law("y ~ x^a", {"x": x, "y": trials}).curvature  # the trials vary
    assert np.isnan(lf.fit_power_law("y ~ x^a", {"x": x[:2], "y": trials[:2]}).p_value)
    assert "a" in lf.fit_power_law("y ~ x^a", {"x": [1.0, 2.0, 5.0, 7.0], "y": [1.0, 3.0, 4.0, 6.0]}).curvature
    assert lf.fit_power_law("y ~ x^a", {"x": [1.0, 1.0, 2.0, 2.0], "y": [1.0, 3.0, 4.0, 6.0]}).curvature == {}


def test_a_law_may_bend_downwards():
    x = 2.0 ** np.arange(8)
    found = lf.fit_power_law("y ~ x^a", {"x": x, "y": x * np.exp(-1e-6 * np.log(x) ** 2)})
    assert found.curvature["a"][0] == pytest.approx(-2e-6, rel=1e-3)
    assert found.curved == ("a",)


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


@pytest.mark.parametrize(
    "text",
    ["2 * n - k / 4 + 3^2", "-n + (+k) - -3", "log(n) sqrt(k) exp(0.5)", "2 n (k + 1) n", "n^2^0.5 / k / 3", "7"],
)
def test_an_expression_has_the_value_that_python_gives_it(text):
    formula, sizes = parsed(f"{text} ~ d^a"), {"n": 5.0, "k": 3.0}
    python = {"2 n (k + 1) n": "2 * n * (k + 1) * n", "log(n) sqrt(k) exp(0.5)": "log(n) * sqrt(k) * exp(0.5)"}
    wanted = eval(python.get(text, text).replace("^", "**"), {**vars(math)}, sizes)
    assert value(formula.left, sizes.__getitem__) == pytest.approx(wanted, rel=1e-12)
    assert (formula.left_text, formula.exponents) == (text, ["a"])


def test_a_quotient_turns_the_signs_of_its_powers():
    formula = parsed("m ~ p^2 / (q / r^x / s^(1/2)) t^-1.5 / u^x (n + 1)")
    found = [(written(factor.base), factor.power, factor.exponent) for factor in formula.factors]
    wanted = [("p", 2.0, ""), ("q", -1.0, ""), ("r", 1.0, "x"), ("s", 0.5, ""), ("t", -1.5, ""), ("u", -1.0, "x")]
    assert found == [*wanted, ("n + 1", 1.0, "")]
    assert formula.exponents == ["x"]
    assert names(parsed("n log(k) + n^d / 2 ~ p^x").left) == ["n", "k", "d"]


def test_a_column_has_a_full_name_a_last_part_or_a_letter():
    rows = [{"a.n_clients": n, "b.n_clients": n, "a.k": 1.0, "b.k": 2.0, "k": 2.0 * n, "y": 3.0 / n} for n in (2, 4, 8)]
    table = lf.Table(rows)
    assert estimates(lf.fit_power_law("y ~ n^a", table)) == pytest.approx({"a": -1.0})
    assert estimates(lf.fit_power_law("y ~ k^a", table)) == pytest.approx({"a": -1.0})  # its full name comes first
    with pytest.raises(ValueError, match=r"'k' is ambiguous: 'a\.k' and 'b\.k' differ"):
        lf.fit_power_law("y ~ k^a", lf.Table([{k: v for k, v in row.items() if k != "k"} for row in rows]))


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_a_side_must_be_positive_and_finite(wrong):
    with pytest.raises(ValueError, match=rf"^y = {wrong:g} at point 1 must be positive and finite$"):
        lf.fit_power_law("y ~ x^a", {"x": [1.0, 2.0, 3.0], "y": [1.0, wrong, wrong]})


def test_numbers_of_trials_belong_to_the_left_side():
    columns = {"x": np.ones((3, 4)), "y": [1.0, 2.0, 3.0]}
    with pytest.raises(ValueError, match=r"column 'x' of the formula must contain numbers, but contains [^;]*$"):
        lf.fit_power_law("y ~ x^a", columns)
    ragged = np.array([np.ones(1), np.ones(2), np.ones(1)], dtype=object)
    for two in ({"u": np.ones((3, 4)), "v": np.ones((3, 4))}, {"u": ragged, "v": 1.0}):
        with pytest.raises(
            ValueError, match=r"only one column may have trials|the same number of trials at all points"
        ):
            lf.fit_power_law("u + v ~ z^a", {"z": [1.0, 2.0, 3.0], **two})


def test_a_number_has_three_digits():
    assert [format_number(one) for one in (3.14159, 1e-7, np.inf, np.nan)] == ["3.14", "1e-07", "-", "-"]
