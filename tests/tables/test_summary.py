"""Tables for a paper: the statistic and its interval, diverged trials, what is bold, and the three formats."""

import re
import sys

import numpy as np
import pytest

import linfed as lf
from linfed.statistics import mean_interval, median_interval
from tests.helpers import assert_one_line
from tests.tables.test_escaping import any_text

BY_METHOD = {"rows": "method", "columns": "n_clients"}


@pytest.fixture
def table():
    """Two methods at two sizes; the error ends near 1e-5, or near 1e-6 for the second method at n = 9."""
    rows, rng = [], np.random.default_rng(0)
    for method in ("a_b", "c & d"):
        for n in (4, 9):
            last = (1e-6 if (method, n) == ("c & d", 9) else 1e-5) * np.exp(rng.normal(size=20) / 10)
            error = lf.LabeledArray(np.stack([np.ones(20), last], axis=1), round=[0, 5])
            rows.append({"method": method, "problem.n_clients": n, "error": error})
    return lf.Table(rows)


def of_values(**values):
    """Return a table with a row for each rule and its values."""
    return lf.Table([{"rule": rule, "error": np.array(one)} for rule, one in values.items()])


@pytest.mark.parametrize(("statistic", "interval"), [("median", median_interval), ("mean", mean_interval)])
def test_an_entry_is_the_statistic_of_the_last_round(statistic, interval, table):
    found = table.summarize("error", statistic=statistic, **BY_METHOD)
    for (method,), (n,) in found.entries:
        values = table.select(method=method, n_clients=n)["error"][:, -1]
        assert found.entries[(method,), (n,)][:3] == interval(values)
    assert (found.rows, found.columns) == (("method",), ("n_clients",))


def test_bold_is_the_best_whose_interval_is_apart_from_all_others(table):
    found = table.summarize("error", **BY_METHOD)
    assert {key for key, entry in found.entries.items() if entry.best} == {(("c & d",), (9,))}
    largest = table.summarize("error", best="largest", **BY_METHOD)
    assert {key for key, entry in largest.entries.items() if entry.best} == {(("a_b",), (9,))}
    alone = table.select(method="a_b").summarize("error", **BY_METHOD)
    assert not any(entry.best for entry in alone.entries.values())


def test_the_best_accuracy_is_the_largest():
    accuracy = {"x": np.linspace(0.1, 0.2, 9), "y": np.linspace(0.8, 0.9, 9)}
    found = lf.Table([{"rule": rule, "accuracy": values} for rule, values in accuracy.items()])
    found = found.summarize("accuracy", rows="rule")
    assert [entry.best for entry in found.entries.values()] == [False, True]
    assert found.entries[("y",), ()][:3] == pytest.approx(median_interval(accuracy["y"]))


