#!/usr/bin/env python3
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""Checks of linfed, each in an environment of its own: ``pip install nox``, then ``nox`` or ``nox -s lint``.

The workflows in ``.github/`` run the same sessions. ``.ci/run`` runs all of them at once, as a new user would.
"""

from __future__ import annotations

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types and prose."""
    session.install("-e", ".[test,lint]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("python", "-m", "tests.prose")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest, e.g. ``nox -s tests-3.12 -- --all``."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs, env={"MPLBACKEND": "Agg"})


@nox.session(default=False)
def coverage(session: nox.Session) -> None:
    """Run all tests, with branch coverage."""
    session.install("-e", ".[test]")
    options = ["--all", "--cov=linfed", "--cov-branch", "--cov-report=xml", *session.posargs]
    session.run("python", "-m", "pytest", *options, env={"MPLBACKEND": "Agg"})


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Try a random sample of mutants; arguments go to ``python -m tests.mutants``, e.g. ``--sample 50``."""
    session.install("-e", ".[test]", "cosmic-ray==8.7.0")  # a seed chooses the same sample with this release alone
    session.run(
        "python", "-m", "tests.mutants", *session.posargs, env={"MPLBACKEND": "Agg", "OPENBLAS_NUM_THREADS": "1"}
    )


@nox.session(default=False)
def reproduce(session: nox.Session) -> None:
    """Reproduce an experiment from the installed package; by default ``fedrep-fig3 --quick``."""
    session.install(".")
    session.run("linfed", "reproduce", *(session.posargs or ["fedrep-fig3", "--quick"]))


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site in ``site/``; warnings are errors."""
    session.install("-e", ".[docs]")
    session.run("python", "-m", "sphinx", "-W", "--keep-going", "docs", "site", *session.posargs)


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


if __name__ == "__main__":
    nox.main()
