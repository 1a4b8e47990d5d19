"""Results: their file, their text, their picture, and what they say when asked for something else."""

import dataclasses
import functools
import importlib
import json
import os
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest

import linfed as lf
from linfed.figures import style as plotting
from linfed.simulation import archive
from linfed.simulation.metrics import MetricTable
from linfed.simulation.results import Result
from linfed.system import files
from linfed.system.description import describe, rebuild
from tests.helpers import assert_one_line, basis, each, normal

mpl.use("Agg")
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def test_the_style_restores_its_own_settings_alone():
    before = dict(mpl.rcParams)
    try:
        with plotting.style():
            assert mpl.rcParams["font.size"] == plotting.STYLE["font.size"] != before["font.size"]
            mpl.interactive(True)  # as a notebook's backend does when its first figure is made
        assert mpl.is_interactive()
        mpl.interactive(before["interactive"])
        assert dict(mpl.rcParams) == before
        with pytest.raises(ZeroDivisionError), plotting.style():
            _ = 1 / 0
        assert dict(mpl.rcParams) == before
        restoration = plotting.style()  # without a with statement: until further notice
        assert mpl.rcParams["font.size"] == plotting.STYLE["font.size"]
        restoration.close()
        assert dict(mpl.rcParams) == before
    finally:
        mpl.rcParams.update(before)


@dataclass(frozen=True, kw_only=True)
class Counting(lf.State):
    """A state with an array of its own."""

    seen: np.ndarray = None


@dataclass(frozen=True, kw_only=True)
class Own(lf.Algorithm):
    """A user's algorithm: the mean gradient for everybody, and how often each client was seen."""

    step_size: float = 0.1

    def initial_state(self, start):
        shape = (start.trials, start.n_clients)
        return Counting(S=np.zeros((*shape, start.dim)), seen=np.zeros((*shape, 1)))

    def step(self, state, batch, rng):
        seen = state.seen.copy()
        np.put_along_axis(seen, batch.active[..., None], 1.0, axis=1)
        mean = batch.gradient(state.S[:, :1]).mean(axis=1, keepdims=True)
        return state.update(S=state.S - self.step_size * mean, seen=seen)

    def floats_per_trial(self, *, n_clients, dim, participants):
        return n_clients * (dim + 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnLaw(lf.Gaussian):
    """A user's law of x."""


# --- the file ------------------------------------------------------------------------------------------------

PROBLEM = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)


@dataclass(frozen=True)
class Held:
    """A configuration of a user's own."""

    value: object


FEDREP = lf.FedRep(rank=2, step_size=0.3)
B, W, S = normal(4, 2), normal(5, 2, seed=1), normal(5, 4, seed=2)
X, Y = normal(5, 3, 4), normal(5, 3)
UNEQUAL = lf.GivenSamples([X[i, : 1 + i % 3] for i in range(5)], [Y[i, : 1 + i % 3] for i in range(5)])
SAVED = {
    "defaults": (FEDREP, PROBLEM, lf.FreshSamples(5), 0),
    "FLUTE": (lf.FLUTE(rank=2, step_size=0.05), PROBLEM, lf.FixedSamples(5), 0),
    "FLUTE, every field": (
        lf.FLUTE(
            rank=2,
            step_size=0.05,
            server_step_size=0.03,
            gamma1=0.3,
            gamma2=0.2,
            init=lf.SmallRandom(0.5),
            gradient_factor=2,
        ),
        lf.UnderParameterized(n_clients=5, dim=4, spectrum=(3.0, 2.0, 1.0), gap=1.0, gap_after=2, noise_std=0.1),
        lf.FreshSamples(5),
        3,
    ),
    "FLUTE, given factors": (
        lf.FLUTE(rank=2, step_size=0.05, init=(normal(2, 4, 2), normal(5, 2))),
        lf.UnderParameterized(n_clients=5, dim=4),
        UNEQUAL,
        0,
    ),
    "shortcuts": (
        lf.FedRepShortcut(rank=2, step_size=0.05, solver=lf.GradientSteps(shortcut_step_size=0.01)),
        PROBLEM,
        lf.FreshSamples(5),
        0,
    ),
    "shortcuts, gradient, every field": (
        lf.FedRepShortcut(
            rank=2,
            step_size=0.05,
            solver=lf.GradientSteps(
                head_steps=2,
                head_step_size=np.float64(0.1),
                shortcut_steps=np.int64(3),
                shortcut_step_size=0.01,
                order="gauss-seidel",
            ),
            representation_steps=2,
            mixing=0.4,
            ridge=0.2,
            refit=np.True_,
            init=lf.AtDistance(0.5),
        ),
        lf.SharedWithShortcuts(
            n_clients=5, dim=4, rank=2, shortcut_norm=np.float64(0.3), orthogonal=True, clusters=np.int64(3)
        ),
        lf.FixedSamples(5),
        3,
    ),
    "shortcuts, closed form": (
        lf.FedRepShortcut(rank=2, step_size=0.05, solver=lf.ClosedForm(order="joint"), ridge=0.5, init=B),
        lf.SharedWithShortcuts(n_clients=5, dim=4, rank=2, shortcut_norm=1, sparsity=2, noise_std=0.1),
        UNEQUAL,
        0,
    ),
    "every field": (
        lf.FedRep(
            rank=2,
            step_size=0.1,
            init=lf.Moments(clients=3),
            heads=lf.GradientHeads(steps=3, step_size=0.2),
            representation_steps=2,
            orthonormalize=True,
            aggregate="sum",
            rotate_heads=True,
        ),
        lf.SharedRepresentation(n_clients=5, dim=4, rank=2, head_norm=3.0, condition_number=2.0, design="sphere"),
        lf.FixedSamples(4),
        (3, 1, 4),
    ),
    "similar representations": (
        FEDREP,
        lf.SimilarRepresentations(
            n_clients=5, dim=4, rank=2, deviation=np.float64(0.3), outliers=0.2, heterogeneity=0.5, noise_std=0.1
        ),
        lf.FreshSamples(5),
        0,
    ),
    "numpy numbers": (
        lf.FedRep(
            rank=np.int64(2), step_size=np.float64(0.3), init=lf.Moments(clients=np.int64(3)), orthonormalize=np.False_
        ),
        lf.SharedRepresentation(n_clients=np.int32(5), dim=4, rank=2, noise_std=np.float32(0.5)),
        lf.FreshSamples(np.int64(5)),
        np.int64(7),
    ),
    "heads with a ridge": (
        lf.FedRep(rank=2, step_size=0.3, heads=lf.ExactHeads(ridge=0.1)),
        PROBLEM,
        lf.FreshSamples(5),
        0,
    ),
    "random init": (lf.FedRep(rank=2, step_size=0.3, init="random"), PROBLEM, lf.FreshSamples(5), 2**70),
    "init at a distance": (lf.FedRep(rank=2, step_size=0.3, init=lf.AtDistance(0.25)), PROBLEM, lf.FreshSamples(5), 0),
    "init given": (lf.FedRep(rank=2, step_size=0.3, init=B), PROBLEM, lf.FreshSamples(5), 0),
    "init given to trials": (lf.FedRep(rank=2, step_size=0.3, init=normal(2, 4, 2)), PROBLEM, lf.FreshSamples(5), 0),
    "local only": (lf.LocalOnly(ridge=0.1), PROBLEM, lf.FixedSamples(3), 0),
    "FedAvg": (lf.FedAvg(step_size=0.1, weights="samples"), PROBLEM, lf.FixedSamples(3), 0),
    "FedAvg, every field": (
        lf.FedAvg(
            step_size=0.1,
            rank=np.int64(2),
            local_steps=2,
            server_step_size=0.5,
            weights="samples",
            init=B,
            fine_tune=lf.GradientHeads(steps=3, step_size=np.float64(0.2)),
        ),
        PROBLEM,
        lf.FreshSamples(5),
        0,
    ),
    "FedPer": (lf.FedPer(rank=2, step_size=0.1, local_steps=2, server_step_size=0.5), PROBLEM, lf.FixedSamples(3), 0),
    "LG-FedAvg": (lf.LGFedAvg(rank=2, step_size=0.1, init=B), PROBLEM, lf.FixedSamples(3), 0),
    "FedRoD": (
        lf.FedRoD(rank=2, step_size=0.1, weights="samples", personal=lf.ExactHeads(ridge=0.1)),
        PROBLEM,
        lf.FixedSamples(3),
        0,
    ),
    "pooled": (lf.PooledLeastSquares(weights="samples"), PROBLEM, lf.FixedSamples(3), 0),
    "oracle": (lf.Oracle(rank=1, ridge=0.5), PROBLEM, lf.FixedSamples(3), 0),
    "personalised": (
        lf.Personalized(base=lf.FedRep(rank=2, step_size=0.1, init=B), ridge=0.5),
        PROBLEM,
        lf.FixedSamples(3),
        0,
    ),
    "the true subspace": (lf.FedRep(rank=2, step_size=0.3, init=lf.TrueSubspace()), PROBLEM, lf.FixedSamples(3), 0),
    "truth B, W": (FEDREP, lf.GivenTruth(B=B, W=W), lf.FreshSamples(5), 0),
    "truth S": (FEDREP, lf.GivenTruth(S=S, noise_std=0.1), lf.FreshSamples(5), 0),
    "truth B, W, S": (FEDREP, lf.GivenTruth(B=B, W=W, S=S), lf.FreshSamples(5), 0),
    "truth Phi, B of trials": (FEDREP, lf.GivenTruth(Phi=normal(2, 5, 4), B=B), lf.FreshSamples(5), 0),
    "given samples": (FEDREP, None, lf.GivenSamples(X, Y), 0),
    "given samples of trials": (FEDREP, PROBLEM, lf.GivenSamples(np.stack([X, -X]), np.stack([Y, Y])), 0),
    "given lists": (FEDREP, None, UNEQUAL, 0),
    **{
        f"covariance {name}": (
            FEDREP,
            lf.SharedRepresentation(n_clients=5, dim=4, rank=2, design=lf.UniformCube(covariance=covariance)),
            lf.FreshSamples(5),
            0,
        )
        for name, covariance in {"number": 2.0, "vector": [1.0, 2.0, 3.0, 4.0], "matrix": np.eye(4) + 0.5}.items()
    },
}


