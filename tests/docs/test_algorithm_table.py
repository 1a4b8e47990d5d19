"""The guide's generated table of algorithms, and what their docstrings say about classification."""

import dataclasses
import inspect
import re

import linfed as lf
from docs.tools.algorithm_table import algorithm_table, floats, formula, row, served_by, source, with_required


def test_every_algorithm_has_a_row_with_a_source():
    for name, kind in lf.ALGORITHMS.items():
        first, learned, where, sent = row(kind)
        assert first == f"`lf.{name}`"
        assert learned
        assert where
        assert sent
    rows = [line.split(" | ")[0].removeprefix("| ") for line in algorithm_table().splitlines() if "`lf." in line[:6]]
    assert sorted(rows) == sorted(f"`lf.{name}`" for name in lf.ALGORITHMS)


def test_engines_are_those_that_support_an_algorithm():
    assert served_by("explicit").count("`lf.") == len(lf.ALGORITHMS)
    assert "`lf.FedRep`" in served_by("projected")
    assert "`lf.MethodOfMoments`" not in served_by("compressed")


def test_floats_are_formulas_of_the_messages():
    assert floats(lf.FedRep) == ("d k", "d k")
    assert floats(lf.FLUTE) == ("d k + k", "d k + k")
    assert floats(lf.GeneralFLUTE) == ("d k + c k", "d k + c k + c")
    assert floats(lf.PooledLeastSquares) == ("d", "d^2/2 + 3 d/2")
    assert floats(lf.LocalOnly) == ("0", "0")
    assert formula({"d": 2.0, "k": 1.0 / 3.0}) == "2 d + k/3"


def test_sources_are_short():
    assert source(lf.AltGDmin) == "Nayer and Vaswani 2023"
    assert source(lf.TPGD) == "Ding et al. 2026"
    assert source(lf.FedRep) == "FedRep paper"
    assert with_required(lf.FedProx).mu == 1.0


def refuses_classes(kind):
    try:
        with_required(kind).check_loss(3)
    except ValueError:
        return True
    return False


def test_docstrings_say_which_algorithms_support_only_regression():
    refusing = {name: inspect.getdoc(kind) for name, kind in lf.ALGORITHMS.items() if refuses_classes(kind)}
    assert {"FLUTE", "FedRep", "PrivateFedRep"} <= set(refusing) < set(lf.ALGORITHMS)
    raised = {name: doc.partition("\nRaises\n")[2].partition("\nNotes\n")[0] for name, doc in refusing.items()}
    silent = [name for name, told in raised.items() if not re.search("classification|As in `FedRep`", told)]
    assert silent == []


STEPS = {"local_steps": 1, "server_step_size": 1.0}
OF_FEDREP = {"representation_steps": 1, "orthonormalize": True, "disjoint_samples": False, "rotate_heads": False}
DEFAULTS = {
    lf.FedRep: OF_FEDREP,
    lf.PrivateFedRep: OF_FEDREP | {"message_noise_std": 0.0},
    lf.CompressedFedRep: OF_FEDREP | {"shared_mask": True},  # as in the table; the default is False
    lf.FedRepShortcut: {"representation_steps": 1, "ridge": 0.0, "refit": False},
    lf.FLUTE: {"gamma1": 1 / 4, "gamma2": 1 / 8, "gradient_factor": 1},
    lf.GeneralFLUTE: {
        "local_steps": 1, "head_steps": 0, "feature_penalty": 0.0, "head_penalty": 0.0, "collapse_penalty": 0.1,
        "head_scale": 1.0,
    },
    **dict.fromkeys((lf.FedAvg, lf.FedProx, lf.SCAFFOLD, lf.FedVARP, lf.ClusterFedVARP, lf.FedPer, lf.LGFedAvg), STEPS),
    lf.FedRolex: STEPS | {"model_share": 1.0},
    lf.FedSCAVAR: STEPS | {"model_share": 1.0, "mu": 0.0},
    lf.FedBABU: {"local_steps": 1},
    lf.FedRoD: STEPS | {"balanced": True},
    lf.Ditto: {"local_steps": 1, "penalty": 1.0, "personal_steps": 1},
    lf.APFL: {"local_steps": 1, "mix": 0.5},
    lf.PFedMe: {"local_steps": 20, "penalty": 15.0, "inner_steps": 5, "server_mix": 1.0},
    lf.L2GD: {"penalty": 1.0, "mean_probability": 0.5},
    lf.PerFedAvg: {"local_steps": 1, "hessian": False, "disjoint_samples": False},
    lf.FedMTL: {"epsilon": 1e-6},
    lf.AltGDmin: {"threshold": 9.0, "disjoint_samples": False},
    lf.AltMin: {"disjoint_samples": False, "ridge": 0.0},
    lf.ANIL: {"hessian": False, "disjoint_samples": False},
    lf.MAML: {"hessian": False, "disjoint_samples": False},
    lf.TwoReplica: {"symmetric": True},
    lf.NuclearNorm: {"noise_std": 1.0, "iterations": 5000, "tolerance": 1e-9},
    lf.BurerMonteiro: {"iterations": 2000, "tolerance": 1e-10},
    lf.LocalOnly: {"ridge": 0.0, "local_steps": 1},
    lf.Oracle: {"ridge": 0.0},
    **{kind: {} for kind in (lf.TPGD, lf.ARMUL, lf.MethodOfMoments, lf.UStatistic, lf.LocalGram, lf.LocalSpectral)},
    lf.Personalized: {},
    lf.PooledLeastSquares: {"ridge": 0.0},
    lf.ExactHeads: {"ridge": 0.0},
    lf.GradientHeads: {"steps": 1},
    lf.AllLayers: {"steps": 10},
    lf.GradientSteps: {"head_steps": 1, "shortcut_steps": 1},
    lf.TruncatedAverages: {"threshold": 9.0},
}  # fmt: skip
"""Numbers and truth values that need not be given."""


def test_what_is_left_out_has_its_default():
    assert set(lf.ALGORITHMS.values()) < set(DEFAULTS)
    for kind, values in DEFAULTS.items():
        plain = with_required(kind)
        assert dataclasses.replace(plain, **values) == plain, kind
        free = [one.name for one in dataclasses.fields(kind) if one.default not in (None, dataclasses.MISSING)]
        numbers = {name for name in free if isinstance(getattr(plain, name), int | float)}
        assert numbers == set(values), kind
