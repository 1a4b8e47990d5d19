"""Tables for a paper: the statistic and its interval, diverged trials, what is bold, and the three formats."""

import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

import linfed as lf
from linfed.statistics import mean_interval, median_interval
from linfed.tables.escaping import latex, markdown, one_line


def table(**changes):
    """Two methods at two sizes; the error ends near 1e-5, or near 1e-6 for the second method at n = 9."""
    rows, rng = [], np.random.default_rng(0)
    for method in ("a_b", "c & d"):
        for n in (4, 9):
            last = (1e-6 if (method, n) == ("c & d", 9) else 1e-5) * np.exp(rng.normal(size=20) / 10)
            error = lf.LabeledArray(np.stack([np.ones(20), last], axis=1), round=[0, 5])
            rows.append({"method": method, "problem.n_clients": n, "error": error} | changes)
    return lf.Table(rows)


@pytest.mark.parametrize(("statistic", "interval"), [("median", median_interval), ("mean", mean_interval)])
def test_an_entry_is_the_statistic_of_the_last_round(statistic, interval):
    given = table()
    found = given.summarize("error", rows="method", columns="n_clients", statistic=statistic)
    for (method,), (n,) in found.entries:
        values = given.select(method=method, n_clients=n)["error"][:, -1]
        assert found.entries[(method,), (n,)][:3] == interval(values)
    assert (found.rows, found.columns) == (("method",), ("n_clients",))


def test_bold_is_the_best_whose_interval_is_apart_from_all_others():
    found = table().summarize("error", rows="method", columns="n_clients")
    assert {key for key, entry in found.entries.items() if entry.best} == {(("c & d",), (9,))}
    largest = table().summarize("error", rows="method", columns="n_clients", best="largest")
    assert {key for key, entry in largest.entries.items() if entry.best} == {(("a_b",), (9,))}
    alone = table().select(method="a_b").summarize("error", rows="method", columns="n_clients")
    assert not any(entry.best for entry in alone.entries.values())


def test_the_best_accuracy_is_the_largest():
    accuracy = {"x": np.linspace(0.1, 0.2, 9), "y": np.linspace(0.8, 0.9, 9)}
    given = lf.Table([{"rule": rule, "accuracy": values} for rule, values in accuracy.items()])
    found = given.summarize("accuracy", rows="rule")
    assert [entry.best for entry in found.entries.values()] == [False, True]
    assert found.entries[("y",), ()][:3] == pytest.approx(median_interval(accuracy["y"]))


