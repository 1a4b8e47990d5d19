"""Rates of false verdicts if the truth lies exactly at the claimed limit, and of true claims that are supported.

``python -m tests.statistics.verdict_rates [SAMPLES] [NAME ..]`` prints the rates from which the docstrings of
`linfed.statistics` take their figures: for each number of trials and of points, that of the worst scenario. 400 samples
take minutes for most judges, and an hour for `largest_of`. `tests/statistics/test_scaling.py` draws fewer.
"""

import sys

import numpy as np

from linfed.statistics import median_ratio
from linfed.statistics.findings import OWN_PREDICTION
from linfed.statistics.intervals import largest_factor, largest_of
from linfed.statistics.scaling import judge_farthest_off, judge_one_constant, judge_predicted_exponent
from linfed.statistics.thresholds import line_findings

TRIALS, POINTS = (5, 8, 20, 50), (3, 10, 30)
BAR = 0.035
"""Largest rate of false verdicts on each side."""

SPREAD = 0.3
SAID = {"claim": "c", "setting": "s"}


# --- noise of median 0 in the logarithm, (trials, points) -------------------------------------------------------------

NOISES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "shared": lambda rng, shape: 0.3**0.5 * rng.standard_normal(shape) + 0.7**0.5 * rng.standard_normal((shape[0], 1)),
    "skewed": lambda rng, shape: np.log(rng.exponential(size=shape) / np.log(2)),
    "uniform": lambda rng, shape: rng.uniform(-1.0, 1.0, shape),
    "heavy": lambda rng, shape: rng.standard_t(2, shape),
    "one is sharp": lambda rng, shape: rng.standard_normal(shape) * np.where(np.arange(shape[1]) == 0, 0.03, 1.0),
}
ROOTS = {
    "lognormal": lambda rng, shape: np.exp(SPREAD * rng.standard_normal(shape) - SPREAD**2),
    "chi, 4": lambda rng, shape: np.sqrt(rng.chisquare(4, shape) / 4),
    "chi, 1": lambda rng, shape: np.abs(rng.standard_normal(shape)),
}
"""Noise of root mean square 1."""


def levels(points, limit, which):
    """Return the levels of the points: all at the limit, or only the first one."""
    return np.full(points, limit) if which == "all" else np.append(limit, np.ones(points - 1))


def sides(value, high):
    """Return the verdicts of an interval (value, low, high) of a claim "at most `high`": for and against."""
    return value[2] <= high, value[1] > high


def verdicts(finding):
    return finding.verdict.value == "HOLDS", finding.verdict.value == "VIOLATED"


# --- judges: each yields a scenario's name, and a function of rng, trials and points that returns two verdicts ------


def one_constant():
    for name, noise in NOISES.items():
        for which in ("halves", "a pair", "equal"):

            def judged(rng, trials, points, noise=noise, which=which):
                constants = {"halves": np.where(np.arange(points) % 2, 1.5, 1.0), "equal": np.ones(points)}
                constants["a pair"] = np.concatenate([[0.8], np.ones(points - 2), [1.2]])
                ratios = constants[which] * np.exp(SPREAD * noise(rng, (trials, points)))
                most = {"halves": 1.5, "a pair": 1.5, "equal": 1.0}[which]
                return verdicts(judge_one_constant(ratios, claimed_high=most, claim="c", source=OWN_PREDICTION))

            yield f"{name}, {which}", judged


def farthest_off():
    for name, noise in ROOTS.items():
        for limit in (0.8, 1.25):
            for which in ("all", "one"):

                def judged(rng, trials, points, noise=noise, limit=limit, which=which):
                    ratios = levels(points, limit, which) * noise(rng, (trials, points))
                    claimed = {"claimed_low": 0.8, "claimed_high": 1.25}
                    return verdicts(judge_farthest_off(ratios, np.ones_like(ratios), **claimed, **SAID))

                yield f"{name}, {which} at {limit}", judged


def predicted_exponent():
    for name in ("exact", "noisy", "follows", "one is spread", "skewed"):

        def judged(rng, trials, points, name=name):
            x = np.geomspace(1.0, 8.0, points)
            spread = np.where(np.arange(points) == points - 1, 1.0, 0.05) if name == "one is spread" else SPREAD
            noise = NOISES["skewed" if name == "skewed" else "normal"]
            logs, predicted = 0.1 * np.log(x) + spread * noise(rng, (trials, points)), np.zeros((trials, points))
            if name == "noisy":
                predicted = SPREAD * rng.standard_normal((trials, points))
            if name == "follows":
                predicted = np.log(x) * rng.standard_normal((trials, 1))
                logs = logs + predicted
            return verdicts(judge_predicted_exponent(x, np.exp(logs), np.exp(predicted), tolerance=0.1, **SAID))

        yield name, judged


