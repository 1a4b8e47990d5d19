"""Random streams: a trial's draws depend on (seed, stream, trial) alone, and participation has the law it states."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from linfed.numerics import streams
from linfed.numerics.rounding import rounded_share
from linfed.numerics.streams import RoundStream, Stream, TrialRandom, generators
from linfed.simulation import participation
from linfed.simulation.participation import Participants, n_participants
from tests.helpers import each

SEEDS = [0, 1, 12345, (1, 2), (2, 1), (1, 2, 3), (0, 1)]
LONG_SEEDS = [2**31, 2**32 - 1, 2**32, 2**200 + 3, (2**40, 1, 0, 2**70, 5)]

# Each statistical test below rejects a correct program with this probability (before its seed was fixed).
ERROR_RATE = 1e-3


# --- keys ----------------------------------------------------------------------------------------------------


def test_every_seed_stream_and_trial_has_draws_of_its_own():
    firsts = [
        rng.bit_generator.random_raw()
        for seed, stream in itertools.product(SEEDS, Stream)
        for rng in generators(seed, stream, range(50))
    ]
    assert len(set(firsts)) == len(SEEDS) * len(Stream) * 50


def sequence_of(seed, stream, trial):
    """Return the documented seed sequence. Published numbers rest on it."""
    if not isinstance(seed, tuple):
        return np.random.SeedSequence(seed, spawn_key=(stream, trial))
    lengths = (len(f"{part:b}") if part else 0 for part in seed)
    return np.random.SeedSequence((len(seed), *lengths, *seed), spawn_key=(65536 + stream, trial))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_generator_is_its_documented_key(seed):
    (rng,) = generators(seed, Stream.NOISE, [7])
    key = sequence_of(seed, 4, 7)
    assert np.array_equal(rng.random(5), np.random.Generator(np.random.SFC64(key)).random(5))


@each("seed", [*SEEDS, *LONG_SEEDS])
@each("trials", [range(40), [5, 0, 2**32 - 1, *range(100, 120)], [2**32, *range(40)], range(3)])
def test_generators_of_many_trials_are_those_of_numpys_seed_sequences(seed, trials):
    for stream in (Stream.TRUTH, Stream.NEW_SHORTCUT):
        for trial, rng in zip(trials, generators(seed, stream, trials), strict=True):
            key = sequence_of(seed, int(stream), trial)
            assert rng.bit_generator.random_raw() == np.random.SFC64(key).random_raw()


PARTS = [0, 1, 2, 3, 7, 2**32 - 1, 2**32, 2**32 + 5, 2**64 + 1, 2**96, 2**130 + 9]


def test_no_two_seeds_are_one():
    # NumPy reads a tuple of parts as their words in a row, filled up with zeros, and so reads an integer.
    tuples = [parts for count in (1, 2, 3) for parts in itertools.product(PARTS, repeat=count)]
    tuples += [(0,) * count for count in range(4, 12)] + [(1, 2, 0, 0), (5, 1 + 7 * 2**32), (2**32 + 5, 7)]
    read = [sum(word << 32 * place for place, word in enumerate(words_of(parts))) for parts in tuples]
    with_length = [len(parts) + (number << 32) for parts, number in zip(tuples, read, strict=True)]
    seeds = {*range(300), *PARTS, *tuples, *read, *with_length}
    first = {seed: generators(seed, Stream.X, [0])[0].bit_generator.random_raw() for seed in seeds}
    assert len(set(first.values())) == len(seeds) > 3000


def words_of(parts):
    """Return the words of 32 bits of all parts, the lowest first."""
    return [part >> 32 * place & 2**32 - 1 for part in parts for place in range(max(1, -(-part.bit_length() // 32)))]


def test_a_generator_among_many_can_be_copied_and_has_children():
    key = np.random.SeedSequence(5, spawn_key=(3, 7))
    plain, rng = np.random.Generator(np.random.SFC64(key)), generators(5, Stream.X, range(40))[7]
    copy = pickle.loads(pickle.dumps(rng))
    assert copy.random() == rng.random() == plain.random()
    for _ in range(2):
        children = [[child.random() for child in parent.spawn(3)] for parent in (rng, plain)]
        assert children[0] == children[1]
    assert len({child.random() for child in copy.spawn(2)}) == 2
    known = generators(5, Stream.X, range(40))[7].bit_generator.seed_seq
    for words, kind in ((3, np.uint64), (3, np.uint32), (2, np.uint64), (4, np.uint64), (7, np.uint32)):
        assert np.array_equal(known.generate_state(words, kind), key.generate_state(words, kind))


def test_a_trial_has_the_same_generator_among_any_others():
    values = {trials: [rng.random() for rng in generators(3, Stream.X, trials)] for trials in (range(9), range(7, 8))}
    assert values[range(9)][7] == values[range(7, 8)][0]


def test_stream_numbers_never_change():
    names = ["TRUTH", "INIT", "PARTICIPATION", "X", "NOISE", "ALGORITHM", "INIT_X", "INIT_NOISE"]
    names += ["NEW_TRUTH", "NEW_X", "NEW_NOISE", "FINISH_X", "FINISH_NOISE", "OUTSIDE", "FINISH_OUTSIDE", "SHORTCUT"]
    names += ["NEW_SHORTCUT"]
    assert {name: int(Stream[name]) for name in names} == {name: number for number, name in enumerate(names)}
    assert (Stream.TEST, Stream.SPLIT, Stream.HELD_OUT) == (17, 18, 19)


# --- draws round by round ------------------------------------------------------------------------------------


def rounds_of(shape, trials, rounds):
    def fill(rng, out):
        rng.standard_normal(out=out)

    stream = RoundStream(generators(5, Stream.X, trials), shape, fill, rounds)
    return np.stack([stream.next().copy() for _ in range(rounds)], axis=1)


@pytest.mark.parametrize("shape", [(1,), (3, 4), (100, 9), (9000,), (2, 0)])
def test_rounds_are_consecutive_values_of_the_trial(shape):
    values = rounds_of(shape, range(4), 23)
    assert values.shape == (4, 23, *shape)
    for rng, drawn in zip(generators(5, Stream.X, range(4)), values, strict=True):
        assert np.array_equal(drawn, rng.standard_normal((23, *shape)))
    assert np.array_equal(rounds_of(shape, range(4), 9), values[:, :9])
    assert np.array_equal(rounds_of(shape, [2], 23), values[2:3])


@pytest.mark.parametrize(
    ("block", "rounds", "ahead"), [(8192, 5, 5), (7, 5, 2), (6, 5, 2), (2, 5, 1), (15, 0, 1), (15, 1, 1)]
)
def test_whole_rounds_are_drawn_ahead_and_no_more_than_there_are(block, rounds, ahead, monkeypatch):
    """Rounds of three values, in blocks of so many values."""
    monkeypatch.setattr(streams, "BLOCK_VALUES", block)
    (drawn,), (plain,) = generators(5, Stream.X, [0]), generators(5, Stream.X, [0])
    RoundStream([drawn], (3,), lambda rng, out: rng.standard_normal(out=out), rounds).next()
    plain.standard_normal(3 * ahead)
    assert drawn.random() == plain.random()


def test_an_algorithm_draws_from_each_trial_alone():
    def draw(trials):
        random = TrialRandom(generators(1, Stream.ALGORITHM, trials))
        return [random.standard_normal((2, 3)), random.uniform((4,)), random.permutations((2, 5), 6)]

    together = draw(range(5))
    normals, uniforms, orders = together
    assert (normals.shape, uniforms.shape, orders.shape) == ((5, 2, 3), (5, 4), (5, 2, 5, 6))
    assert ((uniforms >= 0) & (uniforms < 1)).all()
    assert np.array_equal(np.sort(orders, axis=-1), np.broadcast_to(np.arange(6), orders.shape))
    assert len({order.tobytes() for order in orders.reshape(-1, 6)}) > 40  # 50 draws from 720
    for trial in range(5):
        for whole, alone in zip(together, draw([trial]), strict=True):
            assert np.array_equal(whole[trial], alone[0])


# --- how many take part --------------------------------------------------------------------------------------


@each(
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


def test_shares_are_rounded_as_they_are_written():
    sizes = [1, 2, 3, 7, 10, 25, 50, 64, 99, 100, 200, 777, 1000, 10**4, 10**6]
    shares = [(k / 1000, Fraction(k, 1000)) for k in range(1, 1001)]
    shares += [(p / q, Fraction(p, q)) for q in (3, 6, 7, 14, 22, 49, 60) for p in range(1, q)]
    shares += [(share, Fraction(str(share))) for share in np.random.default_rng(0).uniform(size=500)]
    for share, exact in shares:
        wanted = [math.floor(exact * n + Fraction(1, 2)) for n in sizes]
        assert rounded_share(share, np.array(sizes)).tolist() == wanted
        assert [n_participants(share, n) for n in sizes] == [max(1, count) for count in wanted]


# --- who takes part ------------------------------------------------------------------------------------------

SMALL, LARGE = (11, 4), (5000, 60)  # many rounds shuffled in one call, and one choice per round


def draw_participants(n, p, trials, rounds, seed=2):
    drawn = Participants(p, n_clients=n, rounds=rounds, trials=trials, n_trials=10, seed=seed)
    return np.stack([drawn.next().copy() for _ in range(rounds)], axis=1)


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
    served = Participants(given, n_clients=5, rounds=3, trials=range(2, 4), n_trials=6, seed=0)
    assert served.count == 2
    rows = np.stack([served.next() for _ in range(3)], axis=1)
    assert rows.tolist() == [[[0, 3], [1, 2], [2, 4]]] * 2
    assert given.tolist() == [[3, 0], [1, 2], [4, 2]]


def test_given_participants_of_each_trial_follow_the_trial():
    given = np.random.default_rng(0).permuted(np.broadcast_to(np.arange(7), (6, 4, 7)), axis=-1)[..., :3]
    served = Participants(given.tolist(), n_clients=7, rounds=4, trials=range(2, 5), n_trials=6, seed=0)
    rows = np.stack([served.next() for _ in range(4)], axis=1)
    assert np.array_equal(rows, np.sort(given[2:5], axis=-1))


def test_participants_of_many_blocks_are_those_of_one(monkeypatch):
    """Of 11 clients 744 rounds are drawn in one call."""
    wanted = draw_participants(11, 4, range(2), 1500)
    for values, length in ((10**6, 1500), (35, 3), (22, 2)):
        monkeypatch.setattr(participation, "BLOCK_VALUES", values)
        drawn = Participants(4, n_clients=11, rounds=1500, trials=range(2), n_trials=10, seed=2)
        assert drawn._length == length
        assert np.array_equal(np.stack([drawn.next().copy() for _ in range(1500)], axis=1), wanted)
    assert len(np.unique(wanted.reshape(-1, 4), axis=0)) > 320  # of 330 subsets
