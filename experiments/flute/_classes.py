"""Classification experiments in the setting of the FLUTE paper's Table 1, where each client holds some of the classes.

There are two data sets, handwritten digits and Gaussian classes (`experiments.flute.flute_classification` describes
both). Nine methods of the paper, Local only and three further baselines run on the same splits. All start from the same
B and from one random head, which all clients share (`FromOneHead`). The paper says only that the server initialises
both. Local only has neither B nor head: its softmax regression starts at 0.

The paper has 5 local epochs (in its CIFAR-100 setting); here there are K = 5 full-gradient local steps. FLUTE, FedPer,
LG-FedAvg, FedAvg and FedRoD take 5 steps, FedRep 5 on the head and 5 on B, FedRep* 10 and 5. FLUTE* takes 10 more on
the head, and fine-tuning 10 on the head. There are 100 rounds with full participation. Step sizes and FLUTE's weights
are those with the smallest held-out error on separate splits. FLUTE's four hyper-parameters begin at 8 settings; the
search continues with the neighbours of the best setting until none is better.

The further baselines:

- "FLUTE, no NC" and "FLUTE*, no NC" are FLUTE and FLUTE* without the penalty on neural collapse, at clients and server.
  Everything else is equal, and they are tuned too.
- "own classes" restricts FedAvg's single model to the classes that the client holds, which costs nothing.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import linfed as lf
from linfed.algorithms.representation.general_flute import random_heads
from linfed.data.class_sources import held_out
from linfed.numerics.layers import composed
from linfed.simulation.class_metrics import mean_of_those

DIGITS, GAUSSIAN = DATA = ("digits", "Gaussian classes")
"""The data sets."""

LOCAL, STAR = 5, 10
"""Local steps, and the head steps of FedRep* and FLUTE*."""

FEDREP, FEDREP_STAR, FLUTE, FLUTE_STAR = ("FedRep", "FedRep*", "FLUTE", "FLUTE*")
NO_NC, NO_NC_STAR = ("FLUTE, no NC", "FLUTE*, no NC")
FEDAVG, TUNED_AVG, LG, PER, ROD, LOCAL_ONLY = ("FedAvg", "FedAvg + FT", "LGFedAvg", "FedPer", "FedRoD", "LocalOnly")
BASELINES = (FEDAVG, TUNED_AVG, LG, PER, FEDREP, FEDREP_STAR, ROD)
"""The paper's baselines, except FedCP."""
METHODS = (*BASELINES, FLUTE, FLUTE_STAR, NO_NC, NO_NC_STAR, LOCAL_ONLY)
COLLAPSING = (FEDREP, FEDREP_STAR, FLUTE, FLUTE_STAR, NO_NC, NO_NC_STAR)
"""Methods whose measures of neural collapse (NC2) are recorded and drawn."""

