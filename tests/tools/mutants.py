"""Which tests detect which mistakes? Mutants of the package, each against the default tests that run its line.

    python -m tests.tools.mutants [--sample 800] [--seed 0] [--cap 10] [--workers 2] [--folder mutants] [--save FILE]
    python -m tests.tools.mutants --replay 40 [--seed 0] [--rooms ROOM ..] [--tests PATH ..]

cosmic-ray's operators make the mutants, and a seed chooses them: rooms in proportion to their lines, then a place in
the code, then one of its operators. The first run finds out, in some minutes, which test runs which line. Each mutant
meets the tests that run its line, those of a file with its name first, as many as take CAP seconds. None stops the
others, so that the result is a matrix: which test functions kill which mutant. A test fails if it takes far longer than
without the mutant. An interrupted run continues.

--save writes the matrix; ``mutants.json`` has the one that was accepted. There a mutant is named by its file, its
function and the text that it replaces, so that it outlives changes elsewhere. --replay makes some of the killed ones
again, and fails if all tests pass with one of them; with --rooms those in some folders of linfed, and with --tests it
runs the tests of these files and folders alone.

No mutants are made in annotations, decorators, ``raise`` statements, ``warn`` calls, ``__repr__``, estimates of memory
(``floats_per_trial``) and ``if TYPE_CHECKING``. None are made that give the same program or no program. Left out are
also operators that mostly fail at once: bits, ``is``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt  # noqa: F401 - imported once, before the process forks
import pytest
import scipy.optimize
import scipy.stats  # noqa: F401
from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    *("linfed", "tests", "experiments", "notebooks", "docs", "results/committed"),
    *("CITATION.cff", "README.md", "pyproject.toml"),
)
ACCEPTED = Path(__file__).with_name("mutants.json")
LEFT_OUT = re.compile("Shift|Bit|Invert|UAdd|_Is$|_IsNot$|Variable")
LEAST = 12
"""The smallest number of mutants of a room."""

KILLERS = 4
"""The largest number of tests that are saved for a mutant."""


class Mutant(NamedTuple):
    """A change of a function: the `number`-th place of the text `old` becomes `new`.

    `function` is the qualified name of the innermost function or class; empty for the module.
    """

    file: str
    function: str
    old: str
    new: str
    number: int = 0

    def made(self, text: str) -> tuple[str, int] | None:
        """Return the changed text of the file and the line of the change, or None if the place is gone."""
        scope = scopes(text).get(self.function)
        at = -1 if scope is None else offset(text, scope[0]) - 1
        for _ in range(self.number + 1):
            at = text.find(self.old, at + 1) if scope else -1
            if at < 0 or (scope and text.count("\n", 0, at) >= scope[1]):
                return None
        changed = text[:at] + self.new + text[at + len(self.old) :]
        return changed, text.count("\n", 0, at) + 1


def offset(text: str, line: int) -> int:
    """Return where a line begins; the first is 1."""
    return sum(map(len, text.splitlines(keepends=True)[: line - 1]))


def scopes(text: str) -> dict[str, tuple[int, int]]:
    """Return the first and the last line of each function and class, by its qualified name, and of the module."""
    found = {"": (1, text.count("\n") + 1)}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}".lstrip(".")
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                found.setdefault(name, (first, child.end_lineno or first))
            visit(child, name)

    visit(ast.parse(text), "")
    return found


def described(file: str, text: str, changed: str) -> Mutant:
    """Return the mutant that makes one text from the other: the lines that differ."""
    lines, others = text.splitlines(keepends=True), changed.splitlines(keepends=True)
    first = next(i for i, (a, b) in enumerate(zip(lines, others, strict=False)) if a != b)
    last = next(i for i, (a, b) in enumerate(zip(lines[::-1], others[::-1], strict=False)) if a != b)
    old, new = ("".join(one[first : len(one) - last]) for one in (lines, others))
    within = {name: span for name, span in scopes(text).items() if span[0] <= first + 1 <= span[1]}
    function = max(within, key=lambda name: (within[name][0], -within[name][1]))
    start, at = offset(text, within[function][0]), offset(text, first + 1)
    number, place = 0, text.find(old, start)
    while place < at:
        number, place = number + 1, text.find(old, place + 1)
    return Mutant(file, function, old, new, number)


# --- the sample ------------------------------------------------------------------------------------------------------


def ignored(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the places, from and to, in which no mutant matters."""
    found: list[ast.AST] = []
    decorators: list[ast.expr] = []
    for node in ast.walk(tree):
        found += [part for part in (getattr(node, "annotation", None), getattr(node, "returns", None)) if part]
        name = getattr(node, "name", "")
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        decorators += getattr(node, "decorator_list", [])
        guard = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if isinstance(node, ast.Raise) or name in ("__repr__", "floats_per_trial") or called.endswith("warn") or guard:
            found.append(node)
    spans = [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in found]  # type: ignore[attr-defined]
    # Decorators begin at "@", one column before their expression.
    return spans + [((n.lineno, n.col_offset - 1), (n.end_lineno or 0, n.end_col_offset or 0)) for n in decorators]


