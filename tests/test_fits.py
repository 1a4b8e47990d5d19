"""Joint power laws: planted exponents, the offset, censored points, intervals, and formulas that cannot be meant."""

import numpy as np
import pytest

import linfed as lf
from linfed.statistics.formulas import parsed

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
    found = lf.fit("m - k - 1 ~ n^a d^b k^c", SIZES | {"m": M})
    assert estimates(found) == pytest.approx({"a": -1.0, "b": 1.0, "c": 1.0}, abs=1e-9)
    assert found.constant[0] == pytest.approx(3.0)
    np.testing.assert_allclose(found.residuals, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.fitted, 3.0 * D * K / N)
    assert (found.reached, found.points, found.worst) == (9, 9, pytest.approx(1.0))
    assert {abs(value) < 1e-9 for value, *_ in found.curvature.values()} == {True}


def test_a_wrong_offset_bends_the_law_and_the_residuals_say_so():
    table = SIZES | {"m": trials_of(M - K - 1, 0.05, 0) + (K + 1)[:, None]}
    right, wrong = lf.fit("m - k - 1 ~ n^a d^b k^c", table), lf.fit("m ~ n^a d^b k^c", table)
    assert right.p_value > 0.01
    assert wrong.p_value < 1e-6
    assert right.bent == ()
    assert "a" in wrong.bent
    assert right.worst < 1.05 < wrong.worst
    assert -0.9 < wrong.exponents["a"][0] < -0.3
    low, high = right.exponents["a"][1:]
    assert low < -1.0 < high


def test_fixed_factors_quotients_and_functions_are_part_of_the_law():
    table = SIZES | {"m": 2.0 * D * np.log(N) ** 1.5 / np.sqrt(K) / (N + 1)}
    for formula in ("m ~ n^0 d log(n)^e / (k^(1/2) (n + 1))", "m ~ d log(n)^e k^-0.5 / (n + 1)"):
        assert estimates(lf.fit(formula, table)) == pytest.approx({"e": 1.5}, abs=1e-9)
    assert estimates(lf.fit("m ~ log(n)^e / (n + 1)^a d^b k^c", table))["a"] == pytest.approx(1.0, abs=1e-9)
    shared = lf.fit("m - k - 1 ~ (d k / n)^a", SIZES | {"m": M})
    assert estimates(shared) == pytest.approx({"a": 1.0}, abs=1e-9)
    assert estimates(lf.fit("m - k - 1 ~ d^a k^a n^-1", SIZES | {"m": M})) == pytest.approx({"a": 1.0}, abs=1e-9)


@pytest.mark.parametrize("over", ["trials", "residuals"])
def test_the_interval_covers_about_as_often_as_it_says(over):
    """Of 30 tables 95 % should; 24 or fewer happen with probability below 0.003, and the bootstrap of 25 is short."""
    covered = 0
    for seed in range(30):
        noisy = trials_of(M - K - 1, 0.3, seed)
        left = noisy if over == "trials" else noisy[:, 0]
        found = lf.fit("left ~ n^a d^b k^c", SIZES | {"left": left})
        assert found.over == over
        covered += found.exponents["b"][1] <= 1.0 <= found.exponents["b"][2]
    assert covered >= 25


# --- censoring -----------------------------------------------------------------------------------------------


def test_censored_points_are_not_left_out():
    """What exceeds 60 is known to do so: leaving it out biases the exponent, counting it does not."""
    rng = np.random.default_rng(0)
    x = np.tile([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 40)
    y = 3.0 * x * np.exp(0.8 * rng.standard_normal(len(x)))
    above = y > 60
    words = np.where(above, "above", "")
    counted = lf.fit("y ~ x^a", {"x": x, "y": np.minimum(y, 60)}, censored=words)
    dropped = lf.fit("y ~ x^a", {"x": x[~above], "y": y[~above]})
    low, high = counted.exponents["a"][1:]
    assert low < 1.0 < high
    assert dropped.exponents["a"][2] < 0.95
    assert counted.scatter == pytest.approx(0.8, rel=0.15)
    assert (counted.reached, counted.above, counted.points) == (240 - above.sum(), above.sum(), 240)
    assert f"{240 - above.sum()} of 240 reached ({above.sum()} above)" in str(counted)
    assert np.isnan(counted.residuals[above]).all()
    # The same upside down.
    mirrored = lf.fit("z ~ x^a", {"x": x, "z": 1 / np.minimum(y, 60)}, censored=np.where(above, "below", ""))
    assert mirrored.exponents["a"][0] == pytest.approx(-counted.exponents["a"][0], rel=1e-4)
    assert mirrored.below == above.sum()


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
                "replicates": lf.Along(replicates, replicate=range(100)),
            }
        )
    found = lf.fit("m - k - 1 ~ n^a d^b", lf.Table(rows))
    assert (found.reached, found.above, found.over) == (3, 2, "trials")
    assert estimates(found) == pytest.approx({"a": -1.0, "b": 1.0}, abs=0.02)
    assert 0.005 < found.exponents["b"][2] - found.exponents["b"][1] < 0.2


