"""Report as one HTML page that loads no other files and is readable without scripts."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources

from linfed.report.compare import Pair
from linfed.report.content import Content, commit_of, machine_of, remarks, totals
from linfed.report.pictures import Picture
from linfed.report.scoreboard import Record, measured
from linfed.reproduction.records import set_in

KINDS = {
    **dict.fromkeys(("SUPPORTED", "HOLDS"), "good"),
    **dict.fromkeys(("NOT SUPPORTED", "VIOLATED"), "bad"),
    "INCONCLUSIVE": "open",
}
"""CSS classes of the verdicts' colours; other verdicts are grey."""


def page(content: Content) -> str:
    """Return the report as HTML."""
    parts = [
        f"<header><h1>{escape(content.title)}</h1><p>{escape(content.about)}</p>{_banner(content)}</header>",
        _contents(content),
        '<main id="main">',
        _section("scoreboard", "Scoreboard", _scoreboard(content)),
        *(
            [_section("differences", f"Differences from {content.against}", _differences(content))]
            * bool(content.moved)
        ),
        _section("experiments", "Experiments", _experiments(content)),
        _section("claims", "All claims", _claims(content.records)),
        _section("theory", "Theory", _theory(content)),
        _section("runs", "Runs", _runs(content.records)),
        "</main>",
    ]
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
        + "\n".join(parts)
        + f"\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _section(name: str, title: str, inside: str) -> str:
    return f'<section id="{name}" aria-labelledby="h-{name}"><h2 id="h-{name}">{escape(title)}</h2>\n{inside}</section>'


def _banner(content: Content) -> str:
    quick = content.quick
    if not quick:
        return ""
    which = "" if len(quick) == len(content.records) else f": {', '.join(quick)}"
    message = (
        f"<strong>QUICK runs{escape(which)}.</strong> They have fewer trials and smaller sizes; the verdicts of full "
        "runs may differ."
    )
    return f'<p class="banner">{message}</p>'


def _contents(content: Content) -> str:
    """Return the links to the sections, and the number of claims with each verdict."""
    names = {"scoreboard": "Scoreboard", "experiments": "Experiments", "claims": "All claims"}
    names |= {"theory": "Theory", "runs": "Runs"}
    if content.moved:
        names["differences"] = "Differences"
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in names.items())
    found = totals(content.records)
    return (
        f'<nav aria-label="sections"><ul>{links}</ul></nav>\n<p class="totals">{sum(found.values()):,} claims in '
        f"{len(content.records)} experiments: {_chips(found)}</p>"
    )


def _chips(verdicts: Mapping[str, int]) -> str:
    """Return coloured verdicts with their counts."""
    alone = sum(verdicts.values()) == 1
    return " ".join(_chip(verdict, None if alone else count) for verdict, count in verdicts.items())


def _chip(verdict: str, count: int | None = None) -> str:
    text = escape(verdict) if count is None else f"{escape(verdict)} {count:,}"
    return f'<span class="verdict {KINDS.get(verdict, "none")}">{text}</span>'