def run(algorithm, problem, data, seed, **changes):
    arguments = {"rounds": 4, "participation": 0.6, "trials": 2, "record_every": 3} | changes
    return lf.simulate(algorithm, problem, data=data, seed=seed, **arguments)


def assert_same_numbers(one, other):
    assert list(one.metrics) == list(other.metrics)
    for name, values in one.metrics.items():
        assert values.tobytes() == other.metrics[name].tobytes()
    assert one.final.arrays().keys() == other.final.arrays().keys()
    for name, array in one.final.arrays().items():
        assert np.ascontiguousarray(array).tobytes() == np.ascontiguousarray(other.final.arrays()[name]).tobytes()
    assert one.rounds.tolist() == other.rounds.tolist()
    assert one.status == other.status
    assert one.status_round.tolist() == other.status_round.tolist()


@pytest.mark.parametrize("name", SAVED)
def test_a_file_gives_everything_back(name, tmp_path):
    result = run(*SAVED[name])
    path = result.save(tmp_path / "result.npz")
    assert path == tmp_path / "result.npz"
    loaded = Result.load(path)
    assert_same_numbers(result, loaded)
    assert loaded.metrics.absent == result.metrics.absent
    assert (loaded.seed, type(loaded.seed)) == (result.seed, type(result.seed))
    assert (loaded.participants, loaded.seconds, loaded.trials) == (3, result.seconds, 2)
    assert loaded.algorithm == result.algorithm
    assert repr((loaded.algorithm, loaded.problem, loaded.data)) == repr(
        (result.algorithm, result.problem, result.data)
    )
    assert loaded.summary() == result.summary()
    # What was run is there as well: it runs again, to the same bits.
    assert_same_numbers(run(loaded.algorithm, loaded.problem, loaded.data, loaded.seed), result)


def test_given_arrays_come_back_bit_for_bit(tmp_path):
    data, design = UNEQUAL, lf.Gaussian(covariance=np.eye(4) + 0.5)
    result = run(FEDREP, lf.GivenTruth(Phi=S, B=B, design=design), data, 0)
    loaded = Result.load(result.save(tmp_path / "x"))
    for part in ("X", "y", "counts"):
        assert getattr(loaded.data, part).tobytes() == getattr(data, part).tobytes()
        assert getattr(loaded.data, part).shape == getattr(data, part).shape
        assert not getattr(loaded.data, part).flags.writeable
    assert np.array_equal(loaded.problem.Phi, S)
    assert np.array_equal(loaded.problem.B, B)
    assert (loaded.problem.W, loaded.problem.S) == (None, None)
    assert loaded.problem.design == result.problem.design


def test_diverged_trials_come_back(tmp_path):
    algorithm = lf.FedRep(rank=2, step_size=50.0, init="random", heads=lf.GradientHeads(), orthonormalize=False)
    result = run(algorithm, PROBLEM, lf.FreshSamples(5), 0, rounds=30)
    assert lf.Status.DIVERGED in result.status
    assert_same_numbers(result, Result.load(result.save(tmp_path / "x.npz")))


@dataclass(frozen=True, kw_only=True)
class Scaled(lf.Design):
    """A law of a user's own with fields of its own."""

    weights: object = None
    signs: bool = False

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "weights", np.asarray(self.weights, dtype=float))

    def draw(self, rng, out):
        rng.random(out=out)
        out -= 0.5
        out *= self.weights


