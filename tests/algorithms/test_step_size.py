"""Step sizes and ridges by round: equal to constant ones, taken round by round, kept as values, and refused."""

import dataclasses
import math
import pickle

import numpy as np
import pytest

import linfed as lf
from linfed.algorithms.parts.step_size import Scheduled
from linfed.errors import UsageError
from linfed.numerics.streams import Stream, TrialRandom, generators
from linfed.reproduction.own_settings import check_cells, read_settings, with_settings
from linfed.system.description import describe
from tests.helpers import assert_same, rounds_of
from tests.worlds import LEARNERS, names, one_of_each

ROUNDS = 6
SETTING = {"n_rounds": ROUNDS, "trials": 2, "seed": 3, "participation": 0.5}
PROBLEM = lf.SharedRepresentation(n_clients=8, dim=7, rank=2, noise_std=0.3)
DATA = lf.FixedSamples(n_samples=5)
STEPS = (0.3, 0.2, 0.5, 0.1, 0.4, 0.05)


def falling(round_):
    """Return a step that falls with the rounds."""
    return 0.4 / round_


SCHEDULED = [
    name for name in names() if issubclass(LEARNERS[name].kind, Scheduled) and "step_size" not in LEARNERS[name].options
]


@pytest.mark.parametrize("name", ["FedRep", "FedAvg"])
def test_constant_schedules_are_the_constant_step_bit_for_bit(name):
    """Of the others each round takes its own step, as the next test has it."""
    algorithm = LEARNERS[name].make()
    step = algorithm.step_size
    plain = lf.simulate(algorithm, PROBLEM, data=DATA, **SETTING)
    for steps in ([step] * ROUNDS, lambda round_: np.float64(step)):
        run = lf.simulate(dataclasses.replace(algorithm, step_size=steps), PROBLEM, data=DATA, **SETTING)
        assert run.algorithm.step_size == (step,) * ROUNDS
        assert_same(run, plain)


@pytest.mark.parametrize("name", one_of_each(SCHEDULED))
def test_each_round_takes_its_own_step(name):
    """A step of a run is that of the algorithm at the round's number; what comes after the last takes the last."""
    algorithm, rng = LEARNERS[name].make(), TrialRandom(generators(3, Stream.ALGORITHM, range(2)))
    steps = tuple(algorithm.step_size * factor for factor in (1.0, 0.7, 1.5, 0.3, 1.2, 0.2))
    scheduled = dataclasses.replace(algorithm, step_size=lambda round_: steps[round_ - 1])
    for step in lf.iterate(scheduled, PROBLEM, data=DATA, **SETTING):
        if step.number == 0:
            continue
        one = dataclasses.replace(algorithm, step_size=steps[min(step.number, ROUNDS) - 1])
        wanted = (one.step if step.number <= ROUNDS else one.finish)(step.before, step.batch, rng)
        for key, array in wanted.arrays().items():
            np.testing.assert_array_equal(step.after.array(key), array)


def test_the_engines_that_are_exact_in_law_take_schedules():
    algorithm = lf.FedRep(rank=2, step_size=0.3, init=lf.AtDistance(0.5))
    for engine in ("projected", "chain"):
        runs = [
            lf.simulate(
                dataclasses.replace(algorithm, step_size=steps),
                PROBLEM,
                data=lf.FreshSamples(5),
                engine=engine,
                **SETTING,
            )
            for steps in (0.3, (0.3,) * ROUNDS, STEPS)
        ]
        plain, constant, other = (run.metrics["subspace_distance"] for run in runs)
        np.testing.assert_array_equal(plain, constant)
        np.testing.assert_array_equal(plain[:, 1], other[:, 1])  # the first step is the same
        assert np.all(plain[:, 2:] != other[:, 2:])


def test_schedules_are_values():
    """They compare, hash, travel to workers, and are told apart where a store or a file names them."""
    one, same = lf.FedRep(rank=2, step_size=np.array(STEPS)), lf.FedRep(rank=2, step_size=list(STEPS))
    other = lf.FedRep(rank=2, step_size=STEPS[::-1])
    assert one == same == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(same)
    assert one != other
    assert describe(one).text == describe(same).text != describe(other).text
    assert one.step_size == STEPS
    array = np.array(STEPS)
    kept = lf.FedRep(rank=2, step_size=array)
    array[0] = 7.0
    assert kept.step_size[0] == STEPS[0]


