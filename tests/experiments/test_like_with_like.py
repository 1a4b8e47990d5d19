"""Claims compare like with like: choices are made on other trials, and what is estimated is resampled."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from experiments.fedrep import compression_floats, fedrep_start, private_fedrep, private_fedrep_published
from experiments.others import altmin
from experiments.shortcut import shortcut_search
from linfed.statistics.findings import Verdict
from tests.helpers import findings

TRIALS = 20
SPREAD = np.exp(np.random.default_rng(0).normal(0.0, 0.02, TRIALS))

# --- compressed messages -------------------------------------------------------------------------------------


def sent(method, strength, judged, tuned):
    sizes = {"n_clients": 30, "dim": 50, "rank": 3, "target": 1e-3, "trials": TRIALS}
    columns = {"floats": judged * SPREAD, "tuning_floats": tuned * SPREAD}
    return sizes | {"method": method, "strength": strength} | columns


def compressed(method, *rows):
    plain = sent(compression_floats.PLAIN, 1.0, 100.0, 100.0)
    pair = sent(compression_floats.PAIR, 1.0, 70.0, 70.0)
    return lf.Table([plain, pair, *(sent(method, *row) for row in rows)])


def test_a_strength_is_chosen_on_other_trials():
    """The judged trials alone would choose 0.25, with fewer floats than two vectors."""
    rows = (0.5, 200.0, 90.0), (0.25, 60.0, 95.0), (0.1, 80.0, 80.0), (0.05, np.inf, np.inf)
    table = compressed(compression_floats.OWN_MASKS, *rows)
    found = {one.claim: one for one in findings(compression_floats, {"sent": table})}
    one = found["The two vectors a and w need fewer floats than own masks"]
    assert one.verdict is Verdict.SUPPORTED
    assert one.estimate == pytest.approx(70 / 80)
    assert one.detail == "a and w against own masks, 0.1"
    assert not one.note


@pytest.mark.parametrize(
    ("method", "strengths", "marked"),
    [
        (compression_floats.OWN_MASKS, (0.1, 0.25, 0.5), True),
        (compression_floats.OWN_MASKS, (1.0 / 150, 0.25, 0.5), False),
        (compression_floats.ONE_MASK, (0.9, 0.5), True),
        (compression_floats.QUANTISED, (1.0, 4.0), False),
        (compression_floats.QUANTISED, (8.0, 4.0), True),
    ],
)
def test_the_best_strength_at_an_edge_is_marked_unless_there_is_none_beyond(method, strengths, marked):
    table = compressed(method, *((strength, 50.0 + at, 50.0 + at) for at, strength in enumerate(strengths)))
    *_, found = (one for one in findings(compression_floats, {"sent": table}) if method in one.detail)
    assert found.note == f"the best strength of {method} lies at the edge of the grid" * marked


@pytest.mark.long
def test_all_runs_reach_the_target():
    """The number of rounds follows from the prediction, also with few entries."""
    for strength in (0.5, 0.02):
        found = compression_floats.Sent(strength=strength, trials=3, tuning_trials=2).run()
        assert found["floats"].shape == (3,)
        assert found["tuning_floats"].shape == (2,)
        assert np.isfinite([*found["floats"], *found["tuning_floats"]]).all()


# --- alternating minimisation --------------------------------------------------------------------------------


@pytest.mark.long
def test_fedrep_has_the_step_with_the_fewest_rounds_to_the_judged_distance():
    """With 1.4 the distance is reached first, but not kept: B oscillates around the minimum."""
    cell = altmin.Course(method=altmin.FEDREP, noise_std=1.0, steps=(0.7, 1.0, 1.4), n_rounds=15, trials=12)
    found = cell.run()
    assert found["step_size"] == 1.0
    assert found["at_grid_edge"] == ""
    mine = replace(cell, method=altmin.ALTMIN).run()["distance"].values
    needed, own = (altmin.rounds_to(one, mine, 1.0) for one in (found["distance"].values, mine))
    assert np.median(needed) <= 2 * np.median(own)


# --- the initialisation --------------------------------------------------------------------------------------


def starts(initial, spread):
    """Return rounds 10 log(tangent) + 60 from all starts, the given ones with another spread over trials."""
    rng = np.random.default_rng(1)

    def needed(delta, spread):
        return (60 + 10 * np.log(fedrep_start.tangent(np.asarray(delta)))) * np.exp(rng.normal(0.0, spread, TRIALS))

    row = {"n_samples": 12, "noise_std": 0.0, "n_rounds": 300, "upload": 0.0}
    given = {"method": fedrep_start.GIVEN}
    rows = [
        given | {"delta": delta, "initial": np.full(TRIALS, delta), "needed": needed(delta, spread)}
        for delta in (0.1, 0.5, 0.9)
    ]
    rows.append({"method": fedrep_start.AVERAGES, "delta": np.nan, "initial": initial, "needed": needed(initial, 0.0)})
    return lf.Table([row | one for one in rows])


def at_distance(*given):
    *_, found = findings(fedrep_start, {"runs": starts(*given)})
    assert found.claim.startswith("The rounds from an estimate equal")
    return found


@pytest.mark.long
def test_the_error_of_the_rounds_from_given_distances_is_part_of_the_interval():
    found = [at_distance(np.full(TRIALS, 0.5), spread) for spread in (0.001, 0.3)]
    assert found[0].high < 1.01
    assert found[1].high > 1.1


def test_estimates_outside_the_given_distances_are_left_out_and_counted():
    far = np.append(np.full(12, 0.5), np.full(8, 0.999))  # 60 + 31 rounds, against 60 + 7 at 0.9
    found = at_distance(far, 0.001)
    assert found.estimate < 1.01
    assert found.note == "8 estimates outside the given distances are left out"
    assert max(fedrep_start.Point.deltas) > 0.9999  # random subspaces are inside


# --- shortcuts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fit", "verdict"), [(2.9, Verdict.SUPPORTED), (3.5, Verdict.NOT_SUPPORTED)])
def test_trials_without_a_gain_of_the_shortcuts_count_by_the_fit(fit, verdict):
    errors = {shortcut_search.OWN: 3.0, shortcut_search.FEDREP: 3.0, shortcut_search.FIT: fit}
    row = {"family": shortcut_search.GRADIENT, "size": 1.0, "n_samples": 10, "step_size": 0.1, "value": 0.1}
    rows = [
        row | {"method": name, "error": np.full(TRIALS, one), "dist": np.ones(TRIALS)} for name, one in errors.items()
    ]
    *_, found = findings(shortcut_search, {"search": lf.Table(rows)})
    assert found.claim.startswith("One personal fit at FedRep's B keeps")
    assert found.verdict is verdict


# --- privacy -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.SUPPORTED), (1.3, Verdict.NOT_SUPPORTED)])
def test_the_radius_and_its_prediction_are_means_over_trials(factor, verdict):
    """One trial in four is far from B*, so the median is far below the mean."""
    square = np.where(np.arange(2000) % 4 == 0, 4.0, 0.5)
    row = {"panel": private_fedrep.PUBLISHED, "rule": private_fedrep.CONSTANT, "start": 0.7, "epsilon": 1.0}
    row |= {"n_rounds": 5, "square": square, "predicted": np.full(2000, square.mean() / factor**2)}
    (found,) = (one for one in findings(private_fedrep, {"rounds": lf.Table([row])}) if "predicted one" in one.claim)
    assert found.estimate == pytest.approx(factor)
    assert found.verdict is verdict
    assert found.detail == "T = 5, epsilon 1"


def test_the_radius_of_the_intended_start_is_that_of_the_same_trial():
    start = np.exp(np.random.default_rng(2).normal(0.0, 0.5, TRIALS))
    path = lf.LabeledArray(np.stack([start, 2 * start], axis=1), round=[0, 1])
    ends = lf.LabeledArray(np.stack([np.ones(TRIALS), 0.8 * start], axis=1), round=[0, 1])
    intended = {"epsilon": 1.0, "noisy": True, "start": private_fedrep_published.INTENDED, "radius": path}
    tuned = {"epsilon": 1.0, "noisy": True, "start": private_fedrep_published.TUNED_CLIP, "radius": ends}
    tables = {"replay": lf.Table([intended]), "tuned": lf.Table([tuned | {"chosen_clip": 3.0, "chosen_rounds": 8}])}
    *_, found = findings(private_fedrep_published, tables)
    assert found.claim.startswith("The tuned run ends nearer to B* than the intended start")
    assert (found.estimate, found.low, found.high) == pytest.approx((0.8, 0.8, 0.8))


def test_a_predicted_risk_is_not_called_measured():
    (one,) = (claim for claim in private_fedrep_published.CLAIMS if "risk" in claim.sentence)
    assert "predicted risk" in one.sentence
    assert "formulas" in one.statistic.words