def largest_ratio():
    for name in ("normal", "shared", "skewed"):
        for which in ("all", "one"):

            def judged(rng, trials, points, name=name, which=which):
                both = np.exp(SPREAD * NOISES[name](rng, (trials, 2 * points))).T.reshape(points, 2, trials)
                both[:, 0] *= levels(points, 1.2, which)[:, None]
                return sides(largest_of(median_ratio, [tuple(pair) for pair in both]), 1.2)

            yield f"{name}, {which} at 1.2", judged


def factor():
    for name in ("normal", "shared"):
        for limit, which in ((1.2, "all"), (1.2, "one"), (1.0, "all")):

            def judged(rng, trials, points, name=name, limit=limit, which=which):
                curves = levels(points, limit, which) * np.exp(SPREAD * NOISES[name](rng, (trials, points)))
                return sides(largest_factor(curves, np.ones_like(curves)), limit)

            yield f"{name}, {which} at {limit}", judged


def lines():
    for alike in (0.0, 0.9):

        def judged(rng, trials, points, alike=alike):
            share = rng.beta(7, 3, (trials, 1))
            right = [(rng.random((trials, points)) < share) for _ in range(2)]
            right[1] = np.where(rng.random((trials, points)) < alike, right[0], right[1])
            counts = np.stack([np.full(trials, points), *(one.sum(axis=1) for one in right)], axis=-1)
            found = line_findings(np.repeat(counts[:, None], 2, axis=1), fixed="f", **SAID)[0]
            return found.verdict.value == "SUPPORTED", found.verdict.value == "NOT SUPPORTED"

        yield f"alike {alike}", judged


JUDGES = {
    "judge_one_constant": one_constant,
    "judge_farthest_off": farthest_off,
    "judge_predicted_exponent": predicted_exponent,
    "largest_of": largest_ratio,
    "largest_factor": factor,
    "line_findings": lines,
}


def rates(judged, trials, points, samples, seed=0):
    """Return the numbers of samples with a verdict for and against the claim."""
    rng = np.random.default_rng((seed, trials, points))
    return np.sum([judged(rng, trials, points) for _ in range(samples)], axis=0)


# --- power -----------------------------------------------------------------------------------------------------------

POWER = {20: (2.0, 1.6), 50: (1.6, 1.35)}
"""For numbers of trials, the factors within which equal constants and an exact level are claimed."""


def supported(trials, points, samples, seed=1):
    """Return the numbers of samples in which equal constants, and exact levels, are supported within `POWER`."""
    constants, level = POWER[trials]
    rng, count = np.random.default_rng((seed, trials, points)), np.zeros(2, dtype=int)
    for _ in range(samples):
        noise = rng.standard_normal((trials, points))
        ratios = np.exp(SPREAD * noise)
        found = judge_one_constant(ratios, claimed_high=constants, claim="c", source=OWN_PREDICTION)
        claimed = {"claimed_low": 1 / level, "claimed_high": level}
        exact = judge_farthest_off(ratios * np.exp(-(SPREAD**2)), np.ones_like(ratios), **claimed, **SAID)
        count += [verdicts(found)[0], verdicts(exact)[0]]
    return count


def main(arguments):
    """Print the rates; return 1 if one is above the bar by more than chance."""
    samples = int(arguments[0]) if arguments else 400
    bad = False
    for name in arguments[1:] or JUDGES:
        for trials in TRIALS:
            for points in POINTS:
                found = {text: rates(judged, trials, points, samples) / samples for text, judged in JUDGES[name]()}
                worst = [max(found, key=lambda text, side=side: found[text][side]) for side in (0, 1)]
                told = " | ".join(f"{found[text][side]:.4f} ({text})" for side, text in enumerate(worst))
                print(f"{name}: {trials} trials, {points} points: for | against {told}", flush=True)
                allowed = BAR + 3 * (BAR / samples) ** 0.5
                bad |= any(found[text][side] > allowed for side, text in enumerate(worst))
    for trials in POWER:
        for points in POINTS:
            constants, level = supported(trials, points, samples) / samples
            print(f"power: {trials} trials, {points} points: constants {constants:.3f}, level {level:.3f}", flush=True)
            bad |= min(constants, level) < 0.8
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