def test_a_function_is_kept_by_name_and_a_result_knows_its_numbers(tmp_path):
    algorithm = lf.FedRep(rank=2, step_size=falling, init="random")
    assert algorithm == lf.FedRep(rank=2, step_size=falling, init="random")
    described = describe(algorithm)
    assert "falling" in described.text
    assert falling in described.owners  # its code counts
    with pytest.raises(TypeError, match=r"store= cannot identify .*lambda"):
        _ = describe(lf.FedRep(rank=2, step_size=lambda round_: 0.4 / round_)).text
    result = lf.simulate(algorithm, PROBLEM, data=DATA, **SETTING)
    assert result.algorithm.step_size == tuple(falling(round_) for round_ in range(1, ROUNDS + 1))
    loaded = lf.Result.load(result.save(tmp_path / "run.npz"))
    assert loaded.algorithm == result.algorithm
    again = lf.simulate(loaded.algorithm, PROBLEM, data=DATA, **SETTING)
    np.testing.assert_array_equal(again.metrics["subspace_distance"], result.metrics["subspace_distance"])


def test_schedules_in_a_sweep_and_a_tuning(tmp_path):
    runs = lf.grid(
        lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.3, init="random"), problem=PROBLEM, data=DATA, **SETTING),
        **{"algorithm.step_size": [0.3, STEPS, falling]},
    )
    table = lf.sweep(runs, store=tmp_path / "store")
    assert table.unique("algorithm.step_size") == [0.3, STEPS, "falling"]
    for run, row in zip(runs, table, strict=True):
        whole = lf.simulate(run.algorithm, PROBLEM, data=DATA, **SETTING)
        np.testing.assert_array_equal(row["subspace_distance"], whole.metrics["subspace_distance"])
    again = lf.sweep(runs, store=tmp_path / "store")
    np.testing.assert_array_equal(again.select(step_size=STEPS)["risk"], table.select(step_size=STEPS)["risk"])
    found = lf.tune(
        runs[0].algorithm, PROBLEM, grid={"step_size": [(1e-3,) * ROUNDS, STEPS]}, data=DATA, n_rounds=ROUNDS, trials=3
    )
    assert found.algorithm.step_size == STEPS
    assert len(found.columns()["tried_step_size"].values) == 2


def test_a_schedule_is_told_in_a_line():
    result = lf.simulate(lf.FedRep(rank=2, step_size=lambda r: 1 / r, init="random"), PROBLEM, data=DATA, n_rounds=50)
    assert "step_size=<50 numbers, 1 to 0.02>" in str(result.summary())


def test_a_schedule_may_be_set_in_a_grid():
    run = lf.Run(algorithm=lf.FedRep(rank=2, step_size=0.1, init="random"), problem=PROBLEM, data=DATA, n_rounds=ROUNDS)
    lists = with_settings({"runs": [run]}, read_settings([f"algorithm.step_size={list(STEPS)}"]))
    check_cells(lists)
    assert lists["runs"][0].algorithm.step_size == STEPS
    with pytest.raises(UsageError, match="step_size has 2 values, expected one for each round: n_rounds = 6"):
        check_cells(with_settings({"runs": [run]}, {"algorithm.step_size": (0.1, 0.3)}))


