"""The choice of an engine, what an engine refuses and which engines it names, and the costs that decide."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.data.sources import Sizes
from linfed.simulation import engines, job
from linfed.simulation.engines import ENGINES, EngineQuery, floats_per_trial
from linfed.simulation.status import Status
from tests.data.small import GRADIENT, PLAIN, at, batch_of, simulate
from tests.helpers import basis, normal
from tests.worlds import draw_world, fedrep, shared, truth

pytestmark = pytest.mark.filterwarnings("ignore:the 3 trials are identical")  # some data have no trial axis


def chosen(algorithm, problem, data, **more):
    """Return the engine that a run would take."""
    arguments = {"rounds": 10, "participation": 1.0, "trials": None, "seed": 0, "metrics": None, "record_every": 1}
    return job.checked_job(algorithm, problem, data, **(arguments | {"engine": "auto"} | more)).engine


@dataclass(frozen=True, kw_only=True)
class Stepping(lf.FedRep):
    """A subclass with a step of its own."""

    def step(self, state, batch, rng):
        return super().step(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class Finishing(lf.FedRep):
    """A subclass with a final step."""

    requires, finishes = lf.Requires.FEATURES, True

    def finish(self, state, batch, rng):
        return state


@dataclass(frozen=True, kw_only=True)
class Renamed(lf.FedRep):
    """A subclass that steps as FedRep does."""


@dataclass(frozen=True, kw_only=True)
class Saying(Stepping):
    """A subclass with a step of its own that says what it asks."""

    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        return super().step(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class SayingLess(Saying):
    """A subclass of one that says what it asks, with another step again."""

    def step(self, state, batch, rng):
        return super().step(state, batch, rng)


@dataclass(frozen=True, kw_only=True)
class Own(lf.Algorithm):
    """An algorithm that says nothing."""

    def initial_state(self, start):
        return lf.State(S=np.zeros((start.trials, 1, start.dim)))

    def step(self, state, batch, rng):
        return state.update(S=state.S - 0.1 * batch.gradient(state.S).mean(axis=1, keepdims=True))


# --- the choice ----------------------------------------------------------------------------------------------


BIG = shared(n=100, d=60)


CUBE = shared(n=100, d=60, design="cube")


CHOICES = {
    "fresh Gaussian samples": (lf.FedRep(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "with gradient heads": (lf.FedRep(**PLAIN, **GRADIENT), BIG, lf.FreshSamples(30), "projected"),
    "with a covariance": (
        lf.FedRep(**PLAIN),
        shared(n=100, d=60, design=lf.Gaussian(covariance=np.linspace(1, 2, 60))),
        lf.FreshSamples(30),
        "projected",
    ),
    "oracle": (lf.Oracle(rank=2), BIG, lf.FreshSamples(30), "projected"),
    "FLUTE": (lf.FLUTE(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "FLUTE, many fixed samples": (lf.FLUTE(**PLAIN), BIG, lf.FixedSamples(5000), "compressed"),
    "FLUTE, few fixed samples": (lf.FLUTE(**PLAIN), BIG, lf.FixedSamples(30), "explicit"),
    "FLUTE, another law": (lf.FLUTE(**PLAIN), CUBE, lf.FreshSamples(30), "explicit"),
    "shortcuts, many samples": (lf.FedRepShortcut(**PLAIN), BIG, lf.FreshSamples(5000), "compressed"),
    "shortcuts, few samples": (lf.FedRepShortcut(**PLAIN), BIG, lf.FreshSamples(30), "explicit"),
    "very many samples": (lf.FedRep(**PLAIN), BIG, lf.FreshSamples(10**7), "projected"),
    "representation steps, many samples": (
        lf.FedRep(**PLAIN, representation_steps=3),
        BIG,
        lf.FreshSamples(5000),
        "compressed",
    ),
    "representation steps, few samples": (
        lf.FedRep(**PLAIN, representation_steps=3),
        BIG,
        lf.FreshSamples(30),
        "explicit",
    ),
    "FedAvg, many samples": (lf.FedAvg(step_size=0.1), BIG, lf.FreshSamples(5000), "compressed"),
    "FedAvg, as many as compressed": (lf.FedAvg(step_size=0.1), BIG, lf.FreshSamples(61), "explicit"),
    "FedAvg, few samples": (lf.FedAvg(step_size=0.1), BIG, lf.FreshSamples(30), "explicit"),
    "another law": (lf.FedRep(**PLAIN), CUBE, lf.FreshSamples(30), "explicit"),
    "another law, many samples": (lf.FedAvg(step_size=0.1), CUBE, lf.FreshSamples(5000), "explicit"),
    "small sizes": (lf.FedRep(**PLAIN), shared(), lf.FreshSamples(3), "explicit"),
    "fixed samples": (lf.FedRep(**PLAIN), BIG, lf.FixedSamples(30), "explicit"),
    "many fixed samples": (lf.FedRep(**PLAIN), BIG, lf.FixedSamples(5000), "compressed"),
    "many fixed samples of another law": (lf.FedRep(**PLAIN), CUBE, lf.FixedSamples(5000), "compressed"),
    "an algorithm that says nothing": (Own(), BIG, lf.FreshSamples(5000), "explicit"),
    "samples that need not be drawn": (
        lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.5)),
        BIG,
        lf.FixedSamples(10**6),
        "compressed",
    ),
    "a subclass with a step": (Stepping(**PLAIN), BIG, lf.FreshSamples(30), "explicit"),
    "a subclass with a final step": (Finishing(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "a subclass without": (Renamed(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "a subclass that says what it asks": (Saying(**PLAIN), BIG, lf.FreshSamples(30), "projected"),
    "a subclass of it that does not": (SayingLess(**PLAIN), BIG, lf.FreshSamples(30), "explicit"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_auto_takes_the_cheapest_exact_engine(name):
    algorithm, problem, data, wanted = CHOICES[name]
    assert {chosen(algorithm, problem, data, rounds=1000, trials=trials) for trials in (1, 40)} == {wanted}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_says_which_engine_it_was(engine):
    result = simulate(fedrep(), truth(), lf.FreshSamples(12), engine=engine, rounds=0)
    assert result.engine == engine
    assert result.rounds.tolist() == [0]
    assert f"engine {engine}" in result.summary()


# --- refusals ------------------------------------------------------------------------------------------------


GIVEN, FEW = (draw_world(counts, 9, 2, noise=0.3).data() for counts in ([12] * 6, [3, 4, 5, 6, 7, 8]))
OBSTACLES = {
    "no such name": (fedrep(), truth(), lf.FreshSamples(12), "projektet", "did you mean 'projected'"),
    "no name": (fedrep(), truth(), lf.FreshSamples(12), None, "engine = None is unknown.*'auto', 'explicit'"),
    "compressed, few samples": (
        fedrep(), truth(), lf.FreshSamples(9), "compressed", r"m = 9 is at most d = 9.*'explicit', 'projected'"
    ),
    "compressed, few given samples": (
        fedrep(), truth(), FEW, "compressed", r"m = 8 is at most d = 9; use 'auto', 'explicit'$"
    ),
    "compressed, another law": (
        fedrep(), truth(design="cube"), lf.FreshSamples(12), "compressed", "Gaussian x; use 'auto', 'explicit'$"
    ),
    "compressed, rows": (Own(), truth(), lf.FreshSamples(12), "compressed", "Own may use single samples"),
    "projected, rows": (Own(), truth(), lf.FreshSamples(12), "projected", "Own uses more than the features at one B"),
    "projected, quadratic": (
        lf.FedAvg(step_size=0.1), truth(), lf.FreshSamples(12), "projected",
        "FedAvg uses more than the features at one B; use 'auto', 'explicit', 'compressed'$",
    ),
    "projected, representation steps": (
        fedrep(representation_steps=2), truth(), lf.FreshSamples(12), "projected", "FedRep uses more"
    ),
    "projected, fixed samples": (
        fedrep(), truth(), lf.FixedSamples(12), "projected", "fixed samples are used at more than one B"
    ),
    "projected, given samples": (fedrep(), truth(), GIVEN, "projected", "fixed samples are used"),
    "projected, another law": (
        fedrep(), truth(design="sphere"), lf.FreshSamples(12), "projected", "it requires Gaussian x"
    ),
    "chain, another law": (fedrep(), truth(design="rademacher"), lf.FreshSamples(12), "chain", "requires Gaussian"),
    "chain, fixed samples": (fedrep(), truth(), lf.FixedSamples(12), "chain", "fixed samples are used"),
    "chain, dense truth": (
        fedrep(), lf.GivenTruth(B=basis(9, 2), Phi=normal(6, 9)), lf.FreshSamples(5), "chain",
        "the ground truth must have the form.*'explicit', 'projected'$",
    ),
    "chain, truth with a shortcut": (
        fedrep(), truth(S=normal(6, 9)), lf.FreshSamples(5), "chain", "the ground truth must have the form"
    ),
    "chain, covariance": (
        fedrep(), truth(design=lf.Gaussian(covariance=np.arange(1.0, 10.0))), lf.FreshSamples(5), "chain",
        "x is not isotropic",
    ),
    "chain, small dimension": (
        fedrep(d=5), truth(d=5), lf.FreshSamples(5), "chain", r"it requires d >= r \+ 2k = 6, but d = 5"
    ),
    "compressed, moments of samples that are not drawn": (
        fedrep(init="moments"), shared(n=2000), lf.FixedSamples(10**6), "compressed",
        r"init = Moments.*AtDistance\(delta\).*'random'",
    ),
    "given samples without a truth": (fedrep(), None, GIVEN, "projected", "fixed samples"),
    "chain, a final step": (
        Finishing(**PLAIN), truth(), lf.FreshSamples(5), "chain", r"final step.*'explicit', 'projected'"
    ),
    **{
        f"{engine}, another step": (
            Stepping(**PLAIN), truth(), lf.FreshSamples(12), engine, "Stepping .*; use 'auto', 'explicit'$"
        )
        for engine in ("compressed", "projected", "chain")
    },
    "chain, dependent columns": (
        fedrep(init=basis(9, 2) * [1.0, 0.0]), truth(), lf.FreshSamples(5), "chain", "dependent columns"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OBSTACLES)
def test_an_engine_that_cannot_serve_says_why_and_which_can(name):
    algorithm, problem, data, engine, message = OBSTACLES[name]
    with pytest.raises(ValueError, match=message) as caught:
        simulate(algorithm, problem, data, engine=engine)
    if engine in ENGINES:
        assert isinstance(caught.value, lf.EngineError)
        assert "\n" not in str(caught.value)


@dataclass(frozen=True, kw_only=True, repr=False)
class Moving(lf.State):
    extra: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Momentum(lf.FedRep):
    """FedRep with a further array in its state, of the given shape after the axis of trials."""

    shape: tuple[int, ...]
    requires = lf.Requires.FEATURES

    def initial_state(self, start):
        return Moving(**super().initial_state(start).arrays(), extra=np.zeros((start.trials, *self.shape)))


@pytest.mark.parametrize("d", [9, 6])  # 6 = r + 2k, where the shapes would agree
def test_the_chain_refuses_states_with_other_arrays_of_d_rows(d):
    run = {"problem": shared(d=d), "data": lf.FreshSamples(5)}
    wanted = (
        rf"chain.*extra of shape \(trials, {d}, 2\) along the d = {d} coordinates; use 'auto', 'explicit', 'projected'$"
    )
    with pytest.raises(lf.EngineError, match=wanted):
        simulate(Momentum(**PLAIN, shape=(d, 2)), **run, engine="chain")
    simulate(Momentum(**PLAIN, shape=(d, 2)), **run, engine="projected")
    assert simulate(Momentum(**PLAIN, shape=(4, 2)), **run, engine="chain").engine == "chain"


PROPOSALS = {
    "FedRep": fedrep(),
    "momentum": Momentum(**PLAIN, shape=(9, 2)),
    "FedAvg": lf.FedAvg(step_size=0.02),
    "no requirements": Own(),
    "FLUTE": lf.FLUTE(**PLAIN),
    "local steps": fedrep(representation_steps=2),
    "personalised": lf.Personalized(base=lf.FedRep(**PLAIN), ridge=0.1),
}


@pytest.mark.parametrize("name", PROPOSALS)
def test_the_engines_that_an_error_names_accept_and_no_others(name):
    for problem in (truth(), truth(design="cube"), truth(S=normal(6, 9))):
        for data in (
            lf.FreshSamples(5),
            lf.FreshSamples((5, 12, 12, 12, 12, 12)),
            lf.FixedSamples(12),
            lf.FixedSamples(12, in_law=True),
        ):
            refusals = {}
            for engine in ("auto", *ENGINES):
                try:
                    simulate(PROPOSALS[name], problem, data, engine=engine, rounds=1, trials=1)
                except lf.EngineError as error:
                    refusals[engine] = str(error)
            for told in refusals.values():
                named = re.findall(r"'(\w+)'", told.rpartition("; use ")[2] if "; use 'auto'" in told else "")
                assert {*named} == {"auto", *ENGINES} - refusals.keys()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_negative_ridge_is_refused_in_a_step(engine):
    batch, rows = batch_of(engine, truth(), lf.FreshSamples(12)), 6 if engine == "chain" else 9
    for ridge in (-0.5, np.nan):
        with pytest.raises(ValueError, match=rf"ridge = {ridge} must be a finite number of at least 0"):
            batch.project(at(basis(rows, 2))).fit(ridge)


# --- questions that an engine cannot answer ------------------------------------------------------------------


QUESTIONS = {
    "gradient": lambda batch: batch.gradient(np.zeros((4, 1, 9))),
    "loss": lambda batch: batch.loss(np.zeros((4, 1, 9))),
    "least_squares": lambda batch: batch.least_squares(),
    "pooled_least_squares": lambda batch: batch.pooled_least_squares(np.ones((4, 6))),
    "normal_equations": lambda batch: batch.normal_equations(),
    "shifted": lambda batch: batch.shifted(np.zeros((4, 1, 9))),
    "minibatches": lambda batch: list(batch.minibatches(2)),
    "split": lambda batch: batch.split(),
    "features.shifted": lambda batch: batch.project(at(basis(9, 2))).shifted(np.zeros((4, 6, 2))),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_projected_batch_names_the_engines_that_can_answer(question):
    batch = batch_of("projected", truth(), lf.FreshSamples(5))
    requires = "ROWS" if question in ("minibatches", "split") else "QUADRATIC"
    wanted = f"engine = 'projected'.*{question}; use engine = 'explicit', or .* requires = lf.Requires.{requires} if"
    with pytest.raises(lf.EngineError, match=wanted):
        QUESTIONS[question](batch)


@pytest.mark.parametrize("question", ["minibatches", "split"])
@pytest.mark.parametrize("data", [lf.FreshSamples(12), lf.FixedSamples(12)])
def test_a_compressed_batch_has_no_single_samples(data, question):
    batch = batch_of("compressed", truth(), data)
    features = batch.project(at(basis(9, 2)))
    shifted = batch.shifted(np.zeros((4, 1, 9)))
    for one in (batch, shifted, shifted.shifted(np.zeros((4, 1, 9))), features.fit().shifted()):
        wanted = f"engine = 'compressed'.*{question}; use engine = 'explicit', or .* requires = lf.Requires.ROWS if"
        with pytest.raises(lf.EngineError, match=wanted):
            QUESTIONS[question](one)


def test_samples_that_are_not_drawn_are_in_no_engine():
    batch = batch_of("compressed", truth(), lf.FixedSamples(12, in_law=True))
    for question in ("minibatches", "split"):
        with pytest.raises(lf.EngineError, match=f"{question}; no other engine can: the samples .* are not drawn"):
            QUESTIONS[question](batch)


ROWS_OF = {
    "X": lambda batch, B: batch.X,
    "y": lambda batch, B: batch.y,
    "shape": lambda batch, B: batch.shape,
    "features.Z": lambda batch, B: batch.project(B).Z,
    "fit.residual": lambda batch, B: batch.project(B).fit().residual,
}


@dataclass(frozen=True, kw_only=True)
class Reads(lf.FedRep):
    """FedRep that declares features, and reads a part of the samples."""

    part: object
    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        self.part(batch, state.B)
        return super().step(state, batch, rng)


@pytest.mark.parametrize("part", ROWS_OF)
def test_a_step_that_reads_samples_is_told_to_declare_it(part):
    run = {"problem": shared(n=100, d=60), "data": lf.FreshSamples(30), "rounds": 1}
    algorithm = Reads(**PLAIN, part=ROWS_OF[part])
    wanted = rf"engine = '(projected|chain)' .*{part}; use engine = 'explicit', or .* requires = lf.Requires.ROWS if"
    for engine in ("auto", "projected", "chain"):
        with pytest.raises(lf.EngineError, match=wanted):
            simulate(algorithm, **run, engine=engine)
    assert simulate(algorithm, **run, engine="explicit").engine == "explicit"

    class Declares(Reads):
        requires = lf.Requires.ROWS

    assert simulate(Declares(**PLAIN, part=ROWS_OF[part]), **run).engine == "explicit"


def test_other_names_are_missing_as_usual():
    batch = batch_of("projected", truth(), lf.FreshSamples(5))
    features = batch.project(at(basis(9, 2)))
    for part in (batch, features, features.fit()):
        for name in ("Xs", "__array__", "_X", "_residual"):
            assert not hasattr(part, name)


# --- what a trial costs, counted by hand -----------------------------------------------------------------------


THREE = fedrep(d=7, k=3)


MESSAGES = lf.FLUTE(rank=3, step_size=0.1)


ELEVEN, UNSHARED = shared(n=11, d=7), lf.GivenTruth(B=basis(7, 2), Phi=normal(11, 7))


OF_CLASSES = lf.Classes(n_clients=11, n_classes=4, classes_per_client=2, dim=7)


SEVENTEEN = lf.GivenSamples(normal(11, 17, 7), normal(11, 17))


ROUNDS, CLIENTS = 13, 5  # which take part


COSTS = {
    # Rows of 7 values, drawn in 8 ns each and met by 2 x 3 + 2 columns; then 3 x 3 products, and 8 ns for the label.
    "fresh rows": ("explicit", THREE, ELEVEN, lf.FreshSamples(17), CLIENTS * 17 * (7 * (8 + 0.4 * 8) + 8 + 6 * 9)),
    "unequal fresh rows": (
        "explicit", THREE, ELEVEN, lf.FreshSamples((17, *[2] * 10)), CLIENTS * 17 * (7 * (8 + 0.4 * 8) + 8 + 6 * 9)
    ),
    "fresh rows, unknown rank": (
        "explicit", THREE, UNSHARED, lf.FreshSamples(17), CLIENTS * 17 * (7 * (8 + 0.4 * 9) + 8 + 6 * 9)
    ),
    "fresh rows, no B": (
        "explicit", lf.FedAvg(step_size=0.1), ELEVEN, lf.FreshSamples(17), CLIENTS * 17 * (7 * (8 + 0.4 * 4) + 8 + 6)
    ),
    "fresh rows, messages": ("explicit", MESSAGES, ELEVEN, lf.FreshSamples(17), CLIENTS * 17 * (7 * (8 + 1) + 8 + 54)),
    "fresh pseudo-samples": (
        "compressed", THREE, ELEVEN, lf.FreshSamples(17), CLIENTS * 8 * (7 * (9 + 0.4 * 8) + 54) + 20_000
    ),
    # 3 x 4 / 2 numbers of a triangle and 2 outside of B, at 9 ns.
    "features": (
        "projected", THREE, ELEVEN, lf.FreshSamples(17),
        CLIENTS * (9 * (6 + 2) + 20 * 4 + 4 * 9 + 3 * 2 * 3) + 7 * 3 * (12 + 3 * (3 + 2)) + 30_000,
    ),
    "features of few samples": (
        "projected", THREE, ELEVEN, lf.FreshSamples(3),
        CLIENTS * (9 * (3 * 4 + 2) + 20 * 4 + 4 * 9 + 3 * 2 * 3) + 7 * 3 * (12 + 3 * (3 + 2)) + 30_000,
    ),
    "features, unknown rank": (
        "projected", THREE, UNSHARED, lf.FreshSamples(17),
        CLIENTS * (9 * (6 + 7) + 20 * 4 + 4 * 9 + 3 * 7 * 3) + 7 * 3 * (12 + 3 * (3 + 7)) + 30_000,
    ),
    "classes": (
        "explicit", lf.GeneralFLUTE(rank=3, step_size=0.1), OF_CLASSES, lf.FreshSamples(17),
        CLIENTS * 17 * 7 * (8 + 0.8 * 3),
    ),
    "features of classes": (
        "projected", lf.GeneralFLUTE(rank=3, step_size=0.1), OF_CLASSES, lf.FreshSamples(17),
        CLIENTS * 17 * (10 * 3 + 2 * 4) + 7 * 3 * (10 + 3) + 60_000,
    ),
    "given rows": ("explicit", THREE, ELEVEN, SEVENTEEN, CLIENTS * 17 * (7 * 0.4 * 8 + 54)),
    "given pseudo-samples": ("compressed", THREE, ELEVEN, SEVENTEEN, CLIENTS * 8 * (7 * 0.4 * 8 + 54)),
    "given rows, messages": ("explicit", MESSAGES, ELEVEN, SEVENTEEN, CLIENTS * 17 * 7),
    "given second moments, messages": ("compressed", MESSAGES, ELEVEN, SEVENTEEN, CLIENTS * 7 * 7 / 2),
    "fixed rows": ("explicit", THREE, ELEVEN, lf.FixedSamples(17), CLIENTS * 17 * (7 * 0.4 * 8 + 54)),
    "fixed pseudo-samples": ("compressed", THREE, ELEVEN, lf.FixedSamples(17), CLIENTS * 8 * (7 * 0.4 * 8 + 54)),
    "fixed pseudo-samples of 5": ("compressed", THREE, ELEVEN, lf.FixedSamples(5), CLIENTS * 5 * (7 * 0.4 * 8 + 54)),
    "fixed factors": (
        "compressed", THREE, ELEVEN, lf.FixedSamples(17, in_law=True), CLIENTS * 8 * (7 * 0.4 * 8 + 54)
    ),
    "fixed factors of another law": (
        "compressed", THREE, shared(n=11, d=7, design="cube"), lf.FixedSamples(17, in_law=True),
        CLIENTS * 8 * (7 * 0.4 * 8 + 54),
    ),
}  # fmt: skip


ONCE = {
    "fixed rows": 8 * 11 * 17 * 7,
    "given pseudo-samples": 11 * 17 * 7 * (2 * 7 + 10),
    "given second moments, messages": 11 * 17 * 7 * (2 * 7 + 10),
    "fixed pseudo-samples": 11 * 17 * 7 * (2 * 7 + 10),
    "fixed pseudo-samples of 5": 11 * 5 * 7 * (2 * 7 + 10),
    "fixed factors": 11 * 8 * 7 * (2 * 7 + 10),
    "fixed factors of another law": 11 * 17 * 7 * (2 * 7 + 10),
}
"""Costs before the first round, of all 11 clients: rows that are drawn, and their factors."""


def asked(algorithm, problem, data, **changes):
    """Return a run's properties: 5 of 11 clients in 13 rounds."""
    classes = 4 if problem is OF_CLASSES else 0
    told = {"n_clients": 11, "dim": 7, "participants": CLIENTS, "rounds": ROUNDS, "features": 20, "classes": classes}
    return EngineQuery(algorithm=algorithm, problem=problem, data=data, sizes=Sizes(**told | changes))


