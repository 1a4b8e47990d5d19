"""FedRep with clipped messages and noise on their mean: what it reduces to, and which engines can run it."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import linfed as lf
from tests.helpers import assert_one_line, basis, normal

D, K = 7, 2


# --- the algorithm ---------------------------------------------------------------------------------------------


def lengths_of_messages(B, X, y):
    """Return the Frobenius norms of the clients' messages at exact heads."""
    out = []
    for X_i, y_i in zip(X, y, strict=True):
        w = np.linalg.lstsq(X_i @ B, y_i, rcond=None)[0]
        out.append(np.linalg.norm(np.outer(X_i.T @ (X_i @ B @ w - y_i) / len(y_i), w)))
    return np.array(out)


def test_without_noise_and_clipping_it_is_fedrep():
    X, y, B = normal(1, 6, 5, D, seed=1), normal(1, 6, 5, seed=2), basis(D, K)
    lengths = lengths_of_messages(B, X[0], y[0])
    assert 0.3 < lengths.max() < 100.0
    run = {"data": lf.GivenSamples(X, y), "n_rounds": 3}
    plain = lf.simulate(lf.FedRep(rank=K, step_size=0.4, init=B), **run).final.B
    same = lf.simulate(lf.PrivateFedRep(rank=K, step_size=0.4, init=B), **run).final.B
    assert np.array_equal(plain, same)
    loose = lf.simulate(lf.PrivateFedRep(rank=K, step_size=0.4, init=B, clip=100.0), **run).final.B
    np.testing.assert_allclose(loose, plain, rtol=1e-12, atol=1e-12)


PROBLEM = lf.SharedRepresentation(n_clients=30, dim=12, rank=2, condition_number=2.0, noise_std=0.3)


@pytest.mark.long
def test_noise_keeps_the_projected_engine_exact():
    """Two engines have one distribution of the distance after three rounds; twice the noise has another one."""

    def distances(engine, noise, seed):
        algorithm = lf.PrivateFedRep(rank=2, step_size=0.6, message_noise_std=noise, init=lf.AtDistance(0.5))
        setting = {"data": lf.FreshSamples(6), "n_rounds": 3, "record_every": 3, "trials": 200}
        result = lf.simulate(algorithm, PROBLEM, engine=engine, seed=seed, **setting)
        return result.metrics["subspace_distance"][:, -1]

    explicit, projected = distances("explicit", 0.05, 0), distances("projected", 0.05, 1)
    assert scipy.stats.ks_2samp(explicit, projected).pvalue > 1e-3
    assert scipy.stats.ks_2samp(explicit, distances("projected", 0.1, 1)).pvalue < 1e-6


def test_engines_that_cannot_run_it_say_why():
    run = {"data": lf.FreshSamples(6), "n_rounds": 2}
    noisy = lf.PrivateFedRep(rank=2, step_size=0.5, message_noise_std=0.1, init=lf.AtDistance(0.5))
    clipped = replace(noisy, message_noise_std=0.0, clip=1.0)
    refused = ["engine = 'chain'", "the entries of B"]
    assert_one_line(lambda: lf.simulate(noisy, PROBLEM, engine="chain", **run), refused, lf.EngineError)
    refused = ["engine = 'projected'", "more than the features"]
    assert_one_line(lambda: lf.simulate(clipped, PROBLEM, engine="projected", **run), refused, lf.EngineError)
    assert lf.simulate(clipped, PROBLEM, **run).engine == "explicit"
    refused = ["engine = 'compressed'", "single samples"]
    halves = replace(clipped, disjoint_samples=True)
    assert_one_line(lambda: lf.simulate(halves, PROBLEM, engine="compressed", **run), refused, lf.EngineError)


def test_it_supports_only_regression():
    problem = lf.Classes(n_clients=6, n_classes=3, classes_per_client=2, dim=9)
    algorithm = lf.PrivateFedRep(rank=2, step_size=0.1, heads=lf.GradientHeads(), clip=1.0)
    call = lambda: lf.simulate(algorithm, problem, data=lf.FreshSamples(5), n_rounds=1)  # noqa: E731
    assert_one_line(call, ["PrivateFedRep supports only regression"])
