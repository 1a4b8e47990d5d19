"""Engines that are exact in law, against explicit rows: one family of two-sample tests, and moments in closed form.

How they are compared is in `laws`; the family-wise error rate is `FAMILY` = 1e-3 over all comparisons of this module.
"""

import dataclasses
import functools
from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.data.projected import draws
from linfed.data.projected.features import ProjectedFeatures
from linfed.data.projected.source import ProjectedSource
from linfed.data.sources import Sizes
from linfed.numerics import linalg
from linfed.simulation.engines import open_source
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
from tests.helpers import Wrapped, basis, normal

ROUNDS, LONG = (1, 3), (1, 3, 8)
STATISTICS = ("distance", "error", "head norms", "first head", "B", "B along B*", "balance", "predictor")


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(Wrapped):
    """Runs another algorithm, asks what it asks, and keeps the states after each round."""

    states: list = field(default_factory=list)

    @property
    def requires(self):
        return self.inner.requires

    @property
    def init(self):
        return getattr(self.inner, "init", None)

    def step(self, state, batch, rng):
        self.states.append(self.inner.step(state, batch, rng))
        return self.states[-1]

    def finish(self, state, batch, rng):
        self.states.append(self.inner.finish(state, batch, rng))
        return self.states[-1]


@dataclass(frozen=True, kw_only=True)
class Weighted(lf.FedRep):
    """FedRep with the message at half the heads, and weights that differ between clients."""

    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        features = batch.project(state.B)
        W = 0.5 * self.heads.solve(features, state.take_clients("W", batch.active), self.step_size).W
        weights = (1.0 + batch.active) / 60.0
        return state.update(B=state.B - features.representation_gradient(W, weights), W=W, active=batch.active)


@dataclass(frozen=True, kw_only=True)
class Refitted(lf.FedRep):
    """FedRep that ends with heads for everybody and a last step, on a batch of all clients."""

    requires, finishes = lf.Requires.FEATURES, True

    def finish(self, state, batch, rng):
        return self.step(state, batch, rng)


@dataclass(frozen=True)
class Setting:
    algorithm: lf.Algorithm
    problem: object
    m: int = 5
    participation: float = 1.0
    engines: str = "projected chain"
    rounds: tuple = ROUNDS
    trials: int = TRIALS  # fewer where trials go one by one
    fixed: bool = False  # the same samples in every round
    without: str = ""  # a statistic that is nothing but rounding


# --- the settings: a covering design, n = 6 clients ----------------------------------------------------------


def given(d=9, r=2, noise=0.3, W=None, S=None, B=None, **more):
    B = basis(d, r, seed=20) if B is None else B
    W = normal(6, r, seed=21) if W is None else W
    return lf.GivenTruth(B=B, W=W, S=S, noise_std=noise, **more)


def dense(d=9, noise=0.3, **more):
    return lf.GivenTruth(B=basis(d, 2, seed=20), Phi=normal(6, d, seed=22) * 0.7, noise_std=noise, **more)


def fedrep(d=9, k=2, step_size=0.5, init=None, **more):
    return lf.FedRep(rank=k, step_size=step_size, init=basis(d, k, seed=23) if init is None else init, **more)


GRADIENT = {"heads": lf.GradientHeads(steps=3, step_size=0.2)}
SKEW = basis(9, 2, seed=23) @ np.array([[1.3, 0.4], [0.0, 0.6]])
FULL = lf.Gaussian(covariance=normal(9, 6, seed=24) @ normal(9, 6, seed=24).T / 6)  # of rank 6
DIAGONAL = lf.Gaussian(covariance=np.linspace(0.4, 1.8, 9))
ALL = "projected chain compressed"

