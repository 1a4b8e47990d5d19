"""``linfed show`` prints captions and claims of saved runs."""

from pathlib import Path

import pytest

from linfed.reproduction.record import ResultsFolder, RunRecord
from tests.helpers import ROOT, finding
from tests.reproduction.toys import refused, run

pytestmark = pytest.mark.usefixtures("folder")


def save(name, folder="results", **changes):
    """Save a record of a run."""
    out = ResultsFolder(Path(folder))
    out.create()
    out.write(RunRecord(**{"experiment": name, "quick": False, "claims": (finding(),)} | changes))


def test_a_run_is_shown_with_its_captions_claims_and_remarks(capsys):
    known = {"versions": {"linfed": "1.0"}, "commit": "abc", "remarks": ("nothing else",)}
    save("one", figures={"": "One.", "ends": "Two.", "edges": "Three."}, **known)
    Path("results/one.png").touch()
    Path("results/one-ends.webp").touch()
    assert run("show", "one") == 0
    assert capsys.readouterr().out.splitlines() == [
        "one: full run, linfed 1.0, commit abc",
        "results/one.png",
        "  One.",
        "results/one-ends.webp",
        "  Two.",
        "one-edges (no picture in this folder)",
        "  Three.",
        "  SUPPORTED: it is so",
        "      share: 0.9 [0.8, 1]; required: >= 0.5",
        "one: 1 claim: 1 SUPPORTED",
        "one: nothing else",
    ]


def test_a_run_without_claims_says_so(capsys):
    save("one", claims=(), judged="")
    save("two", claims=())
    assert run("show", "one", "two") == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.endswith("one: no claims")
    assert "two: The claims were not judged" in second
    assert "linfed replot two" in second


def test_quick_runs_are_shown_with_a_warning(capsys):
    save("one", folder="results/quick", quick=True)
    assert run("show", "one", "--quick") == 0
    assert capsys.readouterr().out.startswith("QUICK run: fewer trials")
    assert refused(capsys, "show", "one").endswith("there is a quick run; choose it with --out results/quick\n")
    assert run("show", "one", "--out", "results/quick") == 0


def test_runs_are_given_by_name_file_record_or_folder(capsys):
    Path("mine.py").write_text("")
    save("mine", file=str(Path("mine.py").resolve()), set={"dim": 3})
    save("one", folder="elsewhere")
    save("two", folder="elsewhere")
    Path("elsewhere/benchmarks.json").write_text("[]")
    found = {}
    for name in ("mine", "mine.py", "elsewhere", "elsewhere/two.json"):
        assert run("show", name) == 0
        found[name] = capsys.readouterr().out
    assert found["mine"] == found["mine.py"]
    assert found["mine"].startswith("mine: full run, dim = 3, linfed ?, mine.py\n")
    assert found["elsewhere"].splitlines()[0] == "one: full run, linfed ?"
    assert found["elsewhere"].endswith("\n\n" + found["elsewhere/two.json"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fedrep-fig33", "no saved run of 'fedrep-fig33' in "),
        ("fedrep-fig3", ": run linfed reproduce fedrep-fig3, or choose another folder with --out DIR\n"),
        (
            "fig",
            ": run linfed reproduce fig, or see the committed run with linfed show fig --out results/committed",
        ),
        ("xyz", ": run linfed reproduce xyz if linfed list has this name, or choose another folder with --out DIR\n"),
        ("elsewhere/on.json", "NAME 'elsewhere/on.json' does not exist (did you mean 'one.json'?)\n"),
        ("other", "'results/other.json' is not a valid record of a run: rewrite it with linfed reproduce other\n"),
    ],
)
def test_a_run_that_is_not_there_is_one_line(name, told, capsys):
    save("fig", folder="results/committed")
    save("one", folder="elsewhere")
    Path("results").mkdir(exist_ok=True)
    Path("results/other.json").write_text("[]")
    assert told in refused(capsys, "show", name)


@pytest.mark.parametrize(
    ("variables", "colored"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": ""}, True),
    ],
)
def test_verdicts_are_coloured_where_that_is_wanted(variables, colored, capsys, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    save("one", claims=(finding(high=0.2, low=0.1),))
    assert run("show", "one") == 0
    printed = capsys.readouterr().out
    assert ("\x1b[31mNOT SUPPORTED\x1b[0m" in printed) is colored
    assert ("\x1b" in printed) is colored
    assert "NOT SUPPORTED" in printed


def test_declared_claims_of_a_shipped_experiment_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert run("show", "fedrep-fig3", "--claims", "--experiments", ROOT / "experiments") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fedrep-fig3: ")
    assert max(map(len, lines)) <= 70
    assert "FedRep converges in fewer rounds with more clients" in lines
