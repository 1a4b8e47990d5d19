"""Claims as declarations: sentences with their sources, the statistics that judge them, and the required ranges.

An experiment lists its claims in a table ``CLAIMS``, which `linfed reproduce` judges on the experiment's tables. The
table can be read without a run: ``linfed show NAME --claims`` prints it.
"""

from linfed.claims.caveats import diverged_note, edge_note, unsettled_note
from linfed.claims.claim import Claim, claims_text, judged
from linfed.claims.ranges import MOST, Range, above, at_least, at_most, below, near, within
from linfed.claims.rows import each, each_row, ends, largest, of, only, smallest, sorted_by, successive, whole
from linfed.claims.statistic import (
    Measurement,
    Statistic,
    compared,
    exponent,
    failures,
    identity,
    measured,
    power_law,
    ratio,
    share,
    smaller,
    smaller_after,
    worst,
)
from linfed.statistics.findings import (
    OWN_CONJECTURE,
    OWN_PREDICTION,
    OWN_THRESHOLD,
    Finding,
    Hypothesis,
    Source,
    cite,
    join_notes,
    reading,
)

__all__ = [
    "MOST",
    "OWN_CONJECTURE",
    "OWN_PREDICTION",
    "OWN_THRESHOLD",
    "Claim",
    "Finding",
    "Hypothesis",
    "Measurement",
    "Range",
    "Source",
    "Statistic",
    "above",
    "at_least",
    "at_most",
    "below",
    "cite",
    "claims_text",
    "compared",
    "diverged_note",
    "each",
    "each_row",
    "edge_note",
    "ends",
    "exponent",
    "failures",
    "identity",
    "join_notes",
    "judged",
    "largest",
    "measured",
    "near",
    "of",
    "only",
    "power_law",
    "ratio",
    "reading",
    "share",
    "smaller",
    "smaller_after",
    "smallest",
    "sorted_by",
    "successive",
    "unsettled_note",
    "whole",
    "within",
    "worst",
]
