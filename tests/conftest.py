"""How the suite is run: one thread in each process, the same random examples in each run, long tests with ``--all``."""

import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(name, "1")  # before NumPy is imported; worker processes and commands inherit it
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of many processes would compile every module anew

import sys  # noqa: E402

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fixed", max_examples=10, derandomize=True, database=None, **slow)
settings.register_profile("thorough", max_examples=500, print_blob=True, **slow)
settings.load_profile("fixed")  # --hypothesis-profile=thorough takes the other one

sys.dont_write_bytecode = False
collect_ignore = ["tools/mutants.py"]  # a program that needs coverage and cosmic-ray

LONG_EXAMPLES = (
    "algorithms.md",
    "break_even.py",
    "comparison.md",
    "digits.py",
    "dispatch.py",
    "errors.py",
    "gradient_heads.py",
    "lgfedavg.py",
    "own-data.md",
    "own-theorem.md",
    "paper.md",
    "predict.md",
    "problems.md",
    "smallest.py",
    "start.md",
    "sweeps.md",
    "tpgd.py",
    "tuning.md",
)
"""Files with examples that take seconds or need optional packages."""


def pytest_addoption(parser, pluginmanager):
    """Add ``--all``, and let ``-p no:xdist`` work beside the options of pytest-xdist that pyproject.toml gives."""
    parser.addoption("--all", action="store_true", help="also the tests marked long")
    if not pluginmanager.hasplugin("xdist"):
        for option in ("--numprocesses", "--dist"):
            parser.addoption(option, help="nothing, without pytest-xdist")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Collect tests alone, not doctests, from files of tests."""
    return [found for found in (yield) if type(found) is pytest.Module]


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.name in LONG_EXAMPLES:
            item.add_marker("long")
    if not config.getoption("--all"):
        long = {item: item.get_closest_marker("long") for item in items}
        config.hook.pytest_deselected(items=[item for item in items if long[item]])
        items[:] = [item for item in items if not long[item]]
