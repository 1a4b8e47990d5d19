"""From how many clients federation pays on fixed samples, and where B* can be learned at all."""

import functools

import numpy as np
import pytest
from scipy import optimize

import linfed as lf
from linfed.theory.fedrep.fixed_samples import break_even, cavity
from tests.helpers import assert_one_line, cleared

NOISY_SIZES = {"dim": 40, "rank": 3, "n_samples": 10, "noise_std": 1.0}


def edge(**changes):
    return lf.theory.fixed_sample_edge(**NOISY_SIZES | changes)


def pays(rival, **changes):
    return lf.theory.break_even_clients(rival, **NOISY_SIZES | changes)


@pytest.mark.long
def test_runs_from_the_truth_know_no_edge():
    """They end the farther the fewer clients there are; the equations for Gaussian heads end at 0.61 of the edge."""
    m, k, d = 10, 3, 40
    h = 1 / (m - k - 1)
    assert (d - k) * k / ((m - k) * (1 + 2 * h - 2 * np.sqrt(h * (1 + h)))) < 0.7 * edge()
    ends = []
    for share in (0.65, 1.35):
        n = round(share * edge())
        problem = lf.SharedRepresentation(n_clients=n, dim=d, rank=k, noise_std=1.0, condition_number=1.0)
        fedrep = lf.FedRep(rank=k, step_size=0.7, init=problem.truth(0, range(8)).B)
        told = {"data": lf.FixedSamples(m), "n_rounds": 300, "trials": 8, "record_every": 150}
        ends.append(np.median(lf.simulate(fedrep, problem, **told).metrics["subspace_distance"][:, -1]))
    assert 0.35 < ends[1] < 0.42
    assert 0.58 < ends[0] < 0.7


@pytest.mark.long
def test_without_noise_the_edge_is_where_samples_are_as_many_as_unknowns():
    assert edge(noise_std=0.0) == 37 * 3 / 7
    assert edge(noise_std=1e-3) == pytest.approx(37 * 3 / 7, rel=0.01)
    assert edge(noise_std=0.3) > 1.3 * 37 * 3 / 7
    assert edge(n_samples=100, noise_std=0.0) == 3
    assert edge(n_samples=4) == edge(n_samples=3, noise_std=0.0) == edge(n_samples=2) == np.inf
    assert edge(n_samples=4, noise_std=0.0) == pays(1.0, n_samples=4, noise_std=0.0) == 37 * 3


def test_it_never_pays_beside_a_better_baseline_or_with_too_few_samples():
    known = float(lf.theory.new_client_mean_risk(0.0, noise_std=1.0, rank=3, n_samples=10))
    assert pays(known - 1e-9) == pays(0.5) == pays(2.0, n_samples=4) == pays(0.0, noise_std=0.0) == np.inf


@pytest.fixture
def few_draws(monkeypatch):
    """Let the solutions be those of 128 draws, and typical means those of 40 data sets."""
    monkeypatch.setattr(break_even, "DRAWS", 128)
    monkeypatch.setattr(cavity, "DATA_SETS", 40)
    with cleared(break_even._solutions):
        yield


