"""FLUTE paper, Figure 3: the mean client error of FLUTE, FedRep and FedRep (RI) against rounds, on a given spectrum.

The paper's parameters (Appendix C.1): d = 10, k in {2, 4, 6, 8}, n in {15, 30}, m in {12, 20}, noise variance 0.3, step
0.03, alpha = 1/(10 d). Its text of the singular values has lost a character, "the i-th singular value to be 2d i+1":
both 2d/(i+1) and 2d-i+1 are shown. The number of rounds is not given: 600 here. By then the tuned runs have settled for
m = 20; for m = 12, hardly above d, FLUTE's error passes through a minimum and still rises at k = 6 and 8 (the claims on
final errors say where a run is not at rest). Everybody takes part, on one fixed data set. All ranks of one (n, m), and
both spectra, see the same draws.

"The learning rate is 0.03" leaves open whether FedRep has it too, and FedRep averages over clients where FLUTE sums.
So all methods are shown at the step 0.03, with both of FedRep's conventions, and at tuned steps, found as in
`experiments.flute_fig1`, which also says what "fewer rounds" means.

The error at a fixed spectrum falls with n by itself, as ||phi_i|| does like n^(-1/2): the claim that more clients help
is judged on the error and on its ratio to the truncation's own error, (1/n) sum ||(Phi_k)_i - phi_i||.

The ``factor`` table holds FLUTE at step 0.03 with the data gradient of the paper's main text, twice that of its
analysis (and of everything else here): which share of the trials diverges.

References: Liu, Shen and Yang 2024, Appendix C.1 and Figure 3.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import linfed as lf
from linfed.statistics.findings import Finding, by_sentence, judge
from linfed.statistics.intervals import binomial_share, probability_smaller
from linfed.study.run import Tables, rows, select

from ._flute import (
    FALLS_WITH_CLIENTS,
    FEDREP,
    FEDREP_RI,
    FLUTE,
    FLUTE_STEP,
    PAPER_STEP,
    SPECTRA,
    SPEEDS,
    STEP_SIZES,
    SUMMED,
    TUNED,
    Setting,
    curves_figure,
    draw_ranks,
    end_claims,
    errors,
    gain_claim,
    median,
    note,
    run_setting,
    setting_tables,
    speed_claims,
    tuning_grid,
    worst,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "FLUTE paper, Figure 3: mean client error against rounds on a given spectrum, k = 2 to 8, 15 and 30 clients"

FIGURES = {SPECTRA[0]: "", SPECTRA[1]: "flat"}
"""What the names of the figures of a spectrum begin with."""

SPEED_FIGURES = {PAPER_STEP: "", TUNED: "tuned", SUMMED: "summed"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The paper's sizes; what it leaves open is chosen here."""

    n_clients: tuple[int, ...] = (15, 30)
    dim: int = 10
    ranks: tuple[int, ...] = (2, 4, 6, 8)
    n_samples: tuple[int, ...] = (12, 20)
    noise_variance: float = 0.3
    spectra: tuple[str, ...] = SPECTRA
    rounds: int = 600
    trials: int = 50
    seed: int = 0
    step_sizes: tuple[float, ...] = STEP_SIZES
    tuning_trials: int = 10
    tuning_rounds: int = 300

    def quick(self) -> Config:
        """Return fewer trials, rounds and steps, two ranks and one m."""
        return replace(
            self,
            ranks=(self.ranks[0], self.ranks[-1]),
            n_samples=self.n_samples[-1:],
            trials=10,
            tuning_trials=4,
            rounds=100,
            tuning_rounds=100,
            step_sizes=self.step_sizes[1:-1:3],
        )


def cells(config: Config) -> list[Setting]:
    """Return the settings, the long ones first."""
    found = [
        Setting(
            name=name,
            spectrum=name,
            dim=config.dim,
            n_clients=n,
            n_samples=m,
            rank=k,
            noise_variance=config.noise_variance,
            rounds=config.rounds,
            trials=config.trials,
            seed=config.seed,
            step_sizes=config.step_sizes,
            tuning_trials=config.tuning_trials,
            tuning_rounds=config.tuning_rounds,
        )
        for name, n, m, k in itertools.product(config.spectra, config.n_clients, config.n_samples, config.ranks)
    ]
    return sorted(found, key=lambda s: s.n_clients * s.rank, reverse=True)


def run_cell(cell: Setting) -> dict[str, Any]:
    """Run all methods at all speeds, and FLUTE with the factor-2 gradient."""
    doubled = lf.FLUTE(rank=cell.rank, step_size=FLUTE_STEP, gradient_factor=2)
    return {**run_setting(cell), "doubled": errors(cell, doubled)[:, -1]}


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return curves, statistics of every trial, tuning, references, and what the gradient's factor does."""
    settings = cells(config)
    records = [
        (*s.keys.values(), factor, s.trials, float(np.isnan(final).mean()), float(median(worst(final))))
        for s, found in zip(settings, results, strict=True)
        for factor, final in ((1, found[f"{PAPER_STEP}/{FLUTE}/final"]), (2, found["doubled"]))
    ]
    sizes = [(name, "i8") for name in ("dim", "n_clients", "n_samples", "rank", "gradient_factor", "trials")]
    factor = rows([("setting", "U16"), *sizes, ("share_diverged", "f8"), ("median_final", "f8")], records)
    return {**setting_tables(settings, results), "factor": factor}


