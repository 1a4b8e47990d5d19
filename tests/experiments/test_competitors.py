"""Claims on competitors: a method is compared with the best other one; one that cannot win is a note."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
import linfed.claims as c
from experiments.fedrep import fedrep_state_evolution, private_fedrep
from experiments.flute import flute_fig1, flute_fig3
from experiments.others import heterogeneity
from linfed.claims import judged
from linfed.statistics.findings import Verdict

TRIALS = 20
SPREAD = np.exp(np.random.default_rng(0).normal(0.0, 0.1, (4, TRIALS)))


@pytest.mark.parametrize(
    ("fedrep", "other", "verdict"),
    [(1.0, "Ditto", Verdict.SUPPORTED), (1.9, "Ditto", Verdict.SUPPORTED), (4.0, "Ditto", Verdict.NOT_SUPPORTED)],
)
def test_fedrep_is_compared_with_the_best_other_method(fedrep, other, verdict):
    """Where it is the best, the ratio is below 1 and has an interval; the Oracle takes no part."""
    levels = {"FedRep": fedrep, "Ditto": 2.0, "FLUTE": 3.0, "Oracle": 0.1}
    groups = {"FedRep": heterogeneity.SHARED, "FLUTE": heterogeneity.SHARED, "Ditto": heterogeneity.DIRECT}
    rows = [
        {"method": name, "group": groups.get(name, "reference"), "excess": level * spread}
        for (name, level), spread in zip(levels.items(), SPREAD, strict=True)
    ]
    table = lf.Table([row | {"heterogeneity": 1.0} for row in rows])
    claims = [one for one in heterogeneity.CLAIMS if one.table == "heads" and "all methods here" in one.sentence]
    (found,) = judged(claims, {"heads": table})
    ratio = levels["FedRep"] * SPREAD[0] / (2.0 * SPREAD[1])
    assert found.estimate == pytest.approx(np.sort(ratio)[TRIALS // 2 - 1])
    assert found.low < found.estimate < found.high
    assert (found.verdict, found.detail) == (verdict, f"best other: {other}")


@pytest.mark.parametrize("predicted_best", [True, False])
def test_a_number_of_rounds_is_compared_with_the_best_other_one(predicted_best):
    rows = []
    for rounds, radius, spread in zip((10, 20, 40), (1.3, 1.0, 1.2), SPREAD[:3], strict=True):
        square = radius**2 * spread
        predicted = np.full(TRIALS, abs(rounds - (20 if predicted_best else 40)) + 1.0)
        rows.append({"epsilon": 1.0, "n_rounds": rounds, "square": square, "predicted": predicted})
    statistic = private_fedrep.over_best(private_fedrep.PREDICTED)
    claim = c.Claim("As good as the best one", c.OWN_PREDICTION, statistic, c.at_most(1.05))
    (found,) = c.judged([claim], {"rounds": lf.Table(rows)})
    radii = np.sqrt([row["square"].mean() for row in rows])
    wanted = radii[1] / radii[2] if predicted_best else radii[2] / radii[1]
    assert found.estimate == pytest.approx(wanted)
    assert found.low < found.estimate < found.high
    assert found.verdict is (Verdict.SUPPORTED if predicted_best else Verdict.NOT_SUPPORTED)


def test_a_prediction_that_ignores_the_regime_is_a_remark():
    """Its factor of a thousand must not count as support."""
    rounds = np.arange(7)
    curve = 0.9 * 0.8**rounds
    distance = curve * np.exp(np.random.default_rng(1).normal(0.0, 0.01, (50, 1)))
    along = {"distance": distance, "predicted": curve, "first": 1.2 * curve, "rival_predicted": 1e-3 * curve}
    sizes = {"regime": "label noise", "rival": fedrep_state_evolution.NOISELESS, "trials": 50}
    sizes |= {"dim": 5, "rank": 2, "n_samples": 9, "noise_std": 0.5, "n_rounds": 30}
    row = sizes | {name: lf.LabeledArray(values, round=rounds) for name, values in along.items()}
    found = c.judged(fedrep_state_evolution.CLAIMS, {"curves": lf.Table([row])})
    assert [one.claim for one in found] == [
        "The median run is as predicted",
        "A prediction without fluctuations is less accurate",
    ]
    assert found[0].note.startswith("as if labels had no noise, the predicted median is off by a factor of 1e+03")
    assert found[1].estimate == pytest.approx(1.2, rel=0.02)


@pytest.mark.filterwarnings("ignore::linfed.errors.GridEdgeWarning")  # one step is tried
@pytest.mark.parametrize("experiment", [flute_fig1, flute_fig3])
def test_each_speed_of_flute_and_fedrep_has_one_other_option(experiment):
    cell = replace(experiment.cells(True)["runs"][0], step_sizes=(0.05,), tuning_trials=2, tuning_rounds=2)
    found = {name: cell.algorithms(name) for name in ("FLUTE", "FedRep", "FedRep (RI)")}
    speeds = ("tuned", "0.03", "0.03, factor 2", "0.03, summed")
    assert {tuple(one) for one in found.values()} == {speeds}
    for name, one in found.items():
        steps = [one[speed][0].step_size for speed in speeds]
        assert steps == [0.05, 0.03, 0.03, 0.03], name
    assert [found["FLUTE"][speed][0].gradient_factor for speed in speeds] == [1, 1, 2, 1]
    for name in ("FedRep", "FedRep (RI)"):
        assert [found[name][speed][0].aggregate for speed in speeds] == ["mean", "mean", "mean", "sum"]
