"""The key of the code: which edits change it, which do not, and when a sweep with a store is refused."""

import functools
import importlib
import importlib.metadata
import os
import py_compile
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import scipy

import linfed
import linfed as lf
from linfed import _sources
from linfed.cells.smallest_size import SmallestSize
from linfed.sweeps import code_key as module
from linfed.sweeps.code_key import code_key, source_digests
from tests.helpers import assert_one_line, forget

OWN_CELL = '''"""A module of the user."""
import functools, importlib, runpy
from dataclasses import dataclass
import aside, either, registers, split
import packed
import inner.below as below
import above.under
import compiled
from inner import relative
from base import Base
from profile import stretch

FACTOR = 2

def scaled(x, power=1):
    """Return a product."""
    return FACTOR * x**power  # here

@dataclass(frozen=True)
class Own(Base):
    n: int = 1

    def run(self):
        from late import later
        if self.n > 100:
            import later_still, lazy, space.inner.deep, split.far
        importlib.import_module("by_name"), runpy.run_path("script.py")
        return {"value": scaled(self.n)}

def unused():
    return aside.f()

if __name__ == "__main__":
    print(FACTOR)
'''
IMPORTED = (
    *("aside", "above/__init__", "above/under", "above_base", "inner/below", "inner/relative", "inner/sibling"),
    *("late", "later_still", "space/inner/deep"),  # not before the cell runs, and in packages without __init__.py
    "space/inner/beside",  # relative to a package in a package
    *("lazy/inside", "apart/far"),  # of a package that is not imported either, and of one that has another folder
    "profile",  # a name of Python's own
)
NAMED = ("packed/lazy", "by_name", "script")
"""Modules that strings name, which do not count."""

FILES = {f"{name}.py": "K = 1\ndef f(x=1):\n    return x\nlater = stretch = f\n" for name in (*IMPORTED, *NAMED)} | {
    "own_cell.py": OWN_CELL,
    "base.py": "import above_base\n\nclass Base:\n    K = 1\n    def shifted(self):\n        return self.K\n",
    "either.py": "if __name__ == '__main__':\n    J = 1\nelse:\n    K = 1\n",
    "lazy/__init__.py": "from . import inside\n",
    "space/inner/deep.py": "from . import beside\nK = 1\n",
    "split/__init__.py": "__path__ = [__path__[0].replace('split', 'apart')]\n",
    "registers.py": "import aside\naside.K = 1\n",
    "inner/__init__.py": "from . import sibling\nK = 1\n",
    "packed/__init__.py": "import importlib\n\ndef get():\n    return importlib.import_module('.lazy', __name__)\n",
    "main_block.py": "if __name__ == '__main__':\n    K = 1\n\ndef f():\n    return K\n",  # which nothing imports
}
COUNTS = [
    ("own_cell.py", "FACTOR = 2", "FACTOR = 3"),
    ("own_cell.py", "power=1", "power=2"),
    ("own_cell.py", "FACTOR * x", "FACTOR + x"),
    ("own_cell.py", "scaled(self.n)", "scaled(self.n + 0)"),
    ("own_cell.py", "return aside.f()", "return None"),  # whole files count
    ("own_cell.py", "FACTOR = 3", "FACTOR = 3\nMORE = 1"),
    ("base.py", "return self.K", "return 2 * self.K"),
    ("aside.py", "x=1", "x=2"),
    *((f"{name}.py", "K = 1", "K = 2") for name in (*IMPORTED, "base", "either", "registers", "inner/__init__")),
]
COUNTS_NOT = [
    ("own_cell.py", "# here", "# there"),
    ("own_cell.py", "Return a product", "Multiply"),
    ("own_cell.py", "FACTOR * x", "FACTOR   *   x"),
    ("own_cell.py", "A module of the user", "A module"),
    ("own_cell.py", "print(FACTOR)", "print(1)"),
    ("own_cell.py", "FACTOR = 2", "FACTOR = 2\n'''The factor.'''"),
    ("base.py", "class Base:", "class Base:\n    '''A class.'''"),
    *((f"{name}.py", "K = 1", "K = 2") for name in (*NAMED, "main_block")),
]
EXPERIMENT = """
from dataclasses import dataclass

SUMMARY = "an experiment"
SIZES = (1, 2)

@dataclass(frozen=True)
class Point:
    n: int = 1

    def run(self):
        return {"value": self.n * len(SIZES)}

def cells(quick):
    return [Point(n) for n in SIZES]

def plot(tables):
    from drawings import draw

CLAIMS = [("a", "b")]

if __name__ == "__main__":
    START = 1
    print(cells(True))
"""


