"""Theorem 1 of the FedRep paper: its formulas by hand, its constants by brute force, its judges where it is false."""

import importlib
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

import linfed as lf
from linfed.statistics.findings import Verdict
from linfed.theory.fedrep.theorem1 import bound as theory
from linfed.theory.fedrep.theorem1 import judges, runs, tail
from tests.helpers import assert_one_line, basis, findings, normal

BOUND = importlib.import_module("experiments.fedrep.fedrep_theorem1")
SAMPLES = importlib.import_module("experiments.fedrep.fedrep_bound_samples")

ANGLES = np.arange(12) * np.pi / 12
PROBLEM = lf.GivenTruth(B=basis(10, 2), W=math.sqrt(2) * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1))
"""Heads of kappa 1."""


def simulated(problem=PROBLEM, *, m=60, step=0.2499, heads=None, rounds=20, trials=72, delta=0.5, **run):
    data = m if not isinstance(m, int) else lf.FreshSamples(m)
    own = {} if heads is None else {"heads": heads}
    algorithm = lf.FedRep(rank=2, step_size=step, init=lf.AtDistance(delta), **own)
    return lf.simulate(
        algorithm, problem, data=data, rounds=rounds, trials=trials, metrics=["subspace_distance"], **run
    )


def made(distance, **fields):
    """Return a run of made-up distances, in which every hypothesis holds."""
    distance = np.asarray(distance, dtype=float)
    one = np.ones(len(distance))
    own = {"dim": 10, "rank": 2, "n_clients": 20, "participants": 20, "n_samples": 1000, "step_size": 0.25}
    exact = {"noise_std": 0.0, "batch_rounds": 1, "head_steps": 0, "ridge": 0.0}
    heads = {"smallest": one, "largest": one, "unequal": 0 * one}
    return runs.Theorem1Run(
        **own | exact | heads | {"rounds": np.arange(distance.shape[1]), "distance": distance} | fields
    )


def falling(factor=0.9, trials=80, rounds=10, start=0.5):
    return np.tile(start * factor ** np.arange(rounds + 1), (trials, 1))


HERE = {"claim": "the bound holds", "setting": "here", "source": "Theorem 1"}


def judged_theorem1(run, **options):
    return judges.judge_theorem1(run, **HERE | options)


def judged_looseness(run, **options):
    return judges.judge_looseness(run, **HERE | {"statistic": "ratio of the rates"} | options)


# --- formulas ------------------------------------------------------------------------------------------------


def test_bound_by_hand():
    """eta E0 sigma^2 / 2 = 0.2 * 0.75 * 0.64 / 2 = 0.048."""
    said = {"step_size": 0.2, "start": 0.5, "smallest": 0.8}
    np.testing.assert_allclose(theory.fedrep_bound([0, 2, 5], **said), [0.5, 0.5 * 0.952, 0.5 * 0.952**2.5])
    np.testing.assert_allclose(theory.fedrep_bound([2], exponent=1.0, **said), [0.5 * 0.952**2])
    many = theory.fedrep_bound([0, 1], step_size=0.2, start=[0.5, 1.0, 0.0], smallest=[0.0, 1.0, 1.0])
    np.testing.assert_allclose(many, [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]])
    assert theory.fedrep_bound([1], step_size=100.0, start=0.5, smallest=1.0) == 0.0


def test_sample_sizes_by_hand():
    """81 (8 log 5 + 4 * 10/5) / 0.75^2, and for one participant without the logarithm."""
    sizes = {"dim": 10, "rank": 2, "start": 0.5}
    found = theory.fedrep_least_samples(participants=5, condition=3.0, **sizes)
    assert found == pytest.approx(81 * (8 * math.log(5) + 8) / 0.5625)
    assert theory.fedrep_least_samples(participants=1, condition=1.0, **sizes) == pytest.approx(40 / 0.5625)
    assert theory.fedrep_least_samples(participants=1, condition=np.inf, **sizes) == np.inf
    assert theory.fedrep_least_samples(dim=10, rank=2, participants=5, condition=1.0, start=1.0) == np.inf
    np.testing.assert_allclose(theory.fedrep_step_limit([0.5, 2.0]), [1.0, 1 / 16])
    for wrong in (0.0, [1.0, -1.0]):
        with pytest.raises(ValueError, match=r"largest = .* must be positive"):
            theory.fedrep_step_limit(wrong)


