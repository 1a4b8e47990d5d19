"""FLUTE: the loops of its pseudocode, its objective, its starts, its fixed points, and its law under every engine."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.data import sources
from linfed.data.projected import draws
from linfed.data.projected.features import ProjectedFeatures
from linfed.data.sources import Sizes
from linfed.numerics import linalg
from linfed.numerics.linalg import qr_positive
from linfed.simulation.engines import open_source
from tests import references as ref
from tests.data.laws import (
    FAMILY,
    SEEDS,
    TRIALS,
    assert_same_law,
    complement_times,
    one_wishart_degree_off,
    p_values,
    two_degrees_off,
    without_complement,
)
from tests.helpers import basis, covering, each, normal, rounds_of, some

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}


def flute(X, y, participants, B, W, **options):
    """Return the states (B, W) of a run on fixed local data, the initial one first."""
    states = [(B, W)]
    for active in participants:
        chosen = [X[i] for i in active], [y[i] for i in active]
        states.append(ref.flute_round(*states[-1], *chosen, active, **options))
    return states


OPTIONS = {
    "defaults": {},
    "a server's own step": {"server_step_size": 0.05},
    "no server": {"server_step_size": 0.0},
    "no weights": {"gamma1": 0.0, "gamma2": 0.0},
    "growth alone": {"gamma1": 0.03, "gamma2": 0.0},
    "other weights": {"gamma1": 0.1, "gamma2": 0.3, "server_step_size": 0.01},
    "factor 2": {"gradient_factor": 2},
    "factor 2, other weights": {"gradient_factor": 2, "gamma1": 0.3, "gamma2": 0.2, "server_step_size": 0.03},
}

# --- equality with the loops ---------------------------------------------------------------------------------

# name: samples of each client, d, k, participants a round
SHAPES = {
    "m < d": ([4] * 6, 7, 3, 6),
    "m == d": ([7] * 6, 7, 3, 6),
    "m > d": ([12] * 6, 7, 3, 6),
    "some take part": ([12] * 6, 7, 3, 4),
    "one takes part": ([9] * 5, 6, 2, 1),
    "n == k": ([9] * 3, 6, 3, 3),
    "n < k": ([9] * 2, 6, 3, 2),
    "k == 1": ([9] * 5, 6, 1, 3),
    "n == 1": ([9], 6, 2, 1),
    "k == d": ([6] * 4, 3, 3, 3),
    "n == k == d == m": ([3] * 3, 3, 3, 3),
    "d == 1": ([3] * 4, 1, 1, 2),
    "unequal": ([2, 9, 3, 12, 7, 5], 6, 3, 4),
    "unequal, all take part": ([1, 9, 3, 12, 7, 5], 6, 3, 6),
}
ROUNDS = 40
RATE = 0.02


def draw(counts, d, k, noise=0.3, seed=0):
    """Return samples of a truth of full rank, one array a client, and factors to start from."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((m, d)) for m in counts]
    y = [X_i @ rng.standard_normal(d) * 0.7 + noise * rng.standard_normal(len(X_i)) for X_i in X]
    return X, y, 0.6 * rng.standard_normal((d, k)), 0.6 * rng.standard_normal((len(counts), k))


def drawn_participants(n, p, rounds, seed=0):
    rng = np.random.default_rng(seed)
    return np.array([np.sort(rng.permutation(n)[:p]) for _ in range(rounds)])


def assert_follows(steps, states):
    """Assert that each round ends where the loops do, and begins where the last one ended."""
    steps = list(steps)
    assert [step.number for step in steps] == list(range(1, len(states)))
    for step, (B, W), (new_B, new_W) in zip(steps, states, states[1:], strict=False):
        for state, (wanted_B, wanted_W) in ((step.before, (B, W)), (step.after, (new_B, new_W))):
            np.testing.assert_allclose(state.B[0], wanted_B, **TOLERANCE)
            np.testing.assert_allclose(state.W[0], wanted_W, **TOLERANCE)


ENGINES = [
    (shape, engine)
    for shape, (counts, d, _, _) in SHAPES.items()
    for engine in ("explicit", "compressed")
    if engine == "explicit" or max(counts) > d
]


def crossed(shape, engine, option):
    """Yield what has to meet in one run: factors of the gradient with shapes, and options with engines and samples."""
    counts, d, _, p = SHAPES[shape]
    yield shape, engine, option.split(",")[0] == "factor 2"
    yield option, engine
    yield option, "unequal" if len(set(counts)) > 1 else int(np.sign(counts[0] - d))
    yield option, p == len(counts)


COVER = covering([(shape, engine, option) for shape, engine in ENGINES for option in OPTIONS], crossed)