def write(path, text):
    """Write a file that Python imports anew, whatever the clock says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    importlib.invalidate_caches()
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def edit(path, old, new):
    assert old in path.read_text()
    write(path, path.read_text().replace(old, new))


def compile_to(path, text):
    path.with_suffix(".txt").write_text(text)
    py_compile.compile(path.with_suffix(".txt"), cfile=path, doraise=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of modules of the user, whose imports are undone afterwards."""
    before = dict(sys.modules)
    for name in FILES:
        monkeypatch.delitem(sys.modules, Path(name).parts[0].removesuffix(".py"), raising=False)
        write(tmp_path / name, FILES[name])
    compile_to(tmp_path / "compiled.pyc", "K = 1")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]


def key_of(folder, name, *classes):
    """Return the key of classes of a module, which is imported anew with all that it imports."""
    forget(folder)
    found = importlib.import_module(name)
    return code_key([getattr(found, one) for one in classes])


@pytest.mark.parametrize("counts", [True, False])
def test_the_edits_that_count(counts, folder):
    for name, old, new in COUNTS if counts else COUNTS_NOT:
        before = key_of(folder, "own_cell", "Own")
        edit(folder / name, old, new)
        assert (key_of(folder, "own_cell", "Own") != before) is counts, (name, old)


@pytest.mark.parametrize("imported", [True, False])
def test_modules_without_source_count_by_their_bytes(imported, folder):
    """Imported within a function, they count before they are imported."""
    if not imported:
        edit(folder / "own_cell.py", "import compiled", "def f():\n    import compiled")
    first = key_of(folder, "own_cell", "Own")
    compile_to(folder / "compiled.pyc", "K = 2")
    if imported:
        refused([sys.modules["own_cell"].Own], "'compiled'", "has changed since it was imported")
    assert key_of(folder, "own_cell", "Own") != first


def test_a_module_that_python_runs_with_m_imports_from_its_package(folder, monkeypatch):
    write(folder / "inner" / "below.py", "from .relative import K\n\nclass Cell:\n    pass\n")
    below = importlib.import_module("inner.below")
    monkeypatch.setitem(sys.modules, "__main__", below)
    monkeypatch.setattr(below.Cell, "__module__", "__main__")
    before = code_key([below.Cell])
    edit(folder / "inner" / "relative.py", "K = 1", "K = 2")
    importlib.reload(sys.modules["inner.relative"])
    assert code_key([below.Cell]) != before


def test_a_module_in_an_archive_is_refused(folder):
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        archive.writestr("archived.py", "K = 1")
    sys.path.append(str(folder / "archive.zip"))
    edit(folder / "late.py", "K = 1", "import archived")
    assert_one_line(lambda: key_of(folder, "own_cell", "Own"), ["store= requires the source file of 'archived'"])


EDITS = [
    ("an experiment", "one more experiment"),
    ("for n in SIZES", "for n in (1, 2, 3)"),
    ("from drawings import draw", "return tables"),
    ('("a", "b")', '("a", "c")'),
    ("print(cells(True))", "print(cells(False))"),
    ("START = 1", "START = 2"),
    ("SIZES = (1, 2)", "SIZES = (1, 2, 3)"),
    ("len(SIZES)", "len(SIZES) + 1"),
]


@pytest.mark.parametrize("uses", ["", "CLAIMS", "(lambda CLAIMS: CLAIMS)(1)"])
def test_an_experiment_counts_without_what_chooses_and_judges_cells(uses, folder):
    """Unless other code uses a name from it: then the file counts as a whole."""
    text = EXPERIMENT.replace("len(SIZES)}", f"len(SIZES), 'used': lambda: {uses or None}}}")
    path = folder / "small_experiment.py"
    for old, new in EDITS:
        write(path, text)
        before = key_of(folder, "small_experiment", "Point")
        edit(path, old, new)
        counts = uses != "" or old in ("SIZES = (1, 2)", "len(SIZES)")
        assert (key_of(folder, "small_experiment", "Point") != before) is counts, old


