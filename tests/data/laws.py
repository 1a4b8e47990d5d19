"""Laws of engines against that of explicit rows: how they are compared, and laws that are wrong on purpose.

Every (setting, engine, round, statistic) is one two-sample Kolmogorov-Smirnov comparison of an engine's trials with the
explicit ones, from other seeds. A module that compares holds each p-value against `FAMILY` over the number of its
comparisons (Bonferroni). Seeds are fixed, so a verdict is the same at every run. Laws that are wrong on purpose have to
be rejected at the same level.
"""

import numpy as np
from scipy import stats

from linfed.data import chain, compressed
from linfed.data.projected.source import ProjectedSource

TRIALS = 350
SEEDS = {"explicit": 1, "compressed": 2, "projected": 3, "chain": 4}
FAMILY = 1e-3


def p_values(one, other):
    """Return the p-value of each comparison; a statistic that does not vary must have the same value in both."""
    assert set(one) <= set(other)
    out = {}
    for key, values in one.items():
        wanted = other[key]
        assert np.isfinite(values).all()
        if np.ptp(wanted) < 1e-9:
            assert np.abs(values - wanted[0]).max() < 1e-9, key
        else:
            out[key] = float(stats.ks_2samp(values, wanted, method="asymp").pvalue)
    return out


def assert_same_law(one, other, level):
    """Assert that no comparison rejects, and that more than one was made; return them."""
    found = p_values(one, other)
    assert len(found) > 1
    worst = min(found, key=found.get)
    assert found[worst] > level, f"{worst}: p = {found[worst]:.2g} <= {level:.2g}"
    return found


# --- wrong laws ----------------------------------------------------------------------------------------------


def without_complement(monkeypatch):
    for source in (ProjectedSource, chain.ChainSource):
        monkeypatch.setattr(source, "outer_noise", lambda self, P: np.zeros((*P.shape[:2], self.columns)))


def complement_times(factor):
    def patch(monkeypatch):
        for source in (ProjectedSource, chain.ChainSource):
            right = source.outer_noise
            monkeypatch.setattr(source, "outer_noise", lambda self, P, right=right: factor * right(self, P))

    return patch


def two_degrees_off(monkeypatch):
    right = compressed.triangular_rows
    monkeypatch.setattr(compressed, "triangular_rows", lambda m, *rest: right(m + 2, *rest))


def one_wishart_degree_off(monkeypatch):
    right = chain.fill_wishart
    monkeypatch.setattr(chain, "fill_wishart", lambda shapes, *rest: right(shapes + 0.5, *rest))
