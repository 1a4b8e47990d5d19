"""Check the project's prose: constructions that plain English avoids, and long sentences.

    python -m tests.tools.prose [--list RULE] [--area AREA]

Prints counts for each area of text, and exits with status 1 above the ceilings. ``--list`` also prints the places where
a rule matches: the name of a rule, ``long``, or ``all``. The rules are a gauge, not the aim: a sentence that avoids
them can still be odd, and a few matches are good English.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from linfed import claims
from tests.helpers import ROOT

MOST_MATCHES = 1.5
"""Matches per 1,000 words over all areas; lower it when the text improves, never raise it."""

MOST_LONG = 0.04
"""Largest share of long sentences in an area."""

LONG = 30
"""Words in the longest sentence that is not long."""

RULES = {
    "return what": (
        r"\b(?:[Rr]eturns?|[Yy]ields?|[Tt]akes?|[Pp]rints?|[Dd]raws?|[Ss]ays?|[Ww]rites?|[Kk]nows?|[Rr]aises?|[Tt]ells?"
        r"|[Aa]sk(?:s|ed)?)\s+what\b|(?:^|[.:;]\s+)What (?!is|are|to|next|does|do|happens)\w+"
        r"|\bwhat is (?:said|told|asked|left|known|drawn|one)\b|\bof what\b"
    ),
    "of which": r"\bof (?:which|whom|whose)\b",
    "said": (r"\b(?:said|told|foretold)\b|\bspeaks? of\b|\b(?:says?|knows?|tells?) (?:nothing )?of\b|\bsays? so\b"),
    "one's own": r"\b(?:one's|of (?:its|their|your|one's)) own\b",
    "is none": r"\b(?:is|are|be) none\b|\bis no (?!longer|more\b)\w+|\bno one\b",
    "of squares": r"\bof squares\b|\b(?:is|are|be|was) of (?:classes|numbers|squares|the head|B\b|\d)",
    "alone": r"(?<!client )(?<!clients )(?<!locally )\balone\b",
    "beside": r"\bbeside\b",
    "anew": r"\banew\b",
    "so many": r"\bso many\b|\bof such\b|\bas many\b(?! as)",
    "in its place": r"\bin the place of\b|\bin its place\b",
    "those that": r"\bthose (?:of|that|which|who|there)\b|\bthat of\b|\bthat which\b",
    "but for": r"\bbut for\b|, but (?:the|in|with)\b(?! not)",
    "least": r"\b(?:[Tt]he|a) least\b(?! squares)|\bleast (?:m|n|size|rounds|constant|error|risk)\b",
    "is to be": r"\b(?:is|are) to be\b|\bis to \w+\b",
    "whoever": r"\bwhoever\b|\bwhatever (?:the|it|n|stopped)\b",
    "go on": r"\bgo(?:es)? on\b",
    "the same as": r"\bthe same (?:as|to|in|at|where|wherever|with|for)\b|\bReturn the same\b",
    "meant": r"\bcannot be meant\b|\bis meant\b|\bare meant\b",
    "inversion": (
        r"\bWhere (?:it|they|this|one|a|an|the|there|trials|nothing)\b[^.]{0,60}?, (?:it|the|that|there|what|no)\b"
        r"|\bOf (?:the|a|an|those|trials|what|several|list)\b"
    ),
    "law": (
        r"\blaws? of (?:x|the samples|a round|the noise)\b|\blaw is known\b|\blaws? (?:speaks?|knows?)\b|\bin law\b"
    ),
    "room": r"\brooms?\b",
}
SECTIONS = ("Parameters", "Returns", "Yields", "Raises", "Warns", "Notes", "References", "Examples")
CLAIM_FIELDS = ("text", "claim", "statistic", "note", "where", "setting", "vacuous")
VOCABULARY = {f"c.{name}" for name in claims.__all__} - {"c.cite", "c.reading"}
"""Calls with words of claims; those of sources are a paper's."""
GENERATED = ("scoreboard.md", "theory.md")


class Text(NamedTuple):
    """A piece of prose, without code, and where it stands."""

    area: str
    file: str
    line: int
    words: str


@dataclass
class Counts:
    """What an area's text holds."""

    words: int = 0
    sentences: int = 0
    long: int = 0
    matches: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))


