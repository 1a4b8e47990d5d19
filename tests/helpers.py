"""What several test modules need of the package itself; plain loops to compare with are in `references`."""

import contextlib
import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import linfed as lf
from linfed._sources import SOURCES
from linfed.claims import judged
from linfed.figures import style
from tests import references as ref

ROOT = Path(__file__).resolve().parents[1]
"""Folder of the repository."""


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def basis(d, k, seed=0):
    """Return an orthonormal basis of a random subspace."""
    return ref.qr_positive(normal(d, k, seed=seed))[0]


@contextlib.contextmanager
def cleared(cached):
    """Clear the cache of a function before and after a block that changes what it depends on."""
    cached.cache_clear()
    try:
        yield
    finally:
        cached.cache_clear()


def png_alone(figure, file, *, format, metadata, plain=Figure.savefig):
    """Save an empty figure in the place of a figure, but for its PDF."""
    if format == "png":
        plain(Figure((1, 1)), file, format=format, metadata=metadata)


@contextlib.contextmanager
def own_folder(tmp_path, monkeypatch, dpi=20):
    """Work in a folder whose modules and path are gone afterwards; figures are coarse and have no PDF."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(style.STYLE, "savefig.dpi", dpi)
    monkeypatch.setattr(Figure, "savefig", png_alone)
    loaded = dict(SOURCES)
    yield tmp_path
    forget(tmp_path)
    SOURCES.clear()
    SOURCES.update(loaded)  # modules of the folder may have had the names of others


def forget(folder):
    """Remove the modules in a folder from those that are imported."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(folder)):
            del sys.modules[name]
    importlib.invalidate_caches()


def assert_same(one, other, first=slice(None), second=slice(None), *, n_rounds=None):
    """Assert that two results agree bit for bit in the named trials: metrics, states and outcomes.

    Of runs of different lengths the metrics in the first rounds, as many as are named, are compared alone.
    """
    assert list(one.metrics) == list(other.metrics)
    pairs = [(one.metrics[name][first, :n_rounds], other.metrics[name][second, :n_rounds]) for name in one.metrics]
    if n_rounds is None:
        assert one.rounds.tolist() == other.rounds.tolist()
        pairs += [(array[first], other.final.arrays()[name][second]) for name, array in one.final.arrays().items()]
        assert one.status[first] == other.status[second]
        assert np.array_equal(one.status_round[first], other.status_round[second])
    for a, b in pairs:
        assert np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def rounds_of(*arguments, **settings):
    """Return an iterator over the rounds of a run, without the initial state."""
    steps = lf.iterate(*arguments, **settings)
    assert next(steps).number == 0
    return steps


def mostly_long(cases, *default):
    """Return all cases for `parametrize`; those that are not named run only with ``--all``."""
    return [case if case in default else pytest.param(case, marks=pytest.mark.long) for case in cases]


def assert_one_line(call, fragments, errors=ValueError):
    """Assert that a call raises one line of text with all the fragments; return the line."""
    with pytest.raises(errors) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message
    return message


@dataclass(frozen=True, kw_only=True)
class Held(lf.Algorithm):
    """A state that never moves."""

    state: lf.State

    def initial_state(self, start):
        return self.state

    def step(self, state, batch, rng):
        return state


@dataclass(frozen=True, kw_only=True, eq=False)
class Wrapped(lf.Algorithm):
    """Starts and ends as another algorithm does; what it does in a step, and keeps, a subclass says."""

    inner: lf.Algorithm

    @property
    def learned_rank(self):
        return self.inner.learned_rank

    @property
    def initialization(self):
        return self.inner.initialization

    @property
    def finishes(self):
        return self.inner.finishes

    def initial_state(self, start):
        return self.inner.initial_state(start)


def finding(claim="it is so", setting="n = 1", estimate=0.9, low=0.8, high=1.0, **changes):
    """Return a finding, by default a supported one: at least 0.5."""
    said = {"statistic": "share", "source": "a paper"} | changes
    said |= {} if {"claimed_low", "claimed_high"} & said.keys() else {"claimed_low": 0.5}
    return lf.Finding(claim=claim, setting=setting, estimate=estimate, low=low, high=high, **said)


def whole(module, tables):
    """Return the tables of an experiment with those that it derives from them."""
    return tables | (module.derived(tables) if hasattr(module, "derived") else {})


def findings(module, tables):
    """Return an experiment's findings on tables: those of ``CLAIMS``, and those of ``claims(tables)``.

    Claims on other tables are left out.
    """
    tables = whole(module, tables)
    declared = [one for one in getattr(module, "CLAIMS", ()) if (one.table or next(iter(tables))) in tables]
    return judged(declared, tables) + (list(module.claims(tables)) if hasattr(module, "claims") else [])
