"""`lf.predict`: which law it asks, what it refuses and why, and predictions of results and of subclasses."""

from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed.prediction import averaging, dispatch, law, others
from linfed.prediction import fedrep_rounds as rounds
from linfed.prediction.dispatch import FEDREP, LAWS
from tests.helpers import assert_one_line, basis, mostly_long, normal
from tests.prediction.runs import (
    FEW,
    FIXED,
    FRESH,
    LARGER,
    PROBLEM,
    RUNS_OF_THE_TABLE,
    case_of,
    fedrep,
    given,
    predict,
    vars_of,
)
from tests.prediction.test_prediction import assert_same_prediction
from tests.worlds import LEARNERS, names

# --- which law ---------------------------------------------------------------------------------------------------


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
    assert asked(case_of(noisy, data=lf.FreshSamples(6))) == [rounds.NoisyMeans]
    assert asked(case_of(replace(noisy, message_noise_std=0.2))) == [rounds.NoisyMeans]
    assert asked(case_of(noisy)) == [rounds.NoisyMessages, rounds.NoisyMeans]
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
            lambda case=case: law.first_prediction(case, FEDREP), ["FedRep's distance", words], lf.NoPredictionError
        )


class Normalised(lf.FedRep):
    """Another algorithm than FedRep, on the same engines."""

    requires = lf.FedRep.requires

    def step(self, state, batch, rng):
        return super().step(state, batch, rng).update(B=state.B)


def test_a_subclass_with_its_own_step_has_no_prediction():
    """Also if it declares what its step requires, as for the engines: its curves are not FedRep's."""
    given = {"data": FRESH, "n_rounds": 2}
    problem = lf.SharedRepresentation(n_clients=20, dim=10, rank=2)
    with pytest.raises(lf.NoPredictionError, match="no prediction is available for algorithm = Normalised"):
        lf.predict(Normalised(rank=2, step_size=0.1), problem, **given)


@pytest.mark.parametrize("kind", mostly_long(LAWS, rounds.SecondOrder, averaging.FixedPoint, others.LeastSquares))
def test_a_subclass_with_the_same_methods_has_the_same_prediction(kind):
    """For every algorithm of the table."""
    algorithms, problem, data = RUNS_OF_THE_TABLE[kind]
    for algorithm in algorithms:
        renamed = type("Renamed", (type(algorithm),), {})(**vars_of(algorithm))
        one, other = (lf.predict(each, problem, data=data, n_rounds=2) for each in (algorithm, renamed))
        assert one.law == other.law
        assert np.array_equal(getattr(one, kind.gives[0]), getattr(other, kind.gives[0])), algorithm


# --- what is missing ---------------------------------------------------------------------------------------------


def lacks(fragments, algorithm=None, problem=PROBLEM, ask="distance", **changes):
    return lambda: getattr(predict(algorithm, problem, **changes), ask), fragments


NINE = {"data": lf.FixedSamples(9)}
NARROW = {"problem": given(9, 20, 2), "data": lf.FreshSamples(9)}
"""Run with a ground truth of rank 2."""
SMALL = lf.SharedRepresentation(n_clients=9, dim=5, rank=3)
RADEMACHER = lf.SharedRepresentation(n_clients=9, dim=9, rank=3, design="rademacher")
SKEWED = replace(RADEMACHER, design=lf.Gaussian(covariance=np.arange(1.0, 10.0)))
SHORTCUTS = lf.SharedWithShortcuts(n_clients=9, dim=9, rank=3, shortcut_norm=0.1)
LOCAL, ONE_LAYER, GRADIENT = lf.LocalOnly(), lf.FedAvg(step_size=0.1), lf.GradientHeads()
FLUTE = lf.FLUTE(rank=2, step_size=0.1)


def scheduled(t):
    return 0.1 / t


def random(rank, **changes):
    return fedrep(rank=rank, init="random", **changes)


SIMILAR = lf.SimilarRepresentations(n_clients=30, dim=12, rank=2, deviation=0.3, outliers=0.2)


def private(**changes):
    return lf.PrivateFedRep(rank=3, step_size=0.5, **changes)


def compressed(**changes):
    return lf.CompressedFedRep(**{"rank": 3, "step_size": 0.4, "kept_share": 0.5} | changes)


