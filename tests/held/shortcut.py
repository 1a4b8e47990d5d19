"""The numbers of the shortcut draft, in docs/findings.md and in its page, and of the page on the exact law."""

import importlib
import importlib.util

import numpy as np

from linfed.reproduction.experiments import load

from . import EXACT_LAW, FINDINGS, SHORTCUT, TOP, Results, fixed, held, median, only, per_cent, short, spread, verdict

CONVERGENCE, LOST, PHASE, SEARCH = "shortcut-convergence", "shortcut-lost", "shortcut-phase", "shortcut-search"


def sizes(results, name=LOST):
    """Return n, d and k, as the shortcut experiments share them."""
    load(name, TOP / "experiments")  # its folder becomes importable
    return importlib.import_module("experiments._shortcut").Sized().whole


def learned(results, method, where=""):
    """Return the claims that a method learns B, and their counts of trials."""
    found = results.claims(CONVERGENCE, f"{method} learns B", where)
    return found, [one.counts[0] for one in found], only(one.counts[1] for one in found)


@held(FINDINGS, CONVERGENCE)
def who_learns(results: Results):
    closed = [one for order in ("", ", gauss-seidel") for one in learned(results, f"(2)-(5){order}")[0]]
    assert verdict(closed) == "NOT SUPPORTED"
    counts = spread(one.counts[0] for one in closed)
    yield f"B is learned in {counts} of {only(one.counts[1] for one in closed)} trials in every setting."
    _, small, trials = learned(results, "Alg. 1, small shortcut steps", "^((?!fresh).)*$")
    _, drafted, _ = learned(results, "Alg. 1, one step size")
    assert set(drafted) == {0}
    _, ridge, _ = learned(results, "joint ridge")
    _, fedrep, _ = learned(results, "FedRep")
    yield (
        f"few small gradient steps on the shortcut (B learned in {spread(small)} of {trials} trials on fixed samples, "
        "in none with the one step size that the draft prints), and a ridge on it at the joint minimiser "
        f"({spread(ridge)} of {trials})"
    )
    yield f"FedRep, which ignores the shortcuts, learns it in {spread(fedrep)}."


def of_lost(results):
    """Return what is told of how fast B is lost: exponents, factors, counts."""
    in_m = results.claims(LOST, "The rounds until B is lost grow like sqrt(m) on fixed samples")
    in_eta = results.claims(LOST, "The rounds until B is lost go like (1 - eta)/eta on fixed samples")
    factor = results.claims(
        LOST, "The prediction without a free parameter tells the rounds, to a constant between 1 and 2"
    )
    exponents = spread((one.estimate for one in in_m), fixed(2))
    steps = " to ".join(
        f"{value:.2f}" for value in sorted((one.estimate for one in in_eta), reverse=True)[:: len(in_eta) - 1]
    )
    return exponents, steps, spread((one.estimate for one in factor), fixed(1)), [*in_m, *in_eta, *factor]


@held(FINDINGS, LOST)
def lost(results: Results):
    exponents, steps, factor, claims = of_lost(results)
    passed = results.claims(LOST, "(2) to (5) lose a B near B*", "^fixed")
    table = results.table("shortcut-lost-rounds")
    m = table.values("n_samples")
    yield (
        f"exponents in m from {exponents} and in eta/(1 - eta) from {steps}, rounds {factor} times a prediction "
        f"without a free parameter ({verdict(claims)}); {sum(one.counts[0] for one in passed)} of "
        f"{sum(one.counts[1] for one in passed)} runs with m = {min(m)} to {max(m)} had lost it by the last round."
    )
    fresh = results.claim(LOST, "(2) to (5) lose a B near B*", "^fresh samples, start 0.3, eta 0.03$")
    rounds = only(table.where(method="(2)-(5)", kind="fresh", start=0.3, step_size=0.03).values("rounds"))
    yield f"from distance 0.3 at eta = 0.03 {fresh.detail} within {rounds} rounds."
    kept = results.claims(LOST, "From the same start a rival does not lose it", "^FedRep")
    yield f"FedRep from the same start keeps it in {only(one.detail for one in kept)}"


