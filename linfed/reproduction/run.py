"""Run an experiment: compute its cells, save the tables, judge the claims and draw the figures.

All tables are saved before anything is judged or drawn, so a saved run can be redrawn and judged again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from linfed._package import __version__
from linfed.checks import short_repr
from linfed.errors import SweepError, UsageError
from linfed.plotting.captions import captions, write_caption
from linfed.reproduction.committed import Settings
from linfed.reproduction.declarations import Declarations, declarations_of
from linfed.reproduction.default_figure import default_figure
from linfed.reproduction.experiments import cells_of, is_named, load_file, name_of, relative_path
from linfed.reproduction.judging import Judgement, Tables, claims_of, edge_remarks, judge_claims
from linfed.reproduction.own_settings import check_cells, read_settings, with_settings
from linfed.reproduction.record import PICTURES, ResultsFolder, RunRecord, TableRecord
from linfed.statistics.findings import Finding
from linfed.sweeps.code_key import source_digests
from linfed.sweeps.executors import ExecutionOptions
from linfed.sweeps.progress import log_status
from linfed.sweeps.scheduler import run_cells
from linfed.sweeps.store import Store
from linfed.sweeps.sweep import format_failures
from linfed.system.description import FORMAT, describe
from linfed.system.machine import commit, provenance
from linfed.tables import export
from linfed.tables.grid import fields_of
from linfed.tables.labeled_array import LabeledArray
from linfed.tables.table import Table

DESCRIBED = f"{FORMAT}-"
"""Beginning of the hash of a run's configurations; hashes of other versions of the descriptions cannot be compared."""


def store_in(folder: ResultsFolder) -> Store:
    """Return the store of finished cells in an output folder; raise `UsageError` if it cannot be opened."""
    try:
        return Store(folder.cells)
    except ValueError as error:
        raise UsageError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Options of a run.

    Parameters
    ----------
    quick : bool, optional
        If True, use fewer trials and smaller sizes.
    trials, seed : int or None, optional
        Number of trials and seed of all cells; None for the values of the experiment.
    set : mapping of str to value, optional
        Fields of the cells to replace, see `linfed.reproduction.own_settings.with_settings`.
    out : str or None, optional
        Folder to write to; None for the standard one of `ResultsFolder`.
    draw : bool, optional
        If True, redraw and judge the saved run in the folder instead of computing cells.
    execution : ExecutionOptions, optional
        Options for the execution of the cells.
    """

    quick: bool = False
    trials: int | None = None
    seed: int | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    out: str | None = None
    draw: bool = False
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)

    @property
    def folder(self) -> ResultsFolder:
        """Folder to write to; by default, quick runs and runs with changed fields do not overwrite the full run."""
        if self.out:
            return ResultsFolder(Path(self.out))
        return ResultsFolder().part(quick=self.quick, changed=bool(changes_of(self)))


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Outcome of a run.

    Parameters
    ----------
    files : list of Path
        Written files, in the order of writing.
    claims : list of Finding or None
        Judged claims; None if the experiment has no claims, or ``claims(tables)`` could not be judged.
    captions : mapping of str to str
        Captions by the keys of the figures.
    remarks : list of str
        Reasons why claims or figures are missing, rows with hyper-parameters at the edge of their grid, and a remark if
        the cells of a redrawn run have changed since.
    settings : dict
        Settings by table, see `settings_of`.
    quick : bool
        Whether the run was quick.
    cells, reused : int
        Number of cells, and the number of them reused from earlier runs.
    seconds : float
        Run time.
    complete : bool
        Whether each declared claim has a finding, and each headline matches a claim; True for quick runs and runs with
        changed fields.
    """

    files: list[Path]
    claims: list[Finding] | None
    captions: Mapping[str, str]
    remarks: list[str]
    settings: Settings
    quick: bool
    cells: int
    reused: int
    seconds: float
    complete: bool = True


