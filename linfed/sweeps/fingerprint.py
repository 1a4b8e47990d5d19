"""The description of a cell, as its key in a store; see `linfed.system.description`."""

from linfed.system.description import describe, text_of

Fingerprint = describe

__all__ = ["Fingerprint", "text_of"]
