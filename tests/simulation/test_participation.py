"""Client sampling: a share, a count or given clients."""

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_same, normal
from tests.simulation.watched import Watched

PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2, noise_std=0.1)


WIDE = lf.SharedRepresentation(n_clients=40, dim=40, rank=2, noise_std=0.1, design="cube")


EXACT = lf.FedRep(rank=2, step_size=0.3)


CASES = {
    "fresh, small rounds": (PROBLEM, lf.FreshSamples(5), EXACT),
    "fresh, large rounds": (WIDE, lf.FreshSamples(60), EXACT),
    "fixed": (PROBLEM, lf.FixedSamples(5), EXACT),
    "given": (PROBLEM, lf.GivenSamples(normal(8, 5, 6), normal(8, 5)), EXACT),
    "local only": (PROBLEM, lf.FreshSamples(9), lf.LocalOnly()),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("participation", "count"), [(0.4, {8: 3, 40: 16}), (1, {8: 1, 40: 1}), (1.0, {8: 8, 40: 40})])
def test_a_run_equals_the_run_with_the_clients_that_it_drew(case, participation, count):
    """In any order, for all trials or for one of them."""
    problem, data, algorithm = CASES[case]
    arguments = {"data": data, "rounds": 4, "trials": 3, "seed": 3}
    watched = Watched(inner=algorithm)
    lf.simulate(watched, problem, participation=participation, metrics=["risk"], **arguments)
    drawn = np.stack(watched.active, axis=1)
    assert drawn.shape == (3, 4, count[problem.n_clients])
    result = lf.simulate(algorithm, problem, participation=participation, **arguments)
    assert result.participants == drawn.shape[-1]
    assert_same(lf.simulate(algorithm, problem, participation=drawn[..., ::-1], **arguments), result)
    one = lf.simulate(algorithm, problem, participation=drawn[0].tolist(), **{**arguments, "trials": 1})
    assert_same(one, result, slice(None), slice(1))


def test_clients_that_stay_away_keep_their_heads():
    result = lf.simulate(EXACT, PROBLEM, data=lf.FixedSamples(5), participation=[[1, 5], [5, 2]], rounds=2, trials=3)
    assert result.final.W.any(axis=-1).tolist() == [[client in (1, 2, 5) for client in range(8)]] * 3
