"""The numbers of the FedRep paper's figures, and those of a million clients."""

import numpy as np

from linfed.sweeps.progress import about

from . import FINDINGS, README, Results, fixed, held, median, only, per_cent, short, spread, tally, verdict, word

SIZES = (5, 10, 20)
CLIENTS = (10, 100, 1000, 10_000)


@held(README, "fedrep-fig3")
def caption(results: Results):
    curves, shared = results.table("fedrep-fig3-curves"), results.shared("fedrep-fig3", "curves")
    clients = curves.values("n_clients")
    yield f"distance to the true subspace against rounds, for {min(clients)} to {max(clients):,} clients"
    part = {0.1: "a tenth"}[shared["participation"]]
    told = f"d = {shared['dim']}, k = {shared['rank']}, m = {shared['n_samples']}, {part} of the clients per round"
    yield f"as this code draws it: {told}, noise variance {short(shared['noise_variance'], 0)}."
    yield f"Steps are tuned for the fewest rounds to distance {near(results)} (dashed)"


@held(README, "fedrep-fig3")
def seconds(results: Results):
    """The time that `linfed list` names."""
    yield f"After {about(results.record('fedrep-fig3')['seconds'])} on two cores"


@held(FINDINGS, "fedrep-fig3")
def reached(results: Results):
    yield f"median rounds to distance {near(results)}, with one step size for heads and representation"


def near(results):
    """Return the distance that methods are tuned for, as the claims' statistic has it."""
    statistic = only(
        one.statistic for one in results.claims("fedrep-fig3", "FedRep needs fewer rounds than GD-GD (own head step)")
    )
    found = statistic.split("distance ")[1].split()[0]
    assert f"rounds_to_{found}" in results.table("fedrep-fig3-curves").columns
    return found


@held(FINDINGS, "fedrep-million")
def million(results: Results):
    shared = results.shared("fedrep-million", "curves")
    n, d, k, m = (shared[name] for name in ("n_clients", "dim", "rank", "n_samples"))
    yield f"n = {n:,} clients in d = {d} dimensions, k = {k}, m = {m} fresh samples per client and round."
    yield f"Explicit data would take {8 * n * d * m / 1e9:.0f} GB a round"
    second = results.claim("fedrep-million", "A round takes under 1.5 s")
    memory = results.claim("fedrep-million", "The whole run takes under 1 GB")
    told = f"a round takes {second.estimate:.1f} s and all {shared['rounds']} rounds {memory.estimate:.1f} GB"
    yield f"here {told}. The distance falls as state evolution says"
    law = results.claim("fedrep-million", "The distance falls as state evolution says")
    yield f"the worst of {shared['rounds']} rounds is off by a factor of {law.estimate:.2f} {law.between(fixed(2))}."


def error(value):
    """Return an error as the table of Figure 1 has it."""
    return short(value) if value < 0.01 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


@held(FINDINGS, "fedrep-fig1")
def figure_1_table(results: Results):
    table = results.table("fedrep-fig1-clients").where(preset="paper")
    for m in SIZES:
        part = table.where(n_samples=m)
        errors = [
            median(part.where(method=name)["median"])
            for name in ("LocalOnly", "FedAvg", "FedAvg + FT", "FedRep", "Oracle")
        ]
        yield f"| {m} | {' | '.join(map(error, errors))} |"


@held(FINDINGS, "fedrep-fig1")
def figure_1_fedrep(results: Results):
    name, paired = "fedrep-fig1", "FedRep has a smaller error than"
    rivals = [one for rival in ("FedAvg", "Local only") for one in results.claims(name, f"{paired} {rival}", "^paper")]
    clients = results.claims(name, "FedRep has the smallest of the three errors, client by client", "^paper")
    trials = only(one.counts[1] for one in rivals)
    yield (
        f"**{verdict(rivals + clients)}**: FedRep has the smallest error at every m "
        f"({spread(one.counts[0] for one in rivals)} of {trials} paired trials against each rival;"
    )
    few, *more = clients
    assert [one.where for one in clients] == [f"paper: m = {m}" for m in SIZES]
    assert all(one.estimate == 1 for one in more)
    yield f"on {per_cent(few.estimate)} % of the clients at m = 5 {few.between(per_cent)}, on all at m = 10 and 20)."
    five = results.table("fedrep-fig1-clients").where(preset="paper", method="FedRep", n_samples=5)
    far = five["median"] > 0.5  # the others are below 0.001
    assert np.max(five["median"][~far]) < 1e-3
    yield f"At m = 5 {word(far.sum())} of {far.size} trials stay far from B*"
    heads = results.claims(name, "FedRep has a smaller error than FedAvg, local heads (FedPer)", "^notebook")
    few, *more = heads
    yield (
        f"with local heads (FedPer), a smaller error is {verdict(few)} at m = 5 ({few.counts[0]} of {few.counts[1]}) "
        f"and {verdict(more)} at m = 10 and 20."
    )