@dataclass(frozen=True)
class Tilted(lf.Initial):
    """A user's own start."""

    by: object
    twice: object = ("a", 1, None)
    needs_batch = True

    def resolve(self, start, rank):
        return start.batch().least_squares()[:, :rank].mT + float(self.by)


@dataclass(frozen=True, kw_only=True)
class Twins(lf.SharedRepresentation):
    """A user's own problem, with a list among its fields."""

    names: object = None


@dataclass(frozen=True)
class Every:
    """A law of steps, held by an algorithm and no class of linfed's."""

    rounds: object


@dataclass(frozen=True, kw_only=True)
class Scheduled(lf.FedRep):
    """A user's own algorithm with what `encode` has to look into."""

    schedule: Every | None = None


OWN = {
    "an algorithm": (Own(step_size=0.25), PROBLEM, lf.FixedSamples(5)),
    "a law": (
        FEDREP,
        lf.SharedRepresentation(n_clients=5, dim=4, rank=2, design=Scaled(weights=[1, 2, 3, 4])),
        lf.FixedSamples(5),
    ),
    "a law without fields": (
        FEDREP,
        lf.SharedRepresentation(n_clients=5, dim=4, rank=2, design=OwnLaw()),
        lf.FixedSamples(5),
    ),
    "a start": (lf.FedRep(rank=2, step_size=0.1, init=Tilted(np.float32(0.5))), PROBLEM, lf.FixedSamples(5)),
    "a problem": (FEDREP, Twins(n_clients=5, dim=4, rank=2, names=["a", "b"]), lf.FixedSamples(5)),
    "a class of no kind": (
        Scheduled(rank=np.int64(2), step_size=0.1, init=B, schedule=Every([np.int64(3), (1.5, True)])),
        PROBLEM,
        lf.FreshSamples(5),
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_what_is_a_users_own_comes_back(name, tmp_path):
    result = run(*OWN[name], 0)
    loaded = Result.load(result.save(tmp_path / "own.npz"))
    assert_same_numbers(result, loaded)
    assert loaded.algorithm == result.algorithm
    assert type(loaded.algorithm) is type(result.algorithm)
    assert loaded.problem == result.problem
    assert type(loaded.final) is type(result.final)
    assert_same_numbers(run(loaded.algorithm, loaded.problem, loaded.data, 0), result)


def test_a_class_made_within_a_function_comes_back(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Within(lf.LocalOnly):
        more: int = 3

    result = run(Within(more=5), PROBLEM, lf.FixedSamples(5), 0)
    loaded = Result.load(result.save(tmp_path / "own.npz"))
    assert type(loaded.algorithm) is Within
    assert loaded.algorithm == Within(more=5)


ELSEWHERE = """
from dataclasses import dataclass
import numpy as np
import linfed as lf

@dataclass(frozen=True, kw_only=True)
class Remembers(lf.State):
    M: object = None
    seen: object = None
    per_client = lf.State.per_client | {"seen"}

@dataclass(frozen=True, kw_only=True)
class Foreign(lf.Algorithm):
    start: object = None

    def initial_state(self, start):
        shape = (start.trials, start.n_clients)
        return Remembers(S=np.zeros((*shape, start.dim)), M=np.ones((start.trials, 3)), seen=np.zeros((*shape, 1)))

    def step(self, state, batch, rng):
        return state.update(S=batch.least_squares(), M=state.M * 2.0, active=batch.active)

@dataclass(frozen=True)
class Law(lf.Design):
    def draw(self, rng, out):
        rng.random(out=out)
"""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Return a module of a user's own and a function that makes this process forget it."""
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("elsewhere"), lambda: sys.modules.pop("elsewhere", None)
    sys.modules.pop("elsewhere", None)


def test_numbers_come_back_where_the_classes_are_unknown(elsewhere, tmp_path, monkeypatch):
    module, forget = elsewhere
    problem = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, design=module.Law(covariance=np.eye(4)))
    algorithm = module.Foreign(start=normal(2, 3))
    result = run(algorithm, problem, lf.FixedSamples(5), 0)
    path = result.save(tmp_path / "own.npz")
    forget()
    monkeypatch.setattr(
        "linfed.system.description._users_class", lambda name: None
    )  # as in a process that never had it
    loaded = Result.load(path)
    assert_same_numbers(result, loaded)
    assert (loaded.name, repr(loaded.algorithm)) == ("Foreign", repr(algorithm))
    assert "Law" in repr(loaded.problem)
    assert isinstance(loaded.final, lf.State)
    assert repr(loaded.final).startswith("Remembers(S (2, 5, 4), M (2, 3), seen (2, 5, 1))")
    assert loaded.final.per_client == {"W", "S", "seen"}
    assert np.array_equal(loaded.final.M, np.full((2, 3), 16.0))
    assert np.array_equal(loaded.final.predictors(), result.final.predictors())
    assert "Foreign" in loaded.summary()
    again = Result.load(loaded.save(tmp_path / "again.npz"))  # from one who does not know it to one who does
    assert_same_numbers(result, again)
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("elsewhere")
    whole = Result.load(tmp_path / "again.npz")
    assert type(whole.final) is module.Remembers
    assert isinstance(whole.algorithm, module.Foreign)
    assert np.array_equal(whole.algorithm.start, algorithm.start)
    assert isinstance(whole.problem.design, module.Law)
    assert_same_numbers(result, whole)
    assert_same_numbers(run(whole.algorithm, whole.problem, whole.data, 0), result)


@pytest.mark.long
def test_another_process_reads_what_it_can(elsewhere, tmp_path):
    module, _ = elsewhere
    result = run(module.Foreign(), PROBLEM, lf.FixedSamples(5), 0)
    path = result.save(tmp_path / "own.npz")
    code = (
        "import sys; from linfed.simulation.results import Result; loaded = Result.load(sys.argv[1]); "
        "print(float(loaded.metrics['risk'].sum()), loaded.status, sorted(loaded.final.arrays()), loaded.name)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    risk = float(result.metrics["risk"].sum())
    assert done.stdout.split("\n")[0] == f"{risk} {result.status} {['M', 'S', 'seen']} Foreign"


def test_a_class_that_has_changed_comes_back_as_its_text(elsewhere, tmp_path):
    module, forget = elsewhere
    result = run(module.Foreign(start=2), PROBLEM, lf.FixedSamples(5), 0)
    path = result.save(tmp_path / "own.npz")
    forget()
    changed = ELSEWHERE.replace("start: object = None", "begin: object = None").replace("M: object", "N: object")
    (tmp_path / "elsewhere.py").write_text(changed + "# a longer file\n")
    importlib.invalidate_caches()
    importlib.import_module("elsewhere")
    loaded = Result.load(path)
    assert_same_numbers(result, loaded)
    assert repr(loaded.algorithm) == "Foreign(start=2)"
    assert sorted(loaded.final.arrays()) == ["M", "S", "seen"]


def test_what_cannot_be_described_comes_back_as_its_text(tmp_path):
    result = run(Scheduled(rank=2, step_size=0.1, schedule=Every(max)), PROBLEM, lf.FixedSamples(5), 0)
    loaded = Result.load(result.save(tmp_path / "own.npz"))
    assert_same_numbers(result, loaded)
    assert "built-in function max" in repr(loaded.algorithm)
    again = Result.load(loaded.save(tmp_path / "again.npz"))
    assert (again.name, repr(again.algorithm)) == ("Scheduled", repr(loaded.algorithm))


def first_format(fields, module=None, cls="FedRep"):
    """Return the description of a configuration of numbers in a file of format 1."""
    origin = {} if module is None else {"module": module, "qualname": cls}
    values = {name: value if isinstance(value, dict) else {"value": value} for name, value in fields.items()}
    return {"class": cls, **origin, "fields": values, "text": f"{cls}()"}


def test_files_of_the_first_format_are_read(tmp_path):
    """As 0.1.0 wrote them."""
    data = lf.GivenSamples(X, Y, test=(X[:, :2], Y[:, :2]))
    who = np.tile(np.arange(5), (3, 1))
    given = lf.GivenTruth(B=basis(4, 2), W=W, design=lf.UniformSphere())
    algorithm = lf.FedRep(rank=2, step_size=0.3, heads=lf.GradientHeads(steps=2), weights=(1.0, 2.0, 1.0, 1.0, 1.0))
    result = lf.simulate(algorithm, given, data=data, rounds=3, seed=(4, 5), participation=who, metrics=["risk"])
    arrays, described = files.read(result.save(tmp_path / "new.npz"))
    arrays |= {"problem/B": given.B, "problem/W": given.W, "participation": who}
    for name, samples in (("data", data), ("data/test", data.test)):
        arrays |= {f"{name}/{part}": getattr(samples, part) for part in ("X", "y", "counts")}
    parts = {"B": {"array": "problem/B"}, "W": {"array": "problem/W"}, "design": first_format({}, cls="UniformSphere")}
    heads = first_format({"steps": 2, "step_size": None}, cls="GradientHeads")
    weights = {"tuple": [{"value": one} for one in (1.0, 2.0, 1.0, 1.0, 1.0)]}
    first = {
        "format": 1,
        "algorithm": first_format({"rank": 2, "step_size": 0.3, "heads": heads, "weights": weights}),
        "problem": first_format(parts, cls="GivenTruth"),
        "data": {"samples": "data", "test": {"samples": "data/test", "test": {"value": None}}},
        "participation": {"array": "participation"},
        "seed": [4, 5],
    }
    loaded = Result.load(files.write(tmp_path / "first.npz", arrays, described | first))
    assert_same_numbers(result, loaded)
    assert (loaded.algorithm, repr(loaded.problem), loaded.seed) == (algorithm, repr(given), (4, 5))
    assert np.array_equal(loaded.participation, who)
    assert np.array_equal(loaded.data.test.X, X[:, :2])
    assert np.array_equal(loaded.per_client("test_loss"), result.per_client("test_loss"))
    own = {"algorithm": first_format({"rate": 0.5}, "elsewhere", "Gone"), "data": {"repr": "<data>", "name": "Data"}}
    unknown = Result.load(files.write(tmp_path / "own.npz", arrays, described | first | own))
    assert (unknown.name, repr(unknown.algorithm), repr(unknown.data)) == ("Gone", "Gone()", "<data>")
    again = Result.load(unknown.save(tmp_path / "again.npz"))
    assert (repr(again.algorithm), repr(again.data)) == ("Gone()", "<data>")
    assert_same_numbers(result, again)
    lists = {"list": [{"value": 1}, {"tuple": []}]}
    values = first_format({"value": lists}, __name__, "Held")
    held = Result.load(files.write(tmp_path / "held.npz", arrays, described | first | {"algorithm": values}))
    assert held.algorithm == Held([1, ()])


def test_given_classes_of_the_first_format_are_read(tmp_path):
    data = lf.GivenClasses(X, np.arange(15).reshape(5, 3) % 3)
    result = lf.simulate(lf.FedAvg(rank=2, step_size=0.1), data=data, rounds=2)
    arrays, described = files.read(result.save(tmp_path / "new.npz"))
    arrays |= {f"data/{part}": getattr(data, part) for part in ("X", "y", "counts")}
    first = {
        "format": 1,
        "algorithm": {"repr": "FedAvg()", "name": "FedAvg"},
        "problem": {"value": None},
        "data": {"samples": "data", "classes": 3},  # the oldest have no field for held-out samples
        "participation": {"value": 1.0},
        "seed": 0,
    }
    loaded = Result.load(files.write(tmp_path / "first.npz", arrays, described | first))
    assert repr(loaded.data) == repr(data)
    assert np.array_equal(loaded.data.holds, data.holds)
    assert (loaded.data.test, loaded.problem, loaded.participation, loaded.seed) == (None, None, 1.0, 0)


@pytest.mark.parametrize(("given", "written"), [("a.npz", "a.npz"), ("a", "a.npz"), ("a.b", "a.b.npz")])
def test_the_name_of_the_file(given, written, tmp_path):
    result = run(*SAVED["defaults"])
    assert result.save(str(tmp_path / given)) == tmp_path / written
    assert os.listdir(tmp_path) == [written]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("old", [True, False])
def test_an_interrupted_write_leaves_what_was_there(error, old, tmp_path, monkeypatch):
    first, second = run(*SAVED["defaults"]), run(*SAVED["truth S"])
    path = tmp_path / "result.npz"
    if old:
        first.save(path)

    def interrupted(file, array, **options):
        file.write(b"half of it")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array", interrupted)
        with pytest.raises(error):
            second.save(path)
    assert os.listdir(tmp_path) == (["result.npz"] if old else [])
    if old:
        assert_same_numbers(Result.load(path), first)
    second.save(path)
    assert_same_numbers(Result.load(path), second)


def wrong_files(folder):
    """Write files that are no results."""
    whole = run(*SAVED["defaults"]).save(folder / "whole.npz").read_bytes()
    (folder / "text").write_text("not a result\n")
    (folder / "empty").write_bytes(b"")
    (folder / "cut").write_bytes(whole[: len(whole) // 2])
    np.save(folder / "one array.npy", np.ones(3))
    np.savez(folder / "arrays.npz", a=np.ones(3))
    np.savez(folder / "described.npz", description=np.array("something else"))
    np.savez(folder / "near miss.npz", description=np.array("{}"))


@pytest.mark.parametrize(
    "name", ["text", "empty", "cut", "one array.npy", "arrays.npz", "described.npz", "near miss.npz"]
)
def test_a_file_that_is_no_result_is_named(name, tmp_path):
    wrong_files(tmp_path)
    with pytest.raises(ValueError, match="is not a result written by linfed") as caught:
        Result.load(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_table_is_named(tmp_path):
    """A column without its array, a header that is not Python, an offset before the file's start, and a pipe."""
    table = lf.Table([{"error": np.ones(3)}])
    _, described = files.read(table.save(tmp_path / "whole"))
    files.write(tmp_path / "lacks.npz", {}, described)
    with zipfile.ZipFile(tmp_path / "header.npz", "w") as archive:
        archive.writestr("description.npy", b"\x93NUMPY\x01\x00\x02\x00{(")
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "offset.npz").write_bytes(whole[200:])
    names = ["lacks.npz", "header.npz", "offset.npz"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.npz")
        names.append("pipe.npz")
    for name in names:
        with pytest.raises(ValueError, match=f"{name}' is not a result written by linfed"):
            lf.Table.load(tmp_path / name)


def with_format(path, **changes):
    """Write a result's file again with another description; None leaves a field out."""
    arrays, described = files.read(path)
    described = {name: value for name, value in (described | changes).items() if value is not None}
    return files.write(path, arrays, described)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"format": None, "version": None}, ["by an earlier linfed", "no format number", "formats 1 and 2", "run it"]),
        ({"format": 0, "version": "0.0.9"}, ["by linfed 0.0.9", "has format 0,", "reads formats 1 and 2"]),
        (
            {"format": 7, "version": "9.9"},
            ["by linfed 9.9", "format 7, but this version reads only formats up to 2", "a newer linfed"],
        ),
        ({"format": 7, "problem": {"kind": "of the future"}}, ["format 7, but this version reads only"]),
        ({"format": "x"}, ["has format x,", "reads formats 1 and 2"]),
    ],
)
def test_a_file_of_another_format_is_told_so(changes, fragments, tmp_path):
    path = with_format(run(*SAVED["defaults"]).save(tmp_path / "old.npz"), **changes)
    assert_one_line(lambda: Result.load(path), ["old.npz' was written by", *fragments])
    assert Result.load(with_format(path, **run_described(tmp_path))).trials == 2


def run_described(folder):
    return files.read(run(*SAVED["defaults"]).save(folder / "whole.npz"))[1]


def test_objects_are_never_written(tmp_path):
    result = run(*SAVED["defaults"])
    for rounds in (np.array([0, 10**30]), np.zeros(2, dtype=[("value", object)])):
        with pytest.raises(ValueError, match="rounds must not be an array of objects"):
            dataclasses.replace(result, rounds=rounds).save(tmp_path / "x.npz")
    assert os.listdir(tmp_path) == []


def test_rounds_that_are_recorded_seldom_come_back(tmp_path):
    result = run(*SAVED["defaults"], record_every=10**30)
    assert_same_numbers(result, Result.load(result.save(tmp_path / "x.npz")))


def test_missing_places_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        run(*SAVED["defaults"]).save(tmp_path / "nowhere" / "a.npz")
    with pytest.raises(FileNotFoundError):
        Result.load(tmp_path / "absent.npz")


# --- text and records ----------------------------------------------------------------------------------------


def mixed():
    """Return a run of three trials of which the second diverges."""
    heads = normal(3, 5, 2) * np.array([1.0, 100.0, 1.0])[:, None, None]
    algorithm = lf.FedRep(
        rank=2, step_size=0.3, init=normal(4, 2, seed=3) / 2, heads=lf.GradientHeads(), orthonormalize=False
    )
    data = lf.FixedSamples(6)
    result = lf.simulate(algorithm, lf.GivenTruth(B=np.eye(4)[:, :2], W=heads), data=data, rounds=20, record_every=2)
    assert result.status == [lf.Status.COMPLETED, lf.Status.DIVERGED, lf.Status.COMPLETED]
    return result


def test_summary():
    result = mixed()
    text = result.summary()
    for part in ("FedRep(rank=2", "FixedSamples(n_samples=6)", "3 trials of 20 rounds", "5 clients a round", "seed 0"):
        assert part in text
    assert "2 COMPLETED, 1 DIVERGED" in text
    for name, values in result.metrics.items():
        (line,) = (line for line in text.splitlines() if line.startswith(name))
        assert f"{np.sort(values[[0, 2], -1])[1]:.4g}" in line  # the diverged trial counts as the worst
    assert repr(result) == "<Result of FedRep: 3 trials, 20 rounds, 1 DIVERGED>"


def test_summary_of_a_run_without_a_truth_and_of_one_trial():
    text = run(*SAVED["given samples"], trials=1).summary()
    assert "no ground truth" in text
    assert "1 trial of" in text
    assert text.splitlines()[-1].startswith("train_loss")
    assert "median" not in run(*SAVED["given samples"], metrics=[]).summary()


def test_summary_where_every_trial_diverged():
    algorithm = lf.FedRep(rank=2, step_size=1e9, init="random", heads=lf.GradientHeads(), orthonormalize=False)
    result = run(algorithm, PROBLEM, lf.FreshSamples(5), 0, rounds=30)
    assert "2 DIVERGED" in result.summary()
    assert "inf" in result.summary()


def test_records_are_one_line_per_number():
    result = mixed()
    records = result.to_records()
    assert len(records) == 3 * len(result.rounds) * len(result.metrics)
    columns = {int(round_): column for column, round_ in enumerate(result.rounds)}
    for record in records:
        expected = result.metrics[record["metric"]][record["trial"], columns[record["round"]]]
        assert np.array_equal(record["value"], expected, equal_nan=True)
        assert [type(value) for value in record.values()] == [int, int, str, float, str]
        assert record["status"] == result.status[record["trial"]].name
    assert len({tuple(record.values())[:3] for record in records}) == len(records)


def test_the_metric_table_is_a_mapping():
    metrics = run(*SAVED["defaults"]).metrics
    assert dict(metrics) == {name: metrics[name] for name in metrics}
    expected = [name for name in lf.METRICS if name not in metrics.absent]
    assert (len(metrics), list(metrics)) == (len(expected), expected)
    assert "risk: (2, 3)" in repr(metrics)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("risks", ["'risks' is unknown", "did you mean 'risk'?", "'parameter_error'"]),
        ("subspace_distance", ["'subspace_distance' is absent", "no representation"]),
        ("zzz", ["'zzz' is unknown"]),
    ],
)
def test_a_metric_that_is_not_there_says_why(name, parts):
    result = run(*SAVED["local only"])
    with pytest.raises(KeyError) as caught:
        result.metrics[name]
    assert all(part in str(caught.value) for part in parts)
    assert ("did you mean" in str(caught.value)) == (name == "risks")
    with pytest.raises((KeyError, ValueError)) as caught:
        result.plot(name)
    assert name in str(caught.value)


