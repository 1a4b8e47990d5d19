"""Problems, data and learners that many tests share.

`LEARNERS` has every algorithm in each form that differs in kind, by name. A generic test runs all of them::

    @pytest.mark.parametrize("name", names())
    def test_something_of_every_algorithm(name):
        algorithm = LEARNERS[name].make(rank=2, step_size=0.1)

`names` chooses: ``names("classification")`` those that learn classes, ``names(keeps="rotation")`` those with a
symmetry. With `one_of_each`, all but the first of each class run only with ``--all``. To add an algorithm, add a row:
all generic tests then run it. The loop over clients that it is compared with is a function in `tests.references`, which
`tests.loops` applies to the arrays of a state.

`draw_world` and `draw_classes` draw samples as arrays, which loops need. `shared` and `truth` are problems, and `DATA`
has samples for both. Sizes are n = 6 clients, d = 9 and k = r = 2 unless others are given.
"""

import dataclasses
import inspect
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

import linfed as lf
from linfed.algorithms.initial import InitialFactors, as_initial
from tests import loops
from tests.helpers import basis, mostly_long, normal
from tests.loops import LOOPS, Loop

# --- problems and data ---------------------------------------------------------------------------------------


def shared(n=6, d=9, r=2, noise=0.3, **more):
    """Return a problem that is drawn for each trial."""
    return lf.SharedRepresentation(n_clients=n, dim=d, rank=r, noise_std=noise, **more)


def truth(n=6, d=9, r=2, noise=0.3, **more):
    """Return a problem with a given ground truth, the same in each trial."""
    return lf.GivenTruth(B=basis(d, r, seed=20), W=normal(n, r, seed=21), noise_std=noise, **more)


def fedrep(d=9, k=2, step_size=0.3, init=None, **more):
    """Return FedRep from a given B; more options are its own."""
    return lf.FedRep(rank=k, step_size=step_size, init=basis(d, k, seed=23) if init is None else init, **more)


@dataclass
class World:
    """Samples of one trial, a list with one array per client, the ground truth, and an initial representation B."""

    X: list
    y: list
    B_star: np.ndarray
    W_star: np.ndarray
    B: np.ndarray

    @property
    def n(self):
        """Number of clients."""
        return len(self.X)

    @property
    def d(self):
        """Dimension of x."""
        return len(self.B)

    @property
    def k(self):
        """Columns of B."""
        return self.B.shape[1]

    @property
    def Phi(self):
        """True predictors (n, d)."""
        return self.W_star @ self.B_star.T

    def zeros(self, rows, columns):
        """Return heads or predictors of 0."""
        return np.zeros((rows, columns))

    def data(self):
        """Return the samples as data for `lf.simulate`."""
        return lf.GivenSamples(self.X, self.y)

    def problem(self, **more):
        """Return the ground truth as a problem."""
        return lf.GivenTruth(B=self.B_star, W=self.W_star, **more)


def draw_world(counts, d, k, *, noise=0.0, seed=0):
    """Draw a `World`; client i has counts[i] samples of standard normal x."""
    rng = np.random.default_rng(seed)
    B_star, B = (scipy.linalg.orth(rng.standard_normal((d, k))) for _ in range(2))
    W_star = rng.standard_normal((len(counts), k))
    X = [rng.standard_normal((m, d)) for m in counts]
    y = [X_i @ B_star @ w + noise * rng.standard_normal(len(X_i)) for X_i, w in zip(X, W_star, strict=True)]
    return World(X, y, B_star, W_star, B)


@dataclass
class ClassWorld(World):
    """A `World` of classes: labels are whole numbers, and heads have a row and a bias for each class."""

    classes: int

    def zeros(self, rows, columns):
        """Return heads or predictors of 0."""
        return np.zeros((rows, self.classes, columns + 1))

    def data(self):
        """Return the samples as data for `lf.simulate`."""
        return lf.GivenClasses(self.X, self.y, n_classes=self.classes)


