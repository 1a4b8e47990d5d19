"""BibTeX entry of linfed, from ``CITATION.cff``."""

from __future__ import annotations

import re
from pathlib import Path

from linfed._package import FOLDER, SHIPPED

FILE = "CITATION.cff"

FIELDS = {"title": "title", "version": "version", "date-released": "year", "doi": "doi", "repository-code": "url"}
"""Fields of ``CITATION.cff`` and their names in BibTeX."""


def citation_file() -> Path:
    """Return the path of ``CITATION.cff``: in the installed package, or next to the package in a checkout."""
    package = FOLDER
    return next(path for path in (package / SHIPPED / FILE, package.parent / FILE) if path.is_file())


def bibtex() -> str:
    """Return the BibTeX entry of linfed.

    Notes
    -----
    The file is read with regular expressions: one field per line, and authors with ``name``, or with ``family-names``
    and ``given-names``.
    """
    text = citation_file().read_text(encoding="utf-8")
    given = {name: value.strip("\"'") for name, value in re.findall(r"(?m)^([\w-]+): *(.+?) *$", text)}
    people = re.search(r"(?m)^authors:\n((?: .*\n?)+)", text)
    authors = []
    for part in re.split(r"(?m)^ *- ", people[1])[1:] if people else []:
        person = {name: value.strip("\"'") for name, value in re.findall(r"(?m)^ *([\w-]+): *(.+?) *$", part)}
        authors.append(f"{{{person['name']}}}" if "name" in person else ", ".join(_of_person(person)))
    fields = {"author": " and ".join(authors)}
    fields |= {name: given[field] for field, name in FIELDS.items() if field in given}
    fields["title"] = f"{{{fields['title']}}}"
    if "year" in fields:
        fields["year"] = fields["year"][:4]
    fields["note"] = f"Python package, version {fields.pop('version')}"
    return "\n".join(["@misc{linfed,", *(f"  {name} = {{{value}}}," for name, value in fields.items()), "}"])


def _of_person(person: dict[str, str]) -> list[str]:
    return [person[name] for name in ("family-names", "given-names") if name in person]
