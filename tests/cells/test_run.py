"""The cell of one run: its row is that of `simulate`, after a tuning if it has one, also if it is computed in parts."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from fractions import Fraction

import numpy as np
import pytest

import linfed as lf
from linfed.cells import run as run_module
from linfed.cells.run import Part
from linfed.search import grid_search, race
from linfed.simulation import job
from linfed.sweeps.scheduler import key_of_part
from linfed.sweeps.store import keys_of
from linfed.system.description import describe, rebuild
from tests.helpers import assert_one_line

RUN = lf.Run(
    algorithm=lf.FedRep(rank=2, step_size=0.5, init="random"),
    problem=lf.SharedRepresentation(n_clients=20, dim=8, rank=2, noise_std=0.1),
    data=lf.FreshSamples(n_samples=6),
    n_rounds=12,
    trials=7,
    seed=5,
    participation=0.5,
    record_every=4,
)
TUNED = replace(RUN, algorithm=lf.Tuned(base=RUN.algorithm, grid={"step_size": (0.1, 0.5, 2.0)}, trials=5))


def assert_equal_bits(one, other):
    """Assert that two tables hold the same, to the last bit."""
    assert repr(one.payload()[1]) == repr(other.payload()[1])
    for name, array in one.payload()[0].items():
        assert array.tobytes() == other.payload()[0][name].tobytes()


# --- the row ---------------------------------------------------------------------------------------------------------


def test_a_run_is_simulate_with_its_arguments():
    options = {one.name: getattr(RUN, one.name) for one in fields(RUN) if one.name not in ("algorithm", "name")}
    result = lf.simulate(RUN.algorithm, **options)
    (row,) = lf.sweep([RUN])
    for name, values in result.metrics.items():
        assert row[name].tobytes() == values.tobytes()
    assert row["round"].tolist() == [0, 4, 8, 12]
    assert (row["participants"], row["engine"], row["trials"]) == (10, result.engine, 7)
    assert row["floats_sent"].tolist() == result.floats_sent.tolist()
    assert row["diverged"].tolist() == [False] * 7
    assert (row["problem.n_clients"], row["n_samples"], row["step_size"], row["algorithm"]) == (20, 6, 0.5, "FedRep")
    assert RUN.simulate().metrics["risk"].tobytes() == result.metrics["risk"].tobytes()


def test_the_name_of_a_run_is_the_method_in_its_row(tmp_path):
    axis = [(name, replace(RUN.algorithm, step_size=step)) for name, step in (("small", 0.1), ("large", 0.5))]
    cells = lf.grid(RUN, **{"name, algorithm": axis})
    table = lf.sweep(cells, store=tmp_path)
    assert table.unique("method") == ["small", "large"]
    assert "name" not in table.columns
    assert lf.Store(tmp_path).table(cells).unique("method") == ["small", "large"]
    assert describe(cells[0]).text != describe(replace(cells[0], name="")).text
    for cell in (cells[0], RUN):
        assert rebuild(describe(cell).json, describe(cell).arrays) == cell
    assert not {"name", "method"} & {*lf.sweep([RUN]).columns}
    assert "name" not in describe(RUN).json["fields"]  # the key of a run that has no name


def test_equal_runs_share_no_row(tmp_path):
    for table in (lf.sweep([RUN, RUN]), lf.sweep([RUN, RUN], store=tmp_path), lf.Store(tmp_path).table([RUN, RUN])):
        first, second = table
        expected = second["risk"]
        first["risk"][:] = -1
        first.rows[0]["risk"] = None
        assert np.array_equal(second["risk"], expected)


class Jump(lf.FedRep):
    """FedRep whose trials with a random number above a half leave the finite range in the third round."""

    requires = lf.FedRep.requires

    def step(self, state, batch, rng):
        new = super().step(state, batch, rng)
        large = rng.standard_normal((1,))[:, :1] > 0
        return new if batch.round != 3 else new.update(W=np.where(large[..., None], 1e200, new.W))


def test_diverged_trials_are_marked_and_a_sweep_counts_them_once():
    jumping = replace(RUN, algorithm=Jump(rank=2, step_size=0.5, init="random"))
    with pytest.warns(lf.DivergenceWarning) as caught:
        table = lf.sweep([RUN, jumping])
    count = int((table["status"] == "DIVERGED").sum())
    assert 0 < count < 7
    assert str(caught[0].message).startswith(f"{count} of 14 trials diverged, in 1 of 2 rows (column 'status')")
    assert (len(caught), caught[0].filename) == (1, __file__)
    result = jumping.simulate()
    row = table.select(algorithm="Jump")
    assert row["status"].tolist() == [status.name for status in result.status]
    assert row["diverged"].tolist() == [status is lf.Status.DIVERGED for status in result.status]
    assert lf.sweep([RUN])["status"].tolist() == ["COMPLETED"] * 7  # a warning would be an error


@dataclass(frozen=True, kw_only=True)
class Double(lf.Run):
    """A run with another column."""

    def run(self):
        return {**super().run(), "double": 2 * self.n_rounds}


def test_a_run_of_a_users_class_is_run_as_it_says(slow, tmp_path):
    run = Double(**{one.name: getattr(RUN, one.name) for one in fields(RUN)})
    assert lf.sweep([run], store=tmp_path)["double"] == 24


def participants(state, truth):
    return np.zeros(len(state.B))


TUNING = {"grid": {"step_size": (0.1,)}, "base": RUN.algorithm}
INVALID = {
    "no algorithm": (lambda: replace(RUN, algorithm="FedRep"), ["algorithm = 'FedRep'", "lf.Tuned"], TypeError),
    "n_rounds": (lambda: lf.sweep([replace(RUN, n_rounds=-1)]), ["n_rounds = -1"], ValueError),
    "a name": (lambda: replace(RUN, name=3), ["name = 3 must be a string"], TypeError),
    "a metric with the name of a column": (
        lambda: lf.sweep([replace(RUN, metrics=["risk", participants])]),
        ["function named 'participants'", "rename the function"],
        lf.SweepError,
    ),
    "a grid": (lambda: lf.Tuned(**TUNING | {"grid": {"step": (1,)}}), ["did you mean 'step_size'"], ValueError),
    "a base": (lambda: lf.Tuned(**TUNING | {"base": 3}), ["base = 3"], TypeError),
    "a score": (lambda: lf.Tuned(**TUNING, score="finl"), ["score = 'finl'", "did you mean 'final'"], ValueError),
    "a quantile": (lambda: lf.Tuned(**TUNING, quantile=2), ["quantile = 2", "from 0 to 1"], ValueError),
    "trials": (lambda: lf.Tuned(**TUNING, trials=0), ["trials = 0", "at least 1"], ValueError),
    "an extension": (lambda: lf.Tuned(**TUNING, extend="yes"), ["extend = 'yes'"], ValueError),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_fields_are_named(name):
    call, fragments, error = INVALID[name]
    assert_one_line(call, fragments, error)


# --- tuned runs ------------------------------------------------------------------------------------------------------


def test_a_tuned_run_is_tune_and_then_simulate():
    options = {"data": RUN.data, "n_rounds": 12, "participation": 0.5, "seed": 5}
    grid = {"step_size": (0.1, 0.3, 1.0, 3.0, 10.0)}
    tuning = lf.tune(RUN.algorithm, RUN.problem, grid=grid, trials=4, **options)
    result = lf.simulate(tuning.algorithm, RUN.problem, trials=7, record_every=4, **options)
    (row,) = lf.sweep([replace(RUN, algorithm=replace(TUNED.algorithm, grid=grid, trials=4))])
    assert row["subspace_distance"].tobytes() == result.metrics["subspace_distance"].tobytes()
    assert row["step_size"] == tuning.algorithm.step_size
    assert row["score"].tobytes() == tuning.scores.tobytes()
    assert row["tried_step_size"].tolist() == [*grid["step_size"]]
    assert row["at_grid_edge"] == ""
    assert row["algorithm.base.step_size"] == 0.5
    assert row["best"] == tuning.best


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_the_tuning_may_be_shorter_than_the_run():
    options = {"data": RUN.data, "n_rounds": 4, "participation": 0.5, "seed": 5}
    tuning = lf.tune(RUN.algorithm, RUN.problem, grid=TUNED.algorithm.grid, trials=5, **options)
    (row,) = lf.sweep([replace(RUN, algorithm=replace(TUNED.algorithm, n_rounds=4))])
    assert row["score"].tobytes() == tuning.scores.tobytes()
    assert row["round"][-1] == 12


def test_a_step_at_the_edge_of_its_grid_is_said_once():
    runs = lf.grid(replace(RUN, algorithm=replace(TUNED.algorithm, grid={"step_size": (0.02, 0.1)})), seed=(0, 1))
    with pytest.warns(lf.GridEdgeWarning, match=r"best step_size is at the edge of its grid in 2 of 2 rows") as caught:
        table = lf.sweep(runs)
    assert len(caught) == 1
    assert table["at_grid_edge"].tolist() == ["step_size"] * 2


def test_a_grid_of_steps_may_hold_none():
    grid = {"heads.step_size": (None, 0.1), "step_size": (0.2, 0.3)}
    base = replace(RUN.algorithm, heads=lf.GradientHeads(steps=2))
    with pytest.warns(lf.GridEdgeWarning):
        (row,) = lf.sweep([replace(RUN, algorithm=lf.Tuned(base=base, grid=grid, trials=2))])
    assert np.isnan(row["tried_heads.step_size"]).sum() == 2


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_threads_do_not_silence_what_comes_after():
    import warnings

    run = replace(TUNED, algorithm=replace(TUNED.algorithm, grid={"step_size": (0.01, 0.02)}, trials=2), trials=2)
    before = list(warnings.filters)
    with ThreadPoolExecutor(4) as executor:
        lf.sweep(lf.grid(run, seed=range(8)), executor=executor)
    assert warnings.filters == before


# --- long runs in parts ----------------------------------------------------------------------------------------------


@pytest.fixture
def slow(monkeypatch):
    """As if two trials of `RUN` took a second."""
    monkeypatch.setattr(job, "SECONDS_PER_FLOAT", 0.5 / job.seconds_of_a_trial(RUN._job()) * job.SECONDS_PER_FLOAT)


@pytest.fixture
def simulated(monkeypatch):
    """Return a list of the trials that are simulated in parts."""
    trials = []
    for module in (run_module, grid_search):
        plain = module.simulate_trials
        monkeypatch.setattr(
            module, "simulate_trials", lambda job, chosen, plain=plain: trials.append(chosen) or plain(job, chosen)
        )
    return trials


def distance(result):
    """Measure a whole result, whose trials are not to be divided."""
    return np.linalg.norm(result.final.B[:, 2:], axis=(-2, -1))


PARTS = [(0, 1), (1, 3), (3, 5), (5, 7)]
DIVIDED = {
    "a run": (RUN, PARTS),
    "three settings of five trials, and then the run": (TUNED, [(0, 1), (1, 3), (3, 5)] * 3 + PARTS),
    "settings that are measured at the end": (
        replace(TUNED, algorithm=replace(TUNED.algorithm, metric=distance)),
        [(0, 5)] * 3 + PARTS,
    ),
}


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_the_parts_of_a_long_run_are_joined_bit_for_bit(name, slow, simulated, tmp_path):
    run, parts = DIVIDED[name]
    whole = lf.sweep([run])
    assert simulated == []
    again = lf.sweep([run], store=tmp_path)
    assert [(trials.start, trials.stop) for trials in simulated] == parts
    assert_equal_bits(whole, again)
    assert [path.name for path in tmp_path.iterdir()] == [keys_of([run])[0].name]
    assert lf.Store(tmp_path).records([run])[0]["parts"] == len(parts)


@pytest.mark.long
def test_a_tuning_that_widens_its_grid_is_divided_as_well(slow, simulated, tmp_path):
    run = replace(TUNED, algorithm=replace(TUNED.algorithm, grid={"step_size": (0.02, 0.04)}, extend=True))
    whole, again = lf.sweep([run]), lf.sweep([run], store=tmp_path)
    assert len(whole["tried_step_size"]) > 2
    assert len(simulated) == 3 * len(whole["tried_step_size"]) + 4
    assert_equal_bits(whole, again)


@pytest.mark.long
def test_short_settings_go_together(monkeypatch, tmp_path):
    run = replace(TUNED, algorithm=replace(TUNED.algorithm, grid={"step_size": tuple(np.geomspace(0.01, 20, 12))}))
    each = 5 * job.seconds_of_a_trial(RUN._job())
    monkeypatch.setattr(job, "SECONDS_PER_FLOAT", 0.24 / each * job.SECONDS_PER_FLOAT)
    tries = run.algorithm.tries(run.problem, n_rounds=run.n_rounds, **run._shared())
    assert [len(part.algorithms) for part in tries.divided()] == [4, 4, 4]
    assert_equal_bits(lf.sweep([run], store=tmp_path), lf.sweep([run]))


@pytest.mark.parametrize("bytes_at_once", [race.MOST_BYTES, pytest.param(1e5, marks=pytest.mark.long)])
def test_a_tuning_that_stops_settings_is_divided_as_well(bytes_at_once, slow, monkeypatch, tmp_path):
    monkeypatch.setattr(race, "MOST_BYTES", bytes_at_once)
    tuned = lf.Tuned(
        base=lf.FedRep(rank=2, step_size=9.0, init=lf.AtDistance(0.9)),
        grid={"step_size": (0.02, 0.1, 0.3, 0.6, 0.9, 3.0, 40.0)},
        score=lf.RoundsTo(0.2),
        trials=4,
    )
    run = replace(RUN, algorithm=tuned, participation=1.0, n_rounds=60, trials=2, record_every=1)
    assert run.divides
    whole = lf.sweep([run])
    assert whole["stopped"].any()
    assert_equal_bits(whole, lf.sweep([run], store=tmp_path))


def left_of(cell, parts, folder):
    """Save parts like a sweep that was stopped within a cell, and return their records."""
    lf.sweep(parts, store=folder)
    store, owner = lf.Store(folder), keys_of([cell])[0]
    for key, done in zip(keys_of(parts), store.read(keys_of(parts)), strict=True):
        store.write(key_of_part(key, owner), done)
    known = store.records(parts)
    store.remove(keys_of(parts))
    return known


def test_the_parts_of_a_run_that_was_stopped_are_taken_up(slow, simulated, tmp_path):
    parts = [Part(part_of=RUN, part_first=one, part_last=two) for one, two in PARTS]
    known = left_of(RUN, [*parts[:2], parts[3]], tmp_path)
    simulated.clear()
    table = lf.sweep([RUN], store=tmp_path)
    assert simulated == [range(3, 5)]
    record = lf.Store(tmp_path).records([RUN])[0]
    for name in ("seconds", "processor_seconds"):
        assert record[name] > sum(one[name] for one in known) > 0
    assert_equal_bits(table, lf.sweep([RUN]))
    left_of(RUN, parts, tmp_path / "all")
    simulated.clear()
    assert_equal_bits(lf.sweep([RUN], store=tmp_path / "all"), table)
    assert simulated == []


def test_a_short_run_is_not_divided():
    assert not RUN.divides
    assert not TUNED.divides


def last(state, truth):
    return np.arange(len(state.B), dtype=float)


def test_given_participants_and_metrics_of_any_name_go_in_parts(slow, tmp_path):
    given = np.random.default_rng(0).permuted(np.tile(np.arange(20), (7, 12, 1)), axis=-1)[:, :, :4]
    run = replace(RUN, participation=given, metrics=["risk", last])
    again = lf.sweep([run], store=tmp_path)
    assert again["risk"].tobytes() == lf.sweep([run])["risk"].tobytes()
    assert again["last"].shape == (7, 4)


EQUAL = {
    "n_rounds": (12, [np.int64(12), np.array(12)]),
    "trials": (7, [np.int8(7)]),
    "record_every": (4, [np.int32(4)]),
    "seed": ((1, 2), [[1, 2], (np.int64(1), 2), np.array([1, 2])]),
    "participation": (0.5, [np.float64(0.5), np.float32(0.5), Fraction(1, 2), np.array(0.5)]),
    "metrics": (("risk",), [["risk"], (np.str_("risk"),), np.array(["risk"])]),
    "engine": ("explicit", [np.str_("explicit")]),
    "algorithm": (TUNED.algorithm, [replace(TUNED.algorithm, grid={"step_size": tuple(np.array([0.1, 0.5, 2.0]))})]),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_runs_have_one_key(name):
    value, others = EQUAL[name]
    run = replace(RUN, **{name: value})
    for other in others:
        equal = replace(RUN, **{name: other})
        assert equal == run
        assert describe(equal).text == describe(run).text
        equal.check()


def test_a_short_float_is_a_share_as_it_is_written():
    run = replace(RUN, problem=replace(RUN.problem, n_clients=50), participation=np.float32(0.29))
    assert run._job().sizes.participants == 15 == replace(run, participation=0.29)._job().sizes.participants


@pytest.mark.filterwarnings("ignore::linfed.GridEdgeWarning")
def test_a_run_of_given_arrays_is_tuned_on_as_many_trials():
    W = np.random.default_rng(0).standard_normal((3, 20, 2))
    run = replace(TUNED, problem=lf.GivenTruth(B=np.eye(8)[:, :2], W=W), trials=3)
    (row,) = lf.sweep([run])
    alone = lf.tune(run.algorithm.base, run.problem, grid=run.algorithm.grid, **run._shared(), n_rounds=12)
    assert row["score"].tobytes() == alone.scores.tobytes()