@pytest.mark.parametrize(
    ("steps", "named"),
    {
        "other rounds": (STEPS[:3], "step_size has 3 values, .*n_rounds = 6"),
        "more rounds": ([0.1] * 7, "step_size has 7 values, .*n_rounds = 6"),
        "one value": ([0.1], "step_size has 1 value, .*n_rounds = 6"),
        "negative": ([0.1, -0.2], r"step_size\[1\] = -0.2"),
        "NaN": ([0.1, math.nan], "step_size holds 1 value that is NaN"),
        "empty": ([], r"step_size has shape \(0,\)"),
        "matrix": (np.ones((2, 2)), r"step_size has shape \(2, 2\), expected \(n_rounds,\)"),
        "words": (["a"], "step_size must be an array"),
        "function of no number": (lambda round_: None, r"step_size\(1\) = None"),
        "function that ends": (lambda round_: 2.0 - round_, r"step_size\(2\) = 0.0"),
    }.values(),
)
def test_an_invalid_schedule_is_named(steps, named):
    with pytest.raises(ValueError, match=named) as raised:
        lf.simulate(lf.FedRep(rank=2, step_size=steps), PROBLEM, data=DATA, **SETTING)
    assert "\n" not in str(raised.value)


def test_an_array_without_axes_is_its_number():
    """Step sizes of `lf.theory` are such arrays."""
    limit = lf.theory.fedrep_step_limit(2.0)
    assert limit.shape == ()
    algorithm = lf.FedRep(rank=np.array(2), step_size=limit, heads=lf.ExactHeads(ridge=np.array(0.1)))
    assert repr(algorithm) == repr(lf.FedRep(rank=2, step_size=1 / 16, heads=lf.ExactHeads(ridge=0.1)))
    assert lf.simulate(algorithm, PROBLEM, data=DATA, **SETTING).algorithm.step_size == 1 / 16


def test_theorems_of_one_step_refuse_a_schedule():
    truth = PROBLEM.truth(0, range(2))
    steps = lf.iterate(lf.FLUTE(rank=2, step_size=0.03), PROBLEM, data=DATA, n_rounds=1, trials=2)
    with pytest.raises(ValueError, match="is a schedule: the theorems require one step size for all rounds"):
        lf.theory.flute_trace(steps, lf.FLUTE(rank=2, step_size=(0.03,)), truth)
    assert lf.FLUTE(rank=2, step_size=(0.03, 0.02)).step_ratio == 1.0
    with pytest.raises(ValueError, match="the ratio of step sizes requires one step size for all rounds"):
        _ = lf.FLUTE(rank=2, step_size=(0.03, 0.02), server_step_size=0.1).step_ratio


def test_a_function_in_a_run_of_no_round_can_be_used_again():
    result = lf.simulate(lf.FedRep(rank=2, step_size=falling), PROBLEM, data=DATA, n_rounds=0)
    assert result.per_client("train_loss").shape == (1, 8)
    assert lf.simulate(result.algorithm, PROBLEM, data=DATA, n_rounds=0).rounds.tolist() == [0]


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_a_function_has_a_value_for_each_round_and_for_at_least_one(rounds):
    algorithm = lf.FedRep(rank=2, step_size=falling, heads=lf.ExactHeads(ridge=falling)).for_rounds(rounds)
    values = {0: (0.4,), 1: (0.4,), 3: (0.4, 0.2, 0.4 / 3)}[rounds]
    assert algorithm.step_size == algorithm.heads.ridge == values


@pytest.mark.parametrize("rule", [lambda: 0.1, lambda t, s: 0.1])
def test_a_schedule_of_another_signature_is_named(rule):
    with pytest.raises(TypeError, match=r"step_size = .* must be a function of one argument, the round"):
        lf.FedRep(rank=2, step_size=rule)
    assert lf.FedRep(rank=2, step_size=lambda t, s=1.0: s / t).for_rounds(2).step_size == (1.0, 0.5)


# --- ridges ------------------------------------------------------------------------------------------------------

RIDGES = (0.0, 0.3, 0.1, 0.0, 1.0, 0.05)
RIDGED = {
    "exact heads": lambda ridge: lf.FedRep(rank=2, step_size=0.3, init="random", heads=lf.ExactHeads(ridge=ridge)),
    "shortcut": lambda ridge: lf.FedRepShortcut(rank=2, step_size=0.3, init="random", ridge=ridge),
    "closed form": lambda ridge: lf.FedRepShortcut(
        rank=2, step_size=0.3, init="random", ridge=ridge, solver=lf.ClosedForm(order="gauss-seidel")
    ),
}


def ridge_of(algorithm):
    return algorithm.heads.ridge if isinstance(algorithm, lf.FedRep) else algorithm.ridge


