"""`lf.predict`: which law serves a run, its numbers beside the theory's own and beside runs, and what is missing."""

import copy
import pickle
from contextlib import suppress
from dataclasses import fields, replace
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import linfed as lf
from linfed.prediction import averaging, dispatch, flute, law, others, personal
from linfed.prediction import fedrep as special
from linfed.prediction import fedrep_near_truth as near_truth
from linfed.prediction import fedrep_rounds as rounds
from linfed.prediction.cases import FedRepRun, heads_of
from linfed.prediction.dispatch import LAWS
from linfed.prediction.fedrep import truncation_metric
from linfed.prediction.fedrep_near_truth import step_doubts
from linfed.prediction.prediction import Curves, Prediction, Quantity, joined
from linfed.prediction.prediction import _as_text as as_text
from linfed.simulation.job import checked_job
from tests import references as ref
from tests.helpers import ROOT, assert_one_line, basis, each, normal

PROBLEM = lf.SharedRepresentation(n_clients=40, dim=30, rank=3, noise_std=0.1)
FRESH = lf.FreshSamples(10)


def fedrep(**changes):
    return lf.FedRep(**{"rank": 3, "step_size": 0.5, "init": lf.AtDistance(0.6)} | changes)


def predict(algorithm=None, problem=PROBLEM, **changes):
    return lf.predict(algorithm or fedrep(), problem, **{"data": FRESH, "rounds": 3} | changes)


def vars_of(algorithm):
    return {one.name: getattr(algorithm, one.name) for one in fields(algorithm) if one.init}


def by_hand(law, problem, trial=0, *, seed=0, scale=1.0, **changes):
    W = scale * problem.truth(seed, [trial]).W[0]
    setting = {"dim": problem.dim, "n_samples": 10, "step_size": 0.5, "rounds": 3, "noise_std": problem.noise_std}
    return law(W, **setting | changes)


# --- the table of what is predicted ------------------------------------------------------------------------------

FIXED = lf.FixedSamples(40, in_law=False)
FEW = replace(PROBLEM, n_clients=6, dim=5, rank=2)
LARGER = lf.UnderParameterized(n_clients=40, dim=30, gap=4.0, gap_after=3, noise_std=0.1)
STEPS = {"step_size": 0.1, "local_steps": 2}
CLUSTERS = {"clusters": 2, **STEPS}
FAMILY = [lf.FedAvg(**STEPS), lf.FedProx(mu=0.5, **STEPS), lf.SCAFFOLD(**STEPS), lf.FedVARP(**STEPS)]
FAMILY += [lf.ClusterFedVARP(**CLUSTERS), lf.FedSCAVAR(**CLUSTERS)]

NOISY = lf.PrivateFedRep(rank=3, step_size=0.5, message_noise_std=0.01)
STILL = [
    fedrep(),
    lf.PrivateFedRep(rank=3, step_size=0.5, clip=1.0),
    lf.CompressedFedRep(rank=3, step_size=0.3, levels=2),
]
SPECTRAL = [lf.MethodOfMoments(rank=3), lf.UStatistic(rank=3), lf.TwoReplica(rank=3), lf.LocalGram(rank=3)]
PERSONAL = [
    lf.Ditto(step_size=0.1),
    lf.APFL(step_size=0.1),
    lf.PFedMe(step_size=0.05),
    lf.PerFedAvg(step_size=0.1, adaptation_step_size=0.1),
]

RUNS_OF_THE_TABLE = {
    special.WholeSpace: (
        [
            fedrep(init="random"),
            lf.PrivateFedRep(rank=3, step_size=0.5, message_noise_std=0.01, clip=1.0),
            lf.CompressedFedRep(rank=3, step_size=0.3, levels=2),
        ],
        replace(PROBLEM, dim=3),
        FRESH,
    ),
    special.NoMovement: (STILL, PROBLEM, lf.FreshSamples(3)),
    near_truth.CompressedMessages: (
        [lf.CompressedFedRep(rank=3, step_size=0.3, kept_share=0.5)],
        PROBLEM,
        FRESH,
    ),
    special.EmpiricalMinimum: ([fedrep()], PROBLEM, FIXED),
    special.Narrow: ([fedrep(rank=5, init="random")], PROBLEM, FRESH),
    near_truth.FewDimensions: ([fedrep(init="random")], replace(PROBLEM, dim=5), FRESH),
    rounds.GradientDescentHeads: ([fedrep(heads=lf.GradientHeads(steps=3))], PROBLEM, FRESH),
    rounds.UnderParameterised: ([fedrep()], LARGER, FRESH),
    rounds.WithoutQR: ([fedrep(orthonormalize=False)], PROBLEM, FRESH),
    rounds.NoiseAlone: ([NOISY], PROBLEM, lf.FreshSamples(3)),
    rounds.NoisyMessages: ([NOISY], PROBLEM, FRESH),
    rounds.SecondOrder: ([fedrep()], PROBLEM, FRESH),
    rounds.Means: ([fedrep()], PROBLEM, lf.FreshSamples(6)),
    others.Minimiser: ([lf.AltMin(rank=3), lf.BurerMonteiro(rank=3)], PROBLEM, FIXED),
    flute.FreshTruncation: (
        [lf.FLUTE(rank=3, step_size=0.01)],
        replace(PROBLEM, n_clients=12, dim=8, noise_std=0.0),
        FRESH,
    ),
    flute.Truncation: ([lf.FLUTE(rank=3, step_size=0.01)], LARGER, FIXED),
    averaging.FixedPoint: (FAMILY, FEW, FIXED),
    averaging.Cycle: ([lf.FedRolex(model_share=0.6, **STEPS)], FEW, FIXED),
    personal.PersonalFixedPoint: (PERSONAL, PROBLEM, FIXED),
    personal.MeanOverCoins: ([lf.L2GD(step_size=0.1)], FEW, FIXED),
    others.SpectralFloor: (SPECTRAL, PROBLEM, FIXED),
    others.LeastSquares: ([lf.LocalOnly()], PROBLEM, FIXED),
    others.TrueSubspace: ([lf.Oracle(rank=3)], PROBLEM, FIXED),
}
"""A run of each algorithm of each law."""


@each("kind", LAWS)
def test_the_table_says_what_is_predicted(kind):
    algorithms, problem, data = RUNS_OF_THE_TABLE[kind]
    assert tuple(type(one) for one in algorithms) == kind.algorithms
    for algorithm in algorithms:
        found = lf.predict(algorithm, problem, data=data, rounds=3)
        known = []
        for name in ("distance", "low", "high", "floor", "rate", "stability_edge", "best_step"):
            with suppress(lf.NoPredictionError):
                known += [name] if getattr(found, name) is not None else []
        assert (found.law, tuple(known)) == (kind.name, kind.gives), algorithm
        if "distance" in known and not isinstance(algorithm, lf.Oracle):
            assert (kind.range or kind.validity).endswith(found.validity), algorithm


def test_the_table_is_in_the_docstring_and_in_the_guide():
    assert "{table}" not in lf.predict.__doc__
    words = " ".join(lf.predict.__doc__.split())
    for kind in LAWS:
        names = ", ".join(each.__name__ for each in kind.algorithms)
        text = f"{names}: {kind.runs} predicted: {', '.join(kind.gives)} range: {kind.range or kind.validity} "
        assert text in words
    guide = (ROOT / "docs/guide/predict.md").read_text(encoding="utf-8")
    assert f"<!-- predictions -->\n{law.markdown_table(LAWS)}\n<!-- /predictions -->" in guide


def two_clients(run):
    return "" if run.job.sizes.n_clients > 2 else "for two clients"


class Planted(law.Law[law.Run[lf.FedPer]]):
    """A law of an algorithm that has none."""

    algorithms = (lf.FedPer,)
    runs = "more than two clients"
    gives = ("distance", "floor")
    name, source, validity = "planted", "nowhere", "in this test"
    conditions = (two_clients,)
    limits = {"wrong": (0.5, "it is wrong by {}, above {}")}  # noqa: RUF012

    @classmethod
    def run_of(cls, job):
        return law.Run(job, job.algorithm)

    def curves(self):
        return Curves(np.full((self.run.job.trials, self.run.job.rounds + 1), 0.25), facts={"wrong": 0.75})

    def floor(self):
        return Quantity(np.full(self.run.job.trials, 0.125), self.source, self.validity, "risk")


def test_a_law_is_added_in_one_place(monkeypatch):
    """Its class, in the list of laws: dispatch, refusals, warnings and tables follow."""
    algorithm, setting = lf.FedPer(rank=2, step_size=0.1), {"data": FRESH, "rounds": 2}
    assert_one_line(lambda: lf.predict(algorithm, PROBLEM, **setting), ["FedPer"], lf.NoPredictionError)
    monkeypatch.setattr(dispatch, "LAWS", (*LAWS, Planted))
    found = lf.predict(algorithm, PROBLEM, **setting)
    assert (found.law, found.source, found.validity) == ("planted", "nowhere", "in this test")
    assert found.distance.tolist() == [0.25] * 3
    assert (float(found.floor), found.floor.metric) == (0.125, "risk")
    assert found.warnings == ("it is wrong by 0.75, above 0.5",)
    assert_one_line(lambda: found.rate, ["no prediction of the rate"], lf.NoPredictionError)
    two = replace(PROBLEM, n_clients=2)
    words = ["no prediction of FedPer is available for two clients"]
    assert_one_line(lambda: lf.predict(algorithm, two, **setting), words, lf.NoPredictionError)
    other = lf.FedBABU(rank=2, step_size=0.1)
    assert_one_line(lambda: lf.predict(other, PROBLEM, **setting), ["only for", "FedPer"], lf.NoPredictionError)
    row = "| FedPer | more than two clients | `distance`, `floor` |"
    assert law.markdown_table(dispatch.LAWS).splitlines()[-1] == row
    assert law.table(dispatch.LAWS).splitlines()[-3:] == [
        "FedPer: more than two clients",
        "    predicted: distance, floor",
        "    range: in this test",
    ]


# --- which law, and its numbers --------------------------------------------------------------------------------


