"""The projected engine for classes: equal numbers where it must, else two-sample tests against explicit samples."""

import functools
import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest

import linfed as lf
from linfed.data.class_sources import FreshClassSource, draw_fixed_classes, held_out
from linfed.data.classes import ClassBatch, with_ones
from linfed.data.projected import classes as projected
from linfed.data.sources import Sizes, everybody
from linfed.numerics.streams import Stream, generators
from linfed.problems.classes import dealt_labels
from tests.data.laws import FAMILY, p_values
from tests.helpers import assert_one_line, assert_same, basis, mostly_long, normal

ROTATED = normal(7, 7, seed=5) @ normal(7, 7, seed=5).T / 7 + 0.3 * np.eye(7)
COVARIANCES = {
    "identity": None,
    "multiple": 2.0,
    "diagonal": np.linspace(0.3, 2.5, 7),
    "full": ROTATED,
}


@dataclass(frozen=True, kw_only=True)
class OneMixture(lf.Classes):
    """Gaussian classes with the same ground truth in all trials and for all seeds."""

    def truth(self, seed, trials):
        one = super().truth(9, [0])
        parts = {name: getattr(one, name) for name in ("B", "means", "holds")}
        return replace(one, **{name: np.repeat(part, len(trials), axis=0) for name, part in parts.items()})


def mixture(d=7, n=5, c=4, own=3, covariance=None, kind=OneMixture, **more):
    return kind(
        n_clients=n,
        n_classes=c,
        classes_per_client=own,
        dim=d,
        separation=1.5,
        design=lf.Gaussian(covariance=covariance),
        **{"rank": 2, "test_samples": 12} | more,
    )


# --- equal numbers -------------------------------------------------------------------------------------------


def pair(covariance, counts, k=2, d=7, outer=None):
    """Return a projected batch and the explicit one of samples ``mu_y + L Q z``, for a B that is not orthonormal."""
    problem = mixture(d=d, n=len(counts), covariance=covariance)
    truth = problem.truth(0, range(2))
    B = normal(2, d, k, seed=1)
    counts = np.broadcast_to(np.array(counts, dtype=float), (2, len(counts)))
    m = int(counts.max())
    z, labels = normal(2, len(counts[0]), m, k, seed=2), dealt_labels(truth.holds, m)
    inside = np.arange(m) < counts[..., None]
    z, labels = z * inside[..., None], labels * inside
    Q, _ = np.linalg.qr(truth.design.root_apply(B))
    X = truth.design.shape_rows(z @ Q[:, None].mT)
    X += (truth.means @ truth.B.mT)[np.arange(2)[:, None, None], labels.astype(int)]
    whose = {"holds": truth.holds, "active": everybody(*counts.shape), "counts": counts}
    outer = np.zeros((2, d, k)) if outer is None else outer(Q)
    ours = projected.ProjectedClassBatch(truth, z, labels, outer, **whose)
    return B, Q, ours, ClassBatch(with_ones(X * inside[..., None], counts), labels, **whose)


