"""Random streams: a trial's draws depend on (seed, stream, trial) alone."""

import itertools
import pickle

import numpy as np
import pytest

from linfed.numerics import streams
from linfed.numerics.streams import RoundStream, Stream, TrialRandom, generators

SEEDS = [0, 1, 12345, (1, 2), (2, 1), (1, 2, 3), (0, 1)]
LONG_SEEDS = [2**31, 2**32 - 1, 2**32, 2**200 + 3, (2**40, 1, 0, 2**70, 5)]

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


@pytest.mark.parametrize("seed", [*SEEDS, *LONG_SEEDS])
@pytest.mark.parametrize("trials", [range(40), [5, 0, 2**32 - 1, *range(100, 120)], [2**32, *range(40)], range(3)])
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


def test_stream_numbers_never_change():
    names = ["TRUTH", "INIT", "PARTICIPATION", "X", "NOISE", "ALGORITHM", "INIT_X", "INIT_NOISE"]
    names += ["NEW_TRUTH", "NEW_X", "NEW_NOISE", "FINISH_X", "FINISH_NOISE", "OUTSIDE", "FINISH_OUTSIDE", "SHORTCUT"]
    names += ["NEW_SHORTCUT"]
    assert {name: int(Stream[name]) for name in names} == {name: number for number, name in enumerate(names)}
    assert (Stream.TEST, Stream.SPLIT, Stream.HELD_OUT) == (17, 18, 19)


# --- draws round by round ------------------------------------------------------------------------------------


def rounds_of(shape, trials, n_rounds):
    def fill(rng, out):
        rng.standard_normal(out=out)

    stream = RoundStream(generators(5, Stream.X, trials), shape, fill, n_rounds)
    return np.stack([stream.next().copy() for _ in range(n_rounds)], axis=1)


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


def test_a_seed_may_be_an_array_or_another_sequence():
    for seed in ([1, 2], np.array([1, 2]), range(1, 3)):
        assert streams.check_seed(seed) == (1, 2)
    assert type(streams.check_seed(np.array(3))) is int
    for wrong in ([], np.array([]), b"ab", np.array(0.5), [-1], [[1, 2]]):
        with pytest.raises(ValueError, match="seed = "):
            streams.check_seed(wrong)
