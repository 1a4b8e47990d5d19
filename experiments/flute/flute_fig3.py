"""FLUTE paper, Figure 3: the mean client error of FLUTE, FedRep and FedRep (RI) against rounds, on a given spectrum.

The paper's parameters (Appendix C.1): d = 10, k in {2, 4, 6, 8}, n in {15, 30}, m in {12, 20}, noise variance 0.3, step
size 0.03, alpha = 1/(10 d). Its text on the singular values has lost a character, "the i-th singular value to be
2d i+1": both 2d/(i+1) and 2d-i+1 are shown. The paper does not give the number of rounds: 600 here. By then the tuned
runs have converged for m = 20. For m = 12, hardly above d, FLUTE's error passes through a minimum and still rises at
k = 6 and 8 (final errors of two methods are compared only if both have converged). Every round has full participation,
on one fixed data set. All ranks of one (n, m), and both spectra, use the same draws. The methods start as in
`experiments.flute.flute_fig1`, each from its own initialisation.

"The learning rate is 0.03" leaves open whether it applies to FedRep, and FedRep averages over clients where FLUTE sums.
The paper's main text and its analysis differ by a factor 2 in FLUTE's data gradient. Therefore all methods are shown at
the step size 0.03, with both of FedRep's conventions and with both of FLUTE's gradients, and at tuned step sizes
(`experiments.flute._flute_compared`). Both tuning and "fewer rounds" are as in `experiments.flute.flute_fig1`.

On the singular values 2d-i+1, no method reduces the median error by more than 10 % at k = 2, so numbers of rounds are
not compared. FLUTE's criterion hardly differs between the step sizes up to 0.03 there, so the tuning chooses the
smallest one, at the edge of the grid. Smaller step sizes would only move this edge. Claims on the gap between speeds
are not asked where a tuned step size lies at the edge of the grid.

The error at a fixed spectrum falls with n by itself, like ||phi_i|| with n^(-1/2). The claim that more clients help is
therefore judged on the error and on its ratio to the truncation's own error, (1/n) sum ||(Phi_k)_i - phi_i||.

References: Liu, Shen and Yang 2024, Appendix C.1 and Figure 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import linfed as lf
import linfed.claims as c
from linfed.figures.style import draw_level
from linfed.plotting.panels import Figures, bars
from linfed.statistics.gains import lower_median
from linfed.statistics.intervals import nan_as_worst, probability_smaller

from ._flute import DOUBLED, FLUTE, FLUTE_STEP, PLAIN, RIVALS, SPECTRA, SPEEDS, TUNED
from ._flute_compared import Comparison
from ._flute_compared_claims import FIG3, GAP_SHRINKS, LEVEL, LOST, lost_note, more_speed, order_claims, speed_note
from ._flute_compared_figures import NOT_DRAWN, curves_figure, tuning_figure

SUMMARY = "FLUTE paper, Figure 3: mean client error against rounds on a given spectrum, k = 2 to 8, 15 and 30 clients"
HEADLINES = (
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "among": (
            "0.03: 2d/(i+1)",
            "all at the paper's step 0.03, FedRep averaging over clients, singular values 2d/(i+1)",
        ),
    },
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "among": (
            "0.03: 2d-i+1",
            "all at the paper's step 0.03, FedRep averaging over clients, singular values 2d-i+1",
        ),
    },
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "among": ("0.03, factor 2: ", "all at the paper's step 0.03, FLUTE with its main text's gradient"),
    },
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "among": ("0.03, summed: ", "all at the paper's step 0.03, FedRep summing over clients"),
    },
    {
        "claim": "FLUTE needs fewer rounds than FedRep (RI)",
        "among": ("tuned: ", "every method at its step with the smallest mean log error"),
    },
    {
        "claim": "FLUTE's final error falls with n",
        "among": ("0.03: ", "all at the paper's step 0.03, FedRep averaging over clients"),
    },
    {
        "claim": "FLUTE's final error falls with n, relative to the truncation's own",
        "among": ("0.03: ", "all at the paper's step 0.03, FedRep averaging over clients"),
    },
)
TUNING = (
    "Tuning criterion against step size: the 90 % quantile over separate tuning trials of the mean of log10 error over "
    "rounds. Circled: the selected step size; thin line: 0.03."
)
AT_RANKS = (
    "Rounds to keep 95 % of the way at each speed (above the last round: not kept), and final errors at tuned step "
    "sizes divided by the truncation's own, against k. Markers: median over trials; bars: 10-90 %."
)
FIGURES = dict(zip(SPECTRA, ("", "flat"), strict=True))
SPEED_FIGURES = dict(zip(SPEEDS, ("tuned", "", "factor2", "summed"), strict=True))
"""Parts of figure names for each spectrum and each speed."""
AT_SPEEDS = dict(
    zip(
        SPEEDS,
        (
            "tuned step sizes",
            "the step size 0.03",
            "the step size 0.03, with twice the data gradient in FLUTE",
            "the step size 0.03, with FedRep's messages summed over clients",
        ),
        strict=True,
    )
)
CURVES = {
    SPEED_FIGURES[speed]: (
        f"Mean client error of FLUTE, FedRep and FedRep (RI) against rounds at {which}, for each k, n and m. Lines: "
        "median over trials; shaded: 10-90 % of FLUTE and FedRep."
    )
    for speed, which in AT_SPEEDS.items()
}
CAPTIONS = {
    f"{FIGURES[values]}-{key}".strip("-"): f"{text} The singular values are {values}."
    for values in SPECTRA
    for key, text in {**CURVES, "ranks": AT_RANKS, "tuning": TUNING}.items()
}
PICTURES = {"": 1400, "ranks": 1400}
REDUCED = {"runs": {"without": lambda row: NOT_DRAWN if row["speed"] == TUNED else (*NOT_DRAWN, "final")}}


FALLS_WITH_CLIENTS = c.cite(
    FIG3, "increasing the number of clients M, we see a reduction in the average error of models generated by FLUTE"
)
RELATIVE = c.reading(f"{FIG3}, asked of the error relative to the truncation's own")
STEP = c.reading(
    c.cite("FLUTE paper, C.1, with equations (3) and (5)", "The learning rate is set to eta = 0.03")
).adding("asked of divergence, which the paper does not mention")

SIZES = ("spectrum", "n_clients", "n_samples")


def cells(quick: bool) -> dict[str, list[Comparison]]:
    """Return the settings; quick: one spectrum, two ranks and one m."""
    base = Comparison(n_clients=0, n_samples=0, rank=0)
    if quick:
        base = replace(base, trials=20, n_rounds=200, tuning_trials=3, tuning_rounds=100, step_sizes=(FLUTE_STEP, 0.3))
        return {"runs": lf.grid(base, spectrum=SPECTRA[:1], n_clients=(15, 30), n_samples=(20,), rank=(2, 8))}
    return {"runs": lf.grid(base, spectrum=SPECTRA, n_clients=(15, 30), n_samples=(12, 20), rank=(2, 4, 6, 8))}


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the curves of each spectrum and speed, rounds and final errors against k, and the tuning."""
    figures: Figures = {}
    runs = tables["runs"].assign(sizes=lambda one: f"n = {one['n_clients']}, m = {one['n_samples']}")
    for name, table in runs.groupby("spectrum"):
        found = {SPEED_FIGURES[speed]: curves_figure(part, "sizes", "row") for speed, part in table.groupby("speed")}
        found |= {"ranks": ranks_figure(table), "tuning": tuning_figure(table, "sizes")}
        figures |= {f"{FIGURES[name]}-{key}".strip("-"): one for key, one in found.items()}
    return figures


