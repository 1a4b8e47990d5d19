"""The experiment on the averaging family: its words say what it measures."""

import numpy as np
import pytest

from tests.experiments.judged import module

FAMILY = module("averaging-family")


def test_a_final_distance_is_over_the_second_half_of_the_rounds_and_says_so():
    one = FAMILY.Family(n_rounds=20, trials=1).trial(0)
    assert one["end"] == pytest.approx(np.median(one["to_best"][10:]))
    assert one["settled"] == pytest.approx(np.mean(one["to_own"][10:] ** 2))
    words = {claim.statistic.words for claim in FAMILY.CLAIMS}
    late = {text for text in words if "over the second half of the rounds" in text}
    assert {text for text in late if "median distance" in text} | {
        text for text in late if "mean square" in text
    } == late
    assert words - late == {FAMILY.FEWER}
