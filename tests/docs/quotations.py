"""Quotations of papers: where they are in this repository, and whether they are in the papers.

The papers themselves are not in the repository. ``python -m tests.docs.quotations FOLDER`` looks for every quotation in
extracts of them (``fedrep_paper.txt`` and ``flute_paper.txt`` in FOLDER), and writes ``tests/docs/quotations.json`` if
all are there: a hash for each. `tests/docs/test_quotations.py` fails if a quotation is added or changed without it.

Extracts lose signs, superscripts and ligatures. Only letters are compared, therefore, Greek ones by name and without
spaces. Square brackets mark what is left out, or supplied by us; the parts between them must follow each other.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from linfed.statistics import findings
from tests.helpers import ROOT

CHECKED = ROOT / "tests" / "docs" / "quotations.json"
SOURCES = {"FedRep paper": "fedrep_paper.txt", "FLUTE paper": "flute_paper.txt"}
"""Extracts by the first words of a quotation's place."""
PAGES = {
    "docs/papers/fedrep.md": "FedRep paper",
    "docs/papers/flute.md": "FLUTE paper",
    "docs/classes.md": "FLUTE paper",
}
"""Pages whose quoted words are a paper's."""
FEWEST = 4
"""Quoted words of a page that are fewer than these are no quotation."""


class Quotation(NamedTuple):
    """Words of a paper, and where they are in it."""

    place: str
    words: str

    @property
    def source(self) -> str:
        """The extract's file name."""
        return next(file for paper, file in SOURCES.items() if self.place.startswith(paper))

    @property
    def sha256(self) -> str:
        """Hash of place and words."""
        return hashlib.sha256(f"{self.place}\n{' '.join(self.words.split())}".encode()).hexdigest()


def quotations() -> list[Quotation]:
    """Return the quotations of experiments, judges and pages."""
    files = [*sorted((ROOT / "experiments").rglob("*.py")), *sorted((ROOT / "linfed").rglob("*.py"))]
    found = [one for path in files if "cite" in path.read_text(encoding="utf-8") for one in of_module(path)]
    for page, paper in PAGES.items():
        quoted = re.findall(r'"([^"]+)"', (ROOT / page).read_text(encoding="utf-8"))
        found += [Quotation(paper, words) for words in quoted if len(words.split()) >= FEWEST]
    return list(dict.fromkeys(found))


def of_module(path: Path) -> Iterator[Quotation]:
    """Yield the quotations of a module: arguments of `cite`, and of partials of it, must be known when it loads."""
    names = vars(importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts)))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)  # cite, a partial of it, or c.cite
        called = names.get(name) or getattr(names.get("c"), name.removeprefix("c."), None)
        given = [ast.unparse(argument) for argument in node.args]
        if called is findings.cite:
            place, words = (eval(text, dict(names)) for text in given)
            yield Quotation(place, words)
        elif isinstance(called, functools.partial) and called.func is findings.cite:
            yield Quotation(*called.args, *(eval(text, dict(names)) for text in given))


def letters(text: str) -> str:
    """Return the letters of a text in lower case, Greek ones as their names."""
    out = []
    for char in unicodedata.normalize("NFKD", text):
        name = unicodedata.name(char, "")
        greek = re.fullmatch(r"GREEK (?:SMALL|CAPITAL) LETTER (\w+)|GREEK LUNATE (EPSILON) SYMBOL", name)
        out.append((greek[1] or greek[2]).lower() if greek else char.lower() if re.match("[A-Za-z]", char) else " ")
    words = re.sub(r"\beps\b", "epsilon", "".join(out)).replace("lamda", "lambda")  # as Unicode spells it
    return re.sub(r"[^a-z]", "", words)


def is_in(words: str, extract: str) -> bool:
    """Return whether the parts of a quotation are in an extract (its `letters`), one after the other."""
    at = 0
    for part in re.split(r"\[[^\]]*\]", words):
        at = extract.find(letters(part), at)
        if at < 0:
            return False
        at += len(letters(part))
    return True


def main(folder: str) -> int:
    """Check all quotations, and write their hashes if they are in the extracts."""
    extracts = {file: letters((Path(folder) / file).read_text(encoding="utf-8")) for file in SOURCES.values()}
    found = quotations()
    missing = [one for one in found if not is_in(one.words, extracts[one.source])]
    for one in missing:
        print(f'not in {one.source}: {one.place}: "{one.words}"')
    if not missing:
        lines = [{"place": one.place, "source": one.source, "sha256": one.sha256} for one in sorted(found)]
        CHECKED.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
        print(f"{len(found)} quotations are in the extracts")
    return len(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