@pytest.mark.parametrize(("best", "worst", "median"), [("smallest", np.inf, 4.0), ("largest", -np.inf, 3.0)])
def test_diverged_trials_are_counted_and_are_the_worst(best, worst, median):
    values = of_values(x=[np.nan, np.nan, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    entry = values.summarize("error", rows="rule", best=best).entries[("x",), ()]
    assert (entry.trials, entry.diverged, entry.estimate) == (8, 2, median)
    assert (entry.high if best == "smallest" else entry.low) == worst
    mean = values.summarize("error", rows="rule", best=best, statistic="mean")
    assert mean.entries[("x",), ()][:3] == (worst, -np.inf, np.inf)
    assert f"| {worst} [-inf, inf], 2 of 8 diverged |" in mean.to_markdown()


def test_infinite_values_have_not_diverged():
    """Rounds to a level, for example, that a trial does not reach."""
    values = of_values(x=[np.inf, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0])
    entry = values.summarize("error", rows="rule").entries[("x",), ()]
    assert (entry.estimate, entry.high, entry.diverged) == (40.0, np.inf, 0)


NUMBERS = [
    (123.456, "123 [62, 247]"),
    (12.3456, "12.3 [6.2, 24.7]"),
    (9999.0, "9999 [5000, 19998]"),
    (12345.0, "1.23 [0.62, 2.47] x 1e4"),
    (0.0012345, "0.00123 [0.00062, 0.00247]"),
    (0.00012345, "1.23 [0.62, 2.47] x 1e-4"),
    (-12.3456, "-12.3 [-6.2, -24.7]"),
    (0.0, "0.00 [0.00, 0.00]"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_a_number_has_three_digits_and_its_interval_the_same_decimals(value, text):
    summary = of_values(x=[1.0, 2.0]).summarize("error", rows="rule")
    entry = next(iter(summary.entries.values()))._replace(estimate=value, low=value / 2, high=2 * value)
    found = type(summary)("error", "median", "smallest", ["rule"], [], {(("x",), ()): entry})
    assert f"| x | {text} |" in str(found)


@pytest.fixture(scope="module")
def pandas_with_jinja2():
    """The packages of a summary's texts; without them the test is skipped."""
    pytest.importorskip("pandas")
    pytest.importorskip("jinja2")


@pytest.mark.usefixtures("pandas_with_jinja2")
def test_markdown_and_latex_have_the_same_numbers(table):
    found = table.summarize("error", **BY_METHOD)
    bold = found.entries[("c & d",), (9,)]
    power = -7 if bold.estimate < 1e-6 else -6
    mantissas = [f"{value / 10.0**power:.2f}" for value in bold[:3]]
    lines = found.to_markdown().splitlines()
    assert lines[0] == "| method | n_clients = 4 | n_clients = 9 |"
    assert f"**{mantissas[0]} [{mantissas[1]}, {mantissas[2]}] x 1e{power}**" in lines[3]
    latex = found.to_latex(caption="A caption", label="tab:a")
    assert all(rule in latex for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{A caption}"))
    assert r"\begin{tabular}{lrr}" in latex
    assert r"a\_b & " in latex
    assert r"c \& d & " in latex
    number = rf"${mantissas[0]}\ [{mantissas[1]}, {mantissas[2]}] \cdot 10^{{{power}}}$"
    assert rf"\bfseries \boldmath {number} \\" in latex
    assert latex.count(r"\bfseries") == 1
    assert "%" not in found.note  # a comment in LaTeX


@pytest.mark.parametrize("package", ["pandas", "jinja2"])
def test_latex_names_the_package_that_is_missing(package, table, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.setitem(sys.modules, package, None)
    summary = table.summarize("error", **BY_METHOD)
    assert_one_line(summary.to_latex, [f"to_latex() requires {package}", "linfed[tables]"], ImportError)


def test_the_frame_has_a_line_for_each_entry(table):
    pytest.importorskip("pandas")
    found = table.summarize("error", rows=("method", "n_clients"))
    frame = found.to_pandas()
    assert list(frame.columns) == ["method", "n_clients", "estimate", "low", "high", "trials", "diverged", "best"]
    assert frame["estimate"].tolist() == [entry.estimate for entry in found.entries.values()]
    assert frame["best"].tolist() == [False, False, False, True]


@pytest.mark.usefixtures("pandas_with_jinja2")
def test_an_entry_without_a_row_is_empty(table):
    found = lf.Table(table.rows[:3]).summarize("error", **BY_METHOD)
    assert found.to_markdown().splitlines()[3].endswith("|  |")
    assert r" &  \\" in found.to_latex()


def test_a_row_without_the_column_is_a_row_of_its_own():
    given = lf.Table([{"n": 1, "ridge": 0.5, "error": np.arange(8.0)}, {"n": 1, "error": np.arange(8.0)}])
    lines = str(given.summarize("error", rows="ridge", columns="n")).splitlines()[2:4]
    assert [line.split("|")[1] for line in lines] == [" 0.5 ", "  "]


@pytest.mark.usefixtures("pandas_with_jinja2")
def test_too_few_trials_have_open_ends_and_the_note_says_so(table):
    found = of_values(x=np.arange(5.0)).summarize("error", rows="rule")
    assert "[-inf, inf]" in str(found)
    assert r"[-\infty, \infty]" in found.to_latex()
    assert "too few" in found.note
    assert "over 5 trials" in found.note
    assert "too few" not in table.summarize("error", **BY_METHOD).note
    assert "over 5 to 8 trials" in of_values(x=np.arange(5.0), y=np.arange(8.0)).summarize("error", rows="rule").note


def per_client(row):
    return lf.LabeledArray(np.ones((len(row["error"]), 2)), client=[0, 1])


INVALID = {
    "two rows in an entry": (
        lambda t: t.summarize("error", rows="method"),
        ["method = 'a_b' and differ in n_clients", "select()"],
    ),
    "no values of trials": (lambda t: t.summarize("n_clients", **BY_METHOD), ["metric = 'n_clients'", "per trial"]),
    "values of clients": (
        lambda t: t.assign(client_error=per_client).summarize("client_error", **BY_METHOD),
        ["metric = 'client_error'", "'client'"],
    ),
    "a statistic": (lambda t: t.summarize("error", rows="method", statistic="mode"), ["statistic = 'mode'"]),
    "a best value": (lambda t: t.summarize("error", rows="method", best="low"), ["best = 'low'"]),
    "an empty table": (lambda t: t.select(n_clients=1).summarize("error", rows="method"), ["empty table"]),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_cannot_be_summarized_is_refused(name, table):
    call, fragments = INVALID[name]
    assert_one_line(lambda: call(table), fragments)


def test_a_summary_keeps_its_entries():
    summary = of_values(a=np.arange(8.0)).summarize("error", rows="rule")
    entries = dict(summary.entries)
    own = type(summary)("error", "median", "smallest", ["rule"], [], entries)
    entries.clear()
    assert own.to_markdown() == summary.to_markdown()


@any_text
@pytest.mark.usefixtures("pandas_with_jinja2")
def test_a_summary_of_any_words_has_its_rows_and_cells(text):
    metric = f"error {text.replace('//', '')}".rstrip("/").replace("\0", "")
    keys = [(text, text + "'"), (text + "'", text)]
    rows = [{"a": a, "b": b, "n": n, metric: np.arange(8.0)} for a, b in keys for n in (text, "other")]
    found = lf.Table(rows).summarize(metric, rows=("a", "b"), columns="n")
    columns = 2 + len({text, "other"})
    *lines, empty, note = found.to_markdown().split("\n")
    assert (len(lines), empty) == (2 + len(keys), "")
    assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines] == [columns + 1] * len(lines)
    assert note.startswith("error")
    tex = found.to_latex().split("\n")
    inner = tex[tex.index(r"\toprule") + 1 : tex.index(r"\bottomrule")]
    inner.remove(r"\midrule")
    assert len(inner) == 1 + len(keys)
    for line in inner:
        assert line.endswith(r" \\")
        assert not line.startswith(("[", "*"))
        assert len(re.findall(r"(?<!\\)&", line)) == columns - 1