def reproduce(file: Path, options: ReproduceOptions) -> Reproduction | None:
    """Run one experiment from its cells to its claims, or redraw and judge a saved run.

    Parameters
    ----------
    file : Path
        The experiment's module.
    options : ReproduceOptions
        Options of the run.

    Returns
    -------
    Reproduction or None
        The outcome; None if this shard is done but cells of other shards are missing.

    Raises
    ------
    SweepError
        If cells failed; the others are saved.
    UsageError
        If an option is invalid for the cells; raised before any computation. If ``derived``, ``claims`` or ``plot``
        returns something else than tables, findings or figures; raised when the tables are saved.

    Notes
    -----
    Finished cells are stored in ``OUT/cells``, and reused by later runs of the same cells, with the same code and
    versions of packages.
    """
    started = time.perf_counter()
    name, module, out, remarks = name_of(file), load_file(file), options.folder, list[str]()
    out.create()
    before: RunRecord | None = None
    if options.draw:
        before = record = dataclasses.replace(out.read(name, with_claims=False), remarks=())
        out.check_same_file(record, file)
        tables = load_tables(record, out)
        lists = _lists(module, quick=record.quick, changes=record.set, saved=True)
        cells, reused, files = 0, 0, list[Path]()
        is_comparable = record.configuration.startswith(DESCRIBED)
        if is_comparable and record.configuration != configuration_of(lists):
            again = _computing(record, out)
            remarks.append(f"its cells have changed since the run was saved; run {again} to compute them")
    else:
        with suppress(UsageError):  # no record
            before = out.read(name, with_claims=False)
        if before is not None:
            out.check_same_file(before, file)
        lists = cells_ready(file, options)
        everything = [cell for cells in lists.values() for cell in cells]
        done = run_cells(everything, store_in(out), options.execution, label=name)
        if done.failures:
            raise SweepError(format_failures(done), done.failures) from done.failures[0].error
        if None in done.tables:
            return None
        found = iter([table for table in done.tables if table is not None])
        tables = {key: Table.joined(next(found) for _ in cell_list) for key, cell_list in lists.items()}
        cells, reused, files = len(everything), done.reused, save_tables(name, tables, out)
        record = dataclasses.replace(
            _record(file, module, options, tables),
            configuration=configuration_of(lists),
            cells=cells,
            reused=reused,
            seconds=round(time.perf_counter() - started, 3),
            processor_seconds=None if done.processor_seconds is None else round(done.processor_seconds, 1),
        )
        out.write(record)  # an error in claims or figures must not lose the results
    figure_files, texts, settings = list[Path](), dict[str, str](), settings_of(tables, lists)
    log_status(name, "judging the claims", options.execution.progress)
    tolerant = partial(_errors_as_remarks, record, out, remarks)
    judgement = judge_claims(file, module, tables, tolerant)
    claims = judgement.findings
    remarks += edge_remarks(tables, lists) if judgement.lacks_edge_notes else []
    if record.is_partial and judgement.not_asked:
        where = "with these settings" if record.set else "in a quick run"
        remarks.append(f"not asked {where}: {'; '.join(judgement.not_asked)}")
    record = dataclasses.replace(record, judged=commit(file.parent) or "", claims=tuple(claims or ()))
    missing = _missing(declarations_of(vars(module), file), record, judgement)
    if missing:
        correct = f"; correct it, and run {out.replot(record)}"
        remarks.append(missing if record.is_partial else f"{file.name}: {missing}{correct}")
    files.append(out.write(record))
    log_status(name, "drawing the figures", options.execution.progress)
    with tolerant("its figures cannot be drawn"):
        figure_files, texts = _draw(file, module, tables, lists, out, _metadata(record))
    for key in before.figures.keys() - texts.keys() if before else ():  # figures that are not drawn any more
        for suffix in (*PICTURES, ".pdf", ".txt"):
            out.figure(name, key, suffix).unlink(missing_ok=True)
    out.write(dataclasses.replace(record, figures=texts, remarks=tuple(remarks)))
    return Reproduction(
        files=files + figure_files,
        claims=claims,
        captions=texts,
        remarks=remarks,
        settings=settings,
        quick=record.quick,
        cells=cells,
        reused=reused,
        seconds=time.perf_counter() - started,
        complete=record.is_partial or not missing,
    )


@contextmanager
def _errors_as_remarks(record: RunRecord, out: ResultsFolder, remarks: list[str], what: str) -> Iterator[None]:
    """Return a context in which an error becomes a remark if fields were changed.

    A claim or figure can require all values of an axis, which ``--set`` replaces by one. `what` begins the remark.
    Other errors get a note with the command that continues from the saved tables.
    """
    try:
        yield
    except UsageError:
        raise
    except SystemExit as error:
        raise UsageError(
            f"{record.experiment}: {what} (SystemExit: {error}). The tables are saved: correct the error, and run "
            f"{out.replot(record)}"
        ) from error
    except Exception as error:
        expected = isinstance(error, ArithmeticError | LookupError | TypeError | ValueError)
        if not expected or not record.set.keys() - {"seed"}:
            error.add_note(f"The tables are saved: correct the error, and run {out.replot(record)}")
            raise
        message = " ".join(str(error).split())
        remarks.append(f"{what} with these settings ({type(error).__name__}: {message})")