def test_predicted_samples_solve_their_equation():
    """At the predicted m the margin of the first round is z standard deviations, and near B* rates are equal."""
    said = {"dim": 10, "rank": 2, "step_size": 0.2, "participants": 20, "exponent": 0.5}
    s, low, z = 0.6, 0.3, stats.norm.ppf(0.98)
    m = theory.fedrep_predicted_samples(smallest=low, start=s, allowed=0.02, **said)
    near = 0.2 * 2 * 9 / (20 * (2 - 0.5 * 0.64 - 0.2))
    first = m - 3 - near
    sigma = s * math.sqrt(2 / (20 * first) * (low**2 + s**2 * 2 / first))
    assert z * sigma == pytest.approx(0.75 * s * math.sqrt(1 - s**2) * low**2)
    plain = theory.fedrep_predicted_samples(smallest=1.0, start=s, allowed=0.5, **said | {"rank": 1})
    assert plain == pytest.approx(2 + 0.2 * 10 / (20 * 1.48))
    for wrong, text in (
        ({"start": 1.0}, "start = 1"),
        ({"exponent": 2.0}, "exponent = 2"),
        ({"step_size": 1.9}, "step_size = 1.9"),
        ({"step_size": 1.25, "exponent": 1.0, "start": 0.5}, "step_size = 1.25"),
        ({"allowed": 0.9}, "allowed = 0.9"),
        ({"smallest": 0.0}, "smallest = 0"),
    ):
        own = {**said, "start": s, "smallest": low, **wrong}
        assert_one_line(lambda own=own: theory.fedrep_predicted_samples(**own), [text])


@pytest.mark.long
def test_predicted_samples_are_those_that_runs_need():
    """Kappa 6: chance in the first rounds decides; at d = 200, k = 2 and n = 12 all three parts count."""
    for kappa, dim, start in ((6.0, 10, 0.5), (2.0, 200, 0.9)):
        problem = lf.SharedRepresentation(n_clients=12, dim=dim, rank=2, condition_number=kappa)
        smallest, largest, _ = runs.theorem1_constants(problem, rank=2, rounds=1, trials=1)
        step = 0.999 * float(theory.fedrep_step_limit(largest[0]))
        sizes = {"dim": dim, "rank": 2, "participants": 12, "start": start, "step_size": step}
        m = theory.fedrep_predicted_samples(smallest=smallest[0], **sizes)
        world = {"problem": problem, "step": step, "delta": start, "engine": "chain", "trials": 60}
        few, many = (
            judges.beyond_bound(runs.theorem1_run(simulated(m=round(factor * m), **world))).mean()
            for factor in (0.5, 2.5)
        )
        assert few > 0.15
        assert many <= 0.05


def test_failure_probability_by_hand():
    probability = theory.fedrep_failure_probability
    assert probability(7, dim=9, rank=1, participants=2) == pytest.approx(7 * 2.0**-100)
    assert probability(3, dim=1, rank=9, participants=50) == pytest.approx(3 * math.exp(-100))
    assert probability(5, dim=9, rank=3, participants=1) == 1.0
    assert probability(0, dim=9, rank=3, participants=1) == 0.0


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_singular_values_over_all_subsets_by_brute_force(p):
    W = normal(2, 5, 3)
    subsets = np.array(list(itertools.combinations(range(5), p)))
    smallest, largest = theory.head_singular_values(W, np.stack([subsets] * 2))
    for trial, heads in enumerate(W):
        grams = [heads[list(subset)].T @ heads[list(subset)] / p for subset in subsets]
        values = np.array([np.linalg.eigvalsh(gram) for gram in grams])
        assert largest[trial] == pytest.approx(math.sqrt(values.max()))
        if p < 3:
            assert smallest[trial] == 0.0  # a plain SVD of p rows has no third value
        else:
            assert smallest[trial] ** 2 == pytest.approx(values.min(), abs=1e-14)


@pytest.mark.parametrize("p", [2, 4])
def test_searched_sets_are_the_extreme_ones_of_small_problems(p):
    W = normal(3, 7, 2)
    subsets = np.array(list(itertools.combinations(range(7), p)))
    every = theory.head_singular_values(W, np.stack([subsets] * 3))
    for found, exact in zip(theory.searched_singular_values(W, p), every, strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-9)
    assert theory.searched_singular_values(W, 1)[0].tolist() == [0.0] * 3