@each(("shape", "engine", "option"), COVER)
def test_every_state_equals_the_loops(shape, engine, option):
    counts, d, k, p = SHAPES[shape]
    X, y, B, W = draw(counts, d, k)
    participants = drawn_participants(len(counts), p, ROUNDS)
    algorithm = lf.FLUTE(rank=k, step_size=RATE, init=(B, W), **OPTIONS[option])
    data = lf.GivenSamples(X, y)
    steps = rounds_of(algorithm, data=data, rounds=ROUNDS, participation=participants, engine=engine)
    states = flute(X, y, participants, B, W, step_size=RATE, **OPTIONS[option])
    assert np.abs(states[-1][0] - B).max() > 1e-2
    assert_follows(steps, states)


@pytest.mark.long
@pytest.mark.parametrize("streamed", [False, True], ids=["drawn ahead", "drawn when read"])
@pytest.mark.parametrize("kind", [lf.FreshSamples, lf.FixedSamples])
@pytest.mark.parametrize("engine", ["explicit", "compressed"])
@pytest.mark.parametrize("p", [5, 3])
@pytest.mark.parametrize("option", ["defaults", "factor 2, other weights"])
def test_drawn_samples_replayed_through_the_loops(kind, engine, p, option, streamed, monkeypatch):
    n, d, k, m = 5, 6, 2, 9
    if streamed:
        monkeypatch.setattr(sources, "CACHE_VALUES", 0)
        monkeypatch.setattr(linalg, "CACHE_VALUES", 2 * m * d)
    problem = lf.GivenTruth(Phi=normal(n, d, seed=3), noise_std=0.3)
    B, W = 0.6 * normal(d, k, seed=4), 0.6 * normal(n, k, seed=5)
    algorithm = lf.FLUTE(rank=k, step_size=RATE, init=(B, W), **OPTIONS[option])
    states, seen = [(B, W)] * 2, []
    arguments = {"rounds": 20, "participation": p, "trials": 2, "engine": engine}
    for step in rounds_of(algorithm, problem, data=kind(m), **arguments):
        active, rows = step.batch.active, step.batch.X.shape[2]
        assert rows == (m if engine == "explicit" else d + 1)
        # The pseudo-samples stand for m samples: the loops, which divide by their number, see them scaled.
        X, y = (np.sqrt(rows / m) * array for array in (step.batch.X, step.batch.y))
        seen.append(X.copy())
        for trial in range(2):
            states[trial] = ref.flute_round(
                *states[trial], X[trial], y[trial], active[trial], step_size=RATE, **OPTIONS[option]
            )
            np.testing.assert_allclose(step.after.B[trial], states[trial][0], **TOLERANCE)
            np.testing.assert_allclose(step.after.W[trial], states[trial][1], **TOLERANCE)
    again = np.isin(seen[0], seen[1])[seen[0] != 0]  # a triangle is zero below its diagonal
    assert again.any() == (kind is lf.FixedSamples)


@pytest.mark.parametrize("engine", ["explicit", "compressed", "projected", "chain"])
def test_clients_that_stay_away_keep_their_heads_bit_for_bit(engine):
    problem = lf.GivenTruth(B=basis(7, 2, seed=1), W=normal(6, 2, seed=2), noise_std=0.3)
    participants = drawn_participants(6, 2, 8)
    algorithm = lf.FLUTE(rank=2, step_size=0.05, init=(normal(7, 2), normal(6, 2, seed=1)))
    for step in rounds_of(
        algorithm, problem, data=lf.FreshSamples(9), rounds=8, participation=participants, trials=3, engine=engine
    ):
        here = participants[step.number - 1]
        away = np.setdiff1d(np.arange(6), here)
        assert step.before.W[:, away].tobytes() == step.after.W[:, away].tobytes()
        assert not (step.before.W[:, here] == step.after.W[:, here]).any()


def test_the_others_take_no_part_in_the_regulariser():
    """Neither their samples nor their heads matter to a round without them."""
    X, y, B, W = draw([9] * 5, 6, 2)
    other_X, other_y, _, other_W = draw([9] * 5, 6, 2, seed=1)
    here = [0, 3]
    mixed = [X[i] if i in here else other_X[i] for i in range(5)]
    labels = [y[i] if i in here else other_y[i] for i in range(5)]
    heads = np.where(np.isin(np.arange(5), here)[:, None], W, 100 * other_W)
    one, two = (
        lf.simulate(
            lf.FLUTE(rank=2, step_size=0.1, init=(B, start)),
            data=lf.GivenSamples(rows, values),
            rounds=3,
            participation=[here] * 3,
        ).final
        for rows, values, start in ((X, y, W), (mixed, labels, heads))
    )
    assert np.array_equal(one.B, two.B)
    assert np.array_equal(one.W[:, here], two.W[:, here])


