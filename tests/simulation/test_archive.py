"""Files of results: the numbers and the configuration come back bit for bit, also from older versions."""

import dataclasses
import functools
import importlib
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import linfed as lf
from linfed.simulation import archive
from linfed.simulation.results import Result
from linfed.system import files
from linfed.system.description import describe, rebuild
from tests.helpers import assert_one_line, assert_same, normal

PROBLEM = lf.SharedRepresentation(n_clients=5, dim=4, rank=2, noise_std=0.1)
FEDREP = lf.FedRep(rank=2, step_size=0.3)
FRESH, FIXED = lf.FreshSamples(5), lf.FixedSamples(5)
B, W, S = normal(4, 2), normal(5, 2, seed=1), normal(5, 4, seed=2)
X, Y = normal(5, 3, 4), normal(5, 3)
UNEQUAL = lf.GivenSamples([X[i, : 1 + i % 3] for i in range(5)], [Y[i, : 1 + i % 3] for i in range(5)])


def run(algorithm=FEDREP, problem=PROBLEM, data=FRESH, **changes):
    arguments = {"n_rounds": 4, "participation": 0.6, "trials": 2, "record_every": 3} | changes
    return lf.simulate(algorithm, problem, data=data, **arguments)


def saved(result, path):
    """Return what a result's file gives back."""
    return Result.load(result.save(path))


def with_covariance(covariance):
    return lf.SharedRepresentation(n_clients=5, dim=4, rank=2, design=lf.UniformCube(covariance=covariance))


SAVED = {
    "defaults": (FEDREP, PROBLEM, FRESH, 0),
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
    "numpy numbers": (
        lf.FedRep(
            rank=np.int64(2), step_size=np.float64(0.3), init=lf.Moments(clients=np.int64(3)), orthonormalize=np.False_
        ),
        lf.SharedRepresentation(n_clients=np.int32(5), dim=4, rank=2, noise_std=np.float32(0.5)),
        lf.FreshSamples(np.int64(5)),
        np.int64(7),
    ),
    "a large seed": (lf.FedRep(rank=2, step_size=0.3, init="random"), PROBLEM, FRESH, 2**70),
    "given factors": (
        lf.FLUTE(rank=2, step_size=0.05, init=(normal(2, 4, 2), normal(5, 2))),
        lf.UnderParameterized(n_clients=5, dim=4, spectrum=(3.0, 2.0, 1.0), gap=1.0, gap_after=2, noise_std=0.1),
        UNEQUAL,
        0,
    ),
    "a solver": (
        lf.FedRepShortcut(rank=2, step_size=0.05, solver=lf.ClosedForm(order="joint"), ridge=0.5, init=B),
        lf.SharedWithShortcuts(n_clients=5, dim=4, rank=2, shortcut_norm=1, sparsity=2, noise_std=0.1),
        UNEQUAL,
        0,
    ),
    "numbers of another solver": (
        lf.FedRepShortcut(
            rank=2,
            step_size=0.05,
            solver=lf.GradientSteps(head_steps=2, shortcut_steps=np.int64(3), order="gauss-seidel"),
            mixing=0.4,
            refit=np.True_,
            init=lf.AtDistance(0.5),
        ),
        lf.SharedWithShortcuts(
            n_clients=5, dim=4, rank=2, shortcut_norm=np.float64(0.3), orthogonal=True, clusters=np.int64(3)
        ),
        FIXED,
        3,
    ),
    "a representation for each trial": (lf.FedRep(rank=2, step_size=0.3, init=normal(2, 4, 2)), PROBLEM, FRESH, 0),
    "a final step": (lf.FedAvg(step_size=0.1, rank=2, fine_tune=lf.GradientHeads(steps=3)), PROBLEM, FRESH, 0),
    "a state of its own": (lf.FedRoD(rank=2, step_size=0.1, personal=lf.ExactHeads(ridge=0.1)), PROBLEM, FIXED, 0),
    "an algorithm of an algorithm": (
        lf.Personalized(base=lf.FedRep(rank=2, step_size=0.1, init=B), ridge=0.5),
        PROBLEM,
        FIXED,
        0,
    ),
    "classes": (
        lf.GeneralFLUTE(rank=2, step_size=0.2),
        lf.Classes(n_clients=5, n_classes=4, classes_per_client=[1, 2, 3, 4, 2], dim=6, rank=2, test_samples=15),
        FIXED,
        0,
    ),
    "truth S": (FEDREP, lf.GivenTruth(S=S, noise_std=0.1), FRESH, 0),
    "truth Phi, B of trials": (FEDREP, lf.GivenTruth(Phi=normal(2, 5, 4), B=B), FRESH, 0),
    "given samples": (FEDREP, None, lf.GivenSamples(X, Y), 0),
    "held-out samples": (FEDREP, None, lf.GivenSamples(X, Y, test=([*X[:4], X[4, :1]], [*Y[:4], Y[4, :1]])), 0),
    "given samples of trials": (FEDREP, PROBLEM, lf.GivenSamples(np.stack([X, -X]), np.stack([Y, Y])), 0),
    "given lists": (FEDREP, None, UNEQUAL, 0),
    "a variance": (FEDREP, with_covariance(2.0), FRESH, 0),
    "a covariance": (FEDREP, with_covariance(np.eye(4) + 0.5), FRESH, 0),
}