def draw_classes(counts, d, k, *, classes=4, seed=0):
    """Draw a `ClassWorld` without a ground truth: client i has the classes i and i + 1, the last class is nobody's."""
    rng = np.random.default_rng(seed)
    X = [rng.standard_normal((m, d)) for m in counts]
    y = [np.resize(rng.permutation([i % (classes - 1), (i + 1) % (classes - 1)]), m) for i, m in enumerate(counts)]
    return ClassWorld(X, y, None, None, scipy.linalg.orth(rng.standard_normal((d, k))), classes)


def draw_participants(n, p, n_rounds, seed=0):
    """Draw p of n clients for each round, (rounds, p), in no order."""
    rng = np.random.default_rng(seed)
    return np.array([rng.permutation(n)[:p] for _ in range(n_rounds)])


SHAPES = {
    "k < m < d, some take part": ([7] * 6, 8, 3, 4),
    "m < k": ([2] * 5, 6, 3, 3),
    "k = 1, one takes part": ([7] * 4, 6, 1, 1),
    "n = 1": ([8], 6, 2, 1),
    "n = k = d = m": ([3] * 3, 3, 3, 3),
    "unequal": ([1, 2, 3, 12, 7, 5], 6, 3, 4),
}
"""Sizes that differ in kind: samples of each client, d, k, participants of a round."""

DATA = {
    "fresh": lf.FreshSamples(12),
    "fixed": lf.FixedSamples(12),
    "fixed, many": lf.FixedSamples(60),
    "given": draw_world([20] * 6, 9, 2, noise=0.3, seed=40).data(),
    "given, unequal": draw_world([1, 2, 3, 7, 13, 40], 9, 2, noise=0.3, seed=40).data(),
}
"""Samples of 6 clients with d = 9; those that are not given are drawn from the run's problem."""


def one_sample(algorithm):
    """Run an algorithm with one sample for each of four clients."""
    return lf.simulate(
        algorithm, lf.SharedRepresentation(n_clients=4, dim=3, rank=1), data=lf.FixedSamples(1), n_rounds=1
    )


def of_classes(algorithm):
    """Run an algorithm on two classes."""
    problem = lf.Classes(n_clients=4, dim=3, n_classes=2, classes_per_client=2)
    return lf.simulate(algorithm, problem, data=lf.FixedSamples(5), n_rounds=1)


MEMORY_ORDERS = {
    "Fortran order": np.asfortranarray,
    "a view with steps": lambda array: np.repeat(array, 2, axis=-1)[..., ::2],
    "a reversed view": lambda array: array[..., ::-1].copy()[..., ::-1],
    "a transposed view": lambda array: array.T.copy().T,
    "read-only": lambda array: np.broadcast_to(array[None], (1, *array.shape))[0],
}
"""Functions that return an equal array in another order of memory."""

ESTIMATORS = {
    "moments": lf.MethodOfMoments,
    "U-statistic": lf.UStatistic,
    "two replicas": lf.TwoReplica,
    "two replicas, one-sided": lambda rank: lf.TwoReplica(rank=rank, symmetric=False),
    "local averages": lf.LocalGram,
}
"""Spectral estimators, by the rank."""


# --- learners ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EqualHeads(InitialFactors):
    """B of another initialisation, and the same head for every client: for algorithms that stop at heads of 0."""

    B: Any

    def __post_init__(self):
        object.__setattr__(self, "B", as_initial(self.B))

    @property
    def needs_truth(self):
        return self.B.needs_truth

    @property
    def needs_batch(self):
        return self.B.needs_batch

    @property
    def n_trials(self):
        return self.B.n_trials

    def resolve(self, start, rank):
        return self.B.resolve(start, rank), np.full((start.trials, start.n_clients, rank), 0.5)


