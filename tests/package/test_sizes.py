"""Sizes that no machine holds are refused in one line, before anything is allocated or listed."""

import io
import itertools
import json
import zipfile

import numpy as np
import pytest

import linfed as lf
from linfed.system import files, memory
from tests.helpers import assert_one_line, mostly_long

PROBLEM = lf.SharedRepresentation(n_clients=4, dim=5, rank=2)
FEDREP = lf.FedRep(rank=2, step_size=0.3)
RANDOM = lf.FedRep(rank=2, step_size=0.3, init="random")
RUN = lf.Run(algorithm=RANDOM, problem=PROBLEM, data=lf.FreshSamples(6), n_rounds=3)
LARGE = 10**9


def view(*shape):
    """Return an array that takes 8 bytes, whatever its shape."""
    return np.broadcast_to(1.0, shape)


def of_moments(data, **options):
    return lambda: lf.simulate(FEDREP, PROBLEM, data=data, n_rounds=1, **options)


def predicted(problem, algorithm=RANDOM, data=RUN.data):
    return lambda: lf.predict(algorithm, problem, data=data, n_rounds=3).distance


TOO_LARGE = {
    "moments of fresh samples": (of_moments(lf.FreshSamples(LARGE)), ["one trial needs about", "n_samples"]),
    "fixed samples that are drawn": (
        lambda: lf.simulate(RANDOM, PROBLEM, data=lf.FixedSamples(LARGE, in_law=False), n_rounds=1),
        ["one trial needs about", "n_samples"],
    ),
    "a predicted truth": (
        predicted(lf.SharedRepresentation(n_clients=LARGE, dim=5, rank=2)),
        ["n_clients = 1000000000", "would take about"],
    ),
    "a predicted fixed point": (
        lambda: lf.predict(lf.FedAvg(step_size=0.1), PROBLEM, data=lf.FixedSamples(LARGE), n_rounds=3).floor.value,
        ["1000000000 samples", "would take about"],
    ),
    "moments of heads of a high rank": (
        lambda: (
            lf.predict(
                lf.FedRep(rank=700, step_size=0.1, init="random"),
                lf.SharedRepresentation(n_clients=700, dim=1400, rank=700),
                data=lf.FreshSamples(710),
                n_rounds=1,
            ).distance
        ),
        ["fourth moments", "rank = 700"],
    ),
    "moments of order eight": (
        lambda: lf.theory.second_order_evolution(
            np.ones((60, 60)), dim=200, n_samples=90, step_size=0.1, n_rounds=1, delta=0.5
        ),
        ["order eight", "rank = 60"],
    ),
    "given samples": (
        lambda: lf.GivenSamples(view(10**6, 1000, 1000), view(10**6, 1000)),
        ["X has shape (1000000, 1000, 1000)", "8 TB"],
    ),
    "given regressors": (lambda: lf.GivenTruth(Phi=view(10**6, 10**7)), ["Phi has shape (1000000, 10000000)", "80 TB"]),
    "given participants": (
        lambda: lf.simulate(
            RANDOM, PROBLEM, data=RUN.data, n_rounds=10**6, participation=np.broadcast_to(0, (10**6, 10**7))
        ),
        ["participation has shape (1000000, 10000000)"],
    ),
    "trials of a sweep": (
        lambda: lf.sweep([lf.Run(algorithm=RANDOM, problem=PROBLEM, data=RUN.data, n_rounds=10**4, trials=LARGE)]),
        ["trials = 1000000000"],
    ),
    "a recursion of many rounds": (
        lambda: lf.theory.state_evolution(np.eye(3, 2), dim=9, n_samples=9, step_size=0.1, delta=0.5, n_rounds=LARGE),
        ["a recursion of n_rounds = 1000000000", "use fewer rounds"],
    ),
    "a recursion of many trials": (
        lambda: lf.theory.second_order_evolution(
            np.broadcast_to(np.eye(3, 2), (10**5, 3, 2)), dim=9, n_samples=9, step_size=0.1, delta=0.5, n_rounds=10**5
        ),
        ["100000 trials in 100000 rounds"],
    ),
    "a grid": (lambda: lf.grid(RUN, seed=range(LARGE)), ["1000000000 cells", "at most 1000000"]),
    "a grid of a tuning": (
        lambda: lf.tune(RANDOM, PROBLEM, data=RUN.data, n_rounds=1, grid={"step_size": range(1, LARGE)}),
        ["999999999 cells", "step_size (999999999)"],
    ),
    "a product": (
        lambda: lf.grid(RUN, **{"seed": range(10**5), "data.n_samples": range(1, 10**5 + 1)}),
        ["10000000000 cells", "seed (100000)", "data.n_samples (100000)"],
    ),
}


@pytest.mark.parametrize(
    "name", mostly_long(TOO_LARGE, *(name for name in TOO_LARGE if "heads of a high rank" not in name))
)
def test_a_size_beyond_the_memory_is_refused(name):
    call, said = TOO_LARGE[name]
    assert_one_line(call, said, lf.SizeError)


def test_trials_of_a_sweep_are_refused_before_anything_is_run():
    """Also where they would be run in pieces, none of which is too large."""
    run = lf.Run(algorithm=RANDOM, problem=PROBLEM, data=RUN.data, n_rounds=100, trials=LARGE)
    assert_one_line(run.check, ["trials = 1000000000"], lf.SizeError)