@held(SHORTCUT, LOST)
def lost_page(results: Results):
    own, table = sizes(results), results.table("shortcut-lost-rounds")
    m, trials = table.values("n_samples"), results.shared(LOST, "rounds")["trials"]
    yield (
        f"n = {own['n_clients']}, d = {own['dim']}, k = {own['rank']}, {trials} trials at each m from {min(m)} to "
        f"{max(m)})."
    )
    exponents, steps, factor, claims = of_lost(results)
    assert verdict(claims) == "SUPPORTED"
    yield (
        f"Measured: exponents in m from {exponents}, in eta/(1 - eta) from {steps}, rounds {factor} times a prediction "
        "without a free parameter; at eta = 1 in the first move."
    )
    assert {median(row["lost"]) for row in table.where(method="(2)-(5)", kind="fixed", step_size=1.0)} == {1.0}
    fresh = results.claim(LOST, "(2) to (5) lose a B near B*", "^fresh samples, start 0.3, eta 0.03$")
    rows = table.where(method="(2)-(5)", kind="fresh", start=0.3, step_size=0.03)
    low, high = (per_cent(end) for end in (fresh.low, fresh.high))
    yield (
        f"from distance 0.3, at eta = 0.03, {fresh.detail} runs have passed 0.5 within {only(rows.values('rounds'))} "
        f"rounds [{low}, {high} %]."
    )
    kept = results.claims(LOST, "From the same start a rival does not lose it")
    yield f"FedRep, and (2) to (5) in gauss-seidel order, keep B in {only(one.detail for one in kept)} runs each."
    few = table.where(method="(2)-(5)", kind="fresh", n_samples=10, step_size=[0.03, 0.1, 0.3])
    scale = [median(row["lost"]) / row["mean_alone"] for row in few]
    yield (
        f"at m = 10 the time scale is that of (D), {spread(scale, fixed(1))} times m/(eta (k + 1)) rounds for eta up "
        "to 0.3"
    )


@held(FINDINGS, PHASE)
def phase(results: Results):
    ridge = "The population tells where B is learned with a ridge: dist(U_k, B*) whatever the ridge"
    steps = results.claims(PHASE, "The population tells where B is learned")
    joint = results.claims(PHASE, ridge, "^joint ridge: ")
    plain = results.claim(PHASE, ridge, "^joint ridge, plain step")
    better = "The population of each data set's own truth tells where B is learned better than any common size"
    rule = [one for one in results.claims(PHASE, better, "", "^share of all points") if "plain" not in one.where]
    maps = {7: "seven"}[len(steps + joint)]
    assert len(rule) == len(steps + joint)
    common = [float(one.detail.split(" against ")[1].split(" %")[0]) for one in rule]
    yield (
        f"The population's prediction tells {spread((one.estimate for one in steps + joint), per_cent)} % of the "
        f"points of {maps} maps ({verdict(steps + joint)}: above {per_cent(only(one.least for one in steps + joint))} "
        f"%), but a rule that knows no truth, the best common size in hindsight, tells {spread(common, fixed(0))} % of "
        "them."
    )
    ridges = [one for one in rule if one.where.startswith("joint")]
    first, second = (one for one in ridges if one.verdict == "SUPPORTED")
    points = fixed(1, 100)
    yield (
        f"Better than that it is in two of the three maps of the joint ridge (by {points(first.estimate)} points "
        f"{first.between(points)} and {points(second.estimate)} {second.between(points)}), and "
        f"{verdict(one for one in rule if one not in (first, second))} in the third and in the four of Algorithm 1."
    )
    assert len(ridges) == 3
    assert len(rule) - len(ridges) == 4
    yield f"at a plain step, it tells {per_cent(plain.estimate)} % {plain.between(per_cent)} ({verdict(plain)})."


