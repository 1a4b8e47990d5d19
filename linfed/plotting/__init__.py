"""Figures of tables: panels and captions."""
