"""FLUTE paper, Figure 2: heads of clients that hold two of three classes, trained locally and together.

The setting is the paper's: three clients hold the classes {1, 2}, {1, 3} and {2, 3}, and k = 3. "Locally optimized"
heads minimise (54) for each client separately, with a B for each. "Globally optimized" heads minimise the sum of (54),
with one B. FLUTE adds its penalty NC. `lf.GeneralFLUTE` takes the steps, with weights 1/100 for features and heads. NC
has half of its weight at the clients and half at the server.

The paper takes features as free variables. A linear representation has them if a class is one point and the three
points are linearly independent. This is the kind "points". In the kind "clouds" a class is a Gaussian cloud of spread
0.3 around its point, with ten samples of each class at a client. The simplest competitor is one head for all classes,
of a single client that holds all samples. In a third kind, points again, the heads have no biases.

The objective (54) has no minimum here. Where it is stationary in a client's heads, they add up to zero, and the loss
falls further as the bias of the third class tends to minus infinity. In this limit its head vanishes, and the two
others are ``h_a = -h_b``, along ``z_a - z_b`` for the features z. Features that all clients share are a simplex, by
symmetry. Then a head has the cosine ``sqrt(3)/2`` with its feature, and 1/2 with the other client's head of its class.
Observation B.3 states -1/2 for the two heads of a client, and 1 for both other cosines. Without biases there is a
minimum, at which the third head does not vanish.

**Deviations**: the paper gives neither weights, sizes nor an optimiser; all are ours. Its features come from a
network.

References: Liu, Shen and Yang 2024, Figure 2, Observations B.2 and B.3, (54).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures
from linfed.statistics.intervals import median_interval

SUMMARY = "FLUTE paper, Figure 2: heads of three clients that hold two of three classes, trained locally and together"
HEADLINES = (
    {"claim": "Trained locally, the two heads of a client are opposite"},
    {"claim": "Trained together, the cosine of a client's two heads differs from that of heads trained locally"},
    {"claim": "Trained together, the cosine of a head and its feature differs from that of heads trained locally"},
)
CAPTIONS = {
    "": "Angle between the two heads of each client. Markers: median over trials if a class is one point, with its "
    "cosine; thin: trials if a class is a Gaussian cloud; dotted: median for points, without biases."
}
PICTURES = {"": 1005}

LOCAL, TOGETHER, WEAK, STRONG, ONE_HEAD = OBJECTIVES = (
    "locally",
    "together",
    "together, NC 0.1",
    "together, NC 1",
    "one head",
)
POINTS, CLOUDS, NO_BIASES = KINDS = ("points", "clouds", "points, no biases")
COLLAPSE = {WEAK: 0.1, STRONG: 1.0}
"""Weight of NC."""
CLIENTS = tuple(combinations(range(3), 2))
"""Classes of the three clients."""


class WithoutBiases(lf.GeneralFLUTE):
    """General FLUTE with one local step and without biases."""

    def step(self, state: lf.State, batch: Any, rng: Any) -> lf.State:
        """Return the state after one round."""
        state = super().step(state, batch, rng)
        W = state.array("W").copy()
        W[..., -1] = 0.0
        return state.update(W=W)


@dataclass(frozen=True, kw_only=True)
class Heads:
    """One objective on one kind of classes; `n_samples` is for a client with two classes."""

    objective: str = lf.choice(OBJECTIVES, LOCAL, label=True)
    kind: str = lf.choice(KINDS, POINTS, label=True)
    n_samples: int = 2
    spread: float = 0.0
    dim: int = 10
    rank: int = 3
    penalty: float = 0.01
    step_size: float = 1.0
    n_rounds: int = 5_000
    trials: int = 30
    seed: int = 0

    def run(self) -> dict[str, Any]:
        """Return cosines of the heads of every client, and the length of its third head."""
        points = orthonormalize(np.random.default_rng(self.seed).standard_normal((self.trials, self.dim, 3))).mT
        if self.objective == LOCAL:
            each = [self.trained(points, [classes]) for classes in CLIENTS]
            H, Z = (np.concatenate(parts, axis=1) for parts in zip(*each, strict=True))
        else:
            found = self.trained(points, [(0, 1, 2)] if self.objective == ONE_HEAD else CLIENTS)
            H, Z = (np.broadcast_to(part, (self.trials, 3, *part.shape[2:])) for part in found)
        client, held = np.arange(3)[:, None], np.array(CLIENTS)
        own, third = H[:, client, held], H[:, [0, 1, 2], [2, 1, 0]]
        other = cosine(H[:, [0, 0, 1], [0, 1, 2]], H[:, [1, 2, 2], [0, 1, 2]])  # classes 1, 2 and 3
        columns = {
            "cosine": cosine(own[:, :, 0], own[:, :, 1]),
            "with_feature": cosine(own, Z[:, client, held]).min(axis=-1),
            "with_other": np.full_like(other, np.nan) if self.objective == LOCAL else other,
            "third": np.linalg.norm(third, axis=-1) / np.linalg.norm(own, axis=-1).mean(axis=-1),
        }
        labeled = {name: lf.LabeledArray(values, client=(1, 2, 3)) for name, values in columns.items()}
        return {"n_clients": len(CLIENTS), **labeled}

    def trained(self, points: Any, clients: Any) -> tuple[Any, Any]:
        """Return heads (trials, clients, 3, k) of clients with these classes, and their features (trials, 1, 3, k)."""
        labels = np.array([np.resize(classes, self.n_samples // 2 * len(classes)) for classes in clients])
        X = points[:, labels]
        X = X + self.spread * np.random.default_rng((self.seed, 1)).standard_normal(X.shape)
        weight = COLLAPSE.get(self.objective, 0.0) / 2.0
        algorithm = (WithoutBiases if self.kind == NO_BIASES else lf.GeneralFLUTE)(
            rank=self.rank,
            step_size=self.step_size,
            feature_penalty=self.penalty,
            head_penalty=self.penalty,
            collapse_penalty=weight,
            server_step_size=weight * self.step_size,
        )
        data = lf.GivenClasses(X, np.broadcast_to(labels, X.shape[:-1]), n_classes=3)
        run = lf.simulate(
            algorithm,
            data=data,
            n_rounds=self.n_rounds,
            trials=self.trials,
            seed=self.seed,
            metrics=["train_loss"],
            record_every=self.n_rounds,
        )
        return run.final.array("W")[..., :-1], (points @ run.final.array("B"))[:, None]


def cosine(first: Any, second: Any) -> Any:
    """Return the cosine of vectors along the last axis."""
    return np.vecdot(first, second) / np.linalg.norm(first, axis=-1) / np.linalg.norm(second, axis=-1)


def cells(quick: bool) -> dict[str, list[Heads]]:
    """Return every objective on every kind of classes."""
    base = Heads(trials=6, n_rounds=1_500) if quick else Heads()
    kinds = [(POINTS, 2, 0.0), (CLOUDS, 20, 0.3), (NO_BIASES, 2, 0.0)]
    return {"heads": lf.grid(base, **{"kind, n_samples, spread": kinds}, objective=OBJECTIVES)}


LOOKS: dict[str, dict[str, Any]] = {
    POINTS: {"linewidth": 1.6, "marker": "o", "markevery": [1]},
    CLOUDS: {"linewidth": 0.4, "alpha": 0.4},
    NO_BIASES: {"linewidth": 1.6, "linestyle": ":"},
}
"""Lines of each kind of classes."""


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the angle between the two heads of each client, for every objective."""
    table = tables["heads"]
    with lf.panels(table, row="objective", width="column", height=3.8, sharex=True) as sheet:
        for ax, part in sheet:
            for row in part:
                angles = np.arccos(np.clip(row["cosine"], -1.0, 1.0))
                for client, classes in enumerate(CLIENTS):
                    shown = angles[:, client] if row["kind"] == CLOUDS else [np.median(angles[:, client])]
                    for side, j in zip((-0.5, 0.5), classes, strict=True):
                        ends = 3 * client + np.sin(side * np.array(shown)), np.cos(side * np.array(shown))
                        label = f"class {j + 1}" if row["kind"] == POINTS else None
                        starts = np.full_like(ends[0], 3 * client), np.zeros_like(ends[1])
                        ax.plot(*np.stack([starts, ends], axis=1), color=f"C{j}", label=label, **LOOKS[row["kind"]])
                    if row["kind"] == POINTS:
                        ax.text(3 * client, 0.75, f"{np.cos(shown[0]):.2f}", ha="center")
            ax.set_ylabel(part.rows[0]["objective"].replace(", ", ",\n"), rotation=0, ha="right", va="center")
        names = [f"client {i}" for i in (1, 2, 3)]
        sheet.label(xlim=(-1.4, 7.4), ylim=(-0.2, 1.1), aspect="equal", yticks=[], xticks=(0, 3, 6), xticklabels=names)
        sheet.legend()
    return {"": sheet.figure}


