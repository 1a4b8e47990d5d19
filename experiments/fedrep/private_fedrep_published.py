"""The published code of private FedRep, replayed: its start, its rounds and its clip.

The cells have the sizes, step size, clip and rounds of the published code of Snedeker, Zhou and Bassily
(`linfed.PrivateFedRep`). That code starts from the singular vectors of the difference of two equal matrices, which is
rounding noise. The intended matrix is the sum over pairs of different samples. Both starts are replayed with the
published noise, on fixed samples. Neither start is private; a private run has to start at random. The radius is the
root mean square sine of the principal angles to B*. The experiment `private_fedrep` compares it with predictions. No
risk is measured: excess risks are those that `linfed.theory` gives at the measured radii.

**Deviations**: heads have length sqrt(k) and ``(1/n) sum_i w_i w_i' = I``. The published heads have length 1 and the
published loss has a factor 2, which gives equal messages at k = 2. The tuned clip, step size and number of rounds are
chosen on separate trials, by the distance, which a private method does not know. A smaller clip with more rounds ends
nearer to B*, so that the grids of clips and rounds end where a run still takes seconds.

References: Snedeker, Zhou and Bassily 2025; Collins, Hassani, Mokhtari and Shakkottai 2021.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed._types import Array
from linfed.figures.style import draw_level, line_style
from linfed.numerics.linalg import orthonormalize
from linfed.plotting.panels import Figures
from linfed.search.selection import at_grid_edge
from linfed.statistics import median_interval
from linfed.statistics.intervals import Measured

from ..shared.smallest_drawn import label_axes
from ._fedrep_rivals import mean_square
from ._private import Private

SUMMARY = "FedRep with the Gaussian mechanism, the published code replayed: its start, its rounds and a tuned clip"
PICTURES = {"": 1005}
CAPTIONS = {
    "": "Radius of the replayed published code, and of tuned runs from random starts, against epsilon. Markers: median "
    "over trials. Horizontal dashes: the same start without noise, or without a round."
}

ROUNDING, INTENDED = "published start", "intended start"
FIXED_CLIP, TUNED_CLIP = "published clip", "tuned clip"


@dataclass(frozen=True)
class Spectral(lf.Initial):
    """Top-k left singular vectors of the published code's matrix, in its precision and order of operations."""

    intended: bool
    needs_batch = True

    def resolve(self, start: Any, rank: int) -> Any:
        """Return the vectors of the difference of two equal sums, or of the intended sum over pairs of samples."""
        batch, found = start.batch(), []
        for X, y in zip(batch.X.astype(np.float32), batch.y.astype(np.float32), strict=True):
            XY = X * y[:, :, None]
            sums = XY.sum(axis=1)
            first = sums.T @ sums if self.intended else np.einsum("nmd,nme->de", XY, XY)
            found.append(np.linalg.svd(first - np.einsum("nm,nmd,nme->de", y * y, X, X))[0][:, :rank])
        return orthonormalize(np.array(found, dtype=float))


