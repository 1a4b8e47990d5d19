"""Check the last commit before it is released: ``python -m tests.tools.release`` prints what is wrong.

- ``pyproject.toml``, ``CITATION.cff``, ``CHANGELOG.md`` and the package have the same version, and the second and third
  the same date.
- Nothing in the checkout is changed.
- Each record in ``results/committed`` was computed and judged at one commit, and its code has not changed: the code of
  its experiment, and of ``linfed`` without plots and commands. Comments and docstrings do not count. A change in the
  class of an algorithm counts only for experiments that name it or a subclass.

The default suite does not make these checks, because results are published one by one between releases.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import linfed as lf
from linfed.reproduction.experiments import experiment_files, load_file, shared_modules
from linfed.reproduction.run import source_hashes
from linfed.sweeps.code_key import _own_files, _text
from tests.helpers import ROOT


def git(top: Path, *arguments: str) -> str:
    """Return the output of a git command, or of its error."""
    done = subprocess.run(["git", "-C", str(top), *arguments], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr * (done.returncode != 0)).strip()


def of_the_version(top: Path, imported: str = lf.__version__) -> list[str]:
    """Return a line for each place whose version or date differs."""
    texts = {name: (top / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "CHANGELOG.md")}
    version = tomllib.loads((top / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cited, dated = (re.search(rf"(?m)^{key}: *(\S+)$", texts["CITATION.cff"]) for key in ("version", "date-released"))
    changed = re.search(r"(?m)^## (\S+) \((.*)\)$", texts["CHANGELOG.md"])
    versions = {
        "linfed.__version__": imported,
        "CITATION.cff": cited and cited[1],
        "CHANGELOG.md": changed and changed[1],
    }
    lines = [f"{name} has version {one}, pyproject.toml {version}" for name, one in versions.items() if one != version]
    dates = [found and found[group].strip("'\"") for found, group in ((dated, 1), (changed, 2))]
    if dates[0] != dates[1] or not re.fullmatch(r"\d{4}-\d\d-\d\d", dates[0] or ""):
        lines.append(f"CITATION.cff has date-released {dates[0]}, CHANGELOG.md {dates[1]}: both must be one date")
    return lines


def sources(top: Path) -> dict[str, dict[str, str]]:
    """Return the hashes of the present code of each experiment."""
    return {name: source_hashes(load_file(file)) for name, file in experiment_files(top / "experiments").items()}


@functools.cache
def changed_statements(top: Path, commit: str) -> frozenset[str]:
    """Return the counted statements of linfed that differ from a commit: the names of classes, else the module."""
    found, package = set(), Path(lf.__file__).parent
    counted = {f"linfed/{Path(file.path).relative_to(package).as_posix()}" for file in _own_files().values()}
    for name in git(top, "diff", "--name-only", "--no-renames", commit, "--", "linfed").split():
        if not (top / name).exists():
            found.add(name)
        elif name in counted:
            now = (top / name).read_text(encoding="utf-8")
            before = git(top, "show", f"{commit}:{name}") if git(top, "ls-tree", commit, name) else ""
            mine, theirs = (
                {_text(ast.Module([node], [])): node for node in ast.parse(text).body} for text in (now, before)
            )
            nodes = [(mine | theirs)[text] for text in mine.keys() ^ theirs.keys()]
            found |= {node.name if isinstance(node, ast.ClassDef) else name for node in nodes}
    return frozenset(found)


def below(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and its subclasses."""
    yield kind
    for one in kind.__subclasses__():
        yield from below(one)


@functools.cache
def called() -> frozenset[str]:
    """Return the names of all functions and classes that linfed itself calls."""
    trees = (ast.parse(path.read_bytes()) for path in Path(lf.__file__).parent.rglob("*.py"))
    calls = (node.func for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return frozenset(getattr(one, "id", getattr(one, "attr", "")) for one in calls)


@functools.cache
def algorithms(classes: frozenset[str]) -> set[str]:
    """Return the names of these classes and of their subclasses.

    Nothing is returned if one of them is not an algorithm, or if linfed itself makes one.
    """
    of_linfed = [kind for kind in below(lf.Algorithm) if kind.__module__.startswith("linfed.")]
    found = {kind.__name__ for kind in of_linfed if classes & {one.__name__ for one in kind.__mro__}}
    return set() if called() & found or not classes <= found else found


def may_differ(top: Path, experiment: str, commit: str) -> bool:
    """Return whether what changed in linfed since a commit can matter to an experiment whose own code is the same."""
    names = algorithms(changed_statements(top, commit))
    if not names:
        return True
    file = experiment_files(top / "experiments")[experiment]
    files = [file, *shared_modules(file)]
    return any(re.search(rf"\b({'|'.join(names)})\b", file.read_text(encoding="utf-8")) for file in files)


def of_the_records(top: Path) -> list[str]:
    """Return a line for each record that the present code did not compute and judge."""
    present, lines = sources(top), []
    for path in sorted((top / "results" / "committed").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if "experiment" not in record:
            continue
        commit, judged = record.get("commit"), record.get("judged")
        if not commit or commit != judged:
            lines.append(f"{path.stem}: computed at commit {commit}, judged at {judged}")
        elif (source := record.get("source")) != (now := present.get(path.stem)):
            own = source and now and source["experiment"] == now["experiment"]
            if not own or may_differ(top, path.stem, commit):
                lines.append(f"{path.stem}: its code has changed since commit {commit}")
    return lines


def of_the_checkout(top: Path) -> list[str]:
    """Return the files that are changed or new."""
    changed = git(top, "status", "--porcelain")
    return ["files are not committed:", changed] if changed else []


def main(top: Path = ROOT) -> int:
    """Print what is wrong, and return the exit status."""
    lines = of_the_version(top) + of_the_checkout(top) + of_the_records(top)
    print("\n".join(lines) or f"version {lf.__version__} can be released")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
