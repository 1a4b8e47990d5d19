"""Printed reports of runs: one line per claim with its verdicts, their settings, and the summary of several runs."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from linfed.claims.caveats import EDGE
from linfed.commands import colors
from linfed.commands.colors import painted
from linfed.report.cards import OTHERS, by_origin, counts, measured, statements
from linfed.reproduction.run import Reproduction
from linfed.statistics.findings import AGAINST, Finding, Verdict, findings_table, required

QUICK = "QUICK run: fewer trials and smaller sizes; a full run's verdicts may differ"
"""Warning printed with quick runs."""


def banner() -> str:
    """Return the warning printed for quick runs."""
    return painted(colors.QUICK, wrapped(QUICK))


def wrapped(text: str) -> str:
    """Return a text with its lines wrapped to the width of the terminal, and with coloured verdicts.

    The width is 80 if the output is not a terminal; the environment variable COLUMNS overrides it.
    """
    width, words = shutil.get_terminal_size().columns, [verdict.value for verdict in Verdict]
    lines: list[str] = []
    for line in text.splitlines():
        for word in words:  # a line must not end within a verdict
            line = line.replace(word, word.replace(" ", "\N{NO-BREAK SPACE}"))
        indent = re.match(" *", line)[0] + "    "  # type: ignore[index]  # the pattern matches every line
        lines += textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""]
    pattern = "|".join(sorted(words, key=len, reverse=True))
    text = "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
    return re.sub(rf"\b({pattern})\b", lambda found: painted(Verdict(found[0]).kind.terminal, found[0]), text)


def report(name: str, done: Reproduction, *, verbose: bool = False) -> str:
    """Return the text printed after a run: its time and its claims, or else its captions; if `verbose`, also its files.

    If `verbose`, the claims have a line for each setting.
    """
    reused = f", {done.reused} of {done.cells} cells from an earlier run" if done.reused else ""
    lines = [f"{name}: {done.seconds:.1f} s{reused}"]
    if verbose:
        lines += [f"  wrote {path}" for path in done.files]
    lines += [f"  {name}: {remark}" for remark in done.remarks]
    if done.claims is None:
        lines += [f"  {name}{'-' * bool(key)}{key}.png: {text}" for key, text in done.captions.items()]
        return wrapped("\n".join(lines))
    return "\n".join([wrapped("\n".join(lines)), claims_text(name, done.claims, verbose=verbose)])


def claims_text(name: str, claims: Sequence[Finding], *, verbose: bool) -> str:
    """Return the claims of a run as text, by whose they are, and how many have each verdict.

    A claim has one line with the number of settings for each verdict, and one with its measurement in the setting
    nearest to failing; if `verbose`, it has a line for each setting.
    """
    lines = []
    groups = by_origin(claims)
    for title, group in groups.items():
        if len(groups) > 1 or title != OTHERS:
            lines.append(f"  {title}" + (f": {tally(group)}" if len(groups) > 1 else ""))
        lines += ["", findings_table(group), ""] if verbose else _in_short(group)
    if _at_edge(claims) and not verbose:
        lines.append("  [grid edge]: a tuned value is at the edge of its grid; a better one may lie outside")
    return wrapped("\n".join([*lines, f"{name}: {tally(claims)}"]))


def _in_short(claims: Sequence[Finding]) -> list[str]:
    """Return two lines for each statement: its verdicts, and its measurement in the setting nearest to failing."""
    lines = []
    for one in statements(claims):
        worst = one.worst
        setting = f" ({worst.setting})" if len(one.claims) > 1 else ""
        lines.append(f"  {one.verdict}: {one.claim}{_at_edge(one.claims)}")
        lines.append(f"      {worst.statistic}: {measured(worst)}; required: {required(worst.claimed_range)}{setting}")
    return lines


def _at_edge(claims: Sequence[Finding]) -> str:
    """Return a mark with the number of settings in which a tuned value is at the edge of its grid, or no text."""
    edges = sum(EDGE in claim.note for claim in claims)
    return f" [grid edge{f': {edges} of {len(claims)}' if edges < len(claims) else ''}]" if edges else ""


def tally(claims: Sequence[Finding]) -> str:
    """Return how many claims have each verdict, e.g. ``3 claims: 2 SUPPORTED, 1 INCONCLUSIVE``."""
    parts = [f"{count} {verdict}" for verdict, count in counts(claims).items()]
    return f"{len(claims)} claim{'s' * (len(claims) != 1)}{': ' * bool(parts)}{', '.join(parts)}"


def summary(runs: Mapping[str, Reproduction]) -> str:
    """Return the number of claims with each verdict over several runs, and the contradicted ones, by whose they are."""
    every = [claim for done in runs.values() for claim in done.claims or []]
    lines = [f"{len(runs)} experiments, {tally(every)}"]
    groups = by_origin(every)
    for title, group in groups.items():
        lines += [f"  {title}: {tally(group)}"] * (len(groups) > 1)
        for name, done in runs.items():
            against = (one for one in by_origin(done.claims or []).get(title, []) if one.verdict.kind == AGAINST)
            found = Counter((one.verdict.value, one.claim) for one in against)
            lines += [f"  {name}: {verdict} {count}: {claim}" for (verdict, claim), count in found.items()]
    return wrapped("\n".join(lines))


def written(runs: Mapping[str, Reproduction], folder: Path, *, verbose: bool = False) -> str:
    """Return a line with the number of files written and their folder."""
    files = sum(len(done.files) for done in runs.values())
    more = "" if verbose else " (--verbose lists them, and the settings of each claim)"
    return wrapped(f"{files} file{'s' * (files != 1)} in {folder}{more}")
