"""The choice of an engine, what an engine refuses and which engines it names, and the costs that decide."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.data.samples import draws_factors
from linfed.data.sources import Sizes
from linfed.simulation import engines, job
from linfed.simulation.engines import ENGINES, EngineQuery, floats_per_trial
from linfed.simulation.status import Status
from tests.data.small import PLAIN, at, batch_of, simulate
from tests.helpers import basis, normal
from tests.worlds import draw_world, fedrep, shared, truth

pytestmark = pytest.mark.filterwarnings("ignore:the 3 trials are identical")  # some data have no trial axis


def chosen(algorithm, problem, data, **more):
    """Return the engine that a run would take."""
    arguments = {"n_rounds": 10, "participation": 1.0, "trials": None, "seed": 0, "metrics": None, "record_every": 1}
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

EXACT, LOCAL, FEDAVG = lf.FedRep(**PLAIN), lf.FedRep(**PLAIN, representation_steps=3), lf.FedAvg(step_size=0.1)
FLUTE, SHORTCUT = lf.FLUTE(**PLAIN), lf.FedRepShortcut(**PLAIN)
BIG, CUBE = shared(n=100, d=60), shared(n=100, d=60, design="cube")
DIAGONAL = shared(n=100, d=60, design=lf.Gaussian(covariance=np.linspace(1, 2, 60)))
FRESH, FIXED = lf.FreshSamples, lf.FixedSamples
CHOICES = {
    "fresh Gaussian samples": (EXACT, BIG, FRESH(30), "projected"),
    "with a covariance": (EXACT, DIAGONAL, FRESH(30), "projected"),
    "oracle": (lf.Oracle(rank=2), BIG, FRESH(30), "projected"),
    "FLUTE": (FLUTE, BIG, FRESH(30), "projected"),
    "FLUTE, many fixed samples": (FLUTE, BIG, FIXED(5000), "compressed"),
    "shortcuts, many samples": (SHORTCUT, BIG, FRESH(5000), "compressed"),
    "shortcuts, few samples": (SHORTCUT, BIG, FRESH(30), "explicit"),
    "representation steps, many samples": (LOCAL, BIG, FRESH(5000), "compressed"),
    "representation steps, few samples": (LOCAL, BIG, FRESH(30), "explicit"),
    "FedAvg, many samples": (FEDAVG, BIG, FRESH(5000), "compressed"),
    "FedAvg, as many as compressed": (FEDAVG, BIG, FRESH(61), "explicit"),
    "FedAvg, few samples": (FEDAVG, BIG, FRESH(30), "explicit"),
    "another law": (EXACT, CUBE, FRESH(30), "explicit"),
    "fixed samples": (EXACT, BIG, FIXED(30), "explicit"),
    "many fixed samples": (EXACT, BIG, FIXED(5000), "compressed"),
    "samples that need not be drawn": (lf.FedRep(**PLAIN, init=lf.AtDistance(0.5)), BIG, FIXED(10**6), "compressed"),
    "an algorithm that says nothing": (Own(), BIG, FRESH(5000), "explicit"),
    "a subclass with a step": (Stepping(**PLAIN), BIG, FRESH(30), "explicit"),
    "a subclass with a final step": (Finishing(**PLAIN), BIG, FRESH(30), "projected"),
    "a subclass without": (Renamed(**PLAIN), BIG, FRESH(30), "projected"),
    "a subclass that says what it asks": (Saying(**PLAIN), BIG, FRESH(30), "projected"),
    "a subclass of it that does not": (SayingLess(**PLAIN), BIG, FRESH(30), "explicit"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_auto_takes_the_cheapest_exact_engine(name):
    algorithm, problem, data, wanted = CHOICES[name]
    assert {chosen(algorithm, problem, data, n_rounds=1000, trials=trials) for trials in (1, 40)} == {wanted}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_says_which_engine_it_was(engine):
    result = simulate(fedrep(), truth(), lf.FreshSamples(12), engine=engine, n_rounds=0)
    assert result.engine == engine
    assert result.rounds.tolist() == [0]
    assert f"engine {engine}" in result.summary()


# --- refusals ------------------------------------------------------------------------------------------------

GIVEN, FEW = (draw_world(counts, 9, 2, noise=0.3).data() for counts in ([12] * 6, [3, 4, 5, 6, 7, 8]))
OBSTACLES = [
    ("projektet", {}, "did you mean 'projected'"),
    ("compressed", {"data": FRESH(9)}, r"m = 9 is at most d = 9.*'explicit', 'projected'"),
    ("compressed", {"data": FEW}, r"m = 8 is at most d = 9; use 'auto', 'explicit'$"),
    ("compressed", {"problem": truth(design="cube")}, "Gaussian x; use 'auto', 'explicit'$"),
    ("compressed", {"algorithm": Stepping(**PLAIN)}, "Stepping .*; use 'auto', 'explicit'$"),
    (
        "compressed",
        {"algorithm": fedrep(init="moments"), "problem": shared(n=2000), "data": FIXED(10**6)},
        r"init = Moments.*AtDistance\(delta\).*'random'",
    ),
    ("projected", {"algorithm": Own()}, "Own uses more than the features at one B"),
    ("projected", {"algorithm": FEDAVG}, "FedAvg uses more than .*; use 'auto', 'explicit', 'compressed'$"),
    ("projected", {"algorithm": Stepping(**PLAIN)}, "Stepping .*; use 'auto', 'explicit'$"),
    ("projected", {"data": FIXED(12)}, "fixed samples are used at more than one B"),
    ("projected", {"data": GIVEN, "problem": None}, "fixed samples"),
    ("projected", {"problem": truth(design="sphere")}, "it requires Gaussian x"),
    ("chain", {"problem": truth(design="rademacher")}, "requires Gaussian"),
    (
        "chain",
        {"problem": lf.GivenTruth(B=basis(9, 2), Phi=normal(6, 9)), "data": FRESH(5)},
        "the ground truth must have the form.*'explicit', 'projected'$",
    ),
    ("chain", {"problem": truth(S=normal(6, 9))}, "the ground truth must have the form"),
    ("chain", {"problem": truth(design=lf.Gaussian(covariance=np.arange(1.0, 10.0)))}, "x is not isotropic"),
    ("chain", {"algorithm": fedrep(d=5), "problem": truth(d=5)}, r"it requires d >= r \+ 2k = 6, but d = 5"),
    ("chain", {"algorithm": Finishing(**PLAIN)}, r"final step.*'explicit', .*'projected'"),
    ("chain", {"algorithm": Stepping(**PLAIN)}, "Stepping .*; use 'auto', 'explicit'$"),
    ("chain", {"algorithm": fedrep(init=basis(9, 2) * [1.0, 0.0])}, "dependent columns"),
]
"""Engine, what differs from FedRep on 12 fresh samples of a given ground truth, and the reason."""


@pytest.mark.parametrize(("engine", "changes", "message"), OBSTACLES)
def test_an_engine_that_cannot_serve_says_why_and_which_can(engine, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        simulate(**{"algorithm": fedrep(), "problem": truth(), "data": FRESH(12)} | changes, engine=engine)
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
                    simulate(PROPOSALS[name], problem, data, engine=engine, n_rounds=1, trials=1)
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


def test_an_algorithm_that_declares_too_little_is_told_so():
    @dataclass(frozen=True, kw_only=True)
    class Declares(Own):
        requires = lf.Requires.FEATURES

    with pytest.raises(lf.EngineError, match=r"does not support batch\.gradient"):
        simulate(Declares(), truth(), lf.FreshSamples(12), engine="projected")


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
    run = {"problem": shared(n=100, d=60), "data": lf.FreshSamples(30), "n_rounds": 1}
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


# --- what a trial costs, counted by hand ---------------------------------------------------------------------

THREE, MESSAGES = fedrep(d=7, k=3), lf.FLUTE(rank=3, step_size=0.1)
ELEVEN, UNSHARED = shared(n=11, d=7), lf.GivenTruth(B=basis(7, 2), Phi=normal(11, 7))
OF_CLASSES = {
    "algorithm": lf.GeneralFLUTE(rank=3, step_size=0.1),
    "problem": lf.Classes(n_clients=11, n_classes=4, classes_per_client=2, dim=7),
}
SAMPLES, SEVENTEEN = FRESH(17), lf.GivenSamples(normal(11, 17, 7), normal(11, 17))
ROUNDS, CLIENTS = 13, 5  # which take part


def of_rows(columns, products=54):
    """Rows of 7 values, drawn in 8 ns each and met by so many columns; then products, and 8 ns for the label."""
    return CLIENTS * 17 * (7 * (8 + 0.4 * columns) + 8 + products)


def of_features(numbers, rank):
    """So many normal numbers at 9 ns for each client, and the part outside of B and a truth of this rank."""
    return CLIENTS * (9 * numbers + 20 * 4 + 4 * 9 + 3 * rank * 3) + 7 * 3 * (12 + 3 * (3 + rank)) + 30_000


STORED = 7 * 0.4 * 8 + 54
COSTS = {
    "fresh rows": ("explicit", {}, of_rows(2 * 3 + 2)),
    "fresh rows, unknown rank": ("explicit", {"problem": UNSHARED}, of_rows(9)),
    "fresh rows, no B": ("explicit", {"algorithm": FEDAVG}, of_rows(4, 6)),
    "fresh rows, messages": ("explicit", {"algorithm": MESSAGES}, of_rows(2.5)),
    "fresh pseudo-samples": ("compressed", {}, CLIENTS * 8 * (7 * (9 + 0.4 * 8) + 54) + 20_000),
    "features": ("projected", {}, of_features(3 * 4 / 2 + 2, 2)),
    "features of few samples": ("projected", {"data": FRESH(3)}, of_features(3 * 4 + 2, 2)),
    "features, unknown rank": ("projected", {"problem": UNSHARED}, of_features(3 * 4 / 2 + 7, 7)),
    "classes": ("explicit", OF_CLASSES, CLIENTS * 17 * 7 * (8 + 0.8 * 3)),
    "features of classes": ("projected", OF_CLASSES, CLIENTS * 17 * (10 * 3 + 2 * 4) + 7 * 3 * (10 + 3) + 60_000),
    "given rows, messages": ("explicit", {"algorithm": MESSAGES, "data": SEVENTEEN}, CLIENTS * 17 * 7),
    "given second moments": ("compressed", {"algorithm": MESSAGES, "data": SEVENTEEN}, CLIENTS * 7 * 7 / 2),
    "fixed rows": ("explicit", {"data": FIXED(17)}, CLIENTS * 17 * STORED),
    "fixed pseudo-samples": ("compressed", {"data": FIXED(17)}, CLIENTS * 8 * STORED),
    "fixed pseudo-samples of 5": ("compressed", {"data": FIXED(5)}, CLIENTS * 5 * STORED),
    "fixed factors": ("compressed", {"data": FIXED(17, in_law=True)}, CLIENTS * 8 * STORED),
    "fixed factors of another law": (
        "compressed",
        {"data": FIXED(17, in_law=True), "problem": shared(n=11, d=7, design="cube")},
        CLIENTS * 8 * STORED,
    ),
}
"""Engine, what differs from FedRep on 17 fresh samples, and the nanoseconds of a round."""

ONCE = {
    "fixed rows": 8 * 11 * 17 * 7,
    "given second moments": 11 * 17 * 7 * (2 * 7 + 10),
    "fixed pseudo-samples": 11 * 17 * 7 * (2 * 7 + 10),
    "fixed pseudo-samples of 5": 11 * 5 * 7 * (2 * 7 + 10),
    "fixed factors": 11 * 8 * 7 * (2 * 7 + 10),
    "fixed factors of another law": 11 * 17 * 7 * (2 * 7 + 10),
}
"""Costs before the first round, of all 11 clients: rows that are drawn, and their factors."""


def asked(algorithm=THREE, problem=ELEVEN, data=SAMPLES, **changes):
    """Return a run's properties: 5 of 11 clients in 13 rounds."""
    classes = 4 if isinstance(problem, lf.Classes) else 0
    sizes = {"n_clients": 11, "dim": 7, "participants": CLIENTS, "n_rounds": ROUNDS, "features": 20, "classes": classes}
    return EngineQuery(algorithm=algorithm, problem=problem, data=data, sizes=Sizes(**sizes | changes))