# --- claims --------------------------------------------------------------------------------------------------

CLOSE, ROUGH, APART = 0.01, 0.1, 0.1
"""Deviations of a cosine that count as none, as small, and as a difference."""
quoted = partial(c.cite, "FLUTE paper, Appendix B.3 and Figure 2", threshold=True)
OPPOSITE = quoted("the locally optimized heads are in opposite directions")
DIFFERENT = "which perform differently compared with the global optimal heads"
PARALLEL = quoted(
    "the optimal models [h_ic] and [h_jc] are of the same direction when class c is included in both Ci and Cj"
)
OBSERVATION = c.reading(f"FLUTE paper, Observation B.3; the number is {c.OWN_THRESHOLD}")
ZERO = c.reading(f"FLUTE paper, Observations B.2 and B.3; the number is {c.OWN_THRESHOLD}")
ELSEWHERE = "heads without biases"
NAMES = {
    "cosine": "cosine of a client's two heads",
    "with_feature": "cosine of a head and its feature",
    "with_other": "cosine of two clients' heads of one class",
    "third": "relative length of the third head",
}
PAPERS = (POINTS, CLOUDS)
"""Kinds of classes with the paper's objective."""


def off(column: str, wanted: float, tolerance: float) -> c.Statistic:
    """Return the largest deviation of a column from a number, over the clients."""
    words = f"largest deviation of the {NAMES[column]} from {wanted:.3g} over the clients, median over trials"
    return c.median(lambda row: np.abs(row[column] - wanted).max(axis=1), words, c.at_most(tolerance))


