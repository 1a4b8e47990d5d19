"""The numbers of the page on classes."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from scipy import stats

import linfed as lf
from experiments._classes import FEDAVG, LOCAL, METHODS, told

from . import CLASSES, Results, held, word

DIGITS, MIXTURE = "flute-digits", "flute-classification"
ALONE = "Each client's own softmax regression, the simplest rival, is more accurate than the best federated method"


def cell(values: np.ndarray) -> str:
    """Return a mean over trials with its standard error; how many are left where some diverged."""
    known = values[~np.isnan(values)]
    left = f" ({len(known)} of {len(values)})" if len(known) < len(values) else ""
    return f"{known.mean():.1f} ± {stats.sem(known):.1f}{left}"


def lines(results: Results, name: str, rank: int) -> Iterator[str]:
    """Yield the lines of a table like the paper's Table 1, at one rank."""
    runs = results.table(f"{name}-runs").where(rank=rank)
    partitions = runs.values("partition")
    yield f"| k = {rank} | " + " | ".join(partitions) + " |"
    for method in (name for name in METHODS if name in runs.values("method")):
        found = runs.where(method=method)
        yield f"| {told(method)} | " + " | ".join(cell(row["final_accuracy"]) for row in found.rows) + " |"
    averaged = runs.where(method=FEDAVG)
    yield "| FedAvg, own classes | " + " | ".join(cell(row["own_classes"]) for row in averaged.rows) + " |"
    if name == MIXTURE:
        yield "| the best classifier | " + " | ".join(cell(row["bayes"]) for row in averaged.rows) + " |"


def settings(runs: lf.Table) -> str:
    """Return how many settings there are, as a word."""
    return word(len(runs.values("partition")) * len(runs.values("rank")))


def counted(results: Results, name: str, text: str, where: str = "") -> str:
    """Return the verdicts of a statement over its settings, in words."""
    found = Counter(one.verdict for one in results.claims(name, text, where))
    return ", ".join(f"{verdict} {count}" for verdict, count in found.most_common())


def bullets(results: Results, name: str) -> Iterator[str]:
    """Yield what the page says of an experiment's claims, over its settings."""

    def told_of(text: str) -> str:
        return counted(results, name, text)

    above = {
        one: told_of(f"{one} is more accurate than the best of the other baselines") for one in ("FLUTE", "FLUTE*")
    }
    yield (
        f"- **FLUTE above FedRep**: {told_of('FLUTE is more accurate than FedRep')}. FLUTE\\* above FedRep\\*: "
        f"{told_of('FLUTE* is more accurate than FedRep*')}."
    )
    for what in ("classes per client", "clients"):
        plain, star = (told_of(f"The gain of {one} grows with the {what}") for one in GAINS)
        yield f"- **The gain grows with the {what}**: {plain}. Of FLUTE\\* over FedRep\\*: {star}."
    yield (
        f"- **Above all baselines?** FLUTE above the best of the others: {above['FLUTE']}. FLUTE\\*: "
        f"{above['FLUTE*']}. FLUTE\\* above FLUTE: {told_of('FLUTE* is more accurate than FLUTE')}."
    )
    without = "FLUTE is more accurate than the same algorithm without its penalty on neural collapse"
    same = told_of("FLUTE without its penalty on neural collapse is more accurate than FedRep")
    yield f"- **The penalty**: FLUTE above the same without NC: {told_of(without)}. Without NC above FedRep: {same}."
    yield f"- **Alone**: each client's own softmax regression above the best federated method: {told_of(ALONE)}."
    own = told_of("Among the client's own classes FedAvg's one model is more accurate than the best of all methods")
    yield f"- **Told its classes**: FedAvg's one model above the best of all methods, both among own classes: {own}."
    star = [told_of(f"FLUTE* has a smaller {kind} NC2 than FedRep*") for kind in ("Global", "Local")]
    nc = [told_of(f"FLUTE has a smaller {kind} NC2 than it has without NC") for kind in ("Global", "Local")]
    by_more = told_of("Where FLUTE* has the smaller Local NC2, it is so by more than in Global NC2")
    both = told_of("Global and Local NC2 are positively correlated along the rounds")
    yield (
        f"- **NC2 of FLUTE\\* below FedRep\\*'s**: Global: {star[0]}; Local: {star[1]}; by more in Local NC2: "
        f"{by_more}."
    )
    yield f"- **NC2 of FLUTE below its own without NC**: Global: {nc[0]}; Local: {nc[1]}. The two correlate: {both}."


GAINS = ("FLUTE over FedRep", "FLUTE* over FedRep*")


@held(CLASSES, DIGITS)
def digits(results: Results):
    runs = results.table(f"{DIGITS}-runs")
    for rank in runs.values("rank"):
        yield from lines(results, DIGITS, rank)
    yield from bullets(results, DIGITS)
    shared = results.shared(DIGITS, "runs")
    yield f"least held-out error on {word(shared['tuning_trials'])} other splits;"
    yield f"{shared['rounds']} rounds of {word(LOCAL)} full-gradient steps"
    yield f"with the standard error over {shared['trials']} splits"
    yield f"Over these {settings(runs)} settings, differences of paired means"


@held(CLASSES, MIXTURE)
def mixture(results: Results):
    runs = results.table(f"{MIXTURE}-runs")
    for rank in runs.values("rank"):
        yield from lines(results, MIXTURE, rank)
    yield from bullets(results, MIXTURE)
    yield f"Over these {settings(runs)} settings:"
    low, high = (counted(results, MIXTURE, "FLUTE is more accurate than FedRep", f"k = {k}") for k in (3, 9))
    yield f"above FedRep in all settings at k = 9 ({high}) and in none at k = 3 ({low}), where"
    yield f"is ahead of the best federated method in all settings ({counted(results, MIXTURE, ALONE, 'k = 3')}):"
