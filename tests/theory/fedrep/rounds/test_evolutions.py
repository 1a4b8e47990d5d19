"""What the predicted courses of FedRep have in common: trials, schedules, starts, digits, defaults and refusals."""

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.rounds import gradient_round, second_order, truth_rows
from tests.helpers import assert_one_line, basis, cleared, normal
from tests.theory.fedrep.runs import starts

NAN = float("nan")


def of_a_higher_rank(V, **given):
    return lf.theory.under_parameterized_evolution(V, rank=V.shape[-1] - 1, **given)


LAWS = {
    "means": lf.theory.state_evolution,
    "second order": lf.theory.second_order_evolution,
    "gradient heads": lf.theory.gradient_heads_evolution,
    "without QR": lf.theory.unnormalized_evolution,
    "under-parameterised": of_a_higher_rank,
}
WITH_TRIALS = ["means", "second order", "gradient heads"]
"""Laws that take trials of B0 and B* as well as of W."""
HEADS = normal(6, 3, seed=1)


def evolve(law, W=HEADS, **changes):
    setting = {"dim": 12, "n_samples": 9, "step_size": 0.4, "n_rounds": 4, "delta": 0.6}
    return LAWS[law](W, **setting | changes)


def assert_same(one, other, rtol=0.0):
    assert vars(one).keys() == vars(other).keys()
    for name, array in vars(one).items():
        np.testing.assert_allclose(array, vars(other)[name], rtol=rtol, atol=1e3 * rtol**2, err_msg=name)


@pytest.fixture
def few_draws(monkeypatch):
    """Let medians be those of few fixed draws, and trials be taken two at a time."""
    monkeypatch.setattr(second_order, "DRAWS", 64)
    monkeypatch.setattr(second_order, "TOGETHER", 2)
    monkeypatch.setattr(gradient_round, "MESSAGES", 200)
    monkeypatch.setattr(truth_rows, "VALUES", 1000)
    with cleared(second_order.CholeskyChart.of):
        yield


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("stacked", [("W",), ("B0",), ("W", "B0", "B_star")], ids="-".join)
@pytest.mark.parametrize("law", WITH_TRIALS)
def test_trials_are_an_axis_bit_for_bit(law, stacked):
    arrays = dict(zip(("W", "B0", "B_star"), (normal(3, 6, 3, seed=1), *starts(12, 3, 3)), strict=True))
    given = {name: array if name in stacked else array[0] for name, array in arrays.items()}
    run = {"delta": None, "noise_std": 0.1, "participants": 3}
    together = evolve(law, **given, **run)
    assert together.distance.shape == (3, 5)
    assert len(np.unique(together.distance[:, -1])) == 3
    for trial in range(3):
        alone = evolve(law, **{name: given[name][trial] if name in stacked else given[name] for name in given}, **run)
        for name, array in vars(together).items():
            np.testing.assert_array_equal(array[trial], getattr(alone, name))


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("law", [*WITH_TRIALS, "without QR"])
def test_bases_of_fewer_digits_are_orthonormal(law):
    """To rounding error, which in single precision is above the tolerance of double precision."""
    bases = {"B0": basis(12, 3, 1), "B_star": basis(12, 3, 2)}
    single = {name: array.astype(np.float32) for name, array in bases.items()}
    for name, array in single.items():
        assert np.abs(array.T.astype(float) @ array - np.eye(3)).max() > 1e-9, name
    found, wanted = (evolve(law, delta=None, **given).distance for given in (single, bases))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("law", [*WITH_TRIALS, "under-parameterised"])
def test_a_step_of_each_round(law):
    other = {"head_step_size": 0.4} if law == "gradient heads" else {}
    constant = evolve(law, **other)
    assert_same(evolve(law, step_size=[0.4] * 4, **other), constant)
    changed = evolve(law, step_size=[0.4, 0.4, 0.2, 0.2], **other).distance
    assert (changed == constant.distance).tolist() == [True, True, True, False, False]
    np.testing.assert_array_equal(evolve(law, n_rounds=2, **other).distance, constant.distance[:3])