# --- the picture ---------------------------------------------------------------------------------------------


def lines_and_bands(ax):
    return ax.get_lines(), ax.collections


def test_plot_draws_median_and_band():
    result = run(*SAVED["defaults"], trials=21, rounds=12, record_every=1)
    ax = result.plot("parameter_error")
    assert isinstance(ax, plt.Axes)
    (line,), (band,) = lines_and_bands(ax)
    values = np.sort(result.metrics["parameter_error"], axis=0)
    assert line.get_xdata().tolist() == list(range(13))
    assert np.array_equal(line.get_ydata(), np.median(values, axis=0))
    heights = band.get_paths()[0].vertices[:, 1]
    assert values[1].min() <= heights.min() <= values[3].min()
    assert values[17].max() <= heights.max() <= values[19].max()
    assert (ax.get_yscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "round", "parameter error")
    assert line.get_label() == "FedRep"


@pytest.mark.parametrize("trials", [1, 3, 5, 7, 9])
def test_plot_draws_the_middle_trial(trials):
    """An odd number of trials has one middle value, and that is the median, whatever its parity."""
    result = run(*SAVED["defaults"], trials=trials)
    (line,), _ = lines_and_bands(result.plot("risk"))
    assert np.array_equal(line.get_ydata(), np.median(result.metrics["risk"], axis=0))