SECOND, MEANS = lf.theory.second_order_evolution, lf.theory.state_evolution
GRADIENT = lf.theory.gradient_heads_evolution

SERVED = {
    "defaults": ({}, {}, SECOND, {"delta": 0.6}),
    "some": ({}, {"participation": 0.5}, SECOND, {"delta": 0.6, "participants": 20}),
    "few samples": ({}, {"data": lf.FreshSamples(6)}, MEANS, {"delta": 0.6, "n_samples": 6}),
    "the truth": ({"init": lf.TrueSubspace()}, {}, SECOND, {"delta": 0.0}),
    "the sum": ({"aggregate": "sum", "step_size": 0.5 / 40}, {}, SECOND, {"delta": 0.6}),
    "a schedule": (
        {"step_size": lambda t: 0.5 / t},
        {},
        SECOND,
        {"delta": 0.6, "step_size": 0.5 / np.arange(1.0, 4.0)},
    ),
    "no round": ({"step_size": lambda t: 0.5 / t}, {"rounds": 0}, SECOND, {"delta": 0.6, "rounds": 0}),
    "another seed": ({}, {"seed": (3, 1)}, SECOND, {"delta": 0.6, "seed": (3, 1)}),
    "x of variance 2": ({}, {}, SECOND, {"delta": 0.6, "scale": 2**0.5}),
    "gradient heads": (
        {"heads": lf.GradientHeads(steps=3)},
        {"participation": 30},
        GRADIENT,
        {"delta": 0.6, "head_steps": 3, "participants": 30},
    ),
    "gradient heads at variance 2": (
        {"heads": lf.GradientHeads(step_size=0.2)},
        {},
        GRADIENT,
        {"delta": 0.6, "head_step_size": 0.4, "scale": 2**0.5},
    ),
    "gradient heads of the sum": (
        {"heads": lf.GradientHeads(), "aggregate": "sum", "step_size": 0.5 / 40},
        {},
        GRADIENT,
        {"delta": 0.6, "head_step_size": 0.5 / 40},
    ),
}


