"""Engines: equal values where they promise them, which one is chosen, what it refuses, reproducibility, edges, cost."""

import dataclasses
import gc
import math
import re
import tracemalloc
import weakref
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

import linfed as lf
from docs.algorithm_table import with_required
from linfed.data import compressed, explicit, sources
from linfed.data.chain import ChainSource
from linfed.data.projected import draws
from linfed.data.projected import features as features_module
from linfed.data.projected.source import ProjectedBatch, ProjectedSource
from linfed.data.sources import Sizes
from linfed.numerics import linalg, streams
from linfed.simulation import engines, job
from linfed.simulation.engines import ENGINES, EngineQuery, floats_per_trial, open_source
from linfed.simulation.status import Status
from tests.helpers import assert_same, basis, each, normal, rounds_of, some


def truth(n=6, d=9, r=2, noise=0.3, **more):
    return lf.GivenTruth(B=basis(d, r, seed=20), W=normal(n, r, seed=21), noise_std=noise, **more)


def fedrep(d=9, k=2, step_size=0.3, init=None, **more):
    return lf.FedRep(rank=k, step_size=step_size, init=basis(d, k, seed=23) if init is None else init, **more)


def shared(n=6, d=9, r=2, noise=0.3, **more):
    return lf.SharedRepresentation(n_clients=n, dim=d, rank=r, noise_std=noise, **more)


pytestmark = pytest.mark.filterwarnings("ignore:the 3 trials are identical")  # some data have no trial axis


def simulate(algorithm, problem, data, **more):
    return lf.simulate(algorithm, problem, data=data, **({"rounds": 5, "trials": 3, "seed": 7} | more))


def chosen(algorithm, problem, data, **more):
    """Return the engine that a run would take."""
    arguments = {"rounds": 10, "participation": 1.0, "trials": None, "seed": 0, "metrics": None, "record_every": 1}
    return job.checked_job(algorithm, problem, data, **(arguments | {"engine": "auto"} | more)).engine


def batch_of(engine, problem, data, k=2, trials=4, seed=1):
    """Return the first round's batch, everybody takes part."""
    n, d = (problem or data).n_clients, (problem or data).dim
    sizes = Sizes(n_clients=n, dim=d, participants=n, rounds=1, features=20)
    truths = None if problem is None else problem.truth(seed, range(trials))
    source = open_source(engine, data, truths, sizes, k, seed, range(trials))
    return source.round(np.broadcast_to(np.arange(n), (trials, n)))


def at(B, trials=4):
    return np.broadcast_to(B, (trials, *B.shape))


GRADIENT = {"heads": lf.GradientHeads(steps=3, step_size=0.2)}


# --- compressed fixed and given data: the values of explicit rows --------------------------------------------


def given(counts, noise=0.3, seed=40):
    """Return lists of samples, some clients with many and some with few."""
    rng, problem = np.random.default_rng(seed), truth(n=len(counts))
    phi = problem.truth(0, [0]).dense()[0]
    X = [rng.standard_normal((m, 9)) for m in counts]
    y = [rows @ one + noise * rng.standard_normal(len(rows)) for rows, one in zip(X, phi, strict=True)]
    return lf.GivenSamples(X, y)


SAMPLES = {
    "fixed": lf.FixedSamples(12),
    "fixed, many": lf.FixedSamples(60),
    "given": given([20] * 6),
    "given, unequal": given([1, 2, 3, 7, 13, 40]),
}
LEARNERS = {
    "exact heads": fedrep(),
    "exact heads, moments": lf.FedRep(rank=2, step_size=0.3),
    "ridge": fedrep(heads=lf.ExactHeads(ridge=0.1)),
    "gradient heads": fedrep(**GRADIENT),
    "no QR": fedrep(orthonormalize=False, step_size=0.1),
    "representation steps": fedrep(representation_steps=3, step_size=0.1),
    "noisy messages": lf.PrivateFedRep(rank=2, step_size=0.3, message_noise_std=0.01, init=basis(9, 2)),
    "clipped messages": lf.PrivateFedRep(rank=2, step_size=0.3, clip=0.5, init=basis(9, 2)),
    "sparsified messages": lf.CompressedFedRep(rank=2, step_size=0.3, kept_share=0.5, init=basis(9, 2)),
    "quantised messages": lf.CompressedFedRep(rank=2, step_size=0.3, levels=200, init=basis(9, 2)),
    "FedAvg": lf.FedAvg(step_size=0.02, local_steps=5),
    "FedAvg, by samples": lf.FedAvg(step_size=0.02, weights="samples"),
    "FedAvg, two layers": lf.FedAvg(step_size=0.02, local_steps=5, rank=2, init=basis(9, 2)),
    "FedAvg, fine-tuned": lf.FedAvg(step_size=0.02, rank=2, init=basis(9, 2), fine_tune=lf.ExactHeads()),
    "FedProx": lf.FedProx(step_size=0.02, local_steps=5, mu=0.5),
    "SCAFFOLD": lf.SCAFFOLD(step_size=0.02, local_steps=5, rank=2, init=basis(9, 2)),
    "FedVARP": lf.FedVARP(step_size=0.02, local_steps=2),
    "ClusterFedVARP": lf.ClusterFedVARP(step_size=0.02, clusters=3),
    "FedRolex": lf.FedRolex(step_size=0.02, model_share=0.5, rank=2, init=basis(9, 2)),
    "FedSCAVAR": lf.FedSCAVAR(step_size=0.02, clusters=3, model_share=0.5, mu=0.1),
    "FedPer": lf.FedPer(rank=2, step_size=0.02, local_steps=2, init=basis(9, 2)),
    "LG-FedAvg": lf.LGFedAvg(rank=2, step_size=0.02, local_steps=2, init=basis(9, 2)),
    "FedRoD": lf.FedRoD(rank=2, step_size=0.02, local_steps=2, init=basis(9, 2)),
    "FedRoD, exact": lf.FedRoD(
        rank=2, step_size=0.02, init=basis(9, 2), personal=lf.ExactHeads(ridge=0.1), fine_tune=lf.ExactHeads()
    ),
    "FedBABU": lf.FedBABU(rank=2, step_size=0.02, local_steps=2, init=basis(9, 2)),
    "Ditto": lf.Ditto(step_size=0.02, local_steps=2, personal_steps=2),
    "APFL": lf.APFL(step_size=0.02, local_steps=2, mix_step_size=0.1),
    "pFedMe": lf.PFedMe(step_size=0.01, local_steps=2, strength=2.0, inner_step_size=0.02),
    "pFedMe, exact": lf.PFedMe(step_size=0.01, local_steps=2, strength=2.0, inner_steps=None),
    "L2GD": lf.L2GD(step_size=0.02),
    "Per-FedAvg": lf.PerFedAvg(step_size=0.02, adaptation_step_size=0.02, hessian=True),
    "FedMTL": lf.FedMTL(strength=0.1),
    "FedMTL, tasks": lf.FedMTL(strength=0.1, relation="tasks", epsilon=0.1),
    "local averages": lf.LocalGram(rank=2),
    "nuclear norm": lf.NuclearNorm(weight=0.05, iterations=50),
    "AltGDmin": lf.AltGDmin(rank=2, init=basis(9, 2)),
    "AltGDmin, given step": lf.AltGDmin(rank=2, step_size=0.005, init=basis(9, 2)),
    "AltMin": lf.AltMin(rank=2, init=basis(9, 2)),
    "TPGD": lf.TPGD(rank=2, step_size=0.01, first_phase=3, init=(basis(9, 2), normal(6, 2))),
    "ANIL": lf.ANIL(rank=2, step_size=0.05, adaptation_step_size=0.1, init=basis(9, 2)),
    "ANIL, Hessian": lf.ANIL(rank=2, step_size=0.05, adaptation_step_size=0.1, hessian=True, init=basis(9, 2)),
    "MAML": lf.MAML(rank=2, step_size=0.05, adaptation_step_size=0.1, init=basis(9, 2)),
    "MAML, Hessian": lf.MAML(rank=2, step_size=0.05, adaptation_step_size=0.1, hessian=True, init=basis(9, 2)),
    "FLUTE": lf.FLUTE(rank=2, step_size=0.01, init=(basis(9, 2), normal(6, 2))),
    "FLUTE, factor 2": lf.FLUTE(
        rank=2, step_size=0.005, gradient_factor=2, gamma1=0.1, init=(basis(9, 2), normal(6, 2))
    ),
    "shortcut": lf.FedRepShortcut(
        rank=2, step_size=0.05, solver=lf.GradientSteps(shortcut_step_size=0.01), init=basis(9, 2)
    ),
    "shortcut, joint, refit": lf.FedRepShortcut(
        rank=2, step_size=0.1, solver=lf.ClosedForm(order="joint"), ridge=0.5, refit=True, init=basis(9, 2)
    ),
    "personalised": lf.Personalized(base=fedrep(), ridge=0.2),
    "local only": lf.LocalOnly(),
    "local only, ridge": lf.LocalOnly(ridge=0.1),
    "pooled": lf.PooledLeastSquares(),
    "oracle": lf.Oracle(rank=2),
}


def assert_close(one, other, tolerance=1e-10):
    """Assert that two results agree up to rounding, relative to the largest number."""
    pairs = [(one.metrics[name], other.metrics[name]) for name in other.metrics]
    pairs += [(one.final.arrays()[name], array) for name, array in other.final.arrays().items()]
    assert len(pairs) > 3
    for a, b in pairs:
        assert a.shape == b.shape
        assert np.abs(a - b).max() <= tolerance * np.abs(b).max()
    assert one.status == other.status
    assert np.array_equal(one.status_round, other.status_round)


@each("learner", LEARNERS)
@each("samples", SAMPLES)
def test_compressed_samples_give_the_values_of_explicit_rows(learner, samples):
    arguments = {"rounds": 10, "participation": 0.5 if "heads" in learner or "FedAvg" in learner else 1.0}
    one, other = (
        simulate(LEARNERS[learner], truth(), SAMPLES[samples], engine=engine, **arguments)
        for engine in ("compressed", "explicit")
    )
    assert (one.engine, other.engine) == ("compressed", "explicit")
    assert_close(one, other)


def test_compressed_data_of_each_trial_give_the_values_of_explicit_rows(monkeypatch):
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    data = lf.GivenSamples(normal(5, 6, 14, 9), normal(5, 6, 14, seed=1))
    active = np.argsort(normal(5, 20, 6, seed=4), axis=-1)[..., :3]
    one, other = (
        lf.simulate(fedrep(), truth(), data=data, rounds=20, participation=active, engine=engine)
        for engine in ("compressed", "explicit")
    )
    assert_close(one, other)