@pytest.mark.parametrize("name", COSTS)
def test_the_time_of_a_trial_is_that_of_its_numbers(name):
    engine, changes, of_a_round = COSTS[name]
    for rounds, counted in ((ROUNDS, ROUNDS), (1, 1), (0, 1)):
        found = engines._nanoseconds(engine, asked(**changes, n_rounds=rounds))
        assert found == pytest.approx(ONCE.get(name, 0) + counted * of_a_round, rel=1e-12)


def test_the_largest_number_of_samples_counts():
    assert asked(data=lf.FreshSamples((3, 9, 4, *[1] * 8))).samples == 9
    assert asked(problem=truth(), data=draw_world([1, 2, 3, 7, 13, 40], 9, 2, noise=0.3).data()).samples == 40


def test_factors_are_drawn_above_two_to_the_28th_values():
    for samples, drawn in ((2**10, False), (2**10 + 1, True)):
        assert draws_factors(lf.FixedSamples(samples), 2**11, 2**7) is drawn
    assert draws_factors(lf.FixedSamples(2, in_law=True), 3, 5) is True
    assert draws_factors(lf.FixedSamples(2**20, in_law=False), 2**11, 2**7) is False


def test_compression_needs_one_sample_more_than_dimensions():
    assert not engines.obstacle("compressed", asked(data=lf.FreshSamples(8)))
    assert "m = 7 is at most d = 7" in engines.obstacle("compressed", asked(data=lf.FreshSamples(7)))
    for least, refused in ((3, True), (4, False)):
        unequal = asked(data=lf.FreshSamples((least, *[9] * 10)))
        assert bool(engines.obstacle("projected", unequal)) is refused


