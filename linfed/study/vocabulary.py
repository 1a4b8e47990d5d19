"""What an experiment is written with, beside `linfed` itself: tables and figures, judges, intervals, notes."""

from linfed.figures.style import COLUMN_WIDTH, PAGE_WIDTH, draw_level, label
from linfed.statistics.findings import (
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    joined,
    judge,
    judge_exponent,
    judge_failures,
    judge_identity,
    quoted,
    share,
    smaller,
)
from linfed.statistics.intervals import (
    Measured,
    binomial_share,
    bootstrap_interval,
    clustered_share,
    first_round_below,
    median_interval,
    probability_smaller,
    share_smaller,
    smallest_constant,
    worst,
)
from linfed.statistics.lines import line_counts, line_findings
from linfed.statistics.quantiles import quantiles
from linfed.study.notes import edges, lost
from linfed.study.pages import Figures, bars, heat_map, level, place, steps
from linfed.study.run import Tables

__all__ = [
    "COLUMN_WIDTH",
    "OWN_PREDICTION",
    "OWN_THRESHOLD",
    "PAGE_WIDTH",
    "Figures",
    "Finding",
    "Measured",
    "Tables",
    "bars",
    "binomial_share",
    "bootstrap_interval",
    "clustered_share",
    "draw_level",
    "edges",
    "first_round_below",
    "heat_map",
    "joined",
    "judge",
    "judge_exponent",
    "judge_failures",
    "judge_identity",
    "label",
    "level",
    "line_counts",
    "line_findings",
    "lost",
    "median_interval",
    "place",
    "probability_smaller",
    "quantiles",
    "quoted",
    "share",
    "share_smaller",
    "smaller",
    "smallest_constant",
    "steps",
    "worst",
]