def test_plot_on_given_axes_with_a_label_and_no_band():
    figure, ax = plt.subplots()
    result = run(*SAVED["defaults"])
    assert result.plot("risk", ax=ax, label="mine", band=False) is ax
    other = run(*SAVED["local only"])
    other.plot("risk", ax=ax)
    lines, bands = lines_and_bands(ax)
    assert [line.get_label() for line in lines] == ["mine", "LocalOnly"]
    assert len(bands) == 1
    assert lines[0].get_color() != lines[1].get_color()
    assert ax.figure is figure


def told_apart(ax, count):
    """Return the labels of lines that differ in label and in colour, or in marker."""
    lines, _ = lines_and_bands(ax)
    assert len(lines) == len({line.get_label() for line in lines}) == count
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == count
    return [line.get_label() for line in lines]


def test_plot_tells_runs_of_one_class_apart():
    results = [run(lf.FedRep(rank=2, step_size=step), PROBLEM, lf.FixedSamples(5), 0) for step in (0.3, 0.1, 0.05)]
    ax = results[0].plot("risk")
    assert told_apart(ax, 1) == ["FedRep"]
    own_look = ax.lines[0].get_color(), ax.lines[0].get_marker()
    results[1].plot("risk", ax=ax)
    assert told_apart(ax, 2) == ["FedRep (step_size=0.3)", "FedRep (step_size=0.1)"]
    results[2].plot("risk", ax=ax)
    run(lf.LocalOnly(), PROBLEM, lf.FixedSamples(5), 0).plot("risk", ax=ax)
    names = ["FedRep (step_size=0.3)", "FedRep (step_size=0.1)", "FedRep (step_size=0.05)", "LocalOnly"]
    assert told_apart(ax, 4) == names
    assert (ax.lines[0].get_color(), ax.lines[0].get_marker()) == own_look
    bands = [tuple(band.get_facecolor()[0][:3]) for band in ax.collections]
    assert bands == [mpl.colors.to_rgb(line.get_color()) for line in ax.lines]
    many = plt.figure().subplots()
    for step in range(1, 16):
        run(lf.FedRep(rank=2, step_size=step / 20), PROBLEM, lf.FixedSamples(5), 0).plot("risk", ax=many)
    told_apart(many, 15)