def test_declarations_of_an_experiment_do_not_count(folder):
    write(folder / "small_experiment.py", EXPERIMENT)
    before = key_of(folder, "small_experiment", "Point")
    for name in ("CLAIMS", "CAPTIONS", "HEADLINES", "PICTURES", "REDUCED", "SUMMARY"):
        write(folder / "small_experiment.py", f"{EXPERIMENT}\n{name} = 1\n")
        assert key_of(folder, "small_experiment", "Point") == before
    for name in ("claims", "derived"):
        write(folder / "small_experiment.py", f"{EXPERIMENT}\ndef {name}(tables):\n    return tables\n")
        assert key_of(folder, "small_experiment", "Point") == before
    write(folder / "small_experiment.py", f"{EXPERIMENT}\nOTHER = 1\n")
    assert key_of(folder, "small_experiment", "Point") != before


def test_an_experiment_counts_as_a_whole_if_another_file_imports_it_but_not_in_its_record(folder):
    write(folder / "small_experiment.py", EXPERIMENT)
    write(folder / "other.py", "import small_experiment\n\nclass Cell:\n    pass\n")

    def keys():
        forget(folder)
        own, other = importlib.import_module("small_experiment"), importlib.import_module("other")
        return code_key([own.Point]), code_key([other.Cell, own.Point]), source_digests([own.cells])["experiment"]

    before = keys()
    edit(folder / "small_experiment.py", '("a", "b")', '("a", "c")')
    assert [one == two for one, two in zip(before, keys(), strict=True)] == [True, False, True]


def test_functions_and_what_partials_hold_count(folder):
    from linfed.system.description import describe

    own = importlib.import_module("own_cell")
    values = (functools.partial(own.scaled, 1), (own.unused,), {"a": own.Own}, own.Own())
    owners = [describe(value).owners for value in values]
    before = [code_key(one) for one in owners]
    edit(folder / "own_cell.py", "FACTOR * x", "FACTOR + x")
    importlib.reload(own)
    assert not set(before) & {code_key(one) for one in owners}


def test_the_versions_of_packages_count_whether_they_are_imported_or_not(folder, monkeypatch):
    """A cell may import a package only when it runs; an upgrade must not leave its stored rows."""
    module._version.cache_clear()
    assert module._version("scipy") == scipy.__version__
    assert module._version("PIL").lower().startswith("pillow ")  # its distribution has another name
    assert module._version("no_such_package") == ""
    before = key_of(folder, "own_cell", "Own")
    edit(folder / "late.py", "return x", "import PIL")
    second = key_of(folder, "own_cell", "Own")
    monkeypatch.setattr(module, "_version", lambda name: "2" if name == "PIL" else "1")
    assert len({before, second, key_of(folder, "own_cell", "Own")}) == 3
    assert module._user_files([sys.modules["own_cell"].Own])[1] == {"PIL"}


def test_a_module_beside_the_packages_that_belongs_to_none_counts_by_its_file(folder):
    write(folder / "site-packages" / "loose.py", "K = 1\n")
    sys.path.append(str(folder / "site-packages"))
    edit(folder / "late.py", "K = 1", "import loose")
    before = key_of(folder, "own_cell", "Own")
    edit(folder / "site-packages" / "loose.py", "K = 1", "K = 2")
    assert key_of(folder, "own_cell", "Own") != before


# --- linfed's own files ----------------------------------------------------------------------------------------------


def test_linfeds_own_code_counts_but_for_what_draws(tmp_path, monkeypatch):
    package = tmp_path / "linfed"
    shipped = "_shipped/experiments/toy.py"  # which counts where a cell is of it
    files = ("data/toy.py", "figures/style.py", "plotting/panels.py", "search/toy.py", "commands/show.py", shipped)
    for name in (*files, "cli.py", "__init__.py"):
        write(package / name, "x = 1\n")
    monkeypatch.setattr(module, "FOLDER", package)
    changes = (
        ("data/toy.py", "x = 1  # said\n", False),
        ("data/toy.py", '"""Said."""\nx = 1\n', False),
        ("data/toy.py", "x = 2\n", True),
        ("search/toy.py", "x = 2\n", True),
        ("figures/style.py", "x = 2\n", False),
        ("plotting/panels.py", "x = 2\n", False),
        ("cli.py", "x = 2\n", False),
        ("commands/show.py", "x = 2\n", False),
        (shipped, "x = 2\n", False),
        ("data/new.py", "x = 2\n", True),
    )
    for name, text, counts in changes:
        before = code_key([]), source_digests([])["linfed"]
        write(package / name, text)
        after = code_key([]), source_digests([])["linfed"]
        assert [one != other for one, other in zip(before, after, strict=True)] == [counts, counts], (name, text)