# --- the objective -------------------------------------------------------------------------------------------


def objective(B, W, X, y, ratio, gamma1, gamma2, factor):
    """Return the function (4) of which a round is a gradient step; `ratio` weighs the server's part."""
    loss = sum(factor * np.sum((X_i @ B @ w - y_i) ** 2) / (2 * len(y_i)) for X_i, y_i, w in zip(X, y, W, strict=True))
    grams = np.sum((B.T @ B) ** 2) + np.sum((W.T @ W) ** 2)
    return loss - ratio * (gamma1 * np.sum((B @ W.T) ** 2) - gamma2 * grams)


@each("counts", [[4] * 5, [9] * 5, [1, 8, 3, 12, 5]], ids=["m < d", "m > d", "unequal"])
@each("option", OPTIONS)
def test_a_round_is_a_gradient_step_of_the_objective(option, counts):
    X, y, B, W = draw(counts, 6, 2)
    options = {"step_size": 0.01, "server_step_size": 0.01, "gamma1": 0.25, "gamma2": 0.125, "gradient_factor": 1}
    options |= OPTIONS[option]
    final = lf.simulate(lf.FLUTE(rank=2, init=(B, W), **options), data=lf.GivenSamples(X, y), rounds=1).final
    moved = [(final.B[0] - B) / -options["step_size"], (final.W[0] - W) / -options["step_size"]]
    ratio = options["server_step_size"] / options["step_size"]

    def value(*factors):
        return objective(*factors, X, y, ratio, options["gamma1"], options["gamma2"], options["gradient_factor"])

    for which, gradient in enumerate(moved):
        for index in np.ndindex(gradient.shape):
            values = []
            for sign in (1, -1):
                factors = [B.copy(), W.copy()]
                factors[which][index] += sign * 1e-5
                values.append(value(*factors))
            assert gradient[index] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("server", "factor", "wanted"), [(None, 1, 1.0), (None, 2, 0.5), (0.03, 1, 0.3), (0.4, 2, 2.0), (0.0, 1, 0.0)]
)
def test_the_ratio_of_the_steps_counts_the_factor(server, factor, wanted):
    algorithm = lf.FLUTE(rank=1, step_size=0.1, server_step_size=server, gradient_factor=factor)
    assert algorithm.step_ratio == pytest.approx(wanted, rel=1e-15)


# --- both gradients at once ----------------------------------------------------------------------------------

HELD, STREAMED = None, 60
BATCHES = {
    "explicit, fixed": ("explicit", lf.FixedSamples(12), HELD),
    "explicit, fresh": ("explicit", lf.FreshSamples(12), HELD),
    "explicit, fresh, few": ("explicit", lf.FreshSamples(1), HELD),
    "explicit, streamed": ("explicit", lf.FreshSamples(12), STREAMED),
    "compressed, fixed": ("compressed", lf.FixedSamples(12), HELD),
    "compressed, fresh": ("compressed", lf.FreshSamples(12), HELD),
    "projected": ("projected", lf.FreshSamples(12), HELD),
    "projected, few": ("projected", lf.FreshSamples(2), HELD),
    "projected, in blocks": ("projected", lf.FreshSamples(12), STREAMED),
    "chain": ("chain", lf.FreshSamples(12), HELD),
    "chain, in blocks": ("chain", lf.FreshSamples(12), STREAMED),
}
TRUTHS = {
    "low-rank": lf.GivenTruth(B=basis(9, 2, seed=20), W=normal(6, 2, seed=21), noise_std=0.3),
    "noiseless": lf.GivenTruth(B=basis(9, 2, seed=20), W=normal(6, 2, seed=21)),
    "dense": lf.GivenTruth(Phi=normal(6, 9, seed=22), noise_std=0.3),
}
WEIGHTS = {
    "mean": None,
    "sum": 1.0,
    "a share": 0.3,
    "one each": np.linspace(-0.5, 1.5, 12).reshape(3, 4),
}
ACTIVE = np.array([[0, 2, 3, 5], [1, 2, 3, 4], [0, 1, 4, 5]])


def opened(name, problem, monkeypatch, rounds=3):
    engine, data, limit = BATCHES[name]
    if limit is not None:
        monkeypatch.setattr(sources, "CACHE_VALUES", 0)
        monkeypatch.setattr(draws, "BLOCK_VALUES", 0)
        monkeypatch.setattr(linalg, "CACHE_VALUES", limit)
    sizes = Sizes(n_clients=6, dim=9, participants=4, rounds=rounds, features=20)
    return open_source(engine, data, problem.truth(0, range(3)), sizes, 2, 5, range(3))