SETTINGS = {
    "exact, noiseless, m = k + 1": Setting(fedrep(), given(noise=0.0), m=3),
    "exact, m = k + 1, some clients": Setting(fedrep(), given(), rounds=LONG, m=3, participation=0.3),
    "exact, noiseless, some clients": Setting(
        fedrep(), given(noise=0.0), rounds=LONG, m=4, participation=0.3, engines="projected"
    ),
    "exact": Setting(fedrep(), given(), rounds=LONG, trials=1000),
    "exact, m > d + 1": Setting(fedrep(), given(), rounds=LONG, m=12, engines=ALL),
    "gradient, noiseless, m = 1": Setting(fedrep(**GRADIENT), given(noise=0.0), m=1),
    "gradient, m = k": Setting(fedrep(**GRADIENT), given(), rounds=LONG, m=2, participation=0.3),
    "gradient, noiseless, m = k + 1": Setting(
        fedrep(**GRADIENT), given(noise=0.0), rounds=LONG, m=3, participation=0.3, engines="projected"
    ),
    "ridge, m = k": Setting(fedrep(heads=lf.ExactHeads(ridge=0.2)), given(), m=2, trials=400, engines="projected"),
    "no QR, skew B": Setting(fedrep(init=SKEW, orthonormalize=False, step_size=0.1), given(), participation=0.3),
    "no QR, dependent columns": Setting(
        fedrep(init=np.repeat(basis(9, 1, seed=23), 2, axis=1), orthonormalize=False, step_size=0.1),
        given(),
        trials=400,
        without="distance",
    ),
    "heads rotate": Setting(
        fedrep(rotate_heads=True, step_size=0.1, **GRADIENT), given(noise=0.0), participation=0.3, engines="projected"
    ),
    "k = 1, gradient": Setting(fedrep(k=1, **GRADIENT), given(r=1), m=1, participation=0.3),
    "r > k": Setting(fedrep(), given(r=4), rounds=LONG, m=5, participation=0.3),
    "skew B*": Setting(fedrep(), given(B=normal(9, 2, seed=25) * 0.5), engines="projected"),
    "d < k + r": Setting(fedrep(d=3), given(d=3), engines="projected"),
    "diagonal covariance": Setting(
        fedrep(), given(design=DIAGONAL), m=12, engines="projected compressed", participation=0.3
    ),
    "full covariance, gradient": Setting(fedrep(**GRADIENT), given(design=FULL), m=3, engines="projected"),
    "dense truth": Setting(fedrep(), dense(), engines="projected", participation=0.3),
    "half heads, weighted": Setting(
        Weighted(rank=2, step_size=0.5, init=basis(9, 2, seed=23)), given(), m=4, rounds=(1, 3)
    ),
    "half gradient heads, weighted, dense truth": Setting(
        Weighted(rank=2, step_size=0.5, init=basis(9, 2, seed=23), **GRADIENT),
        dense(),
        m=2,
        rounds=(1, 2),
        participation=0.5,
        engines="projected",
    ),
    "oracle": Setting(lf.Oracle(rank=2), given(), m=4, participation=0.3, rounds=(1,)),
    "k = 3, d = r + 2k": Setting(fedrep(k=3), given(r=3)),
    "everyone at the end": Setting(
        Refitted(rank=2, step_size=0.5, init=basis(9, 2, seed=23)),
        given(),
        rounds=(1,),
        participation=0.5,
        engines="projected",
    ),
    "representation steps": Setting(
        fedrep(representation_steps=3, step_size=0.2),
        given(),
        m=11,
        participation=0.3,
        rounds=(1, 3),
        engines="compressed",
    ),
    "fixed samples": Setting(
        fedrep(), given(design=FULL), m=11, participation=0.3, rounds=(1, 8), engines="compressed", fixed=True
    ),
    "FedAvg": Setting(lf.FedAvg(step_size=0.15, local_steps=5), dense(), rounds=LONG, m=11, engines="compressed"),
    "FedAvg, two layers, gradient fine-tuning": Setting(
        lf.FedAvg(step_size=0.1, local_steps=3, rank=2, init=basis(9, 2), fine_tune=lf.GradientHeads(steps=10)),
        given(design=FULL),
        m=11,
        participation=0.3,
        engines="compressed",
    ),
    "pooled": Setting(
        lf.PooledLeastSquares(), dense(design=DIAGONAL), m=11, participation=0.3, rounds=(1,), engines="compressed"
    ),
}

