"""Numbers of other kinds and sizes: converted before they are used, and large ones end as results."""

import ast
import inspect
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import linfed as lf
from tests.arguments import VALID, targets

PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2)


def run(algorithm=None, problem=PROBLEM, **changes):
    arguments = {"data": lf.FreshSamples(5), "n_rounds": 4} | changes
    return lf.simulate(algorithm or lf.FedRep(rank=2, step_size=0.1), problem, **arguments)


def test_numbers_of_other_kinds_are_numbers():
    """Integers, longer floats, fractions and objects of them."""
    X, y = np.arange(24).reshape(4, 3, 2), np.ones((4, 3))
    for kind in (np.int8, np.uint64, np.float32, np.longdouble, object):
        assert np.array_equal(lf.GivenSamples(X.astype(kind), y).X, X.astype(float))
    assert np.array_equal(lf.GivenSamples(X.tolist(), y).X, X.astype(float))
    half = lf.GivenSamples(X, [[Fraction(1, 2), 10**30, np.float32(0.5)]] * 4)
    assert half.y[0].tolist() == [0.5, 1e30, 0.5]
    assert lf.FedRep(rank=2, step_size=Fraction(1, 2)).step_size == 0.5
    assert lf.below("error", 1.0).misses(np.array([[Fraction(5), 10]], dtype=object)).tolist() == [1.0]
    assert lf.below("error", 1.0).shortfalls(np.array(Fraction(10), dtype=object)) == 1.0
    assert run(seed=(10**400, 1), n_rounds=0).seed == (10**400, 1)


RESULTS = {"simulate", "tune", "iterate", "sweep", "find_smallest", "reproduce", "Run"}
"""Public names whose results also hold run times, or that keep their arguments for `simulate`."""

SLOW = {
    *("theory.second_order_floor", "theory.fixed_samples_needed", "theory.fixed_sample_floor"),
    *("theory.gradient_heads_evolution", "theory.break_even_clients"),
}


def numbers_in(value):
    """Return the kind and the value of all numbers in a result, e.g. in the fields of a dataclass."""
    if isinstance(value, np.ndarray | np.generic):
        return [(value.dtype.str, np.asarray(value).tobytes())]
    if isinstance(value, list | tuple):
        return [one for part in value for one in numbers_in(part)]
    if isinstance(value, dict) or hasattr(value, "__dict__"):
        return numbers_in(list(value.values() if isinstance(value, dict) else vars(value).values()))
    return [(type(value), value)] if isinstance(value, int | float | Fraction) else []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_number_of_another_kind_gives_the_same_result(slow):
    """An argument in half, single or extended precision or as a small integer is converted before it is used."""
    count = 0
    for name, (called, valid, named) in targets().items():
        defaults = {one.name: one.default for one in inspect.signature(called).parameters.values()}
        for argument in [] if name in RESULTS or (name in SLOW) != slow else named:
            value = valid.get(argument, defaults[argument])
            value = VALID.get(argument) if value is None else value
            if type(value) is int and abs(value) < 100:
                kinds = [np.int8, np.uint64]
            elif type(value) is float and 1e-3 < abs(value) < 1e3:
                value, kinds = float(np.float16(value)), [np.float16, np.float32, np.longdouble, np.float64]
            else:
                continue
            try:
                wanted = numbers_in(called(**valid | {argument: value}))
            except (TypeError, ValueError):
                continue  # not allowed with the other arguments
            for kind in kinds:
                found = numbers_in(called(**valid | {argument: kind(value)}))
                assert found == wanted, f"{name}({argument}={kind.__name__}({value}))"
                count += 1
    assert count > (50 if slow else 1000)


