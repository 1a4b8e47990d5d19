"""FedRep on truths of rank r > k: its course and its floor, against runs and entry by entry."""

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.rounds.state_evolution import RoundSizes
from linfed.theory.fedrep.rounds.truth_rows import TruthRows
from tests.helpers import assert_one_line, basis, normal
from tests.theory.fedrep.rounds.test_truth_rows import points

ROUNDS = [5, 10, 20, 40]

LINE = {"n": 200, "spectrum": np.r_[[2, 1.5, 1], np.linspace(0.5, 0.1, 7)]}

FULL = {"n": 100, "spectrum": np.r_[[1, 1], np.full(28, 0.05)]}

SLOW = {"n": 300, "spectrum": 1 / np.arange(1, 21)}

# Medians over 1000 trials of lf.simulate(lf.FedRep(rank=k, step_size=eta, init=lf.AtDistance(delta)),
# lf.GivenTruth(B=np.eye(d, r), W=points(n, spectrum), noise_std=noise_std), data=lf.FreshSamples(m), n_rounds=40,
# trials=1000, seed=0, participation=p, engine="chain", or "projected" for r = d) in rounds 5, 10, 20 and 40.
MEDIANS = {
    "r = k + 2": (
        {"n": 100, "spectrum": [1, 1, 0.3, 0.2], "dim": 50, "k": 2, "m": 10, "eta": 0.3, "delta": 0.8},
        [0.4049, 0.1481, 0.07726, 0.07648],
    ),
    "r = 10": (LINE | {"dim": 200, "k": 3, "m": 20, "eta": 0.2, "delta": 0.9}, [0.6845, 0.387, 0.1441, 0.1295]),
    "r = d, noise": (
        FULL | {"dim": 30, "k": 2, "m": 10, "eta": 0.3, "noise_std": 0.3, "delta": 0.7},
        [0.3239, 0.1438, 0.1077, 0.1081],
    ),
    "small gap": (SLOW | {"dim": 100, "k": 2, "m": 12, "eta": 0.1, "delta": 0.9}, [0.8618, 0.8135, 0.6895, 0.4095]),
    "large step": (
        {"n": 200, "spectrum": [1, 1, 1, 0.05, 0.05], "dim": 200, "k": 3, "m": 20, "eta": 0.6, "delta": 0.9},
        [0.1946, 0.05367, 0.05258, 0.05265],
    ),
    "p < n, noise": (
        {"n": 200, "spectrum": [1.5, 1, 1, 0.2, 0.2, 0.1], "dim": 100, "k": 3, "m": 15, "eta": 0.3, "delta": 0.8}
        | {"noise_std": 0.3, "participants": 40},
        [0.4767, 0.2303, 0.1741, 0.1741],
    ),
}


def arguments(n, spectrum, k, m, eta, **others):
    return {"V": points(n, spectrum), "rank": k, "n_samples": m, "step_size": eta, **others}


def off(name, **changes):
    """Return how far the law is from the medians at most, as a share of them."""
    setting, medians = MEDIANS[name]
    predicted = lf.theory.under_parameterized_evolution(n_rounds=40, **arguments(**setting) | changes)
    return np.abs(predicted.distance[ROUNDS] / medians - 1).max()


@pytest.mark.long
@pytest.mark.parametrize("name", MEDIANS)
def test_runs_follow_it(name):
    assert off(name) < 0.03


@pytest.mark.long
def test_runs_tell_other_settings_apart():
    assert off("p < n, noise", participants=None) > 0.3
    assert off("r = d, noise", n_samples=8) > 0.08
    assert off("r = k + 2", n_samples=12) > 0.08


def test_a_truth_of_rank_k_is_nearly_that_of_the_state_evolution():
    W = normal(300, 2, seed=1)
    V = np.concatenate([W, 1e-9 * normal(300, 1, seed=2)], axis=1)
    setting = {"dim": 1000, "n_samples": 30, "step_size": 0.3, "n_rounds": 30, "noise_std": 0.2, "delta": 0.7}
    got = lf.theory.under_parameterized_evolution(V, rank=2, **setting)
    expected = lf.theory.state_evolution(W, **setting)
    total = np.sqrt(np.trace(expected.Q, axis1=1, axis2=2))
    np.testing.assert_allclose(np.hypot(got.inside, got.outside), total, rtol=0.01)
    assert np.all(np.abs(got.distance / expected.distance - 1) < 0.05)


@pytest.mark.long
def test_a_given_start_is_the_law_of_uniform_ones_on_average():
    setting = arguments(**MEDIANS["r = 10"][0]) | {"n_rounds": 20}
    uniform = lf.theory.under_parameterized_evolution(**setting)
    delta, dim, rank = setting.pop("delta"), setting["dim"], setting["rank"]
    frame = np.stack([basis(dim - rank, rank, seed) for seed in (1, 2)])
    top = np.tile(np.sqrt(1 - delta**2) * np.eye(rank), (2, 1, 1))
    U = np.eye(dim, len(LINE["spectrum"]))
    given = lf.theory.under_parameterized_evolution(B0=np.concatenate([top, delta * frame], axis=1), U=U, **setting)
    assert given.distance.shape == given.inside.shape == (2, 21)
    np.testing.assert_allclose(given.distance[:, 0], delta, rtol=1e-12)
    np.testing.assert_allclose(given.distance.mean(axis=0), uniform.distance, rtol=0.06)
    assert np.any(given.distance[0] != given.distance[1])