@dataclass(frozen=True, kw_only=True)
class Replay(Private):
    """The published code: clipped messages, fixed samples, a spectral start, and its formula for the noise."""

    start: str = lf.choice((ROUNDING, INTENDED), ROUNDING)
    noisy: bool = lf.choice((True, False), True)
    trials: int = 20

    def run(self) -> dict[str, Any]:
        """Return the radius after every round, and the predicted risks of heads and of ridge regression."""
        size = math.sqrt(48 * self.n_rounds * math.log(1.25 / self.failure))
        noise = self.noisy * self.clip * size / (self.n_clients * self.epsilon)
        algorithm = self.algorithm(Spectral(self.start == INTENDED), self.step, self.clip, noise)
        return self.measured(algorithm, self.n_rounds) | {"over_smallest": noise / self.noise(self.clip, self.n_rounds)}

    def algorithm(self, init: lf.Initial | str, step: float, clip: float, noise: float) -> lf.PrivateFedRep:
        """Return private FedRep."""
        return lf.PrivateFedRep(rank=self.rank, step_size=step, init=init, clip=clip, message_noise_std=noise)

    def measured(self, algorithm: lf.Algorithm, n_rounds: int) -> dict[str, Any]:
        """Return the radius after every round, and the predicted excess risks at the last one and of ridge regression.

        The risk at the radius is that of a new client with a head on m samples.
        """
        result = lf.simulate(
            algorithm,
            self.problem,
            data=lf.FixedSamples(self.n_samples),
            n_rounds=n_rounds,
            trials=self.trials,
            seed=self.seed,
            metrics=[mean_square],
        )
        radius, length = np.sqrt(result.metrics["mean_square"]), math.sqrt(self.rank)
        m, std = self.n_samples, self.noise_std
        ridge = lf.theory.best_local_ridge(length, noise_std=std, dim=self.dim, n_samples=m)
        risks = (
            lf.theory.new_client_mean_risk(length * radius[:, -1], noise_std=std, rank=self.rank, n_samples=m),
            lf.theory.local_mean_risk(length, noise_std=std, dim=self.dim, n_samples=m, ridge=ridge),
        )
        excess, local = (risk - self.noise_std**2 / 2 for risk in risks)
        return {"radius": lf.LabeledArray(radius, round=result.rounds), "excess": excess, "local": float(local)}


@dataclass(frozen=True, kw_only=True)
class Tuned(Replay):
    """Clip, step size and number of rounds tuned on separate trials, from random starts, with the smallest noise."""

    start: str = lf.choice((FIXED_CLIP, TUNED_CLIP), TUNED_CLIP)
    noisy: bool = lf.choice((True,), True)
    clips: tuple[float, ...] = (10.0, 3.0, 1.0)
    counts: tuple[int, ...] = (8, 14, 24, 70)
    shares: tuple[float, ...] = (0.2, 0.4, 2 / 3)  # of the published step size
    tuning_trials: int = 10

    def run(self) -> dict[str, Any]:
        """Tune, and return the radii and predicted risks of the chosen setting."""
        clips, found = self.clips if self.start == TUNED_CLIP else (self.clip,), []
        pairs = list(itertools.product(clips, self.shares))
        for rounds in self.counts:
            tuning = lf.tune(
                [self.algorithm("random", share * self.step, clip, self.noise(clip, rounds)) for clip, share in pairs],
                self.problem,
                data=lf.FixedSamples(self.n_samples),
                n_rounds=rounds,
                trials=self.tuning_trials,
                seed=self.seed,
                metric=mean_square,
                score="final",
                ties_within=0.0,
                quantile=0.9,  # some random starts are slow
            )
            found.append((float(tuning.scores[tuning.best]), rounds, tuning.algorithm, pairs[tuning.best]))
        _, rounds, best, (clip, share) = min(found, key=lambda one: one[0])
        tried = itertools.product(self.counts, pairs)
        settings = [{"clip": one, "step_size": step, "n_rounds": count} for count, (one, step) in tried]
        chosen = settings.index({"clip": clip, "step_size": share, "n_rounds": rounds})
        return self.measured(best, rounds) | {
            "chosen_clip": clip,
            "chosen_share": best.step_size / self.step,
            "chosen_rounds": rounds,
            "at_grid_edge": ", ".join(at_grid_edge(settings, [chosen])),
        }


def cells(quick: bool) -> dict[str, list[Any]]:
    """Return the replays and the tuned runs; quick: fewer clients, trials and levels."""
    levels, some = ((16.0, 64.0), (64.0,)) if quick else ((1.0, 2.0, 4.0, 8.0), (1.0, 8.0))
    replay, tuned = Replay(), Tuned()
    if quick:
        replay = Replay(n_clients=1000, trials=6)
        tuned = Tuned(n_clients=1000, trials=6, counts=(14,), clips=(10.0, 3.0), shares=(1.0,), tuning_trials=2)
    starts, clips = (ROUNDING, INTENDED), (FIXED_CLIP, TUNED_CLIP)
    silent = replace(replay, noisy=False, epsilon=levels[-1])
    return {
        "replay": [*lf.grid(replay, epsilon=levels, start=starts), *lf.grid(silent, start=starts)],
        "tuned": lf.grid(tuned, epsilon=some, start=clips),
    }