@held(FINDINGS, SEARCH)
def search(results: Results):
    table = results.table("shortcut-search-search").where(size=0.5, n_samples=10, family="joint ridge")
    own, fedrep, alone, fit = (
        median(table.where(method=name)["error"]) for name in ("shortcuts", "FedRep", "LocalOnly", "fit")
    )
    dim = sizes(results)["dim"]
    yield (
        f"**A personal part pays where m < d**: parameter error {own:.1f} against FedRep's {fedrep:.1f} and Local "
        f"only's {alone:.1f} at m = 10, d = {dim}."
    )
    yield f"(`lf.Personalised`), tuned with the same effort, has {fit:.1f}."
    half, whole = (kept(results, f"m = {m}, size 0.5: joint ridge") for m in (10, 40))
    assert round(whole.low, 3) >= 1
    yield (
        f"It keeps {per_cent(half.estimate)} % of the gain at m = 10 {half.between(per_cent)} and all of it at m = 40;"
    )
    yield f"is left with {left(results)} % of the error at m = 10, in the joint form only."


def kept(results, where):
    text = "One personal fit at FedRep's B keeps at least nine tenths of what the shortcuts gain over FedRep"
    return results.claim(SEARCH, text, f"^{where}$")


def left(results):
    """Return what the joint ridge has less of the error than the one fit, at m = 10, in per cent."""
    text = "The best setting found has a smaller parameter error than one personal fit at FedRep's B"
    joint = results.claims(SEARCH, text, "^m = 10, .*joint ridge")
    assert verdict(joint) == "SUPPORTED"
    first = results.claims(SEARCH, text, "Algorithm 1")
    assert {one.verdict for one in first} == {"NOT SUPPORTED", "INCONCLUSIVE"}
    return spread((1 - 1 / one.estimate for one in joint), per_cent)


@held(SHORTCUT, SEARCH)
def search_page(results: Results):
    own, shared, table = sizes(results), results.shared(SEARCH, "search"), results.table("shortcut-search-search")
    yield f"Searched for on {shared['tuning_trials']} trials of their own"
    yield f"told of {shared['trials']} others."
    yield (
        f"n = {own['n_clients']}, d = {own['dim']}, k = {own['rank']}, noise std 0.1, shortcuts drawn without regard "
        "to B*"
    )
    tried = {len(row["score"]) for row in table if row["method"] in ("shortcuts", "fit")}
    yield f"Every method has {only(tried)} settings: Algorithm 1 pairs of eta and eta_s"
    alone = {
        key: median(part["error"])
        for key, part in table.where(method="LocalOnly", family="joint ridge").by("size", "n_samples")
    }
    at_40 = only(f"{alone[size, 40]:.3f}" for size in (0.5, 1.0))
    yield f"Local only has {alone[0.5, 10]:.2f} and {alone[1.0, 10]:.2f} at m = 10, and {at_40} at m = 40."
    for (m, size, family), part in table.by("n_samples", "size", "family"):
        best, fit, fedrep = (part.where(method=name) for name in ("shortcuts", "fit", "FedRep"))
        held_back = "ridge" if family == "joint ridge" else "eta_s"
        refitted = f"{median(best['refitted_error']):.3g}" if family == "joint ridge" else ""
        row = [f"{m}", f"{size:g}", family, f"eta = {best['step_size']:g}, {held_back} = {best['held']:g}"]
        row += [f"{median(best['dist']):.2f}", f"{median(best['error']):.3g}", refitted]
        row += [f"{median(one['error']):.3g}" for one in (fedrep, fit)]
        yield f"| {' | '.join(row)} |".replace("|  |", "| |")


