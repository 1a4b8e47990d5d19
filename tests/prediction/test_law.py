"""The list of laws: what each predicts, for which runs, its table, and how a law is added."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import linfed as lf
from linfed.prediction import dispatch, law
from linfed.prediction.dispatch import LAWS
from linfed.prediction.prediction import Curves, Quantity
from tests.helpers import ROOT, assert_one_line
from tests.prediction.runs import FRESH, PROBLEM, RUNS_OF_THE_TABLE


def below(kind):
    """Return the classes of linfed below a class that have no subclasses there."""
    own = [one for one in kind.__subclasses__() if one.__module__.startswith("linfed.")]
    return set().union(*map(below, own)) if own else {kind}


def test_every_law_is_listed():
    assert below(law.Law) <= {*LAWS}, "add the law to LAWS in linfed/prediction/dispatch.py"


@pytest.mark.parametrize("kind", LAWS)
def test_the_table_says_what_is_predicted(kind):
    assert kind in RUNS_OF_THE_TABLE, "add a run to RUNS_OF_THE_TABLE in tests/prediction/runs.py"
    algorithms, problem, data = RUNS_OF_THE_TABLE[kind]
    assert tuple(type(one) for one in algorithms) == kind.algorithms
    for algorithm in algorithms:
        found = lf.predict(algorithm, problem, data=data, n_rounds=3)
        assert found.rounds.tolist() == [0, 1, 2, 3]
        known = []
        for name in ("distance", "low", "high", "floor", "rate", "stability_edge", "best_step"):
            with suppress(lf.NoPredictionError):
                known += [name] if getattr(found, name) is not None else []
        assert (found.law, tuple(known)) == (kind.name, kind.gives), algorithm
        quantities = [getattr(found, name) for name in known if name not in law.CURVES]
        assert all(one.source and one.validity for one in quantities), algorithm
        if "distance" in known and not isinstance(algorithm, lf.Oracle):
            assert (kind.range or kind.validity).endswith(found.validity), algorithm


def test_the_table_is_in_the_docstring_and_in_the_guide():
    assert "{table}" not in lf.predict.__doc__
    words = " ".join(lf.predict.__doc__.split())
    for kind in LAWS:
        names = ", ".join(each.__name__ for each in kind.algorithms)
        text = f"{names}: {kind.runs} predicted: {', '.join(kind.gives)} range: {kind.range or kind.validity} "
        assert text in words
    guide = (ROOT / "docs/guide/predict.md").read_text(encoding="utf-8")
    assert f"<!-- predictions -->\n{law.markdown_table(LAWS)}\n<!-- /predictions -->" in guide, "run docs.tools.render"


def two_clients(run):
    return "" if run.job.sizes.n_clients > 2 else "for two clients"


class Planted(law.Law[law.Run[lf.FedPer]]):
    """A law of an algorithm that has none."""

    algorithms = (lf.FedPer,)
    runs = "more than two clients"
    gives = ("distance", "floor")
    name, source, validity = "planted", "nowhere", "in this test"
    conditions = (two_clients,)
    limits = {"wrong": (0.5, "it is wrong by {}, above {}")}  # noqa: RUF012

    @classmethod
    def run_of(cls, job):
        return law.Run(job, job.algorithm)

    def curves(self):
        return Curves(np.full((self.run.job.trials, self.run.job.n_rounds + 1), 0.25), facts={"wrong": 0.75})

    def floor(self):
        return Quantity(np.full(self.run.job.trials, 0.125), self.source, self.validity, "risk")


def test_a_law_is_added_in_one_place(monkeypatch):
    """Its class, in the list of laws: dispatch, refusals, warnings and tables follow."""
    algorithm, setting = lf.FedPer(rank=2, step_size=0.1), {"data": FRESH, "n_rounds": 2}
    assert_one_line(lambda: lf.predict(algorithm, PROBLEM, **setting), ["FedPer"], lf.NoPredictionError)
    monkeypatch.setattr(dispatch, "LAWS", (*LAWS, Planted))
    found = lf.predict(algorithm, PROBLEM, **setting)
    assert (found.law, found.source, found.validity) == ("planted", "nowhere", "in this test")
    assert found.distance.tolist() == [0.25] * 3
    assert (float(found.floor), found.floor.metric) == (0.125, "risk")
    assert found.warnings == ("it is wrong by 0.75, above 0.5",)
    assert_one_line(lambda: found.rate, ["no prediction of the rate"], lf.NoPredictionError)
    two = replace(PROBLEM, n_clients=2)
    words = ["no prediction of FedPer is available for two clients"]
    assert_one_line(lambda: lf.predict(algorithm, two, **setting), words, lf.NoPredictionError)
    other = lf.FedBABU(rank=2, step_size=0.1)
    assert_one_line(lambda: lf.predict(other, PROBLEM, **setting), ["only for", "FedPer"], lf.NoPredictionError)
    row = "| FedPer | more than two clients | `distance`, `floor` |"
    assert law.markdown_table(dispatch.LAWS).splitlines()[-1] == row
    assert law.table(dispatch.LAWS).splitlines()[-3:] == [
        "FedPer: more than two clients",
        "    predicted: distance, floor",
        "    range: in this test",
    ]