@pytest.mark.parametrize("participation", [0.5, 3, 1.0, np.array([[0, 1], [2, 3], [4, 5], [6, 7]])])
def test_participant_sets_are_those_that_ran(participation):
    run = {"rounds": 4, "trials": 3, "seed": (4, 5), "participation": participation}
    steps = lf.iterate(lf.FedRep(rank=2, step_size=0.1, init="random"), PROBLEM, data=lf.FreshSamples(5), **run)
    active = np.stack([step.batch.active for step in steps if step.number], axis=1)
    sets = runs.participant_sets(participation, n_clients=12, **run_only(run))
    if sets is None:
        assert participation == 1.0
        sets = np.broadcast_to(np.arange(12), active.shape)
    np.testing.assert_array_equal(sets, active)


def run_only(run):
    return {name: run[name] for name in ("rounds", "trials", "seed")}


# --- constants of a run --------------------------------------------------------------------------------------


def test_run_computes_every_constant():
    problem = lf.SharedRepresentation(n_clients=12, dim=10, rank=2, noise_std=0.3, condition_number=2.0)
    run = runs.theorem1_run(simulated(problem, trials=3, rounds=6, participation=0.5))
    assert (run.dim, run.rank, run.n_clients, run.participants, run.n_samples) == (10, 2, 12, 6, 60)
    assert (run.noise_std, run.batch_rounds, run.head_steps, run.ridge) == (0.3, 1, 0, 0.0)
    np.testing.assert_allclose(run.start, 0.5)
    assert run.bound().shape == run.distance.shape == (3, 7)
    W = problem.truth(0, range(3)).W
    sets = runs.participant_sets(0.5, n_clients=12, rounds=6, trials=3, seed=0)
    for trial in range(3):
        values = [np.linalg.svd(W[trial][chosen], compute_uv=False) / math.sqrt(6) for chosen in sets[trial]]
        assert run.smallest[trial] == pytest.approx(np.min(values))
        assert run.largest[trial] == pytest.approx(np.max(values))
    assert run.condition.min() > 2.0
    whole = runs.theorem1_run(simulated(problem, trials=3, rounds=2))
    np.testing.assert_allclose(whole.condition, 2.0)
    assert whole.unequal.max() < 1e-9


def test_constants_of_clients_that_differ_are_the_worst():
    rng, W = np.random.default_rng(0), normal(12, 2, seed=3)
    problem, counts = lf.GivenTruth(B=basis(10, 2), W=W, noise_std=(0.1,) * 11 + (0.4,)), (20,) * 11 + (15,)
    given = lf.GivenSamples([rng.standard_normal((m, 10)) for m in counts], [rng.standard_normal(m) for m in counts])
    for data, shared in ((lf.FreshSamples(counts), 1), (given, 3), (lf.FixedSamples(15), 3)):
        run = runs.theorem1_run(simulated(problem, m=data, rounds=3, trials=1))
        assert (run.n_samples, run.noise_std, run.batch_rounds) == (15, 0.4, shared)
        assert run.unequal[0] == pytest.approx(np.abs(np.linalg.norm(W, axis=1) / math.sqrt(2) - 1).max())
    assert runs.theorem1_run(simulated(m=lf.FixedSamples(60), rounds=0, trials=1)).batch_rounds == 1
    ridge = runs.theorem1_run(simulated(heads=lf.ExactHeads(ridge=0.2), rounds=1, trials=1))
    assert (ridge.ridge, ridge.head_steps) == (0.2, 0)


def test_constants_are_those_of_everybody_and_of_seed_0_unless_told():
    problem = lf.SharedRepresentation(n_clients=12, dim=10, rank=2)
    run = {"rank": 2, "rounds": 3, "trials": 2}
    plain = runs.theorem1_constants(problem, **run)
    for one, other in zip(plain, runs.theorem1_constants(problem, participation=1.0, seed=0, **run), strict=True):
        np.testing.assert_array_equal(one, other)
    assert runs.participant_sets(0.5, n_clients=12, rounds=0, trials=2, seed=0) is None
    assert runs.participant_sets(0.5, n_clients=12, rounds=1, trials=2, seed=0).shape == (2, 1, 6)