# Clients that differ in numbers of samples, noise and weights.
LEVELS, WEIGHTS, COUNTS = (0.1, 0.2, 0.4, 0.8, 1.6, 0.0), (1.0, 3.0, 0.5, 2.0, 0.2, 1.0), (3, 20, 4, 8, 5, 12)
SETTINGS |= {
    "differing clients": Setting(fedrep(weights=WEIGHTS), given(noise=LEVELS), m=COUNTS, rounds=LONG, trials=1000),
    "differing clients, some": Setting(fedrep(weights=WEIGHTS), given(noise=LEVELS), m=COUNTS, participation=0.5),
    "differing clients, gradient, some": Setting(
        fedrep(weights=WEIGHTS, **GRADIENT), given(noise=LEVELS), m=COUNTS, participation=0.5
    ),
    "differing clients, ridge, dense truth, diagonal covariance": Setting(
        fedrep(weights=WEIGHTS, heads=lf.ExactHeads(ridge=0.2)),
        dense(noise=LEVELS, design=DIAGONAL),
        m=COUNTS,
        engines="projected",
    ),
}

# One round of few clients near the truth, where every part of a message shows.
NEAR = linalg.orthonormalize(basis(9, 2, seed=20).sum(axis=1, keepdims=True) + 0.3 * normal(9, 1, seed=27))
ONCE = {"rounds": (1,), "trials": 5000}
STEP = fedrep(k=1, init=NEAR, orthonormalize=False, step_size=1.5)
SETTINGS |= {
    "one client": Setting(STEP, given(W=[[1.5, 0.5]], noise=1.0), m=6, **ONCE),
    "one client, noiseless": Setting(STEP, given(W=[[1.5, 0.5]], noise=0.0), m=6, **ONCE),
    "two clients": Setting(STEP, given(W=[[1.5, 1.0], [1.0, 1.5]], noise=1.0), m=6, **ONCE),
    "two differing clients": Setting(
        dataclasses.replace(STEP, weights=(1.0, 2.0)),
        given(W=[[1.5, 1.0], [1.0, 1.5]], noise=(1.0, 0.3)),
        m=(5, 12),
        **ONCE,
    ),
}


def flute(problem, m=5, k=2, step_size=0.08, size=0.6, init=None, engines="projected chain", trials=TRIALS, **options):
    n, d, some = problem.n_clients, problem.dim, options.pop("participation", 1.0)
    start = (size * normal(d, k, seed=23), size * normal(n, k, seed=24)) if init is None else init
    algorithm = lf.FLUTE(rank=k, step_size=step_size, init=start, **options)
    return Setting(algorithm, problem, m, some, engines, rounds=(1, 2, 5), trials=trials)


MANY_DIMENSIONS = {"k": 1, "m": 20, "step_size": 0.1, "init": (0.02 * normal(30, 1), [[2.0]])}
OTHER_WEIGHTS = {"gradient_factor": 2, "gamma1": 0.1, "gamma2": 0.3, "server_step_size": 0.05}
SPECTRUM = lf.UnderParameterized(n_clients=6, dim=9, spectrum=[3.0, 2.0, 1.0])
SETTINGS |= {
    "FLUTE": flute(given(), step_size=0.15, trials=1000),
    "FLUTE, noiseless, m = k + 1": flute(given(noise=0.0), m=3),
    "FLUTE, m = 1, some clients": flute(given(), m=1, step_size=0.03, participation=0.5),
    "FLUTE, many samples": flute(given(), m=11, engines=ALL),
    "FLUTE, dense truth, some clients": flute(dense(), m=11, participation=0.5, engines="projected compressed"),
    "FLUTE, diagonal covariance": flute(dense(design=DIAGONAL), m=12, engines="projected compressed"),
    "FLUTE, other weights": flute(given(), step_size=0.04, **OTHER_WEIGHTS),
    "FLUTE, k = 1, d = r + 2k": flute(given(d=3, r=1), k=1, m=3, step_size=0.15, trials=500),
    "FLUTE, one client": flute(given(W=[[1.5, 1.0]], noise=1.0), m=4),
    "FLUTE, one client, many dimensions": flute(given(d=30, r=1, W=[[1.5]], noise=1.0), **MANY_DIMENSIONS),
    "FLUTE, drawn start and truth": flute(SPECTRUM, m=11, init=lf.SmallRandom(0.5), engines=ALL),
}

