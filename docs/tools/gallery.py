"""Gallery of experiments: one page per experiment, from ``results/committed/`` and the experiments' docstrings.

``docs/conf.py`` calls `write` when the site is built. A page contains the quotations, the figures, the verdicts with
the settings of each claim folded below it, the setup with its deviations from the source, and the files to download.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image

from docs.tools.formulas import escaped, with_formulas
from docs.tools.paths import COMMITTED, DOCS, EXPERIMENTS, FIGURES, TOP
from docs.tools.pictures import SIZES
from linfed.plotting.captions import caption
from linfed.report.cards import (
    PAPERS,
    Card,
    Statement,
    by_origin,
    cards_of,
    counts,
    errors_sentence,
    measured,
    statements,
)
from linfed.report.markdown import table
from linfed.reproduction.committed import committed_runs
from linfed.reproduction.experiments import experiment_files, load, shared_modules
from linfed.reproduction.record import ResultsFolder
from linfed.statistics.findings import Finding, Verdict, required
from linfed.sweeps.progress import format_duration

RUNS = ResultsFolder(COMMITTED)

NO_PICTURE = "The committed tables do not contain all data of its figures. `linfed reproduce {name}` draws them."


def chip(verdict: Verdict, count: int | None = None) -> str:
    """Return a verdict as a badge, with its count."""
    return f"{{bdg-{verdict.kind.site}}}`{verdict if count is None else f'{verdict} {count}'}`"


def chips(verdicts: Mapping[Verdict, int]) -> str:
    """Return a badge for each verdict."""
    return " ".join(chip(verdict, count) for verdict, count in verdicts.items())


def by_group(claims: Iterable[Finding]) -> str:
    """Return a line of badges for each group of claims, by whose they are."""
    groups = by_origin(claims).items()
    return "\n".join(f"- {title}: {chips(counts(group))}" for title, group in groups)


def described(module: ModuleType) -> str:
    """Return a docstring without its first line, as Markdown."""
    return (module.__doc__ or "").strip().partition("\n")[2].strip()


def picture_caption(picture: str, key: str, module: ModuleType) -> str:
    """Return the caption of a committed picture, with the sizes stored in the picture."""
    with Image.open(FIGURES / f"{picture}.png") as image:
        return caption(module, key, image.info[SIZES])


def finding(name: str) -> str:
    """Return the sentences about an experiment on the page Findings, or an empty text."""
    text = (DOCS / "findings.md").read_text(encoding="utf-8")
    found = re.search(rf"(?m)^- `{name}`: ((?:.+\n)(?:  .+\n)*)", text)
    return re.sub(r"\]\((?!http)", "](../../", " ".join(found[1].split())) if found else ""


def figures(card: Card, module: ModuleType) -> list[str]:
    """Return the committed pictures with their captions, or the reason why there are none."""
    if not card.declared.pictures:
        return ["## Figures\n", NO_PICTURE.format(name=card.name)] if hasattr(module, "plot") else []
    lines = ["## Figures\n"]
    for key in card.declared.pictures:
        picture = RUNS.figure(card.name, key, "").name
        image = f"![{escaped(card.declared.summary)}](../../figures/{picture}.png)\n"
        lines += [image, f"*{with_formulas(picture_caption(picture, key, module))}*\n"]
    return lines


def judged(card: Card) -> list[str]:
    """Return the verdicts by whose the claims are: an entry for each statement, with its settings folded below it."""
    lines = ["## Verdicts\n"]
    found = [remark for claim in card.record.claims for remark in remarks_of(claim)]
    notes = {remark: number for number, remark in enumerate(dict.fromkeys(found), start=1)}
    for title, claims in by_origin(card.record.claims).items():
        lines += [f"### {title}\n", *(line for one in statements(claims) for line in entry(one, card, notes))]
    if notes:
        lines += [":::{dropdown} Notes\n", *(f"{number}. {with_formulas(note)}" for note, number in notes.items())]
        lines += ["\n:::\n"]
    return lines


def remarks_of(claim: Finding) -> list[str]:
    """Return the remarks on a claim, one by one."""
    return claim.remarks.split("; ") if claim.remarks else []


def entry(one: Statement, card: Card, notes: Mapping[str, int]) -> list[str]:
    """Return a statement with the setting nearest to failing, and its source and its settings folded below it."""
    several = len({claim.claimed_range for claim in one.claims}) > 1
    summary = f"{with_formulas(one.statistic)}: {escaped(measured(one.worst))}; required: {escaped(one.required)}"
    setting = f" ({with_formulas(one.setting)})" if one.setting else ""
    lines = [
        f":::{{dropdown}} **{with_formulas(one.claim)}** {chips(one.verdicts)} {summary}{setting}\n",
        f"Source: {source(one, card)}.",
    ]
    if len(one.claims) == 1:
        return [*lines, f"{escaped(' '.join(further(one.worst, notes)))}\n", ":::\n"]
    common, names, rows = in_columns([claim.setting for claim in one.claims])
    cells = [
        (
            chip(claim.verdict),
            *(with_formulas(part) for part in row),
            escaped(" ".join([measured(claim), *further(claim, notes, several=several)])),
        )
        for claim, row in zip(one.claims, rows, strict=True)
    ]
    shared = f"All settings: {with_formulas(common)}.\n" if common else ""
    return [*lines, shared, table(("verdict", *map(with_formulas, names), "measured"), cells), "", ":::\n"]


def further(claim: Finding, notes: Mapping[str, int], *, several: bool = False) -> list[str]:
    """Return what else is known of a claim: its detail, its range if statements have `several`, and its notes."""
    numbers = ", ".join(str(notes[remark]) for remark in remarks_of(claim))
    return [
        *([f"({claim.detail})"] if claim.detail else []),
        *([f"required: {required(claim.claimed_range)}"] if several else []),
        *([f"(note {numbers})"] if numbers else []),
    ]


def source(one: Statement, card: Card) -> str:
    """Return the source of a statement; the quotations stand at the top of the page."""
    place, words = quotation = one.claims[0].quotation
    if quotation not in card.quotations:
        return with_formulas(one.source)
    remark = one.source.removeprefix(f'{place}: "{words}"')
    return f"quotation {card.quotations.index(quotation) + 1}{with_formulas(remark)}"


VALUE = re.compile(r"(?:^|(?<=[,:;] ))(?P<name>[^=,:;]+) = (?P<value>(?:[^=,:;]|,(?=\S))+)$")
"""Parameter and value at the end of a setting, as in "paper: n = 100, m = 5"."""


def in_columns(settings: Sequence[str]) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    """Return the values that settings share, the names of the columns, and the cells of each setting.

    A column has the values of a parameter with which all settings end; a first column has the text before them.
    """
    ends = [values_at_end(setting) for setting in settings]
    count = 0
    while count < min(map(len, ends)) and len({end[count][0] for end in ends}) == 1:
        count += 1
    heads = [end[count - 1][2] if count else setting for end, setting in zip(ends, settings, strict=True)]
    is_common = len({*heads}) == 1
    columns = {} if is_common else {"setting": heads}
    common = [heads[0]] if is_common and heads[0] else []
    for place in range(count)[::-1]:
        name, values = ends[0][place][0], [end[place][1] for end in ends]
        if len({*values}) == 1:
            common.append(f"{name} = {values[0]}")
        else:
            columns[name] = values
    return (
        ", ".join(common),
        tuple(columns),
        [tuple(cells[row] for cells in columns.values()) for row in range(len(settings))],
    )


def values_at_end(setting: str) -> list[tuple[str, str, str]]:
    """Return the parameters at the end of a setting from the last to the first: name, value, and the text before it."""
    found: list[tuple[str, str, str]] = []
    while part := VALUE.search(setting):
        setting = setting[: part.start()].rstrip(" ,:;")
        found.append((part["name"], part["value"], setting))
    return found


def settings(card: Card) -> list[str]:
    """Return the values that all rows of each table share."""
    lines = [
        f"- table `{key}`, {card.record.tables[key].rows} rows; common to all rows: {escaped(shared) or 'nothing'}"
        for key, shared in card.settings.items()
    ]
    return ["## Settings\n", *lines, ""]


def as_csv(claims: Iterable[Finding]) -> str:
    """Return the claims as CSV."""
    out = io.StringIO()
    columns = (
        "claim",
        "setting",
        "statistic",
        "estimate",
        "low",
        "high",
        "claimed_range",
        "verdict",
        "source",
        "origin",
        "detail",
        "note",
    )
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for one in claims:
        row = dataclasses.asdict(one) | {"claimed_range": one.claimed_range, "verdict": one.verdict.value}
        missing = [name for name in ("estimate", "low", "high") if np.isnan(row[name])]
        writer.writerow(row | dict.fromkeys(missing))
    return out.getvalue()


def downloads(card: Card) -> list[str]:
    """Return the command that reproduces the run, its environment, and links to its files."""
    name, record = card.name, card.record
    files = [RUNS.record(name), *(RUNS.table(name, key, end) for key in record.tables for end in (".csv", ".npz"))]
    links = [f"{{download}}`claims as CSV <{name}-claims.csv>`"]
    links += [f"{{download}}`{file.name} <../../../results/committed/{file.name}>`" for file in files if file.exists()]
    took = f"{format_duration(committed_runs()[name].seconds)} on two processors"
    return [
        "## Reproduce\n",
        f"```sh\nlinfed reproduce {name}\n```\n",
        f"This run: {took}, commit `{(record.commit or 'unknown')[:10]}`. The JSON file has machine and versions. The "
        "npz files are reduced tables for `lf.Table.load`.\n",
        f"- code: {', '.join(code(name))}",
        *(f"- {link}" for link in links),
        "",
    ]


def page(card: Card, module: ModuleType) -> str:
    """Return the page of an experiment."""
    found_by = (card.name,) if card.title == card.name else (card.name, card.declared.place[1])
    quotations = [
        f"{number}. “{with_formulas(words)}” ({escaped(place)})"
        for number, (place, words) in enumerate(card.quotations, start=1)
    ]
    return "\n".join(
        [
            f"```{{index}} {', '.join(f'! {word}' for word in found_by)}\n```\n",
            f"# {card.title}\n",
            f"`{card.name}`: {escaped(card.declared.summary)}\n",
            f"{by_group(card.record.claims)}\n",
            *(f"{escaped(remark)}\n" for remark in card.record.remarks),
            f"{finding(card.name)}\n",
            *quotations,
            "",
            *figures(card, module),
            *judged(card),
            "## Setup, and deviations from the source\n",
            described(module) + "\n",
            *settings(card),
            *downloads(card),
        ]
    )


def code(name: str) -> list[str]:
    """Return links to the file of an experiment and to the modules that it shares with others."""
    path = experiment_files(EXPERIMENTS)[name]
    files = [file.relative_to(TOP).as_posix() for file in (path, *shared_modules(path))]
    return [f"{{download}}`{one} <../../../{one}>`" for one in files]


def grid_card(card: Card) -> str:
    """Return the card of an experiment on the index page."""
    name, (paper, place) = card.name, card.declared.place
    thumbnail = f"../../figures/thumbnails/{name}.png"
    image = f":img-top: {thumbnail}\n:img-alt: thumbnail of a figure of {name}\n" if card.declared.pictures else ""
    head = f":::{{grid-item-card}} {card.title}\n:link: {name}\n:link-type: doc\n{image}"
    about = card.declared.summary.removeprefix(f"{paper} paper, {place}").lstrip(":, ")
    parts = [f"`{name}`"] * (card.title != name) + [place] * bool(place and card.title == name)
    under = f"{', '.join(parts)}\n\n" if parts else ""
    groups = by_origin(card.record.claims)
    ours = [claim for title, group in groups.items() if title != PAPERS for claim in group]
    sides = {"Papers": groups.get(PAPERS, []), "linfed": ours}
    both = "\n\n".join(f"{side}: {chips(counts(claims))}" for side, claims in sides.items() if claims)
    return f"{head}\n{under}{escaped(about[:1].upper() + about[1:])}\n\n+++\n{both}\n:::\n"


def overview(cards: Mapping[str, Card]) -> str:
    """Return the index page of the gallery."""
    claims = [claim for card in cards.values() for claim in card.record.claims]
    lines = [
        "# Experiments\n",
        f"{len(cards)} experiments, each a full run. {errors_sentence(claims)} "
        "[How to read a verdict](../../start.md#how-to-read-a-verdict).\n",
        f"{by_group(claims)}\n",
    ]
    for section in dict.fromkeys(card.declared.section for card in cards.values()):
        group = [card for card in cards.values() if card.declared.section == section]
        placed = [card for card in group if card.declared.place[1]]
        others = [card for card in group if card not in placed]
        lines.append(f"## {section}\n")
        for subheading, part in (("In the paper", placed), ("Beyond the paper", others)):
            if part:
                lines += [f"### {subheading}\n"] if placed else []
                found = (grid_card(card) for card in part)
                lines += ["::::{grid} 1 2 3 3\n:gutter: 3\n", *found, "::::\n"]
    return "\n".join([*lines, "```{toctree}\n:hidden:\n", *cards, "```\n"])


def changed(path: Path, content: bytes) -> None:
    """Write a file if its content changes; Sphinx reads only changed files again."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def write(folder: Path) -> list[str]:
    """Write the gallery to a folder and return the names of the experiments."""
    folder.mkdir(parents=True, exist_ok=True)
    cards = cards_of(RUNS.records(), EXPERIMENTS)
    for name, card in cards.items():
        changed(folder / f"{name}.md", page(card, load(name, EXPERIMENTS)).encode())
        changed(folder / f"{name}-claims.csv", as_csv(card.record.claims).encode())
    changed(folder / "index.md", overview(cards).encode())
    return list(cards)
