"""Initialisations: their distribution, given arrays and names, and a class of a user's own that sees a first batch."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.algorithms.initial import InitialFactors
from linfed.numerics.linalg import qr_positive
from tests import references as ref
from tests.helpers import Wrapped, assert_same, normal
from tests.worlds import draw_world

PROBLEM = lf.SharedRepresentation(n_clients=30, dim=8, rank=2, noise_std=0.1)
FEDREP = lf.FedRep(rank=2, step_size=0.1, init="random")
FACTORS = normal(8, 2), normal(30, 2, seed=1)
FIXED, FRESH = lf.FixedSamples(12), lf.FreshSamples(12)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Starts(lf.Algorithm):
    """Asks for a representation or factors in its own way, says nothing of it, and stays there."""

    begin: object = None
    factors: object = None
    rank: int = 2
    init: object = "no business of the engine's"

    def initial_state(self, start):
        if self.factors is not None:
            B, W = start.factors(self.factors, self.rank)
            return lf.State(B=B, W=W)
        B = start.representation(self.begin, self.rank)
        return lf.State(B=B, W=np.zeros((start.trials, start.n_clients, self.rank)))

    def step(self, state, batch, rng):
        return state


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Says(Starts):
    """The same, and says it."""

    @property
    def initialization(self):
        return self.begin


def started(algorithm, problem=PROBLEM, data=FIXED, **changes):
    return lf.simulate(algorithm, problem, data=data, **{"n_rounds": 0, "trials": 3, "seed": 5} | changes)


@dataclasses.dataclass(frozen=True)
class Truncated(lf.Initial):
    """Truncated spectral start (AltGDmin): labels beyond C times the mean square are left out."""

    factor: float = 9.0
    needs_batch = True

    def resolve(self, start, rank):
        batch = start.batch()
        mean = (batch.y**2).sum(axis=(1, 2), keepdims=True) / batch.counts.sum(axis=1)[:, None, None]
        y = np.where(batch.y**2 <= self.factor * mean, batch.y, 0.0)
        messages = (y[..., None, :] @ batch.X)[..., 0, :] / batch.counts[..., None]
        return np.linalg.svd(messages.mT, full_matrices=False)[0][..., :rank]


# --- what is named is resolved, or refused -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "same"),
    [("moments", lf.Moments()), ("random", lf.RandomSubspace()), (FACTORS[0].tolist(), FACTORS[0])],
    ids=["moments", "random", "list"],
)
@pytest.mark.parametrize("data", [FIXED, FRESH])
def test_names_and_arrays_are_what_they_say(begin, same, data):
    wanted = started(lf.FedRep(rank=2, step_size=0.1, init=same), data=data).final.B
    found = started(Starts(begin=begin), data=data).final.B
    assert found.tobytes() == wanted.tobytes()
    assert (wanted.tobytes() == started(FEDREP, data=data).final.B.tobytes()) == (begin == "random")


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (Starts(begin="momets"), "init = 'momets' is unknown .did you mean 'moments'"),
        (Starts(begin=3), "init = 3 must be 'moments', 'random'"),
        (Starts(begin=None), "init = None must be 'moments', 'random'"),
        (Starts(begin=lf.SmallRandom()), "init = SmallRandom.* must be 'moments', 'random'"),
        (Starts(begin=lf.RandomSubspace), "init = <class .* must be 'moments', 'random'"),
        (Starts(begin=normal(8, 3)), r"init has shape \(8, 3\), expected \(d, k\) = \(8, 2\)"),
        (Starts(begin=normal(2, 8, 2)), "trials = 3 must be 2: init has arrays for 2 trials"),
        (Starts(begin=lf.Moments(clients=31)), "clients = 31 of lf.Moments must be at most n_clients = 30"),
        (Starts(begin=lf.AtDistance(0.5), rank=3), "requires rank = 3 to be at most the rank of the ground truth, 2"),
        (Starts(factors="moments"), "init = 'moments' must be lf.SmallRandom"),
        (Starts(factors=lf.RandomSubspace()), "init = RandomSubspace.* must be lf.SmallRandom"),
        (Starts(factors=(normal(8, 2), normal(29, 2))), r"init W has shape \(29, 2\), expected \(30, 2\)"),
    ],
)
def test_what_is_no_start_is_refused(algorithm, message):
    with pytest.raises(ValueError, match=message) as caught:
        started(algorithm)
    assert "\n" not in str(caught.value)


def test_the_truth_is_needed_where_it_is_asked_for():
    given = FIXED.draw(PROBLEM, trials=3, seed=5)
    for algorithm in (Starts(begin=lf.AtDistance(0.5)), Says(begin=lf.TrueSubspace())):
        with pytest.raises(ValueError, match="requires a ground truth with a reference subspace"):
            started(algorithm, None, given)
    assert started(Starts(begin=lf.TrueSubspace())).metrics["subspace_distance"].max() < 1e-14


def test_a_field_named_init_is_no_business_of_the_engines():
    """`init` may be anything; what counts is what `initialization` returns, whatever it is called."""
    assert started(Starts(begin="random", init=lf.Moments(clients=99))).trials == 3
    with pytest.raises(lf.EngineError, match="dependent columns"):
        started(Normalised(inner=Says(begin=np.ones((8, 2)))), data=FRESH, engine="chain")
    with pytest.raises(ValueError, match="init has arrays for 2 trials"):
        started(Says(begin=lf.FedRep(rank=2, step_size=1.0, init=normal(2, 8, 2)).init), trials=3)


class Normalised(Wrapped):
    """Normalises its B."""

    orthonormalize = True
    requires = lf.Requires.FEATURES

    @property
    def initialization(self):
        return lf.FedRep(rank=2, step_size=1.0, init=self.inner.begin).init

    def step(self, state, batch, rng):
        return state


@pytest.mark.parametrize(
    ("delta", "dim", "truth_rank", "rank"),
    [(0.0, 7, 3, 3), (1e-12, 6, 3, 3), (0.3, 6, 3, 3), (0.3, 9, 4, 2), (1.0, 2, 1, 1), (1.0, 6, 3, 3)],
)
def test_all_principal_angles_have_the_given_sine(delta, dim, truth_rank, rank):
    """Over many trials: with d = 2k the random directions are now and then nearly dependent.

    They must not leave the orthogonal complement of the truth by more than rounding.
    """
    problem = lf.SharedRepresentation(n_clients=6, dim=dim, rank=truth_rank)
    result = started(lf.FedRep(rank=rank, step_size=0.1, init=lf.AtDistance(delta)), problem, FRESH, trials=300)
    B, Q = result.final.B, problem.truth(5, range(300)).reference(rank)
    sines = np.linalg.svd(B - Q @ (Q.mT @ B), compute_uv=False)
    np.testing.assert_allclose(sines, delta, atol=20 * np.finfo(float).eps)
    np.testing.assert_allclose(B.mT @ B, np.broadcast_to(np.eye(rank), (300, rank, rank)), atol=1e-14)
    np.testing.assert_allclose(result.metrics["subspace_distance"][:, 0], delta, atol=20 * np.finfo(float).eps)
    assert len({one.tobytes() for one in B}) == 300


@pytest.mark.parametrize("limit", [1, 10**6], ids=["client by client", "one block"])
@pytest.mark.parametrize("clients", [None, 4])
def test_moments_are_those_of_a_loop_over_samples(clients, limit, monkeypatch):
    monkeypatch.setattr("linfed.data.sources.CACHE_VALUES", limit)
    world = draw_world([3, 12, 5, 9, 4, 7], 6, 2, noise=0.1)
    algorithm = lf.FedRep(rank=2, step_size=0.1, init=lf.Moments(clients=clients))
    B = lf.simulate(algorithm, data=world.data(), n_rounds=0).final.B[0]
    np.testing.assert_allclose(B.T @ B, np.eye(2), atol=1e-12)
    wanted = ref.moments(world.X[:clients], world.y[:clients], 2)[:, ::-1]
    np.testing.assert_allclose(np.abs(np.vecdot(B.T, wanted.T)), 1.0, atol=1e-10)  # in the order of the eigenvalues
    others = ref.moments(world.X[:3], world.y[:3], 2)
    assert ref.subspace_distance(others, B) > 1e-3


UNDER = lf.UnderParameterized(n_clients=7, dim=9)


def start_of(algorithm, problem=UNDER, trials=4, seed=3):
    return lf.simulate(algorithm, problem, data=lf.FreshSamples(5), n_rounds=0, trials=trials, seed=seed).final


@pytest.mark.parametrize("alpha", [None, 1e-6, 0.3, 5.0])
@pytest.mark.parametrize(("rank", "d"), [(1, 9), (3, 9), (4, 4)])
def test_fedrep_at_random_starts_at_the_q_factor_of_flutes_b(rank, d, alpha):
    problem = lf.UnderParameterized(n_clients=7, dim=d)
    B = start_of(lf.FLUTE(rank=rank, step_size=0.1, init=lf.SmallRandom(alpha)), problem).B
    Q = start_of(lf.FedRep(rank=rank, step_size=0.1, init="random"), problem).B
    np.testing.assert_allclose(Q, qr_positive(B)[0], rtol=0, atol=2e-15)
    assert np.abs(Q - start_of(lf.FedRep(rank=rank, step_size=0.1, init="random"), problem, seed=4).B).max() > (
        1e-3 if d > 1 else 0
    )


def test_small_random_entries_are_gaussian():
    """Entries of B and W have standard deviation 1/(10 d), or alpha; four tests at a family-wise error of 1e-3."""
    default, given = (
        start_of(lf.FLUTE(rank=3, step_size=0.1, init=lf.SmallRandom(alpha)), trials=400) for alpha in (None, 2.0)
    )
    assert lf.FLUTE(rank=3, step_size=0.1).init == lf.SmallRandom()
    for state, scale in ((default, 1 / 90), (given, 2.0)):
        for array in (state.B, state.W):
            assert array.std() == pytest.approx(scale, rel=0.05)
            assert stats.kstest(array.ravel() / scale, "norm").pvalue > 1e-3 / 4
            assert stats.kstest(array.ravel() / (1.1 * scale), "norm").pvalue < 1e-3 / 4
    entries = np.concatenate([default.B.reshape(400, -1), default.W.reshape(400, -1)], axis=1)
    correlation = np.corrcoef(entries.T) - np.eye(entries.shape[1])
    assert np.abs(correlation).max() < stats.norm.isf(1e-3 / entries.shape[1] ** 2) / np.sqrt(400) * 1.05
    np.testing.assert_allclose(given.B, 180 * default.B, rtol=1e-14)


WARM = {
    "explicit": (lf.FixedSamples(12), "explicit", {}),
    "compressed": (lf.FixedSamples(12), "compressed", {}),
    "few samples": (lf.FixedSamples(4), "explicit", {"gamma1": 0.3, "gradient_factor": 2}),
}


@pytest.mark.parametrize("name", WARM)
def test_a_warm_start_goes_on_to_the_bit(name):
    data, engine, options = WARM[name]
    algorithm = lf.FLUTE(rank=2, step_size=0.05, init=lf.SmallRandom(0.5), **options)

    def run(algorithm, n_rounds):
        return lf.simulate(algorithm, UNDER, data=data, n_rounds=n_rounds, trials=3, seed=1, engine=engine)

    whole, first = run(algorithm, 10), run(algorithm, 5)
    second = run(dataclasses.replace(algorithm, init=lf.GivenFactors(first.final.B, first.final.W)), 5)
    assert whole.final.B.tobytes() == second.final.B.tobytes()
    assert whole.final.W.tobytes() == second.final.W.tobytes()
    for metric, values in whole.metrics.items():
        assert values[:, 5:].tobytes() == second.metrics[metric].tobytes()


def test_given_factors_with_and_without_trials():
    B, W = normal(3, 9, 2), normal(3, 7, 2, seed=1)
    run = {"data": lf.FixedSamples(12), "n_rounds": 5, "seed": 2}
    many = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(B, W)), UNDER, **run)
    mixed = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(B, W[0])), UNDER, **run)
    alike = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=[B[0], W[0]]), UNDER, trials=3, **run)
    assert many.trials == 3
    assert many.final.B[0].tobytes() == mixed.final.B[0].tobytes() == alike.final.B[0].tobytes()
    assert not np.isclose(many.final.B[1], mixed.final.B[1]).all()
    for heads in (W, W[0]):
        assert lf.GivenFactors(B, heads).n_trials == 3
    with pytest.raises(ValueError, match=r"arrays for \[2, 3\] trials"):
        lf.GivenFactors(B[:2], W)


def test_columns_are_independent_in_every_trial_or_not():
    B = normal(3, 8, 2)
    assert lf.GivenSubspace(B[0]).independent()
    assert lf.GivenSubspace(B).independent()
    B[1, :, 1] = 2.0 * B[1, :, 0]
    assert not lf.GivenSubspace(B).independent()


def test_labels_at_the_threshold_count():
    X, y = normal(2, 4, 6, 5), np.sign(normal(2, 4, 6, seed=1)) * [[[1.0]], [[3.0]]]
    init, data = lf.TruncatedAverages(threshold=1.0), lf.GivenSamples(X, y)
    B = lf.simulate(lf.FedRep(rank=2, step_size=0.1, init=init), data=data, n_rounds=0).final.B
    gram = lf.simulate(lf.LocalGram(rank=2), data=data, n_rounds=1).final.B
    np.testing.assert_allclose(B @ B.mT, gram @ gram.mT, atol=1e-10)


def test_given_arrays_are_copies_that_cannot_be_written_into():
    B, W = (part.copy() for part in FACTORS)
    init = lf.GivenFactors(B, W)
    for kept, array in ((lf.GivenSubspace(B).B, B), (init.B, B), (init.W, W)):
        assert not np.shares_memory(kept, array)
        assert array.flags.writeable
        assert not kept.flags.writeable


@pytest.mark.parametrize(("clients", "samples"), [(4, 2e8), (None, 1e8)])
def test_moments_take_1e14_operations_and_three_matrices(clients, samples):
    """Of dimension 1000, with the samples of half of the clients or of all."""
    sizes = {"rank": 2, "n_clients": 8, "dim": 1000, "samples": samples, "memory": 24e6}
    init = lf.Moments(clients=clients)
    init.check(**sizes)
    for large in ({"samples": 1.01 * samples}, {"memory": 24e6 - 1.0}):
        with pytest.raises(lf.SizeError, match="a 1000 x 1000 matrix"):
            init.check(**sizes | large)


# --- one of a user's own -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["explicit", "compressed"])
def test_a_truncated_spectral_start_is_that_of_the_loops(engine):
    result = started(lf.FedRep(rank=2, step_size=0.1, init=Truncated(2.0)), engine=engine)
    given = FIXED.draw(PROBLEM, trials=3, seed=5)
    for B, X, y in zip(result.final.B, given.X, given.y, strict=True):
        (kept, _), (every, _) = (ref.truncated_averages(X, y, 2, threshold) for threshold in (2.0, 1e9))
        np.testing.assert_allclose(B @ B.T, kept @ kept.T, atol=1e-10)
        assert np.abs(B @ B.T - every @ every.T).max() > 1e-3  # some labels were left out


SERVED = [(lf.FixedSamples, engine) for engine in ("explicit", "compressed")]
SERVED += [(lf.FreshSamples, engine) for engine in ("auto", "explicit", "compressed", "projected", "chain")]


@dataclasses.dataclass(frozen=True)
class MomentsByHand(lf.Initial):
    """The method of moments from a first batch."""

    needs_batch = True

    def resolve(self, start, rank):
        batch = start.batch()
        assert batch.active.tolist() == [list(range(start.n_clients))] * start.trials
        moment = np.einsum("tnm,tnmd,tnme->tde", batch.y**2 / batch.counts[..., None], batch.X, batch.X)
        return np.linalg.eigh(moment)[1][..., : -rank - 1 : -1]


@pytest.mark.parametrize(("kind", "engine"), SERVED[:-1])  # the chain's frame has signs of its own
def test_the_first_batch_is_the_one_that_the_moments_see(kind, engine, monkeypatch):
    data = kind(12)
    monkeypatch.setattr("linfed.data.sources.CACHE_VALUES", 700)  # several blocks of clients
    wanted, found = (
        started(lf.FedRep(rank=2, step_size=0.1, init=init), data=data, engine=engine).final.B
        for init in ("moments", MomentsByHand())
    )
    np.testing.assert_allclose(found @ found.mT, wanted @ wanted.mT, atol=1e-10)


@pytest.mark.parametrize("data", [FIXED, FRESH])
def test_a_first_batch_takes_nothing_from_the_rounds(data):
    """The rounds see the samples that they see from any other start."""

    @dataclasses.dataclass(frozen=True)
    class Looks(lf.Initial):
        needs_batch = True

        def resolve(self, start, rank):
            start.batch().least_squares()
            return lf.RandomSubspace().resolve(start, rank)

    for engine in ("explicit", "compressed"):
        runs = [
            lf.simulate(lf.FedRep(rank=2, step_size=0.1, init=init), PROBLEM, data=data, n_rounds=4, engine=engine)
            for init in ("random", Looks())
        ]
        assert_same(*runs)


def test_the_memory_of_a_first_batch_is_counted():
    big = lf.SharedRepresentation(n_clients=100, dim=50, rank=2)
    arguments = {"data": lf.FreshSamples(1000), "n_rounds": 1, "engine": "projected", "memory_budget": 2e7}
    lf.simulate(FEDREP, big, **arguments)
    with pytest.raises(lf.SizeError, match="one trial needs"):
        lf.simulate(lf.FedRep(rank=2, step_size=0.1, init=Truncated()), big, **arguments)
    lf.simulate(lf.FedRep(rank=2, step_size=0.1, init=lf.TruncatedAverages()), big, **arguments)  # reads blocks

    @dataclasses.dataclass(frozen=True)
    class Large(lf.Initial):
        def floats_per_trial(self, *, rank, n_clients, dim):
            return 10**7 * rank * n_clients // dim

        def resolve(self, start, rank):
            return start.random().standard_normal((start.dim, rank))

    with pytest.raises(lf.SizeError, match="one trial needs about 320 MB"):
        lf.simulate(lf.FedRep(rank=2, step_size=0.1, init=Large()), big, **arguments | {"memory_budget": 1e8})


def test_samples_that_are_not_drawn_cannot_be_seen():
    algorithm = lf.FedRep(rank=2, step_size=0.1, init=Truncated())
    with pytest.raises(lf.EngineError, match=r"init = Truncated.* requires samples"):
        started(algorithm, data=lf.FixedSamples(12, in_law=True))


def test_a_first_batch_is_announced():
    @dataclasses.dataclass(frozen=True)
    class Silent(Truncated):
        needs_batch = False

    with pytest.raises(ValueError, match=r"requests a first batch: set Silent.needs_batch = True"):
        started(lf.FedRep(rank=2, step_size=0.1, init=Silent()))
    with pytest.raises(ValueError, match=r"memory was not counted: let Starts.initialization return it"):
        started(Starts(begin=Truncated()))
    assert_same(started(Says(begin=Truncated())), started(lf.FedRep(rank=2, step_size=0.1, init=Truncated())))


RETURNS = {
    "nothing": (None, TypeError, r"Own.resolve returned B = None, expected an array of shape \(trials, d, k\)"),
    "one trial": (np.ones((8, 2)), ValueError, r"Own.resolve returned B of shape \(8, 2\), expected .* = \(3, 8, 2\)"),
    "columns": (np.ones((3, 8, 3)), ValueError, r"returned B of shape \(3, 8, 3\), expected .* = \(3, 8, 2\)"),
    "complex": (1j * np.ones((3, 8, 2)), TypeError, "returned B of dtype complex128, expected real"),
    "a list": ([[1.0]], TypeError, r"Own.resolve returned B = \[\[1.0\]\], expected an array"),
}


@pytest.mark.parametrize("name", RETURNS)
def test_what_an_initialisation_returns_is_checked(name):
    value, kind, message = RETURNS[name]

    class Own(lf.Initial):
        def resolve(self, start, rank):
            return value

    with pytest.raises(kind, match=message):
        started(lf.FedRep(rank=2, step_size=0.1, init=Own()))

    class Own(InitialFactors):
        def resolve(self, start, rank):
            return value, np.ones((3, 30, 2))

    with pytest.raises(kind, match=message):
        started(lf.FLUTE(rank=2, step_size=0.1, init=Own()))


def test_own_factors():
    @dataclasses.dataclass(frozen=True)
    class Balanced(InitialFactors):
        needs_batch = True

        def resolve(self, start, rank):
            U, s, Vt = np.linalg.svd(start.batch().least_squares().mT, full_matrices=False)
            root = np.sqrt(s[:, None, :rank])
            return U[..., :rank] * root, Vt.mT[..., :rank] * root

    result = started(lf.FLUTE(rank=2, step_size=0.01, init=Balanced()), data=lf.FixedSamples(40))
    assert (result.metrics["subspace_distance"] < 0.05).all()
    np.testing.assert_allclose(result.final.B.mT @ result.final.B, result.final.W.mT @ result.final.W, atol=1e-12)

    class Own(InitialFactors):
        def resolve(self, start, rank):
            return np.ones((3, 8, 2))

    with pytest.raises(TypeError, match=r"Own.resolve returned ndarray, expected a pair"):
        started(lf.FLUTE(rank=2, step_size=0.1, init=Own()))


def test_initialisations_are_compared_by_value():
    assert lf.FedRep(rank=2, step_size=0.1, init=FACTORS[0]) == lf.FedRep(rank=2, step_size=0.1, init=FACTORS[0].copy())
    assert lf.FedRep(rank=2, step_size=0.1, init=FACTORS[0]) != lf.FedRep(rank=2, step_size=0.1, init=-FACTORS[0])
    assert lf.FLUTE(rank=2, step_size=0.1, init=FACTORS) == lf.FLUTE(rank=2, step_size=0.1, init=FACTORS)
    assert Truncated(2.0) != Truncated(3.0)
    assert len({lf.Moments(), lf.Moments(clients=3), lf.RandomSubspace(), lf.RandomSubspace(), Truncated()}) == 4
