"""Check the last commit before it is released: ``python -m tests.tools.release`` prints what is wrong.

- ``pyproject.toml``, ``CITATION.cff``, ``CHANGELOG.md`` and the package have the same version, and the second and third
  the same date.
- Nothing in the checkout is changed.
- Each record in ``results/committed`` was computed and judged at one commit. Neither the fields of its cells nor the
  code that computes them have changed since: a store of the cells would serve the present code.

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
from linfed.reproduction.experiments import cells_of, experiment_files, load_file
from linfed.reproduction.run import configuration_of, source_hashes
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


def computed_from(file: Path) -> dict[str, object]:
    """Return the hashes of the code and of the cells of an experiment, as its record has them."""
    module = load_file(file)
    return {"source": source_hashes(module), "configuration": configuration_of(cells_of(module, quick=False))}


def of_the_records(top: Path) -> list[str]:
    """Return a line for each record that the present code did not compute and judge."""
    lines = []
    present = {name: computed_from(file) for name, file in experiment_files(top / "experiments").items()}
    for path in sorted((top / "results" / "committed").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if "experiment" not in record:
            continue
        commit, judged = record.get("commit"), record.get("judged")
        if not commit or commit != judged:
            lines.append(f"{path.stem}: computed at commit {commit}, judged at {judged}")
        elif path.stem not in present or record | present[path.stem] != record:
            lines.append(f"{path.stem}: its cells, or the code that computes them, have changed since commit {commit}")
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