def judge_apart(column: str, one: lf.Table, other: lf.Table, **fields: Any) -> c.Finding:
    """Judge how far a cosine is apart between two objectives."""
    return lf.statistics.judge(median_interval(np.abs(one[column] - other[column]).min(axis=1)), **fields)


HALF = off("cosine", -0.5, ROUGH)
APART_WORDS = "smallest difference of the cosines over the clients, median over trials"


def asked(sentence: str, source: c.Source, objective: Any, statistic: c.Statistic, kind: Any = PAPERS) -> c.Claim:
    """Return a claim on objectives and kinds of classes."""
    where, over = c.of(objective=objective, kind=kind), c.each("objective", "kind")
    return c.Claim(sentence, source, statistic, where=where, over=over, setting="{objective}: {kind}")


CLAIMS = (
    asked("Trained locally, the two heads of a client are opposite", OPPOSITE, LOCAL, off("cosine", -1.0, CLOSE)),
    *(
        c.Claim(
            f"Trained together, the {NAMES[column]} differs from that of heads trained locally",
            quoted(DIFFERENT, asked_of=f"the {NAMES[column]}{more}"),
            c.compared(APART_WORDS, TOGETHER, LOCAL, partial(judge_apart, column), c.at_least(APART), by="objective"),
            where=c.of(kind=kind),
            over=c.each("kind"),
            setting="{kind}",
        )
        for column in ("cosine", "with_feature")
        for more, kind in (("", PAPERS), (f", and of {ELSEWHERE}", NO_BIASES))
    ),
    *(
        asked("Trained together, the two heads of a client have the cosine -1/2", source, TOGETHER, HALF, kind)
        for source, kind in ((OBSERVATION, PAPERS), (OBSERVATION.adding(f"asked of {ELSEWHERE}"), NO_BIASES))
    ),
    asked(
        "Trained together, two clients' heads of one class are parallel",
        PARALLEL,
        TOGETHER,
        off("with_other", 1.0, ROUGH),
    ),
    asked(
        "Trained together, a head is parallel to its feature",
        OBSERVATION,
        TOGETHER,
        off("with_feature", 1.0, ROUGH),
    ),
    asked("The head of the third class vanishes", ZERO, [LOCAL, TOGETHER], off("third", 0.0, 0.05)),
    *(
        asked(
            f"Trained together, the {NAMES[column]} is {words}, as in the limit of (54)",
            c.OWN_PREDICTION,
            TOGETHER,
            off(column, wanted, CLOSE),
            POINTS,
        )
        for column, wanted, words in (
            ("cosine", -1.0, "-1"),
            ("with_feature", np.sqrt(0.75), "sqrt(3)/2"),
            ("with_other", 0.5, "1/2"),
        )
    ),
    asked(
        "With FLUTE's penalty, the two heads of a client have the cosine -1/2, the minimum of NC",
        c.OWN_PREDICTION,
        [WEAK, STRONG],
        HALF,
    ),
    asked(
        "Without any penalty NC, one head for all classes has the cosine -1/2",
        c.OWN_PREDICTION.adding("the simplex of a classifier with all classes (Zhu et al. 2021, Theorem 3.1)", ": "),
        ONE_HEAD,
        HALF,
    ),
)
