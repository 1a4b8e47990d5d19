"""Write the formulas in a plain text, such as a claim, as TeX between dollar signs."""

from __future__ import annotations

import re
from collections.abc import Iterator

GREEK = "Delta|Gamma|Lambda|Omega|Phi|Theta|alpha|beta|delta|eps|eta|gamma|kappa|lambda|phi|sigma|tau|theta"
FUNCTIONS = "log|sqrt|min|max|cos|sin|exp"
UNITS = r"(?!(?<=')s\b|(?<=\d )s\b|x\b)"
"""The letters of "theorem's", "1.5 s" and "4 x 400" are no symbols."""
SYMBOL = (
    rf"{UNITS}(?:{GREEK}|dist|sum(?=_| (?:{GREEK}))|[A-Za-z])(?:_(?:[A-Za-z0-9]+|\([^()]*\))|\d)?(?![A-Za-z_]|\.\d)"
)
PRODUCT = r"(?:rn|kd|BW)(?![A-Za-z_])"
"""Products of two letters without a space."""
TOKEN = re.compile(
    rf"(?<![A-Za-z_.])(?<![A-Za-z_]\d)(?P<word>(?:{FUNCTIONS})(?![A-Za-z_])|{PRODUCT}|{SYMBOL})"
    r"|(?P<number>(?<![A-Za-z_.\d])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?![A-Za-z]{2}|\d|%))"
    r"|(?P<operator><=|>=|<<|\|\|(?:_F)?|[=<>+\-/^~]|(?<=[A-Za-z0-9])\*|'(?!s\b))"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,(?= ?[A-Za-z0-9]))"
)
RELATIONS = {"<=": r"\le", ">=": r"\ge", "<<": r"\ll", "~": r"\sim", "||": r"\Vert", "||_F": r"\Vert_F"}
NOT_ALONE = {"a", "A", "I"}
"""Letters that are words, unless an operator follows them."""


def with_formulas(text: str) -> str:
    r"""Return Markdown in which the formulas of a plain text are TeX, and everything else is literal.

    >>> print(with_formulas("C = 1 is sufficient for m >= c(kappa^4 k^3 log(rn)/E0^2)"))
    $C = 1$ is sufficient for $m \ge c(\kappa^{4} k^{3} \log(rn)/E_{0}^{2})$
    >>> print(with_formulas("The smallest m - k grows like m^-1/2 near B*, in `lf.predict` too"))
    The smallest $m - k$ grows like $m^{-1/2}$ near $B^*$, in `lf.predict` too
    >>> print(with_formulas("A run at a step_size of 10 to 90 %"))
    A run at a step\_size of 10 to 90 %
    """
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if turn % 2 else _with_formulas(part) for turn, part in enumerate(parts))


def escaped(text: str) -> str:
    """Return a text with all special characters of Markdown escaped, also for tables."""
    return re.sub(r"([\\`*_{}\[\]<>|#$~&])", r"\\\1", text)


def _with_formulas(text: str) -> str:
    out, end = "", 0
    for span in _spans(text):
        out += escaped(text[end : span[0].start()]) + f"${_tex(span)}$"
        end = span[-1].end()
    return out + escaped(text[end:])


def _spans(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield the formulas of a text, each as its tokens."""
    run: list[re.Match[str]] = []
    for token in TOKEN.finditer(text):
        if run and text[run[-1].end() : token.start()] not in ("", " "):
            yield from _cut(run)
            run = []
        run.append(token)
    yield from _cut(run)


def _cut(run: list[re.Match[str]]) -> Iterator[list[re.Match[str]]]:
    """Yield the formulas in a run of tokens: balanced, and with a symbol at or between its ends."""
    depth = 0
    for place, token in enumerate(run):
        depth += (token.lastgroup == "open") - (token.lastgroup == "close")
        if depth < 0 or (depth == 0 and token.lastgroup == "comma"):
            yield from _cut(run[:place])
            yield from _cut(run[place + 1 :])
            return
    if depth > 0:
        last = next(place for place in range(len(run))[::-1] if run[place].lastgroup == "open")
        yield from _cut(run[:last])
        yield from _cut(run[last + 1 :])
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
        if token.lastgroup == "number" and before == "word":  # "step_size 0.1", and TeX has no spaces
            yield from _cut(run[:place])
            yield from _cut(run[place:])
            return
        if token[0] in NOT_ALONE and (place + 1 == len(run) or run[place + 1].lastgroup != "operator"):  # an article
            yield from _cut(run[:place])
            yield from _cut(run[place + 1 :])
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
    out = re.sub(r"\\sqrt\(([^()]*(?:\([^()]*\)[^()]*)*)\)", r"\\sqrt{\1}", out)
    out = re.sub(r"\^\(([^()]*)\)", r"^{\1}", out)
    return re.sub(r"\^(-?\d+(?:/\d+)?|[A-Za-z])", r"^{\1}", out)


def _token(token: re.Match[str]) -> str:
    found = token[0]
    if token.lastgroup == "word":
        if found in FUNCTIONS.split("|"):
            return f"\\{found}"
        name, _, index = re.sub(rf"^({GREEK}|[A-Za-z])(\d)$", r"\1_\2", found).partition("_")
        name = r"\mathrm{dist}" if name == "dist" else r"\varepsilon" if name == "eps" else name
        name = f"\\{name}" if name in (*GREEK.split("|"), "sum") else name
        index = rf"\mathrm{{{index}}}" if len(index) > 1 and index.isalpha() else index
        return f"{name}_{{{index}}}" if index else name
    if found == "*":
        return "^*"
    if token.lastgroup == "number":
        return found.replace(",", "{,}")
    return RELATIONS.get(found, f"\\{found}" if found in "{}" else found)
