"""Report as one HTML page that loads no other files and is readable without scripts."""

from __future__ import annotations

import base64
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources

from linfed.claims.caveats import EDGE
from linfed.report.cards import (
    PREDICTIONS,
    THRESHOLDS,
    WHOSE,
    Statement,
    by_origin,
    counts,
    errors_sentence,
    measured,
    place_of,
    statements,
)
from linfed.report.compare import Pair
from linfed.report.content import Content
from linfed.report.pictures import Picture
from linfed.reproduction.experiments import relative_path
from linfed.statistics.findings import Finding, Verdict, join_notes, required

OUTCOMES = {"agrees": "What agrees", "contradicts": "What contradicts", "undecided": "What is undecided"}
"""Titles of the lists, by `Statement.outcome`."""

FEW = 3
"""Largest number of experiments of a report that has all statements and figures, and unfolds the experiments."""


def page(content: Content) -> str:
    """Return the report as HTML."""
    sections = {kind: (title, _list(content, kind)) for kind, title in OUTCOMES.items()}
    sections["ours"] = ("What linfed adds: predictions, thresholds and controls", _ours(content))
    if content.moved:
        sections["differences"] = (f"Differences from {content.baseline}", _differences(content))
    sections["experiments"] = ("Experiments", _experiments(content))
    sections["verdicts"] = ("How to read a verdict", _meanings(content))
    room = resources.files("linfed.report")
    style, script = (room.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(content.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the results</a>\n'
        f"{_navigation(content, sections)}\n"
        f'<main id="main"><header><h1>{escape(content.title)}</h1><p>{escape(content.about)}</p>{_banner(content)}'
        f"{_summary(content)}</header>\n"
        + "\n".join(_section(name, title, inside) for name, (title, inside) in sections.items())
        + f"</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _section(name: str, title: str, inside: str) -> str:
    return f'<section id="{name}" aria-labelledby="h-{name}"><h2 id="h-{name}">{escape(title)}</h2>\n{inside}</section>'


def _banner(content: Content) -> str:
    """Return warnings about quick runs and runs with changed fields."""
    smaller = "They have fewer trials and smaller sizes; the verdicts of full runs may differ."
    warnings = [("QUICK runs", content.quick, smaller)] if content.quick else []
    other = "The verdicts of runs without changed fields may differ."
    warnings += [(f"Runs with {fields}", names, other) for fields, names in content.changed.items()]
    banner = ""
    for what, names, why in warnings:
        which = "" if len(names) == len(content.cards) else f": {', '.join(names)}"
        banner += f'<p class="banner"><strong>{escape(what + which)}.</strong> {why}</p>'
    return banner


def _navigation(content: Content, sections: Iterable[str]) -> str:
    """Return the links to the sections and experiments, which stay in view."""
    links = "".join(f'<li><a href="#{name}">{name.capitalize()}</a></li>' for name in sections)
    experiments = "".join(f"<li>{_link(name)}</li>" for name in content.cards)
    index = f'<ul class="index" aria-label="experiments">{experiments}</ul>'
    return f'<nav aria-label="sections"><ul>{links}</ul>{index}</nav>'


def _summary(content: Content) -> str:
    """Return the number of claims with each verdict, by whose they are."""
    plural = "s" * (len(content.cards) != 1)
    groups = "".join(
        f'<p class="totals">{escape(title)}: {_count(len(claims))}: {_chips(counts(claims))}</p>'
        for title, claims in by_origin(content.claims).items()
    )
    return (
        f"<p>{_count(len(content.claims))} in {len(content.cards)} experiment{plural} "
        f'(<a href="#verdicts">how to read a verdict</a>):</p>{groups}'
    )


def _count(claims: int) -> str:
    return f"{claims:,} claim{'s' * (claims != 1)}"


def _meanings(content: Content) -> str:
    """Return the meanings of the verdicts that occur, and how many of them are expected to be wrong."""
    meanings = "".join(f"<li>{_chip(verdict)} {escape(verdict.meaning)}</li>" for verdict in content.totals)
    return (
        f'<ul aria-label="meanings of the verdicts">{meanings}</ul>'
        "<p>A claim <b>agrees</b> if no setting contradicts it and at least half of the settings in which it could be "
        "judged support it. It is <b>contradicted</b> if at least one setting contradicts it. Numbers are estimates "
        f"with 95 % confidence intervals over trials, each for one claim. {escape(errors_sentence(content.claims))}</p>"
    )


def _chips(verdicts: Mapping[Verdict, int]) -> str:
    """Return coloured verdicts with their counts."""
    alone = sum(verdicts.values()) == 1
    return " ".join(_chip(verdict, None if alone else count) for verdict, count in verdicts.items())


def _chip(verdict: Verdict, count: int | None = None) -> str:
    number = "" if count is None else f" <b>{count:,}</b>"
    return f'<span class="verdict {verdict.kind.report}">{verdict}{number}</span>'


def _table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of HTML cells."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in header)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table aria-label="{escape(caption)}"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def _link(name: str) -> str:
    return f'<a href="#{escape(name)}">{escape(name)}</a>'


def _list(content: Content, kind: str) -> str:
    """Return the claims of papers, or of unknown origin, with an outcome, by section."""
    found: dict[str, list[str]] = {}
    for section, one, entry in _entries(content):
        if one.outcome == kind and not one.is_ours:
            found.setdefault(section, []).append(entry)
    parts = [f"<h3>{escape(section)}</h3><ul>{''.join(entries)}</ul>" for section, entries in found.items()]
    return "".join(parts) or "<p>None.</p>"


def _ours(content: Content) -> str:
    """Return the claims of this project, by whose they are, the contradicted ones first."""
    found: dict[str, list[tuple[int, str]]] = {PREDICTIONS: [], THRESHOLDS: []}
    for _, one, entry in _entries(content):
        if one.is_ours:
            found[WHOSE[one.origin]].append((("contradicts", "undecided", "agrees").index(one.outcome), entry))
    parts = [
        f"<h3>{escape(title)}</h3><ul>{''.join(entry for _, entry in sorted(entries, key=operator.itemgetter(0)))}</ul>"
        for title, entries in found.items()
        if entries
    ]
    return "".join(parts) or "<p>None.</p>"


def _entries(content: Content) -> Iterator[tuple[str, Statement, str]]:
    """Yield the section, the statement and the HTML of the claims to list.

    These are the claims of the scoreboard, with the setting that is nearest to failing. In a report on few experiments
    the statements of all other findings follow.
    """
    for row in content.scoreboard:
        section = content.cards[row.experiment].declared.section
        yield section, row.statement, _entry(row.judged, row.paper, row.statement, row.experiment)
    if len(content.cards) > FEW:
        return
    for name, card in content.cards.items():
        listed = {id(one) for row in content.scoreboard if row.experiment == name for one in row.statement.claims}
        for one in statements(claim for claim in card.record.claims if id(claim) not in listed):
            yield card.declared.section, one, _entry(one.claim, place_of(one.source), one, name)


def _entry(claim: str, paper: str, one: Statement, experiment: str) -> str:
    """Return a claim as an item of a list, with its source and the setting that is nearest to failing."""
    place = f"{paper}; {one.setting}: {measured(one.worst)}; required: {one.required}"
    place = join_notes(place, one.worst.note if EDGE in one.worst.note else "")
    source = f'<span class="source">{escape(place)}; {_link(experiment)}</span>'
    return f"<li>{escape(claim)} {_chips(one.verdicts)} {source}</li>"


def _differences(content: Content) -> str:
    found = content.moved
    if found is None:
        return ""
    parts = [f"<p>{found.compared:,} claims are in both runs.</p>"]
    parts += [f"<p>{escape(remark)}</p>" for remark in found.remarks]
    for title, pairs in (
        ("Changed verdicts", found.verdicts),
        ("Changed estimates", found.estimates),
        ("Changed required ranges", found.claimed_range),
    ):
        if pairs:
            parts.append(f"<h3>{title}: {len(pairs)}</h3>")
            parts.append(_table(title, ("experiment", "claim", "before", "now"), map(_moved, pairs)))
    for title, only in ((f"Only in {content.baseline}", found.before_only), ("Only in this run", found.after_only)):
        if only:
            rows = [
                (_link(name), f"{escape(one.claim)} ({escape(one.setting)})", _chip(one.verdict))
                for name, claims in only.items()
                for one in claims
            ]
            parts += [f"<h3>{escape(title)}: {len(rows)}</h3>", _table(title, ("experiment", "claim", "verdict"), rows)]
    return "".join(parts)


def _moved(pair: Pair) -> tuple[str, ...]:
    claim = pair.after
    place = f"{escape(claim.setting)}; {escape(claim.statistic)}"
    text = f'{escape(claim.claim)}<br><span class="source">{place}</span>'
    sides = (
        f"{_chip(one.verdict)}<br>{escape(measured(one))}<br>"
        f'<span class="source">required: {escape(required(one.claimed_range))}</span>'
        for one in (pair.before, pair.after)
    )
    return (_link(pair.experiment), text, *sides)


def _experiments(content: Content) -> str:
    """Return the filter, and the folded experiments."""
    found = content.totals
    buttons = "".join(
        f'<button type="button" class="verdict {verdict.kind.report}" aria-pressed="false" '
        f'data-verdict="{verdict}">{verdict} <b>{count:,}</b></button>'
        for verdict, count in found.items()
    )
    return (
        '<form class="filter" role="search"><label>Filter <input type="search" id="words" autocomplete="off"></label>'
        f'<div role="group" aria-label="verdicts to show; all if none is selected">{buttons}</div>'
        '<button type="button" id="unfold" aria-pressed="false">unfold all</button>'
        f'<output id="count" for="words">{sum(found.values()):,} claims</output></form>'
        + "".join(_experiment(content, name) for name in content.cards)
    )


def _experiment(content: Content, name: str) -> str:
    """Return an experiment: its summary, verdicts, figures and statements."""
    card, record = content.cards[name], content.cards[name].record
    pictures, others = _main_figures(content, name)
    none = "no claims" if record.is_judged else content.folder.not_judged(record)
    quick = ' <span class="verdict open">QUICK</span>' if record.quick else ""
    seconds = f"{record.seconds:,.0f} s" if record.seconds else ""
    file = relative_path(record.file) if record.file else ""
    parts = (record.kind, file, card.date, seconds, f"commit {card.commit}", card.machine)
    missing = f"No figures next to the record; {content.folder.replot(record)} draws them."
    notes = record.remarks or (missing,) * (not pictures)
    further = (
        f'<p class="source">Further figures, which linfed report {escape(str(content.folder.record(name)))} shows: '
        f"{escape(', '.join(others))}</p>"
    )
    return (
        f'<details class="experiment" id="{escape(name)}"{" open" * (len(content.cards) <= FEW)}>'
        f"<summary><h3>{escape(name)}{quick}</h3> {_chips(card.verdicts) or escape(none)}"
        f"<br>{escape(card.declared.summary)}</summary>"
        f'<p class="source">{escape("; ".join(filter(None, parts)))}</p>'
        + "".join(f"<p>{escape(note)}</p>" for note in notes)
        + "".join(map(_figure, pictures))
        + further * bool(others)
        + "".join(
            f'<div class="group"><h4>{escape(title)}</h4>{"".join(map(_statement, statements(claims)))}</div>'
            for title, claims in by_origin(record.claims).items()
        )
        + "</details>\n"
    )


def _main_figures(content: Content, name: str) -> tuple[list[Picture], list[str]]:
    """Return the figures of an experiment to show, and the names of the others.

    A report on many experiments shows the figures that the experiment declares for the site (``PICTURES``).
    """
    pictures = content.pictures[name]
    declared = {content.folder.figure(name, key, "").name for key in content.cards[name].declared.pictures}
    if len(content.cards) <= FEW or not declared:
        return pictures, []
    main = [one for one in pictures if one.stem in declared]
    return main, [one.stem for one in pictures if one.stem not in declared]


def _figure(picture: Picture) -> str:
    """Return a figure with its caption."""
    stem, caption = escape(picture.stem), escape(picture.caption)
    source = f"data:image/webp;base64,{base64.b64encode(picture.data).decode()}"
    return (
        f'<figure><img src="{source}" width="{picture.width}" height="{picture.height}" alt="Figure {stem}" '
        f'loading="lazy"><figcaption><b>{stem}</b> {caption}</figcaption></figure>'
    )


def _statement(one: Statement) -> str:
    """Return a statement: its verdicts and source, and a folded table of its settings."""
    ranges = list(dict.fromkeys(required(claim.claimed_range) for claim in one.claims))
    need = f"; required: {ranges[0]}" if len(ranges) == 1 else ""
    notes = list(dict.fromkeys(claim.remarks for claim in one.claims if claim.remarks))
    rows = "".join(_setting(claim, notes, with_range=len(ranges) > 1) for claim in one.claims)
    numbered = "".join(f"<li>{escape(note)}</li>" for note in notes)
    place = one.setting if len(one.claims) == 1 else f"nearest to failing: {one.setting}"
    return (
        f'<details class="statement"><summary>{escape(one.claim)} {_chips(one.verdicts)}<br><span class="source">'
        f"{escape(one.statistic + need)}; {escape(place)}: {escape(measured(one.worst))}</span></summary>"
        f'<p class="source">{escape(one.source)}</p><table><tbody>{rows}</tbody></table>'
        + (f"<ol>{numbered}</ol>" if numbered else "")
        + "</details>"
    )


def _setting(claim: Finding, notes: Sequence[str], *, with_range: bool) -> str:
    """Return a row for a claim in one setting, with the number of its note."""
    note = claim.remarks
    need = f"; required: {required(claim.claimed_range)}" if with_range else ""
    detail = f" ({claim.detail})" if claim.detail else ""
    mark = f" ({notes.index(note) + 1})" if note else ""
    verdict, setting, text = claim.verdict, escape(claim.setting), escape(measured(claim) + detail + need + mark)
    return f'<tr><td class="{verdict.kind.report}">{verdict}</td><td>{setting}</td><td>{text}</td></tr>'
