"""Cells and drawings that experiments of several folders use."""