@dataclass(frozen=True)
class Learner:
    """An algorithm with options, how it is made, and what is true of it.

    Parameters
    ----------
    kind : type
        Class of the algorithm.
    options : dict
        Its options, without `rank`, `init` and `step_size`, which `make` gives if the class has them; an option of
        these names is kept as it is (``rank=None``: one layer). A function is called with the rank.
    sent : float or pair of float
        Floats that a participant receives, and sends, in a round of regression, at d = 10 and rank 3.
    scale : float
        Its step size is `scale` times the one that `make` is given: then one number suits all learners.
    lacks : collection of str
        Symmetries that it does not have, of `SYMMETRIES`.
    least : int
        Smallest number of samples of a client that it can use.
    tolerance : float
        Relative accuracy of its numbers; larger for iterative solvers.
    """

    kind: type[lf.Algorithm]
    options: dict[str, Any]
    sent: float | tuple[float, float]
    scale: float = 1.0
    lacks: Collection[str] = ()
    least: int = 1
    tolerance: float = 1e-10

    @property
    def loop(self) -> Loop | None:
        """The algorithm as a loop over clients."""
        if self.kind is lf.Personalized:
            base = LEARNERS[self.options["base"]].loop
            return None if base is None else loops.personalized(base)
        return LOOPS.get(self.kind)

    def options_at(self, rank: int, step_size: float = 0.1) -> dict[str, Any]:
        """Return the options of the loop, at a rank and a step size."""
        if self.kind is lf.Personalized:
            base = LEARNERS[self.options["base"]].options_at(rank, step_size)
            return {"base_options": base, "ridge": self.options["ridge"]}
        fields = {one.name for one in dataclasses.fields(self.kind)}
        found = {"step_size": self.scale * step_size} if "step_size" in fields else {}
        found |= {name: value(rank) if inspect.isfunction(value) else value for name, value in self.options.items()}
        return found

    def make(self, rank: int = 2, init: Any = "random", step_size: float = 0.1) -> lf.Algorithm:
        """Return the algorithm; `init` is a B, or an initialisation of B."""
        if self.kind is lf.Personalized:
            base = LEARNERS[self.options["base"]].make(rank, init, step_size)
            return lf.Personalized(base=base, ridge=self.options["ridge"])
        fields = {one.name for one in dataclasses.fields(self.kind)}
        begin = EqualHeads(init) if self.kind in (lf.FLUTE, lf.TPGD) else init
        given = {} if "rank" in self.options else {"rank": rank, "init": begin}
        given = {name: value for name, value in given.items() if name in fields}
        return self.kind(**given, **self.options_at(rank, step_size))

    def learns(self, task: str) -> bool:
        """Return whether it supports "regression" or "classification"."""
        try:
            self.make().check_loss(3 if task == "classification" else 0)
        except ValueError:
            return False
        return True


SYMMETRIES = {
    "clients": "another order of the clients gives the same predictors in that order",
    "rotation": "rotated x give the rotated predictors",
    "samples": "the order of a client's samples does not matter",
    "absence": "rows of clients that do not take part stay as they are",
}


def first_head(rank):
    """Return a head for FedBABU, (rank,)."""
    return [0.8, -0.5, 0.3][:rank] if rank <= 3 else [0.8] * rank


EXACT, RIDGE = lf.ExactHeads(), lf.ExactHeads(ridge=0.2)
LOCAL = {"local_steps": 3, "server_step_size": 0.7}
EPOCHS = {"local_epochs": 2, "batch_size": 3}
META = {"adaptation_step_size": 0.1}
ONE_LAYER = {"rank": None}
ENVELOPE = {"local_steps": 3, "penalty": 2.0}
PENALTIES = {"feature_penalty": 0.2, "head_penalty": 0.3, "collapse_penalty": 0.5}
JOINT = lf.ClosedForm(order="joint")
SEVERAL_STEPS = {
    "solver": lf.GradientSteps(head_steps=2, shortcut_steps=3, order="gauss-seidel"),
    "representation_steps": 2,
    "mixing": 0.3,
    "ridge": 0.8,
}

