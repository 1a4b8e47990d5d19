"""The vocabulary of claims: each word against the judge that it uses, and what is not asked if rows are missing."""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed import claims as c
from linfed.reproduction.record import RunRecord
from linfed.statistics import (
    Origin,
    Source,
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
from linfed.statistics.findings import count_origins
from linfed.statistics.intervals import largest_factor, largest_of

RNG = np.random.default_rng(0)
TRIALS = 12
FIELDS = {"claim": "t", "setting": "", "statistic": "s", "source": c.OWN_PREDICTION}


def row(method="A", n=10, scale=1.0, **columns):
    error = scale * RNG.uniform(0.9, 1.1, TRIALS) / n
    return {"method": method, "n": n, "problem.dim": 5 * n, "error": error, "bound": np.full(TRIALS, 0.1)} | columns


TABLE = lf.Table([row(method, n, scale) for n in (10, 40, 20) for method, scale in (("A", 1.0), ("B", 1.04))])
FIRST = TABLE.select(method="A", n=10)


def only_finding(statistic, table=TABLE, **more):
    """Return the one finding of a claim."""
    (found,) = c.judged([c.Claim("t", c.OWN_PREDICTION, statistic, **more)], {"runs": table})
    return found


def settings(table=TABLE, **more):
    """Return the settings of the findings of a claim, in their order."""
    statistic = c.measured("s", lambda *rows: (0.2, 0.1, 0.3), c.at_most(1.0))
    return [one.setting for one in c.judged([c.Claim("t", c.OWN_PREDICTION, statistic, **more)], {"runs": table})]


# --- statistics ------------------------------------------------------------------------------------------------------


def test_every_word_has_the_verdict_of_its_judge():
    a, b = (TABLE.select(method=method, n=10) for method in "AB")
    large = TABLE.select(method="A", n=40)
    of_a, at_10 = c.of(method="A"), c.of(n=10)
    by_n = TABLE.select(method="A")
    errors = np.stack([one["error"] for one in by_n], axis=1)
    for statistic, how, expected in (
        (c.smaller("error", "A", "B", "s"), {"where": at_10}, judge_smaller(a["error"], b["error"], **FIELDS)),
        (
            c.smaller_after("error", "s"),
            {"where": of_a, "over": c.ends("n")},
            judge_smaller(large["error"], a["error"], paired=False, **FIELDS),
        ),
        (
            c.ratio("error", "A", "B", "s", c.within(0.5, 1.0)),
            {"where": at_10},
            judge(median_ratio(a["error"], b["error"]), claimed_low=0.5, claimed_high=1.0, **FIELDS),
        ),
        (
            c.compared(
                "s",
                "B",
                "A",
                lambda b, a, **more: judge(median_interval(b["error"] - a["error"]), **more),
                c.above(0.0),
            ),
            {"where": at_10},
            judge(median_interval(b["error"] - a["error"]), claimed_low=0.0, strict=True, **FIELDS),
        ),
        (
            c.ratio(lambda one: 1 / one["error"], "A", "B", "s", c.above(1.0)),
            {"where": at_10},
            judge(median_ratio(1 / a["error"], 1 / b["error"]), claimed_low=1.0, strict=True, **FIELDS),
        ),
        (
            c.share(lambda one: one["error"] < 0.1, "s", c.at_least(0.2)),
            {"where": (of_a, at_10)},
            judge_share(a["error"] < 0.1, 0.2, strict=False, **FIELDS),
        ),
        (
            c.failures(lambda one: one["error"] > one["bound"], "s", 0.6),
            {"where": (of_a, at_10)},
            judge_failures(a["error"] > 0.1, allowed=0.6, **FIELDS),
        ),
        (
            c.failures(lambda one: one["error"] > 0.105, "s", 0.6, premise=lambda one: one["error"] > 0.1),
            {"where": (of_a, at_10)},
            judge_failures(a["error"] > 0.105, allowed=0.6, premise=a["error"] > 0.1, **FIELDS),
        ),
        (
            c.identity(lambda one: one["error"] - 0.09, "s", 0.02),
            {"where": (of_a, at_10)},
            judge_identity(a["error"] - 0.09, tolerance=0.02, **FIELDS),
        ),
        (
            c.exponent("error", "n", -1.0, 0.1),
            {"where": of_a},
            judge_exponent(
                fit_exponent([10, 40, 20], errors), -1.0, kind="equal", margin=0.1, **FIELDS | {"statistic": ""}
            ),
        ),
        (
            c.measured("s", lambda one: median_interval(one["error"]), c.below(0.2)),
            {"where": (of_a, at_10)},
            judge(median_interval(a["error"]), claimed_high=0.2, strict=True, **FIELDS),
        ),
        (
            c.worst(median_ratio, lambda one: (one["error"], one["bound"]), "n = {n}", "s", c.at_most(2.0)),
            {"where": of_a},
            judge(
                largest_of(median_ratio, [(one["error"], one["bound"]) for one in by_n]),
                claimed_high=2.0,
                detail="n = 10",
                **FIELDS,
            ),
        ),
    ):
        found = only_finding(statistic, **how)
        assert found == replace(expected, statistic=found.statistic)
        assert found.statistic == (expected.statistic or "fitted exponent (equal -1, up to 0.1)")


@pytest.mark.parametrize("kind", ["equal", "at most", "at least"])
def test_an_exponent_requires_the_range_of_its_judge(kind):
    errors = np.stack([one["error"] for one in TABLE.select(method="A")], axis=1)
    expected = judge_exponent(
        fit_exponent([10, 40, 20], errors), -0.9, kind=kind, margin=0.1, **FIELDS | {"statistic": "e"}
    )
    found = only_finding(c.exponent("error", "n", -0.9, 0.1, kind), where=c.of(method="A"))
    assert found.claimed_range == expected.claimed_range
    assert found.verdict == expected.verdict
    assert kind in found.statistic


@pytest.mark.parametrize("kind", ["equal", "at most", "at least"])
def test_an_exponent_of_a_power_law_is_fitted_jointly(kind):
    law = "error ~ n^a"
    fitted = lf.fit_power_law(law, TABLE.select(method="A")).exponents["a"]
    expected = judge_exponent(fitted, -0.9, kind=kind, margin=0.2, **FIELDS | {"statistic": "e"})
    found = only_finding(c.power_law(law, "a", -0.9, 0.2, kind), where=c.of(method="A"))
    assert found == replace(expected, statistic=f"fitted exponent ({kind} -0.9, up to 0.2)")


def test_factors_that_are_constant_are_left_out_of_a_joint_fit():
    table = lf.Table([{"n": 10, "d": d, "k": k, "m": d * k / 10} for d, k in ((10, 1), (20, 2), (40, 1), (80, 3))])
    law = "m ~ n^a d^b k^c log(n)^e"
    for name in ("b", "c"):
        assert only_finding(c.power_law(law, name, 1.0, 0.1), table).estimate == pytest.approx(1.0)
    for name in ("a", "e"):
        assert c.judged([c.Claim("t", c.OWN_PREDICTION, c.power_law(law, name, 1.0, 0.1))], {"runs": table}) == []
    both = table.select(k=1)  # d alone varies
    assert only_finding(c.power_law("m ~ k^d_power d^b", "b", 1.0, 0.1), both).estimate == pytest.approx(1.0)


def test_factors_that_vary_together_are_not_asked():
    table = lf.Table([{"d": d, "k": d**2, "m": d} for d in (10, 20, 40)])
    for name in ("b", "c"):
        claim = c.Claim("t", c.OWN_PREDICTION, c.power_law("m ~ d^b k^c", name, 1.0, 0.1))
        assert c.judged([claim], {"runs": table}) == []


def test_an_exponent_that_the_rows_do_not_determine_is_not_asked():
    for statistic in (c.exponent("error", "n", -1.0, 0.1), c.power_law("error ~ n^a", "a", -1.0, 0.1)):
        asked = c.Claim("t", c.OWN_PREDICTION, statistic, where=c.of(n=10))
        assert c.judged([asked], {"runs": TABLE}) == []
        assert c.judged([replace(asked, where=c.of(n=10, method="A"))], {"runs": TABLE}) == []


def test_a_share_over_clusters():
    table = lf.Table([{"hit": np.array([True, True, False, True]), "set": np.array([0, 0, 1, 1])}])
    found = only_finding(c.share(lambda one: one["hit"], "s", c.above(0.5), clusters=lambda one: one["set"]), table)
    assert found == judge_share(table.rows[0]["hit"], 0.5, clusters=[0, 0, 1, 1], **FIELDS)
    assert "in 2 data sets" in found.detail


def test_a_share_without_points_is_vacuous():
    empty = only_finding(c.share(lambda one: one["error"][:0] > 0, "s", c.above(0.5)), FIRST)
    assert empty.verdict.value == "VACUOUS"


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


def test_the_second_method_may_be_a_value_of_another_column():
    found = only_finding(c.smaller("error", 40, 10, "s", by="n"), where=c.of(method="A"))
    assert found.verdict.value == "SUPPORTED"
    assert only_finding(c.smaller("error", 10, 40, "s", by="n"), where=c.of(method="A")).verdict.kind == (
        judge_smaller([2.0] * 12, [1.0] * 12, **FIELDS).verdict.kind
    )


@pytest.mark.parametrize(
    ("statistic", "how"),
    [
        (c.smaller("error", "A", "C", "s"), {"where": c.of(n=10)}),
        (c.ratio("error", "C", "A", "s", c.at_most(1.0)), {"where": c.of(n=10)}),
        (c.smaller_after("error", "s"), {"over": c.ends("n")}),
        (c.exponent("error", "n", -1.0, 0.1), {"where": c.of(n=10, method="A")}),
        (c.share(lambda one: None, "s", c.above(0.5)), {}),
        (c.failures(lambda one: None, "s", 0.1), {}),
        (c.identity(lambda one: None, "s", 0.1), {}),
        (c.measured("s", lambda one: None, c.above(0.5)), {}),
        (c.worst(median_ratio, lambda one: None, "", "s", c.at_most(1.0)), {}),
        (c.Statistic("s", lambda one, **fields: None, c.above(0.5)), {}),
    ],
)
def test_rows_that_do_not_suffice_give_no_finding(statistic, how):
    assert c.judged([c.Claim("t", c.OWN_PREDICTION, statistic, **how)], {"runs": TABLE}) == []


def test_several_rows_of_a_method_are_an_error():
    with pytest.raises(ValueError, match=r"\d rows have method = 'A': choose one of them with where= or over="):
        c.judged([c.Claim("t", c.OWN_PREDICTION, c.smaller("error", "A", "B", "s"))], {"runs": TABLE})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sentence": 7}, "sentence = 7 must be a string"),
        ({"source": "our prediction"}, "source = 'our prediction' must be cite"),
        ({"statistic": "error"}, "statistic = 'error' must be a Statistic"),
        ({"required": (0, 2)}, r"required = \(0, 2\) must be a range"),
        ({"table": None}, "table = None must be a string"),
        ({"where": "n"}, "where = 'n' must be a function"),
        ({"where": (c.of(n=10), 3)}, "where = 3 must be a function"),
        ({"over": "n"}, "over = 'n' must be a function"),
        ({"setting": 3}, "setting = 3 must be a function"),
        ({"note": "few"}, "note = 'few' must be a function"),
    ],
)
def test_a_claim_of_other_types_is_refused_when_it_is_made(changes, told):
    right = {"sentence": "t", "source": c.OWN_PREDICTION, "statistic": c.smaller("error", "A", "B", "s")}
    with pytest.raises(TypeError, match=told):
        c.Claim(**right | changes)