# --- the floor ---------------------------------------------------------------------------------------------------

# Root mean squares of ||U_perp'B||_F over 500 trials after 30/eta rounds from AtDistance(0.1), known to 0.5 %.
FLOORS = {
    "r = k + 2": (0.0375, 0.03244),
    "r = d, noise": (0.0375, 0.04577),
    "p < n, noise": (0.0375, 0.08206),
    "small gap": (0.0125, 0.03366),
}


def floor_by_loop(V, rank, dim, n_samples, step_size, noise_std=0.0, participants=None, wrong=""):
    """Return the root of ``E ||U_perp'B||_F^2``, entry by entry."""
    n, k, m, eta = len(V), rank, n_samples, step_size
    p, c = participants or n, 1 - rank / n_samples
    values, vectors = np.linalg.eigh(V.T @ V / n)
    values, phi = np.zeros(dim), np.pad(V @ vectors[:, ::-1], [(0, 0), (0, dim - V.shape[1])])
    values[:] = np.mean(phi**2, axis=0)
    a, e = phi[:, :k], phi[:, k:]
    left = np.sum(e**2, axis=1) + noise_std**2 if wrong != "label noise only" else np.full(n, noise_std**2)
    total = 0.0
    for q in range(dim - k):
        for j in range(k):
            sampled = (m - k) / m**2 * ((m - k + 1) * e[:, q] ** 2 + left) * (a[:, j] ** 2 + left / (m - k - 1))
            squares = (c * e[:, q] * a[:, j]) ** 2
            share = 0.0 if wrong == "everybody takes part" else (n - p) / (p * max(n - 1, 1))
            noise = np.mean(sampled - squares) / p + share * np.mean(squares)
            factor = 1 - eta * c * (values[j] - (0.0 if wrong == "no gap" else values[k + q]))
            total += eta**2 * noise / (1 - factor**2)
    return np.sqrt(total)


@pytest.mark.parametrize("name", FLOORS)
def test_runs_stop_at_the_floor(name):
    eta, measured = FLOORS[name]
    setting = arguments(**MEDIANS[name][0] | {"eta": eta})
    setting.pop("delta")
    floor = lf.theory.under_parameterized_floor(**setting)
    assert floor.total == pytest.approx(floor_by_loop(**setting), rel=1e-9)
    assert floor.total == pytest.approx(measured, rel=0.015)
    wrong = {"small gap": "no gap", "p < n, noise": "everybody takes part"}.get(name, "label noise only")
    assert abs(floor_by_loop(**setting, wrong=wrong) / measured - 1) > 0.025


# --- chance and long horizons ------------------------------------------------------------------------------------

GOOD = {"V": points(6, [3, 2, 1, 0.5]), "rank": 2, "dim": 8, "n_samples": 5, "step_size": 0.2}

COURSE = {"n_rounds": 2, "delta": 0.5}


def test_chance_of_the_first_round_is_its_formula_for_one_column():
    """With k = 1 all of xi's matrices are numbers; A is that of the rows below U_k, on average."""
    V, delta, eta, m = points(30, [3.0, 1.5, 1.2, 0.9, 0.6]), 0.6, 0.3, 6
    found = lf.theory.under_parameterized_evolution(
        V, rank=1, dim=5, n_samples=m, step_size=eta, n_rounds=1, delta=delta
    )
    rows, c, N = TruthRows.of(V, 1, 5), 1.0 - 1.0 / m, np.sqrt(1.0 - delta**2)
    mean, spread = N * np.eye(5, 1), np.full((5, 1, 1), delta**2 / 4)
    spread[0] = 0.0
    variance = rows.noise(mean, spread, RoundSizes.checked(V[:, :1], 5, m, 1.0, 0.0, None))[1].item()
    below = rows.values[1:].mean()
    K = rows.values[0] * N**2 + below * delta**2
    after = found.inside[1] ** 2 + found.outside[1] ** 2
    length = (N * (1.0 + eta * c * (rows.values[0] - K))) ** 2 / (1.0 - after)
    A = 1.0 + eta * c * (below - K)
    expected = eta * np.sqrt(variance) * (A * delta**2 / (length * after) + 1.0 / N**2 - 1.0)
    assert found.chance[1] == pytest.approx(expected, rel=1e-9)


# Of 40 clients on r directions: some directions outside that are rows of their own, one row for many, and none.
LONG = {"rows outside": (5, 7), "one row outside": (4, 30), "none outside": (6, 6)}


