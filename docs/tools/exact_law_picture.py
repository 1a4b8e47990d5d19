"""Draw docs/figures/exact-law.png: histograms of FedRep's distance under the engines "explicit" and "projected".

Run ``python -m docs.tools.exact_law_picture`` (about a minute). It also prints the run time of both engines and the
p-values of the two-sample tests. The engines use different seeds, so their trials are independent.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import ks_2samp

import linfed as lf
from docs.tools.paths import FIGURES
from linfed.figures import style as plotting

PICTURE = FIGURES / "exact-law.png"
PROBLEM = lf.SharedRepresentation(n_clients=50, dim=20, rank=2, noise_std=1e-3**0.5)
ALGORITHM = lf.FedRep(rank=2, step_size=0.5, init=lf.AtDistance(0.9))
DATA = lf.FreshSamples(n_samples=5)
SEEDS = {"explicit": 1, "projected": 2}
COLOURS = {"explicit": "#56B4E9", "projected": "black"}
ROUNDS = (1, 10)
TRIALS = 40_000
BINS = 60
SHOWN = (0.0005, 0.9995)


def distances(engine: str) -> np.ndarray:
    """Return the distance after each of `ROUNDS`, (trials, 2), and print the run time."""
    result = lf.simulate(
        ALGORITHM,
        PROBLEM,
        data=DATA,
        n_rounds=max(ROUNDS),
        trials=TRIALS,
        seed=SEEDS[engine],
        metrics=["subspace_distance"],
        engine=engine,
    )
    print(f"{engine}: {result.seconds:.1f} s for {TRIALS} trials of {max(ROUNDS)} rounds")
    return result.metrics["subspace_distance"][:, ROUNDS]


def main() -> None:
    """Run both engines, compare their distances and draw the histograms."""
    found = {engine: distances(engine) for engine in SEEDS}
    with plotting.style():
        figure = Figure(figsize=(plotting.PAGE_WIDTH, 2.2), layout="constrained")
        axes = figure.subplots(1, 2)
        for column, (ax, round_) in enumerate(zip(axes, ROUNDS, strict=True)):
            samples = {engine: values[:, column] for engine, values in found.items()}
            p_value = ks_2samp(*samples.values()).pvalue
            medians = " and ".join(f"{np.median(values):.4f}" for values in samples.values())
            print(f"after {round_} round(s): medians {medians}, two-sample p = {p_value:.2f}")
            edges = np.linspace(*np.quantile(list(samples.values()), SHOWN), BINS + 1)
            for engine, values in samples.items():
                filled = engine == "explicit"
                look = {"fill": filled, "color": COLOURS[engine], "linewidth": 0.0 if filled else 0.8}
                ax.stairs(np.histogram(values, edges)[0], edges, label=engine, **look)
            ax.set_xlim(edges[0], edges[-1])
            ax.set_axisbelow(True)
            ax.set_xlabel("subspace distance")
            ax.set_title(f"after {round_} round{'s' * (round_ > 1)}: two-sample p = {p_value:.2f}")
        axes[0].set_ylabel("trials per bin")
        axes[1].legend(loc="upper right")
        figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
