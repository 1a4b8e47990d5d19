"""Claims of an experiment are judged on its tables: what is not asked, remarks on claims, and wrong declarations."""

import re
import sys
from pathlib import Path

import pytest

from linfed.reproduction.record import ResultsFolder
from linfed.statistics import Origin
from tests.reproduction.toys import refused, run, write

pytestmark = pytest.mark.usefixtures("folder")

OWN = """
from dataclasses import dataclass
import numpy as np
import linfed as lf
import linfed.claims as c

HEADLINES = ({"claim": "A has a smaller error than B"},)

@dataclass(frozen=True)
class Cell:
    method: str = lf.choice(("A", "B"), "A")
    n: int = 10
    trials: int = 8

    def run(self):
        error = np.arange(1, self.trials + 1) * (2.0 if self.method == "B" else 1.0) / self.n
        return {"error": error, "at_grid_edge": "step_size" if (self.method, self.n) == ("A", 20) else ""}

def cells(quick):
    return {"runs": lf.grid(Cell(), n=(10, 20), method=("A", "B"))}

def derived(tables):
    sizes = tables["runs"].unique("n")
    return {"sizes": lf.Table([{"n": n, "gain": np.full(8, n / sizes[0])} for n in sizes[1:]])}

CLAIMS = (
    c.Claim("The gain is large", c.OWN_THRESHOLD,
            c.measured("gain", lambda row: (float(row["gain"][0]),) * 3, c.above(1.0)), table="sizes"),
    c.Claim("A has a smaller error than B", c.cite("A paper, Figure 1", "A is best"),
            c.smaller("error", "A", "B", "share of trials"), over=c.each("n"), setting="n = {n}"),
    c.Claim("More clients help", c.OWN_PREDICTION, c.smaller_after("error", "P(smaller)"),
            where=c.of(method="A"), over=c.successive("n"), setting="n = {1[n]}"),
)

def plot(tables):
    from matplotlib.figure import Figure
    assert "sizes" in tables
    return {"": Figure()}
"""

COMPUTED = """

def claims(tables):
    yield lf.Finding(claim="c", setting="s", statistic="t", source="o", estimate=1, low=1, high=1, claimed_low=0)
"""


def reproduced(capsys, text, *arguments, status=0):
    """Write an experiment, run it, and return its record and the printed text."""
    write("own.py", text)
    sys.modules.pop("own", None)
    assert run("reproduce", "own.py", "--workers", 1, "--out", "out", *arguments) == status
    return ResultsFolder(Path("out")).read("own"), capsys.readouterr().out


def settings(record):
    return [(one.claim.split()[0], one.setting) for one in record.claims]


ALL = [("The", ""), ("A", "n = 10"), ("A", "n = 20"), ("More", "n = 20")]
WHOSE = ("What the papers say", "What linfed predicts", "Thresholds and controls")


def test_declared_claims_are_judged_on_the_tables_and_the_derived_ones(capsys):
    record, printed = reproduced(capsys, OWN)
    assert settings(record) == ALL
    assert {one.verdict.value for one in record.claims} == {"SUPPORTED"}
    assert [one.origin for one in record.claims] == [Origin.THRESHOLD, Origin.QUOTED, Origin.QUOTED, Origin.PREDICTION]
    assert record.remarks == ()
    assert all(f"  {title}: " in printed for title in WHOSE)
    assert {*record.tables} == {"runs"}
    before = Path("out/own.json").read_text()
    assert run("replot", "own.py", "--out", "out") == 0
    assert Path("out/own.json").read_text() == before
    assert run("report", "out") == 0
    page = Path("out/report.html").read_text()
    assert all(f"<h4>{title}</h4>" in page for title in WHOSE)


def test_claims_of_both_kinds_are_judged(capsys):
    record, printed = reproduced(capsys, OWN + COMPUTED)
    assert settings(record) == [*ALL, ("c", "s")]
    assert all(f"  {title}: " in printed for title in (*WHOSE, "Other claims"))


# --- claims without rows ---------------------------------------------------------------------------------------------


def test_a_claim_without_rows_is_an_error_of_a_full_run_when_everything_is_saved(capsys):
    wrong = OWN.replace('c.of(method="A")', 'c.of(method="C")')
    record, printed = reproduced(capsys, wrong, status=2)
    said = "own.py: no rows of the tables fit the claim 'More clients help'; correct it, and run linfed replot own.py"
    assert said in printed
    assert settings(record) == [one for one in ALL if one[0] != "More"]
    assert record.figures.keys() == {""}
    record, printed = reproduced(capsys, wrong, "--quick")
    assert record.remarks == ("not asked in a quick run: More clients help",)
    assert "own: not asked in a quick run: More clients help\n" in printed


def test_other_fields_keep_the_claims_that_make_sense(capsys):
    record, printed = reproduced(capsys, OWN, "--set", "n=30")
    assert settings(record) == [("A", "n = 30")]
    assert record.remarks == ("not asked with these settings: The gain is large; More clients help",)
    assert printed.count("not asked") == 1
    assert "no rows" not in printed
    record, printed = reproduced(capsys, OWN, "--set", "method=B")
    assert settings(record) == [("The", "")]  # its headline is one of the claims that are not asked
    assert record.remarks == ("not asked with these settings: A has a smaller error than B; More clients help",)
    assert "HEADLINES" not in printed


