"""FLUTE's theorems against algebra of their own: the Theta recursion, the region, rates, minimisers, edge and floor."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

import linfed as lf
import linfed.claims as c
from experiments.flute import flute_divergence, flute_rate_and_floor, flute_theorem55
from linfed.errors import EngineError
from linfed.statistics.findings import Verdict, judge_identity
from linfed.theory import flute as theory
from tests.helpers import each, normal, rounds_of


def said(beginning):
    """Return the fields of the claim that begins with these words, as its statistic gives them to a judge."""
    claims = (*flute_theorem55.CLAIMS, *flute_rate_and_floor.CLAIMS)
    one = next(one for one in claims if one.sentence.startswith(beginning))
    wanted = one.required or one.statistic.required
    fields = {"claim": one.sentence, "setting": "w", "source": one.source, "statistic": one.statistic.words}
    fields |= {"claimed_low": wanted.low, "claimed_high": wanted.high, "strict": wanted.strict}
    return fields if one.theorem is None else fields | {"theorem": one.theorem}


LOCAL_RATE, FLOOR, REUSED = map(said, ("Near the truncation", "With m fixed", "Reused samples"))
FAILS = {"claim": "It holds", "setting": "w", "source": "our prediction"}
"""Fields for judges of shares of failures."""
SHAPES = {"n < d": (5, 8), "n == d": (6, 6), "n > d": (9, 4)}
EXACT = {"rtol": 1e-12, "atol": 1e-13}


def made(shape, spectrum=None, **more):
    n, d = SHAPES[shape] if isinstance(shape, str) else shape
    return lf.UnderParameterized(n_clients=n, dim=d, spectrum=spectrum, **more)


def balanced(cut):
    """Return B and W of a truth in factors with ``B'B = W'W`` diagonal."""
    U, s, Vt = np.linalg.svd(np.swapaxes(cut.dense(), -1, -2), full_matrices=False)
    k = cut.B.shape[-1]
    root = np.sqrt(s[:, None, :k])
    return U[..., :k] * root, np.swapaxes(Vt, -1, -2)[..., :k] * root


# --- the recursion -------------------------------------------------------------------------------------------


def identity(trace):
    """Return the finding on the recursion of a trace."""
    return judge_identity(trace.identity, tolerance=theory.IDENTITY_TOLERANCE, **said("The Theta recursion"))


def both_sides(B, W, new_B, new_W, A, b, Phi, eta, frames=None):
    """Return the two sides of (13) for one trial, written block by block from the appendix; Phi is (d, n)."""
    (d, n), k = Phi.shape, B.shape[1]
    U, values, Vt = np.linalg.svd(Phi) if frames is None else frames
    V, size = Vt.T, max(d, n)
    Lambda = np.zeros((d, n))
    np.fill_diagonal(Lambda, values)

    def theta(left, right):
        out = np.zeros((2 * size, k))
        out[:d] += U.T @ left
        out[:n] += V.T @ right
        out[size : size + d] += U.T @ left
        out[size : size + n] -= V.T @ right
        return out / math.sqrt(2)

    D = np.stack([A_i @ B @ w - b_i for A_i, b_i, w in zip(A, b, W, strict=True)]) - (W @ B.T - Phi.T)
    # The symmetric matrix [0, Phi; Phi', 0] in the coordinates: +- lambda, zero beyond.
    L = np.zeros(2 * size)
    L[: len(values)], L[size : size + len(values)] = 2 * values, -2 * values
    T = theta(B, W)
    return theta(new_B, new_W), T + eta / 2 * (L[:, None] * T - T @ T.T @ T) + theta(-eta * D.T @ W, -eta * D @ B)


def gap_of_sides(steps, truth, eta, frames=None):
    worst = 0.0
    for step in steps:
        A, b = step.batch.normal_equations()
        for t, Phi in enumerate(truth.dense()):
            left, right = both_sides(
                step.before.B[t],
                step.before.W[t],
                step.after.B[t],
                step.after.W[t],
                A[t],
                b[t],
                Phi.T,
                eta,
                None if frames is None else frames[t],
            )
            worst = max(worst, np.abs(left - right).max() / np.abs(right).max())
    return worst


TRUTHS = {"gaussian": {}, "rank 3": {"rank": 3}, "a spectrum of 2": {"spectrum": [2.0, 1.0]}}
SAMPLES = {
    "fixed rows": (lf.FixedSamples(20), "explicit"),
    "few fixed rows": (lf.FixedSamples(3), "explicit"),
    "fixed factors": (lf.FixedSamples(20), "compressed"),
    "factors in law": (lf.FixedSamples(20, in_law=True), "compressed"),
    "fresh rows": (lf.FreshSamples(12), "explicit"),
    "fresh factors": (lf.FreshSamples(12), "compressed"),
}


@each("samples", SAMPLES)
@each("truth", TRUTHS)
@each("shape", SHAPES)
def test_the_theta_recursion_is_an_identity(shape, truth, samples):
    problem, (data, engine) = made(shape, noise_std=0.4, **TRUTHS[truth]), SAMPLES[samples]
    for rank in (1, 2, 4):
        algorithm = lf.FLUTE(rank=rank, step_size=0.02, init=lf.SmallRandom(0.5))
        run = {"data": data, "rounds": 5, "trials": 2, "seed": rank, "engine": engine}
        known = problem.truth(rank, range(2))
        trace = theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, known)
        assert trace.identity.shape == (2, 6)
        assert np.isnan(trace.identity[:, 0]).all()
        assert trace.identity[:, 1:].max() < 1e-13
        assert gap_of_sides(rounds_of(algorithm, problem, **run), known, 0.02) < 1e-13
        judged = identity(trace)
        assert judged.verdict is Verdict.HOLDS
        assert judged.detail == "the worst of 2 trials, 10 values"


WRONG = {
    "factor 2": {"gradient_factor": 2},
    "factor 2, the ratio kept": {"gradient_factor": 2, "server_step_size": 0.04},
    "too much growth": {"gamma1": 0.26},
    "weights of the right ratio but another size": {"gamma1": 0.5, "gamma2": 0.25},
    "a server's own step": {"server_step_size": 0.021},
    "the server does nothing": {"server_step_size": 0.0},
}


@each("name", WRONG)
@pytest.mark.parametrize("shape", SHAPES)
def test_other_weights_and_steps_break_the_recursion_and_are_refused(shape, name):
    problem, rank = made(shape, noise_std=0.3), 2
    algorithm = lf.FLUTE(rank=rank, step_size=0.02, init=lf.SmallRandom(0.5), **WRONG[name])
    run = {"data": lf.FixedSamples(15), "rounds": 3, "seed": 1, "engine": "explicit"}
    truth = problem.truth(1, range(1))
    assert gap_of_sides(rounds_of(algorithm, problem, **run), truth, 0.02) > 1e-6
    coordinates = theory.ThetaCoordinates.of(truth)
    for step in rounds_of(algorithm, problem, **run):
        messages = step.batch.gradient(step.before.W @ step.before.B.mT)
        moved = coordinates.population_step(coordinates.theta(step.before), 0.02)
        expected = moved + coordinates.remainder(step.before, messages, 0.02)
        assert np.abs(coordinates.theta(step.after) - expected).max() > 1e-6
    if name != "factor 2, the ratio kept":
        with pytest.raises(ValueError, match=r"must have gamma1 = 1/4, gamma2 = 1/8, equal step sizes and"):
            theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, truth)


@pytest.mark.parametrize("covariance", [2.0, np.geomspace(0.5, 2.0, 5)], ids=["scaled", "diagonal"])
def test_the_trace_refuses_a_covariance(covariance):
    """The region and its gap are those of x with the identity for covariance; the recursion itself would not tell."""
    problem = lf.UnderParameterized(n_clients=6, dim=5, design=lf.Gaussian(covariance=covariance))
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
    steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(15), rounds=3, seed=1, engine="explicit")
    with pytest.raises(ValueError, match=r"truth has design = Gaussian\(cov.*isotropic x of variance 1"):
        theory.flute_trace(steps, algorithm, problem.truth(1, range(1)))


def test_factor_2_at_twice_the_servers_step_is_the_plain_round_at_twice_the_step():
    """The trace refuses it all the same, whatever it comes to: the parameters must be those of the theorems."""
    problem = made("n < d", noise_std=0.3)
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5), **WRONG["factor 2, the ratio kept"])
    plain = lf.FLUTE(rank=2, step_size=0.04, init=lf.SmallRandom(0.5))
    run = {"data": lf.FixedSamples(15), "rounds": 3, "seed": 1, "engine": "explicit"}
    one, other = (list(lf.iterate(which, problem, **run))[-1].after for which in (algorithm, plain))
    np.testing.assert_allclose(one.B, other.B, **EXACT)
    with pytest.raises(ValueError, match="equal step sizes and gradient_factor = 1 for the theorems"):
        theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, problem.truth(1, range(1)))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_recursion_needs_the_truths_own_frames_and_its_own_step(shape):
    problem = made(shape, noise_std=0.3)
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))

    def steps():
        return lf.iterate(algorithm, problem, data=lf.FixedSamples(15), rounds=3, seed=1, engine="explicit")

    truth, other = problem.truth(1, range(1)), problem.truth(2, range(1))
    frames = [np.linalg.svd(Phi.T) for Phi in other.dense()]
    assert gap_of_sides(itertools.islice(steps(), 1, None), truth, 0.02, frames) > 1e-4
    assert gap_of_sides(itertools.islice(steps(), 1, None), truth, 0.021) > 1e-4
    # A whole other truth is not noticed: Phi cancels between the step and the remainder.
    assert theory.flute_trace(steps(), algorithm, other).identity[:, 1:].max() < 1e-13
    own, theirs = theory.ThetaCoordinates.of(truth), theory.ThetaCoordinates.of(other)
    mixed = theory.ThetaCoordinates(theirs.U, theirs.V, own.spectrum, own.Phi)
    for step in itertools.islice(steps(), 1, None):
        messages = step.batch.gradient(step.before.W @ step.before.B.mT)
        for coordinates, fits in ((own, True), (mixed, False)):
            moved = coordinates.population_step(coordinates.theta(step.before), 0.02)
            expected = moved + coordinates.remainder(step.before, messages, 0.02)
            difference = np.abs(coordinates.theta(step.after) - expected).max()
            assert difference < 1e-13 if fits else difference > 1e-4


def test_a_wrong_message_is_judged_violated(monkeypatch):
    problem = made("n < d", noise_std=0.3)
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
    honest = theory.ThetaCoordinates.remainder
    monkeypatch.setattr(theory.ThetaCoordinates, "remainder", lambda self, s, g, eta: honest(self, s, 2 * g, eta))
    steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(15), rounds=3, seed=1, engine="explicit")
    trace = theory.flute_trace(steps, algorithm, problem.truth(1, range(1)))
    assert identity(trace).verdict is Verdict.VIOLATED


def test_an_identity_that_was_not_evaluated_is_vacuous():
    assert identity(hand_made()).verdict is Verdict.VACUOUS


# --- the coordinates and the region --------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_theta_keeps_the_norm_and_is_diagonal_at_the_balanced_truncation(shape, k):
    n, d = SHAPES[shape]
    truth = made(shape).truth(3, range(2))
    coordinates = theory.ThetaCoordinates.of(truth)
    B, W = normal(2, d, k, seed=1), normal(2, n, k, seed=2)
    theta = coordinates.theta(lf.State(B=B, W=W))
    assert theta.shape == (2, 2 * max(n, d), k)
    np.testing.assert_allclose((theta**2).sum((1, 2)), (B**2).sum((1, 2)) + (W**2).sum((1, 2)), **EXACT)
    np.testing.assert_allclose(theta.mT @ theta, B.mT @ B + W.mT @ W, **EXACT)

    B, W = balanced(truth.truncated(k))
    turn = np.linalg.qr(normal(k, k, seed=4))[0]
    theta = coordinates.theta(lf.State(B=B @ turn, W=W @ turn))
    values = np.linalg.svd(truth.dense(), compute_uv=False)
    for t in range(2):
        wanted = np.zeros((len(theta[t]),) * 2)
        wanted[range(k), range(k)] = 2 * values[t, :k]
        np.testing.assert_allclose(theta[t] @ theta[t].T, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(coordinates.population_step(theta, 0.1), theta, rtol=0, atol=1e-13)
    assert np.abs(coordinates.population_step(1.1 * theta, 0.1) - 1.1 * theta).max() > 1e-3
    found = coordinates.region(theta)
    np.testing.assert_allclose(found.largest, 2 * values[:, 0], **EXACT)
    np.testing.assert_allclose(found.smallest, 2 * values[:, k - 1], **EXACT)
    assert found.rest.max() < 1e-25
    assert coordinates.inside(found, k).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_quantities_of_the_region_are_singular_values(shape):
    coordinates = theory.ThetaCoordinates.of(made(shape).truth(3, range(3)))
    theta = normal(3, 2 * max(SHAPES[shape]), 2)
    found = coordinates.region(theta)
    for t, Theta in enumerate(theta):
        wanted = [np.linalg.svd(part)[1] for part in (Theta, Theta[2:], Theta[:2])]
        got = [found.largest[t], found.rest[t], found.smallest[t]]
        np.testing.assert_allclose(got, [wanted[0][0] ** 2, wanted[1][0] ** 2, wanted[2][1] ** 2], **EXACT)


# lambda = (3, 2, 0.5), k = 2: sigma_1^2 <= 12, sigma_1^2(res) <= 2.5, sigma_k^2 >= 0.75.
@pytest.mark.parametrize(
    ("first", "second", "rest", "wanted"),
    [
        (12 * (1 - 1e-9), 1.0, 1.0, True),
        (12 * (1 + 1e-9), 1.0, 1.0, False),
        (3.0, 1.0, 2.5 * (1 - 1e-9), True),
        (3.0, 1.0, 2.5 * (1 + 1e-9), False),
        (3.0, 0.75 * (1 + 1e-9), 1.0, True),
        (3.0, 0.75 * (1 - 1e-9), 1.0, False),
        (12.0, 0.75, 2.5, True),
        (0.0, 0.0, 0.0, False),
    ],
)
def test_the_region_is_bounded_by_three_inequalities(first, second, rest, wanted):
    coordinates = theory.ThetaCoordinates.of(made((5, 4), spectrum=[3.0, 2.0, 0.5]).truth(0, range(1)))
    for row in (2, 9):
        theta = np.zeros((1, 10, 2))
        theta[0, 0, 0], theta[0, 1, 1] = math.sqrt(first), math.sqrt(second)
        theta[0, row, 1] = math.sqrt(rest)
        assert coordinates.inside(coordinates.region(theta), 2).tolist() == [wanted]


def test_the_entry_round_is_equation_16():
    spectrum, eta = [3.0, 2.0, 0.5], 0.01
    coordinates = theory.ThetaCoordinates.of(made((5, 4), spectrum=spectrum).truth(0, range(1)))
    primed = [2 * value for value in spectrum]
    gap = primed[1] - primed[2]
    for smallest in (1e-6, 1e-3, 0.3, 0.7499, 0.7501, 2.0):
        theta = np.zeros((1, 10, 2))
        theta[0, 0, 0], theta[0, 1, 1], theta[0, 5, 0] = 1.7, math.sqrt(smallest), 0.3
        inner = math.log(gap / (4 * smallest)) / (2 * math.log(1 + eta / 2 * (primed[1] - gap / 2)))
        assert coordinates.entry_round(theta, eta)[0] == max(0, math.ceil(inner))
    assert coordinates.entry_round(theta, eta)[0] == 0
    assert coordinates.entry_round(np.zeros((1, 10, 2)), eta)[0] == np.inf


SPECTRUM = [1.0, 0.9, 0.1, 0.05]


@functools.cache
def long_run(shape, samples, rounds=1800):
    problem = made(shape, spectrum=SPECTRUM, noise_std=0.0 if samples is None else 1.0)
    eta = float(lf.theory.flute_step_limit(SPECTRUM, 2))
    algorithm = lf.FLUTE(rank=2, step_size=eta, init=lf.SmallRandom(1 / (10 * problem.dim)))
    data = lf.GivenSamples.population(problem, trials=10) if samples is None else lf.FixedSamples(samples)
    steps = lf.iterate(algorithm, problem, data=data, rounds=rounds, trials=10, engine="auto")
    return theory.flute_trace(steps, algorithm, problem.truth(0, range(10)), every=50, identity=False)


def test_at_population_the_region_is_entered_in_time_and_not_left():
    trace = long_run((4, 5), None)
    assert trace.rounds.tolist() == [0, *range(50, 1801, 50)]
    assert (trace.entry > 0).all()
    assert (trace.entry < 1800).all()
    assert not trace.inside[:, 0].any()
    assert trace.alive.all()
    for judge in (theory.judge_entry, theory.judge_staying):
        judged = judge(trace, allowed=0.31, **FAILS)
        assert (judged.verdict, judged.detail) == (Verdict.HOLDS, "0 of 10")
        assert judge(trace, allowed=0.1, **FAILS).verdict is Verdict.INCONCLUSIVE  # ten trials cannot tell
    assert np.isnan(trace.identity).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_trace_records_the_states_it_sees(shape):
    problem = made(shape, noise_std=0.3)
    algorithm = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.3))
    run = {"data": lf.FixedSamples(30), "rounds": 7, "trials": 2, "seed": 4, "engine": "compressed"}
    truth = problem.truth(4, range(2))
    coordinates = theory.ThetaCoordinates.of(truth)
    trace = theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, truth, every=3)
    steps = list(lf.iterate(algorithm, problem, **run))
    states = [step.after for step in steps]
    assert trace.rounds.tolist() == [0, 3, 6, 7]
    cut = truth.truncated(2).dense()
    for column, number in enumerate(trace.rounds):
        theta = coordinates.theta(states[number])
        region = coordinates.region(theta)
        np.testing.assert_array_equal(trace.region[:, column], np.stack(region, axis=-1))
        np.testing.assert_array_equal(trace.inside[:, column], coordinates.inside(region, 2))
        off = np.linalg.norm(states[number].predictors() - cut, axis=-1).mean(axis=-1)
        np.testing.assert_allclose(trace.error[:, column], off, rtol=1e-10)
    np.testing.assert_array_equal(trace.entry, coordinates.entry_round(coordinates.theta(states[0]), 0.02))
    assert (trace.entry != coordinates.entry_round(coordinates.theta(states[1]), 0.02)).any()
    np.testing.assert_array_equal(np.isnan(trace.identity), [[True, False, False, True]] * 2)
    assert (trace.rank, trace.n_clients, trace.step_size) == (2, problem.n_clients, 0.02)
    with pytest.raises(ValueError, match=r"steps must begin with the initial state"):
        theory.flute_trace(iter([]), algorithm, truth)


def test_a_trace_needs_the_initial_state_all_clients_and_its_own_trials():
    problem, algorithm = made("n < d", noise_std=0.3), lf.FLUTE(rank=2, step_size=0.02)
    run = {"data": lf.FixedSamples(30), "rounds": 2, "trials": 2}
    truth = problem.truth(0, range(2))
    with pytest.raises(ValueError, match="steps must begin with the initial state"):
        theory.flute_trace(rounds_of(algorithm, problem, **run), algorithm, truth)
    with pytest.raises(ValueError, match=r"steps have \(2, 3\) trials and participants but must have \(2, 5\)"):
        theory.flute_trace(lf.iterate(algorithm, problem, participation=3, **run), algorithm, truth, identity=False)
    with pytest.raises(ValueError, match=r"steps have \(2, 5\) .* but must have \(1, 5\)"):
        theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, problem.truth(0, range(1)))


def test_a_diverged_trial_has_failed():
    problem = made((4, 5), spectrum=[1.0, 0.5])
    algorithm = lf.FLUTE(rank=1, step_size=9.0)
    steps = lf.iterate(algorithm, problem, data=lf.FixedSamples(20), rounds=60, trials=3)
    trace = theory.flute_trace(steps, algorithm, problem.truth(0, range(3)))
    assert not trace.alive[:, -1].any()
    assert np.isnan(trace.error[~trace.alive]).all()
    assert np.isfinite(trace.error[trace.alive]).all()
    assert (trace.identity[:, 1:][trace.alive[:, 1:]] < 1e-10).all()
    assert np.isinf(theory.bound_ratios(trace)).all()
    judged = theory.judge_rate(trace, constant=1e9, allowed=0.1, **FAILS)
    assert judged.verdict is Verdict.HYPOTHESES_FAIL
    assert judged.detail == "3 of 3"
    assert theory.judge_entry(trace, allowed=0.1, **FAILS).verdict is Verdict.HYPOTHESES_FAIL


def test_few_samples_violate_the_entry_and_the_staying():
    trace = long_run((4, 5), 7)
    entry = theory.judge_entry(trace, allowed=0.1, **FAILS)
    staying = theory.judge_staying(trace, allowed=0.0, **FAILS)
    assert entry.verdict is staying.verdict is Verdict.VIOLATED
    assert entry.hypotheses[0].holds
    assert staying.estimate > 0.1
    for judge, allowed in ((theory.judge_entry, 0.1), (theory.judge_staying, 0.0)):  # 7 samples: nothing is claimed
        found = judge(trace, allowed=allowed, theorem=False, **FAILS)
        assert found.verdict is Verdict.NOT_SUPPORTED


def test_an_oversized_step_fails_the_hypotheses():
    problem = made((4, 5), spectrum=SPECTRUM)
    algorithm = lf.FLUTE(rank=2, step_size=0.01)
    data = lf.GivenSamples.population(problem, trials=2)
    steps = lf.iterate(algorithm, problem, data=data, rounds=3, trials=2)
    trace = theory.flute_trace(steps, algorithm, problem.truth(0, range(2)))
    limit = float(lf.theory.flute_step_limit(SPECTRUM, 2))
    judged = [judge(trace, allowed=0.1, **FAILS) for judge in (theory.judge_entry, theory.judge_staying)]
    for one in [*judged, theory.judge_rate(trace, constant=1.0, allowed=0.1, **FAILS)]:
        assert one.verdict is Verdict.HYPOTHESES_FAIL
        (failed,) = one.failed_hypotheses
        assert (failed.left, failed.right) == (0.01, pytest.approx(limit))
        assert str(failed) == f"eta <= Delta^2 / (288 lambda_1^3): 0.01 > {limit:.3g}"


def test_the_trial_nearest_to_failing_speaks_for_the_step():
    trace = hand_made(spectrum=np.array([[1.0, 0.9, 0.1], [1.0, 0.6, 0.1]]), step_size=0.004, rank=2)
    assert theory.step_hypothesis(trace).right == pytest.approx(1.0**2 / 288)
    assert not theory.step_hypothesis(trace).holds
    assert theory.step_hypothesis(trace, constant="printed").right == pytest.approx(1 / 228)
    assert theory.step_hypothesis(trace, constant="printed").holds
    assert theory.init_hypothesis(0.01, 10).holds
    assert not theory.init_hypothesis(0.0101, 10).holds


# --- steps, rates and bounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_gap_and_the_step_limits(k):
    spectrum = np.array([4.0, 2.5, 1.0])
    primed = 2 * np.append(spectrum, 0.0)
    gap = primed[k - 1] - primed[k]
    assert lf.theory.flute_gap(spectrum, k) == gap
    limit = lf.theory.flute_step_limit(spectrum, k)
    assert limit == pytest.approx(gap**2 / (36 * primed[0] ** 3), rel=1e-14)
    assert lf.theory.flute_step_limit(spectrum, k, constant="printed") == pytest.approx(limit * 288 / 228, rel=1e-14)
    assert lf.theory.flute_rate(spectrum, k, 0.01) == pytest.approx(1 - 0.01 * gap / 16, rel=1e-15)
    stacked = np.stack([spectrum, 2 * spectrum])
    np.testing.assert_allclose(lf.theory.flute_step_limit(stacked, k), [limit, limit / 2], rtol=1e-14)
    wanted = [[s[0] ** 2 * k**0.5 / (0.01 * g**2 * 7**0.5) * (1 - 0.01 * g / 16) ** t for t in (0, 3, 50)]
              for s, g in ((spectrum, gap), (2 * spectrum, 2 * gap))]  # fmt: skip
    np.testing.assert_allclose(lf.theory.flute_bound(stacked, k, 0.01, 7, [0, 3, 50]), wanted, rtol=1e-13)


def test_without_a_gap_the_bound_is_infinite_and_a_rate_of_0_covers_all_rounds():
    np.testing.assert_array_equal(lf.theory.flute_bound([1.0, 1.0], 1, 0.01, 7, [0, 5]), [np.inf, np.inf])
    assert lf.theory.flute_rate([2.0, 0.0], 1, 4.0) == 0.0
    assert theory.flute_covered_rounds([2.0, 0.0], 1, 4.0, 5000) == math.inf
    assert lf.theory.flute_gap([2.0, 2.0, 0.0], 2) == 4.0
    for wrong in ([1.0, -1.0], [1.0, 0.5, 0.6]):
        with pytest.raises(ValueError, match="descending order, at least 0"):
            lf.theory.flute_gap(wrong, 1)


def test_the_average_of_clients_of_different_lengths_by_hand():
    values, U = [3.0, 2.0, 2.0, 0.5], np.linalg.qr(normal(6, 4))[0]
    for power in (0.3, 1.0, 1.7):
        mean = sum(value / value**power * u for value, u in zip(values, U.T, strict=True)) / 4
        wanted = math.sqrt(1 - (mean @ U[:, 0] / np.linalg.norm(mean)) ** 2)
        assert lf.theory.average_direction_distance(values, power) == pytest.approx(wanted, rel=1e-12)
    assert lf.theory.average_direction_distance([2.0], 0.3) == 0.0
    for wrong in ([1.0, 0.0], [1.0, -1.0], [1.0, 2.0]):
        with pytest.raises(ValueError, match="positive and in descending order"):
            lf.theory.average_direction_distance(wrong, 0.3)


def test_bad_arguments_of_the_rates_are_named():
    with pytest.raises(ValueError, match=r"constant = 'main' is unknown; allowed: 'appendix', 'printed'"):
        lf.theory.flute_step_limit([2.0, 1.0], 1, constant="main")
    with pytest.raises(ValueError, match=r"rank = 3 must be at most the number of singular values, 2"):
        lf.theory.flute_gap([2.0, 1.0], 3)
    for function in (lf.theory.flute_rate, lf.theory.flute_local_rate):
        with pytest.raises(ValueError, match=r"step_size"):
            function([2.0, 1.0], 1, 0.0)


def round_derivative(problem, B, W, eta):
    """Return the derivative of one round at population by central differences, and a basis of the gauge."""
    (d, k), n, h = B.shape, len(W), 1e-5
    size = (n + d) * k
    points = np.concatenate([h * np.eye(size), -h * np.eye(size)]) + np.concatenate([B.ravel(), W.ravel()])
    init = points[:, : d * k].reshape(-1, d, k), points[:, d * k :].reshape(-1, n, k)
    given = lf.GivenSamples.population(problem, trials=1)
    data = lf.GivenSamples(given.X[0], given.y[0])
    final = lf.simulate(lf.FLUTE(rank=k, step_size=eta, init=init), data=data, rounds=1, trials=2 * size).final
    flat = np.concatenate([final.B.reshape(2 * size, -1), final.W.reshape(2 * size, -1)], axis=1)
    gauge = []
    for p in range(k):
        for q in range(p):
            turn = np.zeros((k, k))
            turn[p, q], turn[q, p] = 1, -1
            gauge.append(np.concatenate([(B @ turn).ravel(), (W @ turn).ravel()]))
    J = (flat[:size] - flat[size:]).T / (2 * h)
    return J, np.linalg.qr(np.array(gauge).T)[0] if gauge else np.zeros((size, 0))


def measured_rate(problem, k, eta):
    B, W = (part[0] for part in balanced(problem.truth(0, range(1)).truncated(k)))
    J, gauge = round_derivative(problem, B, W, eta)
    np.testing.assert_allclose(J, J.T, rtol=0, atol=1e-8)
    np.testing.assert_allclose(J @ gauge, gauge, rtol=0, atol=1e-8)
    project = np.eye(len(J)) - gauge @ gauge.T
    return np.abs(np.linalg.eigvalsh(project @ J @ project)).max()


@each("eta", [0.02, 0.2, 0.3, 0.34])
@each("k", [1, 2, 3])
@each("shape", [(4, 5), (4, 4), (5, 4)])
def test_the_local_rate_is_that_of_the_derivative(shape, k, eta):
    problem = made(shape, spectrum=[3.0, 2.0, 0.8])
    rate = lf.theory.flute_local_rate([3.0, 2.0, 0.8], k, eta)
    assert measured_rate(problem, k, eta) == pytest.approx(rate, abs=1e-7)
    assert (rate < 1) == (eta < 1 / 3)
    if (k, eta) == (1, 0.3):  # here the largest direction rules
        assert rate == pytest.approx(0.8)


def test_without_a_direction_beyond_the_local_rate_is_slower_than_the_truth():
    """At k = n = d nothing can leak into a (k+1)-th direction: the slowest factor is 1 - 2 eta lambda_k."""
    problem = made((2, 2), spectrum=[3.0, 2.0])
    assert measured_rate(problem, 2, 0.05) == pytest.approx(1 - 2 * 0.05 * 2, abs=1e-7)
    assert lf.theory.flute_local_rate([3.0, 2.0], 2, 0.05) == pytest.approx(1 - 0.05 * 2)


@pytest.mark.long
def test_runs_fall_at_the_local_rate_and_no_longer_beyond_the_edge():
    problem = made((6, 5), spectrum=[3.0, 2.0, 0.8])
    B, W = balanced(problem.truth(0, range(1)).truncated(2))
    data = lf.GivenSamples.population(problem)
    start = B[0] + 1e-3 * normal(5, 2, seed=1), W[0] + 1e-3 * normal(6, 2, seed=2)

    def errors(eta, rounds):
        algorithm = lf.FLUTE(rank=2, step_size=eta, init=start)
        return lf.simulate(algorithm, problem, data=data, rounds=rounds).metrics["mean_truncation_error"][0]

    for eta in (0.05, 0.32):
        found = errors(eta, 120)
        late = (found[120] / found[100]) ** (1 / 20)
        assert late == pytest.approx(lf.theory.flute_local_rate([3.0, 2.0, 0.8], 2, eta), abs=2e-3)
    assert errors(0.98 / 3, 400)[-1] < 1e-6
    assert not errors(1.02 / 3, 400)[-1] < 0.05


def hand_made(error=None, **changes):
    trials = 2 if error is None else len(error)
    fields = {
        "rank": 1,
        "n_clients": 4,
        "step_size": 0.001,
        "spectrum": np.array([[1.0, 0.2, 0.0]] * trials),
        "rounds": np.array([0, 10, 20, 30]),
        "error": np.full((2, 4), 0.1) if error is None else np.array(error),
        "inside": np.ones((trials, 4), dtype=bool),
        "region": np.zeros((trials, 4, 3)),
        "entry": np.array([10.0, 0.0] * (trials // 2)),
        "identity": np.full((trials, 4), np.nan),
        "growth": np.full((trials, 4), np.nan),
        "remainder": np.zeros((trials, 4)),
        "alive": np.ones((trials, 4), dtype=bool),
    }
    return theory.FluteTrace(**{"rms": fields["error"]} | fields | changes)


def test_the_least_constant_of_a_hand_made_trace():
    trace = hand_made([[9.0, 8.0, 3.0, 5.0], [9.0, 8.0, 3.0, np.nan]])
    bound = [1.0 / (0.001 * 1.6**2) * 0.5 * (1 - 0.0001) ** t for t in (0, 10, 20, 30)]
    np.testing.assert_allclose(theory.bound_ratios(trace), [5 / bound[3], np.inf], rtol=1e-12)
    np.testing.assert_allclose(theory.bound_ratios(trace, until=20), [3 / bound[2], 8 / bound[1]], rtol=1e-12)
    np.testing.assert_array_equal(theory.bound_ratios(trace, until=10), [0.0, theory.bound_ratios(trace, until=10)[1]])


def test_every_verdict_of_the_rate():
    bound = float(lf.theory.flute_bound([1.0, 0.2], 1, 0.001, 4, [30])[0])
    error = np.array([[9.0, 8.0, 3.0, 5.0]] * 2)

    def verdict(constant, allowed=0.1, **changes):
        return theory.judge_rate(hand_made(**{"error": error} | changes), constant=constant, allowed=allowed, **FAILS)

    assert verdict(8.5 / bound, allowed=0.85).verdict is Verdict.HOLDS
    assert verdict(8.5 / bound).verdict is Verdict.INCONCLUSIVE
    assert verdict(100.0).verdict is Verdict.VACUOUS
    assert verdict(8.5 / bound, step_size=0.1).verdict is Verdict.HYPOTHESES_FAIL
    assert verdict(4.9 / bound).verdict is Verdict.VIOLATED
    # Both verdicts are of the rounds after T_R.
    late = np.array([30.0, 30.0])
    assert verdict(4.9 / bound, entry=late).verdict is Verdict.VACUOUS
    assert verdict(4.9 / bound, entry=np.array([30.0, 20.0])).detail == "1 of 1, of 2 trials"
    assert verdict(4.9 / bound, allowed=0.5).verdict is Verdict.INCONCLUSIVE


def test_the_entry_and_the_staying_of_hand_made_traces():
    def inside(*rows):
        return np.array(rows, dtype=bool)

    def entry(rows, promised):
        trace = hand_made(inside=rows, entry=np.array(promised))
        return theory.judge_entry(trace, allowed=0.1, **FAILS).detail

    assert entry(inside([0, 1, 1, 1], [0, 0, 1, 1]), [10.0, 20.0]) == "0 of 2"
    assert entry(inside([0, 0, 1, 1], [0, 0, 0, 1]), [10.0, 20.0]) == "2 of 2"
    assert entry(inside([0, 1, 1, 1], [0, 0, 0, 0]), [3.0, 20.0]) == "1 of 2"
    assert entry(inside([0, 1, 1, 1], [0, 0, 0, 0]), [10.0, 99.0]) == "0 of 1, of 2 trials"  # it ends before T_R

    def staying(*rows):
        return theory.judge_staying(hand_made(inside=inside(*rows)), allowed=0.1, **FAILS).detail

    assert staying([0, 1, 1, 1], [0, 0, 0, 0]) == "0 of 1, of 2 trials"
    assert staying([0, 1, 0, 1], [1, 1, 1, 0]) == "2 of 2"
    outside = hand_made(inside=inside([0, 0, 0, 0], [0, 0, 0, 0]))
    never = theory.judge_staying(outside, allowed=0.1, **FAILS)
    assert never.verdict is Verdict.VACUOUS
    assert "the premise occurred in none of 2 trials" in never.remarks


def test_the_proofs_constant_is_tight_or_not():
    bound = float(lf.theory.flute_bound([1.0, 0.2], 1, 0.001, 4, [30])[0])

    def judged(error, trials=100, **changes):
        many = {"spectrum": np.array([[1.0, 0.2, 0.0]] * trials), "entry": np.tile([10.0, 0.0], trials // 2)}
        trace = hand_made([[9.0, 8.0, 3.0, error]] * trials, **many, **changes)
        least = theory.least_constant(trace, allowed=flute_theorem55.ALLOWED)
        return lf.statistics.judge(least, hypotheses=(theory.step_hypothesis(trace),), **said("The constant of"))

    assert judged(170.0 * bound).verdict is Verdict.SUPPORTED
    few = judged(170.0 * bound, trials=70)
    assert (few.verdict, few.high) == (Verdict.INCONCLUSIVE, np.inf)  # any constant may fail in 5 % of the trials
    assert judged(170.0 * bound).estimate == pytest.approx(170.0)
    assert judged(150.0 * bound).verdict is Verdict.NOT_SUPPORTED
    assert judged(1700.0 * bound).verdict is Verdict.NOT_SUPPORTED
    assert (few.claimed_low, few.claimed_high) == (160.0, 1600.0)
    assert judged(np.nan).verdict is Verdict.NOT_SUPPORTED
    assert judged(1.0, step_size=0.1).verdict is Verdict.HYPOTHESES_FAIL
    assert "in 95 % of trials" in judged(1.0).statistic


def test_a_bound_that_holds_no_longer_beyond_the_covered_round():
    for last, verdict, detail in ((2.0, Verdict.INCONCLUSIVE, "0 of 2"), (9.5, Verdict.NOT_SUPPORTED, "2 of 2")):
        trace = hand_made([[9.0, 8.0, 3.0, last]] * 2, entry=np.zeros(2))
        found = theory.judge_beyond(trace, until=20, allowed=0.1, note="m covers 20", theorem=False, **FAILS)
        assert (found.verdict, found.detail) == (verdict, detail)
        least = theory.least_constant(trace, allowed=0.1, until=20)[0]
        assert found.note == f"m covers 20; its smallest constant up to there is {least:.2g}"


def falling(rate, last=24_000, **changes):
    """Return a trace of 20 trials whose error falls by a factor a round, to a floor of 1e-9."""
    rounds = np.arange(0, last + 1, 600)
    error = np.maximum(np.tile(rate ** rounds.astype(float), (20, 1)), 1e-9)
    shape = {"spectrum": np.tile([1.0, 0.2, 0.0], (20, 1)), "rounds": rounds, "error": error, "entry": np.zeros(20)}
    return hand_made(inside=np.ones(error.shape, dtype=bool), **shape | changes)


def test_the_local_rate_is_judged_where_runs_are_near():
    local = float(lf.theory.flute_local_rate([1.0, 0.2, 0.0], 1, 0.001))
    found = theory.judge_local_rate(falling(local), **LOCAL_RATE)
    assert (found.verdict, found.detail[:9]) == (Verdict.HOLDS, "8.0 times")
    assert found.estimate == pytest.approx(1.0)
    assert theory.judge_local_rate(falling(local**1.05), **LOCAL_RATE).verdict is Verdict.VIOLATED
    assert theory.judge_local_rate(falling(local**0.95), **LOCAL_RATE).verdict is Verdict.VIOLATED
    far = falling(local, last=6000)
    assert not far.near.any()
    assert theory.judge_local_rate(far, **LOCAL_RATE).verdict is Verdict.VACUOUS


def test_the_local_rate_is_judged_to_one_percent():
    local = float(lf.theory.flute_local_rate([1.0, 0.2, 0.0], 1, 0.001))
    for power, verdict in ((0.992, Verdict.HOLDS), (1.008, Verdict.HOLDS), (0.988, Verdict.VIOLATED)):
        assert theory.judge_local_rate(falling(local**power), **LOCAL_RATE).verdict is verdict
    assert theory.judge_local_rate(falling(local**1.012), **LOCAL_RATE).verdict is Verdict.VIOLATED


def test_three_rounds_between_a_thousandth_and_a_hundred_millionth_are_near():
    for late, near in (
        ([9e-4, 1e-5, 1.1e-8], [False, True, True, True]),
        ([1.1e-3, 1e-5, 1.1e-8], [False] * 4),
        ([9e-4, 1e-5, 9e-9], [False] * 4),
    ):
        trace = hand_made(2.0 * np.array([[1.0, *late]] * 2))
        assert trace.near.tolist() == [near] * 2
    few = hand_made(np.array([[1.0, 9e-4, 1e-5, 1.1e-8], [1.0, 9e-4, 1e-5, 0.0]]))
    assert not few.near.any()


def test_floors_are_judged_to_five_percent():
    floor = np.linspace(1.0, 2.0, 20)
    wanted = ((0.951, Verdict.HOLDS), (1.049, Verdict.HOLDS), (0.949, Verdict.VIOLATED), (1.051, Verdict.VIOLATED))
    for share, verdict in wanted:
        error = np.outer(share * floor, [9.0, 3.0, 1.0, 1.0])
        assert theory.judge_floor(error, floor, **FLOOR).verdict is verdict
    for fresh, falls in ((False, (0.019, 0.021)), (True, (0.095, 0.105))):
        found = [
            theory.judge_floor(np.outer(floor, [9.0] * 6 + [1.0, 1.0 - fall]), floor, fresh=fresh, **FLOOR).vacuous
            for fall in falls
        ]
        assert found[0] == ""
        assert found[1].startswith("the error fell by")


def test_rounding_errors_are_within_every_bound():
    error = np.array([[9.0, 1.0, 0.9e-12, 0.9e-12], [9.0, 1.0, 1.1e-12, 1.1e-12]])
    found = theory.bound_ratios(hand_made(error, entry=np.array([10.0, 10.0])))
    assert found[0] == 0.0
    assert found[1] > 0.0


def test_floors_are_judged_by_their_prediction():
    floor = np.linspace(1.0, 2.0, 20)
    wanted = ((0.98, Verdict.HOLDS), (0.7, Verdict.VIOLATED), (1.2, Verdict.VIOLATED), (np.nan, Verdict.VIOLATED))
    for share, verdict in wanted:
        error = np.outer(share * floor, [9.0, 3.0, 1.0, 1.0])
        assert theory.judge_floor(error, floor, **FLOOR).verdict is verdict


def test_floors_are_compared_in_root_mean_square():
    """Over trials, and on fresh samples over the last quarter of the rounds: no mean of unsquared errors."""
    rng = np.random.default_rng(0)
    floor, spread = np.linspace(1.0, 2.0, 400), rng.exponential(size=400)
    found = theory.judge_floor(np.outer(np.sqrt(spread) * floor, [9.0, 1.0, 1.0, 1.0]), floor, **FLOOR)
    assert found.estimate == pytest.approx(math.sqrt(spread.mean()), rel=1e-12)
    reach = 1.966 * spread.std(ddof=1) / 20  # Student's quantile with 399 degrees of freedom
    assert [found.low**2, found.high**2] == pytest.approx([spread.mean() - reach, spread.mean() + reach], rel=1e-4)
    rounds = [9.0] * 12 + [1.0, 3.0, 1.0, 3.0]
    assert theory.judge_floor(np.outer(floor, rounds), floor, fresh=True, **FLOOR).estimate == pytest.approx(
        math.sqrt(5)
    )
    lost = np.outer(floor, [9.0, 1.0, 1.0, 1.0])
    lost[7, 2:] = np.nan
    found = theory.judge_floor(lost, floor, **FLOOR)
    assert (found.estimate, found.low, found.verdict) == (math.inf, math.inf, Verdict.VIOLATED)


def test_the_root_mean_square_of_a_trace_is_over_clients():
    problem, algorithm = made((8, 5), noise_std=0.3), lf.FLUTE(rank=2, step_size=0.02)
    run = {"data": lf.FixedSamples(15), "rounds": 4, "trials": 2, "seed": 1, "engine": "explicit"}
    truth = problem.truth(1, range(2))
    trace = theory.flute_trace(lf.iterate(algorithm, problem, **run), algorithm, truth)
    for column, step in enumerate(lf.iterate(algorithm, problem, **run)):
        off = step.after.predictors() - truth.truncated(2).dense()
        np.testing.assert_allclose(trace.rms[:, column], np.linalg.norm(off, axis=(1, 2)) / math.sqrt(8), rtol=1e-10)


def test_a_floor_that_runs_have_not_reached_is_not_judged():
    floor = np.linspace(1.0, 2.0, 20)
    for last, verdict in ((1.9, Verdict.VACUOUS), (1.97, Verdict.VIOLATED)):
        found = theory.judge_floor(np.outer(floor, [9.0, 4.0, 3.0, 2.0, 2.0, 2.0, 2.0, last]), floor, **FLOOR)
        assert found.verdict is verdict
        assert found.vacuous == ("" if last > 1.95 else "the error fell by 5% over the last quarter of the rounds")


def test_fresh_and_reused_samples_are_compared_after_as_many_rounds():
    reused = hand_made([[9.0, 5.0, 3.0, 1.0]] * 6)
    short = {"rounds": np.array([0, 10, 20]), "inside": np.ones((6, 3), dtype=bool)}
    found = theory.judge_fresh(hand_made([[9.0, 5.0, 6.0]] * 6, **short), reused, **REUSED)
    assert (found.verdict, found.estimate) == (Verdict.SUPPORTED, 2.0)
    assert found.detail == f"averaging over 4 / (eta Delta) rounds would give {math.sqrt(0.001 * 1.6 / 4):.2g}"
    assert (
        theory.judge_fresh(hand_made([[9.0, 5.0, 1.5]] * 6, **short), reused, **REUSED).verdict is Verdict.NOT_SUPPORTED
    )


def test_the_covered_rounds_turn_the_condition_on_m_around():
    covered = theory.flute_covered_rounds([1.0, 0.2], 1, 0.01, 5000)
    assert (1 - 0.01 * 1.6 / 16) ** (-2 * covered) == pytest.approx(5000)
    assert theory.flute_covered_rounds([1.0, 0.2], 1, 0.01, 1) == 0
    assert theory.flute_covered_rounds([1.0, 1.0], 1, 0.01, 5000) == math.inf
    assert theory.flute_covered_rounds([1.0, 0.2], 1, 20.0, 5000) == math.inf
    with pytest.raises(ValueError, match="n_samples"):
        theory.flute_covered_rounds([1.0, 0.2], 1, 0.01, 0)


# --- what rank k can reach -----------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_error_of_the_truncation_is_the_dense_one(shape, k):
    for more in TRUTHS.values():
        truth = made(shape, **more).truth(1, range(2))
        found = lf.theory.truncation_error(truth, k)
        for value, Phi in zip(found, truth.dense(), strict=True):
            U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
            s[k:] = 0
            assert value == pytest.approx(np.linalg.norm((U * s) @ Vt - Phi, axis=1).mean(), abs=1e-13)


POINTS = {
    "defaults": (0.25, 0.125, 1.0, 1),
    "shrunk": (0.1, 0.25, 1.0, 1),
    "grown": (0.4, 0.1, 1.0, 1),
    "no shrinking": (0.2, 0.0, 1.0, 1),
    "a server's step": (0.3, 0.25, 0.5, 1),
    "factor 2": (0.4, 0.1, 1.0, 2),
    "factor 2, a server's step": (0.6, 0.02, 1.4, 2),
    "no server": (0.4, 0.1, 0.0, 1),
}


@each("shape", SHAPES)
@each("name", POINTS)
def test_a_step_from_the_population_minimiser_moves_nothing(name, shape):
    gamma1, gamma2, share, factor = POINTS[name]
    problem = made(shape)
    truth, data = problem.truth(0, range(2)), lf.GivenSamples.population(problem, trials=2)
    base = lf.FLUTE(
        rank=2,
        step_size=0.1,
        server_step_size=0.1 * share,
        gamma1=gamma1,
        gamma2=gamma2,
        gradient_factor=factor,
    )
    assert base.step_ratio == pytest.approx(share / factor)
    least = lf.theory.flute_population_minimizer(truth, 2, gamma1=gamma1, gamma2=gamma2, step_ratio=base.step_ratio)

    def moved(cut):
        B, W = balanced(cut)
        algorithm = lf.FLUTE(**{name: getattr(base, name) for name in
                                ("rank", "step_size", "server_step_size", "gamma1", "gamma2", "gradient_factor")},
                             init=(B, W))  # fmt: skip
        final = lf.simulate(algorithm, problem, data=data, rounds=1, trials=2).final
        return max(np.abs(final.B - B).max(), np.abs(final.W - W).max())

    assert moved(least) < 1e-12
    if share and gamma1 != 2 * gamma2:
        assert moved(truth.truncated(2)) > 1e-2
        other = lf.theory.flute_population_minimizer(
            truth, 2, gamma1=gamma1, gamma2=gamma2, step_ratio=0.5 * base.step_ratio
        )
        assert moved(other) > 1e-3
    else:
        np.testing.assert_allclose(least.dense(), truth.truncated(2).dense(), **EXACT)


def test_there_is_no_minimiser_beyond_the_edge():
    truth = made("n < d").truth(0, range(1))
    for gamma1, gamma2, ratio in ((0.75, 0.125, 1.0), (1.0, 0.0, 0.5), (1.5, 0.5, 1.0)):
        with pytest.raises(ValueError, match=r"step_ratio \(2 gamma1 - 4 gamma2\) must be below 1"):
            lf.theory.flute_population_minimizer(truth, 1, gamma1=gamma1, gamma2=gamma2, step_ratio=ratio)
        lf.theory.flute_population_minimizer(truth, 1, gamma1=gamma1, gamma2=gamma2, step_ratio=0.99 * ratio)


def objective(B, W, X, y, ratio, gamma1, gamma2):
    """Return what FLUTE descends on, its data gradient's factor taken into the ratio of the steps."""
    loss = sum(np.sum((X_i @ B @ w - y_i) ** 2) / (2 * len(y_i)) for X_i, y_i, w in zip(X, y, W, strict=True))
    product, squares = np.sum((B @ W.T) ** 2), np.sum((B.T @ B) ** 2) + np.sum((W.T @ W) ** 2)
    return loss - ratio * (gamma1 * product - gamma2 * squares)