def check_served(name, problem, few):
    algorithm, run, law, changes = SERVED[name]
    if name == "few samples":
        run, changes = {"data": lf.FreshSamples(few)}, changes | {"n_samples": few}
    if name.endswith("variance 2"):
        problem = replace(problem, design=lf.Gaussian(covariance=2.0))
    found = predict(fedrep(rank=problem.rank, **algorithm), problem, **run)
    expected = by_hand(law, problem, **changes)
    assert found.law == {SECOND: "second order", MEANS: "means", GRADIENT: "gradient heads"}[law]
    assert found.rounds.tolist() == list(range(run.get("rounds", 3) + 1))
    assert found.distance == pytest.approx(expected.distance, rel=1e-9)
    for end in ("low", "high"):
        told = getattr(found, end)
        assert (told is None) == (law is not SECOND)
        assert told is None or told == pytest.approx(getattr(expected, end), rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("name", SERVED)
def test_the_law_that_serves_is_the_theorys_own(name):
    check_served(name, PROBLEM, few=6)


@each("name", SERVED)
def test_the_law_that_serves_rank_one_is_the_theorys_own(name):
    check_served(name, lf.SharedRepresentation(n_clients=40, dim=30, rank=1, noise_std=0.1), few=4)


STARTS = {
    "random": "random",
    "moments": "moments",
    "given": np.linalg.qr(PROBLEM.truth(4, [0]).B[0] + 0.15 * normal(30, 3))[0],
}


@pytest.mark.parametrize("name", STARTS)
def test_the_start_is_that_of_the_run(name):
    algorithm = fedrep(init=STARTS[name])
    first = lf.simulate(algorithm, PROBLEM, data=FRESH, rounds=0, trials=2, seed=4)
    found = predict(algorithm, trials=2, seed=4)
    assert found.distance[:, 0] == pytest.approx(first.metrics["subspace_distance"][:, 0], rel=1e-9)
    for trial in range(2):
        truth = PROBLEM.truth(4, [trial])
        expected = by_hand(SECOND, PROBLEM, trial, seed=4, B0=first.final.B[trial], B_star=truth.B[0])
        assert found.distance[trial] == pytest.approx(expected.distance, rel=1e-7)


def test_a_truth_in_other_coordinates_is_the_same():
    truth, A = PROBLEM.truth(0, [0]), normal(3, 3)
    other = lf.GivenTruth(B=truth.B[0] @ A, W=truth.W[0] @ np.linalg.inv(A).T, noise_std=0.1)
    one, same = predict(), predict(problem=other)
    assert same.distance == pytest.approx(one.distance, rel=1e-6)
    assert same.rate == pytest.approx(one.rate, rel=1e-9)


def test_trials_have_their_own_heads_and_the_first_stands_for_all():
    one, three = predict(), predict(trials=3)
    assert three.distance.shape == three.low.shape == three.high.shape == (3, 4)
    assert one.distance.shape == (4,)
    assert np.array_equal(one.distance, three.distance[0])
    assert three.floor.value.shape == three.best_step.value.shape == (3,)
    assert one.floor.value.shape == ()
    assert float(one.floor) == three.floor.value[0]
    assert len(np.unique(three.distance[:, -1])) == 3
    given = lf.GivenTruth(B=basis(30, 3), W=normal(2, 40, 3))
    assert predict(problem=given).distance.shape == (2, 4)


def test_what_is_known_near_the_truth_is_the_theorys_own():
    W, sizes = PROBLEM.truth(0, [0]).W[0], {"dim": 30, "n_samples": 10, "participants": 20}
    for algorithm, unit in ((fedrep(), 1), (fedrep(aggregate="sum", step_size=0.025), 20)):
        found = predict(algorithm, participation=20)
        assert found.rate == pytest.approx(lf.theory.near_truth_factor(W, step_size=0.5, **sizes) ** 0.5)
        assert found.stability_edge * unit == pytest.approx(lf.theory.stability_edge(W, **sizes))
        assert found.best_step * unit == pytest.approx(lf.theory.local_best_step(W, **sizes), rel=1e-6)
        floor = lf.theory.second_order_floor(W, step_size=0.5, noise_std=0.1, **sizes)
        assert found.floor == pytest.approx(floor.distance, rel=1e-9)
        assert found.floor.metric == "subspace_distance"
    scheduled = predict(fedrep(step_size=lambda t: 0.5 / t))
    assert scheduled.best_step == predict().best_step
    for name in ("floor", "rate"):
        assert_one_line(lambda name=name: getattr(scheduled, name), ["is a schedule", name], lf.NoPredictionError)


@each(
    "algorithm, m",
    [
        (fedrep(), 6),
        (lf.PrivateFedRep(rank=3, step_size=0.5, message_noise_std=0.01), 10),
        (lf.CompressedFedRep(rank=3, step_size=0.5, kept_share=0.5), 10),
    ],
)
def test_a_floor_in_mean_square_ends_before_the_edge(algorithm, m):
    """Without noise it is 0 up to the edge."""
    data = lf.FreshSamples(m)
    edge = float(predict(algorithm, data=data).stability_edge)
    below, beyond = (replace(algorithm, step_size=share * edge) for share in (0.79, 0.81))
    assert 0 < predict(below, data=data).floor < 1
    refused = predict(beyond, data=data)
    words = ["no prediction of the floor", f"{0.81 * edge:.4g}", "above 0.8 of", f"stability_edge = {edge:.4g}"]
    assert_one_line(lambda: refused.floor, words, lf.NoPredictionError)
    assert "floor:" not in repr(refused)
    if not getattr(algorithm, "message_noise_std", 0.0):
        assert predict(beyond, replace(PROBLEM, noise_std=0.0), data=data).floor == 0


def test_m_up_to_k_is_no_movement():
    for init in (lf.AtDistance(0.6), "random"):
        found = predict(fedrep(init=init), data=lf.FixedSamples(3), trials=2)
        run = lf.simulate(fedrep(init=init), PROBLEM, data=lf.FixedSamples(3), rounds=3, trials=2)
        assert found.law == "no movement"
        assert found.distance == pytest.approx(run.metrics["subspace_distance"], rel=1e-9)
        assert_one_line(lambda found=found: found.rate, ["no prediction of the rate"], lf.NoPredictionError)


HIGHER = lf.UnderParameterized(n_clients=60, dim=20, spectrum=[9.0, 8.0, 4.0, 3.0], noise_std=0.1)
UNDER = lf.theory.under_parameterized_evolution


@pytest.mark.long
@pytest.mark.parametrize("name", ["factors", "wide", "tall"])
def test_a_truth_of_a_higher_rank(name):
    """In factors; and without, with more clients than dimensions and with fewer. The law's draws are worth 1 %."""
    if name == "factors":
        problem, (V, U) = HIGHER, (HIGHER.truth(0, [0]).W[0], HIGHER.truth(0, [0]).B[0])
    else:
        problem = lf.UnderParameterized(n_clients=25 if name == "tall" else 9, dim=14)
        Phi = problem.truth(0, [0]).dense()[0]
        left, values, U = np.linalg.svd(Phi, full_matrices=False)
        V, U = left * values, U.T
    setting = {"rank": 2, "dim": problem.dim, "n_samples": 10, "noise_std": problem.noise_std, "rounds": 4}
    found = predict(fedrep(rank=2, step_size=0.2), problem, rounds=4)
    assert found.law == "under-parameterised"
    assert found.low is None
    expected = UNDER(V, step_size=0.2, delta=0.6, **setting).distance
    assert found.distance == pytest.approx(expected, rel=0.02)
    start = np.linalg.qr(U[:, :2] + 0.1 * normal(problem.dim, 2))[0]
    given = predict(fedrep(rank=2, step_size=0.2, init=start), problem, rounds=4)
    assert given.distance == pytest.approx(UNDER(V, step_size=0.2, B0=start, U=U, **setting).distance, rel=0.02)
    del setting["rounds"]
    pulled = [text for text in found.warnings if "second moment" in text]
    pull = 0.2 * np.linalg.norm(V, 2) ** 2 / len(V)
    assert len(pulled) == (pull > 0.6)
    assert all(f"is {pull:.2g}, above" in text for text in pulled)
    floor = lf.theory.under_parameterized_floor(V, step_size=0.2, **setting)
    assert found.floor == pytest.approx(floor.distance, rel=0.02)
    lambdas = np.linalg.svd(V, compute_uv=False) ** 2 / len(V)
    assert found.rate == pytest.approx(1 - 0.2 * 0.8 * (lambdas[1] - lambdas[2]))


# --- equal numbers are one number -----------------------------------------------------------------------------

SAME = {
    "weights": (fedrep(weights=np.full(40, 7.0)), {}),
    "noise": (fedrep(), {"problem": replace(PROBLEM, noise_std=np.full(40, 0.1))}),
    "samples": (fedrep(), {"data": lf.FreshSamples(np.full(40, 10))}),
    "steps": (fedrep(step_size=np.full(3, 0.5)), {}),
    "a constant function": (fedrep(step_size=lambda t: 0.5), {}),
    "no ridge": (fedrep(heads=lf.ExactHeads(ridge=np.zeros(3))), {}),
    "one covariance": (
        fedrep(),
        {"problem": replace(PROBLEM, design=lf.Gaussian(covariance=np.broadcast_to(np.eye(30), (40, 30, 30))))},
    ),
    "whole messages": (lf.CompressedFedRep(**vars_of(fedrep()), kept_share=1.0, shared_mask=True), {}),
    "plain messages": (lf.PrivateFedRep(**vars_of(fedrep())), {}),
    "a clip that never acts": (lf.PrivateFedRep(**vars_of(fedrep()), clip=1e6), {}),
    "all of it": (
        fedrep(weights=[2.0] * 40, step_size=[0.5] * 3),
        {"problem": replace(PROBLEM, noise_std=[0.1] * 40), "data": lf.FreshSamples([10] * 40)},
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_numbers_are_one_number(name):
    """Bit for bit."""
    algorithm, changes = SAME[name]
    one, other = predict(), predict(algorithm, **changes)
    assert (one.law, one.validity, one.warnings) == (other.law, other.validity, other.warnings)
    for what in ("distance", "low", "high", "floor", "rate", "stability_edge", "best_step"):
        np.testing.assert_array_equal(getattr(one, what), getattr(other, what))


SAME_FLOORS = {
    "Oracle": (lf.Oracle(rank=3), {}, {"noise_std": [0.1] * 40}),
    "LocalOnly": (lf.LocalOnly(), {}, {"noise_std": [0.1] * 40}),
    "AltMin": (lf.AltMin(rank=3), {}, {"noise_std": [0.1] * 40}),
    "UStatistic": (lf.UStatistic(rank=3), {}, {"noise_std": [0.1] * 40}),
    "FedRep": (fedrep(), {"weights": [2.0] * 40}, {"noise_std": [0.1] * 40}),
    "FedAvg": (lf.FedAvg(step_size=0.1), {"step_size": [0.1] * 3}, {}),
    "Ditto": (lf.Ditto(step_size=0.1), {"step_size": lambda t: 0.1}, {}),
    "FLUTE": (lf.FLUTE(rank=3, step_size=0.001), {"step_size": [0.001] * 3}, {"noise_std": [0.1] * 40}),
    "no round": (fedrep(), {"step_size": lambda t: 0.5 / t}, {}),
}


@pytest.mark.parametrize("name", SAME_FLOORS)
def test_equal_numbers_have_one_floor_on_fixed_samples(name):
    algorithm, own, changes = SAME_FLOORS[name]
    rounds = 0 if name == "no round" else 3
    floors = [
        float(predict(one, problem, data=lf.FixedSamples(40), rounds=rounds).floor)
        for one, problem in ((algorithm, PROBLEM), (replace(algorithm, **own), replace(PROBLEM, **changes)))
    ]
    assert floors[0] == floors[1] > 0


def test_a_clip_acts_with_at_most_the_probability_of_its_bound():
    """And where it acts, there is no prediction."""
    problem = lf.SharedRepresentation(n_clients=9, dim=12, rank=2, noise_std=0.5)
    algorithm = lf.PrivateFedRep(rank=2, step_size=0.1, init="random", clip=8.0)
    case = case_of(algorithm, problem, lf.FreshSamples(7), rounds=20)
    rng, truth = np.random.default_rng(0), problem.truth(0, [0])
    W, B_star = heads_of(truth)
    lengths = []
    for i in range(9):
        x = rng.standard_normal((4000, 7, 12))
        y = x @ (B_star @ W[i]) + 0.5 * rng.standard_normal((4000, 7))
        B = np.linalg.qr(rng.standard_normal((12, 2)))[0]
        Z = x @ B
        heads = np.linalg.solve(Z.mT @ Z, Z.mT @ y[..., None])[..., 0]
        r = y - np.einsum("rmk,rk->rm", Z, heads)
        lengths.append(np.linalg.norm(np.einsum("rmd,rm->rd", x, r) / 7, axis=1) * np.linalg.norm(heads, axis=1))
    longer = np.mean(np.array(lengths) > 8.0) * 9 * 20
    assert 0.1 < longer < case._clipped_at_most(8.0) < np.inf
    assert np.mean(np.square(lengths)) * 9 * 20 / 64 < case._clipped_at_most(8.0)
    assert case.clip == 8.0
    assert case_of(replace(algorithm, clip=1e4), problem, lf.FreshSamples(7)).clip is None
    for changes in ({"heads": lf.GradientHeads()}, {"representation_steps": 2}, {"clip": 10.0}):
        given = replace(algorithm, clip=1e4)
        lacking = replace(given, **changes)
        assert_one_line(
            lambda lacking=lacking: lf.predict(lacking, problem, data=lf.FreshSamples(7), rounds=3).distance,
            ["clip = "],
            lf.NoPredictionError,
        )


# --- beside runs ------------------------------------------------------------------------------------------------

MEASURED = {  # of 2,000 runs by the chain: 10, 50 and 90 % after 4, 8 and 16 rounds
    "everybody": (
        {"noise_std": 0.0, "m": 12, "step_size": 0.5, "participation": 1.0},
        [[0.583, 0.364, 0.1121], [0.6134, 0.3934, 0.1245], [0.6403, 0.4214, 0.1374]],
    ),
    "half, with noise": (
        {"noise_std": 0.1, "m": 12, "step_size": 0.5, "participation": 40},
        [[0.5942, 0.3771, 0.1246], [0.6373, 0.4256, 0.1477], [0.6783, 0.4729, 0.174]],
    ),
    "m = k + 3": (
        {"noise_std": 0.0, "m": 6, "step_size": 0.4, "participation": 1.0},
        [[0.709, 0.5994, 0.3716], [0.7466, 0.6462, 0.4169], [0.7875, 0.6993, 0.4755]],
    ),
}


@pytest.mark.parametrize("name", MEASURED)
def test_measured_medians_and_bands_lie_where_predicted(name):
    setting, measured = MEASURED[name]
    W = np.random.default_rng(5).standard_normal((80, 3)) * [1.3, 1.0, 0.7]
    problem = lf.GivenTruth(B=np.eye(100, 3), W=W, noise_std=setting["noise_std"])
    algorithm = fedrep(step_size=setting["step_size"], init=lf.AtDistance(0.8))
    found = lf.predict(
        algorithm, problem, data=lf.FreshSamples(setting["m"]), rounds=16, participation=setting["participation"]
    )
    low, median, high = np.array(measured)
    chosen = [4, 8, 16]
    assert found.distance[chosen] == pytest.approx(median, rel=0.03)
    if found.low is not None:
        assert found.low[chosen] == pytest.approx(low, rel=0.04)
        assert found.high[chosen] == pytest.approx(high, rel=0.04)
        assert np.all(abs(found.distance[chosen] / median - 1) < 0.5 * (high / low - 1))


SERVES = {
    "FedRep": (fedrep(step_size=0.3), lf.FixedSamples(20), 80, 0.06),
    "AltMin": (lf.AltMin(rank=3), lf.FixedSamples(20), 8, 0.06),
    "BurerMonteiro": (lf.BurerMonteiro(rank=3), lf.FixedSamples(20), 1, 0.06),
    "LocalOnly": (lf.LocalOnly(), lf.FixedSamples(15), 1, 0.06),
    "ridge": (lf.LocalOnly(ridge=0.3), lf.FreshSamples(20), 1, 0.06),
    "Oracle": (lf.Oracle(rank=3), lf.FreshSamples(9), 1, 0.06),
    "Oracle of two": (lf.Oracle(rank=2), lf.FixedSamples(9), 1, 0.06),
    "rank 2 of 4": (fedrep(rank=2, step_size=0.2), lf.FreshSamples(10), 30, 0.06),
    "FedAvg": (lf.FedAvg(step_size=0.3, local_steps=2), lf.FixedSamples(20), 60, 1e-6),
}


@pytest.mark.long
@pytest.mark.parametrize("name", SERVES)
def test_runs_end_on_the_floor_that_is_predicted(name):
    algorithm, data, rounds, margin = SERVES[name]
    problem, trials, engine = (HIGHER, 150, "chain") if "of 4" in name else (PROBLEM, 6, "auto")
    floor = predict(algorithm, problem, data=data, rounds=0, trials=6).floor
    run = lf.simulate(
        algorithm, problem, data=data, rounds=rounds, trials=trials, record_every=rounds, engine=engine
    ).metrics[floor.metric][:, -1]
    typical = np.median if floor.metric == "subspace_distance" else np.mean
    assert typical(run) == pytest.approx(np.mean(floor), rel=margin)


@pytest.mark.parametrize("name", SERVES)
def test_a_prediction_has_the_rounds_of_the_run(name):
    algorithm, data, _, _ = SERVES[name]
    found = predict(algorithm, HIGHER if "of 4" in name else PROBLEM, data=data, rounds=3, trials=2)
    assert found.rounds.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("subspace", ["B, W, S", "Phi, B"])
def test_the_oracles_floor_is_at_the_reference_subspace(subspace):
    """Which is not the best subspace of regressors with a full-dimensional part: that would predict 7 % less."""
    truth = lf.SharedWithShortcuts(n_clients=30, dim=12, rank=2, shortcut_norm=0.5).truth(0, [0])
    parts = {"B": truth.B[0], "W": truth.W[0], "S": truth.S[0]}
    given = parts if subspace == "B, W, S" else {"Phi": truth.dense()[0], "B": truth.B[0]}
    problem, run = lf.GivenTruth(**given, noise_std=0.3), {"data": lf.FixedSamples(8)}
    floor = float(lf.predict(lf.Oracle(rank=2), problem, **run, rounds=1).floor)
    risks = lf.simulate(lf.Oracle(rank=2), problem, **run, rounds=1, trials=600).metrics["risk"][:, -1]
    assert risks.mean() == pytest.approx(floor, rel=0.02)


def test_fedavgs_rate_is_that_of_given_samples_too():
    data = lf.FixedSamples(20).draw(PROBLEM)
    drawn, given = (predict(lf.FedAvg(step_size=0.3), data=each) for each in (lf.FixedSamples(20), data))
    assert drawn.rate == pytest.approx(given.rate, rel=1e-12)
    A, _ = data.normal_equations()
    assert given.rate == pytest.approx(lf.theory.fedavg_rate(A[0], step_size=0.3), rel=1e-12)
    told = lf.FedAvg(step_size=0.3, weights="samples")
    assert predict(told, data=data).rate == pytest.approx(given.rate, rel=1e-12)
    assert lf.predict(lf.FedAvg(step_size=0.3), data=data, rounds=3).rate == pytest.approx(given.rate, rel=1e-12)


def test_flute_has_its_rate_and_its_floor():
    problem = lf.UnderParameterized(n_clients=30, dim=10, gap=4.0, gap_after=2)
    values = np.linalg.svd(problem.truth(0, [0]).dense()[0], compute_uv=False)
    found = lf.predict(lf.FLUTE(rank=2, step_size=0.01), problem, data=lf.FixedSamples(200), rounds=9)
    assert found.rate == pytest.approx(lf.theory.flute_local_rate(values, 2, 0.01))
    assert found.stability_edge == pytest.approx(1 / values[0])
    best = lf.theory.flute_local_rate(values, 2, float(found.best_step))
    assert all(lf.theory.flute_local_rate(values, 2, share * float(found.best_step)) > best for share in (0.99, 1.01))
    assert found.floor == pytest.approx(lf.theory.truncation_floor(problem.truth(0, [0]), 2, 200)[0])
    assert found.floor.metric == "mean_truncation_error"
    twice = lf.FLUTE(rank=2, step_size=0.005, server_step_size=0.01, gradient_factor=2)
    assert lf.predict(twice, problem, data=lf.FixedSamples(200), rounds=9).rate == found.rate
    truncated = lf.predict(lf.FedRep(rank=2, step_size=0.01), problem, data=lf.FixedSamples(200), rounds=9)
    assert float(truncated.floor) == float(found.floor)


def test_flute_has_a_floor_and_an_edge_on_fresh_samples():
    problem = lf.UnderParameterized(n_clients=15, dim=8, gap=4.0, gap_after=2, noise_std=0.3)
    data, truth = lf.FreshSamples(20), problem.truth(0, range(2))
    found = lf.predict(lf.FLUTE(rank=2, step_size=0.005), problem, data=data, rounds=9, trials=2)
    np.testing.assert_allclose(found.floor, lf.theory.truncation_floor(truth, 2, 20, step_size=0.005))
    with pytest.raises(lf.NoPredictionError, match="only for a ground truth of rank = 2 without label noise"):
        _ = found.stability_edge
    quiet = lf.UnderParameterized(n_clients=15, dim=8, spectrum=[2.0, 1.0])
    edge = lf.predict(lf.FLUTE(rank=2, step_size=0.005), quiet, data=data, rounds=9, trials=2).stability_edge
    np.testing.assert_allclose(edge, lf.theory.flute_stability_edge(quiet.truth(0, range(2)), 2, 20))
    assert found.floor.metric == "mean_truncation_error"
    assert "first order" in found.floor.validity
    twice = lf.FLUTE(rank=2, step_size=0.0025, server_step_size=0.005, gradient_factor=2)
    other = lf.predict(twice, problem, data=data, rounds=9, trials=2)
    np.testing.assert_allclose(other.floor, found.floor)
    halved = lf.predict(twice, quiet, data=data, rounds=9, trials=2).stability_edge
    np.testing.assert_allclose(halved, edge / 2)
    large = lf.predict(lf.FLUTE(rank=2, step_size=0.05), problem, data=lf.FreshSamples(2), rounds=9)
    assert "too low" in large.floor.validity


# --- what a law is asked ----------------------------------------------------------------------------------------


def case_of(algorithm=None, problem=PROBLEM, data=FRESH, rounds=3, participation=1.0):
    job = checked_job(algorithm or fedrep(), problem, data, rounds, participation, None, 0, [], 1, "auto")
    return FedRepRun(job, job.algorithm)


def test_a_run_of_the_sum_has_the_steps_of_the_mean():
    case = case_of(fedrep(aggregate="sum", step_size=lambda t: 0.01 * t), participation=8)
    assert case.unit == 8
    np.testing.assert_allclose(case.steps, [0.08, 0.16, 0.24], rtol=1e-14)
    assert case.sizes == {"dim": 30, "n_samples": 10, "participants": 8}
    assert {**case.setting, "step_size": 0} == {**case.sizes, "step_size": 0, "rounds": 3, "noise_std": 0.1}
    mean = case_of(fedrep(step_size=0.3), participation=8)
    assert (mean.unit, mean.steps, mean.step("")) == (1, 0.3, 0.3)


@each("n, d", [(7, 4), (4, 7), (5, 5)])
def test_heads_are_coordinates_in_an_orthonormal_basis(n, d):
    design = lf.Gaussian(covariance=2.0)
    for given, rank in (
        ({"Phi": normal(n, d)}, min(n, d)),
        ({"B": 3.0 * normal(d, 2), "W": normal(n, 2, seed=1)}, 2),
    ):
        problem = lf.GivenTruth(**given, design=design)
        truth = problem.truth(0, [0])
        W, B = heads_of(truth)
        assert W.shape == (n, rank)
        np.testing.assert_allclose(B.T @ B, np.eye(rank), rtol=0, atol=1e-13)
        np.testing.assert_allclose(W @ B.T, 2**0.5 * truth.dense()[0], rtol=0, atol=1e-12)
        whole = lf.UnderParameterized(n_clients=n, dim=d)
        assert case_of(fedrep(rank=1), whole).truth_rank == min(n, d)


def asked(case):
    """Return the first law that concerns a run, and the one that is asked if its formulas fail."""
    laws = [kind for kind in dispatch.laws_for(case.algorithm) if kind(case).concerns()]
    return laws[: 2 if laws[0].or_next else 1]


def test_which_laws_serve():
    both, means = [rounds.SecondOrder, rounds.Means], [rounds.Means]
    for m, expected in ((7, both), (6, means), (5, means)):
        assert asked(case_of(data=lf.FreshSamples(m))) == expected
    for rank, expected in ((16, both), (17, means)):
        wide = lf.SharedRepresentation(n_clients=40, dim=2 * rank, rank=rank)
        assert asked(case_of(fedrep(rank=rank), wide, lf.FreshSamples(40))) == expected
    assert asked(case_of(fedrep(weights=range(1, 41)))) == both
    assert asked(case_of(data=lf.FreshSamples([7] * 39 + [6]))) == means
    noisy = lf.PrivateFedRep(rank=3, step_size=0.5, message_noise_std=0.1)
    assert asked(case_of(noisy)) == [rounds.NoisyMessages]
    assert asked(case_of(noisy, data=lf.FreshSamples(3))) == [rounds.NoiseAlone]
    assert asked(case_of(fedrep(orthonormalize=False))) == [rounds.WithoutQR]
    heads = fedrep(heads=lf.GradientHeads())
    assert asked(case_of(heads, data=lf.FreshSamples(4))) == [rounds.GradientDescentHeads]
    assert asked(case_of(fedrep(rank=2), LARGER)) == [rounds.UnderParameterised]
    for case, words in (
        (case_of(data=lf.FreshSamples(4)), "for n_samples = rank + 1 = 4: heads have no second moments"),
        (case_of(replace(heads, init="random"), replace(PROBLEM, dim=5)), "for dim = 5 below 2 rank = 6"),
        (case_of(data=lf.FreshSamples([5] * 39 + [4])), "for a client with n_samples = 4, fewer than rank + 2 = 5"),
    ):
        assert asked(case)[0](case).why_not() == words
        assert_one_line(
            lambda case=case: law.first_prediction(case, LAWS[:13]), ["FedRep's distance", words], lf.NoPredictionError
        )


LIMITS = {
    "without QR": (
        rounds.WithoutQR,
        {"round_log_variance": 0.2, "log_std": 0.4, "selection": 0.3, "stride": 0.35, "uneven": 4.0, "few": 0.0},
        12,
    ),
    "noise on messages": (rounds.NoiseAlone, {"angles": 0.15}, 1),
    "second order": (
        rounds.SecondOrder,
        {"round_log_variance": 0.2, "log_std": 0.4, "selection": 0.3, "stride": 0.35},
        1,
    ),
    "means": (rounds.Means, {"rank": 16, "few": 0.0}, 20),
    "gradient heads": (rounds.GradientDescentHeads, {"participants": 0.4, "fewer": 0.2, "lost": 1.0}, 5),
    "under-parameterised": (
        rounds.UnderParameterised,
        {"pull": 0.6, "end": 0.4, "chance": 0.9, "few": 0.0},
        40,
    ),
}
"""Facts up to which each law is not doubted, and its smallest number of participants."""


@pytest.mark.parametrize("name", LIMITS)
def test_doubts_begin_beyond_the_range_of_a_law(name):
    """Facts of another law are no doubts of this one."""
    kind, limits, participants = LIMITS[name]
    plain = type("Plain", (kind,), {"step": None})  # without warnings about the step size

    def told(p=participants, start=0.5, **facts):
        case = SimpleNamespace(job=SimpleNamespace(sizes=SimpleNamespace(participants=p)))
        return tuple(plain(case).doubts(Curves(np.array([start, 0.1]), facts=facts)))

    others = {fact: 9.0 for _, facts, *_ in LIMITS.values() for fact in facts if fact not in limits}
    assert told(**limits, **others) == told(start=0.97) == told(start=0.97 + 1e-12) == ()
    assert set(kind.limits) == set(limits)
    for fact, limit in limits.items():
        (text,) = told(**{fact: limit + 1.0})
        assert f" {limit + 1:.2g}" in text
        assert f"above {limit}" in text or fact == "few"
        (text,) = told(**{fact: 1.0001 * limit + 1e-9})
        assert f"{limit:g} is" not in text
        assert f" {limit:g}, above" not in text
        assert told(**{fact: 0.9 * limit}) == ()
    (text,) = told(start=0.971)
    assert text.startswith("the initial distance 0.971 is above 0.97")
    if participants > 1:
        (text,) = told(p=participants - 1)
        assert text.startswith(f"a round has {participants - 1} participants, fewer than {participants}")


def test_steps_are_doubted_beyond_a_multiple_of_the_best_and_from_the_edge_on():
    def told(*steps, limit=1.4, spanned=True):
        here = SimpleNamespace(edge=lambda: 3.0, best=lambda: 1.0, spanned=spanned)
        algorithm = SimpleNamespace(rank=2)
        return step_doubts(SimpleNamespace(steps=np.array(steps), maps=[here], unit=2, algorithm=algorithm), limit)

    assert told() == told(1.4) == told(0.1, 1.4, 0.3) == told(2.4, limit=2.4) == []
    assert told(0.3, 1.5)[0].startswith("step_size = 0.75 is 1.5 times best_step, above 1.4")
    assert told(3.0, limit=9.0)[0].startswith("step_size = 1.5 is not below stability_edge = 1.5")
    assert told(2.9, limit=9.0) == []
    assert "fewer than rank = 2 dimensions" in told(0.1, spanned=False)[0]
    assert (rounds.Means.step, rounds.SecondOrder.step) == (1.4, None)


def test_single_trials_are_joined_with_the_largest_of_their_facts():
    one, two = (
        Curves(np.array([0.5, 0.2]), facts={"a": 1.0, "b": 3.0}),
        Curves(np.array([0.4, 0.3]), facts={"a": 2.0, "b": 1.0}),
    )
    both = joined([one, two])
    assert both.distance.tolist() == [[0.5, 0.2], [0.4, 0.3]]
    assert (both.low, both.high, both.facts) == (None, None, {"a": 2.0, "b": 3.0})
    bands = joined([each._replace(low=each.distance / 2, high=2 * each.distance) for each in (one, two)])
    np.testing.assert_array_equal(4 * bands.low, bands.high)
    assert bands.high[1, 0] == 0.8


def test_the_facts_of_a_truth_of_a_higher_rank():
    """The largest step counts, at the largest second moment of the clients."""
    for m, few in ((10, {}), (6, {}), (5, {"few": 5.0})):
        case = case_of(fedrep(rank=2, step_size=[0.1, 0.3, 0.2]), HIGHER, lf.FreshSamples(m))
        found = rounds.UnderParameterised(case).curves()
        assert found.facts["pull"] == pytest.approx(0.3 * 9.0**2 / 60, rel=1e-9)
        assert found.facts["end"] == found.distance[0, -1]
        assert {name: value for name, value in found.facts.items() if name == "few"} == few


@pytest.mark.parametrize("step", [0.05, 1.7])
def test_near_the_top_subspace_two_gaps_decide_the_rate(step):
    """The one after the k-th value, and at large steps that of all; without values beyond the rank, and with them."""
    for problem, below in ((HIGHER, 0.0), (lf.GivenTruth(Phi=normal(25, 6), noise_std=0.1), None)):
        case = case_of(fedrep(rank=2, step_size=step), problem)
        values = np.linalg.svd(problem.truth(0, [0]).dense()[0], compute_uv=False) ** 2 / problem.n_clients
        if below is None:
            below = values[5]
        share = step * (1 - 2 / 10)
        wanted = max(abs(1 - share * (values[1] - values[2])), abs(1 - share * (values[0] - below)))
        found = rounds.UnderParameterised(case)
        assert found.rate().value == pytest.approx([wanted], rel=1e-12)
        if step < 1:
            sizes = {"dim": problem.dim, "n_samples": 10, "participants": problem.n_clients}
            W = heads_of(problem.truth(0, [0]))[0]
            floor = lf.theory.under_parameterized_floor(W, rank=2, step_size=step, noise_std=0.1, **sizes).distance
            assert found.floor().value == pytest.approx([floor], rel=1e-9)


@pytest.mark.parametrize("unit", [1, 20])
def test_the_largest_stable_step_on_fixed_samples_by_hand(unit):
    k, d, n, m = 2, 12, 20, 9
    changes = {"aggregate": "sum"} if unit > 1 else {}

    def told(problem, step_size=9.0):
        algorithm = fedrep(rank=k, step_size=step_size, init="random", **changes)
        return lf.predict(algorithm, problem, data=lf.FixedSamples(m), rounds=1).warnings

    W = normal(n, k)
    largest = np.linalg.norm(W, 2) ** 2 / n * (1 - k / m) * (1 + np.sqrt((d - k) * k / (n * (m - k)))) ** 2
    problem = lf.GivenTruth(B=basis(d, k), W=W)
    (text,) = told(problem)
    assert (
        f"step_size = 9 is not below {2 / largest / unit:.4g}, about the largest stable one for n_samples = 9" in text
    )
    assert told(problem, 0.999 * 2 / largest / unit) == ()
    for dim, beyond in ((12, 0.0), (3, 1.0)):
        higher = lf.UnderParameterized(n_clients=n, dim=dim, spectrum=[3.0, 2.0, 1.0])
        (text,) = told(higher)
        assert f"is not below {2 * n / (9.0 - beyond) / unit:.4g}, about the largest stable one for large" in text


# --- floors of clients alone, of exact heads and of minima ---------------------------------------------------------


def test_floors_are_means_over_clients():
    sizes, noise = {"n_samples": 15}, 0.4
    Phi = normal(12, 6)
    problem = lf.GivenTruth(Phi=Phi, noise_std=noise)
    run = {"data": lf.FreshSamples(15), "rounds": 2}
    lengths = np.linalg.norm(Phi, axis=1)
    for ridge in (0.0, 0.4):
        wanted = lf.theory.local_mean_risk(lengths, noise_std=noise, dim=6, ridge=ridge, **sizes).mean()
        assert lf.predict(lf.LocalOnly(ridge=ridge), problem, **run).floor == pytest.approx(wanted, rel=1e-12)
    top = np.linalg.svd(Phi)[2][:2]
    B, W, S = basis(6, 2), normal(12, 2, seed=1), 0.3 * normal(12, 6, seed=2)
    for kind, regressors, rows in (
        ({"Phi": Phi}, Phi, top),
        ({"Phi": Phi, "B": B}, Phi, B.T),
        ({"B": B, "W": W, "S": S}, W @ B.T + S, B.T),
        ({"B": B, "W": W}, W @ B.T, B.T),
        ({"B": normal(6, 3), "W": normal(12, 3)}, normal(12, 3) @ normal(6, 3).T, None),
    ):
        rows = np.linalg.svd(regressors)[2][:2] if rows is None else rows
        outside = np.linalg.norm(regressors - regressors @ rows.T @ rows, axis=1)
        wanted = lf.theory.new_client_mean_risk(outside, noise_std=noise, rank=2, **sizes).mean()
        found = lf.predict(lf.Oracle(rank=2), lf.GivenTruth(**kind, noise_std=noise), **run)
        assert found.floor == pytest.approx(wanted, rel=1e-12)
        assert found.distance.tolist() == [0.0, 0.0, 0.0]


VARIANCES = {
    "LocalOnly": (lf.LocalOnly(), lf.LocalOnly()),
    "ridge": (lf.LocalOnly(ridge=1.0), lf.LocalOnly(ridge=0.4)),
    "Oracle": (lf.Oracle(rank=3), lf.Oracle(rank=3)),
    "U-statistic": (lf.UStatistic(rank=3), lf.UStatistic(rank=3)),
    "AltMin": (lf.AltMin(rank=3), lf.AltMin(rank=3)),
}


@pytest.mark.parametrize("name", VARIANCES)
def test_x_of_another_variance_is_that_of_longer_regressors(name):
    """The penalty of a ridge is then divided by the variance."""
    B, W = normal(12, 3), normal(40, 3, seed=1) / 3
    scaled = lf.GivenTruth(B=B, W=W, noise_std=0.3, design=lf.Gaussian(covariance=2.5))
    plain = lf.GivenTruth(B=B, W=2.5**0.5 * W, noise_std=0.3)
    one, other = (
        lf.predict(algorithm, problem, data=lf.FixedSamples(60), rounds=1).floor
        for algorithm, problem in zip(VARIANCES[name], (scaled, plain), strict=True)
    )
    assert one == pytest.approx(float(other), rel=1e-9)
    heads = 2.5**0.5 * W @ ref.qr_positive(B)[1].T
    sizes = {"dim": 12, "n_samples": 60, "noise_std": 0.3}
    if name == "U-statistic":
        wanted = lf.theory.spectral_floor(VARIANCES[name][0], heads, **sizes).distance
        assert one == pytest.approx(float(wanted), rel=0.01)
    if name == "AltMin":
        assert one == pytest.approx(float(lf.theory.fixed_sample_floor(heads, **sizes).distance), rel=1e-6)


def test_flutes_edge_and_best_step_of_trials():
    problem = lf.UnderParameterized(n_clients=15, dim=8, gap=4.0, gap_after=2)
    run = {"data": lf.FixedSamples(200), "rounds": 1}
    values = np.linalg.svd(problem.truth(0, range(2)).dense(), compute_uv=False)
    found = lf.predict(lf.FLUTE(rank=2, step_size=0.001), problem, trials=2, **run)
    np.testing.assert_allclose(found.stability_edge, 1 / values[:, 0], rtol=1e-12)
    # 1 - eta (lambda_k - lambda_(k+1)) = 2 eta lambda_1 - 1
    wanted = 2 / (2 * values[:, 0] + values[:, 1] - values[:, 2])
    np.testing.assert_allclose(found.best_step, wanted, rtol=1e-12)
    twice = lf.predict(
        lf.FLUTE(rank=2, step_size=0.001, server_step_size=0.002, gradient_factor=2), problem, trials=2, **run
    )
    np.testing.assert_allclose(2 * twice.stability_edge, found.stability_edge, rtol=1e-12)
    np.testing.assert_allclose(2 * twice.best_step, found.best_step, rtol=1e-12)
    edge = float(found.stability_edge.value.min())
    for share, kept in ((0.999, True), (1.0, False)):
        at = lf.predict(lf.FLUTE(rank=2, step_size=share * edge), problem, trials=2, **run)
        if kept:
            assert at.floor.value.shape == (2,)
        else:
            assert_one_line(lambda at=at: at.floor, [f"stability_edge = {edge:.4g}"], lf.NoPredictionError)


def test_the_metric_of_a_floor_is_that_of_the_truth_if_the_rank_suffices():
    for rank, metric in ((2, "mean_truncation_error"), (3, "mean_client_error"), (4, "mean_client_error")):
        assert truncation_metric(PROBLEM, rank) == metric
    assert truncation_metric(lf.UnderParameterized(n_clients=9, dim=5), 5) == "mean_truncation_error"


# --- what is missing, and what is doubtful ----------------------------------------------------------------------


def lacks(fragments, algorithm=None, problem=PROBLEM, ask="distance", **changes):
    return lambda: getattr(predict(algorithm, problem, **changes), ask), fragments


LOCAL, ONE_LAYER = lf.LocalOnly(), lf.FedAvg(step_size=0.1)
MISSING = {
    "fixed samples": lacks(["FedRep's distance", "FixedSamples", "share their samples"], data=lf.FixedSamples(9)),
    "design": lacks(["Rademacher"], problem=lf.SharedRepresentation(n_clients=9, dim=9, rank=3, design="rademacher")),
    "covariance": lacks(
        ["Gaussian and isotropic"],
        problem=lf.SharedRepresentation(
            n_clients=9, dim=9, rank=3, design=lf.Gaussian(covariance=np.arange(1.0, 10.0))
        ),
    ),
    "ridge": lacks(["heads = ExactHeads(ridge=0.1)"], fedrep(heads=lf.ExactHeads(ridge=0.1))),
    "turned heads": lacks(["rotate_heads = True"], fedrep(heads=lf.GradientHeads(), rotate_heads=True)),
    "steps of B": lacks(["representation_steps = 2"], fedrep(representation_steps=2)),
    "given participants": lacks(["drawn at random"], participation=np.zeros((3, 1), dtype=int)),
    "another part": lacks(
        ["SharedWithShortcuts", "other than the top-k subspace"],
        problem=lf.SharedWithShortcuts(n_clients=9, dim=9, rank=3, shortcut_norm=0.1),
    ),
    "rank of gradient heads": lacks(["ground truth of rank 3", "rank = 2"], fedrep(rank=2, heads=lf.GradientHeads())),
    "another reference": lacks(
        ["GivenTruth", "other than the top-k subspace"],
        problem=lf.GivenTruth(Phi=normal(9, 30), B=basis(30, 3)),
        rounds=1,
    ),
    "edge above the rank": lacks(["no prediction of the stability edge"], fedrep(rank=2), ask="stability_edge"),
    "dimension": lacks(
        ["dim = 5", "2 rank = 6"], fedrep(init="random"), lf.SharedRepresentation(n_clients=9, dim=5, rank=3)
    ),
    "m = k + 1": lacks(["n_samples = rank + 1 = 4"], data=lf.FreshSamples(4)),
    "start": lacks(["columns are not orthonormal"], fedrep(init=2 * basis(30, 3))),
    "overflow": lacks(["'means' is not available", "too large"], fedrep(step_size=1e200)),
    "schedule of heads": lacks(
        ["is a schedule"], fedrep(step_size=lambda t: 0.01 / t, aggregate="sum", heads=lf.GradientHeads())
    ),
    "no truth": (
        lambda: lf.predict(fedrep(init="moments"), data=lf.FixedSamples(9).draw(PROBLEM), rounds=1),
        ["ground truth", "problem="],
    ),
    "floor beyond the edge": lacks(["below stability_edge"], fedrep(step_size=3.0), ask="floor"),
    "rate of gradient heads": lacks(["no prediction of the rate"], fedrep(heads=lf.GradientHeads()), ask="rate"),
    "shortcuts": lacks(["no prediction", "FedRepShortcut"], lf.FedRepShortcut(rank=3, step_size=0.1)),
    "two layers": lacks(["rank = 2", "one layer"], lf.FedAvg(step_size=0.1, rank=2)),
    "FedAvg, fresh": lacks(["FreshSamples", "single_model_floor"], ONE_LAYER),
    "FedAvg, named": lacks(
        ["given participants"], ONE_LAYER, data=lf.FixedSamples(9), participation=np.array([[0, 1]] * 3)
    ),
    "FedAvg, minibatches": lacks(["local_epochs = 1"], lf.FedAvg(step_size=0.1, local_epochs=1, batch_size=3)),
    "FedSCAVAR's windows": lacks(
        ["model_share = 0.5"], lf.FedSCAVAR(step_size=0.1, clusters=2, model_share=0.5), data=lf.FixedSamples(9)
    ),
    "FedRolex, some": lacks(
        ["FedRolex", "for 3 of 40 participants", "mean square", "upper bound"],
        lf.FedRolex(step_size=0.1, model_share=0.5),
        data=lf.FixedSamples(9),
        participation=3,
    ),
    "FedRolex diverges": lacks(
        ["diverges"], lf.FedRolex(step_size=9.0, model_share=0.5), data=lf.FixedSamples(9), ask="floor"
    ),
    "FedAvg in law": lacks(["in_law = True"], ONE_LAYER, data=lf.FixedSamples(40, in_law=True)),
    "FedAvg, scheduled": lacks(
        ["FedAvg", "step_size = (0.1, 0.05,", "a schedule", "one number for all rounds"],
        lf.FedAvg(step_size=lambda t: 0.1 / t),
        data=lf.FixedSamples(9),
    ),
    "FedAvg diverges": lacks(["diverges"], lf.FedAvg(step_size=9.0), data=lf.FixedSamples(9), ask="floor"),
    "FedAvg without a truth": (
        lambda: lf.predict(ONE_LAYER, data=lf.FixedSamples(9).draw(PROBLEM), rounds=1).floor,
        ["ground truth", "problem="],
    ),
    "one layer": lacks(["no representation"], ONE_LAYER, data=lf.FixedSamples(9)),
    "some on fixed samples": lacks(["4 of 40 participants"], data=lf.FixedSamples(9), participation=4, ask="floor"),
    "AltMin, fresh": lacks(["AltMin", "only for FixedSamples"], lf.AltMin(rank=3)),
    "AltMin, split": lacks(["split = True"], lf.AltMin(rank=3, split=True), data=lf.FixedSamples(9)),
    "AltMin, some": lacks(["4 of 40"], lf.AltMin(rank=3), data=lf.FixedSamples(9), participation=4),
    "BurerMonteiro, rank": lacks(["rank 3 and rank = 2"], lf.BurerMonteiro(rank=2), data=lf.FixedSamples(9)),
    "BurerMonteiro, m": lacks(["n_samples = 4", "rank + 2 = 5"], lf.BurerMonteiro(rank=3), data=lf.FixedSamples(4)),
    "local": lacks(["no representation"], LOCAL),
    "local, given": lacks(["GivenSamples"], LOCAL, data=lf.FixedSamples(9).draw(PROBLEM)),
    "local, design": lacks(
        ["Rademacher"], LOCAL, lf.SharedRepresentation(n_clients=9, dim=9, rank=3, design="rademacher")
    ),
    "local, rate": lacks(["no prediction of the rate"], LOCAL, ask="rate"),
    "FLUTE's weights": lacks(["gamma1", "(0.3, 0.125, 1.0)"], lf.FLUTE(rank=2, step_size=0.1, gamma1=0.3)),
    "FLUTE, some": lacks(["FLUTE", "4 of 40 participants"], lf.FLUTE(rank=2, step_size=0.1), participation=4),
    "FLUTE, fresh": lacks(["best step", "FreshSamples"], lf.FLUTE(rank=2, step_size=0.1), ask="best_step"),
    "FLUTE, fresh, beyond the edge": lacks(["below 1 / lambda_1"], lf.FLUTE(rank=2, step_size=9.0), ask="floor"),
    "FLUTE, fixed, beyond the edge": lacks(
        ["step_size = 9", "below stability_edge"],
        lf.FLUTE(rank=2, step_size=9.0),
        data=lf.FixedSamples(9),
        ask="floor",
    ),
    "weights on fixed samples": lacks(
        ["different weights"],
        fedrep(rank=2, init="random", weights=range(1, 41)),
        lf.UnderParameterized(n_clients=40, dim=30, spectrum=[4.0, 3.0, 1.0]),
        data=lf.FixedSamples(9),
        ask="floor",
    ),
    "spectral, few dimensions": lacks(
        ["dim = 5", "2 rank = 6"],
        lf.UStatistic(rank=3),
        lf.SharedRepresentation(n_clients=9, dim=5, rank=3),
        data=lf.FixedSamples(9),
        ask="floor",
    ),
    "FLUTE, fresh, no gap": lacks(["lambda_k is 0"], lf.FLUTE(rank=4, step_size=0.001), ask="stability_edge"),
    "FLUTE, fresh, other x": lacks(
        ["standard Gaussian"],
        lf.FLUTE(rank=2, step_size=0.001),
        problem=lf.SharedRepresentation(n_clients=9, dim=9, rank=3, design="rademacher"),
        ask="stability_edge",
    ),
    "FLUTE, round by round": lacks(["FLUTE's distance"], lf.FLUTE(rank=2, step_size=0.1)),
}


@each("name", MISSING)
def test_what_is_missing_is_said_in_one_line(name):
    call, fragments = MISSING[name]
    assert_one_line(call, fragments, lf.NoPredictionError)


def test_arguments_are_those_of_simulate():
    assert_one_line(lambda: predict(rounds=-1), ["rounds = -1"])
    assert_one_line(lambda: predict(trials=0), ["trials = 0"])
    assert_one_line(lambda: lf.predict(fedrep(), data=FRESH, rounds=1), ["requires problem="])
    assert_one_line(lambda: predict(fedrep(step_size=[0.1, 0.2])), ["2 values", "rounds = 3"])


LARGE = lf.SharedRepresentation(n_clients=60, dim=100, rank=2)
DOUBTS = {
    "few samples": ({}, {"data": lf.FreshSamples(4)}, "n_samples = 4 is at most rank + 3"),
    "few clients": ({}, {"participation": 3}, "the choice of participants changes the pull on B"),
    "a large step of few": ({"step_size": 2.4}, {"participation": 9}, "a single participant moves B by"),
    "heavy clients": (
        {"weights": np.r_[np.ones(57), np.full(3, 50.0)]},
        {"participation": 20},
        "the choice of participants changes the pull on B",
    ),
    "few clients for means": ({}, {"participation": 12, "data": lf.FreshSamples(5)}, "a round has 12 participants"),
    "many angles": (
        {"rank": 17},
        {"problem": lf.SharedRepresentation(n_clients=60, dim=40, rank=17), "data": lf.FreshSamples(60)},
        "rank = 17 is above 16: the largest of many angles",
    ),
    "far": ({"init": lf.AtDistance(0.98)}, {}, "the initial distance 0.98 is above 0.97"),
    "large step": ({"step_size": 1.3}, {"data": lf.FreshSamples(5)}, "step_size = 1.3 is 1."),
    "past the edge": ({"step_size": 3.0}, {"data": lf.FreshSamples(5)}, "step_size = 3 is not below stability_edge ="),
    "rough": ({"step_size": 1.2}, {"participation": 3}, "to the variance of log distance"),
    "far from U_k": (
        {"step_size": 0.3},
        {"problem": lf.UnderParameterized(n_clients=60, dim=20)},
        "far from U_k",
    ),
    "strong pull": ({"step_size": 1.0}, {"problem": HIGHER}, "was not tested there"),
    "spread": ({"step_size": 1.2}, {"participation": 3, "rounds": 25}, "log distance spreads by"),
    "long away": (
        {"heads": lf.GradientHeads(steps=9, step_size=0.3)},
        {"participation": 12, "rounds": 20, "problem": lf.SharedRepresentation(n_clients=60, dim=40, rank=2)},
        "participants add",
    ),
    "less long away": (
        {"heads": lf.GradientHeads(steps=9, step_size=0.2)},
        {"participation": 12, "rounds": 20, "problem": lf.SharedRepresentation(n_clients=60, dim=40, rank=2)},
        "above 0.4: the median may be more than 10 % off",
    ),
    "few long away": (
        {"heads": lf.GradientHeads(steps=9, step_size=0.2)},
        {"participation": 8, "rounds": 20, "problem": lf.SharedRepresentation(n_clients=60, dim=40, rank=2)},
        "fewer than 12 participants add",
    ),
    "large head steps": ({"heads": lf.GradientHeads(steps=9, step_size=0.9)}, {}, "above 1.0: few and rare batches"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_where_the_picture_fails_it_says_so(name):
    algorithm, run, said = DOUBTS[name]
    problem, changes = run.get("problem", LARGE), {key: value for key, value in run.items() if key != "problem"}
    found = predict(
        lf.FedRep(**{"rank": 2, "step_size": 0.5, "init": lf.AtDistance(0.5)} | algorithm), problem, **changes
    )
    assert any(said in text for text in found.warnings)
    assert said in repr(found)
    assert not any("\n" in text for text in found.warnings)


def test_a_prediction_needs_the_memory_of_a_truth_and_of_fixed_samples(monkeypatch):
    asked = []
    monkeypatch.setattr(dispatch, "check_fits", lambda floats, *words: asked.append(floats))
    for algorithm, data, samples in (
        (fedrep(), FRESH, []),
        (fedrep(), FIXED, []),
        (ONE_LAYER, lf.FixedSamples(9), [40 * (9 * 31 + 30 * 31)]),
        (lf.Ditto(step_size=0.1), lf.FixedSamples(9), [40 * (9 * 31 + 30 * 31)]),
    ):
        asked.clear()
        lf.predict(algorithm, PROBLEM, data=data, rounds=1, trials=3)
        truth = PROBLEM.floats_per_trial()
        assert asked == [4 * truth, 3 * (truth + 3 * 2), *samples]


def test_numbers_are_told_to_four_digits_and_several_by_their_ends():
    assert as_text(0.123456) == as_text([0.123456, 0.123461]) == "0.1235"
    assert as_text([2.0, 0.123456, 7.0]) == "0.1235 .. 7"


def test_without_doubts_it_says_where_the_chain_is_as_good():
    algorithm = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.5))
    found = predict(algorithm, LARGE)
    assert found.warnings == ()
    (note,) = found.notes
    assert "trials=300, engine='chain'" in note
    assert predict(algorithm, lf.SharedRepresentation(n_clients=1001, dim=100, rank=2)).notes == ()
    assert predict(algorithm, lf.SharedRepresentation(n_clients=60, dim=5, rank=2)).notes == ()  # no frame fits


@pytest.mark.parametrize(("n", "dim", "k", "m", "edge"), [(400, 12, 3, 6, 3.0), (20, 60, 2, 20, 0.9)])
def test_a_step_beyond_the_edge_of_fixed_samples_is_doubted(n, dim, k, m, edge):
    """Few samples or clients spread the curvatures: runs just below the edge converge, those above it do not."""
    problem, told = lf.SharedRepresentation(n_clients=n, dim=dim, rank=k, noise_std=0.02, condition_number=1.0), {}
    for share in (0.85, 1.2):
        algorithm = lf.FedRep(rank=k, step_size=share * edge, init=lf.AtDistance(0.1))
        run = {"data": lf.FixedSamples(m), "rounds": 300, "seed": 3}
        told[share] = lf.predict(algorithm, problem, **run).warnings
        last = lf.simulate(algorithm, problem, **run, trials=4).metrics["subspace_distance"][:, -2:]
        still = np.abs(np.diff(last, axis=1)) < 1e-9
        assert still.all() if share < 1 else not still.any()
    assert told[0.85] == ()
    assert f"for n_samples = {m}" in told[1.2][0]
    assert lf.predict(lf.FedRep(rank=k, step_size=1.2 * edge), problem, data=lf.FixedSamples(m), rounds=0).warnings
    heads = lf.SharedRepresentation(n_clients=n, dim=dim, rank=k, condition_number=2.0).truth(3, [0]).W[0]
    assert np.linalg.cond(heads) == pytest.approx(2.0)
    uneven = lf.GivenTruth(B=np.eye(dim)[:, :k], W=heads)
    text = lf.predict(lf.FedRep(rank=k, step_size=9.0), uneven, data=lf.FixedSamples(m), rounds=1).warnings[0]
    ratio = edge / (np.linalg.norm(heads, 2) ** 2 / n)  # the largest curvature decides
    assert float(text.split("below ")[1].split(",")[0]) == pytest.approx(ratio, rel=0.02)
    schedule = lf.FedRep(rank=k, step_size=[1.2 * edge, 0.1], init=lf.AtDistance(0.1))
    assert lf.predict(schedule, problem, data=lf.FixedSamples(m), rounds=2).warnings == ()  # it falls below the edge


def test_equal_singular_values_have_no_edge_on_fixed_samples():
    problem = lf.UnderParameterized(n_clients=4, dim=4, spectrum=[1.0, 1.0, 1.0, 1.0], noise_std=0.1)
    silent = lf.GivenTruth(B=np.eye(9)[:, :2], W=np.zeros((5, 2)))
    for one in (problem, silent):
        assert lf.predict(lf.FedRep(rank=2, step_size=9.0), one, data=lf.FixedSamples(20), rounds=1).warnings == ()


def test_noise_that_differs_between_clients_on_fixed_samples():
    """The distance from the truncation has the noise of each client in its closed form."""
    noise = np.linspace(0.05, 0.5, 50)
    problem = lf.UnderParameterized(n_clients=50, dim=8, spectrum=[6.0, 5.0, 2.0, 1.0], noise_std=noise)
    run = {"data": lf.FixedSamples(200), "rounds": 200, "seed": 3, "trials": 10}
    found = lf.predict(lf.FedRep(rank=2, step_size=0.5), problem, **run).floor
    last = lf.simulate(lf.FedRep(rank=2, step_size=0.5), problem, **run).final.predictors()
    U, s, Vt = np.linalg.svd(problem.truth(3, range(10)).dense(), full_matrices=False)
    off = last - (U[..., :2] * s[:, None, :2]) @ Vt[:, :2]
    ratio = np.square(off).sum(axis=-1).mean(axis=-1) / np.asarray(found) ** 2
    assert 0.85 < ratio.mean() < 1.15  # over ten data sets


def test_heads_that_leave_a_direction_out():
    found = predict(problem=lf.SharedRepresentation(n_clients=2, dim=30, rank=3), data=lf.FreshSamples(6))
    assert_one_line(lambda: found.best_step, ["heads span fewer than rank = 3"], lf.NoPredictionError)
    assert any("not every angle falls" in text for text in found.warnings)


# --- numbers that say where they come from, results and figures ---------------------------------------------------


def test_a_quantity_computes_as_its_number():
    found = predict(trials=2).rate
    assert "theory.near_truth_factor" in found.source
    assert "subspace_distance" in repr(found)
    assert np.array_equal(2 * found, 2 * found.value)
    assert np.array_equal(np.sqrt(found), np.sqrt(found.value))
    assert np.array_equal(np.asarray(found), found.value)
    one = predict().rate
    assert one < 1 < 1 / one
    assert f"{float(one):.4g}" in repr(one)


def test_a_prediction_tells_itself():
    found = predict()
    assert "floor: computed when prediction.floor is read" in repr(found)
    assert f"{float(found.floor):.4g}" not in repr(predict())
    told = repr(found)
    assert told.startswith("<Prediction 'second order', 3 rounds of trial 0>\ndistance: from 0.6 to 0.")
    for part in (
        "10 and 90 % quantiles of runs",
        "floor: 0.",
        "(subspace_distance)",
        "rate: 0.",
        "stability_edge: ",
        "best_step: ",
    ):
        assert part in told
    assert "floor" not in repr(predict(fedrep(step_size=3.0)))  # which is past the edge
    assert "best_step: " in repr(predict(fedrep(step_size=lambda t: 0.5 / t)))  # without a floor and a rate
    assert "distance" not in repr(predict(LOCAL))


def test_the_prediction_of_a_result_is_that_of_its_arguments():
    run = lf.simulate(fedrep(), PROBLEM, data=FRESH, rounds=3, trials=3, participation=20, seed=2, record_every=2)
    expected = predict(participation=20, seed=2, trials=3)
    assert_same_prediction(lf.predict(run), expected)
    assert_same_prediction(lf.predict(run, trials=2), predict(participation=20, seed=2, trials=2))
    one = lf.predict(lf.simulate(fedrep(), PROBLEM, data=FRESH, rounds=3))
    assert one.distance.shape == (1, 4)
    personal = lf.simulate(lf.FedPer(rank=3, step_size=0.1), PROBLEM, data=FRESH, rounds=1)
    assert_one_line(lambda: lf.predict(personal), ["no prediction", "FedPer"], lf.NoPredictionError)


def test_a_final_step_is_no_round_of_a_prediction():
    anil = lf.simulate(lf.FedAvg(step_size=0.1, fine_tune=None), FEW, data=FIXED, rounds=4)
    tuned = replace(anil, algorithm=lf.PerFedAvg(step_size=0.1, adaptation_step_size=0.1), rounds=np.arange(6))
    assert tuned.has_final_step
    assert lf.predict(tuned).rounds.tolist() == [0, 1, 2, 3, 4]


GIVEN_TWICE = {"problem": PROBLEM, "data": FRESH, "rounds": 3, "participation": 1.0, "seed": 0}


@each("name", GIVEN_TWICE)
def test_a_result_brings_its_own_arguments(name):
    run = lf.simulate(fedrep(), PROBLEM, data=FRESH, rounds=3)
    words = [f"predict(result) takes {name} from the result", "only trials="]
    assert_one_line(lambda: lf.predict(run, **{name: GIVEN_TWICE[name]}), words, TypeError)


@each("name", ["data", "rounds"])
def test_an_algorithm_needs_data_and_rounds(name):
    rest = {key: value for key, value in {"data": FRESH, "rounds": 3}.items() if key != name}
    assert_one_line(
        lambda: lf.predict(fedrep(), PROBLEM, **rest), [f"{name} = None must be given with an algorithm"], TypeError
    )


def test_a_prediction_says_which_trials_it_is_of():
    for trials, words in (
        (None, "3 rounds of trial 0>"),
        (1, "3 rounds of trial 0>"),
        (4, "3 rounds of trials 0 to 3>"),
    ):
        found = predict(trials=trials)
        assert found.trials == trials
        assert words in repr(found)
        assert words[:-1] in found._repr_html_()


@each("trials", [10**9, 10**18])
@each("algorithm", [fedrep(), fedrep(heads=lf.GradientHeads()), lf.AltMin(rank=3), lf.FedAvg(step_size=0.1)])
@each("data", [FRESH, FIXED, lf.GivenSamples(normal(40, 9, 30), normal(40, 9))])
def test_more_trials_than_memory_are_refused(algorithm, data, trials):
    problem = None if isinstance(data, lf.GivenSamples) and isinstance(algorithm, lf.FedAvg) else PROBLEM
    words = [f"trials = {trials} with rounds = 3 would take", "fewer trials"]
    assert_one_line(lambda: predict(algorithm, problem, data=data, trials=trials), words, lf.SizeError)


# --- pickling ------------------------------------------------------------------------------------------------------


def told(prediction, name):
    """Return an attribute of a prediction as comparable values, or the message if it is not available."""
    try:
        found = getattr(prediction, name)
    except lf.NoPredictionError as error:
        return str(error)
    if isinstance(found, Quantity):
        return found.value.tolist(), found.source, found.validity, found.metric
    return np.asarray(found).tolist()


def assert_same_prediction(one, other):
    names = [name for name in dir(Prediction) if not name.startswith("_")]
    assert {"distance", "low", "high", "floor", "rate", "stability_edge", "best_step", "trials"} <= {*names}
    for name in {*names, *(field.name for field in fields(Prediction) if not field.name.startswith("_"))}:
        assert told(one, name) == told(other, name), name
    assert repr(one) == repr(other)


@each("trials", [None, 2])
@each("kind", LAWS)
def test_a_prediction_is_the_same_after_pickling(kind, trials):
    algorithms, problem, data = RUNS_OF_THE_TABLE[kind]
    for algorithm in algorithms:
        found = lf.predict(algorithm, problem, data=data, rounds=3, trials=trials)
        assert_same_prediction(
            pickle.loads(pickle.dumps(found)), lf.predict(algorithm, problem, data=data, rounds=3, trials=trials)
        )
        assert_same_prediction(copy.deepcopy(found), found)
        again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(found))))
        assert_same_prediction(again, found)