def texts() -> Iterator[Text]:
    """Yield the prose of pages, notebooks, docstrings, error messages, help texts and claims."""
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        if path.name not in GENERATED and not name.startswith(("docs/_", "docs/templates")):
            yield from _of_markdown("docs" if name.startswith("docs") else path.stem, name, path.read_text("utf-8"))
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield from _of_markdown("notebooks", path.relative_to(ROOT).as_posix(), "".join(cell["source"]))
    for folder in ("linfed", "experiments"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from _of_module(path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8")))


def sentences(words: str) -> list[str]:
    """Return the sentences of a text that have more than one word."""
    return [one for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`*(])", words) if len(one.split()) > 1]


def _of_markdown(area: str, file: str, source: str) -> Iterator[Text]:
    """Yield paragraphs, list items and table cells; not code blocks or the scoreboard."""
    source = re.sub(
        r"<!-- scoreboard -->.*?<!-- /scoreboard -->", lambda m: "\n" * m[0].count("\n"), source, flags=re.S
    )
    source = re.sub(r"^(```|~~~).*?^\1", lambda m: "\n" * m[0].count("\n"), source, flags=re.S | re.M)
    paragraph, start = list[str](), 1
    for number, raw in enumerate([*source.splitlines(), ""], 1):
        line = raw.strip()
        if paragraph and (not line or re.match(r"([-*]|\d+\.|#+|\||!\[)\s?", line)):
            yield Text(area, file, start, _without_code(" ".join(paragraph)))
            paragraph = []
        if line.startswith("|"):
            cells = [_without_code(cell) for cell in line.strip("|").split("|")]
            yield from (Text(area, file, number, cell) for cell in cells if len(cell.split()) > 3)
        elif line:
            start = start if paragraph else number
            paragraph.append(re.sub(r"^([-*]|\d+\.|#+)\s+", "", line))


def _of_module(file: str, tree: ast.Module) -> Iterator[Text]:
    own = "experiments" if file.startswith("experiments") else "docstrings"
    for node in ast.walk(tree):
        for statement in body if isinstance(body := getattr(node, "body", None), list) else ():
            if isinstance(statement, ast.Expr) and isinstance(source := getattr(statement.value, "value", None), str):
                yield from _of_docstring(own, file, statement.lineno, source)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (Text("messages", file, node.lineno, _fixed(part)) for part in node.exc.args[:1])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn" and node.args:
            yield Text("messages", file, node.lineno, _fixed(node.args[0]))
        elif isinstance(node, ast.keyword) and node.arg in ("help", "description", "epilog"):
            yield Text("command line", file, node.value.lineno, _fixed(node.value))
        elif isinstance(node, ast.keyword) and node.arg in CLAIM_FIELDS and own == "experiments":
            yield Text("claims", file, node.value.lineno, _fixed(node.value))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in VOCABULARY:
            yield from (
                Text("claims", file, one.lineno, _fixed(one)) for one in node.args if len(_fixed(one).split()) > 2
            )
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CAPTIONS":
            values = node.value.values if isinstance(node.value, ast.Dict) else []
            yield from (Text(own, file, one.lineno, _without_code(_fixed(one))) for one in values)


def _of_docstring(area: str, file: str, line: int, source: str) -> Iterator[Text]:
    """Yield paragraphs; not headings, lines of parameters, examples or literal blocks."""
    paragraph, start, literal = list[str](), line, False
    for number, raw in enumerate([*source.splitlines(), ""], line):
        bare = raw.strip()
        literal = literal and (not bare or len(raw) - len(raw.lstrip()) > 4)
        skipped = literal or bare in SECTIONS or re.match(r"(>>>|\.\.\.|---|===|\w[\w, ]* : )", bare)
        if paragraph and (not bare or skipped or bare.startswith("- ")):
            yield Text(area, file, start, _without_code(" ".join(paragraph)))
            paragraph = []
        if bare and not skipped:
            start = start if paragraph else number
            paragraph.append(bare.removeprefix("- "))
        literal = literal or bare.endswith("::")


def _without_code(source: str) -> str:
    source = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", source)
    return re.sub(r"``[^`]*``|`[^`]*`", "X", source)


def _fixed(node: ast.AST) -> str:
    """Return a string's text, with X for each expression in it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_fixed(part) if isinstance(part, ast.Constant) else "X" for part in node.values)
    if isinstance(node, ast.BinOp):
        return _fixed(node.left) + _fixed(node.right)
    return f"{_fixed(node.body)} / {_fixed(node.orelse)}" if isinstance(node, ast.IfExp) else ""


def counted(wanted: str | None, area: str | None) -> dict[str, Counts]:
    """Return the counts of each area, and print the matches of the wanted rule."""
    found, patterns = dict[str, Counts](), {name: re.compile(pattern) for name, pattern in RULES.items()}
    for text in texts():
        if area not in (None, text.area):
            continue
        counts = found.setdefault(text.area, Counts())
        counts.words += len(text.words.split())
        for sentence in sentences(text.words):
            counts.sentences += 1
            counts.long += (is_long := len(sentence.split()) > LONG)
            if is_long and wanted in ("long", "all"):
                print(f"{text.file}:{text.line}: [{len(sentence.split())} words] {sentence}")
        for rule, pattern in patterns.items():
            for match in pattern.finditer(text.words):
                counts.matches[rule] += 1
                if wanted in (rule, "all"):
                    around = text.words[max(0, match.start() - 50) : match.end() + 50]
                    print(f"{text.file}:{text.line}: [{rule}] ...{around}...")
    return found


def main() -> int:
    """Print the table of counts, and return the exit status."""
    parser = argparse.ArgumentParser(description="Check the project's prose.")
    parser.add_argument("--list", choices=(*RULES, "long", "all"), help="print the matches of a rule")
    parser.add_argument("--area", help="check only one area, a row of the table")
    given = parser.parse_args()
    found = counted(given.list, given.area)
    print(f"{'area':14}{'words':>10}{'matches':>10}{'per 1,000':>12}{'% long':>10}")
    for area, counts in found.items():
        matches, long = sum(counts.matches.values()), 100 * counts.long / max(counts.sentences, 1)
        print(f"{area:14}{counts.words:>10,}{matches:>10}{1000 * matches / max(counts.words, 1):>12.1f}{long:>10.1f}")
    words = sum(one.words for one in found.values())
    matches = sum(sum(one.matches.values()) for one in found.values())
    rate, long = 1000 * matches / max(words, 1), max(one.long / max(one.sentences, 1) for one in found.values())
    print(f"{'all':14}{words:>10,}{matches:>10}{rate:>12.1f}")
    if rate > MOST_MATCHES or long > MOST_LONG:
        print(f"above the ceilings: {MOST_MATCHES} matches per 1,000 words, {MOST_LONG:.0%} long sentences in an area")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
