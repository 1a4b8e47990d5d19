"""The scoreboard: a row for each sentence of a paper that matters, with what was measured and the verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from linfed.errors import UsageError
from linfed.reproduction.records import read_record

Record: TypeAlias = Mapping[str, Any]
"""What ``NAME.json`` of a run holds."""


NOT_JUDGED = ("VACUOUS", "HYPOTHESES FAIL")
"""Verdicts on settings in which nothing was to be judged."""


class Sentence(NamedTuple):
    """A sentence of a paper.

    `experiment` and `text` say where it is judged. `where` is the setting that is shown, by default the first one in
    which something could be judged; `said` are words of ours, where the judge's source quotes none. `main` sentences
    are in the README. `among` has the first characters of the settings that count, and the row's name for these; all
    settings count by default.
    """

    experiment: str
    text: str
    where: str = ""
    said: str = ""
    main: bool = False
    among: tuple[str, str] = ("", "")


FIG1, FIG3, FIG4 = "fedrep-fig1", "fedrep-fig3", "fedrep-fig4"
FEWER = "A client needs fewer samples with FedRep than with"
AT_STEP, TUNED = ("0.03: ", "all at the paper's step 0.03"), ("tuned: ", "every method at its best step")
TIGHT = "Theorem 1's m is tight to a factor of 10: one c is sufficient in all settings, a tenth of it in none"
SEARCHED = "The best setting found has a smaller parameter error than "

SENTENCES = (
    Sentence(FIG1, "FedRep has the smallest of the three errors, client by client", main=True),
    Sentence(FIG1, "FedAvg hardly improves with m: by less than a tenth"),
    Sentence(FIG3, "FedRep converges in fewer rounds with more clients", main=True),
    Sentence(FIG3, "FedRep needs fewer rounds than 10GD-GD", "paper: n = 100", main=True),
    Sentence(FIG3, "10GD-GD needs fewer rounds than GD-GD", "paper: n = 100"),
    Sentence(FIG3, "GD-GD gains less from more clients than FedRep"),
    Sentence(FIG4, "FedRep's error on a new client is small once m_new >= k", main=True),
    Sentence(FIG4, "FedAvg's error on a new client stays high", "paper: m_new = 20", main=True),
    Sentence(FIG4, "FedAvg, K = 10's error on a new client stays high", "paper: m_new = 20", main=True),
    Sentence(
        "fedrep-theorem1",
        "dist_T <= (1 - eta E0 sigma_min^2 / 2)^(T/2) dist_0 in every round, if m is the theorem's with C = 1",
        said="the distance falls geometrically, by (10)",
        main=True,
    ),
    Sentence(
        "fedrep-samples",
        "With Theorem 1's m, c = 1, half of the runs go from distance 0.9 to 0.01 in all settings",
        main=True,
    ),
    Sentence("fedrep-samples", TIGHT, main=True),
    Sentence("fedrep-samples", "The smallest m grows in kappa at most as fast as Theorem 1's"),
    Sentence("fedrep-samples", "Theorem 1's m is tight in kappa"),
    Sentence("fedrep-samples", "Over rounds that grow like kappa^2 the samples per client grow like kappa^4"),
    Sentence(
        "fedrep-samples", "Where d / p dominates, the samples per client over a fixed number of rounds grow like k"
    ),
    Sentence("fedrep-samples", "With many clients the smallest m grows like log(n) + d/n"),
    Sentence("fedrep-pays", f"{FEWER} least squares without federation", "noise std 0.3, n = 50", main=True),
    Sentence("fedrep-pays", f"{FEWER} the best ridge without federation", "noise std 0.3, n = 50", main=True),
    Sentence("flute-fig1", "FLUTE needs fewer rounds than FedRep (RI)", main=True, among=AT_STEP),
    Sentence("flute-fig1", "FLUTE needs fewer rounds than FedRep (RI)", main=True, among=TUNED),
    Sentence("flute-fig1", "FLUTE has a smaller final error than FedRep", among=AT_STEP),
    Sentence("flute-fig1", "FLUTE has a smaller final error than FedRep", among=TUNED),
    Sentence("flute-fig1", "FLUTE's gain in the final error over FedRep is larger for small k", among=AT_STEP),
    Sentence("flute-fig1", "FLUTE's gain in the final error over FedRep is larger for small k", among=TUNED),
    Sentence("flute-fig3", "FLUTE's final error falls with n", main=True, among=AT_STEP),
    Sentence("flute-fig3", "FLUTE's final error falls with n, relative to the truncation's own", among=AT_STEP),
    Sentence("flute-fig4", "gamma1 = gamma2 has a smaller error than gamma1 = 2 gamma2"),
    Sentence("flute-digits", "FLUTE is more accurate than FedRep", main=True),
    Sentence("flute-digits", "FLUTE is more accurate than the best of the other baselines", main=True),
    Sentence("flute-digits", "The gain of FLUTE over FedRep grows with the number of classes per client"),
    Sentence("flute-digits", "FLUTE is more accurate than the same algorithm without its penalty on neural collapse"),
    Sentence("flute-classification", "FLUTE is more accurate than FedRep"),
    Sentence("flute-classification", "FLUTE is more accurate than the best of the other baselines"),
    Sentence("flute-divergence", "gamma1 > 2 gamma2 usually diverges"),
    Sentence("flute-divergence", "gamma1 > 2 gamma2 usually diverges, beyond the paper's m"),
    Sentence("flute-example1", "With w = sqrt(lambda/M) the average is closer to u_1 than with w = lambda", main=True),
    Sentence("flute-example1", "The average with w = sqrt(lambda/M) recovers u_1", main=True),
    Sentence("flute-theorem51", "The error falls at least like m^-1/2", main=True),
    Sentence(
        "flute-theorem55",
        "The error stays below 1,600 x the bound of Theorem 5.5 after T_R",
        said="with constants c1, c2 the error falls exponentially for T_R < t <= T; judged with its proof's",
        main=True,
    ),
    Sentence("flute-theorem55", "The constant of Theorem 5.5's proof, 4 x 400, is tight to a factor of 10"),
    Sentence("flute-rate-and-floor", "Reused samples cost no more than fresh ones (the proof treats them as fresh)"),
    Sentence("shortcut-bound", "Equation (9) as printed is an identity over (2)-(5)"),
    Sentence("shortcut-bound", "dist stays below the sum of its terms (22)"),
    Sentence("shortcut-convergence", "(2)-(5) learns B", main=True),
    Sentence("shortcut-search", f"{SEARCHED}FedRep"),
    Sentence("shortcut-search", f"{SEARCHED}one personal fit at FedRep's B", main=True),
)
"""In the order of the table; a rival that changes what a sentence is worth comes after it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A sentence of a paper and what was found.

    Attributes
    ----------
    paper : str
        The source, e.g. "FedRep paper, Figure 1".
    said : str
        The sentence, in quotation marks where the words are the paper's; nothing where `judged` says it.
    judged : str
        The statement that was judged.
    measured : str
        Estimate and 95 % interval of `statistic` in the setting `where`, the paper's own where there is one.
    statistic, where : str
        What was measured, and the setting.
    verdicts : dict of str to int
        How often which verdict was given, over the settings.
    experiment : str
    main : bool
        Whether the sentence is in the README.
    """

    paper: str
    said: str
    judged: str
    measured: str
    statistic: str
    where: str
    verdicts: dict[str, int]
    experiment: str
    main: bool

    @property
    def verdict(self) -> str:
        """The verdicts in words (`counted`)."""
        return counted(self.verdicts)


def rows(records: Mapping[str, Record]) -> list[Row]:
    """Return the rows of all sentences that these runs judge.

    Parameters
    ----------
    records : mapping of str to mapping
        By the experiment's name what its ``NAME.json`` holds. Sentences of other experiments are left out.

    Raises
    ------
    ValueError
        If a run has claims, but not that of a sentence. A quick run may lack the setting that is shown: another is.
    """
    found = []
    for sentence in SENTENCES:
        claims = records.get(sentence.experiment, {}).get("claims", [])
        every = [claim for claim in claims if claim["text"] == sentence.text]
        if claims and not every:
            raise ValueError(f"{sentence.experiment} has no claim {sentence.text!r}")
        own = [claim for claim in every if claim["where"].startswith(sentence.among[0])]
        if every and not own and not records[sentence.experiment].get("quick"):
            raise ValueError(f"{sentence.experiment} has no setting that begins with {sentence.among[0]!r}")
        if own:
            found.append(_row(sentence, own))
    return found


def _row(sentence: Sentence, claims: list[Record]) -> Row:
    judged = [claim for claim in claims if claim["verdict"] not in NOT_JUDGED] or claims
    shown = next((claim for claim in judged if claim["where"] == sentence.where), judged[0])
    verdicts = Counter(claim["verdict"] for claim in claims)
    quoted = re.search(r'"(.+)"', shown["source"])
    return Row(
        paper=re.split(r': "|;|, which', shown["source"])[0].rstrip(),
        said=sentence.said or (f"“{quoted[1]}”" if quoted else ""),
        judged=", ".join(filter(None, (shown["text"], sentence.among[1]))),
        measured=measured(shown),
        statistic=shown["statistic"],
        where=shown["where"],
        verdicts=dict(verdicts.most_common()),
        experiment=sentence.experiment,
        main=sentence.main,
    )


def counted(verdicts: Mapping[str, int]) -> str:
    """Return verdicts in words: one word where there is one setting, else with their counts.

    >>> counted({"HOLDS": 1}), counted({"HOLDS": 2, "VACUOUS": 1})
    ('HOLDS', 'HOLDS 2, VACUOUS 1')
    """
    if sum(verdicts.values()) == 1:
        return next(iter(verdicts))
    return ", ".join(f"{verdict} {count}" for verdict, count in verdicts.items())


def measured(claim: Record) -> str:
    """Return a claim's estimate and interval."""
    return f"{number(claim['estimate'])} [{number(claim['low'])}, {number(claim['high'])}]"


