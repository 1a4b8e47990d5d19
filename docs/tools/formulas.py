"""Write the formulas in a plain text, such as a claim, as TeX between dollar signs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from linfed.tables.escaping import MARKDOWN

GREEK = (
    "Delta|Gamma|Lambda|Omega|Phi|Pi|Theta|alpha|beta|chi|delta|eps|eta|gamma|kappa|lambda|mu|nu|phi|pi|rho|sigma|tau|"
    "theta|xi"
)
FUNCTIONS = "log|sqrt|min|max|cos|sin|exp"
NAMES = r"dist|tr(?=[ (][A-Z(])|mean(?=_)|(?:diag|ceil|floor|qr)(?=\()"
"""Functions that TeX does not name."""
UNITS = r"(?!(?<=')s\b|(?<=\d )s\b|x\b|L-BFGS|d\. f\.|(?<=d\. )f\.)"
"""The letters of "theorem's", "1.5 s", "4 x 400", "L-BFGS" and "5 d. f." are no symbols."""
SYMBOL = (
    rf"{UNITS}(?:{GREEK}|{NAMES}|sum(?=_| (?:{GREEK}))|[A-Za-z])(?:_(?:[A-Za-z0-9]+|\([^()]*\))|\d)?(?![A-Za-z_]|\.\d)"
)
PRODUCT = r"(?:rn|kd|BW|BB|HH|zz)(?![A-Za-z_])"
"""Products of two letters without a space."""
TOKEN = re.compile(
    rf"(?<![A-Za-z_.])(?<![A-Za-z_]\d)(?P<word>(?:{FUNCTIONS})(?![A-Za-z_])|{PRODUCT}|{SYMBOL})"
    r"|(?P<number>(?<![A-Za-z_.\d])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?![A-Za-z]{2}|\d|%))"
    r"|(?P<operator><=|>=|<<|<-(?= )|->|\|\|(?:_F)?|[=<>+\-/^]|(?<= )~|(?<=[A-Za-z0-9])\*|'(?!s\b))"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,(?= ?[A-Za-z0-9]))"
)
RELATIONS = {
    "->": r"\to",
    "<-": r"\leftarrow",
    "<=": r"\le",
    ">=": r"\ge",
    "<<": r"\ll",
    "~": r"\sim",
    "||": r"\Vert",
    "||_F": r"\Vert_F",
}
NOT_ALONE = {"a", "A", "I"}
"""Letters that are words, unless an operator follows them."""


def with_formulas(text: str) -> str:
    r"""Return Markdown in which the formulas of a plain text are TeX, and everything else is literal.

    >>> print(with_formulas("C = 1 is sufficient for m >= c(kappa^4 k^3 log(rn)/E0^2)"))
    $C = 1$ is sufficient for $m \ge c(\kappa^{4} k^{3} \log(rn)/E_{0}^{2})$
    >>> print(with_formulas("The smallest m - k grows like m^-1/2 near B*, in `lf.predict` too"))
    The smallest $m - k$ grows like $m^{-1/2}$ near $B^*$, in `lf.predict` too
    >>> print(with_formulas("A run at a step_size of *10* to 90 %"))
    A run at a step_size of \*10\* to 90 %
    """
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if turn % 2 else _with_formulas(part) for turn, part in enumerate(parts))


def formula(text: str) -> str:
    r"""Return a literal of a docstring as TeX, or an empty string if it is not a formula.

    >>> print(formula("eta <= 1/(4 sigma_max^2)"))
    \eta \le 1/(4 \sigma_{\mathrm{max}}^{2})
    >>> formula("step_size=0.5"), formula("(T, p, k)"), formula("B")
    ('', '', '')
    """
    spans = list(_spans(text, prose=False))
    if len(spans) != 1 or spans[0][0].start() > 0 or spans[0][-1].end() < len(text):
        return ""
    (span,) = spans
    is_tuple = text.startswith("(") and text.endswith(")") and "," in text
    kinds = [token.lastgroup for token in span]
    return "" if is_tuple or not ({"operator"} & {*kinds} or kinds.count("word") > 1) else _tex(span)


def escaped(text: str) -> str:
    """Return a text with the special characters of Markdown escaped, also for tables."""
    return MARKDOWN.sub(r"\\\g<0>", text)


def _with_formulas(text: str) -> str:
    out, end = "", 0
    for span in _spans(text):
        out += escaped(text[end : span[0].start()]) + f"${_tex(span)}$"
        end = span[-1].end()
    return out + escaped(text[end:])


def _spans(text: str, prose: bool = True) -> Iterator[list[re.Match[str]]]:
    """Yield the formulas of a text, each as its tokens; in `prose`, letters can be words."""
    run: list[re.Match[str]] = []
    for token in TOKEN.finditer(text):
        if run and text[run[-1].end() : token.start()] not in ("", " "):
            yield from _cut(run, prose)
            run = []
        run.append(token)
    yield from _cut(run, prose)


def _cut(run: list[re.Match[str]], prose: bool) -> Iterator[list[re.Match[str]]]:
    """Yield the formulas in a run of tokens: balanced, and with a symbol at or between its ends."""
    depth = 0
    for place, token in enumerate(run):
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if depth < 0 or (depth == 0 and token.lastgroup == "comma"):
            yield from _cut(run[:place], prose)
            yield from _cut(run[place + 1 :], prose)
            return
    if depth > 0:
        last = next(place for place in range(len(run))[::-1] if run[place].lastgroup == "open")
        yield from _cut(run[:last], prose)
        yield from _cut(run[last + 1 :], prose)
        return
    while run and run[0].lastgroup in ("operator", "comma") and run[0][0] != "||":
        run = run[1:]
    while run and run[-1].lastgroup in ("operator", "comma") and run[-1][0] not in ("'", "*", "||", "||_F"):
        run = run[:-1]
    words = [token[0] for token in run if token.lastgroup == "word"]
    if not words:
        return
    for place, token in enumerate(run):
        before = run[place - 1].lastgroup if place else ""
        if prose and token.lastgroup == "number" and before == "word":  # "step_size 0.1", and TeX has no spaces
            yield from _cut(run[:place], prose)
            yield from _cut(run[place:], prose)
            return
        after = run[place + 1].lastgroup if place + 1 < len(run) else ""
        if prose and token[0] in NOT_ALONE and after != "operator":  # an article
            yield from _cut(run[:place], prose)
            yield from _cut(run[place + 1 :], prose)
            return
    yield run


def _tex(run: list[re.Match[str]]) -> str:
    """Return a formula in TeX."""
    text, out = run[0].string, ""
    for place, token in enumerate(run):
        gap = " " if place and text[run[place - 1].end()] == " " else ""
        made = _token(token)
        out += gap or " " * (bool(re.search(r"\\[A-Za-z]+$", out)) and made[0].isalpha())
        out += made
    for head, ends in ((r"\sqrt", "()"), ("^", "()"), ("^", (r"\{", r"\}"))):
        out = _braced(out, head, *ends)
    out = re.sub(r"\^(-?1/\d+|-?\d+|[A-Za-z])", r"^{\1}", out)
    return out.replace("^*'", r"^{*\prime}")


def _braced(text: str, head: str, opening: str, closing: str) -> str:
    """Return TeX in which the brackets that follow a command, also nested ones, are its braces."""
    start = text.find(head + opening)
    if start < 0:
        return text
    begin = start + len(head) + len(opening)
    depth, end = 1, begin
    while depth:
        at = min(place for place in (text.find(opening, end), text.find(closing, end)) if place >= 0)
        depth += 1 if text.startswith(opening, at) else -1
        end = at + len(opening)
    inside = _braced(text[begin : end - len(closing)], head, opening, closing)
    return f"{text[: begin - len(opening)]}{{{inside}}}{_braced(text[end:], head, opening, closing)}"


def _token(token: re.Match[str]) -> str:
    found = token[0]
    if token.lastgroup == "word":
        if found in FUNCTIONS.split("|"):
            return f"\\{found}"
        name, _, index = re.sub(rf"^({GREEK}|[A-Za-z])(\d)$", r"\1_\2", found).partition("_")
        if name in ("ceil", "diag", "dist", "floor", "mean", "qr", "tr"):
            name = rf"\mathrm{{{name}}}"
        elif name in (*GREEK.split("|"), "sum"):
            name = r"\varepsilon" if name == "eps" else f"\\{name}"
        index = rf"\mathrm{{{index}}}" if len(index) > 1 and index.isalpha() else index
        return f"{name}_{{{index}}}" if index else name
    if found == "*" or (found == "+" and token.string.startswith(" =", token.end())):
        return f"^{found}"
    if token.lastgroup == "number":
        return found.replace(",", "{,}")
    return RELATIONS.get(found, f"\\{found}" if found in "{}" else found)