def test_plot_tells_heads_apart():
    ax = plt.figure().subplots()
    for heads in (lf.ExactHeads(), lf.GradientHeads(), lf.GradientHeads(steps=10)):
        run(lf.FedRep(rank=2, step_size=0.3, heads=heads), PROBLEM, lf.FixedSamples(5), 0).plot("risk", ax=ax)
    names = [
        "ExactHeads(ridge=0.0)",
        "GradientHeads(steps=1, step_size=None)",
        "GradientHeads(steps=10, step_size=None)",
    ]
    assert told_apart(ax, 3) == [f"FedRep (heads={name})" for name in names]


def test_plot_tells_apart_what_else_differs():
    """Fields of the algorithm first; then metrics, data and the rest, as far as they are needed."""
    fixed = lf.FixedSamples(5)
    ax = run(FEDREP, PROBLEM, fixed, 0).plot("risk")
    run(FEDREP, PROBLEM, lf.FixedSamples(7), 0).plot("risk", ax=ax)
    assert told_apart(ax, 2) == ["FedRep (data=FixedSamples(n_samples=5))", "FedRep (data=FixedSamples(n_samples=7))"]
    run(lf.FedRep(rank=1, step_size=0.3), PROBLEM, fixed, 0).plot("risk", ax=ax)
    assert told_apart(ax, 3)[2] == "FedRep (rank=1, data=FixedSamples(n_samples=5))"
    metrics = run(FEDREP, PROBLEM, fixed, 0).plot("risk")
    run(FEDREP, PROBLEM, fixed, 0).plot("mean_client_error", ax=metrics)
    assert told_apart(metrics, 2) == ["FedRep (metric=risk)", "FedRep (metric=mean_client_error)"]
    seeds = run(FEDREP, PROBLEM, fixed, 0).plot("risk")
    run(FEDREP, PROBLEM, fixed, (1, 2)).plot("risk", ax=seeds)
    assert told_apart(seeds, 2) == ["FedRep (seed=0)", "FedRep (seed=(1, 2))"]
    named = run(FEDREP, PROBLEM, fixed, 0).plot("risk", label="mine")
    run(FEDREP, PROBLEM, fixed, 1).plot("risk", ax=named)
    assert told_apart(named, 2) == ["mine", "FedRep"]
    named.lines[1].set_label("renamed")
    run(FEDREP, PROBLEM, fixed, 2).plot("risk", ax=named)
    assert told_apart(named, 3) == ["mine", "renamed", "FedRep"]


def test_plot_tells_apart_what_was_loaded(tmp_path):
    ax = plt.figure().subplots()
    for step in (0.1, 0.2):
        path = run(Own(step_size=step), PROBLEM, lf.FixedSamples(5), 0).save(tmp_path / "a.npz")
        Result.load(path).plot("risk", ax=ax)
    assert told_apart(ax, 2) == ["Own (step_size=0.1)", "Own (step_size=0.2)"]