COUNTS = [12, 30, 9, 14]


@functools.cache
def world(d=4):
    X = [normal(m, d, seed=20 + i) for i, m in enumerate(COUNTS)]
    y = [normal(m, seed=40 + i) for i, m in enumerate(COUNTS)]
    return X, y, lf.GivenSamples(X, y).normal_equations()[0]


def ray(A):
    """Return the worst client and its least eigenvector."""
    worst = int(np.argmin([np.linalg.eigvalsh(A_i)[0] for A_i in A]))
    return worst, np.linalg.eigh(A[worst])[1][:, 0]


def test_the_threshold_is_half_the_least_eigenvalue():
    _, _, A = world()
    least = min(np.linalg.svd(A_i, compute_uv=False)[-1] for A_i in A)
    assert lf.theory.flute_divergence_threshold(A) == pytest.approx(least / 2, rel=1e-12)
    assert lf.theory.flute_divergence_threshold(A, step_ratio=0.4) == pytest.approx(least / 0.8, rel=1e-12)
    np.testing.assert_allclose(lf.theory.flute_divergence_threshold(np.stack([A, 3 * A])), [least / 2, 1.5 * least])
    assert lf.theory.flute_divergence_threshold(np.eye(3)[None]) == 0.5
    few = lf.GivenSamples([*world()[0][:3], normal(3, 4)], [*world()[1][:3], normal(3)])
    assert 0 <= lf.theory.flute_divergence_threshold(few.normal_equations()[0]) < 1e-15
    with pytest.raises(ValueError, match=r"A has shape"):
        lf.theory.flute_divergence_threshold(np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match=r"step_ratio"):
        lf.theory.flute_divergence_threshold(A, step_ratio=0.0)