def _grid(tables: Tables) -> tuple[list[str], list[tuple[int, int]], list[int]]:
    """Return the spectra, the pairs (n, m) and the ranks."""
    found = tables["references"]
    sizes = [
        (int(n), int(m)) for n, m in itertools.product(np.unique(found["n_clients"]), np.unique(found["n_samples"]))
    ]
    return [name for name in SPECTRA if name in found["setting"]], sizes, [int(k) for k in np.unique(found["rank"])]


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the curves of each spectrum and speed, what the claims speak of against k, and the tuning."""
    spectra, sizes, ranks = _grid(tables)
    figures = {}
    for name in spectra:
        pairs = [(f"n = {n}, m = {m}", {"setting": name, "n_clients": n, "n_samples": m}) for n, m in sizes]
        for speed in SPEEDS:
            key = "-".join(part for part in (FIGURES[name], SPEED_FIGURES[speed]) if part)
            figures[key] = curves_figure(tables, [(title, speed, keys) for title, keys in pairs], ranks)
        figures["-".join(part for part in (FIGURES[name], "ranks") if part)] = draw_ranks(tables, pairs, ranks)
        figures["-".join(part for part in (FIGURES[name], "tuning") if part)] = tuning_grid(tables, pairs)
    return figures


def claims(tables: Tables) -> list[Finding]:
    """Return what the paper says of Figure 3, for each spectrum, setting and speed."""
    spectra, sizes, ranks = _grid(tables)
    settings = [
        (f"{name}, n = {n}, m = {m}, k = {k}", {"setting": name, "n_clients": n, "n_samples": m, "rank": k})
        for name in spectra
        for n, m in sizes
        for k in ranks
    ]
    found = [
        gain_claim(
            tables,
            speed,
            rival,
            ranks,
            signed=False,
            text=f"the gap between the speeds of FLUTE and {rival} shrinks with k",
            where=f"{name}, n = {n}, m = {m}",
            setting=name,
            n_clients=n,
            n_samples=m,
        )
        for rival in (FEDREP, FEDREP_RI)
        for speed in SPEEDS
        for name in spectra
        for n, m in sizes
    ]
    for relative in (False, True):
        for speed in (TUNED, PAPER_STEP):
            for name, m, k in itertools.product(spectra, dict.fromkeys(m for _, m in sizes), ranks):
                ns = list(dict.fromkeys(n for n, _ in sizes))
                found.append(_falls_with_n(tables, speed, ns, relative=relative, setting=name, n_samples=m, rank=k))
    found += speed_claims(tables, FEDREP_RI, settings)
    found += end_claims(tables, (FEDREP, FEDREP_RI), settings)
    found += [_diverges(tables, name, n, m, ranks) for name in spectra for n, m in sizes]
    return by_sentence(found)


def _falls_with_n(tables: Tables, speed: str, sizes: Sequence[int], *, relative: bool, **keys: Any) -> Finding:
    """Return the claim that FLUTE's error falls with n: the error itself, or relative to the truncation's."""
    small, large = (
        worst(select(tables["summary"], speed=speed, method=FLUTE, n_clients=n, **keys)["final"])
        / (select(tables["references"], n_clients=n, **keys)["truncation"] if relative else 1.0)
        for n in (sizes[0], sizes[-1])
    )
    estimate, low, high = probability_smaller(large, small)
    medians = f"medians {float(median(small)):.3g} and {float(median(large)):.3g}"
    own = "the error relative to the truncation's own" if relative else "the error"
    notes = [note(tables, speed, (FLUTE,), n_clients=n, **keys) for n in (sizes[0], sizes[-1])]
    return Finding(
        source=FALLS_WITH_CLIENTS,
        text="FLUTE's final error falls with n" + (", relative to the truncation's own" if relative else ""),
        where=f"{speed}: {keys['setting']}, m = {keys['n_samples']}, k = {keys['rank']}",
        statistic=f"P({own} is smaller at n = {sizes[-1]} than at n = {sizes[0]})",
        estimate=estimate,
        low=low,
        high=high,
        least=0.5,
        strict=True,
        detail=medians,
        note="; ".join(dict.fromkeys(part for part in notes if part)),
    )


def _diverges(tables: Tables, name: str, n: int, m: int, ranks: Sequence[int]) -> Finding:
    """Return the claim that FLUTE with the main text's gradient completes at the paper's step."""
    chosen = select(tables["factor"], setting=name, n_clients=n, n_samples=m, gradient_factor=2)
    shares = [float(select(chosen, rank=k)["share_diverged"][0]) for k in ranks]
    trials = int(chosen["trials"][0])
    worst_share = max(shares)
    lost = round(worst_share * trials)
    told = ", ".join(f"{100 * share:.0f} %" for share in shares)
    return judge(
        binomial_share(trials - lost, trials),
        source='FLUTE paper, equations (3) and (5) with C.1\'s "The learning rate is set to eta = 0.03"',
        text="FLUTE with the main text's gradient (factor 2) completes at the step 0.03",
        where=f"{name}, n = {n}, m = {m}",
        statistic="share of trials that do not diverge, at the worst of the ranks",
        least=0.5,
        strict=True,
        detail=f"diverged: {told} at k = {', '.join(str(k) for k in ranks)}",
    )