MISSING = {
    "fixed samples": lacks(["FedRep's distance", "FixedSamples", "share their samples"], **NINE),
    "medians": lacks(["aggregate = 'median'"], fedrep(aggregate="median")),
    "medians of fixed samples": lacks(["aggregate = 'geometric median'"], fedrep(aggregate="geometric median"), **NINE),
    "medians of models": lacks(
        ["aggregate = 'median'", "'mean'"], lf.FedAvg(step_size=0.1, aggregate="median"), ask="floor", **NINE
    ),
    "design": lacks(["Rademacher"], problem=RADEMACHER),
    "covariance": lacks(["Gaussian and isotropic"], problem=SKEWED),
    "ridge": lacks(["heads = ExactHeads(ridge=0.1)"], fedrep(heads=lf.ExactHeads(ridge=0.1))),
    "turned heads": lacks(["rotate_heads = True"], fedrep(heads=GRADIENT, rotate_heads=True)),
    "steps of B": lacks(["representation_steps = 2"], fedrep(representation_steps=2)),
    "floor of two steps": lacks(["FixedSamples"], fedrep(representation_steps=2), ask="floor", **NINE),
    "given participants": lacks(
        ["given participants", "a share or a count"], participation=np.zeros((3, 1), dtype=int)
    ),
    "another part": lacks(["SharedWithShortcuts", "other than the top-k subspace"], problem=SHORTCUTS),
    "rank of gradient heads": lacks(["ground truth of rank 3", "rank = 2"], fedrep(rank=2, heads=GRADIENT)),
    "another reference": lacks(
        ["GivenTruth", "other than the top-k subspace"],
        problem=lf.GivenTruth(Phi=normal(9, 30), B=basis(30, 3)),
        n_rounds=1,
    ),
    "edge above the rank": lacks(["no prediction of the stability edge"], fedrep(rank=2), ask="stability_edge"),
    "dimension": lacks(["dim = 5", "2 rank = 6"], random(3), SMALL),
    "m = k + 1": lacks(["n_samples = rank + 1 = 4"], data=lf.FreshSamples(4)),
    "start": lacks(["columns are not orthonormal"], fedrep(init=2 * basis(30, 3))),
    "overflow": lacks(["'means' is not available", "too large"], fedrep(step_size=1e200)),
    "schedule of heads": lacks(["is a schedule"], fedrep(step_size=scheduled, aggregate="sum", heads=GRADIENT)),
    "no truth": lacks(["ground truth", "problem="], random(3), None, data=NINE["data"].draw(PROBLEM)),
    "floor beyond the edge": lacks(["below stability_edge"], fedrep(step_size=3.0), ask="floor"),
    "rate of gradient heads": lacks(["no prediction of the rate"], fedrep(heads=GRADIENT), ask="rate"),
    "gradient heads of clients that differ": lacks(
        ["gradient heads", "clients with different noise_std"],
        random(2, heads=GRADIENT),
        given(9, 20, 2, noise_std=np.linspace(0.1, 0.9, 9)),
    ),
    "fixed samples of clients that differ": lacks(
        ["floor", "clients with different noise_std"],
        random(2),
        given(9, 20, 2, noise_std=np.linspace(0.1, 0.9, 9)),
        data=lf.FixedSamples(20),
        ask="floor",
    ),
    "LocalGram of clients that differ": lacks(
        ["LocalGram", "clients with different noise_std"],
        lf.LocalGram(rank=2),
        given(9, 20, 2, noise_std=np.linspace(0.1, 0.9, 9)),
        **NINE,
    ),
    "some on fixed samples": lacks(["4 of 40 participants"], **NINE, participation=4, ask="floor"),
    "weights on fixed samples": lacks(
        ["different weights"], random(2, weights=range(1, 41)), replace(LARGER, noise_std=0.0), **NINE, ask="floor"
    ),
    "wider, gradient heads": lacks(["rank 2 and rank = 4"], random(4, heads=GRADIENT), **NARROW),
    "wider, noise on messages": lacks(
        ["noise on messages"], lf.PrivateFedRep(rank=4, step_size=0.1, message_noise_std=0.1, init="random"), **NARROW
    ),
    "wider, clients that differ": lacks(
        ["different noise_std", "rank 2 and rank = 4"],
        random(4),
        **NARROW | {"problem": given(9, 20, 2, noise_std=np.linspace(0.1, 0.9, 9))},
    ),
    "wider, dimension": lacks(["dim = 5", "rank + 2 = 6"], random(4), **NARROW | {"problem": given(9, 5, 2)}),
    "wider, sparse": lacks(
        ["compressed", "rank"], lf.CompressedFedRep(rank=4, step_size=0.1, kept_share=0.5, init="random"), **NARROW
    ),
    "wider, without QR": lacks(
        ["orthonormalize = False", "rank 2 and rank = 4"], random(4, orthonormalize=False), **NARROW
    ),
    "without QR, schedule": lacks(
        ["orthonormalize = False", "schedule"], random(2, step_size=scheduled, orthonormalize=False), **NARROW
    ),
    "without QR, clients that differ": lacks(
        ["orthonormalize = False", "different numbers of fresh samples"],
        random(2, orthonormalize=False),
        **NARROW | {"data": lf.FreshSamples([9] * 8 + [8])},
    ),
    "without QR, gradient heads": lacks(
        ["orthonormalize = False", "gradient heads"], random(2, orthonormalize=False, heads=GRADIENT), **NARROW
    ),
    "small d, gradient heads": lacks(
        ["dim = 3", "2 rank = 4"], random(2, heads=GRADIENT), **NARROW | {"problem": given(9, 3, 2)}
    ),
    "noise, some clients with few samples": lacks(
        ["n_samples = 2", "rank + 2 = 4"],
        lf.PrivateFedRep(rank=2, step_size=0.1, message_noise_std=0.1, init="random"),
        given(3, 20, 2),
        data=lf.FreshSamples([9, 9, 2]),
    ),
    "clip": lacks(["for clip = 3"], private(clip=3.0)),
    "clip, fixed samples": lacks(["for FixedSamples"], private(clip=3.0), **NINE),
    "noise on messages, fixed samples": lacks(["for FixedSamples"], private(message_noise_std=0.1), **NINE),
    "noise on messages, m = k + 1": lacks(
        ["n_samples = rank + 1 = 4"], private(message_noise_std=0.1), data=lf.FreshSamples(4)
    ),
    "noise on messages above the rank": lacks(["ground truth of rank k"], private(message_noise_std=0.1), LARGER),
    "noise on messages, gradient heads": lacks(["exact heads"], private(message_noise_std=0.1, heads=GRADIENT)),
    "sparse": lacks(["no prediction of the distance"], compressed()),
    "sparse, levels": lacks(["for levels = 3"], compressed(kept_share=None, levels=3)),
    "sparse, fixed samples": lacks(["for FixedSamples"], compressed(), **NINE),
    "sparse above the rank": lacks(["for a ground truth of rank 30 and rank = 3"], compressed(), LARGER),
    "sparse, gradient heads": lacks(["for heads = GradientHeads("], compressed(heads=GRADIENT)),
    "similar": lacks(["other than the top-k subspace"], fedrep(rank=2), SIMILAR),
    "similar, gradient heads": lacks(["other than the top-k subspace"], fedrep(rank=2, heads=GRADIENT), SIMILAR),
    "similar, fixed samples": lacks(["FixedSamples"], fedrep(rank=2), SIMILAR, **NINE),
    "similar, moments": lacks(["must be B* w with rank 2"], lf.MethodOfMoments(rank=2), SIMILAR, ask="floor"),
    "no unique reference": lacks(
        ["the distance cannot be predicted: "],
        random(2),
        lf.GivenTruth(Phi=np.zeros((6, 5))),
        data=lf.FreshSamples(2),
    ),
    "local gradient steps": lacks(
        ["LocalOnly", "step_size = 0.1", "least squares"], lf.LocalOnly(step_size=0.1), **NINE
    ),
    "shortcuts": lacks(["no prediction", "FedRepShortcut"], lf.FedRepShortcut(rank=3, step_size=0.1)),
    "two layers": lacks(["rank = 2", "one layer"], lf.FedAvg(step_size=0.1, rank=2)),
    "FedAvg, fresh": lacks(["FreshSamples", "single_model_floor"], ONE_LAYER),
    "FedAvg, named": lacks(["given participants"], ONE_LAYER, **NINE, participation=np.array([[0, 1]] * 3)),
    "FedAvg, minibatches": lacks(["local_epochs = 1"], lf.FedAvg(step_size=0.1, local_epochs=1, batch_size=3)),
    "FedSCAVAR's windows": lacks(
        ["model_share = 0.5"], lf.FedSCAVAR(step_size=0.1, clusters=2, model_share=0.5), **NINE
    ),
    "FedRolex, some": lacks(
        ["FedRolex", "for 3 of 40 participants", "mean square", "upper bound"],
        lf.FedRolex(step_size=0.1, model_share=0.5),
        **NINE,
        participation=3,
    ),
    "FedRolex diverges": lacks(["diverges"], lf.FedRolex(step_size=9.0, model_share=0.5), **NINE, ask="floor"),
    "FedAvg in law": lacks(["in_law = True"], ONE_LAYER, data=lf.FixedSamples(40, in_law=True)),
    "FedAvg, scheduled": lacks(
        ["FedAvg", "step_size = (0.1, 0.05,", "a schedule", "one number for all rounds"],
        lf.FedAvg(step_size=scheduled),
        **NINE,
    ),
    "FedAvg diverges": lacks(["diverges"], lf.FedAvg(step_size=9.0), **NINE, ask="floor"),
    "FedAvg without a truth": lacks(
        ["ground truth", "problem="], ONE_LAYER, None, data=NINE["data"].draw(PROBLEM), ask="floor"
    ),
    "one layer": lacks(["no representation"], ONE_LAYER, **NINE),
    "AltMin, fresh": lacks(["AltMin", "only for FixedSamples"], lf.AltMin(rank=3)),
    "AltMin, split": lacks(["disjoint_samples = True"], lf.AltMin(rank=3, disjoint_samples=True), **NINE),
    "AltMin, some": lacks(["4 of 40"], lf.AltMin(rank=3), **NINE, participation=4),
    "BurerMonteiro, rank": lacks(["rank 3 and rank = 2"], lf.BurerMonteiro(rank=2), **NINE),
    "BurerMonteiro, m": lacks(["n_samples = 4", "rank + 2 = 5"], lf.BurerMonteiro(rank=3), data=lf.FixedSamples(4)),
    "local": lacks(["no representation"], LOCAL),
    "local, given": lacks(["GivenSamples"], LOCAL, data=NINE["data"].draw(PROBLEM)),
    "local, design": lacks(["Rademacher"], LOCAL, RADEMACHER),
    "local, rate": lacks(["no prediction of the rate"], LOCAL, ask="rate"),
    "spectral, few dimensions": lacks(["dim = 5", "2 rank = 6"], lf.UStatistic(rank=3), SMALL, **NINE, ask="floor"),
    "FLUTE's weights": lacks(["gamma1", "(0.3, 0.125, 1.0)"], lf.FLUTE(rank=2, step_size=0.1, gamma1=0.3)),
    "FLUTE, some": lacks(["FLUTE", "4 of 40 participants"], FLUTE, participation=4),
    "FLUTE, fresh": lacks(["best step", "FreshSamples"], FLUTE, ask="best_step"),
    "FLUTE, fresh, beyond the edge": lacks(["above 1/lambda_1 ="], lf.FLUTE(rank=2, step_size=9.0), ask="floor"),
    "FLUTE, fixed, beyond the edge": lacks(
        ["step_size = 9", "above 1/lambda_1 ="], lf.FLUTE(rank=2, step_size=9.0), **NINE, ask="floor"
    ),
    "FLUTE, fresh, no gap": lacks(["lambda_k is 0"], lf.FLUTE(rank=4, step_size=0.001), ask="stability_edge"),
    "FLUTE, fresh, other x": lacks(["standard Gaussian"], FLUTE, RADEMACHER, ask="stability_edge"),
    "FLUTE, round by round": lacks(["FLUTE's distance"], FLUTE),
}
"""Runs without a prediction: a call, and parts of its message."""


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_said_in_one_line(name):
    call, fragments = MISSING[name]
    assert_one_line(call, fragments, lf.NoPredictionError)