def test_checks_of_numbers_are_not_only_called():
    """A check returns the number to compute with; a call whose result is thrown away leaves the number as given."""
    checks = ("number", "integer", "noise_std", "noise_stds", "weights", "numbers", "times", "square", "counts")
    found = []
    for path in sorted(Path(lf.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = node.value if isinstance(node, ast.Expr) else None
            if isinstance(called, ast.Call) and ast.unparse(called.func) in {f"check_{one}" for one in checks}:
                found.append(f"{path.name}:{called.lineno}")
    assert not found


def fedrep(**changes):
    return lf.FedRep(**{"rank": 2, "step_size": 0.1} | changes)


LARGE = {
    "FedRep": lambda value: fedrep(step_size=value),
    "gradient heads": lambda value: fedrep(heads=lf.GradientHeads(step_size=value)),
    "unnormalised": lambda value: fedrep(step_size=value, orthonormalize=False),
    "ridge": lambda value: fedrep(heads=lf.ExactHeads(ridge=value)),
    "init": lambda value: fedrep(init=value * np.eye(6)[:, :2]),
    "FLUTE": lambda value: lf.FLUTE(rank=2, step_size=value, gamma1=value, gamma2=value),
    "small random": lambda value: lf.FLUTE(rank=2, step_size=0.1, init=lf.SmallRandom(value)),
    "FedAvg": lambda value: lf.FedAvg(step_size=value, server_step_size=value),
    "FedAvg + FT": lambda value: lf.FedAvg(
        rank=2, step_size=0.1, fine_tune=lf.GradientHeads(steps=10, step_size=value)
    ),
    "FedPer": lambda value: lf.FedPer(rank=2, step_size=value),
    "LG-FedAvg": lambda value: lf.LGFedAvg(rank=2, step_size=value),
    "FedRoD": lambda value: lf.FedRoD(rank=2, step_size=0.1, personal=lf.ExactHeads(ridge=value)),
    "shortcuts": lambda value: lf.FedRepShortcut(
        rank=2, step_size=value, solver=lf.GradientSteps(shortcut_step_size=value)
    ),
    "shortcuts, closed form": lambda value: lf.FedRepShortcut(
        rank=2, step_size=0.1, solver=lf.ClosedForm(order="joint"), ridge=value
    ),
    "local only": lambda value: lf.LocalOnly(ridge=value),
}


@pytest.mark.parametrize("value", [1e100, 1e308])
@pytest.mark.parametrize("name", LARGE)
def test_large_steps_end_as_results(name, value):
    """Without warnings and errors: the status tells what happened, and the run is evaluated like any other."""
    for data in (lf.FreshSamples(5), lf.FixedSamples(20)):
        result = run(LARGE[name](value), data=data)
        diverged = result.status[0] is lf.Status.DIVERGED
        assert np.isnan(result.client_risks()).all() == np.isnan(result.new_clients([3])).all() == diverged
        assert np.isnan(result.losses(np.ones((8, 3, 6)), np.ones((8, 3)))).all() == diverged
        assert all(np.isfinite(array).all() for array in result.final.arrays().values()) or name == "small random"


@pytest.mark.parametrize(
    "problem",
    [
        lf.SharedRepresentation(n_clients=8, dim=6, rank=2, head_norm=1e70),
        lf.SharedRepresentation(n_clients=8, dim=6, rank=2, noise_std=1e70),
        lf.SharedRepresentation(n_clients=8, dim=6, rank=2, condition_number=1e12),
        lf.SharedRepresentation(n_clients=8, dim=6, rank=2, design=lf.Gaussian(covariance=1e200)),
        lf.SimilarRepresentations(n_clients=8, dim=6, rank=2, deviation=1e70, outliers=0.2),
        lf.SharedWithShortcuts(n_clients=8, dim=6, rank=2, shortcut_norm=1e70),
        lf.UnderParameterized(n_clients=8, dim=6, spectrum=[1e70, 1.0]),
        lf.GivenTruth(Phi=np.full((8, 6), 1e200)),
    ],
)
def test_large_truths_end_as_results(problem):
    result = run(problem=problem, trials=2)
    assert result.metrics["risk"].shape == (2, 5)
    diverged = [status is lf.Status.DIVERGED for status in result.status]
    np.testing.assert_array_equal(np.isnan(result.metrics["risk"][:, -1]), diverged)
    np.testing.assert_array_equal(np.isnan(result.client_risks()).T, [diverged] * 8)
    assert result.summary()
    if not isinstance(problem, lf.GivenTruth):
        assert result.new_clients([3]).shape == (2, 1, 100)


def test_long_bases_have_a_distance():
    assert lf.subspace_distance(1e200 * np.eye(4)[:, :2], [[1.0], [0.0], [0.0], [1.0]]) == pytest.approx(0.5**0.5)
