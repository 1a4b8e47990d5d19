"""Optional arguments of a batch's questions: the same in every class that answers them."""

import inspect
import itertools

from linfed.data.batch import Batch, Features, Fit
from linfed.data.chain import ChainSource
from linfed.data.class_sources import FixedClassSource, FreshClassSource
from linfed.data.classes import ClassBatch, ClassFeatures
from linfed.data.compressed import CompressedBatch, CompressedFixedSource, CompressedFreshSource, GramBatch
from linfed.data.explicit import ExplicitBatch, ExplicitFeatures, ExplicitFit
from linfed.data.projected.classes import ProjectedClassFeatures, ProjectedClassSource
from linfed.data.projected.features import ProjectedFeatures, ProjectedFit
from linfed.data.projected.source import ProjectedBatch, ProjectedSource
from linfed.data.rows import DrawnRows, HeldRows, Rows
from linfed.data.sources import FixedSource, FreshSource, Source

DEFAULTS = {"ridge": 0.0, "weights": None, "parts": 2, "rest": False, "order": None, "rng": None, "once": False}


DEFAULTS |= {"own": False, "number": 0, "feature_penalty": 0.0, "out": None}


KINDS = [
    (Batch, (ExplicitBatch, CompressedBatch, ClassBatch, ProjectedBatch)),
    (Features, (ExplicitFeatures, ClassFeatures, ProjectedFeatures, ProjectedClassFeatures)),
    (Fit, (ExplicitFit, ProjectedFit)),
    (Rows, (HeldRows, DrawnRows)),
    (Source, (FreshSource, FixedSource, CompressedFixedSource, CompressedFreshSource, ProjectedSource, ChainSource)),
    (Source, (FixedClassSource, FreshClassSource, ProjectedClassSource)),
]


def optional(method):
    """Return the arguments of a function that may be left out, with their values then."""
    given = inspect.signature(method).parameters.values()
    return {one.name: one.default for one in given if one.default is not one.empty}


def test_what_is_left_out_of_a_question_is_the_same_in_every_batch():
    for protocol, kinds in KINDS:
        names = [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]
        assert len(names) > 1
        for name, kind in itertools.product(names, (protocol, *kinds)):
            found = optional(getattr(kind, name))
            assert found == {key: DEFAULTS[key] for key in found}, (kind, name)
            assert found.keys() >= optional(getattr(protocol, name)).keys(), (kind, name)
    for method in (ExplicitBatch.messages, ExplicitBatch.map_blocks, ClassBatch.accuracies, GramBatch.messages):
        assert optional(method) == {key: DEFAULTS[key] for key in optional(method)} != {}
    for kind in (ClassFeatures, ProjectedClassFeatures):
        assert optional(kind.gradients_of_clients) == {"feature_penalty": 0.0, "out": None}