def test_heads_are_told_in_the_coordinates_of_an_orthonormal_truth():
    B, W, T = basis(10, 2), normal(12, 2), np.array([[2.0, 0.3], [0.0, 0.5]])
    W *= math.sqrt(2) / np.linalg.norm(W, axis=1, keepdims=True)
    found = [
        runs.theorem1_run(simulated(lf.GivenTruth(B=left, W=right), trials=1, rounds=1))
        for left, right in ((B, W), (B @ T, W @ np.linalg.inv(T).T))
    ]
    np.testing.assert_allclose(found[1].smallest, found[0].smallest)
    assert found[1].unequal.max() < 1e-9


@dataclass(frozen=True, kw_only=True)
class Heavy(lf.Design):
    """Student's t with 3 degrees of freedom, of variance 1."""

    def draw(self, rng, out):
        out[...] = rng.standard_t(3, size=out.shape) / math.sqrt(3)


def refused(**changes):
    return lambda: runs.theorem1_run(simulated(trials=1, rounds=1, **changes))


def test_what_the_theorem_does_not_speak_of_is_refused():
    one = simulated(trials=1, rounds=1)
    for change, words in (
        ({"orthonormalize": False}, "orthonormalize"),
        ({"split": True}, "split = False"),
        ({"whiten": "pooled"}, "whiten = None"),
        ({"aggregate": "sum"}, "aggregate"),
        ({"representation_steps": 2}, "representation_steps"),
    ):
        other = replace(one, algorithm=replace(one.algorithm, **change))
        assert_one_line(lambda other=other: runs.theorem1_run(other), [words, "for Theorem 1"])
    for other in (
        lf.LocalOnly(),
        lf.PrivateFedRep(rank=2, step_size=0.2, message_noise_std=0.1),
        lf.CompressedFedRep(rank=2, step_size=0.2, kept_share=0.5),
    ):
        assert_one_line(lambda other=other: runs.theorem1_run(replace(one, algorithm=other)), [type(other).__name__])
    heavy = lf.SharedRepresentation(n_clients=12, dim=10, rank=2, design=Heavy())
    assert_one_line(refused(problem=heavy), ["Heavy", "sub-Gaussian", "lf.Rademacher"])
    wide = lf.SharedRepresentation(n_clients=12, dim=10, rank=3)
    assert_one_line(refused(problem=wide), ["rank 3", "rank = 2"])
    assert_one_line(
        refused(problem=lf.SharedWithShortcuts(n_clients=12, dim=10, rank=2, shortcut_norm=0.5)), ["B* w_i*"]
    )
    scaled = lf.SharedRepresentation(n_clients=12, dim=10, rank=2, design=lf.Gaussian(covariance=2.0))
    assert_one_line(refused(problem=scaled), ["variance 1"])
    assert_one_line(lambda: theory.fedrep_bound([1], step_size=0.1, start=1.5, smallest=1.0), ["start = 1.5"])
    assert_one_line(lambda: theory.fedrep_bound([1], step_size=0.1, start=-0.5, smallest=1.0), ["start = -0.5"])
    sizes = {"dim": 10, "rank": 2, "participants": 5, "start": 0.5}
    assert_one_line(lambda: theory.fedrep_least_samples(condition=0.5, **sizes), ["condition = 0.5"])


# --- hypotheses ----------------------------------------------------------------------------------------------


SPOILT = {
    "noise std": {"noise_std": 0.1},
    "rounds that see": {"batch_rounds": 10},
    "gradient steps": {"head_steps": 1},
    "ridge": {"ridge": 1e-3},
    "||w_i||": {"unequal": np.full(80, 1e-3)},
    "k <= p": {"participants": 1, "smallest": np.zeros(80)},
    "0 < sigma_min": {"smallest": np.full(80, 1e-14)},
    "eta <=": {"step_size": 0.26},
    "<= m": {"n_samples": 40},
}


@pytest.mark.parametrize("name", SPOILT)
def test_every_hypothesis_is_seen_to_fail(name):
    run = made(falling(), **SPOILT[name])
    finding = judged_theorem1(run)
    assert finding.verdict is Verdict.HYPOTHESES_FAIL
    assert any(name in hypothesis.text for hypothesis in finding.failed_hypotheses)
    assert "fails: " in finding.remarks
    if name not in ("k <= p", "0 < sigma_min"):
        assert len(finding.failed_hypotheses) == 1
    assert not judged_theorem1(run, assumed=False).failed_hypotheses


