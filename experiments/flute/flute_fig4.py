"""FLUTE paper, Figure 4: the error of FLUTE for three pairs of weights gamma1, gamma2.

The setting (its C.1): d = 10, k = 6, n = 10, m in {8, 9, 10, 11}, gamma1 = 2 gamma2, gamma2 and (2/3) gamma2. The paper
does not give the ground truth, the noise and the step sizes. They are taken from its Figure 3, which comes just before
in the text: singular values 2d/(i+1), noise variance 0.3, eta = 0.03, initialisation 1/(10 d). A variant has Gaussian
phi_i. gamma2 = 1/8, and there are 2000 rounds. Each pair also runs at its own step size, tuned on separate trials per
m.

References for the three pairs are the truncation Phi_k, exact heads on U_k (Oracle), and a ridge regression of each
client without federation. Since ``||B'B||^2 + ||W'W||^2 = 2 ||B W'||^2 + ||B'B - W'W||^2`` and factors can be balanced,
FLUTE minimises ``sum_i f_i(theta_i) + (2 gamma2 - gamma1) ||Theta||^2`` over Theta of rank k. Thus gamma1 < 2 gamma2 is
a ridge of ``2 (2 gamma2 - gamma1)`` per client, and Local only with this ridge is the same without the limit on the
rank.

References: Liu, Shen and Yang 2024, Appendix C.1 ("Varying gamma1 and gamma2") and Figure 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import line_style, shades
from linfed.numerics.quantiles import quantiles
from linfed.plotting.panels import Figures, tuning_figure
from linfed.statistics import Origin, judge_smaller

from ._flute import FLUTE_STEP, GAMMA2, SPECTRA, TUNED, Weighted

SUMMARY = "FLUTE paper, Figure 4: gamma1 against gamma2, three pairs of weights"
HEADLINES = ({"claim": "gamma1 = gamma2 has a smaller final error than gamma1 = 2 gamma2"},)
PICTURES = {"": 1400}

CURVES = (
    "Mean client error of FLUTE against rounds for three pairs of weights and each m, at the paper's step size and at "
    "tuned ones, {}. Lines: median over trials; shaded: 10-90 %. Horizontal: references."
)
CAPTIONS = {
    "": CURVES.format("on the singular values 2d/(i+1)"),
    "gaussian": CURVES.format("for Gaussian phi_i"),
    "tuning": "Tuning criterion of each pair against step size: the 90 % quantile of the final error over separate "
    "tuning trials. Circled: the selected step size.",
}

EQUAL_BEST = c.cite(
    "FLUTE paper, C.1, Figure 4",
    "when N = 8, 9, or 10, gamma_1 = gamma_2 shows the best performance among the three settings",
)
CLAIMED = (8, 9, 10)
"""The numbers of samples of the quoted claim."""
SIMPLEST = c.Source("not claimed: the simplest rival of the claim above", Origin.CONJECTURE)

PAIRS = {"gamma1 = 2 gamma2": 2.0, "gamma1 = gamma2": 1.0, "gamma1 = (2/3) gamma2": 2.0 / 3.0}
"""The paper's three pairs: gamma1 in units of gamma2."""

BEST = "gamma1 = gamma2"
TRUTHS = {SPECTRA[0]: "spectrum", "": "gaussian"}


@dataclass(frozen=True, kw_only=True)
class Curve(Weighted):
    """The error of one pair of weights, at the paper's step size or at one tuned on separate trials."""

    pair: str = lf.choice(PAIRS, BEST)
    step: str = lf.choice(("paper", TUNED), "paper")
    n_rounds: int = 2000
    step_sizes: tuple[float, ...] = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07)
    tuning_trials: int = 10

    def run(self) -> dict[str, Any]:
        """Tune the step size if asked to, then run the trials and the references."""
        algorithm = lf.FLUTE(rank=self.rank, step_size=FLUTE_STEP, gamma1=PAIRS[self.pair] * GAMMA2, gamma2=GAMMA2)
        columns: dict[str, Any] = {"step_size": FLUTE_STEP}
        if self.step == TUNED:
            candidates = lf.grid(algorithm, step_size=self.step_sizes)
            tuning = self.tune(candidates, "final", self.n_rounds, self.tuning_trials)
            algorithm, columns = tuning.algorithm, tuning.columns()
        result = self.simulate(algorithm, self.n_rounds, record_every=10)
        error = result.metrics["mean_client_error"]
        return columns | {
            "error": lf.LabeledArray(error, round=result.rounds),
            "final": error[:, -1],
            "least": np.where(np.isnan(error), np.inf, error).min(axis=1),
            "diverged": np.isnan(error[:, -1]),
            "ridge": self.final(lf.LocalOnly(ridge=2.0 * (2.0 - PAIRS[self.pair]) * GAMMA2)),
            "oracle": self.final(lf.Oracle(rank=self.rank)),
            "truncation": self.truncation[0],
        }


