"""The table of ratios: of ``results/committed/benchmarks.json``, which ``python -m benchmarks --full --json`` wrote."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from . import COMMITTED, SPEED, Results, fixed, held

BENCHMARKS = COMMITTED / "benchmarks.json"
BIG, WIDE, TALL, SMALL = (
    "n=200 d=1000 k=5 m=100",
    "n=1000 d=200 k=5 m=50",
    "n=1000 d=20 k=2 m=10",
    "n=100 d=20 k=2 m=10",
)
NARROW, FIGURE_3 = "n=1000 d=10 k=2 m=5", "n=100 d=10 k=2 m=5 p=10, 100 trials, 200 rounds"
JITTED = (SMALL, NARROW, BIG, WIDE)
FLUTE, FLUTE_JITTED = (
    ("n=50 d=30 k=10 m=20", "n=200 d=200 k=5 m=100"),
    (
        "n=30 d=10 k=2 m=12",
        "n=30 d=10 k=2 m=20, 50 trials",
        "n=100 d=100 k=5 m=101",
        "n=200 d=200 k=5 m=100",
    ),
)
FIRST = "the two of the first row"
DIGITS = "n=50 d=64 k=8 m=29 c=10, 50 trials"
CLASSIFIERS = "FedRep", "FedPer", "FedAvg", "General FLUTE", "FLUTE*"
OF_DIGITS = "(50, 64, 8, 29), 10 classes, 50 trials"


def times(value):
    """Return how many times faster, with a decimal where it is, and two where it is not."""
    return f"{value:.2f}" if value < 1 else f"{value:.1f}"


@dataclass(frozen=True)
class Line:
    """A row of the table: its first two cells, its ratios by name and sizes, how they are shown, and what follows."""

    what: str
    sizes: str
    ratios: tuple[tuple[str, str], ...]
    unit: str
    show: Callable[[float], str] = times


def each(name, *sizes):
    return tuple((name, one) for one in sizes)


LINES = (
    Line(
        "fresh round against its bound: drawing the same normals and two matrix products",
        "(200, 1000, 5, 100), (1000, 200, 5, 50)",
        each("explicit round against its bound", BIG, WIDE),
        "times the bound",
        fixed(2),
    ),
    Line(
        "against a loop over clients that follows the pseudocode, fresh and fixed data",
        "(1000, 20, 2, 10)",
        tuple((f"{kind} round against a loop over clients", TALL) for kind in ("fresh", "fixed")),
        "times faster",
    ),
    Line(
        "against the fastest loop over clients we could write, fresh and fixed data",
        "(1000, 20, 2, 10)",
        tuple((f"{kind} round against the fastest loop over clients", TALL) for kind in ("fresh", "fixed")),
        "times faster",
    ),
    Line(
        "fresh round against one jitted JAX round on the CPU",
        f"(100, 20, 2, 10), (1000, 10, 2, 5), and {FIRST}",
        each("fresh round against jitted JAX", *JITTED),
        "times faster",
    ),
    Line(
        "fixed-data round against the same (JAX on two threads)",
        "the same",
        each("fixed round against jitted JAX", *JITTED),
        "times as fast",
    ),
    Line(
        "100 trials of Figure 3 at n = 100 in one call against drawing their random numbers",
        "(100, 10, 2, 5)",
        each("100 trials against their draws, all metrics each round", FIGURE_3),
        "times the draws",
    ),
    Line(
        "the same against 100 calls of one trial",
        "(100, 10, 2, 5)",
        each("100 trials against 100 calls of one", FIGURE_3),
        "times faster",
    ),
    Line(
        "projected round (exact in law) against the explicit round",
        FIRST,
        each("projected round against explicit", BIG, WIDE),
        "times faster",
        fixed(0),
    ),
    Line(
        "projected round against one jitted JAX round on the CPU",
        "(200, 1000, 5, 100)",
        each("projected round against jitted JAX", BIG),
        "times faster",
        fixed(0),
    ),
    Line(
        "projected round, m = 10^6 against m = 10",
        "(200, 1000, 5, m)",
        each("projected round, m = 10^6 against m = 10", BIG),
        "times the time",
        fixed(2),
    ),
    Line(
        "chain round, d = 10^6 against d = 100",
        "(200, d, 5, 100)",
        each("chain round, d = 10^6 against d = 100", BIG),
        "times the time",
        fixed(2),
    ),
    Line(
        "fixed samples, compressed: m = 10^6 against m = 60",
        "(100, 50, 5, m)",
        each("compressed round of fixed samples, m = 10^6 against m = 60", "n=100 d=50 k=5"),
        "times the time",
        fixed(2),
    ),
    Line(
        "FLUTE round on fixed data against a loop over clients as in Algorithm 1",
        "(50, 30, 10, 20), (200, 200, 5, 100)",
        each("FLUTE round against a loop over clients", *FLUTE),
        "times faster",
    ),
    Line(
        "the same against the fastest loop we could write",
        "the same",
        each("FLUTE round against the fastest loop over clients", *FLUTE),
        "times as fast",
    ),
    Line(
        "FLUTE round against one jitted JAX round, rows where m <= d, Gram matrices where m > d",
        "(30, 10, 2, 12), the same with m = 20 and 50 trials, (100, 100, 5, 101), (200, 200, 5, 100)",
        each("FLUTE round against jitted JAX in the same form", *FLUTE_JITTED),
        "times as fast",
    ),
    Line(
        "round of classes against its matrix products: FedRep, FedPer, FedAvg, General FLUTE, FLUTE*",
        OF_DIGITS,
        tuple((f"classes, {name}: round against its products", DIGITS) for name in CLASSIFIERS),
        "times the products",
    ),
    *(
        Line(
            f"the same rounds against one jitted JAX round on the CPU, {how}",
            OF_DIGITS,
            tuple((f"classes, {name}: round against jitted JAX, {threads}", DIGITS) for name in CLASSIFIERS),
            "times faster",
            fixed(2),
        )
        for how, threads in (("JAX on two threads", "its threads"), ("both on one core", "both on one core"))
    ),
    Line(
        "least squares of all clients in the full dimension against forming X'X and LAPACK's batched solve",
        "(200, 200, -, 400)",
        each("closed form of all shortcuts against LAPACK's solve", "n=200 d=200 k=5 m=400"),
        "times the time",
        fixed(2),
    ),
)


@held(SPEED, "benchmarks.json")
def ratios(results: Results):
    rows = {(row["name"], row["sizes"]): row for row in json.loads(BENCHMARKS.read_text(encoding="utf-8"))["rows"]}

    def measured(name, sizes, of):
        row = rows.get((name, sizes), {"note": "there is no such row"})
        if of not in row:
            raise LookupError(f"{BENCHMARKS.name}: {name}, {sizes}: {row['note']}")
        return row[of]

    for line in LINES:
        shown = ", ".join(line.show(measured(*one, "ratio")) for one in line.ratios)
        yield f"| {line.what} | {line.sizes} | {shown} {line.unit} |"
    rounds = measured("FLUTE, 10000 rounds, metrics each round", "n=100 d=100 k=5 m=100000", "ours") / 1e3
    yield f"| 10,000 rounds of FLUTE, m = 100,000, metrics every round | (100, 100, 5, 100,000) | {rounds:.0f} s |"
    seconds, megabytes = (
        measured(f"linfed reproduce fedrep-fig3: {what}", "in full", "ours") for what in ("time", "memory")
    )
    yield f"| `linfed reproduce fedrep-fig3` in full | | {seconds / 1e3:.0f} s, {megabytes / 1e3:.1f} GB |"


@held(SPEED, "fedrep-million")
def million_rounds(results: Results):
    shared = results.shared("fedrep-million", "curves")
    each_round = np.diff(results.table("fedrep-million-curves")["seconds"], axis=1)
    memory = results.claim("fedrep-million", "The whole run takes under 1 GB").estimate
    n, d, k, m = (shared[name] for name in ("n_clients", "dim", "rank", "n_samples"))
    yield (
        f"| a round of a million clients, over {shared['rounds']} rounds | ({n:,}, {d}, {k}, {m}) | "
        f"{each_round.min():.2f} to {each_round.max():.2f} s, {memory:.2f} GB |"
    )
    yield f"One FLUTE round at (200, 200, 5, 100) has to read {8 * 200 * 200 * 100 / 1e6:.0f} MB of samples"