@pytest.mark.parametrize("trials", [(), (3,)])
def test_pseudo_samples_have_the_losses_of_the_samples(trials):
    held_out = normal(6, 4, 9, seed=2), normal(6, 4, seed=3)
    data = lf.GivenSamples(normal(*trials, 6, 40, 9), normal(*trials, 6, 40, seed=1), test=held_out)
    small = data.compressed()
    assert small.X.shape == (*trials, 6, 10, 9)
    assert small.test is data.test
    for one, other in zip(small.normal_equations(), data.normal_equations(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    np.testing.assert_allclose((small.y**2).mean(axis=-1), (data.y**2).mean(axis=-1), rtol=1e-12)
    assert small.compressed() is small
    assert small.compressed().X.shape == lf.GivenSamples(data.X[..., :11, :], data.y[..., :11]).compressed().X.shape
    with pytest.raises(ValueError, match=r"1 to 40 samples each"):
        SAMPLES["given, unequal"].compressed()


def test_data_without_a_truth_are_compressed():
    data = given([20] * 6)
    one, other = (lf.simulate(fedrep(), data=data, rounds=50, engine=engine) for engine in ("compressed", "explicit"))
    for name, array in other.final.arrays().items():
        assert np.abs(one.final.arrays()[name] - array).max() < 1e-10
    assert lf.simulate(fedrep(), data=data, rounds=50).engine == "compressed"


@pytest.mark.parametrize("clients", [None, 1, 4])
@pytest.mark.parametrize("samples", SAMPLES)
@pytest.mark.parametrize("design", ["gaussian", "cube"])
def test_the_moments_of_compressed_samples_are_those_of_the_rows(samples, clients, design, monkeypatch):
    monkeypatch.setattr(linalg, "CACHE_VALUES", 500)
    algorithm = lf.FedRep(rank=2, step_size=0.3, init=lf.Moments(clients=clients))
    problem = truth(design=design)
    one, other = (
        simulate(algorithm, problem, SAMPLES[samples], rounds=0, engine=engine) for engine in ("compressed", "explicit")
    )
    assert np.abs(one.final.B - other.final.B).max() < 1e-12


@pytest.mark.parametrize("engine", ["compressed", "projected", "chain"])
def test_the_moments_of_fresh_samples_are_those_of_explicit_rows(engine):
    algorithm, problem = lf.FedRep(rank=2, step_size=0.3), shared(d=9)
    one, other = (
        simulate(algorithm, problem, lf.FreshSamples(12), rounds=0, engine=name, trials=5)
        for name in (engine, "explicit")
    )
    for name, values in other.metrics.items():
        assert np.abs(one.metrics[name] - values).max() < 1e-12
    if engine != "chain":
        assert np.abs(one.final.B - other.final.B).max() < 1e-12


@pytest.mark.parametrize("samples", SAMPLES)
def test_every_question_has_the_same_answer_up_to_rounding(samples):
    """Gradient, loss, least squares, normal equations and labels that are shifted, of compressed and explicit rows."""
    data, problem = SAMPLES[samples], truth()
    batch, rows = (batch_of(name, problem, data) for name in ("compressed", "explicit"))
    theta, weights = normal(4, 6, 9), np.full((4, 6), 1 / 6)
    for one, other in ((batch, rows), (batch.shifted(theta), rows.shifted(theta))):
        answers = [
            (b.gradient(theta), b.gradient(theta[:, :1]), b.loss(theta), b.loss(theta[:, :1]), b.least_squares(),
             b.least_squares(0.1), b.pooled_least_squares(weights), *b.normal_equations(), b.counts)
            for b in (one, other)
        ]  # fmt: skip
        for a, b in zip(*answers, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    B = at(basis(9, 2))
    W = normal(4, 6, 2)
    one, other = batch.project(B), rows.project(B)
    for a, b in (
        (one.head_gradient(W), other.head_gradient(W)),
        (one.representation_gradient(W), other.representation_gradient(W)),
        (one.representation_gradient(W, weights * W[..., 0]), other.representation_gradient(W, weights * W[..., 0])),
        (one.shifted(W).gradient(theta), other.shifted(W).gradient(theta)),
        (one.fit().W, other.fit().W),
    ):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


# --- samples beyond what is drawn ----------------------------------------------------------------------------


def test_fixed_samples_beyond_many_values_hold_only_pseudo_samples():
    data, problem = lf.FixedSamples(10**6), shared(n=20, d=50)
    algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.5))
    tracemalloc.start()
    result = simulate(algorithm, problem, data, rounds=40, engine="compressed", trials=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    assert (result.metrics["subspace_distance"][:, -1] < 1e-3).all()
    batch = batch_of("compressed", problem, data, trials=1)
    assert batch.X.shape == (1, 20, 51, 50)
    assert (batch.counts == 1e6).all()


def test_fresh_samples_are_compressed_to_one_more_than_the_dimension():
    batch = batch_of("compressed", shared(n=20, d=50), lf.FreshSamples(10**6), trials=1)
    assert batch.X.shape == (1, 20, 51, 50)
    A = batch.normal_equations()[0]
    assert np.abs(A - np.eye(50)).max() < 6e-3  # six standard deviations


@pytest.mark.parametrize("init", ["moments", lf.Moments(clients=2)])
def test_the_moments_of_samples_that_are_not_drawn_are_refused(init, monkeypatch):
    algorithm = lf.FedRep(rank=2, step_size=0.5, init=init)
    monkeypatch.setattr(engines, "MANY_VALUES", 100.0)
    with pytest.raises(lf.EngineError, match=r"init = Moments.*AtDistance\(delta\).*'random'"):
        simulate(algorithm, shared(), lf.FixedSamples(40), engine="compressed")


def test_auto_does_not_draw_samples_that_need_not_be_drawn():
    algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.5))
    for rounds in (0, 1, 3, 1000):
        assert chosen(algorithm, shared(n=20, d=50), lf.FixedSamples(10**6), rounds=rounds) == "compressed"