def solution(c, *, d, k, m, variance):
    """Return n and the mean risk of training clients at ``C = c/(1 + c) I``, for 128 draws."""
    nu, eye, u = m - k - 1, np.eye(k), variance + k * c
    clients, C = (
        cavity.ClientDraws(np.sqrt(k) * eye[:1], n_samples=m, unknowns=1.0, variance=variance, draws=128),
        c / (1 + c) * eye,
    )

    def gap(v):
        J, P = clients.moments(v * eye, C)
        return v * np.trace(P) / np.trace(J) - c / (1 + c)

    v = optimize.newton(gap, c / (u * (1 + u / nu) - k * c) / (1 + c), tol=1e-9)
    n = (d - k) / (v * np.trace(clients.moments(v * eye, C)[0]) / k)
    length = k * c / (1 + c)
    excess = length + (length + variance) * k / nu
    if m > k + 4:
        errors, new = clients.training(clients.solve(v * eye, C), C)
        excess += cavity.typical_mean((errors - new)[None], round(n))
    return n, (excess + variance) / 2


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("k", "m"), [(2, 6), (2, 9), (1, 4), (3, 8)])
def test_every_point_solves_the_equations(k, m):
    d, variance = 60, 0.5
    course = list(zip(*break_even._solutions(k, d - k, m, variance), strict=True))
    for c, unknowns, excess in course[1::4]:
        n, risk = solution(c, d=d, k=k, m=m, variance=variance)
        assert (d - k) / unknowns == pytest.approx(n, rel=0.01)
        assert (excess + variance) / 2 == pytest.approx(risk, rel=0.01)


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize(("m", "c"), [(6, 0.05), (9, 0.03)])
def test_it_pays_from_the_solution_with_the_risk_of_the_baseline(m, c):
    n, risk = solution(c, d=60, k=2, m=m, variance=0.5)
    sizes = {"dim": 60, "rank": 2, "n_samples": m, "noise_std": 0.5**0.5}
    assert lf.theory.break_even_clients(risk, **sizes) == pytest.approx(n, rel=0.01)


@pytest.mark.usefixtures("few_draws")
def test_the_edge_is_the_fewest_clients_with_a_solution():
    sizes = {"d": 60, "k": 2, "m": 9, "variance": 0.5}
    fewest = min(solution(c, **sizes)[0] for c in np.geomspace(0.4, 1.5, 8))
    found = lf.theory.fixed_sample_edge(dim=60, rank=2, n_samples=9, noise_std=0.5**0.5)
    assert found == pytest.approx(fewest, rel=0.05)
    far = lf.theory.break_even_clients(100.0, dim=60, rank=2, n_samples=9, noise_std=0.5**0.5)
    assert far == pytest.approx(found, rel=1e-3)


@pytest.mark.usefixtures("few_draws")
def test_many_clients_pay_by_the_first_order_of_their_number():
    d, k, m, variance = 60, 2, 6, 0.5
    nu, known = m - k - 1, variance * (1 + k / (m - k - 1)) / 2
    for more in (1e-6, 1e-9):
        n = lf.theory.break_even_clients(known + more, dim=d, rank=k, n_samples=m, noise_std=variance**0.5)
        first = k * (1 + k / nu) * (d - k) / (m - k) * variance * (1 + variance / nu)
        assert n * 2 * more == pytest.approx(first, rel=0.05)


@pytest.mark.long
def test_without_noise_one_sample_more_than_the_rank_suffices():
    """Where `fixed_sample_edge` counts 16 clients, runs near B* find it with 24 and not with 10."""
    assert lf.theory.fixed_sample_edge(dim=10, rank=2, n_samples=3, noise_std=0.0) == 16
    algorithm = lf.FedRep(rank=2, step_size=0.9, init=lf.AtDistance(0.05))
    ends = {}
    for n in (10, 24):
        problem = lf.SharedRepresentation(n_clients=n, dim=10, rank=2)
        setting = {"data": lf.FixedSamples(n_samples=3), "n_rounds": 1700, "trials": 4, "record_every": 1700}
        ends[n] = lf.simulate(algorithm, problem, **setting).metrics["subspace_distance"][:, -1]
    assert ends[24].max() < 1e-6
    assert ends[10].min() > 0.02


def test_invalid_arguments_are_one_line():
    for call in (edge, functools.partial(pays, 1.0)):
        assert_one_line(lambda call=call: call(rank=0), ["rank = 0"])
        assert_one_line(lambda call=call: call(dim=4), ["dim = 4"])
        assert_one_line(lambda call=call: call(noise_std=-1.0), ["noise_std = -1.0"])
        assert_one_line(lambda call=call: call(n_samples=0), ["n_samples = 0"])
    assert_one_line(lambda: pays(-1.0), ["baseline_risk = -1.0"])