def test_a_long_run_has_no_more_pieces_than_can_be_named():
    from linfed.simulation.job import MOST_PIECES, trials_of_a_second

    job = lf.Run(algorithm=RANDOM, problem=PROBLEM, data=RUN.data, n_rounds=100, trials=LARGE)._job()
    pieces = trials_of_a_second(job)
    assert len(pieces) == MOST_PIECES
    ranges = list(pieces)
    assert (ranges[0].start, ranges[-1].stop) == (0, LARGE)
    assert all(first.stop == second.start for first, second in itertools.pairwise(ranges))


@pytest.mark.long
def test_the_rows_of_one_client_are_counted_once_for_all_trials():
    """Rows are read client by client, trial by trial: what a trial needs beside the others does not grow."""
    enough = {"n_samples": 10_000, "in_law": False}
    run = {"data": lf.FixedSamples(**enough), "n_rounds": 1, "engine": "compressed"}
    lf.simulate(RANDOM, PROBLEM, **run, trials=50, memory_budget=3.6e6)
    assert_one_line(
        lambda: lf.simulate(RANDOM, PROBLEM, **run, memory_budget=3e6),
        ["one trial needs about", "memory_budget is 3 MB"],
        lf.SizeError,
    )


def test_cells_are_looked_at_one_by_one():
    with pytest.raises(TypeError, match=r"cells\[0\] = 0 must be an lf.Run"):
        lf.sweep(itertools.count())


def test_classes_of_many_clients_are_only_numbers():
    problem = lf.Classes(n_clients=LARGE, n_classes=3, classes_per_client=2, dim=4)
    assert problem.classes_per_client == 2
    fedrep = lf.FedRep(rank=2, step_size=0.3, init="random", heads=lf.GradientHeads(steps=2))
    with pytest.raises(lf.SizeError, match="one trial needs about"):
        lf.simulate(fedrep, problem, data=lf.FixedSamples(4), n_rounds=1)
    with pytest.raises(ValueError, match="classes_per_client has 2 entries, expected an integer, or n_clients = 10000"):
        lf.Classes(n_clients=LARGE, n_classes=3, classes_per_client=(2, 2), dim=4)


# --- files whose headers promise more than they hold ---------------------------------------------------------


def header(shape, descr="<f8"):
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def planted(path, tmp_path, name, content):
    """Copy an archive with another content of one of its arrays."""
    target = tmp_path / "planted.npz"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for one in old.namelist():
            new.writestr(one, content if one == name else old.read(one))
    return target


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    result = RUN.simulate().save(folder / "result")
    table = lf.sweep([RUN]).save(folder / "table")
    return {"result": (result, "metrics/risk.npy", lf.Result.load), "table": (table, "0/risk.npy", lf.Table.load)}


@pytest.mark.parametrize("kind", ["result", "table"])
@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (3,)])
def test_a_header_of_more_numbers_than_the_file_holds(saved, kind, shape, tmp_path):
    path, name, load = saved[kind]
    wrong = planted(path, tmp_path, name, header(shape) + bytes(8))
    assert_one_line(lambda: load(wrong), ["planted.npz", "has 8 bytes of data, but"])


class Touch:
    """An object whose unpickling creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("kind", ["result", "table"])
def test_a_pickle_is_refused_and_not_executed(saved, kind, tmp_path):
    path, name, load = saved[kind]
    stream, trace = io.BytesIO(), tmp_path / "trace"
    np.lib.format.write_array(stream, np.array([Touch(trace)], dtype=object), allow_pickle=True)
    wrong = planted(path, tmp_path, name, stream.getvalue())
    assert_one_line(lambda: load(wrong), ["planted.npz"])
    assert not trace.exists()
    with np.load(wrong, allow_pickle=True) as archive:  # the same file does execute code where pickles are allowed
        archive[name.removesuffix(".npy")][0].close()
    assert trace.exists()


@pytest.mark.parametrize("kind", ["result", "table"])
def test_a_file_that_unpacks_to_more_than_the_memory(saved, kind, monkeypatch, tmp_path):
    path, name, load = saved[kind]
    large = planted(path, tmp_path, name, header((1000, 1000)) + bytes(8 * 10**6))
    assert large.stat().st_size < 10**5
    monkeypatch.setattr(memory, "physical_memory", lambda: 12e6)
    assert_one_line(lambda: load(large), ["planted.npz", "reading path", "would take about 8"], lf.SizeError)


@pytest.mark.parametrize("content", [bytes(10**6), b"", header((), "<U4")[:20], b"\x93NUMPY\x07\x00" + bytes(100)])
def test_what_is_no_array_is_not_read(saved, content, tmp_path, monkeypatch):
    """Only its first bytes: decoding hundreds of megabytes of zeros as a description takes seconds."""
    path, _, load = saved["result"]
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("reads it"))
    wrong = planted(path, tmp_path, "description.npy", content)
    assert_one_line(lambda: load(wrong), ["planted.npz", "is not a result written by linfed"])


def test_a_large_description_and_a_file_that_is_ours_are_read(saved, tmp_path):
    arrays = {"x": np.arange(5.0), "empty": np.empty((0, 3)), "words": np.array(["a", "bc"]), "number": np.array(2.0)}
    path = files.write(tmp_path / "x", arrays, {"long": "x" * 10**6})
    found, described = files.read(path)
    assert described == {"long": "x" * 10**6}
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())
    for kind in saved:
        path, _, load = saved[kind]
        load(path)