def test_the_sizes_that_least_finds_are_fitted():
    run = lf.Run(
        algorithm=lf.FedRep(rank=2, step_size=0.25, init=lf.AtDistance(0.001)),
        problem=lf.SharedRepresentation(n_clients=10, dim=200, rank=2, condition_number=1.0),
        data=lf.FreshSamples(n_samples=8),
        rounds=10,
        engine="chain",
    )
    cells = lf.grid(run, **{"problem.dim": (500, 1000, 2000)})
    table = lf.least("data.n_samples", cells, reaches=lf.below("subspace_distance", 0.001), trials=16, least=4)
    found = lf.fit("m ~ (d - k + 1)^b", table)
    assert found.exponents["b"][0] == pytest.approx(1.0, abs=0.15)
    assert (found.reached, found.over) == (3, "trials")


# --- what is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("m n^a", "two sides with one ~"),
        ("m ~ n^a ~ d", "two sides with one ~"),
        ("m ~ n^", "cannot be read"),
        ("m ~ n^(a + b)", r"exponent 'a \+ b' must be a name or a number"),
        ("m ~ open(n)^a", "is no column, number or one of"),
        ("m ~ n.real^a", "is no column, number or one of"),
        ("m ~ rnak^a", r"'rnak' is no column \(did you mean 'rank'\?\); known letters: n, d, k"),
        ("m ~ C n^a", "'C' is no column"),
        ("m ~ n^a a^b", "has 'a' for an exponent and for a column"),
        ("m - 100 ~ n^a", r"m - 100 = -94 at point 0: only positive numbers"),
        ("m ~ n^a (2 n)^b", "exponent 'b' cannot be told"),
        ("m ~ (k - 2)^a", r"k - 2 = 0 at point 0"),
        (3, "formula = 3"),
    ],
)
def test_formulas_that_cannot_be_meant_are_named(formula, said):
    with pytest.raises(ValueError, match=said):
        lf.fit(formula, SIZES | {"m": np.full(9, 6)})


def test_tables_that_cannot_be_meant_are_named():
    with pytest.raises(ValueError, match="columns of lengths"):
        lf.fit("m ~ n^a", {"n": [1, 2], "m": [1, 2, 3]})
    with pytest.raises(ValueError, match="must be a table with rows"):
        lf.fit("m ~ n^a", lf.Table([]))
    with pytest.raises(ValueError, match=r"censored = .* must hold"):
        lf.fit("m ~ n^a", {"n": [1, 2], "m": [1, 2]}, censored=["no", ""])
    with pytest.raises(ValueError, match=r"1 of 3 points are known"):
        lf.fit("m ~ n^a", {"n": [1, 2, 3], "m": [1, 2, 3]}, censored=["above", "below", ""])
    rows = [{"a.size": 1, "b.size": 2, "m": 3.0}, {"a.size": 2, "b.size": 2, "m": 3.0}]
    with pytest.raises(ValueError, match=r"'size' may be 'a.size' or 'b.size', which differ"):
        lf.fit("m ~ size^e", lf.Table(rows))


def test_a_fit_reads_as_one_line():
    text = str(lf.fit("m - k - 1 ~ n^a d^b k^c", SIZES | {"m": M}))
    assert "\n" not in text
    assert text.startswith("m - k - 1 ~ n^a d^b k^c, constant 3 [")
    assert "a = -1.000 [" in text
    assert "9 of 9 reached; within a factor 1.000" in text
    assert parsed("m ~ n^a d^b").exponents == ["a", "b"]
