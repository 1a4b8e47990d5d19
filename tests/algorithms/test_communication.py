"""Floats between server and participants: of every algorithm, a column of every table, an axis of figures."""

import inspect

import numpy as np
import pytest

import linfed as lf
from tests.helpers import Held, each

D, K = 10, 3
STEP = {"step_size": 0.1}
SENT = {
    "FedRep": (lf.FedRep(rank=K, **STEP), 30, 30),
    "FedRepShortcut": (lf.FedRepShortcut(rank=K, **STEP), 30, 30),
    "FLUTE": (lf.FLUTE(rank=K, **STEP), 33, 33),
    "GeneralFLUTE": (lf.GeneralFLUTE(rank=K, **STEP), 30, 30),
    "FedPer": (lf.FedPer(rank=K, **STEP), 30, 30),
    "LGFedAvg": (lf.LGFedAvg(rank=K, **STEP), 3, 3),
    "FedRoD": (lf.FedRoD(rank=K, **STEP), 33, 33),
    "FedAvg": (lf.FedAvg(**STEP), 10, 10),
    "FedAvg of two layers": (lf.FedAvg(rank=K, **STEP), 33, 33),
    "FedProx": (lf.FedProx(mu=1.0, **STEP), 10, 10),
    "SCAFFOLD": (lf.SCAFFOLD(**STEP), 20, 20),
    "FedVARP": (lf.FedVARP(**STEP), 10, 10),
    "ClusterFedVARP": (lf.ClusterFedVARP(clusters=2, **STEP), 10, 10),
    "FedRolex": (lf.FedRolex(model_share=0.35, **STEP), 3, 3),
    "FedRolex of two layers": (lf.FedRolex(model_share=0.7, rank=K, **STEP), 22, 22),
    "FedRolex, one share each": (lf.FedRolex(model_share=[0.2, 0.6], **STEP), 4, 4),
    "FedSCAVAR": (lf.FedSCAVAR(model_share=0.35, clusters=2, **STEP), 6, 6),
    "FedBABU": (lf.FedBABU(rank=K, **STEP), 30, 30),
    "Ditto": (lf.Ditto(**STEP), 10, 10),
    "APFL": (lf.APFL(**STEP), 10, 10),
    "PFedMe": (lf.PFedMe(**STEP), 10, 10),
    "L2GD": (lf.L2GD(mean_probability=0.25, **STEP), 1.875, 1.875),
    "PerFedAvg": (lf.PerFedAvg(adaptation_step_size=0.1, **STEP), 10, 10),
    "FedMTL": (lf.FedMTL(strength=1.0), 55, 10),
    "FedMTL, tasks": (lf.FedMTL(strength=1.0, relation="tasks"), 10, 10),
    "MethodOfMoments": (lf.MethodOfMoments(rank=K), 30, 55),
    "UStatistic": (lf.UStatistic(rank=K), 30, 55),
    "TwoReplica": (lf.TwoReplica(rank=K), 30, 20),
    "LocalGram": (lf.LocalGram(rank=K), 30, 10),
    "NuclearNorm": (lf.NuclearNorm(), 10, 65),
    "NuclearNorm with a rank": (lf.NuclearNorm(rank=K), 30, 65),
    "BurerMonteiro": (lf.BurerMonteiro(rank=K), 30, 65 + K),
    "PrivateFedRep": (lf.PrivateFedRep(rank=K, clip=1.0, **STEP), 30, 30),
    "CompressedFedRep": (lf.CompressedFedRep(rank=K, kept_share=0.2, **STEP), 30, 12),
    "CompressedFedRep, shared mask": (lf.CompressedFedRep(rank=K, kept_share=0.2, shared_mask=True, **STEP), 30, 6),
    "CompressedFedRep, most entries": (lf.CompressedFedRep(rank=K, kept_share=0.9, **STEP), 30, 30),
    "CompressedFedRep, quantised": (lf.CompressedFedRep(rank=K, levels=4, **STEP), 30, 1 + 30 * np.log2(9) / 32),
    "AltGDmin": (lf.AltGDmin(rank=K), 30, 30),
    "AltMin": (lf.AltMin(rank=K), 30, 65 + K),
    "TPGD": (lf.TPGD(rank=K, first_phase=1, **STEP), 33, 33),
    "ANIL": (lf.ANIL(rank=K, adaptation_step_size=0.1, **STEP), 33, 33),
    "MAML": (lf.MAML(rank=K, adaptation_step_size=0.1, **STEP), 33, 33),
    "LocalOnly": (lf.LocalOnly(), 0, 0),
    "Oracle": (lf.Oracle(rank=K), 0, 0),
    "PooledLeastSquares": (lf.PooledLeastSquares(), 10, 65),
    "Personalized": (lf.Personalized(base=lf.FedRep(rank=K, **STEP), ridge=1.0), 30, 30),
}


def test_every_algorithm_says_what_it_sends():
    assert {type(algorithm).__name__ for algorithm, *_ in SENT.values()} == set(lf.ALGORITHMS)
    for name, (algorithm, down, up) in SENT.items():
        assert algorithm.communication(dim=D) == (down, up), name


