"""Client sampling: as many as stated, sorted and distinct, each subset equally often, and given clients."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.simulation import participation
from linfed.simulation.participation import Participants, n_participants
from tests.helpers import assert_one_line, assert_same, normal
from tests.simulation.watched import Watched

# Each statistical test below rejects a correct program with this probability (before its seed was fixed).
ERROR_RATE = 1e-3


@pytest.mark.parametrize(
    ("participation", "n_clients", "count"),
    [
        (1.0, 7, 7),
        (0.999, 7, 7),
        (0.5, 5, 3),
        (0.25, 10, 3),
        (0.24, 10, 2),
        (0.1, 100, 10),
        (0.1, 5, 1),
        (0.01, 10, 1),
        (1e-9, 1, 1),
        (0.7, 5, 4),
        (1, 7, 1),
        (7, 7, 7),
        (np.int64(3), 7, 3),
        (np.float32(0.5), 7, 4),
        (np.float32(0.29), 50, 15),
        (np.float16(0.29), 50, 15),
        (np.longdouble("0.29"), 50, 15),
        (1 / 6, 9, 2),
        (1.0, 10**15, 10**15),
    ],
)
def test_a_share_is_rounded_half_up_and_a_count_is_a_count(participation, n_clients, count):
    assert n_participants(participation, n_clients) == count


SMALL, LARGE = (11, 4), (5000, 60)  # many rounds shuffled in one call, and one choice per round


def draw_participants(n, p, trials, n_rounds, seed=2):
    drawn = Participants(p, n_clients=n, n_rounds=n_rounds, trials=trials, n_trials=10, seed=seed)
    return np.stack([drawn.next().copy() for _ in range(n_rounds)], axis=1)


@pytest.mark.parametrize(("n", "p"), [SMALL, LARGE, (4096, 30), (4097, 30), (6, 1), (5, 5), (1, 1), (20000, 19999)])
def test_participants_are_sorted_and_distinct(n, p):
    chosen = draw_participants(n, p, range(3), 9)
    assert chosen.shape == (3, 9, p)
    assert chosen.min() >= 0
    assert chosen.max() < n
    assert (np.diff(chosen, axis=-1) > 0).all()


@pytest.mark.parametrize(("n", "p"), [SMALL, LARGE])
def test_participants_depend_on_seed_and_trial_alone(n, p):
    chosen = draw_participants(n, p, range(4), 20)
    assert np.array_equal(draw_participants(n, p, [2], 20)[0], chosen[2])
    assert np.array_equal(draw_participants(n, p, range(4), 7), chosen[:, :7])
    assert len({rows.tobytes() for rows in chosen}) == 4
    assert not np.array_equal(draw_participants(n, p, range(4), 20, seed=3), chosen)


@pytest.mark.parametrize(("n", "p", "rounds"), [(11, 4, 20_000), (5000, 500, 1000), (4, 3, 20_000)])
def test_every_client_is_chosen_equally_often(n, p, rounds):
    """Pearson's statistic, scaled for draws without replacement, has the chi-square law with n - 1 degrees."""
    counts = np.bincount(draw_participants(n, p, [0], rounds).ravel(), minlength=n)
    expected = rounds * p / n
    statistic = ((counts - expected) ** 2).sum() / expected * (n - 1) / (n - p)
    low, high = stats.chi2(n - 1).ppf([ERROR_RATE / 2, 1 - ERROR_RATE / 2])
    assert low < statistic < high


def test_every_subset_is_chosen_equally_often():
    chosen = draw_participants(5, 2, range(4), 5000).reshape(-1, 2)
    counts = np.bincount(5 * chosen[:, 0] + chosen[:, 1], minlength=25).reshape(5, 5)[np.triu_indices(5, 1)]
    assert counts.sum() == 20_000
    assert stats.chisquare(counts).pvalue > ERROR_RATE


def test_rounds_and_trials_choose_independently():
    """Whether client 0 takes part in this round, the next one, and another trial: eight equally likely cells."""
    taken = (draw_participants(6, 3, range(2), 8000) == 0).any(axis=-1)
    cells = 4 * taken[0, :-1:2] + 2 * taken[0, 1::2] + taken[1, 1::2]
    assert stats.chisquare(np.bincount(cells, minlength=8)).pvalue > ERROR_RATE


def test_given_participants_are_served_sorted():
    given = np.array([[3, 0], [1, 2], [4, 2]])
    served = Participants(given, n_clients=5, n_rounds=3, trials=range(2, 4), n_trials=6, seed=0)
    assert served.count == 2
    rows = np.stack([served.next() for _ in range(3)], axis=1)
    assert rows.tolist() == [[[0, 3], [1, 2], [2, 4]]] * 2
    assert given.tolist() == [[3, 0], [1, 2], [4, 2]]


