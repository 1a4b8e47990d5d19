"""What digits and verdict words stand for that no result holds: settings, names, formulas, and what rests on no run.

`SETTING` are parameters with their values, which must be those of a field of a committed table. `NAMES` are numbers
that are part of a name, a formula or a list. `EXEMPT` is everything else, word for word, with its reason. `UNCHECKED`
are the sections of a document that rest on no experiment as a whole.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib

import linfed as lf
from linfed.reproduction.experiments import load

from . import (
    ALGORITHMS,
    AVERAGING,
    CLASSES,
    DATA,
    EXACT_LAW,
    FINDINGS,
    METRICS,
    NOTATION,
    PAPER,
    PREDICT,
    PROBLEMS,
    README,
    SHORTCUT,
    SPEED,
    START,
    TOP,
    TUNING,
    WHERE,
    Results,
    held,
)

FIELDS = {"m": "n_samples", "n": "n_clients", "d": "dim", "k": "rank", "eta": "step_size", "m_new": "n_new"}
"""The tables' columns, or axes, of the letters in the documents."""

NUMBER = r"\d[\d,]*(?:\.\d+)?"
MORE = rf"(?:(?:, | and | to |, and ){NUMBER}(?![\d.]* of))"
SETTING = rf"(?<![\w.])(?P<letter>{'|'.join(FIELDS)}) = (?P<values>{NUMBER}{MORE}*)"

EQUATION = r"[(](?:1?\d|2[0-2])[)]"
"""A number of the draft in brackets."""
NAMES = (
    r"\bTable 1\b",
    r"\b(?:Figures?|Theorems?|[Ss]ections?|Algorithm|Alg\.|Example) \d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*",
    r"\b(?:Definition|Observation) B\.\d",
    r"\b(?:Assumption|Definition|Lemmas?|Remarks?|Proposition) (?:A\.)?\d+(?:\.\d+)?(?:(?:, | and )\d+(?:\.\d+)?)*",
    r"\bC\.[12]\b|[(](?:49|54)[)]",  # of the FLUTE paper's appendix
    r"\bNC2\b|-1/[(]c-1[)]",
    r"\barXiv:\d{4}\.\d{5}\b",
    r"\b(?:ICLR|ICML|NeurIPS|AISTATS|MLSys|UAI|arXiv) \d{4}\b",
    r"\bSent140\b",
    r":::\{grid\} [\d ]+:gutter: \d",  # columns, of the site's front page
    r"## \d+\.",
    r"\b10GD-GD\b",
    rf"{EQUATION}(?:(?: to |-|, | and ){EQUATION})*",  # of the draft
    r"\b(?:lambda|u|gamma)_[\dik]",
    r"\b2-cycle\b",
    r"[(]?\b(?:k|1) [-+] (?:1|ridge|eta)\b[)]?",
    r"\b(?:w = )?\w+ = 0\b",
    r"sqrt[(]1e-3[)]",
)
"""Of names, of places in a paper or a page, and of formulas."""

UNCHECKED = {
    README: ("References",),
    EXACT_LAW: (r"\d+\. .*",),  # derivations
    SHORTCUT: (r"8\. What was checked",),  # a script, no experiment
    AVERAGING: ("What theory says, and where", "What is wrong in the source"),  # formulas
    CLASSES: ("General FLUTE", "What the reading found"),  # formulas, and the paper's own table
}

