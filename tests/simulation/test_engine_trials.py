"""Trials under every engine: independent bit for bit, the same start for all engines, and edges."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import linfed as lf
from linfed.numerics import streams
from linfed.simulation import job
from linfed.simulation.status import Status
from tests.data.small import GRADIENT, PLAIN, simulate
from tests.helpers import Wrapped, assert_same, basis, normal
from tests.worlds import fedrep, shared, truth

FLUTE = lf.FLUTE(rank=2, step_size=0.02, init=lf.SmallRandom(0.5))
SHORTCUT = lf.FedRepShortcut(rank=2, step_size=0.05, solver=lf.ClosedForm())
JOINT = replace(SHORTCUT, solver=lf.ClosedForm(order="joint"), ridge=0.5)
FINE_TUNED = lf.FedAvg(step_size=0.02, rank=2, init=basis(9, 2), fine_tune=lf.ExactHeads())
WITH_SHORTCUTS = lf.SharedWithShortcuts(n_clients=6, dim=9, rank=2, shortcut_norm=0.5, clusters=4)
SIMILAR = lf.SimilarRepresentations(n_clients=6, dim=9, rank=2, deviation=0.5, outliers=0.2, noise_std=0.1)
WIDE = {"problem": shared(n=1100, d=12), "data": lf.FreshSamples(5), "n_rounds": 3}
DENSE = lf.GivenTruth(B=basis(60, 2), Phi=normal(1100, 60), noise_std=0.1)
UNEQUAL = {"data": lf.FreshSamples((6, 7, 9, 5, 12, 8)), "participation": 0.5}
RUNS = {
    "projected": {"algorithm": fedrep(init="moments")},
    "projected, ridge": {"algorithm": fedrep(heads=lf.ExactHeads(ridge=0.1))},
    "projected, gradient heads": {"algorithm": fedrep(**GRADIENT)},
    "projected, m = 1": {"algorithm": fedrep(**GRADIENT), "data": lf.FreshSamples(1)},
    "projected, m = k": {"data": lf.FreshSamples(2)},
    "projected, dense truth": {"problem": lf.GivenTruth(B=basis(9, 2), Phi=normal(6, 9), noise_std=0.1)},
    "compressed, similar representations": {"problem": SIMILAR, "data": lf.FreshSamples(12)},
    "projected, covariance": {"problem": truth(design=lf.Gaussian(covariance=np.diag(np.arange(1.0, 10.0))))},
    "projected, many clients, gradient heads": {**WIDE, "algorithm": fedrep(d=12, **GRADIENT)},
    "projected, blocks of clients": {**WIDE, "algorithm": fedrep(d=60), "problem": DENSE},
    "projected, one singular trial": {
        "algorithm": fedrep(init=np.stack([basis(9, 2, seed=i) * [1, i != 1] for i in range(7)]))
    },
    "projected, FLUTE": {"algorithm": FLUTE},
    "projected, FLUTE, dense truth": {"algorithm": FLUTE, "problem": lf.UnderParameterized(n_clients=6, dim=9)},
    "chain, FLUTE": {"algorithm": FLUTE},
    "explicit, FLUTE": {"algorithm": FLUTE, "problem": lf.UnderParameterized(n_clients=6, dim=9)},
    "explicit, shortcuts": {
        "algorithm": lf.FedRepShortcut(
            rank=2, step_size=0.05, solver=lf.GradientSteps(shortcut_step_size=0.01), ridge=0.1, mixing=0.4
        )
    },
    "explicit, shortcuts, joint": {"algorithm": JOINT},
    "compressed, shortcuts": {"algorithm": SHORTCUT, "data": lf.FreshSamples(12), "problem": WITH_SHORTCUTS},
    "compressed, fixed, shortcuts, joint": {
        "algorithm": JOINT,
        "data": lf.FixedSamples(12),
        "problem": WITH_SHORTCUTS,
    },
    "explicit, disjoint samples": {"algorithm": fedrep(disjoint_samples=True), **UNEQUAL},
    "explicit, AltMin, disjoint samples": {"algorithm": lf.AltMin(rank=2, disjoint_samples=True), **UNEQUAL},
    "explicit, AltGDmin, disjoint samples": {"algorithm": lf.AltGDmin(rank=2, disjoint_samples=True), **UNEQUAL},
    "explicit, Per-FedAvg, thirds": {
        "algorithm": lf.PerFedAvg(
            step_size=0.1, adaptation_step_size=0.1, local_steps=2, hessian=True, disjoint_samples=True
        ),
        **UNEQUAL,
    },
    "chain": {"algorithm": fedrep(init="moments")},
    "chain, gradient heads": {"algorithm": fedrep(**GRADIENT)},
    "chain, r > k": {"problem": shared(r=4)},
    "compressed, fresh": {"data": lf.FreshSamples(12)},
    "compressed, FedAvg": {"data": lf.FreshSamples(12), "algorithm": FINE_TUNED},
    "compressed, fixed": {"data": lf.FixedSamples(12), "algorithm": lf.FedRep(**PLAIN)},
    "compressed, fixed, FedAvg": {"data": lf.FixedSamples(12), "algorithm": lf.FedAvg(step_size=0.02, local_steps=5)},
    "compressed, fixed, not drawn": {"data": lf.FixedSamples(10**7)},
}


def run(name, **changes):
    defaults = {"algorithm": fedrep(), "problem": shared(), "data": lf.FreshSamples(5), "n_rounds": 8, "trials": 7}
    arguments = defaults | {"participation": 0.8, "seed": 3, "engine": name.split(",")[0]} | RUNS[name] | changes
    algorithm, trials = arguments.pop("algorithm"), arguments["trials"]
    if np.ndim(getattr(getattr(algorithm, "init", None), "B", 0)) == 3:
        algorithm = replace(algorithm, init=algorithm.init.B[:trials])
    return lf.simulate(algorithm, arguments.pop("problem"), **arguments)


@pytest.fixture(scope="module")
def seven():
    """Return each run of seven trials, made once."""
    made = {}

    def result(name):
        if name not in made:
            made[name] = run(name)
        return made[name]

    return result


@pytest.mark.parametrize("name", RUNS)
def test_a_trial_does_not_depend_on_the_number_of_trials(name, seven):
    assert_same(run(name, trials=3), seven(name), slice(None), slice(3))


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_a_trial_depends_on_its_seed_alone(name, seven, monkeypatch):
    """Not on the other trials of its chunk, on the rounds that are drawn at once, or on the length of the run."""
    wanted = seven(name)
    if not wanted.has_final_step:
        assert_same(run(name, n_rounds=16), wanted, n_rounds=len(wanted.rounds))
    assert not np.isin(run(name, seed=4).metrics["risk"][:, -1], wanted.metrics["risk"][:, -1]).any()
    monkeypatch.setattr(job, "CHUNK_BYTES", 1.0)
    monkeypatch.setattr(streams, "BLOCK_VALUES", 2 * wanted.problem.n_clients)  # participants are shuffled still
    assert_same(run(name), wanted)


@pytest.mark.parametrize("name", ["projected", "chain", "compressed, fresh", "compressed, fixed"])
def test_a_memory_budget_cuts_trials_that_stay_the_same(name, seven):
    with pytest.raises(lf.SizeError) as caught:
        run(name, memory_budget=1.0)
    number, unit = str(caught.value).split("about ")[1].split(" ")[:2]
    each = float(number) * 1000.0 ** ["B", "kB", "MB", "GB"].index(unit)
    assert_same(run(name, memory_budget=2.1 * each), seven(name))


@pytest.mark.long
def test_worker_processes_give_the_same_bits(seven):
    assert_same(run("projected", workers=2), seven("projected"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Watched(Wrapped):
    """Runs another algorithm, and keeps who took part."""

    active: list = field(default_factory=list)
    requires = lf.Requires.FEATURES

    def step(self, state, batch, rng):
        self.active.append(batch.active.copy())
        return self.inner.step(state, batch, rng)


@pytest.mark.parametrize("engine", ["projected", "chain", "compressed"])
def test_engines_see_the_same_truth_start_and_participants(engine):
    one, other = (Watched(inner=lf.FedRep(rank=2, step_size=0.3, init=lf.AtDistance(0.5))) for _ in range(2))
    results = [
        simulate(watched, shared(), lf.FreshSamples(12), participation=0.5, engine=name, n_rounds=20)
        for watched, name in ((one, engine), (other, "explicit"))
    ]
    assert np.array_equal(one.active, other.active)
    assert len(np.unique(one.active)) == 6
    for name, values in results[1].metrics.items():
        assert np.abs(results[0].metrics[name][:, 0] - values[:, 0]).max() < 1e-12
        assert np.abs(results[0].metrics[name][:, -1] - values[:, -1]).min() > 1e-6  # the samples are others


@pytest.mark.parametrize("engine", ["compressed", "projected", "chain"])
def test_the_moments_of_fresh_samples_are_those_of_explicit_rows(engine):
    algorithm, problem = lf.FedRep(rank=2, step_size=0.3), shared(d=9)
    one, other = (
        simulate(algorithm, problem, lf.FreshSamples(12), n_rounds=0, engine=name, trials=5)
        for name in (engine, "explicit")
    )
    for name, values in other.metrics.items():
        assert np.abs(one.metrics[name] - values).max() < 1e-12
    if engine != "chain":
        assert np.abs(one.final.B - other.final.B).max() < 1e-12


def test_new_clients_and_risks_under_the_other_engines():
    for engine in ("projected", "compressed", "explicit"):
        result = simulate(fedrep(), shared(), lf.FreshSamples(12), engine=engine)
        assert result.new_clients([5], clients=4).shape == (3, 1, 4)
        np.testing.assert_allclose(result.client_risks().mean(axis=1), result.metrics["risk"][:, -1])


# --- edges ---------------------------------------------------------------------------------------------------

DRAWING = ["projected", "chain"]


@pytest.mark.parametrize("engine", DRAWING)
@pytest.mark.parametrize("rank", [1, 3])
def test_the_noiseless_truth_is_a_fixed_point(engine, rank):
    algorithm, problem = fedrep(d=12, k=rank, init=lf.AtDistance(0.0)), shared(d=12, r=rank, noise=0.0)
    result = simulate(algorithm, problem, lf.FreshSamples(6), n_rounds=100, engine=engine)
    assert result.metrics["subspace_distance"].max() < 1e-12
    assert result.metrics["parameter_error"][:, 1:].max() < 1e-12
    assert result.status == [Status.COMPLETED] * 3


SMALL = [(3, 2, 2), (4, 3, 2), (2, 1, 2), (4, 2, 4), (2, 1, 1), (2, 2, 2), (3, 3, 2), (1, 1, 1), (3, 3, 3)]


RIDGE = {"heads": lf.ExactHeads(ridge=0.1)}


@pytest.mark.parametrize(
    ("d", "k", "r", "m", "heads"),
    [*((*sizes, m, {}) for sizes in SMALL for m in (1, 6)), (3, 3, 2, 1, GRADIENT), (1, 1, 1, 1, RIDGE)],
)
def test_small_dimensions(d, k, r, m, heads):
    algorithm, problem = fedrep(d=d, k=k, init="random", **heads), shared(d=d, r=r)
    result = simulate(algorithm, problem, lf.FreshSamples(m), engine="projected")
    stalls = m <= k < d and heads == {}
    assert result.status == [Status.STALLED if stalls else Status.COMPLETED] * 3
    assert all(np.isfinite(values).all() for values in result.metrics.values())


DEPENDENT = {
    "a zero column": basis(9, 2) * [1.0, 0.0],
    "a column twice": np.repeat(basis(9, 1), 2, axis=1),
    "zero": np.zeros((9, 2)),
}


@pytest.mark.parametrize("name", DEPENDENT)
@pytest.mark.parametrize("engine", [*DRAWING, "compressed"])
def test_dependent_columns_are_found_as_under_explicit_rows(name, engine):
    algorithm = fedrep(init=DEPENDENT[name], orthonormalize=False)
    one, other = (
        simulate(algorithm, truth(), lf.FreshSamples(12), n_rounds=3, engine=which) for which in (engine, "explicit")
    )
    assert one.status == other.status == [Status.SINGULAR_HEAD] * 3
    assert one.status_round.tolist() == other.status_round.tolist() == [1] * 3
    assert np.isfinite(one.metrics["parameter_error"]).all()


SPOILT = {
    Status.SINGULAR_HEAD: ({}, [1.0, 0.0]),
    Status.DIVERGED: (GRADIENT, [300.0, 300.0]),
}


@pytest.mark.parametrize("status", SPOILT, ids=str)
@pytest.mark.parametrize("engine", [*DRAWING, "compressed"])
def test_a_spoilt_trial_leaves_the_others_alone(engine, status):
    heads, columns = SPOILT[status]
    options = {"orthonormalize": False, "step_size": 0.05, **heads}
    calm = np.stack([basis(9, 2, seed=i) for i in range(3)])
    spoilt = calm * np.stack([np.ones(2), columns, np.ones(2)])[:, None]
    one, other = (
        simulate(fedrep(init=init, **options), truth(), lf.FreshSamples(12), n_rounds=30, engine=engine)
        for init in (calm, spoilt)
    )
    assert other.status == [Status.COMPLETED, status, Status.COMPLETED]
    assert 0 < other.status_round[1] < 30
    assert np.isnan(other.metrics["parameter_error"][1, -1]) == (status == Status.DIVERGED)
    assert_same(one, other, slice(None, None, 2), slice(None, None, 2))