@held(FINDINGS, "fedrep-fig1 fedavg-fixed-point")
def figure_1_fedavg(results: Results):
    worse, tenth = "FedAvg does not improve with m", "FedAvg hardly improves with m: by less than a tenth"
    at_best, at_point = (("fedrep-fig1", "best step"), ("fedavg-fixed-point", "at the fixed point"))
    best, point = results.claim(at_best[0], worse, at_best[1]), results.claim(at_point[0], worse, at_point[1])
    assert "m = 20 against 5" in best.where

    def fall(claim):
        falls = (100 * (1 - value) for value in (claim.estimate, claim.high, claim.low))
        return "{:.1f} % [{:.1f}, {:.1f}]".format(*falls)

    yield "tuned, it hardly leaves 0 (error k = 2)."
    yield f"(That it does not improve at all, the strictest reading, is {verdict([best, point])}.)"
    estimate, interval = fall(best).split(" [")
    yield f"Its error falls by {estimate} from m = 5 to 20 [{interval};"
    yield f"at its fixed point by {fall(point)}."
    yield (
        "That it improves by less than a tenth is "
        f"{verdict([results.claim(a, tenth, b) for a, b in (at_best, at_point)])}:"
    )
    table = results.table("fedrep-fig1-clients").where(preset="paper", method="FedAvg")
    floor = min(median(row["single_model_floor"]) for row in table)
    yield f"bounded below by the single-model floor of {floor:.2f}."
    one_layer = results.table("fedavg-fixed-point-curves").where(
        method=["FedAvg, one layer", "FedAvg, one layer, K = 10"]
    )
    nearest = max(row["distance"].min(axis=1).max() for row in one_layer)
    nearest = 10.0 ** np.ceil(np.log10(nearest))
    yield f"that theory names, to {short(nearest, 0)}, and no slower than at the predicted rate"
    assert min(min(faster(row)) for row in one_layer) > 0.999


def faster(row):
    """Yield each trial's measured log rate over the predicted one, from the distance 1e-3 to 1e-11."""
    for distance, rate in zip(row["distance"], row["rate"], strict=True):
        fitted = (distance < 1e-3) & (distance > 1e-11)
        if fitted.sum() > 2:
            yield np.polyfit(row["round"][fitted], np.log(distance[fitted]), 1)[0] / np.log(rate)


@held(FINDINGS, "fedrep-fig1")
def figure_1_local(results: Results):
    text = "Local only improves with m"
    typical = results.claims("fedrep-fig1", text, "^paper", "median client")
    assert verdict(typical) == "SUPPORTED"
    yield f"improves with m in the median client ({only(one.detail for one in typical)}), but **not** in the mean"
    mean = results.claim("fedrep-fig1", text, "^paper: m = 20 against 10", "mean client")
    other = results.claim("fedrep-fig1", text, "^notebook: m = 20 against 10", "mean client")
    yield (
        f"from m = 10 to m = d = 20 (in {mean.detail} trials: {verdict(mean)}; in the notebook's reading "
        f"{other.detail})"
    )