CLASSES = lf.Classes(n_clients=5, n_classes=4, classes_per_client=2, dim=6, rank=2, test_samples=15)


@pytest.mark.parametrize("name", names("classification"))
def test_classes_have_no_prediction(name):
    words = ["no prediction is available for 4 classes"]
    assert_one_line(lambda: predict(LEARNERS[name].make(), CLASSES, **NINE), words, lf.NoPredictionError)


def test_a_result_of_classes_has_no_prediction():
    result = lf.simulate(lf.FedAvg(step_size=0.2), CLASSES, **NINE, n_rounds=1)
    assert_one_line(lambda: lf.predict(result), ["4 classes"], lf.NoPredictionError)


# --- arguments ---------------------------------------------------------------------------------------------------


def test_arguments_are_those_of_simulate():
    assert_one_line(lambda: predict(n_rounds=-1), ["n_rounds = -1"])
    assert_one_line(lambda: predict(trials=0), ["trials = 0"])
    assert_one_line(lambda: lf.predict(fedrep(), data=FRESH, n_rounds=1), ["requires problem="])
    assert_one_line(lambda: predict(fedrep(step_size=[0.1, 0.2])), ["2 values", "n_rounds = 3"])


def test_the_prediction_of_a_result_is_that_of_its_arguments():
    run = lf.simulate(fedrep(), PROBLEM, data=FRESH, n_rounds=3, trials=3, participation=20, seed=2, record_every=2)
    expected = predict(participation=20, seed=2, trials=3)
    assert_same_prediction(lf.predict(run), expected)
    assert np.array_equal(lf.predict(run, trials=2).distance, expected.distance[:2])
    one = lf.predict(lf.simulate(fedrep(), PROBLEM, data=FRESH, n_rounds=3))
    assert one.distance.shape == (1, 4)
    personal = lf.simulate(lf.FedPer(rank=3, step_size=0.1), PROBLEM, data=FRESH, n_rounds=1)
    assert_one_line(lambda: lf.predict(personal), ["no prediction", "FedPer"], lf.NoPredictionError)


