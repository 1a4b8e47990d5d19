"""What share of random mutants do the tests kill? Each mutant of a sample meets the tests that run its line.

    python -m tests.mutants [--sample 700] [--seed 0] [--cap 60] [--folder mutants] [--again TEST ...]

`tests.mutations` is a list of mistakes written by hand, each with the tests that must detect it. Here cosmic-ray's
operators make the mutants, and a seed chooses them: areas in proportion to their lines, then a place in the code, then
one of its operators. The first run finds out, in some minutes, which test runs which line; it skips the tests that need
pytest's --all. A mutant is killed if a test fails. It is undecided after CAP seconds of the processor, or 20 times as
many by the clock. Otherwise it survives. An interrupted run continues. --again tries the survivors and the undecided
against these tests only, which may be tests that need --all.

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
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import cosmic_ray.plugins
import matplotlib.pyplot as plt  # noqa: F401 - imported once, before the process forks
import pytest
import scipy.optimize
import scipy.stats  # noqa: F401
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from coverage import CoverageData

from tests.mutations import ROOT, copy_of

AREAS = ("numerics", "data", "algorithms", "simulation", "statistics", "theory", "prediction")
LEFT_OUT = re.compile("Shift|Bit|Invert|UAdd|_Is$|_IsNot$|Variable")


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


def sample(package: Path, number: int, seed: int) -> list[tuple[str, int, str, str]]:
    """Return mutants in random order: file, line, what was done, and the file's new text."""
    files = {area: sorted((package / area).rglob("*.py")) for area in AREAS}
    size = {area: sum(len(path.read_text().splitlines()) for path in files[area]) for area in AREAS}
    chosen = []
    for area in AREAS:
        rng, wanted = random.Random(f"{seed} {area}"), round(number * size[area] / sum(size.values()))
        candidates = [(path, place, ops) for path in files[area] for place, ops in sorted(places(path).items())]
        rng.shuffle(candidates)
        for path, place, operators in candidates:
            name, occurrence = rng.choice(operators)
            text = path.read_text()
            try:
                changed = mutate_code(text, cosmic_ray.plugins.get_operator(name)(), occurrence)
                if changed is None or ast.dump(ast.parse(text)) == ast.dump(ast.parse(changed)):
                    continue
                compile(changed, str(path), "exec")
            except (AttributeError, SyntaxError):  # cosmic-ray cannot replace a tuple of exceptions
                continue
            chosen.append((str(path.relative_to(package.parent)), place[0], f"{name[5:]} {occurrence}", changed))
            wanted -= 1
            if wanted <= 0:
                break
    random.Random(seed).shuffle(chosen)
    return chosen


class Map:
    """Which tests run a line, and how long they take."""

    def __init__(self, folder: Path, copy: Path) -> None:
        data, log = folder / "coverage", folder / "map.txt"
        if not log.exists():
            options = [
                "-pno:xdist",
                "-q",
                "--cov=linfed",
                "--cov-context=test",
                "--cov-report=",
                "--durations=0",
                "--tb=no",
            ]
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
        self.measured = {file.partition("/copy/")[2]: file for file in self.data.measured_files()}

    def tests(self, file: str, line: int, text: str, cap: float) -> list[str]:
        """Return the tests that run a line (or the file, if no test runs the line), the most promising first."""
        contexts = self.data.contexts_by_lineno(self.measured[file]) if file in self.measured else {}
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


def fate(copy: Path, tests: list[str], cap: float, log: Path) -> str:
    """Run tests in a fork of this process, which has imported what linfed imports; return how it ended."""
    if not tests:
        return "survived"
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(cap), int(cap) + 1))
        os.chdir(copy)
        os.environ["PYTHONPATH"] = str(copy)
        sys.path[:] = [str(copy), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "linfed")]:
            del sys.modules[name]
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os._exit(pytest.main(["-x", "-q", "--all", "-n0", "-pno:cacheprovider", "--tb=no", "-rfE", *tests]))
    end = time.monotonic() + 20 * cap
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with the processes of its tests
    if ended[0] == 0:
        os.waitpid(child, 0)
    if ended[0] == 0 or not os.WIFEXITED(ended[1]):
        return "undecided"
    return "survived" if os.WEXITSTATUS(ended[1]) == 0 else "killed"


def main() -> None:
    """Try the mutants of a sample that have not been tried, and print the score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=700, help="how many mutants (default 700)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cap", type=float, default=60.0, help="seconds of the processor for a mutant (default 60)")
    parser.add_argument("--folder", type=Path, default=Path("mutants"), help="for the copy and what is known so far")
    parser.add_argument("--again", nargs="*", default=[], metavar="TEST", help="try survivors against these alone")
    asked = parser.parse_args()
    folder, copy = asked.folder.resolve(), asked.folder.resolve() / "copy"
    folder.mkdir(exist_ok=True)
    if not copy.exists():
        copy_of(ROOT, copy)
    if asked.again:
        subprocess.run(["cp", "-r", ROOT / "tests", copy], check=True)
    known, results = Map(folder, copy), folder / "results.jsonl"
    chosen = folder / f"sample-{asked.sample}-{asked.seed}.json"
    if not chosen.exists():
        chosen.write_text(json.dumps(sample(copy / "linfed", asked.sample, asked.seed)))
    done = {}
    for line in results.read_text().splitlines() if results.exists() else []:
        *what, outcome, _ = json.loads(line)
        done[tuple(what)] = outcome
    for index, (file, line, name, changed) in enumerate(json.loads(chosen.read_text())):
        what, path = (file, line, name), copy / file
        if done.get(what) == "killed" or (what in done and not asked.again):
            continue
        text, times = path.read_text(), path.stat()
        tests = asked.again or known.tests(file, line, text, asked.cap)
        try:
            path.write_text(changed)
            os.utime(path, (1e9 + index, 1e9 + index))  # Python compiles a file again if its time differs
            done[what] = fate(copy, tests, asked.cap, folder / "last.txt")
        finally:
            path.write_text(text)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        killer = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", (folder / "last.txt").read_text(), re.MULTILINE)
        with results.open("a") as output:
            row = (*what, done[what], killer[1] if killer and done[what] == "killed" else "")
            output.write(json.dumps(row) + "\n")
        print(*row, flush=True)
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    killers = sorted({row[-1].strip() for row in rows} & set(known.tests_of_all))
    print(
        f"control: without a mutant {len(killers)} killers run:",
        fate(copy, killers, 60 * asked.cap, folder / "last.txt"),
    )
    for area in (*AREAS, ""):
        count = Counter(outcome for (file, *_), outcome in done.items() if file.startswith(f"linfed/{area}"))
        share = count["killed"] / max(1, count.total())
        print(f"{area or 'all':12} {count.total()} mutants, {count['killed']} killed ({share:.1%}), {dict(count)}")


if __name__ == "__main__":
    main()