def cells(quick: bool) -> dict[str, list[Curve]]:
    """Return the paper's curves, for both ground truths; quick: fewer trials, rounds and step sizes."""
    base = Curve(n_samples=0)
    if quick:
        base = replace(base, trials=6, tuning_trials=2, n_rounds=60, step_sizes=base.step_sizes[3::4])
    return {
        "curves": lf.grid(
            base, spectrum=list(TRUTHS), step=("paper", TUNED), n_samples=(8, 9, 10, 11), pair=list(PAIRS)
        )
    }


LOOKS = shades(PAIRS)
"""Colours and markers of FLUTE's pairs, by gamma1."""

SYMBOLS = dict(zip(PAIRS, ("γ₁ = 2 γ₂", "γ₁ = γ₂", "γ₁ = (2/3) γ₂"), strict=True))

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "oracle": ("oracle (exact heads on $U_k$)", line_style("Oracle") | {"marker": ""}),
    "ridge": ("local ridge 1/4", line_style("ridge") | {"marker": ""}),
    "truncation": ("truncation $\\Phi_k$", {"color": "0.35", "linestyle": (0, (4, 2)), "linewidth": 0.7}),
}
"""Labels and styles of the reference lines."""


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the paper's figure, the same for Gaussian phi_i, and the tuning."""
    curves = tables["curves"]
    tried = tuning_figure(
        curves.select(spectrum=SPECTRA[0], step=TUNED),
        "final mean client error",
        column="n_samples",
        title="m = {}",
        by="pair",
        labels=SYMBOLS,
        looks=LOOKS,
    )
    figures = {key: curves_figure(curves.select(spectrum=name)) for name, key in ((SPECTRA[0], ""), ("", "gaussian"))}
    return {**figures, "tuning": tried}


def curves_figure(table: lf.Table) -> Any:
    """Draw the curves of one ground truth: a column for each m, a row for each step size."""
    rounds = table["round"]
    wanted = np.geomspace(rounds[1], rounds[-1], 40)  # evenly spaced on a logarithmic axis
    indices = np.unique(1 + np.abs(rounds[1:] - wanted[:, None]).argmin(axis=1))
    with lf.panels(
        table, column="n_samples", row="step", title="m = {}", height=4.0, sharex=True, sharey=True
    ) as sheet:
        for ax, part in sheet:
            lf.plot_curves(ax, part, "round", "error", by="pair", at=indices, labels=SYMBOLS, looks=LOOKS)
            for name, (text, shape) in SHAPES.items():
                value = float(quantiles(part.select(pair=BEST)[name])[0])
                ax.axhline(value, label=text, zorder=1.5, **{"linewidth": 1.0, **shape})
        ylabels = (f"mean client error\n({step})" for step in (f"step {FLUTE_STEP:g}", "tuned steps"))
        sheet.label("round", *ylabels, xscale="log", yscale="linear")
        least = float(quantiles(table["truncation"].ravel())[1])
        sheet.axes[0, 0].set_ylim(0.8 * least, 1.05 * float(table["error"][..., 0].max()))
        sheet.legend(f"median and 10-90 % of {table.rows[0]['trials']} trials; medians of the references")
    return sheet.figure


def setting(part: lf.Table) -> str:
    """Return the setting of a finding."""
    row = part.rows[0]
    return f"{TRUTHS[row['spectrum']]}, {row['step']} step: m = {row['n_samples']}"


def is_claimed(row: lf.Table) -> bool:
    """Return whether the paper's claim covers the number of samples."""
    return row["n_samples"] in CLAIMED


def not_claimed_note(part: lf.Table) -> str:
    """Return the caveat on numbers of samples that the paper's claim does not cover."""
    return "" if part.rows[0]["n_samples"] in CLAIMED else "the paper's claim covers m = 8, 9, 10"


def below_ridge(best: lf.Table, **fields: Any) -> c.Finding:
    """Judge the final error against the error of a local ridge."""
    return judge_smaller(best["final"], best["ridge"], **fields)


Asked = partial(c.Claim, over=c.each("spectrum", "step", "n_samples"), setting=setting, note=not_claimed_note)
SHARE = "share of paired trials in which the {} error is smaller"
ERRORS = {"final": SHARE.format("final"), "least": SHARE.format("smallest recorded")}
SMALLER = {"final": "has a smaller final error than", "least": "has a smaller error in its best recorded round than"}
RIVALS = [pair for pair in PAIRS if pair != BEST]
CLAIMS = (
    *(
        Asked(
            f"{BEST} {SMALLER[error]} {rival}",
            EQUAL_BEST,
            c.smaller(error, BEST, rival, words, by="pair"),
            where=c.only(is_claimed),
        )
        for rival in RIVALS
        for error, words in ERRORS.items()
    ),
    Asked(
        f"FLUTE at {BEST} has a smaller error than a local ridge of the same strength, without federation",
        SIMPLEST,
        c.Statistic(ERRORS["final"], below_ridge, c.MOST, c.of(pair=BEST), by="pair"),
    ),
    *(
        Asked(
            f"{BEST} {SMALLER[error]} {rival}, at an m that the paper's claim does not cover",
            c.OWN_THRESHOLD,
            c.smaller(error, BEST, rival, words, by="pair"),
            where=c.only(lambda row: not is_claimed(row)),
        )
        for rival in RIVALS
        for error, words in ERRORS.items()
    ),
)