def test_a_final_step_is_no_round_of_a_prediction():
    anil = lf.simulate(lf.FedAvg(step_size=0.1, fine_tune=None), FEW, data=FIXED, n_rounds=4)
    tuned = replace(anil, algorithm=lf.PerFedAvg(step_size=0.1, adaptation_step_size=0.1), rounds=np.arange(6))
    assert tuned.has_final_step
    assert lf.predict(tuned).rounds.tolist() == [0, 1, 2, 3, 4]


GIVEN_TWICE = {"problem": PROBLEM, "data": FRESH, "n_rounds": 3, "participation": 1.0, "seed": 0}


@pytest.mark.parametrize("name", GIVEN_TWICE)
def test_a_result_brings_its_own_arguments(name):
    run = lf.simulate(fedrep(), PROBLEM, data=FRESH, n_rounds=3)
    words = [f"predict(result) takes {name} from the result", "only trials="]
    assert_one_line(lambda: lf.predict(run, **{name: GIVEN_TWICE[name]}), words, TypeError)


@pytest.mark.parametrize("name", ["data", "n_rounds"])
def test_an_algorithm_needs_data_and_rounds(name):
    rest = {key: value for key, value in {"data": FRESH, "n_rounds": 3}.items() if key != name}
    assert_one_line(
        lambda: lf.predict(fedrep(), PROBLEM, **rest), [f"{name} = None must be given with an algorithm"], TypeError
    )


