"""FedRolex's cycle: where runs go round, and how fast they get there."""

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line
from tests.worlds import draw_world

D = 4
STEPS = {"step_size": 0.1, "local_steps": 3}
SHARES = {"half": 0.5, "one each": [0.3, 1.0, 0.5, 0.75, 0.25, 0.5], "all of it": 1.0}


@pytest.fixture(scope="module")
def world():
    return draw_world([9, 14, 11, 20, 8, 10], D, 2, noise=0.3, seed=2)


def by_loops(world, options, d=D):
    """Return the function that is a round of the loops, and the matrix of d rounds."""

    def after(theta, number):
        loop = ref.Family("FedRolex", theta, world.X, world.y, **options)
        loop.round(number, list(range(world.n)))
        return loop.vector

    whole = np.eye(d)
    for number in range(1, d + 1):
        offset = after(np.zeros(d), number)
        whole = np.array([after(row, number) - offset for row in np.eye(d)]).T @ whole
    return after, whole


@pytest.mark.parametrize(
    ("aggregation", "weights"), [("published", "uniform"), ("published", "samples"), ("zero-filled", "samples")]
)
@pytest.mark.parametrize("share", SHARES)
def test_a_round_of_the_loop_leads_from_point_to_point_of_the_cycle(world, share, aggregation, weights):
    A, b = world.data().normal_equations()
    options = {"model_share": SHARES[share], "aggregation": aggregation, "server_step_size": 0.9, **STEPS}
    counts = [len(y) for y in world.y] if weights == "samples" else None
    cycle, rate = lf.theory.fedrolex_cycle(A, b, weights=counts, **options)
    after, whole = by_loops(world, options | {"weights": weights})
    for number in range(1, D + 1):
        np.testing.assert_allclose(after(cycle[number - 1], number), cycle[number % D], rtol=0, atol=1e-12)
    assert rate == pytest.approx(np.abs(np.linalg.eigvals(whole)).max() ** (1 / D), rel=1e-9)


def test_coordinates_that_no_sample_has_stay_at_0():
    world, options = draw_world([1, 1], 5, 2, noise=0.3, seed=0), {"step_size": 0.4, "local_steps": 3}
    for X in world.X:
        X[:, 3:] = 0.0
    options["model_share"] = [0.3, 1.0]
    cycle, rate = lf.theory.fedrolex_cycle(*world.data().normal_equations(), **options)
    after, whole = by_loops(world, options, 5)
    for number in range(1, 6):
        np.testing.assert_allclose(after(cycle[number - 1], number), cycle[number % 5], rtol=0, atol=1e-12)
    np.testing.assert_allclose(cycle[:, 3:], 0.0, atol=1e-12)
    values = np.abs(np.linalg.eigvals(whole))
    assert rate == pytest.approx(values[values < 1 - 1e-9].max() ** (1 / 5), rel=1e-9)


def test_the_defaults_of_the_cycle(world):
    A, b = world.data().normal_equations()
    given = {"step_size": 0.1, "model_share": 0.5}
    every = {"local_steps": 1, "server_step_size": 1.0, "weights": np.full(6, 0.3), "aggregation": "published"}
    (one, rate), (other, same) = (lf.theory.fedrolex_cycle(A, b, **given, **more) for more in ({}, every))
    np.testing.assert_allclose(one, other, rtol=1e-12)
    assert rate == pytest.approx(same, rel=1e-12)


def test_the_whole_model_is_fedavg(world):
    A, b = world.data().normal_equations()
    cycle, rate = lf.theory.fedrolex_cycle(A, b, model_share=1.0, **STEPS)
    np.testing.assert_allclose(cycle, np.tile(lf.theory.fedavg_fixed_point(A, b, **STEPS), (D, 1)), rtol=0, atol=1e-13)
    assert rate == pytest.approx(float(lf.theory.fedavg_rate(A, **STEPS)), rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [7, 8])
def test_a_prediction_speaks_of_the_last_rounds_window(world, rounds):
    """As the risk of a run with as many rounds more as there are in hundreds of cycles."""
    algorithm = lf.FedRolex(model_share=0.5, **STEPS)
    floor = lf.predict(algorithm, world.problem(), data=world.data(), n_rounds=rounds).floor
    run = lf.simulate(algorithm, world.problem(), data=world.data(), n_rounds=200 * D + rounds, metrics=["risk"])
    assert float(floor) == pytest.approx(run.metrics["risk"][0, -1], rel=1e-10)


@pytest.mark.long
def test_the_mean_over_participants_has_the_same_cycle(world):
    """Within 4 standard errors in every coordinate, over 1,500 trials; the farthest of its points does not do."""
    A, b = world.data().normal_equations()
    cycle, _ = lf.theory.fedrolex_cycle(A, b, model_share=0.5, **STEPS)
    algorithm = lf.FedRolex(model_share=0.5, **STEPS)
    run = {"data": world.data(), "participation": 5, "trials": 1500, "metrics": ["risk"]}
    ends = lf.simulate(algorithm, world.problem(), n_rounds=81, **run).final.S[:, 0]
    off = np.abs(ends.mean(axis=0) - cycle) / (ends.std(axis=0) / np.sqrt(len(ends)))
    assert off[81 % D].max() < 4
    assert off.max() > 4


def test_a_step_within_rounding_error_has_no_cycle_and_a_small_one_has(world):
    A, b = world.data().normal_equations()
    for step in (1e-17, 1e-15):
        with pytest.raises(ValueError, match=rf"step_size = {step} is too small"):
            lf.theory.fedrolex_cycle(A, b, model_share=0.5, step_size=step)
    small, rate = lf.theory.fedrolex_cycle(A, b, model_share=0.5, step_size=1e-9)
    nearly, _ = lf.theory.fedrolex_cycle(A, b, model_share=0.5, step_size=1e-7)
    assert rate < 1
    np.testing.assert_allclose(small, nearly, rtol=0, atol=1e-5)
    one = lf.predict(lf.FedRolex(model_share=0.5, step_size=1e-17), world.problem(), data=world.data(), n_rounds=2)
    for name in ("floor", "rate"):
        assert_one_line(lambda name=name: getattr(one, name), ["step_size = 1e-17", "too small"], lf.NoPredictionError)


def test_mistakes_are_one_line(world):
    A, b = world.data().normal_equations()
    cycle = lf.theory.fedrolex_cycle
    assert_one_line(lambda: cycle(A, b, model_share=1.5, **STEPS), ["model_share", "1.5"])
    assert_one_line(lambda: cycle(A, b, model_share=0.5, aggregation="mean", **STEPS), ["aggregation", "'published'"])
    assert_one_line(lambda: cycle(0 * A, 0 * b, model_share=0.5, **STEPS), ["A is 0"])