@pytest.mark.parametrize("name", RIDGED)
def test_constant_schedules_are_the_constant_ridge_bit_for_bit(name):
    ridge = 0.2
    plain = lf.simulate(RIDGED[name](ridge), PROBLEM, data=DATA, **SETTING)
    new = (np.random.default_rng(1).normal(size=(3, 9, 7)), np.ones((3, 9)))
    for ridges in ([ridge] * ROUNDS, np.full(ROUNDS, ridge), lambda round_: np.float64(ridge)):
        run = lf.simulate(RIDGED[name](ridges), PROBLEM, data=DATA, **SETTING)
        assert ridge_of(run.algorithm) == (ridge,) * ROUNDS
        for part in ("B", "W"):
            assert np.array_equal(getattr(run.final, part), getattr(plain.final, part))
        adapted = [result.adapt(*new) for result in (run, plain)]
        assert np.array_equal(adapted[0].state.W, adapted[1].state.W)


@pytest.mark.parametrize("name", RIDGED)
def test_a_round_has_the_ridge_of_its_number(name):
    """A run of one round from the state before it, with the constant ridge of the round, ends at the same state."""
    for step in rounds_of(RIDGED[name](RIDGES), PROBLEM, data=DATA, **SETTING):
        alone = RIDGED[name](RIDGES[step.number - 1]).step(step.before, step.batch, None)
        assert np.array_equal(alone.B, step.after.B)
        assert np.array_equal(alone.W, step.after.W)


@pytest.mark.parametrize("name", RIDGED)
def test_new_clients_have_the_last_ridge(name):
    new = (np.random.default_rng(1).normal(size=(3, 9, 7)), np.ones((3, 9)))
    run = lf.simulate(RIDGED[name](lambda round_: 0.1 * round_), PROBLEM, data=DATA, **SETTING)
    ridges = ridge_of(run.algorithm)
    assert ridges == tuple(0.1 * round_ for round_ in range(1, ROUNDS + 1))
    last = dataclasses.replace(run, algorithm=RIDGED[name](ridges[-1]))
    assert np.array_equal(run.adapt(*new).state.W, last.adapt(*new).state.W)


@pytest.mark.parametrize("name", ["exact heads", "shortcut"])
@pytest.mark.parametrize(
    ("ridge", "named"),
    [
        ([0.1, -0.1], "ridge"),
        ([0.1, 0.2], "ridge has 2 values, .*n_rounds = 6"),
        (lambda round_: 0.3 - 0.2 * round_, r"ridge\(2\) = -0\.1"),
    ],
)
def test_an_invalid_ridge_is_named(name, ridge, named):
    with pytest.raises((ValueError, TypeError), match=named):
        lf.simulate(RIDGED[name](ridge), PROBLEM, data=DATA, **SETTING)


def test_a_joint_solution_needs_a_ridge_in_every_round():
    joint = {"rank": 2, "step_size": 0.3, "init": "random", "solver": lf.ClosedForm(order="joint")}
    lf.simulate(lf.FedRepShortcut(ridge=[0.1] * ROUNDS, **joint), PROBLEM, data=DATA, **SETTING)
    for ridge in (RIDGES, lambda round_: 0.0):
        with pytest.raises(ValueError, match="requires ridge > 0"):
            lf.simulate(lf.FedRepShortcut(ridge=ridge, **joint), PROBLEM, data=DATA, **SETTING)


def test_other_algorithms_have_one_ridge():
    heads = lf.ExactHeads(ridge=[0.1, 0.2])
    for make in (
        lambda: lf.FedAvg(rank=2, step_size=0.1, fine_tune=heads),
        lambda: lf.FedRoD(rank=2, step_size=0.1, personal=heads),
    ):
        with pytest.raises(ValueError, match="must have one ridge for all rounds; only FedRep supports a schedule"):
            make()


def test_nothing_is_predicted_of_ridges():
    with pytest.raises(lf.NoPredictionError):
        _ = lf.predict(RIDGED["exact heads"](RIDGES), PROBLEM, data=lf.FreshSamples(9), n_rounds=ROUNDS).distance
