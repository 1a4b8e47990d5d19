"""Check the project's prose: constructions that plain English avoids, and long sentences.

    python -m tests.tools.prose [--list RULE]

The text is that of pages, notebooks, docstrings, messages and claims, without code. The program prints the matches of
each rule, and exits with status 1 above the ceilings. ``--list`` prints the places of a rule: its name, ``long`` or
``all``. The rules are a gauge, not the aim: a sentence that avoids them can still be odd, and a few matches are good
English.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_MATCHES, MOST_LONG = 1.5, 0.04
"""Matches per 1,000 words, and the share of long sentences; lower them when the text improves, never raise them."""

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
GENERATED = ("scoreboard.md",)
CODE = re.compile(r"^(```|~~~).*?^\1|^ *(>>>|\.\.\.|---|===).*?$|(?<=::)\n\n( {4,}.*\n|\n)+", re.DOTALL | re.MULTILINE)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.|#)\s?)")


def texts():
    """Yield the place and the text of each paragraph, list item, docstring and string of at least four words."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    for path in pages:
        if path.name not in GENERATED and not {"_generated", "templates"} & set(path.parts):
            yield path, path.read_text("utf-8")
    for path in ROOT.glob("notebooks/*.ipynb"):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        yield path, "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for path in [*ROOT.glob("linfed/**/*.py"), *ROOT.glob("experiments/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [one.value if isinstance(one, ast.Constant) else "X" for one in node.values]
                yield f"{path}:{node.lineno}", "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path}:{node.lineno}", node.value


def sentences(text):
    """Return the sentences of a text, without code."""
    found = []
    for paragraph in PARAGRAPH.split(CODE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
        words = re.sub(r"``[^`]*``|`[^`]*`|\$[^$]*\$", "X", words)
        found += [one for one in re.split(r"(?<=[.!?])\s+(?=[A-Z`*(])", words) if len(one.split()) > 3]
    return found


def main():
    """Print the counts, and return the exit status."""
    parser = argparse.ArgumentParser(description="Check the project's prose.")
    parser.add_argument("--list", choices=(*RULES, "long", "all"), help="print the matches of a rule")
    wanted = parser.parse_args().list
    found, words, number, long = Counter(), 0, 0, 0
    for place, text in texts():
        for sentence in sentences(text):
            words, number = words + len(sentence.split()), number + 1
            rules = [rule for rule, pattern in RULES.items() for _ in re.finditer(pattern, sentence)]
            found.update(rules)
            if len(sentence.split()) > LONG:
                long += 1
                rules.append("long")
            if wanted in rules or (rules and wanted == "all"):
                print(f"{place}: {rules} {sentence}")
    for rule, count in found.most_common():
        print(f"{rule:16} {count}")
    rate, share = 1000 * found.total() / words, long / number
    print(f"{words:,} words: {rate:.2f} matches per 1,000 (at most {MOST_MATCHES}), {share:.1%} of the sentences long")
    return int(rate > MOST_MATCHES or share > MOST_LONG)


if __name__ == "__main__":
    sys.exit(main())