@pytest.mark.parametrize("gamma2", [0.0, 0.1])
@pytest.mark.parametrize("ratio", [1.0, 0.4])
def test_the_objective_along_the_worst_ray_turns_at_the_threshold(ratio, gamma2):
    X, y, A = world()
    worst, v = ray(A)
    edge = float(lf.theory.flute_divergence_threshold(A, step_ratio=ratio))

    def along(scale, excess, client=worst):
        B, W = np.zeros((4, 2)), np.zeros((4, 2))
        B[:, 0], W[client, 0] = math.sqrt(scale) * v, math.sqrt(scale)
        return objective(B, W, X, y, ratio, 2 * gamma2 + excess, gamma2)

    below, above = ([along(10.0**p, share * edge) for p in range(3, 8)] for share in (0.99, 1.01))
    assert np.all(np.diff(below) > 0)
    assert np.all(np.diff(above) < 0)
    assert below[-1] > 1e9
    assert above[-1] < -1e9
    # Elsewhere nothing is lower than the ray below the threshold, far out.
    rng = np.random.default_rng(0)
    for _ in range(200):
        B, W = rng.standard_normal((4, 2)), rng.standard_normal((4, 2)) * 10.0 ** rng.uniform(-3, 0, (4, 1))
        product = np.linalg.norm(B @ W.T)
        B, W = (part * 1e3 / math.sqrt(product) for part in (B, W))
        assert objective(B, W, X, y, ratio, 2 * gamma2 + 0.99 * edge, gamma2) > 0