def test_all_hypotheses_hold_where_they_do_and_the_constant_counts():
    run = made(falling())
    needed = (8 * math.log(20) + 2) / 0.75**2
    assert all(hypothesis.holds for hypothesis in run.hypotheses(0.999 * 1000 / needed))
    failing = [hypothesis for hypothesis in run.hypotheses(1.001 * 1000 / needed) if not hypothesis.holds]
    assert [hypothesis.right for hypothesis in failing] == [1000]


def test_the_trial_that_is_nearest_to_failing_decides():
    worst = np.ones(80)
    worst[7] = 1.1
    (failed,) = judged_theorem1(made(falling(), largest=worst)).failed_hypotheses
    assert failed.right == pytest.approx(1 / (4 * 1.21))


# --- verdicts ------------------------------------------------------------------------------------------------


def test_verdicts_of_made_up_runs():
    """The bound falls by sqrt(1 - 0.25 * 0.75 / 2) = 0.952 a round, and by 0.906 with exponent T."""
    holds = judged_theorem1(made(falling(0.95)))
    assert (holds.verdict, holds.detail) == (Verdict.HOLDS, "0 of 80")
    assert judged_theorem1(made(falling(0.95)), exponent=1.0).verdict is Verdict.VIOLATED
    assert judged_theorem1(made(falling(0.9)), exponent=1.0).verdict is Verdict.HOLDS
    few = judged_theorem1(made(falling(0.9, trials=20)))
    assert few.verdict is Verdict.INCONCLUSIVE  # twenty trials cannot tell 5 % from none
    spoilt = falling(0.9)
    spoilt[3, 5:] = 0.5  # one round of one trial
    one = judged_theorem1(made(spoilt))
    assert (one.verdict, one.detail) == (Verdict.INCONCLUSIVE, "1 of 80")
    gone = falling(0.9)
    gone[:20, 5:] = np.nan
    assert judged_theorem1(made(gone)).verdict is Verdict.VIOLATED
    partial = judged_theorem1(made(gone, n_clients=40))
    assert partial.verdict is Verdict.INCONCLUSIVE
    assert "did not occur" in partial.note
    assert {one.claimed_high, holds.claimed_high, few.claimed_high} == {0.05}  # whatever the runs are
    assert judged_theorem1(made(falling(0.9), n_clients=40)).verdict is Verdict.HOLDS


def test_a_finding_has_the_defaults_and_its_notes():
    run = made(falling(0.95))
    plain = judged_theorem1(run)
    told = {"constant": 1.0, "exponent": 0.5, "assumed": True, "resolution": 0.05}
    assert plain == judged_theorem1(run, **told)
    assert judged_theorem1(run, note="a note").note == "a note"
    assert judged_theorem1(run, resolution=0.2).claimed_high == 0.2
    gone = falling(0.9)
    gone[:20, 5:] = np.nan
    partial = judged_theorem1(made(gone, n_clients=40), note="a note")
    assert partial.low == 0.0
    assert partial.note.startswith("a note")
    assert "nowhere below 1" in judged_theorem1(made(falling(rounds=0))).vacuous
    assert not judged_theorem1(made(falling(rounds=1))).vacuous


def test_a_run_on_its_bound_is_within_it():
    bound = made(falling()).bound()
    assert not judges.beyond_bound(made(bound)).any()
    bound[:40, 3] *= 1.001
    np.testing.assert_array_equal(judges.beyond_bound(made(bound)), np.arange(80) < 40)
    np.testing.assert_allclose(judges.rate_ratios(made(made(falling()).bound())), 1.0)


def test_vacuous_where_nothing_is_said():
    nowhere = judged_theorem1(made(falling(start=1.0)), assumed=False)
    assert nowhere.verdict is Verdict.VACUOUS
    assert "nowhere below 1" in nowhere.remarks
    alone = made(falling(), rank=1, n_clients=1, participants=1)
    finding = judged_theorem1(alone)
    assert finding.verdict is Verdict.VACUOUS
    assert "probability of 1" in finding.remarks


def test_distances_of_rounding_are_within_every_bound():
    """The bound falls by 0.0195 a round here."""
    for floor, beyond in ((3e-16, False), (2e-12, True)):
        run = made(np.maximum(falling(0.01, rounds=60), floor))
        assert (judges.beyond_bound(run, exponent=40.0) == beyond).all()