@pytest.mark.long
@pytest.mark.parametrize(("best", "worst"), [("smallest", np.inf), ("largest", -np.inf)])
def test_diverged_trials_are_counted_and_are_the_worst(best, worst):
    values = np.array([np.nan, np.nan, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    given = lf.Table([{"rule": "x", "error": values}])
    entry = given.summarize("error", rows="rule", best=best).entries[("x",), ()]
    assert (entry.trials, entry.diverged) == (8, 2)
    assert entry.estimate == (4.0 if best == "smallest" else 3.0)
    assert (entry.high if best == "smallest" else entry.low) == worst
    mean = given.summarize("error", rows="rule", best=best, statistic="mean")
    assert mean.entries[("x",), ()][:3] == (worst, -np.inf, np.inf)
    assert "2 of 8 diverged" in mean.to_markdown()
    assert "2 of 8 diverged" in mean.to_latex()


def test_infinite_values_have_not_diverged():
    values = np.array(
        [np.inf, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    )  # e.g. rounds to a level that a trial does not reach
    entry = lf.Table([{"rule": "x", "rounds": values}]).summarize("rounds", rows="rule").entries[("x",), ()]
    assert (entry.estimate, entry.high, entry.diverged) == (40.0, np.inf, 0)


@pytest.mark.long
def test_markdown_and_latex_have_the_same_numbers():
    found = table().summarize("error", rows="method", columns="n_clients")
    bold = found.entries[("c & d",), (9,)]
    mantissas = [f"{value / 1e-7:.2f}" if bold.estimate < 1e-6 else f"{value / 1e-6:.2f}" for value in bold[:3]]
    power = -7 if bold.estimate < 1e-6 else -6
    lines = found.to_markdown().splitlines()
    assert lines[0] == "| method | n_clients = 4 | n_clients = 9 |"
    assert f"**{mantissas[0]} [{mantissas[1]}, {mantissas[2]}] x 1e{power}**" in lines[3]
    latex = found.to_latex(caption="A caption", label="tab:a")
    assert all(rule in latex for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{A caption}"))
    assert r"a\_b & " in latex
    assert r"c \& d & " in latex
    number = rf"${mantissas[0]}\ [{mantissas[1]}, {mantissas[2]}] \cdot 10^{{{power}}}$"
    assert rf"\bfseries \boldmath {number} \\" in latex
    assert latex.count(r"\bfseries") == 1
    assert "%" not in found.note  # a comment in LaTeX


@pytest.mark.long
def test_the_frame_has_a_line_for_each_entry():
    found = table().summarize("error", rows=("method", "n_clients"))
    frame = found.to_pandas()
    assert list(frame.columns) == ["method", "n_clients", "estimate", "low", "high", "trials", "diverged", "best"]
    assert frame["estimate"].tolist() == [entry.estimate for entry in found.entries.values()]
    assert frame["best"].tolist() == [False, False, False, True]


@pytest.mark.long
def test_an_entry_without_a_row_is_empty():
    given = lf.Table(table().rows[:3])
    found = given.summarize("error", rows="method", columns="n_clients")
    assert found.to_markdown().splitlines()[3].endswith("|  |")
    assert r" &  \\" in found.to_latex()


def test_a_row_without_the_column_is_a_row_of_its_own():
    given = lf.Table([{"n": 1, "ridge": 0.5, "error": np.arange(8.0)}, {"n": 1, "error": np.arange(8.0)}])
    lines = str(given.summarize("error", rows="ridge", columns="n")).splitlines()[2:4]
    assert [line.split("|")[1] for line in lines] == [" 0.5 ", "  "]


@pytest.mark.long
def test_too_few_trials_have_open_ends_and_the_note_says_so():
    given = lf.Table([{"rule": "x", "error": np.arange(5.0)}])
    found = given.summarize("error", rows="rule")
    assert "[-inf, inf]" in str(found)
    assert r"[-\infty, \infty]" in found.to_latex()
    assert "too few" in found.note
    assert "too few" not in table().summarize("error", rows="method", columns="n_clients").note


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda t: t.summarize("error", rows="method"),
            r"have method = 'a_b' and differ in n_clients; use select\(\), or name",
        ),
        (lambda t: t.summarize("n_clients", rows="method", columns="n_clients"), "must have one value per trial"),
        (
            lambda t: t.assign(client_error=per_client).summarize("client_error", rows="method"),
            r"got the axes \(.*'client'",
        ),
        (lambda t: t.summarize("error", rows="method", statistic="mode"), "statistic = 'mode'"),
        (lambda t: t.summarize("error", rows="method", best="low"), "best = 'low'"),
        (lambda t: t.select(n_clients=1).summarize("error", rows="method"), "cannot summarize an empty table"),
    ],
)
def test_what_cannot_be_summarized_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(table())


def per_client(row):
    return lf.LabeledArray(np.ones((len(row["error"]), 2)), client=[0, 1])


def test_the_mean_has_students_interval():
    values = np.random.default_rng(0).normal(size=12)
    from scipy import stats

    interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
    found = mean_interval(values, confidence=0.9)
    assert found == pytest.approx((values.mean(), interval.low, interval.high))
    assert mean_interval([3.0]) == (3.0, -np.inf, np.inf)


# --- texts of any characters -------------------------------------------------------------------------------------

SPECIAL = "\\`*[]<>|~$&_^%#{}!-+=\"'()@:;,.\n\r\t\u2028\x0b\x00 "
odd_texts = st.text(st.sampled_from(SPECIAL) | st.characters(exclude_categories=["Cs"]), max_size=12)
EXAMPLES = (
    "m^2",
    "a~b",
    "[0.1, 0.3]",
    "*",
    "two\nlines",
    "a\\|b",
    "&amp;",
    "__x__",
    "[a](b)",
    "~~x~~",
    "$x$ and $y$",
    "",
)


def with_examples(test):
    for text in EXAMPLES:
        test = example(text)(test)
    return given(odd_texts)(test)


@with_examples
def test_markdown_prints_the_text_itself(text):
    reader = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = reader.parse(f"| x {markdown(text)} x | y |\n| --- | --- |\n| {markdown(text)} | z |\n")
    cells = [token.children for token in tokens if token.type == "inline"]
    shown = ["".join(part.content for part in cell) for cell in cells]
    assert [part.type for cell in cells for part in cell if part.type != "text" and part.type != "text_special"] == []
    assert shown == [one_line(f"x {text} x") if one_line(text) else "x  x", "y", one_line(text), "z"]


def printed_by_latex(text):
    """Return what LaTeX prints; every special character must be part of a known command."""
    names = {"textbackslash": "\\", "textasciicircum": "^", "textasciitilde": "~", "textless": "<", "textgreater": ">"}
    names["textbar"] = "|"
    known = re.compile(r"\\(text[a-z]+)\{\}|\\([{}&%$#_])|(\{\})(?=[*\[])|([^\\{}&%$#_^~<>|])")
    out, end = "", 0
    for found in known.finditer(text):
        assert found.start() == end, text
        command, escaped, group, plain = found.groups()
        out += names[command] if command else "" if group else escaped or plain
        end = found.end()
    assert end == len(text), text
    return out


@with_examples
def test_latex_prints_the_text_itself(text):
    assert printed_by_latex(latex(text)) == one_line(text)
    assert not latex(text).startswith(("[", "*"))


@with_examples
def test_a_summary_of_any_words_has_its_rows_and_cells(text):
    pytest.importorskip("pandas")
    pytest.importorskip("jinja2")
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
