"""The theory at the ends of its range: finite, inside [0, 1], at rest where it should be, or one line."""

import itertools
import re

import numpy as np
import pytest

import linfed as lf
from linfed.theory.fedrep.arguments import StepTooLargeError
from linfed.theory.fedrep.rounds import second_order
from tests.helpers import cleared, normal

theory = lf.theory

# Clients, rank, dimension, samples, participants, and the step as a share of the stability edge.
CASES = {
    "plain": (12, 2, 10, 8, None, 0.3),
    "near the edge": (12, 2, 10, 8, None, 0.97),
    "one participant": (12, 2, 10, 8, 1, 0.3),
    "one participant near the edge": (12, 2, 10, 8, 1, 0.97),
    "as many clients as columns": (2, 2, 10, 8, 1, 0.5),
    "fewer clients than columns": (2, 3, 10, 8, None, 0.3),
    "one client": (1, 1, 10, 8, None, 0.5),
    "dim = rank": (12, 2, 2, 8, None, 0.3),
    "dim = 2 rank": (12, 2, 4, 8, None, 0.3),
    "samples = rank + 2": (12, 2, 10, 4, None, 0.3),
    "samples = rank + 2, near the edge, one participant": (12, 2, 10, 4, 1, 0.97),
    "samples = rank + 1": (12, 2, 10, 3, None, 0.3),
}


class Case:
    """Sizes, heads and a step of one of the cases."""

    def __init__(self, name):
        self.n, self.k, self.d, self.m, self.p, self.share = CASES[name]
        self.sizes = {"dim": self.d, "n_samples": self.m, "participants": self.p}
        self.closed = {"rank": self.k, "n_clients": self.n, **self.sizes}
        self.W = normal(self.n, self.k, seed=2)
        self.unlearned = self.n < self.k
        self.V = normal(self.n, self.k + 2, seed=2) * np.r_[np.full(self.k, 1.5), 0.7, 0.4]

    def step(self):
        """Return the share of the edge; any step where heads leave directions out, for which there is no edge."""
        if min(self.d - 2 * self.k, self.m - self.k - 2) < 0:
            return 0.1
        return self.share * theory.stability_edge(self.W, **self.sizes) or 0.1

    def course(self, law, n_rounds, **more):
        return law(self.W, step_size=self.step(), n_rounds=n_rounds, delta=0.5, **self.sizes, **more)

    def below_top(self, n_rounds):
        largest = np.linalg.norm(self.V, 2) ** 2 / self.n
        return theory.under_parameterized_evolution(
            self.V, rank=self.k, step_size=0.5 * self.share / largest, n_rounds=n_rounds, delta=0.5, **self.sizes
        ).distance

    def band(self, n_rounds):
        found = self.course(theory.second_order_evolution, n_rounds)
        assert np.isfinite(found.log_std).all()
        assert np.isfinite(found.round_log_variance).all()
        assert np.all((found.low <= found.distance) & (found.distance <= found.high))
        return np.stack([found.distance, found.low, found.high])

    def closed_course(self, n_rounds):
        step = 2.0 * self.share * theory.best_step_size(**self.closed)
        run = {"noise_std": 0.0, "n_rounds": n_rounds, "delta": 0.5, **self.closed}
        return np.sqrt(theory.mean_squared_sine(step, **run))

    def scheduled(self, n_rounds):
        run = {"noise_std": 0.0, "n_rounds": n_rounds, "delta": 0.5, **self.closed}
        return np.sqrt(theory.mean_squared_sine(theory.best_step_schedule(**run), **run))