@pytest.mark.parametrize("counts", [(6, 6, 6), (6, 3, 5)], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", COVARIANCES)
def test_without_noise_outside_of_b_the_numbers_are_those_of_explicit_samples(name, counts):
    B, _, ours, wanted = pair(COVARIANCES[name], counts)
    W, weights = normal(2, 3, 4, 3, seed=3), np.linspace(0.5, 2.0, 6).reshape(2, 3)
    close = {"rtol": 1e-12, "atol": 1e-12}
    features, explicit = ours.project(B), wanted.project(B)
    np.testing.assert_allclose(features.Z, explicit.Z, **close)
    np.testing.assert_allclose(features.head_gradient(W), explicit.head_gradient(W), **close)
    for one, other in zip(features.gradients(W, weights, 0.3), explicit.gradients(W, weights, 0.3), strict=True):
        np.testing.assert_allclose(one, other, **close)
    alone = pair(COVARIANCES[name], counts)[2].project(B).representation_gradient(W)
    np.testing.assert_allclose(alone, explicit.representation_gradient(W), **close)


@pytest.mark.parametrize("counts", [(6, 6, 6), (6, 3, 5)], ids=["equal", "unequal"])
def test_the_noise_outside_of_b_has_the_gram_matrix_of_the_slopes(counts):
    """With orthonormal columns outside of Q instead of N, the squares of the noise are exactly ``F'F``."""

    def orthonormal(Q):
        return np.linalg.qr(np.concatenate([Q, normal(2, 7, 2, seed=8)], axis=-1))[0][..., 2:]

    W = normal(2, 3, 4, 3, seed=3)
    B, _, ours, wanted = pair(None, counts, outer=orthonormal)
    plain = pair(None, counts)[2].project(B).representation_gradient(W)
    noise = ours.project(B).representation_gradient(W) - plain
    gram = np.zeros((2, 2, 2))
    for t, c, rows in wanted.rows.blocks():
        theta = np.concatenate([W[t, c, :, :2] @ B[t, None].mT, W[t, c, :, 2:]], axis=-1)
        V = wanted.residual(t, c, rows, theta).mT @ W[t, c, :, :2] / (3.0 * wanted.counts[t, c, None, None])
        V = (V * rows[..., -1:]).reshape(len(V), -1, 2)
        gram[t] += V.mT @ V
    np.testing.assert_allclose(noise.mT @ noise, gram, rtol=1e-10)
    _, Q, ours, _ = pair(None, counts, outer=lambda Q: normal(2, 7, 2, seed=8))
    noise = ours.project(B).representation_gradient(W) - plain
    assert np.abs(noise).max() > 0.1
    assert np.abs(Q.mT @ noise).max() < 1e-12


def test_held_out_features_are_those_of_samples_in_the_span_of_b():
    truth = mixture(covariance=ROTATED).truth(0, range(2))
    held = projected.ProjectedHeldOut(truth, 12, 2, 0, range(2))
    B = normal(2, 7, 2, seed=1)
    Q, _ = np.linalg.qr(truth.design.root_apply(B))
    X = truth.design.shape_rows(held._z @ Q[:, None].mT)
    X += (truth.means @ truth.B.mT)[np.arange(2)[:, None, None], held._labels.astype(int)]
    np.testing.assert_allclose(held.at(B).X[..., :-1], X @ B[:, None], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("counts", [6, (3, 9, 4, 6, 12)])
def test_rounds_are_those_of_their_streams(counts):
    problem, trials, largest = mixture(), range(2), np.max(counts)
    truth, each_count = problem.truth(0, trials), np.broadcast_to(counts, 5)
    sizes = Sizes(n_clients=5, dim=7, participants=2, n_rounds=2, features=20, classes=4)
    ours = projected.ProjectedClassSource(counts, truth, sizes, 2, 7, trials)
    plain = FreshClassSource(counts, truth, sizes, 7, trials)

    def rngs(*names):
        return [generators(7, name, trials) for name in names]

    inner, outer, rows = rngs(Stream.X, Stream.OUTSIDE, Stream.X)
    rounds = [
        (number, who, ours.round(np.array(who), number), plain.round(np.array(who), number), inner, outer, rows)
        for number, who in enumerate(([[0, 3], [1, 4]], [[2, 4], [0, 1]]), 1)
    ]
    last = rngs(Stream.FINISH_X, Stream.FINISH_OUTSIDE, Stream.FINISH_X)
    rounds.append((3, [[*range(5)]] * 2, ours.all_clients(3), plain.all_clients(3), *last))
    for number, who, one, other, inner, outer, rows in rounds:
        assert (one.round, one.n_clients, other.round, other.n_clients) == (number, 5, number, 5)
        for t in trials:
            inside = np.arange(largest) < each_count[who[t], None]
            z = inner[t].standard_normal((len(who[t]), largest, 2))
            X, labels = truth.draw([rows[t]], truth.holds[t : t + 1, who[t]], largest)
            assert np.array_equal(one.rows.array()[t], z * inside[..., None])
            assert np.array_equal(one._outer[t], outer[t].standard_normal((7, 2)))
            assert np.array_equal(other.X[t], np.dstack([X[0] * inside[..., None], inside]))
            for batch in (one, other):
                assert np.array_equal(batch.y[t], labels[0] * inside)
                assert np.array_equal(batch.counts[t], each_count[who[t]])
                assert np.array_equal(batch.holds[t], truth.holds[t, who[t]])


def test_fixed_and_held_out_classes_are_those_of_their_streams():
    truth = mixture().truth(0, range(2))
    fixed, held = draw_fixed_classes(truth, 6, 7, range(2)).all_clients(), held_out(truth, 12, 7, range(2))
    features = projected.ProjectedHeldOut(truth, 12, 2, 7, range(2))
    assert (fixed.round, fixed.n_clients, held.round, held.n_clients) == (0, 5, 0, 5)
    assert features.counts.tolist() == held.counts.tolist() == [[12.0] * 5] * 2
    for t in range(2):
        for batch, m, name in ((fixed, 6, Stream.X), (held, 12, Stream.TEST)):
            X, labels = truth.draw([generators(7, name, range(2))[t]], truth.holds[t : t + 1], m)
            assert np.array_equal(batch.X[t], np.dstack([X[0], np.ones((5, m))]))
            assert np.array_equal(batch.y[t], labels[0])
            assert np.array_equal(batch.holds[t], truth.holds[t])
        z = generators(7, Stream.TEST, range(2))[t].standard_normal((5, 12, 2))
        assert np.array_equal(features._z[t], z)


# --- in distribution -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """A run whose distributions are compared after some rounds."""

    algorithm: lf.Algorithm
    problem: lf.Classes
    m: object = 6
    participation: float = 1.0
    rounds: tuple = (1, 3)
    trials: int = 1200


def fedrep(d=7, k=2, steps=2, **more):
    heads = lf.GradientHeads(steps=steps, step_size=0.4)
    return lf.FedRep(**{"rank": k, "step_size": 0.8, "init": basis(d, k, seed=23), "heads": heads} | more)


FLUTE = lf.GeneralFLUTE(rank=2, step_size=0.3, feature_penalty=0.2, head_penalty=0.1, init=normal(7, 2, seed=6) / 2)
SETTINGS = {
    "FedRep": Setting(fedrep(), mixture()),
    "some participants, unequal counts": Setting(
        fedrep(), mixture(covariance=2.0), m=(3, 9, 4, 6, 12), participation=0.4, rounds=(1, 6)
    ),
    "diagonal covariance, no QR": Setting(
        fedrep(orthonormalize=False, step_size=0.3, init=normal(7, 2, seed=6) / 2),
        mixture(covariance=COVARIANCES["diagonal"]),
    ),
    "full covariance, sum": Setting(fedrep(k=3, aggregate="sum", step_size=0.2), mixture(covariance=ROTATED)),
    "k = d": Setting(fedrep(d=3, k=3, init=np.eye(3)), mixture(d=3, covariance=[0.5, 1.0, 2.0])),
    "one client, one sample of each class, many rounds": Setting(
        fedrep(k=1, steps=1), mixture(n=1, own=2), m=2, rounds=(1, 40), trials=600
    ),
    "one client, two classes, no QR": Setting(
        fedrep(orthonormalize=False), mixture(n=1, c=2, own=2, rank=1, covariance=2.0), m=3
    ),
    "one class, far": Setting(fedrep(k=1), mixture(own=1, n=4, rank=3), m=4),
    "FLUTE": Setting(FLUTE, mixture(covariance=ROTATED), m=(3, 9, 4, 6, 12), participation=0.6),
}
SETTINGS["FLUTE, many trials"] = replace(SETTINGS["FLUTE"], trials=5000)
NOISY = "one client, two classes, no QR"


def statistics(setting, engine, seed):
    """Return statistics of the states after some rounds, and the held-out metrics, (trials,) each."""
    run = {"data": lf.FreshSamples(setting.m), "participation": setting.participation, "trials": setting.trials}
    out, last = {}, max(setting.rounds)
    problem = setting.problem
    along = normal(problem.dim, 3, seed=40)
    known = np.linalg.qr(np.concatenate([setting.algorithm.init.B, problem.truth(0, [0]).B[0]], axis=1))[0]
    outside = along[:, 1] - known @ (known.T @ along[:, 1])  # of the first round's noise alone
    for step in lf.iterate(setting.algorithm, problem, n_rounds=last, engine=engine, seed=seed, **run):
        if step.number not in setting.rounds:
            continue
        B, W = step.after.B, step.after.W
        star = problem.truth(0, [0]).B[0]
        values = {f"B on direction {i}": B[..., 0] @ along[:, i] for i in range(3)}
        values |= {
            "last column on direction 0": B[..., -1] @ along[:, 0],
            "inside the means": np.square(star.T @ B).sum((1, 2)),
            "first column inside": np.square(star.T @ B)[..., 0].sum(1),
            "product of columns": np.prod(outside @ B, axis=-1),
            "squares": np.square(B).sum((1, 2)),
            "weighted": np.einsum("tdk,d,tdk->t", B, np.arange(problem.dim), B),
            "a head": W[:, 0, 0, 0],
            "a bias": W[:, -1, 1, -1],
            "heads": np.square(W).sum((1, 2, 3)),
            "heads and B": np.einsum("tk,d,tdk->t", W[:, 0, 1, :-1], along[:, 2], B),
        }
        out |= {(name, step.number): value for name, value in values.items()}
    found = lf.simulate(
        setting.algorithm, problem, n_rounds=last, engine=engine, seed=seed, record_every=last, **run
    ).metrics
    for name in ("test_loss", "accuracy", "own_class_accuracy"):
        out |= {(name, 0): found[name][:, 0], (name, last): found[name][:, -1]}
    return {key: value for key, value in out.items() if np.ptp(value) > 1e-9}


COMPARISONS = 300
"""An upper bound on the comparisons of all settings."""


@functools.cache
def of_explicit_samples(name):
    return statistics(SETTINGS[name], "explicit", 1)


def worst(name):
    """Return the smallest p-value and its statistic, of an engine's trials against explicit ones."""
    found = p_values(statistics(SETTINGS[name], "projected", 3), of_explicit_samples(name))
    assert len(found) > 10
    return min((p, key) for key, p in found.items())


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_states_and_held_out_metrics_have_the_distribution_of_explicit_samples(name):
    p, key = worst(name)
    assert p > FAMILY / COMPARISONS, (key, p)


def wrong_message(**changes):
    """Return a patch after which some sums of a message are replaced by functions of them."""

    def patch(monkeypatch):
        right = projected.ProjectedClassBatch.gradient_at
        names = ("Q", "inner", "gram", "sums")

        def wrong(self, *parts):
            return right(self, *(changes.get(name, lambda x: x)(part) for name, part in zip(names, parts, strict=True)))

        monkeypatch.setattr(projected.ProjectedClassBatch, "gradient_at", wrong)

    return patch


def wrong_features(change):
    def patch(monkeypatch):
        right = projected.projected
        monkeypatch.setattr(projected, "projected", lambda *parts: change(*right(*parts), *parts))

    return patch


PLANTED = {
    "no noise outside": wrong_message(gram=np.zeros_like),
    "noise of clients without correlation of columns": wrong_message(gram=lambda gram: gram * np.eye(gram.shape[-1])),
    "a third more noise": wrong_message(gram=lambda gram: 1.77 * gram),
    "no class means in the message": wrong_message(sums=np.zeros_like),
    "no part inside": wrong_message(inner=np.zeros_like),
    "features without means": wrong_features(
        lambda Q, Z, truth, B, z, labels, counts: (
            Q,
            with_ones(z @ np.linalg.qr(truth.design.root_apply(B))[1][:, None], counts),
        )
    ),
    "features without R": wrong_features(
        lambda Q, Z, truth, B, z, labels, counts: (
            Q,
            Z
            - with_ones(z @ (np.linalg.qr(truth.design.root_apply(B))[1] - np.eye(z.shape[-1]))[:, None], counts)
            * [1, 1, 0],
        )
    ),
}


@pytest.mark.parametrize("name", mostly_long(PLANTED, "a third more noise"))
def test_wrong_distributions_are_rejected(name, monkeypatch):
    PLANTED[name](monkeypatch)
    p, _ = worst("FLUTE, many trials" if "columns" in name else NOISY)
    assert p < FAMILY / COMPARISONS


# --- a run ---------------------------------------------------------------------------------------------------

WIDE = mixture(d=400, n=6, kind=lf.Classes)
RUN = {"data": lf.FreshSamples(8), "n_rounds": 3, "trials": 2, "seed": 4}
WIDE_FLUTE = lf.GeneralFLUTE(rank=2, step_size=0.3)


@pytest.mark.parametrize("algorithm", [fedrep(init="random"), WIDE_FLUTE], ids=["FedRep", "FLUTE"])
def test_trials_are_independent_and_a_longer_run_extends_a_shorter_one(algorithm):
    runs = [
        lf.simulate(algorithm, WIDE, **RUN | change)
        for change in ({}, {"trials": 1}, {"n_rounds": 5}, {"record_every": 3}, {"n_rounds": 5, "trials": 5})
    ]
    assert {run.engine for run in runs} == {"projected"}
    for run in runs[1:]:
        same = min(run.trials, 2)
        for name in ("accuracy", "test_loss", "subspace_distance"):
            at = np.isin(runs[0].rounds, run.rounds)
            values = run.metrics[name][:same, np.isin(run.rounds, runs[0].rounds)]
            assert np.array_equal(values, runs[0].metrics[name][:same, at])
    assert_same(runs[0], lf.simulate(algorithm, WIDE, **RUN, memory_budget=4e5))


def test_a_trial_that_diverges_does_not_disturb_the_others():
    B = normal(2, 400, 2, seed=2)
    run = RUN | {"n_rounds": 12, "trials": 2}
    fine, spoiled = (
        lf.simulate(fedrep(init=B * scale, orthonormalize=False, step_size=0.1), WIDE, **run)
        for scale in (np.ones((2, 1, 1)), np.array([1e200, 1.0])[:, None, None])
    )
    assert spoiled.engine == "projected"
    assert spoiled.status == [lf.Status.DIVERGED, lf.Status.COMPLETED]
    assert np.array_equal(spoiled.final.B[1], fine.final.B[1])
    assert np.isnan(spoiled.metrics["accuracy"][0, -1])


def test_memory_does_not_grow_with_samples_times_dimension():
    """40 clients with 60 samples of dimension 3,000 would take 58 MB, and their 100 held-out samples 96 MB."""
    problem = mixture(d=3000, n=40, kind=lf.Classes, test_samples=100)
    tracemalloc.start()
    result = lf.simulate(fedrep(init="random"), problem, **RUN | {"data": lf.FreshSamples(60), "trials": 1})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.engine == "projected"
    assert peak < 2e7


CHOICES = {
    "FedRep": (fedrep(init="random"), 400, "projected"),
    "FedRep, small": (fedrep(init="random"), 7, "explicit"),
    "FedRep, local steps": (fedrep(init="random", representation_steps=2), 400, "explicit"),
    "FLUTE": (WIDE_FLUTE, 400, "projected"),
    "FLUTE, local steps": (replace(WIDE_FLUTE, local_steps=2), 400, "explicit"),
    "FLUTE*": (replace(WIDE_FLUTE, head_steps=1), 400, "explicit"),
    "FedPer": (lf.FedPer(rank=2, step_size=0.3), 400, "explicit"),
    "FedAvg": (lf.FedAvg(step_size=0.3), 400, "explicit"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_auto_takes_the_engine_where_it_is_exact_and_cheaper(name):
    algorithm, d, wanted = CHOICES[name]
    found = lf.simulate(algorithm, mixture(d=d, kind=lf.Classes), **RUN | {"n_rounds": 1, "trials": 1, "metrics": []})
    assert found.engine == wanted


QUESTIONS = {
    "a second gradient": lambda batch, features, W, B: features.representation_gradient(2 * W),
    "a second B": lambda batch, features, W, B: batch.project(2 * B),
    "a B of each client": lambda batch, features, W, B: batch.project(B[:, None]),
    "gradients of clients": lambda batch, features, W, B: features.gradients_of_clients(W),
    "residuals": lambda batch, features, W, B: features.shifted(W),
    "gradient": lambda batch, features, W, B: batch.gradient(THETA),
    "loss": lambda batch, features, W, B: batch.loss(THETA),
    "accuracies": lambda batch, features, W, B: batch.accuracies(lambda t, c: THETA),
    "shifted": lambda batch, features, W, B: batch.shifted(THETA),
    "balanced": lambda batch, features, W, B: batch.balanced(),
    "minibatches": lambda batch, features, W, B: list(batch.minibatches(2)),
    "split": lambda batch, features, W, B: batch.split(),
    "samples": lambda batch, features, W, B: batch.X,
}
THETA = np.zeros((1, 1, 4, WIDE.dim + 1))


@dataclass(frozen=True, kw_only=True)
class Greedy(lf.FedRep):
    """FedRep that asks for more than its `requires` allows."""

    question: object
    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        features, W = batch.project(state.B), state.take_clients("W", batch.active)
        features.representation_gradient(W)
        self.question(batch, features, W, state.B)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_batch_refuses_what_is_not_exact(question):
    algorithm = Greedy(question=QUESTIONS[question], rank=2, step_size=0.3, init="random", heads=lf.GradientHeads())
    assert_one_line(
        lambda: lf.simulate(algorithm, WIDE, **RUN, engine="projected"),
        ["engine = 'projected' draws only features at one B", "does not support batch.", "use engine = 'explicit'"],
    )


REFUSED = {
    "local steps on B": (fedrep(init="random", representation_steps=2), {}, "FedRep uses more than the features"),
    "local steps of FLUTE": (replace(WIDE_FLUTE, local_steps=2), {}, "GeneralFLUTE uses more than the features"),
    "fixed samples": (WIDE_FLUTE, {"data": lf.FixedSamples(8)}, "fixed samples are used at more than one B"),
    "no B": (type("Still", (lf.LocalOnly,), {"requires": lf.Requires.FEATURES})(step_size=0.1), {}, "no shared B"),
    "compressed": (WIDE_FLUTE, {"engine": "compressed"}, "it does not support classification"),
    "chain": (WIDE_FLUTE, {"engine": "chain"}, "it does not support classification"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_exact_is_refused(name):
    algorithm, change, reason = REFUSED[name]
    run = RUN | {"engine": "projected"} | change
    wanted = [f"engine = '{run['engine']}' does not support this run", reason, "'explicit'"]
    assert_one_line(lambda: lf.simulate(algorithm, WIDE, **run), wanted)


def test_predictors_with_a_full_part_have_no_held_out_projections():
    class Full(lf.FedRep):
        def initial_state(self, start):
            return super().initial_state(start).update(S=start.zeros(start.n_clients, start.dim))

    algorithm = Full(rank=2, step_size=0.3, init="random", heads=lf.GradientHeads())
    wanted = ["engine = 'projected' has no held-out samples for predictors with a part S", "use 'explicit'"]
    assert_one_line(lambda: lf.simulate(algorithm, WIDE, **RUN, engine="projected"), wanted)