@held(FINDINGS, "fedrep-fig4")
def figure_4(results: Results):
    small = results.claims("fedrep-fig4", "FedRep's error on a new client is small once m_new >= k", "^paper")
    high = results.claims("fedrep-fig4", "FedAvg's error on a new client stays high", "^paper")
    alone = results.claims("fedrep-fig4", "Local only's error is not small below m_new = d", "^paper")
    alone += results.claims("fedrep-fig4", "Local only's error is small from m_new = d on", "^paper")
    first, last = small[0], high[-1]
    assert (first.where, last.where) == ("paper: m_new = 2", "paper: m_new = 40")
    share = fixed(2, 100.0)
    yield (
        f"**{verdict(small + high + alone)}**: with FedRep's representation m_new = k samples are enough (median error "
        f"{share(first.estimate)} % of ||phi||^2 {first.between(share)}), Local only needs m_new = d, and FedAvg with "
        f"one local step stays high (at 40 samples {last.estimate:.2f} of ||phi||^2 {last.between(fixed(2))})."
    )
    ten = results.claims(
        "fedrep-fig4", "FedAvg, K = 10's error on a new client stays high", "m_new = (2|3|5|10|20|40)$"
    )
    two, twenty = ten[0], ten[-2]
    yield f"**{verdict(ten)}**: that FedAvg does not learn the representation. With *ten* local steps it does"
    yield (
        f"(median error {two.estimate:.4f} of ||phi||^2 at m_new = 2 {two.between(fixed(4))}, {twenty.estimate:.4f} at "
        "20)"
    )


@held(FINDINGS, "fedrep-fig3")
def figure_3_table(results: Results):
    curves = results.table("fedrep-fig3-curves").where(preset="paper")
    for n in CLIENTS:
        rows = [curves.where(n_clients=n, method=method) for method in ("FedRep", "10GD-GD", "GD-GD")]
        rounds = [median(row["rounds_to_0.01"]) for row in rows]
        told = [f"{count:.0f}" if np.isfinite(count) else f"never in {rows[0]['rounds']}" for count in rounds]
        yield f"| {n:,} | {' | '.join(told)} |"


@held(FINDINGS, "fedrep-fig3")
def figure_3_supported(results: Results):
    name = "fedrep-fig3"
    more = results.claims(name, "FedRep converges in fewer rounds with more clients", "^paper")
    fewer = [
        one
        for rival in ("10GD-GD", "10GD-GD (own head step)", "GD-GD (own head step)")
        for one in results.claims(name, f"FedRep needs fewer rounds than {rival}", "^paper: n = (100|1,000|10,000)$")
    ]
    curves = results.table("fedrep-fig3-curves").where(preset="paper")
    for n in CLIENTS[1:]:  # of GD-GD with the common step no claim is made
        first, second = (curves.where(n_clients=n, method=method)["rounds_to_0.01"] for method in ("FedRep", "GD-GD"))
        assert (first < second).all()
    gain = "gains less from more clients than FedRep"
    ten, one = (results.claim(name, f"{rival} {gain}", "^paper") for rival in ("10GD-GD", "GD-GD"))
    yield f"**{verdict([*more, *fewer, ten, one])}**: FedRep converges in fewer rounds with more clients"
    yield f"at every n from 100 on ({only(claim.detail for claim in fewer)} paired trials each)"
    yield (
        f"(n = 100 to 10,000: {ten.estimate:.1f} times more than 10GD-GD {ten.between(fixed(1))}, {one.estimate:.2f} "
        f"times more than GD-GD {one.between(fixed(2))}; in the notebook's reading the latter is "
        f"{verdict(results.claim(name, f'GD-GD {gain}', '^notebook'))})."
    )


@held(FINDINGS, "fedrep-fig3")
def figure_3_rest(results: Results):
    name = "fedrep-fig3"
    before = results.claim(name, "10GD-GD needs fewer rounds than GD-GD", "^paper: n = 10,000")
    yield f'**{verdict(before)}**: "10GD-GD before GD-GD" at n = 10,000, where ten head steps'
    yield f"(10GD-GD is the faster in {before.detail} trials)"
    own = results.claim(name, "10GD-GD (own head step) gains less from more clients than FedRep", "^paper")
    yield f"**{verdict(own)}**: with a head step of its own, 10GD-GD gains about as much from n as FedRep"
    yield f"(FedRep's factor over its own: {own.estimate:.2f} {own.between(fixed(2))})"
    many = results.table("fedrep-fig3-curves").where(preset="paper", n_clients=10_000)
    rounds = [median(many.where(method=method)["rounds_to_0.01"]) for method in ("10GD-GD (own head step)", "FedRep")]
    yield "nearly closes the gap: {:.0f} rounds against {:.0f} at n = 10,000.".format(*rounds)
    few = results.claim(name, "FedRep needs fewer rounds than 10GD-GD", "^paper: n = 10$")
    _, differ, _, trials, larger, _ = few.counts
    yield (
        "**n = 10 is a case of its own**: one participant a round is fewer than k = 2, so Theorem 1 cannot apply, and "
        f"FedRep is not the fastest (10GD-GD needs fewer rounds in {larger} of the {differ} trials that differ, of "
        f"{trials})."
    )
    notebook = results.table("fedrep-fig3-curves").where(preset="notebook")
    lost = {(row["method"], row["n_clients"]): int((~np.isfinite(row["distance"][:, -1])).sum()) for row in notebook}
    worst = lost.pop(("GD-GD", 10))
    assert not any(count for (method, _), count in lost.items() if method == "FedRep")
    yield "conventions ([figure](fedrep-fig3-notebook.png)) from n = 100 on."
    yield (
        f"gradient heads diverge in up to {max(lost.values())} of {trials} trials at their best step (GD-GD at n = 10 "
        f"in {worst}), and FedRep in none."
    )


