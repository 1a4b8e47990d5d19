"""Statistics of claims: each against the judge that it uses, and no finding if rows are missing."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed import claims as c
from linfed.statistics import (
    fit_exponent,
    judge,
    judge_exponent,
    judge_failures,
    judge_identity,
    judge_share,
    judge_smaller,
    median_interval,
    median_ratio,
)
from linfed.statistics.intervals import largest_factor, largest_of
from tests.claims.example import FIELDS, FIRST, TABLE, judged, only_finding
from tests.helpers import assert_one_line

A, B = (TABLE.select(method=method, n=10) for method in "AB")
OF_A, AT_10 = c.of(method="A"), c.of(n=10)
BY_N = TABLE.select(method="A")
ERRORS = np.stack([one["error"] for one in BY_N], axis=1)
STATISTICS = {
    "smaller": (c.smaller("error", "A", "B", "s"), AT_10, lambda: judge_smaller(A["error"], B["error"], **FIELDS)),
    "smaller, by another column": (
        c.smaller("error", 40, 10, "s", by="n"),
        OF_A,
        lambda: judge_smaller(TABLE.select(method="A", n=40)["error"], A["error"], **FIELDS),
    ),
    "ratio": (
        c.ratio("error", "A", "B", "s", c.within(0.5, 1.0)),
        AT_10,
        lambda: judge(median_ratio(A["error"], B["error"]), claimed_low=0.5, claimed_high=1.0, **FIELDS),
    ),
    "ratio of a function": (
        c.ratio(lambda one: 1 / one["error"], "A", "B", "s", c.above(1.0)),
        AT_10,
        lambda: judge(median_ratio(1 / A["error"], 1 / B["error"]), claimed_low=1.0, strict=True, **FIELDS),
    ),
    "compared": (
        c.compared(
            "s", "B", "A", lambda b, a, **more: judge(median_interval(b["error"] - a["error"]), **more), c.above(0)
        ),
        AT_10,
        lambda: judge(median_interval(B["error"] - A["error"]), claimed_low=0.0, strict=True, **FIELDS),
    ),
    "share": (
        c.share(lambda one: one["error"] < 0.1, "s", c.at_least(0.2)),
        (OF_A, AT_10),
        lambda: judge_share(A["error"] < 0.1, 0.2, strict=False, **FIELDS),
    ),
    "failures": (
        c.failures(lambda one: one["error"] > one["bound"], "s", 0.6),
        (OF_A, AT_10),
        lambda: judge_failures(A["error"] > 0.1, allowed=0.6, **FIELDS),
    ),
    "failures with a premise": (
        c.failures(lambda one: one["error"] > 0.105, "s", 0.6, premise=lambda one: one["error"] > 0.1),
        (OF_A, AT_10),
        lambda: judge_failures(A["error"] > 0.105, allowed=0.6, premise=A["error"] > 0.1, **FIELDS),
    ),
    "identity": (
        c.identity(lambda one: one["error"] - 0.09, "s", 0.02),
        (OF_A, AT_10),
        lambda: judge_identity(A["error"] - 0.09, tolerance=0.02, **FIELDS),
    ),
    "measured": (
        c.measured("s", lambda one: median_interval(one["error"]), c.below(0.2)),
        (OF_A, AT_10),
        lambda: judge(median_interval(A["error"]), claimed_high=0.2, strict=True, **FIELDS),
    ),
    "median": (
        c.median("error", "s", c.below(0.2)),
        (OF_A, AT_10),
        lambda: judge(median_interval(A["error"]), claimed_high=0.2, strict=True, **FIELDS),
    ),
    "median of a function": (
        c.median(lambda one: 1 / one["error"], "s", c.above(1.0)),
        (OF_A, AT_10),
        lambda: judge(median_interval(1 / A["error"]), claimed_low=1.0, strict=True, **FIELDS),
    ),
    "worst": (
        c.worst(median_ratio, lambda one: (one["error"], one["bound"]), "n = {n}", "s", c.at_most(2.0)),
        OF_A,
        lambda: judge(
            largest_of(median_ratio, [(one["error"], one["bound"]) for one in BY_N]),
            claimed_high=2.0,
            detail="n = 10",
            **FIELDS,
        ),
    ),
}
"""Statistics with the rows of a claim, and a function that returns the finding of the judge."""


@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_has_the_finding_of_its_judge(name):
    statistic, where, expected = STATISTICS[name]
    assert only_finding(statistic, where=where) == expected()


def test_later_values_are_compared_with_earlier_ones_as_independent_trials():
    found = only_finding(c.smaller_after("error", "s"), where=OF_A, over=c.ends("n"))
    large = TABLE.select(method="A", n=40)
    assert found == judge_smaller(large["error"], A["error"], paired=False, **FIELDS)


@pytest.mark.parametrize("kind", ["equal", "at most", "at least"])
def test_a_fitted_exponent_has_the_finding_of_its_judge(kind):
    """Of medians at each size, or of a joint power law."""
    law = "error ~ n^a"
    for statistic, fitted in (
        (c.exponent("error", "n", -0.9, 0.1, kind), fit_exponent([10, 40, 20], ERRORS)),
        (c.power_law(law, "a", -0.9, 0.1, kind), lf.fit_power_law(law, BY_N).exponents["a"]),
    ):
        expected = judge_exponent(fitted, -0.9, kind=kind, tolerance=0.1, **FIELDS | {"statistic": ""})
        found = only_finding(statistic, where=OF_A)
        assert found == replace(expected, statistic=f"fitted exponent ({kind} -0.9, up to 0.1)")


def test_factors_that_are_constant_are_left_out_of_a_joint_fit():
    table = lf.Table([{"n": 10, "d": d, "k": k, "m": d * k / 10} for d, k in ((10, 1), (20, 2), (40, 1), (80, 3))])
    law = "m ~ n^a d^b k^c log(n)^e"
    for name in ("b", "c"):
        assert only_finding(c.power_law(law, name, 1.0, 0.1), table).estimate == pytest.approx(1.0)
    for name in ("a", "e"):
        assert c.judged([c.Claim("t", c.OWN_PREDICTION, c.power_law(law, name, 1.0, 0.1))], {"runs": table}) == []
    both = table.select(k=1)  # d alone varies
    assert only_finding(c.power_law("m ~ k^d_power d^b", "b", 1.0, 0.1), both).estimate == pytest.approx(1.0)


def test_an_exponent_that_the_rows_do_not_determine_has_no_finding():
    for statistic in (c.exponent("error", "n", -1.0, 0.1), c.power_law("error ~ n^a", "a", -1.0, 0.1)):
        assert judged(statistic, where=AT_10) == judged(statistic, where=(OF_A, AT_10)) == []
    together = lf.Table([{"d": d, "k": d**2, "m": d} for d in (10, 20, 40)])
    for name in ("b", "c"):
        assert judged(c.power_law("m ~ d^b k^c", name, 1.0, 0.1), together) == []


def test_a_share_over_clusters():
    table = lf.Table([{"hit": np.array([True, True, False, True]), "set": np.array([0, 0, 1, 1])}])
    found = only_finding(c.share(lambda one: one["hit"], "s", c.above(0.5), clusters=lambda one: one["set"]), table)
    assert found == judge_share(table.rows[0]["hit"], 0.5, clusters=[0, 0, 1, 1], **FIELDS)
    assert "in 2 clusters" in found.detail


def test_a_measurement_has_a_detail_a_note_and_a_reason():
    def measure(one):
        return c.Measurement((0.2, 0.1, 0.3), detail="3 of 15", note="of the statistic")

    statistic = c.measured("s", measure, c.at_most(1.0))
    found = only_finding(statistic, note=lambda one: f"{len(one)} rows")
    assert (found.detail, found.note) == ("3 of 15", "of the statistic; 6 rows")
    assert only_finding(statistic, detail=lambda one: "of the claim").detail == "of the claim"
    vacuous = c.measured("s", lambda one: c.Measurement((0.2, 0.1, 0.3), vacuous="it cannot fail"), c.at_most(1.0))
    assert only_finding(vacuous).remarks == "vacuous: it cannot fail"


def test_the_worst_row_leaves_out_rows_without_samples():
    by_n = TABLE.select(method="A")

    def samples(one):
        return None if one["n"] == 10 else (one["error"], one["bound"])

    found = only_finding(c.worst(median_ratio, samples, lambda one: f"row {one['n']}", "s", c.at_most(2.0)), by_n)
    assert found.detail == "row 20"
    expected = largest_of(median_ratio, [samples(one) for one in by_n if one["n"] > 10])
    assert (found.estimate, found.low, found.high) == expected


def test_the_factor_to_a_prediction_is_the_largest_of_all_rows_and_points():
    by_n = TABLE.select(method="A")
    found = only_finding(c.factor("error", "bound", "s", c.at_most(2.0)), by_n)
    one, other = (np.stack([row[name] for row in by_n], axis=1) for name in ("error", "bound"))
    assert (found.estimate, found.low, found.high) == largest_factor(one, other)
    curves = lf.Table(
        [{"error": lf.LabeledArray(one, n=[10, 40, 20]), "bound": lf.LabeledArray(other, n=[10, 40, 20])}]
    )
    assert replace(found, claimed_high=2.0) == only_finding(c.factor("error", "bound", "s", c.at_most(2.0)), curves)
    squares = c.factor(lambda row: row["error"] ** 2, lambda row: row["n"] / 1e4, "s", c.at_most(2.0))
    laws = np.broadcast_to(np.array([row["n"] / 1e4 for row in by_n]), one.shape)
    again = only_finding(squares, by_n)
    assert (again.estimate, again.low, again.high) == largest_factor(one**2, laws)


def test_a_statistic_may_use_some_of_the_rows():
    seen = []

    def measure(one):
        seen.append(len(one))
        return 0.2, 0.1, 0.3

    statistic = c.measured("s", measure, c.at_most(1.0), rows=c.of(method="A"))
    found = only_finding(statistic, setting="{points} rows", note=lambda one: str(len(one)))
    assert (seen, found.setting, found.note) == ([3], "6 rows", "6")


@pytest.mark.parametrize(
    ("statistic", "how"),
    [
        (c.smaller("error", "A", "C", "s"), {"where": AT_10}),
        (c.ratio("error", "C", "A", "s", c.at_most(1.0)), {"where": AT_10}),
        (c.share(lambda one: None, "s", c.above(0.5)), {}),
        (c.failures(lambda one: None, "s", 0.1), {}),
        (c.identity(lambda one: None, "s", 0.1), {}),
        (c.measured("s", lambda one: None, c.above(0.5)), {}),
        (c.worst(median_ratio, lambda one: None, "", "s", c.at_most(1.0)), {}),
        (c.Statistic("s", lambda one, **fields: None, c.above(0.5)), {}),
    ],
)
def test_rows_that_do_not_suffice_give_no_finding(statistic, how):
    assert judged(statistic, **how) == []


def test_several_rows_of_a_method_are_an_error():
    with pytest.raises(ValueError, match=r"\d rows have method = 'A'.* where= or over="):
        judged(c.smaller("error", "A", "B", "s"))
    with pytest.raises(ValueError, match=r"compares two rows, got 2 and 2: .* where= and over="):
        judged(c.smaller_after("error", "s"), over=c.ends("n"))
    with pytest.raises(ValueError, match=r"compares two rows, got 1: .*"):
        judged(c.smaller_after("error", "s"), where=(OF_A, AT_10))


def test_hypotheses_and_theorems():
    statistic = c.measured("s", lambda one: (0.2, 0.1, 0.3), c.at_most(1.0))
    assert only_finding(statistic, theorem=True).verdict.value == "HOLDS"
    assert only_finding(c.failures(lambda one: one["error"][0] > 1, "s", 0.9), FIRST).verdict.value == "INCONCLUSIVE"
    failing = c.failures(lambda one: one["error"] > 0, "s", 0.1)
    assert only_finding(failing, FIRST).verdict.value == "VIOLATED"
    assert only_finding(failing, FIRST, theorem=False).verdict.value == "NOT SUPPORTED"

    def hypotheses(one):
        return (c.Hypothesis(text="n >= k", left=20.0, right=float(one["n"][0])),)

    assert only_finding(statistic, hypotheses=hypotheses).verdict.value == "HYPOTHESES FAIL"


def test_ranges():
    assert {"at most": c.at_most(2), "at least": c.at_least(2), "below": c.below(2), "above": c.above(2)} == {
        "at most": c.Range(high=2.0),
        "at least": c.Range(low=2.0),
        "below": c.Range(high=2.0, strict=True),
        "above": c.Range(low=2.0, strict=True),
    }
    assert c.within(1, 2) == c.Range(1.0, 2.0)
    assert c.near(2, 0.5) == c.within(1.5, 2.5)
    assert c.above(0.5) == c.MOST
    assert c.within(-np.inf, 2) == c.at_most(2) == pickle.loads(pickle.dumps(c.at_most(2.0)))
    assert c.within(1, 1) == c.near(1, 0)


@pytest.mark.parametrize(
    ("make", "fragments"),
    [
        (lambda: c.at_most(np.nan), ["high = nan", "finite number"]),
        (lambda: c.below("x"), ["high = 'x'", "finite number"]),
        (lambda: c.at_least(None), ["low = None", "finite number"]),
        (lambda: c.above(np.inf), ["low = inf", "finite number"]),
        (lambda: c.at_most(-np.inf), ["high = -inf", "finite number"]),
        (lambda: c.at_most(np.inf), ["low = -inf", "high = inf", "not both"]),
        (lambda: c.at_least(np.ones(2)), ["low = array([1., 1.])", "finite number"]),
        (lambda: c.within("x", 1), ["low = 'x'", "finite number"]),
        (lambda: c.within(2, 1), ["low = 2", "at most high = 1"]),
        (lambda: c.near("x", 1), ["value = 'x'", "finite number"]),
        (lambda: c.near(0.5, -0.1), ["tolerance = -0.1", "at least 0"]),
        (lambda: c.near(0.5, np.inf), ["tolerance = inf", "finite number"]),
        (lambda: c.Range(2, 1), ["low = 2", "at most high = 1"]),
        (lambda: c.Range(1, 1, strict=True), ["low = 1", "below high = 1"]),
        (lambda: c.Range(1, 2, strict=3), ["strict = 3", "True or False"]),
        (lambda: c.exponent("error", "n", "x", 0.1), ["claimed = 'x'", "finite number"]),
        (lambda: c.exponent("error", "n", 1.0, "a"), ["tolerance = 'a'", "finite number"]),
        (lambda: c.power_law("error ~ n^a", "a", 1.0, -1.0), ["tolerance = -1.0", "at least 0"]),
        (lambda: c.identity(lambda row: row["gap"], "s", "a"), ["tolerance = 'a'", "finite number"]),
    ],
)
def test_a_wrong_range_is_refused_when_it_is_made(make, fragments):
    assert_one_line(make, fragments)


@pytest.mark.parametrize(
    ("statistic", "where"),
    [
        (c.smaller("error", "A", "B", "s"), AT_10),
        (c.measured("s", lambda one: (0.5, 0.4, 0.6), c.above(7)), AT_10),
        (c.share(lambda one: one["error"][0] < 1, "s", c.above(7)), AT_10),
        (c.failures(lambda one: one["error"][0] < 1, "s", 0.1), AT_10),
        (c.identity(lambda one: one["error"][0], "s", 0.1), AT_10),
    ],
)
def test_a_claim_may_require_another_range_than_its_statistic(statistic, where):
    for required in (c.at_least(0.2), c.below(0.9), c.within(0.1, 0.2)):
        found = only_finding(statistic, required=required, where=where)
        assert (found.claimed_low, found.claimed_high, found.strict) == required


def test_a_fitted_exponent_has_the_range_in_its_words():
    """Which another range of the claim would contradict."""
    for statistic in (c.exponent("error", "n", -1.0, 0.1), c.power_law("error ~ n^a", "a", -1.0, 0.1)):
        fragments = ["required = Range(low=-inf, high=5.0", "must be left out", "low=-1.1, high=-0.9"]
        assert_one_line(lambda one=statistic: c.Claim("t", c.OWN_PREDICTION, one, c.at_most(5)), fragments)
        assert c.Claim("t", c.OWN_PREDICTION, statistic, c.near(-1, 0.1)).required == statistic.required


def test_a_statistic_without_a_range_leaves_it_to_its_judge():
    own = c.Statistic("s", lambda rows, **fields: judge((0.2, 0.1, 0.3), claimed_high=0.4, **fields))
    assert only_finding(own).claimed_range == "at most 0.4"
    with pytest.raises(ValueError, match="do not bound the statistic"):
        only_finding(c.measured("s", lambda rows: (0.2, 0.1, 0.3)))


def test_rows_are_stacked_along_the_last_axis():
    np.testing.assert_array_equal(c.stacked(BY_N, "error"), ERRORS)
    np.testing.assert_array_equal(c.stacked(BY_N, lambda one: 2 * one["error"]), 2 * ERRORS)
    assert c.stacked(A, "error").shape == (len(A["error"]), 1)