def test_a_prediction_of_functions_and_of_unstable_runs_is_pickled():
    """A step size that is a function cannot be pickled, and past the edge there is no floor."""
    for algorithm in (fedrep(step_size=lambda t: 0.5 / t), fedrep(step_size=3.0)):
        found = predict(algorithm)
        assert_same_prediction(pickle.loads(pickle.dumps(found)), found)
        assert_one_line(lambda found=found: pickle.loads(pickle.dumps(found)).floor, ["floor"], lf.NoPredictionError)


def test_a_quantity_without_memory_does_not_prevent_pickling():
    def floor():
        raise lf.SizeError("no memory for the floor")

    found = replace(predict(), _quantities={"floor": floor, "rate": lambda: Quantity(np.ones(1), "source", "range")})
    again = pickle.loads(pickle.dumps(found))
    assert float(again.rate) == 1.0
    assert_one_line(lambda: again.floor, ["no memory for the floor"], lf.NoPredictionError)


# --- figures -------------------------------------------------------------------------------------------------------


def test_a_plot_draws_the_prediction_that_it_is_given():
    run = lf.simulate(fedrep(), PROBLEM, data=FRESH, rounds=3, trials=3)
    found = replace(lf.predict(run), warnings=("a doubt",))
    ax = run.plot("subspace_distance", prediction=found)
    measured, low, high, median = ax.get_lines()
    assert np.array_equal(median.get_ydata(), np.median(found.distance, axis=0))
    assert np.array_equal(low.get_ydata(), np.median(found.low, axis=0))
    assert np.array_equal(high.get_ydata(), np.median(found.high, axis=0))
    assert {line.get_color() for line in (low, high, median)} == {"black"} != {measured.get_color()}
    assert (median.get_label(), median.get_linestyle()) == ("predicted, trials 0 to 2, with warnings", "--")
    run.plot("subspace_distance", prediction=found, ax=ax)
    assert ax.get_legend_handles_labels()[1].count("predicted, trials 0 to 2, with warnings") == 1
    first, longer = predict(rounds=5), predict(trials=7)
    for given, words in ((first, "predicted, trial 0"), (longer, "predicted, trials 0 to 6")):
        run.plot("subspace_distance", prediction=replace(given, warnings=()), ax=ax)
        line = ax.get_lines()[-1]
        assert (line.get_label(), line.get_linestyle()) == (words, "-")
        assert np.array_equal(line.get_ydata(), np.median(np.atleast_2d(given.distance), axis=0))
    plain = plt.figure().subplots()
    run.plot("subspace_distance", ax=plain)
    assert len(plain.get_lines()) == 1
    words = ["prediction= requires metric = 'subspace_distance'", "got 'risk'"]
    assert_one_line(lambda: run.plot("risk", prediction=found, ax=plain), words)
    without = predict(LOCAL)
    assert_one_line(
        lambda: run.plot("subspace_distance", prediction=without, ax=plain), ["no prediction"], lf.NoPredictionError
    )
    assert len(plain.get_lines()) == 1


