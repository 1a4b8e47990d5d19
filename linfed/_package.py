"""The package's version and its folder; every module may import them."""

from pathlib import Path

__version__ = "0.2.0"

FOLDER = Path(__file__).parent
"""Folder of the package's files."""

SHIPPED = "_shipped"
"""Folder of the installed package that holds ``experiments/``; in a checkout they lie next to the package."""
