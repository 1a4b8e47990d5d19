"""What `lf.predict` says of the averaging family, against runs."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf

PROBLEM = lf.SharedRepresentation(n_clients=6, dim=4, rank=2, noise_std=0.3, design=lf.Gaussian(covariance=0.5))
STEPS = {"step_size": 0.4, "local_steps": 4, "server_step_size": 0.9}
FAMILY = {
    "FedAvg": lf.FedAvg(**STEPS),
    "FedProx": lf.FedProx(mu=0.5, **STEPS),
    "SCAFFOLD": lf.SCAFFOLD(**STEPS),
    "FedVARP": lf.FedVARP(**STEPS),
    "ClusterFedVARP": lf.ClusterFedVARP(clusters=6, **STEPS),
    "FedSCAVAR": lf.FedSCAVAR(clusters=6, mu=0.3, **STEPS),
}
DATA = lf.FixedSamples(12).draw(PROBLEM)


def of_one_truth():
    """Return the problem of the data's truth, in every trial."""
    truth = PROBLEM.truth(0, [0])
    return lf.GivenTruth(B=truth.B[0], W=truth.W[0], noise_std=0.3, design=PROBLEM.design)


@pytest.mark.parametrize("participation", [1.0, 3])
@pytest.mark.parametrize("name", FAMILY)
def test_runs_end_at_the_floor(name, participation):
    """Where a part takes part, of FedAvg on average over 3,000 trials on one data set, within 4 standard errors."""
    wandering = participation == 3 and name in ("FedAvg", "FedProx")
    rounds, trials = (60, 3000) if wandering else (900, 1)
    given = {"data": lf.GivenSamples(DATA.X[0], DATA.y[0]), "rounds": rounds, "trials": trials}
    floor, alone = (
        float(lf.predict(FAMILY[name], of_one_truth(), data=given["data"], rounds=1, participation=some).floor)
        for some in (participation, 1.0)
    )
    ends = lf.simulate(FAMILY[name], of_one_truth(), participation=participation, metrics=["risk"], **given)
    ends = ends.metrics["risk"][:, -1]
    error = ends.std() / np.sqrt(len(ends)) if wandering else 2.5e-11
    assert abs(ends.mean() - floor) < 4 * error
    assert (abs(ends.mean() - alone) > 8 * error) == wandering  # the mean alone would not do


@pytest.mark.parametrize("name", ["FedAvg", "FedProx", "SCAFFOLD", "FedSCAVAR"])
def test_the_edge_is_where_the_rate_is_one_and_the_best_step_has_the_least(name):
    def at(step_size):
        algorithm = replace(FAMILY[name], step_size=step_size)
        return lf.predict(algorithm, PROBLEM, data=DATA, rounds=1, participation=3)

    edge, best = float(at(0.1).stability_edge), float(at(0.1).best_step)
    assert float(at(0.1).rate) < 1
    assert float(at(edge).rate) == pytest.approx(1.0, abs=1e-9)
    assert float(at(1.01 * edge).rate) > 1 > float(at(0.99 * edge).rate)
    rates = [float(at(share * best).rate) for share in (0.9, 1.0, 1.1)]
    assert min(rates) == rates[1] < 1


@pytest.mark.parametrize("name", ["FedAvg", "FedProx", "SCAFFOLD", "FedSCAVAR"])
def test_runs_fall_by_the_rate_in_the_end(name):
    algorithm = replace(FAMILY[name], step_size=0.05)
    ends = [lf.simulate(algorithm, PROBLEM, data=DATA, rounds=r).final.S[0, 0] for r in (4000, 150, 151)]
    rate = float(lf.predict(algorithm, PROBLEM, data=DATA, rounds=1).rate)
    fall = np.linalg.norm(ends[2] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
    assert fall == pytest.approx(rate, rel=1e-3)