def test_rates():
    run = made(falling(0.9))
    bound = -0.5 * math.log(1 - 0.25 * 0.75 / 2)
    np.testing.assert_allclose(judges.rate_ratios(run), -math.log(0.9) / bound)
    np.testing.assert_allclose(judges.rate_ratios(run, 1.0), -math.log(0.9) / bound / 2)
    floor = made(np.maximum(falling(0.01, rounds=30), 1e-15))  # five rounds above rounding
    np.testing.assert_allclose(judges.rate_ratios(floor), -math.log(0.01) / bound)
    assert judged_looseness(run).verdict is Verdict.HOLDS
    assert judged_looseness(made(falling(0.99))).verdict is Verdict.VIOLATED
    gone = falling(0.9)
    gone[:60, 5:] = np.nan
    assert judged_looseness(made(gone)).estimate == -np.inf
    gone[:60, 1:] = np.nan  # diverged before the first record
    assert judged_looseness(made(gone)).estimate == -np.inf
    soon = falling(0.9)
    soon[:, 1:] = 1e-14
    np.testing.assert_allclose(judges.rate_ratios(made(soon)), math.log(1e11) / bound)  # at least this rate
    assert judged_looseness(made(soon)).verdict is Verdict.HOLDS


def test_rates_are_judged_under_the_hypotheses_and_where_the_bound_falls():
    noisy = judged_looseness(made(falling(0.99), noise_std=0.1))
    assert noisy.verdict is Verdict.HYPOTHESES_FAIL
    distance = falling(0.9)
    distance[:70] = 0.0  # they start at B*
    found = judged_looseness(made(distance))
    assert found.verdict is Verdict.HOLDS
    assert np.isnan(judges.rate_ratios(made(distance))).sum() == 70
    nowhere = judged_looseness(made(0 * distance))
    assert nowhere.verdict is Verdict.VACUOUS
    assert "does not fall" in nowhere.remarks


# --- runs ----------------------------------------------------------------------------------------------------


def test_theorem_holds_on_a_run_and_the_engines_agree():
    needed = theory.fedrep_least_samples(dim=10, rank=2, participants=12, condition=1.0, start=0.5)
    finding = judged_theorem1(runs.theorem1_run(simulated(m=math.ceil(needed), engine="chain")))
    assert finding.verdict is Verdict.HOLDS
    one, other = (runs.theorem1_run(simulated(trials=2, engine=engine)) for engine in ("explicit", "chain"))
    for name in ("smallest", "largest", "sizes", "unequal"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12)


FALSE = {
    "an oversized step": ({"step": 3.0}, "eta <="),
    "too few samples": ({"m": 2}, "<= m"),
    "noise": ({"problem": replace(PROBLEM, noise_std=2.0), "rounds": 50}, "noise std"),
}


@pytest.mark.parametrize("name", FALSE)
def test_runs_that_break_a_hypothesis_break_the_bound(name):
    changes, text = FALSE[name]
    run = runs.theorem1_run(simulated(**changes))
    judged = judged_theorem1(run)
    assert judged.verdict is Verdict.HYPOTHESES_FAIL
    assert [text in hypothesis.text for hypothesis in judged.failed_hypotheses] == [True]
    assert judged_theorem1(run, assumed=False).verdict is Verdict.NOT_SUPPORTED  # nobody says so


def test_with_m_up_to_k_nothing_moves():
    run = runs.theorem1_run(simulated(m=2))
    np.testing.assert_allclose(run.distance, 0.5, rtol=1e-12)
    assert judges.beyond_bound(run).all()


def test_a_step_at_its_limit_is_within_it():
    """Drawn heads have sigma_max = 1 to 1e-12; more than that is too large a step."""
    largest = np.full(2, 1.0 + 1e-12)
    assert all(h.holds for h in made(falling(trials=2), largest=largest).hypotheses())
    (failed,) = (h for h in made(falling(trials=2), step_size=0.25 + 1e-9).hypotheses() if not h.holds)
    assert failed.text.startswith("eta <=")


