"""The guide's generated table of algorithms, and what their docstrings say about classification."""

import inspect
import re

import linfed as lf
from docs.algorithm_table import floats, formula, row, source, with_required


def test_every_algorithm_has_a_row_with_a_source():
    for name, kind in lf.ALGORITHMS.items():
        first, learned, where, sent, engines, _ = row(kind)
        assert first == f"`lf.{name}`"
        assert learned
        assert where
        assert sent
        assert "explicit" in engines


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
