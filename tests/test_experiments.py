"""Every experiment runs in --quick and draws from its saved tables alone."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import linfed as lf
from linfed import cli
from linfed.claims import Verdict
from linfed.reproduce import experiment_files, load, load_tables

FOLDER = Path(__file__).parent.parent / "experiments"


@pytest.fixture(scope="module", params=experiment_files(FOLDER))
def done(request, tmp_path_factory):
    """An experiment's module and the folder of its quick run."""
    out = tmp_path_factory.mktemp("out")
    status = cli.main(["reproduce", request.param, "--quick", "--experiments", str(FOLDER), "--out", str(out)])
    assert status == 0
    return request.param, load(request.param, FOLDER), out


def test_quick_run_is_whole(done):
    name, module, out = done
    tables = load_tables(out / f"{name}.npz")
    assert all(len(table) for table in tables.values())
    described = json.loads((out / f"{name}.json").read_text())
    claims = module.claims(tables)
    assert claims
    assert [claim.verdict.value for claim in claims] == [claim["verdict"] for claim in described["claims"]]
    figures = module.plot(tables)
    for key in figures:
        for suffix in ("png", "pdf"):
            assert (out / f"{name}{'-' + key if key else ''}.{suffix}").stat().st_size > 1000


def test_config_defaults_are_the_papers():
    config = importlib.import_module("experiments.fedrep_fig3").Config()
    sizes = (config.n_clients, config.dim, config.rank, config.n_samples, config.participation, config.noise_variance)
    assert sizes == ((10, 100, 1000, 10_000), 10, 2, 5, 0.1, 1e-3)
    assert config.trials >= 50


def test_fig3_methods_see_the_same_trials(done):
    name, _, out = done
    if name != "fedrep-fig3":
        pytest.skip("speaks of Figure 3")
    curves = load_tables(out / f"{name}.npz")["curves"]
    start = curves[curves["round"] == 0]
    for n in np.unique(start["n_clients"]):
        for preset in np.unique(start["preset"]):
            chosen = start[(start["n_clients"] == n) & (start["preset"] == preset)]
            by_method = [chosen["distance"][chosen["method"] == method] for method in np.unique(chosen["method"])]
            for distances in by_method[1:]:
                np.testing.assert_array_equal(distances, by_method[0])


def test_fig3_notebook_preset_is_the_paper_rescaled():
    """With noise, heads, data and QR made equal, the notebook's scaling is a change of units."""
    module = importlib.import_module("experiments.fedrep_fig3")
    config = module.Config(rounds=10)
    cell = module.Cell(preset="notebook", n_clients=20, method="GD-GD", config=config)
    steps = module.scaled(cell, (0.3, 0.2))
    problem, _ = module.setting(cell)
    truth = problem.truth(0, [0])
    np.testing.assert_allclose(np.linalg.norm(truth.W, axis=-1), 1.0)
    shared = {"rounds": 10, "participation": 0.1, "seed": 0, "data": lf.FreshSamples(5)}
    sizes = {"n_clients": 20, "dim": 10, "rank": 2, "head_norm": 1.0}
    heads = {"rank": 2, "init": "random", "head_solver": "gradient", "orthonormalize": False}
    units = lf.SharedRepresentation(**sizes, design=lf.Gaussian(covariance=1 / 5))
    notebook = lf.simulate(lf.FedRep(**heads, aggregate="sum", **steps), units, **shared)
    paper = lf.simulate(
        lf.FedRep(**heads, step_size=0.3, head_step_size=0.2), lf.SharedRepresentation(**sizes), **shared
    )
    np.testing.assert_allclose(notebook.final.B, paper.final.B, rtol=0, atol=1e-12)


def test_fig3_judge_rejects_what_is_false(done):
    """With the methods' names exchanged, the claims on their order must fail."""
    name, module, out = done
    if name != "fedrep-fig3":
        pytest.skip("speaks of Figure 3")
    tables = load_tables(out / f"{name}.npz")
    summary = tables["summary"].copy()
    names = {"FedRep": "GD-GD", "GD-GD": "FedRep"}
    summary["method"] = [names.get(method, method) for method in summary["method"]]
    order = [claim for claim in module.claims({**tables, "summary": summary}) if "needs fewer" in claim.text]
    judged = {(claim.text, claim.where): claim.verdict for claim in order}
    assert judged["FedRep needs fewer rounds than 10GD-GD", "paper: n = 1,000"] is Verdict.NOT_SUPPORTED


NEVER = np.inf


@pytest.mark.parametrize(
    ("fedrep", "rival", "verdict"),
    [
        ((60, 10), (60, 30), Verdict.SUPPORTED),
        ((60, 30), (60, 10), Verdict.NOT_SUPPORTED),
        ((60, 10), (NEVER, NEVER), Verdict.INCONCLUSIVE),
        ((60, 10), (NEVER, 190), Verdict.INCONCLUSIVE),
        ((60, 10), (150, NEVER), Verdict.SUPPORTED),  # the rival lost rounds, however many
        ((NEVER, 10), (60, 30), Verdict.SUPPORTED),  # a gain of more than 20 against 2
        ((NEVER, NEVER), (60, 30), Verdict.INCONCLUSIVE),
    ],
)
def test_fig3_gain_claims_nothing_that_rests_on_rounds_never_reached(fedrep, rival, verdict):
    module = importlib.import_module("experiments.fedrep_fig3")
    rounds = {("FedRep", n): r for n, r in zip((100, 1000), fedrep, strict=True)}
    rounds |= {("GD-GD", n): r for n, r in zip((100, 1000), rival, strict=True)}
    rng = np.random.default_rng(0)

    def crossing(method, n):
        return rounds[method, n] + rng.integers(0, 3, 50)

    assert module._gain(crossing, "GD-GD", 100, 1000, "paper", 200).verdict is verdict


def test_fig3_notes_are_of_the_setting(done):
    name, module, out = done
    if name != "fedrep-fig3":
        pytest.skip("speaks of Figure 3")
    tables = load_tables(out / f"{name}.npz")
    assert "p = 1 participant" in module._note(tables, "paper", 10, ["FedRep"])
    assert "Theorem" not in module._note(tables, "paper", 100, ["FedRep"])
    tuning = tables["tuning"].copy()
    tuning["at_edge"][(tuning["method"] == "GD-GD") & (tuning["n_clients"] == 100) & tuning["chosen"]] = True
    changed = {**tables, "tuning": tuning}
    assert "GD-GD lies at the edge" in module._note(changed, "paper", 100, ["FedRep", "GD-GD"])