OF_CLASSES = {
    "FedRep": (30, 30),
    "GeneralFLUTE": (30 + 5 * K, 30 + 5 * (K + 1)),  # the biases stay with the clients
    "FedPer": (30, 30),
    "LGFedAvg": (5 * (K + 1), 5 * (K + 1)),
    "FedRoD": (30 + 5 * (K + 1), 30 + 5 * (K + 1)),
    "FedAvg": (5 * (D + 1), 5 * (D + 1)),
    "FedAvg of two layers": (30 + 5 * (K + 1), 30 + 5 * (K + 1)),
    "SCAFFOLD": (2 * 5 * (D + 1), 2 * 5 * (D + 1)),
    "FedRolex": (5 * (3 + 1), 5 * (3 + 1)),
    "FedRolex of two layers": (2 * (D + 5) + 5, 2 * (D + 5) + 5),
    "FedBABU": (30, 30),
    "Ditto": (5 * (D + 1), 5 * (D + 1)),
    "L2GD": (0.1875 * 5 * (D + 1), 0.1875 * 5 * (D + 1)),
    "ANIL": (30 + 5 * (K + 1), 30 + 5 * (K + 1)),
    "LocalOnly": (0, 0),
}
"""With five classes: a row for each of them, and its bias."""


def test_with_classes_heads_and_biases_are_sent():
    for name, sent in OF_CLASSES.items():
        assert SENT[name][0].communication(dim=D, classes=5) == sent, name


def test_a_result_of_classes_counts_its_heads():
    problem = lf.Classes(n_clients=8, n_classes=5, classes_per_client=2, dim=D)
    run = {"data": lf.FixedSamples(4), "rounds": 3, "participation": 0.5}
    found = lf.simulate(lf.GeneralFLUTE(rank=K, **STEP), problem, **run).floats_sent
    assert found.tolist() == [r * 4 * sum(OF_CLASSES["GeneralFLUTE"]) for r in range(4)]


class Asks(lf.FedRep):
    def communication(self, *, dim, classes=0):
        return super().communication(dim=dim, classes=classes)


class OfRegression(lf.FedRep):
    def communication(self, *, dim):
        return (dim, dim)


@each("dim", [-3, 0, 1.5, float("nan"), "9", None, True])
def test_sizes_that_cannot_be_are_refused_by_every_algorithm(dim):
    own = [kind(rank=K, **STEP) for kind in (Asks, OfRegression)]
    for algorithm in [*(one[0] for one in SENT.values()), *own]:
        with pytest.raises(ValueError, match=r"^dim = .* must be an integer of at least 1$"):
            algorithm.communication(dim=dim)
        if type(algorithm) is not OfRegression:
            with pytest.raises(ValueError, match=r"^classes = -1 must be an integer of at least 0$"):
                algorithm.communication(dim=3, classes=-1)


def test_sizes_are_given_by_name():
    for algorithm in (lf.FedRep(rank=K, **STEP), Asks(rank=K, **STEP), OfRegression(rank=K, **STEP)):
        assert inspect.signature(algorithm.communication).parameters["dim"].kind is inspect.Parameter.KEYWORD_ONLY
        for wrong in ({}, {"dim": 3, "dims": 3}):
            with pytest.raises(TypeError, match=r"communication\(\)"):
                algorithm.communication(**wrong)
        with pytest.raises(TypeError, match=r"communication\(\) takes 1 positional argument"):
            algorithm.communication(3)


def test_windows_train_as_many_parameters_as_are_sent():
    problem = lf.SharedRepresentation(n_clients=4, dim=D, rank=K)
    for algorithm, sent in (
        (lf.FedRolex(model_share=0.35, **STEP), 3),
        (lf.FedRolex(model_share=0.7, rank=K, **STEP), 22),
    ):
        *_, last = lf.iterate(algorithm, problem, data=lf.FixedSamples(5), rounds=3)
        before, after = last.before, last.after
        moved = sum(np.count_nonzero(after.array(name) != before.array(name)) for name in before.arrays())
        assert moved == sent


@pytest.mark.parametrize("fine_tune", [None, lf.ExactHeads()])
def test_a_result_counts_participants_and_rounds(fine_tune):
    problem = lf.SharedRepresentation(n_clients=8, dim=D, rank=K)
    run = {"data": lf.FixedSamples(5), "rounds": 6, "record_every": 3, "participation": 0.5}
    found = lf.simulate(lf.FedAvg(rank=K, fine_tune=fine_tune, **STEP), problem, **run).floats_sent
    per_round = 4 * 66
    assert found.tolist() == [0, 3 * per_round, 6 * per_round, *([6 * per_round] if fine_tune else [])]
    chain = lf.simulate(lf.FedRep(rank=K, **STEP), problem, data=lf.FreshSamples(9), rounds=2, engine="chain")
    assert chain.floats_sent.tolist() == [0, 8 * 60, 2 * 8 * 60]


def test_what_is_not_known_is_not_a_number():
    state = lf.State(S=np.zeros((1, 1, D)))
    problem = lf.SharedRepresentation(n_clients=8, dim=D, rank=K)
    assert np.isnan(lf.simulate(Held(state=state), problem, data=lf.FixedSamples(5), rounds=1).floats_sent[1])


def test_curves_can_be_drawn_against_it():
    problem = lf.SharedRepresentation(n_clients=8, dim=D, rank=K)
    run = lf.Run(algorithm=lf.FedAvg(**STEP), problem=problem, data=lf.FixedSamples(5), rounds=4, trials=2)
    table = lf.sweep(lf.grid(run, algorithm=(lf.FedAvg(**STEP), lf.SCAFFOLD(**STEP))))
    assert table.axes("floats_sent") == ("round",)
    with lf.panels(table) as sheet:
        sheet.curves("floats_sent", "risk", by="algorithm")
    ends = {line.get_label(): line.get_xdata()[-1] for line in sheet.figure.axes[0].get_lines()}
    assert ends == {"FedAvg": 4 * 8 * 20, "SCAFFOLD": 4 * 8 * 40}