LEARNERS: dict[str, Learner] = {
    # a shared representation, and heads of each client's own
    "FedRep": Learner(lf.FedRep, {}, sent=30),
    "FedRep, ridge": Learner(lf.FedRep, {"heads": RIDGE}, sent=30),
    "FedRep, gradient heads": Learner(lf.FedRep, {"heads": lf.GradientHeads(steps=3, step_size=0.2)}, sent=30),
    "FedRep, gradient heads, step size of B": Learner(lf.FedRep, {"heads": lf.GradientHeads()}, sent=30),
    "FedRep, local steps": Learner(lf.FedRep, {"representation_steps": 3}, sent=30),
    "FedRep, ridge, local steps": Learner(lf.FedRep, {"heads": RIDGE, "representation_steps": 2}, sent=30),
    "FedRep, gradient heads, local steps": Learner(
        lf.FedRep, {"heads": lf.GradientHeads(steps=3), "representation_steps": 4}, sent=30
    ),
    "FedRep, no QR": Learner(lf.FedRep, {"orthonormalize": False}, sent=30),
    "FedRep, gradient heads, no QR": Learner(
        lf.FedRep, {"heads": lf.GradientHeads(), "orthonormalize": False}, sent=30
    ),
    "FedRep, sum": Learner(lf.FedRep, {"aggregate": "sum"}, sent=30),
    "FedRep, sum, local steps": Learner(lf.FedRep, {"aggregate": "sum", "representation_steps": 2}, sent=30),
    "FedRep, median": Learner(
        lf.FedRep, {"aggregate": "median", "representation_steps": 2}, sent=30, lacks={"rotation"}
    ),
    "FedRep, geometric median": Learner(lf.FedRep, {"aggregate": "geometric median"}, sent=30),
    "FedRep, rotated heads": Learner(lf.FedRep, {"rotate_heads": True}, sent=30, lacks={"absence"}),
    "FedRep, rotated gradient heads": Learner(
        lf.FedRep, {"rotate_heads": True, "heads": lf.GradientHeads(steps=3)}, sent=30, lacks={"absence"}
    ),
    "FedRep, split": Learner(lf.FedRep, {"disjoint_samples": True}, sent=30, lacks={"samples"}, least=2),
    "FedRep, split, gradient heads": Learner(
        lf.FedRep,
        {"disjoint_samples": True, "heads": lf.GradientHeads(), "representation_steps": 2},
        sent=30,
        lacks={"samples"},
        least=2,
    ),
    "PrivateFedRep": Learner(lf.PrivateFedRep, {"message_noise_std": 0.01}, sent=30, lacks={"rotation"}),
    "PrivateFedRep, clipped": Learner(lf.PrivateFedRep, {"clip": 0.5}, sent=30),
    "PrivateFedRep, clipped, noise": Learner(
        lf.PrivateFedRep, {"clip": 0.5, "message_noise_std": 0.1}, sent=30, lacks={"rotation"}
    ),
    "CompressedFedRep": Learner(
        lf.CompressedFedRep,
        {"kept_share": 0.2},
        sent=(30, 6 * (1 + math.log2(30) / 32)),
        lacks={"clients", "rotation"},
    ),
    "CompressedFedRep, shared mask": Learner(
        lf.CompressedFedRep,
        {"kept_share": 0.2, "shared_mask": True, "disjoint_samples": True},
        sent=(30, 6),
        lacks={"rotation", "samples"},
        least=2,
    ),
    "CompressedFedRep, sum": Learner(
        lf.CompressedFedRep,
        {"levels": 3, "aggregate": "sum", "representation_steps": 2, "orthonormalize": False},
        sent=(30, 1 + 30 * np.log2(7) / 32),
        lacks={"clients", "rotation"},
    ),
    "CompressedFedRep, quantised": Learner(
        lf.CompressedFedRep, {"levels": 200}, sent=(30, 1 + 30 * np.log2(401) / 32), lacks={"clients", "rotation"}
    ),
    "FedRepShortcut": Learner(lf.FedRepShortcut, {}, sent=30, scale=0.25),
    "FedRepShortcut, several steps": Learner(lf.FedRepShortcut, SEVERAL_STEPS, sent=30, scale=0.25),
    "FedRepShortcut, closed form": Learner(lf.FedRepShortcut, {"solver": lf.ClosedForm()}, sent=30, scale=0.25),
    "FedRepShortcut, closed form, ridge": Learner(
        lf.FedRepShortcut, {"solver": lf.ClosedForm(order="gauss-seidel"), "ridge": 0.4}, sent=30, scale=0.25
    ),
    "FedRepShortcut, joint": Learner(
        lf.FedRepShortcut, {"solver": JOINT, "mixing": 0.4, "ridge": 0.3}, sent=30, scale=0.25
    ),
    "FedRepShortcut, refit": Learner(
        lf.FedRepShortcut, {"solver": JOINT, "ridge": 0.5, "refit": True}, sent=30, scale=0.25
    ),
    "FLUTE": Learner(lf.FLUTE, {}, sent=33, scale=0.2),
    "FLUTE, factor 2": Learner(
        lf.FLUTE, {"gradient_factor": 2, "gamma1": 0.1, "gamma2": 0.2, "server_step_size": 0.03}, sent=33, scale=0.2
    ),
    "FLUTE, by samples": Learner(lf.FLUTE, {"weights": "samples"}, sent=33, scale=0.2),
    "FLUTE, no server": Learner(lf.FLUTE, {"server_step_size": 0.0}, sent=33, scale=0.2),
    "GeneralFLUTE": Learner(lf.GeneralFLUTE, {}, sent=30),
    "GeneralFLUTE, penalties": Learner(lf.GeneralFLUTE, {**PENALTIES, "local_steps": 3}, sent=30),
    "GeneralFLUTE, head steps": Learner(
        lf.GeneralFLUTE, {"head_steps": 10, "server_step_size": 0.05, "feature_penalty": 0.1}, sent=30
    ),
    "FedPer": Learner(lf.FedPer, {}, sent=30),
    "FedPer, local steps": Learner(lf.FedPer, LOCAL, sent=30),
    "FedBABU": Learner(lf.FedBABU, {"head": first_head, "local_steps": 3}, sent=30),
    "LGFedAvg": Learner(lf.LGFedAvg, {}, sent=3),
    "LGFedAvg, local steps": Learner(lf.LGFedAvg, LOCAL, sent=3),
    "FedRoD": Learner(lf.FedRoD, {"personal": lf.GradientHeads()}, sent=33),
    "FedRoD, local steps": Learner(lf.FedRoD, {"personal": lf.GradientHeads(steps=3, step_size=0.2), **LOCAL}, sent=33),
    "FedRoD, exact, by samples": Learner(
        lf.FedRoD, {"personal": EXACT, "weights": "samples", "local_steps": 2}, sent=33
    ),
    "FedRoD, ridge": Learner(lf.FedRoD, {"personal": RIDGE}, sent=33),
    "FedRoD, fine-tuned": Learner(
        lf.FedRoD, {"personal": lf.GradientHeads(), "fine_tune": lf.GradientHeads(steps=5)}, sent=33
    ),
    "FedRoD, exactly fine-tuned": Learner(lf.FedRoD, {"personal": RIDGE, "fine_tune": EXACT}, sent=33),
    # one model for all clients
    "FedAvg": Learner(lf.FedAvg, ONE_LAYER, sent=10),
    "FedAvg, local steps": Learner(lf.FedAvg, ONE_LAYER | LOCAL, sent=10),
    "FedAvg, by samples": Learner(lf.FedAvg, ONE_LAYER | {"local_steps": 2, "weights": "samples"}, sent=10),
    "FedAvg, median": Learner(lf.FedAvg, ONE_LAYER | LOCAL | {"aggregate": "median"}, sent=10, lacks={"rotation"}),
    "FedAvg, geometric median": Learner(lf.FedAvg, ONE_LAYER | {"aggregate": "geometric median"}, sent=10),
    "FedAvg, minibatches": Learner(lf.FedAvg, ONE_LAYER | EPOCHS, sent=10, lacks={"clients", "samples"}),
    "FedAvg, two layers": Learner(lf.FedAvg, {}, sent=33),
    "FedAvg, two layers, local steps": Learner(lf.FedAvg, LOCAL, sent=33),
    "FedAvg, two layers, by samples": Learner(lf.FedAvg, {"local_steps": 2, "weights": "samples"}, sent=33),
    "FedAvg, fine-tuned": Learner(lf.FedAvg, {"fine_tune": lf.GradientHeads(steps=10)}, sent=33),
    "FedAvg, fine-tuned at its own step size": Learner(
        lf.FedAvg, {"fine_tune": lf.GradientHeads(steps=3, step_size=0.2)}, sent=33
    ),
    "FedAvg, fine-tuned, ridge": Learner(lf.FedAvg, {"fine_tune": RIDGE}, sent=33),
    "FedAvg, exactly fine-tuned": Learner(lf.FedAvg, {"fine_tune": EXACT, "local_steps": 2}, sent=33),
    "FedProx": Learner(lf.FedProx, ONE_LAYER | LOCAL | {"mu": 0.4}, sent=10),
    "FedProx, two layers": Learner(lf.FedProx, LOCAL | {"mu": 0.4}, sent=33),
    "SCAFFOLD": Learner(lf.SCAFFOLD, ONE_LAYER | LOCAL, sent=20),
    "SCAFFOLD, gradients": Learner(lf.SCAFFOLD, ONE_LAYER | {"controls": "gradient", "weights": "samples"}, sent=20),
    "SCAFFOLD, two layers": Learner(lf.SCAFFOLD, LOCAL, sent=66),
    "SCAFFOLD, minibatches": Learner(lf.SCAFFOLD, EPOCHS, sent=66, lacks={"clients", "samples"}),
    "FedVARP": Learner(lf.FedVARP, ONE_LAYER | LOCAL, sent=10),
    "FedVARP, by samples": Learner(lf.FedVARP, ONE_LAYER | {"weights": "samples"}, sent=10),
    "FedVARP, two layers": Learner(lf.FedVARP, LOCAL, sent=33),
    "ClusterFedVARP": Learner(
        lf.ClusterFedVARP, ONE_LAYER | LOCAL | {"clusters": 3, "weights": "samples"}, sent=10, lacks={"clients"}
    ),
    "FedRolex": Learner(lf.FedRolex, ONE_LAYER | LOCAL | {"model_share": 0.35}, sent=3, lacks={"rotation"}),
    "FedRolex, zero-filled": Learner(
        lf.FedRolex, ONE_LAYER | {"model_share": 0.35, "aggregation": "zero-filled"}, sent=3, lacks={"rotation"}
    ),
    "FedRolex, two layers": Learner(lf.FedRolex, LOCAL | {"model_share": 0.7}, sent=22),
    "FedSCAVAR": Learner(
        lf.FedSCAVAR,
        ONE_LAYER | LOCAL | {"clusters": 2, "model_share": 0.35, "mu": 0.3},
        sent=6,
        lacks={"clients", "rotation"},
    ),
    "FedSCAVAR, two layers": Learner(lf.FedSCAVAR, LOCAL | {"clusters": 1, "model_share": 0.7, "mu": 0.3}, sent=44),
    # a model of each client
    "Ditto": Learner(lf.Ditto, {}, sent=10),
    "Ditto, several steps": Learner(
        lf.Ditto, {"local_steps": 3, "penalty": 0.5, "personal_steps": 2, "personal_step_size": 0.15}, sent=10
    ),
    "Ditto, by samples": Learner(lf.Ditto, {"local_steps": 2, "weights": "samples"}, sent=10),
    "APFL": Learner(lf.APFL, {"local_steps": 3}, sent=10),
    "APFL, adaptive": Learner(lf.APFL, {"local_steps": 2, "mix": 0.3, "mix_step_size": 0.4}, sent=10),
    "APFL, framework": Learner(
        lf.APFL, {"local_steps": 2, "mix": 0.7, "mix_step_size": 0.2, "variant": "framework"}, sent=10
    ),
    "PFedMe": Learner(lf.PFedMe, ENVELOPE | {"inner_steps": 5, "inner_step_size": 0.1}, sent=10, scale=0.5),
    "PFedMe, exact": Learner(lf.PFedMe, ENVELOPE | {"inner_steps": None, "server_mix": 0.6}, sent=10, scale=0.5),
    "PFedMe, beta = 1.5": Learner(
        lf.PFedMe, ENVELOPE | {"inner_steps": 2, "inner_step_size": 0.05, "server_mix": 1.5}, sent=10, scale=0.5
    ),
    "L2GD": Learner(lf.L2GD, {"penalty": 2.0, "mean_probability": 0.25}, sent=1.875, scale=0.5),
    "PerFedAvg": Learner(lf.PerFedAvg, META, sent=10),
    "PerFedAvg, Hessian": Learner(lf.PerFedAvg, META | {"hessian": True, "local_steps": 3}, sent=10),
    "PerFedAvg, split": Learner(
        lf.PerFedAvg, META | {"disjoint_samples": True, "local_steps": 2}, sent=10, lacks={"samples"}, least=2
    ),
    "PerFedAvg, Hessian, split": Learner(
        lf.PerFedAvg, META | {"disjoint_samples": True, "hessian": True}, sent=10, lacks={"samples"}, least=3
    ),
    "FedMTL": Learner(lf.FedMTL, {"penalty": 0.1}, sent=(55, 10)),
    "FedMTL, tasks": Learner(lf.FedMTL, {"penalty": 0.1, "relation": "tasks", "epsilon": 0.1}, sent=10),
    "ARMUL": Learner(lf.ARMUL, ONE_LAYER | {"penalty": 0.4}, sent=10),
    "ARMUL, proximal steps": Learner(
        lf.ARMUL,
        ONE_LAYER | {"penalty": 0.4, "personal_steps": 3, "personal_step_size": 0.15, "weights": "samples"},
        sent=10,
    ),
    "ARMUL, low rank": Learner(lf.ARMUL, {"penalty": 0.4}, sent=30),
    "ARMUL, low rank, proximal steps": Learner(
        lf.ARMUL, {"penalty": 0.4, "personal_steps": 3, "weights": "samples"}, sent=30
    ),
    # alternating minimisation and meta-learning
    "AltGDmin": Learner(lf.AltGDmin, {"step_size": None}, sent=30),
    "AltGDmin, given step size": Learner(lf.AltGDmin, {}, sent=30, scale=0.1),
    "AltGDmin, split": Learner(
        lf.AltGDmin, {"step_size": None, "disjoint_samples": True}, sent=30, lacks={"samples"}, least=2
    ),
    "AltMin": Learner(lf.AltMin, {}, sent=(30, 68), lacks={"absence"}),
    "AltMin, split": Learner(
        lf.AltMin, {"disjoint_samples": True}, sent=(30, 68), lacks={"absence", "samples"}, least=2
    ),
    "AltMin, by samples, ridge": Learner(
        lf.AltMin, {"weights": "samples", "ridge": 0.2}, sent=(30, 68), lacks={"absence"}
    ),
    "TPGD": Learner(lf.TPGD, {"first_phase": 3}, sent=33, scale=0.2),
    "ANIL": Learner(lf.ANIL, META, sent=33),
    "ANIL, Hessian": Learner(lf.ANIL, META | {"hessian": True}, sent=33),
    "ANIL, split": Learner(lf.ANIL, META | {"disjoint_samples": True}, sent=33, lacks={"samples"}, least=2),
    "ANIL, Hessian, split": Learner(
        lf.ANIL, META | {"disjoint_samples": True, "hessian": True}, sent=33, lacks={"samples"}, least=2
    ),
    "MAML": Learner(lf.MAML, META, sent=33),
    "MAML, Hessian": Learner(lf.MAML, META | {"hessian": True}, sent=33),
    "MAML, split": Learner(lf.MAML, META | {"disjoint_samples": True}, sent=33, lacks={"samples"}, least=2),
    "MAML, Hessian, split": Learner(
        lf.MAML, META | {"disjoint_samples": True, "hessian": True}, sent=33, lacks={"samples"}, least=2
    ),
    # one round
    "MethodOfMoments": Learner(lf.MethodOfMoments, {}, sent=(30, 55)),
    "UStatistic": Learner(lf.UStatistic, {}, sent=(30, 55), least=2),
    "TwoReplica": Learner(lf.TwoReplica, {}, sent=(30, 20), lacks={"samples"}, least=2),
    "LocalGram": Learner(lf.LocalGram, {}, sent=(30, 10)),
    "LocalSpectral": Learner(lf.LocalSpectral, {}, sent=(30, 10)),
    "LocalSpectral, clipped": Learner(lf.LocalSpectral, {"clip_quantile": 0.6}, sent=(30, 10)),
    "NuclearNorm": Learner(lf.NuclearNorm, {"rank": None, "penalty": 0.05}, sent=(10, 65), tolerance=1e-6),
    "BurerMonteiro": Learner(lf.BurerMonteiro, {"tolerance": 1e-6}, sent=(30, 68), tolerance=1e-6),
    # baselines
    "LocalOnly": Learner(lf.LocalOnly, {"step_size": None}, sent=0),
    "LocalOnly, ridge": Learner(lf.LocalOnly, {"step_size": None, "ridge": 0.3}, sent=0),
    "LocalOnly, gradient steps": Learner(lf.LocalOnly, {"ridge": 0.3, "local_steps": 3}, sent=0),
    "PooledLeastSquares": Learner(lf.PooledLeastSquares, {}, sent=(10, 65)),
    "PooledLeastSquares, by samples": Learner(lf.PooledLeastSquares, {"weights": "samples"}, sent=(10, 65)),
    "PooledLeastSquares, ridge": Learner(lf.PooledLeastSquares, {"ridge": 0.3}, sent=(10, 65)),
    "Oracle": Learner(lf.Oracle, {}, sent=0),
    "Oracle, ridge": Learner(lf.Oracle, {"ridge": 0.3}, sent=0),
    "Personalized": Learner(lf.Personalized, {"base": "FedRep", "ridge": 0.3}, sent=30),
    "Personalized FedAvg": Learner(lf.Personalized, {"base": "FedAvg, fine-tuned", "ridge": 0.1}, sent=33),
}
"""All learners by name, which begins with the name of the class."""


def names(task: str = "regression", *, keeps: str | None = None, loop: bool = False) -> list[str]:
    """Return the names of the learners for a task, those with a symmetry, and those that have a loop for the task."""
    assert keeps is None or keeps in SYMMETRIES
    found = {name: one for name, one in LEARNERS.items() if one.learns(task) and keeps not in one.lacks}
    if loop:
        found = {name: one for name, one in found.items() if one.loop and (one.loop.classes or task == "regression")}
    return list(found)


def one_of_each(found: list[str]) -> list:
    """Return names of learners for `parametrize`; after the first of each class they run only with ``--all``."""
    first = {LEARNERS[name].kind: name for name in reversed(found)}
    return mostly_long(found, *first.values())
