"""``linfed compare`` prints what differs between two runs, and fails with ``--strict`` if something does."""

import pytest

from linfed.reproduction.record import ResultsFolder, RunRecord
from tests.helpers import finding
from tests.reproduction.toys import refused, run

SAME = finding("it falls"), finding("it rises")
WEAKER = finding("it falls", low=0.4), finding("it rises")

CASES = {
    "the same": (SAME, {}, 0, "0 changed verdicts, 0 claims in one run alone"),
    "a moved verdict": (WEAKER, {}, 1, "1 changed verdict, 0 claims in one run alone"),
    "a claim less": (SAME[:1], {}, 1, "0 changed verdicts, 1 claim in one run alone"),
    "two more": ((*SAME, finding("c"), finding("d")), {}, 1, "0 changed verdicts, 2 claims in one run alone"),
    "other settings": (SAME, {"quick": True}, 1, "0 changed verdicts, 0 claims in one run alone, 1 experiment with "),
}


@pytest.mark.parametrize("name", CASES)
def test_the_exit_status_is_of_the_differences_if_strict(name, tmp_path, capsys):
    claims, changes, status, counts = CASES[name]
    for folder, judged, more in (("before", SAME, {}), ("after", claims, changes)):
        (tmp_path / folder).mkdir()
        record = RunRecord(**{"experiment": "one", "quick": False, "claims": judged} | more)
        ResultsFolder(tmp_path / folder).write(record)
    paths = tmp_path / "before", tmp_path / "after" / "one.json"
    assert run("compare", *paths) == 0
    assert "--strict" not in capsys.readouterr().out
    assert run("compare", *paths, "--strict") == status
    printed = " ".join(capsys.readouterr().out.split())
    assert f"--strict: {counts}" in printed
    assert printed.endswith(f"so the exit status is {status}")
    assert ("no differences" in printed) == (name == "the same")


def test_mistakes_are_one_line(tmp_path, capsys):
    ResultsFolder(tmp_path).write(RunRecord(experiment="one", quick=False, claims=SAME))
    for arguments, told in (
        (("nowhere", tmp_path), "BEFORE 'nowhere' does not exist"),
        ((tmp_path, "nowhere"), "AFTER 'nowhere' does not exist"),
        ((tmp_path, tmp_path, "--rtol", "-1"), "--rtol -1.0 must be at least 0"),
    ):
        assert told in refused(capsys, "compare", *arguments)


def test_only_experiments_of_the_first_run_may_be_missing_if_strict(tmp_path, capsys):
    """A part of the experiments can be compared with all committed runs."""
    for folder, names in (("all", ("one", "two")), ("part", ("one",))):
        (tmp_path / folder).mkdir()
        for name in names:
            ResultsFolder(tmp_path / folder).write(RunRecord(experiment=name, quick=False, claims=SAME))
    for before, after, status, counts in (
        ("all", "part", 0, "1 experiment in BEFORE only (allowed), so the exit status is 0"),
        ("part", "all", 1, "1 experiment in AFTER only, so the exit status is 1"),
    ):
        assert run("compare", tmp_path / before, tmp_path / after, "--strict") == status
        assert f"0 claims in one run alone, {counts}" in " ".join(capsys.readouterr().out.split())