@pytest.mark.parametrize("trials", [10**9, 10**18])
@pytest.mark.parametrize(
    ("algorithm", "data"),
    [
        (fedrep(), FRESH),
        (fedrep(heads=lf.GradientHeads()), FRESH),
        (lf.AltMin(rank=3), FIXED),
        (lf.FedAvg(step_size=0.1), FIXED),
        (lf.FedAvg(step_size=0.1), lf.GivenSamples(normal(40, 9, 30), normal(40, 9))),
    ],
)
def test_more_trials_than_memory_are_refused(algorithm, data, trials):
    problem = None if isinstance(data, lf.GivenSamples) else PROBLEM
    words = [f"trials = {trials} with n_rounds = 3 would take", "fewer trials"]
    assert_one_line(lambda: predict(algorithm, problem, data=data, trials=trials), words, lf.SizeError)


@pytest.mark.parametrize(
    ("algorithm", "problem", "data", "trials", "words"),
    [
        (fedrep(), replace(PROBLEM, n_clients=10**13), FRESH, 1, ["n_clients = 10000000000000", "960 TB"]),
        (fedrep(), PROBLEM, FRESH, 10**9, ["trials = 1000000000", "1.78 TB"]),
        (ONE_LAYER, PROBLEM, lf.FixedSamples(10**12, in_law=False), 1, ["1000000000000 samples", "9.92e+03 TB"]),
        (lf.Ditto(step_size=0.1), PROBLEM, lf.FixedSamples(10**12), 1, ["1000000000000 samples", "9.92e+03 TB"]),
    ],
)
def test_ground_truths_curves_and_samples_beyond_memory_are_refused(algorithm, problem, data, trials, words):
    assert_one_line(lambda: predict(algorithm, problem, data=data, trials=trials), words, lf.SizeError)