def test_given_participants_of_each_trial_follow_the_trial():
    given = np.random.default_rng(0).permuted(np.broadcast_to(np.arange(7), (6, 4, 7)), axis=-1)[..., :3]
    served = Participants(given.tolist(), n_clients=7, n_rounds=4, trials=range(2, 5), n_trials=6, seed=0)
    rows = np.stack([served.next() for _ in range(4)], axis=1)
    assert np.array_equal(rows, np.sort(given[2:5], axis=-1))


def test_participants_of_many_blocks_are_those_of_one(monkeypatch):
    """Of 11 clients 744 rounds are drawn in one call."""
    wanted = draw_participants(11, 4, range(2), 1500)
    for values, length in ((10**6, 1500), (35, 3), (22, 2)):
        monkeypatch.setattr(participation, "BLOCK_VALUES", values)
        drawn = Participants(4, n_clients=11, n_rounds=1500, trials=range(2), n_trials=10, seed=2)
        assert drawn._length == length
        assert np.array_equal(np.stack([drawn.next().copy() for _ in range(1500)], axis=1), wanted)
    assert len(np.unique(wanted.reshape(-1, 4), axis=0)) > 320  # of 330 subsets


PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2, noise_std=0.1)
WIDE = lf.SharedRepresentation(n_clients=40, dim=40, rank=2, noise_std=0.1, design="cube")
EXACT = lf.FedRep(rank=2, step_size=0.3)
BAD = {
    "a share of 0": (0.0, ["participation = 0.0"]),
    "a share above 1": (1.5, ["participation = 1.5"]),
    "a count of 0": (0, ["participation = 0 ", "from 1 to n_clients = 8"]),
    "a count above n": (9, ["participation = 9 ", "from 1 to n_clients = 8"]),
    "a negative client": ([[0, -2], [1, 2]], ["the index -2", "n_clients - 1 = 7"]),
    "an unknown client": ([[0, 1], [1, 8]], ["the index 8", "n_clients - 1 = 7"]),
    "a client twice": ([[0, 1], [3, 3]], ["a client twice"]),
    "other rounds": ([[0, 1]], ["shape (1, 2)", "(n_rounds, p) = (2, p)"]),
    "other trials": (np.zeros((3, 2, 1), dtype=int), ["shape (3, 2, 1)", "(1, 2, p)"]),
    "floats": ([[0.0, 1.0], [1.0, 2.0]], ["integer array"]),
    "nobody": ([[], []], ["integer array"]),
    "unequal rounds": ([[0, 1], [2]], ["integer array"]),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_participation_is_named(name):
    value, fragments = BAD[name]
    run = {"data": lf.FixedSamples(5), "n_rounds": 2}
    assert_one_line(lambda: lf.simulate(EXACT, PROBLEM, participation=value, **run), fragments)


# --- runs ----------------------------------------------------------------------------------------------------

CASES = {
    "fresh, small rounds": (PROBLEM, lf.FreshSamples(5), EXACT),
    "fresh, large rounds": (WIDE, lf.FreshSamples(60), EXACT),
    "fixed": (PROBLEM, lf.FixedSamples(5), EXACT),
    "given": (PROBLEM, lf.GivenSamples(normal(8, 5, 6), normal(8, 5)), EXACT),
    "local only": (PROBLEM, lf.FreshSamples(9), lf.LocalOnly()),
}


@pytest.mark.parametrize(
    ("case", "participation", "count"),
    [*((case, 0.4, {8: 3, 40: 16}) for case in CASES), ("fixed", 1, {8: 1}), ("fresh, small rounds", 1.0, {8: 8})],
)
def test_a_run_equals_the_run_with_the_clients_that_it_drew(case, participation, count):
    """In any order, for all trials or for one of them."""
    problem, data, algorithm = CASES[case]
    arguments = {"data": data, "n_rounds": 4, "trials": 3, "seed": 3}
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
    result = lf.simulate(EXACT, PROBLEM, data=lf.FixedSamples(5), participation=[[1, 5], [5, 2]], n_rounds=2, trials=3)
    assert result.final.W.any(axis=-1).tolist() == [[client in (1, 2, 5) for client in range(8)]] * 3


def test_a_share_is_any_real_number_and_a_count_any_integer():
    for half in (Fraction(1, 2), np.float32(0.5), np.array(0.5), np.longdouble(0.5)):
        assert n_participants(half, 10) == 5
        run = {"data": lf.FreshSamples(8), "n_rounds": 2, "participation": half}
        problem = lf.SharedRepresentation(n_clients=10, dim=6, rank=2)
        assert lf.simulate(lf.FedRep(rank=2, step_size=0.1), problem, **run).participation == 0.5
    assert n_participants(np.array(3), 10) == n_participants(np.int8(3), 10) == 3
    for wrong in (Fraction(3, 2), Fraction(10**400), np.array(1.5), "a", 1j, None):
        assert_one_line(lambda wrong=wrong: n_participants(wrong, 10), ["participation = ", "share in (0, 1]"])