def test_fixed_samples_gradient_heads_and_few_participants_are_hypotheses():
    fixed = runs.theorem1_run(simulated(m=lf.FixedSamples(60), rounds=3, trials=1))
    assert fixed.batch_rounds == 3
    gradient = runs.theorem1_run(simulated(heads=lf.GradientHeads(steps=10), rounds=3, trials=1))
    assert gradient.head_steps == 10
    alone = runs.theorem1_run(simulated(participation=1, rounds=3, trials=1))
    assert alone.smallest.tolist() == [0.0]
    assert alone.condition.tolist() == alone.sizes.tolist() == [np.inf]
    failed = [hypothesis.text for hypothesis in judged_theorem1(alone).failed_hypotheses]
    assert [text[:6] for text in failed] == ["k <= p", "0 < si", "eta <=", "1 kapp"]


# --- the same batch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "m", "verdict"),
    [
        (lf.ExactHeads(), 15, Verdict.HOLDS),
        (lf.ExactHeads(), 3, Verdict.HOLDS),
        (lf.ExactHeads(ridge=0.1), 15, Verdict.VIOLATED),
        (lf.GradientHeads(steps=3), 15, Verdict.VIOLATED),
    ],
)
def test_exact_heads_on_the_same_batch_keep_r_from_shrinking(heads, m, verdict):
    problem = lf.SharedRepresentation(n_clients=12, dim=10, rank=2, noise_std=0.3)
    algorithm = lf.FedRep(rank=2, step_size=0.8, init=lf.AtDistance(0.7), heads=heads)
    run = {"data": lf.FreshSamples(m), "rounds": 6, "trials": 2, "participation": 0.5}
    gaps, inverse = judges.same_batch_gaps(lf.iterate(algorithm, problem, engine="explicit", **run), algorithm)
    assert gaps.shape == inverse.shape == (2, 6)
    along = {name: lf.LabeledArray(one, round=range(6)) for name, one in (("gap", gaps), ("inverse", inverse))}
    identity, shrinking = findings(BOUND, {"same_batch": lf.Table([along | {"heads": "some", "m": m}])})
    assert identity.verdict is verdict
    if verdict is Verdict.HOLDS:
        assert gaps.max() < 1e-13
        assert inverse.max() <= 1 + 1e-14
        assert shrinking.verdict is Verdict.HOLDS


# --- the tail ------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("p", "d", "m", "start", "step"), [(2, 4, 4, 0.5, 0.25), (3, 5, 5, 0.8, 0.1)])
def test_tail_of_the_first_round_is_that_of_runs(p, d, m, start, step):
    problem = lf.SharedRepresentation(n_clients=p, dim=d, rank=1)
    algorithm = lf.FedRep(rank=1, step_size=step, init=lf.AtDistance(start))
    run = {"data": lf.FreshSamples(m), "rounds": 1, "metrics": ["subspace_distance"], "trials": 2000, "seed": 1}
    after = lf.simulate(algorithm, problem, engine="explicit", **run).metrics["subspace_distance"][:, 1]
    share = np.mean(after > theory.fedrep_bound([1], step_size=step, start=start, smallest=1.0))
    found, error = tail.first_round_failure(dim=d, participants=p, n_samples=m, start=start, step_size=step, draws=4000)
    assert abs(math.exp(found) - share) < 4 * math.hypot(math.exp(found) * error, math.sqrt(share * (1 - share) / 2000))
    assert 0.02 < share < 0.5


def test_tail_far_out():
    """With w = 1 in the limit of a small angle, d = 2: P(sum of p chi^2_{m-1} < p m x), x where the bound is met."""
    p, m, start, eta = 2, 60, 1e-3, 0.25
    found, error = tail.first_round_failure(dim=2, participants=p, n_samples=m, start=start, draws=8000)
    needed = p * m * (1 - math.sqrt(1 - eta / 2)) / eta
    assert found == pytest.approx(stats.chi2.logcdf(needed, p * (m - 1)), abs=4 * error + 0.01)
    assert error < 0.1
    assert found < -30
    nothing = tail.first_round_failure(dim=2, participants=p, n_samples=m, start=start, exponent=1e-9, draws=100)
    assert nothing[0] == -math.inf
    assert math.isnan(nothing[1])