@pytest.mark.parametrize("name", SAVED)
def test_a_file_gives_everything_back(name, tmp_path):
    algorithm, problem, data, seed = SAVED[name]
    result = run(algorithm, problem, data, seed=seed)
    loaded = saved(result, tmp_path / "result.npz")
    assert_same(result, loaded)
    assert loaded.metrics.absent == result.metrics.absent
    assert (loaded.seed, type(loaded.seed)) == (result.seed, type(result.seed))
    assert (loaded.participants, loaded.seconds, loaded.trials) == (3, result.seconds, 2)
    assert loaded.algorithm == result.algorithm
    assert repr((loaded.algorithm, loaded.problem, loaded.data)) == repr((algorithm, problem, data))
    assert loaded.summary() == result.summary()
    # The configuration runs again, to the same bits.
    assert_same(run(loaded.algorithm, loaded.problem, loaded.data, seed=loaded.seed), result)


def test_given_arrays_come_back_bit_for_bit(tmp_path):
    result = run(FEDREP, lf.GivenTruth(Phi=S, B=B, design=lf.Gaussian(covariance=np.eye(4) + 0.5)), UNEQUAL)
    loaded = saved(result, tmp_path / "x")
    for part in ("X", "y", "counts"):
        array, expected = getattr(loaded.data, part), getattr(UNEQUAL, part)
        assert (array.shape, array.tobytes()) == (expected.shape, expected.tobytes())
        assert not array.flags.writeable
    assert np.array_equal(loaded.problem.Phi, S)
    assert np.array_equal(loaded.problem.B, B)
    assert (loaded.problem.W, loaded.problem.S) == (None, None)
    assert loaded.problem.design == result.problem.design


def test_diverged_trials_and_rare_records_come_back(tmp_path):
    algorithm = lf.FedRep(rank=2, step_size=50.0, init="random", heads=lf.GradientHeads(), orthonormalize=False)
    result = run(algorithm, n_rounds=30, record_every=10**30)
    assert lf.Status.DIVERGED in result.status
    assert_same(result, saved(result, tmp_path / "x.npz"))


# --- classes of a user ---------------------------------------------------------------------------------------


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


def with_design(design):
    return lf.SharedRepresentation(n_clients=5, dim=4, rank=2, design=design)


