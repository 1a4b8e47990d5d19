"""Publish a full run: write ``results/committed/`` from the output folder of ``linfed reproduce --out OUT``.

Run ``python -m docs.tools.publish OUT`` and commit what it wrote. The command refuses quick runs, unfinished runs,
missing experiments, and runs of different commits or of changed files, with a line for each; ``--anyway`` publishes
them. It writes for each experiment NAME:

- ``NAME.json`` as in OUT: claims, sizes, seconds, versions, machine, commit;
- ``NAME-TABLE.npz``, reduced (`Reduction`) and compressed by LZMA: enough for pictures and numbers in ``docs/``;
- ``NAME-TABLE.csv`` as in OUT, if the file is small;
- its pictures, there and in ``docs/figures/`` (`docs/tools/pictures.py`), unless ``--to`` names another folder.

With ``--add``, published experiments that are not in OUT stay published. Each experiment is of one commit, which the
README of the folder lists.

Claims are judged on the complete tables of the run, never on reduced ones. ``benchmarks.json`` stays unchanged. The
command also writes the verdicts and seconds of these runs to ``linfed/reproduction/committed.json.gz``, which the
package includes; ``--record`` writes only this file, from ``results/committed/``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

import linfed as lf
from docs.tools import pictures
from docs.tools.paths import COMMITTED, EXPERIMENTS, TOP
from linfed.errors import UsageError
from linfed.reproduction.committed import FILE
from linfed.reproduction.experiments import cells_of, experiment_files, load
from linfed.reproduction.record import ResultsFolder, RunRecord, read_record
from linfed.reproduction.run import load_tables, settings_of
from linfed.system import files

BITS = 14
"""Number of binary digits to keep after the first one; a number keeps more than 4 decimal digits."""
ROUNDS, EARLY = 350, 100
"""Number of points to keep along a longer axis of rounds, and how many of them are the first ones."""
CSV_LIMIT = 100_000
"""Largest size of a published CSV file in bytes."""

ABOUT = """# Full runs of every experiment

`docs/tools/publish.py` writes this folder. `docs/tools/pictures.py` draws the figures here and in `docs/` from it, and
`docs/tools/render.py` takes the numbers in README.md and `docs/` from it. Your own runs write to `results/`.

| experiments | commit | machine | versions | BLAS |
|---|---|---|---|---|
{rows}

- `NAME.json`: the record of the run with every claim, as `linfed reproduce NAME` wrote it.
- `NAME-TABLE.npz`: a **reduced** table for `lf.Table.load`. The claims were judged on the original tables; do not judge
  them on the reduced ones, which differ in four ways:
  - Numbers are rounded to {bits} binary digits after the first one (more than 4 decimal digits).
  - Long axes of rounds are thinned to {n_rounds} rounds after the first {early}.
  - Large columns that no figure and no number needs are left out.
  - A few columns have deciles over trials instead of trials.
- `NAME-TABLE.csv`: the numbers of each trial, as the run wrote them, if the file is small.
- `NAME-KEY.webp`: the figures, small, as `docs/tools/pictures.py` draws them from the reduced tables, for
  `linfed report`.