def test_every_module_that_runs_while_a_cell_is_computed_counts():
    """A module that moves into a subpackage that does not count would keep stale cells."""
    problem, data = lf.SharedRepresentation(n_clients=4, dim=3, rank=1), lf.FreshSamples(n_samples=3)
    tuned = lf.Tuned(base=lf.FedRep(rank=1, step_size=1.0), grid={"step_size": (1e-3, 1.0, 1e3)}, trials=2)
    run = lf.Run(algorithm=lf.FedRep(rank=1, step_size=0.5), problem=problem, data=data, n_rounds=3, trials=2)
    level = lf.below("subspace_distance", 0.5)
    cells = [
        replace(run, algorithm=tuned),
        replace(run, data=lf.FixedSamples(n_samples=3)),
        SmallestSize(base=run, path="data.n_samples", reaches=level, lower=2, upper=8, trials=8, batch=4),
    ]
    package, files = Path(linfed.__file__).parent, set()

    def note(frame, event, _):
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        for cell in cells:
            cell.run()
    finally:
        sys.setprofile(None)
    executed = {name for name in files if name.startswith(f"{package}{os.sep}")} - {_sources.__file__}  # it imports
    counted = {file.path for file in module._own_files().values()}
    assert {"search/tuning.py", "tables/grid.py"} <= {Path(one).relative_to(package).as_posix() for one in executed}
    assert executed <= counted


# --- what is refused -------------------------------------------------------------------------------------------------


def refused(owners, *fragments):
    assert_one_line(lambda: code_key(owners), ["store= cannot use results of", *fragments])


@pytest.mark.parametrize("swept_before", [True, False])
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("own_cell.py", "FACTOR * x", "FACTOR + x"),
        ("own_cell.py", "FACTOR = 2", "FACTOR = 3"),
        ("own_cell.py", "power=1", "power=2"),
        ("base.py", "K = 1", "K = 2"),
        ("aside.py", "return x", "return x + 1"),
    ],
)
def test_a_file_that_has_changed_since_it_was_imported_is_refused(name, old, new, swept_before, folder):
    """What runs is the old code, whose rows must not get the key of the new one."""
    own = importlib.import_module("own_cell")
    if swept_before:
        code_key([own.Own])
    edit(folder / name, "\n", "  # a comment\n")
    code_key([own.Own])
    edit(folder / name, old, new)
    refused([own.Own], f"{Path(name).stem!r}", repr(str(folder / name)), "has changed since it was imported", "reload")
    importlib.reload(sys.modules[Path(name).stem])
    code_key([own.Own])


def test_no_clock_is_asked(folder):
    """A module written by a notebook is newer than the process, and the clock of a file server may differ."""
    for seconds in (0, 2**32 - 1):
        for name in FILES:
            os.utime(folder / name, (seconds, seconds))
        own = importlib.import_module("own_cell")
        code_key([own.Own])
        os.utime(folder / "own_cell.py")
        code_key([own.Own])


def test_a_module_that_was_imported_before_linfed_is_refused_too(tmp_path):
    write(tmp_path / "early.py", "class Early:\n    k = 1\n")
    code = (
        "import early, pathlib\n"
        "from linfed.sweeps.code_key import code_key\n"
        "pathlib.Path('early.py').write_text('class Early:\\n    k = 2\\n')\n"
        "code_key([early.Early])\n"
    )
    done = run_code(["-c", code], tmp_path)
    assert "results of 'early'" in done.stderr.splitlines()[-1]


def test_odd_objects_in_place_of_modules_do_not_hinder_the_import(tmp_path):
    code = (
        "import pathlib, sys, types\n"
        "class Raises(types.ModuleType):\n"
        "    def __getattr__(self, name): raise RuntimeError(name)\n"
        "sys.modules |= {'raises': Raises('raises'), 'path': types.SimpleNamespace(__file__=pathlib.Path('x.py'))}\n"
        "import linfed\n"
    )
    assert run_code(["-c", code], tmp_path).stderr == ""