OWN = {
    "an algorithm": (Own(step_size=0.25), PROBLEM, FIXED),
    "a design": (FEDREP, with_design(Scaled(weights=[1, 2, 3, 4])), FIXED),
    "a design without fields": (FEDREP, with_design(OwnLaw()), FIXED),
    "an initialisation": (lf.FedRep(rank=2, step_size=0.1, init=Tilted(np.float32(0.5))), PROBLEM, FIXED),
    "a problem": (FEDREP, Twins(n_clients=5, dim=4, rank=2, names=["a", "b"]), FIXED),
    "a class of no kind": (
        Scheduled(rank=np.int64(2), step_size=0.1, init=B, schedule=Every([np.int64(3), (1.5, True)])),
        PROBLEM,
        FRESH,
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_classes_of_a_user_come_back(name, tmp_path):
    result = run(*OWN[name])
    loaded = saved(result, tmp_path / "own.npz")
    assert_same(result, loaded)
    assert loaded.algorithm == result.algorithm
    assert type(loaded.algorithm) is type(result.algorithm)
    assert loaded.problem == result.problem
    assert type(loaded.final) is type(result.final)
    assert_same(run(loaded.algorithm, loaded.problem, loaded.data), result)


def test_a_class_made_within_a_function_comes_back(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Within(lf.LocalOnly):
        more: int = 3

    loaded = saved(run(Within(more=5), data=FIXED), tmp_path / "own.npz")
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
    result = run(algorithm, problem, FIXED)
    path = result.save(tmp_path / "own.npz")
    forget()
    monkeypatch.setattr("linfed.system.description._users_class", lambda name: None)  # as in another process
    loaded = Result.load(path)
    assert_same(result, loaded)
    assert (loaded.name, repr(loaded.algorithm)) == ("Foreign", repr(algorithm))
    assert "Law" in repr(loaded.problem)
    assert isinstance(loaded.final, lf.State)
    assert repr(loaded.final).startswith("Remembers(S (2, 5, 4), M (2, 3), seen (2, 5, 1))")
    assert loaded.final.per_client == {"W", "S", "seen"}
    assert np.array_equal(loaded.final.M, np.full((2, 3), 16.0))
    assert np.array_equal(loaded.final.predictors(), result.final.predictors())
    assert "Foreign" in loaded.summary()
    assert_same(result, saved(loaded, tmp_path / "again.npz"))
    monkeypatch.undo()  # a process that knows the classes reads a file of one that did not
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("elsewhere")
    whole = Result.load(tmp_path / "again.npz")
    assert type(whole.final) is module.Remembers
    assert isinstance(whole.algorithm, module.Foreign)
    assert np.array_equal(whole.algorithm.start, algorithm.start)
    assert isinstance(whole.problem.design, module.Law)
    assert_same(run(whole.algorithm, whole.problem, whole.data), result)


def test_a_class_that_has_changed_comes_back_as_its_text(elsewhere, tmp_path):
    module, forget = elsewhere
    result = run(module.Foreign(start=2), data=FIXED)
    path = result.save(tmp_path / "own.npz")
    forget()
    changed = ELSEWHERE.replace("start: object = None", "begin: object = None").replace("M: object", "N: object")
    (tmp_path / "elsewhere.py").write_text(changed + "# a longer file\n")
    importlib.invalidate_caches()
    importlib.import_module("elsewhere")
    loaded = Result.load(path)
    assert_same(result, loaded)
    assert repr(loaded.algorithm) == "Foreign(start=2)"
    assert sorted(loaded.final.arrays()) == ["M", "S", "seen"]


def test_values_without_a_description_come_back_as_their_text(tmp_path):
    result = run(Scheduled(rank=2, step_size=0.1, schedule=Every(max)), data=FIXED)
    loaded = saved(result, tmp_path / "own.npz")
    assert_same(result, loaded)
    assert "built-in function max" in repr(loaded.algorithm)
    again = saved(loaded, tmp_path / "again.npz")
    assert (again.name, repr(again.algorithm)) == ("Scheduled", repr(loaded.algorithm))


def test_a_state_whose_class_is_missing_has_arrays_and_no_predictors():
    state = run(lf.FedRoD(rank=2, step_size=0.1), data=FIXED).final
    described = archive.encode_state(state) | {"module": "elsewhere", "qualname": "Outer.Gone"}
    loaded = archive.decode_state(described, dict(state.arrays()))
    assert (type(loaded).__module__, type(loaded).__qualname__) == ("elsewhere", "Outer.Gone")
    assert loaded.arrays().keys() == state.arrays().keys()
    assert loaded.per_client == state.per_client
    with pytest.raises(ValueError, match=r"elsewhere\.Outer\.Gone of the final state is not imported"):
        loaded.predictors()
    plain = run(data=FIXED).final
    described = archive.encode_state(plain) | {"module": "elsewhere", "qualname": "Gone"}
    assert np.array_equal(archive.decode_state(described, dict(plain.arrays())).predictors(), plain.predictors())


# --- descriptions --------------------------------------------------------------------------------------------


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
        ("state", {"module": 5}),
    ],
)
def test_a_description_that_contradicts_itself_is_named(name, described, tmp_path):
    arrays, whole = files.read(run().save(tmp_path / "whole.npz"))
    if name == "state":
        whole[name] |= described
    else:
        whole[name]["value"] = described
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


# --- the file itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "written"), [("a.npz", "a.npz"), ("a", "a.npz"), ("a.b", "a.b.npz")])
def test_the_name_of_the_file(given, written, tmp_path):
    assert run().save(str(tmp_path / given)) == tmp_path / written
    assert os.listdir(tmp_path) == [written]


@pytest.mark.parametrize("old", [True, False])
def test_an_interrupted_write_leaves_the_old_file(old, tmp_path, monkeypatch):
    first, second = run(), run(problem=lf.GivenTruth(S=S))
    path = tmp_path / "result.npz"
    if old:
        first.save(path)

    def interrupted(file, array, **options):
        file.write(b"half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array", interrupted)
        with pytest.raises(KeyboardInterrupt):
            second.save(path)
    assert os.listdir(tmp_path) == (["result.npz"] if old else [])
    if old:
        assert_same(Result.load(path), first)
    assert_same(saved(second, path), second)


def save_one_array(path):
    with path.open("wb") as file:
        np.save(file, np.ones(3))


WRONG = {
    "text": lambda path: path.write_text("not a result\n"),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(run().save(path).read_bytes()[:1000]),
    "one array": save_one_array,
    "arrays": lambda path: np.savez(path, a=np.ones(3)),
    "another description": lambda path: np.savez(path, description=np.array("something else")),
    "an empty description": lambda path: np.savez(path, description=np.array("{}")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_no_result_is_named(name, tmp_path):
    path = tmp_path / "odd.npz"
    WRONG[name](path)
    assert_one_line(lambda: Result.load(path), ["odd.npz' is not a result written by linfed"])


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"format": None, "version": None}, ["an earlier linfed", "reads format 2"]),
        ({"format": 0, "version": "0.0.9"}, ["linfed 0.0.9", "format 0,", "reads format 2"]),
        ({"format": 7, "version": "9.9"}, ["linfed 9.9", "format 7", "a newer linfed"]),
        ({"format": 7, "problem": {"kind": "of the future"}}, ["format 7", "a newer linfed"]),
        ({"format": "x"}, ["format x,", "reads format 2"]),
    ],
)
def test_a_file_of_another_format_is_refused(changes, fragments, tmp_path):
    arrays, described = files.read(run().save(tmp_path / "old.npz"))
    described = {name: value for name, value in (described | changes).items() if value is not None}
    path = files.write(tmp_path / "old.npz", arrays, described)
    assert_one_line(lambda: Result.load(path), ["old.npz' was written by", *fragments])


def test_objects_are_never_written(tmp_path):
    for rounds in (np.array([0, 10**30]), np.zeros(2, dtype=[("value", object)])):
        with pytest.raises(ValueError, match="rounds must not be an array of objects"):
            dataclasses.replace(run(), rounds=rounds).save(tmp_path / "x.npz")
    assert os.listdir(tmp_path) == []