BY_DEFAULT = [
    ("exact, m = k + 1, some clients", "projected"),
    ("exact, m > d + 1", "chain"),
    ("no QR, skew B", "projected"),
    ("r > k", "chain"),
    ("full covariance, gradient", "projected"),
    ("half gradient heads, weighted, dense truth", "projected"),
    ("fixed samples", "compressed"),
    ("FedAvg, two layers, gradient fine-tuning", "compressed"),
    ("differing clients, some", "projected"),
    ("FLUTE", "projected"),
    ("FLUTE, m = 1, some clients", "chain"),
    ("FLUTE, one client, many dimensions", "chain"),
]
"""Comparisons that run without ``--all``."""

PAIRS = [(name, engine) for name, setting in SETTINGS.items() for engine in setting.engines.split()]
IN_BLOCKS = [("exact, m = k + 1, some clients", "projected"), ("gradient, m = k", "projected"), ("exact", "chain")]
COMPARISONS = len(STATISTICS) * sum(
    len(setting.rounds) + setting.algorithm.finishes for setting in [SETTINGS[name] for name, _ in PAIRS + IN_BLOCKS]
)  # at most: not every setting has all statistics
LEVEL = FAMILY / COMPARISONS


# --- samples and their comparison ----------------------------------------------------------------------------


def simulated(setting, engine, trials=None):
    """Return every statistic in every compared round, {(round, name): (trials,)}."""
    watched, seed, trials = Watched(inner=setting.algorithm), SEEDS[engine], trials or setting.trials
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("linfed.data.samples.MANY_VALUES", 0.0)  # fixed samples are compressed without being drawn
        result = lf.simulate(
            watched,
            setting.problem,
            data=(lf.FixedSamples if setting.fixed else lf.FreshSamples)(setting.m),
            n_rounds=max(setting.rounds),
            participation=setting.participation,
            trials=trials,
            seed=seed,
            engine=engine,
        )
    assert len(watched.states) == result.rounds[-1]  # one chunk
    truth = setting.problem.truth(seed, range(trials))
    reference = linalg.qr_positive(truth.B if truth.subspace is None else truth.subspace)[0]
    out = {}
    for round_ in sorted({*setting.rounds, int(result.rounds[-1])}):
        state = watched.states[round_ - 1]
        if engine == "chain":  # its frame begins with B*
            values = told(state, np.eye(state.B.shape[1], reference.shape[-1]))
            del values["B"]
        else:
            values = told(state, reference)
        if "subspace_distance" in result.metrics:
            values["distance"] = result.metrics["subspace_distance"][:, round_]
        values["error"] = result.metrics["parameter_error"][:, round_]
        out |= {(round_, name): value for name, value in values.items() if name != setting.without}
    return out


def told(state, reference):
    """Return a state's statistics; `reference` (.., d, r) spans B*."""
    out, predictor = {}, 0.0
    if state.B is not None:
        inside = np.swapaxes(reference, -1, -2) @ state.B
        out["head norms"] = np.linalg.norm(state.W, axis=(1, 2))
        out["first head"] = state.W[:, 0, -1]
        out["B"] = state.B[:, -1, 0]
        out["B along B*"] = inside[:, 0, -1]
        out["balance"] = np.linalg.norm(state.B.mT @ state.B - state.W.mT @ state.W, axis=(1, 2))
        predictor = np.vecdot(inside[:, 0], state.W[:, 0])
    if state.S is not None:
        predictor = predictor + np.vecdot(np.broadcast_to(reference[..., 0], state.S[:, 0].shape), state.S[:, 0])
    return out | {"predictor": predictor}


@functools.cache
def explicit(name):
    return simulated(SETTINGS[name], "explicit")


@pytest.mark.parametrize(
    ("name", "engine"), [pytest.param(*pair, marks=[] if pair in BY_DEFAULT else pytest.mark.long) for pair in PAIRS]
)
def test_the_law_is_that_of_explicit_rows(name, engine):
    assert_same_law(simulated(SETTINGS[name], engine), explicit(name), LEVEL)


@pytest.mark.long
@pytest.mark.parametrize(("name", "engine"), IN_BLOCKS)
def test_the_law_is_the_same_in_blocks_of_clients(name, engine, monkeypatch):
    """Draws that are too many to be made ahead are made block by block, here of one or two clients."""
    wanted = explicit(name)
    monkeypatch.setattr(draws, "BLOCK_VALUES", 0)
    monkeypatch.setattr(linalg, "CACHE_VALUES", 60)
    reach = dataclasses.replace(SETTINGS[name], rounds=(1, 3))
    found = p_values(simulated(reach, engine, 400), wanted)
    assert min(found.values()) > LEVEL


