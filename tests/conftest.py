"""How the suite is run: one thread a process, and in one process what shares its slow parts."""

import os

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
for name in THREADS:  # before NumPy is there; worker processes and commands inherit it
    os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # tens of processes would each compile every module anew

import gc  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fixed", max_examples=15, derandomize=True, database=None, **slow)
settings.register_profile("thorough", max_examples=500, print_blob=True, **slow)
settings.load_profile("fixed")  # --hypothesis-profile=thorough takes the other one

collect_ignore = ["mutants.py"]  # a program; it needs cosmic-ray, which its nox session installs

sys.dont_write_bytecode = False
gc.disable()  # until all tests are collected

SPLIT = {
    "test_experiments": r"\[(.+?)(-True|-False)?\]$",
    "test_exact_law": r"\[([^-\]]+)",
    "test_notebooks": r"\[(.+?)\]$",
}
"""Modules that are cut, and where a test's name has its experiment, setting or notebook: each is made by itself."""

TOGETHER = {"flute-rate-and-floor": "flute-theorem55", "flute-collapse": "flute-classification"}
"""Experiments with cells of another: they are computed once."""

FIRST = (*SPLIT, "test_cli", "test_executors", "test_processes", "test_faults")
"""Those with long tests, so that none of them is the last one."""

LONG_EXAMPLES = (
    "algorithms.md",
    "digits.py",
    "errors.py",
    "own-data.md",
    "own-theorem.md",
    "paper.md",
    "predict.md",
    "sweeps.md",
)
"""Files with examples that take seconds or need optional packages."""

UNTRACED = (
    "test_algorithms",
    "test_averaging",
    "test_class_algorithms",
    "test_collapse",
    "test_compressed",
    "test_docs",
    "test_engine_trials",
    "test_engines",
    "test_exact_law",
    "test_experiments",
    "test_explicit",
    "test_faults",
    "test_flute",
    "test_identities",
    "test_interface",
    "test_legend",
    "test_numbers",
    "test_report",
    "test_run",
    "test_schedule",
    "test_second_order",
    "test_shortcut",
    "test_state_evolution",
    "test_under_parameterized",
)
"""Those of many runs, which a tracer makes half as long again: other tests run all but 1 % of what they run."""


def pytest_addoption(parser, pluginmanager):
    """Add ``--all``, and let ``-p no:xdist`` work beside the options of pytest-xdist that pyproject.toml gives."""
    parser.addoption(
        "--all",
        action="store_true",
        help="also what takes long or needs an optional package: quick runs of all experiments, notebooks, clusters",
    )
    if not pluginmanager.hasplugin("xdist"):
        for option in ("--numprocesses", "--dist"):
            parser.addoption(option, help="nothing, without pytest-xdist")


def pytest_configure(config):
    if config.getoption("--all"):
        os.environ["LINFED_TESTS_ALL"] = "1"  # for `helpers.each`


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.name in LONG_EXAMPLES:
            item.add_marker("long")
    if not config.getoption("--all"):
        left = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
    items.sort(key=lambda item: item.path.stem not in FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Leave long tests and the modules of `UNTRACED` untraced, their fixtures too.

    Coverage is of the other tests, and of what they import: all modules, whose doctests are collected before. (A pause
    of pytest-cov's is none in the processes of pytest-xdist: the tracer of another of its controllers then goes on.)
    """
    tracer = sys.gettrace()
    every = item.config.getoption("cov_context", None)  # `tests.tools.mutants` asks which tests run a line
    if tracer is None or every or (item.get_closest_marker("long") is None and item.path.stem not in UNTRACED):
        return (yield)
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


def pytest_collection_finish():
    """Keep thousands of tests, which stay to the end, out of every search for garbage: one second in fifteen."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each process whole modules; of those that are cut, whole experiments and settings.

    By the tests' names: the marks of ``--dist=loadgroup`` have no effect under the pytest releases in which a test's
    name is no longer for plugins to change.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def group_of(nodeid):
    """Return the name of the tests that run in one process, one after the other.

    >>> group_of("tests/data/test_exact_law.py::test_the_law[one client, noiseless-chain]")
    'tests/data/test_exact_law.py::one client, noiseless'
    >>> group_of("tests/experiments/test_experiments.py::test_false[flute-theorem51-True]")
    'tests/experiments/test_experiments.py::flute-theorem51'
    >>> group_of("tests/numerics/test_linalg.py::test_one[a-b]")
    'tests/numerics/test_linalg.py'
    """
    path, _, test = nodeid.partition("::")
    module = re.search(r"(\w+)\.py$", path)
    found = re.search(SPLIT.get(module[1], "$^"), test) if module else None
    return f"{path}::{TOGETHER.get(found[1], found[1])}" if found else path
