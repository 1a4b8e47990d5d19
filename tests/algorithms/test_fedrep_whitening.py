"""FedRep that splits its batch or whitens its messages: against loops, and what it requires."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from tests import references as ref
from tests.helpers import assert_one_line, basis, normal

N, D, K, M = 3, 5, 2, 20
TURNS = np.stack([basis(D, D, seed=i) for i in range(5)])
COVARIANCES = TURNS @ (np.geomspace(1.0, 9.0, D)[:, None] * TURNS.mT)
PROBLEM = lf.SharedRepresentation(
    n_clients=N, dim=D, rank=K, noise_std=0.8, design=lf.Gaussian(covariance=COVARIANCES[0])
)


@pytest.mark.parametrize(
    ("heads", "weights"),
    [(lf.ExactHeads(), None), (lf.GradientHeads(steps=2, step_size=0.1), [1.0, 2.0, 0.5, 4.0, 1.5])],
    ids=["exact", "gradient, weighted"],
)
def test_rounds_with_halves_and_whitening_are_the_loops(heads, weights):
    n, m, rounds = 5, 13, 3
    matrices, vector = COVARIANCES, np.arange(1.0, D + 1)
    X, y, B, participants = normal(n, m, D), normal(n, m, seed=1), basis(D, K), [[0, 2, 3], [1, 2, 4], [0, 3, 4]]
    named = {
        "common": (lf.Gaussian(covariance=matrices[0]), [matrices[0]] * n),
        "each": (lf.Rademacher(covariance=matrices), matrices),
        "diagonal": (lf.Gaussian(covariance=vector), [np.diag(vector)] * n),
        "identity": (lf.Gaussian(), [np.eye(D)] * n),
    }
    for split in (False, True):
        for name in (None, "own", "pooled", *named):
            whiten, dense = named.get(name, (name, name))
            fields = {"step_size": 0.2, "heads": heads, "disjoint_samples": split, "weights": weights}
            fields["aggregate"] = "sum" if split else "mean"
            algorithm = lf.FedRep(rank=K, init=B, whiten=whiten, **fields)
            steps = lf.iterate(algorithm, data=lf.GivenSamples(X, y), n_rounds=rounds, participation=participants)
            states = ref.fedrep(X, y, participants, B, whiten=dense, **fields)
            for step, (B_t, W_t) in zip(steps, states, strict=True):
                np.testing.assert_allclose(step.after.B[0], B_t, atol=1e-10)
                np.testing.assert_allclose(step.after.W[0], W_t, atol=1e-10)


def test_local_steps_on_the_second_half_are_the_loops():
    X, y, B = normal(4, 12, D), normal(4, 12, seed=1), basis(D, K)
    algorithm = lf.FedRep(rank=K, step_size=0.2, init=B, disjoint_samples=True, representation_steps=3)
    states = lf.iterate(algorithm, data=lf.GivenSamples(X, y), n_rounds=2)
    wanted = ref.fedrep(X, y, [range(4)] * 2, B, step_size=0.2, disjoint_samples=True, representation_steps=3)
    for step, (B_t, _) in zip(states, wanted, strict=True):
        np.testing.assert_allclose(step.after.B[0], B_t, atol=1e-10)


def test_pooled_covariances_are_sent_to_the_server():
    sent = {
        name: lf.FedRep(rank=K, step_size=1.0, whiten=name).communication(dim=D) for name in (None, "own", "pooled")
    }
    assert sent[None] == sent["own"] == (D * K, D * K)
    assert sent["pooled"] == (D * K, D * K + D * (D + 1) / 2)


def test_a_half_of_one_batch_is_altgdmin():
    same = {"rank": K, "init": basis(D, K), "disjoint_samples": True}
    data = lf.FreshSamples(M)
    one = lf.simulate(lf.FedRep(step_size=0.3, **same), PROBLEM, data=data, n_rounds=4)
    other = lf.simulate(lf.AltGDmin(step_size=0.3 / (N * M // 2), **same), PROBLEM, data=data, n_rounds=4)
    np.testing.assert_allclose(one.final.B, other.final.B, atol=1e-12)


@pytest.mark.parametrize(
    ("fields", "fragments"),
    [
        ({"whiten": "own", "representation_steps": 2}, ["whiten", "representation_steps"]),
        ({"whiten": lf.Gaussian(covariance=np.diag([1.0, 0.0]))}, ["whiten", "regular"]),
        ({"whiten": lf.Gaussian(covariance=np.array([np.eye(2), np.diag([1.0, 0.0])]))}, ["whiten", "regular"]),
    ],
)
def test_wrong_options_are_named(fields, fragments):
    assert_one_line(lambda: lf.FedRep(rank=1, step_size=0.1, **fields), fragments)


@pytest.mark.parametrize(
    ("fields", "samples", "fragments"),
    [
        ({"whiten": "own"}, D - 1, ["'own'", "d = 5", "got 4"]),
        ({"whiten": "own", "disjoint_samples": True}, 2 * D - 1, ["'own'", "d = 5", "got 4"]),
        ({"whiten": "pooled"}, 1, ["'pooled'", "d = 5", "got 3"]),
        ({"whiten": lf.Gaussian(covariance=np.eye(4))}, M, ["covariance", "d = dim = 5"]),
        ({"whiten": lf.Gaussian(covariance=COVARIANCES[:2])}, M, ["covariance", "n_clients = 3"]),
        ({"disjoint_samples": True}, 1, ["n_samples = 1", "at least 2"]),
        ({"whiten": "own"}, D, []),
        ({"whiten": "pooled"}, (1, 2, 2), []),
    ],
)
def test_whitening_requires_as_many_samples_as_dimensions(fields, samples, fragments):
    algorithm = lf.FedRep(rank=1, step_size=0.1, init="random", **fields)
    run = {"data": lf.FreshSamples(samples), "n_rounds": 1}
    if fragments:
        assert_one_line(lambda: lf.simulate(algorithm, PROBLEM, **run), fragments)
    else:
        assert lf.simulate(algorithm, PROBLEM, **run).status == [lf.Status.COMPLETED]


def test_a_small_covariance_is_regular():
    design = lf.Gaussian(covariance=1e-9 * np.array([[2.0, 1.0], [1.0, 3.0]]))
    assert lf.FedRep(rank=1, step_size=0.1, whiten=design).whiten == design


def test_classes_can_be_split_but_not_whitened():
    X, y = normal(3, 8, D), np.arange(24).reshape(3, 8) % 2
    given = lf.GivenClasses(X, y)
    algorithm = lf.FedRep(rank=K, step_size=0.1, init="random", heads=lf.GradientHeads(), disjoint_samples=True)
    assert np.isfinite(lf.simulate(algorithm, data=given, n_rounds=2).metrics["train_loss"]).all()
    whitened = dataclasses.replace(algorithm, whiten="own")
    assert_one_line(lambda: lf.simulate(whitened, data=given, n_rounds=2), ("whiten", "2 classes"))


def test_a_whitened_run_has_no_prediction():
    algorithm = lf.FedRep(rank=K, step_size=0.1, whiten=PROBLEM.design)
    with pytest.raises(lf.NoPredictionError, match="whitened"):
        lf.predict(algorithm, PROBLEM, data=lf.FreshSamples(M), n_rounds=2)