- `benchmarks.json`, if it exists: the ratios from `python -m benchmarks --full --json`.
"""


def refusals(runs: dict[str, RunRecord], missing: dict[str, str], *, add: bool = False) -> list[str]:
    """Return the reasons why runs must not be published, one line per reason."""
    reasons = [] if add else [f"{name}: {reason}" for name, reason in missing.items()]
    for name, record in runs.items():
        if record.quick:
            reasons.append(f"{name}: a quick run")
        if not record.claims:
            reasons.append(f"{name}: no claims, so the run is not finished")
        if not record.commit:
            reasons.append(f"{name}: the commit is unknown")
        elif " " in record.commit:
            reasons.append(f"{name}: run at {record.commit}: commit them and run again, or publish with --anyway")
    commits = {record.commit for record in runs.values()}
    if len(commits) > 1 and not add:
        reasons.append(f"runs of different commits: {', '.join(sorted(map(str, commits)))}")
    return reasons


def rounded(values: np.ndarray) -> np.ndarray:
    """Return real numbers in single precision (double if out of range) with their last binary digits set to zero."""
    if values.dtype.kind != "f":
        return values
    size = np.abs(values[np.isfinite(values) & (values != 0)])
    fits = size.size == 0 or (size.max() < 1e38 and size.min() > 1e-37)
    float_, integer, digits = (np.float32, np.uint32, 23) if fits else (np.float64, np.uint64, 52)
    bits = np.ascontiguousarray(values, dtype=float_).view(integer)
    last = integer(digits - BITS)
    cut = ((bits + (integer(1) << (last - integer(1)))) >> last) << last
    return np.where(np.isfinite(values), cut.view(float_), values.astype(float_))


def kept_rounds(count: int) -> np.ndarray:
    """Return the indices of the rounds to keep: the first ones, then evenly spaced ones up to the last."""
    if count <= ROUNDS:
        return np.arange(count)
    return np.r_[:EARLY, np.linspace(EARLY, count - 1, ROUNDS - EARLY).round().astype(int)]


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """Reduction of a published table, as its experiment declares it: ``REDUCED = {TABLE: {...}}`` with these fields.

    Parameters
    ----------
    without : tuple of str, or callable
        Columns, or patterns of columns, that no picture and no number needs; or a function of a row that returns them.
    deciles : tuple of str
        Columns in which the minimum, the deciles and the maximum over trials replace the trials, for bands in pictures.
    quantile_axis : bool
        If True, the deciles get a separate axis, because other columns keep the trials.
    first_rounds : int or None
        Number of first points along the rounds that the pictures show; None for all.
    """

    without: Sequence[str] | Callable[[dict[str, Any]], Sequence[str]] = ()
    deciles: Sequence[str] = ()
    quantile_axis: bool = False
    first_rounds: int | None = None

    def left_out(self, row: dict[str, Any]) -> list[str]:
        """Return the columns of a row to omit."""
        patterns = self.without(row) if callable(self.without) else self.without
        return [name for name in row if any(fnmatchcase(name, pattern) for pattern in patterns)]

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with fewer digits, fewer rounds and without large columns."""
        found, without = {}, self.left_out(row)
        for name, value in row.items():
            if name not in without:
                kept = value if self.first_rounds is None else begun(value, self.first_rounds)
                found[name] = smaller(kept, name in self.deciles, quantile_axis=self.quantile_axis)
        return found


def reductions(name: str, tables: Iterable[str]) -> dict[str, Reduction]:
    """Return the reduction of each table of an experiment.

    Raises
    ------
    ValueError
        If the experiment declares a reduction of a table that it does not have.
    """
    declared = getattr(load(name, EXPERIMENTS), "REDUCED", {})
    if unknown := declared.keys() - set(tables):
        raise ValueError(f"{name}: REDUCED has unknown tables: {', '.join(sorted(unknown))}")
    return {key: Reduction(**declared.get(key, {})) for key in tables}


def begun(value: Any, count: int) -> Any:
    """Return a value of a row with only the first `count` points along rounds."""
    if not isinstance(value, lf.LabeledArray) or "round" not in value.axes:
        return value
    kept = value.values.take(range(count), axis=value.names.index("round"))
    return lf.LabeledArray(kept, **{name: one[:count] if name == "round" else one for name, one in value.axes.items()})


def smaller(value: Any, deciles: bool = False, quantile_axis: bool = False) -> Any:
    """Return a reduced value of a row.

    If `deciles`, deciles replace the trials; if also `quantile_axis`, they get a separate axis.
    """
    shares = np.linspace(0, 1, 11)
    if deciles and isinstance(value, np.ndarray):
        return smaller(quantiles_at(shares, value))
    if deciles:
        axes = {"quantile": shares, **value.axes} if quantile_axis else value.axes
        return smaller(lf.LabeledArray(quantiles_at(shares, value.values), **axes))
    if isinstance(value, np.ndarray):
        return rounded(value)
    if not isinstance(value, lf.LabeledArray):
        return value
    values, axes = value.values, dict(value.axes)
    if "round" in axes:
        kept = kept_rounds(len(axes["round"]))
        values, axes["round"] = values.take(kept, axis=value.names.index("round")), axes["round"][kept]
    return lf.LabeledArray(rounded(values), **axes)