def heads_and_b(name, seed):
    rows = 6 if name.startswith("chain") else 9
    B = normal(3, rows, 2, seed=seed)
    if name.startswith("chain"):
        B[:, 4:] = 0.0
    return normal(3, 4, 2, seed=seed + 100), B


PLACES = [(name, truth) for name in BATCHES for truth in TRUTHS if not ("chain" in name and truth == "dense")]


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("name", "truth"), PLACES)
def test_both_gradients_at_once_are_the_two_of_one_batch(name, truth, weights, monkeypatch):
    """Asked together, and one by one of the same draw; round after round, so that the streams stand alike."""
    together, alone = (opened(name, TRUTHS[truth], monkeypatch) for _ in range(2))
    for round_ in range(3):
        W, B = heads_and_b(name, round_)
        both = together.round(ACTIVE).project(B).gradients(W, WEIGHTS[weights])
        features = alone.round(ACTIVE).project(B)
        each = features.head_gradient(W), features.representation_gradient(W, WEIGHTS[weights])
        for one, other in zip(both, each, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)
    assert np.abs(both[1]).max() > 1e-2


@pytest.mark.parametrize("name", BATCHES)
def test_weights_scale_the_message_of_one_draw(name, monkeypatch):
    W, B = heads_and_b(name, 0)
    wanted = None
    for weights in (1.0, 0.3, np.full((3, 4), 0.3), None):
        share = 0.25 if weights is None else weights if isinstance(weights, float) else 0.3
        source = opened(name, TRUTHS["low-rank"], monkeypatch)
        heads, representation = source.round(ACTIVE).project(B).gradients(W, weights)
        wanted = wanted or (heads, representation)
        np.testing.assert_allclose(heads, wanted[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(representation, share * wanted[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", BATCHES)
def test_both_gradients_are_their_askers_own(name, weights, monkeypatch):
    """Who writes into them changes neither what was asked with nor the next answer."""
    W, B = heads_and_b(name, 0)
    given = W.copy(), B.copy()
    features = opened(name, TRUTHS["low-rank"], monkeypatch).round(ACTIVE).project(B)
    first = features.gradients(W, WEIGHTS[weights])
    kept = [part.copy() for part in first]
    for part in first:
        part *= -7.0
    assert np.array_equal(W, given[0])
    assert np.array_equal(B, given[1])
    for one, other in zip(features.gradients(W, WEIGHTS[weights]), kept, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", [name for name in BATCHES if name.startswith(("explicit", "compressed"))])
def test_both_gradients_are_those_of_the_rows(name, weights, monkeypatch):
    source = opened(name, TRUTHS["dense"], monkeypatch)
    for round_ in range(3):
        W, B = heads_and_b(name, round_)
        batch = source.round(ACTIVE)
        heads, representation = batch.project(B).gradients(W, WEIGHTS[weights])
        X, y = batch.X, batch.y
        residual = np.einsum("tnmd,tdk,tnk->tnm", X, B, W) - y
        messages = np.einsum("tnm,tnmd->tnd", residual, X) / batch.counts[..., None]
        share = np.full((3, 4), 0.25) if WEIGHTS[weights] is None else np.broadcast_to(WEIGHTS[weights], (3, 4))
        np.testing.assert_allclose(heads, messages @ B, rtol=1e-11, atol=1e-11)
        wanted = np.einsum("tn,tnd,tnk->tdk", share, messages, W)
        np.testing.assert_allclose(representation, wanted, rtol=1e-11, atol=1e-11)


def test_streamed_rows_are_the_rows_that_are_drawn_ahead(monkeypatch):
    """Whatever is asked of a round, and if nothing is, the next one sees its own rows."""
    ahead = opened("explicit, fresh", TRUTHS["low-rank"], monkeypatch, rounds=5)
    wanted = [(batch.X.copy(), batch.y.copy()) for batch in (ahead.round(ACTIVE) for _ in range(5))]
    W, B = heads_and_b("explicit", 0)
    questions = [
        lambda batch: batch.project(B).gradients(W),
        lambda batch: (batch.project(B).gradients(W), batch.project(B).gradients(W, 1.0)),
        lambda batch: None,
        lambda batch: (batch.project(B).gradients(W), batch.loss(np.zeros((3, 1, 9)))),
        lambda batch: batch.X,
    ]
    for order in (questions, questions[::-1]):
        source = opened("explicit, streamed", TRUTHS["low-rank"], monkeypatch, rounds=5)
        for ask, (X, y) in zip(order, wanted, strict=True):
            batch = source.round(ACTIVE)
            assert type(batch.rows).__name__ == "DrawnRows"
            ask(batch)
            if ask is not questions[2]:
                assert np.array_equal(batch.X, X)
                np.testing.assert_allclose(batch.y, y, rtol=1e-12, atol=1e-12)


def test_gradients_are_streamed_without_keeping_the_rows(monkeypatch):
    source = opened("explicit, streamed", TRUTHS["low-rank"], monkeypatch)
    batch = source.round(ACTIVE)
    W, B = heads_and_b("explicit", 0)
    batch.project(B).gradients(W, 1.0)
    assert batch.rows._X is None


def test_given_samples_are_left_alone_by_the_gram_form(monkeypatch):
    source = opened("compressed, fixed", TRUTHS["dense"], monkeypatch)
    W, B = heads_and_b("compressed", 0)
    first = [part.copy() for part in source.round(ACTIVE).project(B).gradients(W, 1.0)]
    source.round(ACTIVE[::-1]).project(2 * B).gradients(W, 1.0)
    for one, other in zip(first, source.round(ACTIVE).project(B).gradients(W, 1.0), strict=True):
        assert one.tobytes() == other.tobytes()


# --- starts --------------------------------------------------------------------------------------------------

START = lf.UnderParameterized(n_clients=7, dim=9)


def start_of(algorithm, problem=START, trials=4, seed=3):
    return lf.simulate(algorithm, problem, data=lf.FreshSamples(5), rounds=0, trials=trials, seed=seed).final


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
            assert stats.kstest(array.ravel() / scale, "norm").pvalue > FAMILY / 4
            assert stats.kstest(array.ravel() / (1.1 * scale), "norm").pvalue < FAMILY / 4
    entries = np.concatenate([default.B.reshape(400, -1), default.W.reshape(400, -1)], axis=1)
    correlation = np.corrcoef(entries.T) - np.eye(entries.shape[1])
    assert np.abs(correlation).max() < stats.norm.isf(FAMILY / entries.shape[1] ** 2) / np.sqrt(400) * 1.05
    np.testing.assert_allclose(given.B, 180 * default.B, rtol=1e-14)


def test_a_trials_start_is_its_own():
    algorithm = lf.FLUTE(rank=3, step_size=0.1)
    four, two = start_of(algorithm), start_of(algorithm, trials=2)
    assert four.B[:2].tobytes() == two.B.tobytes()
    assert four.W[:2].tobytes() == two.W.tobytes()
    assert len({B.tobytes() for B in four.B}) == len({W.tobytes() for W in four.W}) == 4
    assert not np.isin(four.B, four.W).any()


WARM = {
    "explicit": (lf.FixedSamples(12), "explicit", {}),
    "compressed": (lf.FixedSamples(12), "compressed", {}),
    "few samples": (lf.FixedSamples(4), "explicit", {"gamma1": 0.3, "gradient_factor": 2}),
}


@pytest.mark.parametrize("name", WARM)
def test_a_warm_start_goes_on_to_the_bit(name):
    data, engine, options = WARM[name]
    algorithm = lf.FLUTE(rank=2, step_size=0.05, init=lf.SmallRandom(0.5), **options)

    def run(algorithm, rounds):
        return lf.simulate(algorithm, START, data=data, rounds=rounds, trials=3, seed=1, engine=engine)

    whole, first = run(algorithm, 10), run(algorithm, 5)
    second = run(dataclasses.replace(algorithm, init=lf.GivenFactors(first.final.B, first.final.W)), 5)
    assert whole.final.B.tobytes() == second.final.B.tobytes()
    assert whole.final.W.tobytes() == second.final.W.tobytes()
    for metric, values in whole.metrics.items():
        assert values[:, 5:].tobytes() == second.metrics[metric].tobytes()


def test_given_factors_with_and_without_trials():
    B, W = normal(3, 9, 2), normal(3, 7, 2, seed=1)
    arguments = {"data": lf.FixedSamples(12), "rounds": 5, "seed": 2}
    many = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(B, W)), START, **arguments)
    assert many.trials == 3
    mixed = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(B, W[0])), START, **arguments)
    assert many.final.B[0].tobytes() == mixed.final.B[0].tobytes()
    assert not np.isclose(many.final.B[1], mixed.final.B[1]).all()
    alike = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=[B[0], W[0]]), START, trials=3, **arguments)
    assert alike.final.B[0].tobytes() == many.final.B[0].tobytes()
    one = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(B, W)), START, trials=3, metrics=[], **arguments)
    assert one.final.W.tobytes() == many.final.W.tobytes()