def test_plot_passes_line_options_on():
    result = run(*SAVED["defaults"])
    ax = result.plot("risk", color="red", ls=":", linewidth=3, marker="s", markevery=2, alpha=0.5)
    (line,), (band,) = lines_and_bands(ax)
    assert (line.get_color(), line.get_linestyle(), line.get_linewidth()) == ("red", ":", 3)
    assert (line.get_marker(), line.get_markevery(), line.get_alpha()) == ("s", 2, 0.5)
    assert tuple(band.get_facecolor()[0][:3]) == (1.0, 0.0, 0.0)
    result.plot("risk", ax=ax, c="blue")
    assert ax.lines[1].get_color() == "blue"
    figures = plt.get_fignums()
    with pytest.raises(
        TypeError, match=r"'colr', which is not a property of a matplotlib line \(did you mean 'color'\?\)"
    ):
        result.plot("risk", colr="red")
    assert plt.get_fignums() == figures


def test_plot_of_one_trial_has_no_band():
    ax = run(*SAVED["defaults"], trials=1).plot("risk")
    lines, bands = lines_and_bands(ax)
    assert (len(lines), len(bands)) == (1, 0)


@pytest.mark.long
def test_plot_counts_diverged_trials_as_the_worst(tmp_path):
    result = mixed()
    ax = result.plot("parameter_error")
    (line,), _ = lines_and_bands(ax)
    values = np.sort(
        np.where(np.isnan(result.metrics["parameter_error"]), np.inf, result.metrics["parameter_error"]), 0
    )
    assert np.array_equal(line.get_ydata(), values[1])  # the second best of three
    ax.figure.savefig(tmp_path / "figure.pdf")


def test_plot_where_every_trial_diverged_is_empty_from_there(tmp_path):
    algorithm = lf.FedRep(rank=2, step_size=1e9, init="random", heads=lf.GradientHeads(), orthonormalize=False)
    result = run(algorithm, PROBLEM, lf.FreshSamples(5), 0, rounds=30, record_every=1)
    ax = result.plot("parameter_error")
    (line,), _ = lines_and_bands(ax)
    assert len(line.get_xdata()) == result.status_round.max()
    ax.figure.savefig(tmp_path / "figure.png")


def test_plot_of_an_exact_zero_keeps_a_linear_axis(tmp_path):
    problem = lf.GivenTruth(S=np.zeros((5, 4)))
    ax = lf.simulate(lf.LocalOnly(), problem, data=lf.FreshSamples(6), rounds=3, trials=2).plot("parameter_error")
    assert ax.get_yscale() == "linear"
    ax.figure.savefig(tmp_path / "figure.png")


# --- predictors ----------------------------------------------------------------------------------------------


@each("parts", ["B, W", "S", "B, W, S", "B, w", "s", "B, w, s", "B, w, S", "B, W, s"])
@each("clients", [None, slice(1, 3), slice(None, None, 2), np.array([4, 0])])
def test_predictors(parts, clients):
    """One row, in lower case, serves all clients; where nothing is a client's own there is one predictor."""
    arrays = {"B": normal(2, 4, 2), "W": normal(2, 5, 2, seed=1), "S": normal(2, 5, 4, seed=2)}
    rows = {name.upper(): arrays[name.upper()][:, : 1 if name.islower() else None] for name in parts.split(", ")}
    theta = lf.State(**rows).predictors(clients)
    held = {name: np.repeat(rows[name], 5, axis=1) if name.lower() in parts else rows[name] for name in rows}
    chosen = np.arange(5)[slice(None) if clients is None else clients]
    if parts in ("B, w", "s", "B, w, s"):
        chosen = chosen[:1]
    assert theta.shape == (2, len(chosen), 4)
    for trial, (row, client) in ((t, pair) for t in range(2) for pair in enumerate(chosen)):
        expected = np.zeros(4)
        if "B" in held:
            expected += held["B"][trial] @ held["W"][trial, client]
        if "S" in held:
            expected += held["S"][trial, client]
        np.testing.assert_allclose(theta[trial, row], expected, atol=1e-14)
    theta[:] = 0.0  # a copy: the state stays
    assert all(array.any() for array in rows.values())


def test_predictors_beyond_8_gb_are_refused():
    state = lf.State(B=np.broadcast_to(1.0, (1, 10_000, 1)), W=np.broadcast_to(2.0, (1, 1_000_000, 1)))
    with pytest.raises(lf.SizeError, match="80 GB: pass fewer clients="):
        state.predictors()
    assert np.array_equal(state.predictors(slice(7, 10)), np.full((1, 3, 10_000), 2.0))
    assert state.predictors(np.array([5, 999_999])).shape == (1, 2, 10_000)
    shared = lf.State(B=state.B, W=np.full((1, 1, 1), 2.0))
    assert np.array_equal(shared.predictors(), np.full((1, 1, 10_000), 2.0))  # one row takes no more than that


# --- every part of the texts -------------------------------------------------------------------------------------


def told(rounds=2, trials=3, **changes):
    """Return a run of FedAvg with given numbers in the place of its metrics and seconds."""
    sizes = {"rounds": rounds, "trials": trials, "engine": "explicit"}
    result = run(lf.FedAvg(step_size=0.1, **changes), PROBLEM, lf.FixedSamples(5), 7, **sizes)
    values = np.arange(1.0, trials + 1)[:, None] * np.ones(len(result.rounds))
    metrics = {"risk": values, "a_metric_with_a_long_name": values / 8}
    return dataclasses.replace(result, seconds=1.234, metrics=MetricTable(metrics, {}))


def test_every_line_of_a_summary():
    assert told().summary().splitlines()[1:] == [
        "SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1), FixedSamples(n_samples=5)",
        "3 trials of 2 rounds, 3 clients a round, engine explicit, seed 7, 1.23 s: 3 COMPLETED",
        f"{'at the end':25} {'median':>12} {'10 %':>12} {'90 %':>12}",
        f"{'risk':25} {'2':>12} {'1':>12} {'3':>12}",
        f"{'a_metric_with_a_long_name':25} {'0.25':>12} {'0.125':>12} {'0.375':>12}",
    ]
    short = told()
    short = dataclasses.replace(short, metrics=MetricTable({"risk": short.metrics["risk"]}, {}))
    assert short.summary().splitlines()[-1] == f"{'risk':20} {'2':>12} {'1':>12} {'3':>12}"
    assert repr(told(rounds=1)) == "<Result of FedAvg: 3 trials, 1 round>"
    tuned = told(rounds=1, trials=1, rank=2, fine_tune=lf.ExactHeads())
    assert repr(tuned) == "<Result of FedAvg: 1 trials, 1 round and fine-tuning>"
    assert tuned.summary().splitlines()[2].startswith("1 trial of 1 round and fine-tuning, 3 clients")


