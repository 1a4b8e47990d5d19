"""FLUTE paper, Figure 1: the mean client error of FLUTE, FedRep and FedRep (RI) against rounds, Gaussian regressors.

The truth is the paper's, phi_i ~ N(0, I_d). Its d, k, n, m, sigma, its step and its rounds are not in the text. Chosen
here, after its Figure 3: d = 10, n = 30, m = 20, noise variance 0.3, k in {2, 4, 6, 8}. Varied: m = 100; no noise; all
sizes doubled. Everybody takes part, on one fixed data set, for 600 rounds, by when the tuned runs have settled. FLUTE
starts at its small Gaussian B and W, FedRep at the method of moments, FedRep (RI) at the Q factor of FLUTE's B.

Steps: each method's is tuned on separate trials over one common grid, for the mean of log10 error over the first 300
rounds (fast and low) in nine of ten trials; beside it, all methods at the step 0.03 of the paper's Figure 3, once with
FedRep's own mean over clients and once with a sum over clients, as FLUTE has it (`experiments._flute`).

"Fewer rounds" means fewer to 95 % of the way, trial by trial, from the error at B = 0 to the largest of the three tuned
methods' final errors, so that one level serves all speeds, every tuned method gets there, and levels compare across k.

References: Liu, Shen and Yang 2024, section 7.1 and Figure 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from linfed.statistics.findings import Finding, by_sentence
from linfed.study.run import Tables, select

from ._flute import (
    FEDREP,
    FEDREP_RI,
    FLUTE,
    SMALL_RANK,
    SPEED_LABELS,
    SPEEDS,
    STEP_SIZES,
    TIE,
    Setting,
    curves_figure,
    end_claims,
    gain_claim,
    median,
    note,
    resampled,
    run_setting,
    setting_tables,
    speed_claims,
    tuning_grid,
    worst,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUMMARY = "FLUTE paper, Figure 1: mean client error against rounds, FLUTE, FedRep and FedRep (RI), k = 2 to 8"

MAIN = "main"
VARIATIONS = {MAIN: "", "m = 100": "m100", "noiseless": "noiseless", "doubled": "doubled"}
"""Variations, and the names of their figures."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the main setting, none of them the paper's; the variations change one thing each."""

    n_clients: int = 30
    dim: int = 10
    ranks: tuple[int, ...] = (2, 4, 6, 8)
    n_samples: int = 20
    many_samples: int = 100
    noise_variance: float = 0.3
    variations: tuple[str, ...] = tuple(VARIATIONS)
    rounds: int = 600
    trials: int = 50
    seed: int = 0
    step_sizes: tuple[float, ...] = STEP_SIZES
    tuning_trials: int = 10
    tuning_rounds: int = 300

    def quick(self) -> Config:
        """Return fewer trials, rounds and steps, two ranks and two variations."""
        return replace(
            self,
            ranks=(self.ranks[0], self.ranks[-1]),
            variations=self.variations[:2],
            trials=10,
            tuning_trials=4,
            rounds=200,
            tuning_rounds=200,
            step_sizes=self.step_sizes[1:-1:3],
        )


def cells(config: Config) -> list[Setting]:
    """Return the settings, the long ones first."""
    found = [_setting(config, name, k) for name in config.variations for k in config.ranks]
    return sorted(found, key=lambda s: s.n_clients * s.rank, reverse=True)


def _setting(c: Config, name: str, rank: int) -> Setting:
    times = 2 if name == "doubled" else 1
    return Setting(
        name=name,
        dim=times * c.dim,
        n_clients=times * c.n_clients,
        n_samples=c.many_samples if name == "m = 100" else times * c.n_samples,
        rank=times * rank,
        noise_variance=0.0 if name == "noiseless" else c.noise_variance,
        rounds=c.rounds,
        trials=c.trials,
        seed=c.seed,
        step_sizes=c.step_sizes,
        tuning_trials=c.tuning_trials,
        tuning_rounds=c.tuning_rounds,
    )


def run_cell(cell: Setting) -> dict[str, Any]:
    """Tune on separate trials, then run the trials that count, at all speeds."""
    return run_setting(cell)


def tables(config: Config, results: Sequence[dict[str, Any]]) -> Tables:
    """Return curves, statistics of every trial, tuning and references as tidy tables."""
    return setting_tables(cells(config), results)


def _variations(tables: Tables) -> list[str]:
    return [name for name in VARIATIONS if name in tables["summary"]["setting"]]


def _ranks(tables: Tables, name: str) -> list[int]:
    return [int(k) for k in np.unique(select(tables["summary"], setting=name)["rank"])]


def plot(tables: Tables) -> dict[str, Figure]:
    """Return the curves of each variation, a row for each speed, and the tuning."""
    names = _variations(tables)
    rows = {name: [(SPEED_LABELS[speed], speed, {"setting": name}) for speed in SPEEDS] for name in names}
    figures = {VARIATIONS[name]: curves_figure(tables, rows[name], _ranks(tables, name)) for name in names}
    return {**figures, "tuning": tuning_grid(tables, [(name, {"setting": name}) for name in names])}


def claims(tables: Tables) -> list[Finding]:
    """Return what the paper says of Figure 1, for each variation, rank and speed."""
    names = _variations(tables)
    settings = [(f"{name}, k = {k}", {"setting": name, "rank": k}) for name in names for k in _ranks(tables, name)]
    found = [
        *speed_claims(tables, FEDREP_RI, settings),
        *end_claims(tables, (FEDREP, FEDREP_RI), settings),
        *(
            gain_claim(
                tables,
                speed,
                FEDREP_RI,
                _ranks(tables, name),
                signed=True,
                text=f"FLUTE's gain in rounds over {FEDREP_RI} is larger for small k",
                where=name,
                setting=name,
            )
            for speed in SPEEDS
            for name in names
        ),
        *(
            _final_gain(tables, speed, rival, name)
            for rival in (FEDREP, FEDREP_RI)
            for speed in SPEEDS
            for name in names
        ),
    ]
    return by_sentence(found)


def _final_gain(tables: Tables, speed: str, rival: str, name: str) -> Finding:
    """Return the claim that FLUTE's gain in the final error is larger at the smallest rank."""
    ranks = _ranks(tables, name)

    def gains(k: int) -> Any:
        chosen = select(tables["summary"], speed=speed, setting=name, rank=k)
        mine, other = (worst(select(chosen, method=method)["final"]) for method in (FLUTE, rival))
        gain = 1 - mine / other
        return 100 * np.where(np.abs(gain) <= TIE, 0.0, gain)

    small, large = gains(ranks[0]), gains(ranks[-1])
    index = resampled(len(small))
    low, high = np.quantile(median(small[index]) - median(large[index]), (0.025, 0.975))
    told = ", ".join(f"{float(median(gains(k))):.2g}" for k in ranks)
    return Finding(
        source=SMALL_RANK,
        text=f"FLUTE's gain in the final error over {rival} is larger for small k",
        where=f"{speed}: {name}",
        statistic="median gain in per cent of the rival's error (a tie is none), at the smallest k less at the largest",
        estimate=float(median(small) - median(large)),
        low=float(low),
        high=float(high),
        least=0.0,
        strict=True,
        detail=f"{told} % at k = {', '.join(str(k) for k in ranks)}",
        note="; ".join(
            dict.fromkeys(
                part
                for k in (ranks[0], ranks[-1])
                if (part := note(tables, speed, (FLUTE, rival), setting=name, rank=k))
            )
        ),
    )