def quantiles_at(shares: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return quantiles over trials (the first axis); where only some trials diverged (NaN), these are infinite."""
    missing = np.isnan(values)
    some = missing.any(axis=0) & ~missing.all(axis=0)
    worst = np.quantile(np.where(missing, np.inf, values), shares, axis=0, method="inverted_cdf")
    return np.where(some, worst, np.quantile(values, shares, axis=0))


def publish(run: ResultsFolder, names: list[str], published: ResultsFolder, *, add: bool = False) -> list[Path]:
    """Write the published files and return their paths.

    Earlier files of published experiments are removed, with `add` only for the experiments `names`. Files of no
    published experiment stay.
    """
    to = published.path
    to.mkdir(parents=True, exist_ok=True)
    earlier = {path.stem for path in to.glob("*.json") if read_record(path, with_claims=False)}
    replaced = {*names} if add else {*names, *earlier}
    written = []
    for name in names:
        record = run.read(name)
        tables = load_tables(record, run)
        written.append(published.write(record))
        for key, reduction in reductions(name, tables).items():
            table = tables[key]
            arrays, metadata = lf.Table([reduction.row(row) for row in table.rows]).payload()
            left_out = sorted({column for row in table.rows for column in reduction.left_out(row)})
            without = ", ".join(left_out) or "none"
            metadata["reduced"] = f"{BITS} binary digits, at most {ROUNDS} rounds; without {without}"
            written.append(files.write(published.table(name, key), arrays, metadata, zipfile.ZIP_LZMA))
            if run.table(name, key, ".csv").stat().st_size <= CSV_LIMIT:
                written.append(Path(shutil.copy(run.table(name, key, ".csv"), to)))
    for path in to.iterdir():
        if path.is_file() and path not in written and owner(path, {*names, *earlier}) in replaced:
            path.unlink()
    if to == COMMITTED:
        written.append(write_committed(published))
    about = to / "README.md"
    about.write_text(ABOUT.format(rows=origins(published), bits=BITS, early=EARLY, n_rounds=ROUNDS), encoding="utf-8")
    return [*written, about]


def write_committed(folder: ResultsFolder, path: Path = TOP / "linfed" / "reproduction" / FILE) -> Path:
    """Write the seconds, settings and verdicts of the published runs for the package, and return the file's path."""
    content = {}
    for name, run in folder.records().items():
        cells = cells_of(load(name, EXPERIMENTS), quick=False)
        content[name] = {
            "seconds": round(max(run.seconds, (run.processor_seconds or 0.0) / 2), 1),
            "settings": settings_of(load_tables(run, folder), cells),
            "claims": [
                {"claim": one.claim, "statistic": one.statistic, "setting": one.setting, "verdict": one.verdict}
                for one in run.claims
            ],
        }
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    with files.replacing(path) as file:
        file.write(gzip.compress(text.encode(), mtime=0))
    return path


def owner(path: Path, names: Iterable[str]) -> str:
    """Return the experiment that a file belongs to: the longest name that the file name begins with."""
    return max((name for name in names if path.stem == name or path.stem.startswith(f"{name}-")), key=len, default="")


def origins(folder: ResultsFolder) -> str:
    """Return a table row for each commit, machine and set of versions, with its experiments."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, run in folder.records().items():
        versions = ", ".join(f"{package} {version}" for package, version in run.versions.items())
        key = (str(run.commit), run.machine, versions, "; ".join(dict.fromkeys(run.blas)))
        found.setdefault(key, []).append(name)
    return "\n".join(f"| {', '.join(names)} | {' | '.join(key)} |" for key, names in found.items())


def main(arguments: list[str] | None = None) -> int:
    """Publish a run, or print the reasons against it; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "out", metavar="OUT", type=Path, nargs="?", help="output folder of a full run of all experiments"
    )
    parser.add_argument(
        "--to", metavar="FOLDER", type=Path, default=COMMITTED, help="target folder, by default results/committed"
    )
    parser.add_argument("--add", action="store_true", help="keep the other published experiments")
    parser.add_argument("--record", action="store_true", help="write only the record that the package includes")
    parser.add_argument("--anyway", action="store_true", help="publish even if there are reasons against it")
    options = parser.parse_args(arguments)
    to = ResultsFolder(options.to.resolve())
    if options.record:
        print(write_committed(to))
        return 0
    if options.out is None:
        parser.error("OUT is missing: the folder of a full run")
    if options.out.resolve() == options.to.resolve():
        parser.error(f"OUT = {str(options.out)!r} must be another folder than the target, whose tables are reduced")
    folder, runs, missing, damaged = ResultsFolder(options.out), {}, {}, []
    for name in experiment_files(EXPERIMENTS):
        if not folder.record(name).exists():
            missing[name] = f"no run in {str(options.out)!r}"
            continue
        try:
            runs[name] = folder.read(name)
            load_tables(runs[name], folder)
        except UsageError as error:
            damaged.append(f"{name}: {error}")
    reasons = damaged + refusals(runs, missing, add=options.add)
    print(*reasons, sep="\n", end="\n" if reasons else "", file=sys.stderr)
    if (reasons and not options.anyway) or not runs:
        return 1
    written = publish(folder, list(runs), to, add=options.add)
    print(f"{len(written)} files, {sum(path.stat().st_size for path in written) / 1e6:.1f} MB in {options.to}")
    if to.path == COMMITTED:
        pictures.draw([key for key, (name, *_) in pictures.PICTURES.items() if name in runs])
    return 0


if __name__ == "__main__":
    sys.exit(main())
