"""The working folder of a test."""

from tests.reproduction.toys import folder

__all__ = ["folder"]
