"""Differences of means, and panels, for the experiments on classification in the FLUTE paper's section 7.2."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import PanelGrid

from ._classes import DIGITS

PIXELS = 64
Asked = partial(c.Claim, over=c.each("data", "partition", "rank"), setting="{data}: k = {rank}, {partition}")
"""A claim on every setting."""


def difference(first: Any, second: Any, *, paired: bool = True, detail: str = "", note: str = "") -> c.Measurement:
    """Return the mean difference with Student's (or Welch's) 95 % interval; without one, also the reason."""
    if paired:
        gaps = (first - second)[~np.isnan(first - second)]
        if len(gaps) < 2 or np.ptp(gaps) == 0.0:
            tied = f"all {len(gaps)} trials tie" if not gaps.any() else "too few trials, or all with one difference"
            return c.Measurement((np.nan, -np.inf, np.inf), detail, note, tied if len(gaps) else "no trial is left")
        estimate = np.mean(gaps)
        found = stats.ttest_1samp(gaps, 0.0).confidence_interval()
    else:
        first, second = (values[~np.isnan(values)] for values in (first, second))
        if min(len(first), len(second)) < 2:
            return c.Measurement((np.nan, -np.inf, np.inf), detail, note, "no trial is left")
        estimate = first.mean() - second.mean()
        found = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    return c.Measurement((float(estimate), float(found.low), float(found.high)), detail, note)


def ends_of(runs: lf.Table) -> lf.Table:
    """Return a data set's runs with the fewest and the most clients; digits have the dimension of their pixels."""
    if runs.unique("data") == [DIGITS]:
        runs = runs.assign(dim=lambda _: PIXELS)
    clients = runs.unique("n_clients")
    return runs.select(n_clients=[min(clients), max(clients)])


def along_rounds(runs: lf.Table, row: str | int, lines: int) -> AbstractContextManager[PanelGrid]:
    """Return a grid of panels with a column for each partition and `lines` rows."""
    return lf.panels(runs, column="partition", row=row, title="{}", height=0.9 + 1.6 * lines, sharey="row")


def medians(runs: lf.Table) -> str:
    """Return the legend title for curves."""
    return f"median and 10-90 % of {runs.rows[0]['trials']} trials"
