"""Floats between server and participants: of every algorithm, of results, and as an axis of figures."""

import inspect

import numpy as np
import pytest

import linfed as lf
from tests.helpers import Held
from tests.worlds import LEARNERS

D, K = 10, 3
STEP = {"step_size": 0.1}
PROBLEM = lf.SharedRepresentation(n_clients=8, dim=D, rank=K)
FURTHER = [
    (lf.FedRolex(model_share=[0.2, 0.6], **STEP), (4, 4)),
    (lf.NuclearNorm(rank=K), (30, 65)),
    (lf.CompressedFedRep(rank=K, kept_share=0.9, **STEP), (30, 30)),
]


def test_every_learner_sends_and_receives_what_the_table_says():
    for name, learner in LEARNERS.items():
        sent = learner.sent if isinstance(learner.sent, tuple) else (learner.sent, learner.sent)
        assert learner.make(K).communication(dim=D) == pytest.approx(sent, rel=1e-12), name
    for algorithm, sent in FURTHER:
        assert algorithm.communication(dim=D) == sent


HEADS, MODEL = 5 * (K + 1), 5 * (D + 1)
OF_CLASSES = {
    "FedRep": (30, 30),
    "GeneralFLUTE": (30 + 5 * K, 30 + HEADS),  # the biases stay with the clients
    "FedPer": (30, 30),
    "LGFedAvg": (HEADS, HEADS),
    "FedRoD": (30 + HEADS, 30 + HEADS),
    "FedAvg": (MODEL, MODEL),
    "FedAvg, two layers": (30 + HEADS, 30 + HEADS),
    "SCAFFOLD": (2 * MODEL, 2 * MODEL),
    "FedRolex": (5 * (3 + 1), 5 * (3 + 1)),
    "FedRolex, two layers": (2 * (D + 5) + 5, 2 * (D + 5) + 5),
    "FedBABU": (30, 30),
    "Ditto": (MODEL, MODEL),
    "L2GD": (0.1875 * MODEL, 0.1875 * MODEL),
    "ANIL": (30 + HEADS, 30 + HEADS),
    "LocalOnly": (0, 0),
}
"""With five classes: a row for each of them, and its bias."""


def test_with_classes_heads_and_biases_are_sent():
    for name, sent in OF_CLASSES.items():
        assert LEARNERS[name].make(K).communication(dim=D, classes=5) == sent, name


class Asks(lf.FedRep):
    def communication(self, *, dim, classes=0):
        return super().communication(dim=dim, classes=classes)


class OfRegression(lf.FedRep):
    def communication(self, *, dim):
        return (dim, dim)


@pytest.mark.parametrize("dim", [0, 1.5, None])
def test_an_invalid_size_is_refused_by_every_algorithm(dim):
    own = [kind(rank=K, **STEP) for kind in (Asks, OfRegression)]
    for algorithm in [*(learner.make(K) for learner in LEARNERS.values()), *own]:
        with pytest.raises(ValueError, match=r"^dim = .* integer of at least 1$"):
            algorithm.communication(dim=dim)
        if type(algorithm) is not OfRegression:
            with pytest.raises(ValueError, match=r"^classes = -1 .* integer of at least 0$"):
                algorithm.communication(dim=3, classes=-1)


def test_sizes_are_given_by_name():
    for algorithm in (lf.FedRep(rank=K, **STEP), Asks(rank=K, **STEP), OfRegression(rank=K, **STEP)):
        assert inspect.signature(algorithm.communication).parameters["dim"].kind is inspect.Parameter.KEYWORD_ONLY
        for wrong in ({}, {"dim": 3, "dims": 3}):
            with pytest.raises(TypeError, match=r"communication\(\)"):
                algorithm.communication(**wrong)
        with pytest.raises(TypeError, match=r"communication\(\)"):
            algorithm.communication(3)


@pytest.mark.parametrize("name", ["FedRolex", "FedRolex, two layers"])
def test_windows_train_as_many_parameters_as_are_sent(name):
    *_, last = lf.iterate(LEARNERS[name].make(K), PROBLEM, data=lf.FixedSamples(5), n_rounds=3)
    before, after = last.before, last.after
    moved = sum(np.count_nonzero(after.array(one) != before.array(one)) for one in before.arrays())
    assert moved == LEARNERS[name].sent


@pytest.mark.parametrize("fine_tune", [None, lf.ExactHeads()])
def test_a_result_counts_participants_and_rounds(fine_tune):
    run = {"data": lf.FixedSamples(5), "n_rounds": 6, "record_every": 3, "participation": 0.5}
    found = lf.simulate(lf.FedAvg(rank=K, fine_tune=fine_tune, **STEP), PROBLEM, **run).floats_sent
    per_round = 4 * 66
    assert found.tolist() == [0, 3 * per_round, 6 * per_round, *([6 * per_round] if fine_tune else [])]
    chain = lf.simulate(lf.FedRep(rank=K, **STEP), PROBLEM, data=lf.FreshSamples(9), n_rounds=2, engine="chain")
    assert chain.floats_sent.tolist() == [0, 8 * 60, 2 * 8 * 60]
    classes = lf.Classes(n_clients=8, n_classes=5, classes_per_client=2, dim=D)
    found = lf.simulate(lf.GeneralFLUTE(rank=K, **STEP), classes, data=lf.FixedSamples(4), n_rounds=3).floats_sent
    assert found.tolist() == [r * 8 * sum(OF_CLASSES["GeneralFLUTE"]) for r in range(4)]


def test_what_is_not_known_is_not_a_number():
    state = lf.State(S=np.zeros((1, 1, D)))
    assert np.isnan(lf.simulate(Held(state=state), PROBLEM, data=lf.FixedSamples(5), n_rounds=1).floats_sent[1])


def test_curves_can_be_drawn_against_it():
    run = lf.Run(algorithm=lf.FedAvg(**STEP), problem=PROBLEM, data=lf.FixedSamples(5), n_rounds=4, trials=2)
    table = lf.sweep(lf.grid(run, algorithm=(lf.FedAvg(**STEP), lf.SCAFFOLD(**STEP))))
    assert table.axes("floats_sent") == ("round",)
    with lf.panels(table) as sheet:
        sheet.curves("floats_sent", "risk", by="algorithm")
    ends = {line.get_label(): line.get_xdata()[-1] for line in sheet.figure.axes[0].get_lines()}
    assert ends == {"FedAvg": 4 * 8 * 20, "SCAFFOLD": 4 * 8 * 40}