def test_wrong_arguments_of_the_words_are_refused_when_they_are_made():
    for make, told in (
        (lambda: c.within(2.0, 1.0), "low = 2 must be at most high = 1"),
        (lambda: c.exponent("y", "x", -1.0, 0.1, "sometimes"), "kind = 'sometimes' is unknown"),
        (lambda: c.failures(lambda row: [], "s", 1.5), "allowed = 1.5 must"),
        (c.each, "each\\(\\) needs the name of a column"),
    ):
        with pytest.raises(ValueError, match=told):
            make()


def test_no_rows_give_no_finding():
    def fails(*parts, **fields):
        raise AssertionError("asked without rows")

    statistic = c.Statistic("s", fails, c.above(0.5))
    for where in (c.of(method="C"), c.only(lambda one: False), (c.of(method="C"), c.largest("n"), c.smallest("n"))):
        for over in (c.whole, c.each("n"), c.successive("n"), c.ends("n")):
            assert settings(where=where, over=over) == []
            assert c.judged([c.Claim("t", c.OWN_PREDICTION, statistic, where=where)], {"runs": TABLE}) == []
    assert settings(TABLE.select(n=10), over=c.ends("n")) == []


# --- rows ------------------------------------------------------------------------------------------------------------


def test_the_rows_of_each_finding():
    pair = "{0[n]} {1[n]}"
    assert settings() == [""]
    assert settings(over=c.each("n"), setting="{n}") == ["10", "40", "20"]
    assert settings(over=c.each("method", "n"), setting="{method}{n}") == ["A10", "A40", "A20", "B10", "B40", "B20"]
    assert settings(over=c.each_row, setting="{method}{n}") == ["A10", "B10", "A40", "B40", "A20", "B20"]
    assert settings(over=c.successive("n"), setting=pair) == ["10 20", "20 40"]
    assert settings(over=c.successive("n", descending=True), setting=pair) == ["40 20", "20 10"]
    within = c.each("method")
    both = ["A 10 20", "A 20 40", "B 10 20", "B 20 40"]
    assert settings(over=c.successive("n", within), setting="{method} " + pair) == both
    assert settings(over=c.ends("n", within), setting="{method} " + pair) == ["A 10 40", "B 10 40"]


