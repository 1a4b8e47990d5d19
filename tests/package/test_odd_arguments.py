"""Odd values of any argument: a call works, or raises one line that names the argument.

The calls run in processes of their own, with limits of memory and time, since a fault may hang or end Python.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import time
import traceback
import warnings
from functools import partial

import numpy as np
import pytest

import linfed as lf
from tests.arguments import DATA, FEDREP, METHODS, ODD, PROBLEM, PROBLEM_KINDS, PROBLEMS, RESULT, TABLE, targets, words

if not hasattr(os, "fork"):
    pytest.skip("the calls run in forked processes", allow_module_level=True)

SECONDS, BYTES = 20, 4 << 30
SECONDS_OF_MUCH = 2
MATRIX = np.array([[1, 2]]).view(np.matrix)
MUCH = re.compile(
    r"(trials|rounds|steps?|iterations|epochs|resamples|max_pending|budget|batch|clients|classes|samples|dim)=\d{6}"
)
"""A call that asks for much work may take long, and is stopped early."""

CALLS = {name: (called, valid, named) for name, (called, valid, named) in targets().items()} | {
    name: (called, valid, sorted(valid)) for name, (called, valid) in METHODS.items()
}
ARGUMENTS = [(name, argument) for name, (_, _, named) in sorted(CALLS.items()) for argument in named]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def used(value):
    """Run a few rounds with what was constructed, because some arguments are judged by a run only."""
    short = {"n_rounds": 2, "trials": 1}
    if isinstance(value, lf.Algorithm):
        lf.simulate(value, PROBLEM, data=DATA, **short)
    elif isinstance(value, PROBLEMS):
        small = getattr(value, "n_classes", None)
        algorithm = lf.FedAvg(step_size=0.1) if small is None else lf.FedAvg(step_size=0.1, rank=2)
        lf.simulate(algorithm, value, data=lf.FreshSamples(8), **short)
    elif isinstance(value, lf.FreshSamples | lf.FixedSamples):
        lf.simulate(FEDREP, PROBLEM, data=value, **short)
    elif isinstance(value, lf.Initial):
        lf.simulate(lf.FedRep(rank=2, step_size=0.1, init=value), PROBLEM, data=DATA, **short)
    elif isinstance(value, lf.Design):
        lf.simulate(FEDREP, lf.SharedRepresentation(n_clients=5, dim=6, rank=2, design=value), data=DATA, **short)


def fault(call, names):
    """Return what is wrong with the outcome of a call, or an empty text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except (ValueError, TypeError, KeyError, OSError, MemoryError, lf.SweepError) as error:
        if isinstance(error, OSError) and error.filename is not None:  # of the system, which names the file
            return ""
        last = traceback.extract_tb(error.__traceback__)[-1]
        raised = "raise" in (last.line or "") or "super().__init__" in (last.line or "") or last.filename == __file__
        if not str(error) or "\n" in str(error):
            return f"no single line: {error!r}"
        if not (raised or "unexpected keyword" in str(error)) or "linfed" not in f"{last.filename} linfed-test":
            return f"not an error of linfed's own: {error!r} at {last.filename}:{last.lineno}"
        if not any(re.search(rf"\b{name}|\b{name.replace('_', ' ')}", str(error)) for name in names):
            return f"names no argument: {error!r}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{error!r} at {last.filename}:{last.lineno}"
    return ""


def limit(seconds):
    """Limit the memory and the further processor time of this process."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + seconds, resource.RLIM_INFINITY))
    signal.alarm(6 * seconds)


def faults(calls):
    """Return the calls whose outcome is wrong, with the reason; after a call that ends its process, in a new one.

    Each call is a text, a function and the words that name its arguments.
    """
    found = []
    while len(found) < len(calls):
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            for shown, call, names in calls[len(found) :]:
                limit(SECONDS_OF_MUCH if MUCH.search(shown) else SECONDS)
                os.write(writer, (json.dumps(fault(call, names)[:900]) + "\n").encode())
            os._exit(0)
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            found += [json.loads(line) for line in pipe]
        os.waitpid(child, 0)
        if len(found) < len(calls):
            found.append("" if MUCH.search(calls[len(found)][0]) else "ends the process, or takes too long")
    return {shown: reason for (shown, _, _), reason in zip(calls, found, strict=True) if reason}


def odd_call(name, argument, value):
    """Return a call with one odd argument."""
    called, valid, _ = CALLS[name]
    shown = f"{name}({argument}={lf.checks.short_repr(value)})"
    return shown, lambda: used(called(**(valid | {argument: value}))), words(argument)


@pytest.mark.long
def test_valid_arguments_work():
    """Otherwise the odd ones would not be tested."""
    TABLE.save("t.npz")
    RESULT.save("r.npz")
    calls = [(name, partial(called, **valid), []) for name, (called, valid, _) in CALLS.items()]
    assert faults(calls) == {}


@pytest.mark.parametrize("turn", [1, *(pytest.param(turn, marks=pytest.mark.long) for turn in range(2, 13))])
def test_an_odd_argument_is_used_or_named(turn):
    chance = random.Random(turn)
    places, odd = chance.sample(ARGUMENTS, 60), chance.choices(ODD, k=60)
    assert faults([odd_call(*place, value) for place, value in zip(places, odd, strict=True)]) == {}


@pytest.mark.long
@pytest.mark.parametrize("value", [5, "a\0b", "\ud800", object(), {"x": 1}, np.array(0.5), np.ones(3), MATRIX])
def test_an_odd_value_of_every_argument(value):
    assert faults([odd_call(name, argument, value) for name, argument in ARGUMENTS]) == {}


@pytest.mark.parametrize("kind", PROBLEM_KINDS)
def test_trials_are_numbers_of_trials(kind):
    """A matrix once ended in endless recursion."""
    problem, wrong = PROBLEM_KINDS[kind], (MATRIX, [], 5, [0.5], [True], [-1], "01", np.array(1), None)

    def refused(trials):
        with pytest.raises(ValueError, match="trials"):
            problem.truth(0, trials)

    assert faults([(repr(trials), lambda trials=trials: refused(trials), []) for trials in wrong]) == {}


def test_trials_in_other_sequences_are_the_same():
    wanted = PROBLEM.truth(3, range(2)).B
    for trials in ([0, 1], (0, 1), np.array([0, 1]), [np.int64(0), np.uint8(1)]):
        np.testing.assert_array_equal(PROBLEM.truth(3, trials).B, wanted)
    given_truth = lf.GivenTruth(B=np.ones((2, 3, 1)), W=np.ones((2, 4, 1)))
    with pytest.raises(ValueError, match=r"trials = \[0, 2\] must be below 2"):
        given_truth.truth(0, [0, 2])
