"""FLUTE under engines that are exact in distribution: its statistics are those of explicit rows."""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.data.projected.features import ProjectedFeatures
from linfed.numerics import linalg
from linfed.numerics.linalg import qr_positive
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
from tests.helpers import basis, normal, rounds_of

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


FIRST = {
    ("low-rank", "projected"),
    ("low-rank", "chain"),
    ("many samples", "compressed"),
    ("m = 1, some take part", "chain"),
    ("covariance", "projected"),
    ("factor 2, other weights", "projected"),
    ("one client, many dimensions", "chain"),
    ("drawn start and truth", "chain"),
}
"""Those that run by default."""
COMPARISONS = [pytest.param(*pair, marks=[pytest.mark.long] * (pair not in FIRST)) for pair in PAIRS]

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


@pytest.mark.parametrize(
    ("name", "engine"), [pytest.param(*pair, marks=[pytest.mark.long] * (pair not in FIRST)) for pair in PAIRS]
)
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