# --- laws that are wrong on purpose --------------------------------------------------------------------------


def the_same_noise_in_every_round(monkeypatch):
    def wrong(self, P):
        self.kept = getattr(self, "kept", None)
        if self.kept is None:
            self.kept = self._outer.next().copy()
        return self.kept - P @ (np.swapaxes(P, -1, -2) @ self.kept)

    monkeypatch.setattr(ProjectedSource, "outer_noise", wrong)


def degrees(change):
    def patch(monkeypatch):
        right = draws.fill_gammas

        def wrong(shapes, *rest):
            right(change(shapes, 2 * shapes[0]), *rest)

        monkeypatch.setattr(draws, "fill_gammas", wrong)

    return patch


def outside(change):
    def patch(monkeypatch):
        right = ProjectedFeatures._outside

        def wrong(self, labels, along, norm, g):
            return change(lambda *arguments: right(self, *arguments), labels, along, norm, g)

        monkeypatch.setattr(ProjectedFeatures, "_outside", wrong)

    return patch


def without_noise_along_u(right, labels, along, norm, g):
    square = np.square(labels.e).sum(axis=1, keepdims=True)
    across = g - labels.e * ((labels.e * g).sum(axis=1, keepdims=True) / square)
    return right(labels, along, norm, across)


def full_noise_along_u(right, labels, along, norm, g):
    return right(labels, along, np.zeros_like(norm), g) + norm[:, None] * g


def noise_shared_by_clients(right, labels, along, norm, g):
    return right(labels, along, norm, np.repeat(g[..., :1], g.shape[-1], axis=-1))


def sign_along_u(right, labels, along, norm, g):
    return right(labels, -along, norm, g)


def levels_of_other_clients(monkeypatch):
    right = lf.Truth.noise_levels
    monkeypatch.setattr(lf.Truth, "noise_levels", lambda self, clients: right(self, clients[..., ::-1]))


def one_number_of_samples(monkeypatch):
    right = draws.Draws.next_round
    monkeypatch.setattr(
        draws.Draws, "next_round", lambda self, counts: right(self, np.full_like(counts, counts.mean()))
    )


def without_weights(monkeypatch):
    right = ProjectedFeatures._scale
    monkeypatch.setattr(ProjectedFeatures, "_scale", lambda self, t, c, weights: right(self, t, c, None))


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


WRONG = {
    "heads from other samples": (heads_from_other_samples, "FLUTE, one client", "projected"),
    "heads from the population": (population_heads, "FLUTE, one client", "projected"),
    "complement too narrow": (complement_times(0.9), "FLUTE, one client, many dimensions", "chain"),
    "levels of other clients": (levels_of_other_clients, "two differing clients", "projected"),
    "one number of samples": (one_number_of_samples, "two differing clients", "chain"),
    "no weights": (without_weights, "two differing clients", "projected"),
    "no complement": (without_complement, "exact", "projected"),
    "no complement, chain": (without_complement, "exact", "chain"),
    "complement too wide": (complement_times(1.2), "exact", "projected"),
    "the same noise in every round": (the_same_noise_in_every_round, "exact, noiseless, some clients", "projected"),
    "m degrees in place of m - k": (
        degrees(lambda shapes, m: np.append(shapes[:-1], m / 2)),
        "exact",
        "projected",
    ),
    "one degree off in Bartlett's factor": (degrees(lambda shapes, m: shapes + 0.5), "exact", "projected"),
    "no noise along u": (outside(without_noise_along_u), "one client", "projected"),
    "full noise along u": (outside(full_noise_along_u), "one client, noiseless", "chain"),
    "noise shared by clients": (outside(noise_shared_by_clients), "two clients", "projected"),
    "wrong sign along u": (outside(sign_along_u), "exact", "chain"),
    "two degrees off, compressed": (two_degrees_off, "FedAvg", "compressed"),
    "one Wishart degree off": (one_wishart_degree_off, "one client, noiseless", "chain"),
}


