"""Printed reports of runs: the claims of one run, their verdicts, and the summary of several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from linfed.commands.colors import painted
from linfed.reproduction.run import Reproduction
from linfed.statistics.findings import Finding, Verdict, findings_table

QUICK = "QUICK run: fewer trials and smaller sizes, for a check of the code; its verdicts may differ from a full run's"
"""Warning printed with quick runs."""

AGAINST = (Verdict.NOT_SUPPORTED, Verdict.VIOLATED)
"""Verdicts that contradict the claim."""


def banner() -> str:
    """Return the warning printed for quick runs."""
    return painted("QUICK", QUICK)


def report(name: str, done: Reproduction, *, verbose: bool = False) -> str:
    """Return the text printed after a run: its time, its files if `verbose`, and its claims or else its captions."""
    reused = f", {done.reused} of {done.cells} cells from an earlier run" if done.reused else ""
    lines = [f"{name}: {done.seconds:.1f} s{reused}"]
    if verbose:
        lines += [f"  wrote {path}" for path in done.files]
    lines += [f"  {name}: {remark}" for remark in done.remarks]
    if done.claims is None:
        return "\n".join(
            [*lines, *(f"  {name}{'-' * bool(key)}{key}.png: {text}" for key, text in done.captions.items())]
        )
    return "\n".join([*lines, "", claims_table(done.claims, quick=done.quick), "", f"{name}: {tally(done.claims)}"])


def claims_table(claims: Sequence[Finding], *, quick: bool) -> str:
    """Return the claims as text; if `quick`, below the warning for quick runs."""
    table = findings_table(claims, lambda verdict, text: painted(verdict.value, text))
    return f"{banner()}\n\n{table}" if quick else table


def tally(claims: Sequence[Finding]) -> str:
    """Return how many claims have each verdict, e.g. ``3 claims: 2 SUPPORTED, 1 INCONCLUSIVE``."""
    counted = Counter(claim.verdict for claim in claims)
    parts = [painted(verdict.value, f"{counted[verdict]} {verdict.value}") for verdict in Verdict if counted[verdict]]
    return f"{len(claims)} claim{'s' * (len(claims) != 1)}{': ' * bool(parts)}{', '.join(parts)}"


def summary(runs: Mapping[str, Reproduction]) -> str:
    """Return the number of claims with each verdict over several runs, and a list of the contradicted claims."""
    claims = [claim for done in runs.values() for claim in done.claims or []]
    lines = [f"{len(runs)} experiments, {tally(claims)}"]
    against = {name: [one for one in done.claims or [] if one.verdict in AGAINST] for name, done in runs.items()}
    if any(against.values()):
        lines += ["", " or ".join(verdict.value for verdict in AGAINST)]
    for name, found in against.items():
        lines += [f"  {name}"] * bool(found)
        for one in found:
            verdict = painted(one.verdict.value, f"{one.verdict.value:<13}")
            lines.append(f"    {verdict}  {one.claim} ({one.setting}; {one.statistic})")
    if any(done.quick for done in runs.values()):
        lines.append(banner())
    return "\n".join(lines)


def written(runs: Mapping[str, Reproduction], folder: Path) -> str:
    """Return a line with the number of files written and their folder."""
    files = sum(len(done.files) for done in runs.values())
    return f"{files} files in {folder}: tables, figures and claims (--verbose lists them)"