def test_a_claim_is_about_chosen_rows():
    by_row = {"over": c.each_row, "setting": "{method}{n}"}
    assert settings(where=c.of(method="A"), **by_row) == ["A10", "A40", "A20"]
    assert settings(where=(c.of(method="A"), c.of(n=[10, 20])), **by_row) == ["A10", "A20"]
    assert settings(where=(c.of(n=[10, 20]), c.largest("n")), **by_row) == ["A20", "B20"]
    assert settings(where=(c.largest("n"), c.of(n=[10, 20])), **by_row) == []
    assert settings(where=(c.smallest("n"), c.only(lambda one: one["method"] == "B")), **by_row) == ["B10"]
    assert settings(where=(c.of(method="B"), c.sorted_by("n")), **by_row) == ["B10", "B20", "B40"]


def test_a_claim_reads_its_table():
    tables = {"runs": FIRST, "more": TABLE}
    statistic = c.measured("s", lambda one: (float(len(one)),) * 3, c.at_most(10.0))
    both = [c.Claim("t", c.OWN_PREDICTION, statistic), c.Claim("t", c.OWN_PREDICTION, statistic, table="more")]
    assert [one.estimate for one in c.judged(both, tables)] == [1.0, 6.0]
    with pytest.raises(KeyError):
        c.judged([replace(both[0], table="missing")], tables)


