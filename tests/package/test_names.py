"""Names: what is public, what is meant by a mistyped name, and fields that are unknown or given by position."""

import copy
import pickle
import re
from dataclasses import dataclass

import pytest

import linfed as lf
from linfed._values import Configuration
from linfed.checks import suggestion
from tests.helpers import assert_one_line

PROBLEM = lf.SharedRepresentation(n_clients=8, dim=6, rank=2)


@pytest.mark.parametrize("kind", [*lf.ALGORITHMS.values(), lf.SharedRepresentation, lf.GivenTruth, lf.Gaussian])
def test_unknown_and_positional_fields_are_refused(kind):
    with pytest.raises(TypeError, match="unexpected keyword argument 'step'"):
        kind(step=1)
    with pytest.raises(TypeError, match="positional"):
        kind(1)


@pytest.mark.parametrize(
    ("call", "name", "meant"),
    [
        (lambda: lf.FedRep(k=2), "k", "rank"),
        (lambda: lf.FedRep(rank=2, lr=0.1), "lr", "step_size"),
        (lambda: lf.FedAvg(eta=0.1), "eta", "step_size"),
        (lambda: lf.SharedRepresentation(n=9, dim=8, rank=2), "n", "n_clients"),
        (lambda: lf.SharedRepresentation(d=9), "d", "dim"),
        (lambda: lf.FreshSamples(m=3), "m", "n_samples"),
        (lambda: lf.FedRep(rank=2, stepsize=0.1), "stepsize", "step_size"),
        (lambda: lf.FedRep(rank=2, batch_size=5), "batch_size", ""),
        (lambda: lf.Oracle(rank=2, eta=0.1), "eta", ""),  # it has no step size
    ],
)
def test_an_unknown_field_is_answered_with_the_right_name(call, name, meant):
    hint = f" (did you mean {meant!r}?)" if meant else ""
    assert_one_line(call, [f"unexpected keyword argument {name!r}{hint}; allowed: "], TypeError)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lf.FedRep(2, 0.5), "got 2: write FedRep(rank=2, step_size=0.5)"),
        (lambda: lf.FLUTE(2, step_size=0.1), "write FLUTE(rank=2, step_size=0.1)"),
        (lambda: lf.ExactHeads(0.1), "write ExactHeads(ridge=0.1)"),
        (lambda: lf.SharedRepresentation(9, 8, 2), "write SharedRepresentation(n_clients=9, dim=8, rank=2)"),
        (lambda: lf.AtDistance(0.5, 2), "at most 1 positional argument, got 2: its fields are delta"),
        (lambda: lf.LocalOnly(*range(9)), "got 9: its fields are ridge"),
    ],
)
def test_positional_arguments_are_named(call, words):
    assert_one_line(call, [words], TypeError)


MEANT = {
    "step_size": ["stepsize", "step_sizes", "Step-Size", "stpe_size", "step", "step_szie"],
    "n_clients": ["clients", "n_client", "nclients", "n_cleints"],
    "sphere": ["sfere", "spheer", "Sphere"],
    "FedRep": ["FedReb", "fedrep", "FEDREP", "Fed_Rep", "FedRpe"],
    "SCAFFOLD": ["scafold", "Scaffold", "SCAFOLDD"],
    "fedrep-fig3": ["fedrep_fig3", "fedrep-fg3", "ferdep-fig3"],
    "gamma2": ["gama2", "gamma_2"],
}
"""Names, and what is typed for them."""

OTHERS = {
    "step_size": ["batch_size", "size", "epochs", "head_step_size", "server_step_size"],
    "personal_steps": ["penalty", "local_steps"],
    "FedRep": ["FedPer", "FedVARP", "FedAdam", "FedProx", "FedRep2", "Fed2Rep"],
    "sphere": ["spehxx"],  # a swap is one edit
    "FedSCAVAR": ["FedAdam", "FedVARP"],
    "FedVARP": ["FedNova", "FedRep", "FedAMP"],
    "fedrep-fig3": ["fedrep-fig1", "fedrep-fig33", "flute-fig3"],
    "gamma2": ["gamma1"],
    "n_samples": ["n", "test_samples"],
    "B": ["S", "n", "", "_", "5"],
}
"""Names, and words that mean something else."""


@pytest.mark.parametrize("name", sorted({*MEANT, *OTHERS}))
def test_suggestions_are_for_mistyped_words_and_not_for_other_words(name):
    assert suggestion("", [name]) == suggestion("nothing", [name]) == ""
    for typed in MEANT.get(name, []):
        assert suggestion(typed, ["unrelated", name, "further"]) == f" (did you mean {name!r}?)", typed
    for typed in OTHERS.get(name, []):
        assert suggestion(typed, ["unrelated", name, "further"]) == "", typed


def test_the_nearest_name_is_suggested_and_the_first_of_equally_near_ones():
    assert suggestion("head", ["head_steps", "heads", "other"]) == " (did you mean 'heads'?)"
    assert suggestion("fedrep", ["fedrep-fig1", "fedrep-fig3"]) == " (did you mean 'fedrep-fig1'?)"
    for other in (5, None, "x" * 10**6):
        assert suggestion(other, ["n_clients"]) == ""


@pytest.mark.parametrize(
    ("name", "meant"), [("FedReb", "FedRep"), ("flute", "FLUTE"), ("fedAvg", "FedAvg"), ("zzzzzz", "")]
)
def test_an_unknown_attribute_of_the_package(name, meant):
    hint = f"did you mean {meant!r}?" if meant else "'linfed'"
    assert_one_line(lambda: getattr(lf, name), [repr(name), hint], AttributeError)


def test_a_class_with_an_init_of_its_own_takes_what_that_takes():
    class Open(Configuration):
        def __init__(self, **options):
            self.options = options

    class Own(lf.LocalOnly):
        def __init__(self, first, *rest):
            super().__init__(ridge=first)

    assert Open(k=2).options == {"k": 2}
    assert Own(0.5, 1, 2).ridge == 0.5
    fedrep = lf.FedRep(rank=2, step_size=0.1)
    assert copy.deepcopy(fedrep) == pickle.loads(pickle.dumps(fedrep)) == fedrep


def test_only_public_names_are_listed():
    assert [name for name in dir(lf) if not name.startswith("__")] == lf.__all__
    assert {"Design", "Initial", "Problem", "Truth"} <= set(dir(lf))
    for name in lf.__all__:
        assert getattr(lf, name) is not None


@dataclass(frozen=True, kw_only=True)
class OwnProblem:
    """Answers as another problem does, but for what it is told to leave out."""

    inner: object
    without: tuple = ()
    design: object = lf.Gaussian()

    def __getattr__(self, name):
        if name in self.without:
            raise AttributeError(name)
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ({"without": ("subspace_rank", "floats_per_trial")}, "attributes subspace_rank, floats_per_trial"),
        ({"without": ("noise_std",)}, "attributes noise_std"),
        ({"without": ("truth",)}, "must be a problem, e.g. lf.SharedRepresentation"),
        ({"design": "gaussian"}, "problem.design = 'gaussian' must be a distribution of x"),
    ],
)
def test_what_a_problem_of_ones_own_lacks_is_named(without, message):
    def run(problem):
        return lf.simulate(lf.FedRep(rank=2, step_size=0.1), problem, data=lf.FreshSamples(5), n_rounds=1)

    with pytest.raises(TypeError, match=re.escape(message)):
        run(OwnProblem(inner=PROBLEM, **without))
    assert run(OwnProblem(inner=PROBLEM)).trials == 1