COURSES = {
    "state_evolution": lambda case, rounds: case.course(theory.state_evolution, rounds).distance,
    "second_order": lambda case, rounds: case.band(rounds),
    "gradient_heads": lambda case, rounds: case.course(theory.gradient_heads_evolution, rounds).distance,
    "three head steps": lambda case, rounds: (
        case.course(theory.gradient_heads_evolution, rounds, head_steps=3, head_step_size=0.1).distance
    ),
    "without_qr": lambda case, rounds: case.course(theory.unnormalized_evolution, rounds).distance,
    "under_parameterised": lambda case, rounds: case.below_top(rounds),
    "mean_squared_sine": lambda case, rounds: case.closed_course(rounds),
    "best_step_schedule": lambda case, rounds: case.scheduled(rounds),
}


@pytest.fixture
def few_draws(monkeypatch):
    """Medians over fewer fixed draws: what is asked here does not depend on how many."""
    monkeypatch.setattr("linfed.theory.fedrep.rounds.truth_rows.VALUES", 1_000)
    monkeypatch.setattr(second_order, "DRAWS", 64)
    with cleared(second_order.CholeskyChart.of):
        yield


def found_or_said(asked):
    """Return what is found, or None where one line of the project's own says why there is nothing."""
    try:
        return asked()
    except ValueError as error:
        said = error
    assert type(said) in (ValueError, StepTooLargeError, lf.NoPredictionError), repr(said)
    assert "\n" not in str(said)
    assert said.args[0].strip()
    assert not re.search(r"f\(a\)|not positive definite|[Ss]ingular matrix|did not converge", str(said)), str(said)
    return None


REFUSED = {"dim = rank", "samples = rank + 1"}
"""Cases that no law of a course serves."""


FOR_1000_ROUNDS = {"plain", "near the edge", "one participant near the edge", "dim = 2 rank", "samples = rank + 2"}
"""Cases of the courses over 1,000 rounds."""

LASTS = [(law, rounds) for law in COURSES for rounds in (60, 1000) if rounds == 60 or "head" not in law]


@pytest.mark.long
@pytest.mark.parametrize(("law", "rounds"), LASTS)
@pytest.mark.usefixtures("few_draws")
def test_a_course_without_noise_is_finite_and_comes_to_rest(law, rounds):
    for name in CASES if rounds < 1000 else FOR_1000_ROUNDS:
        case = Case(name)
        distance = found_or_said(lambda case=case: COURSES[law](case, rounds))
        assert name not in REFUSED or distance is None or "head" in law, name
        if name in ("plain", "one participant") or (name == "dim = 2 rank" and (law, rounds) != ("second_order", 1000)):
            assert distance is not None, name
        if distance is None:
            continue
        assert np.isfinite(distance).all(), name
        assert distance.min() >= 0.0, name
        assert distance.max() <= 1.0, name
        late, end = np.atleast_2d(distance)[0, -11], np.atleast_2d(distance)[0, -1]
        if law == "under_parameterised":
            if rounds == 1000:
                assert end == pytest.approx(late, rel=0.02), name
        elif case.unlearned:
            assert "head" in law or end == pytest.approx(0.5, abs=0.02), name
        elif "near the edge" not in name:  # where a start at 0.5 may still leave for another fixed point
            assert end <= max(late, 1e-150), name
            if name in ("plain", "dim = 2 rank"):
                assert end < (1e-15 if rounds == 1000 else 0.2), name