@held(SHORTCUT, SEARCH)
def search_kept(results: Results):
    half, one = (kept(results, f"m = 10, size {size}: joint ridge") for size in ("0.5", "1"))
    yield (
        f"keeps {per_cent(half.estimate)} % of what the joint ridge gains over FedRep at m = 10 "
        f"{half.between(per_cent)}, and at size 1 {per_cent(one.estimate)} % {one.between(per_cent)}; at m = 40 all of "
        "it."
    )
    assert all(round(kept(results, f"m = 40, size {size}: joint ridge").low, 3) >= 1 for size in ("0.5", "1"))
    yield f"Training with shortcuts is left with {left(results)} % of the error at m = 10, in the joint form only;"
    text = "The best setting found has a smaller parameter error than one personal fit at FedRep's B"
    found = results.claims(SEARCH, text, "Algorithm 1")
    words = {3: "three", 1: "one"}
    larger, unknown = (words[sum(one.verdict == told for one in found)] for told in ("NOT SUPPORTED", "INCONCLUSIVE"))
    yield f"in any of the four settings (its error is larger in {larger}, and INCONCLUSIVE in {unknown})."
    gain = [
        1
        - 1
        / results.claim(SEARCH, f"The best setting found has a smaller parameter error than {rival}", where).estimate
        for rival, where in (("Local only", "^m = 40, size 0.5: joint ridge"),)
    ]
    table = results.table("shortcut-search-search").where(size=0.5, n_samples=40, family="joint ridge")
    errors = {name: median(table.where(method=name)["error"]) for name in ("LocalOnly", "fit", "shortcuts")}
    gain += [1 - errors[name] / errors["LocalOnly"] for name in ("fit", "shortcuts")]
    few = results.table("shortcut-search-search").where(size=0.5, n_samples=10, family="joint ridge")
    own, alone, fedrep = (median(few.where(method=name)["error"]) for name in ("shortcuts", "LocalOnly", "FedRep"))
    assert own < alone / 2
    fifth = {0.2: "a fifth"}[round(1 - own / fedrep, 1)]
    yield f"less than half of Local only's error at size 0.5, {fifth} less than FedRep's."
    yield "and nothing worth having at size 1:"
    yield f"At m = 2d and this noise knowing B is worth {spread(gain, per_cent)} % of the error at size 0.5"


@held(FINDINGS, "shortcut-bound")
def bound(results: Results):
    name = "shortcut-bound"
    texts = (
        "Equation (9), (16), (17) is an identity over (2)-(5)",
        "Equation (18) is an identity over (2)-(5)",
        "The split (19) to (21) of B is an identity",
    )
    found = [one for text in texts for one in results.claims(name, text)]
    assert verdict(found) == "HOLDS"
    assert verdict(results.claims(name, "Equation (9) as printed is an identity over (2)-(5)")) == "VIOLATED"
    shared = results.shared(name, "terms")
    yield (
        f"identities to {short(max(one.estimate for one in found))} over {shared['rounds']} rounds of "
        f"{shared['trials']} trials"
    )


@held(SHORTCUT, f"{CONVERGENCE} {PHASE}")
def captions(results: Results):
    own = sizes(results)
    told = f"n = {own['n_clients']}, d = {own['dim']}, k = {own['rank']}"
    yield f"*{told}, heads of length sqrt({own['rank']}), shortcuts of root mean square length 0.5, noise std 0.1;"
    rows = results.table("shortcut-phase-map")
    rounds = {family: only(part.values("rounds")) for family, part in rows.by("family")}
    step = only(rows.where(family="Algorithm 1").values("step_size"))
    joint = only(rows.where(family="joint ridge").values("step_size"))
    yield (
        f"Upper row: Algorithm 1, eta = {step:g}, {rounds['Algorithm 1']} rounds. Lower row: joint ridge, "
        f"{rounds['joint ridge']} rounds at {joint:g} (1 + ridge)/ridge. {told}, m = 100, noise std 0.1."
    )


@held(EXACT_LAW, "docs/exact_law_picture.py")
def exact_law(results: Results):
    spec = importlib.util.spec_from_file_location("exact_law_picture", TOP / "docs" / "exact_law_picture.py")
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    first, last = picture.ROUNDS
    yield f"Histograms of the distance after {first} and after {last} rounds"
    problem = picture.PROBLEM
    yield (
        f"Subspace distance in {picture.TRIALS:,} trials of each engine, on different seeds: n = {problem.n_clients}, "
        f"all of them participants, d = {problem.dim}, k = {problem.rank}, m = {picture.DATA.n_samples}, noise "
        f"variance {short(problem.noise_std**2, 0)}, exact heads, eta = {picture.ALGORITHM.step_size:g}, from distance "
        f"{picture.ALGORITHM.init.delta:g};"
    )
    assert np.isclose(problem.noise_std**2, 1e-3)