@pytest.mark.parametrize(
    ("engine", "data", "moments", "block", "first"),
    [
        ("explicit", lf.FixedSamples(17), True, 3 * 11 * 17 * 8, 11 * 17 * 20),
        ("explicit", lf.FixedSamples(17), False, 0, 11 * 17 * 20),
        ("compressed", lf.FixedSamples(17), False, 3 * 11 * 17 * 8, 11 * 17 * 27),
        ("compressed", lf.FixedSamples(17, in_law=True), False, 0, 11 * 17 * 27),
        ("compressed", lf.FreshSamples(17), False, 0, 11 * 17 * 27),
        ("explicit", lf.FreshSamples(17), False, 5 * 17 * 7, 11 * 17 * 27),
        ("projected", lf.FreshSamples(17), True, 3 * 11 * 17 * 8, 11 * 17 * 27),
    ],
)
def test_blocks_of_rows_and_first_batches_are_counted(engine, data, moments, block, first):
    """A block has few clients' rows and labels, and two copies; a first batch all rows, unless they are stored.

    Fresh rows of the participants that are read twice have a buffer in front of the block.
    """
    setting = asked(data=data)
    assert engines.block_floats(engine, setting, moments) == block
    assert engines.first_batch_floats(engine, setting) == first


def test_a_block_has_at_least_one_client_and_else_no_more_than_the_cache(monkeypatch):
    setting = asked(data=lf.FixedSamples(17))
    for cache, clients in ((10**6, 11), (4 * 17 * 8, 4), (10, 1)):
        monkeypatch.setattr(engines, "CACHE_VALUES", cache)
        assert engines.block_floats("compressed", setting, False) == 3 * clients * 17 * 8


@pytest.mark.parametrize("engine", ["projected", "chain"])
def test_the_memory_does_not_depend_on_the_samples(engine):
    algorithm, problem = fedrep(), truth()
    sizes = Sizes(n_clients=6, dim=9, participants=6, n_rounds=5, features=20)
    floats = {
        floats_per_trial(
            engine, EngineQuery(algorithm=algorithm, problem=problem, data=lf.FreshSamples(m), sizes=sizes)
        )
        for m in (5, 10**9)
    }
    assert len(floats) == 1
    assert simulate(algorithm, problem, lf.FreshSamples(10**12), engine=engine).status == [Status.COMPLETED] * 3
