"""Claims: the rows of each finding, its setting and notes, and the text of a claim."""

import math
from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed import claims as c
from linfed.statistics import (
    judge,
)
from tests.claims.example import FIRST, TABLE, judged, only_finding, row, settings
from tests.helpers import assert_one_line

RIGHT = {"sentence": "t", "source": c.OWN_PREDICTION, "statistic": c.smaller("error", "A", "B", "s")}


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"sentence": 7}, "sentence = 7"),
        ({"source": "our prediction"}, "source = 'our prediction'"),
        ({"statistic": "error"}, "statistic = 'error'"),
        ({"required": (0, 2)}, "required = (0, 2)"),
        ({"table": None}, "table = None"),
        ({"where": "n"}, "where = 'n'"),
        ({"where": (c.of(n=10), 3)}, "where = 3"),
        ({"theorem": "yes"}, "theorem = 'yes'"),
        ({"over": "n"}, "over = 'n'"),
        ({"setting": 3}, "setting = 3"),
        ({"note": "few"}, "note = 'few'"),
    ],
)
def test_a_claim_of_other_types_is_refused_when_it_is_made(changes, fragment):
    assert_one_line(lambda: c.Claim(**RIGHT | changes), [fragment, "must be"], TypeError)


def test_wrong_arguments_are_refused_when_a_claim_is_made():
    for make, fragments in (
        (lambda: c.within(2.0, 1.0), ["low = 2", "high = 1"]),
        (lambda: c.exponent("y", "x", -1.0, 0.1, "sometimes"), ["kind = 'sometimes'"]),
        (lambda: c.failures(lambda row: [], "s", 1.5), ["allowed = 1.5"]),
        (lambda: c.failures(lambda row: [], "s", -0.5), ["allowed = -0.5"]),
        (c.each, ["each()", "column"]),
    ):
        assert_one_line(make, fragments)


def test_a_list_of_conditions_is_told_to_be_a_tuple():
    fragments = ["where = [<function", "or a tuple of such functions"]
    assert_one_line(lambda: c.Claim(**RIGHT, where=[c.of(n=10)]), fragments, TypeError)


ONE = c.Claim("A is better", c.OWN_PREDICTION, RIGHT["statistic"])


@pytest.mark.parametrize(
    ("claims", "tables", "fragments", "error"),
    [
        ([ONE], {}, ["'A is better' needs a table", "only no table"], KeyError),
        ([ONE], TABLE, ["tables = ", "must be a mapping"], TypeError),
        ([ONE], {"runs": 3}, ["tables['runs'] = 3", "lf.Table"], TypeError),
        (ONE, {"runs": TABLE}, ["claims = Claim(", "must be a sequence of claims"], TypeError),
        ([ONE, 3], {"runs": TABLE}, ["claims[1] = 3", "must be a Claim"], TypeError),
        ([replace(ONE, table="more")], {"runs": TABLE}, ["'A is better' needs the table 'more'", "'runs'"], KeyError),
        ([replace(ONE, where=print)], {"runs": TABLE}, ["where of the claim 'A is better'", "got None"], TypeError),
    ],
)
def test_what_cannot_be_judged_is_told_in_a_line(claims, tables, fragments, error):
    assert_one_line(lambda: c.judged(claims, tables), fragments, error)


def test_a_single_claim_has_no_text_of_claims():
    assert_one_line(lambda: c.claims_text(ONE), ["claims = Claim(", "must be a sequence of claims"], TypeError)


def test_groups_of_pairs_are_not_paired_again():
    for over in (c.successive("n", c.successive("n")), c.ends("n", c.ends("n"))):
        assert_one_line(lambda over=over: settings(over=over), ["within= yields groups of 2 tables", "each(..)"])


def test_no_rows_give_no_finding():
    def fails(*parts, **fields):
        raise AssertionError("called without rows")

    statistic = c.Statistic("s", fails, c.above(0.5))
    for where in (c.of(method="C"), c.only(lambda one: False), (c.of(method="C"), c.largest("n"), c.smallest("n"))):
        for over in (c.whole, c.each("n"), c.successive("n"), c.ends("n")):
            assert judged(statistic, where=where, over=over) == []
    assert settings(TABLE.select(n=10), over=c.ends("n")) == []


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
        "the best t0 and t1 of B lie at the edge of the grid",
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
    late = lf.LabeledArray(np.tile([2.0] * 6 + [1.0] * 6, (8, 1)), round=range(12))  # the second half begins with 6
    assert c.unsettled_note(lf.Table([{"method": "E", "risk": late}]), "risk") == ""
    for end, words in ((0.0, ""), (1.0, "E rises")):  # from a median of 0
        late = lf.LabeledArray(np.tile([0.0] * 3 + [end], (8, 1)), round=range(4))
        assert c.unsettled_note(lf.Table([{"method": "E", "risk": late}]), "risk").endswith(words)
    assert_one_line(lambda: c.diverged_note(TABLE), ["'diverged'", "column"], KeyError)


def test_claims_are_read_without_a_run():
    statistic = c.smaller("error", "A", "B", "share of trials")
    one = c.Claim("A is better", c.cite("FedRep paper, Theorem 1", "decays"), statistic)
    two = c.Claim("B is not much worse", c.OWN_THRESHOLD, statistic, c.at_least(0.2), over=c.each("n"))
    own = c.Claim(
        "C is near",
        c.reading("FLUTE paper"),
        c.Statistic("distance for {n:,} to {last[n]:g} {{clients}}", lambda rows, **fields: None),
    )
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
        "  distance for <n> to <last n> {clients}; required: by the statistic",
    ]
    assert c.claims_text([]) == "0 sentences"
    assert math.isinf(c.MOST.high)