def test_a_statistic_may_use_some_of_the_rows():
    seen = []

    def measure(one):
        seen.append(len(one))
        return 0.2, 0.1, 0.3

    statistic = c.measured("s", measure, c.at_most(1.0), rows=c.of(method="A"))
    found = only_finding(statistic, setting="{points} rows", note=lambda one: str(len(one)))
    assert (seen, found.setting, found.note) == ([3], "6 rows", "6")


# --- texts -----------------------------------------------------------------------------------------------------------


def test_settings_are_formats_of_columns_or_functions():
    two = c.successive("n", c.each("method"))
    assert settings(setting="n = {n:,}, d = {dim}") == ["n = 10, d = 50"]
    assert settings(over=two, setting="{method}: {n} to {1[n]}, d = {1[problem.dim]}")[0] == "A: 10 to 20, d = 100"
    assert settings(setting="{points} points to n = {last[n]}") == ["6 points to n = 20"]
    assert settings(over=two, setting="{points}, {last[n]}")[1] == "1, 40"
    uneven = lambda rows: [(rows.select(method="A"), rows.select(method="B", n=10))]  # noqa: E731
    assert settings(over=uneven, setting="{points}") == ["3"]
    assert settings(over=two, setting=lambda one, other: f"{len(one)} {other['n']}")[0] == "1 20"
    assert settings(lf.Table([{"points": 3, "last": "x"}]), setting="{points} {0[last]}") == ["1 x"]
    with pytest.raises(ValueError, match="has no values for its braces"):
        settings(setting="{m}")


def test_the_words_of_a_statistic_are_a_format_too():
    assert only_finding(c.measured("error at n = {n}", lambda one: (0.2, 0.1, 0.3), c.at_most(1))).statistic == (
        "error at n = 10"
    )


