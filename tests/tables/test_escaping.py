"""Texts of any characters in Markdown and LaTeX: a reader sees the text itself, on one line."""

import re

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from linfed.tables.escaping import latex, markdown, one_line

SPECIAL = "\\`*[]<>|~$&_^%#{}!-+=\"'()@:;,.\n\r\t\u2028\x0b\x00 "
texts = st.text(st.sampled_from(SPECIAL) | st.characters(exclude_categories=["Cs"]), max_size=12)
EXAMPLES = (
    *("m^2", "a~b", "[0.1, 0.3]", "*", "two\nlines", "a\\|b", "&amp;", "__x__", "[a](b)", "~~x~~"),
    *("$x$ and $y$", ""),
)


def any_text(test):
    """Test the examples and random texts."""
    for text in EXAMPLES:
        test = example(text)(test)
    return given(texts)(test)


@pytest.fixture(scope="module")
def reader():
    """A reader of Markdown, of another package; without it the test is skipped."""
    return pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])


@any_text
def test_markdown_prints_the_text_itself(reader, text):
    tokens = reader.parse(f"| x {markdown(text)} x | y |\n| --- | --- |\n| {markdown(text)} | z |\n")
    cells = [token.children for token in tokens if token.type == "inline"]
    shown = ["".join(part.content for part in cell) for cell in cells]
    assert {part.type for cell in cells for part in cell} <= {"text", "text_special"}
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


@any_text
def test_latex_prints_the_text_itself(text):
    assert printed_by_latex(latex(text)) == one_line(text)
    assert not latex(text).startswith(("[", "*"))