def _table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table of HTML cells in a scrollable box."""
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in header)
    body = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="box" role="region" tabindex="0" aria-label="{escape(caption)}"><table class="{kind}">'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _link(name: str) -> str:
    return f'<a href="#{escape(name)}">{escape(name)}</a>'


def _scoreboard(content: Content) -> str:
    if not content.scoreboard:
        return "<p>These runs do not judge a claim of a paper.</p>"
    rows = [
        (
            f'<span class="source">{escape(row.paper)}:</span> {escape(row.wording)}'
            if row.wording
            else escape(row.paper),
            f"{escape(row.judged)}<br><b>{escape(row.measured)}</b> "
            f'<span class="source">{escape(row.setting)}; {escape(row.statistic)}</span>',
            _chips(row.verdicts),
            _link(row.experiment),
        )
        for row in content.scoreboard
    ]
    return _table("scoreboard", ("claim of the paper", "measurement", "verdict", "experiment"), rows, "wide")


def _differences(content: Content) -> str:
    found = content.moved
    if found is None:
        return ""
    parts = [f"<p>{found.compared:,} claims are in both runs.</p>"]
    parts += [f"<p>{escape(remark)}</p>" for remark in found.remarks]
    for title, pairs in (
        ("Changed verdicts", found.verdicts),
        ("Changed estimates", found.estimates),
        ("Changed claimed ranges", found.claimed_range),
    ):
        parts.append(f"<h3>{title}: {len(pairs)}</h3>")
        if pairs:
            parts.append(_table(title, ("experiment", "claim", "before", "now"), map(_moved, pairs), "wide"))
    for title, only in ((f"Only in {content.against}", found.before_only), ("Only in this run", found.after_only)):
        if only:
            rows = [
                (_link(name), f"{escape(one['claim'])} ({escape(one['setting'])})", _chip(one["verdict"]))
                for name, claims in only.items()
                for one in claims
            ]
            parts += [f"<h3>{escape(title)}: {len(rows)}</h3>", _table(title, ("experiment", "claim", "verdict"), rows)]
    return "".join(parts)


def _moved(pair: Pair) -> tuple[str, ...]:
    claim = pair.after
    place = f"{escape(claim['setting'])}; {escape(claim['statistic'])}"
    text = f'{escape(claim["claim"])}<br><span class="source">{place}</span>'
    sides = (
        f'{_chip(one["verdict"])}<br><b class="measured">{escape(measured(one))}</b><br>'
        f'<span class="source">claimed: {escape(one["claimed_range"])}</span>'
        for one in (pair.before, pair.after)
    )
    return (_link(pair.experiment), text, *sides)


def _experiments(content: Content) -> str:
    """Return a list of links to the experiments, and the experiments."""
    links = "".join(f"<li>{_link(name)}</li>" for name in content.records)
    return f'<ul class="index">{links}</ul>' + "".join(_experiment(content, name) for name in content.records)


def _experiment(content: Content, name: str) -> str:
    """Return an experiment: its summary, verdicts, remarks and figures."""
    described, figures = content.records[name], content.shown[name]
    found = totals({name: described})
    verdicts = _chips(found) if found else "The run is not finished, so it has no claims."
    button = (
        f'<button type="button" class="of" data-experiment="{escape(name)}">show the claims</button>' if found else ""
    )
    quick = ' <span class="verdict open">QUICK</span>' if described.get("quick") else ""
    return (
        f'<article id="{escape(name)}"><h3>{escape(name)}{quick}</h3>'
        f"<p>{escape(figures.summary)}</p><p>{verdicts} {button}</p>"
        + "".join(f'<p class="remark">{escape(name)}: {escape(remark)}.</p>' for remark in figures.remarks)
        + "".join(map(_figure, figures.pictures))
        + "</article>\n"
    )


def _figure(picture: Picture) -> str:
    """Return a figure with its caption; as separate images, SVG files cannot share ids and styles."""
    stem, caption = escape(picture.stem), escape(picture.caption)
    source = f"data:{picture.kind};base64,{base64.b64encode(picture.data).decode()}"
    return (
        f'<figure><img src="{source}" width="{picture.width}" height="{picture.height}" alt="Figure {stem}: {caption}">'
        f"<figcaption><b>{stem}</b> {caption}</figcaption></figure>"
    )


def _claims(records: Mapping[str, Record]) -> str:
    """Return the table of all claims with its filters."""
    found = totals(records)
    verdicts = "".join(
        f'<button type="button" class="verdict {KINDS.get(verdict, "none")}" aria-pressed="false" '
        f'data-verdict="{escape(verdict)}">{escape(verdict)} {count:,}</button>'
        for verdict, count in found.items()
    )
    names = "".join(f"<option>{escape(name)}</option>" for name in records)
    columns = ("verdict", "claim", "setting", "measured", "experiment")
    head = "".join(
        f'<th scope="col" aria-sort="none"><button type="button" data-column="{number}">{name}</button></th>'
        for number, name in enumerate(columns)
    )
    body = "\n".join(_claim(name, claim) for name, one in records.items() for claim in one["claims"])
    return (
        '<form class="filter" role="search"><label>Text <input type="search" id="words" autocomplete="off"></label>'
        f'<label>Experiment <select id="of"><option value="">all</option>{names}</select></label>'
        f'<div role="group" aria-label="verdicts to show; all if none is selected">{verdicts}</div>'
        f'<output id="count" for="words of">{sum(found.values()):,} claims</output></form>'
        '<div class="box tall" role="region" tabindex="0" aria-label="all claims"><table class="wide" id="all">'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
        "<p>Intervals are 95 % confidence intervals over trials, each for one claim: about one in twenty may be "
        "wrong.</p>"
    )


def _claim(name: str, claim: Record) -> str:
    remark_text = remarks(claim)
    detail = f" ({escape(claim['detail'])})" if claim["detail"] else ""
    order = "" if claim["estimate"] is None else f' data-order="{claim["estimate"]:.6g}"'
    return (
        f"<tr><td>{_chip(claim['verdict'])}</td><td>{escape(claim['claim'])}<br>"
        f'<span class="source">{escape(claim["source"])}</span></td><td>{escape(claim["setting"])}</td>'
        f"<td{order}><b>{escape(measured(claim))}</b>{detail}; claimed: {escape(claim['claimed_range'])}<br>"
        f'<span class="source">{escape(claim["statistic"])}'
        + (f"; {escape(remark_text)}" if remark_text else "")
        + f"</span></td><td>{_link(name)}</td></tr>"
    )


def _theory(content: Content) -> str:
    parts = []
    for title, found in content.theory.items():
        rows = [
            (
                f'{escape(one.claim)}<br><span class="source">{escape(one.source)}</span>',
                _chips(one.verdicts),
                escape(one.measured),
                escape(one.setting),
                _link(name),
            )
            for name, statements in found.items()
            for one in statements
        ]
        if rows:
            header = ("claim", "verdicts", "measured in the setting nearest to failing", "setting", "experiment")
            parts += [f"<h3>{escape(title)}</h3>", _table(f"theory: {title}", header, rows, "wide")]
    return "".join(parts) or "<p>These runs do not judge a theoretical claim.</p>"


def _runs(records: Mapping[str, Record]) -> str:
    rows = [
        (
            _link(name),
            escape(f"{'QUICK' if one.get('quick') else 'full'}{set_in(one)}"),
            f"{one['seconds']:,.1f}" if "seconds" in one else "-",
            f"<code>{escape(re.sub('(?<=[0-9a-f]{12})[0-9a-f]+', '', commit_of(one)))}</code>",
            escape(machine_of(one)),
        )
        for name, one in records.items()
    ]
    return _table("runs", ("experiment", "run", "seconds", "commit", "machine, versions, BLAS"), rows, "wide")