def test_the_worst_ray_is_that_of_the_worst_client():
    A = world()[2]
    worst, v = ray(A)
    B, W = lf.theory.flute_worst_ray(A, 2, square=9.0)
    assert (B.shape, W.shape) == ((4, 2), (len(COUNTS), 2))
    np.testing.assert_allclose(np.abs(B[:, 0]), 3.0 * np.abs(v))
    assert W[worst, 0] == 3.0
    assert np.count_nonzero(W) == 1
    assert not B[:, 1].any()
    stacked = lf.theory.flute_worst_ray(np.stack([A, A]), 2, square=9.0)
    for one, trials in zip((B, W), stacked, strict=True):
        np.testing.assert_array_equal(np.stack([one, one]), trials)
    with pytest.raises(ValueError, match=r"A has shape"):
        lf.theory.flute_worst_ray(np.ones((2, 3, 4)), 2)
    with pytest.raises(ValueError, match=r"square"):
        lf.theory.flute_worst_ray(A, 2, square=0.0)


def test_the_defaults_are_the_papers_weights():
    truth, (X, y, A) = made("n < d").truth(0, range(2)), world()
    np.testing.assert_allclose(
        lf.theory.flute_population_minimizer(truth, 2).dense(), truth.truncated(2).dense(), rtol=0, atol=1e-13
    )
    for changes, scale in (({"gamma1": 0.1}, 1.3), ({"gamma2": 0.2}, 1.3), ({"gamma2": 0.2, "step_ratio": 2.0}, 1.6)):
        found = lf.theory.flute_population_minimizer(truth, 2, **changes).dense()
        np.testing.assert_allclose(scale * found, truth.truncated(2).dense(), rtol=0, atol=1e-13)
    b, point = lf.GivenSamples(X, y).normal_equations()[1], normal(8, 2, seed=3)
    every = {"gamma1": 0.25, "gamma2": 0.125, "step_ratio": 1.0}
    one, other = (lf.theory.flute_relative_gradient(point[:4], point[4:], A, b, **more) for more in ({}, every))
    assert one == other
    B, W = lf.theory.flute_worst_ray(A, 4)
    assert np.linalg.norm(B) == pytest.approx(1.0, rel=1e-14)
    assert np.linalg.norm(W) == 1.0
    with pytest.raises(ValueError, match="rank = 5"):
        lf.theory.flute_worst_ray(A, 5)


