"""The working folder of a test, and the toy in it."""

from tests.reproduction.toys import folder, pdfs, toy

__all__ = ["folder", "pdfs", "toy"]
