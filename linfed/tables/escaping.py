"""Text within Markdown and LaTeX: what a reader sees is the text itself, whatever characters it has."""

from __future__ import annotations

import re

LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
"""Characters that LaTeX does not print as they are, and how to print them."""

MARKDOWN = re.compile(r"[\\`*\[\]<>|~$]|&(?=#?\w+;)|_(?![^\W_])")
"""Characters that Markdown does not print as they are within a line. An underscore before a letter ends no emphasis."""

INVISIBLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
"""Line breaks, other spaces and control characters."""


def one_line(text: str) -> str:
    """Return a text with single spaces for line breaks, other spaces and control characters, and none at its ends."""
    return INVISIBLE.sub(" ", text).strip()


def markdown(text: str) -> str:
    r"""Return a text for a cell of a table, or for the middle of a line, in Markdown.

    >>> print(markdown("a | *b*\nn_clients"))
    a \| \*b\* n_clients
    """
    return MARKDOWN.sub(r"\\\g<0>", one_line(text))


def latex(text: str) -> str:
    r"""Return a text for a line or a cell of a table in LaTeX.

    A text that begins with a bracket or a star begins with an empty group: after a line break, LaTeX would read it as
    the argument of the line break.

    >>> print(latex("m^2 & 5 %"), latex("[0.1, 0.3]"))
    m\textasciicircum{}2 \& 5 \% {}[0.1, 0.3]
    """
    escaped = "".join(LATEX.get(one, one) for one in one_line(text))
    return f"{{}}{escaped}" if escaped.startswith(("[", "*")) else escaped