def _missing(declared: Declarations, record: RunRecord, judgement: Judgement) -> str:
    """Return a text about a claim without findings in a full run, or a headline without a claim; empty without any."""
    if judgement.not_asked and not record.is_partial:
        several = "s" * (len(judgement.not_asked) > 1)
        return f"no rows of the tables fit the claim{several} {', '.join(map(repr, judgement.not_asked))}"
    lost = {*judgement.not_asked, *judgement.failed}
    headlines = tuple(one for one in declared.headlines if one.claim not in lost)
    return dataclasses.replace(declared, headlines=headlines).missing_headline(record.claims, partial=record.is_partial)


def cells_ready(file: Path, options: ReproduceOptions) -> dict[str, list[Any]]:
    """Return the checked cells of a run by table, with the changes by the options.

    Raises
    ------
    UsageError
        If a changed field does not exist, or has an invalid value, or if ``CLAIMS`` has another form.
    """
    module = load_file(file)
    lists = _lists(module, quick=options.quick, changes=changes_of(options))
    check_cells(lists)
    claims_of(file, module)
    return lists


def changes_of(options: ReproduceOptions) -> dict[str, Any]:
    """Return the fields of the cells that the options change, with the new values."""
    changes = {"trials": options.trials, "seed": options.seed}
    return {key: value for key, value in changes.items() if value is not None} | dict(options.set)


def _lists(module: ModuleType, *, quick: bool, changes: Mapping[str, Any], saved: bool = False) -> dict[str, list[Any]]:
    """Return the cells of an experiment by table, with changes.

    If `saved`, changes that have become impossible since the run was saved are left out.
    """
    lists = cells_of(module, quick=quick)
    if not changes:
        return lists
    try:
        return with_settings(lists, changes)
    except UsageError:
        if not saved:
            raise
        return lists


def settings_of(tables: Mapping[str, Table], cells: Mapping[str, Sequence[object]]) -> Settings:
    """Return the settings of a run.

    Parameters
    ----------
    tables : mapping of str to Table
        Tables of the run, whose columns contain the values of the cells' fields.
    cells : mapping of str to sequence
        Cells of the same classes by table; only the names of their fields are used.

    Returns
    -------
    dict
        For each table the sorted different values of each field, and the number of rows under ``rows``.
    """
    found: Settings = {}
    for key, table in tables.items():
        names = dict.fromkeys(name for cell in cells.get(key, ()) for name, _ in fields_of(cell))
        values = {name: {repr(row[name]) for row in table.rows if name in row} for name in names}
        found[key] = {name: sorted(texts) for name, texts in values.items() if texts} | {"rows": [str(len(table))]}
    return found


def save_tables(name: str, tables: Tables, out: ResultsFolder) -> list[Path]:
    """Write each table as CSV and npz, and return the paths."""
    files = []
    for key, table in tables.items():
        files += [*table.to_csv(out.table(name, key, ".csv")), table.save(out.table(name, key))]
    return files


def load_tables(record: RunRecord, out: ResultsFolder) -> Tables:
    """Return the tables of a saved run; raise `UsageError` if one does not exist or cannot be read."""
    name = record.experiment
    try:
        loaded = {key: Table.load(out.table(name, key)) for key in record.tables}
    except (OSError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f"{str(out.path)!r} must have the tables of {name} ({reason}): run {_computing(record, out)}"
        ) from None
    return _SavedTables(loaded, name, _computing(record, out))


class _SavedTables(dict[str, Table]):
    """Tables of a saved run; a missing one, which the experiment of today reads, raises `UsageError`."""

    def __init__(self, tables: Mapping[str, Table], name: str, command: str) -> None:
        super().__init__(tables)
        self.name, self.command = name, command

    def __missing__(self, key: str) -> Table:
        raise UsageError(f"the saved run of {self.name} has no table {key!r}: run {self.command}")


def _computing(record: RunRecord, out: ResultsFolder) -> str:
    """Return the command that computes a saved run again, into its folder."""
    standard = ResultsFolder().part(quick=record.quick, changed=bool(record.set))
    where = "" if out == standard else f" --out {shlex.quote(str(out.path))}"
    return f"{record.command or f'linfed reproduce {record.experiment}'}{where}"