@pytest.mark.parametrize("name", COSTS)
def test_the_time_of_a_trial_is_that_of_its_numbers(name):
    engine, algorithm, problem, data, of_a_round = COSTS[name]
    for rounds, counted in ((ROUNDS, ROUNDS), (1, 1), (0, 1)):
        found = engines._nanoseconds(engine, asked(algorithm, problem, data, rounds=rounds))
        assert found == pytest.approx(ONCE.get(name, 0) + counted * of_a_round, rel=1e-12)


def test_the_largest_number_of_samples_counts():
    assert asked(THREE, ELEVEN, lf.FreshSamples((3, 9, 4, *[1] * 8))).samples == 9
    assert asked(THREE, truth(), draw_world([1, 2, 3, 7, 13, 40], 9, 2, noise=0.3).data()).samples == 40


def test_factors_are_drawn_above_two_to_the_28th_values():
    for samples, drawn in ((2**10, False), (2**10 + 1, True)):
        assert engines.draws_factors(lf.FixedSamples(samples), 2**11, 2**7) is drawn
    assert engines.draws_factors(lf.FixedSamples(2, in_law=True), 3, 5) is True
    assert engines.draws_factors(lf.FixedSamples(2**20, in_law=False), 2**11, 2**7) is False


def test_compression_needs_one_sample_more_than_dimensions():
    assert not engines.obstacle("compressed", asked(THREE, ELEVEN, lf.FreshSamples(8)))
    assert "m = 7 is at most d = 7" in engines.obstacle("compressed", asked(THREE, ELEVEN, lf.FreshSamples(7)))
    for least, refused in ((3, True), (4, False)):
        unequal = asked(THREE, ELEVEN, lf.FreshSamples((least, *[9] * 10)))
        assert bool(engines.obstacle("projected", unequal)) is refused


