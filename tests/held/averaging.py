"""The numbers of the averaging family's page."""

from collections import Counter

from . import AVERAGING, Results, fixed, held, only, word

NAME = "averaging-family"


def counted(results: Results, text: str) -> str:
    """Return the verdicts of a statement over its settings, in words."""
    found = Counter(one.verdict for one in results.claims(NAME, text))
    return ", ".join(f"{verdict} {count}" for verdict, count in found.most_common())


@held(AVERAGING, NAME)
def settings(results: Results):
    table = results.table(f"{NAME}-runs")
    yield f"in d = 10 dimensions, {only(table.values('trials'))} trials, one step for all"
    yield f"{word(len(table.values('setting')))} settings: local steps, participants"


@held(AVERAGING, NAME)
def ends(results: Results):
    (drift,) = results.claims(
        NAME, "With everybody FedAvg ends further from the optimum than with one local step: clients drift"
    )
    yield f"than at one ({drift.verdict}, {drift.detail} trials)."
    both = [counted(results, f"{name} ends at the optimum") for name in ("SCAFFOLD", "FedSCAVAR")]
    yield f"end at the optimum in all eight settings ({both[0]}, {both[1]})."
    printed = results.claims(NAME, "SCAFFOLD, printed weights ends at the optimum")
    (unequal,) = [one for one in printed if "unequal" in one.where]
    equal = [one for one in printed if one is not unequal]
    yield f"lead there with equal counts ({only(one.verdict for one in equal)} {len(equal)})"
    yield f"with unequal ones ({unequal.verdict}, {unequal.detail} trials)."


@held(AVERAGING, NAME)
def rivals(results: Results):
    prox = counted(results, "FedProx ends nearer to the optimum than FedAvg")
    yield f"ends nearer to the optimum than FedAvg ({prox});"
    single = "FedAvg with one local step, the simplest rival, ends nearer to the optimum than FedProx"
    yield f"which costs no more, ends nearer still ({counted(results, single)})."
    rolex = Counter(
        one.verdict
        for one in results.claims(NAME, "FedRolex with half the model ends further from the optimum than FedAvg")
    )
    (everybody,) = results.claims(
        NAME, "FedRolex with half the model ends further from the optimum than FedAvg", "p = 20"
    )
    assert (everybody.verdict, rolex["INCONCLUSIVE"]) == ("INCONCLUSIVE", 1)
    yield f"where some take part (SUPPORTED {rolex['SUPPORTED']}), and not clearly so with everybody (INCONCLUSIVE 1)."
    more = Counter(one.verdict for one in results.claims(NAME, "FedSCAVAR needs fewer rounds than SCAFFOLD"))
    yield (
        f"FedSCAVAR needs fewer rounds than SCAFFOLD: NOT SUPPORTED {more['NOT SUPPORTED']}, and with everybody both "
        f"are the same (VACUOUS {more['VACUOUS']})."
    )


@held(AVERAGING, NAME)
def memories(results: Results):
    text = "FedAvg settles at the spread that its stationary covariance predicts"
    base = results.claim(NAME, text, "^K = 5, p = 5, h = 1$")
    yield (
        f"mean square about its end is {fixed(2)(base.estimate)} times {base.between(fixed(2))} what its stationary "
        f"covariance predicts ({counted(results, text)})."
    )
    yield (
        "settles nearer to its end than FedAvg to the same "
        f"({counted(results, 'FedVARP settles nearer to its own end than FedAvg')}), which is FedAvg's with everybody "
        f"({counted(results, 'FedVARP ends at the fixed point of FedAvg with everybody')}): the drift stays."
    )
    clusters = counted(results, "ClusterFedVARP settles nearer to its own end than FedAvg")
    yield f"ClusterFedVARP settles nearer to its end than FedAvg is {clusters}."