RULE = "the rule itself"
FORMULA = "a formula, a convention"
SCRIPT = "measured by a script, not by an experiment: docs/shortcut.md, section 8"
CHOSEN = "a setting that is written in the experiment's code, and in no column of its tables"
EXEMPT: dict[str, dict[str, tuple[str, ...]]] = {
    README: {
        RULE: (
            "SUPPORTED (of a theorem: HOLDS) means that the *whole* 95 % interval lies inside what is said, NOT "
            "SUPPORTED (VIOLATED) that all of it lies outside, else it is INCONCLUSIVE; VACUOUS is what nothing could "
            "have refuted.",
        ),
    },
    START: {
        RULE: (
            "a 95 % interval over trials",
            "| SUPPORTED | HOLDS | the *whole* interval lies inside",
            "| NOT SUPPORTED | VIOLATED | the whole interval lies outside |",
            "| INCONCLUSIVE | INCONCLUSIVE | the interval has points of both |",
            "| | HYPOTHESES FAIL | what the theorem supposes is not so",
            "| VACUOUS | VACUOUS | nothing could have refuted it",
            "So SUPPORTED is about the settings that were run",
            "NOT SUPPORTED is about the sentence as it stands",
        ),
    },
    FINDINGS: {
        RULE: (
            "95 % intervals",
            "SUPPORTED (for a theorem: HOLDS) if the *whole* interval lies inside what is said, NOT SUPPORTED "
            "(VIOLATED) if "
            "the whole interval lies outside, else INCONCLUSIVE; VACUOUS if nothing could have refuted it.",
        ),
        FORMULA: (
            "at gamma_1 = 2 gamma_2 FLUTE and FedRep",
            "gamma_1 - 2 gamma_2 exceeds half",
            "the error of predicting 0",
            "the bound falls to m^-1/2 of its scale",
            "as the same authors proved in 2022;",
        ),
    },
    ALGORITHMS: {FORMULA: ("the initial state (round 0)",)},
    PREDICT: {FORMULA: ("m >= k + 4, k <= 16 |", "m = k + 2 or k + 3, or k > 16 |")},
    PROBLEMS: {FORMULA: ("Trial 7 of a seed is the same bits alone",)},
    WHERE: {
        FORMULA: (
            "eta at most 1/(4 sigma_max^2)",
            "the least m, with its constant at 1",
            "1 - T exp(-100 min(k^2 log(rn), d))",
        ),
    },
    PAPER: {
        FORMULA: (
            "**Factor 2.** The main text's gradients",
            'garbled in the text that we have, "2d i+1". It is read as 2d/(i+1);',
        ),
    },
    CLASSES: {
        RULE: ("with their 95 % intervals:",),
        CHOSEN: ("of CIFAR-10.", "the 1797 images of", ", 8 x 8 pixels,", "100 more of each held out"),
    },
    SPEED: {FORMULA: ("(float64, BLAS at one thread",)},
    NOTATION: {FORMULA: ("| `participation` | | r | 1 |", "(no factor 2 in gradients)")},
    EXACT_LAW: {FORMULA: ("N(0, I)",)},
    AVERAGING: {
        FORMULA: (
            "the optimum for K > 1 (drift)",
            "| 2 P floats each way, P kept",
            "the rest is 0 while a window",
            "| 2 beta P floats each way",
        ),
    },
    SHORTCUT: {
        FORMULA: (
            "every even head is 0;",
            "even heads are 0 again",
            "constant: 0.",
            "it goes to 0, as Local only's does at once",
            "1. `B*'s_i* = 0`",
            "2. `C = 0`",
            "3. `lambda_min(Gamma) > lambda_max(Sigma)`",
            "By 1 and 2, M is block diagonal",
            "and 3 says which block is on top. So under 1 and 2",
            "Where 2 holds on average only",
            "and has passed 0.5 where it does. Where 1 fails too",
            "measured dist = 0.5 (median)",
        ),
        SCRIPT: (
            "measured over 150 rounds at eta = 0.3, m = 40, n = 50, d = 20, k = 2, the mean squared overlap "
            "`||B'B*||_F^2 / k` fell from the 0.097(5) of a random start to 0.046(3); a random subspace has k/d = 0.1.",
            "the step of B was 17 to 50 % off the joint one with ridge 1, and in alternate rounds 6 to 15 % and 71 "
            "to 91 % "
            "with ridge 0.1 (rounds 2 to 8, eta = 0.7).",
            "with ridge 0.1 the dist was below 0.1 after 200 rounds in all of them, after 80 it was 0.20 (joint), 0.65 "
            "(gauss-seidel) and 0.88 (jacobi).",
        ),
        CHOSEN: ("heads of length sqrt(2)",),
    },
}


@held(README, "the code")
@held(START, "the code")
def python_version(results: Results):
    pyproject = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    yield f"ith Python {pyproject['project']['requires-python'].removeprefix('>=')} or later"


@held(DATA, "the code")
def engines(results: Results):
    for name, served in lf.ENGINES.items():
        yield f'| `"{name}"` | {served} |'


@held(METRICS, "the code")
def metrics(results: Results):
    for name, definition in lf.METRICS.items():
        yield f"| `{name}` | {definition} |".replace("||", "\\|\\|")


def margin():
    """Return the share of the best score within which `lf.tune` takes the smallest setting."""
    return f"{100 * inspect.signature(lf.tune).parameters['margin'].default:g} %"


@held(TUNING, "the code")
def ties(results: Results):
    yield f"Of the settings within {margin()} of the best it takes the smallest"


@held(FINDINGS, "the code")
def of_the_code(results: Results):
    yield f"of those within {margin()} the smallest is taken."
    load("flute-fig1", TOP / "experiments")  # its folder becomes importable
    step = importlib.import_module("experiments._flute").FLUTE_STEP
    yield f"with the paper's {step:g} for all (FedRep averaging"
    yield f"with {step:g} and FedRep summing"
    yield f"| claim | tuned | {step:g} | {step:g}, all sum |"
    yield f"with steps tuned, at {step:g}, and at {step:g} with all methods summing]"


@held(SHORTCUT, "the code")
def of_the_code_page(results: Results):
    yield f"the steps of the grid tie within {margin()}, and of those the smallest is taken"
