"""Fixed samples that are drawn in law, and data with the moments of a population."""

import math

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.errors import EngineError
from tests.helpers import assert_one_line, rounds_of
from tests.theory.flute.made import EXACT, made

COVARIANCE = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 0.7]])


@pytest.mark.parametrize(
    ("design", "wanted"),
    [
        ("gaussian", np.eye(3)),
        (lf.Gaussian(covariance=COVARIANCE), COVARIANCE),
        (lf.Rademacher(covariance=4.0), 4.0 * np.eye(3)),
    ],
)
def test_population_data_have_exactly_the_moments(design, wanted):
    problem = made((4, 3), design=design, noise_std=0.8)
    A, b = lf.GivenSamples.population(problem, trials=2, seed=7).normal_equations()
    Phi = problem.truth(7, range(2)).dense()
    np.testing.assert_allclose(A, np.broadcast_to(wanted, (2, 4, 3, 3)), **EXACT)
    np.testing.assert_allclose(b, Phi @ wanted, **EXACT)


def equations(data, design, seed, engine, trials=600):
    problem = made((3, 3), design=design, noise_std=0.6)
    step = next(rounds_of(lf.FLUTE(rank=1, step_size=1e-3), problem, data=data, rounds=1, trials=trials, seed=seed,
                           engine=engine))  # fmt: skip
    A, b = step.batch.normal_equations()
    loss = step.batch.loss(np.zeros((trials, 3, 3)))
    solved = np.linalg.solve(A, b[..., None])[..., 0] - problem.truth(seed, range(trials)).dense()
    return {
        "A_11": A[:, 0, 0, 0],
        "A_33": A[:, 1, 2, 2],
        "A_12": A[:, 2, 0, 1],
        "least": np.linalg.eigvalsh(A)[:, 0, 0],
        "det": np.linalg.det(A)[:, 1],
        "b_1": b[:, 0, 0],
        "|b|": (b**2).sum((1, 2)),
        "y'y": loss[:, 1],
        "minimum": loss[:, 0] - 0.5 * np.einsum("ti,tij,tj->t", b[:, 0], np.linalg.inv(A[:, 0]), b[:, 0]),
        "noise": solved[:, 0, 1],
        "|noise|": (solved**2).sum((1, 2)),
        "clients": A[:, 0, 0, 0] * A[:, 1, 0, 0],
    }


@pytest.mark.long
@pytest.mark.parametrize("m", [4, 9])
@pytest.mark.parametrize("design", ["gaussian", lf.Gaussian(covariance=COVARIANCE)])
def test_samples_in_law_have_the_law_of_samples(design, m):
    """Two-sample tests at a family-wise error rate of 1e-3; of another m they are rejected."""
    drawn = equations(lf.FixedSamples(m), design, 1, "explicit")
    for other, same in ((m, True), (m + 3, False)):
        told = equations(lf.FixedSamples(other, in_law=True), design, 2, "compressed")
        least = min(stats.ks_2samp(drawn[name], told[name]).pvalue for name in drawn)
        assert (least > 1e-3 / (4 * len(drawn))) == same


def test_samples_in_law_cost_the_same_at_any_number():
    for m in (10**4, 10**12):
        problem = made((3, 4), noise_std=0.6)
        step = next(rounds_of(lf.FLUTE(rank=1, step_size=1e-3), problem, data=lf.FixedSamples(m, in_law=True),
                               rounds=1, trials=3))  # fmt: skip
        A, b = step.batch.normal_equations()
        np.testing.assert_allclose(A, np.broadcast_to(np.eye(4), A.shape), rtol=0, atol=8 / math.sqrt(m))
        np.testing.assert_allclose(b, problem.truth(0, range(3)).dense(), rtol=0, atol=30 / math.sqrt(m))


REFUSED = [
    ({"engine": "explicit"}, "the samples are never drawn"),
    ({"m": 4}, "m = 4 is at most d = 4"),
    ({"problem": made((3, 4), design="rademacher")}, "requires Gaussian x"),
    ({"engine": "projected"}, "fixed samples are used at more than one B"),
    ({"algorithm": lf.FedRep(rank=1, step_size=0.1, init=lf.Moments())}, "in_law = True"),
]


@pytest.mark.parametrize(("changes", "fragment"), REFUSED)
def test_samples_in_law_are_refused_where_they_cannot_serve(changes, fragment):
    run = {"algorithm": lf.FLUTE(rank=1, step_size=0.01), "problem": made((3, 4)), "m": 30, "rounds": 1} | changes
    run["data"] = lf.FixedSamples(run.pop("m"), in_law=True)
    assert_one_line(lambda: lf.simulate(**run), [fragment], (EngineError, ValueError))


def test_samples_in_law_are_not_drawn():
    with pytest.raises(ValueError, match="with in_law = True no samples are drawn"):
        lf.FixedSamples(30, in_law=True).draw(made((3, 4)))
    assert lf.FixedSamples(30, in_law=False).draw(made((3, 4))).X.shape == (1, 3, 30, 4)
    with pytest.raises((ValueError, TypeError), match="in_law"):
        lf.FixedSamples(30, in_law="yes")