@held(FINDINGS, "all experiments")
def trials(results: Results):
    names = {
        "fedrep-fig1": "clients",
        "fedrep-fig3": "curves",
        "fedrep-fig4": "clients",
        "flute-fig1": "runs",
        "flute-fig3": "runs",
        "flute-fig4": "curves",
        "flute-divergence": "phase",
        "flute-example1": "directions",
        "flute-theorem51": "floors",
        "shortcut-bound": "terms",
        "shortcut-convergence": "curves",
    }
    yield (
        f"From {only(results.shared(*one)['trials'] for one in names.items())} trials a setting unless it says "
        "otherwise"
    )


@held(FINDINGS, "fedrep-theorem1")
def theorem_1(results: Results):
    name, bound = "fedrep-theorem1", "dist_T <= (1 - eta E0 sigma_min^2 / 2)^(T/2) dist_0 in every round"
    bound += ", if m is what it asks for with C = 1"
    claims = [one for one in results.claims(name, bound) if one.verdict != "HYPOTHESES FAIL"]
    holds, violated, vacuous = tally(claims, "HOLDS", "VIOLATED", "VACUOUS")
    assert holds + violated + vacuous == len(claims)
    yield f"its unnamed constant C at 1: it HOLDS in {holds} of {len(claims)} settings"
    faster = results.claims(name, bound.replace("(T/2)", "(T)"))
    assert tally(faster, "HOLDS", "VIOLATED", "VACUOUS") == [holds, violated, vacuous]
    told = f"is VIOLATED in the {word(violated)} settings with two clients (there C = 1 is too small)"
    yield f"{told}, and VACUOUS for one participant"
    name = "fedrep-bound-samples"
    enough = results.claims(name, "C = 1 is enough")
    rare = "C = 1 is enough for the failure probability that the theorem allows, in the first round, k = 1"
    rarely = results.claims(name, rare)
    count = tally(enough, "SUPPORTED")[0]
    yield f"C = 1 is enough for 95 % of the trials in {count} of {len(enough)} settings (SUPPORTED)"
    assert "95 % of the trials" in only(one.statistic for one in enough)
    assert tally(enough, "NOT SUPPORTED") == [0]
    yield f"({verdict(rarely)} in {len(rarely)} of {len(rarely)})."
    constant = "up to one constant to a factor of 10"
    asked = results.claim(name, f"The samples that a run needs are what Theorem 1 asks for, {constant}", "^33 settings")
    orders, show = "orders of magnitude", fixed(1)
    moves = f"moves by {asked.estimate:.1f} {orders} {asked.between(show)} over 33 settings"
    yield f"{moves} (tight to a factor of 10: {verdict(asked)})"
    rival = results.claim(name, f"The samples that a run needs are k + 2 + d k / p, {constant}", "^33 settings")
    yield f"by {rival.estimate:.1f} {rival.between(show)} with k + 2 + d k/p in its place ({verdict(rival)})"
    own = f"The samples that a run needs are `fedrep_predicted_samples`, {constant}"
    first, drawn = (results.claim(name, own, where) for where in ("^33 settings", "^32 settings"))
    yield f"by {first.estimate:.1f} {first.between(show)} with `lf.theory.fedrep_predicted_samples` ({verdict(first)};"
    yield f"{verdict(drawn)} on 32 settings that were drawn afterwards, {drawn.estimate:.1f} {drawn.between(show)})."
    figures = results.claims(name, "The paper's figures have the samples that Theorem 1 asks for with C = 1")
    count = len(figures)
    yield f"The paper's own figures have fewer samples than it asks for with C = 1 in {count} of {count} readings"
    assert verdict(figures) == "NOT SUPPORTED"