def test_given_factors_are_kept_apart_from_the_caller():
    B, W = normal(9, 2), normal(7, 2, seed=1)
    kept = B.copy(), W.copy()
    algorithm = lf.FLUTE(rank=2, step_size=0.05, init=(B, W))
    result = lf.simulate(algorithm, START, data=lf.FixedSamples(5), rounds=0)
    assert not any(np.shares_memory(result.final.B, array) for array in (B, algorithm.init.B))
    assert B.flags.writeable  # the state is read-only, the caller's array is not
    B[...], W[...] = 1.0, 1.0
    assert np.array_equal(algorithm.init.B, kept[0])
    assert np.array_equal(algorithm.init.W, kept[1])
    with pytest.raises(ValueError, match="read-only"):
        algorithm.init.W[0] = 0.0
    assert algorithm == lf.FLUTE(rank=2, step_size=0.05, init=kept)
    assert hash(algorithm) == hash(lf.FLUTE(rank=2, step_size=0.05, init=kept))
    assert algorithm != lf.FLUTE(rank=2, step_size=0.05, init=(kept[0], -kept[1]))


FACTORS = {
    "B of two trials, heads of three": (normal(2, 9, 2), normal(3, 7, 2)),
    "B of three trials, heads of two": (normal(3, 9, 2), normal(2, 7, 2)),
    "B of three trials, heads of one": (normal(3, 9, 2), normal(1, 7, 2)),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_unequal_trials_are_refused(name):
    with pytest.raises(ValueError, match=r"init.*trials"):
        lf.simulate(
            lf.FLUTE(rank=2, step_size=0.05, init=FACTORS[name]), START, data=lf.FixedSamples(5), rounds=1, metrics=[]
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init": ([[1.0, 2.0], [3.0]], normal(7, 2))}, "init"),
        ({"gradient_factor": np.array([1, 2])}, "gradient_factor"),
    ],
    ids=["a ragged B", "an array for a factor"],
)
def test_what_is_wrong_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        lf.FLUTE(rank=2, step_size=0.1, **changes)