def ranks_figure(table: lf.Table) -> Any:
    """Draw rounds to the level at each speed, and final errors divided by the truncation's own, against k."""
    last, error = int(table["round"][-1]), "error / truncation's"
    panels = table.assign(panel=lambda one: f"rounds, {one['speed']}")
    panels += table.select(speed=TUNED).assign(panel=lambda one: error)
    sizes = table.unique("sizes")
    height = 0.9 + 1.35 * len(sizes)
    with lf.panels(panels, column="panel", row="sizes", title="{}", height=height, sharex=True) as sheet:
        for ax, part in sheet:
            of_error = part.unique("panel") == [error]
            for turn, (method, line) in enumerate(part.groupby("method")):
                values = line["final"] / line["truncation"] if of_error else np.minimum(line[LEVEL], 2.0 * last)
                ranks = np.atleast_1d(line["rank"]) + 0.15 * (turn - 1)
                bars(ax, ranks, np.atleast_2d(values).T, method)
            if not of_error:
                ax.set_yscale("log")
                ax.set_ylim(0.7, 3.0 * last)
                draw_level(ax, last, "last round" if ax in sheet.axes[:, 0] else "")
        sheet.label("k", *(f"{title}\nto 95 % of the way" for title in sizes), xticks=table.unique("rank"))
        sheet.legend("median and 10-90 % of trials; above the last round: not kept; right: final errors, tuned")
    return sheet.figure