@held(FINDINGS, "fedrep-refitting")
def refitted_heads(results: Results):
    claims = results.claims("fedrep-refitting", "The best schedule is at its limit at the end")
    supported, unsure, refuted = tally(claims, "SUPPORTED", "INCONCLUSIVE", "NOT SUPPORTED")
    yield (
        f"That limit is reached to 10 % in {supported} of {len(claims)} settings; it is INCONCLUSIVE in {word(unsure)} "
        f"(m = k + 2) and NOT SUPPORTED in {word(refuted)}, a random start and Student's t"
    )
    assert {one.where for one in claims if one.verdict == "NOT SUPPORTED"} == {"random start", "Student t, 5 d. f."}


@held(FINDINGS, "fedrep-schedule")
def remembering_heads(results: Results):
    name, text = "fedrep-schedule", "Heads by one gradient step a round, which remember, come below the limit"
    one, few = (results.claim(name, text, where) for where in ("^heads of second moment I", "^5 of 50"))
    kept = results.claim(name, "So do they with a fixed step on heads", "^5 of 50")
    yield f"which remember, end at {one.estimate:.2f} {one.between(fixed(2))} of it ({verdict(one)})"
    yield f"where 5 of 50 clients take part with the step on B for a head step at {few.estimate:.2f}"
    yield f"at {few.estimate:.2f} {few.between(fixed(2))} ({verdict(few)}), with a fixed one at {kept.estimate:.2f}"
    yield f"with a fixed one at {kept.estimate:.2f} {kept.between(fixed(2))} ({verdict(kept)})."
    plain = results.claim(name, "a/t, with a tuned, is as good as the best schedule")
    yield f"and so is a/t ({verdict(plain)})"
    tuned = results.claim(
        name, "a/(t + t0), with both tuned, is as good as the best schedule", "^heads of second moment I"
    )
    yield f"a/(t + t0) with both tuned is as good ({verdict(tuned)}, {tuned.estimate:.2f} {tuned.between(fixed(2))})"


@held(FINDINGS, "fedrep-samples")
def scaling_predictions(results: Results):
    two = fixed(2)
    samples = results.claim("fedrep-samples", "The least m is what lf.predict says")
    rounds = results.claim("fedrep-rounds", "The least rounds are what lf.predict says")
    settings = [one.where.split()[0] for one in (samples, rounds)]
    yield f"**{verdict([samples, rounds])}**: `lf.predict` says the least m, to a factor of {samples.estimate:.2f}"
    yield f"to a factor of {samples.estimate:.2f} {samples.between(two)} in the worst of {settings[0]} settings"
    yield f"and the fewest rounds, to {rounds.estimate:.2f} {rounds.between(two)} in the worst of {settings[1]}."
    table = results.table("fedrep-samples-samples")
    yield f"what half of up to {max(table.values('trials'))} runs need to come"
    ends = f"from distance {only(table.values('delta'))} to {only(table.values('level'))}"
    yield f"{ends}, up to {max(table.values('n_clients')):,} clients and d = {max(table.values('dim')):,}."


@held(FINDINGS, "fedrep-samples")
def scaling_exponents(results: Results):
    name, two = "fedrep-samples", fixed(2)
    held_ = {letter: results.claim(name, f"m - k - 1 grows like d k / p: in {letter}") for letter in "pdk"}
    p, d, k = (f"{held_[letter].estimate:.2f}" for letter in "pdk")
    yield f"grows like d k/p: {verdict(held_.values())}, with exponents {p} in p, {d} in d and {k} in k."
    rounds = results.claim("fedrep-rounds", "The rounds grow like kappa^2")
    assert verdict(results.claim(name, "kappa raises no m")) == verdict(rounds) == "HOLDS"
    half = "With Theorem 1's m, c = 1, half of the runs come from distance 0.9 to 0.01 in all settings"
    enough = results.claim(name, half)
    above = [results.claim(name, f"The least m grows at most as Theorem 1's in {size}") for size in ("kappa", "k")]
    three = fixed(3)
    told = f"so is c = {three(enough.estimate)} {enough.between(three)}"
    yield f"and c = 1 half of the runs get there in all of {enough.where.split()[0]} settings"
    yield f"settings ({verdict(enough)}; {told})"
    yield f"grows at most as its bound in kappa and in k ({verdict(above)})."
    factor, fourth, square = tight = [
        results.claim(name, f"Theorem 1's m is tight {to}")
        for to in ("to a factor of 10: one c serves, and a tenth of it nowhere", "in kappa", "in k")
    ]
    yield f"which the theorem does not claim: {verdict(tight)} to a factor of 10 (the largest of the least constants is"
    yield f"is {round(factor.estimate, -3):,.0f} times the smallest)"
    yield f"in kappa (exponent {fourth.estimate:.2f} {fourth.between(two)} for 4, given rounds that grow like kappa^2;"
    yield f"kappa costs rounds, with exponent {rounds.estimate:.2f})"
    yield f"and in k where d/p rules ({square.estimate:.2f} {square.between(two)} for 2)."


