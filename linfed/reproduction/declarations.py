"""Declarations of an experiment for lists and pages: its summary, headlines and pictures.

They are assignments at the top level of the experiment's module, all of them optional::

    SUMMARY = "FedRep paper, Figure 1: each client's error under Local only, FedAvg and FedRep"
    HEADLINES = ({"claim": "FedRep has the smallest error", "setting": "m = 20"},)
    PICTURES = {"": 2070}
    CAPTIONS = {"": "Error of each client, in ascending order."}

``HEADLINES`` are its claims for the scoreboard, each with the fields of `Headline`. ``PICTURES`` are the figures that
the site shows, each with its width in pixels. ``CAPTIONS`` are the captions of the figures by their keys
(`linfed.plotting.captions`). The experiment's folder gives the section of the pages (`SECTIONS`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from linfed.checks import short_repr, suggestion
from linfed.errors import UsageError
from linfed.statistics.findings import Finding

NAMES = ("SUMMARY", "HEADLINES", "PICTURES")
"""Names of the declarations that `Declarations` contains."""

OTHERS = "Other experiments"
"""Section of the experiments in other folders."""

SECTIONS = {
    "fedrep": "FedRep",
    "flute": "FLUTE",
    "shortcut": "The shortcut draft",
    "averaging": "Averaging",
    "others": OTHERS,
}
"""Section of the pages for each folder of experiments, in the order of the pages; `OTHERS` for other folders."""

PLACES = ("Figure", "Table", "Example", "Theorem")
"""Kinds of places in a paper, in the order of the pages."""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """Claim of an experiment that the scoreboard lists.

    Parameters
    ----------
    claim : str
        Text of the claim.
    setting : str
        Setting to show; by default the first one in which the claim could be judged.
    wording : str
        Wording of the claim, if its source contains no quotation.
    among : pair of str
        First characters of the settings that count, and the name of these settings in the row. All settings by default.
    """

    claim: str
    setting: str = ""
    wording: str = ""
    among: tuple[str, str] = ("", "")

    def found_in(self, claims: Iterable[Finding]) -> list[Finding]:
        """Return the claims of a run that the headline is about, one per setting."""
        return [one for one in claims if one.claim == self.claim and one.setting.startswith(self.among[0])]


@dataclass(frozen=True, kw_only=True)
class Declarations:
    """Declarations of an experiment.

    Parameters
    ----------
    summary : str
        One line about the experiment. It can begin with a place in a paper: "FLUTE paper, Theorem 5.5: ...".
    section : str
        Section of the pages.
    headlines : tuple of Headline
        Claims for the scoreboard, in their order.
    pictures : dict of str to int
        Width in pixels of the figures on the site, by their keys.
    """

    summary: str = ""
    section: str = OTHERS
    headlines: tuple[Headline, ...] = ()
    pictures: Mapping[str, int] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, str]:
        """Paper and place at the beginning of the summary, e.g. ``("FLUTE", "Theorem 5.5")``; empty without any."""
        found = re.match(rf"(\w+) paper, ((?:{'|'.join(PLACES)}) \d+(?:\.\d+)?)[:,]", self.summary)
        return (found[1], found[2]) if found else ("", "")

    def missing_headline(self, claims: Iterable[Finding], *, partial: bool = False) -> str:
        """Return a text about the first headline that matches no claim of a run; empty if all do.

        If `partial`, settings can be missing.
        """
        claims = list(claims)
        for number, headline in enumerate(self.headlines):
            name, settings = f"HEADLINES[{number}]", [one.setting for one in claims if one.claim == headline.claim]
            if not settings:
                near = suggestion(headline.claim, {one.claim for one in claims})
                return f"{name}: no claim is {headline.claim!r}{near}"
            if not partial and not headline.found_in(claims):
                return f"{name}: {headline.claim!r} has no setting that begins with {headline.among[0]!r}"
            if not partial and headline.setting and headline.setting not in settings:
                return f"{name}: {headline.claim!r} has no setting {headline.setting!r}"
        return ""


def declarations_of(values: Mapping[str, object], file: Path) -> Declarations:
    """Return the declarations among the values of a module's names.

    Parameters
    ----------
    values : mapping of str to object
        Values of names. `NAMES` are read, and ``CAPTIONS`` is only checked; other names are ignored.
    file : Path
        File of the module, for messages.

    Raises
    ------
    UsageError
        If a declaration has a wrong form.
    """
    summary = values.get("SUMMARY", "")
    headlines, pictures = values.get("HEADLINES", ()), values.get("PICTURES", {})
    if not isinstance(summary, str) or "\n" in summary:
        raise _refused(file, "SUMMARY", summary, "one line of text")
    if not isinstance(headlines, tuple | list):
        raise _refused(file, "HEADLINES", headlines, "a tuple of dicts with the fields of a headline")
    if not isinstance(pictures, dict) or not all(isinstance(key, str) for key in pictures):
        raise _refused(file, "PICTURES", pictures, "a dict from keys of figures to widths in pixels")
    captions = values.get("CAPTIONS", {})
    if not isinstance(captions, dict) or not all(isinstance(one, str) for pair in captions.items() for one in pair):
        raise _refused(file, "CAPTIONS", captions, "a dict from keys of figures to captions")
    for key, width in pictures.items():
        if type(width) is not int or width < 1:
            raise _refused(file, f"PICTURES[{key!r}]", width, "a width in pixels")
    made = tuple(_headline(one, f"HEADLINES[{number}]", file) for number, one in enumerate(headlines))
    return Declarations(
        summary=summary, section=SECTIONS.get(file.parent.name, OTHERS), headlines=made, pictures=pictures
    )


def _headline(values: object, name: str, file: Path) -> Headline:
    """Return a declared headline."""
    allowed = [one.name for one in fields(Headline)]
    if not isinstance(values, dict) or "claim" not in values or not values.keys() <= set(allowed):
        raise _refused(file, name, values, f"a dict with 'claim' and some of {', '.join(map(repr, allowed[1:]))}")
    for key, value in values.items():
        if key == "among":
            if not isinstance(value, tuple) or [type(one) for one in value] != [str, str]:
                raise _refused(file, f"{name}['among']", value, "a pair of texts")
        elif not isinstance(value, str):
            raise _refused(file, f"{name}[{key!r}]", value, "a text")
    return Headline(**values)


def _refused(file: Path, name: str, value: object, allowed: str) -> UsageError:
    return UsageError(f"{file.name}: {name} = {short_repr(value)} must be {allowed}")


def page_order(declared: Mapping[str, Declarations]) -> list[str]:
    """Return the names of experiments in the order of the pages: by section, place in the paper, and name.

    At one place, the experiment with the place in its name comes first.
    """

    def key(name: str) -> tuple[int, int, float, bool, str]:
        one = declared[name]
        kind, _, number = one.place[1].partition(" ")
        section = list(SECTIONS.values()).index(one.section)
        rank = PLACES.index(kind) if kind else len(PLACES)
        return section, rank, float(number or 0), title(name, one) == name, name

    return sorted(declared, key=key)


def title(name: str, declared: Declarations) -> str:
    """Return the title of an experiment: its place in a paper if the name contains one, otherwise the name."""
    named = re.search(r"-(fig|example|theorem)\d+$", name)
    return ", ".join(declared.place) if named and declared.place[0] else name
