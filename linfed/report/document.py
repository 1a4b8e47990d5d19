"""A report as Markdown, as code hosts show it; its pictures lie in a folder beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from linfed.report import scoreboard
from linfed.report.compare import Comparison
from linfed.report.content import Content, commit_of, machine_of, remarks, totals
from linfed.report.markdown import table
from linfed.report.scoreboard import Record, counted, measured
from linfed.reproduction.records import set_in
from linfed.statistics.findings import OWN_PREDICTION

PICTURES = "report_pictures"
"""The folder of the pictures."""


def document(content: Content) -> str:
    """Return the report as Markdown."""
    found = totals(content.records)
    told = [f"# {content.title}", "", content.about, ""]
    if content.quick:
        told += [
            f"> **QUICK runs** ({', '.join(content.quick)}): fewer trials and smaller sizes; verdicts may differ.",
            "",
        ]
    told += [
        f"{sum(found.values()):,} claims in {len(content.records)} experiments: {counted(found)}." if found else "",
        "",
    ]
    told += ["## Scoreboard", "", _plain(scoreboard.markdown(content.scoreboard, "#{}")), ""]
    if content.moved is not None:
        told += [
            f"## Differences from {_plain(content.against)}",
            "",
            *_differences(content.moved, content.against),
            "",
        ]
    told += ["## Experiments", ""]
    for name, described in content.records.items():
        told += _experiment(content, name, described)
    told += ["## What theory says", ""]
    for title, sections in content.theory.items():
        rows = [
            (one.text, one.source, one.verdict, one.measured, one.where, name)
            for name, statements in sections.items()
            for one in statements
        ]
        if rows:
            header = (
                "statement",
                "source",
                "verdicts",
                "measured, where it is nearest to failing",
                "where",
                "experiment",
            )
            told += [f"### {title}", "", _table(header, rows), ""]
    told += ["## Runs", "", _runs(content)]
    return "\n".join(told).rstrip() + "\n"


def _plain(text: str) -> str:
    """Return a text of which Markdown takes no character for its own, but bars, which are `table`'s."""
    return re.sub(r"([*$])", r"\\\1", text.replace("<", "&lt;"))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return table(header, [[_plain(cell) for cell in row] for row in rows])


def _experiment(content: Content, name: str, described: Record) -> list[str]:
    shown, found = content.shown[name], totals({name: described})
    told = [f"### {_plain(name)}", "", _plain(shown.summary), ""]
    told += [f"{counted(found)}." if found else "The run did not end: it has no claims.", ""]
    told += [f"- {_plain(name)}: {_plain(remark)}." for remark in shown.remarks] + [""] * bool(shown.remarks)
    for picture in shown.pictures:
        told += [
            f"![{picture.stem}]({PICTURES}/{picture.stem}.png)",
            "",
            f"**{picture.stem}** {_plain(picture.caption)}",
            "",
        ]
    if found:
        count = sum(found.values())
        told += [f"<details><summary>{count} claim{'s' * (count > 1)}</summary>", ""]
        told += [*_claims(described["claims"]), "</details>", ""]
    return told


def _claims(claims: Sequence[Record]) -> list[str]:
    """Return the claims, each sentence once and below it a table of its settings."""
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for claim in claims:
        key = (claim["text"], claim["source"] or OWN_PREDICTION, claim["statistic"], claim["said"])
        groups.setdefault(key, []).append(claim)
    told = []
    for (text, source, statistic, said), group in groups.items():
        told += [f"**{_plain(text)}** ({_plain(source)}); {_plain(statistic)}, said: {_plain(said)}", ""]
        noted = any(map(remarks, group))
        rows = [
            (one["verdict"], one["where"], f"{measured(one)} {one['detail']}".strip(), *([remarks(one)] * noted))
            for one in group
        ]
        told += [_table(("verdict", "setting", "measured", *(["note"] * noted)), rows), ""]
    return told


def _differences(found: Comparison, against: str) -> list[str]:
    told = [f"{found.compared:,} claims are in both.", ""]
    told += [f"- {_plain(remark)}" for remark in found.remarks] + [""] * bool(found.remarks)
    for title, pairs in (
        ("Verdicts that moved", found.verdicts),
        ("Estimates that moved", found.estimates),
        ("Said otherwise", found.said),
    ):
        told += [f"### {title}: {len(pairs)}", ""]
        rows = [
            (
                one.experiment,
                f"{one.after['text']} ({one.after['where']}; {one.after['statistic']})",
                *one.told,
                f"{one.before['said']}" + (f" -> {one.after['said']}" if one.said_moved else ""),
            )
            for one in pairs
        ]
        if rows:
            told += [_table(("experiment", "claim", "before", "now", "said"), rows), ""]
    for title, only in ((f"Only in {against}", found.before_only), ("Only here", found.after_only)):
        left = [(name, f"{one['text']} ({one['where']})", one["verdict"]) for name, own in only.items() for one in own]
        if left:
            told += [f"### {_plain(title)}: {len(left)}", "", _table(("experiment", "claim", "verdict"), left), ""]
    return told


def _runs(content: Content) -> str:
    rows = [
        (
            name,
            f"{'QUICK' if one.get('quick') else 'full'}{set_in(one)}",
            f"{one.get('seconds', 0):,.1f}",
            commit_of(one),
            machine_of(one),
        )
        for name, one in content.records.items()
    ]
    return _table(("experiment", "run", "seconds", "commit", "machine, versions, BLAS"), rows)
