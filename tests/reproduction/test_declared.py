"""Experiments that declare their claims: what is judged, what is not asked, remarks, and the table without a run."""

import re
import sys
from pathlib import Path

import pytest

from linfed import cli
from linfed.reproduction.experiments import experiment_files, load
from linfed.reproduction.record import ResultsFolder
from linfed.statistics import Origin
from tests.helpers import ROOT, each, own_folder

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
    c.Claim("A has a smaller error than B", c.cite("A paper, Figure 1", "A is best"),
            c.smaller("error", "A", "B", "share of trials"), over=c.each("n"), setting="n = {n}"),
    c.Claim("More clients help", c.OWN_PREDICTION, c.smaller_after("error", "P(smaller)"),
            where=c.of(method="A"), over=c.successive("n"), setting="n = {1[n]}"),
    c.Claim("The gain is large", c.OWN_THRESHOLD,
            c.measured("gain", lambda row: (float(row["gain"][0]),) * 3, c.above(1.0)), table="sizes"),
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


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, whose modules and path are gone afterwards."""
    with own_folder(tmp_path, monkeypatch):
        yield tmp_path


def run(*arguments):
    return cli.main([str(argument) for argument in arguments])


def reproduced(capsys, text, *arguments, status=0):
    """Write an experiment, run it, and return its record and the printed text."""
    Path("own.py").write_text(text, encoding="utf-8")
    sys.modules.pop("own", None)
    assert run("reproduce", "own.py", "--workers", 1, "--out", "out", *arguments) == status
    return ResultsFolder(Path("out")).read("own"), capsys.readouterr()


def settings(record):
    return [(one.claim.split()[0], one.setting) for one in record.claims]


ALL = [("A", "n = 10"), ("A", "n = 20"), ("More", "n = 20"), ("The", "")]


def test_declared_claims_are_judged_on_the_tables_and_the_derived_ones(capsys):
    record, printed = reproduced(capsys, OWN)
    assert settings(record) == ALL
    assert {one.verdict.value for one in record.claims} == {"SUPPORTED"}
    assert [one.origin for one in record.claims] == [Origin.QUOTED, Origin.QUOTED, Origin.PREDICTION, Origin.THRESHOLD]
    assert record.remarks == ()
    assert "  3 statements: 1 quoted, 1 our prediction, 1 our threshold\n" in printed.out
    assert {*record.tables} == {"runs"}
    before = Path("out/own.json").read_text()
    assert run("replot", "own.py", "--out", "out") == 0
    assert Path("out/own.json").read_text() == before
    assert run("show", "own", "--out", "out") == 0
    assert "  3 statements: 1 quoted, 1 our prediction, 1 our threshold\n" in capsys.readouterr().out
    assert run("report", "out") == 0
    assert "<p>3 statements: 1 quoted, 1 our prediction, 1 our threshold</p>" in Path("out/report.html").read_text()


def test_claims_of_both_kinds_are_judged(capsys):
    record, printed = reproduced(capsys, OWN + COMPUTED)
    assert settings(record) == [*ALL, ("c", "s")]
    assert "4 statements: 1 quoted, 1 our prediction, 1 our threshold, 1 of unknown origin" in printed.out


# --- claims without rows ---------------------------------------------------------------------------------------------


def test_a_claim_without_rows_is_an_error_of_a_full_run_when_everything_is_saved(capsys):
    wrong = OWN.replace('c.of(method="A")', 'c.of(method="C")')
    record, printed = reproduced(capsys, wrong, status=2)
    said = "own.py: no rows of the tables fit the claim 'More clients help'; correct it, and run linfed replot own.py"
    assert said in printed.out
    assert settings(record) == [one for one in ALL if one[0] != "More"]
    assert record.figures.keys() == {""}
    record, printed = reproduced(capsys, wrong, "--quick")
    assert record.remarks == ("not asked in a quick run: More clients help",)
    assert "own: not asked in a quick run: More clients help\n" in printed.out


def test_other_fields_keep_the_claims_that_make_sense(capsys):
    record, printed = reproduced(capsys, OWN, "--set", "n=30")
    assert settings(record) == [("A", "n = 30")]
    assert record.remarks == ("not asked with these settings: More clients help; The gain is large",)
    assert printed.out.count("not asked") == 1
    assert "no rows" not in printed.out
    record, printed = reproduced(capsys, OWN, "--set", "method=B")
    assert settings(record) == [("The", "")]  # its headline is one of the claims that are not asked
    assert record.remarks == ("not asked with these settings: A has a smaller error than B; More clients help",)
    assert "HEADLINES" not in printed.out


def test_a_claim_that_fails_with_other_fields_loses_only_itself(capsys):
    fails = OWN.replace(
        'over=c.each("n")', "over=lambda rows: [(rows.select(n=n),) for n in (rows['n'].max(), 1 // 0)]"
    )
    record, printed = reproduced(capsys, fails, "--set", "trials=9")
    assert settings(record) == ALL[2:]
    said = "its claim 'A has a smaller error than B' cannot be judged with these settings (ZeroDivisionError: integer"
    assert record.remarks[0].startswith(said)
    assert len(record.remarks) == 1
    assert said in printed.out
    with pytest.raises(ZeroDivisionError) as raised:
        reproduced(capsys, fails)
    assert raised.value.__notes__ == ["The tables are saved: correct the error, and run linfed replot own.py --out out"]


def test_derived_tables_that_fail_with_other_fields_lose_the_claims_on_them(capsys):
    fails = OWN.replace("sizes[1:]]", "[sizes[1]]]").replace('    assert "sizes" in tables\n', "")
    record, _ = reproduced(capsys, fails, "--set", "n=30")
    assert settings(record) == [("A", "n = 30")]
    assert [remark.partition(" (")[0] for remark in record.remarks] == [
        "its derived tables cannot be computed with these settings",
        "not asked with these settings: More clients help; The gain is large",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("CLAIMS = (", "CLAIMS = 3\nOTHERS = (", "own.py: CLAIMS must be a tuple of linfed.claims.Claim, got 3"),
        ("CLAIMS = (", "CAPTIONS = {'': 3}\nCLAIMS = (", "own.py: CAPTIONS = {'': 3} must be a dict from keys"),
        ('return {"sizes"', 'return {"runs"', "own.py: derived(tables) must not return the table 'runs', which cells"),
        (
            "tables):\n    sizes",
            "tables):\n    return 3\n    sizes",
            "own.py: derived(tables) must return a dict of lf",
        ),
        (
            'table="sizes"',
            'table="size"',
            "own.py: the claim 'The gain is large' needs the table 'size', but there is only 'runs', 'sizes'",
        ),
    ],
)
def test_wrong_declarations_are_one_line(old, new, said, capsys):
    assert OWN.count(old) == 1
    Path("own.py").write_text(OWN.replace(old, new))
    assert run("reproduce", "own.py", "--workers", 1) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"linfed: {said}")
    assert told.count("\n") == 1


# --- the edge of a grid ----------------------------------------------------------------------------------------------

REMARK = "the best step of A lies at the edge of the grid"


def test_a_verdict_of_a_tuning_at_the_edge_carries_its_remark(capsys):
    record, printed = reproduced(capsys, OWN)
    assert [one.note for one in record.claims] == ["", REMARK, REMARK, ""]
    for command in (None, ["show", "own", "--out", "out"], ["replot", "own.py", "--out", "out"]):
        out = printed.out if command is None else ""
        if command is not None:
            assert run(*command) == 0
            out = capsys.readouterr().out
        assert "  SUPPORTED 2: A has a smaller error than B [grid edge: 1 of 2]\n" in out
        assert "  SUPPORTED: More clients help [grid edge]\n" in out
        assert "  SUPPORTED: The gain is large\n  [grid edge]: a tuned value is at the edge of its grid;" in out
    assert run("show", "own", "--out", "out", "--verbose") == 0
    assert f"(1) {REMARK}" in capsys.readouterr().out
    assert run("report", "out") == 0
    page = Path("out/report.html").read_text()
    assert re.search(f"<li>More clients help .*{REMARK}", page)  # in the list of claims, and in the table of settings
    assert f"<li>{REMARK}</li>" in page


def test_computed_claims_have_one_remark_for_each_table(capsys):
    plain = re.sub(r"(?s)\nCLAIMS = .*?\n\)\n", COMPUTED, OWN).replace("HEADLINES", "HEADS")
    record, printed = reproduced(capsys, plain)
    remark = "in 1 of 4 rows of table 'runs' a tuned value lies at the edge of the grid: method = A, n = 20"
    assert record.remarks == (remark,)
    assert f"own: {remark}\n" in printed.out
    assert run("show", "own", "--out", "out") == 0
    assert f"own: {remark}\n" in capsys.readouterr().out
    assert run("report", "out") == 0
    assert "in 1 of 4 rows of table" in Path("out/report.html").read_text()
    every = plain.replace('if (self.method, self.n) == ("A", 20) else ""', "")
    record, _ = reproduced(capsys, every)
    assert record.remarks[0].endswith("grid: method = A, n = 10; method = B, n = 10; method = A, n = 20; ..")
    noted = every.replace("claimed_low=0)", 'claimed_low=0, note=c.edge_note(tables["runs"]))')
    assert reproduced(capsys, noted)[0].remarks == ()


# --- the table without a run -----------------------------------------------------------------------------------------


def test_claims_are_shown_without_a_run(capsys):
    Path("own.py").write_text(OWN)
    assert run("show", "own.py", "--claims") == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[:5] == [
        "own: 3 sentences: 1 quoted, 1 our prediction, 1 our threshold",
        "",
        "A has a smaller error than B",
        '  quoted: A paper, Figure 1: "A is best"',
        "  share of trials; required: > 0.5",
    ]
    Path("two.py").write_text(OWN + COMPUTED)
    Path("three.py").write_text(re.sub(r"(?s)\nCLAIMS = .*?\n\)\n", COMPUTED, OWN))
    Path("four.py").write_text(re.sub(r"(?s)\nCLAIMS = .*?\n\)\n", "\n", OWN))
    assert run("show", "two.py", "three.py", "four.py", "--claims") == 0
    printed = capsys.readouterr().out
    computed = "its function claims(tables) judges them after a run\n"
    assert f"\ntwo: further claims: {computed}" in printed
    assert f"\nthree: {computed}" in printed
    assert printed.endswith("\nfour: no claims\n")
    assert [path.name for path in Path().iterdir() if path.is_dir()] in ([], ["__pycache__"])
    assert run("show", "own.py", "--claims", "--quick") == 2
    assert "--claims prints declared claims: leave out" in capsys.readouterr().err


def test_the_claims_of_a_shipped_experiment_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert run("show", "fedrep-fig3", "--claims", "--experiments", ROOT / "experiments") == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"fedrep-fig3: \d+ sentences: \d+ quoted", lines[0])
    assert max(map(len, lines)) <= 70
    assert "FedRep converges in fewer rounds with more clients" in lines
    assert run("show", "fedrep-fig", "--claims", "--experiments", ROOT / "experiments") == 2
    assert "did you mean" in capsys.readouterr().err


@each("name", experiment_files(ROOT / "experiments"))
def test_committed_findings_are_of_the_declared_claims(name):
    """Each sentence is judged, with its source, to which a judge may add, and whose it is."""
    declared = load(name, ROOT / "experiments").CLAIMS
    found = ResultsFolder(ROOT / "results" / "committed").read(name).claims
    assert {one.claim for one in found} == {claim.sentence for claim in declared}
    for one in found:
        sources = [claim.source for claim in declared if claim.sentence == one.claim]
        assert any(one.source.startswith(source) and one.origin is source.origin for source in sources), one
