"""The claims of `experiments.flute.flute_divergence`, on tables that are made up."""

import numpy as np
import pytest

import linfed as lf
import linfed.claims as c
from experiments.flute import flute_divergence
from linfed.statistics.findings import Verdict


def test_divergence_is_judged_on_both_sides_of_each_data_sets_own_threshold():
    excess, threshold = np.linspace(-0.1, 0.3, 9), np.linspace(0.0, 0.2, 200).reshape(2, 100)
    above = excess > threshold[..., None]

    def judged(start, diverged, outward=above):
        rows = [
            {
                "start": start,
                "threshold": threshold[m],
                "step_edge": 0.4,
                "unbounded": lf.LabeledArray(above[m], excess=excess),
                "diverged": lf.LabeledArray(diverged[m], excess=excess),
                "outward": lf.LabeledArray(outward[m], excess=excess),
                "gradient": lf.LabeledArray(np.ones_like(excess) * above[m], excess=excess),
                "limit": lf.LabeledArray(np.zeros_like(excess) * above[m], excess=excess),
            }
            for m in (0, 1)
        ]
        claims = [one for one in flute_divergence.CLAIMS if one.table == "phase" and "any common" not in one.sentence]
        return c.judged(claims, {"phase": lf.Table(rows)})

    both, near, whole, needed, enough = judged("paper", above)
    for finding, count in ((both, 1800), (whole, 200), (needed, above.sum()), (enough, (~above).sum())):
        assert finding.verdict is Verdict.SUPPORTED
        assert finding.detail.startswith(f"{count} of {count}")
    assert (needed.note, enough.note) == ("", "")
    close = abs(excess - threshold[..., None]) < flute_divergence.MARGIN
    assert near.detail == f"{close.sum()} of {close.sum()} in {close.any(axis=-1).sum()} clusters"
    # A run that diverges at one point below its threshold, in each data set.
    wrong = above.copy()
    wrong[..., 0] = True
    both, near, whole, needed, enough = judged("paper", wrong)
    assert both.estimate == pytest.approx(8 / 9)
    assert (near.estimate, whole.estimate, needed.estimate) == (1.0, 0.0, 1.0)
    assert enough.verdict is Verdict.NOT_SUPPORTED
    assert enough.note.endswith("0 of the 200 lie above the step's limit at the population's minimum")
    (outward, *_) = judged("far", above, outward=~above)[5:]
    assert (outward.setting, outward.estimate) == ("far start", 0.0)