def places(path: Path) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Return the operators, each with its occurrence, at every place of a file (line, column)."""
    import cosmic_ray.plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    text = path.read_text()
    lines, nodes = text.splitlines(), list(ast_nodes(get_ast(text)))
    skipped, found = ignored(ast.parse(text)), defaultdict[tuple[int, int], list[tuple[str, int]]](list)
    for name in filter(lambda name: not LEFT_OUT.search(name), cosmic_ray.plugins.operator_names()):
        operator = cosmic_ray.plugins.get_operator(name)()
        positions = [where[0] for node in nodes for where in operator.mutation_positions(node)]
        for occurrence, place in enumerate(positions):
            keyword_only = lines[place[0] - 1][place[1] :].startswith("*,")
            if not keyword_only and not any(first <= place < last for first, last in skipped):
                found[place].append((name, occurrence))
    return found


def room(file: str) -> str:
    """Return the room of a file: the folder in linfed, or "top"."""
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else "top"


def sample(package: Path, number: int, seed: int) -> list[Mutant]:
    """Return mutants in random order."""
    import cosmic_ray.plugins
    from cosmic_ray.mutating import mutate_code

    files = defaultdict[str, list[Path]](list)
    for path in sorted(package.rglob("*.py")):
        files[room(str(path.relative_to(package.parent)))].append(path)
    size = {area: sum(len(path.read_text().splitlines()) for path in paths) for area, paths in files.items()}
    chosen = []
    for area, paths in files.items():
        wanted = max(LEAST, round(number * size[area] / sum(size.values())))
        rng = random.Random(f"{seed} {area}")
        candidates = [(path, place, ops) for path in paths for place, ops in sorted(places(path).items())]
        rng.shuffle(candidates)
        for path, _, operators in candidates:
            if wanted <= 0:
                break
            name, occurrence = rng.choice(operators)
            text = path.read_text()
            try:
                changed = mutate_code(text, cosmic_ray.plugins.get_operator(name)(), occurrence)
                if changed is None or ast.dump(ast.parse(text)) == ast.dump(ast.parse(changed)):
                    continue
                compile(changed, str(path), "exec")
            except (AttributeError, SyntaxError):  # cosmic-ray cannot replace a tuple of exceptions
                continue
            chosen.append(described(str(path.relative_to(package.parent)), text, changed))
            wanted -= 1
    random.Random(seed).shuffle(chosen)
    return chosen


# --- the tests -------------------------------------------------------------------------------------------------------


class Map:
    """Which tests run a line, and how long they take."""

    def __init__(self, folder: Path, copy: Path, tests: list[str]) -> None:
        data, log = folder / "coverage", folder / "map.txt"
        if not log.exists():
            options = ["-pno:xdist", "-q", "--cov=linfed", "--cov-context=test", "--cov-report=", "--durations=0"]
            options += ["--tb=no", "-rfE", *tests]
            environment = {**os.environ, "PYTHONPATH": str(copy), "COVERAGE_FILE": str(data)}
            with (folder / "map.part").open("w") as file:
                subprocess.run([sys.executable, "-m", "pytest", *options], cwd=copy, env=environment, stdout=file)
            (folder / "map.part").rename(log)
        self.data, text = CoverageData(str(data)), log.read_text()
        self.data.read()
        self.failed = set(re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE))
        self.seconds: Counter[str] = Counter()
        for seconds, test in re.findall(r"^ *([\d.]+)s \w+ +(\S.*)$", text, re.MULTILINE):
            self.seconds[test] += float(seconds)
        self.tests_of_all = {name.rpartition("|")[0] for name in self.data.measured_contexts() if name}
        if not self.tests_of_all:
            sys.exit(f"no test has run a line: see {log}")
        self.measured = defaultdict[str, list[str]](list)
        for file in self.data.measured_files():
            self.measured["linfed/" + file.rpartition("/linfed/")[2]].append(file)

    def tests(self, file: str, line: int, text: str, cap: float) -> list[str]:
        """Return the tests that run a line (or the file, if no test runs the line), the most promising first."""
        contexts = defaultdict[int, list[str]](list)
        for one in self.measured[file]:
            for number, names in self.data.contexts_by_lineno(one).items():
                contexts[number] += names
        inner = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.stmt) and n.lineno <= line <= n.end_lineno]
        first = max((node.lineno for node in inner), default=line)
        found = {name for n in range(first, line + 1) for name in contexts.get(n, []) if name}
        found = found or {name for names in contexts.values() for name in names if name}
        ordered, cases, used = [], Counter[str](), 0.0
        for test in sorted({name.rpartition("|")[0] for name in found} - self.failed, key=self.seconds.__getitem__):
            function = test.partition("[")[0]
            ordered.append((Path(file).stem not in function, cases[function], self.seconds[test], test))
            cases[function] += 1
        chosen = []
        for *_, seconds, test in sorted(ordered):
            used += seconds + 0.003
            if used < cap:
                chosen.append(test)
        return chosen


class Recorder:
    """Write the tests that fail to a file as they end; let none take more than 5 s and 10 times as long as it did."""

    def __init__(self, file: Any, seconds: dict[str, float]) -> None:
        self.file, self.seconds = file, seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        def stop(*_: object) -> None:
            raise TimeoutError("the test takes too long")

        signal.signal(signal.SIGALRM, stop)
        signal.alarm(int(5 + 10 * self.seconds.get(item.nodeid, 0.0)))
        try:
            return (yield)
        finally:
            signal.alarm(0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.file.write(f"{report.nodeid}\n")
            self.file.flush()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.file.write(f"{report.nodeid or 'collection'}\n")
            self.file.flush()


def killers(copy: Path, tests: list[str], seconds: dict[str, float], cap: float, log: Path) -> tuple[str, list[str]]:
    """Run tests in a fork of this process, which has imported much; return the outcome and the failed functions."""
    if not tests:
        return "survived", []
    failed = log.with_suffix(".failed")
    failed.write_text("")
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(4 * cap + 30), int(4 * cap + 31)))
        os.chdir(copy)
        os.environ["PYTHONPATH"] = str(copy)
        sys.path[:] = [str(copy), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "linfed", "experiments")]:
            del sys.modules[name]
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        with failed.open("w") as file:
            options = ["-q", "--all", "-n0", "-pno:cacheprovider", "--tb=no", "--continue-on-collection-errors"]
            os._exit(pytest.main([*options, *tests], plugins=[Recorder(file, seconds)]))
    end = time.monotonic() + 20 * cap + 120
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with the processes of its tests
    if ended[0] == 0:
        os.waitpid(child, 0)
    found = sorted({name.partition("[")[0] for name in failed.read_text().splitlines()})
    if found:
        return "killed", found
    if ended[0] == 0 or not os.WIFEXITED(ended[1]):
        return "undecided", []
    return ("survived" if os.WEXITSTATUS(ended[1]) == 0 else "killed"), []


# --- the matrix ------------------------------------------------------------------------------------------------------


def copy_of(source: Path, target: Path) -> Path:
    """Copy what the tests need."""
    target.mkdir()
    for name in COPIED:
        (shutil.copytree if (source / name).is_dir() else shutil.copy2)(source / name, target / name)
    return target


def try_mutants(mutants: list[Mutant], known: Map, copy: Path, cap: float, results: Path) -> None:
    """Make each mutant in the copy, and append how it ended to a file."""
    for index, mutant in enumerate(mutants):
        path = copy / mutant.file
        text = path.read_text()
        made = mutant.made(text)
        outcome, failed, tests = "gone", list[str](), list[str]()
        if made is not None:
            tests = known.tests(mutant.file, made[1], text, cap)
            try:
                path.write_text(made[0])
                os.utime(path, (1e9 + index, 1e9 + index))  # Python compiles a file again if its time differs
                outcome, failed = killers(copy, tests, known.seconds, cap, results.with_suffix(".log"))
            finally:
                path.write_text(text)
                os.utime(path, (1e9 - index, 1e9 - index))
        with results.open("a") as output:
            output.write(json.dumps([*mutant, outcome, failed, len(tests)]) + "\n")
        print(outcome, mutant.file, mutant.function, len(failed), "of", len(tests), flush=True)


def read(folder: Path) -> dict[Mutant, tuple[str, list[str]]]:
    """Return the outcome and the killers of the mutants that have been tried."""
    rows = [json.loads(line) for file in sorted(folder.glob("results-*.jsonl")) for line in file.open()]
    return {Mutant(*row[:5]): (row[5], row[6]) for row in rows}


def score(done: dict[Mutant, tuple[str, list[str]]]) -> None:
    """Print for each room how many mutants were killed, and by two test functions."""
    for area in (*sorted({room(mutant.file) for mutant in done}), ""):
        found = [one for mutant, one in done.items() if area in ("", room(mutant.file)) and one[0] != "gone"]
        count, twice = Counter(outcome for outcome, _ in found), sum(len(failed) > 1 for _, failed in found)
        share = count["killed"] / max(1, len(found))
        print(f"{area or 'all':13} {len(found)} mutants, {count['killed']} killed ({share:.1%}), {twice} twice", count)


def main() -> None:
    """Try the mutants that have not been tried, and print the score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=800, help="how many mutants (default 800)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cap", type=float, default=10.0, help="seconds of tests for a mutant (default 10)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("mutants"), help="for copies and what is known so far")
    parser.add_argument("--save", type=Path, help="write the matrix to this file")
    parser.add_argument("--replay", type=int, metavar="N", help="make N of the killed mutants again")
    parser.add_argument("--rooms", nargs="+", default=[], metavar="ROOM", help="replay mutants of these rooms alone")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="run these tests alone")
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(exist_ok=True)
    copies = [folder / f"copy-{number}" for number in range(asked.workers)]
    for copy in copies:
        if not copy.exists():
            copy_of(ROOT, copy)
    chosen = folder / "sample.json"
    if not chosen.exists():
        if asked.replay:
            killed = [Mutant(*row[:5]) for row in json.loads(ACCEPTED.read_text()) if row[5] == "killed"]
            killed = [mutant for mutant in killed if not asked.rooms or room(mutant.file) in asked.rooms]
            mutants = random.Random(asked.seed).sample(killed, min(asked.replay, len(killed)))
        else:
            mutants = sample(copies[0] / "linfed", asked.sample, asked.seed)
        chosen.write_text(json.dumps(mutants))
    Map(folder, copies[0], asked.tests)
    done = read(folder)
    left = [mutant for mutant in (Mutant(*row) for row in json.loads(chosen.read_text())) if mutant not in done]
    children = []
    for number, copy in enumerate(copies):
        if (child := os.fork()) == 0:
            known = Map(folder, copies[0], asked.tests)  # coverage's data do not survive a fork
            try_mutants(left[number :: len(copies)], known, copy, asked.cap, folder / f"results-{number}.jsonl")
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    done = read(folder)
    score(done)
    if asked.save:
        rows = [[*mutant, outcome, failed[:KILLERS]] for mutant, (outcome, failed) in sorted(done.items())]
        asked.save.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    if asked.replay and (lost := [mutant for mutant, (outcome, _) in done.items() if outcome == "survived"]):
        sys.exit(
            "\n".join(["no test detects", *(f"{one.file} {one.function}: {one.old!r} -> {one.new!r}" for one in lost)])
        )


if __name__ == "__main__":
    main()