OPTIONS = {
    "means": {"weights": [1.0] * 6, "message_noise_std": 0.0},
    "second order": {"weights": [1.0] * 6},
    "gradient heads": {"head_steps": 1, "head_step_size": 0.4},
}


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("law", LAWS)
def test_everybody_takes_part_with_equal_weights_and_no_noise_unless_told(law):
    plain = evolve(law)
    assert_same(evolve(law, noise_std=0.0, participants=6, **OPTIONS.get(law, {})), plain, rtol=1e-12)
    for change in ({"noise_std": 0.3}, {"participants": 3}):
        assert (evolve(law, **change).distance[1:] != plain.distance[1:]).all()
    start = evolve(law, n_rounds=0)
    assert start.distance == pytest.approx([0.6], rel=1e-9)


@pytest.mark.parametrize(("law", "within", "turned_within"), [("means", 1e-8, 1e-11), ("second order", 1e-6, 1e-2)])
def test_only_the_angles_between_b_and_the_heads_count(law, within, turned_within):
    """Up to the points of the second order, which heads in other coordinates may meet mirrored."""
    W, B_star, turn = HEADS * [2, 1, 0.5], basis(12, 3, 2), basis(3, 3, 4)
    complement = np.linalg.qr(np.concatenate([B_star, normal(12, 3, seed=5)], axis=1))[0][:, 3:]
    for delta in (0.6, 1e-6):
        by_angle = evolve(law, W, delta=delta).distance
        B0 = (np.sqrt(1 - delta**2) * B_star + delta * complement) @ turn
        by_bases = evolve(law, W, delta=None, B0=B0, B_star=B_star).distance
        np.testing.assert_allclose(by_bases, by_angle, rtol=within)
    sines = np.array([0.9, 0.4, 0.1])
    B0 = B_star * np.sqrt(1 - sines**2) + complement * sines
    one, *same, heads_alone, other = (
        evolve(law, heads, delta=None, B0=start, B_star=truth).distance
        for heads, start, truth in (
            (W, B0, B_star),
            (W, B0 @ turn, B_star),
            (W @ turn, B0, B_star @ turn),
            (W @ turn, B0, B_star),
            (W[:, ::-1], B0, B_star),
        )
    )
    assert one[0] == pytest.approx(float(lf.subspace_distance(B0, B_star)), rel=1e-12)
    for turned in same:
        np.testing.assert_allclose(turned, one, rtol=turned_within)
    assert np.abs(heads_alone / one - 1).max() > 3 * turned_within
    assert one[-1] < 0.95 * other[-1]


@pytest.mark.parametrize(
    ("law", "near", "nearer", "within"),
    [
        ("means", 1e-7, 1e-13, 1e-10),
        ("means", 1e-7, 1e-90, 1e-10),
        ("second order", 1e-3, 1e-40, 1e-4),
        ("second order", 1e-3, 1e-130, 1e-4),
    ],
)
def test_convergence_goes_on_without_cancellation(law, near, nearer, within):
    """Near B* and without noise a round is homogeneous: from any small distance, the same factors."""
    run = {"W": normal(60, 2, seed=1), "dim": 30, "participants": 40, "n_rounds": 6}
    small, tiny = (evolve(law, delta=delta, **run).distance for delta in (near, nearer))
    np.testing.assert_allclose(small / near, tiny / nearer, rtol=within)


# --- what is refused ---------------------------------------------------------------------------------------------

