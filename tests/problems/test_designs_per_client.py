"""Covariances of x that differ between clients: samples, population, risk, and what they do not allow."""

import dataclasses

import numpy as np
import pytest

import linfed as lf
from tests.helpers import assert_one_line, basis, normal

N, D, K, M, SIGMA = 3, 5, 2, 20, 0.8
TURNS = np.stack([basis(D, D, seed=i) for i in range(4)])
COVARIANCES = TURNS @ (np.geomspace(1.0, 9.0, D)[:, None] * TURNS.mT)
PROBLEM = lf.SharedRepresentation(
    n_clients=N, dim=D, rank=K, noise_std=SIGMA, design=lf.Gaussian(covariance=COVARIANCES[:N])
)


DIAGONALS = np.array([[1.0, 4.0], [9.0, 16.0], [25.0, 36.0], [49.0, 64.0]])


def signs():
    """Return a problem whose samples show the client: the absolute values of x are roots of its covariance."""
    design = lf.Rademacher(covariance=np.stack([np.diag(row) for row in DIAGONALS]))
    return lf.SharedRepresentation(n_clients=4, dim=2, rank=1, design=design)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen(lf.Algorithm):
    """Keep the absolute values of each participant's samples."""

    requires = lf.Requires.ROWS
    initialization = None

    def initial_state(self, start):
        return lf.State(S=start.zeros(start.n_clients, start.dim))

    def step(self, state, batch, rng):
        sizes = np.abs(batch.X)
        assert np.ptp(sizes, axis=2).max() < 1e-12
        return state.update(S=sizes[:, :, 0], active=batch.active)


@pytest.mark.parametrize("samples", [lf.FreshSamples(3), lf.FreshSamples(70_000), lf.FixedSamples(4)])
def test_participants_have_their_own_covariances(samples):
    """A small round is drawn ahead, a large one when it is read."""
    states = lf.iterate(Seen(), signs(), data=samples, n_rounds=3, participation=[[1, 3], [0, 1], [2, 3]])
    found = [step.after.S[0].copy() for step in states]
    np.testing.assert_allclose(found[1], np.sqrt(DIAGONALS) * [[0], [1], [0], [1]], rtol=1e-12)
    np.testing.assert_allclose(found[3], np.sqrt(DIAGONALS), rtol=1e-12)


def test_initial_samples_and_population_have_the_clients_covariances():
    given, Phi = lf.GivenSamples.population(signs()), signs().truth(0, [0]).dense()
    np.testing.assert_allclose(given.X.mT @ given.X / 2, [[np.diag(row) for row in DIAGONALS]], atol=1e-12)
    np.testing.assert_allclose(given.y, (given.X @ Phi[..., None])[..., 0])

    @dataclasses.dataclass(frozen=True)
    class First(lf.Initial):
        """The absolute values of the first samples of clients 1 and 3, as columns."""

        needs_batch = True

        def resolve(self, start, rank):
            return np.abs(start.batch().X[:, [1, 3], 0]).mT

    for data in (lf.FreshSamples(3), lf.FixedSamples(3)):
        algorithm = lf.FedRep(rank=2, step_size=1.0, init=First())
        B = lf.simulate(algorithm, signs(), data=data, n_rounds=0).final.B[0]
        np.testing.assert_allclose(B, np.sqrt(DIAGONALS[[1, 3]]).T)


def test_the_risk_is_that_of_the_loop():
    result = lf.simulate(lf.LocalOnly(ridge=0.1), PROBLEM, data=lf.FixedSamples(9), n_rounds=1)
    truth = PROBLEM.truth(0, [0])
    Sigma, missed = COVARIANCES[:N], result.final.S[0] - truth.dense()[0]
    wanted = np.mean([e @ A @ e for e, A in zip(missed, Sigma, strict=True)]) / 2 + SIGMA**2 / 2
    np.testing.assert_allclose(result.metrics["risk"][0, -1], wanted, rtol=1e-12)


def test_the_best_single_model_weighs_clients_by_their_covariances():
    """The floor is the risk of pooled least squares on the population; that of the mean regressor is larger."""
    given = lf.GivenSamples.population(PROBLEM)
    pooled = lf.simulate(lf.PooledLeastSquares(), PROBLEM, data=given, n_rounds=1).metrics["risk"][0, -1]
    floor = lf.theory.single_model_floor(PROBLEM.truth(0, [0]))[0]
    np.testing.assert_allclose(floor, pooled, rtol=1e-12)
    Phi = PROBLEM.truth(0, [0]).dense()[0]
    missed = Phi.mean(axis=0) - Phi
    wrong = np.mean([e @ A @ e for e, A in zip(missed, COVARIANCES[:N], strict=True)]) / 2 + SIGMA**2 / 2
    assert wrong > 1.05 * floor


def test_compressed_fixed_samples_are_the_samples():
    runs = [
        lf.simulate(lf.FedRep(rank=K, step_size=0.1), PROBLEM, data=lf.FixedSamples(M), n_rounds=3, engine=engine)
        for engine in ("explicit", "compressed")
    ]
    np.testing.assert_allclose(runs[0].final.B, runs[1].final.B, atol=1e-10)


def run(**fields):
    options = {"data": lf.FreshSamples(M), "n_rounds": 1, "rank": K} | fields
    return lf.simulate(lf.FedRep(rank=options.pop("rank"), step_size=0.1), PROBLEM, **options)


FOUR = lf.Gaussian(covariance=COVARIANCES)
REFUSED = {
    "projected": (lambda: run(engine="projected"), ["differs between clients", "'explicit'"]),
    "new clients": (lambda: run().new_clients([5]), ["new_clients()", "one covariance"]),
    "a reference": (lambda: PROBLEM.truth(0, [0]).reference(1), ["covariance", "no closed form"]),
    "other clients": (lambda: lf.SharedRepresentation(n_clients=7, dim=D, rank=2, design=FOUR), ["n_clients = 7"]),
    "other clients'": (lambda: lf.UnderParameterized(n_clients=7, dim=D, rank=2, design=FOUR), ["n_clients = 7"]),
    "not symmetric": (lambda: lf.Gaussian(covariance=normal(2, 3, 3)), ["symmetric", "per client"]),
    "negative": (lambda: lf.Gaussian(covariance=-COVARIANCES), ["semi-definite"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_covariances_per_client_do_not_allow_is_refused(name):
    assert_one_line(*REFUSED[name])


def test_a_best_subspace_has_no_closed_form():
    assert "no closed form" in run(rank=1).metrics.absent["subspace_distance"]
    assert "no closed form" in lf.UnderParameterized(n_clients=4, dim=D, design=FOUR).no_reference(2)
    given = lf.GivenTruth(Phi=normal(4, D), design=FOUR)
    assert (given.subspace_rank, "no closed form" in given.no_reference(2)) == (4, True)