def derived(tables: dict[str, lf.Table]) -> dict[str, lf.Table]:
    """Return the tuned runs with the radii of the intended start in the same trials."""
    return {"clips": tables["tuned"].assign(intended=lambda row: before(tables["replay"]))}


def before(replay: lf.Table) -> Array:
    """Return the radii of the intended start, (trials,)."""
    return np.asarray(replay.select(start=INTENDED).rows[0]["radius"].values[:, 0])


def end(row: lf.Table) -> Array:
    """Return the radii after the last round, (trials,)."""
    return np.asarray(row["radius"][:, -1])


def ratios(first: Array, second: Array | float) -> Measured:
    """Return the median ratio of paired trials."""
    return median_interval(first / second)


def settings(part: lf.Table) -> str:
    """Return the chosen clips and numbers of rounds."""
    return "; ".join(f"{row['start']} {row['chosen_clip']:g}, {row['chosen_rounds']} rounds" for row in part.rows)


Replayed = partial(
    c.Claim,
    table="replay",
    where=c.of(noisy=True),
    over=c.each("epsilon"),
    setting="published code, epsilon {epsilon:g}",
)
Chosen = partial(
    c.Claim, table="clips", over=c.each("epsilon"), setting="random start, epsilon {epsilon:g}", detail=settings
)
RADII = "ratio of radii, median over trials"


def from_start(words: str, start: str, measure: Any) -> c.Statistic:
    """Return a statistic of the runs from one start."""
    return c.measured(words, measure, rows=c.of(start=start))


CLAIMS = (
    Replayed(
        "The published start ends as near B* as the intended one",
        c.OWN_THRESHOLD,
        c.ratio(end, ROUNDING, INTENDED, RADII, by="start", measure=ratios),
        c.at_most(1.1),
    ),
    Replayed(
        "The rounds bring the intended start nearer to B*",
        c.OWN_THRESHOLD,
        from_start(
            "final over initial radius, median over trials",
            INTENDED,
            lambda row: ratios(end(row), row["radius"][:, 0]),
        ),
        c.at_most(1.0),
    ),
    Replayed(
        "At its measured radius FedRep's predicted risk is smaller than ridge regression's",
        c.OWN_THRESHOLD,
        from_start(
            "ratio of the excess risks that formulas give, FedRep's at the measured radius; median over trials",
            ROUNDING,
            lambda row: ratios(row["excess"], row["local"]),
        ),
        c.at_most(1.0),
    ),
    Chosen(
        "A tuned clip is better than the published one",
        c.OWN_THRESHOLD,
        c.ratio(end, TUNED_CLIP, FIXED_CLIP, RADII, by="start", measure=ratios),
        c.below(1.0),
    ),
    Chosen(
        "The tuned run ends nearer to B* than the intended start, which is not private",
        c.OWN_THRESHOLD,
        from_start(
            "ratio of radii, median over paired trials", TUNED_CLIP, lambda row: ratios(end(row), row["intended"])
        ),
        c.below(1.0),
    ),
)


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the radii of the published code and of the tuned runs against epsilon."""
    replay, tuned = tables["replay"], tables["tuned"]
    looks = {name: line_style("", turn) for turn, name in enumerate((ROUNDING, INTENDED, FIXED_CLIP, TUNED_CLIP), 3)}
    with lf.panels(replay, title="published code", width="column", height=3.6) as sheet:
        ax = sheet.axes[0, 0]
        for table, label in ((replay.select(noisy=True), "{}"), (tuned, "random start, {}")):
            for name, part in table.groupby("start"):
                ends = [np.median(end(row)) for row in part]
                ax.plot([row["epsilon"] for row in part], ends, label=label.format(name), **looks[name])
        draw_level(ax, float(np.median(before(replay))), label="intended start, no round")
        for row in replay.select(noisy=False):
            ax.axhline(np.median(end(row)), color=looks[row["start"]]["color"], linestyle="--", linewidth=0.9)
        label_axes(ax, replay.unique("epsilon"), "epsilon")
        ax.set_ylabel("radius (root mean square sine to B*)")
        sheet.legend(ncols=2)
    return {"": sheet.figure}
