"""Experiments, tutorials and pages of the site that use each public name, from a scan of the sources."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from docs.tools.paths import DOCS, EXPERIMENTS
from docs.tools.tutorials import notebooks
from linfed.reproduction.experiments import experiment_files, imported_modules

NAME = r"\b(?:lf\.theory|lf|theory)\.(\w+)"
SHOWN = 8
"""Largest number of experiments that a line lists."""


class Part(NamedTuple):
    """Top-level statement of a module of the experiments: names that it defines, its words, names of linfed in it."""

    defines: set[str]
    words: set[str]
    names: set[str]


@cache
def parts(file: Path) -> tuple[list[Part], set[Path]]:
    """Return the parts of a module of the experiments, and the modules of the experiments that it imports."""
    source = file.read_text(encoding="utf-8")
    lines, body = source.splitlines(), ast.parse(source).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    own = {alias.name for node in imports if (node.module or "").startswith("linfed") for alias in node.names}
    found = []
    for node in body:
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        words = set(re.findall(r"[A-Za-z_]\w*", text))
        attributes = {name for root, name in re.findall(r"\b(\w+)\.(\w+)", text) if root in own}
        names = set() if isinstance(node, ast.ImportFrom) else attributes | own & words | set(re.findall(NAME, text))
        found.append(Part(defined(node), words, names))
    return found, set(imported_modules(file))


def defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement at the top level of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def used_by(file: Path) -> set[str]:
    """Return the names of linfed that an experiment uses, itself or in code that it shares with other experiments."""
    used, modules = list(parts(file)[0]), set(parts(file)[1])
    for part in used:  # grows in the loop
        for other in sorted(modules):
            new = [one for one in parts(other)[0] if one.defines & part.words and one not in used]
            if new:
                modules |= parts(other)[1]
                used += new
    return set().union(*(part.names for part in used))


@cache
def usage() -> dict[str, str]:
    """Return for the last part of each name of linfed a line of links to the pages that use it."""
    pages: dict[str, list[str]] = defaultdict(list)
    for path in [*sorted(DOCS.glob("guide/*.md")), *sorted({*DOCS.glob("*.md")} - {DOCS / "maintenance.md"})]:
        text = path.read_text(encoding="utf-8")
        title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), "linfed")
        for name in set(re.findall(NAME, text)):
            pages[name].append(f":doc:`{title} </{path.relative_to(DOCS).with_suffix('').as_posix()}>`")
    tutorials: dict[str, list[str]] = defaultdict(list)
    for path in notebooks():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
        for name in set(re.findall(NAME, code)):
            tutorials[name].append(path.stem)
    experiments: dict[str, list[str]] = defaultdict(list)
    for experiment, path in experiment_files(EXPERIMENTS).items():
        for name in used_by(path):
            experiments[name].append(f":doc:`{experiment} </_generated/experiments/{experiment}>`")
    for name, found in tutorials.items():
        links = [f":doc:`{stem.partition('_')[0]} </_generated/tutorials/{stem}>`" for stem in found]
        pages[name].append(f"tutorial{'s' * (len(links) > 1)} {', '.join(links)}")
    for name, found in experiments.items():
        more = [f":doc:`{len(found) - SHOWN} more experiments </_generated/experiments/index>`"]
        pages[name] += found[:SHOWN] + (more if len(found) > SHOWN else [])
    return {name: ", ".join(found) for name, found in pages.items()}