def test_the_relative_gradient_is_that_of_the_objective():
    X, y, _ = world()
    A, b = lf.GivenSamples(X, y).normal_equations()
    weights = {"gamma1": 0.3, "gamma2": 0.1, "step_ratio": 0.4}
    point = normal(8, 2, seed=3)

    def at(flat):
        parts = flat.reshape(8, 2)
        return objective(parts[:4], parts[4:], X, y, 0.4, 0.3, 0.1)

    slopes = [(at(point.ravel() + 1e-5 * e) - at(point.ravel() - 1e-5 * e)) / 2e-5 for e in np.eye(16)]
    found = lf.theory.flute_relative_gradient(point[:4], point[4:], A, b, **weights)
    assert found == pytest.approx(np.linalg.norm(slopes) / np.linalg.norm(point), rel=1e-8)
    stacked = lf.theory.flute_relative_gradient(*(np.stack([part, part]) for part in (point[:4], point[4:], A, b)))
    assert stacked.shape == (2,)
    assert np.isnan(lf.theory.flute_relative_gradient(np.inf * point[:4], point[4:], A, b))


@pytest.mark.long
def test_a_run_comes_to_rest_where_the_relative_gradient_vanishes():
    X, y, _ = world()
    data = lf.GivenSamples(X, y)
    final = lf.simulate(lf.FLUTE(rank=2, step_size=0.05, init=lf.SmallRandom(0.1)), data=data, rounds=4000).final
    assert lf.theory.flute_relative_gradient(final.B, final.W, *data.normal_equations())[0] < 1e-12