def test_a_claim_that_fails_with_other_fields_loses_only_itself(capsys):
    fails = OWN.replace(
        'over=c.each("n")', "over=lambda rows: [(rows.select(n=n),) for n in (rows['n'].max(), 1 // 0)]"
    )
    record, printed = reproduced(capsys, fails, "--set", "trials=9")
    assert settings(record) == [one for one in ALL if one[0] != "A"]
    said = "its claim 'A has a smaller error than B' cannot be judged with these settings (ZeroDivisionError: integer"
    (remark,) = record.remarks
    assert remark.startswith(said)
    assert said in printed
    for seeds in ((), ("--seed", 3)):  # another seed changes no setting
        with pytest.raises(ZeroDivisionError) as raised:
            reproduced(capsys, fails.replace("    trials: int = 8", "    trials: int = 8\n    seed: int = 0"), *seeds)
        note = "The tables are saved: correct the error, and run linfed replot own.py --out out"
        assert raised.value.__notes__ == [note]


def test_derived_tables_that_fail_with_other_fields_lose_the_claims_on_them(capsys):
    fails = OWN.replace("sizes[1:]]", "[sizes[1]]]").replace('    assert "sizes" in tables\n', "")
    record, _ = reproduced(capsys, fails, "--set", "n=30")
    assert settings(record) == [("A", "n = 30")]
    assert [remark.partition(" (")[0] for remark in record.remarks] == [
        "its derived tables cannot be computed with these settings",
        "not asked with these settings: The gain is large; More clients help",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("CLAIMS = (", "CLAIMS = 3\nOTHERS = (", "own.py: CLAIMS must be a tuple of linfed.claims.Claim, got 3"),
        ('return {"sizes"', 'return {"runs"', "own.py: derived(tables) must not return the table 'runs', which cells"),
        ("tables):\n    sizes", "tables):\n    return 3\n    sizes", "own.py: derived(tables) must return a dict of"),
        ('table="sizes"', 'table="size"', "'The gain is large' needs the table 'size', but there is only 'runs', 'si"),
        ("def plot(tables):", "def claims(tables):\n    return [True]\n\ndef plot(tables):", "claims(tables) must re"),
        ("def plot(tables):", "def claims(tables):\n    return None\n\ndef plot(tables):", "lf.Finding, got None"),
        ("def plot(tables):", "def claims(tables):\n    exit(0)\n\ndef plot(tables):", "its claims cannot be judged"),
        ('return {"": Figure()}', "return tables", "plot(tables) must return a dict of matplotlib figures, e.g. {'':"),
        ("    from matplotlib.figure import Figure", "    exit(0)", "own: its figures cannot be drawn (SystemExit: 0"),
    ],
)
def test_wrong_declarations_are_one_line(old, new, said, capsys):
    assert OWN.count(old) == 1
    write("own.py", OWN.replace(old, new))
    assert run("reproduce", "own.py", "--workers", 1) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


# --- the edge of a grid ----------------------------------------------------------------------------------------------

REMARK = "the best step of A lies at the edge of the grid"


def test_a_verdict_of_a_tuning_at_the_edge_carries_its_remark(capsys):
    record, printed = reproduced(capsys, OWN)
    assert [one.note for one in record.claims] == ["", "", REMARK, REMARK]
    assert run("show", "own", "--out", "out") == 0
    for text in (printed, capsys.readouterr().out):
        assert "  SUPPORTED 2: A has a smaller error than B [grid edge: 1 of 2]\n" in text
        assert "  SUPPORTED: More clients help [grid edge]\n" in text
        assert "  SUPPORTED: The gain is large\n" in text
        assert "\n  [grid edge]: a tuned value is at the edge of its grid;" in text
    assert run("report", "out") == 0
    page = Path("out/report.html").read_text()
    assert re.search(f"<li>More clients help .*{REMARK}", page)  # in the list of claims, and in the table of settings
    assert f"<li>{REMARK}</li>" in page


def test_computed_claims_have_one_remark_for_each_table(capsys):
    plain = re.sub(r"(?s)\nCLAIMS = .*?\n\)\n", COMPUTED, OWN).replace("HEADLINES", "HEADS")
    record, printed = reproduced(capsys, plain)
    remark = "in 1 of 4 rows of table 'runs' a tuned value lies at the edge of the grid: method = A, n = 20"
    assert record.remarks == (remark,)
    assert f"own: {remark}\n" in printed
    every = plain.replace('if (self.method, self.n) == ("A", 20) else ""', "")
    record, _ = reproduced(capsys, every)
    assert record.remarks[0].endswith("grid: method = A, n = 10; method = B, n = 10; method = A, n = 20; ..")
    noted = every.replace("claimed_low=0)", 'claimed_low=0, note=c.edge_note(tables["runs"]))')
    assert reproduced(capsys, noted)[0].remarks == ()


# --- the claims without a run ----------------------------------------------------------------------------------------


def test_claims_are_shown_without_a_run(capsys):
    write("own.py", OWN)
    assert run("show", "own.py", "--claims") == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "own: 3 sentences: 1 quoted, 1 our prediction, 1 our threshold",
        "",
        "The gain is large",
        "  our threshold",
        "  gain; required: > 1",
    ]
    write("two.py", OWN + COMPUTED)
    write("three.py", re.sub(r"(?s)\nCLAIMS = .*?\n\)\n", COMPUTED, OWN))
    write("four.py", re.sub(r"(?s)\nCLAIMS = .*?\n\)\n", "\n", OWN))
    assert run("show", "two.py", "three.py", "four.py", "--claims") == 0
    printed = capsys.readouterr().out
    computed = "its function claims(tables) judges them after a run\n"
    assert f"\ntwo: further claims: {computed}" in printed
    assert f"\nthree: {computed}" in printed
    assert printed.endswith("\nfour: no claims\n")
    assert "--claims prints declared claims: leave out" in refused(capsys, "show", "own.py", "--claims", "--quick")
