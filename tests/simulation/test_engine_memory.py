"""The memory of engines: nothing that is not needed, no cycles of references, and no more than is budgeted."""

import gc
import tracemalloc
import weakref

import pytest

import linfed as lf
from linfed.simulation.engines import ENGINES
from tests.data.small import GRADIENT, simulate
from tests.helpers import basis, normal, rounds_of
from tests.worlds import LEARNERS, fedrep, shared, truth

DRAWING = ["projected", "chain"]


@pytest.mark.parametrize("heads", [{}, {"heads": lf.GradientHeads()}])
@pytest.mark.parametrize("engine", DRAWING)
def test_nothing_of_the_size_of_clients_times_dimension(engine, heads):
    n, d = 20_000, 500
    algorithm, problem = fedrep(d=d, init="random", **heads), shared(n=n, d=d)
    tracemalloc.start()
    result = simulate(algorithm, problem, lf.FreshSamples(10), n_rounds=2, trials=1, engine=engine)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.3 * 8 * n * d
    assert result.final.B.shape == (1, d if engine == "projected" else 6, 2)


FREED = {
    "explicit": ["FedRep", "FedRep, gradient heads", "FedAvg, exactly fine-tuned", "FLUTE", "AltMin, split"],
    "projected": ["FedRep", "FedRep, gradient heads", "FLUTE", "GeneralFLUTE"],
    "chain": ["FedRep", "FLUTE"],
    "compressed": ["FedRep", "FedAvg, exactly fine-tuned", "FLUTE"],
}
FREED["explicit"] += ["FedRepShortcut, joint", "GeneralFLUTE"]
"""Learners that ask a batch in different ways."""


@pytest.fixture
def no_collector():
    """Run without the collector of cycles, which later looks at new objects alone."""
    gc.collect(0)
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize(("engine", "name"), [(engine, name) for engine in FREED for name in FREED[engine]])
def test_a_round_leaves_nothing_to_the_collector(engine, name, no_collector):
    """Batches and features are freed by their reference counts, one round after the next."""
    classes = lf.Classes(n_clients=6, n_classes=3, classes_per_client=2, dim=9)
    problem = classes if name == "GeneralFLUTE" or "FedRoD" in name else truth()
    algorithm = LEARNERS[name].make(step_size=0.02)
    for data in [lf.FreshSamples(12)] + [lf.FixedSamples(12)] * (engine in ("explicit", "compressed")):
        seen = []
        run = {"data": data, "n_rounds": 4, "participation": 0.5, "engine": engine}
        for step in rounds_of(algorithm, problem, **run):
            seen.append(weakref.ref(step.batch))
            del step
            assert sum(batch() is not None for batch in seen) <= 2  # the last round's, and the one of the end
        assert len(seen) >= 4
        assert [batch() for batch in seen] == [None] * len(seen)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    left = [type(thing).__name__ for thing in gc.garbage if type(thing).__module__.startswith("linfed")]
    gc.garbage.clear()
    assert left == []


@pytest.mark.long
@pytest.mark.parametrize("heads", [{}, GRADIENT])
@pytest.mark.parametrize("engine", ENGINES)
def test_memory_does_not_grow_with_the_rounds(engine, heads, no_collector):
    peaks = []
    for rounds in (4, 40):
        tracemalloc.start()
        simulate(
            fedrep(**heads), shared(n=2000), lf.FreshSamples(12), n_rounds=rounds, trials=1, metrics=[], engine=engine
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 2 * 8 * 2000 * 2  # twice the heads of one round


def budgeted(algorithm, problem, data, **arguments):
    """Return the estimated number of bytes of a trial, from the message of a run that may use one byte."""
    with pytest.raises(lf.SizeError) as caught:
        lf.simulate(algorithm, problem, data=data, memory_budget=1.0, **arguments)
    number, unit = str(caught.value).split("about ")[1].split(" ")[:2]
    return float(number) * 1000.0 ** ["B", "kB", "MB", "GB"].index(unit)


def taken(algorithm, problem, data, more, **arguments):
    """Return the number of bytes that each trial takes in addition to the first."""
    peaks = []
    lf.simulate(algorithm, problem, data=data, trials=1, **arguments)  # loads what it needs
    for trials in (1, 1 + more):
        tracemalloc.start()
        lf.simulate(algorithm, problem, data=data, trials=trials, **arguments)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / more


def test_the_second_copy_of_small_fixed_samples_is_budgeted():
    small, large = (
        budgeted(fedrep(d=16), shared(n=n, d=16), lf.FixedSamples(16), n_rounds=2, trials=1, engine="explicit")
        for n in (1024, 1025)
    )
    assert small > large + 0.9 * 8 * 1024 * 16 * 16


FOOTPRINTS = {
    "projected": ("projected", fedrep(d=40), shared(n=3000, d=40), lf.FreshSamples(10)),
    "projected, gradient heads": ("projected", fedrep(d=40, **GRADIENT), shared(n=3000, d=40), lf.FreshSamples(10)),
    "projected, m = k": ("projected", fedrep(d=40), shared(n=3000, d=40), lf.FreshSamples(2)),
    "projected, dense truth": (
        "projected",
        fedrep(d=40),
        lf.GivenTruth(B=basis(40, 2), Phi=normal(3000, 40)),
        lf.FreshSamples(10),
    ),
    "chain": ("chain", fedrep(d=4000), shared(n=3000, d=4000), lf.FreshSamples(10)),
    "compressed, fresh": ("compressed", fedrep(d=40), shared(n=300, d=40), lf.FreshSamples(100)),
    "compressed, fixed": ("compressed", fedrep(d=40), shared(n=300, d=40), lf.FixedSamples(100)),
    "compressed, fixed, FedAvg": (
        "compressed",
        lf.FedAvg(step_size=0.1, local_steps=2),
        shared(n=300, d=40),
        lf.FixedSamples(100),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FOOTPRINTS)
def test_a_trial_takes_no_more_memory_than_is_budgeted(name):
    engine, algorithm, problem, data = FOOTPRINTS[name]
    arguments = {"n_rounds": 3, "participation": 0.5, "engine": engine}
    assert taken(algorithm, problem, data, 8, **arguments) < 1.5 * budgeted(algorithm, problem, data, **arguments)