def test_divergence_is_judged_on_both_sides_of_each_data_sets_own_threshold():
    excess, threshold = np.linspace(-0.1, 0.3, 9), np.linspace(0.0, 0.2, 200).reshape(2, 100)
    above = excess > threshold[..., None]

    def judged(start, diverged, outward=above):
        rows = [
            {
                "start": start,
                "threshold": threshold[m],
                "step_edge": 0.4,
                "unbounded": lf.LabeledArray(above[m], excess=excess),
                "diverged": lf.LabeledArray(diverged[m], excess=excess),
                "outward": lf.LabeledArray(outward[m], excess=excess),
                "gradient": lf.LabeledArray(np.ones_like(excess) * above[m], excess=excess),
                "limit": lf.LabeledArray(np.zeros_like(excess) * above[m], excess=excess),
            }
            for m in (0, 1)
        ]
        claims = [one for one in flute_divergence.CLAIMS if one.table == "phase" and "any common" not in one.sentence]
        return c.judged(claims, {"phase": lf.Table(rows)})

    both, near, whole, needed, enough = judged("paper", above)
    for finding, count in ((both, 1800), (whole, 200), (needed, above.sum()), (enough, (~above).sum())):
        assert finding.verdict is Verdict.SUPPORTED
        assert finding.detail.startswith(f"{count} of {count}")
    assert (needed.note, enough.note) == ("", "")
    close = abs(excess - threshold[..., None]) < flute_divergence.MARGIN
    assert near.detail == f"{close.sum()} of {close.sum()} in {close.any(axis=-1).sum()} data sets"
    # A run that diverges at one point below its threshold, in each data set.
    wrong = above.copy()
    wrong[..., 0] = True
    both, near, whole, needed, enough = judged("paper", wrong)
    assert both.estimate == pytest.approx(8 / 9)
    assert (near.estimate, whole.estimate, needed.estimate) == (1.0, 0.0, 1.0)
    assert enough.verdict is Verdict.NOT_SUPPORTED
    assert enough.note.endswith("0 of the 200 lie above the step's limit at the population's minimum")
    (outward, *_) = judged("far", above, outward=~above)[5:]
    assert (outward.setting, outward.estimate) == ("far start", 0.0)


