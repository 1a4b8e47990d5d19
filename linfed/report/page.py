"""Report as one HTML page that loads no other files and is readable without scripts."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources

from linfed.claims.caveats import EDGE
from linfed.report.cards import Statement, measured, origins, place_of
from linfed.report.compare import Pair
from linfed.report.content import Content
from linfed.report.pictures import Picture
from linfed.reproduction.experiments import relative_path
from linfed.statistics.findings import Finding, Verdict, join_notes, required

OUTCOMES = {"agrees": "What agrees", "contradicts": "What contradicts", "undecided": "What is undecided"}
"""Titles of the lists, by `Statement.outcome`."""

FEW = 3
"""Largest number of experiments of a report that lists all statements and unfolds the experiments."""


def page(content: Content) -> str:
    """Return the report as HTML."""
    lists = {kind: _list(content, kind) for kind in OUTCOMES}
    sections = {kind: (OUTCOMES[kind], inside) for kind, inside in lists.items()}
    if content.moved:
        sections["differences"] = (f"Differences from {content.against}", _differences(content))
    sections["experiments"] = ("Experiments", _experiments(content))
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
    quick = content.quick
    if not quick:
        return ""
    which = "" if len(quick) == len(content.cards) else f": {', '.join(quick)}"
    message = (
        f"<strong>QUICK runs{escape(which)}.</strong> They have fewer trials and smaller sizes; the verdicts of full "
        "runs may differ."
    )
    return f'<p class="banner">{message}</p>'


def _navigation(content: Content, sections: Iterable[str]) -> str:
    """Return the links to the sections and experiments, which stay in view."""
    links = "".join(f'<li><a href="#{name}">{name.capitalize()}</a></li>' for name in sections)
    experiments = "".join(f"<li>{_link(name)}</li>" for name in content.cards)
    index = f'<ul class="index" aria-label="experiments">{experiments}</ul>'
    return f'<nav aria-label="sections"><ul>{links}</ul>{index}</nav>'


def _summary(content: Content) -> str:
    """Return the number of claims with each verdict, and the meanings of these verdicts."""
    found, plural = content.totals, "s" * (len(content.cards) != 1)
    meanings = "".join(f"<li>{_chip(verdict)} {escape(verdict.meaning)}</li>" for verdict in found)
    return (
        f'<p class="totals">{sum(found.values()):,} claims in {len(content.cards)} experiment{plural}: '
        f"{_chips(found)}</p>"
        "<p>A claim <b>agrees</b> if no setting contradicts it and at least half of the settings in which it could be "
        "judged support it. It is <b>contradicted</b> if at least one setting contradicts it. Numbers are estimates "
        "with 95 % confidence intervals over trials, each for one claim: about one in twenty may be wrong.</p>"
        f'<ul aria-label="meanings of the verdicts">{meanings}</ul>'
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
    """Return the claims with an outcome, by section.

    These are the claims of the scoreboard, with the setting that is nearest to failing. In a report on few experiments
    all other statements follow; otherwise they are counted.
    """
    main = {(name, one.claim) for name, card in content.cards.items() for one in card.declared.headlines}
    papers: dict[str, list[str]] = {}
    for row in content.scoreboard:
        if row.statement.outcome == kind:
            section = papers.setdefault(content.cards[row.experiment].declared.section, [])
            section.append(_entry(row.judged, row.paper, row.statement, row.experiment))
    others: dict[str, int] = {}
    for name, card in content.cards.items():
        for one in card.statements:
            if one.outcome != kind or (name, one.claim) in main:
                continue
            others[name] = others.get(name, 0) + 1
            if len(content.cards) <= FEW:
                entry = _entry(one.claim, place_of(one.source), one, name)
                papers.setdefault(card.declared.section, []).append(entry)
    parts = [f"<h3>{escape(paper)}</h3><ul>{''.join(entries)}</ul>" for paper, entries in papers.items()]
    if others and len(content.cards) > FEW:
        count = sum(others.values())
        where = ", ".join(f"{_link(name)} {number}" for name, number in others.items())
        parts.append(f"<p>{count} other claim{'s' * (count != 1)}: {where}</p>")
    return "".join(parts) or "<p>None.</p>"


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
    for title, only in ((f"Only in {content.against}", found.before_only), ("Only in this run", found.after_only)):
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
    card, record, pictures = content.cards[name], content.cards[name].record, content.pictures[name]
    none = "no claims" if record.is_judged else content.folder.not_judged(record)
    quick = ' <span class="verdict open">QUICK</span>' if record.quick else ""
    seconds = f"{record.seconds:,.0f} s" if record.seconds else ""
    file = relative_path(record.file) if record.file else ""
    parts = (record.kind, file, card.date, seconds, f"commit {card.commit}", card.machine)
    missing = f"No figures next to the record; {content.folder.replot(record)} draws them."
    notes = record.remarks or (missing,) * (not pictures)
    return (
        f'<details class="experiment" id="{escape(name)}"{" open" * (len(content.cards) <= FEW)}>'
        f"<summary><h3>{escape(name)}{quick}</h3> {_chips(card.verdicts) or escape(none)}"
        f"<br>{escape(card.declared.summary)}</summary>"
        f'<p class="source">{escape("; ".join(filter(None, parts)))}</p>'
        + "".join(f"<p>{escape(whose)}</p>" for whose in [origins(record.claims)] if whose)
        + "".join(f"<p>{escape(note)}</p>" for note in notes)
        + "".join(map(_figure, pictures))
        + "".join(map(_statement, card.statements))
        + "</details>\n"
    )


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
