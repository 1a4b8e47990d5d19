"""Formulas of power laws: values, factors and the columns that they name."""

import math

import numpy as np
import pytest

import linfed as lf
from linfed.statistics.formulas import format_number, names, parsed, value, written
from tests.helpers import assert_one_line


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
    assert lf.fit_power_law("y ~ n^a", table).exponents["a"][0] == pytest.approx(-1.0)
    assert lf.fit_power_law("y ~ k^a", table).exponents["a"][0] == pytest.approx(-1.0)  # its full name comes first
    with pytest.raises(ValueError, match=r"'k' is ambiguous: 'a\.k' and 'b\.k' differ"):
        lf.fit_power_law("y ~ k^a", lf.Table([{k: v for k, v in row.items() if k != "k"} for row in rows]))


def test_a_number_has_three_digits():
    assert [format_number(one) for one in (3.14159, 1e-7, np.inf, np.nan)] == ["3.14", "1e-07", "-", "-"]


SIZES = {"n_clients": [50, 100, 200], "dim": [40, 20, 40], "rank": [2, 2, 4], "m": [6, 6, 6]}
BAD = {
    "no ~": ("m n^a", ["one ~"]),
    "two ~": ("m ~ n^a ~ d", ["one ~"]),
    "no exponent": ("m ~ n^", ["is not an expression"]),
    "an exponent of two names": ("m ~ n^(a + b)", ["exponent 'a + b'"]),
    "a call": ("m ~ open(n)^a", ["must be a column"]),
    "an attribute": ("m ~ n.real^a", ["must be a column"]),
    "a typo": ("m ~ rnak^a", ["'rnak'", "did you mean 'rank'?", "n, d, k"]),
    "an unknown column": ("m ~ C n^a", ["'C'"]),
    "an exponent that is a column": ("m ~ n^a a^b", ["uses 'a' both as an exponent and as a column"]),
    "a number": (3, ["formula = 3"]),
    "many factors": (f"m ~ {'n^a ' * 5000}", ["at most 200 characters"]),
    "many terms": (f"m ~ ({'n + ' * 1000} n)^a", ["at most 200 characters"]),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_formulas_are_named(name):
    formula, fragments = BAD[name]
    assert_one_line(lambda: lf.fit_power_law(formula, SIZES), fragments)


NO_NUMBERS = {
    "9^9^9^9 d^a": "9 ^ 9 ^ 9",
    "n^(1/0)": "1 / 0",
    "n^((-1)^0.5)": "(-1) ^ 0.5",
    "n^1e999": "1e309",
    "(n + 9^999)^a": "9 ^ 999",
}


@pytest.mark.parametrize("right", NO_NUMBERS)
def test_numbers_that_are_not_finite_and_real_are_refused(right):
    columns = {"n": [50, 100, 200], "d": [40, 20, 40], "m": [5.0, 6.0, 7.0]}
    assert_one_line(lambda: lf.fit_power_law(f"m ~ {right}", columns), [NO_NUMBERS[right]])


RAGGED = {
    "empty": ({"n": [], "m": []}, ["columns of lengths {'n': 0, 'm': 0}", "at least 1"]),
    "ragged": ({"n": [1, 2, 4], "m": [[1.0, 2.0], [2.0], [3.0, 4.0]]}, ["same number of trials"]),
    "ragged at a point": ({"n": [1, 2, 4], "m": [1.0, [2.0, [3.0]], 4.0]}, ["must contain numbers"]),
    "words": ({"n": [1, 2, 4], "m": [["a", "b"]] * 3}, ["column 'm'", "array of numbers"]),
    "a number among trials": ({"n": [1, 2, 4], "m": [[1.0, 2.0], 2.0, [3.0, 4.0]]}, ["same number of trials"]),
}


@pytest.mark.parametrize("name", RAGGED)
def test_columns_that_form_no_points_are_refused(name):
    columns, fragments = RAGGED[name]
    assert_one_line(lambda: lf.fit_power_law("m ~ n^a", columns), fragments)


def test_columns_of_arrays_with_one_last_part_may_agree():
    trials = [np.array([1.0, 2.0, 3.0]) * n for n in (1, 2, 4)]
    columns = {"n": [1, 2, 4], "one.error": trials, "other.error": [one.copy() for one in trials]}
    assert lf.fit_power_law("error ~ n^a", columns).exponents["a"][0] == pytest.approx(1.0)
    columns["other.error"] = [2 * one for one in trials]
    assert_one_line(lambda: lf.fit_power_law("error ~ n^a", columns), ["'error' is ambiguous"])