def test_curves_show_a_predicted_column():
    run = lf.simulate(fedrep(), PROBLEM, data=FRESH, rounds=3, trials=3)
    columns = {"error": run.metrics["subspace_distance"], "theory": predict(trials=3).distance}
    row = {name: lf.LabeledArray(values, round=run.rounds) for name, values in columns.items()}
    ax = plt.figure().subplots()
    lf.plot_curves(ax, lf.Table([{"method": "FedRep", **row}]), "round", "error", predicted="theory")
    measured, median = ax.get_lines()
    assert measured.get_label() == "FedRep"
    assert (median.get_label(), median.get_color()) == ("predicted", "black")
    assert np.array_equal(median.get_ydata(), np.median(columns["theory"], axis=0))


class Normalised(lf.FedRep):
    """Another algorithm than FedRep, on the same engines."""

    requires = lf.FedRep.requires

    def step(self, state, batch, rng):
        return super().step(state, batch, rng).update(B=state.B)


def test_a_subclass_with_its_own_step_has_no_prediction():
    """Also if it declares what its step requires, as for the engines: its curves are not FedRep's."""
    given = {"data": FRESH, "rounds": 2}
    problem = lf.SharedRepresentation(n_clients=20, dim=10, rank=2)
    with pytest.raises(lf.NoPredictionError, match="no prediction is available for algorithm = Normalised"):
        lf.predict(Normalised(rank=2, step_size=0.1), problem, **given)


@each("kind", LAWS)
def test_a_subclass_with_the_same_methods_has_the_same_prediction(kind):
    """For every algorithm of the table."""
    algorithms, problem, data = RUNS_OF_THE_TABLE[kind]
    for algorithm in algorithms:
        renamed = type("Renamed", (type(algorithm),), {})(**vars_of(algorithm))
        one, other = (lf.predict(each, problem, data=data, rounds=2) for each in (algorithm, renamed))
        for name in kind.gives:
            assert np.array_equal(getattr(one, name), getattr(other, name)), (algorithm, name)