@held(FINDINGS, "fedrep-samples")
def scaling_theta(results: Results):
    name, two = "fedrep-samples", fixed(2)
    total, constant = "rounds that grow like kappa^2 grow like kappa^4", "a fixed number of rounds grow like k"
    fourth = results.claim(name, f"The samples per client over {total}")
    linear = results.claim(name, f"Where d / p rules the samples per client over {constant}")
    logarithm = results.claim(name, "With many clients the least m grows like log(n) + d/n")
    yield f"kappa^4 over rounds that grow like kappa^2 is {verdict(fourth)}"
    yield f"over rounds that grow like kappa^2 is {verdict(fourth)} ({fourth.estimate:.2f} {fourth.between(two)}), and"
    yield f"and k over a fixed number of rounds, where d/p rules, is {verdict(linear)}"
    yield f"where d/p rules, is {verdict(linear)} ({linear.estimate:.2f} {linear.between(two)})."
    yield f"The log(n) + d/n of section 4.2 is {verdict(logarithm)} with many clients"
    yield f"with many clients (its power is {logarithm.estimate:.2f} {logarithm.between(two)} for 1)."


@held(FINDINGS, "fedrep-samples")
def scaling_laws(results: Results):
    name, two = "fedrep-samples", fixed(2)
    near = results.claims(
        "fedrep-near-truth", "Near B* angles neither grow nor shrink at p m = (d-k+1) k / (7 + k/m), for p = n"
    )
    assert {(one.least, one.most) for one in near} == {(0.98, 1.02)}
    told = f"within 2 % in {len(near)} of {len(near)} settings ({verdict(near)})"
    yield f"the threshold near B* is p m = (d-k+1) k/(7 + k/m), {told}"
    short_, long_ = (
        results.claim(name, "A whole run needs more than the threshold near B*", f"^{rounds} rounds")
        for rounds in (40, 640)
    )
    assert (verdict(short_), verdict(long_)) == ("SUPPORTED", "INCONCLUSIVE")
    yield f"A run of 40 rounds needs {short_.estimate:.2f} times as many samples {short_.between(two)},"
    yield f"one of 640 rounds {long_.estimate:.2f} times {long_.between(two)}."
    spectral = "On fixed samples the least m is what Marchenko and Pastur's spectrum says"
    spectrum = results.claim("fedrep-fixed-samples", spectral)
    worst = f"{spectrum.where.split()[0]} settings is off by {spectrum.estimate:.2f} {spectrum.between(two)}"
    yield f"{verdict(spectrum)} at {100 * (spectrum.most - 1):.0f} % (the worst of {worst})."
    floor = results.claim("flute-theorem51", "FLUTE's floor is a power of (d + n - k)/(n m)")
    yield f"FLUTE's floor is a power of (d + n - k)/(n m): {verdict(floor)}, {floor.estimate:.2f} {floor.between(two)}."