@pytest.mark.long
@pytest.mark.parametrize(("name", "wrong"), [(setting, wrong) for wrong, (_, setting, _) in WRONG.items()])
def test_a_wrong_law_is_rejected(name, wrong, monkeypatch):
    wanted = explicit(name)
    patch, _, engine = WRONG[wrong]
    patch(monkeypatch)
    found = p_values(simulated(SETTINGS[name], engine), wanted)
    assert min(found.values()) < LEVEL


# --- moments in closed form ----------------------------------------------------------------------------------

MANY = 4000


def batch_of(engine, problem, m, k=2, trials=MANY):
    """Return a round of fresh samples of all clients, in many trials."""
    n, d = problem.n_clients, problem.dim
    sizes = Sizes(n_clients=n, dim=d, participants=n, n_rounds=1, features=20)
    truth = problem.truth(0, range(trials))
    source = open_source(engine, lf.FreshSamples(m), truth, sizes, k, SEEDS[engine], range(trials))
    return source.round(np.broadcast_to(np.arange(n), (trials, n)))


def assert_mean(values, wanted, comparisons=1000):
    """Assert that a mean over trials is as wanted in every entry, at a family-wise error of FAMILY for so many."""
    wanted = np.broadcast_to(wanted, values.shape[1:])
    errors = values.std(axis=0) / np.sqrt(len(values))
    distances = np.abs(values.mean(axis=0) - wanted) / np.maximum(errors, 1e-12)
    assert distances.max() < stats.norm.isf(FAMILY / 2 / comparisons), (distances, wanted)


def outer(values):
    """Return ``x x'`` for each row x."""
    return values[:, :, None] * values[:, None]


B0 = basis(9, 2, seed=23)
OUTSIDE = np.eye(9) - B0 @ B0.T
TRUTHS = {
    "low-rank": given(),
    "noiseless": given(noise=0.0),
    "r > k": given(r=4, noise=0.7),
    "dense": dense(),
}


def parts(problem):
    """Return all phi_i, their coordinates in B's span and tau_i^2."""
    Phi = problem.truth(0, [0]).dense()[0]
    return Phi, Phi @ B0, np.sum((Phi @ OUTSIDE) ** 2, axis=-1) + problem.noise_std**2


@pytest.mark.long
@pytest.mark.parametrize("engine", ["projected", "explicit"])
@pytest.mark.parametrize("name", TRUTHS)
def test_one_step_moves_b_on_average_by_oja_slowed_by_the_samples(name, engine):
    problem, m = TRUTHS[name], 10
    Phi = parts(problem)[0]
    features = batch_of(engine, problem, m).project(np.broadcast_to(B0, (MANY, 9, 2)))
    moved = B0 - 0.5 * features.fit().representation_gradient()
    assert_mean(moved, B0 + 0.5 * (1 - 2 / m) * OUTSIDE @ (Phi.T @ Phi / 6) @ B0)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["projected", "explicit"])
@pytest.mark.parametrize("name", TRUTHS)
def test_the_message_of_a_client_has_the_mean_and_covariance_of_the_exact_law(name, engine):
    """``-x rho + sigma sqrt(x) h`` along u, ``tau sqrt(x) h`` beyond, x chi-square with m - k degrees of freedom."""
    problem, m, k = TRUTHS[name], 8, 2
    one = (
        lf.GivenTruth(Phi=problem.Phi[:1], noise_std=problem.noise_std)
        if problem.Phi is not None
        else dataclasses.replace(problem, W=problem.W[:1])
    )
    phi, _, tau2 = (part[0] for part in parts(problem))
    e = OUTSIDE @ phi
    features = batch_of(engine, one, m).project(np.broadcast_to(B0, (MANY, 9, 2)))
    fit = features.fit()
    W, G = fit.W, fit.representation_gradient(1.0)
    message = m * (G @ W[:, 0, :, None])[..., 0] / np.vecdot(W[:, 0], W[:, 0])[:, None]
    assert_mean(message, -(m - k) * e)
    u = e / np.linalg.norm(e)
    along = np.outer(u, u)
    beyond = OUTSIDE - along
    covariance = (m - k) * (tau2 * beyond + (2 * e @ e + problem.noise_std**2) * along)
    assert_mean(outer(message + (m - k) * e), covariance)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["projected", "explicit"])