@pytest.mark.long
@pytest.mark.parametrize("start", ["delta", "B0"])
@pytest.mark.parametrize("name", LONG)
def test_it_comes_to_rest_and_stays_there(name, start, monkeypatch):
    """It ends where a start near U_k ends soon: after 120 rounds products of a start's rows have lost all digits.

    A start that is given determines rows below U_k as well.
    """
    monkeypatch.setattr("linfed.theory.fedrep.rounds.truth_rows.VALUES", 10_000)
    r, dim = LONG[name]
    V = points(40, np.r_[3.0, np.geomspace(0.8, 0.02, r - 1)])
    setting = {"V": V, "rank": 2, "dim": dim, "n_samples": 12, "step_size": 0.25}
    begun = {"delta": 0.5} if start == "delta" else {"B0": basis(dim, 2, 4), "U": np.eye(dim, r)}
    long = lf.theory.under_parameterized_evolution(**setting, **begun, n_rounds=180)
    short = lf.theory.under_parameterized_evolution(**setting, delta=0.1, n_rounds=60)
    for name in ("inside", "outside"):
        np.testing.assert_allclose(getattr(long, name)[120:], getattr(short, name)[-1], rtol=0.01)
    assert np.all(np.abs(long.distance[120:] / short.distance[-1] - 1.0) < 0.05)


# --- what is refused ---------------------------------------------------------------------------------------------

BAD = {
    "V = 1 axis": ({"V": [1.0, 2.0]}, ["V"]),
    "r = k": ({"rank": 4}, ["r = 4", "rank = 4", "state_evolution"]),
    "no gap": ({"V": points(6, [3, 2, 2, 0.5])}, ["no gap after rank = 2"]),
    "dim < 2k": ({"dim": 3}, ["dim = 3", "2 rank"]),
    "dim < r": ({"V": points(6, [3, 2, 1, 0.5, 0.4]), "dim": 4}, ["dim = 4", "at least 5", "columns of V"]),
    "m = k + 1": ({"n_samples": 3}, ["n_samples = 3", "rank + 2 = 4"]),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_arguments_are_one_line(name):
    change, fragments = BAD[name]
    assert_one_line(lambda: lf.theory.under_parameterized_evolution(**GOOD | COURSE | change), fragments)
    assert_one_line(lambda: lf.theory.under_parameterized_floor(**GOOD | change), fragments)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"B0": np.eye(8, 2)}, ["B0 and U"]),
        ({"B0": np.ones((8, 2)), "U": np.eye(8, 4)}, ["B0", "orthonormal"]),
        ({"B0": np.eye(8, 2), "U": np.eye(8, 3)}, ["U", "(d, r)"]),
        ({"B0": np.eye(8, 3), "U": np.eye(8, 4)}, ["B0", "(d, k)"]),
        ({"delta": 1.0}, ["right angle to U_k", "delta must be below 1"]),
        ({"delta": 0.5, "step_size": 1e200}, ["step_size = 1e+200", "round 1"]),
    ],
)
def test_a_start_without_a_part_in_the_top_subspace_or_without_a_basis_is_one_line(changes, fragments):
    course = lf.theory.under_parameterized_evolution
    assert_one_line(lambda: course(**GOOD | {"n_rounds": 2} | changes), fragments)
    assert course(**GOOD, n_rounds=0, delta=1.0).distance.tolist() == [1.0]


def test_there_is_no_floor_from_the_step_at_which_a_factor_is_minus_one():
    floor = lf.theory.under_parameterized_floor
    V, sizes = np.diag([2.0, 1.0, 0.5, 0.25]), {"rank": 2, "dim": 8, "n_samples": 4}
    assert_one_line(lambda: floor(V, step_size=4.0, **sizes), ["step_size = 4", "no floor"])
    assert np.isfinite(floor(V, step_size=3.99, **sizes).total)
    assert_one_line(lambda: floor(**GOOD | {"step_size": 1.2}), ["step_size = 1.2", "1.11"])


CHANCE = {"rank": 2, "dim": 20, "n_samples": 8, "noise_std": 0.5, "n_rounds": 60, "U": np.eye(20)}


@pytest.mark.long
@pytest.mark.parametrize("step_size", [0.6, 1.6])
def test_a_start_that_chance_takes_over_raises_one_line(step_size):
    """A random start at n < d, whose part in U_k noise outgrows."""
    start = np.linalg.qr(normal(20, 2, seed=1))[0]
    course = lf.theory.under_parameterized_evolution
    wanted = [f"step_size = {step_size}", "no correct digits are left in round", "a smaller step size"]
    assert_one_line(lambda: course(normal(8, 20), B0=start, step_size=step_size, **CHANCE), wanted)
    assert np.isfinite(course(normal(8, 20), B0=start, step_size=0.02, **CHANCE).distance).all()


def test_a_truth_of_rank_k_without_noise_raises_one_line():
    V = 0.1 * normal(30, 2, seed=1) @ normal(2, 4, seed=2)
    wanted = ["lambda_k+1", "zero up to rounding", "rank = 2", "state_evolution"]
    change = GOOD | {"V": V}
    assert_one_line(lambda: lf.theory.under_parameterized_evolution(**change | COURSE), wanted)
    assert_one_line(lambda: lf.theory.under_parameterized_floor(**change), wanted)
    noisy = lf.theory.under_parameterized_evolution(**change | COURSE, noise_std=0.1)
    assert np.isfinite(noisy.distance).all()
