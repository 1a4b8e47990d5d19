"""The working folder of a test, and the scripts of the site."""

import importlib
import sys

import pytest

from tests.helpers import ROOT
from tests.reproduction.toys import folder

__all__ = ["folder", "site"]

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site():
    """The scripts of the site, as its build imports them: with docs/ on the path."""
    before = set(sys.modules)
    sys.path.insert(0, str(DOCS))
    names = ("gallery", "reference", "tutorials", "usage")
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(DOCS))
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and sys.modules[name].__file__.startswith(str(DOCS)):
            del sys.modules[name]