def falls_with_n(*, relative: bool) -> c.Statistic:
    """Return the probability of a smaller error, or of one divided by the truncation's, with more clients."""

    def measure(few: lf.Table, many: lf.Table) -> c.Measurement:
        small, large = (nan_as_worst(part["final"]) / (part["truncation"] if relative else 1.0) for part in (few, many))
        return c.Measurement(
            probability_smaller(large, small),
            detail=f"medians {float(lower_median(small)):.3g} and {float(lower_median(large)):.3g}",
            vacuous=LOST if few["diverged"].all() and many["diverged"].all() else "",
        )

    subject = "the error relative to the truncation's own" if relative else "the error"
    words = f"P({subject} is smaller at n = {{1[n_clients]}} than at n = {{0[n_clients]}})"
    return c.measured(words, measure, c.MOST)


def divergence(part: lf.Table) -> Any:
    """Return whether trials diverged, (ranks, trials)."""
    return np.atleast_2d(np.isnan(part["final"]))


def completed(part: lf.Table) -> Any:
    """Return whether trials did not diverge, at the worst rank."""
    lost = divergence(part)
    return ~lost[lost.mean(axis=1).argmax()]


def diverged_shares(part: lf.Table) -> str:
    """Return the share of diverged trials at each rank, as text."""
    shares = ", ".join(f"{100 * share:.0f} %" for share in divergence(part).mean(axis=1))
    return f"diverged: {shares} at k = {', '.join(str(k) for k in part.unique('rank'))}"


PAIR = "{spectrum}, n = {n_clients}, m = {n_samples}"
CLAIMS = (
    *(
        c.Claim(
            f"The gap between the speeds of FLUTE and {rival} shrinks with k",
            GAP_SHRINKS[rival],
            more_speed(rival, signed=False),
            over=c.each("speed", *SIZES),
            setting=f"{{speed}}: {PAIR}",
            note=speed_note(rival),
        )
        for rival in RIVALS
    ),
    *(
        c.Claim(
            f"FLUTE's final error falls with n{what}",
            source,
            falls_with_n(relative=bool(what)),
            where=c.of(method=FLUTE, speed=[TUNED, PLAIN, DOUBLED]),  # FLUTE always sums
            over=c.ends("n_clients", c.each("speed", "spectrum", "n_samples", "rank")),
            setting="{speed}: {spectrum}, m = {n_samples}, k = {rank}",
            note=lost_note,
        )
        for what, source in (("", FALLS_WITH_CLIENTS), (", relative to the truncation's own", RELATIVE))
    ),
    *order_claims(f"{{speed}}: {PAIR}, k = {{rank}}", *SIZES, "rank", asked_of="Figure 3's settings"),
    c.Claim(
        "FLUTE with the main text's gradient (factor 2) does not diverge at the step size 0.03",
        STEP,
        c.share(completed, "share of trials that do not diverge, at the worst rank", c.MOST),
        where=c.of(method=FLUTE, speed=DOUBLED),
        over=c.each(*SIZES),
        setting=PAIR,
        detail=diverged_shares,
    ),
)