@pytest.mark.long
@pytest.mark.parametrize("factor", [1, 2])
def test_runs_far_out_on_the_ray_diverge_above_the_threshold_only(factor):
    X, y, A = world()
    (worst, v), scale = ray(A), 1e3
    B, W = np.zeros((4, 2)), np.zeros((4, 2))
    B[:, 0], W[worst, 0] = math.sqrt(scale) * v, math.sqrt(scale)
    for share, wanted in ((0.9, lf.Status.COMPLETED), (1.1, lf.Status.DIVERGED)):
        step = 0.1 / scale / factor
        base = {"rank": 2, "step_size": step, "server_step_size": 0.6 * step, "gradient_factor": factor}
        edge = float(lf.theory.flute_divergence_threshold(A, step_ratio=lf.FLUTE(**base).step_ratio))
        algorithm = lf.FLUTE(**base, gamma2=0.1, gamma1=0.2 + share * edge, init=(B, W))
        result = lf.simulate(algorithm, data=lf.GivenSamples(X, y), rounds=1500)
        assert result.status == [wanted]
        if share < 1:
            assert np.linalg.norm(result.final.B) < np.linalg.norm(B)


# --- the floor -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_floor_is_that_of_a_truncation_in_the_stated_noise(shape, k):
    """Monte Carlo of the truncation of Phi + N, with columns of the covariance ``(tau_i^2 I + e_i e_i')/m``."""
    (n, d), m, sigma, draws = SHAPES[shape], 10**8, 0.3, 3000
    problem = made(shape, spectrum=[4.0, 3.0, 2.0, 1.0], noise_std=sigma)
    truth = problem.truth(5, range(1))
    Phi = truth.dense()[0].T
    U, s, Vt = np.linalg.svd(Phi, full_matrices=False)
    cut = (U[:, :k] * s[:k]) @ Vt[:k]
    E = cut - Phi
    tau = np.sqrt(sigma**2 + (E**2).sum(0))
    assert k == 4 or tau.max() > 1.2 * tau.min()
    rng = np.random.default_rng(k)
    N = (tau * rng.standard_normal((draws, d, n)) + E * rng.standard_normal((draws, 1, n))) / math.sqrt(m)
    left, values, right = np.linalg.svd(Phi + N, full_matrices=False)
    moved = (((left[..., :k] * values[:, None, :k]) @ right[:, :k] - cut) ** 2).sum((1, 2)) * m
    wanted = float(lf.theory.truncation_floor(truth, k, m)[0]) ** 2 * n * m
    assert abs(moved.mean() - wanted) < 4.5 * moved.std() / math.sqrt(draws)
    assert moved.std() / math.sqrt(draws) < 0.02 * wanted


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_floor_on_one_data_set_is_that_of_the_derivative_of_the_truncation(shape, k):
    """By differences, in every direction of the noise, whose size differs between clients."""
    (n, d), m = SHAPES[shape], 50
    sigma = np.linspace(0.1, 0.7, n)
    truth = made(shape, spectrum=[4.0, 3.0, 2.0, 1.0], noise_std=sigma).truth(5, range(2))

    def cut(matrices):
        U, s, Vt = np.linalg.svd(matrices, full_matrices=False)
        return (U[..., :k] * s[..., None, :k]) @ Vt[..., :k, :]

    found = lf.theory.truncation_floor(truth, k, m)
    for floor, Phi in zip(found, np.swapaxes(truth.dense(), -1, -2), strict=True):
        E, noise = cut(Phi) - Phi, np.zeros((n, d, d, n))
        for i in range(n):
            covariance = (sigma[i] ** 2 + E[:, i] @ E[:, i]) * np.eye(d) + np.outer(E[:, i], E[:, i])
            noise[i, :, :, i] = np.linalg.cholesky(covariance / m).T
        moved = (cut(Phi + 1e-5 * noise) - cut(Phi - 1e-5 * noise)) / 2e-5
        assert floor**2 == pytest.approx((moved**2).sum() / n, rel=1e-7)