# --- fixed points at population ------------------------------------------------------------------------------

LAMBDA = np.array([2.0, 1.3, 0.6, 0.3])
U, V = basis(4, 4, seed=1), basis(6, 4, seed=2)
# X_i = sqrt(d) I, which makes A_i the unit matrix, exactly.
POPULATION = lf.GivenSamples(np.broadcast_to(2.0 * np.eye(4), (6, 4, 4)), 2.0 * (V * LAMBDA) @ U.T)

# gamma1, gamma2, server's share of the step, factor of the data gradient
MINIMISERS = {
    "balanced": (0.25, 0.125, 1.0, 1),
    "balanced, other weights": (0.5, 0.25, 0.7, 1),
    "shrunk": (0.1, 0.2, 1.0, 1),
    "shrunk, a larger server step": (0.1, 0.15, 2.5, 1),
    "shrunk, factor 2": (0.1, 0.2, 1.0, 2),
    "no growth": (0.0, 0.125, 1.0, 1),
    "grown": (0.4, 0.1, 1.0, 1),
    "grown, a smaller server step": (0.6, 0.1, 0.3, 1),
    "grown beyond 1, factor 2": (0.8, 0.1, 1.0, 2),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MINIMISERS)
def test_the_population_minimiser_keeps_the_leading_directions(name):
    """``sigma_j = lambda_j / (1 + (eta_r/eta_l)(4 gamma2 - 2 gamma1))`` for the k leading ones, none else; balanced."""
    gamma1, gamma2, share, factor = MINIMISERS[name]
    step = 0.06 / factor
    algorithm = lf.FLUTE(
        rank=2,
        step_size=step,
        server_step_size=share * step,
        gamma1=gamma1,
        gamma2=gamma2,
        gradient_factor=factor,
        init=lf.SmallRandom(0.1),
    )
    result = lf.simulate(algorithm, data=POPULATION, rounds=900, trials=2, seed=1)
    sigma = LAMBDA[:2] / (1 + algorithm.step_ratio * (4 * gamma2 - 2 * gamma1))
    for Theta, B, W in zip(result.final.predictors(), result.final.B, result.final.W, strict=True):
        np.testing.assert_allclose(Theta, (V[:, :2] * sigma) @ U[:, :2].T, rtol=0, atol=1e-8)
        np.testing.assert_allclose(B.T @ B, W.T @ W, rtol=0, atol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize(
    ("gamma2", "share", "factor"), [(0.125, 1.0, 1), (0.0, 1.0, 1), (0.25, 0.5, 1), (0.125, 1.0, 2)]
)
def test_the_population_diverges_from_the_threshold_on(gamma2, share, factor):
    """``(eta_r/eta_l)(2 gamma1 - 4 gamma2) >= 1`` leaves nothing that holds the factors back."""

    def run(excess):
        gamma1 = ((1 + excess) * factor / share + 4 * gamma2) / 2  # all numbers are dyadic
        algorithm = lf.FLUTE(
            rank=2,
            step_size=0.03125 / factor,
            server_step_size=0.03125 * share / factor,
            gamma1=gamma1,
            gamma2=gamma2,
            gradient_factor=factor,
            init=lf.SmallRandom(0.1),
        )
        assert 2 * gamma1 - 4 * gamma2 == (1 + excess) / algorithm.step_ratio
        return lf.simulate(algorithm, data=POPULATION, rounds=2000, seed=1)

    # Without gamma2 the factors grow at the threshold until rounding holds them.
    for excess in (0.0, 0.25) if gamma2 > 0 else (0.25,):
        result = run(excess)
        assert result.status == [lf.Status.DIVERGED]
        assert 1 < result.status_round[0] < 2000
        assert np.isfinite(result.final.B).all()
    if gamma2 > 0:
        assert run(-0.5).status == [lf.Status.COMPLETED]


def test_a_balanced_truth_is_a_fixed_point():
    """At the default weights and without noise, of any samples; an unbalanced one is none."""
    root = np.sqrt(LAMBDA[:2])
    B, W = U[:, :2] * root, V[:, :2] * root
    for counts in ([9] * 6, [2] * 6, [1, 2, 3, 4, 5, 20]):
        X = [normal(m, 4, seed=m) for m in counts]
        y = [X_i @ B @ w for X_i, w in zip(X, W, strict=True)]
        data = lf.GivenSamples(X, y)
        still = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(B, W)), data=data, rounds=5).final
        np.testing.assert_allclose(still.B[0], B, atol=1e-14)
        np.testing.assert_allclose(still.W[0], W, atol=1e-14)
        moved = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=(2 * B, W / 2)), data=data, rounds=1).final
        assert np.abs(moved.B[0] - 2 * B).max() > 1e-2