FLUTES = {FLUTE: 0, FLUTE_STAR: STAR, NO_NC: 0, NO_NC_STAR: STAR}
STEPS = (0.05, 0.1, 0.2, 0.4)
"""Grid of step sizes, which is widened if the best one is at its edge; FLUTE's search begins at every other one."""
ALL_STEPS = tuple(0.05 * 2.0**power for power in range(-4, 7))
WEIGHTS = ((1e-3, 1e-3), (0.01, 0.01), (0.1, 0.1), (1.0, 0.1), (10.0, 0.1))
DECAYS = (0.0, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
"""All values of eta_l, of the pairs (lambda_3, eta_r), and of lambda_1 = lambda_2, in FLUTE's search."""
FIRST_DECAYS = (0.0, 1e-3, 0.01, 0.1)
"""Decays with which FLUTE's search begins, beside the middle one of the weights."""
NAMES = ("step_size", "collapse_penalty", "server_step_size", "feature_penalty", "head_penalty")


class FromOneHead:
    """Mixin for algorithms whose heads start at 0: start them from FLUTE's random initial head."""

    def initial_state(self: Any, start: Any) -> Any:
        """Return the algorithm's initial state with the random head, which all clients share."""
        state = super().initial_state(start)  # type: ignore[misc]
        return state.update(W=random_heads(start, state.W.shape[1], self.rank))


class FedRep(FromOneHead, lf.FedRep):
    """FedRep, started from the common random head."""


class FedPer(FromOneHead, lf.FedPer):
    """FedPer, started from the common random head."""


class LGFedAvg(FromOneHead, lf.LGFedAvg):
    """LG-FedAvg, started from the common random head."""


class FedAvg(FromOneHead, lf.FedAvg):
    """FedAvg, started from the common random head."""


class FedRoD(FromOneHead, lf.FedRoD):
    """FedRoD whose generic head starts from the common random head; the personal heads added to it start at 0."""


@dataclass(frozen=True, kw_only=True)
class Contest(ABC):
    """One method in one setting; subclasses define the samples."""

    method: str = lf.choice((*FLUTES, FEDREP, FEDREP_STAR, ROD, FEDAVG, TUNED_AVG, PER, LG, LOCAL_ONLY), FLUTE)
    n_clients: int = 50
    classes_per_client: int = 2
    rank: int = 4
    n_rounds: int = 100
    trials: int = 20
    tuning_trials: int = 5
    steps: tuple[float, ...] = STEPS
    moves: int = 30
    seed: int = 0

    @property
    def partition(self) -> str:
        """The clients and their classes, as text."""
        return f"n = {self.n_clients}, {self.classes_per_client} classes"

    @abstractmethod
    def source(self, trials: int, seed: Any) -> tuple[lf.Classes | None, lf.GivenClasses | lf.FixedSamples]:
        """Return the problem and the data of some trials."""

    @property
    def algorithm(self) -> lf.Algorithm:
        """The method with a placeholder step size, which tuning replaces."""
        k, heads = self.rank, lf.GradientHeads
        if self.method == LOCAL_ONLY:
            return lf.LocalOnly(step_size=1.0, local_steps=LOCAL)
        if self.method in FLUTES:
            return lf.GeneralFLUTE(rank=k, step_size=1.0, local_steps=LOCAL, head_steps=FLUTES[self.method])
        if self.method in (FEDREP, FEDREP_STAR):
            return FedRep(
                rank=k,
                step_size=1.0,
                heads=heads(steps=LOCAL if self.method == FEDREP else STAR),
                init="random",
                representation_steps=LOCAL,
                orthonormalize=False,
            )
        if self.method == ROD:
            return FedRoD(rank=k, step_size=1.0, local_steps=LOCAL, personal=heads(steps=LOCAL))
        if self.method in (FEDAVG, TUNED_AVG):
            fine_tune = heads(steps=STAR) if self.method == TUNED_AVG else None
            return FedAvg(rank=k, step_size=1.0, local_steps=LOCAL, fine_tune=fine_tune)
        return (FedPer if self.method == PER else LGFedAvg)(rank=k, step_size=1.0, local_steps=LOCAL)

    @property
    def axes(self) -> tuple[tuple[Any, ...], ...]:
        """The values of FLUTE's step size, of its weights at client and server, and of its decays."""
        return ALL_STEPS, ((0.0, 0.0),) if self.method in (NO_NC, NO_NC_STAR) else WEIGHTS, DECAYS

    @property
    def begin(self) -> list[dict[str, float]]:
        """The settings with which FLUTE's search begins."""
        _, weights, _ = self.axes
        middle = weights[len(weights) // 2]
        return [setting(step, middle, decay) for step in self.steps[::2] for decay in FIRST_DECAYS]

    def neighbours(self, of: dict[str, float]) -> list[dict[str, float]]:
        """Return the settings that differ from one of FLUTE's by one value, the next smaller or larger one."""
        weights = of["collapse_penalty"], of["server_step_size"]
        here: tuple[Any, ...] = of["step_size"], weights, of["feature_penalty"]
        found = []
        for number, (value, axis) in enumerate(zip(here, self.axes, strict=True)):
            place = axis.index(value)
            for other in (*axis[max(0, place - 1) : place], *axis[place + 1 : place + 2]):
                changed = [*here]
                changed[number] = other
                found.append(setting(*changed))
        return found

    def run(self) -> dict[str, Any]:
        """Tune the method on separate trials, run it, and return the accuracies and NC2 of each trial."""
        problem, data = self.source(self.tuning_trials, (self.seed, 1))
        tune = partial(
            lf.tune,
            self.algorithm,
            problem,
            data=data,
            metric=held_out_error,
            score="final",
            n_rounds=self.n_rounds,
            trials=self.tuning_trials,
        )
        if self.method in FLUTES:
            tuning = climbed(tune, self.begin, self.neighbours, self.moves)
        else:
            tuning = tune(grid={"step_size": self.steps}, extend=True)
        problem, data = self.source(self.trials, self.seed)
        result = lf.simulate(
            tuning.algorithm,
            problem,
            data=data,
            n_rounds=self.n_rounds,
            trials=self.trials,
            seed=self.seed,
            record_every=max(1, self.n_rounds // 20),
        )
        in_range = result.rounds <= self.n_rounds
        along = {"accuracy": 100.0, "global_nc2": 1.0, "local_nc2": 1.0}
        nothing = np.full((self.trials, len(result.rounds)), np.nan)
        curves = {name: scale * result.metrics.get(name, nothing) for name, scale in along.items()}
        return {
            "partition": self.partition,
            **tuning.columns(tuning.settings),
            **{
                name: lf.LabeledArray(curve[:, in_range], round=result.rounds[in_range])
                for name, curve in curves.items()
            },
            **{f"final_{name}": curve[:, -1] for name, curve in curves.items()},
            "own_classes": 100.0 * result.metrics["own_class_accuracy"][:, -1],
            "diverged": np.isnan(curves["accuracy"][:, -1]),
        }


def setting(step: float, weights: tuple[float, float], decay: float) -> dict[str, float]:
    """Return a setting of FLUTE, with lambda_1 = lambda_2."""
    return dict(zip(NAMES, (step, *weights, decay, decay), strict=True))


def climbed(
    tune: Callable[..., Any], begin: Sequence[Any], neighbours: Callable[[Any], Sequence[Any]], moves: int
) -> Any:
    """Return the result of tuning from some settings on, to the neighbours of the best one until none is better.

    `moves` is the largest number of times that neighbours are tried.
    """
    result = tune(grid=begin)
    for _ in range(moves):
        new = [one for one in neighbours(result.best_params) if one not in result.settings]
        if not new:
            break
        more = tune(grid=[result.best_params, *new])
        result = replace(
            more,
            settings=[*result.settings, *more.settings[1:]],
            scores=np.concatenate([result.scores, more.scores[1:]]),
            curves=np.concatenate([result.curves, more.curves[1:]]),
            best=len(result.settings) + more.best - 1 if more.best else result.best,
        )
    return result


def held_out_error(result: lf.Result) -> Any:
    """Return each trial's share of misclassified held-out samples, averaged over clients; NaN if the trial diverged."""
    return 1.0 - mean_of_those(result.per_client("accuracy"))


# --- the data sets -------------------------------------------------------------------------------------------

TEST_SHARE, HELD_OUT = 0.25, 100
"""Share of a client's images that is held out, and number of held-out samples of a Gaussian class's client."""


@cache
def split(n: int, classes: int, concentration: float, trials: int, seed: Any) -> lf.GivenClasses:
    """Split the images over clients in each trial, by classes, or by a Dirichlet distribution if `classes` is 0."""
    X, labels = lf.load_digits()
    if classes:
        clients = lf.classwise_split(labels, n_clients=n, classes_per_client=classes, trials=trials, seed=seed)
    else:
        clients = lf.dirichlet_split(labels, n_clients=n, concentration=concentration, trials=trials, seed=seed)
    return lf.GivenClasses.split(X, labels, clients, test_share=TEST_SHARE, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Digits(Contest):
    """One method on one partition of the digits; 0 classes per client stands for the Dirichlet distribution."""

    data: str = lf.choice(DATA, DIGITS, label=True)
    concentration: float = 0.3

    @property
    def partition(self) -> str:
        """The clients and their classes, as text."""
        if self.classes_per_client:
            return super().partition
        return f"n = {self.n_clients}, Dirichlet {self.concentration:g}"

    def source(self, trials: int, seed: Any) -> tuple[None, lf.GivenClasses]:
        """Return the split images; they have no problem."""
        return None, split(self.n_clients, self.classes_per_client, self.concentration, trials, seed)


@dataclass(frozen=True, kw_only=True)
class Mixture(Contest):
    """One method on one family of mixtures of Gaussian classes."""

    data: str = lf.choice(DATA, GAUSSIAN, label=True)
    n_classes: int = 10
    dim: int = 30
    n_samples: int = 20
    separation: float = 3.0

    @property
    def problem(self) -> lf.Classes:
        """The problem, which draws the mixtures."""
        return lf.Classes(
            n_clients=self.n_clients,
            n_classes=self.n_classes,
            classes_per_client=self.classes_per_client,
            dim=self.dim,
            separation=self.separation,
            test_samples=HELD_OUT,
        )

    def source(self, trials: int, seed: Any) -> tuple[lf.Classes, lf.FixedSamples]:
        """Return the problem, and the data that it draws."""
        return self.problem, lf.FixedSamples(self.n_samples)

    def run(self) -> dict[str, Any]:
        """Return the results of the method, and the accuracy of the best classifier on the same held-out samples."""
        truth = self.problem.truth(self.seed, range(self.trials))
        theta = composed(truth.B, truth.bayes())
        best = held_out(truth, HELD_OUT, self.seed, range(self.trials)).accuracies(lambda t, c: theta[t, c])
        return {**super().run(), "bayes": 100.0 * np.mean(best, axis=1)}


def contests(quick: bool, methods: Sequence[str]) -> list[Contest]:
    """Return methods on both data sets, in every setting at both ranks; without scikit-learn, not on the digits."""
    digits, mixture = Digits(), Mixture()
    partitions, digit_ranks = [(50, 2), (50, 5), (100, 2), (100, 5), (50, 0)], [4, 16]
    clients, ranks = [20, 50, 100], [3, 9]
    if quick:
        digits = replace(digits, n_rounds=5, trials=3, tuning_trials=1, steps=(0.2,), moves=0)
        mixture = replace(mixture, n_rounds=5, trials=3, tuning_trials=1, steps=(0.2,), moves=0)
        partitions, digit_ranks = [(20, 2), (20, 5), (20, 0)], [4]
        clients, ranks = [5, 10], [3]
    found: list[Contest] = []
    if find_spec("sklearn") is None:
        warnings.warn("the digits need scikit-learn and are left out: pip install 'linfed[digits]'", stacklevel=2)
    else:
        found += lf.grid(digits, **{"n_clients, classes_per_client": partitions}, rank=digit_ranks, method=methods)
    found += lf.grid(mixture, n_clients=clients, classes_per_client=(2, 5), rank=ranks, method=methods)
    return found
