"""Check the last commit before it is released: ``python -m tests.release`` prints what is wrong.

- ``pyproject.toml``, ``CITATION.cff``, ``CHANGELOG.md`` and the package have the same version, and the second and third
  the same date.
- Nothing in the checkout is changed.
- All records in ``results/committed`` name one commit, and the code of ``linfed`` and ``experiments`` is that of this
  commit.

The default suite does not make these checks, because results are published one by one between releases.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import linfed as lf

TOP = Path(__file__).resolve().parent.parent
WRITTEN = "linfed/reproduction/committed.json.gz"
"""The file that ``docs/publish.py`` writes after the run, from its records."""


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


def of_the_records(top: Path) -> list[str]:
    """Return a line for each commit beyond one, and one if the code is no longer that of the records."""
    commits: dict[str | None, list[str]] = {}
    for path in sorted((top / "results" / "committed").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if "experiment" in record:
            for commit in {record.get("commit"), record.get("judged")}:
                commits.setdefault(commit, []).append(path.stem)
    if len(commits) != 1:
        return [
            f"the records name {len(commits)} commits:",
            *(f"  {one}: {', '.join(commits[one])}" for one in commits),
        ]
    (commit,) = commits
    changed = git(top, "diff", "--stat", str(commit), "--", "linfed", "experiments", f":(exclude){WRITTEN}")
    return [f"code differs from commit {commit} of the records:", changed] if changed else []


def of_the_checkout(top: Path) -> list[str]:
    """Return the files that are changed or new."""
    changed = git(top, "status", "--porcelain")
    return ["files are not committed:", changed] if changed else []


def main(top: Path = TOP) -> int:
    """Print what is wrong, and return the exit status."""
    lines = of_the_version(top) + of_the_checkout(top) + of_the_records(top)
    print("\n".join(lines) or f"version {lf.__version__} can be released")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
