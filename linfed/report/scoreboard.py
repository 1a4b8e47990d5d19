"""Scoreboard: the most important claims of the papers, each with its measurement and verdict."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from linfed.reproduction.record import RunRecord
from linfed.statistics.findings import NOT_JUDGED, Finding, required


class Sentence(NamedTuple):
    """Claim of a paper, for the scoreboard.

    Parameters
    ----------
    experiment, claim : str
        Experiment and text of the finding that judges the claim.
    setting : str
        Setting to show; by default the first one in which the claim could be judged.
    wording : str
        Wording of the claim, if the source of the finding contains no quotation.
    among : tuple of str
        First characters of the settings that count, and the name of these settings in the row. All settings by default.
    """

    experiment: str
    claim: str
    setting: str = ""
    wording: str = ""
    among: tuple[str, str] = ("", "")


FIG1, FIG3, FIG4 = "fedrep-fig1", "fedrep-fig3", "fedrep-fig4"
FEWER = "A client needs fewer samples with FedRep than with"
AT_STEP = ("0.03: ", "all at the paper's step 0.03, FedRep averaging over clients")
FACTOR_2 = ("0.03, factor 2: ", "all at the paper's step 0.03, FLUTE with its main text's gradient")
SUMMED = ("0.03, summed: ", "all at the paper's step 0.03, FedRep summing over clients")
TUNED = ("tuned: ", "every method at its best step")
READINGS = tuple((f"0.03: {values}", f"{AT_STEP[1]}, singular values {values}") for values in ("2d/(i+1)", "2d-i+1"))
ROUNDS = "FLUTE needs fewer rounds than FedRep (RI)"
TIGHT = "Theorem 1's m is tight to a factor of 10: one c is sufficient in all settings, a tenth of it in none"
SEARCHED = "The best setting found has a smaller parameter error than "

SENTENCES = (
    Sentence(FIG1, "FedRep has the smallest of the three errors, client by client"),
    Sentence(FIG1, "FedAvg hardly improves with m: by less than a tenth"),
    Sentence(FIG3, "FedRep converges in fewer rounds with more clients"),
    Sentence(FIG3, "FedRep needs fewer rounds than 10GD-GD", "paper: n = 100"),
    Sentence(FIG3, "10GD-GD needs fewer rounds than GD-GD", "paper: n = 100"),
    Sentence(FIG3, "GD-GD gains less from more clients than FedRep"),
    Sentence(FIG4, "FedRep's error on a new client is small once m_new >= k"),
    Sentence(FIG4, "FedAvg's error on a new client stays high", "paper: m_new = 20"),
    Sentence(FIG4, "FedAvg, K = 10's error on a new client stays high", "paper: m_new = 20"),
    Sentence(
        "fedrep-theorem1",
        "dist_T <= (1 - eta E0 sigma_min^2 / 2)^(T/2) dist_0 in every round, if m is the theorem's with C = 1",
        wording="the distance falls geometrically, by (10)",
    ),
    Sentence(
        "fedrep-samples",
        "With Theorem 1's m, c = 1, half of the runs go from distance 0.9 to 0.01 in all settings",
    ),
    Sentence("fedrep-samples", TIGHT),
    Sentence("fedrep-samples", "The smallest m grows in kappa at most as fast as Theorem 1's"),
    Sentence("fedrep-samples", "Theorem 1's m is tight in kappa"),
    Sentence("fedrep-samples", "Over rounds that grow like kappa^2 the samples per client grow like kappa^4"),
    Sentence(
        "fedrep-samples", "Where d / p dominates, the samples per client over a fixed number of rounds grow like k"
    ),
    Sentence("fedrep-samples", "With many clients the smallest m grows at most like log(n) + d/n"),
    Sentence("fedrep-pays", f"{FEWER} least squares without federation", "noise std 0.3, n = 50"),
    Sentence("fedrep-pays", f"{FEWER} the best ridge without federation", "noise std 0.3, n = 50"),
    Sentence("flute-fig1", ROUNDS, "0.03: main, k = 4", among=AT_STEP),
    Sentence("flute-fig1", ROUNDS, "0.03, factor 2: main, k = 4", among=FACTOR_2),
    Sentence("flute-fig1", ROUNDS, "0.03, summed: main, k = 4", among=SUMMED),
    Sentence("flute-fig1", ROUNDS, "tuned: main, k = 4", among=TUNED),
    *(Sentence("flute-fig3", ROUNDS, among=reading) for reading in READINGS),
    *(Sentence("flute-fig3", ROUNDS, among=speed) for speed in (FACTOR_2, SUMMED, TUNED)),
    Sentence("flute-fig1", "FLUTE has a smaller final error than FedRep", among=AT_STEP),
    Sentence("flute-fig1", "FLUTE has a smaller final error than FedRep", among=TUNED),
    Sentence("flute-fig1", "FLUTE's gain in the final error over FedRep is larger for small k", among=AT_STEP),
    Sentence("flute-fig1", "FLUTE's gain in the final error over FedRep is larger for small k", among=TUNED),
    Sentence("flute-fig3", "FLUTE's final error falls with n", among=AT_STEP),
    Sentence("flute-fig3", "FLUTE's final error falls with n, relative to the truncation's own", among=AT_STEP),
    Sentence("flute-fig4", "gamma1 = gamma2 has a smaller error than gamma1 = 2 gamma2"),
    Sentence("flute-digits", "FLUTE is more accurate than FedRep"),
    Sentence("flute-digits", "FLUTE is more accurate than the best of the other baselines"),
    Sentence("flute-digits", "The gain of FLUTE over FedRep grows with the number of classes per client"),
    Sentence("flute-digits", "FLUTE is more accurate than the same algorithm without its penalty on neural collapse"),
    Sentence("flute-classification", "FLUTE is more accurate than FedRep"),
    Sentence("flute-classification", "FLUTE is more accurate than the best of the other baselines"),
    Sentence("flute-divergence", "gamma1 > 2 gamma2 usually diverges"),
    Sentence("flute-divergence", "gamma1 > 2 gamma2 usually diverges, beyond the paper's m"),
    Sentence("flute-example1", "With w = sqrt(lambda/M) the average is closer to u_1 than with w = lambda"),
    Sentence("flute-example1", "The average with w = sqrt(lambda/M) recovers u_1"),
    Sentence("flute-theorem51", "The error falls at least like m^-1/2"),
    Sentence(
        "flute-theorem55",
        "The error stays below 1,600 x the bound of Theorem 5.5 after T_R",
        wording="with constants c1, c2 the error falls exponentially for T_R < t <= T; judged with its proof's",
    ),
    Sentence("flute-theorem55", "The constant of Theorem 5.5's proof, 4 x 400, is tight to a factor of 10"),
    Sentence("flute-rate-and-floor", "Reused samples cost no more than fresh ones (the proof treats them as fresh)"),
    Sentence("shortcut-bound", "Equation (9) as printed is an identity over (2)-(5)"),
    Sentence("shortcut-bound", "dist stays below the sum of its terms (22)"),
    Sentence("shortcut-convergence", "(2)-(5) learns B"),
    Sentence("shortcut-search", f"{SEARCHED}FedRep"),
    Sentence("shortcut-search", f"{SEARCHED}one personal fit at FedRep's B"),
)
"""Claims in the order of the table; a claim about a competitor follows the claim that it qualifies."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Claim of a paper with its measurement and verdicts.

    Attributes
    ----------
    paper : str
        Source, e.g. "FedRep paper, Figure 1".
    wording : str
        Wording of the claim, in quotation marks if it is a quotation; empty if `judged` contains it.
    judged : str
        Precise claim that was judged.
    measured : str
        Estimate and 95 % interval of `statistic` in the setting `setting`, which is the paper's setting if there is
        one.
    statistic, required, setting : str
        Measured quantity, the range that the claim requires, e.g. "> 0.5", and the setting.
    experiment : str
        Name of the experiment.
    claims : list of Finding
        Claims in the counted settings.
    """

    paper: str
    wording: str
    judged: str
    measured: str
    statistic: str
    required: str
    setting: str
    experiment: str
    claims: list[Finding]

    @property
    def verdicts(self) -> dict[str, int]:
        """Number of settings with each verdict, the most frequent first."""
        return dict(Counter(claim.verdict.value for claim in self.claims).most_common())

    @property
    def verdict(self) -> str:
        """Verdicts as text (`counted`)."""
        return counted(self.verdicts)


def rows(records: Mapping[str, RunRecord]) -> list[Row]:
    """Return the rows of all claims that these runs judge.

    Parameters
    ----------
    records : mapping of str to RunRecord
        Records by the name of the experiment. Claims of other experiments are omitted.

    Returns
    -------
    list of Row

    Raises
    ------
    ValueError
        If a run has findings, but not the finding of a claim. If a quick run lacks the setting to show, another one is
        shown.
    """
    found = []
    for sentence in SENTENCES:
        record = records.get(sentence.experiment)
        if record is None or not record.claims:
            continue
        every = [claim for claim in record.claims if claim.claim == sentence.claim]
        if not every:
            raise ValueError(f"{sentence.experiment} has no claim {sentence.claim!r}")
        candidates = [claim for claim in every if claim.setting.startswith(sentence.among[0])]
        if not candidates and not record.quick:
            raise ValueError(f"{sentence.experiment} has no setting that begins with {sentence.among[0]!r}")
        if candidates:
            found.append(_row(sentence, candidates))
    return found


def _row(sentence: Sentence, claims: list[Finding]) -> Row:
    judged = [claim for claim in claims if claim.verdict.kind != NOT_JUDGED] or claims
    example = next((claim for claim in judged if claim.setting == sentence.setting), judged[0])
    quoted = re.search(r'"(.+)"', example.source)
    return Row(
        paper=place_of(example.source),
        wording=sentence.wording or (f"“{quoted[1]}”" if quoted else ""),
        judged=", ".join(filter(None, (example.claim, sentence.among[1]))),
        measured=measured(example),
        statistic=example.statistic,
        required=required(example.claimed_range),
        setting=example.setting,
        experiment=sentence.experiment,
        claims=[claim for claim in claims if claim.statistic == example.statistic],
    )


def place_of(source: str) -> str:
    """Return the source of a claim without its quotation and remarks."""
    return re.split(r': "|;|, which', source)[0].rstrip()


def counted(verdicts: Mapping[str, int]) -> str:
    """Return verdicts as text, with their counts if there are several settings.

    >>> counted({"HOLDS": 1}), counted({"HOLDS": 2, "VACUOUS": 1})
    ('HOLDS', 'HOLDS 2, VACUOUS 1')
    """
    if sum(verdicts.values()) == 1:
        return next(iter(verdicts))
    return ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())


def measured(claim: Finding) -> str:
    """Return the estimate and the interval of a claim as text."""
    return f"{number(claim.estimate)} [{number(claim.low)}, {number(claim.high)}]"


def number(value: float) -> str:
    """Return a number of a claim with three digits, "-" for NaN.

    >>> [number(value) for value in (0.5, 18256.1, 1.23456e-5, float("inf"), float("nan"))]
    ['0.5', '18,300', '1.23e-05', 'inf', '-']
    """
    if math.isnan(value):
        return "-"
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f}" if 1000 <= abs(value) < 1e6 else digits


def markdown(table: Iterable[Row], link: str = "") -> str:
    """Return the rows as a Markdown table.

    Parameters
    ----------
    table : iterable of Row
    link : str
        Address of an experiment's page, with ``{}`` for its name; empty for no links.
    """
    header = ["claim", "statistic and required range", "measured (95 % CI)", "verdicts over settings", "experiment"]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for row in table:
        wording = f": {row.wording}" if row.wording else ""
        name = f"[{row.experiment}]({link.format(row.experiment)})" if link else row.experiment
        setting = f"; setting: {row.setting}" if row.setting else ""
        statistic = f"{row.statistic}{setting}; required: {row.required}"
        cells = [f"{row.judged} ({row.paper}{wording})", statistic, row.measured, row.verdict, name]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