def test_tail_where_failures_are_common_is_that_of_draws():
    """Of the exact law of a client's message, with as many draws as tell 5 %."""
    p, d, m, s, eta, draws = 3, 5, 5, 0.8, 0.1, 60_000
    rng = np.random.default_rng(2)
    w = math.sqrt(1 - s**2) + s * rng.standard_normal((draws, p)) / np.sqrt(rng.chisquare(m, (draws, p)))
    x = rng.chisquare(m - 1, (draws, p))
    along = eta * s / (p * m) * np.sum(w * x, axis=1)
    across = (eta * s / (p * m)) ** 2 * np.sum(w * w * x, axis=1) * rng.chisquare(d - 2, draws)
    cosine = (math.sqrt(1 - s**2) + along * s) / np.sqrt(1 + along**2 + across)
    share = np.mean(np.sqrt(1 - cosine**2) > s * math.sqrt(1 - eta * (1 - s**2) / 2))
    found, error = tail.first_round_failure(dim=d, participants=p, n_samples=m, start=s, step_size=eta, draws=40_000)
    assert 0.05 < share < 0.5
    assert math.exp(found) == pytest.approx(share, abs=4 * math.hypot(error * share, math.sqrt(share / draws)))
    assert error < 0.02


def test_tail_has_the_error_of_its_seeds_and_its_defaults():
    given = {"dim": 3, "participants": 2, "n_samples": 5, "start": 0.5}
    many = [tail.first_round_failure(**given, draws=320, seed=seed) for seed in range(20)]
    values, errors = np.exp([one for one, _ in many]), np.array([error for _, error in many])
    assert values.std() / values.mean() == pytest.approx(errors.mean(), rel=0.5)
    told = {"step_size": 0.25, "exponent": 0.5, "draws": 20_000, "seed": 0}
    plain = tail.first_round_failure(**given)
    assert plain == tail.first_round_failure(**given, **told)
    assert plain != tail.first_round_failure(**given, **told | {"draws": 20_016})
    for name, value in (("dim", 1), ("n_samples", 1), ("draws", 1), ("start", 0.0), ("start", 1.1), ("step_size", 0)):
        assert_one_line(lambda one={name: value}: tail.first_round_failure(**given | one), [f"{name} = {value}"])


def least_row(**own):
    sizes = {"n_clients": 50, "dim": 50, "rank": 2, "participation": 1.0, "noise_std": 0.0, "rounds": 60, "trials": 100}
    return sizes | {"name": "condition", "needed": 100.0, "rival": 10.0, "predicted": 12.0} | own


def test_experiment_rejects_a_bound_that_is_false():
    base = BOUND.Judged(n_clients=12, dim=8, rank=1, rounds=10, trials=72)
    cells = [replace(base, name=name) for name in ("grid", "condition", "condition", "start", "start")]
    table = lf.Table.of(cells, [cell.run() for cell in cells])

    def verdicts(share):
        def slower(row):
            return lf.LabeledArray(0.5 + share * (row["distance"] - 0.5), round=row["round"])

        found = findings(BOUND, {"runs": table.assign(distance=slower)})
        return {finding.verdict for finding in found if "^(T/2)" in finding.claim}

    assert verdicts(1.0) == {Verdict.HOLDS}
    assert verdicts(0.01) == {Verdict.VIOLATED}


def test_experiment_rejects_constants_that_are_false():
    def found(first, last):
        rows = [
            least_row(condition=c, needed=needed, least=m, least_low=0.99 * m, least_high=1.01 * m)
            for c, m, needed in ((4.0, first, 100.0), (8.0, last, 1600.0))
        ]
        return {found.claim: found.verdict for found in findings(SAMPLES, {"least": lf.Table(rows)})}

    enough, tight = "C = 1 is sufficient", "Theorem 1's m is tight in kappa, up to half a power"
    bounded = "The smallest m - k grows with kappa at most half a power faster than Theorem 1's m"
    asked = "The smallest m is proportional to Theorem 1's m, to a factor of 10"
    true, loose = found(12.0, 162.0), found(120.0, 120.0)
    assert {true[text] for text in (enough, tight, bounded, asked)} == {Verdict.SUPPORTED}
    # Fewer samples than a sufficient condition asks for do not refute it: 120 of 1600.
    assert (loose[enough], loose[bounded], loose[tight]) == (
        Verdict.SUPPORTED,
        Verdict.SUPPORTED,
        Verdict.NOT_SUPPORTED,
    )
    assert found(12.0, 12.0)[asked] is Verdict.NOT_SUPPORTED
    false = found(12.0, 1700.0)
    assert (false[enough], false[bounded]) == (Verdict.NOT_SUPPORTED, Verdict.NOT_SUPPORTED)