FLOORS = {
    "n < d": ((4, 6), 10**6),
    "n == d": ((5, 5), 10**6),
    "n > d": ((7, 4), 10**6),
    "n > d, m = 10^4": ((7, 4), 10**4),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FLOORS)
def test_runs_end_at_the_floor(name):
    """The mean of the squared ratio over 200 trials is 1, within 4.5 standard errors."""
    shape, m = FLOORS[name]
    problem = made(shape, spectrum=[3.0, 2.2, 1.0, 0.5], noise_std=0.5)
    truth = problem.truth(0, range(200))
    init = balanced(truth.truncated(2))
    algorithm = lf.FLUTE(rank=2, step_size=0.2, init=init)
    data = lf.FixedSamples(m, in_law=True)
    result = lf.simulate(algorithm, problem, data=data, rounds=80, trials=200, metrics=[])
    off = ((result.final.predictors() - truth.truncated(2).dense()) ** 2).sum((1, 2)) / shape[0]
    ratio = off / lf.theory.truncation_floor(truth, 2, m) ** 2
    error = ratio.std() / math.sqrt(200)
    assert abs(ratio.mean() - 1) < 4.5 * error
    assert error < 0.05


@pytest.mark.parametrize("shape", SHAPES)
def test_the_floor_in_homogeneous_noise(shape):
    n, d = SHAPES[shape]
    for k in (1, 2):
        truth = made(shape, spectrum=[2.0, 1.0][:k], noise_std=0.7).truth(0, range(2))
        wanted = math.sqrt(0.49 * k * (d + n - k) / (n * 300))
        np.testing.assert_allclose(lf.theory.truncation_floor(truth, k, 300), wanted, rtol=1e-12)
    full = min(n, d)
    truth = made(shape, noise_std=0.7).truth(0, range(1))
    found = lf.theory.truncation_floor(truth, full, 300)
    np.testing.assert_allclose(found, math.sqrt(0.49 * full * max(n, d) / (n * 300)), rtol=1e-12)


def test_the_floor_grows_as_the_gap_closes_and_has_no_value_without_one():
    floors = []
    for second in (1.0, 1.8, 1.98):
        truth = made((6, 5), spectrum=[2.0, second], noise_std=0.1).truth(0, range(1))
        floors.append(float(lf.theory.truncation_floor(truth, 1, 100)[0]))
    assert floors[0] < floors[1] < floors[2]
    assert floors[2] / floors[1] == pytest.approx(10, rel=0.1)
    with pytest.raises(ValueError, match=r"lambda_k and lambda_\(k\+1\) coincide"):
        lf.theory.truncation_floor(made((6, 5), spectrum=[2.0, 2.0]).truth(0, range(1)), 1, 100)
    with pytest.raises(ValueError, match=r"rank = 6 must be at most min\(d, n\) = 5"):
        lf.theory.truncation_floor(truth, 6, 100)


def test_the_floor_has_no_value_beyond_the_rank_of_the_truth():
    """Its singular values k and k + 1 are both 0."""
    for seed in range(5):
        truth = made((6, 5), spectrum=[2.0, 1.0], noise_std=0.1).truth(seed, range(1))
        with pytest.raises(ValueError, match=r"rank = 3"):
            lf.theory.truncation_floor(truth, 3, 100)


# --- data of a population, and samples in law ----------------------------------------------------------------

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


def test_samples_in_law_are_refused_where_they_cannot_serve():
    problem, flute = made((3, 4)), lf.FLUTE(rank=1, step_size=0.01)

    def run(algorithm=flute, problem=problem, m=30, **more):
        return lf.simulate(algorithm, problem, data=lf.FixedSamples(m, in_law=True), rounds=1, **more)

    run()
    with pytest.raises(EngineError, match=r"the samples are never drawn"):
        run(engine="explicit")
    with pytest.raises(EngineError, match=r"m = 4 is at most d = 4"):
        run(m=4)
    with pytest.raises(EngineError, match=r"requires Gaussian x"):
        run(problem=made((3, 4), design="rademacher"))
    with pytest.raises(EngineError, match=r"fixed samples are used at more than one B"):
        run(engine="projected")
    with pytest.raises((EngineError, ValueError), match=r"in_law = True"):
        run(algorithm=lf.FedRep(rank=1, step_size=0.1, init=lf.Moments()))
    with pytest.raises(ValueError, match=r"with in_law = True no samples are drawn"):
        lf.FixedSamples(30, in_law=True).draw(problem)
    assert lf.FixedSamples(30, in_law=False).draw(problem).X.shape == (1, 3, 30, 4)
    with pytest.raises((ValueError, TypeError), match=r"in_law"):
        lf.FixedSamples(30, in_law="yes")


def test_the_relative_gradient_at_0_is_0():
    A, b = np.stack([np.eye(3)] * 4), np.ones((4, 3))
    assert lf.theory.flute_relative_gradient(np.zeros((3, 2)), np.zeros((4, 2)), A, b) == 0.0
