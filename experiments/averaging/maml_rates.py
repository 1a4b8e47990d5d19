"""MAML and ANIL: their rates over the diversity of the heads, and starts from which shifted heads are recovered.

The setting is that of the experiment `maml-learns`, with n = 100 clients. Heads are N(0, diag(1, .., 1, mu^2)) as in
the source's simulations for the rates, which `linfed.theory.meta_contraction` predicts without a fitted parameter.
Other runs shift all heads by one vector, from a random start and from distance 0.5. The initial B has ``alpha B'B =
I``. For first-order MAML at the two largest shifts, other runs have a random start with ``alpha B'B = 0.5 I``.

**Deviations**: all sizes, step sizes, scales of the initial B and thresholds are ours, except for the distribution of
the heads. The clients are fixed, and all take part in each round. The source's abstract does not claim that ANIL and
MAML recover B* for every mean of the heads; we judge it.

References: Collins, Mokhtari, Oh and Shakkottai 2022, "MAML and ANIL provably learn representations".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import linfed as lf
import linfed.claims as c
from linfed.plotting.panels import Figures

from ._learns import CLOSE
from ._learns_shown import BELOW, META_LOOKS, draw_rates, draw_shares, rate_claims, recovered, with_scale
from ._maml import FEDREP, META, NEAR, RANDOM, Meta

SUMMARY = "MAML and ANIL recover B* exponentially fast: rates over the diversity of the heads, and shifted heads"
CAPTIONS = {
    "": (
        "Left: fall of the log distance per round against the smallest eigenvalue of the heads' second moment, with "
        "its prediction; median over trials and 10-90 %. Other panels: share of runs that end below 1e-4 against the "
        "shift of all heads, with 95 % intervals."
    )
}
PICTURES = {"": 1400}
REDUCED = {"shifts": {"without": ("distance", "predicted")}}

PAPER = "Collins, Mokhtari, Oh and Shakkottai 2022"


def cells(quick: bool) -> dict[str, list[Meta]]:
    """Return runs at several diversities, and with shifted heads; quick: small sizes, few trials and methods."""
    many = Meta(method=FEDREP, n_clients=100, dim=10, trials=10)
    methods, shifts = (
        tuple(META),
        lf.grid(replace(many, trials=30), start=(RANDOM, NEAR), method=tuple(META), shift=(0.0, 0.5, 1.0, 2.0)),
    )
    mus: Sequence[float] = (1.0, 0.7, 0.5)
    if quick:
        many = Meta(
            method=FEDREP, n_clients=30, dim=6, rank=2, trials=6, alpha=0.3, beta=0.3, n_rounds=300, steps=(0.1, 0.3)
        )
        methods, mus = methods[::3], mus[:2]
        shifts = lf.grid(many, start=(RANDOM, NEAR), method=tuple(META), shift=(2.0,))
    last = [one for one in shifts if (one.start, one.method) == (RANDOM, "MAML, first order")][-2:]
    return {
        "rates": [
            replace(many, method=name, diversity=mu, n_rounds=int(40 / (many.alpha * many.beta * mu**2)))
            for mu in mus
            for name in methods
        ],
        "shifts": [*shifts, *(replace(one, scale=0.5) for one in last)],
    }


def plot(tables: dict[str, lf.Table]) -> Figures:
    """Draw the rates against the heads' second moment, and the shares of runs against the shift, for both starts."""
    rates, shifts = tables["rates"], tables["shifts"]
    with lf.panels(rates + shifts, column=1 + len(shifts.unique("start")), height=2.7) as sheet:
        (axes,) = sheet.axes
        draw_rates(axes[0], rates, META_LOOKS)
        for ax, (start, part) in zip(axes[1:], shifts.groupby("start"), strict=True):
            for name, rows in part.assign(curve=with_scale).groupby("curve"):
                look = META_LOOKS.get(name, META_LOOKS[rows.rows[0]["method"]])
                draw_shares(ax, rows, "shift", look, f"_{name}" if name in META else name)
            ax.set(title=start, xlabel="shift of all heads", ylim=(-0.04, 1.04))
        axes[1].set_ylabel(f"share of runs below {CLOSE:g}")
        sheet.legend(ncols=3)
    return {"": sheet.figure}


def diverged(row: lf.Table) -> str:
    """Return a note on diverged trials."""
    return c.diverged_note(row, "this scale of the initial B")


def shifted(row: lf.Table) -> str:
    """Return the setting of a run with shifted heads."""
    scale = with_scale(row).removeprefix(row["method"])
    return f"{row['start']}, shift {row['shift']:g}{scale}"


CLAIMS = (
    c.Claim(
        "The distance falls exponentially fast",
        c.reading(f"{PAPER}, abstract and Figure 1").adding(f"the number is {c.OWN_THRESHOLD}"),
        c.median(
            lambda row: row["late"] / row["early"],
            "fall of the log distance per round from 1e-6 to 1e-9, divided by that from 1e-3 to 1e-6",
            c.within(0.9, 1.1),
        ),
        over=c.each_row,
        setting="{method}, mu = {diversity:g}",
        note=diverged,
    ),
    *rate_claims(c.reading(f"{PAPER}, abstract; the comparison is ours")),
    *(
        c.Claim(
            f"Most runs of {name} recover B* for every mean of the heads",
            c.OWN_THRESHOLD,
            c.share(recovered, BELOW, c.MOST),
            table="shifts",
            where=c.of(method=name),
            over=c.each_row,
            setting=shifted,
            note=diverged,
        )
        for name in META
    ),
)