def number(value: float | None) -> str:
    """Return a number of a claim with three digits; JSON has null for what is not finite.

    >>> [number(value) for value in (0.5, 18256.1, 1.23456e-5, None)]
    ['0.5', '18,300', '1.23e-05', '-']
    """
    if value is None:
        return "-"
    told = f"{value:.3g}"
    return f"{float(told):,.0f}" if 1000 <= abs(value) < 1e6 else told


def markdown(table: Iterable[Row], link: str = "", *, short: bool = False) -> str:
    """Return the rows as a Markdown table.

    Parameters
    ----------
    table : iterable of Row
    link : str
        Address of an experiment's page, with ``{}`` for its name; no links without it.
    short : bool
        Leave out the statistic and its setting.
    """
    lines = ["| what the paper says | what was measured | verdict | experiment |", "|---|---|---|---|"]
    for row in table:
        said = f"{row.paper}: {row.said}" if row.said else row.paper
        measured = f"{row.judged}: {row.measured}" + ("" if short else f" ({row.where}; {row.statistic})")
        name = f"[{row.experiment}]({link.format(row.experiment)})" if link else row.experiment
        cells = (said, measured, row.verdict, name)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def records(folder: Path) -> dict[str, Record]:
    """Return what the runs in a folder say, by the experiment's name; other files are left out.

    Raises
    ------
    UsageError
        If a file is not JSON.
    """
    found: dict[str, Record] = {}
    for path in sorted(folder.glob("*.json")):
        described = record(path)
        if described is not None:
            found[str(described["experiment"])] = described
    return found


def record(path: Path) -> Record | None:
    """Return what a file says of a run, or None where it is of something else."""
    try:
        described = read_record(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as a run's record ({' '.join(str(error).split())})") from None
    return described if isinstance(described, dict) and {"experiment", "claims"} <= described.keys() else None