# --- the law, engine by engine -------------------------------------------------------------------------------

COMPARED = (1, 2, 5)
STATISTICS = ("distance", "mean client error", "||B||", "||W||", "||B'B - W'W||", "predictor", "first head")


@dataclass(frozen=True, kw_only=True)
class Setting:
    problem: object
    m: int = 5
    k: int = 2
    step_size: float = 0.08
    participation: float = 1.0
    engines: str = "projected chain"
    options: dict = dataclasses.field(default_factory=dict)
    size: float = 0.6
    trials: int = TRIALS


def low_rank(d=8, r=2, noise=0.4, n=4, **more):
    return lf.GivenTruth(B=basis(d, r, seed=20), W=normal(n, r, seed=21), noise_std=noise, **more)


def dense(d=8, noise=0.4, n=4, **more):
    return lf.GivenTruth(Phi=0.7 * normal(n, d, seed=22), noise_std=noise, **more)


SETTINGS = {
    "low-rank": Setting(problem=low_rank(), step_size=0.15, trials=1000),
    "noiseless, m = k + 1": Setting(problem=low_rank(noise=0.0), m=3),
    "m = k": Setting(problem=low_rank(), m=2, step_size=0.04),
    "m = 1, some take part": Setting(problem=low_rank(), m=1, step_size=0.03, participation=0.5),
    "many samples": Setting(problem=low_rank(), m=10, engines="projected chain compressed"),
    "truth of larger rank": Setting(problem=low_rank(d=9, r=4), m=10, engines="projected chain compressed"),
    "dense, some take part": Setting(problem=dense(), m=9, participation=0.5, engines="projected compressed"),
    "dense, few samples": Setting(problem=dense(noise=0.0), m=3, engines="projected"),
    "covariance": Setting(
        problem=dense(design=lf.Gaussian(covariance=np.linspace(0.4, 1.8, 8))), m=12, engines="projected compressed"
    ),
    "factor 2, other weights": Setting(
        problem=low_rank(),
        step_size=0.04,
        options={"gradient_factor": 2, "gamma1": 0.1, "gamma2": 0.3, "server_step_size": 0.05},
    ),
    "k = 1": Setting(problem=low_rank(r=1), k=1, m=3),
    "k = 1, d = r + 2k": Setting(trials=500, problem=low_rank(d=3, r=1), k=1, m=3, step_size=0.15),
    "one client, many dimensions": Setting(
        problem=low_rank(d=30, r=1, n=1, noise=1.0),
        k=1,
        m=20,
        step_size=0.1,
        options={"init": (0.02 * normal(30, 1), [[2.0]])},
    ),
    "k = d": Setting(problem=low_rank(d=2), m=4, engines="projected compressed"),
    "one client": Setting(problem=low_rank(n=1, noise=1.0), m=4),
    "drawn start and truth": Setting(
        problem=lf.UnderParameterized(n_clients=4, dim=9, spectrum=[3.0, 2.0, 1.0]),
        m=10,
        size=0.0,
        options={"init": lf.SmallRandom(0.5)},
        engines="projected chain compressed",
    ),
}
PAIRS = [(name, engine) for name, setting in SETTINGS.items() for engine in setting.engines.split()]
LEVEL = FAMILY / (len(PAIRS) * len(COMPARED) * len(STATISTICS))