@pytest.mark.parametrize(
    ("engine", "data", "moments", "block", "first"),
    [
        ("explicit", lf.FixedSamples(17), True, 3 * 11 * 17 * 8, 11 * 17 * 20),
        ("explicit", lf.FixedSamples(17), False, 0, 11 * 17 * 20),
        ("compressed", lf.FixedSamples(17), False, 3 * 11 * 17 * 8, 11 * 17 * 27),
        ("compressed", lf.FixedSamples(17, in_law=True), False, 0, 11 * 17 * 27),
        ("compressed", lf.FreshSamples(17), False, 0, 11 * 17 * 27),
        ("explicit", lf.FreshSamples(17), False, 0, 11 * 17 * 27),
        ("projected", lf.FreshSamples(17), True, 3 * 11 * 17 * 8, 11 * 17 * 27),
    ],
)
def test_blocks_of_rows_and_first_batches_are_counted(engine, data, moments, block, first):
    """A block has few clients' rows and labels, and two copies; a first batch all rows, unless they are stored."""
    setting = asked(THREE, ELEVEN, data)
    assert engines.block_floats(engine, setting, moments) == block
    assert engines.first_batch_floats(engine, setting) == first


def test_a_block_has_at_least_one_client_and_else_no_more_than_the_cache(monkeypatch):
    setting = asked(THREE, ELEVEN, lf.FixedSamples(17))
    for cache, clients in ((10**6, 11), (4 * 17 * 8, 4), (10, 1)):
        monkeypatch.setattr(engines, "CACHE_VALUES", cache)
        assert engines.block_floats("compressed", setting, False) == 3 * clients * 17 * 8


@pytest.mark.parametrize("engine", ["projected", "chain"])
def test_the_memory_does_not_depend_on_the_samples(engine):
    algorithm, problem = fedrep(), truth()
    sizes = Sizes(n_clients=6, dim=9, participants=6, rounds=5, features=20)
    floats = {
        floats_per_trial(
            engine, EngineQuery(algorithm=algorithm, problem=problem, data=lf.FreshSamples(m), sizes=sizes)
        )
        for m in (5, 10**9)
    }
    assert len(floats) == 1
    assert simulate(algorithm, problem, lf.FreshSamples(10**12), engine=engine).status == [Status.COMPLETED] * 3
