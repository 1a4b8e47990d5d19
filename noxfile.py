#!/usr/bin/env python3
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""Checks of linfed, each in an environment of its own: ``pip install nox``, then ``nox`` or ``nox -s lint``.

The workflows in ``.github/`` run the same sessions. ``.ci/run`` runs all of them at once, as a new user would.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
PROJECT = nox.project.load_toml("pyproject.toml")["project"]
REPRODUCED = ["fedrep-fig4", "flute-theorem51", "shortcut-lost"]
"""An experiment of each paper, by default those that `archive` runs in full."""


def lowest(*extras: str) -> list[str]:
    """Return the requirements of the package and of some extras, each at its lowest version."""
    declared, waiting = list(PROJECT["dependencies"]), list(extras)
    while waiting:
        for requirement in PROJECT["optional-dependencies"][waiting.pop()]:
            if requirement.startswith("linfed["):  # other extras
                waiting += requirement.removeprefix("linfed[").removesuffix("]").split(",")
            else:
                declared.append(requirement)
    return [requirement.replace(">=", "==") for requirement in dict.fromkeys(declared)]


def tested(session: nox.Session) -> str:
    """Return the extra that the tests need, with or without ``--all``."""
    return "test-all" if "--all" in session.posargs else "test"


def unpacked(session: nox.Session) -> Path:
    """Build the source archive, unpack it into an empty folder, and return that folder."""
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder)
    folder.mkdir()
    session.install("build")
    session.run("python", "-m", "build", "--sdist", "--outdir", str(folder))
    (archive,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(archive, folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and prose."""
    session.install("-e", ".[test,lint]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("python", "-m", "tests.tools.prose")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest, e.g. ``nox -s tests-3.12 -- --all``."""
    session.install("-e", f".[{tested(session)}]")
    session.run("python", "-m", "pytest", *session.posargs, env={"MPLBACKEND": "Agg"})


@nox.session(python=PYTHONS[0], default=False)
def floors(session: nox.Session) -> None:
    """Run the tests with the lowest versions that pyproject.toml declares; arguments go to pytest."""
    session.install(*lowest(tested(session)))
    session.install("--no-deps", "-e", ".")
    session.run("python", "-m", "pytest", *session.posargs, env={"MPLBACKEND": "Agg"})


@nox.session(default=False)
def coverage(session: nox.Session) -> None:
    """Run all tests, with branch coverage."""
    session.install("-e", ".[test-all]")
    options = ["--all", "--cov=linfed", "--cov-branch", "--cov-report=xml", *session.posargs]
    session.run("python", "-m", "pytest", *options, env={"MPLBACKEND": "Agg"})


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Try a random sample of mutants; arguments go to ``python -m tests.tools.mutants``, e.g. ``--sample 50``."""
    # With another release of cosmic-ray, a seed chooses another sample.
    session.install("-e", ".[test-all]", "cosmic-ray==8.7.0")
    session.run(
        "python", "-m", "tests.tools.mutants", *session.posargs, env={"MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1"}
    )


@nox.session(default=False)
def reproduce(session: nox.Session) -> None:
    """Reproduce an experiment from the installed package; by default ``fedrep-fig3 --quick``."""
    session.install(".")
    session.run("linfed", "reproduce", *(session.posargs or ["fedrep-fig3", "--quick"]))


@nox.session(python=PYTHONS[0], default=False)
@nox.parametrize("dependencies", ["newest", "lowest"])
def archive(session: nox.Session, dependencies: str) -> None:
    """Reproduce an experiment of each paper in full from the source archive alone; verdicts must not differ."""
    source = unpacked(session)
    session.install(source, *(lowest() if dependencies == "lowest" else []))
    with session.chdir(source):
        session.run("linfed", "reproduce", *(session.posargs or REPRODUCED))
        session.run("linfed", "compare", "--strict", "results/committed", "results")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site in ``site/`` from the source archive; warnings are errors."""
    source, site = unpacked(session), Path("site").resolve()
    session.install("-e", f"{source}[docs]")
    with session.chdir(source):
        session.run("python", "-m", "sphinx", "-W", "--keep-going", "docs", site, *session.posargs)


@nox.session(default=False)
def benchmarks(session: nox.Session) -> None:
    """Measure ratios of run times; arguments go to ``python -m benchmarks``."""
    session.install("-e", ".[bench]")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build the source archive and the wheel, and check their metadata."""
    session.install("build", "twine")
    session.run("python", "-m", "build")
    session.run("python", "-m", "twine", "check", "--strict", "dist/*")


@nox.session(default=False)
def release(session: nox.Session) -> None:
    """Check that a release has one version, and that its results are those of its code."""
    session.install("-e", ".")
    session.run("python", "-m", "tests.tools.release")


if __name__ == "__main__":
    nox.main()