def sampled(setting, engine):
    """Return every statistic in every compared round, {(round, name): (trials,)}."""
    seed, k, trials = SEEDS[engine], setting.k, setting.trials
    n, d = setting.problem.n_clients, setting.problem.dim
    init = {"init": (setting.size * normal(d, k, seed=23), setting.size * normal(n, k, seed=24))}
    algorithm = lf.FLUTE(rank=k, step_size=setting.step_size, **(init | setting.options))
    truth = setting.problem.truth(seed, range(trials))
    if engine == "chain":  # its frame begins with the span of B*
        coordinates = qr_positive(truth.B)[1]
        Phi = truth.W @ np.swapaxes(coordinates, -1, -2)
        Phi = np.concatenate([Phi, np.zeros((trials, n, 2 * k))], axis=-1)
    else:
        Phi = truth.dense()
    top = np.linalg.svd(np.swapaxes(Phi, -1, -2), full_matrices=False)[0][..., :k]
    out = {}
    for step in rounds_of(
        algorithm,
        setting.problem,
        data=lf.FreshSamples(setting.m),
        rounds=max(COMPARED),
        participation=setting.participation,
        trials=trials,
        seed=seed,
        engine=engine,
    ):
        assert step.alive.all()
        if step.number in COMPARED:
            values = told(step.after.B, step.after.W, Phi, top)
            out |= {(step.number, name): value for name, value in values.items()}
    return out


def told(B, W, Phi, top):
    turned = np.swapaxes(B, -1, -2)
    Theta = W @ turned
    errors = np.linalg.norm(Theta - Phi, axis=-1)
    gap = turned @ B - np.swapaxes(W, -1, -2) @ W
    return {
        "distance": linalg.span_distance(top, B),
        "mean client error": errors.mean(axis=-1),
        "||B||": np.linalg.norm(B, axis=(-2, -1)),
        "||W||": np.linalg.norm(W, axis=(-2, -1)),
        "||B'B - W'W||": np.linalg.norm(gap, axis=(-2, -1)),
        "predictor": np.vecdot(Theta[:, 0], Phi[:, 0]),
        "first head": W[:, 0, -1],
    }


@functools.cache
def explicit(name):
    return sampled(SETTINGS[name], "explicit")


@pytest.mark.parametrize(("name", "engine"), some(PAIRS, 3))
def test_the_law_is_that_of_explicit_rows(name, engine):
    assert len(assert_same_law(sampled(SETTINGS[name], engine), explicit(name), LEVEL)) > 12


def heads_from_other_samples(monkeypatch):
    """The right law of each gradient, the wrong one of both."""
    right = ProjectedFeatures._normal_equations

    def wrong(self):
        gram, moment = right(self)
        return np.roll(gram, 1, axis=1), np.roll(moment, 1, axis=0)

    monkeypatch.setattr(ProjectedFeatures, "_normal_equations", wrong)


def population_heads(monkeypatch):
    right = ProjectedFeatures._normal_equations

    def wrong(self):
        gram, moment = (part.copy() for part in right(self))
        gram[...] = gram.mean(axis=1, keepdims=True)
        return gram, moment

    monkeypatch.setattr(ProjectedFeatures, "_normal_equations", wrong)


def a_tenth_too_small(monkeypatch):
    right = ProjectedFeatures.gradients
    monkeypatch.setattr(
        ProjectedFeatures,
        "gradients",
        lambda self, W, weights=None: tuple(0.9 * part for part in right(self, W, weights)),
    )


WRONG = {
    "no complement": (without_complement, "low-rank", "projected"),
    "no complement, chain": (without_complement, "low-rank", "chain"),
    "complement too narrow": (complement_times(0.9), "one client, many dimensions", "projected"),
    "complement too narrow, chain": (complement_times(0.9), "one client, many dimensions", "chain"),
    "heads from other samples": (heads_from_other_samples, "one client", "projected"),
    "heads from other samples, chain": (heads_from_other_samples, "one client", "chain"),
    "heads from the population": (population_heads, "one client", "projected"),
    "two degrees off": (two_degrees_off, "many samples", "compressed"),
    "one Wishart degree off": (one_wishart_degree_off, "k = 1, d = r + 2k", "chain"),
    "a tenth too small": (a_tenth_too_small, "low-rank", "projected"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_law_is_rejected(name, monkeypatch):
    patch, setting, engine = WRONG[name]
    wanted = explicit(setting)
    patch(monkeypatch)
    assert min(p_values(sampled(SETTINGS[setting], engine), wanted).values()) < LEVEL