NUMBERS = {
    "best_step_size": lambda case, noise: theory.best_step_size(**case.closed),
    "one_round_factor": lambda case, noise: theory.one_round_factor(0.1, **case.closed),
    "fixed_samples_needed": lambda case, noise: theory.fixed_samples_needed(
        0.05, dim=case.d, rank=case.k, n_clients=len(case.W), n_rounds=100, delta=0.5, level=0.01
    ),
    "noise_floor": lambda case, noise: theory.noise_floor(0.01, noise_std=noise, **case.closed),
    "norm_growth": lambda case, noise: theory.norm_growth(0.1, noise_std=noise, **case.closed),
    "stability_edge": lambda case, noise: theory.stability_edge(case.W, **case.sizes),
    "near_truth_best_step": lambda case, noise: theory.near_truth_best_step(case.W, **case.sizes),
    "near_truth_factor": lambda case, noise: theory.near_truth_factor(case.W, step_size=0.01, **case.sizes),
    "near_truth_floor": lambda case, noise: theory.median_distance(
        theory.near_truth_floor(case.W, step_size=0.01, noise_std=noise, **case.sizes), dim=case.d
    ),
    "schedule_asymptote": lambda case, noise: theory.schedule_asymptote(
        noise_std=noise, n_rounds=1000, delta=0.5, **case.closed
    ),
    "under_parameterized_floor": lambda case, noise: (
        theory.under_parameterized_floor(case.V, rank=case.k, step_size=0.01, noise_std=noise, **case.sizes).distance
    ),
    "largest_sine": lambda case, noise: theory.largest_sine([0.0, 0.5, 0.999], dim=case.d, rank=case.k),
    "refitted_heads_limit": lambda case, noise: theory.refitted_heads_limit(
        1e4, dim=case.d, rank=case.k, n_samples=case.m, noise_std=noise
    ),
    "known_heads_bound": lambda case, noise: theory.known_heads_bound(1e4, dim=case.d, rank=case.k, noise_std=noise),
    "new_client_excess_quantile": lambda case, noise: theory.new_client_excess_quantile(
        0.5, [0.1], noise_std=noise, rank=case.k, n_samples=case.m
    ),
    "best_local_ridge": lambda case, noise: theory.best_local_ridge(1.0, noise_std=noise, dim=case.d, n_samples=case.m),
    "fixed_sample_edge": lambda case, noise: theory.fixed_sample_edge(
        dim=case.d, rank=case.k, n_samples=case.m, noise_std=noise
    ),
    "break_even_clients": lambda case, noise: theory.break_even_clients(
        0.5, dim=case.d, rank=case.k, n_samples=case.m, noise_std=noise
    ),
    "local_mean_risk": lambda case, noise: theory.local_mean_risk(1.0, noise_std=noise, dim=case.d, n_samples=case.m),
    "new_client_mean_risk": lambda case, noise: theory.new_client_mean_risk(
        0.1, noise_std=noise, rank=case.k, n_samples=case.m
    ),
}
SINES = {"noise_floor", "near_truth_floor", "under_parameterized_floor", "largest_sine"}
INFINITE = {"fixed_sample_edge", "break_even_clients", "local_mean_risk", "new_client_mean_risk"}


@pytest.mark.long
@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_finite_or_one_line_says_why_there_is_none(number):
    """Those of `INFINITE` may be infinite."""
    for name, noise_std in itertools.product(CASES, (0.0, 0.3)):
        found = found_or_said(lambda name=name, noise=noise_std: NUMBERS[number](Case(name), noise))
        if number in INFINITE:
            assert found is not None or name == "dim = rank", name
        else:
            assert found is not None or name != "plain" or (number, noise_std) == ("schedule_asymptote", 0.0)
        if found is not None:
            found = np.asarray(found, dtype=float)
            assert number in INFINITE or np.isfinite(found).all(), name
            assert found.min() >= 0.0, name
            assert number not in SINES or found.max() <= 1.0, name


LEARNED_FROM_FIXED = {name for name, (n, k, d, m, *_) in CASES.items() if (n, k, d, m) == (12, 2, 10, 8)}
"""Cases whose steps are below the edge on fixed samples."""


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_floor_of_fixed_samples_is_a_sine_or_nan():
    for name in CASES:
        case = Case(name)
        sizes = {"dim": case.d, "n_samples": case.m, "noise_std": 0.3}
        found = found_or_said(lambda case=case, sizes=sizes: theory.fixed_sample_floor(case.W, **sizes).distance)
        assert found is not None or case.unlearned or case.d == case.k or case.m == case.k + 1, name
        assert found is None or np.isnan(found) or 0.0 <= found <= 1.0, name
        assert name not in LEARNED_FROM_FIXED or found > 0.0, name