# --- the choice ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Stepping(lf.FedRep):
    """A subclass with a step of its own."""

    def step(self, state, batch, rng):
        return super().step(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class Finishing(lf.FedRep):
    """A subclass with an end of its own."""

    def finish(self, state, batch, rng):
        return state


@dataclass(frozen=True, kw_only=True)
class Renamed(lf.FedRep):
    """A subclass that steps as FedRep does."""


@dataclass(frozen=True, kw_only=True)
class Saying(Stepping):
    """A subclass with a step of its own that says what it asks."""

    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        return super().step(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class SayingLess(Saying):
    """A subclass of one that says what it asks, with another step again."""

    def step(self, state, batch, rng):
        return super().step(state, batch, rng)


@pytest.mark.parametrize("engine", ["compressed", "projected", "chain"])
def test_a_new_step_does_not_inherit_what_an_engine_would_answer_wrongly_in_silence(engine):
    """Entries of B are others in the chain's frame, and rows of a compressed batch are no samples."""

    @dataclass(frozen=True, kw_only=True)
    class Thresholded(lf.FedRep):
        def step(self, state, batch, rng):
            new = super().step(state, batch, rng)
            return new.update(B=np.where(np.abs(new.B) < 0.1, 0.0, new.B))

    algorithm, data = Thresholded(**PLAIN), lf.FreshSamples(12)
    assert simulate(algorithm, truth(), data).engine == "explicit"
    with pytest.raises(lf.EngineError, match=r"Thresholded .*; use 'auto', 'explicit'$"):
        simulate(algorithm, truth(), data, engine=engine)


@dataclass(frozen=True, kw_only=True)
class Own(lf.Algorithm):
    """An algorithm that says nothing."""

    def initial_state(self, start):
        return lf.State(S=np.zeros((start.trials, 1, start.dim)))

    def step(self, state, batch, rng):
        return state.update(S=state.S - 0.1 * batch.gradient(state.S).mean(axis=1, keepdims=True))


PLAIN = {"rank": 2, "step_size": 0.5}
BIG = shared(n=100, d=60)
CUBE = shared(n=100, d=60, design="cube")
CHOICES = {
    "fresh Gaussian samples": (lf.FedRep(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "with gradient heads": (lf.FedRep(**PLAIN, **GRADIENT), BIG, lf.FreshSamples(30), "projected"),
    "with a covariance": (
        lf.FedRep(**PLAIN),
        shared(n=100, d=60, design=lf.Gaussian(covariance=np.linspace(1, 2, 60))),
        lf.FreshSamples(30),
        "projected",
    ),
    "oracle": (lf.Oracle(rank=2), BIG, lf.FreshSamples(30), "projected"),
    "FLUTE": (lf.FLUTE(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "FLUTE, many fixed samples": (lf.FLUTE(**PLAIN), BIG, lf.FixedSamples(5000), "compressed"),
    "FLUTE, few fixed samples": (lf.FLUTE(**PLAIN), BIG, lf.FixedSamples(30), "explicit"),
    "FLUTE, another law": (lf.FLUTE(**PLAIN), CUBE, lf.FreshSamples(30), "explicit"),
    "shortcuts, many samples": (lf.FedRepShortcut(**PLAIN), BIG, lf.FreshSamples(5000), "compressed"),
    "shortcuts, few samples": (lf.FedRepShortcut(**PLAIN), BIG, lf.FreshSamples(30), "explicit"),
    "very many samples": (lf.FedRep(**PLAIN), BIG, lf.FreshSamples(10**7), "projected"),
    "representation steps, many samples": (
        lf.FedRep(**PLAIN, representation_steps=3),
        BIG,
        lf.FreshSamples(5000),
        "compressed",
    ),
    "representation steps, few samples": (
        lf.FedRep(**PLAIN, representation_steps=3),
        BIG,
        lf.FreshSamples(30),
        "explicit",
    ),
    "FedAvg, many samples": (lf.FedAvg(step_size=0.1), BIG, lf.FreshSamples(5000), "compressed"),
    "FedAvg, as many as compressed": (lf.FedAvg(step_size=0.1), BIG, lf.FreshSamples(61), "explicit"),
    "FedAvg, few samples": (lf.FedAvg(step_size=0.1), BIG, lf.FreshSamples(30), "explicit"),
    "another law": (lf.FedRep(**PLAIN), CUBE, lf.FreshSamples(30), "explicit"),
    "another law, many samples": (lf.FedAvg(step_size=0.1), CUBE, lf.FreshSamples(5000), "explicit"),
    "small sizes": (lf.FedRep(**PLAIN), shared(), lf.FreshSamples(3), "explicit"),
    "fixed samples": (lf.FedRep(**PLAIN), BIG, lf.FixedSamples(30), "explicit"),
    "many fixed samples": (lf.FedRep(**PLAIN), BIG, lf.FixedSamples(5000), "compressed"),
    "many fixed samples of another law": (lf.FedRep(**PLAIN), CUBE, lf.FixedSamples(5000), "compressed"),
    "an algorithm that says nothing": (Own(), BIG, lf.FreshSamples(5000), "explicit"),
    "a subclass with a step": (Stepping(**PLAIN), BIG, lf.FreshSamples(30), "explicit"),
    "a subclass with an end": (Finishing(**PLAIN), BIG, lf.FreshSamples(30), "explicit"),
    "a subclass without": (Renamed(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "a subclass that says what it asks": (Saying(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "a subclass of it that does not": (SayingLess(**PLAIN), BIG, lf.FreshSamples(30), "explicit"),
}


@each("name", CHOICES)
def test_auto_takes_the_cheapest_exact_engine(name):
    algorithm, problem, data, wanted = CHOICES[name]
    assert chosen(algorithm, problem, data, rounds=1000) == wanted


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_says_which_engine_it_was(engine, tmp_path):
    result = simulate(fedrep(), truth(), lf.FreshSamples(12), engine=engine)
    assert result.engine == engine
    assert f"engine {engine}" in result.summary()
    loaded = lf.Result.load(result.save(tmp_path / "result"))
    assert loaded.engine == engine
    assert loaded.summary() == result.summary()
    assert np.array_equal(loaded.final.B, result.final.B)


def test_the_choice_does_not_depend_on_trials_or_memory():
    algorithm, problem, data = lf.FedRep(**PLAIN), BIG, lf.FreshSamples(30)
    assert {simulate(algorithm, problem, data, rounds=2, trials=trials).engine for trials in (1, 40)} == {"projected"}


OBSTACLES = {
    "no such name": (fedrep(), truth(), lf.FreshSamples(12), "projektet", "did you mean 'projected'"),
    "no name": (fedrep(), truth(), lf.FreshSamples(12), None, "engine = None is unknown.*'auto', 'explicit'"),
    "compressed, few samples": (
        fedrep(), truth(), lf.FreshSamples(9), "compressed", r"m = 9 is at most d = 9.*'explicit', 'projected'"
    ),
    "compressed, few given samples": (
        fedrep(), truth(), given([3, 4, 5, 6, 7, 8]), "compressed", r"m = 8 is at most d = 9; use 'auto', 'explicit'$"
    ),
    "compressed, another law": (
        fedrep(), truth(design="cube"), lf.FreshSamples(12), "compressed", "Gaussian x; use 'auto', 'explicit'$"
    ),
    "compressed, rows": (Own(), truth(), lf.FreshSamples(12), "compressed", "Own may use single samples"),
    "projected, rows": (Own(), truth(), lf.FreshSamples(12), "projected", "Own uses more than the features at one B"),
    "projected, quadratic": (
        lf.FedAvg(step_size=0.1), truth(), lf.FreshSamples(12), "projected",
        "FedAvg uses more than the features at one B; use 'auto', 'explicit', 'compressed'$",
    ),
    "projected, representation steps": (
        fedrep(representation_steps=2), truth(), lf.FreshSamples(12), "projected", "FedRep uses more"
    ),
    "projected, fixed samples": (
        fedrep(), truth(), lf.FixedSamples(12), "projected", "fixed samples are used at more than one B"
    ),
    "projected, given samples": (fedrep(), truth(), given([12] * 6), "projected", "fixed samples are used"),
    "projected, another law": (
        fedrep(), truth(design="sphere"), lf.FreshSamples(12), "projected", "it requires Gaussian x"
    ),
    "chain, another law": (fedrep(), truth(design="rademacher"), lf.FreshSamples(12), "chain", "requires Gaussian"),
    "chain, fixed samples": (fedrep(), truth(), lf.FixedSamples(12), "chain", "fixed samples are used"),
    "chain, dense truth": (
        fedrep(), lf.GivenTruth(B=basis(9, 2), Phi=normal(6, 9)), lf.FreshSamples(5), "chain",
        "the ground truth must have the form.*'explicit', 'projected'$",
    ),
    "chain, truth with a shortcut": (
        fedrep(), truth(S=normal(6, 9)), lf.FreshSamples(5), "chain", "the ground truth must have the form"
    ),
    "chain, covariance": (
        fedrep(), truth(design=lf.Gaussian(covariance=np.arange(1.0, 10.0))), lf.FreshSamples(5), "chain",
        "x is not isotropic",
    ),
    "chain, small dimension": (
        fedrep(d=5), truth(d=5), lf.FreshSamples(5), "chain", r"it requires d >= r \+ 2k = 6, but d = 5"
    ),
}  # fmt: skip


@each("name", OBSTACLES)
def test_an_engine_that_cannot_serve_says_why_and_which_can(name):
    algorithm, problem, data, engine, message = OBSTACLES[name]
    with pytest.raises(ValueError, match=message) as caught:
        simulate(algorithm, problem, data, engine=engine)
    if engine in ENGINES:
        assert isinstance(caught.value, lf.EngineError)
        assert str(caught.value).startswith(f"engine = '{engine}' does not support this run: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_negative_ridge_is_refused_in_a_step(engine):
    first, step, *_ = lf.iterate(fedrep(), truth(), data=lf.FreshSamples(12), rounds=1, engine=engine)
    with pytest.raises(ValueError, match=r"ridge = -0\.5 must be a finite number of at least 0"):
        step.batch.project(first.after.B).fit(-0.5)


def test_the_chain_refuses_what_happens_at_the_end():
    @dataclass(frozen=True, kw_only=True)
    class Ending(lf.FedRep):
        requires, finishes = lf.Requires.FEATURES, True

    with pytest.raises(lf.EngineError, match=r"final step.*'explicit', 'projected'"):
        simulate(Ending(**PLAIN), truth(), lf.FreshSamples(5), engine="chain")


@dataclass(frozen=True, kw_only=True, repr=False)
class Moving(lf.State):
    extra: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Momentum(lf.FedRep):
    """FedRep with a further array in its state, of the given shape after the axis of trials."""

    shape: tuple[int, ...]
    requires = lf.Requires.FEATURES

    def initial_state(self, start):
        return Moving(**super().initial_state(start).arrays(), extra=np.zeros((start.trials, *self.shape)))


@pytest.mark.parametrize("d", [9, 6])  # 6 = r + 2k, where the shapes would agree
def test_the_chain_refuses_states_with_other_arrays_of_d_rows(d):
    run = {"problem": shared(d=d), "data": lf.FreshSamples(5)}
    wanted = (
        rf"chain.*extra of shape \(trials, {d}, 2\) along the d = {d} coordinates; use 'auto', 'explicit', 'projected'$"
    )
    with pytest.raises(lf.EngineError, match=wanted):
        simulate(Momentum(**PLAIN, shape=(d, 2)), **run, engine="chain")
    simulate(Momentum(**PLAIN, shape=(d, 2)), **run, engine="projected")
    assert simulate(Momentum(**PLAIN, shape=(4, 2)), **run, engine="chain").engine == "chain"


def test_given_samples_without_a_truth_refuse_the_engines_that_draw():
    for engine in ("projected", "chain"):
        with pytest.raises(lf.EngineError, match="fixed samples"):
            lf.simulate(fedrep(), data=given([12] * 6), rounds=2, engine=engine)


def test_the_chain_keeps_b_up_to_a_rotation_and_says_so():
    result = simulate(fedrep(), shared(), lf.FreshSamples(5), engine="chain")
    assert result.final.B.shape == (3, 6, 2)
    for question in (lambda: result.new_clients([5]), result.client_risks):
        with pytest.raises(ValueError, match=r"up to a rotation.*'projected'"):
            question()


def test_new_clients_and_risks_under_the_other_engines():
    for engine in ("projected", "compressed", "explicit"):
        result = simulate(fedrep(), shared(), lf.FreshSamples(12), engine=engine)
        assert result.new_clients([5], clients=4).shape == (3, 1, 4)
        np.testing.assert_allclose(result.client_risks().mean(axis=1), result.metrics["risk"][:, -1])


# --- questions that an engine cannot answer ------------------------------------------------------------------

QUESTIONS = {
    "gradient": lambda batch: batch.gradient(np.zeros((4, 1, 9))),
    "loss": lambda batch: batch.loss(np.zeros((4, 1, 9))),
    "least_squares": lambda batch: batch.least_squares(),
    "pooled_least_squares": lambda batch: batch.pooled_least_squares(np.ones((4, 6))),
    "normal_equations": lambda batch: batch.normal_equations(),
    "shifted": lambda batch: batch.shifted(np.zeros((4, 1, 9))),
    "minibatches": lambda batch: list(batch.minibatches(2)),
    "split": lambda batch: batch.split(),
    "features.shifted": lambda batch: batch.project(at(basis(9, 2))).shifted(np.zeros((4, 6, 2))),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_projected_batch_names_the_engines_that_can_answer(question):
    batch = batch_of("projected", truth(), lf.FreshSamples(5))
    requires = "ROWS" if question in ("minibatches", "split") else "QUADRATIC"
    wanted = f"engine = 'projected'.*{question}; use engine = 'explicit', or .* requires = lf.Requires.{requires} if"
    with pytest.raises(lf.EngineError, match=wanted):
        QUESTIONS[question](batch)


@pytest.mark.parametrize("question", ["minibatches", "split"])
@pytest.mark.parametrize("data", [lf.FreshSamples(12), lf.FixedSamples(12), given([12] * 6)])
def test_a_compressed_batch_has_no_single_samples(data, question):
    batch = batch_of("compressed", truth(), data)
    features = batch.project(at(basis(9, 2)))
    shifted = batch.shifted(np.zeros((4, 1, 9)))
    for one in (batch, shifted, shifted.shifted(np.zeros((4, 1, 9))), features.fit().shifted()):
        wanted = f"engine = 'compressed'.*{question}; use engine = 'explicit', or .* requires = lf.Requires.ROWS if"
        with pytest.raises(lf.EngineError, match=wanted):
            QUESTIONS[question](one)


def test_an_algorithm_that_asks_for_more_than_it_says_is_told_so():
    @dataclass(frozen=True, kw_only=True)
    class Liar(Own):
        requires = lf.Requires.FEATURES

    with pytest.raises(lf.EngineError, match=r"does not support batch\.gradient"):
        simulate(Liar(), truth(), lf.FreshSamples(12), engine="projected")


ROWS_OF = {
    "X": lambda batch, B: batch.X,
    "y": lambda batch, B: batch.y,
    "shape": lambda batch, B: batch.shape,
    "features.Z": lambda batch, B: batch.project(B).Z,
    "fit.residual": lambda batch, B: batch.project(B).fit().residual,
}


@dataclass(frozen=True, kw_only=True)
class Reads(lf.FedRep):
    """FedRep that declares features, and reads a part of the samples."""

    part: object
    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        self.part(batch, state.B)
        return super().step(state, batch, rng)


@pytest.mark.parametrize("part", ROWS_OF)
@pytest.mark.parametrize("engine", ["auto", "projected", "chain"])
def test_a_step_that_reads_samples_is_told_to_declare_it(part, engine):
    run = {"problem": shared(n=100, d=60), "data": lf.FreshSamples(30), "rounds": 1}
    algorithm = Reads(**PLAIN, part=ROWS_OF[part])
    wanted = rf"engine = '(projected|{engine})' .*{part}; use engine = 'explicit', or .* requires = lf.Requires.ROWS if"
    with pytest.raises(lf.EngineError, match=wanted):
        simulate(algorithm, **run, engine=engine)
    assert simulate(algorithm, **run, engine="explicit").engine == "explicit"

    class Declares(Reads):
        requires = lf.Requires.ROWS

    assert simulate(Declares(**PLAIN, part=ROWS_OF[part]), **run).engine == "explicit"


def test_other_names_are_missing_as_usual():
    batch = batch_of("projected", truth(), lf.FreshSamples(5))
    features = batch.project(at(basis(9, 2)))
    for part in (batch, features, features.fit()):
        for name in ("Xs", "__array__", "_X", "_residual"):
            assert not hasattr(part, name)


def test_samples_that_are_not_drawn_are_in_no_engine():
    batch = batch_of("compressed", truth(), lf.FixedSamples(12, in_law=True))
    for question in ("minibatches", "split"):
        with pytest.raises(lf.EngineError, match=f"{question}; no other engine can: the samples .* are not drawn"):
            QUESTIONS[question](batch)


MOMENTUM = Momentum(**PLAIN, shape=(9, 2))
PROPOSALS = [
    (algorithm, problem, data)
    for algorithm in (fedrep(), MOMENTUM, replace(MOMENTUM, shape=(3, 2)), lf.FedAvg(step_size=0.02), Own(),
                      lf.FLUTE(**PLAIN), lf.CompressedFedRep(kept_share=0.5, **PLAIN),
                      lf.FedBABU(rank=2, step_size=0.1), fedrep(representation_steps=2),
                      lf.Personalized(base=lf.FedRep(**PLAIN), ridge=0.1), lf.LocalOnly())
    for problem in (truth(), truth(design="cube"), truth(S=normal(6, 9)))
    for data in (lf.FreshSamples(5), lf.FreshSamples(12), lf.FreshSamples((5, 12, 12, 12, 12, 12)), lf.FixedSamples(12),
                 lf.FixedSamples(5), lf.FixedSamples(12, in_law=True))
]  # fmt: skip


@each("engine", ENGINES)
@each(("algorithm", "problem", "data"), PROPOSALS)
def test_the_engines_that_an_error_names_accept_and_no_others(algorithm, problem, data, engine):
    def refusal(name):
        try:
            simulate(algorithm, problem, data, engine=name, rounds=1, trials=1)
        except lf.EngineError as error:
            return str(error)
        return ""

    if told := refusal(engine):
        named = set(re.findall(r"'(\w+)'", told.rpartition("; use ")[2] if "; use 'auto'" in told else ""))
        assert named == {name for name in ("auto", *ENGINES) if not refusal(name)}


# --- reproducible trials -------------------------------------------------------------------------------------


FLUTE = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
SHORTCUT = lf.FedRepShortcut(rank=2, step_size=0.05, solver=lf.ClosedForm())
WITH_SHORTCUTS = lf.SharedWithShortcuts(n_clients=6, dim=9, rank=2, shortcut_norm=0.5, clusters=4)
SIMILAR = lf.SimilarRepresentations(n_clients=6, dim=9, rank=2, deviation=0.5, outliers=0.2, noise_std=0.1)
WIDE = {"problem": shared(n=1100, d=12), "data": lf.FreshSamples(5), "rounds": 3}
DENSE = lf.GivenTruth(B=basis(60, 2), Phi=normal(1100, 60), noise_std=0.1)
RUNS = {
    "projected": {"algorithm": fedrep(init="moments")},
    "projected, ridge": {"algorithm": fedrep(heads=lf.ExactHeads(ridge=0.1))},
    "projected, gradient heads": {"algorithm": fedrep(**GRADIENT)},
    "projected, m = 1": {"algorithm": fedrep(**GRADIENT), "data": lf.FreshSamples(1)},
    "projected, m = k": {"data": lf.FreshSamples(2)},
    "projected, k = 1": {"algorithm": fedrep(k=1), "data": lf.FreshSamples(3), "problem": truth(r=1)},
    "projected, dense truth": {"problem": lf.GivenTruth(B=basis(9, 2), Phi=normal(6, 9), noise_std=0.1)},
    "projected, similar representations": {"problem": SIMILAR},
    "compressed, similar representations": {"problem": SIMILAR, "data": lf.FreshSamples(12)},
    "projected, covariance": {"problem": truth(design=lf.Gaussian(covariance=np.diag(np.arange(1.0, 10.0))))},
    "projected, many clients": {**WIDE, "algorithm": fedrep(d=12)},
    "projected, many clients, gradient heads": {**WIDE, "algorithm": fedrep(d=12, **GRADIENT)},
    "projected, blocks of clients": {**WIDE, "algorithm": fedrep(d=60), "problem": DENSE},
    "projected, one singular trial": {
        "algorithm": fedrep(init=np.stack([basis(9, 2, seed=i) * [1, i != 1] for i in range(7)]))
    },
    "projected, FLUTE": {"algorithm": FLUTE},
    "projected, FLUTE, m = 1": {"algorithm": FLUTE, "data": lf.FreshSamples(1)},
    "projected, FLUTE, dense truth": {"algorithm": FLUTE, "problem": lf.UnderParameterized(n_clients=6, dim=9)},
    "projected, FLUTE, many clients": {**WIDE, "algorithm": dataclasses.replace(FLUTE, step_size=1e-4)},
    "chain, FLUTE": {"algorithm": FLUTE},
    "explicit, FLUTE": {"algorithm": FLUTE, "problem": lf.UnderParameterized(n_clients=6, dim=9)},
    "compressed, FLUTE": {"algorithm": FLUTE, "data": lf.FreshSamples(12)},
    "compressed, fixed, FLUTE": {"algorithm": FLUTE, "data": lf.FixedSamples(12)},
    "explicit, shortcuts": {
        "algorithm": lf.FedRepShortcut(
            rank=2, step_size=0.05, solver=lf.GradientSteps(shortcut_step_size=0.01), ridge=0.1, mixing=0.4
        )
    },
    "explicit, shortcuts, closed form": {"algorithm": SHORTCUT, "problem": WITH_SHORTCUTS},
    "explicit, shortcuts, joint": {
        "algorithm": dataclasses.replace(SHORTCUT, solver=lf.ClosedForm(order="joint"), ridge=0.5)
    },
    "compressed, shortcuts": {"algorithm": SHORTCUT, "data": lf.FreshSamples(12), "problem": WITH_SHORTCUTS},
    "compressed, fixed, shortcuts, joint": {
        "algorithm": dataclasses.replace(SHORTCUT, solver=lf.ClosedForm(order="joint"), ridge=0.5),
        "data": lf.FixedSamples(12),
        "problem": WITH_SHORTCUTS,
    },
    "chain": {"algorithm": fedrep(init="moments")},
    "chain, gradient heads": {"algorithm": fedrep(**GRADIENT)},
    "chain, r > k": {"problem": shared(r=4)},
    "chain, many clients": {**WIDE, "algorithm": fedrep(d=12)},
    "compressed, fresh": {"data": lf.FreshSamples(12)},
    "compressed, FedAvg": {"data": lf.FreshSamples(12), "algorithm": LEARNERS["FedAvg, fine-tuned"]},
    "compressed, fixed": {"data": lf.FixedSamples(12), "algorithm": lf.FedRep(**PLAIN)},
    "compressed, fixed, FedAvg": {"data": lf.FixedSamples(12), "algorithm": LEARNERS["FedAvg"]},
    "compressed, fixed, not drawn": {"data": lf.FixedSamples(10**7)},
}


def run(name, **changes):
    defaults = {"algorithm": fedrep(), "problem": shared(), "data": lf.FreshSamples(5), "rounds": 8, "trials": 7}
    arguments = defaults | {"participation": 0.8, "seed": 3, "engine": name.split(",")[0]} | RUNS[name] | changes
    algorithm, trials = arguments.pop("algorithm"), arguments["trials"]
    if np.ndim(getattr(getattr(algorithm, "init", None), "B", 0)) == 3:
        algorithm = dataclasses.replace(algorithm, init=algorithm.init.B[:trials])
    return lf.simulate(algorithm, arguments.pop("problem"), **arguments)


@pytest.fixture(scope="module")
def seven():
    """Return each run of seven trials, made once."""
    made = {}

    def result(name):
        if name not in made:
            made[name] = run(name)
        return made[name]

    return result


@each("name", RUNS)
@each("trials", [1, 3])
def test_a_trial_does_not_depend_on_the_number_of_trials(name, trials, seven):
    assert_same(run(name, trials=trials), seven(name), slice(None), slice(trials))


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_a_trial_does_not_depend_on_the_chunk(name, seven, monkeypatch):
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    assert_same(run(name), seven(name))


@pytest.mark.parametrize("name", ["projected", "chain", "compressed, fresh", "compressed, fixed"])
def test_a_memory_budget_cuts_trials_that_stay_the_same(name, seven):
    with pytest.raises(lf.SizeError) as caught:
        run(name, memory_budget=1.0)
    number, unit = str(caught.value).split("about ")[1].split(" ")[:2]
    each = float(number) * 1000.0 ** ["B", "kB", "MB", "GB"].index(unit)
    assert_same(run(name, memory_budget=2.1 * each), seven(name))


@pytest.mark.long
@pytest.mark.parametrize("name", ["projected"])
def test_worker_processes_give_the_same_bits(name, seven):
    assert_same(run(name, workers=2), seven(name))


@pytest.mark.long
@each("name", [name for name in RUNS if name != "compressed, FedAvg"])
def test_a_longer_run_extends_a_shorter_one(name, seven):
    rounds = len(seven(name).rounds)
    assert_same(run(name, rounds=rounds + 8), seven(name), rounds=rounds)


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_the_length_of_a_block_of_rounds_changes_nothing(name, seven, monkeypatch):
    wanted = seven(name)
    monkeypatch.setattr(streams, "BLOCK_VALUES", 2 * wanted.problem.n_clients)  # participants are shuffled still
    assert_same(run(name), wanted)


@pytest.mark.long
@each("name", RUNS)
def test_another_seed_is_another_run(name, seven):
    assert not np.isin(run(name, seed=4).metrics["risk"][:, -1], seven(name).metrics["risk"][:, -1]).any()


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(lf.Algorithm):
    """Runs FedRep and keeps who took part."""

    inner: lf.Algorithm
    active: list = field(default_factory=list)
    requires = lf.Requires.FEATURES

    @property
    def initialization(self):
        return self.inner.initialization

    @property
    def learned_rank(self):
        return self.inner.learned_rank

    def initial_state(self, start):
        return self.inner.initial_state(start)

    def step(self, state, batch, rng):
        self.active.append(batch.active.copy())
        return self.inner.step(state, batch, rng)


@pytest.mark.parametrize("engine", ["projected", "chain", "compressed"])
def test_engines_see_the_same_truth_start_and_participants(engine):
    one, other = (Watched(inner=lf.FedRep(rank=2, step_size=0.3, init=lf.AtDistance(0.5))) for _ in range(2))
    results = [
        simulate(watched, shared(), lf.FreshSamples(12), participation=0.5, engine=name, rounds=20)
        for watched, name in ((one, engine), (other, "explicit"))
    ]
    assert np.array_equal(one.active, other.active)
    assert len(np.unique(one.active)) == 6
    for name, values in results[1].metrics.items():
        assert np.abs(results[0].metrics[name][:, 0] - values[:, 0]).max() < 1e-12
        assert np.abs(results[0].metrics[name][:, -1] - values[:, -1]).min() > 1e-6  # the samples are others


# --- numbers from the streams that they belong to ------------------------------------------------------------

X_NOISE, FINISH, INIT = (
    (streams.Stream.X, streams.Stream.NOISE),
    (streams.Stream.FINISH_X, streams.Stream.FINISH_NOISE),
    (streams.Stream.INIT_X, streams.Stream.INIT_NOISE),
)
LEVELS, COUNTS = (0.1, 0.5, 0.05, 1.0, 2.0, 0.3), (5, 7, 5, 9, 6, 12)
"""Standard deviations of the noise and numbers of samples that differ between clients."""

VARIANCES = np.stack([np.diag(np.arange(1.0, 10.0) + i) for i in range(6)])
FRESH_ROWS = {
    "noiseless": (truth(noise=0.0), 5),
    "dense truth": (lf.GivenTruth(Phi=normal(6, 9), noise_std=0.3), 5),
    "differing clients": (truth(noise=LEVELS), COUNTS),
    "their own covariances": (truth(design=lf.Gaussian(covariance=VARIANCES)), 5),
}


def drawn(problem, n_samples, who, rngs, seed=7):
    """Return X (p, m, d) and y (p, m) of one trial's clients, without samples beyond a client's number, in a list."""
    truth, sizes = problem.truth(seed, [0]), np.broadcast_to(n_samples, 6)
    z, noise = (rng.standard_normal((len(who), sizes.max(), *rest)) for rng, rest in zip(rngs, ((9,), ()), strict=True))
    design, levels = truth.design, np.broadcast_to(problem.noise_std, 6)
    X = design.shape_clients(z, np.array(who)) if design.per_client else z
    parts = []
    for place, i in enumerate(who):
        rows = X[place, : sizes[i]]
        parts.append((rows, rows @ truth.dense()[0, i] + levels[i] * noise[place, : sizes[i]]))
    return parts


def assert_rows(X, y, parts):
    """Assert that padded rows (p, m, d) and labels (p, m) are the given ones."""
    for rows, labels, (wanted_rows, wanted_labels) in zip(X, y, parts, strict=True):
        m = len(wanted_labels)
        np.testing.assert_allclose(rows[:m], wanted_rows, rtol=1e-13)
        np.testing.assert_allclose(labels[:m], wanted_labels, rtol=1e-10, atol=1e-12)
        assert not rows[m:].any()
        assert not labels[m:].any()


@pytest.mark.parametrize("cache", [None, 1], ids=["ahead", "when they are read"])
@pytest.mark.parametrize("name", FRESH_ROWS)
def test_fresh_rows_are_those_of_their_streams(name, cache, monkeypatch):
    problem, m = FRESH_ROWS[name]
    if cache is not None:
        monkeypatch.setattr(sources, "CACHE_VALUES", cache)
    sizes, trials = Sizes(n_clients=6, dim=9, participants=2, rounds=2, features=20), range(2)
    source = open_source("explicit", lf.FreshSamples(m), problem.truth(7, trials), sizes, 2, 7, trials)
    rngs = [list(pair) for pair in zip(*(streams.generators(7, one, trials) for one in X_NOISE), strict=True)]
    for number, who in enumerate(([[0, 3], [1, 5]], [[2, 4], [0, 1]]), 1):
        batch = source.round(np.array(who), number)
        assert (batch.round, batch.n_clients) == (number, 6)
        for t in trials:
            assert_rows(batch.X[t], batch.y[t], drawn(problem, m, who[t], rngs[t]))
    batch, whole = source.all_clients(3), list(source.rows_for_moments(np.arange(6)))
    assert (batch.round, batch.n_clients, batch.active.tolist()) == (3, 6, [[*range(6)]] * 2)
    first = source.first(2, 6)
    assert (first.round, first.n_clients) == (0, 6)
    for t in trials:
        last, init = ([streams.generators(7, one, trials)[t] for one in pair] for pair in (FINISH, INIT))
        assert_rows(batch.X[t], batch.y[t], drawn(problem, m, range(6), last))
        wanted = drawn(problem, m, range(6), init)
        assert_rows(first.X[t], first.y[t], wanted)
        X, y, counts = (np.concatenate([block[part] for block in whole if block[0] == t]) for part in (1, 2, 3))
        assert_rows(X, y, wanted)
        assert np.array_equal(counts, np.broadcast_to(m, 6))
        assert np.array_equal(first.counts[t], counts)


def bartlett(m, d, count, normals, gammas):
    """Return triangular factors of standard Gaussian matrices (m, d + 1), entry by entry."""
    R, above = np.zeros((count, d + 1, d + 1)), normals.standard_normal((count, d * (d + 1) // 2))
    for c in range(count):
        place = 0
        for i in range(d + 1):
            R[c, i, i] = np.sqrt(2.0 * gammas.standard_gamma((m - i) / 2))
            for j in range(i + 1, d + 1):
                R[c, i, j] = above[c, place]
                place += 1
    return R


@pytest.mark.parametrize("kind", ["fresh", "fixed"])
def test_compressed_rows_are_bartletts_factors(kind):
    """With labels of the truth and the last column's noise; all clients of a fixed set, some in a fresh round."""
    problem, trials = truth(noise=LEVELS, S=normal(6, 9, seed=5), design=lf.Gaussian(covariance=np.arange(1.0, 10))), 2
    truths, who = problem.truth(7, range(trials)), [range(6)] * 2 if kind == "fixed" else [[0, 3, 4], [1, 2, 5]]
    if kind == "fixed":
        X, y = compressed.draw_factors(truths, (6, 12, 9), 7, range(trials))
    else:
        sizes = Sizes(n_clients=6, dim=9, participants=3, rounds=2, features=20)
        source = open_source("compressed", lf.FreshSamples(12), truths, sizes, 2, 7, range(trials))
        batch = source.round(np.array(who), 4)
        assert (batch.round, batch.n_clients, batch.counts.tolist()) == (4, 6, [[12.0] * 3] * 2)
        X, y = batch.X, batch.y
    for t in range(trials):
        R = bartlett(12, 9, len(who[t]), *(streams.generators(7, one, range(trials))[t] for one in X_NOISE))
        for place, i in enumerate(who[t]):
            rows = R[place, :, :-1] * np.sqrt(np.arange(1.0, 10))
            np.testing.assert_allclose(X[t, place], rows, rtol=1e-12)
            labels = rows @ truths.dense()[t, i] + LEVELS[i] * R[place, :, -1]
            np.testing.assert_allclose(y[t, place], labels, atol=1e-11)


@pytest.mark.parametrize("kind", ["ahead", "block by block", "block by block, differing clients"])
def test_numbers_of_projected_rounds_are_those_of_their_streams(kind, monkeypatch):
    """Four Gaussian and three chi-square values of each of five clients, with m, m - 1 and m - 2 degrees."""
    monkeypatch.setattr(linalg, "CACHE_VALUES", 20)  # two clients in a block
    if kind != "ahead":
        monkeypatch.setattr(draws, "BLOCK_VALUES", 0)
    m = np.array([[8, 4, 9, 5, 6], [7, 7, 3, 8, 11]] if "differing" in kind else [[8] * 5] * 2, dtype=float)
    made = draws.Draws(4, 3, None if "differing" in kind else 8, 5, 2, 7, range(2), X_NOISE)
    assert made.lasting == (kind == "ahead")
    rngs = [streams.generators(7, one, range(2)) for one in X_NOISE]
    for _ in range(2):
        made.next_round(m if "differing" in kind else None)
        normals, squares = np.empty((2, 4, 5)), np.empty((2, 3, 5))
        for t in range(2):
            for c in [range(5)] if kind == "ahead" else [range(2), range(2, 4), range(4, 5)]:
                normals[t][:, c] = rngs[0][t].standard_normal((4, len(c)))
                for j in range(3):
                    squares[t, j, c] = [2.0 * rngs[1][t].standard_gamma((m[t, i] - j) / 2) for i in c]
        for _ in range(2):  # a second pass has the same numbers
            seen = 0
            for t, c, found_normals, found_squares in made.blocks(10):
                np.testing.assert_array_equal(found_normals, normals[t, :, c])
                np.testing.assert_allclose(found_squares, squares[t, :, c], rtol=1e-13)
                seen += found_normals.size
            assert seen == normals.size


@pytest.mark.parametrize("finish", [False, True])
def test_noise_outside_of_b_and_the_truth_is_that_of_its_stream(finish):
    pair = FINISH if finish else X_NOISE
    rngs = streams.generators(7, streams.Stream.FINISH_OUTSIDE if finish else streams.Stream.OUTSIDE, range(3))
    sizes, given = Sizes(n_clients=6, dim=11, participants=6, rounds=1, features=20), shared(d=11).truth(7, range(3))
    N = np.stack([rng.standard_normal((11, 3)) for rng in rngs])
    P = np.stack([basis(11, 5, seed=t) for t in range(3)])
    noise = ProjectedSource(9, given, sizes, 3, 7, range(3), pair).outer_noise(P)
    np.testing.assert_allclose(noise, N - P @ (P.mT @ N), atol=1e-13)

    rngs = streams.generators(7, streams.Stream.FINISH_OUTSIDE if finish else streams.Stream.OUTSIDE, range(3))
    P = np.stack([basis(8, 5, seed=t) for t in range(3)])
    noise = ChainSource(9, given, sizes, 3, 7, range(3), pair).outer_noise(P)
    np.testing.assert_allclose(P.mT @ noise, 0, atol=1e-13)
    for rng, found in zip(rngs, noise, strict=True):
        T = np.zeros((3, 3))
        T[0, 1], T[0, 2], T[1, 2] = rng.standard_normal(3)
        for j in range(3):  # d - r - k degrees of freedom and fewer
            T[j, j] = np.sqrt(2.0 * rng.standard_gamma((11 - 2 - 3 - j) / 2))
        np.testing.assert_allclose(found.T @ found, T.T @ T, atol=1e-12)


def test_the_frame_of_the_chain_keeps_lengths_and_angles():
    sizes, given = Sizes(n_clients=6, dim=11, participants=6, rounds=1, features=20), shared(d=11).truth(7, range(3))
    source, state = ChainSource(9, given, sizes, 3, 7, range(3)), lf.State(B=normal(3, 11, 3), W=normal(3, 6, 3))
    framed, star = source.to_frame(state), source.truth_in_frame(given).B
    assert framed.B.shape == (3, 8, 3)
    np.testing.assert_allclose(star.mT @ framed.B, given.B.mT @ state.B, atol=1e-12)
    moved = framed.update(B=normal(3, 8, 3, seed=1))
    for before, after in ((state, framed), (moved, source.reframe(moved))):
        np.testing.assert_allclose(after.B.mT @ after.B, before.B.mT @ before.B, atol=1e-12)
        assert not after.B[:, 5:].any()
        assert np.array_equal(after.W, state.W)
    assert np.array_equal(source.reframe(moved).B[:, :2], moved.B[:, :2])


def test_small_rounds_are_drawn_ahead_and_samples_are_read_in_blocks(monkeypatch):
    """Rounds of 2 x 5 x 9 numbers up to half a block, and projected rounds of 5 x 7 numbers up to a whole one."""
    sizes, trials = Sizes(n_clients=6, dim=9, participants=2, rounds=2, features=20), range(2)
    for cache, ahead, wanted in ((180, True, [4, 2]), (179, False, [3, 3]), (1, False, [1] * 6), (270, True, [6])):
        monkeypatch.setattr(sources, "CACHE_VALUES", cache)
        for data in (lf.FreshSamples(5), lf.FixedSamples(5)):
            source = open_source("explicit", data, truth().truth(7, trials), sizes, 2, 7, trials)
            blocks = [len(X) for trial, X, _, _ in source.rows_for_moments(np.arange(6)) if trial == 1]
            assert blocks == wanted
            assert data == lf.FixedSamples(5) or (source._ahead is not None) == ahead
    for block, ahead in ((35, True), (34, False)):
        monkeypatch.setattr(draws, "BLOCK_VALUES", block)
        assert draws.Draws(4, 3, 8, 5, 2, 7, trials, X_NOISE).lasting == ahead


def test_fixed_samples_are_copied_for_some_participants_alone():
    sizes = Sizes(n_clients=6, dim=9, participants=5, rounds=1, features=20)
    assert (sizes.gathered, dataclasses.replace(sizes, participants=6).gathered, sizes.classes) == (5, 0, 0)


# --- what one draw is held to --------------------------------------------------------------------------------

PROJECTED = {
    "low-rank truth": (truth(), 5, None, 2),
    "one sample": (truth(), 1, None, 2),
    "dense truth": (lf.GivenTruth(Phi=normal(6, 9), noise_std=0.3), 5, None, 2),
    "truth with a shortcut": (truth(S=normal(6, 9)), 5, None, 2),
    "covariance": (truth(design=lf.Gaussian(covariance=np.linspace(0.5, 2.0, 9))), 5, None, 2),
    "four columns": (truth(r=3), 7, None, 4),
    "four columns, three samples": (truth(r=6), 3, None, 4),
    "differing clients": (truth(noise=LEVELS), COUNTS, None, 3),
    "block by block": (truth(), 5, 60, 2),
    "block by block, dense truth": (lf.GivenTruth(Phi=normal(6, 9), noise_std=0.3), 5, 60, 2),
    "block by block, differing clients": (truth(noise=LEVELS), COUNTS, 60, 2),
}


@pytest.fixture(params=PROJECTED)
def features(request, monkeypatch):
    problem, m, cache, k = PROJECTED[request.param]
    if cache is not None:
        monkeypatch.setattr(draws, "BLOCK_VALUES", 0)
        monkeypatch.setattr(linalg, "CACHE_VALUES", cache)
    B = basis(9, k, seed=3) @ (np.eye(k) + np.triu(normal(k, k, seed=4)) / 4)
    return batch_of("projected", problem, lf.FreshSamples(m), k).project(at(B)), at(B), m


def test_messages_and_head_gradients_come_from_the_same_samples(features):
    """``B' sum_i (1/m) X_i'r_i w_i' = sum_i (head gradient)_i w_i'`` at any heads."""
    features, B, _ = features
    W = normal(4, 6, features.B.shape[-1], seed=1)
    G = features.representation_gradient(W, 1.0)
    wanted = np.swapaxes(features.head_gradient(W), -1, -2) @ W
    np.testing.assert_allclose(np.swapaxes(B, -1, -2) @ G, wanted, atol=1e-12)


def test_exact_heads_solve_the_normal_equations_of_the_same_samples(features):
    features, B, m = features
    fit = features.fit()
    G = fit.representation_gradient()
    assert np.abs(features.head_gradient(fit.W)).max() < 1e-11
    assert np.abs(np.swapaxes(B, -1, -2) @ G).max() < 1e-11
    assert (np.min(m) > B.shape[-1]) == bool(G.any())


def test_labels_have_the_coordinates_of_the_truth(features):
    features, B, _ = features
    truth, frame, k = features._source.truth, features._frame, B.shape[-1]
    np.testing.assert_allclose(frame.P.mT @ frame.P, at(np.eye(frame.P.shape[-1])), atol=1e-13)
    np.testing.assert_allclose(frame.P[..., :k] @ frame.R, truth.design.root_apply(B), atol=1e-13)
    a, e, tau, _ = features._labels(slice(0, 4), slice(0, 6))
    outside = e if frame.star is None else frame.P[..., k:] @ e
    phi = truth.design.root_apply(truth.dense().mT)
    np.testing.assert_allclose(frame.P[..., :k] @ a + outside, phi, atol=1e-12)
    np.testing.assert_allclose(frame.P[..., :k].mT @ outside, 0, atol=1e-12)
    squares = np.square(outside).sum(axis=1) + np.broadcast_to(truth.noise_std, 6) ** 2
    np.testing.assert_allclose(np.square(tau), squares, rtol=1e-12)


def pseudo_samples(features):
    """Return Z0, Z (T, n, rows, k), v, y (T, n, rows) and g (T, n, q) of all pseudo-samples."""

    def stacked(columns, shape):
        rows = [[np.zeros(shape) if row is None else np.broadcast_to(row, shape) for row in one] for one in columns]
        return np.array(rows).transpose(2, 3, 1, 0)

    found = {}
    for t, c, pseudo in features._pseudo_blocks():
        shape = pseudo.labels.tau.shape
        parts = [stacked(pseudo.Z0, shape), stacked(pseudo.Z, shape)]
        parts += [stacked([part], shape)[..., 0] for part in (pseudo.v, pseudo.y)] + [pseudo.g.mT]
        for index, part in enumerate(parts):
            found.setdefault(index, np.empty((4, 6, *part.shape[2:])))[t, c] = part
    return list(found.values())


def test_pseudo_samples_use_every_number_once(features):
    features, B, _ = features
    source, numbers, k = features._source, np.empty((4, 6)), B.shape[-1]
    for t, c, normals, squares in source.draws.blocks(features._values()):
        numbers[t, c] = np.square(normals[:, : source.inner]).sum(axis=1) + squares.sum(axis=1)
    Z0, Z, v, y, _ = pseudo_samples(features)
    np.testing.assert_allclose(np.square(Z0).sum(axis=(-2, -1)) + np.square(v).sum(axis=-1), numbers, rtol=1e-12)
    assert not source.triangular or np.array_equal(np.tril(Z0, -1), np.zeros_like(Z0))
    assert Z0.shape[2] == (k + 1 if source.triangular else source.n_samples)
    np.testing.assert_allclose(Z, Z0 @ features._frame.R[:, None], atol=1e-12)
    a, _, tau, _ = features._labels(slice(0, 4), slice(0, 6))
    np.testing.assert_allclose(y, (Z0 @ a.mT[..., None])[..., 0] + tau[..., None] * v, atol=1e-12)


def looped_message(features, W, weights):
    """Return the part of ``sum_i X_i'r_i w_i'`` inside the basis, and the Gram matrix of the rest, from a loop."""
    Z0, Z, v, y, g = pseudo_samples(features)
    _, e, tau, _ = features._labels(slice(0, 4), slice(0, 6))
    counts, sigma = features._counts, np.broadcast_to(features._source.truth.noise_std, 6)
    inside, gram = (np.zeros_like(part) for part in features._no_message())
    for t, i in np.ndindex(4, 6):
        r = Z[t, i] @ W[t, i] - y[t, i]
        rho, length = np.linalg.norm(e[t, :, i]), np.linalg.norm(r)
        u = e[t, :, i] / rho
        h = u @ g[t, i]
        outside = u * (rho * (v[t, i] @ r) + sigma[i] * length * h) / tau[t, i] + length * (g[t, i] - u * h)
        w = W[t, i] * weights[t, i] / (1.0 if counts is None else counts[t, i])
        inside[t] += np.outer(np.append(Z0[t, i].T @ r, outside), w)
        gram[t] += length**2 * np.outer(w, w)
    return inside, gram


@pytest.mark.parametrize("heads", ["any", "exact", "exact, weighted", "ridge"])
def test_messages_are_those_of_the_loop(features, heads):
    features, B, _ = features
    frame, k, weights = features._frame, B.shape[-1], normal(4, 6, seed=2)
    if heads == "any":
        W = normal(4, 6, k, seed=1)
        message = features._message_at(W, weights)
    else:
        weights = np.ones((4, 6)) if heads == "exact" else weights
        ridge = 0.2 if heads == "ridge" else 0.0
        W, message = features.fitted(ridge, *([] if heads == "exact" else [weights]))
    inside, gram = looped_message(features, W, weights)
    np.testing.assert_allclose(message.inside, inside, atol=1e-10)
    if frame.star is None:  # nothing lies beyond
        Q, ambient = frame.P, inside[:, k:]
        wanted = Q @ inside[:, :k] + ambient - Q @ (Q.mT @ ambient)
    else:
        np.testing.assert_allclose(message.gram, gram, atol=1e-10)
        N = np.stack([rng.standard_normal((9, k)) for rng in streams.generators(1, streams.Stream.OUTSIDE, range(4))])
        N -= frame.P @ (frame.P.mT @ N)
        wanted = frame.P @ inside + N @ linalg.root_of_gram(message.gram)
    total = features.message_sum(message)
    np.testing.assert_allclose(total, wanted, atol=1e-9)
    found, counts = features.shaped(total, 0.5), 1.0 if features._counts is not None else features._source.n_samples
    np.testing.assert_allclose(found, features._source.truth.design.shape_rows(total.mT).mT * 0.5 / counts, atol=1e-12)


def test_pseudo_samples_are_kept_or_drawn_again(features, monkeypatch):
    features, B, _ = features
    W, answers = normal(4, 6, B.shape[-1], seed=1), []
    for limit in (features_module.KEPT_VALUES, 0):
        monkeypatch.setattr(features_module, "KEPT_VALUES", limit)
        features._kept = features._normal = None
        answers.append([features.head_gradient(W), *features._message_at(W, W[..., 0])])
        assert (features._kept is None) == (limit == 0)
    assert all(np.array_equal(one, other) for one, other in zip(*answers, strict=True))


def test_a_client_without_noise_and_without_a_part_outside_of_b_sends_gaussian_numbers():
    """There e and tau are 0, and the message outside of B is ||r|| times these numbers."""
    problem = lf.GivenTruth(B=basis(9, 2), W=normal(6, 2), noise_std=(0.0, 0.3, 0.3, 0.3, 0.3, 0.3))
    features = batch_of("projected", problem, lf.FreshSamples(5)).project(at(basis(9, 2)))
    labels, (norm, g) = features._labels(slice(0, 4), slice(0, 6)), (np.abs(normal(4, 6)), normal(4, 2, 6))
    labels.e[:, :, 0], labels.tau[:, 0] = 0.0, 0.0
    found = features._outside(labels, normal(4, 6, seed=1), norm, g)
    assert np.array_equal(found[..., 0], g[..., 0] * norm[:, None, 0])
    assert np.isfinite(found).all()


def test_a_batch_is_projected_at_an_equal_b():
    batch, B = batch_of("projected", truth(), lf.FreshSamples(5)), np.array(at(basis(9, 2)))
    assert batch.project(B) is batch.project(B) is batch.project(B.copy())


def test_ridge_heads_solve_theirs(features):
    features, B, _ = features
    fit = features.fit(0.2)
    np.testing.assert_allclose(features.head_gradient(fit.W), -0.2 * fit.W, atol=1e-12)
    wanted = -0.2 * fit.W.mT @ fit.W / 6
    np.testing.assert_allclose(B.mT @ fit.representation_gradient(), wanted, atol=1e-12)


def test_what_is_asked_twice_is_answered_alike(features):
    features, _, _ = features
    W = normal(4, 6, features.B.shape[-1], seed=1)
    first = features.head_gradient(W)
    heads = features.fit().W
    assert np.array_equal(features.head_gradient(W), first)
    assert np.array_equal(features.fit().W, heads)


def test_the_message_is_the_same_however_it_is_asked_for():
    """At exact heads, in closed form or from pseudo-samples: what lies along B and the truth is the same."""
    problem, B, answers = truth(d=4), at(basis(4, 2, seed=3)), []  # nothing lies outside
    for weights, scale in ((None, 1.0), (1.0, 6.0), (np.full((4, 6), 1 / 6), 1.0)):
        features = batch_of("projected", problem, lf.FreshSamples(6)).project(B)
        answers.append(features.fit().representation_gradient(weights) / scale)
    features = batch_of("projected", problem, lf.FreshSamples(6)).project(B)
    answers.append(features.representation_gradient(features.fit().W))
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], atol=1e-12)


@dataclass(frozen=True, kw_only=True)
class SecondB(lf.FedRep):
    """Asks at two B in one step, and says that it does not."""

    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        W = batch.project(state.B).fit().W
        return state.update(B=state.B - batch.project(state.B + 0.5).representation_gradient(W), W=W)


@dataclass(frozen=True, kw_only=True)
class SecondMessage(lf.FedRep):
    """Asks for the messages at two sets of heads in one step, and says that it does not."""

    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        features = batch.project(state.B)
        fit = features.fit()
        G = fit.representation_gradient() - features.representation_gradient(fit.W)  # zero but for rounding, explicitly
        return state.update(B=state.B - G, W=fit.W)


@dataclass(frozen=True, kw_only=True)
class SecondFit(lf.FedRep):
    """Asks for the messages of two fits in one step, and says that it does not."""

    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        features = batch.project(state.B)
        one, other = features.fit(), features.fit(0.1)
        G = one.representation_gradient() - other.representation_gradient()
        return state.update(B=state.B - G, W=one.W)


@pytest.mark.parametrize("algorithm", [SecondB(**PLAIN), SecondMessage(**PLAIN), SecondFit(**PLAIN)])
@pytest.mark.parametrize("engine", ["projected", "chain"])
def test_what_has_another_law_is_refused(algorithm, engine):
    wanted = f"engine = {engine!r}.*; use engine = 'explicit', or .* requires = lf.Requires.QUADRATIC if a step"
    with pytest.raises(lf.EngineError, match=wanted):
        simulate(algorithm, truth(), lf.FreshSamples(12), engine=engine)


def test_the_same_question_has_the_same_answer():
    fit = batch_of("projected", truth(), lf.FreshSamples(5)).project(at(basis(9, 2))).fit()
    mean = fit.representation_gradient()
    np.testing.assert_array_equal(fit.representation_gradient(), mean)
    for one in (1.0, np.array(1.0)):
        np.testing.assert_allclose(fit.representation_gradient(one), 6 * mean, rtol=1e-12)


@pytest.mark.parametrize("heads", ["exact", "any"])
def test_one_choice_of_weights_is_answered_again_and_no_other(heads):
    features = batch_of("projected", truth(), lf.FreshSamples(5)).project(at(basis(9, 2)))
    W, weights = normal(4, 6, 2), np.abs(normal(4, 6, seed=1))
    ask = features.fit().representation_gradient if heads == "exact" else partial(features.representation_gradient, W)
    first = ask(weights)
    kept = first.copy()
    first *= 2.0
    np.testing.assert_array_equal(ask(weights.copy()), kept)
    with pytest.raises(lf.EngineError, match="a second representation_gradient in a round"):
        ask(2.0 * weights)


def test_exact_heads_cannot_be_written_into():
    features = batch_of("projected", truth(), lf.FreshSamples(5)).project(at(basis(9, 2)))
    with pytest.raises(ValueError, match="read-only"):
        features.fit().W[0, 0, 0] = 1.0


@pytest.mark.parametrize("ridge", [-1.0, np.nan])
def test_a_ridge_that_cannot_be_meant(ridge):
    features = batch_of("projected", truth(), lf.FreshSamples(5)).project(at(basis(9, 2)))
    with pytest.raises(ValueError, match="ridge"):
        features.fit(ridge)


# --- edges ---------------------------------------------------------------------------------------------------

DRAWING = ["projected", "chain"]


@pytest.mark.long
@pytest.mark.parametrize("engine", DRAWING)
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_exact_heads_on_at_most_k_samples_freeze_b(engine, m, noise):
    algorithm, problem = fedrep(init="random", orthonormalize=False), shared(noise=noise)
    first = simulate(algorithm, problem, lf.FreshSamples(m), rounds=0, engine=engine)
    last = simulate(algorithm, problem, lf.FreshSamples(m), rounds=50, engine=engine, participation=0.5)
    if engine == "projected":
        assert np.array_equal(first.final.B, last.final.B)
        G = batch_of(engine, problem, lf.FreshSamples(m)).project(at(basis(9, 2)))
        assert not G.fit().representation_gradient().any()
    distances = last.metrics["subspace_distance"]
    assert np.ptp(distances, axis=1).max() < 1e-14
    assert last.final.W.any()
    assert last.status == [Status.STALLED if engine == "projected" else Status.COMPLETED] * 3


@pytest.mark.parametrize("engine", DRAWING)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_noiseless_truth_is_a_fixed_point(engine, rank):
    algorithm, problem = fedrep(d=12, k=rank, init=lf.AtDistance(0.0)), shared(d=12, r=rank, noise=0.0)
    result = simulate(algorithm, problem, lf.FreshSamples(6), rounds=100, engine=engine)
    assert result.metrics["subspace_distance"].max() < 1e-12
    assert result.metrics["parameter_error"][:, 1:].max() < 1e-12
    assert result.status == [Status.COMPLETED] * 3


@pytest.mark.long
@pytest.mark.parametrize("engine", DRAWING)
@pytest.mark.parametrize("heads", [{}, {"heads": lf.GradientHeads(steps=20, step_size=0.3)}])
def test_noiseless_samples_lead_to_the_truth_in_all_digits(engine, heads):
    algorithm = fedrep(d=20, init="random", step_size=0.5, **heads)
    result = simulate(algorithm, shared(n=30, d=20, noise=0.0), lf.FreshSamples(12), rounds=400, engine=engine)
    assert result.metrics["subspace_distance"][:, -1].max() < 1e-12
    assert result.metrics["parameter_error"][:, -1].max() < 1e-11


@pytest.mark.long
@pytest.mark.parametrize("engine", [*DRAWING, "compressed"])
def test_fewer_participants_than_columns_still_learn(engine):
    result = simulate(
        fedrep(d=12, k=3, init=lf.AtDistance(0.7)),
        shared(n=12, d=12, r=3, noise=0.0),
        lf.FreshSamples(40),
        rounds=400,
        participation=1,
        engine=engine,
    )
    assert (result.metrics["subspace_distance"][:, -1] < 0.3).all()


SMALL = [(3, 2, 2), (4, 3, 2), (2, 1, 2), (4, 2, 4), (2, 1, 1), (2, 2, 2), (3, 3, 2), (1, 1, 1), (3, 3, 3)]


@each(("d", "k", "r"), SMALL)
@each("m", [1, 6])
@each("heads", [{}, GRADIENT, {"heads": lf.ExactHeads(ridge=0.1)}])
def test_small_dimensions(d, k, r, m, heads):
    algorithm, problem = fedrep(d=d, k=k, init="random", **heads), shared(d=d, r=r)
    result = simulate(algorithm, problem, lf.FreshSamples(m), engine="projected")
    stalls = m <= k < d and heads == {}
    assert result.status == [Status.STALLED if stalls else Status.COMPLETED] * 3
    assert all(np.isfinite(values).all() for values in result.metrics.values())


DEPENDENT = {
    "a zero column": basis(9, 2) * [1.0, 0.0],
    "a column twice": np.repeat(basis(9, 1), 2, axis=1),
    "zero": np.zeros((9, 2)),
}


@pytest.mark.parametrize("name", DEPENDENT)
@pytest.mark.parametrize("engine", [*DRAWING, "compressed"])
def test_dependent_columns_are_found_as_under_explicit_rows(name, engine):
    algorithm = fedrep(init=DEPENDENT[name], orthonormalize=False)
    one, other = (
        simulate(algorithm, truth(), lf.FreshSamples(12), rounds=3, engine=which) for which in (engine, "explicit")
    )
    assert one.status == other.status == [Status.SINGULAR_HEAD] * 3
    assert one.status_round.tolist() == other.status_round.tolist() == [1] * 3
    assert np.isfinite(one.metrics["parameter_error"]).all()


@pytest.mark.parametrize("engine", DRAWING)
def test_dependent_columns_of_one_trial_are_its_own(engine):
    init = np.stack([basis(9, 2, seed=i) * [1.0, float(i != 1)] for i in range(3)])
    options = {"orthonormalize": False, "step_size": 0.05}
    together = simulate(fedrep(init=init, **options), truth(), lf.FreshSamples(5), engine=engine)
    assert together.status == [Status.COMPLETED, Status.SINGULAR_HEAD, Status.COMPLETED]
    init[1] = basis(9, 2, seed=1)
    calm = simulate(fedrep(init=init, **options), truth(), lf.FreshSamples(5), engine=engine)
    assert_same(calm, together, slice(None, None, 2), slice(None, None, 2))


def test_what_qr_puts_in_place_of_dependent_columns_is_no_matter_of_the_frame():
    with pytest.raises(lf.EngineError, match="dependent columns"):
        simulate(fedrep(init=DEPENDENT["a zero column"]), truth(), lf.FreshSamples(5), engine="chain")


@pytest.mark.parametrize("engine", [*DRAWING, "compressed"])
def test_a_diverging_trial_leaves_the_others_alone(engine):
    options = {"orthonormalize": False, "step_size": 0.05, **GRADIENT}
    init = np.stack([basis(9, 2, seed=i) * (300.0 if i == 1 else 1.0) for i in range(3)])
    together = simulate(fedrep(init=init, **options), truth(), lf.FreshSamples(12), rounds=30, engine=engine)
    assert together.status == [Status.COMPLETED, Status.DIVERGED, Status.COMPLETED]
    assert 0 < together.status_round[1] < 30
    assert np.isnan(together.metrics["parameter_error"][1, -1])
    init[1] = basis(9, 2, seed=1)
    calm = simulate(fedrep(init=init, **options), truth(), lf.FreshSamples(12), rounds=30, engine=engine)
    assert_same(calm, together, slice(None, None, 2), slice(None, None, 2))


@pytest.mark.parametrize("engine", DRAWING)
def test_a_step_too_large_diverges_without_a_warning(engine):
    algorithm = fedrep(orthonormalize=False, step_size=1e4, **GRADIENT)
    result = simulate(algorithm, truth(), lf.FreshSamples(4), rounds=60, engine=engine)
    assert result.status == [Status.DIVERGED] * 3


def test_no_rounds():
    for engine in ENGINES:
        assert simulate(fedrep(), truth(), lf.FreshSamples(12), rounds=0, engine=engine).rounds.tolist() == [0]


# --- memory and cost -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [{}, {"heads": lf.GradientHeads()}])
@pytest.mark.parametrize("engine", DRAWING)
def test_nothing_of_the_size_of_clients_times_dimension(engine, heads):
    n, d = 20_000, 500
    algorithm, problem = fedrep(d=d, init="random", **heads), shared(n=n, d=d)
    tracemalloc.start()
    result = simulate(algorithm, problem, lf.FreshSamples(10), rounds=2, trials=1, engine=engine)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 8 * n * d
    assert result.final.B.shape == (1, d if engine == "projected" else 6, 2)


@pytest.mark.parametrize(("r", "k"), [(2, 2), (1, 2), (4, 2), (3, 1)])
def test_the_chain_has_r_plus_2k_rows(r, k):
    for d in (9, r + 2 * k):  # the least that there may be: then it has them all
        result = simulate(fedrep(d=d, k=k, init="random"), shared(d=d, r=r), lf.FreshSamples(5), engine="chain")
        assert result.final.B.shape == (3, r + 2 * k, k)
        assert np.abs(result.final.B[:, r + k :]).max() == 0


@pytest.mark.parametrize("engine", ["projected", "chain"])
def test_the_memory_does_not_depend_on_the_samples(engine):
    algorithm, problem = fedrep(), truth()
    sizes = Sizes(n_clients=6, dim=9, participants=6, rounds=5, features=20)
    floats = {
        floats_per_trial(
            engine, EngineQuery(algorithm=algorithm, problem=problem, data=lf.FreshSamples(m), sizes=sizes)
        )
        for m in (5, 10**9)
    }
    assert len(floats) == 1
    assert simulate(algorithm, problem, lf.FreshSamples(10**12), engine=engine).status == [Status.COMPLETED] * 3


OF_ROWS = {
    "moments": lf.MethodOfMoments(rank=2),
    "U-statistic": lf.UStatistic(rank=2),
    "two replicas": lf.TwoReplica(rank=2),
    "joint minimisation": lf.BurerMonteiro(rank=2),
}
"""Algorithms that need single samples, which only explicit rows have."""

EVERY = LEARNERS | OF_ROWS

SERVED = {
    f"{engine}, {type(samples).__name__}, {learner}": (engine, learner, samples)
    for engine in ENGINES
    for samples in (lf.FreshSamples(12), lf.FixedSamples(12), given([12] * 6))
    for learner, algorithm in EVERY.items()
    if not engines.obstacle(
        engine,
        EngineQuery(
            algorithm=algorithm,
            problem=truth(),
            data=samples,
            sizes=Sizes(n_clients=6, dim=9, participants=6, rounds=5, features=20),
        ),
    )
}


@pytest.fixture(scope="module")
def frozen():
    """All that was there before is none of the collector's business: it is then many times as fast."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def no_collector(frozen):
    """Without the collector of cycles; what it would have found is for the test to look at."""
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def test_every_algorithm_and_engine_is_watched_for_cycles():
    watched = {type(EVERY[learner]).__name__ for _, learner, _ in SERVED.values()}
    assert watched == {*lf.ALGORITHMS} - {"GeneralFLUTE"}  # of classes alone: below
    assert {engine for engine, _, _ in SERVED.values()} == set(ENGINES)


CLASSES = lf.Classes(n_clients=6, n_classes=3, classes_per_client=2, dim=9)
FRESH, FIXED = lf.FreshSamples(12), lf.FixedSamples(12)


@each(
    "kind, samples, engine",
    [
        *((kind, samples, "explicit") for kind in (lf.GeneralFLUTE, lf.FedRoD) for samples in (FRESH, FIXED)),
        (lf.GeneralFLUTE, FRESH, "projected"),
    ],
)
def test_a_round_of_classes_leaves_nothing_to_the_collector(kind, samples, engine, no_collector):
    seen = []
    run = {"data": samples, "rounds": 4, "participation": 0.5, "engine": engine}
    for step in rounds_of(kind(rank=2, step_size=0.1), CLASSES, **run):
        seen.append(weakref.ref(step.batch))
        del step
        assert sum(batch() is not None for batch in seen) <= 2
    assert len(seen) == 4


@pytest.mark.parametrize("name", some(SERVED, 4))
def test_a_round_leaves_nothing_to_the_collector(name, no_collector, monkeypatch):
    engine, learner, samples = SERVED[name]
    seen, questioned = [], []
    for cls in (explicit.ExplicitBatch, ProjectedBatch):

        def project(batch, B, plain=cls.project):
            features = plain(batch, B)
            questioned.append(weakref.ref(features))
            return features

        monkeypatch.setattr(cls, "project", project)
    steps = rounds_of(EVERY[learner], truth(), data=samples, rounds=4, participation=0.5, engine=engine)
    for step in steps:
        seen.append(weakref.ref(step.batch))
        del step
        assert sum(batch() is not None for batch in seen) <= 2  # the last round's, and the one of the end
    del steps
    assert len(seen) >= 4
    assert [batch() for batch in seen] == [None] * len(seen)
    assert [features() for features in questioned] == [None] * len(questioned)
    lf.simulate(EVERY[learner], truth(), data=samples, rounds=4, participation=0.5, engine=engine)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    assert [type(thing).__name__ for thing in gc.garbage if type(thing).__module__.startswith("linfed")] == []


@pytest.mark.long
@pytest.mark.parametrize("heads", [{}, GRADIENT])
@pytest.mark.parametrize("engine", ENGINES)
def test_memory_does_not_grow_with_the_rounds(engine, heads, no_collector):
    peaks = []
    for rounds in (4, 40):
        tracemalloc.start()
        simulate(
            fedrep(**heads), shared(n=2000), lf.FreshSamples(12), rounds=rounds, trials=1, metrics=[], engine=engine
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2 * 8 * 2000 * 2  # twice the heads of one round


def budgeted(algorithm, problem, data, **arguments):
    """Return the estimated number of bytes of a trial, from the message of a run that may use one byte."""
    with pytest.raises(lf.SizeError) as caught:
        lf.simulate(algorithm, problem, data=data, memory_budget=1.0, **arguments)
    number, unit = str(caught.value).split("about ")[1].split(" ")[:2]
    return float(number) * 1000.0 ** ["B", "kB", "MB", "GB"].index(unit)


def taken(algorithm, problem, data, more, **arguments):
    """Return the number of bytes that each trial takes in addition to the first."""
    peaks = []
    lf.simulate(algorithm, problem, data=data, trials=1, **arguments)  # loads what it needs
    for trials in (1, 1 + more):
        tracemalloc.start()
        lf.simulate(algorithm, problem, data=data, trials=trials, **arguments)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / more


@pytest.mark.parametrize("participation", [1.0, 0.1])
@pytest.mark.parametrize("name", [name for name in lf.ALGORITHMS if name not in ("GeneralFLUTE", "Oracle")])
def test_the_budget_of_every_algorithm_is_near_what_it_takes(name, participation):
    run = {"rounds": 2, "participation": participation, "engine": "explicit", "metrics": []}
    run |= {"data": lf.FixedSamples(12), "problem": shared(n=150, d=10)}
    algorithm = with_required(lf.ALGORITHMS[name])
    one = job.checked_job(algorithm, trials=1, seed=0, record_every=1, **run)
    assert 0.15 < taken(algorithm, more=4, **run) / job.bytes_per_trial(one, math.inf) < 1.1


def test_the_second_copy_of_small_fixed_samples_is_budgeted():
    small, large = (
        budgeted(fedrep(d=16), shared(n=n, d=16), lf.FixedSamples(16), rounds=2, trials=1, engine="explicit")
        for n in (1024, 1025)
    )
    assert small > large + 0.9 * 8 * 1024 * 16 * 16


FOOTPRINTS = {
    "projected": ("projected", fedrep(d=40), shared(n=3000, d=40), lf.FreshSamples(10)),
    "projected, gradient heads": ("projected", fedrep(d=40, **GRADIENT), shared(n=3000, d=40), lf.FreshSamples(10)),
    "projected, m = k": ("projected", fedrep(d=40), shared(n=3000, d=40), lf.FreshSamples(2)),
    "projected, dense truth": (
        "projected",
        fedrep(d=40),
        lf.GivenTruth(B=basis(40, 2), Phi=normal(3000, 40)),
        lf.FreshSamples(10),
    ),
    "chain": ("chain", fedrep(d=4000), shared(n=3000, d=4000), lf.FreshSamples(10)),
    "compressed, fresh": ("compressed", fedrep(d=40), shared(n=300, d=40), lf.FreshSamples(100)),
    "compressed, fixed": ("compressed", fedrep(d=40), shared(n=300, d=40), lf.FixedSamples(100)),
    "compressed, fixed, FedAvg": (
        "compressed",
        lf.FedAvg(step_size=0.1, local_steps=2),
        shared(n=300, d=40),
        lf.FixedSamples(100),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FOOTPRINTS)
def test_a_trial_takes_no_more_memory_than_is_budgeted(name):
    engine, algorithm, problem, data = FOOTPRINTS[name]
    arguments = {"rounds": 3, "participation": 0.5, "engine": engine}
    assert taken(algorithm, problem, data, 8, **arguments) < 1.5 * budgeted(algorithm, problem, data, **arguments)


# --- what a trial costs, counted by hand -----------------------------------------------------------------------


THREE = fedrep(d=7, k=3)
MESSAGES = lf.FLUTE(rank=3, step_size=0.1)
ELEVEN, UNSHARED = shared(n=11, d=7), lf.GivenTruth(B=basis(7, 2), Phi=normal(11, 7))
OF_CLASSES = lf.Classes(n_clients=11, n_classes=4, classes_per_client=2, dim=7)
SEVENTEEN = lf.GivenSamples(normal(11, 17, 7), normal(11, 17))
ROUNDS, CLIENTS = 13, 5  # which take part
COSTS = {
    # Rows of 7 values, drawn in 8 ns each and met by 2 x 3 + 2 columns; then 3 x 3 products, and 8 ns for the label.
    "fresh rows": ("explicit", THREE, ELEVEN, lf.FreshSamples(17), CLIENTS * 17 * (7 * (8 + 0.4 * 8) + 8 + 6 * 9)),
    "unequal fresh rows": (
        "explicit", THREE, ELEVEN, lf.FreshSamples((17, *[2] * 10)), CLIENTS * 17 * (7 * (8 + 0.4 * 8) + 8 + 6 * 9)
    ),
    "fresh rows, unknown rank": (
        "explicit", THREE, UNSHARED, lf.FreshSamples(17), CLIENTS * 17 * (7 * (8 + 0.4 * 9) + 8 + 6 * 9)
    ),
    "fresh rows, no B": (
        "explicit", lf.FedAvg(step_size=0.1), ELEVEN, lf.FreshSamples(17), CLIENTS * 17 * (7 * (8 + 0.4 * 4) + 8 + 6)
    ),
    "fresh rows, messages": ("explicit", MESSAGES, ELEVEN, lf.FreshSamples(17), CLIENTS * 17 * (7 * (8 + 1) + 8 + 54)),
    "fresh pseudo-samples": (
        "compressed", THREE, ELEVEN, lf.FreshSamples(17), CLIENTS * 8 * (7 * (9 + 0.4 * 8) + 54) + 20_000
    ),
    # 3 x 4 / 2 numbers of a triangle and 2 outside of B, at 9 ns.
    "features": (
        "projected", THREE, ELEVEN, lf.FreshSamples(17),
        CLIENTS * (9 * (6 + 2) + 20 * 4 + 4 * 9 + 3 * 2 * 3) + 7 * 3 * (12 + 3 * (3 + 2)) + 30_000,
    ),
    "features of few samples": (
        "projected", THREE, ELEVEN, lf.FreshSamples(3),
        CLIENTS * (9 * (3 * 4 + 2) + 20 * 4 + 4 * 9 + 3 * 2 * 3) + 7 * 3 * (12 + 3 * (3 + 2)) + 30_000,
    ),
    "features, unknown rank": (
        "projected", THREE, UNSHARED, lf.FreshSamples(17),
        CLIENTS * (9 * (6 + 7) + 20 * 4 + 4 * 9 + 3 * 7 * 3) + 7 * 3 * (12 + 3 * (3 + 7)) + 30_000,
    ),
    "classes": (
        "explicit", lf.GeneralFLUTE(rank=3, step_size=0.1), OF_CLASSES, lf.FreshSamples(17),
        CLIENTS * 17 * 7 * (8 + 0.8 * 3),
    ),
    "features of classes": (
        "projected", lf.GeneralFLUTE(rank=3, step_size=0.1), OF_CLASSES, lf.FreshSamples(17),
        CLIENTS * 17 * (10 * 3 + 2 * 4) + 7 * 3 * (10 + 3) + 60_000,
    ),
    "given rows": ("explicit", THREE, ELEVEN, SEVENTEEN, CLIENTS * 17 * (7 * 0.4 * 8 + 54)),
    "given pseudo-samples": ("compressed", THREE, ELEVEN, SEVENTEEN, CLIENTS * 8 * (7 * 0.4 * 8 + 54)),
    "given rows, messages": ("explicit", MESSAGES, ELEVEN, SEVENTEEN, CLIENTS * 17 * 7),
    "given second moments, messages": ("compressed", MESSAGES, ELEVEN, SEVENTEEN, CLIENTS * 7 * 7 / 2),
    "fixed rows": ("explicit", THREE, ELEVEN, lf.FixedSamples(17), CLIENTS * 17 * (7 * 0.4 * 8 + 54)),
    "fixed pseudo-samples": ("compressed", THREE, ELEVEN, lf.FixedSamples(17), CLIENTS * 8 * (7 * 0.4 * 8 + 54)),
    "fixed pseudo-samples of 5": ("compressed", THREE, ELEVEN, lf.FixedSamples(5), CLIENTS * 5 * (7 * 0.4 * 8 + 54)),
    "fixed factors": (
        "compressed", THREE, ELEVEN, lf.FixedSamples(17, in_law=True), CLIENTS * 8 * (7 * 0.4 * 8 + 54)
    ),
    "fixed factors of another law": (
        "compressed", THREE, shared(n=11, d=7, design="cube"), lf.FixedSamples(17, in_law=True),
        CLIENTS * 8 * (7 * 0.4 * 8 + 54),
    ),
}  # fmt: skip
ONCE = {
    "fixed rows": 8 * 11 * 17 * 7,
    "given pseudo-samples": 11 * 17 * 7 * (2 * 7 + 10),
    "given second moments, messages": 11 * 17 * 7 * (2 * 7 + 10),
    "fixed pseudo-samples": 11 * 17 * 7 * (2 * 7 + 10),
    "fixed pseudo-samples of 5": 11 * 5 * 7 * (2 * 7 + 10),
    "fixed factors": 11 * 8 * 7 * (2 * 7 + 10),
    "fixed factors of another law": 11 * 17 * 7 * (2 * 7 + 10),
}
"""Costs before the first round, of all 11 clients: rows that are drawn, and their factors."""


def asked(algorithm, problem, data, **changes):
    """Return a run's properties: 5 of 11 clients in 13 rounds."""
    classes = 4 if problem is OF_CLASSES else 0
    told = {"n_clients": 11, "dim": 7, "participants": CLIENTS, "rounds": ROUNDS, "features": 20, "classes": classes}
    return EngineQuery(algorithm=algorithm, problem=problem, data=data, sizes=Sizes(**told | changes))


@pytest.mark.parametrize("name", COSTS)
def test_the_time_of_a_trial_is_that_of_its_numbers(name):
    engine, algorithm, problem, data, of_a_round = COSTS[name]
    for rounds, counted in ((ROUNDS, ROUNDS), (1, 1), (0, 1)):
        found = engines._nanoseconds(engine, asked(algorithm, problem, data, rounds=rounds))
        assert found == pytest.approx(ONCE.get(name, 0) + counted * of_a_round, rel=1e-12)


def test_the_largest_number_of_samples_counts():
    assert asked(THREE, ELEVEN, lf.FreshSamples((3, 9, 4, *[1] * 8))).samples == 9
    assert asked(THREE, truth(), given([1, 2, 3, 7, 13, 40])).samples == 40


def test_factors_are_drawn_above_two_to_the_28th_values():
    for samples, drawn in ((2**10, False), (2**10 + 1, True)):
        assert engines.draws_factors(lf.FixedSamples(samples), 2**11, 2**7) is drawn
    assert engines.draws_factors(lf.FixedSamples(2, in_law=True), 3, 5) is True
    assert engines.draws_factors(lf.FixedSamples(2**20, in_law=False), 2**11, 2**7) is False


def test_compression_needs_one_sample_more_than_dimensions():
    assert not engines.obstacle("compressed", asked(THREE, ELEVEN, lf.FreshSamples(8)))
    assert "m = 7 is at most d = 7" in engines.obstacle("compressed", asked(THREE, ELEVEN, lf.FreshSamples(7)))
    for least, refused in ((3, True), (4, False)):
        unequal = asked(THREE, ELEVEN, lf.FreshSamples((least, *[9] * 10)))
        assert bool(engines.obstacle("projected", unequal)) is refused


@pytest.mark.parametrize(
    ("engine", "data", "moments", "block", "first"),
    [
        ("explicit", lf.FixedSamples(17), True, 3 * 11 * 17 * 8, 11 * 17 * 20),
        ("explicit", lf.FixedSamples(17), False, 0, 11 * 17 * 20),
        ("compressed", lf.FixedSamples(17), False, 3 * 11 * 17 * 8, 11 * 17 * 27),
        ("compressed", lf.FixedSamples(17, in_law=True), False, 0, 11 * 17 * 27),
        ("compressed", lf.FreshSamples(17), False, 0, 11 * 17 * 27),
        ("explicit", lf.FreshSamples(17), False, 0, 11 * 17 * 27),
        ("projected", lf.FreshSamples(17), True, 3 * 11 * 17 * 8, 11 * 17 * 27),
    ],
)
def test_blocks_of_rows_and_first_batches_are_counted(engine, data, moments, block, first):
    """A block has few clients' rows and labels, and two copies; a first batch all rows, unless they are stored."""
    setting = asked(THREE, ELEVEN, data)
    assert engines.block_floats(engine, setting, moments) == block
    assert engines.first_batch_floats(engine, setting) == first


def test_a_block_has_at_least_one_client_and_else_no_more_than_the_cache(monkeypatch):
    setting = asked(THREE, ELEVEN, lf.FixedSamples(17))
    for cache, clients in ((10**6, 11), (4 * 17 * 8, 4), (10, 1)):
        monkeypatch.setattr(engines, "CACHE_VALUES", cache)
        assert engines.block_floats("compressed", setting, False) == 3 * clients * 17 * 8
