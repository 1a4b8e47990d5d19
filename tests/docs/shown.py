"""Check the built site: no page shows a comment, a line of a template, unread markup, or the address of an object.

    python -m tests.docs.shown SITE

The program prints the places and exits with status 1 if there are any.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path

COMMENTS = ("<!", "written by docs/tools/render.py")
MARKUP = ("``", "{bdg-", "{download}", ":doc:`", ":class:`", ":func:`", r"\(", r"\[")
OBJECTS = ("<factory>", "<function", " object at 0x")
NOT_SHOWN = (*COMMENTS, *MARKUP, *OBJECTS)
HIDDEN = ("script", "style")


class Text(HTMLParser):
    """The text that a page shows, without formulas: a script typesets these."""

    def __init__(self):
        super().__init__()
        self.hidden, self.formula, self.parts = 0, [], []

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in HIDDEN
        if self.formula or "math" in (dict(attrs).get("class") or "").split():
            self.formula.append(tag)

    def handle_endtag(self, tag):
        self.hidden -= tag in HIDDEN
        if self.formula and self.formula[-1] == tag:
            self.formula.pop()

    def handle_data(self, data):
        if not self.hidden and not self.formula:
            self.parts.append(data)


def wrong(page):
    """Return the parts of a page's text that must not be shown."""
    text = Text()
    text.feed(page)
    return [mark for mark in NOT_SHOWN if mark in "".join(text.parts)]


if __name__ == "__main__":
    pages = sorted(Path(sys.argv[1]).rglob("*.html"))
    found = {path: wrong(path.read_text(encoding="utf-8")) for path in pages}
    for path, marks in found.items():
        if marks:
            print(f"{path} shows {', '.join(marks)}")
    sys.exit(not pages or any(found.values()))