def test_a_tuning_at_the_edge_of_its_grid_is_noted_once():
    edges = {"A": "step_size", "B": ""}
    table = lf.Table([row(method, at_grid_edge=edge) for method, edge in edges.items()])
    statistic = c.smaller("error", "A", "B", "s")
    remark = "the best step of A lies at the edge of the grid"
    assert only_finding(statistic, table).note == remark == c.edge_note(table)
    assert only_finding(statistic, table, note=lambda one: "few trials").note == f"few trials; {remark}"
    assert only_finding(statistic, table, note=c.edge_note).note == remark
    assert only_finding(statistic, table, note=lambda one: f"few; {c.edge_note(one)}").note == f"few; {remark}"
    own = c.Statistic("s", lambda rows, **given: judge((0.2, 0.1, 0.3), **{"note": "of the judge"} | given), c.below(1))
    assert only_finding(own, table).note == f"of the judge; {remark}"
    assert only_finding(c.Statistic("s", own.judge, c.below(1), c.of(method="B")), table).note == "of the judge"
    assert (
        only_finding(
            c.smaller_after("error", "s"), table, over=lambda rows: [(rows.select(method="B"), rows.select(method="A"))]
        ).note
        == remark
    )


def test_the_edge_of_a_grid_names_methods_and_parameters():
    table = lf.Table([row("A", at_grid_edge="step_size"), row("B", at_grid_edge="t0, t1"), row("B"), row("A")])
    assert c.edge_note(table).split("; ") == [
        "the best step of A lies at the edge of the grid",
        "the best t0 and t1 of B lies at the edge of the grid",
    ]
    assert c.edge_note(TABLE) == ""


def test_notes_of_diverged_and_unsettled_curves():
    table = lf.Table(
        [
            row("A", diverged=np.array([True] * 2 + [False] * 10)),
            row("B", diverged=np.zeros(12, bool)),
        ]
    )
    assert c.diverged_note(table) == "2 trials of A diverged at its best step"
    assert c.diverged_note(table, "n = 10") == "2 trials of A diverged at n = 10"
    curves = {"A": np.linspace(2, 1, 11), "B": np.linspace(1, 1.001, 11), "C": np.linspace(1, 2, 11)}
    curves["D"] = np.maximum(curves["A"], 1.5)  # flat in the second half
    table = lf.Table(
        [
            {"method": method, "risk": lf.LabeledArray(np.tile(curve, (8, 1)), round=range(11))}
            for method, curve in curves.items()
        ]
    )
    rest = "over the second half of the rounds the risk of A falls and that of C rises"
    assert c.unsettled_note(table, "risk") == f"not converged: {rest}"
    assert c.unsettled_note(table.select(method="B"), "risk") == ""
    assert c.unsettled_note(table.select(method="B"), "risk", change=1e-5).endswith("of B rises")


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


# --- ranges ----------------------------------------------------------------------------------------------------------


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


def test_a_claim_may_require_another_range_than_its_statistic():
    at_10 = {"where": c.of(n=10)}
    for required in (c.at_least(0.2), c.below(0.9), c.within(0.1, 0.2)):
        for statistic in (
            c.smaller("error", "A", "B", "s"),
            c.measured("s", lambda one: (0.5, 0.4, 0.6), c.above(7)),
            c.share(lambda one: one["error"][0] < 1, "s", c.above(7)),
            c.failures(lambda one: one["error"][0] < 1, "s", 0.1),
            c.identity(lambda one: one["error"][0], "s", 0.1),
            c.exponent("error", "n", 7.0, 0.1),
        ):
            how = {"where": c.of(method="A")} if statistic.words.startswith("fitted") else at_10
            found = only_finding(statistic, required=required, **how)
            assert (found.claimed_low, found.claimed_high, found.strict) == required


def test_a_statistic_without_a_range_leaves_it_to_its_judge():
    own = c.Statistic("s", lambda rows, **fields: judge((0.2, 0.1, 0.3), claimed_high=0.4, **fields))
    assert only_finding(own).claimed_range == "at most 0.4"
    with pytest.raises(ValueError, match="do not bound the statistic"):
        only_finding(c.measured("s", lambda rows: (0.2, 0.1, 0.3)))


# --- sources ---------------------------------------------------------------------------------------------------------