START = {"delta": None, "B0": basis(12, 3), "B_star": basis(12, 3, 1)}
NO_START = "the initial B requires either delta or both B0 and B_star"
BAD = {
    "W of one axis": ({"W": np.ones(3)}, ["W has shape (3,)"]),
    "NaN in W": ({"W": np.full((6, 3), NAN)}, ["W holds 18 values"]),
    "dim": ({"dim": 5}, ["dim = 5", "6"]),
    "no samples": ({"n_samples": 0}, ["n_samples = 0"]),
    "participants": ({"participants": 7}, ["participants = 7", "n_clients = 6"]),
    "step": ({"step_size": 0.0}, ["step_size = 0"]),
    "noise": ({"noise_std": -0.1}, ["noise_std = -0.1"]),
    "n_rounds": ({"n_rounds": -1}, ["n_rounds = -1"]),
    "delta": ({"delta": 1.2}, ["delta = 1.2", "0 to 1"]),
    "no start": ({"delta": None}, [NO_START]),
    "two starts": (START | {"delta": 0.5}, [NO_START]),
    "B0 alone": (START | {"B_star": None}, [NO_START]),
    "B_star alone": (START | {"B0": None}, [NO_START]),
    "delta and B_star": (START | {"B0": None, "delta": 0.5}, [NO_START]),
    "B0 of another rank": (START | {"B0": basis(12, 2)}, ["B0 has shape (12, 2)", "(12, 3)"]),
    "B_star of another dim": (START | {"B_star": basis(9, 3)}, ["B_star has shape (9, 3)", "(12, 3)"]),
    "B0 not orthonormal": (START | {"B0": 2 * basis(12, 3)}, ["B0 of shape (12, 3) must have orthonormal"]),
    "B_star not orthonormal": (START | {"B_star": np.ones((12, 3))}, ["B_star", "orthonormal"]),
    "trials of the bases": (
        START | {"B0": np.tile(basis(12, 3), (3, 1, 1)), "B_star": np.tile(basis(12, 3), (2, 1, 1))},
        ["B0 and B_star are for 3 and 2 trials"],
    ),
}


OF_EVERY_LAW = ("dim", "step", "no start", "B0 of another rank")
"""The laws share their checks: these show that each law makes them."""


@pytest.mark.parametrize(
    ("law", "name"),
    [
        *(("means", name) for name in BAD),
        *((law, name) for law in (*WITH_TRIALS[1:], "without QR") for name in OF_EVERY_LAW),
    ],
)
def test_invalid_arguments_are_one_line(law, name):
    changes, fragments = BAD[name]
    assert_one_line(lambda: evolve(law, **changes), fragments)


SCHEDULES = {
    "too short": ({"step_size": [0.1, 0.2]}, ["step_size has 2 values", "n_rounds = 4"]),
    "a step below 0": ({"step_size": [0.1, 0.1, 0.1, -1.0]}, ["step_size[3] = -1"]),
    "NaN": ({"step_size": [NAN] * 4}, ["step_size"]),
    "a function": ({"step_size": lambda t: 0.4 / t}, ["must be a positive finite number, or one for each round"]),
    "overflow": ({"step_size": 1e200}, ["step_size = 1e+200", "too large"]),
    "trials of the heads": (
        START | {"W": normal(2, 6, 3), "B0": np.tile(basis(12, 3), (3, 1, 1))},
        ["2 and 3 trials"],
    ),
}


@pytest.mark.parametrize(
    ("law", "name"),
    [*(("means", name) for name in SCHEDULES), *((law, "overflow") for law in WITH_TRIALS[1:])],
)
def test_invalid_schedules_and_trials_are_one_line(law, name):
    changes, fragments = SCHEDULES[name]
    assert_one_line(lambda: evolve(law, **changes), fragments)


@pytest.mark.parametrize(
    ("law", "changes", "fragments"),
    [
        ("means", {"n_samples": 4}, ["n_samples = 4", "rank + 2 = 5", "no moments"]),
        ("means", {"W": 1e200 * HEADS}, ["too large for these heads", "round 1"]),
        ("second order", {"n_samples": 6}, ["n_samples = 6", "above rank + 3 = 6"]),
        ("second order", {"delta": 1.0}, ["right angle", "delta"]),
        ("gradient heads", {"head_steps": 0}, ["head_steps = 0"]),
        ("gradient heads", {"head_step_size": -1.0}, ["head_step_size = -1"]),
        ("gradient heads", {"head_steps": 500, "head_step_size": 9.0}, ["too large"]),
        ("without QR", START | {"B0": np.tile(basis(12, 3), (3, 1, 1))}, ["3 trials"]),
    ],
)
def test_each_law_refuses_what_it_does_not_predict(law, changes, fragments):
    assert_one_line(lambda: evolve(law, **changes), fragments)