@held(FINDINGS, "fedrep-pays")
def pays(results: Results):
    name, shared = "fedrep-pays", results.shared("fedrep-pays", "map")
    yield f"on one's own, d = {shared['dim']}, k = {shared['rank']}."
    lines = [
        results.claims(name, f"FedRep pays from {line}")
        for line in (
            "the predicted number of clients on",
            "where there are more samples than unknowns",
            "m ~ log(n) + d/n on, the two constants chosen in hindsight",
        )
    ]
    law, counted, paper = (tally(line, "SUPPORTED", "INCONCLUSIVE", "NOT SUPPORTED") for line in lines)
    (missed,) = (one for one in lines[0] if one.verdict == "NOT SUPPORTED")
    found, told = (float(part.split()[-1 if "for" in part else 0]) for part in missed.detail.split(", "))
    yield f"to a factor of {missed.most}, at {law[0]} of {sum(law)} sample sizes and noise levels (SUPPORTED)"
    yield (
        f"INCONCLUSIVE at {law[1]} and NOT SUPPORTED at {law[2]}, where FedRep pays earlier ({found:.1f} clients for "
        f"{told:.1f})"
    )
    yield f"More samples than unknowns says it at {counted[0]} of {sum(counted)}"
    yield f"with the best two constants in hindsight, at {paper[0]}."
    risks = results.claims(name, "From 1.25 times the edge on, up to a sine of 0.37, FedRep's risk is the law's")
    quiet, loud = (one.verdict for one in risks)
    yield f"near its edge it is off ({quiet} at noise 0.3, {loud} at 1)."


@held(FINDINGS, "fedrep-pays")
def federation_helps(results: Results):
    name, two = "fedrep-pays", fixed(2)
    text = "A client needs fewer samples with FedRep than with {} without federation"
    squares, ridge = (results.claims(name, text.format(rival)) for rival in ("least squares", "the best ridge"))
    where = {one.where: one for one in ridge}
    assert {one.where for one in squares} == set(where)
    judged = [one for one in squares + ridge if one.verdict != "HYPOTHESES FAIL"]
    yield f'federation helps" is **{verdict(judged)}**.'
    assert all("a tenth of the risk of predicting 0" in one.statistic for one in judged)
    yield "is a tenth of that of predicting 0, and"
    settings = list(dict.fromkeys(one.where for one in judged))
    sizes = {
        noise: [one.split("n = ")[1] for one in settings if one.startswith(f"noise std {noise}")]
        for noise in ("0.3", "1.0")
    }
    quiet, loud = (f"{found[0]} to {found[-1]}" for found in sizes.values())
    yield f"in all {len(settings)} settings (n = {quiet} at noise 0.3, {loud} at noise 1)"
    fifty = results.claim(name, text.format("least squares"), "^noise std 0.3, n = 50$")
    yield f"at n = 50 and noise 0.3 {fifty.detail.split(';')[0]}: a ratio of {fifty.estimate:.2f} {fifty.between(two)}."
    few, noisy = where["noise std 0.3, n = 2"], where["noise std 1.0, n = 2"]
    assert {few.verdict, noisy.verdict} == {"HYPOTHESES FAIL"}
    yield f"FedRep needs {noisy.estimate:.2f} times as many samples at n = 2 and noise 1 {noisy.between(two)}"
    yield f"and {few.estimate:.2f} times at noise 0.3 {few.between(two)}."
    even = results.claims(name, f"{text.format('the best ridge')}, from (log(n) + d/n)/d = 1/5 down")
    yield f"and d/{1 / only(one.least for one in even):.0f} stands for"
    assert verdict(even) == "SUPPORTED"
    quiet, loud = (one for one in even if one.where.endswith("a tenth"))
    yield f"Both need as many where (log(n) + d/n)/d is {quiet.estimate:.2f} at noise 0.3 {quiet.between(two)}"
    yield f"and {loud.estimate:.2f} at noise 1 {loud.between(two)};"
    third = [f"{one.estimate:.2f} {one.between(two)}" for one in even if one.where.endswith("a third")]
    yield f"for a third of the risk of predicting 0 in place of a tenth at {' and '.join(third)}."


@held(FINDINGS, "fedrep-state-evolution")
def eight_regimes(results: Results):
    name = "fedrep-state-evolution"
    medians, bands = (results.claims(name, text) for text in ("Runs go as predicted", "Their band is as predicted"))
    assert verdict([*medians, *bands]) == verdict(medians)
    assert sorted({one.most for one in medians}) == [1.05, 1.1]
    runs = min(row["trials"] for row in results.table(f"{name}-curves"))
    worst = max(medians, key=lambda one: one.estimate)
    yield f"the predicted median over {runs:,} runs and more"
    count = len(medians)
    yield f"is within 5 % (10 % for gradient heads) in {count} of {count} regimes ({verdict(medians)}; the worst"
    yield f"the worst round of all is off by {worst.estimate:.2f} {worst.between(fixed(2))})"