SOURCES = {
    Origin.QUOTED: c.cite("FedRep paper, Theorem 1", "decays"),
    Origin.READING: c.reading("FLUTE paper, Theorem 5.5"),
    Origin.PREDICTION: c.OWN_PREDICTION,
    Origin.THRESHOLD: c.OWN_THRESHOLD,
    Origin.CONJECTURE: c.OWN_CONJECTURE,
}


@pytest.mark.parametrize("origin", Origin)
def test_a_source_knows_whose_the_claim_is(origin):
    source = SOURCES[origin]
    assert source.origin is origin
    assert origin.is_paper == (origin in (Origin.QUOTED, Origin.READING))
    for copied in (pickle.loads(pickle.dumps(source)), copy.copy(source), copy.deepcopy(source)):
        assert (copied, copied.origin, type(copied)) == (source, origin, Source)
    added = source.adding("the factor is our threshold").adding("2023", ", ")
    assert added == f"{source}; the factor is our threshold, 2023"
    assert added.origin is origin
    finding = judge((0.2, 0.1, 0.3), claimed_high=1.0, **FIELDS | {"source": source})
    assert finding.origin is origin
    assert replace(finding, source="another").origin is origin


def test_a_source_of_plain_text_has_no_origin():
    assert judge((0.2, 0.1, 0.3), claimed_high=1.0, **FIELDS | {"source": "a colleague"}).origin is None
    with pytest.raises(ValueError, match="nonsense"):
        Source("text", "nonsense")
    assert c.cite("Paper", "words", threshold=True) == 'Paper: "words"; the number is our threshold'


def test_origins_are_counted():
    assert count_origins([]) == ""
    every = [*Origin, Origin.CONJECTURE, Origin.QUOTED, None]
    assert count_origins(every) == (
        "2 quoted, 1 our reading, 1 our prediction, 1 our threshold, 2 our conjectures, 1 of unknown origin"
    )


def test_a_record_keeps_whose_the_claims_are():
    claims = [c.Claim(origin.value, source, c.smaller("error", "A", "B", "s"), where=c.of(n=10))
              for origin, source in SOURCES.items()]  # fmt: skip
    record = RunRecord(experiment="one", quick=False, claims=tuple(c.judged(claims, {"runs": TABLE})))
    again = RunRecord.from_json(record.to_json())
    assert again == record
    assert [one.origin for one in again.claims] == [*Origin]


# --- the table of claims ---------------------------------------------------------------------------------------------


def test_claims_are_read_without_a_run():
    statistic = c.smaller("error", "A", "B", "share of trials")
    one = c.Claim("A is better", SOURCES[Origin.QUOTED], statistic)
    two = c.Claim("B is not much worse", c.OWN_THRESHOLD, statistic, c.at_least(0.2), over=c.each("n"))
    own = c.Claim("C is near", c.reading("FLUTE paper"), c.Statistic("distance", lambda rows, **fields: None))
    assert c.claims_text([one, one, two, own]).split("\n") == [
        "3 sentences: 1 quoted, 1 our reading, 1 our threshold",
        "",
        "A is better",
        '  quoted: FedRep paper, Theorem 1: "decays"',
        "  share of trials; required: > 0.5",
        "",
        "B is not much worse",
        "  our threshold",
        "  share of trials; required: >= 0.2",
        "",
        "C is near",
        "  our reading: FLUTE paper",
        "  distance; required: by the statistic",
    ]
    assert c.claims_text([]) == "0 sentences"
    assert math.isinf(c.MOST.high)


def test_the_quotation_in_a_source_is_found():
    quoted = c.cite("FedRep paper, (10)", 'for any "t" and eta').adding("the number is ours")
    asked = c.reading("FedRep paper, (10), asked of FedAvg").adding('"for any t"', ": ")
    for source, expected in (
        (quoted, ("FedRep paper, (10)", 'for any "t" and eta')),
        (quoted.adding("asked of m - k - 1", ", "), ("FedRep paper, (10)", 'for any "t" and eta')),
        (asked, ("FedRep paper, (10), asked of FedAvg", "for any t")),
        (c.reading("FedRep paper, (10)"), ("", "")),
        (c.OWN_CONJECTURE.adding('"for any t"', ": "), ("", "")),
        ('A colleague: "for any t"', ("", "")),
    ):
        assert judge((0.2, 0.1, 0.3), claimed_high=1.0, **FIELDS | {"source": source}).quotation == expected
