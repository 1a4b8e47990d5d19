"""The working folder of a test, and a report to read."""

from tests.report.reports import results, written
from tests.reproduction.toys import folder

__all__ = ["folder", "results", "written"]