def run_code(arguments, folder, **environment):
    environment = {**os.environ, "PYTHONPATH": str(Path(linfed.__file__).parents[1]), **environment}
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, env=environment)


def test_linfed_that_has_changed_since_it_was_imported_is_refused(monkeypatch):
    code_key([])
    monkeypatch.setitem(module.SOURCES, "linfed.data.batch", b"other = 1\n")
    refused([], "'linfed.data.batch'", "has changed since it was imported; restart Python")


def test_a_file_that_has_gone_is_refused(folder):
    own = importlib.import_module("own_cell")
    (folder / "aside.py").unlink()
    assert_one_line(lambda: code_key([own.Own]), ["store= requires the source file of 'aside'", "has none"])


def given(*_):
    raise NotImplementedError


@dataclass(frozen=True)
class Mine:
    """A cell of this module."""

    def run(self):
        return {"value": 1}


REPLACED = [
    (lf.FedRep, "step", given),
    (lf.FedRep, "step", lambda *_: None),
    (lf.FedRep, "step", functools.wraps(lf.FedRep.step)(lambda *_: None)),
    (lf.FedRep, "rank", property(given)),
    (lf.Algorithm, "step", staticmethod(given)),
    (lf.State, "anything", classmethod(given)),
]


@pytest.mark.parametrize(("kind", "name", "value"), REPLACED)
def test_a_method_of_linfed_that_was_replaced_is_refused(kind, name, value, monkeypatch):
    monkeypatch.setattr(kind, name, value, raising=False)
    refused([], f"{kind.__name__}'>: its method {name} was replaced", f"{__name__!r}", "define a subclass")


def test_a_method_of_the_user_may_come_from_a_file_that_counts(folder, monkeypatch):
    own, aside = importlib.import_module("own_cell"), importlib.import_module("aside")
    monkeypatch.setattr(own.Own, "run", aside.f)
    code_key([own.Own])
    with monkeypatch.context() as patch:
        patch.setattr(lf.FedRep, "step", aside.f)  # a row of another cell would not tell
        refused([own.Own], "replaced by code of the module 'aside'")
    monkeypatch.setattr(own.Own, "run", given)
    refused([own.Own], "its method run was replaced by code of the module", repr(__name__))
    monkeypatch.setattr(sys.modules["base"].Base, "shifted", Mine.run)
    refused([own.Own], "replaced")
    code_key([Mine])


@pytest.mark.long
def test_a_script_that_replaces_a_method_and_a_prompt_are_refused(tmp_path):
    """Without a file, nothing would count of the code."""
    code = (
        "import linfed as lf\n"
        "lf.FedRep.step = lambda self, state, batch, rng: state\n"
        "run = lf.Run(algorithm=lf.FedRep(rank=1, step_size=0.5), data=lf.FreshSamples(4), n_rounds=1,\n"
        "             problem=lf.SharedRepresentation(n_clients=4, dim=3, rank=1))\n"
        "lf.sweep([run], store='store')\n"
    )
    (tmp_path / "script.py").write_text(code)
    for arguments in (["script.py"], ["-c", code]):
        done = run_code(arguments, tmp_path)
        assert done.stderr.splitlines()[-1].startswith("ValueError: store= cannot use results of <class")
        assert "its method step was replaced by code of the module '__main__'" in done.stderr


@pytest.mark.long
def test_every_process_has_the_same_keys(folder):
    """Whatever the order of its sets: otherwise a sweep that was interrupted would begin anew."""
    own = folder / "own_cell.py"
    edit(own, "import functools", "import functools, matplotlib, scipy, threadpoolctl, tqdm")
    edit(own, "n: int = 1", "n: int = 1\n    words: frozenset = frozenset('abcdefgh')")
    code = "import own_cell; from linfed.sweeps.store import keys_of; print(keys_of([own_cell.Own()]))"
    found = {run_code(["-c", code], folder, PYTHONHASHSEED=seed).stdout for seed in ("1", "2", "5")}
    assert len(found) == 1
    assert "CellKey" in found.pop()


def test_without_the_source_of_linfed_a_store_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FOLDER", tmp_path / "archive.zip" / "linfed")
    fragments = ["store= requires the source files of linfed", "omit store="]
    assert_one_line(lambda: lf.sweep([Mine()], store=tmp_path), fragments)
    assert lf.sweep([Mine()])["value"] == 1