def command_of(file: Path, options: ReproduceOptions) -> str:
    """Return the command that computes a run with these options, without the options that do not change its numbers."""
    words = [
        "linfed",
        "reproduce",
        name_of(file) if is_named(file) else relative_path(file),
        *["--quick"] * options.quick,
    ]
    for name, value in (("trials", options.trials), ("seed", options.seed)):
        words += [] if value is None else [f"--{name}", str(value)]
    for name, value in options.set.items():
        is_word = isinstance(value, str) and read_settings([f"{name}={value}"]) == {name: value}
        words += ["--set", f"{name}={value if is_word else repr(value)}"]
    return shlex.join(words)


def configuration_of(lists: Mapping[str, Sequence[Any]]) -> str:
    """Return a hash of the configurations of all cells by table."""
    texts = [f"{key}: {text}" for key, cells in lists.items() for text in sorted(describe(one).text for one in cells)]
    return DESCRIBED + hashlib.sha256("\n".join(texts).encode()).hexdigest()


def source_hashes(module: ModuleType) -> dict[str, str]:
    """Return the hashes of the code that computes the cells of an experiment: its own, and that of linfed."""
    return source_digests([module.cells])


def _metadata(record: RunRecord) -> dict[str, str]:
    """Return the metadata of a run's figures: version, command, hashes of the code and commit."""
    keywords = [f"source of the {name}: {digest}" for name, digest in record.source.items()]
    keywords += [f"commit: {record.commit}"] if record.commit else []
    texts = {"Creator": f"linfed {record.versions.get('linfed', __version__)}", "Subject": record.command}
    texts["Keywords"] = "; ".join(keywords)
    return {name: text for name, text in texts.items() if text}


def _record(file: Path, module: ModuleType, options: ReproduceOptions, tables: Tables) -> RunRecord:
    """Return the record of a run without its claims: options, values shared by all rows of a table, and versions."""

    def shared(table: Table) -> dict[str, object]:
        other = set(export.varying(table.rows)) if len(table) > 1 else set[str]()
        first = table.rows[0] if len(table) else {}
        numbers = {key: value for key, value in first.items() if key not in other}
        return {key: value for key, value in numbers.items() if not isinstance(value, LabeledArray | np.ndarray)}

    machine = provenance()
    return RunRecord(
        experiment=name_of(file),
        file=None if is_named(file) else str(file.resolve()),
        command=command_of(file, options),
        source=source_hashes(module),
        quick=options.quick,
        set=changes_of(options),
        tables={key: TableRecord(rows=len(table), shared=shared(table)) for key, table in tables.items()},
        date=datetime.now(UTC).date().isoformat(),
        versions=machine["versions"],
        blas=tuple(machine["blas"]),
        machine=machine["machine"],
        commit=commit(file.parent),
    )


def _draw(
    file: Path,
    module: ModuleType,
    tables: Tables,
    lists: Mapping[str, list[Any]],
    out: ResultsFolder,
    metadata: Mapping[str, str],
) -> tuple[list[Path], dict[str, str]]:
    """Write the figures and captions; return the paths, and the captions by the keys of the figures."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    from linfed.figures.style import save_figure, style

    files: list[Path] = []
    with style(), mpl.rc_context({"figure.max_open_warning": 0}):  # each is closed after it is written
        if hasattr(module, "plot"):
            figures = module.plot(tables)
            if not isinstance(figures, Mapping) or not all(isinstance(one, Figure) for one in figures.values()):
                raise UsageError(
                    f"{file.name}: plot(tables) must return a dict of matplotlib figures, e.g. {{'': figure}}, got "
                    f"{short_repr(figures)}"
                )
            texts = captions(module, tables, figures)
        else:
            pairs = {key: default_figure(table, lists.get(key, [])) for key, table in tables.items()}
            found = {key if len(tables) > 1 else "": pair for key, pair in pairs.items() if pair is not None}
            figures, texts = (
                {key: pair[0] for key, pair in found.items()},
                {key: pair[1] for key, pair in found.items()},
            )
        for key, figure in figures.items():
            stem, caption = (out.figure(name_of(file), key, suffix) for suffix in ("", ".txt"))
            files += [*save_figure(figure, str(stem), metadata=metadata), write_caption(caption, texts[key])]
            plt.close(figure)
    return files, texts