@pytest.mark.parametrize("name", ["low-rank", "noiseless", "r > k"])
def test_beyond_b_and_the_truth_the_sum_of_messages_has_the_covariance_of_residuals_and_heads(name, engine):
    problem, m, k = TRUTHS[name], 12, 2
    Phi, a, tau2 = parts(problem)
    spanned = np.concatenate([B0, Phi.T], axis=1)
    direction = np.linalg.svd(spanned)[0][:, -1]
    features = batch_of(engine, problem, m).project(np.broadcast_to(B0, (MANY, 9, 2)))
    G = m * features.fit().representation_gradient(1.0)
    heads = a[:, :, None] * a[:, None] + (tau2 / (m - k - 1))[:, None, None] * np.eye(k)
    assert_mean(outer(direction @ G), np.sum((m - k) * tau2[:, None, None] * heads, axis=0))


@pytest.mark.parametrize("engine", ["projected", "chain"])
def test_noise_beyond_b_and_the_truth_has_a_wishart_gram_matrix(engine):
    """Of d - r - k degrees of freedom, whatever the number of dimensions in which it is told."""
    d, r, k = 9, 2, 2
    problem, trials = TRUTHS["low-rank"], range(MANY)
    sizes = Sizes(n_clients=6, dim=d, participants=6, n_rounds=1, features=20)
    source = open_source(engine, lf.FreshSamples(5), problem.truth(0, trials), sizes, k, SEEDS[engine], trials)
    rows = d if engine == "projected" else r + 2 * k
    P = np.broadcast_to(basis(rows, r + k, seed=30), (MANY, rows, r + k))
    N = source.outer_noise(P)
    assert np.abs(P.mT @ N).max() < 1e-13
    gram = N.mT @ N
    assert_mean(gram, (d - r - k) * np.eye(k))
    for j in range(k):
        assert stats.kstest(gram[:, j, j], stats.chi2(d - r - k).cdf).pvalue > LEVEL


@pytest.mark.long
@pytest.mark.parametrize("engine", ["projected", "compressed", "explicit"])
@pytest.mark.parametrize(("kind", "design"), [("r > k", lf.Gaussian()), ("low-rank", FULL), ("dense", DIAGONAL)])
def test_the_message_at_any_heads_has_the_moments_of_gaussian_rows(kind, design, engine):
    """Mean ``m S delta``, covariance ``m (delta' S delta S + S delta delta' S + sigma^2 S)`` for x of covariance S."""
    problem = dataclasses.replace(TRUTHS[kind], design=design)
    m, W, weights = 11, normal(6, 2, seed=30), np.linspace(-0.2, 0.5, 6)
    covariance = np.eye(9) if design.covariance is None else np.asarray(design.covariance)
    covariance = np.diag(covariance) if covariance.ndim == 1 else covariance
    delta = W @ SKEW.T - parts(problem)[0]
    features = batch_of(engine, problem, m).project(np.broadcast_to(SKEW, (MANY, 9, 2)))
    G = features.representation_gradient(np.broadcast_to(W, (MANY, 6, 2)), np.broadcast_to(weights, (MANY, 6)))
    mean = np.einsum("i,id,ik->dk", weights, delta @ covariance, W)
    assert_mean(G, mean)
    square = np.einsum("id,de,ie->i", delta, covariance, delta) + problem.noise_std**2
    for column in range(2):
        scale = (weights * W[:, column]) ** 2 / m
        turned = delta @ covariance
        wanted = np.sum(scale * square) * covariance + np.einsum("i,id,ie->de", scale, turned, turned)
        assert_mean(outer(G[..., column] - mean[:, column]), wanted, 10_000)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["compressed", "explicit"])
def test_the_loss_of_a_client_is_chi_square(engine):
    problem, m = dense(design=FULL), 11
    theta = normal(1, 9, seed=31)
    loss = batch_of(engine, problem, m).loss(np.broadcast_to(theta, (MANY, 1, 9)))
    delta = theta - parts(problem)[0]
    tau2 = np.einsum("id,de,ie->i", delta, np.asarray(FULL.covariance), delta) + problem.noise_std**2
    assert stats.kstest((2 * m * loss / tau2)[:, 0], stats.chi2(m).cdf).pvalue > LEVEL