def test_the_figure_of_a_notebook_spans_all_rounds(monkeypatch):
    def drawn(result):
        axes = []

        def figure(draw):
            axes.append(plt.figure().subplots())
            draw(axes[0])

        monkeypatch.setattr("linfed.figures.html.figure", figure)
        result._html_figure()
        return axes

    (ax,) = drawn(told(rounds=50))
    assert ax.get_xlim() == pytest.approx((-2.0, 52.0))
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_yscale()) == ("round", "risk", "log")
    assert len(drawn(told(rounds=1))) == 1
    nothing = told()
    assert drawn(told(rounds=0)) == drawn(dataclasses.replace(nothing, metrics=MetricTable({}, {}))) == []
    lost = MetricTable({"risk": np.full((3, 3), np.nan)}, {})
    assert drawn(dataclasses.replace(nothing, metrics=lost)) == []
    (ax,) = drawn(dataclasses.replace(nothing, metrics=MetricTable({"accuracy": nothing.metrics["risk"]}, {})))
    assert ax.get_yscale() == "linear"


def test_frames_have_a_row_for_each_trial_and_round(monkeypatch):
    """What pandas and xarray are given, without them."""
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    monkeypatch.setitem(sys.modules, "xarray", SimpleNamespace(Dataset=lambda *metrics, **more: (*metrics, more)))
    result = mixed()
    with pytest.warns(lf.DivergenceWarning, match="^1 of 3 trials diverged: their metrics are NaN") as caught:
        frame = result.to_pandas()
    assert [one.filename for one in caught] == [__file__]
    assert list(frame) == ["trial", "round", "status", *result.metrics]
    names = [status.name for status in result.status]
    rows = [(trial, round_, names[trial]) for trial in range(3) for round_ in result.rounds]
    assert list(zip(frame["trial"], frame["round"], frame["status"], strict=True)) == rows
    for name, values in result.metrics.items():
        np.testing.assert_array_equal(frame[name], np.concatenate(list(values)))
    with pytest.warns(lf.DivergenceWarning) as caught:
        metrics, more = result.to_xarray()
    assert [one.filename for one in caught] == [__file__]
    assert list(metrics) == list(result.metrics)
    for name, (axes, values) in metrics.items():
        assert (axes, values is result.metrics[name]) == (("trial", "round"), False)
        np.testing.assert_array_equal(values, result.metrics[name])
    assert more["coords"]["trial"].tolist() == [0, 1, 2]
    assert (more["coords"]["round"] is result.rounds, more["coords"]["status"]) == (True, ("trial", names))
    assert list(more["attrs"]) == ["algorithm", "data", "engine", "problem"]
    calm = run(*SAVED["given samples"])  # a warning would be an error
    assert list(calm.to_pandas()) == ["trial", "round", "status", "train_loss"]
    assert list(calm.to_xarray()[1]["attrs"]) == ["algorithm", "data", "engine"]


def test_a_state_says_how_many_clients_there_are_if_nothing_else_does():
    result = run(lf.LocalOnly(), PROBLEM, lf.FixedSamples(5), 0)
    assert result._n_clients() == 5
    nothing = dataclasses.replace(result, problem=None)
    assert nothing._n_clients() == 5
    one = run(lf.FedAvg(step_size=0.1), PROBLEM, lf.FixedSamples(5), 0)
    assert dataclasses.replace(one, problem=None)._n_clients() is None
    losses = nothing.losses(X, Y)
    residuals = np.einsum("nmd,tnd->tnm", X, result.final.S) - Y
    np.testing.assert_allclose(losses, (residuals**2).sum(axis=-1) / 6, rtol=1e-10)


def test_a_state_whose_class_is_missing_has_arrays_and_no_predictors():
    state = run(lf.FedRoD(rank=2, step_size=0.1), PROBLEM, lf.FixedSamples(5), 0).final
    described = archive.encode_state(state) | {"module": "elsewhere", "qualname": "Outer.Gone"}
    loaded = archive.decode_state(described, dict(state.arrays()))
    assert (type(loaded).__module__, type(loaded).__qualname__) == ("elsewhere", "Outer.Gone")
    assert loaded.arrays().keys() == state.arrays().keys()
    assert loaded.per_client == state.per_client
    with pytest.raises(ValueError, match=r"^the class elsewhere\.Outer\.Gone of the final state is not imported"):
        loaded.predictors()
    plain = run(FEDREP, PROBLEM, lf.FixedSamples(5), 0).final
    described = archive.encode_state(plain) | {"module": "elsewhere", "qualname": "Gone"}
    assert np.array_equal(archive.decode_state(described, dict(plain.arrays())).predictors(), plain.predictors())


def test_what_a_file_describes_is_the_same_again():
    arrays = {}
    value = ((1, (np.float64(2.5), None)), [np.int64(3), "a", np.True_, [np.arange(3.0)]], UNEQUAL)
    described = json.loads(json.dumps(archive.encode(value, arrays)))
    one, (three, text, truth, (array,)), samples = archive.decode(described, arrays)
    assert (one, three, text, truth) == ((1, (2.5, None)), 3, "a", True)
    assert [type(part) for part in (one[1][0], three, truth)] == [np.float64, np.int64, np.bool_]
    assert np.array_equal(array, np.arange(3.0))
    assert not array.flags.writeable
    assert repr(samples) == repr(UNEQUAL)
    assert np.array_equal(samples.X, UNEQUAL.X)
    with open(os.devnull) as file:
        for code in (lambda: 1, print, file):
            described = archive.encode((code, UNEQUAL), arrays)
            unknown = archive.decode(described, arrays)
            assert (unknown.name, repr(unknown)) == ("tuple", repr((code, UNEQUAL)))
            assert archive.encode(unknown, {}) == described


@pytest.mark.parametrize(
    ("name", "described"),
    [
        ("algorithm", {"float": "x"}),
        ("algorithm", {"array": "gone", "scalar": False}),
        ("problem", {"shape": [2], "objects": [1]}),
        ("data", {"set": [[1]]}),
        ("seed", [{"dict": [1]}]),
        ("participation", {"bytes": "zz"}),
    ],
)
def test_a_description_that_contradicts_itself_is_named(name, described, tmp_path):
    arrays, whole = files.read(run(*SAVED["defaults"]).save(tmp_path / "whole.npz"))
    whole[name]["value"] = described
    path = files.write(tmp_path / "odd.npz", arrays, whole)
    assert_one_line(lambda: Result.load(path), ["odd.npz' is not a result written by linfed"])
    whole["state"] |= {"module": 5}
    path = files.write(tmp_path / "odd.npz", arrays, whole)
    assert_one_line(lambda: Result.load(path), ["odd.npz' is not a result written by linfed"])


def test_a_file_runs_no_code_and_reads_no_other_class():
    for value in (print, functools.partial(print, "ran"), [].append, slice(3), np.dtype(float), Counter("ab")):
        found = describe(value)
        with pytest.raises(LookupError):
            rebuild(found.json, found.arrays)
    with pytest.raises(LookupError, match="cannot be rebuilt"):
        rebuild({"path": "subprocess", "parts": []}, {})
    with pytest.raises(LookupError, match="not a dataclass"):
        rebuild({"is": f"{__name__}.NoDataclass", "holds": {"x": 1}}, {})


class NoDataclass:
    """A class that no file restores."""
